"""Every task has its data, a head, and the published settings; small ones differ in size alone."""

from pathlib import Path

import pytest

from speechssl.corpora.utterances import load_labelled
from speechssl.errors import InputError
from speechssl.evaluation.results import LOWER_IS_BETTER
from speechssl.superb import s3prl_tasks
from speechssl.superb.catalogue import ABOUT, ORDER, QBE, TASKS, make_task, preset_for, read_data


def test_all_tasks_are_told_in_superbs_order():
    assert ORDER == ("pr", "asr", "ks", "qbe", "sid", "asv", "sd", "ic", "sf", "er", "se", "ss")
    assert set(TASKS) | {QBE} == set(ORDER) == set(ABOUT)


@pytest.mark.parametrize("task", [task for task in ORDER if task != QBE])
def test_published_settings_are_those_that_s3prl_is_given(task):
    ours, theirs = TASKS[task].published, next(t.settings for t in s3prl_tasks.TASKS if t.name == task)
    assert ours == theirs


def test_small_is_smaller():
    for entry in TASKS.values():
        assert entry.small.steps < entry.published.steps and entry.small.patience
    assert {entry.metric for entry in TASKS.values()} & LOWER_IS_BETTER == {"per", "wer", "eer", "der"}


def test_the_preset_follows_the_hours(labelled):
    data = load_labelled(labelled())
    assert preset_for(data, "auto") == "small" and preset_for(data, "published") == "published"


def test_a_set_of_styles_is_one_of_emotions(labelled, encoder):
    data = read_data("er", labelled("style"))
    task, settings = make_task("er", data, encoder.grid, "published")
    assert (task.name, data.task, settings.steps, task.projection) == ("er", "style", 30_000, 256)
    with pytest.raises(InputError, match="is a set of the task ks, not of er"):
        read_data("er", labelled("ks"))


def test_a_folder_without_a_card_is_what_it_is_called(labelled):
    root = Path(labelled())
    (root / "card.json").unlink()
    assert read_data("sid", root).task == "sid"
