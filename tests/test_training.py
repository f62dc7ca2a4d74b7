"""Tests of the adapter over Trainer: resumed runs end with the same bits, gradients that are not
finite are dropped, and the best checkpoint on held-out items is kept."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from speechssl.options import EvalOptions, TrainingOptions
from speechssl.training import Evaluation, fit

from .files import read_lines, refused


class Toy(nn.Module):
    """This regression has dropout, so that the random generator decides its weights too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1))

    def forward(self, x, y):
        loss = (self.net(x)[:, 0] - y).square().mean()
        return {"loss": loss, "error": loss.detach().sqrt()}


def make_batch(step):
    rng = np.random.default_rng([7, step])
    x = torch.from_numpy(rng.standard_normal((8, 4)).astype(np.float32))
    return {"x": x, "y": x.sum(1)}


def make_broken_batch(step):
    """Make a batch whose loss and gradient are NaN."""
    return make_batch(step) | {"y": torch.full((8,), float("nan"))}


def kill(run, folder, step_of_kill, **changes):
    """Run a training that is killed at this step. run: `train` or `train_and_evaluate`."""

    def make_batch_or_die(step):
        if step == step_of_kill:
            raise KeyboardInterrupt
        return make_batch(step)

    with pytest.raises(KeyboardInterrupt):
        run(folder, make_batch_or_die, **changes)


def make_options(**changes):
    options = {
        "steps": 10,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "save_every": 3,
        "log_every": 1,
    }
    return TrainingOptions(**options | changes)


def test_a_schedule_that_ends_before_the_training_is_refused():
    assert make_options(horizon=10).horizon == 10
    refused("--horizon 9 ends before --steps 10", make_options, horizon=9)


def flatten_weights(model):
    return torch.cat([p.detach().ravel() for p in model.parameters()])


def train(folder, make=make_batch, **changes):
    """Train a toy. Returns the result of `fit` and the weights at the end."""
    model = Toy()
    result = fit(model, make, make_options(**changes), folder)
    return result, flatten_weights(model)


def read_curve(folder, name):
    """Return (step, value) of every line of the log that has an entry of this name."""
    lines = read_lines(folder / "log.jsonl")
    return [(line["step"], line[name]) for line in lines if name in line]


def test_training_lowers_the_loss_and_reports_on_stderr(tmp_path, capsys):
    result, _ = train(tmp_path, steps=60, save_every=100)
    out, err = capsys.readouterr()
    assert out == ""
    assert "'loss'" in err
    losses = [loss for _, loss in read_curve(tmp_path, "loss")]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    assert result["steps"] == len(losses) == 60
    assert result["skipped"] == 0
    assert result["loss"] == losses[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_of_kill", "schedule"),
    [
        (2, {}),  # before the first checkpoint, of step 3
        (7, {"horizon": 20, "schedule": "cosine"}),  # between two checkpoints
    ],
)
def test_a_killed_run_that_is_resumed_ends_with_the_same_bits(tmp_path, step_of_kill, schedule):
    _, expected = train(tmp_path / "whole", **schedule)
    kill(train, tmp_path / "killed", step_of_kill, **schedule)
    result, weights = train(tmp_path / "killed", **schedule)
    assert result["steps"] == 10
    assert torch.equal(weights, expected)


