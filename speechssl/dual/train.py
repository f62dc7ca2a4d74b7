"""Training of span models: DUAL on units, the cascade's text QA on words. Both are the same reader on other symbols."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.cascade.system import TextCodec, text_example
from speechssl.data.records import Corpus, Passage, Question, data_hash, load_corpus
from speechssl.dual.decode import END_WEIGHT, MAX_TOKENS, START_WEIGHT
from speechssl.dual.model import Example, ExampleBatches, Layout, ShortFirst, SpanModel
from speechssl.dual.system import example
from speechssl.dual.weights import load_reader, save_reader
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import claim, read_json
from speechssl.processes import agreed, is_main, main_first
from speechssl.text import pieces
from speechssl.textlm.encoders import load_text_encoder, longest_sequence, without_dropout
from speechssl.textlm.symbols import character_encoder, special_ids, subword_units, symbol_encoder
from speechssl.timing import FrameGrid, RunLength
from speechssl.trainer import TrainingOptions, check_share, fit
from speechssl.units.storage import load_units, units_card


@dataclass(frozen=True)
class QaOptions:
    """How a span model is trained."""

    training: TrainingOptions
    text_encoder: str = "minilm"
    batch: int = 16
    empty: float = 0.1  # share of windows without the answer
    window: int = 320  # passage tokens
    stride: int = 160
    answer: int = MAX_TOKENS  # longest answer in tokens
    dropout: bool = False
    short_window: int = 0  # passage tokens a window in the first `short_steps` steps; 0: none
    short_steps: int = 0
    noise: float = 0.0  # share of units replaced by random ones (DUAL)
    subwords: str = "none"  # how words sound, beside what they are: pinyin or phones (text QA)
    characters: bool = False  # the corpus's characters are the vocabulary (text QA)
    split: str = "train"  # what is trained on
    question: int = 120  # tokens of a question that are kept
    gradient_checkpointing: bool = False  # layers are computed twice, and need not be kept: slower, in far less memory


def train_dual(
    corpus: Path,
    units: Path,
    out: Path,
    assignment: str,
    options: QaOptions,
    start: Path | None = None,
) -> None:
    """Train DUAL's reader on the answerable questions of the train split; once.

    units: the folder of `speechssl units extract`, whose card says what made them; start: a reader of the same units to go on from,
    in the place of a text encoder. Questions without times, or whose audio gave no units, are listed and left out.
    Raises InputError where `out` holds a reader that was made from other inputs, `start` one for other units, or the units are not
    those of this corpus.
    """
    check_shares(options)
    source = unit_source(units / options.split, corpus)
    made = source.made_from
    begun = read_json(start / "card.json").get("weights") if start else None
    with claim(out, _made_from(corpus, options) | {"units": made, "assignment": assignment, "start": begun}):
        if agreed((out / "card.json").is_file()):
            return
        layout = layout_of(options, *special_ids(source.symbols))
        layout = replace(layout, start_weight=START_WEIGHT, end_weight=END_WEIGHT)
        data = load_corpus(corpus, options.split)
        examples, left_out = dual_examples(data, load_units(units / options.split), source.grid)
        tell_set_aside(left_out, "DUAL's training", "question")
        model = _go_on(start, source) if start else _new(options, source.symbols, assignment)
        card = {"what": "DUAL reader", "assignment": assignment, "units": made, "corpus": read_json(corpus / "card.json")}
        card |= {"start": begun} if start else {}
        _train(model, examples, layout, options, out, card | {"left_out": len(left_out)})


@dataclass(frozen=True)
class UnitSource:
    """What the card of extracted units says of them. made_from: encoder, layer, codebook, corpus and so on; symbols: K; codebooks:
    hashes of the codebooks whose unit k means the same, the units' own first.
    """

    made_from: dict[str, Any]
    symbols: int
    grid: FrameGrid
    codebooks: tuple[str, ...]


def unit_source(units: Path, corpus: Path) -> UnitSource:
    """units: the folder of a split. Raises InputError where they are of another corpus, or their card does not say."""
    card = units_card(units)
    try:
        source = UnitSource(card["made_from"], int(card["K"]), FrameGrid(**card["grid"]), tuple(card["codebooks"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{units / 'card.json'} does not say what made the units; extract them again") from error
    if source.made_from.get("corpus") != data_hash(corpus, units.name):
        raise InputError(f"the units in {units} were made from another corpus; extract them again")
    return source


def _new(options: QaOptions, symbols: int, assignment: str) -> SpanModel:
    model, tokenizer = load_text_encoder(options.text_encoder)
    encoder, table = symbol_encoder(model, tokenizer, symbols, assignment, options.training.seed)
    torch.manual_seed(options.training.seed)
    return SpanModel(encoder, table)


def _go_on(start: Path, source: UnitSource) -> SpanModel:
    """A reader to be trained further, of the same units (of any corpus) or of those that the codebook was carried over from."""
    model, _, card = load_reader(start)
    check_same_units(start, card, source)
    return model.train().requires_grad_(True)


def check_same_units(start: Path, card: Mapping[str, Any], source: UnitSource) -> None:
    """Raises InputError unless a model was trained on these units, or on those that their codebook was carried over from."""
    before = card.get("units")
    carried = isinstance(before, dict) and before.get("codebook") in source.codebooks[1:]
    same = isinstance(before, dict) and _without_data({"precision": "fp32"} | before) == _without_data(source.made_from)
    if not carried and not same:  # older cards have no precision
        raise InputError(f"the reader {start} was trained on other units; start from one of these units, or from none")


def _without_data(units: dict[str, Any]) -> dict[str, Any]:
    """What makes units from any recording."""
    return {name: value for name, value in units.items() if name not in ("corpus", "split", "passages")}


def dual_examples(data: Corpus, units: Mapping[str, RunLength], grid: FrameGrid) -> tuple[list[Example], dict[str, str]]:
    """One example a question, of the first annotation with times; and the questions left out: id -> why."""
    found, left_out = [], {}
    for question in data.answerable:
        times = first_times(question)
        if times is None:
            left_out[question.id] = "no answer has times"
        elif missing := [name for name in (question.id, question.passage) if name not in units]:
            left_out[question.id] = f"no units of {missing[0]}"
        else:
            found.append(example(grid, units[question.id], units[question.passage], *times))
    return found, left_out


def first_times(question: Question) -> tuple[float, float] | None:
    """Seconds of the first annotation that has them."""
    return next(((a.start, a.end) for a in question.answers if a.start is not None and a.end is not None), None)


def train_text(corpus: Path, out: Path, options: QaOptions) -> None:
    """Train the cascade's text QA on the words of the train split; once. The tokeniser is saved beside the model.

    Questions whose answer has neither times nor an offset with words of the passage there are listed and left out.
    Raises InputError where `out` holds a reader that was made from other inputs.
    """
    check_shares(options)
    with claim(out, _made_from(corpus, options)):
        if agreed((out / "card.json").is_file()):
            return
        data = load_corpus(corpus, options.split)
        encoder, table, tokenizer = _text_encoder(data, options)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.sep_token_id
        layout = layout_of(options, tokenizer.cls_token_id, tokenizer.sep_token_id, pad)
        examples, left_out = text_examples(data, TextCodec(tokenizer))
        tell_set_aside(left_out, "training of text QA", "question")
        torch.manual_seed(options.training.seed)
        model = SpanModel(encoder, table, subword_units(tokenizer, options.subwords, table.num_embeddings, table.embedding_dim))
        if is_main():
            tokenizer.save_pretrained(out)
        card = {"what": "text QA", "text_encoder": options.text_encoder, "corpus": read_json(corpus / "card.json")}
        card |= {"subwords": options.subwords, "characters": options.characters}
        _train(model, examples, layout, options, out, card | {"left_out": len(left_out)})


def _text_encoder(data: Corpus, options: QaOptions) -> tuple[PreTrainedModel, nn.Embedding, PreTrainedTokenizerBase]:
    """Encoder, embedding table and tokeniser: those of the text encoder, or the characters of what is written in the corpus."""
    model, tokenizer = load_text_encoder(options.text_encoder)
    if options.characters:
        texts = [*(p.written for p in data.passages.values()), *(q.written for q in data.questions)]
        return character_encoder(model, tokenizer, texts, options.training.seed)
    rows = model.get_input_embeddings().weight.detach()
    return model, nn.Embedding.from_pretrained(rows.clone(), freeze=False), tokenizer


def text_examples(data: Corpus, codec: TextCodec) -> tuple[list[Example], dict[str, str]]:
    """One example a question, from what is written of its passage; and the questions left out: id -> why.

    The answer's words are those within its times, where words have times; else those at its offset.
    """
    found, left_out = [], {}
    for question in data.answerable:
        passage = data.passages[question.passage]
        words, span = _answer_words(passage, question)
        if span is None:
            left_out[question.id] = f"no word of passage {passage.id} lies within the times, or at the offset, of its answer"
            continue
        asked = [word for word, _ in pieces(question.written, question.language)]
        made = text_example(codec, asked, words, *span)
        if made is None:
            left_out[question.id] = "the tokeniser leaves nothing of its question or answer"
        else:
            found.append(made)
    return found, left_out


def _answer_words(passage: Passage, question: Question) -> tuple[list[str], tuple[int, int] | None]:
    """The passage's words, and the first and last of the answer."""
    times = first_times(question)
    if passage.words and times is not None:
        middles = np.array([(w.start + w.end) / 2 for w in passage.words])
        inside = np.flatnonzero((middles >= times[0]) & (middles < times[1]))
        return [w.text for w in passage.words], (int(inside[0]), int(inside[-1])) if len(inside) else None
    found = pieces(passage.written, passage.language)
    offset = next(((a.char_start, a.char_start + len(a.text)) for a in question.answers if a.char_start is not None), (0, 0))
    touched = [i for i, (word, start) in enumerate(found) if start < offset[1] and start + len(word) > offset[0]]
    return [word for word, _ in found], (touched[0], touched[-1]) if touched else None


