"""Noise, a small Whisper, and checkpoints as fairseq writes them. These are
pickled with stand-ins for fairseq's and omegaconf's modules, which are gone when they are read."""

import argparse
import enum
import sys
import types
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

MODULES = {
    "fairseq.data.dictionary": ["Dictionary"],
    "fairseq.tasks.hubert_pretraining": ["HubertPretrainingConfig"],
    "omegaconf.dictconfig": ["DictConfig"],
    "omegaconf.listconfig": ["ListConfig"],
    "omegaconf.nodes": ["AnyNode", "IntegerNode"],
    "omegaconf.base": ["ContainerMetadata"],
}


def noise(samples=16_000, seed=0):
    """Make noise that grows and shrinks, so that frames differ, with an offset."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0.05, 0.5, 30)
    level = np.interp(np.arange(samples), np.linspace(0, samples, 30), levels)
    return (rng.standard_normal(samples) * level + 0.1).astype(np.float32)


@contextmanager
def fake_libraries():
    """Put stand-ins for MODULES in place until the block ends. Gives their classes by name."""
    classes, before = {}, dict(sys.modules)
    for module_name in (*MODULES, "fairseq.dataclass.constants"):
        parts = module_name.split(".")
        for i in range(len(parts)):
            sys.modules[".".join(parts[: i + 1])] = types.ModuleType(".".join(parts[: i + 1]))
    for module_name, names in MODULES.items():
        module = sys.modules[module_name]
        for name in names:
            classes[name] = type(name, (), {"__module__": module_name})
            setattr(module, name, classes[name])
    constants = sys.modules["fairseq.dataclass.constants"]
    constants.Choice = enum.Enum(
        "Choice", {"default": "default", "static": "static"}, module="fairseq.dataclass.constants"
    )
    try:
        yield classes | {"Choice": constants.Choice}
    finally:
        for name in set(sys.modules) - set(before):
            if name.startswith(("fairseq", "omegaconf")):
                del sys.modules[name]
        sys.modules.update(before)


def omegaconf_of(value, classes, parent=None):
    """Return nested settings as omegaconf holds them, each node with its parent and its type."""
    node = classes[{dict: "DictConfig", list: "ListConfig"}.get(type(value), "AnyNode")]()
    metadata = classes["ContainerMetadata"]()
    metadata.__dict__.update(ref_type=Any, object_type=dict, optional=True, key=None, flags={})
    node.__dict__.update(_metadata=metadata, _parent=parent)
    if isinstance(value, dict):
        node._content = {k: omegaconf_of(v, classes, node) for k, v in value.items()}
    elif isinstance(value, list):
        node._content = [omegaconf_of(v, classes, node) for v in value]
    else:
        node._val = value
    return node


def write_fairseq(path, state, cfg, style="dict", zipped=True, prefix="", extras=None):
    """Write a checkpoint as fairseq's trainer does.

    state: weights, whose names get the `prefix`; extras: further weights. cfg: {"model": ...,
    "task": ...}. style: how cfg is written: dict, omegaconf, or args (the old way, one flat
    namespace). zipped: whether in torch's format since 1.6.
    """
    state = {prefix + name: tensor for name, tensor in state.items()} | (extras or {})
    history = {"criterion_name": "HubertCriterion", "num_updates": 1, "lr": np.float64(0.5)}
    extra_state = {"train_iterator": {"epoch": 1}, "best": np.float32(1.0), "seen": {1, 2}}
    extra_state["raw"] = b"x"
    with fake_libraries() as classes:
        dictionary = classes["Dictionary"]()
        dictionary.__dict__.update(symbols=["<s>", "a"], count=[1, 2], indices={"<s>": 0, "a": 1})
        content = {
            "args": None,
            "cfg": None,
            "model": torch.nn.Module().state_dict() | state,
            "criterion": classes["Choice"].default,
            "optimizer_history": [history],
            "task_state": {"dictionaries": [dictionary]},
            "extra_state": extra_state,
            "last_optimizer_state": {"exp_avg": [torch.ones(3)]},
        }
        if style == "args":
            flat = {k: v for k, v in (cfg["task"] | cfg["model"]).items() if k != "_name"}
            content["args"] = argparse.Namespace(**flat, arch=cfg["model"]["_name"])
        else:
            content["cfg"] = omegaconf_of(cfg, classes) if style == "omegaconf" else cfg
        torch.save(content, path, _use_new_zipfile_serialization=zipped)


def make_whisper():
    """Make a Whisper, always the same, of two encoder layers and one decoder layer of width 32. Its
    weights are rounded to float16."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 60}
    layers = {"encoder_layers": 2, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    config = WhisperConfig(**sizes, **layers, **heads, **tokens, decoder_start_token_id=1)
    torch.manual_seed(0)
    return WhisperForConditionalGeneration(config).half().float().eval()
