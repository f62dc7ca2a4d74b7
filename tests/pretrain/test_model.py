"""Tests of the models of pre-training: masks; losses and gradients, which are compared with those of
transformers; and the auxiliary losses."""

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
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import Wav2Vec2Config, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.encoders.hubert import compute_states
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.pretrain import model as model_module
from speechssl.pretrain.data import draw_mask, equalise_masks
from speechssl.pretrain.model import (
    CleanTeacher,
    ContrastiveBatches,
    DomainAdversary,
    HubertPretraining,
    Wav2Vec2Pretraining,
    apply_final_norm,
    draw_negatives,
    load_heads,
    save_pretraining,
)
from speechssl.pretrain.options import Adversary, Convolutions, Prediction
from speechssl.timing import FrameGrid

from ..files import refused
from .conftest import CONVOLUTIONS, NO_DROPOUT, TINY, make_contrast

GRID = FrameGrid(16_000, hop=320, receptive=400)


# ---- masks


@pytest.mark.parametrize("probability", [0.1, 0.65, 0.8])
def test_the_share_of_frames_that_is_masked(probability):
    """A frame is visible where none of the ten spans that would cover it was sampled."""
    rng = np.random.default_rng(0)
    shares = [draw_mask(rng, 1_000, probability, length=10).mean() for _ in range(200)]
    assert np.mean(shares) == pytest.approx(1 - (1 - probability / 10) ** 10, abs=0.01)


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(20, 300), st.floats(0.1, 0.8), st.integers(0, 10**6))
def test_all_rows_get_as_many_masked_frames_as_the_row_with_fewest(rows, frames, probability, seed):
    rng = np.random.default_rng(seed)
    masks = np.stack([draw_mask(rng, frames, probability, length=10) for _ in range(rows)])
    equalised = equalise_masks(rng, masks)
    assert set(equalised.sum(axis=1)) == {masks.sum(axis=1).min()}
    assert not (equalised & ~masks).any()


# ---- HuBERT


def make_hubert_pretraining(encoder, visible_weight=1.0, penalty=10.0):
    """Add heads for three clusters to an encoder."""
    prediction = Prediction(visible_weight=visible_weight, projection=8)
    convolutions = Convolutions(feature_penalty=penalty, gradient_scale=1.0)
    return HubertPretraining(encoder, 3, prediction, convolutions)


