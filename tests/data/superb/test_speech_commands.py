"""Speech Commands: the hash decides the split, silence is cut from the noise, the test is its own archive."""

import numpy as np
import pytest
import soundfile

from speechssl.audio import read_audio
from speechssl.data.superb import speech_commands
from speechssl.data.superb.speech_commands import CLASSES, prepare_speech_commands, split_of
from speechssl.data.utterances import load_set
from speechssl.errors import InputError

# of the lists that come with the corpus (validation_list.txt, testing_list.txt), and one of neither
SPEAKERS = {"dev": "026290a7", "test": "0c40e715", "train": "0a7c2a8d"}


@pytest.fixture
def source(tmp_path, write, monkeypatch):
    """Every split needs every class: three words of a speaker of each."""
    root = tmp_path / "sc"
    for word in ("yes", "bed"):
        for speaker in SPEAKERS.values():
            write(root / f"speech_commands_v0.01/{word}/{speaker}_nohash_0.wav")
    write(root / "speech_commands_v0.01/_background_noise_/pink_noise.wav", 11.5)
    for name in CLASSES:
        write(root / f"speech_commands_test_set_v0.01/{name}/{SPEAKERS['test']}_nohash_1.wav")
    monkeypatch.setattr(speech_commands, "COUNTS", {"train": 2, "dev": 2, "test": 12, "background recordings": 1})
    return root


@pytest.mark.parametrize(("split", "speaker"), SPEAKERS.items())
def test_the_split_is_that_of_the_corpus(split, speaker):
    assert split_of(f"{speaker}_nohash_0.wav") == split_of(f"{speaker}_nohash_4.wav") == split


@pytest.mark.slow
def test_the_split_is_that_of_s3prl(source):
    theirs = pytest.importorskip("s3prl.dataio.corpus.speech_commands")
    rng = np.random.default_rng(1)
    for number in rng.integers(0, 2**32, 200):
        (source / f"speech_commands_v0.01/bed/{number:08x}_nohash_{number % 3}.wav").touch()
    train, dev = theirs.SpeechCommandsV1.split_dataset(source / "speech_commands_v0.01")
    for split, found in (("train", train), ("dev", dev)):
        assert found and {split_of(path.name) for _, path in found} == {split}
    left = set((source / "speech_commands_v0.01").glob("[a-z]*/*.wav")) - {path for _, path in train + dev}
    assert left and {split_of(path.name) for path in left} == {"test"}


def test_about_eight_in_ten_speakers_train():
    splits = [split_of(f"{number:08x}_nohash_0.wav") for number in range(2000)]
    assert 0.77 < splits.count("train") / 2000 < 0.83 and 0.08 < splits.count("dev") / 2000 < 0.12


def test_words_and_silence(source, tmp_path):
    card = prepare_speech_commands(source, tmp_path / "out")["ks"]
    data = load_set(tmp_path / "out/ks", "ks")
    words = {split: {u.id: u.labels["keyword"] for u in found if u.speaker} for split, found in data.splits.items()}
    assert words["train"] == {"bed/0a7c2a8d_nohash_0": "_unknown_", "yes/0a7c2a8d_nohash_0": "yes"}
    assert set(words["dev"]) == {"bed/026290a7_nohash_0", "yes/026290a7_nohash_0"}
    silent = {split: [u.id for u in found if u.labels["keyword"] == "_silence_"] for split, found in data.splits.items()}
    assert silent["dev"] == ["_silence_/pink_noise-000", "_silence_/pink_noise-010"] and len(silent["train"]) == 9
    assert card["sizes"] == {"train": 11, "dev": 4, "test": 12}


def test_a_second_of_silence_is_a_second_of_the_noise(source, tmp_path):
    prepare_speech_commands(source, tmp_path / "out")
    data = load_set(tmp_path / "out/ks")
    one = next(u for u in data.splits["train"] if u.id.endswith("noise-003"))
    noise = read_audio(source / "speech_commands_v0.01/_background_noise_/pink_noise.wav")
    cut = read_audio(data.path(one))
    assert one.seconds == len(cut) / 16_000 == 1
    np.testing.assert_allclose(cut, noise[48_000:64_000], atol=1e-4)


def test_digital_silence_is_left_out(source, tmp_path):
    path = source / "speech_commands_v0.01/_background_noise_/pink_noise.wav"
    samples, rate = soundfile.read(path)
    samples[:16_000] = 0
    soundfile.write(path, samples, rate)
    assert prepare_speech_commands(source, tmp_path / "out")["ks"]["sizes"] == {"train": 11, "dev": 3, "test": 12}


def test_another_tree_is_one_sentence(source, tmp_path):
    with pytest.raises(InputError, match=r"speech_commands_v0.01 does not exist; give the folder that holds"):
        prepare_speech_commands(source / "speech_commands_v0.01", tmp_path / "out")
    (source / "speech_commands_v0.01/_background_noise_/pink_noise.wav").unlink()
    with pytest.raises(InputError, match="has 0 background recordings and not 1 as published"):
        prepare_speech_commands(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
