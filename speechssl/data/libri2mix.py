"""Prepare Libri2Mix for SD and SS (Cosentino et al., arXiv 2005.11262)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from speechssl.data.options import Libri2Mix
from speechssl.data.superb import SPLITS, TOGETHER, Turn, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
    wavs,
)
from speechssl.errors import InputError
from speechssl.schema import convert

PARTS = {"train": "train-100", "dev": "dev", "test": "test"}  # of wav16k/min
SD_COUNTS = {"train": 13_900, "dev": 3_000, "test": 3_000}
SS_COUNTS = {"train": 13_900, "dev": 1_000, "test": 3_000}
DEV_SIZE, DEV_SEED = 1_000, 7
LAYOUT = (
    "give the folder Libri2Mix, which holds wav16k/min (ss), and --diarization what "
    "prepare_diarization.py wrote (sd)"
)


def prepare_libri2mix(o: Libri2Mix) -> Cards:
    """Write `o.out`/sd and `o.out`/ss and return their cards (Libri2Mix: Cosentino et al., arXiv
    2005.11262).

    o.diarization has train, dev and test of the Kaldi kind. Raises as `prepare`, and InputError for
    a mixture in which nobody speaks.
    """
    kaldi = (o.diarization or o.source).resolve()
    settings = {"sd": {"diarization": str(kaldi)}} if "sd" in o.tasks else {}

    def read(order: Order) -> Mapping[str, Prepared]:
        sets: dict[str, Prepared] = {}
        for task in order.folders:
            if task == "sd":
                mixtures = {split: _read_diarization(kaldi / split) for split in SPLITS}
                splits = gather_utterances(order, mixtures, SD_COUNTS)
            else:
                splits = gather_utterances(order, _read_separation(order), SS_COUNTS)
            sets[task] = Prepared(task, splits)
        return sets

    return prepare(Order("libri2mix", o, o.tasks, LAYOUT, settings), read)


def _read_separation(order: Order) -> dict[str, list[Utterance]]:
    root = order.find("wav16k/min")
    utterances: dict[str, list[Utterance]] = {split: [] for split in PARTS}
    for split, part in PARTS.items():
        mixed = wavs(order.find(f"wav16k/min/{part}/mix_clean"))
        for path in subsample(mixed) if split == "dev" else mixed:
            # called after the two that were mixed ("4077-13754-0001_5142-33396-0065"): the first
            # number of either is its speaker
            speakers = TOGETHER.join(name.partition("-")[0] for name in path.stem.split("_"))
            sources = tuple(str(root / part / name / path.name) for name in ("s1", "s2"))
            utterances[split].append(
                Utterance(path.stem, str(path), 0.0, speakers, sources=sources)
            )
    return utterances


def subsample(paths: Sequence[Path]) -> list[Path]:
    """Draw the 1,000 recordings that are dev in SUPERB (s3prl's
    separation_stft/scripts/LibriMix/subsample.py), in order."""
    drawn = sorted(paths, key=lambda path: path.stem)
    Random(DEV_SEED).shuffle(drawn)
    return sorted(drawn[:DEV_SIZE], key=lambda path: path.stem)


def _read_diarization(folder: Path) -> Iterator[Utterance]:
    """Read mixtures with turns: the recordings of wav.scp, its paths from the folder on where they
    are relative."""
    turns: dict[str, list[Turn]] = {}
    remedy = "run prepare_diarization.py again"
    for place, name, speaker, times in _read_turns(folder):
        start, end = convert(times, tuple[float, float], place, remedy, strict=False)
        if (folder / "rttm").is_file():
            end = round(start + end, 6)
        turn = convert({"speaker": speaker, "start": start, "end": end}, Turn, place, remedy)
        turns.setdefault(name, []).append(turn)
    for _, (name, *path) in read_fields(folder / "wav.scp", 2):
        if name not in turns:
            raise InputError(f"{folder} has no speaker in {name}; {remedy}")
        in_order = sorted(turns[name], key=lambda turn: (turn.start, turn.speaker))
        yield Utterance(name, str(folder / " ".join(path)), 0.0, turns=tuple(in_order))


def _read_turns(folder: Path) -> Iterator[tuple[str, str, str, Sequence[str]]]:
    """Yield place, recording, speaker, and [start, duration] of rttm, or else [start, end] of
    segments."""
    # lines such as "SPEAKER recording 1 start duration <NA> <NA> speaker <NA>"
    if (folder / "rttm").is_file():
        for place, fields in read_fields(folder / "rttm", 8):
            if fields[0] == "SPEAKER":
                yield place, fields[1], fields[7], fields[3:5]
        return
    speakers = {name: speaker for _, (name, speaker, *_) in read_fields(folder / "utt2spk", 2)}
    for place, fields in read_fields(folder / "segments", 4):
        yield place, fields[1], speakers[fields[0]], fields[2:4]
