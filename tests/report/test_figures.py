"""The data of figures: means over seeds, rows of a robustness grid and their losses, confusions,
and the artefacts of SUPERB."""

from dataclasses import replace

from speechssl.artifacts import write_json
from speechssl.report.robustness import add_losses, split_grid
from speechssl.report.scores import tabulate_scores
from speechssl.report.superb import make_superb_section
from speechssl.report.superb_figures import read_artefacts, share_confusions

from ..test_results import ROW

SCORES = {  # task, metric -> clean, seen, unseen
    ("ks", "acc"): (90, 70, 65),
    ("asr", "wer"): (10, 40, 35),
    ("dual", "ff1"): (50, 40, 35),
}
GRID = []
for (name, metric), values in SCORES.items():
    task, system = ("qa", name) if metric == "ff1" else (name, "head")
    for condition, value in zip(("clean", "seen-pink", "unseen-hum"), values, strict=True):
        row = replace(ROW, task=task, system=system, encoder="a", metric=metric, value=value)
        GRID.append(replace(row, condition=condition, snr_db=5.0 if "-" in condition else None))


def test_rows_that_differ_in_their_seed_are_averaged_and_the_last_card_counts():
    row = replace(ROW, value=3.0, low=2.0, high=5.0)
    other_seed = replace(ROW, value=6.0, low=5.0, high=8.0, seed=1)
    repeated = replace(other_seed, value=9.0, card="again")
    (score,) = tabulate_scores([row, other_seed, repeated]).itertuples()
    assert (score.value, score.low, score.high) == ((3.0 + 9.0) / 2, 2.0, 8.0)


def test_rows_of_a_grid_are_told_from_those_of_evaluate_qa():
    clean = replace(ROW, metric="ff1", condition="clean", snr_db=None)
    qa_rows = [clean, replace(clean, condition="pink", snr_db=5.0)]
    assert split_grid([*GRID, *qa_rows]) == (GRID, qa_rows)


def test_losses_point_the_same_way_for_scores_and_for_errors():
    losses = add_losses(tabulate_scores(GRID)).set_index(["system", "condition"]).loss
    assert losses["ks", "unseen-hum"] == 90 - 65
    assert losses["asr", "unseen-hum"] == 35 - 10


def test_cells_are_percent_of_the_truth():
    classes = ["yes", "no", "never"]
    shares = share_confusions(classes, [[3, 1, 0], [0, 2, 0], [0, 0, 0]])
    assert shares.to_numpy().tolist() == [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_superb_has_figures_of_layers_confusions_and_verification(tmp_path):
    write_json(tmp_path / "heads/a/ks/seed-0/card.json", {"layer_weights": [0.25, 0.75]})
    details = {
        "ks": {"confusion": {"keyword": {"classes": ["x", "y"], "counts": [[1, 1], [0, 2]]}}},
        "asv": {"det": {"false_alarms": [0.0, 0.5, 1.0], "misses": [1.0, 0.25, 0.0]}},
    }
    for task, detail in details.items():
        of_task = {"task": task, "encoder": "a", "detail": detail}
        write_json(tmp_path / f"details/a/{task}.json", of_task)
    rows = [replace(ROW, task="asv", system="head", encoder="a", metric="eer", condition="clean")]
    section = make_superb_section(rows, read_artefacts(tmp_path))
    assert len(list(filter(None, section.drawings))) == 3
