"""The tables of recipes/units: python recipes/units/table.py EXP"""

import json
import re
import sys
from pathlib import Path

from speechssl.results import read_rows

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
    rows = (
        r["snr_db"]
        for values in found.values()
        for r in values.get(lists_of, {}).get("stability", [])
    )
    text = " ".join(f"{snr:g}" for snr in dict.fromkeys(snr for snr in rows if snr is not None))
    return f" at {text} dB" if text else ""


for split in ("dev", "test"):
    names = [name for name in lists if name.startswith(split)]
    fsdd = f"{split}-fsdd"
    unknown = {"test-precise": ", speakers not known"}  # pairs may be of one person
    heads = [
        (f"{name.removeprefix(split + '-')}{unknown.get(name, '')}: AUC / same-text distance")
        for name in names
    ]
    heads += [
        f"{fsdd.removeprefix(split + '-')}: UED{ratios(fsdd)}",
        "ABX within / across",
        "speaker probe",
        "bits a second",
        *["PNMI, voices"] * ("test-voices" in names),
        "words used",
    ]
    print(
        f"\n**{split}**\n\n| encoder, read-out | K | "
        + " | ".join(heads)
        + " |\n|---"
        + "|---" * (len(heads) + 1)
        + "|"
    )
    for arm, values in found.items():
        if not any(name in values for name in names):
            continue
        groups = [
            " - " if name.split("-")[1] in ("piper", "festival") else "people" for name in names
        ]
        cells = [
            pair(values.get(name, {}), group) for name, group in zip(names, groups, strict=True)
        ]
        # of this split
        of = values.get(fsdd) or next(values[name] for name in names if name in values)
        cells += [
            noise(values.get(fsdd, {})),
            f"{shown(of, 'abx_within')} / {shown(of, 'abx_across')}",
        ]
        cells += [shown(of, "speaker_accuracy"), shown(of, "bits_a_second", 0)]
        cells += [
            shown(values.get(name, {}), "pnmi") for name in names if name == "test-voices"
        ] + [used(arm)]
        print(f"| {arm} | {of['K']} | " + " | ".join(cells) + " |")

answers: dict[str, dict[str, str]] = {}
for path in sorted(exp.glob("answers*/*/results.jsonl")):
    for row in (row for row in read_rows(path) if row.metric == "ff1"):
        name = row.condition + ("" if row.snr_db is None else f", {row.snr_db:g} dB")
        name = "festival" if path.parts[-3] == "answers-festival" else name
        interval = "" if row.low is None else f" [{row.low:.1f}, {row.high:.1f}]"
        answers.setdefault(path.parts[-2], {})[name] = f"{row.value:.1f}{interval}"
heads = list(dict.fromkeys(name for row in answers.values() for name in row))
print(
    "\n**DUAL, FF1 on test**\n\n| encoder | "
    + " | ".join([*heads, "words used"])
    + " |\n|---"
    + "|---" * (len(heads) + 1)
    + "|"
)
for arm, row in answers.items():
    print(f"| {arm} | " + " | ".join([*(row.get(name, "–") for name in heads), used(arm)]) + " |")
