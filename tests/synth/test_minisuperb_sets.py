"""The labels of MiniSUPERB are those of its recordings: phones, slots, matches, turns, sources, SNRs, trials."""

import re
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from speechssl.audio import read_audio, to_int16
from speechssl.data.utterances import DOCUMENTS
from speechssl.errors import InputError
from speechssl.signal import active_level, rms_level
from speechssl.synth import minisuperb as search
from speechssl.synth import minisuperb_words as commands
from speechssl.synth.minisqa import load_language
from speechssl.synth.minisuperb import INTERRUPTED, RATIOS, SEEN, SNRS, UNSEEN, draw, render, trials, trimmed
from speechssl.synth.minisuperb_words import NAMES, PHONES, phones_of
from speechssl.synth.synthesisers import Voice, speak

pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')

ANN = Voice("ann", "en-us", "f1")


def phones(text):
    return phones_of(speak(text, ANN))


# ---- pr


def test_there_are_the_39_phones_of_the_cmu_dictionary():
    assert len(PHONES) == 39 and {"AA", "AO", "ER", "NG", "ZH"} <= set(PHONES)
    assert all(set(names) <= set(PHONES) for names in NAMES.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thick", "TH IH K"),
        ("a tall hill", "AH T AO L HH IH L"),  # an l after a vowel has no time of its own
        ("the teacher of", "DH AH T IY CH ER AH V"),  # a linking r is none
        ("button", "B AH T AH N"),
        ("the church", "DH AH CH ER CH"),
    ],
)
def test_phones_of_words(text, expected):
    assert phones(text) == expected


@pytest.mark.slow
def test_every_word_of_minisqa_has_phones():
    language = load_language("en")
    parts = [part for patterns in language.values.values() for pattern in patterns for slot in pattern for part in slot]
    parts += [re.sub(r"\{\w+\}", "", fact) for relation in language.relations for fact in relation.facts]
    words = sorted({word for part in parts for word in part.split()})
    lines = [" ".join(words[at : at + 20]) for at in range(0, len(words), 20)]
    spoken = [phones(line) for line in lines]
    assert len(words) > 1000 and {phone for line in spoken for phone in line.split()} == set(PHONES)
    assert all(len(of_line.split()) > 2 * len(line.split()) for of_line, line in zip(spoken, lines, strict=True))


# ---- asv


def test_trials_are_even_and_of_different_words():
    drawn = draw("asv", "test", 48, 0)
    voice, text = {d.id: d.voice.name for d in drawn}, {d.id: d.text for d in drawn}
    found = trials("test", drawn, 0)
    assert Counter(t.same for t in found) == {True: 120, False: 120}  # 8 voices, 6 recordings each
    assert all((voice[t.first] == voice[t.second]) == t.same and text[t.first] != text[t.second] for t in found)
    assert len({frozenset((t.first, t.second)) for t in found}) == len(found)
    assert trials("test", drawn, 0) == found != trials("test", drawn, 1)
    assert len({t.same for t in found[:10]}) == 2


def test_the_fewest_recordings_make_both_kinds_of_trial():
    assert Counter(t.same for t in trials("dev", draw("asv", "dev", 3, 0), 0)) == {True: 1, False: 1}
    with pytest.raises(ValueError, match="2 recordings make no trials"):
        trials("dev", draw("asv", "dev", 2, 0), 0)


# ---- sf


def test_slots_are_found_where_they_were_filled_in():
    """The first place of a value after the slots before it is its own, for every phrase."""
    for number in range(40):
        for phrases in commands.INTENTS_OF_COMMANDS.values():
            for phrase in phrases.split("/"):
                text, slots = commands.fill(Random(number), phrase, "test")
                at, filled = 0, phrase
                for slot in slots:
                    own = filled.index("{")
                    filled = filled.replace(f"{{{slot.type}}}", slot.value, 1)
                    assert re.compile(rf"\b{slot.value}\b").search(text, at).start() == own
                    at = own + len(slot.value)


# ---- qbe


def test_matches_are_the_documents_that_have_the_words():
    found = search.plan_queries({DOCUMENTS: 120, "dev": 15, "test": 15}, 2)
    documents = found[DOCUMENTS]
    for split in ("dev", "test"):
        for query in found[split]:
            holders = [d.id for d in documents if re.search(rf"\b{query.text}\b", d.text)]
            assert list(query.matches) == holders and 1 <= len(holders) <= 12
            assert [d.id for d in documents if query.text in d.text] == holders  # in none as a part of a word
    voices = {name: {d.voice.name for d in found[name]} for name in found}
    assert not voices[DOCUMENTS] & (voices["dev"] | voices["test"]) and not voices["dev"] & voices["test"]


