"""The parts of pre-training that are no encoder, kept beside it: an ordinary Hugging Face folder with one file more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from tqdm import tqdm

from speechssl.artefacts import replacing
from speechssl.errors import InputError
from speechssl.processes import is_main
from speechssl.shipped import SHIPPED

NAME = "label_head.safetensors"


def save_label_head(model: Any, folder: Path, codebook: str) -> None:
    """Write projection and label embeddings of a `HubertPretraining` into the folder of its encoder. codebook: its hash."""
    state = {"labels": model.labels, **{f"project.{name}": value for name, value in model.project.state_dict().items()}}
    with replacing(folder / NAME) as temporary:
        save_file({k: v.detach().float().cpu().contiguous() for k, v in state.items()}, temporary, {"codebook": codebook})


def restore_label_head(model: Any, start: str, codebook: str) -> bool:
    """Go on with the head beside the encoder `start` where it is for this codebook; else keep the new one, and say so on stderr.

    Returns whether it was restored. Raises InputError for a head that cannot be read.
    """
    path = (SHIPPED / start if (SHIPPED / start / "config.json").is_file() else Path(start)) / NAME  # beside what was loaded
    if not path.is_file():
        return _tell(f"{start} has no label head; one for {len(model.labels)} clusters was made")
    try:
        with safe_open(path, "pt") as file:
            before = (file.metadata() or {}).get("codebook")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
        fits = before == codebook and state["labels"].shape == model.labels.shape
        if not fits:
            old = f"{_size(state['labels'])} for codebook {before}"
            return _tell(f"the label head of {start} is {old}; it was re-made: {_size(model.labels)} for {codebook}")
        _fill(model, state)
    except (OSError, SafetensorError, KeyError, IndexError, RuntimeError) as error:
        why = " ".join(str(error).split())  # torch takes several lines
        raise InputError(f"cannot read the label head {path} ({why}); delete it and a new one is made") from error
    return True


def _size(labels: Any) -> str:
    return f"{labels.shape[0]} clusters in {labels.shape[1]} dimensions"


def _fill(model: Any, state: dict[str, Any]) -> None:
    project: nn.Module = model.project
    project.load_state_dict({k.removeprefix("project."): v for k, v in state.items() if k != "labels"})
    model.labels.data.copy_(state["labels"])


def _tell(text: str) -> bool:
    if is_main():
        tqdm.write(text, file=sys.stderr)
    return False
