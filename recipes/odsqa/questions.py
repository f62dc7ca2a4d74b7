"""Join Mandarin corpora of questions (DRCD, CMRC 2018, XQuAD: SQuAD JSON) as train.json and
dev.json.

    python recipes/odsqa/questions.py OUT FILE [FILE ...] --test DRCD_dev.json

Every tenth article, in the order of a draw by seed, is dev. Passages that share 20 characters in a
row with a passage of --test, in whatever forms, are left out. DRCD's files share articles:
known.txt has the ids of the passages of --test that are of an article of train.
"""

import json
import random
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from speechssl.data.squad import Paragraph, read_squad
from speechssl.text import normalise

SHARED = 20  # characters in a row


def find_runs(paragraph: Paragraph) -> set[str]:
    """Find all runs of SHARED characters of a passage, in normal forms."""
    text = normalise(paragraph.context, "zh", digits=False)
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


parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
parser.add_argument("out", type=Path)
parser.add_argument("files", type=Path, nargs="+")
parser.add_argument("--test", type=Path, required=True, help="what no passage may share")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

test = read_squad(options.test)
test_runs: set[str] = set()
for paragraph in test:
    test_runs |= find_runs(paragraph)
paragraphs: list[Paragraph] = []
left_out = 0  # passages
for path in options.files:
    for paragraph in read_squad(path):
        if test_runs.isdisjoint(find_runs(paragraph)):
            paragraphs.append(paragraph)
        else:
            left_out += 1
titles = sorted({normalise(p.title, "zh", digits=False) for p in paragraphs})
random.Random(options.seed).shuffle(titles)
dev_titles = set(titles[::10])
splits: dict[str, list[Paragraph]] = {"train": [], "dev": []}
train_titles = set()
for paragraph in paragraphs:
    title = normalise(paragraph.title, "zh", digits=False)
    splits["dev" if title in dev_titles else "train"].append(paragraph)
    if title not in dev_titles:
        train_titles.add(title)
options.out.mkdir(parents=True, exist_ok=True)
for split, of_split in splits.items():
    write_split(options.out / f"{split}.json", of_split)
known = [p.id for p in test if normalise(p.title, "zh", digits=False) in train_titles]
(options.out / "known.txt").write_text("".join(f"{name}\n" for name in known))
print(f"left out: {left_out} passages with text of {options.test.name}")
print(f"of an article of train: {len(known)} of the {len(test)} passages of {options.test.name}")
