"""One training set out of several: a corpus by different synthesisers, with a share of the
recordings distorted.

    python recipes/units/mix.py OUT CORPUS... --distort m+g+r+v --distorted 0.5 \\
      --snr-range 0 20 --copies kokoro=3
    python recipes/units/mix.py OUT CORPUS... --distorted 0 --articles
        recordings stay where they are; whole articles

Readers learn from it what the units of one word have in common, whoever says it and in what noise.
Passages are in random order, so that the first N are of all corpora, and called by the name of
their corpus. Recordings of equal settings are not made again.
"""

import argparse
import os
import random
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from speechssl.artifacts import read_json, write_json
from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.data.prepare import run_parallel
from speechssl.data.records import Corpus, Passage, Question, data_hash, load_corpus, write_records

Job = tuple[Path, Path, str, argparse.Namespace]


@cache
def distortions(
    text: str, share: float, low: float, high: float, cache: Path
) -> TrainingDistortions:
    return parse_distortions(text, probability=(share, share), snr=(low, high), cache=cache)


def distortions_of(options: argparse.Namespace) -> TrainingDistortions:
    """Return the distortions. Noise is made once, beside OUT, for all processes."""
    return distortions(
        options.distort, options.distorted, *options.snr_range, options.out.parent / "noise"
    )


def copy(source: Path, target: Path, name: str, options: argparse.Namespace) -> None:
    if not target.is_file():
        samples, _ = distortions_of(options).apply(read_audio(source), name)
        write_flac(target, samples)


def article_of(passage: Passage) -> str:
    """ "12" of "flite-12_3", as `speechssl prepare squad` calls passages."""
    found = re.search(r"(\d+)_\d+$", passage.id)
    if not found:
        sys.exit(
            f"speechssl: the passage {passage.id} is not called ARTICLE_PARAGRAPH; leave "
            "out --articles"
        )
    return found[1]


def copies_of(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    return name, int(count)


def main(options: argparse.Namespace) -> None:
    passages: list[Passage] = []
    questions: list[Question] = []
    jobs: list[Job] = []
    copies = dict(options.copies)
    corpora = [
        (corpus, corpus.name + (f"-{number}" if number > 1 else ""))
        for corpus in options.corpora
        for number in range(1, copies.get(corpus.name, 1) + 1)
    ]
    for corpus, called in corpora:
        if [name for _, name in corpora].count(called) > 1:
            sys.exit(f"speechssl: two corpora are called {called}; rename the folder {corpus}")
        data = load_corpus(corpus, options.split)

        def place(
            record: Passage | Question, called: str = called, data: Corpus = data
        ) -> tuple[str, str]:
            name = f"{called}-{record.id}"
            if not options.distorted:
                return name, str(data.path(record).resolve())
            audio = f"{options.split}/audio/{name}.flac"
            jobs.append((data.path(record), options.out / audio, name, options))
            return name, audio

        for passage in data.passages.values():
            name, audio = place(passage)
            passages.append(replace(passage, id=name, audio=audio))
        for question in data.questions:
            name, audio = place(question)
            questions.append(
                replace(question, id=name, audio=audio, passage=f"{called}-{question.passage}")
            )
    if options.distorted:
        distortions_of(options)  # bad options end here
    run_parallel(copy, dict(enumerate(jobs)), os.cpu_count() or 1, "distorting", "recording")
    random.Random(0).shuffle(passages)
    if options.articles:
        articles = sorted({article_of(passage) for passage in passages}, key=int)
        random.Random(0).shuffle(articles)
        passages.sort(key=lambda passage: articles.index(article_of(passage)))
    write_records(options.out / options.split / "passages.jsonl", passages)
    write_records(options.out / options.split / "questions.jsonl", questions)
    cards = [read_json(corpus / "card.json") for corpus in options.corpora]
    distorted = (
        {"distort": options.distort, "distorted": options.distorted, "snr": options.snr_range}
        if options.distorted
        else {}
    )
    names = dict.fromkeys(card["corpus"] for card in cards if "corpus" in card)
    made = {"corpus": " and ".join(names)} if names else {}
    made |= {"mixed_by": "recipes/units/mix.py", "of": cards, **distorted}
    made["synthetic"] = "; ".join(dict.fromkeys(str(c["synthetic"]) for c in cards))
    if licence := options.licence or "; ".join(
        dict.fromkeys(str(c["licence"]) for c in cards if "licence" in c)
    ):
        made["licence"] = licence
    write_json(
        options.out / "card.json",
        made | {"manifests": {options.split: data_hash(options.out, options.split)}},
    )
    print(
        f"{options.out}: {len(passages)} passages, {len(questions)} questions of {len(cards)} "
        "corpora"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--split", default="train", help="split of the corpora")
    parser.add_argument(
        "--articles",
        action="store_true",
        help=(
            "article by article, each with all its readings, so that the first N passages can "
            "be whole articles"
        ),
    )
    parser.add_argument(
        "--licence",
        default="",
        help=("of the texts, for the card, and for those of what is trained on it"),
    )
    parser.add_argument(
        "--distort", default="m+g+r+v", help=("kinds of distortions, as of `speechssl pretrain`")
    )
    parser.add_argument(
        "--distorted",
        type=float,
        default=0.5,
        help=("share of the recordings that are distorted; 0: none is copied"),
    )
    parser.add_argument(
        "--copies",
        type=copies_of,
        nargs="*",
        default=(),
        metavar="NAME=N",
        help="read a corpus N times, each time with other distortions",
    )
    parser.add_argument("--snr-range", type=float, nargs=2, default=(0.0, 20.0), help="dB")
    main(parser.parse_args())
