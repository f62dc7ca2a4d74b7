"""Draw the figures of SUPERB from the artefacts of a run.

They are layer weights, confusion matrices, DET curves, who spoke when, and learning rates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import norm

from speechssl.data.superb import Turn
from speechssl.report.figures import (
    Drawing,
    add_legend,
    line_style,
    new_axes,
    save_svg,
    shade,
    shorten,
)
from speechssl.report.scores import SYSTEMS
from speechssl.report.superb_artefacts import (
    MAIN,
    TASKS,
    Artefacts,
    Confusion,
    Errors,
    Head,
    Timeline,
)
from speechssl.results import INK, MUTED, metric_name, unit
from speechssl.superb.tasks.diarisation import matching_names
from speechssl.superb.tasks.verification import ErrorCurve

PRINTED, CLASSES = 14, 60  # classes up to which cells have their numbers; classes that are shown
DET_TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent


def draw_layers(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw a panel an encoder, a line a task, a column a hidden state (CNN output first), a mean
    over seeds. QbE, which has no weights, has a mark at the layer that dev chose."""
    panels: dict[str, dict[str, np.ndarray]] = {}
    for encoder in slots:
        for task in TASKS:
            weights = [
                h.layer_weights for h in artefacts.heads if (h.encoder, h.task) == (encoder, task)
            ]
            known = [w for w in weights if w and len(w) > 1]
            if known:
                panels.setdefault(encoder, {})[task] = np.mean(known, axis=0)
        for details in artefacts.of_task("qbe"):
            layers = details.detail.layers
            if details.encoder == encoder and encoder in panels and len(layers) > 1:
                chosen = np.full(len(layers), np.nan)
                chosen[np.argmax(layers)] = 0
                panels[encoder]["qbe"] = chosen
    if not panels:
        return None
    heights = [len(tasks) + 2.5 for tasks in panels.values()]
    with new_axes(len(panels), 1, 0.24 * sum(heights) / len(panels), height_ratios=heights) as (
        figure,
        axes,
    ):
        for ax, (encoder, tasks) in zip(axes[:, 0], panels.items(), strict=True):
            states = max(map(len, tasks.values()))
            shares = np.full((len(tasks), states), np.nan)
            for y, line in enumerate(tasks.values()):
                shares[y, : len(line)] = line
            texts = []
            for line in shares:
                texts.append(["" if np.isnan(v) else f"{100 * v:.0f}" if v else "✓" for v in line])
            most = np.nanmax(shares)
            names = ["CNN", *map(str, range(1, states))]
            shade(ax, shares / most, [SYSTEMS[task] for task in tasks], names, texts)
            ax.set_title(encoder, loc="left", fontsize=9)
        svg = save_svg(figure)
    caption = (
        "Percent of each hidden state in the sum that a head sees, a mean over seeds; CNN is the "
        "output of the convolutions. QbE has no weights: its mark is the layer that dev chose."
    )
    return Drawing("Which layers the tasks use", svg, caption)


# ---- confusions


