"""HuBERT and wav2vec 2.0 have one definition of their forward pass, computed with the kernels of a
purpose.

    samples -> convolutions, each with GELU (a group norm after the first, or a layer norm after
    each)
            -> layer norm, projection -> + GELU of a grouped convolution over time (positions) ->
            transformer layers

Layer 0 is the input of the first transformer layer, layer n the output of layer n. Models with
layer norms before attention and feed-forward (pre-norm, HuBERT large) have another norm after the
last layer, which is left to the caller.
The kernels are those below (a CPU, one utterance, oneDNN, fp32, bf16 or int8), `batched` (a GPU,
many utterances) and `training` (with gradients). They work on the weights of transformers' modules.

Letters: B utterances, N samples, T frames, C channels, D width, H heads, K kernel size.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from speechssl.errors import InputError, first_line
from speechssl.timing import FrameGrid

Map = Callable[[torch.Tensor], torch.Tensor]


class FusedProduct(Protocol):
    """A linear map or a convolution is computed together with what follows it: nothing, its GELU,
    or its sum with a residual."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...
    def gelu(self, x: torch.Tensor) -> torch.Tensor: ...
    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor: ...


class Kernels(Protocol):
    """Kernels compute the parts of the model for one purpose. Each method takes a module of
    transformers."""

    layer_drop: float  # probability with which a layer is left out

    # of the front end, not its first: (..., T, C) -> (..., T', C')
    def convolution(self, conv: nn.Conv1d) -> FusedProduct: ...
    def norm(self, norm: nn.Module) -> Map: ...  # over the last axis
    def projection(self, projection: Any) -> Map: ...  # (..., T, C) -> (..., T, D)
    def positions(self, conv: nn.Conv1d) -> Map: ...  # with GELU, (..., T, D) -> (..., T, D)
    def dropout(self, dropout: nn.Module) -> Map: ...  # of the input of the first layer
    # of a transformer layer
    def linear(self, linear: nn.Linear, dropout: nn.Module) -> FusedProduct: ...

    # weighted values of all heads, (..., T, D) -> (..., T, D), given x and which frames to attend
    # to; None: all
    def attention(self, attention: Any) -> Callable[[torch.Tensor, Any], torch.Tensor]: ...


def identity(x: torch.Tensor) -> torch.Tensor:
    return x


@dataclass(frozen=True)
class Plain:
    """Compute a product in torch's own operations. dropout: of its GELU, or of what is added to
    the residual."""

    product: Map
    dropout: Map = identity

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(F.gelu(self.product(x)))

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return other + self.dropout(self.product(x))


class Adapted:
    """Compute a product of a transformer layer with an adapter behind it (`finetuning.Bottleneck`):
    y + up(gelu(down(y)))."""

    def __init__(self, linear: Any, dropout: nn.Module, kernels: Kernels):
        no_dropout = nn.Identity()
        self.product = kernels.linear(linear, no_dropout)
        self.dropout = kernels.dropout(dropout)
        self.down = kernels.linear(linear.adapter.down, no_dropout)
        self.up = kernels.linear(linear.adapter.up, no_dropout)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        y = self.product(x)
        return other + self.dropout(self.up.plus(self.down.gelu(y), y))


class Layer:
    """Compute one transformer layer."""

    def __init__(self, layer: Any, pre_norm: bool, kernels: Kernels):
        def to_residual(linear: nn.Linear, dropout: nn.Module) -> FusedProduct | Adapted:
            if hasattr(linear, "adapter"):
                return Adapted(linear, dropout, kernels)
            return kernels.linear(linear, dropout)

        attention, feed = layer.attention, layer.feed_forward
        self.attention = kernels.attention(attention)
        self.out = to_residual(attention.out_proj, layer.dropout)
        self.up = kernels.linear(feed.intermediate_dense, feed.intermediate_dropout)
        self.down = to_residual(feed.output_dense, feed.output_dropout)
        self.norm = kernels.norm(layer.layer_norm)
        self.final_norm = kernels.norm(layer.final_layer_norm)
        self.pre_norm = pre_norm

    def __call__(self, x: torch.Tensor, beside: Any) -> torch.Tensor:
        """Map (..., T, D) to (..., T, D). beside: see `Kernels.attention`."""
        if self.pre_norm:
            x = self.out.plus(self.attention(self.norm(x), beside), x)
            return self.down.plus(self.up.gelu(self.final_norm(x)), x)
        x = self.norm(self.out.plus(self.attention(x, beside), x))
        return self.final_norm(self.down.plus(self.up.gelu(x), x))


