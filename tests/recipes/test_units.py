"""What ships was made with the settings of recipes/units."""

import re

import pytest
import yaml

from speechssl.artifacts import read_json
from speechssl.checkpoints import model_folder

from .shared import ROOT

OWN_NAMES = {"crop-seconds": "seconds", "random-units": "noise"}  # of the option in the card
READERS = {"dual": "units", "ctc": "units", "text-qa": "real_questions"}


def section_of(card, stage):
    """Of the configuration that the card names: "recipes/units/readers.sh, base.yaml"."""
    named = re.match(r"(recipes/\w+)/\w+\.sh, (\w+\.yaml)", card["recipe"])
    assert named, card["recipe"]
    found = yaml.safe_load((ROOT / named[1] / named[2]).read_text())[stage]
    return found


@pytest.mark.parametrize("part", READERS)
def test_the_readers_that_ship_were_made_with_the_settings_of_the_recipe(part):
    card = read_json(model_folder() / part / "card.json")
    options, section = card["options"] | card["options"]["training"], section_of(card, part)
    assert (section.pop("precision", "bf16") == "bf16") == options["bf16"]
    for name, value in section.items():
        assert options[OWN_NAMES.get(name, name.replace("-", "_"))] == value, name
    assert card["training"]["steps"] == section["steps"] and card["scores"]
    assert card["recipe"].startswith(f"recipes/{READERS[part]}/")


def test_the_recipe_mixes_what_the_readers_that_ship_learned_from():
    corpus = read_json(model_folder() / "dual/card.json")["corpus"]
    config = yaml.safe_load((ROOT / "recipes/units/kokoro.yaml").read_text())
    recipe = config["recipe"]
    name, copies = recipe["copies"].split("=")
    parts = {part: f"readers-{part}" for part in recipe["readers"]}
    parts |= {f"{name}-{i}": name for i in range(int(copies))}
    mixed, shipped = [], []
    for part, section in parts.items():
        settings = {k: v for k, v in config[section].items() if "-" not in k}
        mixed.append({"questions": 5, "seed": 0, "by": part.rstrip("-0123456789")} | settings)
    for card in corpus["of"]:
        settings = {name: card["settings"][name] for name in ("questions", "seed")}
        settings["passages"] = card["settings"]["passages"]["train"]
        shipped.append(settings | {"by": card["synthetic"].removeprefix("speech by ")})
    assert mixed == shipped
    assert [corpus[x] for x in ("distort", "distorted")] == [
        recipe[x] for x in ("distort", "distorted")
    ]


def test_the_encoder_that_ships_was_made_with_the_settings_of_the_recipe():
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
