"""The systems of spoken question answering are loaded by name from a folder of models, and such a
folder is made of parts: copied (`speechssl bundle`) or linked (`evaluate qa --encoder --codebook
--dual`).

A folder of models holds all or some of `encoder/`, `units.safetensors` (and its card), `dual/`,
`ctc/`, `text-qa/` and `speechbert/`; one ships, `people-en`. Parts that were not made for each
other are refused when they are loaded.
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

from speechssl.artifacts import begin_stage, hash_files, read_json
from speechssl.cascade.data import Recogniser
from speechssl.cascade.decode import NGRAM_FOLDER
from speechssl.cascade.options import ReaderOptions
from speechssl.cascade.readers import TextQa, load_text_qa
from speechssl.cascade.system import (
    SIMULATED,
    TEXT_SYSTEMS,
    is_ctc_head,
    load_recogniser,
    load_simulated,
    make_cascade,
    make_text_system,
)
from speechssl.checkpoints import SHIPPED, WEIGHTS, fetch_checkpoint
from speechssl.data.records import Passage, Question
from speechssl.dual.system import DualSystem, TimedAnswer, load_dual
from speechssl.encoders.checkpoints import BUNDLE
from speechssl.encoders.encoder import SharedEncoder, remember_last
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_encoder, load_shared_encoder
from speechssl.errors import InputError
from speechssl.options import Parts, find_shipped
from speechssl.text.tfidf import NGRAM
from speechssl.units.codebook import load_codebook
from speechssl.units.features import make_extractor


class System(Protocol):
    """A system encodes every recording once, then answers all questions."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def needs_audio(self) -> bool:
        """Return False where the system reads the text of a record alone."""
        ...

    def encode(self, record: Passage | Question | None, samples: np.ndarray | None) -> Any:
        """Return the system's representation of a recording: units, words, audio words.

        record: None for audio that does not belong to a corpus; samples: (N,) float32 at 16 kHz,
        None where the system needs no audio. Raises ValueError for a recording that cannot be
        encoded.
        """
        ...

    def answer_all(self, items: Sequence[tuple[Any, Any]]) -> list[TimedAnswer]:
        """Answer pairs of a question and a passage, both encoded by `encode`."""
        ...


SPEECHBERT = "speechbert"
ALIGNED = "speechbert-aligned"

# system -> parts that it needs beside the encoder
NEEDS = {
    "dual": ("units", "dual"),
    "cascade-ctc": ("ctc", "text-qa"),
    "speechbert": ("ctc", "speechbert"),
    "text": ("text-qa",),
}
# patterns of the files of a training's folder that are not copied
LEFT_OUT = ("checkpoints", "sweep", "made_from.json", ".*")


@dataclass(frozen=True)
class SystemName:
    """The name of a system is parsed into its kind, its base name and its number of windows:

    dual, dual-NAME         reads units; its reader lies in the folder of this name
    cascade-ctc             reads words of the CTC head ctc/ in the folder of models, decoded with
                            the head's n-gram if it has one
    cascade-ctc-NAME        the same of the CTC head ctc-NAME/
    cascade-ctc...-greedy   the same, decoded without an n-gram
    cascade-MODEL           reads words of a recogniser of Hugging Face
    speechbert              reads audio words, whose bounds the CTC head finds
    speechbert-aligned      reads audio words, whose bounds are in the corpus
    text                    reads the text of a corpus; no audio is needed
    cascade-given           reads the transcripts of a corpus; no audio is needed
    cascade-simulated@WER   reads the text with simulated errors, WER in per cent
    dual@N, cascade-...@N   reads only the N windows of a passage that are most like the question
    """

    kind: str  # "dual", "cascade", SIMULATED, SPEECHBERT, ALIGNED, or one of TEXT_SYSTEMS
    name: str  # without @N
    windows: int | None = None

    @property
    def recogniser(self) -> str:
        """Return the recogniser of a cascade, "" for other systems."""
        return self.name.removeprefix("cascade-") if self.kind == "cascade" else ""

    @property
    def needs_encoder(self) -> bool:
        """Return whether the system uses the encoder of the folder of models."""
        if self.kind == "cascade":
            return is_ctc_head(self.recogniser)
        return self.kind in ("dual", SPEECHBERT, ALIGNED)


