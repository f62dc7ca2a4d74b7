"""MiniSUPERB samples every task as its earlier versions did, writes the same bytes whatever the
order and the workers, keeps voices and texts of the test out of training, and labels its recordings
rightly."""

import re
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest

from recipes.superb import minisuperb
from speechssl.artifacts import hash_json
from speechssl.audio import read_audio, to_int16
from speechssl.data.superb import (
    DOCUMENTS,
    SPLITS,
    SPLITS_OF,
    list_speakers,
    load_labelled,
    load_set,
    load_trials,
)
from speechssl.signal import measure_active_level, measure_rms_level
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.synthesisers import Voice, speak

from ..files import contents, read_lines

pytest.importorskip(
    "espeakng_loader", reason=('the synthesiser needs: pip install "speechssl[synth]"')
)

LABELLED = ("ks", "ic", "sid", "style")
# task -> utterances of train (qbe: documents), dev and test
SIZES = {task: (8, 3, 3) for task in minisuperb.USUAL_SIZES}
SIZES |= {"ks": (12, 3, 12), "sid": (40, 3, 3), "ic": (31, 3, 3)}  # every class, once in train
# task -> hashes of what is sampled for train and dev, as in version 1 of the generator, and for
# test, as in version 2
HASHES = {
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
    prepare(out, SIZES)
    return out


def prepare(out, sizes, workers=1):
    """Make sets of these sizes: task -> utterances in each of its splits."""
    options = minisuperb.MiniSuperb(out=out, seed=5, workers=workers)
    for task, counts in sizes.items():
        minisuperb.prepare_set(options, task, name_splits(task, counts))


def name_splits(task, sizes):
    """Return split -> size."""
    return dict(zip(SPLITS_OF.get(task, SPLITS), sizes, strict=True))


# ---- what is sampled: results were measured on it, so it stays the same


def to_json(value):
    """Return a value as the hashes of version 1 had it: voices had no engine then."""
    if isinstance(value, dict):
        return {name: to_json(entry) for name, entry in value.items() if name != "engine"}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return value


@pytest.mark.slow
@pytest.mark.parametrize("task", minisuperb.USUAL_SIZES)
def test_recordings_are_sampled_as_in_earlier_versions(task):
    planned = minisuperb.plan_set(task, name_splits(task, (120, 20, 20)), seed=7)
    train, dev, test = (
        [to_json(asdict(recording)) for recording in split] for split in planned.values()
    )
    hashes = (hash_json([*train, *dev]), hash_json(test))
    assert hashes == HASHES.get(task)


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(set(minisuperb.GENERATORS) - {"sid"}))
def test_voices_and_open_sentences_of_the_test_are_not_those_of_training(task):
    texts = {}
    for split in SPLITS:
        recordings = minisuperb.sample_recordings(task, split, count=24, seed=0)
        utterances = [part for recording in recordings for part in list_utterances(recording)]
        voices = {utterance.voice.name for utterance in utterances}
        assert voices <= {voice.name for voice in list_split_voices("en", split)}
        texts[split] = {utterance.text for utterance in utterances}
    if task not in ("ks", "ic", "sf"):  # all splits have the same words
        assert not texts["train"] & texts["test"]
        assert not texts["dev"] & texts["test"]
        assert not texts["train"] & texts["dev"]


def list_utterances(recording):
    """List the utterances of a planned recording, each of one voice."""
    if isinstance(recording, minisuperb.Conversation):
        return list(recording.turns)
    if isinstance(recording, minisuperb.Overlap):
        return [recording.first, recording.second]
    if isinstance(recording, minisuperb.NoisyUtterance):
        return [recording.clean]
    return [recording]


# ---- what is written

USUAL_FIELDS = {"id", "audio", "seconds", "speaker"}
FIELDS = {  # task -> further fields of a line; of other tasks text and labels
    "pr": {"text", "phones"},
    "asr": {"text"},
    "qbe": {"text", "matches"},
    "asv": {"text"},
    "sf": {"text", "slots"},
    "sd": {"turns"},
    "se": {"sources"},
    "ss": {"sources"},
}


def load(corpus, task):
    folder = corpus / task
    return load_labelled(folder) if task in LABELLED else load_set(folder, task)


@pytest.mark.slow
@pytest.mark.parametrize("task", SIZES)
def test_a_set_has_its_sizes_and_the_fields_of_its_task(corpus, task):
    splits = load(corpus, task).splits
    assert tuple(len(splits[split]) for split in SPLITS_OF.get(task, SPLITS)) == SIZES[task]
    fields = USUAL_FIELDS | FIELDS.get(task, {"text", "labels"})
    for line in read_lines(corpus / task / "test.jsonl"):
        assert set(line) == fields


