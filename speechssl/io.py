"""Where the models are that the package carries, and folders like theirs."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.processes import is_main, main_first

# Files that are whole or absent, and the JSON cards that say what made them.
#
# Everything is written under a temporary name and renamed. A card travels beside its artefact (`x.safetensors` and
# `x.card.json`, or `card.json` in a folder) and holds what made it, from what (hashes), and with which settings.

LOCKLESS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems that lock no folders, such as NFS


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold the advisory lock of a folder; no lock file is left behind, and a killed process lets it go.

    Without fcntl (Windows), and on file systems that lock no folders, there is no lock. wait: for others who hold it; else
    InputError is raised where another process does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"another run is writing into {folder}; wait for it or choose another folder") from None
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
        yield
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        yield Path(name)
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a write does not know where to
            error.filename = str(path)
        raise


def unusable(error: OSError, place: Path | str = "a file", machine: str = "") -> str:
    """What a file system refused, as one sentence. place: where, if the error does not say; machine: " on ..."."""
    where = f"{error.filename or place}{machine}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {where} is full; free space and give the same command"
    return f"cannot use {where} ({error.strerror or error}); check its path"


def write_text(path: Path | str, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def read_json(path: Path | str) -> Any:
    """Raises InputError when the file is missing or is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"cannot read {path} as JSON (there is no such file); check the path") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} as JSON ({error}); make it again with the command that wrote it") from error


@contextmanager
def claim(folder: Path, made_from: dict[str, Any]) -> Iterator[None]:
    """Write what a folder is made from before anything else goes into it; a folder begun here is removed again on InputError.

    Raises InputError where it was begun or finished from other inputs: what is in it would be taken for what is wanted.
    """
    with main_first():
        begun = is_main() and not (folder / "made_from.json").is_file()
        _claim(folder, made_from)
    try:
        yield
    except InputError:
        if begun:
            shutil.rmtree(folder)
        raise


def _claim(folder: Path, made_from: dict[str, Any]) -> None:
    path, wanted = folder / "made_from.json", json.loads(json.dumps(made_from))
    if not path.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and does not say what it was made from; choose another folder or delete it")
        write_json(path, wanted)
        return
    there = read_json(path)
    if there != wanted:
        names = ", ".join(differing(there, wanted))
        raise InputError(f"{folder} was made from other inputs ({names} differ); choose another folder or delete it")


def differing(a: Any, b: Any, name: str = "") -> list[str]:
    """Dotted names of the leaves that are not equal."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return [] if a == b else [name or "all"]
    return [x for key in sorted(a.keys() | b.keys()) for x in differing(a.get(key), b.get(key), f"{name}.{key}".strip("."))]


def hash_bytes(*parts: bytes) -> str:
    """16 hex digits of the SHA-256 of the parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def hash_files(paths: Iterable[Path]) -> str:
    """16 hex digits over the contents of the files, in the order given."""
    return hash_bytes(*(hashlib.sha256(Path(p).read_bytes()).digest() for p in paths))


def hash_content(content: bytes) -> str:
    """What `hash_files` gives for one file with this content."""
    return hash_bytes(hashlib.sha256(content).digest())


def hash_json(value: Any) -> str:
    return hash_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


# Where the files of a Hugging Face checkpoint lie: a folder, one below $SPEECHSSL_MODELS, or the hub with its cache.
#
# Every checkpoint that is named goes through `checkpoint_folder`, so that what is local is taken first, everywhere, and that a name
# which cannot be resolved says which folder was wanted.

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


SHIPPED = Path(__file__).parent / "models"
DEFAULT = "minisqa-en"


def model_folder(name: str | Path = DEFAULT) -> Path:
    """A shipped set of models by name, or a folder. Raises InputError where there is neither."""
    for folder in (Path(name), SHIPPED / str(name)):
        if (folder / "encoder").is_dir() or (folder / "text-qa").is_dir():
            return folder
    known = sorted(p.parent.name for p in SHIPPED.glob("*/encoder"))
    raise InputError(
        f"{name} is neither a folder with encoder/ or text-qa/ in it nor a shipped model; shipped: {', '.join(known) or 'none'}"
    )
