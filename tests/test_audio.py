"""Test audio files of every container and rate, files that are cut off, damaged or joined, and arrays
of samples."""

import io
import math
import struct

import numpy as np
import pytest
import soundfile

from speechssl import audio

from .files import refused

SUFFIXES = [".wav", ".flac", ".ogg", ".mp3"]


def tone(seconds=1.0, rate=audio.SAMPLE_RATE, frequency=440.0):
    """Make a tone with the peak 0.4."""
    return (0.4 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(
        np.float32
    )


def noise(n, seed=0):
    """Make noise (n,)."""
    return (0.1 * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def similarity(a, b):
    """Return the cosine of two arrays of samples."""
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.wav", None),
        ("empty.wav", b""),
        ("text.mp3", b"this is not audio, it is a sentence. " * 200),
        ("header.wav", b"RIFF\0\0\0\0WAVE"),
        ("talk.M4A", b"ftypM4A " * 9),
    ],
)
def test_files_that_are_no_audio_are_refused(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for read in (audio.read_audio, audio.read_native, audio.read_channels, audio.read_duration):
        refused(name, read, tmp_path / name)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".rf64", ".w64", ".aiff"])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_file_that_is_cut_off_is_refused(tmp_path, suffix, share):
    path = tmp_path / f"cut{suffix}"
    soundfile.write(path, noise(3 * 44100), 44100)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    refused(f"{path.name}.*; ", audio.read_audio, path)


@pytest.mark.parametrize("suffix", [".flac", ".ogg", ".mp3"])
def test_a_file_that_is_damaged_in_the_middle_is_refused(tmp_path, suffix):
    path = tmp_path / f"damaged{suffix}"
    audio.write_clip(path, noise(3 * 44100), 0, 3, 44100)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 3000] = np.random.default_rng(0).bytes(3000)
    path.write_bytes(content)
    refused(path.name, audio.read_audio, path)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(0),
        tone(0.02),  # too short
        np.zeros(audio.SAMPLE_RATE),  # silent
        np.append(tone(0.5), np.nan),
        np.append(tone(0.5), -np.inf),
        tone() * 1e7,  # louder than any known scale
    ],
)
def test_samples_that_cannot_be_used_are_refused(tmp_path, samples):
    soundfile.write(tmp_path / "x.wav", samples, audio.SAMPLE_RATE, subtype="FLOAT")
    refused("x.wav", audio.read_audio, tmp_path / "x.wav")
    refused("it ", audio.convert_samples, samples, audio.SAMPLE_RATE, "it")


@pytest.mark.parametrize("samples", [np.zeros((9, 9)), np.zeros(9, bool), np.zeros(9, complex)])
def test_arrays_that_are_no_samples_are_refused(samples):
    refused("it ", audio.convert_samples, samples, audio.SAMPLE_RATE, "it")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rate", [8000, 44100])
def test_every_container_is_read_at_every_rate(tmp_path, suffix, rate):
    path = tmp_path / f"tone{suffix}"
    audio.write_clip(path, tone(1.0, rate), 0.0, 1.0, rate)
    samples = audio.read_audio(path)
    assert samples.dtype == np.float32
    assert samples.shape == (audio.SAMPLE_RATE,)
    assert audio.read_duration(path) == 1.0
    middle = slice(1600, -1600)  # lossy codecs smear the ends
    assert similarity(samples[middle], tone()[middle]) > 0.999
    assert np.std(samples[middle]) == pytest.approx(np.std(tone()[middle]), rel=0.02)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stereo_is_averaged(tmp_path, suffix):
    path = tmp_path / f"stereo{suffix}"
    left, right = tone(), tone(frequency=1000.0)
    soundfile.write(path, np.stack([left, right], axis=1), audio.SAMPLE_RATE)
    samples = audio.read_audio(path)
    assert samples.shape == left.shape
    # one channel alone would have the cosine 0.71
    assert similarity(samples[1600:-1600], ((left + right) / 2)[1600:-1600]) > 0.99


