"""Known words in a recording: CTC on emissions made by hand, windows against the whole, Whisper's attention."""

import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.cascade import align
from speechssl.cascade.align import (
    GAP,
    CtcAligner,
    align_windows,
    core,
    is_spoken,
    load_aligner,
    shared_out,
    spoken_prefix,
    token_times,
    widened,
)
from speechssl.cascade.data import TimedWord
from speechssl.cascade.model import CtcVocabulary, align_spans
from speechssl.data.records import Span
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

from ..files import change_json

GRID = FrameGrid(16_000, 320, 400)
ENGLISH = CtcVocabulary.english().symbols


def emitting(path: str, symbols=ENGLISH, separator="|", sure=0.98) -> tuple[CtcAligner, np.ndarray]:
    """An aligner, and audio in which it recognises this path ("_" is blank): sample value k / 1000 in a frame is symbol k."""

    def log_probs(samples: np.ndarray) -> torch.Tensor:
        numbers = np.rint(samples[200::320][: GRID.frames(len(samples))] * 1000).astype(int)
        found = torch.full((len(numbers), len(symbols)), (1 - sure) / (len(symbols) - 1))
        found[range(len(numbers)), numbers] = sure
        return found.log()

    numbers = [0 if c == "_" else symbols.index(c) for c in path]
    samples = np.pad(np.repeat(np.array(numbers, np.float32) / 1000, 320), (40, 40), mode="edge")
    return CtcAligner("toy", "hash", log_probs, symbols, separator, 0, GRID, 60.0), samples


def frames_of(found: align.Alignment, gap: float = 0.0) -> dict[str, tuple[int, int]]:
    return {w.text: (round((w.start - 0.0025) / 0.02), round((w.end - 0.0025) / 0.02)) for w in found.words}


@pytest.fixture
def tight(monkeypatch):
    """Words are not widened: times are those of their symbols."""
    monkeypatch.setattr(align, "GAP", 0.0)


# ---- CTC


def test_words_keep_their_spelling_and_get_the_frames_of_their_letters(tight):
    #                              0         1         2
    #                              0123456789012345678901234567
    aligner, samples = emitting("__hhi_|_mme_|_ca_f_e_||it's_")
    found = aligner.align(samples, ["“Hi,”", "ME!", "café", "it’s"])
    assert frames_of(found) == {"“Hi,”": (2, 5), "ME!": (8, 11), "café": (14, 20), "it’s": (23, 27)}
    assert found.confidence() > 0.99


def test_what_the_vocabulary_cannot_spell_is_between_its_neighbours(tight):
    #                           0         1         2         3
    #                           0123456789012345678901234567890123456
    aligner, samples = emitting("_in_|____nin_e_te_en______|_we|th_e_y")
    found = frames_of(aligner.align(samples, ["In", "1984", "we", "5th"]))
    assert found["In"] == (1, 3) and found["we"] == (28, 30)
    assert 9 <= found["1984"][0] <= 10 and found["1984"][1] == 20  # the silence on either side is not of it
    assert found["5th"][0] >= 31 and found["5th"][1] > found["5th"][0]


def test_characters_of_chinese_in_any_form_and_what_is_no_symbol(tight):
    symbols = ("<blank>", *"台湾北京")
    aligner, samples = emitting("_台_湾__北_京", symbols, "")
    assert frames_of(aligner.align(samples, list("臺灣北京"))) == {"臺": (1, 2), "灣": (3, 4), "北": (6, 7), "京": (8, 9)}
    assert aligner.spells("臺灣の北京") == 0.8 and aligner.spells("1984") == 1.0 and aligner.spells("Taipei") == 0.0


def test_a_text_that_is_not_spoken_has_no_confidence():
    aligner, samples = emitting("__the__|_cat__|_sat_|_on_|the_mat_|" * 3)
    right = ["the", "cat", "sat", "on", "the", "mat"]
    assert aligner.align(samples, ["the", "cat", "sat", "on", "themat"] * 3).confidence() > 0.3
    assert aligner.align(samples, right * 3).confidence() > 0.5
    for wrong in (["dogs", "never", "bark", "loudly"], ["the"], ["the", "cat"]):  # few words fit, but leave much unsaid
        assert aligner.align(samples, wrong).confidence() < 0.1
    found = aligner.align(samples, ["the", "cat", "sat", "on", "the", "mat", *("xylo", "phone", "quux", "jazz"), *right])
    assert found.confidence(0, 5) > 0.5 > 0.1 > found.confidence(6, 9)
    for audio, text in ((samples, right * 30), (samples[:100], right)):  # the latter is shorter than a frame
        with pytest.raises(ValueError, match="symbols need at least"):
            aligner.align(audio, text)


