"""The Trainer adapter: resumed runs end with the same bits, bad gradients are dropped, schedules
keep their horizon."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from speechssl.options import EvalOptions, TrainingOptions
from speechssl.training import Evaluation, fit

from .files import read_lines


class Toy(nn.Module):
    """A regression with dropout: the state of the random generator decides the weights too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1))

    def forward(self, x, y):
        loss = (self.net(x)[:, 0] - y).square().mean()
        return {"loss": loss, "error": loss.detach().sqrt()}


def batch(step):
    x = torch.from_numpy(
        np.random.default_rng([7, step]).standard_normal((8, 4)).astype(np.float32)
    )
    return {"x": x, "y": x.sum(1)}


def options(**changes):
    return TrainingOptions(
        **{"steps": 10, "learning_rate": 1e-2, "warmup_steps": 2, "save_every": 3, "log_every": 1}
        | changes
    )


def weights(model):
    return torch.cat([p.detach().ravel() for p in model.parameters()])


def trained(folder, make=batch, **changes):
    model = Toy()
    return fit(model, make, options(**changes), folder), weights(model)


def logged(folder):
    return read_lines(folder / "log.jsonl")


def killing(at):
    def make(step):
        if step == at:
            raise KeyboardInterrupt
        return batch(step)

    return make


def test_training_lowers_the_loss_and_says_what_it_did(tmp_path, capsys):
    result, _ = trained(tmp_path, steps=60, save_every=100)
    out, err = capsys.readouterr()
    assert out == ""
    assert "'loss'" in err
    losses = [row["loss"] for row in logged(tmp_path) if "loss" in row]
    assert result["steps"] == len(losses) == 60
    assert result["skipped"] == 0
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    assert result["loss"] == losses[-1]  # of the last logging interval


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "more"),  # before the first checkpoint, between two
    [(2, {}), (7, {"horizon": 20, "schedule": "cosine"})],
)
def test_a_killed_run_that_is_resumed_ends_with_the_same_bits(tmp_path, at, more):
    _, whole = trained(tmp_path / "whole", **more)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed", killing(at), **more)
    result, resumed = trained(tmp_path / "killed", **more)
    assert result["steps"] == 10
    assert torch.equal(resumed, whole)


@pytest.mark.slow
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(tmp_path):
    def make(step):
        return batch(step) if step != 4 else broken_batch(step)

    same = {"schedule": "constant", "horizon": 20}
    _, before = trained(tmp_path / "before", steps=4, **same)
    result, after = trained(tmp_path / "after", make, steps=5, **same)
    assert result["skipped"] == 1
    assert torch.equal(before, after)
    result, later = trained(tmp_path / "later", make, steps=8, **same)
    assert (result["steps"], result["skipped"]) == (8, 1)
    assert torch.isfinite(later).all()
    assert not torch.equal(before, later)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_dropped_batch_does_not_spoil_the_log(tmp_path, capsys, accumulation):
    """Not its own interval, of which the other steps are shown, and none of those after it."""

    class Numbered(Toy):
        def forward(self, number, **inputs):
            return super().forward(**inputs) | {"number": number, "vector": inputs["x"]}

    def make(step):
        return (broken_batch if step == 4 * accumulation else batch)(step) | {
            "number": torch.tensor(float(step))
        }

    result = fit(Numbered(), make, options(log_every=5, accumulation=accumulation), tmp_path)
    rows = [row for row in logged(tmp_path) if "loss" in row]
    used = [s for s in range(5 * accumulation) if s // accumulation != 4]
    assert [row["step"] for row in rows] == [5, 10]
    assert all(np.isfinite(row["loss"]) for row in rows)
    assert rows[0]["number"] == np.mean(used)
    assert "vector" not in rows[0]
    assert np.isfinite([row["error"] for row in rows]).all()
    assert result["skipped"] == 1
    assert result["loss"] == rows[-1]["loss"]
    assert np.isfinite(next(row["train_loss"] for row in logged(tmp_path) if "train_loss" in row))
    assert len(re.findall("step 4: dropped", capsys.readouterr().err)) == 1


def test_the_log_and_tensorboard_of_a_killed_run_have_every_step_once(tmp_path):
    pytest.importorskip("tensorboard", reason="an optional extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed", killing(5), report_to=("tensorboard",))
    with (tmp_path / "killed/log.jsonl").open("a") as file:
        file.write('{"step": ')  # the kill cut a line short
    trained(tmp_path / "killed", report_to=("tensorboard",))
    rows = [
        [row for row in logged(tmp_path / name) if "loss" in row] for name in ("whole", "killed")
    ]
    whole, killed = ([(row["step"], row["loss"], row["error"]) for row in of] for of in rows)
    assert whole == killed
    assert [step for step, *_ in killed] == list(range(1, 11))
    folders = {path.parent for path in tmp_path.rglob("events.out.*")}
    assert folders == {tmp_path / "killed/tensorboard"}  # one run, for TensorBoard
    curves = EventAccumulator(str(*folders)).Reload()
    assert [(e.step, e.value) for e in curves.Scalars("train/loss")] == [
        (step, pytest.approx(loss)) for step, loss, _ in whole
    ]
    assert [e.step for e in curves.Scalars("train/error")] == list(range(1, 11))


def broken_batch(step):
    return batch(step) | {"y": torch.full((8,), float("nan"))}


@pytest.mark.slow
def test_too_many_bad_gradients_in_a_row_stop_the_run(tmp_path):
    with pytest.raises(FloatingPointError, match="21 times in a row at step 20"):
        trained(tmp_path, broken_batch, steps=60)


def test_accumulated_batches_weigh_as_one_large_batch(tmp_path):
    def double(step):
        halves = [batch(2 * step), batch(2 * step + 1)]
        return {name: torch.cat([half[name] for half in halves]) for name in ("x", "y")}

    class Plain(Toy):
        def __init__(self):
            super().__init__()
            self.net[2] = nn.Identity()  # dropout would differ

    found = []
    for make, accumulation in ((double, 1), (batch, 2)):
        model, folder = Plain(), tmp_path / str(accumulation)
        # A large epsilon and no clipping: else Adam hides the scale of the gradient.
        fit(
            model,
            make,
            options(accumulation=accumulation, adam_epsilon=1.0, clip=1e9, bf16=False),
            folder,
        )
        found.append((weights(model), [row["loss"] for row in logged(folder) if "loss" in row]))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6, rtol=1e-5)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-3)


