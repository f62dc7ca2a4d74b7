"""Choosing over audio words: a tiny corpus is learnt whole from vectors, windows go by likeness,
and encoded words are kept."""

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from speechssl.artifacts import write_json
from speechssl.data.records import load_corpus
from speechssl.dual.data import Layout, windows
from speechssl.dual.model import SpanModel, save_reader
from speechssl.multiple_choice import train
from speechssl.multiple_choice.data import (
    ChoiceBatches,
    encode_recordings,
    find_recordings,
    make_code_examples,
    sort_by_similarity,
)
from speechssl.multiple_choice.model import ChoiceModel, ChoiceReader, choose_options, load_choice
from speechssl.multiple_choice.options import ChoiceOptions, TrainChoice
from speechssl.multiple_choice.system import AudioWordChoice, EncodedQuestion
from speechssl.multiple_choice.train import train_choice
from speechssl.options import TrainingOptions
from speechssl.speechbert.data import CLS, PAD, SEP, SPECIALS
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import AudioWords

from ..files import same_files, write_corpus

WIDTH = 32
# of places, and of "where"
MEANINGS = np.random.default_rng(5).normal(size=(6, WIDTH)).astype(np.float32)
PLACES = ("a", "b", "c", "d")


def scored(model, layout, items):
    model.embedding = CodeEmbedding(model.embedding)
    system = AudioWordChoice("", None, ChoiceReader(model, layout), {})
    return system.score_all([EncodedQuestion(*item) for item in items])


def audio_words(*words, rng=None):
    """Audio words: what is said, each time a little otherwise."""
    noise = 0.1 * rng.normal(size=(len(words), WIDTH)) if rng else 0
    starts = np.arange(len(words), dtype=float)
    return AudioWords((MEANINGS[list(words)] + noise).astype(np.float32), starts, starts + 1)


class Hearer:
    """Hears in a file as many words as its length says: the recordings of `corpus` are written
    so."""

    def __init__(self, known):
        self.known, self.count, self.rng = known, 0, np.random.default_rng(1)
        self.card, self.words = {"speechbert": "s", "words": "w"}, SimpleNamespace(code=WIDTH)

    def encode(self, record, samples):
        self.count += 1
        return audio_words(*self.known[len(samples)], rng=self.rng)


@pytest.fixture
def spoken(tmp_path):
    """Eight stories, each of which names one place, twice among filler of others; and the audio
    words of all files."""
    root, known = tmp_path / "corpus", {}

    def record(name, *words):
        length = 16_000 + len(known)
        known[length] = words
        return {"id": name, "seconds": length / 16_000, "text": "x"}

    options = [record(f"place-{place}", i) for i, place in enumerate(PLACES)]
    audio = [f"train/audio/{option['id']}.flac" for option in options]
    passages, questions = [], []
    for i in range(8):
        passages.append(record(f"p{i}", *(5,) * 6, i % 4, i % 4, *(5,) * 3))
        asked = {"passage": f"p{i}", "options": PLACES, "correct": i % 4, "option_audio": audio}
        questions.append(record(f"q{i}", 4) | asked)
    write_corpus(root, "train", options=options, passages=passages, questions=questions)
    write_json(root / "card.json", {"corpus": "toy"})
    return SimpleNamespace(root=root, hearer=Hearer(known))


@pytest.fixture
def start(tmp_path, text_encoder):
    """A SpeechBERT's reader."""
    embedding = torch.nn.Embedding(SPECIALS, WIDTH)
    model = SpanModel(text_encoder(max_position_embeddings=128), embedding)
    card = {"what": "SpeechBERT", "licences": {"trained_on": [], "contains": []}}
    save_reader(tmp_path / "speechbert", model, Layout(CLS, SEP, PAD), card)
    return tmp_path / "speechbert"


def on_audio_words(corpus, out, hearer, start, qa):
    """Train with a SpeechBERT that hears as `hearer` does."""
    o = TrainChoice(corpus=corpus, out=out, speechbert=start, encoder="e", ctc=Path("c"), qa=qa)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(train, "load_system", lambda o: hearer)
        train_choice(o)


