"""Noise, and fairseq checkpoints made on the spot: modules of the right names exist while pickling,
and never while reading."""

import argparse
import enum
import sys
import types
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
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
    """Noise that grows and shrinks, so that frames differ."""
    rng = np.random.default_rng(seed)
    shape = np.interp(np.arange(samples), np.linspace(0, samples, 30), rng.uniform(0.05, 0.5, 30))
    return (rng.standard_normal(samples) * shape + 0.1).astype(np.float32)


@contextmanager
def fake_libraries():
    """Gives {class name: class}; the modules are gone afterwards."""
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
    """Nested settings as omegaconf holds them, each node with its parent and its type."""
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
    """A checkpoint as fairseq's trainer saves it. style: dict, omegaconf, or args (old: one flat
    namespace)."""
    state = {prefix + name: tensor for name, tensor in state.items()} | (extras or {})
    history = {"criterion_name": "HubertCriterion", "num_updates": 1, "lr": np.float64(0.5)}
    seen = {"best": np.float32(1.0), "seen": {1, 2}, "raw": b"x"}
    with fake_libraries() as classes:
        words = classes["Dictionary"]()
        words.__dict__.update(symbols=["<s>", "a"], count=[1, 2], indices={"<s>": 0, "a": 1})
        content = {
            "args": None,
            "cfg": None,
            "model": torch.nn.Module().state_dict() | state,
            "criterion": classes["Choice"].default,
            "optimizer_history": [history],
            "task_state": {"dictionaries": [words]},
            "extra_state": {"train_iterator": {"epoch": 1}} | seen,
            "last_optimizer_state": {"exp_avg": [torch.ones(3)]},
        }
        if style == "args":
            flat = {k: v for k, v in (cfg["task"] | cfg["model"]).items() if k != "_name"}
            content["args"] = argparse.Namespace(**flat, arch=cfg["model"]["_name"])
        else:
            content["cfg"] = omegaconf_of(cfg, classes) if style == "omegaconf" else cfg
        torch.save(content, path, _use_new_zipfile_serialization=zipped)


@pytest.fixture(scope="session")
def fakes():
    """`libraries`, `omegaconf_of` and `write_fairseq`."""
    return types.SimpleNamespace(
        libraries=fake_libraries, omegaconf_of=omegaconf_of, write_fairseq=write_fairseq
    )


def make_whisper():
    """A new Whisper of 2 + 1 layers of 32, always the same, whose weights are numbers of
    float16."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 60}
    layers = {"encoder_layers": 2, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    config = WhisperConfig(**sizes, **layers, **heads, **tokens, decoder_start_token_id=1)
    torch.manual_seed(0)
    return WhisperForConditionalGeneration(config).half().float().eval()


@pytest.fixture(scope="session")
def small_whisper():
    return make_whisper
