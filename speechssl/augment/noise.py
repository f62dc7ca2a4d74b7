"""Draw noise from a generator, voices, or recordings; the seed and a key alone decide each draw."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.random import Generator

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment.sounds import GENERATED, VERSION, draw_clip, generate_spectrum
from speechssl.data.files import audio_files
from speechssl.data.recordings import MANIFESTS, read_manifest
from speechssl.errors import InputError
from speechssl.signal import active_level, fit_at, generator, random_offset

TALKERS_RANGE = (3, 7)  # of babble; Snyder et al., "X-vectors" (ICASSP 2018), data augmentation
TALKERS = 5  # the middle of them
# of MUSAN, Gaussian noise and rooms, as arXiv 2210.07978 draws them in training
SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}
MUSAN = ("noise", "music", "speech")  # its folders
ALIASES = {"g": "gaussian", "m": "stand-in"}  # m: where no folder of MUSAN is named


def find_recordings(path: Path, what: str) -> list[Path]:
    """List the recordings that a path stands for: itself, all below a folder in the order of their
    names, or those of a manifest (see `list_recordings`). Raises InputError where there are
    none."""
    files = []
    if path.is_dir():
        files = audio_files(path)
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
    """Noise begins at a place in a recording; see `signal.fit_at`."""

    file: Path
    offset: int


@dataclass(frozen=True)
class DrawnNoise:
    """Noise (n,), or an impulse response, is of pieces of recordings: several pieces are voices at
    one level, none is generated noise."""

    noise: np.ndarray
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class NoiseBank:
    """A bank draws noise of one kind.

    kind: gaussian, pink, coloured:SLOPE, stand-in, dev or held-out (generated); babble (of the
    files), recording (one of them), musan.
    """

    kind: str
    files: tuple[Path, ...] = ()
    seed: int = 0
    voices: tuple[Path, ...] = ()  # of musan: its speech, from which babble is made

    @classmethod
    def open(
        cls,
        kind: str,
        voices: Sequence[Path] = (),
        seed: int = 0,
        folders: Mapping[str, Path] | None = None,
    ) -> NoiseBank:
        """Open the bank for a `Condition.kind`. folders: recordings by name, such as musan or
        fsd50k.

        Raises InputError where there is no such noise, or babble without voices.
        """
        folders = dict(folders or {})
        name = kind
        named = re.fullmatch(r"([\w-]+)=(.+)", kind)
        if named:  # fsd50k=path
            name = named[1]
            folders[name] = Path(named[2])
        if name == "babble":
            if not voices:
                raise InputError(
                    "babble noise needs voices; give recordings of other people with --babble"
                )
            return cls("babble", tuple(voices), seed)
        if name == "musan" or (name == "m" and "musan" in folders):
            return cls.open_musan(folders.get("musan", Path(kind)), seed)
        generated = ALIASES.get(name, name)
        if generated in ("gaussian", "pink", *GENERATED) or generated.startswith("coloured:"):
            return cls(generated, (), seed)
        files = find_recordings(folders.get(name, Path(kind)), f"the noise {kind}")
        return cls("recording", tuple(files), seed)

    @classmethod
    def open_musan(cls, folder: Path, seed: int) -> NoiseBank:
        noise, music, speech = (
            find_recordings(folder / part, f"the {part} of MUSAN") for part in MUSAN
        )
        return cls("musan", (*noise, *music), seed, tuple(speech))

    def sample(self, key: str, n: int) -> np.ndarray:
        """Draw noise (n,) at 16 kHz, not silent, decided by the seed and the key alone. Raises
        InputError for a bad file."""
        return self.draw(key, n).noise

    def draw(self, key: str, n: int) -> DrawnNoise:
        """Draw noise as `sample` does, with the pieces that it is made of."""
        # no clip of training
        kind = f"evaluation {self.kind}" if self.kind in GENERATED else self.kind
        rng = generator(self.seed, kind, key)
        for _ in range(16):
            pieces = []
            for file in self._choose_files(rng):
                pieces.append(Piece(file, random_offset(len(read_recording(file)), n, rng)))
            noise = replay(pieces, n) if pieces else _generate(self.kind, rng, n)
            if np.any(noise):
                return DrawnNoise(noise, tuple(pieces))
        raise InputError(
            f"{self.files[0]} and similar recordings are mostly silent; give other noise recordings"
        )

    def _choose_files(self, rng: Generator) -> list[Path]:
        """Choose one recording, or the voices of babble: none speaks twice before each spoke
        once. Of generated noise there are none."""
        files, talkers = self.files, TALKERS if self.kind == "babble" else 0
        if self.kind == "musan" and rng.random() >= 2 / 3:  # noise, music and babble as often each
            files, talkers = self.voices, int(rng.integers(*TALKERS_RANGE, endpoint=True))
        if not files:
            return []
        if not talkers:
            return [files[int(rng.integers(len(files)))]]
        chosen = rng.choice(len(files), min(talkers, len(files)), replace=False)
        rounds = [rng.permutation(len(chosen)) for _ in range(-(-talkers // len(chosen)))]
        return [files[int(chosen[i])] for i in np.concatenate(rounds)[:talkers]]

    @property
    def sources(self) -> list[tuple[str, int]]:
        """Return name and size in bytes of the recordings, or name and version of the generator of
        the noise, where it has one."""
        if self.kind in GENERATED:
            return [(f"generated: {self.kind}", VERSION)]
        return [(path.name, path.stat().st_size) for path in (*self.files, *self.voices)]


def _generate(kind: str, rng: Generator, n: int) -> np.ndarray:
    """Generate noise (n,) of a kind that needs no recordings."""
    if kind == "gaussian":
        return rng.standard_normal(n)
    if kind == "pink":
        return generate_spectrum(n, rng, lambda frequency: 1 / np.sqrt(frequency))
    if kind in GENERATED:  # of a second at least, in which every sound has room
        return draw_clip(GENERATED[kind], rng, max(n, SAMPLE_RATE))[:n] / 32768
    # 6 dB an octave is a factor of 2 in amplitude an octave
    exponent = float(kind.removeprefix("coloured:")) / (20 * np.log10(2))
    return generate_spectrum(n, rng, lambda frequency: (frequency / 1000) ** exponent)


def replay(pieces: Sequence[Piece], n: int) -> np.ndarray:
    """Make the noise (n,) of a draw from its pieces (at least one). Several are voices, brought to
    the same active level and added."""
    crops = [fit_at(read_recording(piece.file), n, piece.offset) for piece in pieces]
    if len(crops) == 1:
        return crops[0]
    total = np.zeros(n)
    for crop in crops:
        level = active_level(crop)
        if np.isfinite(level):  # a crop that fell into a pause adds nothing
            total += crop * 10 ** (-level / 20)
    return total


@lru_cache(maxsize=32)
def read_recording(path: Path) -> np.ndarray:
    """Read a noise or voice file (M,) at 16 kHz, read-only, kept for the next utterance. Errors as
    of `read_audio`."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples
