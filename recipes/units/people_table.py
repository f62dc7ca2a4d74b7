"""The table of recipes/units/people.sh: python recipes/units/people_table.py EXP/quality

Same-text distance, that of other texts and AUC between people and synthesisers, of digits and of
two words; and how many units of people's sentences noise changes.
"""

import json
import sys
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])
found: dict[str, dict[str, Any]] = {}
columns: list[str] = []
for path in sorted(folder.glob("*.json")):
    arm, _, kind = path.name.removesuffix(".json").partition("-on-")
    values = json.loads(path.read_text())
    cells = found.setdefault(arm, {"units a second": f"{values['units_a_second']:.1f}"})
    for row in values.get("same_text", []):
        cells[f"{Path(kind).stem}: {row['groups']}"] = (
            f"{row['same_text_distance']:.2f} / {row['other_text_distance']:.2f} / "
            f"{row['same_text_auc']:.3f}"
        )
    if kind.endswith(".txt"):
        rows = [row for row in values["stability"] if row["snr_db"] is not None]
        noise = " ".join(f"{row['snr_db']:g}" for row in rows)
        changed = " ".join(f"{row['unit_edit_distance']:.2f}" for row in rows)
        cells[f"UED of people's sentences at {noise} dB"] = changed
    columns += [name for name in cells if name not in columns]

print("distance of the same text / of other texts / AUC\n")
print("| encoder, read-out | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
for arm, cells in found.items():
    print(f"| {arm} | " + " | ".join(cells.get(name, "–") for name in columns) + " |")
