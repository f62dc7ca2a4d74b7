"""In which type of numbers a convolution is computed."""

from __future__ import annotations

import torch


def convolution_dtype(weight: torch.Tensor, dtype: torch.dtype, stride: int = 1) -> torch.dtype:
    """float32 where oneDNN's sums in `dtype` may be wrong, else `dtype`. weight: (C', C / groups, K) of any further axes.

    On a processor with AMX, oneDNN 3.10.2 (that of torch 2.11) computes two kinds of bf16 convolutions wrongly, by as much as the
    result is large and without a warning: of C / groups = 2 to 14 channels, where a kernel's K C / groups numbers are a multiple of
    32 above 32; and of 16 to 30 channels with a stride of 4 or more that divides both K and the frames. Found by trying; with one
    channel, with 16 and small strides, and from 32 on all that were tried are right, and so are all gradients. The published sizes
    (512 channels in the front end, 48 or 64 in each of 16 groups of the positional convolution) stay in bf16.
    tests/known_issues/test_onednn_grouped_bf16.py measures it.
    """
    narrow = 1 < weight.shape[1] < (16 if stride < 4 else 32)
    return torch.float32 if narrow and weight.device.type == "cpu" and dtype == torch.bfloat16 else dtype
