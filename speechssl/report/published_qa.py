"""What systems reached on published corpora of spoken question answering: orientation beside one's own table.

Percent. "noted" is as it was noted down from the paper and was not compared with a second source.
"""

from __future__ import annotations

from collections.abc import Sequence

from speechssl.report.published import TOEFL_QA, TOEFL_QA_MARK

MARK = (
    "Published figures, on the published recordings and with models of their size: orientation, not comparable with other data "
    "(synthetic speech above all) or other scorers."
)
TITLE = "Published, for orientation"
COLUMNS = ("corpus", "system", "WER", "FF1", "AOS", "F1", "EM", "accuracy", "source")
DUAL = "DUAL, arXiv 2203.04911"
ROWS: tuple[tuple[str, str, float | None, float | None, float | None, float | None, float | None, float | None, str], ...] = (
    ("nmsqa dev", "DUAL, HuBERT-64", None, 47.8, 42.4, None, None, None, DUAL),
    ("nmsqa dev", "DUAL, HuBERT-128", None, 54.2, 48.5, None, None, None, DUAL),
    ("nmsqa dev", "DUAL, HuBERT-512", None, 55.0, 49.6, None, None, None, DUAL),
    ("nmsqa dev", "cascade, SpeechBrain", 15.6, 56.7, None, None, None, None, f"{DUAL}, noted"),
    ("nmsqa dev", "cascade, wav2vec 2.0", 10.5, 65.7, None, None, None, None, f"{DUAL}, noted"),
    ("nmsqa test", "DUAL, HuBERT-64", None, 39.0, 33.0, None, None, None, DUAL),
    ("nmsqa test", "DUAL, HuBERT-128", None, 56.0, 49.1, None, None, None, DUAL),
    ("nmsqa test", "DUAL, HuBERT-512", None, 17.3, 12.5, None, None, None, DUAL),
    ("nmsqa test", "cascade, SpeechBrain", 61.7, 17.3, None, None, None, None, f"{DUAL}, noted"),
    ("nmsqa test", "cascade, wav2vec 2.0", 11.3, 64.2, None, None, None, None, f"{DUAL}, noted"),
    ("slue-sqa-5 test", "text + DeBERTa", None, 62.3, None, None, None, None, "SLUE phase 2"),
    ("slue-sqa-5 test", "cascades, best", None, 43.3, None, None, None, None, "SLUE phase 2"),
    ("slue-sqa-5 test", "cascades, worst", None, 32.7, None, None, None, None, "SLUE phase 2"),
    ("slue-sqa-5 test", "DUAL", None, 21.8, None, None, None, None, "SLUE phase 2"),
    ("spoken-squad test", "SpeechBERT", None, None, None, 64.1, 51.2, None, "SpeechBERT, arXiv 1910.11559, noted"),
    ("spoken-squad test", "cascade", 22.7, None, None, 68.2, 56.3, None, "SpeechBERT, arXiv 1910.11559, noted"),
    *(
        ("toefl-qa test", system, None, None, None, None, None, value, f"{paper}; {TOEFL_QA_MARK}: beside text")
        for system, paper, value in TOEFL_QA
    ),
)


def published_rows(corpora: Sequence[str]) -> list[tuple[object, ...]]:
    """Those about corpora and splits ("nmsqa dev", names as in their cards); of a split without any, all of its corpus."""
    found = [[row for row in ROWS if _plain(row[0]) == _plain(c)] or _of_corpus(c) for c in corpora]
    return list(dict.fromkeys(row for some in found for row in some))


def _of_corpus(name: str) -> list[tuple[object, ...]]:
    return [row for row in ROWS if _plain(row[0]).rsplit(" ", 1)[0] == _plain(name).rsplit(" ", 1)[0]]


def published_columns(rows: Sequence[tuple[object, ...]]) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
    """The columns in which any of the rows has something, and the rows without the others."""
    filled = [i for i in range(len(COLUMNS)) if any(row[i] is not None for row in rows)]
    return tuple(COLUMNS[i] for i in filled), tuple(tuple(row[i] for i in filled) for row in rows)


def _plain(name: str) -> str:
    """A corpus is written nmsqa, NMSQA, toefl_qa or toefl-qa."""
    return name.lower().replace("_", "-").replace("slue-sqa5", "slue-sqa-5")
