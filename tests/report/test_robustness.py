"""The rows of a robustness grid on the page: they are told from others, and losses are added."""

from dataclasses import replace

from speechssl.report.robustness import add_losses, split_grid
from speechssl.report.scores import tabulate_scores

from ..test_results import ROW

SCORES = {  # task, metric, encoder -> clean, seen 5 dB, seen 0 dB, unseen 5 dB, unseen 0 dB
    ("ks", "acc", "zeta"): (90, 70, 60, 65, 50),
    ("ks", "acc", "alpha"): (91, 85, 80, 82, 75),
    ("asr", "wer", "zeta"): (10, 40, 60, 35, 55),
    ("asr", "wer", "alpha"): (12, 20, 30, 22, 33),
    ("dual", "ff1", "zeta"): (50, 40, 30, 35, 25),
    ("cascade-ctc", "ff1", "zeta"): (80, 40, 20, 30, 8),
}
CONDITIONS = [("clean", None), ("seen-pink", 5.0), ("seen-pink", 0.0)]
CONDITIONS += [("unseen-hum", 5.0), ("unseen-hum", 0.0)]


def make_grid_rows():
    rows = []
    for (name, metric, encoder), values in SCORES.items():
        task, system = ("qa", name) if metric == "ff1" else (name, "head")
        row = replace(ROW, task=task, system=system, encoder=encoder, metric=metric)
        for (condition, snr_db), value in zip(CONDITIONS, values, strict=True):
            rows.append(replace(row, condition=condition, snr_db=snr_db, value=value))
    return rows


def test_rows_of_a_grid_are_told_from_those_of_evaluate_qa():
    clean = replace(ROW, metric="ff1", condition="clean", snr_db=None)
    qa_rows = [clean, replace(clean, condition="pink", snr_db=5.0)]
    assert split_grid([*make_grid_rows(), *qa_rows]) == (make_grid_rows(), qa_rows)


def test_losses_point_the_same_way_for_scores_and_for_errors():
    scores = add_losses(tabulate_scores(make_grid_rows(), by="encoder"))
    losses = scores.set_index(["system", "encoder", "condition", "snr_db"]).loss
    assert losses["ks", "zeta", "unseen-hum", 5.0] == 90 - 65
    assert losses["asr", "zeta", "unseen-hum", 5.0] == 35 - 10
