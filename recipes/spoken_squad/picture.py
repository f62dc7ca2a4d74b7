"""Draw two lines against the word error rate of the tests: F1 on their transcripts, and the share
of questions whose answer is in the transcript.

python recipes/spoken_squad/picture.py EXP SPLIT ...
    reads the files that tables.py reads, and writes EXP/f1-wer.png
"""

from pathlib import Path

from tables import PUBLISHED_WER, read_clean_rows

from speechssl.artifacts import read_json, replace_file
from speechssl.cli import run_program
from speechssl.report.figures import PALETTE, make_axes
from speechssl.results import Row

BLUE, RED = PALETTE[0][0], PALETTE[1][0]


def draw(exp: Path, *splits: str) -> None:
    """Draw the picture, unless no system read the transcripts."""
    facts = read_json(exp / "corpus" / "data_report.json")["splits"]
    # of every test set: WER in percent (as measured, else as published), its name, F1
    recognised: list[tuple[float, str, Row]] = []
    reference: list[Row] = []  # F1 on the reference text, where that is known
    ceilings: list[tuple[float, float]] = []  # WER, and share of the questions in percent
    for split, rows in read_clean_rows(exp, splits).items():
        ceiling = facts[split].get("answer_in_context")
        measured = rows.get(("cascade-given", "wer"))
        rate = measured.value if measured else PUBLISHED_WER.get(split)
        f1 = rows.get(("cascade-given", "f1"))
        if rate is not None and f1:
            recognised.append((rate, split, f1))
            if ceiling is not None:
                ceilings.append((rate, 100 * ceiling))
        if ("text", "f1") in rows:
            reference.append(rows["text", "f1"])
    if not recognised:
        return
    recognised.sort(key=lambda p: p[0])
    with make_axes(1, 1, 4.6) as (figure, ((ax,),)):
        if ceilings:
            style = {"color": RED, "markersize": 3, "label": "answer is in the transcript"}
            ax.plot(*zip(*sorted(ceilings), strict=True), "--o", **style)
        points = [(rate, row.value) for rate, _, row in recognised]
        ax.plot(*zip(*points, strict=True), "-o", color=BLUE, label="F1 on the transcript")
        if reference:
            values = [row.value for row in reference]
            style = {"color": BLUE, "markerfacecolor": "none", "label": "F1 on the reference text"}
            ax.plot([0] * len(values), values, "o", **style)
        scores = [(rate, row) for rate, _, row in recognised] + [(0.0, row) for row in reference]
        for rate, row in scores:
            if row.low is not None and row.high is not None:
                ax.plot([rate, rate], [row.low, row.high], color=BLUE, linewidth=1.2)
        for rate, split, row in recognised:
            ax.annotate(split, (rate, row.value), (6, 6), textcoords="offset points", fontsize=8)
        ax.set(xlabel="word error rate of the transcripts (%)", ylabel="% of questions")
        ax.set(xlim=(-2, recognised[-1][0] * 1.2 + 5), ylim=(0, 105))
        figure.legend(loc="outside upper left", ncols=3, fontsize=8)
        with replace_file(exp / "f1-wer.png") as temporary:
            figure.savefig(temporary, dpi=150, format="png")
    print(f"picture: {exp / 'f1-wer.png'}")


if __name__ == "__main__":
    run_program(draw)
