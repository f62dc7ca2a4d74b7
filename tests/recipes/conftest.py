"""Commands of recipes without the time of their imports, and without what this machine happens to
have."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .shared import script


@pytest.fixture(autouse=True, scope="session")
def _no_models_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Recipes evaluate Whisper where it is: minutes, and rows that tests do not expect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEECHSSL_MODELS", str(tmp_path_factory.mktemp("models")))
        yield


@pytest.fixture(autouse=True)
def _no_variables_of_another_test() -> Iterator[None]:
    """Libraries set some as they are used, such as TORCHINDUCTOR_CACHE_DIR: with these no command
    would be forked any more."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def quick() -> Iterator[str]:
    """A PATH for recipes that start many commands."""
    with script("preloaded.py").commands(HF_HUB_OFFLINE="1") as path:
        yield path
