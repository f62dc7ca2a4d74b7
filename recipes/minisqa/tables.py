"""Make the tables of the recipe: print them for RESULTS.md, and write those of the held-out test,
of unit quality and of the five assignments for the page of `speechssl report`.

python recipes/minisqa/tables.py EXP      reads EXP/quality/*.json, EXP/results.jsonl and
                                          EXP/held-out/results.jsonl, writes EXP/tables/*.json
"""

from pathlib import Path

from speechssl.artifacts import read_json, write_json
from speechssl.cli import run_program
from speechssl.results import Table, describe_rows, format_interval, name_condition, read_rows

UNITS = {  # file in EXP/quality -> row of the table
    "phones": "phones of the synthesiser",
    "mfcc": "MFCC",
    "iteration-1": "HuBERT, iteration 1",
    "shipped": "HuBERT, iteration 2 (shipped)",
}
# reader -> row of the table: how rows of the text encoder's embedding table were assigned to units.
# dual-1 and dual-1-scratch have the settings of DUAL's first stage, the others are shorter
ASSIGNMENTS = {
    "dual-1": "most frequent",
    "dual-1-scratch": "from scratch",
    "dual-most-frequent": "most frequent",
    "dual-least-frequent": "least frequent",
    "dual-random": "random",
    "dual-re-init": "re-initialised embeddings",
    "dual-scratch": "from scratch",
}
PUBLISHED = {  # FF1 / AOS on the dev set of NMSQA, arXiv 2203.04911
    "dual-most-frequent": "54.2 / 48.5",
    "dual-least-frequent": "46.9 / 41.7",
    "dual-random": "51.7 / 46.2",
    "dual-re-init": "8.9 / 7.2",
    "dual-scratch": "6.1 / 4.9",
    "dual-1": "54.2 / 48.5",
    "dual-1-scratch": "6.1 / 4.9",
}
COLUMNS = {  # column of the table of units -> entry of `units evaluate` and its decimals
    "same-text distance": ("same_text_distance", 3),
    "AUC": ("same_text_auc", 3),
    "phone purity": ("phone_purity", 3),
    "cluster purity": ("cluster_purity", 3),
    "PNMI": ("pnmi", 3),
    "oracle FF1": ("oracle_ff1", 3),
    "units a second": ("units_a_second", 1),
}


def make_quality_table(exp: Path) -> Table:
    """Make the table of unit quality: a row for each of UNITS that was measured."""
    rows = []
    for name, label in UNITS.items():
        path = exp / "quality" / f"{name}.json"
        if path.is_file():
            measures = read_json(path)
            cells = [measures["K"]]
            for entry, decimals in COLUMNS.values():
                cells.append(f"{measures[entry]:.{decimals}f}" if entry in measures else "–")
            rows.append((label, *cells))
    note = (
        "On the voices of the test set; the distance is between the units of one question spoken "
        "by two of them; the oracle labels the answers with units and decodes the labels."
    )
    return Table("Quality of the units", ("units", "K", *COLUMNS), tuple(rows), note)


def make_assignment_table(exp: Path) -> Table:
    """Make the table of assignments: a row for each reader of ASSIGNMENTS that was evaluated, with
    its scores on clean speech and the published ones."""
    results = read_rows(exp / "results.jsonl")
    clean = {(r.system, r.metric): r for r in results if r.condition == "clean"}
    rows = []
    for system, label in ASSIGNMENTS.items():
        if (system, "ff1") in clean:
            cells = (format_interval(clean[system, metric]) for metric in ("ff1", "aos"))
            steps = read_json(exp / "models" / system / "card.json")["training"]["steps"]
            rows.append((label, steps, *cells, PUBLISHED[system]))
    heading = "rows of the text encoder given to the units"
    columns = (heading, "steps", "FF1", "AOS", "published, NMSQA dev")
    note = (
        "DUAL on clean test speech, at equal steps, fewer than what ships. "
        f"Published most frequent: ids 5 to K + 4, in order. {describe_rows(clean.values())}"
    )
    return Table("Five ways of giving units to a text encoder", columns, tuple(rows), note)


def make_score_table(exp: Path, title: str = "") -> Table:
    """Make the table of scores, a row for each metric and system and a column for each condition,
    without the readers of ASSIGNMENTS."""
    rows = [r for r in read_rows(exp / "results.jsonl") if r.system not in ASSIGNMENTS]
    conditions = list(dict.fromkeys((r.condition, r.snr_db) for r in rows))
    cells = {(r.system, r.metric, (r.condition, r.snr_db)): r for r in rows}
    order = ("ff1", "aos", "em", "f1", "wer", "cer")
    by_metric = sorted(rows, key=lambda r: order.index(r.metric))
    lines = []
    for metric, system in dict.fromkeys((r.metric, r.system) for r in by_metric):
        texts = (format_interval(cells.get((system, metric, c))) for c in conditions)
        lines.append((metric.upper(), system, *texts))
    columns = ("", "system", *(name_condition(*c) for c in conditions))
    return Table(title, columns, tuple(lines), f"Percent. {describe_rows(rows)}")


def make_held_out_table(exp: Path) -> Table:
    """Make the table of scores on the held-out test; its title says how much of the test is unknown
    to training."""
    shares = read_json(exp / "held-out/corpus/card.json")["unknown_words"]["test"]
    unknown = f"{shares['words']} % of the words and {shares['answers']} % of the answers"
    return make_score_table(
        exp / "held-out", f"MiniSQA held-out: {unknown} are unknown to training"
    )


def main(exp: Path) -> None:
    print(make_score_table(exp).markdown)  # the page has this table without a file
    tables = {
        "held-out": make_held_out_table(exp),
        "units": make_quality_table(exp),
        "assignments": make_assignment_table(exp),
    }
    for name, table in tables.items():
        write_json(exp / "tables" / f"{name}.json", table.values)
        print(f"\n{table.markdown}")


if __name__ == "__main__":
    run_program(main)
