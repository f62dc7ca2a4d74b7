"""Prepare VoiceBank-DEMAND for SE (Valentini-Botinhao 2017)."""

from __future__ import annotations

from speechssl.data.options import VoiceBankDemand
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    group_by_split,
    prepare,
    wavs,
)

DEV_SPEAKERS = ("p226", "p287")
LAYOUT = (
    "give the folder that holds clean_ and noisy_trainset_28spk_wav, clean_ and "
    "noisy_testset_wav (or these names with _16k)"
)
COUNTS = {"train": 10_802, "dev": 770, "test": 824}


def prepare_voicebank_demand(o: VoiceBankDemand) -> Cards:
    """Write `o.out`/se, the noisy recordings, each with its clean one, and return its card. Raises
    as `prepare`."""
    return prepare(Order("voicebank-demand", o, ["se"], LAYOUT), _read)


def _read(order: Order) -> dict[str, Prepared]:
    pairs = []
    for split, name in {"train": "trainset_28spk_wav", "test": "testset_wav"}.items():
        noisy = order.find(f"noisy_{name}_16k", f"noisy_{name}")
        clean = order.find(f"clean_{name}_16k", f"clean_{name}")
        for path in wavs(noisy):  # p232_001.wav, and the clean one of the same name
            speaker, sources = path.stem.split("_")[0], (str(clean / path.name),)
            dev = split == "train" and speaker in DEV_SPEAKERS
            utterance = Utterance(path.stem, str(path), 0.0, speaker, sources=sources)
            pairs.append(("dev" if dev else split, utterance))
    return {"se": Prepared("se", gather_utterances(order, group_by_split(pairs), COUNTS))}
