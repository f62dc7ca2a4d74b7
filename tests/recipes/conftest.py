"""Tests of recipes do not see the models that are on this machine."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_models_of_this_machine(tmp_path_factory):
    """Recipes evaluate Whisper where it is found, which takes minutes and adds rows that tests do
    not expect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEECHSSL_MODELS", str(tmp_path_factory.mktemp("models")))
        yield
