"""`speechssl align`: a prepared corpus again, with times of its words and answers from its texts and recordings.

Words are those of the text (of the transcript where there is no text) as they are spelt there. What has times keeps them;
recordings stay where they are. What is not spoken as it is written is set aside, or gets no times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cascade.align import CONTEXT, Aligner, Alignment, is_spoken, load_aligner
from speechssl.data.files import safe_name
from speechssl.data.prepare import PARTS, UNTIMED, UNUSABLE, Kind, PrepareReport, SplitRecords, write_corpus
from speechssl.data.records import INVENTED, TOLERANCE, Corpus, Passage, Question, Span, data_hash, load_corpus, locate
from speechssl.data.squad import places, touched
from speechssl.encoders.load import single_threaded
from speechssl.errors import InputError
from speechssl.io import CARD, read_json, read_lines, stage, write_json, write_lines
from speechssl.text import language_of, pieces

VERSION = 1  # of how words are aligned
SPELT = 0.5  # least share of a text's letters that a recogniser must be able to write
PASSAGES, REFERENCE = "passages.jsonl", "reference.jsonl"
GIVE = "give a prepared corpus, a split of one, or the passages.jsonl of a split"
NO_RECORDING = "it has no recording"
NO_TEXT = "nothing that could be spoken is written of it"
UNFIT = "its text does not fit into its recording"
OTHER_TEXT = "its text is not what its recording says (low confidence)"
LOST = "its passage is set aside"
FOREIGN_WORDS = "answers of passages whose words are not those of their text"
SILENT = "answers of which nothing is spoken"
UNRECOGNISED = "answers whose words are not recognised in their place (low confidence)"
Record = Passage | Question


@dataclass(frozen=True)
class AlignedSplit:
    """Aligns one split into the folder `out`, a file a recording in its PARTS, which a killed run finds again."""

    data: Corpus
    out: Path
    aligner: Aligner
    confidence: float  # the least that counts as aligned

    def part(self, kind: Kind, record: Record) -> dict[str, Any]:
        """Words with their losses and symbols, and the length of the recording in seconds; or the reason why there are none."""
        path = self.out / self.data.split / PARTS / f"{kind[0]}-{safe_name(record.id)}.json"
        if path.is_file():
            return dict(read_json(path))
        part: dict[str, Any]
        try:
            samples = read_audio(self.data.path(record))
            found = self.aligner.align(samples, spoken_words(record))
        except InputError as error:
            part = {"reason": UNUSABLE, "why": str(error)}
        except ValueError as error:
            part = {"reason": UNFIT, "why": str(error)}
        else:
            confidence = round(found.confidence(), 4)
            part = {"confidence": confidence}
            if confidence < self.confidence:
                part["reason"] = OTHER_TEXT
            else:
                part["seconds"] = len(samples) / SAMPLE_RATE
                part["words"] = [[w.text, round(w.start, 5), round(w.end, 5)] for w in found.words]
                part |= {"losses": found.losses.round(3).tolist(), "symbols": found.symbols.tolist()}
        write_json(path, part)
        return part

    def records(self, report: PrepareReport, workers: int) -> SplitRecords:
        """The records with times. workers: threads."""
        data, split = self.data, self.data.split
        every: list[tuple[Kind, Record]] = [("passages", p) for p in data.passages.values()]
        every += [("questions", q) for q in data.questions]
        jobs = [(kind, record) for kind, record in every if record.audio and not record.words and spoken_words(record)]
        with single_threaded(workers) as pool:
            made = pool.map(lambda job: self.part(*job), jobs)
            shown = tqdm(made, f"aligning {split}", len(jobs), unit="recording", disable=not jobs)
            parts = {(kind, record.id): part for (kind, record), part in zip(jobs, shown, strict=True)}
        if sure := [part["confidence"] for part in parts.values() if "words" in part]:
            done = f"aligned by {self.aligner.name}; confidence {median(sure):.2f} (median), {min(sure):.2f} (least)"
            report.remark(split, "recordings whose words had no times", done, len(sure))

        passages: dict[str, Passage] = {}
        alignments: dict[str, Alignment] = {}
        for p in data.passages.values():
            report.count(split, "passages")
            part = parts.get(("passages", p.id), {})
            if not p.words and "words" not in part:
                why = part or {"reason": NO_TEXT if p.audio else NO_RECORDING}
                report.set_aside(split, "passages", p.id, **why)
                continue
            passages[p.id] = self.moved(p, part)
            if part:
                losses, symbols = np.array(part["losses"]), np.array(part["symbols"])
                alignments[p.id] = Alignment(passages[p.id].words, losses, symbols)
        questions = []
        for q in data.questions:
            report.count(split, "questions")
            part = parts.get(("questions", q.id), {})
            if q.passage not in passages:
                report.set_aside(split, "questions", q.id, LOST)
            elif "reason" in part:
                report.set_aside(split, "questions", q.id, **part)
            else:
                questions.append(self.answered(self.moved(q, part), passages[q.passage], alignments.get(q.passage), report))
        return SplitRecords(tuple(passages.values()), questions)

    def moved(self, record: Any, part: Mapping[str, Any]) -> Any:
        """A record with its words, and paths that hold in another folder."""
        root = self.data.root.resolve()
        found = replace(record, audio=str(root / record.audio) if record.audio else "")
        if isinstance(record, Question):
            found = replace(found, option_audio=tuple(str(root / audio) for audio in record.option_audio))
        if "words" in part:
            long = abs(part["seconds"] - record.seconds) > TOLERANCE  # a header may only estimate the length
            seconds = part["seconds"] if long else record.seconds
            found = replace(found, words=tuple(Span(*word) for word in part["words"]), seconds=seconds)
        return found

    def answered(self, question: Question, passage: Passage, alignment: Alignment | None, report: PrepareReport) -> Question:
        """The question with times of its answers. alignment: None where the passage had its words before."""
        spoken = places(passage.written, passage.words)
        answers = []
        for answer in question.answers:
            if answer.start is not None:
                answers.append(answer)
                continue
            place, why = locate(answer, passage.written, language_of(question.language))
            inside = touched(spoken, *place) if place and spoken is not None else None
            if inside is None:
                why = why or (SILENT if spoken is not None else FOREIGN_WORDS)
            elif alignment and alignment.confidence(max(inside[0] - CONTEXT, 0), inside[1] + CONTEXT) < self.confidence:
                why = UNRECOGNISED
            if inside is None or why:
                report.remark(self.data.split, why, UNTIMED)
                answers.append(answer)
            else:
                report.remark(self.data.split, "answers that had no times", "now timed, from the first to the last of their words")
                answers.append(replace(answer, start=passage.words[inside[0]].start, end=passage.words[inside[1]].end))
        return replace(question, answers=tuple(answers))


def spoken_words(record: Record) -> list[str]:
    """The words of what is written (zh: characters), as they stand there, without those that are punctuation alone."""
    return [word for word, _ in pieces(record.written, record.language) if any(map(is_spoken, word))]


def align_corpus(
    manifest: Path, out: Path | None, models: str, recogniser: str, confidence: float, workers: int = 1
) -> tuple[Path, dict[str, Any]]:
    """Write a corpus with times, and return its folder and data report.

    manifest: a prepared corpus, a split of one, or the passages.jsonl of a split; out: None for CORPUS-aligned beside the
    corpus; models, recogniser: see `load_aligner`; confidence: below which a recording is set aside, 0 to 1; workers: threads.
    A killed run continues. Raises InputError for a corpus without recordings, texts or anything to align, for a recogniser of
    another language, where nothing could be aligned, and where `out` holds something else.
    """
    root, splits = find_splits(manifest)
    if out is None:
        out = root.parent / f"{root.name}-aligned"
        out = out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out  # as people would write it
    data = {split: load_corpus(root, split) for split in splits}
    language = check_corpus(manifest, list(data.values()))
    aligner = load_aligner(models, recogniser, language)
    text = "".join(word for corpus in data.values() for p in corpus.passages.values() for word in spoken_words(p))
    if (share := aligner.spells(text)) < SPELT:
        raise InputError(
            f"{aligner.name} can write only {share:.0%} of the letters of {manifest} (language {language}); "
            "give a recogniser of this language with --recogniser"
        )
    source = {"source": str(root), "manifests": {split: data_hash(root, split) for split in splits}}
    settings = {"recogniser": recogniser, "weights": aligner.weights, "confidence": confidence, "version": VERSION}
    with stage(out, source, settings) as step:
        if not step.done:
            card = dict(read_json(root / CARD)) if (root / CARD).is_file() else {}
            invented = str(card.get("synthetic", "")).startswith(INVENTED)
            report = PrepareReport(str(card.get("corpus", root.name)), invented=invented)
            made = {s: AlignedSplit(d, out, aligner, confidence).records(report, workers) for s, d in data.items()}
            if not any(records.passages for records in made.values()):
                why = "; ".join(f"{n:,} x {reason}" for reason, n in report.reasons(kind="passages").most_common(3))
                raise InputError(f"{aligner.name} aligned no passage of {manifest} ({why}); check texts and recordings")
            about = {name: value for name, value in card.items() if name not in ("corpus", "manifests")}
            for path in (path for split in made if (path := root / split / REFERENCE).is_file()):
                lines = [reading | {"audio": str(root / str(reading.get("audio", "")))} for _, reading in read_lines(path)]
                write_lines(out / path.relative_to(root), lines)
            write_corpus(out, made, report, about | {"aligned": source | settings})
        return out, dict(read_json(out / "data_report.json"))


def find_splits(manifest: Path) -> tuple[Path, list[str]]:
    """The corpus, absolute, and its splits. Raises InputError for a path that is neither a corpus nor of one."""
    path = manifest.resolve()
    if path.name == PASSAGES and path.is_file():
        path = path.parent
    if (path / PASSAGES).is_file():
        return path.parent, [path.name]
    splits = sorted(found.parent.name for found in path.glob(f"*/{PASSAGES}"))
    if not splits:
        raise InputError(f"{manifest} {'has no passages.jsonl' if path.exists() else 'does not exist'}; {GIVE}")
    return path, splits


def check_corpus(manifest: Path, splits: Sequence[Corpus]) -> str:
    """The language of the passages, en or zh. Raises InputError where there is nothing to align, or not enough for it."""
    passages = [p for data in splits for p in data.passages.values()]
    questions = [q for data in splits for q in data.questions]
    if not passages:
        raise InputError(f"{manifest} has no passages; give a corpus that has some")
    if not any(p.audio for p in passages):
        raise InputError(f"{manifest} has no recordings of its passages; prepare it with them, or with --speak")
    if not any(p.words or (p.audio and p.written.strip()) for p in passages):
        raise InputError(f"{manifest} has no text of its recorded passages; give every passage the text that is spoken in it")
    lacking = any(p.audio and not p.words for p in passages) or any(a.start is None for q in questions for a in q.answers)
    if not lacking:
        raise InputError(f"{manifest} has times of all words and answers; there is nothing to align")
    languages = sorted({language_of(p.language) for p in passages})
    if len(languages) > 1:
        raise InputError(f"{manifest} has passages in {' and '.join(languages)}; align each language by itself")
    return languages[0]
