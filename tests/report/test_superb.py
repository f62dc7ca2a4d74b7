"""SUPERB on the page: units of metrics, published scores, and the data of figures."""

import numpy as np
import pytest

from speechssl import results
from speechssl.report.superb import tabulate_published_scores
from speechssl.report.superb_figures import MOST_CLASSES, compute_deviates, share_confusions


def test_units_directions_and_decimals_of_the_metrics():
    units = {"acc": "%", "mtwv": "%", "si_sdri": "dB", "pesq": "", "ratio_cached": "×"}
    units |= {"si_sdri_default": "dB", "pesq_default": ""}
    assert {metric: results.name_metric_unit(metric) for metric in units} == units
    errors = {"per", "eer", "der", "slot_cer", "wer_lm", "wer_lm_default", "eer_default"}
    assert errors <= results.LOWER_IS_BETTER
    scores = {"acc", "slot_f1", "mtwv", "pesq", "stoi", "si_sdri", "acc_default"}
    assert not scores & results.LOWER_IS_BETTER


def test_published_scores_are_those_of_measured_metrics():
    (table,) = tabulate_published_scores([("asv", "eer"), ("ss", "si_sdri")])
    assert table.rows == (("asv eer ↓", "6.02 †", "5.11 †", "4.07 †", "5.98 †", "3.77 †"),)
    assert not tabulate_published_scores([("ss", "si_sdri")])
    assert results.read_published_encoders()["HuBERT base"]["sid", "acc"] == 81.42


# ---- figures


def test_det_axes_are_normal_deviates():
    assert compute_deviates([0.5, 0.1]) == pytest.approx([0, -1.2816], abs=1e-4)
    assert np.isfinite(compute_deviates([0.0, 1.0])).all()


def test_cells_are_percent_of_the_truth():
    classes = ["yes", "no", "never"]
    shares = share_confusions(classes, [[3, 1, 0], [0, 2, 0], [0, 0, 0]])
    assert shares.to_numpy().tolist() == [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_of_too_many_classes_those_confused_most_are_kept():
    counts = 8 * np.eye(100, dtype=int)
    counts[40:, 0] += 1  # classes from 40 on are taken for class 0
    shares = share_confusions(list(range(100)), counts.tolist())
    assert list(shares.index) == [0, *range(40, 40 + MOST_CLASSES - 1)]
