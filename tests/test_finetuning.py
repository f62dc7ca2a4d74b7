"""Which weights are trained, in encoders of several families, and what of it stays in an
encoder."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AlbertConfig,
    HubertConfig,
    HubertModel,
    MobileBertConfig,
    Wav2Vec2Config,
    Wav2Vec2Model,
    WavLMConfig,
    WavLMModel,
)

from speechssl.dual.model import EncoderInputs
from speechssl.errors import MissingExtra
from speechssl.finetuning import (
    BOTTLENECK,
    METHODS,
    RANK,
    Bottleneck,
    add_modules,
    added_modules,
    merge_lora,
    train_only,
    trained_parameters,
)
from speechssl.options import TEXT_FAMILIES
from speechssl.textlm.encoders import load_text_encoder, make_encoder

from .files import refused

LAYERS = ("query", "key", ".q.", ".wi", "wqkv", "ffn.lin", "dense")  # in the names of matrices
PEFT = pytest.param("lora", marks=pytest.mark.skipif(not find_spec("peft"), reason="no peft"))
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 30,
}
SHOWN = torch.arange(30.0).reshape(3, 10, 1) % 7


SOUND = TINY | {"conv_dim": (8,), "conv_kernel": (4,), "conv_stride": (4,)}


def check_gradients(encoder: nn.Module, loss: torch.Tensor) -> None:
    """Every weight that is trained takes part in the loss."""
    loss.backward()
    idle = [
        n
        for n, w in encoder.named_parameters()
        if w.requires_grad and w.grad is None and "pooler" not in n
    ]
    assert not idle, idle


class Numbers(nn.Module):
    """A layer that reads numbers, an encoder, a layer that writes at the last five places."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        width = encoder.get_input_embeddings().embedding_dim
        self.inputs, self.encoder = EncoderInputs(encoder, width), encoder
        self.read, self.write = nn.Linear(1, width), nn.Linear(encoder.config.hidden_size, 2)

    def logits(self, shown: torch.Tensor) -> torch.Tensor:
        """shown: (B, T, 1). Returns (B, 5, 2)."""
        mask = torch.ones(shown.shape[:2], dtype=torch.long)
        hidden = self.encoder(**self.inputs(self.read(shown), mask, None)).last_hidden_state
        return self.write(hidden[:, -5:]).float()


def computer(family: str, checkpoint: Any) -> Numbers:
    torch.manual_seed(0)
    return Numbers(load_text_encoder(str(checkpoint(family)))[0]).eval()


