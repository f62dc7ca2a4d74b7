"""Write the codebook of phones: unit k is symbol k of the recogniser hama (needs speechssl[hama]).

    python recipes/units/phones.py exp/phones.safetensors
    speechssl units extract recordings/ hama:phones exp/phones.safetensors exp/units

Units are phones with `<wb>` between words: what DUAL loses by other units can be measured beside
them, and an encoder can learn to hear them in noise (`pretrain phones`).
"""

from pathlib import Path

from speechssl.cli import run_program
from speechssl.units.fit import make_phone_codebook


def main(out: Path) -> None:
    codebook = make_phone_codebook()
    codebook.save(out)
    print(f"{out}: K = {codebook.size}, {codebook.hash}")


if __name__ == "__main__":
    run_program(main)
