"""Tests of the table of tasks: the published settings are those of s3prl's own recipes."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest

from speechssl.eval.superb_plan import list_parts
from speechssl.superb import export
from speechssl.superb.tasks import TASKS

from ...files import refused

# task -> folder of its recipe below s3prl/problem; s3prl 0.4.18 has none of SE and SS
RECIPES = {"pr": "asr", "asr": "asr", "sf": "asr", "asv": "asv", "sd": "diarization"}
RECIPES |= dict.fromkeys(("ks", "sid", "ic", "er"), "common")


def read_recipe(task):
    """Return s3prl 0.4.18's settings of a task. The package has no config.yaml, but recipes in
    Python. Their function `default_config` is run without an import of the recipe, which would need
    further packages."""
    found = find_spec("s3prl")
    if found is None:
        pytest.skip("the optional extra s3prl is not installed")
    file = Path(found.origin).parent / "problem" / RECIPES[task] / f"superb_{task}.py"
    nodes, scope = ast.walk(ast.parse(file.read_text())), {"MISSING": None}
    function = next(node for node in nodes if getattr(node, "name", "") == "default_config")
    exec(compile(ast.Module([function], []), str(file), "exec"), scope)
    return scope["default_config"](None)


@pytest.mark.parametrize("task", RECIPES)
def test_published_settings_are_those_of_s3prls_recipe(task):
    published, recipe = TASKS[task].published, read_recipe(task)
    train, optimiser = recipe["train"], recipe["build_optimizer"]
    assert published.steps == train["total_steps"]
    assert published.clip == train["gradient_clipping"]
    assert published.optimiser == optimiser["name"]
    assert published.learning_rate == optimiser["conf"]["lr"]
    # ASV has no dev: all checkpoints are tested
    assert published.every == train["save_step" if task == "asv" else "eval_step"]
    batch = recipe["build_batch_sampler"]["train"].get("batch_size")
    if batch is not None:
        assert published.batch == batch * train["gradient_accumulate"]


@pytest.mark.parametrize("task", ["asr", "sf"])
def test_specaugment_is_that_of_s3prls_recipe(task):
    """The number of time masks does not depend on the length of a recording: `adaptive` is
    false."""
    masks = inspect.signature(TASKS[task].make).parameters["masks"].default
    settings = {
        "num_freq_mask": masks.frequency_masks,
        "num_time_mask": masks.time_masks,
        "freq_mask_width_range": (0, masks.frequency_width),
        "time_mask_width_range": (0, masks.time_width),
    }
    assert read_recipe(task)["build_downstream"]["specaug_conf"] == settings
    exported = next(t.specaug for t in export.RUNNER_TASKS if t.name == task)
    assert exported["adaptive"] is False
    for name, value in settings.items():
        assert exported[name] == (list(value) if isinstance(value, tuple) else value)


def test_a_set_of_styles_is_one_of_emotions(labelled, encoder):
    (part,) = list_parts("er", labelled("style"), "published")
    task, settings = part.make(encoder.grid)
    assert task.name == "er"
    assert part.data.task == "style"
    assert settings.steps == 30_000
    assert task.projection == 256


def test_a_set_of_another_task_is_refused(labelled):
    refused("is a set of the task ks, not of er", list_parts, "er", labelled("ks"), "published")
