"""Training of multiple choice: tiny corpora are learnt whole, a killed run goes on, other inputs
are refused."""

import shutil

import numpy as np
import pytest
from torch import nn

from speechssl.artifacts import read_json, write_json
from speechssl.data.records import hash_data, load_corpus
from speechssl.dual import train as reader_train
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel, save_reader
from speechssl.multiple_choice import train as choice_train
from speechssl.multiple_choice.data import make_text_examples
from speechssl.multiple_choice.model import ChoiceReader, choose_options, load_choice
from speechssl.multiple_choice.options import ChoiceOptions, TrainChoice
from speechssl.multiple_choice.train import train_choice
from speechssl.options import EvalOptions, TrainingOptions
from speechssl.textlm.tokenizers import TextCodec, find_special_tokens, load_tokenizer
from speechssl.timing import RunLength

from ..files import refused, untouched, write_corpus

K = 6
LICENCES = {"licences": {"trained_on": [], "contains": []}}
PLACES = ("paris", "london", "market", "school")


def training(steps=2, rate=1e-3):
    return TrainingOptions(steps, rate, warmup_steps=1, save_every=100, bf16=False)


def options(**changes):
    small = {"training": training(), "batch": 2, "window": 16, "stride": 8, "max_question": 20}
    return ChoiceOptions(**small | changes)


def train(corpus, out, qa, **inputs):
    train_choice(TrainChoice(corpus=corpus, out=out, qa=qa, **inputs))


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


def test_a_model_is_trained_once_and_its_card_names_its_inputs(corpus, tmp_path):
    out = tmp_path / "out"
    train(corpus, out, options(), read="given")
    card = read_json(out / "card.json")
    assert card["what"] == "multiple choice on words"
    assert (card["examples"], card["left_out"]) == (8, 0)
    assert card["licences"]["trained_on"] == ["toy, licence not known"]
    assert card["data"] == hash_data(corpus, "train")
    with untouched(out):
        train(corpus, out, options(), read="given")
    refused(r"other inputs \(.*read", train, corpus, out, options(), read="text")


def test_training_starts_from_a_reader_of_spans_or_of_choices(
    corpus, tmp_path, text_encoder, tokenizer
):
    reader, first, second = (tmp_path / name for name in ("text-qa", "first", "second"))
    model = SpanModel(text_encoder(), nn.Embedding(len(tokenizer), 32))
    layout = Layout(*find_special_tokens(tokenizer))
    save_reader(reader, model, layout, {"what": "text QA"} | LICENCES)
    tokenizer.save_pretrained(reader)
    for start, out in ((reader, first), (first, second)):
        train(corpus, out, options(), start=start)
        weights = read_json(start / "card.json")["weights"]
        assert read_json(out / "card.json")["start"] == weights


def test_a_model_is_trained_on_units_and_a_question_without_some_is_left_out(
    corpus, save_units, tmp_path, capsys
):
    data = load_corpus(corpus, "train")
    rng = np.random.default_rng(0)
    names = [*data.passages]
    for question in data.questions:
        names += [question.id, *question.option_ids]
    runs = {name: RunLength.of_frames(rng.integers(0, K, 60)) for name in names}
    del runs["q1:option-1"]
    units = save_units(runs, {"codebook": "b", "corpus": hash_data(corpus, "train")})
    out = tmp_path / "out"
    train(corpus, out, options(random_units=0.1), units=units, assignment="random")
    model, layout, card = load_choice(out)
    assert (layout.cls, model.embedding.num_embeddings) == (K, K + 3)
    assert (card["examples"], card["left_out"]) == (7, 1)
    assert "set aside q1: no units of q1:option-1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_tiny_corpus_is_learnt_whole_and_scored_in_training(corpus, tmp_path):
    shutil.copytree(corpus / "train", corpus / "dev")
    out = tmp_path / "out"
    evaluation = EvalOptions(eval_every=5, eval_split="dev", eval_items=0, patience=3)
    qa = options(training=training(60, 5e-3), batch=8, windows=0, evaluation=evaluation)
    train(corpus, out, qa)
    facts = read_json(out / "card.json")["training"]
    assert facts["best"]["score"] == 1
    assert facts["steps"] < 60  # patience ended it
    model, layout, _ = load_choice(out)
    codec = TextCodec(load_tokenizer(out))
    examples, _ = make_text_examples(load_corpus(corpus, "train"), codec, layout, "text")
    scores = ChoiceReader(model, layout).score_many([e.choice for e in examples])
    for log_probs, example in zip(scores, examples, strict=True):
        assert choose_options(log_probs, len(example.correct)) == example.correct
