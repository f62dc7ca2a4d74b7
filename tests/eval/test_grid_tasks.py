"""The tasks of the grid: heads, units and spoken QA; and encoders under test, alone or with what was trained on them."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.augment import parse_condition
from speechssl.cascade.config import ReaderOptions
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.cascade.train import CtcOptions, train_ctc
from speechssl.config import TrainingOptions
from speechssl.data.records import load_corpus
from speechssl.data.superb import load_labelled
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval import grid_tasks
from speechssl.eval.config import Robustness
from speechssl.eval.grid import GridTask, Setting
from speechssl.eval.grid_tasks import MAKERS, load_classification, load_recognition, load_tested, qa_tasks, units_task
from speechssl.superb.tasks.classification import ClassifierOptions, train_classifier
from speechssl.units.features import extractor_of
from speechssl.units.kmeans import Codebook

from .listeners import Roughness, recordings
from .superb_sets import labelled
from .test_spoken_qa import Oracle
from .test_spoken_qa import corpus as questions  # noqa: F401  a fixture

TINY = CtcOptions(TrainingOptions(1, 1e-3, save_every=1, bf16=False), layer=1, batch=2, lstm_width=8, projection=8)
SETUP = Robustness(out=Path(), encoders=(), tasks=(), split="train", asr_passages=2, asr_steps=1)


@pytest.fixture
def corpus(mini_corpus):
    """With words that a head can learn."""
    root = mini_corpus((16_000, 20_000))
    for name in ("passages", "questions"):
        path = root / f"train/{name}.jsonl"
        rows = [json.loads(line) | {"words": [["lost", 0.0, 0.2], ["silver", 0.2, 0.45]]} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture
def models(tmp_path, hubert_folder):
    """A folder of models with nothing but an encoder in it."""
    shutil.copytree(hubert_folder("layer"), tmp_path / "models/encoder")
    return tmp_path / "models"


def test_a_folder_of_models_is_known_from_an_encoder_alone(models):
    whole, alone = load_tested("a", str(models)), load_tested("b", str(models / "encoder"))
    assert (whole.name, whole.models, alone.models) == ("a", models, None)
    assert whole.encoder.hash == alone.encoder.hash == load_encoder(models / "encoder").hash
    whole.check(MAKERS)
    alone.check(["ks", "asr"])
    for task, needs in (("units", "units.safetensors"), ("dual", "dual/"), ("cascade-ctc", "text-qa/"), ("speechbert", "ctc/")):
        with pytest.raises(InputError, match=f"the encoder b is not enough for the task {task}; give .*{needs}.* in it"):
            alone.check(["ks", task])


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["gaussian@5", "m@5", "m+g+r@5", "reverb@0.5+fsd50k=recordings@5"])
def test_what_an_encoder_was_trained_on_is_not_unseen(models, condition):
    kinds = [{"name": "m", "set": "stand-in"}, {"name": "g", "set": "gaussian"}, {"name": "fsd50k", "set": "fsd50k"}]
    (models / "encoder/card.json").write_text(json.dumps({"options": {"distort": {"kinds": kinds}}}))
    for where in (models, models / "encoder"):
        subject = load_tested("after", str(where))
        subject.check(["ks"], [Setting("seen", parse_condition(condition)), Setting("unseen", parse_condition("pink@5"))])
        with pytest.raises(InputError, match="after was trained on the noise .*, according to its card; give it with --seen"):
            subject.check(["ks"], [Setting("unseen", parse_condition(condition))])
    (models / "encoder/card.json").write_text(json.dumps({"options": {"distort": None}}))
    load_tested("before", str(models)).check(["ks"], [Setting("unseen", parse_condition(condition))])


def test_a_recogniser_among_the_models_is_evaluated_and_none_is_trained(models, corpus, tmp_path, monkeypatch):
    subject = load_tested("a", str(models))
    train_ctc(corpus, subject.encoder, models / "ctc", replace(TINY, lstm_width=4))
    monkeypatch.setattr(grid_tasks, "train_ctc", None)
    (task,) = MAKERS["asr"](subject, corpus, tmp_path / "own", SETUP)
    card = json.loads((models / "ctc/card.json").read_text())
    assert task.card["weights"] == card["weights"] and [i.id for i in task.items] == ["q0", "q1"]
    assert not (tmp_path / "own").exists()
    assert len(MAKERS["asr"](subject, corpus, tmp_path / "own", replace(SETUP, recordings=1))[0].items) == 1


def test_a_split_that_a_set_does_not_have_is_refused_before_a_head_is_trained(models, tmp_path):
    with pytest.raises(InputError, match="no split 'sqa5'; choose from train, dev, test"):
        MAKERS["ks"](load_tested("a", str(models)), labelled(tmp_path / "set"), tmp_path / "ks", replace(SETUP, split="sqa5"))
    assert not (tmp_path / "ks").exists()


@pytest.mark.slow
def test_an_encoder_without_a_recogniser_gets_one_of_the_seed(models, corpus, tmp_path):
    for name, seed in (("alone", 0), ("models", 3)):
        subject = load_tested(name, str(models if name == "models" else models / "encoder"))
        (task,) = MAKERS["asr"](subject, corpus, tmp_path / f"asr-{name}", replace(SETUP, seed=seed))
        assert json.loads((tmp_path / f"asr-{name}/made_from.json").read_text())["options"]["training"]["seed"] == seed
        assert task.card["encoder"] == subject.encoder.hash and not (models / "ctc").exists()


def test_a_recogniser_of_another_encoder_is_refused(models, corpus, tmp_path, hubert_folder):
    other = load_tested("b", str(hubert_folder("layer", initializer_range=0.3)))
    train_ctc(corpus, other.encoder, models / "ctc", TINY)
    with pytest.raises(InputError, match="ctc.* encoder"):
        MAKERS["asr"](load_tested("a", str(models)), corpus, tmp_path / "own", SETUP)


# ---- heads

QUICK = ClassifierOptions(learning_rates=(1e-2,), steps=60, every=20)


@pytest.mark.parametrize("slots", [("keyword",), ("action", "object", "location")])
def test_a_classification_task_is_evaluated(labelled, encoder, tmp_path, slots):
    root = labelled("ks", slots)
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    task = load_classification(tmp_path / "head", root, encoder)
    items = task.items
    assert (task.name, task.metric, len(items)) == ("ks", "acc", 4)
    features = {item.id: task.encode(read_audio(item.path)) for item in items}
    json.dumps([features, dict(task.card)])  # whoever keeps them may write them down
    assert [s.numerator for s in task.score(features)] == [1.0] * 4
    features[items[0].id][slots[-1]] = "wrong"
    del features[items[1].id]
    assert [(s.id, s.numerator, s.denominator) for s in task.score(features)][:3] == [
        ("test-0", 0.0, 1.0), ("test-1", 0.0, 1.0), ("test-2", 1.0, 1.0)
    ]  # fmt: skip


@pytest.mark.parametrize(("speakers", "voices"), [("abc", {"c0", "c1"}), ("aaa", {""})])
def test_scores_name_the_voices_that_training_did_not_know(labelled, encoder, tmp_path, speakers, voices):
    root = labelled(speakers=tuple(speakers))
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    task = load_classification(tmp_path / "head", root, encoder)
    assert {s.voice for s in task.score({})} == voices and task.unit == "recording"
    assert [s.group for s in task.score({})] == [item.id for item in task.items]


def test_a_head_is_evaluated_on_the_split_that_is_asked_for(labelled, encoder, tmp_path):
    root = labelled()
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    dev, test = (load_classification(tmp_path / "head", root, encoder, split) for split in ("dev", "test"))
    assert {i.id for i in dev.items} == {f"dev-{n}" for n in range(4)} and {i.id for i in test.items} == {
        f"test-{n}" for n in range(4)
    }
    assert {s.id for s in dev.score({})} == {i.id for i in dev.items} and dev.card != test.card
    with pytest.raises(InputError, match="no split 'other'; choose from train, dev, test"):
        load_classification(tmp_path / "head", root, encoder, "other")


def test_a_head_of_another_set_is_refused(labelled, encoder, tmp_path):
    root = labelled()
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    with pytest.raises(InputError, match="trained for another set"):
        load_classification(tmp_path / "head", labelled("other", counts=(12, 4, 3)), encoder)


def test_too_little_audio_is_an_error_and_a_frame_is_enough(labelled, encoder, tmp_path):
    root = labelled()
    train_classifier(load_labelled(root), encoder, tmp_path / "head", QUICK)
    task = load_classification(tmp_path / "head", root, encoder)
    with pytest.raises(ValueError, match="399 samples"):
        task.encode(np.zeros(399, np.float32))
    assert set(task.encode(np.zeros(400, np.float32))) == {"keyword"}


@pytest.mark.parametrize("layer", [1, None])
def test_a_recognition_task_is_evaluated(mini_corpus, encoder, tmp_path, layer):
    shape = HeadShape(32, 29, 1 if layer else encoder.layers + 1, 8, 8)
    CtcRecogniser(encoder, CtcHead(shape), CtcVocabulary.english(), "ctc", layer).save(tmp_path / "asr")
    task = load_recognition(tmp_path / "asr", mini_corpus(), encoder, "train", limit=2)
    items = task.items
    assert (task.name, task.metric, [i.id for i in items]) == ("asr", "wer", ["q0", "q1"])
    assert isinstance(task.encode(read_audio(items[0].path)), str)
    scored = task.score({"q0": "a"})
    assert [(s.id, s.numerator, s.denominator) for s in scored] == [("q0", 0.0, 1.0), ("q1", 1.0, 1.0)]
    assert sum(s.numerator for s in task.score({"q0": "a b c", "q1": "a"})) == 2
    assert dict(task.card) != dict(load_recognition(tmp_path / "asr", tmp_path / "corpus", encoder, "train").card)


def test_a_split_without_questions_is_refused(mini_corpus, encoder, tmp_path):
    root = mini_corpus()
    (root / "train/questions.jsonl").write_text("")
    with pytest.raises(InputError, match="no questions to recognise"):
        load_recognition(tmp_path / "asr", root, encoder, "train")


@pytest.fixture(scope="module")
def extractor(encoder):
    """Eight frames of noise are the centroids."""
    features = encoder.features(np.random.default_rng(9).uniform(-0.5, 0.5, 8_000).astype(np.float32), 1).numpy()
    card = {"encoder": encoder.hash, "layer": 1, "frame_rate": 50.0, "smooth": 1}
    return extractor_of(encoder, Codebook(features[::3][:8], card))


# ---- tasks over what exists


def test_units_of_clean_speech_have_no_error_and_others_have_the_edits(tmp_path, extractor):
    recordings(tmp_path / "a", 4)
    task = units_task(extractor, tmp_path / "a", tmp_path / "units", None)
    clean = {i.id: task.encode(read_audio(i.path)) for i in task.items}
    assert [s.numerator for s in task.score(clean)] == [0] * 4
    assert [s.denominator for s in task.score(clean)] == [len(clean[i.id]) for i in task.items]
    noise = np.random.default_rng(0).normal(0, 0.3, 8_000).astype(np.float32)
    noisy = task.score({"u0": task.encode(noise)})
    assert noisy[0].numerator > 0 and [s.numerator for s in noisy[1:]] == [
        s.denominator for s in noisy[1:]
    ]  # not encoded: all missing


def test_units_of_clean_speech_are_kept_and_some_recordings_are_drawn(tmp_path, extractor):
    recordings(tmp_path / "a", 6)
    make = partial(units_task, extractor, tmp_path / "a", tmp_path / "units", None, 3, 5)
    first, part = make(), tmp_path / "units/part-00000.parquet"
    before = part.stat().st_mtime_ns
    assert make().card == first.card and part.stat().st_mtime_ns == before and len(first.items) == 3


def test_unreadable_recordings_give_no_reference_and_are_reported(tmp_path, extractor, capsys):
    recordings(tmp_path / "a", 3)[1].write_bytes(b"no audio")
    task = units_task(extractor, tmp_path / "a", tmp_path / "units", None)
    assert [i.id for i in task.items] == ["u0", "u2"] and "set aside u1" in capsys.readouterr().err


def test_questions_are_scored_by_passage_as_evaluate_does(questions):  # noqa: F811
    (task,) = qa_tasks(Oracle(), load_corpus(questions, "test"))
    encoded = {i.id: 0 for i in task.items}
    assert [(s.id, s.group, s.numerator) for s in task.score(encoded)] == [("q0", "p0", 1.0), ("q1", "p1", 1.0)]
    assert task.unit == "passage" and len(task.items) == 6
    del encoded["p1"]
    assert [s.numerator for s in task.score(encoded)] == [1.0, 0.0]


def test_a_cascade_is_encoded_once_and_scored_on_words_too(questions):  # noqa: F811
    system = Oracle(text=True, name="cascade-x")
    answers, words = qa_tasks(system, load_corpus(questions, "test"))
    samples = np.zeros(10, np.float32)
    encoded = answers.encode(samples)
    assert words.encode(samples) is encoded and len(system.encoded) == 1
    words.encode(samples.copy())
    assert len(system.encoded) == 2
    found = words.score({"p0": encoded})
    assert [(s.numerator, s.denominator) for s in found] == [(1, 3), (3, 3), (3, 3)]  # "a red boat"; two passages were not encoded


def test_a_reader_by_name_reads_in_the_cascade_alone(models, questions, tmp_path, monkeypatch):  # noqa: F811
    seen = {}
    monkeypatch.setattr(
        grid_tasks, "load_systems", lambda *given, reading, **_: seen.update({given[1][0]: reading.reader}) or [None]
    )
    monkeypatch.setattr(grid_tasks, "qa_tasks", lambda *_: [])
    o = Robustness(out=tmp_path, encoders=(), tasks=(), reading=ReaderOptions("someone/reader"))
    for task in ("cascade-ctc", "dual"):
        MAKERS[task](load_tested("a", str(models)), questions, tmp_path, o)
    assert seen == {"cascade-ctc": "someone/reader", "dual": None}


def test_a_corpus_without_times_is_no_task(questions):  # noqa: F811
    data = load_corpus(questions, "test")
    with pytest.raises(InputError, match="no question whose answer has times"):
        qa_tasks(Oracle(), replace(data, questions=data.questions[2:]))


def test_a_limited_task_is_scored_on_its_items(tmp_path):
    one = Roughness(recordings(tmp_path, 6))
    task = GridTask(one.name, one.metric, one.unit, one.card, one.items, one.encode, one.score).limited(2, 0)
    assert len(task.items) == 2 and [s.id for s in task.score({})] == [i.id for i in task.items]
