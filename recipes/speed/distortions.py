"""Distortions made on the fly, beside the training that hears them, on one thread.
recipes/speed/distortions.py CONFIG EXP"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from common import MODELS, SHIPPED, row, save, sentences, settings

from speechssl.audio import SAMPLE_RATE
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.encoders.load import load_checkpoint
from speechssl.errors import MissingExtra
from speechssl.pretrain.model import HubertPretraining
from speechssl.pretrain.options import Convolutions, Prediction

CLUSTERS, CROPS = 100, 10


def crops(seconds: float, count: int) -> list[np.ndarray]:
    """Of speech, end to end."""
    size, parts = int(seconds * SAMPLE_RATE), list[np.ndarray]()
    for sentence in sentences(10_000):
        parts.append(sentence)
        if sum(map(len, parts)) >= size * count:
            break
    return list(np.concatenate(parts)[: size * count].reshape(count, size).astype(np.float32))


def times_real_time(
    distortions: TrainingDistortions, speech: list[np.ndarray], repeats: int
) -> list[float]:
    """Seconds of speech a second, a value a round."""
    # noise and rooms are made once
    [distortions.apply(crop, (0, i), 0.0) for i, crop in enumerate(speech)]
    found = []
    for number in range(1, repeats + 1):
        start = time.perf_counter()
        for i, crop in enumerate(speech):
            distortions.apply(crop, (number, i), 0.0)
        found.append(sum(map(len, speech)) / SAMPLE_RATE / (time.perf_counter() - start))
    return found


def training(speech: list[np.ndarray], repeats: int) -> list[float]:
    """The same of steps of the small HuBERT on batches of CROPS crops."""
    encoder = load_checkpoint(MODELS / SHIPPED).model.float().train().requires_grad_(True)
    prediction = Prediction(visible_weight=0.0, projection=128)
    convolutions = Convolutions(feature_penalty=10.0, gradient_scale=1.0)
    model = HubertPretraining(encoder, CLUSTERS, prediction, convolutions)  # type: ignore[arg-type]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    samples = torch.from_numpy(np.stack(speech[:CROPS]))
    frames = int(encoder._get_feat_extract_output_lengths(samples.shape[1]))  # type: ignore[operator]
    labels, mask = (
        torch.zeros(len(samples), frames, dtype=torch.long),
        torch.arange(frames).expand(len(samples), -1) % 20 < 10,
    )
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(samples, labels, mask)["loss"]
        loss.backward()
        optimiser.step()
        found.append(samples.numel() / SAMPLE_RATE / (time.perf_counter() - start))
    return found[1:]


def main() -> None:
    step = settings("distortions")
    torch.set_num_threads(1)
    seconds, repeats, cache = (
        step.values["seconds"],
        step.values["repeats"],
        Path(step.exp) / "noise",
    )
    speech = crops(seconds, step.values["crops"])
    condition = f"crops of {seconds:g} s, one thread"
    trained = training(speech, repeats)
    spread = min(trained), max(trained)
    rows = [row("training", "small", condition, "x_realtime", median(trained), spread, repeats)]
    for kind in step.values["kinds"]:
        probability = (0.75, 0.75) if "+" in kind else (1.0, 1.0)
        try:
            distortions = parse_distortions(kind, probability=probability, cache=cache)
        except MissingExtra as error:
            print(f"left out: {kind} ({error})")
            continue
        found = times_real_time(distortions, speech, repeats)
        rows.append(
            row(
                kind,
                "small",
                condition,
                "x_realtime",
                median(found),
                (min(found), max(found)),
                repeats,
            )
        )
        rows.append(
            row(
                kind,
                "small",
                condition,
                "over_training",
                median(found) / median(trained),
                None,
                repeats,
            )
        )
    save(step.exp, rows)


if __name__ == "__main__":
    main()
