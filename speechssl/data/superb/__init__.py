"""What the published sets share: counts that are checked, durations read in parallel, and manifests written where they are whole.

A set is read from its own folder and stays there: manifests name the recordings by their absolute path, and no audio is copied but
what has to be cut. Nothing is written before all counts are right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.audio import duration
from speechssl.data.files import read_csv
from speechssl.data.prepare import begin_folder, write_lines
from speechssl.data.utterances import Trial, Utterance, to_record
from speechssl.errors import InputError
from speechssl.io import hash_files, read_json, write_json

VERSION = 1  # of what is written; part of the card
THREADS = 32  # headers at a time: opening a file is waiting, most of all on a network
Cards = dict[str, dict[str, Any]]  # folder below OUT -> its card


@dataclass
class Order:
    """What is to be prepared, from where, to where."""

    corpus: str  # the name of its verb
    source: Path  # made absolute
    out: Path
    folders: Sequence[str]  # below out: a task each
    layout: str  # the remedy where something is missing: "give the folder that holds ..."
    any_count: bool = False  # another count than the published one is a warning
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # folder -> what else decides its manifests

    def __post_init__(self) -> None:
        self.source, self.out = Path(self.source).resolve(), Path(self.out)

    def find(self, *names: str) -> Path:
        """The first of these below the source that exists. Raises InputError where none does."""
        for name in names:
            if (self.source / name).exists():
                return self.source / name
        raise InputError(f"{self.source / names[0]} does not exist; {self.layout}")


@dataclass(frozen=True)
class Prepared:
    """A task's data, read but not written."""

    task: str
    splits: Mapping[str, Sequence[Utterance]]  # manifest -> its lines
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)  # split -> its trials
    cut: Callable[[Path], None] | None = None  # writes into the folder what had to be cut


def prepare(order: Order, read: Callable[[Order], Mapping[str, Prepared]]) -> Cards:
    """Read the set and write its manifests, unless they are there, and return the cards.

    read: gives what belongs into every folder of the order. Raises InputError where `out` holds something else, before it is read.
    """
    if not order.source.is_dir():
        raise InputError(f"{order.source} is not a folder; {order.layout}")
    named = {"corpus": order.corpus, "version": VERSION, "source": str(order.source), "any_count": order.any_count}
    settings = {folder: named | dict(order.options.get(folder, {})) for folder in order.folders}
    for folder in order.folders:
        if (order.out / folder).is_dir() and any((order.out / folder).iterdir()):
            begin_folder(order.out / folder, settings[folder], order.corpus)
    done = {folder: order.out / folder / "card.json" for folder in order.folders}
    cards: Cards = {folder: read_json(path) if path.is_file() else {} for folder, path in done.items()}
    if all(cards.values()):
        return cards
    made = read(order)
    for prepared in made.values():
        for split, found in prepared.splits.items():
            if not found:
                raise InputError(f"{order.source} has no utterance of {prepared.task} for {split}; {order.layout}")
    for folder in (folder for folder, card in cards.items() if not card):
        out, prepared = order.out / folder, made[folder]
        begin_folder(out, settings[folder], order.corpus)
        if prepared.cut:
            prepared.cut(out)
        for split, found in prepared.splits.items():
            write_lines(out / f"{split}.jsonl", map(to_record, found))
        for split, trials in prepared.trials.items():
            write_lines(out / f"{split}.trials.jsonl", map(asdict, trials))
        hours = {split: round(sum(u.seconds for u in found) / 3600, 3) for split, found in prepared.splits.items()}
        hashes = {path.stem: hash_files([path]) for path in sorted(out.glob("[!.]*.jsonl"))}
        facts = {"task": prepared.task, "sizes": sizes(prepared.splits), "hours": hours, "manifests": hashes}
        cards[folder] = settings[folder] | facts
        write_json(out / "card.json", cards[folder])
    return cards


