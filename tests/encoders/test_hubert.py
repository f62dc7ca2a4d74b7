"""Tests of the forward pass and its engines: layers, gradients, padding and batches are compared
with transformers' own models of many shapes."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

from speechssl.encoders import hubert
from speechssl.encoders.engines import OpenVinoEngine, TransformersEngine
from speechssl.encoders.hubert import (
    TorchEngine,
    compute_states,
    convolve_blockwise,
    count_frames,
)
from speechssl.encoders.load import load_encoder
from speechssl.finetuning import add_modules
from speechssl.timing import FrameGrid

from .conftest import noise

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 80,
}
FRONT = {"conv_dim": (24,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
LARGE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
STRIDES = {"conv_dim": (20, 24, 28), "conv_kernel": (12, 8, 4), "conv_stride": (6, 5, 3)}
ODD = {"hidden_size": 51, "intermediate_size": 77, "conv_dim": (17,) * 7}
SHAPES = {
    "base": {},
    "large": LARGE,
    "group norm, convolutions with bias": {"conv_bias": True},
    "layer norm, post-norm": {"feat_extract_norm": "layer"},
    "group norm, pre-norm": {"do_stable_layer_norm": True},
    "odd positions": {"num_conv_pos_embeddings": 15, "num_conv_pos_embedding_groups": 2},
    "other strides": STRIDES | {"num_feat_extract_layers": 3},
    "odd sizes": ODD | {"num_conv_pos_embedding_groups": 3},
    "adapters": {"adapters": 10},
    "adapters, pre-norm": LARGE | {"adapters": 10},
    "no norm before the projection": {"feat_proj_layer_norm": False, "layer_norm_eps": 1e-3},
}
KINDS = [*(("Hubert", shape) for shape in SHAPES), ("Wav2Vec2", "base"), ("Wav2Vec2", "large")]
DROPOUTS = ["hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"]
ZERO = ("k_proj.bias", "conv_layers.0.conv.bias")  # gradients that are zero but for rounding


def make_model(kind="Hubert", adapters=None, **changes):
    """Make a model of transformers whose norms and adapters are not the identity. adapters: their
    width, None for no adapters; changes: of the config."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | FRONT | changes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    add_modules(model, {"adapters": adapters})
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.5 if name.endswith("weight") else 0.0, std=0.3)
        elif "adapter" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def make_wave(samples, seed=0):
    return torch.from_numpy(noise(samples, seed))


def encode(engine, wave, last=3):
    """Return layers 0 to `last` by an engine, (T, D) each."""
    return engine.compute_layers(wave, engine.compute_statistics(wave), range(last + 1))


def encode_by_transformers(model, wave):
    """Return all layers by transformers, (T, D) each."""
    with torch.inference_mode():
        return [x[0] for x in model(wave[None], output_hidden_states=True).hidden_states]


def relative_error(tensor, expected):
    """Return the norm of the difference over the norm of the expected tensor."""
    difference = tensor.detach().float() - expected.detach().float()
    return float(difference.norm() / expected.detach().float().norm())


def largest_error(tensors, expected):
    return max(relative_error(a, b) for a, b in zip(tensors, expected, strict=True))


# ---- inference


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_every_layer_is_that_of_transformers(kind, shape):
    model, wave = make_model(kind, **SHAPES[shape]), make_wave(30_011)
    expected = encode_by_transformers(model, wave)
    layers = encode(TorchEngine(copy.deepcopy(model)), wave)
    assert [x.shape for x in layers] == [x.shape for x in expected]
    assert largest_error(layers, expected) < 5e-6
    rounded = encode(TorchEngine(model, "bf16"), wave)
    assert {x.dtype for x in rounded} == {torch.bfloat16}
    assert 1e-4 < largest_error(rounded, expected) < 0.03


@pytest.mark.parametrize("samples", [400, 9_000, 30_011])
@pytest.mark.parametrize(
    ("kind", "shape"), [("WavLM", "base"), ("WavLM", "large"), ("Data2VecAudio", "base")]
)
def test_the_engine_transformers_gives_every_layer(kind, shape, samples):
    model, wave = make_model(kind, **SHAPES[shape]), make_wave(samples)
    expected = encode_by_transformers(model, wave)
    layers = encode(TransformersEngine(copy.deepcopy(model)), wave)
    assert [x.shape for x in layers] == [x.shape for x in expected]
    assert largest_error(layers, expected) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["base", "large"])
def test_openvino_computes_the_same_layers(shape, tmp_path):
    pytest.importorskip("openvino")
    model, wave = make_model(**SHAPES[shape]), make_wave(30_011)
    graph = tmp_path / "cache/x.xml"
    engine = OpenVinoEngine(copy.deepcopy(model), "fp32", graph)
    assert largest_error(encode(engine, wave), encode_by_transformers(model, wave)) < 1e-5
    engine_of_graph = OpenVinoEngine(model, "fp32", graph)  # the file is there now
    short = make_wave(5_000)
    layers = engine_of_graph.compute_layers(
        short, engine_of_graph.compute_statistics(short), [1, 3]
    )
    assert largest_error(layers, encode_by_transformers(model, short)[1::2]) < 1e-5


