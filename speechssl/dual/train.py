"""This module trains DUAL's reader on units: `speechssl train dual`.

Nothing here loads a speech encoder: the card of the units names it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from speechssl.artifacts import CARD, begin_stage, read_json, write_json
from speechssl.data.records import load_corpus, take_first_passages
from speechssl.dual.data import (
    Layout,
    UnitSource,
    list_codebooks,
    load_joined_units,
    make_unit_examples,
    read_unit_source,
)
from speechssl.dual.fitting import (
    STEPS,
    collect_reader_facts,
    describe_run,
    fit_spans,
    hash_inputs,
    load_timed_questions,
    make_layout,
    make_timed_evaluation,
    save_trained,
    sweep_learning_rates,
)
from speechssl.dual.model import SpanModel, load_reader
from speechssl.dual.options import QaOptions, TrainDual
from speechssl.dual.system import END_WEIGHT, START_WEIGHT, answer_units
from speechssl.errors import InputError, report_set_aside
from speechssl.options import find_shipped, select_settings
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.symbols import embed_symbols, list_specials
from speechssl.timing import RunLength
from speechssl.training import Evaluation, check_share, write_by_main
from speechssl.units.pieces import PIECES_FILE, Pieces, load_pieces


def train_dual(o: TrainDual) -> None:
    """Train (once) DUAL's reader (arXiv 2203.04911) on the answerable questions of a split.

    Questions without times, or whose audio gave no units, are listed and left out. Raises
    InputError where OUT holds a reader that was made from other inputs, `o.start` is one of other
    units, or the units are not those of this corpus.
    """
    if o.learning_rates:
        sweep_learning_rates(o, train_dual)
        return
    check_share(o.qa.batch, o.qa.short_batch)
    o = replace(o, start=find_shipped(o.start))
    pieces = choose_pieces(o.pieces, o.start)
    source = read_unit_source(o.units / o.qa.split, o.corpus, pieces)
    inputs = {"units": source.made_from, "assignment": o.assignment, "passages": o.passages}
    made_from = hash_inputs(o, o.qa.split) | inputs
    with begin_stage(o.out, made_from, select_settings(o.qa), grows=STEPS) as step:
        if not step.done:
            data = take_first_passages(load_corpus(o.corpus, o.qa.split), o.passages)
            units = load_joined_units(o.units / o.qa.split, pieces)
            examples, left_out = make_unit_examples(data, units, source.grid)
            report_set_aside(left_out, "DUAL's training", "question")
            model = begin_dual(o.start, source, o.qa, o.assignment)
            layout = make_layout(o.qa, *list_specials(source.symbols))
            layout = replace(layout, start_weight=START_WEIGHT, end_weight=END_WEIGHT)
            evaluation = make_unit_evaluation(o, source, model, layout, pieces)
            card = fit_spans(model, examples, layout, o.qa, o.out, evaluation)

            text_encoder = None if o.assignment == "scratch" else o.qa.text_encoder
            card |= collect_reader_facts(o, made_from, text_encoder) | inputs
            card |= {
                "what": "DUAL reader",
                "codebooks": list(source.codebooks),
                "passages": len(data.passages),
                "left_out": len(left_out),
            }
            save_pieces(o.out, pieces)
            save_trained(o.out, model, layout, card, data.questions, o.start)
    print(
        f"{o.out}: DUAL reader, assignment {o.assignment}{describe_run(o.out)}; next: `speechssl "
        f"evaluate qa {o.corpus} OUT --encoder ENCODER --codebook CODEBOOK --dual {o.out} "
        f"--split {o.qa.evaluation.eval_split}` with the encoder and codebook of these units"
    )


def begin_dual(
    start: Path | None, source: UnitSource, options: QaOptions, assignment: str = "most-frequent"
) -> SpanModel:
    """Make the model that training begins with: the reader in `start`, or a text encoder whose
    units get embeddings by the assignment. source: describes the units that it will read."""
    if start is None:
        name, seed = options.text_encoder, options.training.seed
        return SpanModel(*make_unit_encoder(name, source.symbols, assignment, seed))
    check_start_units(start, source)
    model, _, _ = load_reader(start)
    return model.train().requires_grad_(True)


def choose_pieces(given: Path | None, start: Path | None) -> Pieces | None:
    """Load the given pieces, or those of the reader that training starts from; None for a reader of
    units. Raises InputError where that reader has others."""
    start_pieces = None
    if start is not None and (start / PIECES_FILE).is_file():
        start_pieces = load_pieces(start)
    if given is None:
        return start_pieces
    pieces = load_pieces(given)
    if start is not None and (start_pieces is None or start_pieces.hash != pieces.hash):
        raise InputError(f"the reader {start} does not read the pieces of {given}; leave out one")
    return pieces


def save_pieces(folder: Path, pieces: Pieces | None) -> None:
    """Write the pieces of a reader, if any, into its folder."""
    if pieces is not None:
        write_by_main(write_json, folder / PIECES_FILE, pieces.card)


def make_unit_encoder(
    text_encoder: str, symbols: int, assignment: str, seed: int
) -> tuple[PreTrainedModel, nn.Embedding]:
    """Make a text encoder and the embedding table (K + 3, E) of units. Seeds torch, from which the
    head is drawn that is made next."""
    encoder, table = embed_symbols(*load_text_encoder(text_encoder), symbols, assignment, seed)
    torch.manual_seed(seed)
    return encoder, table


def check_start_units(start: Path, source: UnitSource) -> None:
    """Raise InputError where the reader in `start` was trained on units that mean something
    else."""
    if list_codebooks(read_json(start / CARD)).isdisjoint(source.codebooks):
        raise InputError(
            f"the reader {start} was trained on other units; start from one trained on these, or "
            "leave out --start"
        )


def make_unit_evaluation(
    o: TrainDual, source: UnitSource, model: SpanModel, layout: Layout, pieces: Pieces | None
) -> Evaluation | None:
    """Make the evaluation by FF1 on the units of held-out questions; None without --eval-every.
    source: describes the units that are trained on."""
    data = load_timed_questions(o.corpus, o.qa.evaluation)
    if data is None:
        return None
    runs = load_held_out_units(o.corpus, o.units, source, data.split, pieces)
    answer = partial(answer_units, grid=source.grid)
    return make_timed_evaluation(data, o.qa.evaluation, runs, model, layout, answer)


def load_held_out_units(
    corpus: Path, units: Path, source: UnitSource, split: str, pieces: Pieces | None = None
) -> dict[str, RunLength]:
    """Load the units of a split. Raises InputError where there are none, or of another codebook
    than `source`."""
    if read_unit_source(units / split, corpus, pieces).codebooks[0] != source.codebooks[0]:
        raise InputError(
            f"the units of {split} in {units} are of another codebook than those "
            "trained on; extract them again"
        )
    return load_joined_units(units / split, pieces)
