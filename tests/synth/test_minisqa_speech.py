"""MiniSQA in sound: the same bytes however it is made, and answers that are where their words are."""

import json
from itertools import combinations

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.synth import minisqa as speech
from speechssl.synth.minisqa import PAUSE, Settings, prepare, speak_pairs, speakers
from speechssl.synth.minisqa_text import generate_passage

pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')

SPLITS = ("train", "dev", "test")
SMALL = {"train": 3, "dev": 1, "test": 1}
LANGUAGES = ("en", "zh")
JOINER = {"en": " ", "zh": ""}


def settings(language="en", **changes):
    return Settings(**{"language": language, "passages": SMALL, "seed": 3, "questions": 3, "unanswerable": 0.3} | changes)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A finished corpus a language, made by one process, the English one with a reference reading."""
    made = {}
    for language in LANGUAGES:
        made[language] = tmp_path_factory.mktemp(language) / "corpus"
        prepare(made[language], settings(language, reference=language == "en"))
    return made


def contents(root):
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def recordings(root):
    for split in SPLITS:
        corpus = load_corpus(root, split)
        yield from ((corpus, record) for record in (*corpus.passages.values(), *corpus.questions))


# ---- what is written


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_corpus_has_what_was_asked_for(corpora, language):
    for split, count in SMALL.items():
        corpus = load_corpus(corpora[language], split)
        assert list(corpus.passages) == [f"{split}-{i:06d}" for i in range(count)]
        assert [q.passage for q in corpus.questions] == [p for p in corpus.passages for _ in range(3)]
        for passage in corpus.passages.values():
            text = generate_passage(language, split, int(passage.id[-6:]), 3, 3, 0.3)
            assert passage.text == JOINER[language].join(text.sentences)
            asked = [q for q in corpus.questions if q.passage == passage.id]
            assert [q.text for q in asked] == [q.text for q in text.questions]
            assert [q.relation for q in asked] == [q.relation for q in text.questions]
            assert [q.answers[0].text if q.answers else None for q in asked] == [q.answer for q in text.questions]
            assert [q.options for q in asked] == [q.options for q in text.questions]


def test_both_kinds_of_question_occur(corpora):
    asked = [q for language in LANGUAGES for s in SPLITS for q in load_corpus(corpora[language], s).questions]
    assert any(q.answers for q in asked) and any(not q.answers for q in asked)
    assert all((not q.correct) == (not q.answers) for q in asked)


def test_no_other_files_are_left(corpora):
    names = set(contents(corpora["en"]))
    audio = {f"{s}/audio/{s}-{i:06d}{q}.flac" for s, n in SMALL.items() for i in range(n) for q in ("", "-0", "-1", "-2")}
    manifests = {f"{split}/{kind}.jsonl" for split in SPLITS for kind in ("passages", "questions")}
    reference = {"train/reference.jsonl", *(f"train/reference/train-{i:06d}.flac" for i in range(3))}
    assert names == audio | manifests | reference | {"card.json", "settings.json"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_stated_lengths_are_those_of_the_audio(corpora, language):
    for corpus, record in recordings(corpora[language]):
        samples = read_audio(corpus.path(record))
        assert record.seconds == pytest.approx(len(samples) / SAMPLE_RATE, abs=1e-9)
        assert 0.05 < np.abs(samples).max() <= 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_are_those_of_the_text_and_lie_in_order(corpora, language):
    for _, record in recordings(corpora[language]):
        assert JOINER[language].join(w.text for w in record.words) == record.text
        for marks in (record.words, record.phones):
            edges = [edge for mark in marks for edge in (mark.start, mark.end)]
            assert edges == sorted(edges) and 0 <= edges[0] and edges[-1] <= record.seconds


def test_sentences_are_a_pause_apart(corpora):
    """Between the last word of a sentence and the first of the next there is silence of at least PAUSE seconds."""
    corpus = load_corpus(corpora["en"], "train")
    for passage in corpus.passages.values():
        samples = read_audio(corpus.path(passage))
        at = 0
        for sentence in generate_passage("en", "train", int(passage.id[-6:]), 3).sentences[:-1]:
            at += len(sentence.split())
            gap = passage.words[at - 1].end, passage.words[at].start
            assert gap[1] - gap[0] >= PAUSE - 1e-4
            quiet = samples[round((gap[1] - PAUSE + 0.03) * SAMPLE_RATE) : round((gap[1] - 0.03) * SAMPLE_RATE)]
            assert np.abs(quiet).max() < 0.01


# ---- answers


@pytest.mark.parametrize("language", LANGUAGES)
def test_answer_times_cover_exactly_the_answers_words(corpora, language):
    seen = 0
    for split in SPLITS:
        corpus = load_corpus(corpora[language], split)
        for question in corpus.answerable:
            (answer,), passage = question.answers, corpus.passages[question.passage]
            inside = [w for w in passage.words if answer.start - 1e-4 <= w.start and w.end <= answer.end + 1e-4]
            assert JOINER[language].join(w.text for w in inside) == answer.text
            assert (answer.start, answer.end) == (inside[0].start, inside[-1].end)
            assert passage.text[answer.char_start : answer.char_start + len(answer.text)] == answer.text
            assert question.options[question.correct[0]] == answer.text
            seen += 1
    assert seen >= 5


# ---- speakers


@pytest.mark.parametrize("language", LANGUAGES)
def test_speakers_are_disjoint_between_splits_and_differ_within_a_passage(corpora, language):
    heard = {}
    for split in SPLITS:
        corpus = load_corpus(corpora[language], split)
        heard[split] = {r.speaker for r in (*corpus.passages.values(), *corpus.questions)}
        assert heard[split] <= {v.name for v in speakers(language, split)}
        assert all(q.speaker != corpus.passages[q.passage].speaker for q in corpus.questions)
    assert not any(heard[a] & heard[b] for a, b in combinations(SPLITS, 2))
    assert not any(
        {v.variant for v in speakers("en", a)} & {v.variant for v in speakers("zh", b)} for a, b in combinations(SPLITS, 2)
    )


# ---- the reference reading


def test_anchors_run_from_end_to_end_of_both_readings(corpora):
    root = corpora["en"]
    corpus = load_corpus(root, "train")
    rows = [json.loads(line) for line in (root / "train/reference.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list(corpus.passages)
    for row in rows:
        anchors = np.array(row["anchors"])
        length = len(read_audio(root / row["audio"])) / SAMPLE_RATE
        assert (np.diff(anchors, axis=0) >= 0).all()
        assert anchors[0].tolist() == [0, 0]
        assert anchors[-1].tolist() == pytest.approx([corpus.passages[row["id"]].seconds, length])
        starts = [mark.start for marks in (corpus.passages[row["id"]].phones, corpus.passages[row["id"]].words) for mark in marks]
        assert set(np.round(anchors[1:-1, 0], 5)) <= set(np.round(starts, 5))
        assert len(anchors) > len(corpus.passages[row["id"]].words)


# ---- determinism


@pytest.mark.parametrize("language", LANGUAGES)
def test_two_workers_write_the_same_bytes(corpora, tmp_path, language):
    made = settings(language, reference=language == "en")
    card = prepare(tmp_path / "corpus", made, workers=2)
    assert contents(tmp_path / "corpus") == contents(corpora[language])
    assert card == json.loads((corpora[language] / "card.json").read_text())


def test_the_card_names_settings_and_manifests(corpora):
    cards = [json.loads((corpora[language] / "card.json").read_text()) for language in LANGUAGES]
    assert [card["settings"]["language"] for card in cards] == ["en", "zh"]
    assert all(card["corpus"] == "minisqa" and card["version"] == speech.VERSION for card in cards)
    assert cards[0]["manifests"] != cards[1]["manifests"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("calls", [0, 9, 25, 33])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(corpora, tmp_path, monkeypatch, calls):
    root, real, left = tmp_path / "corpus", speech.speak, iter(range(calls))

    def dying(text, voice):
        if next(left, None) is None:
            raise Killed
        return real(text, voice)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(speech, "speak", dying)
        prepare(root, settings(reference=True))
    assert not (root / "card.json").exists()
    prepare(root, settings(reference=True))
    assert contents(root) == contents(corpora["en"])


def test_passages_that_were_done_are_not_spoken_again(corpora, tmp_path, monkeypatch):
    root, done = tmp_path / "corpus", []

    def counting(job):
        if len(done) == 2:
            raise Killed
        speak_one(job)
        done.append(job[2])

    speak_one = speech._speak_passage
    with monkeypatch.context() as patched:
        patched.setattr(speech, "_speak_passage", counting)
        with pytest.raises(Killed):
            prepare(root, settings(reference=True))
        done.clear()
        done.append("x")  # one more is allowed
        with pytest.raises(Killed):
            prepare(root, settings(reference=True))
        assert done == ["x", 2]
    prepare(root, settings(reference=True))
    assert contents(root) == contents(corpora["en"])


def test_a_run_killed_while_writing_manifests_goes_on(corpora, tmp_path, monkeypatch):
    root, real = tmp_path / "corpus", speech.write_lines

    def dying(path, records):
        if path.name == "questions.jsonl":
            raise Killed
        real(path, records)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(speech, "write_lines", dying)
        prepare(root, settings(reference=True))
    prepare(root, settings(reference=True))
    assert contents(root) == contents(corpora["en"])


def test_a_finished_corpus_is_left_alone(corpora, monkeypatch):
    before = contents(corpora["en"])
    monkeypatch.setattr(speech, "speak", lambda *_: pytest.fail("this was spoken before"))
    assert prepare(corpora["en"], settings(reference=True))["settings"]["seed"] == 3
    assert contents(corpora["en"]) == before


# ---- refusals


@pytest.mark.parametrize("change", [{"seed": 4}, {"questions": 4}, {"reference": False}, {"passages": SMALL | {"test": 2}}])
def test_other_settings_are_refused(corpora, change):
    with pytest.raises(InputError, match="made with other settings .*settings.json.*choose another folder"):
        prepare(corpora["en"], settings(**{"reference": True} | change))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and not the MiniSQA corpus; choose another folder"):
        prepare(tmp_path, settings())
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"language": "fr"}, "no language 'fr'; it has en, zh"),
        ({"passages": {"train": 1, "valid": 1}}, "train, dev, test"),
        ({"passages": {"train": 1}}, "train, dev, test"),
    ],
)
def test_an_unknown_language_or_split_is_refused_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        prepare(tmp_path / "corpus", settings(**change))
    assert not (tmp_path / "corpus").exists()


# ---- pairs for the same-text distance


@pytest.mark.parametrize("language", LANGUAGES)
def test_pairs_are_one_question_by_two_voices(language):
    pairs, again = (list(speak_pairs(language, "dev", 3)) for _ in range(2))
    assert len(pairs) == 3
    for (a, b), (c, d) in zip(pairs, again, strict=True):
        assert np.array_equal(a.samples, c.samples) and np.array_equal(b.samples, d.samples)
        assert a.samples.dtype == np.float32 and len(a.samples) > 8_000 and not np.array_equal(a.samples, b.samples)
        assert [w.text for w in a.words] == [w.text for w in b.words] and a.phones
