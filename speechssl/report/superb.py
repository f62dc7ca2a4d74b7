"""A SUPERB run: its rows as cells of tables, and what lies beside them (cards of heads, details that figures are drawn from)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.report.figures import CLEAN, Cell, Condition, Series, arrange
from speechssl.report.robustness import GROUPS, Panel, panels, series_of
from speechssl.results import DEFAULT, Row, unit

ASPECTS = {  # as in the paper of the benchmark, and their tasks in the order of the page
    "Content": ("pr", "asr", "ks", "qbe"),
    "Speaker": ("sid", "asv", "sd"),
    "Semantics": ("ic", "sf"),
    "Para\u00adlinguistics": ("er",),
    "Generation": ("se", "ss"),
}
TASKS = tuple(task for tasks in ASPECTS.values() for task in tasks)
ASPECT = {task: aspect for aspect, tasks in ASPECTS.items() for task in tasks}
ORDER = (
    ("pr", "per"),
    ("asr", "wer"),
    ("asr", "wer_lm"),
    ("ks", "acc"),
    ("qbe", "mtwv"),
    ("sid", "acc"),
    ("asv", "eer"),
    ("sd", "der"),
    ("ic", "acc"),
    ("sf", "slot_f1"),
    ("sf", "slot_cer"),
    ("er", "acc"),
    ("se", "pesq"),
    ("se", "stoi"),
    ("se", "si_sdr"),
    ("ss", "si_sdri"),
)
MAIN = {task: metric for task, metric in reversed(ORDER)}  # what heads are chosen by
OWN = frozenset({"pr", "qbe", "asv", "sd", "sf", "er", "se", "ss"})  # tasks that no robustness grid has
RATIO = "ratio_cached"
TOLERANCE = 1e-2  # of a sum of rounded weights to 1
Measured = tuple[str, str]  # task, metric


# ---- cards of heads, and details


@dataclass(frozen=True)
class Trial:
    """One learning rate of a sweep. value: the task's first metric on dev; NaN where training broke down."""

    learning_rate: float
    value: float
    steps: int


@dataclass(frozen=True)
class Head:
    """weights: the share of each hidden state, CNN output first; they sum to 1. default: the learning rate without a sweep."""

    encoder: str
    task: str
    seed: int
    weights: tuple[float, ...]
    learning_rate: float | None = None
    default: float | None = None
    sweep: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Confusion:
    """counts: a line a true class, predictions of each class in it. slot: of the label; a set has one or more."""

    encoder: str
    task: str
    slot: str
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Errors:
    """Shares of impostors accepted and of speakers rejected, threshold by threshold."""

    encoder: str
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]


@dataclass(frozen=True)
class Turn:
    speaker: str
    start: float  # seconds
    end: float


@dataclass(frozen=True)
class Timeline:
    """Who spoke when in one recording, in truth and as predicted."""

    encoder: str
    id: str
    seconds: float
    truth: tuple[Turn, ...]
    predicted: tuple[Turn, ...]


@dataclass(frozen=True)
class Transcript:
    """The true text of a recording and the recognised one."""

    encoder: str
    task: str
    id: str
    truth: str
    predicted: str


