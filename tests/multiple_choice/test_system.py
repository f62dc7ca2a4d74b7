"""Multiple choice on audio words: a tiny corpus is learnt whole, encoded recordings are kept for a
killed training, and windows are sorted by similarity."""

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from speechssl.artifacts import write_json
from speechssl.data.records import load_corpus
from speechssl.dual.data import Layout, cut_windows
from speechssl.dual.model import SpanModel, save_reader
from speechssl.errors import InputError
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
from speechssl.multiple_choice.system import (
    AudioWordChoice,
    EncodedQuestion,
    load_choice_systems,
)
from speechssl.multiple_choice.train import train_choice
from speechssl.options import TrainingOptions
from speechssl.speechbert.data import CLS, PAD, SEP, SPECIALS
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import AudioWords

from ..files import same_files, write_corpus

WIDTH = 32  # of codes
PLACES = ("a", "b", "c", "d")  # words 0 to 3
WHERE = 4
FILLER = 5
MEAN_CODES = np.random.default_rng(5).normal(size=(6, WIDTH)).astype(np.float32)  # of the words


def make_audio_words(*words, rng=None):
    """Make audio words of one second each, whose codes have noise where `rng` is given."""
    noise = 0.1 * rng.normal(size=(len(words), WIDTH)) if rng else 0
    starts = np.arange(len(words), dtype=float)
    return AudioWords((MEAN_CODES[list(words)] + noise).astype(np.float32), starts, starts + 1)


class StandInSpeechBert:
    """A stand-in for SpeechBertSystem, which knows a recording by its number of samples, and counts
    the recordings that it encodes."""

    def __init__(self, words_by_length):
        self.words_by_length = words_by_length
        self.count = 0
        self.rng = np.random.default_rng(1)
        self.card = {"speechbert": "s", "words": "w"}
        self.words = SimpleNamespace(code=WIDTH)

    def encode(self, record, samples):
        self.count += 1
        return make_audio_words(*self.words_by_length[len(samples)], rng=self.rng)


@pytest.fixture
def spoken(tmp_path):
    """A corpus of eight stories, each of which names one place twice among filler, and the system
    that encodes its recordings."""
    root = tmp_path / "corpus"
    words_by_length = {}

    def make_record(name, *words):
        length = 16_000 + len(words_by_length)  # samples
        words_by_length[length] = words
        return {"id": name, "seconds": length / 16_000, "text": "x"}

    options = [make_record(f"place-{place}", i) for i, place in enumerate(PLACES)]
    audio = [f"train/audio/{option['id']}.flac" for option in options]
    passages = []
    questions = []
    for i in range(8):
        place = i % 4
        story = [FILLER] * 6 + [place, place] + [FILLER] * 3
        passages.append(make_record(f"p{i}", *story))
        fields = {"passage": f"p{i}", "options": PLACES, "correct": place, "option_audio": audio}
        questions.append(make_record(f"q{i}", WHERE) | fields)
    write_corpus(root, "train", options=options, passages=passages, questions=questions)
    write_json(root / "card.json", {"corpus": "toy"})
    return SimpleNamespace(root=root, system=StandInSpeechBert(words_by_length))


@pytest.fixture
def start(tmp_path, text_encoder):
    """A SpeechBERT's reader."""
    embedding = torch.nn.Embedding(SPECIALS, WIDTH)
    model = SpanModel(text_encoder(max_position_embeddings=128), embedding)
    card = {"what": "SpeechBERT", "licences": {"trained_on": [], "contains": []}}
    save_reader(tmp_path / "speechbert", model, Layout(CLS, SEP, PAD), card)
    return tmp_path / "speechbert"


@pytest.fixture
def train_on_audio_words(spoken, start, monkeypatch):
    """A function (out, options) that trains on a corpus with the system of `spoken`."""
    monkeypatch.setattr(train, "load_system", lambda o: spoken.system)

    def run(out, qa):
        inputs = {"corpus": spoken.root, "speechbert": start, "encoder": "e", "ctc": Path("c")}
        train_choice(TrainChoice(**inputs, out=out, qa=qa))

    return run


def options(steps, rate=1e-3, save_every=1):
    training = TrainingOptions(steps, rate, warmup_steps=1, save_every=save_every, bf16=False)
    return ChoiceOptions(training, batch=8, windows=0, window=6, stride=3, max_question=8)


