"""Systems that choose between options: on units, on words heard or written, and baselines that do neither.

A model folder holds `choice-units/` beside `encoder/` and `units.safetensors`, `choice-speechbert/` beside `speechbert/` and
`ctc/`, and `choice-text/` for words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.cascade.system import TextCodec
from speechssl.cascade.words import Recogniser, Transcript
from speechssl.data.records import Passage, Question
from speechssl.dual.model import Layout
from speechssl.errors import InputError
from speechssl.io import model_folder
from speechssl.multiple_choice.model import Choice, ChoiceModel, ChoiceReader, load_choice
from speechssl.multiple_choice.speechbert import score_codes
from speechssl.multiple_choice.train import load_tokenizer, text_choice, written
from speechssl.speechbert.model import AudioWords
from speechssl.speechbert.system import SpeechBertSystem, load_speechbert
from speechssl.systems import SharedEncoder, part, recogniser_of, shared_encoder
from speechssl.timing import RunLength
from speechssl.units.extract import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook

# Scores of multiple choice, and the baselines that hear nothing.
#
# Set accuracy: the options chosen are exactly the right ones, one or several. Accuracy: the same on the questions with one right
# option. Systems know how many options are right (see `qa/choice.py`), and so do the baselines.


@dataclass(frozen=True)
class ScoredChoice:
    """One question's scores, 0 to 1 (expected ones for chance); accuracy is None where several options are right."""

    id: str
    passage: str
    set_accuracy: float
    accuracy: float | None
    options: int
    correct: tuple[int, ...]
    chosen: tuple[int, ...] | None  # None: by chance; (): the question could not be answered


def score_choice(question: Question, chosen: Sequence[int]) -> ScoredChoice:
    """Of the options chosen, in any order."""
    picked = tuple(sorted(chosen))
    return _scored(question, float(picked == tuple(sorted(question.correct))), picked)


def score_chance(question: Question) -> ScoredChoice:
    """Exact: what a set drawn from all of the right size is worth on average."""
    return _scored(question, 1 / math.comb(len(question.options), len(question.correct)), None)


def longest_options(question: Question) -> tuple[int, ...]:
    """As many options as are right, those with the most characters; of equals the earlier."""
    order = sorted(range(len(question.options)), key=lambda i: -len(question.options[i]))
    return tuple(sorted(order[: len(question.correct)]))


def _scored(question: Question, value: float, picked: tuple[int, ...] | None) -> ScoredChoice:
    single = value if len(question.correct) == 1 else None
    right = tuple(sorted(question.correct))
    return ScoredChoice(question.id, question.passage, value, single, len(question.options), right, picked)


BASELINES = ("chance", "longest-option")
WRITTEN = {"text": "text", "cascade-given": "given"}  # systems that read what is written, and what of it


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
    """End to end."""

    extractor: UnitExtractor
    reader: ChoiceReader
    card: Mapping[str, Any]
    name: str = "units"

    def encode(self, record: Passage | Question | None, samples: Any) -> RunLength:
        """samples: (N,) float32 at 16 kHz."""
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
        """samples: (N,) float32 at 16 kHz."""
        return self.system.encode(record, samples)

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        heard = [(item.question, item.options, item.passage) for item in items]
        return score_codes(self.model, self.layout, heard, bf16=self.system.model.bf16)


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
        """samples: (N,) float32 at 16 kHz."""
        return self.recogniser.transcribe(samples)

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        return self.reader.score_many(
            [Choice(self._ids(i.question), tuple(map(self._ids, i.options)), self._ids(i.passage)) for i in items]
        )

    def _ids(self, transcript: Transcript) -> np.ndarray:
        return self.codec.encode([word.text for word in transcript.words])[0]


@dataclass(frozen=True)
class WrittenChoice:
    """Words that are written: of the reference (`text`), or of the recogniser whose output came with the corpus."""

    name: str
    source: str
    codec: TextCodec
    reader: ChoiceReader
    card: Mapping[str, Any]

    def score_written(self, pairs: Sequence[tuple[Question, Passage]]) -> list[np.ndarray]:
        """Raises InputError for a passage of which nothing is written."""
        return self.reader.score_many([self._choice(question, passage) for question, passage in pairs])

    def _choice(self, question: Question, passage: Passage) -> Choice:
        read = written(passage, self.source)
        if not read:
            kind, other = ("text", "cascade-ctc or units") if self.source == "text" else ("transcript", "text")
            raise InputError(f"passage {passage.id} has no {kind}, which {self.name} reads; evaluate {other} on this corpus")
        return text_choice(self.codec, written(question, self.source), question.options, read, question.language)


