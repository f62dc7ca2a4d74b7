"""Training of multiple choice: tiny corpora are learnt whole, a killed run goes on, other inputs
are refused."""

import shutil

import numpy as np
import pytest
from torch import nn

from speechssl.artifacts import read_json, write_json
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual import train as reader_train
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel, save_reader
from speechssl.multiple_choice import train as choice_train
from speechssl.multiple_choice.data import make_text_examples
from speechssl.multiple_choice.model import ChoiceReader, choose_options, load_choice
from speechssl.multiple_choice.options import ChoiceOptions, TrainChoice
from speechssl.multiple_choice.train import train_choice
from speechssl.options import EvalOptions, TrainingOptions
from speechssl.textlm.symbols import special_ids
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer, special_tokens
from speechssl.timing import RunLength

from ..files import read_lines, refused, untouched, write_corpus

K = 6
LICENCES = {"licences": {"trained_on": [], "contains": []}}
PLACES = ("paris", "london", "market", "school")


def training(steps=2, rate=1e-3):
    return TrainingOptions(steps, rate, warmup_steps=1, save_every=100, bf16=False)


def options(**changes):
    small = {"training": training(), "batch": 2, "window": 16, "stride": 8, "max_question": 20}
    return ChoiceOptions(**small | changes)


def train_on_words(corpus, out, qa, read="text", start=None):
    train_choice(TrainChoice(corpus=corpus, out=out, read=read, start=start, qa=qa))


def train_on_units(corpus, units, out, qa, start=None):
    places = {"corpus": corpus, "units": units, "out": out, "start": start}
    train_choice(TrainChoice(**places, assignment="random", qa=qa))


@pytest.fixture
def corpus(tmp_path, text_encoder, tokenizer, monkeypatch):
    """A corpus of texts: eight stories, each of which says where anna and where peter was; the last
    question is for both places."""
    rng = np.random.default_rng(0)
    passages = []
    questions = []
    filler = " ".join(["the lantern was lost in the years after"] * 3)
    for i in range(8):
        first, second, *_ = [str(place) for place in rng.permutation(PLACES)]
        text = f"anna was in {first} . {filler} . peter was in {second}"
        transcript = text.replace("lantern", "silver")
        passages.append({"id": f"p{i}", "text": text, "transcript": transcript})
        question = {"id": f"q{i}", "passage": f"p{i}", "options": PLACES}
        if i < 7:
            question["text"] = "where was anna"
            question["correct"] = [PLACES.index(first)]
        else:
            question["text"] = "where have they been"
            question["correct"] = sorted([PLACES.index(first), PLACES.index(second)])
        questions.append(question)
    root = write_corpus(tmp_path / "corpus", "train", passages=passages, questions=questions)
    write_json(root / "card.json", {"corpus": "toy"})

    def load(name):
        return text_encoder("bert" if name == "minilm" else name), tokenizer

    for module in (choice_train, reader_train):
        monkeypatch.setattr(module, "load_text_encoder", load)
    return root


def compute_set_accuracy(folder, corpus):
    model, layout, _ = load_choice(folder)
    codec = TextCodec(load_tokenizer(folder))
    examples, _ = make_text_examples(load_corpus(corpus, "train"), codec, layout, "text")
    scores = ChoiceReader(model, layout).score_many([e.choice for e in examples])
    exact = []
    for log_probs, example in zip(scores, examples, strict=True):
        exact.append(choose_options(log_probs, len(example.correct)) == example.correct)
    return np.mean(exact)


def test_a_model_is_trained_once_and_its_card_names_its_inputs(corpus, tmp_path):
    train_on_words(corpus, tmp_path / "out", options(), read="given")
    card = read_json(tmp_path / "out/card.json")
    assert card["what"] == "multiple choice on words"
    assert card["read"] == "given"
    assert card["examples"] == 8
    assert card["left_out"] == 0
    assert card["corpus"] == {"corpus": "toy"}
    assert card["licences"]["trained_on"] == ["toy, licence not known"]
    assert card["data"] == data_hash(corpus, "train")
    with untouched(tmp_path / "out"):
        train_on_words(corpus, tmp_path / "out", options(), read="given")
    message = r"other inputs \(.*read"
    refused(message, train_on_words, corpus, tmp_path / "out", options(), read="text")


