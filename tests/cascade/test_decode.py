"""N-gram models (their probabilities, ARPA files, files on disk) and beam search with them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.decode import BeamDecoder, BeamOptions
from speechssl.cascade.model import BLANK, BLANK_NAME, CtcVocabulary, decode_greedily
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

# ---- n-gram models: probabilities, training, ARPA files


def next_words(model):
    """List the numbers of the words that may follow a context: <s> may not."""
    return [i for i, word in enumerate(model.words) if word != BEGIN]


def total_probability(model, context):
    return sum(10 ** model.compute_log_prob(context, i) for i in next_words(model))


def sentence_log_prob(model, words):
    """Return log10 of the probability of a whole sentence, its end included."""
    context, log_prob = model.start, 0.0
    for word in (*words, END):
        number = model.numbers.get(word, model.numbers[UNKNOWN])
        log_prob += model.compute_log_prob(context, number)
        context = model.extend_context(context, number)
    return log_prob


texts = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=6
)


@given(texts, st.integers(1, 5), st.data())
def test_probabilities_add_up_to_1_after_any_context(sentences, order, data):
    model = train_ngram(sentences, order)
    words = st.integers(0, len(model.words) - 1)
    context = tuple(data.draw(st.lists(words, max_size=order - 1)))
    assert total_probability(model, context) == pytest.approx(1, abs=1e-5)
    assert total_probability(model, model.start) == pytest.approx(1, abs=1e-5)
    assert (
        min(model.compute_log_prob(context, i) for i in next_words(model)) > -20
    )  # none is forbidden
    one_by_one = [model.compute_log_prob(context, i) for i in range(len(model.words))]
    np.testing.assert_allclose(model.compute_log_probs(context), one_by_one, rtol=1e-6)


def test_a_bigram_by_hand():
    """Chen and Goodman's formula (`train_ngram`) on the sentences "a b" and "a c"."""
    model = train_ngram(["a b", "a c"], order=2)
    counts = {("<s>", "a"): 2, ("a", "b"): 1, ("a", "c"): 1, ("b", "</s>"): 1, ("c", "</s>"): 1}
    discount = 4 / (4 + 2 * 1)  # four bigrams were seen once, one was seen twice
    before = {"a": 1, "b": 1, "c": 1, "</s>": 2}  # number of different words before each
    word_discount = 3 / (3 + 2 * 1)  # three words follow one word, one follows two
    # the five words that can be predicted share the discount of the four that were seen
    uniform = word_discount * 4 / 5 / 5
    unigrams = {word: (n - word_discount) / 5 + uniform for word, n in before.items()}

    def probability(first, second):
        return 10 ** model.compute_log_prob((model.numbers[first],), model.numbers[second])

    for (first, second), count in counts.items():
        followers = [n for (word, _), n in counts.items() if word == first]
        backoff = discount * len(followers) / sum(followers)
        expected = (count - discount) / sum(followers) + backoff * unigrams[second]
        assert probability(first, second) == pytest.approx(expected, rel=1e-5)
    backoff = discount * 2 / 2  # two words follow "a", each once
    assert probability("a", UNKNOWN) == pytest.approx(backoff * uniform, rel=1e-5)


# -- ARPA files


