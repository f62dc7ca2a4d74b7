"""Evaluation of multiple choice: baselines are exact, word errors stand beside the scores."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from speechssl.artifacts import write_json
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.cli import main
from speechssl.data.options import ToeflQa
from speechssl.data.records import load_corpus
from speechssl.eval.choice import evaluate_systems
from speechssl.eval.compare import compare, read_results
from speechssl.eval.spoken_qa import Setup
from speechssl.multiple_choice.system import Baseline, WrittenChoice
from speechssl.report.comparison import run_comparison
from speechssl.report.options import Compare
from speechssl.results import read_rows
from speechssl.textlm.tokenizers import TextCodec

from ..files import write_corpus

CORRECT = [[0], [2], [1, 3], [3]]  # numbers of the right options of each question
OPTIONS = ["a", "bb", "ccc", "dddd"]


@pytest.fixture
def corpus(tmp_path):
    """A corpus of four questions on two passages, all recorded; one question has two right
    options."""
    passages = [{"id": f"p{i}", "seconds": 2.0, "text": "a red boat"} for i in range(2)]
    options, questions = [], []
    for i, correct in enumerate(CORRECT):
        names = [f"q{i}-{o}" for o in range(len(OPTIONS))]
        options += [{"id": name, "seconds": 0.3} for name in names]
        question = {"id": f"q{i}", "passage": f"p{i // 2}", "seconds": 1.0, "text": "which"}
        question |= {"option_audio": [f"dev/audio/{name}.flac" for name in names]}
        questions.append(question | {"options": OPTIONS, "correct": correct})
    root = tmp_path / "corpus"
    write_corpus(root, "dev", options=options, passages=passages, questions=questions)
    write_json(root / "card.json", {"corpus": "toy"})
    return root


@dataclass
class Listener:
    """A system that prefers the options in a fixed order. ranks: of each option, 0 the best."""

    ranks: tuple = (0, 1, 2, 3)
    name: str = "listener"

    @property
    def card(self):
        return {"name": self.name}

    def encode(self, record, samples):
        return len(samples)

    def score_all(self, items):
        return [np.log([0.4, 0.3, 0.2, 0.1])[list(self.ranks)] for _ in items]


def run(systems, corpus, out, conditions=("clean",)):
    setup = Setup(out, Distorter(), workers=2, models="enc")
    parsed = [parse_condition(condition) for condition in conditions]
    return evaluate_systems(systems, load_corpus(corpus, "dev"), parsed, setup)


def values(rows):
    """Return (value, number of questions) by system, condition and metric."""
    return {(r.system, r.condition, r.metric): (pytest.approx(r.value), r.n) for r in rows}


def test_baselines_are_exact_and_sets_and_single_answers_are_counted_apart(corpus, tmp_path):
    baselines = [Baseline("chance"), Baseline("longest-option")]
    scores = values(run(baselines, corpus, tmp_path / "out", ("pink@5",)))
    # one of four options, or one of the six pairs
    assert scores["chance", "clean", "set_accuracy"] == (100 * (3 / 4 + 1 / 6) / 4, 4)
    assert scores["chance", "clean", "accuracy"] == (25, 3)
    assert scores["longest-option", "clean", "accuracy"] == (100 / 3, 3)


def test_systems_are_given_the_number_of_right_options(corpus, tmp_path):
    other = Listener(ranks=(3, 0, 2, 1), name="other")  # options 1 and 3 are its best two
    scores = values(run([Listener(), other], corpus, tmp_path / "out"))
    assert scores["listener", "clean", "set_accuracy"] == (25, 4)
    assert scores["listener", "clean", "accuracy"] == (100 / 3, 3)
    assert scores["other", "clean", "set_accuracy"] == (25, 4)
    assert scores["other", "clean", "accuracy"] == (0, 3)


@dataclass
class Recogniser(Listener):
    """A cascade that recognises two of the three words of every passage."""

    name: str = "cascade-listener"

    def encode(self, record, samples):
        return Transcript((TimedWord("a", 0.0, 1.0, 1.0), TimedWord("red", 0.0, 1.0, 1.0)))


class OptionScorer:
    """This stand-in for a trained model prefers the last option."""

    def score_many(self, items):
        return [np.log([0.1, 0.2, 0.3, 0.4]) for _ in items]


def test_word_errors_stand_beside_choices_and_are_compared(corpus, tmp_path, tokenizer):
    text = WrittenChoice("text", "text", TextCodec(tokenizer), OptionScorer(), {})
    systems = [Listener(name="units"), Recogniser(), text, Baseline("chance")]
    rows = values(run(systems, corpus, tmp_path / "out"))
    assert rows["cascade-listener", "clean", "wer"] == (100 / 3, 2)
    assert rows["text", "clean", "wer"] == (0, 2)
    (c,) = compare(read_results([tmp_path / "out"]))
    assert (c.textless, c.cascades) == (["chance", "units"], ["cascade-listener"])
    assert c.find_estimate("cascade-listener", ("clean", None), "wer").value == pytest.approx(1 / 3)
    assert run_comparison(Compare(results=(tmp_path / "out",), out=tmp_path / "compare"))


# ---- the real questions

TOEFL = Path(__file__).parents[3] / "shared" / "data" / "toefl_qa"


@pytest.mark.slow
@pytest.mark.skipif(
    not TOEFL.is_dir(), reason="the questions of TOEFL-QA are not here (../shared/data/toefl_qa)"
)
def test_baselines_of_toefl_qa_stand_beside_published_systems(tmp_path, capsys):
    from speechssl.data.toefl_qa import prepare_toefl_qa

    prepare_toefl_qa(ToeflQa(source=TOEFL, out=tmp_path / "toefl", workers=1))
    arguments = [str(tmp_path / name) for name in ("toefl", "out")]
    arguments += ["--systems", "chance", "longest-option", "--split", "dev"]
    assert main(["evaluate", "choice", *arguments]) == 0
    scores = values(read_rows(tmp_path / "out/results.jsonl"))
    # of 124 questions, 108 have one right option of four, 15 have two, and one has three
    chance = 100 * (108 / 4 + 15 / 6 + 1 / 4) / 124
    assert scores["chance", "clean", "set_accuracy"] == (chance, 124)
    assert scores["chance", "clean", "accuracy"] == (25, 108)
    assert scores["longest-option", "clean", "set_accuracy"] == (100 * 30 / 124, 124)
    assert "Chung et al. 2018, arXiv 1711.05345" in capsys.readouterr().out