@pytest.mark.parametrize("n", [0, 1, 7, 30_000])
@pytest.mark.parametrize("source", [8000, 11025, 44100])
def test_the_length_of_resampled_audio_is_exact(n, source):
    resampled = audio.resample(np.zeros(n, np.float32), source, 16_000)
    assert len(resampled) == math.ceil(n * 16_000 / source)


def test_resampling_removes_frequencies_that_would_alias_and_keeps_the_others():
    aliased = audio.resample(tone(1.0, 48000, 12_000.0), 48000, 16000)
    assert np.abs(aliased[800:-800]).max() < 1e-3
    kept = audio.resample(tone(1.0, 44100), 44100, 16000)
    np.testing.assert_allclose(kept[800:-800], tone()[800:-800], atol=1e-3)


def test_flac_keeps_int16_to_the_bit(tmp_path):
    samples = np.random.default_rng(0).integers(-32768, 32768, 9_000).astype(np.int16)
    samples[:2] = -32768, 32767
    audio.write_flac(tmp_path / "x.flac", samples)
    decoded = np.rint(audio.read_audio(tmp_path / "x.flac") * 32768)
    np.testing.assert_array_equal(decoded.astype(np.int16), samples)


@pytest.mark.parametrize("stated", [0xFFFF_FFFF, 0x7FFF_FFFF, 0x7FFF_F000])
def test_a_streamed_wav_states_no_length(tmp_path, stated):
    path = tmp_path / "streamed.wav"
    soundfile.write(path, tone(), audio.SAMPLE_RATE, subtype="PCM_16")
    content = bytearray(path.read_bytes())
    # the sizes of the whole file and of the chunk "data"
    size = content.index(b"data") + 4
    content[4:8] = struct.pack("<I", stated)
    content[size : size + 4] = struct.pack("<I", stated)
    path.write_bytes(content)
    np.testing.assert_allclose(audio.read_audio(path), tone(), atol=2**-15)
    assert audio.read_duration(path) == 1.0


# ---- files that hold more than their headers state, or whose headers state no length


def check_length(path, seconds, within=0.0):
    """Assert that every function measures this length of a file. Returns its samples."""
    samples = audio.read_audio(path)
    assert len(samples) / audio.SAMPLE_RATE == pytest.approx(seconds, abs=within + 1e-4)
    assert audio.measure_duration(path) == pytest.approx(len(samples) / audio.SAMPLE_RATE, abs=1e-4)
    native, rate = audio.read_native(path)
    assert len(native) / rate == pytest.approx(audio.measure_duration(path), abs=1e-4)
    return samples


