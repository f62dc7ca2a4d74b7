"""Prepare the published sets of SUPERB's tasks, read from their own folders.

Layouts, counts and their sources, and what differs from s3prl, are in data/NAME/README.md.
Recordings stay where they are: manifests have their absolute paths, and no audio is copied but what
has to be cut. Where a count is wrong, no folder stays.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import (
    CARD,
    CORPUS_RECORD,
    hash_files,
    read_json,
    read_text,
    stage,
    write_json,
    write_lines,
)
from speechssl.audio import SAMPLE_RATE, SILENT_PEAK, duration, read_audio, write_flac
from speechssl.data.files import read_csv
from speechssl.data.options import Fsdd, Libri2Mix, LibriSpeech, SuperbSet, VoxCeleb1
from speechssl.data.superb import (
    DOCUMENTS,
    SILENCE,
    SPLITS,
    TOGETHER,
    Slot,
    Trial,
    Turn,
    Utterance,
    format_sizes,
    to_record,
)
from speechssl.errors import InputError

VERSION = 1  # of what is written; part of the card
THREADS = 32  # headers at a time: opening a file is waiting, most of all on a network
Cards = dict[str, dict[str, Any]]  # folder below OUT -> its card


@dataclass(frozen=True)
class Order:
    """An order says what is to be prepared, from where, to where."""

    corpus: str  # the name of its verb
    o: SuperbSet
    folders: Sequence[str]  # below o.out: a task each
    layout: str  # the remedy where something is missing: "give the folder that holds ..."
    # folder -> what else decides its manifests
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.o.source.resolve()

    def find(self, *names: str) -> Path:
        """Find the first of these names below the source that exists. Raises InputError where none
        does."""
        for name in names:
            if (self.source / name).exists():
                return self.source / name
        raise InputError(f"{self.source / names[0]} does not exist; {self.layout}")


@dataclass(frozen=True)
class Prepared:
    """The data of a task, read but not written."""

    task: str
    splits: Mapping[str, Sequence[Utterance]]  # manifest -> its lines
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)  # split -> its trials
    cut: Callable[[Path], None] | None = None  # writes into the folder what had to be cut


Read = Callable[[Order], Mapping[str, Prepared]]


def prepare(order: Order, read: Read) -> Cards:
    """Read the set and write its manifests, unless they are there, and return the cards.

    read: reads the data of every folder of the order. Raises InputError for a wrong folder, a
    damaged file, counts that are not the published ones (unless `any_count`), and, before anything
    is read, where `out` holds something else.
    """
    if not order.source.is_dir():
        raise InputError(f"{order.source} is not a folder; {order.layout}")
    shared = {
        "corpus": order.corpus,
        "version": VERSION,
        "source": str(order.source),
        "any_count": order.o.any_count,
    }
    settings = {folder: shared | dict(order.settings.get(folder, {})) for folder in order.folders}
    with ExitStack() as stack:
        steps = {}
        for folder in order.folders:
            place = stage(order.o.out / folder, settings[folder], record=CORPUS_RECORD)
            steps[folder] = stack.enter_context(place)
        sets = {} if all(step.done for step in steps.values()) else read(order)
        for prepared in sets.values():
            for split, utterances in prepared.splits.items():
                if not utterances:
                    raise InputError(
                        f"{order.source} has no utterance of {prepared.task} for "
                        f"{split}; {order.layout}"
                    )
        for folder, step in steps.items():
            if step.done:
                continue
            out, prepared = order.o.out / folder, sets[folder]
            if prepared.cut:
                prepared.cut(out)
            for split, utterances in prepared.splits.items():
                write_lines(out / f"{split}.jsonl", map(to_record, utterances))
            for split, trials in prepared.trials.items():
                write_lines(out / f"{split}.trials.jsonl", map(asdict, trials))
            hours = {
                split: round(sum(u.seconds for u in utterances) / 3600, 3)
                for split, utterances in prepared.splits.items()
            }
            hashes = {path.stem: hash_files([path]) for path in sorted(out.glob("[!.]*.jsonl"))}
            facts = {
                "task": prepared.task,
                "sizes": sizes(prepared.splits),
                "hours": hours,
                "manifests": hashes,
            }
            step.finish(settings[folder] | facts)
        for folder, step in steps.items():
            print(f"{order.o.out / folder}: {format_sizes(step.card)} recordings")
        return {folder: step.card for folder, step in steps.items()}


def published(
    corpus: str, folders: Sequence[str], layout: str
) -> Callable[[Read], Callable[[SuperbSet], Cards]]:
    """Decorate a function that reads a set: the result prepares it and returns the cards of its
    folders. Raises as `prepare` does."""

    def decorate(read: Read) -> Callable[[SuperbSet], Cards]:
        def prepare_set(o: SuperbSet) -> Cards:
            return prepare(Order(corpus, o, folders, layout), read)

        # not functools.wraps, with which `help` would show the arguments of `read`
        prepare_set.__name__, prepare_set.__doc__ = read.__name__, read.__doc__
        return prepare_set

    return decorate


def measure_utterances(
    utterances: Iterable[Utterance], what: str
) -> tuple[list[Utterance], list[str]]:
    """Measure utterances whose `audio` is absolute: return them with their seconds, and the
    recordings (and `sources`) that do not exist.

    what: for the progress bar. A recording that is damaged raises InputError.
    """

    def measure(utterance: Utterance) -> float | str:
        """Return the seconds, or the path that does not exist."""
        for path in (utterance.audio, *utterance.sources):
            if not Path(path).is_file():
                return path
        seconds = duration(utterance.audio)
        if seconds <= 0:
            raise InputError(
                f"the audio file {utterance.audio} holds no samples; copy or download it again"
            )
        return seconds

    utterances = list(utterances)
    with ThreadPoolExecutor(THREADS) as pool:
        bar = tqdm(
            pool.map(measure, utterances),
            f"measuring {what}",
            len(utterances),
            unit="file",
            mininterval=1,
            leave=False,
        )
        results = list(bar)
    with_seconds: list[Utterance] = []
    missing: list[str] = []
    for utterance, result in zip(utterances, results, strict=True):
        if isinstance(result, str):
            missing.append(result)
        else:
            with_seconds.append(replace(utterance, seconds=result))
    return with_seconds, missing


def check_counts(
    order: Order,
    counts: Mapping[str, int],
    expected: Mapping[str, int],
    missing: Sequence[str] = (),
) -> None:
    """Compare the counts with the published ones. missing: recordings that should have been there.

    Raises InputError where a number differs; with `any_count` that is a warning on stderr.
    """
    wrong = [
        (f"{counts.get(name, 0):,} {name} and not {n:,}")
        for name, n in expected.items()
        if counts.get(name, 0) != n
    ]
    if not wrong:
        return
    lost = f", where {missing[0]} is missing" if missing else ""
    problem = f"{order.source} has {', '.join(wrong)} as published{lost}"
    if not order.o.any_count:
        raise InputError(
            f"{problem}; unpack {order.corpus} again, or give --any-count to use it as it is"
        )
    tqdm.write(f"warning: {problem}", file=sys.stderr)


def sizes(splits: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    return {split: len(utterances) for split, utterances in splits.items()}


def group_by_split(pairs: Iterable[tuple[str, Utterance]]) -> dict[str, list[Utterance]]:
    """Sort utterances into SPLITS, all of which are there."""
    sorted_in: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
    for split, utterance in pairs:
        sorted_in[split].append(utterance)
    return sorted_in


def gather_utterances(
    order: Order,
    utterances: Mapping[str, Iterable[Utterance]],
    expected: Mapping[str, int],
    others: Mapping[str, int] | None = None,
) -> dict[str, list[Utterance]]:
    """Measure the utterances of every split and check their counts. others: further things that
    were counted."""
    splits: dict[str, list[Utterance]] = {}
    missing: list[str] = []
    for split, of_split in utterances.items():
        splits[split], lost = measure_utterances(of_split, f"{order.corpus} {split}")
        missing += lost
    check_counts(order, sizes(splits) | dict(others or {}), expected, missing)
    return splits


def read_fields(
    path: Path, least: int, separator: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield (place, fields) of every line that is not empty. separator: None is white space; least:
    fields a line must have.

    Raises InputError for a file that cannot be read or a line with fewer fields.
    """
    for number, line in enumerate(read_text(path, "unpack the corpus again").split("\n"), 1):
        if not line.strip():
            continue
        fields = line.strip().split(separator)
        if len(fields) < least:
            raise InputError(
                f"{path}:{number} has {len(fields)} fields instead of {least}; "
                "unpack the corpus again"
            )
        yield f"{path}:{number}", fields


