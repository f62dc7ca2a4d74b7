"""Which weights are trained, in encoders of several families."""

from __future__ import annotations

from typing import Any

import pytest

from speechssl.devices import DEVICES, train_only, trained_parameters
from speechssl.text_side.frozen import Computer, load_puzzle
from speechssl.textlm import load_text_encoder

LAYERS = ("query", "key", ".q.", ".wi", "wqkv", "ffn.lin", "dense")  # in the names of matrices


@pytest.mark.parametrize("family", ["BERT", "DistilBERT", "ModernBERT", "T5"])
def test_devices_train_what_they_say_and_always_what_reads_and_writes(family: str, checkpoint: Any) -> None:
    model = Computer(load_text_encoder(str(checkpoint(family)))[0], load_puzzle("bit-xor"))
    counts = {}
    for device in DEVICES:
        train_only(model.encoder, device)
        learnt = {name for name, weight in model.named_parameters() if weight.requires_grad}
        assert {"read.weight", "read.bias", "write.weight", "write.bias"} <= learnt
        inside = {name for name in learnt if name.startswith("encoder.")}
        if device == "frozen":
            assert any("norm" in name.lower() for name in inside)
            assert not [name for name in inside if any(part in name.lower() for part in LAYERS) and "norm" not in name.lower()]
            assert family == "ModernBERT" or any("position" in name or "relative" in name for name in inside)
        elif device == "biases":
            assert all(name.endswith("bias") for name in inside)
        counts[device] = trained_parameters(model)
        assert (device == "none") == (not inside) or (device == "biases" and family in ("T5", "ModernBERT"))
    assert counts["all"] == sum(weight.numel() for weight in model.parameters())
    assert counts["none"] <= counts["biases"] < counts["all"] and counts["none"] < counts["frozen"] < counts["all"]
