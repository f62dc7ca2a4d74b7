"""Prepare ODSQA (Lee et al., SLT 2018, arXiv 1808.02280): DRCD's development set read by 20
Mandarin speakers, and its companions DRCD-TTS and DRCD-backtrans. Layouts and irregularities:
data/odsqa/README.md.

Contexts are transcripts of a recogniser, and so are the questions of the spoken-question test.
Where DRCD_dev.json lies beside them its texts become the `text` of the tests, and offsets are those
in it; where both tests are there, the spoken one has its questions' text from the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speechssl.data.files import audio_files, enter
from speechssl.data.options import Odsqa
from speechssl.data.prepare import (
    Attach,
    PrepareReport,
    SplitRecords,
    Take,
    Takes,
    make_take,
    prepare_texts,
    resolve_source,
)
from speechssl.data.squad import Style, collect_originals, make_records, question_texts, read_squad
from speechssl.errors import InputError

PUBLISHED = {
    "test-spokenq": {"passages": 606, "questions": 1_465},
    "test-textq": {"passages": 606, "questions": 1_464},
}
ARTICLES = 235
PAIRS = {"tts": 16_746, "backtrans": 15_238}  # of all its parts together
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
PARTS = re.compile(r"dev|test")
KINDS = {
    "tts": re.compile(r"tts"),
    "backtrans": re.compile(r"back.?trans"),
    "test-textq": re.compile(r"odsqa.*text|text_?q"),
    "test-spokenq": re.compile(r"odsqa.*(spoken|test)|spoken_?q"),
    "original": re.compile(r"drcd"),
}
# of a paragraph, a sentence of one, or a question
RECORDING = re.compile(r"\D*(\d+(?:[-_]\d+){1,3})")
ASKED = re.compile(r"^q(?![a-z])|quest|query", re.IGNORECASE)
# "passages" and "questions" -> id -> number of the segment -> file
Sounds = dict[str, dict[str, dict[int, Path]]]


def prepare_odsqa(o: Odsqa) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    ODSQA, or damaged."""
    source = resolve_source(o.source, LAYOUT)
    files = _files(source)
    splits = [split for split in files if not split.startswith("original-")]
    parts = {kind: [split for split in splits if split.endswith(f"-{kind}")] for kind in PAIRS}
    published: dict[str, dict[str, int]] = dict(PUBLISHED)
    # a companion in one file is compared as it is, one in several as a whole, below
    for kind, pairs in PAIRS.items():
        if len(parts[kind]) < 2:
            published[parts[kind][0] if parts[kind] else f"train-{kind}"] = {"questions": pairs}
    sounds = _recordings(source) if o.audio and source.is_dir() else {}
    recorded = {"recordings": _count(sounds)} if sounds else {}

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Attach]]:
        paragraphs = {name: read_squad(path) for name, path in files.items()}
        drcd = [p for name, of_file in paragraphs.items() if name not in splits for p in of_file]
        texts = collect_originals(drcd, question_texts(paragraphs.get("test-textq", ())))
        by_split: dict[str, tuple[SplitRecords, Attach]] = {}
        for split in splits:
            test = split in PUBLISHED
            if test:
                report.compare(
                    split, "articles", ARTICLES, len({p.article for p in paragraphs[split]})
                )
            # text that was translated is nobody's speech
            transcribed = not split.endswith("backtrans")
            style = Style(
                "zh",
                transcribed_passages=transcribed,
                transcribed_questions=split == "test-spokenq",
            )
            records, _ = make_records(
                split, paragraphs[split], style, report, texts if test else None
            )
            by_split[split] = records, (_takes(records, sounds) if test else Takes()).attach
        for kind, of_kind in parts.items():
            if len(of_kind) > 1:  # the published number is that of all pairs
                total = sum(report.read[split, "questions"] for split in of_kind)
                report.compare(
                    of_kind[0], f"questions in {' and '.join(of_kind)}", PAIRS[kind], total
                )
        return by_split

    inputs = files if splits else {}
    return prepare_texts("odsqa", o, inputs, read, LAYOUT, published, ABOUT, recorded)


def _files(source: Path) -> dict[str, Path]:
    """Find the file of each split, and as "original-..." those of DRCD; by the name of the file, or
    else of the folders it lies in.

    Raises InputError where two files claim to be one split.
    """
    files: dict[str, Path] = {}
    for path in sorted(source.rglob("*.json")) if source.is_dir() else [source]:
        if path.name.startswith("."):
            continue
        folders = [f for f in path.parents if f == source or source in f.parents] or [path.parent]
        names = (path.name.lower(), *(folder.name.lower() for folder in folders))
        kind = next(
            (kind for name in names for kind, pattern in KINDS.items() if pattern.search(name)), ""
        )
        split = f"original-{path.name}" if kind == "original" else kind
        if kind in PAIRS:
            part = PARTS.search(path.name.lower())
            split = f"{part[0] if part else 'train'}-{kind}"
        if split in files:
            raise InputError(
                f"both {files[split]} and {path} look like {split} of ODSQA; leave "
                "one of them in the folder"
            )
        if split:
            files[split] = path
    return dict(sorted(files.items()))


def _recordings(source: Path) -> Sounds:
    """Find PARAGRAPH-SENTENCE.wav for passages and QUESTION.wav for questions, ids as in the JSON
    with - or _ between their numbers.

    Both have three numbers, so that questions lie in a folder, or have a name, with question or q
    in it before their numbers.
    """
    sounds: Sounds = {"passages": {}, "questions": {}}
    for path in audio_files(source):
        name = RECORDING.fullmatch(path.stem)
        if not name:
            continue
        numbers = re.split("[-_]", name[1])
        folders = [folder.name for folder in path.parents if source in folder.parents]
        if any(ASKED.search(text) for text in (path.stem, *folders)):
            enter(sounds["questions"].setdefault("-".join(numbers), {}), 0, path)
        else:
            segment = int(numbers[2]) if len(numbers) > 2 else 0
            enter(sounds["passages"].setdefault("-".join(numbers[:2]), {}), segment, path)
    return sounds if sounds["passages"] or sounds["questions"] else {}


def _takes(records: SplitRecords, sounds: Sounds) -> Takes:
    """Find the recordings of the records that there are. Sentences are numbered from the same
    number everywhere, 0 or 1."""
    of_passages, of_questions = sounds.get("passages", {}), sounds.get("questions", {})
    segments = {p.id: of_passages[p.id] for p in records.passages if p.id in of_passages}
    first = min((min(numbers) for numbers in segments.values()), default=0)
    passages = {name: make_take(numbers, first) for name, numbers in segments.items()}
    ids = [q.id for q in records.questions if q.id in of_questions]
    questions = {name: Take((of_questions[name][0],)) for name in ids}
    unused = _count(sounds) - len(questions) - sum(map(len, segments.values()))
    return Takes(passages, questions, unused)


def _count(sounds: Sounds) -> int:
    return sum(len(numbers) for kind in sounds.values() for numbers in kind.values())
