"""Train DUAL's reader, and score it as it learns, to see whether a warm-up shortens the plateau.

Answers are scored as `evaluate qa` scores them in clean speech, from units that were extracted
before.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any

from speechssl.cli import script
from speechssl.data.records import choose_groups, hash_data, load_corpus, read_synthetic_note
from speechssl.dual.data import ExampleBatches, make_unit_examples, read_unit_source
from speechssl.dual.fitting import check_positions, make_layout
from speechssl.dual.model import SpanModel
from speechssl.dual.options import ASSIGNMENT, QaOptions
from speechssl.dual.system import END_WEIGHT, START_WEIGHT, Reader, choose_device
from speechssl.dual.train import make_unit_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.finetuning import count_trained, train_only
from speechssl.metrics import frame_f1
from speechssl.options import DEVICE, PLAIN, Count, TrainingOptions, argument, group, option
from speechssl.stats import BootstrapUnits
from speechssl.textlm.encoders import remove_dropout
from speechssl.textlm.symbols import list_specials
from speechssl.timing import find_interval
from speechssl.training import check_share
from speechssl.units.storage import load_units
from textside.options import ARM, RESULTS
from textside.runs import (
    count_steps,
    describe_encoder,
    fit_and_score,
    keep_decisive,
    run_folder,
    run_once,
    write_scores,
)


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """train DUAL's reader and score it as it learns

    For hundreds of steps the reader points at any fact, whatever is asked; then FF1 rises within a
    few. This trains the reader of `speechssl train dual` from any text encoder and scores it on
    --eval-split every --eval-every steps. UNITS has both splits, extracted with one codebook.
    `gains.py` prints after how many steps each start reaches FF1 50, and what it gains in the end.

      python recipes/text_side/plateau.py corpus units exp/text_side --arm scratch \\
        --assignment scratch --text-encoder exp/english/encoder
      python recipes/text_side/plateau.py corpus units exp/text_side --arm dyck-64 \\
        --assignment random --text-encoder exp/dyck/encoder --seed 1
    """

    corpus: Path = argument("prepared corpus")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    assignment: str = option("most-frequent", ASSIGNMENT)
    eval_split: str = option("test", "split of corpus and units that is scored")
    eval_every: Count = option(100, "steps between two scores")
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(
        QaOptions(TrainingOptions(600, 3e-4, 50, **vars(PLAIN)), answer=275),
        "reader",
        without=(
            "subwords",
            "characters",
            "evaluation",
            "gradient_checkpointing",
        ),
    )


TASK = "dual"


def measure_plateau(o: Plateau) -> None:
    """Train (once) and score.

    Raises InputError for units of another corpus, answers without times, or windows longer than the
    encoder's positions.
    """
    qa = o.qa
    check_share(qa.batch, qa.short_batch)
    seed = qa.training.seed
    source = read_unit_source(o.units / qa.split, o.corpus).made_from
    scored = read_unit_source(o.units / o.eval_split, o.corpus).made_from
    if scored.get("codebook") != source.get("codebook"):
        raise InputError(
            f"the units of {qa.split} and {o.eval_split} in {o.units} are of different "
            "codebooks; extract them again"
        )
    folder = run_folder(o.results, TASK, o.arm, seed)
    inputs = {
        "data": hash_data(o.corpus, qa.split),
        "scored": hash_data(o.corpus, o.eval_split),
        "units": source,
    }
    start = describe_encoder(qa.text_encoder) | {"assignment": o.assignment, "trained": qa.trained}
    options = keep_decisive(qa) | {"eval_every": o.eval_every}

    def make() -> dict[str, Any]:
        items, units, details = train_and_answer(o, folder)
        details |= start | {"options": options}
        note = read_synthetic_note(o.corpus)
        if note:
            details["note"] = note
        return write_scores(o.results, TASK, "ff1", o.arm, seed, items, details, units)

    card = run_once(folder, inputs | start, options, make)
    reached = count_steps(card["curve"])
    when = f"FF1 50 after {reached} steps"
    if reached is None:
        when = f"no FF1 of 50 within {qa.training.steps} steps"
    print(f"{folder}: dual ff1 {card['value']:.1f} %, {when} ({o.arm}, seed {seed})")


def train_and_answer(
    o: Plateau, folder: Path
) -> tuple[dict[str, tuple[float, float]], BootstrapUnits, dict[str, Any]]:
    """Train a reader; return the FF1 of every question of the split that is scored, what intervals
    draw of them, and the details of the training. folder: for its checkpoints."""
    qa = o.qa
    source = read_unit_source(o.units / qa.split, o.corpus)
    data, test = load_corpus(o.corpus, qa.split), load_corpus(o.corpus, o.eval_split)
    examples, left_out = make_unit_examples(data, load_units(o.units / qa.split), source.grid)
    report_set_aside(left_out, "DUAL's training", "question")
    runs = load_units(o.units / o.eval_split)
    with_times = [q for q in test.answerable if any(a.start is not None for a in q.answers)]
    questions = [q for q in with_times if q.id in runs and q.passage in runs]
    if not examples or not questions:
        raise InputError(
            f"{o.corpus} has no answerable question with times and units in {qa.split} or "
            f"{o.eval_split}; prepare it again"
        )
    layout = make_layout(qa, *list_specials(source.symbols))
    layout = replace(layout, start_weight=START_WEIGHT, end_weight=END_WEIGHT)
    seed = qa.training.seed
    model = SpanModel(*make_unit_encoder(qa.text_encoder, source.symbols, o.assignment, seed))
    check_positions(model.encoder, layout, qa.text_encoder)
    model.inputs.attend(model.encoder, layout.attention_width, qa.text_encoder)
    train_only(model.encoder, qa.trained)
    if not qa.dropout:
        remove_dropout(model.encoder)
    pairs = [(runs[q.id].units, runs[q.passage].units) for q in questions]

    def score_questions() -> dict[str, float]:
        """Return the FF1 of all questions whose answers have times; one without units counts as
        wrong, as in `evaluate qa`."""
        model.eval()
        by_id = {q.id: 0.0 for q in with_times}
        # bf16 where training has it: in fp32 scoring takes longer than training
        reader = Reader(model.to(choose_device()), layout, bf16=bool(qa.training.bf16))
        spans = reader.read(pairs)
        for q, span in zip(questions, spans, strict=True):
            answer = find_interval(source.grid, runs[q.passage], span.first, span.last)
            gold = []
            for a in q.answers:
                if a.start is not None and a.end is not None:
                    gold.append((a.start, a.end))
            by_id[q.id] = frame_f1(answer, gold)
        return by_id

    def score() -> float:
        return sum(score_questions().values()) / len(with_times)

    batches = ExampleBatches(examples, layout, qa)
    training, curve = fit_and_score(
        model, batches, qa.training, folder / "checkpoints", score, o.eval_every
    )
    items = {name: (1.0, ff1) for name, ff1 in score_questions().items()}
    units = choose_groups(test, [q.passage for q in with_times], [q.id for q in with_times])
    parameters = count_trained(model)
    details = {"training": training, "curve": curve, "trained_parameters": parameters}
    return items, units, details


if __name__ == "__main__":
    sys.exit(script(measure_plateau, Plateau))
