"""Scores against examples by hand, and against the scorers of SQuAD, DRCD and DUAL, which are
written here again from their definitions."""

import re
import string
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from speechssl.metrics import exact_match, frame_f1, overlap_score, token_f1, word_error_rate

from .files import refused


@pytest.mark.parametrize(
    ("predicted", "gold", "f1", "aos"),
    [
        ((1.0, 2.0), [(1.0, 2.0)], 1.0, 1.0),
        ((0.0, 2.0), [(1.0, 3.0)], 0.5, 1 / 3),
        ((0.0, 1.0), [(1.0, 2.0)], 0.0, 0.0),  # half-open: touching is not overlapping
        ((0.0, 4.0), [(1.0, 2.0)], 0.4, 0.25),
        ((1.5, 1.5), [(1.0, 2.0)], 0.0, 0.0),
        # the last annotation counts, which released DUAL drops
        ((5.0, 6.0), [(0.0, 1.0), (2.0, 3.0), (5.0, 6.0)], 1.0, 1.0),
        ((0.0, 1.0), [(0.0, 1.0), (2.0, 3.0)], 1.0, 1.0),
        (None, [(0.0, 1.0)], 0.0, 0.0),
        (None, [], 1.0, 1.0),
        ((0.0, 1.0), [], 0.0, 0.0),
    ],
)
def test_time_scores(predicted, gold, f1, aos):
    assert frame_f1(predicted, gold) == pytest.approx(f1)
    assert overlap_score(predicted, gold) == pytest.approx(aos)


