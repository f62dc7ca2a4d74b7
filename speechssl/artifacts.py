"""Files are whole or absent, cards say what made them, and stages of work have an output folder.

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
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.processes import broadcast_value, is_main, main_first

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
