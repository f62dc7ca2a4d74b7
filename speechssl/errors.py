"""Errors that the user can mend (exit code 2) are one sentence, which names the file and the
remedy; items that cannot be used are set aside and listed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from speechssl.processes import is_main

MAX_CHARACTERS = 1_000  # of a sentence on the terminal
MAX_LISTED = 3  # items with the same reason that are listed one by one
_SET_ASIDE = [0]  # a counter for --strict: the items that this process set aside


class InputError(Exception):
    """The input is bad. The message is one sentence that names the file or the option and what to
    do about it."""


class MissingExtra(InputError):
    """An optional dependency is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        self.purpose, self.extra = purpose, extra
        packages = " ".join(f"'{package}'" for package in list_packages(extra))
        super().__init__(f"{purpose} needs the extra {extra}: pip install {packages}")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        # pickled by its own arguments, so that a worker process can hand it to its parent
        return MissingExtra, (self.purpose, self.extra)


def list_packages(extra: str) -> list[str]:
    """Return the requirements of an extra of this package, as pip takes them.

    They come from the metadata of the installation: installing them one by one works for a checkout
    as well as for a wheel, and needs no registry that has this package.
    """
    from importlib.metadata import requires

    end = re.compile(rf"""\s*;\s*extra == ['"]{re.escape(extra)}['"]$""")
    return [end.sub("", line) for line in requires("speechssl") or () if end.search(line)]


def escape_line(sentence: str) -> str:
    """Escape line breaks and other control characters in a sentence for the terminal, and cut a
    long one."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in sentence)
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]} ..."


def make_printable(text: str) -> str:
    """Escape the bytes of a file name that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def count_set_aside(number: int) -> None:
    """Count items that a verb set aside without listing them here."""
    _SET_ASIDE[0] += number


def pop_set_aside() -> int:
    """Return how many items this process has set aside since the last call."""
    number = _SET_ASIDE[0]
    _SET_ASIDE[0] = 0
    return number


def report_set_aside(failed: Mapping[str, str], what: str, item: str = "recording") -> None:
    """List on stderr, and count, the items of a batch that could not be used.

    failed: id of the item -> reason. what: the purpose of the batch, such as "extracting units".
    item: the noun for one item, which gets an s for several. Where more than MAX_LISTED items have
    the same reason, one line stands for all of them; reasons that differ only in the names of
    items, in files and in numbers count as the same.
    """
    count_set_aside(len(failed))
    if not is_main():
        return
    from tqdm import tqdm  # imported here: the command line sets its intervals first

    by_reason: dict[str, list[str]] = {}
    for name, reason in failed.items():
        # words that hold a digit or a slash are files, other items and numbers
        reason = re.sub(r"\S*[\d/]\S*", "*", reason.replace(name, "*"))
        by_reason.setdefault(reason, []).append(name)
    for names in by_reason.values():
        if len(names) > MAX_LISTED:
            tqdm.write(
                f"set aside {len(names)}, such as {names[0]}: {failed[names[0]]}", file=sys.stderr
            )
        else:
            for name in names:
                tqdm.write(f"set aside {name}: {failed[name]}", file=sys.stderr)
    if failed:
        tqdm.write(
            f"{what}: {len(failed)} {item}{'s' * (len(failed) > 1)} set aside", file=sys.stderr
        )


def cut_error(error: Exception) -> str:
    """Return the first line of a library's message, cut to 160 characters; the name of the error
    where it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
