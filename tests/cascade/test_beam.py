"""Prefix beam search: against every text there is, against greedy decoding, and where a language model decides."""

import itertools
import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.decode import END, UNKNOWN, BeamDecoder, BeamOptions, Lexicon, train_ngram
from speechssl.cascade.model import BLANK_NAME, CtcVocabulary, greedy_decode

AB = CtcVocabulary((BLANK_NAME, "|", "a", "b"), "|")
WIDE = {"beam": 1000, "threshold": math.inf}
FREE = BeamOptions(lm_weight=0.0, word_score=0.0, unknown_score=0.0, **WIDE)

OPEN = BeamDecoder(train_ngram(["a"]), AB, FREE)


def drawn(frames, symbols, seed, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(frames, symbols, generator=generator)).log_softmax(-1)


def probability(log_probs, text, vocabulary):
    """log P(text): of all paths that say it."""
    wanted = torch.tensor(vocabulary.encode(text), dtype=torch.long)
    sizes = torch.tensor([len(log_probs)]), torch.tensor([len(wanted)])
    loss = torch.nn.functional.ctc_loss(log_probs[:, None].double(), wanted[None], *sizes, reduction="sum")
    return -float(loss)


def every_text(letters, longest):
    """All texts of up to so many letters and spaces, words between single spaces."""
    for n in range(longest + 1):
        for combination in itertools.product([*letters, " "], repeat=n):
            text = "".join(combination)
            if text == " ".join(text.split()):
                yield text


def score(decoder, log_probs, text):
    """What the beam adds up, from scratch; -inf where it forbids the text. A separator may stand at the end."""
    model, options, total, context = decoder.model, decoder.options, 0.0, decoder.model.start
    for word in text.split():
        known, number = word in model.numbers, model.numbers.get(word, model.numbers[UNKNOWN])
        total += options.word_score + (0 if known else options.unknown_score)
        total += options.lm_weight * model.log_prob(context, number) if options.lm_weight else 0
        context = model.after(context, number)
    total += options.lm_weight * model.log_prob(context, model.numbers[END]) if options.lm_weight else 0
    ways = [probability(log_probs, text, decoder.vocabulary)]
    if text:
        numbers = torch.tensor([*decoder.vocabulary.encode(text), 1])
        sizes = torch.tensor([len(log_probs)]), torch.tensor([len(numbers)])
        ways.append(-float(torch.nn.functional.ctc_loss(log_probs[:, None].double(), numbers[None], *sizes, reduction="sum")))
    return float(np.logaddexp.reduce(ways)) + total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("unknown", [-math.inf, -1.0])
def test_a_wide_beam_finds_the_best_of_all_texts(seed, unknown):
    model = train_ngram(["a b", "ab a", "ba", "b b a"], 3)
    decoder = BeamDecoder(model, AB, BeamOptions(lm_weight=1.5, word_score=-0.5, unknown_score=unknown, **WIDE))
    log_probs = drawn(4, 4, seed, 1.5)
    scores = {text: score(decoder, log_probs, text) for text in every_text("ab", 4)}
    assert decoder.decode(log_probs) == max(scores, key=scores.get)


@given(st.integers(1, 9), st.integers(0, 999))
def test_without_a_language_model_it_is_no_less_likely_than_the_greedy_text(frames, seed):
    log_probs, decoder = drawn(frames, 4, seed, 2.0), OPEN
    assert score(decoder, log_probs, decoder.decode(log_probs)) >= score(decoder, log_probs, greedy_decode(log_probs, AB)) - 1e-4


def spelt_out(text, vocabulary, sure=0.9, unsure=()):
    """Log-probabilities that say a text; unsure: (place, other letter) pairs that are as likely, or a little more."""
    numbers = [n for i in vocabulary.encode(text) for n in (i, 0)]
    probabilities = torch.full((len(numbers), len(vocabulary)), (1 - sure) / (len(vocabulary) - 1))
    probabilities[range(len(numbers)), numbers] = sure
    for place, letter in unsure:
        probabilities[2 * place, vocabulary.symbols.index(letter)] = 1.1 * sure
    return (probabilities / probabilities.sum(1, keepdim=True)).log()


