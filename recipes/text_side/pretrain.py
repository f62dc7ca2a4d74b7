"""Pre-train a text encoder on artificial data, real text or units, from scratch or continued.

What it leaves in OUT/encoder is a Hugging Face checkpoint with its tokeniser, which everything
reads that takes a text encoder: `train dual`, `train text-qa`, `classify.py`, and this
program again. Symbols of a task (DNA, notes) are tokens of their own.
Ids of artificial data become tokens of the vocabulary in an arbitrary order, which the seed draws:
real tokens are thereby mapped onto artificial ids (arXiv 2109.03537). unigram and bigram imitate
tokens of a text, which stay what they are. Units become the tokens that DUAL gives them with the
same seed and assignment (`textlm.symbols.assign_tokens`).
Letters: N tokens, V tokens in a vocabulary, K units.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.artifacts import replacing, stage
from speechssl.checkpoints import checkpoint_folder
from speechssl.cli import script
from speechssl.dual.options import ASSIGNMENT, BATCH, CHECKPOINTING, DROPOUT
from speechssl.errors import InputError
from speechssl.options import (
    BERT,
    DEVICE,
    Count,
    Portion,
    TrainingOptions,
    argument,
    group,
    option,
)
from speechssl.processes import is_main, main_first
from speechssl.textlm.encoders import (
    checkpoint_gradients,
    encoder_half,
    load_text_encoder,
    make_encoder,
    reason_of,
    remove_dropout,
    text_config,
    why_unfit,
)
from speechssl.textlm.symbols import assign_tokens
from speechssl.textlm.tokenizers import special_tokens
from speechssl.training import Batch, check_share, fit
from speechssl.units.storage import load_units, units_card
from textside.data import (
    Text,
    check_specials,
    imitates,
    load_text,
    load_vocabulary,
    make_stream,
    plain_ids,
    symbol_vocabulary,
    tokenise,
    train_vocabulary,
)
from textside.objectives import (
    CAUSAL,
    MLM_HEAD,
    CausalBatches,
    CausalModel,
    Pretraining,
    PretrainingBatches,
    Source,
    check_length,
    gpt2_values,
    keep_filled,
    load_causal,
    make_causal,
    save_causal,
    set_rows,
    whole,
)
from textside.options import LETTERS, Init, Letters, Objective
from textside.runs import decisive, describe_encoder
from textside.starts import begin, find_tokens
from textside.tasks import TextTask, load_task

TEXT, UNITS, SYMBOLS, NONE = "text", "units", "symbols", "none"  # --data that is not artificial
# options that are places
NAMED = ("text", "second_text", "units", "second_units", "symbols", "tokenizer", "start", "like")
DATA = (
    "text, units, symbols (of a task), none (random weights), or artificial data: random, "
    "unigram, bigram (as frequent as in "
    "--text), nested, flat, flat-D (pairs, at most D places apart), shuffle-N (runs of N ids), "
    "dyck-K (brackets of K kinds), "
    "copy, copy-N, set; mixtures as 0.7*nested+0.3*copy"
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
        --tokenizer exp/english/encoder \\
        --layers 4 --width 128 --heads 4 --steps 2000
      python recipes/text_side/pretrain.py exp/dna --data symbols --symbols exp/splice --layers 6 \\
        --width 384 --length 64 --steps 2000
      python recipes/text_side/pretrain.py exp/warm --data nested --start minilm --steps 500
      python recipes/text_side/pretrain.py exp/bilingual --text minisqa-en \\
        --second-text minisqa-zh \\
        --vocabulary 4000 --layers 4 --width 128
      python recipes/text_side/pretrain.py exp/like --text texts/ --like roberta-base \\
        --tokenizer roberta-base --objective span
    """

    out: Path = argument("folder for the encoder")
    device: str = option("auto", DEVICE)
    training: TrainingOptions = group(
        TrainingOptions(100_000, 1e-4, 10_000, **vars(BERT)), "training"
    )
    data: str = option("text", DATA)
    text: Path | None = option(
        None,
        "text: folder of .txt files, one of them, or a prepared corpus, whose written "
        "passages are read",
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
    split: str = option("train", "split of a prepared corpus or of units")
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
        "each matrix) or default (as its "
        "family draws them)",
    )
    assignment: str = option("most-frequent", f"--data units: {ASSIGNMENT}")
    layers: Count = option(12, "layers of the model (BERT) that is made here")
    width: Count = option(768, "width of that model")
    heads: Count = option(12, "attention heads of that model")
    positions: Count = option(512, "positions of that model")
    length: Count = option(128, "tokens in a sequence, specials included")
    batch: Count = option(256, BATCH)
    mask_share: Portion = option(0.15, "share of the tokens that are predicted")
    dropout: bool = option(False, DROPOUT)
    gradient_checkpointing: bool = option(False, CHECKPOINTING)

    def __post_init__(self) -> None:
        if self.data == UNITS and self.units is None:
            raise InputError(
                "pre-training on units needs the units; give the output of "
                "`speechssl units extract` with --units"
            )
        if self.data == SYMBOLS and self.symbols is None:
            raise InputError(
                "pre-training on symbols needs them; give a folder of `symbols.py` with --symbols"
            )
        if (self.second_text and not self.text) or (self.second_units and not self.units):
            raise InputError(
                "a second text or second units are read beside the first; give --text "
                "or --units as well"
            )
        if self.start and (self.tokenizer or self.like):
            raise InputError(
                "what training starts from has its own vocabulary and size; leave out "
                "--tokenizer and --like, or --start"
            )
        if self.init != "pretrained" and (not self.start or self.objective == CAUSAL):
            raise InputError(
                f"--init {self.init} draws the weights of a text encoder anew; give one "
                "with --start, or leave out --init"
            )
        if self.width % self.heads:
            raise InputError(
                f"{self.heads} heads cannot share a width of {self.width}; give --width a "
                "multiple of --heads"
            )


