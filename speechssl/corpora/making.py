"""What the corpora that are made here share: a folder of one set of settings, work in parallel, manifests whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from speechssl.artefacts import read_json, write_json, write_text
from speechssl.errors import InputError

R = TypeVar("R")


def claim_settings(out: Path, wanted: dict[str, Any], name: str) -> None:
    """Begin a folder, or go on with one of the same settings. name: of the corpus, as it is written.

    Raises InputError for a folder that was begun with other settings or holds something else.
    """
    begun = out / "settings.json"
    if begun.is_file():
        if read_json(begun) != json.loads(json.dumps(wanted)):
            raise InputError(f"{out} holds the {name} corpus made with other settings (see {begun}); choose another folder")
    elif out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty and not the {name} corpus; choose another folder")
    else:
        write_json(begun, wanted)


def in_parallel(function: Callable[..., R], jobs: Sequence[tuple[Any, ...]], workers: int) -> Iterable[R]:
    """What the function gives for every job, in processes where there are several workers; in no certain order."""
    if workers <= 1:
        yield from map(function, jobs)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(function, jobs, chunksize=4)


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """A manifest, one record a line."""
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
