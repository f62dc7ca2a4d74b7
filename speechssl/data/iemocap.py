"""Prepare IEMOCAP in five folds for emotion recognition, ER (Busso et al. 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speechssl.data.options import Iemocap
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)

# emotion in the corpus -> class of ER: four classes, and excitement counts as happiness
CLASSES = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}
COUNTS = {  # published numbers of utterances with an emotion of CLASSES
    "Session1": 1085,
    "Session2": 1023,
    "Session3": 1151,
    "Session4": 1031,
    "Session5": 1241,
}
DEV_SHARE = 0.2  # dev is this fraction of the four other sessions, as in s3prl
SEED = 0  # of the random choice of dev


def prepare_iemocap(o: Iemocap) -> Cards:
    """Write `o.out`/er/fold-1 to fold-5 and return their cards: fold i tests on session i, and dev
    is sampled from the other four. Raises as `prepare`."""
    folders = [f"er/fold-{number}" for number in range(1, 6)]
    return prepare(Preparation("iemocap", o, folders), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the utterances of the five sessions, and divide them into the splits of every fold."""
    import torch

    labelled: dict[str, list[Utterance]] = {session: [] for session in COUNTS}
    for session, utterances in labelled.items():
        recordings = preparation.find(f"{session}/sentences/wav")
        for path in sorted(preparation.find(f"{session}/dialog/EmoEvaluation").glob("[!.]*.txt")):
            for _, fields in read_fields(path, 1, "\t"):
                utterance = _parse_label_line(fields, recordings)
                if utterance:
                    utterances.append(utterance)
    sessions = gather_utterances(preparation, labelled, COUNTS)
    folds = {}
    for folder, test_session in zip(preparation.folders, COUNTS, strict=True):
        others: list[Utterance] = []
        for session, utterances in sessions.items():
            if session != test_session:
                others += utterances
        # s3prl trains on a random 80 % of the other sessions and takes the rest for dev
        generator = torch.Generator().manual_seed(SEED)
        shuffled = [others[i] for i in torch.randperm(len(others), generator=generator).tolist()]
        train_size = int((1 - DEV_SHARE) * len(others))
        train, dev = shuffled[:train_size], shuffled[train_size:]
        folds[folder] = Prepared({"train": train, "dev": dev, "test": sessions[test_session]})
    return folds


def _parse_label_line(fields: Sequence[str], recordings: Path) -> Utterance | None:
    r"""Make the utterance of a line such as
    "[6.2901 - 8.2357]\tSes01F_impro01_F000\tneu\t[2.5000, 2.5000, 2.5000]"; None for other lines
    and for emotions beyond the four classes."""
    if not fields[0].startswith("[") or len(fields) < 3 or fields[2] not in CLASSES:
        return None
    name = fields[1]  # Ses01F_impro01_F000: session, dialogue, and the turn of the speaker F
    dialogue, _, turn = name.rpartition("_")
    audio = str(recordings / dialogue / f"{name}.wav")
    speaker = name[:5] + turn[:1]  # Ses01F: the speaker F of session 1
    labels = {"emotion": CLASSES[fields[2]]}
    return Utterance(name, audio, speaker=speaker, labels=labels)
