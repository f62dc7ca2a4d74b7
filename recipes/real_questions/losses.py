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
from speechssl.results import Table, interval_text
from speechssl.stats import paired_difference
from speechssl.text import spell_letters


def find_written(reference: list[str], recognised: list[str], first: int, last: int) -> list[str]:
    """Return the recognised words in the place of the words first..last of the reference; none
    where all of them were missed."""
    before, owners = spell(reference)
    after, written = spell(recognised)
    found = [
        written[code.dest_start + place - code.src_start]
        for code in Levenshtein.opcodes(before, after)
        if code.tag in ("equal", "replace")
        for place in range(code.src_start, code.src_end)
        if first <= owners[place] <= last
    ]
    return recognised[found[0] : found[-1] + 1] if found else []


def spell(words: list[str]) -> tuple[list[str], list[int]]:
    """Spell words in letters, which may make several of one; return these, and whose each is."""
    spelt = [spell_letters(word).split() for word in words]
    owners = [number for number, several in enumerate(spelt) for _ in several]
    return [letters for several in spelt for letters in several], owners


def row(name: str, condition: str, corpus: Corpus, known: dict, cascade: dict) -> tuple[str, ...]:
    """Make a row of the table. known, cascade: predictions of `text` and of a cascade."""
    scores: list[tuple[float, ...]] = []  # of the text, the same words as written, what was read
    for question in corpus.answerable:
        answer, passage = known["answers"][question.id], corpus.passages[question.passage]
        middles = [(w.start + w.end) / 2 for w in passage.words]
        inside = [i for i, at in enumerate(middles) if answer["start"] <= at < answer["end"]]
        words, gold = [w.text for w in passage.words], [a.text for a in question.answers]
        heard = cascade["transcripts"].get(passage.id, "").split()
        spelling = find_written(words, heard, inside[0], inside[-1]) if inside else []
        read = cascade["answers"].get(question.id, {}).get("text", "")
        texts = (answer["text"], " ".join(spelling), read)
        scores.append(tuple(100 * token_f1(text, gold, corpus.language) for text in texts))
    asked = corpus.answerable
    units = passage_units(corpus, [q.passage for q in asked], [q.id for q in asked])
    written, respelt, read = map(list, zip(*scores, strict=True))
    means = (f"{sum(some) / len(some):.1f}" for some in (written, respelt, read))
    pairs = ((written, respelt), (respelt, read))
    losses = (paired_difference(after, before, units) for before, after in pairs)
    return name, condition, *means, *(interval_text(loss.interval, "+") for loss in losses)


def main(results: Path, corpus: Path) -> None:
    data = load_corpus(corpus, "test")
    known = read_predictions(results / "predictions/text/clean.parquet")
    if not any(p.words for p in data.passages.values()):
        print(f"left out: where cascades lose, since the words of {corpus} have no times")
        return
    rows = []
    for path in sorted(results.glob("predictions/cascade-*/*.parquet")):
        rows.append(row(path.parent.name, path.stem, data, known, read_predictions(path)))
    scores = ("F1 of text", "the same words, recognised", "F1")
    columns = ("system", "condition", *scores, "lost by spelling", "lost in reading")
    note = "Of passages and questions both recognised."
    print(Table("Where cascades lose", columns, tuple(rows), note).markdown)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
