"""Prepare Spoken-SQuAD (Lee et al., Interspeech 2018, arXiv 1804.00320): SQuAD 1.1 from a
synthesiser, transcribed by CMU Sphinx.

Layouts and irregularities: data/spoken-squad/README.md. Where SQuAD's own dev-v1.1.json lies beside
the tests, its contexts become their `text`. The training set keeps its transcripts alone: readers
are trained on them, as published, and need the offsets in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from speechssl.data.files import add_recording, list_audio_files
from speechssl.data.options import SpokenSquad
from speechssl.data.prepare import (
    PrepareReport,
    SplitRecords,
    attach_takes,
    find_split_files,
    make_takes,
    prepare_corpus,
    stamp_files,
)
from speechssl.data.squad import Style, collect_originals, make_records, read_squad

TEST = {"questions": 5_351}  # of the test set, and of the same test set with noise
PUBLISHED = {"train": {"questions": 37_111}, "test": TEST, "test-wer44": TEST, "test-wer54": TEST}
ABOUT = {
    "title": "Spoken-SQuAD",
    "language": "en",
    "source": "github.com/Chia-Hsuan-Lee/Spoken-SQuAD, arXiv 1804.00320",
    "licence": "CC BY-SA 4.0 (SQuAD's texts)",
}
SPOKEN = re.compile(r"spoken.?(train|test|dev).*\.json")  # "spoken_test-v1.1_wer44.json"
NOISE = re.compile(r"wer[-_]?(\d+)")
ORIGINAL = "dev-v1.1.json"
RECORDING = re.compile(r"(\d+)_(\d+)_(\d+)")  # article, paragraph, sentence: "0_12_3"
# split -> pattern of the names of the folders that have its recordings
FOLDERS = {"train": re.compile("train"), "test": re.compile("dev|test")}


def prepare_spoken_squad(o: SpokenSquad) -> dict[str, Any]:
    """Write `o.out` and return its data report. Raises InputError for a source that is not of
    Spoken-SQuAD, or damaged."""
    source = o.source.resolve()
    files = find_split_files(source, find_split, "spoken-squad")
    order = ("train", "test", *sorted(split for split in files if "wer" in split))
    files = {split: files[split] for split in order if split in files}
    splits_with_audio = [split for split in FOLDERS if o.audio and split in files]
    recordings = {split: _find_recordings(source, split) for split in splits_with_audio}
    folder = source if source.is_dir() else source.parent
    original = min(folder.rglob(ORIGINAL), default=None)
    described = files if original is None else files | {"original": original}
    settings: dict[str, Any] = {"files": stamp_files(described)}
    if any(recordings.values()):
        settings["recordings"] = {split: len(places) for split, places in recordings.items()}

    def read(report: PrepareReport) -> dict[str, SplitRecords]:
        originals = collect_originals(read_squad(original)) if original else None
        splits: dict[str, SplitRecords] = {}
        for split, path in files.items():
            # offsets of the noisy tests are in SQuAD's text, and not in the transcript
            style = Style("en", transcribed_passages=True, offsets="wer" not in split)
            texts = originals if split.startswith("test") else None
            records, paragraphs = make_records(split, read_squad(path), style, report, texts)
            by_place = make_takes(recordings.get(split, {}))
            takes = {}
            # names of recordings count articles and paragraphs as the file does
            for name, paragraph in paragraphs.items():
                place = (paragraph.article, paragraph.number)
                if place in by_place:
                    takes[name] = by_place[place]
            splits[split] = attach_takes(o, split, records, report, takes)
        return splits

    card = ABOUT | {"files": {split: path.name for split, path in files.items()}}
    return prepare_corpus("spoken-squad", o, settings, read, PUBLISHED, card)


def find_split(path: Path) -> str:
    """Find the split of a file, such as "train" or "test-wer44"; "" for a file that is not of
    Spoken-SQuAD."""
    match = SPOKEN.fullmatch(path.name.lower())
    noise = NOISE.search(path.name.lower())
    if not match:
        return ""
    if noise:
        return f"test-wer{noise[1]}"
    return "train" if match[1] == "train" else "test"


def _find_recordings(source: Path, split: str) -> dict[tuple[int, int], dict[int, Path]]:
    """Find the recordings of a split, in the folders of FOLDERS: (article, paragraph) -> number of
    the sentence -> file."""
    recordings: dict[tuple[int, int], dict[int, Path]] = {}
    for path in list_audio_files(source):
        match = RECORDING.fullmatch(path.stem)
        folder = path.parent.relative_to(source).as_posix().lower()
        if match and FOLDERS[split].search(folder):
            article, paragraph, sentence = map(int, match.groups())
            add_recording(recordings.setdefault((article, paragraph), {}), sentence, path)
    return recordings
