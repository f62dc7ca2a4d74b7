"""Make the section of question answering on a page, with tables and a figure of scores over the
SNR, and the paragraph that opens the page. `speechssl compare` draws scores over recognition
errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from speechssl.eval.compare import ConditionAtSnr, Scores
from speechssl.report.figures import draw_over_snr
from speechssl.report.listening import RIGHT
from speechssl.report.page import Section
from speechssl.report.scores import phrase_condition, tabulate_scores
from speechssl.results import (
    METRICS,
    UNITS_FROM,
    Row,
    Table,
    describe_drawn,
    describe_error_bars,
    describe_range,
    join_words,
    make_metric_tables,
    name_metric,
)


def make_qa_section(
    rows: Sequence[Row], slots: Mapping[str, int], synthetic: str, errors: Sequence[Table]
) -> Section:
    """Make the section. slots: numbers of the lines' colours; synthetic: sentences about synthetic
    speech, for the note of every table; errors: tables of how answers err."""
    if not rows:
        return Section("Results")
    scores = tabulate_scores(rows)
    ff1 = scores[scores.metric == "ff1"]
    bars = describe_error_bars(zip(ff1.label, ff1.drawn, ff1.groups, strict=True))
    tables = []
    for metric, table in make_metric_tables(rows).items():
        name = name_metric(metric)
        about = f"{name}: {METRICS[metric][1]}." if metric in METRICS else ""
        drawn = describe_drawn((r.name, r.drawn, r.groups) for r in rows if r.metric == metric)
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
    """Write a sentence that says how many questions were asked and how often each system was right,
    and one that says what counts as right; "" where no score tells.

    scores: those of spoken question answering and multiple choice, in the order of the page.
    conditions: those that the sentence has. about: the corpus and who speaks it.
    """
    judged = []  # scores with their verdicts
    for score in scores:
        verdicts = judge_answers(score)
        if verdicts:
            judged.append((score, verdicts))
    # the questions of the system that was asked most
    most_lines = max((score.lines for score, _ in judged), key=len, default={})
    clauses = []
    for condition in conditions:
        shares = []
        for score, verdicts in judged:
            if score.condition == condition:
                of_fewer = f" (of {len(verdicts)})" if len(verdicts) < len(most_lines) else ""
                share = 100 * sum(verdicts) / len(verdicts)
                shares.append(f"{score.system} {share:.0f}\N{NO-BREAK SPACE}%{of_fewer}")
        if shares:
            clauses.append(f"in {phrase_condition(*condition)} {join_words(shares)}")
    if not clauses:
        return ""
    passage_ids = {line["passage"] for line in most_lines.values()}
    questions = describe_range([len(most_lines)], "question")
    passages = describe_range([len(passage_ids)], "passage")
    sentence = (
        f"Asked {questions} about {passages} ({about}), the systems were right this often: "
        f"{'; '.join(clauses)}."
    )
    has_spans = False  # RIGHT explains answers that are spans, not options
    for score, _ in judged:
        has_spans |= any(line.get("error") for line in score.lines.values())
    return f"{sentence} {RIGHT}" if has_spans else sentence


def judge_answers(score: Scores) -> list[float]:
    """Return for every question 1 for a right answer (as in `RIGHT`; in multiple choice all of the
    right options and no other) and 0 for a wrong one; for the baseline `chance` the probability of
    a right one."""
    verdicts = []
    for line in score.lines.values():
        if line.get("error"):
            verdicts.append(float(line["error"] == "right"))
        elif "set_accuracy" in line:
            verdicts.append(float(line["set_accuracy"]))
    return verdicts
