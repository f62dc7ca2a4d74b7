"""The long table of scores: means over seeds."""

from dataclasses import replace

from speechssl.report.scores import tabulate_scores

from ..test_results import ROW


def test_rows_that_differ_in_their_seed_are_averaged_and_the_last_card_counts():
    row = replace(ROW, value=3.0, low=2.0, high=5.0)
    other_seed = replace(ROW, value=6.0, low=5.0, high=8.0, seed=1)
    repeated = replace(other_seed, value=9.0, card="again")
    (score,) = tabulate_scores([row, other_seed, repeated]).itertuples()
    assert (score.value, score.low, score.high) == ((3.0 + 9.0) / 2, 2.0, 8.0)
