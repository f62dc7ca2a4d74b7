"""`speechssl prepare miniature`: what was invented, in the layout that a corpus is published in."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import SAMPLE_RATE, resample, write_clip
from speechssl.errors import InputError
from speechssl.io import hash_json, replacing, write_json, write_text
from speechssl.synth.espeak import Spoken, Voice, speak
from speechssl.synth.minisqa import PAUSE, speakers
from speechssl.synth.minisqa_text import TextQuestion, generate_passage

# What the miniatures tell: passages and questions of MiniSQA's generator, written as published ones are, spoken by its voices.

STOPS = {"en": (".", " "), "zh": ("。", "")}  # what ends a sentence, and what stands between two


@dataclass(frozen=True)
class Asked:
    """A question that its passage answers."""

    text: str  # as it is written
    spoken: str
    answer: str
    start: int  # characters, of the answer in the context
    source: TextQuestion
    voice: Voice


@dataclass(frozen=True)
class Told:
    """A passage with its questions. written: sentences with capitals and full stops, of the same characters as those spoken."""

    split: str
    index: int
    language: str
    spoken: tuple[str, ...]
    written: tuple[str, ...]
    questions: tuple[Asked, ...]
    voice: Voice

    @property
    def context(self) -> str:
        return STOPS[self.language][1].join(self.written)

    @cached_property
    def sounds(self) -> tuple[Spoken, ...]:
        """The sentences, each with the pause after it."""
        return tuple(_with_pause(speak(sentence, self.voice)) for sentence in self.spoken)

    def times(self, question: Asked) -> tuple[float, float]:
        """Seconds of the answer from the beginning of its sentence."""
        sound, source = self.sounds[question.source.sentence], question.source
        stop = source.start + len(question.answer)
        inside = [w for w in sound.words if source.start < w.position + len(w.text) and w.position < stop]
        return inside[0].start / sound.sample_rate, inside[-1].end / sound.sample_rate

    def before(self, sentence: int) -> float:
        """Seconds of the sentences before this one."""
        return sum(len(sound.samples) for sound in self.sounds[:sentence]) / self.sounds[0].sample_rate


Content = dict[str, list[Told]]  # by split


def tell(language: str, split: str, count: int, seed: int, questions: int) -> Iterator[Told]:
    """`count` passages, each with `questions` questions that it answers; the voices and the values are those of the split alone."""
    for index in range(count):
        text = generate_passage(language, split, index, seed, questions, unanswerable=0.0)
        rng = random.Random(f"miniature {language} {split} {index} {seed}")
        voice, *others = rng.sample(speakers(language, split), k=len(speakers(language, split)))
        stop, between = STOPS[language]
        written = tuple(s[0].upper() + s[1:] + stop for s in text.sentences)
        asked = tuple(_asked(q, written, len(between), language, others[i % len(others)]) for i, q in enumerate(text.questions))
        yield Told(split, index, language, text.sentences, written, asked, voice)


def _asked(source: TextQuestion, written: Sequence[str], between: int, language: str, voice: Voice) -> Asked:
    assert source.answer is not None
    answer = written[source.sentence][source.start : source.start + len(source.answer)]
    start = sum(len(s) + between for s in written[: source.sentence]) + source.start
    text = source.text[0].upper() + source.text[1:] + ("?" if language == "en" else "？")
    return Asked(text, source.text, answer, start, source, voice)


def _with_pause(sound: Spoken) -> Spoken:
    return replace(sound, samples=np.concatenate([sound.samples, np.zeros(round(PAUSE * sound.sample_rate), np.int16)]))


def joined(told: Told) -> tuple[np.ndarray, int]:
    """The whole passage: samples (N,) int16, and their rate in Hz."""
    return np.concatenate([sound.samples for sound in told.sounds]), told.sounds[0].sample_rate


def record(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write a recording in the format of its suffix, at its own rate."""
    write_clip(path, samples, 0.0, len(samples) / rate, rate)


def misheard(words: Sequence[str], rate: float, others: Sequence[str], rng: random.Random) -> list[str]:
    """What a recogniser with about this word error rate might have written: words replaced by others, or left out."""
    heard = []
    for word in words:
        if rng.random() >= rate:
            heard.append(word)
        elif rng.random() < 0.8:
            heard.append(rng.choice(others))
    return heard


# NMSQA as its authors release it: a Parquet file a split, segments as MP3 at 22,050 Hz, and two JSON files that name them.
#
# `audio_full_*` of train and dev count from the beginning of the segment, as in the release; those of test from that of the
# passage.

PARAGRAPHS = 2  # an article
ANNOTATORS = {"train": 1, "dev": 3, "test": 1}  # who give the same text, with one time among them


