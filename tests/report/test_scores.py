"""The long table of scores: means over seeds."""

from dataclasses import replace

from speechssl.report.scores import arrange
from speechssl.results import Row


def row(system, metric, value, condition="clean", snr=None, **other):
    fields = {"encoder": "h", "low": None, "high": None, "n": 100, "seed": 0, "card": ""} | other
    place = {"task": "qa", "system": system, "condition": condition, "snr_db": snr}
    return Row(**place, metric=metric, value=value, **fields)


def test_rows_that_differ_in_their_seed_are_averaged_and_the_last_card_counts():
    seeds = [row("dual", "ff1", v, low=v - 1, high=v + 2, seed=s) for s, v in enumerate((3.0, 6.0))]
    (score,) = arrange([*seeds, replace(seeds[1], value=9.0, card="again")]).itertuples()
    assert (score.value, score.low, score.high) == (6.0, 2.0, 8.0)
