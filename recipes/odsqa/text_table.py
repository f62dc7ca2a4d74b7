"""Make the table of text.sh: EM, F1 and CER of each reader on DRCD as text and on ODSQA's
transcripts, of all articles, of those that training does not know, and by the errors of a passage.

python recipes/odsqa/text_table.py EXP
    reads EXP/questions/known.txt and EXP/answers/READER/SPLIT/scores; writes EXP/table.json and
    prints it
"""

from itertools import pairwise
from pathlib import Path

import pandas as pd

from speechssl.artifacts import write_json
from speechssl.cli import run_program
from speechssl.results import Table, format_interval
from speechssl.stats import BootstrapUnits, Interval, estimate_mean, estimate_ratio

MANDARIN = ("all", "last")  # readers that learned from Mandarin questions
BOUNDS = (0.0, 0.1, 0.2, 0.3, 2.0)  # CER of a passage
# DRCD's development set as text, EM / F1 (arXiv 1909.09587)
PUBLISHED = "Chinese BERT 82.0 / 89.1, QANet 66.1 / 78.1, mBERT from English questions 63.3 / 78.8"


def group_by_article(scores: pd.DataFrame) -> BootstrapUnits:
    """Return what the bootstrap draws: articles, since DRCD calls passages ARTICLE-PARAGRAPH; the
    passages of dev."""
    articles = [(name.rpartition("-")[0] or name,) for name in scores["passage"]]
    return BootstrapUnits("article", tuple(articles))


def measure(scores: pd.DataFrame, system: str) -> list[Interval | None]:
    """Return EM, F1 and CER, in percent. CER counts every passage once; the system `text`, which
    reads what was spoken, has none."""
    units = group_by_article(scores)
    em, f1 = (estimate_mean(scores[metric], units).percent for metric in ("em", "f1"))
    if system == "text":
        return [em, f1, None]
    passages = scores.drop_duplicates("passage")
    errors, characters = passages["passage_errors"], passages["passage_words"]
    return [em, f1, estimate_ratio(errors, characters, group_by_article(passages)).percent]


def select_parts(scores: pd.DataFrame, system: str, known: set[str]) -> dict[str, pd.DataFrame]:
    """Select the scores of all articles, of those not in training, and of passages by their CER.
    known: ids of the passages of an article of training."""
    parts = {"all": scores}
    is_known = scores["passage"].isin(known)
    if is_known.any():
        parts["articles not in training"] = scores[~is_known]
    rate = scores["passage_errors"] / scores["passage_words"]
    if system != "text":
        for low, high in pairwise(BOUNDS):
            label = f"CER from {100 * low:.0f}, below {100 * high:.0f}"
            parts[label] = scores[(rate >= low) & (rate < high)]
    return {label: part for label, part in parts.items() if len(part)}


def main(exp: Path) -> None:
    known = set((exp / "questions/known.txt").read_text().split())
    rows: list[tuple[str, ...]] = []
    for path in sorted(exp.glob("answers/*/*/scores/*/clean.parquet")):
        reader, split, _, name = path.parts[-5:-1]
        system = name.partition("~")[0]  # without the name of a shift
        known_to_reader = known if reader in MANDARIN else set()
        for label, scores in select_parts(pd.read_parquet(path), system, known_to_reader).items():
            cells = map(format_interval, measure(scores, system))
            rows.append((reader, split, label, str(len(scores)), *cells))
    columns = ("reader", "read", "part", "questions", "EM", "F1", "CER")
    note = (
        f"Percent; 95 % intervals draw articles (dev: passages). Published, as text: {PUBLISHED}."
    )
    table = Table("Text QA on real Mandarin questions", columns, tuple(rows), note)
    write_json(exp / "table.json", table.values)
    print(table.markdown)


if __name__ == "__main__":
    run_program(main)
