"""The table of choose.sh: FF1 on dev, a row a setting; for README.md.

python recipes/minisqa/choose.py OUT READER ...
    OUT: EXP/choose; READER: a folder of OUT/models, dual-two-350-0.05
"""

import sys
from pathlib import Path

from tables import drawn

from speechssl.artifacts import read_json
from speechssl.results import Table, condition_name, drawn_sentence, interval_text, read_rows


def steps(models: Path, reader: str) -> list[int]:
    """Count the steps of every stage that led to a reader."""
    kind, *rest = reader.removeprefix("dual-").split("-")
    before = {"two": f"dual-one-{rest[0]}", "three": "-".join(["dual-two", *rest])}.get(kind)
    own = read_json(models / reader / "card.json")["training"]["steps"]
    return [*(steps(models, before) if before else []), own]


def chosen_on_dev(out: Path, readers: list[str]) -> str:
    rows = [
        r for r in read_rows(out / "results.jsonl") if r.metric == "ff1" and r.system in readers
    ]
    conditions = list(dict.fromkeys((r.condition, r.snr_db) for r in rows))
    found = {(r.system, (r.condition, r.snr_db)): r for r in rows}
    lines = []
    for reader in readers:
        _, short, *noise = reader.removeprefix("dual-").split("-")
        stages = " + ".join(map(str, steps(out / "models", reader)))
        lines.append(
            (
                stages,
                short,
                *(noise or ["–"]),
                *(interval_text(found[reader, c]) for c in conditions),
            )
        )
    on_dev = (f"FF1 on dev, {condition_name(*c)}" for c in conditions)
    columns = ("steps of the stages", "of the first, on short windows", "units replaced", *on_dev)
    means = {
        reader: sum(found[reader, c].value for c in conditions) / len(conditions)
        for reader in readers
    }
    best = max(means, key=lambda reader: means[reader])
    over = f" (the mean over {len(conditions)} conditions)" if len(conditions) > 1 else ""
    greatest = f"The greatest FF1 on dev{over}: {best}, {means[best]:.1f}"
    return "\n\n".join(
        [Table("", columns, tuple(lines), drawn_sentence(map(drawn, rows))).markdown, greatest]
    )


if __name__ == "__main__":
    print(chosen_on_dev(Path(sys.argv[1]), sys.argv[2:]))
