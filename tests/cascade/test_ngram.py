"""N-gram models: probabilities that add up, on any texts; what training learns; and ARPA files, whole and damaged."""

import gzip
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.decode import BEGIN, END, NEVER, UNKNOWN, read_arpa, train_ngram
from speechssl.errors import InputError

TEXTS = ["turn on the light", "turn off the light", "turn on the radio", "the light is on", "on"]


def total(model, context):
    return sum(10 ** model.log_prob(context, i) for i, word in enumerate(model.words) if word != BEGIN)


def sentence(model, words):
    """log10 of the probability of a whole sentence, its end included."""
    context, found = model.start, 0.0
    for number in [*(model.numbers.get(w, model.numbers[UNKNOWN]) for w in words), model.numbers[END]]:
        found += model.log_prob(context, number)
        context = model.after(context, number)
    return found


texts = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=6)


@given(texts, st.integers(1, 5), st.data())
def test_probabilities_add_up_to_1_after_any_context(sentences, order, data):
    model = train_ngram(sentences, order)
    words = st.integers(0, len(model.words) - 1)
    context = tuple(data.draw(st.lists(words, max_size=order - 1)))
    assert total(model, context) == pytest.approx(1, abs=1e-5)
    assert total(model, model.start) == pytest.approx(1, abs=1e-5)
    assert all(model.log_prob(context, i) > -20 for i, word in enumerate(model.words) if word != BEGIN)


def test_a_bigram_by_hand():
    """Chen and Goodman's formula on "a b", "a c": D = 4 / 4 of bigrams seen once or twice is kept at 0.9 or below."""
    model = train_ngram(["a b", "a c"], 2)
    number = model.numbers.__getitem__
    seen = {("<s>", "a"): 2, ("a", "b"): 1, ("a", "c"): 1, ("b", "</s>"): 1, ("c", "</s>"): 1}
    discount = min(0.9, 4 / (4 + 2 * 1))
    before = {"a": 1, "b": 1, "c": 1, "</s>": 2}  # how many words each follows
    low = min(0.9, 3 / (3 + 2 * 1))
    alone = {w: (n - low) / 5 + low * 4 / 5 / 5 for w, n in before.items()}  # 5 predictable: a, b, c, </s>, <unk>
    for (first, second), count in seen.items():
        follows = [n for (f, _), n in seen.items() if f == first]
        wanted = (count - discount) / sum(follows) + discount * len(follows) / sum(follows) * alone[second]
        assert 10 ** model.log_prob((number(first),), number(second)) == pytest.approx(wanted, rel=1e-5)
    wanted = discount * 2 / 2 * low * 4 / 5 / 5
    assert 10 ** model.log_prob((number("a"),), number(UNKNOWN)) == pytest.approx(wanted, rel=1e-5)


def test_more_context_perplexes_less():
    rng = random.Random(0)
    verbs, things = ["turn on", "switch off", "put out"], ["light", "radio", "fire", "heating"]
    lines = [f"{rng.choice(verbs)} the {rng.choice(things)} in the {rng.choice(['hall', 'kitchen'])}".split() for _ in range(60)]
    count = sum(len(words) + 1 for words in lines[40:])
    models = [train_ngram([" ".join(words) for words in lines[:40]], n) for n in (1, 2, 3, 4)]
    perplexities = [10 ** (-sum(sentence(model, words) for words in lines[40:]) / count) for model in models]
    assert perplexities[0] > perplexities[1] > perplexities[2] * 0.99 and perplexities[3] < 4 < perplexities[0]


def test_contexts_keep_the_last_words():
    model = train_ngram(TEXTS, 3)
    assert model.after(model.after(model.after((), 1), 2), 3) == (2, 3)
    assert train_ngram(TEXTS, 1).after((), 1) == train_ngram(TEXTS, 1).start == ()


@pytest.mark.parametrize("sentences", [[], ["", "  "]])
def test_texts_without_words_are_refused(sentences):
    with pytest.raises(InputError, match="no words"):
        train_ngram(sentences)


def test_an_order_of_0_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        train_ngram(TEXTS, 0)


# -- ARPA files


HAND = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1\t</s>
-99 <s> -0.5
-0.3\tHELLO\t-0.2
-0.9\tWORLD\t-0.4
-2\t<unk>

\\2-grams:
-0.1\t<s> HELLO
-0.2\tWORLD </s>
-0.25\tHELLO WORLD