def write_nmsqa(told: Content, root: Path, rng: random.Random) -> None:
    for split, passages in told.items():
        audio = root / f"{split}_audios"
        rows, questions, segments = [], {}, {}
        for t in passages:
            place = f"{t.index // PARAGRAPHS}_{t.index % PARAGRAPHS}"
            segments[place] = [str(i) for i in range(len(t.sounds))]
            for i, sound in enumerate(t.sounds):
                record(audio / f"context-{place}_{i}.mp3", sound.samples, sound.sample_rate)
            for i, question in enumerate(t.questions):
                row = _row(t, question, place, i)
                rows.append(row)
                questions[row["id"]] = f"question-{place}_{i}"
                sound = speak(question.spoken, question.voice)
                record(audio / f"question-{place}_{i}.mp3", sound.samples, sound.sample_rate)
        write_parquet(root / "data.parquet" / f"{split}.parquet", rows)
        write_json(root / f"{split}-hash2question.json", questions)
        write_json(root / f"{split}_segment_id.json", segments)


def _row(told: Told, question: Asked, place: str, number: int) -> dict[str, Any]:
    sentence, (start, end) = question.source.sentence, told.times(question)
    earlier = told.before(sentence) if told.split == "test" else 0.0
    people, rate = ANNOTATORS[told.split], float(told.sounds[0].sample_rate)
    return {
        "id": f"invented{told.split}{told.index:04d}{number:02d}",
        "title": f"Invented_{told.index // PARAGRAPHS}",
        "context": told.context,
        "question": question.text,
        "answers": {
            "answer_start": [question.start] * people,
            "audio_full_answer_end": [round(earlier + end, 2)],
            "audio_full_answer_start": [round(earlier + start, 2)],
            "audio_full_neg_answer_end": [],
            "audio_full_neg_answer_start": [],
            "audio_segment_answer_end": [round(end, 2)],
            "audio_segment_answer_start": [round(start, 2)],
            "text": [question.answer] * people,
        },
        "content_segment_audio_path": f"context-{place}_{sentence}.mp3",
        "content_full_audio_path": f"context-{place}.mp3",
        "content_audio_sampling_rate": rate,
        "content_audio_speaker": told.voice.name,
        "content_segment_text": told.written[sentence],
        "content_segment_normalized_text": told.written[sentence],
        "question_audio_path": f"question-{place}_{number}.mp3",
        "question_audio_sampling_rate": rate,
        "question_audio_speaker": question.voice.name,
        "question_normalized_text": question.text,
    }


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    lists = {name: pyarrow.list_(pyarrow.float64()) for name in rows[0].get("answers", {}) if name.startswith("audio_")}
    table = pyarrow.Table.from_pylist(rows)
    if lists:  # an empty list alone does not say of what it is one
        kinds = {"answer_start": pyarrow.list_(pyarrow.int64()), "text": pyarrow.list_(pyarrow.string())} | lists
        fields = [pyarrow.field(name, kinds[name]) for name in rows[0]["answers"]]
        place = table.schema.get_field_index("answers")
        table = pyarrow.Table.from_pylist(rows, schema=table.schema.set(place, pyarrow.field("answers", pyarrow.struct(fields))))
    with replacing(path) as temporary:
        parquet.write_table(table, temporary)


# SLUE-SQA-5 as the hub has it: Parquet files a split, recordings within, words with their times, punctuation with -1.

SPLITS = {"train": "train", "dev": "validation", "test": "test"}
VERIFIED = 1  # questions of the test set that are in its verified part too


def write_slue_sqa5(told: Content, root: Path, rng: random.Random) -> None:
    for split, passages in told.items():
        rows = [_row_of_slue_sqa5(t, question, i) for t in passages for i, question in enumerate(t.questions)]
        write_parquet(root / "sqa5" / f"{SPLITS[split]}-00000-of-00001.parquet", rows)
        if split == "test":
            write_parquet(root / "sqa5" / "verified_test-00000-of-00001.parquet", rows[:VERIFIED])


def _row_of_slue_sqa5(told: Told, question: Asked, number: int) -> dict[str, Any]:
    sound, (start, end) = speak(question.spoken, question.voice), told.times(question)
    earlier = told.before(question.source.sentence)
    return {
        "question_id": f"Invented-{told.split}-{told.index}-{number}",
        "question_audio": _audio(f"question-{told.index}-{number}.wav", sound.samples, sound.sample_rate),
        "question_speaker_id": question.voice.name,
        "raw_question_text": question.text,
        "normalized_question_text": question.spoken,
        "document_id": f"Invented_{told.split}_{told.index}",
        "document_audio": _audio(f"document-{told.index}.wav", *joined(told)),
        "document_speaker_id": told.voice.name,
        "raw_document_text": told.context,
        "normalized_document_text": " ".join(told.spoken),
        "word2time": _words(told),
        "answer_spans": {
            "answer": [question.answer.lower()],
            "start_second": [earlier + start],
            "end_second": [earlier + end],
        },
    }


