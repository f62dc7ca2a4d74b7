"""Prepare Speech Commands v1 for KS (Warden, arXiv 1804.03209)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np

from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, read_audio, write_flac
from speechssl.data.options import SpeechCommands
from speechssl.data.superb import SILENCE, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    group_by_split,
    prepare,
    wavs,
)

KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN = "_unknown_"
TRAINING = "speech_commands_v0.01"
TEST = "speech_commands_test_set_v0.01"
NOISE = "_background_noise_"
LAYOUT = (
    f"give the folder that holds {TRAINING} and {TEST}, each unpacked into a folder of its name"
)
COUNTS = {"train": 51_088, "dev": 6_798, "test": 3_081, "background recordings": 6}
DEV_EVERY = 10  # seconds of background


def split_of(name: str) -> str:
    """Choose train, dev or test by the speaker in the name of a file ("0a7c2a8d_nohash_0.wav"), as
    the paper's code and s3prl have it."""
    speaker = re.sub(r"_nohash_.*$", "", name)
    digest = int(hashlib.sha1(speaker.encode()).hexdigest(), 16)
    buckets = 2**27 - 1
    percent = digest % (buckets + 1) * (100.0 / buckets)
    return "dev" if percent < 10 else "test" if percent < 20 else "train"


def prepare_speech_commands(o: SpeechCommands) -> Cards:
    """Write `o.out`/ks and return its card. Raises as `prepare`."""
    return prepare(Order("speech-commands", o, ["ks"], LAYOUT), _read)


def _read(order: Order) -> dict[str, Prepared]:
    """Read ks, with seconds of the background noise as silence in its audio/ (Speech Commands v1:
    Warden, arXiv 1804.03209)."""
    root, tests = order.find(TRAINING), order.find(TEST)
    pairs: list[tuple[str, Utterance]] = []

    def add(split: str, path: Path, name: str, keyword: str) -> None:
        speaker, mark, _ = path.stem.partition("_nohash_")
        if not mark or keyword == SILENCE:
            speaker = ""
        pairs.append((split, Utterance(name, str(path), 0.0, speaker, {"keyword": keyword})))

    for folder in sorted(root.iterdir()):
        if not folder.is_dir() or folder.name[0] in "._":
            continue
        keyword = folder.name if folder.name in KEYWORDS else UNKNOWN
        for path in wavs(folder):
            split = split_of(path.name)
            if split != "test":
                add(split, path, f"{folder.name}/{path.stem}", keyword)
    for keyword in (*KEYWORDS, UNKNOWN, SILENCE):
        for path in wavs(tests / keyword):
            add("test", path, f"test/{keyword}/{path.stem}", keyword)
    background = wavs(order.find(f"{TRAINING}/{NOISE}"))
    others = {"background recordings": len(background)}
    splits = gather_utterances(order, group_by_split(pairs), COUNTS, others)
    # (16,000,): every whole second that is not digital silence, which no encoder is given
    seconds: dict[str, np.ndarray] = {}
    for path in background:
        samples = read_audio(path)
        for second in range(len(samples) // SAMPLE_RATE):
            piece = samples[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE]
            if np.abs(piece).max() >= SILENT_PEAK:
                seconds[f"{path.stem}-{second:03d}"] = piece
    for number, name in enumerate(seconds):
        silent = Utterance(
            f"{SILENCE}/{name}", f"audio/{name}.flac", 1.0, labels={"keyword": SILENCE}
        )
        splits["train" if number % DEV_EVERY else "dev"].append(silent)

    def cut(folder: Path) -> None:
        for name, samples in seconds.items():
            write_flac(folder / "audio" / f"{name}.flac", samples)

    return {"ks": Prepared("ks", splits, cut=cut)}
