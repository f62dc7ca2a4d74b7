"""The figures of SUPERB's speaker tasks: the DET curve of verification, and who spoke when."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from speechssl.report.figures import INCHES, INK, MUTED, Drawing, svg_of
from speechssl.report.robustness_figures import NAMES, shortened
from speechssl.report.series import Series
from speechssl.report.superb import Errors, Timeline, Turn
from speechssl.report.superb_figures import axes_at, blank, handle
from speechssl.report.superb_rows import Superb

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DET_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent
LANE = 0.2  # inches: one line of a timeline


# ---- DET -----------------------------------------------------------------------------------------


def det_curves(found: Superb) -> Drawing | None:
    """Misses against false alarms on normal-deviate axes, with the equal error rate of each encoder marked; None without any."""
    lines = [(e, errors) for e in found.encoders for errors in found.artefacts.errors if errors.encoder == e.label]
    if not lines:
        return None
    with blank(4.5) as figure:
        ax = axes_at(figure, 0.75, 0.55, 3.85, 3.85)
        for series, errors in lines:
            _draw_det(ax, series, errors)
        _det_axes(ax, lines)
        handles = [handle(e, f"{shortened(e.label, 34)}: EER {100 * equal_error(x):.1f} %") for e, x in lines]
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(4.75 / INCHES, 0.985), labelspacing=0.8)
        svg = svg_of(figure, "det")
    told = "; ".join(f"{e.label} {100 * equal_error(x):.1f} %" for e, x in lines)
    return Drawing(svg, f"Misses against false alarms of speaker verification. Equal error rates: {told}.")


def equal_error(errors: Errors) -> float:
    """The share at which misses equal false alarms, interpolated between the two thresholds on either side."""
    points = sorted(zip(errors.false_alarms, errors.misses, strict=True), key=lambda p: (p[0], -p[1]))
    before = (0.0, 1.0)
    for alarm, miss in [*points, (1.0, 0.0)]:
        if alarm >= miss:
            gap, past = before[1] - before[0], alarm - miss
            part = gap / (gap + past) if gap + past else 0.0
            return before[0] + part * (alarm - before[0])
        before = (alarm, miss)
    return 0.5  # not reached: the last point is (1, 0)


def deviate(share: float) -> float:
    """The quantile of the normal distribution: a score that is normal for both kinds of trial gives a straight line."""
    return NormalDist().inv_cdf(min(max(share, 1e-5), 1 - 1e-5))


def _draw_det(ax: Axes, series: Series, errors: Errors) -> None:
    points = sorted(zip(errors.false_alarms, errors.misses, strict=True), key=lambda p: (p[0], -p[1]))
    inner = [(deviate(a), deviate(m)) for a, m in points if 0 < a < 1 and 0 < m < 1]
    ax.plot([x for x, _ in inner], [y for _, y in inner], color=series.colour, linewidth=1.6)
    place = deviate(equal_error(errors))
    ax.plot([place], [place], marker=series.marker, color=series.colour, markersize=7, markeredgecolor=INK, markeredgewidth=0.8)


def _det_axes(ax: Axes, lines: Sequence[tuple[Series, Errors]]) -> None:
    """From just below the least error that is drawn to just above the greatest equal one."""
    shares = [x for _, e in lines for a, m in zip(e.false_alarms, e.misses, strict=True) if 0 < a < 1 and 0 < m < 1 for x in (a, m)]
    rates = [equal_error(e) for _, e in lines]
    low = deviate(max(0.0007, 0.7 * min([*shares, *(r for r in rates if r), 0.01])))
    high = deviate(min(0.9, max(0.5, 1.6 * max(rates))))
    ax.plot([low, high], [low, high], color=MUTED, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=1)
    ticks = [t for t in DET_TICKS if low <= deviate(t / 100) <= high]
    places, labels = [deviate(t / 100) for t in ticks], [f"{t:g}" for t in ticks]
    ax.set_xticks(places, labels)
    ax.set_yticks(places, labels)
    ax.grid(True, axis="both")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_xlabel("False alarms: impostors let in (%)")
    ax.set_ylabel("Misses: speakers turned away (%)")


# ---- diarisation ---------------------------------------------------------------------------------


def timelines(found: Superb) -> Drawing | None:
    """Who spoke when: for every speaker the truth, and below it what each encoder's head said of the same one; None without any."""
    groups: dict[str, list[tuple[Series, Timeline]]] = {}
    for encoder in found.encoders:
        for line in found.artefacts.timelines:
            if line.encoder == encoder.label:
                groups.setdefault(line.id, []).append((encoder, line))
    if not groups:
        return None
    lanes = {name: _lanes(lines) for name, lines in groups.items()}
    heights = [0.95 + sum(len(some) * LANE + 0.16 for _, some in speakers) for speakers in lanes.values()]
    with blank(sum(heights)) as figure:
        top = sum(heights)
        for (name, speakers), height in zip(lanes.items(), heights, strict=True):
            _timeline_panel(figure, name, speakers, groups[name][0][1].seconds, top, height)
            top -= height
        svg = svg_of(figure, "timeline")
    told = [
        f"{name}, {speaker}, {label}: {_turns_told(turns)}"
        for name, s in lanes.items()
        for speaker, x in s
        for label, _, turns in x
    ]
    return Drawing(svg, f"Who spoke when, in seconds. {'; '.join(told)}.")


