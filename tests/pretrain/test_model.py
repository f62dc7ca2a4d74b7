"""The models of pre-training: masks, losses and gradients beside those of transformers, and the
auxiliary losses."""

import copy
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from transformers import Wav2Vec2Config, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.encoders.hubert import training_states
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.pretrain import model as room
from speechssl.pretrain.data import Cropper, LabelledAudio, equalise_masks, span_mask
from speechssl.pretrain.model import (
    CleanTeacher,
    ContrastiveBatches,
    DomainAdversary,
    HubertPretraining,
    Wav2Vec2Pretraining,
    draw_negatives,
    final_states,
    save_pretraining,
    temperature,
)
from speechssl.pretrain.options import Adversary, Batches, Convolutions, Masks, Prediction
from speechssl.timing import FrameGrid

from .conftest import CONVOLUTIONS, QUIET, TINY, contrast

GRID = FrameGrid(16_000, 320, 400)


# ---- masks


@pytest.mark.parametrize("probability", [0.1, 0.65, 0.8])
def test_the_share_that_is_hidden(probability):
    """A frame is seen when none of the ten places whose spans would cover it was drawn."""
    rng = np.random.default_rng(0)
    shares = [span_mask(rng, 1_000, probability, 10).mean() for _ in range(200)]
    assert np.mean(shares) == pytest.approx(1 - (1 - probability / 10) ** 10, abs=0.01)


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(20, 300), st.floats(0.1, 0.8), st.integers(0, 10**6))
def test_rows_are_cut_to_as_many_masked_frames_as_the_row_with_fewest(
    rows, frames, probability, seed
):
    rng = np.random.default_rng(seed)
    masks = np.stack([span_mask(rng, frames, probability, 10) for _ in range(rows)])
    cut = equalise_masks(rng, masks)
    assert set(cut.sum(axis=1)) == {masks.sum(axis=1).min()}
    assert not (cut & ~masks).any()


# ---- HuBERT


def hubert_model(encoder, clusters=3, visible_weight=1.0, penalty=10.0, auxiliary=()):
    prediction = Prediction(visible_weight=visible_weight, projection=8)
    return HubertPretraining(encoder, clusters, prediction, Convolutions(penalty, 1.0), auxiliary)


