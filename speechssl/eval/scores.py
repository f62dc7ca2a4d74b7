"""A comparison needs this of an evaluation, without its corpus: a line a question, and a card.

`scores/<system>/<condition>.jsonl` beside the predictions; `<condition>.card.json` says of which
corpus, and holds the hash of the lines. Lines of one corpus are about the same questions whatever
the system is, and in the order of the manifest.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rapidfuzz.distance import Levenshtein

from speechssl.artifacts import hash_bytes, parse_json, write_json, write_text
from speechssl.augment import Condition
from speechssl.data.records import Corpus, Passage, Question, corpus_card, voices_of
from speechssl.errors import InputError
from speechssl.text import answer_tokens, language_of, pieces, tokens

if TYPE_CHECKING:
    # which imports torch; a page of results does not
    from speechssl.multiple_choice.model import ScoredChoice

# ---- what kind of answer a question has: by the rules of answer_types.yaml, which says what they
# are

TYPES = ("date", "number", "person", "place", "reason", "manner", "clause", "proper noun", "other")


@cache
def _rules() -> dict[str, Any]:
    return dict(
        yaml.safe_load(
            resources.files("speechssl.eval").joinpath("answer_types.yaml").read_text("utf-8")
        )
    )


def answer_type(question: str, answer: str, language: str) -> str:
    """Return one of TYPES. Raises InputError for a language without text rules."""
    words, language = answer_tokens(answer, language), language_of(language)
    rules = _rules()[language]
    for kind, text in (("asked", question.lower()), ("form", answer.lower())):
        for name, rule in rules[kind].items():
            if re.search(rule, text, re.VERBOSE):
                return str(name)
    if len(words) >= rules["clause"]:
        return "clause"
    small = _rules()["small"].split()
    names = [w for w in re.findall(r"[^\W\d_]+", answer) if w.lower() not in small]
    cased = any(c.islower() for c in answer + question)  # else capitals say nothing
    return (
        "proper noun"
        if language == "en" and names and cased and all(w[0].isupper() for w in names)
        else "other"
    )


# ---- how an answer errs
#
#     right             FF1 (of an answer without times: F1 of its words) is RIGHT or more
#     too long          below that, and it holds half of the gold answer or more
#     too short         below that, and half of it or more lies in the gold answer
#     little overlap    they share less than half of either
#     no overlap        they share nothing
#     no answer         the system predicted nothing, or could not be asked
#
# Below 1/2, FF1 is less than twice the smaller of the two shares, so that an answer is not both too
# long and too short.

ERRORS = ("right", "too long", "too short", "little overlap", "no overlap", "no answer")
RIGHT = 0.5


def error_type(shared: float, predicted: float, gold: float) -> str:
    """Return one of ERRORS, from what an answer and the gold one have in common and their own
    lengths, in seconds or words; gold > 0."""
    if predicted <= 0:
        return "no answer"
    if 2 * shared / (predicted + gold) >= RIGHT:
        return "right"
    if 2 * shared >= gold:
        return "too long"
    if 2 * shared >= predicted:
        return "too short"
    return "little overlap" if shared > 0 else "no overlap"


# ---- lines


AROUND = 10  # words on either side of an answer, where no sentence can be made out
LONGEST = 60  # words of a sentence; what is longer was not punctuated
_ENDS = ".?!。？！；;\n"


def write_lines(
    out: Path,
    system: str,
    condition: Condition,
    lines: Sequence[Mapping[str, Any]],
    corpus: Corpus,
    predictions: Mapping[str, Any],
    **facts: Any,
) -> Path:
    """Write scores with their card; return the file. lines: with `id`, `passage`, and scores in [0,
    1] under their metrics.

    predictions: that the lines are scores of, with `data`. facts: what the card says beside what
    there is to say of the corpus.
    """
    path = out / "scores" / system / f"{condition.label.replace(' ', '-')}.jsonl"
    card = {
        name: predictions[name]
        for name in ("made_from", "data", "seed", "snr_over")
        if name in predictions
    }
    card |= {"condition": condition.short, "snr_db": condition.snr_db, **facts}
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_text(path, text)
    source = corpus_card(corpus.root)
    corpus_facts = {
        "corpus": str(source.get("corpus", corpus.root.name)),
        "split": corpus.split,
        "synthetic": str(source.get("synthetic", ""))
        or ("synthetic" if any(r.synthetic for r in corpus.records) else ""),
        "languages": sorted({r.language for r in corpus.records}),
    }
    write_json(
        path.with_suffix(".card.json"),
        card | corpus_facts | {"system": system, "lines": hash_bytes(text.encode())},
    )
    return path


def question_lines(
    scored: Sequence[Any],
    corpus: Corpus,
    transcripts: Mapping[str, str],
    metrics: Sequence[str] = ("ff1", "aos", "em", "f1", "error"),
) -> list[dict[str, Any]]:
    """Make the lines of spoken question answering and retrieval. The answer is its first
    annotation; what is not known is None.

    scored: with `id` and the metrics; transcripts: of the passages by id; none for a system without
    any.
    error: one of ERRORS, "" where neither times nor words can tell.
    voice: of the passage, "" where it is not known, or training knew it (`data.records.voices_of`);
    asker: of the question. answer_words: in Chinese characters. position: of the middle of the
    answer in its passage, 0 to 1, by time or else by the text. sentence_wer: errors in the sentence
    with the answer over its words.
    """
    questions, voices = {q.id: q for q in corpus.questions}, voices_of(corpus)
    errors: dict[str, Errors | None] = {}
    lines = []
    for score in scored:
        question = questions[score.id]
        passage, answer = corpus.passages[question.passage], question.answers[0]
        if passage.id not in errors:
            errors[passage.id] = (
                recognition_errors(passage, transcripts.get(passage.id, ""))
                if transcripts
                else None
            )
        counted, place = errors[passage.id], located(question, passage)
        span = None if answer.start is None or answer.end is None else (answer.start, answer.end)
        position: float | None
        if span and passage.seconds > 0:
            position = min(1.0, sum(span) / 2 / passage.seconds)
        else:
            position = (
                None
                if place is None or not passage.written
                else (place[0] + place[1]) / 2 / len(passage.written)
            )
        sentence_wer = None
        if counted and place and passage.text:
            words, places = counted
            start, end = sentence(passage.text, *place, passage.language)
            first = len(tokens(passage.text[:start], passage.language))
            last = max(min(len(tokens(passage.text[:end], passage.language)), words), first + 1)
            sentence_wer = (bisect_left(places, last) - bisect_left(places, first)) / (last - first)
        lines.append(
            {
                "id": question.id,
                "passage": passage.id,
                "voice": voices[passage.id],
                "asker": voices[question.id],
                **{metric: getattr(score, metric) for metric in metrics},
                "answer_seconds": span[1] - span[0] if span else None,
                "answer_words": len(answer_tokens(answer.text, question.language)),
                "position": position,
                "type": answer_type(question.written, answer.text, question.language),
                "relation": question.relation,
                "sentence_wer": sentence_wer,
                "passage_errors": len(counted[1]) if counted else None,
                "passage_words": counted[0] if counted else None,
            }
        )
    return lines


def choice_lines(
    scored: Sequence[ScoredChoice], corpus: Corpus, transcripts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Make the lines of multiple choice: the scores, what there is to say of the right option (the
    first), and the errors in the passage.

    Where the answer stands in the passage is not known. transcripts: of the passages by id; none
    for a system without any.
    """
    questions, voices = {q.id: q for q in corpus.choices}, voices_of(corpus)
    passages = dict.fromkeys(s.passage for s in scored) if transcripts else {}
    errors = {i: recognition_errors(corpus.passages[i], transcripts.get(i, "")) for i in passages}
    lines = []
    for score in scored:
        question, counted = questions[score.id], errors.get(score.passage)
        right = question.options[question.correct[0]]
        details: dict[str, Any] = {
            "voice": voices[score.passage],
            "asker": voices.get(score.id, ""),
        }
        details |= {"answer_words": len(answer_tokens(right, question.language))}
        details |= {
            "type": answer_type(question.written, right, question.language),
            "relation": question.relation,
        }
        counts = {
            "passage_errors": len(counted[1]) if counted else None,
            "passage_words": counted[0] if counted else None,
        }
        lines.append(asdict(score) | details | counts)
    return lines


