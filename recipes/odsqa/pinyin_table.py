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
LOST = "text − cascade-given"  # F1 lost by the errors of the recogniser
SYSTEMS = ("cascade-given", "text", LOST)
PAIRS = (("pinyin", "plain"), ("pinyin-errors", "plain-errors"), ("plain-errors", "plain"))


def read_scores(folder: Path, split: str, system: str) -> pd.DataFrame:
    """Read the scores of a reader, one row a question, F1 in a column for each of its seeds; an
    empty table for a reader that was not run."""
    if system == LOST:
        given, text = (read_scores(folder, split, name) for name in SYSTEMS[:2])
        seeds = [seed for seed in list_seeds(given) if seed in text]
        return given.assign(**(text[seeds] - given[seeds]))
    scores = pd.DataFrame()
    for path in sorted(folder.glob(f"*/{split}/scores/{system}/clean.parquet")):
        of_seed = pd.read_parquet(path).sort_values("id", ignore_index=True)
        if scores.empty:
            scores = of_seed
        if not scores["id"].equals(of_seed["id"]):
            raise ValueError(f"{folder}: seeds have answered different questions")
        scores[f"seed {path.parts[-5]}"] = of_seed["f1"]
    return scores


def list_seeds(scores: pd.DataFrame) -> list[str]:
    """List the columns with the F1 of a seed."""
    return [name for name in scores if name.startswith("seed ")]


def make_rows(exp: Path, split: str, system: str) -> list[tuple[str, ...]]:
    """Make the rows of one split, one for every part of it. Readers with errors are compared on the
    articles that their errors were not fitted on, and two readers by the seeds of both."""
    fitted = set((exp / "questions/fitted.txt").read_text().split())
    scores = {reader: read_scores(exp / "answers" / reader, split, system) for reader in READERS}
    anyone = next(of_reader for of_reader in scores.values() if not of_reader.empty)
    parts = select_parts(anyone, system, set())
    not_fitted = anyone[~anyone["passage"].isin(fitted)]
    if len(not_fitted):
        parts[NOT_FITTED] = not_fitted
    rows = []
    for label, part in parts.items():
        units = group_by_article(part)
        seeds = {}  # reader -> its seeds, where it may be shown
        for reader, of_reader in scores.items():
            if label == NOT_FITTED or not reader.endswith("errors"):
                seeds[reader] = list_seeds(of_reader)
        cells = []
        for reader in READERS:
            mean = None
            if seeds.get(reader):
                f1 = scores[reader].loc[part.index, seeds[reader]].mean(axis=1)
                mean = estimate_mean(f1, units).percent
            cells.append(format_interval(mean))
        for first, second in PAIRS:
            common = [seed for seed in seeds.get(first, []) if seed in seeds.get(second, [])]
            if not common:
                cells.append("–")
                continue
            of_first, of_second = (
                scores[reader].loc[part.index, common].mean(axis=1) for reader in (first, second)
            )
            gain = estimate_difference(of_first, of_second, units)
            cells.append(f"{format_interval(gain.interval.percent, '+')}, {gain.p_value:.3f}")
        rows.append((split, system, label, str(len(part)), *cells))
    return rows


def main(exp: Path) -> None:
    rows: list[tuple[str, ...]] = []
    splits = sorted({path.name for path in exp.glob("answers/*/*/*")})
    for split in splits:
        for system in SYSTEMS:
            rows += make_rows(exp, split, system)
    gains = (f"{first} − {second}, p" for first, second in PAIRS)
    columns = ("split", "read", "part", "questions", *READERS, *gains)
    seeds = [f"{reader} {len(list(exp.glob(f'answers/{reader}/*')))}" for reader in READERS]
    note = (
        f"F1 in percent, means over seeds ({', '.join(seeds)}); 95 % intervals draw articles; p is "
        "not corrected."
    )
    table = Table("Plain and pinyin on ODSQA's transcripts", columns, tuple(rows), note)
    write_json(exp / "table.json", table.values)
    print(table.markdown)


if __name__ == "__main__":
    run_program(main)
