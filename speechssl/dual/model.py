"""Extraction-based QA over any token sequence: an encoder, two vectors dotted with every output, windows, one choice.

DUAL reads units and the cascade reads word pieces with this same reader. The sequence is `[CLS] question [SEP] window [SEP]`.
Letters: B sequences, S tokens in a sequence, E embedding width.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from speechssl.dual.decode import MAX_TOKENS, SpanChoice, Window, WindowScores, best_span_of_windows, windows
from speechssl.textlm.symbols import SubwordUnits
from speechssl.trainer import Batch

IGNORED = -1e4  # logit of positions that are not allowed; finite in bf16


@dataclass(frozen=True)
class Layout:
    """How a question and a passage become sequences. All sizes in tokens."""

    cls: int  # ids
    sep: int
    pad: int
    size: int = 320  # passage tokens a window
    stride: int = 160
    question: int = 120  # longer questions lose their tail
    answer: int = MAX_TOKENS  # longest answer
    start_weight: float = 1.0  # of the start and the end in a span's score: BERT's, but for DUAL's reader (`qa/spans.py`)
    end_weight: float = 1.0

    def sequence(self, question: np.ndarray, window: np.ndarray) -> tuple[np.ndarray, int]:
        """Ids (S,) and the position of the window's first token."""
        asked = question[: self.question]
        ids = np.concatenate([[self.cls], asked, [self.sep], window, [self.sep]]).astype(np.int64)
        return ids, len(asked) + 2


class Scorer(Protocol):
    """What a reader needs of a model: start and end logits, as those of SpanModel."""

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor: ...
    def to(self, device: torch.device) -> Any: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