# ---- windows


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), longest=st.sampled_from([60, 170, 400]))
def test_windows_find_what_the_whole_does(seed, longest):
    """Speech that is recognised well: 300 symbols with silences up to a quarter of a window, in pieces of any length."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, 6, 300).tolist()
    path = []
    for target in targets:
        path += [0] * int(rng.choice([1, 2, 3, 50], p=[0.4, 0.3, 0.28, 0.02])) + [target] * int(rng.integers(1, 4))
    noise = torch.from_numpy(rng.normal(size=(len(path), 6)))
    log_probs = (noise + 6 * torch.nn.functional.one_hot(torch.tensor(path), 6)).float().log_softmax(-1)
    cuts = sorted({0, len(path), *rng.integers(0, len(path), len(path) // longest)})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(align, "WINDOW", 200)
        patched.setattr(align, "MARGIN", 40)
        spans, scores = align_windows((log_probs[a:b] for a, b in pairwise(cuts)), targets)
    whole = align_spans(log_probs, targets)
    assert [(s.token, s.start, s.end) for s in spans] == [(s.token, s.start, s.end) for s in whole]
    assert len(scores) == len(path)
    inside = sum(s.score * len(s) for s in whole)
    outside = sum(float(log_probs[t, 0]) for t in set(range(len(path))) - {t for s in whole for t in range(s.start, s.end)})
    assert scores.sum() == pytest.approx(inside + outside, rel=1e-4)


@given(seed=st.integers(0, 2**32 - 1), frames=st.integers(1, 12), symbols=st.integers(0, 5))
def test_the_prefix_is_that_of_the_likeliest_path_of_all(seed, frames, symbols):
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, 3, symbols).tolist()
    log_probs = torch.from_numpy(rng.normal(size=(frames, 3))).float().log_softmax(-1)
    best = {0: float(log_probs[:, 0].sum())}  # how many are passed -> the likeliest path through just these
    for count in range(1, symbols + 1):
        try:
            spans = align_spans(log_probs, targets[:count])
        except ValueError:
            break
        spoken = {t for s in spans for t in range(s.start, s.end)}
        silent = sum(float(log_probs[t, 0]) for t in range(frames) if t not in spoken)
        best[count] = sum(s.score * len(s) for s in spans) + silent
    assert best[spoken_prefix(log_probs, targets)] == pytest.approx(max(best.values()), abs=1e-4)


@pytest.mark.slow
def test_an_hour_is_aligned_in_the_memory_of_a_window(monkeypatch):
    """15,000 words with minutes of silence among them; `forced_align` could not count the frames times states of the whole."""
    rng = np.random.default_rng(0)
    targets = rng.integers(1, 20, 45_000)
    targets[1::2] = targets[::2] + 20  # no two equal neighbours
    gaps = rng.integers(0, 6, len(targets))
    gaps[[9_000, 30_000]] = 9_000
    starts = np.cumsum(gaps + 1) - 1
    path = np.zeros(starts[-1] + 1, np.int64)
    path[starts] = targets
    assert len(path) > 150_000 and len(path) * (2 * len(targets) + 1) > 1 << 31
    most = 0
    real = align.align_spans

    def watched(log_probs, some):
        nonlocal most
        most = max(most, len(log_probs) * (2 * len(some) + 1))
        return real(log_probs, some)

    monkeypatch.setattr(align, "align_spans", watched)

    def pieces():
        for first in range(0, len(path), 1000):
            part = torch.full((len(path[first : first + 1000]), 40), -8.0)
            part[range(len(part)), path[first : first + 1000]] = -0.01
            yield part

    spans, scores = align_windows(pieces(), targets.tolist())
    assert [s.start for s in spans] == starts.tolist() and len(scores) == len(path)
    assert most < 10_000 * 12_000


# ---- words


@st.composite
def recordings(draw):
    """Words in order that do not overlap, and the length of their recording."""
    cuts = sorted(draw(st.lists(st.integers(0, 400), min_size=2, max_size=24, unique=True)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    return tuple(Span(f"w{i}", a / 50, b / 50) for i, (a, b) in enumerate(pairs)), cuts[-1] / 50 + draw(st.integers(0, 50)) / 50


def test_words_meet_in_the_middle_of_a_short_gap_and_stay_apart_in_a_long_one():
    words = (Span("a", 0.04, 0.4), Span("b", 0.48, 0.8), Span("c", 2.0, 2.5))
    found = widened(words, 2.5)
    assert [(w.start, w.end) for w in found] == [(0.02, 0.44), (0.44, pytest.approx(0.8 + GAP)), (2.0 - GAP, 2.5)]


@given(recordings())
def test_widened_words_hold_their_own_keep_their_order_and_stay_in_the_recording(recording):
    words, seconds = recording
    found = widened(words, seconds)
    assert [w.text for w in found] == [w.text for w in words]
    for before, after in zip(words, found, strict=True):
        assert 0 <= after.start <= before.start < before.end <= after.end <= seconds + 1e-9
    for left, right in pairwise(found):
        assert left.end <= right.start + 1e-9


def test_what_is_spoken_of_a_word():
    assert [w for w in "a 1 $ & 北 — ， ’ ... %".split() if any(map(is_spoken, w))] == ["a", "1", "$", "&", "北", "%"]
    assert core("“it's”,") == (1, 5) and core("—") == (0, 0)


# ---- Whisper


@pytest.mark.slow  # librosa compiles its DTW once
def test_tokens_begin_where_attention_moves_on():
    """Two heads; a prompt of two tokens and three of text; attention moves at frames 10, 30 and 45 of 60."""
    attention = np.full((2, 6, 60), 1e-3)
    for row, (first, last) in enumerate([(0, 60), (0, 10), (10, 30), (30, 45), (45, 60), (0, 60)]):
        attention[:, row, first:last] += 1 / (last - first)
    times = token_times(attention, slice(1, 5))
    assert times == pytest.approx([0.0, 0.2, 0.6, 0.9], abs=0.061) and len(times) == 4


def test_words_are_shared_out_by_what_is_recognised_in_every_piece():
    words = "The quick, brown fox (in 1984) jumps over a lazy dog".split()
    heard = ["the quik brown box", "in nineteen eighty four", "", "jumbs over the lazy dog"]
    assert shared_out(words, heard).tolist() == [0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 3]
    assert shared_out(list("臺灣北京"), ["台湾", "北京"]).tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="nothing was recognised"):
        shared_out(words, ["", " "])


@given(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=12), st.data())
def test_words_that_are_all_recognised_are_shared_out_exactly(words, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(words)), max_size=3)))
    borders = [0, *cuts, len(words)]
    heard = ["".join(words[a:b]) for a, b in pairwise(borders)]
    owners = shared_out(words, heard).tolist()
    assert owners == [n for n, (a, b) in enumerate(pairwise(borders)) for _ in range(a, b)]


# ---- by name


def noise(seconds: float) -> np.ndarray:
    return np.random.default_rng(0).normal(scale=0.1, size=int(seconds * 16_000)).astype(np.float32)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_ctc_checkpoint_aligns(ctc_folder, language):
    aligner = load_aligner("people-en", str(ctc_folder), language)
    assert aligner.spells("bad face") == 1.0 and aligner.spells("you") == 0.0  # its vocabulary is A to H
    found = aligner.align(noise(45), ["a", "bad,", "face", "12"])
    times = [t for w in found.words for t in (w.start, w.end)]
    assert [w.text for w in found.words] == ["a", "bad,", "face", "12"] and times == sorted(times) and times[-1] <= 45
    assert len(aligner.weights) == 16 and 0 <= found.confidence() < 1


@pytest.mark.slow
@pytest.mark.parametrize(("language", "words"), [("en", ["Ann", "is", "here."]), ("zh", list("安在這裡"))])
def test_a_whisper_checkpoint_aligns_with_its_own_attention(whisper_folder, language, words):
    aligner = load_aligner("people-en", str(whisper_folder), language)
    found = aligner.align(noise(3), words)
    assert [w.text for w in found.words] == words and found.symbols.min() > 0 and 0 <= found.confidence() < 1
    assert all(0 <= w.start < w.end <= 3 for w in found.words)
    assert [w.start for w in found.words] == sorted(w.start for w in found.words)
    small, capital = ([aligner.align(noise(3), [c]).losses[0] for c in some] for some in ("bcd", "BCD"))
    assert small == pytest.approx(capital) and max(small) > 0  # without capitals a text is no less likely
    with pytest.raises(ValueError, match="tokens of text fall on"):
        aligner.align(noise(3), words * 40)


@pytest.mark.slow
def test_whisper_gives_every_piece_of_long_audio_its_own_words(whisper_folder, monkeypatch):
    aligner = load_aligner("people-en", str(whisper_folder), "en")
    heard = iter([["Ann", "is"], ["here", "too"]])  # what random weights recognise is nothing
    monkeypatch.setattr(aligner.engine, "decode", lambda samples: [TimedWord(t, 0.0, 1.0, 1.0) for t in next(heard)])
    samples = noise(40)
    samples[20 * 16_000 : 21 * 16_000] = 0  # a pause to cut at
    found = aligner.align(samples, ["Ann", "is", "here,", "too"])
    assert [w.end <= 21 for w in found.words] == [True, True, False, False]
    assert all(w.start >= 20 for w in found.words[2:])


def test_a_whisper_of_another_language_is_refused(whisper_folder, tmp_path):
    folder = tmp_path / "tiny.en"
    shutil.copytree(whisper_folder, folder)
    change_json(folder / "generation_config.json", is_multilingual=False)
    with pytest.raises(InputError, match="was not trained on the language 'zh'; give a multilingual Whisper"):
        load_aligner("people-en", str(folder), "zh")
    assert load_aligner("people-en", str(folder), "en").name == "tiny.en"


def test_a_recogniser_that_cannot_align_is_refused():
    with pytest.raises(InputError, match="pocketsphinx does not align; give --recogniser ctc"):
        load_aligner("people-en", "pocketsphinx", "en")
    with pytest.raises(InputError, match="no text rules for the language 'fr'"):
        load_aligner("people-en", "ctc", "fr")
