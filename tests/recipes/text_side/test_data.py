"""Artificial data have the property that their name says, and no other."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.errors import InputError
from textside import data

V = 97


def drawn(stream, length, seed=0):
    made = stream(np.random.default_rng(seed), length)
    assert made.shape == (length,) and made.dtype == np.int64
    return made


@given(
    st.integers(1, 60),
    st.integers(0, 10**6),
    st.sampled_from(("random", "nested", "flat", "flat-3", "shuffle-4", "copy-5")),
)
def test_a_stream_has_its_length_and_ids_of_the_vocabulary_and_is_its_seeds(length, seed, name):
    stream = data.make_stream(name, V)
    made = drawn(stream, length, seed)
    assert 0 <= made.min() and made.max() < V
    assert np.array_equal(made, drawn(stream, length, seed))


@given(st.integers(1, 30), st.integers(0, 10**6))
def test_nested_pairs_close_in_reverse_order(pairs, seed):
    numbers, opens = data.draw_brackets(np.random.default_rng(seed), 2 * pairs)
    stack = []
    for number, opening in zip(numbers, opens, strict=True):
        if opening:
            stack.append(number)
        else:
            assert stack.pop() == number
    assert not stack and opens.sum() == pairs
    made = drawn(data.make_stream("nested", 10**6), 2 * pairs, seed).tolist()
    assert set(Counter(made).values()) <= {2, 4, 6}


def test_brackets_of_dyck_open_and_close_with_ids_of_their_own():
    made, stack = drawn(data.make_stream("dyck-5", 10), 200), []
    for token in made:
        if token < 5:
            stack.append(token)
        else:
            assert stack.pop() + 5 == token
    assert not stack and set(made) == set(range(10))


@pytest.mark.parametrize("farthest", [1, 3, 40])
def test_flat_partners_lie_within_reach_and_cross(farthest):
    made = drawn(data.make_stream(f"flat-{farthest}", 10**6), 400)
    places = {}
    for place, token in enumerate(made.tolist()):
        places.setdefault(token, []).append(place)
    pairs = [p for p in places.values() if len(p) == 2]
    assert max(b - a for a, b in pairs) <= farthest and len(pairs) > 120
    crossing = any(a < c < b < d for a, b in pairs for c, d in pairs)
    assert crossing == (farthest > 1)


@pytest.mark.parametrize("run", [4, 6, 64])
def test_shuffled_runs_are_successive_ids_out_of_order(run):
    made = drawn(data.make_stream(f"shuffle-{run}", 10 * run), 4 * run).reshape(4, run)
    assert all(
        np.array_equal(np.sort(part), np.arange(part.min(), part.min() + run)) for part in made
    )
    assert any(not np.array_equal(np.sort(part), part) for part in made)


def test_a_copy_is_one():
    made = drawn(data.make_stream("copy", V), 20)
    assert np.array_equal(made[:10], made[10:])
    made = drawn(data.make_stream("copy-3", V), 12).reshape(2, 2, 3)
    assert np.array_equal(made[:, 0], made[:, 1])


def test_unigram_and_bigram_are_as_frequent_as_in_the_text():
    text = np.array([0, 1, 2] * 50 + [3])  # 0 is always followed by 1, 1 by 2
    rng = np.random.default_rng(0)
    shares = np.bincount(data.make_stream("unigram", V, text)(rng, 6000), minlength=4) / 6000
    assert shares == pytest.approx([0.331, 0.331, 0.331, 0.007], abs=0.03)
    made = data.make_stream("bigram", V, text)(rng, 3000).tolist()
    follows = {a: {b for x, b in pairwise(made) if x == a} for a in (0, 1, 2)}
    assert follows == {0: {1}, 1: {2}, 2: {0, 3}}


def test_names_say_how_far_dependencies_reach():
    named = map(
        data.dependency_distance, ("shuffle-64", "flat-8", "copy-4", "nested", "dyck-8", "english")
    )
    assert list(named) == [64, 8, 4, None, None, None]
    for name in ("bigram", "bigram+copy", "shuffle", "nested-4", "shuffle-98", "words"):
        with pytest.raises(InputError):
            data.make_stream(name, V)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "a.txt").write_text(
        "The lake is old. It was\nnamed by Dr. Ox!\n\nA second paragraph.\n"
    )
    (tmp_path / "more/b.txt").write_text("\ufeffAnother lake.\n")
    return tmp_path


def test_a_file_is_a_document_of_paragraphs(folder):
    text = data.load_text(folder)
    assert dict(text.documents) == {
        "a.txt": ["The lake is old. It was named by Dr. Ox!", "A second paragraph."],
        "more/b.txt": ["Another lake."],
    }
    assert data.load_text(folder / "a.txt").paragraphs == text.paragraphs[:2]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('He came. "Why?" She left! 3 of 4.5', ["He came.", '"Why?', "She left!", "3 of 4.5"]),
        ("he came . was it dr. ox ? no", ["he came .", "was it dr. ox ?", "no"]),  # recognised
        ("he came.\nthat is all.", ["he came.", "that is all."]),  # a sentence a line
        ("他来了。为什么？走吧", ["他来了。", "为什么？", "走吧"]),
    ],
)
def test_sentences_end_with_their_marks(text, sentences):
    assert data.split_sentences(text) == sentences


def test_tokens_know_where_words_and_sentences_begin(folder):
    text = data.load_text(folder)
    tokenizer = data.train_vocabulary(text.paragraphs, 60)
    found = data.tokenise(text, tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(found.ids.tolist())
    assert [p.startswith("##") for p in pieces] == [not begins for begins in found.words]
    assert found.sentences.sum() == sum(len(data.split_sentences(p)) for p in text.paragraphs)
    assert "".join(p.removeprefix("##") for p in pieces).startswith("thelakeisold.")
    part, words, _ = found.draw_part(np.random.default_rng(0), 5)
    assert len(part) == len(words) == 5
    assert len(found.draw_part(np.random.default_rng(0), 10**4)[0]) == len(found.ids)
