"""What can go wrong in a way the user can mend: one sentence that names the file and the remedy (exit code 2)."""

from __future__ import annotations


class InputError(Exception):
    """Bad input. The message is one sentence that names the file or the option and what to do about it."""


class MissingExtra(InputError):
    """An optional dependency is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f'{purpose} needs an optional package: pip install "speechssl[{extra}]"')
