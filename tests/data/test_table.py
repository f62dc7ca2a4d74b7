"""Test corpora that users make from tables and from rows in memory."""

import json

import numpy as np
import pyarrow as pa
import pytest
import soundfile

from speechssl.cli import main
from speechssl.data.options import TableCorpus
from speechssl.data.records import Answer, Passage, load_corpus
from speechssl.data.table import make_corpus, prepare_table

from ..files import refused, wav, write_lines, write_parquet

SAMPLES = np.random.default_rng(0).uniform(-0.5, 0.5, 16_000).astype(np.float32)
ROME = {"id": "rome", "text": "rome was founded", "speaker": "ann"}
PASSAGES = "id,audio,text,speaker\nrome,wav/rome.wav,rome was founded,ann\n"
QUESTIONS = (
    "id,passage,audio,answer,start,end\nq1,rome,wav/q1.wav,founded,0.25,0.75\nq2,rome,,founded,,\n"
)


@pytest.fixture
def mine(tmp_path):
    """A folder with tables of a passage and two questions, and recordings."""
    (tmp_path / "mine/wav").mkdir(parents=True)
    for name in ("rome", "q1"):
        soundfile.write(tmp_path / f"mine/wav/{name}.wav", SAMPLES, 16_000)
    (tmp_path / "mine/passages.csv").write_text(PASSAGES)
    (tmp_path / "mine/questions.csv").write_text(
        QUESTIONS.replace("q2,rome,,", "q2,rome,wav/q1.wav,")
    )
    return tmp_path / "mine"


def check(corpus):
    """Assert that a corpus has the passage and the two questions of `mine`."""
    (passage,) = corpus.passages.values()
    first, second = corpus.questions
    facts = (passage.id, passage.seconds, passage.text, passage.speaker)
    assert facts == ("rome", 1.0, "rome was founded", "ann")
    assert corpus.path(passage).is_file()
    assert first.answers == (Answer("founded", 0.25, 0.75),)
    assert (second.answers, second.seconds) == ((Answer("founded"),), 1.0)


