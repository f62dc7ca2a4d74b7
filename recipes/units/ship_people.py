"""Make the set phones-en from a run of people.sh: an encoder, rounded to int8, and its codebook of
phones, in a folder to be copied to recipes/units/.

    python recipes/units/ship_people.py exp/units-people exp/units-people/phones-en

Its cards name all the speech that people.sh can be given: ship a run that had it. The codebook's
card gets the hash of the rounded weights as `encoder`, and the scores that stage 3 measured, before
rounding.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file
from ship import print_size, read_scores, save_weights

from speechssl.artifacts import read_json, write_json
from speechssl.cli import run_program
from speechssl.encoders.load import hash_folder, load_encoder
from speechssl.quantisation import quantise
from speechssl.units.codebook import load_codebook

FACTS = {
    "recipe": "recipes/units/people.sh, people.yaml",
    "license": "Apache-2.0",
    "attribution": [
        "hama 1.7.0, from which it goes on, Apache-2.0",
        "speechocean762, its train half (jimbozhang/speechocean762)",
        "English Consistent Confusion Corpus v1.2, CC BY 4.0",
        "Free Spoken Digit Dataset, CC BY-SA 4.0",
        "Precise-Community-Data (amelia, athena), public domain",
        "speech by espeak-ng and flite of SQuAD's texts, CC BY-SA 4.0",
    ],
}
CORPUS = {
    "corpus": "recipes/units",
    "speech": "sentences of 107 speakers of Mandarin, words of three Britons, digits of six "
    "people, two names, and texts of SQuAD read by espeak-ng and flite",
    "words used": "none here; hama's own training had phone labels",
}
SPECTRUM = ("cosines", "sines", "mel")  # tensors that are not rounded


def main(exp: Path, out: Path) -> None:
    student, encoder = exp / "student", out / "encoder"
    encoder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(student / "encoder/config.json", encoder / "config.json")
    weights = load_file(student / "encoder/model.safetensors")
    spectrum = {name: weights.pop(name) for name in SPECTRUM}
    save_weights(quantise(weights, kernels=True) | spectrum, encoder)
    card = read_json(student / "encoder/card.json") | FACTS
    write_json(encoder / "card.json", card | {"corpus": CORPUS, "files": hash_folder(encoder)})
    scores = {}
    for path in sorted((exp / "quality").glob("student-on-*.json")):
        measured_on = path.name.removeprefix("student-on-").removesuffix(".json")
        scores[measured_on] = read_scores(path)
    codebook = load_codebook(student / "units.safetensors")
    rounded = {"encoder": load_encoder(encoder).hash, "made_for": codebook.card["encoder"]}
    card = codebook.card | FACTS | rounded | {"scores": scores}
    replace(codebook, card=card).save(out / "units.safetensors")
    print_size(out)


if __name__ == "__main__":
    run_program(main)
