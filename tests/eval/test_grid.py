"""The robustness grid: every cell is a file, a recording is read once for all tasks, a killed run
goes on, recordings that cannot be read count as wrong; and the tasks of the grid."""

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

# four questions q0 to q3 on four passages p0 to p3 of the text "a red boat"; q0 has one annotation,
# q1 two, q2 one without times, q3 no answer
from .test_spoken_qa import corpus as questions  # noqa: F401  a fixture

HALF_SECOND = 8_000  # samples


def write_recordings(folder, count):
    """Write recordings u0, u1, ... of half a second: tones of different pitch with a little noise;
    return their paths."""
    rng = np.random.default_rng(0)
    paths = [folder / f"u{i}.flac" for i in range(count)]
    for i, path in enumerate(paths):
        tone = 0.3 * np.sin(np.arange(HALF_SECOND) * (0.05 + 0.01 * i))
        write_flac(path, tone + rng.normal(0, 0.01, HALF_SECOND))
    return paths


class UnfrozenMixtures(Distorter):
    """This stand-in for `FrozenMixtures` makes the noise when a recording is encoded."""

    def hash_mixtures(self, condition, utterances):
        """Return the sources of the noise, in the place of a hash of the mixtures."""
        return [list(source) for source in self.list_sources(condition)]


@dataclass
class RoughnessTask:
    """This stand-in for a task of the grid scores an item as right if its samples are smooth: the
    mean difference of neighbours is below a threshold, which the noise of the tests exceeds.
    `tolerance` is added to the threshold. `encoded` keeps the samples of every call."""

    THRESHOLD = 0.03
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

    def score(self, roughness):
        scores = []
        for i, item in enumerate(self.items):
            is_right = False
            if item.id in roughness:
                is_right = roughness[item.id] < self.THRESHOLD + self.tolerance
            # of an error rate the numerator counts errors
            counts = is_right if self.metric == "acc" else not is_right
            scores.append(ItemScore(item.id, f"session {i % 3}", float(counts), 1.0))
        return scores


CLEAN, PINK = Setting("clean", parse_condition("clean")), parse_condition("pink@5")
SETTINGS = [CLEAN, Setting("seen", PINK), Setting("unseen", parse_condition("gaussian@0"))]


def score_grid(tasks_of_encoders, out, settings=SETTINGS, workers=2):
    """Score the cells whose files are missing; return the scores of all cells."""
    mixtures = UnfrozenMixtures(seed=0)
    all_tasks = [task for tasks in tasks_of_encoders.values() for task in tasks]
    utterances = name_utterances((task.name, task.items) for task in all_tasks)
    for encoder, tasks in tasks_of_encoders.items():
        for setting in settings:
            folder = out / "scores" / encoder
            score_missing(tasks, setting, folder, mixtures, utterances, workers, encoder)
    return read_grid(tasks_of_encoders, settings, out, seed=0).items


