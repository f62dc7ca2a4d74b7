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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechssl.errors import InputError
from speechssl.processes import broadcast_value, is_main, main_first

if TYPE_CHECKING:  # every verb imports this file, and most can print their help without torch
    import torch

CARD = "card.json"
MADE_FROM = "made_from.json"
CORPUS_RECORD = "settings.json"
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
    with name_refused_file(path):
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        with name_refused_file(path):
            yield Path(name)
            os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def name_refused_file(place: Path | str) -> Iterator[None]:
    """Raise every refusal of the file system as an OSError that names a file: `place`, where it
    names none, as after a write, or names what `replacing` writes in its stead, or its lock.

    Libraries in Rust (safetensors, tokenizers) raise errors of their own, which end in the number
    of the system's; a copy of a folder raises one of all files that it could not copy.
    """
    try:
        yield
    except InputError:
        raise
    except shutil.Error as error:
        raise _first_refusal(error, place) from error
    except OSError as error:
        in_its_stead = (f".{Path(place).stem}-", f".{Path(place).name}.lock")
        if error.filename is None or Path(str(error.filename)).name.startswith(in_its_stead):
            error.filename = str(place)
        raise
    except Exception as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number), str(place)) from error


def _first_refusal(error: shutil.Error, place: Path | str) -> OSError:
    """Return the refusal of the first file of a copy."""
    if not isinstance(error.args[0], list):  # it is of one file
        return OSError(0, str(error.args[0]), str(place))
    source, target, why = map(str, error.args[0][0])
    match = re.match(r"\[Errno (\d+)\]", why)
    number = int(match[1]) if match else 0
    at_target = number in FULL or (repr(target) in why and repr(source) not in why)
    return OSError(number, os.strerror(number) if number else why, target if at_target else source)


def describe_refusal(error: OSError, place: Path | str = "a file", machine: str = "") -> str:
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
    """Write a text file in UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path, remedy: str, what: str = "") -> str:
    """Read a text that others wrote, in UTF-8, and keep its line ends as they are.

    what: "the list", before the path in the message. Raises InputError for a file that cannot be
    read.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {what}{what and ' '}{path} ({error}); {remedy}") from error


class MissingEntry(InputError, KeyError):
    """A card does not say what it is asked for."""

    __str__ = Exception.__str__


class Card(dict[str, Any]):
    """A card is a dictionary that raises MissingEntry for a name that it lacks."""

    path: Path

    def __missing__(self, name: str) -> Any:
        raise MissingEntry(
            f"{self.path} does not say {name}; make it again with the command that wrote it"
        )


def write_json(path: Path | str, value: Any) -> None:
    """Write a card, or any other value, as JSON with sorted keys."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def write_lines(path: Path | str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a manifest, one record a line."""
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, object) of every line that is not empty, one in memory at a time.

    Raises InputError for what is no text and, naming it, for a line that is not a JSON object.
    """
    try:
        # not splitlines: a text may hold U+0085 or U+2028
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _parse_record(line.removesuffix("\n"), f"{path}:{number}")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the manifest {path} ({error}); check the path") from error


def _parse_record(line: str, place: str) -> dict[str, Any]:
    """Parse a line of a manifest. place: file and number of the line, for the InputError."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise InputError(f"{place} is not JSON ({error}); correct or remove the line") from error
    if not isinstance(record, dict):
        raise InputError(f"{place} is not a JSON object; every line of a manifest is one record")
    return record


def check_inside(root: Path, audio: str, place: str) -> bool:
    """Return whether a path leads out of the root all the same: absolute, or through a folder that
    is a link.

    Raises InputError for a relative path that leads out by `..`: of a list that came from elsewhere
    it could be any file of this machine. Who means such a file writes its absolute path.
    """
    # an absolute path has no such beginning
    if ".." in audio and os.path.normpath(audio).split(os.sep)[0] == "..":
        raise InputError(
            f"{place} names {audio}, which leads out of {root}; move the file "
            "there, or give its absolute path"
        )
    folder = os.path.dirname(os.path.join(root, audio))
    return not _real_path(folder).startswith(_real_path(str(root)))


