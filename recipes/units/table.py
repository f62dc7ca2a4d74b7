"""Print the tables of recipes/units: measures of units on every list, and FF1 of DUAL.

python recipes/units/table.py EXP
    reads EXP/quality/ARM-BOOK-LIST.json, EXP/lists and EXP/answers*/ARM/results.jsonl

A list is EXP/lists/LIST.csv, recordings of some texts by several people or synthesisers, or
test-voices: questions by unseen voices of espeak-ng. The same-text distance is the number of edits
between the units of two recordings of one text, over the longer length, and AUC the chance that it
is smaller than the distance of recordings of two texts.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_json
from speechssl.cli import run_program
from speechssl.errors import InputError
from speechssl.results import Table, format_interval, name_condition, read_rows

# beginning of an arm's name -> whether words or phones were used in its training, or in that of the
# encoder that it started from; the first pattern counts
WORDS_USED = (
    ("mfcc|fbank|hubert", "no"),
    ("start", "as its card says (minisqa-en-robust: texts of espeak-ng)"),
    ("teacher-clusters|r-spin-teacher", "by the teacher; by its start"),
    ("teacher|whisper", "by the teacher"),
    ("r-spin-(reference|ctc|frames)", "by the teacher; texts of espeak-ng"),
    ("", "by its start"),
)
# list -> end of its label; pairs of test-precise may be of one person
LABEL_NOTES = {"test-precise": ", speakers not known"}
Measures = dict[str, Any]  # of `units evaluate`, or minisqa/unit_pairs.py for test-voices


def read_quality(exp: Path, lists: list[str]) -> dict[str, dict[str, Measures]]:
    """Return arm and codebook -> list -> measures."""
    quality: dict[str, dict[str, Measures]] = defaultdict(dict)
    for path in sorted((exp / "quality").glob("*.json")):
        name = next(name for name in lists if path.stem.endswith(f"-{name}"))
        arm = path.stem.removesuffix(f"-{name}")
        quality[arm][name] = read_json(path)
    return quality


def describe_words(arm: str) -> str:
    """Say whether words were used in the training of an arm."""
    return next(text for pattern, text in WORDS_USED if re.match(pattern, arm))


def format_same_text(measures: Measures, group: str) -> str:
    """Return AUC and same-text distance: those of the first row of `units evaluate` whose groups
    contain a name, or the only ones of unit_pairs.py, which are not in a row."""
    row = measures if "same_text_auc" in measures else None
    for pair in measures.get("same_text", []):
        if row is None and group in pair["groups"]:
            row = pair
    return f"{row['same_text_auc']:.2f} / {row['same_text_distance']:.2f}" if row else "–"


def format_measure(measures: Measures, name: str, digits: int = 2) -> str:
    return f"{measures[name]:.{digits}f}" if name in measures else "–"


def select_noisy(measures: Measures) -> list[Measures]:
    """Return the rows of stability in noise, without those of clean speech."""
    return [row for row in measures.get("stability", []) if row["snr_db"] is not None]


def make_quality_table(
    split: str, lists: list[str], quality: dict[str, dict[str, Measures]]
) -> Table:
    """Tabulate AUC and same-text distance in the lists of a split, and other measures."""
    names = [name for name in lists if name.startswith(split)]
    digits = f"{split}-fsdd"
    heads = ["encoder, read-out", "K"]
    for name in names:
        label = f"{name.removeprefix(split + '-')}{LABEL_NOTES.get(name, '')}"
        heads.append(f"{label}: AUC / same-text distance")
    ratios = {}  # SNRs, each once
    for by_list in quality.values():
        for row in select_noisy(by_list.get(digits, {})):
            ratios[f"{row['snr_db']:g}"] = None
    at_ratios = f" at {' '.join(ratios)} dB" if ratios else ""
    heads += [f"fsdd: UED{at_ratios}", "ABX within / across", "speaker probe", "bits a second"]
    if "test-voices" in names:
        heads.append("PNMI, voices")
    heads.append("words used")
    lines = []
    for arm, by_list in quality.items():
        measured = [by_list[name] for name in names if name in by_list]
        if not measured:
            continue
        # measures that are not of pairs are of the digits, where these were measured
        single = by_list.get(digits) or measured[0]
        cells = [arm, str(single["K"])]
        for name in names:
            # "espeak-ng - piper": pairs of two synthesisers
            group = " - " if name.split("-")[1] in ("piper", "festival") else "people"
            cells.append(format_same_text(by_list.get(name, {}), group))
        noisy = select_noisy(by_list.get(digits, {}))
        cells.append(" ".join(f"{row['unit_edit_distance']:.2f}" for row in noisy) or "–")
        within = format_measure(single, "abx_within")
        cells.append(f"{within} / {format_measure(single, 'abx_across')}")
        cells.append(format_measure(single, "speaker_accuracy"))
        cells.append(format_measure(single, "bits_a_second", digits=0))
        if "test-voices" in names:
            cells.append(format_measure(by_list.get("test-voices", {}), "pnmi"))
        lines.append((*cells, describe_words(arm)))
    return Table("", tuple(heads), tuple(lines))


def make_answers_table(exp: Path) -> Table:
    """Tabulate the FF1 of DUAL on every encoder, a column a condition."""
    answers: dict[str, dict[str, str]] = defaultdict(dict)  # arm -> column -> cell
    for path in sorted(exp.glob("answers*/*/results.jsonl")):
        for row in read_rows(path):
            if row.metric != "ff1":
                continue
            name = name_condition(row.condition, row.snr_db)
            if path.parent.parent.name == "answers-festival":
                name = "festival"
            answers[path.parent.name][name] = format_interval(row)
    heads = list(dict.fromkeys(name for row in answers.values() for name in row))
    lines = []
    for arm, row in answers.items():
        lines.append((arm, *(row.get(name, "–") for name in heads), describe_words(arm)))
    return Table("", ("encoder", *heads, "words used"), tuple(lines))


def main(exp: Path) -> None:
    lists = [*sorted(path.stem for path in (exp / "lists").glob("*.csv")), "test-voices"]
    quality = read_quality(exp, lists)
    if not quality:
        raise InputError(f"{exp} has no quality/*.json; recipes/units/run.sh writes them")
    for split in ("dev", "test"):
        print(f"\n**{split}**\n\n{make_quality_table(split, lists, quality).markdown}")
    print(f"\n**DUAL, FF1 on test**\n\n{make_answers_table(exp).markdown}")


if __name__ == "__main__":
    run_program(main)