@pytest.mark.slow
@pytest.mark.parametrize("task", SIZES)
def test_recordings_are_as_long_as_their_lines_say(corpus, task):
    data = load(corpus, task)
    for utterances in data.splits.values():
        for utterance in utterances:
            samples = read_audio(data.path(utterance))
            assert len(samples) / 16_000 == pytest.approx(utterance.seconds, abs=1e-9)
            assert utterance.seconds >= (1.0 if task == "ks" else 0.3)
            if utterance.labels.get("keyword") == "silence":
                assert 0.005 < np.abs(samples).max() < 0.11  # faint noise


@pytest.mark.slow
def test_conversations_are_of_two_voices_of_their_split(corpus):
    voices = {voice.name for voice in list_split_voices("en", "test")}
    for utterance in load_set(corpus / "sd", "sd").splits["test"]:
        assert len(list_speakers(utterance)) == 2
        assert set(list_speakers(utterance)) <= voices


@pytest.mark.slow
def test_trials_are_of_both_kinds(corpus):
    trials = load_trials(load_set(corpus / "asv"), "dev")
    assert {trial.same for trial in trials} == {True, False}


@pytest.mark.slow
def test_pr_and_asr_have_the_same_recordings(corpus):
    pr, asr = load_set(corpus / "pr"), load_set(corpus / "asr")
    for split in SPLITS:
        without_phones = [replace(utterance, phones="") for utterance in pr.splits[split]]
        assert without_phones == list(asr.splits[split])


@pytest.mark.slow
def test_order_kills_and_workers_change_no_byte(corpus, tmp_path, dies_in):
    tasks = ("ss", "asr", "pr")  # in another order; mixtures, and recordings that two sets share
    sizes = {task: SIZES[task] for task in tasks}
    with dies_in(minisuperb, "_make_recording", 21):  # of asr: ss has 14
        prepare(tmp_path, sizes)
    assert (tmp_path / "ss/card.json").exists()
    assert not (tmp_path / "pr").exists()
    prepare(tmp_path, sizes, workers=2)
    for folder in (*tasks, "sentences"):
        assert contents(tmp_path / folder) == contents(corpus / folder)


@pytest.mark.slow
def test_a_kill_between_files_of_a_recording_changes_no_byte(corpus, tmp_path):
    sizes = {"ss": SIZES["ss"]}
    prepare(tmp_path, sizes)
    (tmp_path / "ss/card.json").unlink()
    next((tmp_path / "ss/sources").glob("*-2.flac")).unlink()
    prepare(tmp_path, sizes)
    assert contents(tmp_path / "ss") == contents(corpus / "ss")


# ---- the labels of MiniSUPERB are those of its recordings: phones, slots, matches, turns,
# sources, SNRs, trials


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
    spoken = speak(text, Voice("ann", "en-us", "f1"))
    assert minisuperb.spell_phones(spoken) == expected


def test_trials_are_even_and_of_different_words():
    recordings = minisuperb.sample_recordings("asv", "test", count=96, seed=0)
    by_id = {recording.id: recording for recording in recordings}
    trials = minisuperb.pair_trials("test", recordings, seed=0)
    # 16 voices have 6 recordings each: 16 * 15 pairs of one speaker
    assert Counter(trial.same for trial in trials) == {True: 240, False: 240}
    for trial in trials:
        first, second = by_id[trial.first], by_id[trial.second]
        assert (first.voice.name == second.voice.name) == trial.same
        assert first.text != second.text
    assert len({frozenset((trial.first, trial.second)) for trial in trials}) == len(trials)
    assert len({trial.same for trial in trials[:10]}) == 2  # in random order


def test_trials_follow_from_the_seed():
    recordings = minisuperb.sample_recordings("asv", "test", count=96, seed=0)
    trials = minisuperb.pair_trials("test", recordings, seed=0)
    assert minisuperb.pair_trials("test", recordings, seed=0) == trials
    assert minisuperb.pair_trials("test", recordings, seed=1) != trials


@pytest.fixture(scope="module")
def queries():
    """Documents and queries of QbE, as they are planned."""
    return minisuperb.plan_queries({DOCUMENTS: 120, "dev": 15, "test": 15}, seed=2)


