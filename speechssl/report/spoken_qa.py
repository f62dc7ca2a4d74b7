"""Make the section of question answering on a page, and what opens it: tables, and scores
over the SNR. `speechssl compare` draws them over recognition errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from speechssl.eval.compare import ConditionAtSnr, Scores
from speechssl.report.figures import draw_over_snr
from speechssl.report.listening import RIGHT
from speechssl.report.page import Section
from speechssl.report.scores import arrange, condition_phrase
from speechssl.results import (
    METRICS,
    UNITS_FROM,
    Row,
    Table,
    describe_range,
    drawn_sentence,
    error_bar_note,
    join_words,
    metric_name,
    metric_tables,
)


def qa_section(
    rows: Sequence[Row], slots: Mapping[str, int], synthetic: str, errors: Sequence[Table]
) -> Section:
    """Make the tables and figures. synthetic: what a synthesiser spoke of the data; stands at every
    table. errors: tables of how answers err."""
    if not rows:
        return Section("Results")
    scores = arrange(rows)
    ff1 = scores[scores.metric == "ff1"]
    bars = error_bar_note(zip(ff1.label, ff1.drawn, ff1.groups, strict=True))
    tables = []
    for metric, table in metric_tables(rows).items():
        name = metric_name(metric)
        about = f"{name}: {METRICS[metric][1]}." if metric in METRICS else ""
        drawn = drawn_sentence((r.name, r.drawn, r.groups) for r in rows if r.metric == metric)
        note = " ".join(filter(None, [about, drawn, synthetic]))
        tables.append(replace(table, title=name, note=note))
    needs_note = scores.system.str.startswith("dual").any()
    summary = f"dual needs no transcript ({UNITS_FROM})." if needs_note else ""
    title = "FF1 against the signal-to-noise ratio (SNR)"
    drawing = draw_over_snr(title, bars, {"FF1": ff1} if len(ff1) else {}, slots)
    return Section("Results", summary, [*tables, *errors], [drawing], leading=1)


def write_opening(
    scores: Sequence[Scores], conditions: Sequence[ConditionAtSnr], about: str
) -> str:
    """Say in a sentence what was asked, of whom, and who was right how often, and then what is
    right; "" where no score tells.

    scores: in the order of the page, also of multiple choice. conditions: those that are told of.
    about: the corpus and who speaks it.
    """
    judged = [(score, verdicts) for score in scores if (verdicts := judge_answers(score))]
    asked = max((score.lines for score, _ in judged), key=len, default={})
    clauses = []
    for condition in conditions:
        shares = []
        for score, verdicts in judged:
            if score.condition == condition:
                few = f" (of {len(verdicts)})" if len(verdicts) < len(asked) else ""
                share = 100 * sum(verdicts) / len(verdicts)
                shares.append(f"{score.system} {share:.0f} %{few}")
        if shares:
            clauses.append(f"in {condition_phrase(*condition)} {join_words(shares)}")
    if not clauses:
        return ""
    questions = describe_range([len(asked)], "question")
    passages = describe_range([len({line["passage"] for line in asked.values()})], "passage")
    sentence = (
        f"Asked {questions} about {passages} ({about}), the systems were right this often: "
        f"{'; '.join(clauses)}."
    )
    spans = any(line.get("error") for score, _ in judged for line in score.lines.values())
    return f"{sentence} {RIGHT}" if spans else sentence


def judge_answers(score: Scores) -> list[float]:
    """Say of every question whether its answer is right (`RIGHT`, or all of the right options):
    0 or 1, of chance a number between."""
    verdicts = []
    for line in score.lines.values():
        if line.get("error"):
            verdicts.append(float(line["error"] == "right"))
        elif "set_accuracy" in line:
            verdicts.append(float(line["set_accuracy"]))
    return verdicts