# words of a reference; of every error the word it stands at, ascending
Errors = tuple[int, list[int]]


def recognition_errors(passage: Passage, transcript: str) -> Errors | None:
    """Find where a transcript errs, as WER counts it; None without a reference."""
    reference, words = tokens(passage.text, passage.language), tokens(transcript, passage.language)
    if not reference:
        return None
    return len(reference), sorted(
        min(e.src_pos, len(reference) - 1) for e in Levenshtein.editops(reference, words)
    )


def located(question: Question, passage: Passage) -> tuple[int, int] | None:
    """Find where the answer stands in what is written of the passage: by its offset; through the
    times of the words, where the text has as many words as there are times; or the first place that
    has its text.
    """
    answer = question.answers[0]
    if answer.char_start is not None:
        return answer.char_start, answer.char_start + len(answer.text)
    written = pieces(passage.written, passage.language)
    if answer.start is not None and answer.end is not None and len(written) == len(passage.words):
        inside = [
            i
            for i, w in enumerate(passage.words)
            if answer.start < (w.start + w.end) / 2 < answer.end
        ]
        if inside:
            last, start = written[inside[-1]], written[inside[0]][1]
            return start, last[1] + len(last[0])
    at = passage.written.lower().find(answer.text.lower()) if answer.text.strip() else -1
    return None if at < 0 else (at, at + len(answer.text))


def sentence(text: str, start: int, end: int, language: str) -> tuple[int, int]:
    """Find the offsets of the sentence with [start, end); of AROUND words on either side, where it
    is longer than LONGEST or there is one.

    A point counts as an end where white space or nothing follows, so that 3.5 is one number.
    """
    ends = [
        i + 1
        for i, c in enumerate(text)
        if c in _ENDS and (c != "." or not text[i + 1 : i + 2].strip())
    ]
    before = max((e for e in ends if e <= start), default=0)
    after = min((e for e in ends if e >= end), default=len(text))
    written = pieces(text, language)
    starts = [at for _, at in written]
    if bisect_left(starts, after) - bisect_left(starts, before) <= LONGEST and (
        before > 0 or after < len(text)
    ):
        return before, after
    first, last = (
        max(bisect_left(starts, start + 1) - 1 - AROUND, 0),
        min(bisect_left(starts, end) - 1 + AROUND, len(written) - 1),
    )
    return (starts[first], starts[last] + len(written[last][0])) if written else (0, len(text))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a scores file. Raises InputError for a file that is missing or damaged."""
    try:
        lines = [
            parse_json(line)
            for line in path.read_text(encoding="utf-8").split("\n")
            if line.strip()
        ]
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the scores {path} ({error}); evaluate again") from error
    if not lines or not all(
        isinstance(line, dict) and isinstance(line.get("id"), str) for line in lines
    ):
        raise InputError(f"{path} is not a file of scores, one line a question; evaluate again")
    if len({line["id"] for line in lines}) < len(lines):
        raise InputError(f"{path} scores a question twice; evaluate again")
    return lines
