"""Draw README's picture. Its left half is FF1 on SQuAD's questions, which is read from README's
table with the heading SQuAD; its right half is FF1 on MiniSQA against the SNR, which is read from
the cards of the set that ships.

python recipes/picture.py [SET] [OUT]    default: people-en, docs/results.svg
"""

import re
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from speechssl.artifacts import read_json
from speechssl.cli import run_program
from speechssl.report.figures import MARKERS, PALETTE
from speechssl.results import save_figure, style_figures

README = Path("README.md")
SYSTEMS = ("dual", "cascade-ctc", "speechbert", "cascade-ctc-greedy")  # in noise
# "27.6 [23.4, 31.6], WER 72.5": value, low and high
CELL = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\]")
GAP_OF_SPEECH = 0.24  # between the points of a system; its next neighbour is 1 away
GAP_OF_SYSTEMS = 0.08  # between the points of a condition, so that no interval hides another


def read_table(page: Path, heading: str) -> dict[tuple[str, str], str]:
    """Read the first Markdown table of a page whose first column has this heading. Returns
    (first cell of the row, heading of the column) -> cell."""
    lines = page.read_text("utf-8").splitlines()
    (start, *_) = (i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    _, *columns = split_row(lines[start])
    cells = {}
    for line in lines[start + 2 :]:  # after the heading and the rule below it
        if not line.startswith("|"):
            break
        row, *values = split_row(line)
        for column, value in zip(columns, values, strict=True):
            cells[row, column] = value
    return cells


def split_row(line: str) -> list[str]:
    """Split a line of a Markdown table into its cells."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def read_real_questions(page: Path) -> pd.DataFrame:
    """Read the table SQuAD of a page, such as README's: system, speech, value, low and high of
    every cell that has a score."""
    scores = []
    for (row, speech), cell in read_table(page, "SQuAD").items():
        match = CELL.match(cell)
        if match:
            value, low, high = map(float, match.groups())
            system = row.partition(" (")[0].replace("`", "")  # without a remark
            scores.append((system, speech, value, low, high))
    return pd.DataFrame(scores, columns=["system", "speech", "value", "low", "high"])


def read_scores(models: Path) -> pd.DataFrame:
    """Read the scores that `recipes/ship.py scores` put into the cards ("dual ff1, pink 5 dB"):
    system, metric, condition, value, low and high."""
    rows = []
    for card in sorted(models.glob("*/card.json")):
        for key, score in read_json(card).get("scores", {}).items():
            system, metric, condition = re.fullmatch(r"(\S+) (\S+), (.+)", key).groups()
            rows.append({"system": system, "metric": metric, "condition": condition, **score})
    scores = pd.DataFrame(rows).drop_duplicates(["system", "metric", "condition"], keep="last")
    return scores.astype({"low": float, "high": float})


def draw_results(real: pd.DataFrame, scores: pd.DataFrame, out: Path) -> None:
    """Draw FF1 of every system on real questions on the left; on the right FF1 on MiniSQA by the
    SNR of pink noise."""
    with style_figures(svg_hashsalt="results", svg_fonttype="path", font_size=10) as figure_class:
        figure = figure_class(figsize=(9, 3.6), facecolor="white", layout="constrained")
        by_system, by_snr = figure.subplots(1, 2)
        draw_systems(by_system, real)
        draw_noise(by_snr, scores[scores.metric == "ff1"])
        save_figure(figure, out)


def draw_systems(axes: Axes, real: pd.DataFrame) -> None:
    """Draw a row for every system, and a point with its interval for every kind of speech."""
    systems = list(real.system.unique())
    kinds = list(real.speech.unique())
    for slot, speech in enumerate(kinds):
        scores = real[real.speech == speech]
        heights = scores.system.map(systems.index) + GAP_OF_SPEECH * (slot - (len(kinds) - 1) / 2)
        errors = [scores.value - scores.low, scores.high - scores.value]
        style = {"color": PALETTE[slot][0], "marker": MARKERS[slot], "linestyle": "none"}
        axes.errorbar(scores.value, heights, xerr=errors, capsize=3, label=speech, **style)
    axes.set_yticks(range(len(systems)), systems)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("FF1 (%)")
    axes.set_title("SQuAD's questions, synthetic speech", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)


def draw_noise(axes: Axes, ff1: pd.DataFrame) -> None:
    """Draw a line for every system over the levels of pink noise."""
    levels = list_noise_levels(ff1.condition[ff1.system == SYSTEMS[0]])
    for slot, system in enumerate(SYSTEMS):
        scores = ff1[(ff1.system == system) & ff1.condition.isin(levels)]
        shift = GAP_OF_SYSTEMS * (slot - (len(SYSTEMS) - 1) / 2)
        scores = scores.assign(place=scores.condition.map(levels.index) + shift)
        scores = scores.sort_values("place", kind="stable")
        low = scores.low.fillna(scores.value)
        high = scores.high.fillna(scores.value)
        errors = [scores.value - low, high - scores.value]
        style = {"color": PALETTE[slot + 2][0], "marker": MARKERS[slot + 2], "linestyle": "-"}
        axes.errorbar(scores.place, scores.value, errors, capsize=3, label=system, **style)
    names = [level.removeprefix("pink ").removesuffix(" dB") for level in levels]
    axes.set_xticks(range(len(levels)), names)
    axes.set_xlabel("SNR of pink noise (dB)")
    axes.set_ylabel("FF1 (%)")
    axes.set_ylim(0, 100)
    axes.set_title("MiniSQA (generated English), people-en", fontsize=10)
    axes.legend(loc="lower right", fontsize=8)


def list_noise_levels(conditions: pd.Series) -> list[str]:
    """List the conditions of pink noise from the loudest to the faintest, then clean speech."""
    ratios = conditions.str.extract(r"^pink (\S+) dB$")[0].dropna().astype(float)
    return [*(f"pink {ratio:g} dB" for ratio in sorted(ratios)), "clean"]


def main(
    models: Path = Path("speechssl/models/people-en"), out: Path = Path("docs/results.svg")
) -> None:
    draw_results(read_real_questions(README), read_scores(models), out)
    print(f"{out}: FF1 on SQuAD's questions and on MiniSQA")


if __name__ == "__main__":
    run_program(main)
