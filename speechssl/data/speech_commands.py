"""Prepare Speech Commands v1 for keyword spotting, KS (Warden, arXiv 1804.03209)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, read_audio, write_flac
from speechssl.data.options import SpeechCommands
from speechssl.data.superb import SILENCE, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    group_by_split,
    list_wavs,
    prepare,
)

KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN = "_unknown_"
TRAINING = "speech_commands_v0.01"
TEST = "speech_commands_test_set_v0.01"
NOISE = "_background_noise_"
# published numbers of words, and of recordings of background noise
COUNTS = {"train": 51_088, "dev": 6_798, "test": 3_081, "background recordings": 6}
DEV_EVERY = 10  # every tenth second of the background noise is dev, the others are train


def find_split(name: str) -> str:
    """Find the split of a file by the hash of the speaker in its name ("0a7c2a8d" in
    "0a7c2a8d_nohash_0.wav"), as the paper's code and s3prl do."""
    speaker = re.sub(r"_nohash_.*$", "", name)
    digest = int(hashlib.sha1(speaker.encode()).hexdigest(), 16)
    buckets = 2**27 - 1
    percent = digest % (buckets + 1) * (100.0 / buckets)
    if percent < 10:
        return "dev"
    return "test" if percent < 20 else "train"


def prepare_speech_commands(o: SpeechCommands) -> Cards:
    """Write `o.out`/ks and return its card. Raises as `prepare`."""
    return prepare(Preparation("speech-commands", o, ["ks"]), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the words of all splits. Whole seconds of the background noise become the class SILENCE
    of train and dev."""
    training, test = preparation.find(TRAINING), preparation.find(TEST)
    words: list[tuple[str, Utterance]] = []
    for folder in sorted(training.iterdir()):
        if not folder.is_dir() or folder.name[0] in "._":  # hidden, or the background noise
            continue
        keyword = folder.name if folder.name in KEYWORDS else UNKNOWN
        for path in list_wavs(folder):
            split = find_split(path.name)
            if split != "test":  # TEST has a test set of its own
                name = f"{folder.name}/{path.stem}"
                words.append((split, _make_utterance(name, path, keyword)))
    for keyword in (*KEYWORDS, UNKNOWN, SILENCE):
        for path in list_wavs(test / keyword):
            name = f"test/{keyword}/{path.stem}"
            words.append(("test", _make_utterance(name, path, keyword)))
    background = list_wavs(preparation.find(f"{TRAINING}/{NOISE}"))
    others = {"background recordings": len(background)}
    splits = gather_utterances(preparation, group_by_split(words), COUNTS, others)

    clips = _cut_seconds(background)
    for number, name in enumerate(clips):
        labels = {"keyword": SILENCE}
        silent = Utterance(f"{SILENCE}/{name}", f"audio/{name}.flac", 1.0, labels=labels)
        splits["train" if number % DEV_EVERY else "dev"].append(silent)

    def write_clips(folder: Path) -> None:
        for name, samples in clips.items():
            write_flac(folder / "audio" / f"{name}.flac", samples)

    return {"ks": Prepared(splits, write_clips=write_clips)}


def _make_utterance(name: str, path: Path, keyword: str) -> Utterance:
    """Make the utterance of a file. The speaker, in the name of the file, is "" for silence."""
    speaker, mark, _ = path.stem.partition("_nohash_")
    if not mark or keyword == SILENCE:
        speaker = ""
    labels = {"keyword": keyword}
    return Utterance(name, str(path), speaker=speaker, labels=labels)


def _cut_seconds(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Cut recordings into their whole seconds: "pink_noise-007" -> samples (16,000,). Digital
    silence is left out, as encoders refuse it."""
    clips: dict[str, np.ndarray] = {}
    for path in paths:
        samples = read_audio(path)
        for second in range(len(samples) // SAMPLE_RATE):
            clip = samples[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE]
            if np.abs(clip).max() >= SILENT_PEAK:
                clips[f"{path.stem}-{second:03d}"] = clip
    return clips