# ---- training from a reader


def test_training_starts_from_a_model_of_choices(corpus, tmp_path):
    train_on_words(corpus, tmp_path / "first", options())
    train_on_words(corpus, tmp_path / "second", options(), start=tmp_path / "first")
    start = read_json(tmp_path / "second/card.json")["start"]
    assert start == read_json(tmp_path / "first/card.json")["weights"]


def test_training_starts_from_a_reader_of_spans(corpus, tmp_path, text_encoder, tokenizer):
    reader = tmp_path / "text-qa"
    model = SpanModel(text_encoder(), nn.Embedding(len(tokenizer), 32))
    layout = Layout(*special_tokens(tokenizer))
    save_reader(reader, model, layout, {"what": "text QA"} | LICENCES)
    tokenizer.save_pretrained(reader)
    train_on_words(corpus, tmp_path / "out", options(), start=reader)
    start = read_json(tmp_path / "out/card.json")["start"]
    assert start == read_json(reader / "card.json")["weights"]


# ---- units


@pytest.fixture
def units(corpus, save_units):
    """The folder of the units of every recording but the second option of q1."""
    data = load_corpus(corpus, "train")
    rng = np.random.default_rng(0)
    names = [*data.passages]
    for question in data.questions:
        names += [question.id, *question.option_ids]
    runs = {}
    for name in names:
        units = rng.integers(0, K, 60 if name in data.passages else 9)
        runs[name] = RunLength.of_frames(np.repeat(units, 2))
    del runs["q1:option-1"]
    return save_units(runs, {"codebook": "b", "corpus": data_hash(corpus, "train")})


def test_a_model_is_trained_on_units_and_a_question_without_some_is_left_out(
    corpus, units, tmp_path, capsys
):
    train_on_units(corpus, units, tmp_path / "out", options(random_units=0.1))
    model, layout, card = load_choice(tmp_path / "out")
    assert layout.cls == K
    assert model.embedding.num_embeddings == K + 3
    assert card["units"]["codebook"] == "b"
    assert card["examples"] == 7
    assert card["left_out"] == 1
    assert "set aside q1: no units of q1:option-1" in capsys.readouterr().err


def test_training_on_units_starts_from_a_reader_of_the_same_units_and_of_no_others(
    corpus, units, tmp_path, text_encoder
):
    layout = Layout(*special_ids(K))
    for codebook in ("b", "c"):
        model = SpanModel(text_encoder(), nn.Embedding(K + 3, 32))
        save_reader(
            tmp_path / codebook, model, layout, {"units": {"codebook": codebook}} | LICENCES
        )
    train_on_units(corpus, units, tmp_path / "out", options(), start=tmp_path / "b")
    message = "c was trained on other units"
    out = tmp_path / "refused"
    refused(message, train_on_units, corpus, units, out, options(), start=tmp_path / "c")
    assert not out.exists()


# ---- evaluation while training


@pytest.mark.slow
def test_the_model_is_the_checkpoint_with_the_best_set_accuracy(corpus, tmp_path):
    shutil.copytree(corpus / "train", corpus / "dev")
    evaluation = EvalOptions(eval_every=5, eval_split="dev", eval_items=0, patience=3)
    qa = options(training=training(60, 5e-3), batch=8, windows=0, evaluation=evaluation)
    train_on_words(corpus, tmp_path / "out", qa)
    facts = read_json(tmp_path / "out/card.json")["training"]
    scores = {}
    for row in read_lines(tmp_path / "out/checkpoints/log.jsonl"):
        if "eval_set_accuracy" in row:
            scores[row["step"]] = row["eval_set_accuracy"]
    best = facts["best"]
    assert best["step"] == max(scores, key=scores.get)
    assert best["score"] == 1  # the tiny corpus is learnt whole
    assert compute_set_accuracy(tmp_path / "out", corpus) == 1
    assert facts["steps"] == best["step"] + 3 * 5  # patience: three evaluations, five steps apart
    assert facts["steps"] < 60
