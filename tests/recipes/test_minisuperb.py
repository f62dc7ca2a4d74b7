"""MiniSUPERB: every task is drawn as ever, made to the same bytes however it is made, with nothing
of the test in training."""

import re
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest

from recipes.superb import minisuperb
from recipes.superb import minisuperb as speech
from speechssl.artifacts import hash_json
from speechssl.audio import read_audio, to_int16
from speechssl.data.superb import (
    DOCUMENTS,
    SPLITS,
    SPLITS_OF,
    load_labelled,
    load_set,
    load_trials,
    speakers_of,
)
from speechssl.signal import active_level, rms_level
from speechssl.synth.minisqa import speakers
from speechssl.synth.synthesisers import Voice, speak

from ..files import contents, read_lines

pytest.importorskip(
    "espeakng_loader", reason=('the synthesiser needs: pip install "speechssl[synth]"')
)

LABELLED = ("ks", "ic", "sid", "style")
SMALL = {task: (8, 3, 3) for task in minisuperb.USUAL_SIZES}
SMALL |= {"ks": (12, 3, 12), "sid": (40, 3, 3), "ic": (31, 3, 3)}
DRAWN_AS = {  # train (or documents) and dev, as in version 1; test, of 16 voices, as in version 2
    "pr": ("f0b88d10f9d8ccff", "1729b1e35e197c85"),
    "asr": ("69e64f372051038a", "0ccdd6fe0fa4c241"),
    "ks": ("10ddfac150378ebc", "172e7a5805719cc6"),
    "qbe": ("4975cb878ebde594", "6753a3e4cf749785"),
    "sid": ("e86951c9297dc8f6", "8185cc2bb175f569"),
    "asv": ("22f62acd6641249a", "f22db30b1b7ef93e"),
    "sd": ("afeccd48c429c4ad", "62d6facda382e1d9"),
    "ic": ("c122415849129697", "a20798101c3af676"),
    "sf": ("61ca4127317ceb21", "c3fe6df3e432f5c4"),
    "style": ("fe175a756b245b00", "78bc202be6ee4c92"),
    "se": ("2db842ee57fb6593", "7a9f18e786bfa522"),
    "ss": ("48aac9c459360d1e", "43e09ab5b237971a"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    out = tmp_path_factory.mktemp("minisuperb") / "out"
    prepare(out, SMALL)
    return out


def prepare(out, sizes, seed=5, workers=1):
    """Sets of these sizes: task -> utterances in each of its splits."""
    o = minisuperb.MiniSuperb(out=out, seed=seed, workers=workers)
    return {task: minisuperb.prepare_set(o, task, by_split(task, sizes[task])) for task in sizes}


def by_split(task, sizes):
    return dict(zip(SPLITS_OF.get(task, SPLITS), sizes, strict=True))


# ---- what is drawn: it is frozen with what was measured on it


def plain(value):
    """As JSON has it, without what a voice did not have then."""
    if isinstance(value, dict):
        return {name: plain(some) for name, some in value.items() if name != "engine"}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.slow
@pytest.mark.parametrize("task", minisuperb.USUAL_SIZES)
def test_what_is_drawn_is_as_ever(task):
    planned = minisuperb.plan_set(task, by_split(task, (120, 20, 20)), 7)
    *seen, test = ([plain(asdict(d)) for d in some] for some in planned.values())
    assert (hash_json([d for some in seen for d in some]), hash_json(test)) == DRAWN_AS[task]


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(set(minisuperb.GENERATORS) - {"sid"}))
def test_voices_and_open_sentences_of_the_test_are_not_those_of_training(task):
    parts = {
        split: [
            part for d in minisuperb.sample_recordings(task, split, 24, 0) for part in spoken(d)
        ]
        for split in SPLITS
    }
    for split, found in parts.items():
        assert {d.voice.name for d in found} <= {voice.name for voice in speakers("en", split)}
    if task not in ("ks", "ic", "sf"):  # their words are meant to be the same
        texts = {split: {d.text for d in found} for split, found in parts.items()}
        assert not texts["train"] & texts["test"]
        assert not texts["dev"] & texts["test"]
        assert not texts["train"] & texts["dev"]


def spoken(drawn):
    """The voices that speak in a recording."""
    turns = getattr(drawn, "turns", None) or [
        getattr(drawn, name, None) for name in ("first", "second", "clean")
    ]
    return [part for part in turns if part] or [drawn]


# ---- what is spoken


@pytest.mark.slow
def test_every_set_is_there_and_lines_have_what_their_task_asks_for_and_no_more(corpus):
    usual = {"id", "audio", "seconds", "speaker"}
    fields = {
        "pr": {"text", "phones"},
        "asr": {"text"},
        "qbe": {"text", "matches"},
        "asv": {"text"},
        "sf": {"text", "slots"},
        "sd": {"turns"},
        "se": {"sources"},
        "ss": {"sources"},
    }
    for task, sizes in SMALL.items():
        data = load_labelled(corpus / task) if task in LABELLED else load_set(corpus / task, task)
        assert tuple(len(data.splits[split]) for split in SPLITS_OF.get(task, SPLITS)) == sizes
        lines = read_lines(corpus / task / "test.jsonl")
        wanted = usual | fields.get(task, {"text", "labels"})
        assert {frozenset(line) for line in lines} == {frozenset(wanted)}
        for u in (u for utterances in data.splits.values() for u in utterances):
            samples = read_audio(data.path(u))
            assert len(samples) / 16_000 == pytest.approx(u.seconds, abs=1e-9)
            assert u.seconds >= (1.0 if task == "ks" else 0.3)
            # faint noise that can be read
            assert u.labels.get("keyword") != "silence" or 0.005 < np.abs(samples).max() < 0.11
    voices = {voice.name for voice in speakers("en", "test")}
    talks = load_set(corpus / "sd", "sd").splits["test"]
    assert all(len(speakers_of(u)) == 2 and set(speakers_of(u)) <= voices for u in talks)
    assert {t.same for t in load_trials(load_set(corpus / "asv"), "dev")} == {True, False}
    # the same recordings, with phones and without
    pr, asr = (load_set(corpus / task) for task in ("pr", "asr"))
    for split in SPLITS:
        assert [replace(u, phones="") for u in pr.splits[split]] == list(asr.splits[split])


@pytest.mark.slow
def test_order_kills_and_workers_change_no_byte(corpus, tmp_path, dies_in):
    some = ("ss", "asr", "pr")  # in another order; mixtures, and recordings that two sets share
    settings = {task: SMALL[task] for task in some}
    with dies_in(speech, "_make", 21):
        prepare(tmp_path, settings)
    assert not (tmp_path / "pr").exists() and (tmp_path / "ss/card.json").exists()
    prepare(tmp_path, settings, workers=2)
    for folder in (*some, "sentences"):
        assert contents(tmp_path / folder) == contents(corpus / folder)
    # a kill within a recording
    for path in (tmp_path / "ss/card.json", next((tmp_path / "ss/sources").glob("*-2.flac"))):
        path.unlink()
    prepare(tmp_path, settings)
    assert contents(tmp_path / "ss") == contents(corpus / "ss")


# ---- the labels of MiniSUPERB are those of its recordings: phones, slots, matches, turns,
# sources, SNRs, trials


def phones(text):
    return minisuperb.phones_of(speak(text, Voice("ann", "en-us", "f1")))


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


def test_trials_are_even_and_of_different_words():
    drawn = minisuperb.sample_recordings("asv", "test", 96, 0)
    voice, text = {d.id: d.voice.name for d in drawn}, {d.id: d.text for d in drawn}
    found = minisuperb.pair_trials("test", drawn, 0)
    assert Counter(t.same for t in found) == {True: 240, False: 240}  # 16 voices, 6 recordings each
    assert all(
        (voice[t.first] == voice[t.second]) == t.same and text[t.first] != text[t.second]
        for t in found
    )
    assert len({frozenset((t.first, t.second)) for t in found}) == len(found)
    assert (
        minisuperb.pair_trials("test", drawn, 0)
        == found
        != minisuperb.pair_trials("test", drawn, 1)
    )
    assert len({t.same for t in found[:10]}) == 2


def test_matches_are_the_documents_that_have_the_words():
    found = speech.plan_queries({DOCUMENTS: 120, "dev": 15, "test": 15}, 2)
    documents = found[DOCUMENTS]
    for split in ("dev", "test"):
        for query in found[split]:
            holders = [d.id for d in documents if re.search(rf"\b{query.text}\b", d.text)]
            assert list(query.matches) == holders and 1 <= len(holders) <= 12
            # in none as a part of a word
            assert [d.id for d in documents if query.text in d.text] == holders
    voices = {name: {d.voice.name for d in found[name]} for name in found}
    assert not voices[DOCUMENTS] & (voices["dev"] | voices["test"])
    assert not voices["dev"] & voices["test"]


@pytest.fixture(scope="module")
def talks():
    return [d.render() for d in minisuperb.sample_recordings("sd", "train", 12, 0)]


@pytest.mark.slow
def test_there_is_silence_outside_the_turns_and_speech_at_both_ends_of_each(talks):
    for samples, turns in talks:
        active = np.zeros(len(samples), bool)
        for turn in turns:
            start, end = (round(edge * 16_000) for edge in (turn.start, turn.end))
            assert (start / 16_000, end / 16_000) == (turn.start, turn.end)
            assert 0 <= start < end <= len(samples)
            assert np.abs(samples[start : start + 160]).max() > 0
            assert np.abs(samples[end - 160 : end]).max() > 0
            assert rms_level(samples[start:end]) > -50
            active[start:end] = True
        assert not samples[~active].any() and np.abs(samples).max() <= 1


@pytest.mark.slow
def test_two_people_talk_in_turn_with_some_overlap(talks):
    shares = []
    for samples, turns in talks:
        assert 7 < len(samples) / 16_000 < 16.5 and len({t.speaker for t in turns}) == 2
        for one, next_, other in zip(turns, turns[1:], turns[2:], strict=False):
            # nobody talks twice at once
            assert one.speaker == other.speaker != next_.speaker and one.end <= other.start
            assert one.start < next_.start and one.end < next_.end
        overlap = sum(max(a.end - b.start, 0) for a, b in pairwise(turns))
        shares.append(overlap / (sum(t.end - t.start for t in turns) - overlap))
    assert 0.1 < np.mean(shares) < 0.3 and 0 < minisuperb.INTERRUPTED < 1
    assert min(shares) < 0.15 < 0.2 < max(shares)


def test_the_sum_of_two_voices_is_the_mixture(tmp_path):
    for drawn in minisuperb.sample_recordings("ss", "test", 6, 0):
        made = drawn.make(tmp_path)
        mixture, first, second = (
            to_int16(read_audio(tmp_path / name)).astype(int)
            for name in (made.audio, *made.sources)
        )
        np.testing.assert_array_equal(mixture, first + second)
        assert drawn.first.voice.name != drawn.second.voice.name and 1.5 < made.seconds < 6
        ratio = active_level(first / 32768) - active_level(second / 32768)
        assert ratio == pytest.approx(drawn.ratio, abs=0.1)
        assert minisuperb.RATIOS[0] <= ratio <= minisuperb.RATIOS[1] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "kind"),
    [("train", minisuperb.SEEN), ("dev", minisuperb.SEEN), ("test", minisuperb.UNSEEN)],
)
def test_noise_is_added_at_the_snr_that_was_drawn(split, kind, tmp_path):
    drawn = minisuperb.sample_recordings("se", split, 8, 1)
    assert Counter(d.snr for d in drawn) == dict.fromkeys(minisuperb.SNRS[split], 2)
    assert {d.noise for d in drawn} == {kind}
    for one in drawn:
        made = one.make(tmp_path)
        (source,) = made.sources
        noisy, clean = (read_audio(tmp_path / name).astype(float) for name in (made.audio, source))
        assert len(noisy) == len(clean) == round(made.seconds * 16_000)
        assert active_level(clean) - rms_level(noisy - clean) == pytest.approx(one.snr, abs=0.1)
        assert np.abs(noisy).max() <= 0.99 + 1e-4
