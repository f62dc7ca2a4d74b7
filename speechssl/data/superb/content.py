"""SUPERB's sets about what is said, what is meant, and in which mood: PR, ASR, KS, QbE; IC, SF; ER.

**LibriSpeech** (Panayotov et al. 2015, openslr.org/12) for PR and ASR: train-clean-100, dev-clean, test-clean. Text is that of the
corpus, in capitals. Phones are those of SUPERB (s3prl `downstream/ctc/corpus/libriphone.py`): every word by its first
pronunciation in the lexicon, stress kept (AA0, AA1, ...: 69 phones), no silence. SUPERB joins a lexicon of 200,000 words
(`librispeech-lexicon-200k-g2p.txt`; openslr.org/11 has such a one, `librispeech-lexicon.txt`; that both give every word the same
first pronunciation is not checked) and s3prl's `librispeech-lexicon-allothers-g2p.txt` with the words it lacks. Counts: as in the
data card of SUPERB at Hugging Face (`superb`, asr).

**Speech Commands v1** (Warden, arXiv 1804.03209) for KS: ten keywords, `_unknown_` and `_silence_`. Splits are those of s3prl's
`downstream/speech_commands`: the hash of a speaker's name sends a word to train or dev (or to the test part, which is left out),
and the test is the archive `speech_commands_test_set_v0.01`, whose folders are the twelve classes. Silence: s3prl takes the six
recordings of `_background_noise_` both for train and for dev, crops a random second at every draw and draws all classes equally
often. Here their whole seconds are cut once, every tenth for dev and the others for train, so that no second is in both; training
draws all classes equally often, too. Counts: the data card has 51,094 (with the six recordings), 6,798 and 3,081.

**FSDD**, the Free Spoken Digit Dataset (Jackson, github.com/Jakobovski/free-spoken-digit-dataset), in the place of both KS and SID:
3,000 digits by six speakers, 8 kHz. The customary test split is the indices 0 to 4; 5 to 9 are dev here.

**QUESST 2014** (Anguera et al., MediaEval 2014; speech.fit.vutbr.cz/files/quesst14Database.tgz) for QbE: its English part. SUPERB
(s3prl `downstream/quesst14_dtw/dataset.py`) takes what `scoring/language_key_*.lst` calls nnenglish: of 560 and 555 queries 138
each, of 12,492 documents 2,438. Which documents hold a query stands in the LEXEME lines of the ground truth,
`scoring/groundtruth_quesst14_{dev,eval}/quesst14_{dev,eval}.rttm`; documents of other languages that hold it do not count. The
three numbers are from a public report of s3prl runs on the set; its own paper, which has the totals, was not at hand.

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

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, read_audio, write_flac
from speechssl.data import superb
from speechssl.data.prepare import begin_folder, write_lines
from speechssl.data.superb import (
    DOCUMENTS,
    SILENCE,
    SPLITS,
    Cards,
    Order,
    Prepared,
    Slot,
    Utterance,
    gathered,
    prepare,
    read_fields,
    to_record,
    wavs,
)
from speechssl.errors import InputError
from speechssl.io import hash_files, read_json, write_json

LIBRISPEECH = "give the folder LibriSpeech, which holds train-clean-100, dev-clean, test-clean"
LIBRISPEECH_COUNTS = {"train": 28_539, "dev": 2_703, "test": 2_620}
VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
PHONES = frozenset([*CONSONANTS, *(vowel + stress for vowel in VOWELS for stress in "012"), "SIL", "SPN"])


def prepare_librispeech(
    source: Path | str,
    out: Path | str,
    lexicon: Sequence[Path | str] = (),
    tasks: Sequence[str] = ("pr", "asr"),
    any_count: bool = False,
) -> Cards:
    """Write `out`/pr and `out`/asr and return their cards.

    lexicon: files of "WORD P H O N E S" a line; where several have a word the first is followed; needed for pr. Raises InputError
    for a wrong folder, counts that are not the published ones (unless `any_count`), an unknown task or phone, or a word in no
    lexicon.
    """
    superb.check_tasks("LibriSpeech", tasks, ("pr", "asr"))
    if "pr" in tasks and not lexicon:
        raise InputError("pr needs the phones of words; give --lexicon librispeech-lexicon.txt (openslr.org/11), or --tasks asr")
    paths = [Path(path) for path in lexicon]
    pronunciations = read_lexicons(paths) if "pr" in tasks else {}
    options = {"pr": {"lexicons": hash_files(paths)}} if "pr" in tasks else {}

    def read(order: Order) -> Mapping[str, Prepared]:
        folders = {"train": "train-clean-100", "dev": "dev-clean", "test": "test-clean"}
        found: dict[str, list[Utterance]] = {split: [] for split in folders}
        for split, name in folders.items():
            # lines of all SPEAKER-CHAPTER.trans.txt, in order: "84-121123-0000 GO DO YOU HEAR"
            for path in sorted(order.find(name).glob("*/*/[!.]*.trans.txt")):
                for _, (name, *words) in read_fields(path, 2):
                    audio, speaker = str(path.parent / f"{name}.flac"), path.parent.parent.name
                    found[split].append(Utterance(name, audio, 0.0, speaker, text=" ".join(words)))
        splits = gathered(order, found, LIBRISPEECH_COUNTS)
        made = {"asr": Prepared("asr", splits)}
        if "pr" in order.folders:
            made["pr"] = Prepared("pr", {split: _in_phones(some, pronunciations) for split, some in splits.items()})
        return made

    return prepare(Order("librispeech", Path(source), Path(out), tasks, LIBRISPEECH, any_count, options), read)


def read_lexicons(paths: Sequence[Path]) -> dict[str, str]:
    """Word -> phones separated by spaces: its first pronunciation. Raises InputError for a phone that is not one of PHONES."""
    found: dict[str, str] = {}
    for path in paths:
        for place, (word, *phones) in read_fields(path, 2):
            if strange := [phone for phone in phones if phone not in PHONES]:
                raise InputError(f"{place} has the phone {strange[0]!r}; give a lexicon of ARPAbet with stress (AA0, AA1, AA2)")
            found.setdefault(word, " ".join(phones))
    return found


def _in_phones(utterances: Sequence[Utterance], pronunciations: Mapping[str, str]) -> list[Utterance]:
    """Phones in place of the text."""
    unknown = {word: u.id for u in utterances for word in u.text.split() if word not in pronunciations}
    if unknown:
        word, where = next(iter(unknown.items()))
        raise InputError(
            f"the lexicon lacks {len(unknown):,} words, such as {word!r} in {where}; give --lexicon a second file that has them "
            "(SUPERB takes s3prl's librispeech-lexicon-allothers-g2p.txt)"
        )
    return [replace(u, text="", phones=" ".join(pronunciations[word] for word in u.text.split())) for u in utterances]


KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN = "_unknown_"
TRAINING, TEST, NOISE = "speech_commands_v0.01", "speech_commands_test_set_v0.01", "_background_noise_"
COMMANDS = f"give the folder that holds {TRAINING} and {TEST}, each unpacked into a folder of its name"
COMMANDS_COUNTS = {"train": 51_088, "dev": 6_798, "test": 3_081, "background recordings": 6}
DEV_EVERY = 10  # seconds of background


def prepare_speech_commands(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/ks, with the seconds of silence in its audio/, and return its card. Raises as `prepare`."""
    return prepare(Order("speech-commands", Path(source), Path(out), ["ks"], COMMANDS, any_count), _read_commands)


