"""Fill the robustness grid: encoders x tasks x conditions. Every cell is a file of scores of items,
OUT/scores/<encoder>/<task>-<metric>/<condition>.parquet.

A killed run goes on with the files that are missing. Heads are in OUT/heads. Results of another
split than test are in OUT/<split>, so that scores for choosing settings are never mixed with
published scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_json, hold_output, write_json, write_text
from speechssl.augment import Distorter
from speechssl.data.records import read_synthetic_note
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import (
    FrozenMixtures,
    Item,
    Setting,
    check_conditions,
    freeze_mixtures,
    list_settings,
    measure_file_size,
    name_utterances,
    normalise_paths,
)
from speechssl.eval.degradation import (
    Grid,
    make_degradation_tables,
    make_score_tables,
    measure_degradation,
)
from speechssl.eval.encode import Job, JsonStore, Recording, encode_recordings
from speechssl.eval.grid_tasks import (
    CLASSIFICATION,
    GRID_TASKS,
    GridTask,
    check_set,
    load_tested,
    make_tasks,
)
from speechssl.eval.options import TEST, Robustness
from speechssl.eval.predict import is_current, read_items, write_items
from speechssl.options import parse_named, parse_noise_folders
from speechssl.results import (
    CASCADE,
    HEAD,
    Row,
    append_rows,
    describe_snr,
    format_markdown,
    list_rows,
)
from speechssl.stats import ItemScore

ON_DEV = (
    "Scored on the dev split, whose clean speech has chosen the learning rates and steps of the "
    "heads of ks, ic, sid and style: good for comparing settings, no test score."
)


def evaluate_robustness(o: Robustness) -> list[dict[str, Any]]:
    """Fill the grid, print its tables, and return its rows. Raises InputError where
    `run_robustness` does."""
    with hold_output(o.out):
        print(run_robustness(o))
        return list_rows(choose_results_folder(o))


def choose_results_folder(o: Robustness) -> Path:
    """Choose the folder of noise.jsonl, scores/ and the tables."""
    return o.out if o.split == TEST else o.out / o.split


def run_robustness(o: Robustness) -> str:
    """Train the missing heads, freeze the noise, fill the grid, write rows, `degradation.json` and
    `tables.md`, and return the tables.

    Raises InputError for encoders, tasks, data or noises that do not exist, before anything is
    trained where this is possible.
    """
    encoders = parse_named(o.encoders, "--encoders")
    data = _find_data(o)
    settings = list_settings(o.noise.seen, o.noise.unseen, o.noise.snr)
    distorter = Distorter(
        o.seed, o.noise.voices, parse_noise_folders(o.noise.noise), o.noise.snr_over
    )
    check_conditions(settings, distorter)
    tested_encoders = [load_tested(name, where, data, settings) for name, where in encoders.items()]

    tasks: dict[str, list[GridTask]] = {}
    for tested in tested_encoders:
        # a head without an n-gram is one task, with one label, under two names
        by_label: dict[str, GridTask] = {}
        for task, where in data.items():
            folder = o.out / "heads" / tested.name / task
            for grid_task in make_tasks(task, tested, where, folder, o):
                by_label[grid_task.label] = grid_task
        tasks[tested.name] = list(by_label.values())

    out = choose_results_folder(o)
    all_tasks = [task for encoder_tasks in tasks.values() for task in encoder_tasks]
    utterances = name_utterances((task.name, task.items) for task in all_tasks)
    recordings = {name: item.path for item, name in utterances.items()}
    conditions = [setting.condition for setting in settings]
    mixtures = freeze_mixtures(distorter, recordings, conditions, out / "noise.jsonl", o.workers)
    for encoder, encoder_tasks in tasks.items():
        for number, setting in enumerate(settings, 1):
            title = f"{encoder}, {setting.label} ({number} of {len(settings)})"
            folder = out / "scores" / encoder
            score_missing(encoder_tasks, setting, folder, mixtures, utterances, o.workers, title)

    grid = read_grid(tasks, settings, out, o.seed)
    append_rows(out / "results.jsonl", make_rows(grid, tasks, distorter))
    return _write_tables(o, grid, data)


def _find_data(o: Robustness) -> dict[str, Path]:
    """Return the data of every task. Raises InputError for an unknown task, a missing path, and as
    `check_set` does."""
    data = {task: Path(where) for task, where in parse_named(o.tasks, "--tasks").items()}
    for task, where in data.items():
        if task not in GRID_TASKS:
            raise InputError(f"there is no task {task!r}; choose from {', '.join(GRID_TASKS)}")
        if not where.exists():
            raise InputError(f"the data {where} of the task {task} does not exist; check the path")
        if task in CLASSIFICATION:
            check_set(task, where, o)
    return data


def _write_tables(o: Robustness, grid: Grid, data: Mapping[str, Path]) -> str:
    """Write degradation.json and tables.md, and return the tables."""
    out = choose_results_folder(o)
    values = measure_degradation(grid)
    synthetic_tasks = [task for task, where in data.items() if read_synthetic_note(where)]
    synthetic = f"Synthetic speech: {', '.join(synthetic_tasks)}." if synthetic_tasks else ""
    notes = [ON_DEV if o.split == "dev" else "", synthetic, describe_snr(o.noise.snr_over)]
    tables = []
    for table in (*make_degradation_tables(values), *make_score_tables(grid, o.noise.at)):
        note = " ".join(filter(None, [table.note, *notes]))
        tables.append(replace(table, note=note))
    write_json(out / "degradation.json", values | {"tables": [table.values for table in tables]})
    write_text(out / "tables.md", format_markdown(tables))
    return "\n\n".join(table.text for table in tables)


def make_score_path(folder: Path, task: GridTask, setting: Setting) -> Path:
    """Make the path of a cell's scores. folder: that of the encoder."""
    return folder / task.label / f"{setting.file}.parquet"