def test_too_few_documents_are_refused():
    with pytest.raises(InputError, match="8 documents contain .* queries for dev, not 100; give more documents"):
        search.plan_queries({DOCUMENTS: 8, "dev": 100, "test": 1}, 0)


# ---- sd


@pytest.fixture(scope="module")
def talks():
    return [d.render() for d in draw("sd", "train", 12, 0)]


@pytest.mark.slow
def test_there_is_silence_outside_the_turns_and_speech_at_both_ends_of_each(talks):
    for samples, turns in talks:
        active = np.zeros(len(samples), bool)
        for turn in turns:
            start, end = (round(edge * 16_000) for edge in (turn.start, turn.end))
            assert (start / 16_000, end / 16_000) == (turn.start, turn.end) and 0 <= start < end <= len(samples)
            assert np.abs(samples[start : start + 160]).max() > 0 and np.abs(samples[end - 160 : end]).max() > 0
            assert rms_level(samples[start:end]) > -50
            active[start:end] = True
        assert not samples[~active].any() and np.abs(samples).max() <= 1


def test_where_one_talks_alone_it_is_what_they_say():
    drawn = draw("sd", "test", 1, 3)[0]
    samples, turns = drawn.render()
    first, end = trimmed(render(drawn.turns[0])), min(turns[0].end, turns[1].start)
    start, end = round(turns[0].start * 16_000), round(end * 16_000)
    np.testing.assert_allclose(samples[start:end], first[: end - start], atol=1e-6)


@pytest.mark.slow
def test_two_people_talk_in_turn_with_some_overlap(talks):
    shares = []
    for samples, turns in talks:
        assert 7 < len(samples) / 16_000 < 16.5 and len({t.speaker for t in turns}) == 2
        for one, next_, other in zip(turns, turns[1:], turns[2:], strict=False):
            assert one.speaker == other.speaker != next_.speaker and one.end <= other.start  # nobody talks twice at once
            assert one.start < next_.start and one.end < next_.end
        overlap = sum(max(a.end - b.start, 0) for a, b in pairwise(turns))
        shares.append(overlap / (sum(t.end - t.start for t in turns) - overlap))
    assert 0.1 < np.mean(shares) < 0.3 and 0 < INTERRUPTED < 1
    assert min(shares) < 0.15 < 0.2 < max(shares)


# ---- ss, se


def test_the_sum_of_two_voices_is_the_mixture(tmp_path):
    for drawn in draw("ss", "test", 6, 0):
        made = drawn.make(tmp_path)
        mixture, first, second = (to_int16(read_audio(tmp_path / name)).astype(int) for name in (made.audio, *made.sources))
        np.testing.assert_array_equal(mixture, first + second)
        assert drawn.first.voice.name != drawn.second.voice.name and 1.5 < made.seconds < 6
        ratio = active_level(first / 32768) - active_level(second / 32768)
        assert ratio == pytest.approx(drawn.ratio, abs=0.1) and RATIOS[0] <= ratio <= RATIOS[1] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("split", "kind"), [("train", SEEN), ("dev", SEEN), ("test", UNSEEN)])
def test_noise_is_added_at_the_snr_that_was_drawn(split, kind, tmp_path):
    drawn = draw("se", split, 8, 1)
    assert Counter(d.snr for d in drawn) == dict.fromkeys(SNRS[split], 2) and {d.noise for d in drawn} == {kind}
    for one in drawn:
        made = one.make(tmp_path)
        (source,) = made.sources
        noisy, clean = (read_audio(tmp_path / name).astype(float) for name in (made.audio, source))
        assert len(noisy) == len(clean) == round(made.seconds * 16_000)
        assert active_level(clean) - rms_level(noisy - clean) == pytest.approx(one.snr, abs=0.1)
        assert np.abs(noisy).max() <= 0.99 + 1e-4


def test_every_mixture_has_noise_of_its_own(tmp_path):
    noises = []
    for one in draw("se", "train", 3, 1):
        made = one.make(tmp_path)
        noises.append(read_audio(tmp_path / made.audio)[:16_000] - read_audio(tmp_path / made.sources[0])[:16_000])
    assert all(abs(np.corrcoef(noises[i], noises[j])[0, 1]) < 0.5 for i, j in ((0, 1), (0, 2), (1, 2)))


# ---- one voice


def test_trimming_leaves_what_is_loud():
    samples = np.r_[np.zeros(100), [0.001, -1.0, 0.5, 0.2], np.full(50, 0.002)].astype(np.float32)
    np.testing.assert_array_equal(trimmed(samples), np.float32([-1.0, 0.5, 0.2]))
