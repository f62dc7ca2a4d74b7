"""Domain-adversarial training: the gradient that the encoder gets, who learns in which step, and a domain that is unlearnt."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional

from speechssl.errors import InputError
from speechssl.pretrain.adversarial import AdversaryOptions, DomainAdversary, ganin, reverse_gradient

OPTIONS = AdversaryOptions(layers=(2,), schedule="constant", width=8)
MASK = torch.zeros(4, 6, dtype=torch.bool)


def batch(domains=(0, 1, 2, 0), progress=0.5, step=0):
    return {"domains": torch.tensor(domains), "progress": torch.tensor(progress), "step": torch.tensor(step)}


def layers(seed=0, count=3):
    """(4, 6, 5) each, leaves of the graph."""
    drawn = torch.randn(count, 4, 6, 5, generator=torch.Generator().manual_seed(seed))
    return [layer.clone().requires_grad_() for layer in drawn]


def adversary(domains=3, **changes):
    torch.manual_seed(0)
    return DomainAdversary(5, domains, replace(OPTIONS, **changes))


def gradient(loss, *of):
    return torch.autograd.grad(loss, of, allow_unused=True)


# ---- the gradient


@pytest.mark.slow
@given(st.floats(0, 10), st.integers(0, 99))
def test_what_is_reversed_is_itself_and_its_gradient_times_minus_lambda(weight, seed):
    values, factor = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_(), torch.tensor(weight)
    again = reverse_gradient(values, factor)
    assert torch.equal(again, values)
    straight, turned = (gradient((x.sin() * 3).sum(), values)[0] for x in (values, again))
    torch.testing.assert_close(turned, -factor * straight)


def test_lambda_is_ganins():
    expected = {0.0: 0.0, 0.1: 0.46211716, 0.5: 0.98661430, 1.0: 0.99990920}  # 2 / (1 + e^(-10 p)) - 1 = tanh(5 p)
    for progress, value in expected.items():
        assert ganin(progress) == pytest.approx(value, abs=1e-7) == math.tanh(5 * progress)
        assert ganin(torch.tensor(progress)).item() == pytest.approx(value, abs=1e-6)
        found = adversary(schedule="ganin", weight=0.3)(layers(), MASK, batch(progress=progress))
        assert found["adversary_weight"].item() == pytest.approx(0.3 * value, abs=1e-6)


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("labels", ["binary", "multi"])
def test_the_classifier_learns_and_the_encoder_gets_minus_lambda_of_it(labels, frames):
    """Against the cross-entropy by hand: a classifier that is not told of any reversal."""
    model, heard, given_ = adversary(labels=labels, frames=frames, weight=0.7), layers(), batch()
    classifier, wanted = model.classifiers[0], torch.tensor([0, 1, 1, 0] if labels == "binary" else [0, 1, 2, 0])
    logits = classifier(heard[2] if frames else heard[2].mean(1, keepdim=True))
    expected = functional.cross_entropy(logits.flatten(0, 1), wanted.repeat_interleave(logits.shape[1]))
    found = model(heard, MASK, given_)
    assert logits.shape[-1] == (2 if labels == "binary" else 3)
    torch.testing.assert_close(found["loss"], expected)
    right = (logits.argmax(-1) == wanted[:, None]).float().mean()
    assert found["domain_accuracy"] == pytest.approx(right.item()) and not found["domain_accuracy"].requires_grad
    straight = gradient(expected, heard[2], *classifier.parameters())
    turned = gradient(found["loss"], heard[2], *classifier.parameters())
    torch.testing.assert_close(turned[0], -0.7 * straight[0])
    for ours, theirs in zip(turned[1:], straight[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_every_chosen_layer_has_a_classifier_and_the_others_none():
    model, heard = adversary(layers=(0, 2)), layers()
    assert len(model.classifiers) == 2
    found = model(heard, MASK, batch())
    parts = [gradient(found["loss"], layer)[0] for layer in heard]
    assert parts[1] is None and all(part.abs().max() > 0 for part in (parts[0], parts[2]))
    alone = adversary(layers=(0,))
    alone.classifiers[0].load_state_dict(model.classifiers[0].state_dict())
    torch.testing.assert_close(gradient(alone(heard, MASK, batch())["loss"], heard[0])[0] / 2, parts[0])  # a mean over layers


@pytest.mark.parametrize("step", [0, 1, 6, 7])
def test_alternating_trains_the_classifier_in_even_steps_and_the_encoder_in_odd_ones(step):
    model, heard = adversary(mode="alternating", weight=0.4), layers()
    found = model(heard, MASK, batch(step=step))
    into, *own = gradient(found["loss"], heard[2], *model.classifiers.parameters())
    reference, plain = layers(), adversary(weight=0.4)
    expected = gradient(plain(reference, MASK, batch())["loss"], reference[2], *plain.classifiers.parameters())
    if step % 2:
        assert own == [None] * 4  # not zero, by which an optimiser would still let momentum and decay move it
        torch.testing.assert_close(into, expected[0])
    else:
        assert into is None
        for ours, theirs in zip(own, expected[1:], strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("change", [{"labels": "both"}, {"mode": "swapped"}, {"schedule": "linear"}])
def test_what_there_is_not_is_refused(change):
    (name, value), *_ = change.items()
    with pytest.raises(InputError, match=f"domain-adversarial training has no {name} '{value}'; choose .* or "):
        adversary(**change)


# ---- a toy that hears in which domain it is


class Toy(nn.Module):
    """Four numbers, one that says the class and one the domain, through a linear encoder whose output is noisy."""

    def __init__(self, options):
        super().__init__()
        torch.manual_seed(1)
        self.encoder, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
        self.adversary = DomainAdversary(6, 2, options) if options else None

    def encode(self, x, rng):
        return self.encoder(x) + 0.5 * torch.randn(len(x), 6, generator=rng)


def heard(rng, count):
    classes, domains = (torch.randint(2, (count,), generator=rng) for _ in range(2))
    x = torch.randn(count, 4, generator=rng) * 0.3
    x[:, 0] += 4.0 * domains - 2
    x[:, 1] += 2.0 * classes - 1
    return x, classes, domains


def trained(options, steps=500):
    """The classifier learns ten times as fast as the encoder: one that lags behind is fled from in circles."""
    model, rng = Toy(options), torch.Generator().manual_seed(2)
    optimiser, accuracies = torch.optim.SGD([*model.encoder.parameters(), *model.head.parameters()], lr=0.1), []
    if options:
        optimiser.add_param_group({"params": model.adversary.parameters(), "lr": 1.0, "weight_decay": 0.01})
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for step in range(steps):
        x, classes, domains = heard(rng, 64)
        code = model.encode(x, rng)
        loss = functional.cross_entropy(model.head(code), classes)
        if options:
            found = model.adversary([code[:, None]], None, batch(domains.tolist(), step / steps, step))
            loss, accuracies = loss + found["loss"], [*accuracies, float(found["domain_accuracy"])]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model, accuracies


def probed(model):
    """How well a fresh classifier tells the domains by what the encoder gives, and the head the classes."""
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        (a, _, before), (b, classes, after) = heard(rng, 2000), heard(rng, 2000)
        probe = LogisticRegression().fit(model.encode(a, rng), before)
        code = model.encode(b, rng)
        return probe.score(code, after), float((model.head(code).argmax(1) == classes).float().mean())


@pytest.mark.slow
def test_without_an_adversary_the_domain_is_heard():
    domain, task = probed(trained(None)[0])
    assert domain > 0.95 and task > 0.95


@pytest.mark.parametrize("mode", ["reversal", "alternating"])
def test_with_one_it_is_chance_and_the_task_is_still_learnt(mode):
    model, accuracies = trained(AdversaryOptions(layers=(0,), mode=mode, width=16, weight=0.5))
    domain, task = probed(model)
    assert domain < 0.6 and task > 0.95
    assert np.mean(accuracies[-50:]) < 0.6 and max(accuracies) > 0.95  # the classifier knew, and was misled