\\end\\
"""


@pytest.fixture
def hand(tmp_path):
    def make(text=HAND):
        path = tmp_path / "hand.arpa"
        path.write_text(text)
        return path

    return make


def test_a_file_by_hand_with_spaces_and_any_order_of_lines(hand):
    model = read_arpa(hand("a comment\n\n" + HAND))
    assert sentence(model, ["HELLO", "WORLD"]) == pytest.approx(-0.1 - 0.25 - 0.2)
    assert sentence(model, ["WORLD"]) == pytest.approx(-0.5 - 0.9 - 0.2)  # backed off
    assert sentence(model, ["BYE"]) == pytest.approx(-0.5 - 2 - 1)


def test_a_model_without_unknown_words_gets_one_that_never_occurs(hand):
    model = read_arpa(hand(HAND.replace("-2\t<unk>\n", "").replace("1=5", "1=4")))
    assert model.log_prob((), model.numbers[UNKNOWN]) == NEVER


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (HAND, "", "data"),
        ("\\data\\", "data", "data"),
        ("ngram 2=3", "ngram 3=3", "3-grams where"),
        ("\\2-grams:", "\\3-grams:", "2-grams: is missing"),
        ("\\end\\\n", "", "ends before"),
        ("-0.25\tHELLO WORLD\n\n\\end\\\n", "", "1 of its 2-grams are missing"),
        ("-0.25\tHELLO WORLD", "-0.25\tHELLO BIG WORLD x", "not one of its 2-grams"),
        ("-0.25\tHELLO WORLD", "-0.25\tHELLO YOU", "'YOU' is not among"),
        ("-0.25\tHELLO WORLD", "minus\tHELLO WORLD", "minus"),
        ("-0.25\tHELLO WORLD", "nan\tHELLO WORLD", "not a number"),
        ("-0.25\tHELLO WORLD", "-0.25\t<s> HELLO", "twice"),
        ("-0.9\tWORLD\t-0.4", "-0.9\tHELLO\t-0.4", "twice"),
        ("-99 <s> -0.5", "-99 <S> -0.5", "no <s>"),
        ("ngram 2=3", "ngram 2=4", "not one of its 2-grams"),
    ],
)
def test_damage_is_named(hand, old, new, reason):
    assert old in HAND
    path = hand(HAND.replace(old, new))
    with pytest.raises(InputError, match=reason) as raised:
        read_arpa(path)
    assert str(path) in str(raised.value) and "again" in str(raised.value)


def test_longer_ngrams_need_the_shorter_ones(hand):
    text = HAND.replace("ngram 2=3", "ngram 2=3\nngram 3=1").replace("\\end\\", "\\3-grams:\n-1 WORLD HELLO WORLD\n\n\\end\\")
    with pytest.raises(InputError, match="begin with 2 words"):
        read_arpa(hand(text))
    assert len(read_arpa(hand(text.replace("WORLD HELLO WORLD", "HELLO WORLD HELLO"))).ngrams) == 3


def test_empty_sections_are_read(hand):
    text = HAND.replace("ngram 2=3", "ngram 2=3\nngram 3=0").replace("\\end\\", "\\3-grams:\n\\end\\")
    assert sentence(read_arpa(hand(text)), ["HELLO", "WORLD"]) == pytest.approx(-0.55)


def test_a_missing_cut_or_foreign_file_is_named(tmp_path):
    whole = gzip.compress(HAND.encode())
    (tmp_path / "cut.arpa.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "plain.arpa.gz").write_text(HAND)
    (tmp_path / "whole.arpa.gz").write_bytes(whole)
    assert len(read_arpa(tmp_path / "whole.arpa.gz").ngrams) == 2
    (tmp_path / "binary.arpa").write_bytes(np.random.default_rng(0).bytes(999))
    for name in ("none.arpa", "cut.arpa.gz", "plain.arpa.gz", "binary.arpa"):
        with pytest.raises(InputError, match=name):
            read_arpa(tmp_path / name)


@pytest.mark.parametrize("order", range(1, 7))
def test_sentences_may_be_shorter_than_the_order(order):
    model = train_ngram(["on"], order)
    assert total(model, model.start) == pytest.approx(1, abs=1e-5)
    assert sentence(model, ["on"]) > sentence(model, ["off"])


def test_a_unigram_is_the_share_of_its_word():
    model = train_ngram(["a a a b"], 1)
    shares = [10 ** model.log_prob((), model.numbers[w]) for w in ("a", "b", UNKNOWN)]
    assert shares[0] > shares[1] > shares[2] > 0 and math.isclose(total(model, ()), 1, abs_tol=1e-5)
