"""Files are whole or absent, cards say what made them, and stages of work have an output folder.

A file is written under a temporary name and renamed. A JSON card lies beside its artefact
(`x.safetensors` and `x.card.json`, or `card.json` in a folder) and states what made it, from which
inputs (their hashes), and with which settings. A stage is a step of work with an output folder:
`with begin_stage(out, inputs, settings) as step` locks the folder, and finds whether an earlier run
finished the step, can be resumed, or had other inputs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.processes import broadcast_value, is_main, main_first

try:
    import fcntl
except ImportError:  # Windows, where locks do nothing
    fcntl = None  # type: ignore[assignment]

UMASK = os.umask(0)  # it can be read only by setting it
os.umask(UMASK)
CARD = "card.json"
MADE_FROM = "made_from.json"  # the record of a stage
CORPUS_RECORD = "settings.json"  # the record of a stage that prepares a corpus
_HELD = threading.local()  # its `folders`: the set of folders that this thread has locked


# ---- files


@contextmanager
def replace_file(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`, and rename it to `path` at the end of the block; after
    an error, remove it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{os.getpid()}-{threading.get_ident()}{path.suffix}")
    try:
        with name_refused_file(path):
            yield temporary
            if temporary.is_file():
                with suppress(OSError):  # a file system without modes
                    temporary.chmod(0o666 & ~UMASK)  # safetensors writes for the owner alone
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def name_refused_file(place: Path | str) -> Iterator[None]:
    """Make the OSErrors of the block name `place` where they name no file, or only the temporary
    file of `replace_file`.

    Libraries in Rust (safetensors, tokenizers) raise their own errors, whose message ends with the
    number of the system's error; such an error is raised again as an OSError.
    """
    try:
        yield
    except OSError as error:
        temporary = f".{Path(place).stem}-"
        is_unnamed = error.filename is None or Path(str(error.filename)).name.startswith(temporary)
        if error.errno is not None and is_unnamed:
            error.filename = str(place)
        raise
    except Exception as error:
        match = re.search(r"\(os error (\d+)\)", str(error))
        if match is None:
            raise
        number = int(match[1])
        raise OSError(number, os.strerror(number), str(place)) from error


def describe_refusal(error: OSError, place: Path | str = "a file", machine: str = "") -> str:
    """Say in one sentence what a file system refused. An error without a number is not the file
    system's, and is repeated; a shared library (.so) that could not be loaded is the usual one.

    place: the file, for an error that names none; machine: text behind the name of the file, such
    as " on node-3".
    """
    if error.errno is None:
        why = f"{error}{machine}"
        if re.search(r"\.(so|dylib)\b", why):
            why += "; `speechssl doctor` names packages that do not fit"
        return why
    where = f"{error.filename or place}{machine}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {where} is full; free space and give the same command"
    return f"cannot use {where} ({error.strerror or error}); check its path and permissions"


def write_text(path: Path | str, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path, remedy: str, what: str = "") -> str:
    """Read a text file in UTF-8 that the user gave. Its line ends are not changed, and a byte order
    mark is removed.

    Raises InputError for a file that cannot be read; its message names the file by `what`, such as
    "the list", and the path, and ends with `remedy`.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        name = f"{what} {path}" if what else str(path)
        raise InputError(f"cannot read {name} ({error}); {remedy}") from error


def write_json(path: Path | str, value: Any) -> None:
    """Write a card, or any other value, as JSON with sorted keys."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def write_lines(path: Path | str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a manifest, one record a line."""
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read_json(path: Path | str) -> Any:
    """Read a JSON file that speechssl wrote. Raises InputError when it is missing or is not JSON,
    or when a card is not an object."""
    path = Path(path)
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"there is no {path}; check the path") from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as JSON ({error}); make it again with the command that wrote it"
        ) from error
    if path.name.endswith(CARD) and not isinstance(value, dict):
        raise InputError(f"{path} is no card; make it again with the command that wrote it")
    return value


def parse_json(text: str) -> Any:
    """Parse a JSON text. Raises ValueError for text that is not JSON, for deep nesting, and for an
    object that has a name twice, because one of the two values would be lost silently."""
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object from its names and values. Raises ValueError for a name that comes
    twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"an object has the name {counts.most_common(1)[0][0]!r} twice")
    return values


def hash_bytes(*parts: bytes) -> str:
    """Return 16 hex digits of the SHA-256 of the parts and their lengths."""
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


def check_hash(path: Path, digest: str) -> None:
    """Raise InputError for a file of a model that is missing, or not the one whose hash its card
    has."""
    if not path.is_file() or hash_files([path]) != digest:
        raise InputError(
            f"{path} is missing or does not match its card; train or fetch the model again"
        )


def hash_json(value: Any) -> str:
    """Return 16 hex digits over a value as JSON, in which the order of names does not matter."""
    return hash_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


def list_differences(a: Any, b: Any, name: str = "") -> list[str]:
    """List the dotted names of the leaves of two cards that are not equal.

    None, False and a name that a card does not have are equal.
    """
    if not (isinstance(a, dict) and isinstance(b, dict)):
        both_unset = all(x is None or x is False for x in (a, b))
        return [] if a == b or both_unset else [name or "all"]
    names = []
    for key in sorted(a.keys() | b.keys()):
        names += list_differences(a.get(key), b.get(key), f"{name}.{key}".strip("."))
    return names


def say_what_differs(names: Sequence[str]) -> str:
    """Return "a differs" or "a, b differ" for these names."""
    return f"{', '.join(names)} {'differs' if len(names) == 1 else 'differ'}"


