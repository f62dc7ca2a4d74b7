"""An encoder is written in the format of Hugging Face, torchaudio or fairseq.

The written file is read again, and all layers are compared with those of the source, before it gets
its name.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.checkpoints import (
    MASK,
    Checkpoint,
    make_fairseq_settings,
    make_torchaudio_arguments,
    read_weights,
    rename,
)
from speechssl.encoders.engines import TransformersEngine
from speechssl.encoders.hubert import has_our_forward_pass
from speechssl.encoders.load import (
    ONE_FILE,
    hash_folder,
    hash_weights,
    load_checkpoint,
    make_speech_encoder,
    save_extractor,
)
from speechssl.encoders.options import Convert
from speechssl.errors import InputError
from speechssl.finetuning import find_added_modules

TOLERANCE = 1e-5  # of the relative error of a layer
SECONDS = 2  # of noise, for which layers are compared
# Entries of the card that are equal for two files of the same encoder.
IDENTIFYING = ("what", "normalise", "settings")
# Settings in transformers' config that do not describe the encoder.
IRRELEVANT = ("_name_or_path", "transformers_version", "dtype", "architectures")
Layers = list[torch.Tensor]  # 0 to L, (T, D) each


def convert_encoder(o: Convert) -> None:
    """Write an encoder in another format, and print the relative errors of its layers."""
    card = convert(o.source, o.out, o.to)
    for layer, error in enumerate(card["largest_errors"]):
        print(f"layer {layer:>3}  relative error {error:.1e}")
    note = f", {card['note']}" if "note" in card else ""
    print(f"{o.out}: {card['what']}, {card['made_from']['hash']}{note}")


def convert(source: str | Path, out: Path, kind: str) -> dict[str, Any]:
    """Write an encoder in another library's format, and return its card, with the relative error of
    every layer.

    out: a folder for huggingface, a `.pt` file for the others. Nothing is done if `out` exists and
    was made from the same weights. Raises InputError when the source cannot be loaded, the format
    cannot hold it, `out` is something else, or the written file is another encoder.
    """
    is_folder = kind == "huggingface"
    checkpoint = load_checkpoint(source)
    if checkpoint.model.config.model_type == "whisper":
        raise InputError(f"{source} is a Whisper, whose encoder is not written alone; use it as is")
    if not is_folder:
        _check_plain(checkpoint, kind)
    card = _make_card(checkpoint, kind)
    further_files = [] if is_folder else [out.with_suffix(".json"), _name_card(out, kind)]
    if any(path.exists() for path in (out, *further_files)):
        return _read_existing(out, kind, card)
    out.parent.mkdir(parents=True, exist_ok=True)
    # in the same file system, so that files can be renamed
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.stem}-") as scratch:
        written = Path(scratch) / out.name
        if is_folder:
            checkpoint.model.save_pretrained(written, max_shard_size=ONE_FILE)  # type: ignore[operator]
            save_extractor(checkpoint.model.config, written, checkpoint.normalise)
        elif kind == "torchaudio":
            _write_torchaudio(checkpoint, written, card)
        else:
            _write_fairseq(checkpoint, written, card)
        card["largest_errors"] = _verify(source, checkpoint, written, kind)
        if is_folder:
            card["files"] = hash_folder(written)
        write_json(_name_card(written, kind), card)
        # `out` itself comes last, so that it is never there without its card
        for path in sorted(Path(scratch).iterdir(), key=lambda path: path.name == out.name):
            os.replace(path, out.parent / path.name)
    return card


def _check_plain(checkpoint: Checkpoint, kind: str) -> None:
    """Raise InputError for an encoder that the format of torchaudio or fairseq cannot hold."""
    config: Any = checkpoint.model.config
    is_plain = (
        has_our_forward_pass(config)
        and not find_added_modules(checkpoint.model)
        and config.layer_norm_eps == 1e-5
        and getattr(config, "feat_proj_layer_norm", True)
    )
    if not is_plain:
        raise InputError(
            f"{checkpoint.name} is not a plain HuBERT or wav2vec 2.0, and is not written for "
            f"{kind}; convert to huggingface"
        )


def _make_card(checkpoint: Checkpoint, kind: str) -> dict[str, Any]:
    """Return the card of a checkpoint in a format."""
    config: Any = checkpoint.model.config
    settings = {k: v for k, v in config.to_dict().items() if k not in IRRELEVANT}
    made_from = {
        "name": checkpoint.name,
        "kind": checkpoint.kind,
        "hash": hash_weights(checkpoint.model),
        "card": {key: value for key, value in checkpoint.card.items() if key != MASK},
    }
    return {
        "what": f"encoder in the format of {kind}",
        "made_from": made_from,
        "model_type": config.model_type,
        "normalise": checkpoint.normalise,
        "norm": getattr(config, "feat_extract_norm", "layer"),  # data2vec has layer norms always
        "settings": hash_json(settings),
        "left_out": list(checkpoint.left_out),
        "taken_for_granted": list(checkpoint.assumptions),
    }


def _read_existing(out: Path, kind: str, card: dict[str, Any]) -> dict[str, Any]:
    """Return the card of the existing `out`. Raises InputError where that is another encoder than
    that of `card`."""
    card_file = _name_card(out, kind)
    stored = read_json(card_file) if out.exists() and card_file.is_file() else {}
    same_weights = stored.get("made_from", {}).get("hash") == card["made_from"]["hash"]
    same_card = all(stored.get(key) == card[key] for key in IDENTIFYING)
    if not (same_weights and same_card):
        raise InputError(
            f"{out} already exists and is something else; choose another place or delete it"
        )
    return dict(stored)


def _rename_weights(checkpoint: Checkpoint, kind: str) -> dict[str, torch.Tensor]:
    """Return the weights under the names of torchaudio or fairseq."""
    config: Any = checkpoint.model.config
    state = rename(checkpoint.model.state_dict(), kind, config.feat_extract_norm)
    return {name: tensor.contiguous() for name, tensor in state.items()}


def _write_torchaudio(checkpoint: Checkpoint, written: Path, card: dict[str, Any]) -> None:
    """Write the `.pt` of torchaudio. Its architecture is written beside it, and the mask embedding,
    for which the format has no place, into the card."""
    state = _rename_weights(checkpoint, "torchaudio")
    card[MASK] = state.pop("mask_generator.mask_embedding").tolist()
    torch.save(state, written)
    write_json(written.with_suffix(".json"), make_torchaudio_arguments(checkpoint.model.config))
    write_json(_name_card(written, "torchaudio"), card)  # needed to read the file


def _write_fairseq(checkpoint: Checkpoint, written: Path, card: dict[str, Any]) -> None:
    """Write the `.pt` of fairseq. Its models have no projection between equal widths: an identity
    is left out, any other projection is noted in the card."""
    config: Any = checkpoint.model.config
    state = _rename_weights(checkpoint, "fairseq")
    if config.conv_dim[-1] == config.hidden_size:
        weight, bias = state["post_extract_proj.weight"], state["post_extract_proj.bias"]
        if torch.equal(weight, torch.eye(len(weight))) and not bias.any():
            del state["post_extract_proj.weight"], state["post_extract_proj.bias"]
        else:
            card["note"] = (
                "fairseq's own models have no projection between equal widths, and will not take "
                "this one"
            )
    settings = make_fairseq_settings(config, checkpoint.normalise)
    torch.save({"args": None, "cfg": settings, "model": state}, written)


def measure_errors(layers: Layers, expected: Layers) -> list[float]:
    """Return the relative error of every layer: the norm of its difference from the expected one,
    over the norm of the latter."""
    errors = []
    for a, b in zip(layers, expected, strict=True):
        distance = torch.linalg.norm((a - b).double())
        errors.append(float(distance / torch.linalg.norm(b.double()).clamp(min=1e-30)))
    return errors


def _verify(source: str | Path, checkpoint: Checkpoint, written: Path, kind: str) -> list[float]:
    """Return the relative errors of all layers of the written encoder for SECONDS of noise. Source
    and copy are computed by the libraries of their formats (fairseq's by our engine).

    Raises InputError where the weights differ in a bit, or an error exceeds TOLERANCE.
    """
    copy = load_checkpoint(written)
    weights, copied = checkpoint.model.state_dict(), copy.model.state_dict()
    same_weights = weights.keys() == copied.keys()
    same_weights = same_weights and all(torch.equal(weights[n], copied[n]) for n in weights)
    is_complete = not copy.left_out and not copy.assumptions
    samples = np.random.default_rng(0).standard_normal(SECONDS * SAMPLE_RATE)
    wave = torch.from_numpy((0.1 * samples).astype(np.float32))
    if checkpoint.normalise:
        wave = (wave - wave.mean()) / wave.std(correction=0)
    layers = _compute_layers(written, copy, wave)
    errors = measure_errors(layers, _compute_layers(source, checkpoint, wave))
    is_near = np.max(errors) <= TOLERANCE  # False for NaN
    is_same = same_weights and copy.normalise == checkpoint.normalise
    if not (is_same and is_complete and is_near):
        raise InputError(
            f"{source} is another encoder in {kind} (its layers differ by {np.max(errors):.1e}), "
            "so nothing was written; report this as a bug"
        )
    return errors


@torch.inference_mode()
def _compute_layers(name: str | Path, checkpoint: Checkpoint, wave: torch.Tensor) -> Layers:
    """Compute all layers by the library of the checkpoint. For torchaudio that is torchaudio's
    model with torchaudio's file, and not the converted model."""
    config: Any = checkpoint.model.config
    if checkpoint.kind != "torchaudio":
        engine: Any = TransformersEngine(checkpoint.model)
        if checkpoint.kind == "fairseq":
            engine = make_speech_encoder(checkpoint, device="cpu").engine
        layer_numbers = range(config.num_hidden_layers + 1)
        return list(engine.compute_layers(wave, engine.compute_statistics(wave), layer_numbers))
    import torchaudio

    weights = read_weights(name).state
    weights.pop("mask_generator.mask_embedding", None)
    make = torchaudio.models.wav2vec2_model
    if config.model_type == "wavlm":
        make = torchaudio.models.wavlm_model
    model = make(**make_torchaudio_arguments(config))
    model.load_state_dict(weights)
    layer_0: Layers = []
    model.encoder.transformer.layers[0].register_forward_pre_hook(
        lambda _, inputs: layer_0.append(inputs[0])
    )
    layers, _ = model.eval().extract_features(wave[None])
    return [x[0] for x in (*layer_0, *layers)]


def _name_card(out: Path, kind: str) -> Path:
    return out / "card.json" if kind == "huggingface" else out.with_suffix(".card.json")
