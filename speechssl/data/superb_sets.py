"""This module has what the corpora of SUPERB's tasks share: it measures their recordings, checks
their counts and writes their manifests. Each corpus is read by its own module.

Layouts, counts and their sources, and what differs from s3prl, are in data/NAME/README.md.
Recordings stay where they are: manifests have their absolute paths. Only clips that are cut from
longer recordings are written. Where a count is wrong, nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.concurrent import thread_map

from speechssl.artifacts import CORPUS_RECORD, begin_stage, hash_files, read_text, write_lines
from speechssl.audio import read_duration
from speechssl.data.options import SuperbSet
from speechssl.data.superb import SPLITS, Trial, Utterance, format_sizes, make_record
from speechssl.errors import InputError

VERSION = 1  # of the manifests; part of the card
THREADS = 32  # headers read at a time: opening a file is mostly waiting, above all on a network
Cards = dict[str, dict[str, Any]]  # folder below OUT, such as "sid" or "er/fold-1" -> its card


@dataclass(frozen=True)
class Preparation:
    """A preparation states which sets are made of a corpus, and where the corpus lies."""

    corpus: str  # the name after `speechssl prepare`
    options: SuperbSet
    folders: Sequence[str]  # the folder of each set below options.out: TASK, or TASK/FOLD
    # folder -> further settings that decide its manifests
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.options.source.resolve()

    def find(self, *names: str) -> Path:
        """Find the first of these names that exists below the source, and return its path. Raises
        InputError where none does."""
        for name in names:
            if (self.source / name).exists():
                return self.source / name
        raise InputError(
            f"{self.source / names[0]} does not exist; give the folder that "
            f"`speechssl prepare {self.corpus} --help` describes"
        )


@dataclass(frozen=True)
class Prepared:
    """A prepared set has been read and checked, and not been written yet."""

    splits: Mapping[str, Sequence[Utterance]]  # split -> the lines of its manifest
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)  # split -> its trials
    # writes clips that are cut from recordings into the folder of the set
    write_clips: Callable[[Path], None] | None = None


def _read_whole(
    read: Callable[[Preparation], Mapping[str, Prepared]], preparation: Preparation
) -> Mapping[str, Prepared]:
    """Read the sets of a corpus. Raises InputError where tables do not fit each other."""
    try:
        return read(preparation)
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{preparation.source} is not whole ({error!r}); unpack {preparation.corpus} again"
        ) from error


def prepare(
    preparation: Preparation, read: Callable[[Preparation], Mapping[str, Prepared]]
) -> Cards:
    """Read the sets and write their manifests, unless they are there, and return the cards.

    read: a function that reads the set of every folder. Raises InputError for a wrong folder, a
    damaged file, counts that are not the published ones (unless `any_count`), and where `out` holds
    something else.
    """
    out = preparation.options.out
    common = {
        "corpus": preparation.corpus,
        "version": VERSION,
        "source": str(preparation.source),
        "any_count": preparation.options.any_count,
    }
    sets: Mapping[str, Prepared] = {}
    cards: Cards = {}
    for folder in preparation.folders:
        settings = {**common, **preparation.settings.get(folder, {})}
        with begin_stage(out / folder, settings, record=CORPUS_RECORD) as step:
            if not step.done:
                # the sets of a corpus are read together
                sets = sets or _read_whole(read, preparation)
                task = folder.partition("/")[0]  # "er" of "er/fold-1"
                step.finish(settings | {"task": task} | _write_set(out / folder, sets[folder]))
            cards[folder] = step.card
        print(f"{out / folder}: {format_sizes(cards[folder])} recordings")
    return cards


def _write_set(folder: Path, prepared: Prepared) -> dict[str, Any]:
    """Write the clips, manifests and trials of a set, and return its sizes, hours and hashes for
    the card."""
    if prepared.write_clips:
        prepared.write_clips(folder)
    hours = {}
    for split, utterances in prepared.splits.items():
        write_lines(folder / f"{split}.jsonl", map(make_record, utterances))
        hours[split] = round(sum(u.seconds for u in utterances) / 3600, 3)
    for split, trials in prepared.trials.items():
        write_lines(folder / f"{split}.trials.jsonl", map(asdict, trials))
    manifests = sorted(folder.glob("[!.]*.jsonl"))
    return {
        "sizes": count_utterances(prepared.splits),
        "hours": hours,
        "manifests": {path.stem: hash_files([path]) for path in manifests},
    }


def measure_utterances(
    utterances: Iterable[Utterance], what: str
) -> tuple[list[Utterance], list[str]]:
    """Measure utterances whose `audio` is an absolute path. Returns them with their seconds, and
    the paths of recordings (`audio` or `sources`) that do not exist.

    what: what the progress bar says is measured. Raises InputError for a damaged recording.
    """
    bar = {"desc": f"measuring {what}", "unit": "file", "leave": False}
    results = thread_map(_measure, list(utterances), max_workers=THREADS, **bar)
    measured = [result for result in results if isinstance(result, Utterance)]
    return measured, [result for result in results if isinstance(result, str)]


def _measure(utterance: Utterance) -> Utterance | str:
    """Return the utterance with its seconds, or the path of a recording that does not exist."""
    for path in (utterance.audio, *utterance.sources):
        if not Path(path).is_file():
            return path
    return replace(utterance, seconds=read_duration(utterance.audio))


def check_counts(
    preparation: Preparation,
    counts: Mapping[str, int],
    published: Mapping[str, int],
    missing: Sequence[str] = (),
) -> None:
    """Compare the counts with the published ones. missing: paths of recordings that do not exist.

    Raises InputError where a number differs; with `any_count`, warns on stderr instead.
    """
    differences = []
    for name, expected in published.items():
        count = counts.get(name, 0)
        if count != expected:
            unit = f"{name} utterances" if name in SPLITS else name
            differences.append(f"{count:,} {unit}, not the published {expected:,}")
    if not differences:
        return
    example = f"; {missing[0]} is missing" if missing else ""
    problem = f"{preparation.source} has {', and '.join(differences)}{example}"
    if not preparation.options.any_count:
        raise InputError(
            f"{problem}; unpack {preparation.corpus} again, or give --any-count to use it as it is"
        )
    tqdm.write(f"warning: {problem}", file=sys.stderr)


def count_utterances(splits: Mapping[str, Sequence[Utterance]]) -> dict[str, int]:
    """Count the utterances of every split."""
    return {split: len(utterances) for split, utterances in splits.items()}


def group_by_split(pairs: Iterable[tuple[str, Utterance]]) -> dict[str, list[Utterance]]:
    """Group (split, utterance) by split. All SPLITS are keys of the result."""
    splits: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
    for split, utterance in pairs:
        splits[split].append(utterance)
    return splits


def gather_utterances(
    preparation: Preparation,
    utterances: Mapping[str, Iterable[Utterance]],
    published: Mapping[str, int],
    other_counts: Mapping[str, int] | None = None,
) -> dict[str, list[Utterance]]:
    """Measure the utterances of every split and compare their counts with the published ones.
    other_counts: further counts to compare, such as the number of speakers."""
    splits: dict[str, list[Utterance]] = {}
    missing: list[str] = []
    for split, unmeasured in utterances.items():
        measured, missing_in_split = measure_utterances(unmeasured, f"{preparation.corpus} {split}")
        splits[split] = measured
        missing += missing_in_split
    counts = count_utterances(splits) | dict(other_counts or {})
    check_counts(preparation, counts, published, missing)
    return splits


def read_fields(
    path: Path, least: int, separator: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield ("FILE:LINE", fields) for every line that is not empty. least: the smallest number of
    fields of a line; separator: of fields, None for white space.

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


def list_wavs(folder: Path) -> list[Path]:
    """List the WAV files of a folder in order, without hidden files, such as those that macOS
    leaves behind (`._x.wav`)."""
    return sorted(folder.glob("[!.]*.wav"))
