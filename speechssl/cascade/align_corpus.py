"""Write a prepared corpus again with times of its words and answers: `speechssl align`.

`align_corpus` loads the aligner, and aligns the records of every split (`AlignedSplit`): first the
words of every recording, then the answers, from the first to the last of their words. Words are
those of the text (of the transcript where there is no text) as they are spelt there. Records and
answers that have times keep them; recordings stay where they are. A record that is not spoken as it
is written is set aside, and such an answer gets no times.

While a split is aligned, OUT/SPLIT/parts has a file for each recording (`Part`): its words with
times, or why it has none. A killed run reads these files again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import CARD, begin_stage, read_json, write_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cascade.align import Alignment, CtcAligner, is_spoken, make_ctc_aligner
from speechssl.cascade.align_whisper import WhisperAligner
from speechssl.cascade.data import Record
from speechssl.cascade.model import CtcRecogniser
from speechssl.cascade.options import Align
from speechssl.cascade.system import is_ctc_head, load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.data.files import make_safe_name
from speechssl.data.prepare import (
    ITS_PASSAGE,
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
    hash_data,
    load_corpus,
    locate,
)
from speechssl.data.squad import find_touched_words, find_word_places
from speechssl.encoders.encoder import open_pool
from speechssl.encoders.load import hash_weights, load_shared_encoder
from speechssl.errors import InputError, count_set_aside
from speechssl.text import find_language, split_pieces

VERSION = 2  # of the method of alignment; `begin_stage` refuses a folder that another version made
LEAST_SPELT = 0.5  # least share of a text's letters that a recogniser must be able to write
CONTEXT = 3  # words on either side of an answer that its confidence takes in
PASSAGES = "passages.jsonl"
# why a passage or a question is set aside
NO_RECORDING = "it has no recording"
NO_TEXT = "nothing that could be spoken is written of it"
UNFIT = "its text does not fit into its recording"
OTHER_TEXT = "its text is not what its recording says (low confidence)"
# why answers get no times
FOREIGN_WORDS = "answers of passages whose words are not those of their text"
SILENT = "answers of which nothing is spoken"
UNRECOGNISED = "answers whose words are not recognised in their place (low confidence)"
Aligner = CtcAligner | WhisperAligner


def align_corpus(o: Align) -> dict[str, Any]:
    """Write a corpus with times; return its data report.

    Raises InputError for a recogniser of another language, where nothing could be aligned, and
    where OUT was made from other inputs.
    """
    root, splits = find_splits(o.manifest)
    data = {split: load_corpus(root, split) for split in splits}
    passages = [p for corpus in data.values() for p in corpus.passages.values()]
    language = find_language(passages[0].language)
    aligner = load_aligner(o.models, o.recogniser, language)
    share = aligner.measure_spellable_share(
        "".join(word for p in passages for word in list_spoken_words(p))
    )
    if share < LEAST_SPELT:
        raise InputError(
            f"{aligner.name} can write only {share:.0%} of the letters of {o.manifest} (language "
            f"{language}); give a recogniser of this language with --recogniser"
        )
    source = {"source": str(root), "manifests": {split: hash_data(root, split) for split in splits}}
    settings = {
        "recogniser": o.recogniser,
        "weights": aligner.weights,
        "confidence": o.confidence,
        "version": VERSION,
    }
    with begin_stage(o.out, source, settings) as step:
        if not step.done:
            write_aligned(o, data, aligner, source | settings)
    report = dict(read_json(o.out / "data_report.json"))
    print(format_report(report))
    print(
        f"{o.out}: what was set aside is in set_aside.jsonl; next: `speechssl units extract "
        f"{o.out} people-en/encoder people-en/units.safetensors UNITS`"
    )
    count_set_aside(count_set_aside_items(report))
    return report


def write_aligned(
    o: Align, data: Mapping[str, Corpus], aligner: Aligner, facts: Mapping[str, Any]
) -> None:
    """Align every split and write the corpus. data: the corpus by split; facts: its source and the
    settings, for its card. Raises InputError where no passage could be aligned."""
    root = next(iter(data.values())).root
    card = read_json(root / CARD) if (root / CARD).is_file() else {}
    invented = str(card.get("synthetic", "")).startswith(INVENTED)
    report = PrepareReport(str(card.get("corpus", root.name)), invented=invented)
    by_split: dict[str, SplitRecords] = {}
    for split, corpus in data.items():
        aligned = AlignedSplit(corpus, o.out, aligner, o.confidence)
        by_split[split] = aligned.align_records(report, o.workers)
    if not any(records.passages for records in by_split.values()):
        reason, _ = report.count_reasons(kind="passages").most_common(1)[0]
        raise InputError(
            f"{aligner.name} aligned no passage of {o.manifest} ({reason}); check texts and "
            "recordings, or prepare it with --speak"
        )
    # `write_corpus` writes these two itself
    old_card = {name: card[name] for name in card if name not in ("corpus", "manifests")}
    write_corpus(o.out, by_split, report, old_card | {"aligned": facts})


def find_splits(manifest: Path) -> tuple[Path, list[str]]:
    """Find the absolute folder of a corpus, and the splits that a path names: a corpus has all of
    its own, a split and its passages.jsonl one. Raises InputError for any other path."""
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
        head = load_recogniser(folder, recogniser, load_shared_encoder(folder))
        assert isinstance(head, CtcRecogniser)
        return make_ctc_aligner(head)
    from speechssl.cascade.engines import CtcCheckpoint, HuggingFaceRecogniser

    loaded = HuggingFaceRecogniser(recogniser, language)
    engine, weights = loaded.engine, hash_weights(loaded.engine.model)
    if isinstance(engine, CtcCheckpoint):
        return CtcAligner(
            name=loaded.name,
            weights=weights,
            log_probs=engine.compute_log_probs,
            symbols=engine.symbols,
            separator=engine.separator,
            blank=engine.blank,
            grid=engine.grid,
            longest=engine.longest,
        )
    return WhisperAligner(engine, loaded.name, weights, language)


# A part is what is known of a recording: `confidence`, `seconds` (its length), `words` ([text,
# start, end] each), and of each word `losses` and `symbols` as in `Alignment`; or, where it gets no
# times, `reason`, and `why` (the error) or the `confidence` that is too low.
Part = dict[str, Any]


# ---- a split


@dataclass(frozen=True)
class AlignedSplit:
    """A split is aligned into the folder `out`."""

    data: Corpus
    out: Path
    aligner: Aligner
    confidence: float  # the least confidence of a recording or an answer that gets times

    def align_record(self, kind: Kind, record: Record) -> Part:
        """Align a record and write its part, unless an earlier run has written it; return it."""
        initial = kind[0]  # p of passages, q of questions
        path = self.out / self.data.split / PARTS / f"{initial}-{make_safe_name(record.id)}.json"
        if not path.is_file():
            write_json(path, self._align(record))
        return dict(read_json(path))

    def _align(self, record: Record) -> Part:
        """Align a record, or say why its recording gets no times."""
        try:
            samples = read_audio(self.data.path(record))
            alignment = self.aligner.align(samples, list_spoken_words(record))
        except InputError as error:
            return {"reason": UNUSABLE, "why": str(error)}
        except ValueError as error:
            return {"reason": UNFIT, "why": str(error)}
        confidence = round(alignment.measure_confidence(), 4)
        if confidence < self.confidence:
            return {"reason": OTHER_TEXT, "confidence": confidence}
        return {
            "confidence": confidence,
            "seconds": len(samples) / SAMPLE_RATE,
            "words": [[w.text, round(w.start, 5), round(w.end, 5)] for w in alignment.words],
            "losses": alignment.losses.round(3).tolist(),
            "symbols": alignment.symbols.tolist(),
        }

    def align_records(self, report: PrepareReport, workers: int) -> SplitRecords:
        """Return the records with times, and report those that are set aside. workers: number of
        threads."""
        data, split = self.data, self.data.split
        parts = self.align_parts(workers)
        passages: dict[str, Passage] = {}
        for p in data.passages.values():
            report.count(split, "passages")
            # no part: the passage has its times already, or it could not be tried
            part = parts.get(("passages", p.id), {})
            if not part and not p.words:
                part = {"reason": NO_TEXT if p.audio else NO_RECORDING}
            if "reason" in part:
                report.set_aside(split, "passages", p.id, **part)
            else:
                passages[p.id] = self.attach_alignment(p, part)
        questions: list[Question] = []
        for q in data.questions:
            report.count(split, "questions")
            part = parts.get(("questions", q.id), {})
            if q.passage not in passages:
                report.set_aside(split, "questions", q.id, ITS_PASSAGE)
            elif "reason" in part:
                report.set_aside(split, "questions", q.id, **part)
            else:
                passage, passage_part = passages[q.passage], parts.get(("passages", q.passage), {})
                answers = [self.time_answer(a, q, passage, passage_part, report) for a in q.answers]
                questions.append(replace(self.attach_alignment(q, part), answers=tuple(answers)))
        return SplitRecords(tuple(passages.values()), questions)

    def align_parts(self, workers: int) -> dict[tuple[Kind, str], Part]:
        """Align all recordings that have words to be spoken and no times; return their parts by
        kind and id."""
        records: list[tuple[Kind, Record]] = [("passages", p) for p in self.data.passages.values()]
        records += [("questions", q) for q in self.data.questions]
        jobs = []
        for kind, record in records:
            if record.audio and not record.words and list_spoken_words(record):
                jobs.append((kind, record))
        title = f"aligning {self.data.split}"
        parts = {}
        with open_pool(workers) as pool:
            results = pool.map(lambda job: self.align_record(*job), jobs)
            progress = tqdm(results, title, len(jobs), unit="recording", disable=not jobs)
            for (kind, record), part in zip(jobs, progress, strict=True):
                parts[kind, record.id] = part
        return parts

    def attach_alignment(self, record: Any, part: Part) -> Any:
        """Return a record with the words of its part, which may be empty, and the absolute paths of
        its recordings."""
        root = self.data.root.resolve()
        changes: dict[str, Any] = {}
        if record.audio:
            changes["audio"] = str(root / record.audio)
        if isinstance(record, Question):
            changes["option_audio"] = tuple(str(root / audio) for audio in record.option_audio)
        if part:
            changes["words"] = tuple(Span(*word) for word in part["words"])
            # the corpus may have taken the length from a header, which may only estimate it
            if abs(part["seconds"] - record.seconds) > TOLERANCE:
                changes["seconds"] = part["seconds"]
        return replace(record, **changes)

    def time_answer(
        self,
        answer: Answer,
        question: Question,
        passage: Passage,
        part: Part,
        report: PrepareReport,
    ) -> Answer:
        """Return an answer with times, from the first to the last of its words, unless it has times
        or its words are not found. part: that of the passage; empty where the corpus has the times
        of its words."""
        if answer.start is not None:
            return answer
        found = self.find_answer_words(answer, find_language(question.language), passage, part)
        if isinstance(found, str):
            report.remark(self.data.split, found, UNTIMED)
            return answer
        first, last = found
        remedy = "now timed, from the first to the last of their words"
        report.remark(self.data.split, "answers that had no times", remedy)
        return replace(answer, start=passage.words[first].start, end=passage.words[last].end)

    def find_answer_words(
        self, answer: Answer, language: str, passage: Passage, part: Part
    ) -> tuple[int, int] | str:
        """Find the first and last word of an answer in its passage; or return the reason why they
        are not found, or not trusted. part: as in `time_answer`."""
        place, why = locate(answer, passage.written, language)
        if place is None:
            return why
        word_places = find_word_places(passage.written, passage.words)
        if word_places is None:
            return FOREIGN_WORDS
        words = find_touched_words(word_places, *place)
        if words is None:
            return SILENT
        if part:
            losses, symbols = np.array(part["losses"]), np.array(part["symbols"])
            alignment = Alignment(passage.words, losses, symbols)
            first, last = max(words[0] - CONTEXT, 0), words[1] + CONTEXT
            if alignment.measure_confidence(first, last) < self.confidence:
                return UNRECOGNISED
        return words


def list_spoken_words(record: Record) -> list[str]:
    """List the words of a record's text (of Mandarin: the characters) as they stand there, but not
    those that are punctuation alone."""
    words = [word for word, _ in split_pieces(record.written, record.language)]
    return [word for word in words if any(map(is_spoken, word))]
