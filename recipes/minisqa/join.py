"""Long recordings out of short ones: a corpus in which N passages of the test set stand one after
another in one recording.

python recipes/minisqa/join.py CORPUS OUT N QUESTIONS
    keeps the first QUESTIONS answerable questions of every passage
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.data.records import Answer, Passage, Span, load_corpus, write_records

SPLIT = "test"


def moved(found: Answer | Span, seconds: float) -> Answer | Span:
    return replace(found, start=found.start + seconds, end=found.end + seconds)


def main(corpus: Path, out: Path, count: int, kept: int) -> None:
    data, long, questions = load_corpus(corpus, SPLIT), [], []
    short = list(data.passages.values())
    for first in range(0, len(short), count):
        name, samples, words = f"long-{first // count:03d}", np.zeros(0, np.float32), []
        for passage in short[first : first + count]:
            at = len(samples) / SAMPLE_RATE
            samples = np.concatenate([samples, read_audio(data.path(passage))])
            words += [moved(word, at) for word in passage.words]
            for question in [q for q in data.answerable if q.passage == passage.id][:kept]:
                answers = tuple(
                    replace(moved(answer, at), char_start=None) for answer in question.answers
                )
                questions.append(replace(question, passage=name, answers=answers))
        audio, text = (
            f"{SPLIT}/audio/{name}.flac",
            " ".join(p.text for p in short[first : first + count]),
        )
        write_flac(out / audio, samples)
        # many voices: intervals draw recordings
        long.append(
            Passage(
                name,
                audio,
                len(samples) / SAMPLE_RATE,
                text,
                "",
                short[first].language,
                tuple(words),
            )
        )
    for question in questions:
        shutil.copyfile(corpus / question.audio, out / question.audio)
    write_records(out / SPLIT / "passages.jsonl", long)
    write_records(out / SPLIT / "questions.jsonl", questions)
    write_json(
        out / "card.json",
        {"corpus": "minisqa-long", "synthetic": read_json(corpus / "card.json")["synthetic"]},
    )
    minutes = sum(p.seconds for p in long) / len(long) / 60
    print(
        f"{out}: {len(long)} recordings of {minutes:.1f} minutes on average, {len(questions)} "
        "questions"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
