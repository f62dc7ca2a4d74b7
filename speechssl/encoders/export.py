"""An encoder is written for Hugging Face, torchaudio or fairseq.

What was written is read again, and all of its layers are compared with the source's, before
anything appears under its name.
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
    Architecture,
    fairseq_settings,
    read_weights,
    rename,
    torchaudio_arguments,
)
from speechssl.encoders.engines import TransformersEngine
from speechssl.encoders.hubert import is_known
from speechssl.encoders.load import (
    ONE_FILE,
    Checkpoint,
    as_encoder,
    file_hashes,
    hash_weights,
    load_checkpoint,
    save_extractor,
)
from speechssl.encoders.options import Convert
from speechssl.errors import InputError
from speechssl.finetuning import added_modules

TOLERANCE = 1e-5  # of the relative error of a layer
SECONDS = 2  # of noise, for which layers are compared
# entries that the cards of two files share which hold the same encoder
SAME = ("what", "model_type", "normalise", "norm", "settings")
# settings of transformers' config that say nothing of the encoder
PASSING = ("_name_or_path", "transformers_version", "dtype", "architectures")
Layers = list[torch.Tensor]  # 0 to L, (T, D) each


def convert_encoder(o: Convert) -> None:
    """Write an encoder in another format, and print how far its layers are from the source's."""
    pre_norm = o.pre_norm if o.pre_norm or o.post_norm else None
    card = convert(o.source, o.out, o.to, Architecture(o.strides, o.heads, pre_norm))
    for layer, error in enumerate(card["largest_errors"]):
        print(f"layer {layer:>3}  relative error {error:.1e}")
    note = f", {card['note']}" if "note" in card else ""
    print(f"{o.out}: {card['what']}, {card['made_from']['hash']}{note}")


def convert(
    source: str | Path, out: Path, kind: str, overrides: Architecture = Architecture()
) -> dict[str, Any]:
    """Write an encoder in another library's format, and return its card, with the largest relative
    error of every layer.

    out: a folder for huggingface, a `.pt` for the others. overrides: what is known of a source that
    does not say it.
    Where `out` is there already and was made from the same weights, nothing is done.
    Raises InputError when the source cannot be loaded, the format cannot hold it, `out` is
    something else, or what was written is another encoder.
    """
    is_folder = kind == "huggingface"
    if not is_folder and out.suffix not in (".pt", ".pth"):
        raise InputError(f"{kind} is written to a file; give {out} a name that ends in .pt")
    checkpoint = load_checkpoint(source, overrides)
    if not is_folder:
        _check_plain(checkpoint, kind)
    card = _make_card(checkpoint, kind)
    beside = [] if is_folder else [out.with_suffix(".json"), _card_file(out, kind)]
    if any(path.exists() for path in (out, *beside)):
        return _read_existing(out, kind, card)
    out.parent.mkdir(parents=True, exist_ok=True)
    # in the same file system
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.stem}-") as scratch:
        written = Path(scratch) / out.name
        if kind == "huggingface":
            checkpoint.model.save_pretrained(written, max_shard_size=ONE_FILE)  # type: ignore[operator]
            save_extractor(checkpoint.model.config, written, checkpoint.normalise)
        elif kind == "torchaudio":
            _write_torchaudio(checkpoint, written, card)
        else:
            _write_fairseq(checkpoint, written, card)
        card["largest_errors"] = _verify(source, checkpoint, written, kind)
        if is_folder:
            card["files"] = file_hashes(written)
        write_json(_card_file(written, kind), card)
        # last what others look for
        for path in sorted(Path(scratch).iterdir(), key=lambda path: path.name == out.name):
            os.replace(path, out.parent / path.name)
    return card


def _check_plain(checkpoint: Checkpoint, kind: str) -> None:
    """Raise InputError for an encoder that the format of torchaudio or fairseq cannot hold."""
    config: Any = checkpoint.model.config
    plain = is_known(config) and not added_modules(checkpoint.model)
    usual = config.layer_norm_eps == 1e-5 and getattr(config, "feat_proj_layer_norm", True)
    if not (plain and usual):
        raise InputError(
            f"{checkpoint.name} is not a plain HuBERT or wav2vec 2.0, and is not written for "
            f"{kind}; convert to huggingface"
        )


def _make_card(checkpoint: Checkpoint, kind: str) -> dict[str, Any]:
    """Return the card of a checkpoint in a format."""
    config: Any = checkpoint.model.config
    settings = {k: v for k, v in config.to_dict().items() if k not in PASSING}
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
        "norm": getattr(config, "feat_extract_norm", "layer"),  # data2vec has no other
        "settings": hash_json(settings),
        "left_out": list(checkpoint.left_out),
        "taken_for_granted": list(checkpoint.guesses),
    }


