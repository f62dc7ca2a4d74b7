"""Libri2Mix (Cosentino et al., arXiv 2005.11262) for SD and SS: two speakers of LibriSpeech at a time, 16 kHz.

SD takes mixtures with noise at their full length and turns from the alignment of a Kaldi recogniser, as s3prl's recipe makes them:

    git clone https://github.com/ftshijt/LibriMix && cd LibriMix && bash generate_librimix.sh CORPORA
    python3 scripts/prepare_diarization.py --target_dir CORPORA/diarization --source_dir CORPORA/Libri2Mix/wav16k/max/metadata

That gives train, dev and test, each with wav.scp (or a folder wav), rttm, segments and utt2spk. `rttm` is read where there
is one: `segments` names a piece by its mixture and times alone, so that in s3prl two who speak from and to the same moment are one.
SS takes clean mixtures cut to the shorter speaker, wav16k/min/{train-100,dev,test}/{mix_clean,s1,s2}. Its dev is the 1,000 of 3,000
that s3prl's `separation_stft/scripts/LibriMix/subsample.py` draws (seed 7), as its cfg.yaml has it.
Counts: 13,900, 3,000 and 3,000 mixtures are those of the corpus (13,900 also in a public overview; all agree with the
13,901, 3,014 and 3,002 pieces of at most 20 s of SUPERB's data card at Hugging Face).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from speechssl.data.superb.sets import Cards, Order, Prepared, check_tasks, gathered, number_of, order, prepare, read_fields, wavs
from speechssl.data.utterances import SPLITS, TOGETHER, Turn, Utterance
from speechssl.errors import InputError

TASKS = ("sd", "ss")
PARTS = {"train": "train-100", "dev": "dev", "test": "test"}  # of wav16k/min
MIXED, SOURCES = "mix_clean", ("s1", "s2")
SD_COUNTS = {"train": 13_900, "dev": 3_000, "test": 3_000}
SS_COUNTS = {"train": 13_900, "dev": 1_000, "test": 3_000}
DEV_SIZE, DEV_SEED = 1_000, 7
LAYOUT = "give the folder Libri2Mix, which holds wav16k/min (ss), and --diarization what prepare_diarization.py wrote (sd)"


def prepare_libri2mix(
    source: Path | str,
    out: Path | str,
    diarization: Path | str | None = None,
    tasks: Sequence[str] = TASKS,
    any_count: bool = False,
) -> Cards:
    """Write `out`/sd and `out`/ss and return their cards.

    diarization: the folder with train, dev and test of the Kaldi kind; needed for sd. Raises InputError for a wrong folder, counts
    that are not the published ones (unless `any_count`), an unknown task, or a mixture in which nobody speaks.
    """
    check_tasks("Libri2Mix", tasks, TASKS)
    if "sd" in tasks and diarization is None:
        raise InputError("sd needs the turns; give --diarization the folder that prepare_diarization.py wrote, or --tasks ss")
    kaldi = Path(diarization or source).resolve()
    options = {"sd": {"diarization": str(kaldi)}} if "sd" in tasks else {}
    readers = {"sd": lambda o: _diarized(o, kaldi), "ss": _separated}
    wanted = order("libri2mix", source, out, tasks, LAYOUT, any_count, **options)
    return prepare(wanted, lambda o: {task: readers[task](o) for task in o.folders})


def _separated(order: Order) -> Prepared:
    root = order.find("wav16k/min")
    mixed = {split: wavs(order.find(f"wav16k/min/{part}/{MIXED}")) for split, part in PARTS.items()}
    mixed["dev"] = subsample(mixed["dev"])
    utterances = {split: [_mixture(root / PARTS[split], path) for path in found] for split, found in mixed.items()}
    return Prepared("ss", gathered(order, utterances, SS_COUNTS))


def subsample(paths: Sequence[Path]) -> list[Path]:
    """The 1,000 recordings that are dev in SUPERB, in order; all where there are no more."""
    drawn = sorted(paths, key=lambda path: path.stem)
    Random(DEV_SEED).shuffle(drawn)
    return sorted(drawn[:DEV_SIZE], key=lambda path: path.stem)


def _mixture(part: Path, path: Path) -> Utterance:
    """Called after what was mixed ("4077-13754-0001_5142-33396-0065"): the first number of either is its speaker."""
    speakers = TOGETHER.join(name.partition("-")[0] for name in path.stem.split("_"))
    return Utterance(path.stem, str(path), 0.0, speakers, sources=tuple(str(part / name / path.name) for name in SOURCES))


def _diarized(order: Order, kaldi: Path) -> Prepared:
    return Prepared("sd", gathered(order, {split: _turned(kaldi / split) for split in SPLITS}, SD_COUNTS))


def _turned(folder: Path) -> Iterator[Utterance]:
    recordings, turns = _recordings(folder), _turns(folder)
    for name, path in recordings.items():
        if name not in turns:
            raise InputError(f"{folder} says of nobody that they speak in {name}; run prepare_diarization.py again")
        yield Utterance(name, str(path), 0.0, turns=tuple(sorted(turns[name], key=lambda turn: (turn.start, turn.speaker))))


def _recordings(folder: Path) -> Mapping[str, Path]:
    """wav.scp, its paths from the folder on where they are relative; else what is in wav/."""
    if not (folder / "wav.scp").is_file():
        if not (folder / "wav").is_dir():
            raise InputError(f"{folder} has neither wav.scp nor wav/; {LAYOUT}")
        return {path.stem: path for path in wavs(folder / "wav")}
    found = {}
    for place, (name, *rest) in read_fields(folder / "wav.scp", 2):
        if rest[-1].endswith("|"):
            raise InputError(f"{place} is a command and not a recording; write the mixtures to files and name those")
        found[name] = folder / " ".join(rest)
    return found


def _turns(folder: Path) -> dict[str, list[Turn]]:
    """Recording -> who speaks when."""
    found: dict[str, list[Turn]] = {}
    for place, name, speaker, start, end in _rttm(folder / "rttm") if (folder / "rttm").is_file() else _segments(folder):
        if not 0 <= start < end:
            raise InputError(f"{place} has a turn from {start} to {end} s; run prepare_diarization.py again")
        found.setdefault(name, []).append(Turn(speaker, start, end))
    return found


def _rttm(path: Path) -> Iterator[tuple[str, str, str, float, float]]:
    """Lines such as "SPEAKER recording 1 start duration <NA> <NA> speaker <NA>"; gives place, recording, speaker, start and end."""
    for place, fields in read_fields(path, 8):
        if fields[0] == "SPEAKER":
            start = number_of(fields[3], place)
            yield place, fields[1], fields[7], start, round(start + number_of(fields[4], place), 6)


def _segments(folder: Path) -> Iterator[tuple[str, str, str, float, float]]:
    speakers = {name: speaker for _, (name, speaker, *_) in read_fields(folder / "utt2spk", 2)}
    for place, (name, recording, start, end, *_) in read_fields(folder / "segments", 4):
        if name not in speakers:
            raise InputError(f"{place} names {name}, whom utt2spk does not know; run prepare_diarization.py again")
        yield place, recording, speakers[name], number_of(start, place), number_of(end, place)
