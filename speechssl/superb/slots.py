"""Slots in what was said (SF): marked with a symbol before and after each value, as s3prl 0.4.18 marks them, and their two metrics.

"play B-artist madonna E-artist" is a text with its slots. Metrics: `s3prl/metric/slot_filling.py`, which says what a slot is by the
pattern below: a value lies between B-type and the next E-type of the same type, whatever stands between; markers in a value that
was recognised are taken out of it. A text is made of symbols: letters, "|" between words, and the markers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from speechssl.corpora.utterances import Slot
from speechssl.text import spelt

SEPARATOR = "|"
_SLOT = re.compile(r"B-(\S+) (.+?) E-\1")


def slot_symbols(text: str, slots: Sequence[Slot]) -> list[str]:
    """The symbols of a text with its slots. Raises ValueError where the text does not have their values in their order."""
    words, pieces, at = spelt(text).split(), list[list[str]](), 0
    for slot in slots:
        value = spelt(slot.value).split()
        first = _find(words, value, at)
        if first is None:
            raise ValueError(f"{slot.type} {slot.value!r} does not occur in {text!r} after the slots before it")
        name = "_".join(slot.type.split()) or "slot"
        pieces += [*map(list, words[at:first]), [f"B-{name}", *SEPARATOR.join(value), f"E-{name}"]]
        at = first + len(value)
    pieces += map(list, words[at:])
    return [symbol for i, piece in enumerate(pieces) for symbol in ([SEPARATOR, *piece] if i else piece)]


def marked_text(symbols: Sequence[str]) -> str:
    """A text with its slots from its symbols: spaces around the values as s3prl's encoder writes them."""
    spaced = (f"{s} " if s.startswith("B-") else f" {s}" if s.startswith("E-") else s.replace(SEPARATOR, " ") for s in symbols)
    return re.sub(" +", " ", "".join(spaced)).strip()


def slots_in(marked: str, recognised: bool) -> dict[str, list[str]]:
    """type -> values, in their order. recognised: markers are taken out of the values."""
    found: dict[str, list[str]] = {}
    for kind, value in _SLOT.findall(re.sub(" +", " ", marked)):
        found.setdefault(kind, []).append(_cleaned(value) if recognised else value)
    return found


def slot_type_f1(said: str, truth: str) -> float:
    """F1 of the types of one utterance's slots, each counted once; 1 where there are none in either."""
    types, wanted = set(slots_in(said, True)), set(slots_in(truth, False))
    if not types and not wanted:
        return 1.0
    return 2 * len(types & wanted) / (len(types) + len(wanted))


def slot_value_errors(said: str, truth: str) -> tuple[int, int]:
    """Edits and characters of the true slots' values; each is compared with the nearest of its type, or with nothing."""
    found, edits, characters = slots_in(said, True), 0, 0
    for kind, values in slots_in(truth, False).items():
        for value in values:
            edits += _nearest(value, found.get(kind, []))
            characters += len(value)
    return edits, characters


def _nearest(value: str, found: Sequence[str]) -> int:
    """s3prl takes nothing for the nearest where every one is a hundred times as long."""
    least = min((Levenshtein.distance(one, value) for one in found), default=len(value))
    return least if least < 100 * len(value) else len(value)


def _cleaned(value: str) -> str:
    return re.sub(r" E-\S+", "", re.sub(r"B-\S+ ", "", value))


def _find(words: Sequence[str], value: Sequence[str], at: int) -> int | None:
    """Where the words of a value begin, from a place on."""
    if not value:
        return None
    places = range(at, len(words) - len(value) + 1)
    return next((i for i in places if words[i : i + len(value)] == list(value)), None)
