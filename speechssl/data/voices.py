"""Which voices training knew, and so what intervals draw (`stats.choose_units`).

A head of SUPERB knows the speakers of its set's `train.jsonl`; a system of spoken QA those of the
passages and questions of the corpus's split `train`, where the corpus has one. Other training (of an encoder on other recordings,
of systems on another corpus) is not counted: cards name data, not voices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from speechssl.data.records import Corpus, Passage, Question, data_hash, read_lines
from speechssl.data.superb.content import SILENCE
from speechssl.data.utterances import TOGETHER, Utterance, UtteranceSet
from speechssl.stats import Units, choose_units, unknown_voice

RECORDING = "recording"


def known_voices(root: Path | str) -> frozenset[str]:
    """The speakers of passages and questions of the split `train` of a corpus; none where it has no such split."""
    return _speakers(Path(root) / "train", data_hash(root, "train"))


@lru_cache(8)
def _speakers(folder: Path, manifests: str) -> frozenset[str]:
    """manifests: their hash, so that those which were written anew are read anew."""
    paths = [path for name in ("passages", "questions") if (path := folder / f"{name}.jsonl").is_file()]
    return frozenset(str(v["speaker"]) for path in paths for _, v in read_lines(path) if v.get("speaker"))


def voices_of(corpus: Corpus) -> dict[str, str]:
    """Who speaks in every passage and question, by its id; "" where that is not known, or training knew the voice."""
    known = known_voices(corpus.root)
    records: list[Passage | Question] = [*corpus.passages.values(), *corpus.questions]
    return {r.id: unknown_voice(r.speaker, known) for r in records}


def passage_units(corpus: Corpus, passages: Sequence[str]) -> Units:
    """What is drawn of questions, or of passages themselves. passages: of every item the id of its passage.

    The voice of a question is its passage's. Another voice asks, so that the data are cross-classified; the passage's is the larger
    source, for a reader searches the whole of it, and answers are spans of it.
    """
    voices = voices_of(corpus)
    return choose_units([voices[p] for p in passages], passages, "passage")


def speakers_of(utterance: Utterance) -> tuple[str, ...]:
    """Who speaks in a recording: one, all of a conversation or a mixture, or () where that is not known.

    A second of silence (Speech Commands) counts as a voice of its own.
    """
    if utterance.labels.get("keyword") == SILENCE and not utterance.speaker:
        return (f"nobody, {utterance.id}",)
    if utterance.turns:
        return tuple(sorted({turn.speaker for turn in utterance.turns}))
    return tuple(utterance.speaker.split(TOGETHER)) if utterance.speaker else ()


def unknown_speakers(data: UtteranceSet, utterances: Sequence[Utterance]) -> list[tuple[str, ...]]:
    """Who speaks in every recording; () where that is not known, or training knew one of the voices."""
    known = {voice for u in data.splits.get("train", ()) for voice in speakers_of(u)}
    found = [speakers_of(u) for u in utterances]
    return [() if known & set(voices) else voices for voices in found]


def recording_units(data: UtteranceSet, utterances: Sequence[Utterance], name: str = RECORDING) -> Units:
    """What is drawn of recordings, each of which is its own next larger unit. name: what such an item is called.

    A conversation or a mixture belongs to all its voices.
    """
    return choose_units(unknown_speakers(data, utterances), [u.id for u in utterances], name)
