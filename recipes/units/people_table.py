"""Print the table of recipes/units/people.sh.

    python recipes/units/people_table.py EXP/quality

A line is an encoder with a read-out (codebook and price of changes). Its cells are the distance of
units of the same text, that of other texts, and AUC, between people and synthesisers, of digits and
of two words; and of people's sentences the units a second, and the share of units that noise
changes (unit edit distance, UED).
"""

from pathlib import Path

from speechssl.artifacts import read_json
from speechssl.cli import run_program
from speechssl.results import Table


def read_cells(folder: Path) -> dict[str, dict[str, str]]:
    """Return encoder and read-out -> column -> cell. folder: of files NAME-on-LIST.json, written by
    `speechssl units evaluate`."""
    cells: dict[str, dict[str, str]] = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix == ".json"):
        arm, _, measured_on = path.stem.partition("-on-")
        values = read_json(path)
        row = cells.setdefault(arm, {})
        for pair in values.get("same_text", []):
            row[f"{Path(measured_on).stem}: {pair['groups']}"] = (
                f"{pair['same_text_distance']:.2f} / {pair['other_text_distance']:.2f} / "
                f"{pair['same_text_auc']:.3f}"
            )
        if measured_on.endswith(".txt"):
            noisy = [line for line in values["stability"] if line["snr_db"] is not None]
            ratios = " ".join(f"{line['snr_db']:g}" for line in noisy)
            changed = " ".join(f"{line['unit_edit_distance']:.2f}" for line in noisy)
            row["units a second of people's sentences"] = f"{values['units_a_second']:.1f}"
            row[f"UED of people's sentences at {ratios} dB"] = changed
    return cells


def main(folder: Path) -> None:
    cells = read_cells(folder)
    columns = list(dict.fromkeys(name for row in cells.values() for name in row))
    lines = [(arm, *(row.get(name, "–") for name in columns)) for arm, row in cells.items()]
    print("distance of the same text / of other texts / AUC\n")
    print(Table("", ("encoder, read-out", *columns), tuple(lines)).markdown)


if __name__ == "__main__":
    run_program(main)
