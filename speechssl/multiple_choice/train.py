"""This module trains multiple choice. The model is the same on units, on words and on audio words,
which are here called its symbols."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from speechssl.artifacts import CARD, begin_stage, read_json
from speechssl.cascade.model import CtcRecogniser
from speechssl.data.records import Corpus, load_corpus
from speechssl.dual.data import Layout, read_unit_source
from speechssl.dual.fitting import (
    STEPS,
    answer_in_batches,
    collect_reader_facts,
    describe_run,
    fit_reader,
    hash_inputs,
    hash_splits,
    load_held_out,
    save_trained,
    select_questions,
    sweep_learning_rates,
    train_seen_tokens,
)
from speechssl.dual.model import load_reader
from speechssl.dual.train import check_start_units, load_held_out_units, make_unit_encoder
from speechssl.encoders.encoder import SharedEncoder
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.multiple_choice.data import (
    ChoiceBatches,
    ChoiceExample,
    encode_recordings,
    find_recordings,
    make_code_examples,
    make_text_examples,
    make_unit_examples,
)
from speechssl.multiple_choice.model import (
    ChoiceModel,
    ChoiceReader,
    choose_options,
    is_choice,
    load_choice,
)
from speechssl.multiple_choice.options import ChoiceOptions, TrainChoice
from speechssl.options import find_shipped, select_settings
from speechssl.processes import is_main
from speechssl.speechbert.data import CLS, PAD, SEP
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import SpeechBertSystem, load_speechbert
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.symbols import list_specials
from speechssl.textlm.tokenizers import TextCodec, find_special_tokens, load_tokenizer
from speechssl.training import Evaluation, check_share

SPLIT = "train"
# folders in OUT with the audio words of the training and of the evaluation, until it is done
CODES = "codes"
EVAL_CODES = "eval-codes"


def train_choice(o: TrainChoice) -> None:
    """Train (once) on the multiple-choice questions of the train split: on audio words with
    `o.speechbert`, on units with `o.units`, else on words.

    Questions whose recordings or texts are missing are listed and left out. Raises InputError where
    OUT holds a model that was made from other inputs, no question is left, or `o.start` reads other
    units.
    """
    if o.learning_rates:
        sweep_learning_rates(o, train_choice)
        return
    check_share(o.qa.batch)
    o = replace(
        o,
        start=find_shipped(o.start),
        speechbert=find_shipped(o.speechbert),
        ctc=find_shipped(o.ctc),
    )
    symbols: Symbols
    if o.speechbert:
        symbols = AudioWordSymbols(o)
    elif o.units:
        symbols = UnitSymbols(o)
    else:
        symbols = WordSymbols(o)
    with begin_stage(o.out, symbols.made_from, select_settings(o.qa), grows=STEPS) as step:
        if not step.done:
            model, layout, metrics = fit_choice(o, symbols)
            facts = collect_reader_facts(o, symbols.made_from, symbols.text_encoder, symbols.start)
            card = facts | symbols.card | metrics
            card["what"] = symbols.what
            questions = load_corpus(o.corpus, SPLIT).questions
            save_trained(o.out, model, layout, card, questions, symbols.start)
        for name in (CODES, EVAL_CODES):
            shutil.rmtree(o.out / name, ignore_errors=True)
    print(f"{o.out}: {symbols.what}{describe_run(o.out)}")


def fit_choice(o: TrainChoice, symbols: Symbols) -> tuple[ChoiceModel, Layout, dict[str, Any]]:
    """Train a model of choices. Returns it with its layout and the metrics of its training."""
    data = load_corpus(o.corpus, SPLIT)
    model, layout = symbols.begin()
    codes, examples, left_out = symbols.make_examples(data, layout)
    report_set_aside(left_out, "training of multiple choice", "question")
    if not examples:
        raise InputError(
            "the train split has no usable multiple-choice question; prepare the corpus with some"
        )
    if codes is not None:
        model.embedding.codes = codes
    evaluation = make_evaluation(o, symbols, model, layout)
    batches = ChoiceBatches(examples, layout, o.qa)
    parts = []
    for e in examples:
        parts += [e.choice.question, *e.choice.options, e.choice.passage]
    # audio words have codes, and a unit may be replaced by any other
    reads_words = isinstance(symbols, WordSymbols)
    with train_seen_tokens(model, layout, parts) if reads_words else nullcontext():
        metrics = fit_reader(model, batches, layout, o.qa, o.out / "checkpoints", evaluation)
    return model, layout, metrics | {"examples": len(examples), "left_out": len(left_out)}


# ---- kinds of symbols: each class has the facts for the card, begins a model, and makes examples

# codes of audio words (None for other symbols), examples, and, id -> reason, the questions that
# are left out
Examples = tuple[torch.Tensor | None, list[ChoiceExample], dict[str, str]]


class UnitSymbols:
    """The symbols are units of recordings. `o.start` may name a reader of the same units, of spans
    or of choices."""

    what = "multiple choice on units"

    def __init__(self, o: TrainChoice) -> None:
        assert o.units is not None
        self.o = o
        self.start = o.start
        self.folder = o.units
        self.source = read_unit_source(o.units / SPLIT, o.corpus)
        facts = {"units": self.source.made_from, "assignment": o.assignment}
        self.made_from = hash_inputs(o, SPLIT) | facts
        self.card = facts | {"codebooks": list(self.source.codebooks)}
        self.text_encoder = None if o.assignment == "scratch" else o.qa.text_encoder

    def begin(self) -> tuple[ChoiceModel, Layout]:
        o, symbols = self.o, self.source.symbols
        if o.start:
            check_start_units(o.start, self.source)
            model = load_start(o.start, o.qa)
        else:
            seed = o.qa.training.seed
            encoder = make_unit_encoder(o.qa.text_encoder, symbols, o.assignment, seed)
            model = make_choice_model(*encoder, o.qa)
        return model, make_layout(o.qa, *list_specials(symbols))

    def make_examples(self, data: Corpus, layout: Layout) -> Examples:
        runs = load_held_out_units(self.o.corpus, self.folder, self.source, data.split)
        return None, *make_unit_examples(data, runs, layout)


class WordSymbols:
    """The symbols are word pieces of texts. `o.start` may name a reader of words, of spans or of
    choices, with its tokeniser."""

    what = "multiple choice on words"

    def __init__(self, o: TrainChoice) -> None:
        self.o = o
        self.start = o.start
        self.text_encoder = o.qa.text_encoder
        self.card = {"read": o.read}
        self.made_from = hash_inputs(o, SPLIT) | self.card

    def begin(self) -> tuple[ChoiceModel, Layout]:
        """Make or load the model; the tokeniser is saved in OUT."""
        o = self.o
        if o.start:
            model = load_start(o.start, o.qa)
            tokenizer = load_tokenizer(o.start)
        else:
            encoder, tokenizer = load_text_encoder(o.qa.text_encoder)
            rows = encoder.get_input_embeddings().weight.detach()
            table = nn.Embedding.from_pretrained(rows.clone(), freeze=False)
            model = make_choice_model(encoder, table, o.qa)
        if is_main():
            tokenizer.save_pretrained(o.out)
        self.codec = TextCodec(tokenizer)
        return model, make_layout(o.qa, *find_special_tokens(tokenizer))

    def make_examples(self, data: Corpus, layout: Layout) -> Examples:
        return None, *make_text_examples(data, self.codec, layout, self.o.read)


class AudioWordSymbols:
    """The symbols are audio words, cut as in answering; SpeechBERT's text encoder is trained
    further. Codes are kept in OUT until training is done."""

    what = "multiple choice on audio words"

    def __init__(self, o: TrainChoice) -> None:
        assert o.speechbert is not None
        self.o = o
        self.start = o.speechbert
        self.system = load_system(o)
        # the layout is of SpeechBERT's spans, which are not used here
        facts = {name: self.system.card[name] for name in self.system.card if name != "layout"}
        inputs = hash_splits(o.corpus, SPLIT, o.qa.evaluation)
        self.made_from = inputs | {"speechbert": facts}
        self.text_encoder = None  # the licences are those of `start`
        self.card = {
            "speechbert": facts,
            "text_encoder": read_json(self.start / CARD).get("text_encoder"),
        }

    def begin(self) -> tuple[ChoiceModel, Layout]:
        model = load_start(self.start, self.o.qa)
        model.embedding = CodeEmbedding(model.embedding)
        return model, make_layout(self.o.qa, CLS, SEP, PAD)

    def make_examples(self, data: Corpus, layout: Layout) -> Examples:
        folder = self.o.out / (CODES if data.split == SPLIT else EVAL_CODES)
        encoded = encode_recordings(self.system, find_recordings(data), folder)
        return make_code_examples(data, encoded, layout)


def load_system(o: TrainChoice) -> SpeechBertSystem:
    """Load SpeechBERT with its encoder and its recogniser, which share the layers of a
    recording."""
    assert o.speechbert and o.encoder and o.ctc
    encoder = SharedEncoder(load_encoder(o.encoder))
    return load_speechbert(o.speechbert, encoder, CtcRecogniser.load(o.ctc, encoder))


Symbols = UnitSymbols | WordSymbols | AudioWordSymbols


# ---- models and their evaluation


def make_layout(options: ChoiceOptions, cls: int, sep: int, pad: int) -> Layout:
    return Layout(cls, sep, pad, options.window, options.stride, options.max_question)


def load_start(start: Path, options: ChoiceOptions) -> ChoiceModel:
    """Load a model to train further: a model of choices whole, of any other reader the encoder and
    the embedding table."""
    if is_choice(read_json(start / CARD)):
        model, _, _ = load_choice(start)
    else:
        reader, _, _ = load_reader(start)
        model = make_choice_model(reader.encoder, reader.embedding, options)
    return model.train().requires_grad_(True)


def make_choice_model(
    encoder: PreTrainedModel, table: nn.Embedding, options: ChoiceOptions
) -> ChoiceModel:
    """Make a model of choices, whose head is initialised by the seed."""
    torch.manual_seed(options.training.seed)
    return ChoiceModel(encoder, table)


def make_evaluation(
    o: TrainChoice, symbols: Symbols, model: ChoiceModel, layout: Layout
) -> Evaluation | None:
    """Make the evaluation by set accuracy on held-out questions; None without --eval-every.
    Questions that cannot be read count as wrong. Raises InputError where there are none."""
    data = load_held_out(o.corpus, o.qa.evaluation)
    if data is None:
        return None
    data = select_questions(data, data.choices, o.qa.evaluation, "options and a right one")
    codes, examples, left_out = symbols.make_examples(data, layout)
    report_set_aside(left_out, "evaluation while training", "question")
    items = {str(n): example.choice for n, example in enumerate(examples)}

    def score() -> float:
        training_codes = getattr(model.embedding, "codes", None)
        if codes is not None:
            model.embedding.codes = codes
        answers = answer_in_batches(ChoiceReader(model, layout).score_many, items, 16)
        if codes is not None:
            model.embedding.codes = training_codes
        exact = 0
        for scores, example in zip(answers.values(), examples, strict=True):
            chosen = choose_options(scores, len(example.correct))
            exact += chosen == tuple(sorted(example.correct))
        return exact / len(data.choices)

    return Evaluation(o.qa.evaluation, "set_accuracy", len(data.choices), score)
