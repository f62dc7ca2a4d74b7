"""What others published (published.yaml), to be laid beside what is measured here: encoders on SUPERB, systems on corpora of QA."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from speechssl.data.records import corpus_card
from speechssl.results import Table

MARK = "Published, on the published sets; not comparable with synthetic data."
TOEFL_QA_SOURCE = (
    "the README of github.com/iamyuanchung/TOEFL-QA, which says neither how questions with several right options count nor what "
    "was read: probably manual transcripts, so that these stand beside the system text and not beside those that listen"
)
QA_MARK = (
    "Published figures, on the published recordings and with models of their size: orientation, not comparable with other data "
    "(synthetic speech above all) or other scorers."
)
QA_TITLE = "Published, for orientation"
QA_COLUMNS = ("corpus", "system", "WER", "FF1", "AOS", "F1", "EM", "accuracy", "source")


@cache
def figures() -> dict[str, Any]:
    """What published.yaml has, which says what it is."""
    found: dict[str, Any] = yaml.safe_load(resources.files("speechssl.eval").joinpath("published.yaml").read_text("utf-8"))
    return found


def published() -> dict[str, dict[tuple[str, str], float]]:
    """Of SUPERB: encoder -> (task, metric) -> value."""
    superb = figures()["superb"]
    columns = [tuple(column.split()) for column in superb["columns"]]
    return {encoder: dict(zip(columns, values, strict=True)) for encoder, values in superb["encoders"].items()}


def published_choice(corpus: Path, split: str) -> str:
    """A table of what was published on this corpus, to stand below ours; nothing where nothing was. split: ours."""
    name = str(corpus_card(corpus).get("corpus", ""))
    if "".join(c for c in name.lower() if c.isalnum()) != "toeflqa":
        return ""
    ours = "" if split == "test" else f"; ours above are on {split}, which is not theirs"
    rows = tuple((row["system"], row["accuracy"], row["source"]) for row in figures()["toefl_qa"])
    return Table("", ("published, TOEFL-QA test", "accuracy (%)", "source"), rows, f"From {TOEFL_QA_SOURCE}{ours}.").text


def published_table(corpora: Sequence[str]) -> Table | None:
    """Systems on corpora and splits ("nmsqa dev", names as in their cards), in the columns in which any of them has something.

    Of a split without any, all of its corpus; None where nothing was published.
    """
    about = "probably on manual transcripts: beside text"  # on what these were measured, which the README does not say
    choice = [row | {"corpus": "toefl-qa test", "source": f"{row['source']}; {about}"} for row in figures()["toefl_qa"]]
    every = [tuple(row.get(column) for column in QA_COLUMNS) for row in (*figures()["spoken_qa"], *choice)]
    rows: dict[tuple[Any, ...], None] = {}  # in their order, each once
    for name in map(_plain, corpora):
        here = [row for row in every if row[0] == name]
        rows |= dict.fromkeys(here or [row for row in every if row[0].rsplit(" ", 1)[0] == name.rsplit(" ", 1)[0]])
    filled = [i for i in range(len(QA_COLUMNS)) if any(row[i] is not None for row in rows)]
    if not rows:
        return None
    return Table(QA_TITLE, tuple(QA_COLUMNS[i] for i in filled), tuple(tuple(row[i] for i in filled) for row in rows), QA_MARK)


def _plain(name: str) -> str:
    """A corpus is written nmsqa, NMSQA, toefl_qa or toefl-qa."""
    return name.lower().replace("_", "-").replace("slue-sqa5", "slue-sqa-5")
