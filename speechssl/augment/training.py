"""Distort crops of utterances on the fly for training. The distortion of a crop depends on (seed,
key) alone, whatever the number of workers.

Distortions are named by letters: m, noise of MUSAN, or generated noise in its place (the stand-in);
g, Gaussian noise; r, reverberation; p, pitch shift; v, another voice; b, a missing band; c, a
codec; s, babble of recorded voices. Another name is that of a folder of noise recordings. They are
joined by "+", as in "m+g+r", or with their shares of the distorted crops, "m:0.3+g:0.4+r:0.3".
Noise is decoded or generated before the first crop, as int16 in one array, in memory or in a file
that all processes map. In shapes, N and n are numbers of samples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from tqdm import tqdm

from speechssl import signal
from speechssl.artifacts import hash_json, lock_folder, read_json, replace_file, write_json
from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, read_audio, to_int16
from speechssl.augment.noise import SHARES, TALKERS_RANGE, find_musan, find_recordings
from speechssl.augment.sounds import CLIPS, SECONDS, VERSION, generate_clips
from speechssl.errors import InputError, report_set_aside
from speechssl.options import DISTORT_PROBABILITY, SNR_RANGE
from speechssl.processes import is_main

# Hours of a set of recordings that are kept (460 MB); of a larger set, a part of each file is kept.
MAX_HOURS = 4.0
MIN_PART = 10.0  # seconds of such a part, at least
# A crop of noise whose RMS (full scale 1) is below this is a pause; its hiss would be amplified.
QUIET = 1e-4
ROOMS = 200  # simulated rooms: so few fit into the cache of a processor
SEMITONES = 4.0  # largest pitch shift, up or down
# largest factors of formants, pitch and pitch range; their inverses are the smallest
VOICE = (1.4, 2.0, 1.5)
DECIBELS = 12.0  # largest gain of a band of the equaliser, up or down
KBPS = (6.0, 48.0)  # kbit/s of the codecs, drawn uniformly on a log scale
WIDTHS = (0.5, 1.5)  # octaves of a missing band
# Share of the crops of the stand-in to which a second clip is added, up to 10 dB below the first,
# so that there are more mixtures than clips.
SECOND_CLIP = 0.5

Range = tuple[float, float]
Noise = Callable[[int, Generator], np.ndarray]  # (n, generator) -> (n,) at 16 kHz, of any level
# (speech (N,) that is not silent, generator) -> float32 (N,) with the same timing
Change = Callable[[np.ndarray, Generator], np.ndarray]


@dataclass(frozen=True)
class Library:
    """A library has clips of noise at 16 kHz in one array, end to end."""

    samples: np.ndarray  # (S,) int16
    edges: np.ndarray  # (clips + 1,): the first sample of every clip, and the end of the last
    card: Mapping[str, Any]  # describes the clips

    def crop(self, rng: Generator, n: int) -> np.ndarray:
        """Draw (n,) float32 from a random place of a random clip, which is repeated if it is
        shorter. A pause is drawn again, up to seven times."""
        crop = np.zeros(n, np.float32)
        for _ in range(8):
            number = rng.integers(len(self.edges) - 1)
            clip = self.samples[self.edges[number] : self.edges[number + 1]]
            crop = np.asarray(signal.fit_length(clip, n, rng), np.float32) / np.float32(32768)
            if float(np.dot(crop, crop)) > (QUIET**2) * n:
                break
        return crop


def decode_recordings(
    files: Sequence[Path], name: str, seed: int = 0, cache: Path | None = None
) -> Library:
    """Decode recordings, at most MAX_HOURS in all: of a larger set, a random part of each file, of
    MIN_PART seconds or more, until there are as many hours.

    name: the set, for its card and messages; cache: a folder for decoded sets, None for none. Files
    that cannot be used are listed on stderr and left out. Raises InputError where none is left.
    """
    most = int(MAX_HOURS * 3600 / MIN_PART)
    if len(files) > most:
        rng = signal.make_generator(seed, "files", name)
        files = [files[i] for i in rng.permutation(len(files))]
    longest = max(MAX_HOURS * 3600 / len(files), MIN_PART)
    # names, sizes and times of files are hashed, since their contents may be 100 hours
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
    return _open_cached(card, partial(_decode_parts, files, name, seed, longest), cache)


def _decode_parts(files: Sequence[Path], name: str, seed: int, longest: float) -> list[np.ndarray]:
    """Decode a random part of each file, `longest` seconds at most, until there are MAX_HOURS; see
    `decode_recordings`."""
    parts = []
    failed: dict[str, str] = {}  # name of the file -> why it cannot be used
    size = round(longest * SAMPLE_RATE)
    left = round(MAX_HOURS * 3600 * SAMPLE_RATE)
    for path in files:
        if left <= 0:
            break
        try:
            samples = to_int16(read_audio(path))
        except InputError as error:  # large sets have some silent or damaged files
            failed[path.name] = str(error)
            continue
        # the word "stretch" is part of the seed
        rng = signal.make_generator(seed, "stretch", path.name)
        start = rng.integers(max(len(samples) - size, 0) + 1)
        parts.append(samples[start : start + size])
        left -= len(parts[-1])
    if not parts:
        raise InputError(
            f"no recording of {name} noise can be used ({next(iter(failed.values()))}); give others"
        )
    report_set_aside(failed, f"{name} noise")
    return parts


def _open_cached(
    card: dict[str, Any], make: Callable[[], Iterable[np.ndarray]], cache: Path | None
) -> Library:
    """Map the library with this card from the cache, after making it there if it is missing.
    Without a cache the library is made in memory. make: a function that yields its clips (n,)
    int16."""
    if cache is None:
        clips = list(make())
        return Library(np.concatenate(clips), np.cumsum([0, *map(len, clips)]), card)
    folder = cache / f"{card['set']}-{hash_json(card)[:12]}"
    file = folder / "noise.int16"
    with lock_folder(folder):
        if not (folder / "card.json").exists():
            library = _open_cached(card, make, cache=None)
            with replace_file(file) as temporary:
                library.samples.tofile(temporary)
            # the card is written last: it says that the samples are complete
            write_json(folder / "card.json", {**card, "edges": library.edges.tolist()})
        edges = np.asarray(read_json(folder / "card.json")["edges"])
    return Library(np.memmap(file, np.int16, "r"), edges, card)


# ---- noises: (n, generator) -> (n,)


def draw_gaussian(n: int, rng: Generator) -> np.ndarray:
    """Draw Gaussian noise (n,)."""
    return rng.standard_normal(n, np.float32)


def draw_crop(library: Library, second_share: float, n: int, rng: Generator) -> np.ndarray:
    """Draw a crop (n,) of a clip, and add a fainter one with the probability `second_share`."""
    noise = library.crop(rng, n)
    if rng.random() < second_share:
        noise = noise + np.float32(10 ** (-rng.uniform(0, 10) / 20)) * library.crop(rng, n)
    return noise


def draw_babble(voices: Library, n: int, rng: Generator) -> np.ndarray:
    """Draw babble (n,): three to seven voices at once, all at the same level."""
    total = np.zeros(n, np.float32)
    for _ in range(rng.integers(*TALKERS_RANGE, endpoint=True)):
        voice = voices.crop(rng, n)
        total += voice / max(float(np.sqrt(np.dot(voice, voice) / n)), 1e-6)
    return total


def draw_one_of(noises: Sequence[Noise], n: int, rng: Generator) -> np.ndarray:
    """Draw noise (n,) of one of several kinds, all equally likely."""
    return noises[int(rng.integers(len(noises)))](n, rng)


# ---- changes of the speech: (samples (N,), generator) -> (N,)


def reverberate(impulses: Sequence[np.ndarray], samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Put speech (N,) in one of several rooms, all equally likely. impulses: their responses
    (M,)."""
    impulse = impulses[int(rng.integers(len(impulses)))]
    return signal.reverberate(samples, impulse)


