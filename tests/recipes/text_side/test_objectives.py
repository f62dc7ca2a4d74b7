"""Objectives: which tokens are predicted, of what, and that each can be learnt."""

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
V = 40


def source(rng, length):
    """Words of two tokens, sentences of six; every token is the one before it plus one."""
    at = np.arange(length)
    return 4 + (at + rng.integers(36)) % 36, at % 2 == 0, at % 6 == 0


def batches(objective, **more):
    return objectives.PretrainingBatches(
        source, objective, SPECIALS, np.arange(4, V), **{"batch": 8, "length": 32, "seed": 1} | more
    )


@given(
    st.lists(st.booleans(), min_size=1, max_size=80),
    st.integers(0, 10**6),
    st.sampled_from(OBJECTIVES),
)
def test_pieces_are_whole_and_apart(begins, seed, objective):
    words = np.array(begins)
    pieces = objectives.choose_tokens(np.random.default_rng(seed), words, 0.15, objective)
    flat = np.concatenate(pieces)
    assert len(flat) and len(set(flat)) == len(flat) and flat.min() >= 0 and flat.max() < len(words)
    if objective == "span":
        assert all(a[-1] + 1 < b[0] for a, b in pairwise(pieces))  # the edges of each are seen
    elif objective != "whole-word":
        assert len(flat) == max(1, round(0.15 * len(words)))


def test_whole_words_and_spans_are_masked_to_their_ends():
    words = np.arange(400) % 4 == 0
    for objective, longest in (("whole-word", 4), ("span", 4 * objectives.LONGEST_SPAN)):
        pieces = objectives.choose_tokens(np.random.default_rng(0), words, 0.15, objective)
        assert all(p[0] % 4 == 0 and len(p) % 4 == 0 and len(p) <= longest for p in pieces)
        assert sum(map(len, pieces)) / 400 == pytest.approx(0.15, abs=0.05)
    assert max(map(len, pieces)) > 4


def test_of_the_chosen_tokens_most_are_masked_some_replaced_some_left():
    made = batches("mlm", batch=400, length=34)(0)
    asked = made["labels"] != objectives.IGNORE
    seen, gold = made["ids"][asked], made["labels"][asked]
    shares = [
        float((seen == MASK).float().mean()),
        float(((seen != MASK) & (seen != gold)).float().mean()),
    ]
    assert shares == pytest.approx([0.8, 0.1], abs=0.03) and int(asked.sum()) == 400 * 5
    assert bool((made["ids"][~asked] >= 0).all())
    assert made["ids"][:, 0].eq(CLS).all()
    assert made["ids"][:, -1].eq(SEP).all()
    assert not torch.equal(batches("mlm")(0)["labels"], batches("mlm")(1)["labels"])  # dynamic
    assert torch.equal(batches("mlm")(3)["ids"], batches("mlm")(3)["ids"])


def test_edges_of_a_span_lie_beside_it_and_places_count_from_its_beginning():
    made = batches("span", batch=30, length=60)(0)
    for labels, edges, place in zip(made["labels"], made["edges"], made["place"], strict=True):
        for at in (labels != objectives.IGNORE).nonzero()[:, 0].tolist():
            left, right = edges[at].tolist()
            assert left < at < right and labels[left] == labels[right] == objectives.IGNORE
            assert all(labels[i] != objectives.IGNORE for i in range(left + 1, right))
            assert place[at] == at - left - 1


def test_exchanged_pieces_are_cut_where_a_sentence_begins():
    made = batches("sentence-order", batch=60, length=33, share=0.01)(0)
    assert 0.3 < made["swapped"].float().mean() < 0.7
    for ids, labels, segments, swapped in zip(
        made["ids"], made["labels"], made["segments"], made["swapped"], strict=True
    ):
        whole = torch.where(labels == objectives.IGNORE, ids, labels)
        at = int((whole == SEP).nonzero()[0])
        assert segments[: at + 1].eq(0).all() and segments[at + 1 : 33].eq(1).all()
        first, second = whole[1:at], whole[at + 1 : -1]
        a, b = (second, first) if swapped else (first, second)
        # the text goes on, from a sentence's beginning
        assert len(a) % 6 == 0 and (int(a[-1]) - 4 + 1) % 36 == int(b[0]) - 4


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if o != objectives.CAUSAL])
@pytest.mark.slow
def test_an_objective_is_learnt_and_reaches_every_weight(objective, text_encoder):
    torch.manual_seed(0)
    encoder = text_encoder("electra", vocab_size=V)  # narrow embeddings
    model = objectives.Pretraining(encoder.train(), nn.Embedding(V, 16), objective)
    optimiser, losses = torch.optim.Adam(model.parameters(), 3e-3), []
    for step in range(25):
        found = model(**batches(objective)(step % 5))
        optimiser.zero_grad()
        found["loss"].backward()
        optimiser.step()
        losses.append(float(found["masked"]))
    without = {n for n, p in model.named_parameters() if p.grad is None and "set_input" not in n}
    # the tables that are empty
    assert all("embeddings.word" in n or "place" in n for n in without), without
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 1  # of the same batches; dropout alone: 0.2
    extra = {"span": "edge", "sentence-order": "order", "replaced-token": "replaced"}.get(objective)
    assert extra is None or torch.isfinite(found[extra])
    if objective == "replaced-token":
        assert model.generator.config.num_hidden_layers == 1


def tiny(kind):
    if kind == "gpt2":
        return objectives.make_gpt2(50, 1, 16, 2, 32).config
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"ffn_dim": 32, "word_embed_proj_dim": 8, "max_position_embeddings": 32}
    return OPTConfig(**sizes, **more)


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_new_rows_read_and_write_in_every_kind(kind, tmp_path):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny(kind))
    objectives.set_rows(model, 0.1 * torch.randn(9, model.get_input_embeddings().embedding_dim), 8)
    trained = objectives.CausalModel(model).eval()
    ids = torch.tensor([[8, 1, 2, 3], [8, 4, 5, 8]])
    logits = trained.logits(ids, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    assert logits.shape == (2, 4, 9)
    objectives.save_causal(model, trained, tmp_path / "model")
    again = objectives.load_causal(str(tmp_path / "model")).eval()
    for one in (model, again):
        assert torch.allclose(one(input_ids=ids).logits[0], logits[0], atol=1e-5)
    assert again.config.eos_token_id == 8


def test_the_loss_is_of_what_comes_next_without_padding():
    torch.manual_seed(0)
    model = objectives.make_gpt2(50, 1, 16, 2, 32)
    objectives.set_rows(model, 0.1 * torch.randn(9, 16), 8)
    trained, mask = objectives.CausalModel(model).eval(), torch.tensor([[1, 1, 1, 0]])
    scores = trained.logits(torch.tensor([[8, 1, 2, 8]]), mask)[0].log_softmax(-1)
    wanted = float(-(scores[0, 1] + scores[1, 2]).detach() / 2)
    for padding in (8, 5):
        loss = trained(torch.tensor([[8, 1, 2, padding]]), mask)["loss"].item()
        assert loss == pytest.approx(wanted, abs=1e-5)
