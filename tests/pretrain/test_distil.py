"""The clean teacher: no part of the student, only frames that the student sees count; and what auxiliary losses need."""

import pytest
import torch
from transformers import HubertModel

import speechssl.pretrain.distil as distillation
from speechssl.augment.training import parse_distortions
from speechssl.config import TrainingOptions
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain.adversarial import AdversaryOptions
from speechssl.pretrain.distil import CleanTeacher, DistilOptions, auxiliary_losses
from speechssl.pretrain.hubert import HubertPretraining
from speechssl.pretrain.run import HubertOptions, Wav2Vec2Options, named, plain

MASK = torch.zeros(2, 20, dtype=torch.bool)
MASK[:, 4:12] = True


@pytest.fixture(scope="module")
def hubert(hubert_folder):
    """A function () -> a fresh tiny HuBERT without dropout, always of the same weights."""
    quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "feat_proj_dropout": 0.0, "activation_dropout": 0.0}
    folder = hubert_folder("layer", layerdrop=0.0, **quiet)
    return lambda: HubertModel.from_pretrained(folder)


def speech(seed=0):
    return torch.randn(2, 400 + 19 * 320, generator=torch.Generator().manual_seed(seed))


def states(model, samples, mask=None):
    return training_states(model, samples, mask)[1]


def test_a_student_that_is_the_teacher_and_hears_the_same_has_no_distance(hubert):
    student, teacher = hubert().train(), CleanTeacher(hubert(), (0, 1, 2), weight=3.0)
    found = teacher(states(student, speech()), torch.zeros_like(MASK), {"clean_samples": speech()})
    assert found["loss"] == found["distillation"] == 0
    noisy = teacher(states(student, speech() + 0.5 * speech(1)), torch.zeros_like(MASK), {"clean_samples": speech()})
    assert noisy["distillation"] > 0.01
    torch.testing.assert_close(noisy["loss"], 3 * noisy["distillation"])


def test_the_distance_is_in_variances_and_of_the_chosen_layers(hubert):
    """By hand; what the teacher's mean would get is 1."""
    teacher, student = CleanTeacher(hubert(), (1, 2)), states(hubert(), speech(1))
    wanted, seen = states(hubert().eval(), speech()), ~MASK
    parts = [(student[i][seen] - wanted[i][seen]).square().mean() / wanted[i][seen].var(0, unbiased=False).mean() for i in range(3)]
    found = teacher(student, MASK, {"clean_samples": speech()})
    torch.testing.assert_close(found["loss"], (parts[1] + parts[2]) / 2)
    means = [w[seen].mean(0).expand_as(w) for w in wanted]
    assert teacher(means, MASK, {"clean_samples": speech()})["loss"].item() == pytest.approx(1.0, abs=1e-5)


def test_hidden_frames_do_not_count(hubert):
    teacher, student = CleanTeacher(hubert(), (2,)), [x.detach().requires_grad_() for x in states(hubert(), speech(1))]
    teacher(student, MASK, {"clean_samples": speech()})["loss"].backward()
    assert student[2].grad[MASK].abs().max() == 0 and student[2].grad[~MASK].abs().min(1)[0].max() > 0
    student[2].grad = None
    nothing = teacher(student, torch.ones_like(MASK), {"clean_samples": speech()})["loss"]
    nothing.backward()
    assert nothing == 0 and student[2].grad.abs().max() == 0


