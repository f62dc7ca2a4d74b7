"""`speechssl pretrain text`: an encoder on artificial data, real text or units, from scratch or
continued.

What it leaves in OUT/encoder is a Hugging Face checkpoint with its tokeniser, which everything
reads that takes a text encoder: `train dual`, `train text-qa`, `text classify`, `pretrain text`
again. Symbols of a task (DNA, notes) are tokens of their own.
Ids of artificial data become tokens of the vocabulary in an arbitrary order, which the seed draws:
real tokens are thereby mapped onto artificial ids (arXiv 2109.03537). unigram and bigram imitate
tokens of a text, which stay what they are. Units become the tokens that DUAL gives them with the
same seed and assignment (`textlm.assign_tokens`).
Letters: N tokens, V tokens in a vocabulary, K units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.errors import InputError
from speechssl.io import checkpoint_folder, hash_of_others, replacing, stage
from speechssl.options import settings
from speechssl.processes import is_main, main_first
from speechssl.text_side.data import (
    Stream,
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
from speechssl.text_side.frozen import begin
from speechssl.text_side.objectives import (
    CAUSAL,
    MLM_HEAD,
    CausalBatches,
    CausalModel,
    Pretraining,
    PretrainingBatches,
    Source,
    check_length,
    gpt2_values,
    load_causal,
    make_causal,
    save_causal,
    set_rows,
)
from speechssl.text_side.options import TextPretraining
from speechssl.text_side.runs import encoder_named
from speechssl.text_side.tasks import TextTask, load_task
from speechssl.textlm import (
    assign_tokens,
    checkpoint_gradients,
    encoder_half,
    load_text_encoder,
    make_encoder,
    reason_of,
    rows_named,
    special_tokens,
    text_config,
    why_unfit,
    without_dropout,
)
from speechssl.trainer import Batch, check_share, fit
from speechssl.units.storage import load_units, units_card

# options that are places
NAMED = ("text", "second_text", "units", "second_units", "symbols", "tokenizer", "start", "like")
TEXT, UNITS, SYMBOLS, NONE = "text", "units", "symbols", "none"  # --data that is not artificial


def pretrain_text(out: Path, o: TextPretraining) -> Path:
    """Train (once) and leave the encoder in `out`/encoder.

    Raises InputError where the data or the vocabulary cannot be had, sequences are longer than the
    encoder's positions, or `out` was made from other inputs.
    """
    check_share(o.batch)
    if o.start and (o.tokenizer or o.like):
        raise InputError(
            "what training starts from has its own vocabulary and size; leave out "
            "--tokenizer and --like, or --start"
        )
    if o.init != "pretrained" and (not o.start or o.objective == CAUSAL):
        raise InputError(
            f"--init {o.init} draws the weights of a text encoder anew; give one "
            "with --start, or leave out --init"
        )
    text, second, symbols, inputs = read_inputs(o)
    places = {name: _name(getattr(o, name)) for name in NAMED}
    with stage(out, inputs, settings(o) | places, grows="options.training.steps") as step:
        folder = out / "encoder"
        if step.done:
            return folder
        seed = o.training.seed
        torch.manual_seed(seed)
        causal = o.objective == CAUSAL
        paragraphs = (*text.paragraphs, *(second.paragraphs if second else ())) if text else ()
        encoder, tokenizer = (_language_model if causal else _encoder)(o, paragraphs, symbols)
        # specials, and a token of every piece
        fewest = 5 if o.objective == "sentence-order" else 2 if causal else 3
        check_length(o.length, encoder, "tokens", "the encoder", fewest)
        trained = o.data != NONE
        source = (
            source_of(o, text, tokenizer, second, symbols)
            if trained
            else whole(make_stream("random", 1))
        )
        specials = special_tokens(tokenizer)
        config = deepcopy(encoder.config)  # with its dropout, for whoever fine-tunes
        if not o.dropout:
            without_dropout(encoder)
        if o.gradient_checkpointing:
            checkpoint_gradients(encoder, "the encoder")
        batches: Callable[[int], Batch]
        model: CausalModel | Pretraining
        if causal:
            batches = CausalBatches(source, specials[0], specials[2], o.batch, o.length, seed)
            model = CausalModel(encoder)
        else:
            special_ids = (*specials, tokenizer.mask_token_id)
            batches = PretrainingBatches(
                source,
                o.objective,
                special_ids,
                plain_ids(tokenizer),
                o.batch,
                o.length,
                o.share,
                seed,
            )
            rows = encoder.get_input_embeddings().weight.detach()
            model = Pretraining(
                encoder, nn.Embedding.from_pretrained(rows.clone(), freeze=False), o.objective
            )
        result = fit(model, batches, o.training, out / "checkpoints") if trained else {"steps": 0}
        with main_first():
            if is_main():
                encoder.config = config
                if isinstance(model, CausalModel):
                    save_causal(encoder, model, folder)
                    tokenizer.save_pretrained(folder)
                else:
                    save_encoder(encoder, model.table, tokenizer, folder)
                    (folder / MLM_HEAD).parent.mkdir(exist_ok=True)
                    head = {
                        name: values.detach().cpu().contiguous()
                        for name, values in model.head.state_dict().items()
                    }
                    with replacing(folder / MLM_HEAD) as temporary:
                        save_file(head, temporary)
                what, weights = (
                    "text language model" if causal else "text encoder",
                    encoder_named(str(folder))["weights"],
                )
                card = {
                    "what": what,
                    "options": settings(o) | places,
                    "training": result,
                    "weights": weights,
                }
                step.finish(card | {"others": hash_of_others(folder)})
        return folder


def read_inputs(
    o: TextPretraining,
) -> tuple[Text | None, Text | None, TextTask | None, dict[str, Any]]:
    """The text, that of another language, the task of symbols, and the hashes of all that is read.

    Raises InputError for what is not there, or does not fit together.
    """
    text = load_text(o.text, o.split).first(o.documents) if o.text else None
    second = (
        load_text(o.second_text, o.split).first(o.documents).spelt(o.letters)
        if o.second_text
        else None
    )
    if (second and not text) or (o.second_units and not o.units):
        raise InputError(
            "a second text or second units are read beside the first; give --text "
            "or --units as well"
        )
    inputs: dict[str, Any] = {"text": text.hash if text else None} | (
        {"second_text": second.hash} if second else {}
    )
    if o.data == UNITS:
        if o.units is None:
            raise InputError(
                "pre-training on units needs the units; give the output of "
                "`speechssl units extract` with --units"
            )
        inputs["units"] = [part["hash"] for part in units_card(o.units / o.split)["parts"]]
        if o.second_units:
            inputs["second_units"] = [
                part["hash"] for part in units_card(o.second_units / o.split)["parts"]
            ]
            if (
                len(
                    {
                        str(units_card(units / o.split).get("codebooks"))
                        for units in (o.units, o.second_units)
                    }
                )
                > 1
            ):
                raise InputError(
                    f"the units in {o.units} and {o.second_units} are of different "
                    "codebooks; extract them with one"
                )
    for name in ("start", "tokenizer"):
        if checkpoint := getattr(o, name):
            inputs[name] = encoder_named(checkpoint)
    symbols = None
    if o.data == SYMBOLS:
        if o.symbols is None:
            raise InputError(
                "pre-training on symbols needs them; give a folder of `speechssl "
                "prepare symbols` with --symbols"
            )
        symbols = load_task(o.symbols)
        if not symbols.vocabulary:
            raise InputError(
                f"{o.symbols} is a task of text, not of symbols; give one of "
                "`speechssl prepare symbols`"
            )
        inputs["symbols"] = symbols.hash
    return text, second, symbols, inputs


def _name(value: Any) -> str | None:
    """The name of a thing, and not where it lies on this machine."""
    return None if value is None else "/".join(Path(value).parts[-2:])


# ---- data


def source_of(
    o: TextPretraining,
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
                sequences, np.array(rows_named(tokenizer, symbols.vocabulary), np.int64), o.symbols
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


def whole(stream: Stream) -> Source:
    """Every id is a word; no sentence begins anywhere."""

    def source(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids = stream(rng, length)
        return ids, np.ones(len(ids), bool), np.zeros(len(ids), bool)

    return source


def not_empty(sequences: Sequence[np.ndarray], place: Path) -> list[np.ndarray]:
    """Those of any length. Raises InputError where there are none."""
    if filled := [units for units in sequences if len(units)]:
        return filled
    raise InputError(
        f"the units in {place} are empty; extract those of recordings that can be read"
    )


class RandomCrops:
    """Random parts of recordings, or of other sequences, as tokens; each sequence as often as it is
    long."""

    def __init__(self, sequences: Sequence[np.ndarray], tokens: np.ndarray, place: Path) -> None:
        """sequences: units of each recording, 0 to K - 1; tokens: (K,). Raises InputError where
        there are none."""
        self.sequences, self.tokens = not_empty(sequences, place), tokens
        self.ends = np.cumsum([len(units) for units in self.sequences])

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        units = self.sequences[
            int(np.searchsorted(self.ends, rng.integers(self.ends[-1]), side="right"))
        ]
        first = int(rng.integers(max(len(units) - length, 0) + 1))
        return self.tokens[units[first : first + length]]


# ---- encoders


def _encoder(
    o: TextPretraining, paragraphs: Sequence[str], symbols: TextTask | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The encoder to train and its tokeniser. paragraphs: that a vocabulary is fitted to; none: one
    of symbols is made.

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
        if o.width % o.heads:
            raise InputError(
                f"{o.heads} heads cannot share a width of {o.width}; give --width a "
                "multiple of --heads"
            )
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
    o: TextPretraining, paragraphs: Sequence[str], symbols: TextTask | None
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
    """The values of a config. Raises InputError where there is none."""
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
    o: TextPretraining, paragraphs: Sequence[str], symbols: TextTask | None
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
