"""Fill the robustness grid: encoders x tasks x conditions, every cell a file of scores of items.

`run_grid` is called by `robustness.run_robustness` with the tasks of every encoder
(`grid_makers.MAKERS`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from speechssl.artifacts import hash_json
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import (
    FrozenMixtures,
    Item,
    Setting,
    file_size,
    name_utterances,
    normalise_paths,
)
from speechssl.eval.encode import FeatureStore, Job, Recording, encode_recordings
from speechssl.eval.grid_tasks import GridTask
from speechssl.eval.predict import is_current, read_items, write_items
from speechssl.results import CASCADE, HEAD
from speechssl.stats import ItemScore


@dataclass(frozen=True)
class GridCell:
    """A cell has the scores of an encoder in a task under a condition. scored: every item once;
    card: hash of what made the head."""

    encoder: str
    task: str
    metric: str
    setting: Setting
    scored: tuple[ItemScore, ...]
    seed: int
    card: str
    failed: Mapping[str, str]  # id of a recording that could not be encoded -> why
    unit: str = "recording"  # what the groups of its scores are (`GridTask.unit`)

    @property
    def method(self) -> tuple[str, str]:
        """Return the task and the system, as rows have them: systems of spoken question answering
        are columns of the grid, as tasks are."""
        if self.metric == "ff1" or self.task.startswith(CASCADE):
            return "qa", self.task
        return self.task, "units" if self.task == "units" else HEAD


def run_grid(
    encoders: Mapping[str, Sequence[GridTask]],
    settings: Sequence[Setting],
    out: Path,
    mixtures: FrozenMixtures,
    workers: int = 2,
) -> list[GridCell]:
    """Say how large the grid is, fill in the cells that are missing and return all of them.

    Recordings that cannot be read are set aside and reported; they count as wrong, and are tried
    again by the next run.
    Raises InputError for noise that cannot be had, and where no recording of a task can be encoded.
    """
    # as noise knows them
    utterances = name_utterances(
        (task.name, task.items) for tasks in encoders.values() for task in tasks
    )
    recordings = 0
    for tasks in encoders.values():
        recordings += len({item for task in tasks for item in normalise_paths(task.items)})
    tqdm.write(
        f"the grid encodes {recordings:,} recordings of {len(encoders)} encoder(s) under "
        f"{len(settings)} conditions, {recordings * len(settings):,} in all, but for what {out} "
        "has already",
        file=sys.stderr,
    )
    cells = []
    for encoder, tasks in encoders.items():
        for place, setting in enumerate(settings, 1):
            what = f"{encoder}, {setting.label} ({place} of {len(settings)})"
            folder = out / "scores" / encoder
            fill_cells(tasks, setting, folder, mixtures, utterances, workers, what)
            cells += [read_cell(task, setting, folder) for task in tasks]
    return cells


def fill_cells(
    tasks: Sequence[GridTask],
    setting: Setting,
    folder: Path,
    mixtures: FrozenMixtures,
    utterances: Mapping[Item, str],
    workers: int,
    what: str,
) -> None:
    """Encode and score the tasks of an encoder whose files are missing. utterances: what noise
    knows recordings by."""
    condition = setting.condition
    jobs, missing = [], []
    recordings: dict[str, Recording] = {}
    for task in tasks:
        items = {utterances[item]: item for item in normalise_paths(task.items)}
        listed = [[item.id, name, file_size(item.path)] for name, item in items.items()]
        noise = mixtures.made_from(condition, list(items))
        facts = [setting.group, asdict(condition), noise, mixtures.seed]
        made_from = hash_json([dict(task.card), task.metric, listed, *facts])
        path = cell_path(folder, task, setting)
        if not is_current(path, made_from):
            store = FeatureStore(path.with_suffix(".features"), made_from)
            jobs.append(Job(task.label, task.encode, items, True, store))
            missing.append((task, path, store, items))
            recordings |= {name: Recording(name, item.path) for name, item in items.items()}

    every = recordings.values() if jobs else ()
    encoded = encode_recordings(jobs, every, condition, mixtures, workers, what)
    error = None
    for task, path, store, items in missing:
        of_task = encoded[task.label]
        label = f"{folder.name}, {task.name}, {setting.label}"
        try:
            of_task.check(label)
        except InputError as none_encoded:
            error = error or none_encoded
            continue
        scored = task.score({items[name].id: x for name, x in of_task.features.items()})
        ids = {item.id for item in task.items}
        card = {
            "encoder": folder.name,
            "task": task.name,
            "metric": task.metric,
            "condition": setting.name,
            "snr_db": setting.snr_db,
            "seed": mixtures.seed,
            "made_from": store.made_from,
            "failed": {items[name].id: why for name, why in of_task.failed.items()},
        }
        write_items(path, [asdict(s) for s in scored if s.id in ids], card)
        store.remove()
    if error:
        raise error


def cell_path(folder: Path, task: GridTask, setting: Setting) -> Path:
    return folder / task.label / f"{setting.file}.parquet"


def read_cell(task: GridTask, setting: Setting, folder: Path) -> GridCell:
    """Read the scores of an encoder in a task; recordings that failed are reported."""
    rows, card = read_items(cell_path(folder, task, setting))
    label = f"{folder.name}, {task.name}, {setting.label}"
    report_set_aside(card["failed"], f"{label} (they count as wrong)")
    return GridCell(
        folder.name,
        task.name,
        task.metric,
        setting,
        tuple(ItemScore(**row) for row in rows),
        card["seed"],
        hash_json(dict(task.card)),
        card["failed"],
        task.unit,
    )