def _made_from(corpus: Path, options: QaOptions) -> dict[str, Any]:
    """Options that earlier versions did not have are named where they are used, so that what those began is gone on with."""
    unused = {"subwords": "none", "characters": False, "split": "train", "question": 120, "gradient_checkpointing": False}.items()
    return {"data": data_hash(corpus, options.split), "options": dict(o for o in asdict(options).items() if o not in unused)}


def layout_of(options: QaOptions, cls: int, sep: int, pad: int) -> Layout:
    """Raises InputError for windows that leave gaps between them."""
    if not 1 <= options.stride <= options.window or options.short_window > options.window:
        raise InputError(
            f"windows of {options.window} tokens {options.stride} apart (short ones: {options.short_window}) leave gaps; "
            f"give --stride and --short-window of at most --window"
        )
    return Layout(cls, sep, pad, options.window, options.stride, options.question, options.answer)


def _train(
    model: SpanModel,
    examples: Sequence[Example],
    layout: Layout,
    options: QaOptions,
    out: Path,
    card: dict[str, Any],
) -> None:
    if not examples:
        raise InputError(f"the split {options.split} has no answerable question that can be used; there is nothing to train on")
    if not options.dropout:
        without_dropout(model.encoder)
    check_positions(model, layout, options)
    if options.gradient_checkpointing:
        recompute(model.encoder, options.text_encoder)
    cut = sum(len(e.question) > layout.question for e in examples)
    if cut and is_main():
        tqdm.write(f"{cut} of {len(examples)} questions lose what is beyond {layout.question} tokens (--question)", file=sys.stderr)
    result = fit(model, example_batches(examples, layout, options), options.training, out / "checkpoints")
    facts = {"options": asdict(options), "examples": len(examples), "cut_questions": cut, "training": result}
    with main_first():
        if is_main():
            save_reader(out, model, layout, card | facts)


