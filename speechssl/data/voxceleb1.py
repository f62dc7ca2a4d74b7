"""Prepare VoxCeleb1 for speaker identification, SID, and speaker verification, ASV (Nagrani et al.,
arXiv 1706.08612)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from speechssl.data.options import VoxCeleb1
from speechssl.data.superb import SPLITS, Trial, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    check_counts,
    count_utterances,
    group_by_split,
    measure_utterances,
    prepare,
    read_fields,
)
from speechssl.errors import InputError

SID_COUNTS = {"train": 138_361, "dev": 6_904, "test": 8_251, "speakers": 1_251}
ASV_COUNTS = {
    "recordings to train on": 148_642,
    "training speakers": 1_211,
    "test speakers": 40,
    "trials": 37_720,
}
MIN_TRAINING_SECONDS = 2.0  # ASV is not trained on shorter recordings


def prepare_voxceleb1(o: VoxCeleb1) -> Cards:
    """Write `o.out`/sid and `o.out`/asv and return their cards. Raises as `prepare`."""
    return prepare(Preparation("voxceleb1", o, o.tasks), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the recordings of both tasks: those that the split list of SID names."""
    listed = _read_split_list(preparation)
    trials = _read_trials(preparation) if "asv" in preparation.folders else []
    roots = [preparation.find("dev/wav"), preparation.find("test/wav")]
    speaker_folders = {folder.name: folder for root in roots for folder in root.iterdir()}
    utterances = []
    for _, name in listed:
        speaker, _, rest = name.partition("/")
        audio = speaker_folders.get(speaker, roots[0] / speaker) / rest
        utterances.append(Utterance(_make_id(name), str(audio), speaker=speaker))
    measured, missing = measure_utterances(utterances, "VoxCeleb1")
    by_id = {u.id: u for u in measured}
    recordings = []  # (split of SID, utterance)
    for split, name in listed:
        if _make_id(name) in by_id:
            recordings.append((split, by_id[_make_id(name)]))
    sets: dict[str, Prepared] = {}
    if "sid" in preparation.folders:
        splits = group_by_split(
            (split, replace(u, labels={"speaker": u.speaker})) for split, u in recordings
        )
        speakers = len({u.speaker for u in splits["train"]})
        counts = count_utterances(splits) | {"speakers": speakers}
        check_counts(preparation, counts, SID_COUNTS, missing)
        sets["sid"] = Prepared(splits)
    if "asv" in preparation.folders:
        sets["asv"] = _prepare_verification(preparation, recordings, by_id, trials)
    return sets


def _make_id(name: str) -> str:
    """Return the id "SPEAKER-VIDEO-NUMBER" of "SPEAKER/VIDEO/NUMBER.wav"."""
    return name.removesuffix(".wav").replace("/", "-")


def _read_split_list(preparation: Preparation) -> list[tuple[str, str]]:
    """Read (split of SID, recording), from lines such as "1 id10001/1zcIwhmdeo4/00001.wav"."""
    listed = []
    path = preparation.find("iden_split.txt", "meta/iden_split.txt")
    for place, (code, name, *_) in read_fields(path, 2):
        if code not in ("1", "2", "3"):
            raise InputError(f"{place} has the split {code}, not 1 to 3; download it again")
        listed.append((SPLITS[int(code) - 1], name))
    return listed


def _read_trials(preparation: Preparation) -> list[Trial]:
    """Read the trials of ASV, from lines such as
    "1 id10270/5r0dWxy17C8/00001.wav id10270/5sJomL_D0_g/00001.wav"."""
    names = ("veri_test.txt", "voxceleb1_test_v2.txt")
    path = preparation.find(*names, *(f"meta/{name}" for name in names))
    trials = []
    for _, (same, first, second, *_) in read_fields(path, 3):
        trials.append(Trial(_make_id(first), _make_id(second), same == "1"))
    return trials


def _prepare_verification(
    preparation: Preparation,
    recordings: Sequence[tuple[str, Utterance]],
    by_id: Mapping[str, Utterance],
    trials: Sequence[Trial],
) -> Prepared:
    """Choose the recordings that train ASV, and the trials. recordings: (split of SID,
    utterance)."""
    test_speakers: set[str] = set()
    for trial in trials:
        test_speakers |= {name.partition("-")[0] for name in (trial.first, trial.second)}
    training = [(split, u) for split, u in recordings if u.speaker not in test_speakers]
    usable_trials = [trial for trial in trials if trial.first in by_id and trial.second in by_id]
    counts = {
        "recordings to train on": len(training),
        "training speakers": len({u.speaker for _, u in training}),
        "test speakers": len(test_speakers),
        "trials": len(usable_trials),
    }
    check_counts(preparation, counts, ASV_COUNTS)
    train = [u for split, u in training if split != "dev" and u.seconds >= MIN_TRAINING_SECONDS]
    dev = [u for split, u in training if split == "dev"]
    test_ids: set[str] = set()
    for trial in usable_trials:
        test_ids |= {trial.first, trial.second}
    test = [by_id[name] for name in sorted(test_ids)]
    trials_of = {"dev": sample_dev_trials(dev), "test": usable_trials}
    return Prepared({"train": train, "dev": dev, "test": test}, trials_of)


def sample_dev_trials(utterances: Sequence[Utterance]) -> list[Trial]:
    """Sample two trials for every recording: one of the same speaker, where there is a second
    recording, and one of two speakers. No trial comes twice.

    Ids are SPEAKER-VIDEO-NUMBER. The second recording of the speaker is of another video where
    there is one: within a video the channel gives the speaker away.
    """
    rng = Random(0)
    trials: dict[tuple[str, str], Trial] = {}
    by_speaker: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        by_speaker.setdefault(utterance.speaker, []).append(utterance)
    for utterance in utterances:
        others = [u for u in by_speaker[utterance.speaker] if u.id != utterance.id]
        video = utterance.id.rpartition("-")[0]
        other_videos = [u for u in others if u.id.rpartition("-")[0] != video]
        # the recordings from which a partner is chosen: of the same speaker, then of another
        candidates = [other_videos or others]
        other_speakers = sorted(set(by_speaker) - {utterance.speaker})
        if other_speakers:
            candidates.append(by_speaker[rng.choice(other_speakers)])
        for recordings in candidates:
            if recordings:
                partner = rng.choice(recordings)
                first, second = sorted((utterance.id, partner.id))
                trials[first, second] = Trial(first, second, partner.speaker == utterance.speaker)
    return list(trials.values())