@lru_cache(10_000)  # a list names few folders
def _real_path(folder: str) -> str:
    """Resolve the links of a folder, and end it with a slash."""
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
    """Parse a text that others wrote as JSON.

    halves: leave halves of surrogate pairs to the caller; they stand for no character, and cannot
    be written. Raises ValueError for what is not JSON, is nested too deeply, holds a number or a
    character that cannot be worked with, or an object with a name that it has twice.
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


def _parse_integer(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError(f"a number has {len(digits)} digits")  # no float is as large
    return int(digits)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise ValueError(f"it has {names.most_common(1)[0][0]} twice")
    return values


_JSON = json.JSONDecoder(parse_int=_parse_integer, object_pairs_hook=_make_object)


def hash_bytes(*parts: bytes) -> str:
    """Return 16 hex digits of the SHA-256 of the parts, whose borders count."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def hash_files(paths: Iterable[Path]) -> str:
    """Return 16 hex digits over the contents of the files, in the order given."""
    digests = []
    for path in paths:
        with Path(path).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return hash_bytes(*digests)


def hash_json(value: Any) -> str:
    """Return 16 hex digits over a value as JSON, whatever the order of its names."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hash_bytes(text.encode("utf-8", "surrogatepass"))


def list_differences(a: Any, b: Any, name: str = "") -> list[str]:
    """List the dotted names of the leaves of two cards that are not equal.

    None, False and a name that a card does not have are equal.
    """
    if not (isinstance(a, dict) and isinstance(b, dict)):
        both_off = all(x is None or x is False for x in (a, b))
        return [] if a == b or both_off else [name or "all"]
    names = []
    for key in sorted(a.keys() | b.keys()):
        names += list_differences(a.get(key), b.get(key), f"{name}.{key}".strip("."))
    return names


def say_what_differs(names: Sequence[str]) -> str:
    """Return "a differs" or "a, b differ"."""
    return f"{', '.join(names)} {'differs' if len(names) == 1 else 'differ'}"


# ---- output folders


@contextmanager
def lock_folder(
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
    """Make a folder and lock it. Return its handle, -1 without fcntl (Windows).

    Whoever lets an empty folder go removes it: where the folder that was locked no longer has the
    name, the one that has it is locked. Raises BlockingIOError where another run holds it.
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
def hold_output(out: Path | None, file: bool = False) -> Iterator[None]:
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
                with name_refused_file(out):
                    stack.enter_context(lock_folder(place, wait=False, shown=out if file else None))
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
                    with lock_folder(folder, wait=False):
                        folder.rmdir()


@dataclass(frozen=True)
class Stage:
    """A stage is a step of work with an output folder.

    made_from: what the folder says of its inputs and settings; done: its card is there.
    """

    folder: Path
    made_from: dict[str, Any]
    done: bool

    @property
    def card(self) -> Any:
        """Read the card of a stage that is done."""
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
    made_from = dict(inputs)
    if settings is not None:
        made_from["options"] = dict(settings)
    made_from = json.loads(json.dumps(made_from))  # as it is read again: tuples are lists
    new = [p for p in (folder, *folder.parents) if not p.exists()]
    with lock_folder(folder, wait) if is_main() else nullcontext():
        with main_first():
            begun = is_main() and not (folder / record).is_file()
            grown = _claim(folder, made_from, folder / card, folder / record, grows)
        try:
            yield Stage(folder, made_from, bool(broadcast_value((folder / card).is_file())))
        except InputError:
            with suppress(OSError):  # the InputError says more
                if begun and not any(any(folder.glob(pattern)) for pattern in lasting):
                    _empty(folder)
                    for created in new:
                        created.rmdir()
                for path, text in grown.items():
                    write_text(path, text)
            raise


