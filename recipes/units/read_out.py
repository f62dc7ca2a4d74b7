"""Copy a codebook with another read-out: it then assigns the mean of SMOOTH frames, and reads a
recording with MARGIN frames of silence before and after.

    python recipes/units/read_out.py IN OUT SMOOTH MARGIN

The codebooks that `pretrain spin` learns read single frames, without silence. Both numbers are
chosen on dev.
"""

from dataclasses import replace
from pathlib import Path

from speechssl.cli import run_program
from speechssl.units.codebook import load_codebook


def main(source: str, out: Path, smooth: int, margin: int) -> None:
    codebook = load_codebook(source)
    card = codebook.card | {"smooth": smooth, "margin": margin}
    replace(codebook, card=card).save(out)


if __name__ == "__main__":
    run_program(main)
