"""Spin: the balanced codes, the swapped loss, what is trained, the read-out, and runs that are
killed."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.hubert import training_states
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.options import TrainingOptions
from speechssl.pretrain.options import Batches, Codes, Distortion, PseudoLabels, Spin
from speechssl.pretrain.spin import SpinPretraining, order_loss, sinkhorn, spin
from speechssl.training import last_checkpoint
from speechssl.units.codebook import Codebook, load_codebook

from .conftest import NO_DROPOUT

pytest.importorskip("parselmouth", reason="needs speechssl[voices]")
TRAINING = TrainingOptions(4, 1e-3, 1, save_every=2, log_every=1, bf16=False, weight_decay=1e-6)


LEARNED = Codes(codes=12, projection=8)


def options(start, source=Path("s"), out=Path("o"), **changes):
    common = {"training": TRAINING, "learned": LEARNED, "batches": Batches(4, 0.4)}
    return Spin(source=source, out=out, start=str(start), **common | changes)


def trained(o):
    """Train; the encoder."""
    spin(o)
    return load_encoder(o.out / "encoder")


def cosines(frames=40, codes=6, seed=0):
    drawn = np.random.default_rng(seed).uniform(-1, 1, (frames, codes))
    return torch.from_numpy(drawn.astype(np.float32))


def published_sinkhorn(scores, epsilon, iterations):
    """The algorithm as SwAV's paper (2006.09882, appendix A.1) writes it: codes x frames, rows to
    1/K, columns to 1/B."""
    q = np.exp(scores.double().numpy() / epsilon).T
    q /= q.sum()
    for _ in range(iterations):
        q /= q.sum(axis=1, keepdims=True) * q.shape[0]
        q /= q.sum(axis=0, keepdims=True) * q.shape[1]
    return (q * q.shape[1]).T


@pytest.mark.parametrize(("epsilon", "iterations"), [(0.02, 3), (0.05, 3), (0.5, 10)])
def test_balanced_codes_are_those_of_the_paper(epsilon, iterations):
    found = sinkhorn(cosines(), epsilon, iterations).numpy()
    expected = published_sinkhorn(cosines(), epsilon, iterations)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def orders(scores, labels):
    """-log of the summed probability of every way to give each frame with a label one of the row's
    labels, in order."""
    known = labels >= 0
    frames, row = scores[known].log_softmax(-1), labels[known].tolist()
    order = [label for label, before in zip(row, [None, *row], strict=False) if label != before]
    cuts = ((0, *cut, len(frames)) for cut in combinations(range(1, len(frames)), len(order) - 1))
    ways = [
        sum(frames[a:b, k].sum() for a, b, k in zip(cut, cut[1:], order, strict=False))
        for cut in cuts
    ]
    return -torch.stack(ways).logsumexp(0)


@given(
    st.lists(st.lists(st.integers(-1, 3), min_size=7, max_size=7), min_size=1, max_size=3),
    st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_the_order_of_labels_counts_and_not_where_they_begin(rows, seed):
    labels = torch.tensor(rows)
    labels[:, 3] = labels[:, 3].clamp(min=0)  # a row without any label adds nothing
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(*labels.shape, 4, generator=generator, dtype=torch.double).requires_grad_()
    losses = order_loss(scores, labels), sum(map(orders, scores, labels))
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, scores)[0] for loss in losses))


@pytest.fixture
def model(hubert_folder):
    torch.manual_seed(0)
    encoder = load_checkpoint(hubert_folder("layer", **NO_DROPOUT)).model
    return SpinPretraining(encoder.train(), options("x", trained_layers=1), labels=5)


def test_the_loss_swaps_the_codes_of_the_versions(model):
    waves = torch.randn(2, 3, 4000, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, -1, 2, 3, 4, 0, 1, 2, 3, -1, 4]] * 3)
    found = model(waves[0], waves[1], labels, torch.tensor(0))
    normalize, known = torch.nn.functional.normalize, labels.flatten() >= 0
    with torch.no_grad():
        states = [training_states(model.encoder, x, None)[1][-1].flatten(0, 1) for x in waves]
        codes = normalize(model.codebook, dim=-1)
        scores = [normalize(model.project(x), dim=-1) @ codes.T for x in states]
        targets = [torch.from_numpy(published_sinkhorn(x, 0.02, 3)).float() for x in scores]
        logs = [(x / 0.1).log_softmax(1) for x in scores]
        swapped = [-(targets[1 - i] * logs[i]).sum(1).mean() for i in (0, 1)]
        guesses = [model.classify(x[known]) for x in states]
    right = labels.flatten()[known]
    pseudo = [torch.nn.functional.cross_entropy(guess, right) for guess in guesses]
    expected = float(sum(swapped) / 2 + 5 * sum(pseudo) / 2)
    assert found["loss"].item() == pytest.approx(expected, rel=1e-4)
    assert 0 <= float(found["agreement"]) <= 1
    assert 1 <= float(found["codes_in_use"]) <= 12


def test_the_read_out_is_the_arg_max_of_the_codebook(model):
    hidden = torch.randn(500, 32, generator=torch.Generator().manual_seed(1))
    weights, offsets = model.linear_classifier()
    codes = torch.nn.functional.normalize(model.codebook, dim=-1)
    expected = (torch.nn.functional.normalize(model.project(hidden), dim=-1) @ codes.T).argmax(1)
    np.testing.assert_array_equal(
        Codebook(weights, {}, offsets=offsets).assign(hidden), expected.numpy()
    )


@pytest.mark.slow
def test_r_spin_goes_on_with_noise_and_pseudo_labels(mini_corpus, hubert_folder, tmp_path):
    first, out = tmp_path / "spin", tmp_path / "r-spin"
    longer = replace(TRAINING, steps=30, learning_rate=5e-3)  # until several codes are in use
    corpus, whole = mini_corpus(), {"trained_layers": 0}
    spin(options(hubert_folder("layer"), corpus, first, training=longer, **whole))
    book = str(first / "units.safetensors")
    labels = PseudoLabels(teacher=str(first / "encoder"), codebook=book, label_loss="ctc")
    noise = Distortion(distort="g", distorted=(1.0,), snr_range=(-10.0, 10.0))
    parts = {"labels": labels, "distortion": noise}
    card = trained(options(first / "encoder", corpus, out, **parts, **whole)).card
    head, units = (load_codebook(out / f"{name}.safetensors") for name in ("labels", "units"))
    assert head.size == load_codebook(book).size
    assert head.card["read_out"].startswith("linear head")
    assert head.card["encoder"] == units.card["encoder"]
    assert card["targets"]["read_out"] == "codebook of Spin"
    assert card["options"]["distort"]["snr"] == [-10.0, 10.0]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(mini_corpus, hubert_folder, tmp_path, dies_in):
    o = options(hubert_folder("layer"), mini_corpus(), tmp_path / "whole")
    whole, killed = trained(o), replace(o, out=tmp_path / "killed")
    with dies_in(SpinPretraining, "forward", 4):
        spin(killed)
    assert last_checkpoint(tmp_path / "killed/checkpoints").name == "checkpoint-2"
    assert trained(killed).hash == whole.hash
    one, two = (load_file(tmp_path / name / "units.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_defaults_are_the_authors():
    """config/spin.yaml of their repository: 4,096,000 samples a batch (to a multiple of 16 crops),
    crops of at most 272,000."""
    o = Spin(source=Path("s"), out=Path("o"), start="e")
    assert o.batches.crop_seconds * SAMPLE_RATE == 272_000
    assert o.batches.crops == 16 * round(4_096_000 / 272_000 / 16)
    assert o.trained_layers == 2
    assert o.learned == Codes(None, 2048, 256, 0.1, 0.02, 3)
    assert (o.labels.teacher, o.labels.clusters, o.labels.label_weight) == (None, 200, 5.0)
    t = o.training
    found = (t.steps, t.learning_rate, t.warmup_steps, t.weight_decay)
    assert found == (5000, 1e-4, 2500, 1e-6)
