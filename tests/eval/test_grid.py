"""The grid: every cell a file, every recording encoded once, a killed run, recordings that cannot be
read; and its tasks."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import read_audio, write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.model import CtcHead, CtcRecogniser, CtcVocabulary, HeadShape
from speechssl.data.records import load_corpus
from speechssl.data.superb import load_labelled
from speechssl.eval import grid_tasks
from speechssl.eval.conditions import Item, Setting, name_utterances
from speechssl.eval.grid_tasks import (
    HeadTask,
    RecognitionTask,
    UnitsTask,
    load_tested,
    make_qa_tasks,
    train_classifier,
)
from speechssl.eval.options import Robustness
from speechssl.eval.robustness import read_grid, score_missing
from speechssl.stats import ItemScore
from speechssl.units.codebook import Codebook
from speechssl.units.features import make_extractor

from ..files import refused
from .test_spoken_qa import Oracle
from .test_spoken_qa import corpus as questions  # noqa: F401  a fixture


def recordings(folder, count=6, seed=0):
    """Half a second of tone at different levels each."""
    rng = np.random.default_rng(seed)
    paths = [folder / f"u{i}.flac" for i in range(count)]
    for i, path in enumerate(paths):
        tone = 0.3 * np.sin(np.arange(8_000) * (0.05 + 0.01 * i)) + rng.normal(0, 0.01, 8_000)
        write_flac(path, tone)
    return paths


class LiveMixtures(Distorter):
    """Made when they are needed, not frozen."""

    def made_from(self, condition, utterances):
        return [list(source) for source in self.sources(condition)]


@dataclass
class Roughness:
    """Right where the samples are smooth; `tolerance` > 0 makes it right in noise. Keeps what it
    encodes."""

    paths: list[Path]
    tolerance: float = 0.0
    name: str = "ks"
    metric: str = "acc"
    unit: str = "session"
    encoded: list = field(default_factory=list)

    @property
    def card(self):
        return {"task": self.name, "tolerance": self.tolerance}

    @property
    def items(self):
        return [Item(p.stem, p) for p in self.paths]

    @property
    def label(self):
        return f"{self.name}-{self.metric}"

    def encode(self, record, samples):
        self.encoded.append(samples)
        return float(np.abs(np.diff(samples)).mean())

    def score(self, encoded):
        found = []
        for i, item in enumerate(self.items):
            right = encoded.get(item.id, 9.0) < 0.03 + self.tolerance
            counted = float(right == (self.metric == "acc"))
            found.append(ItemScore(item.id, f"session {i % 3}", counted, 1.0))
        return found


CLEAN, PINK = Setting("clean", parse_condition("clean")), parse_condition("pink@5")
SETTINGS = [CLEAN, Setting("seen", PINK), Setting("unseen", parse_condition("gaussian@0"))]


def run(encoders, out, settings=SETTINGS, seed=0, workers=2):
    """Scores of all cells."""
    mixtures = LiveMixtures(seed)
    utterances = name_utterances((t.name, t.items) for tasks in encoders.values() for t in tasks)
    for encoder, tasks in encoders.items():
        for setting in settings:
            folder = out / "scores" / encoder
            score_missing(tasks, setting, folder, mixtures, utterances, workers, encoder)
    return read_grid(encoders, settings, out, seed).items


def files(out):
    return {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*.parquet"))}


def test_tasks_share_what_they_encode_and_every_recording_is_encoded_once_a_condition(tmp_path):
    paths = recordings(tmp_path / "a")
    first = Roughness(paths)
    second = Roughness([tmp_path / "b/../a" / p.name for p in paths[:3]], name="sid")
    run({"e": [first, second]}, tmp_path / "out", workers=1)
    assert len(first.encoded) == 3 * 6
    assert len(second.encoded) == 3 * 3
    assert all(a is b for a, b in zip(first.encoded[:3], second.encoded[:3], strict=True))


def test_a_killed_grid_goes_on_and_ends_in_the_same_bytes(tmp_path, dies_in):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    whole = run({"a": [Roughness(paths)], "b": [Roughness(paths, 0.1)]}, tmp_path / "whole")
    with dies_in(Roughness, "encode", 9):
        run({"a": [Roughness(paths)], "b": [Roughness(paths, 0.1)]}, out, workers=1)
    assert len(files(out)) == 1
    task = Roughness(paths)
    assert run({"a": [task], "b": [Roughness(paths, 0.1)]}, out) == whole
    assert len(task.encoded) == 10
    assert files(out) == files(tmp_path / "whole")


def test_what_cannot_be_read_or_is_silent_counts_as_wrong_is_reported_and_tried_again(
    tmp_path, capsys
):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    content = paths[0].read_bytes()
    paths[0].write_bytes(b"no audio")
    write_flac(paths[2], np.zeros(8_000))
    for scored in run({"e": [Roughness(paths)]}, out).values():
        assert len(scored) == 6
        assert scored[0].numerator == scored[2].numerator == 0
    assert "set aside u0" in capsys.readouterr().err
    paths[0].write_bytes(content)
    scored = run({"e": [Roughness(paths)]}, out)[("ks", "acc"), "e", CLEAN]
    assert scored[0].numerator == 1


# ---- the tasks: encoders under test, alone or with what was trained on them


SETUP = Robustness(out=Path(), encoders=(), tasks=(), split="train")
TEST = replace(SETUP, split="test", head_steps=60)


@pytest.fixture
def models(tmp_path, hubert_folder):
    """A folder of models with nothing but an encoder in it."""
    shutil.copytree(hubert_folder("layer"), tmp_path / "models/encoder")
    return tmp_path / "models"


def test_a_folder_of_models_is_known_from_an_encoder_alone(models):
    whole = load_tested("a", str(models), grid_tasks.TASKS, [])
    alone = load_tested("b", str(models / "encoder"), ["ks", "asr"], [])
    assert (whole.models, alone.models) == (models, None)
    assert whole.encoder.hash == alone.encoder.hash
    for task in ("units", "dual", "cascade-ctc", "speechbert"):
        refused(f"b .*{task}", load_tested, "b", str(models / "encoder"), ["ks", task], [])


@pytest.mark.parametrize("condition", ["gaussian@5", "m+g+r@5", "reverb@0.5+fsd50k=recordings@5"])
def test_what_an_encoder_was_trained_on_is_not_unseen(models, condition):
    kinds = [{"name": "m", "set": "stand-in"}, {"name": "g", "set": "gaussian"}]
    kinds.append({"name": "fsd50k", "set": "fsd50k"})
    card = {"options": {"distort": {"kinds": kinds}}}
    (models / "encoder/card.json").write_text(json.dumps(card))
    seen = [Setting("seen", parse_condition(condition)), Setting("unseen", PINK)]
    for where in (models, models / "encoder"):
        load_tested("after", str(where), ["ks"], seen)
        unseen = [Setting("unseen", parse_condition(condition))]
        refused("after was trained on the noise", load_tested, "after", str(where), ["ks"], unseen)


# ---- heads


def test_a_classification_task_is_evaluated(labelled, encoder, tmp_path):
    slots = ("action", "object", "location")
    data = load_labelled(labelled("ks", slots))
    head = train_classifier(data, encoder, tmp_path / "head", TEST)
    task = HeadTask(data, encoder, head, TEST)
    assert (task.name, task.metric, len(task.items)) == ("ks", "acc", 4)
    features = {item.id: task.encode(None, read_audio(item.path)) for item in task.items}
    json.dumps([features, dict(task.card)])  # whoever keeps them may write them down
    assert [s.numerator for s in task.score(features)] == [1.0] * 4
    two = HeadTask(data, encoder, head, replace(TEST, recordings=2))
    (scored,) = run({"e": [two]}, tmp_path / "out", [CLEAN]).values()
    assert [s.numerator for s in scored] == [1.0] * 2
    features["test-0"][slots[-1]] = "wrong"
    del features["test-1"]
    assert [s.numerator for s in task.score(features)] == [0.0, 0.0, 1.0, 1.0]


def test_a_recognition_task_is_evaluated(mini_corpus, encoder, tmp_path):
    head = CtcHead(HeadShape(32, 29, encoder.layers + 1, 8, 8))
    CtcRecogniser(encoder, head, CtcVocabulary.english(), "ctc", None).save(tmp_path / "asr")
    task = RecognitionTask(tmp_path / "asr", mini_corpus((16_000, 20_000)), encoder, SETUP)
    assert [i.id for i in task.items] == ["q0", "q1"]
    assert isinstance(task.encode(None, read_audio(task.items[0].path)), str)
    scored = task.score({"q0": "a"})
    assert [(s.id, s.numerator, s.denominator) for s in scored] == [("q0", 0, 1), ("q1", 1, 1)]
    assert sum(s.numerator for s in task.score({"q0": "a b c", "q1": "a"})) == 2


@pytest.fixture(scope="module")
def extractor(encoder):
    """Eight frames of noise are the centroids."""
    noise = np.random.default_rng(9).uniform(-0.5, 0.5, 8_000).astype(np.float32)
    card = {"encoder": encoder.hash, "layer": 1, "frame_rate": 50.0, "smooth": 1}
    return make_extractor(encoder, Codebook(encoder.features(noise, 1).numpy()[::3][:8], card))


# ---- tasks over what exists


def test_units_of_clean_speech_have_no_error_and_others_have_the_edits(tmp_path, extractor):
    recordings(tmp_path / "a", 4)
    task = UnitsTask(extractor, tmp_path / "a", tmp_path / "units", SETUP)
    clean = {i.id: task.encode(None, read_audio(i.path)) for i in task.items}
    assert [s.numerator for s in task.score(clean)] == [0] * 4
    assert [s.denominator for s in task.score(clean)] == [len(clean[i.id]) for i in task.items]
    noise = np.random.default_rng(0).normal(0, 0.3, 8_000).astype(np.float32)
    noisy = task.score({"u0": task.encode(None, noise)})
    assert noisy[0].numerator > 0
    # not encoded: all missing
    assert [s.numerator for s in noisy[1:]] == [s.denominator for s in noisy[1:]]
    part = tmp_path / "units/part-00000.parquet"
    before = part.stat().st_mtime_ns
    assert UnitsTask(extractor, tmp_path / "a", tmp_path / "units", SETUP).card == task.card
    assert part.stat().st_mtime_ns == before


def test_questions_are_scored_by_passage_as_evaluate_does(questions):  # noqa: F811
    data = load_corpus(questions, "test")
    untimed = replace(data, questions=data.questions[2:])
    refused("no question whose answer has times", make_qa_tasks, Oracle(), untimed)
    (task,) = make_qa_tasks(Oracle(), data)
    encoded = {i.id: 0 for i in task.items}
    scored = [(s.id, s.group, s.numerator) for s in task.score(encoded)]
    assert scored == [("q0", "p0", 1.0), ("q1", "p1", 1.0)]
    assert len(task.items) == 6
    del encoded["p1"]
    assert [s.numerator for s in task.score(encoded)] == [1.0, 0.0]


def test_a_cascade_is_scored_on_the_words_that_are_written(questions):  # noqa: F811
    def counts(scores):
        return [(s.id, s.numerator, s.denominator) for s in scores]

    system, data = Oracle(text=True, name="cascade-x"), load_corpus(questions, "test")
    answers, words = make_qa_tasks(system, data)
    encoded = answers.encode(None, np.zeros(10, np.float32))
    # "a red boat"; two passages were not encoded
    assert counts(words.score({"p0": encoded})) == [("p0", 1, 3), ("p1", 3, 3), ("p2", 3, 3)]
    # passages without a text have no word errors
    unknown = {i: replace(p, text="") for i, p in data.passages.items()}
    _, words = make_qa_tasks(system, replace(data, passages=unknown | {"p0": data.passages["p0"]}))
    assert counts(words.score(dict.fromkeys(data.passages, encoded))) == [("p0", 1, 3)]
    assert [i.id for i in words.items] == ["p0"]
    assert [t.metric for t in make_qa_tasks(system, replace(data, passages=unknown))] == ["ff1"]
