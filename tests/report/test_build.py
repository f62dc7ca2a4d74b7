"""The data of the page: all predictions and how they err, the sentence that opens it, the examples
that are drawn, and the models whose units are shown."""

import json
import re
from dataclasses import replace

import pytest

from speechssl.checkpoints import model_folder
from speechssl.data.records import load_corpus
from speechssl.encoders.load import load_encoder
from speechssl.eval.imported import import_predictions
from speechssl.eval.options import Predictions
from speechssl.eval.score import ERRORS
from speechssl.report.build import (
    choose_conditions,
    draw_examples,
    find_differing,
    load_unit_extractor,
    read_answers,
    read_scores,
    write_report,
)
from speechssl.report.listening import list_predictions, make_explorer, tabulate_errors
from speechssl.report.options import Report
from speechssl.report.spoken_qa import judge_answers, write_opening
from speechssl.units.codebook import load_codebook
from speechssl.units.features import make_extractor

from ..files import refused, write_corpus
from ..test_results import ROW

WORDS = [["a", 0.0, 1.0], ["red", 1.0, 1.5], ["boat", 1.5, 2.0], ["sails", 2.0, 4.0]]
ANSWERS = {
    "dual": {"q0": [1.0, 2.0], "q1": [0.0, 4.0], "q2": [2.5, 3.0]},
    "cascade-x": {
        "q1": {"text": "red", "start": 1.0, "end": 1.5},
        "q2": {"text": "red boat", "start": 1.0, "end": 2.0},
    },
}


def import_answers(root, corpus, out, name, answers):
    """Import answers of a system, by question, into the folder `out`."""
    (root / f"{name}.json").write_text(json.dumps(answers))
    import_predictions(Predictions(corpus=corpus, out=out, file=root / f"{name}.json", name=name))


@pytest.fixture
def folder(tmp_path):
    """Three questions of one passage; the gold answer is [1, 2). DUAL answers all, the cascade the
    last two."""
    gold = [{"text": "red boat", "start": 1.0, "end": 2.0}]
    passage = {"id": "p", "seconds": 4.0, "text": "a red boat sails", "words": WORDS}
    question = {"passage": "p", "seconds": 4.0, "text": "what sails", "answers": gold}
    questions = [{"id": f"q{i}"} | question for i in range(3)]
    corpus = write_corpus(tmp_path / "corpus", "test", passages=[passage], questions=questions)
    for name, answers in ANSWERS.items():
        import_answers(tmp_path, corpus, tmp_path / "out", name, answers)
    return corpus, tmp_path / "out"


def test_a_prediction_says_how_it_errs_and_which_words_are_in_its_span(folder):
    corpus, out = folder
    element_ids = {("q1", "Clean"): "example-1"}
    rows = list_predictions(read_answers(out), load_corpus(corpus, "test"), element_ids)
    by_key = {(row["id"], row["system"]): row for row in rows}
    first, second = by_key["q0", "dual"], by_key["q1", "dual"]
    assert (first["question"], first["gold"], first["type"]) == ("what sails", "red boat", "other")
    assert (first["common"], second["common"]) == (False, True)
    assert second["example"] == "example-1"
    errors = {key: row["error"] for key, row in by_key.items()}
    assert [errors[f"q{i}", "dual"] for i in range(3)] == ["right", "too long", "no overlap"]
    assert [errors[f"q{i}", "cascade-x"] for i in range(3)] == ["no answer", "right", "right"]
    spans = {key: (row["start"], row["end"], row["text"]) for key, row in by_key.items()}
    assert spans["q1", "dual"] == (0.0, 4.0, "a red boat sails")
    assert spans["q0", "dual"] == (1.0, 2.0, "red boat")
    assert spans["q1", "cascade-x"] == (1.0, 1.5, "red")
    assert spans["q0", "cascade-x"] == (None, None, "")
    (table,) = tabulate_errors(make_explorer(rows, slots={"dual": 0, "cascade-x": 1}))
    assert table.columns == ("condition", "system", "n", *ERRORS)
    assert table.rows == (
        ("Clean", "dual", 3, 33, 33, 0, 0, 33, 0),
        ("Clean", "cascade-x", 3, 67, 0, 0, 0, 0, 33),
    )


def test_the_page_opens_with_how_often_each_system_was_right(folder):
    corpus, out = folder
    write_report(Report(out=out, corpus=corpus, examples=0))
    opening, *_ = re.findall('<p class="prose">(.*?)</p>', (out / "report.html").read_text())
    numbers = r"Asked 3 questions about 1 passage .*1 voice.* dual 33\s% and cascade-x 67\s%"
    assert re.search(numbers, opening)


