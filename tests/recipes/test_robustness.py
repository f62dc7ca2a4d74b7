"""The trainings of recipes/robustness differ in what their names say, recipes/ship.py ships small
and licensed sets, and downstream.py chooses on dev."""

import sys

import pytest
import yaml

from speechssl.artifacts import read_json, write_json
from speechssl.checkpoints import model_folder

from ..files import write_corpus
from .shared import ROOT, script

CARDS = 8  # of a set: encoder, units, readers, recogniser and its n-gram


@pytest.mark.parametrize("recipe", ["base", "smoke"])
def test_trainings_differ_in_what_their_names_say_alone(recipe):
    sections = yaml.safe_load((ROOT / f"recipes/robustness/{recipe}.yaml").read_text())
    plain = sections["continual"]
    binary = sections["continual-adversary-binary"]
    multi = sections["continual-adversary-multi"]
    assert binary.pop("domain-adversary") == "binary"
    assert multi.pop("domain-adversary") == "multi"
    assert binary == multi
    assert binary == plain | {"domain-adversary-weight": binary["domain-adversary-weight"]}
    assert sections["continual-more"]["recordings"] > plain["recordings"]
    assert sections["continual-clean"] == sections["continual-more"] | {"distorted": [0]}


def test_all_that_ships_has_less_than_45_megabytes():
    files = [path for path in model_folder().parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 45e6


def check_licences(folder):
    """Check the cards of a set: licences, and the models that parts derive from."""
    paths = sorted(folder.rglob("*card.json"))
    cards = {path.relative_to(folder).as_posix(): read_json(path) for path in paths}
    origins = {name: str(card["attribution"]) for name, card in cards.items()}
    assert len(cards) == CARDS
    trained_on_squad = cards.pop("text-qa/card.json")
    assert trained_on_squad["license"] == "CC BY-SA 4.0"
    assert {card["license"] for card in cards.values()} == {"Apache-2.0"}
    readers = {"dual/card.json", "speechbert/card.json", "text-qa/card.json"}
    assert {name for name, origin in origins.items() if "all-MiniLM" in origin} == readers
    without_whisper = {"text-qa/card.json", "ctc/ngram/card.json"}
    assert {name for name, origin in origins.items() if "Whisper" not in origin} == without_whisper


def read_weights(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.safetensors")}


def test_what_ships_is_licensed_and_can_be_shipped_again_and_stays_the_same(tmp_path):
    models, out = model_folder(), tmp_path / "out"
    check_licences(models)
    passage = {"id": "p", "text": "a kettle of tea"}
    question = {"id": "q", "text": "a kettle of tea", "passage": "p"}
    corpus = write_corpus(tmp_path / "corpus", "train", passages=[passage], questions=[question])
    script("ship.py").ship_set(models, models / "ctc", corpus, out, "this test")
    assert read_weights(out) == read_weights(models)
    assert len(read_weights(out)) == CARDS
    check_licences(out)


def test_dev_chooses_a_mode_and_a_weight_for_either_kind_of_labels(tmp_path, monkeypatch):
    # downstream.py imports tables.py, which lies beside it
    monkeypatch.setitem(sys.modules, "tables", script("robustness/tables.py"))
    percent_right = {
        "distorted": 90,
        "dat-binary-reversal-1": 50,
        "dat-binary-alternating-0.3": 60,
        "dat-multi-reversal-0.1": 70,
        "dat-multi-alternating-1": 40,
    }
    for arm, right in percent_right.items():
        heads = tmp_path / arm / "heads" / arm
        accuracy = {"metric": "acc", "dev": {"acc": right}}
        write_json(heads / "ks/seed-0/card.json", accuracy)
        error_rate = {"metric": "wer", "dev": {"wer": 100 - right}}
        write_json(heads / "asr/seed-0/card.json", error_rate)
    script("robustness/downstream.py").choose(tmp_path)
    chosen = (tmp_path / "chosen.txt").read_text().splitlines()
    assert chosen[:2] == [
        "dat dat-binary-alternating-0.3 binary alternating 0.3",
        "dat dat-multi-reversal-0.1 multi reversal 0.1",
    ]
    assert chosen[2:] == ["both dat-multi-reversal-0.1 multi reversal 0.1"]


def test_every_cascade_has_its_row_and_the_mean_over_snrs_stands_for_single_ones():
    lines = []
    for cascade, value in (("cascade-ctc", 7.0), ("cascade-ctc-greedy", 20.0)):
        for snr_db, shift in ((0.0, 50.0), (None, 0.0)):  # the mean comes last
            interval = {"value": value + shift, "low": value, "high": value + shift + 1, "n": 10}
            line = {"cascade": cascade, "condition": "pink", "encoder": "a", "snr_db": snr_db}
            lines.append(line | {"difference": interval})
    tables = script("robustness/tables.py")
    rows = tables.make_dual_rows({"dual_against_cascade": lines}, ["a"])
    assert [row[1].split()[0] for row in rows] == ["+7.0", "+20.0"]
    assert "cascade-ctc (above 0)" in rows[0][0]
    assert "cascade-ctc-greedy (above 0)" in rows[1][0]
