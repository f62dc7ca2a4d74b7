"""The codebook of phones: unit k is symbol k of the recogniser hama (needs speechssl[hama]).

    python recipes/units/phones.py exp/phones.safetensors
    speechssl units extract recordings/ hama:phones exp/phones.safetensors exp/units

Units are phones with `<wb>` between words: what DUAL loses by other units can be measured beside
them, and an encoder can learn to hear them in noise (`pretrain spin --teacher hama:phones`).
"""

import argparse
from pathlib import Path

import numpy as np

from speechssl.encoders.hama import PHONES, load_hama, phone_symbols
from speechssl.units.codebook import Codebook
from speechssl.units.features import encoder_features

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("out", type=Path, help="codebook to write (.safetensors)")
options = parser.parse_args()

symbols = phone_symbols()
features = encoder_features(load_hama(PHONES), layer=0, smooth=1)
facts = features.card | {"read_out": "phones, by greedy CTC", "symbols": symbols}
Codebook(np.eye(len(symbols), dtype=np.float32), facts).save(options.out)
print(f"{options.out}: {len(symbols)} units, {' '.join(symbols)}")
