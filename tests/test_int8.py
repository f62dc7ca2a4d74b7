"""Matrices as int8: what is lost, and that nothing more is."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import save_file

from speechssl.int8 import SCALE, dequantise, load_quantised, quantise

matrices = arrays(
    np.float32, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
)


@given(matrices)
def test_a_weight_is_off_by_at_most_a_254th_of_its_rows_largest_and_packs_again_to_the_same_bits(values):
    matrix = torch.from_numpy(values)
    packed = quantise({"w": matrix})
    assert packed["w"].dtype == torch.int8 and packed["w" + SCALE].shape == (len(matrix),)
    largest = matrix.abs().amax(1, keepdim=True)
    error = (dequantise(packed)["w"] - matrix).abs()
    assert (error <= largest * (1 / 254 + 1e-6) + 1e-14).all()
    again = quantise(dequantise(packed))
    assert torch.equal(again["w"], packed["w"]) and torch.equal(again["w" + SCALE], packed["w" + SCALE])


def test_rows_have_scales_of_their_own():
    matrix = torch.tensor([[1e-4, -5e-5], [1e4, -3.0], [0.0, 0.0]])
    back = dequantise(quantise({"w": matrix}))["w"]
    assert back[0, 0] == pytest.approx(1e-4, rel=1e-5) and back[1, 0] == pytest.approx(1e4, rel=1e-5) and (back[2] == 0).all()


def test_what_is_no_matrix_is_kept_to_the_bit():
    state = {"bias": torch.randn(7), "conv": torch.randn(3, 2, 5), "ids": torch.arange(6).reshape(2, 3), "one": torch.tensor(0.1)}
    packed = quantise(state)
    assert set(packed) == set(state)
    for name, value in dequantise(packed).items():
        assert torch.equal(value, state[name].float())


def test_kernels_have_a_scale_for_each_output_channel_and_pack_again_to_the_same_bits():
    state = {"conv": torch.randn(3, 2, 5) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1), "bias": torch.randn(3)}
    packed = quantise(state, kernels=True)
    assert packed["conv"].dtype == torch.int8 and packed["conv" + SCALE].shape == (3,)
    back = dequantise(packed)
    largest = state["conv"].abs().amax((1, 2), keepdim=True)
    assert ((back["conv"] - state["conv"]).abs() <= largest * (1 / 254 + 1e-6)).all() and torch.equal(back["bias"], state["bias"])
    again = quantise(back, kernels=True)
    assert all(torch.equal(again[name], value) for name, value in packed.items())


def test_a_file_says_itself_whether_it_is_quantised(tmp_path):
    state = {"w": torch.randn(3, 4), "b": torch.randn(3)}
    save_file(state, tmp_path / "plain.safetensors")
    save_file(quantise(state), tmp_path / "packed.safetensors")
    assert load_quantised(tmp_path / "plain.safetensors") is None
    back = load_quantised(tmp_path / "packed.safetensors")
    assert back is not None and torch.equal(back["w"], dequantise(quantise(state))["w"]) and torch.equal(back["b"], state["b"])
