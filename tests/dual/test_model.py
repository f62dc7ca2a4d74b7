"""The span reader on every family of text encoders: padding is not seen, labels point at answers,
answers can be learnt."""

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
    replace_tokens,
    window_mask,
    windows,
)
from speechssl.dual.model import IGNORED, Bert, drop_pooler, load_reader, save_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader, retrieve_windows
from speechssl.quantisation import dequantise, quantise
from speechssl.textlm.encoders import longest_sequence

from ..files import refused
from .conftest import KINDS, LAYOUT

SYMBOLS = 30


def tokens(count, seed=0):
    return np.random.default_rng(seed).integers(0, SYMBOLS, count)


def sequence(question, window, seed=0):
    return LAYOUT.sequence(tokens(question, seed), tokens(window, seed + 1))


# ---- sequences


def test_sequences_are_padded_to_one_length_and_a_long_question_loses_its_tail():
    ids, offset = LAYOUT.sequence(np.arange(10), np.array([20]))
    assert ids.tolist() == [30, 0, 1, 2, 3, 4, 5, 31, 20, 31]
    assert ids[offset] == 20
    assert ids.dtype == np.int64
    pairs = ([1], [2, 3]), (np.array([]), [4])
    batch = collate([LAYOUT.sequence(*map(np.array, pair)) for pair in pairs], LAYOUT.pad)
    assert batch["ids"].tolist() == [[30, 1, 31, 2, 3, 31], [30, 31, 4, 31, 32, 32]]
    assert batch["mask"].tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert batch["segments"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
    read = window_mask(batch["mask"], batch["segments"])
    assert read.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0]]


