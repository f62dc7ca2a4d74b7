"""Tests of weights that are packed as int8."""

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
def test_a_weight_is_off_by_at_most_a_254th_of_the_largest_in_its_row(values):
    matrix = torch.from_numpy(values)
    packed = quantise({"w": matrix})
    assert packed["w"].dtype == torch.int8
    largest = matrix.abs().amax(1, keepdim=True)
    error = (dequantise(packed)["w"] - matrix).abs()
    assert (error <= largest * (1 / 254 + 1e-6) + 1e-14).all()


@given(matrices)
def test_a_matrix_is_packed_again_to_the_same_bits(values):
    packed = quantise({"w": torch.from_numpy(values)})
    packed_again = quantise(dequantise(packed))
    assert torch.equal(packed_again["w"], packed["w"])
    assert torch.equal(packed_again["w" + SCALE], packed["w" + SCALE])


def test_kernels_have_a_scale_for_each_output_channel():
    channel_sizes = torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1)
    state = {"conv": torch.randn(3, 2, 5) * channel_sizes, "bias": torch.randn(3)}
    packed = quantise(state, kernels=True)
    unpacked = dequantise(packed)
    largest = state["conv"].abs().amax((1, 2), keepdim=True)
    error = (unpacked["conv"] - state["conv"]).abs()
    assert (error <= largest * (1 / 254 + 1e-6)).all()
    assert torch.equal(unpacked["bias"], state["bias"])