def toy_batch(seed=0):
    """Three sounds that alternate, labelled by which it is, and half the frames hidden."""
    rng, at = np.random.default_rng(seed), np.arange(GRID.samples_for(50))
    labels = np.repeat(rng.integers(0, 3, (4, 10)), 5, axis=1)
    tones = np.sin(at * np.array([0.05, 0.4, 1.2])[:, None])
    owner = np.clip((at - GRID.offset) // GRID.hop, 0, 49)
    samples = tones[labels[:, owner], at] + 0.05 * rng.standard_normal((4, len(at)))
    mask = torch.from_numpy(np.stack([span_mask(rng, 50, 0.5, 5) for _ in range(4)]))
    made = {"samples": torch.from_numpy(samples).float(), "labels": torch.from_numpy(labels)}
    return made | {"mask": mask}


@pytest.mark.parametrize("visible_weight", [0.0, 1.0])
def test_the_loss_is_that_of_transformers_hidden_states(quiet, visible_weight):
    encoder, inputs = quiet().train(), toy_batch()
    model = hubert_model(encoder, visible_weight=visible_weight)
    found = model(**inputs)
    output = encoder(inputs["samples"], mask_time_indices=inputs["mask"])
    vectors = model.project(output.last_hidden_state)
    cosines = functional.cosine_similarity(vectors[:, :, None], model.labels[None, None], dim=-1)
    mask, right = inputs["mask"], inputs["labels"]
    masked, visible = (functional.cross_entropy(cosines[m] / 0.1, right[m]) for m in (mask, ~mask))
    penalty = encoder.feature_extractor(inputs["samples"]).square().mean()
    expected = (masked + visible_weight * visible) / (1 + visible_weight) + 10 * penalty
    torch.testing.assert_close(found["loss"], expected, atol=1e-5, rtol=1e-5)
    hits = (cosines.argmax(-1) == right).float()
    assert found["masked_accuracy"] == pytest.approx(float(hits[mask].mean()))
    assert found["visible_accuracy"] == pytest.approx(float(hits[~mask].mean()))


def test_frames_without_a_label_do_not_count(quiet):
    """As if neither they nor their logits were there."""
    model, inputs = (hubert_model(quiet().eval(), penalty=0.0), toy_batch())
    labels = inputs["labels"].clone()
    labels[:, 20:] = -1
    found = model(**inputs | {"labels": labels})
    _, layers = training_states(model.encoder, inputs["samples"], inputs["mask"])
    hidden, mask = final_states(model.encoder, layers[-1])[:, :20], inputs["mask"][:, :20]
    expected = model.predict(hidden, labels[:, :20], mask)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    none = model(**inputs | {"labels": torch.full_like(labels, -1)})
    assert none["loss"] == none["masked_accuracy"] == 0
    for mask in (torch.ones_like(inputs["mask"]), torch.zeros_like(inputs["mask"])):
        assert torch.isfinite(model(**inputs | {"mask": mask})["loss"])


# ---- wav2vec 2.0


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return len(a) == len(b) and all(map(torch.equal, a.values(), b.values()))


FIVE = contrast(codebooks=2, entries=5, width=16, dropout=0.0)
FREE = Convolutions(feature_penalty=0.0, gradient_scale=1.0)


def config(norm="layer"):
    heads = {"num_codevector_groups": 2, "num_codevectors_per_group": 5}
    heads |= {"codevector_dim": 16, "proj_codevector_dim": 16}
    norms = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer"}
    return Wav2Vec2Config(**QUIET | TINY | heads | norms)


def pair(norm="layer", convolutions=FREE):
    """transformers' model and ours with the same weights, which share none."""
    torch.manual_seed(0)
    theirs = Wav2Vec2ForPreTraining(config(norm)).train()
    ours = Wav2Vec2Pretraining(copy.deepcopy(theirs.wav2vec2), FIVE, convolutions)
    for name in ("quantizer", "project_q", "project_hid"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    return theirs, ours


def inputs(rows=3, frames=50, seed=0, negatives=7):
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal((rows, GRID.samples_for(frames))).astype(np.float32)
    samples *= np.sin(np.linspace(0, 6, samples.shape[1], dtype=np.float32)) + 1.1  # not all alike
    mask = np.zeros((rows, frames), bool)
    for row in mask:
        row[rng.choice(frames, 20, replace=False)] = True
    made = {"samples": samples, "mask": mask, "negatives": draw_negatives(rng, rows, 20, negatives)}
    made = {name: torch.from_numpy(value) for name, value in made.items()}
    return made | {"temperature": torch.tensor(1.3)}


def in_frames(made):
    """(B, T, K) negatives as transformers numbers them: frames of the whole batch."""
    rows, frames = made["mask"].shape
    found = torch.zeros(rows, frames, made["negatives"].shape[-1], dtype=torch.long)
    for i, mask in enumerate(made["mask"]):
        found[i, mask] = i * frames + mask.nonzero()[:, 0][made["negatives"][i]]
    return found


@pytest.fixture
def fixed_noise(monkeypatch):
    """Gumbel noise that belongs to the frame, however many frames are quantised at once."""

    def use(mask, noise=None):
        if noise is None:
            uniform = torch.rand(*mask.shape, 2, 5, generator=torch.Generator().manual_seed(3))
            noise = -(-uniform.clamp(1e-6).log()).log()

        def gumbel_softmax(logits, tau=1, hard=False, dim=-1):
            here = noise if logits.numel() == noise.numel() else noise[mask]
            soft = ((logits + here.reshape(logits.shape)) / tau).softmax(dim)
            chosen = functional.one_hot(soft.argmax(-1), 5).float()
            return chosen - soft.detach() + soft if hard else soft

        monkeypatch.setattr(functional, "gumbel_softmax", gumbel_softmax)
        return noise

    return use


def gradients(model, loss):
    """By transformers' names."""
    model.zero_grad()
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {re.sub(r"^encoder\.", "wav2vec2.", name): grad for name, grad in found.items()}


def check_gradients(found, expected, **bounds):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, **bounds), name


def of_transformers(theirs, made):
    given = {"mask_time_indices": made["mask"], "sampled_negative_indices": in_frames(made)}
    return theirs(made["samples"], **given)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_loss_and_gradients_are_those_of_transformers(norm, fixed_noise):
    theirs, ours = pair(norm)
    made = inputs()
    fixed_noise(made["mask"])
    theirs.set_gumbel_temperature(1.3)
    expected = of_transformers(theirs, made)
    found, hidden = ours(**made), int(made["mask"].sum())
    contrastive = expected.contrastive_loss.item() / hidden
    assert found["contrastive_loss"].item() == pytest.approx(contrastive, rel=1e-5)
    diversity = (found["loss"] - found["contrastive_loss"]) / FIVE.diversity
    assert diversity.item() == pytest.approx(expected.diversity_loss.item() / hidden, abs=2e-5)
    assert found["loss"].item() == pytest.approx(expected.loss.item() / hidden, rel=1e-5)
    right, mine = gradients(theirs, expected.loss / hidden), gradients(ours, found["loss"])
    assert len(mine) > 40
    check_gradients(mine, right, atol=2e-5, rtol=2e-3)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_hard_choices_are_those_of_transformers_where_negatives_equal_the_positive(norm):
    theirs, ours = pair(norm)
    theirs.eval(), ours.eval()
    made = inputs(negatives=40)
    with torch.no_grad():
        expected, found = of_transformers(theirs, made), ours(**made)
        features = ours.encoder.feature_extractor(made["samples"]).transpose(1, 2)[made["mask"]]
        codes = ours.quantise(features).codes.unflatten(0, (3, 20))
    of_negatives = torch.stack(
        [row[some] for row, some in zip(codes, made["negatives"], strict=True)]
    )
    again = (of_negatives == codes[:, :, None]).all(-1)
    assert 0.02 < again.float().mean() < 0.9  # negatives that are the positive once more
    contrastive = expected.contrastive_loss.item() / 60
    assert found["contrastive_loss"].item() == pytest.approx(contrastive, rel=1e-5)
    perplexity = expected.codevector_perplexity.item()
    assert found["code_perplexity"].item() * 2 == pytest.approx(perplexity, abs=1e-3)


def test_the_gradient_into_the_convolutions_is_a_tenth(fixed_noise):
    made = inputs()
    fixed_noise(made["mask"])
    _, whole = pair(convolutions=Convolutions(10.0, 1.0))
    _, tenth = pair(convolutions=CONVOLUTIONS)
    full, less = (gradients(model, model(**made)["loss"]) for model in (whole, tenth))
    for name, gradient in full.items():
        factor = 0.1 if "feature_extractor" in name else 1.0
        torch.testing.assert_close(less[name], factor * gradient, atol=1e-6, rtol=1e-4)


def test_targets_of_distorted_speech_are_those_of_the_clean(fixed_noise):
    _, ours = pair()
    made, clean = inputs(), inputs(seed=1)["samples"]
    fixed_noise(made["mask"])
    quantised, quantise = [], ours.quantise
    ours.quantise = lambda features, tau: quantised.append(features) or quantise(features, tau)
    found, plain = ours(**made, clean_samples=clean), ours(**made)
    expected = ours.encoder.feature_extractor(clean).transpose(1, 2)[made["mask"]]
    torch.testing.assert_close(quantised[0], expected.unflatten(0, (3, -1)))
    assert quantised[0].requires_grad
    assert not torch.equal(quantised[0], quantised[1])
    assert found["contrastive_loss"] != plain["contrastive_loss"]
    assert found["feature_penalty"] == plain["feature_penalty"]
    same = ours(**made, clean_samples=made["samples"])
    torch.testing.assert_close(same["loss"], plain["loss"])


def test_processes_that_share_a_batch_have_its_loss_and_gradient(monkeypatch, fixed_noise):
    """Two processes are played one after the other: what they would average is known from a first
    round."""
    _, ours = pair(convolutions=CONVOLUTIONS)
    made = inputs(rows=4)
    noise = fixed_noise(made["mask"])
    whole = ours(**made)
    expected, sent = gradients(ours, whole["loss"]), [[], []]
    monkeypatch.setattr(room, "processes", lambda: 2)

    def play(mean):
        losses = []
        for number in (0, 1):
            half = {name: x[number::2] if x.ndim else x for name, x in made.items()}
            fixed_noise(half["mask"], noise[number::2])
            calls = iter(range(100))
            monkeypatch.setattr(
                room, "mean_of_processes", lambda x, n=number, c=calls: mean(n, next(c), x)
            )
            losses.append(ours(**half))
        return losses

    # equal counts: the other values are right too
    play(lambda number, call, x: sent[number].append(x.detach().clone()) or x)
    means = [(a + b) / 2 for a, b in zip(*sent, strict=True)]
    assert len(means) > 4
    one, other = play(lambda number, call, x: means[call])
    for name, value in whole.items():
        if name in ("loss", "feature_penalty", "code_perplexity") or "contrastive" in name:
            torch.testing.assert_close((one[name] + other[name]) / 2, value, atol=1e-5, rtol=1e-4)
    found = gradients(ours, (one["loss"] + other["loss"]) / 2)
    check_gradients(found, expected, atol=1e-5, rtol=1e-4)


def crops(frames=100, **changes):
    samples = np.random.default_rng(0).integers(-3000, 3000, 90_000).astype(np.int16)
    bounds = np.cumsum([0, GRID.frames(40_000), GRID.frames(50_000)])
    labels, cuts = np.zeros(bounds[-1], np.int16), np.array([0, 40_000, 90_000])
    data = LabelledAudio(samples, cuts, labels, bounds)
    return Cropper(data, GRID, Masks(0.65, 10), Batches(4, frames / 50), **changes)


def test_all_others_are_drawn_alike():
    drawn = draw_negatives(np.random.default_rng(0), 1, 5, 40_000)[0]
    for own, row in enumerate(drawn):
        shares = np.bincount(row, minlength=5) / 40_000
        assert shares[own] == 0
        assert np.delete(shares, own) == pytest.approx(0.25, abs=0.01)


def test_the_temperature_counts_updates_not_batches():
    fast = contrast(temperature_decay=0.5, temperature_floor=0.4)
    make = ContrastiveBatches(crops(), fast, accumulation=2)
    found = [make(step)["temperature"].item() for step in (0, 1, 2, 3, 4, 5, 9)]
    assert found == pytest.approx([2, 2, 1, 1, 0.5, 0.5, 0.4])
    assert temperature(contrast(), 100_000) == pytest.approx(2 * 0.999995**100_000)
    assert temperature(contrast(), 10**6) == 0.5


SIX = contrast(codebooks=2, entries=6, width=12, kappa=0.2, diversity=0.3, dropout=0.05)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Wav2Vec2Pretraining(Wav2Vec2Model(config()), SIX, CONVOLUTIONS, normalise=False)


@pytest.fixture
def folder(model, tmp_path):
    save_pretraining(model, tmp_path / "saved")
    return tmp_path / "saved"


def test_transformers_reads_what_is_saved(model, folder):
    theirs, info = Wav2Vec2ForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert same(theirs.wav2vec2, model.encoder)
    assert same(theirs.project_q, model.project_q)
    for name, value in model.quantizer.state_dict().items():
        assert torch.equal(theirs.quantizer.state_dict()[name], value)
    assert theirs.config.num_codevectors_per_group == 6
    assert theirs.config.contrastive_logits_temperature == 0.2
    assert json.loads((folder / "preprocessor_config.json").read_text())["do_normalize"] is False
    assert same(load_checkpoint(folder).model, model.encoder)
    assert load_encoder(folder).normalise is False


# ---- auxiliary losses: a teacher that is no part of the student, and an adversary whose gradient
# makes a domain unlearnt

ADVERSARY = Adversary("binary", domain_adversary_schedule="constant", domain_adversary_width=8)


MASK = torch.zeros(4, 6, dtype=torch.bool)


def batch(progress=0.5, step=0):
    made = {"domains": (0, 1, 2, 0), "progress": progress, "step": step}
    return {name: torch.tensor(value) for name, value in made.items()}


def layers(seed=0, count=3):
    """(4, 6, 5) each, leaves of the graph."""
    drawn = torch.randn(count, 4, 6, 5, generator=torch.Generator().manual_seed(seed))
    return [layer.clone().requires_grad_() for layer in drawn]


def adversary(domains=3, labels="binary", **changes):
    changes = {f"domain_adversary_{name}": value for name, value in changes.items()}
    torch.manual_seed(0)
    return DomainAdversary(5, domains, replace(ADVERSARY, domain_adversary=labels, **changes))


def gradient(loss, *of):
    return torch.autograd.grad(loss, of, allow_unused=True)


@pytest.mark.parametrize("labels", ["binary", "multi"])
def test_the_classifier_learns_and_the_encoder_gets_minus_lambda_of_it(labels):
    """Against the cross-entropy by hand: a classifier without any reversal."""
    model, hidden, given_batch = adversary(labels=labels, weight=0.7), layers(), batch()
    classifier = model.classifier
    wanted = torch.tensor([0, 1, 1, 0] if labels == "binary" else [0, 1, 2, 0])
    logits = classifier(hidden[2].mean(1))
    expected = functional.cross_entropy(logits, wanted)
    found = model(hidden, MASK, given_batch)
    # Ganin's lambda: 2 / (1 + e^(-10 p)) - 1 = tanh(5 p)
    ganin = adversary(schedule="ganin", weight=0.3)(layers(), MASK, batch(progress=0.1))
    assert ganin["adversary_weight"].item() == pytest.approx(0.3 * math.tanh(0.5), abs=1e-6)
    assert logits.shape[-1] == (2 if labels == "binary" else 3)
    torch.testing.assert_close(found["loss"], expected)
    right = (logits.argmax(-1) == wanted).float().mean()
    assert found["domain_accuracy"] == pytest.approx(right.item())
    assert not found["domain_accuracy"].requires_grad
    straight = gradient(expected, hidden[2], *classifier.parameters())
    turned = gradient(found["loss"], hidden[2], *classifier.parameters())
    torch.testing.assert_close(turned[0], -0.7 * straight[0])
    for ours, theirs in zip(turned[1:], straight[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("step", [0, 7])
def test_alternating_trains_the_classifier_in_even_steps_and_the_encoder_in_odd_ones(step):
    def gradients(model):
        hidden = layers()
        loss = model(hidden, MASK, batch(step=step))["loss"]
        return gradient(loss, hidden[2], *model.classifier.parameters())

    into, *own = gradients(adversary(mode="alternating", weight=0.4))
    expected, *theirs = gradients(adversary(weight=0.4))
    if step % 2:
        # not zero, by which an optimiser would still let momentum and decay move it
        assert own == [None] * 4
        torch.testing.assert_close(into, expected)
    else:
        assert into is None
        torch.testing.assert_close(own, theirs)


HIDDEN = torch.zeros(2, 20, dtype=torch.bool)
HIDDEN[:, 4:12] = True


def speech(seed=0):
    return torch.randn(2, 400 + 19 * 320, generator=torch.Generator().manual_seed(seed))


def states(model, samples, mask=None):
    return training_states(model, samples, mask)[1]


def test_the_distance_is_in_variances_and_of_all_layers(quiet):
    """By hand; what the teacher's mean would get is 1."""
    teacher, student = CleanTeacher(quiet()), states(quiet(), speech(1))
    wanted, seen, parts = states(quiet().eval(), speech()), ~HIDDEN, []
    for own, other in zip(student, wanted, strict=True):
        variance = other[seen].var(0, unbiased=False).mean()
        parts.append((own[seen] - other[seen]).square().mean() / variance)
    found = teacher(student, HIDDEN, {"clean_samples": speech()})
    torch.testing.assert_close(found["loss"], sum(parts) / 3)
    means = [w[seen].mean(0).expand_as(w) for w in wanted]
    of_means = teacher(means, HIDDEN, {"clean_samples": speech()})["loss"].item()
    assert of_means == pytest.approx(1.0, abs=1e-5)
