"""Weights that are packed as int8."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from speechssl.quantisation import SCALE, dequantise, quantise

matrices = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(1, 9)),
    elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
)


@given(matrices)
def test_a_weight_is_off_by_at_most_a_254th_of_its_rows_largest_and_packs_again_to_the_same_bits(
    values,
):
    matrix = torch.from_numpy(values)
    packed = quantise({"w": matrix})
    assert packed["w"].dtype == torch.int8 and packed["w" + SCALE].shape == (len(matrix),)
    largest = matrix.abs().amax(1, keepdim=True)
    error = (dequantise(packed)["w"] - matrix).abs()
    assert (error <= largest * (1 / 254 + 1e-6) + 1e-14).all()
    again = quantise(dequantise(packed))
    assert torch.equal(again["w"], packed["w"])
    assert torch.equal(again["w" + SCALE], packed["w" + SCALE])


def test_kernels_have_a_scale_for_each_output_channel_and_pack_again_to_the_same_bits():
    state = {
        "conv": torch.randn(3, 2, 5) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1),
        "bias": torch.randn(3),
    }
    packed = quantise(state, kernels=True)
    assert packed["conv"].dtype == torch.int8 and packed["conv" + SCALE].shape == (3,)
    back = dequantise(packed)
    largest = state["conv"].abs().amax((1, 2), keepdim=True)
    assert ((back["conv"] - state["conv"]).abs() <= largest * (1 / 254 + 1e-6)).all()
    assert torch.equal(back["bias"], state["bias"])
    again = quantise(back, kernels=True)
    assert all(torch.equal(again[name], value) for name, value in packed.items())
