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
                golds = [
                    {"id": str(i), "text": t, "answer_start": s}
                    for i, (t, s) in enumerate(answers, 1)
                ]
                qas.append(
                    {"id": name, "question": question, "answers": golds} | (more[0] if more else {})
                )
            made.append(
                {"context": context, "qas": qas} | ({"id": f"{drcd}-{number}"} if drcd else {})
            )
        article = {"title": "Title", "paragraphs": made} | ({"id": drcd} if drcd else {})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"version": "1.1", "data": [article], **top}, ensure_ascii=False),
            encoding="utf-8",
        )
        return path

    return write


@pytest.fixture
def recording():
    """A function (path, seconds, rate, level) -> the samples written there, float32 (N,)."""

    def write(path, seconds=0.3, rate=16_000, level=0.3):
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = (
            np.random.default_rng(len(str(path)))
            .uniform(-level, level, round(seconds * rate))
            .astype(np.float32)
        )
        soundfile.write(path, samples, rate, subtype="FLOAT" if path.suffix == ".wav" else None)
        return samples

    return write
