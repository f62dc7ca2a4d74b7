"""Pre-train a text encoder on artificial data, real text or units, from scratch or continued.

Ids of artificial data become tokens of the vocabulary in a random order; those of unigram and
bigram are tokens of a text already. Units become the tokens that DUAL gives them with the same seed
(`textlm.symbols.assign_tokens`), symbols of a task tokens of their own. Letters: N tokens, V tokens
in a vocabulary, K units.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.artifacts import begin_stage, replace_file
from speechssl.checkpoints import fetch_checkpoint
from speechssl.cli import script
from speechssl.dual.options import BATCH, DROPOUT
from speechssl.errors import InputError
from speechssl.options import BERT, DEVICE, Count, Portion, TrainingOptions, argument, group, option
from speechssl.processes import is_main, main_first
from speechssl.textlm import encoders
from speechssl.textlm.symbols import assign_tokens
from speechssl.textlm.tokenizers import find_special_tokens
from speechssl.training import check_share, fit
from speechssl.units.storage import load_units, read_units_card
from textside import languages, objectives
from textside.data import (
    OF_TEXT,
    Text,
    find_tokens,
    list_plain_ids,
    load_text,
    load_vocabulary,
    make_stream,
    make_symbol_vocabulary,
    tokenise,
    train_vocabulary,
)
from textside.options import LETTERS, Init, Letters, Objective
from textside.runs import describe_encoder, keep_decisive
from textside.tasks import TextTask, load_task

TEXT, UNITS, SYMBOLS, NONE = "text", "units", "symbols", "none"  # --data that is not artificial
SPLIT = "train"  # of units
# options whose values are folders or files: a card has their names alone
PLACES = ("text", "second_text", "units", "second_units", "symbols", "tokenizer", "start", "like")
DATA = (
    "text, units, symbols (of a task), none (random weights), or artificial data: random, "
    "unigram, bigram (as frequent as in --text), nested, flat, flat-D (pairs, at most D places "
    "apart), shuffle-N (runs of N ids), dyck-K (brackets of K kinds), copy, copy-N"
)


@dataclass(frozen=True, kw_only=True)
class PretrainText:
    """pre-train a text encoder on artificial data, on real text, or on units

    What does pre-training teach that is not meaning? An encoder that has only seen brackets, copies
    or shuffled runs of numbers is fine-tuned like one that has read English (arXiv 2109.03537):
    real tokens are given the artificial ids in an arbitrary order. Objectives: mlm, whole-word,
    span (with SpanBERT's boundary objective), sentence-order (ALBERT), replaced-token (ELECTRA);
    and causal, which makes a language model (GPT-2) for `unit_lm.py --start`.
    OUT/encoder is a checkpoint for `train dual`, `train text-qa`, `classify.py`. A killed run
    resumes with the same command.

      python recipes/text_side/pretrain.py exp/english --text texts/ --vocabulary 4000 --layers 4 \\
        --width 128 --heads 4 --steps 2000
      python recipes/text_side/pretrain.py exp/dyck --data dyck-64 \\
        --tokenizer exp/english/encoder --layers 4 --width 128 --heads 4 --steps 2000
      python recipes/text_side/pretrain.py exp/warm --data nested --start minilm --steps 500
    """

    out: Path = argument("folder for the encoder")
    device: str = option("auto", DEVICE)
    training: TrainingOptions = group(
        TrainingOptions(100_000, 1e-4, 10_000, **vars(BERT)), "training"
    )
    data: str = option("text", DATA)
    text: Path | None = option(
        None,
        "text: folder of .txt files, one of them, or a prepared corpus, whose written passages of "
        "training are read",
    )
    units: Path | None = option(None, "output of `speechssl units extract`, for --data units")
    second_text: Path | None = option(
        None,
        "text of another language: half of the sequences are of it, and the vocabulary is of both",
    )
    second_units: Path | None = option(
        None, "units of another language, likewise; of the same codebook"
    )
    letters: Letters = option("own", LETTERS)
    documents: Count | None = option(None, "only the first N documents of each text; default: all")
    symbols: Path | None = option(
        None, "folder of `symbols.py`, whose train split is read, for --data symbols"
    )
    objective: Objective = option("mlm", "what is predicted; see above")
    tokenizer: str | None = option(
        None,
        "vocabulary: folder or hub id; default: WordPiece fitted to --text, or symbols "
        "without meaning",
    )
    vocabulary: Count = option(30_000, "entries of a vocabulary that is made here")
    like: str | None = option(
        None,
        "config of the encoder: folder or hub id of any text encoder, whose weights are not used",
    )
    start: str | None = option(
        None, "text encoder to go on from, with its vocabulary, in the place of random weights"
    )
    init: Init = option(
        "pretrained",
        "with --start: pretrained, statistics (weights drawn anew with the mean and variance of "
        "each matrix) or default (as its family draws them)",
    )
    layers: Count = option(12, "layers of the model (BERT) that is made here")
    width: Count = option(768, "width of that model")
    heads: Count = option(12, "attention heads of that model")
    positions: Count = option(512, "positions of that model")
    length: Count = option(128, "tokens in a sequence, specials included")
    batch: Count = option(256, BATCH)
    mask_share: Portion = option(0.15, "share of the tokens that are predicted")
    dropout: bool = option(False, DROPOUT)

    def __post_init__(self) -> None:
        if self.data in (TEXT, UNITS, SYMBOLS) and getattr(self, self.data) is None:
            raise InputError(f"pre-training on {self.data} reads --{self.data}; give it")
        if self.start and (self.tokenizer or self.like or self.objective == objectives.CAUSAL):
            raise InputError(
                "a text encoder that training starts from has its own vocabulary and size; leave "
                "out --start, or --tokenizer, --like and --objective causal"
            )
        if self.init != "pretrained" and not self.start:
            raise InputError("--init says how the weights of --start begin; give --start as well")
        if self.like and self.objective == objectives.CAUSAL:
            raise InputError(
                "--objective causal makes a GPT-2 of --layers, --width and --heads; leave out "
                "--like"
            )


@dataclass(frozen=True)
class Data:
    """Pre-training reads texts of one or two languages, or a task of symbols."""

    texts: Sequence[Text]
    symbols: TextTask | None
    inputs: dict[str, Any]  # hashes of all that is read


def pretrain_text(o: PretrainText) -> None:
    """Train (once) and leave the encoder in `o.out`/encoder.

    Raises InputError where the data or the vocabulary cannot be had, sequences are longer than the
    encoder's positions, or `o.out` was made from other inputs.
    """
    check_share(o.batch)
    data = read_data(o)
    places = {name: getattr(o, name) for name in PLACES}
    # where they lie on this machine does not matter
    names = {name: value and "/".join(Path(value).parts[-2:]) for name, value in places.items()}
    options = keep_decisive(o) | names
    folder = o.out / "encoder"
    with begin_stage(o.out, data.inputs, options, grows="options.training.steps") as step:
        if not step.done:
            torch.manual_seed(o.training.seed)
            causal = o.objective == objectives.CAUSAL
            training = train_causal(o, data) if causal else train_encoder(o, data)
            with main_first():
                if is_main():
                    card = {
                        "what": "text language model" if causal else "text encoder",
                        "options": options,
                        "training": training,
                        "weights": describe_encoder(str(folder))["weights"],
                    }
                    step.finish(card)
    print(f"{folder}: text encoder, {o.objective} on {o.data}")


def train_encoder(o: PretrainText, data: Data) -> dict[str, Any]:
    """Train a text encoder, write it with its head and tokeniser, and return the details of the
    training."""
    if o.start:
        loaded, tokenizer = encoders.load_text_encoder(o.start)
        encoder = objectives.initialise(loaded, o.init, o.training.seed)
        encoder = encoder.train().requires_grad_(True)
    else:
        tokenizer = choose_vocabulary(o, data)
        encoder = make_random_encoder(o, tokenizer)
    if tokenizer.mask_token_id is None and o.data != NONE:
        raise InputError(
            f"the tokeniser of {o.start or o.tokenizer} has no mask token, which pre-training "
            "needs; choose one with [MASK] or <mask>"
        )
    fewest = 5 if o.objective == "sentence-order" else 3  # specials, and a token of every segment
    objectives.check_length(o.length, encoder, "tokens", "the encoder", fewest)
    config = deepcopy(encoder.config)  # with its dropout, which fine-tuning may use
    if not o.dropout:
        encoders.remove_dropout(encoder)
    rows = encoder.get_input_embeddings().weight.detach()
    table = nn.Embedding.from_pretrained(rows.clone(), freeze=False)
    model = objectives.Pretraining(encoder, table, o.objective)
    training: dict[str, Any] = {"steps": 0}
    if o.data != NONE:
        batches = objectives.PretrainingBatches(
            choose_source(o, data, tokenizer),
            o.objective,
            (*find_special_tokens(tokenizer), tokenizer.mask_token_id),
            list_plain_ids(tokenizer),
            o.batch,
            o.length,
            o.mask_share,
            o.training.seed,
        )
        training = fit(model, batches, o.training, o.out / "checkpoints")
    with main_first():
        if is_main():
            folder = o.out / "encoder"
            encoder.config = config
            save_encoder(encoder, model.table, tokenizer, folder)
            save_head(model.head, folder / objectives.MLM_HEAD)
    return training


def train_causal(o: PretrainText, data: Data) -> dict[str, Any]:
    """Train a GPT-2, write it with its tokeniser, and return the details of the training."""
    tokenizer = choose_vocabulary(o, data)
    cls, sep, pad = find_special_tokens(tokenizer)
    sizes = o.layers, o.width, o.heads, max(o.positions, o.length)
    encoder = objectives.make_gpt2(len(tokenizer), *sizes)
    objectives.set_rows(
        encoder, torch.randn(len(tokenizer), o.width) * encoder.config.initializer_range, sep
    )
    objectives.check_length(o.length, encoder, "tokens", "the encoder", 2)
    config = deepcopy(encoder.config)
    if not o.dropout:
        encoders.remove_dropout(encoder)
    source = choose_source(o, data, tokenizer)
    batches = objectives.CausalBatches(source, cls, pad, o.batch, o.length, o.training.seed)
    model = objectives.CausalModel(encoder.train())
    training = fit(model, batches, o.training, o.out / "checkpoints")
    with main_first():
        if is_main():
            encoder.config = config
            objectives.save_causal(encoder, model, o.out / "encoder")
            tokenizer.save_pretrained(o.out / "encoder")
    return training


def save_head(head: nn.Module, file: Path) -> None:
    """Write the head that predicts tokens, for `translate.py`."""
    file.parent.mkdir(exist_ok=True)
    with replace_file(file) as temporary:
        save_file({name: x.cpu().contiguous() for name, x in head.state_dict().items()}, temporary)


# ---- data


def read_data(o: PretrainText) -> Data:
    """Read what the options name. Raises InputError for what is not there."""
    inputs: dict[str, Any] = {"text": None}
    texts = []
    if o.text:
        texts.append(load_text(o.text).first(o.documents))
        inputs["text"] = texts[-1].hash
    if o.second_text:
        texts.append(load_text(o.second_text).first(o.documents).respell(o.letters))
        inputs["second_text"] = texts[-1].hash
    if o.data == UNITS:
        for name, place in (("units", o.units), ("second_units", o.second_units)):
            if place:
                inputs[name] = [part["hash"] for part in read_units_card(place / SPLIT)["parts"]]
    for name in ("start", "tokenizer"):
        if getattr(o, name):
            inputs[name] = describe_encoder(getattr(o, name))
    symbols = None
    if o.data == SYMBOLS and o.symbols:
        symbols = load_task(o.symbols)
        inputs["symbols"] = symbols.hash
    return Data(texts, symbols, inputs)


def choose_source(
    o: PretrainText, data: Data, tokenizer: PreTrainedTokenizerBase
) -> objectives.Source:
    """Return the source of the sequences of --data. Raises InputError for unknown data."""
    seed = o.training.seed
    if o.data == TEXT:
        return mix_sources([tokenise(text, tokenizer).draw_part for text in data.texts])
    if o.data == UNITS:
        folders = [units / SPLIT for units in (o.units, o.second_units) if units]
        cards = [read_units_card(folder) for folder in folders]
        languages.check_one_codebook(cards)
        count = int(cards[0]["K"])
        tokens = np.array(assign_tokens(tokenizer, count, "most-frequent", seed), np.int64)
        sources = []
        for folder in folders:
            spoken = [runs.units for runs in load_units(folder).values()]
            sources.append(objectives.make_source(RandomCrops(spoken, tokens)))
        return mix_sources(sources)
    if data.symbols is not None and o.symbols:
        vocabulary = data.symbols.vocabulary
        numbers = {symbol: i for i, symbol in enumerate(vocabulary)}
        examples = data.symbols.splits["train"]
        sequences = [np.array([numbers[s] for s in e.symbols], np.int64) for e in examples]
        tokens = np.array(find_tokens(tokenizer, vocabulary), np.int64)
        return objectives.make_source(RandomCrops(sequences, tokens))
    plain = list_plain_ids(tokenizer)
    if o.data in OF_TEXT and data.texts:
        return objectives.make_source(
            make_stream(o.data, len(plain), tokenise(data.texts[0], tokenizer).ids)
        )
    plain = np.random.default_rng(seed).permutation(plain)
    stream = make_stream(o.data, len(plain))
    return objectives.make_source(lambda rng, length: plain[stream(rng, length)])


def mix_sources(sources: Sequence[objectives.Source]) -> objectives.Source:
    """Return a source that draws each sequence from one of the sources, all equally likely."""
    if len(sources) == 1:
        return sources[0]
    return lambda rng, length: sources[int(rng.integers(len(sources)))](rng, length)


class RandomCrops:
    """Random crops of recordings, or of other sequences, become tokens. A sequence is drawn in
    proportion to its length."""

    def __init__(self, sequences: Sequence[np.ndarray], tokens: np.ndarray) -> None:
        """Take sequences that are not empty. sequences: units of each, 0 to K - 1; tokens: (K,)."""
        self.sequences, self.tokens = [units for units in sequences if len(units)], tokens
        self.ends = np.cumsum([len(units) for units in self.sequences])

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        drawn = rng.integers(self.ends[-1])
        units = self.sequences[int(np.searchsorted(self.ends, drawn, side="right"))]
        first = int(rng.integers(max(len(units) - length, 0) + 1))
        return self.tokens[units[first : first + length]]


# ---- encoders


def make_random_encoder(o: PretrainText, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Make an encoder with random weights. Raises InputError for a --like or sizes that make no
    encoder."""
    size, pad = len(tokenizer), find_special_tokens(tokenizer)[2]
    try:
        if o.like:
            values = encoders.read_text_config(fetch_checkpoint(o.like, "text encoder")).to_dict()
            values |= {"vocab_size": size, "pad_token_id": pad}
            values.pop("_name_or_path", None)
        else:
            values = BertConfig(
                vocab_size=size,
                hidden_size=o.width,
                num_hidden_layers=o.layers,
                num_attention_heads=o.heads,
                intermediate_size=4 * o.width,
                max_position_embeddings=max(o.positions, o.length),
                pad_token_id=pad,
            ).to_dict()
        encoder = encoders.make_encoder(values)
        encoders.check_reads_vectors(encoder.eval())
    except Exception as error:  # each family has its own error for sizes that do not fit
        raise InputError(
            f"cannot make the text encoder ({encoders.shorten_error(error)}); give another --like, "
            "or other sizes"
        ) from error
    return encoder.train()


def choose_vocabulary(o: PretrainText, data: Data) -> PreTrainedTokenizerBase:
    if o.tokenizer:
        return load_vocabulary(o.tokenizer)
    if data.symbols is not None:
        return make_symbol_vocabulary(data.symbols.vocabulary)
    paragraphs = [paragraph for text in data.texts for paragraph in text.paragraphs]
    if paragraphs:
        return train_vocabulary(paragraphs, o.vocabulary)
    return make_symbol_vocabulary(map(str, range(o.vocabulary)))


def save_encoder(
    encoder: PreTrainedModel, table: nn.Embedding, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    """Write a checkpoint that `load_text_encoder` reads. table: (V, E), which becomes the encoder's
    own again."""
    embeddings = nn.Embedding(table.num_embeddings, table.embedding_dim)
    embeddings.weight = nn.Parameter(table.weight.detach().clone())
    encoder.set_input_embeddings(embeddings)
    encoder.config.vocab_size = table.num_embeddings
    encoder_class = encoders.find_encoder_half(AutoConfig.for_model(**encoder.config.to_dict()))
    if encoder_class is not None:  # the encoder of T5 and its kin is part of a larger model
        model = encoder_class(encoder.config)
        model.get_encoder().load_state_dict(encoder.state_dict())
        model.set_input_embeddings(embeddings)
        encoder = model
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(script(pretrain_text, PretrainText))
