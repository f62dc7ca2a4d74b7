"""All predictions as the page has them: how answers err, what all systems answered, whose units are
drawn, which examples."""

import json

import pytest

from speechssl.checkpoints import model_folder
from speechssl.data.records import load_corpus
from speechssl.eval.compare import read_results
from speechssl.eval.options import Predictions
from speechssl.eval.scores import ERRORS
from speechssl.eval.spoken_qa import import_predictions
from speechssl.report.build import audible_conditions, build_report, read_predicted, units_of
from speechssl.report.figures import arrange
from speechssl.report.page import grid_of
from speechssl.report.spoken_qa import error_table, explorer_of
from speechssl.results import Row, read_rows
from speechssl.units.kmeans import load_codebook

from ..files import refused, write_corpus

WORDS = [["a", 0.0, 1.0], ["red", 1.0, 1.5], ["boat", 1.5, 2.0], ["sails", 2.0, 4.0]]


@pytest.fixture
def folder(tmp_path):
    """Three questions of one passage; the gold answer is [1, 2). DUAL answers all, the cascade the
    last two."""
    gold = [{"text": "red boat", "start": 1.0, "end": 2.0}]
    passage = {"id": "p", "seconds": 4.0, "text": "a red boat sails", "words": WORDS}
    asked = [
        {"id": f"q{i}", "passage": "p", "seconds": 4.0, "text": "what sails", "answers": gold}
        for i in range(3)
    ]
    corpus, out = (
        write_corpus(tmp_path / "corpus", "test", passages=[passage], questions=asked),
        tmp_path / "out",
    )
    answers = {
        "dual": {"q0": [1.0, 2.0], "q1": [0.0, 4.0], "q2": [2.5, 3.0]},
        "cascade-x": {
            "q1": {"text": "red", "start": 1.0, "end": 1.5},
            "q2": {"text": "red boat", "start": 1.0, "end": 2.0},
        },
    }
    for name, given in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(given))
        import_predictions(
            Predictions(corpus=corpus, out=out, file=tmp_path / f"{name}.json", name=name)
        )
    return corpus, out


def test_common_questions_are_scored_by_the_functions_of_the_evaluation(folder):
    corpus, out = folder
    found = read_predicted(out, load_corpus(corpus, "test"))
    assert (
        found.common == {"q1", "q2"}
        and found.evaluated == 3
        and ("only the 2 questions") in found.switch
    )
    values = {(r.system, r.metric): (r.value, r.n) for r in found.rows}
    assert values["dual", "ff1"] == (pytest.approx(20), 2)  # 2 / (4 + 1) and 0
    assert values["cascade-x", "ff1"] == (pytest.approx(100 * (2 / 3 + 1) / 2), 2)
    results = arrange(read_rows(out / "results.jsonl"))
    grid = grid_of(results, "ff1", common=arrange(found.rows))
    assert [n for *_, n in grid.table.rows] == ["3", "3"]
    assert grid.common.texts == [("dual", "20.0", "2"), ("cascade-x", "83.3", "2")]
    assert [label.slot for label, *_ in grid.table.rows] == [
        label.slot for label, *_ in grid.common.rows
    ]


def test_without_a_difference_or_a_common_question_there_is_nothing_to_switch(folder, tmp_path):
    corpus, out = folder
    (tmp_path / "z.json").write_text('{"q0": [1.0, 2.0]}')
    import_predictions(Predictions(corpus=corpus, out=out, file=tmp_path / "z.json", name="z"))
    found = read_predicted(out, load_corpus(corpus, "test"))
    assert not found.rows and found.switch.startswith("No question was answered by all systems")
    import_predictions(
        Predictions(corpus=corpus, out=tmp_path / "one", file=tmp_path / "dual.json", name="dual")
    )
    found = read_predicted(tmp_path / "one", load_corpus(corpus, "test"))
    assert not found.rows and found.switch == (
        "All systems answered the same 3 questions in all their conditions."
    )
    for path in (tmp_path / "one").glob("predictions/*/*.json"):
        path.unlink()
    refused("there is no such file", read_predicted, tmp_path / "one", load_corpus(corpus, "test"))


