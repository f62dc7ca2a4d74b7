"""Training of DUAL's reader and of text QA: cards name the inputs, other inputs are refused, a
killed run goes on; evaluation while training, sweeps, families of text encoders, pieces."""

import shutil
from contextlib import nullcontext
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
from speechssl.cascade.train_text_qa import locate_answer_words, train_text_qa
from speechssl.data.records import (
    QUESTIONS,
    Answer,
    Passage,
    Question,
    hash_data,
    hash_questions,
    load_corpus,
)
from speechssl.dual import fitting, train
from speechssl.dual.data import ExampleBatches, make_unit_examples
from speechssl.dual.model import load_reader, save_reader
from speechssl.dual.options import QaOptions, TrainDual
from speechssl.dual.system import Reader, TimedAnswer, adapt_extractor, answer_units
from speechssl.dual.train import train_dual
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
    training = TrainingOptions(
        steps=2, learning_rate=1e-3, warmup_steps=1, save_every=1, bf16=False
    )
    small = {"training": training, "batch": 2, "window": 16, "stride": 8, "answer": 5}
    return QaOptions(**small | changes)


@pytest.fixture
def corpus(mini_corpus, save_units, text_encoder, tokenizer, monkeypatch):
    """A corpus of three passages with answers and words; its units are in the folder `units` beside
    it, and --text-encoder is a tiny one."""
    root = mini_corpus((16_000, 24_123, 20_000))
    words = [["lost", 0.0, 0.3], ["silver", 0.3, 0.6]]
    answers = [{"text": "silver", "start": 0.3, "end": 0.6}]
    change_lines(root / "train/passages.jsonl", {"words": words})
    change_lines(root / "train/questions.jsonl", {"answers": answers})
    rng = np.random.default_rng(0)
    units = {}
    for record in load_corpus(root, "train").records:
        frames = np.repeat(rng.integers(0, K, 200), 3)
        count = GRID.count_frames(round(record.seconds * 16_000))
        units[record.id] = RunLength.of_frames(frames[:count])
    save_units(units, {"codebook": "b", "corpus": hash_data(root, "train")})

    def load(name):
        return text_encoder(max_position_embeddings=256), tokenizer

    for module in (train, cascade_train):
        monkeypatch.setattr(module, "load_text_encoder", load)
    return root


# options of TrainDual itself; others are those of its reader
VERB_OPTIONS = ("assignment", "pieces", "start", "passages", "learning_rates")


def train_reader(corpus, tmp_path, out="dual", **changes):
    """Train DUAL; return the folder of the reader."""
    places = {"corpus": corpus, "units": tmp_path / "units", "out": tmp_path / out}
    verb_options = {name: changes.pop(name) for name in VERB_OPTIONS if name in changes}
    train_dual(TrainDual(**places, qa=options(**changes), **verb_options))
    return tmp_path / out


def train_text_reader(corpus, out, start=None, **changes):
    train_text_qa(TrainTextQa(corpus=corpus, out=out, start=start, qa=options(**changes)))


def test_readers_keep_the_questions_of_all_their_trainings(corpus, tmp_path):
    questions = load_corpus(corpus, "train").questions
    first = train_reader(corpus, tmp_path, "first", passages=1)
    assert set(np.load(first / QUESTIONS)) <= set(hash_questions(questions))
    np.save(first / QUESTIONS, np.array([7], np.uint32))  # of an earlier training
    out = train_reader(corpus, tmp_path, start=first)
    assert set(np.load(out / QUESTIONS)) == {7, *hash_questions(questions)}


def test_a_reader_is_trained_once_and_its_card_names_its_inputs(corpus, tmp_path):
    out = train_reader(corpus, tmp_path)
    model, layout, card = load_reader(out)
    assert layout.cls == K
    assert model.embedding.num_embeddings == K + 3
    assert (layout.start_weight, layout.end_weight) == (0.4, 0.6)
    assert card["data"] == hash_data(corpus, "train")
    assert card["units"]["codebook"] == "b"
    assert card["examples"] == 3
    with untouched(out):
        train_reader(corpus, tmp_path)


@pytest.mark.parametrize("change", [{"assignment": "random"}, {"window": 20}])
def test_other_inputs_are_refused_and_named(corpus, tmp_path, change):
    (train_reader(corpus, tmp_path) / "card.json").unlink()  # whether it is finished or not
    with pytest.raises(InputError, match=rf"made from other inputs \(.*{next(iter(change))}"):
        train_reader(corpus, tmp_path, **change)
    rewrite_made_from(tmp_path, smooth=3)
    refused("units.smooth", train_reader, corpus, tmp_path)


