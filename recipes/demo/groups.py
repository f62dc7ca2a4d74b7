"""Tabulate FF1 of every system of the demo by groups of test speech: the synthesiser of training,
noise, new words, another synthesiser, and free English.

    python recipes/demo/groups.py EXP [NAME=FOLDER ...]
        FOLDER: results of `evaluate qa` on a further group, such as festival=exp/demo/festival

Prints the table and writes EXP/groups.json, for `speechssl report --tables`.
"""

from pathlib import Path

from speechssl.artifacts import read_json, write_json
from speechssl.checkpoints import model_folder
from speechssl.cli import run_program
from speechssl.results import Row, Table, format_interval, format_markdown, read_rows

READERS = {"dual": "dual", "speechbert": "speechbert", "cascades and text": "text-qa"}


def read_ff1(folder: Path) -> list[Row]:
    return [row for row in read_rows(folder / "results.jsonl") if row.metric == "ff1"]


def select_clean(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.condition == "clean"]


def describe_training(held_out: Path) -> str:
    """Describe the speech and the texts that the models were trained on. held_out: the corpus of
    new words."""
    models = model_folder("people-en")
    texts = []
    for name, part in READERS.items():
        corpus = read_json(models / part / "card.json")["corpus"]["corpus"]
        texts.append(f"{name}: {corpus}")
    shares = read_json(held_out / "card.json")["unknown_words"]["test"]
    return (
        "Speech: the models learned from other voices of espeak-ng, two of flite and kokoro's, "
        "three in five recordings distorted, and from neither festival nor pink noise. Texts that "
        f"they learned from: {'; '.join(texts)}. Of the held-out test {shares['words']} % of the "
        "words, and all sentence patterns, are unknown to minisqa's training texts. The passages "
        "and questions in free English were written for this demo; nothing was trained on them. "
        "text reads the words that the synthesiser was given."
    )


def main(exp: Path, *further_groups: str) -> None:
    """Make the table. exp: folder of the demo; further_groups: NAME=FOLDER."""
    rows = read_ff1(exp)
    noise = [row for row in rows if row.condition == "pink" and row.snr_db == 5.0]
    held_out = exp / "held-out"
    groups = {  # name of a column -> its rows
        "espeak-ng": select_clean(rows),
        "espeak-ng, pink noise at 5 dB": noise,
        "espeak-ng, held-out words": select_clean(read_ff1(held_out)),
    }
    for group in further_groups:
        name, _, folder = group.partition("=")
        groups[name] = select_clean(read_ff1(Path(folder)))
    systems = dict.fromkeys(row.system for group in groups.values() for row in group)
    by_system = [{row.system: row for row in group} for group in groups.values()]
    lines = []
    for system in systems:
        lines.append((system, *(format_interval(group.get(system)) for group in by_system)))
    note = describe_training(held_out / "corpus")
    most = max(row.n for row in groups["espeak-ng"])
    fewer = [f"{row.system} {row.n}" for row in groups["espeak-ng"] if row.n < most]
    if fewer:
        note += f" Questions of espeak-ng: {most}; of {', '.join(fewer)}."
    if not {"festival", "flite"} & groups.keys():
        note += " No other synthesiser is installed here (Debian packages festival or flite)."
    title = (
        "FF1 by what is heard: the synthesiser of training, noise, new words, another "
        "synthesiser, free English"
    )
    table = Table(title, ("system", *groups), tuple(lines), note)
    write_json(exp / "groups.json", table.values)
    print(format_markdown([table]))


if __name__ == "__main__":
    run_program(main)
