"""HuBERT (arXiv 2106.07447) and wav2vec 2.0 (arXiv 2006.11477) have one forward pass, for inference
(`TorchEngine`) and training (`compute_states`), on CPUs and GPUs.

    samples
    -> convolutions, each with GELU (a group norm after the first, or a layer norm after each)
    -> layer norm, projection
    -> positions: the GELU of a grouped convolution over time is added
    -> transformer layers

Layer 0 is the input of the first transformer layer, layer n the output of layer n. Models with
layer norms before attention and feed-forward (pre-norm, HuBERT large) have another norm after the
last layer, which is left to the caller. The functions here work on transformers' modules, or on
those of `make_modules`, in any type: weights are cast to that of the input where they are used.

Letters: B utterances, N samples, T frames, C channels, K kernel size, D width, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from speechssl.errors import InputError
from speechssl.timing import FrameGrid

WINDOWS = 1 << 18  # windows of samples whose moments are computed at a time
BATCH_SECONDS = 320.0  # of audio that a GPU computes at a time
STEP = 64  # frames, 1.3 s: the length of a batch is rounded up to a multiple of this
BLOCK = 16  # frames that one product of the positional convolution gives on a GPU


class Statistics(NamedTuple):
    """The output of the first convolution is multiplied by `scale`, and `shift` is added, (B, C)
    each: the effect of the group norm on this utterance, or 1 and 0 without a group norm."""

    scale: torch.Tensor
    shift: torch.Tensor


def has_our_forward_pass(config: Any) -> bool:
    """Return whether this file has the forward pass of an architecture: HuBERT or wav2vec 2.0 with
    GELU, without batch norm and transformers' adapters."""
    return (
        config.model_type in ("hubert", "wav2vec2")
        and config.feat_extract_activation == config.hidden_act == "gelu"
        and not getattr(config, "conv_pos_batch_norm", False)
        and not getattr(config, "add_adapter", False)
        and getattr(config, "adapter_attn_dim", None) is None
    )


def check_trainable(model: Any, name: str) -> None:
    """Raise InputError for an architecture that cannot be trained here. Call it before any work."""
    if not has_our_forward_pass(model.config):
        raise InputError(
            f"{name} is a {model.config.model_type} model, not a plain HuBERT or wav2vec 2.0 "
            "(GELU, no adapters, no batch norm), and only these can be trained; start from another"
        )


def count_frames(config: Any, lengths: torch.Tensor) -> torch.Tensor:
    """Return the numbers of frames (B,) that the convolutions make of (B,) samples."""
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return lengths


def mask_lengths(lengths: torch.Tensor, size: int) -> torch.Tensor:
    """Return a mask of the positions before the end of each row: (B,) lengths -> (B, size) bool."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def compute_states(
    model: Any,
    samples: torch.Tensor,
    mask: torch.Tensor | None = None,
    last: int | None = None,
    lengths: torch.Tensor | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the output of the convolutions before its layer norm, (B, T, C), and layers 0 to
    `last`, (B, T, D) each, with dropout and layer drop if the model is in training mode.

    samples: (B, N) float32, normalised. mask: (B, T) bool, frames to replace by the model's mask
    vector. last: None for all layers. lengths: (B,) samples of each utterance, at least one
    receptive field; None: there is no padding. The samples after them are padding, on which none of
    the utterance's frames depends (`count_frames` gives their number).
    It computes in autocast's type where autocast is on. model: one that `check_trainable` accepts.
    """
    kind = samples.device.type
    dtype = next(model.parameters()).dtype
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    first = model.feature_extractor.conv_layers[0]
    with torch.autocast(kind, enabled=False):
        statistics = measure_group_norm(first, samples, lengths)
        features = convolve_samples(model, samples, statistics, dtype)
        frames = None if lengths is None else count_frames(model.config, lengths)
        return features, list(transform(model, features, frames, mask, last))


