"""Recognise speech by connectionist temporal classification (CTC; Graves et al., ICML 2006) on an
encoder's hidden states.

`CtcHead` gives every frame log-probabilities of symbols. `find_greedy_spans` finds which frames
each symbol has on the likeliest path, `align_spans` on the likeliest path of a known text;
`join_symbols` joins symbols to words; `CtcRecogniser` does all of it. The head (learnt layer
weights, projection, LSTM) is SUPERB's, arXiv 2105.01051, section 3, where the LSTM has two layers
of 1024; one of 256 is the default here, for a small corpus and a CPU.

Letters: B batch, L hidden states (the encoder's layers and its input), T frames, D width of a
hidden state, V symbols.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from speechssl.artifacts import check_hash, hash_files, read_json, replace_file, write_json
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.errors import InputError
from speechssl.quantisation import dequantise
from speechssl.timing import FrameGrid

if TYPE_CHECKING:  # slow to import
    # a span is a symbol `token` in the frames [start, end); `score`: its mean log-probability there
    from torchaudio.functional import TokenSpan

BLANK = 0
BLANK_NAME = "<blank>"
LONGEST_PIECE = 3000  # most frames that are decoded at once: a minute at 50 Hz


@dataclass(frozen=True)
class CtcVocabulary:
    """A vocabulary is the symbols that a head tells apart; number 0 is the blank."""

    symbols: tuple[str, ...]
    separator: str  # between words, "|" in English; "" where every symbol is a word (Chinese)

    @classmethod
    def make_english(cls) -> CtcVocabulary:
        """Make a vocabulary of lower-case letters, apostrophe and the word separator: V = 29."""
        return cls((BLANK_NAME, "|", "'", *"abcdefghijklmnopqrstuvwxyz"), "|")

    @classmethod
    def from_symbols(cls, sequences: Iterable[Iterable[str]], separator: str = "") -> CtcVocabulary:
        """Make a vocabulary of every symbol that occurs, such as the phones or characters of
        training texts, and the separator."""
        symbols = {symbol for sequence in sequences for symbol in sequence}
        if separator:
            symbols.add(separator)
        return cls((BLANK_NAME, *sorted(symbols)), separator)

    def __len__(self) -> int:
        return len(self.symbols)

    def number_symbols(self, symbols: Iterable[str]) -> list[int]:
        """Number symbols. Those that the vocabulary lacks are left out, as the head cannot write
        them."""
        index = {symbol: i for i, symbol in enumerate(self.symbols)}
        return [index[symbol] for symbol in symbols if symbol in index]

    def encode(self, text: str) -> list[int]:
        """Return the symbol numbers of a text's letters, with a separator between words."""
        return self.number_symbols(self.separator.join(text.split()))

    def decode(self, numbers: Iterable[int]) -> str:
        """Return the text of symbol numbers, which are no blanks; separators become single
        spaces."""
        text = "".join(self.symbols[i] for i in numbers)
        return " ".join(text.replace(self.separator, " ").split()) if self.separator else text


@dataclass(frozen=True)
class HeadShape:
    """A CTC head has these sizes."""

    width: int  # D
    symbols: int  # V
    # L: 1 for one hidden state; encoder.layers + 1 for all, which are summed with learnt weights
    states: int = 1
    projection: int = 256
    lstm_width: int = 256  # units of each direction
    lstm_layers: int = 1  # 0: no LSTM, a linear head
    dropout: float = 0.0  # on the output of every LSTM layer, or of the projection without an LSTM


