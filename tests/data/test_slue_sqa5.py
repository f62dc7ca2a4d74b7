"""Test SLUE-SQA-5, as Parquet tables with recordings in their cells, and as the zip with TSV files
and recordings."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from speechssl.artifacts import read_json
from speechssl.audio import SAMPLE_RATE, write_clip
from speechssl.data import prepare, slue_sqa5
from speechssl.data.options import SlueSqa5
from speechssl.data.records import Span, load_corpus
from speechssl.data.slue_sqa5 import prepare_slue_sqa5

from ..files import count_remarks, refused, wav, write_parquet

TOKENS = [  # of the document: (word, normalised word, start, end)
    ("Nine", "nine", 0.1, 0.4),
    (",", "", -1.0, -1.0),  # not spoken
    ("lamps", "lamps", 0.5, 0.9),
    ("in", "in", 1.0, 1.1),
    ("1999", "nineteen ninety-nine", 1.2, 2.0),  # two words
    ("or", "or", 2.1, 2.2),
    ("nine", "nine", 2.3, 2.6),  # for the second time
]
TEXT = "nine lamps in nineteen ninety-nine or nine"
SECONDS = 3.0
TABLE = "sqa5/validation-00000-of-00001.parquet"


def tone(seconds=SECONDS, rate=SAMPLE_RATE, step=0.03):
    """Make a tone. step: radians a sample."""
    return (0.2 * np.sin(step * np.arange(round(seconds * rate)))).astype(np.float32)


def row(number, document="doc1", spans=(("nine", 2.3, 2.6),), **changes):
    """Make a row of the Parquet table. spans: the answers (text, start, end); changes: cells to
    replace."""
    question_audio = wav(tone(1.0, step=0.02 + number / 100))
    cells = {
        "question_id": f"squad-{number}",
        "question_audio": {"bytes": question_audio, "path": "q.wav"},
        "question_speaker_id": "q7",
        "document_id": document,
        "document_speaker_id": "d3",
        "document_audio": {"bytes": wav(tone()), "path": "d.wav"},
        "raw_question_text": "How Many?",
        "normalized_question_text": "how many",
        "raw_document_text": "Nine, lamps in 1999 or nine",
        "normalized_document_text": TEXT,
        "word2time": {
            "word": [token[0] for token in TOKENS],
            "normalized_word": [token[1] for token in TOKENS],
            "start_second": [token[2] for token in TOKENS],
            "end_second": [token[3] for token in TOKENS],
        },
        "answer_spans": {
            "answer": [text for text, _, _ in spans],
            "start_second": [start for _, start, _ in spans],
            "end_second": [end for _, _, end in spans],
        },
    }
    return cells | changes


def prepare_split(source, out, split="dev"):
    """Prepare the corpus. Returns the facts of a split in the report, and the split."""
    report = prepare_slue_sqa5(SlueSqa5(source=source, out=out / "out", workers=1))
    return report["splits"][split], load_corpus(out / "out", split)


@pytest.fixture
def hub(tmp_path):
    """The folder sqa5 of asapp/slue-phase-2, beside that of another task."""
    root = tmp_path / "slue-phase-2"
    twice = row(1, spans=(("nine", 0.1, 0.4), ("nine", 2.3, 2.6)))
    rows = [row(0), twice, row(2, "doc/2", spans=(("nineteen ninety-nine", 1.2, 2.0),))]
    write_parquet(root / TABLE, rows)
    write_parquet(root / "hvb/validation-00000-of-00001.parquet", [{"issue_id": "x"}])
    return root


@pytest.fixture
def files(tmp_path):
    """The unpacked slue-sqa5.zip: TSV files, alignments and recordings of four splits."""
    root = tmp_path / "slue-sqa5"
    names = "question_id question_text question_speaker_id document_id document_text "
    names += "document_speaker_id normalized_question_text normalized_document_text split "
    words = "\n".join("\t".join(map(str, t)) if t[1] else t[0] for t in TOKENS)
    for split in ("fine-tune", "dev", "test", "verified-test"):
        cells = ['Who said "nine"?', "q7", "doc1", '"Nine", lamps', "d3", "who said nine", TEXT]
        rows = [(names + "answer_spans").split()]
        rows.append([f"q-{split}", *cells, split, '[["nine", 0.1, 0.4], ["nine", 2.3, 2.6]]'])
        rows.append([f"q-{split}b", *cells, split, '"[[""lamps"", 0.5, 0.9]]"'])
        root.mkdir(exist_ok=True)
        text = "".join("\t".join(row) + "\n" for row in rows)
        (root / f"slue-sqa5_{split}.tsv").write_text(text, encoding="utf-8")
        if split == "verified-test":  # its recordings lie in the folder of test
            continue
        (root / split / "word2time").mkdir(parents=True)
        (root / split / "word2time/doc1.txt").write_text(words, encoding="utf-8")
        write_clip(root / split / "document/doc1.wav", tone(), 0, 9, SAMPLE_RATE)
        for name in (f"q-{split}", f"q-{split}b", f"q-verified-{split}", f"q-verified-{split}b"):
            write_clip(root / split / f"question/{name}.wav", tone(1.0), 0, 9, SAMPLE_RATE)
    return root


def test_recordings_in_parquet_are_written_once_each(hub, tmp_path):
    facts, corpus = prepare_split(hub, tmp_path)
    counts = facts["questions"]
    assert (counts["read"], counts["kept"], counts["published"]) == (3, 3, 1939)
    first, second, third = corpus.questions
    assert (first.text, first.speaker, first.seconds) == ("how many", "q7", 1.0)
    assert first.audio == "dev/audio/question-squad-0.flac"
    passage, last = corpus.passages["doc1"], TEXT.rindex("nine")
    assert (passage.text, passage.speaker, passage.seconds) == (TEXT, "d3", SECONDS)
    assert passage.audio == "dev/audio/document-doc1.flac"
    assert passage.words == tuple(Span(n, a, b) for _, n, a, b in TOKENS if n)
    assert [(a.start, a.end, a.char_start) for a in first.answers] == [(2.3, 2.6, last)]
    # "nine" occurs twice: the times of the words decide
    assert [a.char_start for a in second.answers] == [0, last]
    assert TEXT[third.answers[0].char_start :].startswith("nineteen ninety-nine")
    assert third.passage == "doc/2"
    assert len(list((tmp_path / "out/dev/audio").glob("*.flac"))) == 5
    assert read_json(tmp_path / "out/card.json")["metric"] == "frame F1"


def test_the_tables_of_the_zip(files, tmp_path):
    last = TEXT.rindex("nine")
    source = Path(shutil.make_archive(tmp_path / "dl/slue-sqa5", "zip", tmp_path, "slue-sqa5"))
    shutil.rmtree(files)
    facts, corpus = prepare_split(source, tmp_path, "train")
    assert (facts["questions"]["read"], facts["questions"]["published"]) == (2, 46_186)
    assert facts["set_aside"] == {}
    first, second = corpus.questions
    assert first.text == "who said nine"
    assert [(a.start, a.char_start) for a in first.answers] == [(0.1, 0), (2.3, last)]
    assert (second.id, second.answers[0].text) == ("q-fine-tuneb", "lamps")
    assert second.answers[0].end == 0.9
    assert len(corpus.passages["doc1"].words) == 6
    assert first.audio.startswith("unpacked/")
    verified = load_corpus(tmp_path / "out", "verified_test")
    assert [q.id for q in verified.questions] == ["q-verified-test", "q-verified-testb"]
    assert verified.passages["doc1"].words


@pytest.mark.parametrize("kind", ["zip", "table"])
def test_other_downloads_beside_a_zip_or_a_table_do_not_change_the_corpus(
    files, hub, tmp_path, kind
):
    if kind == "zip":
        packed_as = str(tmp_path / "dl" / "slue-sqa5")
        source = Path(shutil.make_archive(packed_as, "zip", tmp_path, "slue-sqa5"))
        shutil.rmtree(files)
    else:
        source = hub / TABLE
    before, _ = prepare_split(source, tmp_path)
    settings = read_json(tmp_path / "out/settings.json")
    write_clip(source.parent / "music/song.wav", tone(), 0, 9, SAMPLE_RATE)
    (source.parent / "prices.tsv").write_text("name\tprice\n")
    (source.parent / "other.zip").write_bytes(b"PK")
    after, _ = prepare_split(source, tmp_path)  # would be refused for another corpus
    assert after == before
    assert read_json(tmp_path / "out/settings.json") == settings


def test_a_question_or_a_document_without_its_recording_is_set_aside(files, tmp_path):
    (files / "dev/question/q-dev.wav").unlink()
    (files / "test/document/doc1.wav").write_bytes(b"RIFF")
    path = files / "slue-sqa5_dev.tsv"
    path.write_text(path.read_text() + "q-cut\tWho\n")  # a line that is cut
    facts, corpus = prepare_split(files, tmp_path)
    assert [q.id for q in corpus.questions] == ["q-devb"]
    assert facts["questions"]["read"] == 3
    assert facts["set_aside"] == {prepare.NOT_FOUND: 1, slue_sqa5.BROKEN: 1}
    test = read_json(tmp_path / "out/data_report.json")["splits"]["test"]  # now text only
    assert (test["questions"]["kept"], count_remarks(test, prepare.NO_RECORDINGS)) == (2, 2)
    answers = [a for q in load_corpus(tmp_path / "out", "test").questions for a in q.answers]
    assert [(a.text, a.start, a.char_start) for a in answers] == [
        ("nine", None, None),
        ("lamps", None, 5),
    ]


def test_a_blind_test_gives_way_to_one_with_answers(files, tmp_path):
    rows = [line.split("\t") for line in (files / "slue-sqa5_test.tsv").read_text().splitlines()]
    blind = [rows[0], *([*cells[:-1], ""] for cells in rows[1:])]
    text = "".join("\t".join(cells) + "\n" for cells in blind)
    (files / "slue-sqa5_test_blind.tsv").write_text(text)
    facts, _ = prepare_split(files, tmp_path, "test")
    assert facts["questions"]["kept"] == 2
    (files / "slue-sqa5_test.tsv").unlink()
    facts, _ = prepare_split(files, tmp_path / "blind", "test")
    assert facts["set_aside"] == {slue_sqa5.BLIND: 2}


def test_impossible_times_and_empty_answers_are_counted(hub, tmp_path):
    late, empty = ("nine", 2.3, 99.0), ("", 0.1, 0.2)
    untimed = [("lamps", -1.0, -1.0), ("lamps", float("nan"), 1.0)]
    rows = [row(0), row(0, normalized_question_text="another"), row(3, spans=())]
    write_parquet(hub / TABLE, [*rows, row(4, spans=(late, empty, *untimed))])
    facts, corpus = prepare_split(hub, tmp_path)
    assert [q.id for q in corpus.questions] == ["squad-0", "squad-0#2", "squad-4"]
    assert facts["set_aside"] == {slue_sqa5.BLIND: 1}
    assert [a.start for a in corpus.questions[2].answers] == [None, None]
    assert count_remarks(facts, slue_sqa5.OUTSIDE) == 3
    assert count_remarks(facts, prepare.EMPTY) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("slue-sqa5_dev.tsv", b"question_id\tdocument_id\n\xff\xfe\t1\n", "cannot read .*dev.tsv"),
        ("validation-0.parquet", b"PAR1", "validation-0.parquet is not a whole Parquet file"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path, absent_out, name, content, message):
    (tmp_path / name).write_bytes(content)
    refused(message, prepare_slue_sqa5, SlueSqa5(source=tmp_path, out=absent_out, workers=1))
