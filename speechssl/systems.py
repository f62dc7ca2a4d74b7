"""The systems of spoken question answering are loaded by name from a folder of models, and such a
folder is made of parts: copied (`speechssl bundle`) or linked (`evaluate qa --encoder --codebook
--dual`).

A model folder holds `encoder/`, `units.safetensors` (+ card), `dual/`, `ctc/`, `text-qa/` and
`speechbert/`, whole or in part; one ships, `people-en`. Parts that do not belong together are
refused when they are loaded.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.artifacts import hash_files, read_json, stage
from speechssl.cascade.data import Recogniser
from speechssl.cascade.decode import NGRAM_FOLDER
from speechssl.cascade.options import ReaderOptions
from speechssl.cascade.readers import TextQa, load_text_qa
from speechssl.cascade.system import (
    SIMULATED,
    TEXT_SYSTEMS,
    is_ctc_head,
    load_cascade,
    load_recogniser,
    load_simulated,
    load_text,
)
from speechssl.checkpoints import SHIPPED, WEIGHTS, checkpoint_folder
from speechssl.data.records import Passage, Question
from speechssl.dual.system import DualSystem, TimedAnswer, load_dual
from speechssl.encoders.checkpoints import BUNDLE
from speechssl.encoders.encoder import SharedEncoder, remember_last
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_encoder, shared_encoder
from speechssl.errors import InputError
from speechssl.options import Parts, find_shipped
from speechssl.text import NGRAM
from speechssl.units.codebook import load_codebook
from speechssl.units.features import extractor_of


class System(Protocol):
    """A system encodes every recording once, then answers all questions. needs_audio: False where
    it reads the record's text alone."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def needs_audio(self) -> bool: ...
    def encode(self, record: Passage | Question | None, samples: np.ndarray | None) -> Any:
        """Return the system's representation of a recording: units, words, audio words.

        record: None for audio that is of no corpus; samples: (N,) float32 at 16 kHz, None where the
        system needs no audio.
        Raises ValueError for what cannot be encoded.
        """
        ...

    def answer_all(self, items: Sequence[tuple[Any, Any]]) -> list[TimedAnswer]:
        """Answer pairs of question and passage as `encode` gave them."""
        ...


SPEECHBERT, ALIGNED = "speechbert", "speechbert-aligned"

# system -> parts it needs beside the encoder
NEEDS = {
    "dual": ("units", "dual"),
    "cascade-ctc": ("ctc", "text-qa"),
    "speechbert": ("ctc", "speechbert"),
    "text": ("text-qa",),
}
LEFT_OUT = ("checkpoints", "sweep", "made_from.json", ".*")  # of a training folder


@dataclass(frozen=True)
class SystemName:
    """A system's name has a kind, a name and a number of windows.

    dual, dual-NAME            a reader of units, in the folder of this name
    cascade-ctc, -ctc-NAME     words of a CTC head in a folder of models, with its n-gram; with
                               `-greedy` behind it without, and called so where there is none
    cascade-MODEL              words of a recogniser of Hugging Face
    speechbert                 audio words that the CTC head bounds; -aligned: that the corpus does
    text, cascade-given        the text, or the transcripts, of a corpus: no audio is needed
    cascade-simulated@WER      the text with so many errors, in per cent
    dual@N, cascade-...@N      only the N windows of a passage that are most like the question
    """

    kind: str  # dual, cascade, cascade-simulated, or one of TEXT_SYSTEMS or of SpeechBERT's two
    name: str  # without @N
    windows: int | None = None

    @property
    def recogniser(self) -> str:
        """Return the recogniser of a cascade, "" of other systems."""
        return self.name.removeprefix("cascade-") if self.kind == "cascade" else ""

    @property
    def needs_encoder(self) -> bool:
        """Return whether it reads what the encoder of the models makes of a recording."""
        if self.kind == "cascade":
            return is_ctc_head(self.recogniser)
        return self.kind in ("dual", SPEECHBERT, ALIGNED)


