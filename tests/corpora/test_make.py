"""Test miniatures of published corpora: they are prepared as the corpora are, and say that they are
invented."""

import itertools
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.cli import main
from speechssl.data.records import load_corpus, read_synthetic_note

from .make import CORPORA, Miniature, make_miniature

pytestmark = [
    pytest.mark.skipif(
        not find_spec("espeakng_loader"), reason='needs pip install "speechssl[synth]"'
    ),
    pytest.mark.slow,
]
REAL = Path(__file__).parents[3] / "shared/data"


@pytest.fixture(scope="module")
def miniatures(tmp_path_factory):
    """Corpus -> the folder of its miniature, which has a passage a split."""
    root = tmp_path_factory.mktemp("miniatures")
    counts = {"passages": 1, "dev_passages": 1, "test_passages": 1, "questions": 2}
    for name in CORPORA:
        make_miniature(Miniature(corpus=name, out=root / name, **counts))
    return {name: root / name for name in CORPORA}


@pytest.mark.parametrize("name", CORPORA)
def test_a_miniature_is_prepared_and_marked_as_invented(name, miniatures, tmp_path, capsys):
    out = tmp_path / "corpus"
    assert main(["prepare", name, str(miniatures[name]), str(out)]) == 0
    note = read_synthetic_note(out)
    assert "an invented miniature" in note.lower()
    assert ("its recordings spoken by espeak-ng" in note) == CORPORA[name].has_recordings
    assert "published counts do not apply" in capsys.readouterr().out
    for split, facts in read_json(out / "data_report.json")["splits"].items():
        aside = sum(facts["set_aside"].values())
        # the empty question of ODSQA has no recording
        assert aside == (split == "test-spokenq")
        assert facts["questions"]["kept"] > 0
        assert facts["questions"]["kept"] + aside == facts["questions"]["read"]
        if CORPORA[name].has_times:
            assert facts["with_times"] == facts["answerable"]
            assert not any("out" in remark["done"] for remark in facts["found"])


def test_slue_words_and_answers_lie_where_they_are_heard(miniatures, tmp_path):
    source = str(miniatures["slue-sqa5"])
    assert main(["prepare", "slue-sqa5", source, str(tmp_path / "corpus")]) == 0
    corpus = load_corpus(tmp_path / "corpus", "dev")
    (passage,) = corpus.passages.values()
    sound = np.abs(read_audio(corpus.path(passage)))
    words = passage.words

    def level(start, end):
        """Return the mean magnitude between two times in seconds."""
        return sound[round(start * 16_000) : round(end * 16_000)].mean()

    loud = np.mean([level(w.start, w.end) for w in words])
    pauses = []
    for word, next_word in itertools.pairwise(words):
        if next_word.start - word.end > 0.2:
            pauses.append((word.end, next_word.start))
    assert np.mean([level(*pause) for pause in pauses]) < 0.02 * loud
    for question in corpus.questions:
        (answer,) = question.answers
        begin, end = answer.start - 1e-4, answer.end + 1e-4
        inside = [w.text for w in words if begin <= w.start and w.end <= end]
        assert " ".join(inside) == answer.text


@pytest.mark.skipif(
    not (REAL / "nmsqa/dev.parquet").is_file(), reason="the real files of NMSQA are not here"
)
def test_the_miniature_of_nmsqa_has_the_published_schema(miniatures):
    from pyarrow import parquet

    published = parquet.read_schema(REAL / "nmsqa/dev.parquet")
    invented = parquet.read_schema(miniatures["nmsqa"] / "data.parquet/dev.parquet")
    assert published.remove_metadata().equals(invented.remove_metadata())
