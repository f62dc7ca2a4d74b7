"""Systems that choose between options: on units, on audio words, on recognised or given words, and baselines without any of these.

A model folder holds `choice-units/` beside `encoder/` and `units.safetensors`, `choice-speechbert/` beside `speechbert/` and
`ctc/`, and `choice-text/` for words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.cascade.system import load_recogniser
from speechssl.cascade.words import Recogniser, Transcript
from speechssl.data.records import Passage, Question
from speechssl.dual.data import Layout
from speechssl.dual.system import check_units_of
from speechssl.encoders.shared import shared_encoder
from speechssl.errors import InputError
from speechssl.io import model_folder
from speechssl.multiple_choice.data import Choice, text_choice, written
from speechssl.multiple_choice.decode import ChoiceReader
from speechssl.multiple_choice.model import ChoiceModel, load_choice
from speechssl.multiple_choice.speechbert import score_codes
from speechssl.speechbert.decode import AudioWords
from speechssl.speechbert.system import SpeechBertSystem, load_speechbert
from speechssl.textlm.encoders import TextCodec, load_tokenizer
from speechssl.timing import RunLength
from speechssl.units.extract import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook

BASELINES = ("chance", "longest-option")
WRITTEN = {"text": "text", "cascade-given": "given"}  # systems that read the text of the corpus, and which of its texts


@dataclass(frozen=True)
class EncodedQuestion:
    """A system's representations of a question's recordings."""

    question: Any
    options: tuple[Any, ...]
    passage: Any


class SpokenChoice(Protocol):
    """Encodes every recording once, then scores the options of all questions."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    def encode(self, record: Passage | Question | None, samples: Any) -> Any:
        """The system's representation of a recording. record: None for an option; samples: (N,) float32 at 16 kHz."""
        ...

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        """(O,) log-probabilities of the options of every question."""
        ...


@dataclass(frozen=True)
class UnitsChoice:
    """End to end: units of passage, question and options."""

    extractor: UnitExtractor
    reader: ChoiceReader
    card: Mapping[str, Any]
    name: str = "units"

    def encode(self, record: Passage | Question | None, samples: Any) -> RunLength:
        return self.extractor.units(samples)

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        return self.reader.score_many([Choice(i.question.units, tuple(o.units for o in i.options), i.passage.units) for i in items])


@dataclass(frozen=True)
class SpeechBertChoice:
    """Audio words, which a recogniser cuts; not always that of the training, and the card of the results says which."""

    system: SpeechBertSystem
    model: ChoiceModel
    layout: Layout
    card: Mapping[str, Any]
    name: str = "speechbert"

    def encode(self, record: Passage | Question | None, samples: Any) -> AudioWords:
        return self.system.encode(record, samples)

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        encoded = [(item.question, item.options, item.passage) for item in items]
        return score_codes(self.model, self.layout, encoded, bf16=self.system.bf16)


@dataclass(frozen=True)
class CascadeChoice:
    """Words that were recognised."""

    recogniser: Recogniser
    codec: TextCodec
    reader: ChoiceReader
    card: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"cascade-{self.recogniser.name}"

    def encode(self, record: Passage | Question | None, samples: Any) -> Transcript:
        return self.recogniser.transcribe(samples)

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        def ids(transcript: Transcript) -> np.ndarray:
            return self.codec.encode([word.text for word in transcript.words])[0]

        return self.reader.score_many([Choice(ids(i.question), tuple(map(ids, i.options)), ids(i.passage)) for i in items])


@dataclass(frozen=True)
class WrittenChoice:
    """Text of the corpus: the reference (`text`), or the transcripts that came with it (`cascade-given`)."""

    name: str
    source: str
    codec: TextCodec
    reader: ChoiceReader
    card: Mapping[str, Any]

    def score_written(self, pairs: Sequence[tuple[Question, Passage]]) -> list[np.ndarray]:
        """(O,) log-probabilities of the options of every question. Raises InputError for a passage without text."""
        choices = []
        for question, passage in pairs:
            read = written(passage, self.source)
            if not read:
                kind, other = ("text", "cascade-ctc or units") if self.source == "text" else ("transcript", "text")
                raise InputError(f"passage {passage.id} has no {kind}, which {self.name} reads; evaluate {other} on this corpus")
            choices.append(text_choice(self.codec, written(question, self.source), question.options, read, question.language))
        return self.reader.score_many(choices)


