"""Join corpora into one training set: a corpus by different synthesisers, with a share of the
recordings distorted.

    python recipes/units/mix.py OUT CORPUS... --distort m+g+r+v --distorted 0.5 \\
      --snr-range 0 20 --copies kokoro=3
    python recipes/units/mix.py OUT CORPUS... --distorted 0 --articles
        recordings, where there are any, stay where they are; whole articles

Readers learn from it what the units of one word have in common, whoever says it and in what noise.
Passages are in random order, so that the first N are of all corpora, and called by the name of
their corpus. Recordings of equal settings are not made again.
"""

import os
import random
import re
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.cli import run_program
from speechssl.data.prepare import run_parallel
from speechssl.data.records import Corpus, Passage, Question, hash_data, load_corpus, write_records
from speechssl.errors import InputError

Job = tuple[Path, Path, str, Namespace]  # of `distort_recording`


@cache
def open_distortions(
    text: str, share: float, snr: tuple[float, float], folder: Path
) -> TrainingDistortions:
    """Open the distortions, once in every process. folder: for noise, which is made once for all
    processes."""
    return parse_distortions(text, probability=(share, share), snr=snr, cache=folder)


def get_distortions(options: Namespace) -> TrainingDistortions:
    """Return the distortions of the options; their noise lies beside OUT."""
    folder = options.out.parent / "noise"
    return open_distortions(options.distort, options.distorted, tuple(options.snr_range), folder)


def hash_distortions(options: Namespace) -> str:
    """Return a name of the options that decide how recordings are distorted."""
    return hash_json([options.distort, options.distorted, list(options.snr_range)])[:8]


def distort_recording(source: Path, target: Path, name: str, options: Namespace) -> None:
    """Write the distorted recording, unless it is there. name: decides the distortion."""
    if not target.is_file():
        samples, _ = get_distortions(options).apply(read_audio(source), name)
        write_flac(target, samples)


def parse_article(passage: Passage) -> str:
    """Return "12" of "flite-12_3": `speechssl prepare squad` calls passages ARTICLE_PARAGRAPH."""
    match = re.search(r"(\d+)_\d+$", passage.id)
    if match is None:
        raise InputError(
            f"the passage {passage.id} is not called ARTICLE_PARAGRAPH; leave out --articles"
        )
    return match[1]


def parse_copies(text: str) -> tuple[str, int]:
    """Parse "kokoro=3"."""
    name, _, count = text.partition("=")
    return name, int(count)


def name_readings(options: Namespace) -> dict[str, Path]:
    """Return name -> folder of every reading of a corpus: "kokoro", and with --copies kokoro=3
    "kokoro-2" and "kokoro-3"."""
    copies = dict(options.copies)
    readings: dict[str, Path] = {}
    for corpus in options.corpora:
        for number in range(1, copies.pop(corpus.name, 1) + 1):
            name = corpus.name if number == 1 else f"{corpus.name}-{number}"
            if name in readings:
                raise InputError(f"two corpora are called {name}; rename the folder {corpus}")
            readings[name] = corpus
    if copies:
        raise InputError(f"no corpus is called {', '.join(copies)}; --copies names their folders")
    return readings


def place_record(
    record: Passage | Question, reading: str, data: Corpus, options: Namespace
) -> Passage | Question:
    """Return the record with its name in the new corpus, and with the path of its recording: below
    OUT where it is going to be distorted, else where it lies."""
    name = f"{reading}-{record.id}"
    audio = record.audio
    if audio and options.distorted:
        audio = f"{options.split}/audio-{hash_distortions(options)}/{name}.flac"
    elif audio:
        audio = str(data.path(record).resolve())
    return replace(record, id=name, audio=audio)


def join_cards(cards: Sequence[dict[str, Any]], entry: str, separator: str) -> dict[str, str]:
    """Return what the cards say of an entry, each once; {} where none does."""
    texts = dict.fromkeys(str(card[entry]) for card in cards if entry in card)
    return {entry: separator.join(texts)} if texts else {}


def main(options: Namespace) -> None:
    passages: list[Passage] = []
    questions: list[Question] = []
    jobs: list[Job] = []
    for reading, corpus in name_readings(options).items():
        data = load_corpus(corpus, options.split)
        for record in (*data.passages.values(), *data.questions):
            placed = place_record(record, reading, data, options)
            if isinstance(placed, Passage):
                passages.append(placed)
            else:
                questions.append(replace(placed, passage=f"{reading}-{placed.passage}"))
            if record.audio and options.distorted:
                jobs.append((data.path(record), options.out / placed.audio, placed.id, options))
    if options.distorted:
        get_distortions(options)  # refuses bad options before anything is written
    numbered = dict(enumerate(jobs))
    run_parallel(distort_recording, numbered, os.cpu_count() or 1, "distorting", "recording")
    random.Random(0).shuffle(passages)
    if options.articles:
        articles = sorted({parse_article(passage) for passage in passages}, key=int)
        random.Random(0).shuffle(articles)
        passages.sort(key=lambda passage: articles.index(parse_article(passage)))
    out = options.out
    write_records(out / options.split / "passages.jsonl", passages)
    write_records(out / options.split / "questions.jsonl", questions)
    cards = [read_json(corpus / "card.json") for corpus in options.corpora]
    card = join_cards(cards, "corpus", " and ")
    card |= {"mixed_by": "recipes/units/mix.py", "of": cards}
    if options.distorted:
        card |= {"distort": options.distort, "distorted": options.distorted}
        card |= {"snr": options.snr_range}
    card |= join_cards(cards, "synthetic", "; ")
    if options.licence:
        card["licence"] = options.licence
    else:
        card |= join_cards(cards, "licence", "; ")
    card["manifests"] = {options.split: hash_data(out, options.split)}
    write_json(out / "card.json", card)
    print(f"{out}: {len(passages)} passages, {len(questions)} questions of {len(cards)} corpora")


ARTICLES = (
    "article by article, each with all its readings, so that the first N passages can be whole "
    "articles"
)
LICENCE = "of the texts, for the card, and for those of what is trained on it"
SHARE = "share of the recordings that are distorted; 0: none is copied"
COPIES = "read a corpus N times, each time with other distortions"

if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", type=Path)
    add("corpora", type=Path, nargs="+")
    add("--split", default="train", help="split of the corpora")
    add("--articles", action="store_true", help=ARTICLES)
    add("--licence", default="", help=LICENCE)
    add("--distort", default="m+g+r+v", help="kinds of distortions, as of `speechssl pretrain`")
    add("--distorted", type=float, default=0.5, help=SHARE)
    add("--copies", type=parse_copies, nargs="*", default=(), metavar="NAME=N", help=COPIES)
    add("--snr-range", type=float, nargs=2, default=(0.0, 20.0), help="dB")
    run_program(main, parser)
