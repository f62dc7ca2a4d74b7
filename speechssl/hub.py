"""Where the files of a Hugging Face checkpoint lie: a folder, one below $SPEECHSSL_MODELS, or the hub with its cache.

Every checkpoint that is named goes through `checkpoint_folder`, so that what is local is taken first, everywhere, and that a name
which cannot be resolved says which folder was wanted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from speechssl.errors import InputError

MODELS = "SPEECHSSL_MODELS"  # environment variable: a folder with OWNER/NAME or NAME in it
PATIENCE = 10.0  # seconds until the hub must have answered
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # the first of which there are files is fetched
SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja")  # configuration, vocabulary, extractor
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")  # OWNER/NAME, or NAME alone as the oldest have it
FILES = {
    "speech encoder": "config.json, preprocessor_config.json and model.safetensors or pytorch_model.bin",
    "text encoder": "config.json, tokenizer.json or the vocabulary, and model.safetensors or pytorch_model.bin",
    "recogniser": "config.json, preprocessor_config.json, the tokeniser's files and model.safetensors or pytorch_model.bin",
}


def checkpoint_folder(name: str | Path, what: str, otherwise: str = "") -> Path:
    """The folder of a checkpoint, which is fetched from the hub where it is nowhere else.

    name: a folder, or OWNER/NAME on the hub; what: a key of FILES; otherwise: what else could be given, for the message.
    $HF_HUB_OFFLINE is respected. Raises InputError, which says what was wanted where, and how to get it there.
    """
    if Path(name).is_dir():
        return Path(name)
    if not _NAME.fullmatch(str(name)) or ".." in str(name):
        raise InputError(f"found no {what} at {name}; give a folder with {FILES[what]}{otherwise}, or a hub id (OWNER/NAME)")
    for folder in _local(str(name)):
        if folder.is_dir():
            return folder
    return _of_hub(str(name), lambda reason: _wanted(str(name), what, reason, otherwise))


def _local(name: str) -> list[Path]:
    """Where below $SPEECHSSL_MODELS it may lie. Raises InputError where that is no folder."""
    root = os.environ.get(MODELS)
    if not root:
        return []
    if not Path(root).is_dir():
        raise InputError(f"{MODELS} is {root}, which is not a folder; correct the variable, or unset it")
    return list(dict.fromkeys([Path(root) / name, Path(root) / name.split("/")[-1]]))


def _of_hub(name: str, refused: Callable[[str], str]) -> Path:
    """The snapshot in the hub's cache, brought up to date where the hub can be asked. refused: a reason -> the message."""
    from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    reason = f"the hub is not asked, because HF_HUB_OFFLINE is set, and its cache ({constants.HF_HUB_CACHE}) has none"
    if not constants.is_offline_mode():
        try:
            there = [file.rfilename for file in HfApi().model_info(name, timeout=PATIENCE).siblings or ()]
            return Path(snapshot_download(name, allow_patterns=_patterns(there), ignore_patterns="*/*", etag_timeout=PATIENCE))
        except GatedRepoError:
            reason = "its owners give it to those alone who ask (accept the terms on its page, and log in with `hf auth login`)"
        except RepositoryNotFoundError:
            reason = "the hub has none of this name, or hides it (log in with `hf auth login`)"
        except Exception as error:  # the hub's client and what it connects with have many
            if isinstance(error, OSError) and error.errno:  # a full disk
                raise
            reason = f"the hub cannot be reached ({_words(error)})"
    cached = try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str) and _has_weights(Path(cached).parent):
        return Path(cached).parent
    raise InputError(refused(reason))


def _patterns(there: list[str]) -> list[str]:
    """Of the formats that weights come in, one."""
    found = (pattern for pattern in WEIGHTS if any(Path(file).match(pattern) and "/" not in file for file in there))
    return [*SETTINGS, *filter(None, [next(found, "")])]


def _has_weights(folder: Path) -> bool:
    """Whether a snapshot in the cache is more than what was fetched before a kill."""
    return any(True for pattern in WEIGHTS for _ in folder.glob(pattern))


def _wanted(name: str, what: str, reason: str, otherwise: str) -> str:
    root = os.environ.get(MODELS)
    place = f"{root or 'MODELS'}/{name}"
    point = "" if root else f" and point {MODELS} at MODELS"
    return (
        f"found no {what} at {name}: there is no such folder, nor {place}, and {reason}; fetch it where the hub can be reached "
        f"(`hf download {name} --local-dir {place}`){point}, or give a folder with {FILES[what]}{otherwise}"
    )


def _words(error: Exception) -> str:
    return " ".join((str(error).strip() or type(error).__name__).split())[:120].rstrip(".")
