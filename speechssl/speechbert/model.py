"""Masked words are predicted, in text and in speech, by one encoder (SpeechBERT, arXiv 1910.11559, section 2.2).

A sequence is `[CLS] words [SEP]`: word pieces, or audio words. Of 15 % of the positions 80 % are masked, 10 % replaced, 10 % kept
(BERT). The target of an audio word is its text; where that has several pieces, the mean of their losses. The text embeddings stay
as they are: the codes of the audio words were drawn to them.
Ids below V are word pieces, id V + n is audio word n. Letters: B sequences, S positions, V vocabulary, E embedding width, P pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.cascade.ctc import run_lstm
from speechssl.data.records import Corpus, Question
from speechssl.dual.data import Example, Layout, answer_times
from speechssl.dual.decode import Reader
from speechssl.dual.model import SpanModel, span_loss
from speechssl.dual.system import TimedAnswer
from speechssl.dual.train import QaOptions
from speechssl.dual.weights import dequantise, load_reader, quantise, save_reader
from speechssl.errors import InputError
from speechssl.io import hash_bytes, hash_files, read_json, replacing
from speechssl.speechbert.data import WordSequence, WordTable
from speechssl.textlm.encoders import TextCodec, load_text_encoder, pad_id
from speechssl.trainer import Batch

# The vector of an audio word: the code of an autoencoder, drawn towards the word's text embedding.
#
# SpeechBERT (arXiv 1910.11559), section 2.1: a recurrent encoder turns the features of a word into one code, a recurrent decoder
# makes the features of the code (so that the code knows how the word sounds), and the L1 distance of the code to the text embedding
# is made small (so that the text encoder can read it). A word of several pieces has the mean of their embeddings.
# Letters: B words, T rows of features, D their width, E embedding width, H LSTM width.

LONGEST = 150  # rows of a word that are looked at (3 s at 50 Hz); what is longer is no word


@dataclass(frozen=True)
class WordShape:
    """Sizes of a WordEncoder."""

    features: int  # D
    code: int  # E
    width: int = 256  # H, a direction


class WordEncoder(nn.Module):
    """Bidirectional LSTM; the code is a projection of both last states."""

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: WordShape) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("mean", torch.zeros(shape.features))
        self.register_buffer("scale", torch.ones(shape.features))
        self.lstm = nn.LSTM(shape.features, shape.width, batch_first=True, bidirectional=True)
        self.projection = nn.Sequential(nn.Linear(2 * shape.width, shape.code), nn.Tanh(), nn.Linear(shape.code, shape.code))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Codes (B, E). features: (B, T, D); lengths: (B,) rows, 1 to T. What rows beyond a length hold never matters."""
        states = run_lstm(self.lstm, self.standardised(features), lengths)
        forward, backward = states.split(self.shape.width, -1)
        last = (lengths - 1).to(states.device)[:, None, None].expand(-1, 1, self.shape.width)
        return self.projection(torch.cat([forward.gather(1, last)[:, 0], backward[:, 0]], -1))

    def standardised(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.scale


class WordAutoencoder(nn.Module):
    """WordEncoder and a decoder that hears the code at every step."""

    def __init__(self, encoder: WordEncoder, pull: float = 1.0) -> None:
        super().__init__()
        self.encoder, self.pull = encoder, pull
        self.decoder = nn.LSTM(encoder.shape.code, encoder.shape.width, batch_first=True)
        self.output = nn.Linear(encoder.shape.width, encoder.shape.features)

    def forward(self, features: Tensor, lengths: Tensor, targets: Tensor) -> Batch:
        """features: (B, T, D); lengths: (B,); targets: (B, E) text embeddings. Every loss is a mean over the words.

        rebuilt: squared error of a standardised feature. distance: L1 to the word's own embedding. nearest: share of words that
        have no nearer embedding in the batch than their own.
        """
        codes = self.encoder(features, lengths)
        rebuilt = self._rebuilt(codes, features, lengths)
        distance = (codes - targets).abs().sum(-1).mean()
        return {
            "loss": rebuilt + self.pull * distance,
            "rebuilt": rebuilt.detach(),
            "distance": distance.detach(),
            "nearest": nearest(codes.detach(), targets),
        }

    def _rebuilt(self, codes: Tensor, features: Tensor, lengths: Tensor) -> Tensor:
        steps = features.shape[1]
        made = self.output(self.decoder(codes[:, None].expand(-1, steps, -1))[0])
        errors = (made - self.encoder.standardised(features)).square().mean(-1)
        real = torch.arange(steps, device=errors.device) < lengths.to(errors.device)[:, None]
        return (torch.where(real, errors, 0.0).sum(1) / lengths.to(errors)).mean()


def nearest(codes: Tensor, targets: Tensor) -> Tensor:
    """Share of the codes that have no nearer target (L1) than their own. Both (B, E)."""
    closest = targets[torch.cdist(codes, targets, p=1).argmin(1)]
    return (closest == targets).all(-1).float().mean()


def new_encoder(table: WordTable, code: int, width: int) -> WordEncoder:
    """A WordEncoder that standardises as the features of the table want it."""
    return standardise(WordEncoder(WordShape(table.features.shape[1], code, width)), table)


def standardise(encoder: WordEncoder, table: WordTable) -> WordEncoder:
    """The encoder, with mean and scale as the features of the table want them."""
    some = np.asarray(table.features[:: max(len(table.features) // 20_000, 1)], np.float32)
    encoder.mean.copy_(torch.from_numpy(some.mean(0)))
    encoder.scale.copy_(torch.from_numpy(some.std(0)).clamp(min=1e-5))
    return encoder


def pieces_of(texts: Sequence[str], codec: TextCodec) -> list[np.ndarray]:
    """Ids of every word's pieces, (P,) each; none for a word that is not known or has no letter."""
    known = {text: codec.encode([text])[0] for text in set(texts)}
    return [known[text] for text in texts]


def text_vectors(pieces: Sequence[np.ndarray], embeddings: Tensor) -> Tensor:
    """(words, E): the mean embedding of each word's pieces, at least one each. embeddings: (V, E)."""
    return torch.stack([embeddings[torch.from_numpy(ids)].mean(0) for ids in pieces])


@dataclass(frozen=True)
class WordBatches:
    """Batches of words of about one length, a function of (seed, step) only; every word is seen once in an epoch."""

    table: WordTable
    numbers: np.ndarray  # of the words of the table that are learnt from
    targets: Callable[[np.ndarray], Tensor]  # (B,) numbers -> (B, E) what their codes are drawn to
    size: int = 128  # B
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        count = max(len(self.numbers) // self.size, 1)
        epoch, index = divmod(step, count)
        rng = np.random.default_rng([self.seed, epoch])
        lengths = np.diff(self.table.rows[self.numbers], axis=1)[:, 0]
        order = np.argsort(lengths * rng.uniform(0.8, 1.25, len(lengths)), kind="stable")  # other neighbours in every epoch
        order = np.roll(order, int(rng.integers(len(order))))  # and other words left over
        place = int(rng.permutation(count)[index]) * self.size
        chosen = self.numbers[order[place : place + self.size]]
        batch = padded(self.table, chosen)
        return batch | {"targets": self.targets(chosen)}


def padded(table: WordTable, numbers: np.ndarray) -> dict[str, Tensor]:
    """Features (B, T, D) float32 and lengths (B,) of these words of a table."""
    words = [table.features[first : min(last, first + LONGEST)] for first, last in table.rows[numbers]]
    features = [torch.from_numpy(np.asarray(word, np.float32)) for word in words]
    return {"features": pad_sequence(features, batch_first=True), "lengths": torch.tensor([len(f) for f in features])}


@torch.inference_mode()
def codes_of(encoder: WordEncoder, table: WordTable, size: int = 256) -> Tensor:
    """(N, E) codes of all words of a table, float32, computed in order of length."""
    order = np.argsort(np.diff(table.rows, axis=1)[:, 0], kind="stable")
    codes = torch.zeros(len(table), encoder.shape.code)
    device = encoder.mean.device
    for start in range(0, len(order), size):
        part = order[start : start + size]
        batch = padded(table, part)
        codes[torch.from_numpy(part)] = encoder(batch["features"].to(device), batch["lengths"]).float().cpu()
    return codes


# Questions about audio words: `[CLS] question [SEP] passage [SEP]` with a vector in the place of every word.
#
# The reader, its windows and its choice are those of the other systems. Ids 0, 1 and 2 are [CLS], [SEP] and [PAD]; id 3 + n is
# audio
# word n. Letters: B sequences, S positions, E embedding width, N audio words, W words of one recording.

CLS, SEP, PAD, SPECIALS = 0, 1, 2, 3


class CodeReader(nn.Module):
    """A span model whose ids are three specials and the rows of a table of codes."""

    codes: Tensor

    def __init__(self, reader: SpanModel, codes: Tensor) -> None:
        """reader: its embedding has SPECIALS rows. codes: (N, E), neither trained nor saved."""
        super().__init__()
        self.reader = reader
        self.register_buffer("codes", codes, persistent=False)

    def logits(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """As SpanModel's."""
        return self.reader.logits_of(look_up(self.reader.embedding.weight, self.codes, ids), mask, segments)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor, first: Tensor, last: Tensor) -> Batch:
        """As SpanModel's."""
        return span_loss(self.logits(ids, mask, segments), first, last)


@dataclass(frozen=True, eq=False)
class AudioWords:
    """What is kept of a recording. codes: (W, E) float32; starts, ends: (W,) seconds. Of its words nothing is known."""

    codes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)


def examples(data: Corpus, table: WordTable) -> tuple[list[Example], dict[str, str]]:
    """For every answerable question one example a way of cutting; and the questions without any: id -> why."""
    found, left_out = [], {}
    for question in data.answerable:
        times = answer_times(question)
        if times is None:
            left_out[question.id] = "no answer has times"
            continue
        made = _of_question(question, table, *times)
        if not made:
            left_out[question.id] = f"it, or the answer in passage {question.passage}, has no audio word"
        found += made
    return found, left_out


def _of_question(question: Question, table: WordTable, start: float, end: float) -> list[Example]:
    made = []
    for asked, passage in zip(table.sequences.get(question.id, ()), table.sequences.get(question.passage, ()), strict=False):
        inside = passage.inside(start, end)
        if len(asked) and len(inside):
            made.append(Example(_ids(asked), _ids(passage), int(inside[0]), int(inside[-1])))
    return made


def _ids(words: WordSequence) -> np.ndarray:
    return words.numbers + SPECIALS


def answer_codes(
    model: SpanModel, layout: Layout, items: Sequence[tuple[AudioWords, AudioWords]], batch: int = 16, bf16: bool = False
) -> list[TimedAnswer]:
    """(question, passage) -> answers in seconds. A passage in which no word was heard gives an empty answer at 0 s."""
    recordings = {id(heard): heard for pair in items for heard in pair}
    firsts = np.cumsum([0, *(len(heard) for heard in recordings.values())]) + SPECIALS
    ids = {name: np.arange(first, first + len(heard)) for (name, heard), first in zip(recordings.items(), firsts, strict=False)}
    codes = np.concatenate([np.zeros((0, model.embedding.embedding_dim), np.float32), *(h.codes for h in recordings.values())])
    reader = Reader(CodeReader(model, torch.from_numpy(codes)).eval(), layout, batch, bf16)
    usable = [i for i, (_, passage) in enumerate(items) if len(passage)]
    choices = reader.read_many([(ids[id(items[i][0])], ids[id(items[i][1])]) for i in usable])
    answers = [TimedAnswer(0.0, 0.0, 0.0)] * len(items)
    for i, choice in zip(usable, choices, strict=True):
        passage = items[i][1]
        answers[i] = TimedAnswer(float(passage.starts[choice.first]), float(passage.ends[choice.last]), choice.confidence)
    return answers


# SpeechBERT on disk: the reader as any reader (`qa/weights.py`), and beside it the word encoder.
#
# The card is written last. It says which features the words are made of and holds the hash of either file.

WORDS = "words.safetensors"
WHAT = "SpeechBERT"


def as_saved(encoder: WordEncoder) -> WordEncoder:
    """The encoder with the weights that a file would give back: what reads its codes is trained on those of the file."""
    encoder.load_state_dict(dequantise(quantise(encoder.state_dict())))
    return encoder.eval().requires_grad_(False)


def save_speechbert(folder: Path, encoder: WordEncoder, reader: SpanModel, layout: Layout, card: dict[str, Any]) -> None:
    """Write words.safetensors, model.safetensors, config.json and card.json."""
    with replacing(folder / WORDS) as temporary:
        save_file(quantise(encoder.state_dict()), temporary)
    words = {"shape": asdict(encoder.shape), "weights": hash_files([folder / WORDS])}
    save_reader(folder, reader, layout, card | {"what": WHAT, "words": words})


def load_weights(folder: Path) -> tuple[WordEncoder, SpanModel, Layout, dict[str, Any]]:
    """Raises InputError where a file is missing, damaged or not the one of the card, or the folder holds another kind of model."""
    card = read_json(folder / "card.json")
    words = card.get("words") if isinstance(card, dict) else None
    if not isinstance(words, dict) or card.get("what") != WHAT:
        raise InputError(f"{folder} does not hold SpeechBERT; give the folder of `speechssl train speechbert`")
    reader, layout, card = load_reader(folder)
    return _load_words(folder / WORDS, words, reader.embedding.embedding_dim), reader, layout, card


def _load_words(path: Path, words: dict[str, Any], width: int) -> WordEncoder:
    try:
        encoder = WordEncoder(WordShape(**words["shape"]))
        packed: dict[str, torch.Tensor] = load_file(path)
        if words.get("weights") != hash_files([path]):
            raise ValueError("its contents are not those the card was written for")
        if encoder.shape.code != width:
            raise ValueError(f"its codes have {encoder.shape.code} values and the reader takes {width}")
        encoder.load_state_dict(dequantise(packed))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path} does not hold the word encoder of its card ({reason}); train or fetch it again") from error
    return encoder.eval().requires_grad_(False)


# What SpeechBERT begins with on the side of text: a text-pre-trained encoder, or a reader that has learnt to answer from text.
#
# The paper begins with BERT. To go on from a reader of words is ours: it has seen the questions of its corpus in writing.


@dataclass(frozen=True, eq=False)
class TextHalf:
    """What SpeechBERT has of text: a span model, the embeddings (V, E) of its words, and its tokeniser."""

    reader: SpanModel  # its embedding has the SPECIALS rows
    embeddings: Tensor
    tokenizer: PreTrainedTokenizerBase
    card: dict[str, Any]


def text_half(options: QaOptions, start: Path | None) -> TextHalf:
    """A text-pre-trained encoder, or `start`: a reader of `speechssl train text-qa`, whose span head comes along.

    Raises InputError where that is no reader of words.
    """
    torch.manual_seed(options.training.seed)
    if start is None:
        encoder, tokenizer = load_text_encoder(options.text_encoder)
        table, card = encoder.get_input_embeddings().weight.detach().clone(), _card(options.text_encoder, encoder)
        return TextHalf(_span_model(encoder, table, None, tokenizer), table, tokenizer, card)
    if not (start / "tokenizer.json").is_file():
        raise InputError(f"{start} has no tokenizer.json; --start takes a folder of `speechssl train text-qa`")
    model, _, made = load_reader(start)
    if model.subwords is not None:
        raise InputError(f"{start} reads sub-word units, which speech has not; --start takes one of --subwords none")
    tokenizer = AutoTokenizer.from_pretrained(start)
    table = model.embedding.weight.detach().clone()
    card = {"text_encoder": made.get("text_encoder"), "start": made["weights"], "start_corpus": made.get("corpus")}
    return TextHalf(_span_model(model.encoder.train().requires_grad_(True), table, model.head, tokenizer), table, tokenizer, card)


def _card(name: str, encoder: PreTrainedModel) -> dict[str, Any]:
    """Which encoder it was: a name may come to mean another."""
    weights = encoder.state_dict()
    return {"text_encoder": name, "text_weights": hash_bytes(*(weights[k].numpy().tobytes() for k in sorted(weights)))}


def _span_model(encoder: Any, table: Tensor, head: nn.Linear | None, tokenizer: PreTrainedTokenizerBase) -> SpanModel:
    if tokenizer.mask_token_id is None:
        raise InputError("the text encoder's tokeniser has no mask token; choose an encoder that was trained by masking")
    specials = nn.Embedding(SPECIALS, table.shape[1])
    with torch.no_grad():
        specials.weight.copy_(table[[tokenizer.cls_token_id, tokenizer.sep_token_id, pad_id(tokenizer)]])
    model = SpanModel(encoder, specials)
    if head is not None:
        model.head.load_state_dict(head.state_dict())
    return model


NONE = -1  # no piece to predict
KEEP, REPLACE = 0.1, 0.1  # shares of the chosen positions


def look_up(table: Tensor, codes: Tensor, ids: Tensor) -> Tensor:
    """Vectors (B, S, E): rows of the table (V, E), and of the codes (N, E) for ids from V on."""
    rows = len(table)
    words = functional.embedding(ids.clamp(max=rows - 1), table)
    if not len(codes):
        return words
    heard = functional.embedding((ids - rows).clamp(min=0), codes).to(words.dtype)
    return torch.where((ids >= rows)[..., None], heard, words)


class MaskedWords(nn.Module):
    """The reader's encoder with a head that predicts word pieces; its last layer is the text embeddings themselves."""

    embeddings: Tensor
    codes: Tensor

    def __init__(self, reader: SpanModel, embeddings: Tensor, codes: Tensor) -> None:
        """embeddings: (V, E), codes: (N, E); neither is trained or saved."""
        super().__init__()
        self.reader = reader
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("codes", codes, persistent=False)
        width = embeddings.shape[1]
        self.transform = nn.Sequential(nn.Linear(reader.encoder.config.hidden_size, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(len(embeddings)))

    def forward(self, ids: Tensor, mask: Tensor, targets: Tensor, speech: Tensor) -> Batch:
        """ids, mask: (B, S); targets: (B, S, P), NONE where there is nothing to predict; speech: (B,) 1 for audio words.

        The loss is a mean over the chosen positions of each sequence, then over sequences. text, speech: share of chosen positions
        of either kind whose likeliest piece is right.
        """
        hidden = self.reader.hidden(look_up(self.embeddings, self.codes, ids), mask, None)
        row, column = torch.nonzero(targets[..., 0] != NONE, as_tuple=True)
        wanted = targets[row, column]
        logits = (self.transform(hidden[row, column]) @ self.embeddings.T.to(hidden) + self.bias).float()
        real = wanted != NONE
        each = -logits.log_softmax(-1).gather(1, wanted.clamp(min=0))
        loss = torch.where(real, each, 0.0).sum(1) / real.sum(1)
        share = 1 / torch.bincount(row, minlength=len(ids))[row]
        right = ((logits.argmax(-1)[:, None] == wanted) & real).any(1).float()
        return {"loss": (loss * share).sum() / len(ids), **_shares(right, speech[row].bool())}


def _shares(right: Tensor, speech: Tensor) -> Batch:
    """A kind that is not in the batch counts as 0."""
    kinds = {"text": ~speech, "speech": speech}
    return {name: (right * which).sum() / which.sum().clamp(min=1) for name, which in kinds.items()}


@dataclass(frozen=True)
class Sentence:
    """What a model reads of one recording, and what it could be asked for. ids: (W,); targets: W arrays of pieces, may be empty."""

    ids: np.ndarray
    targets: Sequence[np.ndarray]


@dataclass(frozen=True)
class Vocabulary:
    """Special ids, and where ids of audio words begin."""

    cls: int
    sep: int
    pad: int
    mask: int
    size: int  # V
    words: int  # N audio words


@dataclass(frozen=True)
class MaskedBatches:
    """Batches of which half the sequences are text and half speech, a function of (seed, step) only.

    Recordings are drawn by their length; a sequence is a random stretch of at most `window` words.
    """

    text: Sequence[Sentence]
    speech: Sequence[Sentence]
    vocabulary: Vocabulary
    size: int = 16  # B
    window: int = 100
    share: float = 0.15
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        half = self.size // 2
        chosen = [*self._chosen(rng, self.text, self.size - half), *self._chosen(rng, self.speech, half)]
        made = [self._masked(rng, self._stretch(rng, sentence)) for sentence in chosen]
        ids = pad_sequence([torch.from_numpy(i) for i, _ in made], batch_first=True, padding_value=self.vocabulary.pad)
        mask = pad_sequence([torch.ones(len(i), dtype=torch.long) for i, _ in made], batch_first=True)
        deepest = max(t.shape[1] for _, t in made)
        targets = torch.full((*ids.shape, deepest), NONE)
        for row, (_, wanted) in enumerate(made):
            targets[row, : len(wanted), : wanted.shape[1]] = torch.from_numpy(wanted)
        return {"ids": ids, "mask": mask, "targets": targets, "speech": (torch.arange(self.size) >= self.size - half).long()}

    def _chosen(self, rng: np.random.Generator, sentences: Sequence[Sentence], count: int) -> list[Sentence]:
        lengths = np.array([len(s.ids) for s in sentences], float)
        return [sentences[i] for i in rng.choice(len(sentences), count, p=lengths / lengths.sum())]

    def _stretch(self, rng: np.random.Generator, sentence: Sentence) -> Sentence:
        first = int(rng.integers(max(len(sentence.ids) - self.window, 0) + 1))
        stop = first + self.window
        return Sentence(sentence.ids[first:stop], sentence.targets[first:stop])

    def _masked(self, rng: np.random.Generator, sentence: Sentence) -> tuple[np.ndarray, np.ndarray]:
        """Ids (S,) with [CLS] and [SEP], and targets (S, P). At least one position is chosen, if any can be."""
        known = np.array([len(t) > 0 for t in sentence.targets])
        chosen = known & (rng.random(len(known)) < self.share)
        if not chosen.any() and known.any():
            chosen[rng.choice(np.flatnonzero(known))] = True
        ids = np.concatenate([[self.vocabulary.cls], self._disturbed(rng, sentence.ids, chosen), [self.vocabulary.sep]])
        targets = np.full((len(ids), max(map(len, sentence.targets), default=1) or 1), NONE, np.int64)
        for place in np.flatnonzero(chosen).tolist():
            pieces = sentence.targets[place]
            targets[place + 1, : len(pieces)] = pieces
        return ids.astype(np.int64), targets

    def _disturbed(self, rng: np.random.Generator, ids: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The chosen are masked, or replaced by another of their kind, or kept."""
        v, draw, others = self.vocabulary, rng.random(len(ids)), ids.copy()
        heard = ids >= v.size
        others[heard] = v.size + rng.integers(max(v.words, 1), size=int(heard.sum()))
        others[~heard] = rng.integers(v.size, size=int((~heard).sum()))
        masked = np.where(draw < KEEP, ids, np.where(draw < KEEP + REPLACE, others, v.mask))
        return np.where(chosen, masked, ids)
