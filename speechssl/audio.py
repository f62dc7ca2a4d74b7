"""This module alone opens audio files. Beyond it all audio is float32 mono at 16 kHz, in an array
(N,).

libsndfile reads WAV, FLAC, MP3 and OGG, at any rate; stereo is averaged. FFmpeg's libraries (PyAV)
read what libsndfile does not read, or not to its end: MP4, WebM, joined MP3s, and a WAV whose
header states less than the file holds. Blocks of a file are made mono, float32 and 16 kHz one by
one, so that an hour takes no more memory than the result. A result beyond `LONG` samples lies in a
nameless temporary file, of which only the block in use is in memory.

A file that is not whole is refused, and never padded or shortened silently: times counted in it
would be wrong. (An MP3 without a count of its frames that was cut exactly between two of them
cannot be distinguished from a whole one.)
"""

from __future__ import annotations

import io
import mmap
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from tqdm import tqdm

from speechssl.artifacts import replace_file
from speechssl.errors import InputError

# Hz; HuBERT and wav2vec 2.0 were trained at this rate (arXiv 2106.07447, section IV)
SAMPLE_RATE = 16_000
MIN_SECONDS = 0.05  # two receptive fields of HuBERT's front end (25 ms each)
# Peaks of floats, as multiples of full scale. Lossy decoders reach 1.1; a peak above HOT_PEAK shows
# that the samples are on another scale.
HOT_PEAK = 1.5
# Samples with this peak or a higher one are on the scale of 16-bit integers.
INT16_PEAK = 100
# No known scale gives a higher peak: 16-bit integers give 32,768, and resampling adds some.
LOUD_PEAK = 40_000
# The channels of a file cancel each other (one is another, inverted) where the power of their mean
# is below this fraction, -20 dB, of the power of the loudest channel.
CANCEL_RATIO = 0.01
SILENT_PEAK = 1e-4  # -80 dB: three steps of 16-bit audio
CUT_OFF = "{} is cut off: it ends before its header says; copy or download it again"
# suffixes that FFmpeg reads and libsndfile does not
FFMPEG_SUFFIXES = ".m4a .mp4 .aac .wma .amr .sph .ape .ac3 .webm .mka .3gp".split()
BLOCK_FRAMES = 1 << 18  # frames read at a time
LONG = 1 << 26  # samples that are kept in memory, 70 minutes: a quarter of a gigabyte
# containers of which libsndfile's log says where the sound ends
PLAIN = ("WAV", "WAVEX", "RF64", "AIFF", "AU")
# Headers that state this many bytes or frames were streamed: their writer never knew the length.
UNKNOWN_BYTES = 0x7F00_0000
UNKNOWN_FRAMES = 1 << 62
JOINED = (
    "{} holds more than one {}, one behind the other; join the sounds and not the files, such as "
    "by `sox a.wav b.wav both.wav`"
)
# seconds by which the sound of a whole MP4 or Matroska may be shorter than its header states
CONTAINER_SLACK = 0.2
# Samples of one MPEG frame: some encoders count the header frame among those of sound.
MP3_SLACK = 1152
# Samples that an encoder may add before and after the sound; decoding removes them again.
MP3_PADDING = 5 * MP3_SLACK
LONGEST_QUESTION = 60.0  # seconds: a longer recording was probably meant as the passage
# A question that matches is taken for the name of a file: question.m4a, https://...,
# recordings/who, but not "km/h?"
_FILE_NAME = re.compile(
    r".*\.(?:wav|flac|mp3|ogg|opus|aiff?|au|m4a|mp4|webm)"
    r"|\w+://\S*|[^\s?\u3400-\u9fff]*[/\\][^\s?\u3400-\u9fff]*",
    re.IGNORECASE,
)


def read_audio(path: Path | str) -> np.ndarray:
    """Read a whole file as float32 mono at 16 kHz. Returns (N,), full scale 1, N = ceil(frames *
    SAMPLE_RATE / rate of the file).

    Raises InputError for a file that is missing, empty, not audio, cut off or damaged, silent,
    shorter than MIN_SECONDS, or that has samples that are not finite.
    """
    path = Path(path)
    samples, _ = _read_mono(path, SAMPLE_RATE)
    check_audio(samples, SAMPLE_RATE, str(path))
    return correct_scale(samples, str(path))


