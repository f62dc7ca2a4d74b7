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
from speechssl.dual.model import EncoderInputs
from speechssl.errors import MissingExtra
from speechssl.options import TEXT_FAMILIES
from speechssl.textlm.encoders import load_text_encoder, make_encoder

from .files import refused

MATRICES = ("query", "key", ".q.", ".wi", "wqkv", "ffn.lin", "dense")  # parts of their names
NEEDS_PEFT = pytest.mark.skipif(not find_spec("peft"), reason="no peft")
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 30,
}
TINY_SPEECH = TINY | {"conv_dim": (8,), "conv_kernel": (4,), "conv_stride": (4,)}
INPUTS = torch.arange(30.0).reshape(3, 10, 1) % 7  # (B, T, 1)


def check_gradients(encoder, loss):
    """Assert that the loss depends on every weight that is trained, but for a pooler's."""
    loss.backward()
    for name, weight in encoder.named_parameters():
        if weight.requires_grad and "pooler" not in name:
            assert weight.grad is not None, name


class Reader(nn.Module):
    """This model maps numbers to the embeddings of an encoder, and the encoder's last five hidden
    states to logits."""

    def __init__(self, encoder):
        super().__init__()
        width = encoder.get_input_embeddings().embedding_dim
        self.encoder = encoder
        self.inputs = EncoderInputs(encoder, width)
        self.embed = nn.Linear(1, width)
        self.head = nn.Linear(encoder.config.hidden_size, 2)

    def logits(self, numbers):
        """Map numbers (B, T, 1) to logits (B, 5, 2)."""
        mask = torch.ones(numbers.shape[:2], dtype=torch.long)
        hidden = self.encoder(**self.inputs(self.embed(numbers), mask, None)).last_hidden_state
        return self.head(hidden[:, -5:]).float()


@pytest.fixture
def make_reader(checkpoint):
    """Return a function (family) -> Reader with an encoder of this family."""

    def make(family):
        torch.manual_seed(0)
        encoder, _ = load_text_encoder(str(checkpoint(family)))
        return Reader(encoder).eval()

    return make


def names_of_trained(module):
    return {name.lower() for name, weight in module.named_parameters() if weight.requires_grad}


FAMILIES = pytest.mark.parametrize("family", ["BERT", "DistilBERT", "ModernBERT", "T5"])
WITHOUT_BIASES = ("ModernBERT", "T5")


@FAMILIES
@pytest.mark.parametrize("method", [name for name in finetuning.METHODS if name != "lora"])
def test_layers_around_the_encoder_are_always_trained(family, method, make_reader):
    reader = make_reader(family)
    if method != "biases" or family not in WITHOUT_BIASES:
        finetuning.train_only(reader.encoder, method)
    assert {"embed.weight", "embed.bias", "head.weight", "head.bias"} <= names_of_trained(reader)


@FAMILIES
def test_all_trains_every_weight(family, make_reader):
    encoder = make_reader(family).encoder
    finetuning.train_only(encoder, "all")
    sizes = [weight.numel() for name, weight in encoder.named_parameters() if "pooler." not in name]
    assert finetuning.trained_parameters(encoder) == sum(sizes)


@FAMILIES
def test_frozen_trains_layer_norms_and_positions(family, make_reader):
    encoder = make_reader(family).encoder
    finetuning.train_only(encoder, "frozen")
    names = names_of_trained(encoder)
    norms = {name for name in names if "norm" in name}
    assert norms
    assert not [name for name in names - norms if any(part in name for part in MATRICES)]
    positions = [name for name in names if "position" in name or "rel" in name]
    assert positions or family == "ModernBERT"  # whose positions are not learned


@FAMILIES
def test_biases_trains_biases_where_there_are_some(family, make_reader):
    encoder = make_reader(family).encoder
    if family in WITHOUT_BIASES:
        refused("biases finds nothing", finetuning.train_only, encoder, "biases")
        return
    finetuning.train_only(encoder, "biases")
    names = names_of_trained(encoder)
    assert names
    assert all(name.endswith("bias") for name in names)


