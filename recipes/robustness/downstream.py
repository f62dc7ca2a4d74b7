"""Choose the arms of the downstream domain-adversarial training on dev, and print their scores in
the form of Hung-yi Lee's lecture.

python recipes/robustness/downstream.py few TASKS OUT TRAIN DEV TEST LONGEST
    cut the sets to so many recordings of LONGEST seconds at most
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

COLUMNS = {  # beginning of an arm's folder -> its column of the lecture
    "clean": "head on clean speech, encoder frozen",
    "distorted-head": "head on clean and distorted speech, encoder frozen",
    "distorted": "head and encoder on clean and distorted speech",
    "dat-binary": "the same + DAT, binary",
    "dat-multi": "the same + DAT, multi",
    "continual": "continual pre-training, head on clean speech",
    "more-distorted": "continual pre-training, then head and encoder on clean and distorted speech",
    "both": "the same + DAT",
}
COPIED = ("corpus", "synthetic", "task", "version")  # entries of the card of a set


def cut_sets(tasks: Path, out: Path, sizes: dict[str, int], longest: float) -> None:
    """Copy the sets below `tasks` with so many recordings of each split at most, sampled among
    those of `longest` seconds at most."""
    for folder in sorted(manifest.parent for manifest in tasks.glob("*/train.jsonl")):
        card = read_json(folder / "card.json")
        copied = {name: card[name] for name in COPIED if name in card}
        copied |= {"drawn from": card, "longest": longest}
        write_json(out / folder.name / "card.json", copied)
        for split, size in sizes.items():
            lines = (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
            short = [line for line in map(json.loads, lines) if line["seconds"] <= longest]
            text = ""
            for line in Random(0).sample(short, min(size, len(short))):
                line |= {"audio": str((folder / line["audio"]).resolve())}
                text += json.dumps(line, ensure_ascii=False) + "\n"
            write_text(out / folder.name / f"{split}.jsonl", text)


def dev_scores(arm: Path) -> dict[str, tuple[str, float]]:
    """Return task -> metric and score on dev, the mean of clean and distorted."""
    scores = {}
    for path in sorted(arm.glob("heads/*/*/seed-*/card.json")):
        card = read_json(path)
        scores[path.parts[-3]] = card["metric"], float(card["dev"][card["metric"]])
    return scores


def mean_right(scores: dict[str, tuple[str, float]]) -> float:
    """Return the mean over tasks of the percentage that is right: 100 less an error rate."""
    right = (100 - value if name in LOWER_IS_BETTER else value for name, value in scores.values())
    return fmean(right)


def choose(out: Path) -> None:
    """Choose the best arm with either kind of labels, by the mean over tasks; the better of the two
    is trained on the continual encoder, too."""
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
    means over their noises; then every score with its interval.

    Arms lie in folders of their own, so that differences between them are not paired.
    """
    arms = []
    for begins, what in COLUMNS.items():
        for path in sorted(out.glob(f"{begins}*/results.jsonl")):
            if begins != "distorted" or path.parent.name == begins:
                arms.append((what, read_scores(path, skip=("_default", "wer_lm"))))
    all_scores = pandas.concat([scores for _, scores in arms])
    means = lay_out_means(all_scores)
    lines = []
    for what, scores in arms:
        encoder = scores.encoder.iloc[0]
        lines.append((f"{what} (`{encoder}`)", *means.loc[encoder]))
    table = Table("Downstream, clean · seen · unseen", ("", *means.columns), tuple(lines))
    drawn = drawn_sentence(zip(all_scores.task, all_scores.drawn, all_scores.groups, strict=True))
    print("", table.markdown, table_of_scores(all_scores).markdown, drawn, sep="\n\n")


if __name__ == "__main__":
    what, folder, *more = sys.argv[1:]
    if what == "few":
        sizes = dict(zip(SPLITS, map(int, more[1:4]), strict=True))
        cut_sets(Path(folder), Path(more[0]), sizes, float(more[4]))
    else:
        {"choose": choose, "table": table}[what](Path(folder))
