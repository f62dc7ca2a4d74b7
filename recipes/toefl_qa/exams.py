"""Make a corpus of listening exams and stories out of DREAM (dialogues, three options) and MCTest
(stories, four options), for readers that go on to TOEFL-QA.

    python recipes/toefl_qa/exams.py /data/dream /data/mctest OUT

Splits are train and dev, of both; texts only. Neither licence allows to ship what is trained on
them: DREAM (arXiv 1902.00164) is for non-commercial research, MCTest (Richardson et al., EMNLP
2013) under the Microsoft Research licence.
"""

import json
from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.cli import run_program
from speechssl.data.records import Passage, Question, hash_data, write_records
from speechssl.errors import InputError

SPLITS = ("train", "dev")
LICENCE = (
    "DREAM: non-commercial research only; MCTest: Microsoft Research licence; nothing that was "
    "trained on them may be shipped"
)
Records = tuple[list[Passage], list[Question]]


def read_dream(path: Path) -> Records:
    """Read dialogues, a turn a line such as "M: ...", with their questions."""
    passages = []
    questions = []
    for turns, qas, dialogue in json.loads(path.read_text("utf-8")):
        passage = f"dream-{dialogue}"
        passages.append(Passage(passage, text="\n".join(turns)))
        for number, qa in enumerate(qas, 1):
            options = tuple(qa["choice"])
            correct = (options.index(qa["answer"]),)
            name, text = f"{passage}-{number}", qa["question"]
            questions.append(Question(name, passage, text=text, options=options, correct=correct))
    return passages, questions


def read_mctest(path: Path) -> Records:
    r"""Read stories from a table without a head: id, properties, story with "\newline" for a new
    line, then four times a question and its four options. The right letters are in the file's twin
    with the suffix .ans."""
    stories = path.read_text("utf-8").splitlines()
    answers = path.with_suffix(".ans").read_text("utf-8").splitlines()
    passages = []
    questions = []
    for story, letters in zip(stories, answers, strict=True):
        passage, _, text, *cells = story.split("\t")
        passages.append(Passage(passage, text=" ".join(text.replace("\\newline", " ").split())))
        for number, letter in enumerate(letters.split("\t")):
            cell, *choice = cells[5 * number : 5 * number + 5]
            _, _, text = cell.partition(": ")  # "one: " or "multiple: " sentences needed
            name, options = f"{passage}-{number + 1}", tuple(choice)
            correct = ("ABCD".index(letter),)
            questions.append(Question(name, passage, text=text, options=options, correct=correct))
    return passages, questions


def main(dream: Path, mctest: Path, out: Path) -> None:
    for split in SPLITS:
        passages: list[Passage] = []
        questions: list[Question] = []
        stories = sorted(mctest.glob(f"mc*.{split}.tsv"))
        if not stories:
            raise InputError(f"{mctest} has no mc*.{split}.tsv of MCTest")
        for records in (read_dream(dream / f"{split}.json"), *map(read_mctest, stories)):
            passages += records[0]
            questions += records[1]
        write_records(out / split / "passages.jsonl", passages)
        write_records(out / split / "questions.jsonl", questions)
        print(f"{out / split}: {len(passages)} passages, {len(questions)} questions")
    hashes = {split: hash_data(out, split) for split in SPLITS}
    card = {"corpus": "DREAM, MCTest", "licence": LICENCE, "manifests": hashes}
    write_json(out / "card.json", card)


if __name__ == "__main__":
    run_program(main)
