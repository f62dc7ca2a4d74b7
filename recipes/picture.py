"""Draw README's picture: FF1 against SNR, and against the recogniser's errors, from the scores in
the cards of the set that ships.

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

# systems of both panels, in the order of their colours
SYSTEMS = ("dual", "cascade-ctc", "speechbert", "cascade-ctc-greedy")
# systems that stand at their own WER; all others stand at that of ERRORS_OF
OWN_ERRORS = ("cascade-ctc-greedy", "cascade-whisper-tiny.en", "cascade-whisper-base")
ERRORS_OF = "cascade-ctc"


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


def draw(scores: pd.DataFrame, out: Path) -> None:
    """Draw FF1 by the SNR of pink noise on the left; on the right by the errors of cascade-ctc, or
    of the recogniser's own."""
    ff1, wer = (scores[scores.metric == metric] for metric in ("ff1", "wer"))
    levels = conditions_by_snr(wer.condition[wer.system == ERRORS_OF])
    with style_figures(svg_hashsalt="results", svg_fonttype="path", font_size=10) as figure_class:
        figure = figure_class(figsize=(9, 3.4), facecolor="white", layout="constrained")
        by_snr, by_errors = figure.subplots(1, 2, sharey=True)
        for slot, system in enumerate(SYSTEMS):
            measured = ff1[(ff1.system == system) & ff1.condition.isin(levels)]
            # side by side, so that no interval hides another
            places = measured.condition.map(levels.index) + 0.08 * (slot - 1)
            plot(by_snr, measured.assign(place=places), slot, system, "-")
        for slot, system in enumerate((*SYSTEMS, *OWN_ERRORS[1:])):
            errors = wer[wer.system == (system if system in OWN_ERRORS else ERRORS_OF)]
            rates = errors.set_index("condition").value.rename("place")
            measured = ff1[ff1.system == system].join(rates, on="condition", how="inner")
            if len(measured):
                plot(by_errors, measured, slot, system, "none")
        names = [level.removeprefix("pink ").removesuffix(" dB") for level in levels]
        by_snr.set_xticks(range(len(levels)), names)
        by_snr.set_xlabel("← more noise\N{EM SPACE}SNR of pink noise (dB)\N{EM SPACE}less noise →")
        by_snr.set_ylabel("FF1 (%)")
        by_snr.set_ylim(0, 100)
        by_errors.set_xlabel("WER of the recogniser in the same condition (%)")
        by_errors.set_xlim(0, max(100, wer.value.max() // 10 * 10 + 10))
        figure.legend(*by_errors.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        save_figure(figure, out)


def conditions_by_snr(conditions: pd.Series) -> list[str]:
    """List pink noise from the loudest to the faintest, then clean speech."""
    ratios = conditions.str.extract(r"^pink (\S+) dB$")[0].dropna().astype(float)
    return [*(f"pink {ratio:g} dB" for ratio in sorted(ratios)), "clean"]


def plot(axes: Axes, measured: pd.DataFrame, slot: int, label: str, line: str) -> None:
    """Plot points with their intervals, in the order of their places."""
    found = measured.sort_values("place", kind="stable")
    low, high = found.low.fillna(found.value), found.high.fillna(found.value)
    errors = [found.value - low, high - found.value]
    style = {"color": PALETTE[slot][0], "marker": MARKERS[slot], "linestyle": line}
    axes.errorbar(found.place, found.value, errors, capsize=3, label=label, **style)


if __name__ == "__main__":
    models, out = Path("speechssl/models/people-en"), Path("docs/results.svg")
    if len(sys.argv) > 1:
        models = Path(sys.argv[1])
    if len(sys.argv) > 2:
        out = Path(sys.argv[2])
    draw(read_scores(models), out)
    print(f"{out}: FF1 of {', '.join(SYSTEMS)}")