# ---- output folders


@contextmanager
def lock_folder(folder: Path, wait: bool = True, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, which is created if it does not exist. The lock ends with the
    block, and when the process is killed.

    wait: wait while another run holds the lock; False: raise InputError then. shared: runs that all
    lock the folder as shared hold the lock together. A thread may lock a folder again that it has
    locked already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    locked: set[Path] = _HELD.__dict__.setdefault("folders", set())
    key = folder.resolve()
    if key in locked or fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
        locked.add(key)
        yield
    except BlockingIOError:
        raise InputError(
            f"another run is writing into {folder}; wait for it or choose another folder"
        ) from None
    finally:
        locked.discard(key)
        os.close(handle)


@contextmanager
def hold_output(out: Path) -> Iterator[None]:
    """Lock the output folder of a verb (a subcommand) for the length of the block.

    Raises InputError where another run has locked it. A folder that is empty at the end is removed,
    so that a verb that fails at once leaves nothing behind.
    """
    if not is_main():
        yield
        return
    new_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with lock_folder(out, wait=False):
            yield
    finally:
        _remove_empty(new_folders)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, from the inner to the outer, up to the first that is not empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


@dataclass(frozen=True)
class Stage:
    """A stage is a step of work with an output folder."""

    folder: Path
    made_from: dict[str, Any]  # its record: the inputs and the settings
    done: bool  # its card has been written

    @property
    def card(self) -> Any:
        """Read the card of a stage that is done."""
        return read_json(self.folder / CARD)

    def finish(self, card: Mapping[str, Any]) -> dict[str, Any]:
        """Write the card, which marks the stage as done, and return it. Call this last. Where
        several processes call it, only the first writes."""
        if is_main():
            write_json(self.folder / CARD, dict(card))
        return dict(card)


@contextmanager
def begin_stage(
    folder: Path | str,
    inputs: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    wait: bool = False,
    grows: str | None = None,
    card: str = CARD,
    record: str = MADE_FROM,
    lasting: tuple[str, ...] = (),
) -> Iterator[Stage]:
    """Begin, resume or skip a step of work, in a folder that is locked meanwhile.

        with begin_stage(out, {"data": hash_data(...)}, asdict(options)) as step:
            if step.done:
                return step.card
            ...  # go on from the files that an interrupted run left in `out`
            return step.finish({"what": "reader", ...})

    The file `record` states what the folder is made from: the inputs, and the settings as its
    "options". The file `card`, which is written last, marks the stage as done. Raises InputError
    for a folder with another record or with other files.

    grows: the dotted name of a number that may be greater than in the record, such as
    "options.training.steps"; where it is, the stage is not done, and goes on. wait: as in
    `lock_folder`.

    An InputError in the block leaves the folder as it was, so that the corrected command can use
    it. A folder that was new is removed, unless it holds a file that matches one of the glob
    patterns `lasting` (results that outlive the error). Under torchrun only the first process
    writes.
    """
    folder = Path(folder)
    made_from = dict(inputs)
    if settings is not None:
        made_from["options"] = dict(settings)
    made_from = json.loads(json.dumps(made_from))  # with lists for tuples, as it is read again
    record_file, card_file = folder / record, folder / card
    if not is_main():
        with main_first():  # waits until the first process has written the record
            pass
        yield Stage(folder, made_from, bool(broadcast_value(None)))
        return
    new_folders = [place for place in (folder, *folder.parents) if not place.exists()]
    with lock_folder(folder, wait):
        with main_first():
            is_new = not record_file.is_file()
            files = [path for path in (record_file, card_file) if path.is_file()]
            texts_before = {path: path.read_text("utf-8") for path in files}
            if is_new:
                _write_first_record(record_file, made_from)
            else:
                _check_record(record_file, made_from, grows, card_file)
        try:
            yield Stage(folder, made_from, bool(broadcast_value(card_file.is_file())))
        except InputError:
            if is_new and not any(any(folder.glob(pattern)) for pattern in lasting):
                _remove(folder, new_folders)
            for path, text in texts_before.items():
                write_text(path, text)
            raise


def _write_first_record(record: Path, made_from: dict[str, Any]) -> None:
    """Write the record of an empty folder. Raises InputError where the folder holds files."""
    if any(record.parent.iterdir()):
        raise InputError(f"{record.parent} holds other files; choose another folder")
    write_json(record, made_from)


def _check_record(record: Path, made_from: dict[str, Any], grows: str | None, card: Path) -> None:
    """Check that a folder was made from these inputs and settings. Where only the number `grows` is
    greater than in the record, replace the record and delete the card. Raises InputError for any
    other difference."""
    stored = read_json(record)
    names = list_differences(stored, made_from)
    if not names:
        return
    only_grows = names == [grows]
    if only_grows and _get_leaf(made_from, names[0]) > _get_leaf(stored, names[0]):
        card.unlink(missing_ok=True)  # first: an interrupted run must not look done
        write_json(record, made_from)
        return
    raise InputError(
        f"{record.parent} was made from other inputs ({say_what_differs(names)}), "
        f"see {record.name} in it; choose another folder or delete it"
    )


def _remove(folder: Path, new_folders: list[Path]) -> None:
    """Remove a folder with its content, and its parents as far as they are new. A folder that
    existed before is left empty."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder not in new_folders:
        folder.mkdir(exist_ok=True)
    _remove_empty(new_folders[1:])


def _get_leaf(values: Any, name: str) -> Any:
    """Return a value by its dotted name, as `list_differences` gives it."""
    for part in name.split("."):
        values = values[part]
    return values
