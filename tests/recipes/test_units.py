"""The cards of what ships name the settings of recipes/units: nobody changed a recipe without
making the models again."""

import re

import pytest
import yaml

from speechssl.artifacts import read_json
from speechssl.checkpoints import model_folder

from .shared import ROOT

# option of the recipe -> its name on a card, where this is not the same with _ for -
CARD_NAMES = {"crop-seconds": "seconds", "random-units": "noise"}
RECIPES = {
    "dual": "units",
    "ctc": "units",
    "text-qa": "real_questions",
}  # part of the set -> recipe


def read_section(card, stage):
    """Read a section of the configuration that a card names as "recipes/NAME/SCRIPT.sh,
    FILE.yaml"."""
    match = re.match(r"(recipes/\w+)/\w+\.sh, (\w+\.yaml)", card["recipe"])
    assert match, card["recipe"]
    return yaml.safe_load((ROOT / match[1] / match[2]).read_text())[stage]


def check_options(options, section):
    """Check that a card has the options of a section."""
    for name, value in section.items():
        assert options[CARD_NAMES.get(name, name.replace("-", "_"))] == value, name


@pytest.mark.parametrize("part", RECIPES)
def test_the_readers_that_ship_were_made_with_the_settings_of_the_recipe(part):
    card = read_json(model_folder() / part / "card.json")
    section = read_section(card, part)
    options = card["options"] | card["options"]["training"]
    assert (section.pop("precision", "bf16") == "bf16") == options["bf16"]
    check_options(options, section)
    assert card["training"]["steps"] == section["steps"]
    assert card["scores"]
    assert card["recipe"].startswith(f"recipes/{RECIPES[part]}/")


def test_the_recipe_mixes_the_corpora_that_the_readers_that_ship_learned_from():
    corpus = read_json(model_folder() / "dual/card.json")["corpus"]
    config = yaml.safe_load((ROOT / "recipes/units/kokoro.yaml").read_text())
    recipe = config["recipe"]
    sections = {part: f"readers-{part}" for part in recipe["readers"]}
    name, copies = recipe["copies"].split("=")
    for number in range(int(copies)):
        sections[f"{name}-{number}"] = name
    of_recipe = []
    for part, section in sections.items():
        # options with a hyphen (dev-passages) are about other splits than that of training
        settings = {k: v for k, v in config[section].items() if "-" not in k}
        synthesiser = part.rstrip("-0123456789")  # "espeak-ng-2" -> "espeak-ng"
        of_recipe.append({"questions": 5, "seed": 0, "by": synthesiser} | settings)
    shipped = []
    for card in corpus["of"]:
        settings = {
            "questions": card["settings"]["questions"],
            "seed": card["settings"]["seed"],
            "passages": card["settings"]["passages"]["train"],
            "by": card["synthetic"].removeprefix("speech by "),
        }
        shipped.append(settings)
    assert of_recipe == shipped
    assert corpus["distort"] == recipe["distort"]
    assert corpus["distorted"] == recipe["distorted"]


def test_the_encoder_that_ships_was_made_with_the_settings_of_the_recipe():
    card = read_json(model_folder() / "encoder" / "card.json")
    section = read_section(card, card["recipe"].rpartition(": ")[2])  # "...: ARM"
    # the card has no options that were defaults
    options = {"label_loss": "cross-entropy"} | card["options"] | card["options"]["training"]
    distort = options.pop("distort")
    options |= {"distorted": distort["probability"][0], "snr_range": distort["snr"]}
    assert [kind["name"] for kind in distort["kinds"]] == section.pop("distort").split("+")
    assert (section.pop("precision") == "bf16") == options["bf16"]
    # the option was called `trained` when it was made, and None meant 0
    assert section.pop("trained-layers") == 0
    assert options["trained"] is None
    check_options(options, section)
    assert card["training"]["steps"] == section["steps"]
