"""A head from a sweep to a folder, and back: `head.safetensors` is the best on dev, `default.safetensors` that of the task's own
learning rate, `card.json` says what they are. An encoder that was trained with them (`tuning`) lies beside them: `encoder`, and
`encoder-default` where the rates differ. While they are made there is a folder a rate, in which a killed run goes on."""

from __future__ import annotations

import importlib.metadata
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from speechssl.artefacts import claim, hash_files, read_json, replacing, write_json
from speechssl.errors import InputError
from speechssl.superb.fit import Attempt, Run, best_models, own_generator, task_card
from speechssl.superb.sweep import Go, Swept, one_after_another, sweep
from speechssl.superb.task import Task
from speechssl.superb.tuning import save_upstream

KIND = "superb-head"
NEEDED = {"task", "encoder", "states", "width", "settings", "learning_rate", "weights"}  # of a card
HEADS = {"tuned": "head.safetensors", "default": "default.safetensors"}


@dataclass(frozen=True)
class TrainedHead:
    """A head in eval mode with the task it was trained for."""

    task: Task
    head: nn.Module
    card: Mapping[str, Any]
    which: str = "tuned"  # or default: of the task's own learning rate
    upstream: Path | None = None  # the encoder that was trained with it; None: it sits on the one that it was trained for

    @property
    def weights(self) -> str:
        """Their hash."""
        return str(self.card["weights"][self.which])


def train_head(
    run: Run,
    encoder: Mapping[str, Any],
    rates: Sequence[float],
    metric: str,
    go: Go = one_after_another,
    halving: bool = True,
) -> TrainedHead:
    """Train (once) and save a head in run.folder. encoder: the card of what gave the states; metric: the first of the task.

    The learning rate and the steps of run.settings are the task's own. Raises InputError where the folder was made from other
    inputs, or all recordings of a split had to be set aside.
    """
    made_from = {
        "encoder": dict(encoder),
        "task": task_card(run.task),
        "settings": asdict(run.settings),
        "rates": list(rates),
        "halving": halving,
        "seed": run.seed,
    }
    with claim(run.folder, made_from):
        if not (run.folder / "card.json").is_file():
            _save(run, encoder, sweep(run, rates, metric, go, halving), metric)
    return load_head(run.folder, run.task, encoder)


def load_head(folder: Path | str, task: Task, encoder: Mapping[str, Any], which: str = "tuned") -> TrainedHead:
    """which: tuned or default.

    Raises InputError where a file is missing or damaged, or head, task and encoder do not belong together.
    """
    path, weights = Path(folder) / "card.json", Path(folder) / HEADS[which]
    card = read_json(path)
    if not isinstance(card, dict) or card.get("kind") != KIND or not NEEDED <= set(card):
        raise InputError(f"{path} is not the card of a head; give the folder that training wrote")
    if card["encoder"] != dict(encoder):
        raise InputError(f"{path} was trained on another encoder (or its other precision); load that one or train again")
    if card["task"] != task_card(task):
        raise InputError(f"{path} was trained for another set than {task.data.root}, or another head; give its own, or train again")
    with own_generator():
        head = task.build(card["states"], card["width"])
    try:
        head.load_state_dict(load_file(weights))
        if hash_files([weights]) != card["weights"][which]:
            raise ValueError("its contents are not those the card was written for")
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{weights} does not hold the weights of its card ({reason}); delete the folder and train again"
        ) from error
    upstream = Path(folder) / card["upstreams"][which] if card.get("upstreams") else None
    return TrainedHead(task, head.eval(), card, which, upstream)


def _save(run: Run, encoder: Mapping[str, Any], swept: Swept, metric: str) -> None:
    models = {"tuned": best_models(swept.tuned), "default": best_models(swept.default)}
    heads = {which: found["head"] for which, found in models.items()}
    upstreams: dict[str, str] = {}
    if "upstream" in models["tuned"]:
        upstreams = {"tuned": "encoder", "default": "encoder" if swept.tuned == swept.default else "encoder-default"}
        save_upstream(models["tuned"], run.folder / upstreams["tuned"], swept.tuned)
        if swept.tuned != swept.default:
            save_upstream(models["default"], run.folder / upstreams["default"], swept.default)
    for which, head in heads.items():
        with replacing(run.folder / HEADS[which]) as temporary:
            save_file({name: weight.detach().cpu().contiguous() for name, weight in head.state_dict().items()}, temporary)
    states, width = run.supply.shape
    card = {
        "kind": KIND,
        "task": task_card(run.task),
        "encoder": dict(encoder),
        "states": states,
        "width": width,
        "metric": metric,
        "settings": asdict(run.settings),
        "seed": run.seed,
        "learning_rate": swept.best.learning_rate,
        "default_learning_rate": swept.untuned.learning_rate,
        "dev": {metric: swept.best.value, "step": swept.best.best},
        "default": {metric: swept.untuned.value, "step": swept.untuned.best},
        "sweep": [_told(attempt) for attempt in swept.attempts],
        "layer_weights": _shares(heads["tuned"]),
        "upstreams": upstreams,
        "seconds": round(sum(a.seconds for a in swept.attempts), 1),
        "steps": sum(a.steps for a in swept.attempts),
        "weights": {which: hash_files([run.folder / name]) for which, name in HEADS.items()},
        "versions": {"torch": importlib.metadata.version("torch")},
    }
    write_json(run.folder / "card.json", card)
    for folder in run.folder.glob("lr-*"):
        shutil.rmtree(folder)


def _told(attempt: Attempt) -> dict[str, Any]:
    value = None if math.isnan(attempt.value) else attempt.value
    return {"learning_rate": attempt.learning_rate, "value": value, "best": attempt.best, "steps": attempt.steps}


def _shares(head: nn.Module) -> list[float]:
    """How much of the weighted sum each hidden state is."""
    shares: list[float] = head.featurizer.shares.tolist()  # type: ignore[union-attr, operator]
    return shares
