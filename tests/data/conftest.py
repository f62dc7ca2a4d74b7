"""Fixtures that write small files in the layouts of published corpora, and recordings."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def shared():
    """A function (*parts of a path) -> the file or folder of the shared real data. The test is
    skipped where it is absent."""

    def find_shared(*parts):
        path = SHARED.joinpath(*parts)
        if not path.exists():
            pytest.skip(f"the shared data folder is absent ({'/'.join(parts)})")
        return path

    return find_shared


@pytest.fixture
def absent_out(tmp_path):
    """An output folder for a corpus that is refused. After the test the folder must not exist."""
    yield tmp_path / "out"
    assert not (tmp_path / "out").exists()


@pytest.fixture
def squad_json():
    """A function that writes SQuAD JSON with one article, and returns the path.

    paragraphs: (context, questions); a question is (id, text, [(answer, offset), ...]), and
    perhaps a dict of further fields. drcd: the article's id in DRCD, from which paragraphs get
    theirs. top: fields beside `data`.
    """

    def write(path, *paragraphs, drcd="", **top):
        records = []
        for number, (context, questions) in enumerate(paragraphs, 1):
            qas = []
            for name, question, answers, *further in questions:
                golds = [{"text": text, "answer_start": start} for text, start in answers]
                qas.append({"id": name, "question": question, "answers": golds})
                qas[-1].update(*further)
            records.append({"context": context, "qas": qas})
            if drcd:
                records[-1]["id"] = f"{drcd}-{number}"
        article = {"title": "Title", "paragraphs": records}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"version": "1.1", "data": [article], **top}))
        return path

    return write


@pytest.fixture
def recording():
    """A function that writes a recording of noise and returns its samples, float32 (N,)."""

    def write(path, seconds=0.3, rate=16_000):
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(len(str(path)))
        samples = rng.uniform(-0.3, 0.3, round(seconds * rate)).astype(np.float32)
        soundfile.write(path, samples, rate, subtype="FLOAT" if path.suffix == ".wav" else None)
        return samples

    return write
