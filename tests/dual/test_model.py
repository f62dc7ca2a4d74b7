"""The span model on every family of text encoders: padding changes nothing, labels point at
answers, batches of examples, answering, and readers on disk."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizer

from speechssl.dual.data import (
    Example,
    ExampleBatches,
    Layout,
    Window,
    collate,
    cut_windows,
    mark_window,
    replace_tokens,
)
from speechssl.dual.model import IGNORED, Bert, drop_pooler, load_reader, save_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader, retrieve_windows
from speechssl.quantisation import dequantise, quantise
from speechssl.textlm.encoders import count_positions

from ..files import refused
from .conftest import KINDS, LAYOUT, SYMBOLS, random_batch, random_sequence, random_tokens

# ---- sequences


def test_a_long_question_loses_its_tail():
    ids, offset = LAYOUT.make_sequence(np.arange(10), np.array([20]))
    assert ids.tolist() == [30, 0, 1, 2, 3, 4, 5, 31, 20, 31]
    assert ids[offset] == 20


def test_sequences_and_segments_are_those_of_berts_own_tokeniser():
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "who", "is", "it", "ann", "ran"]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    questions, passages = ("who is it", "who"), ("it is ann", "ann ran")
    expected = tokenizer(questions, passages, padding=True, return_tensors="pt")
    layout = Layout(tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    sequences = []
    for texts in zip(questions, passages, strict=True):
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        sequences.append(layout.make_sequence(*map(np.array, ids)))
    batch = collate(sequences, layout.pad)
    assert torch.equal(batch["ids"], expected["input_ids"])
    assert torch.equal(batch["mask"], expected["attention_mask"])
    assert torch.equal(batch["segments"], expected["token_type_ids"])
    in_window = mark_window(batch["mask"], batch["segments"])
    assert in_window.tolist() == [[0] * 5 + [1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0, 0, 0]]


def test_longformer_looks_globally_from_cls_the_question_and_its_sep_alone(span_model):
    batch = random_batch((2, 4), (3, 2))
    model = span_model("longformer")
    embedded = model.embedding(batch["ids"])
    inputs = model.inputs(embedded, batch["mask"], batch["segments"])
    assert inputs["global_attention_mask"].tolist() == [[1] * 4 + [0] * 5, [1] * 5 + [0] * 4]
    assert "token_type_ids" not in inputs  # it has one kind of segment, as RoBERTa


# ---- models


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_logit_and_only_cls_and_the_window_can_be_chosen(span_model, kind):
    model = span_model(kind)
    short, long = random_sequence(2, 7), random_sequence(6, 24, seed=5)
    with torch.no_grad():
        alone = model.logits(**collate([short], LAYOUT.pad))[0]
        padded = model.logits(**collate([long, short], LAYOUT.pad))[1]
        model.embedding.weight[LAYOUT.pad] = 100.0
        other_padding = model.logits(**collate([long, short], LAYOUT.pad))[1]
    ids, offset = short
    assert alone.shape == (len(ids), 2)
    torch.testing.assert_close(padded[: len(ids)], alone, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(other_padding, padded, atol=2e-5, rtol=1e-5)
    allowed = torch.zeros(len(padded), dtype=torch.bool)
    allowed[0] = True  # [CLS]
    allowed[offset : offset + 7] = True
    assert (padded[allowed] > IGNORED / 2).all()
    assert (padded[~allowed] == IGNORED).all()


def test_the_windows_most_like_the_question_are_read_and_places_stay_those_of_the_passage(
    span_model,
):
    question = np.array([20, 21, 22])
    passage = np.arange(100) % 10
    passage[55:58] = question
    passage[[3, 15, 90]] = question  # apart from each other: they share no bigram
    tiling = cut_windows(100, LAYOUT.size, LAYOUT.stride)
    most_alike = retrieve_windows(tiling, question, passage, count=2, ngram=2)
    assert most_alike == (Window(36, 24), Window(48, 24))
    reader = Reader(span_model("bert"), LAYOUT)
    (answer,) = replace(reader, retrieve=2, ngram=2).read([(question, passage)])
    assert 36 <= answer.first <= answer.last < 72


def test_where_no_window_is_left_out_retrieval_changes_nothing(span_model):
    question, passage = random_tokens(3), random_tokens(100, seed=1)
    reader = Reader(span_model("bert"), LAYOUT)
    windows = cut_windows(100, LAYOUT.size, LAYOUT.stride)
    retrieving = replace(reader, retrieve=len(windows), ngram=2)
    assert retrieving.read([(question, passage)]) == reader.read([(question, passage)])
    one_window = [(question, passage[: LAYOUT.size])]
    assert replace(retrieving, retrieve=1).read(one_window) == reader.read(one_window)


def test_the_loss_is_the_mean_of_two_cross_entropies_and_exact_the_share_with_both_ends_right(
    span_model,
):
    model = span_model()
    batch = random_batch((2, 8), (3, 9))
    first, last = torch.tensor([5, 0]), torch.tensor([7, 0])
    with torch.no_grad():
        logits = model.logits(**batch)
        loss = model(**batch, first=first, last=last)["loss"]
        log_probs, rows = logits.log_softmax(1), torch.arange(2)
        expected = -(log_probs[rows, first, 0].mean() + log_probs[rows, last, 1].mean()) / 2
        torch.testing.assert_close(loss, expected)
        first, last = logits.argmax(1).unbind(1)
        assert model(**batch, first=first, last=last)["exact"] == 1
        one_wrong_end = last + torch.tensor([0, 1])
        assert model(**batch, first=first, last=one_wrong_end)["exact"] == 0.5


# ---- batches


@st.composite
def example_sets(draw):
    """Examples whose passages have no token twice and none in common."""
    examples = []
    for _ in range(draw(st.integers(1, 7))):
        total = draw(st.integers(1, 60))
        first = draw(st.integers(0, total - 1))
        last = draw(st.integers(first, total - 1))
        passage = 100 * len(examples) + np.random.default_rng(total).permutation(total)
        examples.append(Example(1_000 + np.arange(draw(st.integers(0, 9))), passage, first, last))
    return examples


@given(example_sets(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 5), st.integers(0, 40))
def test_labels_point_at_the_answers_tokens(examples, empty, size, step):
    layout = Layout(cls=2_000, sep=2_001, pad=2_002, size=16, stride=8, question=5)
    batch = make_batches(examples, layout, seed=3, batch=size, empty=empty)(step)
    assert len(batch["ids"]) == min(size, len(examples))
    in_window = mark_window(batch["mask"], batch["segments"]).bool().numpy()
    for row, ids in enumerate(batch["ids"].numpy()):
        first, last = int(batch["first"][row]), int(batch["last"][row])
        window = ids[in_window[row]]
        example = next(e for e in examples if contains(e.passage, window))
        answer = example.passage[example.first : example.last + 1]
        assert len(window) == min(16, len(example.passage))
        # three specials, and a question of at most five tokens
        assert batch["mask"][row].sum() == len(window) + 3 + min(len(example.question), 5)
        if first == 0:
            assert last == 0
            assert not contains(window, answer)
            assert empty > 0 or len(answer) > 16
        else:
            assert np.array_equal(ids[first : last + 1], answer)
            assert in_window[row, first : last + 1].all()


def contains(whole, part):
    starts = range(len(whole) - len(part) + 1)
    return any(np.array_equal(part, whole[start : start + len(part)]) for start in starts)


def make_batches(examples, layout=LAYOUT, seed=0, **changes):
    training = replace(QaOptions().training, seed=seed)
    return ExampleBatches(examples, layout, QaOptions(training, **changes))


def make_hundreds(count, **changes):
    """Make batches of four examples with passages of 100 tokens and answers of three; the question
    is the number of the example."""
    rng = np.random.default_rng(0)
    examples = []
    for i in range(count):
        examples.append(Example(np.array([i]), rng.permutation(100), first=40 + i, last=42 + i))
    return make_batches(examples, batch=4, **changes)


def test_a_batch_depends_on_seed_and_step_only_and_an_epoch_has_every_example_once():
    ids = make_hundreds(12)(7)["ids"]
    assert torch.equal(ids, make_hundreds(12)(7)["ids"])
    assert not torch.equal(ids, make_hundreds(12, seed=2)(7)["ids"])
    batches = make_hundreds(12)
    questions = [batches(step)["ids"][:, 1].tolist() for step in range(6)]
    first_epoch, second_epoch = np.array(questions).reshape(2, 12).tolist()
    assert sorted(first_epoch) == list(range(12))
    assert sorted(second_epoch) == list(range(12))
    assert first_epoch != second_epoch


def test_answers_stand_everywhere_in_the_window_and_some_windows_are_empty():
    batches = make_hundreds(4, empty=0.25)
    firsts = np.concatenate([batches(step)["first"].numpy() for step in range(400)])
    places = firsts[firsts > 0] - 3  # in the window, behind [CLS], the question and [SEP]
    assert set(places) == set(range(24 - 3 + 1))
    # a quarter of the windows starts at any of 77 places, and from 22 of them holds the answer
    assert np.mean(firsts == 0) == pytest.approx(0.25 * (1 - 22 / 77), abs=0.04)


def test_short_windows_come_first_with_as_many_tokens_and_whole_ones_after():
    batches = make_hundreds(12, window=24, stride=12, short_window=8, short_steps=3)
    # the segment of the window has its [SEP] as well
    sizes = [int(batches(step)["segments"].sum(1).max()) - 1 for step in range(6)]
    assert sizes == [8, 8, 8, 24, 24, 24]
    assert len(batches(2)["ids"]) * 8 == len(batches(3)["ids"]) * 24


def test_a_share_of_the_tokens_is_replaced_and_no_special():
    before = np.tile(np.arange(SYMBOLS + 3), 100)
    after = before.copy()
    replace_tokens(np.random.default_rng(0), after, 0.5, LAYOUT.symbols)
    special = before >= SYMBOLS
    assert np.array_equal(after[special], before[special])
    assert (after[~special] < SYMBOLS).all()
    changed = np.mean((after != before)[~special])
    # one in SYMBOLS random tokens is the token itself
    assert changed == pytest.approx(0.5 * (1 - 1 / SYMBOLS), abs=0.03)


# ---- answering


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes", "longest"),
    [
        ("bert", {}, 128),
        ("roberta", {}, 126),  # positions 0 and 1 are its padding's
        # windows of 8: 38 would be filled up to 40
        ("longformer", {"max_position_embeddings": 40}, 32),
        ("modernbert", {}, 128),
    ],
)
def test_the_longest_sequence_is_read_and_one_more_is_not(text_encoder, kind, changes, longest):
    model = text_encoder(kind, **changes)
    assert count_positions(model) == longest
    embedded = torch.zeros(1, longest + 1, 32)
    model(inputs_embeds=embedded[:, :-1])
    if kind != "modernbert":  # rotates: its limit is what it was trained on
        with pytest.raises((IndexError, RuntimeError)):
            model(inputs_embeds=embedded)


@pytest.mark.parametrize("kind", ["bert", "longformer", "modernbert"])
def test_a_batch_is_answered_as_its_items_are_one_by_one(span_model, kind):
    reader = Reader(span_model(kind), LAYOUT, batch=3)
    rng = np.random.default_rng(0)
    items = []
    for i in range(9):
        question = random_tokens(int(rng.integers(0, 9)), seed=i)
        items.append((question, random_tokens(int(rng.integers(1, 80)), seed=100 + i)))
    for answer, item in zip(reader.read(items), items, strict=True):
        (single,) = reader.read([item])
        assert (answer.first, answer.last) == (single.first, single.last)
        assert answer.score == pytest.approx(single.score, abs=1e-4)
        assert answer.confidence == pytest.approx(single.confidence, abs=1e-4)
        assert 0 <= answer.first <= answer.last < len(item[1])
        assert answer.last - answer.first < LAYOUT.answer
        assert 0 < answer.confidence <= 1


# ---- span models on disk


@pytest.fixture
def reader_folder(span_model, tmp_path):
    save_reader(tmp_path / "reader", span_model(), LAYOUT, {"what": "toy"})
    return tmp_path / "reader"


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_reader_has_the_saved_weights_rounded(span_model, tmp_path, kind):
    model = span_model(kind)
    save_reader(tmp_path, model, LAYOUT, {"what": "toy", "seed": 3})
    loaded, layout, card = load_reader(tmp_path)
    assert layout == LAYOUT
    assert card["seed"] == 3
    expected = dequantise(quantise(drop_pooler(model.state_dict())))
    assert loaded.state_dict().keys() == expected.keys()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, expected[name]), name
    batch = random_batch((4, 20))
    model.load_state_dict(expected, strict=False)
    with torch.no_grad():
        logits = model.logits(**batch)
        torch.testing.assert_close(loaded.logits(**batch), logits, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("sizes", [(20, 20), (20, 7)])  # without padding, and with
def test_a_bert_that_only_answers_gives_the_numbers_of_transformers(reader_folder, sizes, bf16):
    trained_model, _, _ = load_reader(reader_folder)
    answering_model, _, _ = load_reader(reader_folder, answering=True)
    assert isinstance(answering_model.encoder, Bert)
    batch = random_batch(*((4, size) for size in sizes))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = answering_model.logits(**batch)
        expected = trained_model.logits(**batch)
    tolerance = 0 if bf16 else 1e-5  # oneDNN adds in another order in fp32
    torch.testing.assert_close(logits, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.safetensors", "model.safetensors is missing or does not match its card"),
        ("card.json", "does not hold a reader"),
    ],
)
def test_a_file_that_is_not_the_readers_is_named(reader_folder, name, message):
    (reader_folder / name).write_text("{}")
    refused(message, load_reader, reader_folder)
