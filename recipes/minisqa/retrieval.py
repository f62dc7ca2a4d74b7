"""Evaluate first-stage retrieval: systems rank the passages of a split by what they have in common
with a question.

    python recipes/minisqa/retrieval.py --help

A system is a method of scoring and a source, which says what is in a recording: its words or its
units. The embedding of words is the mean of a text encoder's output over all tokens, as the model
card of sentence-transformers/all-MiniLM-L6-v2 has it. The embedding of units is the mean of their
rows, and those of [CLS] and [SEP], in the embedding table of DUAL's reader (the reader always sees
question and passage together; its output for either alone says nothing). A passage has the
embeddings of windows of N tokens, half overlapping, and the best window counts (MaxP; Dai and
Callan, arXiv 1905.09217). Words that a recogniser misheard still share most n-grams of letters.

The right passage is the one that the question was asked about: another that answers it as well
counts as wrong. Passages with equal scores are in random order; metrics are the expectation over
these orders (McSherry and Najork 2008, ECIR), so that a system that gives all passages one score is
at chance. Letters: Q questions, P passages, B sequences, S tokens in a sequence, E embedding width.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from torch.nn import functional

from speechssl.artifacts import hold_output, read_json
from speechssl.augment import Condition, parse_condition
from speechssl.cascade.data import Record, Transcript
from speechssl.cascade.system import load_recogniser, read_given_words
from speechssl.checkpoints import model_folder
from speechssl.cli import script
from speechssl.data.records import Corpus, Passage, Question, load_corpus, take_first_passages
from speechssl.dual.data import collate, cut_windows
from speechssl.dual.model import load_reader
from speechssl.dual.system import adapt_extractor, choose_device, run_model
from speechssl.encoders.encoder import remember_last
from speechssl.encoders.load import hash_weights, load_shared_encoder
from speechssl.errors import InputError
from speechssl.eval import spoken_qa
from speechssl.eval.encode import Recording
from speechssl.eval.options import Conditions
from speechssl.eval.predict import describe_question
from speechssl.eval.score import make_question_lines
from speechssl.options import Whole, option
from speechssl.results import Row, list_rows
from speechssl.text import normalise, split_tokens
from speechssl.text.tfidf import NGRAM, Terms, list_ngrams, tfidf
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.tokenizers import find_special_tokens
from speechssl.timing import RunLength
from speechssl.units.codebook import load_codebook
from speechssl.units.features import UnitExtractor, make_extractor

BM25_K1 = 1.2
BM25_B = 0.75
METHODS = ("bm25", "tfidf", "embeddings")
TEXT = "text"  # the source that reads the reference text and needs no audio
# sources of units, which differ in their embeddings: rows of DUAL's table, or the output of a
# reader that was taught the meaning of words (`speechssl train unit-words`)
UNITS = "units"
TAUGHT = "taught"
# most tokens of a text: with [CLS] and [SEP] the 256 of the model card
LONGEST = 254
BATCH = 64  # sequences that are embedded together


@dataclass(frozen=True, kw_only=True)
class Retrieval(Conditions):
    """evaluate first-stage retrieval under conditions: every question ranks all passages of a split

    Reports R@1, R@10 and MRR (times 100). Systems: METHOD-SOURCE or METHOD-SOURCE@N.
    Methods: bm25 and tfidf (score shared words; zh: characters; with @N n-grams of N letters; for
    units n-grams, 3 without @N), embeddings (scores the cosine of averaged vectors: of a text
    encoder, for units of dual/ in --models; the best window of N tokens counts, 254 without @N).
    Sources: units, taught (units with the vectors of taught/ in --models, a reader of `train
    unit-words`), ctc, ctc-NAME, MODEL (of Hugging Face); without audio, in the condition clean
    alone: text (the reference).
    Conditions are those of `evaluate qa`.

      python recipes/minisqa/retrieval.py corpus exp/mine \\
        --systems bm25-text bm25-ctc tfidf-ctc@3 tfidf-units --conditions clean pink@5
    """

    models: str = option("people-en", "shipped set or model folder")
    systems: tuple[str, ...] = option(
        ("bm25-text", "bm25-ctc", "tfidf-units"), "systems, from those above", least=1
    )
    passages: Whole | None = option(None, "use only the first N passages, to ask about and to rank")
    text_encoder: str = option(
        "minilm", "text encoder for embeddings of words: minilm, a folder or a hub id"
    )


Content = Transcript | RunLength
Item = tuple[Record, Content]


@dataclass(frozen=True)
class Retriever:
    """A retriever encodes every recording once, then scores every passage for every question."""

    name: str
    # called with (record, samples (N,) float32 at 16 kHz); raises ValueError where it cannot encode
    encode: Callable[[Record, Any], Content]
    # called with (questions, passages); returns scores (Q, P), greater is better
    score: Callable[[Sequence[Item], Sequence[Item]], np.ndarray]
    card: Mapping[str, Any]
    needs_audio: bool = True


@dataclass(frozen=True)
class Source:
    """A source says what is in a recording: its words or its units."""

    name: str
    # called with (record, samples (N,) float32 at 16 kHz); raises ValueError where it cannot encode
    encode: Callable[[Record, Any], Content]
    card: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Embedder:
    """An embedder gives vectors to questions and to windows of passages."""

    # called with (ids, mask), both (B, S); returns vectors (B, E) of length 1
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    # called with the content that a source encoded; returns ids (S,)
    tokenise: Callable[[Any], np.ndarray]
    specials: tuple[int, int, int]  # ids of [CLS], [SEP] and [PAD]
    card: Mapping[str, Any]
    lead: tuple[int, ...] = ()  # ids behind the [CLS] of every sequence
    bf16: bool = False

    def score(self, window: int, questions: Sequence[Item], passages: Sequence[Item]) -> np.ndarray:
        """Return the cosines (Q, P) of question and best window. A passage without tokens is one
        empty window. window: tokens."""
        window_ids: list[np.ndarray] = []  # of all passages
        first = []  # number of the first window of every passage
        for _, content in passages:
            ids = self.tokenise(content)
            stride = (window + 1) // 2  # half overlapping
            first.append(len(window_ids))
            windows = cut_windows(len(ids), window, stride)
            window_ids += [ids[w.first : w.stop] for w in windows] or [ids]
        question_ids = [self.tokenise(content)[:LONGEST] for _, content in questions]
        cosines = self._embed(question_ids) @ self._embed(window_ids).T
        return np.maximum.reduceat(cosines, first, axis=1)

    def _embed(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return a vector, (n, E), for each sequence of ids (S,)."""
        cls, sep, pad = self.specials
        framed = []
        for ids in sequences:
            sequence = np.array([cls, *self.lead, *ids, sep], np.int64)
            framed.append((sequence, len(sequence)))

        def run(ids: torch.Tensor, mask: torch.Tensor, segments: Any) -> torch.Tensor:
            return self.run(ids, mask)  # one text has no segments

        pad_batch = partial(collate, pad=pad)
        vectors = run_model(run, choose_device(), framed, pad_batch, BATCH, self.bf16)
        return torch.stack(vectors).numpy()


