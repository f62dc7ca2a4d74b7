"""Take the loss around a trained reader along lines and in planes, on windows of training and of
other data.

The end is the reader as it was saved, with matrices in int8. Of every window the loss at the end is
taken; how far the loss on the path lies above the straight line between its ends, in the mean (a
hill on the way); and how far it rises, in the mean, along the random line (how sharp the minimum
is). Letters: P points, N windows, B windows in a batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tqdm import tqdm

from speechssl.artifacts import MADE_FROM, read_json, write_json, write_text
from speechssl.cascade.train_text_qa import begin_text, text_examples
from speechssl.checkpoints import hash_of_weights
from speechssl.cli import script
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual.data import Example, ExampleBatches, Layout, read_unit_source, unit_examples
from speechssl.dual.model import SpanModel, load_reader, without_pooler
from speechssl.dual.options import QaOptions
from speechssl.dual.train import unit_encoder
from speechssl.errors import InputError
from speechssl.finetuning import add_modules, added_modules
from speechssl.options import DEVICE, Amount, Count, Weight, Whole, argument, option
from speechssl.stats import BootstrapUnits
from speechssl.textlm.layers import SHIFT, load_shift
from speechssl.textlm.tokenizers import TextCodec, load_tokenizer
from speechssl.training import Batch
from speechssl.units.storage import load_units
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
PATH, RANDOM, PLANE, PATH_PLANE = "path", "random", "plane", "path-plane"
KINDS = {"DUAL reader": "dual", "text QA": "text-qa"}  # what a card says -> task
TOGETHER = 8  # B


def surface(o: Surface) -> None:
    """Take the losses (once).

    Raises InputError for a reader of another kind, or one whose start is not there.
    """
    model, layout, card = load_reader(o.reader)
    if (o.reader / SHIFT).is_file():
        load_shift(o.reader / SHIFT)[0].attach(model.encoder)  # which it was trained with
    kind = read_kind(o, card)
    split, seed = str(card["options"]["split"]), int(card["options"]["training"]["seed"])
    splits = (split, o.eval_split)
    inputs: dict[str, Any] = {"reader": card["weights"]}
    inputs["data"] = [data_hash(o.corpus, name) for name in splits]
    if o.units is not None:
        inputs["units"] = [read_unit_source(o.units / name, o.corpus)[0] for name in splits]
    folder = run_folder(o.results, f"{kind}-{SURFACE}", o.arm, seed)
    options = keep_decisive(o)

    def make() -> dict[str, Any]:
        windows = {s: read_windows(s, model, layout, card, o) for s in dict.fromkeys(splits)}
        first = remake_start(o.corpus, o.reader, card, model)
        place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model.to(place)
        losses = Losses(model, windows, folder / "points.jsonl", place)
        lines, planes = take_losses(losses, first, o)
        details = {"kind": kind, "arm": o.arm, "seed": seed, "splits": list(splits)}
        details |= {"directions": o.seed}
        write_surface(folder, lines | planes, windows, details)
        for task, items in measure_lines(lines, kind, *splits).items():
            facts = {"reader": card["weights"], "options": options, "curve": []}
            drawn = BootstrapUnits("window", tuple((name,) for name in items))
            write_scores(o.results, task, NATS, o.arm, seed, items, facts, drawn)
        counts = {name: len(w) for name, w in windows.items()}
        return details | {"points": len(losses.by_point), "windows": counts}

    points = run_once(folder, inputs, options, make)["points"]
    print(f"{folder}: {points} points of the loss of {kind} ({o.arm}, seed {seed})")


def read_kind(o: Surface, card: Mapping[str, Any]) -> str:
    """Return dual or text-qa. Raises InputError where --units does not suit the reader."""
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

    parts: lines and planes as `take` gives them; splits: the names in them that are losses.
    """
    means = {
        part: {name: (x.mean(-1) if name in splits else x).tolist() for name, x in by_name.items()}
        for part, by_name in parts.items()
    }
    write_json(folder / "surface.json", {**details, "parts": means})


# ---- what the reader began as


def remake_start(corpus: Path, reader: Path, card: Mapping[str, Any], model: SpanModel) -> Weights:
    """Make the weights that training began with again. Raises InputError where they are not to be
    had."""
    names = QaOptions.__dataclass_fields__.keys() - {"training"}
    options = QaOptions(**{name: value for name, value in card["options"].items() if name in names})
    encoder, seed = options.text_encoder, int(card["options"]["training"]["seed"])
    weights = hash_of_weights(encoder)
    if card.get("start") or read_json(reader / MADE_FROM).get("text_weights", weights) != weights:
        raise InputError(
            f"the reader {reader} did not begin as {encoder} does now; give a reader that was "
            "trained from it, without --start"
        )
    if card["what"] == "DUAL reader":
        units = model.embedding.num_embeddings - 3
        began = SpanModel(*unit_encoder(encoder, units, str(card["assignment"]), seed))
    else:
        training = replace(options.training, seed=seed)
        options = replace(options, training=training)
        began, _ = begin_text(load_corpus(corpus, options.split), options)
    add_modules(began.encoder, added_modules(model.encoder))
    return without_pooler(began.state_dict())


# ---- losses