def parse_system(name: str) -> SystemName:
    """Parse the name of a system. Raises InputError for a name that no system has."""
    if name.startswith(SIMULATED):
        return SystemName(SIMULATED, name)
    base, windows = name, None
    if match := re.fullmatch(r"((?:dual|cascade-).*)@([1-9]\d*)", name):
        base, windows = match[1], int(match[2])
    if base in (*TEXT_SYSTEMS, SPEECHBERT, ALIGNED):
        return SystemName(base, base, windows)
    if re.fullmatch("dual|dual-.+", base):
        return SystemName("dual", base, windows)
    if re.fullmatch("cascade-.+", base):
        return SystemName("cascade", base, windows)
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

    bf16: run text encoders under autocast, which is several times faster on a CPU with AVX512-BF16
    or AMX, and slower on others. encoder: the encoder of these models, if it is loaded already.
    errors: the file of texts with simulated errors, see `load_simulated`. reading: which reader
    the systems that read words use; where it is not that of the models, their names show it:
    `cascade-ctc+minilm-uncased-squad2`. language: of the speech, for Whisper.
    Raises InputError for an unknown system, and for parts that are missing or do not fit each
    other.
    """
    parsed = [parse_system(name) for name in names]
    if encoder is None and any(system.needs_encoder for system in parsed):
        encoder = load_shared_encoder(models)
    loader = _Loader(models, encoder, reading, bf16, language, errors)
    return [limit_windows(loader.load(system), system.windows) for system in parsed]


@dataclass
class _Loader:
    """A loader loads systems that share the encoder, the recognisers and the reader of words."""

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
            # systems that share a recogniser pass it the same array, which is recognised once
            asr.transcribe = remember_last(asr.transcribe)  # type: ignore[assignment, method-assign]
            self.recognisers[name] = asr
        return self.recognisers[name]

    def load(self, system: SystemName) -> System:
        """Load a system, without regard to its number of windows."""
        if system.kind == "dual":
            units = make_extractor(self.encoder, load_codebook(self.models / "units.safetensors"))
            return load_dual(self.models / system.name, units, system.name, self.bf16)
        if system.kind == "cascade":
            return make_cascade(self.text_qa, self.recogniser(system.recogniser))
        if system.kind == SIMULATED:
            return load_simulated(self.text_qa, self.errors, system.name)
        if system.kind in TEXT_SYSTEMS:
            return make_text_system(self.text_qa, system.name)
        # the recogniser that finds the bounds of words; None: they are in the manifest
        bounds = self.recogniser("ctc-greedy") if system.kind == SPEECHBERT else None
        folder = self.models / "speechbert"
        if read_json(folder / "card.json").get("options", {}).get("spans") is False:
            raise InputError(f"{folder} was trained with --no-spans and finds no answers")
        # imported here: the library for alignment takes half a second
        from speechssl.speechbert.system import load_speechbert

        return load_speechbert(folder, self.encoder, bounds, self.bf16)


def limit_windows(system: Any, windows: int | None) -> System:
    """Let a system read only the windows of a passage that are most like the question
    (`dual.system.retrieve_windows`). windows: their number; None: all."""
    if windows is None:
        return system
    name = f"{system.name}@{windows}"
    card = {**system.card, "windows": windows}
    if isinstance(system, DualSystem):
        reader = replace(system.reader, retrieve=windows, ngram=NGRAM)
        return replace(system, reader=reader, name=name, card=card)
    qa = replace(system.qa, reader=system.qa.reader.limit_windows(windows))
    return replace(system, qa=qa, name=name, card=card)


def choose_default_systems(models: Path) -> list[str]:
    """Return the names of the systems that are asked by default: DUAL, and the cascade with the CTC
    head, as far as the folder of models has them. Raises InputError where it has neither."""
    names = ["dual"] if (models / "dual").is_dir() else []
    if (models / "ctc").is_dir():
        names.append("cascade-ctc")
    if not names:
        raise InputError(f"{models} has neither dual/ nor ctc/; name what it has with --systems")
    return names


# ---- a folder of models from its parts


def find_folders(parts: Parts) -> dict[str, Path]:
    """Find the folders of the parts, by their name in a folder of models. Raises InputError for a
    part that is missing."""
    folders: dict[str, Path] = {}
    for name in ("dual", "ctc", "text-qa", "speechbert"):
        source = getattr(parts, name.replace("-", "_"))
        if source is not None:
            folders[name] = fetch_checkpoint(find_shipped(Path(source)), "reader")
    return folders


def bundle(parts: Parts, out: Path) -> dict[str, Any]:
    """Copy the parts into the folder `out`, load every system that they make up, and return the
    card, which names these systems and the hashes of the parts.

    Raises InputError for parts that are missing, of another kind, or not made for each other; the
    folder is removed then.
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
        inputs[name] = hash_files(_list_deciding_files(folder))
    with begin_stage(out, inputs) as step:
        if step.done:
            return dict(step.card)
        place_parts(parts, folders, out, copy=True)
        present = {*folders}
        if codebook:
            present.add("units")
        systems = [name for name, needs in NEEDS.items() if present.issuperset(needs)]
        load_systems(out, systems)
        return step.finish({"what": "models", "systems": systems, "parts": inputs})


