"""Fitting a codebook for a corpus, and the table that says whether its units are any good."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artefacts import write_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.corpora.minisqa.speech import speak_pairs
from speechssl.corpora.records import Corpus, data_hash, load_corpus
from speechssl.encoders.loading import load_encoder
from speechssl.encoders.pretraining import small_config
from speechssl.errors import InputError, tell_set_aside
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval
from speechssl.units.extract import UnitExtractor, layer_features
from speechssl.units.kmeans import Codebook, fit_kmeans, load_codebook
from speechssl.units.mfcc import mfcc
from speechssl.units.quality import phone_frames, purity, same_text
from speechssl.units.targets import readable

MFCC_GRID = FrameGrid.of_convolutions(SAMPLE_RATE, small_config().conv_kernel, small_config().conv_stride)  # as in `pretrain`


def fit_units(corpus: Path, encoder: str, layer: int, clusters: int, smooth: int, passages: int, seed: int, out: Path) -> Codebook:
    """Fit on the first `passages` training passages, all voices; once.

    Raises InputError where `out` is a codebook that was made from other inputs.
    """
    if smooth < 1 or smooth % 2 == 0:
        raise InputError(f"features are averaged over an odd number of frames, not {smooth}; change --smooth")
    model, data = load_encoder(encoder), load_corpus(corpus, "train")
    if not data.passages:
        raise InputError(f"{corpus / 'train'} has no passages to fit a codebook on; prepare the corpus with some")
    card: dict[str, Any] = {"encoder": model.hash, "layer": layer, "smooth": smooth, "frame_rate": model.grid.frame_rate}
    card |= {"data": data_hash(corpus, "train"), "passages": passages}
    chosen = [data.path(p) for p in list(data.passages.values())[:passages]]
    stream = (layer_features(model, samples, card).numpy() for samples in readable(chosen, "features for k-means"))
    if out.is_file() and out.with_suffix(".card.json").is_file():
        made = load_codebook(out)
        if differing := [k for k, v in (card | {"K": clusters, "seed": seed}).items() if made.card.get(k) != v]:
            raise InputError(f"{out} was made from other inputs ({', '.join(differing)} differ); choose another file or delete it")
        return made
    codebook = fit_kmeans(stream, clusters, card, seed=seed)
    codebook.save(out)
    return codebook


def inspect_units(
    corpus: Path, encoder: str, codebook: Path | None, split: str, pairs: int, out: Path | None = None
) -> dict[str, float | int]:
    """Quality on held-out voices. The sentence pairs are spoken on the spot (needs speechssl[synth]).

    encoder: folder, hub id or shipped name; `mfcc` for a codebook on MFCCs; `phones` for the phones of the manifest as units (the
    topline, without a codebook).
    """
    if pairs < 2:
        raise InputError(f"{pairs} pairs of questions are too few to compare; give --pairs 2 or more")
    units, grid, size = _source(encoder, codebook)
    data = load_corpus(corpus, split)
    if bare := [p.id for p in data.passages.values() if not p.phones] or not data.passages:
        what = "has no passages" if bare is True else f"has passages without phones (such as {bare[0]})"
        raise InputError(f"{corpus / split} {what}; the quality of units is measured against phones: name a split that has them")
    language = next(iter(data.passages.values())).language
    names: dict[str, int] = {}
    spoken = list(tqdm(speak_pairs(language, split, pairs), total=pairs, desc="speaking pairs", unit="pair"))
    if units is None:
        sides = [[np.array([names.setdefault(p.text, len(names)) for p in side[i].phones]) for side in spoken] for i in (0, 1)]
    else:
        heard = [[units(s.samples).units for s in side] for side in tqdm(spoken, desc="units of pairs", unit="pair")]
        sides = [[side[i] for side in heard] for i in (0, 1)]
    alike = same_text(*sides)
    values: dict[str, float | int] = {
        "K": size or len(names),
        "same_text_distance": alike.distance,
        "same_text_auc": alike.auc,
        "pairs": alike.pairs,
        "phones_a_second": sum(len(p.phones) for p in data.passages.values()) / sum(p.seconds for p in data.passages.values()),
    }
    if units is not None:
        values |= _purity(data, units, grid, names)
    if out:
        write_json(out, values)
    return values


def _source(encoder: str, codebook: Path | None) -> tuple[Callable[[np.ndarray], RunLength] | None, FrameGrid, int]:
    """What turns samples into units (None: the phones of the manifest), its frames and K."""
    if encoder == "phones":
        return None, MFCC_GRID, 0
    if codebook is None:
        raise InputError(f"units of {encoder} need a codebook; name the file that `speechssl units fit` wrote")
    book = load_codebook(codebook)
    if encoder == "mfcc":
        if book.card.get("encoder") != "mfcc":
            raise InputError(f"{codebook} was not fitted on MFCCs but on encoder {book.card.get('encoder')}; name that encoder")
        return (lambda samples: RunLength.of_frames(book.assign(mfcc(samples, MFCC_GRID)))), MFCC_GRID, book.size
    extractor = UnitExtractor(load_encoder(encoder), book)
    return extractor.units, extractor.grid, book.size


def _oracle(data: Corpus, units: dict[str, RunLength], grid: FrameGrid) -> float:
    """FF1 (0 to 1) of the annotated answers after label -> decode: what no reader of these units can beat."""
    scores = []
    for question in data.answerable:
        if question.passage not in units:
            continue
        for start, end in [(a.start, a.end) for a in question.answers if a.start is not None and a.end is not None][:1]:
            passage = units[question.passage]
            first, last = interval_of_units(grid, passage, *units_of_interval(grid, passage, start, end))
            shared = max(min(last, end) - max(first, start), 0.0)
            scores.append(2 * shared / (last - first + end - start))
    return float(np.mean(scores)) if scores else math.nan


def _purity(data: Corpus, units: Callable[[np.ndarray], RunLength], grid: FrameGrid, names: dict[str, int]) -> dict[str, float]:
    """Purity, PNMI and rate over all passages of a split."""
    found: dict[str, RunLength] = {}
    failed: dict[str, str] = {}
    for passage in tqdm(data.passages.values(), desc="units", unit="file"):
        try:
            found[passage.id] = units(read_audio(data.path(passage)))
        except InputError as error:
            failed[passage.id] = str(error)
    tell_set_aside(failed, "quality of units")
    if not found:
        raise InputError(f"no passage of {data.root / data.split} can be read ({next(iter(failed.values()))}); restore its audio")
    passages = [data.passages[name] for name in found]
    phones = [phone_frames([(s.text, s.start, s.end) for s in p.phones], grid, found[p.id].frames, names) for p in passages]
    pure = purity([u.expand() for u in found.values()], phones)
    return {
        "phone_purity": pure.phone,
        "cluster_purity": pure.cluster,
        "pnmi": pure.pnmi,
        "oracle_ff1": _oracle(data, found, grid),
        "units_a_second": sum(map(len, found.values())) / sum(p.seconds for p in passages),
    }
