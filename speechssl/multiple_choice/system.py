"""Systems choose between options on units, on audio words, on recognised or given words, and
baselines without any of these.

A model folder holds `choice-units/` beside `encoder/` and `units.safetensors`, `choice-speechbert/`
beside `speechbert/` and `ctc/`, and `choice-text/` for words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from speechssl.cascade.data import Transcript
from speechssl.cascade.system import load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.data.records import Passage, Question
from speechssl.dual.system import check_units_of
from speechssl.encoders.load import shared_encoder
from speechssl.errors import InputError
from speechssl.multiple_choice.data import ChoiceTokens, text_choice
from speechssl.multiple_choice.model import ChoiceReader, load_choice
from speechssl.speechbert.data import stack_codes
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import load_speechbert
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer
from speechssl.units.features import extractor_of
from speechssl.units.kmeans import load_codebook

BASELINES = ("chance", "longest-option")
# systems that read the text of the corpus, and which of its texts
WRITTEN = {"text": "text", "cascade-given": "given"}


class EncodedQuestion(NamedTuple):
    """These are a system's representations of a question's recordings."""

    question: Any
    options: tuple[Any, ...]
    passage: Any


@dataclass(frozen=True)
class SpokenChoice:
    """This encodes every recording once, then scores the options of all questions: on units, on
    recognised words or on audio words (which are cut by a recogniser that is not always that of the
    training; the card of the results says which).
    """

    name: str
    # (None, samples (N,) float32 at 16 kHz) -> what represents a recording
    encode: Callable[[Passage | Question | None, Any], Any]
    tokens: Callable[[Any], np.ndarray] | None  # of a representation; None: these are audio words
    reader: ChoiceReader
    card: Mapping[str, Any]

    def score_all(self, items: Sequence[EncodedQuestion]) -> list[np.ndarray]:
        """Return log-probabilities (O,) of the options of every question."""
        tokens = self.tokens
        if tokens is None:
            embedding = self.reader.model.embedding
            codes = {
                id(words): words.codes
                for question, options, passage in items
                for words in (question, *options, passage)
            }
            embedding.codes, ids = stack_codes(codes, embedding.embedding_dim)
            tokens = lambda words: ids[id(words)]  # noqa: E731
        return self.reader.score_many(
            [
                ChoiceTokens(tokens(q), tuple(map(tokens, options)), tokens(p))
                for q, options, p in items
            ]
        )


@dataclass(frozen=True)
class WrittenChoice:
    """This reads the text of the corpus: the reference (`text`), or the transcripts that came with
    it (`cascade-given`)."""

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
            choice = text_choice(self.codec, question, passage, self.source)
            if choice is None:
                kind, other = (
                    ("text", "cascade-ctc or units")
                    if self.source == "text"
                    else ("transcript", "text")
                )
                raise InputError(
                    f"passage {passage.id} has no {kind}, which {self.name} needs; "
                    f"evaluate {other} on this corpus"
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


ChoiceSystem = SpokenChoice | WrittenChoice | Baseline


def load_choice_systems(
    models: Path | str, names: Sequence[str], bf16: bool = False, language: str | None = None
) -> list[ChoiceSystem]:
    """Load systems by their names. names: `units`, `speechbert`, `cascade-<engine>` (see
    `load_recogniser`), `text`, `cascade-given`, and the baselines.

    language: of the speech, for Whisper. Raises InputError for a system that there is not, and for
    parts that are missing
    or do not belong together.
    """
    encoder: Any = None

    def load(folder: Path, kind: str) -> tuple[Path, ChoiceReader, dict[str, Any]]:
        """Return the folder of a kind's model, the reader, and the card of the model."""
        if not (part := folder / f"choice-{kind}").is_dir():
            how = "neither --units nor --speechbert" if kind == "text" else f"with --{kind}"
            raise InputError(
                f"{models} has no choice-{kind}/; train one (speechssl train choice, {how}) and "
                "give the folder it is in with "
                "--models, or evaluate without (--systems chance longest-option)"
            )
        model, layout, card = load_choice(part)
        return part, ChoiceReader(model, layout, bf16=bf16), card

    def load_words(folder: Path) -> tuple[TextCodec, ChoiceReader, dict[str, Any]]:
        part, reader, card = load(folder, "text")
        codec = TextCodec(load_tokenizer(part, reader.model.embedding.num_embeddings))
        return codec, reader, {"choice_text": card["weights"], "layout": card["layout"]} | precision

    precision = {"bf16": True} if bf16 else {}
    systems: list[ChoiceSystem] = []
    for name in names:
        if name in BASELINES:
            systems.append(Baseline(name))
            continue
        if name in WRITTEN:  # no encoder need be there
            folder = (
                Path(models) if (Path(models) / "choice-text").is_dir() else model_folder(models)
            )
            codec, reader, card = load_words(folder)
            systems.append(
                WrittenChoice(name, WRITTEN[name], codec, reader, card | {"source": WRITTEN[name]})
            )
            continue
        if name not in ("units", "speechbert") and not name.startswith("cascade-"):
            choices = (
                "units",
                "speechbert",
                "cascade-ctc",
                "cascade-<folder>",
                *WRITTEN,
            )
            raise InputError(
                f"there is no system {name!r}; choose {', '.join((*choices, *BASELINES))}"
            )
        folder = model_folder(models)
        encoder = encoder or shared_encoder(folder)
        if name == "units":
            extractor = extractor_of(encoder, load_codebook(folder / "units.safetensors"))
            part, reader, card = load(folder, "units")
            check_units_of(part, card, extractor)
            system_card = {
                "choice_units": card["weights"],
                "layout": card["layout"],
                **extractor.card,
            } | precision
            encode = functools.partial(_encoded, extractor.units)
            systems.append(SpokenChoice(name, encode, lambda runs: runs.units, reader, system_card))
        elif name == "speechbert":
            part, reader, card = load(folder, "speechbert")
            system = load_speechbert(
                folder / "speechbert", encoder, load_recogniser(folder, "ctc-greedy", encoder), bf16
            )
            if (
                not isinstance(card.get("speechbert"), dict)
                or card["speechbert"].get("words") != system.card["words"]
            ):
                raise InputError(
                    f"{part} was trained on other audio words than "
                    f"{folder / 'speechbert'} makes; train it again"
                )
            reader.model.embedding = CodeEmbedding(reader.model.embedding)
            # not SpeechBERT's
            system_card = {
                "choice_speechbert": card["weights"],
                **system.card,
                "layout": card["layout"],
            }
            systems.append(SpokenChoice(name, system.encode, None, reader, system_card))
        else:
            recogniser = load_recogniser(folder, name.removeprefix("cascade-"), encoder, language)
            codec, reader, card = load_words(folder)

            def ids(transcript: Transcript, codec: TextCodec = codec) -> np.ndarray:
                return codec.encode([word.text for word in transcript.words])[0]

            encode = functools.partial(_encoded, recogniser.transcribe)
            systems.append(
                SpokenChoice(
                    f"cascade-{recogniser.name}", encode, ids, reader, {**recogniser.card, **card}
                )
            )
    return systems


def _encoded(encode: Callable[[Any], Any], record: Any, samples: Any) -> Any:
    return encode(samples)  # whatever the record
