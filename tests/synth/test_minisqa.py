"""Test MiniSQA: its texts, which are frozen with the models that were trained on them, its voices, and
its speech."""

import itertools
import re
from collections import Counter
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.artifacts import hash_json, read_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.cli import main
from speechssl.data.records import load_corpus
from speechssl.synth import minisqa as speech
from speechssl.synth.minisqa import (
    LANGUAGES,
    SPLITS,
    assign_voices,
    count_occurrences,
    find_split,
    generate_passage,
    list_split_voices,
    load_language,
    prepare_minisqa,
)
from speechssl.synth.options import MiniSqa

from ..files import contents, read_lines

CODES = tuple(LANGUAGES)
PASSAGE_OPTIONS = {
    "index": st.integers(0, 10**6),
    "seed": st.integers(-5, 10**6),
    "unanswerable": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    "questions": st.integers(0, 8),
}
each_language = pytest.mark.parametrize("code", CODES)


@cache
def list_values(code, value_type, held_out=False):
    """Return every value of a type, of all splits."""
    language = load_language(code, held_out)
    values = set()
    for pattern in language.values[value_type]:
        values |= {language.joiner.join(parts) for parts in itertools.product(*pattern)}
    return values


@cache
def compile_templates(code, kind, held_out=False):
    """Return (relation, regular expression) for every template. kind: "facts" or "questions"."""
    parts = {"{name}": r"(?P<name>\S+ \S+)" if code == "en" else r"(?P<name>\S{3})"}
    parts |= {"{value}": "(?P<value>.+)"}
    compiled = []
    for relation in load_language(code, held_out).relations:
        for template in getattr(relation, kind):
            for part, pattern in parts.items():
                template = template.replace(part, pattern)
            compiled.append((relation, re.compile(template)))
    return compiled


def list_readings(code, kind, text, held_out=False):
    """Return every (name, relation, value) that a text can be read as. kind: as in
    `compile_templates`; the value of questions is None."""
    people = list_values(code, "person", held_out)
    readings = set()
    for relation, pattern in compile_templates(code, kind, held_out):
        match = pattern.fullmatch(text)
        if match and match["name"] in people:
            value = match.groupdict().get("value")
            if value is None or value in list_values(code, relation.value_type, held_out):
                readings.add((match["name"], relation.name, value))
    return readings


# ---- texts


@each_language
@pytest.mark.parametrize(
    ("content", "hashes"),
    [
        ("words", {"en": "4425f8796726f805", "zh": "51823de02415be68"}),
        ("passages", {"en": "b39bcf90df08d5cd", "zh": "fd8dfa15a63cd52b"}),
        ("held-out", {"en": "dfcc19e9c7fc5d40", "zh": "1c1357e253a8133a"}),
    ],
)
def test_words_and_passages_have_not_changed(code, content, hashes):
    """The shipped models were trained on these texts: the hashes are those of version 3."""
    if content == "words":
        value = asdict(load_language(code))
    else:
        value = []
        for split, index in itertools.product(SPLITS, range(40)):
            held_out = content == "held-out"
            passage = generate_passage(code, split, index, index % 3, 7, 0.2, held_out)
            value.append(asdict(passage))
    assert hash_json(value) == hashes[code]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(CODES),
    st.sampled_from(tuple(SPLITS)),
    st.fixed_dictionaries(PASSAGE_OPTIONS),
    st.booleans(),
)
def test_every_answer_occurs_once_and_questions_have_decoys(language, split, options, held_out):
    passage = generate_passage(language, split, **options, held_out=held_out)
    again = generate_passage(language, split, options["index"], options["seed"], held_out=held_out)
    assert passage.sentences == again.sentences
    words = load_language(language, held_out)
    joiner = words.joiner
    stated = {s: list_readings(language, "facts", s, held_out) for s in passage.sentences}
    for sentence, readings in stated.items():
        assert len(readings) == (sentence not in words.fillers)  # a fact, which is read in one way
    facts = [fact for readings in stated.values() for fact in readings]
    for question in passage.questions:
        ((name, relation, _),) = list_readings(language, "questions", question.text, held_out)
        assert relation == question.relation
        # decoys: another person has this relation, and this person has another fact
        assert any(n != name and r == relation for n, r, _ in facts)
        assert any(n == name and r != relation for n, r, _ in facts)
        if question.answer is None:
            assert question.options == ()
            assert question.correct == -1
            assert not any((n, r) == (name, relation) for n, r, _ in facts)
            continue
        sentence = passage.sentences[question.sentence]
        assert sentence[question.start : question.start + len(question.answer)] == question.answer
        assert count_occurrences(joiner.join(passage.sentences), question.answer, joiner) == 1
        assert count_occurrences(question.text, question.answer, joiner) == 0
        assert stated[sentence] == {(name, relation, question.answer)}
        # four different options of one type, of which one is right
        kinds = {r.name: r.value_type for r in words.relations}
        decoys = {v for _, r, v in facts if kinds[r] == kinds[relation]} - {question.answer}
        assert len(question.options) == len(set(question.options)) == 4
        assert question.options[question.correct] == question.answer
        assert set(question.options) <= list_values(language, kinds[relation], held_out)
        assert all(find_split(option) == split for option in question.options)
        assert len(decoys & set(question.options)) == min(3, len(decoys))
        assert {v for _, r, v in facts if r == relation} <= set(question.options)


