"""Commands of recipes without the time of their imports."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .preloaded import commands


@pytest.fixture(scope="session")
def quick() -> Iterator[str]:
    """A PATH for recipes that start many commands."""
    with tempfile.TemporaryDirectory() as folder, commands(Path(folder), HF_HUB_OFFLINE="1") as first:
        yield os.pathsep.join([str(first), str(Path(sys.executable).parent), os.environ["PATH"]])