Lane = tuple[str, Series | None, Sequence[Turn]]  # label, whose (None: the truth), when


def _lanes(lines: Sequence[tuple[Series, Timeline]]) -> list[tuple[str, list[Lane]]]:
    """By speaker. A speaker that a head made up, or one too many, has lanes without truth."""
    truth = lines[0][1].truth
    speakers = list(dict.fromkeys(t.speaker for t in truth))
    matched = [(encoder, match(truth, line.said), line.said) for encoder, line in lines]
    further = max((len(set(found.values()) - set(speakers)) for _, found, _ in matched), default=0)
    made = []
    for name in [*speakers, *(f"nobody {i + 1}" for i in range(further))]:
        some: list[Lane] = [("truth", None, [t for t in truth if t.speaker == name])]
        some += [(e.label, e, [t for t in said if found.get(t.speaker) == name]) for e, found, said in matched]
        made.append((name, some))
    return made


def match(truth: Sequence[Turn], said: Sequence[Turn]) -> dict[str, str]:
    """Which true speaker each speaker of a head stands for: greedily by the time that they share, since its names mean nothing."""
    pairs = {(s.speaker, t.speaker): 0.0 for s in said for t in truth}
    for s in said:
        for t in truth:
            pairs[s.speaker, t.speaker] += max(0.0, min(s.end, t.end) - max(s.start, t.start))
    found: dict[str, str] = {}
    for (mine, real), shared in sorted(pairs.items(), key=lambda p: -p[1]):
        if shared > 0 and mine not in found and real not in found.values():
            found[mine] = real
    left = [t for t in dict.fromkeys(t.speaker for t in truth) if t not in found.values()]
    strangers = (f"nobody {i + 1}" for i in range(len(said)))
    return found | {s: left.pop(0) if left else next(strangers) for s in dict.fromkeys(t.speaker for t in said) if s not in found}


def _timeline_panel(figure: Figure, name: str, speakers: Any, seconds: float, top: float, height: float) -> None:
    depth = height - 0.95
    ax = axes_at(figure, NAMES + 0.55, top - 0.4 - depth, INCHES - NAMES - 0.7, depth)
    y, ticks = 0.0, []
    for speaker, lanes in speakers:
        ax.text(
            -0.235, y + LANE * len(lanes) / 2, shortened(speaker, 8), transform=ax.get_yaxis_transform(), fontsize=8.5, va="center"
        )
        for label, series, turns in lanes:
            spans = [(t.start, t.end - t.start) for t in turns]
            ax.broken_barh(spans, (y + 0.03, LANE - 0.06), color=INK if series is None else series.colour, linewidth=0)
            ticks.append((y + LANE / 2, shortened(label, 22)))
            y += LANE
        y += 0.16
    ax.set_yticks([place for place, _ in ticks], [label for _, label in ticks])
    ax.set_xlim(0, seconds)
    ax.set_ylim(y - 0.08, -0.06)
    ax.grid(True, axis="x")
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", labelsize=7.5)
    ax.set_xlabel("Seconds")
    figure.text(0.05 / INCHES, (top - 0.16) / figure.get_figheight(), name, fontsize=9, fontweight="bold", va="center")


def _turns_told(turns: Sequence[Turn]) -> str:
    return ", ".join(f"{t.start:.1f} to {t.end:.1f}" for t in turns) or "never"
