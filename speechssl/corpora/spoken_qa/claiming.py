"""The folder of a corpus while it is made: begun, gone on with, left alone when finished, removed where nothing came of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artefacts import read_json
from speechssl.corpora.spoken_qa.drafts import begin
from speechssl.errors import InputError


@contextmanager
def claimed(out: Path, corpus: str, source: Path, **settings: Any) -> Iterator[dict[str, Any] | None]:
    """Gives the data report of a folder that was finished with these settings, else None: it is to be made.

    A folder that is begun here is removed (one that was empty: emptied) again on InputError, except where archives were unpacked
    into it.
    """
    empty = out.is_dir() and not any(out.iterdir())
    fresh = empty or not out.exists()
    begin(out, corpus, source, **settings)
    report = _finished(out)
    if report is not None:
        yield report
        return
    try:
        yield None
    except InputError:
        if fresh and not (out / "unpacked").exists():
            shutil.rmtree(out)
            if empty:
                out.mkdir()
        raise


def _finished(out: Path) -> dict[str, Any] | None:
    """The data report of a folder that was begun with these settings and is whole, which is said; else None."""
    if not (out / "card.json").is_file():
        return None
    tqdm.write(f"{out} holds this corpus already, from the same files; it is left as it is", file=sys.stderr)
    return dict(read_json(out / "data_report.json"))
