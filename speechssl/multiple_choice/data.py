"""This module turns multiple-choice questions into token ids of units, words or audio words, and
these into batches to train on.

A story of five minutes is 20 to 100 sequences a question, whose activations no small machine holds.
So a training step reads a few windows of a passage: half are those with most in common with the
question and its options, half are random, so that the combination of windows learns to pass over
those that say nothing. In answering all windows are read. Of audio words, id 3 + n is that of audio
word n, as in SpeechBERT's stage of spans.
Letters: B questions, O options, W windows, S tokens in a sequence, Q tokens in a question, P in a
passage, A in a question and its options, N audio words, E embedding width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from speechssl.artifacts import hash_json
from speechssl.audio import read_audio
from speechssl.data.records import Corpus, Passage, Question
from speechssl.dual.data import Layout, Window, collate, cut_windows, draw_batch, replace_tokens
from speechssl.encoders.store import store_features
from speechssl.multiple_choice.options import ChoiceOptions
from speechssl.speechbert.data import SPECIALS, stack_codes
from speechssl.text import split_pieces
from speechssl.text.tfidf import list_ngrams
from speechssl.textlm.tokenizers import TextCodec
from speechssl.timing import RunLength

if TYPE_CHECKING:  # the Trainer takes long to import, and answering does not need it
    from speechssl.training import Batch

# a guess by which the size of files is estimated: passages have more audio words, options fewer
WORDS_PER_RECORDING = 100
# tokens of the longest n-gram: a unit, unlike a word piece, says something only with its neighbours
LONGEST_NGRAM = 4


@dataclass(frozen=True, eq=False)
class ChoiceTokens:
    """A multiple-choice question has the token ids of its parts."""

    question: np.ndarray  # (Q,) int
    options: tuple[np.ndarray, ...]
    passage: np.ndarray  # (P,) int, may be empty

    def cut_windows(self, layout: Layout) -> tuple[Window, ...]:
        """Cut the passage into windows. A passage without tokens gets an empty one: question and
        options are still read."""
        return cut_windows(len(self.passage), layout.size, layout.stride) or (Window(0, 0),)

    def make_sequence(self, layout: Layout, option: int, window: Window) -> tuple[np.ndarray, int]:
        """Return ids (S,) of `[CLS] question [SEP] option [SEP] window [SEP]` and the position of
        the window's first token.

        Where question and option are too long, the question loses its tail first.
        """
        option_ids = self.options[option][: layout.question // 2]
        question = self.question[: layout.question - 1 - len(option_ids)]
        query = np.concatenate([question, [layout.sep], option_ids])
        return layout.make_sequence(query, self.passage[window.first : window.stop])


@dataclass(frozen=True, eq=False)
class ChoiceExample:
    """An example is a question to train on."""

    choice: ChoiceTokens
    windows: tuple[Window, ...]  # from the most to the least in common with the question
    correct: tuple[int, ...]  # indices of the right options


def sort_by_overlap(choice: ChoiceTokens, windows: Sequence[Window]) -> tuple[Window, ...]:
    """Sort windows by the weight of the n-grams that they share with the question and its options,
    the greatest first.

    An n-gram weighs the logarithm of (windows / windows that hold it): one that is in all windows
    weighs nothing.
    """
    query = _collect_ngrams(choice.question, *choice.options)
    shared = [query & _collect_ngrams(choice.passage[w.first : w.stop]) for w in windows]
    counts = Counter(term for terms in shared for term in terms)
    weights = []
    for terms in shared:
        weights.append(math.fsum(math.log(len(windows) / counts[term]) for term in terms))
    return tuple(windows[i] for i in np.argsort(-np.array(weights), kind="stable"))


def _collect_ngrams(*parts: np.ndarray) -> set[Hashable]:
    """Collect the n-grams of up to LONGEST_NGRAM tokens in these arrays of token ids."""
    terms: set[Hashable] = set()
    for tokens in parts:
        for n in range(1, LONGEST_NGRAM + 1):
            terms.update(list_ngrams(tokens.tolist(), n))
    return terms


def sort_by_similarity(
    query: np.ndarray, passage: np.ndarray, windows: Sequence[Window]
) -> tuple[Window, ...]:
    """Sort windows by how similar their audio words are to those of question and options, the most
    similar first. query: codes (A, E) of question and options; passage: codes (P, E).

    No two audio words are the same, so cosines take the place of shared n-grams. A window gets, for
    every word of the query, the greatest cosine with one of its own words, less the mean of that
    over all windows, for a word that is in all of them says nothing.
    """
    cosines = _normalise(query) @ _normalise(passage).T
    greatest = np.stack([cosines[:, w.first : w.stop].max(1) for w in windows])  # (windows, A)
    weights = (greatest - greatest.mean(0)).sum(1)
    return tuple(windows[i] for i in np.argsort(-weights, kind="stable"))


def _normalise(codes: np.ndarray) -> np.ndarray:
    """Scale codes (N, E) to length 1."""
    return codes / np.maximum(np.linalg.norm(codes, axis=1, keepdims=True), 1e-9)


# examples, and, id -> reason, the questions that are left out
Examples = tuple[list[ChoiceExample], dict[str, str]]


def make_examples(
    data: Corpus,
    tokenise: Callable[[Question], ChoiceTokens | str],
    layout: Layout,
    sort_windows: Callable[..., tuple[Window, ...]] = sort_by_overlap,
) -> Examples:
    """Make one example a question. tokenise: question -> its tokens, or the reason why it has none;
    sort_windows: as `sort_by_overlap` does."""
    examples = []
    left_out = {}
    for question in data.choices:
        choice = tokenise(question)
        if isinstance(choice, str):
            left_out[question.id] = choice
        else:
            ordered = sort_windows(choice, choice.cut_windows(layout))
            examples.append(ChoiceExample(choice, ordered, tuple(question.correct)))
    return examples, left_out


def make_spoken_choice(
    tokens: Mapping[str, Any], question: Question, what: str
) -> ChoiceTokens | str:
    """Make a question from the tokens of its recordings; or return the reason why it cannot be
    made. tokens: id of a recording -> its tokens; what: their kind, for the reason."""
    names = (question.id, question.passage, *question.option_ids)
    for name in names:
        if name not in tokens:
            return f"no {what} of {name}"
    question_tokens, passage, *options = (tokens[name] for name in names)
    return ChoiceTokens(question_tokens, tuple(options), passage)


def make_unit_examples(data: Corpus, units: Mapping[str, RunLength], layout: Layout) -> Examples:
    """Make one example a question, of the units of its recordings."""
    tokens = {name: runs.units for name, runs in units.items()}
    return make_examples(
        data, lambda question: make_spoken_choice(tokens, question, "units"), layout
    )


def make_text_examples(data: Corpus, codec: TextCodec, layout: Layout, source: str) -> Examples:
    """Make one example a question, of its words. source: as in `choose_text`."""

    def tokenise(question: Question) -> ChoiceTokens | str:
        choice = make_text_choice(codec, question, data.passages[question.passage], source)
        return choice or (
            f"passage {question.passage} has no {'text' if source == 'text' else 'transcript'}"
        )

    return make_examples(data, tokenise, layout)


def choose_text(record: Passage | Question, source: str) -> str:
    """Return the text of a record. source: text (the reference), or given (the corpus's
    transcript). A question without a transcript is read as its original text."""
    if source == "text":
        return record.text
    return record.transcript or (record.text if isinstance(record, Question) else "")


def make_text_choice(
    codec: TextCodec, question: Question, passage: Passage, source: str
) -> ChoiceTokens | None:
    """Return the token ids of a question's texts; None where the passage has none. source: as in
    `choose_text`."""
    if not choose_text(passage, source):
        return None
    ids = []
    for text in (choose_text(question, source), *question.options, choose_text(passage, source)):
        words = [word for word, _ in split_pieces(text, question.language)]
        ids.append(codec.encode(words)[0])
    return ChoiceTokens(ids[0], tuple(ids[1:-1]), ids[-1])


def make_code_examples(
    data: Corpus, encoded: Mapping[str, np.ndarray], layout: Layout
) -> tuple[torch.Tensor, list[ChoiceExample], dict[str, str]]:
    """Make a table of the codes of all audio words (N, E), and one example a question. Returns
    both, and, id -> reason, the questions that are left out. encoded: by `encode_recordings`."""
    codes, ids = stack_codes(encoded, next(iter(encoded.values())).shape[1])
    # codes by the ids of their words; specials have none
    rows = np.concatenate([np.zeros((SPECIALS, codes.shape[1]), np.float32), codes.numpy()])

    def tokenise(question: Question) -> ChoiceTokens | str:
        return make_spoken_choice(ids, question, "audio words")

    def sort_windows(choice: ChoiceTokens, windows: Sequence[Window]) -> tuple[Window, ...]:
        query = np.concatenate([choice.question, *choice.options])
        return sort_by_similarity(rows[query], rows[choice.passage], windows)

    return codes, *make_examples(data, tokenise, layout, sort_windows)


def find_recordings(data: Corpus) -> dict[str, Path]:
    """Find the recordings, by id, of the multiple-choice questions, their options and their
    passages."""
    used = {q.passage for q in data.choices}
    passages = [p for p in data.passages.values() if p.id in used]
    records: list[Passage | Question] = [*passages, *data.choices]
    files = {record.id: record.audio for record in records if record.audio}
    for q in data.choices:
        files.update(zip(q.option_ids, q.option_audio, strict=False))
    return {name: data.root / audio for name, audio in files.items()}


def encode_recordings(
    system: Any, paths: Mapping[str, Path], folder: Path
) -> dict[str, np.ndarray]:
    """Encode every recording as audio words. Returns id -> codes (N, E) float32, which are kept in
    `folder`. system: SpeechBertSystem.

    Recordings that cannot be read, or have no words, are set aside and listed. Raises InputError
    where none is left.
    """

    def encode(path: Path) -> tuple[torch.Tensor, None]:
        codes = system.encode(None, read_audio(path)).codes
        if not len(codes):
            raise ValueError("no word was recognised in it")
        return torch.from_numpy(codes).half(), None

    sizes = dict.fromkeys(paths, 2 * WORDS_PER_RECORDING * system.words.code)
    made_from = {"speechbert": dict(system.card), "recordings": hash_json(list(paths))}
    store = store_features(folder, paths, encode, sizes, made_from, "audio words")
    return {name: store[name].float().numpy() for name in store.places}


@dataclass(frozen=True)
class ChoiceBatches:
    """Calling this gives a batch of questions, which depends on (seed, step) only. Tensors are (B,
    O, W, S), padded; `correct` is (B, O)."""

    examples: Sequence[ChoiceExample]
    layout: Layout
    options: ChoiceOptions

    def __call__(self, step: int) -> Batch:
        o = self.options
        numbers, rng = draw_batch(step, len(self.examples), o.batch, o.training.seed)
        examples = [self.examples[i] for i in numbers]
        windows_read = [self.sample_windows(rng, example) for example in examples]
        options = max(len(e.choice.options) for e in examples)
        most_windows = max(map(len, windows_read))
        rows = []  # of every sequence among B x O x W
        sequences = []
        for b, example in enumerate(examples):
            for option in range(len(example.choice.options)):
                for w, window in enumerate(windows_read[b]):
                    rows.append((b * options + option) * most_windows + w)
                    sequences.append(example.choice.make_sequence(self.layout, option, window))
        for sequence, _ in sequences:
            replace_tokens(rng, sequence, o.random_units, self.layout.symbols)
        batch = {}
        for name, value in collate(sequences, self.layout.pad).items():
            # zeros where there is no option or window
            padded = value.new_zeros(len(examples) * options * most_windows, value.shape[1])
            padded = padded.index_copy(0, torch.tensor(rows), value)
            batch[name] = padded.view(len(examples), options, most_windows, -1)
        correct = [functional.one_hot(torch.tensor(e.correct), options).sum(0) for e in examples]
        return batch | {"correct": torch.stack(correct)}

    def sample_windows(self, rng: np.random.Generator, example: ChoiceExample) -> list[Window]:
        """Take half of the windows (rounded up) from the beginning of the example's, the others at
        random from the rest."""
        count = self.options.windows or len(example.windows)
        half = (count + 1) // 2
        chosen = list(example.windows[:half])
        rest = example.windows[half:]
        for i in rng.permutation(len(rest))[: count - len(chosen)]:
            chosen.append(rest[i])
        return chosen
