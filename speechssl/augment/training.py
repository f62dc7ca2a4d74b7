"""Distort crops on the fly for training: (seed, key) alone decide the distortion of each, on any
number of workers.

Written "m+g+r", with shares "m:0.3+g:0.4+r:0.3": m, noise of MUSAN or its generated stand-in; g,
Gaussian; r, reverberation; p, pitch shift; v, another voice; b, a missing band; c, a codec; s,
babble of given voices; or the name of a folder of recordings among the sources.
All noise is at hand before the first crop: decoded or generated once, as int16 in one array, in
memory or in a file that all processes map.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from tqdm import tqdm

from speechssl import signal
from speechssl.artifacts import hash_json, lock_folder, read_json, replacing, write_json
from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, read_audio, to_int16
from speechssl.augment.noise import MUSAN, SHARES, TALKERS_RANGE, find_recordings
from speechssl.augment.sounds import CLIPS, SECONDS, VERSION, draw_clips
from speechssl.errors import InputError, report_set_aside
from speechssl.options import DISTORTED, SNR
from speechssl.processes import is_main

HOURS = 4.0  # of recordings that are kept (460 MB): of a larger set a part of each file
LEAST = 10.0  # seconds that are kept of a file however many there are
QUIET = 1e-3  # of the loudest: a crop below (-60 dB) is a pause, and would be blown up
ROOMS = 200  # a pool that fits into a cache
SEMITONES = 4.0  # up or down, at most
# formants, pitch and its range, times as much as that or its inverse at most
VOICE = (1.4, 2.0, 1.5)
DECIBELS = 12.0  # of the equaliser's bands, up or down
KBPS = (6.0, 48.0)  # kbit/s of the codecs, evenly on a log scale
WIDTHS = (0.5, 1.5)  # octaves that a missing band has
# share of mixtures of the stand-in that have a second clip, up to 10 dB below: more scenes than
# there are clips
SECOND = 0.5

Range = tuple[float, float]
Noise = Callable[[int, Generator], np.ndarray]  # n -> (n,) at 16 kHz, of any level
# speech (N,), not silent -> float32 (N,), timing kept
Change = Callable[[np.ndarray, Generator], np.ndarray]


@dataclass(frozen=True)
class Library:
    """A library is clips of noise at 16 kHz, end to end. samples: (S,) int16; edges: (clips + 1,)
    where each begins; card: what they are."""

    samples: np.ndarray = field(repr=False, compare=False)
    edges: np.ndarray = field(repr=False, compare=False)
    card: Mapping[str, Any]
    file: Path | None = None  # that the samples are mapped from

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a worker process map the file itself, where there is one; else the samples go to
        it."""
        if self.file is None:
            return Library, (self.samples, self.edges, self.card)
        return _mapped, (self.file, self.edges, self.card)

    def crop(self, rng: Generator, n: int) -> np.ndarray:
        """Draw (n,) float32 from a random place of a random clip, repeated where short; of eight
        draws the first that is not silent."""
        crop = np.zeros(n, np.float32)
        for _ in range(8):
            number = int(rng.integers(len(self.edges) - 1))
            clip = self.samples[self.edges[number] : self.edges[number + 1]]
            crop = np.asarray(signal.fit_length(clip, n, rng), np.float32) / np.float32(32768)
            if float(np.dot(crop, crop)) > (QUIET**2) * n * 0.01:
                break
        return crop


def decode_recordings(
    files: Sequence[Path], name: str, seed: int = 0, cache: Path | None = None
) -> Library:
    """Decode recordings, at most HOURS in all: of a larger set a random part of each file.

    Files that cannot be used are listed on stderr and set aside. Raises InputError where none is
    left.
    """
    longest = max(HOURS * 3600 / len(files), LEAST)

    def decode() -> list[np.ndarray]:
        pieces, failed = [], {}
        for path in files:
            try:
                samples = to_int16(np.clip(read_audio(path), -1, 1))
            except InputError as error:  # a large set has a silent or damaged one
                failed[path.name] = str(error)
                continue
            keep = round(longest * SAMPLE_RATE)
            rng = signal.generator(seed, "stretch", path.name)
            start = int(rng.integers(max(len(samples) - keep, 0) + 1))
            pieces.append(samples[start : start + keep])
        if not pieces:
            raise InputError(
                f"no recording of {name} noise can be used "
                f"({next(iter(failed.values()))}); give others"
            )
        report_set_aside(failed, f"{name} noise")
        return pieces

    # names, sizes and times of files: their contents may be 100 hours
    stats = []
    for path in files:
        stat = path.stat() if path.exists() else None
        stats.append([path.name, stat and stat.st_size, stat and stat.st_mtime_ns])
    card = {
        "set": name,
        "seed": seed,
        "recordings": len(files),
        "files": hash_json(stats),
        "seconds_each_at_most": round(longest, 3),
    }
    return _cached(card, decode, cache)


