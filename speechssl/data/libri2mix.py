"""Prepare Libri2Mix for speaker diarization, SD, and source separation, SS (Cosentino et al., arXiv
2005.11262)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from speechssl.data.options import Libri2Mix
from speechssl.data.superb import SPLITS, TOGETHER, Turn, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    list_wavs,
    prepare,
    read_fields,
)
from speechssl.schema import convert

FOLDERS = {"train": "train-100", "dev": "dev", "test": "test"}  # split -> folder of wav16k/min
SD_COUNTS = {"train": 13_900, "dev": 3_000, "test": 3_000}
SS_COUNTS = {"train": 13_900, "dev": 1_000, "test": 3_000}
DEV_SIZE = 1_000  # mixtures of dev in SS
DEV_SEED = 7  # of the random choice of these mixtures, as in s3prl


def prepare_libri2mix(o: Libri2Mix) -> Cards:
    """Write `o.out`/sd and `o.out`/ss and return their cards.

    o.diarization has a Kaldi data folder for each of train, dev and test. Raises as `prepare`.
    """
    kaldi = (o.diarization or o.source).resolve()
    settings = {"sd": {"diarization": str(kaldi)}} if "sd" in o.tasks else {}

    def read(preparation: Preparation) -> Mapping[str, Prepared]:
        sets: dict[str, Prepared] = {}
        if "sd" in o.tasks:
            mixtures = {split: _read_diarization(kaldi / split) for split in SPLITS}
            sets["sd"] = Prepared(gather_utterances(preparation, mixtures, SD_COUNTS))
        if "ss" in o.tasks:
            separation = _read_separation(preparation)
            sets["ss"] = Prepared(gather_utterances(preparation, separation, SS_COUNTS))
        return sets

    return prepare(Preparation("libri2mix", o, o.tasks, settings), read)


def _read_separation(preparation: Preparation) -> dict[str, list[Utterance]]:
    """Read the clean mixtures of two voices, each with its two sources."""
    root = preparation.find("wav16k/min")
    utterances: dict[str, list[Utterance]] = {split: [] for split in FOLDERS}
    for split, folder in FOLDERS.items():
        mixtures = list_wavs(preparation.find(f"wav16k/min/{folder}/mix_clean"))
        if split == "dev":
            mixtures = subsample(mixtures)
        for path in mixtures:
            # 4077-13754-0001_5142-33396-0065 is a mixture of the speakers 4077 and 5142
            speakers = TOGETHER.join(name.partition("-")[0] for name in path.stem.split("_"))
            sources = tuple(str(root / folder / name / path.name) for name in ("s1", "s2"))
            utterance = Utterance(
                id=path.stem,
                audio=str(path),
                speaker=speakers,
                sources=sources,
            )
            utterances[split].append(utterance)
    return utterances


def subsample(paths: Sequence[Path]) -> list[Path]:
    """Sample the DEV_SIZE mixtures that are dev in SUPERB, as s3prl's
    separation_stft/scripts/LibriMix/subsample.py does, and return them in the order of names."""
    shuffled = sorted(paths, key=lambda path: path.stem)
    Random(DEV_SEED).shuffle(shuffled)
    return sorted(shuffled[:DEV_SIZE], key=lambda path: path.stem)


def _read_diarization(folder: Path) -> Iterator[Utterance]:
    """Yield the mixtures of a Kaldi data folder with their turns. Relative paths in wav.scp are
    relative to the folder."""
    turns: dict[str, list[Turn]] = {}  # mixture -> its turns
    remedy = "run prepare_diarization.py again"
    for place, name, speaker, times in _read_turns(folder):
        start, end = convert(times, tuple[float, float], place, remedy, strict=False)
        if (folder / "rttm").is_file():  # `end` is still the duration
            end = round(start + end, 6)
        turn = convert({"speaker": speaker, "start": start, "end": end}, Turn, place, remedy)
        turns.setdefault(name, []).append(turn)
    for _, (name, *path) in read_fields(folder / "wav.scp", 2):
        in_order = sorted(turns[name], key=lambda turn: (turn.start, turn.speaker))
        audio = str(folder / " ".join(path))
        yield Utterance(name, audio, turns=tuple(in_order))


def _read_turns(folder: Path) -> Iterator[tuple[str, str, str, Sequence[str]]]:
    """Yield (place, recording, speaker, times). Times are [start, duration] where there is a file
    rttm, or else [start, end] of the file segments."""
    if (folder / "rttm").is_file():
        # "SPEAKER recording 1 start duration <NA> <NA> speaker <NA>"
        for place, fields in read_fields(folder / "rttm", 8):
            if fields[0] == "SPEAKER":
                yield place, fields[1], fields[7], fields[3:5]
        return
    speakers = {turn: speaker for _, (turn, speaker, *_) in read_fields(folder / "utt2spk", 2)}
    # "turn recording start end"
    for place, (turn, recording, start, end, *_) in read_fields(folder / "segments", 4):
        yield place, recording, speakers[turn], [start, end]
