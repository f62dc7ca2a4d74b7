"""Prepare Spoken-SQuAD (Lee et al., Interspeech 2018, arXiv 1804.00320): SQuAD 1.1 from a
synthesiser, transcribed by CMU Sphinx.

Layouts and irregularities: data/spoken-squad/README.md. Where SQuAD's own dev-v1.1.json lies beside
the tests its contexts become `text`. Of the training set they do not: readers are trained on the
transcripts, as published, and need the offsets in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speechssl.data.files import audio_files, enter
from speechssl.data.options import SpokenSquad
from speechssl.data.prepare import (
    Attach,
    PrepareReport,
    SplitRecords,
    Takes,
    make_take,
    prepare_texts,
    resolve_source,
)
from speechssl.data.squad import Style, collect_originals, make_records, read_squad
from speechssl.errors import InputError

TEST = {"questions": 5_351}  # the noisy tests are the test set with noise
PUBLISHED = {"train": {"questions": 37_111}, "test": TEST, "test-wer44": TEST, "test-wer54": TEST}
LAYOUT = (
    "give the folder of Spoken-SQuAD with any of spoken_train-v1.1.json, spoken_test-v1.1.json, "
    "spoken_test-v1.1_WER44.json and "
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


def prepare_spoken_squad(o: SpokenSquad) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    Spoken-SQuAD, or damaged."""
    source = resolve_source(o.source, LAYOUT)
    files = _files(source)
    sounds = (
        _recordings(source, [s for s in ("train", "test") if s in files])
        if o.audio and source.is_dir()
        else {}
    )
    recorded = (
        {"recordings": {split: sum(map(len, s.values())) for split, s in sounds.items()}}
        if sounds
        else {}
    )
    beside = sorted((source if source.is_dir() else source.parent).rglob(ORIGINAL))
    original = next((path for path in beside if not path.name.startswith("spoken")), None)

    def read(report: PrepareReport) -> Mapping[str, tuple[SplitRecords, Attach]]:
        texts = collect_originals(read_squad(original)) if original else None
        by_split: dict[str, tuple[SplitRecords, Attach]] = {}
        for split, path in files.items():
            style = Style("en", transcribed_passages=True, offsets="wer" not in split)
            records, sources = make_records(
                split, read_squad(path), style, report, texts if split.startswith("test") else None
            )
            # by the place of a paragraph in the file, which is that in SQuAD: paragraphs that lost
            # their questions are still there
            passage_ids = {(p.article, p.number): name for name, p in sources.items()}
            spoken = sounds.get(split, {})
            # the release counts from 0
            first = min((min(sentences) for sentences in spoken.values()), default=0)
            takes = {
                passage_ids[place]: make_take(sentences, first)
                for place, sentences in spoken.items()
                if place in passage_ids
            }
            by_split[split] = records, Takes(takes).attach
        return by_split

    inputs = files | ({"original": original} if original and files else {})
    return prepare_texts("spoken-squad", o, inputs, read, LAYOUT, PUBLISHED, ABOUT, recorded)


def _files(source: Path) -> dict[str, Path]:
    """Find the file of each split, train first. Raises InputError where two files claim to be one
    split."""
    files: dict[str, Path] = {}
    for path in sorted(source.rglob("*.json")) if source.is_dir() else [source]:
        name = SPOKEN.fullmatch(path.name.lower())
        if not name:
            continue
        noise = NOISE.search(path.name.lower())
        split = f"test-wer{noise[1]}" if noise else "train" if name[1] == "train" else "test"
        if split in files:
            raise InputError(
                f"both {files[split]} and {path} look like {split} of Spoken-SQuAD; "
                "leave one of them in the folder"
            )
        files[split] = path
    order = ["train", "test", *sorted(s for s in files if "wer" in s)]
    return {split: files[split] for split in order if split in files}


def _recordings(
    source: Path, clean: Sequence[str]
) -> dict[str, dict[tuple[int, int], dict[int, Path]]]:
    """Find the recordings of train and test, as far as they are there (clean): split -> (article,
    paragraph) -> sentence -> file.

    The nearest folder that is named after one decides, or else that only one of them is there.
    """
    recordings: dict[str, dict[tuple[int, int], dict[int, Path]]] = {}
    for path in audio_files(source):
        numbers = SEGMENT.fullmatch(path.stem)
        matches = (
            FOLDER.search(f.name.lower())
            for f in path.parents
            if f == source or source in f.parents
        )
        folder = next((match for match in matches if match), None)
        split = (
            ("train" if folder[1] else "test") if folder else clean[0] if len(clean) == 1 else ""
        )
        if numbers and split in clean:
            place = int(numbers[1]), int(numbers[2])
            enter(
                recordings.setdefault(split, {}).setdefault(place, {}), int(numbers[3] or 0), path
            )
    return recordings
