"""The text of MiniSQA: passages about invented people and questions whose answers are known to the character.

A passage states some relations of two or three people, among neutral sentences. Every question that has an answer also
has two kinds of decoy: another person with the same relation, and another fact about the same person. So neither the
name nor the relation alone finds the answer. What a language says, and how, is data: `minisqa_english.py`,
`minisqa_mandarin.py`.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from random import Random

LANGUAGES = {"en": "minisqa_english", "zh": "minisqa_mandarin"}  # code -> the module here that holds its LANGUAGE
SPLITS = {"train": range(70), "dev": range(70, 80), "test": range(80, 100)}  # the hash percentiles a split owns
PERSON = "person"  # the value type that also names the people of a passage

# Who has which relation: a word is one relation, its letters the people it is stated for. Each has an unstated pair.
LAYOUTS = (
    "ab a b", "ab ab a", "ab ab a b", "ab ab ab a", "ab ab ab a b", "ab ab a b a b",
    "ab bc ca", "abc ab c", "abc ab bc", "ab bc ca a", "abc abc a", "ab bc ca ab", "abc abc ab", "abc ab bc c",
)  # fmt: skip


@dataclass(frozen=True)
class TextQuestion:
    """One question about a passage, with its answer and the four options of its multiple-choice form."""

    text: str  # spoken form, e.g. "where was anna holloway born"
    relation: str  # e.g. "birthplace"
    answer: str | None  # exact substring of sentences[sentence]; None = the passage does not say
    sentence: int  # index of the sentence holding the answer; -1 when None
    start: int  # character offset of the answer in that sentence; -1 when None
    options: tuple[str, ...]  # four different values of one type, the right one among them; () when unanswerable
    correct: int  # index into options; -1 when unanswerable


@dataclass(frozen=True)
class TextPassage:
    """Sentences in spoken form (no punctuation) and the questions about them."""

    index: int  # which passage of its split
    sentences: tuple[str, ...]  # 5 to 12
    questions: tuple[TextQuestion, ...]


@dataclass(frozen=True)
class Relation:
    """Something that can be said of a person, with the ways to say it and to ask for it."""

    name: str  # e.g. "birthplace"
    value_type: str  # a key of Language.values, e.g. "place"
    facts: tuple[str, ...]  # at least three templates with {name} and {value}
    questions: tuple[str, ...]  # at least three templates with {name}


Pattern = tuple[tuple[str, ...], ...]  # one word from each slot makes a value: (("silver", "old"), ("lantern", "clock"))


@dataclass(frozen=True)
class Language:
    """Everything the generator needs to know of a language."""

    joiner: str  # between words: " " in English, "" in Mandarin
    values: Mapping[str, tuple[Pattern, ...]]  # value type -> its patterns, each equally likely
    relations: tuple[Relation, ...]
    fillers: tuple[str, ...]  # sentences that say nothing of anybody


@dataclass(frozen=True)
class _Fact:
    """A relation of a person; `value`, `text` and `start` say nothing (None, "", -1) where the passage does not state it."""

    person: str
    relation: Relation
    value: str | None = None
    text: str = ""  # the sentence that states it
    start: int = -1  # characters, of the value in the sentence


def generate_passage(
    language: str, split: str, index: int, seed: int, questions: int = 5, unanswerable: float = 0.1
) -> TextPassage:
    """The passage number `index` of a split: the same one for the same arguments, on every machine and in any order.

    `unanswerable` is the chance of each question to ask what the passage leaves out; neither it nor `questions` changes
    the sentences. No question comes twice before every phrasing of every pair of
    person and relation has been used: six questions at the least, a dozen or more in most passages.
    Raises ValueError for an unknown language or split, a negative number, or a chance outside 0 to 1.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; known: {', '.join(SPLITS)}")
    if index < 0 or questions < 0 or not 0 <= unanswerable <= 1:
        raise ValueError(f"index={index}, questions={questions}, unanswerable={unanswerable}: need >= 0, >= 0, 0 to 1")
    words, key = load_language(language), f"minisqa/{language}/{split}/{seed}/{index}"
    facts, sentences = _draft(Random(key), words, split)
    asked = _questions(Random(f"{key}/questions"), words, split, facts, sentences, unanswerable)
    return TextPassage(index, sentences, tuple(itertools.islice(asked, questions)))


@cache
def load_language(code: str) -> Language:
    """The vocabulary and templates of a language. Raises ValueError for an unknown code."""
    if code not in LANGUAGES:
        raise ValueError(f"unknown language {code!r}; known: {', '.join(LANGUAGES)}")
    return import_module(f"{__package__}.{LANGUAGES[code]}").LANGUAGE