def number_of(text: str, place: str) -> float:
    """Parse a number. Raises InputError for a text that is none."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{place} has {text!r} instead of a number; make the file again") from None


def wavs(folder: Path) -> list[Path]:
    """List the WAV files of a folder in order, without those that macOS leaves behind
    (`._x.wav`)."""
    return sorted(path for path in folder.glob("*.wav") if not path.name.startswith("."))


# ---- content, meaning and mood: PR, ASR, KS, QbE; IC, SF; ER

LIBRISPEECH = "give the folder LibriSpeech, which holds train-clean-100, dev-clean, test-clean"
LIBRISPEECH_COUNTS = {"train": 28_539, "dev": 2_703, "test": 2_620}
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
        splits = gather_utterances(order, utterances, LIBRISPEECH_COUNTS)
        sets = {"asr": Prepared("asr", splits)}
        if "pr" in order.folders:
            phones = {s: _pronounce(of_split, pronunciations) for s, of_split in splits.items()}
            sets["pr"] = Prepared("pr", phones)
        return sets

    return prepare(Order("librispeech", o, o.tasks, LIBRISPEECH, settings), read)


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


KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
UNKNOWN = "_unknown_"
TRAINING = "speech_commands_v0.01"
TEST = "speech_commands_test_set_v0.01"
NOISE = "_background_noise_"
COMMANDS = (
    f"give the folder that holds {TRAINING} and {TEST}, each unpacked into a folder of its name"
)
COMMANDS_COUNTS = {"train": 51_088, "dev": 6_798, "test": 3_081, "background recordings": 6}
DEV_EVERY = 10  # seconds of background


def split_of(name: str) -> str:
    """Choose train, dev or test by the speaker in the name of a file ("0a7c2a8d_nohash_0.wav"), as
    the paper's code and s3prl have it."""
    speaker = re.sub(r"_nohash_.*$", "", name)
    digest = int(hashlib.sha1(speaker.encode()).hexdigest(), 16)
    buckets = 2**27 - 1
    percent = digest % (buckets + 1) * (100.0 / buckets)
    return "dev" if percent < 10 else "test" if percent < 20 else "train"


