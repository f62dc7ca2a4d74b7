"""Prepare Fluent Speech Commands for intent classification, IC (Lugosch et al., arXiv
1904.03670)."""

from __future__ import annotations

from speechssl.data.files import read_csv
from speechssl.data.options import FluentSpeechCommands
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import Cards, Preparation, Prepared, gather_utterances, prepare

TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}
COUNTS = {
    "train": 23_132,
    "dev": 3_118,
    "test": 3_793,
    "actions": 6,
    "objects": 14,
    "locations": 4,
}
SLOTS = ("action", "object", "location")  # an intent consists of these


def prepare_fluent_speech_commands(o: FluentSpeechCommands) -> Cards:
    """Write `o.out`/ic and return its card. Raises as `prepare`."""
    return prepare(Preparation("fluent-speech-commands", o, ["ic"]), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the utterances of every split, labelled with the slots of their intent."""
    utterances: dict[str, list[Utterance]] = {split: [] for split in TABLES}
    for split, name in TABLES.items():
        for row in read_csv(preparation.find(f"data/{name}")):
            path = preparation.source / row["path"]
            utterance = Utterance(
                id=path.stem,
                audio=str(path),
                speaker=row["speakerId"],
                labels={slot: row[slot] for slot in SLOTS},
                text=row["transcription"],
            )
            utterances[split].append(utterance)
    classes = {f"{slot}s": len({u.labels[slot] for u in utterances["train"]}) for slot in SLOTS}
    return {"ic": Prepared(gather_utterances(preparation, utterances, COUNTS, classes))}
