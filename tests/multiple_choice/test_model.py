"""The model of multiple choice: padding changes no score, evidence of windows is combined, and sets
of options have a likelihood."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from speechssl.dual.data import Layout
from speechssl.multiple_choice.data import (
    ChoiceBatches,
    ChoiceExample,
    ChoiceTokens,
    sort_by_overlap,
)
from speechssl.multiple_choice.model import (
    ChoiceModel,
    ChoiceReader,
    sum_over_sets,
)
from speechssl.multiple_choice.options import ChoiceOptions
from speechssl.options import TrainingOptions

KINDS = ("albert", "distilbert", "longformer")
LAYOUT = Layout(cls=30, sep=31, pad=32, size=16, stride=8, question=12)


def make_batches(examples, layout, size=4, windows=2):
    training = TrainingOptions(steps=1, learning_rate=1e-3)
    options = ChoiceOptions(training, batch=size, windows=windows)
    return ChoiceBatches(examples, layout, options)


@pytest.fixture(scope="module")
def choice_model(text_encoder):
    """A function (kind) -> a ChoiceModel with random weights, in its head as well."""

    def make(kind="bert"):
        encoder = text_encoder(kind)
        torch.manual_seed(1)
        width = encoder.get_input_embeddings().embedding_dim
        model = ChoiceModel(encoder, nn.Embedding(33, width)).eval()
        nn.init.normal_(model.head.weight)
        return model

    return make


def make_choice(seed=0, options=(3, 5, 4, 6), passage=40):
    """Make a question of random tokens. options, passage: their numbers of tokens."""
    rng = np.random.default_rng(seed)
    return ChoiceTokens(
        question=rng.integers(0, 30, 5),
        options=tuple(rng.integers(0, 30, n) for n in options),
        passage=rng.integers(0, 30, passage),
    )


def make_examples(*choices, correct=(1,)):
    return [ChoiceExample(c, sort_by_overlap(c, c.cut_windows(LAYOUT)), correct) for c in choices]


# ---- the model


@pytest.mark.parametrize("kind", KINDS)
def test_options_have_probabilities_whatever_else_is_in_the_batch(choice_model, kind):
    model = choice_model(kind)
    items = [make_choice(n, (3, 4, 5)[: 2 + n % 2], passage=13 * n) for n in range(4)]
    alone = [ChoiceReader(model, LAYOUT, batch=1).score_many([item])[0] for item in items]
    assert [len(log_probs) for log_probs in alone] == [2, 3, 2, 3]
    for log_probs in alone:
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-5)
    for batch in (3, 64):
        together = ChoiceReader(model, LAYOUT, batch).score_many(items)
        for expected, scores in zip(alone, together, strict=True):
            np.testing.assert_allclose(expected, scores, atol=2e-4)


def test_the_loss_is_that_of_the_answering_scores_where_all_windows_are_read(choice_model):
    model = choice_model()
    items = [make_choice(0), make_choice(1, options=(3, 3), passage=60)]
    batch = make_batches(make_examples(*items, correct=(1,)), LAYOUT, size=2, windows=0)(0)
    with torch.no_grad():
        loss = float(model(**batch)["loss"])
    scores = ChoiceReader(model, LAYOUT).score_many(items)
    assert loss == pytest.approx(-np.mean([log_probs[1] for log_probs in scores]), abs=1e-4)


def test_a_combination_lies_within_the_evidence_and_a_window_that_is_read_twice_counts_once(
    choice_model,
):
    model = choice_model()
    # of five windows: (B, O, W, 2)
    evidence = torch.randn(2, 3, 5, 2, generator=torch.Generator().manual_seed(0))

    def combine(evidence):
        return model.combine_evidence(evidence, torch.ones(evidence.shape[:3], dtype=torch.bool))

    scores = combine(evidence)
    assert (evidence[..., 0].amin(-1) <= scores).all()
    assert (scores <= evidence[..., 0].amax(-1)).all()
    torch.testing.assert_close(combine(evidence.repeat_interleave(2, 2)), scores)
    torch.testing.assert_close(combine(evidence[:, :, :1]), evidence[:, :, 0, 0])


def test_all_parts_of_the_model_get_gradients(choice_model):
    model = choice_model().train()
    examples = make_examples(make_choice(0), make_choice(1))
    model(**make_batches(examples, LAYOUT, size=2, windows=3)(0))["loss"].backward()
    for parameter in (model.sharpness, model.likeness, model.dense.weight, model.embedding.weight):
        assert parameter.grad.abs().sum() > 0
    for row in model.head.weight.grad:
        assert row.abs().sum() > 0


# ---- sets


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=6), st.data())
def test_the_sum_over_sets_is_that_over_all_of_them(values, data):
    size = data.draw(st.integers(1, len(values)))
    scores = torch.tensor([values], dtype=torch.float64)
    sums = [sum(subset) for subset in combinations(values, size)]
    log_sum = float(sum_over_sets(scores, torch.tensor([size])))
    assert log_sum == pytest.approx(np.logaddexp.reduce(sums), abs=1e-9)


# ---- batches


@pytest.mark.parametrize("windows", [0, 1, 2, 3, 5, 99])
def test_a_batch_has_the_likeliest_windows_and_none_twice(windows):
    passage = np.arange(70)  # a token says where it stands
    choice = ChoiceTokens(np.array([99]), (np.array([99]), np.array([99])), passage)
    (example,) = make_examples(choice)
    layout = replace(LAYOUT, cls=100, sep=101, pad=102)
    for step in range(5):
        batch = make_batches([example], layout, windows=windows)(step)
        # the first token behind [CLS] question [SEP] option [SEP]
        firsts = batch["ids"][0, 0, :, 5].tolist()
        assert len(firsts) == min(windows or 99, len(example.windows))
        assert len(set(firsts)) == len(firsts)
        half = (len(firsts) + 1) // 2
        assert firsts[:half] == [w.first for w in example.windows[:half]]
