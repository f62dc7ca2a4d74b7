"""Every task has its data, a head, and the published settings; small ones differ in size alone."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest

from speechssl.eval.superb_plan import list_parts
from speechssl.superb import export
from speechssl.superb.tasks import TASKS

from ...files import refused

# 0.4.18 has no such recipe of SE and SS
RECIPES = {"pr": "asr", "asr": "asr", "sf": "asr", "asv": "asv", "sd": "diarization"}
RECIPES |= dict.fromkeys(("ks", "sid", "ic", "er"), "common")


def recipe(task):
    """s3prl 0.4.18's settings of a task. Its config.yaml files are not in the package, its recipes
    in Python are; they are read without being imported, as they need more than the package brings
    along."""
    found = find_spec("s3prl")
    if found is None:
        pytest.skip("the optional extra s3prl is not installed")
    file = Path(found.origin).parent / "problem" / RECIPES[task] / f"superb_{task}.py"
    nodes, scope = ast.walk(ast.parse(file.read_text())), {"MISSING": None}
    function = next(n for n in nodes if getattr(n, "name", "") == "default_config")
    exec(compile(ast.Module([function], []), str(file), "exec"), scope)
    return scope["default_config"](None)


@pytest.mark.parametrize("task", RECIPES)
def test_published_settings_are_those_of_s3prls_own_recipe(task):
    ours, theirs = TASKS[task].published, recipe(task)
    train, optimiser = theirs["train"], theirs["build_optimizer"]
    assert (ours.steps, ours.clip) == (train["total_steps"], train["gradient_clipping"])
    assert (ours.optimiser, ours.learning_rate) == (optimiser["name"], optimiser["conf"]["lr"])
    # ASV has no dev: all checkpoints are tested
    every = train["save_step"] if task == "asv" else train["eval_step"]
    assert ours.every == every
    if batch := theirs["build_batch_sampler"]["train"].get("batch_size"):
        assert ours.batch == batch * train["gradient_accumulate"]


@pytest.mark.parametrize("task", ["asr", "sf"])
def test_specaugment_is_that_of_s3prls_own_recipe(task):
    """2 time masks shorter than 40 frames, however long a recording is: `adaptive` is false."""
    masks = inspect.signature(TASKS[task].make).parameters["masks"].default
    mine = {"num_freq_mask": masks.frequency_masks, "num_time_mask": masks.time_masks}
    mine |= {"freq_mask_width_range": (0, masks.frequency_width)}
    mine |= {"time_mask_width_range": (0, masks.time_width)}
    assert recipe(task)["build_downstream"]["specaug_conf"] == mine
    exported = next(t.specaug for t in export.TASKS if t.name == task)
    assert exported["adaptive"] is False
    for name, value in mine.items():
        assert exported[name] == (list(value) if isinstance(value, tuple) else value)


def test_a_set_of_styles_is_one_of_emotions(labelled, encoder):
    (part,) = list_parts("er", labelled("style"), "published")
    task, settings = part.make(encoder.grid)
    assert (task.name, part.data.task) == ("er", "style")
    assert (settings.steps, task.projection) == (30_000, 256)
    refused("is a set of the task ks, not of er", list_parts, "er", labelled("ks"), "published")