def check_positions(model: SpanModel, layout: Layout, options: QaOptions) -> None:
    """Raises InputError where a question and a window are longer than what the encoder has positions for."""
    longest = longest_sequence(model.encoder)
    if longest is not None and layout.size + layout.question + 3 > longest:
        raise InputError(
            f"a window of {layout.size} tokens with a question of up to {layout.question} and 3 more does not fit into the "
            f"{longest} positions of {options.text_encoder}; give a smaller --window or --question"
        )


def recompute(encoder: PreTrainedModel, name: str) -> None:
    """Let it compute its layers twice in training, and keep none. Raises InputError for a kind that cannot."""
    if not encoder.supports_gradient_checkpointing:
        raise InputError(f"{name} cannot compute its layers twice; leave out --gradient-checkpointing")
    with warnings.catch_warnings():  # transformers 6 will call it otherwise
        warnings.simplefilter("ignore", FutureWarning)
        encoder.gradient_checkpointing_enable({"use_reentrant": False})


def example_batches(examples: Sequence[Example], layout: Layout, options: QaOptions) -> ExampleBatches | ShortFirst:
    seed, symbols = options.training.seed, min(layout.cls, layout.sep, layout.pad)
    whole = ExampleBatches(examples, layout, options.batch, options.empty, seed, options.noise, symbols)
    if not (options.short_window and options.short_steps):
        return whole
    short = replace(whole, layout=replace(layout, size=options.short_window), size=_short_batch(options))
    return ShortFirst(short, whole, options.short_steps)


def _short_batch(options: QaOptions) -> int:
    """Short windows a batch: as many tokens as in whole ones."""
    return options.batch * options.window // options.short_window


def check_shares(options: QaOptions) -> None:
    check_share(options.batch)
    if options.short_window and options.short_steps:
        check_share(_short_batch(options))
