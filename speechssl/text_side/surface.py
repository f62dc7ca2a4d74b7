"""How a reader learns: DUAL's plateau, and the loss around a trained reader along lines and in
planes.

`plateau` scores DUAL's reader again and again as it is trained: for hundreds of steps it points at
any fact of the passage, then FF1 rises within a few. Does a warm-up on brackets, copies or units of
plain speech shorten that? The reader is that of
`speechssl train dual`, and answers are scored as `evaluate qa` scores them in clean speech, from
units that were extracted before.

`surface` takes the loss on windows of training and of other data.

Random directions are filter-normalised (Li et al., arXiv 1712.09913): every row of a matrix is as
long as that of the weights, and vectors (biases, norms) have none. The path (Hao et al.,
1908.05620) goes from the weights that training began with, at 0, to those that it ended with, at 1.
The start is made again from the text encoder and the seed that the reader's card names; the end is
the reader as it was saved, with matrices in int8.
Three numbers are taken of it, per window: the loss at the end; how far the loss on the path lies
above the straight line between its ends, in the mean (a hill on the way); how far it rises, in the
mean, along the random line (how sharp the minimum is).
Letters: P points, N windows, B windows in a batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from speechssl.cascade.data import text_examples
from speechssl.cascade.train import begin_text
from speechssl.data.records import data_hash, load_corpus, passage_units, synthetic_note
from speechssl.dual.data import (
    Example,
    ExampleBatches,
    Layout,
    check_times,
    unit_examples,
    unit_source,
)
from speechssl.dual.model import SpanModel, load_reader, without_pooler
from speechssl.dual.options import QaOptions
from speechssl.dual.system import END_WEIGHT, START_WEIGHT, Reader
from speechssl.dual.train import check_positions, example_batches, layout_of, unit_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.finetuning import add, added, train_only, trained_parameters
from speechssl.io import (
    CHECKSUM,
    MADE_FROM,
    hash_json,
    hash_of_weights,
    read_json,
    replacing,
    stage,
    write_json,
    write_text,
)
from speechssl.metrics import frame_f1
from speechssl.options import settings
from speechssl.stats import BootstrapUnits
from speechssl.text_side.options import SurfaceOptions
from speechssl.text_side.published import END_DEV, END_TRAIN, HILL, RISE, SURFACE
from speechssl.text_side.runs import (
    NATS,
    encoder_named,
    fit_and_score,
    run_folder,
    steps_to,
    write_scores,
)
from speechssl.textlm import (
    SHIFT,
    TextCodec,
    fast_attention,
    load_shift,
    load_tokenizer,
    special_ids,
    without_dropout,
)
from speechssl.timing import interval_of_units
from speechssl.trainer import Batch, check_share
from speechssl.units.storage import load_units

Weights = dict[str, torch.Tensor]
PATH, RANDOM, PLANE, PATH_PLANE = "path", "random", "plane", "path-plane"
KINDS = {"DUAL reader": "dual", "text QA": "text-qa"}  # what a card says -> task
TOGETHER = 8  # B


def surface(
    corpus: Path,
    reader: Path,
    results: Path,
    arm: str,
    units: Path | None,
    start: str | None,
    o: SurfaceOptions,
) -> str:
    """Take the losses (once); a line that says what came out.

    Raises InputError for a reader of another kind, one whose start is not there, or units that are
    not the reader's.
    """
    model, layout, card = load_reader(reader)
    if (reader / SHIFT).is_file():
        load_shift(reader / SHIFT)[0].attach(model.encoder)  # which it was trained with
    kind = KINDS.get(str(card.get("what")))
    if kind is None:
        raise InputError(
            f"{reader} is a {card.get('what')}; give a folder of `speechssl train "
            "dual` or `speechssl train text-qa`"
        )
    if (units is None) == (kind == "dual"):
        remedy = "give them with --units" if kind == "dual" else "leave out --units"
        raise InputError(
            f"{reader} is a {card['what']}, which reads "
            f"{'units' if kind == 'dual' else 'words'}; {remedy}"
        )
    try:
        values = dict(card["options"])
        training = dict(values.pop("training"))
        seed, split = int(training["seed"]), str(values["split"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{reader / 'card.json'} does not say how the reader was trained "
            f"({error}); train it again"
        ) from error
    splits = (split, o.dev)
    inputs: dict[str, Any] = {"reader": card["weights"], "start": start and encoder_named(start)}
    inputs |= {"data": [data_hash(corpus, name) for name in splits]}
    if units is not None:
        inputs["units"] = [unit_source(units / name, corpus)[0] for name in splits]
        codebook = (card.get("units") or {}).get("codebook")
        if any(source.get("codebook") != codebook for source in inputs["units"]):
            raise InputError(
                f"the units in {units} are of another codebook than those of the reader "
                f"{reader}; give the units it was trained on"
            )
    folder = run_folder(results, f"{kind}-{SURFACE}", arm, seed)
    with stage(folder, inputs, asdict(o)) as step:
        if not step.done:
            windows = {
                name: windows_of(corpus, name, units, reader, model, layout, values, o)
                for name in dict.fromkeys(splits)
            }
            first = start_of(corpus, reader, card, model, start)
            place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            model.to(place)
            losses = Losses(model, windows, folder / "points.jsonl", place)
            lines, planes = take(losses, first, o)
            arrays = {
                f"{part}/{name}": array
                for part, by_name in (lines | planes).items()
                for name, array in by_name.items()
            }
            with replacing(folder / "surface.npz") as temporary:
                np.savez_compressed(temporary, **arrays)
            means = {
                part: {
                    name: (array.mean(-1) if name in windows else array).tolist()
                    for name, array in by_name.items()
                }
                for part, by_name in (lines | planes).items()
            }
            details = {
                "kind": kind,
                "arm": arm,
                "seed": seed,
                "splits": list(splits),
                "directions": o.seed,
            }
            write_json(folder / "surface.json", details | {"parts": means}, checked=True)
            for task, items in numbers(lines, kind, *splits).items():
                facts = {"reader": card["weights"], "options": asdict(o), "curve": []}
                drawn = BootstrapUnits("window", tuple((name,) for name in items))
                write_scores(results, task, NATS, arm, seed, items, facts, drawn)
            step.finish(
                details
                | {
                    "points": len(losses.by_point),
                    "windows": {name: len(w) for name, w in windows.items()},
                }
            )
        done = step.card
    return f"{folder}: {done['points']} points of the loss of {kind} ({arm}, seed {done['seed']})"


# ---- what the reader began as


def start_of(
    corpus: Path, reader: Path, card: Mapping[str, Any], model: SpanModel, start: str | None
) -> Weights:
    """The weights that training began with. Raises InputError where they are not there, or are
    another reader's."""
    options = QaOptions(
        **{
            k: v
            for k, v in card["options"].items()
            if k in QaOptions.__dataclass_fields__ and k != "training"
        }
    )
    seed = int(card["options"]["training"]["seed"])
    if card.get("start"):
        if start is None:
            raise InputError(
                f"the reader {reader} went on from another reader, which is not here by itself; "
                "give its folder with --start"
            )
        began, _, before = load_reader(Path(start))
        if before["weights"] != card["start"]:
            raise InputError(
                f"the reader {reader} did not go on from {start}; give the reader that it was "
                "trained from with --start"
            )
        return began.state_dict()
    encoder = start or options.text_encoder
    weights_then = (
        read_json(reader / MADE_FROM).get("text_weights")
        if (reader / MADE_FROM).is_file()
        else None
    )
    if weights_then and (weights_now := hash_of_weights(encoder)) and weights_now != weights_then:
        raise InputError(
            f"{encoder} has other weights than when the reader {reader} began as "
            "it; give its own with --start"
        )
    try:
        if card["what"] == "DUAL reader":
            began = SpanModel(
                *unit_encoder(
                    encoder, model.embedding.num_embeddings - 3, str(card["assignment"]), seed
                )
            )
        else:
            options = replace(
                options, text_encoder=encoder, training=replace(options.training, seed=seed)
            )
            began, _ = begin_text(load_corpus(corpus, options.split), options)
    except InputError as error:
        raise InputError(
            f"the reader {reader} began as {encoder}, which cannot be used "
            f"({error}); give it with --start"
        ) from error
    add(began.encoder, added(model.encoder))
    weights, expected = without_pooler(began.state_dict()), model.state_dict()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in expected.items()}:
        raise InputError(
            f"{encoder} has other weights than the reader {reader}, which cannot have begun as "
            "it; give its own with --start"
        )
    return weights