def _claim(
    folder: Path, made_from: dict[str, Any], card: Path, record: Path, grows: str | None
) -> dict[Path, str]:
    """Write the record of a stage that is new or grows, and check it against one that was begun.

    Return what stood in the files of a stage that grows, to be put back where it fails: the record
    and the card, in this order. Raises InputError as `stage` does.
    """
    if not record.is_file():
        if any(folder.iterdir()):
            raise InputError(f"{folder} holds other files; choose another folder")
        write_json(record, made_from)
        return {}
    stored = read_json(record)
    names = list_differences(stored, made_from)
    if not names:
        return {}
    if grows is None or names != [grows]:
        raise InputError(
            f"{folder} was made from other inputs ({say_what_differs(names)}), "
            f"see {record.name} in it; choose another folder or delete it"
        )
    before = _leaf(stored, grows)
    wanted = _leaf(made_from, grows)
    if wanted < before:
        raise InputError(
            f"{folder} was made with {before} {grows.rpartition('.')[2]}, and {wanted} is fewer; "
            "give as many or more, choose another folder or delete it"
        )
    grown = {path: path.read_text(encoding="utf-8") for path in (record, card) if path.is_file()}
    card.unlink(missing_ok=True)  # first: what is cut short here must not look done
    write_json(record, made_from)
    return grown


def _empty(folder: Path) -> None:
    """Remove all that is in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _leaf(values: Any, name: str) -> Any:
    """Return a value by its dotted name, as `list_differences` gives it."""
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
_TEXT_MODEL = (
    "config.json, tokenizer.json or the vocabulary, and model.safetensors or pytorch_model.bin"
)
FILES = {
    "speech encoder": (
        "config.json, preprocessor_config.json and model.safetensors or pytorch_model.bin"
    ),
    "text encoder": _TEXT_MODEL,
    "reader": _TEXT_MODEL,
    "language model": "config.json and model.safetensors or pytorch_model.bin",
    "codebook": "a codebook (.safetensors) and its card (.card.json)",
    "recogniser": (
        "config.json, preprocessor_config.json, the tokeniser's files and "
        "model.safetensors or pytorch_model.bin"
    ),
}


def models_root(make: bool = False) -> Path:
    """Return the models folder: $SPEECHSSL_MODELS, else one in the user's cache, which need not
    exist.

    Raises InputError for a variable that names no folder, unless whoever asks will make it (`make`)
    and there is nothing yet.
    """
    root = os.environ.get(MODELS)
    if root and not Path(root).is_dir() and not (make and not Path(root).exists()):
        raise InputError(
            f"the variable {MODELS} names {root}, which is not a folder; make it, "
            "or correct or unset the variable"
        )
    return Path(root) if root else Path.home() / ".cache/speechssl/models"


def checkpoint_folder(name: str | Path, what: str, otherwise: str = "") -> Path:
    """Find the folder of a Hugging Face checkpoint: a local one, one below $SPEECHSSL_MODELS, or a
    snapshot of the hub in its cache.

    name: a folder, or OWNER/NAME on the hub; what: a key of FILES; otherwise: what else could be
    given, for the message. $HF_HUB_OFFLINE is respected. Raises InputError, which says what was
    wanted where, and how to get it there.
    """
    if Path(name).is_dir():
        return Path(name)
    name = str(name)
    give_folder = f"give a folder with {FILES[what]}{otherwise}"
    if not _is_hub_name(name):
        raise InputError(f"found no {what} at {name}; {give_folder}, or a hub id (OWNER/NAME)")
    if folder := _find_in_models(name):
        return folder
    if near := _nearest_shipped(name, what):
        raise InputError(f"found no {what} at {name}; did you mean {near}, which ships?")
    try:
        return _hub_snapshot(name)
    except LookupError as reason:
        place = models_root() / name
        get = f"download it where there is a network (`hf download {name} --local-dir {place}`)"
        raise InputError(
            f"found no {what} at {name}: there is no such folder, nor {place}, and {reason}; "
            f"{get}, or {give_folder}"
        ) from reason


def _is_hub_name(name: str) -> bool:
    """Return whether the hub could have a checkpoint of this name."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def _nearest_shipped(name: str, what: str) -> str | None:
    """Return the shipped name that a mistyped one is near to; None where there is none, or it is no
    mistake. what: a key of FILES."""
    if what == "codebook":
        places = list(SHIPPED.glob("*/*.safetensors"))
    else:
        places = [path.parent for path in SHIPPED.glob("*/*/config.json")]
    if what == "speech encoder":
        places += [path.parent for path in SHIPPED.glob("*/encoder")]  # a set stands for its own
    names = [path.relative_to(SHIPPED).as_posix() for path in places]
    near = get_close_matches(name, [*names], 1, 0.8)
    return near[0] if near and name not in names else None