def rewrite_made_from(tmp_path, codebooks=("b",), split="train", **changes):
    """Change the card of the units: `codebooks`, and fields of `made_from`."""
    path = tmp_path / f"units/{split}/_card.json"
    change_json(path, made_from=read_json(path)["made_from"] | changes, codebooks=codebooks)


@pytest.mark.slow
def test_training_goes_on_with_units_of_a_codebook_transferred_from_the_readers_and_of_no_others(
    corpus, tmp_path
):
    start = train_reader(corpus, tmp_path, "start")
    # units of a codebook that was transferred from b to another encoder
    rewrite_made_from(tmp_path, ("transferred", "b"), codebook="transferred", encoder="another")
    second = train_reader(corpus, tmp_path, "second", start=start)
    assert read_json(second / "card.json")["codebooks"] == ["transferred", "b"]
    # units of another codebook that was transferred from b
    rewrite_made_from(tmp_path, ("sibling", "b"), codebook="sibling")
    train_reader(corpus, tmp_path, "third", start=second)
    rewrite_made_from(tmp_path, ("transferred", "c"))
    refused("start was trained on", train_reader, corpus, tmp_path, "other", start=start)


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
    assert locate_answer_words(passage, question) == (words.split(), span)


def test_text_qa_on_characters_of_another_split(corpus, tmp_path):
    shutil.copytree(corpus / "train", corpus / "other")
    (corpus / "train/questions.jsonl").write_text("")
    train_text_reader(corpus, tmp_path / "text", characters=True, split="other")
    model, layout, card = load_reader(tmp_path / "text")
    assert model.embedding.num_embeddings == 3 + 2 + len({*"ab"})
    assert card["characters"]
    assert card["options"]["split"] == "other"
    assert layout.cls == model.embedding.num_embeddings - 3
    with pytest.raises(InputError, match=r"made from other inputs \(.*characters"):
        train_text_reader(corpus, tmp_path / "text", split="other")