def score_missing(
    tasks: Sequence[GridTask],
    setting: Setting,
    folder: Path,
    mixtures: FrozenMixtures,
    utterances: Mapping[Item, str],
    workers: int,
    title: str,
) -> None:
    """Encode and score the tasks of an encoder whose files are missing. folder: that of the
    encoder's scores; utterances: the names of `name_utterances`; title: of the progress bar.

    Recordings that cannot be read count as wrong, and are tried again by the next run. Raises
    InputError for missing or unreadable noise, and where no recording of a task can be encoded.
    """
    jobs, missing = [], []
    recordings: dict[str, Recording] = {}
    for task in tasks:
        items = {utterances[item]: item for item in normalise_paths(task.items)}
        files = [[item.id, name, measure_file_size(item.path)] for name, item in items.items()]
        noise = mixtures.hash_mixtures(setting.condition, list(items))
        facts = [setting.group, asdict(setting.condition), noise, mixtures.seed]
        made_from = hash_json([dict(task.card), task.metric, files, *facts])
        path = make_score_path(folder, task, setting)
        if not is_current(path, made_from):
            store = JsonStore(path.with_suffix(".features"), made_from)
            jobs.append(Job(task.label, task.encode, items, needs_audio=True, store=store))
            missing.append((task, path, store, items))
            recordings |= {name: Recording(name, item.path) for name, item in items.items()}
    encoded = encode_recordings(
        jobs, recordings.values(), setting.condition, mixtures, workers, title
    )
    for task, path, store, items in missing:
        task_features = encoded[task.label]
        task_features.check(f"{folder.name}, {task.name}, {setting.label}")
        features = {items[name].id: value for name, value in task_features.features.items()}
        card = {
            "encoder": folder.name,
            "task": task.name,
            "metric": task.metric,
            "condition": setting.name,
            "snr_db": setting.snr_db,
            "seed": mixtures.seed,
            "made_from": store.made_from,
            "failed": {items[name].id: error for name, error in task_features.failed.items()},
        }
        write_items(path, [asdict(score) for score in task.score(features)], card)
        store.path.unlink(missing_ok=True)


def read_grid(
    tasks: Mapping[str, Sequence[GridTask]], settings: Sequence[Setting], out: Path, seed: int
) -> Grid:
    """Read the scores of all cells into a grid, and report the recordings that failed."""
    items, units = {}, {}
    for encoder, encoder_tasks in tasks.items():
        for setting in settings:
            for task in encoder_tasks:
                path = make_score_path(out / "scores" / encoder, task, setting)
                rows, card = read_items(path)
                label = f"{encoder}, {task.name}, {setting.label}"
                report_set_aside(card["failed"], f"{label} (they count as wrong)")
                name = task.name, task.metric
                items[name, encoder, setting] = [ItemScore(**row) for row in rows]
                units[name] = task.unit
    return Grid(items, units, seed)


def make_rows(
    grid: Grid, tasks: Mapping[str, Sequence[GridTask]], distorter: Distorter
) -> list[Row]:
    """Make the row of every cell. The grid has each system of spoken question answering as a task;
    in rows the task of all of them is qa."""
    cards = {}
    for encoder, encoder_tasks in tasks.items():
        for task in encoder_tasks:
            cards[encoder, (task.name, task.metric)] = hash_json(dict(task.card))
    rows = []
    for cell in grid.items:
        (name, metric), encoder, setting = cell
        if metric == "ff1" or name.startswith(CASCADE):
            task_name, system = "qa", name
        else:
            task_name, system = name, "units" if name == "units" else HEAD
        row = Row.from_interval(
            grid.scores[cell].interval,
            task=task_name,
            system=system,
            encoder=encoder,
            condition=setting.name,
            snr_db=setting.snr_db,
            metric=metric,
            seed=grid.seed,
            card=cards[encoder, (name, metric)],
            snr_over=distorter.describe(setting.condition).get("snr_over", ""),
        )
        rows.append(row)
    return rows
