"""How well a reader of units tells words apart, before any question is asked."""

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

    The reader hears passages in windows, and every word gets the mean of its outputs over the units
    of the word. Which of 1,000 words in their sentences, as its teacher reads them, is the nearest?
    Printed by voice: how often it is the word itself, and how often the word is among the ten
    nearest.

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
    """Measure and print."""
    student, layout, card = load_reader(o.reader)
    teacher = load_teacher(o.text_encoder, find_shipped(o.teacher))
    model = UnitTeacher(student, teacher).eval()
    units = load_extractor(str(o.models / "encoder"), o.models / "units.safetensors")
    extractor = adapt_extractor(o.reader, card, units)
    data = load_corpus(o.corpus, o.split)
    recordings, voices = [], []
    for passage in list(data.passages.values())[: o.passages]:
        runs = extractor.units(read_audio(data.path(passage)))
        recordings.append(find_word_units(passage, runs, extractor.grid, teacher.codec))
        voices.append(passage.speaker)
    ranks, owners = rank_words(model, layout, teacher.layout, recordings, o.words)
    of_voice: dict[str, list[int]] = defaultdict(list)
    for rank, owner in zip(ranks.tolist(), owners.tolist(), strict=True):
        of_voice[voices[owner]].append(rank)
    rows = []
    for voice, found in [("all", ranks.tolist()), *sorted(of_voice.items())]:
        first, ten = (100 * float(np.mean(np.array(found) < most)) for most in (1, 10))
        rows.append({"voice": voice, "words": len(found), "first": first, "first ten": ten})
        print(f"{voice:<28} {len(found):5} words   first {first:4.1f} %   among ten {ten:4.1f} %")
    if o.out:
        write_json(o.out, rows)


@torch.inference_mode()
def rank_words(
    model: UnitTeacher,
    layout: Layout,
    text: Layout,
    recordings: Sequence[SpokenWords],
    words: int,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw N words of all recordings; return the rank of each among the N, 0 for the nearest, and
    the number of the recording that it was said in, both (N,)."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    owners: list[int] = []
    for number, recording in enumerate(tqdm(recordings, desc="words", unit="recording")):
        for start in range(0, len(recording.units), layout.size):
            window = recording.cut(start, start + layout.size)
            if len(window.word_pieces) == 0:
                continue
            (heard,), (read,) = model.vectors(collate_words([(NO_QUESTION, window)], layout, text))
            pairs.append((heard, read))
            owners += [number] * len(window.word_pieces)
    of_units, of_text = (
        functional.normalize(torch.cat(side), dim=-1) for side in zip(*pairs, strict=True)
    )
    chosen = np.random.default_rng(seed).permutation(len(of_units))[:words]
    likeness = of_units[chosen] @ of_text[chosen].T
    ranks = (likeness > likeness.diagonal()[:, None]).sum(1)
    return ranks.numpy(), np.array(owners)[chosen]


if __name__ == "__main__":
    sys.exit(script(measure, NearestWords))
