"""A tiny corpus with words and answers, a recogniser and options: all three stages in a second or
two."""

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
from speechssl.units.features import encoder_features

from ..files import change_lines

SPOKEN = [["lost", 0.05, 0.2], ["silver", 0.2, 0.35], ["lantern", 0.4, 0.5]]


@pytest.fixture
def corpus(mini_corpus, text_encoder, tokenizer, monkeypatch):
    root = mini_corpus((16_000, 24_123, 20_000))
    answers = [{"text": "silver", "start": 0.2, "end": 0.35}]
    change_lines(root / "train/passages.jsonl", {"words": SPOKEN})
    change_lines(root / "train/questions.jsonl", {"words": SPOKEN[:2], "answers": answers})

    def load(name):
        return text_encoder(max_position_embeddings=256), tokenizer

    for module in (train, train_text_qa):
        monkeypatch.setattr(module, "load_text_encoder", load)
    return root


@pytest.fixture(scope="session")
def recogniser(encoder):
    """Untrained: it recognises something, here and there."""
    torch.manual_seed(0)
    vocabulary = CtcVocabulary.english()
    head = CtcHead(HeadShape(width=32, symbols=len(vocabulary), projection=8, lstm_width=8))
    with torch.no_grad():
        head.output.weight.mul_(30)
        head.output.bias[vocabulary.symbols.index("|")] += 3
    made = CtcRecogniser(encoder, head, vocabulary, "ctc", layer=1)
    made.card = {"asr": "r"}
    return made


@pytest.fixture(scope="session")
def features(encoder):
    return encoder_features(encoder, 1, 1)


def training(steps, rate=1e-3, **changes):
    return TrainingOptions(steps, rate, 1, **{"save_every": 2, "bf16": False} | changes)


@pytest.fixture
def options():
    def make(words=4, masked=4, spans=4, **changes):
        qa = QaOptions(training(spans), batch=2, window=16, stride=8, answer=5)
        small = {"word_batch": 8, "word_width": 8, "mask_batch": 4, "mask_window": 8}
        small |= {"word_learning_rate": 1e-3, "mask_learning_rate": 1e-3}
        stages = SpeechBertOptions(word_steps=words, mask_steps=masked, **small | changes)
        return TrainSpeechBert(corpus=Path(), encoder="", out=Path(), stages=stages, qa=qa)

    return make


def train_on(corpus, features, out, made, recogniser=None, start=None):
    train.fit_speechbert(replace(made, corpus=corpus, out=out, start=start), features, recogniser)


def without_spans(made, **changes):
    return replace(made, stages=replace(made.stages, spans=False), **changes)
