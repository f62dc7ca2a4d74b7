"""Evaluation of any system on any corpus: every annotation counts, bad items are set aside, a
killed run goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from speechssl import stats as bootstrap
from speechssl.artifacts import write_json
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.cascade.readers import TextQa, WordSpan
from speechssl.cascade.system import CascadeSystem
from speechssl.data.records import (
    Answer,
    Passage,
    Question,
    data_hash,
    first_passages,
    load_corpus,
    write_records,
)
from speechssl.dual.system import TimedAnswer
from speechssl.errors import InputError
from speechssl.eval.imported import import_predictions
from speechssl.eval.options import Predictions, Qa
from speechssl.eval.predict import find_difference, read_card, read_predictions, write_items
from speechssl.eval.spoken_qa import Setup, append_results, evaluate, run_evaluation
from speechssl.report.build import write_report
from speechssl.report.options import Report
from speechssl.report.scores import arrange
from speechssl.results import Row, append_rows, read_rows, results_table

from ..files import change_lines, contents, read_lines, refused, write_corpus, write_lines

CLEAN = parse_condition("clean")
ANSWERS = {
    "q0": [{"text": "red boat", "start": 0.5, "end": 1.0}],
    "q1": [
        {"text": "two", "start": 1.5, "end": 1.6},
        {"text": "two cats", "start": 0.2, "end": 0.6},
    ],
    "q2": [{"text": "paris"}],
    "q3": [],
}


@pytest.fixture
def corpus(tmp_path):
    """Four questions on four passages of 2 s: one annotation, two, one without times, and none."""
    passages = [{"id": f"p{i}", "seconds": 2.0, "text": "a red boat"} for i in range(len(ANSWERS))]
    asked = [
        {"id": q, "passage": f"p{i}", "seconds": 1.0, "text": "a", "answers": ANSWERS[q]}
        for i, q in enumerate(ANSWERS)
    ]
    return write_corpus(tmp_path / "corpus", "test", passages=passages, questions=asked)


@dataclass
class Oracle:
    """Answers with what it was reported; counts what it encoded. text: it is a cascade."""

    spans: dict = field(
        default_factory=lambda: {"q0": (0.5, 1.0), "q1": (0.2, 0.6), "q2": (0.0, 1.0)}
    )
    text: bool = False
    name: str = "oracle"
    encoded: list = field(default_factory=list)
    needs_audio: bool = True

    @property
    def card(self):
        return {"name": self.name}

    def encode(self, record, samples):
        self.encoded.append(samples)
        return (
            Transcript((TimedWord("a", 0, 1, 1), TimedWord("boat", 1, 2, 1)))
            if self.text
            else len(samples)
        )

    def answer_all(self, items):
        return [
            TimedAnswer(*span, 0.9, "red boat" if self.text else None)
            for span in list(self.spans.values())[: len(items)]
        ]


def run(systems, corpus, out, conditions=("clean",), seed=0, voices=()):
    parsed = [parse_condition(c) for c in conditions]
    return evaluate(
        systems, load_corpus(corpus, "test"), parsed, Setup(out, Distorter(seed, voices))
    )


def values(rows):
    return {(r.system, r.condition, r.snr_db, r.metric): (r.value, r.n) for r in rows}


def test_the_best_annotation_counts_and_text_only_answers_have_no_ff1(corpus, tmp_path):
    system = Oracle()
    found = values(run([system], corpus, tmp_path / "out"))
    assert found == {
        ("oracle", "clean", None, "ff1"): (100, 2),
        ("oracle", "clean", None, "aos"): (100, 2),
    }
    assert len(system.encoded) == 6  # nor is their passage encoded


def test_that_no_answer_has_times_is_said(corpus, tmp_path, capsys):
    run([Oracle()], corpus, tmp_path / "timed")
    assert "align" not in capsys.readouterr().err
    change_lines(corpus / "test/questions.jsonl", {"answers": [{"text": "a red boat"}]})
    refused(
        "no answer of .* has times, by which alone oracle can be scored; `speechssl align`",
        run,
        [Oracle()],
        corpus,
        tmp_path,
    )
    spans = {f"q{i}": (0.0, 1.0) for i in range(4)}
    assert run(
        [Oracle(spans), Oracle(spans, True, "text", needs_audio=False)], corpus, tmp_path / "out"
    )
    assert (
        "no answer has times, so nothing can be said of FF1 and AOS; `speechssl align`"
    ) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lost", "em", "wer"),
    [((), 100 / 3, 100 / 3), (("p1",), 100 / 3, 500 / 9), (("p0", "p1", "p2"), 0, 100)],
)
def test_a_cascade_is_scored_on_words_and_every_word_of_what_it_could_not_recognise_is_missing(
    corpus, tmp_path, lost, em, wer
):
    for name in lost:
        (corpus / f"test/audio/{name}.flac").write_bytes(b"nothing")
    found = values(run([Oracle(text=True, name="cascade-x")], corpus, tmp_path / "out"))
    assert found["cascade-x", "clean", None, "em"] == (pytest.approx(em), 3)
    # of each three words "boat" alone is not "red boat"
    assert found["cascade-x", "clean", None, "wer"] == (pytest.approx(wer), 3)


def test_a_chinese_corpus_has_character_errors(corpus, tmp_path):
    for path in (corpus / "test").glob("*.jsonl"):
        path.write_text(
            path.read_text()
            .replace('"language": "en"', '"language": "zh"')
            .replace("a red boat", "他買了")
        )
    found = values(run([Oracle(text=True, name="cascade-x")], corpus, tmp_path / "out"))
    assert found["cascade-x", "clean", None, "cer"] == (100, 3)
    assert ("cascade-x", "clean", None, "wer") not in found and (
        "cascade-x",
        "clean",
        None,
        "em",
    ) in found


def test_a_cascade_reads_questions_that_are_only_written_and_others_cannot_be_asked(
    corpus, tmp_path, capsys
):
    change_lines(corpus / "test/questions.jsonl", {"audio": "", "seconds": 0, "text": "which boat"})
    asked = []

    class Stub:
        def read(self, items):
            asked.extend(question.text for question, _ in items)
            return [WordSpan(0, 1, "red boat", 1.0, 0.0, 0.9) for _ in items]

    heard = Transcript((TimedWord("red", 0.5, 0.7, 1), TimedWord("boat", 0.7, 1.0, 1)))
    cascade = CascadeSystem(
        "cascade-x", lambda record, samples: heard, TextQa(Stub()), {"asr": "x"}
    )
    found = values(run([cascade, Oracle()], corpus, tmp_path / "out", ["clean", "pink@5"]))
    for condition in (("clean", None), ("pink", 5.0)):
        assert found["cascade-x", *condition, "em"] == (pytest.approx(100 / 3), 3)
        assert found["oracle", *condition, "ff1"] == (0, 2)
    assert asked == ["which boat"] * 6
    assert "3 questions have no recording: cascades read what is written" in capsys.readouterr().err
    made = [
        read_predictions(tmp_path / f"out/predictions/{name}/clean.parquet")["failed"]
        for name in ("cascade-x", "oracle")
    ]
    assert made[0] == {} and set(made[1]) == {"q0", "q1", "q2"}


@dataclass
class Reads(Oracle):
    """Does not listen: what it keeps of a record is what is written."""

    needs_audio: bool = False
    name: str = "text"

    def encode(self, record, samples):
        assert samples is None
        self.encoded.append(record.id)
        return Transcript(
            tuple(TimedWord(w, float("nan"), float("nan"), 1) for w in record.text.split())
        )

    def answer_all(self, items):
        return [TimedAnswer(float("nan"), float("nan"), 0.9, "red boat") for _ in items]


def test_what_reads_needs_no_audio_and_is_scored_by_text_in_clean_speech_alone(corpus, tmp_path):
    for path in (corpus / "test/audio").iterdir():
        path.unlink()
    silent = {"audio": "", "seconds": 0}
    change_lines(corpus / "test/passages.jsonl", silent)
    change_lines(
        corpus / "test/questions.jsonl",
        lambda q: q | silent | {"answers": [{"text": a["text"]} for a in q["answers"]]},
    )
    found = values(run([Reads()], corpus, tmp_path / "out", ["clean", "pink@5"]))
    assert found == {
        ("text", "clean", None, "em"): (pytest.approx(100 / 3), 3),
        ("text", "clean", None, "f1"): (pytest.approx(100 / 3), 3),
        ("text", "clean", None, "wer"): (0, 3),
    }
    assert (
        read_predictions(tmp_path / "out/predictions/text/clean.parquet")["answers"]["q0"]["start"]
        is None
    )
    append_rows(tmp_path / "out/results.jsonl", run([Reads()], corpus, tmp_path / "out"))
    write_report(Report(out=tmp_path / "out", corpus=corpus, examples=3, conditions=("clean",)))
    refused(
        "text read text, which noise does not change",
        run,
        [Reads()],
        corpus,
        tmp_path / "out",
        ["pink@5"],
    )
    refused(
        "is text only; prepare the corpus with --speak", run, [Oracle()], corpus, tmp_path / "other"
    )


def test_kept_answers_are_drawn_anew(corpus, tmp_path, monkeypatch):
    for kind in ("passages", "questions"):  # six passages of a voice each
        path = corpus / f"test/{kind}.jsonl"
        first = read_lines(path)[0]
        of = "passage" if kind == "questions" else "id"
        write_lines(
            path,
            [first | {of: f"p{i}", "id": f"{kind[0]}{i}", "speaker": f"v{i}"} for i in range(6)],
        )
    for fewest, encoded, drawn, of_words in (
        (5, 12, "voice × asker", "voice"),
        (7, 0, "passage (about these 6 voices and 6 askers)", "passage (about these 6 voices)"),
    ):
        monkeypatch.setattr(bootstrap, "FEWEST", fewest)
        system = Reads()
        found = {
            (r.metric == "wer", r.drawn, r.groups) for r in run([system], corpus, tmp_path / "out")
        }
        assert found == {(False, drawn, 6), (True, of_words, 6)}  # nobody asks for the words
        assert len(system.encoded) == encoded


def test_systems_encode_the_same_noise_and_another_seed_gives_other_noise(corpus, tmp_path):
    one, two, other = Oracle(name="a"), Oracle(name="b"), Oracle(name="c")
    evaluate(
        [one, two],
        load_corpus(corpus, "test"),
        [parse_condition("pink@5")],
        Setup(tmp_path / "x", Distorter(1), workers=1),
    )
    evaluate(
        [other],
        load_corpus(corpus, "test"),
        [parse_condition("pink@5")],
        Setup(tmp_path / "x", Distorter(2), workers=1),
    )
    assert all(a is b for a, b in zip(one.encoded, two.encoded, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(one.encoded, other.encoded, strict=True))


def test_seeds_of_one_model_are_averaged_and_those_of_another_of_its_name_are_not(tmp_path):
    row, path = (
        Row("qa", "dual", "models", "pink", 5.0, "ff1", 40.0, 38.0, 42.0, 9, 0, "first"),
        tmp_path / "results.jsonl",
    )
    simulated = replace(row, system="cascade-simulated@30")

    def found(**changes):
        append_results(tmp_path, [replace(row, **changes), replace(simulated, **changes)])
        values = arrange(read_rows(path)).set_index("system").value
        return [values[r.system] for r in (row, simulated)]

    assert found() == [40, 40] and found(value=60.0, seed=1) == [50, 50]
    # whose card depends on the seed
    assert found(value=80.0, seed=2, card="trained again") == [80, 60]
    assert "80.0 [38.0, 42.0]\n" in results_table(read_rows(path)) + "\n"
    assert found(value=20.0) == [20, pytest.approx(160 / 3)]  # the first again
    assert len(read_rows(path)) == 4


def test_bad_recordings_are_set_aside_counted_and_tried_again_when_mended(corpus, tmp_path, capsys):
    audio = corpus / "test/audio/p0.flac"
    content = audio.read_bytes()
    audio.write_bytes(b"no audio")
    system = Oracle(spans={"q1": (0.2, 0.6), "q2": (0, 1)})
    assert values(run([system, Reads()], corpus, tmp_path / "out"))[
        "oracle", "clean", None, "ff1"
    ] == (50, 2)
    # which does not listen
    assert read_predictions(tmp_path / "out/predictions/text/clean.parquet")["failed"] == {}
    message = capsys.readouterr().err
    assert "set aside p0" in message and "p0.flac" in message and "1 recording set aside" in message
    audio.write_bytes(content)
    assert values(run([Oracle()], corpus, tmp_path / "out"))["oracle", "clean", None, "ff1"] == (
        100,
        2,
    )


def test_what_one_system_cannot_encode_is_no_loss_to_the_others(corpus, tmp_path, capsys):
    class Picky(Oracle):
        def encode(self, record, samples):
            if not self.encoded:
                self.encoded.append(samples)
                raise ValueError("the first is too short")
            return super().encode(record, samples)

    spans = {"q1": (0.2, 0.6), "q2": (0, 1)}
    picky = Picky(name="picky", spans=spans)
    rows = evaluate(
        [picky, Oracle()],
        load_corpus(corpus, "test"),
        [CLEAN],
        Setup(tmp_path / "out", Distorter(0), workers=1),
    )
    found = values(rows)
    assert found["oracle", "clean", None, "ff1"] == (100, 2) and found[
        "picky", "clean", None, "ff1"
    ] == (50, 2)
    failed = {
        n: read_predictions(tmp_path / f"out/predictions/{n}/clean.parquet")["failed"]
        for n in ("oracle", "picky")
    }
    assert failed == {"oracle": {}, "picky": {"p0": "the first is too short"}}
    assert "picky, clean" in capsys.readouterr().err


def test_nothing_encoded_is_an_error_and_not_a_zero(corpus, tmp_path):
    class Failing(Oracle):
        def encode(self, record, samples):
            raise ValueError("too short")

    with pytest.raises(
        InputError,
        match=(
            r"^failing, clean: none of the 6 recordings could be "
            r"encoded \(too short\)"
        ),
    ):
        run([Failing(name="failing"), Oracle()], corpus, tmp_path / "out")
    # which is kept
    assert [path.name for path in (tmp_path / "out/predictions").iterdir()] == ["oracle"]
    for path in (corpus / "test/audio").iterdir():
        path.write_bytes(b"no audio")
    refused(
        "none of the 6 recordings could be encoded", run, [Oracle()], corpus, tmp_path / "other"
    )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("content", [None, b"this is no noise"])
def test_noise_that_cannot_be_read_is_refused_before_anything_is_encoded(corpus, tmp_path, content):
    noise, system = tmp_path / "noise.wav", Oracle()
    if content:
        noise.write_bytes(content)
    refused(r"noise\.wav", run, [system], corpus, tmp_path / "out", ["clean", f"{noise}@5"])
    assert not system.encoded


def test_a_killed_evaluation_goes_on_with_what_is_missing(corpus, tmp_path, dies_in):
    conditions = ["clean", "pink@5", "reverb"]
    whole = run([Oracle()], corpus, tmp_path / "whole", conditions)
    with dies_in(Oracle, "answer_all", 2):
        run([Oracle()], corpus, tmp_path / "out", conditions)
    system = Oracle()
    assert run([system], corpus, tmp_path / "out", conditions) == whole
    # one of three conditions; what was encoded for the second was kept
    assert len(system.encoded) == 6
    assert not list((tmp_path / "out").rglob("*.features"))
    for path in (tmp_path / "whole").rglob("*.parquet"):
        assert (
            path.read_bytes()
            == (tmp_path / "out" / path.relative_to(tmp_path / "whole")).read_bytes()
        )


def test_one_passage_has_no_interval_in_results_tables_and_pages(corpus, tmp_path):
    out, one = tmp_path / "out", first_passages(load_corpus(corpus, "test"), 1)
    rows = evaluate([Oracle(text=True)], one, [CLEAN], Setup(out, Distorter(0)))
    append_rows(out / "results.jsonl", rows)
    assert {r.metric for r in rows} == {"ff1", "aos", "em", "f1", "wer"} and read_rows(
        out / "results.jsonl"
    ) == tuple(rows)
    assert all((r.low, r.high) == (None, None) for r in rows) and "[" not in results_table(rows)
    write_report(Report(out=out, corpus=corpus, examples=1, conditions=("clean",)))
    assert "In brackets: 95 % intervals" not in (out / "report.html").read_text()


@dataclass
class Engine(Oracle):
    """A cascade that is called by the last part of its recogniser's name. weights: change when it
    is trained again."""

    asr: str = ""
    weights: int = 0

    @property
    def card(self):
        return {"asr": self.asr, "text_qa": self.weights}


def engine(asr, **options):
    return Engine(text=True, name=f"cascade-{Path(asr).name}", asr=asr, **options)


def test_systems_of_one_name_are_refused_before_anything_is_encoded(corpus, tmp_path):
    first, second = engine("facebook/base-960h"), engine("other/base-960h")
    message = "two systems with another asr would be called cascade-base-960h; .* two folders"
    refused(message, run, [first, second], corpus, tmp_path / "out")
    assert not first.encoded and not (tmp_path / "out").exists()
    run([first, engine("facebook/large"), first], corpus, tmp_path / "out")


@pytest.mark.parametrize("condition", ["clean", "pink@5"])
def test_predictions_of_another_system_of_the_same_name_are_not_overwritten(
    corpus, tmp_path, monkeypatch, condition
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/base-960h").mkdir(parents=True)
    run([engine("mine/base-960h")], corpus, tmp_path / "out")
    before = contents(tmp_path / "out")
    for other, part in (
        (engine("other/base-960h"), "asr"),
        (engine("mine/base-960h", weights=2), "text_qa"),
    ):
        message = rf"clean\.parquet was made by another cascade-base-960h, with another {part} "
        refused(message, run, [other], corpus, tmp_path / "out", [condition])
        assert contents(tmp_path / "out") == before and not other.encoded
    same = engine(str(tmp_path / "mine/base-960h"))  # by another path
    run([same], corpus, tmp_path / "out")
    assert same.encoded


def test_the_same_models_under_another_name_rename_their_rows(corpus, tmp_path):
    out = tmp_path / "out"
    for models in ("ours", "renamed"):
        setup = Setup(out, Distorter(0), models=models)
        system = Oracle()
        append_results(out, evaluate([system], load_corpus(corpus, "test"), [CLEAN], setup))
        assert bool(system.encoded) == (models == "ours")
    assert {r.encoder for r in read_rows(out / "results.jsonl")} == {"renamed"}


@pytest.mark.parametrize(
    ("card", "seen", "sentence"),
    [
        ({"data": "DATA"}, "trained", "Trained on this very split: cascade-ctc."),
        ({"start_data": ["y", "DATA"]}, "trained", "Trained on this very split: cascade-ctc."),
        ({"eval_data": "DATA"}, "chosen", "Checkpoint or settings chosen on this split"),
        ({"data": "DATA", "weights": "other"}, "", ""),
        ({}, "", ""),
    ],
)
def test_what_was_trained_on_the_very_split_is_named(
    corpus, tmp_path, capsys, card, seen, sentence
):
    card = json.dumps({"weights": "0123", "data": "x"} | card)
    card = json.loads(card.replace("DATA", data_hash(corpus, "test")))
    write_json(tmp_path / "models/ctc/card.json", card)
    systems = [Engine(name="cascade-ctc", text=True, asr="0123"), Oracle(name="dual")]
    setup = Setup(tmp_path / "out", Distorter(0), parts=(tmp_path / "models",))
    rows = evaluate(systems, load_corpus(corpus, "test"), [CLEAN], setup)
    assert capsys.readouterr().err.count("it may score less") == bool(seen)
    assert {(r.system, r.seen) for r in rows} == {("cascade-ctc", seen), ("dual", "")}
    assert sentence in results_table(rows)


def test_seeds_of_simulated_errors_are_of_one_system():
    assert find_difference({"errors": "a", "seed": 0}, {"errors": "a", "seed": 1}) == ""
    assert find_difference({"errors": "a", "seed": 0}, {"errors": "b", "seed": 0}) == "errors"
    assert find_difference({"dual": "a"}, {"dual": "a", "bf16": True}) == find_difference(
        {"dual": "a", "bf16": True}, {"dual": "a"}
    )


# ---- answers of other systems are scored as ours, and refused where they are not of the questions
# asked


@pytest.fixture
def annotated(tmp_path):
    """Three questions, two of them with times; one has no answer."""
    root = tmp_path / "corpus"
    (root / "dev").mkdir(parents=True)
    (root / "p.flac").touch()
    answers = {
        "a": (Answer("red boat", 0.5, 1.0),),
        "b": (Answer("two", 1.0, 1.5), Answer("two cats", 1.0, 2.0)),
        "c": (),
    }
    write_records(
        root / "dev/passages.jsonl", [Passage("p", "p.flac", 2.0, "a red boat", "", "en")]
    )
    write_records(
        root / "dev/questions.jsonl",
        [Question(i, "p", "", 0.0, "what", "", "en", a) for i, a in answers.items()],
    )
    return root


def scores(annotated, tmp_path, predictions, name="mine", condition="clean"):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(predictions))
    options = Predictions(
        corpus=annotated,
        out=tmp_path / "out",
        file=file,
        name=name,
        split="dev",
        condition=condition,
    )
    printed = import_predictions(options)
    return printed, {
        (r.system, r.metric): (r.value, r.n) for r in read_rows(tmp_path / "out/results.jsonl")
    }


def test_texts_are_scored_by_text(annotated, tmp_path):
    printed, found = scores(annotated, tmp_path, {"a": "The red boat!", "c": "", "b": "two dogs"})
    assert found == {
        ("mine", "em"): (50, 2),
        ("mine", "f1"): (pytest.approx(100 * (1 + 2 / 3) / 2), 2),
    }
    assert printed.startswith(
        "mine: 2 answered, 0 with no answer given, 0 not in the file; "
        "scores are over all 2 questions"
    )


def test_times_are_scored_by_time_and_both_by_both(annotated, tmp_path):
    printed, found = scores(annotated, tmp_path, {"b": [1.0, 2.0]})
    assert found == {("mine", "ff1"): (50, 2), ("mine", "aos"): (50, 2)}
    assert "1 answered, 0 with no answer given, 1 not in the file" in printed
    _, found = scores(annotated, tmp_path, {"a": {"text": "boat", "start": 0.5, "end": 1}}, "both")
    assert {metric: value for (name, metric), (value, _) in found.items() if name == "both"} == {
        **{"ff1": 50, "aos": 50, "em": 0},
        "f1": pytest.approx(100 / 3),
    }


@pytest.mark.parametrize(
    ("predictions", "counts"),
    [
        ({"a": "red boat", "b": None}, (1, 1, 0)),
        ({"a": "red boat", "b": ""}, (1, 1, 0)),
        ({"a": "red boat"}, (1, 0, 1)),
        ({"b": None}, (0, 1, 1)),
        ({"c": "x"}, (0, 0, 2)),  # a question that has no answer is not asked
        ({"a": "x", "b": "y", "c": "z"}, (2, 0, 0)),
    ],
)
def test_no_answer_given_and_not_in_the_file_are_counted_apart(
    annotated, tmp_path, predictions, counts
):
    printed, found = scores(annotated, tmp_path, predictions)
    names = ("answered", "with no answer given", "not in the file")
    text = ", ".join(f"{count} {name}" for count, name in zip(counts, names, strict=True))
    assert printed.startswith(f"mine: {text}; scores are over all 2 questions, ") and {
        n for _, n in found.values()
    } <= {2}
    for folder in ("predictions", "scores"):
        card = read_card(tmp_path / "out" / folder / "mine/clean.parquet")
        assert card["counts"] == dict(zip(names, counts, strict=True))


def test_a_name_is_no_path_and_other_predictions_of_the_same_name_are_not_replaced(
    annotated, tmp_path
):
    with pytest.raises(
        InputError, match=("'mine/2' cannot be the name of a system; give a --name without slashes")
    ):
        scores(annotated, tmp_path, {"a": "boat"}, "mine/2")
    assert not (tmp_path / "out").exists()
    scores(annotated, tmp_path, {"a": "boat"})
    scores(annotated, tmp_path, {"a": "boat"})
    refused(
        "holds other predictions called mine; give another --name",
        scores,
        annotated,
        tmp_path,
        {"a": "boats"},
    )
    write_items(tmp_path / "out/predictions/dual/clean.parquet", [], {"card": {"dual": "0123"}})
    before = contents(tmp_path / "out")
    for condition in ("clean", "pink@5"):
        call = (annotated, tmp_path, {"a": "boats"}, "dual", condition)
        refused(
            "clean.parquet holds answers of a system of `evaluate` called dual; give another --name",
            scores,
            *call,
        )
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([], "holds no answers; write a JSON object of question id"),
        ({}, "holds no answers"),
        ({"x": "boat"}, "has the question x, which is not in .*"),
        ({"a": 3}, "the answer of a is 3"),
        ({"a": [1.0]}, "the answer of a"),
        ({"a": [2.0, 1.0]}, "the answer of a"),
        ({"a": [True, 1.0]}, "the answer of a"),
        ({"a": {"words": "boat"}}, "the answer of a"),
        ({"a": {"text": None}}, "the answer of a"),
        ({"a": {"text": "boat", "start": 1.0}}, "the answer of a"),
    ],
)
def test_what_is_no_prediction_is_one_sentence_and_leaves_nothing(
    annotated, tmp_path, predictions, message
):
    refused(message, scores, annotated, tmp_path, predictions)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("many", "unit"),
    [
        (50, "like frames of 20 ms"),
        (1000, "like milliseconds"),
        (16_000, "like samples at 16 kHz"),
        (1e8, "give seconds from"),
    ],
)
def test_times_that_are_no_seconds_are_refused_with_their_unit(annotated, tmp_path, many, unit):
    predictions = {"a": [0.5 * many, 1.0 * many], "b": [1.0 * many, 1.5 * many]}
    message = (
        "2 of 2 timed answers end after their passages .that of a at .*its passage at "
        f"2.00 s.*{unit}"
    )
    refused(message, scores, annotated, tmp_path, predictions)
    assert not (tmp_path / "out").exists()


def test_a_time_beyond_its_passage_is_named_on_stderr(annotated, tmp_path, capsys):
    _, found = scores(annotated, tmp_path, {"a": [0.5, 1.0], "b": [3.0, 4.0]})
    assert found["mine", "ff1"] == (50, 2)
    assert (
        "1 of 2 timed answers end after their passages (that of b at 4 s, its passage at 2.00 s)"
    ) in capsys.readouterr().err
    scores(annotated, tmp_path, {"a": [0.5, 1.0], "b": [1.0, 2.04]}, "inside")
    assert "after their passages" not in capsys.readouterr().err


# ---- from the command line, on corpora that are text only


def answer(corpus, out, systems, **more):
    return run_evaluation(
        Qa(**{"corpus": corpus, "out": out, "systems": systems, "conditions": ("clean",)} | more)
    )


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """One passage as a recogniser wrote it, and a written question."""
    root = tmp_path / "corpus"
    write_passage(
        root,
        Passage(
            "p", "", 0.0, "", "", "en", transcript=("anna lost a sliver lantern near oak field")
        ),
    )
    (root / "card.json").write_text("{}")
    return root


def write_passage(root: Path, passage: Passage) -> None:
    write_records(root / "test/passages.jsonl", [passage])
    asked = Question(
        "q", "p", "", 0.0, "what did anna lose", "", "en", (Answer("a silver lantern"),)
    )
    write_records(root / "test/questions.jsonl", [asked])


def test_transcripts_of_the_corpus_are_read_with_written_questions(
    given: Path, tmp_path: Path
) -> None:
    printed = answer(given, tmp_path / "out", ("cascade-given",))
    rows = {r.metric: r for r in read_rows(tmp_path / "out/results.jsonl")}
    # no reference: nothing to count word errors against
    assert rows.keys() == {"em", "f1"} and "cascade-given" in printed
    assert rows["f1"].value > 0 and rows["f1"].n == 1


def test_a_corpus_without_transcripts_is_one_sentence(given: Path, tmp_path: Path) -> None:
    write_passage(given, Passage("p", "", 0.0, "anna lost a silver lantern", "", "en"))
    refused(
        "has no transcripts for cascade-given; use the system text",
        answer,
        given,
        tmp_path / "out",
        ("cascade-given",),
    )
    assert not (tmp_path / "out").exists()
