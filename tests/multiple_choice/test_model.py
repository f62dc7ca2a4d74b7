"""Multiple choice: shapes, padding that changes nothing, windows that are combined, a likelihood of
sets."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from speechssl.data.records import Question
from speechssl.dual.data import Layout
from speechssl.dual.model import save_reader
from speechssl.multiple_choice.data import (
    ChoiceBatches,
    ChoiceExample,
    ChoiceTokens,
    sort_by_overlap,
)
from speechssl.multiple_choice.model import (
    ChoiceModel,
    ChoiceReader,
    load_choice,
    log_sum_of_sets,
    score_choice,
)
from speechssl.multiple_choice.options import ChoiceOptions
from speechssl.options import TrainingOptions

KINDS = ("albert", "distilbert", "longformer")
LAYOUT = Layout(cls=30, sep=31, pad=32, size=16, stride=8, question=12)


def make_batches(items, layout, size=4, windows=2, seed=0, random_units=0.0):
    training = TrainingOptions(1, 1e-3, seed=seed)
    options = ChoiceOptions(training, batch=size, windows=windows, random_units=random_units)
    return ChoiceBatches(items, layout, options)


@pytest.fixture(scope="module")
def choice_model(text_encoder):
    def make(kind="bert"):
        encoder = text_encoder(kind)
        torch.manual_seed(1)
        width = encoder.get_input_embeddings().embedding_dim
        model = ChoiceModel(encoder, nn.Embedding(33, width)).eval()
        nn.init.normal_(model.head.weight)
        return model

    return make


def choice(seed=0, options=(3, 5, 4, 6), passage=40):
    rng = np.random.default_rng(seed)
    return ChoiceTokens(
        rng.integers(0, 30, 5),
        tuple(rng.integers(0, 30, n) for n in options),
        rng.integers(0, 30, passage),
    )


def examples(*choices, correct=(1,)):
    return [ChoiceExample(c, sort_by_overlap(c, c.windows(LAYOUT)), correct) for c in choices]


# ---- the model


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_encoder_gives_every_option_a_probability(choice_model, kind):
    items = [choice(0), choice(1, options=(2, 3), passage=5), choice(2, (4,) * 5, passage=0)]
    scores = ChoiceReader(choice_model(kind), LAYOUT, batch=7).score_many(items)
    assert [len(s) for s in scores] == [4, 2, 5]
    for found in scores:
        assert np.exp(found).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_neither_padding_nor_company_nor_the_size_of_batches_matters(choice_model, kind):
    model = choice_model(kind)
    items = [choice(n, options=(3, 4, 5)[: 2 + n % 2], passage=10 + 13 * n) for n in range(4)]
    alone = [ChoiceReader(model, LAYOUT, batch=1).score_many([item])[0] for item in items]
    for batch in (3, 64):
        together = ChoiceReader(model, LAYOUT, batch).score_many(items)
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_allclose(one, many, atol=2e-4)


def test_training_and_answering_score_alike_where_all_windows_are_read(choice_model):
    model, items = choice_model(), [choice(0), choice(1, options=(3, 3), passage=60)]
    batch = make_batches(examples(*items), LAYOUT, size=2, windows=0)(0)
    with torch.no_grad():
        loss = float(model(**batch)["loss"])
    scores = ChoiceReader(model, LAYOUT).score_many(items)
    assert loss == pytest.approx(-np.mean([s[1] for s in scores]), abs=1e-4)


def test_a_combination_lies_within_the_evidence_and_a_window_twice_is_the_window_once(choice_model):
    torch.manual_seed(0)
    evidence, present = torch.randn(2, 3, 5, 2), torch.ones(2, 3, 10, dtype=torch.bool)
    model, first = choice_model(), evidence[..., 0]
    scores = model.scores(evidence, present[..., :5])
    assert ((first.amin(-1) <= scores) & (scores <= first.amax(-1))).all()
    torch.testing.assert_close(model.scores(evidence.repeat_interleave(2, 2), present), scores)
    torch.testing.assert_close(model.scores(evidence[:, :, :1], present[..., :1]), first[..., 0])


def test_the_combination_is_learned(choice_model):
    model = choice_model().train()
    batch = make_batches(examples(choice(0), choice(1)), LAYOUT, size=2, windows=3)(0)
    model(**batch)["loss"].backward()
    for p in (model.sharpness, model.likeness, model.dense.weight, model.embedding.weight):
        assert p.grad.abs().sum() > 0
    assert all(row.abs().sum() > 0 for row in model.head.weight.grad)


def test_a_model_comes_back(choice_model, tmp_path):
    model = choice_model()
    save_reader(tmp_path, model, LAYOUT, {"what": "multiple choice"})
    loaded, layout, _ = load_choice(tmp_path)
    assert layout == LAYOUT
    before, after = (ChoiceReader(m, LAYOUT).score_many([choice()])[0] for m in (model, loaded))
    np.testing.assert_allclose(before, after, atol=0.1)


# ---- sets


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=6), st.data())
def test_the_sum_over_sets_is_that_over_all_of_them(values, data):
    size = data.draw(st.integers(1, len(values)))
    scores = torch.tensor([values], dtype=torch.float64)
    sums = [sum(picked) for picked in combinations(values, size)]
    found = float(log_sum_of_sets(scores, torch.tensor([size])))
    assert found == pytest.approx(np.logaddexp.reduce(sums), abs=1e-9)


def test_options_that_are_padding_are_in_no_set(choice_model):
    def loss(items):
        batch = make_batches(items, LAYOUT, size=len(items), windows=0)(0)
        with torch.no_grad():
            return float(choice_model()(**batch)["loss"])

    items = examples(choice(0, options=(3, 4)), choice(1), correct=(0, 1))
    first, second = loss(items[:1]), loss(items[1:])
    assert loss(items) == pytest.approx((first + second) / 2, abs=1e-4)
    assert first == pytest.approx(0, abs=1e-5)  # two of two options: there is nothing to choose


# ---- batches


@pytest.mark.parametrize("windows", [0, 1, 2, 3, 5, 99])
def test_no_window_is_read_twice_and_the_likeliest_always(windows):
    # a token says where it stands
    (example,) = examples(ChoiceTokens(np.array([99]), (np.array([99]),) * 2, np.arange(70)))
    layout = replace(LAYOUT, cls=100, sep=101, pad=102)
    for step in range(5):
        batch = make_batches([example], layout, windows=windows)(step)
        drawn = batch["ids"][0, 0, :, 5].tolist()  # [CLS] question [SEP] option [SEP]
        assert len(drawn) == len(set(drawn)) == min(windows or 99, len(example.windows))
        likeliest = (len(drawn) + 1) // 2
        assert drawn[:likeliest] == [w.first for w in example.windows[:likeliest]]


# ---- scores of multiple choice: what is right, what chance is worth, which option is longest


@given(st.integers(1, 6), st.data())
def test_chance_is_the_mean_over_all_sets_of_the_right_size(count, data):
    correct = tuple(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    asked = Question("q", "p", "", 0.0, "why", "", "en", options=("a",) * count, correct=correct)
    sets = combinations(range(count), len(correct))
    mean = np.mean([score_choice(asked, some).set_accuracy for some in sets])
    assert score_choice(asked, None).set_accuracy == pytest.approx(mean)