def measure_group_norm(
    layer: Any, samples: torch.Tensor, lengths: torch.Tensor | None = None
) -> Statistics:
    """Return the scale and shift of the group norm after the first convolution, for every
    utterance.

    layer: the first of the front end; samples: (B, N); lengths: (B,) samples of each utterance,
    None: all.
    Mean and variance of a channel with weights w are w.m and w'Cw, where m (K,) and C (K, K) are
    mean and covariance of the windows of samples. So a whole recording need not be convolved, nor
    held in memory. They are computed in float64, which is precise for quiet speech with an offset.
    The bias of the convolution is part of the mean, which the norm subtracts.
    """
    weight, bias = layer.conv.weight[:, 0].double(), layer.conv.bias  # (C, K)
    if not isinstance(getattr(layer, "layer_norm", None), nn.GroupNorm):
        ones = torch.ones(len(samples), len(weight), device=samples.device)
        return Statistics(ones, ones * (0 if bias is None else bias))
    windows = samples.unfold(1, weight.shape[1], layer.conv.stride[0])  # (B, T, K)
    count = torch.full((len(samples),), windows.shape[1], device=samples.device)
    if lengths is not None:
        count = (lengths - weight.shape[1]) // layer.conv.stride[0] + 1
    is_speech = mask_lengths(count, windows.shape[1])  # False for windows of padding
    total: Any = 0
    squares: Any = 0
    blocks = zip(windows.split(WINDOWS, 1), is_speech.split(WINDOWS, 1), strict=True)
    for part, is_speech_of_part in blocks:
        part = part.double() * is_speech_of_part[..., None]
        total = total + part.sum(1)
        squares = squares + part.transpose(1, 2) @ part
    mean = total / count[:, None]
    covariance = squares / count[:, None, None] - mean[:, :, None] * mean[:, None]
    variance = ((weight @ covariance) * weight).sum(-1)
    scale = layer.layer_norm.weight / torch.sqrt(variance + layer.layer_norm.eps)
    shift = layer.layer_norm.bias - scale * (mean @ weight.T)
    if bias is not None:
        shift = shift + 0 * bias  # so that its gradient is 0, and not missing
    return Statistics(scale.float(), shift.float())


def convolve_samples(
    model: Any, samples: torch.Tensor, statistics: Statistics, dtype: torch.dtype
) -> torch.Tensor:
    """Apply the front end, (B, N) float32 -> (B, T, C). The first convolution is computed in
    float32, because samples may be small in comparison with their offset."""
    first, *others = model.feature_extractor.conv_layers
    weight = statistics.scale[..., None] * first.conv.weight[:, 0].float()
    windows = samples.unfold(1, weight.shape[2], first.conv.stride[0])
    x = torch.baddbmm(statistics.shift[:, None], windows, weight.transpose(1, 2)).to(dtype)
    x = F.gelu(apply_layer_norm(first, x))
    for layer in others:
        x = F.gelu(apply_layer_norm(layer, convolve(layer.conv, x)))
    return x


def apply_layer_norm(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply the layer norm after a convolution, if there is one; a group norm is part of the
    `Statistics`."""
    norm = getattr(layer, "layer_norm", None)
    return layer_norm(norm, x) if isinstance(norm, nn.LayerNorm) else x


def convolve(conv: Any, x: torch.Tensor) -> torch.Tensor:
    """Convolve over time, (B, T, C) -> (B, T', C'). The sequence is treated as an image of one row
    in the memory format "channels last", so that nothing is copied."""
    dtype = choose_dtype(conv.weight, x.dtype, conv.stride[0])
    bias = None if conv.bias is None else conv.bias.to(dtype)
    image = x.to(dtype).transpose(1, 2)[:, :, None]
    weight = conv.weight.to(dtype)[:, :, None]
    settings = (1, conv.stride[0]), (0, conv.padding[0]), 1, conv.groups
    return F.conv2d(image, weight, bias, *settings)[:, :, 0].transpose(1, 2).to(x.dtype)


def choose_dtype(weight: torch.Tensor, dtype: torch.dtype, stride: int = 1) -> torch.dtype:
    """Return float32 where oneDNN's sums in `dtype` may be wrong, else `dtype`. weight: (C', C /
    groups, K).

    On a processor with AMX, oneDNN 3.10.2 (in torch 2.11) computes some bf16 convolutions of fewer
    than 32 channels a group wrongly (at a stride below 4 of fewer than 16; never of 1), with errors
    as large as the result and without a warning. The published sizes (512 channels in the front
    end, 48 or 64 in each of 16 groups of the positional convolution) stay in bf16.
    tests/known_issues/test_onednn_grouped_bf16.py measures the errors.
    """
    narrow = 1 < weight.shape[1] < (16 if stride < 4 else 32)
    on_cpu = weight.device.type == "cpu"
    return torch.float32 if narrow and on_cpu and dtype == torch.bfloat16 else dtype


def convolve_positions(conv: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply the positional convolution, (B, T, D) -> (B, T, D)."""
    if x.is_cpu:
        return convolve(conv, x)[:, : x.shape[1]]  # an even kernel gives one frame more
    return convolve_blockwise(x, conv.weight.to(x.dtype), conv.bias.to(x.dtype), conv.groups)


