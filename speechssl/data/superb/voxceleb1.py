"""VoxCeleb1 (Nagrani et al., arXiv 1706.08612; robots.ox.ac.uk/~vgg/data/voxceleb) for SID and ASV.

SID: `iden_split.txt` of the corpus. ASV: the 1,211 speakers of the development part train, the 37,720 trials of `veri_test.txt`
(openslr.org/49 has them as `voxceleb1_test_v2.txt`) are the test. Where ASV differs from s3prl's `downstream/sv_voxceleb1`:
- s3prl has no dev set and reports its best checkpoint on the test. Here dev is what `iden_split.txt` sets aside for
  validation of the training speakers; it does not train. A dev recording is tried against another of its speaker, from another
  video where there is one, and against one of somebody else. Known speakers make dev easier than the test: it ranks heads only.
- training recordings below 2 s are left out as they come; s3prl cuts silence out (sox) before it measures and before it trains.
Counts: SID from the data card of SUPERB at Hugging Face (`superb`, si); 148,642 recordings, 1,211 and 40 speakers and 37,720 trials
from the corpus as other recipes describe it. How many recordings dev takes is not published, nor checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from speechssl.data.superb.sets import (
    Cards,
    Order,
    Prepared,
    by_split,
    check_counts,
    check_tasks,
    measured,
    order,
    prepare,
    read_fields,
    sizes,
)
from speechssl.data.utterances import SPLITS, Trial, Utterance
from speechssl.errors import InputError

TASKS = ("sid", "asv")
SPLIT_OF = {"1": "train", "2": "dev", "3": "test"}  # of iden_split.txt
SID_COUNTS = {"train": 138_361, "dev": 6_904, "test": 8_251, "speakers": 1_251}
ASV_COUNTS = {"recordings to train on": 148_642, "training speakers": 1_211, "test speakers": 40, "trials": 37_720}
MIN_SECONDS = 2.0  # of a recording that trains ASV
LAYOUT = "give the folder that holds dev/wav, test/wav, iden_split.txt and (for asv) veri_test.txt"
Listed = list[tuple[str, str]]  # (split of SID, id10001/1zcIwhmdeo4/00001.wav)


def prepare_voxceleb1(source: Path | str, out: Path | str, tasks: Sequence[str] = TASKS, any_count: bool = False) -> Cards:
    """Write `out`/sid and `out`/asv and return their cards.

    Raises InputError for a wrong folder, counts that are not the published ones (unless `any_count`), or an unknown task.
    """
    check_tasks("VoxCeleb1", tasks, TASKS)
    return prepare(order("voxceleb1", source, out, tasks, LAYOUT, any_count), _read)


def dev_trials(utterances: Sequence[Utterance], seed: int = 0) -> list[Trial]:
    """One trial of the same speaker (where there is a second recording) and one of two speakers for every recording; none twice.

    Ids are SPEAKER-VIDEO-NUMBER; another video is preferred, for in one video the channel gives the speaker away.
    """
    rng, of_speaker, trials = Random(seed), dict[str, list[Utterance]](), dict[tuple[str, str], Trial]()
    for utterance in utterances:
        of_speaker.setdefault(utterance.speaker, []).append(utterance)
    for one in utterances:
        own = [u for u in of_speaker[one.speaker] if u.id != one.id]
        elsewhere = [u for u in own if _video(u) != _video(one)]
        other = rng.choice(sorted(set(of_speaker) - {one.speaker}) or [""])
        partners = [rng.choice(found) for found in (elsewhere or own, of_speaker.get(other, [])) if found]
        for partner in partners:
            first, second = sorted((one.id, partner.id))
            trials[first, second] = Trial(first, second, partner.speaker == one.speaker)
    return list(trials.values())


def _read(order: Order) -> dict[str, Prepared]:
    listed = list(_identification(order.find("iden_split.txt", "meta/iden_split.txt")))
    trials = _trials(order) if "asv" in order.folders else []
    everything = measured(_utterances(order, [path for _, path in listed]), "VoxCeleb1")
    known = {u.id: u for u in everything.found}
    readers = {"sid": lambda: _sid(order, listed, known, everything.missing), "asv": lambda: _asv(order, listed, known, trials)}
    return {task: readers[task]() for task in order.folders}


def _identification(path: Path) -> Iterator[tuple[str, str]]:
    """Lines such as "1 id10001/1zcIwhmdeo4/00001.wav"."""
    for place, (code, name, *_) in read_fields(path, 2):
        if code not in SPLIT_OF:
            raise InputError(f"{place} has the split {code!r}, which is not 1, 2 or 3; download iden_split.txt again")
        yield SPLIT_OF[code], name


def _trials(order: Order) -> list[Trial]:
    """Lines such as "1 id10270/5r0dWxy17C8/00001.wav id10270/5sJomL_D0_g/00001.wav"."""
    names = ("veri_test.txt", "voxceleb1_test_v2.txt")
    path = order.find(*names, *(f"meta/{name}" for name in names))
    return [Trial(_id(first), _id(second), same == "1") for _, (same, first, second, *_) in read_fields(path, 3)]


def _utterances(order: Order, names: Sequence[str]) -> Iterator[Utterance]:
    """A speaker is in dev/wav, in test/wav, or where somebody has put all of them together, in wav."""
    roots = [order.source / name for name in ("dev/wav", "test/wav", "wav") if (order.source / name).is_dir()]
    if not roots:
        order.find("dev/wav")
    homes = {folder.name: folder for root in roots for folder in root.iterdir()}
    for name in names:
        speaker, _, rest = name.partition("/")
        yield Utterance(_id(name), str(homes.get(speaker, roots[0] / speaker) / rest), 0.0, speaker)


def _sid(order: Order, listed: Listed, known: Mapping[str, Utterance], missing: Sequence[str]) -> Prepared:
    found = [(split, known[_id(name)]) for split, name in listed if _id(name) in known]
    splits = by_split(((split, _named(utterance)) for split, utterance in found), SPLITS)
    speakers = len({u.speaker for u in splits["train"]})
    check_counts(order, sizes(splits) | {"speakers": speakers}, SID_COUNTS, missing)
    return Prepared("sid", splits)


def _named(u: Utterance) -> Utterance:
    return Utterance(u.id, u.audio, u.seconds, u.speaker, {"speaker": u.speaker})


def _asv(order: Order, listed: Listed, known: Mapping[str, Utterance], trials: Sequence[Trial]) -> Prepared:
    tested = {trial.first.partition("-")[0] for trial in trials} | {trial.second.partition("-")[0] for trial in trials}
    ours = [(split, known[_id(name)]) for split, name in listed if _id(name) in known and name.partition("/")[0] not in tested]
    tried = [trial for trial in trials if trial.first in known and trial.second in known]
    speakers = {"training speakers": len({u.speaker for _, u in ours}), "test speakers": len(tested)}
    check_counts(order, {"recordings to train on": len(ours), "trials": len(tried)} | speakers, ASV_COUNTS)
    train = [u for split, u in ours if split != "dev" and u.seconds >= MIN_SECONDS]
    dev = [u for split, u in ours if split == "dev"]
    test = [known[name] for name in sorted({name for trial in tried for name in (trial.first, trial.second)})]
    every = {"dev": dev_trials(dev), "test": tried}
    for split, found in every.items():
        if {trial.same for trial in found} != {True, False}:
            raise InputError(f"{order.source} does not give {split} of asv trials of one speaker and of two; take more of it")
    return Prepared("asv", {"train": train, "dev": dev, "test": test}, every)


def _id(name: str) -> str:
    return name.removesuffix(".wav").replace("/", "-")


def _video(u: Utterance) -> str:
    return u.id.rpartition("-")[0]