@FAMILIES
def test_adapters_trains_bottlenecks_and_layer_norms(family, make_reader):
    encoder = make_reader(family).encoder
    finetuning.train_only(encoder, "adapters")
    names = names_of_trained(encoder)
    assert names
    assert all(".adapter." in name or "norm" in name for name in names)


@FAMILIES
def test_weighted_sum_trains_the_shares_alone_and_none_nothing(family, make_reader):
    encoder = make_reader(family).encoder
    finetuning.train_only(encoder, "weighted-sum")
    assert names_of_trained(encoder) == {"layer_shares"}
    finetuning.train_only(encoder, "none")
    assert not names_of_trained(encoder)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_every_family_has_two_bottlenecks_a_layer_and_a_sum_of_its_layers(family, make_reader):
    reader = make_reader(family)
    encoder = reader.encoder
    names_before = {name for name, _ in encoder.named_parameters()}
    with torch.no_grad():
        logits_before = reader.logits(INPUTS)
    finetuning.train_only(encoder, "adapters")
    matrices = set()  # with a bottleneck behind them
    for name, _ in encoder.named_parameters():
        if ".adapter." in name:
            matrices.add(name.partition(".adapter.")[0])
    layers = 1 if family == "ALBERT" else encoder.config.num_hidden_layers  # ALBERT repeats one
    assert len(matrices) == 2 * layers
    with torch.no_grad():
        logits = reader.logits(INPUTS)
    # a new bottleneck is close to the identity
    assert not torch.equal(logits, logits_before)
    assert torch.allclose(logits, logits_before, atol=0.3)
    check_gradients(encoder, reader.logits(INPUTS).sum())
    finetuning.train_only(encoder, "weighted-sum")
    assert encoder.layer_shares.shape == (encoder.config.num_hidden_layers + 1,)
    assert names_before < {name for name, _ in encoder.named_parameters()}
    added = {"adapters": finetuning.BOTTLENECK, "weighted_sum": True}
    assert finetuning.added_modules(encoder) == added
    reader.logits(INPUTS).sum().backward()
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
        logits = reader.logits(INPUTS)
        finetuning.add_modules(reader.encoder, {"weighted_sum": True})
        assert not torch.allclose(reader.logits(INPUTS), logits, atol=1e-4)
        reader.encoder.layer_shares[-1] = 1e4
        assert torch.allclose(reader.logits(INPUTS), logits, atol=1e-5)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
@NEEDS_PEFT
def test_lora_merges_into_the_encoder(family, make_reader):
    reader = make_reader(family)
    names = set(reader.state_dict())
    finetuning.train_only(reader.encoder, "lora")
    low_rank = [weight for weight in reader.encoder.parameters() if weight.requires_grad]
    assert low_rank
    assert all(finetuning.RANK in weight.shape for weight in low_rank)
    check_gradients(reader.encoder, reader.logits(INPUTS).sum())
    with torch.no_grad():
        logits_before = reader.logits(INPUTS)
        for weight in low_rank:
            weight.normal_(std=0.5)
        logits = reader.logits(INPUTS)
        assert not torch.allclose(logits, logits_before, atol=1e-3)
        finetuning.merge_lora(reader.encoder)
        assert set(reader.state_dict()) == names
        assert torch.allclose(reader.logits(INPUTS), logits, atol=1e-4)


def test_adapters_are_refused_where_layers_have_other_places():
    config = MobileBertConfig(**TINY, embedding_size=16, intra_bottleneck_size=16)
    encoder = make_encoder(config.to_dict())
    refused("adapters find 12 places", finetuning.train_only, encoder, "adapters")
    assert not finetuning.added_modules(encoder)


def test_lora_needs_peft(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match="--trained lora needs the extra peft"):
        finetuning.train_only(nn.Linear(2, 2), "lora")
