"""One training set out of several: a corpus by different synthesisers, with a share of the
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
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_json, write_json
from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.data.prepare import run_parallel
from speechssl.data.records import Corpus, Passage, Question, data_hash, load_corpus, write_records

Job = tuple[Path, Path, str, Namespace]


@cache
def distortions(text: str, share: float, snr: tuple[float, float], to: Path) -> TrainingDistortions:
    return parse_distortions(text, probability=(share, share), snr=snr, cache=to)


def distortions_of(options: Namespace) -> TrainingDistortions:
    """Return the distortions. Noise is made once, beside OUT, for all processes."""
    beside = options.out.parent / "noise"
    return distortions(options.distort, options.distorted, tuple(options.snr_range), beside)


def copy(source: Path, target: Path, name: str, options: Namespace) -> None:
    if not target.is_file():
        samples, _ = distortions_of(options).apply(read_audio(source), name)
        write_flac(target, samples)


def article_of(passage: Passage) -> str:
    """ "12" of "flite-12_3", as `speechssl prepare squad` calls passages."""
    if found := re.search(r"(\d+)_\d+$", passage.id):
        return found[1]
    what = f"the passage {passage.id} is not called ARTICLE_PARAGRAPH"
    sys.exit(f"speechssl: {what}; leave out --articles")


def copies_of(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    return name, int(count)


def main(options: Namespace) -> None:
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

        def place(record: Any, called: str = called, data: Corpus = data, **of: str) -> Any:
            """Return the record in the corpus that is made; its audio is a job."""
            name = f"{called}-{record.id}"
            if not record.audio:
                return replace(record, id=name, **of)
            if not options.distorted:
                return replace(record, id=name, audio=str(data.path(record).resolve()), **of)
            audio = f"{options.split}/audio/{name}.flac"
            jobs.append((data.path(record), options.out / audio, name, options))
            return replace(record, id=name, audio=audio, **of)

        passages += [place(passage) for passage in data.passages.values()]
        questions += [place(q, passage=f"{called}-{q.passage}") for q in data.questions]
    if options.distorted:
        distortions_of(options)  # bad options end here
    run_parallel(copy, dict(enumerate(jobs)), os.cpu_count() or 1, "distorting", "recording")
    random.Random(0).shuffle(passages)
    if options.articles:
        articles = sorted({article_of(passage) for passage in passages}, key=int)
        random.Random(0).shuffle(articles)
        passages.sort(key=lambda passage: articles.index(article_of(passage)))
    out = options.out
    write_records(out / options.split / "passages.jsonl", passages)
    write_records(out / options.split / "questions.jsonl", questions)
    cards = [read_json(corpus / "card.json") for corpus in options.corpora]

    def join(entry: str, between: str) -> dict[str, str]:
        """Return what the cards say of it, each once; {} where none does."""
        said = between.join(dict.fromkeys(str(card[entry]) for card in cards if entry in card))
        return {entry: said} if said else {}

    made = join("corpus", " and ") | {"mixed_by": "recipes/units/mix.py", "of": cards}
    if options.distorted:
        made |= {"distort": options.distort, "distorted": options.distorted}
        made |= {"snr": options.snr_range}
    made |= join("synthetic", "; ")
    made |= {"licence": options.licence} if options.licence else join("licence", "; ")
    manifests = {options.split: data_hash(out, options.split)}
    write_json(out / "card.json", made | {"manifests": manifests})
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
    add("--copies", type=copies_of, nargs="*", default=(), metavar="NAME=N", help=COPIES)
    add("--snr-range", type=float, nargs=2, default=(0.0, 20.0), help="dB")
    main(parser.parse_args())
