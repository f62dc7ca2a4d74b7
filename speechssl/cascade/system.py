"""The cascade is text QA on recognised words, on the text of a corpus, or on that text with
simulated errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import hash_files, read_json
from speechssl.cascade.confusions import MOST, ConfusionModel, Edit, read_confusions, spell_words
from speechssl.cascade.data import Recogniser, Record, TimedWord, Transcript
from speechssl.cascade.decode import NGRAM_FILE, NGRAM_FOLDER, BeamDecoder
from speechssl.cascade.model import CtcRecogniser
from speechssl.cascade.readers import TextQa
from speechssl.data.records import Span
from speechssl.dual.system import TimedAnswer
from speechssl.errors import InputError
from speechssl.text import joiner, language_of, pieces

TEXT_SYSTEMS = ("text", "cascade-given")
SIMULATED = "cascade-simulated"


@dataclass(frozen=True)
class CascadeSystem:
    """This is text QA on the words of a recording: recognised ones, those of the corpus
    (`given_words`), or these with simulated errors (`simulated_words`).
    """

    name: str
    words: Callable[[Any, Any], Transcript]  # record, samples (N,) float32 at 16 kHz -> words
    qa: TextQa
    card: Mapping[str, Any]
    needs_audio: bool = True

    def read(self, text: str, language: str) -> Transcript:
        """Read a written text in the place of a recording; its words have no times."""
        words = (
            TimedWord(word, math.nan, math.nan, math.nan) for word, _ in pieces(text, language)
        )
        return Transcript(tuple(words), joiner(language))

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
            if span is None or (
                self.qa.threshold is not None and span.null - span.score > self.qa.threshold
            ):
                answers.append(TimedAnswer(0.0, 0.0, 0.0, ""))
            else:
                start, end = passage.words[span.first].start, passage.words[span.last].end
                answers.append(TimedAnswer(start, end, span.confidence, span.text))
        return answers


def given_words(name: str, record: Record) -> Transcript:
    """Return the words of a record, with their times where the manifest has them: of the reference
    text (`text`, the cascade's topline), or of the transcripts that the corpus brings along
    (`cascade-given`).

    `cascade-given` takes the text of a record without a transcript: corpora transcribe passages
    alone, or questions alone.
    Raises ValueError where nothing is written.
    """
    text = record.text if name == "text" else record.transcript or record.text
    if not text.strip():
        source = "reference text" if name == "text" else "transcript"
        raise ValueError(f"{record.id} has no {source} that the system {name} could read")
    if name == "text" and record.words:
        words = [TimedWord(w.text, w.start, w.end, math.nan) for w in record.words]
    else:
        words = [
            TimedWord(word, math.nan, math.nan, math.nan)
            for word, _ in pieces(text, record.language)
        ]
    return Transcript(tuple(words), joiner(record.language))


def simulated_words(
    confusions: ConfusionModel, wer: float, seed: int, record: Record
) -> Transcript:
    """Make the reference text with errors like a real recogniser's, as many as are asked for. wer:
    a fraction; seed: of the errors, together with the id of the record.

    A word keeps its time whatever it is taken for; one that is inserted shares the time of the word
    before it, by letters; the time of a deleted word is lost. Raises ValueError where there is no
    text, or in another language than that of the fit.
    """
    if language_of(record.language) != language_of(confusions.language):
        raise ValueError(
            f"{record.id} is in {record.language!r}, and the errors were fitted on "
            f"{confusions.language!r}"
        )
    spans = reference_words(record)
    if not spans:
        raise ValueError(f"{record.id} has no reference text that errors could be made in")
    edits = confusions.simulate([s.text for s in spans], wer, record.id, seed)
    return Transcript(tuple(timed_edits(edits, spans)), joiner(record.language))


def reference_words(record: Record) -> list[Span]:
    """Return the words (zh: characters) of the reference with their times, nan where the manifest
    has none."""
    if not record.words:
        return [
            Span(word, math.nan, math.nan) for word in spell_words(record.text, record.language)
        ]
    return [s for w in record.words for s in _shared(spell_words(w.text, record.language), w)]


def timed_edits(edits: Sequence[Edit], spans: Sequence[Span]) -> list[TimedWord]:
    """Put the words with errors at the times of the reference words; several at one share its
    time."""
    timed = []
    for place, at_place in groupby(edits, key=lambda edit: edit[1]):
        timed += _shared([word for word, _ in at_place], spans[place])
    return [TimedWord(s.text, s.start, s.end, math.nan) for s in timed]


def _shared(words: Sequence[str], span: Span) -> list[Span]:
    """Put words one after another in the time of the span, by letters."""
    letters = [len(w) for w in words]
    step = (span.end - span.start) / max(sum(letters), 1)
    at = [span.start + step * sum(letters[:i]) for i in range(len(words))] + [span.end]
    return [Span(w, at[i], at[i + 1]) for i, w in enumerate(words)]


def is_ctc_head(engine: str) -> bool:
    """Tell whether a name of `load_recogniser` is that of a head in a folder of models."""
    return engine == "ctc" or (engine.startswith("ctc-") and not Path(engine).exists())


GREEDY = "-greedy"  # ends the name of a CTC head that decodes without its n-gram


def load_recogniser(
    models: Path, engine: str, encoder: Any, language: str | None = None
) -> Recogniser:
    """Load a recogniser by its name.

    engine: `ctc`, or `ctc-NAME` for the CTC head of that name in `models`, which decodes with its
    n-gram, or greedily with `-greedy` behind the name; or the folder or hub id of a
    Hugging Face recogniser. language: of the speech, for Whisper. A head without an n-gram decodes
    greedily, and stderr says so.
    Raises InputError for a head that is missing or of another encoder.
    """
    if is_ctc_head(engine):
        folder = models / engine.removesuffix(GREEDY)
        if not folder.is_dir():
            raise InputError(
                f"{models} has no {folder.name}/; train one (speechssl train ctc), or name "
                "another recogniser (a model of Hugging Face)"
            )
        recogniser, ngram = CtcRecogniser.load(folder, encoder), folder / NGRAM_FOLDER
        recogniser.name = engine
        if engine.endswith(GREEDY):
            recogniser.card = {**recogniser.card, "decoding": "greedy"}
        elif ngram.is_dir():
            recogniser.decoder = BeamDecoder.load(ngram, recogniser.vocabulary)
            recogniser.card = {
                **recogniser.card,
                "decoding": read_json(ngram / "card.json")["decoding"],
            }
            recogniser.card |= {"ngram": hash_files([ngram / NGRAM_FILE])}
        else:
            recogniser.card = {**recogniser.card, "decoding": "greedy"}
            tqdm.write(
                f"{folder} has no n-gram and decodes greedily; `speechssl train ngram` makes one",
                file=sys.stderr,
            )
        return recogniser
    from speechssl.cascade.engines import HuggingFaceRecogniser

    return HuggingFaceRecogniser(
        engine, joiner(language or "en"), language and language_of(language)
    )


def load_cascade(qa: TextQa, recogniser: Recogniser) -> CascadeSystem:
    """Load the cascade that reads the words of a recogniser."""
    name = f"cascade-{recogniser.name}{qa.suffix}"
    words = lambda _, samples: recogniser.transcribe(samples)  # noqa: E731
    return CascadeSystem(name, words, qa, {**recogniser.card, **qa.card})


def load_text(qa: TextQa, name: str) -> CascadeSystem:
    """Load text QA on the words of a corpus. name: `text` or `cascade-given`."""
    return CascadeSystem(
        name + qa.suffix,
        lambda record, _: given_words(name, record),
        qa,
        {"reads": name} | qa.card,
        False,
    )


def load_simulated(qa: TextQa, errors: Path, name: str, seed: int = 0) -> CascadeSystem:
    """Load text QA on simulated errors. errors: a confusions.json. name: `cascade-simulated@30` for
    a word error rate of 30 %; InputError for any other."""
    try:
        wer = float(name.removeprefix(f"{SIMULATED}@")) / 100
    except ValueError:
        wer = math.nan
    if not 0 < wer <= MOST:
        raise InputError(
            f"{name!r} has no word error rate; write {SIMULATED}@30 for 30 %, with a number "
            f"above 0 and at most {100 * MOST:g}"
        )
    if not errors.is_file():
        raise InputError(
            f"{name} needs {errors}, which does not exist; fit one (docs/methods.md, The cascade) "
            "and give it with --errors"
        )
    card = {
        "reads": (f"text with {name.removeprefix('cascade-')}"),
        "errors": hash_files([errors]),
        "seed": seed,
    } | qa.card
    confusions, name = read_confusions(errors), f"{SIMULATED}@{100 * wer:g}{qa.suffix}"
    return CascadeSystem(
        name, lambda record, _: simulated_words(confusions, wer, seed, record), qa, card, False
    )
