"""The models of SpeechBERT: the code of an audio word does not depend on padding, goes to the
word's text embedding and rebuilds the word; and masked words are predicted in text and speech."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from speechssl.dual.model import SpanModel
from speechssl.speechbert.data import NONE, MaskedBatches, WordBatches, WordTable
from speechssl.speechbert.model import MaskedWords, WordAutoencoder, WordEncoder, look_up

D = 6  # features
E = 10  # code
VOCABULARY = ("silver", "lantern", "peter", "london")


@pytest.fixture(scope="module")
def table():
    """The table of 120 words of VOCABULARY: the features of a word go on a straight line from its
    first point to its last, at a random speed, with noise."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(len(VOCABULARY), 2, D)) * 2  # first and last of every word
    words = rng.integers(len(VOCABULARY), size=120)
    lengths = rng.integers(4, 12, size=120)
    lines = [np.linspace(*points[word], n) for word, n in zip(words, lengths, strict=True)]
    features = np.concatenate(lines) + 0.2 * rng.normal(size=(lengths.sum(), D))
    stops = np.cumsum(lengths)
    rows = np.stack([stops - lengths, stops], 1)
    texts = tuple(VOCABULARY[word] for word in words)
    return WordTable(features.astype(np.float16), rows, texts, sequences={})


EMBEDDINGS = torch.randn(len(VOCABULARY), E, generator=torch.Generator().manual_seed(1))


def make_batches(table, count, size, seed=0):
    """Make batches of the first `count` words of a table, whose targets are their EMBEDDINGS."""
    embeddings = EMBEDDINGS[[VOCABULARY.index(text) for text in table.texts]]
    return WordBatches(table, np.arange(count), embeddings.__getitem__, size, seed)


@pytest.mark.slow
def test_the_autoencoder_rebuilds_words_and_its_codes_go_to_their_embeddings(table):
    torch.manual_seed(0)
    model = WordAutoencoder(WordEncoder(D, E, width=16).fit_scale(table), pull=1.0)
    batches = make_batches(table, len(table.rows), 24)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for step in range(80):
        outputs = model(**batches(step))
        optimiser.zero_grad()
        outputs["loss"].backward()
        optimiser.step()
        losses.append({name: float(value.detach()) for name, value in outputs.items()})
    assert losses[-1]["distance"] < 0.2 * losses[0]["distance"]
    assert losses[-1]["rebuilt"] < 0.6 * losses[0]["rebuilt"]
    codes = model.encoder.eval().encode_words(table)
    nearest = torch.cdist(codes, EMBEDDINGS).argmin(1)
    assert [VOCABULARY[i] for i in nearest] == list(table.texts)


@pytest.mark.parametrize("filler", [0.0, 1e4])
def test_values_in_the_padding_never_matter(filler):
    torch.manual_seed(0)
    model = WordAutoencoder(WordEncoder(D, E, width=8))
    lengths = torch.tensor([5, 1, 9])
    targets = torch.randn(3, E)
    words = [torch.randn(int(n), D) for n in lengths]
    batch = torch.full((3, 14, D), filler)
    for row, word in enumerate(words):
        batch[row, : len(word)] = word
    with torch.no_grad():
        codes, losses = [], []  # of every word alone
        for word, length, target in zip(words, lengths, targets, strict=True):
            codes.append(model.encoder(word[None], length[None]))
            losses.append(float(model(word[None], length[None], target[None])["loss"]))
        assert torch.allclose(model.encoder(batch, lengths), torch.cat(codes), atol=1e-5)
        loss = float(model(batch, lengths, targets)["loss"])
    assert loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_an_epoch_has_every_word_once_in_batches_that_depend_on_seed_and_step_only(table):
    batches = make_batches(table, count=96, size=24)
    lengths = [batches(step)["lengths"] for step in range(4)]
    assert sorted(np.concatenate(lengths)) == sorted(np.diff(table.rows[:96], axis=1)[:, 0])
    assert torch.equal(make_batches(table, count=96, size=24)(3)["lengths"], lengths[3])
    other_seed = make_batches(table, count=96, size=24, seed=1)
    assert not torch.equal(other_seed(3)["lengths"], lengths[3])
    # fewer words than a batch are one batch
    assert len(make_batches(table, count=5, size=24)(7)["lengths"]) == 5


