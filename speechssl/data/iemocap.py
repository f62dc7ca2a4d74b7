"""Prepare IEMOCAP in five folds for ER (Busso et al. 2008)."""

from __future__ import annotations

from speechssl.data.options import Iemocap
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)

# of the corpus -> class
EMOTIONS = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}
COUNTS = {
    "Session1": 1085,
    "Session2": 1023,
    "Session3": 1151,
    "Session4": 1031,
    "Session5": 1241,
}
LAYOUT = (
    "give the folder IEMOCAP_full_release, which holds Session1 to Session5, each with "
    "dialog/EmoEvaluation and sentences/wav"
)
DEV_SHARE, SEED = 0.2, 0


def prepare_iemocap(o: Iemocap) -> Cards:
    """Write `o.out`/er/fold-1 to fold-5 and return their cards: fold i tests on session i, dev is
    drawn from the others. Raises as `prepare`."""
    folders = [f"er/fold-{number}" for number in range(1, 6)]
    return prepare(Order("iemocap", o, folders, LAYOUT), _read)


def _read(order: Order) -> dict[str, Prepared]:
    import torch

    labelled: dict[str, list[Utterance]] = {session: [] for session in COUNTS}
    for session, utterances in labelled.items():
        # lines such as "[6.2901 - 8.2357]\tSes01F_impro01_F000\tneu\t[2.5000, 2.5000, 2.5000]", of
        # the four classes
        recordings = order.find(f"{session}/sentences/wav")
        for path in sorted(order.find(f"{session}/dialog/EmoEvaluation").glob("[!.]*.txt")):
            for _, fields in read_fields(path, 1, "\t"):
                if fields[0].startswith("[") and len(fields) > 2 and fields[2] in EMOTIONS:
                    name = fields[1]  # SesNNX_dialogue_Ynnn: session NN, Y speaks
                    dialogue, _, turn = name.rpartition("_")
                    audio = str(recordings / dialogue / f"{name}.wav")
                    speaker, labels = name[:5] + turn[:1], {"emotion": EMOTIONS[fields[2]]}
                    utterances.append(Utterance(name, audio, 0.0, speaker, labels))
    sessions = gather_utterances(order, labelled, COUNTS)
    folds = {}
    for folder, tested in zip(order.folders, COUNTS, strict=True):
        others: list[Utterance] = []
        for session, of_session in sessions.items():
            if session != tested:
                others += of_session
        generator = torch.Generator().manual_seed(SEED)
        shuffled = [others[i] for i in torch.randperm(len(others), generator=generator).tolist()]
        first = int((1 - DEV_SHARE) * len(others))
        splits = {"train": shuffled[:first], "dev": shuffled[first:], "test": sessions[tested]}
        folds[folder] = Prepared("er", splits)
    return folds
