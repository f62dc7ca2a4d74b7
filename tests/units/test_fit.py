"""Fitting on corpora, manifests and folders: what is chosen, what is set aside, and what the card
remembers."""

import joblib
import numpy as np
import pytest
import torch
from sklearn.cluster import MiniBatchKMeans

from speechssl.artifacts import read_json
from speechssl.audio import read_audio, write_flac
from speechssl.encoders.load import load_checkpoint, load_encoder, save_encoder
from speechssl.units.codebook import Codebook, load_codebook
from speechssl.units.features import UnitExtractor, load_matching_features, make_extractor, smooth
from speechssl.units.fit import fit_units, import_codebook
from speechssl.units.kmeans import fit_kmeans
from speechssl.units.options import Fit, Import, Transfer
from speechssl.units.spectral import MFCC_GRID
from speechssl.units.transfer import transfer_codebook

from ..files import refused

OPTIONS = {"layer": 1, "clusters": 4, "smooth": 3}


def fit(source, encoder, out, **options):
    """Fit; the codebook."""
    fit_units(Fit(source=source, encoder=encoder, out=out, **options))
    return load_codebook(out)


@pytest.fixture
def folder(tmp_path):
    """Six recordings in two folders, of another loudness each."""
    rng, root = np.random.default_rng(0), tmp_path / "audio"
    for i in range(6):
        samples = rng.uniform(-0.5, 0.5, 8_000 + 1_000 * i) * (i + 1) / 6
        write_flac(root / f"s{i % 2}" / f"{i}.flac", samples)
    return root


def samples_of(folder):
    return [read_audio(p) for p in sorted(folder.rglob("*.flac"))]


def test_a_folder_is_clustered(folder, hubert_folder, tmp_path):
    name, out = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    book, encoder = fit(folder, name, out, **OPTIONS), load_encoder(name)
    features = [smooth(encoder.features(x, 1), 3).numpy() for x in samples_of(folder)]
    assert np.array_equal(book.centroids, fit_kmeans(features, 4, {}).centroids)
    card = read_json(out.with_suffix(".card.json"))
    wanted = {"encoder": encoder.hash, "layer": 1, "smooth": 3, "K": 4, "frame_rate": 50.0}
    assert wanted.items() <= card.items()
    assert card["frames"] == sum(map(len, features))
    samples = samples_of(folder)[2]
    frames = UnitExtractor(load_matching_features(book, name), book).frames(samples)
    assert np.array_equal(frames, make_extractor(encoder, book).frames(samples))


def test_of_a_corpus_passages_are_drawn(mini_corpus, tmp_path):
    lengths = (16_000, 24_000, 20_000)
    corpus, found = mini_corpus(lengths), []
    for seed in range(10):
        out = tmp_path / f"{seed}.safetensors"
        found.append(fit(corpus, "mfcc", out, clusters=2, recordings=2, seed=seed).card)
    assert {(card["recordings"], card["drawn_from"]) for card in found} == {(2, 3)}
    total = sum(map(MFCC_GRID.frames, lengths))
    assert {card["frames"] for card in found} == {total - MFCC_GRID.frames(n) for n in lengths}
    whole = fit(corpus, "mfcc", tmp_path / "whole.safetensors", clusters=2)
    # a tenth, but 400 at least, where there are as many
    assert (whole.card["recordings"], whole.card["frames"]) == (3, total)


def of_mfcc(folder, out, **options):
    return fit(folder, "mfcc", out, **{"clusters": 4} | options)


def test_fitting_again_is_nothing_to_do_and_other_inputs_are_refused(folder, tmp_path, monkeypatch):
    out = tmp_path / "units.safetensors"
    first = of_mfcc(folder, out)
    monkeypatch.setattr("speechssl.units.fit.fit_kmeans", None)
    assert of_mfcc(folder, out).hash == first.hash
    for name, options in {
        "smooth": {"smooth": 3},
        "K": {"clusters": 5},
        "seed": {"seed": 1},
    }.items():
        refused(rf"made from other inputs \({name} differs\)", of_mfcc, folder, out, **options)
    write_flac(folder / "s0/0.flac", samples_of(folder)[0][::-1])  # other contents of the same name
    refused(r"made from other inputs \(data differs\)", of_mfcc, folder, out)


def test_bad_recordings_are_listed_and_left_out(folder, tmp_path, capsys):
    (folder / "s0/2.flac").write_bytes(b"no audio")
    write_flac(folder / "s1/5.flac", np.zeros(9_000))
    book = of_mfcc(folder, tmp_path / "units.safetensors")
    assert "2 recordings set aside" in capsys.readouterr().err
    assert book.card["frames"] == sum(MFCC_GRID.frames(8_000 + 1_000 * i) for i in (0, 1, 3, 4))


