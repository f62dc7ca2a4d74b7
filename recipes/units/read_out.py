"""A copy of a codebook that averages over SMOOTH frames and has a MARGIN of frames of silence.

    python recipes/units/read_out.py IN OUT SMOOTH MARGIN

For the codebooks that `pretrain spin` learns, which read single frames of a recording as it is; both numbers are chosen on dev.
"""

import sys
from dataclasses import replace
from pathlib import Path

from speechssl.units.kmeans import load_codebook

source, out, smooth, margin = sys.argv[1:]
codebook = load_codebook(source)
replace(codebook, card=codebook.card | {"smooth": int(smooth), "margin": int(margin)}).save(Path(out))
