"""The corpora in SQuAD's JSON: Spoken-SQuAD (transcripts with errors, two noisier tests) and ODSQA (Chinese, DRCD's schema)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speechssl.artefacts import write_json
from speechssl.audio import SAMPLE_RATE, resample
from speechssl.corpora.espeak import speak
from speechssl.corpora.miniature.telling import STOPS, Content, Told, misheard, record

SPOKEN_SQUAD = {  # file -> split, word error rate, whether offsets are those of the transcript
    "spoken_train-v1.1.json": ("train", 0.227, True),
    "spoken_test-v1.1.json": ("test", 0.227, True),
    "spoken_test-v1.1_WER44.json": ("test", 0.442, False),
    "spoken_test-v1.1_WER54.json": ("test", 0.548, False),
    "dev-v1.1.json": ("test", 0.0, False),  # SQuAD's own, which is not in the release: with it there is a reference text
}
ODSQA = {"ODSQA_spokenq_test-v1.1.json": 0.191, "ODSQA_textq_test-v1.1.json": 0.0}  # file -> error rate of its questions


def write_spoken_squad(told: Content, root: Path, rng: random.Random) -> None:
    """Questions whose answer did not survive in its transcript are left out of train and test; the noisy tests keep them."""
    for name, (split, rate, offsets) in SPOKEN_SQUAD.items():
        data = [{"title": f"Invented_{t.index}", "paragraphs": [_heard(t, rate, offsets, rng)]} for t in told[split]]
        write_json(root / name, {"version": "1.1", "data": data})


def _heard(told: Told, rate: float, offsets: bool, rng: random.Random) -> dict[str, Any]:
    if not rate:
        return {"context": told.context, "qas": [_qa(told, i, q.start, q.answer) for i, q in enumerate(told.questions)]}
    while True:  # until an answer is left
        context = _transcript(told, rate, rng)
        found = [(i, q.answer.lower(), context.find(q.answer.lower())) for i, q in enumerate(told.questions)]
        kept = [(i, answer, at) for i, answer, at in found if at >= 0]
        if kept and offsets:
            return {"context": context, "qas": [_qa(told, i, at, answer) for i, answer, at in kept]}
        if kept:
            return {"context": context, "qas": [_qa(told, i, q.start, q.answer) for i, q in enumerate(told.questions)]}


def _transcript(told: Told, rate: float, rng: random.Random) -> str:
    others = [word for sentence in told.spoken for word in sentence.split()]
    return " ".join(" ".join(misheard(s.split(), rate, others, rng)) + "." for s in told.spoken)


def _qa(told: Told, number: int, start: int, answer: str) -> dict[str, Any]:
    name = f"{told.split}{told.index:04d}{number:02d}"
    return {"id": name, "question": told.questions[number].text, "answers": [{"text": answer, "answer_start": start}]}


def write_odsqa(told: Content, root: Path, rng: random.Random) -> None:
    """The two tests with contexts as a recogniser heard them, one with such questions too (one is empty), and recordings."""
    contexts = {t.index: _characters(t.spoken, 0.191, rng) for t in told["test"]}
    for name, rate in ODSQA.items():
        spoken = rate > 0
        paragraphs = [_paragraph(t, contexts[t.index], _questions(t, rate, rng)) for t in told["test"]]
        if spoken:  # as 6152-2-3, which the other file has not
            first = paragraphs[0]
            first["qas"].append({"id": f"{first['id']}-99", "question": "", "answers": first["qas"][0]["answers"]})
        data = [{"id": p["id"].split("-")[0], "title": "Invented", "paragraphs": [p]} for p in paragraphs]
        write_json(root / name, {"version": "1.3", "data": data})
    _record(told["test"], root)
    pairs = [_paragraph(t, t.context, [q.text for q in t.questions]) for t in told["train"]]
    data = [{"id": p["id"].split("-")[0], "title": "Invented", "paragraphs": [p]} for p in pairs]
    write_json(root / "DRCD-TTS" / "DRCD-TTS_train.json", {"version": "1.3", "data": data})


def _characters(sentences: Sequence[str], rate: float, rng: random.Random) -> str:
    others = list("".join(sentences))
    return "".join("".join(misheard(s, rate, others, rng)) + STOPS["zh"][0] for s in sentences)


def _questions(told: Told, rate: float, rng: random.Random) -> list[str]:
    return ["".join(misheard(q.spoken, rate, list(q.spoken), rng)) + "？" if rate else q.text for q in told.questions]


def _paragraph(told: Told, context: str, questions: Sequence[str]) -> dict[str, Any]:
    """Answers are those of the text, at the first place that the context has them, else at the place they had."""
    name = f"{9000 + told.index}-1"
    answers = [
        [{"id": "1", "text": q.answer, "answer_start": at if (at := context.find(q.answer)) >= 0 else q.start}]
        for q in told.questions
    ]
    qas = [{"id": f"{name}-{i}", "question": q, "answers": a} for i, (q, a) in enumerate(zip(questions, answers, strict=True), 1)]
    return {"id": name, "context": context, "qas": qas}


def _record(told: Sequence[Told], root: Path) -> None:
    """16 kHz, a file a sentence, a file a question."""
    for t in told:
        name = f"{9000 + t.index}-1"
        spoken = [(f"passages/{name}-{i}", sound) for i, sound in enumerate(t.sounds, 1)]
        spoken += [(f"questions/{name}-{i}", speak(q.spoken, q.voice)) for i, q in enumerate(t.questions, 1)]
        for path, sound in spoken:
            record(root / f"{path}.wav", resample(sound.samples / 32768, sound.sample_rate, SAMPLE_RATE), SAMPLE_RATE)
