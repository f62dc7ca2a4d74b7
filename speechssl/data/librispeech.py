"""Prepare LibriSpeech for PR and ASR (Panayotov et al., ICASSP 2015)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from speechssl.artifacts import hash_files
from speechssl.data.options import LibriSpeech
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)
from speechssl.errors import InputError

LAYOUT = "give the folder LibriSpeech, which holds train-clean-100, dev-clean, test-clean"
COUNTS = {"train": 28_539, "dev": 2_703, "test": 2_620}
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
PHONES = frozenset(
    [*CONSONANTS, *(vowel + stress for vowel in VOWELS for stress in "012"), "SIL", "SPN"]
)


def prepare_librispeech(o: LibriSpeech) -> Cards:
    """Write `o.out`/pr and `o.out`/asr and return their cards (phones as s3prl's
    downstream/ctc/corpus/libriphone.py).

    A lexicon has "WORD P H O N E S" a line; where several have a word the first is followed. Raises
    as `prepare`, and InputError for an unknown phone, or a word in no lexicon.
    """
    pronunciations = read_lexicons(o.lexicon) if "pr" in o.tasks else {}
    settings = {"pr": {"lexicons": hash_files(o.lexicon)}} if "pr" in o.tasks else {}

    def read(order: Order) -> Mapping[str, Prepared]:
        folders = {"train": "train-clean-100", "dev": "dev-clean", "test": "test-clean"}
        utterances: dict[str, list[Utterance]] = {split: [] for split in folders}
        for split, name in folders.items():
            # lines of all SPEAKER-CHAPTER.trans.txt, in order: "84-121123-0000 GO DO YOU HEAR"
            for path in sorted(order.find(name).glob("*/*/[!.]*.trans.txt")):
                speaker = path.parent.parent.name
                for _, (name, *words) in read_fields(path, 2):
                    audio, text = str(path.parent / f"{name}.flac"), " ".join(words)
                    utterances[split].append(Utterance(name, audio, 0.0, speaker, text=text))
        splits = gather_utterances(order, utterances, COUNTS)
        sets = {"asr": Prepared("asr", splits)}
        if "pr" in order.folders:
            phones = {s: _pronounce(of_split, pronunciations) for s, of_split in splits.items()}
            sets["pr"] = Prepared("pr", phones)
        return sets

    return prepare(Order("librispeech", o, o.tasks, LAYOUT, settings), read)


def read_lexicons(paths: Sequence[Path]) -> dict[str, str]:
    """Read the first pronunciation of every word, phones separated by spaces. Raises InputError for
    a phone that is not one of PHONES."""
    pronunciations: dict[str, str] = {}
    for path in paths:
        for place, (word, *phones) in read_fields(path, 2):
            strange = [phone for phone in phones if phone not in PHONES]
            if strange:
                raise InputError(
                    f"{place} has the phone {strange[0]!r}; give a lexicon of "
                    "ARPAbet with stress (AA0, AA1, AA2)"
                )
            pronunciations.setdefault(word, " ".join(phones))
    return pronunciations


def _pronounce(
    utterances: Sequence[Utterance], pronunciations: Mapping[str, str]
) -> list[Utterance]:
    """Put phones in the place of the text."""
    unknown = {
        word: u.id for u in utterances for word in u.text.split() if word not in pronunciations
    }
    if unknown:
        word, where = next(iter(unknown.items()))
        raise InputError(
            f"the lexicon lacks {len(unknown):,} words, such as {word!r} in {where}; give "
            "--lexicon a second file that has them "
            "(SUPERB takes s3prl's librispeech-lexicon-allothers-g2p.txt)"
        )
    return [
        replace(u, text="", phones=" ".join(pronunciations[word] for word in u.text.split()))
        for u in utterances
    ]
