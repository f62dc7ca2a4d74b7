"""Tests of making codebooks: they are fitted on folders and corpora, transferred to another encoder,
and imported."""

import joblib
import numpy as np
import pytest
import torch
from sklearn.cluster import MiniBatchKMeans

from speechssl.artifacts import read_json
from speechssl.audio import read_audio, write_flac
from speechssl.encoders.load import load_checkpoint, load_encoder, save_encoder
from speechssl.units.codebook import Codebook, load_codebook
from speechssl.units.features import UnitExtractor, load_matching_features, smooth
from speechssl.units.fit import fit_units, import_codebook
from speechssl.units.kmeans import fit_kmeans
from speechssl.units.options import Fit, Import, Transfer
from speechssl.units.spectral import MFCC_GRID
from speechssl.units.transfer import transfer_codebook

from ..files import refused

OPTIONS = {"layer": 1, "clusters": 4, "smooth": 3}


def fit(source, encoder, out, **options):
    """Fit a codebook, and return it."""
    fit_units(Fit(source=source, encoder=encoder, out=out, **options))
    return load_codebook(out)


@pytest.fixture
def folder(tmp_path):
    """Return a folder of six recordings of different loudness, in two subfolders."""
    rng, root = np.random.default_rng(0), tmp_path / "audio"
    for i in range(6):
        samples = rng.uniform(-0.5, 0.5, 8_000 + 1_000 * i) * (i + 1) / 6
        write_flac(root / f"s{i % 2}" / f"{i}.flac", samples)
    return root


def read_folder(folder):
    """Return the samples of all recordings, in the order of their paths."""
    return [read_audio(path) for path in sorted(folder.rglob("*.flac"))]


def test_a_folder_is_clustered(folder, hubert_folder, tmp_path):
    name, out = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    book, encoder = fit(folder, name, out, **OPTIONS), load_encoder(name)
    features = [smooth(encoder.features(x, 1), 3).numpy() for x in read_folder(folder)]
    assert np.array_equal(book.centroids, fit_kmeans(features, 4, {}).centroids)
    card = read_json(out.with_suffix(".card.json"))
    wanted = {"encoder": encoder.hash, "layer": 1, "smooth": 3, "K": 4, "frame_rate": 50.0}
    assert wanted.items() <= card.items()
    assert card["frames"] == sum(map(len, features))
    units = UnitExtractor(load_matching_features(book, name), book).extract_frames(
        read_folder(folder)[2]
    )
    assert np.array_equal(units, book.assign(torch.from_numpy(features[2])))


def test_passages_of_a_corpus_are_sampled(mini_corpus, tmp_path):
    lengths = (16_000, 24_000, 20_000)
    corpus, cards = mini_corpus(lengths), []
    for seed in range(10):
        out = tmp_path / f"{seed}.safetensors"
        cards.append(fit(corpus, "mfcc", out, clusters=2, recordings=2, seed=seed).card)
    assert {card["recordings"] for card in cards} == {2}
    assert {card["drawn_from"] for card in cards} == {3}
    # every passage is the one left out, with some seed
    total = sum(map(MFCC_GRID.count_frames, lengths))
    assert {card["frames"] for card in cards} == {
        total - MFCC_GRID.count_frames(n) for n in lengths
    }
    # by default a tenth of the recordings is used, but at least 400 where there are as many
    assert fit(corpus, "mfcc", tmp_path / "all.safetensors", clusters=2).card["frames"] == total


def fit_mfccs(folder, out, **options):
    return fit(folder, "mfcc", out, **{"clusters": 4} | options)


def test_a_codebook_is_fitted_once_and_no_other_over_it(folder, tmp_path, monkeypatch):
    out = tmp_path / "units.safetensors"
    book = fit_mfccs(folder, out)
    monkeypatch.setattr("speechssl.units.fit.fit_kmeans", None)
    assert fit_mfccs(folder, out).hash == book.hash
    message = r"made from other inputs \({} differs\)"
    for fact, options in (("smooth", {"smooth": 3}), ("K", {"clusters": 5}), ("seed", {"seed": 1})):
        refused(message.format(fact), fit_mfccs, folder, out, **options)
    # other contents of the same name
    write_flac(folder / "s0/0.flac", read_folder(folder)[0][::-1])
    refused(message.format("data"), fit_mfccs, folder, out)


def test_bad_recordings_are_listed_and_left_out(folder, tmp_path, capsys):
    (folder / "s0/2.flac").write_bytes(b"no audio")
    write_flac(folder / "s1/5.flac", np.zeros(9_000))
    book = fit_mfccs(folder, tmp_path / "units.safetensors")
    assert "2 recordings set aside" in capsys.readouterr().err
    lengths = [8_000 + 1_000 * i for i in (0, 1, 3, 4)]
    assert book.card["frames"] == sum(map(MFCC_GRID.count_frames, lengths))


