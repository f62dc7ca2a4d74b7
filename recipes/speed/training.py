"""Time steps of pre-training beside plain transformers, turn by turn.

    python recipes/speed/training.py CONFIG EXP

Both sides have the same weights and batch. A step is forward, backward and AdamW (fused), without
dropout; half of the frames are masked, and the loss is computed from the last layer and from the
output of the convolutions. bf16 is autocast, with weights in float32. `share_of_limit` is the share
of the time of a step that its matrix products (forward, and twice as many backward; those of
attention count, as in gpu.py) would take at the rate of a large product in bf16, which is measured
in the same turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import add_rows, count_flops, make_checkpoint, read_settings
from encoders import measure_product_rate
from transformers import AutoModel

from speechssl.audio import SAMPLE_RATE
from speechssl.cli import run_program
from speechssl.encoders.hubert import compute_states

# called with a model, (B, N) samples and (B, T) mask; returns the output of the convolutions
# (B, T, C) and of the last layer (B, T, D)
Forward = Callable[[Any, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
NO_DROPOUT = dict.fromkeys(
    ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout", "layerdrop"),
    0.0,
)


def run_transformers(
    model: Any, samples: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the `Forward` by transformers' modules."""
    features = model.feature_extractor(samples.clone()).transpose(1, 2)
    hidden = model.feature_projection(features)
    hidden = torch.where(mask[..., None], model.masked_spec_embed.to(hidden.dtype), hidden)
    return features, model.encoder(hidden).last_hidden_state


def run_speechssl(
    model: Any, samples: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the `Forward` by speechssl's modules."""
    features, layers = compute_states(model, samples, mask)
    last = layers[-1]
    if model.config.do_stable_layer_norm:
        last = model.encoder.layer_norm(last)
    return features, last


class Step:
    """A contender has its own model and optimiser. Called, it makes a step and returns its
    seconds."""

    def __init__(
        self, forward: Forward, precision: str, path: Path, batch: tuple[torch.Tensor, torch.Tensor]
    ):
        self.forward, self.precision, self.batch = forward, precision, batch
        self.model = AutoModel.from_pretrained(path, dtype=torch.float32, **NO_DROPOUT).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)

    def compute_gradients(self) -> dict[str, torch.Tensor]:
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            features, last = self.forward(self.model, *self.batch)
            # every second feature: the squares of a whole vector after a layer norm sum to a
            # constant, which has no gradient
            loss = last.float()[..., ::2].pow(2).mean() + features.float().pow(2).mean()
        loss.backward()
        return {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def __call__(self) -> float:
        start = time.perf_counter()
        self.compute_gradients()
        self.optimiser.step()
        return time.perf_counter() - start


def check_gradients(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    """Check that both sides compute the same gradient in float32."""
    our_vector = torch.cat([ours[name].flatten() for name in theirs])
    their_vector = torch.cat([theirs[name].flatten() for name in theirs])
    error = float((our_vector - their_vector).norm() / their_vector.norm())
    print(f"relative error of the whole gradient in fp32: {error:.1e}")
    assert error < 1e-4, "the gradients are not those of transformers"


def measure(shape: str, seconds: float, crops: int, repeats: int, exp: Path) -> None:
    """Time all four contenders in turn, and add the rows of one workload."""
    torch.manual_seed(1)
    # 80 = 400 - 320, the receptive field less the hop: a whole number of frames
    samples = torch.randn(crops, int(seconds * SAMPLE_RATE) + 80)
    model: Any = AutoModel.from_pretrained(make_checkpoint(shape, exp))
    frames = int(model._get_feat_extract_output_lengths(samples.shape[1]))
    mask = torch.arange(frames).expand(crops, -1) % 20 < 10  # ten frames, and ten are seen
    forwards = {"transformers": run_transformers, "speechssl": run_speechssl}
    steps = {}
    for precision in ("fp32", "bf16"):
        for system, forward in forwards.items():
            path = make_checkpoint(shape, exp)
            steps[system, precision] = Step(forward, precision, path, (samples, mask))
    check_gradients(
        ours=steps["speechssl", "fp32"].compute_gradients(),
        theirs=steps["transformers", "fp32"].compute_gradients(),
    )
    for step in steps.values():  # warms up
        step()
    times: dict[tuple[str, str], list[float]] = {name: [] for name in steps}
    rates: list[float] = []  # GFLOP/s of products alone
    for _ in range(repeats):
        rates.append(measure_product_rate(time.perf_counter))
        for name, step in steps.items():
            times[name].append(step())
    # seconds that the products of a step alone would take in bf16
    limit = (
        3
        * crops
        * count_flops(model.config, samples.shape[1], attention=True)
        / 1e9
        / median(rates)
    )
    condition = f"training on {crops} crops of {seconds:g} s"
    for (system, precision), step_times in times.items():
        step_seconds = median(step_times)
        values = {"steps_per_second": 1 / step_seconds}
        if precision == "bf16":
            values["share_of_limit"] = 100 * limit / step_seconds
        if system == "speechssl":
            for other in ("fp32", "bf16"):
                values[f"steps_over_{other}"] = median(times["transformers", other]) / step_seconds
        add_rows(exp, f"{system} {precision}", shape, condition, values, repeats)


def main(config: Path, exp: Path) -> None:
    settings = read_settings("training", config, exp)
    for shape, workloads in settings.values["models"].items():
        for seconds, crops in workloads:
            measure(shape, seconds, crops, settings.values["repeats"], settings.exp)


if __name__ == "__main__":
    run_program(main)