# ---- losses


def windows_of(
    corpus: Path,
    split: str,
    units: Path | None,
    reader: Path,
    model: SpanModel,
    layout: Layout,
    options: Mapping[str, Any],
    o: SurfaceOptions,
) -> list[Batch]:
    """Windows of a split with their answers, one a batch: N, as training has them. Raises
    InputError where there are none."""
    data = load_corpus(corpus, split)
    examples: list[Example]
    if units is not None:
        examples, _ = unit_examples(
            data, load_units(units / split), unit_source(units / split, corpus)[2]
        )
    else:
        examples, _ = text_examples(
            data, TextCodec(load_tokenizer(reader, model.embedding.num_embeddings))
        )
    if not examples:
        raise InputError(
            f"{corpus / split} has no answerable question with a place in its passage; give "
            "another split with --eval-split"
        )
    batches = ExampleBatches(examples, layout, 1, float(options.get("empty", 0.1)), o.seed)
    return [batches(i) for i in range(min(o.windows, len(examples)))]


class Losses:
    """The loss of every window at a point. What was taken is in a file, a line with a checksum a
    point, and is not taken again."""

    def __init__(
        self,
        model: SpanModel,
        windows: Mapping[str, Sequence[Batch]],
        path: Path,
        place: torch.device,
    ) -> None:
        self.model, self.windows, self.path, self.place = model, windows, path, place
        self.end = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.by_point: dict[str, dict[str, list[float]]] = {}
        lines = (
            path.read_text(encoding="utf-8", errors="replace").splitlines()
            if path.is_file()
            else []
        )
        sound = []
        for line in filter(None, lines):
            with suppress(ValueError, AttributeError):  # a kill cut it short, or it was damaged
                point = json.loads(line)
                # None: of before lines had one
                if point.pop(CHECKSUM, None) in (hash_json(point), None):
                    self.by_point |= point
                    sound.append(line)
        if again := len(list(filter(None, lines))) - len(sound):
            tqdm.write(
                f"{path}: {again} lines are damaged or cut short by a kill; their points "
                "are taken again",
                file=sys.stderr,
            )
            write_text(path, "".join(f"{line}\n" for line in sound))

    @torch.inference_mode()
    def at(self, name: str, steps: Sequence[tuple[float, Weights]]) -> dict[str, list[float]]:
        """Losses by split at the end plus steps along directions. name: of the point, in the
        file."""
        if name not in self.by_point:
            for key, value in self.model.named_parameters():
                moved = self.end[key].clone()
                for step, direction in steps:
                    moved += step * direction[key].to(self.place)
                value.copy_(moved)
            by_split = {
                split: list(self._losses(windows)) for split, windows in self.windows.items()
            }
            # by a kill
            cut_short = self.path.is_file() and self.path.read_bytes()[-1:] not in (b"", b"\n")
            line = json.dumps({name: by_split, CHECKSUM: hash_json({name: by_split})})
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * cut_short + line + "\n")
            self.by_point[name] = by_split
        return self.by_point[name]

    def _losses(self, windows: Sequence[Batch]) -> Iterator[float]:
        order = sorted(range(len(windows)), key=lambda i: windows[i]["ids"].shape[1])
        by_window: dict[int, float] = {}
        for first in range(0, len(order), TOGETHER):
            batch = order[first : first + TOGETHER]
            size = max(windows[i]["ids"].shape[1] for i in batch)
            rows = {
                name: torch.cat(
                    [
                        functional.pad(windows[i][name], (0, size - windows[i][name].shape[1]))
                        for i in batch
                    ]
                ).to(self.place)
                for name in ("ids", "mask", "segments")
            }
            logits = self.model.logits(rows["ids"], rows["mask"], rows["segments"])
            ends = [
                torch.cat([windows[i][name] for i in batch]).to(self.place)
                for name in ("first", "last")
            ]
            losses = (
                sum(
                    functional.cross_entropy(logits[..., n], end, reduction="none")
                    for n, end in enumerate(ends)
                )
                / 2
            )
            assert isinstance(losses, torch.Tensor)
            by_window |= dict(zip(batch, losses.tolist(), strict=True))
        yield from (by_window[i] for i in range(len(windows)))


