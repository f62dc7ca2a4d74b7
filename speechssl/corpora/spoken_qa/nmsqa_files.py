"""What there is of NMSQA below a folder, by split: tables of either release, lists of segments, alignments."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speechssl.corpora.spoken_qa.recordings import files_below, splits_named
from speechssl.corpora.spoken_qa.tables import read_object
from speechssl.errors import InputError

SPLITS = ("train", "dev", "test")
HASH = ("hash", "question_id", "qid", "id")
START = ("start", "new_start", "start_time")
NAME = ("id", "utterance_id", "utterance", "name_id", "name")
ABOUT = ("speaker", "duration", "text", "normalized_text", "transcription")


@dataclass
class Files:
    """Of one split."""

    parquet: list[Path] = field(default_factory=list)  # one table, or its shards
    spans: list[Path] = field(default_factory=list)  # {split}-answer-span.csv: a line an annotation
    about: list[Path] = field(default_factory=list)  # meta-{split}.csv: speaker, text and duration of a recording
    squad: list[Path] = field(default_factory=list)  # {split}-v1.1.json: the texts
    grids: dict[str, Path] = field(default_factory=dict)  # recording -> TextGrid
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)  # "segment_id" and "hash2question"

    def __bool__(self) -> bool:
        return bool(self.parquet or self.spans)

    @property
    def segments(self) -> dict[str, Any]:
        """Passage (without "context-") -> the numbers of the segments that the release has."""
        return self.objects.get("segment_id", {})

    @property
    def questions(self) -> dict[str, Any]:
        """Id of a question -> its recording."""
        return self.objects.get("hash2question", {})


def find_files(roots: Sequence[Path], only: Path | None = None) -> dict[str, Files]:
    """By split, as far as there are tables. only: the one table that was asked for. Raises InputError for two tables of a split."""
    found = {split: Files() for split in SPLITS}
    for root, path in files_below(roots, ".parquet", ".csv", ".json", ".textgrid"):
        if only is not None and path.suffix == ".parquet" and path != only:
            continue
        name = path.stem if splits_named(path.stem) else path.parent.relative_to(root).as_posix() + "/" + path.stem
        for split in splits_named(name) & found.keys():
            _take(found[split], path)
    for split, files in found.items():
        _choose(files, split)
    return {split: files for split, files in found.items() if files}


def _take(files: Files, path: Path) -> None:
    kind = path.suffix.lower()
    if kind == ".parquet":
        files.parquet.append(path)
    elif kind == ".textgrid":
        files.grids.setdefault(path.stem, path)
    elif kind == ".csv":
        names = header(path)
        if any(name in names for name in HASH) and any(name in names for name in START):
            files.spans.append(path)
        elif any(name in names for name in NAME) and any(name in names for name in ABOUT):
            files.about.append(path)
    else:
        _take_json(files, path)


def _take_json(files: Files, path: Path) -> None:
    for kind in ("segment_id", "hash2question"):
        if kind in path.stem and kind not in files.objects:
            files.objects[kind] = read_object(path)
    if path.stem.endswith(("v1.1", "v2.0")):
        files.squad.append(path)


def _choose(files: Files, split: str) -> None:
    """Derived tables repeat the spans; of several Parquet files only shards belong together."""
    if published := [path for path in files.spans if "answer-span" in path.name or "answer_span" in path.name]:
        files.spans = published
    elif split != "test":
        files.spans = files.spans[:1]
    if len(files.parquet) > 1 and not all("-of-" in path.name or path.stem.isdecimal() for path in files.parquet):
        first, second = files.parquet[:2]
        raise InputError(f"{first} and {second} are both tables of {split}; leave one of them in the folder")


def header(path: Path) -> list[str]:
    """The names of a CSV file's columns. Raises InputError where it is none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} as CSV ({error}); download it again or save it as UTF-8") from error


def listed(files: Files, passage: str) -> list[int] | None:
    """The numbers of a passage's segments that the release says it has, None where it says nothing."""
    known: Mapping[str, Any] = files.segments
    numbers = known.get(passage, known.get(passage.removeprefix("context-")))
    if not isinstance(numbers, list):
        return None
    return sorted({int(number) for number in numbers if str(number).isdecimal()})