class CtcHead(nn.Module):
    """The head sums hidden states with learnt weights, projects the sum, and runs a bidirectional
    LSTM, whose output gives the log-probabilities of symbols."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.weights = nn.Parameter(torch.zeros(shape.states)) if shape.states > 1 else None
        self.projection = nn.Linear(shape.width, shape.projection)
        self.lstm = None
        width = shape.projection
        if shape.lstm_layers:
            self.lstm = nn.LSTM(
                shape.projection,
                shape.lstm_width,
                shape.lstm_layers,
                batch_first=True,
                dropout=shape.dropout if shape.lstm_layers > 1 else 0.0,
                bidirectional=True,
            )
            width = 2 * shape.lstm_width
        self.dropout = nn.Dropout(shape.dropout)
        self.output = nn.Linear(width, shape.symbols)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return log-probabilities (B, T, V), float32. The padding changes nothing.

        features: (B, L, T, D) or, for one hidden state, (B, T, D); lengths: (B,) frames that are
        not padding, 1 to T.
        """
        if self.weights is not None:
            features = torch.einsum("l,bltd->btd", self.weights.softmax(0), features)
        elif features.ndim == 4:
            features = features[:, 0]
        hidden = self.projection(features)
        if self.lstm is not None:
            hidden = run_lstm(self.lstm, hidden, lengths)
        return self.output(self.dropout(hidden)).float().log_softmax(-1)

    def loss(self, features: Tensor, lengths: Tensor, targets: Sequence[Sequence[int]]) -> Tensor:
        """Return the mean over the batch of each utterance's CTC loss divided by its number of
        symbols, in nats. Targets that do not fit into their frames add nothing to it. targets: B
        lists of symbol numbers, without blanks."""
        log_probs = self(features, lengths)
        sizes = torch.tensor([len(target) for target in targets])
        joined = torch.tensor([i for target in targets for i in target], dtype=torch.long)
        losses = nn.functional.ctc_loss(
            log_probs.transpose(0, 1),
            joined.to(log_probs.device),
            lengths.cpu(),
            sizes,
            BLANK,
            reduction="none",
            zero_infinity=True,
        )
        return (losses / sizes.clamp(min=1).to(losses)).mean()


def run_lstm(lstm: nn.LSTM, padded: Tensor, lengths: Tensor) -> Tensor:
    """Run a bidirectional LSTM of H units on a padded batch: (B, T, D) -> (B, T, 2 H). The padding
    changes nothing.

    On a CPU a packed sequence costs ten times a padded one (torch 2.11: no fused kernel). There
    each direction of each layer runs on the padded batch by itself, the backward one on rows that
    are reversed within their lengths.
    """
    if int(lengths.min()) == padded.shape[1]:
        return lstm(padded)[0]
    if padded.device.type != "cpu":
        packed = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden = lstm(packed)[0]
        return pad_packed_sequence(hidden, batch_first=True, total_length=padded.shape[1])[0]
    hidden = padded
    for layer in range(lstm.num_layers):
        hidden = nn.functional.dropout(hidden, lstm.dropout, lstm.training and layer > 0)
        forward = _run_one_way(lstm, f"l{layer}", hidden)
        backward = _run_one_way(lstm, f"l{layer}_reverse", _reverse(hidden, lengths))
        hidden = torch.cat([forward, _reverse(backward, lengths)], -1)
    return hidden


def _run_one_way(lstm: nn.LSTM, direction: str, inputs: Tensor) -> Tensor:
    """Run one direction of one layer: (B, T, D) -> (B, T, H). direction: the suffix of its weights'
    names, such as "l0_reverse"."""
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    zero = inputs.new_zeros(1, len(inputs), lstm.hidden_size)
    outputs, _, _ = torch.lstm(
        inputs,
        (zero, zero),
        [getattr(lstm, f"{kind}_{direction}") for kind in kinds],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=False,
        bidirectional=False,
        batch_first=True,
    )
    return outputs


def _reverse(states: Tensor, lengths: Tensor) -> Tensor:
    """Reverse every row of a padded batch (B, T, D) within its length; the padding stays."""
    frames = torch.arange(states.shape[1])
    row_lengths = lengths.cpu()[:, None]
    order = torch.where(frames < row_lengths, row_lengths - 1 - frames, frames)[..., None]
    return states.gather(1, order.expand_as(states))


def count_needed_frames(targets: Sequence[int]) -> int:
    """Count the frames that these symbols need at least: equal neighbours need a blank between
    them."""
    return len(targets) + sum(a == b for a, b in itertools.pairwise(targets))


def decode_greedily(log_probs: Tensor, vocabulary: CtcVocabulary) -> str:
    """Return the text of the likeliest path of log-probabilities (T, V)."""
    return vocabulary.decode(span.token for span in find_greedy_spans(log_probs))


def find_greedy_symbols(log_probs: Tensor, vocabulary: CtcVocabulary) -> list[str]:
    """Find the symbols of the likeliest path of log-probabilities (T, V)."""
    return [vocabulary.symbols[span.token] for span in find_greedy_spans(log_probs)]


