"""A folder as `speechssl superb run` leaves it, with made-up numbers: two encoders, twelve tasks, noise, three seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.results import LOWER_IS_BETTER, Row, append_rows

CLEAN = {  # task, metric -> the clean score of the first encoder, of the second, what 5 dB of noise costs
    ("pr", "per"): (12.4, 31.0, 14.0), ("asr", "wer"): (21.3, 48.2, 22.0), ("asr", "wer_lm"): (15.1, 40.0, 18.0),
    ("ks", "acc"): (96.2, 88.1, 9.0), ("qbe", "mtwv"): (7.4, -0.4, 3.0), ("sid", "acc"): (81.4, 61.9, 20.0),
    ("asv", "eer"): (6.2, 14.8, 6.0), ("sd", "der"): (7.9, 13.1, 4.0), ("ic", "acc"): (94.0, 72.3, 11.0),
    ("sf", "slot_f1"): (88.5, 70.2, 12.0), ("sf", "slot_cer"): (25.2, 44.8, 15.0), ("er", "acc"): (64.9, 55.0, 6.0),
    ("se", "pesq"): (2.55, 2.31, 0.4), ("se", "stoi"): (93.8, 91.1, 4.0), ("ss", "si_sdri"): (9.4, 6.2, 2.1),
}  # fmt: skip
NOISE = {f"seen-{noise}": 1.0 for noise in ("g", "m+g+r")} | {"unseen-kitchen": 1.3}
ENCODERS = ("people-en", "facebook/hubert-base-ls960")
FIRST = {"asr": "wer", "sf": "slot_f1", "se": "pesq"}  # of the tasks with more than one
SLOTS = {
    "ks": {"keyword": "yes no up down left right on off stop go silence unknown".split()},
    "sid": {"speaker": [f"speaker-{n:02}" for n in range(44)]},
    "ic": {
        "action": ["activate", "bring", "change language", "deactivate", "decrease", "increase"],
        "object": "Chinese English German Korean heat juice lamp lights music newspaper none shoes socks volume".split(),
        "location": ["bedroom", "kitchen", "none", "washroom"],
    },
    "er": {"emotion": ["angry", "happy", "neutral", "sad"]},
}


def rows(seeds: int = 3, encoders: tuple[str, ...] = ENCODERS) -> list[Row]:
    rng, made = np.random.default_rng(0), []
    for (task, metric), (*clean, cost) in CLEAN.items():
        cost = cost if metric in LOWER_IS_BETTER else -cost
        for number, encoder in enumerate(encoders):
            value = clean[number % 2]
            for seed in range(seeds):
                near = float(value + rng.normal(0, abs(value) / 60))
                made.append(row(task, encoder, "clean", None, metric, near, seed))
                worse = near + cost * 0.2 * (1 + number)
                made.append(row(task, encoder, "clean", None, f"{metric}_default", worse, seed))
            for noise, factor in NOISE.items():
                for snr in (5.0, 0.0):
                    lost = cost * factor * (1 + 0.5 * number) * (20 - snr) / 15
                    made.append(row(task, encoder, noise, snr, metric, float(value + lost), 0))
    ratio = [
        Row(task, ENCODERS[0], "clean", None, "ratio_cached", 4 + len(task) * 1.7, None, None, 1, 0, "c") for task in ("ks", "asr")
    ]
    return made + ratio


def row(task: str, encoder: str, condition: str, snr: float | None, metric: str, value: float, seed: int = 0) -> Row:
    half = 0.02 * abs(value) + 0.1
    return Row(task, encoder, condition, snr, metric, value, value - half, value + half, 400, seed, "c0ffee")


def write_run(out: Path, encoders: tuple[str, ...] = ENCODERS) -> Path:
    append_rows(out / "results.jsonl", rows(encoders=encoders))
    rng = np.random.default_rng(1)
    for number, encoder in enumerate(encoders):
        for task in dict.fromkeys(task for task, _ in CLEAN):
            folder = encoder.replace("/", "-")
            if task != "qbe":
                for seed in range(3):
                    put(out / "heads" / folder / task / f"seed-{seed}" / "card.json", card(task, number, rng, seed))
            detail = {"task": task, "encoder": encoder, "condition": "clean", "seed": 0, "detail": details(task, number, rng)}
            put(out / "details" / folder / f"{task}.json", detail)
    return out


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def card(task: str, number: int, rng: np.random.Generator, seed: int) -> dict[str, Any]:
    states = (7, 13)[number % 2]
    weights = np.exp(-(((np.arange(states) - rng.uniform(1, states - 1)) / 2) ** 2)) + 0.05
    clean, metric = next((v[number % 2], m) for (t, m), v in CLEAN.items() if t == task)
    sign = 1 if metric in LOWER_IS_BETTER else -1
    sweep = [
        {
            "learning_rate": 10.0**-p,
            "value": None if p == 1 else clean + sign * abs(clean) * 0.12 * abs(p - 3),
            "steps": s,
            "best": p == 3,
        }
        for p, s in ((1, 100), (2, 400), (3, 400), (4, 200), (5, 100))
    ]
    default = 1e-2 if task == "pr" else 1e-3 if task in ("se", "ss") else 1e-4
    found = {"layer_weights": (weights / weights.sum()).tolist(), "states": states, "learning_rate": 1e-3}
    found["default_learning_rate"] = default
    return found | ({"sweep": sweep} if not seed else {})


def details(task: str, number: int, rng: np.random.Generator) -> dict[str, Any]:
    if task in SLOTS:
        return {"confusion": {slot: confusion(classes, number, rng) for slot, classes in SLOTS[task].items()}}
    if task == "asv":
        scores = np.sort(rng.normal(0, 1, 4000)), np.sort(rng.normal(3.1 - number, 1, 4000))
        marks = np.linspace(-2, 5, 150)
        alarms, misses = (1 - np.searchsorted(scores[0], marks) / 4000, np.searchsorted(scores[1], marks) / 4000)
        return {"det": {"false_alarms": alarms.tolist(), "misses": misses.tolist()}}
    if task == "sd":
        turns = [("A", 0.4, 4.1), ("B", 3.6, 7.2), ("A", 7.5, 9.8), ("B", 10.0, 12.9), ("A", 12.2, 14.6)]
        truth = [{"speaker": s, "start": a, "end": b} for s, a, b in turns]
        predicted = [
            {"speaker": "01"[s == "A"], "start": a + rng.normal(0, 0.2), "end": b + rng.normal(0.1, 0.2)}
            for s, a, b in turns[number:]
        ]
        return {"timeline": {"id": "mix-0001", "seconds": 15.0, "truth": truth, "predicted": predicted}}
    if task == "qbe":
        return {"layers": rng.uniform(-1, 8, (7, 13)[number % 2]).tolist()}
    texts = {"pr": (["DH", "AH", "K", "AE", "T"], ["DH", "AH", "K", "AH", "T"]), "sf": ("play B-artist bob E-artist", "play bob")}
    truth, predicted = texts.get(task, ("he read a book about the sea", "he red a boo about the see"))
    return (
        {"examples": [{"id": f"u{i}", "truth": truth, "predicted": predicted} for i in range(2)]}
        if task in ("pr", "asr", "sf")
        else {}
    )


def confusion(classes: list[str], number: int, rng: np.random.Generator) -> dict[str, Any]:
    size = len(classes)
    odds = (
        np.full((size, size), (0.1 + 0.3 * number) / size) + np.eye(size) * (1 - 0.3 * number) + 0.1 * rng.random((size, size)) ** 8
    )
    return {"classes": classes, "counts": [rng.multinomial(60, line / line.sum()).tolist() for line in odds]}
