"""Training of multiple choice, on units, on words or on audio words: the same model on other symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.cascade.system import TextCodec
from speechssl.data.records import Corpus, Passage, Question, data_hash, load_corpus
from speechssl.dual.model import Layout
from speechssl.dual.train import recompute, unit_source
from speechssl.dual.weights import load_reader, save_reader
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import claim, read_json
from speechssl.multiple_choice.data import ChoiceBatches, ChoiceExample
from speechssl.multiple_choice.model import COMBINATIONS, Choice, ChoiceModel, load_choice
from speechssl.multiple_choice.speechbert import CodeChoice, choice_recordings, code_examples, encode_recordings
from speechssl.processes import agreed, is_main, main_first
from speechssl.speechbert.model import CLS, PAD, SEP
from speechssl.speechbert.system import SpeechBertSystem
from speechssl.text import pieces
from speechssl.textlm.encoders import load_text_encoder, longest_sequence, without_dropout
from speechssl.textlm.symbols import special_ids, symbol_encoder
from speechssl.timing import RunLength
from speechssl.trainer import TrainingOptions, check_share, fit
from speechssl.units.storage import load_units

SOURCES = ("text", "given")  # what is written of a record: what was said, or what came with the corpus as a recogniser's output


@dataclass(frozen=True)
class ChoiceOptions:
    """How multiple choice is trained."""

    training: TrainingOptions
    text_encoder: str = "minilm"
    combine: str = "attention"
    batch: int = 4  # questions
    windows: int = 2  # a question in a step; 0: all
    window: int = 320  # passage tokens
    stride: int = 160
    asked: int = 160  # tokens of question and option together
    dropout: bool = False
    noise: float = 0.0  # share of units replaced by random ones
    gradient_checkpointing: bool = False  # as `QaOptions` has it


def train_choice_units(
    corpus: Path,
    units: Path,
    out: Path,
    assignment: str,
    options: ChoiceOptions,
    start: Path | None = None,
) -> None:
    """Train on the spoken multiple-choice questions of the train split; once.

    units: the folder of `speechssl units extract`; start: a reader of the same units to go on from, of spans or of choices, in the
    place of a text encoder. Questions whose recordings gave no units are listed and left out.
    Raises InputError as `train_dual` does.
    """
    _check(options)
    source = unit_source(units / "train", corpus)
    made = source.made_from
    begun = _weights(start)
    with claim(out, _made_from(corpus, options) | {"units": made, "assignment": assignment, "start": begun}):
        if agreed((out / "card.json").is_file()):
            return
        layout = _layout(options, *special_ids(source.symbols))
        examples, left_out = unit_examples(load_corpus(corpus, "train"), load_units(units / "train"), layout)
        tell_set_aside(left_out, "training of multiple choice", "question")
        if start:
            _check_same_units(start, source.codebooks)
        model = _go_on(start, options) if start else _new_units(options, source.symbols, assignment)
        card = {"what": "multiple choice on units", "assignment": assignment, "units": made, "left_out": len(left_out)}
        _train(model, examples, layout, options, out, card | {"corpus": read_json(corpus / "card.json"), "start": begun})


def train_choice_text(corpus: Path, out: Path, options: ChoiceOptions, source: str = "text", start: Path | None = None) -> None:
    """Train on what is written of the multiple-choice questions of the train split; once. The tokeniser is saved beside the model.

    source: `text`, or `given` for the transcripts that come with the corpus; start: a reader of words to go on from, of spans or of
    choices, with its tokeniser. Raises InputError where `out` holds a model that was made from other inputs, nothing is written of
    the questions, or the start has no tokeniser.
    """
    _check(options)
    begun = _weights(start)
    with claim(out, _made_from(corpus, options) | {"source": source, "start": begun}):
        if agreed((out / "card.json").is_file()):
            return
        model, tokenizer = _from(start, options) if start else _new_text(options)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.sep_token_id
        layout = _layout(options, tokenizer.cls_token_id, tokenizer.sep_token_id, pad)
        examples, left_out = text_examples(load_corpus(corpus, "train"), TextCodec(tokenizer), layout, source)
        tell_set_aside(left_out, "training of multiple choice", "question")
        if is_main():
            tokenizer.save_pretrained(out)
        card = {"what": "multiple choice on words", "source": source, "left_out": len(left_out)}
        _train(model, examples, layout, options, out, card | {"corpus": read_json(corpus / "card.json"), "start": begun})


def train_choice_speechbert(corpus: Path, out: Path, system: SpeechBertSystem, start: Path, options: ChoiceOptions) -> None:
    """Train on the spoken multiple-choice questions of the train split, as audio words; once.

    system: SpeechBERT, as it will cut words when questions are answered; its text encoder, in the folder `start`, is
    trained. Codes are kept in `out`/codes.safetensors until it is done. Questions that lack a recording, or have one without words,
    are listed and left out.
    Raises InputError where `out` holds a model that was made from other inputs, or there is nothing to learn from.
    """
    _check(options)
    made = dict(system.card)
    with claim(out, _made_from(corpus, options) | {"speechbert": made}):
        if agreed((out / "card.json").is_file()):
            (out / "codes.safetensors").unlink(missing_ok=True)
            return
        layout, data = _layout(options, CLS, SEP, PAD), load_corpus(corpus, "train")
        model = _go_on(start, options)
        _check_length(model.encoder, layout)  # before hours of audio are encoded
        recordings = choice_recordings(data)
        with main_first():
            heard = encode_recordings(system, recordings, out / "codes.safetensors")
        codes, examples, left_out = code_examples(data, heard, layout)
        tell_set_aside(left_out, "training of multiple choice", "question")
        card = {"what": "multiple choice on audio words", "speechbert": made, "left_out": len(left_out)}
        card |= {"text_encoder": read_json(start / "card.json").get("text_encoder")}  # not that of the options
        _train(model, examples, layout, options, out, card | {"corpus": read_json(corpus / "card.json")}, CodeChoice(model, codes))
        (out / "codes.safetensors").unlink(missing_ok=True)


def unit_examples(data: Corpus, units: Mapping[str, RunLength], layout: Layout) -> tuple[list[ChoiceExample], dict[str, str]]:
    """One example a question; and the questions left out: id -> why."""

    def tokens(question: Question) -> Choice | str:
        names = (question.id, question.passage, *question.option_ids)
        if missing := [name for name in names if name not in units]:
            return f"no units of {missing[0]}"
        said = tuple(units[name].units for name in question.option_ids)
        return Choice(units[question.id].units, said, units[question.passage].units)

    return _examples(data, tokens, layout)


def text_examples(data: Corpus, codec: TextCodec, layout: Layout, source: str) -> tuple[list[ChoiceExample], dict[str, str]]:
    """One example a question; and the questions left out: id -> why. Raises InputError for an unknown source."""
    if source not in SOURCES:
        raise InputError(f"there is no source {source!r} of what is written; choose one of {', '.join(SOURCES)}")

    def tokens(question: Question) -> Choice | str:
        passage = data.passages[question.passage]
        read = written(passage, source)
        if not read:
            return f"passage {passage.id} has no {'text' if source == 'text' else 'transcript'}"
        return text_choice(codec, written(question, source), question.options, read, question.language)

    return _examples(data, tokens, layout)


def written(record: Passage | Question, source: str) -> str:
    """What is written of a record. Questions of corpora that transcribe their passages only are read as they are asked."""
    if source == "text":
        return record.text
    return record.transcript or (record.text if isinstance(record, Question) else "")


def text_choice(codec: TextCodec, question: str, options: Sequence[str], passage: str, language: str) -> Choice:
    """From what is written to token ids."""
    asked, *said, read = (codec.encode([word for word, _ in pieces(text, language)])[0] for text in (question, *options, passage))
    return Choice(asked, tuple(said), read)


def _examples(
    data: Corpus, tokens: Callable[[Question], Choice | str], layout: Layout
) -> tuple[list[ChoiceExample], dict[str, str]]:
    found, left_out = [], {}
    for question in data.choices:
        made = tokens(question)
        if isinstance(made, str):
            left_out[question.id] = made
        else:
            found.append(ChoiceExample.of(made, question.correct, layout))
    return found, left_out


def _made_from(corpus: Path, options: ChoiceOptions) -> dict[str, Any]:
    unused = {"gradient_checkpointing": False}.items()  # as in `qa/train.py`
    return {"data": data_hash(corpus, "train"), "options": dict(o for o in asdict(options).items() if o not in unused)}


def _weights(start: Path | None) -> str | None:
    return read_json(start / "card.json").get("weights") if start else None


def _layout(options: ChoiceOptions, cls: int, sep: int, pad: int) -> Layout:
    return Layout(cls, sep, pad, size=options.window, stride=options.stride, question=options.asked)


def _check(options: ChoiceOptions) -> None:
    check_share(options.batch)
    if options.combine not in COMBINATIONS:
        raise InputError(f"there is no combination {options.combine!r}; choose one of {', '.join(COMBINATIONS)}")
    if not 1 <= options.stride <= options.window:
        raise InputError(
            f"windows of {options.window} tokens {options.stride} apart leave gaps; give a --stride of at most --window"
        )


def _check_same_units(start: Path, codebooks: Sequence[str]) -> None:
    """Of any corpus: units of one codebook, or of one that it was carried over from, mean the same."""
    before = read_json(start / "card.json").get("units")
    if not isinstance(before, dict) or before.get("codebook") not in codebooks:
        raise InputError(f"the reader {start} was trained on other units; start from one of these units, or from none")


def _new_units(options: ChoiceOptions, symbols: int, assignment: str) -> ChoiceModel:
    model, tokenizer = load_text_encoder(options.text_encoder)
    encoder, table = symbol_encoder(model, tokenizer, symbols, assignment, options.training.seed)
    return _with_head(encoder, table, options)


def _new_text(options: ChoiceOptions) -> tuple[ChoiceModel, PreTrainedTokenizerBase]:
    model, tokenizer = load_text_encoder(options.text_encoder)
    rows = model.get_input_embeddings().weight.detach()
    return _with_head(model, nn.Embedding.from_pretrained(rows.clone(), freeze=False), options), tokenizer


def _go_on(start: Path, options: ChoiceOptions) -> ChoiceModel:
    """From a model of choices with its head, where it combines windows alike; from any other with its encoder and table."""
    if (combine := read_json(start / "card.json").get("combine")) is None:
        reader, _, _ = load_reader(start)
        return _with_head(reader.encoder, reader.embedding, options).train().requires_grad_(True)
    model, _, _ = load_choice(start)
    if combine != options.combine:
        model = _with_head(model.encoder, model.embedding, options)
    return model.train().requires_grad_(True)


def _from(start: Path, options: ChoiceOptions) -> tuple[ChoiceModel, PreTrainedTokenizerBase]:
    model = _go_on(start, options)
    return model, load_tokenizer(start, model.embedding.num_embeddings)


def _with_head(encoder: PreTrainedModel, table: nn.Embedding, options: ChoiceOptions) -> ChoiceModel:
    torch.manual_seed(options.training.seed)
    return ChoiceModel(encoder, table, options.combine)


def load_tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerBase:
    """Of a model of words with so many rows. transformers makes an empty one where files are missing; its ids mean nothing."""
    if not (folder / "tokenizer_config.json").is_file():
        raise InputError(f"{folder} has no tokeniser (tokenizer_config.json); give a model of words, or train it again")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder} has no tokeniser that can be read; give a model of words, or train it again") from error
    if not rows - 256 < len(tokenizer) <= rows:  # some tables are padded to a round number
        raise InputError(f"the tokeniser in {folder} has {len(tokenizer)} entries and its model {rows}; give a model of words")
    return tokenizer


def _train(
    model: ChoiceModel,
    examples: Sequence[ChoiceExample],
    layout: Layout,
    options: ChoiceOptions,
    out: Path,
    card: dict[str, Any],
    fitted: nn.Module | None = None,
) -> None:
    """fitted: what the batches are given to, where that is not the model itself, which is what is saved."""
    if not examples:
        raise InputError("the train split has no multiple-choice question that can be used; there is nothing to train on")
    if not options.dropout:
        without_dropout(model.encoder)
    if options.gradient_checkpointing:
        recompute(model.encoder, options.text_encoder)
    _check_length(model.encoder, layout)
    symbols = min(layout.cls, layout.sep, layout.pad)
    batches = ChoiceBatches(examples, layout, options.batch, options.windows, options.training.seed, options.noise, symbols)
    result = fit(fitted or model, batches, options.training, out / "checkpoints")
    facts = {"combine": options.combine, "options": asdict(options), "examples": len(examples), "training": result}
    with main_first():
        if is_main():
            save_reader(out, model, layout, card | facts)  # type: ignore[arg-type]


def _check_length(encoder: PreTrainedModel, layout: Layout) -> None:
    longest = longest_sequence(encoder)
    if longest is not None and layout.size + layout.question + 3 > longest:
        raise InputError(
            f"a window of {layout.size} tokens with a question and an option of up to {layout.question} does not fit into the "
            f"{longest} positions of the text encoder; give a smaller --window or --asked"
        )
