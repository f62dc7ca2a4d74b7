"""Prepare Audio SNIPS for slot filling, SF (Lai et al., arXiv 2011.06195)."""

from __future__ import annotations

from collections.abc import Sequence

from speechssl.data.options import AudioSnips
from speechssl.data.superb import Slot, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)

# the published splits have disjoint (synthetic) voices
VOICES = {
    "train": ("Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"),
    "dev": ("Aditi", "Amy", "Geraint", "Nicole"),
    "test": ("Brian", "Emma", "Raveena", "Russell"),
}
# every voice of a split reads every text of the split
COUNTS = {"train": 13_084 * 8, "dev": 700 * 4, "test": 700 * 4}
PUNCTUATION = frozenset("?!.,;-")
ANNOTATIONS = "all.iob.snips.txt"


def parse_slots(words: Sequence[str], tags: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
    """Parse the text and the slots of an utterance from its words and their IOB tags.

    The words "in", "new", "york" with the tags "O", "B-city", "I-city" give the text "IN NEW YORK"
    and the slot city with the value "NEW YORK".
    """
    text: list[str] = []
    slots: list[tuple[str, list[str]]] = []  # type, words
    previous = "O"
    for word, tag in zip(words, tags, strict=True):
        slot_type = tag[2:] if tag[:2] in ("B-", "I-") else tag
        if slot_type != "O" and (slot_type != previous or tag.startswith("B-")):
            slots.append((slot_type, []))
        previous = slot_type
        if word in PUNCTUATION:
            continue
        spoken = "AND" if word == "&" else word.upper()
        text.append(spoken)
        if slot_type != "O":
            _, value = slots[-1]
            value.append(spoken)
    # a slot of punctuation alone has no value
    return " ".join(text), tuple(Slot(name, " ".join(value)) for name, value in slots if value)


def prepare_audio_snips(o: AudioSnips) -> Cards:
    """Write `o.out`/sf and return its card. Raises as `prepare`."""
    return prepare(Preparation("audio-snips", o, ["sf"]), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the utterances of every split, each with its text and its slots."""
    folders = {"train": "train", "dev": "valid", "test": "test"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in folders}
    splits: dict[tuple[str, str], str] = {}  # (voice, folder) -> split
    for split, voices in VOICES.items():
        splits |= {(voice, folders[split]): split for voice in voices}
    # lines such as "Ivy-snips-train-7 BOS PLAY SOME JAZZ EOS\tO O O genre PlayMusic": the tags of
    # BOS and EOS are no slots
    for _, (annotated, tagged, *_) in read_fields(preparation.find(ANNOTATIONS), 2, "\t"):
        name, *words = annotated.split()
        tags = tagged.split()
        voice, _, rest = name.partition("-snips-")
        split = splits.get((voice, rest.partition("-")[0]), "")
        if not split:  # voices also read texts of splits that are not theirs
            continue
        text, slots = parse_slots(words[1:-1], tags[1:-1])
        path = preparation.source / folders[split] / f"{name}.wav"
        utterance = Utterance(name, str(path), speaker=voice, text=text, slots=slots)
        utterances[split].append(utterance)
    return {"sf": Prepared(gather_utterances(preparation, utterances, COUNTS))}
