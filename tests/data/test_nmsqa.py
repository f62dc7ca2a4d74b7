"""NMSQA in every layout, with every fault that the release has: what is kept, where answers are, what is counted."""

import importlib.util
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from speechssl.audio import SAMPLE_RATE, read_audio, read_native, resample
from speechssl.data import nmsqa, prepare
from speechssl.data.join import Joined
from speechssl.data.nmsqa import prepare_nmsqa
from speechssl.data.nmsqa_release import parquet_rows
from speechssl.data.prepare import Wanted, described
from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.io import read_json

SPEC = importlib.util.spec_from_file_location("nmsqa_miniature", Path(__file__).with_name("nmsqa_miniature.py"))
mini = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = mini
SPEC.loader.exec_module(mini)

DATA = Path(__file__).parents[3] / "shared" / "data"


def real(*parts):
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the shared data folder is absent ({'/'.join(parts)})")
    return path


@pytest.fixture
def dev(tmp_path):
    """Parquet, a passage of four sentences with a question each, all recordings there."""
    root = tmp_path / "nmsqa"
    mini.write_table(root / "dev.parquet", [mini.row(k) for k in range(4)])
    mini.write_sentences(root / "dev_audios")
    for k in range(4):
        mini.write_question(root / "dev_audios", f"question-0_0_{k}")
    mini.write_json(root / "dev_segment_id.json", {"0_0": ["0", "1", "2", "3"]})
    return root


def prepared(source, tmp_path, split="dev", **options):
    out = tmp_path / "out"
    report = prepare_nmsqa(source, out, Wanted(**options))
    described(report)
    return mini.Found(report, split), load_corpus(out, split)


def heard(corpus, question):
    """Whether every time of a question's answers is a beep in the passage's recording."""
    passage = corpus.path(corpus.passages[question.passage])
    times = [(a.start, a.end) for a in question.answers if a.start is not None]
    assert times
    return all(mini.is_beep(passage, *time) for time in times)


def test_times_of_dev_are_moved_by_the_exact_lengths_before_them(dev, tmp_path):
    found, corpus = prepared(dev, tmp_path)
    assert [q.id for q in corpus.questions] == [f"id-0_0-{k}" for k in range(4)] and all(heard(corpus, q) for q in corpus.questions)
    for k, question in enumerate(corpus.questions):
        text, start, end = mini.ANSWERS[k]
        (answer,) = question.answers
        assert (answer.text, mini.CONTEXT[answer.char_start :][: len(text)]) == (text, text)
        assert answer.start == pytest.approx(mini.before(k) + start, abs=1e-9) and answer.end == pytest.approx(
            mini.before(k) + end, abs=1e-9
        )
    (passage,) = corpus.passages.values()
    assert (
        passage.seconds
        == math.ceil(sum(mini.LENGTHS) * SAMPLE_RATE / mini.RATE) / SAMPLE_RATE
        == len(read_audio(corpus.path(passage))) / SAMPLE_RATE
    )
    assert (passage.id, passage.audio, passage.speaker, passage.text) == (
        "context-0_0",
        "dev/audio/context-0_0.flac",
        "Ivy",
        mini.CONTEXT,
    )
    assert found.remarks(nmsqa.ADDED[0]) == 3 and found.remarks(nmsqa.CONFIRMED[0]) == 1  # those of the first sentence
    assert found.remarks(nmsqa.COPIES[0]) == 3 and found.remarks(prepare.REPEATED[0]) == 8
    assert found.facts["with_times"] == 4 and found.facts["answer_in_context"] == 1
    assert (
        Path(corpus.questions[0].audio).is_absolute()
        and corpus.questions[0].speaker == "Joey"
        and corpus.questions[0].seconds == 1.0
    )


@pytest.mark.slow
def test_the_whole_is_the_same_with_several_processes(dev, tmp_path):
    _, one = prepared(dev, tmp_path)
    report = prepare_nmsqa(dev, tmp_path / "two", Wanted(workers=2))
    two = load_corpus(tmp_path / "two", "dev")
    assert (
        one.questions == two.questions and one.passages == two.passages and report == read_json(tmp_path / "out/data_report.json")
    )


def test_a_finished_folder_is_left_alone(dev, tmp_path, capsys, monkeypatch):
    found, _ = prepared(dev, tmp_path)
    monkeypatch.setattr(prepare, "in_parallel", lambda *_: pytest.fail("this was made before"))
    assert prepare_nmsqa(dev, tmp_path / "out") == found.report
    assert "it is left as it is" in capsys.readouterr().err
    with pytest.raises(InputError, match="other settings"):
        prepare_nmsqa(dev, tmp_path / "out", Wanted(speak=True))
    mini.write_question(dev / "dev_audios", "question-0_0_9")  # it is not made from this source any more
    with pytest.raises(InputError, match="other settings"):
        prepare_nmsqa(dev, tmp_path / "out")


def test_a_corpus_that_is_put_into_its_source_is_not_read_as_such(dev, tmp_path):
    report = prepare_nmsqa(dev, dev / "out")
    (dev / "out/card.json").unlink()
    assert prepare_nmsqa(dev, dev / "out") == report == prepare_nmsqa(dev, tmp_path / "other")


