"""The code of an audio word: it does not depend on padding, it is drawn to the word's text embedding, and it rebuilds the word."""

import numpy as np
import pytest
import torch

from speechssl.speechbert.data import LONGEST, WordBatches, WordTable, padded
from speechssl.speechbert.model import WordAutoencoder, WordEncoder

D, E = 6, 10
VOCABULARY = ("silver", "lantern", "peter", "london")


@pytest.fixture(scope="module")
def table(tokenizer):
    """120 words of four kinds, each with its own features that go from one place to another, at different speeds, with noise."""
    rng = np.random.default_rng(0)
    ends = rng.normal(size=(len(VOCABULARY), 2, D)) * 2
    kinds, lengths = rng.integers(len(VOCABULARY), size=120), rng.integers(4, 12, size=120)
    way = [np.linspace(*ends[k], n) + 0.2 * rng.normal(size=(n, D)) for k, n in zip(kinds, lengths, strict=True)]
    stops = np.cumsum(lengths)
    rows = np.stack([stops - lengths, stops], 1)
    return WordTable(np.concatenate(way).astype(np.float16), rows, tuple(VOCABULARY[k] for k in kinds), {})


EMBEDDINGS = torch.randn(len(VOCABULARY), E, generator=torch.Generator().manual_seed(1))


def batches_of(table, count, size, seed=0):
    kinds = torch.tensor([VOCABULARY.index(text) for text in table.texts])
    return WordBatches(table, np.arange(count), lambda numbers: EMBEDDINGS[kinds[numbers]], size, seed)


def trained(table, pull, steps=80):
    torch.manual_seed(0)
    model = WordAutoencoder(WordEncoder(D, E, 16).fit_scale(table), pull)
    batches = batches_of(table, len(table.rows), 24)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    seen = []
    for step in range(steps):
        found = model(**batches(step))
        optimiser.zero_grad()
        found["loss"].backward()
        optimiser.step()
        seen.append({name: float(value.detach()) for name, value in found.items()})
    return model, seen


@pytest.mark.slow
def test_the_autoencoder_rebuilds_words_and_its_codes_go_to_their_embeddings(table):
    model, seen = trained(table, 1.0)
    assert seen[0]["nearest"] < 0.5 and seen[-1]["nearest"] == 1.0
    assert seen[-1]["distance"] < 0.2 * seen[0]["distance"]
    assert seen[-1]["rebuilt"] < 0.6 * seen[0]["rebuilt"]
    codes = model.encoder.eval().codes_of(table)
    assert [VOCABULARY[i] for i in torch.cdist(codes, EMBEDDINGS).argmin(1)] == list(table.texts)


@pytest.mark.slow
def test_without_the_pull_codes_stay_away_from_the_embeddings(table):
    _, seen = trained(table, 0.0)
    assert seen[-1]["distance"] > 0.5 * seen[0]["distance"]
    assert seen[-1]["rebuilt"] < 0.6 * seen[0]["rebuilt"]


@pytest.mark.parametrize("filler", [0.0, 1e4])
def test_what_lies_in_the_padding_never_matters(filler):
    torch.manual_seed(0)
    model = WordAutoencoder(WordEncoder(D, E, 8))
    words = [torch.randn(n, D) for n in (5, 1, 9)]
    batch = torch.full((3, 14, D), filler)
    for row, word in enumerate(words):
        batch[row, : len(word)] = word
    lengths, targets = torch.tensor([5, 1, 9]), torch.randn(3, E)
    alone = torch.cat([model.encoder(word[None], torch.tensor([len(word)])) for word in words])
    assert torch.allclose(model.encoder(batch, lengths), alone, atol=1e-5)
    losses = [model(word[None], torch.tensor([len(word)]), t[None])["loss"] for word, t in zip(words, targets, strict=True)]
    assert float(model(batch, lengths, targets)["loss"].detach()) == pytest.approx(float(sum(losses).detach() / 3), rel=1e-4)


def test_a_batch_depends_on_seed_and_step_only_and_an_epoch_sees_every_word_once(table):
    batches, again, other = (batches_of(table, 96, 24, seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(batches(3).values(), again(3).values(), strict=True))
    assert not torch.equal(batches(0)["lengths"], other(0)["lengths"])
    lengths = np.concatenate([batches(step)["lengths"] for step in range(4)])
    assert sorted(lengths) == sorted(np.diff(table.rows[:96], axis=1)[:, 0])
    assert len(batches_of(table, 5, 24)(7)["lengths"]) == 5  # fewer words than a batch are one


def test_the_code_of_a_word_does_not_depend_on_the_others(table):
    encoder = WordEncoder(D, E, 8).fit_scale(table).eval()
    assert torch.allclose(encoder.codes_of(table, 7), encoder.codes_of(table, 64), atol=1e-5)


def test_features_are_standardised_by_those_of_the_table(table):
    encoder = WordEncoder(D, E, 8).fit_scale(table)
    values = encoder.standardised(torch.from_numpy(table.features.astype(np.float32)))
    assert values.mean(0).abs().max() < 1e-2 and (values.std(0) - 1).abs().max() < 1e-2


def test_a_word_that_never_ends_is_cut():
    features = np.zeros((400, D), np.float16)
    assert padded(WordTable(features, np.array([[0, 400]]), ("a",), {}), np.array([0]))["lengths"].tolist() == [LONGEST]