def find_greedy_spans(log_probs: Tensor, blank: int = BLANK) -> list[TokenSpan]:
    """Find the symbols of the likeliest path with their frames. As it is also the likeliest path of
    its text, these are the frames that alignment would find. log_probs: (T, V)."""
    from torchaudio.functional import merge_tokens  # slow to import

    scores, path = log_probs.max(-1)
    return merge_tokens(path, scores, blank)


def align_spans(log_probs: Tensor, targets: Sequence[int]) -> list[TokenSpan]:
    """Find the frames of `targets`, numbers of symbols, on the likeliest path that writes them.

    log_probs: (T, V), of 20 minutes of speech at most. Raises ValueError where the targets do not
    fit into T frames.
    """
    if not targets:
        return []
    needed = count_needed_frames(targets)
    if needed > len(log_probs):
        raise ValueError(
            f"{len(targets)} symbols need at least {needed} frames and there are {len(log_probs)}"
        )
    from torchaudio.functional import forced_align, merge_tokens  # slow to import

    batch = log_probs.detach().float().cpu()[None].contiguous()
    target_batch = torch.tensor([list(targets)], dtype=torch.int32)
    path, scores = forced_align(batch, target_batch, blank=BLANK)
    return merge_tokens(path[0], scores[0], BLANK)


def join_symbols(
    spans: Iterable[TokenSpan],
    symbols: Sequence[str],
    separator: str,
    grid: FrameGrid,
    from_separator: bool = False,
) -> list[TimedWord]:
    """Join symbols to words with times in seconds; their confidence is the geometric mean of the
    frames' probabilities.

    from_separator: whether a word begins with the separator before it. The heads that are trained
    here write the separator where the next word begins, and the first letter of that word two
    frames later.
    """
    words: list[tuple[int, list[TokenSpan]]] = []  # the first frame and the letters of each word
    letters: list[TokenSpan] = []  # the letters of the last word
    separator_before: TokenSpan | None = None  # the separator just before the current span
    for span in spans:
        if separator and symbols[span.token] == separator:
            separator_before = span
            continue
        if not separator or not words or separator_before is not None:
            begin = separator_before if from_separator and separator_before is not None else span
            letters = []
            words.append((begin.start, letters))
        letters.append(span)
        separator_before = None
    timed = []
    for first_frame, letters in words:
        text = "".join(symbols[span.token] for span in letters)
        frames = sum(len(span) for span in letters)
        score = sum(span.score * len(span) for span in letters) / frames
        start, end = grid.find_start(first_frame), grid.find_start(letters[-1].end)
        timed.append(TimedWord(text, start, end, min(math.exp(score), 1.0)))
    return timed


