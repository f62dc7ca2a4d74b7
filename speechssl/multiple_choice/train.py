"""Training of multiple choice, on units, on words or on audio words: the same model on other
symbols."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

from speechssl.data.records import Corpus, corpus_card, data_facts, data_hash, load_corpus
from speechssl.dual.data import Layout, codebooks_of, unit_source
from speechssl.dual.model import load_reader
from speechssl.dual.train import (
    answer_in_batches,
    check_positions,
    evaluated_part,
    fit_reader,
    held_out,
    held_out_hash,
    held_out_units,
    start_of,
    unit_encoder,
    weights_of,
)
from speechssl.errors import InputError, report_set_aside
from speechssl.io import read_json, stage
from speechssl.multiple_choice.data import (
    ChoiceBatches,
    ChoiceExample,
    choice_recordings,
    code_examples,
    encode_recordings,
    text_examples,
    unit_examples,
)
from speechssl.multiple_choice.model import (
    COMBINATIONS,
    ChoiceModel,
    ChoiceReader,
    chosen,
    load_choice,
)
from speechssl.multiple_choice.options import ChoiceOptions
from speechssl.options import settings
from speechssl.processes import is_main
from speechssl.speechbert.data import CLS, PAD, SEP
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import SpeechBertSystem
from speechssl.textlm import (
    TextCodec,
    licences,
    load_text_encoder,
    load_tokenizer,
    special_ids,
    special_tokens,
)
from speechssl.trainer import Evaluation, check_share

# a split -> the codes of its audio words or None, its examples, and the questions left out: id ->
# why
Read = Callable[[Corpus], tuple[torch.Tensor | None, list[ChoiceExample], dict[str, str]]]


class Begun(NamedTuple):
    """What training begins with."""

    model: ChoiceModel
    layout: Layout
    read: Read
    card: dict[str, Any]


def train_choice_units(
    corpus: Path,
    units: Path,
    out: Path,
    assignment: str,
    options: ChoiceOptions,
    start: Path | None = None,
) -> None:
    """Train on the spoken multiple-choice questions of the train split; once.

    units: the folder of `speechssl units extract`; start: a reader of the same units to go on from,
    of spans or of choices, in the place of a text encoder. Questions whose recordings gave no units
    are listed and left out. Raises InputError as `train_dual`.
    """
    source, symbols, _, codebooks = unit_source(units / "train", corpus)
    inputs = {"units": source, "assignment": assignment} | start_of(
        out, options.text_encoder, start
    )
    card: dict[str, Any] = {
        "what": ("multiple choice on units"),
        "assignment": assignment,
        "units": source,
    }
    card |= {"codebooks": list(codebooks)} if codebooks[1:] else {}

    def begin(_: Corpus) -> Begun:
        layout = _layout(options, *special_ids(symbols))
        if start:
            if codebooks_of(read_json(start / "card.json")).isdisjoint(codebooks):
                raise InputError(
                    f"the reader {start} was trained on other units; start from one trained on "
                    "these, or leave out --start"
                )
            model = _start_from(start, options)
        else:
            model = _with_head(
                *unit_encoder(options.text_encoder, symbols, assignment, options.training.seed),
                options,
            )
        origin = {"start": weights_of(start)} | licences(
            corpus, None if assignment == "scratch" else options.text_encoder, start
        )

        def read(data: Corpus) -> Any:
            runs = held_out_units(corpus, units, source, data.split)
            return None, *unit_examples(data, runs, layout)

        return Begun(model, layout, read, card | origin)

    _train(corpus, out, options, inputs, begin)


def train_choice_text(
    corpus: Path, out: Path, options: ChoiceOptions, source: str = "text", start: Path | None = None
) -> None:
    """Train on the text of the multiple-choice questions of the train split; once. The tokeniser is
    saved beside the model.

    source: `text`, or `given` for the transcripts that come with the corpus; start: a reader of
    words to go on from, of spans or of choices, with its tokeniser. Raises InputError where `out`
    holds a model that was made from other inputs, nothing is written of the questions, or the start
    has no tokeniser.
    """

    def begin(_: Corpus) -> Begun:
        if start:
            model = _start_from(start, options)
            tokenizer = load_tokenizer(start, model.embedding.num_embeddings)
        else:
            encoder, tokenizer = load_text_encoder(options.text_encoder)
            rows = encoder.get_input_embeddings().weight.detach()
            model = _with_head(
                encoder, nn.Embedding.from_pretrained(rows.clone(), freeze=False), options
            )
        if is_main():
            tokenizer.save_pretrained(out)
        layout, codec = _layout(options, *special_tokens(tokenizer)), TextCodec(tokenizer)
        card: dict[str, Any] = {
            "what": ("multiple choice on words"),
            "source": source,
            "start": weights_of(start),
        }
        read: Read = lambda data: (None, *text_examples(data, codec, layout, source))  # noqa: E731
        return Begun(model, layout, read, card | licences(corpus, options.text_encoder, start))

    _train(
        corpus,
        out,
        options,
        {"source": source} | start_of(out, options.text_encoder, start),
        begin,
        start,
    )


def train_choice_speechbert(
    corpus: Path, out: Path, system: SpeechBertSystem, start: Path, options: ChoiceOptions
) -> None:
    """Train on the spoken multiple-choice questions of the train split, as audio words; once.

    system: SpeechBERT, as it will cut words when questions are answered; its text encoder, in the
    folder `start`, is trained. Codes are kept in `out`/codes until it is done. Questions that lack
    a recording, or have one without words, are listed and
    left out. Raises InputError where `out` holds a model that was made from other inputs, or there
    is nothing to learn from.
    """
    # its spans are not used here
    speechbert_card = {name: value for name, value in system.card.items() if name != "layout"}

    def begin(train: Corpus) -> Begun:
        layout, model = _layout(options, CLS, SEP, PAD), _start_from(start, options)
        check_positions(model.encoder, layout, str(start))  # before hours of audio are encoded
        model.embedding = CodeEmbedding(model.embedding)
        card: dict[str, Any] = {
            "what": ("multiple choice on audio words"),
            "speechbert": speechbert_card,
        }
        # not that of the options
        card |= {"text_encoder": read_json(start / "card.json").get("text_encoder")}

        def read(data: Corpus) -> tuple[torch.Tensor, list[ChoiceExample], dict[str, str]]:
            paths = choice_recordings(data)
            encoded = encode_recordings(
                system, paths, out / ("codes" if data is train else "eval-codes")
            )
            return code_examples(data, encoded, layout)

        return Begun(model, layout, read, card | licences(corpus, start=start))

    _train(corpus, out, options, {"speechbert": speechbert_card}, begin, start)


def _train(
    corpus: Path,
    out: Path,
    options: ChoiceOptions,
    inputs: dict[str, Any],
    begin: Callable[[Corpus], Begun],
    start: Path | None = None,
) -> None:
    """inputs: what is trained on beside the split, for `made_from.json`. start: the reader that it
    goes on from."""
    check_share(options.batch)
    if options.combine not in COMBINATIONS:
        raise InputError(
            f"there is no combination {options.combine!r}; choose one of {', '.join(COMBINATIONS)}"
        )
    if not 1 <= options.stride <= options.window:
        raise InputError(
            f"windows of {options.window} tokens {options.stride} apart leave gaps; give a "
            "--stride of at most --window"
        )
    inputs |= {"data": data_hash(corpus, "train")} | held_out_hash(corpus, options.evaluation)
    with stage(out, inputs, settings(options), grows="options.training.steps") as step:
        if not step.done:
            data = load_corpus(corpus, "train")
            model, layout, read, card = begin(data)
            spoken, examples, left_out = read(data)
            report_set_aside(left_out, "training of multiple choice", "question")
            if not examples:
                raise InputError(
                    "the train split has no usable multiple-choice question; "
                    "prepare the corpus with some"
                )
            if spoken is not None:
                model.embedding.codes = spoken
            evaluation = choice_evaluation(corpus, options, model, layout, read)
            batches = ChoiceBatches(
                examples,
                layout,
                options.batch,
                options.windows,
                options.training.seed,
                options.noise,
            )
            card |= {"corpus": corpus_card(corpus), "left_out": len(left_out)}
            card |= {"combine": options.combine, "examples": len(examples)} | data_facts(
                inputs, start
            )
            fit_reader(model, batches, layout, options, out, card, evaluation)
        for name in ("codes", "eval-codes"):  # of audio words
            shutil.rmtree(out / name, ignore_errors=True)


def choice_evaluation(
    corpus: Path, options: ChoiceOptions, model: ChoiceModel, layout: Layout, read: Read
) -> Evaluation | None:
    """Set accuracy on held-out questions, of which those that cannot be read count as wrong, as in
    evaluation; None without
    --eval-every. Raises InputError where there are none.
    """
    if (data := held_out(corpus, options.evaluation)) is None:
        return None
    data = evaluated_part(data, data.choices, options.evaluation, "options and a right one")
    codes, examples, left_out = read(data)
    report_set_aside(left_out, "evaluation while training", "question")
    items = {str(n): example.choice for n, example in enumerate(examples)}

    def score() -> float:
        trained_on = getattr(model.embedding, "codes", None)
        if codes is not None:
            model.embedding.codes = codes
        reader = ChoiceReader(model, layout, device=str(next(model.parameters()).device))
        scores = answer_in_batches(reader.score_many, items, 16)
        if codes is not None:
            model.embedding.codes = trained_on
        right = [
            chosen(s, len(e.correct)) == tuple(sorted(e.correct))
            for s, e in zip(scores.values(), examples, strict=True)
        ]
        return sum(right) / len(data.choices)

    return Evaluation(options.evaluation, "set_accuracy", len(data.choices), score)


def _layout(options: ChoiceOptions, cls: int, sep: int, pad: int) -> Layout:
    return Layout(cls, sep, pad, size=options.window, stride=options.stride, question=options.asked)


def _start_from(start: Path, options: ChoiceOptions) -> ChoiceModel:
    """From a model of choices with its head, where it combines windows alike; from any other with
    its encoder and table."""
    if (combine := read_json(start / "card.json").get("combine")) is None:
        reader, _, _ = load_reader(start)
        return _with_head(reader.encoder, reader.embedding, options).train().requires_grad_(True)
    model, _, _ = load_choice(start)
    if combine != options.combine:
        model = _with_head(model.encoder, model.embedding, options)
    return model.train().requires_grad_(True)


def _with_head(
    encoder: PreTrainedModel, table: nn.Embedding, options: ChoiceOptions
) -> ChoiceModel:
    torch.manual_seed(options.training.seed)
    return ChoiceModel(encoder, table, options.combine)
