"""The rows of a robustness grid on the page: what is lost, tables and figures."""

from speechssl.report.robustness import add_losses, split_grid
from speechssl.report.scores import arrange
from speechssl.results import Row

SCORES = {  # task, metric, encoder -> clean, seen 5 dB, seen 0 dB, unseen 5 dB, unseen 0 dB
    ("ks", "acc", "zeta"): (90, 70, 60, 65, 50),
    ("ks", "acc", "alpha"): (91, 85, 80, 82, 75),
    ("asr", "wer", "zeta"): (10, 40, 60, 35, 55),
    ("asr", "wer", "alpha"): (12, 20, 30, 22, 33),
    ("dual", "ff1", "zeta"): (50, 40, 30, 35, 25),
    ("cascade-ctc", "ff1", "zeta"): (80, 40, 20, 30, 8),
}
PLACES = [("clean", None)]
PLACES += [(noise, snr) for noise in ("seen-pink", "unseen-hum") for snr in (5.0, 0.0)]


def rows():
    made = []
    for (task, metric, encoder), values in SCORES.items():
        for place, v in zip(PLACES, values, strict=True):
            about = ("qa", task) if metric == "ff1" else (task, "head")
            estimate = (metric, v, v - 2.0, v + 2.0, 100, 0, "c")
            made.append(Row(*about, encoder, *place, *estimate))
    return made


PLAIN = [
    Row("qa", "dual", "hubert", c, snr, "ff1", v, None, None, 9, 0, "c")
    for c, snr, v in (("clean", None, 50.0), ("pink", 5.0, 41.7))
]


def test_rows_of_a_grid_are_told_from_those_of_systems():
    assert split_grid([*rows(), *PLAIN]) == (rows(), PLAIN)


def test_losses_point_the_same_way_for_scores_and_for_errors():
    scores = add_losses(arrange(rows(), by="encoder"))
    found = scores.set_index(["system", "encoder", "condition", "snr_db"]).loss
    assert found["ks", "zeta", "unseen-hum", 5.0] == 25
    assert found["asr", "zeta", "unseen-hum", 5.0] == 25