def _audio(name: str, samples: np.ndarray, rate: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder) / name, resample(samples / 32768, rate, SAMPLE_RATE), SAMPLE_RATE)
        return {"bytes": (Path(folder) / name).read_bytes(), "path": name}


def _words(told: Told) -> dict[str, list[Any]]:
    """A dict of lists. Full stops are words of their own, without times."""
    found: list[tuple[str, str, float, float]] = []
    for i, (written, sound) in enumerate(zip(told.written, told.sounds, strict=True)):
        earlier, rate = told.before(i), sound.sample_rate
        for word, mark in zip(re.findall(r"[^\s.]+", written), sound.words, strict=True):
            found.append((word, mark.text, earlier + mark.start / rate, earlier + mark.end / rate))
        found.append((".", "", -1.0, -1.0))
    names = ("word", "normalized_word", "start_second", "end_second")
    return {name: list(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}


# The corpora in SQuAD's JSON: Spoken-SQuAD (transcripts with errors, two noisier tests) and ODSQA (Chinese, DRCD's schema).

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


# TOEFL-QA: a text file a question, with its whole story, its four options, and after each whether it is right.

KINDS = ("conversation", "lecture")


def write_toefl_qa(told: Content, root: Path, rng: random.Random) -> None:
    """The first question of every split has two right options, as one in seven of the published."""
    for split, passages in told.items():
        for t in passages:
            story = f"tpo_{90 + t.index}-{KINDS[t.index % len(KINDS)]}_1"
            for i, question in enumerate(t.questions):
                right = {question.source.correct} | ({(question.source.correct + 1) % 4} if t.index == i == 0 else set())
                write_text(root / "data" / split / f"{story}_{i + 1}", _file(t, question, right))


def _file(told: Told, question: Asked, right: set[int]) -> str:
    answer = question.source.options[question.source.correct]
    options = [o if i not in right or o == answer else f"it was the {answer}" for i, o in enumerate(question.source.options)]
    lines = [f"SENTENCE {sentence} ." for sentence in told.spoken] + [f"QUESTION {question.spoken}"]
    return "\n".join([*lines, *(f"OPTION {text} {int(i in right)}" for i, text in enumerate(options))]) + "\n"


CORPORA: Mapping[str, tuple[str, Callable[[Content, Path, random.Random], None]]] = {  # name -> language, writer
    "nmsqa": ("en", write_nmsqa),
    "odsqa": ("zh", write_odsqa),
    "toefl-qa": ("en", write_toefl_qa),
    "spoken-squad": ("en", write_spoken_squad),
    "slue-sqa5": ("en", write_slue_sqa5),
}
README = """# Not {name}: an invented miniature in its layout

Every passage, question and answer below was made up by a generator, every voice is espeak-ng's, every recognition error is drawn by
lot. It is there to try programs on. Nothing that is measured on it says anything about {name}.

Made by `{command}` ({hash}).
"""


@dataclass(frozen=True)
class Settings:
    """What decides the bytes."""

    corpus: str
    passages: dict[str, int] = field(default_factory=lambda: {"train": 6, "dev": 2, "test": 3})
    questions: int = 4  # a passage
    seed: int = 0

    @property
    def command(self) -> str:
        """What makes this again."""
        train, dev, test = (self.passages[split] for split in ("train", "dev", "test"))
        counts = f"--passages {train} --dev-passages {dev} --test-passages {test}"
        return f"speechssl prepare miniature {self.corpus} OUT {counts} --questions {self.questions} --seed {self.seed}"


def make_miniature(out: Path, settings: Settings) -> bool:
    """Write the tree, whole or not at all; False where it is there already.

    Raises InputError for an unknown corpus, for no passages or questions, and where `out` holds something else.
    """
    name = settings.corpus.replace("_", "-")
    if name not in CORPORA:
        raise InputError(f"there is no miniature of {settings.corpus}; choose from {', '.join(CORPORA)}")
    if min(*settings.passages.values(), settings.questions) < 1:
        raise InputError(f"cannot make `{settings.command}`; give at least one passage a split, and one question a passage")
    said = README.format(name=name, command=settings.command, hash=hash_json(asdict(settings)))
    if _is_there(out, said):
        return False
    language, write = CORPORA[name]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as temporary:
        root = Path(temporary) / "tree"
        write(_content(language, settings), root, random.Random(f"{name} {settings.seed}"))
        write_text(root / "README.md", said)
        if out.is_dir():
            out.rmdir()
        shutil.move(root, out)
    return True


def _is_there(out: Path, said: str) -> bool:
    """Raises InputError for a folder that holds something else, and for a file."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    readme = out / "README.md"
    if readme.is_file() and readme.read_text(encoding="utf-8") == said:
        return True
    raise InputError(f"{out} is there and not this miniature; choose another folder or delete it")


def _content(language: str, settings: Settings) -> dict[str, Any]:
    return {
        split: list(tell(language, split, count, settings.seed, settings.questions)) for split, count in settings.passages.items()
    }