def shift_pitch(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Shift the pitch of speech (N,) by up to SEMITONES, up or down."""
    return signal.shift_pitch(samples, rng.uniform(-SEMITONES, SEMITONES))


def reject_band(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Remove from speech (N,) a band that begins between 150 and 2,400 Hz."""
    low = 150 * 2 ** rng.uniform(0, 4)
    high = min(low * 2 ** rng.uniform(*WIDTHS), SAMPLE_RATE / 2 - 100)
    return signal.reject_band(samples, low, high)


def apply_codec(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Send speech (N,) through MP3 or Opus at a bit rate that is low enough to be audible."""
    name = ("mp3", "opus")[rng.integers(2)]
    kbps = float(np.exp(rng.uniform(*np.log(KBPS))))
    return signal.apply_codec(samples, name, max(kbps, signal.get_bit_rates(name)[0]))


def change_voice(samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Change the voice of speech (N,) into that of another speaker through another microphone, as
    Spin does (arXiv 2305.11072, after ContentVec's code)."""
    formants, pitch, pitch_range = (_draw_factor(largest, rng) for largest in VOICE)
    quality = 2 * 2.5 ** rng.random(10)  # Q of the ten bands of the equaliser, 2 to 5
    changed = signal.change_voice(samples, formants, pitch, pitch_range)
    return signal.equalise(changed, rng.uniform(-DECIBELS, DECIBELS, 10), quality)


def _draw_factor(largest: float, rng: Generator) -> float:
    """Draw a factor between 1 and `largest`, or its inverse."""
    return float(rng.uniform(1, largest)) ** (1 if rng.random() < 0.5 else -1)


# letter -> (entries of its card, the change)
CHANGES: dict[str, tuple[dict[str, Any], Change]] = {
    "p": ({"set": "pitch", "semitones": SEMITONES}, shift_pitch),
    "b": ({"set": "band", "octaves": list(WIDTHS)}, reject_band),
    "v": ({"set": "voices", "factors": list(VOICE), "decibels": DECIBELS}, change_voice),
    "c": ({"set": "codecs", "kbps": list(KBPS)}, apply_codec),
}


@dataclass(frozen=True)
class Kind:
    """A kind of distortion is a noise that is added at an SNR, or a change of the speech."""

    name: str  # a letter, or the name of a source
    share: float  # of the distorted crops
    card: Mapping[str, Any]
    noise: Noise | None = None
    change: Change | None = None


@dataclass(frozen=True)
class TrainingDistortions:
    """These are the distortions of a training. The probability of a distortion and the SNR range
    change linearly from the beginning to the end of the training."""

    kinds: tuple[Kind, ...]
    seed: int
    probability: Range  # of distorting a crop, at beginning and end
    snr: Range  # dB at the beginning; the SNR of a crop is uniform in the range
    snr_end: Range  # dB at the end
    change_share: float  # share of the noisy crops whose speech is changed before
    changes_before_noise: tuple[Change, ...]  # the changes from which one is drawn for these
    snr_over: str  # the part of a crop that its SNR refers to: `measure_level`

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the names of the domains, by which crops are labelled. Index 0 is clean speech; a
        crop that is changed before noise is added belongs to the noise."""
        return ("clean", *(kind.name for kind in self.kinds))

    @property
    def card(self) -> dict[str, Any]:
        """Return the settings that decide the distortions, for the card of a checkpoint."""
        card: dict[str, Any] = {
            "kinds": [{"name": k.name, "share": round(k.share, 4), **k.card} for k in self.kinds],
            "seed": self.seed,
            "probability": list(self.probability),
            "snr": list(self.snr),
            "snr_end": list(self.snr_end),
            "double": self.change_share,
        }
        return card if self.snr_over == signal.ACTIVE else card | {"snr_over": self.snr_over}

    def apply(
        self, samples: np.ndarray, key: tuple[int, ...] | str, progress: float = 0.0
    ) -> tuple[np.ndarray, int]:
        """Distort a crop, samples (N,) float32 at 16 kHz. key: identifies the crop; progress: how
        far the training is, 0 to 1.

        Returns samples (N,) float32 and the index in `domains`. Silence stays as it is, with index
        0.
        """
        keys = (key,) if isinstance(key, str) else map(str, key)
        rng = signal.make_generator(self.seed, "training", *keys)
        is_audible = np.abs(samples).max(initial=0) >= SILENT_PEAK
        if rng.random() >= _interpolate(*self.probability, progress) or not is_audible:
            return samples, 0
        number = self._draw_kind(rng)
        kind = self.kinds[number]
        domain = 1 + number  # 0 is clean speech
        if kind.change is not None:
            return kind.change(samples, rng), domain
        return self._add_noise(samples, kind, progress, rng), domain

    def _draw_kind(self, rng: Generator) -> int:
        """Draw the index of a kind in `kinds`, with the probabilities of their shares."""
        borders = np.cumsum([kind.share for kind in self.kinds])[:-1]
        return int(np.searchsorted(borders, rng.random(), "right"))

    def _add_noise(
        self, samples: np.ndarray, kind: Kind, progress: float, rng: Generator
    ) -> np.ndarray:
        """Add noise of a kind at a drawn SNR, after a change of the speech in `change_share` of the
        crops."""
        assert kind.noise is not None
        low = _interpolate(self.snr[0], self.snr_end[0], progress)
        high = _interpolate(self.snr[1], self.snr_end[1], progress)
        snr_db = low + rng.random() * (high - low)
        if rng.random() < self.change_share:
            change = self.changes_before_noise[rng.integers(len(self.changes_before_noise))]
            samples = change(samples, rng)
        noise = kind.noise(len(samples), rng)
        noise_level = signal.measure_rms_level(noise)
        if not np.isfinite(noise_level):  # the noise is silent
            return samples
        gain = 10 ** ((signal.measure_level(samples, self.snr_over) - noise_level - snr_db) / 20)
        # `signal.mix` in single precision
        return signal.limit_peak(samples + np.float32(gain) * noise)


def _interpolate(start: float, end: float, progress: float) -> float:
    """Return the value between that at the start and that at the end of a training."""
    return start + (end - start) * progress


def parse_distortions(
    text: str,
    sources: Mapping[str, Path] | None = None,
    *,
    seed: int = 0,
    probability: Range = (DISTORT_PROBABILITY, DISTORT_PROBABILITY),
    snr: Range = SNR_RANGE,
    snr_end: Range | None = None,
    change_share: float = 0.0,
    cache: Path | None = None,
    snr_over: str = signal.ACTIVE,
) -> TrainingDistortions:
    """Parse "m+g+r" or "m:0.3+g:0.4+kitchens:0.3", and decode or generate all noise.

    sources: name -> folder of recordings; names are musan, voices, rir (measured impulse
    responses), and those in the text. change_share: the share of the crops with noise that get a
    room, a pitch shift or a missing band first. cache: a folder that keeps decoded and generated
    noise for other processes and runs. The other arguments are those of `TrainingDistortions`.
    Raises InputError for another text, and for sources that are missing.
    """
    snr_end = snr_end or snr
    for low, high in (snr, snr_end):
        if not low <= high:
            raise InputError(
                f"the SNR range {low} to {high} dB is not a range; give the lower number first"
            )
    sources = sources or {}
    shares: dict[str, float] = {}
    try:
        for part in text.split("+"):
            name, _, share = part.strip().partition(":")
            shares[name] = float(share) if share else SHARES.get(name, 0.3)
            if name not in {*sources, *"mgsr", *CHANGES} or not shares[name] > 0:
                raise ValueError(part)
    except ValueError:
        raise InputError(
            f"{text!r} is not a list of distortions; write one like m+g+r or m:0.3+g:0.4+r:0.3, "
            "with shares above 0, of sources and m, g, r, p, v, b, c and s"
        ) from None
    opener = _SourceOpener(sources, seed, cache)
    total = sum(shares.values())
    kinds = tuple(opener.open_kind(name, share / total) for name, share in shares.items())
    changes_before_noise: tuple[Change, ...] = ()
    if change_share:
        _, add_room = opener.open_rooms()
        changes_before_noise = (add_room, shift_pitch, reject_band)
    return TrainingDistortions(
        kinds=kinds,
        seed=seed,
        probability=probability,
        snr=snr,
        snr_end=snr_end,
        change_share=change_share,
        changes_before_noise=changes_before_noise,
        snr_over=snr_over,
    )


@dataclass(frozen=True)
class _SourceOpener:
    """An opener opens kinds of distortion: it decodes or generates their noise and rooms."""

    folders: Mapping[str, Path]  # name -> folder of recordings
    seed: int
    cache: Path | None

    def open_recordings(self, path: Path, what: str) -> Library:
        """Decode the recordings at a path. what: the name of the set."""
        return decode_recordings(find_recordings(path, what), what, self.seed, self.cache)

    def open_rooms(self) -> tuple[dict[str, Any], Change]:
        """Open measured impulse responses where a folder of them is given, otherwise a pool of
        simulated ones."""
        if "rir" in self.folders:
            files = find_recordings(self.folders["rir"], "impulse responses")
            sizes = [[p.name, p.stat().st_size] for p in files]
            card: dict[str, Any] = {"set": "measured rooms", "files": sizes}
            return card, partial(reverberate, [read_audio(path) for path in files])
        pool = []
        for i in range(ROOMS):
            rng = signal.make_generator(self.seed, "training rooms", str(i))
            pool.append(np.asarray(signal.draw_room(rng), np.float32))
        ranges = {"rt60": list(signal.RT60S), "metres": list(signal.DISTANCES)}
        card = {"set": "simulated rooms", "seed": self.seed, "rooms": ROOMS, **ranges}
        return card, partial(reverberate, pool)

    def open_musan(self) -> tuple[dict[str, Any], Noise]:
        """Open MUSAN: noise, music, and babble of its speech, all equally likely. Without MUSAN,
        open generated noise, the stand-in, and babble where voices are given."""
        if "musan" in self.folders:
            parts = []
            for part in find_musan(self.folders["musan"]):
                parts.append(self.open_recordings(part, f"musan {part.name}"))
            noise, music, speech = parts
            noises = (
                partial(draw_crop, noise, 0.0),
                partial(draw_crop, music, 0.0),
                partial(draw_babble, speech),
            )
            card: dict[str, Any] = {"set": "musan", "of": [dict(part.card) for part in parts]}
            return card, partial(draw_one_of, noises)
        if is_main():
            tqdm.write("m: generated noise, no MUSAN (--noise musan=FOLDER)", file=sys.stderr)
        card = {"set": "stand-in", "generator": VERSION, "seed": self.seed}
        card |= {"clips": CLIPS, "seconds": SECONDS}
        library = _open_cached(card, partial(generate_clips, self.seed), self.cache)
        stand_in = partial(draw_crop, library, SECOND_CLIP)
        if "voices" not in self.folders:
            return card, stand_in
        voices = self.open_voices()
        card = {"set": "stand-in and voices", "of": [card, card, dict(voices.card)]}
        # the stand-in twice, for noise and for music, so that a third is babble, as with MUSAN
        noises = (stand_in, stand_in, partial(draw_babble, voices))
        return card, partial(draw_one_of, noises)

    def open_voices(self) -> Library:
        """Decode the voices for babble."""
        return self.open_recordings(self.folders.get("voices", Path("voices")), "voices")

    def open_kind(self, name: str, share: float) -> Kind:
        """Open the kind of distortion of a letter, or of the name of a folder."""
        if name in self.folders:
            library = self.open_recordings(self.folders[name], name)
            return Kind(name, share, library.card, partial(draw_crop, library, 0.0))
        if name == "m":
            return Kind(name, share, *self.open_musan())
        if name == "g":
            return Kind(name, share, {"set": "gaussian"}, draw_gaussian)
        if name == "s":
            voices = self.open_voices()
            return Kind(name, share, voices.card, partial(draw_babble, voices))
        if name == "r":
            card, change = self.open_rooms()
            return Kind(name, share, card, change=change)
        card, change = CHANGES[name]
        return Kind(name, share, card, change=change)