@published("speech-commands", ["ks"], COMMANDS)
def prepare_speech_commands(order: Order) -> dict[str, Prepared]:
    """Read ks, with seconds of the background noise as silence in its audio/ (Speech Commands v1:
    Warden, arXiv 1804.03209)."""
    root, tests = order.find(TRAINING), order.find(TEST)
    pairs: list[tuple[str, Utterance]] = []

    def add(split: str, path: Path, name: str, keyword: str) -> None:
        speaker, mark, _ = path.stem.partition("_nohash_")
        if not mark or keyword == SILENCE:
            speaker = ""
        pairs.append((split, Utterance(name, str(path), 0.0, speaker, {"keyword": keyword})))

    for folder in sorted(root.iterdir()):
        if not folder.is_dir() or folder.name[0] in "._":
            continue
        keyword = folder.name if folder.name in KEYWORDS else UNKNOWN
        for path in wavs(folder):
            split = split_of(path.name)
            if split != "test":
                add(split, path, f"{folder.name}/{path.stem}", keyword)
    for keyword in (*KEYWORDS, UNKNOWN, SILENCE):
        for path in wavs(tests / keyword):
            add("test", path, f"test/{keyword}/{path.stem}", keyword)
    background = wavs(order.find(f"{TRAINING}/{NOISE}"))
    others = {"background recordings": len(background)}
    splits = gather_utterances(order, group_by_split(pairs), COMMANDS_COUNTS, others)
    # (16,000,): every whole second that is not digital silence, which no encoder is given
    seconds: dict[str, np.ndarray] = {}
    for path in background:
        samples = read_audio(path)
        for second in range(len(samples) // SAMPLE_RATE):
            piece = samples[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE]
            if np.abs(piece).max() >= SILENT_PEAK:
                seconds[f"{path.stem}-{second:03d}"] = piece
    for number, name in enumerate(seconds):
        silent = Utterance(
            f"{SILENCE}/{name}", f"audio/{name}.flac", 1.0, labels={"keyword": SILENCE}
        )
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


def prepare_fsdd(o: Fsdd) -> Cards:
    """Write `o.out`/audio (16 kHz) and the sets `o.out`/ks (ten digits) and `o.out`/sid (the
    speakers), and return their cards.

    The Free Spoken Digit Dataset (Jackson, github.com/Jakobovski/free-spoken-digit-dataset): its
    customary test split is the indices 0 to 4; 5 to 9 are dev here. What was killed goes on. Raises
    InputError where there are no such recordings, one cannot be read, a split has none, or `o.out`
    holds something else.
    """
    source, out = o.source, o.out
    folder = source / "recordings" if (source / "recordings").is_dir() else source
    paths = (
        sorted(path for path in folder.iterdir() if DIGIT.fullmatch(path.name))
        if folder.is_dir()
        else []
    )
    if not paths:
        raise InputError(
            f"{source} has no recordings like 7_jackson_32.wav; give the folder of "
            "the Free Spoken Digit Dataset"
        )
    where: dict[Path, str] = {}
    for path in paths:
        index = int(path.stem.rpartition("_")[2])
        where[path] = "test" if index < 5 else "dev" if index < 10 else "train"
    empty = [split for split in SPLITS if split not in where.values()]
    if empty:
        raise InputError(
            f"{folder} has no recordings for {empty[0]} (test: 0 to 4, dev: 5 to 9, train: the "
            "rest); give the whole dataset"
        )
    made_from = {"corpus": "fsdd", "recordings": hash_files(paths)}
    with stage(out, made_from, record=CORPUS_RECORD, card=f"{[*LABELS][-1]}/{CARD}") as step:
        if not step.done:
            _write_fsdd(out, where, made_from)
    print(f"{out}: {' and '.join(LABELS)}")
    return {task: read_json(out / task / CARD) for task in LABELS}


def _write_fsdd(out: Path, where: Mapping[Path, str], made_from: Mapping[str, Any]) -> None:
    """Resample the recordings and write the manifests. where: recording -> its split."""
    # all, before one is written
    recordings = {path: read_audio(path) for path in tqdm(where, "resampling FSDD", unit="file")}
    splits: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
    for path, samples in recordings.items():
        digit, speaker, _ = path.stem.split("_")
        target = out / "audio" / f"{path.stem}.flac"
        if not target.is_file():
            write_flac(target, samples)
        utterance = Utterance(
            id=path.stem,
            audio=f"../audio/{target.name}",
            seconds=len(samples) / SAMPLE_RATE,
            speaker=speaker,
            text=DIGITS[int(digit)],
        )
        splits[where[path]].append(utterance)
    for task, labels in LABELS.items():
        manifests = {split: out / task / f"{split}.jsonl" for split in SPLITS}
        for split, path in manifests.items():
            write_lines(path, [to_record(u) | {"labels": labels(u)} for u in splits[split]])
        hashes = {split: hash_files([path]) for split, path in manifests.items()}
        write_json(out / task / CARD, {**made_from, "task": task, "manifests": hashes})


ENGLISH = "nnenglish"
QUESST = (
    "give the folder quesst14Database, which holds Audio, dev_queries, eval_queries and scoring"
)
QUESST_COUNTS = {DOCUMENTS: 2_438, "dev": 138, "test": 138}


@published("quesst14", ["qbe"], QUESST)
def prepare_quesst14(order: Order) -> dict[str, Prepared]:
    """Read qbe: the English part of QUESST 2014 (Anguera et al., MediaEval 2014). Raises InputError
    for queries that no document holds."""
    lists = {DOCUMENTS: "utterances", "dev": "dev", "test": "eval"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in lists}
    for split, name in lists.items():
        # lines such as "quesst14Database/Audio/quesst14_00001.wav nnenglish": the path below the
        # folder, whatever that was called
        for _, (path, language, *_) in read_fields(
            order.find(f"scoring/language_key_{name}.lst"), 2
        ):
            if language == ENGLISH:
                audio = order.source / path.partition("/")[2]
                utterances[split].append(Utterance(audio.stem, str(audio), 0.0))
    splits = gather_utterances(order, utterances, QUESST_COUNTS)
    document_ids = {u.id for u in splits[DOCUMENTS]}
    for split in ("dev", "test"):  # the queries, with the documents that hold them
        name = lists[split]
        truth = order.find(f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm")
        matches: dict[str, set[str]] = {u.id: set() for u in splits[split]}
        for _, fields in read_fields(truth, 1):
            # LEXEME document channel start duration query
            if fields[0] != "LEXEME" or len(fields) <= 5:
                continue
            document, query = fields[1], fields[5]
            if query in matches and document in document_ids:
                matches[query].add(document)
        if not any(matches.values()):
            raise InputError(f"{truth} has no query with documents that contain it; {order.layout}")
        splits[split] = [replace(u, matches=tuple(sorted(matches[u.id]))) for u in splits[split]]
    return {"qbe": Prepared("qbe", splits)}


TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}
FLUENT = (
    "give the folder fluent_speech_commands_dataset, which holds wavs/ and data/ with "
) + ", ".join(TABLES.values())
FLUENT_COUNTS = {
    "train": 23_132,
    "dev": 3_118,
    "test": 3_793,
    "actions": 6,
    "objects": 14,
    "locations": 4,
}
INTENT = ("action", "object", "location")


@published("fluent-speech-commands", ["ic"], FLUENT)
def prepare_fluent_speech_commands(order: Order) -> dict[str, Prepared]:
    """Read ic (Lugosch et al., arXiv 1904.03670)."""
    utterances: dict[str, list[Utterance]] = {split: [] for split in TABLES}
    for split, name in TABLES.items():
        table = order.find(f"data/{name}")
        for number, row in enumerate(read_csv(table), 2):
            for column in ("path", "speakerId", "transcription", *INTENT):
                if column not in row:
                    raise InputError(f"{table}:{number} has no {column}; unpack the corpus again")
            path = order.source / row["path"]
            speaker, text = row["speakerId"], row["transcription"]
            labels = {slot: row[slot] for slot in INTENT}
            utterances[split].append(Utterance(path.stem, str(path), 0.0, speaker, labels, text))
    classes = {f"{slot}s": len({u.labels[slot] for u in utterances["train"]}) for slot in INTENT}
    return {"ic": Prepared("ic", gather_utterances(order, utterances, FLUENT_COUNTS, classes))}


SNIPS_VOICES = {
    "train": ("Ivy", "Joanna", "Joey", "Justin", "Kendra", "Kimberly", "Matthew", "Salli"),
    "dev": ("Aditi", "Amy", "Geraint", "Nicole"),
    "test": ("Brian", "Emma", "Raveena", "Russell"),
}
SNIPS_COUNTS = {"train": 13_084 * 8, "dev": 700 * 4, "test": 700 * 4}
PUNCTUATION = frozenset("?!.,;-")
SNIPS_TEXTS = "all.iob.snips.txt"
SNIPS = f"give the folder SNIPS, which holds train, valid, test and {SNIPS_TEXTS}"


def parse_slots(
    place: str, words: Sequence[str], tags: Sequence[str]
) -> tuple[str, tuple[Slot, ...]]:
    """Parse the text and the slots of an utterance. words, tags: of equal number, without the marks
    of beginning and end. place: for the message."""
    if len(words) != len(tags):
        raise InputError(
            f"{place} has {len(words)} words and {len(tags)} tags; prepare Audio SNIPS again"
        )
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


@published("audio-snips", ["sf"], SNIPS)
def prepare_audio_snips(order: Order) -> dict[str, Prepared]:
    """Read sf (Lai et al., arXiv 2011.06195)."""
    folders = {"train": "train", "dev": "valid", "test": "test"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in folders}
    splits: dict[tuple[str, str], str] = {}
    for split, voices in SNIPS_VOICES.items():
        splits |= {(voice, folders[split]): split for voice in voices}
    for place, (annotated, tagged, *_) in read_fields(order.find(SNIPS_TEXTS), 2, "\t"):
        name, *words = annotated.split()
        voice, _, rest = name.partition("-snips-")
        key = (voice, rest.partition("-")[0])
        if key not in splits:
            continue
        text, slots = parse_slots(place, words[1:-1], tagged.split()[1:-1])
        path = order.source / folders[splits[key]] / f"{name}.wav"
        utterance = Utterance(name, str(path), 0.0, voice, text=text, slots=slots)
        utterances[splits[key]].append(utterance)
    return {"sf": Prepared("sf", gather_utterances(order, utterances, SNIPS_COUNTS))}


# of the corpus -> class
EMOTIONS = {"neu": "neu", "hap": "hap", "exc": "hap", "ang": "ang", "sad": "sad"}
IEMOCAP_COUNTS = {
    "Session1": 1085,
    "Session2": 1023,
    "Session3": 1151,
    "Session4": 1031,
    "Session5": 1241,
}
IEMOCAP = (
    "give the folder IEMOCAP_full_release, which holds Session1 to Session5, each with "
    "dialog/EmoEvaluation and sentences/wav"
)
DEV_SHARE, SEED = 0.2, 0


@published("iemocap", [f"er/fold-{number}" for number in range(1, 6)], IEMOCAP)
def prepare_iemocap(order: Order) -> dict[str, Prepared]:
    """Read er in five folds (Busso et al. 2008), a set each: fold i tests on session i, dev is
    drawn from the others."""
    import torch

    labelled: dict[str, list[Utterance]] = {session: [] for session in IEMOCAP_COUNTS}
    for session, utterances in labelled.items():
        # lines such as "[6.2901 - 8.2357]\tSes01F_impro01_F000\tneu\t[2.5000, 2.5000, 2.5000]", of
        # the four classes
        recordings = order.find(f"{session}/sentences/wav")
        for path in sorted(order.find(f"{session}/dialog/EmoEvaluation").glob("[!.]*.txt")):
            for _, fields in read_fields(path, 1, "\t"):
                if fields[0].startswith("[") and len(fields) > 2 and fields[2] in EMOTIONS:
                    name = fields[1]  # SesNNX_dialogue_Ynnn: session NN, Y speaks
                    dialogue, _, turn = name.rpartition("_")
                    audio = str(recordings / dialogue / f"{name}.wav")
                    speaker, labels = name[:5] + turn[:1], {"emotion": EMOTIONS[fields[2]]}
                    utterances.append(Utterance(name, audio, 0.0, speaker, labels))
    sessions = gather_utterances(order, labelled, IEMOCAP_COUNTS)
    folds = {}
    for folder, tested in zip(order.folders, IEMOCAP_COUNTS, strict=True):
        others: list[Utterance] = []
        for session, of_session in sessions.items():
            if session != tested:
                others += of_session
        generator = torch.Generator().manual_seed(SEED)
        shuffled = [others[i] for i in torch.randperm(len(others), generator=generator).tolist()]
        first = int((1 - DEV_SHARE) * len(others))
        splits = {"train": shuffled[:first], "dev": shuffled[first:], "test": sessions[tested]}
        folds[folder] = Prepared("er", splits)
    return folds


# ---- speakers and mixtures: SID, ASV, SD, SS, SE

SID_COUNTS = {"train": 138_361, "dev": 6_904, "test": 8_251, "speakers": 1_251}
ASV_COUNTS = {
    "recordings to train on": 148_642,
    "training speakers": 1_211,
    "test speakers": 40,
    "trials": 37_720,
}
MIN_SECONDS = 2.0  # of a recording that trains ASV
VOXCELEB1 = (
    "give the folder that holds dev/wav, test/wav, iden_split.txt and (for asv) veri_test.txt"
)


def prepare_voxceleb1(o: VoxCeleb1) -> Cards:
    """Write `o.out`/sid and `o.out`/asv and return their cards (Nagrani et al., arXiv
    1706.08612). Raises as `prepare`."""
    return prepare(Order("voxceleb1", o, o.tasks, VOXCELEB1), _read_voxceleb1)


def _voxceleb_id(name: str) -> str:
    return name.removesuffix(".wav").replace("/", "-")


def _read_voxceleb1(order: Order) -> dict[str, Prepared]:
    # (split of SID, recording); lines such as "1 id10001/1zcIwhmdeo4/00001.wav"
    listed: list[tuple[str, str]] = []
    splits_by_code = {"1": "train", "2": "dev", "3": "test"}
    path = order.find("iden_split.txt", "meta/iden_split.txt")
    for place, (code, name, *_) in read_fields(path, 2):
        if code not in splits_by_code:
            raise InputError(
                f"{place} has the split {code!r}, which is not 1, 2 or 3; download "
                "iden_split.txt again"
            )
        listed.append((splits_by_code[code], name))
    trials: list[Trial] = []
    # lines such as "1 id10270/5r0dWxy17C8/00001.wav id10270/5sJomL_D0_g/00001.wav"
    if "asv" in order.folders:
        names = ("veri_test.txt", "voxceleb1_test_v2.txt")
        path = order.find(*names, *(f"meta/{name}" for name in names))
        for _, (same, one, other, *_) in read_fields(path, 3):
            trials.append(Trial(_voxceleb_id(one), _voxceleb_id(other), same == "1"))
    # a speaker is in dev/wav, in test/wav, or where somebody has put all of them together, in wav
    roots = [order.source / name for name in ("dev/wav", "test/wav", "wav")]
    roots = [root for root in roots if root.is_dir()]
    if not roots:
        order.find("dev/wav")  # raises
    homes = {folder.name: folder for root in roots for folder in root.iterdir()}
    utterances = []
    for _, name in listed:
        speaker, _, rest = name.partition("/")
        audio = homes.get(speaker, roots[0] / speaker) / rest
        utterances.append(Utterance(_voxceleb_id(name), str(audio), 0.0, speaker))
    everything, missing = measure_utterances(utterances, "VoxCeleb1")
    by_id = {u.id: u for u in everything}
    recordings = [
        (split, by_id[u.id])
        for (split, _), u in zip(listed, utterances, strict=True)
        if u.id in by_id
    ]
    sets: dict[str, Prepared] = {}
    if "sid" in order.folders:
        splits = group_by_split(
            (split, replace(u, labels={"speaker": u.speaker})) for split, u in recordings
        )
        speakers = len({u.speaker for u in splits["train"]})
        check_counts(order, sizes(splits) | {"speakers": speakers}, SID_COUNTS, missing)
        sets["sid"] = Prepared("sid", splits)
    if "asv" in order.folders:
        sets["asv"] = _verification(order, recordings, by_id, trials)
    return sets


def _verification(
    order: Order,
    listed: Sequence[tuple[str, Utterance]],
    by_id: Mapping[str, Utterance],
    trials: Sequence[Trial],
) -> Prepared:
    """Choose the recordings that train ASV, and the trials. listed: (split of SID, recording);
    by_id: recordings."""
    tested = {name.partition("-")[0] for trial in trials for name in (trial.first, trial.second)}
    untested = [(split, u) for split, u in listed if u.speaker not in tested]
    usable_trials = [trial for trial in trials if trial.first in by_id and trial.second in by_id]
    counts = {
        "recordings to train on": len(untested),
        "training speakers": len({u.speaker for _, u in untested}),
        "test speakers": len(tested),
        "trials": len(usable_trials),
    }
    check_counts(order, counts, ASV_COUNTS)
    train = [u for split, u in untested if split != "dev" and u.seconds >= MIN_SECONDS]
    dev = [u for split, u in untested if split == "dev"]
    names = {name for trial in usable_trials for name in (trial.first, trial.second)}
    test = [by_id[name] for name in sorted(names)]
    all_trials = {"dev": dev_trials(dev), "test": usable_trials}
    for split, of_split in all_trials.items():
        if {trial.same for trial in of_split} != {True, False}:
            raise InputError(
                f"{order.source} does not have both kinds of asv trials for {split}, of one "
                "speaker and of two; use more of it"
            )
    return Prepared("asv", {"train": train, "dev": dev, "test": test}, all_trials)


def dev_trials(utterances: Sequence[Utterance]) -> list[Trial]:
    """Draw a trial of the same speaker (where there is a second recording) and one of two speakers
    for every recording; none twice.

    Ids are SPEAKER-VIDEO-NUMBER; another video is preferred, for in one video the channel gives the
    speaker away.
    """
    rng = Random(0)
    trials: dict[tuple[str, str], Trial] = {}
    of_speaker: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        of_speaker.setdefault(utterance.speaker, []).append(utterance)
    for one in utterances:
        same_speaker = [u for u in of_speaker[one.speaker] if u.id != one.id]
        video = one.id.rpartition("-")[0]
        other_videos = [u for u in same_speaker if u.id.rpartition("-")[0] != video]
        other_speaker = rng.choice(sorted(set(of_speaker) - {one.speaker}) or [""])
        for choices in (other_videos or same_speaker, of_speaker.get(other_speaker, [])):
            if choices:
                partner = rng.choice(choices)
                first, second = sorted((one.id, partner.id))
                trials[first, second] = Trial(first, second, partner.speaker == one.speaker)
    return list(trials.values())


PARTS = {"train": "train-100", "dev": "dev", "test": "test"}  # of wav16k/min
SD_COUNTS = {"train": 13_900, "dev": 3_000, "test": 3_000}
SS_COUNTS = {"train": 13_900, "dev": 1_000, "test": 3_000}
DEV_SIZE, DEV_SEED = 1_000, 7
LIBRI2MIX = (
    "give the folder Libri2Mix, which holds wav16k/min (ss), and --diarization what "
    "prepare_diarization.py wrote (sd)"
)


def prepare_libri2mix(o: Libri2Mix) -> Cards:
    """Write `o.out`/sd and `o.out`/ss and return their cards (Libri2Mix: Cosentino et al., arXiv
    2005.11262).

    o.diarization has train, dev and test of the Kaldi kind. Raises as `prepare`, and InputError for
    a mixture in which nobody speaks.
    """
    kaldi = (o.diarization or o.source).resolve()
    settings = {"sd": {"diarization": str(kaldi)}} if "sd" in o.tasks else {}

    def read(order: Order) -> Mapping[str, Prepared]:
        sets: dict[str, Prepared] = {}
        for task in order.folders:
            if task == "sd":
                mixtures = {split: _read_diarization(kaldi / split) for split in SPLITS}
                splits = gather_utterances(order, mixtures, SD_COUNTS)
            else:
                splits = gather_utterances(order, _read_separation(order), SS_COUNTS)
            sets[task] = Prepared(task, splits)
        return sets

    return prepare(Order("libri2mix", o, o.tasks, LIBRI2MIX, settings), read)


def _read_separation(order: Order) -> dict[str, list[Utterance]]:
    root = order.find("wav16k/min")
    utterances: dict[str, list[Utterance]] = {split: [] for split in PARTS}
    for split, part in PARTS.items():
        mixed = wavs(order.find(f"wav16k/min/{part}/mix_clean"))
        for path in subsample(mixed) if split == "dev" else mixed:
            # called after the two that were mixed ("4077-13754-0001_5142-33396-0065"): the first
            # number of either is its speaker
            speakers = TOGETHER.join(name.partition("-")[0] for name in path.stem.split("_"))
            sources = tuple(str(root / part / name / path.name) for name in ("s1", "s2"))
            utterances[split].append(
                Utterance(path.stem, str(path), 0.0, speakers, sources=sources)
            )
    return utterances


def subsample(paths: Sequence[Path]) -> list[Path]:
    """Draw the 1,000 recordings that are dev in SUPERB (s3prl's
    separation_stft/scripts/LibriMix/subsample.py), in order."""
    drawn = sorted(paths, key=lambda path: path.stem)
    Random(DEV_SEED).shuffle(drawn)
    return sorted(drawn[:DEV_SIZE], key=lambda path: path.stem)


def _read_diarization(folder: Path) -> Iterator[Utterance]:
    """Read mixtures with turns: the recordings of wav.scp, its paths from the folder on where they
    are relative, or else those in wav/."""
    recordings: dict[str, Path] = {}
    if (folder / "wav.scp").is_file():
        for place, (name, *rest) in read_fields(folder / "wav.scp", 2):
            if rest[-1].endswith("|"):
                raise InputError(
                    f"{place} is a command, not a recording; write the mixtures to "
                    "files and name those"
                )
            recordings[name] = folder / " ".join(rest)
    elif (folder / "wav").is_dir():
        recordings = {path.stem: path for path in wavs(folder / "wav")}
    else:
        raise InputError(f"{folder} has neither wav.scp nor wav/; {LIBRI2MIX}")
    turns: dict[str, list[Turn]] = {}
    for place, name, speaker, start, end in _read_turns(folder):
        if not 0 <= start < end:
            raise InputError(
                f"{place} has a turn from {start} to {end} s; run prepare_diarization.py again"
            )
        turns.setdefault(name, []).append(Turn(speaker, start, end))
    for name, path in recordings.items():
        if name not in turns:
            raise InputError(f"{folder} has no speaker in {name}; run prepare_diarization.py again")
        in_order = sorted(turns[name], key=lambda turn: (turn.start, turn.speaker))
        yield Utterance(name, str(path), 0.0, turns=tuple(in_order))


def _read_turns(folder: Path) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield place, recording, speaker, start and end, of rttm or else of segments."""
    # lines such as "SPEAKER recording 1 start duration <NA> <NA> speaker <NA>"
    if (folder / "rttm").is_file():
        for place, fields in read_fields(folder / "rttm", 8):
            if fields[0] == "SPEAKER":
                start = number_of(fields[3], place)
                end = round(start + number_of(fields[4], place), 6)
                yield place, fields[1], fields[7], start, end
        return
    speakers = {name: speaker for _, (name, speaker, *_) in read_fields(folder / "utt2spk", 2)}
    for place, (name, recording, begin, stop, *_) in read_fields(folder / "segments", 4):
        if name not in speakers:
            raise InputError(
                f"{place} names {name}, which utt2spk does not have; run "
                "prepare_diarization.py again"
            )
        yield place, recording, speakers[name], number_of(begin, place), number_of(stop, place)


DEV_SPEAKERS = ("p226", "p287")
VOICEBANK = (
    "give the folder that holds clean_ and noisy_trainset_28spk_wav, clean_ and "
    "noisy_testset_wav (or these names with _16k)"
)
VOICEBANK_COUNTS = {"train": 10_802, "dev": 770, "test": 824}


@published("voicebank-demand", ["se"], VOICEBANK)
def prepare_voicebank_demand(order: Order) -> dict[str, Prepared]:
    """Read se: the noisy recordings, each with its clean one (Valentini-Botinhao 2017)."""
    pairs = []
    for split, name in {"train": "trainset_28spk_wav", "test": "testset_wav"}.items():
        noisy = order.find(f"noisy_{name}_16k", f"noisy_{name}")
        clean = order.find(f"clean_{name}_16k", f"clean_{name}")
        for path in wavs(noisy):  # p232_001.wav, and the clean one of the same name
            speaker, sources = path.stem.split("_")[0], (str(clean / path.name),)
            dev = split == "train" and speaker in DEV_SPEAKERS
            utterance = Utterance(path.stem, str(path), 0.0, speaker, sources=sources)
            pairs.append(("dev" if dev else split, utterance))
    return {"se": Prepared("se", gather_utterances(order, group_by_split(pairs), VOICEBANK_COUNTS))}
