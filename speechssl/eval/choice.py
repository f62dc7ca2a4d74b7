"""Evaluate multiple choice: every system under every condition on the questions of a split, in the
steps of `spoken_qa`. Passages, questions and options are all distorted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import hold_output
from speechssl.augment import Condition, parse_condition
from speechssl.checkpoints import model_folder
from speechssl.data.records import Corpus, load_corpus, read_corpus_card, take_first_passages
from speechssl.errors import InputError
from speechssl.eval.conditions import check_conditions
from speechssl.eval.encode import Recording
from speechssl.eval.options import Choice
from speechssl.eval.predict import Rows, describe_question
from speechssl.eval.score import make_choice_lines
from speechssl.eval.spoken_qa import (
    Scored,
    Setup,
    Task,
    append_results,
    evaluate_task,
    find_recordings,
    make_results_table,
    make_setup,
    name_models,
)
from speechssl.multiple_choice.data import choose_text
from speechssl.multiple_choice.model import choose_longest, choose_options, score_choice
from speechssl.multiple_choice.system import (
    Baseline,
    ChoiceSystem,
    EncodedQuestion,
    WrittenChoice,
    load_choice_systems,
)
from speechssl.results import Row, list_rows, make_published_tables

BATCH = 16  # questions whose options are scored together
CLEAN = parse_condition("clean")


def evaluate_choice(o: Choice) -> list[dict[str, Any]]:
    """Evaluate the systems, print the table, and return the rows of `o.out`. Raises InputError for
    systems, a corpus or conditions that do not exist."""
    with hold_output(o.out):
        conditions = [parse_condition(c) for c in o.conditions]
        data = take_first_passages(load_corpus(o.corpus, o.split), o.passages)
        systems = load_choice_systems(o.models, o.systems, o.bf16, data.language)
        folder = model_folder(o.models)
        setup = make_setup(o, name_models(folder), folder)
        append_results(o.out, evaluate_systems(systems, data, conditions, setup))
        corpus_split = f"{read_corpus_card(o.corpus).get('corpus')} {o.split}"
        texts = [make_results_table(o, conditions)]
        texts += [table.text for table in make_published_tables([corpus_split])]
        print("\n\n".join(texts))
        return list_rows(o.out)


def evaluate_systems(
    systems: Sequence[ChoiceSystem],
    corpus: Corpus,
    conditions: Sequence[Condition],
    setup: Setup,
) -> list[Row]:
    """Evaluate multiple choice, and return the rows. Raises InputError for a corpus without it."""
    if not corpus.choices:
        raise InputError(
            f"{corpus.root / corpus.split} has no question with options and a right one; give a "
            "multiple-choice corpus"
        )
    check_conditions(conditions, setup.distorter)
    with_audio = [s for s in systems if not _is_without_audio(s)]
    without_audio = [s for s in systems if _is_without_audio(s)]
    rounds = [(CLEAN, without_audio)]  # noise does not change what they read
    rounds += [(condition, with_audio) for condition in conditions]
    return evaluate_task(MultipleChoice(corpus), rounds, setup)


class MultipleChoice(Task):
    """Systems choose between the options of a question, all of which are spoken."""

    name = "choice"
    metrics = ("set_accuracy", "accuracy")

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(corpus)
        self.questions = [q.id for q in corpus.choices]

    def list_recordings(self) -> list[Recording]:
        corpus = self.corpus
        passage_ids = {q.passage for q in corpus.choices}
        passages = [p for p in corpus.passages.values() if p.id in passage_ids]
        recordings = [*find_recordings(corpus, passages), *find_recordings(corpus, corpus.choices)]
        for question in corpus.choices:
            paths: Sequence[Path | InputError] = [corpus.root / a for a in question.option_audio]
            if not paths:
                reason = (
                    f"the options of {question.id} are text only; prepare the corpus with --speak, "
                    "or take systems that read (text)"
                )
                paths = [InputError(reason)] * len(question.option_ids)
            recordings += map(Recording, question.option_ids, paths)
        return recordings

    def choose_recordings(self, system: ChoiceSystem) -> Collection[str]:
        return [] if _is_without_audio(system) else {r.name for r in self.list_recordings()}

    def predict(self, system: ChoiceSystem, features: Mapping[str, Any], where: str) -> Rows:
        """Make rows with the chosen options and the log-probabilities of all options. The row of
        `chance` has no chosen option, because its score is the expected one."""
        scores: dict[str, np.ndarray] = {}
        if not isinstance(system, Baseline):
            scores = self._score_options(system, features, where)
        rows = []
        for question in self.corpus.choices:
            row = describe_question(question, features)
            row |= {"answered": False, "chosen": [], "scores": None}
            if system.name == "chance":
                row |= {"answered": True, "chosen": None}
            elif system.name == "longest-option":
                row |= {"answered": True, "chosen": choose_longest(question)}
            elif question.id in scores:
                log_probs = scores[question.id]
                row["answered"] = True
                row["chosen"] = list(choose_options(log_probs, len(question.correct)))
                row["scores"] = [round(float(x), 5) for x in log_probs]
            rows.append(row)
        return rows

    def _score_options(
        self, system: Any, features: Mapping[str, Any], where: str
    ) -> dict[str, np.ndarray]:
        """Return the log-probabilities of the options, by question. A question is left out where
        the passage, the question or an option could not be encoded."""
        corpus, questions = self.corpus, list(self.corpus.choices)
        if not isinstance(system, WrittenChoice):
            encoded_questions = []
            for q in questions:
                if features.keys() >= {q.id, q.passage, *q.option_ids}:
                    encoded_questions.append(q)
            questions = encoded_questions
        scores: list[np.ndarray] = []
        starts = range(0, len(questions), BATCH)
        title = f"{system.name} chooses, {where}"
        for start in tqdm(starts, title, unit="batch", disable=not starts):
            batch = questions[start : start + BATCH]
            if isinstance(system, WrittenChoice):
                scores += system.score_written([(q, corpus.passages[q.passage]) for q in batch])
            else:
                encoded = []
                for q in batch:
                    options = tuple(features[i] for i in q.option_ids)
                    encoded.append(EncodedQuestion(features[q.id], options, features[q.passage]))
                scores += system.score_all(encoded)
        return dict(zip((q.id for q in questions), scores, strict=True))

    def score(self, system: ChoiceSystem, predictions: Mapping[str, Any]) -> Scored:
        corpus, transcripts = self.corpus, predictions["transcripts"]
        chosen = {row["id"]: row["chosen"] for row in predictions["rows"]}
        scores = [score_choice(question, chosen[question.id]) for question in corpus.choices]
        if isinstance(system, WrittenChoice):  # the text that it reads counts as its transcript
            transcripts = {}
            for question in corpus.choices:
                passage = corpus.passages[question.passage]
                transcripts[passage.id] = choose_text(passage, system.source)
        return Scored(scores, make_choice_lines(scores, corpus, transcripts), transcripts)


def _is_without_audio(system: ChoiceSystem) -> bool:
    """Return whether a system reads text or is a baseline."""
    return isinstance(system, (Baseline, WrittenChoice))
