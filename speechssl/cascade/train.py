"""Training of a CTC head on a frozen encoder, from features that are computed once."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.cascade.config import CtcOptions
from speechssl.cascade.ctc import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.data.records import Corpus, Passage, Question, Span, data_hash, first_passages, load_corpus
from speechssl.encoders.base import SpeechEncoder
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import read_json, replacing, stage, write_json
from speechssl.processes import is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch, check_share, fit

MARGIN = 0.1  # seconds of context left around a crop


def train_ctc(corpus: Path, encoder: SpeechEncoder, out: Path, options: CtcOptions, split: str = "train") -> CtcRecogniser:
    """Train (once) on a split and save a recogniser in `out`; features are kept in `out`/features until it is done.

    Recordings that cannot be read are set aside and listed. Raises InputError where `out` was made from other inputs.
    """
    check_share(options.batch)
    with stage(out, {"data": data_hash(corpus, split), "encoder": encoder.hash}, asdict(options)) as step:
        if step.done:
            return CtcRecogniser.load(out, encoder)
        torch.manual_seed(options.training.seed)
        data = first_passages(load_corpus(corpus, split), options.passages)
        if not data.passages:
            raise InputError(f"{corpus / split} has no passages; prepare the corpus with some")
        language = next(iter(data.passages.values())).language
        with main_first():
            features, recordings = _features(data, language, encoder, out / "features", options.layer)
        if language == "en":
            vocabulary = CtcVocabulary.english()
        else:
            vocabulary = CtcVocabulary.of_characters(w.text for r in recordings for w in r.words)
        states = 1 if options.layer is not None else encoder.layers + 1
        shape = HeadShape(encoder.width, len(vocabulary), states, options.projection, options.lstm_width)
        head, seed = CtcHead(shape), options.training.seed
        batches = CropBatches(features, recordings, vocabulary, encoder.grid, options.batch, options.longest, seed)
        result = fit(_HeadTraining(head), batches, options.training, out / "checkpoints")
        recogniser = CtcRecogniser(encoder, head.eval(), vocabulary, "ctc", layer=options.layer)
        facts = {"options": asdict(options), "training": result, "corpus": read_json(corpus / "card.json")}
        with main_first():
            if is_main():
                recogniser.save(out, facts)
                shutil.rmtree(out / "features")
        return recogniser


class _HeadTraining(nn.Module):
    """The head with what the trainer wants: tensors in, a dict with the loss out."""

    def __init__(self, head: CtcHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: torch.Tensor, lengths: torch.Tensor, targets: torch.Tensor, sizes: torch.Tensor) -> Batch:
        """features: (B, T, D), or (B, T, S, D) of S hidden states; lengths, sizes: (B,); targets: (B, symbols) padded."""
        features = features.transpose(1, 2) if features.ndim == 4 else features
        return self.head.loss(features.float(), lengths, [t[:n].tolist() for t, n in zip(targets, sizes, strict=True)])


@dataclass(frozen=True)
class _Recording:
    words: tuple[Span, ...]
    first: int  # row of the feature array
    frames: int


@dataclass(frozen=True)
class CropBatches:
    """Random crops of whole words, a function of (seed, step) only."""

    features: np.ndarray  # (F, D) or (F, S, D) float16, all recordings one after another
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
        crops = [self._crop(rng, self.recordings[i]) for i in chosen]
        targets = [torch.tensor(self.vocabulary.encode(text)) for _, text in crops]
        return {
            "features": pad_sequence([torch.from_numpy(f.astype(np.float32)) for f, _ in crops], batch_first=True),
            "lengths": torch.tensor([len(f) for f, _ in crops]),
            "targets": pad_sequence(targets, batch_first=True),
            "sizes": torch.tensor([len(t) for t in targets]),
        }

    def _crop(self, rng: np.random.Generator, recording: _Recording) -> tuple[np.ndarray, str]:
        words = recording.words
        first = last = int(rng.integers(len(words)))
        while last + 1 < len(words) and words[last + 1].end - words[first].start <= self.longest:
            last += 1
        begin = self.grid.frame_at(self.grid.sample(words[first].start - MARGIN), recording.frames)
        end = self.grid.frame_at(self.grid.sample(words[last].end + MARGIN), recording.frames)
        rows = self.features[recording.first + begin : recording.first + end + 1]
        return rows, " ".join(w.text for w in words[first : last + 1])


def _spelt(words: Sequence[Span], language: str) -> tuple[Span, ...]:
    """Words in the symbols of the vocabulary: lower-case letters and apostrophes in English, no signs in other languages."""
    left_out = re.compile("[^a-z']" if language == "en" else r"[\W_]")
    spelt = (replace(w, text=left_out.sub("", w.text.lower())) for w in words)
    return tuple(w for w in spelt if w.text.strip("'"))


def _features(
    data: Corpus, language: str, encoder: SpeechEncoder, folder: Path, layer: int | None
) -> tuple[np.ndarray, list[_Recording]]:
    """Features of one layer (or of all) of all recordings with words, in one float16 array on disk, (F, D) or (F, S, D).

    A recording that cannot be read has no rows. Raises InputError where no word has times.
    """

    def one(record: Passage | Question) -> np.ndarray | str:
        try:
            samples = read_audio(data.path(record))
            if layer is not None:
                rows = encoder.features(samples, layer)
            else:
                rows = encoder.hidden_states(samples).cpu().transpose(0, 1).contiguous()
            return rows.numpy().astype(np.float16)
        except (InputError, ValueError) as error:
            return str(error)

    everything: list[Passage | Question] = [*data.passages.values(), *data.questions]
    records = [r for r in everything if r.words]
    path, index = folder / "features.f16", folder / "index.json"
    if not index.is_file():
        bounds, failed = [0], {}
        with replacing(path) as temporary, temporary.open("wb") as file, ThreadPoolExecutor(2) as pool:
            made = tqdm(pool.map(one, records), total=len(records), desc="features for CTC", unit="file")
            for record, rows in zip(records, made, strict=True):
                if isinstance(rows, str):
                    failed[record.id] = rows
                else:
                    file.write(rows.tobytes())
                bounds.append(bounds[-1] + (0 if isinstance(rows, str) else len(rows)))
        tell_set_aside(failed, "features for CTC")
        write_json(index, {"bounds": bounds, "failed": failed})
    bounds = read_json(index)["bounds"]
    recordings = [
        _Recording(_spelt(r.words, language), first, last - first)
        for r, (first, last) in zip(records, itertools.pairwise(bounds), strict=True)
        if last > first
    ]
    if not recordings:
        raise InputError("no training recording has words with times; a CTC head cannot be trained on this corpus")
    states = () if layer is not None else (encoder.layers + 1,)
    return np.memmap(path, np.float16, "r", shape=(bounds[-1], *states, encoder.width)), recordings
