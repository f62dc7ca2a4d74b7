"""Commands of recipes without the time of their imports, and without what this machine happens to
have."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_models_of_this_machine(tmp_path_factory):
    """Recipes evaluate Whisper where it is: minutes, and rows that tests do not expect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEECHSSL_MODELS", str(tmp_path_factory.mktemp("models")))
        yield
