"""A codebook carried over: its units keep their numbers and their meaning, and what cannot be carried is refused."""

import json

import numpy as np
import pytest
import torch

import speechssl.units.fit as carry
from speechssl.audio import read_audio, write_flac
from speechssl.encoders.export import save_encoder
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.errors import InputError
from speechssl.units.fit import CarryOptions, carry_codebook
from speechssl.units.kmeans import Codebook, load_codebook, smooth


@pytest.fixture
def voices(tmp_path):
    """Recordings of two sounds that alternate."""
    rng = np.random.default_rng(0)
    for number in range(4):
        tones = np.concatenate([np.sin(np.arange(2_000) * rng.choice([0.05, 0.4, 1.2])) for _ in range(6)])
        write_flac(tmp_path / f"voices/{number}.flac", 0.3 * tones + 0.02 * rng.standard_normal(len(tones)))
    return tmp_path / "voices"


def features(encoder, voices):
    """Smoothed features of all recordings."""
    return [smooth(encoder.features(read_audio(path), 1), 3) for path in sorted(voices.glob("*.flac"))]


@pytest.fixture
def old(hubert_folder, voices, tmp_path):
    """Folder of an encoder and a codebook of it, of which every centroid is the mean of its frames: k-means that has converged."""
    folder = hubert_folder("layer")
    encoder = load_encoder(folder)
    frames = torch.cat(features(encoder, voices)).double().numpy()
    centroids = frames[np.random.default_rng(1).choice(len(frames), 4, replace=False)]
    for _ in range(100):
        nearest = Codebook(centroids.astype(np.float32), {}).assign(torch.from_numpy(frames).float())
        centroids = np.stack([frames[nearest == k].mean(0) for k in range(4)])
    card = {"encoder": encoder.hash, "layer": 1, "smooth": 3, "frame_rate": 50.0, "precision": "fp32"}
    Codebook(centroids.astype(np.float32), card).save(tmp_path / "old.safetensors")
    return str(folder), tmp_path / "old.safetensors"


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


def carried(voices, old, other, out, **options):
    folder, codebook = old
    return carry_codebook(voices, folder, codebook, other, out, CarryOptions(**options))


def test_over_to_the_same_encoder_it_is_the_same(voices, old, tmp_path):
    before = load_codebook(old[1])
    found = carried(voices, old, old[0], tmp_path / "new.safetensors")
    np.testing.assert_allclose(found.centroids, before.centroids, atol=1e-5)
    assert found.card["agreement"] == 1 and found.names == (found.hash, before.hash) and before.names == (before.hash,)


def test_a_centroid_is_the_mean_of_the_other_encoders_features_where_the_unit_was(voices, old, changed, tmp_path):
    before, out = load_codebook(old[1]), tmp_path / "new.safetensors"
    found = carried(voices, old, changed, out)
    units = np.concatenate([before.assign(x) for x in features(load_encoder(old[0]), voices)])
    others = torch.cat(features(load_encoder(changed), voices))
    for k in range(4):
        np.testing.assert_allclose(found.centroids[k], others[torch.from_numpy(units == k)].mean(0), atol=1e-5)
    assert not np.allclose(found.centroids, before.centroids, atol=1e-4)
    assert found.card["agreement"] == round(float((found.assign(others) == units).mean()), 4) > 0.8
    kept = load_codebook(out)
    assert kept.hash == found.hash and kept.names == (found.hash, before.hash)
    wanted = {"encoder": load_encoder(changed).hash, "layer": 1, "smooth": 3, "K": 4, "carried_from": before.hash}
    assert wanted.items() <= kept.card.items()


def test_it_is_carried_once_and_not_over_another(voices, old, changed, tmp_path, monkeypatch):
    out = tmp_path / "new.safetensors"
    found = carried(voices, old, changed, out)
    monkeypatch.setattr(carry, "_sums", None)
    assert carried(voices, old, changed, out).hash == found.hash
    with pytest.raises(InputError, match=r"made from other inputs \(.*encoder.* differ\)"):
        carried(voices, old, old[0], out)


def test_neither_workers_nor_a_bad_recording_change_it(voices, old, changed, tmp_path, capsys):
    found = carried(voices, old, changed, tmp_path / "one.safetensors", workers=1)
    (voices / "0-bad.flac").write_bytes(b"no audio")
    again = carried(voices, old, changed, tmp_path / "two.safetensors", workers=3)
    assert np.array_equal(again.centroids, found.centroids) and again.card["agreement"] == found.card["agreement"]
    assert "set aside 0-bad" in capsys.readouterr().err


def test_agreement_is_of_recordings_that_can_be_used(voices, old, tmp_path):
    """However many in front of them cannot."""
    for number in range(60):
        (voices / f"0-{number:02d}.flac").write_bytes(b"no audio")
    assert carried(voices, old, old[0], tmp_path / "new.safetensors").card["agreement"] == 1


def test_a_unit_that_never_occurs_is_refused(voices, old, tmp_path):
    before = load_codebook(old[1])
    far = np.vstack([before.centroids, np.full((2, 32), 99, np.float32)])
    Codebook(far, before.card).save(old[1])
    with pytest.raises(InputError, match="2 of 6 units never occur in these recordings; give more of them with --recordings"):
        carried(voices, old, old[0], tmp_path / "new.safetensors")
    assert not (tmp_path / "new.safetensors").exists()


def test_encoders_whose_frames_do_not_fit_are_refused(voices, old, hubert_folder, tmp_path):
    wide = hubert_folder("layer", conv_kernel=(10, 3, 3, 3, 3, 4, 4))
    with pytest.raises(InputError, match="has other frames than .*; fit a codebook for it with `speechssl units fit`"):
        carried(voices, old, str(wide), tmp_path / "new.safetensors")


def test_a_codebook_of_another_encoder_is_refused(voices, old, changed, tmp_path):
    with pytest.raises(InputError, match=r"old\.safetensors was fitted on encoder .*, not on"):
        carried(voices, (changed, old[1]), old[0], tmp_path / "new.safetensors")


def test_a_name_that_is_none_for_a_codebook_is_refused_before_any_work(voices, old, tmp_path):
    with pytest.raises(InputError, match=r"is no name for a codebook, whose card goes beside it; end it in \.safetensors"):
        carried(voices, old, "nowhere", tmp_path / "new")
    assert json.loads(old[1].with_suffix(".card.json").read_text())["K"] == 4
