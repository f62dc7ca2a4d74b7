"""Time hours of FLAC and MP3 through `units extract`: times real time, and the share of the
processor time that is the encoder's.

The rest is reading, decoding, resampling, k-means and Parquet. Files are links to a few minutes of
speech, half of them MP3. Then the seconds of `speechssl answer --systems dual`, started anew each
time, on a minute and a question of 3 s: a cascade of Whisper, which `answer` adds where there is
one, takes longer than all else.

python recipes/speed/extraction.py CONFIG EXP
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from common import CODEBOOK, SHIPPED, read_settings, save, sentences

from speechssl.audio import SAMPLE_RATE, read_audio, write_clip
from speechssl.data.recordings import list_recordings
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import load_extractor

DIFFERENT = 5  # minutes of speech, of which all files are links
TURNS = 3


def make_recordings(folder: Path, minutes: int) -> Path:
    """Make so many files of a minute; return their folder."""
    sources = folder / "different"
    sources.mkdir(parents=True, exist_ok=True)
    read = np.resize(np.concatenate(list(sentences(20 * DIFFERENT))), DIFFERENT * 60 * SAMPLE_RATE)
    for i in range(minutes):
        suffix, minute = (".flac", ".mp3")[i % 2], (i // 2) % DIFFERENT
        first, path = sources / f"{minute}{suffix}", folder / "all" / f"{i:04d}{suffix}"
        if i < 2 * DIFFERENT:
            write_clip(first, read, 60.0 * minute, 60.0 * minute + 60)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            os.link(first, path)
    return folder / "all"


def main() -> None:
    step = read_settings("extraction")
    source = make_recordings(step.exp / "minutes", step.values["minutes"])
    extractor = load_extractor(SHIPPED, Path(CODEBOOK), step.values["precision"], "cpu")
    features = extractor.features
    spent: list[float] = []  # processor seconds of pieces; a thread computes a recording alone

    def timed(samples: np.ndarray) -> Iterator[torch.Tensor]:
        pieces = features.raw(samples)
        while True:
            start = time.thread_time()
            piece = next(pieces, None)
            spent.append(time.thread_time() - start)
            if piece is None:
                return
            yield piece

    extractor = replace(extractor, features=replace(features, raw=timed))
    out = step.exp / "units"
    shutil.rmtree(out, ignore_errors=True)
    found = list_recordings(source)
    wall, processor = time.perf_counter(), time.process_time()
    made = extract_corpus(ShardMaker(extractor, out, 200), found, LocalEngine())
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert not made.failed, "recordings were set aside"
    condition = f"{len(found)} files of 1 min, FLAC and MP3"
    system = f"speechssl {features.precision}"
    speed = {"x_realtime": 60 * len(found) / wall, "encoder_share": 100 * sum(spent) / processor}
    save(step.exp, system, "small", condition, speed)
    passage, question = source / "0000.flac", step.exp / "question.flac"
    write_clip(question, read_audio(passage), 0, 3)
    command = f"speechssl answer --passage {passage} --question {question} --systems dual"
    took = []
    for _ in range(TURNS):  # from the shell and back, with all that has to be imported and loaded
        start = time.perf_counter()
        subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - start)
    values, spread = {"answer_seconds": median(took)}, (min(took), max(took))
    save(step.exp, "speechssl", "small", "1 min, 3 s", values, TURNS, spread)


if __name__ == "__main__":
    main()