def pretrain_text(o: PretrainText) -> None:
    """Train (once) and leave the encoder in `o.out`/encoder.

    Raises InputError where the data or the vocabulary cannot be had, sequences are longer than the
    encoder's positions, or `o.out` was made from other inputs.
    """
    check_share(o.batch)
    text, second, symbols, inputs = read_inputs(o)
    options = decisive(o) | {name: _name(getattr(o, name)) for name in NAMED}
    folder = o.out / "encoder"
    with stage(o.out, inputs, options, grows="options.training.steps") as step:
        if not step.done:
            torch.manual_seed(o.training.seed)
            train = _train_causal if o.objective == CAUSAL else _train_encoder
            training = train(o, text, second, symbols)
            with main_first():
                if is_main():
                    causal = o.objective == CAUSAL
                    card = {
                        "what": "text language model" if causal else "text encoder",
                        "options": options,
                        "training": training,
                        "weights": describe_encoder(str(folder))["weights"],
                    }
                    step.finish(card)
    print(f"{folder}: text encoder, {o.objective} on {o.data}")


def _train_encoder(
    o: PretrainText, text: Text | None, second: Text | None, symbols: TextTask | None
) -> dict[str, Any]:
    """Train a text encoder and write it with its head and tokeniser; how training went."""
    encoder, tokenizer = _encoder(o, _paragraphs(text, second), symbols)
    # specials, and a token of every piece
    fewest = 5 if o.objective == "sentence-order" else 3
    check_length(o.length, encoder, "tokens", "the encoder", fewest)
    config = deepcopy(encoder.config)  # with its dropout, for whoever fine-tunes
    _prepare(encoder, o)
    source = _source(o, text, tokenizer, second, symbols)
    batches = PretrainingBatches(
        source,
        o.objective,
        (*special_tokens(tokenizer), tokenizer.mask_token_id),
        plain_ids(tokenizer),
        o.batch,
        o.length,
        o.mask_share,
        o.training.seed,
    )
    rows = encoder.get_input_embeddings().weight.detach()
    table = nn.Embedding.from_pretrained(rows.clone(), freeze=False)
    model = Pretraining(encoder, table, o.objective)
    training = _fit(model, batches, o)
    with main_first():
        if is_main():
            folder = o.out / "encoder"
            encoder.config = config
            save_encoder(encoder, model.table, tokenizer, folder)
            save_head(model.head, folder / MLM_HEAD)
    return training


def _train_causal(
    o: PretrainText, text: Text | None, second: Text | None, symbols: TextTask | None
) -> dict[str, Any]:
    """As `_train_encoder`, of a language model that reads from left to right."""
    encoder, tokenizer = _language_model(o, _paragraphs(text, second), symbols)
    check_length(o.length, encoder, "tokens", "the encoder", 2)
    config = deepcopy(encoder.config)
    _prepare(encoder, o)
    source = _source(o, text, tokenizer, second, symbols)
    cls, _, pad = special_tokens(tokenizer)
    batches = CausalBatches(source, cls, pad, o.batch, o.length, o.training.seed)
    model = CausalModel(encoder)
    training = _fit(model, batches, o)
    with main_first():
        if is_main():
            encoder.config = config
            save_causal(encoder, model, o.out / "encoder")
            tokenizer.save_pretrained(o.out / "encoder")
    return training


def _paragraphs(*texts: Text | None) -> list[str]:
    return [paragraph for text in texts if text for paragraph in text.paragraphs]


def _prepare(encoder: PreTrainedModel, o: PretrainText) -> None:
    if not o.dropout:
        remove_dropout(encoder)
    if o.gradient_checkpointing:
        checkpoint_gradients(encoder, "the encoder")