def read_windows(
    split: str, model: SpanModel, layout: Layout, card: Mapping[str, Any], o: Surface
) -> list[Batch]:
    """Read N windows of a split with their answers, one a batch, as training has them."""
    data = load_corpus(o.corpus, split)
    examples: list[Example]
    if o.units is not None:
        grid = read_unit_source(o.units / split, o.corpus)[2]
        examples, _ = unit_examples(data, load_units(o.units / split), grid)
    else:
        tokenizer = load_tokenizer(o.reader)
        examples, _ = text_examples(data, TextCodec(tokenizer))
    training = replace(QaOptions().training, seed=o.seed)
    empty = float(card["options"].get("empty", 0.1))
    batches = ExampleBatches(examples, layout, QaOptions(training, batch=1, empty=empty))
    return [batches(i) for i in range(min(o.windows, len(examples)))]


class Losses:
    """The loss of every window at a point. What was taken is in a file, a line a point, and is
    not taken again."""

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
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]  # a kill cuts the last one
            for line in whole:
                self.by_point |= json.loads(line)
            write_text(path, "".join(whole))

    @torch.inference_mode()
    def at(self, name: str, steps: Sequence[tuple[float, Weights]]) -> dict[str, list[float]]:
        """Return the losses by split at the end plus steps along directions. name: of the point, in
        the file."""
        if name not in self.by_point:
            for key, value in self.model.named_parameters():
                moved = self.end[key].clone()
                for step, direction in steps:
                    moved += step * direction[key].to(self.place)
                value.copy_(moved)
            by_split = {
                split: list(self._losses(windows)) for split, windows in self.windows.items()
            }
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({name: by_split}) + "\n")
            self.by_point[name] = by_split
        return self.by_point[name]

    def _losses(self, windows: Sequence[Batch]) -> Iterator[float]:
        order = sorted(range(len(windows)), key=lambda i: windows[i]["ids"].shape[1])
        by_window: dict[int, float] = {}
        for first in range(0, len(order), TOGETHER):
            batch = order[first : first + TOGETHER]
            size = max(windows[i]["ids"].shape[1] for i in batch)
            rows: dict[str, torch.Tensor] = {}
            for name in ("ids", "mask", "segments"):
                each = [windows[i][name] for i in batch]
                wide = [functional.pad(row, (0, size - row.shape[1])) for row in each]
                rows[name] = torch.cat(wide).to(self.place)
            logits = self.model.logits(rows["ids"], rows["mask"], rows["segments"])
            losses = torch.zeros(len(batch), device=logits.device)
            for n, name in enumerate(("first", "last")):
                end = torch.cat([windows[i][name] for i in batch]).to(self.place)
                losses += functional.cross_entropy(logits[..., n], end, reduction="none") / 2
            by_window |= dict(zip(batch, losses.tolist(), strict=True))
        yield from (by_window[i] for i in range(len(windows)))


# ---- directions


def random_direction(end: Weights, seed: int) -> Weights:
    """Filter-normalised: rows of matrices as long as those of the weights, none for vectors."""
    generator, direction = torch.Generator().manual_seed(seed), {}
    for name, value in end.items():
        drawn = torch.randn(value.shape, generator=generator)
        direction[name] = torch.zeros_like(drawn)
        if value.ndim > 1:
            rows, lengths = (x.flatten(1).norm(dim=1) for x in (drawn, value.cpu()))
            scale = lengths / rows.clamp(min=1e-12)
            direction[name] = drawn * scale.reshape(-1, *[1] * (value.ndim - 1))
    return direction


def take_losses(
    losses: Losses, start: Weights, o: Surface
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
    if o.plane > 1:
        grid = np.linspace(-o.reach, o.reach, o.plane)
        reach = np.linspace(-o.beyond, 1 + o.beyond, o.plane)
        planes = {PLANE: {"x": grid, "y": grid}, PATH_PLANE: {"x": reach, "y": grid}}
    with tqdm(desc="loss surface", unit="point") as bar:
        for part, arrays in (lines | planes).items():
            taken = []
            for y, x in product(arrays.get("y", [None]), arrays["at" if part in lines else "x"]):
                on_path = part in (PATH, PATH_PLANE)  # which ends at 1
                steps = [(float(x) - 1, path) if on_path else (float(x), one)]
                name = f"{part} {x:.6f}"
                if y is not None:
                    steps.append((float(y), two))
                    name += f" {y:.6f}"
                taken.append(losses.at(name, steps))
                bar.update()
            shape = (len(arrays["y"]), len(arrays["x"]), -1) if part in planes else (len(taken), -1)
            for split in losses.windows:
                arrays[split] = np.array([point[split] for point in taken]).reshape(shape)
    return lines, planes


def measure_lines(
    lines: Parts, kind: str, train: str, dev: str
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the task of every measure, and (0, value in nats) of every window."""
    path, random = lines[PATH], lines[RANDOM]
    at = path["at"]
    inside = (at > 0) & (at < 1)
    ends = {x: path[train][int(np.flatnonzero(at == x)[0])] for x in (0.0, 1.0)}
    chord = (1 - at[:, None]) * ends[0.0] + at[:, None] * ends[1.0]
    hill = (path[train] - chord)[inside].mean(0) if inside.any() else np.zeros(path[train].shape[1])
    middle = random[train][int(np.flatnonzero(random["at"] == 0)[0])]
    rise = (random[train] - middle)[random["at"] != 0].mean(0)
    end_dev = path[dev][int(np.flatnonzero(at == 1.0)[0])]
    measures = {END_TRAIN: ends[1.0], END_DEV: end_dev, HILL: hill, RISE: rise}
    return {
        f"{kind}-{name}": {f"{i}": (0.0, float(x)) for i, x in enumerate(values)}
        for name, values in measures.items()
    }


if __name__ == "__main__":
    sys.exit(script(surface, Surface))
