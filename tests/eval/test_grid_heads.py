"""Tasks of trained heads: items, features, scores; what could not be read counts as wrong."""

import json

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.data.utterances import load_labelled
from speechssl.errors import InputError
from speechssl.eval.grid_tasks import load_classification, load_recognition
from speechssl.superb.tasks.classification import ClassifierOptions, train_classifier

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