def test_the_teacher_is_no_part_of_the_student_and_is_not_trained(hubert):
    extra = CleanTeacher(hubert().train(), (0, 1, 2))
    model = HubertPretraining(hubert(), 5, width=8, auxiliary=[extra]).train()
    assert len(model.auxiliary) == 1 and not any("auxiliary" in name for name in model.state_dict())
    assert not list(extra.parameters()) and not extra.hidden[0].training
    before = {name: value.clone() for name, value in extra.hidden[0].state_dict().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = model(speech(1), torch.zeros_like(MASK, dtype=torch.long), MASK, clean_samples=speech())
    found["loss"].backward()
    optimiser.step()
    assert all(torch.equal(value, before[name]) for name, value in extra.hidden[0].state_dict().items())
    assert all(weight.grad is None for weight in extra.hidden[0].parameters())
    assert not torch.equal(
        model.encoder.encoder.layers[0].final_layer_norm.weight, before["encoder.layers.0.final_layer_norm.weight"]
    )


@pytest.mark.slow
def test_a_teacher_that_is_trained_towards_is_reached(hubert):
    student, teacher = hubert(), CleanTeacher(hubert(), (1, 2))
    optimiser, distances = torch.optim.AdamW(student.parameters(), lr=3e-3), []
    for _ in range(25):
        found = teacher(states(student, speech() + 0.5 * speech(1)), torch.zeros_like(MASK), {"clean_samples": speech()})
        optimiser.zero_grad()
        found["loss"].backward()
        optimiser.step()
        distances.append(float(found["distillation"]))
    assert distances[-1] < 0.3 * distances[0]


def test_processes_that_share_a_batch_have_its_distance_and_gradient(hubert, monkeypatch):
    """Two processes with unequal numbers of seen frames, played one after the other until what they tell each other stands."""
    mask = MASK.clone()
    mask[1, 2:18] = True
    teacher, student = CleanTeacher(hubert(), (2,)), [x.detach() for x in states(hubert(), speech(1))]

    def play(rows):
        own = [x[rows].clone().requires_grad_() for x in student]
        loss = teacher(own, mask[rows], {"clean_samples": speech()[rows]})["loss"]
        return loss, torch.autograd.grad(loss, own[2])[0]

    whole, expected = play(slice(0, 2))
    said, halves = [[], []], [None, None]

    def mean(number, calls):
        def of_both(value):
            place = next(calls)
            said[number][place:] = [value.detach().float().clone(), *said[number][place + 1 :]]
            other = said[1 - number]
            return (value + other[place]) / 2 if place < len(other) else value.float()

        return of_both

    monkeypatch.setattr(distillation, "processes", lambda: 2)
    for number in (0, 1) * 4:  # each round makes one more of the three numbers right
        monkeypatch.setattr(distillation, "mean_of_processes", mean(number, iter(range(9))))
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


def test_nothing_is_added_that_was_not_asked_for(folder):
    assert added(folder) == [] == added(folder, distort=None)


def test_by_default_all_layers_are_taught_and_the_last_is_judged(folder):
    teacher, adversary = added(folder, distil=DistilOptions(2.0), adversary=AdversaryOptions("multi"))
    assert teacher.layers == (0, 1, 2) and teacher.weight == 2.0
    assert adversary.options.layers == (2,) and len(adversary.classifiers) == 1 and adversary.classes == 3
    teacher, adversary = added(folder, distil=DistilOptions(1.0, (1,)), adversary=AdversaryOptions("binary", (0, 1)))
    assert teacher.layers == (1,) and adversary.options.layers == (0, 1) and adversary.classes == 2


@pytest.mark.parametrize("options", [{"distil": DistilOptions()}, {"adversary": AdversaryOptions()}])
def test_both_need_distorted_speech(folder, options):
    with pytest.raises(InputError, match=r"--distil and --domain-adversary need distorted speech; give --distort"):
        added(folder, distort=None, **options)


def test_a_teacher_needs_a_start(folder):
    with pytest.raises(InputError, match="--distil compares with the encoder that training starts from; give one with --start"):
        added(folder, start=None, distil=DistilOptions())


@pytest.mark.parametrize("options", [{"distil": DistilOptions(1.0, (1, 3))}, {"adversary": AdversaryOptions(layers=(-1,))}])
def test_layers_that_there_are_not_are_refused(folder, options):
    with pytest.raises(InputError, match="the encoder has the layers 0 to 2, not (1, 3|-1); choose among them"):
        added(folder, **options)


def test_a_card_names_what_was_used_and_not_where_it_lay():
    options = HubertOptions(TrainingOptions(2, 1e-3), "/home/me/exp/one/encoder", codebook="k.safetensors", distort=NOISE)
    assert plain(options)["teacher"] == "/home/me/exp/one/encoder" and plain(options)["distort"] == NOISE.card
    found = named(options)
    assert found["teacher"] == "one/encoder" and found["codebook"] == "k.safetensors" and "start" not in found
    assert not {"distil", "adversary", "size"} & set(found)
    assert named(HubertOptions(TrainingOptions(2, 1e-3)))["teacher"] == "mfcc"
    assert named(Wav2Vec2Options(TrainingOptions(2, 1e-3), start="facebook/wav2vec2-base"))["start"] == "facebook/wav2vec2-base"
