"""Which weights are trained, in encoders of several families, and what of it stays in an
encoder."""

import re
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from transformers import (
    HubertConfig,
    HubertModel,
    MobileBertConfig,
    Wav2Vec2Config,
    Wav2Vec2Model,
)

from speechssl import finetuning
from speechssl.dual.model import EncoderInputs
from speechssl.errors import MissingExtra
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


def check_gradients(encoder, loss):
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

    def __init__(self, encoder):
        super().__init__()
        width = encoder.get_input_embeddings().embedding_dim
        self.inputs, self.encoder = EncoderInputs(encoder, width), encoder
        self.read, self.write = nn.Linear(1, width), nn.Linear(encoder.config.hidden_size, 2)

    def logits(self, shown):
        """shown: (B, T, 1). Returns (B, 5, 2)."""
        mask = torch.ones(shown.shape[:2], dtype=torch.long)
        hidden = self.encoder(**self.inputs(self.read(shown), mask, None)).last_hidden_state
        return self.write(hidden[:, -5:]).float()


def computer(family, checkpoint):
    torch.manual_seed(0)
    return Numbers(load_text_encoder(str(checkpoint(family)))[0]).eval()


@pytest.mark.parametrize("family", ["BERT", "DistilBERT", "ModernBERT", "T5"])
def test_methods_train_what_they_say_and_always_what_reads_and_writes(family, checkpoint):
    for method in (name for name in finetuning.METHODS if name != "lora"):
        model = computer(family, checkpoint)
        if method == "biases" and family in ("T5", "ModernBERT"):
            refused("biases finds nothing", finetuning.train_only, model.encoder, method)
            continue
        finetuning.train_only(model.encoder, method)
        learnt = {name for name, weight in model.named_parameters() if weight.requires_grad}
        assert {"read.weight", "read.bias", "write.weight", "write.bias"} <= learnt
        inside = {name.lower() for name in learnt if name.startswith("encoder.")}
        norms = {name for name in inside if "norm" in name}
        if method == "frozen":
            assert norms
            assert not [n for n in inside - norms if any(part in n for part in LAYERS)]
            assert family == "ModernBERT" or [n for n in inside if "position" in n or "rel" in n]
        elif method == "biases":
            assert all(name.endswith("bias") for name in inside)
        elif method == "adapters":
            assert all(".adapter." in name for name in inside - norms)
        elif method == "weighted-sum":
            assert inside == {"encoder.layer_shares"}
        elif method == "all":
            own = [w.numel() for n, w in model.named_parameters() if ".pooler." not in n]
            assert finetuning.trained_parameters(model) == sum(own)
        assert (method == "none") == (not inside)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_every_family_has_two_bottlenecks_a_layer_and_a_sum_of_its_layers(family, checkpoint):
    model = computer(family, checkpoint)
    own = {name for name, _ in model.encoder.named_parameters()}
    with torch.no_grad():
        before = model.logits(SHOWN)
    finetuning.train_only(model.encoder, "adapters")
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
    assert not torch.equal(close, before)
    assert torch.allclose(close, before, atol=0.3)
    check_gradients(model.encoder, model.logits(SHOWN).sum())
    finetuning.train_only(model.encoder, "weighted-sum")
    assert model.encoder.layer_shares.shape == (model.encoder.config.num_hidden_layers + 1,)
    assert own < {name for name, _ in model.encoder.named_parameters()}
    assert finetuning.added_modules(model.encoder) == {
        "adapters": finetuning.BOTTLENECK,
        "weighted_sum": True,
    }
    model.logits(SHOWN).sum().backward()
    assert model.encoder.layer_shares.grad is not None
    assert model.encoder.layer_shares.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("kind", "config"), [(HubertModel, HubertConfig), (Wav2Vec2Model, Wav2Vec2Config)]
)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("device", ["adapters", PEFT])
def test_encoders_of_speech_have_two_places_a_layer_that_are_trained(kind, config, before, device):
    model = kind(config(**SOUND, do_stable_layer_norm=before)).eval()
    finetuning.train_only(model, device)
    assert (
        sum(
            isinstance(module, finetuning.Bottleneck) or hasattr(module, "lora_A")
            for module in model.modules()
        )
        == 4
    )
    check_gradients(model, model(torch.randn(1, 400)).last_hidden_state.square().sum())


def test_all_shares_on_the_last_layer_give_its_output(checkpoint):
    model = computer("BERT", checkpoint)
    with torch.no_grad():
        plain = model.logits(SHOWN)
        finetuning.add_modules(model.encoder, {"weighted_sum": True})
        assert not torch.allclose(model.logits(SHOWN), plain, atol=1e-4)
        model.encoder.layer_shares[-1] = 1e4
        assert torch.allclose(model.logits(SHOWN), plain, atol=1e-5)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@pytest.mark.parametrize("device", [PEFT])
def test_lora_merges_into_the_encoder(family, device, checkpoint):
    model = computer(family, checkpoint)
    names = set(model.state_dict())
    finetuning.train_only(model.encoder, device)
    learnt = {
        name: weight for name, weight in model.encoder.named_parameters() if weight.requires_grad
    }
    assert learnt
    assert all(finetuning.RANK in weight.shape for weight in learnt.values())
    check_gradients(model.encoder, model.logits(SHOWN).sum())
    with torch.no_grad():
        before = model.logits(SHOWN)
        for weight in learnt.values():
            weight.normal_(std=0.5)
        changed = model.logits(SHOWN)
        finetuning.merge_lora(model.encoder)
        assert set(model.state_dict()) == names
        assert not torch.allclose(changed, before, atol=1e-3)
        assert torch.allclose(model.logits(SHOWN), changed, atol=1e-4)


def test_what_a_method_does_not_fit_is_one_sentence(monkeypatch):
    small = MobileBertConfig(**TINY, embedding_size=16, intra_bottleneck_size=16)
    mobile = make_encoder(small.to_dict())
    refused("adapters find 12 places", finetuning.train_only, mobile, "adapters")
    assert not finetuning.added_modules(mobile)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match="--trained lora needs the extra peft"):
        finetuning.train_only(mobile, "lora")
