"""Here are the systems of multiple choice: on units, on audio words, on recognised words, on the
corpus's reference or its own transcripts ("given"), and baselines that read nothing.

A model folder holds `choice-units/` beside `encoder/` and `units.safetensors`, `choice-speechbert/`
beside `speechbert/` and `ctc/`, and `choice-text/` for words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from speechssl.cascade.data import Transcript
from speechssl.cascade.system import is_ctc_head, load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.data.records import Passage, Question
from speechssl.dual.system import adapt_extractor, choose_device
from speechssl.encoders.load import load_shared_encoder
from speechssl.errors import InputError
from speechssl.multiple_choice.data import ChoiceTokens, make_text_choice
from speechssl.multiple_choice.model import ChoiceReader, load_choice
from speechssl.speechbert.data import stack_codes
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import load_speechbert
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer
from speechssl.units.codebook import load_codebook
from speechssl.units.features import make_extractor

BASELINES = ("chance", "longest-option")
# systems that read the text of the corpus -> which of its texts, as in `choose_text`
WRITTEN = {"text": "text", "cascade-given": "given"}


class EncodedQuestion(NamedTuple):
    """A question has the representations of its recordings, of the kind of its system: units, a
    transcript or audio words."""

    question: Any
    options: tuple[Any, ...]
    passage: Any

    def tokenise(self, list_ids: Callable[[Any], np.ndarray]) -> ChoiceTokens:
        """Tokenise the recordings. list_ids: returns the token ids of one representation."""
        options = tuple(map(list_ids, self.options))
        return ChoiceTokens(list_ids(self.question), options, list_ids(self.passage))


@dataclass(frozen=True)
class SpokenChoice:
    """A system encodes every recording once, then scores the options of all questions, on units or
    on recognised words."""

    name: str
    represent: Callable[[Any], Any]  # samples (N,) float32 at 16 kHz -> units or words
    list_ids: Callable[[Any], np.ndarray]  # representation of a recording -> token ids
    reader: ChoiceReader
    card: Mapping[str, Any]

    def encode(self, record: Passage | Question | None, samples: Any) -> Any:
        """Return the representation of a recording; the record does not matter."""
        return self.represent(samples)

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        """Return log-probabilities (O,) of the options of every question."""
        return self.reader.score_many([item.tokenise(self.list_ids) for item in items])


@dataclass(frozen=True)
class AudioWordChoice:
    """This system scores options on audio words. The recogniser that cuts recordings into words
    need not be that of the training; the card of the results names it."""

    name: str
    # called with (record, samples); returns audio words
    encode: Callable[[Passage | Question | None, Any], Any]
    reader: ChoiceReader
    card: Mapping[str, Any]

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        """Return log-probabilities (O,) of the options of every question."""
        embedding = self.reader.model.embedding
        codes = {}
        for question, options, passage in items:
            for words in (question, *options, passage):
                codes[id(words)] = words.codes
        embedding.codes, ids = stack_codes(codes, embedding.embedding_dim)
        choices = [item.tokenise(lambda words: ids[id(words)]) for item in items]
        return self.reader.score_many(choices)


@dataclass(frozen=True)
class WrittenChoice:
    """This system reads the text of the corpus: the reference (`text`), or the transcripts that
    came with it (`cascade-given`)."""

    name: str
    source: str
    codec: TextCodec
    reader: ChoiceReader
    card: Mapping[str, Any]

    def score_written(self, pairs: Sequence[tuple[Question, Passage]]) -> list[np.ndarray]:
        """Return log-probabilities (O,) of the options of every question. Raises InputError for a
        passage without text."""
        choices = []
        for question, passage in pairs:
            choice = make_text_choice(self.codec, question, passage, self.source)
            if choice is None:
                raise InputError(
                    f"passage {passage.id} has nothing written that {self.name} reads; evaluate "
                    "another system on this corpus"
                )
            choices.append(choice)
        return self.reader.score_many(choices)


@dataclass(frozen=True)
class Baseline:
    """A baseline chooses by chance, or the longest option."""

    name: str

    @property
    def card(self) -> Mapping[str, Any]:
        return {"baseline": self.name}


ChoiceSystem = SpokenChoice | AudioWordChoice | WrittenChoice | Baseline


def load_choice_systems(
    models: Path | str, names: Sequence[str], bf16: bool, language: str
) -> list[ChoiceSystem]:
    """Load systems by their names. names: `units`, `speechbert`, `cascade-<engine>` (see
    `load_recogniser`), `text`, `cascade-given`, and the baselines.

    language: of the speech, for Whisper. Raises InputError for a name that is no system's, and for
    parts that are missing or do not belong together.
    """
    encoder: Any = None
    for name in names:
        if name in ("units", "speechbert") or is_ctc_head(name.removeprefix("cascade-")):
            encoder = encoder or load_shared_encoder(model_folder(models))
    return [_load_system(models, name, encoder, bf16, language) for name in names]


def _load_system(
    models: Path | str, name: str, encoder: Any, bf16: bool, language: str
) -> ChoiceSystem:
    """Load a system. encoder: that of the folder of models, where the system uses it."""
    if name in BASELINES:
        return Baseline(name)
    if name in WRITTEN:
        return _load_written(Path(models), name, bf16)
    folder = model_folder(models)
    if name == "units":
        return _load_units(folder, encoder, bf16)
    if name == "speechbert":
        return _load_speechbert(folder, encoder, bf16)
    if name.startswith("cascade-"):
        recogniser = load_recogniser(folder, name.removeprefix("cascade-"), encoder, language)
        return _load_cascade(folder, recogniser, bf16)
    raise InputError(
        f"there is no system {name!r}; choose units, speechbert, cascade-ctc, "
        f"cascade-<folder>, {', '.join((*WRITTEN, *BASELINES))}"
    )


def _load_written(folder: Path, name: str, bf16: bool) -> WrittenChoice:
    """Load a system that reads the text of the corpus; its folder needs no encoder."""
    if not (folder / "choice-text").is_dir():
        folder = model_folder(folder)
    reader, _, facts = _load_reader(folder, "text", bf16)
    source = WRITTEN[name]
    return WrittenChoice(name, source, _load_codec(folder), reader, facts | {"source": source})


def _load_cascade(folder: Path, recogniser: Any, bf16: bool) -> SpokenChoice:
    """Load the system that reads what a recogniser writes."""
    reader, _, facts = _load_reader(folder, "text", bf16)
    codec = _load_codec(folder)

    def tokenise(transcript: Transcript) -> np.ndarray:
        return codec.encode([word.text for word in transcript.words])[0]

    name = f"cascade-{recogniser.name}"
    return SpokenChoice(name, recogniser.transcribe, tokenise, reader, {**recogniser.card, **facts})


def _load_codec(folder: Path) -> TextCodec:
    """Load the tokeniser of the reader of words in a folder of models."""
    return TextCodec(load_tokenizer(folder / "choice-text"))


def _load_units(folder: Path, encoder: Any, bf16: bool) -> SpokenChoice:
    """Load the system that reads units."""
    extractor = make_extractor(encoder, load_codebook(folder / "units.safetensors"))
    reader, card, facts = _load_reader(folder, "units", bf16)
    extractor = adapt_extractor(folder / "choice-units", card, extractor)
    system_card = {**extractor.card, **facts}
    return SpokenChoice("units", extractor.extract, lambda runs: runs.units, reader, system_card)


def _load_speechbert(folder: Path, encoder: Any, bf16: bool) -> AudioWordChoice:
    """Load the system that reads audio words."""
    reader, card, facts = _load_reader(folder, "speechbert", bf16)
    recogniser = load_recogniser(folder, "ctc-greedy", encoder)
    system = load_speechbert(folder / "speechbert", encoder, recogniser, bf16)
    if card["speechbert"]["words"] != system.card["words"]:
        raise InputError(
            f"{folder / 'choice-speechbert'} was trained on other audio words than "
            f"{folder / 'speechbert'} makes; train it again"
        )
    reader.model.embedding = CodeEmbedding(reader.model.embedding)
    return AudioWordChoice("speechbert", system.encode, reader, {**system.card, **facts})


def _load_reader(
    folder: Path, kind: str, bf16: bool
) -> tuple[ChoiceReader, dict[str, Any], dict[str, Any]]:
    """Load the reader `choice-KIND` in a folder of models. Returns it with its card, and with the
    facts about it for the card of a system."""
    part = folder / f"choice-{kind}"
    if not part.is_dir():
        raise InputError(
            f"{folder} has no choice-{kind}/; train one (`speechssl train choice`) and give the "
            "folder it is in with --models, or evaluate without (--systems chance longest-option)"
        )
    model, layout, card = load_choice(part)
    facts = {f"choice_{kind}": card["weights"], "layout": card["layout"]}
    if bf16:
        facts["bf16"] = True
    return ChoiceReader(model.to(choose_device()), layout, bf16=bf16), card, facts
