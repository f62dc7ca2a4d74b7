"""A folder of models from its parts, copied (`speechssl bundle`) or linked (`evaluate qa --encoder
--codebook --dual`)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_files, hash_json, read_json, stage
from speechssl.cascade.decode import NGRAM_FOLDER
from speechssl.checkpoints import SHIPPED, WEIGHTS, checkpoint_folder
from speechssl.encoders.checkpoints import BUNDLE
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.options import Parts, find_shipped
from speechssl.systems import load_systems
from speechssl.units.kmeans import load_codebook

KINDS = {  # part -> what its card may call it
    "dual": ("DUAL reader",),
    "speechbert": ("SpeechBERT",),
    "text_qa": ("text QA",),
    "ctc": ("ctc-recogniser",),
}
SYSTEMS = {  # system -> parts it needs beside the encoder
    "dual": ("units", "dual"),
    "cascade-ctc": ("ctc", "text-qa"),
    "speechbert": ("ctc", "speechbert"),
    "text": ("text-qa",),
}
LEFT_OUT = ("checkpoints", "sweep", "made_from.json", ".*")  # of a training folder


def find_folders(parts: Parts) -> dict[str, Path]:
    """Map the name in a folder of models to where the part lies. Raises InputError for a part that
    is missing or something else."""
    folders: dict[str, Path] = {}
    for part, kinds in KINDS.items():
        source = getattr(parts, part)
        if source is None:
            continue
        name = part.replace("_", "-")
        text = "text QA" in kinds  # which may be a checkpoint of Hugging Face
        folder = find_shipped(source) or source
        if text:
            folder = checkpoint_folder(folder, "reader")
        if not folder.is_dir():
            raise InputError(
                f"--{name} {source} is not a folder; give one that `speechssl train` wrote"
            )
        card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
        kind = str(card.get("what") or card.get("kind") or "")
        if kind not in kinds and (kind or not text or not (folder / "config.json").is_file()):
            what = f"holds a {kind}" if kind else "has no card that says what it is"
            raise InputError(
                f"--{name} {source} {what}, and a {' or '.join(kinds)} is wanted; give its folder"
            )
        folders[name] = folder
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
        if (folder / "card.json").is_file():
            inputs[name] = hash_json(read_json(folder / "card.json"))
            ngram = folder / NGRAM_FOLDER / "card.json"
            if ngram.is_file():
                inputs["ngram"] = hash_json(read_json(ngram))
        else:  # a reader of Hugging Face, whose config does not say which weights it has
            weights = (path for pattern in WEIGHTS for path in sorted(folder.glob(pattern)))
            inputs[name] = hash_files([folder / "config.json", *weights])
    with stage(out, inputs) as step:
        if step.done:
            return dict(step.card)
        place(parts, folders, out, copy=True)
        there = {*folders}
        if codebook:
            there.add("units")
        systems = [name for name, needs in SYSTEMS.items() if there.issuperset(needs)]
        with name_as_given(parts, out):
            load_systems(out, systems)
        return step.finish({"what": "models", "systems": systems, "parts": inputs})


@contextmanager
def link_parts(parts: Parts) -> Iterator[Path]:
    """Make a folder of models that links the parts, and is removed at the end. Raises InputError as
    `find_folders`."""
    folders = find_folders(parts)
    with tempfile.TemporaryDirectory(prefix="speechssl-models-") as temporary:
        place(parts, folders, Path(temporary), copy=False)
        with name_as_given(parts, Path(temporary)):
            yield Path(temporary)


@contextmanager
def name_as_given(parts: Parts, out: Path) -> Iterator[None]:
    """Let an InputError name the parts as they were given, not as what they are in a folder of
    models that will be gone."""
    try:
        yield
    except InputError as error:
        sources = {"encoder": parts.encoder, "units.safetensors": parts.codebook}
        sources |= {part.replace("_", "-"): getattr(parts, part) for part in KINDS}
        sentence = str(error)
        for name, part in sources.items():
            sentence = sentence.replace(str(out / name), str(part))
        sentence = sentence.replace(str(out), "the parts given")
        error.args = (sentence,)  # of the same kind, such as MissingExtra
        raise


def place(parts: Parts, folders: dict[str, Path], out: Path, copy: bool) -> None:
    """Copy or link the parts into a folder under the names that a folder of models has."""
    file = Path(parts.encoder).is_file() or parts.encoder.startswith(BUNDLE)
    # no folder of Hugging Face
    if file and not (SHIPPED / parts.encoder / "config.json").is_file():
        convert(parts.encoder, out / "encoder", "huggingface")
    else:
        source = SHIPPED / parts.encoder
        if not (source / "config.json").is_file():
            source = checkpoint_folder(parts.encoder, "speech encoder")
        folders = {"encoder": source, **folders}
    for name, folder in folders.items():
        if copy:
            shutil.copytree(
                folder, out / name, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True
            )
        else:
            (out / name).symlink_to(folder.resolve())
    if parts.codebook is not None:
        load_codebook(parts.codebook).save(out / "units.safetensors")
