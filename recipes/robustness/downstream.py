"""What dev chose for the downstream domain-adversarial training, and the columns in the form of
Hung-yi Lee's lecture, printed.

python recipes/robustness/downstream.py few TASKS OUT TRAIN DEV TEST LONGEST
    so many recordings of LONGEST seconds at most
python recipes/robustness/downstream.py choose OUT
    dev scores of all arms; OUT/chosen.txt gets the best of each kind
python recipes/robustness/downstream.py table OUT
    the columns, from the results of the arms that were evaluated
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from statistics import fmean

import pandas
from tables import lay_out_means, read_scores, table_of_scores

from speechssl.artifacts import read_json, write_json, write_text
from speechssl.data.superb import SPLITS
from speechssl.results import LOWER_IS_BETTER, Table, drawn_sentence

COLUMNS = {  # how the folder of an arm begins -> what it is
    "clean": "head on clean speech, encoder frozen",
    "distorted-head": "head on clean and distorted speech, encoder frozen",
    "distorted": "head and encoder on clean and distorted speech",
    "dat-binary": "the same + DAT, binary",
    "dat-multi": "the same + DAT, multi",
    "continual": "continual pre-training, head on clean speech",
    "more-distorted": "continual pre-training, then head and encoder on clean and distorted speech",
    "both": "the same + DAT",
}


KEPT = ("corpus", "synthetic", "task", "version")  # of the card of a set


def cut_sets(tasks: Path, out: Path, sizes: dict[str, int], longest: float) -> None:
    """Copy the sets below `tasks` with so many recordings of each split at most, drawn among those
    that are no longer."""
    for folder in sorted(manifest.parent for manifest in tasks.glob("*/train.jsonl")):
        card = read_json(folder / "card.json")
        kept = {name: card[name] for name in KEPT if name in card}
        write_json(out / folder.name / "card.json", kept | {"drawn from": card, "longest": longest})
        for split, size in sizes.items():
            lines = (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
            short = [line for line in map(json.loads, lines) if line["seconds"] <= longest]
            drawn = Random(0).sample(short, min(size, len(short)))
            absolute = [line | {"audio": str((folder / line["audio"]).resolve())} for line in drawn]
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in absolute)
            write_text(out / folder.name / f"{split}.jsonl", text)


def dev_scores(arm: Path) -> dict[str, tuple[str, float]]:
    """Return, by task, metric and score on dev, the mean of clean and distorted."""
    found = {}
    for path in sorted(arm.glob("heads/*/*/seed-*/card.json")):
        card = read_json(path)
        found[path.parts[-3]] = card["metric"], float(card["dev"][card["metric"]])
    return found


def mean_right(scores: dict[str, tuple[str, float]]) -> float:
    """Return the mean over tasks of what is right, percent: of error rates 100 less the rate."""
    right = (100 - value if name in LOWER_IS_BETTER else value for name, value in scores.values())
    return fmean(right)


def choose(out: Path) -> None:
    """Choose the best arm of either kind of labels, by the mean over tasks; the better of the two
    goes on the continual encoder, too."""
    found = {}
    for arm in sorted(out.iterdir()):
        scores = dev_scores(arm)
        if scores and (arm.name == "distorted" or arm.name.startswith("dat-")):
            found[arm.name] = scores
    metrics = [f"{task} {metric}" for task, (metric, _) in found["distorted"].items()]
    right = {name: mean_right(scores) for name, scores in found.items()}
    lines = []
    for name, scores in found.items():
        values = [f"{value:.1f}" for _, value in scores.values()]
        lines.append((name, *values, f"{right[name]:.1f}"))
    columns = ("dev, mean of clean and distorted", *metrics, "mean of what is right")
    print(Table("", columns, tuple(lines)).markdown)
    best = []
    for kind in ("binary", "multi"):
        best.append(max((n for n in found if n.startswith(f"dat-{kind}-")), key=right.__getitem__))
    chosen = [("dat", name) for name in best] + [("both", max(best, key=right.__getitem__))]
    text = ""
    for what, name in chosen:
        text += f"{what} {name} {' '.join(name.split('-')[1:])}\n"
    write_text(out / "chosen.txt", text)
    print(f"\nchosen on dev: {', '.join(best)}; on the continual encoder: {chosen[-1][1]}")


def table(out: Path) -> None:
    """Print a line a column of the lecture, a column a task: clean · seen · unseen, the latter two
    means over their noises; then every score with its interval. Arms lie in folders of their own,
    so that differences between them are not paired."""
    arms = []
    for begins, what in COLUMNS.items():
        for path in sorted(out.glob(f"{begins}*/results.jsonl")):
            if begins != "distorted" or path.parent.name == begins:
                arms.append((what, read_scores(path, skip=("_default", "wer_lm"))))
    every = pandas.concat([scores for _, scores in arms])
    means = lay_out_means(every)
    lines = []
    for what, scores in arms:
        encoder = scores.encoder.iloc[0]
        lines.append((f"{what} (`{encoder}`)", *means.loc[encoder]))
    table = Table("Downstream, clean · seen · unseen", ("", *means.columns), tuple(lines))
    drawn = drawn_sentence(zip(every.task, every.drawn, every.groups, strict=True))
    print("", table.markdown, table_of_scores(every).markdown, drawn, sep="\n\n")


if __name__ == "__main__":
    what, folder, *more = sys.argv[1:]
    if what == "few":
        sizes = dict(zip(SPLITS, map(int, more[1:4]), strict=True))
        cut_sets(Path(folder), Path(more[0]), sizes, float(more[4]))
    else:
        {"choose": choose, "table": table}[what](Path(folder))