@pytest.mark.parametrize(
    ("source", "encoder", "options", "message"),
    [
        ("audio", "", {"layer": 1, "smooth": 2}, "odd number of frames, not 2"),
        ("audio", "", {"layer": 9}, "--layer"),
        ("nothing", "mfcc", {}, "nothing"),
        ("empty", "mfcc", {}, "has no recordings"),
        ("corpus", "mfcc", {"split": "dev"}, "dev"),
        ("audio", "mfcc", {"layer": 1, "precision": "bf16"}, "--layer and --precision"),
        ("audio", "mfcc", {"clusters": 60, "budget": 50}, "--clusters"),
        ("audio", "mfcc", {"share": 0.5, "recordings": 2}, "--share and --recordings"),
    ],
)
def test_a_refused_fit_writes_nothing(
    folder, hubert_folder, tmp_path, mini_corpus, source, encoder, options, message
):
    mini_corpus()
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    encoder = encoder or str(hubert_folder("layer"))
    refused(message, fit, tmp_path / source, encoder, tmp_path / "a.safetensors", **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_codebook_must_have_its_suffix(folder, tmp_path):
    refused("must be a file named ..safetensors", fit_mfccs, folder, tmp_path / "km.4")


@pytest.mark.slow
@pytest.mark.parametrize("longest_whole", [600.0, 0.6])  # seconds
def test_threads_and_workers_do_not_change_a_codebook(
    folder, hubert_folder, tmp_path, monkeypatch, set_threads, longest_whole
):
    """Longer recordings are streamed, in order among the others."""
    monkeypatch.setattr("speechssl.units.features.LONG", longest_whole)
    encoder, hashes = str(hubert_folder("group")), set()
    for threads, workers in ((1, 1), (2, 1), (2, 3)):
        set_threads(threads)
        out = tmp_path / f"{threads}-{workers}.safetensors"
        hashes.add(fit(folder, encoder, out, **OPTIONS, workers=workers, budget=60).hash)
        assert torch.get_num_threads() == threads
    assert len(hashes) == 1


# ---- transfer to another encoder


@pytest.fixture
def voices(tmp_path):
    """Return a folder of four recordings of three tones that alternate."""
    rng = np.random.default_rng(0)
    for number in range(4):
        pitches = [rng.choice([0.05, 0.4, 1.2]) for _ in range(6)]
        tones = np.concatenate([np.sin(np.arange(2_000) * pitch) for pitch in pitches])
        samples = 0.3 * tones + 0.02 * rng.standard_normal(len(tones))
        write_flac(tmp_path / f"voices/{number}.flac", samples)
    return tmp_path / "voices"


def encode_voices(encoder, voices):
    """Return the smoothed features of layer 1 of all recordings, (T, D)."""
    features = [smooth(encoder.features(samples, 1), 3) for samples in read_folder(voices)]
    return torch.cat(features)


@pytest.fixture
def old(hubert_folder, voices, tmp_path):
    """Return the folder of an encoder, and a codebook of it in which every centroid is the mean of
    its frames, as after k-means that has converged."""
    encoder = load_encoder(hubert_folder("layer"))
    frames = encode_voices(encoder, voices)
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
    """Return the folder of the encoder after some training: all weights have moved a little."""
    model = load_checkpoint(old[0]).model
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * weight.std() * torch.randn_like(weight) if weight.numel() > 1 else 0)
    save_encoder(model, tmp_path / "changed")
    return str(tmp_path / "changed")


def transfer(voices, old, new, out, **options):
    """Transfer a codebook to the encoder `new`, and return the new codebook. old: the old encoder and
    its codebook."""
    encoder, codebook = old
    transfer_codebook(
        Transfer(source=voices, encoder=encoder, codebook=codebook, new=new, out=out, **options)
    )
    return load_codebook(out)


@pytest.mark.slow
def test_a_centroid_becomes_the_mean_of_the_new_encoders_features(
    voices, old, changed, tmp_path, monkeypatch
):
    old_book = load_codebook(old[1])
    book = transfer(voices, old, changed, tmp_path / "new.safetensors")
    units = old_book.assign(encode_voices(load_encoder(old[0]), voices))
    features = encode_voices(load_encoder(changed), voices)
    means = torch.stack([features[torch.from_numpy(units == k)].mean(0) for k in range(4)])
    np.testing.assert_allclose(book.centroids, means, atol=1e-5)
    agreement = float((book.assign(features) == units).mean())
    assert book.card["agreement"] == round(agreement, 4)
    assert agreement > 0.8
    assert book.equivalents == (book.hash, old_book.hash)
    monkeypatch.setattr("speechssl.units.transfer.read_audio", None)
    out = tmp_path / "new.safetensors"
    assert transfer(voices, old, changed, out).hash == book.hash  # as it was made before
    refused(r"made from other inputs \(.*encoder", transfer, voices, old, old[0], out)


