"""Prepare ODSQA (Lee et al., SLT 2018, arXiv 1808.02280): DRCD's development set read by 20
Mandarin speakers, and its companions DRCD-TTS and DRCD-backtrans. Layouts and irregularities:
data/odsqa/README.md.

Contexts are transcripts of a recogniser, and so are the questions of the spoken-question test.
Where DRCD_dev.json lies beside them its texts become the `text` of the tests, and offsets are those
in it; where both tests are there, the spoken one has its questions' text from the other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from speechssl.data.files import audio_files, enter
from speechssl.data.options import Odsqa
from speechssl.data.prepare import (
    PrepareReport,
    SplitRecords,
    Take,
    attach_takes,
    make_take,
    prepare_corpus,
    split_files,
    stamp_files,
)
from speechssl.data.squad import Style, collect_originals, make_records, read_squad

PUBLISHED = {
    "test-spokenq": {"passages": 606, "questions": 1_465},
    "test-textq": {"passages": 606, "questions": 1_464},
}
LAYOUT = (
    "give the folder of ODSQA with any of ODSQA_spokenq_test-v1.1.json, "
    "ODSQA_textq_test-v1.1.json and the JSON files of DRCD-TTS "
    "and DRCD-backtrans (with tts or backtrans, and train or dev, in their names), or one of "
    "these files"
)
ABOUT = {
    "title": "ODSQA",
    "language": "zh",
    "source": "github.com/Chia-Hsuan-Lee/ODSQA, arXiv 1808.02280",
    "licence": "CC BY-SA 3.0 (DRCD's texts); see the release for the recordings",
}
KINDS = {
    "tts": "tts",
    "backtrans": "back.?trans",
    "test-textq": "odsqa.*text",
    "test-spokenq": "odsqa.*spoken",
    "original": "drcd",
}
# of a paragraph, a sentence of one, or a question
RECORDING = re.compile(r"\D*(\d+(?:[-_]\d+){1,3})")
ASKED = re.compile(r"^q(?![a-z])|quest", re.IGNORECASE)
Segments = dict[str, dict[int, Path]]  # id -> number of the segment -> file


def prepare_odsqa(o: Odsqa) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    ODSQA, or damaged."""
    source = o.source.resolve()
    files = split_files(source, ".json", split_of, LAYOUT)
    passages, questions = _find_recordings(source) if o.audio else ({}, {})
    settings: dict[str, Any] = {"files": stamp_files(files)}
    if passages or questions:
        settings["recordings"] = sum(map(len, [*passages.values(), *questions.values()]))

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        paragraphs = {name: read_squad(path) for name, path in files.items()}
        drcd = [p for name in files if name.startswith("original") for p in paragraphs[name]]
        texts = collect_originals(drcd, paragraphs.get("test-textq", ()))
        splits: dict[str, SplitRecords] = {}
        for split in files:
            if split.startswith("original"):
                continue
            test = split in PUBLISHED
            # text that was translated is nobody's speech
            transcribed, spoken = not split.endswith("backtrans"), split == "test-spokenq"
            style = Style("zh", transcribed_passages=transcribed, transcribed_questions=spoken)
            originals = texts if test else None
            records, _ = make_records(split, paragraphs[split], style, report, originals)
            if test:
                # sentences are numbered from the same number everywhere, 0 or 1
                found = {p.id: passages[p.id] for p in records.passages if p.id in passages}
                first = min((min(numbers) for numbers in found.values()), default=0)
                takes = {name: make_take(numbers, first) for name, numbers in found.items()}
                asked = {name: Take(tuple(of.values())) for name, of in questions.items()}
                records = attach_takes(o, split, records, report, takes, asked)
            splits[split] = records
        return splits

    card = ABOUT | {"files": {split: path.name for split, path in files.items()}}
    return prepare_corpus("odsqa", o, settings, read, PUBLISHED, card)


def split_of(path: Path) -> str:
    """Name the split of a file, or "original-..." for one of DRCD, by its name or else that of the
    folder it lies in; "" for another."""
    part = re.search("dev|test", path.name.lower())
    for name in (path.name.lower(), path.parent.name.lower()):
        for kind, pattern in KINDS.items():
            if not re.search(pattern, name):
                continue
            if kind == "original":
                return f"original-{path.name}"
            if kind.startswith("test"):
                return kind
            return f"{part[0] if part else 'train'}-{kind}"
    return ""


def _find_recordings(source: Path) -> tuple[Segments, Segments]:
    """Find PARAGRAPH-SENTENCE.wav of passages and QUESTION.wav of questions, ids as in the JSON
    with - or _ between their numbers.

    Both have three numbers, so that questions lie in a folder, or have a name, with question or q
    in it before their numbers.
    """
    passages: Segments = {}
    questions: Segments = {}
    for path in audio_files(source) if source.is_dir() else ():
        name = RECORDING.fullmatch(path.stem)
        if not name:
            continue
        numbers = re.split("[-_]", name[1])
        if any(ASKED.search(text) for text in (path.stem, *path.relative_to(source).parts)):
            enter(questions.setdefault("-".join(numbers), {}), 0, path)
        else:
            segment = int(numbers[2]) if len(numbers) > 2 else 0
            enter(passages.setdefault("-".join(numbers[:2]), {}), segment, path)
    return passages, questions
