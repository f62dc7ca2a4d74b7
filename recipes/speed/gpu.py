"""A GPU: extraction, pre-training and DUAL on long passages beside transformers on the same card.

    python recipes/speed/gpu.py CONFIG EXP [--limit SECONDS] [--parts PART ...]

Without a GPU it says so. What fails prints its traceback, the rest goes on, and the exit code is 1;
what would begin after the limit is left out.

Extraction begins with utterances in the memory of the host, which transformers gets as one pinned
batch and ours one by one. A step of pre-training is that of HuBERT as it is published (dropout, 8 %
of the frames begin a mask, 500 clusters), without layer drop: forward, backward and AdamW (fused),
in bf16 autocast. FLOPs of a forward pass are those of the products, 2 for a multiply-add:

    sum over convolutions of 2 T' K C C' + projection 2 T C D + positions 2 T K D² / 16 + layers (8
    T D² + 4 T D I + 4 T² D)

(letters: T frames, K kernel, C channels, D width, I inner width), and those of a step are three
times as many.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml
from common import Settings, flops, folder, row, save
from reading import PUBLISHED, padded, sequences
from reading import Step as Reading
from training import plain
from transformers import AutoModel

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.batched import BatchedEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.pretrain.model import HubertPretraining
from speechssl.pretrain.options import Hubert
from speechssl.pretrain.presets import apply_size
from speechssl.timing import FrameGrid

DATASHEET = 989.0  # TFLOP/s in bf16 of an H100 SXM, without sparsity
# of audio in an update of HuBERT base (arXiv 2106.07447, section IV-B)
UPDATE_HOURS = 32 * 87.5 / 3600
UPDATES = {"1": 250_000, "2": 400_000}  # of its iterations
DROPOUT = {
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.0,
    "feat_proj_dropout": 0.1,
    "layerdrop": 0.0,
}
# its second iteration
BASE = apply_size(Hubert(source=Path(), out=Path(), size="base", teacher="first"))
PARTS = ("rate", "extraction", "pretraining", "dual")


class Bench:
    """Where rows go, the clock, and what was measured: seconds of every repeat."""

    def __init__(self, step: Settings, limit: float) -> None:
        self.step, self.values, self.limit, self.begun = (
            step,
            step.values,
            limit,
            time.perf_counter(),
        )
        self.device = torch.device(step.values["device"])
        self.name = torch.cuda.get_device_name() if self.device.type == "cuda" else str(self.device)
        self.rate: float | None = None  # TFLOP/s of a large product
        self.failed: list[str] = []

    def attempt(self, what: str, run: Callable[[], Any]) -> Any:
        """What `run` gives; None where it fails or the time is over."""
        passed = time.perf_counter() - self.begun
        if passed > self.limit:
            print(f"left out, for the time is over: {what}", flush=True)
            return None
        try:
            found = run()
            print(f"{what}: {time.perf_counter() - self.begun - passed:.1f} s in all", flush=True)
            return found
        except Exception:
            print(f"FAILED: {what}", flush=True)
            traceback.print_exc()
            self.failed.append(what)
            return None
        finally:
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def timed(self, run: Callable[[], object], first: int = 2) -> list[float]:
        """Seconds of every repeat, after some that compile and fill caches. On a GPU: the peak of
        memory is printed."""
        found = []
        for n in range(self.values["repeats"] + first):
            if n == first and self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            found.append(time.perf_counter() - start)
        peak = (
            f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GB"
            if self.device.type == "cuda"
            else ""
        )
        print(f"  first {found[0]:.2f} s, median {median(found[first:]):.4f} s{peak}", flush=True)
        return found[first:]

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def row(
        self,
        system: str,
        condition: str,
        metric: str,
        value: float,
        spread: tuple[float, float] | None = None,
    ) -> Any:
        shape = self.values["model"]
        return row(
            system,
            shape,
            f"{condition} on {self.name}",
            metric,
            value,
            spread,
            self.values["repeats"],
        )


def rate(bench: Bench) -> None:
    """The rate of one large product, which shares are of."""
    size = bench.values["matrix"]
    a, b = (torch.randn(size, size, device=bench.device, dtype=torch.bfloat16) for _ in range(2))
    times = bench.timed(lambda: [a @ b for _ in range(10)])
    bench.rate = 10 * 2 * size**3 / median(times) / 1e12
    save(bench.step.exp, [bench.row("torch", f"bf16 product of {size}", "tflops", bench.rate)])


# ---- extraction


@torch.inference_mode()
def theirs(bench: Bench, waves: list[torch.Tensor], attention: str, compiled: bool) -> list[float]:
    path = folder(bench.values["model"], bench.step.exp)
    model: Any = (
        AutoModel.from_pretrained(path, dtype=torch.bfloat16, attn_implementation=attention)
        .to(bench.device)
        .eval()
    )
    run = torch.compile(model) if compiled else model
    together = torch.stack(waves)
    together = together.pin_memory() if bench.device.type == "cuda" else together
    size = bench.values["at-once"] or len(waves)
    return bench.timed(
        lambda: [
            run(some.to(bench.device, torch.bfloat16, non_blocking=True)).last_hidden_state
            for some in together.split(size)
        ]
    )


@torch.inference_mode()
def ours(bench: Bench, waves: list[torch.Tensor]) -> list[float]:
    model = load_checkpoint(folder(bench.values["model"], bench.step.exp)).model
    grid = FrameGrid.of_convolutions(
        SAMPLE_RATE, model.config.conv_kernel, model.config.conv_stride
    )
    engine = BatchedEngine(model, grid, "bf16", str(bench.device))
    last = model.config.num_hidden_layers
    if bench.values.get("profile"):
        return profiled(bench, lambda: engine.features(waves, last))
    return bench.timed(lambda: engine.features(waves, last))


def profiled(bench: Bench, run: Callable[[], object]) -> list[float]:
    """The times, and a table of kernels."""
    times = bench.timed(run)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if bench.device.type == "cuda" else []
    with torch.profiler.profile(activities=kinds) as profile:
        run()
        bench.wait()
    by = "self_cuda_time_total" if bench.device.type == "cuda" else "self_cpu_time_total"
    print(
        profile.key_averages().table(sort_by=by, row_limit=18, max_name_column_width=70), flush=True
    )
    return times


def extraction(bench: Bench) -> None:
    seconds, batch = bench.values["seconds"], bench.values["batch"]
    waves = list(torch.randn(batch, seconds * SAMPLE_RATE))
    contenders: dict[str, Callable[[], list[float]]] = {
        "transformers bf16, eager attention": partial(theirs, bench, waves, "eager", False),
        "transformers bf16, SDPA": partial(theirs, bench, waves, "sdpa", False),
        "speechssl bf16": partial(ours, bench, waves),
    }
    if bench.values["compiled"]:
        contenders["transformers bf16, SDPA, compiled"] = partial(
            theirs, bench, waves, "sdpa", True
        )
    times = {name: found for name, run in contenders.items() if (found := bench.attempt(name, run))}
    condition, audio = f"{seconds} s x {batch}", batch * seconds
    config = AutoModel.from_pretrained(folder(bench.values["model"], bench.step.exp)).config
    computed = batch * flops(config, seconds * SAMPLE_RATE, True)
    for name, spent in times.items():
        spread = audio / max(spent), audio / min(spent)
        rows = [bench.row(name, condition, "x_realtime", audio / median(spent), spread)]
        rows.append(bench.row(name, condition, "tflops", computed / median(spent) / 1e12))
        for other in times:
            if name.startswith("speechssl") and other.startswith("transformers"):
                rows.append(
                    bench.row(
                        name, condition, f"over {other}", median(times[other]) / median(spent)
                    )
                )
        save(bench.step.exp, rows)


# ---- pre-training


class Plain(HubertPretraining):
    """The same objective on transformers' modules."""

    def forward(
        self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, **_: torch.Tensor
    ) -> Any:
        features, last = plain(self.encoder, samples, mask)
        found = self.predict(last, labels, mask)
        penalty = self.convolutions.feature_penalty * features.float().pow(2).mean()
        return found | {"loss": found["loss"] + penalty}


