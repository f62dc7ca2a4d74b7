"""HeySQuAD: tables with recordings in them, and the JSON files of transcribed questions."""

import numpy as np
import pytest
import soundfile

from speechssl.data.heysquad import prepare_heysquad
from speechssl.data.options import HeySquad
from speechssl.data.records import load_corpus

from ..files import refused, remarks, wav, write_parquet

CONTEXT = "Ann was born in Rome."


def noise(seconds=0.25, rate=16_000):
    return wav(np.random.default_rng(0).uniform(-0.3, 0.3, round(seconds * rate)), rate)


def row(
    name, question="Where?", answers=(("Rome", 16),), impossible=False, audio=b"", context=CONTEXT
):
    golds = [{"answer_start": start, "text": text} for text, start in answers]
    plausible = [{"answer_start": 0, "text": "Ann"}] if impossible else None
    recording = {"bytes": audio or noise(), "path": f"{name}.wav"}
    texts = {"transcription": question.lower(), "question": question, "context": context}
    return {
        "audio": recording,
        **texts,
        "answers": golds,
        "is_impossible": impossible,
        "id": name,
        "plausible_answers": plausible,
    }


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "HeySQuAD_human"
    write_parquet(
        root / "data/train-00000-of-00002.parquet",
        [row("q1", audio=noise(0.5, 24_000)), row("q2", "Who?", (), True)],
    )
    write_parquet(
        root / "data/train-00001-of-00002.parquet",
        [row("q3", context="Another."), row("q1", "In which town?")],
    )
    write_parquet(root / "data/validation-00000-of-00001.parquet", [row("v1")])
    return root


@pytest.mark.slow
def test_tables(source, tmp_path):
    report = prepare_heysquad(HeySquad(source=source, out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "train")
    assert [q.id for q in corpus.questions] == ["q1", "q2", "q1#2", "q3"] and len(
        corpus.passages
    ) == 2
    first, second = corpus.questions[:2]
    assert (first.text, first.transcript, first.seconds, first.passage) == (
        "Where?",
        "where?",
        0.5,
        second.passage,
    )
    assert first.answers[0].char_start == 16 and second.answers == ()
    assert soundfile.info(corpus.path(first)).samplerate == 16_000
    facts = report["splits"]["train"]
    assert facts["questions"] == {
        "read": 4,
        "kept": 4,
        "set_aside": 0,
        "published": 71_990,
        "agrees": False,
    }
    assert report["splits"]["dev"]["questions"]["published"] == 4_158
    assert remarks(facts) == {"ids that occur twice": 1, "answers whose offset does not match": 1}
    audio = sorted((tmp_path / "out").glob("*/audio/*.flac"))
    (tmp_path / "out/card.json").unlink()  # a killed run writes only what is not there
    audio[0].unlink()
    before = [path.stat().st_mtime_ns for path in audio[1:]]
    prepare_heysquad(HeySquad(source=source, out=tmp_path / "out", workers=1))
    assert audio[0].is_file() and before == [path.stat().st_mtime_ns for path in audio[1:]]
    facts = prepare_heysquad(
        HeySquad(source=source, out=tmp_path / "slice", passages=1, workers=1)
    )["splits"]["train"]
    assert [q.id for q in load_corpus(tmp_path / "slice", "train").questions] == [
        "q1",
        "q2",
        "q1#2",
    ]
    assert len(list((tmp_path / "slice/train/audio").glob("*.flac"))) == 3  # and no others
    assert facts["questions"] == {
        "read": 4,
        "kept": 3,
        "set_aside": 1,
        "published": 71_990,
        "agrees": False,
    }


def test_recordings_that_are_missing_or_damaged(tmp_path):
    damaged, missing = row("damaged", audio=b"RIFF----WAVE"), row("missing") | {"audio": None}
    path = tmp_path / "in/validation-0.parquet"
    write_parquet(path, [row("fine"), damaged, missing])
    report = prepare_heysquad(HeySquad(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    assert report["splits"]["dev"]["set_aside"] == {
        ("its recording cannot be used"): 1,
        ("it has no recording, and others have"): 1,
    }
    assert f"{path}: question damaged" in (tmp_path / "out/set_aside.jsonl").read_text()
    assert [q.id for q in load_corpus(tmp_path / "out", "dev").questions] == ["fine"]
    assert report["absent"] == ["train"]
    report = prepare_heysquad(
        HeySquad(source=tmp_path / "in", out=tmp_path / "text", audio=False, workers=1)
    )
    assert report["splits"]["dev"]["questions"]["kept"] == 3


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("HeySQuAD_machine/data/train-00000-of-00001.parquet", "train-machine"),
        ("HeySQuAD_machine/data/validation-00000-of-00001.parquet", "dev-machine"),
        ("default/validation/0000.parquet", "dev"),
    ],
)
def test_layouts(tmp_path, name, split):
    path, asked = (
        tmp_path / "in" / name,
        row("q") | {"answers": {"text": ["Rome"], "answer_start": [16]}},
    )
    write_parquet(path, [asked])
    prepare_heysquad(HeySquad(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    (question,) = load_corpus(tmp_path / "out", split).questions
    assert question.seconds == 0.25
    assert question.transcript == "where?"
    assert question.answers[0].char_start == 16


def test_the_json_files(tmp_path, squad_json):
    root = tmp_path / "HeySQuAD_json"
    squad_json(
        root / "HeySQuAD_test/dev-common-human-transcribed-1002.json",
        (CONTEXT, [("q", "wear", [("Rome", 16)])]),
    )
    squad_json(
        root / "HeySQuAD_test/dev-common-original-1002.json",
        (CONTEXT, [("q", "Where?", [("Rome", 16)])]),
    )
    report = prepare_heysquad(HeySquad(source=root, out=tmp_path / "out", workers=1))
    spoken, read = (
        load_corpus(tmp_path / "out", f"dev-common-{kind}")
        for kind in ("human-transcribed", "original")
    )
    assert (spoken.questions[0].text, spoken.questions[0].transcript) == ("", "wear")
    assert (read.questions[0].text, read.questions[0].transcript) == ("Where?", "")
    assert report["splits"]["dev-common-original"]["questions"]["published"] == 1_002


def test_another_folder_is_one_sentence(tmp_path, source, unmade):
    (tmp_path / "empty").mkdir()
    refused(
        "has no file of HeySQuAD; give the folder of yij",
        prepare_heysquad,
        HeySquad(source=tmp_path / "empty", out=unmade, workers=1),
    )
    path = source / "data/validation-00000-of-00001.parquet"
    for content in (path.read_bytes()[:-7], b""):
        path.write_bytes(content)
        refused(
            f"{path.name} is not a whole Parquet file",
            prepare_heysquad,
            HeySquad(source=source, out=unmade, workers=1),
        )
    write_parquet(path, [{"id": "q", "text": "another table"}])
    refused(
        "row 0: the record has no `question`; give the published table",
        prepare_heysquad,
        HeySquad(source=source, out=unmade, workers=1),
    )
