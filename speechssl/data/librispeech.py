"""Prepare LibriSpeech for phoneme recognition, PR, and ASR (Panayotov et al., ICASSP 2015)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from speechssl.artifacts import hash_files
from speechssl.data.options import LibriSpeech
from speechssl.data.superb import Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)
from speechssl.errors import InputError

FOLDERS = {"train": "train-clean-100", "dev": "dev-clean", "test": "test-clean"}
COUNTS = {"train": 28_539, "dev": 2_703, "test": 2_620}
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
# ARPAbet with stress on the vowels, silence and spoken noise
PHONES = frozenset(
    [*CONSONANTS, *(vowel + stress for vowel in VOWELS for stress in "012"), "SIL", "SPN"]
)


def prepare_librispeech(o: LibriSpeech) -> Cards:
    """Write `o.out`/pr and `o.out`/asr and return their cards. Phones are chosen as by s3prl's
    downstream/ctc/corpus/libriphone.py.

    A line of a lexicon is a word and its phones, "THE DH AH0"; of several lines with a word the
    first counts.
    Raises as `prepare`, and InputError for an unknown phone, or a word in no lexicon.
    """
    pronunciations: dict[str, str] = {}
    settings = {}
    if "pr" in o.tasks:
        pronunciations = read_lexicons(o.lexicon)
        settings["pr"] = {"lexicons": hash_files(o.lexicon)}

    def read(preparation: Preparation) -> Mapping[str, Prepared]:
        utterances = {}
        for split, name in FOLDERS.items():
            utterances[split] = _read_transcripts(preparation.find(name))
        splits = gather_utterances(preparation, utterances, COUNTS)
        sets = {"asr": Prepared(splits)}
        if "pr" in o.tasks:
            phones = {split: _pronounce(spoken, pronunciations) for split, spoken in splits.items()}
            sets["pr"] = Prepared(phones)
        return sets

    return prepare(Preparation("librispeech", o, o.tasks, settings), read)


def _read_transcripts(folder: Path) -> list[Utterance]:
    """Read the utterances of all SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt, in order."""
    utterances = []
    for path in sorted(folder.glob("*/*/[!.]*.trans.txt")):
        speaker = path.parent.parent.name
        # "84-121123-0000 GO DO YOU HEAR"
        for _, (name, *words) in read_fields(path, 2):
            audio = str(path.parent / f"{name}.flac")
            text = " ".join(words)
            utterance = Utterance(name, audio, speaker=speaker, text=text)
            utterances.append(utterance)
    return utterances


def read_lexicons(paths: Sequence[Path]) -> dict[str, str]:
    """Read the lexicons: word -> its first pronunciation, phones separated by spaces. Raises
    InputError for a phone that is not one of PHONES."""
    pronunciations: dict[str, str] = {}
    for path in paths:
        for place, (word, *phones) in read_fields(path, 2):
            unknown = [phone for phone in phones if phone not in PHONES]
            if unknown:
                raise InputError(
                    f"{place} has the phone {unknown[0]!r}; give a lexicon of "
                    "ARPAbet with stress (AA0, AA1, AA2)"
                )
            pronunciations.setdefault(word, " ".join(phones))
    return pronunciations


def _pronounce(
    utterances: Sequence[Utterance], pronunciations: Mapping[str, str]
) -> list[Utterance]:
    """Replace the texts of utterances by their phones. Raises InputError for words without a
    pronunciation."""
    unknown: dict[str, str] = {}  # word without a pronunciation -> an utterance that has it
    for u in utterances:
        for word in u.text.split():
            if word not in pronunciations:
                unknown[word] = u.id
    if unknown:
        word, utterance_id = next(iter(unknown.items()))
        raise InputError(
            f"the lexicon lacks {len(unknown):,} words, such as {word!r} in {utterance_id}; give "
            "--lexicon a second file that has them "
            "(SUPERB takes s3prl's librispeech-lexicon-allothers-g2p.txt)"
        )
    pronounced = []
    for u in utterances:
        phones = " ".join(pronunciations[word] for word in u.text.split())
        pronounced.append(replace(u, text="", phones=phones))
    return pronounced
