"""README's picture: FF1 against SNR, and against the recogniser's errors, from the scores in the cards of the set that ships.

python recipes/picture.py [SET] [OUT]    default: people-en, docs/results.svg
"""

import re
import sys
from pathlib import Path

from speechssl.io import read_json
from speechssl.report.figures import MARKERS, PALETTE
from speechssl.results import save_figure, styled

SYSTEMS = ("dual", "cascade-ctc", "speechbert")  # in the order of pages, and so in their colours
WHISPERS = ("cascade-whisper-tiny.en", "cascade-whisper-base")  # beside their own WER
Scores = dict[tuple[str, str, str], dict[str, float]]  # by system, metric and condition


def scores_of(models: Path) -> Scores:
    """What `recipes/ship.py scores` put into the cards: "dual ff1, pink 5 dB"."""
    found: Scores = {}
    for card in sorted(models.glob("*/card.json")):
        for key, score in read_json(card).get("scores", {}).items():
            system, metric, condition = re.fullmatch(r"(\S+) (\S+), (.+)", key).groups()
            found[system, metric, condition] = score
    return found


def draw(scores: Scores, out: Path) -> None:
    wer = {where: score["value"] for (system, metric, where), score in scores.items() if (system, metric) == ("cascade-ctc", "wer")}
    levels = sorted(float(found[1]) for where in wer if (found := re.fullmatch(r"pink (\S+) dB", where)))
    by_level = [*(f"pink {level:g} dB" for level in levels), "clean"]
    with styled(svg_hashsalt="results", svg_fonttype="path", font_size=10) as figure_class:
        figure = figure_class(figsize=(9, 3.4), facecolor="white", layout="constrained")
        by_snr, by_errors = figure.subplots(1, 2, sharey=True)
        for slot, system in enumerate(SYSTEMS):
            style = {"color": PALETTE[slot][0], "marker": MARKERS[slot], "capsize": 3, "label": system}
            for axes, conditions, places, line in (
                (by_snr, by_level, [i + 0.08 * (slot - 1) for i in range(len(by_level))], "-"),
                (by_errors, sorted(wer, key=wer.__getitem__), sorted(wer.values()), "none"),
            ):
                cells = [scores[system, "ff1", where] for where in conditions]
                values = [cell["value"] for cell in cells]
                errors = [[cell["value"] - cell["low"] for cell in cells], [cell["high"] - cell["value"] for cell in cells]]
                axes.errorbar(places, values, errors, linestyle=line, **style)
        for slot, system in enumerate(WHISPERS, len(SYSTEMS)):
            style = {"color": PALETTE[slot][0], "marker": MARKERS[slot], "capsize": 3, "label": system, "linestyle": "none"}
            where = sorted(c for (s, metric, c) in scores if (s, metric) == (system, "ff1"))
            cells = [scores[system, "ff1", c] for c in where]
            errors = [[cell["value"] - cell["low"] for cell in cells], [cell["high"] - cell["value"] for cell in cells]]
            places, values = ([scores[system, metric, c]["value"] for c in where] for metric in ("wer", "ff1"))
            by_errors.errorbar(places, values, errors, **style)
        by_snr.set_xticks(range(len(by_level)), [*(f"{level:g}" for level in levels), "clean"])
        by_snr.set_xlabel("← more noise\N{EM SPACE}SNR of pink noise (dB)\N{EM SPACE}less noise →")
        by_snr.set_ylabel("FF1 (%)")
        by_snr.set_ylim(0, 100)
        by_errors.set_xlabel("WER of the recogniser in the same condition (%)")
        most = [score["value"] for (_, metric, _), score in scores.items() if metric == "wer"]
        by_errors.set_xlim(0, max(100, max(most) // 10 * 10 + 10))
        figure.legend(*by_errors.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        save_figure(figure, out)


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    models, out = (given + [Path("speechssl/models/people-en"), Path("docs/results.svg")][len(given) :])[:2]
    draw(scores_of(models), out)
    print(f"{out}: FF1 of {', '.join(SYSTEMS)}")
