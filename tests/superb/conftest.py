"""Fixtures of heads: s3prl, which they are compared with, and a task on cached states."""

import pytest

from speechssl.data.superb import load_labelled
from speechssl.superb.data import TRAINING, CachedLoader, cache_states, list_split_recordings
from speechssl.superb.tasks.classification import Classification


@pytest.fixture(scope="session")
def s3prl():
    """Make s3prl's experts and runner importable, with the upstream `speechssl`; skip the test
    without s3prl."""
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    pytest.importorskip(
        "tensorboardX", reason="s3prl's programs need tensorboardX, of the optional extra s3prl"
    )
    pytest.importorskip("pandas", reason="s3prl's experts read their lists with pandas")
    from speechssl.encoders.s3prl import register, stand_in_for_programs

    register()
    stand_in_for_programs()


@pytest.fixture(scope="session")
def keywords(labelled, encoder, tmp_path_factory):
    """Return the task KS on low and high tones, and the loader of its cached means."""
    data, features = load_labelled(labelled()), tmp_path_factory.mktemp("ks") / "features"
    cache_states(encoder, list_split_recordings(data, TRAINING), features, pooled=True)
    task = Classification("ks", data, encoder.grid)
    return task, CachedLoader(task, features)
