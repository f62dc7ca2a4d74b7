"""The two systems, put together from one folder of models.

A model folder holds `encoder/`, `units.safetensors` (+ card), `dual/`, `ctc/` and `text-qa/`. Readers it lacks may be those of
another, which its `parts.json` names: `{"from": "minisqa-en"}`. `speechssl.models` carries `minisqa-en`, and `minisqa-en-robust`,
which hears through noise. Each part has a card; parts that do not belong together are refused when they are loaded.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from speechssl.audio import SAMPLE_RATE, check_audio, read_audio
from speechssl.cascade.confusions import read_confusions
from speechssl.cascade.ctc import CtcRecogniser
from speechssl.cascade.system import PREFIX as SIMULATED
from speechssl.cascade.system import Cascade, SimulatedSystem, TextCodec, answer_transcripts, parse_rate
from speechssl.cascade.words import Recogniser, TimedWord, Transcript
from speechssl.data.records import Passage, Question
from speechssl.dual.model import Reader
from speechssl.dual.system import Dual, TimedAnswer
from speechssl.dual.weights import load_reader
from speechssl.encoders.base import Chunking, SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.io import DEFAULT, hash_files, model_folder, read_json
from speechssl.speechbert.system import load_speechbert
from speechssl.text import joiner, pieces
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.extract import extractor_of
from speechssl.units.kmeans import load_codebook

ENGINES = ("ctc", "pocketsphinx")
SPEECHBERT = ("speechbert", "speechbert-aligned")
WRITTEN = ("text", "cascade-given")  # systems that read and do not listen


class System(Protocol):
    """Encodes every recording once, then answers all questions. needs_audio: False where it reads the record's text alone."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def needs_audio(self) -> bool: ...
    def encode(self, record: Passage | Question | None, samples: np.ndarray | None) -> Any:
        """The system's representation of a recording: units, words, audio words.

        record: None for audio that is of no corpus; samples: (N,) float32 at 16 kHz, None where the system needs no audio.
        Raises ValueError for what cannot be encoded.
        """
        ...

    def answer_all(self, items: Sequence[tuple[Any, Any]]) -> list[TimedAnswer]:
        """(question, passage) as `encode` gave them -> answers."""
        ...


@dataclass(frozen=True)
class DualSystem:
    dual: Dual
    card: Mapping[str, Any]
    name: str = "dual"
    needs_audio: bool = True

    def encode(self, record: Passage | Question | None, samples: Any) -> RunLength:
        """samples: (N,) float32 at 16 kHz."""
        return self.dual.extractor.units(samples)

    def answer_all(self, items: Sequence[tuple[RunLength, RunLength]]) -> list[TimedAnswer]:
        return self.dual.answer_units(items)