def options(steps=2, rate=1e-3, save_every=1):
    training = TrainingOptions(steps, rate, 1, save_every=save_every, bf16=False)
    return ChoiceOptions(training, batch=8, windows=0, window=6, stride=3, max_question=8)


@pytest.mark.slow
def test_a_tiny_corpus_is_learnt_whole_and_heard_once(spoken, start, tmp_path):
    out = tmp_path / "out"
    on_audio_words(spoken.root, out, spoken.hearer, start, options(40, 4e-3, 100))
    model, layout, card = load_choice(out)
    assert (layout.cls, layout.sep, layout.pad) == (CLS, SEP, PAD)
    assert model.embedding.num_embeddings == SPECIALS
    assert card["what"] == "multiple choice on audio words"
    assert card["speechbert"] == spoken.hearer.card
    assert (card["examples"], card["left_out"]) == (8, 0)
    assert not (out / "codes").exists()
    rng = np.random.default_rng(9)  # said anew
    heard = partial(audio_words, rng=rng)
    asked = [
        (heard(4), [heard(o) for o in range(4)], heard(5, 5, i, i, 5, 5, 5, 5)) for i in range(4)
    ]
    assert [choose_options(s, 1) for s in scored(model, layout, asked)] == [(0,), (1,), (2,), (3,)]
    count = spoken.hearer.count
    assert count == 8 + 8 + 8 * 4
    (out / "codes").mkdir()  # what a kill after the card leaves
    on_audio_words(spoken.root, out, spoken.hearer, start, options(40, 4e-3, 100))
    assert spoken.hearer.count == count
    assert not (out / "codes").exists()


@pytest.mark.slow
def test_a_killed_run_hears_nothing_again_and_ends_with_the_same_bytes(
    spoken, start, tmp_path, dies_at
):
    with dies_at(ChoiceBatches, 3):
        on_audio_words(spoken.root, tmp_path / "killed", spoken.hearer, start, options(4))
    count = spoken.hearer.count
    shutil.copytree(tmp_path / "killed/codes", tmp_path / "whole/codes")
    on_audio_words(spoken.root, tmp_path / "killed", spoken.hearer, start, options(4))
    assert spoken.hearer.count == count
    (tmp_path / "whole/made_from.json").write_bytes(
        (tmp_path / "killed/made_from.json").read_bytes()
    )
    on_audio_words(spoken.root, tmp_path / "whole", spoken.hearer, start, options(4))
    assert same_files(tmp_path / "whole", tmp_path / "killed", "model.safetensors")


def test_codes_get_ids_and_are_what_the_model_reads(spoken, text_encoder, tmp_path):
    """The table of codes gives what a model with these vectors as its embedding gives."""
    data = load_corpus(spoken.root, "train")
    codes = encode_recordings(spoken.hearer, find_recordings(data), tmp_path / "codes")
    layout = Layout(CLS, SEP, PAD, size=6, stride=3, question=8)
    table, examples, left_out = make_code_examples(data, codes, layout)
    assert len(examples) == 8
    assert not left_out
    assert len(table) == sum(map(len, codes.values()))
    first = examples[0].choice
    assert np.allclose(table[first.passage - SPECIALS], codes["p0"])
    assert np.allclose(table[first.question - SPECIALS], codes["q0"])
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(SPECIALS, WIDTH)
    model = ChoiceModel(text_encoder(max_position_embeddings=128), embedding).eval()
    coded = CodeEmbedding(embedding)
    coded.codes = table
    whole = torch.nn.Embedding.from_pretrained(torch.cat([embedding.weight.detach(), table]))
    scores = []
    for model.embedding in (coded, whole):
        scores += [ChoiceReader(model, layout).score_many([e.choice for e in examples])]
    assert np.allclose(*scores, atol=1e-5)


def test_the_likest_windows_come_first_and_what_is_everywhere_does_not_count():
    passage = MEANINGS[[5, 5, 5, 5, 5, 5, 2, 2, 5, 5, 5, 5]]
    every = windows(12, 4, 4)
    assert sort_by_similarity(MEANINGS[[5, 2]], passage, every)[0] == every[1]
    # alike: in their order
    assert sort_by_similarity(MEANINGS[[5]], passage, every) == tuple(every)
