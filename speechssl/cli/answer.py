"""`speechssl answer` prints the answers to questions and writes them as audio; `speechssl bundle`
makes a folder of models."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from speechssl.audio import choose_container, read_question, read_recording, write_clip
from speechssl.cli.options import AnswerQuestions, Bundle
from speechssl.errors import InputError

if TYPE_CHECKING:
    from speechssl.pipelines import Detail

LISTENS = "can only listen; record the question"


def answer_questions(o: AnswerQuestions) -> dict[str, Any]:
    """Print the answers of every system to every question, write the clips that --clip asks for,
    and return the answers. Raises InputError as `QA` does, and for a clip that cannot be
    written."""
    clips = name_clips(o)
    passage = read_recording(o.passage)
    contents = [read_question(question) for question in o.question]  # samples or texts
    from speechssl.pipelines import CONFIDENCE, load_qa  # loads torch, which takes seconds

    qa = load_qa(o.models, o)
    details = qa.details(passage, contents)

    answers: list[dict[str, Any]] = []
    unanswered: list[dict[str, Any]] = []
    for question, content, by_system in zip(o.question, contents, details, strict=True):
        if len(o.question) > 1:
            print(question)
        for name in qa.about:
            if name in by_system:
                is_spoken = not isinstance(content, str)
                answer = print_answer(name, by_system[name], is_spoken)
                answers.append({"question": question} | answer)
            else:
                print(f"{name:>20}  {LISTENS}")
                unanswered.append({"question": question, "system": name, "why": LISTENS})
    print(CONFIDENCE, file=sys.stderr)
    for parts in dict.fromkeys(qa.about.values()):
        names = [name for name, parts_of_system in qa.about.items() if parts_of_system == parts]
        print(f"{', '.join(names)}: {parts}")
    for path, by_system in zip(clips, details, strict=False):  # without --clip there are none
        write_first_answer(path, passage, by_system)
    return {
        "passage": str(o.passage),
        "systems": qa.about,
        "answers": answers,
        "unanswered": unanswered,
    }


def name_clips(o: AnswerQuestions) -> Sequence[Path]:
    """List the files of --clip, one for every question. Raises InputError for a name that is not
    that of an audio file, and for one that would overwrite a recording."""
    if o.clip is None:
        return []
    choose_container(o.clip)  # raises InputError for a suffix that cannot be written
    count = len(o.question)
    clips = [o.clip]
    if count > 1:
        clips = [o.clip.with_stem(f"{o.clip.stem}-{i}") for i in range(1, count + 1)]
    recordings = {os.path.realpath(path) for path in (str(o.passage), *o.question)}
    for path in clips:
        if os.path.realpath(path) in recordings:
            raise InputError(f"--clip would overwrite the recording {path}; give another name")
    return clips


def print_answer(name: str, detail: Detail, is_spoken: bool) -> dict[str, Any]:
    """Print the answer of a system, and the transcript of a spoken question where the system
    recognises words; return both."""
    from speechssl.cascade.data import Transcript  # loads torch

    answer = detail.answer
    words = "" if answer.text is None else f'  "{answer.text}"'
    times = f"{answer.start:7.2f} to {answer.end:7.2f} s  confidence {answer.confidence:.2f}{words}"
    print(f"{name:>20}  {'no answer' if answer.text == '' else times}")
    transcript = None
    if is_spoken and isinstance(detail.question, Transcript):
        transcript = detail.question.text
        print(f'{"":>20}  the question, as recognised: "{transcript}"')
    values = {}
    for key, value in asdict(answer).items():
        is_nan = value != value
        values[key] = None if is_nan else value  # JSON has no NaN
    return {"system": name, **values, "question_transcript": transcript}


def write_first_answer(path: Path, passage: np.ndarray, by_system: Mapping[str, Detail]) -> None:
    """Write the answer of the first system that found one as audio. passage: (N,) at 16 kHz."""
    for name, detail in by_system.items():
        if detail.answer.text != "":
            write_clip(path, passage, detail.answer.start, detail.answer.end)
            print(f"{path}: the answer of {name}")
            return
    print(f"{path}: not written, there is no answer")


def bundle_parts(o: Bundle) -> dict[str, Any]:
    """Copy the parts to `o.out`, print the systems that they make up, and return the folder and its
    card."""
    from speechssl.systems import bundle  # loads torch
    from speechssl.units.codebook import load_codebook

    card = bundle(o.parts, o.out)
    systems = ", ".join(card["systems"]) or "no system yet"
    units = ""
    if o.parts.codebook is not None:
        units = f" and {load_codebook(o.out / 'units.safetensors').size} units"
    print(f"{o.out}: an encoder{units}; systems: {systems}")
    return {"out": str(o.out), "card": card}
