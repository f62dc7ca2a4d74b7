"""A fixture for tests that compare heads with s3prl's."""

import pytest


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