def split_of(name: str) -> str:
    """train, dev or test, by the speaker in the name of a file ("0a7c2a8d_nohash_0.wav"), as in the paper's own code."""
    digest, buckets = int(hashlib.sha1(re.sub(r"_nohash_.*$", "", name).encode()).hexdigest(), 16), 2**27 - 1
    percent = digest % (buckets + 1) * (100.0 / buckets)
    return "dev" if percent < 10 else "test" if percent < 20 else "train"


def _read_commands(order: Order) -> dict[str, Prepared]:
    root, tests = order.find(TRAINING), order.find(TEST)
    found: list[tuple[str, Utterance]] = []

    def take(split: str, path: Path, name: str, keyword: str) -> None:
        speaker = path.stem.split("_nohash_")[0] if "_nohash_" in path.stem and keyword != SILENCE else ""
        found.append((split, Utterance(name, str(path), 0.0, speaker, {"keyword": keyword})))

    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] not in "._"):
        for path in wavs(folder):
            if (split := split_of(path.name)) != "test":
                take(split, path, f"{folder.name}/{path.stem}", folder.name if folder.name in KEYWORDS else UNKNOWN)
    for keyword in (*KEYWORDS, UNKNOWN, SILENCE):
        for path in wavs(tests / keyword):
            take("test", path, f"test/{keyword}/{path.stem}", keyword)
    background = wavs(order.find(f"{TRAINING}/{NOISE}"))
    splits = gathered(order, superb.by_split(found, SPLITS), COMMANDS_COUNTS, {"background recordings": len(background)})
    seconds: dict[str, np.ndarray] = {}  # (16,000,): every whole second that is not digital silence, which no encoder is given
    for path in background:
        samples = read_audio(path)
        for second in range(len(samples) // SAMPLE_RATE):
            piece = samples[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE]
            if np.abs(piece).max() >= SILENT_PEAK:
                seconds[f"{path.stem}-{second:03d}"] = piece
    for number, name in enumerate(seconds):
        silent = Utterance(f"{SILENCE}/{name}", f"audio/{name}.flac", 1.0, labels={"keyword": SILENCE})
        splits["train" if number % DEV_EVERY else "dev"].append(silent)

    def cut(folder: Path) -> None:
        for name, samples in seconds.items():
            write_flac(folder / "audio" / f"{name}.flac", samples)

    return {"ks": Prepared("ks", splits, cut=cut)}


DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGIT = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")  # digit, speaker, index
LABELS: dict[str, Callable[[Utterance], dict[str, str]]] = {
    "ks": lambda utterance: {"keyword": utterance.text},
    "sid": lambda utterance: {"speaker": utterance.speaker},
}


def prepare_fsdd(source: Path | str, out: Path | str) -> dict[str, dict[str, Any]]:
    """Write `out`/audio (16 kHz) and the sets `out`/ks (ten digits) and `out`/sid (the speakers), and return their cards.

    source: the dataset, or its folder `recordings`. What was killed goes on. Raises InputError where there are no such recordings,
    one cannot be read, a split has none, or `out` holds something else.
    """
    source, out = Path(source), Path(out)
    folder = source / "recordings" if (source / "recordings").is_dir() else source
    paths = sorted(path for path in folder.iterdir() if DIGIT.fullmatch(path.name)) if folder.is_dir() else []
    if not paths:
        raise InputError(f"{source} has no recordings like 7_jackson_32.wav; give the folder of the Free Spoken Digit Dataset")
    made_from = {"corpus": "fsdd", "recordings": hash_files(paths)}
    begin_folder(out, made_from, "FSDD")
    splits: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
    for path in tqdm(paths, "resampling FSDD", unit="file"):
        digit, speaker, index = path.stem.split("_")
        samples, target = read_audio(path), out / "audio" / f"{path.stem}.flac"
        if not target.is_file():
            write_flac(target, samples)
        split = "test" if int(index) < 5 else "dev" if int(index) < 10 else "train"
        seconds, text = len(samples) / SAMPLE_RATE, DIGITS[int(digit)]
        splits[split].append(Utterance(path.stem, f"../audio/{target.name}", seconds, speaker, {}, text))
    if empty := [split for split, found in splits.items() if not found]:
        raise InputError(
            f"{folder} has no recordings for {empty[0]} (test: 0 to 4, dev: 5 to 9, train: the rest); give the whole dataset"
        )
    cards: dict[str, dict[str, Any]] = {}
    for task, labels in LABELS.items():
        card = out / task / "card.json"
        if not card.is_file():
            manifests = {split: out / task / f"{split}.jsonl" for split in SPLITS}
            for split, path in manifests.items():
                write_lines(path, [to_record(u) | {"labels": labels(u)} for u in splits[split]])
            hashes = {split: hash_files([path]) for split, path in manifests.items()}
            write_json(card, made_from | {"task": task, "manifests": hashes})
        cards[task] = read_json(card)
    return cards


ENGLISH = "nnenglish"
QUESST = "give the folder quesst14Database, which holds Audio, dev_queries, eval_queries and scoring"
QUESST_COUNTS = {DOCUMENTS: 2_438, "dev": 138, "test": 138}


def prepare_quesst14(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/qbe and return its card. Raises as `prepare`, and InputError for queries that no document holds."""
    return prepare(Order("quesst14", Path(source), Path(out), ["qbe"], QUESST, any_count), _read_quesst14)


def _read_quesst14(order: Order) -> dict[str, Prepared]:
    lists = {DOCUMENTS: "utterances", "dev": "dev", "test": "eval"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in lists}
    for split, name in lists.items():
        # lines such as "quesst14Database/Audio/quesst14_00001.wav nnenglish": the path below the folder, whatever that was called
        for _, (path, language, *_) in read_fields(order.find(f"scoring/language_key_{name}.lst"), 2):
            if language == ENGLISH:
                audio = order.source / path.partition("/")[2]
                utterances[split].append(Utterance(audio.stem, str(audio), 0.0))
    splits = gathered(order, utterances, QUESST_COUNTS)
    known = {u.id for u in splits[DOCUMENTS]}
    for split in ("dev", "test"):  # the queries, with the documents that hold them
        name = lists[split]
        truth = order.find(f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm")
        matches: dict[str, set[str]] = {query.id: set() for query in splits[split]}
        for _, fields in read_fields(truth, 1):
            if fields[0] == "LEXEME" and len(fields) > 5 and fields[5] in matches and fields[1] in known:
                matches[fields[5]].add(fields[1])  # LEXEME document channel start duration query
        if not any(matches.values()):
            raise InputError(f"{truth} has no query with documents that contain it; {order.layout}")
        splits[split] = [replace(query, matches=tuple(sorted(matches[query.id]))) for query in splits[split]]
    return {"qbe": Prepared("qbe", splits)}


TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}
FLUENT = "give the folder fluent_speech_commands_dataset, which holds wavs/ and data/ with " + ", ".join(TABLES.values())
FLUENT_COUNTS = {"train": 23_132, "dev": 3_118, "test": 3_793, "actions": 6, "objects": 14, "locations": 4}
INTENT = ("action", "object", "location")


def prepare_fluent_speech_commands(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/ic and return its card. Raises as `prepare`."""
    return prepare(Order("fluent-speech-commands", Path(source), Path(out), ["ic"], FLUENT, any_count), _read_fluent)


def _read_fluent(order: Order) -> dict[str, Prepared]:
    utterances: dict[str, list[Utterance]] = {split: [] for split in TABLES}
    for split, name in TABLES.items():
        for row in superb.read_table(order.find(f"data/{name}"), ("path", "speakerId", "transcription", *INTENT)):
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
    """Write `out`/sf and return its card. Raises as `prepare`."""
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
    """Write `out`/er/fold-1 to fold-5, a set each, and return their cards. Raises as `prepare`."""
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
        done[session] = superb.measured(labelled, f"IEMOCAP {session}")
    counts = {session: len(found) for session, (found, _) in done.items()}
    superb.check_counts(order, counts, IEMOCAP_COUNTS, [path for _, missing in done.values() for path in missing])
    folds = {}
    for folder, tested in zip(order.folders, IEMOCAP_COUNTS, strict=True):
        others = [u for session, (found, _) in done.items() if session != tested for u in found]
        drawn = torch.randperm(len(others), generator=torch.Generator().manual_seed(SEED)).tolist()
        shuffled, first = [others[index] for index in drawn], int((1 - DEV_SHARE) * len(others))
        folds[folder] = Prepared("er", {"train": shuffled[:first], "dev": shuffled[first:], "test": done[tested][0]})
    return folds
