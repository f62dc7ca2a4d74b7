"""Miniatures of published corpora: in their layout, with times that are those of the recordings, the same for the same seed."""

from __future__ import annotations

import itertools
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.data.records import synthetic_note
from speechssl.errors import InputError
from speechssl.synth.miniature import CORPORA, make_miniature

from ..files import same_files, untouched

pytestmark = pytest.mark.skipif(not find_spec("espeakng_loader"), reason='needs pip install "speechssl[synth]"')
SPOKEN = ("nmsqa", "odsqa", "slue-sqa5")  # miniatures with recordings
FEW = {"train": 1, "dev": 1, "test": 1}
REAL = Path(__file__).parents[3] / "shared/data"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Corpus -> its miniature."""
    root = tmp_path_factory.mktemp("miniatures")
    for name in CORPORA:
        assert make_miniature(root / name, name, FEW, 2)
    return {name: root / name for name in CORPORA}


def rows(path: Path) -> list[dict]:
    from pyarrow import parquet

    return parquet.read_table(path).to_pylist()


def loudness(samples: np.ndarray, start: float, end: float) -> float:
    return float(np.abs(samples[round(start * 16_000) : round(end * 16_000)]).mean())


@pytest.mark.slow
def test_every_tree_says_that_it_is_invented(made: dict[str, Path]) -> None:
    for name, root in made.items():
        text = (root / "README.md").read_text()
        assert text.startswith(f"# Not {name}: an invented miniature") and f"prepare miniature {name} OUT" in text


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_nmsqa_has_the_published_columns_and_names(made: dict[str, Path], split: str) -> None:
    found = rows(made["nmsqa"] / f"data.parquet/{split}.parquet")
    questions = json.loads((made["nmsqa"] / f"{split}-hash2question.json").read_text())
    segments = json.loads((made["nmsqa"] / f"{split}_segment_id.json").read_text())
    assert [questions[row["id"]] + ".mp3" for row in found] == [row["question_audio_path"] for row in found]
    for row in found:
        place = row["content_full_audio_path"].removeprefix("context-").removesuffix(".mp3")
        lengths = [len(read_audio(made["nmsqa"] / f"{split}_audios/context-{place}_{i}.mp3")) for i in segments[place]]
        number = int(row["content_segment_audio_path"].split("_")[-1].removesuffix(".mp3"))
        answers = row["answers"]
        shift = answers["audio_full_answer_start"][0] - answers["audio_segment_answer_start"][0]
        assert shift == pytest.approx(sum(lengths[:number]) / 16_000 if split == "test" else 0.0, abs=0.01 + number / 16_000)
        assert 0 <= answers["audio_segment_answer_start"][0] < answers["audio_segment_answer_end"][0] <= lengths[number] / 16_000
        for text, start in zip(answers["text"], answers["answer_start"], strict=True):
            assert row["context"][start : start + len(text)] == text and text in row["content_segment_text"]


@pytest.mark.slow
@pytest.mark.skipif(not (REAL / "nmsqa/dev.parquet").is_file(), reason="the real files of NMSQA are not here")
def test_nmsqa_has_the_schema_of_the_real_file(made: dict[str, Path]) -> None:
    from pyarrow import parquet

    real, mine = (parquet.read_schema(p) for p in (REAL / "nmsqa/dev.parquet", made["nmsqa"] / "data.parquet/dev.parquet"))
    assert real.remove_metadata().equals(mine.remove_metadata())


@pytest.mark.slow
def test_slue_words_and_answers_lie_where_they_are_heard(made: dict[str, Path], tmp_path: Path) -> None:
    found = rows(made["slue-sqa5"] / "sqa5/validation-00000-of-00001.parquet")
    assert len(rows(made["slue-sqa5"] / "sqa5/verified_test-00000-of-00001.parquet")) == 1
    for row in found:
        (tmp_path / "document.wav").write_bytes(row["document_audio"]["bytes"])
        samples, words = read_audio(tmp_path / "document.wav"), row["word2time"]
        times = [(w, a, b) for w, a, b in zip(words["word"], words["start_second"], words["end_second"], strict=True)]
        assert all((a, b) == (-1, -1) for w, a, b in times if w == ".") and sum(w == "." for w, _, _ in times) >= 5
        spoken = [(w, a, b) for w, a, b in times if w != "."]
        assert all(0 <= a < b <= len(samples) / 16_000 for _, a, b in spoken)
        pauses = [(b, a) for (_, _, b), (_, a, _) in itertools.pairwise(spoken) if a - b > 0.2]
        assert np.mean([loudness(samples, *p) for p in pauses]) < 0.02 * np.mean([loudness(samples, a, b) for _, a, b in spoken])
        (answer,), (start,), (end,) = (row["answer_spans"][n] for n in ("answer", "start_second", "end_second"))
        inside = [w for w, a, b in spoken if a >= start and b <= end]
        assert " ".join(inside).lower() == answer


@pytest.mark.slow
def test_spoken_squad_keeps_offsets_where_they_hold_and_those_of_squad_elsewhere(made: dict[str, Path]) -> None:
    root = made["spoken-squad"]
    paragraphs = {p.name: json.loads(p.read_text())["data"][0]["paragraphs"][0] for p in root.glob("*.json")}
    assert len(paragraphs) == 5
    for name in ("spoken_train-v1.1.json", "spoken_test-v1.1.json", "dev-v1.1.json"):
        for question in paragraphs[name]["qas"]:
            for answer in question["answers"]:
                start = answer["answer_start"]
                assert paragraphs[name]["context"][start : start + len(answer["text"])] == answer["text"]
    original = {q["id"]: q["answers"] for q in paragraphs["dev-v1.1.json"]["qas"]}
    for name in ("spoken_test-v1.1_WER44.json", "spoken_test-v1.1_WER54.json"):
        assert {q["id"]: q["answers"] for q in paragraphs[name]["qas"]} == original


@pytest.mark.slow
def test_odsqa_has_an_empty_question_in_the_spoken_test_alone(made: dict[str, Path]) -> None:
    asked = {}
    for name in ("spokenq", "textq"):
        data = json.loads((made["odsqa"] / f"ODSQA_{name}_test-v1.1.json").read_text())["data"]
        asked[name] = {q["id"]: q["question"] for a in data for p in a["paragraphs"] for q in p["qas"]}
    assert [i for i, text in asked["spokenq"].items() if not text] == [*(asked["spokenq"].keys() - asked["textq"].keys())]
    assert all((made["odsqa"] / f"questions/{i}.wav").is_file() for i in asked["textq"])


@pytest.mark.slow
def test_toefl_qa_has_stories_questions_and_labelled_options(made: dict[str, Path]) -> None:
    files = sorted((made["toefl-qa"] / "data/dev").iterdir())
    assert [f.name for f in files] == ["tpo_90-conversation_1_1", "tpo_90-conversation_1_2"]
    right = []
    for file in files:
        lines = [line.split(" ", 1) for line in file.read_text().splitlines()]
        assert [kind for kind, _ in lines[-5:]] == ["QUESTION", *["OPTION"] * 4]
        assert {kind for kind, _ in lines[:-5]} == {"SENTENCE"}
        right.append(sum(int(text.split()[-1]) for _, text in lines[-4:]))
    assert right == [2, 1]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tree_and_what_is_there_is_left_alone(made: dict[str, Path], tmp_path: Path) -> None:
    there = made["toefl-qa"]
    with untouched(there):
        assert not make_miniature(there, "toefl-qa", FEW, 2)
    again = tmp_path / "again"
    make_miniature(again, "toefl-qa", FEW, 2)
    assert same_files(there, again)
    make_miniature(tmp_path / "other", "toefl-qa", FEW, 2, seed=1)
    story = "data/dev/tpo_90-conversation_1_1"
    assert (tmp_path / "other" / story).read_text() != (there / story).read_text()


@pytest.mark.slow
def test_bad_requests_are_one_sentence_and_leave_nothing(made: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no miniature of squad; choose from nmsqa, odsqa"):
        make_miniature(tmp_path / "out", "squad", FEW)
    with pytest.raises(InputError, match="at least one passage a split"):
        make_miniature(tmp_path / "out", "nmsqa", {"train": 0, "dev": 1, "test": 1})
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt", made["nmsqa"]):
        with pytest.raises(InputError, match="exists and is not this miniature; choose another folder or delete it"):
            make_miniature(place, "toefl-qa", FEW, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nmsqa", "odsqa", "toefl-qa", "spoken-squad", "slue-sqa5"])
def test_what_is_prepared_from_a_miniature_says_that_it_is_invented(
    name: str, made: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from speechssl.cli import main

    counts = "--passages 1 --dev-passages 1 --test-passages 1 --questions 2".split()
    assert main(["prepare", "miniature", name, str(made[name]), *counts]) == 0  # there already
    assert main(["prepare", name, str(made[name]), str(tmp_path / "corpus")]) == 0
    note, printed = synthetic_note(tmp_path / "corpus"), capsys.readouterr()
    assert note.startswith("Synthetic speech: an invented miniature" if name in SPOKEN else "An invented miniature.")
    assert ("its recordings spoken by espeak-ng" in note) == (name in SPOKEN)
    assert f"{name}, an invented miniature of it, to which published counts do not apply:" in printed.out
    assert "DIFFERENT" not in printed.out and "; published" not in printed.out and ": 0passage" not in printed.err
