"""A miniature NMSQA in any of its layouts: sentences of faint noise in which every answer is a beep that can be heard."""

from __future__ import annotations

import csv
import json
import tarfile
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from speechssl.audio import SAMPLE_RATE, read_audio, write_clip

RATE = 22_050
SENTENCES = (
    "Anna found a lamp in the old mill.",
    "Later she gave the lamp to Boris.",
    "Boris sold it for nine coins.",
    "The end was near.",
)
LENGTHS = (31_111, 27_777, 40_003, 22_222)  # samples at 22,050 Hz: no whole numbers at 16 kHz
CONTEXT = " ".join(SENTENCES)
ANSWERS = {0: ("the old mill", 0.5, 0.9), 1: ("Boris", 0.8, 1.1), 2: ("nine coins", 1.2, 1.7), 3: ("near", 0.4, 0.6)}


def sentence(number: int, rate: int = RATE) -> np.ndarray:
    """Noise, and the beep of the sentence's answer."""
    samples = 0.001 * np.random.default_rng(number).standard_normal(LENGTHS[number])
    _, start, end = ANSWERS[number]
    beep = slice(round(start * rate), round(end * rate))
    samples[beep] += 0.5 * np.sin(2 * np.pi * 600 * np.arange(beep.stop - beep.start) / rate)
    return samples.astype(np.float32)


def before(number: int, missing: tuple[int, ...] = ()) -> float:
    """Seconds of the sentences before one, of those that are there."""
    return sum(LENGTHS[k] for k in range(number) if k not in missing) / RATE


def row(number: int, passage: str = "0_0", question: int | None = None, **changes) -> dict:
    """A question about a sentence as dev has it: audio_full_* repeat audio_segment_*. changes: of cells; `answers` is merged."""
    text, start, end = ANSWERS[number]
    asked = number if question is None else question
    answers = {
        "text": [text] * 3,
        "answer_start": [CONTEXT.index(text, CONTEXT.index(SENTENCES[number]))] * 3,
        "audio_full_answer_start": [start],
        "audio_full_answer_end": [end],
        "audio_segment_answer_start": [start],
        "audio_segment_answer_end": [end],
        "audio_full_neg_answer_start": [],
        "audio_full_neg_answer_end": [],
    }
    changes = dict(changes)
    given = changes.pop("answers", {})
    return {
        "id": f"id-{passage}-{asked}",
        "title": "T",
        "context": CONTEXT,
        "question": f"What is answer {asked}?",
        "answers": None if given is None else answers | given,
        "content_segment_audio_path": f"context-{passage}_{number}.mp3",
        "content_full_audio_path": f"context-{passage}.mp3",
        "content_audio_sampling_rate": 22050.0,
        "content_audio_speaker": "Ivy",
        "content_segment_text": SENTENCES[number],
        "content_segment_normalized_text": SENTENCES[number],
        "question_audio_path": f"question-{passage}_{asked}.mp3",
        "question_audio_sampling_rate": 22050.0,
        "question_audio_speaker": "Joey",
        "question_normalized_text": f"What is answer {asked}?",
    } | changes


def silent_row(number: int, question: int, passage: str = "0_0") -> dict:
    """One of the 77 of dev: SQuAD's texts, and nothing else."""
    made = row(number, passage, question)
    texts = {name: made["answers"][name] for name in ("text", "answer_start")}
    nothing = {name: None for name in made if name.startswith(("content_", "question_"))}
    return made | nothing | {"answers": {name: texts.get(name) for name in made["answers"]}}


def write_table(path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    times = [
        ("audio_" + kind + "_answer_" + end, pa.list_(pa.float64()))
        for kind in ("full", "segment", "full_neg")
        for end in ("start", "end")
    ]
    answers = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int64())), *times])
    names = list(rows[0])
    types = {"answers": answers, "content_audio_sampling_rate": pa.float64(), "question_audio_sampling_rate": pa.float64()}
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema([(name, types.get(name, pa.string())) for name in names])), path)


def write_sentences(folder, passage: str = "context-0_0_{}", numbers=range(4), suffix: str = ".wav") -> None:
    for number in numbers:
        write_clip(folder / (passage.format(number) + suffix), sentence(number), 0.0, 9.0, RATE)


def write_question(folder, name: str = "question-0_0_0", suffix: str = ".wav") -> None:
    samples = (0.1 * np.sin(np.arange(RATE) / 20)).astype(np.float32)
    write_clip(folder / (name + suffix), samples, 0.0, 1.0, RATE)


def beep_of(path) -> tuple[float, float]:
    """Seconds at which the only loud part of a recording begins and ends."""
    loud = np.flatnonzero(np.abs(read_audio(path)) > 0.1)
    return loud[0] / SAMPLE_RATE, (loud[-1] + 1) / SAMPLE_RATE


def is_beep(path, start: float, end: float) -> bool:
    """Whether [start, end) seconds are a beep from the first to the last, and there is none just around them."""
    samples = np.abs(read_audio(path))
    low, high = round(start * SAMPLE_RATE), round(end * SAMPLE_RATE)
    inside, edge = samples[low:high], SAMPLE_RATE // 500
    around = np.r_[samples[max(low - 10 * edge, 0) : low - edge], samples[high + edge : high + 10 * edge]]
    return inside[:edge].max() > 0.1 and inside[-edge:].max() > 0.1 and around.max() < 0.1


def pack(folder, archive) -> None:
    """An archive of what is in a folder, which is removed."""
    import shutil

    with tarfile.open(archive, "w:gz") as tape:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tape.add(path, path.relative_to(folder.parent).as_posix())
    shutil.rmtree(folder)


def write_csv(path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_json(path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_grid(path, words, seconds: float) -> None:
    """A TextGrid of Montreal Forced Aligner with a tier of words."""
    tier = "".join(
        f'        intervals [{i}]:\n            xmin = {a}\n            xmax = {b}\n            text = "{w}"\n'
        for i, (w, a, b) in enumerate(words, 1)
    )
    head = (
        f'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = {seconds}\ntiers? <exists>\nsize = 1\nitem []:\n'
    )
    body = f'    item [1]:\n        class = "IntervalTier"\n        name = "words"\n        xmin = 0\n        xmax = {seconds}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + body + f"        intervals: size = {len(words)}\n" + tier, encoding="utf-8")


@dataclass
class Found:
    """A data report, the easy way."""

    report: dict
    split: str = "dev"
    facts: dict = field(init=False)

    def __post_init__(self):
        self.facts = self.report["splits"][self.split]

    def remarks(self, start: str) -> int:
        return sum(f["count"] for f in self.facts["found"] if f["what"].startswith(start))

    def aside(self, reason: str) -> int:
        return self.facts["set_aside"].get(reason, 0)
