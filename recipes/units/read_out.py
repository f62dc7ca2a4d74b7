"""Copy a codebook so that it averages over SMOOTH frames and has a MARGIN of frames of silence.

    python recipes/units/read_out.py IN OUT SMOOTH MARGIN

For the codebooks that `pretrain spin` learns, which read single frames of a recording as it is;
both numbers are chosen on dev.
"""

import sys
from dataclasses import replace
from pathlib import Path

from speechssl.units.codebook import load_codebook

if __name__ == "__main__":
    _, source, out, smooth, margin = sys.argv
    codebook = load_codebook(source)
    card = codebook.card | {"smooth": int(smooth), "margin": int(margin)}
    replace(codebook, card=card).save(Path(out))
