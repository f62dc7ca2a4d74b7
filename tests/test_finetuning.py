"""Tests of the methods of fine-tuning: which weights they train in encoders of several families, and
which modules they add to an encoder for good."""

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
from speechssl.dual.model import SpanModel
from speechssl.errors import MissingExtra
from speechssl.options import TEXT_FAMILIES
from speechssl.textlm.encoders import load_text_encoder, make_encoder

from .files import refused

NEEDS_PEFT = pytest.mark.skipif(not find_spec("peft"), reason="no peft")
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 30,
}
TINY_SPEECH = TINY | {"conv_dim": (8,), "conv_kernel": (4,), "conv_stride": (4,)}
INPUTS = {  # of a SpanModel: three sequences of a question of five and a window of five
    "ids": torch.arange(30).reshape(3, 10) % 7,
    "mask": torch.ones(3, 10, dtype=torch.long),
    "segments": torch.tensor([[0] * 5 + [1] * 5] * 3),
}


def check_gradients(encoder, loss):
    """Assert that the loss depends on every weight that is trained, but for a pooler's."""
    loss.backward()
    for name, weight in encoder.named_parameters():
        if weight.requires_grad and "pooler" not in name:
            assert weight.grad is not None, name


@pytest.fixture
def make_reader(checkpoint):
    """Return a function (family) -> SpanModel with an encoder of this family."""

    def make(family):
        torch.manual_seed(0)
        encoder, _ = load_text_encoder(str(checkpoint(family)))
        width = encoder.get_input_embeddings().embedding_dim
        return SpanModel(encoder, nn.Embedding(7, width)).eval()

    return make


def is_norm_or_position(name):
    return any(part in name for part in ("norm", "position", "relative"))


@pytest.mark.parametrize("family", ["BERT", "DistilBERT", "ModernBERT", "T5"])
@pytest.mark.parametrize(
    ("method", "is_trained"),
    [
        ("all", lambda name: True),
        ("frozen", is_norm_or_position),
        ("biases", lambda name: name.endswith("bias")),
        ("adapters", lambda name: ".adapter." in name or "norm" in name),
        ("weighted-sum", lambda name: name == "layer_shares"),
        ("none", lambda name: False),
    ],
)
def test_a_method_trains_the_weights_it_is_named_for(family, method, is_trained, make_reader):
    encoder = make_reader(family).encoder
    if method == "biases" and family in ("ModernBERT", "T5"):  # they have none
        refused("biases finds nothing", finetuning.train_only, encoder, method)
        return
    finetuning.train_only(encoder, method)
    for name, weight in encoder.named_parameters():
        assert weight.requires_grad == is_trained(name.lower()), name


def test_frozen_trains_the_positions_of_speech_encoders_too():
    encoder = HubertModel(HubertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1))
    finetuning.train_only(encoder, "frozen")
    trained = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert any(name.startswith("encoder.pos_conv_embed") for name in trained)
    assert not any("attention" in name or "feed_forward" in name for name in trained)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_every_family_has_two_bottlenecks_a_layer_and_a_sum_of_its_layers(family, make_reader):
    reader = make_reader(family)
    encoder = reader.encoder
    with torch.no_grad():
        logits_before = reader.logits(**INPUTS)
    finetuning.train_only(encoder, "adapters")
    matrices = set()  # with a bottleneck behind them
    for name, _ in encoder.named_parameters():
        if ".adapter." in name:
            matrices.add(name.partition(".adapter.")[0])
    layers = 1 if family == "ALBERT" else encoder.config.num_hidden_layers  # ALBERT repeats one
    assert len(matrices) == 2 * layers
    with torch.no_grad():
        logits = reader.logits(**INPUTS)
    # a new bottleneck is close to the identity
    assert not torch.equal(logits, logits_before)
    assert torch.allclose(logits, logits_before, atol=0.3)
    check_gradients(encoder, reader.logits(**INPUTS).sum())
    finetuning.train_only(encoder, "weighted-sum")
    added = {"adapters": finetuning.BOTTLENECK, "weighted_sum": True}
    assert finetuning.find_added_modules(encoder) == added
    reader.logits(**INPUTS).sum().backward()
    assert encoder.layer_shares.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("model_class", "config_class"), [(HubertModel, HubertConfig), (Wav2Vec2Model, Wav2Vec2Config)]
)
@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("method", ["adapters", pytest.param("lora", marks=NEEDS_PEFT)])
def test_speech_encoders_have_two_trained_places_a_layer(
    model_class, config_class, pre_norm, method
):
    model = model_class(config_class(**TINY_SPEECH, do_stable_layer_norm=pre_norm)).eval()
    finetuning.train_only(model, method)
    places = 0
    for module in model.modules():
        places += isinstance(module, finetuning.Bottleneck) or hasattr(module, "lora_A")
    assert places == 2 * TINY["num_hidden_layers"]
    check_gradients(model, model(torch.randn(1, 400)).last_hidden_state.square().sum())


def test_all_shares_on_the_last_layer_give_its_output(make_reader):
    reader = make_reader("BERT")
    with torch.no_grad():
        logits = reader.logits(**INPUTS)
        finetuning.add_modules(reader.encoder, {"weighted_sum": True})
        assert not torch.allclose(reader.logits(**INPUTS), logits, atol=1e-4)
        reader.encoder.layer_shares[-1] = 1e4
        assert torch.allclose(reader.logits(**INPUTS), logits, atol=1e-5)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@NEEDS_PEFT
def test_lora_merges_into_the_encoder(family, make_reader):
    reader = make_reader(family)
    names = set(reader.state_dict())
    finetuning.train_only(reader.encoder, "lora")
    low_rank = [weight for weight in reader.encoder.parameters() if weight.requires_grad]
    assert all(finetuning.RANK in weight.shape for weight in low_rank)
    check_gradients(reader.encoder, reader.logits(**INPUTS).sum())
    with torch.no_grad():
        logits_before = reader.logits(**INPUTS)
        for weight in low_rank:
            weight.normal_(std=0.5)
        logits = reader.logits(**INPUTS)
        assert not torch.allclose(logits, logits_before, atol=1e-3)
        finetuning.merge_lora(reader.encoder)
        assert set(reader.state_dict()) == names
        assert torch.allclose(reader.logits(**INPUTS), logits, atol=1e-4)


def test_adapters_are_refused_where_layers_have_other_places():
    config = MobileBertConfig(**TINY, embedding_size=16, intra_bottleneck_size=16)
    encoder = make_encoder(config.to_dict())
    refused("adapters find 12 places", finetuning.train_only, encoder, "adapters")
    assert not finetuning.find_added_modules(encoder)


def test_lora_needs_peft(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match="--trained lora needs the extra peft"):
        finetuning.train_only(nn.Linear(2, 2), "lora")
