"""The codebook of phones: unit k is symbol k of the recogniser hama (needs speechssl[hama]).

    python recipes/units/phones.py exp/phones.safetensors
    speechssl units extract recordings/ hama:phones exp/phones.safetensors exp/units

Units are phones with `<wb>` between words: what DUAL loses by other units can be measured beside
them, and an encoder can learn to hear them in noise (`pretrain phones`).
"""

import argparse
from pathlib import Path

from speechssl.units.fit import phone_codebook

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("out", type=Path, help="codebook to write (.safetensors)")
options = parser.parse_args()

codebook = phone_codebook()
codebook.save(options.out)
print(f"{options.out}: K = {codebook.size}, {codebook.hash}")
