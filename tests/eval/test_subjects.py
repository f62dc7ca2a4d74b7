"""Encoders that are put to the test: alone or with what was trained on them, which is judged as it is."""

import json
import shutil
from dataclasses import replace

import pytest

from speechssl.augment import parse_condition
from speechssl.cascade.train import CtcOptions, train_ctc
from speechssl.config import TrainingOptions
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval import grid_tasks as subjects
from speechssl.eval.grid import Setting
from speechssl.eval.grid_tasks import MAKERS, Setup, load_tested

from .superb_sets import labelled

TINY = CtcOptions(TrainingOptions(1, 1e-3, save_every=1, bf16=False), layer=1, batch=2, lstm_width=8, projection=8)
SETUP = Setup(split="train", asr=TINY)


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
        with pytest.raises(InputError, match=f"the encoder b is not enough for the task {task}; give .*{needs} in it"):
            alone.check(["ks", task])


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


def test_a_recogniser_among_the_models_is_judged_and_none_is_trained(models, corpus, tmp_path, monkeypatch):
    subject = load_tested("a", str(models))
    train_ctc(corpus, subject.encoder, models / "ctc", replace(TINY, lstm_width=4))
    monkeypatch.setattr(subjects, "train_ctc", None)
    (task,) = MAKERS["asr"](subject, corpus, tmp_path / "own", SETUP)
    card = json.loads((models / "ctc/card.json").read_text())
    assert task.card["weights"] == card["weights"] and [i.id for i in task.items] == ["q0", "q1"]
    assert not (tmp_path / "own").exists()
    assert len(MAKERS["asr"](subject, corpus, tmp_path / "own", replace(SETUP, recordings=1))[0].items) == 1


def test_a_split_that_a_set_does_not_have_is_refused_before_a_head_is_trained(models, tmp_path):
    with pytest.raises(InputError, match="no split 'sqa5'; choose from train, dev, test"):
        MAKERS["ks"](load_tested("a", str(models)), labelled(tmp_path / "set"), tmp_path / "ks", replace(SETUP, split="sqa5"))
    assert not (tmp_path / "ks").exists()


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
