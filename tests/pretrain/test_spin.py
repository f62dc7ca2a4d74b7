"""Tests of Spin: balanced codes, the loss of label order, the swapped loss, the learned codebook, and
runs."""

from dataclasses import replace
from itertools import combinations, groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.hubert import compute_states
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.options import TrainingOptions
from speechssl.pretrain import spin
from speechssl.pretrain.options import Batches, Codes, Distortion, PseudoLabels, Spin
from speechssl.pretrain.spin import SpinPretraining, compute_order_loss, sinkhorn, train_spin
from speechssl.training import find_last_checkpoint
from speechssl.units.codebook import Codebook, load_codebook

from .conftest import NO_DROPOUT

pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
TRAINING = TrainingOptions(
    steps=4,
    learning_rate=1e-3,
    warmup_steps=1,
    save_every=2,
    log_every=1,
    bf16=False,
    weight_decay=1e-6,
)
LEARNED = Codes(codes=12, projection=8)


def make_options(start, source=Path("s"), out=Path("o"), **changes):
    options = {
        "training": TRAINING,
        "learned": LEARNED,
        "batches": Batches(crops=4, crop_seconds=0.4),
    }
    return Spin(source=source, out=out, start=str(start), **options | changes)


def train(o):
    """Train by Spin, and return the encoder."""
    train_spin(o)
    return load_encoder(o.out / "encoder")


def published_sinkhorn(scores, epsilon, iterations):
    """Balance codes as SwAV's paper (2006.09882, appendix A.1) writes it: on the matrix of codes and
    frames, whose rows get the sum 1/K and whose columns get the sum 1/B."""
    q = np.exp(scores.double().numpy() / epsilon).T
    q /= q.sum()
    for _ in range(iterations):
        q /= q.sum(axis=1, keepdims=True) * q.shape[0]
        q /= q.sum(axis=0, keepdims=True) * q.shape[1]
    return (q * q.shape[1]).T


@pytest.mark.parametrize(("epsilon", "iterations"), [(0.02, 3), (0.05, 3), (0.5, 10)])
def test_balanced_codes_are_those_of_the_paper(epsilon, iterations):
    uniform = np.random.default_rng(0).uniform(-1, 1, (40, 6))  # cosines of frames and codes
    cosines = torch.from_numpy(uniform.astype(np.float32))
    codes = sinkhorn(cosines, epsilon, iterations).numpy()
    expected = published_sinkhorn(cosines, epsilon, iterations)
    np.testing.assert_allclose(codes, expected, atol=1e-5)


def order_loss_by_brute_force(scores, labels):
    """Return -log of the sum of the probabilities of all ways to divide the labelled frames of a row
    (T, K) among its runs of equal labels, in order."""
    is_labelled = labels >= 0
    log_p = scores[is_labelled].log_softmax(-1)
    runs = [label for label, _ in groupby(labels[is_labelled].tolist())]
    log_p_of_ways = []
    for starts in combinations(range(1, len(log_p)), len(runs) - 1):
        bounds = (0, *starts, len(log_p))
        parts = zip(pairwise(bounds), runs, strict=True)
        log_p_of_ways.append(sum(log_p[first:last, label].sum() for (first, last), label in parts))
    return -torch.stack(log_p_of_ways).logsumexp(0)


@given(
    st.lists(st.lists(st.integers(-1, 3), min_size=7, max_size=7), min_size=1, max_size=3),
    st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_the_order_of_labels_counts_and_not_where_they_begin(rows, seed):
    labels = torch.tensor(rows)
    labels[:, 3] = labels[:, 3].clamp(min=0)  # at least one frame of a row is labelled
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(*labels.shape, 4, generator=generator, dtype=torch.double).requires_grad_()
    loss = compute_order_loss(scores, labels)
    expected = sum(map(order_loss_by_brute_force, scores, labels))
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, scores)
    (expected_gradient,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(gradient, expected_gradient)


@pytest.fixture
def model(hubert_folder):
    torch.manual_seed(0)
    encoder = load_checkpoint(hubert_folder("layer", **NO_DROPOUT)).model
    return SpinPretraining(encoder.train(), make_options("x", trained_layers=1), clusters=5)


def test_each_version_predicts_the_codes_of_the_other_and_the_pseudo_labels(model):
    versions = torch.randn(2, 3, 4000, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, -1, 2, 3, 4, 0, 1, 2, 3, -1, 4]] * 3)
    outputs = model(versions[0], versions[1], labels, step=torch.tensor(0))
    is_labelled = labels.flatten() >= 0
    log_probabilities, balanced_codes, label_losses = [], [], []  # of both versions
    with torch.no_grad():
        codebook = normalize(model.codebook, dim=-1)
        for samples in versions:
            _, layers = compute_states(model.encoder, samples, None)
            hidden = layers[-1].flatten(0, 1)
            cosines = normalize(model.project(hidden), dim=-1) @ codebook.T
            codes = published_sinkhorn(cosines, LEARNED.epsilon, LEARNED.iterations)
            balanced_codes.append(torch.from_numpy(codes).float())
            log_probabilities.append((cosines / LEARNED.temperature).log_softmax(1))
            predicted = model.classify(hidden[is_labelled])
            label_losses.append(cross_entropy(predicted, labels.flatten()[is_labelled]))
    first = -(balanced_codes[1] * log_probabilities[0]).sum(1).mean()
    second = -(balanced_codes[0] * log_probabilities[1]).sum(1).mean()
    label_weight = 5
    expected = float((first + second) / 2 + label_weight * sum(label_losses) / 2)
    assert outputs["loss"].item() == pytest.approx(expected, rel=1e-4)
    assert 0 <= float(outputs["agreement"]) <= 1
    assert 1 <= float(outputs["codes_in_use"]) <= LEARNED.codes


