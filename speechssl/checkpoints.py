"""Checkpoints are found by name: as a local folder, below the models folder, or on the hub. Models
that ship with this package are found by the name of their set, such as people-en.

Three kinds of folders: the *models folder* of this machine (`find_models_root`) holds checkpoints
by their hub name; a *checkpoint folder* (`fetch_checkpoint`) is one model of Hugging Face; a
*folder of models* (`model_folder`) is a whole set of parts, such as encoder/, dual/ and text-qa/.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from speechssl.artifacts import CARD, MADE_FROM, hash_files, replace_file
from speechssl.errors import InputError, cut_error

# Environment variable that names the models folder, which holds OWNER/NAME or NAME.
MODELS_VARIABLE = "SPEECHSSL_MODELS"
SHIPPED = Path(__file__).parent / "models"  # a folder for every set that ships
DEFAULT = "people-en"  # the set that is used where none is named
# a folder of models has one of these at least
PARTS = ("encoder", "text-qa", "choice-text")
HUB_TIMEOUT = 10.0  # seconds until the hub must have answered
# Files of weights; of these formats, the first that a model has is fetched.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
# Files beside the weights: configuration, vocabulary, preprocessor; n-grams, hashes of questions.
SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja", "*.npz", "*.npy")
# OWNER/NAME; the oldest models of the hub have a NAME alone (bert-base-uncased)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_WEIGHTS_FILE = "model.safetensors or pytorch_model.bin"
_SPEECH = f"config.json, preprocessor_config.json and {_WEIGHTS_FILE}"
_TEXT = f"config.json, tokenizer.json or the vocabulary, and {_WEIGHTS_FILE}"
# What a folder of each kind of model must hold, for messages.
FILES = {
    "speech encoder": _SPEECH,
    "text encoder": _TEXT,
    "reader": _TEXT,
    "language model": f"config.json and {_WEIGHTS_FILE}",
    "codebook": "a codebook (.safetensors) and its card (.card.json)",
    "recogniser": f"{_SPEECH}, and the tokeniser's files",
}


def find_models_root() -> Path:
    """Return the models folder of this machine, below which hub names are looked up first:
    $SPEECHSSL_MODELS, else one in the user's cache. It need not exist."""
    return Path(os.environ.get(MODELS_VARIABLE) or Path.home() / ".cache/speechssl/models")


def fetch_checkpoint(name: str | Path, what: str, otherwise: str = "") -> Path:
    """Find the folder of one Hugging Face model: a local folder, one below `find_models_root`, or
    the hub's snapshot in its cache.

    name: a folder, or OWNER/NAME on the hub; what: the kind of the model, a key of FILES;
    otherwise: text for the message that names what else could be given. $HF_HUB_OFFLINE is
    respected. Raises InputError, which says where the model was looked for, and how to get it
    there.
    """
    if Path(name).is_dir():
        return Path(name)
    name = str(name)
    give_folder = f"give a folder with {FILES[what]}{otherwise}"
    if not _is_hub_name(name) or Path(name).is_file():
        raise InputError(f"found no {what} at {name}; {give_folder}, or a hub id (OWNER/NAME)")
    if folder := _find_in_models(name):
        return folder
    try:
        return _fetch_snapshot(name)
    except LookupError as reason:
        place = find_models_root() / name
        raise InputError(
            f"found no {what} at {name}: there is no such folder, nor {place}, and {reason}; "
            f"download it where there is a network (`hf download {name} --local-dir {place}`), "
            f"or {give_folder}"
        ) from reason