@pytest.mark.slow
def test_the_engine_openvino_can_be_chosen(hubert_folder, monkeypatch, tmp_path):
    pytest.importorskip("openvino")
    monkeypatch.setenv("HOME", str(tmp_path))
    samples, folder = noise(60_000), hubert_folder("group")
    by_torch = load_encoder(folder, engine="torch")
    by_openvino = load_encoder(folder, engine="openvino")
    assert by_torch.engine.backend == "cpu"
    assert by_openvino.engine.backend == "openvino"
    layers, expected = by_openvino.hidden_states(samples), by_torch.hidden_states(samples)
    assert largest_error(layers, expected) < 1e-5


@pytest.mark.parametrize("kind", ["WavLM", "Data2VecAudio"])
def test_threads_that_share_an_engine_do_not_mix_its_layers(kind):
    engine = TransformersEngine(make_model(kind))
    waves = [make_wave(9_000 + 500 * i, seed=i) for i in range(12)]
    alone = [encode(engine, wave, last=2)[2] for wave in waves]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda wave: encode(engine, wave, last=2)[2], waves))
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 2e-5), ("bf16", 0.03)])
def test_quiet_speech_with_an_offset_costs_no_precision_with_a_group_norm(precision, bound):
    """The group norm removes the offset and the gain."""
    model, wave = make_model(), 0.015 * make_wave(20_000) + 0.3
    centred = (wave.double() - wave.double().mean()).float()
    layer_0 = encode(TorchEngine(copy.deepcopy(model), precision), wave)[0]
    assert relative_error(layer_0, encode_by_transformers(model, centred)[0]) < bound


# ---- batches, as a GPU gets them


@pytest.mark.parametrize("shape", ["base", "large", "other strides"])
def test_a_batch_gives_what_transformers_gives_and_the_bits_of_each_alone(shape, monkeypatch):
    monkeypatch.setattr(hubert, "BATCH_SECONDS", 3.0)
    model = make_model(**SHAPES[shape])
    grid = FrameGrid.of_convolutions(16_000, model.config.conv_kernel, model.config.conv_stride)
    waves = [make_wave(n, seed=n) for n in (16_000, 15_000, 400, 40_321, 16_100)]
    expected = [encode_by_transformers(model, wave)[2] for wave in waves]
    features = TorchEngine(copy.deepcopy(model)).compute_features(waves, 2, grid)
    assert largest_error(features, expected) < 5e-6
    engine = TorchEngine(model, "bf16")
    for wave, rounded in zip(waves, engine.compute_features(waves, 3, grid), strict=True):
        (alone,) = engine.compute_features([wave], 3, grid)
        assert torch.equal(alone, rounded)


@pytest.mark.parametrize(("size", "frames"), [(16, 40), (15, 33), (128, 7)])
def test_the_positional_convolution_of_a_gpu_is_a_convolution(size, frames):
    torch.manual_seed(0)
    conv = torch.nn.Conv1d(48, 48, size, padding=size // 2, groups=4).requires_grad_(False)
    x = torch.randn(3, frames, 48)
    expected = conv(x.transpose(1, 2))[..., :frames].transpose(1, 2)
    convolved = convolve_blockwise(x, conv.weight, conv.bias, groups=4)
    assert relative_error(convolved, expected) < 5e-6


# ---- training


def train_by_transformers(model, samples, mask=None):
    """Return what `compute_states` returns, computed by the modules of transformers."""
    states = []
    layers = model.encoder.layers
    hooks = []
    for layer in layers:
        hooks.append(layer.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0])))

    def append_output(module, inputs, output):
        states.append(output[0] if isinstance(output, tuple) else output)

    hooks.append(layers[-1].register_forward_hook(append_output))
    features = model.feature_extractor(samples.clone()).transpose(1, 2)
    projected = model.feature_projection(features)
    projected = projected[0] if isinstance(projected, tuple) else projected
    if mask is not None:
        embedding = model.masked_spec_embed.to(projected.dtype)
        projected = torch.where(mask[..., None], embedding, projected)
    model.encoder(projected)
    for hook in hooks:
        hook.remove()
    return features, states