def _source(
    o: PretrainText,
    text: Text | None,
    tokenizer: PreTrainedTokenizerBase,
    second: Text | None,
    symbols: TextTask | None,
) -> Source:
    if o.data == NONE:  # which nothing is drawn from
        return whole(make_stream("random", 1))
    return source_of(o, text, tokenizer, second, symbols)


def _fit(model: nn.Module, batches: Callable[[int], Batch], o: PretrainText) -> dict[str, Any]:
    if o.data == NONE:
        return {"steps": 0}
    return fit(model, batches, o.training, o.out / "checkpoints")


def save_head(head: nn.Module, file: Path) -> None:
    """Write the head that predicts tokens, for `translate.py`."""
    file.parent.mkdir(exist_ok=True)
    tensors = {
        name: values.detach().cpu().contiguous() for name, values in head.state_dict().items()
    }
    with replacing(file) as temporary:
        save_file(tensors, temporary)


def read_inputs(
    o: PretrainText,
) -> tuple[Text | None, Text | None, TextTask | None, dict[str, Any]]:
    """Return the text, that of another language, the task of symbols, and the hashes of all that is
    read.

    Raises InputError for what is not there, or does not fit together.
    """
    text = load_text(o.text, o.split).first(o.documents) if o.text else None
    inputs: dict[str, Any] = {"text": text.hash if text else None}
    second = None
    if o.second_text:
        second = load_text(o.second_text, o.split).first(o.documents).spelt(o.letters)
        inputs["second_text"] = second.hash
    if o.data == UNITS:
        folders = {"units": o.units, "second_units": o.second_units}
        cards = {name: units_card(place / o.split) for name, place in folders.items() if place}
        inputs |= {name: [part["hash"] for part in card["parts"]] for name, card in cards.items()}
        if len({str(card.get("codebooks")) for card in cards.values()}) > 1:
            raise InputError(
                f"the units in {o.units} and {o.second_units} are of different "
                "codebooks; extract them with one"
            )
    if o.start:
        inputs["start"] = describe_encoder(o.start)
    if o.tokenizer:
        inputs["tokenizer"] = describe_encoder(o.tokenizer)
    symbols = None
    if o.data == SYMBOLS and o.symbols:
        symbols = load_task(o.symbols)
        if not symbols.vocabulary:
            raise InputError(
                f"{o.symbols} is a task of text, not of symbols; give one of `symbols.py`"
            )
        inputs["symbols"] = symbols.hash
    return text, second, symbols, inputs


def _name(value: Any) -> str | None:
    """Return the name of a thing, and not where it lies on this machine."""
    return None if value is None else "/".join(Path(value).parts[-2:])


# ---- data


def source_of(
    o: PretrainText,
    text: Text | None,
    tokenizer: PreTrainedTokenizerBase,
    second: Text | None = None,
    symbols: TextTask | None = None,
) -> Source:
    """second: of another language; symbols: a task of them. Raises InputError for data that there
    are not."""
    seed = o.training.seed
    if o.data == TEXT:
        if text is None:
            raise InputError(
                "pre-training on text needs a text; give a folder of .txt files or "
                "a prepared corpus with --text"
            )
        return by_turns([tokenise(each, tokenizer).part for each in (text, second) if each])
    if o.data == UNITS:
        assert o.units
        folders = [units / o.split for units in (o.units, o.second_units) if units]
        tokens = np.array(
            assign_tokens(tokenizer, int(units_card(folders[0])["K"]), o.assignment, seed), np.int64
        )
        return by_turns(
            [
                whole(RandomCrops([runs.units for runs in load_units(f).values()], tokens, f))
                for f in folders
            ]
        )
    if symbols is not None:
        assert o.symbols
        numbers = {symbol: i for i, symbol in enumerate(symbols.vocabulary)}
        sequences = [np.array([numbers[s] for s in e.symbols]) for e in symbols.splits["train"]]
        return whole(
            RandomCrops(
                sequences, np.array(find_tokens(tokenizer, symbols.vocabulary), np.int64), o.symbols
            )
        )
    if imitates(o.data):
        ids = tokenise(text, tokenizer).ids if text else None
        plain = plain_ids(tokenizer)
        if "+" not in o.data:
            return whole(make_stream(o.data, len(plain), ids))
        raise InputError(
            "unigram and bigram have the tokens of a text, the other artificial "
            "data have none; do not mix them"
        )
    plain = np.random.default_rng(seed).permutation(plain_ids(tokenizer))
    stream = make_stream(o.data, len(plain))
    return whole(lambda rng, length: plain[stream(rng, length)])


def by_turns(sources: Sequence[Source]) -> Source:
    """Each sequence is of one of them, all alike often."""
    return (
        sources[0]
        if len(sources) == 1
        else lambda rng, length: sources[int(rng.integers(len(sources)))](rng, length)
    )


