"""The systems of spoken question answering: what each of them offers, how they are loaded by name, and `answer`.

A model folder holds `encoder/`, `units.safetensors` (+ card), `dual/`, `ctc/`, `text-qa/` and `speechbert/`, whole or in part.
`speechssl.models` carries one, `people-en`, whose encoder was trained on noisy speech. Each part has a card; parts that do
not belong together are refused when they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.cascade.config import ReaderOptions
from speechssl.cascade.readers import TextQa, load_text_qa
from speechssl.cascade.system import SIMULATED, TEXT_SYSTEMS, is_ctc_head, load_cascade, load_recogniser, load_simulated, load_text
from speechssl.data.records import Passage, Question
from speechssl.dual.system import Dual, TimedAnswer, load_dual
from speechssl.encoders.load import SharedEncoder, shared_encoder
from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.speechbert.system import load_speechbert
from speechssl.terms import NGRAM


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
FEW = re.compile(rf"((?:dual|cascade-(?!{SIMULATED.removeprefix('cascade-')}@)).*)@([1-9]\d*)")  # of windows: dual@5


def load_systems(
    models: Path,
    names: Sequence[str],
    bf16: bool = False,
    encoder: SharedEncoder | None = None,
    errors: Path | None = None,
    seed: int = 0,
    reading: ReaderOptions = ReaderOptions(),
    language: str | None = None,
) -> list[System]:
    """names: `dual` (or `dual-...`, a reader folder of that name), `cascade-ctc`, `cascade-pocketsphinx`, `cascade-<model>`, and
    `cascade-ctc-NAME` for the CTC head of that name; `speechbert` and `speechbert-aligned`; and what needs no audio: `text`,
    `cascade-given` (`TextSystem`), `cascade-simulated@30` (`SimulatedCascade`). `dual@5`, `cascade-ctc@5`, ... read only the 5
    windows of a passage that are most like the question (`dual.decode.most_alike`).

    bf16: the text encoders read under autocast: several times faster on a CPU with AVX512-BF16 or AMX, slower on one without.
    encoder: of these models, where it has been loaded already. errors: of `evaluate confusions`; None: those of the models; seed:
    of simulated errors. reading: what reads in the systems that read words, which are called after it where it is not that of the
    models: `cascade-ctc+minilm-uncased-squad2`. language: of the speech, which Whisper is told. Raises InputError for a system that
    there is not, for parts that are missing or do not fit each other, and for a reader where no system reads words.
    """
    for name in names:
        if not NAMES.fullmatch(FEW.sub(r"\1", name)):
            known = ("dual", "speechbert", "speechbert-aligned", "cascade-ctc", "cascade-pocketsphinx", "text", "cascade-given")
            near = "".join(f" (did you mean {found}?)" for found in get_close_matches(name, known, 1))
            raise InputError(
                f"there is no system {name!r}{near}; choose dual, speechbert, cascade-ctc, cascade-MODEL, text, cascade-given, "
                f"{SIMULATED}@WER"
            )
    reads = any(name in TEXT_SYSTEMS or name.startswith("cascade-") for name in names)
    if replace(reading, named=True) != ReaderOptions() and not reads:
        raise InputError(f"no words are read by {', '.join(names)}; leave out --reader and its options, or add cascade-ctc or text")
    if encoder is None and any(map(needs_encoder, names)):
        encoder = shared_encoder(models)
    shared: Any = encoder

    @cache
    def text_qa() -> TextQa:
        return load_text_qa(models, reading, bf16)

    def load(name: str) -> System:
        if few := FEW.fullmatch(name):
            system: Any = load(few[1])
            changed: dict[str, Any] = {"name": f"{system.name}@{few[2]}", "card": {**system.card, "windows": int(few[2])}}
            if isinstance(system, Dual):
                return replace(system, reader=replace(system.reader, retrieve=int(few[2]), ngram=NGRAM), **changed)
            return replace(system, qa=replace(system.qa, reader=system.qa.reader.limited(int(few[2]))), **changed)
        if name in TEXT_SYSTEMS:
            return load_text(text_qa(), name)
        if name.startswith(SIMULATED):
            return load_simulated(text_qa(), confusions_path(models, errors), name, seed)
        if name.startswith("dual"):
            return load_dual(models / name, models / "units.safetensors", shared, name, bf16)
        if name.startswith("cascade-"):
            return load_cascade(text_qa(), *load_recogniser(models, name.removeprefix("cascade-"), shared, language))
        folder = models / "speechbert"
        if (folder / "card.json").is_file() and read_json(folder / "card.json").get("options", {}).get("spans") is False:
            raise InputError(
                f"{folder} was trained with --no-spans and finds no answers; train it without, or use it in `evaluate choice`"
            )
        # words begin and end where the CTC head finds them, or (a bound) where the manifest has them
        recogniser, made = (None, None) if name == "speechbert-aligned" else load_recogniser(models, "ctc", shared)
        return load_speechbert(folder, shared, recogniser, made, bf16)

    return [load(name) for name in names]


def needs_encoder(name: str) -> bool:
    """Whether a system reads what the encoder of the models makes of a recording: not one with a recogniser of its own."""
    name = name.partition("@")[0]
    return name.startswith(("dual", "speechbert")) or (name.startswith("cascade-") and is_ctc_head(name.removeprefix("cascade-")))


def default_systems(models: Path) -> list[str]:
    """DUAL and the cascade with the CTC head, as far as a folder of models has them. Raises InputError where it has neither."""
    found = [name for name, part in (("dual", "dual"), ("cascade-ctc", "ctc")) if (models / part).is_dir()]
    if not found:
        raise InputError(f"{models} has neither dual/ nor ctc/; name what it has with --systems")
    return found


def confusions_path(models: Path, errors: Path | None = None) -> Path:
    """Where the simulated errors are. errors: as of `load_systems`."""
    return errors or models / "confusions.json"