def test_the_linear_classifier_gives_the_code_of_the_largest_cosine(model):
    hidden = torch.randn(500, 32, generator=torch.Generator().manual_seed(1))
    weights, offsets = model.merge_projection()
    cosines = normalize(model.project(hidden), dim=-1) @ normalize(model.codebook, dim=-1).T
    units = Codebook(weights, {}, offsets=offsets).assign(hidden)
    np.testing.assert_array_equal(units, cosines.argmax(1).numpy())


@pytest.mark.slow
def test_r_spin_goes_on_with_noise_and_pseudo_labels(mini_corpus, hubert_folder, tmp_path):
    first, out = tmp_path / "spin", tmp_path / "r-spin"
    longer = replace(TRAINING, steps=30, learning_rate=5e-3)  # until several codes are in use
    corpus, all_layers = mini_corpus(), {"trained_layers": 0}
    train_spin(make_options(hubert_folder("layer"), corpus, first, training=longer, **all_layers))
    codebook = str(first / "units.safetensors")
    o = make_options(
        first / "encoder",
        corpus,
        out,
        labels=PseudoLabels(teacher=str(first / "encoder"), codebook=codebook, label_loss="ctc"),
        distortion=Distortion(distort="g", distorted=(1.0,), snr_range=(-10.0, 10.0)),
        **all_layers,
    )
    card = train(o).card
    head = load_codebook(out / "labels.safetensors")
    units = load_codebook(out / "units.safetensors")
    assert head.size == load_codebook(codebook).size
    assert head.card["encoder"] == units.card["encoder"]
    assert card["options"]["distort"]["snr"] == [-10.0, 10.0]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(mini_corpus, hubert_folder, tmp_path, dies_in):
    o = make_options(hubert_folder("layer"), mini_corpus(), tmp_path / "whole")
    expected, killed = train(o), replace(o, out=tmp_path / "killed")
    with dies_in(SpinPretraining, "forward", 4):
        train_spin(killed)
    assert find_last_checkpoint(tmp_path / "killed/checkpoints").name == "checkpoint-2"
    assert train(killed).hash == expected.hash
    codebook, expected_codebook = (
        load_codebook(f / "units.safetensors") for f in (killed.out, o.out)
    )
    assert codebook.hash == expected_codebook.hash


def test_the_defaults_are_the_authors():
    """config/spin.yaml of their repository has 4,096,000 samples a batch and crops of at most
    272,000; here a batch has a multiple of 16 crops."""
    o = Spin(source=Path("s"), out=Path("o"), start="e")
    assert o.batches.crop_seconds * SAMPLE_RATE == 272_000
    assert o.batches.crops == 16 * round(4_096_000 / 272_000 / 16)
    assert o.trained_layers == 2
    assert o.learned == Codes(codes=2048, projection=256, temperature=0.1, epsilon=0.02)
    assert o.learned.iterations == 3
    assert o.labels.label_weight == 5.0
    assert o.training.steps == 5000
    assert o.training.learning_rate == 1e-4
    assert o.training.warmup_steps == 2500
    assert o.training.weight_decay == 1e-6


@pytest.mark.parametrize(("layer", "target"), [(None, 2), (0, 0), (1, 1)])
def test_labels_are_clusters_of_the_layer_that_is_given(hubert_folder, layer, target):
    labels = PseudoLabels(teacher=str(hubert_folder()), teacher_layer=layer)
    assert spin.make_label_targets(labels).layer == target
