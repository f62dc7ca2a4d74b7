"""Time extraction, pre-training and DUAL on long passages on a GPU, beside transformers on it.

    python recipes/speed/gpu.py CONFIG EXP [--limit SECONDS] [--parts PART ...]

Without a GPU it says so. What would begin after the limit is left out.

Extraction begins with utterances in the memory of the host, which transformers gets as one pinned
batch and ours one by one. A step of pre-training is that of HuBERT as it is published (dropout, 8 %
of the frames begin a mask, 500 clusters), without layer drop: forward, backward and AdamW (fused),
in bf16 autocast. FLOPs of a forward pass are those of all products (`common.count_flops` with
attention); those of a step are three times as many.
"""

from __future__ import annotations

import gc
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import Settings, add_rows, count_flops, make_checkpoint
from reading import PUBLISHED, Sequences, Step, make_sequences, pad_sequences
from training import run_transformers
from transformers import AutoModel

from speechssl.audio import SAMPLE_RATE
from speechssl.cli import run_program
from speechssl.cli.parser import read_section
from speechssl.encoders.hubert import TorchEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.pretrain.model import HubertPretraining
from speechssl.pretrain.options import Hubert
from speechssl.pretrain.run import apply_size
from speechssl.timing import FrameGrid

DATASHEET = 989.0  # TFLOP/s in bf16 of an H100 SXM, without sparsity
# hours of audio in an update of HuBERT base: 32 GPUs with 87.5 s each (arXiv 2106.07447, IV-B)
UPDATE_HOURS = 32 * 87.5 / 3600
UPDATES = {"1": 250_000, "2": 400_000}  # iteration -> updates of HuBERT base
DROPOUT = dict.fromkeys(("hidden_dropout", "attention_dropout", "feat_proj_dropout"), 0.1)
DROPOUT |= {"activation_dropout": 0.0, "layerdrop": 0.0}
# HuBERT base in its second iteration
BASE = apply_size(Hubert(source=Path(), out=Path(), size="base", teacher="first"))
WARM_UP = 2  # runs that compile and fill caches before those that are timed
SPEECHSSL, TRANSFORMERS = "speechssl bf16", "transformers bf16, SDPA"
Times = dict[str, list[float]]  # system -> seconds of every repeat
Work = Callable[[], object]  # what a repeat calls, and what is timed
Contenders = dict[str, Callable[[], Work]]  # system -> loads its model and returns its work


class Bench:
    """A bench times contenders on a device, and adds rows to results.

    settings: of the section `gpu`. limit: seconds after which no contender begins. profile: whether
    kernels of speechssl are printed.
    """

    def __init__(self, settings: Settings, limit: float, profile: bool) -> None:
        self.settings, self.values = settings, settings.values
        self.profile = profile
        self.end = time.perf_counter() + limit
        self.device = torch.device(self.values["device"])
        self.cuda = self.device.type == "cuda"
        self.name = torch.cuda.get_device_name() if self.cuda else str(self.device)
        self.path = make_checkpoint(self.values["model"], settings.exp)
        self.product_rate = 0.0  # TFLOP/s of a large product, once `measure_product` has run

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def time(self, contenders: Contenders) -> Times:
        """Return the seconds of every repeat of each contender, one contender after another."""
        times: Times = {}
        for name, load in contenders.items():
            if time.perf_counter() > self.end:
                print(f"left out, for the time is over: {name}", flush=True)
                continue
            run = load()
            seconds = []
            for _ in range(WARM_UP + self.values["repeats"]):
                self.wait()
                start = time.perf_counter()
                run()
                self.wait()
                seconds.append(time.perf_counter() - start)
            times[name] = seconds[WARM_UP:]
            print(f"{name}: first {seconds[0]:.2f} s, median {median(times[name]):.4f} s")
            if self.cuda:
                print(f"  {torch.cuda.max_memory_allocated() / 2**30:.1f} GB at most", flush=True)
                torch.cuda.reset_peak_memory_stats()
            if self.profile and name == SPEECHSSL:
                self.print_kernels(run)
            del run
            gc.collect()
        return times

    def print_kernels(self, run: Work) -> None:
        with torch.profiler.profile() as profile:
            run()
            self.wait()
        key = "self_cuda_time_total" if self.cuda else "self_cpu_time_total"
        print(profile.key_averages().table(sort_by=key, row_limit=18, max_name_column_width=70))

    def add_rows(self, system: str, condition: str, values: dict[str, float]) -> None:
        shape, condition = self.values["model"], f"{condition} on {self.name}"
        add_rows(self.settings.exp, system, shape, condition, values, self.values["repeats"])