def find_checkpoint(name: str) -> Path | None:
    """Find a checkpoint of the hub on this machine: below the models folder, or in the hub's cache.
    The hub is not asked."""
    # first: a folder may have a name that the hub's client refuses
    return _find_in_models(name) or _cached_snapshot(name)


def _find_in_models(name: str) -> Path | None:
    """Find a checkpoint below the models folder, in a folder of its owner or without."""
    root = models_root()
    for folder in (root / name, root / name.split("/")[-1]):
        if folder.is_dir():
            return folder
    return None


def _cached_snapshot(name: str) -> Path | None:
    """Find a checkpoint in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json")
    return Path(cached).parent if isinstance(cached, str) else None


def hash_of_weights(name: str) -> str | None:
    """Hash the weights of a Hugging Face checkpoint that lies on this machine; None where there is
    none. name: as `checkpoint_folder` takes it."""
    folder: Path | None = None
    if Path(name).is_dir():
        folder = Path(name)
    elif _is_hub_name(name):
        folder = find_checkpoint(name)
    if folder is None:
        return None
    for pattern in WEIGHTS:
        if files := sorted(folder.glob(pattern)):
            return hash_files(files)
    return None


def _hub_snapshot(name: str, nested: bool = False) -> Path:
    """Find the snapshot in the hub's cache, brought up to date where the hub can be asked.

    nested: with the folders in it, as a folder of models has them. Raises LookupError, which says
    why there is none.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import RepositoryNotFoundError

    if constants.is_offline_mode():
        reason = (
            "the hub is not asked, because HF_HUB_OFFLINE is set, and its cache "
            f"({constants.HF_HUB_CACHE}) has none"
        )
    else:
        try:
            return _download_snapshot(name, nested)
        except RepositoryNotFoundError:
            reason = "the hub has none of this name, or hides it (log in with `hf auth login`)"
        except Exception as error:  # the hub's client and what it connects with have many
            if isinstance(error, OSError) and error.errno:  # a full disk
                raise
            reason = f"the hub cannot be reached ({_first_words(error)})"
    folder = _cached_snapshot(name)
    # a killed download leaves a folder without weights
    if folder and any(any(folder.glob(pattern)) for pattern in WEIGHTS):
        return folder
    raise LookupError(reason)


def _download_snapshot(name: str, nested: bool) -> Path:
    """Download configuration, vocabulary and weights in one format of several."""
    from huggingface_hub import HfApi, snapshot_download

    siblings = HfApi().model_info(name, timeout=PATIENCE).siblings or ()
    files = [Path(f.rfilename) for f in siblings if "/" not in f.rfilename]
    weights = WEIGHTS[0]
    for pattern in reversed(WEIGHTS):
        if any(file.match(pattern) for file in files):
            weights = pattern
    folder = snapshot_download(
        name,
        allow_patterns=[*SETTINGS, weights],
        ignore_patterns=None if nested else "*/*",
        etag_timeout=PATIENCE,
    )
    return Path(folder)


def _first_words(error: Exception) -> str:
    """Return what an error of a library says, on one line."""
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split())[:120].rstrip(".")