def parse_system(name: str) -> SystemName:
    """Take a system's name apart. Raises InputError for a name that no system has."""
    if name.startswith(SIMULATED):
        return SystemName(SIMULATED, name)
    whole, windows = name, None
    if found := re.fullmatch(r"((?:dual|cascade-).*)@([1-9]\d*)", name):
        whole, windows = found[1], int(found[2])
    if whole in (*TEXT_SYSTEMS, SPEECHBERT, ALIGNED):
        return SystemName(whole, whole, windows)
    if re.fullmatch("dual|dual-.+", whole):
        return SystemName("dual", whole, windows)
    if re.fullmatch("cascade-.+", whole):
        return SystemName("cascade", whole, windows)
    raise InputError(
        f"there is no system {name!r}; choose dual, speechbert, cascade-ctc, cascade-MODEL, "
        f"text, cascade-given, {SIMULATED}@WER"
    )


def load_systems(
    models: Path,
    names: Sequence[str],
    bf16: bool = False,
    encoder: SharedEncoder | None = None,
    errors: Path | None = None,
    reading: ReaderOptions = ReaderOptions(),
    language: str | None = None,
) -> list[System]:
    """Load systems by name (see `SystemName`) from a folder of models.

    bf16: the text encoders read under autocast: several times faster on a CPU with AVX512-BF16 or
    AMX, slower on one without. encoder: of these models, where it has been loaded already. errors:
    texts with simulated errors, see `load_simulated`. reading: what
    reads in the systems that read words, which are called after it where it is not that of the
    models: `cascade-ctc+minilm-uncased-squad2`. language: of the speech, for Whisper.
    Raises InputError for a system that there is not, and for parts that are missing or do not fit
    each other.
    """
    parsed = [parse_system(name) for name in names]
    if encoder is None and any(system.needs_encoder for system in parsed):
        encoder = shared_encoder(models)
    loader = _Loader(models, encoder, reading, bf16, language, errors)
    return [limit_windows(loader.load(system), system.windows) for system in parsed]


@dataclass
class _Loader:
    """A loader makes systems that share an encoder, recognisers and text QA."""

    models: Path
    encoder: Any
    reading: ReaderOptions
    bf16: bool
    language: str | None
    errors: Path | None
    recognisers: dict[str, Recogniser] = field(default_factory=dict)

    @cached_property
    def text_qa(self) -> TextQa:
        return load_text_qa(self.models, self.reading, self.bf16)

    def recogniser(self, name: str) -> Recogniser:
        if name not in self.recognisers:
            asr = load_recogniser(self.models, name, self.encoder, self.language)
            # systems with one recogniser get one and the same array: the first decodes it, the
            # others get what it found
            asr.transcribe = remember_last(asr.transcribe)  # type: ignore[assignment, method-assign]
            self.recognisers[name] = asr
        return self.recognisers[name]

    def load(self, system: SystemName) -> System:
        if system.kind == "dual":
            units = extractor_of(self.encoder, load_codebook(self.models / "units.safetensors"))
            return load_dual(self.models / system.name, units, system.name, self.bf16)
        if system.kind == "cascade":
            return load_cascade(self.text_qa, self.recogniser(system.recogniser))
        if system.kind == SIMULATED:
            return load_simulated(self.text_qa, self.errors, system.name)
        if system.kind in TEXT_SYSTEMS:
            return load_text(self.text_qa, system.name)
        # what finds where words begin and end; None: the manifest has it (a bound)
        bounds = self.recogniser("ctc-greedy") if system.kind == SPEECHBERT else None
        folder = self.models / "speechbert"
        if read_json(folder / "card.json").get("options", {}).get("spans") is False:
            raise InputError(f"{folder} was trained with --no-spans and finds no answers")
        # its alignment takes half a second to import
        from speechssl.speechbert.system import load_speechbert

        return load_speechbert(folder, self.encoder, bounds, self.bf16)


def limit_windows(system: Any, windows: int | None) -> System:
    """Let a system read only the windows that are most like the question
    (`dual.system.retrieve_windows`); None: all."""
    if windows is None:
        return system
    named: dict[str, Any] = {
        "name": f"{system.name}@{windows}",
        "card": {**system.card, "windows": windows},
    }
    if isinstance(system, DualSystem):
        reader = replace(system.reader, retrieve=windows, ngram=NGRAM)
        return replace(system, reader=reader, **named)
    qa = replace(system.qa, reader=system.qa.reader.limit_windows(windows))
    return replace(system, qa=qa, **named)