@pytest.mark.slow
def test_a_linear_head_keeps_as_many_units_as_means(voices, old, changed, tmp_path):
    means = transfer(voices, old, changed, tmp_path / "means.safetensors")
    linear = transfer(voices, old, changed, tmp_path / "linear.safetensors", read_out="linear")
    assert linear.card["agreement"] >= means.card["agreement"]
    assert linear.equivalents == (linear.hash, *means.equivalents[1:])
    features = encode_voices(load_encoder(changed), voices)
    scores = features @ linear.centroids.T + linear.offsets
    np.testing.assert_array_equal(linear.assign(features), scores.argmax(1))


@pytest.mark.slow
def test_a_linear_head_learns_from_distorted_speech(voices, old, changed, tmp_path):
    options = {"read_out": "linear", "margin": 4}
    clean = transfer(voices, old, changed, tmp_path / "clean.safetensors", **options)
    noisy = transfer(voices, old, changed, tmp_path / "noisy.safetensors", distort="g", **options)
    assert noisy.hash != clean.hash
    refused("--read-out linear", transfer, voices, old, changed, tmp_path / "x", distort="g")
    made = tmp_path / "noisy.safetensors"
    for option, remaining in (
        ("read_out", {"margin": 4}),
        ("margin", {"read_out": "linear", "distort": "g"}),
        ("distort", {"read_out": "linear", "margin": 4}),
    ):
        message = rf"made from other inputs \(.*{option}"
        refused(message, transfer, voices, old, changed, made, **remaining)


def test_a_unit_that_never_occurs_has_no_mean_and_a_linear_head_never_gives_it(
    voices, old, tmp_path
):
    book, out = load_codebook(old[1]), tmp_path / "new.safetensors"
    far = np.vstack([book.centroids, np.full((2, 32), 99, np.float32)])  # two more centroids
    Codebook(far, book.card).save(old[1])
    refused("2 of 6 units never occur", transfer, voices, old, old[0], out)
    assert not out.exists()
    linear = transfer(voices, old, old[0], out, read_out="linear")
    assert set(linear.assign(torch.randn(5000, 32) * 3).tolist()) == {0, 1, 2, 3}


@pytest.mark.slow
def test_encoders_that_do_not_fit_are_refused(voices, old, changed, hubert_folder, tmp_path):
    other_frames = str(hubert_folder("layer", conv_kernel=(10, 3, 3, 3, 3, 4, 4)))
    out = tmp_path / "new.safetensors"
    message = "has other frames than .*`speechssl units fit`"
    refused(message, transfer, voices, old, other_frames, out)
    message = r"old\.safetensors was not fitted on .*, but on"
    refused(message, transfer, voices, (changed, old[1]), old[0], out)
    assert not list(tmp_path.glob("new*"))


# ---- a published codebook


def write_joblib(path, width=32):
    """Write a fitted MiniBatchKMeans of joblib with six centroids."""
    frames = np.random.default_rng(0).standard_normal((200, width))
    joblib.dump(MiniBatchKMeans(6, n_init=1).fit(frames), path)


def import_joblib(path, out, encoder, layer):
    """Import a codebook, and return it."""
    import_codebook(Import(joblib=path, encoder=encoder, out=out, layer=layer))
    return load_codebook(out)


@pytest.mark.slow
def test_an_imported_codebook_gives_scikit_learns_units(tmp_path, encoder, hubert_folder):
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, 24_000).astype(np.float32)
    features = encoder.features(samples, 2)
    model = MiniBatchKMeans(5, n_init=1, random_state=0).fit(features.numpy())
    joblib.dump(model, tmp_path / "km.bin", compress=3)
    name, out = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    book = import_joblib(tmp_path / "km.bin", out, name, layer=2)
    units = model.predict(features.numpy())
    assert np.array_equal(book.assign(features), units)
    assert np.array_equal(
        UnitExtractor(load_matching_features(book, name), book).extract_frames(samples), units
    )
    card = read_json(out.with_suffix(".card.json"))
    wanted = {"encoder": load_encoder(name).hash, "layer": 2, "K": 5, "smooth": 1}
    assert wanted.items() <= card.items()


@pytest.mark.slow
def test_a_codebook_that_does_not_fit_is_refused(tmp_path, hubert_folder):
    path, out = tmp_path / "km.bin", tmp_path / "units.safetensors"
    name = str(hubert_folder("layer"))
    write_joblib(path, width=7)
    message = "have 7 dimensions, the layers of .* 32; give the encoder"
    refused(message, import_joblib, path, out, name, layer=1)
    write_joblib(path)
    refused("has the layers 0 to 2, not 22", import_joblib, path, out, name, layer=22)
    assert not out.exists()
