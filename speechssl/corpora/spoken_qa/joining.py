"""Recordings of sentences joined to one recording of their passage, in which nothing drifts.

Every piece is decoded at its own rate, its samples are counted, and what is joined is resampled to 16 kHz once: the beginning of a
piece is the exact sum of the lengths before it, whereas pieces that are resampled (or cut into frames) one by one each gain or lose
a little (fault 4 of the released DUAL code). Lengths are those of what is decoded; the header of an MP3 may only guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, groupby
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artefacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, check_audio, read_audio, read_native, resample, write_flac
from speechssl.errors import InputError

Piece = tuple[np.ndarray, int]  # samples (N,), rate in Hz


@dataclass(frozen=True)
class Joined:
    """Where the pieces lie in what was joined of them."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """(K + 1,) seconds before every piece, and of all, exactly."""
        seconds = (Fraction(n, rate) for n, rate in zip(self.lengths, self.rates, strict=True))
        return tuple(accumulate(seconds, initial=Fraction(0)))

    @property
    def seconds(self) -> float:
        return self.samples / SAMPLE_RATE

    def length(self, piece: int) -> float:
        """Seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def moved(self, piece: int, seconds: float) -> float:
        """A time in a piece as the time in the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[Piece]) -> tuple[np.ndarray, Joined]:
    """The pieces one after another at 16 kHz, float32 (N,), and where they lie. Raises ValueError for no pieces.

    Pieces of one rate are resampled as a whole. Where rates change there is one resampling for every run of one rate, and each run
    is put where the exact sum of the lengths before it says, to the nearest sample: an error of half a sample that does not add up.
    """
    if not pieces:
        raise ValueError("there is nothing to join")
    runs = [(rate, np.concatenate([samples for samples, _ in run])) for rate, run in groupby(pieces, key=lambda piece: piece[1])]
    whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE) if len(runs) == 1 else _placed(runs)
    return whole, Joined(tuple(len(s) for s, _ in pieces), tuple(rate for _, rate in pieces), len(whole))


def _placed(runs: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Runs of different rates, each at the sample that is nearest to its beginning; one may end a sample before the next begins."""
    ends = list(accumulate((Fraction(len(samples), rate) for rate, samples in runs), initial=Fraction(0)))
    borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
    whole = np.zeros(borders[-1], np.float32)
    for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
        piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
        whole[start : start + len(piece)] = piece
    return whole


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json says where they lie. What is there already is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or shorter than `read_audio` takes.
    """
    made_from = [{"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1} for path in paths]
    if (there := _there(out, made_from)) is not None:
        return there
    samples, joined = join([read_native(path) for path in paths])
    check_audio(samples, SAMPLE_RATE, f"what was joined of {paths[0]} and {len(paths) - 1} more")
    write_flac(out, samples)
    write_json(out.with_suffix(".json"), {**asdict(joined), "made_from": made_from})
    return joined


def _there(out: Path, made_from: list[dict[str, Any]]) -> Joined | None:
    """What an earlier run joined of the same recordings; it wrote the JSON last."""
    if not (out.is_file() and out.with_suffix(".json").is_file()):
        return None
    card = read_json(out.with_suffix(".json"))
    if card.pop("made_from", None) != made_from:
        return None
    return Joined(tuple(card["lengths"]), tuple(card["rates"]), card["samples"])


def joining(job: tuple[str, list[Path], Path]) -> tuple[str, Joined | str]:
    """A job for `in_parallel`: (name, recordings, FLAC to write) -> (name, where they lie, or why they could not be joined)."""
    name, paths, out = job
    try:
        return name, write_joined(paths, out)
    except InputError as error:
        return name, str(error)


def measuring(job: tuple[str, Path]) -> tuple[str, float | str]:
    """A job for `in_parallel`: (name, recording) -> (name, its seconds as decoded, or why it cannot be used)."""
    name, path = job
    try:
        return name, len(read_audio(path)) / SAMPLE_RATE
    except InputError as error:
        return name, str(error)