def compute_gradients(model, features, states):
    """Return the gradients, by name, of a loss that depends on every number of the outputs."""
    torch.manual_seed(1)
    model.zero_grad()
    sum((x.float() * torch.randn(x.shape)).sum() for x in (features, *states)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def make_batch(model):
    """Return samples (3, N) and a mask (3, T) of about 40 % of the frames."""
    torch.manual_seed(0)
    samples = torch.randn(3, 8_011)
    frames = int(model._get_feat_extract_output_lengths(8_011))
    return samples, torch.rand(3, frames) < 0.4


def check_gradients(gradients, expected):
    """Assert that gradients differ by rounding, in comparison with the largest."""
    assert gradients.keys() == expected.keys()
    largest = max(float(gradient.norm()) for gradient in expected.values())
    for name, gradient in expected.items():
        assert (gradients[name] - gradient).norm() < 1e-5 * largest, name


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_outputs_and_all_gradients_are_those_of_transformers(kind, shape):
    model = make_model(kind, **SHAPES[shape])
    batch = make_batch(model)
    features, states = compute_states(model, *batch)
    expected_features, expected_states = train_by_transformers(model, *batch)
    assert relative_error(features, expected_features) < 2e-6
    assert largest_error(states, expected_states) < 2e-6
    expected = compute_gradients(model, expected_features, expected_states)
    check_gradients(compute_gradients(model, features, states), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_changes_neither_states_nor_gradients(shape):
    """Each utterance has the states and gradients that it would have alone, whatever the padding
    holds, and also with a group norm."""
    model = make_model(**SHAPES[shape])
    utterances = [torch.randn(1, n) for n in (4_000, 1_999, 2_801)]
    lengths = torch.tensor([x.shape[1] for x in utterances])
    padded = 7 * torch.randn(3, 4_000)
    for row, samples in enumerate(utterances):
        padded[row, : samples.shape[1]] = samples
    frames = count_frames(model.config, lengths)
    _, together = compute_states(model, padded, lengths=lengths)
    alone = [torch.stack(compute_states(model, x)[1]) for x in utterances]
    for row, (states, count) in enumerate(zip(alone, frames.tolist(), strict=True)):
        assert largest_error([x[row, :count] for x in together], states[:, 0]) < 2e-6
    is_speech = torch.arange(together[0].shape[1]) < frames[:, None]
    parameters = [p for n, p in model.named_parameters() if not n.endswith((*ZERO, "spec_embed"))]
    loss = sum((x[is_speech] ** 2).sum() for x in together)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    loss = sum((x**2).sum() for x in alone)
    expected = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(a, b) for a, b in zip(gradients, expected, strict=True) if b is not None]
    # beside gradients of 3,000 the fourth digit of one of 6e-4 is rounding (without AVX-512)
    rounding = 1e-10 * max(b.norm() for _, b in pairs)
    for a, b in pairs:
        assert relative_error(a, b) < 1e-4 or (a - b).norm() < rounding


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_the_same_seed_drops_the_same_numbers_as_in_transformers(dropout, pre_norm):
    rates = dict.fromkeys([*DROPOUTS, "layerdrop"], 0.0) | {dropout: 0.4}
    model = make_model(do_stable_layer_norm=pre_norm, **rates)
    batch = make_batch(model)
    without_dropout = compute_states(model, *batch)[1][-1]
    model.train()
    torch.manual_seed(5)
    expected = train_by_transformers(model, *batch)
    torch.manual_seed(5)
    outputs = compute_states(model, *batch)
    last_layer = outputs[1][-1]
    assert relative_error(last_layer, expected[1][-1]) < 2e-6
    assert relative_error(last_layer, without_dropout) > 1e-3
    check_gradients(compute_gradients(model, *outputs), compute_gradients(model, *expected))


@pytest.mark.parametrize("shape", ["base", "large", "other strides", "odd sizes"])
def test_bf16_is_as_near_to_fp32_as_transformers_in_autocast(shape):
    model = make_model(**SHAPES[shape])
    batch = make_batch(model)
    exact = train_by_transformers(model, *batch)
    exact_gradients = compute_gradients(model, *exact)
    with torch.autocast("cpu", torch.bfloat16):
        autocast, outputs = train_by_transformers(model, *batch), compute_states(model, *batch)
    features, states = outputs
    assert {x.dtype for x in (features, *states)} == {torch.bfloat16}
    for state, autocast_state, exact_state in zip(states, autocast[1], exact[1], strict=True):
        error = relative_error(state, exact_state)
        assert 1e-4 < error < 1.5 * relative_error(autocast_state, exact_state) + 1e-3

    def flatten(gradients):
        return torch.cat([gradients[name].flatten() for name in exact_gradients])

    autocast_gradients = compute_gradients(model, *autocast)
    gradients = compute_gradients(model, *outputs)
    assert {gradient.dtype for gradient in gradients.values()} == {torch.float32}
    error_of_autocast = relative_error(flatten(autocast_gradients), flatten(exact_gradients))
    assert relative_error(flatten(gradients), flatten(exact_gradients)) < 1.5 * error_of_autocast


def test_neither_higher_layers_nor_frozen_ones_get_gradients():
    model = make_model()
    samples, mask = make_batch(model)
    model.feature_extractor.requires_grad_(False)
    model.encoder.layers[0].attention.q_proj.requires_grad_(False)
    gradients = compute_gradients(model, *compute_states(model, samples, mask, last=1))
    frozen = ("feature_extractor", "encoder.layers.0.attention.q_proj")
    assert not any(name.startswith(frozen) for name in gradients)
    layers = {name.split(".")[2] for name in gradients if name.startswith("encoder.layers")}
    assert layers == {"0"}
