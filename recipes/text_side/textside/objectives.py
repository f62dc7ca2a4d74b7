"""Make batches and heads of the objectives of pre-training. Afterwards only the head that predicts
tokens is kept, for `translate.py`.

    mlm             15 % of the tokens are predicted; of these 80 % are masked, 10 % replaced, 10 %
                    left (BERT, arXiv 1810.04805). They are chosen anew every time a sequence is
                    seen (dynamic masking, RoBERTa, 1907.11692)
    whole-word      the same, with whole words
    span            the same, with spans of whole words, of geometric lengths of at most 10 words;
                    every token is predicted from its own output and, a second time, from the
                    outputs at both edges of its span and its place in it (SpanBERT, 1907.10529)
    sentence-order  mlm, and whether two successive pieces stand in their order or were exchanged
                    (ALBERT, 1909.11942)
    replaced-token  a generator of a quarter of the layers does mlm, and the encoder says of every
                    token whether the generator put it there (ELECTRA, 2003.10555, whose generator
                    is narrower as well; both share the embeddings, as here)
    causal          the next token is predicted from those before it, by a language model with one
                    table of rows for input and output: the logits of the next symbol are the
                    products of the output with the rows. `check_causal` refuses other models

Letters: B sequences, S tokens in a sequence, L of them without specials, M masked tokens, V
vocabulary or rows of a table, H hidden width, E width of the embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedModel

from speechssl.checkpoints import fetch_checkpoint
from speechssl.dual.data import collate
from speechssl.dual.model import EncoderInputs
from speechssl.errors import InputError
from speechssl.textlm.encoders import count_positions, make_encoder
from speechssl.training import Batch
from textside.data import Stream

CAUSAL = "causal"
LONGEST_SPAN = 10  # words
SPAN_END = 0.2  # probability that a span ends after a word
DISCRIMINATOR = 50.0  # weight of its loss beside the generator's, as of ELECTRA
IGNORE = -100  # label where nothing is predicted
# the head that predicts tokens, beside an encoder that was pre-trained here
MLM_HEAD = "mlm_head/head.safetensors"
# called with a generator and L; returns ids (L,), whether a word begins at each (L,), whether a
# sentence begins there (L,)
Source = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


# ---- the encoder that training starts from, and the source of sequences


def initialise(encoder: PreTrainedModel, init: str, seed: int) -> PreTrainedModel:
    """Make the encoder that training begins with.

    pretrained: as it is; default: with the random weights of its family; statistics: with normal
    matrices of the same mean and standard deviation, and the same vectors.
    """
    if init == "pretrained":
        return encoder
    torch.manual_seed(seed)
    if init == "default":
        return make_encoder(encoder.config.to_dict())
    with torch.no_grad():
        for weight in encoder.parameters():
            if weight.ndim > 1:
                weight.normal_(float(weight.mean()), float(weight.std()))
    return encoder


def make_source(stream: Stream) -> Source:
    """Make a source of a stream: every id is a word, and no sentence begins anywhere."""

    def source(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids = stream(rng, length)
        return ids, np.ones(len(ids), bool), np.zeros(len(ids), bool)

    return source


# ---- the choice of tokens


def choose_tokens(
    rng: np.random.Generator, words: np.ndarray, share: float, objective: str
) -> list[np.ndarray]:
    """Choose the places to predict, in pieces that are masked or replaced as one: tokens, words or
    spans.

    words: (L,) bool, whether a word begins there. Pieces do not overlap; spans do not touch, so
    that both edges of each are seen. They hold about `share` of the tokens, and at least one.
    """
    length = len(words)
    budget = max(1, round(share * length))
    if objective not in ("whole-word", "span"):
        return [np.array([i]) for i in np.sort(rng.permutation(length)[:budget])]
    starts = np.flatnonzero(words)
    if not len(starts) or starts[0] != 0:
        starts = np.concatenate([[0], starts])
    stops = np.append(starts[1:], length)
    # place i of the sequence is i + 1 in `free`, which has one place more at either end
    free = np.ones(length + 2, bool)
    pieces = []
    filled = 0
    for first in rng.permutation(len(starts)):
        if filled >= budget:
            break
        count = 1
        if objective == "span":
            count = min(int(rng.geometric(SPAN_END)), LONGEST_SPAN, len(starts) - first)
        while count > 1 and stops[first + count - 1] - starts[first] > budget - filled:
            count -= 1
        begin, end = int(starts[first]), int(stops[first + count - 1])
        needed = slice(begin + 1, end + 1)
        if objective == "span":  # with the places on both sides of the span
            needed = slice(begin, end + 2)
        if free[needed].all() and (objective != "span" or end - begin < length):
            free[begin + 1 : end + 1] = False
            pieces.append(np.arange(begin, end))
            filled += end - begin
    pieces = pieces or [np.array([int(rng.integers(length))])]
    return sorted(pieces, key=lambda piece: int(piece[0]))


class Masked(NamedTuple):
    """A masked sequence of S tokens has labels."""

    ids: np.ndarray  # (S,)
    second: int  # place where the second segment begins
    labels: np.ndarray  # (S,), IGNORE where nothing is predicted
    edges: np.ndarray  # (S, 2), places on both sides of a token's piece
    place: np.ndarray  # (S,), of a token in its piece
    swapped: bool  # whether the segments were exchanged


@dataclass(frozen=True)
class PretrainingBatches:
    """Batches of an objective are a function of (seed, step) only."""

    source: Source
    objective: str
    specials: tuple[int, int, int, int]  # ids of [CLS], [SEP], [PAD], [MASK]
    vocabulary: np.ndarray  # ids that a token may be replaced by
    batch: int  # B
    length: int  # S
    share: float  # of the tokens that are predicted
    seed: int

    def __call__(self, step: int) -> Batch:
        """Return ids, mask, labels (B, S), labels IGNORE where nothing is predicted; of spans also
        edges (B, S, 2) and place (B, S) in the span; of sentence order also segments (B, S) and
        swapped (B,)."""
        rng = np.random.default_rng([self.seed, step])
        rows = [self.mask(rng) for _ in range(self.batch)]
        batch = collate([(row.ids, row.second) for row in rows], self.specials[2])
        size = batch["ids"].shape[1]

        def pad_rows(values: list[np.ndarray], fill: int) -> torch.Tensor:
            wide = np.full((len(values), size, *values[0].shape[1:]), fill, np.int64)
            for line, value in zip(wide, values, strict=True):
                line[: len(value)] = value
            return torch.from_numpy(wide)

        batch["labels"] = pad_rows([row.labels for row in rows], IGNORE)
        if self.objective == "span":
            batch["edges"] = pad_rows([row.edges for row in rows], 0)
            batch["place"] = pad_rows([row.place for row in rows], 0)
        if self.objective == "sentence-order":
            batch["swapped"] = torch.tensor([row.swapped for row in rows])
        else:  # without segments Longformer has no token that attends to all others
            del batch["segments"]
        return batch

    def mask(self, rng: np.random.Generator) -> Masked:
        """Take a sequence from the source, and mask tokens of it."""
        cls, sep, _, mask = self.specials
        pair = self.objective == "sentence-order"
        ids, words, begins = self.source(rng, self.length - (3 if pair else 2))
        cut = len(ids)
        swapped = False
        if pair:
            # the sequence is cut where a sentence begins, as near to the middle as possible
            sentences = np.flatnonzero(begins[1:]) + 1
            cut = len(ids) // 2
            if len(sentences):
                cut = int(sentences[np.abs(sentences - cut).argmin()])
            swapped = bool(rng.random() < 0.5)
            if swapped:
                ids, words = (np.concatenate([x[cut:], x[:cut]]) for x in (ids, words))
                cut = len(ids) - cut
        labels, seen = np.full(len(ids), IGNORE, np.int64), ids.copy()
        edges, place = np.zeros((len(ids), 2), np.int64), np.zeros(len(ids), np.int64)
        for piece in choose_tokens(rng, words, self.share, self.objective):
            labels[piece] = ids[piece]
            # places on both sides of the piece; [CLS] comes before all
            edges[piece] = piece[0], piece[-1] + 2
            place[piece] = piece - piece[0]
            chance = rng.random()
            if chance < 0.8:
                seen[piece] = mask
            elif chance < 0.9:
                seen[piece] = rng.choice(self.vocabulary, size=len(piece))
        inner = [cut] if pair else []

        def frame(x: np.ndarray, first: Any, between: Any) -> np.ndarray:
            """Put [CLS] before, and [SEP] behind each segment, or values in their places."""
            parts: list[Any] = [[first]]
            for part in np.split(x, inner):
                parts += [part, [between]]
            return np.concatenate(parts)

        sequence = frame(seen, cls, sep).astype(np.int64)
        second = cut + 2 if pair else len(sequence)
        return Masked(
            ids=sequence,
            second=second,
            labels=frame(labels, IGNORE, IGNORE),
            edges=frame(edges, [0, 0], [0, 0]),
            place=frame(place, 0, 0),
            swapped=swapped,
        )


# ---- models


class TokenHead(nn.Module):
    """BERT's head maps the output of a token to the vocabulary, whose rows are the embeddings."""

    def __init__(self, hidden: int, width: int, vocabulary: int) -> None:
        """Make a head. hidden: H; width: E; vocabulary: V."""
        super().__init__()
        self.dense, self.norm = nn.Linear(hidden, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Return logits (M, V). hidden: (M, H); table: (V, E)."""
        return self.norm(functional.gelu(self.dense(hidden))) @ table.T + self.bias


class Pretraining(nn.Module):
    """An encoder and its embeddings are trained with the heads of an objective."""

    def __init__(self, encoder: PreTrainedModel, table: nn.Embedding, objective: str) -> None:
        super().__init__()
        self.objective, width = objective, table.embedding_dim
        self.inputs, self.encoder, self.table = EncoderInputs(encoder, width), encoder, table
        hidden = encoder.config.hidden_size
        self.head = TokenHead(hidden, width, table.num_embeddings)
        if objective == "span":
            self.places = nn.Embedding(1024, hidden)
            first, second = nn.Linear(3 * hidden, hidden), nn.Linear(hidden, hidden)
            self.edge = nn.Sequential(first, nn.GELU(), nn.LayerNorm(hidden), second, nn.GELU())
        elif objective == "sentence-order":
            self.order = nn.Linear(hidden, 2)
        elif objective == "replaced-token":
            self.generator = make_encoder(shrink_config(encoder.config).to_dict())
            self.generator_inputs = EncoderInputs(self.generator, width)
            self.discriminator = nn.Sequential(
                nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1)
            )

    def hidden(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None
    ) -> torch.Tensor:
        """Return (B, S, H). ids, mask, segments: (B, S)."""
        return self.encoder(**self.inputs(self.table(ids), mask, segments)).last_hidden_state

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        labels: torch.Tensor,
        segments: torch.Tensor | None = None,
        edges: torch.Tensor | None = None,
        place: torch.Tensor | None = None,
        swapped: torch.Tensor | None = None,
    ) -> Batch:
        """Return measures of a batch of `PretrainingBatches`. loss: of the objective; masked:
        cross-entropy of the masked tokens, in nats; right: share of right predictions; order, edge,
        replaced: losses of the other tasks of an objective."""
        masked = labels != IGNORE
        if self.objective == "replaced-token":
            return self.replaced(ids, mask, labels, masked)
        hidden = self.hidden(ids, mask, segments)
        logits, targets = self.head(hidden[masked], self.table.weight).float(), labels[masked]
        loss = functional.cross_entropy(logits, targets)
        measures = {"masked": loss.detach(), "right": (logits.argmax(1) == targets).float().mean()}
        if edges is not None and place is not None:
            rows = masked.nonzero()[:, 0]
            left, right = (hidden[rows, edges[masked][:, side]] for side in (0, 1))
            places = self.places(place[masked].clamp(max=1023))
            states = self.edge(torch.cat([left, right, places], 1))
            edge = functional.cross_entropy(self.head(states, self.table.weight).float(), targets)
            measures["edge"] = edge.detach()
            loss = loss + edge
        if swapped is not None:
            order = functional.cross_entropy(self.order(hidden[:, 0]).float(), swapped.long())
            measures["order"] = order.detach()
            loss = loss + order
        return {"loss": loss} | measures

    def replaced(
        self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor, masked: torch.Tensor
    ) -> Batch:
        """Return measures of replaced-token detection. labels: (B, S), the tokens; masked: (B, S),
        whether the generator predicts them."""
        inputs = self.generator_inputs(self.table(ids), mask, None)
        hidden = self.generator(**inputs).last_hidden_state
        logits, targets = self.head(hidden[masked], self.table.weight).float(), labels[masked]
        generator = functional.cross_entropy(logits, targets)
        with torch.no_grad():  # no gradient goes through sampled tokens
            sampled = torch.distributions.Categorical(logits=logits).sample()
            filled = ids.clone()
            filled[masked] = sampled
            false = torch.zeros_like(ids, dtype=torch.float)
            false[masked] = (sampled != targets).float()
        detected = self.discriminator(self.hidden(filled, mask, None))[..., 0].float()
        attended = mask.bool()
        replaced = functional.binary_cross_entropy_with_logits(detected[attended], false[attended])
        right = ((detected > 0) == (false > 0))[attended].float().mean()
        return {
            "loss": generator + DISCRIMINATOR * replaced,
            "masked": generator.detach(),
            "replaced": replaced.detach(),
            "right": right,
        }


def shrink_config(config: Any) -> Any:
    """Return the config of a generator: a quarter of the layers, at least one."""
    generator = type(config).from_dict(config.to_dict())
    generator.num_hidden_layers = max(1, config.num_hidden_layers // 4)
    if getattr(generator, "layer_types", None):  # ModernBERT lists the kind of each
        generator.layer_types = generator.layer_types[: generator.num_hidden_layers]
    return generator


# ---- language models that read from left to right, of text or of units

KIND = "language model"
TOLERANCE = 1e-4  # logits that differ by less are the same


def load_causal(name: str) -> PreTrainedModel:
    """Load a language model, in training mode. Raises InputError where there is none."""
    source = fetch_checkpoint(name, KIND)
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, trust_remote_code=False
    )
    return model.train()


def make_gpt2(
    vocabulary: int, layers: int, width: int, heads: int, positions: int
) -> PreTrainedModel:
    """Make a GPT-2 with random weights."""
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": positions}
    config = GPT2Config(vocab_size=vocabulary, bos_token_id=0, eos_token_id=0, **sizes)
    return AutoModelForCausalLM.from_config(config).train()


def set_rows(model: PreTrainedModel, rows: torch.Tensor, special: int) -> None:
    """Give a model a table (V, E) for input and output. special: id of the symbol that begins and
    ends sequences."""
    table = nn.Embedding(*rows.shape)
    table.weight = nn.Parameter(rows.detach().clone())
    model.config.tie_word_embeddings = True
    for config in (model.config, model.generation_config):
        config.bos_token_id = config.eos_token_id = config.pad_token_id = special
    # this resizes the rows of the output, too
    model.resize_token_embeddings(len(rows), mean_resizing=False)
    model.set_input_embeddings(table)
    model.tie_weights()


@torch.inference_mode()
def check_causal(model: PreTrainedModel) -> None:
    """Raise InputError for a model that sees the symbols that follow, or whose logits are not the
    product of its output and its rows."""
    ids = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 0]])
    try:
        logits = model.eval()(input_ids=ids).logits
        hidden = model.base_model(input_ids=ids).last_hidden_state
        product = hidden @ model.get_input_embeddings().weight.T
        fits = logits.allclose(product, atol=TOLERANCE, rtol=1e-3)
    except Exception:  # what a model of another kind raises
        fits = False
    if not fits or not hidden[0, :3].allclose(hidden[1, :3], atol=TOLERANCE):
        raise InputError(
            f"a {model.config.model_type} does not read from left to right with one table of rows; "
            "give one of the kind of GPT-2, OPT or Llama"
        )
    model.train()


class CausalModel(nn.Module):
    """A causal model has the layers of a language model, and one table for input and output."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Take the table out of the model; `save_causal` puts it back."""
        super().__init__()
        check_causal(model)
        self.table = model.get_input_embeddings()
        self.body = model.base_model
        self.inputs = EncoderInputs(self.body, self.table.embedding_dim)

    def hidden(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return (B, S, H). ids, mask: (B, S), padding behind."""
        return self.body(**self.inputs(self.table(ids), mask, None)).last_hidden_state

    def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return (B, S, V), of the symbol that comes next. ids, mask: (B, S), padding behind."""
        return (self.hidden(ids, mask) @ self.table.weight.T).float()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Batch:
        """Return the loss, cross-entropy of every symbol but the first, in nats, and the share of
        right predictions."""
        attended = mask[:, 1:].bool()
        logits, targets = self.logits(ids, mask)[:, :-1][attended], ids[:, 1:][attended]
        right = (logits.argmax(1) == targets).float().mean().detach()
        return {"loss": functional.cross_entropy(logits, targets), "right": right}


@dataclass(frozen=True)
class CausalBatches:
    """Batches of pieces of a source are a function of (seed, step) only."""

    source: Source
    first: int | None  # id of the symbol before every piece
    pad: int
    batch: int  # B
    length: int  # S
    seed: int

    def __call__(self, step: int) -> Batch:
        """Return ids, mask (B, S)."""
        rng = np.random.default_rng([self.seed, step])
        begin = [] if self.first is None else [self.first]
        pieces = []
        for _ in range(self.batch):
            ids, _, _ = self.source(rng, self.length - len(begin))
            pieces.append([*begin, *ids])
        return pad_sequences(pieces, self.pad)


def pad_sequences(sequences: Sequence[Sequence[int]], pad: int) -> Batch:
    """Return ids, mask (B, S), with padding behind."""
    rows = [torch.as_tensor(np.asarray(sequence, np.int64)) for sequence in sequences]
    mask = pad_sequence([torch.ones_like(row) for row in rows], True)
    return {"ids": pad_sequence(rows, True, pad), "mask": mask}


def check_length(
    length: int, model: PreTrainedModel, symbols: str, name: str, fewest: int = 2
) -> None:
    """Raise InputError for sequences that are longer than the positions of a model, or shorter than
    `fewest`, which leaves nothing beside specials. symbols, name: for the message."""
    longest = count_positions(model)
    if length < fewest or (longest is not None and length > longest):
        raise InputError(
            f"sequences of {length} {symbols} do not fit into {name}; give a --length from "
            f"{fewest} to {longest or 'any'}, specials included"
        )


def save_causal(model: PreTrainedModel, trained: CausalModel, folder: Path) -> None:
    """Write a checkpoint that `load_causal` and transformers read."""
    set_rows(model, trained.table.weight, model.config.eos_token_id)
    model.eval().save_pretrained(folder)
