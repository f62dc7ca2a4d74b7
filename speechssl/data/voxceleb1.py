"""Prepare VoxCeleb1 for SID and ASV (Nagrani et al., arXiv 1706.08612)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from speechssl.data.options import VoxCeleb1
from speechssl.data.superb import SPLITS, Trial, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    check_counts,
    group_by_split,
    measure_utterances,
    prepare,
    read_fields,
    sizes,
)
from speechssl.errors import InputError

SID_COUNTS = {"train": 138_361, "dev": 6_904, "test": 8_251, "speakers": 1_251}
ASV_COUNTS = {
    "recordings to train on": 148_642,
    "training speakers": 1_211,
    "test speakers": 40,
    "trials": 37_720,
}
MIN_SECONDS = 2.0  # of a recording that trains ASV
LAYOUT = "give the folder that holds dev/wav, test/wav, iden_split.txt and (for asv) veri_test.txt"


def prepare_voxceleb1(o: VoxCeleb1) -> Cards:
    """Write `o.out`/sid and `o.out`/asv and return their cards (Nagrani et al., arXiv
    1706.08612). Raises as `prepare`."""
    return prepare(Order("voxceleb1", o, o.tasks, LAYOUT), _read)


def _id(name: str) -> str:
    return name.removesuffix(".wav").replace("/", "-")


def _read(order: Order) -> dict[str, Prepared]:
    # (split of SID, recording); lines such as "1 id10001/1zcIwhmdeo4/00001.wav"
    listed: list[tuple[str, str]] = []
    path = order.find("iden_split.txt", "meta/iden_split.txt")
    for place, (code, name, *_) in read_fields(path, 2):
        if code not in ("1", "2", "3"):
            raise InputError(f"{place} has the split {code}, not 1 to 3; download it again")
        listed.append((SPLITS[int(code) - 1], name))
    trials: list[Trial] = []
    # lines such as "1 id10270/5r0dWxy17C8/00001.wav id10270/5sJomL_D0_g/00001.wav"
    if "asv" in order.folders:
        names = ("veri_test.txt", "voxceleb1_test_v2.txt")
        path = order.find(*names, *(f"meta/{name}" for name in names))
        for _, (same, one, other, *_) in read_fields(path, 3):
            trials.append(Trial(_id(one), _id(other), same == "1"))
    roots = [order.find("dev/wav"), order.find("test/wav")]
    homes = {folder.name: folder for root in roots for folder in root.iterdir()}
    utterances = []
    for _, name in listed:
        speaker, _, rest = name.partition("/")
        audio = homes.get(speaker, roots[0] / speaker) / rest
        utterances.append(Utterance(_id(name), str(audio), 0.0, speaker))
    everything, missing = measure_utterances(utterances, "VoxCeleb1")
    by_id = {u.id: u for u in everything}
    recordings = [
        (split, by_id[u.id])
        for (split, _), u in zip(listed, utterances, strict=True)
        if u.id in by_id
    ]
    sets: dict[str, Prepared] = {}
    if "sid" in order.folders:
        splits = group_by_split(
            (split, replace(u, labels={"speaker": u.speaker})) for split, u in recordings
        )
        speakers = len({u.speaker for u in splits["train"]})
        check_counts(order, sizes(splits) | {"speakers": speakers}, SID_COUNTS, missing)
        sets["sid"] = Prepared("sid", splits)
    if "asv" in order.folders:
        sets["asv"] = _verification(order, recordings, by_id, trials)
    return sets


def _verification(
    order: Order,
    listed: Sequence[tuple[str, Utterance]],
    by_id: Mapping[str, Utterance],
    trials: Sequence[Trial],
) -> Prepared:
    """Choose the recordings that train ASV, and the trials. listed: (split of SID, recording);
    by_id: recordings."""
    tested = {name.partition("-")[0] for trial in trials for name in (trial.first, trial.second)}
    untested = [(split, u) for split, u in listed if u.speaker not in tested]
    usable_trials = [trial for trial in trials if trial.first in by_id and trial.second in by_id]
    counts = {
        "recordings to train on": len(untested),
        "training speakers": len({u.speaker for _, u in untested}),
        "test speakers": len(tested),
        "trials": len(usable_trials),
    }
    check_counts(order, counts, ASV_COUNTS)
    train = [u for split, u in untested if split != "dev" and u.seconds >= MIN_SECONDS]
    dev = [u for split, u in untested if split == "dev"]
    names = {name for trial in usable_trials for name in (trial.first, trial.second)}
    test = [by_id[name] for name in sorted(names)]
    all_trials = {"dev": dev_trials(dev), "test": usable_trials}
    return Prepared("asv", {"train": train, "dev": dev, "test": test}, all_trials)


def dev_trials(utterances: Sequence[Utterance]) -> list[Trial]:
    """Draw a trial of the same speaker (where there is a second recording) and one of two speakers
    for every recording; none twice.

    Ids are SPEAKER-VIDEO-NUMBER; another video is preferred, for in one video the channel gives the
    speaker away.
    """
    rng = Random(0)
    trials: dict[tuple[str, str], Trial] = {}
    of_speaker: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        of_speaker.setdefault(utterance.speaker, []).append(utterance)
    for one in utterances:
        same_speaker = [u for u in of_speaker[one.speaker] if u.id != one.id]
        video = one.id.rpartition("-")[0]
        other_videos = [u for u in same_speaker if u.id.rpartition("-")[0] != video]
        other_speaker = rng.choice(sorted(set(of_speaker) - {one.speaker}) or [""])
        for choices in (other_videos or same_speaker, of_speaker.get(other_speaker, [])):
            if choices:
                partner = rng.choice(choices)
                first, second = sorted((one.id, partner.id))
                trials[first, second] = Trial(first, second, partner.speaker == one.speaker)
    return list(trials.values())