@dataclass(frozen=True)
class CascadeSystem:
    cascade: Cascade
    card: Mapping[str, Any]
    needs_audio: bool = True

    @property
    def name(self) -> str:
        return f"cascade-{self.cascade.recogniser.name}"

    def encode(self, record: Passage | Question | None, samples: Any) -> Transcript:
        """samples: (N,) float32 at 16 kHz."""
        return self.cascade.recogniser.transcribe(samples)

    def answer_all(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
        return self.cascade.answer_transcripts(items)


@dataclass(frozen=True)
class WrittenSystem:
    """Text QA on what is written of a passage, without listening: the reference text (`text`, the cascade's topline), or the
    transcripts that the corpus brings along (`cascade-given`).
    """

    codec: TextCodec
    reader: Reader
    card: Mapping[str, Any]
    name: str
    needs_audio: bool = False

    def encode(self, record: Passage | Question | None, samples: Any) -> Transcript:
        """The words of the record, with their times where the manifest has them.

        `cascade-given` takes the text of a record without a transcript: corpora transcribe passages alone, or questions alone.
        Raises ValueError where nothing is written, or for a recording that is of no corpus.
        """
        if record is None:
            raise ValueError(f"the system {self.name} reads the text of a corpus; evaluate it on a prepared corpus")
        text = record.text if self.name == "text" else record.transcript or record.text
        if not text.strip():
            wanted = "reference text" if self.name == "text" else "transcript"
            raise ValueError(f"{record.id} has no {wanted} that the system {self.name} could read")
        separator = joiner(record.language)
        if self.name == "text" and record.words:
            return Transcript(tuple(TimedWord(w.text, w.start, w.end, math.nan) for w in record.words), separator)
        words = [TimedWord(word, math.nan, math.nan, math.nan) for word, _ in pieces(text, record.language)]
        return Transcript(tuple(words), separator)

    def answer_all(self, items: Sequence[tuple[Transcript, Transcript]]) -> list[TimedAnswer]:
        return answer_transcripts(self.codec, self.reader, items)


@dataclass
class SharedEncoder:
    """A speech encoder that remembers, in every thread, what it last encoded: systems that hear one array encode it once."""

    inner: SpeechEncoder
    last: threading.local = field(default_factory=threading.local)

    @property
    def grid(self) -> FrameGrid:
        return self.inner.grid

    @property
    def hash(self) -> str:
        return self.inner.hash

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def precision(self) -> str:
        return self.inner.precision

    @property
    def batches(self) -> bool:
        return False  # it remembers one recording

    @property
    def settings(self) -> str:
        return self.inner.settings

    @property
    def device(self) -> str:
        return self.inner.device

    @property
    def chunking(self) -> Chunking:
        return self.inner.chunking

    @property
    def layers(self) -> int:
        return self.inner.layers

    @property
    def width(self) -> int:
        return self.inner.width

    def hidden_states(self, samples: np.ndarray) -> torch.Tensor:
        """samples: (N,) float32 at 16 kHz -> (L + 1, T, D)."""
        return self._remembered(samples, None, self.inner.hidden_states)

    def features(self, samples: np.ndarray, layer: int) -> torch.Tensor:
        """samples: (N,) float32 at 16 kHz -> (T, D) of one layer."""
        return torch.cat(list(self.stream(samples, layer)))

    def stream(self, samples: np.ndarray, layer: int) -> Iterator[torch.Tensor]:
        """`features` in the pieces of the encoder."""
        yield from self._remembered(samples, layer, lambda x: list(self.inner.stream(x, layer)))

    def _remembered(self, samples: np.ndarray, layer: int | None, encode: Callable[[np.ndarray], Any]) -> Any:
        if getattr(self.last, "samples", None) is not samples:
            self.last.states, self.last.samples = {}, samples
        if layer not in self.last.states:
            self.last.states[layer] = encode(samples)
        return self.last.states[layer]


def part(models: Path, name: str) -> Path:
    """Where a reader of a model folder lies: in it, else in the one its `parts.json` names.

    Raises InputError where that file cannot be read, or names no model folder.
    """
    other = models / "parts.json"
    if (models / name).exists() or not other.is_file():
        return models / name
    return model_folder(str(read_json(other).get("from"))) / name


def shared_encoder(models: Path) -> SharedEncoder:
    return SharedEncoder(load_encoder(models / "encoder"))


def load_dual(models: Path, encoder: SharedEncoder, name: str = "dual", bf16: bool = False) -> DualSystem:
    """The reader in `models`/`name`, of these units or of those they were carried over from.

    Raises InputError when the codebook or the reader were made for other units.
    """
    extractor = extractor_of(encoder, load_codebook(models / "units.safetensors"))  # type: ignore[arg-type]
    model, layout, card = load_reader(part(models, name))
    units = card.get("units")
    if not isinstance(units, dict) or units.get("codebook") not in extractor.codebook.names:
        raise InputError(
            f"{part(models, name)} was trained on other units than {models / 'units.safetensors'} gives; train it again"
        )
    made = {"dual": card["weights"], **extractor.card} | ({"bf16": True} if bf16 else {})
    return DualSystem(Dual(extractor, Reader(model, layout, bf16=bf16)), made, name)


def load_cascade(models: Path, engine: str, encoder: SharedEncoder, bf16: bool = False) -> CascadeSystem:
    """engine: `ctc`, `pocketsphinx`, or the folder or hub id of a Hugging Face recogniser."""
    recogniser, made = recogniser_of(models, engine, encoder)
    model, layout, card = load_reader(part(models, "text-qa"))
    codec = TextCodec(_tokenizer(part(models, "text-qa"), model.embedding.num_embeddings))
    cards = {"asr": made, "text_qa": card["weights"]} | ({"bf16": True} if bf16 else {})
    return CascadeSystem(Cascade(recogniser, codec, Reader(model, layout, bf16=bf16)), cards)


def load_written(models: Path, name: str, bf16: bool = False) -> WrittenSystem:
    """name: `text` or `cascade-given`."""
    model, layout, card = load_reader(part(models, "text-qa"))
    codec = TextCodec(_tokenizer(part(models, "text-qa"), model.embedding.num_embeddings))
    cards = {"reads": name, "text_qa": card["weights"]} | ({"bf16": True} if bf16 else {})
    return WrittenSystem(codec, Reader(model, layout, bf16=bf16), cards, name)


def _speechbert(models: Path, encoder: SharedEncoder, name: str, bf16: bool) -> System:
    """Words begin and end where the CTC head hears them, or (`speechbert-aligned`, a bound) where the manifest has them."""
    folder = part(models, "speechbert")
    if (folder / "card.json").is_file() and read_json(folder / "card.json").get("options", {}).get("spans") is False:
        raise InputError(f"{folder} has learnt no spans (--no-spans); train it without, or take it to `evaluate choice`")
    if name == "speechbert-aligned":
        return load_speechbert(folder, encoder, bf16=bf16)
    return load_speechbert(folder, encoder, *recogniser_of(models, "ctc", encoder), bf16=bf16)


def _tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerBase:
    """transformers makes an empty tokeniser where files are missing; its ids would mean nothing to the reader."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder} has no tokeniser that can be read; train or fetch the model again") from error
    if not rows - 256 < len(tokenizer) <= rows:  # some tables are padded to a round number
        raise InputError(f"the tokeniser in {folder} has {len(tokenizer)} entries and its model {rows}; train or fetch it again")
    return tokenizer


def recogniser_of(models: Path, engine: str, encoder: SharedEncoder) -> tuple[Recogniser, Any]:
    """With what made it. engine: as of `load_cascade`; `ctc-NAME` is a CTC head of that name in `models`."""
    if engine == "ctc" or (engine.startswith("ctc-") and not Path(engine).exists()):
        if not (models / engine).is_dir():
            raise InputError(
                f"{models} has no {engine}/; train one (speechssl train ctc), or give another recogniser with --asr, "
                "or --system dual"
            )
        recogniser = CtcRecogniser.load(models / engine, encoder)
        recogniser.name = engine
        return recogniser, read_json(models / engine / "card.json").get("weights", encoder.hash)
    if engine == "pocketsphinx":
        from speechssl.cascade.engines import PocketSphinxRecogniser

        return PocketSphinxRecogniser(), "pocketsphinx en-us"
    from speechssl.cascade.engines import HuggingFaceRecogniser

    return HuggingFaceRecogniser(engine), engine


def confusions_path(models: Path, errors: Path | None = None) -> Path:
    """Of what is simulated. errors: as of `load_simulated`."""
    return errors or part(models, "confusions.json")


def load_simulated(models: Path, name: str, bf16: bool = False, errors: Path | None = None, seed: int = 0) -> SimulatedSystem:
    """name: `cascade-simulated@30` for a word error rate of 30 %. errors: of `evaluate confusions`; None: that of the models."""
    path, wer = confusions_path(models, errors), parse_rate(name)
    if not path.is_file():
        raise InputError(f"{path} is not there, which {name} makes its errors with; fit it with `speechssl evaluate confusions`")
    read, confusions = load_written(models, "text", bf16), read_confusions(path)
    cards = dict(read.card) | {"reads": f"text with {name.removeprefix('cascade-')}", "errors": hash_files([path]), "seed": seed}
    return SimulatedSystem(read.codec, read.reader, confusions, wer, cards, seed)


def load_systems(
    models: Path,
    names: list[str],
    bf16: bool = False,
    encoder: SharedEncoder | None = None,
    errors: Path | None = None,
    seed: int = 0,
) -> list[System]:
    """names: `dual` (or `dual-...`, a reader folder of that name), `cascade-ctc`, `cascade-pocketsphinx`, `cascade-<model>`; and
    `speechbert` and `speechbert-aligned`; `cascade-ctc-NAME` has the CTC head of that name; and what does not listen: `text`,
    `cascade-given` (`WrittenSystem`), `cascade-simulated@30` (`SimulatedSystem`).

    bf16: the text encoders read under autocast: several times faster on a CPU with AVX512-BF16 or AMX, slower on one without.
    encoder: of these models, where it has been loaded already. errors, seed: of what is simulated, see `load_simulated`.
    """
    listening = [name for name in names if name not in WRITTEN and not name.startswith(SIMULATED)]
    encoder = encoder or (shared_encoder(models) if listening else None)
    systems: list[System] = []
    for name in names:
        if name.startswith(SIMULATED):
            systems.append(load_simulated(models, name, bf16, errors, seed))
        elif name in WRITTEN or encoder is None:
            systems.append(load_written(models, name, bf16))
        elif name == "dual" or name.startswith("dual-"):
            systems.append(load_dual(models, encoder, name, bf16))
        elif name in SPEECHBERT:
            systems.append(_speechbert(models, encoder, name, bf16))
        elif name.startswith("cascade-"):
            systems.append(load_cascade(models, name.removeprefix("cascade-"), encoder, bf16))
        else:
            raise InputError(
                f"there is no system {name!r}; choose dual, speechbert, cascade-ctc, cascade-MODEL, text, cascade-given, "
                "cascade-simulated@WER"
            )
    return systems


def answer(
    passage: Path | str | np.ndarray,
    question: Path | str | np.ndarray,
    system: str = "both",
    models: Path | str = DEFAULT,
    asr: str = "ctc",
) -> dict[str, TimedAnswer]:
    """Ask a spoken passage a spoken question.

    passage, question: audio files, or samples (N,) float32 at 16 kHz. system: `dual`, `cascade` or `both`. asr: see `load_cascade`.
    Returns system name -> answer with start and end in seconds, confidence in [0, 1] and, for the cascade, the words.
    Raises InputError for audio that cannot be used and models that cannot be found.
    """
    names = {"dual": ["dual"], "cascade": [f"cascade-{asr}"], "both": ["dual", f"cascade-{asr}"]}.get(system)
    if names is None:
        raise InputError(f"there is no system {system!r}; choose dual, cascade or both")
    asked, listened = _samples(question), _samples(passage)
    answers = {}
    for loaded in load_systems(model_folder(models), names):
        pair = (_encode(loaded, asked, question), _encode(loaded, listened, passage))
        answers[loaded.name] = loaded.answer_all([pair])[0]
    return answers


def _encode(system: System, samples: np.ndarray, source: Any) -> Any:
    try:
        return system.encode(None, samples)
    except ValueError as error:
        where = source if isinstance(source, (str, Path)) else "the samples given"
        raise InputError(f"{where} cannot be understood ({error}); give a longer recording") from error


def _samples(source: Path | str | np.ndarray) -> np.ndarray:
    if not isinstance(source, np.ndarray):
        return read_audio(source)
    check_audio(source, SAMPLE_RATE, "the array given")
    return source.astype(np.float32, copy=False)


def describe(models: Path | str = DEFAULT, asr: str = "ctc") -> str:
    """One line: which models, and what they were trained on. asr: the cascade's engine."""
    folder = model_folder(models)
    card = read_json(folder / "encoder" / "card.json") if (folder / "encoder" / "card.json").is_file() else {}
    corpus = card.get("corpus", {})
    trained = f"{corpus.get('corpus', 'unknown data')}, {corpus.get('synthetic', 'recorded speech')}"
    engine = "" if asr == "ctc" else f"; words by {asr}"
    return f"models: {folder.name}, trained on {trained}{engine}; speech of another kind will often not be understood"