# ---- directions


def random_direction(end: Weights, seed: int) -> Weights:
    """Filter-normalised: rows of matrices as long as those of the weights, none for vectors."""
    generator, direction = torch.Generator().manual_seed(seed), {}
    for name, value in end.items():
        drawn = torch.randn(value.shape, generator=generator)
        rows, lengths = (
            (x.flatten(1).norm(dim=1) for x in (drawn, value.cpu()))
            if value.ndim > 1
            else (torch.ones(1), torch.zeros(1))
        )
        scale = lengths / rows.clamp(min=1e-12)
        direction[name] = drawn * scale.reshape(-1, *[1] * (value.ndim - 1))
    return direction


def take(
    losses: Losses, start: Weights, o: SurfaceOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Lines: "at" (P,) and of every split (P, N). Planes: "x", "y" (P,) and of every split (P of y,
    P of x, N)."""
    path = {name: value.cpu() - start[name] for name, value in losses.end.items()}
    one, two = (random_direction(losses.end, 2 * o.seed + i) for i in (0, 1))
    along = np.linspace(-o.beyond, 1 + o.beyond, o.line)
    along = np.unique(np.concatenate([along, [0.0, 1.0]]))  # the ends themselves
    around = np.unique(np.concatenate([np.linspace(-o.reach, o.reach, o.line), [0.0]]))
    lines: dict[str, Any] = {PATH: {"at": along}, RANDOM: {"at": around}}
    planes: dict[str, Any] = {}
    grid = np.linspace(-o.reach, o.reach, o.plane)
    if o.plane > 1:
        reach = np.linspace(-o.beyond, 1 + o.beyond, o.plane)
        planes = {PLANE: {"x": grid, "y": grid}, PATH_PLANE: {"x": reach, "y": grid}}
    points: list[tuple[str, str, list[tuple[float, Weights]]]] = []
    for part, line in lines.items():
        points += [
            (part, f"{part} {x:.6f}", [(x - 1, path) if part == PATH else (x, one)])
            for x in map(float, line["at"])
        ]
    for part, plane in planes.items():
        for y in map(float, plane["y"]):
            for x in map(float, plane["x"]):
                points.append(
                    (
                        part,
                        f"{part} {x:.6f} {y:.6f}",
                        [(x - 1, path) if part == PATH_PLANE else (x, one), (y, two)],
                    )
                )
    by_part: dict[str, list[dict[str, list[float]]]] = {}
    for part, name, steps in tqdm(points, desc="loss surface", unit="point"):
        by_part.setdefault(part, []).append(losses.at(name, steps))
    for part, arrays in (lines | planes).items():
        shape = (-1,) if part in lines else (len(arrays["y"]), len(arrays["x"]))
        for split in losses.windows:
            values = np.array([one[split] for one in by_part[part]])
            arrays[split] = values.reshape(*shape, values.shape[-1]) if part in planes else values
    return lines, planes


def numbers(
    lines: Mapping[str, Mapping[str, np.ndarray]], kind: str, train: str, dev: str
) -> dict[str, dict[str, tuple[float, float]]]:
    """Of every measure its task, and (0, value in nats) of every window."""
    path, random = lines[PATH], lines[RANDOM]
    at = path["at"]
    inside = (at > 0) & (at < 1)
    ends = {x: path[train][int(np.flatnonzero(at == x)[0])] for x in (0.0, 1.0)}
    chord = (1 - at[:, None]) * ends[0.0] + at[:, None] * ends[1.0]
    hill = (path[train] - chord)[inside].mean(0) if inside.any() else np.zeros(path[train].shape[1])
    middle = random[train][int(np.flatnonzero(random["at"] == 0)[0])]
    rise = (random[train] - middle)[random["at"] != 0].mean(0)
    measures = {
        END_TRAIN: ends[1.0],
        END_DEV: path[dev][int(np.flatnonzero(at == 1.0)[0])],
        HILL: hill,
        RISE: rise,
    }
    return {
        f"{kind}-{name}": {f"{i}": (0.0, float(x)) for i, x in enumerate(values)}
        for name, values in measures.items()
    }


# ---- the plateau: how long DUAL's reader points at any fact, whatever is asked

TASK = "dual"


def plateau(
    corpus: Path,
    units: Path,
    results: Path,
    arm: str,
    assignment: str,
    o: QaOptions,
    scored: str,
    every: int,
) -> str:
    """Train (once) and score; a line that says what came out. scored: split of corpus and units;
    every: steps between two scores.

    Raises InputError for units of another corpus or codebook, answers without times, or windows
    longer than the encoder's positions.
    """
    check_share(o.batch, o.short_batch)
    seed, identity = o.training.seed, encoder_named(o.text_encoder)
    source, symbols, grid, _ = unit_source(units / o.split, corpus)
    tested = unit_source(units / scored, corpus)[0]
    if tested.get("codebook") != source.get("codebook"):
        raise InputError(
            f"the units of {o.split} and {scored} in {units} are of different "
            "codebooks; extract them again"
        )
    folder = run_folder(results, TASK, arm, seed)
    # trained: below
    options = settings(replace(o, trained="all")) | {"text_encoder": identity["encoder"]}
    hashes = {
        "data": data_hash(corpus, o.split),
        "scored": data_hash(corpus, scored),
        "units": source,
    } | identity
    with stage(
        folder, hashes | {"assignment": assignment, "every": every, "trained": o.trained}, options
    ) as step:
        if step.done:
            card = step.card
        else:
            data, test = load_corpus(corpus, o.split), load_corpus(corpus, scored)
            check_times(data)
            examples, left_out = unit_examples(data, load_units(units / o.split), grid)
            report_set_aside(left_out, "DUAL's training", "question")
            runs = load_units(units / scored)
            timed = [q for q in test.answerable if any(a.start is not None for a in q.answers)]
            questions = [q for q in timed if q.id in runs and q.passage in runs]
            if not examples or not questions:
                empty = o.split if not examples else scored
                raise InputError(
                    f"{corpus} has no answerable question with times and units in "
                    f"{empty}; prepare it again"
                )
            layout = replace(
                layout_of(o, *special_ids(symbols)),
                start_weight=START_WEIGHT,
                end_weight=END_WEIGHT,
            )
            model = SpanModel(*unit_encoder(o.text_encoder, symbols, assignment, seed))
            check_positions(model.encoder, layout, o.text_encoder)
            train_only(model.encoder, o.trained)
            if not o.dropout:
                without_dropout(model.encoder)
            pairs = [(runs[q.id].units, runs[q.passage].units) for q in questions]
            golds = [
                [(a.start, a.end) for a in q.answers if a.start is not None and a.end is not None]
                for q in questions
            ]

            def scores() -> list[float]:
                model.eval()
                # in fp32 scoring takes longer than training
                spans = Reader(model, layout, bf16=o.training.bf16).read(pairs)
                answers = [
                    interval_of_units(grid, runs[q.passage], s.first, s.last)
                    for q, s in zip(questions, spans, strict=True)
                ]
                return [frame_f1(answer, gold) for answer, gold in zip(answers, golds, strict=True)]

            def mean() -> float:
                # a question without units counts as wrong, as in `evaluate qa`
                return sum(scores()) / len(timed)

            batches = example_batches(examples, layout, o)
            with fast_attention(model.encoder):
                result, curve = fit_and_score(
                    model, batches, o.training, folder / "checkpoints", mean, every
                )
            items = {q.id: (1.0, 0.0) for q in timed} | {
                q.id: (1.0, s) for q, s in zip(questions, scores(), strict=True)
            }
            details: dict[str, Any] = identity | {
                "assignment": assignment,
                "options": options,
                "training": result,
                "curve": curve,
            }
            details |= {"trained": o.trained, "trained_parameters": trained_parameters(model)}
            details |= {"note": note} if (note := synthetic_note(corpus)) else {}
            drawn = passage_units(test, [q.passage for q in timed], [q.id for q in timed])
            card = step.finish(write_scores(results, TASK, "ff1", arm, seed, items, details, drawn))
        reached = steps_to(card["curve"])
        when = (
            f"FF1 50 after {reached} steps"
            if reached
            else (f"no FF1 of 50 within {o.training.steps} steps")
        )
        return f"{folder}: dual ff1 {card['value']:.1f} %, {when} ({arm}, seed {seed})"