def test_a_system_that_was_asked_fewer_questions_is_said_to(folder):
    _, out = folder
    scores = {score.system: score for score in read_scores(out)}
    lines = scores["cascade-x"].lines
    two_questions = replace(scores["cascade-x"], lines={i: lines[i] for i in ("q0", "q1")})
    opening = write_opening([scores["dual"], two_questions], [CLEAN], about="")
    assert "cascade-x 50\N{NO-BREAK SPACE}% (of 2)" in opening


def test_choices_are_right_where_the_set_of_options_is(folder):
    _, out = folder
    score, *_ = read_scores(out)
    lines = {"q0": {"set_accuracy": 1.0}, "q1": {"set_accuracy": 0.25}}
    assert judge_answers(replace(score, lines=lines)) == [1.0, 0.25]


def test_examples_are_drawn_where_two_systems_differ(folder):
    corpus, out = folder
    scored, data = read_answers(out), load_corpus(corpus, "test")
    # FF1 of dual: 100, 40, 0; of the cascade: 0, 67, 100
    pair = ("dual", "cascade-x")
    right = {"q0": "dual", "q2": "cascade-x"}
    assert find_differing([score for score, _ in scored], pair) == (right, 3)
    drawn = set()
    for seed in range(6):
        o = Report(out=out, corpus=corpus, examples=2, differ=pair, seed=seed)
        examples, sentence = draw_examples(o, data, scored, make_rows({CLEAN: 50.0}))
        drawn |= {example.id for example in examples}
    assert drawn == set(right)
    assert re.search("2 of 3 .* dual .* in 1 and cascade-x in 1", sentence)


def test_where_passages_are_few_several_questions_of_one_are_drawn(folder):
    corpus, out = folder
    scored, data = read_answers(out), load_corpus(corpus, "test")
    o = Report(out=out, corpus=corpus, examples=3)
    examples, _ = draw_examples(o, data, scored, make_rows({CLEAN: 50.0}))
    assert sorted(example.id for example in examples) == ["q0", "q1", "q2"]


def test_the_data_cannot_end_the_script_that_holds_it(folder, tmp_path):
    corpus, _ = folder
    path = corpus / "test/questions.jsonl"
    path.write_text(path.read_text().replace("what sails", "</script><script>alert(1)"))
    import_answers(tmp_path, corpus, tmp_path / "evil", "dual", ANSWERS["dual"])
    write_report(Report(out=tmp_path / "evil", corpus=corpus, examples=0))
    text = (tmp_path / "evil/report.html").read_text()
    assert "alert(1)" in text
    assert text.count("<script") == 2  # the data and the page's own


def make_rows(ff1):
    """Make rows of DUAL. ff1: (condition, SNR) -> value."""
    row = replace(ROW, metric="ff1", low=None, high=None)
    return [replace(row, condition=name, snr_db=snr, value=v) for (name, snr), v in ff1.items()]


CLEAN = ("clean", None)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        (
            # the recording of the kitchen is not there
            {CLEAN: 60.0, ("pink", 20.0): 58.0, ("pink", 5.0): 31.0, ("kitchen.wav", 0.0): 50.0},
            ["clean", "pink@5"],
        ),
        ({CLEAN: 60.0, ("pink", 20.0): 20.0}, ["clean"]),
        ({("reverb", None): 60.0}, ["reverb@0.5"]),
    ],
)
def test_examples_are_of_clean_speech_and_of_the_noisiest_with_half_of_its_ff1(scores, chosen):
    assert [c.text for c in choose_conditions(make_rows(scores))] == chosen


@pytest.mark.slow
def test_units_are_shown_only_of_the_models_that_made_the_predictions(capsys):
    folder = model_folder("people-en")
    book = load_codebook(folder / "units.safetensors")
    assert load_unit_extractor("people-en", [{"card": {"imported": "x"}}]) is None
    assert not capsys.readouterr().err
    assert load_unit_extractor("people-en", [{"card": {"codebook": "another"}}]) is None
    assert "units are not drawn, for people-en is not" in capsys.readouterr().err
    card = make_extractor(load_encoder(folder / "encoder"), book).card
    extractor = load_unit_extractor("people-en", [{"card": {"dual": "x", **card}}])
    assert extractor and extractor.codebook.hash == book.hash


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"conditions": ("pink@5",)}, "has no answers in pink@5"),
        ({"tables": ("card.json",)}, "card.json is not a table"),
        ({"differ": ("dual", "nobody")}, "has no answers of nobody"),
        ({"differ": ("dual", "cascade-x"), "corpus": None}, "give the prepared corpus"),
    ],
)
def test_reports_that_cannot_be_written_are_refused(folder, options, expected):
    corpus, out = folder
    options = {"corpus": corpus} | options
    options["tables"] = tuple(corpus / name for name in options.get("tables", ()))
    refused(expected, lambda: write_report(Report(out=out, examples=1, **options)))
