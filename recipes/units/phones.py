"""Write the codebook of phones: unit k is symbol k of the recogniser hama (needs speechssl[hama]).

    python recipes/units/phones.py exp/phones.safetensors
    speechssl units extract recordings/ hama:phones exp/phones.safetensors exp/units

Units are phones with `<wb>` between words: what DUAL loses by other units can be measured beside
them, and an encoder can learn to hear them in noise (`pretrain phones`).
"""

import sys
from pathlib import Path

from speechssl.units.fit import make_phone_codebook

if __name__ == "__main__":
    codebook = make_phone_codebook()
    codebook.save(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: K = {codebook.size}, {codebook.hash}")
