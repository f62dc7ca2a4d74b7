"""Score predictions question by question, and make rows of results: step 3 of an evaluation.

`scores/<system>/<condition>.parquet` has a line for each question and a card that names the corpus;
a comparison needs nothing else. The files of all systems on a corpus have the same questions, in
the order of the manifest.
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
    choose_groups,
    find_voices,
    hash_questions,
    list_training_hashes,
    read_corpus_card,
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
from speechssl.results import SEEN
from speechssl.stats import Interval, estimate_mean, estimate_ratio
from speechssl.text import (
    ANSWERS_ONLY,
    find_language,
    find_primary_tag,
    name_error_metric,
    split_answer_tokens,
)

if TYPE_CHECKING:
    # imports torch, which a page of results does not load
    from speechssl.multiple_choice.model import ScoredChoice

METRICS = ("ff1", "aos", "em", "f1")


# ---- kinds of answers, by the rules in answer_types.yaml


@cache
def _read_rules() -> dict[str, Any]:
    """Read answer_types.yaml: by language the patterns of kinds of answers, tried in their order,
    `asked` on the question and then `form` on the answer."""
    file = resources.files("speechssl.eval").joinpath("answer_types.yaml")
    return dict(yaml.safe_load(file.read_text("utf-8")))


def classify_answer(question: str, answer: str, language: str) -> str:
    """Name the kind of an answer by answer_types.yaml; "other" in a language of ANSWERS_ONLY, whose
    answers can be scored but not told apart. Raises InputError for a language without text
    rules."""
    if find_primary_tag(language) in ANSWERS_ONLY:
        return "other"
    language = find_language(language)
    rules = _read_rules()[language]
    for kind, text in (("asked", question.lower()), ("form", answer.lower())):
        for name, rule in rules[kind].items():
            if re.search(rule, text, re.VERBOSE):
                return str(name)
    if len(split_answer_tokens(answer, language)) >= rules["clause"]:
        return "clause"
    small_words = _read_rules()["small"].split()
    words = re.findall(r"[^\W\d_]+", answer)  # runs of letters, such as "de" and "Gaulle"
    words = [word for word in words if word.lower() not in small_words]
    are_capitalised = bool(words) and all(word[0].isupper() for word in words)
    # in a text without any small letters capitals tell nothing
    has_small_letters = any(letter.islower() for letter in answer + question)
    if language == "en" and are_capitalised and has_small_letters:
        return "proper noun"
    return "other"


# ---- kinds of errors of an answer
#
#     right             FF1 (of an answer without times: F1 of its words) is RIGHT or more
#     too long          FF1 is less, and the answer has half of the gold answer or more
#     too short         FF1 is less, and half of the answer or more lies in the gold answer
#     little overlap    they share something, but less than half of either
#     no overlap        they share nothing
#     no answer         the system predicted nothing, or could not be asked
#
# Below 1/2, FF1 is less than twice the smaller of the two shares, so that an answer is not both too
# long and too short.

ERRORS = ("right", "too long", "too short", "little overlap", "no overlap", "no answer")
RIGHT = 0.5


def classify_error(shared: float, predicted: float, gold: float) -> str:
    """Name the error of an answer, one of ERRORS. predicted, gold: lengths of the predicted and the
    gold answer, gold above 0; shared: the length of what both have in common; all in seconds or in
    words."""
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
    """A question has these scores, from 0 to 1."""

    id: str
    passage: str
    # None where the annotation or the system has no times
    ff1: float | None
    aos: float | None
    # None where the annotation or the system has no text
    em: float | None
    f1: float | None
    error: str = ""  # one of ERRORS; "" where the answer has neither times nor words to tell it


def score_questions(predictions: Mapping[str, Any], corpus: Corpus) -> list[QuestionScore]:
    """Score every answerable question over all its annotations; one that could not be answered
    scores 0."""
    answers = predictions["answers"]
    texts = [answer["text"] for answer in answers.values()]
    has_text = bool(predictions["transcripts"]) or any(text is not None for text in texts)
    # an empty answer never has times, so that it does not tell whether the system gives them
    starts = [answer["start"] for answer in answers.values() if answer["text"] != ""]
    has_times = not starts or any(start is not None for start in starts)
    scores = []
    for question in corpus.answerable:
        answer = answers.get(question.id)
        scores.append(_score_question(question, answer, has_text=has_text, has_times=has_times))
    return scores


def _score_question(
    question: Question, answer: Mapping[str, Any] | None, *, has_text: bool, has_times: bool
) -> QuestionScore:
    """Score the answer to a question; None stands for no answer. has_text, has_times: whether the
    system gives text and times."""
    gold_spans = []
    if has_times:
        for gold in question.answers:
            if gold.start is not None and gold.end is not None:
                gold_spans.append((gold.start, gold.end))
    gold_texts = [gold.text for gold in question.answers if gold.text.strip()]
    has_text = has_text and bool(gold_texts)
    span = None
    if answer and (answer["end"] or 0) > (answer["start"] or 0):
        span = answer["start"], answer["end"]
    text = answer["text"] if answer else ""
    language = question.language
    error = ""
    if gold_spans and (span or not text):
        error = _classify_time_error(span, gold_spans)
    elif has_text:
        error = _classify_word_error(text or "", gold_texts, language)
    return QuestionScore(
        id=question.id,
        passage=question.passage,
        ff1=frame_f1(span, gold_spans) if gold_spans else None,
        aos=overlap_score(span, gold_spans) if gold_spans else None,
        em=exact_match(text, gold_texts, language) if has_text else None,
        f1=token_f1(text, gold_texts, language) if has_text else None,
        error=error,
    )


def _classify_time_error(
    span: tuple[float, float] | None, gold: Sequence[tuple[float, float]]
) -> str:
    """Name the error of an answer against the annotation that is nearest in time."""
    start, end = max(gold, key=lambda g: frame_f1(span, [g]))
    if span is None:
        return classify_error(0.0, 0.0, end - start)
    shared = max(0.0, min(span[1], end) - max(span[0], start))
    return classify_error(shared, span[1] - span[0], end - start)


def _classify_word_error(predicted: str, texts: Sequence[str], language: str) -> str:
    """Name the error of an answer against the annotation that is nearest in words."""
    nearest = max(texts, key=lambda text: token_f1(predicted, [text], language))
    words = Counter(split_answer_tokens(predicted, language))
    gold = Counter(split_answer_tokens(nearest, language))
    if not gold:
        return ""
    return classify_error((words & gold).total(), words.total(), gold.total())


# ---- rows of results


def measure_scores(
    scored: Sequence[Any],
    metrics: Sequence[str],
    transcripts: Mapping[str, str],
    corpus: Corpus,
    seed: int,
) -> dict[str, Interval]:
    """Measure the value of every metric with its 95 % bootstrap interval, which draws the units of
    `choose_groups`.

    scored: scores of questions, with `id`, `passage` and the metrics. A metric is the mean over the
    questions that have it. Systems with transcripts also have the WER (zh: CER) over the passages
    of these questions; in a passage that could not be recognised every word is missing, as in
    `compare`.
    """
    values: dict[str, Interval] = {}
    for metric in metrics:
        measured = [s for s in scored if getattr(s, metric) is not None]
        if measured:
            units = choose_groups(corpus, [s.passage for s in measured], [s.id for s in measured])
            values[metric] = estimate_mean([getattr(s, metric) for s in measured], units, seed)
    passages = _list_referenced_passages(scored, corpus)
    if transcripts and passages:
        errors = count_word_errors(passages, transcripts)
        units = choose_groups(corpus, [p.id for p in passages])
        rate = estimate_ratio(errors.errors, errors.words, units, seed)
        values[name_error_metric(passages[0].language)] = rate
    return values


def _list_referenced_passages(scored: Sequence[Any], corpus: Corpus) -> list[Passage]:
    """List the passages of scored questions whose word errors can be counted: they have a text, in
    a language with text rules."""
    ids = {s.passage for s in scored}
    passages = []
    for p in corpus.passages.values():
        if p.id in ids and p.text and find_primary_tag(p.language) not in ANSWERS_ONLY:
            passages.append(p)
    return passages


def count_word_errors(
    records: Sequence[Passage | Question], transcripts: Mapping[str, str]
) -> WordErrors:
    """Count the word errors in the transcripts of passages or questions, by their ids; there must
    be one. Every word of a record without a transcript is an error."""
    hypotheses = [transcripts.get(r.id, "") for r in records]
    return word_error_rate([r.text for r in records], hypotheses, records[0].language)


def find_seen(data: str, corpus: Corpus, system: Any, parts: Sequence[Path]) -> str:
    """Find out whether a system was trained or chosen on a split, and return the first key of
    `results.SEEN` that holds; "" where nothing is known.

    data: hash of the split. parts: folders of models; the cards of the system's models in them name
    their data, and `QUESTIONS` beside a card has the hashes of a reader's questions.
    """
    hashes = _collect_texts(system.card)
    questions = hash_questions(corpus.questions)
    keys = set()
    for folder in parts:
        for pattern in ("card.json", "*.card.json", "*/card.json"):
            for path in folder.glob(pattern):
                card = read_json(path)
                if not hashes & {card.get("weights"), card.get("hash")}:
                    continue
                if data in list_training_hashes(card):
                    keys.add("trained")
                if _has_questions(path.parent / QUESTIONS, questions):
                    keys.add("questions")
                if card.get("eval_data") == data:
                    keys.add("chosen")
    return next((key for key in SEEN if key in keys), "")


def _has_questions(file: Path, questions: np.ndarray) -> bool:
    """Return whether a file of hashes has at least one in a hundred of these questions, and at
    least two; fewer may have the same words by chance."""
    if not file.is_file():
        return False
    known = int(np.isin(questions, np.load(file)).sum())
    return known >= max(2, len(questions) / 100)


def _collect_texts(value: Any) -> set[str]:
    """Collect all texts in a card."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list):
        return set()
    return set().union(*map(_collect_texts, value))


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
    """Write the scores of questions with their card. lines: for each question its `id`, `passage`,
    and scores, 0 to 1, by metric; predictions: those that were scored; facts: further entries of
    the card."""
    source = read_corpus_card(corpus.root)
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