# ---- evaluation on held-out items


def judged(folder, make=batch, every=2, patience=0, scores=None, lower=False, **changes):
    """A run that is evaluated; its result, its weights, and the steps at which the model was asked.
    scores: step -> score; without them it is scored by its own weights, which no other step has."""
    model, asked = Toy(), []

    def score():
        assert not model.training
        asked.append(weights(model))
        torch.rand(3)  # nothing that is drawn here may change what is learnt
        return scores[len(asked) - 1] if scores else float(weights(model).sum())

    evaluation = Evaluation(EvalOptions(every, "dev", 0, patience), "ff1", 7, score, lower)
    result = fit(model, make, options(**changes), folder, evaluation=evaluation)
    return result, weights(model), asked


def test_the_best_checkpoint_is_what_is_left_and_training_is_as_without_evaluation(tmp_path):
    _, last = trained(tmp_path / "without")
    result, best, asked = judged(tmp_path / "with", every=4, scores=[0.2, 0.5, 0.5])
    assert len(asked) == 3  # steps 4 and 8, and the last
    assert torch.equal(asked[-1], last)
    assert result["best"] == {"step": 8, "metric": "ff1", "score": 0.5, "split": "dev", "items": 7}
    assert result["steps"] == 10
    assert torch.equal(best, asked[1])
    rows = logged(tmp_path / "with")
    assert [(row["step"], row["eval_ff1"]) for row in rows if "eval_ff1" in row] == [
        (4, 0.2),
        (8, 0.5),
        (10, 0.5),
    ]
    curve = [
        [(row["step"], row["loss"]) for row in logged(tmp_path / name) if "loss" in row]
        for name in ("without", "with")
    ]
    assert curve[0] == curve[1]
    assert {p.name for p in (tmp_path / "with").glob("checkpoint-*")} == {
        "checkpoint-8",
        "checkpoint-10",
    }
    again, kept, asked = judged(tmp_path / "with", every=4, scores=[])
    assert not asked
    assert torch.equal(kept, best)
    assert again == result


def test_a_killed_run_remembers_the_best(tmp_path):
    """By its own weights, whose score rises and falls: killed between checkpoint and
    evaluation."""
    whole, best, _ = judged(tmp_path / "whole", lower=True)
    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path / "killed", killing(5), lower=True)
    result, found, _ = judged(tmp_path / "killed", lower=True)
    used = ("seconds", "peak_gb", "gpu_gb")
    assert {k: v for k, v in result.items() if k not in used} == {
        k: v for k, v in whole.items() if k not in used
    }
    assert torch.equal(found, best)
    logs = (logged(tmp_path / name) for name in ("whole", "killed"))
    lines = [[(row["step"], row["eval_ff1"]) for row in log if "eval_ff1" in row] for log in logs]
    assert lines[0] == lines[1]
    assert [step for step, _ in lines[0]] == [2, 4, 6, 8, 10]


def test_patience_ends_training_and_a_run_that_was_ended_stays_so(tmp_path):
    result, best, asked = judged(tmp_path, every=1, patience=2, scores=[0.1, 0.3, 0.2, 0.3, 0.9])
    assert (result["steps"], result["best"]["step"], len(asked)) == (4, 2, 4)
    assert torch.equal(best, asked[1])
    again, kept, asked = judged(tmp_path, every=1, patience=2, scores=[])
    assert again == result
    assert torch.equal(kept, best)
    assert not asked


@pytest.mark.parametrize("horizon", [None, 10])
def test_a_finished_run_is_trained_further(tmp_path, horizon):
    """With one horizon, to the same bits as a run of that length; without, at the rate that the
    longer schedule has there."""
    _, whole = trained(tmp_path / "whole", horizon=horizon)
    trained(tmp_path / "more", steps=5, horizon=horizon)
    result, more = trained(tmp_path / "more", horizon=horizon)
    rows = [row for row in logged(tmp_path / "more") if "loss" in row]
    assert result["steps"] == 10
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert torch.equal(more, whole) == (horizon == 10)
    rates = [
        [row["learning_rate"] for row in logged(tmp_path / name) if "loss" in row]
        for name in ("whole", "more")
    ]
    assert rates[0][5:] == rates[1][5:]
    assert (rates[0] == rates[1]) == (horizon == 10)


def test_more_steps_may_find_a_better_model_and_keep_the_best_there_was(tmp_path):
    first, _, _ = judged(tmp_path, steps=4, horizon=10, scores=[0.9, 0.1])
    moved = tmp_path.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    more, best, asked = judged(moved, horizon=10, scores=[0.2, 0.3, 0.4])
    assert first["best"] == more["best"]
    assert more["best"]["step"] == 2
    assert more["steps"] == 10
    assert len(asked) == 3
    assert not any(torch.equal(best, other) for other in asked)
