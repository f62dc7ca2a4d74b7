"""Train a CTC head on a frozen encoder, from stored features: `speechssl train ctc`.

`fit_ctc` finds the recordings with timed words, stores their features, and trains the head on
random crops of whole words (`CropBatches`), evaluated by word error rate.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import begin_stage, hash_json
from speechssl.audio import read_audio
from speechssl.cascade.data import Record
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.cascade.options import CtcOptions, TrainCtc
from speechssl.data.records import (
    Corpus,
    Span,
    collect_data_facts,
    load_corpus,
    read_corpus_card,
    take_first_passages,
)
from speechssl.dual.fitting import STEPS, describe_run, hash_splits, load_held_out, sample_items
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.encoders.store import FeatureStore, store_features
from speechssl.errors import InputError
from speechssl.metrics import word_error_rate
from speechssl.options import EvalOptions, select_settings
from speechssl.text import find_language, name_error_metric
from speechssl.textlm.encoders import collect_licences
from speechssl.timing import FrameGrid
from speechssl.training import Batch, Evaluation, check_share, fit, write_by_main

MARGIN = 0.1  # seconds of audio on either side of the words of a crop


def train_ctc(o: TrainCtc) -> None:
    """Train a CTC head on the encoder that the options name."""
    fit_ctc(o, load_encoder(o.encoder))
    print(f"{o.out}: CTC head{describe_run(o.out)}")


def fit_ctc(o: TrainCtc, encoder: SpeechEncoder) -> CtcRecogniser:
    """Train a CTC head on a loaded encoder, and save the recogniser in OUT; load it where OUT holds
    it already. Features are kept in OUT/features until the training ends.

    Recordings that cannot be read are set aside and listed. Raises InputError where OUT was made
    from other inputs, or no word has times.
    """
    check_share(o.head.batch)
    inputs = hash_splits(o.corpus, o.split, o.head.evaluation) | {"encoder": encoder.hash}
    with begin_stage(o.out, inputs, select_settings(o.head), grows=STEPS) as step:
        if step.done:
            return CtcRecogniser.load(o.out, encoder)
        dev = load_held_out(o.corpus, o.head.evaluation)
        data = take_first_passages(load_corpus(o.corpus, o.split), o.head.passages)
        records = find_timed_records(data)
        layer = None if o.head.layer == "all" else int(o.head.layer)
        folder = o.out / "features"
        features = store_layer_features(encoder, layer, data, records, folder, "features for CTC")
        words = spell_words({name: records[name] for name in features.places}, data.language)
        if find_language(data.language) == "en":
            vocabulary = CtcVocabulary.make_english()
        else:
            texts = [word.text for spans in words.values() for word in spans]
            vocabulary = CtcVocabulary.from_symbols(texts)

        torch.manual_seed(o.head.training.seed)
        states = encoder.layers + 1 if layer is None else 1
        shape = HeadShape(
            width=encoder.width,
            symbols=len(vocabulary),
            states=states,
            projection=o.head.projection,
            lstm_width=o.head.lstm_width,
        )
        recogniser = CtcRecogniser(encoder, CtcHead(shape), vocabulary, "ctc", layer=layer)
        batches = CropBatches(features, words, vocabulary, encoder.grid, o.head)
        evaluation = None
        if dev is not None:
            evaluation = evaluate_recognition(
                recogniser, dev, o.head.evaluation, folder / dev.split
            )
        result = fit(
            _HeadTraining(recogniser.head.train()),
            batches,
            o.head.training,
            o.out / "checkpoints",
            evaluation=evaluation,
        )
        recogniser.head.eval()
        facts = {
            "options": select_settings(o.head),
            "training": result,
            "corpus": read_corpus_card(o.corpus),
        }
        facts |= collect_licences(o.corpus) | collect_data_facts(inputs)
        write_by_main(recogniser.save, o.out, facts)
        write_by_main(shutil.rmtree, folder)
        return recogniser


def find_timed_records(data: Corpus) -> dict[str, Record]:
    """Find the recordings whose words have times, by id. Raises InputError where there are none."""
    records = {r.id: r for r in data.records if r.words}
    if not records:
        raise InputError(
            f"no training recording of {data.root / data.split} has words with times, which a CTC "
            "head learns from; `speechssl align` finds the times of texts"
        )
    return records


def spell_words(records: Mapping[str, Record], language: str) -> dict[str, tuple[Span, ...]]:
    """Spell the words of recordings in lower case with the characters that a head learns: of
    English the letters a to z and the apostrophe, of other languages letters and digits. Words
    without such a letter or digit are left out, and so are recordings without such a word. Raises
    InputError where nothing is left."""
    foreign = re.compile("[^a-z']" if find_language(language) == "en" else r"[\W_]")
    spelt = {}
    for name, record in records.items():
        words = [w._replace(text=foreign.sub("", w.text.lower())) for w in record.words]
        spellable = tuple(w for w in words if w.text.strip("'"))
        if spellable:
            spelt[name] = spellable
    if not spelt:
        raise InputError(
            f"no word of the training recordings has letters of {language!r}, which a CTC head "
            "learns; write numbers out, or give the corpus its language"
        )
    return spelt


def store_layer_features(
    encoder: SpeechEncoder,
    layer: int | None,
    data: Corpus,
    records: Mapping[str, Record],
    folder: Path,
    title: str,
) -> FeatureStore:
    """Store the features of records of a corpus in a folder: (T, D) of one layer, or (T, L, D) of
    all, in float16. title: of the progress bar."""

    def encode(record: Record) -> tuple[torch.Tensor, None]:
        samples = read_audio(data.path(record))
        if layer is None:
            rows = encoder.hidden_states(samples).transpose(0, 1)
        else:
            rows = encoder.features(samples, layer)
        return rows.cpu().half(), None

    grid = encoder.grid
    width = encoder.width * (encoder.layers + 1 if layer is None else 1)
    sizes = {}  # in bytes, two for each number
    for name, record in records.items():
        sizes[name] = 2 * width * grid.count_frames(grid.find_sample(record.seconds))
    made_from = {"encoder": encoder.hash, "layer": layer, "recordings": hash_json(list(records))}
    return store_features(folder, records, encode, sizes, made_from, title)


# ---- evaluation


def evaluate_recognition(
    recogniser: CtcRecogniser, data: Corpus, options: EvalOptions, folder: Path
) -> Evaluation:
    """Make the evaluation by WER (CER in Chinese) on held-out recordings. folder: where their
    features are stored.

    A recording that cannot be read counts as one in which nothing is recognised. Raises InputError
    where no recording has a text.
    """
    records = sample_items(find_recorded_texts(data), options)
    features = store_layer_features(
        recogniser.encoder,
        recogniser.layer,
        data,
        {r.id: r for r in records},
        folder,
        "features for evaluation",
    )
    texts = [r.text for r in records]

    def transcribe(record: Record) -> str:
        if record.id not in features:
            return ""
        rows = features[record.id].float()  # (T, D), or (T, L, D)
        states = rows.transpose(0, 1) if rows.ndim == 3 else rows[None]
        return recogniser.decode_log_probs(recogniser.compute_head_log_probs(states)).text

    def score() -> float:
        return word_error_rate(texts, [transcribe(r) for r in records], data.language).rate

    return Evaluation(options, name_error_metric(data.language), len(records), score, lower=True)


def find_recorded_texts(data: Corpus) -> list[Record]:
    """Return the recordings with a text. Raises InputError where there are none."""
    records = [r for r in data.records if r.audio and r.text.strip()]
    if not records:
        raise InputError(
            f"{data.root / data.split} has no recording with a text to evaluate on; name another "
            "split with --eval-split, or another --dev"
        )
    return records


# ---- batches


class _HeadTraining(nn.Module):
    """This module adapts the head to the trainer, which gives it tensors and gets a dict with the
    loss."""

    def __init__(self, head: CtcHead) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        features: torch.Tensor,
        lengths: torch.Tensor,
        targets: torch.Tensor,
        sizes: torch.Tensor,
    ) -> Batch:
        """Return the loss. features: (B, T, D), or (B, T, L, D) of L hidden states; lengths: (B,)
        frames of each; targets: (B, symbols), padded; sizes: (B,) symbols of each."""
        if features.ndim == 4:
            features = features.transpose(1, 2)
        symbols = [target[:size].tolist() for target, size in zip(targets, sizes, strict=True)]
        return {"loss": self.head.loss(features.float(), lengths, symbols)}


@dataclass(frozen=True)
class CropBatches:
    """A call makes a batch of random crops of whole words, which depends on (seed, step) only.
    Recordings are drawn in proportion to their lengths."""

    features: FeatureStore  # of each recording (T, D) or (T, L, D), float16
    recordings: Mapping[str, tuple[Span, ...]]  # the words of each recording by its id
    vocabulary: CtcVocabulary
    grid: FrameGrid
    options: CtcOptions

    def __call__(self, step: int) -> Batch:
        """Return the arguments of `_HeadTraining.forward`."""
        rng = np.random.default_rng([self.options.training.seed, step])
        names = list(self.recordings)
        frames = [self.features.places[name].length for name in names]
        weights = np.array(frames, float)
        longest = self.options.crop_seconds
        crops, targets = [], []
        for i in rng.choice(len(names), size=self.options.batch, p=weights / weights.sum()):
            words = self.recordings[names[i]]
            first = last = int(rng.integers(len(words)))
            start = words[first].start
            while last + 1 < len(words) and words[last + 1].end - start <= longest:
                last += 1
            start_sample = self.grid.find_sample(start - MARGIN)
            end_sample = self.grid.find_sample(words[last].end + MARGIN)
            first_frame = self.grid.find_frame(start_sample, frames[i])
            last_frame = self.grid.find_frame(end_sample, frames[i])
            crops.append(self.features.read_rows(names[i], first_frame, last_frame + 1).float())
            text = " ".join(w.text for w in words[first : last + 1])
            targets.append(torch.tensor(self.vocabulary.encode(text)))
        return {
            "features": pad_sequence(crops, batch_first=True),
            "lengths": torch.tensor([len(crop) for crop in crops]),
            "targets": pad_sequence(targets, batch_first=True),
            "sizes": torch.tensor([len(target) for target in targets]),
        }
