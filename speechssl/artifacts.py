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

CARD = "card.json"
MADE_FROM = "made_from.json"
CORPUS_RECORD = "settings.json"
_HELD = threading.local()  # folders that a thread holds


# ---- files


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{os.getpid()}-{threading.get_ident()}{path.suffix}")
    try:
        with name_refused_file(path):
            yield temporary
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def name_refused_file(place: Path | str) -> Iterator[None]:
    """Let an OSError name `place` where it names no file, or the one that `replacing` writes.

    Libraries in Rust (safetensors, tokenizers) raise errors of their own, with the number of the
    system's.
    """
    try:
        yield
    except OSError as error:
        temporary = f".{Path(place).stem}-"
        if error.filename is None or Path(str(error.filename)).name.startswith(temporary):
            error.filename = str(place)
        raise
    except Exception as error:
        refused = re.search(r"\(os error (\d+)\)", str(error))
        if refused is None:
            raise
        number = int(refused[1])
        raise OSError(number, os.strerror(number), str(place)) from error


def describe_refusal(error: OSError, place: Path | str = "a file", machine: str = "") -> str:
    """Say in one sentence what a file system refused. place: where, if the error does not say;
    machine: " on ..."."""
    where = f"{error.filename or place}{machine}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {where} is full; free space and give the same command"
    return f"cannot use {where} ({error.strerror or error}); check its path and permissions"


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


def write_json(path: Path | str, value: Any) -> None:
    """Write a card, or any other value, as JSON with sorted keys."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def write_lines(path: Path | str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a manifest, one record a line."""
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read_json(path: Path | str) -> Any:
    """Read what `write_json` was given. Raises InputError when the file is missing or is not
    JSON, or a card is not an object."""
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
    """Parse JSON of others. Raises ValueError for what is none, is nested too deeply, or has an
    object with the same name twice, of which a reader would lose one in silence."""
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON of its names and values. Raises ValueError for a name that it has
    twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"an object has the name {counts.most_common(1)[0][0]!r} twice")
    return values


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
    return hash_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


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
def lock_folder(folder: Path, wait: bool = True, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, which is made where there is none. A killed process lets it go.

    wait: for another run that holds it; else InputError is raised. shared: with others that share
    it. A thread may hold a folder twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held: set[Path] = _HELD.__dict__.setdefault("folders", set())
    key = folder.resolve()
    if key in held or fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
        held.add(key)
        yield
    except BlockingIOError:
        raise InputError(
            f"another run is writing into {folder}; wait for it or choose another folder"
        ) from None
    finally:
        held.discard(key)
        os.close(handle)


@contextmanager
def hold_output(out: Path) -> Iterator[None]:
    """Hold the folder that a verb writes into from its start to its end.

    Raises InputError where another run holds it. A folder that stays empty is removed, so that a
    verb that is refused leaves nothing.
    """
    if not is_main():
        yield
        return
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with lock_folder(out, wait=False):
            yield
    finally:
        with suppress(OSError):  # the first that is not empty
            for folder in new:
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
    """Begin, resume or skip a step of work, in a folder that is locked meanwhile.

        with stage(out, {"data": data_hash}, asdict(options)) as step:
            if step.done:
                return step.card
            ...  # go on from the files that an interrupted run left in `out`
            return step.finish({"what": "reader", ...})

    The file `record` says what the folder is made from: inputs, and settings as its "options". The
    file `card`, which comes last, says that the stage is done. Raises InputError for a folder with
    another record or with other files.

    grows: the dotted name of a number that may be greater than in the record, such as
    "options.training.steps"; then the stage is not done, and goes on. wait: for another run that
    holds the folder; else InputError is raised.

    An InputError in the block leaves the folder as it was, lest it refuse the mended command: one
    that was begun here is removed, unless something in it matches a pattern of `lasting`. Under
    torchrun the first process writes.
    """
    folder = Path(folder)
    made_from = dict(inputs)
    if settings is not None:
        made_from["options"] = dict(settings)
    made_from = json.loads(json.dumps(made_from))  # as it is read again: tuples are lists
    record_file, card_file = folder / record, folder / card
    if not is_main():
        with main_first():  # it has written the record
            pass
        yield Stage(folder, made_from, bool(broadcast_value(None)))
        return
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    with lock_folder(folder, wait):
        with main_first():
            begun = not record_file.is_file()
            before = _read_texts(record_file, card_file)
            if begun:
                _begin(record_file, made_from)
            else:
                _resume(record_file, made_from, grows, card_file)
        try:
            yield Stage(folder, made_from, bool(broadcast_value(card_file.is_file())))
        except InputError:
            if begun and not any(any(folder.glob(pattern)) for pattern in lasting):
                _remove(folder, new)
            for path, text in before.items():
                write_text(path, text)
            raise


def _read_texts(*paths: Path) -> dict[Path, str]:
    return {path: path.read_text("utf-8") for path in paths if path.is_file()}


def _begin(record: Path, made_from: dict[str, Any]) -> None:
    """Write the record of an empty folder. Raises InputError where the folder holds files."""
    if any(record.parent.iterdir()):
        raise InputError(f"{record.parent} holds other files; choose another folder")
    write_json(record, made_from)


def _resume(record: Path, made_from: dict[str, Any], grows: str | None, card: Path) -> None:
    """Check the record of a folder, or write it anew where only the number that grows differs.
    Raises InputError where anything else does."""
    stored = read_json(record)
    names = list_differences(stored, made_from)
    if not names:
        return
    if names == [grows] and _leaf(made_from, names[0]) > _leaf(stored, names[0]):
        card.unlink(missing_ok=True)  # first: what is cut short here must not look done
        write_json(record, made_from)
        return
    raise InputError(
        f"{record.parent} was made from other inputs ({say_what_differs(names)}), "
        f"see {record.name} in it; choose another folder or delete it"
    )


def _remove(folder: Path, new: list[Path]) -> None:
    """Remove a folder with what is in it, and those of `new`, which were made for it; one that was
    there before is left empty."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder not in new:
        folder.mkdir(exist_ok=True)
    with suppress(OSError):  # the first that is not empty
        for parent in new[1:]:
            parent.rmdir()


def _leaf(values: Any, name: str) -> Any:
    """Return a value by its dotted name, as `list_differences` gives it."""
    for part in name.split("."):
        values = values[part]
    return values
