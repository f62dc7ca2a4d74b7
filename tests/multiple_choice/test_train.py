"""Training of multiple choice: tiny corpora are learnt whole, a killed run goes on, other inputs
are refused."""

import shutil

import numpy as np
import pytest

from speechssl.artifacts import write_json
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual import train as reader_train
from speechssl.dual.model import SpanModel, save_reader
from speechssl.multiple_choice import train as choice_train
from speechssl.multiple_choice.data import make_text_examples
from speechssl.multiple_choice.model import ChoiceReader, choose_options, load_choice
from speechssl.multiple_choice.options import ChoiceOptions, TrainChoice
from speechssl.multiple_choice.train import train_choice
from speechssl.options import EvalOptions, TrainingOptions
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer
from speechssl.timing import RunLength

from ..files import read_lines, refused, untouched, write_corpus

K = 6
LICENCES = {"licences": {"trained_on": [], "contains": []}}
PLACES = ("paris", "london", "market", "school")


def training(steps=2, rate=1e-3):
    return TrainingOptions(steps, rate, 1, save_every=100, bf16=False)


def options(**changes):
    small = {"training": training(), "batch": 2, "window": 16, "stride": 8, "max_question": 20}
    return ChoiceOptions(**small | changes)


def on_words(corpus, out, qa, read="text", start=None):
    train_choice(TrainChoice(corpus=corpus, out=out, read=read, start=start, qa=qa))


def on_units(corpus, units, out, qa, start=None):
    places = {"corpus": corpus, "units": units, "out": out, "start": start}
    train_choice(TrainChoice(**places, assignment="random", qa=qa))


@pytest.fixture
def corpus(tmp_path, text_encoder, tokenizer, monkeypatch):
    """Text only: eight stories, each of which says where anna and where peter went; the last asks
    for both places."""
    rng, passages, questions = np.random.default_rng(0), [], []
    filler = " ".join(["the lantern was lost in the years after"] * 3)
    for i in range(8):
        first, second, *_ = [str(p) for p in rng.permutation(PLACES)]
        text = f"anna was in {first} . {filler} . peter was in {second}"
        said = {"id": f"p{i}", "text": text, "transcript": text.replace("lantern", "silver")}
        wanted = [first] if i < 7 else [first, second]
        asked = {"id": f"q{i}", "passage": f"p{i}", "options": PLACES}
        asked["text"] = "where was anna" if i < 7 else "where have they been"
        asked["correct"] = sorted(map(PLACES.index, wanted))
        passages.append(said)
        questions.append(asked)
    root = write_corpus(tmp_path / "corpus", "train", passages=passages, questions=questions)
    write_json(root / "card.json", {"corpus": "toy"})

    def load(name):
        return text_encoder("bert" if name == "minilm" else name), tokenizer

    for module in (choice_train, reader_train):
        monkeypatch.setattr(module, "load_text_encoder", load)
    return root


def set_accuracy(folder, corpus):
    model, layout, _ = load_choice(folder)
    codec = TextCodec(load_tokenizer(folder))
    found, _ = make_text_examples(load_corpus(corpus, "train"), codec, layout, "text")
    scores = ChoiceReader(model, layout).score_many([e.choice for e in found])
    chosen = [choose_options(s, len(e.correct)) for s, e in zip(scores, found, strict=True)]
    return np.mean([some == e.correct for some, e in zip(chosen, found, strict=True)])


def test_a_model_is_trained_once_and_says_from_what(corpus, tmp_path):
    on_words(corpus, tmp_path / "out", options(), "given")
    card = load_choice(tmp_path / "out")[2]
    assert (card["what"], card["read"]) == ("multiple choice on words", "given")
    assert (card["examples"], card["left_out"], card["corpus"]) == (8, 0, {"corpus": "toy"})
    assert card["licences"]["trained_on"] == ["toy, licence not known"]
    assert card["data"] == data_hash(corpus, "train")
    with untouched(tmp_path / "out"):
        on_words(corpus, tmp_path / "out", options(), "given")
    refused(r"other inputs \(.*read", on_words, corpus, tmp_path / "out", options(), "text")


# ---- going on


def test_training_goes_on_from_choices_with_the_head_and_from_spans_without(
    corpus, tmp_path, text_encoder, tokenizer
):
    on_words(corpus, tmp_path / "first", options())
    on_words(corpus, tmp_path / "second", options(), start=tmp_path / "first")
    _, layout, card = load_choice(tmp_path / "first")
    assert load_choice(tmp_path / "second")[2]["start"] == card["weights"]
    span = SpanModel(text_encoder(), choice_train.nn.Embedding(len(tokenizer), 32))
    save_reader(tmp_path / "span", span, layout, {"what": "text QA"} | LICENCES)
    tokenizer.save_pretrained(tmp_path / "span")
    on_words(corpus, tmp_path / "third", options(), start=tmp_path / "span")
    assert load_choice(tmp_path / "third")[2]["start"] != card["weights"]


# ---- units


@pytest.fixture
def units(corpus, save_units):
    """Units of every recording but the second option of q1."""
    data, rng, runs = load_corpus(corpus, "train"), np.random.default_rng(0), {}
    for name in (*data.passages, *(i for q in data.questions for i in (q.id, *q.option_ids))):
        units = rng.integers(0, K, 60 if name in data.passages else 9)
        runs[name] = RunLength.of_frames(np.repeat(units, 2))
    del runs["q1:option-1"]
    return save_units(runs, {"codebook": "b", "corpus": data_hash(corpus, "train")})


def test_units_train_the_same_model(corpus, units, tmp_path, capsys):
    on_units(corpus, units, tmp_path / "out", options(random_units=0.1))
    model, layout, card = load_choice(tmp_path / "out")
    assert (layout.cls, model.embedding.num_embeddings) == (K, K + 3)
    assert (card["examples"], card["left_out"], card["units"]["codebook"]) == (7, 1, "b")
    assert "set aside q1: no units of q1:option-1" in capsys.readouterr().err


def test_units_go_on_from_a_reader_of_the_same_units_and_of_no_others(
    corpus, units, tmp_path, text_encoder
):
    on_units(corpus, units, tmp_path / "first", options())
    _, layout, card = load_choice(tmp_path / "first")
    for name, made in (("same", card["units"]), ("other", {"codebook": "c"})):
        model = SpanModel(text_encoder(), choice_train.nn.Embedding(K + 3, 32))
        save_reader(tmp_path / name, model, layout, {"units": made} | LICENCES)
    on_units(corpus, units, tmp_path / "out", options(), tmp_path / "same")
    out, wanted = tmp_path / "refused", "other was trained on other units"
    refused(wanted, on_units, corpus, units, out, options(), tmp_path / "other")
    assert not out.exists()


# ---- evaluation while training


@pytest.mark.slow
def test_the_model_is_the_checkpoint_that_chooses_best(corpus, tmp_path):
    """A tiny corpus is learnt whole."""
    shutil.copytree(corpus / "train", corpus / "dev")
    of_dev = EvalOptions(5, "dev", 0, 3)
    made = options(training=training(60, 5e-3), batch=8, windows=0, evaluation=of_dev)
    on_words(corpus, tmp_path / "out", made)
    card = load_choice(tmp_path / "out")[2]["training"]
    rows, best = read_lines(tmp_path / "out/checkpoints/log.jsonl"), card["best"]
    found = {row["step"]: row["eval_set_accuracy"] for row in rows if "eval_set_accuracy" in row}
    assert best["step"] == max(found, key=found.get)
    assert best["score"] == set_accuracy(tmp_path / "out", corpus) == 1
    assert card["steps"] == best["step"] + 15 < 60  # patience
