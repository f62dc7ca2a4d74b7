"""F1 against the word error rate of the tests, under the share of questions whose answer their transcripts hold: EXP/f1-wer.png.

python recipes/spoken_squad/picture.py EXP SPLIT ...      reads what tables.py reads
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from tables import WER

from speechssl.io import read_json, replacing
from speechssl.results import Row, read_rows

INK, CEILING = "#2f5d8a", "#b0722a"


@dataclass(frozen=True)
class Found:
    """In % of the questions, and WER in %: as measured, else as published."""

    recognised: list[tuple[float, str, Row]]  # WER, test and F1
    written: list[Row]  # F1 on the text of the tests, where that is known
    ceilings: list[tuple[float, float]]  # WER and share


def find(exp: Path, splits: list[str]) -> Found:
    facts = read_json(exp / "corpus" / "data_report.json")["splits"]
    found = Found([], [], [])
    for split in (s for s in splits if (exp / s / "results.jsonl").is_file()):
        rows = {(r.system, r.metric): r for r in read_rows(exp / split / "results.jsonl")}
        given, ceiling = rows.get(("cascade-given", "wer")), facts[split].get("answer_in_context")
        rate = given.value if given else WER.get(split)
        if rate is not None and (f1 := rows.get(("cascade-given", "f1"))):
            found.recognised.append((rate, split, f1))
            found.ceilings.extend([] if ceiling is None else [(rate, 100 * ceiling)])
        if f1 := rows.get(("text", "f1")):
            found.written.append(f1)
    found.recognised.sort(key=lambda p: p[0])
    found.ceilings.sort()
    return found


def draw(exp: Path, splits: list[str]) -> Path | None:
    found = find(exp, splits)
    if not found.recognised:
        return None
    figure = Figure((6.4, 4.0), layout="constrained")
    ax = figure.subplots()
    if found.ceilings:
        ax.plot(*zip(*found.ceilings, strict=True), "--o", color=CEILING, markersize=3, label="answer is in the transcript")
    ax.plot(
        [at for at, *_ in found.recognised],
        [row.value for *_, row in found.recognised],
        "-o",
        color=INK,
        label="F1 on the transcript",
    )
    if found.written:
        values = [row.value for row in found.written]
        ax.plot([0] * len(values), values, "o", color=INK, markerfacecolor="none", label="F1 on the reference text")
    for at, row in [*((at, row) for at, _, row in found.recognised), *((0.0, row) for row in found.written)]:
        if row.low is not None and row.high is not None:
            ax.plot([at, at], [row.low, row.high], color=INK, linewidth=1.2)
    for at, split, row in found.recognised:
        ax.annotate(split, (at, row.value), (6, 6), textcoords="offset points", fontsize=8)
    ax.set(xlabel="word error rate of the transcripts (%)", ylabel="% of questions", ylim=(0, 105))
    ax.set_xlim(-2, found.recognised[-1][0] * 1.2 + 5)
    figure.legend(frameon=False, loc="outside upper left", ncols=3, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    with replacing(exp / "f1-wer.png") as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    return exp / "f1-wer.png"


if __name__ == "__main__":
    if made := draw(Path(sys.argv[1]), sys.argv[2:]):
        print(f"picture: {made}")
