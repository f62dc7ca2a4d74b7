"""Every container, every rate, and every way in which a file can be bad."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, duration, in_blocks, read_audio, read_channels, resample, to_int16, write_clip, write_flac
from speechssl.errors import InputError

from .files import refused

DATA = Path(__file__).parents[2] / "shared" / "data"
SUFFIXES = [".wav", ".flac", ".ogg", ".mp3"]


def tone(seconds: float = 1.0, rate: int = SAMPLE_RATE, frequency: float = 440.0) -> np.ndarray:
    return (0.4 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))


def real(*parts: str) -> Path:
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the shared data folder is absent ({'/'.join(parts)})")
    return path


def refusal(path: Path) -> str:
    """The message with which a file is refused: one sentence that names it and says what to do."""
    with pytest.raises(InputError) as caught:
        read_audio(path)
    message = str(caught.value)
    assert str(path) in message and "; " in message and "\n" not in message
    return message


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
def test_every_container_at_every_rate(tmp_path: Path, suffix: str, rate: int) -> None:
    path = tmp_path / f"tone{suffix}"
    write_clip(path, tone(1.0, rate), 0.0, 1.0, rate)
    samples = read_audio(path)
    assert samples.dtype == np.float32 and samples.shape == (SAMPLE_RATE,)
    assert duration(path) == 1.0
    middle = slice(1600, -1600)  # lossy codecs smear the ends
    assert similarity(samples[middle], tone()[middle]) > 0.999
    assert np.std(samples[middle]) == pytest.approx(np.std(tone()[middle]), rel=0.02)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stereo_is_averaged(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"stereo{suffix}"
    left, right = tone(), tone(frequency=1000.0)
    soundfile.write(path, np.stack([left, right], axis=1), SAMPLE_RATE)
    samples = read_audio(path)
    assert samples.shape == left.shape
    assert similarity(samples[1600:-1600], ((left + right) / 2)[1600:-1600]) > 0.99  # one channel: 0.71


def test_blocks_leave_no_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "long.wav"
    soundfile.write(path, noise(100_003), 44100)
    whole = read_audio(path)
    monkeypatch.setattr("speechssl.audio.BLOCK_FRAMES", 777)
    np.testing.assert_array_equal(read_audio(path), whole)


@given(
    n=st.integers(0, 30_000),
    source=st.sampled_from([8000, 11025, 16000, 22050, 24000, 44100, 48000]),
    target=st.sampled_from([8000, 16000, 22050, 44100]),
)
def test_resample_length_is_exact(n: int, source: int, target: int) -> None:
    assert resample(np.zeros(n, np.float32), source, target).shape == (-(-n * target // source),)


def test_resample_removes_what_would_alias_and_keeps_the_rest() -> None:
    assert np.abs(resample(tone(1.0, 48000, 12_000.0), 48000, 16000)[800:-800]).max() < 1e-3
    np.testing.assert_allclose(resample(tone(1.0, 44100), 44100, 16000)[800:-800], tone()[800:-800], atol=1e-3)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.integers(-32768, 32767), min_size=800, max_size=900))
def test_flac_keeps_int16_to_the_bit(tmp_path: Path, values: list[int]) -> None:
    samples = np.array([*values, 1000], np.int16)
    write_flac(tmp_path / "x.flac", samples)
    np.testing.assert_array_equal(np.rint(read_audio(tmp_path / "x.flac") * 32768).astype(np.int16), samples)


def test_flac_guards_clips_and_is_reproducible(tmp_path: Path) -> None:
    samples = 3 * tone(0.5)
    write_flac(tmp_path / "a.flac", samples)
    write_flac(tmp_path / "b.flac", samples)
    assert (tmp_path / "a.flac").read_bytes() == (tmp_path / "b.flac").read_bytes()
    np.testing.assert_allclose(read_audio(tmp_path / "a.flac"), np.clip(samples, -1, 1), atol=2**-15)


@pytest.mark.parametrize("bad", [np.array([0.0, np.nan]), np.zeros((2, 2)), np.array([1, 2], np.int32)])
def test_what_is_not_a_recording_is_not_written(tmp_path: Path, bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite int16 or float"):
        to_int16(bad)
    with pytest.raises(ValueError, match="finite int16 or float"):
        write_flac(tmp_path / "x.flac", bad)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "start", "end"), [("x.aac", 0, 1), ("x", 0, 1), ("x.wav", 2, 3), ("x.wav", 0.5, 0.5)])
def test_impossible_clip(tmp_path: Path, name: str, start: float, end: float) -> None:
    refused(r"x.* (end its name in|to write as)|to write as .*x", write_clip, tmp_path / name, tone(), start, end)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_minutes_of_vorbis(tmp_path: Path) -> None:
    """Given in one piece, ten minutes overrun libsndfile's stack and end the process."""
    write_clip(tmp_path / "x.ogg", noise(600 * 8000), 0, 600, 8000)
    assert duration(tmp_path / "x.ogg") == 600


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"this is not audio, it is a sentence. " * 200, bytes(5000), b"RIFF\0\0\0\0WAVE"])
def test_not_audio(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(content)
    refusal(path)
    with pytest.raises(InputError):
        duration(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_cut_off(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"cut{suffix}"
    write_clip(path, noise(3 * 44100), 0, 3, 44100)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    message = refusal(path)
    if share >= 0.5:
        assert "cut off" in message


@pytest.mark.parametrize("container", ["RF64", "W64"])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "ULAW"])
def test_cut_off_with_sizes_in_64_bits(tmp_path: Path, container: str, subtype: str) -> None:
    path = tmp_path / "cut.wav"
    soundfile.write(path, tone(), SAMPLE_RATE, subtype, format=container)
    assert len(read_audio(path)) == SAMPLE_RATE
    path.write_bytes(path.read_bytes()[:-10])
    assert "cut off" in refusal(path)


def test_a_header_that_promises_a_trillion_samples(tmp_path: Path) -> None:
    path = tmp_path / "promise.wav"
    soundfile.write(path, tone(), SAMPLE_RATE, "PCM_16", format="RF64")
    content = bytearray(path.read_bytes())
    content[20:44] = struct.pack("<QQQ", 2 * 10**12 + 72, 2 * 10**12, 10**12)
    path.write_bytes(content)
    assert "cut off" in refusal(path)


@pytest.mark.parametrize("suffix", [".flac", ".ogg", ".mp3"])
def test_damaged_in_the_middle(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"damaged{suffix}"
    write_clip(path, noise(3 * 44100), 0, 3, 44100)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 3000] = np.random.default_rng(0).bytes(3000)
    path.write_bytes(content)
    assert "damaged" in refusal(path)


@pytest.mark.parametrize("stated", [0xFFFF_FFFF, 0x7FFF_FFFF, 0x7FFF_F000])
def test_streamed_wav_states_no_length(tmp_path: Path, stated: int) -> None:
    path = tmp_path / "streamed.wav"
    soundfile.write(path, tone(), SAMPLE_RATE, subtype="PCM_16")
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = content[4:8] = struct.pack("<I", stated)
    path.write_bytes(content)
    np.testing.assert_allclose(read_audio(path), tone(), atol=2**-15)
    assert duration(path) == 1.0


def test_mp3_without_a_count_of_frames(tmp_path: Path) -> None:
    """Its length is extrapolated from the first frame, wrongly for a variable bit rate: no ground to refuse it."""
    path = tmp_path / "x.mp3"
    quiet_then_loud = np.concatenate([np.zeros(16000, np.float32), noise(32000)])
    write_clip(path, quiet_then_loud, 0, 3)
    content = path.read_bytes()
    header = max(content.find(b"Xing"), content.find(b"Info"))
    assert 0 < header < 64
    second = content.index(content[:2], 4)  # the next MPEG frame
    path.write_bytes(content[second:])
    assert abs(len(read_audio(path)) - 48000) < 2 * 1152


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
def test_mp3_without_a_count_of_frames_that_is_cut(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "x.mp3"
    soundfile.write(path, noise(3 * rate), rate, format="MP3", bitrate_mode="CONSTANT", compression_level=0.5)
    content = path.read_bytes()
    same = (i for i in range(4, len(content)) if content[i : i + 2] == content[:2] and content[i + 2] ^ content[2] < 4)
    whole = content[next(same) :]  # without the first frame, which counts them
    path.write_bytes(whole)
    assert abs(len(read_audio(path)) - 48000) < 2 * 1152 * 16000 / rate
    path.write_bytes(whole + b"TAG" + bytes(125))
    read_audio(path)
    for share in (0.3, 0.5, 0.99):
        path.write_bytes(whole[: int(len(whole) * share) // 2 * 2 - 7])
        assert "cut off" in refusal(path)


def test_names_that_are_no_audio_file(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    for name, content in (("x.raw", b"samples without a header"), ("talk.M4A", b"ftypM4A " * 9)):
        (tmp_path / name).write_bytes(content)
    for name, why in (
        ("missing.wav", "does not exist"),
        ("", "folder"),
        ("empty.wav", "empty"),
        ("x.raw", "as audio"),
        ("x" * 300 + ".wav", "File name too long"),
        ("x.raw/x.wav", "Not a directory"),
        ("a\0.wav", "embedded null byte"),
        ("talk.M4A", "give a whole WAV, FLAC, MP3, OGG, AIFF or AU file; `ffmpeg -i NAME.m4a NAME.flac` makes one"),
    ):
        assert why in refusal(tmp_path / name)
    assert "not read from standard input" in refusal(Path("-"))
    assert "download it" in refusal(Path("https://example.org/x.mp3"))


def test_mp3_that_counts_its_header_frame(tmp_path: Path) -> None:
    path = tmp_path / "x.mp3"
    write_clip(path, noise(48000), 0, 3)
    content = bytearray(path.read_bytes())
    at = max(content.find(b"Xing"), content.find(b"Info")) + 8  # tag, flags, number of frames
    (count,) = struct.unpack_from(">I", content, at)
    struct.pack_into(">I", content, at, count + 1)
    path.write_bytes(content)
    assert soundfile.info(path).frames > 48000
    assert len(read_audio(path)) >= 48000


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.zeros(0), "no samples"),
        (tone(0.02), "0.020 s"),
        (np.zeros(SAMPLE_RATE), "silent"),
        *((np.append(tone(0.5), value), "not finite") for value in (np.nan, np.inf, -np.inf)),
    ],
)
@pytest.mark.parametrize("rate", [16000, 44100])
def test_samples_that_are_none_too_few_silent_or_not_finite(tmp_path: Path, samples: np.ndarray, expected: str, rate: int) -> None:
    samples = resample(samples, SAMPLE_RATE, rate) if expected == "0.020 s" else samples
    soundfile.write(tmp_path / "x.wav", samples, rate, subtype="FLOAT")
    assert expected in refusal(tmp_path / "x.wav")


def test_quiet_is_not_silent(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "quiet.wav", 0.001 * tone(), SAMPLE_RATE)
    assert len(read_audio(tmp_path / "quiet.wav")) == SAMPLE_RATE


def test_real_mp3_yields_a_little_less_than_its_header_promises() -> None:
    path = real("nmsqa", "context-34_4_4.mp3")
    samples = read_audio(path)
    assert abs(len(samples) / SAMPLE_RATE - duration(path)) < 0.05
    assert 0.1 < np.abs(samples).max() <= 1.1


def test_real_recordings_at_8_khz() -> None:
    for path in sorted(real("fsdd", "recordings").glob("*_0.wav"))[:20]:
        assert len(read_audio(path)) == 2 * soundfile.info(path).frames


def test_channels_are_read_as_they_are(tmp_path: Path) -> None:
    """For code that wants what the file holds: no mean of the channels, no other rate, silence and all."""
    pair = np.stack([noise(900), np.zeros(900, np.float32)], 1)
    soundfile.write(tmp_path / "a.wav", pair, 8_000, subtype="FLOAT")
    found, rate = read_channels(tmp_path / "a.wav")
    assert rate == 8_000 and found.dtype == np.float32 and np.array_equal(found, pair.T)
    assert np.array_equal(read_channels(tmp_path / "a.wav", 10, 20)[0], pair.T[:, 10:30])
    refused("does not exist", read_channels, tmp_path / "b.wav")


def test_hours_lie_in_a_file_and_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flac(tmp_path / "a.flac", noise(700_000), 44_100)
    inside = read_audio(tmp_path / "a.flac")
    monkeypatch.setattr("speechssl.audio.LONG", 100_000)
    mapped = read_audio(tmp_path / "a.flac")
    assert isinstance(mapped, np.memmap) and not isinstance(inside, np.memmap)
    assert np.array_equal(mapped, inside) and np.array_equal(np.concatenate(list(in_blocks(mapped))), inside)
    with pytest.raises(ValueError, match="read-only"):  # what is forgotten is read again from the file
        mapped[0] = 1.0


def test_an_mp3_of_more_than_a_block_leaves_stderr_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Frames of loud and quiet moments borrow bits from one another; seeking between two blocks made libmpg123 complain."""
    samples = np.random.default_rng(0).normal(0, 0.2, 40 * SAMPLE_RATE) * (np.arange(40 * SAMPLE_RATE) % 4_000 < 600)
    write_clip(tmp_path / "long.mp3", samples, 0, 40)
    read = read_audio(tmp_path / "long.mp3")
    assert len(read) == len(samples) and not capfd.readouterr().err
