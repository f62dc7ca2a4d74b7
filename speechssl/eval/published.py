"""What others published, to be laid beside what is measured here: encoders on SUPERB, systems on TOEFL-QA and spoken QA corpora.

Percent; MTWV times 100. SUPERB is as its leaderboard (superbbenchmark.org) has it: only the tasks in CHECKED were compared with a
second source. Of spoken QA, "noted" is as it was noted down from the paper and was not compared with a second source.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speechssl.data.records import corpus_card
from speechssl.results import Table

MARK = "Published, on the published sets; not comparable with synthetic data."
CHECKED = frozenset({"sid", "sd", "er"})  # tasks
COLUMNS = (
    ("pr", "per"), ("asr", "wer"), ("ks", "acc"), ("qbe", "mtwv"), ("sid", "acc"), ("asv", "eer"), ("sd", "der"), ("er", "acc"),
    ("ic", "acc"), ("sf", "slot_f1"), ("sf", "slot_cer"),
)  # fmt: skip
VALUES = {
    "wav2vec 2.0 base": (5.74, 6.43, 96.23, 2.33, 75.18, 6.02, 6.08, 63.43, 92.35, 88.30, 24.77),
    "HuBERT base": (5.41, 6.42, 96.30, 7.36, 81.42, 5.11, 5.88, 64.92, 98.34, 88.53, 25.20),
    "WavLM base+": (3.92, 5.59, 97.37, 9.88, 89.42, 4.07, 3.50, 68.65, 99.00, 90.58, 21.20),
    "HuBERT large": (3.53, 3.62, 95.29, 3.53, 90.33, 5.98, 5.75, 67.62, 98.76, 89.81, 21.76),
    "WavLM large": (3.06, 3.44, 97.86, 8.86, 95.49, 3.77, 3.24, 70.62, 99.31, 92.21, 18.36),
}


def published() -> dict[str, dict[tuple[str, str], float]]:
    """Encoder -> (task, metric) -> value."""
    return {encoder: dict(zip(COLUMNS, values, strict=True)) for encoder, values in VALUES.items()}


TOEFL_QA = (  # system, paper, accuracy on the test split in percent, as the table in the README of the data's repository has them
    ("AMRNN, attention over memory", "Tseng et al. 2016, arXiv 1608.06378", 42.5),
    ("MemN2N, end-to-end memory network", "Sukhbaatar et al. 2015, arXiv 1503.08895", 45.2),
    ("HAM, hierarchical attention", "Fang et al. 2016, arXiv 1608.07775", 49.1),
    ("QACNN, pre-trained on MovieQA", "Chung et al. 2018, arXiv 1711.05345", 56.1),
)
TOEFL_QA_SOURCE = (
    "the README of github.com/iamyuanchung/TOEFL-QA, which says neither how questions with several right options count nor what "
    "was read: probably manual transcripts, so that these stand beside the system text and not beside those that listen"
)
TOEFL_QA_MARK = "probably on manual transcripts"


def published_choice(corpus: Path, split: str) -> str:
    """A table of what was published on this corpus, to stand below ours; nothing where nothing was. split: ours."""
    name = str(corpus_card(corpus).get("corpus", ""))
    if "".join(c for c in name.lower() if c.isalnum()) != "toeflqa":
        return ""
    ours = "" if split == "test" else f"; ours above are on {split}, which is not theirs"
    rows = tuple((system, value, paper) for system, paper, value in TOEFL_QA)
    return Table("", ("published, TOEFL-QA test", "accuracy (%)", "source"), rows, f"From {TOEFL_QA_SOURCE}{ours}.").text


QA_MARK = (
    "Published figures, on the published recordings and with models of their size: orientation, not comparable with other data "
    "(synthetic speech above all) or other scorers."
)
QA_TITLE = "Published, for orientation"
QA_COLUMNS = ("corpus", "system", "WER", "FF1", "AOS", "F1", "EM", "accuracy", "source")
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


def published_table(corpora: Sequence[str]) -> Table | None:
    """Systems on corpora and splits ("nmsqa dev", names as in their cards), in the columns in which any of them has something.

    Of a split without any, all of its corpus; None where nothing was published.
    """
    rows: dict[tuple[object, ...], None] = {}
    for name in corpora:
        here = [row for row in ROWS if _plain(row[0]) == _plain(name)]
        rows |= dict.fromkeys(here or [row for row in ROWS if _plain(row[0]).rsplit(" ", 1)[0] == _plain(name).rsplit(" ", 1)[0]])
    filled = [i for i in range(len(QA_COLUMNS)) if any(row[i] is not None for row in rows)]
    if not rows:
        return None
    return Table(QA_TITLE, tuple(QA_COLUMNS[i] for i in filled), tuple(tuple(row[i] for i in filled) for row in rows), QA_MARK)


def _plain(name: str) -> str:
    """A corpus is written nmsqa, NMSQA, toefl_qa or toefl-qa."""
    return name.lower().replace("_", "-").replace("slue-sqa5", "slue-sqa-5")
