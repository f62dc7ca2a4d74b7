"""The recordings of SLUE-SQA-5: files in folders called question and document, or inside the rows of Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, duration, read_audio, write_flac
from speechssl.corpora.making import in_parallel
from speechssl.corpora.sources import SUFFIXES
from speechssl.corpora.spoken_qa.joining import measuring
from speechssl.corpora.spoken_qa.recordings import files_below, safe_name
from speechssl.corpora.spoken_qa.slue_rows import split_of
from speechssl.corpora.spoken_qa.tables import columns_of, text_of
from speechssl.errors import InputError

KINDS = ("question", "document")
Key = tuple[str, str]  # question, document or word2time; id
Made = tuple[str, float | str]  # path, seconds or why it cannot be used


class Found:
    """Files by what they are of, recordings and alignments: those of the split itself first (verified_test is part of test)."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.files: dict[Key, dict[str, Path]] = {}
        for _, path in files_below(roots, *SUFFIXES, ".txt"):
            kind = path.parent.name
            if kind in (*KINDS, "word2time"):
                self.files.setdefault((kind, path.stem), {}).setdefault(split_of(path.parent.parent.name), path)

    def get(self, kind: str, name: str, split: str) -> Path | None:
        """The file of a split, or of the test that it is taken from, or of no split at all."""
        there = self.files.get((kind, name), {})
        order = (split, "test", "") if split == "verified_test" else (split, "")
        return next((there[s] for s in order if s in there), None)


def recordings(
    split: str, tables: Sequence[Path], wanted: Iterable[Key], found: Found, out: Path, workers: int
) -> dict[Key, tuple[Path, float | str]]:
    """Path and seconds (or why it cannot be used) of what is there. Recordings in Parquet are written as FLAC into `out`."""
    made: dict[Key, tuple[Path, float | str]] = {}
    wanted = set(wanted)
    groups = [(path, group) for path in tables if path.suffix == ".parquet" for group in _groups(path)]
    jobs = [(*group, out / split / "audio", some) for group in groups if (some := wanted & _keys(*group))]
    for done in tqdm(in_parallel(writing, jobs, workers), f"writing {split}", len(jobs), unit="group", disable=not jobs):
        made |= done
    files = {key: path for key in wanted if key not in made and (path := found.get(*key, split)) is not None}
    to_read = [("\n".join(key), path) for key, path in files.items()]
    shown = tqdm(in_parallel(measuring, to_read, workers), f"reading {split}", len(to_read), unit="file", disable=not to_read)
    for name, seconds in shown:
        kind, _, rest = name.partition("\n")
        made[kind, rest] = files[kind, rest], seconds
    return made


def _groups(path: Path) -> range:
    from pyarrow import parquet

    if not {f"{kind}_audio" for kind in KINDS} & set(columns_of(path)):
        return range(0)
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        return range(file.num_row_groups)


def _keys(path: Path, group: int) -> set[Key]:
    """What a group of rows is about."""
    return {(kind, text_of(cells.get(f"{kind}_id"))) for cells in _batches(path, group, "id") for kind in KINDS}


def writing(job: tuple[Path, int, Path, set[Key]]) -> dict[Key, tuple[Path, float | str]]:
    """A job for `in_parallel`: the recordings of a group of rows, those that are wanted, as FLAC, 16 kHz; those that are there
    already are left alone.
    """
    path, group, folder, wanted = job
    made: dict[Key, tuple[Path, float | str]] = {}
    for cells in _batches(path, group, "id", "audio"):
        for kind in KINDS:
            key, content = (kind, text_of(cells.get(f"{kind}_id"))), cells.get(f"{kind}_audio")
            if key in wanted and key not in made and isinstance(content, Mapping) and content.get("bytes"):
                made[key] = _written(content["bytes"], folder / f"{safe_name(f'{kind}-{key[1]}')}.flac", f"{path}: {kind} {key[1]}")
    return made


def _batches(path: Path, group: int, *what: str) -> Iterator[dict[str, Any]]:
    """Rows with these columns of documents and questions."""
    import pyarrow
    from pyarrow import parquet

    columns = [name for name in columns_of(path) if name in {f"{kind}_{w}" for kind in KINDS for w in what}]
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(16, row_groups=[group], columns=columns, use_threads=False):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged in row group {group}; download it again") from error


def _written(content: bytes, out: Path, where: str) -> tuple[Path, float | str]:
    if out.is_file():
        return out, duration(out)
    with TemporaryDirectory() as folder:
        raw = Path(folder) / "recording"
        raw.write_bytes(content)
        try:
            samples = read_audio(raw)
        except InputError as error:
            return out, str(error).replace(str(raw), where)
    write_flac(out, samples)
    return out, len(samples) / SAMPLE_RATE
