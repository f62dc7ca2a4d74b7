"""Measure units of MiniSQA as `speechssl units evaluate` does, and the distance between the units
of one question spoken by two voices (needs speechssl[synth])."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artifacts import read_json, write_json
from speechssl.cli import script
from speechssl.data.records import load_corpus
from speechssl.encoders.encoder import open_pool
from speechssl.errors import InputError
from speechssl.options import Count, option
from speechssl.processes import count_cores
from speechssl.synth.minisqa import SpokenSentences, speak_pairs
from speechssl.units.features import load_extractor
from speechssl.units.measures import compare_texts
from speechssl.units.options import Evaluate
from speechssl.units.quality import evaluate_units

PHONES = "phones"  # instead of an encoder: units are the synthesiser's phones, the topline


@dataclass(frozen=True, kw_only=True)
class Pairs(Evaluate):
    """measure units of MiniSQA: all that `units evaluate` measures, and the same-text distance

    The encoder may be phones, to measure the synthesiser's phones as units (codebook: none).

      python recipes/minisqa/unit_pairs.py corpus people-en/encoder people-en/units.safetensors
      python recipes/minisqa/unit_pairs.py corpus phones none --split dev --pairs 50
    """

    pairs: Count = option(100, "number of questions, each spoken by two voices")


def measure(o: Pairs) -> dict[str, Any]:
    """Measure the units, print the measures and write them where `--out` says so.

    The same-text distance and its AUC are of questions that two voices of the split speak.
    """
    if read_json(o.source / "card.json").get("corpus") != "minisqa":
        raise InputError(
            f"{o.source} is not MiniSQA; give `speechssl units evaluate` other corpora"
        )
    split = o.split or "test"
    corpus = load_corpus(o.source, split)
    language = next(iter(corpus.passages.values())).language
    pairs = list(tqdm(speak_pairs(language, split, o.pairs), total=o.pairs, desc="synthesising"))
    utterances = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    measures: dict[str, Any]
    if o.encoder == PHONES:
        units = number_phones(utterances)
        passages = [passage for passage in corpus.passages.values() if passage.phones]
        rate = sum(len(p.phones) for p in passages) / sum(p.seconds for p in passages)
        size = 1 + max(int(sequence.max()) for sequence in units)
        measures = {"K": size, "units_a_second": rate}
        print(f"{'K':>46}  {size}\n{'units_a_second':>46}  {rate:.3f}")
    else:
        measures = evaluate_units(replace(o, out=None))
        with open_pool(count_cores()) as pool:
            torch.set_num_threads(1)
            extractor = load_extractor(o.encoder, o.codebook, o.precision, price=o.price)
            runs = pool.map(extractor.extract, [utterance.samples for utterance in utterances])
            units = [run.units for run in runs]
    # every question by its first voice, then every question by its second
    texts = [str(number) for number in range(o.pairs)] * 2
    (row,) = compare_texts(units, texts, ["one"] * o.pairs + ["other"] * o.pairs)
    for name in ("same_text_distance", "same_text_auc", "pairs"):
        measures[name] = row[name]
        print(f"{name:>46}  {row[name]:.3f}")
    if o.out:
        write_json(o.out, measures)
    return measures


def number_phones(utterances: list[SpokenSentences]) -> list[np.ndarray]:
    """Return the phones of utterances as units (U,), numbered as they appear."""
    numbers: dict[str, int] = {}
    sequences = []
    for utterance in utterances:
        sequence = [numbers.setdefault(p.text, len(numbers)) for p in utterance.phones]
        sequences.append(np.array(sequence))
    return sequences


if __name__ == "__main__":
    sys.exit(script(measure, Pairs))