def measured(utterances: Iterable[Utterance], what: str) -> tuple[list[Utterance], list[str]]:
    """Utterances whose `audio` is absolute with their seconds, and the recordings (and `sources`) that do not exist.

    what: for the progress bar. A recording that is damaged raises InputError.
    """

    def seconds_of(utterance: Utterance) -> float | str:
        for path in (utterance.audio, *utterance.sources):
            if not Path(path).is_file():
                return path
        seconds = duration(utterance.audio)
        if seconds <= 0:
            raise InputError(f"the audio file {utterance.audio} holds no samples; copy or download it again")
        return seconds

    utterances = list(utterances)
    with ThreadPoolExecutor(THREADS) as pool:
        lengths = pool.map(seconds_of, utterances)
        shown = tqdm(lengths, f"measuring {what}", len(utterances), unit="file", mininterval=1, leave=False)
        pairs = list(zip(utterances, shown, strict=True))
    found = [replace(utterance, seconds=length) for utterance, length in pairs if isinstance(length, float)]
    return found, [length for _, length in pairs if isinstance(length, str)]


def check_counts(order: Order, found: Mapping[str, int], expected: Mapping[str, int], missing: Sequence[str] = ()) -> None:
    """Compare what was found with what is published. missing: recordings that should have been there.

    Raises InputError where a number differs; with `any_count` that is a warning on stderr.
    """
    wrong = [f"{found.get(name, 0):,} {name} and not {count:,}" for name, count in expected.items() if found.get(name, 0) != count]
    if not wrong:
        return
    lost = f", where {missing[0]} is missing" if missing else ""
    problem = f"{order.source} has {', '.join(wrong)} as published{lost}"
    if not order.any_count:
        raise InputError(f"{problem}; unpack {order.corpus} again, or give --any-count to use it as it is")
    tqdm.write(f"warning: {problem}", file=sys.stderr)


def sizes(splits: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    return {split: len(found) for split, found in splits.items()}


def by_split(found: Iterable[tuple[str, Utterance]], splits: Sequence[str]) -> dict[str, list[Utterance]]:
    """Utterances sorted into their splits, all of which are there."""
    sorted_in: dict[str, list[Utterance]] = {split: [] for split in splits}
    for split, utterance in found:
        sorted_in[split].append(utterance)
    return sorted_in


def gathered(
    order: Order,
    utterances: Mapping[str, Iterable[Utterance]],
    expected: Mapping[str, int],
    others: Mapping[str, int] | None = None,
) -> dict[str, list[Utterance]]:
    """`measured` and `check_counts` for every split. others: what was counted besides the utterances of each split."""
    done = {split: measured(found, f"{order.corpus} {split}") for split, found in utterances.items()}
    splits = {split: found for split, (found, _) in done.items()}
    check_counts(order, sizes(splits) | dict(others or {}), expected, [path for _, missing in done.values() for path in missing])
    return splits


def read_fields(path: Path, least: int, separator: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """(place, fields) of every line that is not empty. separator: None is white space; least: fields a line must have.

    Raises InputError for a file that cannot be read or a line with fewer fields.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} ({error}); unpack the corpus again") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = line.strip().split(separator)
        if len(fields) < least:
            raise InputError(f"{path}:{number} has {len(fields)} fields instead of {least}; unpack the corpus again")
        yield f"{path}:{number}", fields


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file with a header. Raises InputError for one without these columns or with a short row."""
    rows = read_csv(path)
    for number, row in enumerate(rows, 2):
        if lacking := [name for name in columns if not isinstance(row.get(name), str)]:
            raise InputError(f"{path}:{number} has no {lacking[0]}; unpack the corpus again")
    return rows


def check_tasks(corpus: str, tasks: Sequence[str], known: Sequence[str]) -> None:
    """Raises InputError for one that the corpus does not have."""
    if unknown := [task for task in tasks if task not in known]:
        raise InputError(f"{corpus} has no task {unknown[0]}; choose from {', '.join(known)}")


def number_of(text: str, place: str) -> float:
    """Raises InputError for what is not a number."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{place} has {text!r} instead of a number; make the file again") from None


def wavs(folder: Path) -> list[Path]:
    """The WAV files of a folder in order, without what macOS leaves behind (`._x.wav`)."""
    return sorted(path for path in folder.glob("*.wav") if not path.name.startswith("."))
