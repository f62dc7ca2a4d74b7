"""Beam search and its n-gram models."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.decode import BeamDecoder, BeamOptions
from speechssl.cascade.model import BLANK_NAME, CtcVocabulary, greedy_decode
from speechssl.cascade.ngrams import (
    BEGIN,
    END,
    UNKNOWN,
    load_ngrams,
    read_arpa,
    save_ngrams,
    train_ngram,
)

from ..files import refused

# ---- n-gram models: probabilities that add up, on any texts; what training learns; and ARPA
# files, whole and damaged


def total(model, context):
    return sum(
        10 ** model.log_prob(context, i) for i, word in enumerate(model.words) if word != BEGIN
    )


def sentence(model, words):
    """log10 of the probability of a whole sentence, its end included."""
    context, found = model.start, 0.0
    for word in (*words, END):
        number = model.numbers.get(word, model.numbers[UNKNOWN])
        found += model.log_prob(context, number)
        context = model.after(context, number)
    return found


texts = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=6
)


@given(texts, st.integers(1, 5), st.data())
def test_probabilities_add_up_to_1_after_any_context(sentences, order, data):
    model = train_ngram(sentences, order)
    words = st.integers(0, len(model.words) - 1)
    context = tuple(data.draw(st.lists(words, max_size=order - 1)))
    assert total(model, context) == pytest.approx(1, abs=1e-5)
    assert total(model, model.start) == pytest.approx(1, abs=1e-5)
    assert all(
        model.log_prob(context, i) > -20 for i, word in enumerate(model.words) if word != BEGIN
    )


def test_a_bigram_by_hand():
    """Chen and Goodman's formula on "a b", "a c": D = 4 / 4 of bigrams seen once or twice is kept
    at 0.9 or below."""
    model = train_ngram(["a b", "a c"], 2)
    seen = {("<s>", "a"): 2, ("a", "b"): 1, ("a", "c"): 1, ("b", "</s>"): 1, ("c", "</s>"): 1}
    discount, low = min(0.9, 4 / (4 + 2 * 1)), min(0.9, 3 / (3 + 2 * 1))
    before = {"a": 1, "b": 1, "c": 1, "</s>": 2}  # how many words each follows
    # 5 predictable: a, b, c, </s>, <unk>
    alone = {w: (n - low) / 5 + low * 4 / 5 / 5 for w, n in before.items()}

    def probability(first, second):
        return 10 ** model.log_prob((model.numbers[first],), model.numbers[second])

    for (first, second), count in seen.items():
        follows = [n for (f, _), n in seen.items() if f == first]
        backoff = discount * len(follows) / sum(follows)
        wanted = (count - discount) / sum(follows) + backoff * alone[second]
        assert probability(first, second) == pytest.approx(wanted, rel=1e-5)
    wanted = discount * 2 / 2 * low * 4 / 5 / 5
    assert probability("a", UNKNOWN) == pytest.approx(wanted, rel=1e-5)


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


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (HAND, "", "data"),
        ("ngram 2=3", "ngram 2=4", "4 2-grams"),
        ("-0.25\tHELLO WORLD", "-0.25\tHELLO YOU", "YOU"),
    ],
)
def test_damage_of_an_arpa_file_is_named(hand, old, new, reason):
    assert old in HAND
    path = hand(HAND.replace(old, new))
    assert str(path) in refused(reason, read_arpa, path)


# ---- prefix beam search: against every text there is, against greedy decoding, and where a
# language model decides


AB = CtcVocabulary((BLANK_NAME, "|", "a", "b"), "|")
WIDE = {"beam": 1000, "threshold": math.inf}


def drawn(frames, symbols, seed, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(frames, symbols, generator=generator)).log_softmax(-1)


def probability(log_probs, numbers):
    """log P of all paths that say these symbols."""
    wanted = torch.tensor(numbers, dtype=torch.long)[None]
    sizes = torch.tensor([len(log_probs)]), torch.tensor([len(numbers)])
    ctc_loss = torch.nn.functional.ctc_loss
    return -float(ctc_loss(log_probs[:, None].double(), wanted, *sizes, reduction="sum"))


def every_text(letters, longest):
    """All texts of up to so many letters and spaces, words between single spaces."""
    for n in range(longest + 1):
        for combination in itertools.product([*letters, " "], repeat=n):
            text = "".join(combination)
            if text == " ".join(text.split()):
                yield text


def score(decoder, log_probs, text):
    """What the beam adds up, from scratch; -inf where it forbids the text. A separator may stand at
    the end."""
    model, options, total, context = decoder.model, decoder.options, 0.0, decoder.model.start
    for word in text.split():
        if word not in model.numbers:
            return -math.inf
        number = model.numbers[word]
        total += options.word_score + options.lm_weight * model.log_prob(context, number)
        context = model.after(context, number)
    total += options.lm_weight * model.log_prob(context, model.numbers[END])
    numbers = [*decoder.vocabulary.encode(text)]
    ways = [probability(log_probs, some) for some in (numbers, [*numbers, 1])[: 1 + bool(text)]]
    return float(np.logaddexp.reduce(ways)) + total


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_best_of_all_texts(seed):
    model = train_ngram(["a b", "ab a", "ba", "b b a"], 3)
    decoder = BeamDecoder(model, AB, BeamOptions(lm_weight=1.5, word_score=-0.5, **WIDE))
    log_probs = drawn(4, 4, seed, 1.5)
    scores = {text: score(decoder, log_probs, text) for text in every_text("ab", 4)}
    assert decoder.decode(log_probs) == max(scores, key=scores.get)


def spelt_out(text, vocabulary, sure=0.9, unsure=()):
    """Log-probabilities that say a text; unsure: (place, other letter) pairs that are as likely, or
    a little more."""
    numbers = [n for i in vocabulary.encode(text) for n in (i, 0)]
    probabilities = torch.full((len(numbers), len(vocabulary)), (1 - sure) / (len(vocabulary) - 1))
    probabilities[range(len(numbers)), numbers] = sure
    for place, letter in unsure:
        probabilities[2 * place, vocabulary.symbols.index(letter)] = 1.1 * sure
    return (probabilities / probabilities.sum(1, keepdim=True)).log()


ENGLISH = CtcVocabulary.english()
SENTENCES = ["turn on the light", "turn on the radio", "turn off the light", "do it right"]
SENTENCES += ["light the fire", "right now", "on the right"]


def test_the_language_model_decides_what_sounds_alike():
    log_probs = spelt_out("turn on the light", ENGLISH, unsure=[(12, "r")])
    assert greedy_decode(log_probs, ENGLISH) == "turn on the right"
    for texts, wanted in ((SENTENCES, "light"), (["turn on the right"], "right")):
        decoder = BeamDecoder(train_ngram(texts), ENGLISH)
        assert decoder.decode(log_probs) == f"turn on the {wanted}"


def test_without_a_separator_every_symbol_is_a_word_and_the_best_text_wins():
    vocabulary = CtcVocabulary.from_symbols(["你好吗"])
    model = train_ngram(["你 好 吗", "你 好", "好 吗 吗"], 3)
    options = BeamOptions(lm_weight=1.5, word_score=0.5, **WIDE)
    log_probs = drawn(5, len(vocabulary), 0)

    def total_of(characters):
        ways = probability(log_probs, vocabulary.encode("".join(characters)))
        language = options.lm_weight * sentence(model, characters)
        return ways + language + options.word_score * len(characters)

    every = [c for n in range(6) for c in itertools.product("你好吗", repeat=n)]
    found = BeamDecoder(model, vocabulary, options).decode(log_probs)
    assert found == "".join(max(every, key=total_of))


# ---- on disk


def test_a_model_on_disk_has_the_same_ngrams_and_nearly_the_same_probabilities(tmp_path):
    model = train_ngram(SENTENCES, 3)
    save_ngrams(model, tmp_path / "ngrams.npz")
    loaded = load_ngrams(tmp_path / "ngrams.npz")
    assert loaded.words == model.words and len(loaded.ngrams) == 3
    for ours, theirs in zip(model.ngrams, loaded.ngrams, strict=True):
        assert ours.keys.tolist() == theirs.keys.tolist()
        # fewer values than levels
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=1e-6)
        np.testing.assert_allclose(ours.backoffs, theirs.backoffs, atol=1e-6)


def test_a_cut_file_is_one_sentence(tmp_path):
    path = tmp_path / "ngrams.npz"
    save_ngrams(train_ngram(SENTENCES, 3), path)
    path.write_bytes(path.read_bytes()[:-100])
    refused("is not a whole n-gram model", load_ngrams, path)
