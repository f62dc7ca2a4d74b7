"""Spoken-SQuAD and ODSQA, both of Lee et al. (2018): SQuAD's schema, with contexts as a recogniser made them of speech.

**Spoken-SQuAD** (Interspeech 2018, arXiv 1804.00320): SQuAD 1.1 from Google's synthesiser, transcribed by CMU Sphinx.

  train, test             spoken_train-v1.1.json, spoken_test-v1.1.json (WER 22.8 and 22.7 %)
  test-wer44, test-wer54  spoken_test-v1.1_WER44.json, spoken_test-v1.1_WER54.json: the test set with white noise
  audio                   train_wav/ and dev_wav/ of Spoken-SQuAD_audio.zip: ARTICLE_PARAGRAPH_SENTENCE.wav, counted from 0

Contexts are transcripts; questions are text and were not spoken. The noisy files keep the answers and offsets of SQuAD itself, and
those offsets mean nothing in them. Where SQuAD's own dev-v1.1.json lies beside the tests its contexts become `text`. Of the
training set they do not: readers are trained on the transcripts, as published, and need the offsets in them.

**ODSQA** (SLT 2018, arXiv 1808.02280): DRCD's development set read by 20 Mandarin speakers, and its companions DRCD-TTS (synthetic
speech) and DRCD-backtrans (translated there and back), all in DRCD's schema and in traditional Chinese.

Contexts are what iFLYTEK's recogniser made of the speech (CER 19.1 %), and so are the questions of the spoken-question test.

  test-spokenq, test-textq  ODSQA_spokenq_test-v1.1.json, ODSQA_textq_test-v1.1.json
  PART-tts, PART-backtrans  tts or backtrans is in the name of the file or its folder; PART: dev or test by name, else train

Where DRCD's own DRCD_dev.json lies beside them its texts become the `text` of the tests, and their offsets are then those in it.
Where both tests are there the questions of the first have their text from the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speechssl.data.prepare import (
    Attach,
    PrepareReport,
    SplitRecords,
    Take,
    Takes,
    Wanted,
    audio_files,
    given,
    prepared_texts,
    take_of,
)
from speechssl.data.squad import Style, originals, read_squad, records_of, worded
from speechssl.errors import InputError


def _claim(found: dict[str, Path], split: str, path: Path, corpus: str) -> None:
    """The file of a split. Raises InputError where there is one already."""
    if split in found:
        raise InputError(f"both {found[split]} and {path} look like {split} of {corpus}; leave one of them in the folder")
    found[split] = path


# ---- Spoken-SQuAD

TEST = {"questions": 5_351}  # the noisy tests are the test set with noise
PUBLISHED = {"train": {"questions": 37_111}, "test": TEST, "test-wer44": TEST, "test-wer54": TEST}
LAYOUT = (
    "give the folder of Spoken-SQuAD with any of spoken_train-v1.1.json, spoken_test-v1.1.json, spoken_test-v1.1_WER44.json and "
    "spoken_test-v1.1_WER54.json, or one of these files"
)
ABOUT = {
    "title": "Spoken-SQuAD",
    "language": "en",
    "source": "github.com/Chia-Hsuan-Lee/Spoken-SQuAD, arXiv 1804.00320",
    "licence": "CC BY-SA 4.0 (SQuAD's texts)",
}
SPOKEN = re.compile(r"spoken.?(train|test|dev).*\.json")
NOISE = re.compile(r"wer[-_]?(\d+)")
ORIGINAL = "dev-v1.1.json"
SEGMENT = re.compile(r"(\d+)_(\d+)(?:_(\d+))?")
FOLDER = re.compile(r"(train)|dev|test")  # names of folders of recordings


def prepare_spoken_squad(source: Path | str, out: Path | str, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Write `out` and return its data report. Raises InputError for what is not of Spoken-SQuAD, or damaged."""
    found = given(source, LAYOUT)
    files = _files(found)
    sounds = _recordings(found, [split for split in ("train", "test") if split in files]) if wanted.audio and found.is_dir() else {}
    recorded = {"recordings": {split: sum(map(len, s.values())) for split, s in sounds.items()}} if sounds else {}
    beside = sorted((found if found.is_dir() else found.parent).rglob(ORIGINAL))
    original = next((path for path in beside if not path.name.startswith("spoken")), None)

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Attach]]:
        texts = originals(read_squad(original)) if original else None
        made: dict[str, tuple[SplitRecords, Attach]] = {}
        for split, path in files.items():
            style = Style("en", transcribed_passages=True, offsets="wer" not in split)
            records, sources = records_of(split, read_squad(path), style, report, texts if split.startswith("test") else None)
            # by the place of a paragraph in the file, which is that in SQuAD: paragraphs that lost their questions are still there
            known = {(p.article, p.number): name for name, p in sources.items()}
            spoken = sounds.get(split, {})
            first = min((min(sentences) for sentences in spoken.values()), default=0)  # the release counts from 0
            takes = {known[place]: take_of(sentences, first) for place, sentences in spoken.items() if place in known}
            unused = sum(len(sentences) for place, sentences in spoken.items() if place not in known)
            made[split] = records, Takes(takes, unused=unused).attach
        return made

    named = files | ({"original": original} if original and files else {})
    return prepared_texts("spoken-squad", found, out, wanted, named, read, LAYOUT, PUBLISHED, ABOUT, recorded)


