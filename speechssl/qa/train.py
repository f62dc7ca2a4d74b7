"""Training of span models: DUAL on units, the cascade's text QA on words. Both are the same reader on other symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from speechssl.artefacts import claim, read_json
from speechssl.corpora.records import Corpus, Question, data_hash, load_corpus
from speechssl.errors import InputError
from speechssl.qa.cascade import TextCodec, text_example
from speechssl.qa.dual import example
from speechssl.qa.reader import Example, ExampleBatches, Layout, ShortFirst, SpanModel
from speechssl.qa.weights import load_reader, save_reader
from speechssl.textlm.mapping import special_ids, symbol_encoder
from speechssl.textlm.pretrained import load_text_encoder, without_dropout
from speechssl.timing import FrameGrid
from speechssl.training import TrainingOptions, fit
from speechssl.units.extract import load_units


@dataclass(frozen=True)
class QaOptions:
    """How a span model is trained."""

    training: TrainingOptions
    text_encoder: str = "minilm"
    batch: int = 16
    empty: float = 0.1  # share of windows without the answer
    window: int = 320  # passage tokens
    stride: int = 160
    answer: int = 275  # longest answer in tokens
    dropout: bool = False
    short_window: int = 0  # passage tokens a window in the first `short_steps` steps; 0: none
    short_steps: int = 0
    noise: float = 0.0  # share of units replaced by random ones (DUAL)


def train_dual(
    corpus: Path,
    units: Path,
    out: Path,
    grid: FrameGrid,
    symbols: int,
    assignment: str,
    options: QaOptions,
    start: Path | None = None,
) -> None:
    """Train DUAL's reader on the answerable questions of the train split; once.

    units: the folder of `speechssl units extract`; symbols: K; start: a reader of the same units to go on from, in the place of a
    text encoder. Questions whose audio gave no units are left out and counted.
    Raises InputError where `out` holds a reader that was made from other inputs, or `start` one for other units.
    """
    made = read_json(units / "train.card.json")["made_from"]
    begun = read_json(start / "card.json").get("weights") if start else None
    claim(out, _made_from(corpus, options) | {"units": made, "assignment": assignment, "start": begun})
    if (out / "card.json").is_file():
        return
    data = load_corpus(corpus, "train")
    sequences = load_units(units / "train.safetensors")
    examples = dual_examples(data, sequences, grid)
    model = _go_on(start, made) if start else _new(options, symbols, assignment)
    layout = _layout(options, *special_ids(symbols))
    card = {"what": "DUAL reader", "assignment": assignment, "units": made, "corpus": read_json(corpus / "card.json")}
    card |= {"start": begun} if start else {}
    _train(model, examples, layout, options, out, card | {"left_out": len(data.answerable) - len(examples)})


def _new(options: QaOptions, symbols: int, assignment: str) -> SpanModel:
    model, tokenizer = load_text_encoder(options.text_encoder)
    encoder, table = symbol_encoder(model, tokenizer, symbols, assignment, options.training.seed)
    torch.manual_seed(options.training.seed)
    return SpanModel(encoder, table)


def _go_on(start: Path, units: dict[str, Any]) -> SpanModel:
    """A trained reader, to be trained further."""
    model, _, card = load_reader(start)
    if card.get("units") != units:
        raise InputError(f"the reader {start} was trained on other units; start from one of these units, or from none")
    return model.train().requires_grad_(True)


def dual_examples(data: Corpus, units: dict[str, Any], grid: FrameGrid) -> list[Example]:
    """One example a question: the first annotation with times."""
    found = []
    for question in data.answerable:
        answer = next((a for a in question.answers if a.start is not None and a.end is not None), None)
        if answer is None or question.id not in units or question.passage not in units:
            continue
        assert answer.start is not None and answer.end is not None
        found.append(example(grid, units[question.id], units[question.passage], answer.start, answer.end))
    return found


def train_text(corpus: Path, out: Path, options: QaOptions) -> None:
    """Train the cascade's text QA on the words of the train split; once. The tokeniser is saved beside the model.

    Raises InputError where `out` holds a reader that was made from other inputs.
    """
    claim(out, _made_from(corpus, options))
    if (out / "card.json").is_file():
        return
    model, tokenizer = load_text_encoder(options.text_encoder)
    codec = TextCodec(tokenizer)
    examples = text_examples(load_corpus(corpus, "train"), codec)
    rows = model.get_input_embeddings().weight.detach()
    table = nn.Embedding.from_pretrained(rows.clone(), freeze=False)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.sep_token_id
    layout = _layout(options, tokenizer.cls_token_id, tokenizer.sep_token_id, pad)
    torch.manual_seed(options.training.seed)
    tokenizer.save_pretrained(out)
    card = {"what": "text QA", "text_encoder": options.text_encoder, "corpus": read_json(corpus / "card.json")}
    _train(SpanModel(model, table), examples, layout, options, out, card)


def text_examples(data: Corpus, codec: TextCodec) -> list[Example]:
    """One example a question, from the manifest's words."""
    found = []
    for question in data.answerable:
        passage = data.passages[question.passage]
        words = [w.text for w in passage.words]
        first, last = _answer_words(question, [w.start for w in passage.words], [w.end for w in passage.words])
        made = text_example(codec, question.text.split(), words, first, last)
        if made is not None:
            found.append(made)
    return found


