"""Python's face of the methods: units of a recording, DUAL and the cascade on one's own parts, an
evaluation as rows.

`QA` asks the systems of a folder of models, as `speechssl answer` does. Here each part is named by
itself:

    import speechssl

    encoder = speechssl.load_encoder("people-en/encoder")  # or a folder, a .pt, a name on the hub
    codebook = speechssl.load_codebook("people-en/units.safetensors")
    units = speechssl.Units(encoder, codebook)
    passage, question = units("lecture.mp3"), units("question.wav")  # .units, .lengths in frames
    dual = speechssl.Dual(units, "people-en/dual")  # a reader of `speechssl train dual`
    span = dual.answer(passage, question)  # or of the recordings themselves
    print(span.start, span.end, span.confidence)  # seconds in the passage; 0 to 1

Files are strings or paths, recordings also samples (N,) float32 at 16 kHz. U: units of a recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.cascade.data import Transcript
from speechssl.cascade.options import ReaderOptions
from speechssl.cascade.readers import load_text_qa
from speechssl.cascade.system import is_ctc_head, load_cascade, load_recogniser
from speechssl.checkpoints import DEFAULT, checkpoint_folder, model_folder
from speechssl.data.asked import read_question, read_recording
from speechssl.dual.system import TimedAnswer, load_dual
from speechssl.encoders.load import SpeechEncoder, load_encoder
from speechssl.errors import InputError
from speechssl.eval.options import Qa
from speechssl.options import find_shipped
from speechssl.results import Row, read_rows
from speechssl.systems import load_systems
from speechssl.timing import RunLength, interval_of_units
from speechssl.units.features import extractor_of
from speechssl.units.kmeans import Codebook, load_codebook

Audio = Path | str | np.ndarray


class Units:
    """Units of recordings are made by the layer of an encoder that a codebook was fitted on, and
    the codebook."""

    def __init__(
        self, encoder: SpeechEncoder | Path | str, codebook: Codebook | Path | str
    ) -> None:
        """Take the parts.

        encoder, codebook: loaded, or as `load_encoder` and `load_codebook` take them.

        Raises InputError where they do not belong together.
        """
        loaded = encoder if isinstance(encoder, SpeechEncoder) else load_encoder(encoder)
        self.encoder = loaded
        self.extractor = extractor_of(
            loaded, codebook if isinstance(codebook, Codebook) else load_codebook(codebook)
        )

    @classmethod
    def from_pretrained(cls, models: Path | str = DEFAULT) -> Units:
        """Load encoder/ and units.safetensors of a folder of models, a shipped set or OWNER/NAME on
        the hub."""
        folder = model_folder(models)
        return cls(folder / "encoder", folder / "units.safetensors")

    def __repr__(self) -> str:
        return f"Units({self.encoder!r}, {self.extractor.codebook!r})"

    @property
    def card(self) -> dict[str, Any]:
        """Return what decides the units: hashes of encoder and codebook, layer, precision."""
        return self.extractor.card

    def __call__(self, audio: Audio) -> RunLength:
        """Return the run-length units (U,) of a recording of any length. Raises InputError for
        audio that cannot be used."""
        samples = read_recording(audio)
        try:
            return self.extractor.units(samples)
        except ValueError as error:
            raise InputError(
                f"{_name_of(audio)} has no units ({error}); give a longer recording"
            ) from error

    def seconds(self, runs: RunLength, first: int, last: int) -> tuple[float, float]:
        """Return where units `first` to `last` of a recording, both included, begin and end in
        it."""
        return interval_of_units(self.extractor.grid, runs, first, last)


class Dual:
    """DUAL (arXiv 2203.04911) is a text encoder that finds the span of the answer in the units of
    the passage."""

    def __init__(self, units: Units | Path | str, reader: Path | str) -> None:
        """Load the reader.

        units: loaded, or as `Units.from_pretrained` takes them. reader: a folder of `train
        dual`, a shipped one or OWNER/NAME.

        Raises InputError where the reader was trained on other units.
        """
        self.units = units = units if isinstance(units, Units) else Units.from_pretrained(units)
        self.reader = str(reader)
        folder = find_shipped(Path(reader)) or Path(reader)
        self.system = load_dual(
            folder if folder.is_dir() else checkpoint_folder(reader, "reader"), units.extractor
        )

    def __repr__(self) -> str:
        return f"Dual({self.reader} on {self.units!r})"

    @classmethod
    def from_pretrained(cls, models: Path | str = DEFAULT) -> Dual:
        """Load DUAL from a folder of models, a shipped set or OWNER/NAME on the hub."""
        return cls(Units.from_pretrained(models), model_folder(models) / "dual")

    def answer(self, passage: Audio | RunLength, question: Audio | RunLength) -> TimedAnswer:
        """Return start and end in seconds of the passage, and a confidence in [0, 1]. Either is a
        recording, or its units.

        Raises InputError as `Units` does, and for a question that is a text.
        """
        query = question if isinstance(question, RunLength) else read_question(question)
        if isinstance(query, str):
            raise InputError(
                f"DUAL reads no text such as {query!r}; give a recording of the question (a "
                "file, or samples at 16 kHz) or its "
                "units, or ask a Cascade, which reads texts"
            )
        runs = [x if isinstance(x, RunLength) else self.units(x) for x in (passage, query)]
        return self.system.answer_all([(runs[1], runs[0])])[0]


class Cascade:
    """A cascade recognises speech, then answers questions on the words."""

    def __init__(self, recogniser: str, reader: Path | str, language: str = "en") -> None:
        """Load both.

        recogniser: a CTC or Whisper model of Hugging Face; a CTC head reads its own encoder, for
        which there is `from_pretrained`. reader: a question-answering model of Hugging Face, or
        text QA.

        Raises InputError where either is missing.
        """
        if is_ctc_head(recogniser):
            raise InputError(
                f"{recogniser} belongs to an encoder; take Cascade.from_pretrained "
                "with their folder of models"
            )
        options = ReaderOptions(str(reader), named=False)
        words = load_recogniser(Path(), recogniser, None, language)
        self.system = load_cascade(load_text_qa(Path(), options), words)
        self.language = language
        self.about = f"{recogniser}, {reader}"

    def __repr__(self) -> str:
        return f"Cascade({self.about})"

    @classmethod
    def from_pretrained(
        cls, models: Path | str = DEFAULT, recogniser: str = "ctc", language: str = "en"
    ) -> Cascade:
        """Load the CTC head (or another recogniser) and text-qa/ of a folder of models, a shipped
        set or OWNER/NAME on the hub."""
        cascade = cls.__new__(cls)
        system: Any = load_systems(
            model_folder(models), [f"cascade-{recogniser}"], language=language
        )[0]
        cascade.system = system
        cascade.language = language
        cascade.about = f"{recogniser} of {models}"
        return cascade

    def transcribe(self, audio: Audio) -> Transcript:
        """Return the words of a recording with their times. Raises InputError for audio that cannot
        be used."""
        samples = read_recording(audio)
        try:
            return self.system.encode(None, samples)
        except ValueError as error:
            raise InputError(
                f"{_name_of(audio)} cannot be transcribed ({error}); give a longer recording"
            ) from error

    def answer(self, passage: Audio | Transcript, question: Audio | Transcript) -> TimedAnswer:
        """Return start and end in seconds of the passage, a confidence in [0, 1], and the words. A
        question may be a text.

        Raises InputError as `transcribe` does, and for a text without words.
        """
        words = passage if isinstance(passage, Transcript) else self.transcribe(passage)
        query = question if isinstance(question, Transcript) else read_question(question)
        if isinstance(query, str):
            query = self.system.read(query, self.language)
        elif isinstance(query, np.ndarray):
            query = self.transcribe(query)
        return self.system.answer_all([(query, words)])[0]


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

    options: further ones of that verb by their names there, such as passages=20, seed=1,
    label="mine", or encoder, codebook and reader in the place of models. Raises InputError as the
    verb does.
    """
    from dataclasses import replace

    from speechssl.eval.spoken_qa import run_evaluation

    systems = [systems] if isinstance(systems, str) else systems
    conditions = [conditions] if isinstance(conditions, str) else conditions
    plan = Qa(
        corpus=Path(corpus),
        out=Path(out),
        models=str(models),
        conditions=tuple(conditions),
        split=split,
    )
    if "reader" in options:
        options["reading"] = replace(plan.reading, reader=str(options.pop("reader")))
    parts = {name: options.pop(name) for name in ("encoder", "codebook", "dual") if name in options}
    if parts:
        encoder = parts.pop("encoder", None)
        folders = {name: part and Path(part) for name, part in parts.items()}
        options["parts"] = replace(plan.parts, encoder=encoder and str(encoder), **folders)
    if options.get("errors"):
        options["errors"] = Path(options["errors"])
    try:
        plan = replace(plan, systems=None if systems is None else tuple(systems), **options)
    except TypeError as error:
        raise InputError(
            f"evaluate has no such option ({error}); see `speechssl evaluate qa --help`"
        ) from error
    run_evaluation(plan)
    return list(read_rows(plan.out / "results.jsonl"))


def _name_of(audio: Audio) -> str:
    return "the recording" if isinstance(audio, np.ndarray) else str(audio)
