"""The published sets of SUPERB's tasks are prepared from their own folders: what they share.

Layouts, counts and their sources, and what differs from s3prl, are in data/NAME/README.md.
Recordings stay where they are: manifests have their absolute paths, and no audio is copied but what
has to be cut. Where a count is wrong, no folder stays. A module of its own reads each corpus.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import CORPUS_RECORD, hash_files, read_text, stage, write_lines
from speechssl.audio import header_duration
from speechssl.data.options import SuperbSet
from speechssl.data.superb import SPLITS, Trial, Utterance, format_sizes, to_record
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
        return header_duration(utterance.audio)

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


def wavs(folder: Path) -> list[Path]:
    """List the WAV files of a folder in order, without those that macOS leaves behind
    (`._x.wav`)."""
    return sorted(path for path in folder.glob("*.wav") if not path.name.startswith("."))