def encode(samples, container, subtype=None, **options):
    """Return samples as the bytes of a file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, audio.SAMPLE_RATE, subtype, format=container, **options)
    return buffer.getvalue()


def remove_count(mp3):
    """Return an MP3 without its first MPEG frame, the Xing header, which counts the frames."""
    second_frame = mp3.index(mp3[:2], 4)  # a frame begins with the same two bytes as the first
    return mp3[second_frame:]


ID3 = b"ID3\x04\0\0" + bytes((0, 0, 0, 20)) + b"TIT2" + bytes(16)  # a tag of 20 bytes


@pytest.mark.parametrize("between", [b"", ID3, b"TAG" + bytes(125)])
@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_joined_mp3s_are_read_to_their_end(tmp_path, between, mode):
    path = tmp_path / "joined.mp3"
    first, second = (
        encode(noise(n, n), "MP3", bitrate_mode=mode)
        for n in (2 * audio.SAMPLE_RATE, 3 * audio.SAMPLE_RATE)
    )
    path.write_bytes(first + between + second)
    check_length(path, 5, 0.3)


def test_an_mp3_without_a_count_that_is_cut_within_a_frame_is_refused(tmp_path):
    content = remove_count(encode(noise(3 * audio.SAMPLE_RATE), "MP3", bitrate_mode="CONSTANT"))
    for share in (0.3, 0.5, 0.99):
        (tmp_path / "x.mp3").write_bytes(content[: int(len(content) * share) // 2 * 2 - 7])
        refused("x.mp3 is cut off", audio.read_audio, tmp_path / "x.mp3")


def test_an_mp3_of_a_variable_bit_rate_is_read_to_its_end(tmp_path):
    """It begins loud, at a high bit rate, from which libsndfile extrapolates a length of less than
    100,000 samples; it has 128,000."""
    path = tmp_path / "x.mp3"
    loud_then_quiet = np.concatenate([noise(32_000), np.full(96_000, 1e-5, np.float32)])
    path.write_bytes(
        remove_count(encode(loud_then_quiet, "MP3", bitrate_mode="VARIABLE", compression_level=0.1))
    )
    assert soundfile.info(path).frames < 100_000
    check_length(path, 8, 0.15)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "ULAW", "PCM_U8"])
@pytest.mark.parametrize("share", [0, 0.5])
def test_a_wav_that_states_less_than_it_holds_is_read_to_its_end(tmp_path, subtype, share, capsys):
    path = tmp_path / "more.wav"
    content = bytearray(encode(noise(2 * audio.SAMPLE_RATE), "WAV", subtype))
    size = content.index(b"data") + 4
    (bytes_of_sound,) = struct.unpack_from("<I", content, size)
    struct.pack_into("<I", content, size, int(share * bytes_of_sound))
    path.write_bytes(content)
    samples = check_length(path, 2)
    np.testing.assert_allclose(samples, noise(2 * audio.SAMPLE_RATE), atol=0.02)
    assert ("states 1.00 s of sound and it holds 2.00 s" in capsys.readouterr().err) == (share > 0)


def test_samples_that_look_like_the_name_of_a_chunk_are_read(tmp_path):
    """libsndfile takes them for one behind a chunk "data" of the size 0."""
    content = encode(noise(2 * audio.SAMPLE_RATE), "WAV", "PCM_U8")
    header = content[: content.index(b"data") + 4]
    sound = np.random.default_rng(0).integers(48, 122, 2 * audio.SAMPLE_RATE, np.uint8)
    (tmp_path / "x.wav").write_bytes(header + bytes(4) + b"YSOK" + sound[4:].tobytes())
    check_length(tmp_path / "x.wav", 2)


@pytest.mark.parametrize(
    "behind",
    [
        b"LIST\x04\0\0\0INFO",
        b"ID3\x04" + noise(2250).tobytes(),
        bytes(4096),
        b"id3 " + struct.pack("<I", 9000) + b"ID3" + noise(2250).tobytes(),
    ],
)
def test_other_chunks_behind_the_sound_of_a_wav_are_not_read(tmp_path, behind):
    (tmp_path / "x.wav").write_bytes(encode(tone(), "WAV") + behind)
    check_length(tmp_path / "x.wav", 1)


def test_an_aiff_that_was_written_to_a_pipe(tmp_path):
    """Its sizes are those that sox writes where it does not know the length."""
    content = bytearray(encode(tone(), "AIFF", "PCM_16"))
    struct.pack_into(">I", content, content.index(b"SSND") + 4, 0x7F00_0008)
    struct.pack_into(">I", content, content.index(b"COMM") + 10, 0x3F80_0000)
    struct.pack_into(">I", content, 4, 0x7F00_0050)
    (tmp_path / "x.aiff").write_bytes(content)
    np.testing.assert_allclose(check_length(tmp_path / "x.aiff", 1), tone(), atol=2**-15)


@pytest.mark.parametrize(
    ("kind", "seconds"), [("FLAC", 0.5), ("FLAC", 10), ("WAV", 1), ("AIFF", 1)]
)
def test_joined_files_that_no_library_reads_are_refused(tmp_path, kind, seconds):
    path = tmp_path / f"both.{kind.lower()}"
    path.write_bytes(2 * encode(noise(round(seconds * audio.SAMPLE_RATE)), kind))
    for read in (audio.read_audio, audio.read_duration, audio.measure_duration):
        refused(f"both.{kind.lower()} holds more than one {kind}", read, path)


def test_an_au_and_an_rf64_that_state_less_than_they_hold(tmp_path):
    content = bytearray(encode(tone(2), "AU", "PCM_16", endian="BIG"))
    struct.pack_into(">I", content, 8, audio.SAMPLE_RATE * 2)
    (tmp_path / "x.au").write_bytes(content)
    np.testing.assert_allclose(check_length(tmp_path / "x.au", 2), tone(2), atol=2**-15)
    for stated in (0, audio.SAMPLE_RATE * 2):
        content = bytearray(encode(tone(2), "RF64", "PCM_16"))
        at = content.index(b"ds64") + 16  # behind the size of the chunk, and that of the file
        struct.pack_into("<QQ", content, at, stated, stated // 2)
        (tmp_path / "x.wav").write_bytes(content)
        np.testing.assert_allclose(check_length(tmp_path / "x.wav", 2), tone(2), atol=2**-15)


def test_an_aiff_of_which_no_library_reads_the_rest_is_refused(tmp_path):
    content = bytearray(encode(noise(2 * audio.SAMPLE_RATE), "AIFF", "PCM_16"))
    struct.pack_into(">I", content, content.index(b"SSND") + 4, audio.SAMPLE_RATE * 2 + 8)
    struct.pack_into(">I", content, content.index(b"COMM") + 10, audio.SAMPLE_RATE)
    (tmp_path / "x.aiff").write_bytes(content)
    refused("states 1.00 s of sound, and there is more", audio.read_audio, tmp_path / "x.aiff")


def test_a_tag_before_a_flac(tmp_path):
    (tmp_path / "x.flac").write_bytes(ID3 + encode(tone(), "FLAC"))
    check_length(tmp_path / "x.flac", 1)


@pytest.mark.parametrize("seconds", [2, 10])
def test_a_flac_that_states_less_than_it_holds(tmp_path, seconds):
    audio.write_flac(tmp_path / "a.flac", noise(seconds * audio.SAMPLE_RATE))
    content = bytearray((tmp_path / "a.flac").read_bytes())
    content[22:26] = (audio.SAMPLE_RATE).to_bytes(4, "big")  # the count of samples
    (tmp_path / "a.flac").write_bytes(content)
    check_length(tmp_path / "a.flac", seconds)


def test_a_flac_of_unknown_length(tmp_path):
    content = bytearray(encode(tone(1.5), "FLAC"))
    content[21] &= 0xF0  # STREAMINFO: the 36 bits that count the samples
    content[22:26] = bytes(4)
    (tmp_path / "x.flac").write_bytes(content)
    np.testing.assert_allclose(check_length(tmp_path / "x.flac", 1.5), tone(1.5), atol=2**-15)
    assert audio.read_duration(tmp_path / "x.flac") == 1.5
    assert audio.read_channels(tmp_path / "x.flac", 8_000)[0].shape == (1, 16_000)


def test_an_mp3_whose_count_of_frames_is_0(tmp_path):
    content = bytearray(encode(noise(2 * audio.SAMPLE_RATE), "MP3", bitrate_mode="VARIABLE"))
    at = max(content.find(b"Xing"), content.find(b"Info")) + 8
    content[at : at + 4] = bytes(4)
    (tmp_path / "x.mp3").write_bytes(content)
    check_length(tmp_path / "x.mp3", 2, 0.15)


def test_joined_mp3s_of_two_rates(tmp_path):
    buffer = io.BytesIO()
    soundfile.write(buffer, noise(88_200), 44_100, format="MP3")
    content = encode(noise(3 * audio.SAMPLE_RATE), "MP3") + buffer.getvalue()
    (tmp_path / "x.mp3").write_bytes(content)
    check_length(tmp_path / "x.mp3", 5, 0.3)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_joined_oggs_are_read_to_their_end(tmp_path, subtype):
    parts = [
        encode(noise(n, n), "OGG", subtype) for n in (2 * audio.SAMPLE_RATE, 3 * audio.SAMPLE_RATE)
    ]
    (tmp_path / "x.ogg").write_bytes(b"".join(parts))
    check_length(tmp_path / "x.ogg", 5, 0.05)
    (tmp_path / "x.ogg").write_bytes(2 * parts[0])  # both have one serial number
    check_length(tmp_path / "x.ogg", 4, 0.05)


def write_by_ffmpeg(path, samples, codec, container):
    """Write a file by FFmpeg's libraries."""
    import av

    with av.open(str(path), "w", format=container) as out:
        stream = out.add_stream(
            codec, rate=audio.SAMPLE_RATE if codec != "libopus" else 48_000, layout="mono"
        )
        frame = av.AudioFrame.from_ndarray(
            audio.to_int16(samples)[None], format="s16", layout="mono"
        )
        frame.sample_rate = audio.SAMPLE_RATE
        for part in (frame, None):  # None flushes the encoder
            out.mux(stream.encode(part))


