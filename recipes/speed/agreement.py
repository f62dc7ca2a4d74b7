"""Share of frames with the unit of fp32, in bf16 and int8. python recipes/speed/agreement.py CONFIG
EXP

The small encoder is the trained one that ships, with its own codebook. Of base and large there are
shapes with random weights only: their codebook is fitted on half of the sentences and applied to
the other half.
"""

from __future__ import annotations

import numpy as np
from common import CODEBOOK, encoder, row, save, sentences, settings

from speechssl.encoders.encoder import SpeechEncoder
from speechssl.units.codebook import Codebook, load_codebook
from speechssl.units.features import extractor_of
from speechssl.units.kmeans import fit_kmeans


def codebook(
    shape: str, one: SpeechEncoder, layer: int, clusters: int, speech: list[np.ndarray]
) -> Codebook:
    if shape == "small":
        return load_codebook(CODEBOOK)
    return fit_kmeans(
        (one.features(x, layer).numpy() for x in speech),
        clusters,
        {"layer": layer, "encoder": one.hash},
    )


def main() -> None:
    step = settings("agreement")
    speech = list(sentences(step.values["sentences"]))
    fitted, tested = speech[: len(speech) // 2], speech[len(speech) // 2 :]
    for shape, layer in step.values["layers"].items():
        exact = encoder(shape, step.exp, "fp32")
        book = codebook(shape, exact, layer, step.values["clusters"], fitted)
        expected = np.concatenate([extractor_of(exact, book).frames(x) for x in tested])
        for precision in ("bf16", "int8"):
            other = encoder(shape, step.exp, precision)
            found = np.concatenate([extractor_of(other, book).frames(x) for x in tested])
            share = 100 * float((found == expected).mean())
            condition = f"layer {book.card['layer']}, K {book.size}"
            save(
                step.exp,
                [
                    row(
                        f"speechssl {precision}",
                        shape,
                        condition,
                        "unit_agreement",
                        share,
                        None,
                        len(expected),
                    )
                ],
            )


if __name__ == "__main__":
    main()
