"""Audio SNIPS (Lai et al., arXiv 2011.06195) for SF: the SNIPS commands, spoken by sixteen synthetic voices.

Voices and text as s3prl's `downstream/ctc/snips.yaml` and `text.py` have them: eight US voices train, four others are dev and
four more test; words in capitals without punctuation, "&" is AND. The set is the prepared one that s3prl links (or what its
`preprocess/snips_prepare_data.sh` makes): train/, valid/, test/ and `all.iob.snips.txt`, where a line is
"Ivy-snips-train-7 BOS PLAY SOME JAZZ EOS<tab>O O O genre PlayMusic". Words of one slot type in a row are one slot; tags with B- and
I- are understood too.
Counts are computed, not published anywhere we could read: 13,084, 700 and 700 commands of SNIPS times the voices of the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speechssl.data.superb.sets import Cards, Order, Prepared, gathered, order, prepare, read_fields
from speechssl.data.utterances import Slot, Utterance
from speechssl.errors import InputError

VOICES = {
    "train": ("Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"),
    "dev": ("Aditi", "Amy", "Geraint", "Nicole"),
    "test": ("Brian", "Emma", "Raveena", "Russell"),
}
FOLDERS = {"train": "train", "dev": "valid", "test": "test"}
COUNTS = {"train": 13_084 * 8, "dev": 700 * 4, "test": 700 * 4}
PUNCTUATION = frozenset("?!.,;-")
TEXTS = "all.iob.snips.txt"
LAYOUT = f"give the folder SNIPS, which holds train, valid, test and {TEXTS}"


def prepare_audio_snips(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/sf and return its card.

    Raises InputError for a wrong folder, a damaged line, or counts that are not the published ones (unless `any_count`).
    """
    return prepare(order("audio-snips", source, out, ["sf"], LAYOUT, any_count), _read)


def parse(place: str, words: Sequence[str], tags: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
    """Text and slots. words, tags: of equal number, without the marks of beginning and end. place: for the message."""
    if len(words) != len(tags):
        raise InputError(f"{place} has {len(words)} words and {len(tags)} tags; prepare Audio SNIPS again")
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


def _read(order: Order) -> dict[str, Prepared]:
    utterances: dict[str, list[Utterance]] = {split: [] for split in FOLDERS}
    wanted = {(voice, FOLDERS[split]): split for split, voices in VOICES.items() for voice in voices}
    for place, (annotated, tagged, *_) in read_fields(order.find(TEXTS), 2, "\t"):
        name, *words = annotated.split()
        voice, _, rest = name.partition("-snips-")
        if split := wanted.get((voice, rest.partition("-")[0])):
            text, slots = parse(place, words[1:-1], tagged.split()[1:-1])
            path = order.source / FOLDERS[split] / f"{name}.wav"
            utterances[split].append(Utterance(name, str(path), 0.0, voice, text=text, slots=slots))
    return {"sf": Prepared("sf", gathered(order, utterances, COUNTS))}
