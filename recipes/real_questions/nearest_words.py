"""Measure how well a reader of units tells words apart, before any question is asked."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from speechssl.artifacts import write_json
from speechssl.audio import read_audio
from speechssl.cli import script
from speechssl.data.records import load_corpus
from speechssl.dual.data import Layout
from speechssl.dual.model import load_reader
from speechssl.dual.options import TEXT_ENCODER
from speechssl.dual.system import adapt_extractor
from speechssl.dual.teacher import (
    NO_QUESTION,
    SpokenWords,
    UnitTeacher,
    collate_words,
    find_word_units,
    load_teacher,
)
from speechssl.options import Count, argument, find_shipped, option
from speechssl.units.features import load_extractor


@dataclass(frozen=True, kw_only=True)
class NearestWords:
    """measure how well a reader of units tells words apart

    A reader of units (the student) reads passages in windows; the vector of a word is the mean of
    its outputs over the units of the word. The teacher, a reader of text, gives every word a vector
    in the same sentence. Of 1,000 words, the teacher's vectors are ranked by their cosine with the
    student's vector of each. Printed by voice: how often the word itself is the nearest, and how
    often it is among the ten nearest.

      python recipes/real_questions/nearest_words.py exp/taught corpus people-en --split dev
    """

    reader: Path = argument("reader of `speechssl train unit-words`")
    corpus: Path = argument("prepared corpus whose words have times")
    models: Path = argument("folder with encoder and units.safetensors")
    split: str = option("dev", "split of the corpus")
    passages: Count = option(30, "number of passages, the first of the split")
    words: Count = option(1000, "number of words, drawn at random")
    text_encoder: str = option("minilm", TEXT_ENCODER)
    teacher: Path | None = option(None, "reader of words that taught it; default: the text encoder")
    out: Path | None = option(None, "also write the table as JSON")


def measure(o: NearestWords) -> None:
    """Rank the words of the passages, and print how often the right one is first."""
    student, layout, card = load_reader(o.reader)
    teacher = load_teacher(o.text_encoder, find_shipped(o.teacher))
    model = UnitTeacher(student, teacher).eval()
    units = load_extractor(str(o.models / "encoder"), o.models / "units.safetensors")
    extractor = adapt_extractor(o.reader, card, units)
    data = load_corpus(o.corpus, o.split)
    recordings, voices = [], []
    for passage in list(data.passages.values())[: o.passages]:
        runs = extractor.extract(read_audio(data.path(passage)))
        recordings.append(find_word_units(passage, runs, extractor.grid, teacher.codec))
        voices.append(passage.speaker)
    ranks, numbers = rank_words(model, layout, teacher.layout, recordings, o.words)
    ranks_of_voice: dict[str, list[int]] = defaultdict(list)
    for rank, number in zip(ranks.tolist(), numbers.tolist(), strict=True):
        ranks_of_voice[voices[number]].append(rank)
    rows = []
    for voice, group in [("all", ranks.tolist()), *sorted(ranks_of_voice.items())]:
        first = 100 * float(np.mean(np.array(group) < 1))
        ten = 100 * float(np.mean(np.array(group) < 10))
        rows.append({"voice": voice, "words": len(group), "first": first, "first ten": ten})
        print(f"{voice:<28} {len(group):5} words   first {first:4.1f} %   among ten {ten:4.1f} %")
    if o.out:
        write_json(o.out, rows)


@torch.inference_mode()
def rank_words(
    model: UnitTeacher,
    layout: Layout,
    text_layout: Layout,
    recordings: Sequence[SpokenWords],
    words: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw N words of all recordings; return the rank of each among the N, 0 for the nearest, and
    the number of the recording that it was said in, both (N,).

    layout, text_layout: windows of the student and of the teacher.
    """
    student: list[torch.Tensor] = []  # (W, D) of a window each
    teacher: list[torch.Tensor] = []
    recording_of: list[int] = []  # number of the recording of every word
    for number, recording in enumerate(tqdm(recordings, desc="words", unit="recording")):
        for start in range(0, len(recording.units), layout.size):
            window = recording.cut(start, start + layout.size)
            if len(window.word_pieces) == 0:
                continue
            batch = collate_words([(NO_QUESTION, window)], layout, text_layout)
            (student_vectors,), (teacher_vectors,) = model.embed_words(batch)
            student.append(student_vectors)
            teacher.append(teacher_vectors)
            recording_of += [number] * len(window.word_pieces)
    chosen = np.random.default_rng(0).permutation(len(recording_of))[:words]
    of_student = functional.normalize(torch.cat(student), dim=-1)[chosen]
    of_teacher = functional.normalize(torch.cat(teacher), dim=-1)[chosen]
    cosines = of_student @ of_teacher.T  # (N, N)
    nearer = cosines > cosines.diagonal()[:, None]
    return nearer.sum(1).numpy(), np.array(recording_of)[chosen]


if __name__ == "__main__":
    sys.exit(script(measure, NearestWords))