def split_of(value: str) -> str:
    """The split that owns a value: fixed by a hash of its text, about 70 / 10 / 20 for train, dev and test."""
    percentile = int(hashlib.sha256(value.encode()).hexdigest(), 16) % 100
    return next(split for split, owned in SPLITS.items() if percentile in owned)


def occurrences(text: str, value: str, joiner: str) -> int:
    """How often `value` stands in `text`, as whole words where the language has spaces."""
    return len(re.findall(rf"\b{re.escape(value)}\b", text)) if joiner else text.count(value)


def _draft(rng: Random, words: Language, split: str) -> tuple[list[_Fact], tuple[str, ...]]:
    """Facts (a layout filled with people, relations and values) and the shuffled sentences that state them, drawn again until every
    value stands there exactly once.
    """
    while True:
        layout, taken, facts = rng.choice(LAYOUTS).split(), set(), []
        people = {letter: _value(rng, words, split, PERSON, taken) for letter in "abc"}
        # different relations; half the time the first ones share a value type, so the type decides nothing
        first, *rest = rng.sample(words.relations, len(words.relations))
        if rng.random() < 0.5:
            same = [relation for relation in rest if relation.value_type == first.value_type]
            rest = same + [relation for relation in rest if relation not in same]
        for relation, letters in zip([first, *rest][: len(layout)], layout, strict=True):
            for person in (people[letter] for letter in letters):
                value, template = _value(rng, words, split, relation.value_type, taken), rng.choice(relation.facts)
                start = len(template.partition("{value}")[0].format(name=person))
                facts.append(_Fact(person, relation, value, template.format(name=person, value=value), start))
        sentences = [fact.text for fact in facts] + rng.sample(words.fillers, rng.randint(1, 4))
        rng.shuffle(sentences)
        text = words.joiner.join(sentences)
        if all(occurrences(text, fact.value, words.joiner) == 1 for fact in facts):
            return facts, tuple(sentences)


def _value(rng: Random, words: Language, split: str, value_type: str, taken: set[str]) -> str:
    """A value that belongs to the split; of people, one none of whose names is in `taken`, which then holds them."""
    while True:
        parts = [rng.choice(slot) for slot in rng.choice(words.values[value_type])]
        value = words.joiner.join(parts)
        if split_of(value) == split and not (value_type == PERSON and taken.intersection(parts)):
            taken.update(parts if value_type == PERSON else ())
            return value


def _questions(
    rng: Random, words: Language, split: str, facts: list[_Fact], sentences: tuple[str, ...], unanswerable: float
) -> Iterator[TextQuestion]:
    """Questions without end, each unanswerable with the given chance."""
    people, relations = [fact.person for fact in facts], [fact.relation for fact in facts]
    # facts whose relation is stated of somebody else too and whose person has another fact; and the pairs of a person and a
    # relation that both occur in the passage, but not together
    decoyed = [fact for fact in facts if people.count(fact.person) > 1 and relations.count(fact.relation) > 1]
    pairs = itertools.product(dict.fromkeys(people), dict.fromkeys(relations))
    left_out = [_Fact(*pair) for pair in pairs if pair not in {(fact.person, fact.relation) for fact in facts}]
    stated, unstated = _deck(rng, decoyed), _deck(rng, left_out)
    while True:
        fact, text = next(unstated if rng.random() < unanswerable else stated)
        if fact.value is None:
            yield TextQuestion(text, fact.relation.name, None, -1, -1, (), -1)
        else:
            options = _options(rng, words, split, fact, facts)
            where = sentences.index(fact.text), fact.start
            yield TextQuestion(text, fact.relation.name, fact.value, *where, options, options.index(fact.value))


def _deck(rng: Random, facts: list[_Fact]) -> Iterator[tuple[_Fact, str]]:
    """Facts to ask for, each in a phrasing: all facts once, then all in another phrasing, and so on without end."""
    order = rng.sample(facts, len(facts))
    phrasings = [rng.sample(fact.relation.questions, len(fact.relation.questions)) for fact in order]
    for turn in itertools.count():
        for fact, ways in zip(order, phrasings, strict=True):
            yield fact, ways[turn % len(ways)].format(name=fact.person)


def _options(rng: Random, words: Language, split: str, fact: _Fact, facts: list[_Fact]) -> tuple[str, ...]:
    """Four values of one type, shuffled: the right one, then those the passage gives others, then new ones."""
    kind = fact.relation.value_type
    others = [other.value for other in facts if other.relation.value_type == kind and other.value != fact.value]
    others.sort(key=lambda value: value not in {o.value for o in facts if o.relation == fact.relation})
    options = [fact.value, *others][:4]
    while len(options) < 4:
        options += {_value(rng, words, split, kind, set())}.difference(options)
    return tuple(rng.sample(options, 4))
