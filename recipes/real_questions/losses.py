"""What a cascade loses by the spelling of answers, and what in reading: python
recipes/real_questions/losses.py RESULTS CORPUS

RESULTS is the folder of `evaluate qa` with the system `text` and cascades, CORPUS its corpus, whose
words have times. `text` answers from the correct words. The same words as the recogniser wrote them
(the passage aligned word by word, Levenshtein) are the answer of a reader that errors do not lead
astray: what F1 falls to is lost by spelling. What the cascade loses beyond that is lost in reading.
Percent, means over questions; 95 % intervals of the differences draw what those of `evaluate qa`
do. Prints a table.
"""

import sys
from pathlib import Path

from rapidfuzz.distance import Levenshtein

from speechssl.data.records import Corpus, load_corpus, passage_units
from speechssl.eval.predict import read_predictions
from speechssl.metrics import token_f1
from speechssl.results import Table
from speechssl.stats import Interval, paired_difference
from speechssl.text import spell_letters


def find_written(reference: list[str], recognised: list[str], first: int, last: int) -> list[str]:
    """Return the recognised words in the place of the words first..last of the reference; none
    where all of them were missed."""
    (before, owners), (after, written) = (
        zip(
            *(
                (letters, i)
                for i, word in enumerate(words)
                for letters in spell_letters(word).split()
            ),
            strict=True,
        )
        if words
        else ((), ())
        for words in (reference, recognised)
    )
    found = [
        written[code.dest_start + place - code.src_start]
        for code in Levenshtein.opcodes(before, after)
        if code.tag in ("equal", "replace")
        for place in range(code.src_start, code.src_end)
        if first <= owners[place] <= last
    ]
    return recognised[found[0] : found[-1] + 1] if found else []


def shown(loss: Interval) -> str:
    return f"{loss.value:+.1f}" + (
        (f" [{loss.low:+.1f}, {loss.high:+.1f}]") if loss.estimated else ""
    )


def row(name: str, condition: str, corpus: Corpus, known: dict, cascade: dict) -> tuple[str, ...]:
    """Make a row of the table. known, cascade: predictions of `text` and of a cascade."""
    written, respelt, read, passages = [], [], [], []
    for question in corpus.answerable:
        answer, passage = known["answers"][question.id], corpus.passages[question.passage]
        inside = [
            i
            for i, w in enumerate(passage.words)
            if answer["start"] <= (w.start + w.end) / 2 < answer["end"]
        ]
        words, gold = [w.text for w in passage.words], [a.text for a in question.answers]
        spelling = (
            find_written(
                words, cascade["transcripts"].get(passage.id, "").split(), inside[0], inside[-1]
            )
            if inside
            else []
        )
        texts = (
            answer["text"],
            " ".join(spelling),
            cascade["answers"].get(question.id, {}).get("text", ""),
        )
        for scores, text in zip((written, respelt, read), texts, strict=True):
            scores.append(100 * token_f1(text, gold, corpus.language))
        passages.append(passage.id)
    units = passage_units(corpus, passages, [question.id for question in corpus.answerable])
    means = (f"{sum(scores) / len(scores):.1f}" for scores in (written, respelt, read))
    losses = (
        paired_difference(after, before, units)
        for before, after in ((written, respelt), (respelt, read))
    )
    return name, condition, *means, *(shown(i) for i in losses)


def main(results: Path, corpus: Path) -> None:
    data = load_corpus(corpus, "test")
    known = read_predictions(results / "predictions/text/clean.parquet")
    if not any(p.words for p in data.passages.values()):
        print(f"left out: where cascades lose, since the words of {corpus} have no times")
        return
    rows = [
        row(path.parent.name, path.stem, data, known, read_predictions(path))
        for path in sorted(results.glob("predictions/cascade-*/*.parquet"))
    ]
    columns = (
        "system",
        "condition",
        "F1 of text",
        "the same words, recognised",
        "F1",
        "lost by spelling",
        "lost in reading",
    )
    print(
        Table(
            "Where cascades lose",
            columns,
            tuple(rows),
            "Of passages and questions both recognised.",
        ).markdown
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