def test_questions_without_units_or_times_are_left_out(corpus, tmp_path):
    runs = RunLength.of_frames(np.arange(GRID.count_frames(16_000)) // 3)
    units = dict.fromkeys(("p0", "q0", "p1"), runs)
    examples, left_out = make_unit_examples(load_corpus(corpus, "train"), units, GRID)
    assert len(examples) == 1
    assert left_out == {"q1": "no units of q1", "q2": "no units of q2"}


# ---- evaluation while training, more steps, sweeps

SIX_STEPS = TrainingOptions(
    steps=6, learning_rate=1e-2, warmup_steps=1, save_every=4, log_every=1, bf16=False
)


@pytest.fixture
def dev(corpus, tmp_path):
    """The corpus with a copy of train, and of its units, as the split dev."""
    shutil.copytree(corpus / "train", corpus / "dev")
    shutil.copytree(tmp_path / "units/train", tmp_path / "units/dev")
    return corpus


def evaluate_on_dev(every, items=0):
    return EvalOptions(eval_every=every, eval_split="dev", eval_items=items)


def train_with_evaluation(corpus, tmp_path, out, every=1, items=0, **changes):
    """Train DUAL for six steps, and evaluate it on dev every so many steps."""
    changes = {"training": SIX_STEPS, "evaluation": evaluate_on_dev(every, items)} | changes
    return train_reader(corpus, tmp_path, out, **changes)


def read_scores(folder, metric):
    """Read the scores of the evaluations in a run: step -> score."""
    rows = read_lines(folder / "checkpoints/log.jsonl")
    return {row["step"]: row[f"eval_{metric}"] for row in rows if f"eval_{metric}" in row}


def test_the_reader_is_the_checkpoint_with_the_best_ff1(dev, tmp_path):
    out = train_with_evaluation(dev, tmp_path, "dual", items=2)
    model, _, card = load_reader(out)
    scores = read_scores(out, "ff1")
    best = card["training"]["best"]
    assert list(scores) == [1, 2, 3, 4, 5, 6]
    assert len(set(scores.values())) > 2
    assert best["score"] == pytest.approx(max(scores.values()), abs=1e-5)
    assert best["step"] == max(scores, key=scores.get)
    assert best["items"] == 2
    weights = load_file(out / f"checkpoints/checkpoint-{best['step']}/model.safetensors")
    rounded = dequantise(quantise(weights))
    for name, value in model.state_dict().items():
        assert torch.equal(value, rounded[name]), name


def test_the_score_of_a_checkpoint_is_that_of_evaluate_qa(dev, tmp_path):
    out = train_with_evaluation(dev, tmp_path, "dual", every=6)
    model, layout, _ = load_reader(out)
    model.load_state_dict(load_file(out / "checkpoints/checkpoint-6/model.safetensors"))
    data, units = load_corpus(dev, "dev"), load_units(tmp_path / "units/dev")
    items = [(units[q.id], units[q.passage]) for q in data.questions]
    answers = {}
    for q, a in zip(data.questions, answer_units(Reader(model, layout), items, GRID), strict=True):
        answers[q.id] = {"start": a.start, "end": a.end, "text": None}
    scores = score_questions({"answers": answers, "transcripts": {}}, data)
    ff1 = np.mean([score.ff1 for score in scores])
    assert read_scores(out, "ff1") == {6: pytest.approx(ff1)}


@pytest.mark.parametrize("every", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_run_ends_with_the_same_bytes_with_evaluation_and_without(
    dev, tmp_path, dies_at, every
):
    whole = train_with_evaluation(dev, tmp_path, "whole", every)
    with dies_at(ExampleBatches, step=5):  # while step 4 is trained: the loader is a step ahead
        train_with_evaluation(dev, tmp_path, "killed", every)
    assert not (tmp_path / "killed/card.json").exists()
    killed = train_with_evaluation(dev, tmp_path, "killed", every)
    assert same_files(whole, killed, "model.safetensors", "config.json", "made_from.json")


def test_a_question_without_units_counts_as_wrong(dev, tmp_path):
    units = {"q0": RunLength.of_frames(np.zeros(9, int)), "p0": RunLength.of_frames(np.arange(40))}
    answered = []

    def answer_rightly(reader, items):
        answered.extend(items)
        return [TimedAnswer(0.3, 0.6, 1.0)] * len(items)

    model, layout, _ = load_reader(train_reader(dev, tmp_path))
    options = evaluate_on_dev(6)
    data = fitting.load_timed_questions(dev, options)
    evaluation = fitting.make_timed_evaluation(data, options, units, model, layout, answer_rightly)
    assert evaluation.score() == pytest.approx(1 / 3)
    assert answered == [(units["q0"], units["p0"])]


def test_a_finished_reader_is_trained_further_where_nothing_else_changes(dev, tmp_path):
    six = replace(SIX_STEPS, horizon=6)
    three = replace(six, steps=3)
    whole = train_reader(dev, tmp_path, "whole", training=six)
    out = train_reader(dev, tmp_path, "out", training=three)
    other_seed = replace(six, seed=1)
    refused("options.training.seed", train_reader, dev, tmp_path, "out", training=other_seed)
    fewer_steps = replace(six, steps=2)
    refused("training.steps", train_reader, dev, tmp_path, "out", training=fewer_steps)
    assert read_json(out / "card.json")["training"]["steps"] == 3
    train_reader(dev, tmp_path, "out", training=six)
    assert same_files(whole, out, "model.safetensors", "made_from.json")
    assert read_json(out / "card.json")["training"]["steps"] == 6


LEARNING_RATES = [1e-6, 1e-2]


def sweep(corpus, tmp_path, out):
    """Train DUAL with each of LEARNING_RATES."""
    run = {"training": SIX_STEPS, "evaluation": evaluate_on_dev(every=0)}
    return train_reader(corpus, tmp_path, out, learning_rates=LEARNING_RATES, **run)


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_best_of_its_runs_which_can_be_trained_further(
    dev, tmp_path, dies_at
):
    with dies_at(ExampleBatches, step=3):
        sweep(dev, tmp_path, "sweep")
    out = sweep(dev, tmp_path, "sweep")
    with untouched(out):
        sweep(dev, tmp_path, "sweep")
    rows = read_json(out / "card.json")["sweep"]
    scores = {row["learning_rate"]: row["score"] for row in rows}
    assert list(scores) == LEARNING_RATES
    assert len(set(scores.values())) == 2
    best = max(scores, key=scores.get)
    training = replace(SIX_STEPS, learning_rate=best)
    single = train_with_evaluation(dev, tmp_path, "single", every=6, training=training)
    assert same_files(out, single, "model.safetensors", "made_from.json")
    longer = replace(training, steps=8)
    train_with_evaluation(dev, tmp_path, "sweep", every=6, training=longer)
    assert read_json(out / "card.json")["training"]["steps"] == 8


def drop_times(questions):
    """Leave answers without times in a manifest of questions."""
    change_lines(questions, {"answers": [{"text": "silver"}]})


@pytest.mark.parametrize(
    ("spoil", "changes", "named"),
    [
        (lambda root, tmp: rewrite_made_from(tmp, corpus="other"), {}, "units/train"),
        (lambda root, tmp: shutil.rmtree(tmp / "units/train"), {}, "units/train"),
        (lambda root, tmp: shutil.rmtree(root / "dev"), {}, "corpus/dev"),
        (lambda root, tmp: shutil.rmtree(tmp / "units/dev"), {}, "units/dev"),
        (lambda root, tmp: drop_times(root / "dev/questions.jsonl"), {}, "corpus/dev"),
        (
            lambda root, tmp: rewrite_made_from(tmp, codebook="c", codebooks=("c",), split="dev"),
            {},
            "dev in .*units",
        ),
        (lambda root, tmp: None, {"start": Path("nowhere")}, "nowhere/card.json"),
        (lambda root, tmp: None, {"window": 134}, "--window"),
        (lambda root, tmp: None, {"stride": 17}, "--stride"),
        (
            lambda root, tmp: train_reader(root, tmp, "out"),
            {"learning_rates": [1e-3]},
            "out holds a run",
        ),
    ],
)
def test_bad_input_names_the_file_or_the_option(dev, tmp_path, spoil, changes, named):
    spoil(dev, tmp_path)
    refused(named, train_with_evaluation, dev, tmp_path, "out", **changes)


def test_text_qa_is_evaluated_by_f1(corpus, tmp_path):
    shutil.copytree(corpus / "train", corpus / "dev")
    out = tmp_path / "text"
    train_text_reader(corpus, out, training=SIX_STEPS, evaluation=evaluate_on_dev(every=2))
    best = read_json(out / "card.json")["training"]["best"]
    scores = read_scores(out, "f1")
    assert list(scores) == [2, 4, 6]
    assert best["score"] == pytest.approx(max(scores.values()), abs=1e-5)
    assert best["metric"] == "f1"


# ---- families of text encoders, from checkpoints with their own tokenizers


@pytest.fixture
def load_by_name(corpus, monkeypatch):
    """This undoes the tiny text encoder of `corpus`: --text-encoder is loaded by its name."""
    monkeypatch.setattr(train, "load_text_encoder", load_text_encoder)


FAMILIES = ["BigBird", "Longformer", "ModernBERT", "T5", "XLM-RoBERTa"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_loaded_reader_of_any_family_answers_as_before_it_was_saved(
    load_by_name, dev, checkpoint, tmp_path, monkeypatch, family
):
    saved = []

    def save_and_keep(out, model, *more):
        saved.append(model.eval())
        save_reader(out, model, *more)

    monkeypatch.setattr(fitting, "save_reader", save_and_keep)
    out = train_reader(dev, tmp_path, text_encoder=str(checkpoint(family)), max_question=20)
    loaded, layout, _ = load_reader(out)
    # BigBird's sparse attention depends on the batch
    assert loaded.encoder.config.to_dict().get("attention_type") != "block_sparse"
    (before,) = saved
    before.load_state_dict(dequantise(quantise(before.state_dict())))
    rng = np.random.default_rng(0)
    items = [(rng.integers(0, K, 5), rng.integers(0, K, size)) for size in (7, 16, 60)]
    expected = Reader(before, layout).read(items)
    for answer, wanted in zip(Reader(loaded, layout).read(items), expected, strict=True):
        assert (answer.first, answer.last) == (wanted.first, wanted.last)
        assert answer.score == pytest.approx(wanted.score, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_evaluation_does_not_change_the_training_of_any_family(
    load_by_name, dev, checkpoint, tmp_path, family
):
    """Some families keep state from one call to the next, such as tables of positions."""
    weights = []
    for name, every in (("evaluated", 1), ("plain", 0)):
        encoder = {"text_encoder": str(checkpoint(family)), "max_question": 20}
        out = train_reader(dev, tmp_path, name, evaluation=evaluate_on_dev(every), **encoder)
        weights.append(load_file(out / "checkpoints/checkpoint-2/model.safetensors"))
    evaluated, plain = weights
    for name, weight in evaluated.items():
        assert torch.equal(weight, plain[name]), name


@pytest.mark.parametrize("kind", ["adapters", "lora", "weighted-sum"])
def test_a_reader_of_few_trained_weights_is_loaded_whole_and_leaves_the_others(
    corpus, tmp_path, kind, text_encoder
):
    if kind == "lora":
        pytest.importorskip("peft")
    loaded, _, card = load_reader(train_reader(corpus, tmp_path, trained=kind))
    assert 0 < card["trained_parameters"] < sum(w.numel() for w in loaded.parameters())
    matrix = "encoder.layer.0.intermediate.dense.weight"
    original = text_encoder(max_position_embeddings=256).state_dict()[matrix]
    rounded = dequantise(quantise({matrix: original}))[matrix]
    assert torch.equal(loaded.encoder.state_dict()[matrix], rounded)


def test_text_qa_with_adapters_trains_no_embeddings_and_goes_on_with_those_of_its_start(
    corpus, tmp_path, text_encoder
):
    train_text_reader(corpus, tmp_path / "first", trained="adapters")
    train_text_reader(corpus, tmp_path / "second", tmp_path / "first", trained="adapters")
    first, _, first_card = load_reader(tmp_path / "first")
    second, _, second_card = load_reader(tmp_path / "second")
    words = text_encoder(max_position_embeddings=256).get_input_embeddings().weight.detach()
    assert torch.equal(first.embedding.weight, dequantise(quantise({"words": words}))["words"])
    assert second.state_dict().keys() == first.state_dict().keys()
    assert second_card["trained_parameters"] == first_card["trained_parameters"]
    assert torch.equal(second.embedding.weight, first.embedding.weight)


def test_training_on_the_words_that_occur_is_that_of_the_whole_table(corpus, tmp_path, monkeypatch):
    train_text_reader(corpus, tmp_path / "seen")
    weights = load_file(tmp_path / "seen/checkpoints/checkpoint-2/model.safetensors")
    monkeypatch.setattr(cascade_train, "train_seen_tokens", lambda *_: nullcontext())
    train_text_reader(corpus, tmp_path / "whole")
    seen, whole = (load_reader(tmp_path / name)[0].state_dict() for name in ("seen", "whole"))
    assert 3 < len(weights["embedding.seen.weight"]) < len(whole["embedding.weight"])
    assert seen.keys() == whole.keys()
    for name, weight in whole.items():
        assert torch.allclose(seen[name], weight, atol=1e-6), name
    rows, table = weights["embedding.seen.weight"], weights["embedding.table.weight"]
    moved = torch.stack([(table - row).abs().amax(1).min() for row in rows])
    assert moved.max() > 1e-4  # rows of the table before training would be 0 away from it


# ---- pieces, which are frequent n-grams of units


@pytest.fixture
def pieces(corpus, tmp_path):
    """The file of ten pieces of the units of `corpus`."""
    out = tmp_path / "pieces.json"
    fit_pieces(FitPieces(units=tmp_path / "units/train", out=out, size=10, least=2))
    return out


def test_a_reader_of_pieces_keeps_them_and_hands_them_on(corpus, tmp_path, pieces):
    out = train_reader(corpus, tmp_path, pieces=pieces)
    model, layout, card = load_reader(out)
    assert layout.cls == 10
    assert model.embedding.num_embeddings == 10 + 3
    assert card["units"]["pieces"] == load_pieces(pieces).hash
    assert load_pieces(out).hash == load_pieces(pieces).hash
    again = train_reader(corpus, tmp_path, "again", start=out)
    assert load_pieces(again).hash == load_pieces(pieces).hash
    of_units = train_reader(corpus, tmp_path, "units-reader")
    changes = {"start": of_units, "pieces": pieces}
    refused("does not read the pieces", train_reader, corpus, tmp_path, "refused", **changes)


def test_a_system_joins_units_to_the_pieces_of_its_reader(corpus, tmp_path, pieces):
    out = train_reader(corpus, tmp_path, pieces=pieces)
    card = read_json(out / "card.json")
    extractor = UnitExtractor(None, SimpleNamespace(equivalents=("b",), name="b"))
    assert adapt_extractor(out, card, extractor).pieces.hash == load_pieces(pieces).hash
    other = replace(extractor, codebook=SimpleNamespace(equivalents=("c",), name="c"))
    refused("no reader of the units of c", adapt_extractor, out, card, other)