@dataclass(frozen=True)
class Baseline:
    """Chance, or the longest option."""

    name: str

    @property
    def card(self) -> Mapping[str, Any]:
        return {"baseline": self.name}


ChoiceSystem = SpokenChoice | WrittenChoice | Baseline


def load_choice_systems(models: Path | str, names: Sequence[str], bf16: bool = False) -> list[ChoiceSystem]:
    """names: `units`, `speechbert`, `cascade-<engine>` (see `systems.load_cascade`), `text`, `cascade-given`, and the baselines.

    Raises InputError for a system that there is not, and for parts that are missing or do not belong together.
    """
    encoder = None
    found: list[ChoiceSystem] = []
    for name in names:
        if name in BASELINES:
            found.append(Baseline(name))
        elif name in WRITTEN:
            found.append(_load_written(_folder(models), name, bf16))
        elif name in ("units", "speechbert") or name.startswith("cascade-"):
            encoder = encoder or shared_encoder(model_folder(models))
            found.append(_load_spoken(model_folder(models), name, encoder, bf16))
        else:
            known = ("units", "speechbert", "cascade-ctc", "cascade-pocketsphinx", "cascade-<folder>", *WRITTEN)
            raise InputError(f"there is no system {name!r}; choose {', '.join((*known, *BASELINES))}")
    return found


def _folder(models: Path | str) -> Path:
    """Of models that only read: no encoder need be there."""
    return Path(models) if (Path(models) / "choice-text").is_dir() else model_folder(models)


def _load_spoken(models: Path, name: str, encoder: SharedEncoder, bf16: bool) -> SpokenChoice:
    if name == "units":
        return _load_units(models, encoder, bf16)
    if name == "speechbert":
        return _load_speechbert(models, encoder, bf16)
    recogniser, made = recogniser_of(models, name.removeprefix("cascade-"), encoder)
    codec, reader, weights = _words(models, bf16)
    return CascadeChoice(recogniser, codec, reader, {"asr": made, "choice_text": weights} | _fast(bf16))


def _load_units(models: Path, encoder: SharedEncoder, bf16: bool) -> UnitsChoice:
    extractor = extractor_of(encoder, load_codebook(models / "units.safetensors"))  # type: ignore[arg-type]
    folder = _part(models, "choice-units", "units")
    model, layout, card = load_choice(folder)
    units = card.get("units")
    if not isinstance(units, dict) or units.get("codebook") not in extractor.codebook.names:
        raise InputError(f"{folder} was trained on other units than {models / 'units.safetensors'} gives; train it again")
    made = {"choice_units": card["weights"], **extractor.card} | _fast(bf16)
    return UnitsChoice(extractor, ChoiceReader(model, layout, bf16=bf16), made)


def _load_speechbert(models: Path, encoder: SharedEncoder, bf16: bool) -> SpeechBertChoice:
    folder = _part(models, "choice-speechbert", "speechbert")
    system = load_speechbert(part(models, "speechbert"), encoder, *recogniser_of(models, "ctc", encoder), bf16=bf16)
    model, layout, card = load_choice(folder)
    made = card.get("speechbert")
    if not isinstance(made, dict) or made.get("words") != system.card["words"]:
        raise InputError(f"{folder} was trained on other audio words than {part(models, 'speechbert')} makes; train it again")
    return SpeechBertChoice(system, model, layout, {"choice_speechbert": card["weights"], **system.card})


def _load_written(models: Path, name: str, bf16: bool) -> WrittenChoice:
    codec, reader, weights = _words(models, bf16)
    return WrittenChoice(name, WRITTEN[name], codec, reader, {"choice_text": weights, "source": WRITTEN[name]} | _fast(bf16))


def _words(models: Path, bf16: bool) -> tuple[TextCodec, ChoiceReader, str]:
    folder = _part(models, "choice-text", "text")
    model, layout, card = load_choice(folder)
    codec = TextCodec(load_tokenizer(folder, model.embedding.num_embeddings))
    return codec, ChoiceReader(model, layout, bf16=bf16), card["weights"]


def _part(models: Path, name: str, kind: str) -> Path:
    if not (folder := part(models, name)).is_dir():
        how = "neither --units nor --speechbert" if kind == "text" else f"with --{kind}"
        raise InputError(f"{models} has no {name}/; train one (speechssl train choice, {how})")
    return folder


def _fast(bf16: bool) -> dict[str, Any]:
    return {"bf16": True} if bf16 else {}
