"""Evaluation of spoken question answering: every annotation counts, bad recordings are set aside, a
killed run goes on, and answers of other systems are imported."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from speechssl.artifacts import write_json
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.cascade.readers import TextQa, WordSpan
from speechssl.cascade.system import CascadeSystem
from speechssl.data.records import QUESTIONS, hash_data, hash_questions, load_corpus
from speechssl.dual.system import TimedAnswer
from speechssl.eval.imported import import_predictions
from speechssl.eval.options import Predictions, Qa
from speechssl.eval.predict import read_card, read_predictions, write_items
from speechssl.eval.score import find_seen
from speechssl.eval.spoken_qa import Setup, evaluate, run_evaluation
from speechssl.report.build import write_report
from speechssl.report.options import Report
from speechssl.results import SEEN, append_rows, format_results, read_rows

from ..files import change_lines, contents, refused, untouched, write_corpus, write_lines

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
    """A corpus of the questions of ANSWERS, on a passage of 2 s each."""
    passages, questions = [], []
    for i, (name, answers) in enumerate(ANSWERS.items()):
        passages.append({"id": f"p{i}", "seconds": 2.0, "text": "a red boat"})
        question = {"id": name, "passage": f"p{i}", "seconds": 1.0, "text": "a"}
        questions.append(question | {"answers": answers})
    return write_corpus(tmp_path / "corpus", "test", passages=passages, questions=questions)


@dataclass
class Oracle:
    """A system that gives the answers in `spans`, in their order, and keeps in `encoded` the
    samples that it encodes. text: whether it is a cascade, with a transcript "a boat"."""

    spans: dict = field(
        default_factory=lambda: {"q0": (0.5, 1.0), "q1": (0.2, 0.6), "q2": (0.0, 1.0)}
    )
    text: bool = False
    name: str = "oracle"
    asr: str = ""  # its recogniser
    encoded: list = field(default_factory=list)
    needs_audio: bool = True

    @property
    def card(self):
        return {"asr": self.asr}

    def encode(self, record, samples):
        self.encoded.append(samples)
        if self.text:
            return Transcript((TimedWord("a", 0, 1, 1), TimedWord("boat", 1, 2, 1)))
        return len(samples)

    def answer_all(self, items):
        text = "red boat" if self.text else None
        spans = list(self.spans.values())[: len(items)]
        return [TimedAnswer(*span, 0.9, text) for span in spans]


def run(systems, corpus, out, conditions=("clean",)):
    setup = Setup(out, Distorter())
    parsed = [parse_condition(condition) for condition in conditions]
    return evaluate(systems, load_corpus(corpus, "test"), parsed, setup)


def values_of(rows):
    """Return (value, number of questions or passages) by system, condition, SNR and metric."""
    return {(r.system, r.condition, r.snr_db, r.metric): (r.value, r.n) for r in rows}


def test_the_best_annotation_counts_and_text_only_answers_have_no_ff1(corpus, tmp_path):
    system = Oracle()
    scores = values_of(run([system], corpus, tmp_path / "out"))
    assert scores == {("oracle", "clean", None, metric): (100, 2) for metric in ("ff1", "aos")}
    assert len(system.encoded) == 6  # q3, which has no answer, and its passage are not encoded


@pytest.mark.parametrize(
    ("language", "lost", "em", "error_rate"),
    [
        ("en", (), 100 / 3, 100 / 3),
        ("en", ("p1",), 100 / 3, 500 / 9),
        ("en", ("p0", "p1", "p2"), 0, 100),
        ("zh", (), 100 / 3, 100),  # "a boat" has none of the three characters
    ],
)
def test_every_word_of_a_passage_that_a_cascade_could_not_recognise_is_missing(
    corpus, tmp_path, language, lost, em, error_rate
):
    """lost: passages that cannot be read. Of the three words of others, "a boat" lacks one. The
    answer "red boat" is right once."""
    if language == "zh":
        change_lines(corpus / "test/questions.jsonl", {"language": "zh"})
        change_lines(corpus / "test/passages.jsonl", {"language": "zh", "text": "他買了"})
    for name in lost:
        (corpus / f"test/audio/{name}.flac").write_bytes(b"nothing")
    scores = values_of(run([Oracle(text=True, name="cascade-x")], corpus, tmp_path / "out"))
    metric = "cer" if language == "zh" else "wer"
    assert {name for *_, name in scores} == {"ff1", "aos", "em", "f1", metric}
    assert scores["cascade-x", "clean", None, metric] == (pytest.approx(error_rate), 3)
    assert scores["cascade-x", "clean", None, "em"] == (pytest.approx(em), 3)


def test_a_cascade_reads_questions_that_are_only_written_and_others_cannot_be_asked(
    corpus, tmp_path, capsys
):
    change_lines(corpus / "test/questions.jsonl", {"audio": "", "seconds": 0, "text": "which boat"})
    questions_read = []

    class WholePassageReader:
        """A reader whose answer is the whole passage."""

        def read(self, items):
            questions_read.extend(question.text for question, _ in items)
            span = WordSpan(first=0, last=1, text="red boat", score=1.0, null=0.0, confidence=0.9)
            return [span for _ in items]

    def transcribe(record, samples):
        return Transcript((TimedWord("red", 0.5, 0.7, 1), TimedWord("boat", 0.7, 1.0, 1)))

    qa = TextQa(WholePassageReader())
    cascade = CascadeSystem("cascade-x", transcribe, qa, card={"asr": "x"})
    scores = values_of(run([cascade, Oracle()], corpus, tmp_path / "out", ["clean", "pink@5"]))
    for condition in (("clean", None), ("pink", 5.0)):
        assert scores["cascade-x", *condition, "em"] == (pytest.approx(100 / 3), 3)
        assert scores["oracle", *condition, "ff1"] == (0, 2)
    assert questions_read == ["which boat"] * 6  # three questions in two conditions
    assert "3 of the questions have no recording" in capsys.readouterr().err
    for name, failed in (("cascade-x", set()), ("oracle", {"q0", "q1", "q2"})):
        path = tmp_path / f"out/predictions/{name}/clean.parquet"
        assert set(read_predictions(path)["failed"]) == failed


NAN = float("nan")


@dataclass
class TextReader(Oracle):
    """A system that reads the text of records, without audio, and always answers "red boat"."""

    needs_audio: bool = False
    name: str = "text"

    def encode(self, record, samples):
        assert samples is None
        return Transcript(tuple(TimedWord(w, NAN, NAN, 1) for w in record.text.split()))

    def answer_all(self, items):
        return [TimedAnswer(NAN, NAN, 0.9, "red boat") for _ in items]


def test_a_system_that_reads_needs_no_audio_and_is_scored_by_text_in_clean_speech_alone(
    corpus, tmp_path
):
    for path in (corpus / "test/audio").iterdir():
        path.unlink()
    without_audio = {"audio": "", "seconds": 0}
    change_lines(corpus / "test/passages.jsonl", without_audio)
    change_lines(
        corpus / "test/questions.jsonl",
        lambda q: q | without_audio | {"answers": [{"text": a["text"]} for a in q["answers"]]},
    )
    scores = values_of(run([TextReader()], corpus, tmp_path / "out", ["clean", "pink@5"]))
    assert scores == {
        ("text", "clean", None, "em"): (pytest.approx(100 / 3), 3),
        ("text", "clean", None, "f1"): (pytest.approx(100 / 3), 3),
        ("text", "clean", None, "wer"): (0, 3),
    }
    predictions = read_predictions(tmp_path / "out/predictions/text/clean.parquet")
    assert predictions["answers"]["q0"]["start"] is None
    append_rows(tmp_path / "out/results.jsonl", run([TextReader()], corpus, tmp_path / "out"))
    write_report(Report(out=tmp_path / "out", corpus=corpus, examples=3, conditions=("clean",)))
    refused("noise does not change", run, [TextReader()], corpus, tmp_path / "out", ["pink@5"])
    refused("text only; prepare .* --speak", run, [Oracle()], corpus, tmp_path / "other")


def test_bad_recordings_are_set_aside_counted_and_tried_again_when_mended(corpus, tmp_path, capsys):
    audio = corpus / "test/audio/p0.flac"
    content = audio.read_bytes()
    audio.write_bytes(b"no audio")
    system = Oracle(spans={"q1": (0.2, 0.6), "q2": (0, 1)})
    scores = values_of(run([system, TextReader()], corpus, tmp_path / "out"))
    assert scores["oracle", "clean", None, "ff1"] == (50, 2)
    # the system that reads needs no recording
    assert read_predictions(tmp_path / "out/predictions/text/clean.parquet")["failed"] == {}
    assert capsys.readouterr().err.count("set aside p0") == 1
    audio.write_bytes(content)
    scores = values_of(run([Oracle()], corpus, tmp_path / "out"))
    assert scores["oracle", "clean", None, "ff1"] == (100, 2)


def test_nothing_encoded_is_an_error_and_not_a_zero(corpus, tmp_path):
    class Failing(Oracle):
        def encode(self, record, samples):
            raise ValueError("too short")

    out = tmp_path / "out"
    refused("^failing, clean: .* 6 .*too short", run, [Failing(name="failing")], corpus, out)
    for path in (corpus / "test/audio").iterdir():
        path.write_bytes(b"no audio")
    refused("none of the 6 recordings", run, [Oracle()], corpus, out)
    assert not out.exists()


def test_a_killed_evaluation_goes_on_with_what_is_missing(corpus, tmp_path, dies_in):
    conditions = ["clean", "pink@5", "reverb"]
    whole = run([Oracle()], corpus, tmp_path / "whole", conditions)
    with dies_in(Oracle, "answer_all", 2):
        run([Oracle()], corpus, tmp_path / "out", conditions)
    system = Oracle()
    assert run([system], corpus, tmp_path / "out", conditions) == whole
    # the first condition is finished, and the second is encoded: six recordings of the third
    assert len(system.encoded) == 6
    assert not list((tmp_path / "out").rglob("*.features"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_system_of_the_same_name_is_refused_before_anything_is_encoded(corpus, tmp_path):
    first, second, out = Oracle(asr="mine"), Oracle(asr="other"), tmp_path / "out"
    refused("oracle", run, [first, second], corpus, out)
    assert not first.encoded
    run([first, first], corpus, out)
    with untouched(out):
        refused(r"clean\.parquet .* another asr", run, [second], corpus, out, ["pink@5"])
    assert not second.encoded


@pytest.mark.parametrize(("key", "seen"), [("data", "trained"), ("eval_data", "chosen")])
def test_a_system_that_was_trained_on_this_very_split_is_named(corpus, tmp_path, capsys, key, seen):
    card = {"weights": "0123", "data": "x", key: hash_data(corpus, "test")}
    write_json(tmp_path / "models/ctc/card.json", card)
    systems = [Oracle(text=True, name="cascade-ctc", asr="0123"), Oracle(name="dual")]
    setup = Setup(tmp_path / "out", Distorter(0), parts=(tmp_path / "models",))
    rows = evaluate(systems, load_corpus(corpus, "test"), [CLEAN], setup)
    assert capsys.readouterr().err.count("it may score less") == 1
    assert {(r.system, r.seen) for r in rows} == {("cascade-ctc", seen), ("dual", "")}
    assert f"{SEEN[seen]}: cascade-ctc." in format_results(rows)


@pytest.mark.parametrize(
    # one question in common may be chance, two are not
    ("texts", "seen"),
    [(["WHAT did she see", "And he"], "questions"), (["And he?", "Who?"], "")],
)
def test_a_reader_that_was_trained_on_these_questions_in_another_corpus_is_named(
    corpus, tmp_path, texts, seen
):
    data = load_corpus(corpus, "test")
    first, second, *others = data.questions
    first, second = replace(first, text="What did she see?"), replace(second, text="And he?")
    data = replace(data, questions=(first, second, *others))
    folder = tmp_path / "models/text-qa"
    write_json(folder / "card.json", {"weights": "0123", "data": "x"})
    trained_on = [replace(first, id=f"other-{i}", text=text) for i, text in enumerate(texts)]
    np.save(folder / QUESTIONS, hash_questions(trained_on))
    system = Oracle(name="text", asr="0123")
    assert find_seen("y", data, system, [tmp_path / "models"]) == seen


# ---- answers of other systems are imported, or refused where they are not of these questions


@pytest.fixture
def annotated(tmp_path):
    """A corpus of three questions about one passage: a has one annotation, b two, c no answer."""
    answers = {
        "a": [{"text": "red boat", "start": 0.5, "end": 1.0}],
        "b": [
            {"text": "two", "start": 1.0, "end": 1.5},
            {"text": "two cats", "start": 1.0, "end": 2.0},
        ],
        "c": [],
    }
    question = {"passage": "p", "text": "what"}
    questions = [question | {"id": name, "answers": a} for name, a in answers.items()]
    passage = {"id": "p", "seconds": 2.0, "text": "a red boat"}
    return write_corpus(tmp_path / "corpus", "dev", passages=[passage], questions=questions)


@pytest.fixture
def import_and_score(annotated, tmp_path):
    """A function (predictions, or lines of VoiceBench) that imports them and returns what is
    printed, and (value, number of questions) by metric."""

    def run(predictions, name="mine", condition="clean"):
        file, out = tmp_path / "mine.json", tmp_path / "out"
        file.write_text(json.dumps(predictions))
        if isinstance(predictions, list):
            file = tmp_path / "mine.jsonl"
            write_lines(file, predictions)
        places = {"corpus": annotated, "out": out, "file": file, "split": "dev"}
        printed = import_predictions(Predictions(**places, name=name, condition=condition))
        scores = {r.metric: (r.value, r.n) for r in read_rows(out / "results.jsonl")}
        return printed, scores

    return run


@pytest.mark.parametrize(
    ("predictions", "metrics", "counts"),
    [
        ({"a": "The red boat!", "c": "", "b": "two dogs"}, {"em": 50, "f1": 250 / 3}, (2, 0, 0)),
        ({"b": [1.0, 2.0]}, {"ff1": 50, "aos": 50}, (1, 0, 1)),
        (
            {"a": {"text": "boat", "start": 0.5, "end": 1}},
            {"ff1": 50, "aos": 50, "em": 0, "f1": 100 / 3},
            (1, 0, 1),
        ),
        ({"a": "red boat", "b": ""}, {"em": 50, "f1": 50}, (1, 1, 0)),
        # a question that has no answer is not asked
        ({"c": "x"}, {"ff1": 0, "aos": 0}, (0, 0, 2)),
    ],
)
def test_texts_are_scored_by_text_and_times_by_time(
    import_and_score, tmp_path, predictions, metrics, counts
):
    printed, scores = import_and_score(predictions)
    assert scores == {metric: (pytest.approx(x), 2) for metric, x in metrics.items()}
    assert printed.startswith(f"mine: {counts[0]} answered, ")
    names = ("answered", "with no answer given", "not in the file")
    for folder in ("predictions", "scores"):
        card = read_card(tmp_path / "out" / folder / "mine/clean.parquet")
        assert card["counts"] == dict(zip(names, counts, strict=True))


def test_a_name_is_no_path_and_not_that_of_an_evaluated_system(import_and_score, tmp_path):
    refused("mine/2", import_and_score, {"a": "boat"}, "mine/2")
    assert not (tmp_path / "out").exists()
    import_and_score({"a": "ship"})
    _, scores = import_and_score({"a": "red boat"})
    assert scores["em"] == (50, 2)  # the file has changed
    write_items(tmp_path / "out/predictions/dual/clean.parquet", [], {"card": {"dual": "0123"}})
    with untouched(tmp_path / "out"):
        refused("clean.parquet .* dual", import_and_score, {"a": "boats"}, "dual", "pink@5")


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ({}, "mine.json holds no answers"),
        (3, "mine.json: .* an object is expected; write a JSON object"),
        ({"x": "boat"}, "the question x"),
        ({"a": 3}, "the answer of a: the record is a whole number"),
        ({"a": [2.0, 1.0]}, "the answer of a"),
        ({"a": {"text": "boat", "start": 1.0}}, "the answer of a"),
        ({"a": [500.0, 1000.0], "b": [1000.0, 1500.0]}, "2 of 2 .*milliseconds"),
        # lines of VoiceBench; the three questions are "what"
        ([{"prompt": "what", "response": x} for x in "xy"], "'what' has 2 responses for 3"),
        (
            [{"prompt": "who", "response": "nobody"}],
            "1 of 1 prompts .* give its corpus and --split",
        ),
        ([{"prompt": "what"}], "mine.jsonl:1: .*`response`"),
    ],
)
def test_a_file_that_holds_no_predictions_is_refused_and_leaves_nothing(
    import_and_score, tmp_path, predictions, message
):
    refused(message, import_and_score, predictions)
    assert not (tmp_path / "out").exists()


def test_voicebench_gives_a_response_to_each_question_of_the_same_words(import_and_score, tmp_path):
    import_and_score([{"prompt": "what", "response": text} for text in ("wrong", "two", "three")])
    answers = read_predictions(tmp_path / "out/predictions/mine/clean.parquet")["answers"]
    assert {name: answer["text"] for name, answer in answers.items()} == {"a": "wrong", "b": "two"}


def test_voicebench_names_questions_by_their_words(import_and_score, capsys):
    lines = [{"prompt": "WHAT?", "reference": "two", "response": "Two.", "score": ["Yes"]}]
    lines += [{"prompt": "who", "reference": "", "response": "nobody"}]
    # all three questions are "what"; of the two with an answer, "two" answers one
    _, scores = import_and_score(lines)
    assert scores == {"em": (50, 2), "f1": (50, 2)}
    assert "mine.jsonl: 1 of 2 prompts are no questions of" in capsys.readouterr().err


# ---- from the command line, on corpora that are text only


def test_transcripts_of_the_corpus_are_read_with_written_questions(tmp_path):
    passage = {"id": "p", "transcript": "anna lost a sliver lantern near oak field"}
    question = {"id": "q", "passage": "p", "text": "what did anna lose"}
    question["answers"] = [{"text": "a silver lantern"}]
    root, out = tmp_path / "corpus", tmp_path / "out"
    write_corpus(root, "test", passages=[passage], questions=[question])
    o = Qa(corpus=root, out=out, systems=("cascade-given",), conditions=("clean",))
    run_evaluation(o)
    rows = {r.metric: r for r in read_rows(out / "results.jsonl")}
    # no reference: nothing to count word errors against
    assert rows.keys() == {"em", "f1"}
    assert rows["f1"].value > 0
    change_lines(root / "test/passages.jsonl", {"transcript": "", "text": "a lantern"})
    refused("use the system text", run_evaluation, o)