def make_labelled_batch():
    """Make a batch in which one of three tones sounds at a time, whose number is the label; half
    the frames are masked."""
    rng, at = np.random.default_rng(0), np.arange(GRID.count_samples(50))
    labels = np.repeat(rng.integers(0, 3, (4, 10)), 5, axis=1)
    tones = np.sin(at * np.array([0.05, 0.4, 1.2])[:, None])
    frame_of_sample = np.clip((at - GRID.offset) // GRID.hop, 0, 49)
    samples = tones[labels[:, frame_of_sample], at] + 0.05 * rng.standard_normal((4, len(at)))
    masks = [draw_mask(rng, frames=50, probability=0.5, length=5) for _ in range(4)]
    return {
        "samples": torch.from_numpy(samples).float(),
        "labels": torch.from_numpy(labels),
        "mask": torch.from_numpy(np.stack(masks)),
    }


@pytest.mark.parametrize("visible_weight", [0.0, 1.0])
def test_the_loss_is_that_of_transformers_hidden_states(make_hubert, visible_weight):
    encoder, batch = make_hubert().train(), make_labelled_batch()
    model = make_hubert_pretraining(encoder, visible_weight, penalty=10.0)
    outputs = model(**batch)
    mask, labels = batch["mask"], batch["labels"]
    hidden = encoder(batch["samples"], mask_time_indices=mask).last_hidden_state
    vectors = model.project(hidden)
    cosines = functional.cosine_similarity(vectors[:, :, None], model.labels[None, None], dim=-1)
    masked_loss = functional.cross_entropy(cosines[mask] / 0.1, labels[mask])
    visible_loss = functional.cross_entropy(cosines[~mask] / 0.1, labels[~mask])
    prediction_loss = (masked_loss + visible_weight * visible_loss) / (1 + visible_weight)
    penalty = encoder.feature_extractor(batch["samples"]).square().mean()
    expected = prediction_loss + 10 * penalty
    torch.testing.assert_close(outputs["loss"], expected, atol=1e-5, rtol=1e-5)
    is_right = (cosines.argmax(-1) == labels).float()
    assert outputs["masked_accuracy"] == pytest.approx(float(is_right[mask].mean()))
    assert outputs["visible_accuracy"] == pytest.approx(float(is_right[~mask].mean()))


def test_frames_without_a_label_do_not_count(make_hubert):
    model = make_hubert_pretraining(make_hubert().eval(), penalty=0.0)
    batch = make_labelled_batch()
    labels = batch["labels"].clone()
    labels[:, 20:] = -1
    outputs = model(**batch | {"labels": labels})
    _, layers = compute_states(model.encoder, batch["samples"], batch["mask"])
    hidden = apply_final_norm(model.encoder, layers[-1])
    expected = model.predict(hidden[:, :20], labels[:, :20], batch["mask"][:, :20])
    for name, value in expected.items():
        torch.testing.assert_close(outputs[name], value)


def test_the_loss_is_finite_without_labels_and_where_all_frames_or_none_are_masked(make_hubert):
    model = make_hubert_pretraining(make_hubert().eval(), penalty=0.0)
    batch = make_labelled_batch()
    outputs = model(**batch | {"labels": torch.full_like(batch["labels"], -1)})
    assert outputs["loss"] == 0
    assert outputs["masked_accuracy"] == 0
    for is_masked in (False, True):
        mask = torch.full_like(batch["mask"], is_masked)
        assert torch.isfinite(model(**batch | {"mask": mask})["loss"])


# ---- wav2vec 2.0

# G = 2 codebooks of V = 5 entries
CONTRAST = make_contrast(codebooks=2, entries=5, width=16, dropout=0.0)
NO_PENALTY = Convolutions(feature_penalty=0.0, gradient_scale=1.0)
MASKED = 20  # frames of every row


def make_config(norm="layer"):
    heads = {"num_codevector_groups": 2, "num_codevectors_per_group": 5}
    heads |= {"codevector_dim": 16, "proj_codevector_dim": 16}
    norms = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer"}
    return Wav2Vec2Config(**NO_DROPOUT | TINY | heads | norms)


def make_pair(norm="layer", convolutions=NO_PENALTY):
    """Make the model of transformers, and ours with copies of its weights."""
    torch.manual_seed(0)
    reference = Wav2Vec2ForPreTraining(make_config(norm)).train()
    model = Wav2Vec2Pretraining(copy.deepcopy(reference.wav2vec2), CONTRAST, convolutions)
    for name in ("quantizer", "project_q", "project_hid"):
        getattr(model, name).load_state_dict(getattr(reference, name).state_dict())
    return reference, model


def make_contrastive_batch(rows=3, seed=0, negatives=7):
    """Make a batch of 50 frames, of which MASKED are masked in every row."""
    rng, frames = np.random.default_rng(seed), 50
    samples = rng.standard_normal((rows, GRID.count_samples(frames))).astype(np.float32)
    # loud and soft, so that frames differ
    samples *= np.sin(np.linspace(0, 6, samples.shape[1], dtype=np.float32)) + 1.1
    mask = np.zeros((rows, frames), bool)
    for row in mask:
        row[rng.choice(frames, MASKED, replace=False)] = True
    return {
        "samples": torch.from_numpy(samples),
        "mask": torch.from_numpy(mask),
        "negatives": torch.from_numpy(draw_negatives(rng, rows, MASKED, negatives)),
        "temperature": torch.tensor(1.3),
    }


def number_negatives(batch):
    """Return the negatives (B, T, K) as transformers numbers them: by frame of the whole batch."""
    rows, frames = batch["mask"].shape
    negatives = torch.zeros(rows, frames, batch["negatives"].shape[-1], dtype=torch.long)
    for i, mask in enumerate(batch["mask"]):
        masked_frames = mask.nonzero()[:, 0]
        negatives[i, mask] = i * frames + masked_frames[batch["negatives"][i]]
    return negatives


def run_reference(reference, batch):
    """Return the outputs of transformers' model for a batch."""
    return reference(
        batch["samples"],
        mask_time_indices=batch["mask"],
        sampled_negative_indices=number_negatives(batch),
    )


@pytest.fixture
def fix_noise(monkeypatch):
    """Return a function (mask, noise) that gives every frame of a batch Gumbel noise of its own,
    since transformers quantises all frames, and we the masked ones alone. noise: (B, T, G, V); None:
    new noise, which is returned."""

    def fix(mask, noise=None):
        if noise is None:
            uniform = torch.rand(*mask.shape, 2, 5, generator=torch.Generator().manual_seed(3))
            noise = -(-uniform.clamp(1e-6).log()).log()

        def gumbel_softmax(logits, tau=1, hard=False, dim=-1):
            noise_of_frames = noise if logits.numel() == noise.numel() else noise[mask]
            soft = ((logits + noise_of_frames.reshape(logits.shape)) / tau).softmax(dim)
            one_hot = functional.one_hot(soft.argmax(-1), 5).float()
            return one_hot - soft.detach() + soft if hard else soft

        monkeypatch.setattr(functional, "gumbel_softmax", gumbel_softmax)
        return noise

    return fix


def compute_gradients(model, loss):
    """Return the gradients by the names of transformers' model."""
    model.zero_grad()
    loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradients[re.sub(r"^encoder\.", "wav2vec2.", name)] = parameter.grad
    return gradients


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_loss_and_gradients_are_those_of_transformers(norm, fix_noise):
    """transformers' losses are sums over the masked frames."""
    reference, model = make_pair(norm)
    batch = make_contrastive_batch()
    fix_noise(batch["mask"])
    reference.set_gumbel_temperature(1.3)
    expected, outputs = run_reference(reference, batch), model(**batch)
    count = 3 * MASKED
    contrastive = expected.contrastive_loss.item() / count
    assert outputs["contrastive_loss"].item() == pytest.approx(contrastive, rel=1e-5)
    diversity = (outputs["loss"] - outputs["contrastive_loss"]) / CONTRAST.diversity
    assert diversity.item() == pytest.approx(expected.diversity_loss.item() / count, abs=2e-5)
    assert outputs["loss"].item() == pytest.approx(expected.loss.item() / count, rel=1e-5)
    expected_gradients = compute_gradients(reference, expected.loss / count)
    gradients = compute_gradients(model, outputs["loss"])
    assert len(gradients) > 40
    torch.testing.assert_close(gradients, expected_gradients, atol=2e-5, rtol=2e-3)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_negatives_with_the_codes_of_the_positive_do_not_count_as_in_transformers(norm):
    reference, model = make_pair(norm)
    reference.eval()
    model.eval()
    batch = make_contrastive_batch(negatives=40)
    with torch.no_grad():
        expected, outputs = run_reference(reference, batch), model(**batch)
        features = model.encoder.feature_extractor(batch["samples"]).transpose(1, 2)
        codes = model.quantise(features[batch["mask"]]).codes.unflatten(0, (3, MASKED))
    rows = zip(codes, batch["negatives"], strict=True)
    codes_of_negatives = torch.stack([row[negatives] for row, negatives in rows])
    has_codes_of_positive = (codes_of_negatives == codes[:, :, None]).all(-1)
    assert 0.02 < has_codes_of_positive.float().mean() < 0.9
    contrastive = expected.contrastive_loss.item() / (3 * MASKED)
    assert outputs["contrastive_loss"].item() == pytest.approx(contrastive, rel=1e-5)
    # transformers adds up the perplexities of both codebooks
    perplexity = expected.codevector_perplexity.item() / 2
    assert outputs["code_perplexity"].item() == pytest.approx(perplexity, abs=5e-4)


def test_the_gradient_into_the_convolutions_is_scaled(fix_noise):
    batch = make_contrastive_batch()
    fix_noise(batch["mask"])
    scaled = Convolutions(feature_penalty=10.0, gradient_scale=0.1)
    _, model = make_pair(convolutions=scaled)
    _, unscaled_model = make_pair(convolutions=replace(scaled, gradient_scale=1.0))
    gradients = compute_gradients(model, model(**batch)["loss"])
    unscaled = compute_gradients(unscaled_model, unscaled_model(**batch)["loss"])
    for name, gradient in unscaled.items():
        factor = 0.1 if "feature_extractor" in name else 1.0
        torch.testing.assert_close(gradients[name], factor * gradient, atol=1e-6, rtol=1e-4)


def test_targets_of_distorted_speech_come_from_the_clean_speech(fix_noise):
    _, model = make_pair()
    batch, clean = make_contrastive_batch(), make_contrastive_batch(seed=1)["samples"]
    fix_noise(batch["mask"])
    quantised_features, quantise = [], model.quantise

    def note_and_quantise(features, temperature):
        quantised_features.append(features)
        return quantise(features, temperature)

    model.quantise = note_and_quantise
    outputs, outputs_without_clean = model(**batch, clean_samples=clean), model(**batch)
    from_clean, from_distorted = quantised_features
    expected = model.encoder.feature_extractor(clean).transpose(1, 2)[batch["mask"]]
    torch.testing.assert_close(from_clean, expected.unflatten(0, (3, MASKED)))
    assert from_clean.requires_grad
    assert not torch.equal(from_clean, from_distorted)
    assert outputs["contrastive_loss"] != outputs_without_clean["contrastive_loss"]
    assert outputs["feature_penalty"] == outputs_without_clean["feature_penalty"]


def test_processes_that_share_a_batch_have_its_loss_and_gradient(monkeypatch, fix_noise):
    """Two processes run one after the other, twice: in the first round every value that they would
    average is recorded, in the second round `average_processes` returns the means of these."""
    _, model = make_pair(convolutions=CONVOLUTIONS)
    batch = make_contrastive_batch(rows=4)
    noise = fix_noise(batch["mask"])
    expected = model(**batch)
    expected_gradients = compute_gradients(model, expected["loss"])
    monkeypatch.setattr(model_module, "count_processes", lambda: 2)

    def run_process(number, average_processes):
        half = {name: x[number::2] if x.ndim else x for name, x in batch.items()}
        fix_noise(half["mask"], noise[number::2])
        monkeypatch.setattr(model_module, "average_processes", average_processes)
        return model(**half)

    def record_values(number):
        values = []

        def record(value):
            values.append(value.detach().clone())
            return value  # both have equally many frames, so that later values are right too

        run_process(number, record)
        return values

    means = [(a + b) / 2 for a, b in zip(record_values(0), record_values(1), strict=True)]
    assert len(means) > 4

    def run_with_means(number):
        remaining = iter(means)
        return run_process(number, lambda value: next(remaining))

    first, second = run_with_means(0), run_with_means(1)
    for name, value in expected.items():
        mean = (first[name] + second[name]) / 2
        torch.testing.assert_close(mean, value, atol=1e-5, rtol=1e-4)
    gradients = compute_gradients(model, (first["loss"] + second["loss"]) / 2)
    torch.testing.assert_close(gradients, expected_gradients, atol=1e-5, rtol=1e-4)


def test_negatives_are_sampled_uniformly_from_the_other_frames():
    count = 40_000
    negatives = draw_negatives(np.random.default_rng(0), rows=1, frames=5, count=count)[0]
    for frame, negatives_of_frame in enumerate(negatives):
        shares = np.bincount(negatives_of_frame, minlength=5) / count
        assert shares[frame] == 0
        assert np.delete(shares, frame) == pytest.approx(0.25, abs=0.01)


def test_the_temperature_of_a_batch_is_that_of_its_update():
    def crop(step):
        return {"mask": torch.ones(2, 5, dtype=torch.bool)}

    falling = make_contrast(temperature_decay=0.5, temperature_floor=0.4)
    make = ContrastiveBatches(crop, falling, accumulation=2)
    temperatures = [make(step)["temperature"].item() for step in (0, 1, 2, 3, 4, 5, 9)]
    assert temperatures == pytest.approx([2, 2, 1, 1, 0.5, 0.5, 0.4])


def check_same_weights(module, other):
    torch.testing.assert_close(module.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_transformers_and_we_read_a_saved_model(tmp_path):
    contrast = make_contrast(codebooks=2, entries=6, width=12, kappa=0.2)
    encoder = Wav2Vec2Model(make_config())
    model = Wav2Vec2Pretraining(encoder, contrast, CONVOLUTIONS, normalise=False)
    save_pretraining(model, tmp_path)
    loaded, info = Wav2Vec2ForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    check_same_weights(loaded.wav2vec2, model.encoder)
    for head in ("project_q", "project_hid", "quantizer"):
        check_same_weights(getattr(loaded, head), getattr(model, head))
    assert loaded.config.num_codevectors_per_group == 6
    assert loaded.config.contrastive_logits_temperature == 0.2
    extractor = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert extractor["do_normalize"] is False
    check_same_weights(load_checkpoint(tmp_path).model, model.encoder)
    assert load_encoder(tmp_path).normalise is False


def test_heads_of_which_a_part_is_missing_are_refused(tmp_path):
    contrast = make_contrast(codebooks=2, entries=6, width=12)
    model = Wav2Vec2Pretraining(Wav2Vec2Model(make_config()), contrast, CONVOLUTIONS)
    save_pretraining(model, tmp_path)
    heads, values = load_heads(tmp_path, load_checkpoint(tmp_path))
    check_same_weights(heads.quantizer, model.quantizer)
    assert values["entries"] == 6
    weights = load_file(tmp_path / "model.safetensors")
    del weights["quantizer.codevectors"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    checkpoint = load_checkpoint(tmp_path)
    refused("lacks a part of its .*quantizer.codevectors", load_heads, tmp_path, checkpoint)


# ---- the domain adversary

UNMASKED = torch.zeros(4, 6, dtype=torch.bool)  # (B, T)


def make_domain_batch(progress=0.5, step=0):
    """Make what the adversary needs of a batch: two clean utterances and two distorted ones."""
    batch = {"domains": (0, 1, 2, 0), "progress": progress, "step": step}
    return {name: torch.tensor(value) for name, value in batch.items()}


def make_layers():
    """Make three layers (B, T, D) that require a gradient."""
    values = torch.randn(3, 4, 6, 5, generator=torch.Generator().manual_seed(0))
    return [layer.clone().requires_grad_() for layer in values]


def make_adversary(domain_adversary="binary", schedule="constant", mode="reversal", weight=0.4):
    torch.manual_seed(0)
    options = Adversary(
        domain_adversary,
        domain_adversary_schedule=schedule,
        domain_adversary_mode=mode,
        domain_adversary_weight=weight,
        domain_adversary_width=8,
    )
    return DomainAdversary(5, 3, options)


@pytest.mark.parametrize(
    ("domain_adversary", "classes"), [("binary", [0, 1, 1, 0]), ("multi", [0, 1, 2, 0])]
)
def test_the_classifier_learns_and_the_encoder_gets_the_reversed_gradient(
    domain_adversary, classes
):
    adversary, layers = make_adversary(domain_adversary, weight=0.7), make_layers()
    outputs = adversary(layers, UNMASKED, make_domain_batch())
    classifier, classes = adversary.classifier, torch.tensor(classes)
    logits = classifier(layers[-1].mean(1))
    assert logits.shape[-1] == (2 if domain_adversary == "binary" else 3)
    expected = functional.cross_entropy(logits, classes)
    torch.testing.assert_close(outputs["loss"], expected)
    accuracy = (logits.argmax(-1) == classes).float().mean()
    assert outputs["domain_accuracy"] == pytest.approx(accuracy.item())
    assert not outputs["domain_accuracy"].requires_grad
    inputs = (layers[-1], *classifier.parameters())
    expected_into_layer, *expected_gradients = torch.autograd.grad(expected, inputs)
    into_layer, *gradients = torch.autograd.grad(outputs["loss"], inputs)
    torch.testing.assert_close(into_layer, -0.7 * expected_into_layer)
    torch.testing.assert_close(gradients, expected_gradients)


def test_the_weight_of_the_adversary_grows_by_ganins_schedule():
    """It is 2 / (1 + e^(-10 p)) - 1 = tanh(5 p) at the progress p."""
    adversary = make_adversary(schedule="ganin", weight=0.3)
    outputs = adversary(make_layers(), UNMASKED, make_domain_batch(progress=0.1))
    assert outputs["adversary_weight"].item() == pytest.approx(0.3 * math.tanh(0.5), abs=1e-6)


def adversary_gradients(mode, step):
    """Return the gradient into the layer, and those of the classifier."""
    adversary, layers = make_adversary(mode=mode), make_layers()
    loss = adversary(layers, UNMASKED, make_domain_batch(step=step))["loss"]
    inputs = (layers[-1], *adversary.classifier.parameters())
    into_layer, *gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    return into_layer, gradients


def test_alternating_trains_the_classifier_in_even_steps_and_the_encoder_in_odd_ones():
    expected_into_layer, expected = adversary_gradients("reversal", step=0)
    into_layer, gradients = adversary_gradients("alternating", step=0)
    assert into_layer is None
    torch.testing.assert_close(gradients, expected)
    into_layer, gradients = adversary_gradients("alternating", step=7)
    # None and not 0, with which momentum and weight decay would still move the weights
    assert gradients == [None] * 4
    torch.testing.assert_close(into_layer, expected_into_layer)


# ---- the teacher on the clean signal


def test_the_distance_to_the_teacher_is_in_variances_and_of_all_layers(make_hubert):
    mask = torch.zeros(2, 20, dtype=torch.bool)
    mask[:, 4:12] = True
    generator = torch.Generator().manual_seed(0)
    clean, noisy = torch.randn(2, 2, GRID.count_samples(20), generator=generator)
    _, student_layers = compute_states(make_hubert(), noisy)
    _, teacher_layers = compute_states(make_hubert().eval(), clean)
    distances = []
    for layer, target in zip(student_layers, teacher_layers, strict=True):
        variance = target[~mask].var(0, unbiased=False).mean()
        distances.append((layer[~mask] - target[~mask]).square().mean() / variance)
    outputs = CleanTeacher(make_hubert())(student_layers, mask, {"clean_samples": clean})
    torch.testing.assert_close(outputs["loss"], sum(distances) / len(distances))
