"""Commands of recipes without the time of their imports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .preloaded import commands


@pytest.fixture(scope="session")
def quick() -> Iterator[str]:
    """A PATH for recipes that start many commands."""
    with commands(HF_HUB_OFFLINE="1") as path:
        yield path
