"""Training of readers: DUAL on units; and what is the same for text QA, SpeechBERT's spans and
multiple choice.

Every trainer makes its examples and its model, and hands both to `fit_reader`. Nothing here loads a
speech encoder: what made the units stands in their card. Held-out items are evaluated on while
training goes on, and sweeps choose by their scores.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from tqdm import tqdm
from transformers import PreTrainedModel

from speechssl.data.records import (
    Corpus,
    Question,
    corpus_card,
    data_facts,
    data_hash,
    first_passages,
    load_corpus,
)
from speechssl.dual.data import (
    Example,
    ExampleBatches,
    Layout,
    answer_times,
    check_times,
    codebooks_of,
    unit_examples,
    unit_source,
)
from speechssl.dual.model import SpanModel, load_reader, save_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import END_WEIGHT, START_WEIGHT, Reader, answer_units
from speechssl.errors import InputError, report_set_aside
from speechssl.finetuning import merged, train_only, trained_parameters
from speechssl.io import CARD, MADE_FROM, hash_of_weights, locked, read_json, stage, write_json
from speechssl.metrics import frame_f1, token_f1
from speechssl.options import EvalOptions, settings
from speechssl.processes import is_main, main_first
from speechssl.textlm import (
    checkpoint_gradients,
    fast_attention,
    licences,
    load_text_encoder,
    longest_sequence,
    special_ids,
    symbol_encoder,
    without_dropout,
)
from speechssl.timing import FrameGrid, RunLength
from speechssl.trainer import Batch, Evaluation, check_share, fit
from speechssl.units.storage import load_units

T = TypeVar("T")
SHOWN = {"ff1": "FF1", "f1": "F1", "wer": "WER", "cer": "CER", "set_accuracy": "set accuracy"}


def held_out(corpus: Path, options: EvalOptions) -> Corpus | None:
    """The split to evaluate on; None where training is without evaluation. Raises InputError where
    the corpus does not have it."""
    if not options.eval_every:
        return None
    if not (corpus / options.eval_split / "passages.jsonl").is_file():
        raise InputError(
            f"{corpus} has no split {options.eval_split} to evaluate on while training; name one "
            "that it has with --eval-split, or "
            "leave out --eval-every"
        )
    return load_corpus(corpus, options.eval_split)


def held_out_hash(corpus: Path, options: EvalOptions) -> dict[str, str]:
    """What `made_from.json` says of the split that decides which checkpoint is the best."""
    return {"eval_data": data_hash(corpus, options.eval_split)} if held_out(corpus, options) else {}


def drawn(items: Sequence[T], options: EvalOptions) -> list[T]:
    """As many as are evaluated on, in their order; the same in every training."""
    count = options.eval_items or len(items)
    return [
        items[i] for i in sorted(np.random.default_rng(0).permutation(len(items))[:count].tolist())
    ]


def evaluated_part(
    data: Corpus, questions: Sequence[Question], options: EvalOptions, what: str
) -> Corpus:
    """The split with those questions that are evaluated on, and their passages. what: they must
    have, for the message.

    Raises InputError where there are none.
    """
    if not questions:
        raise InputError(
            f"{data.root / data.split} has no question with {what} to evaluate on while "
            "training; name another split with "
            "--eval-split, or leave out --eval-every"
        )
    chosen = drawn(questions, options)
    passage_ids = {q.passage for q in chosen}
    return replace(
        data,
        passages={i: p for i, p in data.passages.items() if i in passage_ids},
        questions=tuple(chosen),
    )


def timed(data: Corpus, options: EvalOptions) -> Corpus:
    """`evaluated_part` of the questions whose answers have times."""
    return evaluated_part(
        data,
        [q for q in data.answerable if answer_times(q) is not None],
        options,
        "times of its answer",
    )


def mean_ff1(data: Corpus, answers: Mapping[str, Any]) -> float:
    """Over all questions. answers: id -> something with start and end in seconds; a question
    without one scores 0, as does an answer that is empty.
    """
    scores = []
    for question in data.questions:
        gold = [
            (a.start, a.end) for a in question.answers if a.start is not None and a.end is not None
        ]
        answer = answers.get(question.id)
        scores.append(
            frame_f1(
                (answer.start, answer.end) if answer and answer.end > answer.start else None, gold
            )
        )
    return sum(scores) / len(scores)


def mean_f1(data: Corpus, answers: Mapping[str, str | None]) -> float:
    """Over all questions. answers: id -> text; a question without one scores 0."""
    scores = [
        token_f1(answers.get(q.id) or "", [a.text for a in q.answers], q.language)
        for q in data.questions
    ]
    return sum(scores) / len(scores)


def answer_in_batches(
    ask: Callable[[Sequence[Any]], Sequence[Any]], items: Mapping[str, Any], size: int = 64
) -> dict[str, Any]:
    """What a system answers to every item, by its id."""
    names, answers = list(items), list[Any]()
    for start in range(0, len(names), size):
        answers += ask([items[name] for name in names[start : start + size]])
    return dict(zip(names, answers, strict=True))


def best_of(out: Path) -> str:
    """ "; the best checkpoint ...", by the card of what was trained; "" where it was not evaluated
    while it was trained."""
    card = out / "card.json"
    training = read_json(card).get("training", {}) if card.is_file() else {}
    training = training.get("spans", training)  # SpeechBERT's last stage
    if not (best := training.get("best")):
        return ""
    score = (
        f"{SHOWN[best['metric']]} {100 * best['score']:.1f} on {best['items']} items of "
        f"{best['split']}"
    )
    return f"; the best checkpoint, of step {best['step']} of {training['steps']}: {score}"


# ---- --learning-rates: one training a learning rate
# OUT/sweep/learning-rate=1e-05 and so on are finished runs, which a killed sweep finds again. OUT
# gets a copy of the best, and is then a run as any other, with the scores of all on its card.

FOLDER = "sweep"


def swept(
    out: Path, rates: Sequence[float], options: Any, train: Callable[[Path, Any], None]
) -> None:
    """Train into `out`: once with these options, or once with every one of these learning rates.

    options: with `training` and `evaluation`, as `QaOptions`; train: folder, options -> a finished
    run in the folder.
    Raises InputError where `out` holds something else than a sweep, and what `train` raises.
    """
    begun, whole = (out / FOLDER).is_dir(), (out / MADE_FROM).is_file()
    if not rates:
        if begun and not whole:
            raise InputError(
                f"{out} holds a sweep that is not finished; give its "
                "--learning-rates, or choose another folder"
            )
        train(out, options)
        return
    if whole and not begun:
        raise InputError(f"{out} holds a run that is no sweep; choose another folder or delete it")
    interval = options.evaluation.eval_every or options.training.steps  # at least at the end
    options = replace(options, evaluation=replace(options.evaluation, eval_every=interval))
    scores: list[dict[str, Any]] = []
    for rate in dict.fromkeys(rates):
        folder = out / FOLDER / f"learning-rate={rate:g}"
        try:
            train(folder, replace(options, training=replace(options.training, learning_rate=rate)))
        except InputError:
            with suppress(OSError):  # what was begun for nothing
                (out / FOLDER).rmdir()
                out.rmdir()
            raise
        training = read_json(folder / CARD)["training"]
        scores.append({"learning_rate": rate} | training.get("spans", training)["best"])
    best = max(scores, key=lambda row: row["score"])
    with main_first():
        if is_main():
            run = out / FOLDER / f"learning-rate={best['learning_rate']:g}"
            card = read_json(run / CARD) | {"sweep": scores}
            if not (out / CARD).is_file() or read_json(out / CARD) != card:
                with locked(out, wait=False):
                    for path in out.iterdir():  # what an earlier sweep of fewer rates left
                        if path.name != FOLDER and path.is_file():
                            path.unlink()
                    shutil.rmtree(out / "checkpoints", ignore_errors=True)
                    shutil.copytree(
                        run, out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True
                    )
                    write_json(out / CARD, card)  # last: without it, the copy is not whole
            score = f"{SHOWN[best['metric']]}, {best['split']}"
            print(f"learning rate  {score}  step")
            for row in scores:
                mark = " (best)" if row is best else ""
                print(
                    f"{row['learning_rate']:<13g}  {100 * row['score']:<{len(score)}.1f}  "
                    f"{row['step']}{mark}"
                )


def train_dual(
    corpus: Path,
    units: Path,
    out: Path,
    assignment: str,
    options: QaOptions,
    start: Path | None = None,
    passages: int | None = None,
) -> None:
    """Train DUAL's reader on the answerable questions of a split; once.

    units: the folder of `speechssl units extract`, whose card says what made them; assignment: see
    `textlm`; start: a
    reader of the same units to go on from, in the place of a text encoder; passages: only the first
    so many, with their questions. Questions without times, or whose audio gave no units, are listed
    and left out. Raises InputError where no answer has times, `out` holds a reader that was made
    from other inputs, `start` one for other units, or the units are not those of this corpus.
    """
    check_share(options.batch, options.short_batch)
    source, symbols, grid, codebooks = unit_source(units / options.split, corpus)
    begun = weights_of(start)
    made_from: dict[str, Any] = {
        "data": data_hash(corpus, options.split),
        "units": source,
        "assignment": assignment,
    }
    made_from |= start_of(out, options.text_encoder, start)
    made_from |= {} if passages is None else {"passages": passages}
    made_from |= held_out_hash(corpus, options.evaluation)
    with stage(out, made_from, settings(options), grows="options.training.steps") as step:
        if step.done:
            return
        layout = replace(
            layout_of(options, *special_ids(symbols)),
            start_weight=START_WEIGHT,
            end_weight=END_WEIGHT,
        )
        data = first_passages(load_corpus(corpus, options.split), passages)
        check_times(data)
        examples, left_out = unit_examples(data, load_units(units / options.split), grid)
        report_set_aside(left_out, "DUAL's training", "question")
        if start:
            model, _, card = load_reader(start)
            # neither of these units, nor of those that either was transferred from
            if codebooks_of(card).isdisjoint(codebooks):
                remedy = "start from one trained on these, or leave out --start"
                raise InputError(f"the reader {start} was trained on other units; {remedy}")
            model.train().requires_grad_(True)
        else:
            model = SpanModel(
                *unit_encoder(options.text_encoder, symbols, assignment, options.training.seed)
            )
        card = {
            "what": "DUAL reader",
            "assignment": assignment,
            "units": source,
            "left_out": len(left_out),
        }
        card |= {"codebooks": list(codebooks)} if codebooks[1:] else {}
        card |= {"corpus": corpus_card(corpus), "passages": len(data.passages)} | (
            {"start": begun} if start else {}
        )
        card |= licences(
            corpus, None if assignment == "scratch" else options.text_encoder, start
        ) | data_facts(made_from, start)
        fit_spans(
            model,
            examples,
            layout,
            options,
            out,
            card,
            unit_evaluation(corpus, units, source, grid, model, layout, options),
        )


def unit_evaluation(
    corpus: Path,
    units: Path,
    source: dict[str, Any],
    grid: FrameGrid,
    model: SpanModel,
    layout: Layout,
    options: QaOptions,
) -> Evaluation | None:
    """FF1 on the units of held-out questions; None without --eval-every. source: what made the
    units that are trained on.

    Raises InputError where there is none whose answer has times, and as `held_out_units`.
    """
    if (data := held_out(corpus, options.evaluation)) is None:
        return None
    data, runs = timed(data, options.evaluation), held_out_units(corpus, units, source, data.split)
    items = {
        q.id: (runs[q.id], runs[q.passage])
        for q in data.questions
        if q.id in runs and q.passage in runs
    }

    def score() -> float:
        reader = Reader(model, layout, device=str(model.head.weight.device))
        return mean_ff1(
            data, answer_in_batches(lambda batch: answer_units(reader, grid, batch), items)
        )

    return Evaluation(options.evaluation, "ff1", len(data.questions), score)


def held_out_units(
    corpus: Path, units: Path, source: dict[str, Any], split: str
) -> dict[str, RunLength]:
    """Those of another split. source: as of `unit_evaluation`. Raises InputError where there are
    none, or of another codebook."""
    if not (units / split).is_dir():
        raise InputError(
            f"{units} has no units of {split} to evaluate on while training; extract them with "
            "`speechssl units extract --split "
            f"{split}`, or leave out --eval-every"
        )
    if unit_source(units / split, corpus)[0].get("codebook") != source.get("codebook"):
        raise InputError(
            f"the units of {split} in {units} are of another codebook than those "
            "trained on; extract them again"
        )
    return load_units(units / split)


def weights_of(reader: Path | None) -> str | None:
    """The hash of its weights. Raises InputError where there is no reader."""
    if reader and not (reader / "card.json").is_file():
        raise InputError(
            f"found no reader at {reader} (no card.json); give a folder of "
            "`speechssl train`, or what ships"
        )
    return read_json(reader / "card.json").get("weights") if reader else None


def start_of(out: Path, text_encoder: str, reader: Path | None) -> dict[str, Any]:
    """What `made_from.json` says of that which training begins from: a reader, or the weights of a
    text encoder, for its name may come to mean another. A folder that says nothing of these (they
    were fetched then) is gone on with as it is.
    """
    made_from: dict[str, Any] = {"start": weights_of(reader)}
    silent = (out / MADE_FROM).is_file() and not read_json(out / MADE_FROM).get("text_weights")
    weights = None if reader or silent else hash_of_weights(text_encoder)
    return made_from | ({"text_weights": weights} if weights else {})


def unit_encoder(
    text_encoder: str, symbols: int, assignment: str, seed: int
) -> tuple[PreTrainedModel, nn.Embedding]:
    """A text encoder and the embedding table (K + 3, E) of units; what is made after it is drawn
    from `seed` as well."""
    encoder, table = symbol_encoder(*load_text_encoder(text_encoder), symbols, assignment, seed)
    torch.manual_seed(seed)
    return encoder, table


def layout_of(options: QaOptions, cls: int, sep: int, pad: int) -> Layout:
    """Raises InputError for windows that leave gaps between them."""
    if not 1 <= options.stride <= options.window or options.short_window > options.window:
        raise InputError(
            f"windows of {options.window} tokens {options.stride} apart (short ones: "
            f"{options.short_window}) leave gaps; "
            f"give --stride and --short-window of at most --window"
        )
    return Layout(cls, sep, pad, options.window, options.stride, options.question, options.answer)


def example_batches(
    examples: Sequence[Example], layout: Layout, options: QaOptions
) -> ExampleBatches:
    short = (
        options.short_window,
        options.short_batch,
        options.short_steps if options.short_batch else 0,
    )
    return ExampleBatches(
        examples, layout, options.batch, options.empty, options.training.seed, options.noise, *short
    )


def fit_spans(
    model: SpanModel,
    examples: Sequence[Example],
    layout: Layout,
    options: QaOptions,
    out: Path,
    card: dict[str, Any],
    evaluation: Evaluation | None = None,
) -> None:
    """Fit a span model on examples and save it. Raises InputError where there are none, or as
    `fit_reader` does."""
    if not examples:
        raise InputError(
            f"no question of the split {options.split} can be trained on: units and audio words "
            "need the times of answers, which "
            "`speechssl align` finds, and text QA needs answers that occur in the words of their "
            "passage"
        )
    cut = sum(len(e.question) > layout.question for e in examples)
    if cut and is_main():
        tqdm.write(
            f"{cut} of {len(examples)} questions are cut to {layout.question} tokens "
            "(--max-question)",
            file=sys.stderr,
        )
    card = card | {"examples": len(examples), "cut_questions": cut}
    fit_reader(
        model, example_batches(examples, layout, options), layout, options, out, card, evaluation
    )


def fit_reader(
    model: Any,
    batches: Callable[[int], Batch],
    layout: Layout,
    options: Any,
    out: Path,
    card: dict[str, Any],
    evaluation: Evaluation | None = None,
) -> None:
    """Fit a reader of any kind, and save it in `out` with its card: the best checkpoint where it is
    evaluated, else the last.

    options: `QaOptions`, or those of multiple choice. Raises InputError for windows that do not fit
    the encoder, or an encoder without gradient checkpointing where that is asked for, or as
    `train_only` does.
    """
    check_positions(model.encoder, layout, options.text_encoder)
    train_only(model.encoder, options.trained)
    if not options.dropout:
        without_dropout(model.encoder)
    if options.gradient_checkpointing:
        checkpoint_gradients(model.encoder, options.text_encoder)
    with fast_attention(model.encoder):
        result = fit(model, batches, options.training, out / "checkpoints", evaluation=evaluation)
    card = card | {"trained_parameters": trained_parameters(model)}
    with main_first():
        if is_main():
            merged(model.encoder)
            save_reader(
                out, model, layout, card | {"options": settings(options), "training": result}
            )


def check_positions(encoder: PreTrainedModel, layout: Layout, name: str) -> None:
    """Raises InputError where a question and a window are longer than what the encoder has
    positions for."""
    longest = longest_sequence(encoder)
    if longest is not None and layout.size + layout.question + 3 > longest:
        raise InputError(
            f"a window of {layout.size} tokens with a question of up to {layout.question} and 3 "
            "more does not fit into the "
            f"{longest} positions of {name}; give a smaller --window or --max-question"
        )
