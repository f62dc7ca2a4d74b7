"""What is wanted of a corpus: which of it a prepared folder is known by, and what is left of one that came to nothing."""

import pytest

from speechssl.data.prepare import Wanted
from speechssl.data.squad import prepare_squad
from speechssl.errors import InputError
from speechssl.io import read_json


@pytest.mark.parametrize(
    ("wanted", "settings"),
    [
        (Wanted(workers=3, seed=4), {"speak": False}),  # a seed that draws nothing is no setting
        (Wanted(speak=True, seed=4), {"speak": True, "seed": 4}),
        (Wanted(passages=2), {"speak": False, "passages": 2}),
    ],
)
def test_a_corpus_is_known_by_what_decides_its_content(wanted, settings):
    assert wanted.settings == settings


def test_the_settings_of_a_folder_are_those_of_earlier_versions(tmp_path, squad_json):
    path = squad_json(tmp_path / "dev.json", ("In Rome.", [("1", "Where?", [("Rome", 3)])]))
    prepare_squad(path, tmp_path / "out", Wanted(passages=1, workers=2))
    kept = read_json(tmp_path / "out/settings.json")
    assert kept.pop("files").keys() == {"dev"}
    assert kept == {"corpus": "squad", "source": str(path), "speak": False, "passages": 1, "language": "en"}


def test_an_empty_folder_is_empty_again_after_a_source_that_cannot_be_read(tmp_path):
    (tmp_path / "dev.json").write_text('{"data": [{"paragraphs": 3}]}')
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError):
        prepare_squad(tmp_path / "dev.json", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