def _read_existing(out: Path, kind: str, card: dict[str, Any]) -> dict[str, Any]:
    """Return the card of what is there. Raises InputError where it is another encoder than that of
    `card`, by its own card or by its weights."""
    card_file = _card_file(out, kind)
    stored = read_json(card_file) if out.exists() and card_file.is_file() else {}
    weights = card["made_from"]["hash"]
    same_weights = stored.get("made_from", {}).get("hash") == weights
    same_facts = all(stored.get(key) == card[key] for key in SAME)
    if not (same_weights and same_facts) or hash_weights(load_checkpoint(out).model) != weights:
        raise InputError(
            f"{out} already exists and is something else; choose another place or delete it"
        )
    return dict(stored)


def _rename_weights(checkpoint: Checkpoint, kind: str) -> dict[str, torch.Tensor]:
    """Return the weights under the names of torchaudio or fairseq."""
    config: Any = checkpoint.model.config
    state = rename(checkpoint.model.state_dict(), kind, config.feat_extract_norm, inverse=True)
    return {name: tensor.contiguous() for name, tensor in state.items()}


def _write_torchaudio(checkpoint: Checkpoint, written: Path, card: dict[str, Any]) -> None:
    """Write the `.pt` of torchaudio; its architecture goes beside it, and into the card the mask
    embedding, which the format does not hold."""
    state = _rename_weights(checkpoint, "torchaudio")
    card[MASK] = state.pop("mask_generator.mask_embedding").tolist()
    torch.save(state, written)
    write_json(written.with_suffix(".json"), torchaudio_arguments(checkpoint.model.config))
    write_json(_card_file(written, "torchaudio"), card)  # which is read with it


def _write_fairseq(checkpoint: Checkpoint, written: Path, card: dict[str, Any]) -> None:
    """Write the `.pt` of fairseq, whose models have no projection between equal widths: one that
    changes nothing is left out, another one is noted in the card."""
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
    settings = fairseq_settings(config, checkpoint.normalise)
    torch.save({"args": None, "cfg": settings, "model": state}, written)


def relative_errors(layers: Layers, expected: Layers) -> list[float]:
    """Return the relative error of every layer: the length of its difference from what is expected,
    over the length of that."""
    errors = []
    for a, b in zip(layers, expected, strict=True):
        distance = torch.linalg.norm((a - b).double())
        errors.append(float(distance / torch.linalg.norm(b.double()).clamp(min=1e-30)))
    return errors


def _verify(source: str | Path, checkpoint: Checkpoint, written: Path, kind: str) -> list[float]:
    """Return the relative errors of all layers of what was written, for SECONDS of noise, each side
    computed by the library whose format it is (fairseq's by our own engine). Raises InputError
    where the weights are not the source's to the bit, or a layer is off by more than TOLERANCE."""
    again = load_checkpoint(written)
    weights, read = checkpoint.model.state_dict(), again.model.state_dict()
    same_weights = weights.keys() == read.keys()
    same_weights = same_weights and all(torch.equal(weights[n], read[n]) for n in weights)
    is_whole = not again.left_out and not again.guesses
    samples = np.random.default_rng(0).standard_normal(SECONDS * SAMPLE_RATE)
    wave = torch.from_numpy((0.1 * samples).astype(np.float32))
    if checkpoint.normalise:
        wave = (wave - wave.mean()) / wave.std(correction=0)
    found = _native_layers(written, again, wave)
    errors = relative_errors(found, _native_layers(source, checkpoint, wave))
    is_near = np.max(errors) <= TOLERANCE  # not so where one is NaN
    same = same_weights and again.normalise == checkpoint.normalise
    if not (same and is_whole and is_near):
        raise InputError(
            f"{source} is another encoder in {kind} (its layers differ by {np.max(errors):.1e}), "
            "so nothing was written; report this as a bug"
        )
    return errors


@torch.inference_mode()
def _native_layers(name: str | Path, checkpoint: Checkpoint, wave: torch.Tensor) -> Layers:
    """Compute all layers by the library that the checkpoint is of: torchaudio's model has
    torchaudio's file, not our reading of it."""
    config: Any = checkpoint.model.config
    if checkpoint.kind != "torchaudio":
        engine: Any = TransformersEngine(checkpoint.model)
        if checkpoint.kind == "fairseq":
            engine = as_encoder(checkpoint, device="cpu").engine
        every = range(config.num_hidden_layers + 1)
        return list(engine.states(wave, engine.statistics(wave), every))
    import torchaudio

    weights = read_weights(name).state
    weights.pop("mask_generator.mask_embedding", None)
    make = torchaudio.models.wav2vec2_model
    if config.model_type == "wavlm":
        make = torchaudio.models.wavlm_model
    model = make(**torchaudio_arguments(config))
    model.load_state_dict(weights)
    first_layer: Layers = []
    model.encoder.transformer.layers[0].register_forward_pre_hook(
        lambda _, inputs: first_layer.append(inputs[0])
    )
    layers, _ = model.eval().extract_features(wave[None])
    return [x[0] for x in (*first_layer, *layers)]


def _card_file(out: Path, kind: str) -> Path:
    return out / "card.json" if kind == "huggingface" else out.with_suffix(".card.json")
