"""Small files in the shapes of the published ones, and recordings."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def shared():
    """A function: a file or folder of the shared real data, or the test is skipped."""

    def shared(*parts):
        path = SHARED.joinpath(*parts)
        if not path.exists():
            pytest.skip(f"the shared data folder is absent ({'/'.join(parts)})")
        return path

    return shared


@pytest.fixture
def unmade(tmp_path):
    """A folder to prepare a corpus in that is refused: when the test is over nothing is there."""
    yield tmp_path / "out"
    assert not (tmp_path / "out").exists()


@pytest.fixture
def squad_json():
    """A function (path, *paragraphs (context, [(id, question, [(answer, start)...], more fields)]))
    -> the path, as SQuAD JSON."""

    def write(path, *paragraphs, drcd="", **top):
        made = []
        for number, (context, asked) in enumerate(paragraphs, 1):
            qas = []
            for name, question, answers, *more in asked:
                golds = [{"text": text, "answer_start": start} for text, start in answers]
                qas.append({"id": name, "question": question, "answers": golds})
                qas[-1].update(*more)
            made.append({"context": context, "qas": qas})
            if drcd:
                made[-1]["id"] = f"{drcd}-{number}"
        article = {"title": "Title", "paragraphs": made}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"version": "1.1", "data": [article], **top}))
        return path

    return write


@pytest.fixture
def recording():
    """A function (path, seconds, rate, level) -> the samples written there, float32 (N,)."""

    def write(path, seconds=0.3, rate=16_000, level=0.3):
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(len(str(path)))
        samples = rng.uniform(-level, level, round(seconds * rate)).astype(np.float32)
        soundfile.write(path, samples, rate, subtype="FLOAT" if path.suffix == ".wav" else None)
        return samples

    return write
