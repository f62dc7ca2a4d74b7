"""Objectives of pre-training choose tokens and mask them as their papers say, and each can be
learnt."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModelForCausalLM, OPTConfig

from textside import objectives
from textside.options import Objective

OBJECTIVES = get_args(Objective)
CLS, SEP, PAD, MASK = SPECIALS = 0, 1, 2, 3
FIRST, VOCABULARY = 4, 40  # id of the first token that is no special; ids
TOKENS = VOCABULARY - FIRST


def source(rng, length):
    """A `Source` whose words have two tokens and sentences six; every token is the one before it
    plus one, and the first follows the last."""
    places = np.arange(length)
    return FIRST + (places + rng.integers(TOKENS)) % TOKENS, places % 2 == 0, places % 6 == 0


def make_batches(objective, batch=8, length=32, share=0.15):
    return objectives.PretrainingBatches(
        source,
        objective,
        SPECIALS,
        vocabulary=np.arange(FIRST, VOCABULARY),
        batch=batch,
        length=length,
        share=share,
        seed=1,
    )


@given(
    st.lists(st.booleans(), min_size=1, max_size=80),
    st.integers(0, 10**6),
    st.sampled_from(OBJECTIVES),
)
def test_pieces_are_whole_and_apart(begins, seed, objective):
    words = np.array(begins)
    pieces = objectives.choose_tokens(np.random.default_rng(seed), words, 0.15, objective)
    places = np.concatenate(pieces)
    assert len(places) > 0
    assert len(set(places)) == len(places)
    assert set(places) <= set(range(len(words)))
    if objective == "span":
        for piece, following in pairwise(pieces):
            assert piece[-1] + 1 < following[0]  # the token between them is seen
    elif objective != "whole-word":
        assert len(places) == max(1, round(0.15 * len(words)))


@pytest.mark.parametrize(("objective", "most_words"), [("whole-word", 1), ("span", 10)])
def test_whole_words_and_spans_are_masked_to_their_ends(objective, most_words):
    words = np.arange(400) % 4 == 0  # a word has four tokens
    pieces = objectives.choose_tokens(np.random.default_rng(0), words, 0.15, objective)
    lengths = [len(piece) for piece in pieces]
    assert all(piece[0] % 4 == 0 for piece in pieces)
    assert all(length % 4 == 0 for length in lengths)
    assert max(lengths) <= 4 * most_words
    assert sum(lengths) / 400 == pytest.approx(0.15, abs=0.05)
    if objective == "span":
        assert max(lengths) > 4


def test_of_the_chosen_tokens_most_are_masked_some_replaced_others_at_every_step():
    batch = make_batches("mlm", batch=400, length=34)(step=0)
    predicted = batch["labels"] != objectives.IGNORE
    assert int(predicted.sum()) == 400 * 5  # 15 % of 32 tokens
    seen, gold = batch["ids"][predicted], batch["labels"][predicted]
    masked = (seen == MASK).float().mean()
    replaced = ((seen != MASK) & (seen != gold)).float().mean()
    assert float(masked) == pytest.approx(0.8, abs=0.03)
    assert float(replaced) == pytest.approx(0.1, abs=0.03)
    assert batch["ids"][:, 0].eq(CLS).all()
    assert batch["ids"][:, -1].eq(SEP).all()

    batches = make_batches("mlm")
    assert not torch.equal(batches(step=0)["labels"], batches(step=1)["labels"])
    assert torch.equal(batches(step=3)["ids"], batches(step=3)["ids"])


def test_edges_of_a_span_lie_beside_it_and_places_count_from_its_beginning():
    batch = make_batches("span", batch=30, length=60)(step=0)
    for labels, edges, place in zip(batch["labels"], batch["edges"], batch["place"], strict=True):
        predicted = (labels != objectives.IGNORE).tolist()
        for token in [i for i, is_predicted in enumerate(predicted) if is_predicted]:
            left, right = edges[token].tolist()
            assert left < token < right
            assert not predicted[left]
            assert not predicted[right]
            assert all(predicted[left + 1 : right])
            assert place[token] == token - left - 1


def test_exchanged_pieces_are_cut_where_a_sentence_begins():
    batch = make_batches("sentence-order", batch=60, length=33, share=0.01)(step=0)
    assert 0.3 < batch["swapped"].float().mean() < 0.7
    names = ("ids", "labels", "segments", "swapped")
    for ids, labels, segments, swapped in zip(*(batch[name] for name in names), strict=True):
        text = torch.where(labels == objectives.IGNORE, ids, labels)  # before it was masked
        sep = int((text == SEP).nonzero()[0])
        assert segments[: sep + 1].eq(0).all()
        assert segments[sep + 1 :].eq(1).all()
        first, second = text[1:sep], text[sep + 1 : -1]
        if swapped:
            first, second = second, first
        assert len(first) % 6 == 0  # whole sentences
        assert (int(first[-1]) - FIRST + 1) % TOKENS == int(second[0]) - FIRST  # the text goes on


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if o != objectives.CAUSAL])
@pytest.mark.slow
def test_an_objective_is_learnt_and_reaches_every_weight(objective, text_encoder):
    torch.manual_seed(0)
    encoder = text_encoder("electra", vocab_size=VOCABULARY)  # its embeddings are narrower
    model = objectives.Pretraining(encoder.train(), nn.Embedding(VOCABULARY, 16), objective)
    batches = make_batches(objective)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for step in range(25):
        measures = model(**batches(step % 5))
        optimiser.zero_grad()
        measures["loss"].backward()
        optimiser.step()
        losses.append(float(measures["masked"]))
    for name, parameter in model.named_parameters():
        # tables of the encoder that others replace have no gradient
        replaced = any(part in name for part in ("embeddings.word", "place", "set_input"))
        assert replaced or parameter.grad is not None, name
    # of the same five batches; by dropout alone losses differ by 0.2
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 1
    other_tasks = {"span": "edge", "sentence-order": "order", "replaced-token": "replaced"}
    if objective in other_tasks:
        assert torch.isfinite(measures[other_tasks[objective]])
    if objective == "replaced-token":
        assert model.generator.config.num_hidden_layers == 1


BOUNDARY, ROWS = 8, 9  # id of the symbol that begins and ends sequences; rows of the new table


def make_causal(kind):
    """Make a tiny language model of 50 tokens, and give it a random table of ROWS symbols."""
    torch.manual_seed(0)
    if kind == "gpt2":
        model = objectives.make_gpt2(vocabulary=50, layers=1, width=16, heads=2, positions=32)
    else:
        config = OPTConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=32,
            word_embed_proj_dim=8,
            max_position_embeddings=32,
        )
        model = AutoModelForCausalLM.from_config(config)
    width = model.get_input_embeddings().embedding_dim
    objectives.set_rows(model, 0.1 * torch.randn(ROWS, width), special=BOUNDARY)
    return model


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_a_saved_model_reads_and_predicts_with_its_new_rows(kind, tmp_path):
    model = make_causal(kind)
    trained = objectives.CausalModel(model).eval()
    ids = torch.tensor([[BOUNDARY, 1, 2, 3], [BOUNDARY, 4, 5, BOUNDARY]])
    logits = trained.logits(ids, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    assert logits.shape == (2, 4, ROWS)
    objectives.save_causal(model, trained, tmp_path / "model")
    loaded = objectives.load_causal(str(tmp_path / "model")).eval()
    assert torch.allclose(model(input_ids=ids).logits[0], logits[0], atol=1e-5)
    assert torch.allclose(loaded(input_ids=ids).logits[0], logits[0], atol=1e-5)
    assert loaded.config.eos_token_id == BOUNDARY


@pytest.mark.parametrize("padding", [BOUNDARY, 5])
def test_the_loss_is_that_of_the_next_symbols_without_padding(padding):
    model = make_causal("gpt2")
    trained = objectives.CausalModel(model).eval()
    ids, mask = torch.tensor([[BOUNDARY, 1, 2, padding]]), torch.tensor([[1, 1, 1, 0]])
    log_probs = trained.logits(ids, mask)[0].log_softmax(-1)
    expected = -(log_probs[0, 1] + log_probs[1, 2]) / 2  # 1 behind the beginning, 2 behind 1
    assert trained(ids, mask)["loss"].item() == pytest.approx(float(expected.detach()), abs=1e-5)