ENGLISH = CtcVocabulary.english()
SENTENCES = [
    "turn on the light",
    "turn on the radio",
    "turn off the light",
    "do it right",
    "light the fire",
    "right now",
    "on the right",
]


def test_the_language_model_decides_what_sounds_alike():
    log_probs = spelt_out("turn on the light", ENGLISH, unsure=[(12, "r")])
    decoder = BeamDecoder(train_ngram(SENTENCES), ENGLISH)
    assert greedy_decode(log_probs, ENGLISH) == "turn on the right"
    assert decoder.decode(log_probs) == "turn on the light"
    assert BeamDecoder(train_ngram(["turn on the right"]), ENGLISH).decode(log_probs) == "turn on the right"


def test_only_words_of_the_model_are_said_unless_others_may_be():
    log_probs = spelt_out("turn on the lught", ENGLISH)
    assert BeamDecoder(train_ngram(SENTENCES), ENGLISH).decode(log_probs) == "turn on the light"
    open_one = BeamOptions(beam=20, lm_weight=0.5, unknown_score=0.0)
    assert BeamDecoder(train_ngram(SENTENCES), ENGLISH, open_one).decode(log_probs) == "turn on the lught"


def test_a_model_in_capitals_is_said_in_small_letters():
    capitals = train_ngram([text.upper() for text in SENTENCES])
    assert BeamDecoder(capitals, ENGLISH).decode(spelt_out("do it right", ENGLISH)) == "do it right"
    lexicon = Lexicon(train_ngram(["Rose rose rose", "ROSE"]), ENGLISH.symbols[1:])
    assert lexicon.words == ["rose"] and lexicon.find("r", lexicon.root).best == pytest.approx(lexicon.scores[0])


def test_a_word_that_is_not_whole_is_left_out():
    log_probs = spelt_out("turn on th", ENGLISH, sure=0.9999)
    assert BeamDecoder(train_ngram(SENTENCES), ENGLISH, BeamOptions(threshold=3.0)).decode(log_probs) == "turn on"


def test_word_scores_make_words_more_or_fewer():
    model, log_probs = train_ngram(["ab a b", "a b", "ab"], 1), drawn(12, 4, 3, 0.5)
    decoded = [BeamDecoder(model, AB, BeamOptions(beam=50, word_score=s)).decode(log_probs).split() for s in (-9.0, 0.0, 9.0)]
    assert len(decoded[0]) < len(decoded[2]) and len(decoded[0]) <= len(decoded[1]) <= len(decoded[2])


def test_no_frames_say_nothing_and_a_vocabulary_without_words_is_refused():
    assert BeamDecoder(train_ngram(SENTENCES), ENGLISH).decode(torch.zeros(0, len(ENGLISH))) == ""
    with pytest.raises(ValueError, match="between words"):
        BeamDecoder(train_ngram(SENTENCES), CtcVocabulary.of_characters(["ab"]))


def test_pruned_symbols_are_not_tried():
    log_probs = spelt_out("turn on the light", ENGLISH, sure=0.5)
    assert BeamDecoder(train_ngram(SENTENCES), ENGLISH, BeamOptions(symbols=3)).decode(log_probs) == "turn on the light"
    assert BeamDecoder(train_ngram(["ab"]), AB, BeamOptions(symbols=1)).decode(torch.tensor([[0.4, 0.1, 0.1, 0.4]]).log()) == ""


def test_six_seconds_of_speech_are_decoded_in_a_fraction_of_them():
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(["".join(rng.choice(letters, n)) for n in rng.integers(2, 9, 2000)])
    model = train_ngram([" ".join(row) for row in words[rng.integers(0, 2000, (1000, 8))]])
    text = " ".join(words[rng.integers(0, 2000, 25)])
    decoder, log_probs = BeamDecoder(model, ENGLISH, BeamOptions(beam=20)), spelt_out(text, ENGLISH, sure=0.7)
    begun = time.process_time()
    assert decoder.decode(log_probs) == text
    assert time.process_time() - begun < 5
