"""Tests of a phone recogniser that trains on noisy speech, from its own phones of clean speech."""

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
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.speak import read_aloud
from speechssl.training import find_last_checkpoint
from speechssl.units.codebook import load_codebook
from speechssl.units.features import load_matching_features
from speechssl.units.fit import make_phone_codebook

from ..files import refused

pytest.importorskip("hama", reason="needs speechssl[hama]")
SENTENCES = ("The ship leaves the harbour in the morning.", "Nobody knows who wrote the letter.")
TRAINING = TrainingOptions(
    steps=6, learning_rate=5e-4, warmup_steps=1, save_every=3, log_every=1, bf16=False
)


def synthesise(number):
    """Synthesise one of SENTENCES. Returns samples (N,)."""
    voice = list_split_voices("en", "dev")[number]
    return read_aloud(SENTENCES[number], voice, "en").samples


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for number in range(len(SENTENCES)):
        write_flac(folder / f"{number}.flac", synthesise(number))
    return folder


def make_options(source, out, **changes):
    options = {
        "training": TRAINING,
        "batches": Batches(crops=4, crop_seconds=2.0),
        "distortion": Distortion(distort="g", snr_range=(5.0, 5.0), distorted=(1.0,)),
    }
    return Phones(source=source, out=out, **options | changes)


@pytest.fixture(scope="module")
def student_folder(recordings, tmp_path_factory):
    """Return the folder of a trained student: encoder/ and units.safetensors."""
    out = tmp_path_factory.mktemp("student")
    train_phones(make_options(recordings, out))
    return out


def test_labels_are_the_phones_of_the_clean_crop():
    model = NoisyStudent(load_start("hama"))
    clean = torch.from_numpy(synthesise(0))
    with torch.no_grad():
        loss = model(clean[None], clean[None])["loss"]
        scores = model.head(model.student(clean[None])[-1])
    labels = load_encoder("hama:phones").features(clean.numpy(), 0).argmax(1)
    expected = torch.nn.functional.cross_entropy(scores[0], labels[: scores.shape[1]])
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)


def test_the_teacher_gets_no_gradient_and_stays_as_it_was():
    model = NoisyStudent(load_start("hama"))
    before = [weight.clone() for weight in model.teacher.parameters()]
    noise = torch.randn(2, GRID.count_samples(50))
    model(noise, noise)["loss"].backward()
    assert all(weight.grad is None for weight in model.teacher.parameters())
    for old, new in zip(before, model.teacher.parameters(), strict=True):
        assert torch.equal(old, new)


def test_the_codebook_has_the_symbols_of_hama(student_folder):
    codebook = load_codebook(student_folder / "units.safetensors")
    features = load_matching_features(codebook, str(student_folder / "encoder"))
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    units = codebook.assign(torch.cat(list(features.stream(noise))))
    assert len(units) == GRID.count_frames(16_000)
    # so that a reader of hama's units can read those of the student
    assert make_phone_codebook().hash in codebook.equivalents


def test_the_units_of_a_student_are_the_phones_that_it_recognises(student_folder):
    speech = synthesise(0)
    codebook = load_codebook(student_folder / "units.safetensors")
    units = codebook.assign(load_encoder(student_folder / "encoder").features(speech, 4))
    student = load_start(str(student_folder / "encoder"))
    symbols = student.decode(student(torch.from_numpy(speech)[None])[-1])[0]
    assert (symbols.numpy() == units).all()


def test_a_student_can_teach_another(recordings, student_folder, tmp_path):
    start = str(student_folder / "encoder")
    training = replace(TRAINING, steps=2)
    train_phones(make_options(recordings, tmp_path, start=start, training=training))
    first, second = load_encoder(start), load_encoder(tmp_path / "encoder")
    assert second.hash != first.hash
    assert load_codebook(tmp_path / "units.safetensors").card["encoder"] == second.hash


def test_a_run_in_two_parts_ends_with_the_same_encoder(recordings, student_folder, tmp_path):
    o = make_options(recordings, tmp_path)
    train_phones(replace(o, training=replace(TRAINING, steps=3, horizon=6)))
    assert find_last_checkpoint(tmp_path / "checkpoints")
    train_phones(replace(o, training=replace(TRAINING, horizon=6)))
    expected = load_encoder(student_folder / "encoder").hash
    assert load_encoder(tmp_path / "encoder").hash == expected


def test_weights_that_are_not_those_of_the_card_are_refused(student_folder, tmp_path):
    folder = shutil.copytree(student_folder / "encoder", tmp_path / "encoder")
    save_hama(load_start("hama"), folder)
    refused("is not the file that its card describes", load_encoder, folder)


def test_another_encoder_is_refused(recordings, tmp_path):
    o = make_options(recordings, tmp_path, start="people-en/encoder")
    refused("start from hama", train_phones, o)