@dataclass(frozen=True)
class Baseline:
    """Chance, or the longest option."""

    name: str

    @property
    def card(self) -> Mapping[str, Any]:
        return {"baseline": self.name}


ChoiceSystem = SpokenChoice | WrittenChoice | Baseline


def load_choice_systems(models: Path | str, names: Sequence[str], bf16: bool = False) -> list[ChoiceSystem]:
    """names: `units`, `speechbert`, `cascade-<engine>` (see `load_recogniser`), `text`, `cascade-given`, and the baselines.

    Raises InputError for a system that there is not, and for parts that are missing or do not belong together.
    """
    encoder: Any = None
    found: list[ChoiceSystem] = []
    for name in names:
        if name in BASELINES:
            found.append(Baseline(name))
        elif name in WRITTEN:  # no encoder need be there
            folder = Path(models) if (Path(models) / "choice-text").is_dir() else model_folder(models)
            codec, reader, card = _load_text(folder, bf16)
            found.append(WrittenChoice(name, WRITTEN[name], codec, reader, card | {"source": WRITTEN[name]}))
        elif name in ("units", "speechbert") or name.startswith("cascade-"):
            folder = model_folder(models)
            encoder = encoder or shared_encoder(folder)
            if name == "units":
                found.append(_load_units(folder, encoder, bf16))
            elif name == "speechbert":
                found.append(_load_speechbert(folder, encoder, bf16))
            else:
                recogniser, made = load_recogniser(folder, name.removeprefix("cascade-"), encoder)
                codec, reader, card = _load_text(folder, bf16)
                found.append(CascadeChoice(recogniser, codec, reader, {"asr": made} | card))
        else:
            known = ("units", "speechbert", "cascade-ctc", "cascade-pocketsphinx", "cascade-<folder>", *WRITTEN)
            raise InputError(f"there is no system {name!r}; choose {', '.join((*known, *BASELINES))}")
    return found


def _load_units(models: Path, encoder: Any, bf16: bool) -> UnitsChoice:
    codebook = models / "units.safetensors"
    extractor = extractor_of(encoder, load_codebook(codebook))
    folder = _choice_part(models, "choice-units", "units")
    model, layout, card = load_choice(folder)
    check_units_of(folder, card, extractor, codebook)
    made = {"choice_units": card["weights"], **extractor.card} | ({"bf16": True} if bf16 else {})
    return UnitsChoice(extractor, ChoiceReader(model, layout, bf16=bf16), made)


def _load_speechbert(models: Path, encoder: Any, bf16: bool) -> SpeechBertChoice:
    folder, audio_words = _choice_part(models, "choice-speechbert", "speechbert"), models / "speechbert"
    system = load_speechbert(audio_words, encoder, *load_recogniser(models, "ctc", encoder), bf16=bf16)
    model, layout, card = load_choice(folder)
    made = card.get("speechbert")
    if not isinstance(made, dict) or made.get("words") != system.card["words"]:
        raise InputError(f"{folder} was trained on other audio words than {audio_words} makes; train it again")
    return SpeechBertChoice(system, model, layout, {"choice_speechbert": card["weights"], **system.card})


def _load_text(models: Path, bf16: bool) -> tuple[TextCodec, ChoiceReader, dict[str, Any]]:
    folder = _choice_part(models, "choice-text", "text")
    model, layout, card = load_choice(folder)
    codec = TextCodec(load_tokenizer(folder, model.embedding.num_embeddings))
    made = {"choice_text": card["weights"]} | ({"bf16": True} if bf16 else {})
    return codec, ChoiceReader(model, layout, bf16=bf16), made


def _choice_part(models: Path, name: str, kind: str) -> Path:
    if not (folder := models / name).is_dir():
        how = "neither --units nor --speechbert" if kind == "text" else f"with --{kind}"
        raise InputError(f"{models} has no {name}/; train one (speechssl train choice, {how})")
    return folder
