"""NMSQA (DUAL, arXiv 2203.04911): SQuAD 1.1 read by speech synthesisers (train, dev), and questions read by people (test).

Three layouts are read, each as it was downloaded or unpacked: Parquet tables ({split}.parquet, or data/{split}-*.parquet of the
Hugging Face folder voidful/NMSQA) with recordings in folders or archives beside them, and the original release (CSV and TextGrids).
`nmsqa_times.py` says which of the published times are used; what the recordings allow is decided in `nmsqa_drafts.py`:

- A passage is joined from its sentences' recordings (22,050 or 24,000 Hz), those that {split}_segment_id.json lists. Sentences that
  the release itself does not have are counted and left out as in the published system; nothing is shifted, as times are counted
  from the beginning of the sentence they are in. A question whose sentence is missing is set aside.
- A passage of which a listed recording is missing from the source is set aside with its questions: its published times would not
  hold.
- A split without recordings is text only. A split with some keeps what is whole: a system that listens needs audio throughout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speechssl.corpora.spoken_qa.archives import ARCHIVES, archives_in, unpacked
from speechssl.corpora.spoken_qa.claiming import claimed
from speechssl.corpora.spoken_qa.drafts import check_used, finish
from speechssl.corpora.spoken_qa.ledger import Ledger, is_invented
from speechssl.corpora.spoken_qa.nmsqa_drafts import draft
from speechssl.corpora.spoken_qa.nmsqa_files import Files, find_files
from speechssl.corpora.spoken_qa.nmsqa_split import Split, read_split
from speechssl.corpora.spoken_qa.preparing import Wanted, spoken
from speechssl.corpora.spoken_qa.recordings import check_common, stamp
from speechssl.errors import InputError

PUBLISHED = {  # train is all of SQuAD 1.1 (87.6k rows at Hugging Face); passages of dev as its segment_id.json has them
    "train": {"questions": 87_599},
    "dev": {"questions": 10_570, "passages": 2_067},
    "test": {"questions": 171},
}
LAYOUT = (
    "give the folder (or one table) of the Parquet release ({split}.parquet), of the original release ({split}-answer-span.csv and "
    "meta-{split}.csv), or of voidful/NMSQA at Hugging Face (data/{split}-*.parquet)"
)
ABOUT = {
    "source": "NMSQA, github.com/DanielLin94144/DUAL-textless-SQA, huggingface.co/datasets/voidful/NMSQA",
    "paper": "arXiv 2203.04911",
    "licence": "CC BY-SA 4.0 (SQuAD's texts); see the release for the recordings",
}


def prepare_nmsqa(source: Path, out: Path, wanted: Wanted = Wanted()) -> dict[str, Any]:
    """Prepare what there is of NMSQA and return the data report.

    source: a folder in any of the layouts, or one table of it. Raises InputError, one sentence, for a folder in which nothing is
    known, and for damaged tables where no split is left.
    """
    source, out = Path(source).resolve(), Path(out)
    root, only = (source.parent, source) if source.is_file() else (source, None)
    if not root.is_dir():
        raise InputError(f"{source} does not exist; {LAYOUT}")
    if not find_files([root], only) and (only or not archives_in(root)):
        raise InputError(f"{source} holds no table of NMSQA; {LAYOUT}")
    made_from = stamp(root, ".parquet", ".csv", ".json", *ARCHIVES)
    with claimed(out, "nmsqa", source, made_from=made_from, **wanted.settings) as report:
        if report is not None:
            return report
        roots = [root] if only else unpacked(root, out)
        tables = find_files(roots, only)
        if not tables:
            raise InputError(f"{source} holds no table of NMSQA, nor do its archives; {LAYOUT}")
        return _prepared(roots, tables, out, wanted, Ledger("nmsqa", PUBLISHED, wanted.passages, is_invented(root)))


def _prepared(roots: Sequence[Path], tables: Mapping[str, Files], out: Path, wanted: Wanted, ledger: Ledger) -> dict[str, Any]:
    splits = _readable(roots, tables, ledger)
    check_common({s.name: s.asked_for for s in splits}, {s.name: s.recordings for s in splits}, roots[0])
    drafts = {split.name: draft(split, out, ledger, wanted.speak, wanted.workers) for split in splits}
    check_used(drafts, ledger, roots[0])
    return finish(out, spoken(out, drafts, ledger, wanted), ledger, ABOUT)


def _readable(roots: Sequence[Path], tables: Mapping[str, Files], ledger: Ledger) -> list[Split]:
    """The splits whose tables can be read; the others are told. Raises InputError where none can."""
    splits: list[Split] = []
    errors: dict[str, InputError] = {}
    for name, files in tables.items():
        try:
            splits.append(read_split(name, files, roots, ledger))
        except InputError as error:
            errors[name] = error
    if not splits:
        raise next(iter(errors.values()))
    for name, why in errors.items():
        ledger.count(name, "questions", 0)
        ledger.remark(name, f"splits that cannot be read ({name})", f"nothing was made of it: {why}")
    return splits
