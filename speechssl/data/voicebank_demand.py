"""Prepare VoiceBank-DEMAND for speech enhancement, SE (Valentini-Botinhao 2017)."""

from __future__ import annotations

from speechssl.data.options import VoiceBankDemand
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    group_by_split,
    list_wavs,
    prepare,
)

DEV_SPEAKERS = ("p226", "p287")  # speakers of the published training set that are dev here
COUNTS = {"train": 10_802, "dev": 770, "test": 824}


def prepare_voicebank_demand(o: VoiceBankDemand) -> Cards:
    """Write `o.out`/se, the noisy recordings, each with its clean one, and return its card. Raises
    as `prepare`."""
    return prepare(Preparation("voicebank-demand", o, ["se"]), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the noisy recordings of every split, each with the path of its clean recording."""
    pairs = []
    for published_split, name in (("train", "trainset_28spk_wav"), ("test", "testset_wav")):
        noisy = preparation.find(f"noisy_{name}_16k", f"noisy_{name}")
        clean = preparation.find(f"clean_{name}_16k", f"clean_{name}")
        for path in list_wavs(noisy):  # p232_001.wav; the clean recording has the same name
            speaker = path.stem.split("_")[0]
            sources = (str(clean / path.name),)
            utterance = Utterance(
                id=path.stem,
                audio=str(path),
                speaker=speaker,
                sources=sources,
            )
            is_dev = published_split == "train" and speaker in DEV_SPEAKERS
            pairs.append(("dev" if is_dev else published_split, utterance))
    return {"se": Prepared(gather_utterances(preparation, group_by_split(pairs), COUNTS))}
