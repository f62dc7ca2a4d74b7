"""Align known words with a recording by Whisper: its decoder is given the words, and its
cross-attention says which frames each token of them looks at.

`WhisperAligner.align` cuts the recording at pauses, shares the words out among the pieces
(`assign_to_pieces`), and finds the times of tokens in each by dynamic time warping over the
cross-attention (`find_token_times`).

Source: github.com/openai/whisper, timing.py. Letters: N samples, W words, K tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.align import Alignment, find_core
from speechssl.cascade.data import show_pieces, split_at_pauses
from speechssl.data.records import Span
from speechssl.text import choose_joiner, fold_letters

if TYPE_CHECKING:
    from speechssl.cascade.engines import WhisperCheckpoint

FRAME_SECONDS = 0.02  # a frame of Whisper's encoder
MEDIAN_FRAMES = 7  # width of the median filter over the attention, as in timing.py


class WordTiming(NamedTuple):
    """A word of a piece has these times."""

    start: float  # seconds from the beginning of the piece
    end: float
    loss: float  # nats by which its tokens are less likely than the likeliest ones
    tokens: int  # number of its tokens


class WhisperAligner:
    """The aligner gives Whisper the known tokens and finds their times by dynamic time warping over
    the cross-attention of its alignment heads. It is used like a `CtcAligner`.

    Audio beyond 30 s is cut at pauses and transcribed; the known words are shared out among the
    pieces by matching them with the transcripts.
    """

    def __init__(self, engine: WhisperCheckpoint, name: str, weights: str, language: str) -> None:
        self.engine = engine
        self.name = name
        self.weights = weights
        self.joiner = choose_joiner(language)
        # other implementations do not return the attention
        engine.model.set_attn_implementation("eager")
        settings = engine.model.generation_config
        self._heads = settings.alignment_heads
        self._prompt = [settings.decoder_start_token_id]
        if settings.is_multilingual:
            self._prompt.append(settings.lang_to_id[f"<|{language}|>"])
            self._prompt.append(settings.task_to_id["transcribe"])
        self._prompt.append(settings.no_timestamps_token_id)
        # tokens that differ only in case or in the space before them are one class: a text may be
        # written without capitals
        tokens = range(engine.model.config.vocab_size)
        classes = []
        for i, token in enumerate(engine.tokenizer.convert_ids_to_tokens(list(tokens))):
            is_ascii = token and token.replace("Ġ", "").isascii()
            classes.append(token.lstrip("Ġ").lower() if is_ascii else f"{i} {token}")
        self._class_of_token = torch.from_numpy(np.unique(classes, return_inverse=True)[1])

    def measure_spellable_share(self, text: str) -> float:
        """Return 1, the share of the letters of any text that Whisper could write, for its tokens
        are sequences of bytes."""
        return 1.0

    def align(self, samples: np.ndarray, words: Sequence[str]) -> Alignment:
        """Align words with a recording, as `CtcAligner.align` does."""
        pieces = split_at_pauses(samples, self.engine.longest)
        piece_of_word = np.zeros(len(words), np.int64)
        if len(pieces) > 1:
            recognised = []
            for start, end in show_pieces(pieces, "recognising"):
                decoded = self.engine.decode(samples[start:end])
                recognised.append("".join(word.text for word in decoded))
            piece_of_word = assign_to_pieces(words, recognised)
        spans: list[Span] = []
        losses: list[float] = []
        symbols: list[int] = []
        for n, (start, end) in enumerate(show_pieces(pieces, "aligning")):
            piece_words = [words[i] for i in np.flatnonzero(piece_of_word == n).tolist()]
            if not piece_words:
                continue
            offset, limit = start / SAMPLE_RATE, end / SAMPLE_RATE
            timings = self._align_piece(samples[start:end], piece_words)
            for word, timing in zip(piece_words, timings, strict=True):
                # a word lasts a frame at least, and ends with its piece at the latest
                word_start = min(offset + timing.start, limit - FRAME_SECONDS)
                word_end = min(max(offset + timing.end, word_start + FRAME_SECONDS), limit)
                spans.append(Span(word, word_start, word_end))
                losses.append(timing.loss)
                symbols.append(timing.tokens)
        return Alignment(tuple(spans), np.array(losses), np.array(symbols))

    @torch.inference_mode()
    def _align_piece(self, samples: np.ndarray, words: Sequence[str]) -> list[WordTiming]:
        """Find the times of words in at most 30 s of audio."""
        text, cores = self._join_words(words)
        coded = self.engine.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = coded["input_ids"]
        outputs = self._run_model(samples, ids)
        # the outputs that predict the K tokens and the end: each stands one place before its token
        rows = slice(len(self._prompt) - 1, len(self._prompt) + len(ids))
        losses = self._compute_token_losses(outputs.logits[0, rows][:-1], ids)

        heads = [outputs.cross_attentions[layer][0, head] for layer, head in self._heads]
        frames = max(round(len(samples) / SAMPLE_RATE / FRAME_SECONDS), 1)
        attention = torch.stack(heads)[:, :, :frames].float().cpu().numpy()
        borders = find_token_times(attention, rows)
        times = np.stack([borders[:-1], borders[1:]], 1)  # (K, 2), start and end
        # characters [first, stop) of every token, without the space before it
        offsets = coded["offset_mapping"]
        firsts = np.array([stop - len(text[first:stop].lstrip()) for first, stop in offsets])
        stops = np.array([stop for _, stop in offsets])
        timings = []
        for first, stop in cores:
            word_tokens = np.flatnonzero((stops > first) & (firsts < stop))
            i, j = word_tokens[0], word_tokens[-1]
            start = interpolate_time(first, firsts[i], stops[i], times[i])
            end = interpolate_time(stop, firsts[j], stops[j], times[j])
            loss = float(losses[word_tokens].sum())
            timings.append(WordTiming(start, end, loss, len(word_tokens)))
        return timings

    def _join_words(self, words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
        """Join words to a text, each behind the joiner; return it, and the characters [first, stop)
        of every word without the punctuation around it."""
        text, cores = "", []
        for word in words:
            text += self.joiner
            first, stop = find_core(word)
            cores.append((len(text) + first, len(text) + stop))
            text += word
        return text, cores

    def _run_model(self, samples: np.ndarray, ids: list[int]) -> Any:
        """Run Whisper on audio and the tokens known to be its text; return all its outputs. Raises
        ValueError for more tokens than the decoder has positions for."""
        model, prompt = self.engine.model, self._prompt
        max_text_tokens = model.config.max_target_positions - len(prompt) - 1
        if max_text_tokens < len(ids):
            raise ValueError(
                f"{len(ids)} tokens of text fall on {len(samples) / SAMPLE_RATE:.1f} s of it, and "
                f"{max_text_tokens} are possible"
            )
        decoder_ids = torch.tensor([[*prompt, *ids, model.config.eos_token_id]]).to(model.device)
        features = self.engine.extract(samples).input_features
        return model(features, decoder_input_ids=decoder_ids, output_attentions=True)

    def _compute_token_losses(self, logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        """Compute by how many nats the class of each token is less likely than the likeliest class,
        (K,). logits: (K, V).

        The gap, not the log-probability itself, is comparable with that of other recognisers: it is
        0 wherever Whisper would have written the same.
        """
        probabilities = logits.float().softmax(-1).cpu()
        class_probabilities = torch.zeros_like(probabilities).index_add_(
            1, self._class_of_token, probabilities
        )
        log_probs = class_probabilities.clamp_min(1e-30).log()
        return log_probs.amax(-1) - log_probs[range(len(ids)), self._class_of_token[ids]]


def interpolate_time(character: int, first: int, stop: int, times: np.ndarray) -> float:
    """Return the time of a character in a token that may hold several, as those of Chinese do.
    first, stop: characters [first, stop) of the token; times: (2,) its start and end in seconds."""
    start, end = times
    share = np.clip((character - first) / max(stop - first, 1), 0, 1)
    return float(start + share * (end - start))


def find_token_times(attention: np.ndarray, rows: slice) -> np.ndarray:
    """Find the seconds at which each token begins and the last one ends, (K + 1,). attention:
    (heads, outputs of the decoder, frames); rows: the outputs that predict the K tokens and the
    end."""
    from librosa.sequence import dtw  # slow to import
    from scipy.ndimage import median_filter

    # Whisper pads the audio with silence; without the frames of that silence weights add up to 1
    weights = attention / np.maximum(attention.sum(-1, keepdims=True), 1e-9)
    deviation = np.maximum(weights.std(1, keepdims=True), 1e-9)
    weights = (weights - weights.mean(1, keepdims=True)) / deviation
    cost = -median_filter(weights, (1, 1, MEDIAN_FRAMES), mode="mirror").mean(0)[rows]
    _, backward_path = dtw(C=cost)
    path = backward_path[::-1]  # (steps, 2): row and frame
    begins_row = np.r_[True, np.diff(path[:, 0]) > 0]  # whether a step is the first one of its row
    return path[begins_row, 1] * FRAME_SECONDS


def assign_to_pieces(words: Sequence[str], recognised: Sequence[str]) -> np.ndarray:
    """Find the number of the piece that each known word is spoken in, (W,), which never falls.
    recognised: the text that was recognised in every piece.

    The letters of the words are matched with those that were recognised by the fewest edits; a word
    is in the piece of its middle letter. Raises ValueError where nothing was recognised.
    """
    known = [_fold_alphanumerics(word) for word in words]
    heard = [_fold_alphanumerics(text) for text in recognised]
    piece_of_letter = np.repeat(np.arange(len(heard)), [len(text) for text in heard])
    if not len(piece_of_letter):
        raise ValueError("nothing was recognised in it")
    edits = Levenshtein.opcodes("".join(known), "".join(heard))
    # places between the borders of edits are matched by linear interpolation
    borders = np.cumsum([0, *map(len, known)])  # of the words, in letters
    known_places = [*(edit.src_start for edit in edits), borders[-1]]
    heard_places = [*(edit.dest_start for edit in edits), len(piece_of_letter)]
    middle_letters = (borders[:-1] + borders[1:]) // 2
    matched = np.interp(middle_letters, known_places, heard_places).astype(int)
    letters = np.minimum(matched, len(piece_of_letter) - 1)
    # no word is spoken before the one that precedes it
    return np.maximum.accumulate(piece_of_letter[letters])


def _fold_alphanumerics(text: str) -> str:
    """Return the letters and digits of a text, without case and accents."""
    return fold_letters("".join(filter(str.isalnum, text)))