def push_to_hub(source: Path | str, name: str, private: bool = True) -> str:
    """Upload an encoder, a codebook, a reader or a folder of models to the hub. Return where it is
    then.

    source: a folder, or the file of a codebook, which goes with its card. name: OWNER/NAME; where
    the hub is there, you are logged in (`hf auth login`). With HF_HUB_OFFLINE set it is copied to
    the models folder, where the same name finds it.
    Raises InputError for a source without a card, a name that is none, and where the hub refuses.
    """
    from huggingface_hub import HfApi, constants

    source = Path(source)
    if not _is_hub_name(name) or "/" not in name:
        raise InputError(f"{name} is not OWNER/NAME; give the name that it shall have on the hub")
    files = _files_to_push(source)
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
        raise InputError(
            f"{source} could not be uploaded as {name} ({_first_words(error)}); log in with `hf "
            "auth login`, or, without a network, let HF_HUB_OFFLINE=1 put it into the folder of "
            "checkpoints"
        ) from error
    return f"{constants.ENDPOINT}/{name}"


def _files_to_push(source: Path) -> list[Path]:
    """List what is uploaded: a codebook and its card, or a folder without its checkpoints."""
    if source.is_file():
        return [source, source.with_suffix(".card.json")]
    left_out = {"checkpoints", "sweep", MADE_FROM}
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return [path for path in files if not left_out & {*path.parts}]


SHIPPED = Path(__file__).parent / "models"
DEFAULT = "people-en"


def model_folder(name: str | Path = DEFAULT) -> Path:
    """Find a folder of models: a local one, a shipped set by name, or OWNER/NAME below the models
    folder or on the hub.

    Raises InputError where there is none of them.
    """
    name = str(name)
    on_hub = "/" in name and _is_hub_name(name)
    places = [Path(name), SHIPPED / name]
    if on_hub:
        places.append(models_root() / name)
    for folder in places:
        if _holds_models(folder):
            return folder
    why = ""
    if on_hub and not Path(name).exists():
        try:
            snapshot = _hub_snapshot(name, nested=True)
        except LookupError as reason:
            why = f"; as a name on the hub: {reason}"
        else:
            if _holds_models(snapshot):
                return snapshot
            why = "; what the hub has by this name is neither"
    names = sorted(path.parent.name for path in SHIPPED.glob("*/encoder"))
    raise InputError(
        f"{name} is neither a folder with encoder/ or text-qa/ in it nor a shipped model; "
        f"shipped: {', '.join(names) or 'none'}{why}"
    )


def _holds_models(folder: Path) -> bool:
    return (folder / "encoder").is_dir() or (folder / "text-qa").is_dir()


# ---- weights as int8 with one float32 scale a row: a quarter of the size, and no weight is off by
# more than 1/254 of the largest in its row. What ships, and every reader that is saved, is stored
# so. A model can be loaded and saved any number of times and stays the same.

SCALE = ".row_scale"
State = dict[str, "torch.Tensor"]


def quantise(state: State, kernels: bool = False) -> State:
    """Pack matrices (R, C) as int8 plus `name.row_scale` (R,) float32, and keep everything else.

    kernels: pack convolutions (R, C, K), too, with one scale for each of their R output channels.
    """
    import torch

    packed: State = {}
    for name, value in state.items():
        is_packed = value.ndim == 2 or (kernels and value.ndim > 2)
        if not (is_packed and value.is_floating_point()):
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
    """Undo `quantise`, in float32, which `quantise` packs to the same bits again."""
    state: State = {}
    for name, value in packed.items():
        if name.endswith(SCALE):
            continue
        state[name] = value.float()
        if name + SCALE in packed:
            scale = packed[name + SCALE].view(-1, *[1] * (value.ndim - 1))
            state[name] = state[name] * scale
    return state


def load_quantised(path: Path) -> State | None:
    """Load the float32 weights of a safetensors file that `quantise` packed; None for one that
    holds no scales.

    Raises what safetensors raises for a file it cannot read.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, "pt") as file:
        packed = any(name.endswith(SCALE) for name in file.keys())  # noqa: SIM118
    return dequantise(load_file(path)) if packed else None