def steps(
    bench: Bench, kind: type[HubertPretraining], path: Path, batch: dict[str, torch.Tensor]
) -> list[float]:
    torch.manual_seed(0)
    encoder: Any = AutoModel.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa", **DROPOUT
    )
    model = kind(encoder, BASE.targets.clusters, BASE.prediction, BASE.convolutions)
    model = model.to(bench.device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(bench.device.type, torch.bfloat16):
            loss = model(**batch)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()

    return (
        profiled(bench, step)
        if bench.values.get("profile") and kind is HubertPretraining
        else bench.timed(step)
    )


def pretraining(bench: Bench) -> None:
    seconds, crops = bench.values["training"]
    path, samples = folder(bench.values["model"], bench.step.exp), int(seconds * SAMPLE_RATE)
    model: Any = AutoModel.from_pretrained(path)
    frames = int(model._get_feat_extract_output_lengths(samples))
    generator = torch.Generator().manual_seed(0)
    begins = torch.rand(crops, frames, generator=generator) < 0.08
    batch = {
        "samples": torch.randn(crops, samples, generator=generator),
        "labels": torch.randint(0, BASE.targets.clusters, (crops, frames), generator=generator),
        # ten frames from each beginning
        "mask": torch.nn.functional.pad(begins, (9, 0)).unfold(1, 10, 1).any(2),
    }
    batch = {name: value.to(bench.device) for name, value in batch.items()}
    kinds = {"speechssl bf16": HubertPretraining, "transformers bf16, SDPA": Plain}
    times = {}
    for name, kind in kinds.items():
        if found := bench.attempt(
            f"pre-training, {name}", partial(steps, bench, kind, path, batch)
        ):
            times[name] = found
    computed, condition = (
        3 * crops * flops(model.config, samples, True),
        (f"pre-training on {crops} crops of {seconds:g} s"),
    )
    for name, spent in times.items():
        took = median(spent)
        reached = computed / took / 1e12
        rows = [
            bench.row(name, condition, "seconds_a_step", took, (min(spent), max(spent))),
            bench.row(name, condition, "tflops", reached),
            bench.row(name, condition, "share_of_datasheet", 100 * reached / DATASHEET),
        ]
        if bench.rate:
            rows.append(bench.row(name, condition, "share_of_limit", 100 * reached / bench.rate))
        for iteration, updates in UPDATES.items():  # of HuBERT base, where this is its size
            hours = updates * UPDATE_HOURS * took / (crops * seconds)
            rows.append(bench.row(name, condition, f"hours_of_iteration_{iteration}", hours))
        if name != "transformers bf16, SDPA" and "transformers bf16, SDPA" in times:
            rows.append(
                bench.row(
                    name,
                    condition,
                    "steps_over_bf16",
                    median(times["transformers bf16, SDPA"]) / took,
                )
            )
        save(bench.step.exp, rows)


# ---- DUAL on long passages


def reading(bench: Bench, encoder: str, batches: list[dict[str, torch.Tensor]]) -> list[float]:
    step = Reading(encoder, "bf16", bench.values["reader"], "wall", bench.device)
    return bench.timed(lambda: step(batches))


def dual(bench: Bench) -> None:
    longest = max(map(max, bench.values["lengths"]))
    for lengths in bench.values["lengths"]:
        separate = sequences(lengths)
        full = padded(separate, longest)
        # all at once, which a GPU is fastest at
        one = [{name: torch.cat([batch[name] for batch in full]) for name in full[0]}]
        contenders = {PUBLISHED: ("Longformer", one)} | {
            f"speechssl {e}": (e, separate) for e in ("BERT", "ModernBERT")
        }
        times = {}
        for system, (encoder, batches) in contenders.items():
            moved = [
                {name: value.to(bench.device) for name, value in batch.items()} for batch in batches
            ]
            if found := bench.attempt(
                f"DUAL, {system}, {lengths}", partial(reading, bench, encoder, moved)
            ):
                times[f"{system} bf16"] = found
        condition = f"reading {'-'.join(map(str, lengths))} units"
        for name, spent in times.items():
            rows = [
                bench.row(
                    name, condition, "seconds_a_step", median(spent), (min(spent), max(spent))
                )
            ]
            if (published := f"{PUBLISHED} bf16") in times and name != published:
                rows.append(
                    bench.row(
                        name,
                        condition,
                        "over_longformer_bf16",
                        median(times[published]) / median(spent),
                    )
                )
            save(bench.step.exp, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("exp", type=Path)
    parser.add_argument(
        "--limit",
        type=float,
        default=float("inf"),
        help=("seconds after which nothing more begins"),
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--profile", action="store_true", help=("print the kernels of ours by their time")
    )
    given = parser.parse_args()
    values = yaml.safe_load(given.config.read_text(encoding="utf-8"))["gpu"] | {
        "profile": given.profile
    }
    if torch.device(values["device"]).type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: left out")
        return
    given.exp.mkdir(parents=True, exist_ok=True)
    bench = Bench(Settings(given.exp, values), given.limit)
    runs = {"rate": rate, "extraction": extraction, "pretraining": pretraining, "dual": dual}
    for part in given.parts:
        bench.attempt(f"part {part}", partial(runs[part], bench))
    print(f"{time.perf_counter() - bench.begun:.0f} s")
    if bench.failed:
        sys.exit(f"failed: {', '.join(bench.failed)}")


if __name__ == "__main__":
    main()
