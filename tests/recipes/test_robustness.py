"""The settings of the robustness recipe, what ships, and what dev chooses."""

import sys

import pytest
import yaml

from speechssl.artifacts import read_json, write_json
from speechssl.checkpoints import model_folder
from speechssl.data.records import Passage, Question, write_records

from .shared import ROOT, script

TRAININGS = (
    "continual",
    "continual-adversary-binary",
    "continual-adversary-multi",
    "continual-more",
    "continual-clean",
)


@pytest.mark.parametrize("recipe", ["base", "smoke"])
def test_trainings_differ_in_what_their_names_say_alone(recipe):
    sections = yaml.safe_load((ROOT / f"recipes/robustness/{recipe}.yaml").read_text())
    plain, binary, multi = (sections[name] for name in TRAININGS[:3])
    assert (binary.pop("domain-adversary"), multi.pop("domain-adversary")) == ("binary", "multi")
    assert binary.pop("domain-adversary-weight") == multi.pop("domain-adversary-weight")
    assert plain == binary == multi
    assert sections["continual-more"]["recordings"] > plain["recordings"]
    assert sections["continual-clean"] == sections["continual-more"] | {"distorted": [0]}


def test_all_that_ships_is_small():
    assert sum(p.stat().st_size for p in model_folder().parent.rglob("*") if p.is_file()) < 45e6


def check_licences(folder):
    paths = sorted(folder.rglob("*card.json"))
    cards = {path.relative_to(folder).as_posix(): read_json(path) for path in paths}
    origins = {name: str(card["attribution"]) for name, card in cards.items()}
    assert len(cards) == 8
    of_squad = cards.pop("text-qa/card.json")
    assert {card["license"] for card in cards.values()} == {"Apache-2.0"}
    assert of_squad["license"] == "CC BY-SA 4.0"
    readers = {"dual/card.json", "speechbert/card.json", "text-qa/card.json"}
    assert {name for name, origin in origins.items() if "all-MiniLM" in origin} == readers
    without_whisper = {"text-qa/card.json", "ctc/ngram/card.json"}
    assert {name for name, origin in origins.items() if "Whisper" not in origin} == without_whisper


def test_every_card_that_ships_names_its_licence_and_what_it_derives_from():
    check_licences(model_folder())


@pytest.fixture(scope="module")
def ship():
    return script("ship.py")


def written(corpus, text):
    for split in ("train", "dev"):
        passage = Passage(split, "", 0.0, text, "", "en")
        question = Question(f"{split}-1", split, "", 0.0, text, "", "en")
        write_records(corpus / split / "passages.jsonl", [passage])
        write_records(corpus / split / "questions.jsonl", [question])
    return corpus


def weights_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.safetensors")}


def test_what_ships_can_be_shipped_again_and_stays_the_same(ship, tmp_path):
    models, out = model_folder(), tmp_path / "out"
    corpus = written(tmp_path / "corpus", "a kettle of tea")
    ship.ship(models, models / "ctc", corpus, out, "this test")
    assert weights_of(models) == weights_of(out)
    assert len(weights_of(out)) == 8
    check_licences(out)


def test_dev_chooses_a_mode_and_a_weight_for_either_kind_of_labels(tmp_path, monkeypatch):
    # which the script finds beside it
    monkeypatch.setitem(sys.modules, "tables", script("robustness/tables.py"))
    scores = {"distorted": 90, "dat-binary-reversal-1": 50, "dat-binary-alternating-0.3": 60}
    scores |= {"dat-multi-reversal-0.1": 70, "dat-multi-alternating-1": 40}
    for arm, right in scores.items():
        for task, metric, value in (("ks", "acc", right), ("asr", "wer", 100 - right)):
            write_json(
                tmp_path / arm / f"heads/{arm}/{task}/seed-0/card.json",
                {"metric": metric, "dev": {metric: value}},
            )
    script("robustness/downstream.py").choose(tmp_path)
    chosen = (tmp_path / "chosen.txt").read_text().splitlines()
    assert chosen[:2] == [
        "dat dat-binary-alternating-0.3 binary alternating 0.3",
        "dat dat-multi-reversal-0.1 multi reversal 0.1",
    ]
    assert chosen[2:] == ["both dat-multi-reversal-0.1 multi reversal 0.1"]