def test_a_line_says_how_its_answer_errs_and_what_is_said_there(folder):
    corpus, out = folder
    predicted = read_predicted(out, load_corpus(corpus, "test"))
    results = arrange(read_rows(out / "results.jsonl"))
    explorer = explorer_of(
        predicted.scores,
        predicted.answers,
        results,
        predicted.corpus,
        predicted.common,
        {("q1", "Clean speech"): "e"},
    )
    data = explorer.data
    assert [s["label"] for s in data["systems"]] == ["dual", "cascade-x"] and [
        s["words"] for s in data["systems"]
    ] == [False, True]
    assert data["questions"][0] == [
        "q0",
        "what sails",
        "red boat",
        data["types"].index("other"),
        1.0,
        0,
    ]
    lines = {
        (data["questions"][q][0], data["systems"][s]["label"]): rest
        for q, s, _, *rest in data["rows"]
    }
    assert len(data["rows"]) == 6
    errors = {key: ERRORS[error] for key, (_, _, error, *_) in lines.items()}
    assert [errors[f"q{i}", "dual"] for i in range(3)] == ["right", "too long", "no overlap"]
    assert [errors[f"q{i}", "cascade-x"] for i in range(3)] == ["no answer", "right", "right"]
    assert (
        lines["q1", "dual"][3:] == [0.0, 4.0, "a red boat sails", "e"]
        and lines["q0", "dual"][5] == "red boat"
    )
    assert lines["q1", "cascade-x"][5] == "red" and lines["q0", "cascade-x"][3:6] == [
        None,
        None,
        "",
    ]
    # a comparison has no corpus
    bare = explorer_of(read_results([out]), {}, results)
    assert bare.data["questions"][0][:3] == ["q0", "", ""] and {
        row[8] for row in bare.data["rows"]
    } == {""}


def test_errors_are_counted_in_percent(folder):
    _, out = folder
    table = error_table(read_results([out]), arrange(read_rows(out / "results.jsonl")))
    assert table.columns == ("system", "condition", "n", *ERRORS)
    assert table.rows == (
        ("dual", "Clean speech", 3, 33, 33, 0, 0, 33, 0),
        ("cascade-x", "Clean speech", 3, 67, 0, 0, 0, 0, 33),
    )


def test_the_data_cannot_end_the_script_that_holds_it(folder, tmp_path):
    corpus, _ = folder
    path = corpus / "test/questions.jsonl"
    path.write_text(path.read_text().replace("what sails", "</script><script>alert(1)"))
    for name in ("dual", "cascade-x"):
        import_predictions(
            Predictions(
                corpus=corpus, out=tmp_path / "evil", file=tmp_path / f"{name}.json", name=name
            )
        )
    predicted = read_predicted(tmp_path / "evil", load_corpus(corpus, "test"))
    build_report(
        tmp_path / "page.html", read_rows(tmp_path / "evil/results.jsonl"), predicted=predicted
    )
    text = (tmp_path / "page.html").read_text()
    assert text.count("<script") == 2 and "alert(1)" in text


def rows(values):
    return [
        Row("qa", "dual", "", c, snr, "ff1", v, None, None, 9, 0, "")
        for (c, snr), v in values.items()
    ]


def test_the_second_group_of_examples_is_the_noisiest_that_is_still_understood():
    scores = {
        ("clean", None): 60.0,
        ("pink", 20.0): 58.0,
        ("pink", 5.0): 31.0,
        ("pink", 0.0): 9.0,
        ("reverb", None): 40.0,
    }
    # whose recording is not there
    chosen, why = audible_conditions(rows(scores | {("kitchen.wav", 0.0): 50.0}))
    assert (
        [c.text for c in chosen] == ["clean", "pink@5"]
        and "pink noise at 5\u00a0dB, the noisiest" in why
        and "31.0 and 60.0" in why
    )
    chosen, why = audible_conditions(rows(scores | {("pink", 20.0): 20.0, ("pink", 5.0): 10.0}))
    assert [c.text for c in chosen] == ["clean", "pink@20"] and "the quietest noise" in why
    assert [c.text for c in audible_conditions(rows({("clean", None): 60.0}))[0]] == ["clean"]
    assert [c.short for c in audible_conditions(rows({("reverb", None): 60.0}))[0]] == ["reverb"]


@pytest.mark.slow
def test_units_are_drawn_of_the_models_that_made_the_predictions_alone(capsys):
    book = load_codebook(model_folder("people-en") / "units.safetensors")
    assert (
        units_of("people-en", [{"card": {"imported": "x"}}]) is None and not capsys.readouterr().err
    )
    assert units_of("people-en", [{"card": {"codebook": "another"}}]) is None
    assert (
        "units are not drawn, for people-en is not what made the predictions; name those models"
    ) in capsys.readouterr().err
    assert units_of("people-en", [{"card": {"codebook": book.hash, "layer": 99}}]) is None
    extractor = units_of("people-en", [{"card": {"dual": "x", **units_card()}}])
    assert extractor and extractor.codebook.hash == book.hash


def units_card():
    from speechssl.encoders.load import load_encoder
    from speechssl.units.features import extractor_of

    folder = model_folder("people-en")
    return extractor_of(
        load_encoder(folder / "encoder"), load_codebook(folder / "units.safetensors")
    ).card
