"""Make a miniature: a tiny corpus of invented content in the layout of a published one, to try the
recipe of the published one.

    python tests/corpora/make.py nmsqa tiny/nmsqa
    speechssl prepare nmsqa tiny/nmsqa corpus

Passages and questions come from MiniSQA's generator. They get capitals and punctuation, and are
spoken by MiniSQA's voices. `write_CORPUS` writes them in the layout of a corpus. Short names: t is a
passage, q a question, i its number.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from speechssl.artifacts import replace_file, write_json, write_text
from speechssl.audio import SAMPLE_RATE, resample, write_clip
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import Count, Whole, argument, option
from speechssl.synth.minisqa import PAUSE, TextQuestion, generate_passage, list_split_voices
from speechssl.synth.synthesisers import Spoken, Voice, speak

# language -> (the full stop, the string between sentences)
STOPS = {"en": (".", " "), "zh": ("。", "")}


@dataclass(frozen=True)
class InventedQuestion:
    """An invented question is answered by its passage."""

    text: str  # with a capital and a question mark
    spoken: str
    answer: str
    start: int  # offset of the answer in the context
    source: TextQuestion
    voice: Voice


@dataclass(frozen=True)
class InventedPassage:
    """An invented passage has sentences, as they are spoken and as they are written, and questions.
    Characters have the same offsets in the spoken and the written form of a sentence."""

    split: str
    index: int
    language: str
    spoken: tuple[str, ...]
    written: tuple[str, ...]  # with capitals and full stops
    questions: tuple[InventedQuestion, ...]
    voice: Voice

    @property
    def context(self) -> str:
        """Join the written sentences."""
        return STOPS[self.language][1].join(self.written)

    @cached_property
    def sounds(self) -> tuple[Spoken, ...]:
        """Speak the sentences, each with the pause behind it."""
        sounds = []
        for sentence in self.spoken:
            sound = speak(sentence, self.voice)
            silence = np.zeros(round(PAUSE * sound.sample_rate), np.int16)
            sounds.append(replace(sound, samples=np.concatenate([sound.samples, silence])))
        return tuple(sounds)

    def times(self, question: InventedQuestion) -> tuple[float, float]:
        """Return start and end of the answer in seconds from the beginning of its sentence."""
        source = question.source
        sound = self.sounds[source.sentence]
        stop = source.start + len(question.answer)
        inside = []
        for word in sound.words:
            if source.start < word.position + len(word.text) and word.position < stop:
                inside.append(word)
        return inside[0].start / sound.sample_rate, inside[-1].end / sound.sample_rate

    def seconds_before(self, sentence: int) -> float:
        """Return the seconds of the sentences before the sentence with this number."""
        samples = sum(len(sound.samples) for sound in self.sounds[:sentence])
        return samples / self.sounds[0].sample_rate


Content = dict[str, list[InventedPassage]]  # split -> its passages


def invent(
    language: str, split: str, count: int, seed: int, questions: int
) -> Iterator[InventedPassage]:
    """Yield `count` passages, each with `questions` questions that it answers. Voices and values are
    those of the split, and of no other."""
    stop, between = STOPS[language]
    for index in range(count):
        text = generate_passage(language, split, index, seed, questions, unanswerable=0.0)
        rng = random.Random(f"miniature {language} {split} {index} {seed}")
        voices = list_split_voices(language, split)
        voice, *other_voices = rng.sample(voices, k=len(voices))
        written = tuple(s[0].upper() + s[1:] + stop for s in text.sentences)
        invented = []
        for i, q in enumerate(text.questions):
            assert q.answer is not None
            answer = written[q.sentence][q.start : q.start + len(q.answer)]
            start = sum(len(s) + len(between) for s in written[: q.sentence]) + q.start
            question = q.text[0].upper() + q.text[1:] + ("?" if language == "en" else "？")
            invented.append(
                InventedQuestion(
                    text=question,
                    spoken=q.text,
                    answer=answer,
                    start=start,
                    source=q,
                    voice=other_voices[i % len(other_voices)],
                )
            )
        yield InventedPassage(
            split=split,
            index=index,
            language=language,
            spoken=text.sentences,
            written=written,
            questions=tuple(invented),
            voice=voice,
        )


def record(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write a recording in the format of its suffix, at its own rate."""
    write_clip(path, samples, 0.0, len(samples) / rate, rate)


