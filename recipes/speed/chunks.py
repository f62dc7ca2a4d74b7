"""What cutting long audio does: share of frames whose unit is not that of one pass. python
recipes/speed/chunks.py CONFIG EXP"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from common import CODEBOOK, encoder, row, save, sentences, settings

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.encoder import Chunking
from speechssl.units.codebook import load_codebook
from speechssl.units.features import extractor_of


def main() -> None:
    step = settings("chunks")
    size = int(step.values["minutes"] * 60 * SAMPLE_RATE)
    parts: list[np.ndarray] = []
    for sentence in sentences(10_000):
        parts.append(sentence)
        if sum(map(len, parts)) >= size:
            break
    samples = np.concatenate(parts)[:size]
    exact = encoder("small", step.exp, "fp32")
    book = load_codebook(CODEBOOK)

    def frames(seconds: float, context: float) -> np.ndarray:
        return extractor_of(replace(exact, chunking=Chunking(seconds, context)), book).frames(
            samples
        )

    whole = frames(1e9, 0)
    for seconds in step.values["seconds"]:
        for context in step.values["context"]:
            found = frames(seconds, context)
            assert len(found) == len(whole), "frames were lost"
            condition = f"chunk {seconds:g} s, context {context:g} s"
            changed = 100 * float((found != whole).mean())
            rows = [
                row(
                    "speechssl fp32", "small", condition, "changed_units", changed, None, len(whole)
                )
            ]
            # the second after a seam
            near = (
                np.arange(len(whole)) % round(seconds * exact.grid.frame_rate)
                < exact.grid.frame_rate
            )
            near[: round(exact.grid.frame_rate)] = False  # the beginning is none
            if near.any():
                seams = 100 * float((found != whole)[near].mean())
                rows.append(
                    row(
                        "speechssl fp32",
                        "small",
                        condition,
                        "changed_at_seams",
                        seams,
                        None,
                        int(near.sum()),
                    )
                )
            save(step.exp, rows)


if __name__ == "__main__":
    main()
