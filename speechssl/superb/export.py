"""An encoder handed to s3prl's own runner: a folder with the encoder, the settings of every task of SUPERB, and a script.

OUT/encoder/       Hugging Face's format: s3prl's upstream `speechssl` takes it, and its `hf_hubert_custom` where that fits
OUT/configs/       a file a task, for the runner's -c: s3prl's package leaves its own out
OUT/run.sh         the command lines
OUT/README.md, OUT/card.json
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from speechssl.artefacts import hash_bytes, read_json, write_json, write_text
from speechssl.encoders.exporting import convert
from speechssl.encoders.loading import load_checkpoint
from speechssl.encoders.s3prl import PREFIX
from speechssl.errors import InputError
from speechssl.superb.export_text import readme, script
from speechssl.superb.s3prl_tasks import TASKS
from speechssl.superb.upstream import SPECTRAL

KIND = "encoder for s3prl's runner"
HOP = 320  # samples; what s3prl's hf_* upstreams say whatever a checkpoint has
NATIVE = {"hubert": "hf_hubert_custom", "wav2vec2": "hf_wav2vec2_custom"}  # s3prl's upstreams that read transformers' folders


def export_upstream(encoder: str | Path, out: Path) -> dict[str, Any]:
    """Write the folder, whole or not at all, and return its card. encoder: what `load_encoder` takes and has weights of its own.

    The encoder is proven as `convert` proves it: the same weights to the bit, every layer within 1e-5. Where the folder is there
    already and holds the same weights, only files that are missing are written: a script that was changed stays as it is.
    Raises InputError where the encoder has no weights to hand over or cannot be loaded, and where `out` is something else.
    """
    _check_source(str(encoder))
    if (there := _card_there(out)) is not None:
        convert(encoder, out / "encoder", "huggingface")
        _write(out, there)
        return there
    with _folder_beside(out) as folder:
        converted = convert(encoder, folder / "encoder", "huggingface")
        card = _card("/".join(Path(encoder).parts[-2:]), converted, folder / "encoder")
        _write(folder, card)
        write_json(folder / "card.json", card)
        os.replace(folder, out)
    return card


def _check_source(encoder: str) -> None:
    if encoder in SPECTRAL:
        raise InputError(
            f"{encoder} has no weights to hand over; s3prl computes such features itself: run it there with -u {encoder}"
        )
    if encoder.startswith(PREFIX):
        name, _, path = encoder.removeprefix(PREFIX).partition("@")
        given = f"-u {name} -k {path}" if path else f"-u {name}"
        raise InputError(f"{encoder} is s3prl's already; run it there with {given}")


def _card_there(out: Path) -> dict[str, Any] | None:
    """The card of an earlier export; None for a place where one can be made."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    card = read_json(out / "card.json") if (out / "card.json").is_file() else None
    if not isinstance(card, dict) or card.get("what") != KIND:
        raise InputError(f"{out} is there already and is no export of an encoder; choose another folder or delete it")
    return card


@contextmanager
def _folder_beside(out: Path) -> Iterator[Path]:
    """A folder in the same file system, for what is not whole yet; gone if it never is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _card(name: str, converted: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    config: Any = load_checkpoint(folder).model.config
    hop = 1
    for stride in config.conv_stride:
        hop *= stride
    made_from = {"name": name} | {key: converted["made_from"][key] for key in ("kind", "hash")}
    facts = {"model_type": config.model_type, "layers": config.num_hidden_layers, "width": config.hidden_size, "hop": hop}
    native = [NATIVE[config.model_type]] if config.model_type in NATIVE and hop == HOP else []
    return {
        "what": KIND,
        "made_from": made_from,
        "encoder": facts | {"normalise": converted["normalise"]},
        "upstreams": ["speechssl", *native],
        "tasks": {task.name: hash_bytes(_yaml(task.config()).encode()) for task in TASKS},
        "s3prl": "0.4.18",
    }


def _write(folder: Path, card: Mapping[str, Any]) -> None:
    """All that is not there yet, beside the encoder and the card."""
    texts = {f"configs/{task.name}.yaml": _yaml(task.config()) for task in TASKS}
    texts |= {"run.sh": script(card["encoder"]["layers"]), "README.md": readme(card)}
    for name, text in texts.items():
        if not (folder / name).exists():
            write_text(folder / name, text)
    (folder / "run.sh").chmod(0o755)


def _yaml(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=120)