@pytest.mark.parametrize("family", ["BERT", "DistilBERT", "ModernBERT", "T5"])
def test_devices_train_what_they_say_and_always_what_reads_and_writes(
    family: str, checkpoint: Any
) -> None:
    counts = {}
    for device in (d for d in METHODS if d != "lora"):
        model = computer(family, checkpoint)
        if device == "biases" and family in ("T5", "ModernBERT"):
            advice = "choose --trained all, frozen or none, or try adapters or lora"
            refused(f"has no biases to train; {advice}", train_only, model.encoder, device)
            continue
        train_only(model.encoder, device)
        learnt = {name for name, weight in model.named_parameters() if weight.requires_grad}
        assert {"read.weight", "read.bias", "write.weight", "write.bias"} <= learnt
        inside = {name for name in learnt if name.startswith("encoder.")}
        if device == "frozen":
            assert any("norm" in name.lower() for name in inside)
            assert not [
                name
                for name in inside
                if any(part in name.lower() for part in LAYERS) and "norm" not in name.lower()
            ]
            assert family == "ModernBERT" or any(
                "position" in name or "relative" in name for name in inside
            )
        elif device == "biases":
            assert all(name.endswith("bias") for name in inside)
        elif device == "adapters":
            assert all(".adapter." in name or "norm" in name.lower() for name in inside)
        elif device == "weighted-sum":
            assert inside == {"encoder.layer_shares"}
        counts[device] = trained_parameters(model)
        assert (device == "none") == (not inside)
        if device == "all":
            assert counts["all"] == sum(
                w.numel() for name, w in model.named_parameters() if ".pooler." not in name
            )
    assert counts["none"] < counts.get("biases", 1e9) and counts.get("biases", 0) < counts["all"]
    assert counts["none"] < counts["frozen"] < counts["all"]


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_every_family_has_two_bottlenecks_a_layer_and_a_sum_of_its_layers(
    family: str, checkpoint: Any
) -> None:
    model = computer(family, checkpoint)
    own = {name for name, _ in model.encoder.named_parameters()}
    with torch.no_grad():
        before = model.logits(SHOWN)
    train_only(model.encoder, "adapters")
    places = {
        re.sub(r"\.adapter\..*", "", name)
        for name, _ in model.encoder.named_parameters()
        if ".adapter." in name
    }
    # ALBERT's share theirs
    layers = 1 if family == "ALBERT" else model.encoder.config.num_hidden_layers
    assert len(places) == 2 * layers
    with torch.no_grad():
        close = model.logits(SHOWN)
    # close to identity
    assert not torch.equal(close, before) and torch.allclose(close, before, atol=0.3)
    check_gradients(model.encoder, model.logits(SHOWN).sum())
    train_only(model.encoder, "weighted-sum")
    assert model.encoder.layer_shares.shape == (model.encoder.config.num_hidden_layers + 1,)
    assert own < {name for name, _ in model.encoder.named_parameters()}
    assert added_modules(model.encoder) == {"adapters": BOTTLENECK, "weighted_sum": True}
    model.logits(SHOWN).sum().backward()
    assert (
        model.encoder.layer_shares.grad is not None
        and model.encoder.layer_shares.grad.abs().sum() > 0
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_albert_has_two_bottlenecks_in_each_layer_that_it_does_not_share(groups: int) -> None:
    model = make_encoder(
        AlbertConfig(
            **TINY | {"num_hidden_layers": 4}, num_hidden_groups=groups, inner_group_num=2
        ).to_dict()
    )
    train_only(model, "adapters")
    assert sum(isinstance(module, Bottleneck) for module in model.modules()) == 4 * groups


@pytest.mark.parametrize(
    ("kind", "config"), [(HubertModel, HubertConfig), (Wav2Vec2Model, Wav2Vec2Config)]
)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("device", ["adapters", PEFT])
def test_encoders_of_speech_have_two_places_a_layer_that_are_trained(
    kind: Any, config: Any, before: bool, device: str
) -> None:
    model = kind(config(**SOUND, do_stable_layer_norm=before)).eval()
    train_only(model, device)
    assert (
        sum(
            isinstance(module, Bottleneck) or hasattr(module, "lora_A")
            for module in model.modules()
        )
        == 4
    )
    check_gradients(model, model(torch.randn(1, 400)).last_hidden_state.square().sum())


@pytest.mark.parametrize("device", ["adapters", PEFT])
def test_attention_that_does_not_call_its_matrices_is_refused(device: str) -> None:
    model = WavLMModel(WavLMConfig(**SOUND))
    advice = "choose --trained all, frozen or none, or try biases"
    refused(
        f"{device} would train nothing in the attention of WavLMModel; {advice}",
        train_only,
        model,
        device,
    )
    assert not added_modules(model) and not any(
        hasattr(module, "lora_A") for module in model.modules()
    )


@pytest.mark.parametrize(
    ("family", "positions"),
    [
        ("BERT", "position_embeddings"),
        ("DeBERTa", "rel_embeddings"),
        ("DeBERTa-v2", "rel_embeddings"),
    ],
)
def test_frozen_trains_positions_and_no_pooler_is_counted(
    family: str, positions: str, checkpoint: Any
) -> None:
    encoder = load_text_encoder(str(checkpoint(family)))[0]
    train_only(encoder, "frozen")
    learnt = {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert any(name.endswith(f"{positions}.weight") for name in learnt)
    assert trained_parameters(encoder) == sum(weight.numel() for weight in learnt.values())
    encoder.pooler = nn.Linear(2, 2)
    assert trained_parameters(encoder) == sum(weight.numel() for weight in learnt.values())


def test_all_shares_on_the_last_layer_give_its_output(checkpoint: Any) -> None:
    model = computer("BERT", checkpoint)
    with torch.no_grad():
        plain = model.logits(SHOWN)
        add_modules(model.encoder, {"weighted_sum": True})
        assert not torch.allclose(model.logits(SHOWN), plain, atol=1e-4)
        model.encoder.layer_shares[-1] = 1e4
        assert torch.allclose(model.logits(SHOWN), plain, atol=1e-5)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("device", [PEFT])
def test_lora_merges_into_the_encoder(family: str, device: str, checkpoint: Any) -> None:
    model = computer(family, checkpoint)
    names = set(model.state_dict())
    train_only(model.encoder, device)
    learnt = {
        name: weight for name, weight in model.encoder.named_parameters() if weight.requires_grad
    }
    assert learnt and all(RANK in weight.shape for weight in learnt.values())
    check_gradients(model.encoder, model.logits(SHOWN).sum())
    with torch.no_grad():
        before = model.logits(SHOWN)
        for weight in learnt.values():
            weight.normal_(std=0.5)
        changed = model.logits(SHOWN)
        merge_lora(model.encoder)
        assert set(model.state_dict()) == names
        assert not torch.allclose(changed, before, atol=1e-3) and torch.allclose(
            model.logits(SHOWN), changed, atol=1e-4
        )


def test_what_a_device_does_not_fit_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.Sequential(nn.Linear(2, 2))
    refused("adapters find no place in Sequential", train_only, plain, "adapters")
    small = MobileBertConfig(**TINY, embedding_size=16, intra_bottleneck_size=16)
    mobile = make_encoder(small.to_dict())
    refused("adapters find 12 places, not two in each", train_only, mobile, "adapters")
    assert not added_modules(mobile)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match="--trained lora needs the extra peft"):
        train_only(plain, "lora")
