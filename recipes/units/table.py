"""The table of recipes/units: python recipes/units/table.py EXP"""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1]) / "quality"
lists = sorted(p.stem for p in (Path(sys.argv[1]) / "lists").glob("*.csv"))
found: dict[str, dict[str, dict]] = {}
for path in sorted(folder.glob("*.json")):
    name = next(name for name in lists if path.stem.endswith(f"-{name}"))
    found.setdefault(path.stem.removesuffix(f"-{name}"), {})[name] = json.loads(path.read_text())


def pair(values, group):
    """AUC and same-text distance of a row whose groups contain the name."""
    row = next((r for r in values.get("same_text", []) if group in r["groups"]), None)
    return f"{row['same_text_auc']:.2f} / {row['same_text_distance']:.2f}" if row else "–"


def noise(values):
    rows = [r for r in values.get("stability", []) if r["snr_db"] is not None]
    return " ".join(f"{r['unit_edit_distance']:.2f}" for r in rows) or "–"


def ratios(lists_of):
    """ " at 20 10 dB": the SNRs that were measured; "" where none was."""
    rows = (r["snr_db"] for values in found.values() for r in values.get(lists_of, {}).get("stability", []))
    text = " ".join(f"{snr:g}" for snr in dict.fromkeys(snr for snr in rows if snr is not None))
    return f" at {text} dB" if text else ""


for split in ("dev", "test"):
    names = [name for name in lists if name.startswith(split)]
    fsdd = f"{split}-fsdd"
    heads = [f"{name.removeprefix(split + '-')}: AUC / same-text distance" for name in names]
    heads += [
        f"{fsdd.removeprefix(split + '-')}: UED{ratios(fsdd)}",
        "ABX within / across",
        "speaker probe",
        "bits a second",
    ]
    print(f"\n**{split}**\n\n| encoder, read-out | K | " + " | ".join(heads) + " |\n|---" + "|---" * (len(heads) + 1) + "|")
    for arm, values in found.items():
        if not any(name in values for name in names):
            continue
        groups = [" - " if name.split("-")[1] in ("piper", "festival") else "people" for name in names]
        cells = [pair(values.get(name, {}), group) for name, group in zip(names, groups, strict=True)]
        of = values.get(fsdd) or next(values[name] for name in names if name in values)  # of this split
        cells += [noise(values.get(fsdd, {})), f"{of['abx_within']:.2f} / {of['abx_across']:.2f}", f"{of['speaker_accuracy']:.2f}"]
        print(f"| {arm} | {of['K']} | " + " | ".join(cells) + f" | {of['bits_a_second']:.0f} |")
