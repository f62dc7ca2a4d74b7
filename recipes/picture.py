"""README's picture: FF1 against SNR, and against the recogniser's errors, from the scores in the
cards of the set that ships.

python recipes/picture.py [SET] [OUT]    default: people-en, docs/results.svg
"""

import re
import sys
from pathlib import Path

from matplotlib.axes import Axes

from speechssl.artifacts import read_json
from speechssl.report.figures import MARKERS, PALETTE
from speechssl.results import save_figure, style_figures

# in the order of their colours
SYSTEMS = ("dual", "cascade-ctc", "speechbert", "cascade-ctc-greedy")
# beside their own WER
OWN_ERRORS = ("cascade-ctc-greedy", "cascade-whisper-tiny.en", "cascade-whisper-base")
Scores = dict[tuple[str, str, str], dict[str, float]]  # by system, metric and condition


def scores_of(models: Path) -> Scores:
    """Return what `recipes/ship.py scores` put into the cards: "dual ff1, pink 5 dB"."""
    found: Scores = {}
    for card in sorted(models.glob("*/card.json")):
        for key, score in read_json(card).get("scores", {}).items():
            system, metric, condition = re.fullmatch(r"(\S+) (\S+), (.+)", key).groups()
            found[system, metric, condition] = score
    return found


def draw(scores: Scores, out: Path) -> None:
    """Draw FF1 by the SNR of pink noise on the left; on the right by the errors of cascade-ctc, or
    of the recogniser's own."""
    with style_figures(svg_hashsalt="results", svg_fonttype="path", font_size=10) as figure_class:
        figure = figure_class(figsize=(9, 3.4), facecolor="white", layout="constrained")
        by_snr, by_errors = figure.subplots(1, 2, sharey=True)
        levels = conditions_by_snr(scores)
        for slot, system in enumerate(SYSTEMS):
            measured = [i for i, where in enumerate(levels) if (system, "ff1", where) in scores]
            places = [i + 0.08 * (slot - 1) for i in measured]
            plot(
                by_snr,
                places,
                [scores[system, "ff1", levels[i]] for i in measured],
                slot,
                system,
                "-",
            )
        for slot, system in enumerate((*SYSTEMS, *OWN_ERRORS[1:])):
            errors_of = system if system in OWN_ERRORS else "cascade-ctc"
            measured = [
                c
                for (s, metric, c) in scores
                if (s, metric) == (system, "ff1") and (errors_of, "wer", c) in scores
            ]
            if not measured:
                continue
            places = [scores[errors_of, "wer", where]["value"] for where in measured]
            plot(
                by_errors,
                places,
                [scores[system, "ff1", where] for where in measured],
                slot,
                system,
                "none",
            )
        by_snr.set_xticks(
            range(len(levels)),
            [*(level.removeprefix("pink ").removesuffix(" dB") for level in levels)],
        )
        by_snr.set_xlabel("← more noise\N{EM SPACE}SNR of pink noise (dB)\N{EM SPACE}less noise →")
        by_snr.set_ylabel("FF1 (%)")
        by_snr.set_ylim(0, 100)
        by_errors.set_xlabel("WER of the recogniser in the same condition (%)")
        most = [score["value"] for (_, metric, _), score in scores.items() if metric == "wer"]
        by_errors.set_xlim(0, max(100, max(most) // 10 * 10 + 10))
        figure.legend(*by_errors.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        save_figure(figure, out)


def conditions_by_snr(scores: Scores) -> list[str]:
    """List pink noise from the loudest to the faintest, then clean speech, as far as cascade-ctc
    was measured."""
    noisy = (
        re.fullmatch(r"pink (\S+) dB", where)
        for (system, metric, where) in scores
        if (system, metric) == ("cascade-ctc", "wer")
    )
    return [
        *(f"pink {level:g} dB" for level in sorted(float(match[1]) for match in noisy if match)),
        "clean",
    ]


def plot(
    axes: Axes, places: list[float], cells: list[dict], slot: int, label: str, line: str
) -> None:
    """Plot points with their intervals, in the order of their places."""
    order = sorted(range(len(places)), key=places.__getitem__)
    cells = [cells[i] for i in order]
    values = [cell["value"] for cell in cells]
    ends = [
        (cell["low"], cell["high"]) if cell["low"] is not None else (cell["value"],) * 2
        for cell in cells
    ]
    errors = [[value - low for value, (low, _) in zip(values, ends, strict=True)]]
    errors.append([high - value for value, (_, high) in zip(values, ends, strict=True)])
    style = {
        "color": PALETTE[slot][0],
        "marker": MARKERS[slot],
        "capsize": 3,
        "label": label,
        "linestyle": line,
    }
    axes.errorbar([places[i] for i in order], values, errors, **style)


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    models, out = (
        given + [Path("speechssl/models/people-en"), Path("docs/results.svg")][len(given) :]
    )[:2]
    draw(scores_of(models), out)
    print(f"{out}: FF1 of {', '.join(SYSTEMS)}")