@pytest.mark.slow
def test_a_tiny_corpus_is_learnt_whole_and_encoded_once(spoken, train_on_audio_words, tmp_path):
    out = tmp_path / "out"
    qa = options(steps=40, rate=4e-3, save_every=100)
    train_on_audio_words(out, qa)
    model, layout, card = load_choice(out)
    assert model.embedding.num_embeddings == SPECIALS
    assert card["what"] == "multiple choice on audio words"
    assert (card["examples"], card["left_out"]) == (8, 0)

    model.embedding = CodeEmbedding(model.embedding)
    system = AudioWordChoice("", None, ChoiceReader(model, layout), {})
    say = partial(make_audio_words, rng=np.random.default_rng(9))
    for place in range(4):
        question = say(WHERE)
        option_words = tuple(say(option) for option in range(4))
        story = say(FILLER, FILLER, place, place, *[FILLER] * 4)
        (scores,) = system.score_all([EncodedQuestion(question, option_words, story)])
        assert choose_options(scores, 1) == (place,)

    count = spoken.system.count
    assert count == 8 + 8 + 8 * 4  # passages, questions and their options
    (out / "codes").mkdir()  # a run that was killed after it wrote the card leaves this
    train_on_audio_words(out, qa)
    assert spoken.system.count == count
    assert not (out / "codes").exists()


@pytest.mark.slow
def test_a_killed_run_encodes_nothing_again_and_ends_with_the_same_bytes(
    spoken, train_on_audio_words, tmp_path, dies_at
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with dies_at(ChoiceBatches, step=3):
        train_on_audio_words(killed, options(steps=4))
    count = spoken.system.count
    # the codes have noise, so both runs get the same ones
    shutil.copytree(killed / "codes", whole / "codes")
    train_on_audio_words(killed, options(steps=4))
    assert spoken.system.count == count
    shutil.copyfile(killed / "made_from.json", whole / "made_from.json")
    train_on_audio_words(whole, options(steps=4))
    assert same_files(whole, killed, "model.safetensors")


LAYOUT = Layout(CLS, SEP, PAD, size=6, stride=3, question=8)


def test_the_ids_of_an_example_are_rows_of_the_table_of_codes(spoken, text_encoder, tmp_path):
    data = load_corpus(spoken.root, "train")
    codes = encode_recordings(spoken.system, find_recordings(data), tmp_path / "codes")
    table, examples, left_out = make_code_examples(data, codes, LAYOUT)
    assert len(examples) == 8
    assert not left_out
    assert len(table) == sum(map(len, codes.values()))
    first = examples[0].choice
    assert np.allclose(table[first.passage - SPECIALS], codes["p0"])
    assert np.allclose(table[first.question - SPECIALS], codes["q0"])
    # they are read as the rows of an embedding table are
    torch.manual_seed(0)
    specials = torch.nn.Embedding(SPECIALS, WIDTH)
    model = ChoiceModel(text_encoder(max_position_embeddings=128), specials).eval()
    with_codes = CodeEmbedding(specials)
    with_codes.codes = table
    one_table = torch.nn.Embedding.from_pretrained(torch.cat([specials.weight.detach(), table]))
    scores = []
    for model.embedding in (with_codes, one_table):
        scores.append(ChoiceReader(model, LAYOUT).score_many([e.choice for e in examples]))
    assert np.allclose(*scores, atol=1e-5)


def test_the_most_similar_window_comes_first_and_words_of_all_windows_do_not_count():
    place = 2
    passage = MEAN_CODES[[FILLER] * 6 + [place, place] + [FILLER] * 4]
    tiling = cut_windows(12, 4, 4)
    ordered = sort_by_similarity(MEAN_CODES[[FILLER, place]], passage, tiling)
    assert ordered[0] == tiling[1]  # tokens 4 to 7
    # windows that are equally similar stay in their order
    assert sort_by_similarity(MEAN_CODES[[FILLER]], passage, tiling) == tuple(tiling)


def test_a_recogniser_of_hugging_face_needs_no_encoder_of_the_models(tmp_path):
    (tmp_path / "choice-text").mkdir()
    with pytest.raises(InputError, match="nobody/whisper"):
        load_choice_systems(tmp_path, ["cascade-nobody/whisper"], False, "en")