@dataclass(frozen=True)
class Artefacts:
    heads: tuple[Head, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    errors: tuple[Errors, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    layers: Mapping[str, tuple[float, ...]] | None = None  # QbE, by encoder: MTWV (percent) of every layer on dev
    transcripts: tuple[Transcript, ...] = ()

    def __bool__(self) -> bool:
        return any((self.heads, self.confusions, self.errors, self.timelines, self.layers, self.transcripts))


# ---- rows


@dataclass(frozen=True)
class Superb:
    """The rows of a SUPERB run and what lies beside them. Falsy where there are none."""

    rows: tuple[Row, ...] = ()
    artefacts: Artefacts = Artefacts()

    def __bool__(self) -> bool:
        return bool(self.rows or self.artefacts)

    def shows(self, row: Row) -> bool:
        """Whether SUPERB's own tables and figures show a row, so that no others need to."""
        mine = bool(self) and (row.system in TASKS or row.metric == RATIO)
        return mine and (row.condition == CLEAN.name or row.condition.startswith(GROUPS))

    @property
    def noisy(self) -> tuple[Panel, ...]:
        """A panel a task that was measured in noise, in the benchmark's order and with the colours of its encoders."""
        order = {column: number for number, column in enumerate(self.columns)}
        rows = [r for r in self.rows if (r.system, r.metric.lower()) in order and self.shows(r)]
        known = {(r.system, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
        mine = [r for r in rows if (r.system, r.encoder, r.metric) in known]
        return panels(sorted(mine, key=lambda r: order[r.system, r.metric.lower()]), [e.label for e in self.encoders])

    @cached_property
    def encoders(self) -> tuple[Series, ...]:
        found = self.artefacts
        some: list[Head | Confusion | Errors | Timeline] = [*found.heads, *found.confusions, *found.errors, *found.timelines]
        return tuple(series_of([*(r.encoder for r in self.rows), *(x.encoder for x in some)]))

    @cached_property
    def cells(self) -> Mapping[tuple[str, str, str, Condition], Cell]:
        """By encoder, task, metric and condition, a mean over seeds."""
        return {(s.encoder, s.system, metric, c): cell for (s, metric, c), cell in arrange(self.rows).cells.items()}

    @cached_property
    def columns(self) -> tuple[Measured, ...]:
        """The measured tasks and metrics, in the benchmark's order."""
        found = {(task, metric) for _, task, metric, _ in self.cells if metric != RATIO and not metric.endswith(DEFAULT)}
        rest = sorted(found - set(ORDER), key=lambda m: (TASKS.index(m[0]), m[1]))
        return tuple(sorted([m for m in ORDER if m in found] + rest, key=lambda m: TASKS.index(m[0])))

    def at(self, encoder: str, column: Measured, condition: Condition = CLEAN) -> Cell | None:
        return self.cells.get((encoder, *column, condition))


def of_superb(rows: Iterable[Row], artefacts: Artefacts = Artefacts()) -> Superb:
    """Empty where neither the rows nor the artefacts are SUPERB's: keywords, intents, speakers and words alone may be a grid's."""
    rows = list(rows)
    sure = artefacts or any(r.system in OWN or r.metric in (RATIO, "wer_lm") or r.metric.endswith(DEFAULT) for r in rows)
    if not sure:
        return Superb()
    return Superb(tuple(r for r in rows if r.system in TASKS or r.metric == RATIO), artefacts)


def main_panels(found: Sequence[Panel]) -> list[Panel]:
    """One a task, in percent: losses may be averaged over these."""
    return [p for p in found if unit(p.metric) == "%" and MAIN.get(p.task, p.metric) == p.metric]


# ---- reading


def read_artefacts(out: Path | str, rows: Iterable[Row] = ()) -> Artefacts:
    """All artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and details/<encoder>/<task>.json.
    rows: name the encoders, whose folders may have simpler names. Raises InputError naming the first damaged file.
    """
    out = Path(out)
    names = {_simple(row.encoder): row.encoder for row in rows}

    def read(path: Path, parse: Callable[[Path, Any], list[Any]]) -> list[Any]:
        value = read_json(path)
        try:
            return parse(path, value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path} is not what `speechssl superb run` writes ({what}); remove it and run that again") from error

    def parse_head(path: Path, card: Mapping[str, Any]) -> list[Any]:
        *folders, task, seed, _ = [part for part in path.relative_to(out / "heads").parts if not part.startswith("fold-")]
        name = "/".join(folders)
        weights = tuple(_number(w) for w in card.get("layer_weights") or ())
        if weights and (min(weights) < 0 or abs(sum(weights) - 1) > TOLERANCE):
            raise ValueError(f"its layer_weights sum to {sum(weights):.3g}, not 1")
        rate, default = (None if card.get(k) is None else _positive(card[k]) for k in ("learning_rate", "default_learning_rate"))
        sweep = []
        for entry in card.get("sweep") or ():
            value = entry["value"]
            broken = value is None or (isinstance(value, float) and not math.isfinite(value))
            trial = Trial(_positive(entry["learning_rate"]), math.nan if broken else _number(value), _count(entry["steps"]))
            sweep.append(trial)
        encoder = names.get(_simple(name), name)
        return [Head(encoder, task, int(seed.removeprefix("seed-")), weights, rate, default, tuple(sweep))]

    heads = [head for path in sorted(out.glob("heads/**/seed-*/card.json")) for head in read(path, parse_head)]
    found = [part for path in sorted(out.glob("details/**/*.json")) for part in read(path, _parse_details)]
    return Artefacts(
        tuple(heads),
        tuple(part for part in found if isinstance(part, Confusion)),
        tuple(part for part in found if isinstance(part, Errors)),
        tuple(part for part in found if isinstance(part, Timeline)),
        dict(part for part in found if isinstance(part, tuple)),
        tuple(part for part in found if isinstance(part, Transcript)),
    )


def _parse_details(path: Path, value: Mapping[str, Any]) -> list[Any]:
    """The drawable parts of a file of details."""
    encoder, task, detail = value["encoder"], value["task"], value["detail"]
    if not isinstance(encoder, str) or not isinstance(task, str):
        raise ValueError("its encoder and task are no names")
    found: list[Any] = []
    for slot, part in detail.get("confusion", {}).items():
        classes, counts = tuple(map(str, part["classes"])), tuple(tuple(map(_count, line)) for line in part["counts"])
        if not classes or any(len(line) != len(classes) for line in (classes, counts, *counts)):
            raise ValueError(f"the confusion of {slot} is not {len(classes)} × {len(classes)}")
        found.append(Confusion(encoder, task, slot, classes, counts))
    if "det" in detail:
        alarms, misses = (tuple(_number(v) for v in detail["det"][name]) for name in ("false_alarms", "misses"))
        if len(alarms) != len(misses) or not alarms or not all(0 <= v <= 1 for v in (*alarms, *misses)):
            raise ValueError("false_alarms and misses of its det are not equally many shares between 0 and 1")
        found.append(Errors(encoder, alarms, misses))
    if line := detail.get("timeline"):
        truth, predicted = (tuple(map(_turn, line[name])) for name in ("truth", "predicted"))
        found.append(Timeline(encoder, str(line["id"]), _positive(line["seconds"]), truth, predicted))
    if "layers" in detail:
        found.append((encoder, tuple(_number(v) for v in detail["layers"])))
    for example in detail.get("examples", ()):  # phones come one by one
        texts = [example[name] for name in ("truth", "predicted")]
        texts = [text if isinstance(text, str) else " ".join(map(str, text)) for text in texts]
        found.append(Transcript(encoder, task, str(example["id"]), *texts))
    return found


def _simple(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _turn(found: Mapping[str, Any]) -> Turn:
    start, end = _number(found["start"]), _number(found["end"])
    if end < start:
        raise ValueError(f"a turn ends at {end:g} s, before it starts")
    return Turn(str(found["speaker"]), start, end)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _positive(value: Any) -> float:
    if _number(value) <= 0:
        raise ValueError(f"{value!r} is not above 0")
    return float(value)


def _count(value: Any) -> int:
    if _number(value) < 0 or value != int(value):
        raise ValueError(f"{value!r} is not a count")
    return int(value)
