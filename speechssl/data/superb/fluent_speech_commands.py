"""Fluent Speech Commands (Lugosch et al., arXiv 1904.03670; fluent.ai) for IC: an action, an object and a location each.

Splits are the corpus's own tables. Counts and classes: the data card of SUPERB at Hugging Face (`superb`, ic).
"""

from __future__ import annotations

from pathlib import Path

from speechssl.data.superb.sets import Cards, Order, Prepared, gathered, order, prepare, read_table
from speechssl.data.utterances import Utterance

TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}
SLOTS = ("action", "object", "location")
COLUMNS = ("path", "speakerId", "transcription", *SLOTS)
COUNTS = {"train": 23_132, "dev": 3_118, "test": 3_793, "actions": 6, "objects": 14, "locations": 4}
LAYOUT = "give the folder fluent_speech_commands_dataset, which holds wavs/ and data/ with " + ", ".join(TABLES.values())


def prepare_fluent_speech_commands(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/ic and return its card.

    Raises InputError for a wrong folder or table, or counts that are not the published ones (unless `any_count`).
    """
    return prepare(order("fluent-speech-commands", source, out, ["ic"], LAYOUT, any_count), _read)


def _read(order: Order) -> dict[str, Prepared]:
    rows = {split: read_table(order.find(f"data/{name}"), COLUMNS) for split, name in TABLES.items()}
    utterances = {split: [_utterance(order, row) for row in found] for split, found in rows.items()}
    classes = {f"{slot}s": len({u.labels[slot] for u in utterances["train"]}) for slot in SLOTS}
    return {"ic": Prepared("ic", gathered(order, utterances, COUNTS, classes))}


def _utterance(order: Order, row: dict[str, str]) -> Utterance:
    path, labels = order.source / row["path"], {slot: row[slot] for slot in SLOTS}
    return Utterance(path.stem, str(path), 0.0, row["speakerId"], labels, row["transcription"])
