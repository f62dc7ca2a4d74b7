"""F1 against the word error rate of the tests, under the share of questions whose answer their
transcripts hold: EXP/f1-wer.png.

python recipes/spoken_squad/picture.py EXP SPLIT ...      reads what tables.py reads
"""

import sys
from pathlib import Path

from tables import WER, clean_rows

from speechssl.artifacts import read_json, replacing
from speechssl.report.figures import PALETTE, new_axes
from speechssl.results import Row

BLUE, RED = PALETTE[0][0], PALETTE[1][0]


def draw(exp: Path, splits: list[str]) -> Path | None:
    facts = read_json(exp / "corpus" / "data_report.json")["splits"]
    # WER in %, as measured, else as published; test; F1 in % of the questions
    recognised: list[tuple[float, str, Row]] = []
    written: list[Row] = []  # F1 on the text of the tests, where that is known
    ceilings: list[tuple[float, float]] = []  # WER and share of the questions
    for split, rows in clean_rows(exp, splits).items():
        given, ceiling = rows.get(("cascade-given", "wer")), facts[split].get("answer_in_context")
        rate = given.value if given else WER.get(split)
        if rate is not None and (f1 := rows.get(("cascade-given", "f1"))):
            recognised.append((rate, split, f1))
            ceilings += [] if ceiling is None else [(rate, 100 * ceiling)]
        written += [f1] if (f1 := rows.get(("text", "f1"))) else []
    if not recognised:
        return None
    recognised.sort(key=lambda p: p[0])
    with new_axes(1, 1, 4.6) as (figure, ((ax,),)):
        if ceilings:
            style = {"color": RED, "markersize": 3, "label": "answer is in the transcript"}
            ax.plot(*zip(*sorted(ceilings), strict=True), "--o", **style)
        points = [(at, row.value) for at, _, row in recognised]
        ax.plot(*zip(*points, strict=True), "-o", color=BLUE, label="F1 on the transcript")
        if written:
            values, label = [row.value for row in written], "F1 on the reference text"
            ax.plot([0] * len(values), values, "o", color=BLUE, markerfacecolor="none", label=label)
        for at, row in [*((at, row) for at, _, row in recognised), *((0.0, r) for r in written)]:
            if row.low is not None and row.high is not None:
                ax.plot([at, at], [row.low, row.high], color=BLUE, linewidth=1.2)
        for at, split, row in recognised:
            ax.annotate(split, (at, row.value), (6, 6), textcoords="offset points", fontsize=8)
        ax.set(xlabel="word error rate of the transcripts (%)", ylabel="% of questions")
        ax.set(xlim=(-2, recognised[-1][0] * 1.2 + 5), ylim=(0, 105))
        figure.legend(loc="outside upper left", ncols=3, fontsize=8)
        with replacing(exp / "f1-wer.png") as temporary:
            figure.savefig(temporary, dpi=150, format="png")
    return exp / "f1-wer.png"


if __name__ == "__main__":
    if made := draw(Path(sys.argv[1]), sys.argv[2:]):
        print(f"picture: {made}")
