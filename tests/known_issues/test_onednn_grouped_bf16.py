"""oneDNN 3.10.2 (torch 2.11) on a CPU with AMX: some bf16 convolutions of few channels a group are
wrong by half or more.

`convolution_dtype` says which, and keeps every path of ours from them. These tests fail where one
goes around it on such a processor, and pass on others in any case. The width of 12 is that of this
repository's small test models, 48 that of HuBERT base.
"""

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from speechssl.encoders.batched import BatchedEngine
from speechssl.encoders.engines import TransformersEngine
from speechssl.encoders.hubert import Convolution, FastEngine, convolution_dtype
from speechssl.encoders.training import ConvolutionFunction
from speechssl.timing import FrameGrid

WIDTHS, GROUPS, KERNEL, FRAMES = [2, 8, 12, 14, 16, 30, 32, 48], 4, 32, 96
ROUNDED = 0.01  # relative error of bf16 inputs and outputs: 0.002


def error(found, expected):
    return float((found.detach().float() - expected).norm() / expected.norm())


def convolution(width, groups=GROUPS, **shape):
    """Weights and samples that bf16 holds exactly."""
    torch.manual_seed(0)
    conv = nn.Conv1d(width * groups, width * groups, KERNEL, groups=groups, **shape).requires_grad_(
        False
    )
    conv.weight.copy_(conv.weight.bfloat16())
    conv.bias.copy_(conv.bias.bfloat16())
    return conv, torch.randn(2, width * groups, FRAMES).bfloat16().float()


def of_the_fast_engine(conv):
    """Alone it takes bf16 to oneDNN, which refuses it where `FastEngine` does: without AVX-512 and
    AVX-NE-CONVERT."""
    kept = convolution_dtype(conv.weight, torch.bfloat16, conv.stride[0])
    if kept == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no bf16 arithmetic")
    return Convolution(conv, torch.bfloat16)


@pytest.mark.parametrize("width", WIDTHS)
def test_positions_of_the_fast_engine(width):
    conv, x = convolution(width, padding=KERNEL // 2)
    found = of_the_fast_engine(conv).gelu(x[0].t().bfloat16())
    assert found.dtype == torch.bfloat16 and error(found.t(), F.gelu(conv(x))[0]) < ROUNDED


@pytest.mark.parametrize("width", WIDTHS)
def test_positions_in_training_and_their_gradients(width):
    conv, x = convolution(width, padding=KERNEL // 2)
    frames, x = x.transpose(1, 2).bfloat16().requires_grad_(), x.requires_grad_()
    exact, weight = (
        conv.requires_grad_()(x)[..., :FRAMES],
        conv.weight.detach().clone().requires_grad_(),
    )
    found = ConvolutionFunction.apply(frames, weight, conv.bias, 1, KERNEL // 2, GROUPS)
    toward = torch.randn_like(exact).bfloat16()
    found.backward(toward.transpose(1, 2))
    exact.backward(toward.float())
    assert found.dtype == frames.grad.dtype == torch.bfloat16 and weight.grad.dtype == torch.float32
    assert error(found.transpose(1, 2), exact.detach()) < ROUNDED
    assert error(frames.grad.transpose(1, 2), x.grad) < ROUNDED
    assert error(weight.grad, conv.weight.grad) < ROUNDED


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_a_strided_convolution_of_the_front_end(width, stride):
    """Here the one group is all channels."""
    conv, x = convolution(width, groups=1, stride=stride)
    frames, x = x.transpose(1, 2).contiguous().bfloat16().requires_grad_(), x.requires_grad_()
    exact = conv(x)
    found = ConvolutionFunction.apply(frames, conv.weight, conv.bias, stride)
    toward = torch.randn_like(exact).bfloat16()
    found.backward(toward.transpose(1, 2))
    exact.backward(toward.float())
    assert error(found.transpose(1, 2), exact.detach()) < ROUNDED
    assert error(frames.grad.transpose(1, 2), x.grad) < ROUNDED
    alone = of_the_fast_engine(conv)(frames[0].detach())
    assert error(alone.t(), exact[0].detach()) < ROUNDED


def engines(model):
    grid = FrameGrid.of_convolutions(16_000, model.config.conv_kernel, model.config.conv_stride)
    return {
        "fast": lambda: FastEngine(model, "bf16"),
        "int8": lambda: FastEngine(model, "int8"),
        "batched": lambda: BatchedEngine(model, grid, "bf16", "cpu"),
        "generic": lambda: TransformersEngine(model, "bf16"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["fast", "int8", "batched", "generic"])
@pytest.mark.parametrize(
    "sizes", [{"conv_dim": (8, 8)}, {"conv_dim": (24, 24)}, {"hidden_size": 48}, {}]
)
def test_every_engine_is_near_to_float32(engine, sizes):
    """Narrow convolutions in the front end, with and without its stride, narrow groups of the
    positional one, neither."""
    shape = {
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "conv_dim": (32, 32),
        "hidden_size": 64,
    }
    front = {
        "conv_kernel": (10, 8),
        "conv_stride": (5, 4),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embedding_groups": 4,
    }
    torch.manual_seed(0)
    model = transformers.HubertModel(
        transformers.HubertConfig(**shape | front | sizes, num_conv_pos_embeddings=16)
    ).eval()
    wave = torch.randn(4_005)  # so that the second convolution's stride divides its frames
    with torch.inference_mode():
        exact = model(wave[None], output_hidden_states=True).hidden_states[-1][0]
    made = engines(model)[engine]()
    *_, found = made.states(wave, made.statistics(wave), 1)
    assert found.dtype == torch.bfloat16 and error(found, exact) < 0.05


def test_published_sizes_stay_in_bf16():
    kept = [
        convolution_dtype(torch.empty(768, width, 128), torch.bfloat16) for width in (16, 48, 64)
    ]
    kept += [
        convolution_dtype(torch.empty(512, width, 8), torch.bfloat16, 4) for width in (1, 64, 512)
    ]
    assert set(kept) == {torch.bfloat16}
    assert convolution_dtype(torch.empty(48, 12, 16), torch.bfloat16) == torch.float32
    # not on a CPU
    assert (
        convolution_dtype(torch.empty(48, 12, 16, device="meta"), torch.bfloat16) == torch.bfloat16
    )