def measure_product(bench: Bench) -> None:
    """Measure the rate of one large product, of which `share_of_limit` is a share."""
    size, products = bench.values["matrix"], 10
    a, b = (torch.randn(size, size, device=bench.device, dtype=torch.bfloat16) for _ in range(2))

    def multiply() -> None:
        for _ in range(products):
            a @ b

    times = bench.time({"product": lambda: multiply})
    if "product" not in times:  # no time was left
        return
    seconds = times["product"]
    bench.product_rate = products * 2 * size**3 / median(seconds) / 1e12
    bench.add_rows("torch", f"bf16 product of {size}", {"tflops": bench.product_rate})


def time_extraction(bench: Bench) -> None:
    """Time the extraction of features of a batch of utterances."""
    seconds, batch = bench.values["seconds"], bench.values["batch"]
    waves = list(torch.randn(batch, seconds * SAMPLE_RATE))
    config = AutoModel.from_pretrained(bench.path).config

    def load_transformers(attention: str, compiled: bool) -> Work:
        model: Any = AutoModel.from_pretrained(
            bench.path, dtype=torch.bfloat16, attn_implementation=attention
        )
        model = model.to(bench.device).eval()
        model = torch.compile(model) if compiled else model
        stacked = torch.stack(waves)
        if bench.cuda:
            stacked = stacked.pin_memory()

        @torch.inference_mode()
        def run() -> None:
            model(stacked.to(bench.device, torch.bfloat16, non_blocking=True))

        return run

    def load_speechssl() -> Work:
        model = load_checkpoint(bench.path).model
        grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
        engine = TorchEngine(model, "bf16", str(bench.device))
        return lambda: engine.compute_features(waves, config.num_hidden_layers, grid)

    contenders: Contenders = {
        "transformers bf16, eager attention": partial(load_transformers, "eager", False),
        TRANSFORMERS: partial(load_transformers, "sdpa", False),
        SPEECHSSL: load_speechssl,
    }
    if bench.values["compiled"]:
        contenders[f"{TRANSFORMERS}, compiled"] = partial(load_transformers, "sdpa", True)
    times = bench.time(contenders)
    flops = batch * count_flops(config, seconds * SAMPLE_RATE, attention=True)
    for name, repeats in times.items():
        run_seconds = median(repeats)
        values = {"x_realtime": batch * seconds / run_seconds, "tflops": flops / run_seconds / 1e12}
        if name == SPEECHSSL:
            for other, other_repeats in times.items():
                if other != SPEECHSSL:
                    values[f"over {other}"] = median(other_repeats) / run_seconds
        bench.add_rows(name, f"{seconds} s x {batch}", values)


class TransformersPretraining(HubertPretraining):
    """HuBERT's objective is computed on transformers' modules."""

    def forward(
        self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, **_: torch.Tensor
    ) -> Any:
        features, last = run_transformers(self.encoder, samples, mask)
        prediction = self.predict(last, labels, mask)
        penalty = self.convolutions.feature_penalty * features.float().pow(2).mean()
        return prediction | {"loss": prediction["loss"] + penalty}


def make_pretraining_batch(crops: int, samples: int, frames: int) -> dict[str, torch.Tensor]:
    """Make a batch of noise with random clusters as labels, masked as HuBERT's: ten frames from
    each beginning."""
    generator = torch.Generator().manual_seed(0)
    begins = torch.rand(crops, frames, generator=generator) < 0.08
    return {
        "samples": torch.randn(crops, samples, generator=generator),
        "labels": torch.randint(0, BASE.targets.clusters, (crops, frames), generator=generator),
        "mask": torch.nn.functional.pad(begins, (9, 0)).unfold(1, 10, 1).any(2),
    }


