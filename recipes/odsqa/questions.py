"""Join Mandarin corpora of questions (DRCD, CMRC 2018, XQuAD: SQuAD JSON) as train.json and
dev.json.

    python recipes/odsqa/questions.py OUT FILE [FILE ...] --test DRCD_dev.json

Articles are shuffled; of every ten the first is dev, the others train. OUT/short has the same
without CMRC 2018, whose answers are three times as long as the others'. Passages that share 20
characters in a row with a passage of --test, in whatever forms, are left out. DRCD's files share
articles: known.txt has the ids of the passages of --test that are of an article of train, and
OUT/unseen/test.json, shuffled, those that are of no article of train or dev.
"""

import json
import random
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from functools import partial
from pathlib import Path

from speechssl.cli import run_program
from speechssl.data.squad import Paragraph, read_squad
from speechssl.text import normalise

SHARED = 20  # characters in a row
LONG_ANSWERS = "cmrc2018"  # begins the names of CMRC's files
fold_forms = partial(normalise, language="zh", digits=False)


def find_runs(paragraph: Paragraph) -> set[str]:
    """Find all runs of SHARED characters of a passage, in normal forms."""
    text = fold_forms(paragraph.context)
    return {text[i : i + SHARED] for i in range(len(text) - SHARED + 1)}


def write_split(path: Path, paragraphs: list[Paragraph]) -> None:
    """Write a split as SQuAD JSON, every passage with the title of its article."""
    data = []
    for paragraph in paragraphs:
        qas = []
        for qa in paragraph.qas:
            answers = [{"text": a.text, "answer_start": a.offset} for a in qa.answers]
            qas.append({"id": qa.id, "question": qa.question, "answers": answers})
        passage = {"context": paragraph.context, "qas": qas}
        data.append({"title": paragraph.title, "paragraphs": [passage]})
    path.write_text(json.dumps({"licence": "CC BY-SA 4.0", "data": data}, ensure_ascii=False))
    questions = sum(len(p.qas) for p in paragraphs)
    print(f"{path}: {len(paragraphs)} passages, {questions} questions")


def main(options: Namespace) -> None:
    test = read_squad(options.test)
    test_runs = set().union(*map(find_runs, test))
    paragraphs: list[Paragraph] = []
    short: set[Paragraph] = set()  # those whose answers are short
    for path in options.files:
        of_file = read_squad(path)
        paragraphs += of_file
        if not path.name.startswith(LONG_ANSWERS):
            short.update(of_file)
    allowed = [p for p in paragraphs if test_runs.isdisjoint(find_runs(p))]
    titles = sorted({fold_forms(p.title) for p in allowed})
    random.Random(options.seed).shuffle(titles)
    dev_titles = set(titles[::10])
    train_titles = set(titles) - dev_titles
    (options.out / "short").mkdir(parents=True, exist_ok=True)
    for split, titles_of_split in (("train", train_titles), ("dev", dev_titles)):
        of_split = [p for p in allowed if fold_forms(p.title) in titles_of_split]
        write_split(options.out / f"{split}.json", of_split)
        of_short = [p for p in of_split if p in short]
        write_split(options.out / "short" / f"{split}.json", of_short)
    known = [p.id for p in test if fold_forms(p.title) in train_titles]
    unseen = [p for p in test if fold_forms(p.title) not in set(titles)]
    random.Random(options.seed).shuffle(unseen)
    (options.out / "unseen").mkdir(exist_ok=True)
    write_split(options.out / "unseen/test.json", unseen)
    (options.out / "known.txt").write_text("".join(f"{name}\n" for name in known))
    left_out = len(paragraphs) - len(allowed)
    print(f"left out: {left_out} passages with text of {options.test.name}")
    print(
        f"of an article of train: {len(known)} of the {len(test)} passages of {options.test.name}"
    )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--test", type=Path, required=True, help="what no passage may share")
    parser.add_argument("--seed", type=int, default=0)
    run_program(main, parser)