def device_of(name: str) -> torch.device:
    """name: of torch, or `auto`: a GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


@dataclass(frozen=True)
class Inputs:
    """What a text encoder is given in the place of its own token ids."""

    glances: bool  # Longformer
    segments: bool

    @classmethod
    def of(cls, encoder: PreTrainedModel, width: int) -> Inputs:
        """Takes the encoder's own embedding table, of this width, away."""
        accepted = inspect.signature(encoder.forward).parameters
        glances = "global_attention_mask" in accepted
        # inputs_embeds are given instead; Longformer still looks up its own padding, to fill its last attention window
        rows = 1 + (getattr(encoder.config, "pad_token_id", None) or 0) if glances else 1
        encoder.set_input_embeddings(nn.Embedding(rows, width))
        return cls(glances, "token_type_ids" in accepted and getattr(encoder.config, "type_vocab_size", 0) > 1)

    def __call__(self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The encoder's keyword arguments.

        embedded: (B, S, E); mask: (B, S); segments: (B, S), None for sequences in which nothing is asked. Longformer's global
        attention is on the question with [CLS] and its [SEP] (arXiv 2004.05150, section 6.1): segment 0.
        """
        extra: dict[str, torch.Tensor] = {}
        if segments is not None:
            extra |= {"token_type_ids": segments} if self.segments else {}
            extra |= {"global_attention_mask": (1 - segments) * mask} if self.glances else {}
        return {"inputs_embeds": embedded, "attention_mask": mask, **extra}


class SpanModel(nn.Module):
    """Embedding table, text encoder, span head. subwords: added to the embedding of every token."""

    def __init__(self, encoder: PreTrainedModel, embedding: nn.Embedding, subwords: SubwordUnits | None = None) -> None:
        super().__init__()
        self.inputs = Inputs.of(encoder, embedding.embedding_dim)
        self.encoder = encoder
        self.embedding = embedding
        self.subwords = subwords
        self.head = nn.Linear(encoder.config.hidden_size, 2)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """ids, mask, segments: (B, S). Returns (B, S, 2): start and end logits; IGNORED outside [CLS] and the window."""
        embedded = self.embedding(ids) if self.subwords is None else self.embedding(ids) + self.subwords(ids)
        return self.logits_of(embedded, mask, segments)

    def logits_of(self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """`logits` of vectors (B, S, E) in the place of ids."""
        hidden = self.hidden(embedded, mask, segments)
        allowed = of_window(mask, segments).bool()
        allowed[:, 0] = True
        return torch.where(allowed[..., None], self.head(hidden).float(), IGNORED)

    def hidden(self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None) -> torch.Tensor:
        """What the encoder makes of vectors (B, S, E). segments None: of one text, in which nothing is asked."""
        return self.encoder(**self.inputs(embedded, mask, segments)).last_hidden_state

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, first: torch.Tensor, last: torch.Tensor
    ) -> Batch:
        """first, last: (B,) positions of the answer's first and last token, 0 where the window holds no answer."""
        return span_loss(self.logits(ids, mask, segments), first, last)


def span_loss(logits: torch.Tensor, first: torch.Tensor, last: torch.Tensor) -> Batch:
    """logits: (B, S, 2); first, last: (B,). The cross-entropy of both ends, and how often both are right."""
    loss = (functional.cross_entropy(logits[..., 0], first) + functional.cross_entropy(logits[..., 1], last)) / 2
    right = (logits[..., 0].argmax(1) == first) & (logits[..., 1].argmax(1) == last)
    return {"loss": loss, "exact": right.float().mean().detach()}


def collate(sequences: Sequence[tuple[np.ndarray, int]], pad: int) -> dict[str, torch.Tensor]:
    """Pad to one length. segments as BERT's: 0 for [CLS] question [SEP], 1 for the window and its closing [SEP], 0 for padding."""
    ids = pad_sequence([torch.from_numpy(s) for s, _ in sequences], batch_first=True, padding_value=pad)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (sequence, offset) in enumerate(sequences):
        mask[row, : len(sequence)] = 1
        segments[row, offset : len(sequence)] = 1
    return {"ids": ids, "mask": mask, "segments": segments}


def of_window(mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """mask, segments: (B, S) of `collate`. (B, S), 1 for tokens of the window: segment 1 without its closing [SEP].

    The closing [SEP] is the last of a sequence: nothing follows it.
    """
    return segments * functional.pad(mask[:, 1:], (0, 1))


@dataclass(frozen=True)
class Example:
    """A question to train on: token ids, and the answer's first and last passage token (inclusive)."""

    question: np.ndarray  # (Q,) int
    passage: np.ndarray  # (P,) int
    first: int
    last: int


def drawn_at(step: int, examples: int, size: int, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """Which of so many examples are in the batch of a step, (size,) or fewer, and the generator of what is random about them.

    Every epoch has an order of its own and leaves out what does not fill a batch.
    """
    epoch, index = divmod(step, max(examples // size, 1))
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return order[index * size : (index + 1) * size], np.random.default_rng([seed, epoch, index])


@dataclass(frozen=True)
class ExampleBatches:
    """Batches of windows, a function of (seed, step) only; `empty` of them do not hold the answer and point at [CLS]."""

    examples: Sequence[Example]
    layout: Layout
    size: int = 16  # B
    empty: float = 0.1
    seed: int = 0
    noise: float = 0.0  # share of the question's and the passage's tokens that are replaced
    symbols: int = 0  # by one of these ids, 0..symbols - 1

    def __call__(self, step: int) -> Batch:
        numbers, rng = drawn_at(step, len(self.examples), self.size, self.seed)
        chosen = [self.examples[i] for i in numbers]
        drawn = [self._draw(rng, example) for example in chosen]
        batch = collate([sequence for sequence, _, _ in drawn], self.layout.pad)
        batch["first"] = torch.tensor([first for _, first, _ in drawn])
        batch["last"] = torch.tensor([last for _, _, last in drawn])
        return batch

    def _draw(self, rng: np.random.Generator, example: Example) -> tuple[tuple[np.ndarray, int], int, int]:
        """A window at a random place: with the answer inside, or (rarely) anywhere."""
        total, size = len(example.passage), self.layout.size
        latest = max(total - size, 0)
        low, high = max(example.last - size + 1, 0), min(example.first, latest)
        if low > high or rng.random() < self.empty:
            low, high = 0, latest
        window = Window(int(rng.integers(low, high + 1)), min(size, total))
        sequence, offset = self.layout.sequence(example.question, example.passage[window.first : window.stop])
        if self.noise:
            self._disturb(rng, sequence, offset)
        inside = window.local(example.first, example.last)
        first, last = (offset + inside[0], offset + inside[1]) if inside else (0, 0)
        return (sequence, offset), first, last

    def _disturb(self, rng: np.random.Generator, sequence: np.ndarray, offset: int) -> None:
        """Replace tokens in place, as another voice would; [CLS] and the two [SEP] stay."""
        where = np.flatnonzero(rng.random(len(sequence)) < self.noise)
        where = where[(where > 0) & (where != offset - 1) & (where < len(sequence) - 1)]
        sequence[where] = rng.integers(self.symbols, size=len(where))


@dataclass(frozen=True)
class ShortFirst:
    """Batches of short windows for the first `steps` steps, of whole ones after.

    To match a question with one of three sentences is learnt long before one of ten: from a whole passage the reader sits on a
    plateau (it points at any fact) for hundreds of steps. A batch of short windows holds as many tokens as one of whole windows.
    """

    short: ExampleBatches
    whole: ExampleBatches
    steps: int

    def __call__(self, step: int) -> Batch:
        return (self.short if step < self.steps else self.whole)(step)


@dataclass(frozen=True)
class Reader:
    """A trained span model that answers."""

    model: Scorer
    layout: Layout
    batch: int = 16
    bf16: bool = False
    device: str = "auto"  # a GPU where there is one

    def __post_init__(self) -> None:
        """Takes the model there."""
        self.model.to(device_of(self.device))

    def read(self, question: np.ndarray, passage: np.ndarray) -> SpanChoice:
        """The best span of the passage. question, passage: token ids. Raises ValueError for an empty passage."""
        return self.read_many([(question, passage)])[0]

    @torch.inference_mode()
    def read_many(self, items: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[SpanChoice]:
        """(question, passage) pairs -> one choice each. Windows are sorted by length and run in batches.

        Warns of questions that are longer than the layout allows: they lose their tail.
        """
        if long := sum(len(question) > self.layout.question for question, _ in items):
            warnings.warn(f"{long} of {len(items)} questions lost what is beyond {self.layout.question} tokens", stacklevel=3)
        cut = [(i, w) for i, (_, p) in enumerate(items) for w in windows(len(p), self.layout.size, self.layout.stride)]
        sequences = [self.layout.sequence(items[i][0], items[i][1][w.first : w.stop]) for i, w in cut]
        order = sorted(range(len(cut)), key=lambda n: len(sequences[n][0]))
        scored: dict[int, WindowScores] = {}
        for start in range(0, len(order), self.batch):
            part = order[start : start + self.batch]
            logits = self._logits([sequences[n] for n in part])
            for row, n in enumerate(part):
                scored[n] = WindowScores.of_sequence(cut[n][1], logits[row, :, 0], logits[row, :, 1], sequences[n][1])
        by_item: list[list[WindowScores]] = [[] for _ in items]
        for n, (i, _) in enumerate(cut):
            by_item[i].append(scored[n])
        how = self.layout.answer, self.layout.start_weight, self.layout.end_weight
        return [best_span_of_windows(found, *how) for found in by_item]

    def _logits(self, sequences: Sequence[tuple[np.ndarray, int]]) -> torch.Tensor:
        device = next(self.model.parameters()).device
        batch = {name: value.to(device) for name, value in collate(sequences, self.layout.pad).items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
            return self.model.logits(**batch).cpu()
