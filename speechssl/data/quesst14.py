"""Prepare the English part of QUESST 2014 for QbE (Anguera et al., MediaEval 2014)."""

from __future__ import annotations

from dataclasses import replace

from speechssl.data.options import Quesst14
from speechssl.data.superb import DOCUMENTS, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Order,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)

ENGLISH = "nnenglish"
LAYOUT = (
    "give the folder quesst14Database, which holds Audio, dev_queries, eval_queries and scoring"
)
COUNTS = {DOCUMENTS: 2_438, "dev": 138, "test": 138}


def prepare_quesst14(o: Quesst14) -> Cards:
    """Write `o.out`/qbe and return its card. Raises as `prepare`."""
    return prepare(Order("quesst14", o, ["qbe"], LAYOUT), _read)


def _read(order: Order) -> dict[str, Prepared]:
    lists = {DOCUMENTS: "utterances", "dev": "dev", "test": "eval"}
    utterances: dict[str, list[Utterance]] = {split: [] for split in lists}
    for split, name in lists.items():
        # lines such as "quesst14Database/Audio/quesst14_00001.wav nnenglish": the path below the
        # folder, whatever that was called
        for _, (path, language, *_) in read_fields(
            order.find(f"scoring/language_key_{name}.lst"), 2
        ):
            if language == ENGLISH:
                audio = order.source / path.partition("/")[2]
                utterances[split].append(Utterance(audio.stem, str(audio), 0.0))
    splits = gather_utterances(order, utterances, COUNTS)
    document_ids = {u.id for u in splits[DOCUMENTS]}
    for split in ("dev", "test"):  # the queries, with the documents that hold them
        name = lists[split]
        truth = order.find(f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm")
        matches: dict[str, set[str]] = {u.id: set() for u in splits[split]}
        for _, fields in read_fields(truth, 1):
            # LEXEME document channel start duration query
            if fields[0] != "LEXEME" or len(fields) <= 5:
                continue
            document, query = fields[1], fields[5]
            if query in matches and document in document_ids:
                matches[query].add(document)
        splits[split] = [replace(u, matches=tuple(sorted(matches[u.id]))) for u in splits[split]]
    return {"qbe": Prepared("qbe", splits)}