class RandomCrops:
    """Random parts of recordings, or of other sequences, as tokens; each sequence as often as it is
    long."""

    def __init__(self, sequences: Sequence[np.ndarray], tokens: np.ndarray, place: Path) -> None:
        """sequences: units of each recording, 0 to K - 1; tokens: (K,). Raises InputError where
        there are none."""
        self.sequences, self.tokens = keep_filled(sequences, place), tokens
        self.ends = np.cumsum([len(units) for units in self.sequences])

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        units = self.sequences[
            int(np.searchsorted(self.ends, rng.integers(self.ends[-1]), side="right"))
        ]
        first = int(rng.integers(max(len(units) - length, 0) + 1))
        return self.tokens[units[first : first + length]]


# ---- encoders


def _encoder(
    o: PretrainText, paragraphs: Sequence[str], symbols: TextTask | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the encoder to train and its tokeniser. paragraphs: that a vocabulary is fitted to;
    none: one of symbols is made.

    Raises InputError for options that contradict each other, or no vocabulary.
    """
    if o.start:
        encoder, tokenizer = load_text_encoder(o.start)
        if o.data != NONE:
            check_specials(tokenizer, o.start)
        return begin(encoder, o.init, o.training.seed).train().requires_grad_(True), tokenizer
    tokenizer = _vocabulary(o, paragraphs, symbols)
    pad = special_tokens(tokenizer)[2]
    if o.like:
        values = _config_like(o.like) | {"vocab_size": len(tokenizer), "pad_token_id": pad}
    else:
        values = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=o.width,
            num_hidden_layers=o.layers,
            num_attention_heads=o.heads,
            intermediate_size=4 * o.width,
            max_position_embeddings=max(o.positions, o.length),
            pad_token_id=pad,
        ).to_dict()
    try:
        encoder = make_encoder(values)
    except Exception as error:  # every kind has its own for sizes that do not fit
        raise InputError(
            f"cannot make an encoder like {o.like} ({reason_of(error)}); give another --like"
        ) from error
    if reason := why_unfit(encoder.eval()):
        raise InputError(
            f"an encoder like {o.like} cannot be a text encoder here: {reason}; give another --like"
        )
    return encoder.train(), tokenizer


def _vocabulary(
    o: PretrainText, paragraphs: Sequence[str], symbols: TextTask | None
) -> PreTrainedTokenizerBase:
    if o.tokenizer:
        return load_vocabulary(o.tokenizer, masked=o.objective != CAUSAL and o.data != NONE)
    if symbols is not None:
        return symbol_vocabulary(symbols.vocabulary)
    return (
        train_vocabulary(paragraphs, o.vocabulary)
        if paragraphs
        else symbol_vocabulary(map(str, range(o.vocabulary)))
    )


def _config_like(like: str) -> dict[str, Any]:
    """Return the values of a config. Raises InputError where there is none."""
    source = checkpoint_folder(like, "text encoder")
    try:
        values = text_config(source).to_dict()
    except Exception as error:  # transformers and the hub client each raise their own
        raise InputError(
            f"cannot read the config of {source} ({reason_of(error)}); give another --like"
        ) from error
    values.pop("_name_or_path", None)
    return values


def _language_model(
    o: PretrainText, paragraphs: Sequence[str], symbols: TextTask | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """For the objective causal: as `_encoder`, a GPT-2 in the place of a BERT."""
    if o.start:
        model, tokenizer = load_causal(o.start), load_vocabulary(o.start, masked=False)
        rows = model.get_input_embeddings().weight
    else:
        tokenizer = _vocabulary(o, paragraphs, symbols)
        sizes = o.layers, o.width, o.heads, max(o.positions, o.length)
        model = make_causal(_config_like(o.like) if o.like else gpt2_values(len(tokenizer), *sizes))
        rows = (
            torch.randn(len(tokenizer), model.get_input_embeddings().embedding_dim)
            * model.config.initializer_range
        )
    set_rows(model, rows, special_tokens(tokenizer)[1])
    return model.train(), tokenizer


def save_encoder(
    encoder: PreTrainedModel, table: nn.Embedding, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    """A checkpoint that `load_text_encoder` reads. table: (V, E), which the encoder gets back."""
    embeddings = nn.Embedding(table.num_embeddings, table.embedding_dim)
    embeddings.weight = nn.Parameter(table.weight.detach().clone())
    encoder.set_input_embeddings(embeddings)
    encoder.config.vocab_size = table.num_embeddings
    half = encoder_half(AutoConfig.for_model(**encoder.config.to_dict()))
    if half is not None:  # of T5 and its kin
        model = half(encoder.config)
        model.get_encoder().load_state_dict(encoder.state_dict())
        model.set_input_embeddings(embeddings)
        encoder = model
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(script(pretrain_text, PretrainText))