def _files(source: Path) -> dict[str, Path]:
    """Split -> its file, train first. Raises InputError where two files claim to be one split."""
    found: dict[str, Path] = {}
    for path in sorted(source.rglob("*.json")) if source.is_dir() else [source]:
        if not (name := SPOKEN.fullmatch(path.name.lower())):
            continue
        noise = NOISE.search(path.name.lower())
        split = f"test-wer{noise[1]}" if noise else "train" if name[1] == "train" else "test"
        _claim(found, split, path, "Spoken-SQuAD")
    order = ["train", "test", *sorted(s for s in found if "wer" in s)]
    return {split: found[split] for split in order if split in found}


def _recordings(source: Path, clean: Sequence[str]) -> dict[str, dict[tuple[int, int], dict[int, Path]]]:
    """Split -> (article, paragraph) -> sentence -> file, of train and test, as far as they are there (clean).

    The nearest folder that is named after one decides, or else that only one of them is there.
    """
    found: dict[str, dict[tuple[int, int], dict[int, Path]]] = {}
    for path in audio_files(source):
        numbers = SEGMENT.fullmatch(path.stem)
        named = (FOLDER.search(f.name.lower()) for f in path.parents if f == source or source in f.parents)
        folder = next((name for name in named if name), None)
        split = ("train" if folder[1] else "test") if folder else clean[0] if len(clean) == 1 else ""
        if numbers and split in clean:
            place = int(numbers[1]), int(numbers[2])
            found.setdefault(split, {}).setdefault(place, {})[int(numbers[3] or 0)] = path
    return found


# ---- ODSQA

ODSQA_PUBLISHED = {
    "test-spokenq": {"passages": 606, "questions": 1_465},
    "test-textq": {"passages": 606, "questions": 1_464},
}
ODSQA_ARTICLES = 235
PAIRS = {"tts": 16_746, "backtrans": 15_238}  # of all its parts together
ODSQA_LAYOUT = (
    "give the folder of ODSQA with any of ODSQA_spokenq_test-v1.1.json, ODSQA_textq_test-v1.1.json and the JSON files of DRCD-TTS "
    "and DRCD-backtrans (with tts or backtrans, and train or dev, in their names), or one of these files"
)
ODSQA_ABOUT = {
    "title": "ODSQA",
    "language": "zh",
    "source": "github.com/Chia-Hsuan-Lee/ODSQA, arXiv 1808.02280",
    "licence": "CC BY-SA 3.0 (DRCD's texts); see the release for the recordings",
}
ODSQA_PARTS = re.compile(r"dev|test")
ODSQA_FILES = {
    "tts": re.compile(r"tts"),
    "backtrans": re.compile(r"back.?trans"),
    "test-textq": re.compile(r"odsqa.*text|text_?q"),
    "test-spokenq": re.compile(r"odsqa.*(spoken|test)|spoken_?q"),
    "original": re.compile(r"drcd"),
}
ODSQA_RECORDING = re.compile(r"\D*(\d+(?:[-_]\d+){1,3})")  # of a paragraph, a sentence of one, or a question
ASKED = re.compile(r"^q(?![a-z])|quest|query", re.IGNORECASE)
Sounds = dict[str, dict[str, dict[int, Path]]]  # "passages" and "questions" -> id -> number of the segment -> file


