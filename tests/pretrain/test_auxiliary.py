"""Auxiliary losses: a teacher that is no part of the student, and an adversary whose gradient makes a domain unlearnt."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional
from transformers import HubertModel

from speechssl.augment.training import parse_distortions
from speechssl.config import TrainingOptions
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain import auxiliary
from speechssl.pretrain.auxiliary import (
    AdversaryOptions,
    CleanTeacher,
    DistilOptions,
    DomainAdversary,
    auxiliary_losses,
)
from speechssl.pretrain.model import HubertPretraining
from speechssl.pretrain.presets import HubertOptions, Wav2Vec2Options
from speechssl.pretrain.run import named, plain

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


def test_lambda_is_ganins():
    expected = {0.0: 0.0, 0.1: 0.46211716, 0.5: 0.98661430, 1.0: 0.99990920}  # 2 / (1 + e^(-10 p)) - 1 = tanh(5 p)
    for progress, value in expected.items():
        assert value == pytest.approx(math.tanh(5 * progress), abs=1e-7)
        found = adversary(schedule="ganin", weight=0.3)(layers(), MASK, batch(progress=progress))
        assert found["adversary_weight"].item() == pytest.approx(0.3 * value, abs=1e-6)


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("labels", ["binary", "multi"])
def test_the_classifier_learns_and_the_encoder_gets_minus_lambda_of_it(labels, frames):
    """Against the cross-entropy by hand: a classifier without any reversal."""
    model, hidden, given_batch = adversary(labels=labels, frames=frames, weight=0.7), layers(), batch()
    classifier, wanted = model.classifiers[0], torch.tensor([0, 1, 1, 0] if labels == "binary" else [0, 1, 2, 0])
    logits = classifier(hidden[2] if frames else hidden[2].mean(1, keepdim=True))
    expected = functional.cross_entropy(logits.flatten(0, 1), wanted.repeat_interleave(logits.shape[1]))
    found = model(hidden, MASK, given_batch)
    assert logits.shape[-1] == (2 if labels == "binary" else 3)
    torch.testing.assert_close(found["loss"], expected)
    right = (logits.argmax(-1) == wanted[:, None]).float().mean()
    assert found["domain_accuracy"] == pytest.approx(right.item()) and not found["domain_accuracy"].requires_grad
    straight = gradient(expected, hidden[2], *classifier.parameters())
    turned = gradient(found["loss"], hidden[2], *classifier.parameters())
    torch.testing.assert_close(turned[0], -0.7 * straight[0])
    for ours, theirs in zip(turned[1:], straight[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_every_chosen_layer_has_a_classifier_and_the_others_none():
    model, hidden = adversary(layers=(0, 2)), layers()
    assert len(model.classifiers) == 2
    found = model(hidden, MASK, batch())
    parts = [gradient(found["loss"], layer)[0] for layer in hidden]
    assert parts[1] is None and all(part.abs().max() > 0 for part in (parts[0], parts[2]))
    alone = adversary(layers=(0,))
    alone.classifiers[0].load_state_dict(model.classifiers[0].state_dict())
    torch.testing.assert_close(gradient(alone(hidden, MASK, batch())["loss"], hidden[0])[0] / 2, parts[0])  # a mean over layers


@pytest.mark.parametrize("step", [0, 1, 6, 7])
def test_alternating_trains_the_classifier_in_even_steps_and_the_encoder_in_odd_ones(step):
    model, hidden = adversary(mode="alternating", weight=0.4), layers()
    found = model(hidden, MASK, batch(step=step))
    into, *own = gradient(found["loss"], hidden[2], *model.classifiers.parameters())
    reference, plain = layers(), adversary(weight=0.4)
    expected = gradient(plain(reference, MASK, batch())["loss"], reference[2], *plain.classifiers.parameters())
    if step % 2:
        assert own == [None] * 4  # not zero, by which an optimiser would still let momentum and decay move it
        torch.testing.assert_close(into, expected[0])
    else:
        assert into is None
        for ours, theirs in zip(own, expected[1:], strict=True):
            torch.testing.assert_close(ours, theirs)


# ---- a toy whose encoder shows the domain, and no longer does


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "reversal", "alternating"])
def test_with_an_adversary_the_domain_is_chance_and_the_task_is_still_learnt(mode):
    """Four numbers, one of the class and one of the domain, through a linear encoder whose output is noisy. The classifier learns
    ten times as fast as the encoder: one that lags behind is fled from in circles."""
    torch.manual_seed(1)
    encoder, head, rng, steps = nn.Linear(4, 6), nn.Linear(6, 2), torch.Generator().manual_seed(2), 500
    adversary = DomainAdversary(6, 2, AdversaryOptions(layers=(0,), mode=mode or "reversal", width=16, weight=0.5))

    def drawn(count, rng):
        classes, domains = (torch.randint(2, (count,), generator=rng) for _ in range(2))
        x = torch.randn(count, 4, generator=rng) * 0.3
        x[:, 0] += 4.0 * domains - 2
        x[:, 1] += 2.0 * classes - 1
        return encoder(x) + 0.5 * torch.randn(count, 6, generator=rng), classes, domains

    optimiser, accuracies = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1), []
    if mode:
        optimiser.add_param_group({"params": adversary.parameters(), "lr": 1.0, "weight_decay": 0.01})
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for step in range(steps):
        code, classes, domains = drawn(64, rng)
        loss = functional.cross_entropy(head(code), classes)
        if mode:
            found = adversary([code[:, None]], None, batch(domains.tolist(), step / steps, step))
            loss, accuracies = loss + found["loss"], [*accuracies, float(found["domain_accuracy"])]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        (code, _, before), (other, classes, after) = drawn(2000, rng), drawn(2000, rng)
    domain = LogisticRegression().fit(code, before).score(other, after)  # a fresh classifier
    assert (head(other).argmax(1) == classes).float().mean() > 0.95
    assert domain < 0.6 if mode else domain > 0.95
    if mode:  # the classifier knew, and was misled
        assert np.mean(accuracies[-50:]) < 0.6 and max(accuracies) > 0.95


# ---- the clean teacher, and what is added

HIDDEN = torch.zeros(2, 20, dtype=torch.bool)
HIDDEN[:, 4:12] = True


def speech(seed=0):
    return torch.randn(2, 400 + 19 * 320, generator=torch.Generator().manual_seed(seed))


def states(model, samples, mask=None):
    return training_states(model, samples, mask)[1]


def test_a_student_that_is_the_teacher_and_gets_the_same_has_no_distance(quiet):
    student, teacher = quiet().train(), CleanTeacher(quiet(), (0, 1, 2), weight=3.0)
    found = teacher(states(student, speech()), torch.zeros_like(HIDDEN), {"clean_samples": speech()})
    assert found["loss"] == found["distillation"] == 0
    noisy = teacher(states(student, speech() + 0.5 * speech(1)), torch.zeros_like(HIDDEN), {"clean_samples": speech()})
    assert noisy["distillation"] > 0.01
    torch.testing.assert_close(noisy["loss"], 3 * noisy["distillation"])


def test_the_distance_is_in_variances_and_of_the_chosen_layers(quiet):
    """By hand; what the teacher's mean would get is 1."""
    teacher, student = CleanTeacher(quiet(), (1, 2)), states(quiet(), speech(1))
    wanted, seen = states(quiet().eval(), speech()), ~HIDDEN
    parts = [(student[i][seen] - wanted[i][seen]).square().mean() / wanted[i][seen].var(0, unbiased=False).mean() for i in range(3)]
    found = teacher(student, HIDDEN, {"clean_samples": speech()})
    torch.testing.assert_close(found["loss"], (parts[1] + parts[2]) / 2)
    means = [w[seen].mean(0).expand_as(w) for w in wanted]
    assert teacher(means, HIDDEN, {"clean_samples": speech()})["loss"].item() == pytest.approx(1.0, abs=1e-5)