@pytest.mark.parametrize(
    ("name", "codec", "container"),
    [("x.webm", "libopus", "webm"), ("x.mka", "pcm_s16le", "matroska")],
)
def test_a_matroska_that_is_cut_off_is_refused(tmp_path, name, codec, container):
    path = tmp_path / name
    write_by_ffmpeg(path, noise(5 * audio.SAMPLE_RATE), codec, container)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(f"{name} is cut off", audio.read_audio, path)


@pytest.mark.parametrize(
    ("name", "codec", "container"),
    [
        ("mp3-in.wav", "libmp3lame", "wav"),
        ("talk.m4a", "aac", "ipod"),
        ("talk.mp3", "aac", "mp4"),
        ("talk.webm", "libopus", "webm"),
    ],
)
def test_codecs_that_libsndfile_does_not_read(tmp_path, name, codec, container):
    write_by_ffmpeg(tmp_path / name, tone(3), codec, container)
    samples = check_length(tmp_path / name, 3, 0.15)
    assert np.std(samples[8000:-8000]) == pytest.approx(np.std(tone()), rel=0.05)


# ---- scale and channels


@pytest.mark.parametrize(("scale", "expected"), [(26_660, 26_660 / 32_768), (4, 1), (1.1, 1.1)])
@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
def test_floats_beyond_full_scale_are_scaled(tmp_path, scale, expected, subtype):
    soundfile.write(tmp_path / "x.wav", tone() / 0.4 * scale, audio.SAMPLE_RATE, subtype)
    for samples in (audio.read_audio(tmp_path / "x.wav"), audio.read_native(tmp_path / "x.wav")[0]):
        np.testing.assert_allclose(samples, tone() / 0.4 * expected, atol=1e-5)


