"""Run SUPERB: train heads on encoders, evaluate them in clean speech and noise, write the tables.

`run_superb` makes a plan (`superb_plan`) and freezes the noise of the test sets. For each encoder
it then trains the heads of all tasks (`train_parts`) and scores them (`superb_scores`). Last it
makes the tables of the rows (`make_superb_tables`). The output folder has

features/<encoder>/<key>          hidden states, which may be deleted
noise.jsonl                       the mixtures, frozen before anything is encoded
heads/<encoder>/<part>/seed-<n>   trained heads
details/<encoder>/<task>.json     data of figures
results.jsonl, superb.md

A killed run resumes with the same command.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import write_text
from speechssl.cascade.ngrams import read_arpa
from speechssl.eval.superb_plan import (
    Benchmarked,
    HeadName,
    Heads,
    Plan,
    TaskPart,
    freeze_audio,
    load_benchmarked,
    make_plan,
)
from speechssl.eval.superb_scores import score_task
from speechssl.results import (
    DEFAULT,
    LOWER_IS_BETTER,
    Row,
    Table,
    choose_nearest_snr,
    count_decimals,
    describe_drawn,
    describe_snr,
    format_seeds,
    list_rows,
    name_metric_unit,
    read_rows,
)
from speechssl.signal import ACTIVE
from speechssl.superb.data import OnlineLoader
from speechssl.superb.options import ORDER, QBE, Superb
from speechssl.superb.tasks import ABOUT
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.transcription import Speech, train_language_model
from speechssl.superb.train import HeadRun, TrainedHead, load_head, predict, train_heads

GROUPS = ("clean", "seen", "unseen")  # of conditions, as in `conditions.Setting`
Cells = dict[tuple[str, ...], list[Row]]  # rows by task, metric, encoder and group
Measure = tuple[str, str]  # task and metric

# cached, because reading that of LibriSpeech takes minutes
read_language_model = lru_cache(maxsize=1)(read_arpa)


def evaluate_superb(o: Superb) -> list[dict[str, Any]]:
    """Run SUPERB, print the tables, and return the rows of `o.out`; --train-only makes none. Raises
    InputError where `run_superb` does."""
    print(run_superb(o))
    return list_rows(o.out) if (o.out / "results.jsonl").is_file() else []


def run_superb(o: Superb) -> str:
    """Train and score everything that is missing, write rows and tables, and return the tables.

    Raises InputError for encoders, tasks, data or noises that do not exist, before anything is
    computed where this is possible.
    """
    plan = make_plan(o)
    if "asr" in plan.parts and o.lm:
        read_language_model(o.lm)  # so that a damaged file is refused before the training
    audio = [] if o.train_only else freeze_audio(plan)  # before any encoder runs
    names = []
    for name in plan.encoders:
        encoder = load_benchmarked(name, plan)
        names.append(encoder.name)
        heads = train_parts(encoder, plan)
        if o.train_only:
            continue
        for task, parts in plan.parts.items():
            score_task(encoder, parts, heads, audio, plan)
            tqdm.write(f"{encoder.name}: {task} ({ABOUT[task]}) is evaluated", file=sys.stderr)
    if o.train_only:
        return (
            "heads are trained; their dev scores are in heads/*/*/*/card.json, and the test "
            "set was not used"
        )
    return write_tables(plan, names)


def write_tables(plan: Plan, encoders: Sequence[str]) -> str:
    """Write superb.md from all rows of the folder, and return its tables as text. encoders: names
    of those that have columns."""
    o = plan.options
    over = "" if o.noise.snr_over == ACTIVE else o.noise.snr_over
    rows = []
    for row in read_rows(o.out / "results.jsonl"):
        # clean speech and rooms have no SNR, and so no part that it is over
        if row.snr_over == over or (row.snr_db is None and not row.snr_over):
            rows.append(row)
    tables = make_superb_tables(rows, encoders, o.noise.at)
    note = describe_snr(o.noise.snr_over)
    notes = [note] if note else []
    markdown = "\n\n".join([*(table.markdown for table in tables), *notes])
    write_text(o.out / "superb.md", f"{markdown}\n")
    return "\n\n".join([*(table.text for table in tables), *notes])


# ---- heads


def train_parts(encoder: Benchmarked, plan: Plan) -> Heads:
    """Train the heads that are missing: with the first seed at every learning rate of the sweep,
    with other seeds at the rate that was best with the first."""
    o, cache = plan.options, encoder.cache
    parts: list[TaskPart] = []
    for name, task_parts in plan.parts.items():
        if name != QBE:  # which has no head
            parts += task_parts
    # all are made before any features are computed, so that their errors come first
    tasks = [part.make(cache.encoder.grid) for part in parts]
    runs = []
    for part, (task, preset) in zip(parts, tasks, strict=True):
        steps = o.steps or preset.steps
        batch = o.batch or preset.batch
        settings = replace(preset, steps=steps, every=min(preset.every, steps), batch=batch)
        run = HeadRun(
            task=task,
            loader=cache.make_loader(task)
            if encoder.tuning is None
            else cache.make_online_loader(task),
            settings=settings,
            seed=0,  # replaced below
            folder=o.out / "heads" / encoder.name / part.label,
            device=encoder.device,
            tuning=encoder.tuning,
            rates=o.learning_rates or (settings.learning_rate,),
        )
        runs.append(run)
    heads: dict[str, dict[HeadName, TrainedHead]] = {part.label: {} for part in parts}
    for seed in o.seed:
        seed_runs = [replace(run, seed=seed, folder=run.folder / f"seed-{seed}") for run in runs]
        tuned = train_heads(seed_runs, encoder.card, o.sets.workers)
        for part, run, head in zip(parts, seed_runs, tuned, strict=True):
            default = load_head(run.folder, run.task, "default")
            heads[part.label][seed, "tuned"] = tune_decoding(encoder, plan, run, head)
            heads[part.label][seed, "default"] = tune_decoding(encoder, plan, run, default)
        if seed == o.seed[0]:
            best_rates = [float(head.card["learning_rate"]) for head in tuned]
            runs = [replace(run, rates=(rate,)) for run, rate in zip(runs, best_rates, strict=True)]
    return heads


def tune_decoding(encoder: Benchmarked, plan: Plan, run: HeadRun, head: TrainedHead) -> TrainedHead:
    """Add to the task of a head how it decodes: the language model of ASR, or the threshold and the
    filter of SD that are best on dev. Other heads are returned as they are."""
    task, loader = head.task, run.loader
    if isinstance(task, Speech):
        lm = plan.options.lm
        model = read_language_model(lm) if lm else train_language_model(task.data)
        return replace(head, task=replace(task, language_model=model))
    if isinstance(task, Diarisation):
        if isinstance(loader, OnlineLoader):
            loader = replace(loader, encoder=encoder.find_encoder(head, plan))
        dev = loader.list_usable(task.data.splits["dev"])
        predicted = predict({"head": (task, head.head)}, loader, dev, run.settings.batch)
        return replace(head, task=task.tune(predicted["head"]))
    return head


# ---- tables


def make_superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[Table]:
    """Make the tables of clean speech, of learning rates, and of noise; those without rows are left
    out. encoders: names of the columns; at: the SNR in dB that stands for noise."""
    cells: Cells = {}
    for row in rows:
        if row.task in ORDER and row.encoder in encoders:
            group = row.condition.partition("-")[0]
            cells.setdefault((row.task, row.metric, row.encoder, group), []).append(row)
    measures: list[Measure] = []
    for task, metric, *_ in cells:
        # scores at the task's own learning rate stand beside the tuned ones, and the gain of
        # caching (ratio_cached) is no score
        has_no_line = metric.endswith(DEFAULT) or metric.startswith("ratio")
        if not has_no_line and (task, metric) not in measures:
            measures.append((task, metric))
    measures.sort(key=lambda measure: ORDER.index(measure[0]))
    tables = [
        _make_clean_table(cells, measures, encoders),
        _make_rates_table(cells, measures, encoders),
        _make_noise_table(cells, measures, encoders, at),
    ]
    return [table for table in tables if table.rows]


def _make_clean_table(cells: Cells, measures: Sequence[Measure], encoders: Sequence[str]) -> Table:
    """Make the table of clean speech, with intervals."""
    rows, clean_rows = [], []
    seeds = set()  # how many the cells have: what has no head has one
    for measure in measures:
        by_encoder = [cells.get((*measure, encoder, "clean"), []) for encoder in encoders]
        if any(by_encoder):
            texts = [format_seeds(cell_rows) for cell_rows in by_encoder]
            rows.append((name_measure(*measure), *texts))
        for cell_rows in by_encoder:
            clean_rows += cell_rows
            seeds.add(len({row.seed for row in cell_rows}))
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += describe_drawn((row.task, row.drawn, row.groups) for row in clean_rows)
    most = max(seeds, default=0)
    if most > 1:
        up_to = "up to " if seeds - {0, most} else ""
        note += f" Means over {up_to}{most} seeds, the interval reaches over those of all."
    return Table("SUPERB", ("task", *encoders), tuple(rows), note.strip())


def _make_rates_table(cells: Cells, measures: Sequence[Measure], encoders: Sequence[str]) -> Table:
    """Make the table of two learning rates: tuned on dev, and the task's own."""
    rows = []
    for task, metric in measures:
        texts = []
        has_default = False
        for encoder in encoders:
            tuned = cells.get((task, metric, encoder, "clean"), [])
            default = cells.get((task, f"{metric}{DEFAULT}", encoder, "clean"), [])
            has_default = has_default or bool(default)
            values = []
            for cell_rows in (tuned, default):
                value, _, _ = format_seeds(cell_rows).partition(" ")  # of "87.1 [85.0, 89.2]"
                values.append(value)
            texts.append(" / ".join(values))
        if has_default:
            rows.append((name_measure(task, metric), *texts))
    title = "Learning rate tuned on dev / the task's own"
    return Table(title, ("task", *encoders), tuple(rows), "Test sets, clean speech.")


