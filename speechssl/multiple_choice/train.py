"""Training of multiple choice, on units, on words or on audio words: the same model on other symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from speechssl.config import settings
from speechssl.data.records import Corpus, corpus_card, data_hash, load_corpus
from speechssl.dual.data import Layout, unit_source
from speechssl.dual.model import load_reader
from speechssl.dual.train import (
    answer_in_batches,
    asked,
    check_positions,
    fit_reader,
    held_out,
    held_out_hash,
    held_out_units,
    start_of,
    unit_encoder,
    weights_of,
)
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import read_json, stage
from speechssl.multiple_choice.config import ChoiceOptions
from speechssl.multiple_choice.data import (
    ChoiceBatches,
    ChoiceExample,
    Examples,
    choice_recordings,
    code_examples,
    encode_recordings,
    text_examples,
    unit_examples,
)
from speechssl.multiple_choice.model import COMBINATIONS, ChoiceModel, ChoiceReader, chosen, load_choice
from speechssl.processes import is_main, main_first
from speechssl.speechbert.data import CLS, PAD, SEP
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import SpeechBertSystem
from speechssl.textlm import TextCodec, licences, load_text_encoder, load_tokenizer, special_ids, special_tokens
from speechssl.trainer import Evaluation, check_share
from speechssl.units.storage import load_units

GROWS = "options.training.steps"


def train_choice_units(
    corpus: Path, units: Path, out: Path, assignment: str, options: ChoiceOptions, start: Path | None = None
) -> None:
    """Train on the spoken multiple-choice questions of the train split; once.

    units: the folder of `speechssl units extract`; start: a reader of the same units to go on from, of spans or of choices, in the
    place of a text encoder. Questions whose recordings gave no units are listed and left out. Raises InputError as `train_dual`.
    """
    _check(options)
    source, symbols, _, codebooks = unit_source(units / "train", corpus)
    begun = weights_of(start)
    made: dict[str, Any] = {"data": data_hash(corpus, "train"), "units": source, "assignment": assignment}
    made |= start_of(out, options.text_encoder, start) | held_out_hash(corpus, options.evaluation)
    with stage(out, made, settings(options), grows=GROWS) as step:
        if step.done:
            return
        layout = _layout(options, *special_ids(symbols))
        examples, left_out = unit_examples(load_corpus(corpus, "train"), load_units(units / "train"), layout)
        tell_set_aside(left_out, "training of multiple choice", "question")
        if start:
            before = read_json(start / "card.json").get("units")
            if not isinstance(before, dict) or before.get("codebook") not in codebooks:
                raise InputError(
                    f"the reader {start} was trained on other units; start from one trained on these, or leave out --start"
                )
            model = _start_from(start, options)
        else:
            model = _with_head(*unit_encoder(options.text_encoder, symbols, assignment, options.training.seed), options)
        card: dict[str, Any] = {"what": "multiple choice on units", "assignment": assignment, "units": source, "start": begun}
        card |= licences(corpus, None if assignment == "scratch" else options.text_encoder, start)
        evaluation = choice_evaluation(
            corpus,
            options,
            model,
            layout,
            lambda data: unit_examples(data, held_out_units(corpus, units, source, data.split), layout),
        )
        card |= {"corpus": corpus_card(corpus), "left_out": len(left_out)}
        _fit(model, examples, layout, options, out, card, evaluation)


def train_choice_text(corpus: Path, out: Path, options: ChoiceOptions, source: str = "text", start: Path | None = None) -> None:
    """Train on the text of the multiple-choice questions of the train split; once. The tokeniser is saved beside the model.

    source: `text`, or `given` for the transcripts that come with the corpus; start: a reader of words to go on from, of spans or of
    choices, with its tokeniser. Raises InputError where `out` holds a model that was made from other inputs, nothing is written of
    the questions, or the start has no tokeniser.
    """
    _check(options)
    begun = weights_of(start)
    made = {"data": data_hash(corpus, "train"), "source": source} | held_out_hash(corpus, options.evaluation)
    made |= start_of(out, options.text_encoder, start)
    with stage(out, made, settings(options), grows=GROWS) as step:
        if step.done:
            return
        if start:
            model = _start_from(start, options)
            tokenizer = load_tokenizer(start, model.embedding.num_embeddings)
        else:
            encoder, tokenizer = load_text_encoder(options.text_encoder)
            rows = encoder.get_input_embeddings().weight.detach()
            model = _with_head(encoder, nn.Embedding.from_pretrained(rows.clone(), freeze=False), options)
        layout = _layout(options, *special_tokens(tokenizer))
        codec = TextCodec(tokenizer)
        examples, left_out = text_examples(load_corpus(corpus, "train"), codec, layout, source)
        tell_set_aside(left_out, "training of multiple choice", "question")
        if is_main():
            tokenizer.save_pretrained(out)
        card: dict[str, Any] = {"what": "multiple choice on words", "source": source, "start": begun} | licences(
            corpus, options.text_encoder, start
        )
        evaluation = choice_evaluation(corpus, options, model, layout, lambda data: text_examples(data, codec, layout, source))
        card |= {"corpus": corpus_card(corpus), "left_out": len(left_out)}
        _fit(model, examples, layout, options, out, card, evaluation)


def train_choice_speechbert(corpus: Path, out: Path, system: SpeechBertSystem, start: Path, options: ChoiceOptions) -> None:
    """Train on the spoken multiple-choice questions of the train split, as audio words; once.

    system: SpeechBERT, as it will cut words when questions are answered; its text encoder, in the folder `start`, is trained. Codes
    are kept in `out`/codes.safetensors until it is done. Questions that lack a recording, or have one without words, are listed and
    left out. Raises InputError where `out` holds a model that was made from other inputs, or there is nothing to learn from.
    """
    _check(options)
    made = {name: value for name, value in system.card.items() if name != "layout"}  # of its spans, which are not used here
    codes, others = out / "codes.safetensors", out / "eval-codes.safetensors"
    inputs = {"data": data_hash(corpus, "train"), "speechbert": made} | held_out_hash(corpus, options.evaluation)
    with stage(out, inputs, settings(options), grows=GROWS) as step:
        if step.done:
            for path in (codes, others):
                path.unlink(missing_ok=True)
            return
        layout, data = _layout(options, CLS, SEP, PAD), load_corpus(corpus, "train")
        model = _start_from(start, options)
        check_positions(model.encoder, layout, str(start), "--max-question")  # before hours of audio are encoded
        recordings = choice_recordings(data)
        with main_first():
            encoded = encode_recordings(system, recordings, codes)
        model.embedding = CodeEmbedding(model.embedding)
        model.embedding.codes, examples, left_out = code_examples(data, encoded, layout)
        tell_set_aside(left_out, "training of multiple choice", "question")
        card: dict[str, Any] = {"what": "multiple choice on audio words", "speechbert": made, "left_out": len(left_out)}
        card |= {"text_encoder": read_json(start / "card.json").get("text_encoder")}  # not that of the options
        card |= licences(corpus, start=start)

        def coded(data: Corpus) -> tuple[torch.Tensor, list[ChoiceExample], dict[str, str]]:
            with main_first():
                found = encode_recordings(system, choice_recordings(data), others)
            return code_examples(data, found, layout)

        evaluation = choice_evaluation(corpus, options, model, layout, coded)
        _fit(model, examples, layout, options, out, card | {"corpus": corpus_card(corpus)}, evaluation)
        for path in (codes, others):
            path.unlink(missing_ok=True)


def choice_evaluation(
    corpus: Path,
    options: ChoiceOptions,
    model: ChoiceModel,
    layout: Layout,
    read: Callable[[Corpus], Examples | tuple[torch.Tensor, list[ChoiceExample], dict[str, str]]],
) -> Evaluation | None:
    """Set accuracy on held-out questions; None without --eval-every. read: a corpus -> its examples, and of audio words their codes
    before them, which the model has while it is evaluated. Questions that cannot be read count as wrong, as in evaluation.

    Raises InputError where there are none.
    """
    if (data := held_out(corpus, options.evaluation)) is None:
        return None
    data = asked(data, data.choices, options.evaluation, "options and a right one")
    found: Any = read(data)
    *codes, examples, left_out = found
    tell_set_aside(left_out, "evaluation while training", "question")
    items = {str(n): example.choice for n, example in enumerate(examples)}

    def score() -> float:
        trained_on = getattr(model.embedding, "codes", None)
        if codes:
            model.embedding.codes = codes[0]
        reader = ChoiceReader(model, layout, device=str(next(model.parameters()).device))
        scores = answer_in_batches(reader.score_many, items, 16)
        if codes:
            model.embedding.codes = trained_on
        right = [chosen(s, len(e.correct)) == tuple(sorted(e.correct)) for s, e in zip(scores.values(), examples, strict=True)]
        return sum(right) / len(data.choices)

    return Evaluation(options.evaluation, "set_accuracy", len(data.choices), score)


def _check(options: ChoiceOptions) -> None:
    check_share(options.batch)
    if options.combine not in COMBINATIONS:
        raise InputError(f"there is no combination {options.combine!r}; choose one of {', '.join(COMBINATIONS)}")
    if not 1 <= options.stride <= options.window:
        raise InputError(
            f"windows of {options.window} tokens {options.stride} apart leave gaps; give a --stride of at most --window"
        )


def _layout(options: ChoiceOptions, cls: int, sep: int, pad: int) -> Layout:
    return Layout(cls, sep, pad, size=options.window, stride=options.stride, question=options.asked)


def _start_from(start: Path, options: ChoiceOptions) -> ChoiceModel:
    """From a model of choices with its head, where it combines windows alike; from any other with its encoder and table."""
    if (combine := read_json(start / "card.json").get("combine")) is None:
        reader, _, _ = load_reader(start)
        return _with_head(reader.encoder, reader.embedding, options).train().requires_grad_(True)
    model, _, _ = load_choice(start)
    if combine != options.combine:
        model = _with_head(model.encoder, model.embedding, options)
    return model.train().requires_grad_(True)


def _with_head(encoder: PreTrainedModel, table: nn.Embedding, options: ChoiceOptions) -> ChoiceModel:
    torch.manual_seed(options.training.seed)
    return ChoiceModel(encoder, table, options.combine)


def _fit(
    model: ChoiceModel,
    examples: Sequence[ChoiceExample],
    layout: Layout,
    options: ChoiceOptions,
    out: Path,
    card: dict[str, Any],
    evaluation: Evaluation | None,
) -> None:
    if not examples:
        raise InputError("the train split has no usable multiple-choice question; prepare the corpus with some")
    batches = ChoiceBatches(examples, layout, options.batch, options.windows, options.training.seed, options.noise)
    card |= {"combine": options.combine, "examples": len(examples)}
    fit_reader(model, batches, layout, options, out, card, "--max-question", evaluation)
