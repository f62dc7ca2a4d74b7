"""The tables of recipes/units: python recipes/units/table.py EXP"""

import json
import re
import sys
from pathlib import Path

from speechssl.results import interval_text, read_rows

exp = Path(sys.argv[1])
lists = [*sorted(p.stem for p in (exp / "lists").glob("*.csv")), "test-voices"]
USED = (  # words or phones, in the training of an arm or of what it began with
    ("mfcc|fbank|hubert", "no"),
    ("start", "as its card says (minisqa-en-robust: texts of espeak-ng)"),
    ("teacher-clusters|r-spin-teacher", "by the teacher; by its start"),
    ("teacher|whisper", "by the teacher"),
    ("r-spin-(reference|ctc|frames)", "by the teacher; texts of espeak-ng"),
    ("", "by its start"),
)
found: dict[str, dict[str, dict]] = {}
for path in sorted((exp / "quality").glob("*.json")):
    name = next(name for name in lists if path.stem.endswith(f"-{name}"))
    found.setdefault(path.stem.removesuffix(f"-{name}"), {})[name] = json.loads(path.read_text())


def pair(values, group):
    """Return AUC and same-text distance of a row whose groups contain the name."""
    rows = [values] if "same_text_auc" in values else values.get("same_text", [])
    row = next((r for r in rows if group in r.get("groups", group)), None)
    return f"{row['same_text_auc']:.2f} / {row['same_text_distance']:.2f}" if row else "–"


def used(arm):
    return next(text for names, text in USED if re.match(names, arm))


def shown(values, name, digits=2):
    return f"{values[name]:.{digits}f}" if name in values else "–"


def noise(values):
    rows = [r for r in values.get("stability", []) if r["snr_db"] is not None]
    return " ".join(f"{r['unit_edit_distance']:.2f}" for r in rows) or "–"


def ratios(lists_of):
    """ " at 20 10 dB": the SNRs that were measured; "" where none was."""
    measured = (values.get(lists_of, {}).get("stability", []) for values in found.values())
    ratios = dict.fromkeys(row["snr_db"] for rows in measured for row in rows)
    text = " ".join(f"{snr:g}" for snr in ratios if snr is not None)
    return f" at {text} dB" if text else ""


def head(title, *heads):
    print(f"\n**{title}**\n\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")


for split in ("dev", "test"):
    names = [name for name in lists if name.startswith(split)]
    fsdd = f"{split}-fsdd"
    unknown = {"test-precise": ", speakers not known"}  # pairs may be of one person
    heads = ["encoder, read-out", "K"]
    for name in names:
        called = f"{name.removeprefix(split + '-')}{unknown.get(name, '')}"
        heads.append(f"{called}: AUC / same-text distance")
    heads += [f"fsdd: UED{ratios(fsdd)}", "ABX within / across", "speaker probe", "bits a second"]
    head(split, *heads, *["PNMI, voices"] * ("test-voices" in names), "words used")
    for arm, values in found.items():
        if not any(name in values for name in names):
            continue
        cells = []
        for name in names:
            group = " - " if name.split("-")[1] in ("piper", "festival") else "people"
            cells.append(pair(values.get(name, {}), group))
        # of this split
        of = values.get(fsdd) or next(values[name] for name in names if name in values)
        cells.append(noise(values.get(fsdd, {})))
        cells.append(f"{shown(of, 'abx_within')} / {shown(of, 'abx_across')}")
        cells += [shown(of, "speaker_accuracy"), shown(of, "bits_a_second", 0)]
        if "test-voices" in names:
            cells.append(shown(values.get("test-voices", {}), "pnmi"))
        print(f"| {arm} | {of['K']} | " + " | ".join([*cells, used(arm)]) + " |")

answers: dict[str, dict[str, str]] = {}
for path in sorted(exp.glob("answers*/*/results.jsonl")):
    for row in (row for row in read_rows(path) if row.metric == "ff1"):
        name = row.condition + ("" if row.snr_db is None else f", {row.snr_db:g} dB")
        name = "festival" if path.parts[-3] == "answers-festival" else name
        answers.setdefault(path.parts[-2], {})[name] = interval_text(row)
heads = list(dict.fromkeys(name for row in answers.values() for name in row))
head("DUAL, FF1 on test", "encoder", *heads, "words used")
for arm, row in answers.items():
    print(f"| {arm} | " + " | ".join([*(row.get(name, "–") for name in heads), used(arm)]) + " |")