def _is_hub_name(name: str) -> bool:
    """Return whether the hub could have a checkpoint of this name."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def find_checkpoint(name: str) -> Path | None:
    """Find a checkpoint on this machine by its hub name: below the models folder, or in the cache
    of the hub. The hub is not asked."""
    from huggingface_hub import try_to_load_from_cache

    # the models folder first: a folder in it may have a name that the hub's client refuses
    folder = _find_in_models(name)
    if folder or not _is_hub_name(name):
        return folder
    cached = try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else None


def _find_in_models(name: str) -> Path | None:
    """Find a checkpoint below the models folder, as OWNER/NAME or as NAME."""
    root = find_models_root()
    for folder in (root / name, root / name.split("/")[-1]):
        if folder.is_dir():
            return folder
    return None


def hash_checkpoint(name: str) -> str | None:
    """Hash the weights of a Hugging Face checkpoint; None where it does not lie on this machine.
    name: as `fetch_checkpoint` takes it."""
    folder = Path(name) if Path(name).is_dir() else find_checkpoint(name)
    if folder is None:
        return None
    for pattern in WEIGHTS:
        if files := sorted(folder.glob(pattern)):
            return hash_files(files)
    return None


def _fetch_snapshot(name: str, nested: bool = False) -> Path:
    """Find the snapshot of a hub model in the hub's cache. Where the hub can be reached, its newest
    configuration, vocabulary, and weights in one format are fetched first.

    nested: fetch the subfolders as well, which a folder of models has. Raises LookupError, which
    says why there is no snapshot.
    """
    from huggingface_hub import constants, snapshot_download

    try:
        for weights in WEIGHTS:
            snapshot = snapshot_download(
                name,
                allow_patterns=[*SETTINGS, weights],
                ignore_patterns=None if nested else "*/*",
                etag_timeout=HUB_TIMEOUT,
            )
            if any(Path(snapshot).rglob(weights)):
                return Path(snapshot)
    except Exception as error:  # the hub's client and its libraries raise many kinds
        why = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else cut_error(error)
        raise LookupError(f"the hub and its cache have none ({why})") from error
    raise LookupError("what the hub has by this name has no weights")


def push_to_hub(source: Path | str, name: str, private: bool = True) -> str:
    """Upload an encoder, a codebook, a reader or a folder of models to the hub, and return its
    address there.

    source: a folder, or the file of a codebook, which goes with its card. name: OWNER/NAME, of an
    account that you are logged in to (`hf auth login`). With HF_HUB_OFFLINE set the source is
    copied to the models folder, where the same name finds it, and its path is returned.
    Raises InputError for a source without a card, another kind of name, and where the hub refuses.
    """
    from huggingface_hub import HfApi, constants

    source = Path(source)
    if not _is_hub_name(name) or "/" not in name:
        raise InputError(f"{name} is not OWNER/NAME; give the name that it shall have on the hub")
    files = _list_pushed_files(source)
    cards = [path for path in files if path.name.endswith(CARD) and path.is_file()]
    if not cards:
        raise InputError(
            f"{source} has no card, which says what it is and under which licence; "
            "give what speechssl wrote"
        )
    base = source.parent if source.is_file() else source
    if constants.is_offline_mode():
        place = find_models_root() / name
        for file in files:
            with replace_file(place / file.relative_to(base)) as temporary:
                shutil.copyfile(file, temporary)
        return str(place)
    try:
        api = HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        listed = [file.relative_to(base).as_posix() for file in files]
        api.upload_folder(repo_id=name, folder_path=base, allow_patterns=listed)
    except Exception as error:  # the hub's client and its libraries raise many kinds
        raise InputError(
            f"{source} could not be uploaded as {name} ({cut_error(error)}); log in with `hf "
            "auth login`, or, without a network, let HF_HUB_OFFLINE=1 put it into the models folder"
        ) from error
    return f"{constants.ENDPOINT}/{name}"


def _list_pushed_files(source: Path) -> list[Path]:
    """List the files to upload: a codebook and its card, or the files of a folder except those that
    only the training itself needs."""
    if source.is_file():
        return [source, source.with_suffix(".card.json")]
    left_out = {"checkpoints", "sweep", MADE_FROM}
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return [path for path in files if not left_out & {*path.relative_to(source).parts}]


def model_folder(name: str | Path = DEFAULT) -> Path:
    """Find a folder of models, a set of parts such as encoder/ and text-qa/: a local folder, a
    shipped set by name, or OWNER/NAME below `find_models_root` or on the hub.

    Raises InputError where none of them is found.
    """
    name = str(name)
    places = [Path(name), SHIPPED / name]
    if "/" in name and _is_hub_name(name):
        places.append(find_models_root() / name)
        if not any(map(_holds_models, places)):
            with suppress(LookupError):
                places.append(_fetch_snapshot(name, nested=True))
    for folder in places:
        if _holds_models(folder):
            return folder
    names = sorted(path.parent.name for path in SHIPPED.glob("*/encoder"))
    raise InputError(
        f"{name} is neither a folder with {' or '.join(f'{part}/' for part in PARTS)} in it, nor "
        f"such on the hub, nor a shipped model; give {' or '.join(names)}, or a folder that "
        "`speechssl bundle` made"
    )


def _holds_models(folder: Path) -> bool:
    """Return whether a folder holds a set of models."""
    return any((folder / part).is_dir() for part in PARTS)
