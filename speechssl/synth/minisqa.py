"""Make MiniSQA: passages about invented people and questions whose answers are known to the
character, read by synthetic voices.

**Text.** A passage states some relations of two or three people, among neutral sentences. Every
question that has an answer also has two kinds of decoy: another person with the same relation, and
another fact about the same person. So neither the name nor the relation alone finds the answer. The
words and sentences of a language are data: `english.yaml`, `mandarin.yaml`. They are frozen with
the models that were trained on them. A held-out corpus has another vocabulary
(`english_held_out.yaml`, `mandarin_held_out.yaml`): no word of its names and values and none of its
sentence patterns occurs in the ordinary one.

**Speech.** A passage is read by one speaker sentence by sentence with short pauses; each of its
questions by another speaker of the same split. In the test of espeak-ng passages, questions and the
pairs of their voices are dealt out evenly. With `reference=True` every training passage is read a
second time by one neutral voice, with time anchors between the two readings: what a perfect voice
converter would give (the teacher of ContentVec, arXiv 2204.09224, section 3.1).
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artifacts import CORPUS_RECORD, begin_stage, read_json, write_json, write_lines
from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.prepare import run_parallel
from speechssl.data.records import Answer, Passage, Question, Span, hash_data, shorten_record
from speechssl.errors import InputError
from speechssl.synth.options import MiniSqa
from speechssl.synth.synthesisers import Voice, list_voices, speak, try_voice

LANGUAGES = {"en": "en-us", "zh": "cmn"}  # code -> espeak-ng's name
VOCABULARIES = {"en": "english.yaml", "zh": "mandarin.yaml"}
HELD_OUT = {"en": "english_held_out.yaml", "zh": "mandarin_held_out.yaml"}
# split -> percentiles of the hash of a value that belong to it: splits have no value in common
SPLITS = {"train": range(70), "dev": range(70, 80), "test": range(80, 100)}
PERSON = "person"  # the type of the values that name the people of a passage

# A layout has a word for every relation of a passage. Its letters are the people of whom the
# passage states the relation: "ab a b" states the first relation of Ann and Bob, the second of Ann,
# the third of Bob. At least one pair of a person and a relation is left out, for unanswerable
# questions.
LAYOUTS = (
    "ab a b", "ab ab a", "ab ab a b", "ab ab ab a", "ab ab ab a b", "ab ab a b a b",
    "ab bc ca", "abc ab c", "abc ab bc", "ab bc ca a", "abc abc a", "ab bc ca ab", "abc abc ab",
    "abc ab bc c",
)  # fmt: skip


@dataclass(frozen=True)
class TextQuestion:
    """A question is about a passage, with its answer and the four options of its multiple-choice
    form."""

    text: str  # spoken form, e.g. "where was anna holloway born"
    relation: str  # e.g. "birthplace"
    # exact substring of sentences[sentence]; None: the passage does not say it
    answer: str | None = None
    sentence: int = -1  # index of the sentence with the answer; -1 where there is none
    start: int = -1  # character offset of the answer in that sentence; -1 where there is none
    # four different values of one type, the right one among them; () when unanswerable
    options: tuple[str, ...] = ()
    correct: int = -1  # index into options; -1 when unanswerable


@dataclass(frozen=True)
class TextPassage:
    """A passage has sentences in spoken form (no punctuation), and the questions about them."""

    index: int  # number of the passage in its split
    sentences: tuple[str, ...]  # 5 to 12
    questions: tuple[TextQuestion, ...]


@dataclass(frozen=True)
class Relation:
    """A relation is something to say of a person, with the ways to say it and to ask for it."""

    name: str  # e.g. "birthplace"
    value_type: str  # a key of Language.values, e.g. "place"
    facts: tuple[str, ...]  # at least three templates with {name} and {value}
    questions: tuple[str, ...]  # at least three templates with {name}


# A value has one word from each slot: "old clock" from (("silver", "old"), ("lantern", "clock")).
Pattern = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Language:
    """A language is the vocabulary and the templates of the generator."""

    joiner: str  # the string between words: " " in English, "" in Mandarin
    values: Mapping[str, tuple[Pattern, ...]]  # value type -> its patterns, all equally likely
    relations: tuple[Relation, ...]
    fillers: tuple[str, ...]  # sentences that say nothing of anybody


@dataclass(frozen=True)
class _Fact:
    """A fact is a relation of a person. A fact that the passage does not state has no value."""

    person: str
    relation: Relation
    value: str = ""
    text: str = ""  # the sentence that states it
    start: int = -1  # character offset of the value in that sentence


def generate_passage(
    language: str,
    split: str,
    index: int,
    seed: int,
    questions: int = 5,
    unanswerable: float = 0.1,
    held_out: bool = False,
) -> TextPassage:
    """Generate the passage number `index` of a split. The same arguments give the same passage, on
    every machine and in any order of calls.

    unanswerable: the probability of a question that the passage does not answer. Neither it nor
    `questions` changes the sentences. No question comes twice before every phrasing of every pair
    of person and relation has been used: at least six questions, in most passages a dozen or more.
    """
    words = load_language(language, held_out)
    key = f"minisqa{'-held-out' * held_out}/{language}/{split}/{seed}/{index}"
    facts, sentences = _draw_sentences(random.Random(key), words, split)
    rng = random.Random(f"{key}/questions")
    all_questions = _draw_questions(rng, words, split, facts, sentences, unanswerable)
    return TextPassage(index, sentences, tuple(itertools.islice(all_questions, questions)))


@cache
def load_language(code: str, held_out: bool = False) -> Language:
    """Load the vocabulary and templates of a language."""
    texts = load_vocabulary((HELD_OUT if held_out else VOCABULARIES)[code])
    words = {name: split_phrases(text) for name, text in texts["words"].items()}
    values: dict[str, tuple[Pattern, ...]] = {}
    for value_type, patterns in texts["values"].items():
        resolved = []
        for pattern in patterns:  # its slots are names of lists of words, or words
            resolved.append(tuple(words.get(slot, (slot,)) for slot in pattern))
        values[value_type] = tuple(resolved)
    relations = []
    for name, relation in texts["relations"].items():
        facts = split_phrases(relation["facts"])
        questions = split_phrases(relation["questions"])
        relations.append(Relation(name, relation["of"], facts, questions))
    return Language(texts["joiner"], values, tuple(relations), split_phrases(texts["fillers"]))


@cache
def collect_known_words(code: str) -> frozenset[str]:
    """Collect all words of the ordinary corpus of a language: those of its values, facts, questions
    and fillers."""
    language = load_language(code)
    texts = list(language.fillers)
    for patterns in language.values.values():
        for pattern in patterns:
            for slot in pattern:
                texts += slot
    for relation in language.relations:
        texts += [re.sub(r"\{\w+\}", " ", t) for t in (*relation.facts, *relation.questions)]
    words: set[str] = set()
    for text in texts:
        words.update(split_words(text, language.joiner))
    return frozenset(words)


def split_words(text: str, joiner: str) -> list[str]:
    """Split a text into its words, or into characters where the language has no spaces."""
    return text.split() if joiner else [character for character in text if not character.isspace()]


def measure_unknown_words(code: str, passages: Iterable[TextPassage]) -> dict[str, float]:
    """Return the percentages of unknown words among all words and among different words, and of
    answers with at least one unknown word. A word is unknown if the ordinary corpus does not have
    it; in a language without spaces a word is a character."""
    joiner = load_language(code).joiner
    known = collect_known_words(code)
    words: list[str] = []
    answers: list[bool] = []
    for passage in passages:
        for text in (*passage.sentences, *(question.text for question in passage.questions)):
            words += split_words(text, joiner)
        for question in passage.questions:
            if question.answer:
                answers.append(not known.issuperset(split_words(question.answer, joiner)))
    unit = "words" if joiner else "characters"
    unknown = {  # kind of item -> whether each item is unknown
        unit: [word not in known for word in words],
        f"different {unit}": [word not in known for word in set(words)],
        "answers": answers,
    }
    percentages = {}
    for kind, flags in unknown.items():
        if flags:
            percentages[kind] = round(100 * sum(flags) / len(flags), 1)
    return percentages


@cache
def load_vocabulary(name: str) -> dict[str, Any]:
    """Load a YAML file of this folder."""
    import yaml

    return dict(yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8")))


def split_phrases(text: str) -> tuple[str, ...]:
    """Split a text at its commas, or at white space where it has none."""
    return tuple(text.split(", ") if "," in text else text.split())


def find_split(value: str) -> str:
    """Find the split to which a value belongs, by a hash of its text: about 70 % of the values
    train, 10 % dev, 20 % test."""
    percentile = int(hashlib.sha256(value.encode()).hexdigest(), 16) % 100
    return next(split for split, percentiles in SPLITS.items() if percentile in percentiles)


def count_occurrences(text: str, value: str, joiner: str) -> int:
    """Count how often `value` stands in `text`, as whole words where the language has spaces."""
    return len(re.findall(rf"\b{re.escape(value)}\b", text)) if joiner else text.count(value)


def _draw_sentences(
    rng: random.Random, words: Language, split: str
) -> tuple[list[_Fact], tuple[str, ...]]:
    """Draw facts, and sentences that state them among neutral ones, shuffled. Draw again until
    every value occurs exactly once in the sentences."""
    while True:
        layout = rng.choice(LAYOUTS).split()
        names: set[str] = set()
        people = {letter: _draw_value(rng, words, split, PERSON, names) for letter in "abc"}
        # half of the time the first relations have the same type of value, so that the type alone
        # does not tell the answer
        first, *rest = rng.sample(words.relations, len(words.relations))
        if rng.random() < 0.5:
            same = [relation for relation in rest if relation.value_type == first.value_type]
            rest = same + [relation for relation in rest if relation not in same]
        facts: list[_Fact] = []
        for relation, letters in zip([first, *rest][: len(layout)], layout, strict=True):
            for letter in letters:
                value = _draw_value(rng, words, split, relation.value_type, names)
                template = rng.choice(relation.facts)
                start = len(template.partition("{value}")[0].format(name=people[letter]))
                text = template.format(name=people[letter], value=value)
                facts.append(_Fact(people[letter], relation, value, text, start))
        sentences = [fact.text for fact in facts] + rng.sample(words.fillers, rng.randint(1, 4))
        rng.shuffle(sentences)
        text = words.joiner.join(sentences)
        if all(count_occurrences(text, fact.value, words.joiner) == 1 for fact in facts):
            return facts, tuple(sentences)


def _draw_value(
    rng: random.Random, words: Language, split: str, value_type: str, names: set[str]
) -> str:
    """Draw a value that belongs to the split. The first and the last name of a person are not among
    `names`, and are added to these."""
    while True:
        parts = [rng.choice(slot) for slot in rng.choice(words.values[value_type])]
        value = words.joiner.join(parts)
        if find_split(value) != split:
            continue
        if value_type != PERSON:
            return value
        if not names.intersection(parts):
            names.update(parts)
            return value


def _draw_questions(
    rng: random.Random,
    words: Language,
    split: str,
    facts: list[_Fact],
    sentences: tuple[str, ...],
    unanswerable: float,
) -> Iterator[TextQuestion]:
    """Yield questions without end. unanswerable: the probability that a question has no answer."""
    people = [fact.person for fact in facts]
    relations = [fact.relation for fact in facts]
    # facts with both decoys: the relation is stated of somebody else too, and another of the person
    with_decoys = []
    for fact in facts:
        if people.count(fact.person) > 1 and relations.count(fact.relation) > 1:
            with_decoys.append(fact)
    # pairs of a person and a relation that both occur in the passage, but not together
    stated = list(zip(people, relations, strict=True))
    unstated = []
    for pair in itertools.product(dict.fromkeys(people), dict.fromkeys(relations)):
        if pair not in stated:
            unstated.append(_Fact(*pair))
    answerable_texts = _phrase(rng, with_decoys)
    unanswerable_texts = _phrase(rng, unstated)
    while True:
        is_unanswerable = rng.random() < unanswerable
        fact, text = next(unanswerable_texts if is_unanswerable else answerable_texts)
        if is_unanswerable:
            yield TextQuestion(text, fact.relation.name)
            continue
        options = _draw_options(rng, words, split, fact, facts)
        yield TextQuestion(
            text,
            relation=fact.relation.name,
            answer=fact.value,
            sentence=sentences.index(fact.text),
            start=fact.start,
            options=options,
            correct=options.index(fact.value),
        )


def _phrase(rng: random.Random, facts: list[_Fact]) -> Iterator[tuple[_Fact, str]]:
    """Yield (fact, text of a question about it): all facts in random order, then all of them with
    another phrasing, and so on without end."""
    order = rng.sample(facts, len(facts))
    templates = []
    for fact in order:
        templates.append(rng.sample(fact.relation.questions, len(fact.relation.questions)))
    for turn in itertools.count():
        for fact, phrasings in zip(order, templates, strict=True):
            yield fact, phrasings[turn % len(phrasings)].format(name=fact.person)


def _draw_options(
    rng: random.Random, words: Language, split: str, fact: _Fact, facts: list[_Fact]
) -> tuple[str, ...]:
    """Draw the four options of a question, values of one type, and shuffle them: the right one,
    other values in the passage (those of the same relation first), and new values if these are not
    enough."""
    value_type = fact.relation.value_type
    others = [f for f in facts if f.relation.value_type == value_type and f.value != fact.value]
    others.sort(key=lambda other: other.relation != fact.relation)  # the same relation first
    options = [fact.value, *(other.value for other in others)][:4]
    while len(options) < 4:
        value = _draw_value(rng, words, split, value_type, set())
        if value not in options:
            options.append(value)
    return tuple(rng.sample(options, 4))


# version of the generator, for the card: corpora of different versions are never mixed up
VERSION = 3
PAUSE = 0.25  # seconds between sentences
ESPEAK = "espeak-ng"


def list_split_voices(language: str, split: str, synthesiser: str = ESPEAK) -> tuple[Voice, ...]:
    """List the voices of a split. Synthesisers other than espeak-ng have few voices, which are the
    same in every split.

    Raises InputError for a synthesiser that does not speak the language.
    """
    if synthesiser != ESPEAK:
        if language != "en" and (language, synthesiser) != ("zh", "kokoro"):
            raise InputError(
                f"{synthesiser} speaks English only; leave out --synthesiser for "
                f"the language {language}"
            )
        return list_voices(synthesiser)
    content = load_vocabulary("speakers.yaml")
    variants = split_phrases(content["variants"][split])
    prosody = [cycle(content[name]) for name in ("rates", "pitches", "ranges")]
    voices = []
    for variant, rate, pitch, pitch_range in zip(variants, *prosody, strict=False):
        name = f"{language}-{variant.lower()}"
        voices.append(Voice(name, LANGUAGES[language], variant, rate, pitch, pitch_range))
    return tuple(voices)


def assign_voices(o: MiniSqa, split: str, index: int) -> list[Voice]:
    """Choose the voice that reads a passage and the voices that ask its questions. The askers are
    other voices than the reader where there is more than one voice.

    In the test of espeak-ng every voice reads equally many passages (but for one) and asks equally
    many questions, and in voices x (voices - 1) passages every pair of reader and asker occurs
    equally often. Elsewhere voices are drawn at random.
    """
    language, seed, questions = o.language, o.seed, o.questions
    voices = list_split_voices(language, split, o.synthesiser)
    reader = 0  # number of the reader in the order of the voices
    first_asker = 0  # number of the first asker among the other voices
    key = f"speakers {language} {split} {index} {seed}"
    if split == "test" and o.synthesiser == ESPEAK:
        # one order for all passages: readers take turns, and askers go on where they stopped
        turn, reader = divmod(index, len(voices))
        first_asker = turn * questions
        key = f"speakers {language} {split} {seed}"
    order = random.Random(key).sample(voices, k=len(voices))
    others = [*order[reader + 1 :], *order[:reader]] or order
    askers = [others[(first_asker + number) % len(others)] for number in range(questions)]
    return [order[reader], *askers]


@dataclass(frozen=True)
class SpokenSentences:
    """Spoken sentences were read by one voice, one after another."""

    samples: np.ndarray  # (N,) at 16 kHz
    words: tuple[Span, ...]
    phones: tuple[Span, ...]
    characters: tuple[int, ...]  # offset of every word in the joined text


def count_passages(o: MiniSqa) -> dict[str, int]:
    """Return the number of passages of every split."""
    train, dev = (0, 0) if o.held_out else (2000, 80)
    return {
        "train": train if o.passages is None else o.passages,
        "dev": dev if o.dev_passages is None else o.dev_passages,
        "test": o.test_passages,
    }


def generate_corpus_passage(o: MiniSqa, split: str, index: int) -> TextPassage:
    """Generate the text of one passage of the corpus with these options."""
    return generate_passage(
        o.language,
        split,
        index,
        o.seed,
        questions=o.questions,
        unanswerable=o.unanswerable,
        held_out=o.held_out,
    )


def write_command(o: MiniSqa) -> str:
    """Write the command that makes this corpus again."""
    train, dev, test = count_passages(o).values()
    words = [f"speechssl prepare minisqa OUT --language {o.language} --passages {train}"]
    words += [f"--dev-passages {dev} --test-passages {test} --questions {o.questions}"]
    words += [f"--unanswerable {o.unanswerable}"] + ["--reference"] * o.reference
    words += [f"--synthesiser {o.synthesiser}"] + ["--held-out"] * o.held_out
    return " ".join([*words, f"--seed {o.seed}"])


def prepare_minisqa(o: MiniSqa) -> dict[str, Any]:
    """Write the corpus to `o.out` and return its card. A finished corpus is left alone; a killed
    run goes on where it was.

    The bytes depend on the options, but not on `workers`; kokoro draws noise anew, and its samples
    differ each time. Raises InputError when `o.out` holds a corpus of other options, and for an
    unknown language or synthesiser.
    """
    voices = list_split_voices(o.language, "train", o.synthesiser)
    passages = count_passages(o)
    settings: dict[str, Any] = {
        "language": o.language,
        "passages": passages,
        "seed": o.seed,
        "questions": o.questions,
        "unanswerable": o.unanswerable,
        "reference": o.reference,
    }
    if o.synthesiser != ESPEAK:
        settings["synthesiser"] = o.synthesiser
    if o.held_out:
        settings["held_out"] = True
    name = "minisqa held-out" if o.held_out else "minisqa"
    made_from = {"corpus": name, "version": VERSION, "settings": settings}
    with begin_stage(o.out, made_from, record=CORPUS_RECORD, lasting=("*/audio",)) as step:
        if step.done:
            card = dict(step.card)
        else:
            try_voice(voices[0], o.language)  # what is missing raises here, not in every worker
            for split in SPLITS:
                _write_split(o, split, passages[split])
            card = step.finish(made_from | _make_card(o, passages))
    sizes = (f"{n} {split} passage{'s' * (n != 1)}" for split, n in passages.items() if n)
    print(f"{o.out}: MiniSQA{' held-out' * o.held_out} {o.language}, {', '.join(sizes)}")
    for split, shares in card.get("unknown_words", {}).items():
        percentages = ", ".join(f"{share} % of the {kind}" for kind, share in shares.items())
        print(f"unknown to the training texts of MiniSQA, in {split}: {percentages}")
    return card


def _write_split(o: MiniSqa, split: str, count: int) -> None:
    """Speak a split, and write its manifests last. A part is the file of one passage; parts that a
    killed run left are not spoken again."""
    folder = o.out / split
    parts = folder / "parts"
    if not (folder / "questions.jsonl").is_file():
        files = [parts / f"{i:06d}.json" for i in range(count)]
        jobs = {i: (o, split, i) for i, file in enumerate(files) if not file.is_file()}
        run_parallel(_speak_passage, jobs, o.workers, f"synthesising {split}", "passage")
        records = [read_json(file) for file in files]
        if o.reference and split == "train":
            write_lines(folder / "reference.jsonl", [r["reference"] for r in records])
        write_lines(folder / "passages.jsonl", [r["passage"] for r in records])
        write_lines(folder / "questions.jsonl", [q for r in records for q in r["questions"]])
    shutil.rmtree(parts, ignore_errors=True)


def _make_card(o: MiniSqa, passages: Mapping[str, int]) -> dict[str, Any]:
    """Return the entries of the card about the finished corpus. passages: their number by split."""
    card = {
        "made_by": write_command(o),
        "manifests": {split: hash_data(o.out, split) for split in SPLITS},
        "synthetic": f"speech by {o.synthesiser}",
        "licence": "Apache-2.0 (text of speechssl's generator)",
    }
    if o.held_out:
        unknown: dict[str, dict[str, float]] = {}
        for split, count in passages.items():
            if count:
                texts = [generate_corpus_passage(o, split, i) for i in range(count)]
                unknown[split] = measure_unknown_words(o.language, texts)
        card["unknown_words"] = unknown
    return card


def _speak_passage(o: MiniSqa, split: str, index: int) -> None:
    """Speak one passage with its questions. The file of their records is written last, and marks
    the passage as done."""
    text = generate_corpus_passage(o, split, index)
    reader, *askers = assign_voices(o, split, index)
    joiner = "" if o.language == "zh" else " "
    reading = _speak_sentences(text.sentences, reader, joiner)
    name = f"{split}-{index:06d}"
    passage = Passage(
        id=name,
        audio=f"{split}/audio/{name}.flac",
        seconds=len(reading.samples) / SAMPLE_RATE,
        text=joiner.join(text.sentences),
        speaker=reader.name,
        language=o.language,
        words=reading.words,
        phones=reading.phones,
    )
    write_flac(o.out / passage.audio, reading.samples)
    record: dict[str, Any] = {"passage": shorten_record(asdict(passage)), "questions": []}
    for number, (question, voice) in enumerate(zip(text.questions, askers, strict=True)):
        spoken = _speak_sentences((question.text,), voice, joiner)
        item = Question(
            id=f"{name}-{number}",
            passage=name,
            audio=f"{split}/audio/{name}-{number}.flac",
            seconds=len(spoken.samples) / SAMPLE_RATE,
            text=question.text,
            speaker=voice.name,
            language=o.language,
            answers=_time_answer(question, text, reading, joiner),
            options=question.options,
            correct=(question.correct,) if question.options else (),
            relation=question.relation,
            words=spoken.words,
            phones=spoken.phones,
        )
        write_flac(o.out / item.audio, spoken.samples)
        record["questions"].append(shorten_record(asdict(item)))
    if o.reference and split == "train":
        record["reference"] = _speak_reference(o, name, text, reader, reading)
    write_json(o.out / split / "parts" / f"{index:06d}.json", record)


def _time_answer(
    question: TextQuestion, text: TextPassage, reading: SpokenSentences, joiner: str
) -> tuple[Answer, ...]:
    """Return the answer of a question with the time from its first to its last word in the reading
    of its passage; () without an answer. Piper gives no times of words: its answers have none."""
    if question.answer is None:
        return ()
    before = text.sentences[: question.sentence]
    first = sum(len(s) + len(joiner) for s in before) + question.start
    last = first + len(question.answer)
    times = find_times(reading.words, reading.characters, first, last)
    start, end = times or (None, None)
    return (Answer(question.answer, start, end, first),)


def find_times(
    words: Sequence[Span], offsets: Sequence[int], start: int, end: int
) -> tuple[float, float] | None:
    """Find the time from the first to the last word of the characters [start, end) of a text; None
    where no word lies there. offsets: of the words in the text."""
    inside = []
    for word, offset in zip(words, offsets, strict=True):
        if start < offset + len(word.text) and offset < end:
            inside.append(word)
    return (round(inside[0].start, 5), round(inside[-1].end, 5)) if inside else None


def _speak_reference(
    o: MiniSqa, name: str, text: TextPassage, reader: Voice, reading: SpokenSentences
) -> dict[str, Any]:
    """Read a passage again at the rate of its reader in the voice "reference", which the corpus
    does not have otherwise. The anchors of the record are [seconds in the passage, seconds in this
    reading]."""
    voice = Voice("reference", reader.language, "", rate=reader.rate, pitch=50, range=50)
    neutral = _speak_sentences(text.sentences, voice, "" if o.language == "zh" else " ")
    audio = f"train/reference/{name}.flac"
    write_flac(o.out / audio, neutral.samples)
    spans, neutral_spans = reading.phones, neutral.phones
    if [p.text for p in spans] != [p.text for p in neutral_spans]:  # then anchor the words
        spans, neutral_spans = reading.words, neutral.words
    anchors = [[0.0, 0.0]]
    for span, neutral_span in zip(spans, neutral_spans, strict=True):
        anchors.append([round(span.start, 5), round(neutral_span.start, 5)])
    anchors.append([len(reading.samples) / SAMPLE_RATE, len(neutral.samples) / SAMPLE_RATE])
    return {"id": name, "audio": audio, "anchors": anchors}


def _speak_sentences(sentences: Sequence[str], voice: Voice, joiner: str) -> SpokenSentences:
    """Speak the sentences one after another, with PAUSE seconds behind each."""
    pieces: list[np.ndarray] = []
    words: list[Span] = []
    phones: list[Span] = []
    characters: list[int] = []
    position = 0  # the first sample of the sentence
    offset = 0  # the first character of the sentence in the joined text
    for sentence in sentences:
        spoken = speak(sentence, voice)
        for spans, marks in ((words, spoken.words), (phones, spoken.phones)):
            for mark in marks:
                start, end = position + mark.start, position + mark.end
                spans.append(Span(mark.text, start / spoken.sample_rate, end / spoken.sample_rate))
        characters += [offset + m.position for m in spoken.words]
        silence = np.zeros(round(PAUSE * spoken.sample_rate), np.int16)
        pieces += [spoken.samples, silence]
        position += len(spoken.samples) + len(silence)
        offset += len(sentence) + len(joiner)
    samples = np.concatenate(pieces).astype(np.float32) / 32768
    samples = resample(samples, spoken.sample_rate, SAMPLE_RATE)
    return SpokenSentences(samples, tuple(words), tuple(phones), tuple(characters))


def speak_pairs(
    language: str, split: str, count: int
) -> Iterator[tuple[SpokenSentences, SpokenSentences]]:
    """Yield `count` different questions, each spoken by two voices of the split: the distance
    between their units shows how far units depend on the voice."""
    for index in range(count):
        question = generate_passage(language, split, index, 0).questions[0]
        voices = random.Random(f"pair {language} {split} {index} 0").sample(
            list_split_voices(language, split), k=2
        )
        first, second = (_speak_sentences((question.text,), voice, "") for voice in voices)
        yield first, second
