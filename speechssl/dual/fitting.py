"""These functions are shared by the trainings of readers (DUAL, text QA, SpeechBERT, multiple
choice) and of the CTC head.

A training makes its examples and its model, fits it (`fit_reader`) and saves it. A model can be
evaluated on held-out items while it is trained, and sweeps choose by these scores.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from speechssl.artifacts import CARD, MADE_FROM, read_json, replace_file, write_json
from speechssl.checkpoints import hash_checkpoint
from speechssl.data.records import (
    QUESTIONS,
    Corpus,
    Question,
    collect_data_facts,
    hash_data,
    hash_questions,
    load_corpus,
    read_corpus_card,
)
from speechssl.dual.data import (
    Example,
    ExampleBatches,
    Layout,
    find_answer_times,
)
from speechssl.dual.model import SpanModel, save_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader
from speechssl.errors import InputError
from speechssl.finetuning import count_trained, merge_lora, train_only
from speechssl.metrics import frame_f1
from speechssl.options import EvalOptions, select_settings
from speechssl.processes import is_main
from speechssl.textlm.encoders import (
    checkpoint_gradients,
    collect_licences,
    count_positions,
    remove_dropout,
)
from speechssl.textlm.symbols import SeenTokens
from speechssl.training import Batch, Evaluation, describe_steps, fit, write_by_main

T = TypeVar("T")
METRIC_NAMES = {
    "ff1": "FF1",
    "f1": "F1",
    "wer": "WER",
    "cer": "CER",
    "set_accuracy": "set accuracy",
}
STEPS = "options.training.steps"  # in `made_from.json`: a finished run may get more of them


def make_layout(options: QaOptions, cls: int, sep: int, pad: int) -> Layout:
    """Make the layout that options and ids of specials say."""
    return Layout(
        cls,
        sep,
        pad,
        size=options.window,
        stride=options.stride,
        question=options.max_question,
        answer=options.answer,
        attention_width=options.attention_width,
    )


def fit_spans(
    model: SpanModel,
    examples: Sequence[Example],
    layout: Layout,
    options: QaOptions,
    out: Path,
    evaluation: Evaluation | None,
) -> dict[str, Any]:
    """Fit a span model on examples; return the facts for its card. Raises InputError where there
    are no examples, or as `fit_reader` does."""
    if not examples:
        raise InputError(
            f"no question of the split {options.split} can be trained on: units and audio words "
            "need the times of answers, which `speechssl align` finds, and text QA needs answers "
            "that occur in the words of their passage"
        )
    truncated = sum(len(e.question) > layout.question for e in examples)
    batches = ExampleBatches(examples, layout, options)
    folder = out / "checkpoints"
    counts = {"examples": len(examples), "cut_questions": truncated}
    return counts | fit_reader(model, batches, layout, options, folder, evaluation)


@contextmanager
def train_seen_tokens(model: Any, layout: Layout, parts: Iterable[np.ndarray]) -> Iterator[None]:
    """Train, within the block, the embeddings of the specials and of these tokens alone. parts:
    arrays of ids, all that training reads."""
    table = model.embedding
    if not table.weight.requires_grad:
        yield
        return
    seen = np.unique(np.concatenate([[layout.cls, layout.sep, layout.pad], *parts]))
    model.embedding = SeenTokens(table, torch.from_numpy(seen.astype(np.int64)))
    yield
    model.embedding = model.embedding.merge()


def fit_reader(
    model: Any,
    batches: Callable[[int], Batch],
    layout: Layout,
    options: Any,
    folder: Path,
    evaluation: Evaluation | None = None,
    objective: nn.Module | None = None,
) -> dict[str, Any]:
    """Fit a reader of any kind, and return the facts for its card. The reader has the weights of
    the best checkpoint where it is evaluated, else of the last.

    options: `QaOptions`, or those of multiple choice; folder: of checkpoints; objective: the module
    that gives the loss, where the reader is a part of it. Raises InputError for windows that do not
    fit the encoder, for an encoder without gradient checkpointing where the options want it, or as
    `train_only` does.
    """
    check_positions(model.encoder, layout, options.text_encoder)
    model.inputs.attend(model.encoder, layout.attention_width, options.text_encoder)
    train_only(model.encoder, options.trained)
    if not options.dropout:
        remove_dropout(model.encoder)
    if options.gradient_checkpointing:
        checkpoint_gradients(model.encoder)
    result = fit(objective or model, batches, options.training, folder, evaluation)
    return {"training": result, "trained_parameters": count_trained(model)}


def check_positions(encoder: PreTrainedModel, layout: Layout, name: str) -> None:
    """Raise InputError where a question and a window are longer than the encoder has positions
    for."""
    longest = count_positions(encoder)
    if longest is not None and layout.size + layout.question + 3 > longest:
        raise InputError(
            f"a window of {layout.size} tokens with a question of up to {layout.question} and 3 "
            f"more does not fit into the {longest} positions of {name}; give a smaller --window or "
            "--max-question"
        )


def save_trained(
    out: Path,
    model: Any,
    layout: Layout,
    card: dict[str, Any],
    questions: Iterable[Question] = (),
    start: Path | None = None,
) -> None:
    """Save a reader, LoRA merged into it, with its card, and its questions as `save_questions`
    does."""
    merge_lora(model.encoder)
    write_by_main(save_questions, out, questions, start)
    write_by_main(save_reader, out, model, layout, card)


def save_questions(out: Path, questions: Iterable[Question], start: Path | None) -> None:
    """Write the hashes of the questions that a reader, and the one that it started from, were
    trained on; nothing where there are none."""
    hashes = hash_questions(questions)
    if start and (start / QUESTIONS).is_file():
        hashes = np.union1d(hashes, np.load(start / QUESTIONS))
    if len(hashes):
        with replace_file(out / QUESTIONS) as temporary:
            np.save(temporary, hashes)


# ---- inputs of readers, in `made_from.json` and on their cards


def hash_splits(corpus: Path, split: str, evaluation: EvalOptions) -> dict[str, Any]:
    """Hash the split that is trained on, and the one that is evaluated on meanwhile, if any."""
    inputs = {"data": hash_data(corpus, split)}
    if evaluation.eval_every:
        inputs["eval_data"] = hash_data(corpus, evaluation.eval_split)
    return inputs


def hash_inputs(o: Any, split: str) -> dict[str, Any]:
    """Hash the data and the first weights of a reader, for `made_from.json`: those of `o.start`, or
    those in the folder of a text encoder, which may be replaced.

    o: options of `train dual`, `text-qa` or `choice`. Raises InputError where `o.start` is no
    reader.
    """
    inputs = hash_splits(o.corpus, split, o.qa.evaluation) | {"start": read_weights_hash(o.start)}
    if o.start is None and Path(o.qa.text_encoder).is_dir():
        inputs["text_weights"] = hash_checkpoint(o.qa.text_encoder)
    return inputs


def read_weights_hash(reader: Path | None) -> str | None:
    """Read the hash of a reader's weights from its card; None for None. Raises InputError where
    there is no card."""
    return read_json(reader / CARD)["weights"] if reader else None


def collect_reader_facts(
    o: Any, made_from: Mapping[str, Any], text_encoder: str | None, start: Path | None = None
) -> dict[str, Any]:
    """Collect the facts for the card of any reader: options, corpus, start, licences and data.

    o: as in `hash_inputs`; text_encoder: the one whose weights it began with; start: the reader it
    began with, by default `o.start`.
    """
    start = start or o.start
    facts: dict[str, Any] = {
        "options": select_settings(o.qa),
        "corpus": read_corpus_card(o.corpus),
        "start": read_weights_hash(start),
    }
    return (
        facts
        | collect_licences(o.corpus, text_encoder, start)
        | collect_data_facts(made_from, start)
    )


# ---- evaluation on held-out items while a model is trained


def load_held_out(corpus: Path, options: EvalOptions) -> Corpus | None:
    """Load the split to evaluate on; None without --eval-every."""
    return load_corpus(corpus, options.eval_split) if options.eval_every else None


def sample_items(items: Sequence[T], options: EvalOptions) -> list[T]:
    """Sample the items that are evaluated on, in their order; the same in every training."""
    count = options.eval_items or len(items)
    chosen = np.random.default_rng(0).permutation(len(items))[:count]
    return [items[i] for i in sorted(chosen.tolist())]


def select_questions(
    data: Corpus, questions: Sequence[Question], options: EvalOptions, what: str
) -> Corpus:
    """Cut a split to a sample of these questions, and their passages. what: the
    property of these questions, for the message. Raises InputError where there are none."""
    if not questions:
        raise InputError(
            f"{data.root / data.split} has no question with {what} to evaluate on while "
            "training; name another split with --eval-split, or leave out --eval-every"
        )
    chosen = sample_items(questions, options)
    passages = {q.passage: data.passages[q.passage] for q in chosen}
    return replace(data, passages=passages, questions=tuple(chosen))


def load_timed_questions(corpus: Path, options: EvalOptions) -> Corpus | None:
    """Load the questions to evaluate on whose answers have times; None without --eval-every."""
    data = load_held_out(corpus, options)
    if data is None:
        return None
    questions = [q for q in data.answerable if find_answer_times(q) is not None]
    return select_questions(data, questions, options, "times of its answer")


def make_timed_evaluation(
    data: Corpus,
    options: EvalOptions,
    encoded: Mapping[str, Any],
    model: SpanModel,
    layout: Layout,
    answer: Callable[[Reader, Sequence[Any]], Sequence[Any]],
) -> Evaluation:
    """Make the evaluation by FF1 on questions that were encoded; any other counts as wrong.

    encoded: id -> input of the reader; answer: (reader, items of (question, passage)) -> answers in
    seconds.
    """
    items = {}
    for q in data.questions:
        if q.id in encoded and q.passage in encoded:
            items[q.id] = (encoded[q.id], encoded[q.passage])

    def score() -> float:
        answers = answer_in_batches(partial(answer, Reader(model, layout)), items)
        return average_ff1(data, answers)

    return Evaluation(options, "ff1", len(data.questions), score)


def average_ff1(data: Corpus, answers: Mapping[str, Any]) -> float:
    """Average FF1 over all questions. answers: id -> answer, with start and end in seconds; a
    question without one scores 0, as does an empty answer."""
    scores = []
    for question in data.questions:
        times = [(a.start, a.end) for a in question.answers]
        gold = [(start, end) for start, end in times if start is not None and end is not None]
        answer = answers.get(question.id)
        predicted = (answer.start, answer.end) if answer else None
        scores.append(frame_f1(predicted, gold))
    return sum(scores) / len(scores)


def answer_in_batches(
    answer_all: Callable[[Sequence[Any]], Sequence[Any]], items: Mapping[str, Any], size: int = 64
) -> dict[str, Any]:
    """Answer `size` items at a time; return the answers by the ids of the items."""
    names = list(items)
    answers: list[Any] = []
    for start in range(0, len(names), size):
        answers += answer_all([items[name] for name in names[start : start + size]])
    return dict(zip(names, answers, strict=True))


def read_training(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about its training from the card of a reader; of a SpeechBERT, about its
    last stage."""
    training = card["training"]
    for stage_name in ("spans", "masked", "words"):
        if stage_name in training:
            return dict(training[stage_name])
    return dict(training)