def draw_confusions(artefacts: Artefacts) -> list[Drawing]:
    """Draw for every task that classifies a matrix for every encoder and slot, two abreast."""
    caption = "A line is what it was, a column what it was taken for; percent of the line."
    drawings = []
    for task in TASKS:
        matrices = {}
        for details in artefacts.of_task(task):
            slots = details.detail.confusion
            for slot, confusion in slots.items():
                name = f"{details.encoder}, {slot}" if len(slots) > 1 else details.encoder
                matrices[name] = confusion_shares(confusion)
        if not matrices:
            continue
        rows = -(-len(matrices) // 2)
        with new_axes(rows, 2, 3.9) as (figure, axes):
            for ax in axes.ravel()[len(matrices) :]:
                ax.remove()
            for ax, (name, shares) in zip(axes.ravel(), matrices.items(), strict=False):
                names = [shorten(str(c), 13) for c in shares.index]
                texts = []
                if len(names) <= PRINTED:
                    for line in shares.to_numpy():
                        texts.append([f"{100 * v:.0f}" if v >= 0.005 else "" for v in line])
                shade(ax, np.sqrt(shares.to_numpy()), names, names, texts, upright=True)
                ax.set_title(shorten(name, 44), loc="left", fontsize=8.5)
            title = f"What was taken for what: {SYSTEMS[task]}"
            drawings.append(Drawing(title, save_svg(figure), caption))
    return drawings


def confusion_shares(confusion: Confusion) -> pd.DataFrame:
    """Return for each true class how its recordings were classified; zeros for one without any. Of
    too many classes those with the most errors are kept."""
    counts = pd.DataFrame(confusion.counts, confusion.classes, confusion.classes)
    totals = counts.sum(axis=1).to_numpy()
    shares = counts / np.maximum(totals, 1)[:, None]
    if len(counts) > CLASSES:
        errors = totals + counts.sum().to_numpy() - 2 * np.diag(counts)
        kept = np.sort(np.argsort(-errors, kind="stable")[:CLASSES])
        shares = shares.iloc[kept, kept]
    return shares


# ---- detection error trade-off


def draw_det(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw misses against false alarms on normal-deviate axes, on which scores that are normal for
    both kinds of trial give a straight line; None without any."""
    curves = {d.encoder: d.detail.det for d in artefacts.of_task("asv") if d.detail.det}
    if not curves:
        return None
    with new_axes(1, 1, 4.6) as (figure, ((ax,),)):
        for encoder, errors in curves.items():
            curve = error_curve(errors)
            style = line_style(slots[encoder])
            ax.plot(curve.false_alarms, curve.misses, color=style["color"])
            name = f"{shorten(encoder)}: EER {100 * curve.eer:.1f} %"
            ax.plot(curve.eer, curve.eer, linestyle="none", label=name, **style)
        ax.axline((0.1, 0.1), (0.2, 0.2), color=MUTED, linewidth=0.9, linestyle=":")
        ticks = [percent / 100 for percent in DET_TICKS]
        labels = [f"{percent:g}" for percent in DET_TICKS]
        ax.set_xscale("function", functions=(deviate, norm.cdf))
        ax.set_yscale("function", functions=(deviate, norm.cdf))
        ax.set_xticks(ticks, labels)
        ax.set_yticks(ticks, labels)
        ax.set(xlim=(0.001, 0.8), ylim=(0.001, 0.8), box_aspect=1)
        ax.set_xlabel("False alarms: impostors let in (%)")
        ax.set_ylabel("Misses: speakers turned away (%)")
        figure.legend(loc="outside right upper")
        svg = save_svg(figure)
    caption = "Both axes are normal deviates; the marks are the equal error rates."
    return Drawing("Speaker verification: misses against false alarms", svg, caption)


def error_curve(errors: Errors) -> ErrorCurve:
    """Sort the points from the threshold that rejects most, between the two ends of any curve."""
    pairs = zip(errors.false_alarms, errors.misses, strict=True)
    points = sorted(pairs, key=lambda point: (point[0], -point[1]))
    alarms, misses = np.array([(0.0, 1.0), *points, (1.0, 0.0)]).T
    return ErrorCurve(alarms, misses)


def deviate(shares: np.ndarray) -> np.ndarray:
    """Return quantiles of the normal distribution, finite for shares of 0 and 1 too."""
    return np.asarray(norm.ppf(np.clip(shares, 1e-5, 1 - 1e-5)))


# ---- who spoke when


def draw_timelines(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw for every speaker of a recording the true turns, and below them those that each
    encoder's head predicted; None without any."""
    recordings: dict[str, dict[str, Timeline]] = {}
    for details in artefacts.of_task("sd"):
        if details.detail.timeline:
            of_recording = recordings.setdefault(details.detail.timeline.id, {})
            of_recording[details.encoder] = details.detail.timeline
    if not recordings:
        return None
    lanes = {name: turns_by_speaker(lines) for name, lines in recordings.items()}
    heights = [len(some) + 4 for some in lanes.values()]
    with new_axes(len(lanes), 1, 0.2 * sum(heights) / len(lanes), height_ratios=heights) as (
        figure,
        axes,
    ):
        for ax, (name, some) in zip(axes[:, 0], lanes.items(), strict=True):
            for y, ((_, encoder), turns) in enumerate(some.items()):
                spans = [(t.start, t.end - t.start) for t in turns]
                colour = line_style(slots[encoder])["color"] if encoder in slots else INK
                ax.broken_barh(spans, (y - 0.4, 0.8), color=colour)
            ax.set_yticks(range(len(some)), [f"{who}: {shorten(by, 22)}" for who, by in some])
            ax.set_ylim(len(some) - 0.5, -0.5)
            ax.set_xlim(0, next(iter(recordings[name].values())).seconds)
            ax.set_title(name, loc="left", fontsize=9)
            ax.set_xlabel("Seconds")
        svg = save_svg(figure)
    caption = "The first recording of the test set: the truth, and what each head predicted."
    return Drawing("Diarisation: who spoke when", svg, caption)


def turns_by_speaker(lines: Mapping[str, Timeline]) -> dict[tuple[str, str], list[Turn]]:
    """Sort the turns of one recording by speaker and by whose they are, "truth" or an encoder.

    Predicted speakers are matched as the error rate matches them, since a head's names mean
    nothing; of those that match nobody the names begin with "nobody".
    """
    truth = next(iter(lines.values())).truth
    speakers = list(dict.fromkeys(turn.speaker for turn in truth))
    lanes: dict[tuple[str, str], list[Turn]] = {}
    for speaker in speakers:
        lanes[speaker, "truth"] = [turn for turn in truth if turn.speaker == speaker]
        for encoder in lines:
            lanes[speaker, encoder] = []
    for encoder, line in lines.items():
        names = matching_names(truth, line.predicted)
        for turn in line.predicted:
            speaker = names.get(turn.speaker, f"nobody {turn.speaker}")
            lanes.setdefault((speaker, encoder), []).append(turn)
    return lanes


# ---- learning rates


def draw_sweeps(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw the score on dev by learning rate, a panel a task, a line an encoder, of the first seed
    that has a sweep; None without a sweep of two rates."""
    panels: dict[str, dict[str, Head]] = {}
    for head in sorted(artefacts.heads, key=lambda head: head.seed):
        if len(longest_trials(head)) > 1:
            panels.setdefault(head.task, {}).setdefault(head.encoder, head)
    tasks = [task for task in TASKS if task in panels]
    if not tasks:
        return None
    columns = min(len(tasks), 4)
    rows = -(-len(tasks) // columns)
    with new_axes(rows, columns, 1.9) as (figure, axes):
        for ax in axes.ravel()[len(tasks) :]:
            ax.remove()
        for ax, task in zip(axes.ravel(), tasks, strict=False):
            for encoder in [name for name in slots if name in panels[task]]:
                head = panels[task][encoder]
                rates, values = zip(*longest_trials(head).items(), strict=True)
                style = line_style(slots[encoder])
                ax.plot(rates, values, **style, linewidth=1.2, label=encoder)
                if head.default_learning_rate:
                    ax.axvline(
                        head.default_learning_rate, color=MUTED, linestyle=":", linewidth=0.9
                    )
                if head.learning_rate in rates:
                    chosen = values[rates.index(head.learning_rate)]
                    ring = {"markerfacecolor": "none", "markersize": 9, "linestyle": "none"}
                    ax.plot(head.learning_rate, chosen, "o", color=INK, **ring)
            tried = sorted(
                {rate for head in panels[task].values() for rate in longest_trials(head)}
            )
            ax.set_xscale("log")
            ax.set_xticks(tried, [f"{rate:g}" for rate in tried])
            ax.minorticks_off()
            ax.margins(0.12)
            name = f"{metric_name(MAIN[task])} ({unit(MAIN[task]) or 'own scale'})"
            ax.set_title(f"{SYSTEMS[task]}\n{name}", loc="left", fontsize=8)
            ax.tick_params(labelsize=7)
        add_legend(figure)
        svg = save_svg(figure)
    caption = "Ringed: the learning rate that dev chose. Dotted: the default."
    return Drawing("Score on dev by learning rate", svg, caption)


def longest_trials(head: Head) -> dict[float, float]:
    """Return for every learning rate the value when it had been trained longest, without those
    that broke down."""
    trials = sorted(head.sweep or (), key=lambda trial: trial.steps)
    values = {trial.learning_rate: trial.value for trial in trials}
    return {
        rate: value
        for rate, value in sorted(values.items())
        if value is not None and value == value
    }
