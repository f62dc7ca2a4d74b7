"""Step 3 of an evaluation, score: predictions -> scores of every question, and rows of results.

`scores/<system>/<condition>.parquet` has a row a question and a card that says of which corpus: a
comparison needs no more. Rows of one corpus are about the same questions whatever the system is,
and in the order of the manifest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from speechssl.artifacts import read_json
from speechssl.augment import Condition
from speechssl.data.records import (
    QUESTIONS,
    Corpus,
    Passage,
    Question,
    corpus_card,
    hash_questions,
    passage_units,
    training_data,
    voices_of,
)
from speechssl.eval.predict import Rows, write_items
from speechssl.metrics import (
    WordErrors,
    exact_match,
    frame_f1,
    overlap_score,
    token_f1,
    word_error_rate,
)
from speechssl.stats import Interval, mean_interval, ratio_interval
from speechssl.text import answer_tokens, error_metric, language_of

if TYPE_CHECKING:
    # which imports torch; a page of results does not
    from speechssl.multiple_choice.model import ScoredChoice

METRICS = ("ff1", "aos", "em", "f1")


# ---- what kind of answer a question has: by the rules in answer_types.yaml


@cache
def _rules() -> dict[str, Any]:
    file = resources.files("speechssl.eval").joinpath("answer_types.yaml")
    return dict(yaml.safe_load(file.read_text("utf-8")))


def answer_type(question: str, answer: str, language: str) -> str:
    """Return the kind of an answer, as answer_types.yaml names it. Raises InputError for a language
    without text rules."""
    language = language_of(language)
    rules = _rules()[language]
    for kind, text in (("asked", question.lower()), ("form", answer.lower())):
        for name, rule in rules[kind].items():
            if re.search(rule, text, re.VERBOSE):
                return str(name)
    if len(answer_tokens(answer, language)) >= rules["clause"]:
        return "clause"
    small = _rules()["small"].split()
    names = [w for w in re.findall(r"[^\W\d_]+", answer) if w.lower() not in small]
    cased = any(c.islower() for c in answer + question)  # else capitals say nothing
    proper = language == "en" and names and cased and all(w[0].isupper() for w in names)
    return "proper noun" if proper else "other"


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


# ---- scores of spoken question answering


@dataclass(frozen=True)
class QuestionScore:
    """A question has these scores, 0 to 1; ff1 and aos are None without times (annotated, or of
    the answer), em and f1 where the system gives no text.
    """

    id: str
    passage: str
    seconds: float  # length of the annotated answer
    ff1: float | None
    aos: float | None
    em: float | None
    f1: float | None
    error: str = ""  # one of ERRORS; "" where neither times nor words can tell


def score_questions(predictions: Mapping[str, Any], corpus: Corpus) -> list[QuestionScore]:
    """Score every answerable question over all its annotations; one that could not be answered
    scores 0."""
    answers = predictions["answers"]
    texts = [a["text"] for a in answers.values()]
    has_text = bool(predictions["transcripts"]) or any(text is not None for text in texts)
    # "no answer" has no times whatever the system has
    starts = [a["start"] for a in answers.values() if a["text"] != ""]
    timed = not starts or any(start is not None for start in starts)
    scores = []
    for question in corpus.answerable:
        scores.append(_score_question(question, answers.get(question.id), has_text, timed))
    return scores


def _score_question(
    question: Question, answer: Mapping[str, Any] | None, has_text: bool, timed: bool
) -> QuestionScore:
    """Score an answer, None: there is none. has_text, timed: the system gives text, and times."""
    gold = []
    for a in question.answers if timed else ():
        if a.start is not None and a.end is not None:
            gold.append((a.start, a.end))
    span = None
    if answer and (answer["end"] or 0) > (answer["start"] or 0):
        span = answer["start"], answer["end"]
    texts = [a.text for a in question.answers]
    predicted = answer["text"] if answer else ""
    error = ""
    if gold:
        error = _time_error(span, gold)
    elif has_text:
        error = _word_error(predicted or "", texts, question.language)
    return QuestionScore(
        question.id,
        question.passage,
        gold[0][1] - gold[0][0] if gold else 0.0,
        frame_f1(span, gold) if gold else None,
        overlap_score(span, gold) if gold else None,
        exact_match(predicted, texts, question.language) if has_text else None,
        token_f1(predicted, texts, question.language) if has_text else None,
        error,
    )


def _time_error(span: tuple[float, float] | None, gold: Sequence[tuple[float, float]]) -> str:
    """Say how an answer errs against the annotation that is most like it, by time."""
    start, end = max(gold, key=lambda g: frame_f1(span, [g]))
    if span is None:
        return error_type(0.0, 0.0, end - start)
    shared = max(0.0, min(span[1], end) - max(span[0], start))
    return error_type(shared, span[1] - span[0], end - start)


def _word_error(predicted: str, texts: Sequence[str], language: str) -> str:
    """Say how an answer errs against the annotation that is most like it, by words."""
    nearest = max(texts, key=lambda text: token_f1(predicted, [text], language))
    words = Counter(answer_tokens(predicted, language))
    gold = Counter(answer_tokens(nearest, language))
    if not gold:
        return ""
    return error_type((words & gold).total(), words.total(), gold.total())


# ---- rows of results


def measure_scores(
    scored: Sequence[Any],
    metrics: Sequence[str],
    transcripts: Mapping[str, str],
    corpus: Corpus,
    seed: int,
) -> dict[str, Interval]:
    """Return the value of every metric with its 95 % bootstrap interval (`passage_units` says what
    is drawn).

    scored: with `id`, `passage` and the metrics; of each the mean over the questions that have it.
    With transcripts the WER (zh: CER) over the passages that are asked about, too: of one that
    could not be recognised every word is missing, as in `compare`.
    """
    values: dict[str, Interval] = {}
    for metric in metrics:
        measured = [s for s in scored if getattr(s, metric) is not None]
        if measured:
            units = passage_units(corpus, [s.passage for s in measured], [s.id for s in measured])
            values[metric] = mean_interval([getattr(s, metric) for s in measured], units, seed)
    asked = {s.passage for s in scored}
    passages = [p for p in corpus.passages.values() if p.id in asked and p.text]
    if transcripts and passages:
        errors = word_errors(passages, transcripts)
        units = passage_units(corpus, [p.id for p in passages])
        rate = ratio_interval(errors.errors, errors.words, units, seed)
        values[error_metric(passages[0].language)] = rate
    return values


def word_errors(passages: Sequence[Passage], transcripts: Mapping[str, str]) -> WordErrors:
    """Count the word errors of passages, at least one, by their transcripts; every word of one
    without a transcript is an error."""
    hypotheses = [transcripts.get(p.id, "") for p in passages]
    return word_error_rate([p.text for p in passages], hypotheses, passages[0].language)


def find_seen(data: str, corpus: Corpus, system: Any, parts: Sequence[Path]) -> str:
    """Find what a system has seen of a corpus, one of `results.SEEN`, by the cards of those of its
    parts that lie in these folders of models; "" where nothing is known.

    data: hash of the split. Of questions one in a hundred counts, since short ones may have the
    same words by chance.
    """
    hashes = _strings(system.card)
    questions = hash_questions(corpus.questions)
    seen = ""
    for folder in parts:
        for pattern in ("card.json", "*.card.json", "*/card.json"):
            for path in folder.glob(pattern):
                card = read_json(path)
                if not hashes & _strings([card.get("weights"), card.get("hash")]):
                    continue
                if data in training_data(card):
                    return "trained"
                if card.get("eval_data") == data:
                    seen = "chosen"
                file = path.parent / QUESTIONS
                if file.is_file():
                    known = np.isin(questions, np.load(file)).sum()
                    if known and known >= len(questions) / 100:
                        return "questions"
    return seen


def _strings(value: Any) -> set[str]:
    """Collect all texts in a card."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list):
        return set()
    return set().union(*map(_strings, value))


