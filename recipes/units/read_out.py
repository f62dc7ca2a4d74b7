"""A copy of a codebook that averages over SMOOTH frames and has a MARGIN of frames of silence.

    python recipes/units/read_out.py IN OUT SMOOTH MARGIN

For the codebooks that `pretrain spin` learns, which read single frames of a recording as it is;
both numbers are chosen on dev.
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import replace
from pathlib import Path

from speechssl.units.codebook import load_codebook

parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
parser.add_argument("source", metavar="IN")
parser.add_argument("out", type=Path)
parser.add_argument("smooth", type=int)
parser.add_argument("margin", type=int)
given = parser.parse_args()
codebook = load_codebook(given.source)
card = codebook.card | {"smooth": given.smooth, "margin": given.margin}
replace(codebook, card=card).save(given.out)