@pytest.mark.parametrize("wrong", [(2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_times_that_are_not_an_interval_are_refused(wrong):
    with pytest.raises(ValueError, match="predicted"):
        frame_f1(wrong, [(0.0, 1.0)])
    with pytest.raises(ValueError, match="gold"):
        overlap_score(None, [wrong])


@pytest.mark.parametrize(
    ("predicted", "gold", "language", "exact", "f1"),
    [
        ("the Eiffel Tower.", ["eiffel tower"], "en", 1, 1),
        ("tower of Paris", ["Eiffel Tower"], "en", 0, 0.4),
        ("1999", ["in 1998", "1997", "1999"], "en", 1, 1),  # the last annotation counts
        ("b b", ["b"], "en", 0, 2 / 3),  # bags, not sets
        ("", ["x"], "en", 0, 0),
        (None, ["x"], "en", 0, 0),
        (None, [], "en", 1, 1),
        ("The", [], "en", 1, 1),  # nothing is left of it
        ("x", [], "en", 0, 0),
        ("x", ["", "x"], "en", 1, 1),
        ("", ["", "x"], "en", 0, 0),  # SQuAD 2.0: empty annotations do not count beside others
        ("", [""], "en", 1, 1),
        ("家裏", ["家裡"], "zh", 1, 1),
        ("臺北市", ["台北"], "zh", 0, 0.8),
        ("ABC 公司", ["abc公司。"], "zh", 1, 1),
        ("台湾头发", ["臺灣頭髮"], "zh", 1, 1),
        ("１９３２年", ["1932年"], "zh", 1, 1),
    ],
)
def test_text_scores(predicted, gold, language, exact, f1):
    assert exact_match(predicted, gold, language) == exact
    assert token_f1(predicted, gold, language) == pytest.approx(f1)


def test_word_errors_by_utterance():
    references = ["The cat sat.", "It is twenty one", "", "gone"]
    hypotheses = ["the dog sat down", "it's 21", "noise here", ""]
    errors = word_error_rate(references, hypotheses)
    assert errors.errors.tolist() == [2, 0, 2, 1]
    assert errors.words.tolist() == [3, 3, 0, 1]
    assert errors.rate == pytest.approx(5 / 7)


def test_character_errors_fold_variants_and_keep_latin_runs_whole():
    errors = word_error_rate(["爲了iPhone,去台北"], ["為了 ipone 去臺南"], "zh")
    assert (errors.errors.tolist(), errors.words.tolist()) == ([2], [6])
    # character errors do not see the script
    assert word_error_rate(["後來他說話"], ["后来他说活"], "zh").rate == pytest.approx(1 / 5)


word_lists = st.lists(st.sampled_from(["cat", "dog", "bird", "fish"]), max_size=6)


def edit_distance(left, right):
    """Compute the Levenshtein distance, row by row of its table."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        previous, row = row, [i]
        for j, b in enumerate(right, 1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]


@pytest.mark.slow
@given(st.lists(st.tuples(word_lists, word_lists), min_size=1, max_size=4))
def test_errors_are_edit_distances(pairs):
    assume(any(reference for reference, _ in pairs))
    errors = word_error_rate([" ".join(r) for r, _ in pairs], [" ".join(h) for _, h in pairs])
    assert errors.errors.tolist() == [edit_distance(r, h) for r, h in pairs]


def test_references_without_words_are_refused():
    refused("no words", word_error_rate, ["...", ""], ["a", "b"])


PUNCTUATION = "，。 "
# without digits, which the script of DRCD treats in another way
HAN = st.text(alphabet=f"北京大学中山年{PUNCTUATION}", max_size=8)


def drcd_scores(predicted, gold):
    """Return EM and F1 as the scripts of DRCD and ODSQA count them: SQuAD's over characters, without
    punctuation."""
    characters = [c for c in predicted if c not in PUNCTUATION]
    best_exact = best_f1 = 0.0
    for answer in gold:
        gold_characters = [c for c in answer if c not in PUNCTUATION]
        shared = sum(min(characters.count(c), gold_characters.count(c)) for c in set(characters))
        f1 = 0.0
        if shared:
            precision, recall = shared / len(characters), shared / len(gold_characters)
            f1 = 2 * precision * recall / (precision + recall)
        best_exact = max(best_exact, float(characters == gold_characters))
        best_f1 = max(best_f1, f1)
    return best_exact, best_f1


@pytest.mark.slow
@given(HAN, st.lists(HAN, min_size=1, max_size=3))
def test_chinese_answers_are_scored_as_by_drcd(predicted, gold):
    assume(all(text.strip(PUNCTUATION) for text in (predicted, *gold)))
    exact, f1 = drcd_scores(predicted, gold)
    assert exact_match(predicted, gold, "zh") == exact
    assert token_f1(predicted, gold, "zh") == pytest.approx(f1)


# ---- random predictions against the scorers of SQuAD v1.1 and of DUAL, without their faults


WORDS = "the The a an An cat cat, Cat 10 1,000 U.S. new-york anthem ä — 's (b) a—b _a_ É ß ٣ 中"
WORDS = [*WORDS.split(), "\u200b", " ", "\n"]
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
frames = st.integers(0, 60)


def squad_words(text):
    """Split a text as SQuAD's script does: it makes letters small, and removes punctuation, articles
    and white space in this order, so that "a." is an article, and so is the "a" of "a—b"."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"(?<!\w)(a|an|the)(?!\w)", " ", kept).split()


def squad_scores(predicted, gold):
    """Return EM and F1 of the best gold answer."""
    words = squad_words(predicted)
    exact, f1 = [], []
    for gold_words in map(squad_words, gold):
        shared, unmatched = 0, list(gold_words)
        for word in words:
            if word in unmatched:
                unmatched.remove(word)
                shared += 1
        exact.append(words == gold_words)
        f1.append(2 * shared / (len(words) + len(gold_words)) if shared else 0.0)
    return float(max(exact)), max(f1)


@given(texts, st.lists(texts, min_size=1, max_size=4))
def test_text_scores_are_those_of_squad(predicted, gold):
    """Where the prediction or an annotation is empty the rule is that of v2.0: such an annotation
    does not count."""
    kept = [answer for answer in gold if squad_words(answer)]
    exact = f1 = float(not kept and not squad_words(predicted))
    if kept and squad_words(predicted):
        exact, f1 = squad_scores(predicted, kept)
    assert exact_match(predicted, gold) == exact
    assert token_f1(predicted, gold) == pytest.approx(f1)


def dual_scores(predicted, gold):
    """Return FF1 and AOS of intervals [start, end) in frames, by counting frames."""
    predicted_frames, gold_frames = set(range(*predicted)), set(range(*gold))
    shared = len(predicted_frames & gold_frames)
    if not shared:
        return Fraction(0), Fraction(0)
    precision = Fraction(shared, len(predicted_frames))
    recall = Fraction(shared, len(gold_frames))
    f1 = 2 * precision * recall / (precision + recall)
    return f1, Fraction(shared, len(predicted_frames | gold_frames))


@given(
    st.tuples(frames, frames).map(sorted),
    st.lists(st.tuples(frames, st.integers(1, 20)), min_size=1, max_size=4),
)
def test_time_scores_are_those_of_dual_and_no_annotation_is_dropped(predicted, gold):
    """Released DUAL takes the best of all annotations but the last; here the last counts as well.
    gold: start and length, in frames of 20 ms."""
    gold_frames = [(start, start + length) for start, length in gold]
    scores = [dual_scores(predicted, interval) for interval in gold_frames]
    best_f1, best_aos = (max(values) for values in zip(*scores, strict=True))
    to_seconds = [(start * 0.02, end * 0.02) for start, end in (predicted, *gold_frames)]
    predicted_seconds, *gold_seconds = to_seconds
    assert frame_f1(predicted_seconds, gold_seconds) == pytest.approx(float(best_f1), abs=1e-9)
    assert overlap_score(predicted_seconds, gold_seconds) == pytest.approx(
        float(best_aos), abs=1e-9
    )
