"""SUPERB's sets about what is meant, and in which mood: IC, SF and ER.

**Fluent Speech Commands** (Lugosch et al., arXiv 1904.03670; fluent.ai) for IC: an action, an object and a location each. Splits
are the corpus's own tables. Counts and classes: the data card of SUPERB at Hugging Face (`superb`, ic).

**Audio SNIPS** (Lai et al., arXiv 2011.06195) for SF: the SNIPS commands, spoken by sixteen synthetic voices. Voices and text as
s3prl's `downstream/ctc/snips.yaml` and `text.py` have them: eight US voices train, four others are dev and four more test; words
in capitals without punctuation, "&" is AND. The set is the prepared one that s3prl links (or what its
`preprocess/snips_prepare_data.sh` makes): train/, valid/, test/ and `all.iob.snips.txt`, where a line is
"Ivy-snips-train-7 BOS PLAY SOME JAZZ EOS<tab>O O O genre PlayMusic". Words of one slot type in a row are one slot; tags with B- and
I- are understood too. Counts are computed, not published anywhere we could read: 13,084, 700 and 700 commands of SNIPS times the
voices of the split.

**IEMOCAP** (Busso et al. 2008, sail.usc.edu/iemocap) for ER: neutral, happy (with excited), angry and sad in five folds. Fold i
tests on session i. Dev is 20 % of the others by the draw of s3prl's `downstream/emotion/expert.py` (torch's permutation for the
seed 0). s3prl draws from files in the order of `os.listdir`, which is another on every machine; here they are sorted, so dev is
the same everywhere but not the same recordings as in any one run of s3prl. A speaker is named after who speaks (Ses01F, Ses01M),
where s3prl names who wears the markers in the dialogue. Counts: the data card (`superb`, er).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speechssl.data.superb import Cards, Order, Prepared, check_counts, gathered, measured, prepare, read_fields, read_table
from speechssl.data.utterances import Slot, Utterance
from speechssl.errors import InputError

TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}
FLUENT = "give the folder fluent_speech_commands_dataset, which holds wavs/ and data/ with " + ", ".join(TABLES.values())
FLUENT_COUNTS = {"train": 23_132, "dev": 3_118, "test": 3_793, "actions": 6, "objects": 14, "locations": 4}
INTENT = ("action", "object", "location")


def prepare_fluent_speech_commands(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/ic and return its card.

    Raises InputError for a wrong folder or table, or counts that are not the published ones (unless `any_count`).
    """
    return prepare(Order("fluent-speech-commands", Path(source), Path(out), ["ic"], FLUENT, any_count), _read_fluent)


def _read_fluent(order: Order) -> dict[str, Prepared]:
    utterances: dict[str, list[Utterance]] = {split: [] for split in TABLES}
    for split, name in TABLES.items():
        for row in read_table(order.find(f"data/{name}"), ("path", "speakerId", "transcription", *INTENT)):
            path, labels = order.source / row["path"], {slot: row[slot] for slot in INTENT}
            utterances[split].append(Utterance(path.stem, str(path), 0.0, row["speakerId"], labels, row["transcription"]))
    classes = {f"{slot}s": len({u.labels[slot] for u in utterances["train"]}) for slot in INTENT}
    return {"ic": Prepared("ic", gathered(order, utterances, FLUENT_COUNTS, classes))}


VOICES = {
    "train": ("Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"),
    "dev": ("Aditi", "Amy", "Geraint", "Nicole"),
    "test": ("Brian", "Emma", "Raveena", "Russell"),
}
SNIPS_COUNTS = {"train": 13_084 * 8, "dev": 700 * 4, "test": 700 * 4}
PUNCTUATION = frozenset("?!.,;-")
SNIPS_TEXTS = "all.iob.snips.txt"
SNIPS = f"give the folder SNIPS, which holds train, valid, test and {SNIPS_TEXTS}"


def prepare_audio_snips(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/sf and return its card.

    Raises InputError for a wrong folder, a damaged line, or counts that are not the published ones (unless `any_count`).
    """
    return prepare(Order("audio-snips", Path(source), Path(out), ["sf"], SNIPS, any_count), _read_snips)


def parse_slots(place: str, words: Sequence[str], tags: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
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


def _read_snips(order: Order) -> dict[str, Prepared]:
    folders = {"train": "train", "dev": "valid", "test": "test"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in folders}
    wanted = {(voice, folders[split]): split for split, voices in VOICES.items() for voice in voices}
    for place, (annotated, tagged, *_) in read_fields(order.find(SNIPS_TEXTS), 2, "\t"):
        name, *words = annotated.split()
        voice, _, rest = name.partition("-snips-")
        if split := wanted.get((voice, rest.partition("-")[0])):
            text, slots = parse_slots(place, words[1:-1], tagged.split()[1:-1])
            path = order.source / folders[split] / f"{name}.wav"
            utterances[split].append(Utterance(name, str(path), 0.0, voice, text=text, slots=slots))
    return {"sf": Prepared("sf", gathered(order, utterances, SNIPS_COUNTS))}


EMOTIONS = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}  # of the corpus -> class
IEMOCAP_COUNTS = {"Session1": 1085, "Session2": 1023, "Session3": 1151, "Session4": 1031, "Session5": 1241}
IEMOCAP = "give the folder IEMOCAP_full_release, which holds Session1 to Session5, each with dialog/EmoEvaluation and sentences/wav"
DEV_SHARE, SEED = 0.2, 0


def prepare_iemocap(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/er/fold-1 to fold-5, a set each, and return their cards.

    Raises InputError for a wrong folder, or counts that are not the published ones (unless `any_count`).
    """
    folds = [f"er/fold-{number}" for number in range(1, 6)]
    return prepare(Order("iemocap", Path(source), Path(out), folds, IEMOCAP, any_count), _read_iemocap)


def _read_iemocap(order: Order) -> dict[str, Prepared]:
    import torch

    done: dict[str, tuple[list[Utterance], list[str]]] = {}
    for session in IEMOCAP_COUNTS:
        # lines such as "[6.2901 - 8.2357]\tSes01F_impro01_F000\tneu\t[2.5000, 2.5000, 2.5000]", of the four classes
        recordings, labelled = order.find(f"{session}/sentences/wav"), list[Utterance]()
        for path in sorted(order.find(f"{session}/dialog/EmoEvaluation").glob("[!.]*.txt")):
            for _, fields in read_fields(path, 1, "\t"):
                if fields[0].startswith("[") and len(fields) > 2 and fields[2] in EMOTIONS:
                    name = fields[1]  # SesNNX_dialogue_Ynnn: session NN, Y speaks
                    dialogue, _, turn = name.rpartition("_")
                    audio, labels = str(recordings / dialogue / f"{name}.wav"), {"emotion": EMOTIONS[fields[2]]}
                    labelled.append(Utterance(name, audio, 0.0, name[:5] + turn[:1], labels))
        done[session] = measured(labelled, f"IEMOCAP {session}")
    counts = {session: len(found) for session, (found, _) in done.items()}
    check_counts(order, counts, IEMOCAP_COUNTS, [path for _, missing in done.values() for path in missing])
    folds = {}
    for folder, tested in zip(order.folders, IEMOCAP_COUNTS, strict=True):
        others = [u for session, (found, _) in done.items() if session != tested for u in found]
        drawn = torch.randperm(len(others), generator=torch.Generator().manual_seed(SEED)).tolist()
        shuffled, first = [others[index] for index in drawn], int((1 - DEV_SHARE) * len(others))
        folds[folder] = Prepared("er", {"train": shuffled[:first], "dev": shuffled[first:], "test": done[tested][0]})
    return folds
