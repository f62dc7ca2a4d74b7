"""Make the table of pinyin.sh: F1 of every reader on ODSQA's transcripts and texts, and what pinyin
and simulated errors gain, in pairs, by the errors of a passage.

python recipes/odsqa/pinyin_table.py EXP
    reads EXP/questions/fitted.txt and EXP/answers/READER/SEED/SPLIT/scores; writes EXP/table.json
    and prints it
"""

from pathlib import Path

import pandas as pd
from text_table import group_by_article, select_parts

from speechssl.artifacts import write_json
from speechssl.cli import run_program
from speechssl.results import Table, format_interval
from speechssl.stats import estimate_difference, estimate_mean

READERS = ("plain", "pinyin", "plain-errors", "pinyin-errors")
NOT_FITTED = "articles not fitted on"
PAIRS = (("pinyin", "plain"), ("pinyin-errors", "plain-errors"), ("plain-errors", "plain"))


def read_mean_scores(folder: Path, split: str, system: str) -> pd.DataFrame | None:
    """Read the scores of a reader, one row a question, with the mean of F1 over its seeds; None for
    a reader that was not run."""
    paths = sorted(folder.glob(f"*/{split}/scores/{system}/clean.parquet"))
    if not paths:
        return None
    scores = [pd.read_parquet(path).sort_values("id", ignore_index=True) for path in paths]
    if any(not s["id"].equals(scores[0]["id"]) for s in scores):
        raise ValueError(f"{folder}: seeds have answered different questions")
    return scores[0].assign(f1=sum(s["f1"] for s in scores) / len(scores), seeds=len(scores))


def make_rows(exp: Path, split: str, system: str) -> list[tuple[str, ...]]:
    """Make the rows of one split, one for every part of it. Readers with errors are compared on the
    articles that their errors were not fitted on."""
    fitted = set((exp / "questions/fitted.txt").read_text().split())
    scores = {}
    for reader in READERS:
        of_reader = read_mean_scores(exp / "answers" / reader, split, system)
        if of_reader is not None:
            scores[reader] = of_reader
    anyone = next(iter(scores.values()))
    parts = select_parts(anyone, system, set())
    not_fitted = anyone[~anyone["passage"].isin(fitted)]
    if len(not_fitted):
        parts[NOT_FITTED] = not_fitted
    rows = []
    for label, part in parts.items():
        units = group_by_article(part)
        means, values = {}, {}
        for reader, of_reader in scores.items():
            if label == NOT_FITTED or not reader.endswith("errors"):
                values[reader] = of_reader.loc[part.index, "f1"]
                means[reader] = estimate_mean(values[reader], units).percent
        cells = [format_interval(means.get(reader)) for reader in READERS]
        for first, second in PAIRS:
            if first in values and second in values:
                gain = estimate_difference(values[first], values[second], units)
                text = format_interval(gain.interval.percent, "+")
                cells.append(f"{text}, {gain.p_value:.3f}")
            else:
                cells.append("–")
        rows.append((split, system, label, str(len(part)), *cells))
    return rows


def main(exp: Path) -> None:
    rows: list[tuple[str, ...]] = []
    splits = sorted({path.name for path in exp.glob("answers/*/*/*")})
    for split in splits:
        for system in ("cascade-given", "text"):
            rows += make_rows(exp, split, system)
    gains = (f"{first} − {second}, p" for first, second in PAIRS)
    columns = ("split", "read", "part", "questions", *READERS, *gains)
    seeds = len(list(exp.glob("answers/plain/*")))
    note = (
        f"F1 in percent, mean of {seeds} seeds; 95 % intervals draw articles; p is not corrected."
    )
    table = Table("Plain and pinyin on ODSQA's transcripts", columns, tuple(rows), note)
    write_json(exp / "table.json", table.values)
    print(table.markdown)


if __name__ == "__main__":
    run_program(main)
