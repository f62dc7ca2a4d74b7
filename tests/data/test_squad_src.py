"""Test SQuAD-SRC: SQuAD's files, lists of recordings, and recordings whose names have numbers and
speakers."""

import pytest

from speechssl.data.options import SquadSrc
from speechssl.data.records import load_corpus
from speechssl.data.squad_src import prepare_squad_src

from ..files import collect_remarks

CONTEXT = "Ann was born in Rome."
QUESTIONS = [("56be4db0", "Where?", [("Rome", 16)]), ("56be4db1", "Who?", [("Ann", 0)])]


def prepare(source, out, **options):
    """Prepare the corpus, and return its data report."""
    return prepare_squad_src(SquadSrc(source=source, out=out, workers=1, **options))


@pytest.fixture
def source(tmp_path, squad_json, recording):
    """The development file, its list, and recordings of its two questions."""
    root = tmp_path / "SQuAD-SRC"
    squad_json(root / "dev-v1.1.json", (CONTEXT, QUESTIONS))
    lines = [f"DEV{number:06d}\t{name}" for number, (name, *_) in enumerate(QUESTIONS, 1)]
    (root / "fid2qid_dev.csv").write_bytes("\r\n".join(lines).encode())
    recording(root / "dev/SPK013_DEV000001.wav", 0.5)
    recording(root / "dev/DEV000002-SPK002.wav", 0.25)
    return root


def test_questions_are_spoken_and_passages_written(source, tmp_path):
    report = prepare(source, tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "dev")
    assert [(q.id, q.seconds, q.speaker) for q in corpus.questions] == [
        ("56be4db0", 0.5, "SPK013"),
        ("56be4db1", 0.25, "SPK002"),
    ]
    (passage,) = corpus.passages.values()
    assert (passage.text, passage.audio) == (CONTEXT, "")
    assert [q.answers[0].char_start for q in corpus.questions] == [16, 0]
    counts = report["splits"]["dev"]["questions"]
    assert (counts["kept"], counts["published"], counts["agrees"]) == (2, 10_570, False)
    assert report["absent"] == ["train"]


def test_missing_and_unlisted_recordings_are_counted(source, tmp_path, recording):
    (source / "dev/DEV000002-SPK002.wav").unlink()
    recording(source / "dev/SPK001_DEV000009.wav")
    facts = prepare(source, tmp_path / "out")["splits"]["dev"]
    assert facts["set_aside"] == {
        "it has no recording, and others have; add it, or give --no-audio": 1
    }
    assert collect_remarks(facts) == {"recordings that no list has": 1}
    facts = prepare(source, tmp_path / "text", audio=False)["splits"]["dev"]
    assert (facts["questions"]["kept"], facts["found"]) == (2, [])
