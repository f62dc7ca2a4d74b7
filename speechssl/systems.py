"""The systems of spoken question answering: what each of them offers, how they are loaded by name, and `answer`.

A model folder holds `encoder/`, `units.safetensors` (+ card), `dual/`, `ctc/`, `text-qa/` and `speechbert/`, whole or in part.
`speechssl.models` carries one, `minisqa-en-robust`, whose encoder was trained on noisy speech. Each part has a card; parts that do
not belong together are refused when they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.audio import SAMPLE_RATE, check_audio, read_audio
from speechssl.cascade.system import SIMULATED, TEXT_SYSTEMS, load_cascade, load_recogniser, load_simulated, load_text
from speechssl.data.records import Passage, Question
from speechssl.dual.system import TimedAnswer, load_dual
from speechssl.encoders.load import SharedEncoder, shared_encoder
from speechssl.errors import InputError
from speechssl.io import DEFAULT, model_folder, read_json
from speechssl.speechbert.system import load_speechbert


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


NAMES = re.compile(r"text|cascade-.+|dual|dual-.+|speechbert|speechbert-aligned")


def load_systems(
    models: Path,
    names: Sequence[str],
    bf16: bool = False,
    encoder: SharedEncoder | None = None,
    errors: Path | None = None,
    seed: int = 0,
) -> list[System]:
    """names: `dual` (or `dual-...`, a reader folder of that name), `cascade-ctc`, `cascade-pocketsphinx`, `cascade-<model>`, and
    `cascade-ctc-NAME` for the CTC head of that name; `speechbert` and `speechbert-aligned`; and what needs no audio: `text`,
    `cascade-given` (`TextSystem`), `cascade-simulated@30` (`SimulatedCascade`).

    bf16: the text encoders read under autocast: several times faster on a CPU with AVX512-BF16 or AMX, slower on one without.
    encoder: of these models, where it has been loaded already. errors: of `evaluate confusions`; None: those of the models; seed:
    of simulated errors. Raises InputError for a system that there is not, and for parts that are missing or do not fit each other.
    """
    for name in names:
        if not NAMES.fullmatch(name):
            raise InputError(
                f"there is no system {name!r}; choose dual, speechbert, cascade-ctc, cascade-MODEL, text, cascade-given, "
                f"{SIMULATED}@WER"
            )
    if encoder is None and not all(name in TEXT_SYSTEMS or name.startswith(SIMULATED) for name in names):
        encoder = shared_encoder(models)
    shared: Any = encoder

    def load(name: str) -> System:
        if name in TEXT_SYSTEMS:
            return load_text(models / "text-qa", name, bf16)
        if name.startswith(SIMULATED):
            return load_simulated(models / "text-qa", confusions_path(models, errors), name, bf16, seed)
        if name.startswith("dual"):
            return load_dual(models / name, models / "units.safetensors", shared, name, bf16)
        if name.startswith("cascade-"):
            return load_cascade(models / "text-qa", *load_recogniser(models, name.removeprefix("cascade-"), shared), bf16)
        folder = models / "speechbert"
        if (folder / "card.json").is_file() and read_json(folder / "card.json").get("options", {}).get("spans") is False:
            raise InputError(
                f"{folder} was trained with --no-spans and finds no answers; train it without, or use it in `evaluate choice`"
            )
        # words begin and end where the CTC head finds them, or (a bound) where the manifest has them
        recogniser, made = (None, None) if name == "speechbert-aligned" else load_recogniser(models, "ctc", shared)
        return load_speechbert(folder, shared, recogniser, made, bf16)

    return [load(name) for name in names]


def confusions_path(models: Path, errors: Path | None = None) -> Path:
    """Where the simulated errors are. errors: as of `load_systems`."""
    return errors or models / "confusions.json"


def answer(
    passage: Path | str | np.ndarray,
    question: Path | str | np.ndarray,
    system: str = "both",
    models: Path | str = DEFAULT,
    asr: str = "ctc",
) -> dict[str, TimedAnswer]:
    """Ask a spoken passage a spoken question.

    passage, question: audio files, or samples (N,) float32 at 16 kHz. system: `dual`, `cascade` or `both`. asr: engine of the
    cascade, see `load_recogniser`. Returns system name -> answer with start and end in seconds, confidence in [0, 1] and, for the
    cascade, the words. Raises InputError for audio that cannot be used and models that cannot be found.
    """
    names = {"dual": ["dual"], "cascade": [f"cascade-{asr}"], "both": ["dual", f"cascade-{asr}"]}.get(system)
    if names is None:
        raise InputError(f"there is no system {system!r}; choose dual, cascade or both")
    sources = (question, passage)
    recordings: list[np.ndarray] = []
    for source in (passage, question):
        if isinstance(source, np.ndarray):
            check_audio(source, SAMPLE_RATE, "the array given")
            recordings.insert(0, source.astype(np.float32, copy=False))
        else:
            recordings.insert(0, read_audio(source))
    answers = {}
    for loaded in load_systems(model_folder(models), names):
        encoded = []
        for source, samples in zip(sources, recordings, strict=True):
            try:
                encoded.append(loaded.encode(None, samples))
            except ValueError as error:
                where = source if isinstance(source, (str, Path)) else "the samples given"
                raise InputError(f"{where} cannot be processed ({error}); give a longer recording") from error
        answers[loaded.name] = loaded.answer_all([(encoded[0], encoded[1])])[0]
    return answers


def describe(models: Path | str = DEFAULT, asr: str = "ctc") -> str:
    """One line: which models, and what they were trained on. asr: the cascade's engine."""
    folder = model_folder(models)
    card = read_json(folder / "encoder" / "card.json") if (folder / "encoder" / "card.json").is_file() else {}
    corpus = card.get("corpus", {})
    trained = f"{corpus.get('corpus', 'unknown data')}, {corpus.get('synthetic', 'recorded speech')}"
    engine = "" if asr == "ctc" else f"; words by {asr}"
    return f"models: {folder.name}, trained on {trained}{engine}; speech of another kind will often not be understood"