def load_word_embedder(name: str, bf16: bool) -> Embedder:
    """Load the embedder of a text encoder. Raises InputError where it cannot be loaded."""
    model, tokenizer = load_text_encoder(name)
    model.to(choose_device())

    def run(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return pool_means(model(input_ids=ids, attention_mask=mask).last_hidden_state, mask)

    def tokenise(transcript: Transcript) -> np.ndarray:
        return np.array(tokenizer(transcript.text, add_special_tokens=False)["input_ids"], np.int64)

    card: dict[str, Any] = {"text_encoder": hash_weights(model)}
    if bf16:
        card["bf16"] = True
    specials = find_special_tokens(tokenizer)
    return Embedder(run, tokenise, specials, card, bf16=bf16)


def load_unit_embedder(models: Path, extractor: UnitExtractor, reader: str) -> Embedder:
    """Load the embedder of units by a reader in a model folder.

    reader: `dual`, whose rows of the embedding table are averaged, or `taught`, whose encoder's
    output over a passage without a question is. Raises InputError where the reader is missing, was
    trained on other units, or is a `dual` that reads pieces (frequent n-grams of units).
    """
    model, layout, card = load_reader(models / reader)
    if adapt_extractor(models / reader, card, extractor).pieces and reader != TAUGHT:
        raise InputError(f"{models / reader} reads pieces of units, whose table is not compared")
    model.to(choose_device())
    specials = (layout.cls, layout.sep, layout.pad)
    weights = {reader: card["weights"]}

    def average_rows(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return pool_means(model.embedding(ids), mask)

    def average_output(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        segments = torch.ones_like(mask)
        segments[:, :2] = 0  # [CLS] [SEP] units [SEP]: the question is empty
        inputs = model.inputs(model.embedding(ids), mask, segments)
        return pool_means(model.encoder(**inputs).last_hidden_state, mask)

    def tokenise(runs: RunLength) -> np.ndarray:
        return runs.units

    if reader != TAUGHT:
        return Embedder(average_rows, tokenise, specials, weights)
    card = weights | {"lead": 1}
    return Embedder(average_output, tokenise, specials, card, (layout.sep,))


def pool_means(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the means (B, E), of length 1, of (B, S, E) where the mask (B, S) is set."""
    means = (hidden.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return functional.normalize(means, dim=1)


def bm25(queries: Sequence[Terms], documents: Sequence[Terms]) -> np.ndarray:
    """Return scores (Q, P) by BM25 as Lucene computes it (Robertson and Zaragoza, 2009, Foundations
    and Trends in Information Retrieval 3(4), section 3.4.2): 0 where no term is shared."""
    if not any(documents):
        return np.zeros((len(queries), len(documents)))
    counter = CountVectorizer(analyzer=list)
    counts = counter.fit_transform(documents)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    weights = counts.tocoo().astype(np.float64)
    relative_lengths = lengths[weights.row] / lengths.mean()
    weights.data /= weights.data + BM25_K1 * (1 - BM25_B + BM25_B * relative_lengths)
    weights.data *= np.log1p((len(documents) - frequency + 0.5) / (frequency + 0.5))[weights.col]
    return (counter.transform(queries) @ weights.T).toarray()


def score_shared_terms(
    method: str, n: int | None, questions: Sequence[Item], passages: Sequence[Item]
) -> np.ndarray:
    """Score passages for questions, (Q, P), by `bm25` or `tfidf`. n: letters or units of a term;
    None: words, or of units `NGRAM`."""

    def list_terms(record: Record, content: Content) -> Terms:
        if isinstance(content, RunLength):
            return list_ngrams(content.units.tolist(), n or NGRAM)
        if n:
            return list_ngrams(normalise(content.text, record.language), n)
        return split_tokens(content.text, record.language)

    score = {"bm25": bm25, "tfidf": tfidf}[method]
    return score([list_terms(*q) for q in questions], [list_terms(*p) for p in passages])


# METHOD-SOURCE or METHOD-SOURCE@N: "bm25-ctc", "tfidf-units@3"
NAMES = re.compile(rf"({'|'.join(METHODS)})-([^@]+)(?:@([1-9]\d*))?")


def parse_system(name: str) -> tuple[str, str, int | None]:
    """Parse "tfidf-units@3" into method, source and N. Raises InputError for another name."""
    match = NAMES.fullmatch(name)
    if match is None:
        choices = ", ".join(f"{method}-SOURCE" for method in METHODS)
        raise InputError(
            f"there is no system {name!r}; choose {choices}, of the sources "
            "text, units, taught, ctc or a MODEL"
        )
    method, source, number = match.groups()
    return method, source, int(number) if number else None


def load_source(
    source: str, models: Path, encoder: Any, extractor: Any, language: str | None
) -> Source:
    """Load a source of a model folder. Raises InputError where the folder lacks it.

    encoder: None where the text is the only source; extractor: of units, None where no source has
    units.
    """
    if source == TEXT:
        return Source(TEXT, lambda record, _: read_given_words(TEXT, record), {"reads": TEXT})
    if source in (UNITS, TAUGHT):
        if source == TAUGHT:  # smooths and joins units as its reader was trained
            folder = models / TAUGHT
            extractor = adapt_extractor(folder, read_json(folder / "card.json"), extractor)
        encode = remember_last(extractor.extract)
        return Source(source, lambda _, samples: encode(samples), extractor.card)
    recogniser = load_recogniser(models, source, encoder, language)
    transcribe = remember_last(recogniser.transcribe)
    return Source(recogniser.name, lambda _, samples: transcribe(samples), recogniser.card)


def load_retrievers(
    models: Path,
    names: Sequence[str],
    text_encoder: str,
    bf16: bool,
    language: str | None,
) -> list[Retriever]:
    """Load systems by their names, METHOD-SOURCE or METHOD-SOURCE@N. text_encoder: for embeddings
    of words; bf16: whether it reads under autocast; language: of the speech, for Whisper.

    Raises InputError for a name that is no system's, and for parts that are missing or do not fit
    each other.
    """
    requests = [parse_system(name) for name in names]
    spoken = {source for _, source, _ in requests} - {TEXT}
    encoder: Any = load_shared_encoder(models) if spoken else None
    extractor: Any = None
    if spoken & {UNITS, TAUGHT}:
        extractor = make_extractor(encoder, load_codebook(models / "units.safetensors"))
    # systems share sources and embedders
    sources: dict[str, Source] = {}
    embedders: dict[str, Embedder] = {}
    retrievers = []
    for method, source_name, n in requests:
        if source_name not in sources:
            sources[source_name] = load_source(source_name, models, encoder, extractor, language)
        source = sources[source_name]
        card = {"method": method, "n": n, **source.card}
        score = partial(score_shared_terms, method, n)
        if method == "embeddings":
            # all sources of words have one embedder
            kind = source_name if source_name in (UNITS, TAUGHT) else "words"
            if kind not in embedders:
                if kind == "words":
                    embedders[kind] = load_word_embedder(text_encoder, bf16)
                else:
                    reader = "dual" if kind == UNITS else TAUGHT
                    embedders[kind] = load_unit_embedder(models, extractor, reader)
            embedder = embedders[kind]
            score = partial(embedder.score, n or LONGEST)
            card |= embedder.card
        name = f"{method}-{source.name}" + (f"@{n}" if n else "")
        needs_audio = source_name != TEXT
        retrievers.append(Retriever(name, source.encode, score, card, needs_audio))
    return retrievers


# ---- evaluation: systems x conditions

METRICS = ("r1", "r10", "mrr")
BEST = 10  # passages that the predictions name for every question


def evaluate_retrieval(o: Retrieval) -> list[dict[str, Any]]:
    """Rank the passages, print the table, and return the rows of `o.out`. Raises InputError for
    systems, a corpus or conditions that do not exist."""
    with hold_output(o.out):
        conditions = [parse_condition(c) for c in o.conditions]
        folder = model_folder(o.models)
        data = take_first_passages(load_corpus(o.corpus, o.split), o.passages)
        spoken_qa.check_answerable(data)
        retrievers = load_retrievers(folder, o.systems, o.text_encoder, o.bf16, data.language)
        setup = spoken_qa.make_setup(o, spoken_qa.name_models(folder), folder)
        spoken_qa.append_results(o.out, rank_passages(retrievers, data, conditions, setup))
        print(spoken_qa.make_results_table(o, conditions))
        return list_rows(o.out)


def rank_passages(
    systems: Sequence[Retriever],
    corpus: Corpus,
    conditions: Sequence[Condition],
    setup: spoken_qa.Setup,
) -> list[Row]:
    """Make the rankings that are not in the output yet, and return the rows of all."""
    rounds = spoken_qa.list_rounds(systems, conditions, setup.distorter)
    return spoken_qa.evaluate_task(RetrievalTask(corpus), rounds, setup)


class RetrievalTask(spoken_qa.Task):
    """In this task every question ranks all passages of the split."""

    name = "retrieval"
    metrics = METRICS

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(corpus)
        self.records: list[Passage | Question] = [*corpus.passages.values(), *corpus.answerable]
        # ids for the card of predictions: here of all that is ranked as well
        self.questions = [record.id for record in self.records]

    def list_recordings(self) -> list[Recording]:
        return spoken_qa.find_recordings(self.corpus, self.records)

    def choose_recordings(self, system: Retriever) -> Collection[str]:
        return self.questions

    def predict(
        self, system: Retriever, features: Mapping[str, Any], where: str
    ) -> list[dict[str, Any]]:
        """Rank the passages for every question. Returns a row a question: `above` passages have a
        greater score than the question's, `equal` passages, it among them, have the same score, and
        `best` are the ids of the first; none where question or passage could not be encoded."""
        corpus = self.corpus
        questions = [q for q in corpus.answerable if q.id in features and q.passage in features]
        passages = [p for p in corpus.passages.values() if p.id in features]
        scores_by_question: dict[str, np.ndarray] = {}
        if questions:
            question_items = [(q, features[q.id]) for q in questions]
            scores = system.score(question_items, [(p, features[p.id]) for p in passages])
            scores_by_question = dict(zip([q.id for q in questions], scores, strict=True))
        index = {p.id: i for i, p in enumerate(passages)}
        rows = []
        for question in corpus.answerable:
            row = describe_question(question, features)
            row |= {"answered": False, "above": None, "equal": None, "best": []}
            if question.id in scores_by_question:
                scores_of_question = scores_by_question[question.id]
                gold = scores_of_question[index[question.passage]]
                row["answered"] = True
                row["above"] = int((scores_of_question > gold).sum())
                row["equal"] = int((scores_of_question == gold).sum())
                best = np.argsort(-scores_of_question, kind="stable")[:BEST]
                row["best"] = [passages[i].id for i in best]
            rows.append(row)
        return rows

    def score(self, system: Retriever, predictions: Mapping[str, Any]) -> spoken_qa.Scored:
        transcripts = predictions["transcripts"]
        scores = score_ranks(predictions["rows"])
        lines = make_question_lines(scores, self.corpus, transcripts, METRICS)
        return spoken_qa.Scored(scores, lines, transcripts)


@dataclass(frozen=True)
class RankScore:
    """The scores of a question are from 0 to 1, expected over the orders of equal passages."""

    id: str
    passage: str
    r1: float = 0.0  # whether its passage is the first
    r10: float = 0.0  # whether it is among the first ten
    mrr: float = 0.0  # 1 / rank


def score_ranks(rows: Sequence[Mapping[str, Any]]) -> list[RankScore]:
    """Score the rows of predictions. A question that could not be encoded scores 0."""
    scores = []
    for row in rows:
        score = RankScore(row["id"], row["passage"])
        if row["answered"]:
            # ranks that are equally likely
            ranks = np.arange(row["above"] + 1, row["above"] + row["equal"] + 1)
            score = replace(
                score,
                r1=float((ranks == 1).mean()),
                r10=float((ranks <= 10).mean()),
                mrr=float((1 / ranks).mean()),
            )
        scores.append(score)
    return scores


if __name__ == "__main__":
    sys.exit(script(evaluate_retrieval, Retrieval))
