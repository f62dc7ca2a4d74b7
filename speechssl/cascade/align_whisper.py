"""Align known words with a recording by Whisper: where its decoder looks while it is given them.

`WhisperAligner.align` cuts the recording at pauses, shares the words out among the pieces
(`assign_to_pieces`), and finds the times of tokens in each by dynamic time warping over the
cross-attention (`token_times`).

Source: github.com/openai/whisper, timing.py. Letters: N samples, W words, K tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.align import Alignment, find_core
from speechssl.cascade.data import check_samples, show_pieces, split_at_pauses
from speechssl.data.records import Span
from speechssl.text import fold_letters, joiner

if TYPE_CHECKING:
    from speechssl.cascade.engines import WhisperCheckpoint

TOKEN_SECONDS = 0.02  # a frame of Whisper's encoder
MEDIAN = 7  # frames of the filter over Whisper's attention


class WhisperAligner:
    """The aligner aligns as `CtcAligner` does, by dynamic time warping over the cross-attention of
    Whisper's alignment heads, given the known tokens.

    Audio beyond 30 s is cut at pauses, transcribed, and its words shared out by matching the
    transcripts with them.
    """

    def __init__(self, engine: WhisperCheckpoint, name: str, weights: str, language: str) -> None:
        self.engine, self.name, self.weights, self.joiner = engine, name, weights, joiner(language)
        engine.model.set_attn_implementation("eager")  # the others keep no attention
        settings = engine.model.generation_config
        self._heads = settings.alignment_heads
        self._prompt = [settings.decoder_start_token_id]
        if settings.is_multilingual:
            self._prompt.append(settings.lang_to_id[f"<|{language}|>"])
            self._prompt.append(settings.task_to_id["transcribe"])
        self._prompt.append(settings.no_timestamps_token_id)
        # tokens that differ in case or the space before them count as one: a text may be written
        # without capitals
        tokens = range(engine.model.config.vocab_size)
        names = []
        for i, token in enumerate(engine.tokenizer.convert_ids_to_tokens(list(tokens))):
            plain = token and token.replace("Ġ", "").isascii()
            names.append(token.lstrip("Ġ").lower() if plain else f"{i} {token}")
        self._alike = torch.from_numpy(np.unique(names, return_inverse=True)[1])

    def spells(self, text: str) -> float:
        """Return 1: its tokens are bytes."""
        return 1.0

    def align(self, samples: np.ndarray, words: Sequence[str]) -> Alignment:
        samples = check_samples(samples)
        pieces = split_at_pauses(samples, self.engine.longest)
        owners = np.zeros(len(words), np.int64)
        if len(pieces) > 1:
            recognised = []
            for start, end in show_pieces(pieces, "recognising"):
                decoded = self.engine.decode(samples[start:end])
                recognised.append("".join(word.text for word in decoded))
            owners = assign_to_pieces(words, recognised)
        timed: list[Span] = []
        losses, symbols = [], []
        for n, (start, end) in enumerate(show_pieces(pieces, "aligning")):
            in_piece = [word for word, owner in zip(words, owners, strict=True) if owner == n]
            if not in_piece:
                continue
            offset, limit = start / SAMPLE_RATE, end / SAMPLE_RATE
            found = self._align_piece(samples[start:end], in_piece)
            for word, (a, b, loss, tokens) in zip(in_piece, found, strict=True):
                first = min(offset + a, limit - TOKEN_SECONDS)
                last = min(max(offset + b, first + TOKEN_SECONDS), limit)
                timed.append(Span(word, first, last))
                losses.append(loss)
                symbols.append(tokens)
        return Alignment(tuple(timed), np.array(losses), np.array(symbols))

    @torch.inference_mode()
    def _align_piece(
        self, samples: np.ndarray, words: Sequence[str]
    ) -> list[tuple[float, float, float, int]]:
        """Align at most 30 s: return of every word start and end in seconds, its loss in nats, and
        its number of tokens."""
        text, cores = "", []
        for word in words:
            text += self.joiner
            first, last = find_core(word)
            cores.append((len(text) + first, len(text) + last))
            text += word
        model, prompt = self.engine.model, self._prompt
        coded = self.engine.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = coded["input_ids"]
        seconds = len(samples) / SAMPLE_RATE
        room = model.config.max_target_positions - len(prompt) - 1
        if room < len(ids):
            raise ValueError(
                f"{len(ids)} tokens of text fall on {seconds:.1f} s of it, and {room} are possible"
            )
        decoder_ids = torch.tensor([[*prompt, *ids, model.config.eos_token_id]])
        features = self.engine.extract(samples).input_features
        given = decoder_ids.to(model.device)
        outputs = model(features, decoder_input_ids=given, output_attentions=True)
        # row k: from what is given before token k, the last row from what is given before the end
        rows = slice(len(prompt) - 1, len(prompt) + len(ids))
        chances = outputs.logits[0, rows].float().softmax(-1)[: len(ids)].cpu()
        chances = torch.zeros_like(chances).index_add_(1, self._alike, chances)
        chances = chances.clamp_min(1e-30).log()
        loss = chances.amax(-1) - chances[range(len(ids)), self._alike[ids]]
        heads = [outputs.cross_attentions[layer][0, head] for layer, head in self._heads]
        frames = max(round(seconds / TOKEN_SECONDS), 1)
        attention = torch.stack(heads)[:, :, :frames].float().cpu().numpy()
        jumps = token_times(attention, rows)
        # characters of every token, without the space before it
        offsets = coded["offset_mapping"]
        begins = np.array([b - len(text[a:b].lstrip()) for a, b in offsets])
        stops = np.array([b for _, b in offsets])

        def time(token: int, place: int) -> float:
            """Return the time of a character in a token that may hold several, as those of Chinese
            do."""
            share = (place - begins[token]) / max(stops[token] - begins[token], 1)
            return float(jumps[token] + np.clip(share, 0, 1) * (jumps[token + 1] - jumps[token]))

        timings = []
        for first, last in cores:
            inside = np.flatnonzero((stops > first) & (begins < last))
            start, end = time(inside[0], first), time(inside[-1], last)
            timings.append((start, end, float(loss[inside].sum()), len(inside)))
        return timings


def token_times(attention: np.ndarray, rows: slice) -> np.ndarray:
    """Find the seconds at which each token begins and the last one ends, (K + 1,). attention:
    (heads, tokens given, frames); rows: those that foretell the K tokens and the end.
    """
    from librosa.sequence import dtw  # slow to import
    from scipy.ndimage import median_filter

    # the silence behind the audio is cut off
    weights = attention / np.maximum(attention.sum(-1, keepdims=True), 1e-9)
    spread = np.maximum(weights.std(1, keepdims=True), 1e-9)
    weights = (weights - weights.mean(1, keepdims=True)) / spread
    cost = -median_filter(weights, (1, 1, MEDIAN), mode="mirror").mean(0)[rows]
    _, steps = dtw(C=cost)
    steps = steps[::-1]  # (steps, 2): row and frame
    return steps[np.r_[True, np.diff(steps[:, 0]) > 0], 1] * TOKEN_SECONDS


def assign_to_pieces(words: Sequence[str], recognised: Sequence[str]) -> np.ndarray:
    """Find the number (W,) of the piece that each known word is spoken in, in order. recognised:
    what was recognised in every piece.

    Letters of both are matched by the fewest edits; a word is where its middle letter is. Raises
    ValueError where there is nothing to match.
    """
    letters, heard = (
        [fold_letters("".join(filter(str.isalnum, text))) for text in texts]
        for texts in (words, recognised)
    )
    pieces = np.repeat(np.arange(len(heard)), [len(text) for text in heard])
    if not len(pieces):
        raise ValueError("nothing was recognised in it")
    match = Levenshtein.opcodes("".join(letters), "".join(heard))
    # within an edit, letters stand for letters in proportion
    borders = np.cumsum([0, *map(len, letters)])
    sources = [*(o.src_start for o in match), borders[-1]]
    targets = [*(o.dest_start for o in match), len(pieces)]
    middles = np.interp((borders[:-1] + borders[1:]) // 2, sources, targets)
    return np.maximum.accumulate(pieces[np.minimum(middles.astype(int), len(pieces) - 1)])
