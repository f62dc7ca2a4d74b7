"""The folder of a corpus while it is made: begun, gone on with, left alone when finished, removed where nothing came of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechssl.artefacts import read_json
from speechssl.corpora.spoken_qa.drafts import begin
from speechssl.errors import InputError


@contextmanager
def claimed(out: Path, corpus: str, source: Path, **settings: Any) -> Iterator[dict[str, Any] | None]:
    """Gives the data report of a folder that was finished with these settings, else None: it is to be made.

    A folder that is begun here is removed again on InputError, except where archives were unpacked into it.
    """
    fresh = not out.exists()
    begin(out, corpus, source, **settings)
    if (out / "card.json").is_file():
        print(f"{out} is finished; nothing was done")
        yield dict(read_json(out / "data_report.json"))
        return
    try:
        yield None
    except InputError:
        if fresh and not (out / "unpacked").exists():
            shutil.rmtree(out)
        raise