# ---- voices and speech

pytest.importorskip(
    "espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"'
)

SMALL = {"train": 3, "dev": 1, "test": 1}  # split -> passages of the corpora in these tests
JOINER = {"en": " ", "zh": ""}
# The voices of the passage with the index 7 and of its questions; the same since version 1.
VOICES_OF_PASSAGE_7 = {
    "train": ["en-max", "en-lee", "en-denis", "en-mario"],
    "dev": ["en-marco", "en-david", "en-klatt5", "en-antonio"],
}


def test_voices_of_the_test_are_assigned_evenly():
    """All 16 voices read, and ask, equally often, and so do all pairs of reader and asker."""
    passages, questions = 140, 5
    o = options(Path(), test_passages=passages, questions=questions)
    reader_counts, asker_counts, pair_counts = Counter(), Counter(), Counter()
    for index in range(passages):
        reader, *askers = assign_voices(o, "test", index)
        reader_counts[reader] += 1
        asker_counts.update(askers)
        pair_counts.update((reader, asker) for asker in askers)
    assert set(reader_counts) == set(asker_counts) == set(list_split_voices("en", "test"))
    assert all(reader != asker for reader, asker in pair_counts)
    assert max(reader_counts.values()) - min(reader_counts.values()) <= 1
    assert max(asker_counts.values()) - min(asker_counts.values()) <= questions
    assert len(pair_counts) >= 16 * 15
    assert max(pair_counts.values()) - min(pair_counts.values()) <= 1


def test_voices_have_not_changed_but_for_eight_more_in_the_test():
    names = {split: [v.name for v in list_split_voices("en", split)] for split in SPLITS}
    assert names["test"][:8] == [
        f"en-{name}" for name in ("caleb grandpa klatt6 m5 m7 paul rob andrea").split()
    ]
    assert [len(names[split]) for split in SPLITS] == [48, 8, 16]
    for split, voices in VOICES_OF_PASSAGE_7.items():
        assert [voice.name for voice in assign_voices(options(Path()), split, 7)] == voices


def test_a_held_out_corpus_has_only_a_test_and_its_card_counts_unknown_words(tmp_path, capsys):
    out = tmp_path / "corpus"
    call = f"prepare minisqa {out} --held-out --test-passages 2 --workers 1"
    assert main(call.split()) == 0
    passages = [generate_passage("en", "test", i, 0, held_out=True) for i in range(2)]
    spoken = load_corpus(out, "test").passages.values()
    assert [p.text for p in spoken] == [" ".join(p.sentences) for p in passages]
    assert not load_corpus(out, "train").passages
    card = read_json(out / "card.json")
    printed = capsys.readouterr().out
    shares = card["unknown_words"]["test"]
    assert card["corpus"] == "minisqa held-out"
    assert shares == speech.measure_unknown_words("en", passages)
    assert shares["words"] > 45
    assert shares["answers"] > 90
    assert f"{shares['words']} % of the words" in printed