ARPA = """\\data\\
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


def write_arpa(folder, text=ARPA):
    path = folder / "toy.arpa"
    path.write_text(text)
    return path


def test_an_arpa_file_with_spaces_and_lines_in_any_order(tmp_path):
    model = read_arpa(write_arpa(tmp_path, "a comment\n\n" + ARPA))
    # log-probabilities of bigrams, or back-off weight and log-probability of the word
    hello_world = -0.1 - 0.25 - 0.2
    assert sentence_log_prob(model, ["HELLO", "WORLD"]) == pytest.approx(hello_world)
    world = (-0.5 - 0.9) - 0.2
    assert sentence_log_prob(model, ["WORLD"]) == pytest.approx(world)
    unknown = (-0.5 - 2) - 1
    assert sentence_log_prob(model, ["BYE"]) == pytest.approx(unknown)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (ARPA, "", "data"),
        ("ngram 2=3", "ngram 2=4", "4 2-grams"),
        ("-0.25\tHELLO WORLD", "-0.25\tHELLO YOU", "YOU"),
    ],
)
def test_damage_of_an_arpa_file_is_named(tmp_path, old, new, reason):
    assert old in ARPA
    path = write_arpa(tmp_path, ARPA.replace(old, new))
    assert str(path) in refused(reason, read_arpa, path)


# ---- prefix beam search: compared with the score of every possible text, and where a language
# model decides


AB = CtcVocabulary((BLANK_NAME, "|", "a", "b"), separator="|")
CHARACTERS = CtcVocabulary.from_symbols(["你好吗"])


def ctc_log_prob(log_probs, numbers):
    """Return the log-probability of all paths that say these symbols."""
    targets = torch.tensor(numbers, dtype=torch.long)[None]
    lengths = torch.tensor([len(log_probs)]), torch.tensor([len(numbers)])
    ctc_loss = torch.nn.functional.ctc_loss
    return -float(ctc_loss(log_probs[:, None].double(), targets, *lengths, reduction="sum"))


def list_texts(vocabulary, longest):
    """Yield all texts of at most `longest` symbols, as lists of words."""
    symbols = [" " if s == vocabulary.separator else s for s in vocabulary.symbols[1:]]
    for n in range(longest + 1):
        for combination in itertools.product(symbols, repeat=n):
            text = "".join(combination)
            if text == " ".join(text.split()):
                yield text.split() if vocabulary.separator else list(text)


def score_words(decoder, log_probs, words):
    """Return the score by which the decoder chooses between texts; -inf for one that the lexicon
    forbids. The paths of a text may have a separator at the end."""
    model, options, vocabulary = decoder.model, decoder.options, decoder.vocabulary
    if any(word not in model.numbers for word in words):
        return -math.inf
    language = options.lm_weight * sentence_log_prob(model, words)
    numbers = vocabulary.encode(" ".join(words) if vocabulary.separator else "".join(words))
    acoustic = ctc_log_prob(log_probs, numbers)
    if vocabulary.separator and words:
        separator = vocabulary.symbols.index(vocabulary.separator)
        acoustic = np.logaddexp(acoustic, ctc_log_prob(log_probs, [*numbers, separator]))
    return float(acoustic) + language + options.word_score * len(words)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("vocabulary", "texts"),
    [(AB, ["a b", "ab a", "ba", "b b a"]), (CHARACTERS, ["你 好 吗", "你 好", "好 吗 吗"])],
)
def test_a_wide_beam_finds_the_best_of_all_texts(vocabulary, texts, seed):
    # no prefix is dropped
    options = BeamOptions(beam=1000, lm_weight=1.5, word_score=-0.5, threshold=math.inf)
    decoder = BeamDecoder(train_ngram(texts, order=3), vocabulary, options)
    frames = 4
    generator = torch.Generator().manual_seed(seed)
    log_probs = 1.5 * torch.randn(frames, len(vocabulary), generator=generator)
    log_probs = log_probs.log_softmax(-1)
    candidates = list_texts(vocabulary, longest=frames)
    best = max(candidates, key=lambda words: score_words(decoder, log_probs, words))
    assert decoder.decode(log_probs) == (" " if vocabulary.separator else "").join(best)


@given(st.integers(0, 1000), st.integers(1, 6), st.floats(0.5, 4))
def test_characters_that_the_beam_cannot_keep_need_not_be_tried(seed, beam, scale):
    options = BeamOptions(beam=beam, lm_weight=1.5, word_score=0.5, threshold=6.0)
    decoder = BeamDecoder(train_ngram(["你 好 吗", "你 好", "好 吗 吗"], 3), CHARACTERS, options)
    generator = torch.Generator().manual_seed(seed)
    log_probs = scale * torch.randn(20, len(CHARACTERS), generator=generator)
    log_probs = log_probs.log_softmax(-1)
    text = decoder.decode(log_probs)
    decoder._keep_best = lambda prefixes, ranks: ranks  # tries all
    assert decoder.decode(log_probs) == text


ENGLISH = CtcVocabulary.make_english()


def spell_out(text, place, letter):
    """Make log-probabilities of frames that say a text: symbols and blanks in turn, with probability
    0.9. At one place of the text another letter is a little likelier."""
    numbers = []
    for symbol in ENGLISH.encode(text):
        numbers += [symbol, BLANK]
    probabilities = torch.full((len(numbers), len(ENGLISH)), 0.1 / (len(ENGLISH) - 1))
    probabilities[range(len(numbers)), numbers] = 0.9
    probabilities[2 * place, ENGLISH.symbols.index(letter)] = 0.99
    return (probabilities / probabilities.sum(1, keepdim=True)).log()


SENTENCES = ["turn on the light", "turn on the radio", "turn off the light", "do it right"]
SENTENCES += ["light the fire", "right now", "on the right"]


def test_the_language_model_decides_what_sounds_alike():
    text = "turn on the light"
    log_probs = spell_out(text, place=text.index("light"), letter="r")
    assert decode_greedily(log_probs, ENGLISH) == "turn on the right"
    for training_texts, last_word in ((SENTENCES, "light"), (["turn on the right"], "right")):
        decoder = BeamDecoder(train_ngram(training_texts), ENGLISH)
        assert decoder.decode(log_probs) == f"turn on the {last_word}"


# ---- on disk


def test_a_model_on_disk_has_the_same_ngrams_and_nearly_the_same_probabilities(tmp_path):
    model = train_ngram(SENTENCES, order=3)
    path = tmp_path / "ngrams.npz"
    save_ngrams(model, path)
    loaded = load_ngrams(path)
    assert loaded.words == model.words
    for saved_ngrams, loaded_ngrams in zip(model.ngrams, loaded.ngrams, strict=True):
        assert saved_ngrams.keys.tolist() == loaded_ngrams.keys.tolist()
        # there are fewer different values than levels, so that rounding changes none
        np.testing.assert_allclose(saved_ngrams.log_probs, loaded_ngrams.log_probs, atol=1e-6)
        np.testing.assert_allclose(saved_ngrams.backoffs, loaded_ngrams.backoffs, atol=1e-6)