class HubertBody:
    """Compute the model from the output of its first convolution on, up to layer `last`; the
    purposes compute that convolution in ways of their own."""

    def __init__(self, model: Any, kernels: Kernels, last: int | None = None):
        config, encoder, projection = model.config, model.encoder, model.feature_projection
        layer_norms = config.feat_extract_norm == "layer"
        self.convolutions = [
            (kernels.convolution(x.conv), kernels.norm(x.layer_norm) if layer_norms else None)
            for x in model.feature_extractor.conv_layers[1:]
        ]
        has_norm = hasattr(projection, "layer_norm")
        self.feature_norm = kernels.norm(projection.layer_norm) if has_norm else None
        self.projection = kernels.projection(projection)
        self.positions = kernels.positions(encoder.pos_conv_embed.conv)
        self.input_norm = None if config.do_stable_layer_norm else kernels.norm(encoder.layer_norm)
        self.dropout = kernels.dropout(encoder.dropout)
        self.layer_drop = kernels.layer_drop
        self.layers = [
            Layer(x, config.do_stable_layer_norm, kernels) for x in encoder.layers[:last]
        ]

    def convolve(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the other convolutions of the front end, (..., T', C') -> (..., T, C)."""
        for convolution, norm in self.convolutions:
            x = convolution.gelu(x) if norm is None else F.gelu(norm(convolution(x)))
        return x

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise and project the front end's output, (..., T, C) -> (..., T, D)."""
        return self.projection(x if self.feature_norm is None else self.feature_norm(x))

    def states(
        self, x: torch.Tensor, beside: Any, last: int | None = None
    ) -> Iterator[torch.Tensor]:
        """Yield layers 0 to `last`. x: (..., T, D) projected, zero where there is padding."""
        x = x + self.positions(x)
        x = self.dropout(x if self.input_norm is None else self.input_norm(x))
        yield x
        for layer in self.layers[:last]:
            if not (self.layer_drop > 0 and torch.rand([]) < self.layer_drop):
                x = layer(x, beside)
            yield x


class OneDnnLinear(nn.Linear):
    """Let oneDNN compute a linear map where it can: in fp32 on a CPU, without gradients. MKL,
    which torch takes, needs more than twice the time on processors of AMD.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self._fits(x):
            return super().forward(x)
        return onednn._linear_pointwise(x, self.weight, self.bias, *NOTHING)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """Return the GELU of the product."""
        if not self._fits(x):
            return F.gelu(super().forward(x))
        return onednn._linear_pointwise(x, self.weight, self.bias, *GELU)

    def _fits(self, x: torch.Tensor) -> bool:
        return (
            not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and has_onednn()
            and x.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and x.numel() > 0
        )


class Unset(OneDnnLinear):
    """Draw no weights, which takes a while: they are read from a file."""

    def reset_parameters(self) -> None: ...


def for_inference(model: nn.Module) -> None:
    """Let oneDNN compute the linear maps of a model that is not trained further."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = OneDnnLinear  # weights and hooks stay as they are


def modules_of(config: Any) -> nn.Module:
    """Make the modules of transformers' HubertModel or Wav2Vec2Model, under its names, without
    values and without a forward pass: for those who read the weights alone. transformers takes
    seconds to import. config: of an architecture that `is_known`.
    """

    def tree(**children: Any) -> nn.Module:
        module = nn.Module()
        for name, child in children.items():
            setattr(module, name, child)
        return module

    def convolution(n: int, first: bool) -> nn.Module:
        before, width = 1 if first else config.conv_dim[n - 1], config.conv_dim[n]
        conv = nn.Conv1d(
            before, width, config.conv_kernel[n], config.conv_stride[n], bias=config.conv_bias
        )
        if config.feat_extract_norm == "layer":
            return tree(conv=conv, layer_norm=nn.LayerNorm(width))
        return tree(conv=conv, layer_norm=nn.GroupNorm(width, width)) if first else tree(conv=conv)

    def norm(width: int) -> nn.LayerNorm:
        return nn.LayerNorm(width, config.layer_norm_eps)

    def layer() -> nn.Module:
        width, inside = config.hidden_size, config.intermediate_size
        attention = tree(
            num_heads=config.num_attention_heads,
            **{f"{x}_proj": Unset(width, width) for x in ("k", "v", "q", "out")},
        )
        feed = tree(intermediate_dense=Unset(width, inside), output_dense=Unset(inside, width))
        feed.intermediate_dropout = feed.output_dropout = None
        return tree(
            attention=attention,
            dropout=None,
            feed_forward=feed,
            layer_norm=norm(width),
            final_layer_norm=norm(width),
        )

    width, size = config.hidden_size, config.num_conv_pos_embeddings
    positions = nn.Conv1d(
        width, width, size, padding=size // 2, groups=config.num_conv_pos_embedding_groups
    )
    projection = tree(projection=Unset(config.conv_dim[-1], width))
    if getattr(config, "feat_proj_layer_norm", True):
        projection.layer_norm = norm(config.conv_dim[-1])
    return tree(
        config=config,
        masked_spec_embed=nn.Parameter(torch.empty(width)),
        feature_extractor=tree(
            conv_layers=nn.ModuleList(convolution(n, n == 0) for n in range(len(config.conv_dim)))
        ),
        feature_projection=projection,
        encoder=tree(
            pos_conv_embed=tree(conv=nn.utils.parametrizations.weight_norm(positions, dim=2)),
            layer_norm=norm(width),
            dropout=None,
            layers=nn.ModuleList(layer() for _ in range(config.num_hidden_layers)),
        ),
    )


def moments(
    windows: torch.Tensor, count: torch.Tensor | None = None, parts: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean (B, K) and covariance (B, K, K) of the windows of raw samples (B, T, K), in
    float64.

    count: (B,) windows that are an utterance's own; None: all. parts: products that a long sum is
    made of: one alone would leave most of a GPU idle.
    """
    windows = windows.double()
    if count is None:
        count = torch.full((len(windows),), windows.shape[1], device=windows.device)
    else:
        windows = windows * before_end(count, windows.shape[1])[..., None]
    mean = windows.sum(1) / count[:, None]
    if parts > 1:
        chunks = F.pad(windows, (0, 0, 0, -windows.shape[1] % parts)).unflatten(1, (parts, -1))
        squares = (chunks.transpose(2, 3) @ chunks).sum(1)
    else:
        squares = windows.transpose(1, 2) @ windows
    return mean, squares / count[:, None, None] - mean[:, :, None] * mean[:, None]


def fold(
    norm: Any, weight: torch.Tensor, mean: torch.Tensor, covariance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fold the group norm over time into the first convolution: one affine map, of weights
    (..., C, K) and biases (..., C) in float64.

    Mean and variance of a channel follow from mean (..., K) and covariance (..., K, K) of the
    windows of samples. The convolution's own bias is part of the mean, which the norm takes away.
    weight: (C, K) float64.
    """
    variance = ((weight @ covariance) * weight).sum(-1)
    scale = norm.weight.double() / torch.sqrt(variance + norm.eps)
    return scale[..., None] * weight, norm.bias.double() - scale * (mean @ weight.T)


def split_in_halves(
    x: torch.Tensor, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, torch.Tensor]:
    """Split x into the sum of two tensors of fewer bits: rounded, and what that misses."""
    high = x.to(dtype)
    return high, (x - high).to(dtype)


def frames_of_samples(config: Any, lengths: torch.Tensor) -> torch.Tensor:
    """Return how many frames, (B,), the convolutions make of (B,) samples."""
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return lengths


def before_end(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """Mask the places before the end of each row: (B,) lengths -> (B, size) bool."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def is_known(config: Any) -> bool:
    """Say whether this file defines an architecture: HuBERT or wav2vec 2.0 with GELU, no batch
    norm, none of transformers' adapters."""
    return (
        config.model_type in ("hubert", "wav2vec2")
        and config.feat_extract_activation == config.hidden_act == "gelu"
        and not getattr(config, "conv_pos_batch_norm", False)
        and not getattr(config, "add_adapter", False)
        and getattr(config, "adapter_attn_dim", None) is None
    )


def check_known(model: Any, name: str = "the encoder") -> None:
    """Raise InputError for an architecture that cannot be trained here, before any work."""
    if not is_known(model.config):
        raise InputError(
            f"{name} is a {model.config.model_type} model, not a plain HuBERT or wav2vec 2.0 "
            "(GELU, no adapters, no batch norm), and only these can be trained; start from another"
        )


def convolution_dtype(weight: torch.Tensor, dtype: torch.dtype, stride: int = 1) -> torch.dtype:
    """Return float32 where oneDNN's sums in `dtype` may be wrong, else `dtype`. weight: (C', C /
    groups, K) of any further axes.

    On a processor with AMX, oneDNN 3.10.2 (that of torch 2.11) computes two kinds of bf16
    convolutions wrongly, by as much as the result is large and without a warning: of C / groups = 2
    to 14 channels, where a kernel's K C / groups numbers are a multiple of 32 above 32; and of 16
    to 30 channels with a stride of 4 or more that divides both K and the frames. Found by trying;
    with one channel, with 16 and small strides, and from 32 on all that were tried are right, and
    so are all gradients. The published sizes (512 channels in the front end, 48 or 64 in each of 16
    groups of the positional convolution) stay in bf16.
    tests/known_issues/test_onednn_grouped_bf16.py measures it.
    """
    narrow = 1 < weight.shape[1] < (16 if stride < 4 else 32)
    on_cpu = weight.device.type == "cpu"
    return torch.float32 if narrow and on_cpu and dtype == torch.bfloat16 else dtype


onednn = torch.ops.mkldnn
quantised = torch.ops.onednn

# ---- the kernels of a CPU: one utterance at a time, without the passes over memory that are not
# needed
#
# Nothing is padded, and no utterance depends on others. oneDNN adds bias, GELU and residual to a
# product while the result is still in registers. The convolutions run in blocks of time that stay
# in the cache, and give what one pass would give.

BLOCK = 64  # frames of the front end computed at a time, about 1.3 s of speech
WINDOWS = 1 << 16  # windows of samples whose moments are taken at a time
MEANS = 1 << 22  # samples that are summed at a time
LN_2 = math.log(2)
SMALLEST = 1e-30  # sum of attention weights that is neither too small nor, inverted, too large
SCORES = 2 << 20  # bytes of attention scores that are worked on at a time, for the cache
NOTHING: tuple[str, list[float], str] = ("none", [], "")  # what follows a product
GELU: tuple[str, list[float], str] = ("gelu", [], "none")


def own_copy(tensor: Any, dtype: torch.dtype) -> Any:
    """Copy a tensor (of None: None): a view would keep the whole checkpoint in memory."""
    return None if tensor is None else tensor.to(dtype, copy=True)


class Linear:
    """Compute x W^T + b, and what follows it, in one pass. x: (T, in) -> (T, out)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.weight = onednn._reorder_linear_weight(weight.to(dtype).contiguous())
        self.bias = own_copy(bias, dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise(x, self.weight, self.bias, *NOTHING)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise(x, self.weight, self.bias, *GELU)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return onednn._linear_pointwise.binary(x, other, self.weight, self.bias, "add")


class QuantisedLinear:
    """Compute as `Linear`, with 8-bit weights (a scale a row) and inputs (a scale and zero point a
    call, from the input's range)."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.scale = weight.abs().amax(1).clamp_min(1e-12) / 127
        levels = (weight / self.scale[:, None]).round().to(torch.int8)
        self.weight = quantised.qlinear_prepack(levels, None)
        self.bias = own_copy(bias, torch.float32)
        self.zero = torch.zeros(len(weight), dtype=torch.long)
        self.dtype = dtype

    def levels(self, x: torch.Tensor) -> tuple[torch.Tensor, float, int]:
        """Quantise x to uint8, with the scale and zero point that use its range."""
        lowest, highest = torch.aminmax(x)
        low = min(float(lowest), 0.0)
        high = max(float(highest), 0.0)
        scale = max(high - low, 1e-12) / 255
        zero = round(-low / scale)
        levels = torch.quantize_per_tensor(x.float(), scale, zero, torch.quint8)
        integers = torch.empty(0, dtype=torch.uint8)
        integers.set_(levels.untyped_storage(), 0, levels.shape, levels.stride())
        return integers, scale, zero

    def __call__(
        self, x: torch.Tensor, after: tuple[str, list[float], str] = NOTHING
    ) -> torch.Tensor:
        product = *self.levels(x), self.weight, self.scale, self.zero
        return quantised.qlinear_pointwise(*product, self.bias, 1.0, 0, self.dtype, *after)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self(x, GELU)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        product = *self.levels(x), self.weight, self.scale, self.zero
        return quantised.qlinear_pointwise.binary(
            *product, other, self.bias, 1.0, 0, self.dtype, 1.0, 0, "add", 1.0, *NOTHING
        )


class QuantisedConvolution(QuantisedLinear):
    """Compute as `Convolution`, in 8 bits: what lies in memory as (T, C) holds windows of K frames
    as K C neighbouring numbers."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.size = conv.kernel_size[0]
        self.stride = conv.stride[0]
        super().__init__(conv.weight.transpose(1, 2).flatten(1), conv.bias, dtype)

    def levels(self, x: torch.Tensor) -> tuple[torch.Tensor, float, int]:
        levels, scale, zero = super().levels(x)
        shape = (len(x) - self.size) // self.stride + 1, self.size * x.shape[1]
        return levels.as_strided(shape, (self.stride * x.shape[1], 1)), scale, zero


class Convolution:
    """Convolve over time, with a stride, what lies in memory as (T, C). x: (T, C) -> (T', C')."""

    def __init__(self, conv: nn.Conv1d, dtype: torch.dtype):
        self.stride = [1, conv.stride[0]]
        self.padding = [0, int(conv.padding[0])]
        self.groups = conv.groups
        self.dtype = convolution_dtype(conv.weight, dtype, conv.stride[0])
        weight = conv.weight.to(self.dtype)[:, :, None].contiguous()  # (C', C / groups, 1, K)
        shape = [1, conv.in_channels, 1, (BLOCK - 1) * conv.stride[0] + conv.kernel_size[0]]
        self.weight = onednn._reorder_convolution_weight(
            weight, self.padding, self.stride, [1, 1], conv.groups, shape
        )
        self.bias = own_copy(conv.bias, self.dtype)

    def __call__(
        self, x: torch.Tensor, after: tuple[str, list[float], str] = NOTHING
    ) -> torch.Tensor:
        image = x.to(self.dtype).t()[None, :, None]  # (1, C, 1, T), channels last
        y = onednn._convolution_pointwise(
            image, self.weight, self.bias, self.padding, self.stride, [1, 1], self.groups, *after
        )
        return y[0, :, 0].t().to(x.dtype)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return self(x, GELU)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return other + self(x)


def has_onednn(int8: bool = False) -> bool:
    """Say whether torch has the operations of oneDNN as they are called here, by names that are
    not public."""
    return torch.backends.mkldnn.is_available() and _try_onednn(int8)


@cache
@torch.no_grad()
def _try_onednn(int8: bool) -> bool:
    """Try the operations, and say whether they are there; where they are not, so does stderr."""
    one = torch.ones(1, 1, dtype=torch.float32, device="cpu")
    linear = QuantisedLinear if int8 else Linear
    conv: Any = SimpleNamespace(
        weight=one[None],
        bias=None,
        in_channels=1,
        groups=1,
        kernel_size=(1,),
        stride=(1,),
        padding=(0,),
    )
    try:
        onednn._is_mkldnn_bf16_supported()
        torch.cpu._is_avx512_bf16_supported()
        product = linear(one, one[0], torch.float32)
        product.plus(product.gelu(one), one)
        Convolution(conv, torch.float32).gelu(one)
    except (AttributeError, RuntimeError, TypeError) as error:
        instead = "encoders and k-means take torch's public ones, which are slower"
        if int8:
            instead = "int8 is refused"
        lack = f"torch {torch.__version__} lacks operations of oneDNN ({first_line(error)})"
        tqdm.write(f"{lack}; {instead} (torch 2.11 has them)", file=sys.stderr)
        return False
    return True


class Attention:
    """Attend by plain products and exponentials that stay in the cache: faster than the fused
    attention of a CPU, above all in bf16.

    The products are oneDNN's, as `OneDnnLinear` has them and why.
    """

    def __init__(
        self, attention: Any, dtype: torch.dtype, linear: type[Linear] | type[QuantisedLinear]
    ):
        self.heads = attention.num_heads
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        # of the scores, for powers of two, moved into the queries
        scale = (q.out_features // self.heads) ** -0.5 / LN_2
        weight = torch.cat([q.weight * scale, k.weight, v.weight])
        bias = torch.cat([q.bias * scale, k.bias, v.bias])
        self.qkv = linear(weight, bias, dtype)

    def __call__(self, x: torch.Tensor, beside: None) -> torch.Tensor:
        """Attend, (T, D) -> (T, D), for so many frames of one head at a time that their scores
        stay in the cache.

        A softmax without its maximum and its division: powers of two of the scores, in place, and
        their sums. Where a sum leaves the range in which nothing has overflowed or vanished that
        counts, torch's own takes over.
        """
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).permute(1, 2, 0, 3).contiguous()
        v = v.transpose(1, 2).contiguous()
        attended = torch.empty_like(q)
        rows = max(SCORES // (len(x) * x.element_size()), 1)
        for queries, keys, values, out in zip(q, k, v, attended, strict=True):
            for part, room in zip(queries.split(rows), out.split(rows), strict=True):
                scores = onednn._linear_pointwise(part, keys, None, *NOTHING)  # part @ keys.T
                total = torch.exp2(scores, out=scores).sum(-1, keepdim=True)
                low, high = torch.aminmax(total)
                if bool(low > SMALLEST and high < 1 / SMALLEST):
                    sums = onednn._linear_pointwise(scores, values, None, *NOTHING)
                    torch.div(sums, total, out=room)
                else:
                    scores = onednn._linear_pointwise(part, keys, None, *NOTHING).mul_(LN_2)
                    weights = torch.softmax(scores, -1)
                    room.copy_(onednn._linear_pointwise(weights, values, None, *NOTHING))
        return attended.transpose(0, 1).reshape(len(x), -1)


class CpuKernels:
    """Compute in fp32, bf16, or int8 (convolutions of the front end and linear maps of the layers;
    the rest in bf16), as `precision` says."""

    layer_drop = 0.0

    def __init__(self, precision: str):
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.int8 = precision == "int8"

    def convolution(self, conv: nn.Conv1d) -> Convolution | QuantisedConvolution:
        kind = QuantisedConvolution if self.int8 else Convolution
        return kind(conv, self.dtype)

    def norm(self, norm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        weight = own_copy(norm.weight, self.dtype)
        bias = own_copy(norm.bias, self.dtype)
        return partial(
            F.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias, eps=norm.eps
        )

    def projection(self, projection: Any) -> Linear:
        return Linear(projection.projection.weight, projection.projection.bias, self.dtype)

    def positions(self, conv: nn.Conv1d) -> Callable[[torch.Tensor], torch.Tensor]:
        convolution = Convolution(conv, self.dtype)
        return lambda x: convolution.gelu(x)[: len(x)]  # an even kernel gives a frame too many

    def dropout(self, dropout: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return identity

    def linear(self, linear: nn.Linear, dropout: nn.Module) -> Linear | QuantisedLinear:
        kind = QuantisedLinear if self.int8 else Linear
        return kind(linear.weight, linear.bias, self.dtype)

    def attention(self, attention: Any) -> Attention:
        return Attention(attention, self.dtype, QuantisedLinear if self.int8 else Linear)


# the first convolution for one utterance, and what is to be taken from its samples before
Fitted = tuple[Linear, torch.Tensor]


class FastEngine:
    """Run the whole encoder in fp32 (what transformers gives, to rounding), bf16, or int8.

    The first convolution is a product of windows of raw samples. In bf16, samples and weights are
    each the sum of two bf16 numbers, and three of the four products fit into the same 32 columns
    that one would take.
    Raises InputError where the processor has no bf16 products.
    """

    @torch.inference_mode()
    def __init__(self, model: Any, precision: str = "fp32"):
        config = model.config
        kernels = CpuKernels(precision)
        self.dtype = kernels.dtype
        if self.dtype == torch.bfloat16 and not onednn._is_mkldnn_bf16_supported():
            raise InputError(
                f"this processor has no bf16 arithmetic, which {precision} needs; encode in fp32"
            )
        first = model.feature_extractor.conv_layers[0]
        self.weight = first.conv.weight[:, 0].double()  # (C, K)
        self.bias = torch.zeros(len(self.weight), dtype=torch.double)
        if first.conv.bias is not None:
            self.bias = first.conv.bias.double()
        self.stride = first.conv.stride[0]
        group = config.feat_extract_norm == "group"
        self.group_norm = deepcopy(first.layer_norm) if group else None
        self.norm = None if group else kernels.norm(first.layer_norm)
        self.hubert = HubertBody(model, kernels)
        self.grid = FrameGrid.of_convolutions(16_000, config.conv_kernel, config.conv_stride)

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Fitted:
        """Fold this utterance's group norm into the first convolution. wave: (N,) float32.

        That norm takes away what a constant adds, so that it may as well be taken from the samples:
        else little would be left of quiet speech beside it in bf16.
        """
        weight, bias, offset = self.weight, self.bias, wave.new_zeros(())
        if self.group_norm is not None:
            mean = wave.new_zeros((), dtype=torch.double)
            for part in wave.split(MEANS):
                mean += part.sum(dtype=torch.double)
            offset = (mean / len(wave)).float()
            windows = wave.unfold(0, weight.shape[1], self.stride)
            total = torch.zeros(windows.shape[1], dtype=torch.double)
            squares = torch.outer(total, total)
            for part in windows.split(WINDOWS):  # `moments` of an hour would not fit
                part = part.double() - offset
                total += part.sum(0)
                squares += part.t() @ part
            mean = total / len(windows)
            covariance = squares / len(windows) - torch.outer(mean, mean)
            weight, bias = fold(self.group_norm, weight, mean, covariance)
        weight = weight.float()
        if self.dtype == torch.bfloat16:
            high = weight.bfloat16().float()
            weight = torch.cat([high, high, weight - high], 1)
        return Linear(weight, bias.float(), self.dtype), offset

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: Fitted, last: int) -> Iterator[torch.Tensor]:
        """Yield layers 0 to `last`, (T, D) each. piece: (N,) float32."""
        linear, offset = statistics
        wave = piece - offset
        frames = self.grid.frames(len(piece))
        blocks = []
        for first in range(0, frames, BLOCK):  # of the front end
            start = first * self.grid.hop
            block = wave[start : start + self.grid.samples_for(min(BLOCK, frames - first))]
            if self.dtype == torch.bfloat16:
                halves = split_in_halves(block)
                high, low = (half.unfold(0, self.weight.shape[1], self.stride) for half in halves)
                windows = torch.cat([high, low, high], 1)
            else:
                windows = block.unfold(0, self.weight.shape[1], self.stride).contiguous()
            x = linear.gelu(windows) if self.norm is None else F.gelu(self.norm(linear(windows)))
            blocks.append(self.hubert.convolve(x))
        yield from self.hubert.states(self.hubert.project(torch.cat(blocks)), None, last)