def _make_noise_table(
    cells: Cells, measures: Sequence[Measure], encoders: Sequence[str], at: float
) -> Table:
    """Make the table of clean speech beside the groups of noises."""
    measured = {group for *_, group in cells}
    groups = [group for group in GROUPS if group in measured]
    if len(groups) < 2:  # there is no noise
        measures = ()
    rows = []
    for measure in measures:
        texts = []
        for encoder in encoders:
            by_group = [cells.get((*measure, encoder, group), []) for group in groups]
            texts.append(" | ".join(format_mean(group, measure[1], at) for group in by_group))
        rows.append((name_measure(*measure), *texts))
    exception = ""
    if any("+" in encoder for encoder in encoders):
        exception = ", but for those of encoders with + in their names"
    legend = (
        f"{describe_snrs(cells, at)} mean over the noises of a group; conditions without an SNR "
        "(rooms, codecs) count only in a group that has no others. Heads were trained on clean "
        f"speech{exception}."
    )
    return Table(" | ".join(groups), ("task", *encoders), tuple(rows), legend)


def describe_snrs(cells: Cells, at: float) -> str:
    """Begin the legend of a table of noise: "Noise at 10 dB, the SNR nearest to 5 dB, the". Rooms
    have no SNR."""
    snrs = set()
    for cell_rows in cells.values():
        snrs |= {row.snr_db for row in choose_nearest_snr(cell_rows, at) if row.snr_db is not None}
    if not snrs:
        return "The"
    shown = " and ".join(f"{snr:g}" for snr in sorted(snrs))
    nearest = "" if snrs == {at} else f", the SNR nearest to {at:g} dB"
    return f"Noise at {shown} dB{nearest}, the"


def format_mean(rows: Sequence[Row], metric: str, at: float) -> str:
    """Write the mean over the noises of a group at the SNR nearest to `at`, "-" without rows."""
    values = [row.value for row in choose_nearest_snr(rows, at)]
    return f"{statistics.fmean(values):.{count_decimals(metric)}f}" if values else "-"


def name_measure(task: str, metric: str) -> str:
    """Name the line of a measure: "sid acc ↑", "ss si_sdri (dB) ↑"."""
    unit = name_metric_unit(metric)
    unit_text = "" if unit in ("", "%") else f" ({unit})"
    arrow = "↓" if metric in LOWER_IS_BETTER else "↑"
    return f"{task} {metric}{unit_text} {arrow}"
