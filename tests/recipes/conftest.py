"""Recipes do not see the checkpoints that this machine happens to have."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_models_of_this_machine(tmp_path_factory):
    """Give recipes an empty folder of checkpoints: with Whisper they would take minutes longer, and
    leave rows that tests do not expect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEECHSSL_MODELS", str(tmp_path_factory.mktemp("models")))
        yield