def test_hidden_frames_do_not_count(quiet):
    teacher, student = CleanTeacher(quiet(), (2,)), [x.detach().requires_grad_() for x in states(quiet(), speech(1))]
    teacher(student, HIDDEN, {"clean_samples": speech()})["loss"].backward()
    assert student[2].grad[HIDDEN].abs().max() == 0 and student[2].grad[~HIDDEN].abs().min(1)[0].max() > 0
    student[2].grad = None
    nothing = teacher(student, torch.ones_like(HIDDEN), {"clean_samples": speech()})["loss"]
    nothing.backward()
    assert nothing == 0 and student[2].grad.abs().max() == 0


def test_the_teacher_is_no_part_of_the_student_and_is_not_trained(quiet):
    extra = CleanTeacher(quiet().train(), (0, 1, 2))
    model = HubertPretraining(quiet(), 5, width=8, auxiliary=[extra]).train()
    assert len(model.auxiliary) == 1 and not any("auxiliary" in name for name in model.state_dict())
    assert not list(extra.parameters()) and not extra.hidden[0].training
    before = {name: value.clone() for name, value in extra.hidden[0].state_dict().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = model(speech(1), torch.zeros_like(HIDDEN, dtype=torch.long), HIDDEN, clean_samples=speech())
    found["loss"].backward()
    optimiser.step()
    assert all(torch.equal(value, before[name]) for name, value in extra.hidden[0].state_dict().items())
    assert all(weight.grad is None for weight in extra.hidden[0].parameters())
    assert not torch.equal(
        model.encoder.encoder.layers[0].final_layer_norm.weight, before["encoder.layers.0.final_layer_norm.weight"]
    )


def test_processes_that_share_a_batch_have_its_distance_and_gradient(quiet, monkeypatch):
    """Two processes with unequal numbers of seen frames, played one after the other until what they tell each other stands."""
    mask = HIDDEN.clone()
    mask[1, 2:18] = True
    teacher, student = CleanTeacher(quiet(), (2,)), [x.detach() for x in states(quiet(), speech(1))]

    def play(rows):
        own = [x[rows].clone().requires_grad_() for x in student]
        loss = teacher(own, mask[rows], {"clean_samples": speech()[rows]})["loss"]
        return loss, torch.autograd.grad(loss, own[2])[0]

    whole, expected = play(slice(0, 2))
    sent, halves = [[], []], [None, None]

    def mean(number, calls):
        def of_both(value):
            place = next(calls)
            sent[number][place:] = [value.detach().float().clone(), *sent[number][place + 1 :]]
            other = sent[1 - number]
            return (value + other[place]) / 2 if place < len(other) else value.float()

        return of_both

    monkeypatch.setattr(auxiliary, "processes", lambda: 2)
    for number in (0, 1) * 4:  # each round makes one more of the three numbers right
        monkeypatch.setattr(auxiliary, "mean_of_processes", mean(number, iter(range(9))))
        halves[number] = play(slice(number, number + 1))
    torch.testing.assert_close((halves[0][0] + halves[1][0]) / 2, whole)
    torch.testing.assert_close(torch.cat([halves[0][1], halves[1][1]]) / 2, expected)


NOISE = parse_distortions("g+b")


@pytest.fixture(scope="module")
def folder(hubert_folder):
    return str(hubert_folder("layer"))


def added(folder, **options):
    everything = {"start": folder, "distort": NOISE, "distil": None, "adversary": None} | options
    return auxiliary_losses(HubertModel.from_pretrained(folder), **everything)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distort": None, "distil": DistilOptions()}, "--distil and --domain-adversary need distorted speech; give --dis"),
        ({"distort": None, "adversary": AdversaryOptions()}, "need distorted speech; give --distort"),
        (
            {"start": None, "distil": DistilOptions()},
            "--distil compares with the encoder that training starts from; give one with --start",
        ),
        ({"distil": DistilOptions(1.0, (1, 3))}, "the encoder has the layers 0 to 2, not 1, 3; choose among them"),
        ({"adversary": AdversaryOptions(layers=(-1,))}, "the encoder has the layers 0 to 2, not -1; choose among them"),
        ({"adversary": AdversaryOptions("both")}, "domain-adversarial training has no labels 'both'; choose .* or "),
        ({"adversary": AdversaryOptions(mode="swapped")}, "has no mode 'swapped'; choose .* or "),
        ({"adversary": AdversaryOptions(schedule="linear")}, "has no schedule 'linear'; choose .* or "),
    ],
)
def test_what_cannot_be_added_is_refused(folder, options, message):
    with pytest.raises(InputError, match=message):
        added(folder, **options)


