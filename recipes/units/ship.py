"""Make the encoder that ships, rounded to int8, with its codebooks: a folder to be copied to
speechssl/models/.

    python recipes/units/ship.py EXP ARM BOOK OUT CONFIG
        e.g. exp/units r-spin-reference labels exp/units/people-en base.yaml

EXP/ARM/BOOK-out.safetensors becomes words.safetensors, and EXP/ARM/known-out.safetensors, the
codebook of the readers' units, becomes units.safetensors where there is one. CONFIG is the name of
the configuration, for the cards. The card of a codebook gets the hash of the rounded weights as
`encoder`, keeps that of the weights before rounding as `made_for`, and gets the scores that stage 5
measured, before rounding. Cards name FSDD, Precise, flite and Whisper tiny.en as training data:
ship a run that had them.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from speechssl.artifacts import read_json, replace_file, write_json
from speechssl.cli import run_program
from speechssl.encoders.load import hash_folder, load_encoder
from speechssl.quantisation import dequantise, quantise
from speechssl.results import name_condition
from speechssl.units.codebook import load_codebook

SAME_TEXT = ("same_text_auc", "same_text_distance")


def read_scores(path: Path) -> dict[str, Any]:
    """Return the scores that the card of a codebook gets, from a file of `units evaluate` or
    unit_pairs.py."""
    measures = read_json(path)
    same_text: dict[str, Any] = {}
    for row in measures.get("same_text", []):
        same_text[row["groups"]] = {name: row[name] for name in SAME_TEXT}
    if not same_text:  # a file of unit_pairs.py, on voices of espeak-ng alone
        same_text = {name: measures[name] for name in (*SAME_TEXT, "pnmi") if name in measures}
    distances = {}  # by condition
    for row in measures.get("stability", []):
        condition = name_condition(row["condition"], row.get("snr_db"))
        distances[condition] = row["unit_edit_distance"]
    return {"same_text": same_text, "unit_edit_distance": distances}


def save_weights(state: dict[str, torch.Tensor], encoder: Path) -> None:
    with replace_file(encoder / "model.safetensors") as temporary:
        save_file(state, temporary, {"format": "pt"})


def print_size(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


def main(exp: Path, arm: str, book: str, out: Path, config: str) -> None:
    attribution = [
        "speech by espeak-ng (MiniSQA) and flite",
        "Free Spoken Digit Dataset, CC BY-SA 4.0",
        "Precise-Community-Data (amelia, athena), public domain",
        "Whisper tiny.en, the teacher, MIT",
    ]
    synthesisers = "espeak-ng (MiniSQA) and flite"
    if (exp / "kokoro").is_dir():  # it was trained on, too
        attribution.insert(1, "speech by Kokoro-82M, Apache-2.0")
        synthesisers = "espeak-ng (MiniSQA), kokoro and flite"
    facts = {  # of all cards
        "recipe": f"recipes/units/run.sh, {config}: {arm}",
        "license": "Apache-2.0",
        "attribution": attribution,
    }
    corpus = {
        "corpus": "recipes/units",
        "synthetic": f"speech by {synthesisers}, "
        "digits spoken by people (FSDD, recordings from 10 on), the names Amelia and Athena spoken "
        "by people (Precise-Community-Data)",
    }
    source = exp / arm / "encoder"
    encoder = out / "encoder"
    encoder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "preprocessor_config.json", "card.json"):
        shutil.copyfile(source / name, encoder / name)
    weights = dequantise(load_file(source / "model.safetensors"))
    save_weights(quantise(weights, kernels=True), encoder)
    card = read_json(encoder / "card.json") | {"files": hash_folder(encoder)}
    write_json(encoder / "card.json", card | facts | {"corpus": corpus})
    rounded = load_encoder(encoder).hash
    for name, labels in {"words": book, "units": "known"}.items():
        path = exp / arm / f"{labels}-out.safetensors"
        if not path.is_file():
            continue
        scores = {}
        prefix = f"{arm}-{labels}-"
        for measured in sorted((exp / "quality").glob(f"{prefix}*.json")):
            scores[measured.stem.removeprefix(prefix)] = read_scores(measured)
        codebook = load_codebook(path)
        hashes = {"encoder": rounded, "made_for": codebook.card["encoder"]}
        card = codebook.card | facts | hashes | {"scores": scores}
        replace(codebook, card=card).save(out / f"{name}.safetensors")
    print_size(out)


if __name__ == "__main__":
    run_program(main)
