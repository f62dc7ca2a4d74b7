"""The robustness grid from the command line: encoders, tasks and noises by name; heads, mixtures, scores, tables in one folder.

    out/heads/<encoder>/<task>/      what was trained, on clean speech
    out/noise.jsonl                  the mixtures, frozen before anything is encoded
    out/scores/<encoder>/<task>/     a file a condition, item by item
    out/results.jsonl                a row a cell
    out/degradation.json, tables.md  what noise costs, and how much of it an encoder saves

Each is there or is made by the same command; a killed run goes on. On another split than test, all but the heads lies in
out/<split>: scores that settings are chosen by are never mixed with scores that are published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.data.records import synthetic_note
from speechssl.errors import InputError
from speechssl.eval.degradation import against_cascade, degradation, gather, rows_of
from speechssl.eval.grid import Cell, Setting, check_settings, freeze_mixtures, name_utterances, run_grid
from speechssl.eval.grid_heads import GridTask
from speechssl.eval.grid_tasks import MAKERS, TEST, Maker, Setup, check_tested, load_tested
from speechssl.eval.robustness_tables import degradation_tables, lecture_table, score_tables
from speechssl.eval.tables import markdown
from speechssl.io import write_json, write_text
from speechssl.results import append_rows
from speechssl.signal import ACTIVE, snr_note

GROUPS = ("seen", "unseen")
ON_DEV = (
    "Scored on the dev split, whose clean speech has chosen the learning rates and steps of the heads of ks, ic, sid and style: "
    "good for comparing settings, no test score."
)


@dataclass(frozen=True)
class Plan:
    """What is compared on what.

    encoders: name -> folder of models, encoder folder or hub id; the first is the baseline. tasks: name -> data.
    seen, unseen: conditions as `parse_condition` reads them, those without an SNR at every one of `snrs` (dB).
    """

    encoders: Mapping[str, str]
    tasks: Mapping[str, Path]
    seen: tuple[str, ...] = ("m+g+r",)
    unseen: tuple[str, ...] = ()
    snrs: tuple[float, ...] = (20.0, 10.0, 5.0, 0.0)
    voices: tuple[Path, ...] = ()  # for babble
    folders: Mapping[str, Path] = field(default_factory=dict)  # of noises by name: musan, fsd50k, ...
    snr_over: str = ACTIVE  # what of the speech an SNR is measured over, see `speech_level`
    at: float = 5.0  # dB, the SNR of the lecture's table
    corrected: bool = True  # stars by Holm's procedure
    setup: Setup = Setup()


def run_robustness(out: Path, plan: Plan, makers: Mapping[str, Maker] = MAKERS) -> str:
    """Train the missing heads, freeze the noise, fill the grid, write rows and tables. Returns the tables.

    Heads go to `out`, and so does all else where the split is test; of another split it goes to the folder of its name in `out`.

    Raises InputError for encoders, tasks, data or noises that cannot be had, before anything is trained where it can be known.
    """
    settings = plan_settings(plan)
    results_folder(out, plan.setup.split)
    distorter = Distorter(plan.setup.seed, plan.voices, plan.folders, plan.snr_over)
    _check(plan, makers)
    check_settings(settings, distorter)
    encoders = [load_tested(name, where) for name, where in plan.encoders.items()]
    for tested in encoders:
        check_tested(tested, plan.tasks, settings)
    trained: dict[str, list[GridTask]] = {}
    for tested in encoders:
        folder = out / "heads" / tested.name
        made = [makers[name](tested, Path(data), folder / name, plan.setup) for name, data in plan.tasks.items()]
        trained[tested.name] = [task for some in made for task in some]
    out = results_folder(out, plan.setup.split)
    utterances = name_utterances([task for tasks in trained.values() for task in tasks])
    recordings = {name: path for (_, path), name in utterances.items()}
    conditions = [s.condition for s in settings]
    mixtures = freeze_mixtures(distorter, recordings, conditions, out / "noise.jsonl", plan.setup.workers)
    return write_results(out, run_grid(trained, settings, out, mixtures, plan.setup.workers), plan)


def results_folder(out: Path, split: str) -> Path:
    """Where mixtures, scores, rows and tables of a split lie. Raises InputError for a split whose name cannot name a folder."""
    if not re.fullmatch(r"[\w-][\w.-]*", split) or split in ("heads", "scores"):
        raise InputError(f"the split's name {split!r} cannot name a folder; choose train, dev, test or another of the corpus")
    return out if split == TEST else out / split


def write_results(out: Path, cells: Sequence[Cell], plan: Plan) -> str:
    """Rows, `degradation.json` and `tables.md`; returns the tables for the terminal."""
    grid = gather(cells, plan.setup.seed)
    append_rows(out / "results.jsonl", rows_of(grid), any_card=True)  # of a head that was made again
    values = degradation(grid) | {"dual_against_cascade": against_cascade(grid)}
    spoken = [task for task, data in plan.tasks.items() if synthetic_note(data)]
    synthetic = f"Synthetic speech: {', '.join(spoken)}." if spoken else ""
    notes = [ON_DEV if plan.setup.split == "dev" else "", synthetic, snr_note(plan.snr_over)]
    lecture = lecture_table(grid, plan.at, plan.corrected)
    found = [lecture, *degradation_tables(values), *score_tables(grid, plan.at, plan.corrected)]
    noted = [replace(t, note=" ".join(filter(None, [t.note, *notes]))) for t in found]
    tables = noted[1:]  # the lecture's stands in Markdown alone: its cells have several lines
    values["tables"] = [t.values for t in tables]
    write_json(out / "degradation.json", values)
    write_text(out / "tables.md", markdown(noted))
    return "\n\n".join(table.text for table in tables)


def plan_settings(plan: Plan) -> list[Setting]:
    """Clean speech, then the seen and the unseen conditions, each at every SNR where it has none of its own."""
    found = settings_of(plan.seen, plan.unseen, plan.snrs)
    if len(found) == 1:
        raise InputError("the grid has no noise; name a condition with --seen or --unseen")
    return found


def settings_of(seen: Sequence[str], unseen: Sequence[str], snrs: Sequence[float]) -> list[Setting]:
    """Clean speech, then these conditions, each at every SNR (dB) where it has none of its own."""
    groups = zip(GROUPS, (seen, unseen), strict=True)
    found = [Setting(group, c) for group, texts in groups for text in texts for c in _conditions(text, snrs)]
    return [Setting("clean", parse_condition("clean")), *found]


def _conditions(text: str, snrs: Sequence[float]) -> list[Condition]:
    """The condition itself where it needs no SNR or names one, else one a ratio."""
    try:
        return [parse_condition(text)]
    except InputError:
        if re.search(r"@[^/@]+$", text.rpartition("+")[2]) or not snrs:  # the last step has its number, and it is wrong
            raise
        return [parse_condition(f"{text}@{snr:g}") for snr in snrs]


def _check(plan: Plan, makers: Mapping[str, Maker]) -> None:
    if unknown := [task for task in plan.tasks if task not in makers]:
        raise InputError(f"there is no task {unknown[0]!r}; choose from {', '.join(sorted(makers))}")
    if not plan.encoders or not plan.tasks:
        raise InputError("the grid needs an encoder and a task; name them with --encoders and --tasks")
    for name in plan.encoders:
        if not name or name.startswith(".") or "/" in name or "\\" in name:
            raise InputError(f"the encoder's name {name!r} cannot name a folder; choose one without slashes")
    for task, data in plan.tasks.items():
        if not Path(data).exists():
            raise InputError(f"the data {data} of the task {task} does not exist; check the path")
