"""The forward pass and its engines against transformers' own models of many shapes: layers,
gradients, padding, batches."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

from speechssl.encoders import hubert
from speechssl.encoders.engines import OpenVinoEngine, TransformersEngine
from speechssl.encoders.hubert import (
    TorchEngine,
    convolve_blockwise,
    frames_of_samples,
    training_states,
)
from speechssl.encoders.load import load_encoder
from speechssl.finetuning import add_modules
from speechssl.timing import FrameGrid

from .conftest import noise

SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3}
SIZES["intermediate_size"] = 80


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
    "no norm before it, another epsilon": {"feat_proj_layer_norm": False, "layer_norm_eps": 1e-3},
}


KINDS = [*(("Hubert", shape) for shape in SHAPES), ("Wav2Vec2", "base"), ("Wav2Vec2", "large")]
DROPOUTS = ["hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout"]
ZERO = ("k_proj.bias", "conv_layers.0.conv.bias")  # gradients that are zero but for rounding


def network(kind="Hubert", adapters=None, **changes):
    """A model of transformers with random weights, and norms and adapters (of this width) that are
    not the identity."""
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


def grid_of(model):
    return FrameGrid.of_convolutions(16_000, model.config.conv_kernel, model.config.conv_stride)


def speech(samples, seed=0):
    return torch.from_numpy(noise(samples, seed))


def layers(engine, wave, last=3):
    return engine.states(wave, engine.statistics(wave), range(last + 1))


def error(found, expected):
    """Relative, in the norm of all frames."""
    found, expected = (x.detach().float() for x in (found, expected))
    return float((found - expected).norm() / expected.norm())


def worst(found, expected):
    return max(error(a, b) for a, b in zip(found, expected, strict=True))


def expected(model, wave):
    with torch.inference_mode():
        return [x[0] for x in model(wave[None], output_hidden_states=True).hidden_states]


# ---- inference


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_every_layer_is_that_of_transformers(kind, shape):
    model, wave = network(kind, **SHAPES[shape]), speech(30_011)
    exact = expected(model, wave)
    found = layers(TorchEngine(copy.deepcopy(model)), wave)
    assert [x.shape for x in found] == [x.shape for x in exact]
    assert worst(found, exact) < 5e-6
    rounded = layers(TorchEngine(model, "bf16"), wave)
    assert {x.dtype for x in rounded} == {torch.bfloat16}
    assert 1e-4 < worst(rounded, exact) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["base", "large"])
def test_openvino_computes_the_same_layers(shape, tmp_path):
    pytest.importorskip("openvino")
    model, wave = network(**SHAPES[shape]), speech(30_011)
    exact = expected(model, wave)
    graph = tmp_path / "cache/x.xml"
    engine = OpenVinoEngine(copy.deepcopy(model), "fp32", graph)
    assert worst(layers(engine, wave), exact) < 1e-5
    again = OpenVinoEngine(model, "fp32", graph)  # the graph is there
    short = speech(5_000)
    found = again.states(short, again.statistics(short), [1, 3])
    assert worst(found, expected(model, short)[1::2]) < 1e-5


@pytest.mark.slow
def test_openvino_is_taken_where_it_is_asked_for(hubert_folder, monkeypatch, tmp_path):
    pytest.importorskip("openvino")
    monkeypatch.setenv("HOME", str(tmp_path))
    samples, folder = noise(60_000), hubert_folder("group")
    plain, other = (load_encoder(folder, engine=engine) for engine in ("torch", "openvino"))
    assert (plain.engine.backend, other.engine.backend) == ("cpu", "openvino")
    assert worst(other.hidden_states(samples), plain.hidden_states(samples)) < 1e-5


@pytest.mark.parametrize("kind", ["WavLM", "Data2VecAudio"])
def test_threads_that_share_an_engine_do_not_mix_its_layers(kind):
    engine = TransformersEngine(network(kind))
    waves = [speech(9_000 + 500 * i, seed=i) for i in range(12)]
    alone = [layers(engine, wave, 2)[2] for wave in waves]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda wave: layers(engine, wave, 2)[2], waves))
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 2e-5), ("bf16", 0.03)])
def test_neither_an_offset_nor_a_gain_costs_precision_where_a_group_norm_removes_it(
    precision, bound
):
    model, wave = network(), 0.015 * speech(20_000) + 0.3
    centred = (wave.double() - wave.double().mean()).float()
    exact = expected(model, centred)[0]
    assert error(layers(TorchEngine(model, precision), wave)[0], exact) < bound


# ---- batches, as a GPU gets them


@pytest.mark.parametrize("shape", ["base", "large", "other strides"])
def test_a_batch_gives_what_transformers_gives_for_each_alone(shape, monkeypatch):
    monkeypatch.setattr(hubert, "BATCH_SECONDS", 3.0)
    model = network(**SHAPES[shape])
    waves = [speech(n, seed=n) for n in (16_000, 15_000, 400, 40_321, 16_100)]
    exact = [expected(model, wave)[2] for wave in waves]
    found = TorchEngine(copy.deepcopy(model)).features(waves, 2, grid_of(model))
    assert worst(found, exact) < 5e-6
    rounded = TorchEngine(model, "bf16")
    together = rounded.features(waves, 3, grid_of(model))
    for wave, features in zip(waves, together, strict=True):
        assert torch.equal(rounded.features([wave], 3, grid_of(model))[0], features)


@pytest.mark.parametrize(("size", "frames"), [(16, 40), (15, 33), (128, 7)])
def test_the_positional_convolution_of_a_gpu_is_a_convolution(size, frames):
    torch.manual_seed(0)
    conv = torch.nn.Conv1d(48, 48, size, padding=size // 2, groups=4).requires_grad_(False)
    x = torch.randn(3, frames, 48)
    exact = conv(x.transpose(1, 2))[..., :frames].transpose(1, 2)
    assert error(convolve_blockwise(x, conv.weight, conv.bias, 4), exact) < 5e-6


# ---- training


def theirs(model, samples, mask=None):
    """What `training_states` gives, by the modules of transformers."""
    found = []
    blocks = model.encoder.layers
    hooks = [b.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for b in blocks]
    last = blocks[-1].register_forward_hook(
        lambda _, inputs, y: found.append(y[0] if isinstance(y, tuple) else y)
    )
    features = model.feature_extractor(samples.clone()).transpose(1, 2)
    hidden = model.feature_projection(features)
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    if mask is not None:
        hidden = torch.where(mask[..., None], model.masked_spec_embed.to(hidden.dtype), hidden)
    model.encoder(hidden)
    for hook in (*hooks, last):
        hook.remove()
    return features, found


def gradients(model, features, states):
    """Of a loss that sees every number."""
    torch.manual_seed(1)
    model.zero_grad()
    sum((x.float() * torch.randn(x.shape)).sum() for x in (features, *states)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def batch(model, samples=8_011, utterances=3):
    torch.manual_seed(0)
    frames = int(model._get_feat_extract_output_lengths(samples))
    return torch.randn(utterances, samples), torch.rand(utterances, frames) < 0.4


def check_gradients(found, exact, bound=1e-5):
    assert found.keys() == exact.keys()
    largest = max(float(g.norm()) for g in exact.values())
    for name, gradient in exact.items():
        assert (found[name] - gradient).norm() < bound * largest, name


@pytest.mark.parametrize(("kind", "shape"), KINDS)
def test_outputs_and_all_gradients_are_those_of_transformers(kind, shape):
    model = network(kind, **SHAPES[shape])
    samples, mask = batch(model)
    exact, found = theirs(model, samples, mask), training_states(model, samples, mask)
    assert worst((found[0], *found[1]), (exact[0], *exact[1])) < 2e-6
    check_gradients(gradients(model, *found), gradients(model, *exact))


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_changes_neither_states_nor_gradients(shape):
    """Whatever the padding holds: each utterance is as it would be alone, with a group norm too."""
    model = network(**SHAPES[shape])
    alone = [torch.randn(1, n) for n in (4_000, 1_999, 2_801)]
    lengths = torch.tensor([x.shape[1] for x in alone])
    padded = torch.stack([torch.cat([x[0], 7 * torch.randn(4_000 - x.shape[1])]) for x in alone])
    frames = frames_of_samples(model.config, lengths)
    _, together = training_states(model, padded, lengths=lengths)
    apart = [torch.stack(training_states(model, x)[1]) for x in alone]
    for row, (states, count) in enumerate(zip(apart, frames.tolist(), strict=True)):
        assert worst([x[row, :count] for x in together], states[:, 0]) < 2e-6
    real = torch.arange(together[0].shape[1]) < frames[:, None]
    trained = [p for n, p in model.named_parameters() if not n.endswith((*ZERO, "spec_embed"))]
    loss = sum((x[real] ** 2).sum() for x in together)
    found = torch.autograd.grad(loss, trained, allow_unused=True)
    loss = sum((x**2).sum() for x in apart)
    wanted = torch.autograd.grad(loss, trained, allow_unused=True)
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if b is not None]
    # beside gradients of 3,000 the fourth digit of one of 6e-4 is rounding (without AVX-512)
    rounding = 1e-10 * max(b.norm() for _, b in pairs)
    assert all(error(a, b) < 1e-4 or (a - b).norm() < rounding for a, b in pairs)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("dropped", DROPOUTS)
def test_the_same_seed_drops_the_same(dropped, stable):
    rates = dict.fromkeys([*DROPOUTS, "layerdrop"], 0.0) | {dropped: 0.4}
    model = network(do_stable_layer_norm=stable, **rates)
    samples, mask = batch(model)
    exact = training_states(model, samples, mask)[1][-1]
    model.train()
    torch.manual_seed(5)
    wanted = theirs(model, samples, mask)
    torch.manual_seed(5)
    found = training_states(model, samples, mask)
    assert error(found[1][-1], wanted[1][-1]) < 2e-6 < 1e-3 < error(found[1][-1], exact)
    check_gradients(gradients(model, *found), gradients(model, *wanted))


@pytest.mark.parametrize("shape", ["base", "large", "other strides", "odd sizes"])
def test_bf16_is_as_near_as_autocast(shape):
    model = network(**SHAPES[shape])
    samples, mask = batch(model)
    exact = theirs(model, samples, mask)
    wanted = gradients(model, *exact)
    with torch.autocast("cpu", torch.bfloat16):
        plain, found = theirs(model, samples, mask), training_states(model, samples, mask)
    assert {x.dtype for x in (found[0], *found[1])} == {torch.bfloat16}
    for ours, rounded, right in zip(found[1], plain[1], exact[1], strict=True):
        assert 1e-4 < error(ours, right) < 1.5 * error(rounded, right) + 1e-3
    sides = [gradients(model, *plain), gradients(model, *found), wanted]
    assert {g.dtype for g in sides[1].values()} == {torch.float32}
    rounded, ours, right = (torch.cat([g[n].flatten() for n in wanted]) for g in sides)
    assert error(ours, right) < 1.5 * error(rounded, right)


def test_layers_above_get_no_gradient_nor_do_frozen_ones():
    model = network()
    samples, mask = batch(model)
    model.feature_extractor.requires_grad_(False)
    model.encoder.layers[0].attention.q_proj.requires_grad_(False)
    found = gradients(model, *training_states(model, samples, mask, last=1))
    frozen = ("feature_extractor", "encoder.layers.0.attention.q_proj")
    assert not any(name.startswith(frozen) for name in found)
    assert {name.split(".")[2] for name in found if name.startswith("encoder.layers")} == {"0"}
