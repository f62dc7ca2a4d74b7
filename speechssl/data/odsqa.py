"""Prepare ODSQA (Lee et al., SLT 2018, arXiv 1808.02280): DRCD's development set read by 20
Mandarin speakers, and its companions DRCD-TTS and DRCD-backtrans. Layouts and irregularities:
data/odsqa/README.md.

There are two tests: one with spoken, one with text questions. Contexts are transcripts of a
recogniser, and so are the questions of the spoken-question test. Where DRCD_dev.json lies beside
the tests, its texts become the `text` of their passages, to which the offsets of answers then
refer. The texts of spoken questions are taken from the text-question test, where it is there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from speechssl.data.files import add_recording, list_audio_files
from speechssl.data.options import Odsqa
from speechssl.data.prepare import (
    PrepareReport,
    SplitRecords,
    Take,
    attach_takes,
    find_split_files,
    make_takes,
    prepare_corpus,
    stamp_files,
)
from speechssl.data.squad import Style, collect_originals, make_records, read_squad

PUBLISHED = {
    "test-spokenq": {"passages": 606, "questions": 1_465},
    "test-textq": {"passages": 606, "questions": 1_464},
}
ABOUT = {
    "title": "ODSQA",
    "language": "zh",
    "source": "github.com/Chia-Hsuan-Lee/ODSQA, arXiv 1808.02280",
    "licence": "CC BY-SA 3.0 (DRCD's texts); see the release for the recordings",
}
# kind of a file -> pattern of its name, or of its folder's name if none fits the file; the first
# pattern that fits counts
KINDS = {
    "tts": "tts",
    "backtrans": "back.?trans",
    "test-textq": "odsqa.*text",
    "test-spokenq": "odsqa.*spoken",
    "original": "drcd",
}
# "1147-5" (a paragraph), "1147-5-1" (a sentence of it, or a question)
RECORDING = re.compile(r"\D*(\d+(?:[-_]\d+){1,3})")
# the folder or the beginning of the name of a question: "questions", "q1147-5-1"
QUESTION = re.compile(r"^q(?![a-z])|quest", re.IGNORECASE)


def prepare_odsqa(o: Odsqa) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    ODSQA, or damaged."""
    source = o.source.resolve()
    files = find_split_files(source, find_split, "odsqa")
    passages, recorded_questions = _find_recordings(source) if o.audio else ({}, {})
    questions = {name: Take((path,)) for name, path in recorded_questions.items()}
    settings: dict[str, Any] = {"files": stamp_files(files)}
    if passages or questions:
        settings["recordings"] = sum(map(len, passages.values())) + len(questions)

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        paragraphs = {split: read_squad(path) for split, path in files.items()}
        drcd = [p for name in files if name.startswith("original") for p in paragraphs[name]]
        originals = collect_originals(drcd, paragraphs.get("test-textq", ()))
        splits: dict[str, SplitRecords] = {}
        for split in files:
            if split.startswith("original"):
                continue
            style = Style(
                "zh",
                # DRCD-backtrans is translated text, which nobody spoke
                transcribed_passages=not split.endswith("backtrans"),
                transcribed_questions=split == "test-spokenq",
            )
            if split not in PUBLISHED:  # only the two tests have originals and recordings
                splits[split], _ = make_records(split, paragraphs[split], style, report)
                continue
            records, _ = make_records(split, paragraphs[split], style, report, originals)
            recorded = {p.id: passages[p.id] for p in records.passages if p.id in passages}
            takes = make_takes(recorded)
            splits[split] = attach_takes(o, split, records, report, takes, questions)
        return splits

    card = ABOUT | {"files": {split: path.name for split, path in files.items()}}
    return prepare_corpus("odsqa", o, settings, read, PUBLISHED, card)


def find_split(path: Path) -> str:
    """Find the split of a file by its name, or otherwise by that of its folder.

    Splits are test-textq and test-spokenq of ODSQA, and train-, dev- or test- with tts or
    backtrans, such as "dev-tts". A file of DRCD is no split, but has the original texts: it gives
    "original-" with its name. Any other file gives "".
    """
    section = re.search("dev|test", path.name.lower())
    for name in (path.name.lower(), path.parent.name.lower()):
        for kind, pattern in KINDS.items():
            if not re.search(pattern, name):
                continue
            if kind == "original":
                return f"original-{path.name}"
            if kind.startswith("test"):
                return kind
            return f"{section[0] if section else 'train'}-{kind}"
    return ""


def _find_recordings(source: Path) -> tuple[dict[str, dict[int, Path]], dict[str, Path]]:
    """Find the recordings of passages, PARAGRAPH-SENTENCE.wav, as id -> number of the sentence ->
    file, and of questions, QUESTION.wav, as id -> file. Ids are those in the JSON files; their
    numbers are separated by - or _.

    A sentence and a question may both have three numbers, "1147-5-1". So a recording belongs to a
    question if its name, or that of a folder above it, fits QUESTION.
    """
    passages: dict[str, dict[int, Path]] = {}
    questions: dict[str, Path] = {}
    for path in list_audio_files(source):
        match = RECORDING.fullmatch(path.stem)
        if not match:
            continue
        numbers = re.split("[-_]", match[1])
        names = (path.stem, *path.relative_to(source).parts)
        if any(QUESTION.search(name) for name in names):
            add_recording(questions, "-".join(numbers), path)
        else:
            number = int(numbers[2]) if len(numbers) > 2 else 0
            add_recording(passages.setdefault("-".join(numbers[:2]), {}), number, path)
    return passages, questions
