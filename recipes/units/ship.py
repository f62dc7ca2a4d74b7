"""Make the encoder that ships, rounded to int8, with the codebook of one read-out: a folder to be
copied to speechssl/models/.

    python recipes/units/ship.py EXP ARM READ OUT FILE
        e.g. exp/units r-spin-reference labels exp/units/people-en base.yaml

ARM/READ-out.safetensors is the codebook of words, ARM/known-out.safetensors, where there is one,
that of the readers' units; FILE the name of the configuration. Their cards get the hash of the
rounded weights as `encoder`, keep that of the others as `made_for`, and get what stage 5 measured
of them, before rounding.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from speechssl.artifacts import read_json, replacing, write_json
from speechssl.encoders.load import file_hashes, load_encoder
from speechssl.quantisation import dequantise, quantise
from speechssl.results import condition_name
from speechssl.units.codebook import load_codebook

SAME = ("same_text_auc", "same_text_distance")


def quality_scores(path: Path) -> dict[str, Any]:
    """Return of a file of `units evaluate` or unit_pairs.py what the card of a codebook gets."""
    found = read_json(path)
    same = {row["groups"]: {k: row[k] for k in SAME} for row in found.get("same_text", [])}
    if not same:  # a file of unit_pairs.py, on voices of espeak-ng alone
        same = {k: found[k] for k in (*SAME, "pnmi") if k in found}
    noise = {}
    for row in found.get("stability", []):
        noise[condition_name(row["condition"], row.get("snr_db"))] = row["unit_edit_distance"]
    return {"same_text": same, "unit_edit_distance": noise}


def print_size(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


def main(exp: Path, arm: str, read: str, out: Path, file: str) -> None:
    kokoro = (exp / "kokoro").is_dir()  # it was trained on, too
    facts = {
        "recipe": f"recipes/units/run.sh, {file}: {arm}",
        "license": "Apache-2.0",
        "attribution": [
            "speech by espeak-ng (MiniSQA) and flite",
            *["speech by Kokoro-82M, Apache-2.0"] * kokoro,
            "Free Spoken Digit Dataset, CC BY-SA 4.0",
            "Precise-Community-Data (amelia, athena), public domain",
            "Whisper tiny.en, the teacher, MIT",
        ],
    }
    corpus = {
        "corpus": "recipes/units",
        "synthetic": f"speech by espeak-ng (MiniSQA){', kokoro' * kokoro} and flite, "
        "digits spoken by people (FSDD, recordings from 10 on), the names Amelia and Athena spoken "
        "by people (Precise-Community-Data)",
    }
    source, encoder = exp / arm / "encoder", out / "encoder"
    encoder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "preprocessor_config.json", "card.json"):
        shutil.copyfile(source / name, encoder / name)
    with replacing(encoder / "model.safetensors") as temporary:
        weights = dequantise(load_file(source / "model.safetensors"))
        save_file(quantise(weights, kernels=True), temporary, {"format": "pt"})
    card = read_json(encoder / "card.json") | {"files": file_hashes(encoder)}
    write_json(encoder / "card.json", card | facts | {"corpus": corpus})
    rounded = load_encoder(encoder).hash
    for name, read_out in {"words": read, "units": "known"}.items():
        path = exp / arm / f"{read_out}-out.safetensors"
        if not path.is_file():
            continue
        scores = {}
        prefix = f"{arm}-{read_out}-"
        for measured in sorted((exp / "quality").glob(f"{prefix}*.json")):
            scores[measured.stem.removeprefix(prefix)] = quality_scores(measured)
        codebook = load_codebook(path)
        made = {"encoder": rounded, "made_for": codebook.card["encoder"], "scores": scores}
        replace(codebook, card=codebook.card | facts | made).save(out / f"{name}.safetensors")
    print_size(out)


if __name__ == "__main__":
    _, exp, arm, read, out, file = sys.argv
    main(Path(exp), arm, read, Path(out), file)
