"""The cascade is text QA on recognised words, on the text of a corpus, or on that text with
simulated errors."""

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
from speechssl.text import joiner, pieces

TEXT_SYSTEMS = ("text", "cascade-given")
SIMULATED = "cascade-simulated"
GREEDY = "-greedy"  # ends the name of a CTC head that decodes without its n-gram


@dataclass(frozen=True)
class CascadeSystem:
    """A cascade is text QA on the words of a recording: recognised ones, those of the corpus
    (`given_words`), or these with simulated errors."""

    name: str
    words: Callable[[Any, Any], Transcript]  # record, samples (N,) float32 at 16 kHz -> words
    qa: TextQa
    card: Mapping[str, Any]
    needs_audio: bool = True

    def read(self, text: str, language: str) -> Transcript:
        """Encode a written text in the place of a recording; its words have no times."""
        return words_of_text(text, language)

    def encode(self, record: Record | None, samples: Any) -> Transcript:
        """Find the words of a recording. Raises ValueError where there are no words, or for a
        recording of no corpus where words are those of a corpus."""
        if record is None and not self.needs_audio:
            raise ValueError(
                f"the system {self.name} reads the text of a corpus; evaluate it on "
                "a prepared corpus"
            )
        return self.words(record, samples)

    def answer_all(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
        """Answer questions. items: (question, passage) transcripts. "No answer", and any for a
        passage in which nothing was recognised, is empty at 0 s.

        Times are nan where those of the words are.
        """
        answers = []
        for (_, passage), span in zip(items, self.qa.reader.read(items), strict=True):
            threshold = self.qa.threshold
            if span is None or (threshold is not None and span.null - span.score > threshold):
                answers.append(TimedAnswer(0.0, 0.0, 0.0, ""))
            else:
                start, end = passage.words[span.first].start, passage.words[span.last].end
                answers.append(TimedAnswer(start, end, span.confidence, span.text))
        return answers


def words_of_text(text: str, language: str) -> Transcript:
    """Return the words of a written text, which have no times."""
    words = [word for word, _ in pieces(text, language)]
    timed = tuple(TimedWord(word, math.nan, math.nan, math.nan) for word in words)
    return Transcript(timed, joiner(language))


def given_words(name: str, record: Record) -> Transcript:
    """Return the words of a record, with their times where the manifest has them: of the reference
    text (`text`, the cascade's topline), or of the transcripts that come with the corpus
    (`cascade-given`).

    `cascade-given` takes the text of a record without a transcript: corpora transcribe passages
    alone, or questions alone. Raises ValueError for a record without either.
    """
    text = record.text if name == "text" else record.transcript or record.text
    if not text.strip():
        source = "reference text" if name == "text" else "transcript"
        raise ValueError(f"{record.id} has no {source} that the system {name} could read")
    if name != "text" or not record.words:
        return words_of_text(text, record.language)
    words = tuple(TimedWord(w.text, w.start, w.end, math.nan) for w in record.words)
    return Transcript(words, joiner(record.language))


def is_ctc_head(engine: str) -> bool:
    """Return whether a name that `load_recogniser` takes is that of a head in a folder of
    models."""
    return engine == "ctc" or (engine.startswith("ctc-") and not Path(engine).exists())


def load_recogniser(
    models: Path, engine: str, encoder: Any, language: str | None = None
) -> Recogniser:
    """Load a recogniser by its name.

    engine: `ctc`, or `ctc-NAME` for the CTC head of that name in `models`, which decodes with its
    n-gram, or greedily with `-greedy` behind the name; or the folder or hub id of a Hugging Face
    recogniser. language: of the speech, for Whisper. A head without an n-gram decodes greedily: it
    is called so, and stderr says it. Raises InputError for a head that is missing or of another
    encoder.
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
    recogniser, ngram = CtcRecogniser.load(folder, encoder), folder / NGRAM_FOLDER
    facts: dict[str, Any] = {"decoding": "greedy"}
    recogniser.name = f"{folder.name}{GREEDY}"
    if ngram.is_dir() and not engine.endswith(GREEDY):
        recogniser.decoder = BeamDecoder.load(ngram, recogniser.vocabulary)
        recogniser.name = engine
        decoding = read_json(ngram / "card.json")["decoding"]
        facts = {"decoding": decoding, "ngram": hash_files([ngram / NGRAM_FILE])}
    elif recogniser.name != engine:
        tqdm.write(
            f"{folder} has no n-gram and decodes greedily, as {recogniser.name}; "
            "`speechssl train ngram` makes one",
            file=sys.stderr,
        )
    recogniser.card = {**recogniser.card, **facts}
    return recogniser


def load_cascade(qa: TextQa, recogniser: Recogniser) -> CascadeSystem:
    """Make the cascade that reads the words of a recogniser."""
    name, card = f"cascade-{recogniser.name}{qa.suffix}", {**recogniser.card, **qa.card}
    return CascadeSystem(name, lambda _, samples: recogniser.transcribe(samples), qa, card)


def load_text(qa: TextQa, name: str) -> CascadeSystem:
    """Make text QA on the words of a corpus. name: `text` or `cascade-given`."""
    card = {"reads": name} | qa.card
    return CascadeSystem(
        name + qa.suffix,
        lambda record, _: given_words(name, record),
        qa,
        card,
        needs_audio=False,
    )


def load_simulated(qa: TextQa, errors: Path | None, name: str) -> CascadeSystem:
    """Load text QA on simulated errors. errors: simulated.jsonl of recipes/minisqa/confusions.py;
    name: `cascade-simulated@30` for a word error rate of 30 %. Raises InputError for a rate that is
    not there."""
    rate = name.removeprefix(f"{SIMULATED}@")
    texts: dict[str, list[list[Any]]] = {}
    for _, line in read_lines(errors) if errors else ():
        if f"{line['rate']:g}" == rate:
            texts[line["id"]] = line["words"]
    if errors is None or not texts:
        raise InputError(
            f"{name} needs texts with errors at this rate (docs/methods/cascade.md); --errors is "
            f"{errors}"
        )

    def read_words(record: Record, samples: Any) -> Transcript:
        words = texts.get(record.id)
        if not words:
            raise ValueError(f"{record.id} has no text in {errors}")
        timed = tuple(TimedWord(text, start, end, math.nan) for text, start, end in words)
        return Transcript(timed, joiner(record.language))

    card = {"reads": f"text with {name.removeprefix('cascade-')}", "errors": hash_files([errors])}
    return CascadeSystem(name + qa.suffix, read_words, qa, card | qa.card, needs_audio=False)