def options(out, language="en", **changes):
    """Make the options of a small corpus."""
    small = {"passages": SMALL["train"], "dev_passages": SMALL["dev"], "workers": 1}
    small |= {"test_passages": SMALL["test"], "seed": 3, "questions": 3, "unanswerable": 0.3}
    return MiniSqa(out=out, language=language, **small | changes)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Language -> folder of a finished corpus. The English one has a reference reading."""
    folders = {}
    for language in CODES:
        folders[language] = tmp_path_factory.mktemp(language) / "corpus"
        prepare_minisqa(options(folders[language], language, reference=language == "en"))
    return folders


@pytest.mark.parametrize("language", CODES)
def test_a_corpus_has_the_generated_texts(corpora, language):
    for split, count in SMALL.items():
        corpus = load_corpus(corpora[language], split)
        assert list(corpus.passages) == [f"{split}-{i:06d}" for i in range(count)]
        for passage in corpus.passages.values():
            index = int(passage.id[-6:])
            text = generate_passage(language, split, index, seed=3, questions=3, unanswerable=0.3)
            assert passage.text == JOINER[language].join(text.sentences)
            questions = [q for q in corpus.questions if q.passage == passage.id]
            for question, expected in zip(questions, text.questions, strict=True):
                for name in ("text", "relation", "options"):
                    assert getattr(question, name) == getattr(expected, name)
                answers = [expected.answer] if expected.answer else []
                assert [a.text for a in question.answers] == answers


@pytest.mark.parametrize("language", CODES)
def test_records_have_the_times_of_their_audio_and_the_speakers_of_their_split(corpora, language):
    speakers_of = {}  # split -> speakers
    answered = 0
    for split in SPLITS:
        corpus = load_corpus(corpora[language], split)
        speakers_of[split] = {r.speaker for r in corpus.records}
        assert speakers_of[split] <= {v.name for v in list_split_voices(language, split)}
        for record in corpus.records:
            samples = read_audio(corpus.path(record))
            assert record.seconds == pytest.approx(len(samples) / SAMPLE_RATE, abs=1e-9)
            assert 0.05 < np.abs(samples).max() <= 1
            assert JOINER[language].join(w.text for w in record.words) == record.text
            for marks in (record.words, record.phones):
                edges = [edge for mark in marks for edge in (mark.start, mark.end)]
                assert edges == sorted(edges)
                assert edges[0] >= 0
                assert edges[-1] <= record.seconds
        for question in corpus.questions:
            passage = corpus.passages[question.passage]
            assert question.speaker != passage.speaker
            for answer in question.answers:  # the time of an answer is that of its words
                begin, end = answer.start - 1e-4, answer.end + 1e-4
                inside = [w for w in passage.words if begin <= w.start and w.end <= end]
                assert JOINER[language].join(w.text for w in inside) == answer.text
                assert (answer.start, answer.end) == (inside[0].start, inside[-1].end)
                assert passage.text[answer.char_start :].startswith(answer.text)
                assert question.options[question.correct[0]] == answer.text
                answered += 1
    assert answered >= 5
    for one, other in itertools.combinations(SPLITS, 2):
        assert not speakers_of[one] & speakers_of[other]


def test_anchors_of_the_reference_run_from_start_to_end_of_both_readings(corpora):
    root = corpora["en"]
    corpus = load_corpus(root, "train")
    rows = read_lines(root / "train/reference.jsonl")
    assert [row["id"] for row in rows] == list(corpus.passages)
    for row in rows:
        anchors = np.array(row["anchors"])
        length = len(read_audio(root / row["audio"])) / SAMPLE_RATE
        assert (np.diff(anchors, axis=0) >= 0).all()
        assert anchors[0].tolist() == [0, 0]
        assert anchors[-1].tolist() == pytest.approx([corpus.passages[row["id"]].seconds, length])
        passage = corpus.passages[row["id"]]
        starts = [mark.start for mark in (*passage.phones, *passage.words)]
        assert set(np.round(anchors[1:-1, 0], 5)) <= set(np.round(starts, 5))
        assert len(anchors) > len(passage.words)


@pytest.mark.slow
def test_two_workers_write_the_same_bytes(corpora, tmp_path):
    card = prepare_minisqa(options(tmp_path / "corpus", reference=True, workers=2))
    assert contents(tmp_path / "corpus") == contents(corpora["en"])
    assert card == read_json(corpora["en"] / "card.json")


@pytest.mark.slow
def test_a_killed_run_speaks_no_passage_again_and_ends_with_the_same_bytes(
    corpora, tmp_path, monkeypatch, dies_in
):
    root = tmp_path / "corpus"
    spoken = []  # indices of the passages
    speak_passage = speech._speak_passage

    def note_and_speak(o, split, index):
        speak_passage(o, split, index)
        spoken.append(index)

    with monkeypatch.context() as patched:
        patched.setattr(speech, "_speak_passage", note_and_speak)
        for call in (3, 2):  # two passages are spoken before the first kill, and then one
            with dies_in(speech, "_speak_passage", call):
                prepare_minisqa(options(root, reference=True))
    assert spoken == [0, 1, 2]
    # the third manifest, that of questions, is not written
    with dies_in(speech, "write_lines", 3):
        prepare_minisqa(options(root, reference=True))
    assert not (root / "card.json").exists()
    prepare_minisqa(options(root, reference=True))
    assert contents(root) == contents(corpora["en"])
