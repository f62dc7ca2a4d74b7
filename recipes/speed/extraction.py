"""Time `units extract` on hours of FLAC and MP3, and `speechssl answer` on a minute.

Of extraction two values are printed: times real time, and the share of the processor time that the
encoder takes (the rest is reading, decoding, resampling, k-means and Parquet). Its files are links
to a few minutes of speech, half of them MP3. `speechssl answer --systems dual` is started anew each
time, and answers a question of 3 s. (Without `--systems` it would add a cascade of Whisper where
there is one, which takes longer than all else.)

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
from common import CODEBOOK, ENCODER, Settings, add_rows, read_settings, speak_sentences

from speechssl.audio import SAMPLE_RATE, read_audio, write_clip
from speechssl.cli import run_program
from speechssl.data.recordings import list_recordings
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import load_extractor

MINUTES = 5  # of speech, to which all files are links
PAIRS_A_MINUTE = 10  # pairs of sentences, repeated where they are shorter
SHARD = 200  # recordings a file of units
TURNS = 3  # of `speechssl answer`


def make_recordings(folder: Path, count: int) -> Path:
    """Make `count` files of a minute, FLAC and MP3 in turn; return their folder."""
    sources, links = folder / "different", folder / "all"
    sources.mkdir(parents=True, exist_ok=True)
    links.mkdir(exist_ok=True)
    sentences = np.concatenate(list(speak_sentences(PAIRS_A_MINUTE * MINUTES)))
    speech = np.resize(sentences, MINUTES * 60 * SAMPLE_RATE)
    for i in range(count):
        suffix = (".flac", ".mp3")[i % 2]
        minute = (i // 2) % MINUTES
        source, link = sources / f"{minute}{suffix}", links / f"{i:04d}{suffix}"
        if i < 2 * MINUTES:
            write_clip(source, speech, 60.0 * minute, 60.0 * minute + 60)
        if not link.exists():
            os.link(source, link)
    return links


def time_extraction(settings: Settings, source: Path) -> None:
    """Time the extraction of all recordings of a folder, and add its rows."""
    extractor = load_extractor(ENCODER, Path(CODEBOOK), settings.values["precision"], "cpu")
    features = extractor.features
    encoder_seconds: list[float] = []  # processor time of every chunk of a recording

    def encode(samples: np.ndarray) -> Iterator[torch.Tensor]:
        """Yield features as `features.raw` does, and time it: one thread computes a recording."""
        chunks = features.raw(samples)
        while True:
            start = time.thread_time()
            chunk = next(chunks, None)
            encoder_seconds.append(time.thread_time() - start)
            if chunk is None:
                return
            yield chunk

    extractor = replace(extractor, features=replace(features, raw=encode))
    out = settings.exp / "units"
    shutil.rmtree(out, ignore_errors=True)
    recordings = list_recordings(source)
    wall_start, processor_start = time.perf_counter(), time.process_time()
    extracted = extract_corpus(ShardMaker(extractor, out, SHARD), recordings, LocalEngine())
    wall = time.perf_counter() - wall_start
    processor = time.process_time() - processor_start
    assert not extracted.failed, "recordings were set aside"
    values = {
        "x_realtime": 60 * len(recordings) / wall,
        "encoder_share": 100 * sum(encoder_seconds) / processor,
    }
    condition = f"{len(recordings)} files of 1 min, FLAC and MP3"
    add_rows(settings.exp, f"speechssl {features.precision}", "small", condition, values)


def time_answer(settings: Settings, passage: Path) -> None:
    """Time `speechssl answer` from the shell and back, with all that it imports and loads.

    The first call, which is not counted, compiles the modules, as an installation does.
    """
    question = settings.exp / "question.flac"
    write_clip(question, read_audio(passage), 0, 3)
    command = f"speechssl answer --passage {passage} --question {question} --systems dual"
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    seconds = []
    for _ in range(1 + TURNS):
        start = time.perf_counter()
        subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL, env=environment)
        seconds.append(time.perf_counter() - start)
    seconds = seconds[1:]
    values, spread = {"answer_seconds": median(seconds)}, (min(seconds), max(seconds))
    add_rows(settings.exp, "speechssl", "small", "1 min, 3 s", values, TURNS, spread)


def main(config: Path, exp: Path) -> None:
    settings = read_settings("extraction", config, exp)
    source = make_recordings(settings.exp / "minutes", settings.values["minutes"])
    time_extraction(settings, source)
    time_answer(settings, source / "0000.flac")


if __name__ == "__main__":
    run_program(main)
