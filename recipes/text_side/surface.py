"""Measure the loss around a trained reader along lines and in planes, on windows of training and of
other data.

The end is the reader as it was saved, with matrices in int8. Three things are measured of every
window: the loss at the end; how far the loss on the path lies above the straight line between its
ends, in the mean (a hill on the way); and how far it rises along the random line, in the mean (how
sharp the minimum is). Letters: P points, N windows, B windows in a batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from speechssl.artifacts import MADE_FROM, read_json, write_json, write_text
from speechssl.cascade.train_text_qa import make_text_examples, make_untrained_model
from speechssl.checkpoints import hash_checkpoint
from speechssl.cli import script
from speechssl.data.records import hash_data, load_corpus, take_first_passages
from speechssl.dual.data import (
    Example,
    ExampleBatches,
    Layout,
    list_codebooks,
    load_joined_units,
    make_unit_examples,
    read_unit_source,
)
from speechssl.dual.model import SpanModel, drop_pooler, load_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.train import choose_pieces, make_unit_encoder
from speechssl.errors import InputError
from speechssl.finetuning import add_modules, find_added_modules
from speechssl.options import DEVICE, Amount, Count, Weight, Whole, argument, option
from speechssl.stats import BootstrapUnits
from speechssl.textlm.layers import SHIFT, load_shift
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer
from speechssl.training import Batch
from textside.options import ARM, RESULTS
from textside.published import END_DEV, END_TRAIN, HILL, RISE, SURFACE
from textside.runs import NATS, keep_decisive, run_folder, run_once, write_scores


@dataclass(frozen=True, kw_only=True)
class Surface:
    """measure the loss around the weights of a trained reader, along lines and in planes

      path     from the weights that training began with to those that it ended with (arXiv
               1908.05620)
      random   a random direction in which every row of a matrix is as long as that of the weights
               (1712.09913), from the end
      planes   two random directions; the path and a random direction

    READER is a folder of `speechssl train dual`, with --units, or of `train text-qa`. The weights
    that its training began with are made again from what its card names. Losses are those of
    windows of the split of training and of another one. A killed run goes on at the point where it
    was. `gains.py` prints what follows, and the page draws it.

      python recipes/text_side/surface.py corpus exp/dual exp/text_side --units units --arm text
      python recipes/text_side/surface.py corpus exp/text-qa exp/text_side --arm text \\
        --line 11 --plane 1
    """

    corpus: Path = argument("prepared corpus that the reader was trained on")
    reader: Path = argument("folder of the reader")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    units: Path | None = option(None, "folder of `speechssl units extract`, for a reader of units")
    device: str = option("auto", DEVICE)
    line: Count = option(21, "points of a line")
    plane: Count = option(9, "points of a plane along each of its axes; 1: no planes")
    reach: Amount = option(
        1.0, "how far random directions go, in both ways; 1 is as long as the weights themselves"
    )
    beyond: Weight = option(
        0.5, "how far the line from start to end goes on at either end, as a share of its length"
    )
    windows: Count = option(32, "windows of each split whose loss is taken")
    eval_split: str = option("dev", "the split beside that of training")
    seed: Whole = option(0, "seed of the random directions and of the windows")


Weights = dict[str, torch.Tensor]
PATH, RANDOM, PLANE, PATH_PLANE = "path", "random", "plane", "path-plane"  # lines and planes
KINDS = {"DUAL reader": "dual", "text QA": "text-qa"}  # `what` on the card -> kind of reader
BATCH = 8  # B


def measure_surface(o: Surface) -> None:
    """Measure the losses (once).

    Raises InputError for a reader of another kind, or one whose start is missing.
    """
    model, layout, card = load_reader(o.reader)
    if (o.reader / SHIFT).is_file():
        shift, _ = load_shift(o.reader / SHIFT)
        shift.attach(model.encoder)  # the reader was trained with it
    kind = read_kind(o, card)
    split, seed = str(card["options"]["split"]), int(card["options"]["training"]["seed"])
    splits = (split, o.eval_split)
    inputs: dict[str, Any] = {"reader": card["weights"]}
    inputs["data"] = [hash_data(o.corpus, name) for name in splits]
    if o.units is not None:
        inputs["units"] = [read_unit_source(o.units / s, o.corpus).made_from for s in splits]
    folder = run_folder(o.results, f"{kind}-{SURFACE}", o.arm, seed)
    options = keep_decisive(o)

    def make() -> dict[str, Any]:
        windows = {s: read_windows(s, model, layout, card, o) for s in dict.fromkeys(splits)}
        start = remake_start(o.corpus, o.reader, card, model)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model.to(device)
        losses = Losses(model, windows, folder / "points.jsonl", device)
        lines, planes = measure_losses(losses, start, o)
        details = {"kind": kind, "arm": o.arm, "seed": seed, "splits": list(splits)}
        details |= {"directions": o.seed}
        write_surface(folder, lines | planes, windows, details)
        for task, items in measure_lines(lines, kind, *splits).items():
            facts = {"reader": card["weights"], "options": options, "curve": []}
            units = BootstrapUnits("window", tuple((name,) for name in items))
            write_scores(o.results, task, NATS, o.arm, seed, items, facts, units)
        counts = {name: len(w) for name, w in windows.items()}
        return details | {"points": len(losses.by_point), "windows": counts}

    points = run_once(folder, inputs, options, make)["points"]
    print(f"{folder}: {points} points of the loss of {kind} ({o.arm}, seed {seed})")


def read_kind(o: Surface, card: Mapping[str, Any]) -> str:
    """Return the kind of the reader: dual or text-qa. Raises InputError where --units does not suit
    it."""
    kind = KINDS.get(str(card.get("what")))
    if kind is None or (o.units is None) == (kind == "dual"):
        raise InputError(
            f"{o.reader} is a {card.get('what')}; give a folder of `speechssl train dual` and its "
            "--units, or one of `speechssl train text-qa` alone"
        )
    return kind


Parts = Mapping[str, Mapping[str, np.ndarray]]


def write_surface(
    folder: Path, parts: Parts, splits: Collection[str], details: Mapping[str, Any]
) -> None:
    """Write the means over windows to surface.json.

    parts: lines and planes of `measure_losses`; splits: the names in them that are losses.
    """
    means: dict[str, dict[str, Any]] = {}
    for part, arrays in parts.items():
        means[part] = {}
        for name, values in arrays.items():
            means[part][name] = (values.mean(-1) if name in splits else values).tolist()
    write_json(folder / "surface.json", {**details, "parts": means})


# ---- the start of training


def remake_start(corpus: Path, reader: Path, card: Mapping[str, Any], model: SpanModel) -> Weights:
    """Make the weights that training began with again. Raises InputError where that is not
    possible."""
    names = QaOptions.__dataclass_fields__.keys() - {"training"}
    options = QaOptions(**{name: value for name, value in card["options"].items() if name in names})
    encoder, seed = options.text_encoder, int(card["options"]["training"]["seed"])
    weights = hash_checkpoint(encoder)
    if card.get("start") or read_json(reader / MADE_FROM).get("text_weights", weights) != weights:
        raise InputError(
            f"the reader {reader} did not begin as {encoder} does now; give a reader that was "
            "trained from it, without --start"
        )
    if card["what"] == "DUAL reader":
        units = model.embedding.num_embeddings - 3
        untrained = SpanModel(*make_unit_encoder(encoder, units, str(card["assignment"]), seed))
    else:
        training = replace(options.training, seed=seed)
        options = replace(options, training=training)
        data = take_first_passages(load_corpus(corpus, options.split), card["passages"])
        untrained, _ = make_untrained_model(data, options)
    add_modules(untrained.encoder, find_added_modules(model.encoder))
    return drop_pooler(untrained.state_dict())


# ---- losses


def read_windows(
    split: str, model: SpanModel, layout: Layout, card: Mapping[str, Any], o: Surface
) -> list[Batch]:
    """Read N windows of a split with their answers, one a batch, as training has them."""
    data = load_corpus(o.corpus, split)
    if split == card["options"]["split"]:
        data = take_first_passages(data, card["passages"])
    examples: list[Example]
    if o.units is not None:
        pieces = choose_pieces(None, o.reader)
        source = read_unit_source(o.units / split, o.corpus, pieces)
        if list_codebooks(card).isdisjoint(source.codebooks):
            raise InputError(
                f"the reader {o.reader} was trained on other units than {o.units}; give those"
            )
        units = load_joined_units(o.units / split, pieces)
        examples, _ = make_unit_examples(data, units, source.grid)
    else:
        tokenizer = load_tokenizer(o.reader)
        examples, _ = make_text_examples(data, TextCodec(tokenizer))
    training = replace(QaOptions().training, seed=o.seed)
    empty = float(card["options"].get("empty", 0.1))
    batches = ExampleBatches(examples, layout, QaOptions(training, batch=1, empty=empty))
    return [batches(i) for i in range(min(o.windows, len(examples)))]


class Losses:
    """Losses of every window are measured point by point. A file has a line a point, and what is
    there is not measured again."""

    def __init__(
        self,
        model: SpanModel,
        windows: Mapping[str, Sequence[Batch]],
        path: Path,
        device: torch.device,
    ) -> None:
        self.model, self.windows, self.path, self.device = model, windows, path, device
        self.end = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.by_point: dict[str, dict[str, list[float]]] = {}
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            lines = [line for line in lines if line.endswith("\n")]  # a kill cuts the last one off
            for line in lines:
                self.by_point |= json.loads(line)
            write_text(path, "".join(lines))

    @torch.inference_mode()
    def measure(self, name: str, steps: Sequence[tuple[float, Weights]]) -> dict[str, list[float]]:
        """Return the losses by split at the end plus steps along directions. name: of the point, in
        the file."""
        if name not in self.by_point:
            for key, value in self.model.named_parameters():
                moved = self.end[key].clone()
                for step, direction in steps:
                    moved += step * direction[key].to(self.device)
                value.copy_(moved)
            by_split = {s: self._losses(windows) for s, windows in self.windows.items()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({name: by_split}) + "\n")
            self.by_point[name] = by_split
        return self.by_point[name]

    def _losses(self, windows: Sequence[Batch]) -> list[float]:
        """Return the loss of every window, computed in batches of similar length."""
        order = sorted(range(len(windows)), key=lambda i: windows[i]["ids"].shape[1])
        by_window: dict[int, float] = {}
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            size = max(windows[i]["ids"].shape[1] for i in batch)
            rows: dict[str, torch.Tensor] = {}
            for name in ("ids", "mask", "segments"):
                padded = []
                for i in batch:
                    row = windows[i][name]
                    padded.append(functional.pad(row, (0, size - row.shape[1])))
                rows[name] = torch.cat(padded).to(self.device)
            logits = self.model.logits(rows["ids"], rows["mask"], rows["segments"])
            losses = torch.zeros(len(batch), device=logits.device)
            for n, name in enumerate(("first", "last")):
                end = torch.cat([windows[i][name] for i in batch]).to(self.device)
                losses += functional.cross_entropy(logits[..., n], end, reduction="none") / 2
            by_window |= dict(zip(batch, losses.tolist(), strict=True))
        return [by_window[i] for i in range(len(windows))]


# ---- directions


def draw_direction(end: Weights, seed: int) -> Weights:
    """Return a random direction, filter-normalised: rows of matrices have the norms of the weights'
    rows, vectors are 0 (arXiv 1712.09913)."""
    generator = torch.Generator().manual_seed(seed)
    direction = {}
    for name, value in end.items():
        noise = torch.randn(value.shape, generator=generator)
        direction[name] = torch.zeros_like(noise)
        if value.ndim > 1:
            lengths = value.cpu().flatten(1).norm(dim=1)
            scale = lengths / noise.flatten(1).norm(dim=1).clamp(min=1e-12)
            direction[name] = noise * scale.reshape(-1, *[1] * (value.ndim - 1))
    return direction


def measure_losses(
    losses: Losses, start: Weights, o: Surface
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure lines and planes. A line has "at" (P,) and for every split losses (P, N); a plane "x"
    and "y" (P,) and for every split losses (P of y, P of x, N)."""
    path = {name: value.cpu() - start[name] for name, value in losses.end.items()}
    first_random = draw_direction(losses.end, 2 * o.seed)
    second_random = draw_direction(losses.end, 2 * o.seed + 1)
    on_path = np.linspace(-o.beyond, 1 + o.beyond, o.line)
    on_path = np.unique(np.concatenate([on_path, [0.0, 1.0]]))  # with start and end themselves
    around = np.unique(np.concatenate([np.linspace(-o.reach, o.reach, o.line), [0.0]]))
    lines: dict[str, Any] = {PATH: {"at": on_path}, RANDOM: {"at": around}}
    planes: dict[str, Any] = {}
    if o.plane > 1:
        grid = np.linspace(-o.reach, o.reach, o.plane)
        reach = np.linspace(-o.beyond, 1 + o.beyond, o.plane)
        planes = {PLANE: {"x": grid, "y": grid}, PATH_PLANE: {"x": reach, "y": grid}}
    with tqdm(desc="loss surface", unit="point") as bar:
        for part, arrays in (lines | planes).items():
            points = []
            xs = arrays["at"] if part in lines else arrays["x"]
            ys = arrays.get("y", [None])  # a line has none
            for y, x in product(ys, xs):
                steps = [(float(x), first_random)]
                if part in (PATH, PATH_PLANE):  # the path ends at 1
                    steps = [(float(x) - 1, path)]
                name = f"{part} {x:.6f}"
                if y is not None:
                    steps.append((float(y), second_random))
                    name += f" {y:.6f}"
                points.append(losses.measure(name, steps))
                bar.update()
            shape = [len(arrays[axis]) for axis in ("y", "x", "at") if axis in arrays]
            for split in losses.windows:
                arrays[split] = np.array([point[split] for point in points]).reshape(*shape, -1)
    return lines, planes


def measure_lines(
    lines: Parts, kind: str, train: str, dev: str
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return task -> (0, value in nats) of every window, a task for each measure."""
    path, random = lines[PATH], lines[RANDOM]
    at = path["at"]
    first, last = (int(np.flatnonzero(at == x)[0]) for x in (0.0, 1.0))
    start, end = path[train][first], path[train][last]
    straight = (1 - at[:, None]) * start + at[:, None] * end
    inside = (at > 0) & (at < 1)
    hill = np.zeros(path[train].shape[1])
    if inside.any():
        hill = (path[train] - straight)[inside].mean(0)
    middle = random[train][int(np.flatnonzero(random["at"] == 0)[0])]
    rise = (random[train] - middle)[random["at"] != 0].mean(0)
    measures = {END_TRAIN: end, END_DEV: path[dev][last], HILL: hill, RISE: rise}
    items = {}
    for name, values in measures.items():
        items[f"{kind}-{name}"] = {str(i): (0.0, float(x)) for i, x in enumerate(values)}
    return items


if __name__ == "__main__":
    sys.exit(script(measure_surface, Surface))