def test_matches_are_the_documents_that_have_the_words(queries):
    documents = queries[DOCUMENTS]
    for query in (*queries["dev"], *queries["test"]):
        matches = [d.id for d in documents if re.search(rf"\b{query.text}\b", d.text)]
        assert list(query.matches) == matches
        assert 1 <= len(matches) <= 12  # GREATEST_SHARE of the documents
        # no document has the words as a part of another word
        assert [d.id for d in documents if query.text in d.text] == matches


def test_no_voice_speaks_documents_and_queries(queries):
    voices = {
        name: {utterance.voice.name for utterance in utterances}
        for name, utterances in queries.items()
    }
    assert not voices[DOCUMENTS] & (voices["dev"] | voices["test"])
    assert not voices["dev"] & voices["test"]


@pytest.fixture(scope="module")
def conversations():
    """Samples (N,) and turns of twelve conversations."""
    return [d.render() for d in minisuperb.sample_recordings("sd", "train", count=12, seed=0)]


@pytest.mark.slow
def test_there_is_silence_outside_the_turns_and_speech_at_both_ends_of_each(conversations):
    edge = 160  # samples: 10 ms
    for samples, turns in conversations:
        active = np.zeros(len(samples), bool)
        for turn in turns:
            start, end = round(turn.start * 16_000), round(turn.end * 16_000)
            assert (start / 16_000, end / 16_000) == (turn.start, turn.end)
            assert 0 <= start < end <= len(samples)
            assert np.abs(samples[start : start + edge]).max() > 0
            assert np.abs(samples[end - edge : end]).max() > 0
            assert measure_rms_level(samples[start:end]) > -50
            active[start:end] = True
        assert not samples[~active].any()
        assert np.abs(samples).max() <= 1


@pytest.mark.slow
def test_two_people_talk_in_turn(conversations):
    for samples, turns in conversations:
        assert 7 < len(samples) / 16_000 < 16.5
        assert len({turn.speaker for turn in turns}) == 2
        for first, second, third in zip(turns, turns[1:], turns[2:], strict=False):
            assert first.speaker == third.speaker
            assert first.speaker != second.speaker
            assert first.end <= third.start  # at most two turns overlap
            assert first.start < second.start
            assert first.end < second.end


@pytest.mark.slow
def test_turns_overlap_in_some_of_the_time(conversations):
    shares = []  # of the time with speech
    for _, turns in conversations:
        overlap = sum(max(a.end - b.start, 0) for a, b in pairwise(turns))
        speech = sum(turn.end - turn.start for turn in turns) - overlap
        shares.append(overlap / speech)
    assert 0.1 < np.mean(shares) < 0.3
    assert min(shares) < 0.15
    assert max(shares) > 0.2


def test_the_sum_of_two_voices_is_the_mixture(tmp_path):
    for overlap in minisuperb.sample_recordings("ss", "test", count=6, seed=0):
        utterance = overlap.make(tmp_path)
        mixture, first, second = (
            to_int16(read_audio(tmp_path / name)).astype(int)
            for name in (utterance.audio, *utterance.sources)
        )
        np.testing.assert_array_equal(mixture, first + second)
        assert overlap.first.voice.name != overlap.second.voice.name
        assert 1.5 < utterance.seconds < 6
        ratio = measure_active_level(first / 32768) - measure_active_level(second / 32768)
        assert ratio == pytest.approx(overlap.ratio, abs=0.1)
        assert minisuperb.RATIOS[0] <= ratio <= minisuperb.RATIOS[1] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "noise"),
    [("train", minisuperb.SEEN), ("dev", minisuperb.SEEN), ("test", minisuperb.UNSEEN)],
)
def test_noise_is_added_at_the_snr_that_was_sampled(split, noise, tmp_path):
    planned = minisuperb.sample_recordings("se", split, count=8, seed=1)
    assert Counter(p.snr for p in planned) == dict.fromkeys(minisuperb.SNRS[split], 2)
    assert {p.noise for p in planned} == {noise}
    for recording in planned:
        utterance = recording.make(tmp_path)
        (source,) = utterance.sources
        noisy = read_audio(tmp_path / utterance.audio).astype(float)
        clean = read_audio(tmp_path / source).astype(float)
        assert len(noisy) == round(utterance.seconds * 16_000)
        assert len(clean) == len(noisy)
        snr = measure_active_level(clean) - measure_rms_level(noisy - clean)
        assert snr == pytest.approx(recording.snr, abs=0.1)
        assert np.abs(noisy).max() <= 0.99 + 1e-4