@pytest.mark.parametrize("right", [-1.0, -0.9])
def test_of_channels_that_cancel_one_is_read(tmp_path, right, capsys):
    path = tmp_path / "x.wav"
    soundfile.write(path, np.stack([tone(), right * tone()], 1), audio.SAMPLE_RATE)
    np.testing.assert_allclose(audio.read_audio(path), tone(), atol=2**-14)
    assert "channels cancel" in capsys.readouterr().err


INT16 = audio.to_int16(tone())


@pytest.mark.parametrize(
    "samples",
    [
        INT16,
        INT16.astype(np.int32) << 16,
        INT16.astype(np.int32) << 8,  # samples of 24 bits
        INT16.astype(np.int64),
        INT16.astype(np.float32),
        (INT16 // 256 + 128).astype(np.uint8),
        tone().astype(np.float64),
        np.repeat(tone(), 2)[::2],
        np.stack([tone(), tone()]),
        np.stack([INT16, INT16], 1),
        np.stack([tone(), -tone()], 1),
    ],
)
def test_arrays_of_every_scale_and_shape_are_converted(samples):
    recording = audio.convert_samples(samples, audio.SAMPLE_RATE, "it")
    assert recording.dtype == np.float32
    assert recording.shape == (audio.SAMPLE_RATE,)
    np.testing.assert_allclose(
        recording, tone(), atol=0.01 if samples.dtype == np.uint8 else 2**-14
    )


# ---- questions


@pytest.mark.parametrize("question", ["speech.wav", "my question.MP3", "rec/who", "https://a.b/q"])
def test_a_question_that_looks_like_a_file_name_is_no_text(question):
    refused("does not exist", audio.read_question, question)


@pytest.mark.parametrize("question", ["km/h?", "Where is St. Paul.", "他是谁", "3.14", "x" * 5000])
def test_texts_are_read_as_they_are(question):
    assert audio.read_question(question) == question


@pytest.mark.parametrize("question", ["?!", "", np.tile(tone(), 61)])
def test_questions_without_words_and_long_recordings_are_refused(question):
    refused("question", audio.read_question, question)
