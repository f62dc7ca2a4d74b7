"""Make the section of SUPERB on a page: tables of clean speech, published scores, noise and
learning rates, and the figures of `superb_figures`. `build` calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from speechssl.report.page import Grid, Section, pivot_scores
from speechssl.report.robustness import GROUPS, choose_nearest
from speechssl.report.scores import arrange, assign_slots, describe_scores, print_value
from speechssl.report.superb_figures import Artefacts, draw_confusions, draw_det, draw_layers
from speechssl.results import (
    DEFAULT,
    LOWER_IS_BETTER,
    PUBLISHED_SUPERB,
    Row,
    metric_name,
    published,
    published_encoders,
)
from speechssl.superb.tasks import ORDER

ASPECT = {  # as in the paper of the benchmark
    **dict.fromkeys(("pr", "asr", "ks", "qbe"), "Content"),
    **dict.fromkeys(("sid", "asv", "sd"), "Speaker"),
    **dict.fromkeys(("ic", "sf"), "Semantics"),
    "er": "Para\u00adlinguistics",
    **dict.fromkeys(("se", "ss"), "Generation"),
}
METRICS = "per wer wer_lm acc mtwv atwv eer min_dcf der slot_f1 slot_cer pesq stoi si_sdri".split()
# tasks that no robustness grid has
OWN = frozenset({"pr", "qbe", "asv", "sd", "sf", "er", "se", "ss"})
RATIO = "ratio_cached"
# below the name of the task
SHORT = {"acc": "Acc", "wer_lm": "WER+LM", "slot_f1": "F1", "slot_cer": "CER", "min_dcf": "minDCF"}


def superb_section(rows: Sequence[Row], artefacts: Artefacts) -> Section:
    """Make the section of the rows that `is_shown` says it shows."""
    scores = arrange_superb(rows)
    slots = assign_slots([*scores.label, *(x.encoder for x in artefacts.details)])
    layers, det = draw_layers(artefacts, slots), draw_det(artefacts, slots)
    drawings = [layers, *draw_confusions(artefacts), det]
    return Section("SUPERB", "", superb_grids(scores, artefacts), drawings)


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
    return (row.name in ORDER or row.metric == RATIO) and (row.condition == "clean" or noisy)


def arrange_superb(rows: Iterable[Row]) -> pd.DataFrame:
    """Arrange rows by encoder, tasks and metrics in the order of the benchmark, with what stands
    above the columns: aspect and head."""
    scores = arrange(rows, by="encoder")
    rank, heads = [], []
    for task, metric in zip(scores.system, scores.metric, strict=True):
        place = METRICS.index(metric) if metric in METRICS else len(METRICS)
        rank.append((ORDER.index(task) if task in ORDER else len(ORDER), place, metric))
        arrow = "↓" if metric in LOWER_IS_BETTER else "↑"
        name = "QbE" if task == "qbe" else task.upper()
        heads.append(f"{name}\n{SHORT.get(metric, metric_name(metric))}\u00a0{arrow}")
    scores = scores.assign(head=heads, aspect=scores.system.map(ASPECT))
    order = sorted(range(len(scores)), key=rank.__getitem__)
    return scores.iloc[order].reset_index(drop=True)


# ---- tables


def superb_grids(scores: pd.DataFrame, artefacts: Artefacts) -> list[Grid]:
    """Make the tables of clean speech, published scores, noise and learning rates, the ten tasks
    apart from the extension."""
    default = scores.metric.str.endswith(DEFAULT)
    measured = scores[(scores.metric != RATIO) & ~default]
    extension = measured.system.isin(("se", "ss"))
    grids = []
    for more, part in (("", measured[~extension]), (", the extension", measured[extension])):
        grids.append(_clean_grid(f"Clean speech{more}", part))
        grids.append(_published_grid(part))
        grids.append(_noise_grid(f"Clean, seen and unseen noise{more}", part))
    grids.append(_tuned_grid(measured, scores[default], artefacts))
    return [grid for grid in grids if grid]


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
    for head in artefacts.heads:
        if head.learning_rate:
            rates.setdefault((head.encoder, head.task), f"{head.learning_rate:g}")
    lines = []
    for label, of_label in both.groupby("label", sort=False):
        for s in of_label.itertuples():
            texts = {"lr": rates.get((label, s.system)), "tuned": s.text, "default lr": s.untuned}
            lines += [(s.head, label, kind, text, False) for kind, text in texts.items()]
    frame = pd.DataFrame(lines, columns=["label", "encoder", "kind", "text", "best"])
    note = "Clean speech, test. tuned: with the learning rate that dev chose; default lr: without."
    title = "Tuned and default learning rate"
    return pivot_scores(title, frame, ["encoder", "kind"], "Task", note)