def _cached(
    card: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], cache: Path | None
) -> Library:
    """Make a library, or map it from the cache where one with the same card is there; keep it if
    there is a cache."""
    if cache is None:
        pieces = list(make())
        return Library(np.concatenate(pieces), np.cumsum([0, *map(len, pieces)]), card)
    folder = cache / f"{card['set']}-{hash_json(card)[:12]}"
    with lock_folder(folder):
        if not (folder / "card.json").exists():
            library = _cached(card, make, None)
            with replacing(folder / "noise.int16") as temporary:
                library.samples.tofile(temporary)
            # last: it says that the rest is whole
            write_json(folder / "card.json", {**card, "edges": library.edges.tolist()})
        edges = np.asarray(read_json(folder / "card.json")["edges"], np.int64)
    return _mapped(folder / "noise.int16", edges, card)


def _mapped(file: Path, edges: np.ndarray, card: Mapping[str, Any]) -> Library:
    return Library(np.memmap(file, np.int16, "r", shape=(int(edges[-1]),)), edges, card, file)


def white(n: int, rng: Generator) -> np.ndarray:
    return rng.standard_normal(n, np.float32)


def clips(library: Library, second: float, n: int, rng: Generator) -> np.ndarray:
    """Draw a crop of a clip, and in this share of cases a fainter second one."""
    noise = library.crop(rng, n)
    if rng.random() < second:
        noise = noise + np.float32(10 ** (-rng.uniform(0, 10) / 20)) * library.crop(rng, n)
    return noise


def babble(voices: Library, n: int, rng: Generator) -> np.ndarray:
    """Draw three to seven voices at once, each at the same level."""
    total = np.zeros(n, np.float32)
    for _ in range(rng.integers(*TALKERS_RANGE, endpoint=True)):
        voice = voices.crop(rng, n)
        total += voice / max(float(np.sqrt(np.dot(voice, voice) / n)), 1e-6)
    return total


def one_of(noises: Sequence[Noise], n: int, rng: Generator) -> np.ndarray:
    return noises[int(rng.integers(len(noises)))](n, rng)


def room(impulses: Sequence[np.ndarray], samples: np.ndarray, rng: Generator) -> np.ndarray:
    impulse = impulses[int(rng.integers(len(impulses)))]
    return signal.reverberate(np.asarray(samples, np.float32), impulse)


def pitch(samples: np.ndarray, rng: Generator) -> np.ndarray:
    return signal.pitch_shift(samples, rng.uniform(-SEMITONES, SEMITONES))


def band(samples: np.ndarray, rng: Generator) -> np.ndarray:
    low = 150 * 2 ** rng.uniform(0, 4)
    high = min(low * 2 ** rng.uniform(*WIDTHS), SAMPLE_RATE / 2 - 100)
    return signal.band_reject(samples, low, high)


