"""The table of unit quality: phones as the topline, MFCC as the floor, and what an encoder without a codebook is told."""

import json
import shutil

import pytest

from speechssl.encoders.loading import load_encoder
from speechssl.errors import InputError
from speechssl.units.fit import FitOptions, fit_units
from speechssl.units.inspect import MFCC_GRID, InspectOptions, inspect_units
from speechssl.units.kmeans import fit_kmeans
from speechssl.units.mfcc import mfcc

DEV = InspectOptions("dev", pairs=4, snrs=(10.0,))
FIT = FitOptions(layer=1, clusters=8, smooth=3, recordings=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    pytest.importorskip("espeakng_loader")
    from speechssl.corpora.minisqa.speech import Settings, prepare

    root = tmp_path_factory.mktemp("minisqa") / "corpus"
    prepare(root, Settings("en", {"train": 1, "dev": 2, "test": 0}, seed=0))
    return root


def test_phones_are_alike_for_two_voices_and_mfcc_units_are_not(corpus, tmp_path):
    from speechssl.audio import read_audio
    from speechssl.corpora.records import load_corpus

    phones = inspect_units(corpus, "phones", None, DEV, tmp_path / "phones.json")
    assert phones["same_text_distance"] < 0.1 and phones["same_text_auc"] == 1
    assert json.loads((tmp_path / "phones.json").read_text()) == phones
    data = load_corpus(corpus, "train")
    features = [mfcc(read_audio(data.path(p)), MFCC_GRID).numpy() for p in data.passages.values()]
    fit_kmeans(features, 20, {"encoder": "mfcc"}).save(tmp_path / "book.safetensors")
    floor = inspect_units(corpus, "mfcc", tmp_path / "book.safetensors", DEV)
    assert floor["K"] == 20 and floor["same_text_distance"] > 0.4
    assert 0 < floor["pnmi"] < 1 and floor["units_a_second"] > floor["phones_a_second"]


def test_an_encoder_is_inspected_on_its_own_codebook(corpus, hubert_folder, tmp_path):
    folder = str(hubert_folder("layer"))
    fit_units(corpus, folder, tmp_path / "units.safetensors", FIT)
    found = inspect_units(corpus, folder, tmp_path / "units.safetensors", DEV)
    assert found["K"] == 8 and 0 <= found["same_text_distance"] <= 1
    assert load_encoder(folder).hash in (tmp_path / "units.card.json").read_text()


def test_without_a_codebook_there_is_one_sentence(corpus):
    with pytest.raises(InputError, match="need a codebook"):
        inspect_units(corpus, "mfcc", None, DEV)


def test_what_quality_cannot_be_measured_on_is_one_sentence(corpus, tmp_path):
    with pytest.raises(InputError, match="give --pairs 2 or more"):
        inspect_units(corpus, "phones", None, InspectOptions("dev", pairs=1))
    with pytest.raises(InputError, match="test has no passages"):
        inspect_units(corpus, "phones", None, InspectOptions("test", pairs=2))
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    manifest = copy / "dev/passages.jsonl"
    bare = [{k: v for k, v in json.loads(line).items() if k != "phones"} for line in manifest.read_text().splitlines()]
    manifest.write_text("".join(json.dumps(record) + "\n" for record in bare))
    with pytest.raises(InputError, match="passages without phones"):
        inspect_units(copy, "phones", None, DEV)


def test_a_bad_passage_is_set_aside(corpus, hubert_folder, tmp_path, capsys):
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    folder = str(hubert_folder("layer"))
    fit_units(copy, folder, tmp_path / "units.safetensors", FIT)
    audio = sorted((copy / "dev").rglob("*.flac"))
    passages = [json.loads(line) for line in (copy / "dev/passages.jsonl").read_text().splitlines()]
    (copy / passages[0]["audio"]).write_bytes(b"no audio")
    assert audio and inspect_units(copy, folder, tmp_path / "units.safetensors", DEV)["K"] == 8
    assert f"set aside {passages[0]['id']}" in capsys.readouterr().err
    (copy / passages[1]["audio"]).write_bytes(b"no audio")
    with pytest.raises(InputError, match="no recording of 2 can be read"):
        inspect_units(copy, folder, tmp_path / "units.safetensors", DEV)
