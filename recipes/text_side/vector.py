"""Write the shift from one language's mean to another's, for `train text-qa --shift` and
`evaluate qa --shift`."""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

import torch

from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import DEVICE, Whole, argument, option
from speechssl.textlm.layers import Shift, check_layer, load_shift
from textside.languages import SIDES, average_states, load_body, longest_piece, read_languages
from textside.options import TwoLanguages
from textside.runs import describe_encoder, keep_decisive


@dataclass(frozen=True, kw_only=True)
class Vector(TwoLanguages):
    """write the vector that shifts the hidden states of the second language to those of the first

    mean-difference: mean state of the first language less that of the second, for a reader that was
    trained on the first; zero-mean: less the mean of the second, for training (with the language of
    training as SECOND) and for reading alike.

      python recipes/text_side/vector.py minisqa-en minisqa-zh exp/text-qa \\
        exp/mean-difference.safetensors --layer 2
      speechssl evaluate qa minisqa-zh exp/zh --systems text --reader exp/text-qa \\
        --shift exp/mean-difference.safetensors
    """

    out: Path = argument("file to write, .safetensors")
    layer: Whole = option(
        MISSING, "layer whose output the shift is added to; 0 is what the first one reads"
    )
    method: Literal["mean-difference", "zero-mean"] = option("mean-difference", "see above")
    device: str = option("auto", DEVICE)


def write_vector(o: Vector) -> None:
    """Write the shift that is added to the second language's states, once.

    Raises InputError for a layer that there is not, or where `o.out` was made from other inputs.
    """
    data = read_languages(o)
    origin = {"options": keep_decisive(o)} | describe_encoder(o.encoder) | dict(data.inputs)
    if o.out.is_file():
        shift, _ = load_shift(o.out)
        if (shift.layer, shift.origin) != (o.layer, origin):
            raise InputError(
                f"{o.out} was made from other inputs; choose another file or delete it"
            )
    else:
        body = load_body(o.encoder)
        check_layer(body.encoder, o.layer)
        longest = longest_piece(body, o.length)
        means = []
        for side in SIDES:
            sequences = data.read_sequences(side, (), body, longest)
            means.append(average_states(body, sequences, 0, o.batch).mean[o.layer])
        vector = -means[1] if o.method == "zero-mean" else means[0] - means[1]
        shift = Shift(o.layer, torch.from_numpy(vector).float(), origin)
        shift.save(o.out)
    print(f"{o.out}: {o.method} of layer {o.layer}, length {float(shift.vector.norm()):.3g}")


if __name__ == "__main__":
    sys.exit(script(write_vector, Vector))