def codec(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Apply MP3 or Opus at a bit rate that is low enough to be audible."""
    name = ("mp3", "opus")[int(rng.integers(2))]
    kbps = float(np.exp(rng.uniform(*np.log(KBPS))))
    return signal.apply_codec(samples, name, max(kbps, signal.bit_rates(name)[0]))


def voice(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Perturb the voice: another speaker through another microphone, as Spin perturbs them (arXiv
    2305.11072, after ContentVec's code)."""
    formants, pitch, pitch_range = (
        float(rng.uniform(1, most)) ** (1 if rng.random() < 0.5 else -1) for most in VOICE
    )
    quality = 2 * 2.5 ** rng.random(10)  # 2 to 5
    changed = signal.change_voice(samples, formants, pitch, pitch_range)
    return signal.equalise(changed, rng.uniform(-DECIBELS, DECIBELS, 10), quality)


CHANGES: dict[str, tuple[dict[str, Any], Change]] = {
    "p": ({"set": "pitch", "semitones": SEMITONES}, pitch),
    "b": ({"set": "band", "octaves": list(WIDTHS)}, band),
    "v": ({"set": "voices", "factors": list(VOICE), "decibels": DECIBELS}, voice),
    "c": ({"set": "codecs", "kbps": list(KBPS)}, codec),
}


@dataclass(frozen=True)
class Kind:
    """A kind is one letter with its share among the distorted crops: a noise that is added at an
    SNR, or else a change of the speech."""

    name: str
    share: float
    card: Mapping[str, Any]
    noise: Noise | None = field(default=None, repr=False, compare=False)
    change: Change | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class TrainingDistortions:
    """Draws a distortion for each crop. Ranges at the beginning and at the end of training, linear
    in between."""

    kinds: tuple[Kind, ...]
    seed: int = 0
    # of distorting at all: at the beginning, at the end
    probability: Range = (DISTORTED, DISTORTED)
    snr: Range = SNR  # dB at the beginning, drawn uniformly
    snr_end: Range = SNR  # dB at the end
    double: float = 0.0  # share of the crops with noise that get a change (r, p or b) before it
    changes: tuple[Change, ...] = ()  # for them
    snr_over: str = signal.ACTIVE  # what of the crop an SNR is measured over, see `speech_level`

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the names of the domain labels. Index 0 is clean speech; a double one counts as
        its noise."""
        return ("clean", *(kind.name for kind in self.kinds))

    @property
    def card(self) -> dict[str, Any]:
        """Return all that decides the distortions, for the card of a checkpoint."""
        card: dict[str, Any] = {
            "kinds": [{"name": k.name, "share": round(k.share, 4), **k.card} for k in self.kinds]
        }
        for name in ("seed", "probability", "snr", "snr_end", "double"):
            value = getattr(self, name)
            card[name] = list(value) if isinstance(value, tuple) else value
        return card if self.snr_over == signal.ACTIVE else card | {"snr_over": self.snr_over}

    def apply(
        self, samples: np.ndarray, key: tuple[int, ...] | str, progress: float = 0.0
    ) -> tuple[np.ndarray, int]:
        """Distort a crop, samples (N,) float32 at 16 kHz; progress: of training, 0 to 1.

        Returns float32 (N,) and the domain. Silence (and what is not finite) stays as it is, in
        domain 0; nothing raises.
        """
        keys = (key,) if isinstance(key, str) else map(str, key)
        rng = signal.generator(self.seed, "training", *keys)

        def now(start: float, end: float) -> float:
            return start + (end - start) * min(max(progress, 0.0), 1.0)

        audible = SILENT_PEAK <= float(np.abs(samples).max(initial=0)) < np.inf
        if rng.random() >= now(*self.probability) or not audible:
            return samples, 0
        shares = np.cumsum([kind.share for kind in self.kinds])[:-1]
        domain = 1 + int(np.searchsorted(shares, rng.random(), "right"))
        kind = self.kinds[domain - 1]
        if kind.change is not None:
            return kind.change(samples, rng), domain
        assert kind.noise is not None
        place, double = rng.random(), rng.random() < self.double
        low, high = now(self.snr[0], self.snr_end[0]), now(self.snr[1], self.snr_end[1])
        if double:
            samples = self.changes[int(rng.integers(len(self.changes)))](samples, rng)
        noise, snr_db = kind.noise(len(samples), rng), low + place * (high - low)
        noise_level = signal.rms_level(noise)
        if not np.isfinite(noise_level):  # where the noise is silent the samples stay as they are
            return samples, domain
        gain = 10 ** ((signal.speech_level(samples, self.snr_over) - noise_level - snr_db) / 20)
        # as `signal.mix`, in single precision
        return signal.guard(samples + np.float32(gain) * noise), domain


def parse_distortions(
    text: str,
    sources: Mapping[str, Path] | None = None,
    *,
    seed: int = 0,
    probability: Range = (DISTORTED, DISTORTED),
    snr: Range = SNR,
    snr_end: Range | None = None,
    double: float = 0.0,
    cache: Path | None = None,
    snr_over: str = signal.ACTIVE,
) -> TrainingDistortions:
    """Read "m+g+r" or "m:0.3+g:0.4+kitchens:0.3", and have all noise at hand.

    sources: folders of recordings by name: musan, voices, rir (measured impulse responses), or a
    name used in the text. cache: a folder that keeps decoded and generated noise for the next
    process and run. Raises InputError for what is no such distortion.
    """
    snr_end = snr_end or snr
    for low, high in (snr, snr_end):
        if not low <= high:
            raise InputError(
                f"the SNR range {low} to {high} dB is not a range; give the lower number first"
            )
    sources = sources or {}
    shares: dict[str, float] = {}
    for part in text.split("+"):
        name, _, share = part.strip().partition(":")
        shares[name] = _read_share(share or str(SHARES.get(name, 0.3)))
    known = {*sources, *"mgsr", *CHANGES}
    if not known.issuperset(shares) or not min(shares.values()) > 0:
        raise InputError(
            f"{text!r} is not a list of distortions; write one like m+g+r or m:0.3+g:0.4+r:0.3, "
            "with shares above 0, of sources and m, g, r, p, v, b, c and s"
        )
    found = _Sources(sources, seed, cache)
    total = sum(shares.values())
    kinds = tuple(found.open_kind(name, share / total) for name, share in shares.items())
    changes = (found.open_rooms()[1], pitch, band) if double else ()
    return TrainingDistortions(kinds, seed, probability, snr, snr_end, double, changes, snr_over)


def _read_share(text: str) -> float:
    """Read a share above 0; 0 where it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True)