def prepare_odsqa(source: Path | str, out: Path | str, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Write `out` and return its data report. Raises InputError for what is not of ODSQA, or damaged."""
    found = given(source, ODSQA_LAYOUT)
    files = _odsqa_files(found)
    splits = [split for split in files if not split.startswith("original-")]
    parts = {kind: [split for split in splits if split.endswith(f"-{kind}")] for kind in PAIRS}
    published: dict[str, dict[str, int]] = dict(ODSQA_PUBLISHED)
    for kind, pairs in PAIRS.items():  # a companion in one file is compared as it is, one in several as a whole, below
        if len(parts[kind]) < 2:
            published[parts[kind][0] if parts[kind] else f"train-{kind}"] = {"questions": pairs}
    sounds = _odsqa_recordings(found) if wanted.audio and found.is_dir() else {}
    recorded = {"recordings": sum(len(s) for kind in sounds.values() for s in kind.values())} if sounds else {}

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Attach]]:
        paragraphs = {name: read_squad(path) for name, path in files.items()}
        drcd = [p for name, some in paragraphs.items() if name not in splits for p in some]
        texts = originals(drcd, worded(paragraphs.get("test-textq", ())))
        made: dict[str, tuple[SplitRecords, Attach]] = {}
        for split in splits:
            test = split in ODSQA_PUBLISHED
            if test:
                report.compare(split, "articles", ODSQA_ARTICLES, len({p.article for p in paragraphs[split]}))
            transcribed = not split.endswith("backtrans")  # text that was translated is nobody's speech
            style = Style("zh", transcribed_passages=transcribed, transcribed_questions=split == "test-spokenq")
            records, _ = records_of(split, paragraphs[split], style, report, texts if test else None)
            made[split] = records, (_takes(records, sounds) if test else Takes()).attach
        for kind, some in parts.items():
            if len(some) > 1:  # the published number is that of all pairs
                total = sum(report.read[split, "questions"] for split in some)
                report.compare(some[0], f"questions in {' and '.join(some)}", PAIRS[kind], total)
        return made

    return prepared_texts(
        "odsqa", found, out, wanted, files if splits else {}, read, ODSQA_LAYOUT, published, ODSQA_ABOUT, recorded
    )


def _odsqa_files(source: Path) -> dict[str, Path]:
    """Split -> its file, "original-..." -> a file of DRCD; by the name of the file, or else of the folders it lies in.

    Raises InputError where two files claim to be one split.
    """
    found: dict[str, Path] = {}
    for path in sorted(source.rglob("*.json")) if source.is_dir() else [source]:
        if path.name.startswith("."):
            continue
        folders = [f for f in path.parents if f == source or source in f.parents] or [path.parent]
        names = (path.name.lower(), *(folder.name.lower() for folder in folders))
        kind = next((kind for name in names for kind, pattern in ODSQA_FILES.items() if pattern.search(name)), "")
        split = f"original-{path.name}" if kind == "original" else kind
        if kind in PAIRS:
            part = ODSQA_PARTS.search(path.name.lower())
            split = f"{part[0] if part else 'train'}-{kind}"
        if split:
            _claim(found, split, path, "ODSQA")
    return dict(sorted(found.items()))


def _odsqa_recordings(source: Path) -> Sounds:
    """PARAGRAPH-SENTENCE.wav for passages and QUESTION.wav for questions, ids as in the JSON with - or _ between their numbers.

    Both have three numbers, so that questions lie in a folder, or have a name, with question or q in it before their numbers.
    """
    found: Sounds = {"passages": {}, "questions": {}}
    for path in audio_files(source):
        if name := ODSQA_RECORDING.fullmatch(path.stem):
            numbers = re.split("[-_]", name[1])
            if ASKED.search(path.stem) or any(ASKED.search(f.name) for f in path.parents if source in f.parents):
                found["questions"].setdefault("-".join(numbers), {})[0] = path
            else:
                segment = int(numbers[2]) if len(numbers) > 2 else 0
                found["passages"].setdefault("-".join(numbers[:2]), {})[segment] = path
    return found if found["passages"] or found["questions"] else {}


def _takes(records: SplitRecords, sounds: Sounds) -> Takes:
    """Of the records that there are. Sentences are numbered from the same number everywhere, 0 or 1."""
    passages = {p.id: s for p in records.passages if (s := sounds.get("passages", {}).get(p.id))}
    first = min((min(segments) for segments in passages.values()), default=0)
    questions = {q.id: Take((s[0],)) for q in records.questions if (s := sounds.get("questions", {}).get(q.id))}
    unused = sum(len(s) for kind in sounds.values() for s in kind.values()) - len(questions) - sum(map(len, passages.values()))
    return Takes({name: take_of(segments, first) for name, segments in passages.items()}, questions, unused)