def test_segments_are_those_of_berts_own_tokeniser():
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "who", "is", "it", "ann", "ran"]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    asked, said = ("who is it", "who"), ("it is ann", "ann ran")
    golden = tokenizer(asked, said, padding=True, return_tensors="pt")
    layout = Layout(tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    questions, passages = (
        [np.array(ids) for ids in tokenizer(some, add_special_tokens=False)["input_ids"]]
        for some in (asked, said)
    )
    batch = collate(list(map(layout.sequence, questions, passages)), layout.pad)
    names = {"ids": "input_ids", "mask": "attention_mask", "segments": "token_type_ids"}
    for ours, theirs in names.items():
        assert torch.equal(batch[ours], golden[theirs]), ours


def test_longformer_looks_globally_from_cls_the_question_and_its_sep_alone(span_model):
    batch = collate([sequence(2, 4), sequence(3, 2)], LAYOUT.pad)
    model = span_model("longformer")
    given = model.inputs(model.embedding(batch["ids"]), batch["mask"], batch["segments"])
    assert given["global_attention_mask"].tolist() == [[1] * 4 + [0] * 5, [1] * 5 + [0] * 4]
    assert "token_type_ids" not in given  # it has one kind of segment, as RoBERTa
    one_text = model.inputs(model.embedding(batch["ids"]), batch["mask"], None)
    assert "global_attention_mask" not in one_text  # nothing is asked


# ---- models


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_logit_and_only_cls_and_the_window_can_be_chosen(span_model, kind):
    model = span_model(kind)
    short, long = sequence(2, 7), sequence(6, 24, seed=5)
    with torch.no_grad():
        alone = model.logits(**collate([short], LAYOUT.pad))[0]
        padded = model.logits(**collate([long, short], LAYOUT.pad))[1]
        model.embedding.weight[LAYOUT.pad] = 100.0
        repainted = model.logits(**collate([long, short], LAYOUT.pad))[1]
    size, offset = len(short[0]), short[1]
    assert alone.shape == (size, 2)
    assert alone.dtype == torch.float32
    torch.testing.assert_close(padded[:size], alone, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(repainted, padded, atol=2e-5, rtol=1e-5)
    allowed = [0, *range(offset, offset + 7)]
    assert (padded[allowed] > IGNORED / 2).all()
    assert (padded[[i for i in range(len(padded)) if i not in allowed]] == IGNORED).all()


def test_the_windows_most_like_the_question_are_read_and_places_stay_those_of_the_passage(
    span_model,
):
    question, passage = np.array([20, 21, 22]), np.arange(100) % 10
    passage[55:58] = question
    passage[[3, 15, 90]] = question  # one by one: no two of them in a row
    reader, asked = Reader(span_model("bert"), LAYOUT), [(question, passage)]
    every = windows(100, LAYOUT.size, LAYOUT.stride)
    assert [w.first for w in retrieve_windows(every, question, passage, 2, 2)] == [36, 48]
    assert Window(36, 24) in every
    some = replace(reader, retrieve=2, ngram=2)
    (found,) = some.read(asked)
    assert 36 <= found.first <= found.last < 72
    assert replace(some, retrieve=len(every)).read(asked) == reader.read(asked)
    short = [(question, passage[: LAYOUT.size])]
    assert replace(some, retrieve=1).read(short) == reader.read(short)


def test_the_loss_is_the_mean_of_two_cross_entropies(span_model):
    model, batch = span_model(), collate([sequence(2, 8), sequence(3, 9, 4)], LAYOUT.pad)
    first, last = torch.tensor([5, 0]), torch.tensor([7, 0])
    with torch.no_grad():
        logits = model.logits(**batch).log_softmax(1)
        found = model(**batch, first=first, last=last)
    rows = torch.arange(2)
    expected = -(logits[rows, first, 0].mean() + logits[rows, last, 1].mean()) / 2
    torch.testing.assert_close(found["loss"], expected)
    best = logits.argmax(1)
    right = model(**batch, first=best[:, 0], last=best[:, 1])["exact"]
    half = model(**batch, first=best[:, 0], last=torch.stack([best[0, 1], best[1, 1] + 1]))["exact"]
    assert (right, half) == (1, 0.5)


# ---- batches


@st.composite
def example_sets(draw):
    """Passages without a token in common, so that a token says where it stood."""
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
    batch = batches_of(examples, layout, seed=3, batch=size, empty=empty)(step)
    assert len(batch["ids"]) == min(size, len(examples))
    batch["read"] = window_mask(batch["mask"], batch["segments"])
    for row in range(len(batch["ids"])):
        ids, mask, inside = (batch[name][row].numpy() for name in ("ids", "mask", "read"))
        first, last = int(batch["first"][row]), int(batch["last"][row])
        window = ids[inside == 1]
        example = next(e for e in examples if is_cut_of(window, e.passage))
        answer = example.passage[example.first : example.last + 1]
        assert len(window) == min(16, len(example.passage))
        assert mask.sum() == len(window) + 3 + min(len(example.question), 5)
        if first == 0:
            assert last == 0
            assert not is_cut_of(answer, window)
            assert empty > 0 or len(answer) > 16
        else:
            assert np.array_equal(ids[first : last + 1], answer)
            assert inside[first : last + 1].all()


def is_cut_of(part, whole):
    return any(
        np.array_equal(part, whole[i : i + len(part)]) for i in range(len(whole) - len(part) + 1)
    )


def batches_of(examples, layout=LAYOUT, seed=0, **changes):
    training = replace(QaOptions().training, seed=seed)
    return ExampleBatches(examples, layout, QaOptions(training, **changes))


def long_examples(count):
    rng = np.random.default_rng(0)
    return [Example(np.array([i]), rng.permutation(100), 40 + i, 42 + i) for i in range(count)]


def test_a_batch_depends_on_seed_and_step_and_an_epoch_has_every_example_once():
    batches = batches_of(long_examples(12), batch=4)
    asked = [batches(step)["ids"][:, 1].tolist() for step in range(6)]
    first, second = np.array(asked).reshape(2, 12).tolist()
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert torch.equal(batches(7)["ids"], batches_of(long_examples(12), batch=4)(7)["ids"])
    other = batches_of(long_examples(12), batch=4, seed=2)
    assert not torch.equal(batches(7)["ids"], other(7)["ids"])


def test_answers_stand_everywhere_in_the_window_and_some_windows_are_empty():
    batches = batches_of(long_examples(4), batch=4, empty=0.25)
    firsts = np.concatenate([batches(step)["first"].numpy() for step in range(400)])
    held = firsts[firsts > 0] - 3  # after [CLS] one token [SEP]
    assert set(held) == set(range(24 - 3 + 1))
    # A quarter is put anywhere in 77 places, of which 22 hold the answer.
    assert np.mean(firsts == 0) == pytest.approx(0.25 * (1 - 22 / 77), abs=0.04)


def test_short_windows_come_first_with_as_many_tokens_and_whole_ones_after():
    options = {"window": 24, "stride": 12, "short_window": 8, "short_steps": 3}
    batches = batches_of(long_examples(12), batch=4, **options)
    windows = [int(batches(step)["segments"].sum(1).max()) for step in range(6)]
    assert windows == [9, 9, 9, 25, 25, 25]  # and the closing [SEP]
    assert [len(batches(step)["ids"]) for step in (2, 3)] == [12, 4]


def test_noise_replaces_a_share_of_the_tokens_and_no_special():
    before = np.tile(np.arange(SYMBOLS + 3), 100)
    noisy, special = before.copy(), before >= SYMBOLS
    replace_tokens(np.random.default_rng(0), noisy, 0.5, LAYOUT.symbols)
    assert np.array_equal(noisy[special], before[special])
    assert noisy.max() == SYMBOLS + 2
    share = np.mean((noisy != before)[~special])
    assert share == pytest.approx(0.5 * (1 - 1 / SYMBOLS), abs=0.03)


# ---- reading


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
    assert longest_sequence(model) == longest
    embedded = torch.zeros(1, longest + 1, 32)
    model(inputs_embeds=embedded[:, :-1])
    if kind != "modernbert":  # rotates: its limit is what it was trained on
        with pytest.raises((IndexError, RuntimeError)):
            model(inputs_embeds=embedded)


def asked(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (tokens(int(rng.integers(0, 9)), i), tokens(int(rng.integers(1, 80)), 100 + i))
        for i in range(count)
    ]


@pytest.mark.parametrize("kind", ["bert", "longformer", "modernbert"])
def test_reading_many_is_reading_one_by_one(span_model, kind):
    reader, items = Reader(span_model(kind), LAYOUT, batch=3), asked(9)
    many, single = reader.read(items), [reader.read([item])[0] for item in items]
    for a, b, (_, passage) in zip(many, single, items, strict=True):
        assert (a.first, a.last) == (b.first, b.last)
        assert a.score == pytest.approx(b.score, abs=1e-4)
        assert a.confidence == pytest.approx(b.confidence, abs=1e-4)
        assert 0 <= a.first <= a.last < len(passage)
        assert a.last - a.first < LAYOUT.answer
        assert 0 < a.confidence <= 1


# ---- span models on disk: what comes back, and every way the folder can be wrong


@pytest.fixture
def saved(span_model, tmp_path):
    save_reader(tmp_path / "reader", span_model(), LAYOUT, {"what": "toy"})
    return tmp_path / "reader"


# ---- round trips


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_comes_back(span_model, tmp_path, kind):
    model = span_model(kind)
    save_reader(tmp_path, model, LAYOUT, {"what": "toy", "seed": 3})
    loaded, layout, card = load_reader(tmp_path)
    assert layout == LAYOUT
    assert (card["what"], card["seed"]) == ("toy", 3)
    assert not loaded.training
    assert not any(p.requires_grad for p in loaded.parameters())
    expected = dequantise(quantise(drop_pooler(model.state_dict())))
    assert set(loaded.state_dict()) == set(expected)
    assert not any("pooler" in name for name in expected)
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    batch = collate([sequence(4, 20)], LAYOUT.pad)
    model.load_state_dict(expected, strict=False)
    with torch.no_grad():
        logits = [m.logits(**batch) for m in (loaded, model)]
    torch.testing.assert_close(*logits, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_bert_that_only_answers_gives_the_numbers_of_transformers(saved, bf16):
    theirs, ours = load_reader(saved)[0], load_reader(saved, answering=True)[0]
    assert isinstance(ours.encoder, Bert)
    assert not isinstance(theirs.encoder, Bert)
    assert not ours.training
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for sizes in ((20, 20), (20, 7)):  # without padding, and with
        batch = collate([sequence(4, size, seed) for seed, size in enumerate(sizes)], LAYOUT.pad)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            close = 0 if bf16 else 1e-5  # oneDNN's sums in fp32
            torch.testing.assert_close(
                ours.logits(**batch), theirs.logits(**batch), atol=close, rtol=0
            )


# ---- refusals


@pytest.mark.parametrize("name", ["model.safetensors", "card.json"])
def test_a_file_that_is_not_the_readers_is_named(saved, name):
    (saved / name).write_text("{}")
    wanted = f"{name} does not match its card" if "model" in name else "does not hold a reader"
    refused(wanted, load_reader, saved)