def record_at_16_khz(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write a recording at 16 kHz. samples: (N,) int16 at `rate`."""
    record(path, resample(samples / 32768, rate, SAMPLE_RATE), SAMPLE_RATE)


def add_errors(
    words: Sequence[str], rate: float, others: Sequence[str], rng: random.Random
) -> list[str]:
    """Return words as a recogniser with about this word error rate might transcribe them: of the
    errors, 80 % replace a word by one of `others`, and 20 % leave it out."""
    recognised = []
    for word in words:
        if rng.random() >= rate:
            recognised.append(word)
        elif rng.random() < 0.8:
            recognised.append(rng.choice(others))
    return recognised


# ---- NMSQA as its authors release it: a Parquet file for every split, segments as MP3 at 22,050 Hz,
# and two JSON files that name them.

PARAGRAPHS = 2  # in an article
# split -> number of annotators, who all give the same text; a question has one time
ANNOTATORS = {"train": 1, "dev": 3, "test": 1}


def write_nmsqa(content: Content, root: Path, rng: random.Random) -> None:
    """Write NMSQA. As in the release, `audio_full_*` of train and dev count from the beginning of the
    segment, and those of test from that of the passage."""
    for split, passages in content.items():
        audio = root / f"{split}_audios"
        annotators = ANNOTATORS[split]
        rows: list[dict[str, Any]] = []
        questions: dict[str, str] = {}  # id -> recording
        segments: dict[str, list[str]] = {}  # passage -> numbers of its segments
        for t in passages:
            place = f"{t.index // PARAGRAPHS}_{t.index % PARAGRAPHS}"
            segments[place] = [str(i) for i in range(len(t.sounds))]
            for i, sound in enumerate(t.sounds):
                record(audio / f"context-{place}_{i}.mp3", sound.samples, sound.sample_rate)
            for i, question in enumerate(t.questions):
                sentence = question.source.sentence
                start, end = t.times(question)
                before = t.seconds_before(sentence) if split == "test" else 0.0
                rate = float(t.sounds[0].sample_rate)
                name = f"invented{split}{t.index:04d}{i:02d}"
                answers = {
                    "answer_start": [question.start] * annotators,
                    "audio_full_answer_end": [round(before + end, 2)],
                    "audio_full_answer_start": [round(before + start, 2)],
                    "audio_full_neg_answer_end": [],
                    "audio_full_neg_answer_start": [],
                    "audio_segment_answer_end": [round(end, 2)],
                    "audio_segment_answer_start": [round(start, 2)],
                    "text": [question.answer] * annotators,
                }
                row = {
                    "id": name,
                    "title": f"Invented_{t.index // PARAGRAPHS}",
                    "context": t.context,
                    "question": question.text,
                    "answers": answers,
                    "content_segment_audio_path": f"context-{place}_{sentence}.mp3",
                    "content_full_audio_path": f"context-{place}.mp3",
                    "content_audio_sampling_rate": rate,
                    "content_audio_speaker": t.voice.name,
                    "content_segment_text": t.written[sentence],
                    "content_segment_normalized_text": t.written[sentence],
                    "question_audio_path": f"question-{place}_{i}.mp3",
                    "question_audio_sampling_rate": rate,
                    "question_audio_speaker": question.voice.name,
                    "question_normalized_text": question.text,
                }
                rows.append(row)
                questions[name] = f"question-{place}_{i}"
                sound = speak(question.spoken, question.voice)
                record(audio / f"question-{place}_{i}.mp3", sound.samples, sound.sample_rate)
        write_parquet(root / "data.parquet" / f"{split}.parquet", rows)
        write_json(root / f"{split}-hash2question.json", questions)
        write_json(root / f"{split}_segment_id.json", segments)


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a Parquet file. Lists in the column `answers` get a type, which pyarrow cannot
    infer from empty lists."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist(rows)
    if "answers" in table.column_names:
        kinds = dict.fromkeys(rows[0]["answers"], pyarrow.float64())
        kinds |= {"answer_start": pyarrow.int64(), "text": pyarrow.string()}
        lists = [(name, pyarrow.list_(kind)) for name, kind in kinds.items()]
        place = table.schema.get_field_index("answers")
        schema = table.schema.set(place, pyarrow.field("answers", pyarrow.struct(lists)))
        table = pyarrow.Table.from_pylist(rows, schema=schema)
    with replace_file(path) as temporary:
        parquet.write_table(table, temporary)


# ---- SLUE-SQA-5 as the hub has it: Parquet files with recordings in their cells. Words have times,
# those of punctuation are -1.

SPLITS = {"train": "train", "dev": "validation", "test": "test"}  # split -> its name in files
VERIFIED = 1  # the first questions of the test set are in verified_test too


def audio_cell(name: str, samples: np.ndarray, rate: int) -> dict[str, Any]:
    """Return a recording as the content of a table's cell."""
    with tempfile.TemporaryDirectory() as folder:
        record_at_16_khz(Path(folder) / name, samples, rate)
        return {"bytes": (Path(folder) / name).read_bytes(), "path": name}


def write_slue_sqa5(content: Content, root: Path, rng: random.Random) -> None:
    """Write SLUE-SQA-5."""
    for split, passages in content.items():
        rows = []
        for t in passages:
            words: list[tuple[str, str, float, float]] = []
            for i, (written, sound) in enumerate(zip(t.written, t.sounds, strict=True)):
                before, rate = t.seconds_before(i), sound.sample_rate
                for word, mark in zip(re.findall(r"[^\s.]+", written), sound.words, strict=True):
                    start, end = before + mark.start / rate, before + mark.end / rate
                    words.append((word, mark.text, start, end))
                words.append((".", "", -1.0, -1.0))
            columns = ("word", "normalized_word", "start_second", "end_second")
            samples = np.concatenate([sound.samples for sound in t.sounds])
            document = audio_cell(f"document-{t.index}.wav", samples, t.sounds[0].sample_rate)
            for number, question in enumerate(t.questions):
                sound = speak(question.spoken, question.voice)
                start, end = t.times(question)
                before = t.seconds_before(question.source.sentence)
                name = f"question-{t.index}-{number}.wav"
                row = {
                    "question_id": f"Invented-{split}-{t.index}-{number}",
                    "question_audio": audio_cell(name, sound.samples, sound.sample_rate),
                    "question_speaker_id": question.voice.name,
                    "raw_question_text": question.text,
                    "normalized_question_text": question.spoken,
                    "document_id": f"Invented_{split}_{t.index}",
                    "document_audio": document,
                    "document_speaker_id": t.voice.name,
                    "raw_document_text": t.context,
                    "normalized_document_text": " ".join(t.spoken),
                    "word2time": dict(
                        zip(columns, map(list, zip(*words, strict=True)), strict=True)
                    ),
                    "answer_spans": {
                        "answer": [question.answer.lower()],
                        "start_second": [before + start],
                        "end_second": [before + end],
                    },
                }
                rows.append(row)
        write_parquet(root / "sqa5" / f"{SPLITS[split]}-00000-of-00001.parquet", rows)
        if split == "test":
            write_parquet(root / "sqa5" / "verified_test-00000-of-00001.parquet", rows[:VERIFIED])


# ---- The corpora in SQuAD's JSON: Spoken-SQuAD (transcripts with errors, two noisier tests) and
# ODSQA (Chinese, DRCD's schema).

# file -> split, word error rate, whether offsets refer to the transcript (else to the true text)
SPOKEN_SQUAD = {
    "spoken_train-v1.1.json": ("train", 0.227, True),
    "spoken_test-v1.1.json": ("test", 0.227, True),
    "spoken_test-v1.1_WER44.json": ("test", 0.442, False),
    "spoken_test-v1.1_WER54.json": ("test", 0.548, False),
    # SQuAD's own file, which is not in the release: it has the true texts
    "dev-v1.1.json": ("test", 0.0, False),
}
# file -> character error rate of its questions
ODSQA = {"ODSQA_spokenq_test-v1.1.json": 0.191, "ODSQA_textq_test-v1.1.json": 0.0}


def write_spoken_squad(content: Content, root: Path, rng: random.Random) -> None:
    """Write Spoken-SQuAD. Train and test leave out questions whose answer is not in the transcript;
    the noisy tests keep them."""
    for name, (split, rate, offsets) in SPOKEN_SQUAD.items():
        data = []
        for t in content[split]:
            context = t.context
            answers = [(i, q.start, q.answer) for i, q in enumerate(t.questions)]
            others = [word for sentence in t.spoken for word in sentence.split()]
            while rate:  # draw errors until the transcript has at least one answer
                sentences = []
                for sentence in t.spoken:
                    words = add_errors(sentence.split(), rate, others, rng)
                    sentences.append(" ".join(words) + ".")
                context = " ".join(sentences)
                surviving = []
                for i, _, answer in answers:
                    if answer.lower() in context:
                        surviving.append((i, context.index(answer.lower()), answer.lower()))
                if surviving:
                    answers = surviving if offsets else answers
                    break
            qas = [
                {
                    "id": f"{split}{t.index:04d}{i:02d}",
                    "question": t.questions[i].text,
                    "answers": [{"text": answer, "answer_start": start}],
                }
                for i, start, answer in answers
            ]
            data.append(
                {"title": f"Invented_{t.index}", "paragraphs": [{"context": context, "qas": qas}]}
            )
        write_json(root / name, {"version": "1.1", "data": data})


def write_odsqa(content: Content, root: Path, rng: random.Random) -> None:
    """Write ODSQA: two tests whose contexts are transcripts with errors, their recordings, and
    DRCD-TTS. The questions of one test are transcripts too, and one of them is empty."""

    def make_article(t: InventedPassage, context: str, questions: Sequence[str]) -> dict[str, Any]:
        """Make an article with one paragraph. The offset of an answer is that of its first
        occurrence in the context, or in the true text where the context does not have it."""
        name = f"{9000 + t.index}-1"
        qas = []
        for i, (text, q) in enumerate(zip(questions, t.questions, strict=True), 1):
            offset = context.find(q.answer)
            start = offset if offset >= 0 else q.start
            qas.append(
                {
                    "id": f"{name}-{i}",
                    "question": text,
                    "answers": [{"id": "1", "text": q.answer, "answer_start": start}],
                }
            )
        paragraph = {"id": name, "context": context, "qas": qas}
        return {"id": name.split("-")[0], "title": "Invented", "paragraphs": [paragraph]}

    contexts = []
    for t in content["test"]:
        others = list("".join(t.spoken))
        context = ""
        for sentence in t.spoken:
            context += "".join(add_errors(sentence, 0.191, others, rng)) + STOPS["zh"][0]
        contexts.append(context)
    for name, rate in ODSQA.items():
        data = []
        for t, context in zip(content["test"], contexts, strict=True):
            texts = []
            for q in t.questions:
                if rate:
                    transcript = add_errors(q.spoken, rate, list(q.spoken), rng)
                    texts.append("".join(transcript) + "？")
                else:
                    texts.append(q.text)
            data.append(make_article(t, context, texts))
        if rate:  # an empty question that the other file lacks, such as 6152-2-3 of the release
            first = data[0]["paragraphs"][0]
            first["qas"].append(
                {"id": f"{first['id']}-99", "question": "", "answers": first["qas"][0]["answers"]}
            )
        write_json(root / name, {"version": "1.3", "data": data})
    for t in content["test"]:  # a file for every sentence and every question, at 16 kHz
        name = f"{9000 + t.index}-1"
        spoken = [(f"passages/{name}-{i}", sound) for i, sound in enumerate(t.sounds, 1)]
        spoken += [
            (f"questions/{name}-{i}", speak(q.spoken, q.voice))
            for i, q in enumerate(t.questions, 1)
        ]
        for path, sound in spoken:
            record_at_16_khz(root / f"{path}.wav", sound.samples, sound.sample_rate)
    data = [make_article(t, t.context, [q.text for q in t.questions]) for t in content["train"]]
    write_json(root / "DRCD-TTS" / "DRCD-TTS_train.json", {"version": "1.3", "data": data})


# ---- The corpora whose questions alone are spoken: SQuAD-SRC (SQuAD's files, lists of recordings)
# and SD-QA (TyDi's lines, a folder for every dialect).

DIALECTS = {"usa": "US", "gbr": "GB"}  # dialect -> region of its recogniser


def record_question(path: Path, question: InventedQuestion) -> None:
    """Speak a question and write its recording."""
    sound = speak(question.spoken, question.voice)
    record_at_16_khz(path, sound.samples, sound.sample_rate)


def write_squad_src(content: Content, root: Path, rng: random.Random) -> None:
    """Write SQuAD-SRC. The names of recordings have their number and their speaker."""
    speakers: dict[str, int] = {}  # name of a voice -> its number
    for split in ("train", "dev"):
        data: list[dict[str, Any]] = []
        lines: list[str] = []
        for t in content[split]:
            qas = []
            for i, q in enumerate(t.questions):
                name = f"{split}{t.index:04d}{i:02d}"
                number = f"{split.upper()}{len(lines) + 1:06d}"
                lines.append(f"{number}\t{name}")
                answers = [{"text": q.answer, "answer_start": q.start}]
                qas.append({"id": name, "question": q.text, "answers": answers})
                speaker = speakers.setdefault(q.voice.name, len(speakers) + 1)
                record_question(root / split / f"{number}_SPK{speaker:03d}.wav", q)
            paragraph = {"context": t.context, "qas": qas}
            data.append({"title": f"Invented_{t.index}", "paragraphs": [paragraph]})
        write_json(root / f"{split}-v1.1.json", {"version": "1.1", "data": data})
        write_text(root / f"fid2qid_{split}.csv", "\r\n".join(lines))


def write_sd_qa(content: Content, root: Path, rng: random.Random) -> None:
    """Write SD-QA: the same questions in two dialects of English."""
    for split in ("dev", "test"):
        folder = root / split / "eng"
        questions = [(t, i, q) for t in content[split] for i, q in enumerate(t.questions)]
        written = [f"-{t.index + 1}{i:03d}\tFalse\t{q.text}" for t, i, q in questions]
        write_text(folder / f"english.{split}.txt", "\n".join(written) + "\n")
        for dialect, region in DIALECTS.items():
            lines: list[str] = []
            speakers = [",example_id,user_id,region,language,audio_file"]
            for t, i, q in questions:
                name = f"-{t.index + 1}{i:03d}"
                words = q.spoken.split()
                first = len(t.context[: q.start].encode())
                span = {
                    "plaintext_start_byte": first,
                    "plaintext_end_byte": first + len(q.answer.encode()),
                }
                annotation = {"minimal_answer": span, "passage_answer": {"candidate_index": 0}}
                line = {
                    "annotations": [annotation | {"yes_no_answer": "NONE"}],
                    "document_plaintext": t.context,
                    "document_title": f"Invented {t.index}",
                    "example_id": int(name),
                    "language": "english",
                    "question_text": " ".join(add_errors(words, 0.2, words, rng)),
                }
                lines.append(json.dumps(line))
                audio = f"wav_eng/{name}.wav"
                speakers.append(f"{len(lines) - 1},{name},{q.voice.name},{dialect},eng,{audio}")
                record_question(folder / dialect / audio, q)
            path = folder / dialect / f"english.{split}.{dialect}-en-{region}.jsonl.gz"
            text = "\n".join(lines).encode()
            path.write_bytes(gzip.compress(text, mtime=0))
            write_text(folder / dialect / "metadata.csv", "\n".join(speakers) + "\n")


# ---- TOEFL-QA: a text file for every question, with its whole story and four options, each with 1
# behind it if it is right, and otherwise 0.

KINDS = ("conversation", "lecture")


def write_toefl_qa(content: Content, root: Path, rng: random.Random) -> None:
    """Write TOEFL-QA. The first question of every split has two right options, as one in seven of the
    published questions has."""
    for split, passages in content.items():
        for t in passages:
            story = f"tpo_{90 + t.index}-{KINDS[t.index % len(KINDS)]}_1"
            for i, question in enumerate(t.questions):
                correct = question.source.correct
                options = list(question.source.options)
                right = {correct}
                if t.index == 0 and i == 0:
                    other = (correct + 1) % 4
                    right.add(other)
                    options[other] = f"it was the {options[correct]}"
                lines = [f"SENTENCE {sentence} ." for sentence in t.spoken] + [
                    f"QUESTION {question.spoken}"
                ]
                lines += [f"OPTION {text} {int(k in right)}" for k, text in enumerate(options)]
                write_text(root / "data" / split / f"{story}_{i + 1}", "\n".join(lines) + "\n")


class Release(NamedTuple):
    """A release is a published corpus, in whose layout `write` writes a miniature."""

    language: str
    write: Callable[[Content, Path, random.Random], None]
    has_recordings: bool = False
    has_times: bool = False  # of all answers


CORPORA: Mapping[str, Release] = {
    "nmsqa": Release("en", write_nmsqa, has_recordings=True, has_times=True),
    "odsqa": Release("zh", write_odsqa, has_recordings=True),
    "toefl-qa": Release("en", write_toefl_qa),
    "spoken-squad": Release("en", write_spoken_squad),
    "slue-sqa5": Release("en", write_slue_sqa5, has_recordings=True, has_times=True),
    "squad-src": Release("en", write_squad_src, has_recordings=True),
    "sd-qa": Release("en", write_sd_qa, has_recordings=True),
}
README = """# Not {o.corpus}: an invented miniature in its layout

Every passage, question and answer below was made up by a generator, every voice is espeak-ng's, every recognition error is drawn by
lot. It is there to try programs on. Nothing that is measured on it says anything about {o.corpus}.

Passages: {o.passages} train, {o.dev_passages} dev, {o.test_passages} test, with {o.questions} questions each; seed {o.seed}.
"""


@dataclass(frozen=True, kw_only=True)
class Miniature:
    """make a tiny invented corpus in the layout of a published one, to try its recipe

    Passages and questions are MiniSQA's, the speech is espeak-ng's: results on it say nothing about
    the corpus. Finished work is kept.

      python tests/corpora/make.py nmsqa tiny/nmsqa
      speechssl prepare nmsqa tiny/nmsqa corpus
    """

    corpus: str = argument(f"the published corpus: {', '.join(CORPORA)}")
    out: Path = argument("folder to make")
    passages: Count = option(6, "number of training passages")
    dev_passages: Count = option(2, "number of development passages")
    test_passages: Count = option(3, "number of test passages")
    questions: Count = option(4, "questions per passage")
    seed: Whole = option(0, "seed of texts and voices; the same seed gives the same bytes")


def make_miniature(o: Miniature) -> None:
    """Write the miniature, whole or not at all. A finished miniature is left alone.

    Raises InputError for an unknown corpus, and where `out` holds something else.
    """
    if o.corpus not in CORPORA:
        raise InputError(f"there is no miniature of {o.corpus}; choose from {', '.join(CORPORA)}")
    readme = README.format(o=o)
    is_empty = o.out.is_dir() and not any(o.out.iterdir())
    if o.out.exists() and not is_empty:
        written_readme = o.out / "README.md"
        if written_readme.is_file() and written_readme.read_text(encoding="utf-8") == readme:
            print(f"{o.out}: an invented miniature of {o.corpus} (there already)")
            return
        raise InputError(
            f"{o.out} exists and is not this miniature; choose another folder or delete it"
        )
    release = CORPORA[o.corpus]
    counts = {"train": o.passages, "dev": o.dev_passages, "test": o.test_passages}
    content: Content = {}
    for split, count in counts.items():
        content[split] = list(invent(release.language, split, count, o.seed, o.questions))
    o.out.parent.mkdir(parents=True, exist_ok=True)
    parent = o.out.resolve().parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{o.out.name}-") as temporary:
        release.write(content, Path(temporary), random.Random(f"{o.corpus} {o.seed}"))
        # an existing folder stays: it may be a link, or the working folder
        o.out.mkdir(exist_ok=True)
        for path in Path(temporary).iterdir():
            shutil.move(path, o.out)
    write_text(o.out / "README.md", readme)
    sizes = ", ".join(f"{number} {split}" for split, number in counts.items())
    print(f"{o.out}: an invented miniature of {o.corpus}, {sizes} passages")


if __name__ == "__main__":
    sys.exit(script(make_miniature, Miniature))
