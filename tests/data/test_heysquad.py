"""Test HeySQuAD: tables with recordings in their cells, and JSON files of transcribed questions."""

import numpy as np
import pytest

from speechssl.data.heysquad import prepare_heysquad
from speechssl.data.options import HeySquad
from speechssl.data.records import load_corpus

from ..files import collect_remarks, refused, wav, write_parquet

CONTEXT = "Ann was born in Rome."


def noise(seconds=0.25, rate=16_000):
    """Return the bytes of a recording of noise."""
    return wav(np.random.default_rng(0).uniform(-0.3, 0.3, round(seconds * rate)), rate)


def row(name, question="Where?", answers=(("Rome", 16),), audio=b"", context=CONTEXT):
    """Make the row of a question. answers: (text, offset in the context)."""
    return {
        "id": name,
        "audio": {"bytes": audio or noise(), "path": f"{name}.wav"},
        "transcription": question.lower(),
        "question": question,
        "context": context,
        "answers": [{"answer_start": start, "text": text} for text, start in answers],
        "is_impossible": not answers,
        "plausible_answers": None if answers else [{"answer_start": 0, "text": "Ann"}],
    }


@pytest.fixture
def source(tmp_path):
    """Two tables of train, in which the id q1 occurs twice, and one of dev."""
    first = [row("q1", audio=noise(0.5, 24_000)), row("q2", "Who?", ())]
    second = [row("q3", context="Another."), row("q1", "In which town?")]
    tables = {"train-00000-of-00002": first, "train-00001-of-00002": second}
    for name, rows in (tables | {"validation-00000-of-00001": [row("v1")]}).items():
        write_parquet(tmp_path / f"HeySQuAD_human/data/{name}.parquet", rows)
    return tmp_path / "HeySQuAD_human"


def prepare(source, out, **options):
    """Prepare the corpus, and return its data report."""
    return prepare_heysquad(HeySquad(source=source, out=out, workers=1, **options))


@pytest.mark.slow
def test_tables_become_splits_with_recordings(source, tmp_path):
    splits = prepare(source, tmp_path / "out")["splits"]
    corpus = load_corpus(tmp_path / "out", "train")
    assert [q.id for q in corpus.questions] == ["q1", "q2", "q1#2", "q3"]
    assert len(corpus.passages) == 2
    first, second = corpus.questions[:2]
    assert (first.text, first.transcript, first.seconds) == ("Where?", "where?", 0.5)
    assert (first.answers[0].char_start, second.answers) == (16, ())
    assert first.passage == second.passage
    counts = splits["train"]["questions"]
    assert (counts["read"], counts["kept"], counts["published"]) == (4, 4, 71_990)
    assert splits["dev"]["questions"]["published"] == 4_158
    assert collect_remarks(splits["train"]) == {
        "ids that occur twice": 1,
        "answers whose offset does not match": 1,
    }
    first, *others = sorted((tmp_path / "out").glob("*/audio/*.flac"))
    (tmp_path / "out/card.json").unlink()  # as after a kill: only missing recordings are written
    first.unlink()
    before = [path.stat().st_mtime_ns for path in others]
    prepare(source, tmp_path / "out")
    assert first.is_file()
    assert before == [path.stat().st_mtime_ns for path in others]


def test_missing_and_damaged_recordings_are_set_aside(tmp_path):
    damaged, missing = row("damaged", audio=b"RIFF----WAVE"), row("missing") | {"audio": None}
    write_parquet(tmp_path / "in/validation-0.parquet", [row("fine"), damaged, missing])
    report = prepare(tmp_path / "in", tmp_path / "out")
    assert report["splits"]["dev"]["set_aside"] == {
        "its recording cannot be used": 1,
        "it has no recording, and others have; add it, or give --no-audio": 1,
    }
    assert [q.id for q in load_corpus(tmp_path / "out", "dev").questions] == ["fine"]
    assert report["absent"] == ["train"]
    report = prepare(tmp_path / "in", tmp_path / "text", audio=False)
    assert report["splits"]["dev"]["questions"]["kept"] == 3


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("HeySQuAD_machine/data/train-00000-of-00001.parquet", "train-machine"),
        ("default/validation/0000.parquet", "dev"),
    ],
)
def test_the_split_is_found_in_other_layouts(tmp_path, name, split):
    # some copies of the release have answers as a record of lists
    question = row("q") | {"answers": {"text": ["Rome"], "answer_start": [16]}}
    write_parquet(tmp_path / "in" / name, [question])
    prepare(tmp_path / "in", tmp_path / "out")
    (question,) = load_corpus(tmp_path / "out", split).questions
    assert (question.seconds, question.transcript) == (0.25, "where?")
    assert question.answers[0].char_start == 16


def test_json_files_of_transcribed_and_of_written_questions(tmp_path, squad_json):
    texts = {"human-transcribed": "wear", "original": "Where?"}
    for kind, text in texts.items():
        path = tmp_path / f"HeySQuAD_json/HeySQuAD_test/dev-common-{kind}-1002.json"
        squad_json(path, (CONTEXT, [("q", text, [("Rome", 16)])]))
    report = prepare(tmp_path / "HeySQuAD_json", tmp_path / "out")
    spoken, read = (load_corpus(tmp_path / "out", f"dev-common-{kind}") for kind in texts)
    assert (spoken.questions[0].text, spoken.questions[0].transcript) == ("", "wear")
    assert (read.questions[0].text, read.questions[0].transcript) == ("Where?", "")
    assert report["splits"]["dev-common-original"]["questions"]["published"] == 1_002


def test_a_damaged_table_and_one_of_another_schema_are_refused(source, absent_out):
    path = source / "data/validation-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    refused(f"{path.name} is not a whole Parquet file", prepare, source, absent_out)
    write_parquet(path, [{"id": "q", "text": "another table"}])
    refused(f"{path.name}, row 0: the record has no `question`", prepare, source, absent_out)
