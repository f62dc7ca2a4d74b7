"""Artificial data have the property that their name says, and no other."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textside import data

from ...files import refused

SYMBOLS = 97  # ids of a vocabulary


def draw(name, length, symbols=SYMBOLS, seed=0):
    """Draw a sequence (L,) from the artificial data of this name."""
    ids = data.make_stream(name, symbols)(np.random.default_rng(seed), length)
    assert ids.shape == (length,)
    assert ids.dtype == np.int64
    return ids


@given(
    st.integers(1, 60),
    st.integers(0, 10**6),
    st.sampled_from(("random", "nested", "flat", "flat-3", "shuffle-4", "copy-5")),
)
def test_a_sequence_has_ids_of_the_vocabulary_and_follows_from_the_seed(length, seed, name):
    ids = draw(name, length, seed=seed)
    assert ids.min() >= 0
    assert ids.max() < SYMBOLS
    assert np.array_equal(ids, draw(name, length, seed=seed))


@given(st.integers(1, 30), st.integers(0, 10**6))
def test_nested_pairs_close_in_reverse_order(pairs, seed):
    numbers, opens = data.draw_brackets(np.random.default_rng(seed), 2 * pairs)
    stack = []
    for number, opening in zip(numbers, opens, strict=True):
        if opening:
            stack.append(number)
        else:
            assert stack.pop() == number
    assert not stack
    assert opens.sum() == pairs
    # of a million ids few are drawn for several pairs
    counts = Counter(draw("nested", 2 * pairs, symbols=10**6, seed=seed).tolist())
    assert set(counts.values()) <= {2, 4, 6}


def test_brackets_of_dyck_open_and_close_with_ids_of_their_own():
    ids = draw("dyck-5", length=200, symbols=10)  # 0 to 4 open, 5 to 9 close
    stack = []
    for token in ids:
        if token < 5:
            stack.append(token)
        else:
            assert stack.pop() + 5 == token
    assert not stack
    assert set(ids) == set(range(10))


@pytest.mark.parametrize("farthest", [1, 3, 40])
def test_flat_partners_lie_within_reach_and_cross(farthest):
    ids = draw(f"flat-{farthest}", length=400, symbols=10**6)
    places = defaultdict(list)  # id -> places
    for place, token in enumerate(ids.tolist()):
        places[token].append(place)
    pairs = [p for p in places.values() if len(p) == 2]
    assert len(pairs) > 120  # of 200; some places find no partner
    assert max(b - a for a, b in pairs) <= farthest
    crossing = any(a < c < b < d for a, b in pairs for c, d in pairs)
    assert crossing == (farthest > 1)


@pytest.mark.parametrize("run", [4, 6, 64])
def test_shuffled_runs_are_successive_ids_out_of_order(run):
    ids = draw(f"shuffle-{run}", length=4 * run, symbols=10 * run).reshape(4, run)
    for part in ids:
        assert np.array_equal(np.sort(part), np.arange(part.min(), part.min() + run))
    assert any(not np.array_equal(np.sort(part), part) for part in ids)


@pytest.mark.parametrize(("name", "piece"), [("copy", 10), ("copy-5", 5)])
def test_every_piece_of_a_copy_comes_twice(name, piece):
    pieces = draw(name, length=20).reshape(-1, 2, piece)
    assert np.array_equal(pieces[:, 0], pieces[:, 1])


def test_unigrams_are_as_frequent_and_bigrams_follow_each_other_as_in_the_text():
    text = np.array([0, 1, 2] * 50 + [3])  # 0 is always followed by 1, 1 by 2
    ids = data.make_stream("unigram", SYMBOLS, text)(np.random.default_rng(0), 6000)
    shares = np.bincount(ids, minlength=4) / 6000
    assert shares == pytest.approx(np.bincount(text) / len(text), abs=0.03)
    ids = data.make_stream("bigram", SYMBOLS, text)(np.random.default_rng(0), 3000)
    followers = defaultdict(set)
    for first, second in pairwise(ids.tolist()):
        followers[first].add(second)
    assert followers[0] == {1}
    assert followers[1] == {2}
    assert followers[2] == {0, 3}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bigram", "imitate a text; give one"),
        ("nested-4", "there is no artificial data"),
        ("shuffle", "shuffle-0"),
        ("shuffle-98", "shuffle-98"),
    ],
)
def test_names_that_are_unknown_or_lack_a_text_or_a_fitting_number_are_refused(name, message):
    refused(message, data.make_stream, name, SYMBOLS)


@pytest.fixture
def folder(tmp_path):
    """A folder with two text files."""
    (tmp_path / "more").mkdir()
    paragraphs = "The lake is old. It was\nnamed by Dr. Ox!\n\nA second paragraph.\n"
    (tmp_path / "a.txt").write_text(paragraphs)
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
        ('He came. "Why?" She left! 3 of 4.5', ["He came.", '"Why?"', "She left!", "3 of 4.5"]),
        ('(He said: "Why?") She left.', ['(He said: "Why?")', "She left."]),
        ("he came . was it dr. ox ? no", ["he came .", "was it dr. ox ?", "no"]),  # recognised
        ("he came.\nthat is all.", ["he came.", "that is all."]),  # a sentence a line
        ("他来了。为什么？走吧", ["他来了。", "为什么？", "走吧"]),
        ("他问：「为什么？」她走了。", ["他问：「为什么？」", "她走了。"]),
        ("他说：『「走吧。」』她走了。", ["他说：『「走吧。」』", "她走了。"]),
        ('他来了。"为什么。', ["他来了。", '"为什么。']),
    ],
)
def test_a_paragraph_is_split_where_sentences_end(text, sentences):
    assert data.split_sentences(text) == sentences


def test_tokens_know_where_words_and_sentences_begin_and_a_part_has_its_length(folder):
    text = data.load_text(folder)
    tokenizer = data.train_vocabulary(text.paragraphs, 60)
    tokens = data.tokenise(text, tokenizer)
    pieces = tokenizer.convert_ids_to_tokens(tokens.ids.tolist())
    begins_word = [not piece.startswith("##") for piece in pieces]
    assert tokens.words.tolist() == begins_word
    sentences = [data.split_sentences(paragraph) for paragraph in text.paragraphs]
    assert tokens.sentences.sum() == sum(map(len, sentences))
    assert "".join(p.removeprefix("##") for p in pieces).startswith("thelakeisold.")

    ids, words, _ = tokens.draw_part(np.random.default_rng(0), 5)
    assert len(ids) == 5
    assert len(words) == 5
    whole, _, _ = tokens.draw_part(np.random.default_rng(0), 10_000)
    assert len(whole) == len(tokens.ids)
