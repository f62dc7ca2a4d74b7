"""Heads of SUPERB under a condition: what they say of the test recordings, judged, and kept item by item no longer than that.

A cell is `scores/<encoder>/<part>/<head>/<condition>.json`, whole or not at all: its measures with intervals, and what figures are
drawn from. In each condition an encoder hears every recording once for all heads of a part (seeds, tuned and default rate).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artefacts import hash_bytes, hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.bootstrap import FEWEST
from speechssl.corpora.utterances import Utterance, UtteranceSet
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import tell_set_aside
from speechssl.evaluation.grid import Setting
from speechssl.evaluation.mixtures import FrozenMixtures, file_size
from speechssl.superb.features import encoder_card
from speechssl.superb.fit import on_device, task_card
from speechssl.superb.supply import InTheLoop, Supply
from speechssl.superb.task import Judgement, Measure
from speechssl.superb.train import TrainedHead

RESAMPLES = 1000
DRAWN = f"voices from {FEWEST} on"  # the rule of `bootstrap.choose_units`; a cell keeps intervals and no items


@dataclass(frozen=True)
class Ears:
    """How recordings of a setting are heard. names: what noise knows a recording by, by its path."""

    setting: Setting
    mixtures: FrozenMixtures | None  # None: clean speech only
    names: Mapping[str, str]

    def hear(self, path: Path) -> np.ndarray:
        """(N,) float32 at 16 kHz. Raises InputError or ValueError where it cannot be read or distorted."""
        samples = read_audio(path)
        if self.setting.condition.name == "clean" or self.mixtures is None:
            return samples
        return self.mixtures.apply(samples, self.setting.condition, self.names[os.path.abspath(path)])

    def card(self, paths: Sequence[Path]) -> Any:
        """What decides the sound of these recordings."""
        files = [[path.name, file_size(path)] for path in paths]
        if self.setting.condition.name == "clean" or self.mixtures is None:
            return [files, "clean"]
        utterances = [self.names[os.path.abspath(path)] for path in paths]
        return [files, asdict(self.setting.condition), self.mixtures.made_from(self.setting.condition, utterances)]


@dataclass(frozen=True)
class Cell:
    """Where a judgement is kept, and what it is made from."""

    path: Path
    made_from: str

    def read(self) -> Judgement | None:
        """None where it is not there, or was made from other inputs."""
        found = read_json(self.path) if self.path.is_file() else {}
        if not isinstance(found, dict) or found.get("made_from") != self.made_from:
            return None
        try:
            return Judgement(tuple(Measure(**m) for m in found["measures"]), dict(found["detail"]))
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, judged: Judgement, failed: Mapping[str, str]) -> None:
        values = {"made_from": self.made_from, "measures": [asdict(m) for m in judged.measures]}
        write_json(self.path, values | {"detail": dict(judged.detail), "failed": dict(failed)})


def cell_path(out: Path, encoder: str, part: str, head: str, setting: Setting) -> Path:
    file = setting.label.replace(" ", "-").replace("/", "-")
    return out / "scores" / encoder / part / head / f"{file}.json"


def judge_heads(
    heads: Mapping[str, TrainedHead],
    place: Callable[[str], Path],
    ears: Ears,
    encoder: SpeechEncoder,
    cached: Supply | None,
    workers: int,
    device: str = "cpu",
    what: str = "",
) -> dict[str, Judgement]:
    """Judge heads of one part on its test split; what was judged already is read.

    heads: by name; place: name -> the file of its cell. cached: the states of the test split where they are known (clean speech).
    Recordings that cannot be heard are set aside, told, and count as wrong.
    """
    data = next(iter(heads.values())).task.data
    utterances = data.splits["test"]
    sound = ears.card([data.path(u) for u in utterances])
    cells = {name: Cell(place(name), _made_from(head, encoder, data, sound)) for name, head in heads.items()}
    judged = {name: found for name, cell in cells.items() if (found := cell.read())}
    missing = {name: head for name, head in heads.items() if name not in judged}
    if missing:
        said, failed = _hear(missing, ears, encoder, utterances, cached, workers, device, what)
        tell_set_aside(failed, what)
        for name, head in missing.items():
            judged[name] = head.task.judge("test", said[name], RESAMPLES)
            cells[name].write(judged[name], failed)
    return {name: judged[name] for name in heads}


def _made_from(head: TrainedHead, encoder: SpeechEncoder, data: UtteranceSet, sound: Any) -> str:
    """Of the task as it is judged: with its language model, and the threshold that dev chose."""
    decoding = {name: str(getattr(head.task, name, None)) for name in ("beam", "threshold", "median")}
    model = getattr(head.task, "language_model", None)
    words = None if model is None else hash_bytes("\n".join(model.words).encode(), *(n.log_probs.tobytes() for n in model.ngrams))
    facts = [head.weights, task_card(head.task), data.hash, sound, encoder_card(encoder), decoding, words, RESAMPLES]
    return hash_json([*facts, DRAWN])


@torch.inference_mode()
def _hear(
    heads: Mapping[str, TrainedHead],
    ears: Ears,
    encoder: SpeechEncoder,
    utterances: Sequence[Utterance],
    cached: Supply | None,
    workers: int,
    device: str,
    what: str,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What every head says, by the id of the recording; and why others could not be heard."""
    first = next(iter(heads.values()))
    task, size = first.task, int(first.card["settings"]["batch"])
    said: dict[str, dict[str, Any]] = {name: {} for name in heads}
    before = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        torch.set_num_threads(1)
        live = InTheLoop(encoder, lambda u: ears.hear(task.data.path(u)), task.pooled, task.wants_waves, pool)
        supply: Supply = cached or live
        usable = supply.usable(utterances)
        ordered = sorted(usable, key=lambda u: u.seconds)
        parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        for part in tqdm(parts, desc=what, unit="batch", disable=cached is not None):
            batch = supply.batch(part)
            if batch is None:
                continue
            for name, head in heads.items():
                found = head.task.predict(head.head.to(device), on_device(batch, device))
                said[name] |= {u.id: x for u, x in zip(batch.utterances, found, strict=True)}
    torch.set_num_threads(before)
    heard = {u.id for u in usable}
    return said, live.failed | {u.id: "it could not be cached" for u in utterances if u.id not in heard and u.id not in live.failed}
