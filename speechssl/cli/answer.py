"""`speechssl answer`: one question."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.parser import add_verb

ANSWER = """ask a recorded passage a recorded question

Prints from when to when in the passage the answer is, and the cascade's words.

  speechssl answer --passage lecture.mp3 --question question.wav --clip answer.wav
"""


def add_answer(verbs: Any) -> None:
    verb = add_verb(verbs, "answer", _answer, ANSWER)
    verb.add_argument("--passage", type=Path, required=True, help="WAV, FLAC, MP3 or OGG; any rate, any length")
    verb.add_argument("--question", type=Path, required=True, help="recording of the question")
    verb.add_argument("--system", default="both", choices=("dual", "cascade", "both"), help="which system answers")
    verb.add_argument("--asr", default="ctc", help="engine of the cascade: ctc, pocketsphinx, or a Hugging Face model")
    verb.add_argument("--models", default="minisqa-en-robust", help="shipped set or model folder")
    verb.add_argument("--clip", type=Path, help="write the (first system's) answer as an audio file")


def _answer(o: argparse.Namespace) -> None:
    from speechssl.audio import check_clip, read_audio, write_clip
    from speechssl.systems import answer, describe

    if o.clip:
        check_clip(o.clip)
        o.clip.parent.mkdir(parents=True, exist_ok=True)
    passage = read_audio(o.passage)
    answers = answer(passage, read_audio(o.question), o.system, o.models, o.asr)
    for name, found in answers.items():
        words = f'  "{found.text}"' if found.text is not None else ""
        print(f"{name:>20}  {found.start:7.2f} to {found.end:7.2f} s  confidence {found.confidence:.2f}{words}")
    print(describe(o.models, o.asr))
    if o.clip:
        first = next(iter(answers.values()))
        write_clip(o.clip, passage, first.start, first.end)
        print(f"{o.clip}: the answer of {next(iter(answers))}")
