"""SUPERB's sets about who speaks, and of mixtures: SID, ASV, SD, SS and SE.

**VoxCeleb1** (Nagrani et al., arXiv 1706.08612; robots.ox.ac.uk/~vgg/data/voxceleb) for SID and ASV. SID: `iden_split.txt` of the
corpus. ASV: the 1,211 speakers of the development part train, the 37,720 trials of `veri_test.txt` (openslr.org/49 has them as
`voxceleb1_test_v2.txt`) are the test. Where ASV differs from s3prl's `downstream/sv_voxceleb1`:
- s3prl has no dev set and reports its best checkpoint on the test. Here dev is what `iden_split.txt` sets aside for
  validation of the training speakers; it does not train. A dev recording is tried against another of its speaker, from another
  video where there is one, and against one of somebody else. Known speakers make dev easier than the test: it ranks heads only.
- training recordings below 2 s are left out as they come; s3prl cuts silence out (sox) before it measures and before it trains.
Counts: SID from the data card of SUPERB at Hugging Face (`superb`, si); 148,642 recordings, 1,211 and 40 speakers and 37,720 trials
from the corpus as other recipes describe it. How many recordings dev takes is not published, nor checked.

**Libri2Mix** (Cosentino et al., arXiv 2005.11262) for SD and SS: two speakers of LibriSpeech at a time, 16 kHz. SD takes mixtures
with noise at their full length and turns from the alignment of a Kaldi recogniser, as s3prl's recipe makes them:

    git clone https://github.com/ftshijt/LibriMix && cd LibriMix && bash generate_librimix.sh CORPORA
    python3 scripts/prepare_diarization.py --target_dir CORPORA/diarization --source_dir CORPORA/Libri2Mix/wav16k/max/metadata

That gives train, dev and test, each with wav.scp (or a folder wav), rttm, segments and utt2spk. `rttm` is read where there
is one: `segments` names a piece by its mixture and times alone, so that in s3prl two who speak from and to the same moment are one.
SS takes clean mixtures cut to the shorter speaker, wav16k/min/{train-100,dev,test}/{mix_clean,s1,s2}. Its dev is the 1,000 of 3,000
that s3prl's `separation_stft/scripts/LibriMix/subsample.py` draws (seed 7), as its cfg.yaml has it. Counts: 13,900, 3,000 and 3,000
mixtures are those of the corpus (13,900 also in a public overview; all agree with the 13,901, 3,014 and 3,002 pieces of at most
20 s of SUPERB's data card at Hugging Face).

**VoiceBank-DEMAND** (Valentini-Botinhao 2017, datashare.ed.ac.uk/handle/10283/2791) for SE: the 28-speaker training set. Dev is the
speakers p226 and p287, as in s3prl's `enhancement_stft2/scripts/Voicebank/data_prepare.py`. s3prl resamples all to 16 kHz first;
here recordings may be at 48 kHz, they are resampled when they are read. Counts: 11,572 and 824 are those of the corpus; that p226
and p287 have 770 of them stands in several public recipes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from speechssl.data import superb
from speechssl.data.superb import SPLITS, TOGETHER, Trial, Turn, Utterance
from speechssl.errors import InputError

SID_COUNTS = {"train": 138_361, "dev": 6_904, "test": 8_251, "speakers": 1_251}
ASV_COUNTS = {"recordings to train on": 148_642, "training speakers": 1_211, "test speakers": 40, "trials": 37_720}
MIN_SECONDS = 2.0  # of a recording that trains ASV
VOXCELEB1 = "give the folder that holds dev/wav, test/wav, iden_split.txt and (for asv) veri_test.txt"


def prepare_voxceleb1(
    source: Path | str, out: Path | str, tasks: Sequence[str] = ("sid", "asv"), any_count: bool = False
) -> superb.Cards:
    """Write `out`/sid and `out`/asv and return their cards. Raises as `prepare`, and InputError for an unknown task."""
    superb.check_tasks("VoxCeleb1", tasks, ("sid", "asv"))
    return superb.prepare(superb.Order("voxceleb1", Path(source), Path(out), tasks, VOXCELEB1, any_count), _read_voxceleb1)


def _read_voxceleb1(order: superb.Order) -> dict[str, superb.Prepared]:
    def id_of(name: str) -> str:
        return name.removesuffix(".wav").replace("/", "-")

    listed: list[tuple[str, str]] = []  # (split of SID, recording); lines such as "1 id10001/1zcIwhmdeo4/00001.wav"
    split_of = {"1": "train", "2": "dev", "3": "test"}
    for place, (code, name, *_) in superb.read_fields(order.find("iden_split.txt", "meta/iden_split.txt"), 2):
        if code not in split_of:
            raise InputError(f"{place} has the split {code!r}, which is not 1, 2 or 3; download iden_split.txt again")
        listed.append((split_of[code], name))
    trials: list[Trial] = []
    if "asv" in order.folders:  # lines such as "1 id10270/5r0dWxy17C8/00001.wav id10270/5sJomL_D0_g/00001.wav"
        names = ("veri_test.txt", "voxceleb1_test_v2.txt")
        path = order.find(*names, *(f"meta/{name}" for name in names))
        trials = [Trial(id_of(one), id_of(other), same == "1") for _, (same, one, other, *_) in superb.read_fields(path, 3)]
    # a speaker is in dev/wav, in test/wav, or where somebody has put all of them together, in wav
    roots = [order.source / name for name in ("dev/wav", "test/wav", "wav") if (order.source / name).is_dir()]
    if not roots:
        order.find("dev/wav")  # raises
    homes = {folder.name: folder for root in roots for folder in root.iterdir()}
    utterances = []
    for _, name in listed:
        speaker, _, rest = name.partition("/")
        audio = homes.get(speaker, roots[0] / speaker) / rest
        utterances.append(Utterance(id_of(name), str(audio), 0.0, speaker))
    everything, missing = superb.measured(utterances, "VoxCeleb1")
    known = {u.id: u for u in everything}
    found = [(split, known[id_of(name)]) for split, name in listed if id_of(name) in known]
    made: dict[str, superb.Prepared] = {}
    if "sid" in order.folders:
        splits = superb.by_split(((split, replace(u, labels={"speaker": u.speaker})) for split, u in found), SPLITS)
        speakers = len({u.speaker for u in splits["train"]})
        superb.check_counts(order, superb.sizes(splits) | {"speakers": speakers}, SID_COUNTS, missing)
        made["sid"] = superb.Prepared("sid", splits)
    if "asv" in order.folders:
        made["asv"] = _verification(order, found, known, trials)
    return made


def _verification(
    order: superb.Order, listed: Sequence[tuple[str, Utterance]], known: Mapping[str, Utterance], trials: Sequence[Trial]
) -> superb.Prepared:
    """listed: (split of SID, recording); known: recordings by id."""
    tested = {name.partition("-")[0] for trial in trials for name in (trial.first, trial.second)}
    ours = [(split, u) for split, u in listed if u.speaker not in tested]
    tried = [trial for trial in trials if trial.first in known and trial.second in known]
    speakers = {"training speakers": len({u.speaker for _, u in ours}), "test speakers": len(tested)}
    superb.check_counts(order, {"recordings to train on": len(ours), "trials": len(tried)} | speakers, ASV_COUNTS)
    train = [u for split, u in ours if split != "dev" and u.seconds >= MIN_SECONDS]
    dev = [u for split, u in ours if split == "dev"]
    test = [known[name] for name in sorted({name for trial in tried for name in (trial.first, trial.second)})]
    every = {"dev": dev_trials(dev), "test": tried}
    for split, found in every.items():
        if {trial.same for trial in found} != {True, False}:
            raise InputError(
                f"{order.source} does not have both kinds of asv trials for {split}, of one speaker and of two; use more of it"
            )
    return superb.Prepared("asv", {"train": train, "dev": dev, "test": test}, every)


def dev_trials(utterances: Sequence[Utterance], seed: int = 0) -> list[Trial]:
    """One trial of the same speaker (where there is a second recording) and one of two speakers for every recording; none twice.

    Ids are SPEAKER-VIDEO-NUMBER; another video is preferred, for in one video the channel gives the speaker away.
    """
    rng, of_speaker, trials = Random(seed), dict[str, list[Utterance]](), dict[tuple[str, str], Trial]()
    for utterance in utterances:
        of_speaker.setdefault(utterance.speaker, []).append(utterance)
    for one in utterances:
        own = [u for u in of_speaker[one.speaker] if u.id != one.id]
        elsewhere = [u for u in own if u.id.rpartition("-")[0] != one.id.rpartition("-")[0]]
        other = rng.choice(sorted(set(of_speaker) - {one.speaker}) or [""])
        partners = [rng.choice(found) for found in (elsewhere or own, of_speaker.get(other, [])) if found]
        for partner in partners:
            first, second = sorted((one.id, partner.id))
            trials[first, second] = Trial(first, second, partner.speaker == one.speaker)
    return list(trials.values())


PARTS = {"train": "train-100", "dev": "dev", "test": "test"}  # of wav16k/min
SD_COUNTS = {"train": 13_900, "dev": 3_000, "test": 3_000}
SS_COUNTS = {"train": 13_900, "dev": 1_000, "test": 3_000}
DEV_SIZE, DEV_SEED = 1_000, 7
LIBRI2MIX = "give the folder Libri2Mix, which holds wav16k/min (ss), and --diarization what prepare_diarization.py wrote (sd)"


def prepare_libri2mix(
    source: Path | str,
    out: Path | str,
    diarization: Path | str | None = None,
    tasks: Sequence[str] = ("sd", "ss"),
    any_count: bool = False,
) -> superb.Cards:
    """Write `out`/sd and `out`/ss and return their cards.

    diarization: the folder with train, dev and test of the Kaldi kind; needed for sd. Raises as `prepare`, and InputError for an
    unknown task, or a mixture in which nobody speaks.
    """
    superb.check_tasks("Libri2Mix", tasks, ("sd", "ss"))
    if "sd" in tasks and diarization is None:
        raise InputError("sd needs the turns; give --diarization the folder that prepare_diarization.py wrote, or --tasks ss")
    kaldi = Path(diarization or source).resolve()
    options = {"sd": {"diarization": str(kaldi)}} if "sd" in tasks else {}

    def read(order: superb.Order) -> Mapping[str, superb.Prepared]:
        made: dict[str, superb.Prepared] = {}
        for task in order.folders:
            if task == "sd":
                splits = superb.gathered(order, {split: _diarized(kaldi / split) for split in SPLITS}, SD_COUNTS)
            else:
                splits = superb.gathered(order, _separated(order), SS_COUNTS)
            made[task] = superb.Prepared(task, splits)
        return made

    return superb.prepare(superb.Order("libri2mix", Path(source), Path(out), tasks, LIBRI2MIX, any_count, options), read)


def _separated(order: superb.Order) -> dict[str, list[Utterance]]:
    root = order.find("wav16k/min")
    utterances: dict[str, list[Utterance]] = {split: [] for split in PARTS}
    for split, part in PARTS.items():
        mixed = superb.wavs(order.find(f"wav16k/min/{part}/mix_clean"))
        for path in subsample(mixed) if split == "dev" else mixed:
            # called after what was mixed ("4077-13754-0001_5142-33396-0065"): the first number of either is its speaker
            speakers = TOGETHER.join(name.partition("-")[0] for name in path.stem.split("_"))
            sources = tuple(str(root / part / name / path.name) for name in ("s1", "s2"))
            utterances[split].append(Utterance(path.stem, str(path), 0.0, speakers, sources=sources))
    return utterances


def subsample(paths: Sequence[Path]) -> list[Path]:
    """The 1,000 recordings that are dev in SUPERB, in order; all where there are no more."""
    drawn = sorted(paths, key=lambda path: path.stem)
    Random(DEV_SEED).shuffle(drawn)
    return sorted(drawn[:DEV_SIZE], key=lambda path: path.stem)


def _diarized(folder: Path) -> Iterator[Utterance]:
    """With turns: the recordings of wav.scp, its paths from the folder on where they are relative, or else what is in wav/."""
    recordings: dict[str, Path] = {}
    if (folder / "wav.scp").is_file():
        for place, (name, *rest) in superb.read_fields(folder / "wav.scp", 2):
            if rest[-1].endswith("|"):
                raise InputError(f"{place} is a command, not a recording; write the mixtures to files and name those")
            recordings[name] = folder / " ".join(rest)
    elif (folder / "wav").is_dir():
        recordings = {path.stem: path for path in superb.wavs(folder / "wav")}
    else:
        raise InputError(f"{folder} has neither wav.scp nor wav/; {LIBRI2MIX}")
    turns: dict[str, list[Turn]] = {}
    for place, name, speaker, start, end in _turns(folder):
        if not 0 <= start < end:
            raise InputError(f"{place} has a turn from {start} to {end} s; run prepare_diarization.py again")
        turns.setdefault(name, []).append(Turn(speaker, start, end))
    for name, path in recordings.items():
        if name not in turns:
            raise InputError(f"{folder} has no speaker in {name}; run prepare_diarization.py again")
        yield Utterance(name, str(path), 0.0, turns=tuple(sorted(turns[name], key=lambda turn: (turn.start, turn.speaker))))


def _turns(folder: Path) -> Iterator[tuple[str, str, str, float, float]]:
    """Place, recording, speaker, start and end, of rttm or else of segments."""
    if (folder / "rttm").is_file():  # lines such as "SPEAKER recording 1 start duration <NA> <NA> speaker <NA>"
        for place, fields in superb.read_fields(folder / "rttm", 8):
            if fields[0] == "SPEAKER":
                start = superb.number_of(fields[3], place)
                yield place, fields[1], fields[7], start, round(start + superb.number_of(fields[4], place), 6)
        return
    speakers = {name: speaker for _, (name, speaker, *_) in superb.read_fields(folder / "utt2spk", 2)}
    for place, (name, recording, begin, end, *_) in superb.read_fields(folder / "segments", 4):
        if name not in speakers:
            raise InputError(f"{place} names {name}, which utt2spk does not have; run prepare_diarization.py again")
        yield place, recording, speakers[name], superb.number_of(begin, place), superb.number_of(end, place)


DEV_SPEAKERS = ("p226", "p287")
VOICEBANK = (
    "give the folder that holds clean_ and noisy_trainset_28spk_wav, clean_ and noisy_testset_wav (or these names with _16k)"
)
VOICEBANK_COUNTS = {"train": 10_802, "dev": 770, "test": 824}


def prepare_voicebank_demand(source: Path | str, out: Path | str, any_count: bool = False) -> superb.Cards:
    """Write `out`/se (the noisy recordings, each with its clean one) and return its card. Raises as `prepare`."""
    return superb.prepare(superb.Order("voicebank-demand", Path(source), Path(out), ["se"], VOICEBANK, any_count), _read_voicebank)


def _read_voicebank(order: superb.Order) -> dict[str, superb.Prepared]:
    found = []
    for split, name in {"train": "trainset_28spk_wav", "test": "testset_wav"}.items():
        noisy, clean = (order.find(f"{kind}_{name}_16k", f"{kind}_{name}") for kind in ("noisy", "clean"))
        for path in superb.wavs(noisy):  # p232_001.wav, and the clean one of the same name
            speaker = path.stem.split("_")[0]
            utterance = Utterance(path.stem, str(path), 0.0, speaker, sources=(str(clean / path.name),))
            found.append(("dev" if split == "train" and speaker in DEV_SPEAKERS else split, utterance))
    return {"se": superb.Prepared("se", superb.gathered(order, superb.by_split(found, SPLITS), VOICEBANK_COUNTS))}
