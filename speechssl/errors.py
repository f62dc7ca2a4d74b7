"""Errors that the user can mend: one sentence that names the file and the remedy
(exit code 2)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from speechssl.processes import is_main

LONGEST = 1_000  # characters of a sentence
FEW = 3  # items that are listed one by one although they have one reason
_SET_ASIDE = [0]  # items of this process, which --strict asks for


class InputError(Exception):
    """The input is bad. The message is one sentence that names the file or the option and what to
    do about it."""


class MissingExtra(InputError):
    """An optional dependency is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        self.purpose, self.extra = purpose, extra
        packages = " ".join(f"'{package}'" for package in packages_of(extra))
        super().__init__(f"{purpose} needs the extra {extra}: pip install {packages}")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        # or a worker process could not hand it to its parent
        return MissingExtra, (self.purpose, self.extra)


def packages_of(extra: str) -> list[str]:
    """Return what an extra of this package installs, as pip takes it, from the metadata of the
    installation: a line to install it works then from a checkout and from a wheel alike, whether or
    not a registry has this package."""
    from importlib.metadata import requires

    end = re.compile(rf"""\s*;\s*extra == ['"]{re.escape(extra)}['"]$""")
    return [end.sub("", line) for line in requires("speechssl") or () if end.search(line)]


def one_line(sentence: str) -> str:
    """Escape line breaks in what a sentence for the terminal quotes, and cut a long one."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in sentence)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def make_printable(text: str) -> str:
    """Show the bytes of a file name that are no UTF-8 as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def count_set_aside(number: int) -> None:
    """Count items that a verb set aside without listing them here."""
    _SET_ASIDE[0] += number


def pop_set_aside() -> int:
    """Return how many items this process has set aside since this was last asked."""
    number = _SET_ASIDE[0]
    _SET_ASIDE[0] = 0
    return number


def report_set_aside(failed: Mapping[str, str], what: str, item: str = "recording") -> None:
    """List on stderr, and count, the items of a batch that could not be used.

    failed: id -> why; what: they were needed for; item: what one of them is, with an s for several.
    More than FEW for one reason are one line. Reasons that differ in the names of items alone are
    one.
    """
    count_set_aside(len(failed))
    if not is_main():
        return
    from tqdm import tqdm  # whose intervals the command line sets before it is imported

    alike: dict[str, list[str]] = {}
    # without the item, other items, files and numbers: words that hold a digit or a slash
    for name, reason in failed.items():
        alike.setdefault(re.sub(r"\S*[\d/]\S*", "*", reason.replace(name, "*")), []).append(name)
    for names in alike.values():
        if len(names) > FEW:
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


def first_line(error: Exception) -> str:
    """Return the first line of others' message, cut to 160 characters; the name of the error where
    it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