def read_recording(source: Path | str | np.ndarray) -> np.ndarray:
    """Return samples (N,) float32 at 16 kHz of a file, or of an array at that rate. Raises
    InputError for a recording that is no audio, or silent."""
    if isinstance(source, str | Path):
        return read_audio(source)
    # this copies: the encoder recognises the last array by identity, and the caller may since have
    # changed its content
    return convert_samples(source, SAMPLE_RATE, "the array given")


def read_question(source: Path | str | np.ndarray) -> np.ndarray | str:
    """Return a question: a text as it is, or the samples (N,) of a recording.

    A string is a text unless a file has that name, or it looks like one ("question.m4a"). Raises
    InputError as `read_recording` does, for a text without words, and for a recording longer than
    LONGEST_QUESTION.
    """
    if isinstance(source, str):
        names_file = _FILE_NAME.fullmatch(source) or os.path.exists(source)
        if not names_file:
            if not any(map(str.isalnum, source)):
                raise InputError(
                    f"the question {source!r} has no words; give a text, or a recording"
                )
            return source
    samples = read_recording(source)
    if len(samples) > LONGEST_QUESTION * SAMPLE_RATE:
        name = "the question" if isinstance(source, np.ndarray) else source
        raise InputError(
            f"{name} lasts {len(samples) / SAMPLE_RATE:.0f} s, and a question at most "
            f"{LONGEST_QUESTION:.0f} s; give the part of the recording that is the question"
        )
    return samples


def read_native(path: Path | str) -> tuple[np.ndarray, int]:
    """Read a whole file as float32 mono (N,) at its own rate; return the rate in Hz too.

    The file may be silent or short, as a piece of speech may be. Raises InputError for a file that
    is missing, empty, not audio, cut off or damaged.
    """
    path = Path(path)
    samples, rate = _read_mono(path, None)
    if not len(samples):
        raise InputError(f"{path} holds no samples; record or download it again")
    return correct_scale(samples, str(path)), rate


def _read_mono(path: Path, sample_rate: int | None) -> tuple[np.ndarray, int]:
    """Read float32 mono (N,) at `sample_rate`, or at the file's own rate where it is None; return
    the rate too. Where the channels cancel in their mean, the loudest channel alone is read."""
    samples, rate, power = _decode(path, sample_rate)
    if _channels_cancel(power):
        loudest = _choose_loudest(power, str(path))
        samples, rate, _ = _decode(path, sample_rate, loudest)
    return samples, rate


def _decode(
    path: Path, sample_rate: int | None, channel: int | None = None
) -> tuple[np.ndarray, int, np.ndarray]:
    """Decode the mean of the C channels, or the one with the index `channel`.

    Returns float32 (N,), its rate, and the power (1 + C,): of the mean, then of every channel. The
    power is 0 where no mean was made.
    """
    with _open_whole(path) as file:
        power = np.zeros(file.channels + 1)
        blocks = _read_blocks(file, path)
        mono: Iterator[np.ndarray]
        if channel is not None or file.channels == 1:
            mono = (block[:, channel or 0] for block in blocks)
        else:
            mono = _average_channels(blocks, power)
        rate = sample_rate or int(file.samplerate)
        samples = collect(_resample_blocks(mono, file.samplerate, rate))
    return samples, rate, power