def time_pretraining(bench: Bench) -> None:
    """Time steps of HuBERT's pre-training."""
    seconds, crops = bench.values["training"]
    samples = int(seconds * SAMPLE_RATE)
    model: Any = AutoModel.from_pretrained(bench.path)
    frames = int(model._get_feat_extract_output_lengths(samples))
    batch = make_pretraining_batch(crops, samples, frames)
    batch = {name: value.to(bench.device) for name, value in batch.items()}

    def load(objective: type[HubertPretraining]) -> Work:
        torch.manual_seed(0)
        encoder: Any = AutoModel.from_pretrained(
            bench.path, dtype=torch.float32, attn_implementation="sdpa", **DROPOUT
        )
        model = objective(encoder, BASE.targets.clusters, BASE.prediction, BASE.convolutions)
        model = model.to(bench.device).train()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def run_step() -> None:
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(bench.device.type, torch.bfloat16):
                loss = model(**batch)["loss"]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()

        return run_step

    contenders: Contenders = {
        SPEECHSSL: partial(load, HubertPretraining),
        TRANSFORMERS: partial(load, TransformersPretraining),
    }
    times = bench.time(contenders)
    flops = 3 * crops * count_flops(model.config, samples, attention=True)
    for name, repeats in times.items():
        step_seconds = median(repeats)
        rate = flops / step_seconds / 1e12
        values = {"seconds_a_step": step_seconds, "tflops": rate}
        values["share_of_datasheet"] = 100 * rate / DATASHEET
        if bench.product_rate:
            values["share_of_limit"] = 100 * rate / bench.product_rate
        for iteration, updates in UPDATES.items():  # means HuBERT base, where this is its size
            hours = updates * UPDATE_HOURS * step_seconds / (crops * seconds)
            values[f"hours_of_iteration_{iteration}"] = hours
        if name == SPEECHSSL and TRANSFORMERS in times:
            values["steps_over_bf16"] = median(times[TRANSFORMERS]) / step_seconds
        bench.add_rows(name, f"pre-training on {crops} crops of {seconds:g} s", values)


def time_dual(bench: Bench) -> None:
    """Time steps of DUAL on long passages, as reading.py does on a CPU."""
    longest = max(map(max, bench.values["lengths"]))

    def load(encoder: str, batches: Sequences) -> Work:
        moved = []
        for batch in batches:
            moved.append({name: value.to(bench.device) for name, value in batch.items()})
        run_step = Step(encoder, "bf16", bench.values["reader"], "wall", bench.device)
        return lambda: run_step(moved)

    for lengths in bench.values["lengths"]:
        batches = make_sequences(lengths)
        padded = pad_sequences(batches, longest)
        # the published side gets one batch, with which a GPU is fastest
        one_batch = [{name: torch.cat([batch[name] for batch in padded]) for name in padded[0]}]
        contenders = {f"{PUBLISHED} bf16": partial(load, "Longformer", one_batch)}
        for encoder in ("BERT", "ModernBERT"):
            contenders[f"speechssl {encoder} bf16"] = partial(load, encoder, batches)
        times = bench.time(contenders)
        published = median(times.get(f"{PUBLISHED} bf16", [float("nan")]))
        for name, repeats in times.items():
            step_seconds = median(repeats)
            ratio = published / step_seconds
            values = {"seconds_a_step": step_seconds, "over_longformer_bf16": ratio}
            bench.add_rows(name, f"reading {'-'.join(map(str, lengths))} units", values)


PARTS = {
    "rate": measure_product,
    "extraction": time_extraction,
    "pretraining": time_pretraining,
    "dual": time_dual,
}


def main(options: Namespace) -> None:
    values = read_section(options.config, "gpu")
    if torch.device(values["device"]).type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: left out")
        return
    options.exp.mkdir(parents=True, exist_ok=True)
    bench = Bench(Settings(options.exp, values), options.limit, options.profile)
    for part in options.parts:
        PARTS[part](bench)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("exp", type=Path)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--profile", action="store_true", help="print the kernels of speechssl")
    run_program(main, parser)
