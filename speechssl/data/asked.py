"""A passage and a question are read as they are given to `answer`: recordings, or a text. Nothing
here loads a model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from speechssl.audio import SAMPLE_RATE, as_recording, read_audio
from speechssl.data.files import SUFFIXES
from speechssl.errors import InputError

# question.m4a, but not 3.14; https://...; recordings/who
_FILE_NAME = re.compile(
    r"\S+\.(?!\d+$)[A-Za-z0-9]{2,4}|\w+://\S*|[^\s?\u3400-\u9fff]*[/\\][^\s?\u3400-\u9fff]*"
)
LONGEST_QUESTION = 60.0  # seconds: what is longer was probably meant as the passage


def read_recording(source: Path | str | np.ndarray) -> np.ndarray:
    """Return samples (N,) float32 at 16 kHz. Raises InputError for a file that is no audio, or
    silent."""
    if isinstance(source, str | Path):
        return read_audio(source)
    if not isinstance(source, np.ndarray):
        raise InputError(
            f"{source!r} is no recording; give the path of a file, or samples in an array"
        )
    # a copy: the encoder remembers the array that it had last, whatever is in it now
    return as_recording(source, SAMPLE_RATE, "the array given")


def read_question(source: Path | str | np.ndarray) -> np.ndarray | str:
    """Read a question as `QA.answer` takes it: a text as it is, a recording as samples.

    A string is a text where no file has that name, and it does not look like one: it does not end
    like a recording, nor is it one word with a suffix ("question.m4a") or a slash. Raises
    InputError as `read_recording` does, for a text without words, and for a recording longer than
    LONGEST_QUESTION.
    """
    if isinstance(source, str) and _is_text(source):
        if not any(map(str.isalnum, source)):
            raise InputError(f"the question {source!r} has no words; give a text, or a recording")
        return source
    samples = read_recording(source)
    seconds = len(samples) / SAMPLE_RATE
    if seconds > LONGEST_QUESTION:
        name = "the question" if isinstance(source, np.ndarray) else source
        raise InputError(
            f"{name} lasts {seconds:.0f} s, and a question at most {LONGEST_QUESTION:.0f} s; "
            "give the question, or the part of the recording that has it"
        )
    return samples


def _is_text(source: str) -> bool:
    """Tell a text from the name of a file, whether there is one or not."""
    if Path(source).suffix.lower() in SUFFIXES or _FILE_NAME.fullmatch(source):
        return False
    try:
        return not source or not Path(source).exists()  # Path("") is the folder one is in
    except OSError:  # too long for a name
        return True
