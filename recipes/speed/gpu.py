"""Time extraction, pre-training and DUAL on long passages on a GPU, beside transformers on it.

    python recipes/speed/gpu.py CONFIG EXP [--limit SECONDS] [--parts PART ...]

Without a GPU it says so. What would begin after the limit is left out.

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

import gc
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml
from common import Settings, checkpoint, flops, save
from reading import PUBLISHED, Sequences, Step, make_sequences, pad_sequences
from training import plain
from transformers import AutoModel

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.hubert import TorchEngine
from speechssl.encoders.load import load_checkpoint
from speechssl.pretrain.model import HubertPretraining
from speechssl.pretrain.options import Hubert
from speechssl.pretrain.run import apply_size
from speechssl.timing import FrameGrid

DATASHEET = 989.0  # TFLOP/s in bf16 of an H100 SXM, without sparsity
# hours of audio in an update of HuBERT base (arXiv 2106.07447, section IV-B)
UPDATE_HOURS = 32 * 87.5 / 3600
UPDATES = {"1": 250_000, "2": 400_000}  # iteration -> updates of HuBERT base
DROPOUT = dict.fromkeys(("hidden_dropout", "attention_dropout", "feat_proj_dropout"), 0.1)
DROPOUT |= {"activation_dropout": 0.0, "layerdrop": 0.0}
# HuBERT base in its second iteration
BASE = apply_size(Hubert(source=Path(), out=Path(), size="base", teacher="first"))
OURS, THEIRS = "speechssl bf16", "transformers bf16, SDPA"
Times = dict[str, list[float]]  # system -> seconds of every repeat
Contenders = dict[str, Callable[[], Callable[[], object]]]  # each makes the function that is timed


class Bench:
    """A bench has settings, a clock and a place for rows."""

    def __init__(self, step: Settings, limit: float, profile: bool) -> None:
        self.step, self.values, self.profile = step, step.values, profile
        self.end = time.perf_counter() + limit
        self.device = torch.device(self.values["device"])
        self.cuda = self.device.type == "cuda"
        self.name = torch.cuda.get_device_name() if self.cuda else str(self.device)
        self.path = checkpoint(self.values["model"], step.exp)
        self.rate = 0.0  # TFLOP/s of a large product

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def times(self, contenders: Contenders) -> Times:
        """Return the seconds of every repeat of each, after two that compile and fill caches."""
        times: Times = {}
        for name, make in contenders.items():
            if time.perf_counter() > self.end:
                print(f"left out, for the time is over: {name}", flush=True)
                continue
            run, seconds = make(), []
            for _ in range(self.values["repeats"] + 2):
                self.wait()
                start = time.perf_counter()
                run()
                self.wait()
                seconds.append(time.perf_counter() - start)
            times[name] = seconds[2:]
            print(f"{name}: first {seconds[0]:.2f} s, median {median(times[name]):.4f} s")
            if self.cuda:
                print(f"  {torch.cuda.max_memory_allocated() / 2**30:.1f} GB at most", flush=True)
                torch.cuda.reset_peak_memory_stats()
            if self.profile and name == OURS:
                self.print_kernels(run)
            del run
            gc.collect()
        return times

    def print_kernels(self, run: Callable[[], object]) -> None:
        with torch.profiler.profile() as profile:
            run()
            self.wait()
        by = "self_cuda_time_total" if self.cuda else "self_cpu_time_total"
        print(profile.key_averages().table(sort_by=by, row_limit=18, max_name_column_width=70))

    def save(self, system: str, condition: str, values: dict[str, float]) -> None:
        shape, condition = self.values["model"], f"{condition} on {self.name}"
        save(self.step.exp, system, shape, condition, values, self.values["repeats"])


def measure_product(bench: Bench) -> None:
    """Measure the rate of one large product; `share_of_limit` is a share of it."""
    size = bench.values["matrix"]
    a, b = (torch.randn(size, size, device=bench.device, dtype=torch.bfloat16) for _ in range(2))
    times = bench.times({"product": lambda: lambda: [a @ b for _ in range(10)]})["product"]
    bench.rate = 10 * 2 * size**3 / median(times) / 1e12
    bench.save("torch", f"bf16 product of {size}", {"tflops": bench.rate})


def time_extraction(bench: Bench) -> None:
    seconds, batch = bench.values["seconds"], bench.values["batch"]
    waves = list(torch.randn(batch, seconds * SAMPLE_RATE))
    config = AutoModel.from_pretrained(bench.path).config

    def theirs(attention: str, compiled: bool) -> Callable[[], object]:
        model: Any = AutoModel.from_pretrained(
            bench.path, dtype=torch.bfloat16, attn_implementation=attention
        )
        model = model.to(bench.device).eval()
        model = torch.compile(model) if compiled else model
        stacked = torch.stack(waves)
        if bench.cuda:
            stacked = stacked.pin_memory()
        size = bench.values["at-once"] or len(waves)

        @torch.inference_mode()
        def run() -> None:
            for part in stacked.split(size):
                model(part.to(bench.device, torch.bfloat16, non_blocking=True))

        return run

    def ours() -> Callable[[], object]:
        model = load_checkpoint(bench.path).model
        grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
        engine = TorchEngine(model, "bf16", str(bench.device))
        return lambda: engine.features(waves, config.num_hidden_layers, grid)

    contenders: Contenders = {
        "transformers bf16, eager attention": partial(theirs, "eager", False),
        THEIRS: partial(theirs, "sdpa", False),
        OURS: ours,
    }
    if bench.values["compiled"]:
        contenders[f"{THEIRS}, compiled"] = partial(theirs, "sdpa", True)
    times = bench.times(contenders)
    computed = batch * flops(config, seconds * SAMPLE_RATE, True)
    for name, spent in times.items():
        took = median(spent)
        found = {"x_realtime": batch * seconds / took, "tflops": computed / took / 1e12}
        if name == OURS:
            found |= {f"over {o}": median(times[o]) / took for o in times if o != OURS}
        bench.save(name, f"{seconds} s x {batch}", found)


class Plain(HubertPretraining):
    """HuBERT's objective is computed on transformers' modules."""

    def forward(
        self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, **_: torch.Tensor
    ) -> Any:
        features, last = plain(self.encoder, samples, mask)
        found = self.predict(last, labels, mask)
        penalty = self.convolutions.feature_penalty * features.float().pow(2).mean()
        return found | {"loss": found["loss"] + penalty}


def time_pretraining(bench: Bench) -> None:
    seconds, crops = bench.values["training"]
    samples = int(seconds * SAMPLE_RATE)
    model: Any = AutoModel.from_pretrained(bench.path)
    frames = int(model._get_feat_extract_output_lengths(samples))
    generator = torch.Generator().manual_seed(0)
    begins = torch.rand(crops, frames, generator=generator) < 0.08
    batch = {
        "samples": torch.randn(crops, samples, generator=generator),
        "labels": torch.randint(0, BASE.targets.clusters, (crops, frames), generator=generator),
        # ten frames from each beginning are masked
        "mask": torch.nn.functional.pad(begins, (9, 0)).unfold(1, 10, 1).any(2),
    }
    batch = {name: value.to(bench.device) for name, value in batch.items()}

    def step(kind: type[HubertPretraining]) -> Callable[[], object]:
        torch.manual_seed(0)
        encoder: Any = AutoModel.from_pretrained(
            bench.path, dtype=torch.float32, attn_implementation="sdpa", **DROPOUT
        )
        model = kind(encoder, BASE.targets.clusters, BASE.prediction, BASE.convolutions)
        model = model.to(bench.device).train()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def run() -> None:
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(bench.device.type, torch.bfloat16):
                loss = model(**batch)["loss"]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()

        return run

    times = bench.times({OURS: partial(step, HubertPretraining), THEIRS: partial(step, Plain)})
    computed = 3 * crops * flops(model.config, samples, True)
    for name, spent in times.items():
        took = median(spent)
        reached = computed / took / 1e12
        found = {"seconds_a_step": took, "tflops": reached}
        found["share_of_datasheet"] = 100 * reached / DATASHEET
        if bench.rate:
            found["share_of_limit"] = 100 * reached / bench.rate
        for iteration, updates in UPDATES.items():  # of HuBERT base, where this is its size
            hours = updates * UPDATE_HOURS * took / (crops * seconds)
            found[f"hours_of_iteration_{iteration}"] = hours
        if name == OURS and THEIRS in times:
            found["steps_over_bf16"] = median(times[THEIRS]) / took
        bench.save(name, f"pre-training on {crops} crops of {seconds:g} s", found)


def time_dual(bench: Bench) -> None:
    longest = max(map(max, bench.values["lengths"]))

    def reading(encoder: str, batches: Sequences) -> Callable[[], object]:
        moved = []
        for batch in batches:
            moved.append({name: value.to(bench.device) for name, value in batch.items()})
        step = Step(encoder, "bf16", bench.values["reader"], "wall", bench.device)
        return lambda: step(moved)

    for lengths in bench.values["lengths"]:
        separate = make_sequences(lengths)
        full = pad_sequences(separate, longest)
        # a GPU is fastest with all at once
        one = [{name: torch.cat([batch[name] for batch in full]) for name in full[0]}]
        contenders = {f"{PUBLISHED} bf16": partial(reading, "Longformer", one)}
        for encoder in ("BERT", "ModernBERT"):
            contenders[f"speechssl {encoder} bf16"] = partial(reading, encoder, separate)
        times = bench.times(contenders)
        published = median(times.get(f"{PUBLISHED} bf16", [float("nan")]))
        for name, spent in times.items():
            took = median(spent)
            found = {"seconds_a_step": took, "over_longformer_bf16": published / took}
            bench.save(name, f"reading {'-'.join(map(str, lengths))} units", found)


PARTS = {
    "rate": measure_product,
    "extraction": time_extraction,
    "pretraining": time_pretraining,
    "dual": time_dual,
}


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("exp", type=Path)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--profile", action="store_true", help="print the kernels of ours")
    given = parser.parse_args()
    values = yaml.safe_load(given.config.read_text(encoding="utf-8"))["gpu"]
    if torch.device(values["device"]).type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: left out")
        return
    given.exp.mkdir(parents=True, exist_ok=True)
    bench = Bench(Settings(given.exp, values), given.limit, given.profile)
    for part in given.parts:
        PARTS[part](bench)


if __name__ == "__main__":
    main()
