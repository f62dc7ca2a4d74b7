"""The cards of the readers that ship name the settings of their recipes: nobody changed a recipe
without making the models again."""

import re

import pytest
import yaml

from speechssl.artifacts import read_json
from speechssl.checkpoints import model_folder

from .shared import ROOT


@pytest.mark.parametrize(
    ("part", "recipe"), [("dual", "units"), ("ctc", "units"), ("text-qa", "real_questions")]
)
def test_the_readers_that_ship_were_made_with_the_settings_of_the_recipe(part, recipe):
    card = read_json(model_folder() / part / "card.json")
    # "recipes/NAME/SCRIPT.sh, FILE.yaml"
    config = re.match(rf"recipes/{recipe}/\w+\.sh, (\w+\.yaml)", card["recipe"])[1]
    section = yaml.safe_load((ROOT / "recipes" / recipe / config).read_text())[part]
    options = card["options"] | card["options"]["training"]
    assert (section.pop("precision", "bf16") == "bf16") == options["bf16"]
    for name, value in section.items():
        assert options[name.replace("-", "_")] == value, name
    assert card["training"]["steps"] == section["steps"]
    assert card["scores"]
