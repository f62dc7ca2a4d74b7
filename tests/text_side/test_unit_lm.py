"""Language models of units: what they learn, how they score and go on, and units that are not theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from speechssl.config import TrainingOptions
from speechssl.errors import InputError
from speechssl.io import read_json, write_json
from speechssl.text_side.config import Continue, UnitLmOptions
from speechssl.text_side.probe import go_on
from speechssl.text_side.tables import read_continuations
from speechssl.text_side.unit_lm import Bigram, Recordings, UnitLm, begin, load_unit_lm, train_unit_lm, utterances
from speechssl.timing import RunLength

CYCLE = np.tile([0, 3, 1, 4, 2, 5], 12)


def options(**changes: Any) -> UnitLmOptions:
    training = TrainingOptions(steps=changes.pop("steps", 2), learning_rate=1e-2, warmup_steps=1, log_every=5, bf16=False)
    sizes = {"layers": 1, "width": 16, "heads": 2, "positions": 32, "length": 20, "batch": 4, "scored": "train"}
    return UnitLmOptions(**{"training": training} | sizes | changes)


@pytest.fixture
def units(save_units: Any) -> Path:
    runs = {f"r{i}": RunLength(np.roll(CYCLE, i), np.full(len(CYCLE), 3)) for i in range(4)}
    return Path(save_units(runs, {"codebook": "b"}))


@pytest.fixture
def trained(units: Path, tmp_path: Path) -> Path:
    train_unit_lm(units, tmp_path / "lm", options(steps=60, evaluate_every=30))
    return tmp_path / "lm"


@pytest.mark.slow
def test_it_learns_what_follows_what_and_goes_on_with_it(units: Path, trained: Path, tmp_path: Path) -> None:
    card = read_json(trained / "card.json")
    first, last = card["curve"]
    assert (first["step"], last["step"]) == (30, 60) and last["score"] < first["score"] < 6 and last["score"] < 1.5
    lm = load_unit_lm(trained)
    assert lm.go_on(CYCLE[:9], 6, 0.0, torch.Generator()).tolist() == CYCLE[9:15].tolist()
    scores = lm.log_probs([CYCLE[:10], CYCLE[:3]])
    assert [len(s) for s in scores] == [10, 3] and scores[0][1:].min() > np.log(0.5)
    made = Continue(
        model=trained,
        units=units,
        results=tmp_path / "r",
        arm="text",
        split="train",
        prompt_seconds=0.5,
        count=6,
        temperature=(0.0,),
    )
    table, _ = go_on(made)
    cells = {row[1]: row for row in table.rows}
    assert cells["0"][2:] == cells["what followed"][2:] and cells["0"][-1] == "100.0"
    assert read_continuations(tmp_path / "r")[0].rows == table.rows
    drawn = read_json(tmp_path / "r/continuations/text-0.json")["continuations"][0]
    assert drawn["drawn"]["0"] == drawn["followed"]
    with pytest.raises(InputError, match=r"longer than 60 s; give smaller --prompt-seconds"):
        go_on(Continue(**{**vars(made), "prompt_seconds": 60.0}))


def test_long_recordings_are_scored_whole_in_windows(units: Path, tmp_path: Path) -> None:
    train_unit_lm(units, tmp_path / "lm", options(length=32))
    lm = load_unit_lm(tmp_path / "lm")
    sequence = CYCLE[:50]
    (short,), (long,) = lm.log_probs([sequence[:31]]), lm.log_probs([sequence])
    assert lm.positions == 32 and len(long) == 50 and np.allclose(long[:31], short, atol=1e-5)
    (_, logits, _), *_ = UnitLm(lm.model, 6, 32).read([sequence[15:46]], [int(sequence[14])])  # the second window begins at 15,
    later = logits.log_softmax(-1)[torch.arange(31), torch.as_tensor(sequence[15:46])].numpy()  # where no recording does
    assert np.allclose(long[31:46], later[16:], atol=1e-5)
    with pytest.raises(InputError, match="a sequence of 32 units does not fit into the 32 positions"):
        lm.next_units([CYCLE[:32]])


def test_positions_that_training_never_saw_score_nothing(units: Path, tmp_path: Path) -> None:
    train_unit_lm(units, tmp_path / "lm", options())
    lm, sequence = load_unit_lm(tmp_path / "lm"), CYCLE[:60]
    before = lm.log_probs([sequence])[0]
    assert (lm.positions, lm.window, len(before)) == (32, 20, 60)
    with torch.no_grad():
        lm.model.base_model.wpe.weight[20:] = 9.0
    assert np.array_equal(lm.log_probs([sequence])[0], before)


def test_a_text_start_lends_layers_and_may_lend_rows(checkpoint: Any) -> None:
    start = str(checkpoint("GPT2", "AutoModelForCausalLM"))
    new, same, scratch = (begin(options(start=start, assignment=way), 6) for way in ("re-init", "most-frequent", "scratch"))
    layer = [model.base_model.h[0].mlp.c_fc.weight for model in (new, same, scratch)]
    assert layer[0].equal(layer[1]) and not layer[0].equal(layer[2])
    from transformers import AutoModelForCausalLM

    rows = AutoModelForCausalLM.from_pretrained(start).get_input_embeddings().weight
    taken = [bool((rows == row).all(1).any()) for row in same.get_input_embeddings().weight]
    assert all(taken) and not (rows == new.get_input_embeddings().weight[0]).all(1).any()
    assert new.get_input_embeddings().weight.shape == (7, 32) and new.config.eos_token_id == 6


def test_recordings_follow_each_other_behind_the_symbol_between_them() -> None:
    stream = Recordings([np.array([1, 2]), np.array([], int), np.array([3])], 6, Path("x"))
    assert stream.ids.tolist() == [6, 1, 2, 6, 3]
    assert len(stream(np.random.default_rng(0), 40)) == 40
    with pytest.raises(InputError, match="the units in x are empty"):
        Recordings([np.array([], int)], 6, Path("x"))


def test_pairs_of_units_alone() -> None:
    floor = Bigram([np.array([0, 1, 0, 1])], 2)
    (scores,) = floor.log_probs([np.array([0, 1])])
    assert np.exp(scores) == pytest.approx([2 / 4, 3 / 5])  # counts 1, 0, 0 behind the beginning, 0, 2, 0 behind 0; one more each
    assert floor.states([np.array([0, 1, 1, 1])]).tolist() == [[0.25, 0.75]]


def test_what_does_not_fit_is_one_sentence(units: Path, checkpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sequences of 131 symbols do not fit into the 130 positions"):
        train_unit_lm(units, tmp_path / "a", options(start=str(checkpoint("GPT2", "AutoModelForCausalLM")), length=131))
    with pytest.raises(InputError, match="it sees what follows"):
        train_unit_lm(units, tmp_path / "a", options(start=str(checkpoint("BERT"))))
    with pytest.raises(InputError, match="has no finished units"):
        train_unit_lm(units, tmp_path / "a", options(split="test"))
    assert not (tmp_path / "a").exists()
    train_unit_lm(units, tmp_path / "lm", options())
    lm, card = load_unit_lm(tmp_path / "lm"), read_json(units / "train/_card.json")
    write_json(units / "train/_card.json", card | {"K": 50})
    with pytest.raises(InputError, match=r"are of a codebook of 50, the model .*lm of one of 6; extract them with that codebook"):
        utterances(units / "train", lm, tmp_path / "lm")
    write_json(units / "train/_card.json", card | {"codebooks": ["other"]})
    with pytest.raises(InputError, match="of another codebook than the model"):
        utterances(units / "train", lm, tmp_path / "lm")
    write_json(tmp_path / "lm/card.json", {"what": "reader"})
    with pytest.raises(InputError, match="is no unit language model"):
        load_unit_lm(tmp_path / "lm")
