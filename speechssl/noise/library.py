"""Noise at hand: clips decoded or generated once, as int16 in one array, in memory or in a file that all processes map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artefacts import hash_json, locked, read_json, replacing, write_json
from speechssl.audio import SAMPLE_RATE, duration, read_audio, to_int16
from speechssl.errors import InputError, tell_set_aside
from speechssl.noise.level import generator
from speechssl.noise.mixing import fit_length
from speechssl.noise.sounds.scenes import CLIPS, SECONDS, VERSION, stand_in

HOURS = 4.0  # of recordings that are kept (460 MB): of a larger set a stretch of each file
LEAST = 10.0  # seconds that are kept of a file however many there are
QUIET = 1e-3  # of the loudest: a crop below (-60 dB) is a pause, and would be blown up


@dataclass(frozen=True)
class Library:
    """Clips of noise at 16 kHz, end to end. samples: (S,) int16; edges: (clips + 1,) where each begins; card: what they are."""

    samples: np.ndarray = field(repr=False, compare=False)
    edges: np.ndarray = field(repr=False, compare=False)
    card: Mapping[str, Any]
    file: Path | None = None  # that the samples are mapped from

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process maps the file itself, where there is one; else the samples go to it."""
        return (
            (Library, (self.samples, self.edges, self.card)) if self.file is None else (_mapped, (self.file, self.edges, self.card))
        )

    def __len__(self) -> int:
        return len(self.edges) - 1

    def clip(self, number: int) -> np.ndarray:
        """(M,) int16, a view."""
        return self.samples[self.edges[number] : self.edges[number + 1]]

    def crop(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """(n,) float32 from a random place of a random clip, repeated where short; of eight draws the first that is not silent."""
        crop = np.zeros(n, np.float32)
        for _ in range(8):
            clip = self.clip(int(rng.integers(len(self))))
            crop = np.asarray(fit_length(clip, n, rng), np.float32) / np.float32(32768)
            if float(np.dot(crop, crop)) > (QUIET**2) * n * 0.01:
                break
        return crop


def generated(seed: int, cache: Path | None = None, count: int = CLIPS, seconds: float = SECONDS) -> Library:
    """The generated stand-in for MUSAN. cache: a folder in which it is kept for the next process; else it is made in memory."""
    card = {"set": "stand-in", "generator": VERSION, "seed": seed, "clips": count, "seconds": seconds}
    return _kept(card, lambda: stand_in(seed, count, seconds), cache)


def recorded(files: Sequence[Path], name: str, seed: int = 0, cache: Path | None = None) -> Library:
    """Recordings, at most HOURS in all: of a larger set each file gives a stretch at a random place.

    Files that cannot be used are listed on stderr and set aside. Raises InputError where none is left.
    """
    if not files:
        raise InputError(f"there are no recordings of {name} noise; give a folder with .wav, .flac, .mp3 or .ogg files")
    longest = max(HOURS * 3600 / len(files), LEAST)
    card = {"set": name, "seed": seed, "recordings": len(files), "files": _known(files), "seconds_each_at_most": round(longest, 3)}
    return _kept(card, lambda: _stretches(files, name, longest, seed), cache)


def _known(files: Sequence[Path]) -> str:
    """A hash of the names, sizes and times of files: their contents may be 100 hours. What is missing is told when it is read."""
    stats = [path.stat() if path.exists() else None for path in files]
    return hash_json([[path.name, s and s.st_size, s and s.st_mtime_ns] for path, s in zip(files, stats, strict=True)])


def _stretches(files: Sequence[Path], name: str, longest: float, seed: int) -> list[np.ndarray]:
    stretches, failed = [], {}
    for path in files:
        try:
            stretches.append(_stretch(path, longest, seed))
        except InputError as error:  # a large set has a silent or damaged one
            failed[path.name] = str(error)
    if not stretches:
        raise InputError(f"no recording of {name} noise can be used ({next(iter(failed.values()))}); give others")
    tell_set_aside(failed, f"{name} noise")
    return stretches


def _stretch(path: Path, longest: float, seed: int) -> np.ndarray:
    duration(path)  # names what is wrong before a long file is decoded
    samples = to_int16(np.clip(read_audio(path), -1, 1))
    keep = round(longest * SAMPLE_RATE)
    start = int(generator(seed, "stretch", path.name).integers(max(len(samples) - keep, 0) + 1))
    return samples[start : start + keep]


def _kept(card: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], cache: Path | None) -> Library:
    """From the cache where it is there and its card is the same, else made, and kept if there is a cache."""
    if cache is None:
        return _joined(make(), card)
    folder = cache / f"{card['set']}-{hash_json(card)[:12]}"
    with locked(folder):
        if not (folder / "card.json").exists():
            _write(folder, _joined(make(), card))
        edges = np.asarray(read_json(folder / "card.json")["edges"], np.int64)
    return _mapped(folder / "noise.int16", edges, card)


def _mapped(file: Path, edges: np.ndarray, card: Mapping[str, Any]) -> Library:
    if not file.is_file() or file.stat().st_size != 2 * edges[-1]:
        raise InputError(f"{file.parent} does not hold the noise that its card names; delete the folder, it is made again")
    return Library(np.memmap(file, np.int16, "r"), edges, card, file)


def _joined(parts: Iterable[np.ndarray], card: Mapping[str, Any]) -> Library:
    pieces = list(parts)
    return Library(np.concatenate(pieces), np.cumsum([0, *map(len, pieces)]), card)


def _write(folder: Path, library: Library) -> None:
    with replacing(folder / "noise.int16") as temporary:
        library.samples.tofile(temporary)
    write_json(folder / "card.json", {**library.card, "edges": library.edges.tolist()})  # last: it says that the rest is whole
