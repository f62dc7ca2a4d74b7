"""DUAL's reader, scored as it learns: FF1 as the evaluation has it, and the steps after which it is half."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speechssl.config import TrainingOptions
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual.config import QaOptions
from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.results import read_rows
from speechssl.text_side import plateau as room
from speechssl.text_side.plateau import plateau
from speechssl.text_side.runs import gains_tables, steps_to
from speechssl.timing import FrameGrid, RunLength

GRID = FrameGrid(16_000, 320, 400)


def options(steps: int, text_encoder: str, seed: int = 0) -> QaOptions:
    training = TrainingOptions(steps=steps, learning_rate=1e-3, warmup_steps=1, log_every=1, bf16=False, seed=seed)
    return QaOptions(training, text_encoder, batch=2, window=40, stride=20, question=20, answer=20)


@pytest.fixture
def corpus(mini_corpus: Any, save_units: Any) -> Path:
    root = mini_corpus((16_000, 24_123, 20_000))
    path = root / "train/questions.jsonl"
    answer = {"answers": [{"text": "silver", "start": 0.3, "end": 0.6}]}
    path.write_text("".join(json.dumps(json.loads(line) | answer) + "\n" for line in path.read_text().splitlines()))
    rng, data = np.random.default_rng(0), load_corpus(root, "train")
    frames = {r.id: GRID.frames(round(r.seconds * 16_000)) for r in (*data.passages.values(), *data.questions)}
    units = {name: RunLength.of_frames(np.repeat(rng.integers(0, 6, 200), 3)[:count]) for name, count in frames.items()}
    save_units(units, {"codebook": "b", "corpus": data_hash(root, "train")})
    return Path(root)


def test_a_curve_ends_in_the_score_of_its_items(corpus: Path, checkpoint: Any, tmp_path: Path) -> None:
    encoder, results = str(checkpoint("BERT")), tmp_path / "results"
    for seed in (0, 1):
        for arm in ("scratch", "random"):
            plateau(corpus, tmp_path / "units", results, arm, arm, options(4, encoder, seed), "train", 2)
    scores = read_json(results / "runs/dual/random-0/scores.json")
    shares = [share for _, share in scores["items"].values()]
    assert [p["step"] for p in scores["curve"]] == [2, 4] and len(shares) == 3 and scores["unit"] == "passage"
    assert scores["curve"][-1]["score"] == pytest.approx(np.mean(shares))
    (row,) = (r for r in read_rows(results / "results.jsonl") if (r.encoder, r.seed) == ("random", 0))
    assert row.metric == "ff1" and row.value == pytest.approx(100 * np.mean(shares))
    steps = gains_tables(results, (), "scratch", 0)[-1]
    assert (
        steps.title == "Steps of DUAL to FF1 50" and steps.columns == ("start", "seed 0", "seed 1", "mean") and len(steps.rows) == 2
    )


def test_the_score_is_ff1_of_what_the_reader_points_at(
    corpus: Path, checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Knows:
        def __init__(self, *_: object) -> None: ...

        def read_many(self, items: list[Any]) -> list[Any]:
            data = load_corpus(corpus, "train")
            examples, _ = room.unit_examples(data, room.load_units(tmp_path / "units/train"), GRID)
            return [type("Span", (), {"first": e.first, "last": e.last}) for e in examples]

    monkeypatch.setattr(room, "Reader", Knows)
    said = plateau(corpus, tmp_path / "units", tmp_path / "r", "x", "random", options(2, str(checkpoint("BERT"))), "train", 1)
    scores = read_json(tmp_path / "r/runs/dual/x-0/scores.json")
    assert min(share for _, share in scores["items"].values()) > 0.8 and "FF1 50 after 1 steps" in said


def test_steps_are_those_of_the_first_score_that_is_half() -> None:
    curve = [{"step": s, "loss": 1.0, "score": x} for s, x in ((50, 0.1), (100, 0.5), (150, 0.4))]
    assert steps_to(curve) == 100 and steps_to(curve, 0.6) is None


def test_units_that_do_not_fit_are_one_sentence(corpus: Path, checkpoint: Any, tmp_path: Path) -> None:
    encoder = str(checkpoint("BERT"))
    with pytest.raises(InputError, match="has no finished units"):
        plateau(corpus, tmp_path / "units", tmp_path / "r", "x", "random", options(2, encoder), "test", 1)
    card = read_json(tmp_path / "units/train/card.json")
    card["made_from"]["corpus"] = "other"
    (tmp_path / "units/train/card.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="made from another corpus"):
        plateau(corpus, tmp_path / "units", tmp_path / "r", "x", "random", options(2, encoder), "train", 1)
    assert not (tmp_path / "r").exists()
