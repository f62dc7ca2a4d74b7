"""Divide what a cascade loses against true words into a loss of spelling and a loss of reading.

    python recipes/real_questions/losses.py RESULTS CORPUS

RESULTS is the folder of `evaluate qa` with the system `text` and cascades, CORPUS its corpus, whose
words have times. Three answers to a question are scored by F1 against the gold answers:

1. the answer of `text`, which reads the true words;
2. the same words as the recogniser wrote them (the passage aligned word by word, Levenshtein):
   the answer of a reader that recognition errors do not lead astray;
3. the answer of the cascade.

From 1 to 2 F1 is lost by spelling, from 2 to 3 in reading. The table that is printed has means over
questions in percent, and 95 % intervals of the differences, whose bootstrap draws the same units as
that of `evaluate qa`.
"""

from pathlib import Path
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from speechssl.cli import run_program
from speechssl.data.records import Corpus, choose_groups, load_corpus
from speechssl.eval.predict import read_predictions
from speechssl.metrics import token_f1
from speechssl.results import Table, format_interval
from speechssl.stats import estimate_difference
from speechssl.text import spell_letters

COLUMNS = (
    "system",
    "condition",
    "F1 of text",
    "the same words, recognised",
    "F1",
    "lost by spelling",
    "lost in reading",
)


class Spelling(NamedTuple):
    """A spelling has the tokens of words; `spell_letters` may make several of one word.

    owners: for every token the number of its word.
    """

    tokens: list[str]
    owners: list[int]


def spell(words: list[str]) -> Spelling:
    """Spell words one by one."""
    spelling = Spelling([], [])
    for number, word in enumerate(words):
        tokens = spell_letters(word).split()
        spelling.tokens.extend(tokens)
        spelling.owners.extend([number] * len(tokens))
    return spelling


def find_recognised(
    reference: list[str], recognised: list[str], first: int, last: int
) -> list[str]:
    """Return the recognised words that are aligned with the words first..last of the reference;
    none where the recogniser missed all of them."""
    before, after = spell(reference), spell(recognised)
    aligned = []  # numbers of recognised words
    for code in Levenshtein.opcodes(before.tokens, after.tokens):
        if code.tag not in ("equal", "replace"):
            continue
        shift = code.dest_start - code.src_start
        for token in range(code.src_start, code.src_end):
            if first <= before.owners[token] <= last:
                aligned.append(after.owners[token + shift])
    return recognised[aligned[0] : aligned[-1] + 1] if aligned else []


def make_row(
    system: str, condition: str, corpus: Corpus, text: dict, cascade: dict
) -> tuple[str, ...]:
    """Make a row of the table. text, cascade: predictions of `text` and of a cascade. What is lost
    is the later score minus the earlier, and so negative."""
    true_scores, respelt_scores, cascade_scores = [], [], []
    for question in corpus.answerable:
        passage = corpus.passages[question.passage]
        answer = text["answers"][question.id]
        inside = []  # numbers of the words that the answer of `text` spans
        for number, word in enumerate(passage.words):
            if answer["start"] <= (word.start + word.end) / 2 < answer["end"]:
                inside.append(number)
        recognised = cascade["transcripts"].get(passage.id, "").split()
        respelt = []
        if inside:
            words = [word.text for word in passage.words]
            respelt = find_recognised(words, recognised, inside[0], inside[-1])
        gold = [gold_answer.text for gold_answer in question.answers]
        cascade_answer = cascade["answers"].get(question.id, {}).get("text", "")
        true_scores.append(100 * token_f1(answer["text"], gold, corpus.language))
        respelt_scores.append(100 * token_f1(" ".join(respelt), gold, corpus.language))
        cascade_scores.append(100 * token_f1(cascade_answer, gold, corpus.language))
    passages = [question.passage for question in corpus.answerable]
    units = choose_groups(corpus, passages, [question.id for question in corpus.answerable])
    spelling_loss = estimate_difference(respelt_scores, true_scores, units)
    reading_loss = estimate_difference(cascade_scores, respelt_scores, units)
    means = [sum(s) / len(s) for s in (true_scores, respelt_scores, cascade_scores)]
    losses = [format_interval(loss.interval, "+") for loss in (spelling_loss, reading_loss)]
    return system, condition, *(f"{mean:.1f}" for mean in means), *losses


def main(results: Path, corpus: Path) -> None:
    data = load_corpus(corpus, "test")
    text = read_predictions(results / "predictions/text/clean.parquet")
    if not any(passage.words for passage in data.passages.values()):
        print(f"left out: where cascades lose, since the words of {corpus} have no times")
        return
    rows = []
    for path in sorted(results.glob("predictions/cascade-*/*.parquet")):  # SYSTEM/CONDITION
        rows.append(make_row(path.parent.name, path.stem, data, text, read_predictions(path)))
    note = "Cascades recognise passages and questions; `text` reads both as they are written."
    print(Table("Where cascades lose", COLUMNS, tuple(rows), note).markdown)


if __name__ == "__main__":
    run_program(main)
