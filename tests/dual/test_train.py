"""Training of the readers: what they are made from is written down, other inputs are refused, a
killed run goes on."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from speechssl.artifacts import read_json
from speechssl.cascade import train_text_qa as cascade_train
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.train_text_qa import answer_words, train_text_qa
from speechssl.data.records import (
    QUESTIONS,
    Answer,
    Passage,
    Question,
    data_hash,
    hash_questions,
    load_corpus,
)
from speechssl.dual import train
from speechssl.dual.data import ExampleBatches, make_unit_examples
from speechssl.dual.model import load_reader, save_reader
from speechssl.dual.options import QaOptions, TrainDual
from speechssl.dual.system import Reader, TimedAnswer, adapt_extractor, answer_units
from speechssl.dual.train import describe_run, train_dual
from speechssl.errors import InputError
from speechssl.eval.score import score_questions
from speechssl.options import EvalOptions, TrainingOptions
from speechssl.quantisation import dequantise, quantise
from speechssl.textlm.encoders import load_text_encoder
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.features import UnitExtractor
from speechssl.units.options import FitPieces
from speechssl.units.pieces import fit_pieces, load_pieces
from speechssl.units.storage import load_units

from ..files import change_json, change_lines, read_lines, refused, same_files, untouched

GRID = FrameGrid(16_000, 320, 400)
K = 6


def options(**changes):
    training = TrainingOptions(2, 1e-3, 1, save_every=1, bf16=False)
    short = {"training": training, "batch": 2, "window": 16, "stride": 8, "answer": 5}
    return QaOptions(**short | changes)


@pytest.fixture
def corpus(mini_corpus, save_units, text_encoder, tokenizer, monkeypatch):
    """A corpus with answers and words, its units, and a tiny text encoder in the place of a
    pre-trained one."""
    root = mini_corpus((16_000, 24_123, 20_000))
    words = [["lost", 0.0, 0.3], ["silver", 0.3, 0.6]]
    answers = [{"text": "silver", "start": 0.3, "end": 0.6}]
    change_lines(root / "train/passages.jsonl", {"words": words})
    change_lines(root / "train/questions.jsonl", {"answers": answers})
    rng, units = np.random.default_rng(0), {}
    for record in load_corpus(root, "train").records:
        frames = np.repeat(rng.integers(0, K, 200), 3)
        units[record.id] = RunLength.of_frames(
            frames[: GRID.frames(round(record.seconds * 16_000))]
        )
    save_units(units, {"codebook": "b", "corpus": data_hash(root, "train")})

    def load(name):
        return text_encoder(max_position_embeddings=256), tokenizer

    for module in (train, cascade_train):
        monkeypatch.setattr(module, "load_text_encoder", load)
    return root


OF_VERB = ("assignment", "pieces", "start", "passages", "learning_rates")


def dual(corpus, tmp_path, out="dual", **changes):
    places = {"corpus": corpus, "units": tmp_path / "units", "out": tmp_path / out}
    of_verb = {name: changes.pop(name) for name in OF_VERB if name in changes}
    train_dual(TrainDual(**places, qa=options(**changes), **of_verb))
    return tmp_path / out


def text_qa(corpus, out, start=None, **changes):
    train_text_qa(TrainTextQa(corpus=corpus, out=out, start=start, qa=options(**changes)))


def test_readers_keep_the_questions_of_all_their_trainings(corpus, tmp_path):
    questions = load_corpus(corpus, "train").questions
    first = dual(corpus, tmp_path, "first", passages=1)
    assert set(np.load(first / QUESTIONS)) <= set(hash_questions(questions))
    np.save(first / QUESTIONS, np.array([7], np.uint32))  # of an earlier training
    out = dual(corpus, tmp_path, start=first)
    assert set(np.load(out / QUESTIONS)) == {7, *hash_questions(questions)}


def test_a_reader_is_trained_once_and_says_from_what(corpus, tmp_path):
    out = dual(corpus, tmp_path)
    model, layout, card = load_reader(out)
    assert (layout.cls, layout.size, model.embedding.num_embeddings) == (K, 16, K + 3)
    assert (layout.start_weight, layout.end_weight) == (0.4, 0.6)
    assert card["licences"]["trained_on"]
    assert card["licences"]["contains"]
    assert card["data"] == data_hash(corpus, "train")
    assert "eval_data" not in card
    assert card["assignment"] == "most-frequent"
    assert card["units"]["codebook"] == "b"
    assert card["examples"] == 3
    with untouched(out):
        dual(corpus, tmp_path)


@pytest.mark.parametrize("change", [{"assignment": "random"}, {"window": 20}])
def test_other_inputs_are_refused_and_named(corpus, tmp_path, change):
    (dual(corpus, tmp_path) / "card.json").unlink()  # whether it is finished or not
    with pytest.raises(InputError, match=rf"made from other inputs \(.*{next(iter(change))}"):
        dual(corpus, tmp_path, **change)
    rewrite_made_from(tmp_path, smooth=3)
    refused("units.smooth", dual, corpus, tmp_path)


def rewrite_made_from(tmp_path, codebooks=("b",), split="train", **changes):
    path = tmp_path / f"units/{split}/_card.json"
    change_json(path, made_from=read_json(path)["made_from"] | changes, codebooks=codebooks)


@pytest.mark.slow
def test_a_reader_goes_on_with_units_that_were_carried_over_from_its_own_and_with_no_others(
    corpus, tmp_path
):
    start = dual(corpus, tmp_path, "start")
    rewrite_made_from(tmp_path, ("carried", "b"), codebook="carried", encoder="another")
    next_ = dual(corpus, tmp_path, "next", start=start)
    found = load_reader(next_)[2]
    assert found["units"]["codebook"] == "carried"
    assert found["start"] == load_reader(start)[2]["weights"]
    assert found["codebooks"] == ["carried", "b"]
    # another that was carried over from the first reader's
    rewrite_made_from(tmp_path, ("sibling", "b"), codebook="sibling")
    sibling = load_reader(dual(corpus, tmp_path, "sibling", start=next_))[2]
    assert sibling["units"]["codebook"] == "sibling"
    rewrite_made_from(tmp_path, ("carried", "c"))
    refused("start was trained on other units", dual, corpus, tmp_path, "other", start=start)


@pytest.mark.parametrize(
    ("language", "written", "answer", "start", "words", "span"),
    [
        ("en", "the silver  lantern, was", "silver  lantern", 4, "the silver lantern, was", (1, 2)),
        ("en", "the silver lantern", "ilv", 5, "the silver lantern", (1, 1)),
        ("zh", "在歐洲 Anna的", "歐洲", 1, "在 歐 洲 Anna 的", (1, 2)),
        ("en", "the silver lantern", "gold", None, "the silver lantern", None),
    ],
)
@pytest.mark.parametrize("field", ["text", "transcript"])
def test_without_times_the_answers_words_are_those_at_its_offset(
    language, written, answer, start, words, span, field
):
    passage = replace(Passage("p", language=language), **{field: written})
    answers = (Answer("elsewhere"), Answer(answer, char_start=start))
    question = Question("q", "p", language=language, answers=answers)
    assert answer_words(passage, question) == (words.split(), span)


def test_text_qa_on_characters_of_another_split(corpus, tmp_path):
    shutil.copytree(corpus / "train", corpus / "other")
    (corpus / "train/questions.jsonl").write_text("")
    text_qa(corpus, tmp_path / "text", characters=True, split="other")
    model, layout, card = load_reader(tmp_path / "text")
    assert model.embedding.num_embeddings == 3 + 2 + len({*"ab"})
    assert card["characters"]
    assert card["options"]["split"] == "other"
    assert layout.cls == model.embedding.num_embeddings - 3
    with pytest.raises(InputError, match=r"made from other inputs \(.*characters"):
        text_qa(corpus, tmp_path / "text", split="other")


def test_questions_without_units_or_times_are_left_out(corpus, tmp_path):
    runs = RunLength.of_frames(np.arange(GRID.frames(16_000)) // 3)
    units = dict.fromkeys(("p0", "q0", "p1"), runs)
    examples, left_out = make_unit_examples(load_corpus(corpus, "train"), units, GRID)
    assert len(examples) == 1
    assert left_out == {"q1": "no units of q1", "q2": "no units of q2"}


# ---- evaluation while training, more steps, sweeps

SIX = TrainingOptions(6, 1e-2, 1, save_every=4, log_every=1, bf16=False)


@pytest.fixture
def dev(corpus, tmp_path):
    """A split dev like train, with its units."""
    shutil.copytree(corpus / "train", corpus / "dev")
    shutil.copytree(tmp_path / "units/train", tmp_path / "units/dev")
    return corpus


def evaluated(corpus, tmp_path, out, every=1, **changes):
    evaluation = EvalOptions(every, "dev", 0)
    return dual(corpus, tmp_path, out, evaluation=evaluation, **{"training": SIX} | changes)


def scores_of(folder, name):
    rows = read_lines(folder / "checkpoints/log.jsonl")
    return {row["step"]: row[f"eval_{name}"] for row in rows if f"eval_{name}" in row}


def test_the_reader_is_the_checkpoint_that_answers_held_out_questions_best(dev, tmp_path):
    """By the answers and the scores of `evaluate qa`."""
    out = evaluated(dev, tmp_path, "dual")
    model, layout, card = load_reader(out)
    found, best = scores_of(out, "ff1"), card["training"]["best"]
    assert list(found) == [1, 2, 3, 4, 5, 6]
    assert len(set(found.values())) > 2
    assert best["score"] == pytest.approx(max(found.values()), abs=1e-5)
    assert best["step"] == max(found, key=found.get)
    assert best["items"] == 3
    assert (card["data"], card["eval_data"]) == (data_hash(dev, "train"), data_hash(dev, "dev"))
    weights = load_file(out / f"checkpoints/checkpoint-{best['step']}/model.safetensors")
    rounded = dequantise(quantise(weights))
    assert all(torch.equal(value, rounded[name]) for name, value in model.state_dict().items())
    model.load_state_dict(weights)
    data, units = load_corpus(dev, "dev"), load_units(tmp_path / "units/dev")
    items = [(units[q.id], units[q.passage]) for q in data.questions]
    answers = {}
    for q, a in zip(data.questions, answer_units(Reader(model, layout), GRID, items), strict=True):
        answers[q.id] = {"start": a.start, "end": a.end, "text": None}
    scores = score_questions({"answers": answers, "transcripts": {}}, data)
    assert found[best["step"]] == pytest.approx(np.mean([score.ff1 for score in scores]))
    assert f"of step {best['step']} of 6: FF1" in describe_run(out)


@pytest.mark.parametrize("every", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_run_ends_with_the_same_bytes(dev, tmp_path, dies_at, every):
    """Whether it is evaluated while it is trained or not."""
    whole = evaluated(dev, tmp_path, "whole", every)
    with dies_at(ExampleBatches, 5):  # the loader is a step ahead
        evaluated(dev, tmp_path, "killed", every)
    assert not (tmp_path / "killed/card.json").exists()
    killed = evaluated(dev, tmp_path, "killed", every)
    assert same_files(whole, killed, "model.safetensors", "config.json", "made_from.json")


def test_a_question_without_units_counts_as_wrong(dev, tmp_path):
    units = {"q0": RunLength.of_frames(np.zeros(9, int)), "p0": RunLength.of_frames(np.arange(40))}
    items, asked = EvalOptions(6, "dev", 2), []
    assert len(train.load_timed_questions(dev, items).questions) == 2

    def answer(reader, pairs):
        asked.extend(pairs)
        return [TimedAnswer(0.3, 0.6, 1.0)] * len(pairs)

    model = load_reader(dual(dev, tmp_path))[0]
    data = train.load_timed_questions(dev, EvalOptions(6, "dev", 0))
    evaluation = train.make_timed_evaluation(data, items, units, model, None, answer)
    assert evaluation.score() == pytest.approx(1 / 3)
    assert asked == [(units["q0"], units["p0"])]


def test_a_finished_reader_is_trained_further_where_nothing_else_changes(dev, tmp_path):
    same = replace(SIX, horizon=6)
    whole = dual(dev, tmp_path, "whole", training=same)
    more = dual(dev, tmp_path, "more", training=replace(same, steps=3))
    for other, named in ({"seed": 1}, "options.training.seed"), ({"steps": 2}, "training.steps"):
        refused(named, dual, dev, tmp_path, "more", training=replace(same, **other))
    assert load_reader(more)[2]["training"]["steps"] == 3
    dual(dev, tmp_path, "more", training=same)
    assert same_files(whole, more, "model.safetensors", "made_from.json")
    assert load_reader(more)[2]["training"]["steps"] == 6


def sweep_of(corpus, tmp_path, out, rates, **changes):
    changes = {"training": SIX, "evaluation": EvalOptions(0, "dev", 0)} | changes
    return dual(corpus, tmp_path, out, learning_rates=rates, **changes)


@pytest.mark.slow
def test_a_sweep_leaves_the_best_of_its_runs(dev, tmp_path, dies_at, capsys):
    out = sweep_of(dev, tmp_path, "sweep", [1e-6, 1e-2])
    table = capsys.readouterr().out
    scores = {row["learning_rate"]: row["score"] for row in load_reader(out)[2]["sweep"]}
    assert list(scores) == [1e-6, 1e-2]
    assert scores[1e-2] != scores[1e-6]
    best = max(scores, key=scores.get)
    assert f"{best:g}" in next(line for line in table.splitlines() if "(best)" in line)
    training = replace(SIX, learning_rate=best)
    alone = evaluated(dev, tmp_path, "alone", 6, training=training)
    assert same_files(out, alone, "model.safetensors", "made_from.json")
    with dies_at(ExampleBatches, 3):
        sweep_of(dev, tmp_path, "killed", [1e-6, 1e-2])
    killed = sweep_of(dev, tmp_path, "killed", [1e-6, 1e-2])
    assert same_files(killed, out, "model.safetensors")
    with untouched(out):
        sweep_of(dev, tmp_path, "sweep", [1e-6, 1e-2])
    # a run as any other: it can be trained further
    further = evaluated(dev, tmp_path, "sweep", 6, training=replace(training, steps=8))
    assert load_reader(further)[2]["training"]["steps"] == 8


def untimed(path):
    change_lines(path, {"answers": [{"text": "silver"}]})


@pytest.mark.parametrize(
    ("spoil", "changes", "named"),
    [
        (lambda root, tmp: rewrite_made_from(tmp, corpus="other"), {}, "units/train"),
        (lambda root, tmp: shutil.rmtree(tmp / "units/train"), {}, "units/train"),
        (lambda root, tmp: shutil.rmtree(root / "dev"), {}, "corpus/dev"),
        (lambda root, tmp: shutil.rmtree(tmp / "units/dev"), {}, "units/dev"),
        (lambda root, tmp: untimed(root / "dev/questions.jsonl"), {}, "corpus/dev"),
        (
            lambda root, tmp: rewrite_made_from(tmp, codebook="c", codebooks=("c",), split="dev"),
            {},
            "dev in .*units",
        ),
        (lambda root, tmp: None, {"start": Path("nowhere")}, "nowhere/card.json"),
        (lambda root, tmp: None, {"window": 134}, "--window"),
        (lambda root, tmp: None, {"stride": 17}, "--stride"),
        (lambda root, tmp: dual(root, tmp, "out"), {"learning_rates": [1e-3]}, "out holds a run"),
    ],
)
def test_bad_input_is_one_sentence(dev, tmp_path, spoil, changes, named):
    spoil(dev, tmp_path)
    refused(named, evaluated, dev, tmp_path, "out", **changes)


def test_text_qa_is_evaluated_as_the_system_text(corpus, tmp_path):
    shutil.copytree(corpus / "train", corpus / "dev")
    evaluation = EvalOptions(2, "dev", 0)
    out = tmp_path / "text"
    text_qa(corpus, out, training=SIX, evaluation=evaluation)
    best, found = load_reader(out)[2]["training"]["best"], scores_of(out, "f1")
    assert list(found) == [2, 4, 6]
    assert best["score"] == pytest.approx(max(found.values()), abs=1e-5)
    assert best["metric"] == "f1"


# ---- families of text encoders, from checkpoints with their own tokenizers


@pytest.fixture
def trained(monkeypatch):
    """Name of a folder -> the model, as `train.save_reader` got it."""
    trained = {}

    def keep(out, model, *more):
        trained[out.name] = model.eval()
        save_reader(out, model, *more)

    monkeypatch.setattr(train, "save_reader", keep)
    return trained


@pytest.fixture
def by_name(corpus, trained, monkeypatch):
    """--text-encoder is loaded by its name again."""
    for module in (train, cascade_train):
        monkeypatch.setattr(module, "load_text_encoder", load_text_encoder)
    return trained


@pytest.mark.slow
@pytest.mark.parametrize("family", ["BigBird", "Longformer", "ModernBERT", "T5", "XLM-RoBERTa"])
def test_a_reader_of_units_is_trained_from_families_unlike_each_other_and_answers_as_before_when_it_is_loaded(
    by_name, dev, checkpoint, tmp_path, family
):
    """Evaluation changes nothing: what a model keeps from one call for the next, as tables of
    positions, must not come from it."""
    given, last = {"text_encoder": str(checkpoint(family)), "max_question": 20}, []
    for name, every in (("evaluated", 1), ("plain", 0)):
        out = dual(dev, tmp_path, name, evaluation=EvalOptions(every, "dev", 0), **given)
        last.append(load_file(out / "checkpoints/checkpoint-2/model.safetensors"))
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])
    model, layout, _ = load_reader(out)
    # BigBird's, which depends on the batch
    assert model.encoder.config.to_dict().get("attention_type") != "block_sparse"
    was = by_name["plain"].eval()
    was.load_state_dict(dequantise(quantise(was.state_dict())))
    rng = np.random.default_rng(0)
    items = [(rng.integers(0, K, 5), rng.integers(0, K, size)) for size in (7, 16, 60)]
    expected, found = (Reader(m, layout).read(items) for m in (was, model))
    for a, b in zip(expected, found, strict=True):
        assert (a.first, a.last) == (b.first, b.last)
        assert a.score == pytest.approx(b.score, abs=1e-5)


@pytest.mark.parametrize("kind", ["adapters", "lora", "weighted-sum"])
def test_a_reader_of_few_trained_weights_answers_as_it_was_trained(
    corpus, tmp_path, kind, text_encoder, trained
):
    """What is loaded gives the logits of what was trained; the encoder's other weights are those
    that it began with."""
    if kind == "lora":
        pytest.importorskip("peft")
    model, _, card = load_reader(dual(corpus, tmp_path, trained=kind))
    ids = torch.tensor([[K, 1, 2, K + 1, 3, 4, 5, K + 1]])
    given = {"mask": torch.ones_like(ids), "segments": torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])}
    with torch.no_grad():
        logits = [m.logits(ids, **given) for m in (model, trained["dual"])]
    assert torch.allclose(*logits, atol=2e-2)  # int8
    assert 0 < card["trained_parameters"] < sum(w.numel() for w in model.parameters())
    matrix = "encoder.layer.0.intermediate.dense.weight"
    began = text_encoder(max_position_embeddings=256).state_dict()[matrix]
    assert torch.equal(trained["dual"].encoder.state_dict()[matrix], began)


def test_text_qa_trains_the_embeddings_of_its_tokens_only_with_the_whole_model(corpus, tmp_path):
    for kind in ("all", "adapters"):
        text_qa(corpus, tmp_path / kind, trained=kind)
    whole, _, card = load_reader(tmp_path / "all")
    few, _, fewer = load_reader(tmp_path / "adapters")
    assert fewer["trained_parameters"] < card["trained_parameters"] - whole.embedding.weight.numel()
    # and not a second set of them
    text_qa(corpus, tmp_path / "on", tmp_path / "adapters", trained="adapters")
    on, _, card = load_reader(tmp_path / "on")
    assert on.state_dict().keys() == few.state_dict().keys()
    assert card["trained_parameters"] == fewer["trained_parameters"]
    assert torch.equal(on.embedding.weight, few.embedding.weight)


# Pieces of units


@pytest.fixture
def pieces(corpus, tmp_path):
    out = tmp_path / "pieces.json"
    fit_pieces(FitPieces(units=tmp_path / "units/train", out=out, size=10, least=2))
    return out


def test_a_reader_of_pieces_keeps_them_and_hands_them_on(corpus, tmp_path, pieces):
    out = dual(corpus, tmp_path, pieces=pieces)
    model, layout, card = load_reader(out)
    assert (layout.cls, model.embedding.num_embeddings) == (10, 13)
    assert card["units"]["pieces"] == load_pieces(pieces).hash == load_pieces(out).hash
    again = dual(corpus, tmp_path, "again", start=out)
    assert load_pieces(again).hash == load_pieces(out).hash
    with pytest.raises(InputError, match="does not read the pieces"):
        dual(corpus, tmp_path, "third", start=dual(corpus, tmp_path, "plain"), pieces=pieces)


def test_a_system_joins_units_to_the_pieces_of_its_reader(corpus, tmp_path, pieces):
    out = dual(corpus, tmp_path, pieces=pieces)
    codebook = SimpleNamespace(equivalents=("b",), name="b")
    extractor = UnitExtractor(None, codebook)
    joined = adapt_extractor(out, read_json(out / "card.json"), extractor)
    assert joined.pieces.hash == load_pieces(pieces).hash
    other = replace(extractor, codebook=SimpleNamespace(equivalents=("c",), name="c"))
    with pytest.raises(InputError, match="no reader of the units of c"):
        adapt_extractor(out, read_json(out / "card.json"), other)