def _average_channels(blocks: Iterable[np.ndarray], power: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the mean (n,) of the channels of blocks (n, C), and add the power of the mean and of
    every channel to `power`, (1 + C,)."""
    for block in blocks:
        mean = block.mean(axis=1)
        power += [np.vdot(x, x) for x in (mean, *block.T)]  # the sum of squares
        yield mean


def _channels_cancel(power: np.ndarray) -> bool:
    """Return whether channels cancel in their mean. power: (1 + C,) of the mean, then of every
    channel.

    Where only one of C channels is not silent, the mean has 1 / C² of its power and nothing
    cancels; so the threshold stays below that, at half of it.
    """
    channels = len(power) - 1
    threshold = min(CANCEL_RATIO, 0.5 / channels**2)
    return bool(power[0] < threshold * power[1:].max())


def _choose_loudest(power: np.ndarray, name: str) -> int:
    """Return the index of the loudest of channels that cancel, and say on stderr that it alone is
    read. power: as in `_channels_cancel`; name: of the recording, for the message."""
    loudest = int(power[1:].argmax())
    _note_once(
        f"{name}: its channels cancel (one is another, inverted); channel {loudest + 1} alone is "
        "read"
    )
    return loudest


def convert_samples(samples: np.ndarray, sample_rate: int, name: str) -> np.ndarray:
    """Convert the samples that a caller passed, as if they were read from a file. Return float32
    (N,) at 16 kHz, full scale 1; always a copy.

    samples: (N,), (N, C) or (C, N) of up to 8 channels; floats, or integers whose type gives the
    scale. name: of the recording, for messages.
    Raises InputError as `read_audio` does, and for an array of another shape or type.
    """
    samples = np.asarray(samples)
    is_recording = samples.ndim == 1 or (samples.ndim == 2 and 0 < min(samples.shape) <= 8)
    if not is_recording or samples.dtype.kind not in "iuf":
        raise InputError(
            f"{name} is {samples.dtype} of the shape {samples.shape}; give (N,) or (N, channels), "
            "floats of full scale 1 or integers"
        )
    if samples.dtype.kind in "iu" and samples.size:
        samples = _scale_integers(samples)
    if samples.ndim == 2:
        channels = samples if samples.shape[0] > samples.shape[1] else samples.T
        samples = _join_channels(channels, name)
    check_audio(samples, sample_rate, name)
    samples = correct_scale(samples.astype(np.float32), name)
    return resample(samples, sample_rate, SAMPLE_RATE)


def _join_channels(channels: np.ndarray, name: str) -> np.ndarray:
    """Return the mean (N,) of channels (N, C), or the loudest where they cancel in it."""
    mean = channels.mean(axis=1)
    power = np.array([np.square(x, dtype=np.float64).sum() for x in (mean, *channels.T)])
    return channels[:, _choose_loudest(power, name)] if _channels_cancel(power) else mean


def _scale_integers(samples: np.ndarray) -> np.ndarray:
    """Scale integers to full scale 1 by the range of their type. Signed integers of more than 16
    bits may hold samples of 16, 24 or 32 bits: the smallest of these that holds their peak counts.
    """
    kind = np.iinfo(samples.dtype)
    middle = (int(kind.max) + int(kind.min) + 1) / 2  # silence: 128 of uint8, 0 of signed integers
    scale = (int(kind.max) - int(kind.min) + 1) / 2
    peak = max(abs(int(samples.min())), abs(int(samples.max())))
    if samples.dtype.kind == "i" and samples.dtype.itemsize > 2 and peak <= 1 << 31:
        scale = next(1 << bits for bits in (15, 23, 31) if peak <= 1 << bits)
    return (samples.astype(np.float64) - middle) / scale


def correct_scale(samples: np.ndarray, name: str) -> np.ndarray:
    """Scale floats (N,) whose peak is beyond HOT_PEAK to full scale 1, and say so on stderr.
    name: of the recording, for the message."""
    peak = _find_peak(samples)
    if peak <= HOT_PEAK:
        return samples
    if not peak <= LOUD_PEAK:  # louder, or NaN: `check_audio` refuses these
        return samples
    scale = 32768 if peak >= INT16_PEAK else peak
    _note_once(
        f"{name}: its samples reach {peak:,.0f} times full scale; they are divided by {scale:,.6g}"
    )
    return collect(block / np.float32(scale) for block in iterate_blocks(samples))


def _find_peak(samples: np.ndarray) -> float:
    """Return the largest magnitude of samples (N,); NaN where one of them is NaN."""
    peaks = [np.abs(block).max() for block in iterate_blocks(samples)]
    return float(np.max(peaks, initial=0))


@cache  # so that the same line is not written again
def _note_once(line: str) -> None:
    """Write a line on stderr, once a process, which says that a file is read otherwise than its
    header or its writer says."""
    tqdm.write(line, file=sys.stderr)


def read_channels(path: Path | str, start: int = 0, frames: int = -1) -> tuple[np.ndarray, int]:
    """Read a file with its own channels and rate, for code of other libraries. Returns float32
    (C, N) and the rate in Hz. start: the first frame; frames: their number, -1 for all.

    Raises InputError for a file that is missing, empty, not audio, or visibly cut off; its samples
    are not checked.
    """
    path = Path(path)
    with _open_whole(path) as file:
        rate = int(file.samplerate)
        if frames < 0:  # the header may not state how many there are
            return np.concatenate(list(_read_blocks(file, path)))[start:].T, rate
        file.seek(start)
        return file.read(frames, dtype="float32", always_2d=True).T, rate


def resample(samples: np.ndarray, source_rate: int, target_rate: int) -> np.ndarray:
    """Resample with a band limit (soxr, high quality). samples: (N,); rates in Hz.

    Returns float32 (ceil(N * target_rate / source_rate),), exactly.
    """
    return collect(_resample_blocks([np.asarray(samples, np.float32)], source_rate, target_rate))


def read_duration(path: Path | str) -> float:
    """Return the seconds that the header of a file states. Nothing is decoded, unless the header
    states no length.

    The length of an MP3 without a count of its frames, such as an MP3 of NMSQA, is estimated from
    the bit rate of its first frame; `measure_duration` decodes it.
    Raises InputError as `read_audio` does for a file that is missing, empty, not audio, or visibly
    cut off.
    """
    return _count_seconds(Path(path), trust_mp3=True)


def measure_duration(path: Path | str) -> float:
    """Return the seconds of a recording as `read_duration` does, except that an MP3, which may
    count its frames wrongly, is decoded."""
    return _count_seconds(Path(path), trust_mp3=False)


def _count_seconds(path: Path, trust_mp3: bool) -> float:
    """Return the seconds of a recording. trust_mp3: believe the header of an MP3."""
    with _open_whole(path) as file:
        frames = file.frames
        if frames >= UNKNOWN_FRAMES or (file.format == "MP3" and not trust_mp3):
            frames = sum(map(len, _read_blocks(file, path)))
        return float(frames / file.samplerate)


def write_flac(path: Path | str, samples: np.ndarray) -> None:
    """Write 16-bit FLAC at 16 kHz, whole or not at all. samples: (N,) int16, or float, which is
    clipped to [-1, 1].

    The same samples give the same bytes. Raises ValueError for samples that are not finite or not a
    vector.
    """
    _write(path, to_int16(samples), SAMPLE_RATE, "FLAC")


def write_clip(
    path: Path | str, samples: np.ndarray, start: float, end: float, sample_rate: int = SAMPLE_RATE
) -> None:
    """Write [start, end) seconds of samples (N,) in the format of the suffix: .wav, .flac, .ogg or
    .mp3. Raises InputError for another suffix."""
    path = Path(path)
    container = choose_container(path)
    clip = to_int16(samples[max(round(start * sample_rate), 0) : round(end * sample_rate)])
    _write(path, clip, sample_rate, container)


def recode(samples: np.ndarray, container: str, subtype: str, compression: float) -> np.ndarray:
    """Encode samples (N,), and decode them again, in memory. Returns float32 (M,), M = N + the
    samples that the codec adds.

    container, subtype, compression: of libsndfile, such as "OGG", "OPUS", 0.9 (1 is the fewest
    bits); MP3 at a constant bit rate.
    """
    buffer = io.BytesIO()
    mode = "CONSTANT" if container == "MP3" else None
    with soundfile.SoundFile(
        buffer,
        "w",
        samplerate=SAMPLE_RATE,
        channels=1,
        subtype=subtype,
        format=container,
        compression_level=compression,
        bitrate_mode=mode,
    ) as file:
        _write_blocks(file, samples)
    buffer.seek(0)
    return np.asarray(soundfile.read(buffer, dtype="float32")[0])


def choose_container(path: Path) -> str:
    """Return the container that the suffix of a file names. Raises InputError where `write_clip`
    cannot write it."""
    container = path.suffix[1:].upper()
    if container not in ("WAV", "FLAC", "OGG", "MP3"):
        raise InputError(
            f"cannot write a clip as {path}; end its name in .wav, .flac, .ogg or .mp3"
        )
    return container


def to_int16(samples: np.ndarray) -> np.ndarray:
    """Convert samples (N,) to int16: int16 is returned as it is; floats are scaled from [-1, 1],
    rounded and clipped. Raises ValueError for other types and shapes, and for NaN or infinity."""
    samples = np.asarray(samples)
    has_type = samples.dtype == np.int16 or samples.dtype.kind == "f"
    if samples.ndim != 1 or not has_type or not np.isfinite(samples).all():
        raise ValueError(f"samples are {samples.dtype} {samples.shape}, not finite (N,)")
    if samples.dtype == np.int16:
        return samples
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)


def _write(path: Path | str, samples: np.ndarray, sample_rate: int, container: str) -> None:
    """Write samples as a file of one channel, whole or not at all."""
    with (
        replace_file(path) as temporary,
        soundfile.SoundFile(
            temporary, "w", samplerate=sample_rate, channels=1, format=container
        ) as file,
    ):
        _write_blocks(file, samples)


def _write_blocks(file: soundfile.SoundFile, samples: np.ndarray) -> None:
    """Write samples in blocks: libsndfile overruns its stack when it is given minutes of Vorbis at
    once."""
    for first in range(0, len(samples), BLOCK_FRAMES):
        file.write(samples[first : first + BLOCK_FRAMES])


class _ForwardFile(soundfile.SoundFile):
    """This file is read from front to back and states that it cannot seek: otherwise soundfile
    seeks after every read, and libmpg123 then complains of frames on stderr."""

    def seekable(self) -> bool:
        return False


@contextmanager
def _open_whole(path: Path) -> Iterator[soundfile.SoundFile]:
    """Open a file for reading. Raises InputError where there is no whole audio file."""
    if not path.is_file():  # a pipe would never end
        raise InputError(f"{path} does not exist or is no single file; give one recording")
    _refuse_joined(path)
    with ExitStack() as stack:
        try:
            # as bytes, because not every file name is text
            file = stack.enter_context(_ForwardFile(os.fsencode(path)))
        except (soundfile.SoundFileError, TypeError):  # TypeError: a suffix of headerless files
            yield stack.enter_context(_open_with_ffmpeg(path))
            return
        if file.format in ("WAV", "WAVEX") and file.subtype == "MPEG_LAYER_III":
            yield stack.enter_context(_open_with_ffmpeg(path))
            return
        is_cut, goes_on = _compare_with_header(file, path)
        if is_cut:
            raise InputError(CUT_OFF.format(path))
        if not goes_on:
            yield file
            return
        whole = stack.enter_context(_open_with_ffmpeg(path))
        if file.format in PLAIN and file.frames:
            stated, held = (f.frames / f.samplerate for f in (file, whole))
            if held <= stated:
                raise InputError(
                    f"{path}: its header states {stated:.2f} s of sound, and there is more behind "
                    "it; export it again as a WAV"
                )
            _note_once(
                f"{path}: its header states {stated:.2f} s of sound and it holds {held:.2f} s; all "
                "of it is read"
            )
        yield whole


def _compare_with_header(file: soundfile.SoundFile, path: Path) -> tuple[bool, bool]:
    """Return two facts: whether a file visibly ends before its header says, and whether it goes on
    after the last sample that libsndfile reads."""
    if file.format == "MP3":
        seconds, is_cut = _scan_packets(path, "mp3")
        # it goes on if MP3s were joined, if its frames are counted wrongly, or if it has a variable
        # bit rate and no count
        return is_cut, seconds * file.samplerate > file.frames + MP3_PADDING
    if file.format == "OGG":
        # libsndfile finds a page of another stream at the end, unless it has the same number
        is_odd = re.search("lacks an end-of-stream|Junk after the last page", file.extra_info)
        if not is_odd and not _is_chained(path):
            return False, False
        goes_on = _ends_a_stream(path)
        return not goes_on, goes_on
    if file.format == "FLAC":  # decoding says whether it is cut
        if file.frames >= UNKNOWN_FRAMES:
            return False, False
        seconds, _ = _scan_packets(path, "flac")
        return False, seconds * file.samplerate > file.frames + 1
    return _is_shorter(file), file.format in PLAIN and _goes_on(file, path)


def _scan_packets(path: Path, container_format: str) -> tuple[float, bool]:
    """Return the seconds of all frames of an MP3 or FLAC, and whether the last MPEG frame is cut
    off: shorter than another frame with the same header (bit rate, sampling rate, padding).

    Nothing is decoded. A file that FFmpeg cannot scan gives 0 seconds and False.
    """
    import av

    ticks = 0  # the sum of the frames' durations, in the time base of the stream
    last = 0  # bytes of the last frame
    header = b""
    sizes: dict[bytes, int] = {}  # header of a frame -> bytes of its longest frame
    try:
        name = os.fsencode(path).decode(errors="surrogateescape")
        with av.open(name, format=container_format) as container:
            stream = container.streams.audio[0]
            for packet in container.demux(stream):
                if packet.size:
                    ticks += packet.duration or 0
                    last = packet.size
                    header = bytes(packet)[:3]
                    sizes[header] = max(last, sizes.get(header, 0))
            return float(ticks * (stream.time_base or 0)), last < sizes.get(header, 0)
    except (OSError, ValueError, IndexError):
        return 0.0, False


def _is_shorter(file: soundfile.SoundFile) -> bool:
    """Return whether a file is shorter than its header states; libsndfile says so only in its log,
    such as "data : 32000 (should be 16000)"."""
    pattern = r"^(?:data| SSND|  Data Size  |riff|  Riff size) : (\d+) \(should be (\d+)\)"
    sizes = re.search(pattern, file.extra_info, re.MULTILINE)
    if sizes is None:
        return False
    stated, present = int(sizes[1]), int(sizes[2])
    return present < stated < UNKNOWN_BYTES


def _goes_on(file: soundfile.SoundFile, path: Path) -> bool:
    """Return whether a file goes on where its header ends the sound: libsndfile's log then has the
    position of a marker that is no chunk, or of an AU the offset and the size of the sound."""
    where = r"marker.* at position (0x\w+|\d+)"
    if file.format == "AU":  # a size of -1 is unknown
        where = r"(?s)Data Offset +: (\d+).*Data Size +: (\d+)"
    if not file.frames and "Exiting parser" in file.extra_info:
        return True  # a size of 0, and samples that look like the name of a chunk
    match = re.search(where, file.extra_info)
    end = size = path.stat().st_size
    if match:  # position, or offset and size
        end = sum(int(number, 0) for number in match.groups())
    if end >= size:
        return False
    rest = np.memmap(path, np.uint8, "r", offset=end)
    is_tag = bytes(rest[:3]) in (b"ID3", b"TAG", b"APE")
    is_long = len(rest) > MIN_SECONDS * file.samplerate * file.channels
    return is_long and not is_tag and bool(rest.any())


def _refuse_joined(path: Path) -> None:
    """Raise InputError where another file of its kind was joined to a FLAC, WAV or AIFF, because no
    library reads all of those."""
    with path.open("rb", buffering=0) as content:
        head = content.read(12)
        kind = {b"RIFF": "WAV", b"FORM": "AIFF"}.get(head[:4])
        if kind:
            size = int.from_bytes(head[4:8], "little" if kind == "WAV" else "big")
            content.seek(8 + size + size % 2)
            behind = content.read(12)
            if behind[:4] + behind[8:] == head[:4] + head[8:]:
                raise InputError(JOINED.format(path, kind))
        if head[:4] in (b"fLaC", b"ID3\4", b"ID3\3"):
            with mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                first = whole.find(b"fLaC") + 4  # a tag may stand before it
                if first > 3 and re.compile(rb"fLaC[\x00\x80]\x00\x00\x22").search(whole, first):
                    raise InputError(JOINED.format(path, "FLAC"))


def _is_chained(path: Path) -> bool:
    """Return whether a new stream begins in an Ogg file after pages of another (RFC 3533, section
    4)."""
    with (
        path.open("rb") as content,
        mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as whole,
    ):
        later = re.search(rb"OggS\0[\0\1\4\5]", whole)
        return bool(later and re.compile(rb"OggS\0[\2\6]").search(whole, later.end()))


def _ends_a_stream(path: Path) -> bool:
    """Return whether the last page of an Ogg file is whole and ends a stream.

    RFC 3533, section 6: byte 5 of a page has the flags, of which 4 means end of stream; byte 26 the
    number of segments; their lengths follow from byte 27 on, then the segments.
    """
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - (1 << 17), 0))  # a page has at most 64 KiB
        content = file.read()
    page = content[content.rfind(b"OggS") :]
    if len(page) < 27 or not page[5] & 4:
        return False
    segments = page[26]
    lengths = page[27 : 27 + segments]
    return 27 + segments + sum(lengths) <= len(page)  # a tag may follow


@contextmanager
def _open_with_ffmpeg(path: Path) -> Iterator[soundfile.SoundFile]:
    """Decode the first audio stream by FFmpeg's libraries into a nameless file of samples. Raises
    InputError for a file without an audio stream that can be decoded, and for one that is cut off.
    """
    import av

    with tempfile.TemporaryFile() as decoded:
        try:
            with av.open(str(path), options={"ignore_length": "1"}) as container:
                stream = container.streams.audio[0]
                rate, channels = stream.rate, stream.channels
                frames = 0
                for block in _decode_stream(container, stream):
                    decoded.write(block.to_ndarray().tobytes())
                    frames += block.samples
                is_cut = container.format.name == "ogg" and not _ends_a_stream(path)
                seconds = _read_stated_seconds(container, stream)
                min_frames = max((seconds - CONTAINER_SLACK) * rate, 1)
        except (av.error.FFmpegError, OSError, ValueError, IndexError, TypeError) as error:
            raise InputError(
                f"cannot read {path} as audio; give a whole WAV, FLAC, MP3, OGG, AIFF, AU, M4A "
                "or WebM file"
            ) from error
        if frames < min_frames or is_cut:
            raise InputError(CUT_OFF.format(path))
        decoded.flush()
        decoded.seek(0)
        with _ForwardFile(
            decoded,
            samplerate=rate,
            channels=channels,
            subtype="FLOAT",
            format="RAW",
            endian="LITTLE",
        ) as file:
            yield file


def _read_stated_seconds(container: Any, stream: Any) -> float:
    """Return the seconds that an MP4 or a Matroska file states for its sound, 0 for none: those of
    the file may be those of its pictures."""
    import av

    if not {"mp4", "matroska"} & set(container.format.name.split(",")):
        return 0.0
    if stream.duration:
        return float(stream.duration * stream.time_base)
    return (container.duration or 0) / av.time_base if len(container.streams) == 1 else 0.0


def _decode_stream(container: Any, stream: Any) -> Iterator[Any]:
    """Yield the frames of a stream as interleaved floats, at the rate that it begins with."""
    import av

    form = ("flt", stream.layout.name, stream.rate)
    interleave = av.AudioResampler(*form)
    begun = None  # format, layout and rate of the frames, which may be others in a joined file
    for packet in container.demux(stream):
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:
            if container.format.name != "mp3":  # tags of the next file may lie between its frames
                raise
            continue
        for frame in frames:
            kind = (frame.format.name, frame.layout.name, frame.sample_rate)
            if begun not in (None, kind):
                yield from interleave.resample(None)
                interleave = av.AudioResampler(*form)
            begun = kind
            yield from interleave.resample(frame)
    yield from interleave.resample(None)


def _has_xing(path: Path) -> bool:
    """Return whether the first MPEG frame is a Xing or Info header that counts the frames;
    libsndfile extrapolates their number where there is none, or it is 0."""
    with path.open("rb") as file:
        head = file.read(10)
        size = 0
        # an ID3 tag: ten bytes, of which the last four have its size, seven bits each, and the rest
        if head[:3] == b"ID3":
            for byte in head[6:]:
                size = size << 7 | byte & 127
            size += 10
        file.seek(size)
        frame = file.read(64)
    # the flag of a count, and a count
    return bool(re.search(rb"(?:Xing|Info)\0\0\0[\1\3\5\7\x09\x0b\x0d\x0f](?!\0{4})", frame))


def _read_blocks(file: soundfile.SoundFile, path: Path) -> Iterator[np.ndarray]:
    """Yield blocks (n, C) of float32. Raises InputError for a file that is cut off or damaged.

    Reading stops at the first short block: behind a damaged place soundfile would go on reading,
    and join what lies on either side of it.
    """
    # the frames that a whole file has at least; 0 where the length in the header is a guess
    min_frames = file.frames if file.frames < UNKNOWN_FRAMES else 0
    if file.format == "MP3":
        min_frames = min_frames - MP3_SLACK if _has_xing(path) else 0
    frames = 0
    damage: str | None = None
    block = np.empty((BLOCK_FRAMES, 1))
    try:
        while len(block) == BLOCK_FRAMES:
            block = file.read(BLOCK_FRAMES, dtype="float32", always_2d=True)
            frames += len(block)
            yield block
    except soundfile.SoundFileError as error:
        damage = str(error)
    if damage is not None or frames < min_frames:
        raise InputError(
            f"{path} is cut off or damaged after frame {frames} of {file.frames} "
            f"({damage or 'ends early'}); copy or download it again"
        )


def _resample_blocks(
    blocks: Iterable[np.ndarray], source_rate: int, target_rate: int
) -> Iterator[np.ndarray]:
    """Yield blocks at the target rate, of ceil(N * target / source) samples in all."""
    if source_rate == target_rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32", quality="HQ")
    samples_in = 0
    samples_out = 0
    for block in blocks:
        samples_in += len(block)
        out = stream.resample_chunk(block)
        samples_out += len(out)
        yield out
    tail = stream.resample_chunk(np.zeros(0, np.float32), last=True)
    total = -(-samples_in * target_rate // source_rate)  # the quotient, rounded up
    missing = max(total - samples_out, 0)
    yield np.pad(tail, (0, max(missing - len(tail), 0)))[:missing]


def collect(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Join float32 blocks in one array.

    The array lies in memory, where it grows in place (an hour is held once, not twice). An array of
    more than `LONG` samples lies in a nameless temporary file and cannot be written to.
    """
    samples = np.empty(0, np.float32)
    count = 0
    with ExitStack() as stack:
        file: Any = None
        for block in blocks:
            if file is None and count + len(block) > LONG:
                file = stack.enter_context(tempfile.TemporaryFile())
                samples.tofile(file)
            if file is not None:
                block.astype(np.float32).tofile(file)
            else:
                samples.resize(count + len(block), refcheck=False)
                samples[count:] = block
            count += len(block)
        if file is None:
            return samples
        file.flush()
        mapped = np.memmap(file, np.float32, "c")  # c: copy on write
    mapped.flags.writeable = False
    return mapped


def iterate_blocks(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Yield samples (N,) in blocks. Of an array that `collect` left in a file, no more than one
    block is in memory."""
    mapped = getattr(samples, "_mmap", None)
    for first in range(0, len(samples), BLOCK_FRAMES):
        yield samples[first : first + BLOCK_FRAMES]
        # only maps of `collect`, which are read-only: changes to another map would be lost
        if mapped is not None and not samples.flags.writeable:
            mapped.madvise(mmap.MADV_DONTNEED)


def check_audio(samples: np.ndarray, sample_rate: int, name: str) -> None:
    """Raise InputError for samples (N,) that are silent, not finite, absurdly loud, or shorter than
    MIN_SECONDS. name: of the recording, for the message."""
    if len(samples) < MIN_SECONDS * sample_rate:
        seconds = len(samples) / sample_rate
        raise InputError(
            f"{name} is {seconds:.3f} s long; give a recording of at least {MIN_SECONDS} s"
        )
    peak = _find_peak(samples)
    if not peak <= LOUD_PEAK:  # also true of NaN
        raise InputError(
            f"{name} holds samples that are not finite or above {LOUD_PEAK:g} times full scale; "
            "export it again as 16-bit audio"
        )
    if peak < SILENT_PEAK:
        raise InputError(
            f"{name} is silent (no sample above {SILENT_PEAK} of full scale); check the recording"
        )


def format_length(seconds: float) -> str:
    """Write a length of audio for people: "12.3 s" below two minutes, "3.4 min" below an hour,
    "2.50 h"."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.2f} h"
