"""A tiny corpus with words and answers, a recogniser, and options with which all three stages of
SpeechBERT take a second or two."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from speechssl.cascade import train_text_qa
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.dual.options import QaOptions
from speechssl.options import TrainingOptions
from speechssl.speechbert import train
from speechssl.speechbert.options import SpeechBertOptions, TrainSpeechBert
from speechssl.units.features import make_features

from ..files import change_lines

TIMED_WORDS = [["lost", 0.05, 0.2], ["silver", 0.2, 0.35], ["lantern", 0.4, 0.5]]


@pytest.fixture
def corpus(mini_corpus, text_encoder, tokenizer, monkeypatch):
    root = mini_corpus((16_000, 24_123, 20_000))
    answers = [{"text": "silver", "start": 0.2, "end": 0.35}]
    change_lines(root / "train/passages.jsonl", {"words": TIMED_WORDS})
    change_lines(root / "train/questions.jsonl", {"words": TIMED_WORDS[:2], "answers": answers})

    def load(name):
        return text_encoder(max_position_embeddings=256), tokenizer

    for module in (train, train_text_qa):
        monkeypatch.setattr(module, "load_text_encoder", load)
    return root


@pytest.fixture(scope="session")
def recogniser(encoder):
    """An untrained recogniser, with weights such that it writes a few random words."""
    torch.manual_seed(0)
    vocabulary = CtcVocabulary.make_english()
    head = CtcHead(HeadShape(width=32, symbols=len(vocabulary), projection=8, lstm_width=8))
    with torch.no_grad():
        head.output.weight.mul_(30)
        head.output.bias[vocabulary.symbols.index("|")] += 3
    untrained = CtcRecogniser(encoder, head, vocabulary, "ctc", layer=1)
    untrained.card = {"asr": "r"}
    return untrained


@pytest.fixture(scope="session")
def features(encoder):
    return make_features(encoder, 1, 1)


def training(steps, rate=1e-3):
    return TrainingOptions(steps, rate, warmup_steps=1, save_every=2, bf16=False)


@pytest.fixture
def options():
    """A function that makes the options of a training from the steps of its three stages."""

    def make(words=4, masked=4, spans=4, **changes):
        qa = QaOptions(training(spans), batch=2, window=16, stride=8, answer=5)
        small = {"word_batch": 8, "word_width": 8, "mask_batch": 4, "mask_window": 8}
        small |= {"word_learning_rate": 1e-3, "mask_learning_rate": 1e-3}
        stages = SpeechBertOptions(word_steps=words, mask_steps=masked, **small | changes)
        return TrainSpeechBert(corpus=Path(), encoder="", out=Path(), stages=stages, qa=qa)

    return make


def train_on(corpus, features, out, options, recogniser=None, start=None):
    o = replace(options, corpus=corpus, out=out, start=start)
    train.fit_speechbert(o, features, recogniser)


def without_spans(options):
    return replace(options, stages=replace(options.stages, spans=False))
