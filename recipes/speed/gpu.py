"""Batches and training on a GPU beside transformers. python recipes/speed/gpu.py CONFIG EXP; without a GPU it says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from common import Settings, folder, model, row, save, settings
from training import measure

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.batched import BatchedEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.timing import FrameGrid


def timed(run: Callable[[], object], device: str, repeats: int) -> list[float]:
    """Seconds of every repeat, after a first one that compiles."""
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found[1:]


@torch.inference_mode()
def encode(step: Settings, name: str) -> None:
    """name: of the device."""
    shape, device, repeats = step.values["model"], step.values["device"], step.values["repeats"]
    seconds, batch = step.values["seconds"], step.values["batch"]
    waves = list(torch.randn(batch, seconds * SAMPLE_RATE))  # ours comes from the host, as it does when files are read
    theirs, config = model(shape, step.exp).to(device, torch.bfloat16), model(shape, step.exp).config
    grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
    ours = BatchedEngine(load_checkpoint(folder(shape, step.exp)).model, grid, "bf16", device)
    together = torch.stack(waves).to(device, torch.bfloat16)
    times = {
        "transformers bf16": timed(lambda: theirs(together), device, repeats),
        "speechssl bf16": timed(lambda: ours.features(waves, config.num_hidden_layers), device, repeats),
    }
    condition, audio = f"{seconds} s x {batch} on {name}", batch * seconds
    rows = []
    for system, spent in times.items():
        spread = audio / max(spent), audio / min(spent)
        rows.append(row(system, shape, condition, "x_realtime", audio / median(spent), spread, repeats))
    ratio = median(times["transformers bf16"]) / median(times["speechssl bf16"])
    save(step.exp, [*rows, row("speechssl bf16", shape, condition, "ratio_bf16", ratio, None, repeats)])


def main() -> None:
    step = settings("gpu")
    device = step.values["device"]
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("no GPU here: left out")
        return
    name = torch.cuda.get_device_name() if on_gpu else device
    encode(step, name)
    shape, seconds, crops = step.values["training"]
    measure(shape, seconds, crops, step.values["repeats"], step.exp, device, f" on {name}")


if __name__ == "__main__":
    main()