def _answer_words(question: Question, starts: Sequence[float], ends: Sequence[float]) -> tuple[int, int]:
    """Words that lie in the first annotation's time, by their middles."""
    answer = question.answers[0]
    if answer.start is None or answer.end is None:
        raise InputError(f"question {question.id} has no answer times; text QA is trained on words with times")
    middles = (np.asarray(starts) + np.asarray(ends)) / 2
    inside = np.flatnonzero((middles >= answer.start) & (middles < answer.end))
    if not len(inside):
        raise InputError(
            f"passage {question.passage} has no word in the answer of question {question.id}; text QA needs word times"
        )
    return int(inside[0]), int(inside[-1])


def _made_from(corpus: Path, options: QaOptions) -> dict[str, Any]:
    return {"data": data_hash(corpus, "train"), "options": asdict(options)}


def _layout(options: QaOptions, cls: int, sep: int, pad: int) -> Layout:
    if not 1 <= options.stride <= options.window or options.short_window > options.window:
        raise InputError(
            f"windows of {options.window} tokens {options.stride} apart (short ones: {options.short_window}) leave gaps; "
            f"give --stride and --short-window of at most --window"
        )
    return Layout(cls, sep, pad, size=options.window, stride=options.stride, answer=options.answer)


def _train(
    model: SpanModel,
    examples: Sequence[Example],
    layout: Layout,
    options: QaOptions,
    out: Path,
    card: dict[str, Any],
) -> None:
    if not examples:
        raise InputError("the train split has no answerable question with times; there is nothing to train on")
    if not options.dropout:
        without_dropout(model.encoder)
    longest = getattr(model.encoder.config, "max_position_embeddings", None)
    if longest is not None and layout.size + layout.question + 3 > longest:
        raise InputError(
            f"a window of {layout.size} tokens with a question of up to {layout.question} does not fit into the {longest} "
            f"positions of {options.text_encoder}; give a smaller --window"
        )
    result = fit(model, _batches(examples, layout, options), options.training, out / "checkpoints")
    facts = {"options": asdict(options), "examples": len(examples), "training": result}
    save_reader(out, model, layout, card | facts)


def _batches(examples: Sequence[Example], layout: Layout, options: QaOptions) -> ExampleBatches | ShortFirst:
    seed, symbols = options.training.seed, min(layout.cls, layout.sep, layout.pad)
    whole = ExampleBatches(examples, layout, options.batch, options.empty, seed, options.noise, symbols)
    if not (options.short_window and options.short_steps):
        return whole
    size = options.batch * options.window // options.short_window
    short = replace(whole, layout=replace(layout, size=options.short_window), size=size)
    return ShortFirst(short, whole, options.short_steps)