def describe_run(out: Path) -> str:
    """Describe how a reader was trained (", 800 steps, loss 1.2"), and which checkpoint was the
    best, where it was evaluated meanwhile."""
    training = read_training(read_json(out / CARD))
    text = f", {describe_steps(training)}"
    best = training.get("best")
    if best:
        score = f"{METRIC_NAMES[best['metric']]} {100 * best['score']:.1f}"
        text += f"; the best checkpoint, of step {best['step']} of {training['steps']}: {score} on "
        text += f"{best['items']} items of {best['split']}"
    return text


# ---- --learning-rates: one training a learning rate

SWEEP = "sweep"  # folder in OUT with the runs


def sweep_learning_rates(o: Any, train: Callable[[Any], None]) -> None:
    """Train with each of `o.learning_rates` in OUT/sweep, and copy the best run to OUT, which is
    then a run as any other, with the scores of all on its card.

    o: options with `out`, `learning_rates` and `qa`; train: makes a run of such options. Every run
    is evaluated, at least at its end. A killed sweep finds its finished runs again. Raises
    InputError where OUT holds a run that is no sweep, and as `train` does.
    """
    if (o.out / MADE_FROM).is_file() and not (o.out / SWEEP).is_dir():
        raise InputError(
            f"{o.out} holds a run that is no sweep; choose another folder or delete it"
        )
    eval_every = o.qa.evaluation.eval_every or o.qa.training.steps
    evaluation = replace(o.qa.evaluation, eval_every=eval_every)
    rows: list[dict[str, Any]] = []
    for rate in o.learning_rates:
        run = o.out / SWEEP / f"learning-rate={rate:g}"
        training = replace(o.qa.training, learning_rate=rate)
        qa = replace(o.qa, training=training, evaluation=evaluation)
        train(replace(o, out=run, learning_rates=(), qa=qa))
        rows.append({"learning_rate": rate} | read_training(read_json(run / CARD))["best"])
    best = max(rows, key=lambda row: row["score"])
    run = o.out / SWEEP / f"learning-rate={best['learning_rate']:g}"
    write_by_main(copy_run, run, o.out, {"sweep": rows})
    if is_main():
        print(f"learning rate  {METRIC_NAMES[best['metric']]}, {best['split']}  step")
        for row in rows:
            mark = " (best)" if row is best else ""
            score = 100 * row["score"]
            print(f"{row['learning_rate']:<13g}  {score:<8.1f}  {row['step']}{mark}")


def copy_run(run: Path, out: Path, facts: Mapping[str, Any]) -> None:
    """Copy a run to `out`, once, and add facts to the card of the copy."""
    card = read_json(run / CARD) | facts
    if (out / CARD).is_file() and read_json(out / CARD) == card:
        return
    (out / CARD).unlink(missing_ok=True)  # it comes back when the copy is whole
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    shutil.copytree(run, out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
    write_json(out / CARD, card)
