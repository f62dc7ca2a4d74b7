"""Copy a codebook with another read-out: it then assigns the mean of SMOOTH frames, and reads a
recording with MARGIN frames of silence before and after.

    python recipes/units/read_out.py IN OUT SMOOTH MARGIN

The codebooks that `pretrain spin` learns read single frames, without silence. Both numbers are
chosen on dev.
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