def test_what_a_kill_left_is_finished(dev, tmp_path):
    found, corpus = prepared(dev, tmp_path)
    for name in ("card.json", "dev/questions.jsonl", "dev/audio/context-0_0.json"):
        (tmp_path / "out" / name).unlink()
    again, other = prepared(dev, tmp_path)
    assert again.report == found.report and other.questions == corpus.questions


def test_the_77_are_kept_as_text_and_set_aside_where_there_is_audio(dev, tmp_path):
    mini.write_table(dev / "dev.parquet", [mini.row(1), mini.silent_row(2, 7)])
    mini.write_json(dev / "dev-hash2question.json", {"id-0_0-1": "question-0_0_1", "id-0_0-7": "question-0_0_7"})
    found, corpus = prepared(dev, tmp_path)
    assert [q.id for q in corpus.questions] == ["id-0_0-1"] and found.aside(nmsqa.NO_RECORDING) == 1
    lines = [json.loads(line) for line in (tmp_path / "out/set_aside.jsonl").read_text().splitlines()]
    assert lines == [{"split": "dev", "kind": "questions", "id": "id-0_0-7", "reason": nmsqa.NO_RECORDING}]
    report = prepare_nmsqa(dev / "dev.parquet", tmp_path / "text")  # beside it there are recordings: the same
    assert report["splits"]["dev"]["questions"]["set_aside"] == 1
    mini.write_question(dev / "dev_audios", "question-0_0_7")  # the original release has what the table does not name
    report = prepare_nmsqa(dev, tmp_path / "more")
    corpus = load_corpus(tmp_path / "more", "dev")
    assert [a.start for q in corpus.questions for a in q.answers][1] is None and corpus.questions[1].passage == "context-0_0"
    assert mini.Found(report).remarks(nmsqa.TEXTLESS[0]) == 1


def test_without_recordings_a_split_is_text_only_and_its_times_are_not_lost(dev, tmp_path):
    rows = [mini.row(0), mini.row(2), mini.silent_row(1, 9)]
    mini.write_table(tmp_path / "alone" / "dev.parquet", rows)
    found, corpus = prepared(tmp_path / "alone", tmp_path)
    assert len(corpus.questions) == 3 and {q.audio for q in corpus.questions} == {p.audio for p in corpus.passages.values()} == {""}
    assert all(a.start is None and a.char_start is not None for q in corpus.questions for a in q.answers)
    assert len(corpus.passages) == 1 and found.remarks(nmsqa.TEXT_ONLY[0]) == 1
    assert found.remarks(prepare.NO_RECORDINGS[0]) == 3
    kept = read_json(tmp_path / "out/dev/released_times.json")
    assert kept["id-0_0-2"] == [{"segment": "context-0_0_2", "in_segment": [1.2, 1.7], "in_passage": [1.2, 1.7]}]
    assert not found.facts["questions"]["agrees"] and "published 10,570 (DIFFERENT)" in described(found.report)
    assert found.report["absent"] == ["train", "test"] and "train: not in the source" in described(found.report)


def test_offsets_that_are_floating_point_numbers_are_offsets(tmp_path):
    """One row without any makes pandas write them so."""
    table = tmp_path / "dev.parquet"
    answers = {"text": ["the old mill", "a lamp"], "answer_start": [20.0, float("nan")]}
    parquet.write_table(pa.Table.from_pylist([mini.row(0) | {"answers": answers}]), table)
    assert [row.texts for row in parquet_rows(table)] == [(("the old mill", 20), ("a lamp", None))]


def test_answers_that_are_times_alone_are_set_aside_where_there_is_nothing_to_hear(tmp_path):
    rows = [mini.row(0), mini.row(1, answers={"text": [], "answer_start": []})]
    mini.write_table(tmp_path / "alone" / "dev.parquet", rows)
    found, corpus = prepared(tmp_path / "alone", tmp_path)
    assert [q.id for q in corpus.questions] == ["id-0_0-0"]
    assert found.facts["set_aside"] == {nmsqa.TIMES_ALONE: 1}


# ---- sentences that are missing


def test_a_sentence_that_the_release_misses_shifts_no_time(dev, tmp_path):
    mini.write_json(dev / "dev_segment_id.json", {"0_0": ["0", "2", "3"]})
    (dev / "dev_audios/context-0_0_1.wav").unlink()
    found, corpus = prepared(dev, tmp_path)
    assert [q.id for q in corpus.questions] == ["id-0_0-0", "id-0_0-2", "id-0_0-3"] and all(
        heard(corpus, q) for q in corpus.questions
    )
    assert corpus.questions[1].answers[0].start == pytest.approx(mini.before(2, (1,)) + 1.2, abs=1e-9)
    assert found.remarks(nmsqa.HOLES[0]) == 1 and found.aside(nmsqa.ANSWER_MISSING) == 1


def test_a_listed_sentence_that_the_source_misses_sets_its_passage_aside(dev, tmp_path):
    rows = [mini.row(k, p) for p in ("0_0", "0_1") for k in range(4)]
    mini.write_table(dev / "dev.parquet", [r | {"context": r["context"] + r["id"][3:6]} for r in rows])
    mini.write_json(dev / "dev_segment_id.json", {"0_0": ["0", "1", "2", "3"], "0_1": ["0", "1", "2", "3"]})
    mini.write_sentences(dev / "dev_audios", "context-0_1_{}", (0, 1, 3))
    mini.write_question(dev / "dev_audios", "question-0_1_0")
    found, corpus = prepared(dev, tmp_path)
    assert list(corpus.passages) == ["context-0_0"] and found.facts["passages"] == {
        "read": 2, "kept": 1, "set_aside": 1, "published": 2067, "agrees": False,
    }  # fmt: skip
    assert found.aside(nmsqa.NOT_WHOLE) == 1 and found.aside(nmsqa.ITS_PASSAGE) == 4
    first = json.loads((tmp_path / "out/set_aside.jsonl").read_text().splitlines()[0])
    assert first["missing"] == ["context-0_1_2"]


