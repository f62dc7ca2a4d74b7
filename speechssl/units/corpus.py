"""The units of a corpus are extracted into a folder of Parquet parts, with a card and a list of the
recordings that were set aside.

`plan_shards` cuts the recordings into shards, each a run of consecutive recordings. `ShardMaker`
makes one part of each shard; an engine has it make all of them, on this machine or on a cluster.
With `--shard i/n` a process makes the i-th of n shares of the shards. The bytes of a part depend on
its recordings and settings alone, not on workers, engine or shares. A part that is there is
verified row by row against the audio.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow
import torch
from tqdm import tqdm

from speechssl.artifacts import (
    hash_bytes,
    hash_json,
    list_differences,
    lock_folder,
    read_json,
    replace_file,
    say_what_differs,
    write_json,
    write_lines,
)
from speechssl.audio import SAMPLE_RATE, format_length, read_audio, read_duration
from speechssl.data.files import hash_recording
from speechssl.data.recordings import Recording, describe_split, list_recordings
from speechssl.encoders.encoder import open_pool
from speechssl.errors import InputError, make_printable, report_set_aside
from speechssl.processes import count_cores
from speechssl.results import describe_range
from speechssl.timing import RunLength
from speechssl.units.codebook import PADDING
from speechssl.units.features import UnitExtractor, load_extractor
from speechssl.units.options import Extract
from speechssl.units.storage import (
    CARD,
    FAILED,
    Part,
    UtteranceUnits,
    decode_part,
    encode_part,
    name_part,
    read_part_card,
)

SHARD_SECONDS = 600.0  # of audio: a shard ends with the recording that reaches them
HEADER_THREADS = 8  # threads that read headers
HEADER_BATCH = 10_000  # recordings whose headers are read at a time: each takes a kilobyte


class ReadRecording(NamedTuple):
    """A recording has been read, and waits to be encoded in a batch."""

    samples: np.ndarray  # (N,)
    audio_hash: str  # of its file


class Unusable(NamedTuple):
    """A recording has no units, for a reason that is written to `_failed.jsonl`."""

    reason: str


Extracted = UtteranceUnits | ReadRecording | Unusable


def extract_units(o: Extract) -> dict[str, Any]:
    """Write the units of a split, a manifest or a folder. Finished parts are not made again.

    Returns their folder, their card, and the recordings that were set aside. Raises InputError as
    `extract_corpus` does.
    """
    share = None if o.shard is None else parse_share(o.shard)
    out = o.out / o.split if o.split else o.out
    recordings = list_recordings(o.source, o.split, o.passages)
    source = describe_split(o.source, o.split, o.passages)
    # "auto", not "cuda:2": this process sees one GPU only, and the machines of a cluster see others
    device = "cpu" if o.device == "cpu" else "auto"
    load = partial(load_extractor, o.encoder, o.codebook, o.precision, device, o.price)
    engine: Engine = LocalEngine(o.workers)
    if o.engine == "ray":
        from speechssl.units.ray_engine import RayEngine

        engine = RayEngine(load, o.workers)
    maker = ShardMaker(load(), out, o.shard_size)
    extraction = extract_corpus(maker, recordings, engine, source, share)
    card, failed = extraction.card, extraction.failed
    if not card:
        print(f"{out}: the parts of share {o.shard} are written; the last share writes the card")
        return {"out": str(out), "card": None, "failed": failed}
    report_set_aside(failed, f"{out / FAILED}")
    amount = describe_range([card["recordings"]], "recording")
    parts = describe_range([len(card["parts"])], "part")
    length = format_length(card["seconds"])
    print(f"{out}: units of {amount} ({length}) in {parts}; {len(failed)} set aside")
    return {"out": str(out), "card": card, "failed": failed}


def parse_share(text: str) -> tuple[int, int]:
    """Read "2/8", the second of eight shares of the shards. Raises InputError for what is not I/N
    with I from 1 to N."""
    number, _, count = text.partition("/")
    are_numbers = number.isdecimal() and count.isdecimal()
    if not are_numbers or not 1 <= int(number) <= int(count):
        raise InputError(f"--shard {text} is not I/N with I from 1 to N; write it as 2/8")
    return int(number), int(count)


# ---- shards


@dataclass(frozen=True)
class Shard:
    """A shard is consecutive recordings that become one part."""

    index: int
    recordings: Sequence[Recording]

    def path(self, out: Path) -> Path:
        return out / name_part(self.index)


@dataclass(frozen=True)
class ShardResult:
    """A result describes the part that was made of a shard, and its recordings without units."""

    index: int
    part_hash: str
    data_hash: str  # of the ids and contents of its recordings
    recordings: int
    seconds: float
    failed: dict[str, str]  # id -> why


def plan_shards(recordings: Sequence[Recording], size: int) -> list[Shard]:
    """Cut the recordings into shards, each of which ends with the recording that makes it `size`
    recordings or SHARD_SECONDS long."""
    borders = [0]
    seconds = 0.0
    for end, recording in enumerate(recordings, 1):
        seconds += recording.seconds or 0.0
        if end - borders[-1] == size or seconds >= SHARD_SECONDS or end == len(recordings):
            borders.append(end)
            seconds = 0.0
    shards = enumerate(pairwise(borders))
    return [Shard(index, recordings[start:end]) for index, (start, end) in shards]


@dataclass(frozen=True)
class ShardMaker:
    """A maker turns shards into parts. `begin` starts threads that read the recordings and encode
    the long ones; `finish` waits for them, encodes the short ones as one batch, and writes."""

    extractor: UnitExtractor
    out: Path  # folder of the parts
    size: int  # most recordings of a shard; every part states it

    @property
    def card(self) -> dict[str, Any]:
        """Return the settings that made the rows of a part."""
        features = self.extractor.features
        return self.extractor.card | {
            "padding": PADDING,
            "chunking": asdict(features.chunking),
            "device": features.device,  # cpu or cuda: sums are grouped differently on each
            "K": self.extractor.codebook.size,
            "shard_size": self.size,
            "shard_seconds": SHARD_SECONDS,
        }

    def begin(self, shard: Shard, pool: Executor) -> list[Future[Extracted]]:
        """Let the pool extract the recordings, the longest first, so that no thread still works on
        a long one while the others are idle."""
        earlier = self._read_earlier(shard)
        longest_first = sorted(shard.recordings, key=lambda r: -(r.seconds or 0))
        futures = {r.id: pool.submit(self._extract, r, earlier.get(r.id)) for r in longest_first}
        return [futures[r.id] for r in shard.recordings]

    def _read_earlier(self, shard: Shard) -> dict[str, UtteranceUnits]:
        """Read the utterances of an earlier run's part, by id; none where it is damaged or was made
        with other settings."""
        try:
            part = decode_part(shard.path(self.out).read_bytes())
        except (OSError, ValueError):
            return {}
        return {u.id: u for u in part.utterances} if part.card == self.card else {}

    def finish(self, shard: Shard, results: Sequence[Future[Extracted]]) -> ShardResult:
        """Encode together the recordings that wait for a batch, and write the part, unless the same
        bytes are there already."""
        extracted = [future.result() for future in results]
        waiting: dict[int, ReadRecording] = {}  # by their place in the shard
        for place, result in enumerate(extracted):
            if isinstance(result, ReadRecording):
                waiting[place] = result
        if waiting:
            units = self.extractor.extract_batch([read.samples for read in waiting.values()])
            for (place, read), units_or_error in zip(waiting.items(), units, strict=True):
                extracted[place] = _make_utterance(shard.recordings[place], read, units_or_error)
        utterances = [result for result in extracted if isinstance(result, UtteranceUnits)]
        failed: dict[str, str] = {}
        for recording, result in zip(shard.recordings, extracted, strict=True):
            if isinstance(result, Unusable):
                failed[recording.id] = result.reason
        path = shard.path(self.out)
        content = encode_part(Part(utterances, self.card))
        if not path.is_file() or path.read_bytes() != content:
            with replace_file(path) as temporary:
                temporary.write_bytes(content)
        return ShardResult(
            index=shard.index,
            part_hash=hash_bytes(content),
            data_hash=hash_json([[u.id, u.audio_hash] for u in utterances]),
            recordings=len(utterances),
            seconds=sum(u.seconds for u in utterances),
            failed=failed,
        )

    def _extract(self, recording: Recording, earlier: UtteranceUnits | None) -> Extracted:
        """Extract one recording, or keep its earlier utterance where the file is the same."""
        audio_hash = hash_recording(recording.path)[:16]
        if earlier is not None and audio_hash == earlier.audio_hash:
            return earlier
        try:
            samples = read_audio(recording.path)
        except InputError as error:
            return Unusable(make_printable(str(error)))
        read = ReadRecording(samples, audio_hash)
        if self.extractor.features.fits_a_batch(samples):
            return read
        try:
            return _make_utterance(recording, read, self.extractor.extract(samples))
        except ValueError as error:
            return _make_utterance(recording, read, error)


def _make_utterance(
    recording: Recording, read: ReadRecording, units: RunLength | ValueError
) -> UtteranceUnits | Unusable:
    """Return the utterance of a recording, or say why it has no units: the ValueError that the
    extractor raised."""
    if isinstance(units, ValueError):
        reason = f"{recording.path} gives no units ({units}); listen to it"
        return Unusable(make_printable(reason))
    return UtteranceUnits(recording.id, len(read.samples) / SAMPLE_RATE, units, read.audio_hash)


class Engine(Protocol):
    """An engine lets the maker make every shard once, in any order, on one or several machines."""

    def __call__(self, maker: ShardMaker, shards: Sequence[Shard]) -> Iterator[ShardResult]: ...


@dataclass(frozen=True)
class LocalEngine:
    """This engine runs threads, each of which reads a recording and encodes it."""

    workers: int | None = None  # None: one a core

    def __call__(self, maker: ShardMaker, shards: Sequence[Shard]) -> Iterator[ShardResult]:
        """Make the shards. Each is begun before the one before it is finished, so that no thread
        waits."""
        with open_pool(self.workers or count_cores()) as pool:
            begun: tuple[Shard, list[Future[Extracted]]] | None = None
            for shard in shards:
                results = maker.begin(shard, pool)
                if begun is not None:
                    yield maker.finish(*begun)
                begun = shard, results
            if begun is not None:
                yield maker.finish(*begun)


# ---- a corpus


@dataclass(frozen=True)
class Extraction:
    """An extraction has the card of the units of a corpus, and the recordings that were set
    aside."""

    card: dict[str, Any]  # of the units; empty while other processes still make parts
    failed: dict[str, str]  # id -> why the recording was set aside


def extract_corpus(
    maker: ShardMaker,
    recordings: Sequence[Recording],
    engine: Engine,
    source: Mapping[str, Any] | None = None,
    share: tuple[int, int] | None = None,
) -> Extraction:
    """Write the units of all recordings into the maker's folder. source: the entries of the card
    that say where they come from.

    Recordings that cannot be read are set aside and listed in `_failed.jsonl`; the same command
    tries them again, and resumes a run that was killed. share: (i, n), this process is number i
    (from 1) of n, each of which makes every n-th shard, at the same time or one after another; the
    last to end verifies all parts and writes the card.

    Raises InputError when no recording can be read, when the folder holds units of another source
    or made in another way, or other tables, and when another run uses it.
    """
    facts = dict(source or {})
    out = maker.out
    # before anything is removed: the folder may hold units of recordings that have been moved
    if not any(recording.path.is_file() for recording in recordings):
        raise InputError(f"there is no recording such as {recordings[0].path}; check the source")
    if share is not None:
        number, count = share
        with lock_folder(out, wait=False, shared=True):  # with the processes of other shares
            _check_folder(maker, recordings, facts)
            shards = plan_shards(_measure(recordings), maker.size)
            results = _make_shards(maker, shards[number - 1 :: count], engine)
        if not all(shard.path(out).is_file() for shard in shards):
            return Extraction({}, collect_failed(results))
    # After the last share all parts are made once more, which keeps every row whose file is
    # unchanged, and so verifies them.
    with lock_folder(out, wait=share is not None):
        _check_folder(maker, recordings, facts)
        shards = plan_shards(_measure(recordings), maker.size)
        results = _make_shards(maker, shards, engine)
        failed = collect_failed(results)
        _write_failed(out / FAILED, recordings, failed)
        is_empty = len(failed) == len(recordings)
        parts = set() if is_empty else {shard.path(out) for shard in shards}
        for path in set(out.glob("part-*.parquet")) - parts:  # of an earlier, longer list
            path.unlink()
        if is_empty:
            (out / CARD).unlink(missing_ok=True)
            raise InputError(
                f"no units could be extracted from {len(failed)} recordings; see the reasons in "
                f"{out / FAILED}"
            )
        card = _make_card(maker, results, facts, failed)
        write_json(out / CARD, card)
    return Extraction(card, failed)


def _check_folder(
    maker: ShardMaker, recordings: Sequence[Recording], source: Mapping[str, Any]
) -> None:
    """Raise InputError where the folder holds units of another source, or made in another way, or
    other tables."""
    content = _find_other_content(maker, recordings, source)
    if content:
        raise InputError(f"{maker.out} holds {content}; choose another folder or delete it")


def _find_other_content(
    maker: ShardMaker, recordings: Sequence[Recording], source: Mapping[str, Any]
) -> str:
    """Name what the folder holds that does not belong to this corpus; "" where all does. Damaged
    parts do not count, since they are made again."""
    out = maker.out
    if (out / CARD).is_file():
        made_from = read_json(out / CARD)["made_from"]
        if any(made_from.get(name) != source.get(name) for name in ("corpus", "split")):
            return "the units of another corpus or split"
    for path in sorted(out.glob("[!.]*.parquet")):
        try:
            names = list_differences(read_part_card(path), maker.card)
        except (OSError, ValueError):
            continue
        if names:
            return f"units made in another way, or other tables ({say_what_differs(names)})"
    first = out / name_part(0)
    if first.is_file():
        with suppress(ValueError):
            ids = [utterance.id for utterance in decode_part(first.read_bytes()).utterances]
            if ids and not {recording.id for recording in recordings}.intersection(ids):
                return f"the units of other recordings ({ids[0]}, ...)"
    return ""


def _measure(recordings: Sequence[Recording]) -> list[Recording]:
    """Return the recordings with their lengths in seconds."""
    measured: list[Recording] = []
    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        for first in range(0, len(recordings), HEADER_BATCH):
            measured += pool.map(_measure_one, recordings[first : first + HEADER_BATCH])
    return measured


def _measure_one(recording: Recording) -> Recording:
    """Return a recording with its seconds, from the header where the manifest does not state them;
    0 for a damaged file."""
    if recording.seconds is not None:
        return recording
    try:
        return replace(recording, seconds=read_duration(recording.path))
    except InputError:
        return replace(recording, seconds=0.0)


def _make_shards(maker: ShardMaker, shards: Sequence[Shard], engine: Engine) -> list[ShardResult]:
    """Let the engine make the shards under a progress bar; return the results in their order."""
    seconds = {}
    for shard in shards:
        seconds[shard.index] = math.ceil(sum(r.seconds or 0 for r in shard.recordings))
    results = []
    with tqdm(desc="units", total=sum(seconds.values()), unit="s") as bar:
        for result in engine(maker, shards):
            bar.update(seconds[result.index])
            results.append(result)
    return sorted(results, key=lambda result: result.index)


def collect_failed(results: Sequence[ShardResult]) -> dict[str, str]:
    """Collect the recordings set aside in all shards."""
    failed: dict[str, str] = {}
    for result in results:
        failed |= result.failed
    return failed


def _write_failed(path: Path, recordings: Sequence[Recording], failed: Mapping[str, str]) -> None:
    """Write a line for each recording that was set aside; no file where there is none."""
    records = []
    for recording in recordings:
        if recording.id in failed:
            place = make_printable(str(recording.path))
            records.append({"id": recording.id, "path": place, "reason": failed[recording.id]})
    if records:
        write_lines(path, records)
    else:
        path.unlink(missing_ok=True)


def _make_card(
    maker: ShardMaker,
    results: Sequence[ShardResult],
    source: Mapping[str, Any],
    failed: Mapping[str, str],
) -> dict[str, Any]:
    """Describe the units: their settings, source, parts and recordings."""
    extractor = maker.extractor
    parts = []
    for result in results:
        part = {"file": name_part(result.index), "hash": result.part_hash}
        parts.append(part | {"recordings": result.recordings})
    card: dict[str, Any] = {"what": "units", "made_from": extractor.card | dict(source)}
    for name, value in maker.card.items():
        if name not in extractor.card:
            card[name] = value
    return card | {
        "frame_rate": extractor.grid.frame_rate,
        "grid": asdict(extractor.grid),
        "read_out": extractor.codebook.card.get("read_out", "k-means"),
        # hashes of the codebooks whose unit k means the same, its own first
        "codebooks": list(extractor.codebook.equivalents),
        "data": hash_bytes(*(result.data_hash.encode() for result in results)),
        "recordings": sum(result.recordings for result in results),
        "seconds": round(sum(result.seconds for result in results), 3),
        "failed": list(failed),
        "parts": parts,
        "versions": {
            "speechssl": version("speechssl"),
            "torch": torch.__version__,
            "pyarrow": pyarrow.__version__,
        },
    }
