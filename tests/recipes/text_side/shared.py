"""Make runs for the tests of the text side."""

from speechssl.stats import BootstrapUnits
from textside.runs import Run


def make_runs(arm, right, task="order"):
    """Make a run for every seed. right: (seeds, items)."""
    names = tuple(f"i{n}" for n in range(right.shape[1]))
    units = BootstrapUnits("item", tuple((name,) for name in names))
    runs = []
    for seed, line in enumerate(right):
        columns = line[:, None].astype(float)
        runs.append(Run(task, arm, seed, "accuracy", columns, names, units))
    return runs
