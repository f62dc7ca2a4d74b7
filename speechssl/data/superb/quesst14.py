"""QUESST 2014 (Anguera et al., MediaEval 2014; speech.fit.vutbr.cz/files/quesst14Database.tgz) for QbE: its English part.

SUPERB (s3prl `downstream/quesst14_dtw/dataset.py`) takes what `scoring/language_key_*.lst` calls nnenglish: of 560 and 555 queries
138 each, of 12,492 documents 2,438. Which documents hold a query stands in the LEXEME lines of the ground truth,
`scoring/groundtruth_quesst14_{dev,eval}/quesst14_{dev,eval}.rttm`; documents of other languages that hold it do not count.
The three numbers are from a public report of s3prl runs on the set; its own paper, which has the totals, was not at hand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from speechssl.data.superb.sets import Cards, Order, Prepared, gathered, order, prepare, read_fields
from speechssl.data.utterances import DOCUMENTS, Utterance
from speechssl.errors import InputError

ENGLISH = "nnenglish"
LISTS = {DOCUMENTS: "utterances", "dev": "dev", "test": "eval"}
COUNTS = {DOCUMENTS: 2_438, "dev": 138, "test": 138}
LAYOUT = "give the folder quesst14Database, which holds Audio, dev_queries, eval_queries and scoring"


def prepare_quesst14(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/qbe and return its card.

    Raises InputError for a wrong folder, counts that are not the published ones (unless `any_count`), or queries that no
    document holds.
    """
    return prepare(order("quesst14", source, out, ["qbe"], LAYOUT, any_count), _read)


def _read(order: Order) -> dict[str, Prepared]:
    splits = gathered(order, {split: _listed(order, name) for split, name in LISTS.items()}, COUNTS)
    known = {u.id for u in splits[DOCUMENTS]}
    for split in ("dev", "test"):
        splits[split] = _matched(order, splits[split], LISTS[split], known)
    return {"qbe": Prepared("qbe", splits)}


def _listed(order: Order, name: str) -> list[Utterance]:
    """Lines such as "quesst14Database/Audio/quesst14_00001.wav nnenglish": the path below the folder, whatever that was called."""
    lines = read_fields(order.find(f"scoring/language_key_{name}.lst"), 2)
    paths = [order.source / path.partition("/")[2] for _, (path, language, *_) in lines if language == ENGLISH]
    return [Utterance(path.stem, str(path), 0.0) for path in paths]


def _matched(order: Order, queries: list[Utterance], name: str, known: set[str]) -> list[Utterance]:
    """The queries with the documents that hold them."""
    truth = order.find(f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm")
    matches: dict[str, set[str]] = {query.id: set() for query in queries}
    for _, fields in read_fields(truth, 1):
        if fields[0] == "LEXEME" and len(fields) > 5 and fields[5] in matches and fields[1] in known:
            matches[fields[5]].add(fields[1])  # LEXEME document channel start duration query
    if not any(matches.values()):
        raise InputError(f"{truth} says of no query which documents hold it; {order.layout}")
    return [replace(query, matches=tuple(sorted(matches[query.id]))) for query in queries]
