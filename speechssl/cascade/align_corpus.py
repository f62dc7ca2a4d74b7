"""Write a prepared corpus again with times of its words and answers: `speechssl align`.

`align_corpus` loads the aligner, and aligns the records of every split (`AlignedSplit`): first the
words of every recording, then the answers, from the first to the last of their words. Words are
those of the text (of the transcript where there is no text) as they are spelt there. What has times
keeps them; recordings stay where they are. What is not spoken as it is written is set aside, or
gets no times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import CARD, read_json, stage, write_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cascade.align import Alignment, CtcAligner, ctc_aligner, is_spoken
from speechssl.cascade.align_whisper import WhisperAligner
from speechssl.cascade.data import Record
from speechssl.cascade.model import CtcRecogniser
from speechssl.cascade.options import Align
from speechssl.cascade.system import is_ctc_head, load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.data.files import safe_name
from speechssl.data.prepare import (
    PARTS,
    UNTIMED,
    UNUSABLE,
    Kind,
    PrepareReport,
    SplitRecords,
    count_set_aside_items,
    format_report,
    write_corpus,
)
from speechssl.data.records import (
    INVENTED,
    TOLERANCE,
    Answer,
    Corpus,
    Passage,
    Question,
    Span,
    data_hash,
    load_corpus,
    locate,
)
from speechssl.data.squad import places, touched_words
from speechssl.encoders.encoder import single_threaded
from speechssl.encoders.load import hash_weights, shared_encoder
from speechssl.errors import InputError, count_set_aside
from speechssl.text import language_of, pieces

VERSION = 2  # of the method of alignment: a folder of another version is made again
LEAST_SPELT = 0.5  # share of a text's letters that a recogniser must be able to write
CONTEXT = 3  # words on either side that count for the confidence of an answer
PASSAGES = "passages.jsonl"
# why a passage or a question is set aside
NO_RECORDING = "it has no recording"
NO_TEXT = "nothing that could be spoken is written of it"
UNFIT = "its text does not fit into its recording"
OTHER_TEXT = "its text is not what its recording says (low confidence)"
LOST = "its passage is set aside"
# why answers get no times
FOREIGN_WORDS = "answers of passages whose words are not those of their text"
SILENT = "answers of which nothing is spoken"
UNRECOGNISED = "answers whose words are not recognised in their place (low confidence)"
Aligner = CtcAligner | WhisperAligner


def align_corpus(o: Align) -> dict[str, Any]:
    """Write a corpus with times; return its data report.

    A killed run continues. Raises InputError for a recogniser of another language, and where
    nothing could be aligned.
    """
    root, splits = find_splits(o.manifest)
    data = {split: load_corpus(root, split) for split in splits}
    passages = [p for corpus in data.values() for p in corpus.passages.values()]
    language = language_of(passages[0].language)
    aligner = load_aligner(o.models, o.recogniser, language)
    share = aligner.spells("".join(word for p in passages for word in spoken_words(p)))
    if share < LEAST_SPELT:
        raise InputError(
            f"{aligner.name} can write only {share:.0%} of the letters of {o.manifest} (language "
            f"{language}); give a recogniser of this language with --recogniser"
        )
    source = {"source": str(root), "manifests": {split: data_hash(root, split) for split in splits}}
    settings = {
        "recogniser": o.recogniser,
        "weights": aligner.weights,
        "confidence": o.confidence,
        "version": VERSION,
    }
    with stage(o.out, source, settings) as step:
        if not step.done:
            write_aligned(o, data, aligner, source | settings)
    report = dict(read_json(o.out / "data_report.json"))
    print(format_report(report))
    print(f"{o.out}: every item that was set aside is in set_aside.jsonl")
    count_set_aside(count_set_aside_items(report))
    return report


def write_aligned(
    o: Align, data: Mapping[str, Corpus], aligner: Aligner, facts: Mapping[str, Any]
) -> None:
    """Align every split and write the corpus. facts: source and settings, for its card. Raises
    InputError where no passage could be aligned."""
    root = next(iter(data.values())).root
    card = read_json(root / CARD) if (root / CARD).is_file() else {}
    invented = str(card.get("synthetic", "")).startswith(INVENTED)
    report = PrepareReport(str(card.get("corpus", root.name)), invented=invented)
    by_split: dict[str, SplitRecords] = {}
    for split, corpus in data.items():
        aligned = AlignedSplit(corpus, o.out, aligner, o.confidence)
        by_split[split] = aligned.align_records(report, o.workers)
    if not any(records.passages for records in by_split.values()):
        reasons = report.reasons(kind="passages").most_common(1)
        raise InputError(
            f"{aligner.name} aligned no passage of {o.manifest} ({reasons[0][0]}); check texts and "
            "recordings, or prepare it with --speak"
        )
    # `write_corpus` writes these two itself
    old_card = {name: card[name] for name in card if name not in ("corpus", "manifests")}
    write_corpus(o.out, by_split, report, old_card | {"aligned": facts})


def find_splits(manifest: Path) -> tuple[Path, list[str]]:
    """Find the corpus, absolute, and its splits. Raises InputError for a path that is neither a
    corpus nor of one."""
    path = manifest.resolve()
    if path.name == PASSAGES and path.is_file():
        path = path.parent
    if (path / PASSAGES).is_file():
        return path.parent, [path.name]
    splits = sorted(table.parent.name for table in path.glob(f"*/{PASSAGES}"))
    if not splits:
        raise InputError(
            f"{manifest} has no {PASSAGES}; give a prepared corpus, a split of one, or the "
            f"{PASSAGES} of a split"
        )
    return path, splits


def load_aligner(models: str | Path, recogniser: str, language: str) -> Aligner:
    """Load an aligner. models: a shipped set or a folder of models; recogniser: a name that
    `load_recogniser` takes; language: of the texts, en or zh."""
    if is_ctc_head(recogniser):
        folder = model_folder(models)
        head = load_recogniser(folder, recogniser, shared_encoder(folder))
        assert isinstance(head, CtcRecogniser)
        return ctc_aligner(head)
    from speechssl.cascade.engines import CtcCheckpoint, HuggingFaceRecogniser

    loaded = HuggingFaceRecogniser(recogniser, language)
    engine, weights = loaded.engine, hash_weights(loaded.engine.model)
    if isinstance(engine, CtcCheckpoint):
        return CtcAligner(
            name=loaded.name,
            weights=weights,
            log_probs=engine.log_probs,
            symbols=engine.symbols,
            separator=engine.separator,
            blank=engine.blank,
            grid=engine.grid,
            longest=engine.longest,
        )
    return WhisperAligner(engine, loaded.name, weights, language)


# ---- a split


@dataclass(frozen=True)
class AlignedSplit:
    """A split is aligned into the folder `out`, whose PARTS get one file a recording; a killed run
    finds these again."""

    data: Corpus
    out: Path
    aligner: Aligner
    confidence: float  # the least that counts as aligned

    def align_record(self, kind: Kind, record: Record) -> dict[str, Any]:
        """Align a record; return its part: words with their losses and symbols, and the length of
        the recording in seconds, or the reason why there are none."""
        path = self.out / self.data.split / PARTS / f"{kind[0]}-{safe_name(record.id)}.json"
        if path.is_file():
            return dict(read_json(path))
        part: dict[str, Any]
        try:
            samples = read_audio(self.data.path(record))
            alignment = self.aligner.align(samples, spoken_words(record))
        except InputError as error:
            part = {"reason": UNUSABLE, "why": str(error)}
        except ValueError as error:
            part = {"reason": UNFIT, "why": str(error)}
        else:
            part = {"confidence": round(alignment.confidence(), 4)}
            if part["confidence"] < self.confidence:
                part["reason"] = OTHER_TEXT
            else:
                words = [[w.text, round(w.start, 5), round(w.end, 5)] for w in alignment.words]
                part |= {
                    "seconds": len(samples) / SAMPLE_RATE,
                    "words": words,
                    "losses": alignment.losses.round(3).tolist(),
                    "symbols": alignment.symbols.tolist(),
                }
        write_json(path, part)
        return part

    def align_records(self, report: PrepareReport, workers: int) -> SplitRecords:
        """Return the records with times, and report those that are set aside. workers: threads."""
        data, split = self.data, self.data.split
        parts = self.align_parts(workers)
        passages: dict[str, Passage] = {}
        for p in data.passages.values():
            report.count(split, "passages")
            part = parts.get(("passages", p.id), {})
            if p.words or "words" in part:
                passages[p.id] = self.relocate(p, part)
            else:
                why = part or {"reason": NO_TEXT if p.audio else NO_RECORDING}
                report.set_aside(split, "passages", p.id, **why)
        questions: list[Question] = []
        for q in data.questions:
            report.count(split, "questions")
            part = parts.get(("questions", q.id), {})
            if q.passage not in passages:
                report.set_aside(split, "questions", q.id, LOST)
            elif "reason" in part:
                report.set_aside(split, "questions", q.id, **part)
            else:
                passage, passage_part = passages[q.passage], parts.get(("passages", q.passage))
                answers = [self.time_answer(a, q, passage, passage_part, report) for a in q.answers]
                questions.append(replace(self.relocate(q, part), answers=tuple(answers)))
        return SplitRecords(tuple(passages.values()), questions)

    def align_parts(self, workers: int) -> dict[tuple[Kind, str], dict[str, Any]]:
        """Align all recordings that have something spoken and no times; return their parts by kind
        and id."""
        records: list[tuple[Kind, Record]] = [("passages", p) for p in self.data.passages.values()]
        records += [("questions", q) for q in self.data.questions]
        jobs = []
        for kind, record in records:
            if record.audio and not record.words and spoken_words(record):
                jobs.append((kind, record))
        title = f"aligning {self.data.split}"
        parts = {}
        with single_threaded(workers) as pool:
            results = pool.map(lambda job: self.align_record(*job), jobs)
            bar = tqdm(results, title, len(jobs), unit="recording", disable=not jobs)
            for (kind, record), part in zip(jobs, bar, strict=True):
                parts[kind, record.id] = part
        return parts

    def relocate(self, record: Any, part: Mapping[str, Any]) -> Any:
        """Return a record with the words of its part, and paths that hold in another folder."""
        root = self.data.root.resolve()
        moved = replace(record, audio=str(root / record.audio) if record.audio else "")
        if isinstance(record, Question):
            options = tuple(str(root / audio) for audio in record.option_audio)
            moved = replace(moved, option_audio=options)
        if "words" in part:
            moved = replace(moved, words=tuple(Span(*word) for word in part["words"]))
            # a header may only estimate the length
            if abs(part["seconds"] - record.seconds) > TOLERANCE:
                moved = replace(moved, seconds=part["seconds"])
        return moved

    def time_answer(
        self,
        answer: Answer,
        question: Question,
        passage: Passage,
        part: Mapping[str, Any] | None,
        report: PrepareReport,
    ) -> Answer:
        """Return an answer with times: its own, or those from the first to the last of its words.
        part: of the passage; None where that had its words before."""
        if answer.start is not None:
            return answer
        place, why = locate(answer, passage.written, language_of(question.language))
        words = None
        if place:
            words, why = self.find_answer_words(place, passage, part)
        if words is None:
            report.remark(self.data.split, why, UNTIMED)
            return answer
        what = "now timed, from the first to the last of their words"
        report.remark(self.data.split, "answers that had no times", what)
        first, last = words
        return replace(answer, start=passage.words[first].start, end=passage.words[last].end)

    def find_answer_words(
        self, place: tuple[int, int], passage: Passage, part: Mapping[str, Any] | None
    ) -> tuple[tuple[int, int] | None, str]:
        """Find the first and last word of an answer; or None and the reason. place: of the answer
        in the text of the passage, in characters; part: of the passage."""
        word_places = places(passage.written, passage.words)
        if word_places is None:
            return None, FOREIGN_WORDS
        words = touched_words(word_places, *place)
        if words is None:
            return None, SILENT
        if part:
            alignment = Alignment((), np.array(part["losses"]), np.array(part["symbols"]))
            first, last = words
            if alignment.confidence(max(first - CONTEXT, 0), last + CONTEXT) < self.confidence:
                return None, UNRECOGNISED
        return words, ""


def spoken_words(record: Record) -> list[str]:
    """Return the words of a record's text (zh: characters) as they stand there, without those that
    are punctuation alone."""
    words = [word for word, _ in pieces(record.written, record.language)]
    return [word for word in words if any(map(is_spoken, word))]