def test_by_default_all_layers_are_taught_and_the_classifier_reads_the_last(folder):
    assert added(folder) == [] == added(folder, distort=None)
    teacher, adversary = added(folder, distil=DistilOptions(2.0), adversary=AdversaryOptions("multi"))
    assert teacher.layers == (0, 1, 2) and teacher.weight == 2.0
    assert adversary.options.layers == (2,) and len(adversary.classifiers) == 1 and adversary.classes == 3
    teacher, adversary = added(folder, distil=DistilOptions(1.0, (1,)), adversary=AdversaryOptions("binary", (0, 1)))
    assert teacher.layers == (1,) and adversary.options.layers == (0, 1) and adversary.classes == 2


def test_a_card_names_what_was_used_and_not_where_it_lay():
    options = HubertOptions(TrainingOptions(2, 1e-3), "/home/me/exp/one/encoder", codebook="k.safetensors", distort=NOISE)
    assert plain(options)["teacher"] == "/home/me/exp/one/encoder" and plain(options)["distort"] == NOISE.card
    found = named(options)
    assert found["teacher"] == "one/encoder" and found["codebook"] == "k.safetensors" and "start" not in found
    assert not {"distil", "adversary", "size"} & set(found)
    assert named(HubertOptions(TrainingOptions(2, 1e-3)))["teacher"] == "mfcc"
    assert named(Wav2Vec2Options(TrainingOptions(2, 1e-3), start="facebook/wav2vec2-base"))["start"] == "facebook/wav2vec2-base"