@pytest.mark.parametrize(
    ("source", "encoder", "options", "message"),
    [
        ("audio", "", {"layer": 1, "smooth": 2}, "odd number of frames, not 2"),
        ("audio", "", {"layer": 9}, "--layer"),
        ("nothing", "mfcc", {}, "nothing"),
        ("empty", "mfcc", {}, "has no recordings"),
        ("corpus", "mfcc", {"split": "dev"}, "dev"),
        ("audio", "mfcc", {"share": 0.0}, "--share"),
        ("audio", "mfcc", {"layer": 1, "precision": "bf16"}, "--layer and --precision"),
        ("audio", "mfcc", {"clusters": 60, "budget": 50}, "--clusters"),
        ("audio", "mfcc", {"name": "km.4"}, "must be a file named ..safetensors"),
    ],
)
def test_what_cannot_be_fitted_is_one_sentence(
    folder, hubert_folder, tmp_path, mini_corpus, source, encoder, options, message
):
    mini_corpus(), (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    out, options = tmp_path / options.get("name", "a.safetensors"), {**options}
    options.pop("name", None)
    encoder = encoder or str(hubert_folder("layer"))
    refused(message, fit, tmp_path / source, encoder, out, **options)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("long", [600.0, 0.6])
def test_threads_and_workers_do_not_change_a_codebook(
    folder, hubert_folder, tmp_path, monkeypatch, set_threads, long
):
    """Long recordings (here: of more than 0.6 s) are streamed in order among the short ones."""
    monkeypatch.setattr("speechssl.units.features.LONG", long)
    encoder, hashes = str(hubert_folder("group")), set()
    for threads, workers in ((1, 1), (2, 1), (2, 3)):
        set_threads(threads)
        out = tmp_path / f"{threads}-{workers}.safetensors"
        hashes.add(fit(folder, encoder, out, **OPTIONS, workers=workers, budget=60).hash)
        assert torch.get_num_threads() == threads
    assert len(hashes) == 1


# ---- a codebook of another encoder: its units keep their numbers and their meaning, and what
# cannot be transferred is refused


@pytest.fixture
def voices(tmp_path):
    """Recordings of three sounds that alternate."""
    rng = np.random.default_rng(0)
    for number in range(4):
        pitches = [rng.choice([0.05, 0.4, 1.2]) for _ in range(6)]
        tones = np.concatenate([np.sin(np.arange(2_000) * pitch) for pitch in pitches])
        samples = 0.3 * tones + 0.02 * rng.standard_normal(len(tones))
        write_flac(tmp_path / f"voices/{number}.flac", samples)
    return tmp_path / "voices"


def features(encoder, voices):
    """Smoothed features of all recordings."""
    recordings = [read_audio(path) for path in sorted(voices.glob("*.flac"))]
    return [smooth(encoder.features(samples, 1), 3) for samples in recordings]


@pytest.fixture
def old(hubert_folder, voices, tmp_path):
    """Folder of an encoder and a codebook of it, of which every centroid is the mean of its frames:
    k-means that has converged."""
    encoder = load_encoder(hubert_folder("layer"))
    frames = torch.cat(features(encoder, voices))
    centroids = frames[np.random.default_rng(1).choice(len(frames), 4, replace=False)].numpy()
    for _ in range(100):
        nearest = Codebook(centroids, {}).assign(frames)
        means = [frames[torch.from_numpy(nearest == k)].double().mean(0) for k in range(4)]
        centroids = torch.stack(means).float().numpy()
    card = {"encoder": encoder.hash, "layer": 1, "smooth": 3, "frame_rate": 50.0}
    Codebook(centroids, card | {"precision": "fp32"}).save(tmp_path / "old.safetensors")
    return str(hubert_folder("layer")), tmp_path / "old.safetensors"


@pytest.fixture
def changed(old, tmp_path):
    """The encoder after some training: all weights moved a little."""
    model = load_checkpoint(old[0]).model
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * weight.std() * torch.randn_like(weight) if weight.numel() > 1 else 0)
    save_encoder(model, tmp_path / "changed")
    return str(tmp_path / "changed")


def transferred(voices, old, other, out, **options):
    """Transfer; the new codebook."""
    encoder, codebook = old
    places = {"source": voices, "encoder": encoder, "codebook": codebook, "new": other, "out": out}
    transfer_codebook(Transfer(**places, **options))
    return load_codebook(out)


