"""Prepare ODSQA (Lee et al., SLT 2018, arXiv 1808.02280): DRCD's development set read by 20
Mandarin speakers, and its companions DRCD-TTS and DRCD-backtrans. Layouts and irregularities:
data/odsqa/README.md.

Contexts are transcripts of a recogniser, and so are the questions of the spoken-question test.
Where DRCD_dev.json lies beside the tests, its texts become their `text`, and offsets are those in
it. Where both tests are there, the text-question test gives the spoken one the texts of its
questions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from speechssl.data.files import add_recording, audio_files
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
ABOUT = {
    "title": "ODSQA",
    "language": "zh",
    "source": "github.com/Chia-Hsuan-Lee/ODSQA, arXiv 1808.02280",
    "licence": "CC BY-SA 3.0 (DRCD's texts); see the release for the recordings",
}
# kind of a file -> pattern of its name, or else of its folder's; the first that fits counts
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
# id -> number of the segment -> file; a question is one segment, with the number 0
Segments = dict[str, dict[int, Path]]


def prepare_odsqa(o: Odsqa) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    ODSQA, or damaged."""
    source = o.source.resolve()
    files = split_files(source, split_of, "odsqa")
    passages: Segments = {}
    questions: Segments = {}
    if o.audio:
        passages, questions = _find_recordings(source)
    settings: dict[str, Any] = {"files": stamp_files(files)}
    if passages or questions:
        settings["recordings"] = sum(map(len, [*passages.values(), *questions.values()]))

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
            if split not in PUBLISHED:  # the originals and the recordings are those of the tests
                splits[split], _ = make_records(split, paragraphs[split], style, report)
                continue
            records, _ = make_records(split, paragraphs[split], style, report, originals)
            splits[split] = _attach_recordings(o, split, records, passages, questions, report)
        return splits

    card = ABOUT | {"files": {split: path.name for split, path in files.items()}}
    return prepare_corpus("odsqa", o, settings, read, PUBLISHED, card)


def _attach_recordings(
    o: Odsqa,
    split: str,
    records: SplitRecords,
    passages: Segments,
    questions: Segments,
    report: PrepareReport,
) -> SplitRecords:
    """Attach the recordings of passages and questions to the records of a test."""
    found = {p.id: passages[p.id] for p in records.passages if p.id in passages}
    # sentences are numbered from 0 in some releases and from 1 in others: the first sentence of
    # some passage has the number that the release begins with
    first_number = min((min(segments) for segments in found.values()), default=0)
    passage_takes = {name: make_take(segments, first_number) for name, segments in found.items()}
    question_takes = {name: Take(tuple(files.values())) for name, files in questions.items()}
    return attach_takes(o, split, records, report, passage_takes, question_takes)


def split_of(path: Path) -> str:
    """Return the split of a file by its name, or else by that of its folder: test-textq or
    test-spokenq of ODSQA; train-, dev- or test- with tts or backtrans, such as "dev-tts".

    A file of DRCD, which is no split but has the original texts, is "original-" with its name; a
    file of none of these "".
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


def _find_recordings(source: Path) -> tuple[Segments, Segments]:
    """Find the recordings of passages, PARAGRAPH-SENTENCE.wav, and of questions, QUESTION.wav, by
    the ids of the JSON, whose numbers are separated by - or _.

    Both may have three numbers, "1147-5-1". So a recording is one of a question if its name, or
    that of a folder above it, fits QUESTION.
    """
    passages: Segments = {}
    questions: Segments = {}
    for path in audio_files(source):
        match = RECORDING.fullmatch(path.stem)
        if not match:
            continue
        numbers = re.split("[-_]", match[1])
        names = (path.stem, *path.relative_to(source).parts)
        if any(QUESTION.search(name) for name in names):
            add_recording(questions.setdefault("-".join(numbers), {}), 0, path)
        else:
            number = int(numbers[2]) if len(numbers) > 2 else 0
            add_recording(passages.setdefault("-".join(numbers[:2]), {}), number, path)
    return passages, questions
