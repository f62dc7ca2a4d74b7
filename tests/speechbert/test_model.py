"""The code of an audio word: it does not depend on padding, it is drawn to the word's text
embedding, and it rebuilds the word."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from speechssl.dual.model import SpanModel
from speechssl.speechbert.data import NONE, MaskedBatches, WordBatches, WordTable
from speechssl.speechbert.model import MaskedWords, WordAutoencoder, WordEncoder, look_up

D, E = 6, 10
VOCABULARY = ("silver", "lantern", "peter", "london")


@pytest.fixture(scope="module")
def table(tokenizer):
    """120 words of four kinds, each with its own features that go from one place to another, at
    different speeds, with noise."""
    rng = np.random.default_rng(0)
    ends = rng.normal(size=(len(VOCABULARY), 2, D)) * 2
    kinds, lengths = rng.integers(len(VOCABULARY), size=120), rng.integers(4, 12, size=120)
    ways = [np.linspace(*ends[k], n) for k, n in zip(kinds, lengths, strict=True)]
    features = np.concatenate(ways) + 0.2 * rng.normal(size=(lengths.sum(), D))
    stops = np.cumsum(lengths)
    rows = np.stack([stops - lengths, stops], 1)
    return WordTable(features.astype(np.float16), rows, tuple(VOCABULARY[k] for k in kinds), {})


EMBEDDINGS = torch.randn(len(VOCABULARY), E, generator=torch.Generator().manual_seed(1))


def batches_of(table, count, size, seed=0):
    embeddings = EMBEDDINGS[[VOCABULARY.index(text) for text in table.texts]]
    return WordBatches(table, np.arange(count), embeddings.__getitem__, size, seed)


def trained(table, steps=80):
    torch.manual_seed(0)
    model = WordAutoencoder(WordEncoder(D, E, 16).fit_scale(table), 1.0)
    batches = batches_of(table, len(table.rows), 24)
    optimiser, seen = torch.optim.Adam(model.parameters(), 1e-2), []
    for step in range(steps):
        found = model(**batches(step))
        optimiser.zero_grad()
        found["loss"].backward()
        optimiser.step()
        seen.append({name: float(value.detach()) for name, value in found.items()})
    return model, seen


@pytest.mark.slow
def test_the_autoencoder_rebuilds_words_and_its_codes_go_to_their_embeddings(table):
    model, seen = trained(table)
    assert seen[-1]["distance"] < 0.2 * seen[0]["distance"]
    assert seen[-1]["rebuilt"] < 0.6 * seen[0]["rebuilt"]
    codes = model.encoder.eval().encode_words(table)
    assert [VOCABULARY[i] for i in torch.cdist(codes, EMBEDDINGS).argmin(1)] == list(table.texts)


@pytest.mark.parametrize("filler", [0.0, 1e4])
def test_what_lies_in_the_padding_never_matters(filler):
    torch.manual_seed(0)
    model = WordAutoencoder(WordEncoder(D, E, 8))
    lengths, targets = torch.tensor([5, 1, 9]), torch.randn(3, E)
    words = [torch.randn(int(n), D) for n in lengths]
    batch = torch.full((3, 14, D), filler)
    for row, word in enumerate(words):
        batch[row, : len(word)] = word
    own = [
        (word[None], n[None], t[None]) for word, n, t in zip(words, lengths, targets, strict=True)
    ]
    with torch.no_grad():
        alone = torch.cat([model.encoder(word, n) for word, n, _ in own])
        assert torch.allclose(model.encoder(batch, lengths), alone, atol=1e-5)
        mean = np.mean([float(model(*one)["loss"]) for one in own])
        assert float(model(batch, lengths, targets)["loss"]) == pytest.approx(mean, rel=1e-4)


def test_a_batch_depends_on_seed_and_step_only_and_an_epoch_sees_every_word_once(table):
    batches, again, other = (batches_of(table, 96, 24, seed) for seed in (0, 0, 1))
    same = again(3)
    assert all(torch.equal(value, same[name]) for name, value in batches(3).items())
    assert not torch.equal(batches(0)["lengths"], other(0)["lengths"])
    lengths = np.concatenate([batches(step)["lengths"] for step in range(4)])
    assert sorted(lengths) == sorted(np.diff(table.rows[:96], axis=1)[:, 0])
    assert len(batches_of(table, 5, 24)(7)["lengths"]) == 5  # fewer words than a batch are one


# ---- masked words: what is chosen, what it becomes, what is to be predicted, and that it can be
# learnt from text and from speech


V, N = 40, 30
CLS, SEP, PAD, MASK = SPECIALS = (2, 3, 0, 4)


def text(ids):
    ids = np.asarray(ids)
    return ids, list(ids[:, None])


def speech(numbers, targets):
    return V + np.asarray(numbers), [np.asarray(t, np.int64) for t in targets]


@pytest.fixture
def batches():
    rng = np.random.default_rng(0)
    written = [text(rng.integers(5, V, n)) for n in (3, 40, 90)]
    spoken = speech(np.arange(N), [([7, 8], [], [9])[n % 3] for n in range(N)])
    return MaskedBatches(written, [spoken], SPECIALS, V, N, size=8, window=20, share=0.3)


def test_half_of_a_batch_is_text_and_half_is_speech(batches):
    batch = batches(0)
    assert batch["speech"].tolist() == [0] * 4 + [1] * 4
    for row in range(8):
        body = batch["ids"][row][batch["mask"][row].bool()]
        assert body[0] == CLS
        assert body[-1] == SEP
        assert len(body) <= 22
        spoken = (body[1:-1] >= V) | (body[1:-1] == MASK)
        assert spoken.all() if row >= 4 else not (body >= V).any()


def test_audio_words_are_to_be_predicted_as_their_text_and_not_where_that_is_unknown(batches):
    seen = set()
    for step in range(10):
        for row in batches(step)["targets"][4:].reshape(-1, 2).tolist():
            seen.add(tuple(x for x in row if x != NONE))
    assert seen == {(), (7, 8), (9,)}
    assert torch.equal(batches(5)["ids"], batches(5)["ids"])
    assert batches(5)["ids"].tolist() != batches(6)["ids"].tolist()


def test_chosen_words_are_masked_replaced_or_kept_as_bert_has_it(batches):
    chosen = {"masked": 0, "kept": 0, "replaced": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sentence = text(np.arange(5, V))
        ids, targets = replace(batches, window=V).mask_sentence(rng, sentence)
        for given, wanted, before in zip(ids[1:-1], targets[1:-1, 0], sentence[0], strict=True):
            if wanted == NONE:
                assert given == before
                continue
            assert wanted == before
            chosen["masked" if given == MASK else "kept" if given == before else "replaced"] += 1
    total = sum(chosen.values())
    assert total == pytest.approx(0.3 * 35 * 40, rel=0.2)
    assert chosen["masked"] / total == pytest.approx(0.8, abs=0.06)
    assert chosen["kept"] / total == pytest.approx(0.1, abs=0.05)


@pytest.fixture
def model(text_encoder, tokenizer):
    torch.manual_seed(0)
    encoder = text_encoder("bert")
    table = encoder.get_input_embeddings().weight.detach().clone()[:V] * 10
    codes = table[5:35] + 0.01 * torch.randn(N, 32)
    return MaskedWords(SpanModel(encoder, nn.Embedding(3, 32)), table, codes)


def test_the_loss_is_a_mean_over_sequences_of_means_over_positions_and_pieces(model):
    ids = torch.tensor([[2, 4, 6, 3], [2, V + 1, 4, 3]])
    targets = torch.full((2, 4, 2), NONE)
    targets[0, 1, 0], targets[1, 1], targets[1, 2, 0] = 6, torch.tensor([7, 8]), 9
    mask, speech_rows = torch.ones_like(ids), torch.tensor([0, 1])
    with torch.no_grad():
        inputs = model.reader.inputs(look_up(model.embeddings, model.codes, ids), mask, None)
        hidden = model.transform(model.reader.encoder(**inputs).last_hidden_state)
        logp = (hidden @ model.embeddings.T + model.bias).log_softmax(-1)
        found = float(model(ids, mask, targets, speech_rows)["loss"])
    wanted = -(logp[0, 1, 6] + ((logp[1, 1, 7] + logp[1, 1, 8]) / 2 + logp[1, 2, 9]) / 2) / 2
    assert found == pytest.approx(float(wanted), rel=1e-5)
