"""Prepare the English part of QUESST 2014 for query by example, QbE (Anguera et al., MediaEval
2014)."""

from __future__ import annotations

from dataclasses import replace

from speechssl.data.options import Quesst14
from speechssl.data.superb import DOCUMENTS, Utterance
from speechssl.data.superb_sets import (
    Cards,
    Preparation,
    Prepared,
    gather_utterances,
    prepare,
    read_fields,
)

ENGLISH = "nnenglish"
COUNTS = {DOCUMENTS: 2_438, "dev": 138, "test": 138}
NAMES = {DOCUMENTS: "utterances", "dev": "dev", "test": "eval"}  # split -> its name in scoring/


def prepare_quesst14(o: Quesst14) -> Cards:
    """Write `o.out`/qbe and return its card. Raises as `prepare`."""
    return prepare(Preparation("quesst14", o, ["qbe"]), _read)


def _read(preparation: Preparation) -> dict[str, Prepared]:
    """Read the English documents, and the English queries of dev and test with the documents that
    contain them."""
    utterances: dict[str, list[Utterance]] = {split: [] for split in NAMES}
    for split, name in NAMES.items():
        # "quesst14Database/Audio/quesst14_00001.wav nnenglish": the source may have been renamed,
        # so only the path below the folder counts
        languages = preparation.find(f"scoring/language_key_{name}.lst")
        for _, (path, language, *_) in read_fields(languages, 2):
            if language == ENGLISH:
                audio = preparation.source / path.partition("/")[2]
                utterances[split].append(Utterance(audio.stem, str(audio)))
    splits = gather_utterances(preparation, utterances, COUNTS)
    document_ids = {u.id for u in splits[DOCUMENTS]}
    for split in ("dev", "test"):
        name = NAMES[split]
        truth = preparation.find(f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm")
        matches: dict[str, set[str]] = {u.id: set() for u in splits[split]}  # query -> documents
        for _, fields in read_fields(truth, 1):
            # LEXEME document channel start duration query
            if fields[0] != "LEXEME" or len(fields) <= 5:
                continue
            document, query = fields[1], fields[5]
            if query in matches and document in document_ids:
                matches[query].add(document)
        splits[split] = [replace(u, matches=tuple(sorted(matches[u.id]))) for u in splits[split]]
    return {"qbe": Prepared(splits)}