# ---- scores of questions, for comparisons


def write_scores(
    out: Path,
    system: str,
    condition: Condition,
    lines: Rows,
    corpus: Corpus,
    predictions: Mapping[str, Any],
    **facts: Any,
) -> None:
    """Write the scores of questions with their card. lines: with `id`, `passage`, and scores, 0 to
    1, by metric; predictions: what is scored; facts: what else the card says.
    """
    source = corpus_card(corpus.root)
    synthetic = str(source.get("synthetic", ""))
    if not synthetic and any(r.synthetic for r in corpus.records):
        synthetic = "synthetic"
    card = {
        "system": system,
        "condition": condition.short,
        "snr_db": condition.snr_db,
        "corpus": str(source.get("corpus", corpus.root.name)),
        "split": corpus.split,
        "synthetic": synthetic,
        "languages": sorted({r.language for r in corpus.records}),
        **facts,
    }
    for name in ("made_from", "data", "seed", "snr_over"):
        if name in predictions:
            card[name] = predictions[name]
    path = out / "scores" / system / f"{condition.label.replace(' ', '-')}.parquet"
    write_items(path, lines, card)


def question_lines(
    scored: Sequence[Any],
    corpus: Corpus,
    transcripts: Mapping[str, str],
    metrics: Sequence[str] = (*METRICS, "error"),
) -> Rows:
    """Make the lines of spoken question answering and retrieval. The answer is its first
    annotation; what is not known is None.

    scored: with `id` and the metrics; transcripts: of the passages by id; none for a system without
    any.
    error: one of ERRORS, "" where neither times nor words can tell.
    """
    questions = {q.id: q for q in corpus.questions}
    facts = _passage_facts(scored, corpus, transcripts)
    lines = []
    for score in scored:
        question = questions[score.id]
        answer, seconds = question.answers[0], None
        if answer.start is not None and answer.end is not None:
            seconds = answer.end - answer.start
        about = {
            "answer_seconds": seconds,
            "type": answer_type(question.written, answer.text, question.language),
        }
        scores = {metric: getattr(score, metric) for metric in metrics}
        lines.append({"id": score.id, **facts[score.id], **scores, **about})
    return lines


def choice_lines(
    scored: Sequence[ScoredChoice], corpus: Corpus, transcripts: Mapping[str, str]
) -> Rows:
    """Make the lines of multiple choice: the scores, and the errors in the passage. transcripts: of
    the passages by id; none for a system without any."""
    facts = _passage_facts(scored, corpus, transcripts)
    return [asdict(score) | facts[score.id] for score in scored]


def _passage_facts(
    scored: Sequence[Any], corpus: Corpus, transcripts: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Say of every question its passage; voice: of the passage, "" where it is not known, or
    training knew it (`data.records.voices_of`); asker: of the question; and how many words of the
    passage are wrong, as WER counts them, None for a system without transcripts."""
    voices = voices_of(corpus)
    passages = [p for p in corpus.passages.values() if p.text] if transcripts else []
    counts: dict[str, tuple[int, int]] = {}
    if passages:
        errors = word_errors(passages, transcripts)
        for p, wrong, words in zip(passages, errors.errors, errors.words, strict=True):
            counts[p.id] = int(wrong), int(words)
    facts = {}
    for score in scored:
        count = counts.get(score.passage)
        facts[score.id] = {
            "passage": score.passage,
            "voice": voices[score.passage],
            "asker": voices.get(score.id, ""),
            "passage_errors": count[0] if count else None,
            "passage_words": count[1] if count else None,
        }
    return facts