def test_csv_becomes_a_corpus_whose_recordings_stay(mine, tmp_path, capsys):
    assert main(["prepare", "table", str(mine), str(tmp_path / "out"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["splits"]["test"]["questions"] == {"read": 2, "kept": 2, "set_aside": 0}
    check(load_corpus(tmp_path / "out", "test"))
    assert not list((tmp_path / "out").rglob("*.flac"))
    assert main(["prepare", "table", str(mine), str(tmp_path / "out")]) == 0  # nothing to do
    assert "1 read, 1 kept" in capsys.readouterr().out


def test_splits_tsv_jsonl_and_parquet(mine, tmp_path):
    for split in ("train", "dev"):
        (mine / split).mkdir()
    passage = ROME | {"audio": {"bytes": wav(SAMPLES), "path": None}}
    write_parquet(mine / "train/passages.parquet", [passage])
    answers = [{"text": ["founded"], "start": [0.25], "end": [0.75]}, {"text": ["founded"]}]
    question = {"passage": "rome", "audio": "../wav/q1.wav"}
    rows = [question | {"id": f"q{i}", "answers": a} for i, a in enumerate(answers)]
    write_lines(mine / "train/questions.jsonl", rows)
    (mine / "dev/passages.tsv").write_text(PASSAGES.replace(",", "\t").replace("wav/", "../wav/"))
    for name in ("passages.csv", "questions.csv"):
        (mine / name).unlink()
    prepare_table(TableCorpus(source=mine, out=tmp_path / "out"))
    check(load_corpus(tmp_path / "out", "train"))
    assert (tmp_path / "out/train/audio/rome.flac").is_file()
    assert not load_corpus(tmp_path / "out", "dev").questions


def test_folders_that_datasets_saves_to_disk(mine, tmp_path):
    """`datasets` saves Arrow's stream format in a folder, which is written here without it."""
    (mine / "passages.csv").unlink()
    (mine / "passages").mkdir()
    table = pa.Table.from_pylist([ROME | {"audio": {"path": "wav/rome.wav", "bytes": None}}])
    with (
        pa.OSFile(str(mine / "passages/data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    prepare_table(TableCorpus(source=mine, out=tmp_path / "out"))
    check(load_corpus(tmp_path / "out", "test"))


def test_rows_in_memory_hold_their_recordings(tmp_path):
    audio = {"array": SAMPLES, "sampling_rate": 16_000}
    decoded = audio | {"path": "rome.wav"}  # of `datasets` until version 3
    # from version 4 on it gives a decoder instead of a dict
    decoder = type("Decoder", (), {"__getitem__": lambda self, name: audio[name]})()
    answer = {"text": "founded", "start": 0.25, "end": 0.75}
    questions = [{"passage": "rome", "audio": decoder, "answers": a} for a in ([answer], "founded")]
    make_corpus(tmp_path / "out", {"test": ([ROME | {"audio": decoded}], iter(questions))})
    check(load_corpus(tmp_path / "out", "test"))
    refused("holds a corpus already", make_corpus, tmp_path / "out", {"test": ([ROME], [])})


@pytest.mark.parametrize("empty_number", [float("nan"), "nan", "None", "-"])
def test_nan_of_pandas_is_an_empty_cell(tmp_path, empty_number):
    empty = dict.fromkeys("audio transcript speaker language words".split(), float("nan"))
    empty |= dict.fromkeys(("start", "end", "char_start"), empty_number)
    passages = [{**empty, "id": "p", "text": "rome was founded"}]
    question = {"id": float("nan"), "passage": "p", "text": "what was founded", "answer": "rome"}
    make_corpus(tmp_path / "out", {"test": (passages, [empty | question])})
    data = load_corpus(tmp_path / "out", "test")
    assert data.passages["p"] == Passage("p", text="rome was founded", language="en")
    assert [(q.id, q.answers) for q in data.questions] == [("test-1", (Answer("rome"),))]


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("passages", "wav/rome.wav", "rome.wav", "passages.csv, row 1 names .*rome.wav, which doe"),
        ("passages", "wav/rome.wav,rome was founded", ",", "row 1 has neither audio nor text"),
        ("questions", "q2,rome", "q2,carthage", "row 2: the passage carthage is not in"),
        ("questions", "q2,", "q1,", "row 2: the id 'q1' occurs twice"),
        ("questions", "0.25,0.75", "0.75,0.25", "row 1: .* does not lie in its passage rome"),
        ("questions", "0.25,0.75", "0.25,", "row 1, answers: .* only one of start and end"),
        ("questions", "0.25,0.75", "soon,0.75", "row 1: `start`"),
        ("questions", "0.25,0.75", "12,37", "row 1: .* and its times look like frames of 20 ms"),
        ("passages", "wav/rome.wav", "", r"in its passage rome \(\[0, 0.00\) s\); correct it"),
        ("passages", "id,audio", "id,id", "passages.csv has two columns called id"),
        ("passages", "rome was", "rome, was", "row 1 has 5 cells and the header 4"),
        ("passages", "text,speaker", "language,speaker", "row 1: there are no text rules for"),
        ("questions", "id,passage", "id,about", "questions.csv has no .* column passage, but id"),
    ],
)
def test_a_wrong_row_is_refused(table, old, new, message, mine, absent_out):
    file = mine / f"{table}.csv"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    refused(message, prepare_table, TableCorpus(source=mine, out=absent_out))


MS = "and the recording lasts 1.00 s; its times look like milliseconds"


@pytest.mark.parametrize(
    ("passage", "question", "message"),
    [
        ({"context": "another"}, {}, "passages of test, row 1: text and context differ"),
        ({}, {"question": "another"}, "questions of test, row 1: text and question differ"),
        ({}, {"answers": ["b"], "answer": "a"}, "row 1 has both answers and answer"),
        ({}, {"answers": ["b"], "start": 0, "end": 1}, "row 1 has both answers and start"),
        ({}, {"answers": {"text": ["a", "b"], "answer_start": [0]}}, "2 text, 1 answer_start"),
        ({"words": [["a", 100, 400], ["b", 400, 900]]}, {}, MS),
        ({"words": [["a", 0.5, 0.4]]}, {}, "'a' is said from 0.5 to 0.4 s"),
    ],
)
def test_cells_of_which_one_would_be_lost_are_refused(tmp_path, passage, question, message):
    sound = {"array": 0.1 * np.sin(np.arange(16_000)), "sampling_rate": 16_000}
    passages = [{"id": "p", "text": "a b", "audio": sound} | passage]
    questions = [{"id": "q", "passage": "p", "text": "what", "context": "a b"} | question]
    assert message in refused(None, make_corpus, tmp_path / "out", {"test": (passages, questions)})


def test_a_csv_with_semicolons(tmp_path):
    (tmp_path / "passages.csv").write_text("id;text\n1;rome, they say\n")
    prepare_table(TableCorpus(source=tmp_path, out=tmp_path / "out"))
    assert load_corpus(tmp_path / "out", "test").passages["1"].text == "rome, they say"


def test_a_column_that_is_not_read_is_named(mine, tmp_path, capsys):
    (mine / "questions.csv").write_text(
        (mine / "questions.csv").read_text().replace("answer,", "anwser,")
    )
    prepare_table(TableCorpus(source=mine, out=tmp_path / "out"))
    assert "questions.csv: no column that is read is called anwser" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [0, "0", "NA", 5.0, "5.5"])
def test_zero_and_other_numbers_are_answers(answer, tmp_path):
    passages = [{"id": 0, "text": "it was 0, 5 or 1984", "speaker": 0}]
    cells = [{"answer": answer}, {"answers": answer}, {"answers": [answer]}, {"answer": None}]
    cells.append({"answers": [{"text": answer, "char_start": None}]})
    questions = [{"id": i, "passage": 0.0, "text": "what"} | c for i, c in enumerate(cells)]
    make_corpus(tmp_path / "out", {"test": (passages, questions)})
    data = load_corpus(tmp_path / "out", "test")
    answers = (Answer("5" if answer == 5.0 else str(answer)),)
    assert data.passages["0"].speaker == "0"
    assert [q.answers for q in data.questions] == [answers, answers, answers, (), answers]
    assert [q.id for q in data.questions] == ["0", "1", "2", "3", "4"]


# one second of a triangle wave of 40 Hz, in steps of 1/128
SOUND = np.tile(np.append(np.arange(-100, 100), np.arange(100, -100, -1)) / 128, 40)


def make_corpus_of(arrays, out):
    """Make a corpus with a passage, and a question about it, for every array."""
    sounds = {name: {"array": x, "sampling_rate": 16_000} for name, x in arrays.items()}
    passages = [{"id": name, "audio": audio, "text": "hello"} for name, audio in sounds.items()]
    questions = [{"id": f"q{name}", "passage": name, "text": "what"} for name in arrays]
    make_corpus(out, {"test": (passages, questions)})
    return load_corpus(out, "test")


@pytest.mark.parametrize("as_list", [False, True])
def test_arrays_and_lists_keep_their_scale(tmp_path, as_list):
    array = (SOUND * 32768).astype(np.int16)
    corpus = make_corpus_of({"p": array.tolist() if as_list else array}, tmp_path / "out")
    written, _ = soundfile.read(corpus.path(corpus.passages["p"]))
    np.testing.assert_allclose(written, SOUND, atol=1e-4)


def test_an_array_that_cannot_be_used_is_set_aside(tmp_path):
    arrays = {"p": SOUND, "silent": np.zeros(16_000)}
    assert list(make_corpus_of(arrays, tmp_path / "out").passages) == ["p"]
    assert "silent (no sample" in (tmp_path / "out/set_aside.jsonl").read_text()


@pytest.mark.parametrize(("array", "rate"), [([[0.1, 0.2], [0.1]], 16_000), (SOUND, 0)])
def test_an_array_that_is_no_recording_is_refused(tmp_path, array, rate):
    rows = [{"id": "p", "audio": {"array": array, "sampling_rate": rate}, "text": "hello"}]
    refused("row 1, audio", make_corpus, tmp_path / "out", {"test": (rows, [])})
