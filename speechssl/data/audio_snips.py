"""Prepare Audio SNIPS for SF (Lai et al., arXiv 2011.06195)."""

from __future__ import annotations

from collections.abc import Sequence

from speechssl.data.options import AudioSnips
from speechssl.data.superb import Slot, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)
from speechssl.errors import InputError

VOICES = {
    "train": ("Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"),
    "dev": ("Aditi", "Amy", "Geraint", "Nicole"),
    "test": ("Brian", "Emma", "Raveena", "Russell"),
}
COUNTS = {"train": 13_084 * 8, "dev": 700 * 4, "test": 700 * 4}
PUNCTUATION = frozenset("?!.,;-")
TEXTS = "all.iob.snips.txt"
LAYOUT = f"give the folder SNIPS, which holds train, valid, test and {TEXTS}"


def parse_slots(words: Sequence[str], tags: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
    """Parse the text and the slots of an utterance. words, tags: of equal number, without the marks
    of beginning and end."""
    text: list[str] = []
    slots: list[tuple[str, list[str]]] = []
    before = "O"
    for word, tag in zip(words, tags, strict=True):
        kind = tag[2:] if tag[:2] in ("B-", "I-") else tag
        if kind != "O" and (kind != before or tag.startswith("B-")):
            slots.append((kind, []))
        before = kind
        if word not in PUNCTUATION:
            text.append("AND" if word == "&" else word.upper())
            if kind != "O":
                slots[-1][1].append(text[-1])
    return " ".join(text), tuple(Slot(kind, " ".join(value)) for kind, value in slots if value)


def prepare_audio_snips(o: AudioSnips) -> Cards:
    """Write `o.out`/sf and return its card. Raises as `prepare`."""
    return prepare(Order("audio-snips", o, ["sf"], LAYOUT), _read)


def _read(order: Order) -> dict[str, Prepared]:
    folders = {"train": "train", "dev": "valid", "test": "test"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in folders}
    splits: dict[tuple[str, str], str] = {}
    for split, voices in VOICES.items():
        splits |= {(voice, folders[split]): split for voice in voices}
    for place, (annotated, tagged, *_) in read_fields(order.find(TEXTS), 2, "\t"):
        name, *words = annotated.split()
        voice, _, rest = name.partition("-snips-")
        key = (voice, rest.partition("-")[0])
        if key not in splits:
            continue
        tags = tagged.split()
        if len(tags) != len(words):
            raise InputError(
                f"{place} has {len(words)} words and {len(tags)} tags; prepare Audio SNIPS again"
            )
        text, slots = parse_slots(words[1:-1], tags[1:-1])
        path = order.source / folders[splits[key]] / f"{name}.wav"
        utterance = Utterance(name, str(path), 0.0, voice, text=text, slots=slots)
        utterances[splits[key]].append(utterance)
    return {"sf": Prepared("sf", gather_utterances(order, utterances, COUNTS))}
