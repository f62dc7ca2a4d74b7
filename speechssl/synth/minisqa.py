"""The spoken half of MiniSQA: every passage and question of the text generator read by a synthetic voice.

A passage is read by one speaker sentence by sentence with short pauses; each of its questions by another speaker of the same
split. With `reference=True` every training passage is read a second time by one neutral voice, with time anchors between the two
readings: what a perfect voice converter would give (the teacher of ContentVec, arXiv 2204.09224, section 3.1).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.prepare import begin_folder, in_parallel, write_lines
from speechssl.data.records import Answer, Passage, Question, Span, compact, data_hash
from speechssl.errors import InputError
from speechssl.io import read_json, write_json
from speechssl.synth.espeak import Voice
from speechssl.synth.minisqa_text import generate_passage
from speechssl.synth.synthesisers import speak, voices

VERSION = 2  # of the generator; part of the card, so that corpora of different generators are never mixed up
PAUSE = 0.25  # seconds between sentences
SPLITS = ("train", "dev", "test")
ESPEAK = "espeak-ng"
LANGUAGES = {"en": "en-us", "zh": "cmn"}

# The speakers: espeak-ng variants, each with its own rate and pitch, disjoint between the splits. The split of a speaker does not
# depend on the seed of a corpus, so that a model trained on one corpus never had the test speakers of another. Variants that
# whisper, buzz or read as a robot are left out, and so are six (f2, f3, f5, Alicia, sandro, victor) whose samples differ from run
# to run (espeak-ng reads uninitialised memory for them).
_VARIANTS = {
    "train": (
        "Alex Andy Annie Denis Diogo Gene Henrique Hugo Jacky Lee Mario Michael Mike Nguyen Reed Storm adam announcer "
        "aunty belinda boris ed edward f1 grandma gustave ian iven2 klatt klatt3 linda m1 m2 m4 m6 m8 marcelo max miguel "
        "norbert pablo quincy robert shelby steph travis zac pedro"
    ),
    "dev": "david f4 klatt5 m3 Marco steph2 antonio john",
    "test": "caleb grandpa klatt6 m5 m7 paul rob Andrea",
}
_RATES = (150, 165, 180, 195, 210)
_PITCHES = (35, 50, 65, 42, 58, 72, 28)
_RANGES = (40, 55, 70)


def speakers(language: str, split: str, synthesiser: str = ESPEAK) -> tuple[Voice, ...]:
    """The voices of a split; those of a synthesiser other than espeak-ng are few, and the same in every split.

    Raises InputError for an unknown language, split or synthesiser.
    """
    if language not in LANGUAGES:
        raise InputError(f"MiniSQA has no language {language!r}; it has {', '.join(LANGUAGES)}")
    if synthesiser != ESPEAK:
        if language != "en":
            raise InputError(f"{synthesiser} speaks English only; leave out --synthesiser for the language {language}")
        return voices(synthesiser)
    if split not in _VARIANTS:
        raise InputError(f"MiniSQA has no split {split!r}; it has {', '.join(_VARIANTS)}")
    ways = zip(_VARIANTS[split].split(), cycle(_RATES), cycle(_PITCHES), cycle(_RANGES), strict=False)
    tag = LANGUAGES[language]
    return tuple(Voice(f"{language}-{name.lower()}", tag, name, rate, pitch, spread) for name, rate, pitch, spread in ways)


@dataclass(frozen=True)
class Settings:
    """What decides the bytes of a corpus."""

    language: str
    passages: dict[str, int]  # number of passages by split
    seed: int
    questions: int = 5  # a passage
    unanswerable: float = 0.1  # share of questions the passage does not answer
    reference: bool = False  # read the training passages a second time by the neutral voice
    synthesiser: str = ESPEAK

    @property
    def command(self) -> str:
        """What makes this corpus again."""
        train, dev, test = (self.passages[split] for split in SPLITS)
        counts = f"--passages {train} --dev-passages {dev} --test-passages {test}"
        other = f"--questions {self.questions} --unanswerable {self.unanswerable}" + " --reference" * self.reference
        other += f" --synthesiser {self.synthesiser}" if self.synthesiser != ESPEAK else ""
        return f"speechssl prepare minisqa OUT --language {self.language} {counts} {other} --seed {self.seed}"


@dataclass(frozen=True)
class Reading:
    """Sentences read by one voice: samples at 16 kHz, and marks in seconds."""

    samples: np.ndarray
    words: tuple[Span, ...]
    phones: tuple[Span, ...]
    characters: tuple[int, ...]  # offset of every word in the joined text


def prepare(out: Path | str, settings: Settings, workers: int = 1) -> dict[str, Any]:
    """Write the corpus to `out` and return its card. A finished corpus is left alone; a killed run goes on where it was.

    The bytes depend on the settings only, not on `workers`. Raises InputError when `out` holds a corpus of other settings, for an
    unknown language, or unless there is a number of passages for every split.
    """
    out = Path(out)
    speakers(settings.language, SPLITS[0], settings.synthesiser)
    if settings.reference and settings.synthesiser != ESPEAK:
        raise InputError("the second reading of --reference is espeak-ng's; leave it out for another synthesiser")
    if sorted(settings.passages) != sorted(SPLITS):
        raise InputError(f"the numbers of passages are for {', '.join(settings.passages)}; give them for {', '.join(SPLITS)}")
    if min(settings.passages.values()) < 0 or settings.questions < 1 or not 0 <= settings.unanswerable <= 1:
        raise InputError(f"cannot make `{settings.command}`; give counts from 0, at least one question, and a share from 0 to 1")
    decisive = asdict(settings)
    if settings.synthesiser == ESPEAK:
        del decisive["synthesiser"]
    wanted = {"corpus": "minisqa", "version": VERSION, "settings": decisive}
    begin_folder(out, wanted, "MiniSQA")
    if (out / "card.json").is_file():
        return read_json(out / "card.json")
    for split in SPLITS:
        folder, parts = out / split, out / split / "parts"
        if not (folder / "questions.jsonl").is_file():
            numbers = range(settings.passages[split])
            jobs = [(out, split, i, settings) for i in numbers if not (parts / f"{i:06d}.json").is_file()]
            spoken = in_parallel(_speak_passage, jobs, workers)
            for _ in tqdm(spoken, total=len(jobs), desc=f"speaking {split}", unit="passage", disable=not jobs):
                pass
            records = [read_json(parts / f"{i:06d}.json") for i in numbers]
            if settings.reference and split == "train":
                write_lines(folder / "reference.jsonl", [r["reference"] for r in records])
            write_lines(folder / "passages.jsonl", [r["passage"] for r in records])
            write_lines(folder / "questions.jsonl", [q for r in records for q in r["questions"]])
        shutil.rmtree(parts, ignore_errors=True)
    card = wanted | {
        "made_by": settings.command,
        "manifests": {split: data_hash(out, split) for split in SPLITS},
        "synthetic": f"speech by {settings.synthesiser}",
        "licence": "Apache-2.0 (text of speechssl's generator)",
    }
    write_json(out / "card.json", card)
    return card


def _speak_passage(job: tuple[Path, str, int, Settings]) -> None:
    """Speak one passage with its questions; the record file is written last and marks it as done."""
    out, split, index, settings = job
    text = generate_passage(settings.language, split, index, settings.seed, settings.questions, settings.unanswerable)
    rng = random.Random(f"speakers {settings.language} {split} {index} {settings.seed}")
    every = speakers(settings.language, split, settings.synthesiser)
    readers = rng.sample(every, k=len(every))
    joiner = "" if settings.language == "zh" else " "
    reading = _read(text.sentences, readers[0], joiner)
    name = f"{split}-{index:06d}"
    passage = Passage(
        id=name,
        audio=f"{split}/audio/{name}.flac",
        seconds=len(reading.samples) / SAMPLE_RATE,
        text=joiner.join(text.sentences),
        speaker=readers[0].name,
        language=settings.language,
        words=reading.words,
        phones=reading.phones,
    )
    write_flac(out / passage.audio, reading.samples)
    record: dict[str, Any] = {"passage": compact(asdict(passage)), "questions": []}
    for number, question in enumerate(text.questions):
        voice = readers[1 + number % (len(readers) - 1)] if len(readers) > 1 else readers[0]
        spoken = _read((question.text,), voice, joiner)
        answers: tuple[Answer, ...] = ()
        if question.answer is not None:  # from the beginning of its first word to the end of its last
            start = sum(len(s) + len(joiner) for s in text.sentences[: question.sentence]) + question.start
            end, words = start + len(question.answer), zip(reading.words, reading.characters, strict=True)
            inside = [w for w, c in words if start < c + len(w.text) and c < end]
            begin, stop = (round(inside[0].start, 5), round(inside[-1].end, 5)) if inside else (None, None)  # piper gives none
            answers = (Answer(question.answer, begin, stop, start),)
        item = Question(
            id=f"{name}-{number}",
            passage=name,
            audio=f"{split}/audio/{name}-{number}.flac",
            seconds=len(spoken.samples) / SAMPLE_RATE,
            text=question.text,
            speaker=voice.name,
            language=settings.language,
            answers=answers,
            options=question.options,
            correct=(question.correct,) if question.options else (),
            relation=question.relation,
            words=spoken.words,
            phones=spoken.phones,
        )
        write_flac(out / item.audio, spoken.samples)
        record["questions"].append(compact(asdict(item)))
    if settings.reference and split == "train":
        # espeak-ng's own voice at this voice's rate, which is nobody's in the corpus: what a perfect voice converter would give;
        # anchors are [seconds in the passage, seconds in this reading]
        voice = Voice("reference", readers[0].language, "", rate=readers[0].rate, pitch=50, range=50)
        neutral, audio = _read(text.sentences, voice, joiner), f"train/reference/{name}.flac"
        write_flac(out / audio, neutral.samples)
        same = [p.text for p in reading.phones] == [p.text for p in neutral.phones]
        pairs = zip(reading.phones, neutral.phones, strict=True) if same else zip(reading.words, neutral.words, strict=True)
        anchors = [[0.0, 0.0]] + [[round(a.start, 5), round(b.start, 5)] for a, b in pairs]
        anchors.append([len(reading.samples) / SAMPLE_RATE, len(neutral.samples) / SAMPLE_RATE])
        record["reference"] = {"id": name, "audio": audio, "anchors": anchors}
    write_json(out / split / "parts" / f"{index:06d}.json", record)


def _read(sentences: Sequence[str], voice: Voice, joiner: str) -> Reading:
    """Read the sentences one after another, PAUSE seconds apart."""
    pieces: list[np.ndarray] = []
    words: list[Span] = []
    phones: list[Span] = []
    characters: list[int] = []
    position, offset = 0, 0  # samples, characters
    for sentence in sentences:
        spoken = speak(sentence, voice)
        for spans, marks in ((words, spoken.words), (phones, spoken.phones)):
            spans += [Span(m.text, *((position + place) / spoken.sample_rate for place in (m.start, m.end))) for m in marks]
        characters += [offset + m.position for m in spoken.words]
        silence = np.zeros(round(PAUSE * spoken.sample_rate), np.int16)
        pieces += [spoken.samples, silence]
        position += len(spoken.samples) + len(silence)
        offset += len(sentence) + len(joiner)
    samples = np.concatenate(pieces).astype(np.float32) / 32768
    return Reading(resample(samples, spoken.sample_rate, SAMPLE_RATE), tuple(words), tuple(phones), tuple(characters))


def speak_pairs(language: str, split: str, count: int, seed: int = 0) -> Iterator[tuple[Reading, Reading]]:
    """`count` different questions, each spoken by two voices of the split, for the same-text distance."""
    for index in range(count):
        question = generate_passage(language, split, index, seed).questions[0]
        voices = random.Random(f"pair {language} {split} {index} {seed}").sample(speakers(language, split), k=2)
        first, second = (_read((question.text,), voice, "") for voice in voices)
        yield first, second
