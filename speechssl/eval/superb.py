"""Run SUPERB: train heads on encoders, evaluate them in clean speech and noise, write the tables.

`run_superb` plans (`superb_plan`), freezes the noise of the test sets, then for each encoder trains
the heads of all tasks (`train_parts`), scores them (`superb_scores`), and writes the tables
(`superb_tables`). In one folder are

features/<encoder>/<key>: hidden states; may be deleted
noise.jsonl: the mixtures, frozen before anything is encoded
heads/<encoder>/<part>/seed-<n>
details/<encoder>/<task>.json: what figures are drawn from
results.jsonl, superb.md

A killed run resumes with the same command.
"""

from __future__ import annotations

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
    freeze_audio,
    load_benchmarked,
    make_plan,
)
from speechssl.eval.superb_scores import score_task
from speechssl.eval.superb_tables import superb_tables
from speechssl.results import list_rows, read_rows, snr_note
from speechssl.superb.data import OnlineLoader
from speechssl.superb.options import Superb
from speechssl.superb.tasks import ABOUT, QBE
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.transcription import Speech, train_language_model
from speechssl.superb.train import HeadRun, TrainedHead, load_head, predict, train_heads

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
    plan = make_plan(o)
    if "asr" in plan.parts and o.lm:
        read_language_model(o.lm)
    audio = [] if o.train_only else freeze_audio(plan)  # before any encoder runs
    names = []
    for name in plan.encoders:
        encoder = load_benchmarked(name, plan)
        names.append(encoder.name)
        heads = train_parts(encoder, plan)
        for task, parts in plan.parts.items() if audio else ():
            score_task(encoder, parts, heads, audio, plan)
            tqdm.write(f"{encoder.name}: {task} ({ABOUT[task]}) is evaluated", file=sys.stderr)
    if o.train_only:
        return (
            "heads are trained; their dev scores are in heads/*/*/*/card.json, and the test "
            "set was not used"
        )
    return write_tables(plan, names)


def write_tables(plan: Plan, encoders: Sequence[str]) -> str:
    """Write superb.md from all rows of the folder, and return its tables as text."""
    o = plan.options
    over = ("", o.noise.snr_over)
    rows = [row for row in read_rows(o.out / "results.jsonl") if row.snr_over in over]
    tables = superb_tables(rows, encoders, o.noise.at)
    note = snr_note(o.noise.snr_over)
    notes = [note] if note else []
    text = "\n\n".join([*(table.markdown for table in tables), *notes])
    write_text(o.out / "superb.md", f"{text}\n")
    return "\n\n".join([*(table.text for table in tables), *notes])


# ---- heads


def train_parts(encoder: Benchmarked, plan: Plan) -> Heads:
    """Train what is missing: the first seed with every rate of the sweep, the others with the rate
    that is best then."""
    o, cache = plan.options, encoder.cache
    parts = [part for task in plan.parts if task != QBE for part in plan.parts[task]]
    made = [part.make(cache.encoder.grid) for part in parts]  # raises first
    runs = []
    for part, (task, settings) in zip(parts, made, strict=True):
        steps, batch = o.steps or settings.steps, o.batch or settings.batch
        settings = replace(settings, steps=steps, every=min(settings.every, steps), batch=batch)
        folder = o.out / "heads" / encoder.name / part.label
        loader = cache.loader(task) if encoder.tuning is None else cache.online(task)
        rates = o.learning_rates or (settings.learning_rate,)
        run = HeadRun(task, loader, settings, 0, folder, encoder.device, encoder.tuning, rates)
        runs.append(run)
    heads: dict[str, dict[HeadName, TrainedHead]] = {part.label: {} for part in parts}
    for seed in o.seed:
        of_seed = [replace(run, seed=seed, folder=run.folder / f"seed-{seed}") for run in runs]
        tuned = train_heads(of_seed, encoder.card, o.sets.workers)
        for part, run, head in zip(parts, of_seed, tuned, strict=True):
            default = load_head(run.folder, run.task, encoder.card, "default")
            heads[part.label][seed, "tuned"] = tune_decoding(encoder, plan, run, head)
            heads[part.label][seed, "default"] = tune_decoding(encoder, plan, run, default)
        if seed == o.seed[0]:
            best = [float(head.card["learning_rate"]) for head in tuned]
            runs = [replace(run, rates=(rate,)) for run, rate in zip(runs, best, strict=True)]
    return heads


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