# ---- masked words


V = 40  # word pieces, the first five of them specials
N = 30  # audio words, with the ids V to V + N - 1
CLS, SEP, PAD, MASK = SPECIALS = (2, 3, 0, 4)


def make_text(ids):
    """Make a sentence of word pieces, each of which is its own target."""
    return ids, list(ids[:, None])


@pytest.fixture
def batches():
    """Batches of three texts and of one recording of N audio words, which have in turn two word
    pieces, none and one."""
    rng = np.random.default_rng(0)
    texts = [make_text(rng.integers(5, V, n)) for n in (3, 40, 90)]
    targets = [np.array(([7, 8], [], [9])[n % 3], np.int64) for n in range(N)]
    recording = V + np.arange(N), targets
    return MaskedBatches(
        text=texts,
        speech=[recording],
        specials=SPECIALS,
        vocabulary=V,
        words=N,
        size=8,
        window=20,
        share=0.3,
    )


def test_half_of_a_batch_is_text_and_half_is_speech_whose_targets_are_the_pieces_of_its_text(
    batches,
):
    speech_targets = set()
    for step in range(10):
        batch = batches(step)
        assert torch.equal(batch["ids"], batches(step)["ids"])
        assert batch["speech"].tolist() == [0] * 4 + [1] * 4
        for row in range(8):
            ids = batch["ids"][row][batch["mask"][row].bool()]
            assert (ids[0], ids[-1]) == (CLS, SEP)
            assert len(ids) <= 20 + 2
            if batch["speech"][row]:
                assert ((ids[1:-1] >= V) | (ids[1:-1] == MASK)).all()
            else:
                assert (ids < V).all()
        for row in batch["targets"][4:].reshape(-1, 2).tolist():
            speech_targets.add(tuple(piece for piece in row if piece != NONE))
    assert speech_targets == {(), (7, 8), (9,)}


def test_predicted_words_are_masked_replaced_or_kept_as_in_bert(batches):
    original, pieces = make_text(np.arange(5, V))
    predicted = []  # what is read in the place of each, and what it was
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ids, targets = replace(batches, window=V).mask_sentence(rng, (original, pieces))
        ids, targets = ids[1:-1], targets[1:-1, 0]
        is_predicted = targets != NONE
        assert (ids[~is_predicted] == original[~is_predicted]).all()
        assert (targets[is_predicted] == original[is_predicted]).all()
        predicted.append(np.stack([ids, original])[:, is_predicted])
    read, before = np.concatenate(predicted, 1)
    assert len(read) == pytest.approx(0.3 * 35 * 40, rel=0.2)
    assert np.mean(read == MASK) == pytest.approx(0.8, abs=0.06)
    assert np.mean(read == before) == pytest.approx(0.1, abs=0.05)


@pytest.fixture
def model(text_encoder, tokenizer):
    torch.manual_seed(0)
    encoder = text_encoder("bert")
    table = encoder.get_input_embeddings().weight.detach().clone()[:V] * 10
    codes = table[5:35] + 0.01 * torch.randn(N, 32)
    return MaskedWords(SpanModel(encoder, nn.Embedding(3, 32)), table, codes)


def test_the_loss_is_a_mean_over_sequences_of_means_over_positions_and_pieces(model):
    ids = torch.tensor([[CLS, MASK, 6, SEP], [CLS, V + 1, MASK, SEP]])
    targets = torch.full((2, 4, 2), NONE)
    targets[0, 1, 0] = 6
    targets[1, 1] = torch.tensor([7, 8])
    targets[1, 2, 0] = 9
    mask = torch.ones_like(ids)
    with torch.no_grad():
        inputs = model.reader.inputs(look_up(model.embeddings, model.codes, ids), mask, None)
        hidden = model.transform(model.reader.encoder(**inputs).last_hidden_state)
        log_probs = (hidden @ model.embeddings.T + model.bias).log_softmax(-1)
        loss = float(model(ids, mask, targets, speech=torch.tensor([0, 1]))["loss"])
    of_text = log_probs[0, 1, 6]
    two_pieces = (log_probs[1, 1, 7] + log_probs[1, 1, 8]) / 2
    of_speech = (two_pieces + log_probs[1, 2, 9]) / 2
    assert loss == pytest.approx(-float(of_text + of_speech) / 2, rel=1e-5)
