"""Tiny trees that look like the published ones."""

import numpy as np
import pytest
import soundfile


@pytest.fixture
def write():
    """Write noise where a recording belongs: write(path, seconds=0.1, rate=16_000)."""

    def write(path, seconds=0.1, rate=16_000):
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = np.random.default_rng(len(str(path))).uniform(-0.5, 0.5, round(seconds * rate))
        soundfile.write(path, samples, rate)
        return path

    return write


@pytest.fixture
def say():
    """Write lines: say(path, *lines)."""

    def say(path, *lines):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return say
