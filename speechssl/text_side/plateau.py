"""How long DUAL's reader sits on its plateau: its FF1 on units, scored again and again as it learns.

At first the reader points at any fact of the passage, whatever is asked, for hundreds of steps; then FF1 rises within a few. Does a
warm-up on brackets, copies or units of plain speech shorten that, by itself or on top of pre-training on text?
The reader is that of `speechssl train dual`, and answers are scored as `evaluate qa` scores them in clean speech, from units that
were extracted before.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.config import settings
from speechssl.data.records import data_hash, load_corpus, passage_units, synthetic_note
from speechssl.dual.config import QaOptions
from speechssl.dual.data import check_times, unit_examples, unit_source
from speechssl.dual.decode import END_WEIGHT, START_WEIGHT, Reader
from speechssl.dual.model import SpanModel
from speechssl.dual.train import check_positions, example_batches, layout_of, unit_encoder
from speechssl.errors import InputError, tell_set_aside
from speechssl.finetuning import train_only, trained_parameters
from speechssl.io import stage
from speechssl.metrics import frame_f1
from speechssl.text_side.runs import encoder_named, fit_and_score, run_folder, steps_to, write_scores
from speechssl.textlm import special_ids, without_dropout
from speechssl.timing import interval_of_units
from speechssl.trainer import check_share
from speechssl.units.storage import load_units

TASK = "dual"


def plateau(corpus: Path, units: Path, results: Path, arm: str, assignment: str, o: QaOptions, scored: str, every: int) -> str:
    """Train (once) and score; a line that says what came out. scored: split of corpus and units; every: steps between two scores.

    Raises InputError for units of another corpus or codebook, answers without times, or windows longer than the encoder's
    positions.
    """
    check_share(o.batch, o.short_batch)
    seed, named = o.training.seed, encoder_named(o.text_encoder)
    source, symbols, grid, _ = unit_source(units / o.split, corpus)
    tested = unit_source(units / scored, corpus)[0]
    if tested.get("codebook") != source.get("codebook"):
        raise InputError(f"the units of {o.split} and {scored} in {units} are of different codebooks; extract them again")
    folder = run_folder(results, TASK, arm, seed)
    options = settings(replace(o, trained="all")) | {"text_encoder": named["encoder"]}  # trained: below
    hashes = {"data": data_hash(corpus, o.split), "scored": data_hash(corpus, scored), "units": source} | named
    with stage(folder, hashes | {"assignment": assignment, "every": every, "trained": o.trained}, options) as step:
        if step.done:
            card = step.card
        else:
            data, test = load_corpus(corpus, o.split), load_corpus(corpus, scored)
            check_times(data)
            examples, left_out = unit_examples(data, load_units(units / o.split), grid)
            tell_set_aside(left_out, "DUAL's training", "question")
            runs = load_units(units / scored)
            timed = [q for q in test.answerable if any(a.start is not None for a in q.answers)]
            asked = [q for q in timed if q.id in runs and q.passage in runs]
            if not examples or not asked:
                empty = o.split if not examples else scored
                raise InputError(f"{corpus} has no answerable question with times and units in {empty}; prepare it again")
            layout = replace(layout_of(o, *special_ids(symbols)), start_weight=START_WEIGHT, end_weight=END_WEIGHT)
            model = SpanModel(*unit_encoder(o.text_encoder, symbols, assignment, seed))
            check_positions(model.encoder, layout, o.text_encoder)
            train_only(model.encoder, o.trained)
            if not o.dropout:
                without_dropout(model.encoder)
            pairs = [(runs[q.id].units, runs[q.passage].units) for q in asked]
            golds = [[(a.start, a.end) for a in q.answers if a.start is not None and a.end is not None] for q in asked]

            def scores() -> list[float]:
                model.eval()
                spans = Reader(model, layout).read_many(pairs)
                found = [interval_of_units(grid, runs[q.passage], s.first, s.last) for q, s in zip(asked, spans, strict=True)]
                return [frame_f1(answer, gold) for answer, gold in zip(found, golds, strict=True)]

            def mean() -> float:
                found = scores()
                return sum(found) / len(found)

            batches = example_batches(examples, layout, o)
            result, curve = fit_and_score(model, batches, o.training, folder / "checkpoints", mean, every)
            items = {q.id: (1.0, score) for q, score in zip(asked, scores(), strict=True)}
            about: dict[str, Any] = named | {"assignment": assignment, "options": options, "training": result, "curve": curve}
            about |= {"trained": o.trained, "trained_parameters": trained_parameters(model)}
            about |= {"note": note} if (note := synthetic_note(corpus)) else {}
            drawn = passage_units(test, [q.passage for q in asked])
            card = step.finish(write_scores(results, folder, TASK, "ff1", arm, seed, items, about, drawn))
        reached = steps_to(card["curve"])
        when = f"FF1 50 after {reached} steps" if reached else f"no FF1 of 50 within {o.training.steps} steps"
        return f"{folder}: dual ff1 {card['value']:.1f} %, {when} ({arm}, seed {seed})"
