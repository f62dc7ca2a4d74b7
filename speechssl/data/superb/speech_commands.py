"""Speech Commands v1 (Warden, arXiv 1804.03209) for KS: ten keywords, `_unknown_` and `_silence_`.

Splits are those of s3prl's `downstream/speech_commands`: the hash of a speaker's name sends a word to train or dev (or to the test
part, which is left out), and the test is the archive `speech_commands_test_set_v0.01`, whose folders are the twelve classes.
Silence: s3prl takes the six recordings of `_background_noise_` both for train and for dev, crops a random second at every draw and
draws all classes equally often. Here their whole seconds are cut once, every tenth for dev and the others for train, so that no
second is in both; training draws all classes equally often, too.
Counts: the data card of SUPERB at Hugging Face has 51,094 (with the six recordings), 6,798 and 3,081.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, read_audio, write_flac
from speechssl.data.superb.sets import Cards, Order, Prepared, by_split, gathered, order, prepare, wavs
from speechssl.data.utterances import SPLITS, Utterance

KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN, SILENCE = "_unknown_", "_silence_"
CLASSES = (*KEYWORDS, UNKNOWN, SILENCE)
TRAINING, TEST, NOISE = "speech_commands_v0.01", "speech_commands_test_set_v0.01", "_background_noise_"
COUNTS = {"train": 51_088, "dev": 6_798, "test": 3_081, "background recordings": 6}
LAYOUT = f"give the folder that holds {TRAINING} and {TEST}, each unpacked into a folder of its name"
DEV_EVERY = 10  # seconds of background
_BUCKETS = 2**27 - 1  # of the hash, in the paper's own code


def prepare_speech_commands(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/ks, with the seconds of silence in its audio/, and return its card.

    Raises InputError for a wrong folder, or counts that are not the published ones (unless `any_count`).
    """
    return prepare(order("speech-commands", source, out, ["ks"], LAYOUT, any_count), _read)


def split_of(name: str) -> str:
    """train, dev or test, by the speaker in the name of a file ("0a7c2a8d_nohash_0.wav")."""
    digest = int(hashlib.sha1(re.sub(r"_nohash_.*$", "", name).encode()).hexdigest(), 16)
    percent = digest % (_BUCKETS + 1) * (100.0 / _BUCKETS)
    return "dev" if percent < 10 else "test" if percent < 20 else "train"


def _read(order: Order) -> dict[str, Prepared]:
    root = order.find(TRAINING)
    utterances = by_split([*_words(root), *_tests(order.find(TEST))], SPLITS)
    background = wavs(order.find(f"{TRAINING}/{NOISE}"))
    splits = gathered(order, utterances, COUNTS, {"background recordings": len(background)})
    seconds = dict(_seconds(background))
    for number, name in enumerate(seconds):
        silent = Utterance(f"{SILENCE}/{name}", f"audio/{name}.flac", 1.0, labels={"keyword": SILENCE})
        splits["train" if number % DEV_EVERY else "dev"].append(silent)
    return {"ks": Prepared("ks", splits, cut=lambda folder: _cut(folder, seconds))}


def _words(root: Path) -> Iterator[tuple[str, Utterance]]:
    """(split, utterance) of train and dev."""
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"):
        for path in wavs(folder):
            if (split := split_of(path.name)) != "test":
                yield split, _utterance(path, f"{folder.name}/{path.stem}", folder.name if folder.name in KEYWORDS else UNKNOWN)


def _tests(root: Path) -> Iterator[tuple[str, Utterance]]:
    for name in CLASSES:
        for path in wavs(root / name):
            yield "test", _utterance(path, f"test/{name}/{path.stem}", name)


def _utterance(path: Path, name: str, keyword: str) -> Utterance:
    speaker = path.stem.split("_nohash_")[0] if "_nohash_" in path.stem and keyword != SILENCE else ""
    return Utterance(name, str(path), 0.0, speaker, {"keyword": keyword})


def _seconds(background: list[Path]) -> Iterator[tuple[str, np.ndarray]]:
    """Name and samples (16,000,) of every whole second that is not digital silence, which no encoder is given."""
    for path in background:
        samples = read_audio(path)
        for second in range(len(samples) // SAMPLE_RATE):
            piece = samples[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE]
            if np.abs(piece).max() >= SILENT_PEAK:
                yield f"{path.stem}-{second:03d}", piece


def _cut(folder: Path, seconds: dict[str, np.ndarray]) -> None:
    for name, samples in seconds.items():
        write_flac(folder / "audio" / f"{name}.flac", samples)