def test_a_recording_of_the_whole_stands_in_where_its_sentences_are_not_there(dev, tmp_path):
    """Only times of the first sentence hold in it, unless the meta table says how long the sentences are."""
    (dev / "whole").mkdir()
    whole = np.concatenate([mini.sentence(k) for k in range(4)])
    mini.write_clip(dev / "dev_audios/context-0_0.wav", whole, 0.0, 99.0, mini.RATE)
    for k in range(4):
        (dev / f"dev_audios/context-0_0_{k}.wav").unlink()
    found, corpus = prepared(dev, tmp_path)
    assert [q.answers[0].start is not None for q in corpus.questions] == [True, False, False, False] and heard(
        corpus, corpus.questions[0]
    )
    assert found.remarks(nmsqa.ADRIFT[0]) == 3 and Path(corpus.passages["context-0_0"].audio).is_absolute()
    about = [
        {"id": f"context-0_0_{k}", "speaker": "Ivy", "duration": n / mini.RATE, "text": ""} for k, n in enumerate(mini.LENGTHS)
    ]
    mini.write_csv(dev / "meta-dev.csv", about)
    prepare_nmsqa(dev, tmp_path / "more")
    corpus = load_corpus(tmp_path / "more", "dev")
    assert all(heard(corpus, q) for q in corpus.questions)


