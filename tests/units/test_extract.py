"""From audio to units on disk: the right encoder only, bad items set aside, the same units with any number of workers."""

import json

import numpy as np
import pytest
import torch

from speechssl.artefacts import write_json
from speechssl.audio import read_audio
from speechssl.corpora.records import data_hash
from speechssl.errors import InputError
from speechssl.timing import RunLength
from speechssl.units import extract
from speechssl.units.extract import UnitExtractor, extract_corpus, extract_many, load_units, save_units, single_threaded
from speechssl.units.kmeans import Codebook


def codebook_for(model, seed=0, **card):
    """Eight frames of noise as centroids."""
    features = model.features(noise(8_000, 99), 1).numpy()
    chosen = np.random.default_rng(seed).choice(len(features), 8, replace=False)
    return Codebook(features[chosen], {"encoder": model.hash, "layer": 1, "frame_rate": 50.0} | card)


@pytest.fixture(scope="module")
def extractor(encoder):
    return UnitExtractor(encoder, codebook_for(encoder))


def noise(samples, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def same(a, b):
    return np.array_equal(a.units, b.units) and np.array_equal(a.lengths, b.lengths)


# ---- one recording


def test_units_are_the_nearest_centroids_of_the_layer(extractor, encoder):
    samples = noise(9_000)
    features = encoder.hidden_states(samples)[1].numpy()
    nearest = np.square(features[:, None] - extractor.codebook.centroids).sum(-1).argmin(1)
    assert np.array_equal(extractor.frames(samples), nearest)
    units = extractor.units(samples)
    assert np.array_equal(units.expand(), nearest) and units.frames == extractor.grid.frames(9_000)
    assert len(set(nearest)) > 2


def test_the_codebook_says_how_much_to_smooth(encoder):
    samples, plain = noise(9_000), codebook_for(encoder)
    smoothed = UnitExtractor(encoder, codebook_for(encoder, smooth=5))
    features = encoder.features(samples, 1)
    expected = torch.stack([features[max(t - 2, 0) : t + 3].mean(0) for t in range(len(features))])
    assert np.array_equal(smoothed.frames(samples), plain.assign(expected))
    assert not np.array_equal(smoothed.frames(samples), plain.assign(features))


@pytest.mark.parametrize("card", [{"encoder": "0123456789abcdef"}, {"encoder": "mfcc"}, {"encoder": None}])
def test_a_codebook_of_another_encoder_is_refused(encoder, card):
    with pytest.raises(InputError, match=f"{card['encoder']}, not on {encoder.name} .*fit one for this encoder"):
        UnitExtractor(encoder, codebook_for(encoder, **card))


def test_the_card_tells_different_units_apart(encoder, extractor):
    assert extractor.card == {"encoder": encoder.hash, "layer": 1, "smooth": 1, "codebook": extractor.codebook.hash}
    assert UnitExtractor(encoder, codebook_for(encoder, seed=1)).card != extractor.card
    assert UnitExtractor(encoder, codebook_for(encoder, layer=2)).card != extractor.card


# ---- many recordings


def missing():
    raise InputError("x.flac does not exist")


def test_bad_items_are_set_aside_and_the_rest_is_done(extractor):
    items = {"a": lambda: noise(5_000, 1), "bad": missing, "short": lambda: noise(100), "b": lambda: noise(7_000, 2)}
    outcome = extract_many(extractor, items)
    assert list(outcome.done) == ["a", "b"] and list(outcome.failed) == ["bad", "short"]
    assert outcome.failed["bad"] == "x.flac does not exist" and "100 samples" in outcome.failed["short"]
    assert same(outcome.done["b"], extractor.units(noise(7_000, 2)))


def test_other_errors_are_not_hidden(extractor):
    with pytest.raises(ZeroDivisionError):
        extract_many(extractor, {"a": lambda: 1 / 0})


def test_the_units_do_not_depend_on_the_number_of_workers(extractor):
    items = {str(i): (lambda i=i: noise(3_000 + 517 * i, i)) for i in range(8)}
    outcomes = [extract_many(extractor, items, workers).done for workers in (1, 2, 4)]
    for other in outcomes[1:]:
        assert list(other) == list(outcomes[0])
        assert all(same(other[i], outcomes[0][i]) for i in items)


def test_threads_are_given_back(extractor):
    before = torch.get_num_threads()
    with pytest.raises(KeyError), single_threaded(4):
        assert torch.get_num_threads() == max(before // 4, 1)
        raise KeyError
    assert torch.get_num_threads() == before


# ---- files


def test_units_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(0)
    units = {f"语{i}": RunLength.of_frames(rng.integers(0, 3, size)) for i, size in enumerate((5, 0, 90, 1))}
    save_units(tmp_path / "train.safetensors", units, {"made_from": 1})
    loaded = load_units(tmp_path / "train.safetensors")
    assert list(loaded) == list(units)
    assert all(same(loaded[i], units[i]) and loaded[i].units.dtype == np.int64 for i in units)


def test_no_units_at_all_come_back_too(tmp_path):
    save_units(tmp_path / "train.safetensors", {}, {})
    assert load_units(tmp_path / "train.safetensors") == {}


@pytest.mark.parametrize("damage", ["cut", "gone", "no card", "other card", "empty card"])
def test_damaged_files_are_named(tmp_path, damage):
    path = tmp_path / "train.safetensors"
    save_units(path, {"a": RunLength.of_frames(np.array([1, 1, 2])), "b": RunLength.of_frames(np.array([3]))}, {})
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif damage == "gone":
        path.unlink()
    elif damage == "no card":
        path.with_suffix(".card.json").unlink()
    else:
        path.with_suffix(".card.json").write_text(json.dumps({"ids": ["a"]} if damage == "other card" else {}))
    with pytest.raises(InputError, match=r"train\.(safetensors|card\.json)"):
        load_units(path)


# ---- a corpus


def test_a_corpus_becomes_a_file_of_units(extractor, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "units"
    assert extract_corpus(extractor, root, "train", out) == {}
    loaded = load_units(out / "train.safetensors")
    assert set(loaded) == {"p0", "p1", "p2", "q0", "q1", "q2"}
    assert same(loaded["p1"], extractor.units(read_audio(root / "train/audio/p1.flac")))
    assert loaded["p1"].frames == extractor.grid.frames(24_123)
    card = json.loads((out / "train.card.json").read_text())
    assert (
        card["made_from"] == extractor.card | {"corpus": data_hash(root, "train"), "split": "train", "passages": None}
        and card["frame_rate"] == 50
    )


def test_the_first_passages_come_with_their_questions(extractor, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "units"
    extract_corpus(extractor, root, "train", out, passages=2)
    assert set(load_units(out / "train.safetensors")) == {"p0", "p1", "q0", "q1"}
    extract_corpus(extractor, root, "train", out)
    assert len(load_units(out / "train.safetensors")) == 6


def test_finished_work_is_not_done_again_and_other_work_is(extractor, encoder, mini_corpus, tmp_path, monkeypatch):
    root, out = mini_corpus(), tmp_path / "units"
    (root / "train/audio/p2.flac").write_bytes(b"no audio")
    failed = extract_corpus(extractor, root, "train", out)
    assert list(failed) == ["p2"] and "p2.flac" in failed["p2"]
    assert set(load_units(out / "train.safetensors")) == {"p0", "p1", "q0", "q1", "q2"}
    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(extract, "extract_many", lambda *a: asked.extend(a[1]) or extract_many(*a))
        assert extract_corpus(extractor, root, "train", out) == failed
    assert asked == ["p2"]
    before = (out / "train.safetensors").read_bytes()
    extract_corpus(UnitExtractor(encoder, codebook_for(encoder, seed=1)), root, "train", out)
    assert (out / "train.safetensors").read_bytes() != before
    made_from = json.loads((out / "train.card.json").read_text())["made_from"]["corpus"]
    manifest = root / "train/questions.jsonl"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:-1]))
    extract_corpus(extractor, root, "train", out)
    assert set(load_units(out / "train.safetensors")) == {"p0", "p1", "q0", "q1"}
    assert json.loads((out / "train.card.json").read_text())["made_from"]["corpus"] != made_from


def test_what_was_set_aside_is_taken_in_when_it_was_mended(extractor, mini_corpus, tmp_path):
    root, whole, out = mini_corpus(), tmp_path / "whole", tmp_path / "units"
    extract_corpus(extractor, root, "train", whole)
    audio = root / "train/audio/p1.flac"
    content = audio.read_bytes()
    audio.write_bytes(b"no audio")
    assert list(extract_corpus(extractor, root, "train", out)) == ["p1"]
    audio.write_bytes(content)
    assert extract_corpus(extractor, root, "train", out) == {}
    for name in ("train.safetensors", "train.card.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_what_a_killed_run_finished_is_not_extracted_again(extractor, mini_corpus, tmp_path, monkeypatch):
    root, out, read = mini_corpus(), tmp_path / "units", []

    def reading(path):
        read.append(path.name)
        if len(read) == 4:
            raise KeyboardInterrupt
        return read_audio(path)

    monkeypatch.setattr(extract, "PART", 2)
    monkeypatch.setattr(extract, "read_audio", reading)
    with pytest.raises(KeyboardInterrupt):
        extract_corpus(extractor, root, "train", out, workers=1)
    extract_corpus(extractor, root, "train", out, workers=1)
    assert read[:2] == ["p0.flac", "p1.flac"] and sorted(set(read[4:])) == ["p2.flac", "q0.flac", "q1.flac", "q2.flac"]
    loaded = load_units(out / "train.safetensors")
    assert list(loaded) == ["p0", "p1", "p2", "q0", "q1", "q2"]
    assert all(same(units, extractor.units(read_audio(root / f"train/audio/{i}.flac"))) for i, units in loaded.items())
    assert not [p for p in out.rglob("*") if p.is_file() and p.parent != out]


@pytest.mark.parametrize("old", [False, True])
def test_a_run_killed_before_its_card_is_done_again(extractor, encoder, mini_corpus, tmp_path, monkeypatch, old):
    """Whether there was no card yet or that of other units: a file without its own card is not whole."""
    root, out = mini_corpus(), tmp_path / "units"
    other = UnitExtractor(encoder, codebook_for(encoder, seed=1))
    if old:
        extract_corpus(other, root, "train", out)

    def dying(path, value):
        if path == out / "train.card.json":
            raise KeyboardInterrupt
        write_json(path, value)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(extract, "write_json", dying)
        extract_corpus(extractor, root, "train", out)
    for wanted in (other, extractor):
        extract_corpus(wanted, root, "train", out)
        assert same(load_units(out / "train.safetensors")["p0"], wanted.units(read_audio(root / "train/audio/p0.flac")))
