"""Noise, a small Whisper, and checkpoints as fairseq writes them."""

import argparse
import enum
import sys
import types

import numpy as np
import pytest
import torch


def noise(samples=16_000, seed=0):
    """Make noise that grows and shrinks, so that frames differ, with an offset."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(0.05, 0.5, 30)
    level = np.interp(np.arange(samples), np.linspace(0, samples, 30), levels)
    return (rng.standard_normal(samples) * level + 0.1).astype(np.float32)


def write_fairseq(path, state, cfg, style="dict", zipped=True, prefix="", extras=None):
    """Write a checkpoint as fairseq's trainer does.

    state: weights, whose names get the `prefix`; extras: further weights. cfg: {"model": ...,
    "task": ...}. style: how cfg is written: dict, omegaconf, or args (the old way, one flat
    namespace). zipped: whether in torch's format since 1.6. Objects of fairseq's classes are in the
    file, whose modules are gone when it is read.
    """
    state = {prefix + name: tensor for name, tensor in state.items()} | (extras or {})
    content = {
        "args": None,
        "cfg": None,
        "model": torch.nn.Module().state_dict() | state,
        "optimizer_history": [{"num_updates": 1, "lr": np.float64(0.5)}],
        "extra_state": {"best": np.float32(1.0), "seen": {1, 2}, "raw": b"x"},
        "last_optimizer_state": {"exp_avg": [torch.ones(3)]},
    }
    if style == "args":
        flat = {k: v for k, v in (cfg["task"] | cfg["model"]).items() if k != "_name"}
        content["args"] = argparse.Namespace(**flat, arch=cfg["model"]["_name"])
    elif style == "omegaconf":
        omegaconf = pytest.importorskip("omegaconf", reason="of the optional extra s3prl")
        content["cfg"] = omegaconf.OmegaConf.create(cfg)
    else:
        content["cfg"] = cfg
    names = ("fairseq", "fairseq.tasks")
    modules = {name: types.ModuleType(name) for name in names}
    with pytest.MonkeyPatch.context() as patched:
        for name, module in modules.items():
            patched.setitem(sys.modules, name, module)
        tasks = modules["fairseq.tasks"]
        tasks.Choice = enum.Enum("Choice", {"default": "default"}, module="fairseq.tasks")
        tasks.Dictionary = type("Dictionary", (), {"__module__": "fairseq.tasks"})
        dictionary = tasks.Dictionary()
        dictionary.__dict__.update(symbols=["<s>", "a"], indices={"<s>": 0, "a": 1})
        content |= {"criterion": tasks.Choice.default, "task_state": {"dictionary": dictionary}}
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
