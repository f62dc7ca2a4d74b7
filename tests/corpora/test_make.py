"""Miniatures of published corpora: prepared as the corpora are, with their oddities and times; the
same for the same seed."""

import itertools
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.cli import main
from speechssl.data.records import load_corpus, synthetic_note

from .make import CORPORA, Miniature, make_miniature

pytestmark = [
    pytest.mark.skipif(
        not find_spec("espeakng_loader"), reason=('needs pip install "speechssl[synth]"')
    ),
    pytest.mark.slow,
]
REAL = Path(__file__).parents[3] / "shared/data"


def few(out, corpus="toefl-qa", seed=0):
    counts = {"passages": 1, "dev_passages": 1, "test_passages": 1, "questions": 2}
    return Miniature(corpus=corpus, out=out, seed=seed, **counts)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Corpus -> its miniature."""
    root = tmp_path_factory.mktemp("miniatures")
    for name in CORPORA:
        make_miniature(few(root / name, name))
    return {name: root / name for name in CORPORA}


@pytest.mark.parametrize("name", CORPORA)
def test_a_miniature_is_prepared_as_the_corpus_is_and_says_that_it_is_invented(
    name, made, tmp_path, capsys
):
    assert (made[name] / "README.md").read_text().startswith(f"# Not {name}: an invented miniature")
    out = tmp_path / "corpus"
    assert main(["prepare", name, str(made[name]), str(out)]) == 0
    note, printed = synthetic_note(out), capsys.readouterr()
    # miniatures with recordings
    spoken = name in ("nmsqa", "odsqa", "slue-sqa5", "squad-src", "sd-qa")
    said = "Synthetic speech: an invented miniature" if spoken else "An invented miniature."
    assert note.startswith(said)
    assert ("its recordings spoken by espeak-ng" in note) == spoken
    of = f"{name}, an invented miniature of it, to which published counts do not apply:"
    assert of in printed.out
    assert "DIFFERENT" not in printed.out
    assert "; published" not in printed.out
    assert ": 0passage" not in printed.err
    splits = read_json(out / "data_report.json")["splits"]
    for split, facts in splits.items():
        aside = {"it has no recording, and others have": 1} if split == "test-spokenq" else {}
        assert facts["set_aside"] == aside
        assert facts["questions"]["kept"] + len(aside) == facts["questions"]["read"] > 0
        if name in ("nmsqa", "slue-sqa5"):
            assert facts["with_times"] == facts["answerable"]
            assert not any("out" in f["done"] for f in facts["found"])


def test_slue_words_and_answers_lie_where_they_are_heard(made, tmp_path):
    assert main(["prepare", "slue-sqa5", str(made["slue-sqa5"]), str(tmp_path / "corpus")]) == 0
    corpus = load_corpus(tmp_path / "corpus", "dev")
    (passage,) = corpus.passages.values()
    sound, words = np.abs(read_audio(corpus.path(passage))), passage.words

    def level(start, end):
        return sound[round(start * 16_000) : round(end * 16_000)].mean()

    loud = np.mean([level(w.start, w.end) for w in words])
    pauses = [(a.end, b.start) for a, b in itertools.pairwise(words) if b.start - a.end > 0.2]
    assert np.mean([level(*pause) for pause in pauses]) < 0.02 * loud
    for question in corpus.questions:
        (answer,) = question.answers
        begin, end = answer.start - 1e-4, answer.end + 1e-4
        inside = [w.text for w in words if begin <= w.start and w.end <= end]
        assert " ".join(inside) == answer.text


@pytest.mark.skipif(
    not (REAL / "nmsqa/dev.parquet").is_file(), reason=("the real files of NMSQA are not here")
)
def test_nmsqa_has_the_schema_of_the_real_file(made):
    from pyarrow import parquet

    real, mine = (
        parquet.read_schema(p)
        for p in (REAL / "nmsqa/dev.parquet", made["nmsqa"] / "data.parquet/dev.parquet")
    )
    assert real.remove_metadata().equals(mine.remove_metadata())
