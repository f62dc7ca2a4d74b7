"""Make the encoder that ships, rounded to int8, with the codebook of one read-out: a folder to be
copied to speechssl/models/.

    python recipes/units/ship.py EXP ARM READ OUT FILE
        e.g. exp/units r-spin-reference labels exp/units/people-en base.yaml

ARM/READ-out.safetensors is the codebook of words, ARM/known-out.safetensors, where there is one,
that of the readers' units; FILE the name of the configuration. Their cards get the hash of the
rounded weights as `encoder`, keep that of the others as `made_for`, and get what stage 5 measured
of them, before rounding.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file, save_file

from speechssl.artifacts import read_json, replacing, write_json
from speechssl.encoders.load import file_hashes, load_encoder
from speechssl.quantisation import dequantise, quantise
from speechssl.units.codebook import load_codebook

_, exp, arm, read, out, file = sys.argv
exp, out = Path(exp), Path(out)
kokoro = (exp / "kokoro").is_dir()  # trained on, too
LICENCE = {
    "license": "Apache-2.0",
    "attribution": [
        "speech by espeak-ng (MiniSQA) and flite",
        *["speech by Kokoro-82M, Apache-2.0"] * kokoro,
        "Free Spoken Digit Dataset, CC BY-SA 4.0",
        "Precise-Community-Data (amelia, athena), public domain",
        "Whisper tiny.en, the teacher, MIT",
    ],
}
SPEECH = {
    "corpus": "recipes/units",
    "synthetic": f"speech by espeak-ng (MiniSQA){', kokoro' * kokoro} and flite, "
    "digits spoken by people (FSDD, recordings from 10 on), "
    "the names Amelia and Athena spoken by people (Precise-Community-Data)",
}

SAME = ("same_text_auc", "same_text_distance")
(out / "encoder").mkdir(parents=True, exist_ok=True)
for name in ("config.json", "preprocessor_config.json", "card.json"):
    shutil.copyfile(exp / arm / "encoder" / name, out / "encoder" / name)
with replacing(out / "encoder" / "model.safetensors") as temporary:
    weights = dequantise(load_file(exp / arm / "encoder" / "model.safetensors"))
    save_file(quantise(weights, kernels=True), temporary, {"format": "pt"})
recipe = {"recipe": f"recipes/units/run.sh, {file}: {arm}"}
card = read_json(out / "encoder" / "card.json") | {"files": file_hashes(out / "encoder")}
write_json(out / "encoder" / "card.json", card | recipe | LICENCE | {"corpus": SPEECH})
rounded = load_encoder(out / "encoder").hash
for name, source in {"words": read, "units": "known"}.items():
    if not (exp / arm / f"{source}-out.safetensors").is_file():
        continue
    scores = {}
    for path in sorted((exp / "quality").glob(f"{arm}-{source}-*.json")):
        found = json.loads(path.read_text())
        rows = {row["groups"]: {k: row[k] for k in SAME} for row in found.get("same_text", [])}
        # of espeak-ng's voices
        rows = rows or {k: found[k] for k in (*SAME, "pnmi") if k in found}
        noise = {}
        for row in found.get("stability", []):
            snr = f" {row['snr_db']:g} dB" if row.get("snr_db") is not None else ""
            noise[row["condition"] + snr] = row["unit_edit_distance"]
        of = path.stem.removeprefix(f"{arm}-{source}-")
        scores[of] = {"same_text": rows, "unit_edit_distance": noise}
    codebook = load_codebook(exp / arm / f"{source}-out.safetensors")
    made = {"encoder": rounded, "made_for": codebook.card["encoder"], "scores": scores}
    card = codebook.card | recipe | LICENCE | made
    replace(codebook, card=card).save(out / f"{name}.safetensors")
size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
print(f"{out}: {size / 1e6:.1f} MB")
