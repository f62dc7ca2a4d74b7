"""The forward pass for training against transformers' own: outputs, gradients, dropout."""

import pytest
import torch
import transformers

from speechssl.encoders.training_forward import training_states

SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 80}
FRONT = {"conv_dim": (24,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
LARGE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
SHAPES = {
    "base": {},
    "large": LARGE,
    "group norm, convolutions with bias": {"conv_bias": True},
    "layer norm, post-norm": {"feat_extract_norm": "layer"},
    "group norm, pre-norm": {"do_stable_layer_norm": True},
    "one head": {"num_attention_heads": 1},
    "odd positions": {"num_conv_pos_embeddings": 15, "num_conv_pos_embedding_groups": 2},
    "positions in one group": {"num_conv_pos_embeddings": 9, "num_conv_pos_embedding_groups": 1},
    "other strides": {"conv_dim": (20, 24, 28), "conv_kernel": (12, 8, 4), "conv_stride": (6, 5, 3), "num_feat_extract_layers": 3},
    "overlapping windows": {"conv_dim": (16, 16), "conv_kernel": (400, 5), "conv_stride": (160, 1), "num_feat_extract_layers": 2},
    "odd sizes": {"hidden_size": 51, "intermediate_size": 77, "conv_dim": (17,) * 7, "num_conv_pos_embedding_groups": 3},
    "no norm before the projection, another epsilon": {"feat_proj_layer_norm": False, "layer_norm_eps": 1e-3},
}
ZERO = ("k_proj.bias", "conv_layers.0.conv.bias")  # gradients that are zero but for rounding


def network(kind="Hubert", **changes):
    """A model of transformers with random weights and norms that are not the identity."""
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**SIZES | FRONT | changes)).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.5 if name.endswith("weight") else 0.0, std=0.3)
    return model


def theirs(model, samples, mask=None):
    """What `training_states` gives, by the modules of transformers."""
    found = []
    layers = model.encoder.layers
    hooks = [layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for layer in layers]
    hooks.append(layers[-1].register_forward_hook(lambda _, inputs, y: found.append(y[0] if isinstance(y, tuple) else y)))
    features = model.feature_extractor(samples.clone()).transpose(1, 2)
    hidden = model.feature_projection(features)
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    if mask is not None:
        hidden = torch.where(mask[..., None], model.masked_spec_embed.to(hidden.dtype), hidden)
    model.encoder(hidden)
    for hook in hooks:
        hook.remove()
    return features, found


def gradients(model, features, layers):
    """Of a loss that sees every number."""
    torch.manual_seed(1)
    model.zero_grad()
    sum((x.float() * torch.randn(x.shape)).sum() for x in (features, *layers)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def error(found, expected):
    return float((found.detach().float() - expected.detach().float()).norm() / expected.detach().float().norm())


def batch(model, samples=8_011, utterances=3):
    torch.manual_seed(0)
    frames = int(model._get_feat_extract_output_lengths(samples))
    return torch.randn(utterances, samples), torch.rand(utterances, frames) < 0.4


@pytest.mark.parametrize("kind", ["Hubert", "Wav2Vec2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_all_gradients_are_those_of_transformers(kind, shape):
    model = network(kind, **SHAPES[shape])
    samples, mask = batch(model)
    expected, found = theirs(model, samples, mask), training_states(model, samples, mask)
    assert len(found[1]) == len(expected[1]) == model.config.num_hidden_layers + 1
    assert max(error(a, b) for a, b in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True)) < 2e-6
    exact, ours = gradients(model, *expected), gradients(model, *found)
    assert ours.keys() == exact.keys()
    largest = max(float(g.norm()) for g in exact.values())
    for name, gradient in exact.items():
        if name.endswith(ZERO) and gradient.norm() < 1e-6 * largest:
            assert ours[name].norm() < 1e-6 * largest
        else:
            assert error(ours[name], gradient) < 1e-5, name
