"""Pipelines lead from recordings to answers. `QA` asks the systems of a folder of models, as
`speechssl answer` does; `Units`, `Dual` and `Cascade` are made of parts that are named one by one:

    import speechssl

    encoder = speechssl.load_encoder("people-en/encoder")  # or a folder, a .pt, a name on the hub
    codebook = speechssl.load_codebook("people-en/units.safetensors")
    units = speechssl.Units(encoder, codebook)
    passage, question = units("lecture.mp3"), units("question.wav")  # .units, .lengths in frames
    dual = speechssl.Dual(units, "people-en/dual")  # a reader of `speechssl train dual`
    span = dual.answer(passage, question)  # or of the recordings themselves
    print(span.start, span.end, span.confidence)  # seconds in the passage; 0 to 1

Files are strings or paths; recordings are files, or samples (N,) float32 at 16 kHz. In shapes, U is
the number of units of a recording.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import hold_output, read_json
from speechssl.audio import read_question, read_recording
from speechssl.cascade.data import Transcript
from speechssl.cascade.options import ReaderOptions
from speechssl.cascade.readers import find_reader
from speechssl.cascade.system import SIMULATED, TEXT_SYSTEMS, CascadeSystem, split_into_words
from speechssl.checkpoints import DEFAULT, fetch_checkpoint, model_folder
from speechssl.dual.system import DualSystem, TimedAnswer, load_dual
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval.options import Qa
from speechssl.options import find_shipped
from speechssl.results import Row, read_rows
from speechssl.systems import System, choose_default_systems, load_systems, parse_system
from speechssl.text import find_language
from speechssl.timing import RunLength, find_interval
from speechssl.units.codebook import Codebook, load_codebook
from speechssl.units.features import make_extractor

Audio = Path | str | np.ndarray
T = TypeVar("T")

# what to say of models that learned from generated speech; {} is an entry of READER_HINTS
RECOGNISER_HINT = (
    "These models know little but sentences of a text generator, read by synthesisers. For other "
    "speech name a recogniser (--recogniser openai/whisper-base){}."
)
CONFIDENCE = "confidence ranks the answers of one system; it is no probability of being right"
READER_HINTS = {
    "en": "",
    "zh": " and a reader of Mandarin (--reader deepset/xlm-roberta-base-squad2)",
}


def encode_recording(encode: Callable[[np.ndarray], T], audio: Audio) -> T:
    """Read a recording and encode it. Raises InputError for audio that cannot be used."""
    name = "the recording" if isinstance(audio, np.ndarray) else str(audio)
    return encode_samples(encode, read_recording(audio), name)


def encode_samples(encode: Callable[[np.ndarray], T], samples: np.ndarray, name: str) -> T:
    """Encode samples (N,). name: for the message of the InputError, which is raised for too few
    samples."""
    try:
        return encode(samples)
    except ValueError as error:
        raise InputError(
            f"{name} cannot be processed ({error}); give a longer recording"
        ) from error


class Units:
    """Units of recordings are made by an encoder, in the layer that a codebook was fitted on, and
    by the codebook."""

    def __init__(
        self, encoder: SpeechEncoder | Path | str, codebook: Codebook | Path | str
    ) -> None:
        """Load the parts. encoder, codebook: loaded, or as `load_encoder` and `load_codebook` take
        them. Raises InputError where the codebook was fitted on another encoder."""
        self.encoder = encoder if isinstance(encoder, SpeechEncoder) else load_encoder(encoder)
        book = codebook if isinstance(codebook, Codebook) else load_codebook(codebook)
        self.extractor = make_extractor(self.encoder, book)

    @classmethod
    def from_pretrained(cls, models: Path | str = DEFAULT) -> Units:
        """Load encoder/ and units.safetensors of a folder of models, a shipped set or OWNER/NAME on
        the hub."""
        folder = model_folder(models)
        return cls(folder / "encoder", folder / "units.safetensors")

    @property
    def card(self) -> dict[str, Any]:
        """Return the settings that decide the units: hashes of encoder and codebook, layer,
        precision."""
        return self.extractor.card

    def __call__(self, audio: Audio) -> RunLength:
        """Return the run-length units (U,) of a recording of any length. Raises InputError for
        audio that cannot be used."""
        return encode_recording(self.extractor.extract, audio)

    def seconds(self, runs: RunLength, first: int, last: int) -> tuple[float, float]:
        """Return the start and the end in seconds of the units `first` to `last`, both included, of
        a recording."""
        return find_interval(self.extractor.grid, runs, first, last)


class Dual:
    """DUAL (arXiv 2203.04911) is a text encoder that finds the span of the answer in the units of
    the passage."""

    def __init__(self, units: Units | Path | str, reader: Path | str) -> None:
        """Load the reader.

        units: loaded, or as `Units.from_pretrained` takes them. reader: a folder of `train dual`, a
        shipped one or OWNER/NAME. Raises InputError where the reader was trained on other units.
        """
        self.units = units if isinstance(units, Units) else Units.from_pretrained(units)
        folder = fetch_checkpoint(find_shipped(Path(reader)), "reader")
        self.system = load_dual(folder, self.units.extractor)
        # The user sees plain units, not pieces (merged n-grams of units), but decoded with the
        # penalty on changes of unit that the reader was trained with. The copy leaves the caller's
        # Units as they are.
        self.units = copy(self.units)
        self.units.extractor = replace(self.system.extractor, pieces=None)

    @classmethod
    def from_pretrained(cls, models: Path | str = DEFAULT) -> Dual:
        """Load DUAL from a folder of models, a shipped set or OWNER/NAME on the hub."""
        return cls(Units.from_pretrained(models), model_folder(models) / "dual")

    def answer(self, passage: Audio | RunLength, question: Audio | RunLength) -> TimedAnswer:
        """Return start and end in seconds in the passage, and a confidence in [0, 1].

        passage, question: a recording, or its units. Raises InputError as `Units` does, and for a
        question that is a text.
        """
        query = question if isinstance(question, RunLength) else read_question(question)
        if isinstance(query, str):
            raise InputError(
                f"DUAL reads no text such as {query!r}; give a recording of the question or its "
                "units, or ask a Cascade, which reads texts"
            )
        return self.system.answer_all([(self._read_symbols(query), self._read_symbols(passage))])[0]

    def _read_symbols(self, recording: Audio | RunLength) -> RunLength:
        """Return the symbols that the reader reads: units, or pieces (merged n-grams of units)."""
        extractor = self.system.extractor
        if not isinstance(recording, RunLength):
            return encode_recording(extractor.extract, recording)
        return recording if extractor.pieces is None else extractor.pieces.join(recording)


class Cascade:
    """A cascade recognises speech, then answers questions on the words."""

    def __init__(
        self,
        recogniser: str,
        reader: Path | str | None,
        language: str = "en",
        models: Path = Path(),
    ) -> None:
        """Load both parts.

        recogniser: a CTC or Whisper model of Hugging Face, or the name of a CTC head in a folder of
        models. reader: a question-answering model of Hugging Face, or text QA; None: that of the
        folder of models. Raises InputError where either is missing.
        """
        # named=False: the system is called after its recogniser alone
        reading = ReaderOptions(str(reader) if reader else None, named=False)
        name = f"cascade-{recogniser}"
        self.system: Any = load_systems(models, [name], reading=reading, language=language)[0]
        self.language = language

    @classmethod
    def from_pretrained(
        cls, models: Path | str = DEFAULT, recogniser: str = "ctc", language: str = "en"
    ) -> Cascade:
        """Load the CTC head (or another recogniser) and text-qa/ of a folder of models, a shipped
        set or OWNER/NAME on the hub."""
        return cls(recogniser, None, language, model_folder(models))

    def transcribe(self, audio: Audio) -> Transcript:
        """Return the words of a recording with their times. Raises InputError for audio that cannot
        be used."""
        # None: the audio does not belong to a corpus
        transcript: Transcript = encode_recording(partial(self.system.encode, None), audio)
        return transcript

    def answer(self, passage: Audio | Transcript, question: Audio | Transcript) -> TimedAnswer:
        """Return start and end in seconds in the passage, a confidence in [0, 1], and the words.

        passage: a recording or its transcript; question: a recording, its transcript or a text.
        Raises InputError as `transcribe` does, and for a text without words.
        """
        words = passage if isinstance(passage, Transcript) else self.transcribe(passage)
        query = question if isinstance(question, Transcript) else read_question(question)
        if isinstance(query, str):
            query = split_into_words(query, self.language)
        elif isinstance(query, np.ndarray):
            query = self.transcribe(query)
        answer: TimedAnswer = self.system.answer_all([(query, words)])[0]
        return answer


class Detail(NamedTuple):
    """A detail is the answer of one system, with the encoded passage and question: units
    (`RunLength`), words with times (`Transcript`), or vectors of words."""

    answer: TimedAnswer
    passage: Any
    question: Any


class QA:
    """Systems of spoken question answering are loaded once, and asked often.

    qa = speechssl.QA(recogniser="openai/whisper-base")
    for answers in qa.answer("lecture.mp3", ["question.wav", "When was the university founded?"]):
        print(answers["cascade-whisper-base"].text)
    """

    def __init__(
        self,
        models: Path | str = DEFAULT,
        systems: Sequence[str] | None = None,
        reader: Path | str | None = None,
        language: str = "en",
        null_threshold: float | None = None,
        recogniser: str | None = None,
    ) -> None:
        """Load the systems.

        models: a shipped set or a folder of models. systems: names as in `load_systems`, or one
        name; None: DUAL, and the cascade with the CTC head, as far as the models have them.
        recogniser: a recogniser of Hugging Face, which replaces the CTC head; its cascade comes
        first. reader: a question-answering model of Hugging Face, or text QA, which replaces the
        cascades' reader in the models. language: en or zh. null_threshold: as in `ReaderOptions`;
        None: there always is an answer.
        Raises InputError for an unknown system, and for parts that are missing or do not fit each
        other.
        """
        self.language = find_language(language)
        folder = model_folder(models)
        self.advice = ""  # one sentence, where the models know synthetic speech alone
        if systems is None and recogniser is None and is_synthetic(folder / "encoder"):
            self.advice = RECOGNISER_HINT.format(READER_HINTS[self.language])
            tqdm.write(self.advice, file=sys.stderr)
        names = _choose_systems(folder, systems, recogniser)
        # named=False: systems are called after their recognisers alone
        reading = ReaderOptions(str(reader) if reader else None, null_threshold, named=False)
        self.systems: list[System] = load_systems(
            folder, names, reading=reading, language=self.language
        )
        # name -> one line
        self.about = {s.name: describe(s, folder, reading.reader) for s in self.systems}

    def _list_cascades(self) -> list[CascadeSystem]:
        """Return the systems that can be asked by a text."""
        return [system for system in self.systems if isinstance(system, CascadeSystem)]

    def __repr__(self) -> str:
        return f"QA({'; '.join(f'{name}: {line}' for name, line in self.about.items())})"

    def answer(self, passage: Audio, questions: Sequence[Audio]) -> list[dict[str, TimedAnswer]]:
        """Return the answers to every question, by the name of the system: start and end in
        seconds, a confidence in [0, 1], and the words if the system has words ("" where none were
        recognised, or there is no answer).

        passage: a recording of any length, as an audio file or samples (N,) float32 at 16 kHz;
        questions: recordings, or texts, which only cascades answer. Raises InputError for audio
        that cannot be used, for a text without words, and for a text where no system is a cascade;
        TypeError for a question that is not in a list.
        """
        answers = []
        for details in self.details(passage, questions):
            answers.append({system: detail.answer for system, detail in details.items()})
        return answers

    def details(self, passage: Audio, questions: Sequence[Audio]) -> list[dict[str, Detail]]:
        """Answer as `answer` does, with the encoded passage and question of every system."""
        if isinstance(questions, str | Path | np.ndarray):
            raise TypeError("questions come in a list, also one alone: answer(passage, [question])")
        samples = read_recording(passage)
        queries = [read_question(question) for question in questions]
        if not self._list_cascades() and any(isinstance(query, str) for query in queries):
            names = ", ".join(system.name for system in self.systems)
            raise InputError(
                f"{names} can only listen; record the question, or add a cascade "
                "that reads it (cascade-ctc)"
            )
        what = "the passage" if isinstance(passage, np.ndarray) else str(passage)
        passages = self._encode(samples, what)
        return [self._answer_one(query, passages) for query in queries]

    def _answer_one(self, query: np.ndarray | str, passages: dict[str, Any]) -> dict[str, Detail]:
        """Ask the systems one question. passages: name of the system -> encoded passage."""
        if isinstance(query, str):
            words = split_into_words(query, self.language)
            questions = {s.name: words for s in self._list_cascades()}
        else:
            questions = self._encode(query, "the question")
        details: dict[str, Detail] = {}
        for system in self.systems:
            if system.name in questions:
                question, passage = questions[system.name], passages[system.name]
                answer = system.answer_all([(question, passage)])[0]
                details[system.name] = Detail(answer, passage, question)
        return details

    def _encode(self, samples: np.ndarray, what: str) -> dict[str, Any]:
        """Encode a recording by every system: name of the system -> encoded recording. what: the
        recording, in messages."""
        encoded = {}
        # DUAL last: the shared encoder remembers its last output. A CTC head needs all layers, and
        # DUAL then finds its one layer among them.
        order = sorted(self.systems, key=lambda s: isinstance(s, DualSystem))
        # disable=None: the bar is shown on a terminal only
        for system in tqdm(
            order, f"encoding {Path(what).name}", unit="system", leave=False, disable=None
        ):
            encode = partial(system.encode, None)  # None: the audio does not belong to a corpus
            encoded[system.name] = encode_samples(encode, samples, what)
        return encoded


def load_qa(models: str, o: Any) -> QA:
    """Load the systems that a verb asks. o: its options, those of `answer` or `serve`."""
    reader, null_threshold = o.reading.reader, o.reading.null_threshold
    return QA(models, o.systems, reader, o.language, null_threshold, o.recogniser)


def answer(
    passage: Audio,
    question: Audio,
    systems: Sequence[str] | None = None,
    models: Path | str = DEFAULT,
    reader: Path | str | None = None,
    null_threshold: float | None = None,
    language: str = "en",
    recogniser: str | None = None,
) -> dict[str, TimedAnswer]:
    """Ask one question (see `QA`): name of the system -> answer."""
    # bad audio is found before models are loaded
    samples = read_recording(passage)
    query = read_question(question)
    qa = QA(models, systems, reader, language, null_threshold, recogniser)
    return qa.answer(samples, [query])[0]


def _choose_systems(
    folder: Path, systems: Sequence[str] | str | None, recogniser: str | None
) -> list[str]:
    """Return the names of the systems to ask."""
    if systems is None and recogniser is None:
        return choose_default_systems(folder)
    if systems is None:
        names = ["dual"] if (folder / "dual").is_dir() else []
    else:
        names = [*make_tuple(systems)]
    if recogniser:
        names.insert(0, f"cascade-{recogniser}")
    for name in names:
        if name in TEXT_SYSTEMS or name.startswith(SIMULATED):
            raise InputError(
                f"{name} reads transcripts and cannot listen; choose dual, speechbert, or "
                "cascade-RECOGNISER"
            )
    return names


def describe(system: System, folder: Path, reader: str | None) -> str:
    """Describe of which models a system is made, and what they were trained on. folder: the folder
    of models; reader: the reader of the cascades, None for the one in the folder."""
    parts = []
    uses_our_encoder = parse_system(system.name).needs_encoder
    if uses_our_encoder:
        parts.append(f"{folder.name}{describe_training(folder / 'encoder')}")
    else:
        parts.append(f"words by {system.card.get('asr', system.name)}")
    if isinstance(system, CascadeSystem) and (reader or not uses_our_encoder):
        reader_folder = find_reader(folder, reader)
        parts.append(f"answers by {reader or reader_folder}{describe_training(reader_folder)}")
    return "; ".join(parts)


def describe_training(folder: Path) -> str:
    """Return the text ", trained on ...", to follow a model's name; "" where its card does not say
    what the model was trained on."""
    corpus = read_training_corpus(folder)
    if "corpus" not in corpus:
        return ""
    synthetic = f" ({corpus['synthetic']})" if "synthetic" in corpus else ""
    return f", trained on {corpus['corpus']}{synthetic}"


def is_synthetic(folder: Path) -> bool:
    """Return whether a model was trained on synthetic speech, by its card."""
    # "speech by espeak-ng", and not "an invented miniature"
    return str(read_training_corpus(folder).get("synthetic", "")).startswith("speech by")


def read_training_corpus(folder: Path) -> dict[str, Any]:
    """Read the entry of a model's card on the corpus that it was trained on; empty without one."""
    if not (folder / "card.json").is_file():
        return {}
    return dict(read_json(folder / "card.json").get("corpus") or {})


def evaluate(
    corpus: Path | str,
    out: Path | str,
    models: Path | str = DEFAULT,
    systems: Sequence[str] | None = None,
    conditions: Sequence[str] = ("clean",),
    split: str = "test",
    **options: Any,
) -> list[Row]:
    """Evaluate systems under conditions (a name or several) on a corpus, as `speechssl evaluate qa`
    does; all rows in `out`, in percent.

    options: further fields of `speechssl.eval.options.Qa`, such as passages=20, seed=1,
    label="mine" or reading=ReaderOptions(reader). Raises InputError as the verb does.
    """
    from speechssl.eval.spoken_qa import run_evaluation

    plan = Qa(
        corpus=Path(corpus),
        out=Path(out),
        models=str(models),
        systems=None if systems is None else make_tuple(systems),
        conditions=make_tuple(conditions),
        split=split,
        **options,
    )
    with hold_output(plan.out):
        run_evaluation(plan)
    return list(read_rows(plan.out / "results.jsonl"))


def make_tuple(names: Sequence[str] | str) -> tuple[str, ...]:
    """Make a tuple of several names or one."""
    return (names,) if isinstance(names, str) else tuple(names)