def make_question_lines(
    scored: Sequence[Any],
    corpus: Corpus,
    transcripts: Mapping[str, str],
    metrics: Sequence[str] = (*METRICS, "error"),
) -> Rows:
    """Make the lines of spoken question answering and retrieval, one a question. Length and type of
    the answer are those of its first annotation; unknown values are None.

    scored: scores with `id` and the metrics; transcripts: of the passages by id, {} for a system
    without transcripts.
    """
    questions = {q.id: q for q in corpus.questions}
    facts = _collect_passage_facts(scored, corpus, transcripts)
    lines = []
    for score in scored:
        question = questions[score.id]
        answer = question.answers[0]
        seconds = None
        if answer.start is not None and answer.end is not None:
            seconds = answer.end - answer.start
        about = {
            "answer_seconds": seconds,
            "type": classify_answer(question.written, answer.text, question.language),
        }
        scores = {metric: getattr(score, metric) for metric in metrics}
        lines.append({"id": score.id, **facts[score.id], **scores, **about})
    return lines


def make_choice_lines(
    scored: Sequence[ScoredChoice], corpus: Corpus, transcripts: Mapping[str, str]
) -> Rows:
    """Make the lines of multiple choice, one a question. transcripts: those of the passages by id,
    {} for a system without transcripts."""
    facts = _collect_passage_facts(scored, corpus, transcripts)
    return [asdict(score) | facts[score.id] for score in scored]


def _collect_passage_facts(
    scored: Sequence[Any], corpus: Corpus, transcripts: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Collect facts about the passage of every question, by the question's id.

    `passage` is its id; `voice` and `asker` are the voices of passage and question, "" where they
    are unknown or were heard in training (`data.records.find_voices`); `passage_errors` and
    `passage_words` are the word errors and words of the passage, None for a system without
    transcripts.
    """
    voices = find_voices(corpus)
    passages = _list_referenced_passages(scored, corpus)
    counts: dict[str, tuple[int, int]] = {}
    if transcripts and passages:
        errors = count_word_errors(passages, transcripts)
        for p, n_errors, n_words in zip(passages, errors.errors, errors.words, strict=True):
            counts[p.id] = int(n_errors), int(n_words)
    facts = {}
    for score in scored:
        edits, words = counts.get(score.passage, (None, None))
        facts[score.id] = {
            "passage": score.passage,
            "voice": voices[score.passage],
            "asker": voices.get(score.id, ""),
            "passage_errors": edits,
            "passage_words": words,
        }
    return facts