@pytest.mark.slow
def test_a_centroid_is_the_mean_of_the_other_encoders_features_where_the_unit_was(
    voices, old, changed, tmp_path, monkeypatch
):
    before, out = load_codebook(old[1]), tmp_path / "new.safetensors"
    found = transferred(voices, old, changed, out)
    units = np.concatenate([before.assign(x) for x in features(load_encoder(old[0]), voices)])
    others = torch.cat(features(load_encoder(changed), voices))
    means = torch.stack([others[torch.from_numpy(units == k)].mean(0) for k in range(4)])
    np.testing.assert_allclose(found.centroids, means, atol=1e-5)
    assert found.card["agreement"] == round(float((found.assign(others) == units).mean()), 4) > 0.8
    assert found.equivalents == (found.hash, before.hash)
    monkeypatch.setattr("speechssl.units.transfer.read_audio", None)  # once, and not over another
    assert transferred(voices, old, changed, out).hash == found.hash
    refused(r"made from other inputs \(.*encoder", transferred, voices, old, old[0], out)


@pytest.mark.slow
def test_a_linear_head_keeps_more_units_than_means_and_learns_from_distorted_speech(
    voices, old, changed, tmp_path
):
    means = transferred(voices, old, changed, tmp_path / "means.safetensors")
    found = transferred(voices, old, changed, tmp_path / "linear.safetensors", read_out="linear")
    assert found.card["agreement"] >= means.card["agreement"]
    assert found.equivalents == (found.hash, *means.equivalents[1:])
    others = torch.cat(features(load_encoder(changed), voices))
    scores = others @ found.centroids.T + found.offsets
    np.testing.assert_array_equal(found.assign(others), scores.argmax(1))
    linear = {"read_out": "linear", "distort": "g", "margin": 4}
    noisy = transferred(voices, old, changed, tmp_path / "noisy.safetensors", **linear)
    assert noisy.hash != found.hash
    refused("--read-out linear", transferred, voices, old, changed, tmp_path / "x", distort="g")


def test_a_unit_that_never_occurs_has_no_mean_and_a_linear_head_never_gives_it(
    voices, old, tmp_path
):
    before, out = load_codebook(old[1]), tmp_path / "new.safetensors"
    far = np.vstack([before.centroids, np.full((2, 32), 99, np.float32)])
    Codebook(far, before.card).save(old[1])
    wanted = "2 of 6 units never occur in these recordings"
    refused(f"{wanted}; give more of them with --rec", transferred, voices, old, old[0], out)
    assert not out.exists()
    found = transferred(voices, old, old[0], out, read_out="linear")
    assert set(found.assign(torch.randn(5000, 32) * 3).tolist()) == {0, 1, 2, 3}


@pytest.mark.slow
def test_what_cannot_be_transferred_is_refused(voices, old, changed, hubert_folder, tmp_path):
    wide = str(hubert_folder("layer", conv_kernel=(10, 3, 3, 3, 3, 4, 4)))
    wanted, out = "has other frames than .*`speechssl units fit`", tmp_path / "new.safetensors"
    refused(wanted, transferred, voices, old, wide, out)
    wanted = r"old\.safetensors was not fitted on .*, but on"
    refused(wanted, transferred, voices, (changed, old[1]), old[0], out)
    assert not list(tmp_path.glob("new*"))


# ---- a published codebook


def write_joblib(path, width=32):
    frames = np.random.default_rng(0).standard_normal((200, width))
    joblib.dump(MiniBatchKMeans(6, n_init=1).fit(frames), path)


def imported(path, out, encoder, layer):
    """Import; the codebook."""
    import_codebook(Import(joblib=path, encoder=encoder, out=out, layer=layer))
    return load_codebook(out)


@pytest.mark.slow
def test_an_imported_codebook_gives_scikit_learns_units(tmp_path, encoder, hubert_folder):
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, 24_000).astype(np.float32)
    features = encoder.features(samples, 2)
    model = MiniBatchKMeans(5, n_init=1, random_state=0).fit(features.numpy())
    joblib.dump(model, tmp_path / "km.bin", compress=3)
    name, out = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    book, units = imported(tmp_path / "km.bin", out, name, 2), model.predict(features.numpy())
    assert np.array_equal(book.assign(features), units)
    assert np.array_equal(
        UnitExtractor(load_matching_features(book, name), book).frames(samples), units
    )
    card = read_json(out.with_suffix(".card.json"))
    wanted = {"encoder": load_encoder(name).hash, "layer": 2, "K": 5, "smooth": 1}
    assert wanted.items() <= card.items()


@pytest.mark.slow
def test_a_codebook_that_does_not_fit_is_refused(tmp_path, hubert_folder):
    path, out = tmp_path / "km.bin", tmp_path / "units.safetensors"
    name = str(hubert_folder("layer"))
    write_joblib(path, width=7)
    wanted = "have 7 dimensions, the layers of .* 32; give the encoder"
    refused(wanted, imported, path, out, name, 1)
    write_joblib(path)
    refused("has the layers 0 to 2, not 22", imported, path, out, name, 22)
    assert not out.exists()
