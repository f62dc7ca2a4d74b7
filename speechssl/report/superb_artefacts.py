"""Read what `superb run` left beside its rows: cards of heads, and details of the test set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from speechssl.artifacts import read_json
from speechssl.data.superb import Turn
from speechssl.results import Row
from speechssl.schema import convert

ASPECTS = {  # as in the paper of the benchmark, and their tasks in the order of the page
    "Content": ("pr", "asr", "ks", "qbe"),
    "Speaker": ("sid", "asv", "sd"),
    "Semantics": ("ic", "sf"),
    "Para\u00adlinguistics": ("er",),
    "Generation": ("se", "ss"),
}
ASPECT = {task: aspect for aspect, tasks in ASPECTS.items() for task in tasks}
TASKS = tuple(ASPECT)
ORDER = (
    *(("pr", "per"), ("asr", "wer"), ("asr", "wer_lm"), ("ks", "acc"), ("qbe", "mtwv")),
    *(("sid", "acc"), ("asv", "eer"), ("sd", "der"), ("ic", "acc"), ("sf", "slot_f1")),
    *(("sf", "slot_cer"), ("er", "acc"), ("se", "pesq"), ("se", "stoi"), ("se", "si_sdr")),
    ("ss", "si_sdri"),
)
MAIN = {task: metric for task, metric in reversed(ORDER)}  # what heads are chosen by
AGAIN = "remove it and run `speechssl superb run` again"


@dataclass(frozen=True)
class SweepTrial:
    """A trial trains with one learning rate of a sweep. value: the task's first metric on dev; None
    where training broke down."""

    learning_rate: float
    value: float | None
    steps: int


@dataclass(frozen=True)
class HeadCard:
    """This is read of a head's card. layer_weights: the share of each hidden state, CNN output
    first; they sum to 1."""

    layer_weights: list[float] | None = None
    learning_rate: float | None = None
    default_learning_rate: float | None = None
    sweep: list[SweepTrial] | None = None


@dataclass(frozen=True)
class Head(HeadCard):
    """A head has a card, and is known by the encoder, task and seed that it was trained for."""

    encoder: str = ""
    task: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Confusion:
    """counts: a line a true class, predictions of each class in it."""

    classes: list[str | int]
    counts: list[list[int]]


@dataclass(frozen=True)
class Errors:
    """Errors are shares of impostors accepted and of speakers rejected, threshold by threshold."""

    false_alarms: list[float]
    misses: list[float]


@dataclass(frozen=True)
class Timeline:
    """A timeline has the turns of speakers in one recording, in truth and as predicted."""

    id: str
    seconds: float
    truth: list[Turn]
    predicted: list[Turn]


@dataclass(frozen=True)
class Recognised:
    """A recording of the test set is shown with what a head made of it: a text, or phones one by
    one."""

    id: str
    truth: str | list[str]
    predicted: str | list[str]


@dataclass(frozen=True)
class Detail:
    """confusion: by slot; layers: of QbE, MTWV (percent) of every layer on dev."""

    confusion: dict[str, Confusion] = field(default_factory=dict)
    det: Errors | None = None
    timeline: Timeline | None = None
    layers: list[float] = field(default_factory=list)
    examples: list[Recognised] = field(default_factory=list)


@dataclass(frozen=True)
class Details:
    """Details are of one head on the test set."""

    encoder: str
    task: str
    detail: Detail


@dataclass(frozen=True)
class Artefacts:
    heads: Sequence[Head] = ()
    details: Sequence[Details] = ()

    def __bool__(self) -> bool:
        return bool(self.heads or self.details)

    def of_task(self, task: str) -> list[Details]:
        return [d for d in self.details if d.task == task]


def read_artefacts(out: Path, rows: Iterable[Row] = ()) -> Artefacts:
    """Read all artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and
    details/<encoder>/<task>.json. rows: name the encoders, whose folders may have simpler names.
    Raises InputError naming the first damaged file.
    """

    def simplify(name: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    names = {simplify(row.encoder): row.encoder for row in rows}
    heads, details = [], []
    for path in sorted(out.glob("heads/**/seed-*/card.json")):
        parts = [x for x in path.relative_to(out).parts[1:-1] if not x.startswith("fold-")]
        *folders, task, name_of_seed = parts
        encoder = "/".join(folders)
        name = names.get(simplify(encoder), encoder)
        card = convert(read_json(path), HeadCard, path, AGAIN)
        seed = int(name_of_seed.removeprefix("seed-"))
        heads.append(Head(**vars(card), encoder=name, task=task, seed=seed))
    for path in sorted(out.glob("details/**/*.json")):
        details.append(convert(read_json(path), Details, path, AGAIN))
    order = list(names.values())
    details.sort(key=lambda d: order.index(d.encoder) if d.encoder in order else len(order))
    return Artefacts(heads, details)
