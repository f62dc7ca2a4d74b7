"""LibriSpeech (Panayotov et al. 2015, openslr.org/12) for PR and ASR: train-clean-100, dev-clean, test-clean.

Text is that of the corpus, in capitals. Phones are those of SUPERB (s3prl `downstream/ctc/corpus/libriphone.py`): every word by its
first pronunciation in the lexicon, stress kept (AA0, AA1, ...: 69 phones), no silence. SUPERB joins a lexicon of
200,000 words (`librispeech-lexicon-200k-g2p.txt`; openslr.org/11 has such a one, `librispeech-lexicon.txt`; that both give
every word the same first pronunciation is not checked) and s3prl's `librispeech-lexicon-allothers-g2p.txt` with the words it lacks.
Counts: as in the data card of SUPERB at Hugging Face (`superb`, asr).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from speechssl.data.superb.sets import Cards, Order, Prepared, check_tasks, gathered, order, prepare, read_fields
from speechssl.data.utterances import Utterance
from speechssl.errors import InputError
from speechssl.io import hash_files

FOLDERS = {"train": "train-clean-100", "dev": "dev-clean", "test": "test-clean"}
COUNTS = {"train": 28_539, "dev": 2_703, "test": 2_620}
TASKS = ("pr", "asr")
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
PHONES = frozenset([*CONSONANTS, *(vowel + stress for vowel in VOWELS for stress in "012"), "SIL", "SPN"])
LAYOUT = f"give the folder LibriSpeech, which holds {', '.join(FOLDERS.values())}"


def prepare_librispeech(
    source: Path | str,
    out: Path | str,
    lexicons: Sequence[Path | str] = (),
    tasks: Sequence[str] = TASKS,
    any_count: bool = False,
) -> Cards:
    """Write `out`/pr and `out`/asr and return their cards.

    lexicons: "WORD P H O N E S" a line; where several have a word the first is followed; needed for pr. Raises InputError for a
    wrong folder, counts that are not the published ones (unless `any_count`), an unknown task or phone, or a word in no lexicon.
    """
    check_tasks("LibriSpeech", tasks, TASKS)
    if "pr" in tasks and not lexicons:
        raise InputError("pr needs the phones of words; give --lexicon librispeech-lexicon.txt (openslr.org/11), or --tasks asr")
    paths = [Path(path) for path in lexicons]
    pronunciations = read_lexicons(paths) if "pr" in tasks else {}
    options = {"pr": {"lexicons": hash_files(paths)}} if "pr" in tasks else {}
    wanted = order("librispeech", source, out, tasks, LAYOUT, any_count, **options)
    return prepare(wanted, lambda o: _read(o, pronunciations))


def read_lexicons(paths: Sequence[Path]) -> dict[str, str]:
    """Word -> phones separated by spaces: its first pronunciation. Raises InputError for a phone that is not one of PHONES."""
    found: dict[str, str] = {}
    for path in paths:
        for place, (word, *phones) in read_fields(path, 2):
            if strange := [phone for phone in phones if phone not in PHONES]:
                raise InputError(f"{place} has the phone {strange[0]!r}; give a lexicon of ARPAbet with stress (AA0, AA1, AA2)")
            found.setdefault(word, " ".join(phones))
    return found


def _read(order: Order, pronunciations: Mapping[str, str]) -> dict[str, Prepared]:
    splits = gathered(order, {split: _transcribed(order.find(name)) for split, name in FOLDERS.items()}, COUNTS)
    made = {"asr": Prepared("asr", splits)}
    if "pr" in order.folders:
        made["pr"] = Prepared("pr", {split: _spoken(found, pronunciations) for split, found in splits.items()})
    return {task: made[task] for task in order.folders}


def _transcribed(folder: Path) -> list[Utterance]:
    """The lines of all `SPEAKER-CHAPTER.trans.txt`, in order: "84-121123-0000 GO DO YOU HEAR"."""
    found = []
    for path in sorted(folder.glob("*/*/[!.]*.trans.txt")):
        for _, (name, *words) in read_fields(path, 2):
            found.append(Utterance(name, str(path.parent / f"{name}.flac"), 0.0, path.parent.parent.name, text=" ".join(words)))
    return found


def _spoken(utterances: Sequence[Utterance], pronunciations: Mapping[str, str]) -> list[Utterance]:
    """Phones in place of the text."""
    unknown = {word: u.id for u in utterances for word in u.text.split() if word not in pronunciations}
    if unknown:
        word, where = next(iter(unknown.items()))
        raise InputError(
            f"the lexicon lacks {len(unknown):,} words, such as {word!r} in {where}; give --lexicon a second file that has them "
            "(SUPERB takes s3prl's librispeech-lexicon-allothers-g2p.txt)"
        )
    return [replace(u, text="", phones=" ".join(pronunciations[word] for word in u.text.split())) for u in utterances]