def score_files(out):
    return {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*.parquet"))}


def test_a_recording_is_read_and_mixed_once_in_every_condition_for_all_tasks(tmp_path):
    paths = write_recordings(tmp_path / "a", count=6)
    first = RoughnessTask(paths)
    # the first three recordings, by other paths
    second = RoughnessTask([tmp_path / "b/../a" / p.name for p in paths[:3]], name="sid")
    score_grid({"encoder": [first, second]}, tmp_path / "out", workers=1)
    assert len(first.encoded) == 6 * len(SETTINGS)
    assert len(second.encoded) == 3 * len(SETTINGS)
    # of the recordings in common both get the same arrays
    for n in range(len(SETTINGS)):
        arrays = zip(first.encoded[6 * n :][:3], second.encoded[3 * n :][:3], strict=True)
        assert all(a is b for a, b in arrays)


def test_a_killed_grid_goes_on_and_ends_in_the_same_bytes(tmp_path, dies_in):
    paths, out = write_recordings(tmp_path / "audio", count=6), tmp_path / "out"

    def make_tasks():
        return {"one": [RoughnessTask(paths)], "two": [RoughnessTask(paths, tolerance=0.1)]}

    whole = score_grid(make_tasks(), tmp_path / "whole")
    with dies_in(RoughnessTask, "encode", call=9):
        score_grid(make_tasks(), out, workers=1)
    # six recordings of the first condition are scored, and two of the second are encoded
    assert len(score_files(out)) == 1
    tasks = make_tasks()
    assert score_grid(tasks, out) == whole
    assert len(tasks["one"][0].encoded) == 6 * len(SETTINGS) - 8
    assert score_files(out) == score_files(tmp_path / "whole")


def test_recordings_that_are_damaged_or_silent_count_as_wrong_are_reported_and_tried_again(
    tmp_path, capsys
):
    paths, out = write_recordings(tmp_path / "audio", count=6), tmp_path / "out"
    damaged, silent = paths[0], paths[2]
    content = damaged.read_bytes()
    damaged.write_bytes(b"no audio")
    write_flac(silent, np.zeros(HALF_SECOND))
    for scores in score_grid({"encoder": [RoughnessTask(paths)]}, out).values():
        assert len(scores) == 6
        assert scores[0].numerator == 0
        assert scores[2].numerator == 0
    assert "set aside u0" in capsys.readouterr().err
    damaged.write_bytes(content)
    grid = score_grid({"encoder": [RoughnessTask(paths)]}, out)
    assert grid[("ks", "acc"), "encoder", CLEAN][0].numerator == 1


# ---- the tasks: encoders under test, alone or in a folder of models


ON_TRAIN = Robustness(out=Path(), encoders=(), tasks=(), split="train")
ON_TEST = replace(ON_TRAIN, split="test", head_steps=60)


@pytest.fixture
def models(tmp_path, hubert_folder):
    """A folder of models that has only an encoder."""
    shutil.copytree(hubert_folder("layer"), tmp_path / "models/encoder")
    return tmp_path / "models"


def test_a_folder_of_models_may_be_tested_in_all_tasks_and_an_encoder_alone_in_some(models):
    in_folder = load_tested("a", str(models), grid_tasks.GRID_TASKS, [])
    alone = load_tested("b", str(models / "encoder"), ["ks", "asr"], [])
    assert (in_folder.models, alone.models) == (models, None)
    assert in_folder.encoder.hash == alone.encoder.hash
    for task in ("units", "dual", "cascade-ctc", "speechbert"):
        refused(f"b .*{task}", load_tested, "b", str(models / "encoder"), ["ks", task], [])


# m is MUSAN or its stand-in, g Gaussian noise, r a random room
@pytest.mark.parametrize("condition", ["gaussian@5", "m+g+r@5", "reverb@0.5+fsd50k=recordings@5"])
def test_noise_that_an_encoder_was_trained_on_is_not_unseen(models, condition):
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
    data = load_labelled(labelled("ic", slots))
    head = train_classifier(data, encoder, tmp_path / "head", ON_TEST)
    task = HeadTask(data, encoder, head, ON_TEST)
    assert (task.name, task.metric, len(task.items)) == ("ic", "acc", 4)
    features = {item.id: task.encode(None, read_audio(item.path)) for item in task.items}
    json.dumps([features, dict(task.card)])  # both must be values of JSON
    assert [s.numerator for s in task.score(features)] == [1.0] * 4
    smaller_task = HeadTask(data, encoder, head, replace(ON_TEST, recordings=2))
    (scores,) = score_grid({"encoder": [smaller_task]}, tmp_path / "out", [CLEAN]).values()
    assert [s.numerator for s in scores] == [1.0] * 2
    features["test-0"][slots[-1]] = "wrong"
    del features["test-1"]
    assert [s.numerator for s in task.score(features)] == [0.0, 0.0, 1.0, 1.0]


def test_a_recognition_task_is_evaluated(mini_corpus, encoder, tmp_path):
    vocabulary = CtcVocabulary.make_english()
    shape = HeadShape(
        width=encoder.width,
        symbols=len(vocabulary),
        states=encoder.layers + 1,
        projection=8,
        lstm_width=8,
    )
    recogniser = CtcRecogniser(encoder, CtcHead(shape), vocabulary, "ctc", layer=None)
    recogniser.save(tmp_path / "asr", {})
    # two questions, each of the text "a"
    corpus = mini_corpus(lengths=(16_000, 20_000))
    task = RecognitionTask(tmp_path / "asr", corpus, encoder, ON_TRAIN)
    assert [i.id for i in task.items] == ["q0", "q1"]
    assert isinstance(task.encode(None, read_audio(task.items[0].path)), str)
    scores = task.score({"q0": "a"})
    assert [(s.id, s.numerator, s.denominator) for s in scores] == [("q0", 0, 1), ("q1", 1, 1)]
    two_insertions = task.score({"q0": "a b c", "q1": "a"})
    assert sum(s.numerator for s in two_insertions) == 2


@pytest.fixture(scope="module")
def extractor(encoder):
    """An extractor of eight units, whose centroids are frames of noise."""
    noise = np.random.default_rng(9).uniform(-0.5, 0.5, HALF_SECOND).astype(np.float32)
    every_third_frame = encoder.features(noise, 1).numpy()[::3]
    card = {"encoder": encoder.hash, "layer": 1, "frame_rate": 50.0, "smooth": 1}
    return make_extractor(encoder, Codebook(every_third_frame[:8], card))


# ---- tasks without training


def test_units_of_clean_speech_have_no_error_and_others_have_the_edits(tmp_path, extractor):
    audio, units = tmp_path / "audio", tmp_path / "units"
    write_recordings(audio, count=4)
    task = UnitsTask(extractor, audio, units, ON_TRAIN)
    clean = {i.id: task.encode(None, read_audio(i.path)) for i in task.items}
    assert [s.numerator for s in task.score(clean)] == [0] * 4
    assert [s.denominator for s in task.score(clean)] == [len(clean[i.id]) for i in task.items]
    noise = np.random.default_rng(0).normal(0, 0.3, HALF_SECOND).astype(np.float32)
    noisy, *missing = task.score({"u0": task.encode(None, noise)})
    assert noisy.numerator > 0
    # a recording that was not encoded lacks all units
    assert [s.numerator for s in missing] == [s.denominator for s in missing]
    # the units of clean speech are not extracted again
    part = units / "part-00000.parquet"
    before = part.stat().st_mtime_ns
    assert UnitsTask(extractor, audio, units, ON_TRAIN).card == task.card
    assert part.stat().st_mtime_ns == before


def test_questions_are_scored_by_passage_as_in_evaluate_qa(questions):  # noqa: F811
    data = load_corpus(questions, "test")
    untimed = replace(data, questions=data.questions[2:])
    refused("no question whose answer has times", make_qa_tasks, Oracle(), untimed)
    (task,) = make_qa_tasks(Oracle(), data)
    assert len(task.items) == 6  # the three questions with an answer, and their passages
    features = {item.id: 0 for item in task.items}  # which `Oracle` does not look at
    scores = [(s.id, s.group, s.numerator) for s in task.score(features)]
    assert scores == [("q0", "p0", 1.0), ("q1", "p1", 1.0)]
    del features["p1"]
    assert [s.numerator for s in task.score(features)] == [1.0, 0.0]


def test_the_transcripts_of_a_cascade_are_scored_where_passages_have_a_text(questions):  # noqa: F811
    def word_errors(scores):
        return [(s.id, s.numerator, s.denominator) for s in scores]

    system, data = Oracle(text=True, name="cascade-x"), load_corpus(questions, "test")
    answers_task, transcripts_task = make_qa_tasks(system, data)
    transcript = answers_task.encode(None, np.zeros(10, np.float32))  # "a boat" of "a red boat"
    # two passages were not encoded, so that all of their words are missing
    scores = transcripts_task.score({"p0": transcript})
    assert word_errors(scores) == [("p0", 1, 3), ("p1", 3, 3), ("p2", 3, 3)]
    # passages without a text have no word errors
    textless = {name: replace(p, text="") for name, p in data.passages.items()}
    one_text = replace(data, passages=textless | {"p0": data.passages["p0"]})
    _, transcripts_task = make_qa_tasks(system, one_text)
    assert [item.id for item in transcripts_task.items] == ["p0"]
    scores = transcripts_task.score(dict.fromkeys(data.passages, transcript))
    assert word_errors(scores) == [("p0", 1, 3)]
    (task,) = make_qa_tasks(system, replace(data, passages=textless))
    assert task.metric == "ff1"