def convolve_blockwise(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int
) -> torch.Tensor:
    """Convolve over time with padding that keeps T, BLOCK frames in one product.

    A GPU has fast kernels for large products, but none for convolutions of 48 channels a group and
    a kernel of 128 frames. The zeros in the matrices are an eighth more arithmetic.
    x: (B, T, C); weight: (C', C / G, K) of G groups. Returns (B, T, C').
    """
    frames, size = x.shape[1], weight.shape[2]
    # for frame i of a block the kernel is shifted by i: (G, C' / G, C / G, K + 15, 16)
    padded = F.pad(weight.unflatten(0, (groups, -1)), (BLOCK - 1, BLOCK - 1))
    shifted = padded.unfold(3, BLOCK, 1).flip(4)
    # (G, (K + 15) C / G, 16 C' / G)
    matrices = shifted.permute(0, 3, 2, 4, 1).flatten(3).flatten(1, 2)
    blocks = -(-frames // BLOCK)
    x = F.pad(x, (0, 0, size // 2, blocks * BLOCK + size - 1 - size // 2 - frames))
    # (B, blocks, G, C / G, K + 15)
    windows = x.unflatten(2, (groups, -1)).unfold(1, BLOCK + size - 1, BLOCK)
    # (G, B blocks, 16 C' / G)
    y = torch.bmm(windows.permute(2, 0, 1, 4, 3).flatten(3).flatten(1, 2), matrices)
    y = y.unflatten(1, (len(x), -1)).unflatten(3, (BLOCK, -1)).permute(1, 2, 3, 0, 4)
    return y.flatten(3).flatten(1, 2)[:, :frames] + bias


def transform(
    model: Any,
    features: torch.Tensor,
    frames: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    last: int | None = None,
) -> Iterator[torch.Tensor]:
    """Yield layers 0 to `last`, (B, T, D) each, for the output of the front end (B, T, C).

    frames: (B,) of each utterance, None: all. mask: (B, T) frames to replace by the mask vector.
    """
    encoder, projection = model.encoder, model.feature_projection
    pre_norm = model.config.do_stable_layer_norm
    x = features
    if hasattr(projection, "layer_norm"):
        x = layer_norm(projection.layer_norm, x)
    x = projection.dropout(linear(projection.projection, x))
    attended = None
    if frames is not None:
        is_speech = mask_lengths(frames, x.shape[1])
        x = x.masked_fill(~is_speech[..., None], 0)  # as the positional convolution itself pads
        attended = is_speech[:, None, None]
    if mask is not None:
        x = torch.where(mask[..., None], model.masked_spec_embed.to(x.dtype), x)
    x = x + F.gelu(convolve_positions(encoder.pos_conv_embed.conv, x))
    x = encoder.dropout(x if pre_norm else layer_norm(encoder.layer_norm, x))
    yield x
    layer_drop = model.config.layerdrop if encoder.training else 0.0
    for layer in encoder.layers[:last]:
        if not (layer_drop > 0 and torch.rand([]) < layer_drop):
            x = apply_layer(layer, x, attended, pre_norm)
        yield x


def apply_layer(
    layer: Any, x: torch.Tensor, attended: torch.Tensor | None, pre_norm: bool
) -> torch.Tensor:
    """Apply a layer, (B, T, D) -> (B, T, D). attended: (B, 1, 1, T) bool, the frames to attend to;
    None: all."""
    before = layer_norm(layer.layer_norm, x) if pre_norm else x
    x = x + layer.dropout(attend(layer.attention, before, attended))
    if not pre_norm:
        x = layer_norm(layer.layer_norm, x)
    feed = layer.feed_forward
    before = layer_norm(layer.final_layer_norm, x) if pre_norm else x
    inside = feed.intermediate_dropout(F.gelu(linear(feed.intermediate_dense, before)))
    x = x + feed.output_dropout(linear(feed.output_dense, inside))
    return x if pre_norm else layer_norm(layer.final_layer_norm, x)


def attend(module: Any, x: torch.Tensor, attended: torch.Tensor | None) -> torch.Tensor:
    """Apply self-attention with all heads, (B, T, D) -> (B, T, D)."""
    q, k, v = (
        linear(projection, x).unflatten(2, (module.num_heads, -1)).transpose(1, 2)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    dropout = module.dropout if module.training else 0.0
    values = F.scaled_dot_product_attention(q, k, v, attended, dropout)
    return linear(module.out_proj, values.transpose(1, 2).flatten(2))


def linear(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply a linear map with the modules that fine-tuning has added: LoRA's update of its matrix
    (by peft), or an adapter behind it (`finetuning.Bottleneck`)."""
    weight = layer.weight
    if hasattr(layer, "lora_A"):
        weight = weight + layer.get_delta_weight("default")
    x = F.linear(x, weight.to(x.dtype), layer.bias.to(x.dtype))
    if hasattr(layer, "adapter"):
        x = x + linear(layer.adapter.up, F.gelu(linear(layer.adapter.down, x)))
    return x


def layer_norm(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply a layer norm over the last axis."""
    return F.layer_norm(
        x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps
    )


class UninitialisedLinear(nn.Linear):
    """The weights of this linear map are not initialised, which would take a while, because they
    are read from a file."""

    def reset_parameters(self) -> None: ...


def make_modules(config: Any) -> nn.Module:
    """Make the modules of transformers' HubertModel or Wav2Vec2Model for inference, under the same
    names and with weights to be loaded. This avoids the import of transformers, which takes
    seconds. config: that `has_our_forward_pass` accepts."""
    width, size = config.hidden_size, config.num_conv_pos_embeddings
    groups = config.num_conv_pos_embedding_groups
    positions = nn.Conv1d(width, width, size, padding=size // 2, groups=groups)
    projection = _make_module(
        projection=UninitialisedLinear(config.conv_dim[-1], width), dropout=nn.Identity()
    )
    if getattr(config, "feat_proj_layer_norm", True):
        projection.layer_norm = nn.LayerNorm(config.conv_dim[-1], config.layer_norm_eps)
    convolutions = [_make_convolution(config, n) for n in range(len(config.conv_dim))]
    layers = [_make_layer(config) for _ in range(config.num_hidden_layers)]
    return _make_module(
        config=config,
        masked_spec_embed=nn.Parameter(torch.empty(width)),
        feature_extractor=_make_module(conv_layers=nn.ModuleList(convolutions)),
        feature_projection=projection,
        encoder=_make_module(
            pos_conv_embed=_make_module(
                conv=nn.utils.parametrizations.weight_norm(positions, dim=2)
            ),
            layer_norm=nn.LayerNorm(width, config.layer_norm_eps),
            dropout=nn.Identity(),
            layers=nn.ModuleList(layers),
        ),
    )


def _make_module(**children: Any) -> nn.Module:
    """Make a module that has these attributes."""
    module = nn.Module()
    for name, child in children.items():
        setattr(module, name, child)
    return module


def _make_convolution(config: Any, n: int) -> nn.Module:
    """Make the n-th convolution of the front end, and the norm after it."""
    inputs = config.conv_dim[n - 1] if n else 1
    width, kernel, stride = config.conv_dim[n], config.conv_kernel[n], config.conv_stride[n]
    layer = _make_module(conv=nn.Conv1d(inputs, width, kernel, stride, bias=config.conv_bias))
    if config.feat_extract_norm == "layer":
        layer.layer_norm = nn.LayerNorm(width)
    elif n == 0:
        layer.layer_norm = nn.GroupNorm(width, width)
    return layer


def _make_layer(config: Any) -> nn.Module:
    """Make a transformer layer."""
    width, inside = config.hidden_size, config.intermediate_size
    projections = {f"{x}_proj": UninitialisedLinear(width, width) for x in ("k", "v", "q", "out")}
    return _make_module(
        attention=_make_module(num_heads=config.num_attention_heads, **projections),
        dropout=nn.Identity(),
        feed_forward=_make_module(
            intermediate_dense=UninitialisedLinear(width, inside),
            intermediate_dropout=nn.Identity(),
            output_dense=UninitialisedLinear(inside, width),
            output_dropout=nn.Identity(),
        ),
        layer_norm=nn.LayerNorm(width, config.layer_norm_eps),
        final_layer_norm=nn.LayerNorm(width, config.layer_norm_eps),
    )


# ---- inference


def find_dtype(precision: str) -> torch.dtype:
    """Return the type of weights for fp32 or bf16."""
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]


class TorchEngine:
    """This engine runs HuBERT or wav2vec 2.0 on a CPU or a GPU. It changes the model, which must
    not be used elsewhere. precision: fp32 or bf16."""

    def __init__(self, model: Any, precision: str = "fp32", device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.backend = self.device.type
        self.dtype = find_dtype(precision)
        if self.backend == "cuda" and precision == "fp32":
            torch.backends.cudnn.allow_tf32 = False  # TF32 rounds to 10 bits
        first = deepcopy(model.feature_extractor.conv_layers[0])
        model.encoder.pos_conv_embed.conv = remove_weight_norm(model.encoder.pos_conv_embed.conv)
        self.model = model.to(self.device, self.dtype)
        self.model.feature_extractor.conv_layers[0] = first.to(self.device)  # stays in float32
        self.first = first

    @torch.inference_mode()
    def compute_statistics(self, wave: torch.Tensor) -> Statistics:
        """Return the scale and shift of the group norm for this utterance. wave: (N,) float32."""
        return measure_group_norm(self.first, wave[None].to(self.device))

    @torch.inference_mode()
    def compute_layers(
        self, piece: torch.Tensor, statistics: Statistics, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers of one piece, (T, D) each. piece: (N,) float32."""
        samples = piece[None].to(self.device)
        x = convolve_samples(self.model, samples, statistics, self.dtype)
        states = enumerate(transform(self.model, x, last=max(layers)))
        return [state[0].cpu() for layer, state in states if layer in layers]

    @torch.inference_mode()
    def compute_features(
        self, waves: Sequence[torch.Tensor], layer: int, grid: FrameGrid
    ) -> list[torch.Tensor]:
        """Return one layer of several utterances, (T_i, D) each, on the device and in their order.
        waves: (N_i,) float32 each.

        Utterances are padded to a few fixed lengths, and batches to a fixed size, so that the
        kernel for an utterance depends on its own length alone, and not on the rest of its batch.
        """
        by_length: dict[int, list[int]] = {}  # frames, rounded up -> indices of utterances
        for index, wave in enumerate(waves):
            frames = -(-grid.count_frames(len(wave)) // STEP) * STEP
            by_length.setdefault(frames, []).append(index)
        features: list[torch.Tensor] = [torch.empty(0)] * len(waves)
        for frames, utterances in sorted(by_length.items()):
            size = max(int(BATCH_SECONDS * grid.frame_rate) // frames, 1)
            width = grid.count_samples(frames) + grid.hop - 1
            for start in range(0, len(utterances), size):
                indices = utterances[start : start + size]
                # pinned, so that the next batch is filled while the GPU still computes this one
                pinned = self.backend == "cuda"
                batch = torch.zeros(size, width, pin_memory=pinned)
                lengths = torch.full((size,), grid.receptive, pin_memory=pinned)
                for row, index in enumerate(indices):
                    length = len(waves[index])
                    lengths[row] = length
                    batch[row, :length] = waves[index]
                x = self._compute_layer(batch, lengths, layer)
                for row, index in enumerate(indices):
                    features[index] = x[row, : grid.count_frames(len(waves[index]))]
        return features

    def _compute_layer(
        self, batch: torch.Tensor, lengths: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Return one layer, (B, T, D), for samples (B, N). lengths: (B,) samples before the
        padding."""
        batch = batch.to(self.device, non_blocking=True)
        lengths = lengths.to(self.device, non_blocking=True)
        statistics = measure_group_norm(self.first, batch, lengths)
        x = convolve_samples(self.model, batch, statistics, self.dtype)
        frames = count_frames(self.model.config, lengths)
        for state in transform(self.model, x, frames, last=layer):
            x = state
        return x


def remove_weight_norm(conv: Any) -> nn.Conv1d:
    """Copy a convolution without its weight norm, whose weights are computed once."""
    plain = nn.Conv1d(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size[0],
        padding=conv.padding[0],
        groups=conv.groups,
    )
    plain.requires_grad_(False)
    plain.weight.copy_(conv.weight)
    plain.bias.copy_(conv.bias)  # type: ignore[union-attr]
    return plain
