"""Prepare SQuAD-SRC (Tang et al., IJCAI 2023): all questions of SQuAD 1.1 read by 24 speakers from
six countries; contexts as text.

The layout, and which of it is assumed: data/squad-src/README.md. The release has recordings, and
two lists that give the number of a recording and SQuAD's id of its question. SQuAD's own files lie
beside them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_text
from speechssl.data.files import add_recording, list_audio_files, list_files
from speechssl.data.options import SquadSrc
from speechssl.data.prepare import (
    PrepareReport,
    SplitRecords,
    Take,
    attach_takes,
    find_split_files,
    prepare_corpus,
    stamp_files,
)
from speechssl.data.squad import Style, make_records, read_squad

# 98,169 spoken questions, which are all of SQuAD 1.1
PUBLISHED = {
    "train": {"passages": 18_896, "questions": 87_599},
    "dev": {"passages": 2_067, "questions": 10_570},
}
ABOUT = {
    "title": "SQuAD-SRC",
    "language": "en",
    "source": "github.com/tangyixuan/SQuAD-SRC, doi 10.24963/ijcai.2023/578",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}
SPLITS = {"train-v1.1.json": "train", "dev-v1.1.json": "dev"}
LIST = re.compile(r"fid2qid_(train|dev)\.csv")
NUMBER = re.compile(r"(?:TRAIN|DEV)\d+")  # in the name of a recording: "DEV000001"
SPEAKER = re.compile(r"SPK\d+")  # in the name of a recording
UNLISTED = ("recordings that no list has", "not used")


def prepare_squad_src(o: SquadSrc) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    SQuAD-SRC, or damaged."""
    source = o.source.resolve()
    files = find_split_files(source, lambda path: SPLITS.get(path.name, ""), "squad-src")
    files = {split: files[split] for split in PUBLISHED if split in files}
    lists = {p.name: p for p in list_files(source, ".csv") if LIST.fullmatch(p.name)}
    ids: dict[str, str] = {}  # number of a recording -> SQuAD's id
    for path in lists.values():
        ids |= _read_list(path)
    recordings = _find_recordings(source) if o.audio else {}
    settings = {"files": stamp_files(files | lists), "recordings": len(recordings)}

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        splits: dict[str, SplitRecords] = {}
        for split, file in files.items():
            records, _ = make_records(split, read_squad(file), Style("en"), report)
            by_question: dict[str, Path] = {}  # id of a question -> its recording
            for number, path in recordings.items():
                if number in ids:
                    by_question[ids[number]] = path
                elif number.startswith(split.upper()):
                    report.remark(split, *UNLISTED)
            takes = {name: Take((path,)) for name, path in by_question.items()}
            records = attach_takes(o, split, records, report, {}, takes)
            questions = []
            for question in records.questions:
                name = by_question[question.id].stem if question.id in by_question else ""
                speaker = SPEAKER.search(name)
                questions.append(replace(question, speaker=speaker[0] if speaker else ""))
            splits[split] = SplitRecords(records.passages, questions)
        return splits

    card = ABOUT | {"files": {split: path.name for split, path in files.items()}}
    return prepare_corpus("squad-src", o, settings, read, PUBLISHED, card)


def _read_list(path: Path) -> dict[str, str]:
    """Read a list: number of the recording -> SQuAD's id of the question. A line has both, with a
    tab between them."""
    ids = {}
    for line in read_text(path, "download it again").splitlines():
        number, _, question = line.strip().partition("\t")
        ids[number] = question
    return ids


def _find_recordings(source: Path) -> dict[str, Path]:
    """Find the recordings: the number in the name -> file."""
    recordings: dict[str, Path] = {}
    for path in list_audio_files(source):
        number = NUMBER.search(path.stem)
        if number:
            add_recording(recordings, number[0], path)
    return recordings