def default_systems(models: Path) -> list[str]:
    """Name DUAL and the cascade with the CTC head, as far as a folder of models has them. Raises
    InputError where it has neither."""
    names = ["dual"] if (models / "dual").is_dir() else []
    if (models / "ctc").is_dir():
        names.append("cascade-ctc")
    if not names:
        raise InputError(f"{models} has neither dual/ nor ctc/; name what it has with --systems")
    return names


# ---- a folder of models from its parts


def find_folders(parts: Parts) -> dict[str, Path]:
    """Map the name in a folder of models to where the part lies. Raises InputError for a part that
    is missing."""
    folders: dict[str, Path] = {}
    for name in ("dual", "ctc", "text-qa", "speechbert"):
        source = getattr(parts, name.replace("-", "_"))
        if source is not None:
            folders[name] = checkpoint_folder(find_shipped(Path(source)), "reader")
    return folders


def bundle(parts: Parts, out: Path) -> dict[str, Any]:
    """Copy the parts into the folder `out`, load every system that they make, and return the card:
    systems and hashes.

    Raises InputError for parts that are missing, of another kind, or not made for each other;
    nothing is left then.
    """
    folders = find_folders(parts)
    if parts.dual is not None and parts.codebook is None:
        raise InputError(
            f"--dual {parts.dual} reads units; give the codebook that made them as "
            "well (--codebook)"
        )
    encoder = load_encoder(parts.encoder)
    codebook = None if parts.codebook is None else load_codebook(parts.codebook)
    inputs = {"encoder": encoder.hash, "units": codebook and codebook.hash}
    for name, folder in folders.items():
        inputs[name] = hash_files(_deciding_files(folder))
    with stage(out, inputs) as step:
        if step.done:
            return dict(step.card)
        place_parts(parts, folders, out, copy=True)
        present = {*folders}
        if codebook:
            present.add("units")
        systems = [name for name, needs in NEEDS.items() if present.issuperset(needs)]
        load_systems(out, systems)
        return step.finish({"what": "models", "systems": systems, "parts": inputs})


def _deciding_files(folder: Path) -> list[Path]:
    """List the files of a part that decide what it does: its cards, or the weights of a reader of
    Hugging Face, whose config does not say which they are."""
    cards = [folder / "card.json", folder / NGRAM_FOLDER / "card.json"]
    present = [card for card in cards if card.is_file()]
    if present:
        return present
    weights = [path for pattern in WEIGHTS for path in sorted(folder.glob(pattern))]
    return [folder / "config.json", *weights]


@contextmanager
def link_parts(parts: Parts) -> Iterator[Path]:
    """Make a folder of models that links the parts, and is removed at the end. Raises InputError as
    `find_folders`."""
    folders = find_folders(parts)
    with tempfile.TemporaryDirectory(prefix="speechssl-models-") as temporary:
        place_parts(parts, folders, Path(temporary), copy=False)
        try:
            yield Path(temporary)
        except InputError as error:  # a sentence names the parts, and not links that will be gone
            sources = {link: link.resolve() for link in Path(temporary).iterdir()}
            sources[Path(temporary, "units.safetensors")] = Path(str(parts.codebook))
            sentence = str(error)
            for link, source in sources.items():
                sentence = sentence.replace(str(link), str(source))
            error.args = (sentence,)
            raise


def place_parts(parts: Parts, folders: dict[str, Path], out: Path, copy: bool) -> None:
    """Copy or link the parts into a folder under the names that a folder of models has."""
    shipped = SHIPPED / parts.encoder
    if (shipped / "config.json").is_file():
        folders = {"encoder": shipped, **folders}
    elif Path(parts.encoder).is_file() or parts.encoder.startswith(BUNDLE):
        convert(parts.encoder, out / "encoder", "huggingface")
    else:
        folders = {"encoder": checkpoint_folder(parts.encoder, "speech encoder"), **folders}
    for name, folder in folders.items():
        if copy:
            shutil.copytree(
                folder, out / name, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True
            )
        else:
            (out / name).symlink_to(folder.resolve())
    if parts.codebook is not None:
        load_codebook(parts.codebook).save(out / "units.safetensors")
