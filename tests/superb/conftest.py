"""A tiny labelled set: tones of two pitches by two speakers, so that there is something to learn."""

import json

import numpy as np
import pytest

from speechssl.audio import write_flac


@pytest.fixture
def labelled(tmp_path):
    """A function (task, slots) -> folder of a labelled set of 12/4/4 half-second tones."""

    def make(task="ks", slots=("keyword",), counts=(12, 4, 4), speakers=("a", "b", "c")):
        root, rng = tmp_path / "sets" / task, np.random.default_rng(0)
        for split, count, speaker in zip(("train", "dev", "test"), counts, speakers, strict=True):
            lines = []
            for i in range(count):
                high = i % 2
                samples = 0.3 * np.sin(2 * np.pi * (300 + 900 * high) * np.arange(8_000) / 16_000) + rng.normal(0, 0.01, 8_000)
                name = f"{split}-{i}"
                write_flac(root / "audio" / f"{name}.flac", samples)
                labels = {slot: ("low", "high")[high ^ n % 2] for n, slot in enumerate(slots)}  # every other one the other way
                record = {"id": name, "audio": f"audio/{name}.flac", "seconds": 0.5, "speaker": f"{speaker}{i % 2}"}
                lines.append(json.dumps(record | {"labels": labels}) + "\n")
            (root / f"{split}.jsonl").write_text("".join(lines))
        (root / "card.json").write_text(json.dumps({"task": task}))
        return root

    return make
