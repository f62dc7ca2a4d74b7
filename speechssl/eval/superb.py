"""Run SUPERB: train heads on encoders, evaluate them in clean speech and noise, write the tables.

`run_superb` plans (`superb_plan`), freezes the noise of the test sets, then for each encoder trains
the heads of all tasks (`train_heads`), scores them (`superb_scores`), and writes the tables
(`superb_tables`). In one folder are

features/<encoder>/<key>: hidden states; may be deleted
noise.jsonl: the mixtures, frozen before anything is encoded
heads/<encoder>/<part>/seed-<n>
scores/<encoder>/<part>/...: a file a head and condition
details/<encoder>/<task>.json: what figures are drawn from
results.jsonl, superb.md

A killed run resumes with the same command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from tqdm import tqdm

from speechssl.artifacts import write_text
from speechssl.cascade.ngrams import read_arpa
from speechssl.eval.conditions import (
    check_conditions,
    check_unseen,
    list_settings,
    noises_in,
    trained_noises,
)
from speechssl.eval.superb_plan import (
    Benchmarked,
    ConditionAudio,
    Heads,
    Plan,
    TaskPart,
    check_tunable,
    feature_cache,
    frozen_audio,
    list_parts,
    make_plan,
)
from speechssl.eval.superb_scores import evaluate_task, is_outdated
from speechssl.eval.superb_tables import superb_tables
from speechssl.results import append_rows, list_rows, read_rows, snr_note
from speechssl.superb.data import OnlineLoader
from speechssl.superb.options import Superb
from speechssl.superb.tasks import ABOUT, QBE, TASKS
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import check_installed
from speechssl.superb.tasks.transcription import Speech, train_language_model
from speechssl.superb.train import (
    HeadRun,
    TrainedHead,
    TrainRuns,
    load_head,
    parallel_training,
    predict,
    train_head,
)
from speechssl.superb.tuning import make_tuning

read_language_model = lru_cache(maxsize=1)(read_arpa)  # LibriSpeech's takes minutes


def evaluate_superb(o: Superb) -> list[dict[str, Any]]:
    """Run SUPERB, print the tables, and return the rows of `o.out`, of which --train-only has
    none. Raises InputError as `run_superb` does."""
    print(run_superb(o))
    return list_rows(o.out) if (o.out / "results.jsonl").is_file() else []


def run_superb(o: Superb) -> str:
    """Train and score what is not done yet, write rows and tables, and return the tables.

    Raises InputError for encoders, tasks, data or noises that cannot be had, before anything is
    computed where it can be known.
    """
    plan, tuning = make_plan(o), make_tuning(o)
    if "se" in plan.data:
        check_installed()
    if "asr" in plan.data and o.lm:
        read_language_model(o.lm)
    parts = []
    for task, folder in plan.data.items():
        parts += list_parts(task, folder, o.sets.preset)
    settings = list_settings(o.noise.seen, o.noise.unseen, o.noise.snr)
    check_conditions(settings, plan.distorter)
    if tuning:
        check_tunable(plan)
    trained_on = noises_in(tuning.card) if tuning else frozenset()
    for name, where in plan.encoders.items():
        check_unseen(name, trained_noises(where) | trained_on, settings)

    audio = [] if o.train_only else frozen_audio(plan, parts, settings)  # before any encoder runs
    device = o.sets.device
    if device == "auto":  # heads are trained where the encoder is
        device = "cuda" if torch.cuda.is_available() else "cpu"
    suffix = tuning.name if tuning else ""
    for name, where in plan.encoders.items():
        encoder_tuning = replace(tuning, source=where) if tuning else None
        cache = feature_cache(o.out, name, where, plan)
        encoder = Benchmarked(f"{name}{suffix}", cache, device, encoder_tuning)
        heads = train_heads(encoder, parts, plan)
        if not o.train_only:
            score_encoder(encoder, parts, heads, audio, plan)
    if o.train_only:
        return (
            "heads are trained; their dev scores are in heads/*/*/*/card.json, and the test "
            "set was not used"
        )
    return write_tables(plan, [f"{name}{suffix}" for name in plan.encoders])


def score_encoder(
    encoder: Benchmarked,
    parts: Sequence[TaskPart],
    heads: Heads,
    audio: Sequence[ConditionAudio],
    plan: Plan,
) -> None:
    """Score an encoder on every task under every condition, and write the rows."""
    for task in plan.data:
        of_task = [part for part in parts if part.task == task]
        rows = list(evaluate_task(encoder, of_task, heads, audio, plan))
        is_old = partial(is_outdated, rows[0])
        append_rows(plan.options.out / "results.jsonl", rows, True, outdated=is_old)
        first = next(row for row in rows if row.condition == "clean")
        ends = "" if first.low is None else f" [{first.low:.2f}, {first.high:.2f}]"
        score = f"{first.metric} {first.value:.2f}{ends}"
        tqdm.write(f"{encoder.name}: {task} ({ABOUT[task]}) {score}", file=sys.stderr)


def write_tables(plan: Plan, encoders: Sequence[str]) -> str:
    """Write superb.md from all rows of the folder, and return its tables as text."""
    o = plan.options
    over = ("", plan.distorter.snr_over)
    rows = [row for row in read_rows(o.out / "results.jsonl") if row.snr_over in over]
    tables = superb_tables(rows, encoders, o.noise.at)
    note = list(filter(None, [snr_note(o.noise.snr_over)]))
    text = "\n\n".join([*(table.markdown for table in tables), *note])
    write_text(o.out / "superb.md", f"{text}\n")
    return "\n\n".join([*(table.text for table in tables), *note])


# ---- heads


def train_heads(encoder: Benchmarked, parts: Sequence[TaskPart], plan: Plan) -> Heads:
    """Train what is missing: tasks side by side, and for each the rates of its sweep. The first
    seed tunes for all."""
    o = plan.options
    trained = [part for part in parts if part.task != QBE]
    pairs = [part.make(encoder.cache.encoder.grid) for part in trained]  # raises first
    runs = []
    for part, (task, settings) in zip(trained, pairs, strict=True):
        steps, batch = o.steps or settings.steps, o.batch or settings.batch
        settings = replace(settings, steps=steps, every=min(settings.every, steps), batch=batch)
        folder = o.out / "heads" / encoder.name / part.label
        cache, tuning = encoder.cache, encoder.tuning
        loader = cache.loader(task) if tuning is None else cache.online(task)
        runs.append(HeadRun(task, loader, settings, o.seed[0], folder, encoder.device, tuning))

    with parallel_training(o.sets.workers, f"heads on {encoder.name}") as train_runs:
        pool = ThreadPoolExecutor(max(len(runs), 1))
        train = partial(train_seeds, encoder, plan, train_runs)
        try:
            heads = list(pool.map(train, runs))
        finally:  # where one fails the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
    return {part.label: of_part for part, of_part in zip(trained, heads, strict=True)}


def train_seeds(
    encoder: Benchmarked, plan: Plan, train_runs: TrainRuns, run: HeadRun
) -> dict[str, TrainedHead]:
    """Train the heads of one part: the first seed with every rate of the sweep, the others with the
    best one."""
    o = plan.options
    heads: dict[str, TrainedHead] = {}
    rates = o.learning_rates or (run.settings.learning_rate,)
    for seed in o.seed:
        seed_run = replace(run, seed=seed, folder=run.folder / f"seed-{seed}")
        metric = TASKS[run.task.name].metric
        tuned = train_head(seed_run, encoder.card, rates, metric, train_runs)
        heads[f"seed-{seed}"] = tuned
        default = load_head(seed_run.folder, run.task, encoder.card, "default")
        heads[f"seed-{seed}-default"] = default
        rates = (float(tuned.card["learning_rate"]),)
    return {name: tune_decoding(encoder, plan, run, head) for name, head in heads.items()}


def tune_decoding(encoder: Benchmarked, plan: Plan, run: HeadRun, head: TrainedHead) -> TrainedHead:
    """Add the language model of ASR, or the threshold and the filter of SD that are best on dev."""
    task, loader = head.task, run.loader
    if isinstance(task, Speech):
        lm = plan.options.lm
        model = read_language_model(lm) if lm else train_language_model(task.data)
        return replace(head, task=replace(task, language_model=model))
    if isinstance(task, Diarisation):
        if isinstance(loader, OnlineLoader):
            loader = replace(loader, encoder=encoder.encoder_of(head, plan))
        dev = loader.usable(task.data.splits["dev"])
        predicted = predict({"head": (task, head.head)}, loader, dev, run.settings.batch)
        return replace(head, task=task.tune(predicted["head"]))
    return head
