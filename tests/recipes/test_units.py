"""recipes/units on almost nothing: every stage runs, leaves a table, and does nothing the second
time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from speechssl.artifacts import read_json
from speechssl.checkpoints import model_folder
from speechssl.encoders.load import load_encoder
from speechssl.results import read_rows
from speechssl.units.kmeans import load_codebook

from .shared import ROOT, needs, run, write_digits

pytestmark = needs("espeakng_loader", "parselmouth")


def test_smoke_run_leaves_a_table_and_repeats_nothing(tmp_path: Path, quick: str) -> None:
    digits = write_digits(tmp_path / "fsdd", range(2), (0, 5, 10))
    arguments = ("units/run.sh", "recipes/units/smoke.yaml", str(tmp_path / "exp"))
    table = run(*arguments, PATH=quick, FSDD=str(digits)).stdout
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("| ")
    ]
    names = {row[0] for row in rows}
    assert names >= {"start", "start-margin", "hubert-synthesisers-k-means"}
    assert names >= {f"r-spin-reference-{read}" for read in ("k-means", "units", "labels")}
    assert names >= {
        f"r-spin-frames-{read}" for read in ("k-means", "units", "labels", "known", "words")
    }
    assert len(next(row for row in rows if row[0] == "start")) == len(rows[0])
    (voices,) = (row for row in rows if "PNMI, voices" in row)  # of test
    start = next(row for row in rows if row[0] == "start" and len(row) == len(voices))
    assert 0 < float(start[voices.index("PNMI, voices")]) < 1 and start[
        voices.index("words used")
    ].startswith("as its card says")
    # of DUAL's table
    assert [row[0] for row in rows if row[-1] == "no"].count("hubert-synthesisers") == 1
    exp = tmp_path / "exp"
    assert read_json(exp / "quality" / "start-test-fsdd.json")["same_text"][0]["pairs"] == 2
    packed = (exp / "people.txt").read_text().split()
    assert packed and all(path in (exp / "speech.txt").read_text() for path in packed)
    for book in ("words", "units"):
        assert (
            load_codebook(exp / f"people-en/{book}.safetensors").card["encoder"]
            == load_encoder(exp / "people-en/encoder").hash
        )
    assert all(
        (exp / f"distances-{book}.svg").read_text().count("people: digits") == 1
        for book in ("units", "words")
    )
    answers = list(exp.glob("answers*/*/predictions/dual/*.json"))  # of DUAL on every encoder
    assert {path.parents[2].name for path in answers} == {
        "start",
        "hubert-synthesisers",
        "r-spin-reference",
        "r-spin-frames",
    }
    made = {
        p: p.stat().st_mtime_ns
        for p in [*exp.glob("quality/*.json"), *exp.rglob("*.safetensors"), *answers]
    }
    again = run(*arguments, PATH=quick, FSDD=str(digits)).stdout
    assert sorted(exp.glob("quality/*.json")) == sorted(
        p for p in made if p.parent.name == "quality"
    )
    assert again.split("**dev**")[1].split("== 8")[0] == table.split("**dev**")[1].split("== 8")[0]
    assert {p: p.stat().st_mtime_ns for p in made} == made

    given = [exp / "speech.txt", "people-en/encoder", exp / "teacher.safetensors"]
    command, there = (
        ["python", "recipes/units/alignment.py", *map(str, given)],
        os.environ | {"PATH": quick},
    )
    shares = subprocess.run(
        command, cwd=ROOT, env=there, capture_output=True, text=True, check=True
    ).stdout
    # matched frames have the label of the same sound more often than one of 20 clusters by chance
    if shutil.which("flite"):
        (share,) = re.findall(
            r"flite/train/audio: [\d,]+ frames, ([\d.]+) % the same, [\d.]+ "
            r"bits",
            shares,
        )
        assert float(share) > 15

    arguments = ("units/readers.sh", *arguments[1:])
    first = run(*arguments, PATH=quick).stdout
    models = exp / "people-en"
    assert (
        read_json(models / "dual-1/card.json")["start"]
        == read_json(model_folder() / "dual/card.json")["weights"]
    )
    assert (
        read_json(models / "dual/card.json")["start"]
        == read_json(models / "dual-1/card.json")["weights"]
    )
    assert (
        load_codebook(models / "units.safetensors").names[1:]
        == load_codebook("people-en/units.safetensors").names
    )
    rows = {
        (row.name, row.condition) for row in read_rows(exp / "measure/test-espeak/results.jsonl")
    }
    systems = {"dual", "speechbert", "cascade-ctc", "cascade-ctc-greedy", "text"}
    assert rows == {(system, "clean") for system in systems}
    assert (exp / "shipped/people-en/ctc/ngram/ngrams.npz").is_file() and (
        exp / "measure/results.svg"
    ).is_file()
    assert "| cascade-ctc-greedy |" in first and "held-out-words" in first
    scores = read_json(exp / "shipped/people-en/dual/card.json")["scores"]
    assert scores.pop("dual ff1, held-out-words")["n"] >= 1
    assert {"dual ff1, clean"} == {
        name for name in scores if "ff1" in name and "festival" not in name
    }
    assert ("dual ff1, festival" in scores) == (shutil.which("festival") is not None)
    made = {
        p: p.stat().st_mtime_ns
        for p in [*models.rglob("*.safetensors"), *exp.glob("measure/**/results.jsonl")]
    }
    assert run(*arguments, PATH=quick).stdout.count("\ndual ") == first.count("\ndual ") > 0
    assert {p: p.stat().st_mtime_ns for p in made} == made


OWN_NAMES = {"crop-seconds": "seconds", "random-units": "noise"}  # of the option in the card
READERS = {"dual": "units", "ctc": "units", "text-qa": "minisqa"}


def section_of(card: dict[str, Any], stage: str) -> dict[str, Any]:
    """Of the configuration that the card names: "recipes/units/readers.sh, base.yaml"."""
    named = re.match(r"(recipes/\w+)/\w+\.sh, (\w+\.yaml)", card["recipe"])
    assert named, card["recipe"]
    found: dict[str, Any] = yaml.safe_load((ROOT / named[1] / named[2]).read_text())[stage]
    return found


@pytest.mark.parametrize("part", READERS)
def test_the_readers_that_ship_were_made_with_the_settings_of_the_recipe(part: str) -> None:
    card = read_json(model_folder() / part / "card.json")
    options, section = card["options"] | card["options"]["training"], section_of(card, part)
    assert (section.pop("precision", "bf16") == "bf16") == options["bf16"]
    for name, value in section.items():
        assert options[OWN_NAMES.get(name, name.replace("-", "_"))] == value, name
    assert card["training"]["steps"] == section["steps"] and card["scores"]
    assert card["recipe"].startswith(f"recipes/{READERS[part]}/")


def test_the_recipe_mixes_what_the_readers_that_ship_learned_from() -> None:
    corpus = read_json(model_folder() / "dual/card.json")["corpus"]
    config = yaml.safe_load((ROOT / "recipes/units/kokoro.yaml").read_text())
    name, copies = config["recipe"]["copies"].split("=")
    parts = {part: f"readers-{part}" for part in config["recipe"]["readers"]} | {
        f"{name}-{i}": name for i in range(int(copies))
    }
    mixed = [
        {"questions": 5, "seed": 0, "by": part.rstrip("-0123456789")}
        | {k: v for k, v in config[section].items() if "-" not in k}
        for part, section in parts.items()
    ]
    shipped = [
        {
            "questions": c["settings"]["questions"],
            "seed": c["settings"]["seed"],
            "passages": c["settings"]["passages"]["train"],
        }
        | {"by": c["synthetic"].removeprefix("speech by ")}
        for c in corpus["of"]
    ]
    assert mixed == shipped
    assert (corpus["distort"], corpus["distorted"]) == (
        config["recipe"]["distort"],
        config["recipe"]["distorted"],
    )


def test_the_speechbert_that_ships_was_made_with_the_settings_of_the_recipe() -> None:
    card = read_json(model_folder() / "speechbert" / "card.json")
    section = section_of(card, "speechbert")
    options = {f"word_{name}": value for name, value in card["options"]["words"].items()}
    options |= {f"mask_{name}": value for name, value in card["options"]["masked"].items()}
    options |= (
        card["options"]
        | card["options"]["qa"]
        | card["options"]["qa"]["training"]
        | card["features"]
    )
    options["mask_window"] = card["options"]["masked_window"]
    for name, value in section.items():
        assert options[name.replace("-", "_")] == value, name
    for part, name in (("words", "word-steps"), ("masked", "mask-steps"), ("spans", "steps")):
        assert card["training"][part]["steps"] == section[name]


def test_the_encoder_that_ships_was_made_with_the_settings_of_the_recipe() -> None:
    card = read_json(model_folder() / "encoder" / "card.json")
    section = section_of(card, card["recipe"].rpartition(": ")[2])
    # a default is not on the card
    options = {"label_loss": "cross-entropy"} | card["options"] | card["options"]["training"]
    distort = options.pop("distort")
    options |= {"distorted": distort["probability"][0], "snr_range": distort["snr"]}
    assert [kind["name"] for kind in distort["kinds"]] == section.pop("distort").split("+")
    assert (section.pop("precision") == "bf16") == options["bf16"]
    assert section.pop("trained-layers") == 0 and options["trained"] is None  # its name then
    for name, value in section.items():
        assert options[OWN_NAMES.get(name, name.replace("-", "_"))] == value, name
    assert card["training"]["steps"] == section["steps"]
