"""A recogniser of phones goes on, on noisy speech, from its own phones of clean speech."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.audio import write_flac
from speechssl.encoders.hama import GRID, save_hama
from speechssl.encoders.load import load_encoder
from speechssl.options import TrainingOptions
from speechssl.pretrain.options import Batches, Distortion, Phones
from speechssl.pretrain.phones import NoisyStudent, load_start, train_phones
from speechssl.synth.minisqa import speakers
from speechssl.synth.speak import read_aloud
from speechssl.training import last_checkpoint
from speechssl.units.codebook import load_codebook
from speechssl.units.features import load_matching_features
from speechssl.units.fit import phone_codebook

from ..files import refused

pytest.importorskip("hama", reason="needs speechssl[hama]")
SENTENCES = ("The ship leaves the harbour in the morning.", "Nobody knows who wrote the letter.")
TRAINING = TrainingOptions(6, 5e-4, warmup_steps=1, save_every=3, log_every=1, bf16=False)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for number, (sentence, voice) in enumerate(
        zip(SENTENCES, speakers("en", "dev")[:2], strict=True)
    ):
        write_flac(folder / f"{number}.flac", read_aloud(sentence, voice, "en").samples)
    return folder


def options(source, out, **changes):
    given = {
        "training": TRAINING,
        "batches": Batches(4, 2.0),
        "distortion": Distortion(distort="g", snr_range=(5.0, 5.0), distorted=(1.0,)),
    }
    return Phones(source=source, out=out, **given | changes)


@pytest.fixture(scope="module")
def trained(recordings, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    train_phones(options(recordings, out))
    return out


def test_labels_are_the_phones_of_the_clean_crop(recordings):
    model = NoisyStudent(load_start("hama"))
    clean = torch.from_numpy(read_aloud(SENTENCES[0], speakers("en", "dev")[0], "en").samples)
    with torch.no_grad():
        loss = model(clean[None], clean[None])["loss"]
        scores = model.head(model.student(clean[None])[-1])
    labels = load_encoder("hama:phones").features(clean.numpy(), 0).argmax(1)
    expected = torch.nn.functional.cross_entropy(scores[0], labels[: scores.shape[1]])
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)


def test_the_teacher_stays_as_it_was(recordings):
    model = NoisyStudent(load_start("hama"))
    before = [x.clone() for x in model.teacher.parameters()]
    noise = torch.randn(2, GRID.samples_for(50))
    model(noise, noise)["loss"].backward()
    assert all(x.grad is None for x in model.teacher.parameters())
    assert all(torch.equal(x, y) for x, y in zip(before, model.teacher.parameters(), strict=True))


def test_the_codebook_has_the_symbols_of_hama(trained):
    codebook = load_codebook(trained / "units.safetensors")
    features = load_matching_features(codebook, str(trained / "encoder"))
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    units = codebook.assign(torch.cat(list(features.stream(noise))))
    assert len(units) == GRID.frames(16_000)
    assert phone_codebook().hash in codebook.equivalents  # readers of the one read the other


def test_a_student_writes_its_units_and_can_teach(trained, tmp_path):
    speech = read_aloud(SENTENCES[0], speakers("en", "dev")[0], "en").samples
    codebook = load_codebook(trained / "units.safetensors")
    units = codebook.assign(load_encoder(trained / "encoder").features(speech, 4))
    student = load_start(str(trained / "encoder"))
    written = student.decode(student(torch.from_numpy(speech)[None])[-1])[0]
    assert (written.numpy() == units).all()


def test_a_student_is_taught_by_the_last_one(recordings, trained, tmp_path):
    start = str(trained / "encoder")
    train_phones(options(recordings, tmp_path, start=start, training=replace(TRAINING, steps=2)))
    first, second = load_encoder(start), load_encoder(tmp_path / "encoder")
    assert second.hash != first.hash
    assert load_codebook(tmp_path / "units.safetensors").card["encoder"] == second.hash


def test_a_killed_run_goes_on_to_the_same_encoder(recordings, trained, tmp_path):
    o = options(recordings, tmp_path)
    train_phones(replace(o, training=replace(TRAINING, steps=3, horizon=6)))
    assert last_checkpoint(tmp_path / "checkpoints")
    train_phones(replace(o, training=replace(TRAINING, horizon=6)))
    assert load_encoder(tmp_path / "encoder").hash == load_encoder(trained / "encoder").hash


def test_damaged_weights_are_named(trained, tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "hama"}')
    (folder / "model.safetensors").write_bytes(b"damaged")
    refused(str(folder), load_encoder, folder)


def test_weights_that_are_not_those_of_the_card_are_refused(trained, tmp_path):
    folder = shutil.copytree(trained / "encoder", tmp_path / "encoder")
    save_hama(load_start("hama"), folder)
    refused("is not the file that its card describes", load_encoder, folder)


def test_another_encoder_and_clean_speech_alone_are_refused(recordings, tmp_path):
    o = options(recordings, tmp_path, start="people-en/encoder")
    refused("start from hama", train_phones, o)
    refused("--distort", options, recordings, tmp_path, distortion=Distortion())