def _list_deciding_files(folder: Path) -> list[Path]:
    """List the files that identify a part: its cards. A reader of Hugging Face has no card; its
    config and its weights identify it."""
    cards = [folder / "card.json", folder / NGRAM_FOLDER / "card.json"]
    present = [card for card in cards if card.is_file()]
    if present:
        return present
    weights = [path for pattern in WEIGHTS for path in sorted(folder.glob(pattern))]
    return [folder / "config.json", *weights]


@contextmanager
def link_parts(parts: Parts) -> Iterator[Path]:
    """Make a temporary folder of models with links to the parts. Raises InputError as
    `find_folders` does; an InputError of the block names the parts instead of the links."""
    folders = find_folders(parts)
    with tempfile.TemporaryDirectory(prefix="speechssl-models-") as temporary:
        place_parts(parts, folders, Path(temporary), copy=False)
        try:
            yield Path(temporary)
        except InputError as error:
            sources = {link: link.resolve() for link in Path(temporary).iterdir()}
            if parts.codebook is not None:
                sources[Path(temporary, "units.safetensors")] = Path(str(parts.codebook))
            sentence = str(error)
            for link, source in sources.items():
                sentence = sentence.replace(str(link), str(source))
            error.args = (sentence,)
            raise


def place_parts(parts: Parts, folders: dict[str, Path], out: Path, copy: bool) -> None:
    """Copy or link the parts into the folder `out`, under their names in a folder of models.
    folders: name of the part -> its folder, for all parts but encoder and codebook."""
    shipped = SHIPPED / parts.encoder
    if (shipped / "config.json").is_file():
        folders = {"encoder": shipped, **folders}
    elif Path(parts.encoder).is_file() or parts.encoder.startswith(BUNDLE):
        convert(parts.encoder, out / "encoder", "huggingface")
    else:
        folders = {"encoder": fetch_checkpoint(parts.encoder, "speech encoder"), **folders}
    for name, folder in folders.items():
        if copy:
            shutil.copytree(
                folder, out / name, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True
            )
        else:
            (out / name).symlink_to(folder.resolve())
    if parts.codebook is not None:
        load_codebook(parts.codebook).save(out / "units.safetensors")
