"""A cascade answers questions by text QA: on recognised words, on the text of a corpus, or on that
text with simulated errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import hash_files, read_json
from speechssl.cascade.data import Recogniser, Record, TimedWord, Transcript
from speechssl.cascade.decode import NGRAM_FILE, NGRAM_FOLDER, BeamDecoder
from speechssl.cascade.model import CtcRecogniser
from speechssl.cascade.readers import TextQa
from speechssl.data.records import read_lines
from speechssl.dual.system import TimedAnswer
from speechssl.errors import InputError
from speechssl.text import choose_joiner, split_pieces

TEXT_SYSTEMS = ("text", "cascade-given")  # the systems that read the words of `read_given_words`
SIMULATED = "cascade-simulated"
GREEDY = "-greedy"  # suffix of the name of a CTC head that decodes without its n-gram


@dataclass(frozen=True)
class CascadeSystem:
    """A cascade is text QA on the words of a recording: recognised ones, those of the corpus
    (`read_given_words`), or these with simulated errors."""

    name: str
    # Called with a record (None for a recording of no corpus) and samples (N,) float32 at 16 kHz;
    # raises ValueError where there are no words.
    encode: Callable[[Any, Any], Transcript]
    qa: TextQa
    card: Mapping[str, Any]
    needs_audio: bool = True  # False where the words are those of the corpus

    def answer_all(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
        """Answer questions. items: (question, passage) transcripts.

        The answer is empty, at 0 s, where the reader prefers "no answer" or nothing was recognised
        in the passage. Times are nan where the words have none.
        """
        threshold = math.inf if self.qa.threshold is None else self.qa.threshold
        answers = []
        for (_, passage), span in zip(items, self.qa.reader.read(items), strict=True):
            if span is None or span.null - span.score > threshold:
                answers.append(TimedAnswer(start=0.0, end=0.0, confidence=0.0, text=""))
            else:
                start, end = passage.words[span.first].start, passage.words[span.last].end
                answers.append(TimedAnswer(start, end, span.confidence, span.text))
        return answers


def split_into_words(text: str, language: str) -> Transcript:
    """Split a written text into words, which have no times."""
    words = [word for word, _ in split_pieces(text, language)]
    timed = tuple(TimedWord(word, math.nan, math.nan, math.nan) for word in words)
    return Transcript(timed, choose_joiner(language))


def read_given_words(name: str, record: Record) -> Transcript:
    """Read the words of a record for a system of TEXT_SYSTEMS.

    name: `text`, the topline of cascades, reads the reference text, with the times of its words
    where the manifest has them. `cascade-given` reads the transcript that comes with the corpus, or
    the text of a record without one: some corpora transcribe only passages, or only questions.
    Raises ValueError for a record without either.
    """
    text = record.text if name == "text" else record.transcript or record.text
    if not text.strip():
        source = "reference text" if name == "text" else "transcript"
        raise ValueError(f"{record.id} has no {source} that the system {name} could read")
    if name != "text" or not record.words:
        return split_into_words(text, record.language)
    words = tuple(TimedWord(w.text, w.start, w.end, math.nan) for w in record.words)
    return Transcript(words, choose_joiner(record.language))


def is_ctc_head(engine: str) -> bool:
    """Return whether a recogniser's name, as `load_recogniser` takes it, is that of a CTC head in a
    folder of models."""
    return engine == "ctc" or (engine.startswith("ctc-") and not Path(engine).exists())


def load_recogniser(
    models: Path, engine: str, encoder: Any, language: str | None = None
) -> Recogniser:
    """Load a recogniser by its name.

    engine: `ctc` or `ctc-NAME` for the CTC head in that folder of `models`, which decodes with its
    n-gram, or greedily where `-greedy` ends the name; or the folder or hub id of a Hugging Face
    recogniser. encoder: that of the head; language: the spoken one, for Whisper. A head without an
    n-gram decodes greedily: its name gets `-greedy`, and stderr says so. Raises InputError for a
    head that is missing or of another encoder.
    """
    if is_ctc_head(engine):
        return _load_ctc(models, engine, encoder)
    from speechssl.cascade.engines import HuggingFaceRecogniser

    return HuggingFaceRecogniser(engine, language)


def _load_ctc(models: Path, engine: str, encoder: Any) -> CtcRecogniser:
    """Load a CTC head, with its n-gram where it has one and the name does not end in `-greedy`."""
    folder = models / engine.removesuffix(GREEDY)
    if not folder.is_dir():
        raise InputError(
            f"{models} has no {folder.name}/; train one (speechssl train ctc), or name "
            "another recogniser (a model of Hugging Face)"
        )
    recogniser = CtcRecogniser.load(folder, encoder)
    ngram = folder / NGRAM_FOLDER
    wants_ngram = not engine.endswith(GREEDY)
    decoding: dict[str, Any] = {"decoding": "greedy"}  # for the card
    if wants_ngram and ngram.is_dir():
        recogniser.name = engine
        recogniser.decoder = BeamDecoder.load(ngram, recogniser.vocabulary)
        options = read_json(ngram / "card.json")["decoding"]
        decoding = {"decoding": options, "ngram": hash_files([ngram / NGRAM_FILE])}
    else:
        recogniser.name = f"{folder.name}{GREEDY}"
        if wants_ngram:
            tqdm.write(
                f"{folder} has no n-gram and decodes greedily, as {recogniser.name}; "
                "`speechssl train ngram` makes one",
                file=sys.stderr,
            )
    recogniser.card = {**recogniser.card, **decoding}
    return recogniser


def make_cascade(qa: TextQa, recogniser: Recogniser) -> CascadeSystem:
    """Make a cascade of a recogniser and text QA."""
    return CascadeSystem(
        name=f"cascade-{recogniser.name}{qa.suffix}",
        encode=lambda record, samples: recogniser.transcribe(samples),
        qa=qa,
        card={**recogniser.card, **qa.card},
    )


def make_text_system(qa: TextQa, name: str) -> CascadeSystem:
    """Make text QA on the words of a corpus. name: `text` or `cascade-given`."""
    return CascadeSystem(
        name=name + qa.suffix,
        encode=lambda record, samples: read_given_words(name, record),
        qa=qa,
        card={"reads": name} | qa.card,
        needs_audio=False,
    )


def load_simulated(qa: TextQa, errors: Path | None, name: str) -> CascadeSystem:
    """Make text QA on words with simulated errors.

    errors: a table of lines {"rate": word error rate in %, "id": of a record, "words": [[text,
    start, end], ...]}; name: `cascade-simulated@30` for the lines of a rate of 30 %. Raises
    InputError for a rate that the table lacks.
    """
    rate = name.removeprefix(f"{SIMULATED}@")
    words_of_record: dict[str, list[list[Any]]] = {}
    if errors is not None:
        for _, line in read_lines(errors):
            if f"{line['rate']:g}" == rate:
                words_of_record[line["id"]] = line["words"]
    if errors is None or not words_of_record:
        raise InputError(
            f"{name} needs texts with errors at this rate (docs/methods/cascade.md); --errors is "
            f"{errors}"
        )

    def read_words(record: Record, samples: Any) -> Transcript:
        words = words_of_record.get(record.id)
        if not words:
            raise ValueError(f"{record.id} has no text in {errors}")
        timed = tuple(TimedWord(text, start, end, math.nan) for text, start, end in words)
        return Transcript(timed, choose_joiner(record.language))

    card = {"reads": f"text with {name.removeprefix('cascade-')}", "errors": hash_files([errors])}
    return CascadeSystem(name + qa.suffix, read_words, qa, card | qa.card, needs_audio=False)
