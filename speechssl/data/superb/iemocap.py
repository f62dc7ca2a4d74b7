"""IEMOCAP (Busso et al. 2008, sail.usc.edu/iemocap) for ER: neutral, happy (with excited), angry and sad in five folds.

Fold i tests on session i. Dev is 20 % of the others by the draw of s3prl's `downstream/emotion/expert.py` (torch's permutation for
the seed 0). s3prl draws from files in the order of `os.listdir`, which is another on every machine; here they are sorted, so dev is
the same everywhere but not the same recordings as in any one run of s3prl. A speaker is named after who speaks (Ses01F, Ses01M),
where s3prl names who wears the markers in the dialogue.
Counts: the data card of SUPERB at Hugging Face (`superb`, er).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from speechssl.data.superb.sets import Cards, Measured, Order, Prepared, check_counts, measured, order, prepare, read_fields
from speechssl.data.utterances import Utterance

EMOTIONS = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}  # of the corpus -> class
SESSIONS = tuple(f"Session{number}" for number in range(1, 6))
COUNTS = {"Session1": 1085, "Session2": 1023, "Session3": 1151, "Session4": 1031, "Session5": 1241}
DEV_SHARE, SEED = 0.2, 0
LAYOUT = "give the folder IEMOCAP_full_release, which holds Session1 to Session5, each with dialog/EmoEvaluation and sentences/wav"


def prepare_iemocap(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/er/fold-1 to fold-5, a set each, and return their cards.

    Raises InputError for a wrong folder, or counts that are not the published ones (unless `any_count`).
    """
    folds = [f"er/fold-{number}" for number in range(1, 6)]
    return prepare(order("iemocap", source, out, folds, LAYOUT, any_count), _read)


def _read(order: Order) -> dict[str, Prepared]:
    done: dict[str, Measured] = {s: measured(_labelled(order, s), f"IEMOCAP {s}") for s in SESSIONS}
    counts = {session: len(m.found) for session, m in done.items()}
    check_counts(order, counts, COUNTS, [path for m in done.values() for path in m.missing])
    folds = {}
    for folder, tested in zip(order.folders, SESSIONS, strict=True):
        train, dev = _drawn([u for session, m in done.items() if session != tested for u in m.found])
        folds[folder] = Prepared("er", {"train": train, "dev": dev, "test": done[tested].found})
    return folds


def _labelled(order: Order, session: str) -> Iterator[Utterance]:
    """Lines such as "[6.2901 - 8.2357]\\tSes01F_impro01_F000\\tneu\\t[2.5000, 2.5000, 2.5000]", of the four classes."""
    recordings = order.find(f"{session}/sentences/wav")
    for path in sorted(order.find(f"{session}/dialog/EmoEvaluation").glob("[!.]*.txt")):
        for _, fields in read_fields(path, 1, "\t"):
            if fields[0].startswith("[") and len(fields) > 2 and fields[2] in EMOTIONS:
                name = fields[1]  # SesNNX_dialogue_Ynnn: session NN, Y speaks
                speaker = name[:5] + name.rpartition("_")[2][:1]
                audio = recordings / name.rpartition("_")[0] / f"{name}.wav"
                yield Utterance(name, str(audio), 0.0, speaker, {"emotion": EMOTIONS[fields[2]]})


def _drawn(utterances: Sequence[Utterance]) -> tuple[list[Utterance], list[Utterance]]:
    """Train and dev, in the order of the draw."""
    import torch

    drawn = torch.randperm(len(utterances), generator=torch.Generator().manual_seed(SEED)).tolist()
    shuffled = [utterances[index] for index in drawn]
    first = int((1 - DEV_SHARE) * len(shuffled))
    return shuffled[:first], shuffled[first:]
