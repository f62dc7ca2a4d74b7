"""Fitting a codebook for a corpus, and the table that says whether its units are any good."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from speechssl.artefacts import write_json
from speechssl.audio import read_audio
from speechssl.corpora.minisqa.speech import speak_pairs
from speechssl.corpora.records import load_corpus
from speechssl.encoders.speech_encoder import load_encoder
from speechssl.units.extract import UnitExtractor, extract_many, layer_features
from speechssl.units.kmeans import Codebook, fit_kmeans, load_codebook
from speechssl.units.quality import phone_frames, purity, same_text


def fit_units(corpus: Path, encoder: str, layer: int, clusters: int, smooth: int, passages: int, seed: int, out: Path) -> Codebook:
    """Fit on the first `passages` training passages, all voices; once."""
    if out.is_file() and out.with_suffix(".card.json").is_file():
        return load_codebook(out)
    model, data = load_encoder(encoder), load_corpus(corpus, "train")
    card: dict[str, Any] = {"encoder": model.hash, "layer": layer, "smooth": smooth, "frame_rate": model.grid.frame_rate}
    from tqdm import tqdm

    chosen = tqdm(list(data.passages.values())[:passages], desc="features for k-means", unit="file")
    stream = (layer_features(model, read_audio(data.path(p)), card).numpy() for p in chosen)
    codebook = fit_kmeans(stream, clusters, card, seed=seed)
    codebook.save(out)
    return codebook


def inspect_units(
    corpus: Path, encoder: str, codebook: Path, split: str, pairs: int, out: Path | None = None
) -> dict[str, float | int]:
    """Quality on held-out voices. The sentence pairs are spoken on the spot (needs speechssl[synth])."""
    extractor = UnitExtractor(load_encoder(encoder), load_codebook(codebook))
    data = load_corpus(corpus, split)
    language = next(iter(data.passages.values())).language
    spoken = speak_pairs(language, split, pairs)
    sides = [[extractor.units(side[i]).units for side in spoken] for i in (0, 1)]
    alike = same_text(*sides)
    found = extract_many(extractor, {p.id: partial(read_audio, data.path(p)) for p in data.passages.values()})
    names: dict[str, int] = {}
    phones = [
        phone_frames([(s.text, s.start, s.end) for s in data.passages[i].phones], extractor.grid, u.frames, names)
        for i, u in found.done.items()
    ]
    pure = purity([u.expand() for u in found.done.values()], phones)
    seconds = sum(data.passages[i].seconds for i in found.done)
    values: dict[str, float | int] = {
        "K": extractor.codebook.size,
        "same_text_distance": alike.distance,
        "same_text_auc": alike.auc,
        "phone_purity": pure.phone,
        "cluster_purity": pure.cluster,
        "pnmi": pure.pnmi,
        "units_a_second": sum(len(u) for u in found.done.values()) / seconds,
        "phones_a_second": sum(len(p.phones) for p in data.passages.values()) / seconds,
        "pairs": alike.pairs,
    }
    if out:
        write_json(out, values)
    return values