class _Sources:
    """These are the folders of recordings by name."""

    folders: Mapping[str, Path]
    seed: int
    cache: Path | None

    def open_recordings(self, path: Path, what: str) -> Library:
        return decode_recordings(find_recordings(path, what), what, self.seed, self.cache)

    def open_rooms(self) -> tuple[dict[str, Any], Change]:
        """Open measured impulse responses where there are any, else a pool of simulated ones."""
        if "rir" in self.folders:
            files = find_recordings(self.folders["rir"], "impulse responses")
            sizes = [[p.name, p.stat().st_size] for p in files]
            card: dict[str, Any] = {"set": "measured rooms", "files": sizes}
            return card, partial(room, [read_audio(path) for path in files])
        pool = []
        for i in range(ROOMS):
            rng = signal.generator(self.seed, "training rooms", str(i))
            pool.append(np.asarray(signal.draw_room(rng), np.float32))
        ranges = {"rt60": list(signal.RT60S), "metres": list(signal.DISTANCES)}
        card = {"set": "simulated rooms", "seed": self.seed, "rooms": ROOMS, **ranges}
        return card, partial(room, pool)

    def open_musan(self) -> tuple[dict[str, Any], Noise]:
        """Open MUSAN; or the generated stand-in, whose card says so, with babble where there are
        voices."""
        if "musan" in self.folders:
            parts = []
            for part in MUSAN:
                parts.append(self.open_recordings(self.folders["musan"] / part, f"musan {part}"))
            noise, music, speech = parts
            noises = partial(clips, noise, 0.0), partial(clips, music, 0.0), partial(babble, speech)
            return {"set": "musan", "of": [dict(part.card) for part in parts]}, partial(
                one_of, noises
            )
        if is_main():
            tqdm.write("m: generated noise, no MUSAN (--noise musan=FOLDER)", file=sys.stderr)
        card = {"set": "stand-in", "generator": VERSION, "seed": self.seed}
        card |= {"clips": CLIPS, "seconds": SECONDS}
        library = _cached(card, partial(draw_clips, self.seed), self.cache)
        generate = partial(clips, library, SECOND)
        if "voices" not in self.folders:
            return card, generate
        people = self.open_voices()
        card = {"set": "stand-in and voices", "of": [card, card, dict(people.card)]}
        return card, partial(one_of, (generate, generate, partial(babble, people)))

    def open_voices(self) -> Library:
        return self.open_recordings(self.folders.get("voices", Path("voices")), "voices")

    def open_kind(self, name: str, share: float) -> Kind:
        if name in self.folders:
            library = self.open_recordings(self.folders[name], name)
            return Kind(name, share, library.card, partial(clips, library, 0.0))
        if name == "m":
            return Kind(name, share, *self.open_musan())
        if name == "g":
            return Kind(name, share, {"set": "gaussian"}, white)
        if name == "s":
            people = self.open_voices()
            return Kind(name, share, people.card, partial(babble, people))
        if name == "r":
            card, change = self.open_rooms()
            return Kind(name, share, card, change=change)
        card, change = CHANGES[name]
        return Kind(name, share, card, change=change)