def cut_at_blanks(log_probs: Tensor) -> list[tuple[int, int]]:
    """Cut (T, V) log-probabilities into pieces [start, end) of at most LONGEST_PIECE frames.

    A piece ends between LONGEST_PIECE / 2 and LONGEST_PIECE frames after its start, in the middle
    of the longest run of blanks there.
    """
    frame_is_blank = (log_probs.argmax(-1) == BLANK).tolist()
    cuts = [0]
    while len(frame_is_blank) - cuts[-1] > LONGEST_PIECE:
        frame = cuts[-1] + LONGEST_PIECE // 2
        second_half = frame_is_blank[frame : cuts[-1] + LONGEST_PIECE]
        runs = []  # number of blanks in a run of equal frames, and the middle of the run
        for is_blank, group in itertools.groupby(second_half):
            length = len(list(group))
            runs.append((length if is_blank else 0, frame + length // 2))
            frame += length
        _, middle = max(runs)
        cuts.append(middle)
    return list(itertools.pairwise([*cuts, len(frame_is_blank)]))


class CtcRecogniser:
    """A CTC recogniser is an encoder with a head. The head is put into evaluation mode.

    encoder: a SpeechEncoder or SharedEncoder; layer: which hidden state a head of one state gets (0
    is the encoder's input), None for a head that weighs all of them.
    """

    def __init__(
        self,
        encoder: Any,
        head: CtcHead,
        vocabulary: CtcVocabulary,
        name: str,
        layer: int | None = None,
    ) -> None:
        self.encoder, self.head, self.vocabulary = encoder, head.eval(), vocabulary
        self.name, self.layer = name, layer
        self.card: Mapping[str, Any] = {"asr": None}  # `load` fills in the hash of the weights
        self.decoder: Any = None  # a BeamDecoder; None: greedy decoding

    def transcribe(self, samples: np.ndarray) -> Transcript:
        """Recognise a recording, greedily or by `decoder`; words have the times of the likeliest
        path of their text.

        samples: (N,) float32 at 16 kHz; audio shorter than a frame gives no words.
        """
        return self.decode_log_probs(self.compute_log_probs(samples))

    def decode_log_probs(self, log_probs: Tensor) -> Transcript:
        """Decode as `transcribe` does. log_probs: (T, V)."""
        symbols, separator = self.vocabulary.symbols, self.vocabulary.separator
        spans = (
            find_greedy_spans(log_probs) if self.decoder is None else self._decode_spans(log_probs)
        )
        words = join_symbols(spans, symbols, separator, self.encoder.grid, from_separator=True)
        return Transcript(tuple(words), " " if separator else "")

    def _decode_spans(self, log_probs: Tensor) -> list[TokenSpan]:
        """Find the symbols of the text that `decoder` finds in log-probabilities (T, V), piece by
        piece of a long recording."""
        vocabulary = self.vocabulary
        spans: list[TokenSpan] = []
        for start, end in cut_at_blanks(log_probs):
            piece = log_probs[start:end]
            aligned = align_spans(piece, vocabulary.encode(self.decoder.decode(piece)))
            if spans and aligned and vocabulary.separator:
                # the cut is between two words, whose separator the decoder does not write
                separator = vocabulary.symbols.index(vocabulary.separator)
                frame = start + aligned[0].start
                spans.append(replace(aligned[0], token=separator, start=frame, end=frame))
            for span in aligned:
                spans.append(replace(span, start=start + span.start, end=start + span.end))
        return spans

    @torch.inference_mode()
    def compute_log_probs(self, samples: np.ndarray) -> Tensor:
        """Compute log-probabilities (T, V) of samples (N,), on the CPU; T is by the encoder's
        grid."""
        if self.encoder.grid.count_frames(len(samples)) == 0:
            return torch.zeros(0, len(self.vocabulary))
        if self.layer is None:
            return self.compute_head_log_probs(self.encoder.hidden_states(samples))
        return self.compute_head_log_probs(self.encoder.features(samples, self.layer)[None])

    @torch.inference_mode()
    def compute_head_log_probs(self, states: Tensor) -> Tensor:
        """Compute log-probabilities (T, V) of hidden states (L, T, D), on the CPU."""
        features = states[None].to(self.head.output.weight.device)
        return self.head(features, torch.tensor([features.shape[-2]]))[0].cpu()

    def save(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write `head.safetensors` and then `card.json`, to which `facts` are added. Of the encoder
        only the hash is saved."""
        weights = folder / "head.safetensors"
        state = {k: v.detach().cpu().contiguous() for k, v in self.head.state_dict().items()}
        with replace_file(weights) as temporary:
            save_file(state, temporary)
        card = {
            "kind": "ctc-recogniser",
            "name": self.name,
            "encoder": self.encoder.hash,
            "layer": self.layer,
            "head": asdict(self.head.shape),
            "vocabulary": asdict(self.vocabulary),
            "weights": hash_files([weights]),
        }
        write_json(folder / "card.json", card | dict(facts))

    @classmethod
    def load(cls, folder: Path, encoder: Any) -> CtcRecogniser:
        """Load a recogniser that `save` wrote. Raises InputError for another folder, and for
        another encoder than the head was trained on."""
        path = folder / "card.json"
        card = read_json(path)
        if card.get("kind") != "ctc-recogniser":
            raise InputError(
                f"{path} is not the card of a CTC recogniser; give a folder of `speechssl train "
                "ctc`"
            )
        if card["encoder"] != encoder.hash:
            raise InputError(
                f"{path} was made with the encoder {card['encoder']} and this one is "
                f"{encoder.hash}; load that encoder or train the head again"
            )
        head = CtcHead(HeadShape(**card["head"]))
        check_hash(folder / "head.safetensors", card["weights"])
        head.load_state_dict(dequantise(load_file(folder / "head.safetensors")))
        symbols, separator = card["vocabulary"]["symbols"], card["vocabulary"]["separator"]
        vocabulary = CtcVocabulary(tuple(symbols), separator)
        recogniser = cls(encoder, head, vocabulary, card["name"], card["layer"])
        recogniser.card = {"asr": card["weights"]}
        return recogniser