@pytest.mark.slow
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(tmp_path):
    def break_step_4(step):
        return make_broken_batch(step) if step == 4 else make_batch(step)

    schedule = {"schedule": "constant", "horizon": 20}
    _, weights_before = train(tmp_path / "before", steps=4, **schedule)
    result, weights_after = train(tmp_path / "after", break_step_4, steps=5, **schedule)
    assert result["skipped"] == 1
    assert torch.equal(weights_before, weights_after)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_dropped_update_does_not_spoil_the_log(tmp_path, capsys, accumulation):
    """The log's means are over the other updates of the interval. (Each update takes `accumulation`
    batches.)"""
    dropped = 4  # update

    class Numbered(Toy):
        """This toy also returns the number of its batch, whose mean the log shows."""

        def forward(self, number, **inputs):
            return super().forward(**inputs) | {"number": number, "vector": inputs["x"]}

    def make(number):
        batch = make_batch(number)
        if number == dropped * accumulation:
            batch = make_broken_batch(number)
        return batch | {"number": torch.tensor(float(number))}

    options = make_options(log_every=5, accumulation=accumulation)
    result = fit(Numbered(), make, options, tmp_path)
    assert result["skipped"] == 1
    losses = read_curve(tmp_path, "loss")
    assert [step for step, _ in losses] == [5, 10]
    assert np.isfinite(losses).all()
    assert np.isfinite(read_curve(tmp_path, "error")).all()
    batches_used = [n for n in range(5 * accumulation) if n // accumulation != dropped]
    assert read_curve(tmp_path, "number")[0] == (5, np.mean(batches_used))
    assert not read_curve(tmp_path, "vector")  # it is more than one number
    assert result["loss"] == losses[-1][1]
    assert "step 4: dropped" in capsys.readouterr().err


def test_the_log_and_tensorboard_of_a_killed_run_have_every_step_once(tmp_path):
    pytest.importorskip("tensorboard", reason="an optional extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(whole)
    kill(train, killed, 5, report_to=("tensorboard",))
    with (killed / "log.jsonl").open("a") as file:
        file.write('{"step": ')  # a line that the kill cut short
    train(killed, report_to=("tensorboard",))
    steps = list(range(1, 11))
    losses = read_curve(killed, "loss")
    assert [step for step, _ in losses] == steps
    assert losses == read_curve(whole, "loss")
    curves = EventAccumulator(str(killed / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in curves.Scalars("train/loss")]
    assert shown == [(step, pytest.approx(loss)) for step, loss in losses]


@pytest.mark.slow
def test_too_many_bad_gradients_in_a_row_stop_the_run(tmp_path):
    with pytest.raises(FloatingPointError, match="21 times in a row at step 20"):
        train(tmp_path, make_broken_batch, steps=60)


def test_accumulated_batches_weigh_as_one_large_batch(tmp_path):
    def make_large_batch(step):
        first, second = make_batch(2 * step), make_batch(2 * step + 1)
        return {name: torch.cat([first[name], second[name]]) for name in ("x", "y")}

    def train_without_dropout(make, accumulation):
        # without a large epsilon and with clipping, Adam would hide the scale of the gradient
        options = make_options(accumulation=accumulation, adam_epsilon=1.0, clip=1e9, bf16=False)
        model, folder = Toy(), tmp_path / str(accumulation)
        model.net[2] = nn.Identity()  # dropout would differ between one large batch and two small
        fit(model, make, options, folder)
        return flatten_weights(model), [loss for _, loss in read_curve(folder, "loss")]

    weights, losses = train_without_dropout(make_batch, accumulation=2)
    expected_weights, expected_losses = train_without_dropout(make_large_batch, accumulation=1)
    torch.testing.assert_close(weights, expected_weights, atol=1e-6, rtol=1e-5)
    assert losses == pytest.approx(expected_losses, rel=1e-3)


# ---- evaluation on held-out items


class Evaluated(NamedTuple):
    """A run has been trained and evaluated."""

    result: dict  # of `fit`
    weights: torch.Tensor  # at the end
    evaluated: list[torch.Tensor]  # the weights at every evaluation


def train_and_evaluate(
    folder, make=make_batch, every=2, patience=0, scores=None, lower=False, **changes
):
    """Train a toy that is evaluated `every` so many steps. scores: one an evaluation, in order;
    without them the score is the sum of the weights, which differs from step to step."""
    model, evaluated = Toy(), []

    def score():
        assert not model.training
        evaluated.append(flatten_weights(model))
        torch.rand(3)  # random numbers of the evaluation must not change the training
        return scores[len(evaluated) - 1] if scores else float(flatten_weights(model).sum())

    evaluation = Evaluation(
        EvalOptions(eval_every=every, eval_split="dev", patience=patience),
        metric="ff1",
        items=7,
        score=score,
        lower=lower,
    )
    result = fit(model, make, make_options(**changes), folder, evaluation)
    return Evaluated(result, flatten_weights(model), evaluated)


def test_the_model_ends_with_the_weights_of_the_best_checkpoint(tmp_path):
    run = train_and_evaluate(tmp_path, every=4, scores=[0.2, 0.5, 0.5])
    assert run.result["steps"] == 10
    best = {"step": 8, "metric": "ff1", "score": 0.5, "split": "dev", "items": 7}
    assert run.result["best"] == best
    assert torch.equal(run.weights, run.evaluated[1])
    assert read_curve(tmp_path, "eval_ff1") == [(4, 0.2), (8, 0.5), (10, 0.5)]
    checkpoints = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert checkpoints == {"checkpoint-8", "checkpoint-10"}
    again = train_and_evaluate(tmp_path, every=4, scores=[])
    assert again.result == run.result
    assert torch.equal(again.weights, run.weights)
    assert not again.evaluated


def test_evaluation_does_not_change_the_training(tmp_path):
    _, expected = train(tmp_path / "without")
    run = train_and_evaluate(tmp_path / "with", every=4, scores=[0.2, 0.5, 0.5])
    assert torch.equal(run.evaluated[-1], expected)
    assert read_curve(tmp_path / "with", "loss") == read_curve(tmp_path / "without", "loss")


def test_a_killed_run_remembers_the_best(tmp_path):
    """The score rises and falls; the kill at step 5 comes after the evaluation of step 4, and before
    the next one."""
    whole = train_and_evaluate(tmp_path / "whole", lower=True)
    kill(train_and_evaluate, tmp_path / "killed", 5, lower=True)
    resumed = train_and_evaluate(tmp_path / "killed", lower=True)
    assert resumed.result["best"] == whole.result["best"]
    assert torch.equal(resumed.weights, whole.weights)
    scores = read_curve(tmp_path / "killed", "eval_ff1")
    assert scores == read_curve(tmp_path / "whole", "eval_ff1")


def test_patience_ends_training_for_good(tmp_path):
    scores = [0.1, 0.3, 0.2, 0.3, 0.9]
    run = train_and_evaluate(tmp_path, every=1, patience=2, scores=scores)
    assert run.result["best"]["step"] == 2
    assert run.result["steps"] == len(run.evaluated) == 4  # two evaluations after the best
    again = train_and_evaluate(tmp_path, every=1, patience=2, scores=[])
    assert again.result == run.result


@pytest.mark.parametrize("horizon", [None, 10])
def test_a_finished_run_is_trained_further(tmp_path, horizon):
    """A run of 5 steps becomes one of 10. With a horizon of 10 it ends with the bits of a run of 10
    steps. Without one, the schedule of the first 5 steps was shorter; the later steps have the
    rates of the longer schedule."""
    _, expected = train(tmp_path / "whole", horizon=horizon)
    train(tmp_path / "longer", steps=5, horizon=horizon)
    result, weights = train(tmp_path / "longer", horizon=horizon)
    assert result["steps"] == 10
    assert [step for step, _ in read_curve(tmp_path / "longer", "loss")] == list(range(1, 11))
    rates = read_curve(tmp_path / "longer", "learning_rate")
    expected_rates = read_curve(tmp_path / "whole", "learning_rate")
    assert rates[5:] == expected_rates[5:]
    has_horizon = horizon is not None
    assert (rates == expected_rates) == has_horizon
    assert torch.equal(weights, expected) == has_horizon


def test_a_longer_run_keeps_the_best_of_the_shorter_one_in_a_folder_that_was_moved(tmp_path):
    shorter = train_and_evaluate(tmp_path, steps=4, horizon=10, scores=[0.9, 0.1])
    moved = tmp_path.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    longer = train_and_evaluate(moved, horizon=10, scores=[0.2, 0.3, 0.4])
    assert longer.result["steps"] == 10
    assert longer.result["best"] == shorter.result["best"]
    assert torch.equal(longer.weights, shorter.weights)
