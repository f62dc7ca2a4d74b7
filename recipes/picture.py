"""Draw README's picture: FF1 on SQuAD's questions, from the first table of README, and on MiniSQA
against the SNR, from the scores in the cards of the set that ships.

python recipes/picture.py [SET] [OUT]    default: people-en, docs/results.svg
"""

import re
import sys
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from speechssl.artifacts import read_json
from speechssl.report.figures import MARKERS, PALETTE
from speechssl.results import save_figure, style_figures

README = Path("README.md")
SYSTEMS = ("dual", "cascade-ctc", "speechbert", "cascade-ctc-greedy")  # in noise
# "27.6 [23.4, 31.6], WER 72.5": value, low and high
CELL = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\]")


def read_real_questions(page: Path) -> pd.DataFrame:
    """Read the first table of a page: system, speech, value, low and high of every cell that has a
    score."""
    lines = page.read_text("utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| SQuAD |"))
    _, *speech = (cell.strip() for cell in lines[first].strip("|").split("|"))
    scores = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        system, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for spoken, cell in zip(speech, cells, strict=True):
            if match := CELL.match(cell):
                value, low, high = map(float, match.groups())
                scores.append((name_system(system, cell), spoken, value, low, high))
    return pd.DataFrame(scores, columns=["system", "speech", "value", "low", "high"])


def name_system(system: str, cell: str) -> str:
    """Name a system without its remark; with its number of questions, where its cell has one."""
    name = system.partition(" (")[0]
    few = re.search(r"\((\d+ questions)\)", cell)
    return f"{name}\n({few[1]})" if few else name


def read_scores(models: Path) -> pd.DataFrame:
    """Return the scores that `recipes/ship.py scores` put into the cards ("dual ff1, pink 5 dB"):
    system, metric, condition, value, low and high."""
    found = []
    for card in sorted(models.glob("*/card.json")):
        for key, score in read_json(card).get("scores", {}).items():
            system, metric, condition = re.fullmatch(r"(\S+) (\S+), (.+)", key).groups()
            found.append({"system": system, "metric": metric, "condition": condition, **score})
    scores = pd.DataFrame(found).drop_duplicates(["system", "metric", "condition"], keep="last")
    return scores.astype({"low": float, "high": float})


def draw(real: pd.DataFrame, scores: pd.DataFrame, out: Path) -> None:
    """Draw FF1 of every system on real questions on the left; on the right FF1 on MiniSQA by the
    SNR of pink noise."""
    with style_figures(svg_hashsalt="results", svg_fonttype="path", font_size=10) as figure_class:
        figure = figure_class(figsize=(9, 3.6), facecolor="white", layout="constrained")
        by_system, by_snr = figure.subplots(1, 2)
        draw_systems(by_system, real)
        draw_noise(by_snr, scores[scores.metric == "ff1"])
        save_figure(figure, out)


def draw_systems(axes: Axes, real: pd.DataFrame) -> None:
    """Draw a line for every system, and a point on it for every kind of speech."""
    systems, speech = list(real.system.unique()), list(real.speech.unique())
    for slot, spoken in enumerate(speech):
        found = real[real.speech == spoken]
        lines = found.system.map(systems.index) + 0.24 * (slot - (len(speech) - 1) / 2)
        errors = [found.value - found.low, found.high - found.value]
        style = {"color": PALETTE[slot][0], "marker": MARKERS[slot], "linestyle": "none"}
        axes.errorbar(found.value, lines, xerr=errors, capsize=3, label=spoken, **style)
    axes.set_yticks(range(len(systems)), systems)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("FF1 (%)")
    axes.set_title("SQuAD's questions, synthetic speech", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8)


def draw_noise(axes: Axes, ff1: pd.DataFrame) -> None:
    """Draw a line for every system over the levels of pink noise."""
    levels = conditions_by_snr(ff1.condition[ff1.system == SYSTEMS[0]])
    for slot, system in enumerate(SYSTEMS):
        found = ff1[(ff1.system == system) & ff1.condition.isin(levels)]
        # side by side, so that no interval hides another
        places = found.condition.map(levels.index) + 0.08 * (slot - 1.5)
        found = found.assign(place=places).sort_values("place", kind="stable")
        low, high = found.low.fillna(found.value), found.high.fillna(found.value)
        errors = [found.value - low, high - found.value]
        style = {"color": PALETTE[slot + 2][0], "marker": MARKERS[slot + 2], "linestyle": "-"}
        axes.errorbar(found.place, found.value, errors, capsize=3, label=system, **style)
    names = [level.removeprefix("pink ").removesuffix(" dB") for level in levels]
    axes.set_xticks(range(len(levels)), names)
    axes.set_xlabel("SNR of pink noise (dB)")
    axes.set_ylabel("FF1 (%)")
    axes.set_ylim(0, 100)
    axes.set_title("MiniSQA (generated English), people-en", fontsize=10)
    axes.legend(loc="lower right", fontsize=8)


def conditions_by_snr(conditions: pd.Series) -> list[str]:
    """List pink noise from the loudest to the faintest, then clean speech."""
    ratios = conditions.str.extract(r"^pink (\S+) dB$")[0].dropna().astype(float)
    return [*(f"pink {ratio:g} dB" for ratio in sorted(ratios)), "clean"]


if __name__ == "__main__":
    models, out = Path("speechssl/models/people-en"), Path("docs/results.svg")
    if len(sys.argv) > 1:
        models = Path(sys.argv[1])
    if len(sys.argv) > 2:
        out = Path(sys.argv[2])
    draw(read_real_questions(README), read_scores(models), out)
    print(f"{out}: FF1 on SQuAD's questions and on MiniSQA")
