"""Training of a CTC head on a frozen encoder, from features that are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from speechssl.artefacts import read_json, replacing, write_json
from speechssl.asr.ctc import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.audio import read_audio
from speechssl.corpora.records import Passage, Question, Span, load_corpus
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.timing import FrameGrid
from speechssl.training import Batch, TrainingOptions, fit

MARGIN = 0.1  # seconds of context left around a cut segment


@dataclass(frozen=True)
class CtcOptions:
    """A head on one layer, trained on stretches of whole words."""

    training: TrainingOptions
    layer: int = 5
    passages: int = 800  # training passages; their questions come along
    batch: int = 16
    longest: float = 8.0  # seconds of a stretch
    lstm_width: int = 256
    projection: int = 256


@dataclass(frozen=True)
class _Recording:
    words: tuple[Span, ...]
    first: int  # row of the feature array
    frames: int


class _HeadTraining(nn.Module):
    """The head with what Trainer wants: tensors in, a dict with the loss out."""

    def __init__(self, head: CtcHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: torch.Tensor, lengths: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor) -> Batch:
        """features: (B, T, D); lengths, sizes: (B,); targets: (B, S) padded."""
        return self.head.loss(features.float(), lengths, [t[:n].tolist() for t, n in zip(targets, sizes, strict=True)])


@dataclass(frozen=True)
class SegmentBatches:
    """Random stretches of whole words, a function of (seed, step) only."""

    features: np.ndarray  # (F, D) float16, all recordings one after another
    recordings: Sequence[_Recording]
    vocabulary: CtcVocabulary
    grid: FrameGrid
    batch: int
    longest: float
    seed: int

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        weights = np.array([r.frames for r in self.recordings], float)
        chosen = rng.choice(len(self.recordings), size=self.batch, p=weights / weights.sum())
        cut = [self._cut(rng, self.recordings[i]) for i in chosen]
        targets = [torch.tensor(self.vocabulary.encode(text)) for _, text in cut]
        return {
            "features": pad_sequence([torch.from_numpy(f.astype(np.float32)) for f, _ in cut], batch_first=True),
            "lengths": torch.tensor([len(f) for f, _ in cut]),
            "targets": pad_sequence(targets, batch_first=True),
            "sizes": torch.tensor([len(t) for t in targets]),
        }

    def _cut(self, rng: np.random.Generator, recording: _Recording) -> tuple[np.ndarray, str]:
        words = recording.words
        first = int(rng.integers(len(words)))
        last = first
        while last + 1 < len(words) and words[last + 1].end - words[first].start <= self.longest:
            last += 1
        begin = self.grid.frame_at(self.grid.sample(words[first].start - MARGIN), recording.frames)
        end = self.grid.frame_at(self.grid.sample(words[last].end + MARGIN), recording.frames)
        rows = self.features[recording.first + begin : recording.first + end + 1]
        return rows, self.vocabulary_text(words[first : last + 1])

    def vocabulary_text(self, words: Sequence[Span]) -> str:
        return " ".join(w.text for w in words)


def train_ctc(corpus: Path, encoder: SpeechEncoder, out: Path, options: CtcOptions) -> CtcRecogniser:
    """Train (once) and save a recogniser in `out`; features are kept in `out`/features until it is done."""
    if (out / "card.json").is_file():
        return CtcRecogniser.load(out, encoder)
    torch.manual_seed(options.training.seed)
    features, recordings = _features(corpus, encoder, out / "features", options)
    vocabulary = CtcVocabulary.english()
    shape = HeadShape(
        width=encoder.width, symbols=len(vocabulary), states=1, projection=options.projection, lstm_width=options.lstm_width
    )
    head = CtcHead(shape)
    batches = SegmentBatches(features, recordings, vocabulary, encoder.grid, options.batch, options.longest, options.training.seed)
    result = fit(_HeadTraining(head), batches, options.training, out / "checkpoints")
    recogniser = CtcRecogniser(encoder, head.eval(), vocabulary, "ctc", layer=options.layer)
    recogniser.save(out)
    facts: dict[str, Any] = {"options": asdict(options), "training": result, "corpus": read_json(corpus / "card.json")}
    write_json(out / "card.json", read_json(out / "card.json") | facts)
    return recogniser


def _features(corpus: Path, encoder: SpeechEncoder, folder: Path, options: CtcOptions) -> tuple[np.ndarray, list[_Recording]]:
    """Features of one layer of the chosen recordings, in one float16 array on disk."""
    data = load_corpus(corpus, "train")
    passages = list(data.passages.values())[: options.passages]
    names = {p.id for p in passages}
    records: list[Passage | Question] = [*passages, *(q for q in data.questions if q.passage in names)]
    frames = [encoder.grid.frames(round(r.seconds * encoder.grid.sample_rate)) for r in records]
    bounds = np.cumsum([0, *frames])
    path = folder / "features.npy"
    if not path.is_file():
        with replacing(path) as temporary:
            array = np.lib.format.open_memmap(temporary, "w+", np.float16, (int(bounds[-1]), encoder.width))
            with ThreadPoolExecutor(2) as pool:
                found = pool.map(lambda r: encoder.features(read_audio(data.path(r)), options.layer).numpy(), records)
                for first, rows in zip(bounds, tqdm(found, total=len(records), desc="features for CTC", unit="file"), strict=False):
                    array[first : first + len(rows)] = rows
            array.flush()
    recordings = [_Recording(r.words, int(a), n) for r, a, n in zip(records, bounds, frames, strict=False)]
    return np.load(path, mmap_mode="r"), [r for r in recordings if r.words]
