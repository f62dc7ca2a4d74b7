"""The section of SUPERB on a page: scores (clean speech, published, noise, learning rates), and
figures from what lies beside the rows: layer weights, confusion matrices, DET curves, who spoke
when, and sweeps of learning rates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from speechssl.artifacts import read_json
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
from speechssl.report.page import Grid, Section, pivot_scores, text_grid
from speechssl.report.robustness import GROUPS, choose_nearest
from speechssl.report.scores import (
    SYSTEMS,
    arrange,
    assign_slots,
    describe_scores,
    print_value,
)
from speechssl.results import (
    DEFAULT,
    INK,
    LOWER_IS_BETTER,
    MUTED,
    PUBLISHED_SUPERB,
    Row,
    Table,
    metric_name,
    published,
    published_encoders,
    unit,
)
from speechssl.schema import convert
from speechssl.superb.tasks.diarisation import matching_names
from speechssl.superb.tasks.verification import ErrorCurve

ASPECTS = {  # as in the paper of the benchmark, and their tasks in the order of the page
    "Content": ("pr", "asr", "ks", "qbe"),
    "Speaker": ("sid", "asv", "sd"),
    "Semantics": ("ic", "sf"),
    "Para\u00adlinguistics": ("er",),
    "Generation": ("se", "ss"),
}
ASPECT = {task: aspect for aspect, tasks in ASPECTS.items() for task in tasks}
TASKS = tuple(ASPECT)
ORDER = (
    *(("pr", "per"), ("asr", "wer"), ("asr", "wer_lm"), ("ks", "acc"), ("qbe", "mtwv")),
    *(("sid", "acc"), ("asv", "eer"), ("sd", "der"), ("ic", "acc"), ("sf", "slot_f1")),
    *(("sf", "slot_cer"), ("er", "acc"), ("se", "pesq"), ("se", "stoi"), ("se", "si_sdr")),
    ("ss", "si_sdri"),
)
MAIN = {task: metric for task, metric in reversed(ORDER)}  # what heads are chosen by
# tasks that no robustness grid has
OWN = frozenset({"pr", "qbe", "asv", "sd", "sf", "er", "se", "ss"})
RATIO = "ratio_cached"
# below the name of the task
SHORT = {"acc": "Acc", "wer_lm": "WER+LM", "slot_f1": "F1", "slot_cer": "CER", "min_dcf": "minDCF"}
BESIDE = ("atwv", "min_dcf")  # measures that the benchmark does not list
AGAIN = "remove it and run `speechssl superb run` again"
PRINTED, CLASSES = 14, 60  # classes up to which cells have their numbers; classes that are shown
DET_TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent


# ---- what a run left beside its rows: cards of heads, and details


@dataclass(frozen=True)
class SweepTrial:
    """One learning rate of a sweep. value: the task's first metric on dev; None where training
    broke down."""

    learning_rate: float
    value: float | None
    steps: int


@dataclass(frozen=True)
class Head:
    """The card of a head. layer_weights: the share of each hidden state, CNN output first; they
    sum to 1."""

    layer_weights: list[float] | None = None
    learning_rate: float | None = None
    default_learning_rate: float | None = None
    sweep: list[SweepTrial] | None = None
    encoder: str = ""
    task: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Confusion:
    """counts: a line a true class, predictions of each class in it."""

    classes: list[str | int]
    counts: list[list[int]]


@dataclass(frozen=True)
class Errors:
    """Shares of impostors accepted and of speakers rejected, threshold by threshold."""

    false_alarms: list[float]
    misses: list[float]


@dataclass(frozen=True)
class Timeline:
    """The turns of speakers in one recording, in truth and as predicted."""

    id: str
    seconds: float
    truth: list[Turn]
    predicted: list[Turn]


@dataclass(frozen=True)
class Recognised:
    """A recording of the test set, and what a head made of it: a text, or phones one by one."""

    id: str
    truth: str | list[str]
    predicted: str | list[str]


@dataclass(frozen=True)
class Detail:
    """confusion: by slot; layers: of QbE, MTWV (percent) of every layer on dev."""

    confusion: dict[str, Confusion] = field(default_factory=dict)
    det: Errors | None = None
    timeline: Timeline | None = None
    layers: list[float] = field(default_factory=list)
    examples: list[Recognised] = field(default_factory=list)


@dataclass(frozen=True)
class Details:
    """The details of one head on the test set."""

    encoder: str
    task: str
    detail: Detail


@dataclass(frozen=True)
class Artefacts:
    heads: Sequence[Head] = ()
    details: Sequence[Details] = ()

    def __bool__(self) -> bool:
        return bool(self.heads or self.details)

    def of_task(self, task: str) -> list[Details]:
        return [d for d in self.details if d.task == task]


def read_artefacts(out: Path, rows: Iterable[Row] = ()) -> Artefacts:
    """Read all artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and
    details/<encoder>/<task>.json. rows: name the encoders, whose folders may have simpler names.
    Raises InputError naming the first damaged file.
    """

    def simplify(name: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    names = {simplify(row.encoder): row.encoder for row in rows}
    heads, details = [], []
    for path in sorted(out.glob("heads/**/seed-*/card.json")):
        parts = [x for x in path.relative_to(out).parts[1:-1] if not x.startswith("fold-")]
        *folders, task, name_of_seed = parts
        encoder = "/".join(folders)
        name = names.get(simplify(encoder), encoder)
        head = convert(read_json(path), Head, path, AGAIN)
        seed = int(name_of_seed.removeprefix("seed-"))
        heads.append(replace(head, encoder=name, task=task, seed=seed))
    for path in sorted(out.glob("details/**/*.json")):
        details.append(convert(read_json(path), Details, path, AGAIN))
    order = list(names.values())
    details.sort(key=lambda d: order.index(d.encoder) if d.encoder in order else len(order))
    return Artefacts(heads, details)


# ---- rows


def is_superb(rows: Iterable[Row], artefacts: Artefacts) -> bool:
    """Tell SUPERB from a grid, which may have keywords, intents, speakers and words alone."""
    if artefacts:
        return True
    return any(
        r.name in OWN or r.metric in (RATIO, "wer_lm") or r.metric.endswith(DEFAULT) for r in rows
    )


def is_shown(row: Row) -> bool:
    """Return whether the tables and figures of SUPERB show a row, so that no others need to."""
    noisy = row.condition.startswith(GROUPS)
    return (row.name in TASKS or row.metric == RATIO) and (row.condition == "clean" or noisy)


def arrange_superb(rows: Iterable[Row]) -> pd.DataFrame:
    """Arrange rows by encoder, tasks and metrics in the order of the benchmark, with what stands
    above the columns: aspect and head."""
    scores = arrange(rows, by="encoder")
    known = list(ORDER)
    rank, heads = [], []
    for task, metric in zip(scores.system, scores.metric, strict=True):
        place = known.index((task, metric)) if (task, metric) in known else len(known)
        rank.append((TASKS.index(task) if task in TASKS else len(TASKS), place, metric))
        arrow = "↓" if metric in LOWER_IS_BETTER else "↑"
        name = "QbE" if task == "qbe" else task.upper()
        heads.append(f"{name}\n{SHORT.get(metric, metric_name(metric))}\u00a0{arrow}")
    scores = scores.assign(head=heads, aspect=scores.system.map(ASPECT))
    order = sorted(range(len(scores)), key=rank.__getitem__)
    return scores.iloc[order].reset_index(drop=True)


def superb_section(rows: Sequence[Row], artefacts: Artefacts) -> Section:
    """Make the section of the rows that `is_shown` says it shows."""
    scores = arrange_superb(rows)
    heads, details = artefacts.heads, artefacts.details
    encoders = [x.encoder for x in heads] + [x.encoder for x in details]
    slots = assign_slots([*scores.label, *encoders])
    return Section(
        "SUPERB",
        "",
        superb_grids(scores, artefacts),
        [
            draw_layers(artefacts, slots),
            *draw_confusions(artefacts),
            draw_det(artefacts, slots),
            draw_timelines(artefacts, slots),
            draw_sweeps(artefacts, slots),
        ],
    )


# ---- tables


def superb_grids(scores: pd.DataFrame, artefacts: Artefacts) -> list[Grid]:
    """Make the tables of clean speech, published scores, noise and learning rates, the ten tasks
    apart from the extension; the gain by caching, and recognised texts."""
    ratios = scores[scores.metric == RATIO]
    default = scores.metric.str.endswith(DEFAULT)
    measured = scores[(scores.metric != RATIO) & ~default]
    extension = measured.system.isin(("se", "ss"))
    beside = measured.metric.isin(BESIDE)
    grids = []
    for more, part in (
        ("", measured[~extension & ~beside]),
        (", the extension", measured[extension]),
    ):
        grids.append(_clean_grid(f"Clean speech{more}", part))
        grids.append(_published_grid(part))
        grids.append(_noise_grid(f"Clean, seen and unseen noise{more}", part))
    grids.append(_clean_grid("Clean speech, other measures of the same tasks", measured[beside]))
    grids.append(_tuned_grid(measured, scores[default], artefacts))
    faster = [
        (SYSTEMS.get(s.system, s.system), s.encoder, f"{s.value:.2f} ×")
        for s in ratios.itertuples()
    ]
    texts = []
    for task in TASKS:
        for d in artefacts.of_task(task):
            for e in d.detail.examples:
                both = [t if isinstance(t, str) else " ".join(t) for t in (e.truth, e.predicted)]
                texts.append((SYSTEMS[task], d.encoder, both[0], both[1] or "–"))
    columns = ("Task", "Encoder", "Spoken", "What was recognised")
    cached = (
        "Time of training a head with the encoder in the loop, over the time from hidden states "
        "computed once."
    )
    recognised = "The first recordings of the test set."
    tables = [
        Table("Features once", ("Task", "Encoder", "times faster"), tuple(faster), cached),
        Table("What was recognised", columns, tuple(texts), recognised),
    ]
    return [g for g in grids if g] + [text_grid(table) for table in tables if table.rows]


def _clean_grid(title: str, scores: pd.DataFrame) -> Grid | None:
    clean = scores[scores.condition == "clean"]
    if not len(clean):
        return None
    note = f"Measured by this run. {describe_scores(clean, 'system')}"
    return pivot_scores(title, clean, ["aspect", "head"], "Encoder", note)


def _published_grid(scores: pd.DataFrame) -> Grid | None:
    """Make the table of published scores in the columns that were measured here."""
    checked = published()["superb"]["checked"]
    lines = []
    for column in scores.drop_duplicates("head").itertuples():
        mark = "" if column.system in checked else " †"
        for encoder, values in published_encoders().items():
            if (column.system, column.metric) in values:
                text = f"{values[column.system, column.metric]:.2f}{mark}"
                lines.append((encoder, column.aspect, column.head, text, False))
    if not lines:
        return None
    frame = pd.DataFrame(lines, columns=["label", "aspect", "head", "text", "best"])
    note = f"{PUBLISHED_SUPERB} † Not verified against the leaderboard."
    title = "Published encoders, on the published sets"
    return pivot_scores(title, frame, ["aspect", "head"], "Encoder", note)


def _noise_grid(title: str, scores: pd.DataFrame) -> Grid | None:
    """Make the lecture's table: clean above seen above unseen, a column a task; below each score,
    what the noise changes. A mean over noises is given where all of them were measured."""
    keys = ["label", "aspect", "head"]
    clean = scores[scores.condition == "clean"]
    before = clean.set_index(keys).value.rename("before")
    parts, over = [clean.assign(text=clean.text.str.split("\n").str[0], where="clean")], []
    for group in GROUPS:
        noisy = choose_nearest(scores[scores.condition.str.startswith(group)])
        if not len(noisy):
            continue
        noises = [name.removeprefix(group) for name in noisy.condition.unique()]
        where = ", ".join(filter(None, (group.rstrip("-"), noisy.level.iloc[0])))
        over.append(f"{where}: {'mean of ' * (len(noises) > 1)}{', '.join(noises)}")
        means = noisy.groupby([*keys, "metric"], sort=False).value.agg(["mean", "size"])
        means = means[means["size"] == len(noises)].reset_index().join(before, on=keys)
        texts = []
        for mean in means.itertuples():
            change = print_value(mean.metric, mean.mean - mean.before, "+")
            texts.append(f"{print_value(mean.metric, mean.mean)}\n{change}")
        parts.append(means.assign(text=texts, where=where))
    found = pd.concat(parts)
    noisy = found[found["where"] != "clean"]
    if not len(noisy):
        return None
    found = found[found.label.isin(noisy.label) & found["head"].isin(noisy["head"])]
    order = {label: place for place, label in enumerate(scores.label.unique())}
    found = found.sort_values("label", key=lambda labels: labels.map(order), kind="stable")
    found = found.assign(label=found.label + "\n" + found["where"], best=False)
    note = f"{'; '.join(over)}. Below: the change from the same encoder's clean speech."
    return pivot_scores(title, found, ["aspect", "head"], "Encoder", note)


def _tuned_grid(scores: pd.DataFrame, default: pd.DataFrame, artefacts: Artefacts) -> Grid | None:
    """Make a line a metric: for each encoder the score with the learning rate that dev chose, and
    with the default one."""
    keys = ["label", "system", "metric"]
    metrics = default.metric.str.removesuffix(DEFAULT)
    untuned = default.assign(metric=metrics).set_index(keys).text.rename("untuned")
    both = scores[scores.condition == "clean"].join(untuned, on=keys, how="inner")
    if not len(both):
        return None
    rates: dict[tuple[str, str], str] = {}
    for head in sorted(artefacts.heads, key=lambda head: -head.seed):  # that of the first seed
        if head.learning_rate:
            rates[head.encoder, head.task] = f"{head.learning_rate:g}"
    lines = []
    for label, of_label in both.groupby("label", sort=False):
        for s in of_label.itertuples():
            texts = {"lr": rates.get((label, s.system)), "tuned": s.text, "default lr": s.untuned}
            lines += [(s.head, label, kind, text, False) for kind, text in texts.items()]
    frame = pd.DataFrame(lines, columns=["label", "encoder", "kind", "text", "best"])
    note = "Clean speech, test. tuned: with the learning rate that dev chose; default lr: without."
    title = "Tuned and default learning rate"
    return pivot_scores(title, frame, ["encoder", "kind"], "Task", note)


# ---- figures


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
