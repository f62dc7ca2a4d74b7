"""Phones with their times come from a prepared corpus, or from the files of forced aligners:
TextGrids (Praat, Montreal Forced Aligner) or JSONL. A gap between phones is silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speechssl.data.files import list_files
from speechssl.data.records import PADDING, guess_unit, read_lines
from speechssl.data.textgrid import read_tiers
from speechssl.errors import InputError, report_set_aside
from speechssl.schema import convert
from speechssl.timing import FrameGrid

Phone = tuple[str, float, float]  # name, start and end in seconds
SILENCE = "sil"  # the name that silence gets here
PAUSES = ("", "_")  # names of silence in files: MFA's and eSpeak's
# Seconds, one frame: aligners that count in frames may let neighbours overlap by as much.
OVERLAP = 0.02
EPSILON = 1e-6  # seconds by which equal times may differ, as sums of floats
ROUNDING = 1e-4  # seconds by which times of phones may be rounded
# Names of the tier of phones; MFA writes "phones" or "SPEAKER - phones".
TIERS = re.compile(r"(^|\W)(phones?|phonemes?|phn|segments?)$", re.IGNORECASE)
OTHER_TIERS = re.compile(r"(^|\W)(words?|sentences?|utterances?)$", re.IGNORECASE)


@dataclass(frozen=True)
class AlignedRecording:
    """A line of an alignment in JSONL has the phones of a recording."""

    id: str | int
    phones: list[tuple[str, float, float]]


def read_alignment(path: Path) -> dict[str, list[Phone]]:
    """Read the phones of recordings, by id.

    path: a .jsonl of {"id", "phones": [[name, start, end], ...]}, a .TextGrid, or a folder of them,
    in which the id is the path below the folder without its suffix. Recordings whose phones cannot
    be used are listed and left out. Raises InputError for a file that cannot be read, and where no
    recording can be used.
    """
    phones: dict[str, Sequence[Phone]] = {}
    failed: dict[str, str] = {}
    if path.suffix.lower() == ".jsonl":
        for number, values in read_lines(path):
            recording = convert(values, AlignedRecording, f"{path}:{number}")
            name = str(recording.id)
            if name in phones:
                raise InputError(f"{path}:{number}: the recording {name} is there twice; keep one")
            phones[name] = recording.phones
        return fill_all_gaps(phones, failed, str(path))
    folder = path if path.is_dir() else path.parent
    files = list_files(path, ".textgrid")
    if path.is_file() and path.suffix.lower() == ".textgrid":
        files = [path]
    for file in files:
        name = file.relative_to(folder).with_suffix("").as_posix()
        try:
            phones[name] = read_textgrid(file)
        except InputError as error:
            failed[name] = str(error)
    if not phones and not failed:
        raise InputError(
            f"{path} contains no alignment; give a .jsonl, a .TextGrid or a folder of TextGrids"
        )
    return fill_all_gaps(phones, failed, str(path))


def read_textgrid(path: Path) -> list[Phone]:
    """Read the intervals of the tier of phones of a TextGrid, long or short, in UTF-8 or UTF-16:
    the tier of that name, or the only one unless it is named after words."""
    tiers = read_tiers(path)
    phones = [intervals for name, intervals in tiers if TIERS.search(name)]
    if len(tiers) == 1 and not OTHER_TIERS.search(tiers[0][0]):
        phones = [tiers[0][1]]
    if len(phones) != 1:
        names = ", ".join(name for name, _ in tiers)
        raise InputError(
            f"{path} has the interval tiers {names or 'none'}; give one tier of phones, with "
            "intervals and not points, the name phones, and no other"
        )
    return phones[0]


def fill_all_gaps(
    phones: Mapping[str, Sequence[Phone]], failed: dict[str, str], where: str
) -> dict[str, list[Phone]]:
    """Apply `fill_gaps` to the phones of all recordings. Those whose phones cannot be used are
    added to `failed`, which is listed. Raises InputError where none can be used."""
    filled: dict[str, list[Phone]] = {}
    for name, phones_of_recording in phones.items():
        try:
            filled[name] = fill_gaps(phones_of_recording)
        except ValueError as error:
            failed[name] = f"{where}: of {name} {error}"
    if failed and not filled:
        raise InputError(next(iter(failed.values())))
    report_set_aside(failed, f"phones of {where}")
    return filled


def fill_gaps(phones: Sequence[Phone]) -> list[Phone]:
    """Fill the gaps between phones with SILENCE, and give pauses that name. Phones of no length
    are dropped; where two phones overlap, by OVERLAP at most, the time belongs to the earlier.

    Raises ValueError for times that do not go forward, and where no phone is left.
    """
    filled: list[Phone] = []
    last_end = 0.0
    for name, start, end in phones:
        if not last_end - OVERLAP - EPSILON <= start <= end:  # NaN is refused as well
            raise ValueError(
                f"the phone {name} has the times [{start}, {end}) s after {last_end} s; phones "
                "must be in order"
            )
        if end <= max(start, last_end):
            continue
        if start > last_end + EPSILON:
            filled.append((SILENCE, last_end, start))
        label = SILENCE if name.strip() in PAUSES else name.strip()
        filled.append((label, max(start, last_end), end))
        last_end = end
    if not filled:
        raise ValueError("there are no phones; leave it out or align it again")
    return filled


def number_phones(
    phones: Sequence[Phone], grid: FrameGrid, frames: int, names: dict[str, int]
) -> np.ndarray:
    """Return (T,) the number of the phone in the middle of every frame; after the last phone comes
    SILENCE.

    phones: of `fill_gaps`. names: number of each phone, to which new phones are added. Raises
    ValueError for phones of another recording, or of times that are no seconds.
    """
    seconds, last = grid.find_start(frames), phones[-1][2]
    if last > seconds + PADDING:
        unit = guess_unit([(last, seconds)])
        raise ValueError(
            f"phones of a recording of {seconds:.2f} s go on to {last:g} s"
            + (f", and their times look like {unit}" if unit else "")
            + "; correct the alignment"
        )
    middles = (np.arange(frames) * grid.hop + grid.offset + grid.hop // 2) / grid.sample_rate
    ids = [names.setdefault(name, len(names)) for name, _, _ in phones]
    ids.append(names.setdefault(SILENCE, len(names)))
    ends = np.array([end for _, _, end in phones])
    ends[-1] += ROUNDING
    return np.array(ids)[np.searchsorted(ends, middles, side="right")]
