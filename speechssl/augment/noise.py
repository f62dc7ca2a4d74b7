"""Draw noise: it is generated, or taken from recordings, of which those of voices make babble.
Every draw depends on the seed and a key alone. In shapes, n is a number of samples."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.random import Generator

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment.sounds import GENERATED, VERSION, generate_clip, generate_spectrum
from speechssl.data.files import list_audio_files
from speechssl.data.recordings import MANIFESTS, read_manifest
from speechssl.errors import InputError
from speechssl.signal import draw_offset, fit_at, make_generator, measure_active_level

# smallest and largest number of voices in babble: Snyder et al., "X-vectors" (ICASSP 2018), data
# augmentation
TALKERS_RANGE = (3, 7)
TALKERS = 5  # voices in every babble of an evaluation: the middle of the range
# Fraction of utterances that get MUSAN (m), Gaussian noise (g) and a room (r) in the training of
# arXiv 2210.07978.
SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}
MUSAN = ("noise", "music", "speech")  # the folders of MUSAN
# Letter -> generated noise. That of m, the stand-in, is used where no folder of MUSAN is given.
ALIASES = {"g": "gaussian", "m": "stand-in"}


def find_musan(folder: Path) -> list[Path]:
    """Return the folders of MUSAN. Raises InputError where one of them is missing."""
    parts = [folder / part for part in MUSAN]
    lacking = [part.name for part in parts if not part.is_dir()]
    if lacking:
        raise InputError(
            f"{folder} is not MUSAN: it lacks {', '.join(lacking)}; correct the path, or give "
            "other noise another name, as in bus=FOLDER, and write bus where musan or m stands"
        )
    return parts


def find_recordings(path: Path, what: str) -> list[Path]:
    """List the recordings at a path: a file, all WAV, FLAC, MP3 and OGG files below a folder in the
    order of their names, or those of a manifest (see `list_recordings`). what: the purpose of the
    recordings, for messages. Raises InputError where there are none."""
    files = []
    if path.is_dir():
        files = list_audio_files(path)
    elif path.is_file() and path.suffix.lower() in MANIFESTS:
        files = [recording.path for recording in read_manifest(path)]
    elif path.is_file():
        files = [path]
    if not files:
        raise InputError(
            f"there are no recordings in {path} for {what}; give an audio file, a folder of them, "
            f"a list or NAME=FOLDER; generated noise is gaussian, pink, coloured:SLOPE, babble, "
            f"{', '.join(GENERATED)} and m+g+r"
        )
    return files


@dataclass(frozen=True)
class Piece:
    """A piece of a recording is used as noise. It begins at the sample `offset`, and goes on as
    `signal.fit_at` says."""

    file: Path
    offset: int


@dataclass(frozen=True)
class DrawnNoise:
    """Drawn noise has its samples (n,), or an impulse response (M,), and the pieces that they were
    made of: several voices, one recording, or none where the noise is generated."""

    noise: np.ndarray
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class NoiseBank:
    """A bank draws noise of one kind:

    gaussian, pink, coloured:SLOPE, stand-in, dev, held-out: generated noise (see `sounds`)
    recording: one of the files
    babble: several of the files, which are voices
    musan: one of the files, or babble of the voices
    """

    kind: str
    files: tuple[Path, ...] = ()
    seed: int = 0
    voices: tuple[Path, ...] = ()  # the speech of MUSAN, of which its babble is made

    @classmethod
    def open(
        cls,
        kind: str,
        voices: Sequence[Path] = (),
        seed: int = 0,
        folders: Mapping[str, Path] | None = None,
    ) -> NoiseBank:
        """Open the bank for a `Condition.kind`. voices: recordings for babble; folders: recordings
        by name, such as musan or fsd50k.

        Raises InputError where there is no such noise, or babble without voices.
        """
        folders = dict(folders or {})
        name = kind
        match = re.fullmatch(r"([\w-]+)=(.+)", kind)  # "fsd50k=PATH"
        if match:
            name = match[1]
            folders[name] = Path(match[2])
        if name == "babble":
            if not voices:
                raise InputError(
                    "babble noise needs voices; give recordings of other people with --babble"
                )
            return cls("babble", tuple(voices), seed)
        if name == "musan" or (name == "m" and "musan" in folders):
            noise, music, speech = (
                find_recordings(part, f"the {part.name} of MUSAN")
                for part in find_musan(folders.get("musan", Path(kind)))
            )
            return cls("musan", (*noise, *music), seed, tuple(speech))
        generated = ALIASES.get(name, name)
        if generated in ("gaussian", "pink", *GENERATED) or generated.startswith("coloured:"):
            return cls(generated, (), seed)
        files = find_recordings(folders.get(name, Path(kind)), f"the noise {kind}")
        return cls("recording", tuple(files), seed)

    def draw(self, key: str, n: int) -> DrawnNoise:
        """Draw noise (n,) at 16 kHz that is not silent. Raises InputError for a file that cannot be
        read."""
        # the word makes noise that differs from that of a training with the same seed
        kind = f"evaluation {self.kind}" if self.kind in GENERATED else self.kind
        rng = make_generator(self.seed, kind, key)
        while True:  # until a draw is not silent: neither a file nor generated noise is, as a whole
            pieces = []
            for file in self._choose_files(rng):
                pieces.append(Piece(file, draw_offset(len(read_cached(file)), n, rng)))
            noise = replay(pieces, n) if pieces else _generate_noise(self.kind, rng, n)
            if n == 0 or np.any(noise):
                return DrawnNoise(noise, tuple(pieces))

    def _choose_files(self, rng: Generator) -> list[Path]:
        """Choose one recording, or the voices of babble; none for generated noise."""
        if self.kind == "babble":
            return _choose_voices(self.files, TALKERS, rng)
        # of MUSAN a third of the draws is babble of its speech; the others are its noise and music
        if self.kind == "musan" and rng.random() >= 2 / 3:
            talkers = int(rng.integers(*TALKERS_RANGE, endpoint=True))
            return _choose_voices(self.voices, talkers, rng)
        return [self.files[rng.integers(len(self.files))]] if self.files else []

    @property
    def sources(self) -> list[tuple[str, int]]:
        """Return (name, size in bytes) of the recordings, or (name, version) of the generator."""
        if self.kind in GENERATED:
            return [(f"generated: {self.kind}", VERSION)]
        return [(path.name, path.stat().st_size) for path in (*self.files, *self.voices)]


def _choose_voices(files: Sequence[Path], talkers: int, rng: Generator) -> list[Path]:
    """Choose `talkers` voices. Where there are fewer files, no file comes twice before each
    came once."""
    chosen = rng.choice(len(files), min(talkers, len(files)), replace=False)
    rounds = [rng.permutation(len(chosen)) for _ in range(math.ceil(talkers / len(chosen)))]
    return [files[int(chosen[i])] for i in np.concatenate(rounds)[:talkers]]


def _generate_noise(kind: str, rng: Generator, n: int) -> np.ndarray:
    """Generate noise (n,) of a kind that needs no recordings."""
    if kind == "gaussian":
        return rng.standard_normal(n)
    if kind == "pink":
        return generate_spectrum(n, rng, lambda frequency: 1 / np.sqrt(frequency))
    if kind in GENERATED:  # generate at least a second, in which every sound has room
        return generate_clip(GENERATED[kind], rng, max(n, SAMPLE_RATE))[:n] / 32768
    # a slope of 6 dB an octave doubles the amplitude with the frequency: its exponent is 1
    exponent = float(kind.removeprefix("coloured:")) / (20 * np.log10(2))
    return generate_spectrum(n, rng, lambda frequency: (frequency / 1000) ** exponent)


def replay(pieces: Sequence[Piece], n: int) -> np.ndarray:
    """Make noise (n,) from its pieces, of which there is at least one. Several pieces are voices:
    they are brought to the same active level and added."""
    crops = [fit_at(read_cached(piece.file), n, piece.offset) for piece in pieces]
    if len(crops) == 1:
        return crops[0]
    total = np.zeros(n)
    for crop in crops:
        level = measure_active_level(crop)
        if np.isfinite(level):  # a crop that fell into a pause adds nothing
            total += crop * 10 ** (-level / 20)
    return total


@lru_cache(maxsize=32)
def read_cached(path: Path) -> np.ndarray:
    """Read the samples (M,) of a noise or a voice at 16 kHz, and keep them, read-only, for the next
    utterances. Raises InputError as `read_audio` does."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples
