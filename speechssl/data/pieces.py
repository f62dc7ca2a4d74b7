"""Join the pieces of a recording, and keep where each of them lies.

Pieces are decoded at their own rate and joined before they are resampled to 16 kHz: the beginning
of a piece is the exact sum of the lengths before it. Pieces that are resampled (or cut into frames)
one by one each gain or lose a little (fault 4 of the released DUAL code). Lengths are those of the
decoded samples; the header of an MP3 may only guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, groupby
from math import ceil
from pathlib import Path

import numpy as np

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, check_audio, read_audio, read_native, resample, write_flac


@dataclass(frozen=True)
class Joined:
    """A joined recording knows where its pieces lie."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """The seconds before every piece, and of all, exactly; (K + 1,)."""
        return tuple(accumulate(map(Fraction, self.lengths, self.rates), initial=Fraction(0)))

    def length(self, piece: int) -> float:
        """Return the seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def move_to_whole(self, piece: int, seconds: float) -> float:
        """Move a time in a piece to the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[tuple[np.ndarray, int]]) -> tuple[np.ndarray, Joined]:
    """Join the pieces (at least one) one after another at 16 kHz: float32 (N,), and where they lie.

    Pieces of one rate are resampled as a whole. Where rates change there is one resampling for
    every run of one rate, and each run begins at the exact sum of the lengths before it, to the
    nearest sample: an error of half a sample that does not add up.
    """
    runs = [
        (rate, np.concatenate([samples for samples, _ in run]))
        for rate, run in groupby(pieces, key=lambda piece: piece[1])
    ]
    if len(runs) == 1:
        whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE)
    else:
        seconds = [Fraction(len(samples), rate) for rate, samples in runs]
        ends = list(accumulate(seconds, initial=Fraction(0)))
        borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
        whole = np.zeros(borders[-1], np.float32)
        for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
            # may end a sample before the next begins
            piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
            whole[start : start + len(piece)] = piece
    lengths = tuple(len(samples) for samples, _ in pieces)
    return whole, Joined(lengths, tuple(rate for _, rate in pieces), len(whole))


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json, written last, has where they lie.
    A file that is there is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or
    shorter than `read_audio` takes.
    """
    made_from = [
        {"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1}
        for path in paths
    ]
    description = out.with_suffix(".json")
    if out.is_file() and description.is_file():
        card = read_json(description)
        if card.get("made_from") == made_from:
            return Joined(tuple(card["lengths"]), tuple(card["rates"]), card["samples"])
    samples, joined = join([read_native(path) for path in paths])
    check_audio(samples, SAMPLE_RATE, f"what was joined of {paths[0]} and {len(paths) - 1} more")
    write_flac(out, samples)
    write_json(description, {**asdict(joined), "made_from": made_from})
    return joined


def decoded_seconds(path: Path) -> float:
    """Return the seconds of a recording that `read_audio` takes. Raises InputError for another."""
    return len(read_audio(path)) / SAMPLE_RATE
