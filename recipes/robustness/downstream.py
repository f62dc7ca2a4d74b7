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

from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple

import pandas
from tables import lay_out_means, read_scores, table_of_scores

from speechssl.artifacts import read_json, write_json, write_lines, write_text
from speechssl.cli import run_program
from speechssl.data.records import read_lines
from speechssl.data.superb import SPLITS
from speechssl.results import LOWER_IS_BETTER, Table, describe_drawn

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


def cut_sets(tasks: Path, out: Path, train: int, dev: int, test: int, longest: float) -> None:
    """Copy the sets below `tasks`: of each split at most so many recordings, sampled among those of
    at most `longest` seconds."""
    for folder in sorted(manifest.parent for manifest in tasks.glob("*/train.jsonl")):
        card = read_json(folder / "card.json")
        copied = {name: card[name] for name in COPIED if name in card}
        copied |= {"drawn from": card, "longest": longest}
        write_json(out / folder.name / "card.json", copied)
        for split, size in zip(SPLITS, (train, dev, test), strict=True):
            lines = [line for _, line in read_lines(folder / f"{split}.jsonl")]
            short = [line for line in lines if line["seconds"] <= longest]
            sampled = Random(0).sample(short, min(size, len(short)))
            for line in sampled:
                line["audio"] = str((folder / line["audio"]).resolve())
            write_lines(out / folder.name / f"{split}.jsonl", sampled)


class DevScore(NamedTuple):
    """A score on dev is the mean over clean and distorted recordings, in percent."""

    metric: str
    value: float

    @property
    def percent_right(self) -> float:
        """Return the score; of an error rate 100 less it."""
        return 100 - self.value if self.metric in LOWER_IS_BETTER else self.value


def read_dev_scores(arm: Path) -> dict[str, DevScore]:
    """Return task -> score of an arm's heads, heads/ENCODER/TASK/seed-N; none of another folder."""
    scores = {}
    for path in sorted(arm.glob("heads/*/*/seed-*/card.json")):
        card = read_json(path)
        task = path.parts[-3]
        scores[task] = DevScore(card["metric"], float(card["dev"][card["metric"]]))
    return scores


def choose(out: Path) -> None:
    """Choose the best arm with either kind of labels, by the mean over tasks; the better of the two
    is trained on the continual encoder, too.

    OUT/chosen.txt has a line a training for downstream.sh: "dat" or "both", the arm, and the parts
    of its name, dat-LABELS-MODE-WEIGHT.
    """
    arms: dict[str, dict[str, DevScore]] = {}
    for folder in sorted(out.iterdir()):
        scores = read_dev_scores(folder)
        if scores and (folder.name == "distorted" or folder.name.startswith("dat-")):
            arms[folder.name] = scores
    means = {}
    lines = []
    for name, scores in arms.items():
        means[name] = fmean(score.percent_right for score in scores.values())
        values = [f"{score.value:.1f}" for score in scores.values()]
        lines.append((name, *values, f"{means[name]:.1f}"))
    metrics = [f"{task} {score.metric}" for task, score in arms["distorted"].items()]
    columns = ("dev, mean of clean and distorted", *metrics, "mean of what is right")
    print(Table("", columns, tuple(lines)).markdown)
    best = []
    for labels in ("binary", "multi"):
        candidates = [name for name in arms if name.startswith(f"dat-{labels}-")]
        best.append(max(candidates, key=means.__getitem__))
    best_of_both = max(best, key=means.__getitem__)
    trainings = [*(("dat", name) for name in best), ("both", best_of_both)]
    text = ""
    for kind, name in trainings:
        _, *settings = name.split("-")
        text += f"{kind} {name} {' '.join(settings)}\n"
    write_text(out / "chosen.txt", text)
    print(f"\nchosen on dev: {', '.join(best)}; on the continual encoder: {best_of_both}")


def print_table(out: Path) -> None:
    """Print a line a column of the lecture, a column a task: clean · seen · unseen, the latter two
    means over their noises; then every score with its interval.

    Arms lie in folders of their own, so that differences between them are not paired.
    """
    arms = []
    for beginning, column in COLUMNS.items():
        for path in sorted(out.glob(f"{beginning}*/results.jsonl")):
            if beginning == "distorted" and path.parent.name == "distorted-head":
                continue  # it has a column of its own
            arms.append((column, read_scores(path, skip=("_default", "wer_lm"))))
    all_scores = pandas.concat([scores for _, scores in arms])
    means = lay_out_means(all_scores)
    lines = []
    for column, scores in arms:
        encoder = scores.encoder.iloc[0]
        lines.append((f"{column} (`{encoder}`)", *means.loc[encoder]))
    table = Table("Downstream, clean · seen · unseen", ("", *means.columns), tuple(lines))
    drawn = describe_drawn(zip(all_scores.task, all_scores.drawn, all_scores.groups, strict=True))
    print("", table.markdown, table_of_scores(all_scores).markdown, drawn, sep="\n\n")


if __name__ == "__main__":
    run_program(few=cut_sets, choose=choose, table=print_table)