def test_times_in_a_longer_recording_of_the_whole_are_not_used(dev, tmp_path):
    """People pause between sentences: what counts in the recording of the whole is wrong in the joined sentences."""
    pause = np.zeros(mini.RATE // 2, np.float32)
    whole = np.concatenate([x for k in range(4) for x in (mini.sentence(k), pause)])
    mini.write_clip(dev / "dev_audios/context-0_0.wav", whole, 0.0, 99.0, mini.RATE)
    _, start, end = mini.ANSWERS[2]
    moved = (mini.before(2) + 1.0 + start, mini.before(2) + 1.0 + end)
    mini.write_table(dev / "dev.parquet", [mini.row(2, answers=times([moved], [(start, end)]))])
    found, corpus = prepared(dev, tmp_path)
    assert heard(corpus, corpus.questions[0]) and found.remarks(nmsqa.LONGER[0]) == 1


def test_one_recording_of_no_whole_passage_leaves_the_split_text_only(dev, tmp_path):
    for path in (dev / "dev_audios").iterdir():
        if path.stem != "context-0_0_3":
            path.unlink()
    found, corpus = prepared(dev, tmp_path)
    assert len(corpus.questions) == 4 and corpus.questions[0].audio == "" and found.remarks(nmsqa.UNUSED[0]) == 1


def test_a_damaged_recording_is_set_aside_with_the_reason(dev, tmp_path):
    path = dev / "dev_audios/question-0_0_2.wav"
    path.write_bytes(path.read_bytes()[:999])
    (dev / "dev_audios/question-0_0_1.wav").write_bytes(b"ID3 no audio at all")
    found, corpus = prepared(dev, tmp_path)
    assert [q.id for q in corpus.questions] == ["id-0_0-0", "id-0_0-3"] and found.aside(prepare.UNUSABLE) == 2
    assert "question-0_0_2.wav is cut off" in (tmp_path / "out/set_aside.jsonl").read_text()


# ---- times


def times(full, segment):
    names = ("audio_full_answer_{}", "audio_segment_answer_{}")
    return {
        n.format(e): [t[i] for t in given]
        for n, given in zip(names, (full, segment), strict=True)
        for i, e in enumerate(("start", "end"))
    }


def test_times_in_the_passage_are_read_as_such(dev, tmp_path):
    """As test is for the most part: audio_full_* count from the passage's beginning."""
    rows = []
    for k in range(4):
        _, start, end = mini.ANSWERS[k]
        moved = (start + mini.before(k) + 0.004, end + mini.before(k) + 0.004)
        rows.append(mini.row(k, answers=times([moved], [] if k == 2 else [(start, end)])))
    mini.write_table(dev / "dev.parquet", rows)
    found, corpus = prepared(dev, tmp_path)
    assert found.remarks(nmsqa.CONFIRMED[0]) == 3 and found.remarks(nmsqa.WHOLE[0]) == 1
    assert corpus.questions[1].answers[0].start == pytest.approx(mini.before(1) + 0.8, abs=1e-9)  # exact, not what was rounded
    assert corpus.questions[2].answers[0].start == pytest.approx(mini.before(2) + 1.204, abs=1e-9)


def test_where_both_readings_fit_and_disagree_the_text_decides(dev, tmp_path):
    wrong = mini.row(2, answers=times([(0.1, 0.6)], [(1.2, 1.7)]))
    right = mini.row(
        3,
        answers=times([(mini.before(3) + 0.4, mini.before(3) + 0.6)], [(0.4, 0.6)]),
        content_segment_audio_path="context-0_0_0.mp3",
    )
    mini.write_table(dev / "dev.parquet", [wrong, right])
    found, corpus = prepared(dev, tmp_path)
    assert found.remarks(nmsqa.NEARER[0]) == 2 and all(heard(corpus, q) for q in corpus.questions)


@pytest.mark.parametrize(
    "full, segment",
    [
        ([(0.5, 99.0)], [(0.5, 99.0)]),  # beyond the audio
        ([(float("nan"), 1.0)], [(float("nan"), 1.0)]),
        ([(1.0, 0.5)], [(1.0, 0.5)]),
        ([(0.0, 0.0)], [(0.0, 0.0)]),  # what the aligner writes where it finds nothing
        ([(-1.0, 0.5)], [(-1.0, 0.5)]),
        ([(None, 0.5)], [(None, 0.5)]),
    ],
)
def test_times_that_cannot_be_are_left_out_and_counted(dev, tmp_path, full, segment):
    mini.write_table(dev / "dev.parquet", [mini.row(0), mini.row(1, answers=times(full, segment))])
    found, corpus = prepared(dev, tmp_path)
    assert [a.start for a in corpus.questions[1].answers] == [None] and heard(corpus, corpus.questions[0])
    assert found.remarks(nmsqa.OUTSIDE[0]) == 1 and found.remarks(nmsqa.TEXTLESS[0]) == 1 and found.facts["with_times"] == 1


def test_a_time_that_ends_a_little_after_the_audio_ends_with_it(dev, tmp_path):
    length = mini.LENGTHS[3] / mini.RATE
    mini.write_table(dev / "dev.parquet", [mini.row(3, answers=times([(0.4, length + 0.09)], [(0.4, length + 0.09)]))])
    _, corpus = prepared(dev, tmp_path)
    assert corpus.questions[0].answers[0].end == pytest.approx(sum(mini.LENGTHS) / mini.RATE)


def test_every_time_goes_to_the_text_that_it_is_of(dev, tmp_path):
    """Three annotations, two different texts in the sentence, two times; another answer stands in another sentence."""
    at = mini.CONTEXT.index
    texts = {
        "text": ["the lamp", "a lamp", "the lamp", "Boris"],
        "answer_start": [at("the lamp"), at("a lamp"), at("the lamp"), at("Boris")],
    }
    answers = texts | times([(0.3, 0.6), (0.8, 1.1)], [(0.3, 0.6), (0.8, 1.1)])
    mini.write_table(dev / "dev.parquet", [mini.row(1, answers=answers)])
    found, corpus = prepared(dev, tmp_path)
    assert [(a.text, a.start and round(a.start - mini.before(1), 6)) for a in corpus.questions[0].answers] == [
        ("the lamp", 0.3), ("Boris", 0.8), ("a lamp", None),
    ]  # fmt: skip
    assert found.remarks(nmsqa.UNEVEN[0]) == 1 and found.remarks(nmsqa.TEXTLESS[0]) == 1


def test_a_time_too_few_goes_to_the_text_that_stands_nearest(dev, tmp_path):
    """The sentence holds two of the texts, and there is one time: that of the second."""
    at = mini.CONTEXT.index
    texts = {"text": ["she", "Boris", "she"], "answer_start": [at("she"), at("Boris"), at("she")]}
    mini.write_table(dev / "dev.parquet", [mini.row(1, answers=texts | times([(0.95, 1.2)], [(0.95, 1.2)]))])
    found, corpus = prepared(dev, tmp_path)
    assert [(a.text, a.start is not None) for a in corpus.questions[0].answers] == [("Boris", True), ("she", False)]
    assert found.remarks(nmsqa.GUESSED[0]) == 1


def test_other_occurrences_are_no_answers(dev, tmp_path):
    neg = {"audio_full_neg_answer_start": [0.1, 0.2], "audio_full_neg_answer_end": [0.2, 0.3]}
    mini.write_table(dev / "dev.parquet", [mini.row(1, answers=neg)])
    found, corpus = prepared(dev, tmp_path)
    assert len(corpus.questions[0].answers) == 1 and found.remarks(nmsqa.OTHERS[0]) == 1 and heard(corpus, corpus.questions[0])


# ---- rows


def test_bad_rows_are_kept_or_set_aside_and_all_are_counted(dev, tmp_path):
    rows = [
        mini.row(0),
        mini.row(0),  # again
        mini.row(1, id=None, question_audio_path=None),
        mini.row(1, question=11, answers=None),
        mini.row(2, question=2, answers={"answer_start": [5, 5, 5]}),  # an offset that does not match
        mini.row(3, question=3, answers={"text": ["", "near", "near"]}),
        mini.row(3, question=1, answers={"text": [], "answer_start": []} | times([], [])),
        mini.row(1, id="id-0_0-0"),  # another question
    ]
    mini.write_table(dev / "dev.parquet", rows)
    found, corpus = prepared(dev, tmp_path)
    assert found.facts["questions"] | {"published": 0, "agrees": 0} == {
        "read": 8,
        "kept": 5,
        "set_aside": 3,
        "published": 0,
        "agrees": 0,
    }
    assert [found.aside(r) for r in (prepare.TWICE, nmsqa.NAMELESS, nmsqa.NO_ANSWERS)] == [1, 1, 1]
    assert found.remarks(nmsqa.OFFSET[0]) == 1 and found.remarks(prepare.EMPTY[0]) == 1
    by_id = {q.id: q for q in corpus.questions}
    assert heard(corpus, by_id["id-0_0-0#2"]) and found.remarks(prepare.RENAMED[0]) == 1
    assert by_id["id-0_0-2"].answers[0].char_start is None and heard(corpus, by_id["id-0_0-2"])
    assert by_id["id-0_0-1"].answers == () and found.remarks(nmsqa.UNANSWERED[0]) == 1


def write_plain(path, rows):
    """A table with the columns and types of its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("form", ["record", "list", "json record", "json list", "columns", "flat columns"])
def test_answers_are_read_in_any_form(dev, tmp_path, form):
    rows = [mini.row(k) for k in range(4)]
    for row in rows:
        answers = row.pop("answers")
        record = {name: [value] if name.startswith("audio") else value[:1] for name, value in answers.items() if value}
        record = {name: values[0] if name.startswith("audio") else values for name, values in record.items()}
        one = {name: values[0] for name, values in record.items()}
        forms = {
            "record": {"answers": record},
            "list": {"answers": [one]},
            "json record": {"answers": json.dumps(record)},
            "json list": {"answers": json.dumps([one])},
            "columns": {f"answers.{name}": values for name, values in record.items()},
            "flat columns": {("answer" if name == "text" else name): v for name, v in one.items()} | {"answer_start": None},
        }
        row |= forms[form]
    write_plain(dev / "dev.parquet", rows)
    _, corpus = prepared(dev, tmp_path)
    assert len(corpus.questions) == 4 and all(heard(corpus, q) for q in corpus.questions)
    for k, question in enumerate(corpus.questions):
        (answer,) = question.answers
        assert answer.text == mini.ANSWERS[k][0] and (answer.char_start is None) == (form == "flat columns")


def test_without_a_column_of_answers_a_split_is_set_aside_and_nothing_else_is_refused(dev, tmp_path):
    rows = [{n: v for n, v in mini.row(k).items() if n != "answers"} for k in range(4)]
    mini.write_table(dev / "test.parquet", rows)
    report = prepare_nmsqa(dev, tmp_path / "both")
    assert mini.Found(report, "test").aside(nmsqa.NO_ANSWERS) == 4 and report["splits"]["dev"]["questions"]["kept"] == 4
    (dev / "test.parquet").rename(dev / "dev.parquet")
    with pytest.raises(InputError, match=r"has no usable question of nmsqa \(4 x its answers are missing from the source\)"):
        prepare_nmsqa(dev, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_table_without_rows_is_refused_or_counted_as_none(dev, tmp_path):
    mini.write_table(dev / "test.parquet", [mini.row(0)])
    table = parquet.read_table(dev / "test.parquet")
    parquet.write_table(table.slice(0, 0), dev / "test.parquet")
    report = prepare_nmsqa(dev, tmp_path / "both")
    assert report["splits"]["test"]["questions"] == {"read": 0, "kept": 0, "set_aside": 0, "published": 171, "agrees": False}
    (dev / "dev.parquet").unlink()
    with pytest.raises(InputError, match=r"that can be used \(its files are empty\)"):
        prepare_nmsqa(dev, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_shards_that_are_numbers_belong_together(tmp_path):
    """As the branch refs/convert/parquet of Hugging Face has them."""
    for k in range(2):
        mini.write_table(tmp_path / "nmsqa/default/dev" / f"000{k}.parquet", [mini.row(k)])
    _, corpus = prepared(tmp_path / "nmsqa", tmp_path)
    assert [q.id for q in corpus.questions] == ["id-0_0-0", "id-0_0-1"]


def test_sentences_that_the_release_misses_are_counted_without_recordings_too(tmp_path):
    mini.write_table(tmp_path / "nmsqa/train.parquet", [mini.row(k, p) for p in ("0_0", "0_1") for k in range(2)])
    mini.write_json(tmp_path / "nmsqa/train_segment_id.json", {"0_0": ["0", "1", "2", "3"], "0_1": ["1", "2"]})
    found, corpus = prepared(tmp_path / "nmsqa", tmp_path, "train")
    assert found.remarks(nmsqa.HOLES[0]) == 1 and len(corpus.questions) == 4


def test_without_a_column_of_contexts_the_sentences_are_the_text(dev, tmp_path):
    rows = [{n: v for n, v in mini.row(k).items() if n not in ("context", "title")} for k in (2, 0, 1)]
    mini.write_table(dev / "dev.parquet", rows)
    found, corpus = prepared(dev, tmp_path)
    assert [p.text for p in corpus.passages.values()] == [" ".join(mini.SENTENCES[:3])]
    assert len(corpus.questions) == 3 and all(heard(corpus, q) for q in corpus.questions)
    assert found.remarks(nmsqa.BARE[0]) == 3
    rows = [{n: v for n, v in row.items() if not n.startswith("content_segment_")} for row in rows]
    mini.write_table(dev / "dev.parquet", rows)  # nor any text: what is heard is enough
    prepare_nmsqa(dev, tmp_path / "bare")
    bare = load_corpus(tmp_path / "bare", "dev")
    assert [p.text for p in bare.passages.values()] == [""] and [q.audio for q in bare.questions] == [
        q.audio for q in corpus.questions
    ]


def test_a_table_of_questions_and_answers_finds_its_passages_by_the_names_of_the_recordings(tmp_path):
    root, names = tmp_path / "nmsqa", ("id", "question", "answers", "question_audio_path")
    rows = [mini.row(k, question_audio_path="squad-a1-q.mp3") for k in (0,)]
    mini.write_table(root / "test.parquet", [{n: row[n] for n in names} for row in rows])
    mini.write_sentences(root / "test_audios", "squad-a1-c-{}")
    mini.write_question(root / "test_audios", "squad-a1-q")
    _, corpus = prepared(root, tmp_path, "test")
    assert list(corpus.passages) == ["squad-a1-c"] and heard(corpus, corpus.questions[0])


def test_a_table_that_cannot_be_read_fails_alone(dev, tmp_path):
    mini.write_table(dev / "train.parquet", [{"id": "1", "text": "x"}])
    (dev / "test.parquet").write_bytes(b"PAR1 and then nothing")
    found, corpus = prepared(dev, tmp_path)
    assert len(corpus.questions) == 4
    told = described(found.report)
    assert "nothing was made of it" in told and "test.parquet is not a whole Parquet file" in told
    assert "train.parquet has no question" in told and not (tmp_path / "out/test").exists()


# ---- the other layouts


def test_the_hugging_face_folder_as_it_is_downloaded(dev, tmp_path):
    root = tmp_path / "NMSQA"
    mini.write_table(root / "data" / "dev-00000-of-00001-e59cc4b2d3e13fe2.parquet", [mini.row(k) for k in range(4)])
    test = [row_of_test(k) for k in range(2)]
    mini.write_table(root / "data" / "test-00000-of-00001.parquet", test)
    (root / "dataset_infos.json").write_text("{}")
    audio = root / "nmsqa_audio"
    (dev / "dev_audios").rename(dev / "moved")
    audio.mkdir(parents=True)
    (dev / "moved").rename(audio / "dev_audios")
    mini.write_sentences(audio / "test_audios", "squad-5a-c-{}", suffix=".wav")
    mini.write_sentences(audio / "test_audios", "newsqa-77-c-{}", suffix=".wav")
    for name in ("squad-5a-q", "newsqa-77-q"):
        mini.write_question(audio / "test_audios", name)
    mini.pack(audio, root / "nmsqa_audio.tar.gz")
    found, corpus = prepared(root, tmp_path)
    assert len(corpus.questions) == 4 and all(heard(corpus, q) for q in corpus.questions)
    assert corpus.questions[0].audio.startswith("unpacked/nmsqa_audio.tar.gz/nmsqa_audio/dev_audios/")
    people = load_corpus(tmp_path / "out", "test")
    assert list(people.passages) == ["squad-5a-c", "newsqa-77-c"] and all(heard(people, q) for q in people.questions)
    facts = mini.Found(found.report, "test")
    assert (facts.remarks("questions from SQuAD (published 51)"), facts.remarks("questions from NewsQA (published 104)")) == (1, 1)


def row_of_test(number):
    """As test has it: people read, a passage of its own for every question, times in the passage."""
    name = ("squad-5a", "newsqa-77")[number]
    _, start, end = mini.ANSWERS[2]
    paths = {
        "content_full_audio_path": f"{name}-c.wav",
        "content_segment_audio_path": f"{name}-c-2.wav",
        "question_audio_path": f"{name}-q.wav",
    }
    moved = times([(start + mini.before(2), end + mini.before(2))], [(start, end)])
    return mini.row(2, answers=moved, id=f"{name}-id", **paths)


def original(root, texts=True):
    """The original release: a line an annotation, a line a recording, alignments, archives."""
    words = [(t.strip("."), a, b) for t, a, b in (("sold", 0.9, 1.1), ("nine", 1.2, 1.45), ("coins", 1.45, 1.7))]
    mini.write_grid(root / "dev/textgrid/context-0_0_2.TextGrid", words, mini.LENGTHS[2] / mini.RATE)
    spans = [
        {"hash": f"h{k}", "utterance": f"context-0_0_{k}", "start": mini.ANSWERS[k][1], "end": mini.ANSWERS[k][2]}
        for k in (0, 2, 2)
    ]
    if texts:
        spans = [s | {"answer": mini.ANSWERS[int(s["hash"][1])][0]} for s in spans]
    mini.write_csv(root / "dev/dev-answer-span.csv", [*spans, spans[0] | {"hash": "h3", "start": 0, "end": 0}])
    about = [
        {"id": f"context-0_0_{k}", "speaker": "Ivy", "text": s, "normalized_text": s.lower(), "duration": n / mini.RATE}
        for k, (s, n) in enumerate(zip(mini.SENTENCES, mini.LENGTHS, strict=True))
    ]
    about += [
        {"id": f"question-0_0_{k}", "speaker": "Joey", "text": f"What {k}?", "normalized_text": "", "duration": 1.0}
        for k in range(4)
    ]
    mini.write_csv(root / "dev/meta-dev.csv", about)
    mini.write_json(root / "dev/dev-hash2question.json", {f"h{k}": f"question-0_0_{k}" for k in (0, 2, 3)})
    mini.write_json(root / "dev/dev_segment_id.json", {"0_0": ["0", "1", "2", "3"]})
    mini.write_sentences(root / "dev/dev_audio")
    for k in range(4):
        mini.write_question(root / "dev/dev_audio", f"question-0_0_{k}")


@pytest.mark.parametrize("packed", [False, True])
def test_the_original_release(tmp_path, packed):
    root = tmp_path / "original"
    original(root)
    if packed:
        mini.pack(root / "dev/dev_audio", root / "dev/dev_audio.tar.gz")
        mini.pack(root / "dev/textgrid", root / "dev/dev-textgrid.tar.gz")
    found, corpus = prepared(root, tmp_path)
    first, second, third = corpus.questions
    assert (first.id, first.text, first.speaker, first.passage) == ("h0", "What 0?", "Joey", "context-0_0")
    assert heard(corpus, first) and heard(corpus, second) and len(second.answers) == 1
    (passage,) = corpus.passages.values()
    assert passage.text == mini.CONTEXT and mini.CONTEXT[second.answers[0].char_start :].startswith("nine coins")
    assert [w.text for w in passage.words] == ["sold", "nine", "coins"]
    assert passage.words[1].start == pytest.approx(mini.before(2) + 1.2, abs=1e-4)
    assert third.answers[0].start is None and found.remarks(nmsqa.OUTSIDE[0]) == 1  # 0 to 0: not found by the aligner


def test_the_original_release_without_texts_takes_words_from_the_alignment(tmp_path):
    original(tmp_path / "original", texts=False)
    found, corpus = prepared(tmp_path / "original", tmp_path)
    by_id = {q.id: q for q in corpus.questions}
    assert [a.text for a in by_id["h2"].answers] == ["nine coins"] and heard(corpus, by_id["h2"])
    assert [a.text for a in by_id["h0"].answers] == [""] and found.remarks(nmsqa.UNKNOWN_WORDS[0]) == 1


def test_the_original_release_with_squads_texts_and_times_in_the_passage(tmp_path):
    root = tmp_path / "original"
    original(root)
    lines = [
        {
            "hash": f"h{k}",
            "context_id": "0_0",
            "new_start": mini.before(k) + mini.ANSWERS[k][1],
            "new_end": mini.before(k) + mini.ANSWERS[k][2],
        }
        for k in (0, 2)
    ]
    mini.write_csv(root / "dev/dev-answer-span.csv", lines)
    qas = [
        {
            "id": f"h{k}",
            "question": f"SQuAD {k}?",
            "answers": [{"text": mini.ANSWERS[k][0], "answer_start": mini.CONTEXT.index(mini.ANSWERS[k][0])}],
        }
        for k in (0, 2, 3)
    ]
    mini.write_json(root / "dev/dev-v1.1.json", {"data": [{"title": "T", "paragraphs": [{"context": mini.CONTEXT, "qas": qas}]}]})
    found, corpus = prepared(root, tmp_path)
    assert [q.text for q in corpus.questions] == ["SQuAD 0?", "SQuAD 2?", "SQuAD 3?"]
    assert heard(corpus, corpus.questions[1]) and corpus.questions[1].answers[0].char_start == mini.CONTEXT.index("nine coins")
    assert corpus.questions[2].answers[0].start is None and found.remarks(nmsqa.WHOLE[0]) == 2


# ---- what is refused


def test_a_folder_without_tables_says_what_was_expected(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no table of NMSQA; give the folder .*parquet"):
        prepare_nmsqa(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(InputError, match=r"gone does not exist; give"):
        prepare_nmsqa(tmp_path / "gone", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("dev.parquet", b"PAR1 and then nothing", r"dev.parquet is not a whole Parquet file \("),
        ("dev-answer-span.csv", b"hash,start\n\xff\xfe,1\n", r"dev-answer-span.csv as CSV \("),
        ("dev_segment_id.json", b"{", r"dev_segment_id.json is not whole JSON \("),
        ("dev_audios.tar.gz", b"no archive", r"dev_audios.tar.gz is truncated or damaged \("),
    ],
)
def test_damage_is_one_sentence_and_leaves_nothing(dev, tmp_path, name, content, message):
    (dev / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        prepare_nmsqa(dev, tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_a_table_of_something_else_is_refused(dev, tmp_path):
    mini.write_table(dev / "dev.parquet", [{"id": "1", "text": "x"}])
    with pytest.raises(InputError, match=r"dev.parquet has no question, which a table of NMSQA has"):
        prepare_nmsqa(dev, tmp_path / "out")


def test_two_tables_of_a_split_are_refused(dev, tmp_path):
    mini.write_table(dev / "data.parquet" / "dev.parquet", [mini.row(0)])
    with pytest.raises(InputError, match="are both tables of dev"):
        prepare_nmsqa(dev, tmp_path / "out")


def test_recordings_that_may_be_of_two_splits_are_refused(dev, tmp_path):
    mini.write_table(dev / "train.parquet", [mini.row(0)])
    (dev / "dev_audios").rename(dev / "audio")
    with pytest.raises(InputError, match=r"may belong to train or to dev; put the recordings of each split"):
        prepare_nmsqa(dev, tmp_path / "out")
    (dev / "audio").rename(dev / "dev_audios")  # of dev by its name: train is text only
    _, corpus = prepared(dev, tmp_path)
    assert len(corpus.questions) == 4 and load_corpus(tmp_path / "out", "train").questions[0].audio == ""


# ---- the real files


def test_the_real_dev_table(tmp_path):
    found, corpus = prepared(real("nmsqa", "dev.parquet").parent, tmp_path)
    assert found.facts["questions"] == {"read": 10_570, "kept": 10_570, "set_aside": 0, "published": 10_570, "agrees": True}
    assert found.facts["passages"] == {"read": 2_067, "kept": 2_067, "set_aside": 0, "published": 2_067, "agrees": True}
    assert len(corpus.passages) == 2_067 and corpus.passages["context-34_4"].audio == ""
    assert found.remarks(nmsqa.TEXT_ONLY[0]) == 77 and found.remarks(nmsqa.OFFSET[0]) == 0
    assert found.remarks(nmsqa.UNEVEN[0]) == 9_595 and found.remarks(nmsqa.OTHERS[0]) == 2_160
    assert found.remarks(nmsqa.COPIES[0]) == 6_962 and found.remarks(nmsqa.MOVED[0]) == 0
    assert sum(len(q.answers) for q in corpus.questions) + found.remarks(prepare.REPEATED[0]) == 34_726
    assert max(len(n) for n in read_json(DATA / "nmsqa/dev_segment_id.json").values()) == 26


def test_every_real_time_of_dev_is_paired_with_a_text():
    """As if every sentence were as long as its last time says: the readings and pairs of all 17,155 times."""
    counts = Counter()
    rates = []
    for row in parquet_rows(real("nmsqa", "dev.parquet")):
        if row.times:
            name = row.times[0].segment
            length = round((max(t.within[1] for t in row.times) + 1) * SAMPLE_RATE)
            layout = nmsqa.Layout((name,), Joined((length,), (SAMPLE_RATE,), length), length / SAMPLE_RATE)
            answers = nmsqa.spoken_answers(row, layout, (), lambda done: counts.update([done[0]]))
            rates += [len(a.text) / (a.end - a.start) for a in answers if a.start is not None]
    assert counts[nmsqa.CONFIRMED[0]] == 17_155 and not counts[nmsqa.UNKNOWN_WORDS[0]] + counts[nmsqa.OUTSIDE[0]]
    assert (counts[nmsqa.GUESSED[0]], counts[nmsqa.ELSEWHERE[0]]) == (142, 92)
    assert np.mean([2.5 < rate < 35 for rate in rates]) > 0.985 and 14 < np.median(rates) < 16  # letters a second, as people speak


def test_a_real_recording_as_the_fifth_sentence(tmp_path):
    """The words "the Master" at [7.44, 8.14) of the only real recording are found again in the joined passage."""
    mp3, root = real("nmsqa", "context-34_4_4.mp3"), tmp_path / "nmsqa"
    (root / "dev_audios").mkdir(parents=True)
    for name in ("dev.parquet", "dev_segment_id.json", "dev-hash2question.json"):
        (root / name).symlink_to(mp3.with_name(name))
    (root / "dev_audios" / mp3.name).symlink_to(mp3)
    mini.write_sentences(root / "dev_audios", "context-34_4_{}")
    names = {i: name for i, name in read_json(root / "dev-hash2question.json").items() if name.startswith("question-34_4_")}
    for name in names.values():
        mini.write_question(root / "dev_audios", name)
    found, corpus = prepared(root, tmp_path)
    assert {q.id for q in corpus.questions} <= set(names) and list(corpus.passages) == ["context-34_4"]
    (answer,) = next(a for q in corpus.questions if (a := q.answers)[0].text == "the Master" and a[0].start is not None)
    assert answer.start == pytest.approx(mini.before(4) + 7.44, abs=1e-9)
    said = read_audio(corpus.path(corpus.passages["context-34_4"]))[
        round(answer.start * SAMPLE_RATE) : round(answer.end * SAMPLE_RATE)
    ]
    samples, rate = read_native(mp3)
    original = resample(samples, rate, SAMPLE_RATE)[round(7.44 * SAMPLE_RATE) :][: len(said)]
    assert np.corrcoef(said, original)[0, 1] > 0.98  # half a sample off at most: the rate changes from 22,050 to 24,000 Hz
    assert found.facts["questions"]["read"] == 10_570 and found.aside(nmsqa.NO_RECORDING) >= 76


def test_a_slice_is_joined_alone(tmp_path):
    root = tmp_path / "nmsqa"
    mini.write_table(root / "dev.parquet", [mini.row(k, passage) for passage in ("0_0", "0_1") for k in range(2)])
    for passage in ("0_0", "0_1"):
        mini.write_sentences(root / "dev_audios", f"context-{passage}_{{}}")
        for k in range(2):
            mini.write_question(root / "dev_audios", f"question-{passage}_{k}")
    _, corpus = prepared(root, tmp_path, passages=1)
    assert [q.id for q in corpus.questions] == ["id-0_0-0", "id-0_0-1"] and all(heard(corpus, q) for q in corpus.questions)
    assert len(list((tmp_path / "out/dev/audio").glob("*.flac"))) == 1
    report = read_json(tmp_path / "out/data_report.json")["splits"]["dev"]
    assert report["questions"]["read"] == 4 and report["set_aside"] == {"beyond the first 1 passage with questions (--passages)": 3}
