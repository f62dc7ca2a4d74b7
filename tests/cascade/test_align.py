"""Alignment of known words with recordings: by CTC on log-probabilities made by hand, in windows as
without them, by Whisper's attention, and of a whole corpus."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.artifacts import read_json, write_json
from speechssl.cascade import align
from speechssl.cascade import align_corpus as verb
from speechssl.cascade.align import Alignment, CtcAligner, align_windows
from speechssl.cascade.align_corpus import align_corpus, load_aligner
from speechssl.cascade.align_whisper import assign_to_pieces, find_token_times
from speechssl.cascade.model import CtcVocabulary, align_spans
from speechssl.cascade.options import Align
from speechssl.cli import main
from speechssl.data.records import Span, load_corpus
from speechssl.timing import FrameGrid

from ..files import (
    collect_remarks,
    read_lines,
    refused,
    same_files,
    untouched,
    write_corpus,
    write_lines,
)
from .conftest import noise

HOP, RECEPTIVE = 320, 400  # samples
GRID = FrameGrid(16_000, HOP, RECEPTIVE)
ENGLISH = CtcVocabulary.make_english().symbols


def make_aligner_and_audio(path, symbols=ENGLISH, separator="|"):
    """Make an aligner, and audio in which it recognises this path of symbols ("_" is the blank),
    with probability 0.98 in every frame."""
    numbers = [0 if c == "_" else symbols.index(c) for c in path]
    probabilities = torch.full((len(path), len(symbols)), 0.02 / (len(symbols) - 1))
    probabilities[range(len(path)), numbers] = 0.98
    aligner = CtcAligner(
        name="toy",
        weights="hash",
        log_probs=lambda samples: probabilities.log()[: GRID.count_frames(len(samples))],
        symbols=symbols,
        separator=separator,
        blank=0,
        grid=GRID,
        longest=60.0,
    )
    return aligner, np.zeros(GRID.count_samples(len(path)), np.float32)


def frames_of(word):
    """Return the frames [start, end) of a timed word."""
    start, end = (GRID.find_sample(time) - GRID.offset for time in (word.start, word.end))
    return round(start / HOP), round(end / HOP)


@pytest.fixture
def unwidened(monkeypatch):
    """Words are not widened: their times are those of their symbols."""
    monkeypatch.setattr(align, "GAP", 0.0)


# ---- CTC


@pytest.mark.parametrize(
    ("path", "symbols", "separator", "frames"),
    [
        (
            "__hhi_|_mme_|_ca_f_e_||it's_",
            ENGLISH,
            "|",
            {"“Hi,”": (2, 5), "ME!": (8, 11), "café": (14, 20), "it’s": (23, 27)},
        ),
        (
            "_台_湾__北_京",
            ("<blank>", *"台湾北京"),
            "",
            {"臺": (1, 2), "灣": (3, 4), "北": (6, 7), "京": (8, 9)},
        ),
    ],
)
def test_words_keep_their_spelling_and_get_the_frames_of_their_symbols(
    path, symbols, separator, frames, unwidened
):
    aligner, samples = make_aligner_and_audio(path, symbols, separator)
    alignment = aligner.align(samples, list(frames))
    assert {word.text: frames_of(word) for word in alignment.words} == frames
    assert alignment.measure_confidence() > 0.99


@pytest.mark.parametrize("said", ["nineteen|eighty|four", "tokyo"])
def test_words_that_cannot_be_spelt_get_the_time_in_which_they_are_said(said, unwidened):
    """Several in a row share the time of all; the words beside them keep their own times."""
    aligner, samples = make_aligner_and_audio(f"__in|{said}|b_y_")
    stop = 5 + len(said)
    for words in (["in", "1984", "by"], ["in", "$1,984", "東京", "by"]):
        alignment = aligner.align(samples, words)
        assert alignment.measure_confidence() > 0.5
        frames = [frames_of(word) for word in alignment.words]
        assert (frames[0], frames[-1]) == ((2, 4), (stop + 1, stop + 4))
        # the separators may be taken for symbols of the number
        assert frames[1][0] == pytest.approx(5, abs=1)
        assert frames[-2][1] == pytest.approx(stop, abs=1)
        assert all(before[1] == after[0] for before, after in pairwise(frames[1:-1]))


def test_each_of_two_gaps_gets_its_own_time_and_the_words_between_keep_theirs(unwidened):
    said = ["he", "paid", "three|dollars", "or", "ninety|percent", "of", "it"]
    path, said_frames = "_", []
    for text in said:
        path += "_|_"
        said_frames.append((len(path), len(path) + len(text)))
        path += text
    aligner, samples = make_aligner_and_audio(path + "_")
    alignment = aligner.align(samples, "he paid $3 or 90% of it".split())
    assert alignment.measure_confidence() > 0.5
    frames = [frames_of(word) for word in alignment.words]
    for i in (0, 1, 3, 5, 6):  # the words that can be spelt
        assert frames[i] == said_frames[i]
    for i in (2, 4):
        # "_|_" between words, three frames, may be taken for symbols of the number
        assert frames[i] == pytest.approx(said_frames[i], abs=3)


@pytest.mark.parametrize(("text", "share"), [("臺灣の北京", 4 / 5), ("1984", 1.0), ("Taipei", 0.0)])
def test_the_share_of_letters_that_can_be_spelt(text, share):
    aligner, _ = make_aligner_and_audio("_", ("<blank>", *"台湾北京"), separator="")
    assert aligner.measure_spellable_share(text) == share


def test_words_that_are_not_spoken_have_no_confidence_and_their_neighbours_keep_theirs():
    aligner, samples = make_aligner_and_audio("__the__|_cat__|_sat_|_on_|the_mat_|" * 3)
    right = ["the", "cat", "sat", "on", "the", "mat"]
    assert aligner.align(samples, right * 3).measure_confidence() > 0.5
    # the last one is spoken, but leaves out much that is spoken
    for wrong in (["dogs", "never", "bark", "loudly"], ["the", "cat"]):
        assert aligner.align(samples, wrong).measure_confidence() < 0.1
    alignment = aligner.align(samples, [*right, "xylo", "phone", "quux", "jazz", *right])
    assert alignment.measure_confidence(first=0, last=5) > 0.5
    assert alignment.measure_confidence(first=6, last=9) < 0.1


def test_a_text_with_more_symbols_than_frames_is_refused():
    aligner, samples = make_aligner_and_audio("__the__|_cat__|_sat_")
    with pytest.raises(ValueError, match="symbols need at least"):
        aligner.align(samples, ["the", "cat"] * 30)
    with pytest.raises(ValueError, match="symbols need at least"):
        aligner.align(samples[:100], ["the"])  # shorter than a frame


# ---- windows


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), piece_length=st.sampled_from([60, 170, 400]))
def test_windows_find_the_alignment_of_the_whole_recording(seed, piece_length):
    """The speech is recognised well: 300 symbols with silences up to a quarter of a window, in
    pieces of random lengths. piece_length: mean number of frames."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(1, 6, 300).tolist()
    path = []
    for target in targets:
        silence = int(rng.choice([1, 2, 3, 50], p=[0.4, 0.3, 0.28, 0.02]))
        path += [0] * silence + [target] * int(rng.integers(1, 4))
    logits = torch.from_numpy(rng.normal(size=(len(path), 6)))
    logits += 6 * torch.nn.functional.one_hot(torch.tensor(path), 6)
    log_probs = logits.float().log_softmax(-1)
    cuts = sorted({0, len(path), *rng.integers(0, len(path), len(path) // piece_length)})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(align, "WINDOW", 200)
        patched.setattr(align, "MARGIN", 40)
        spans, scores = align_windows((log_probs[a:b] for a, b in pairwise(cuts)), targets)
    whole = align_spans(log_probs, targets)
    assert [(s.token, s.start, s.end) for s in spans] == [(s.token, s.start, s.end) for s in whole]
    assert len(scores) == len(path)
    # the path has the symbol in its frames, and the blank in all others
    silent = {*range(len(path))}.difference(*(range(s.start, s.end) for s in whole))
    symbol_score = sum(s.score * len(s) for s in whole)
    blank_score = float(log_probs[sorted(silent), 0].sum())
    assert scores.sum() == pytest.approx(symbol_score + blank_score, rel=1e-4)


# ---- Whisper


@pytest.mark.slow  # librosa compiles its DTW once
def test_tokens_begin_where_attention_moves_on():
    """There are two heads, a prompt of two tokens, three tokens of text and the end. The outputs
    that predict the text look at frames 0 to 10, 10 to 30, and 30 to 45 of 60."""
    looked_at = [(0, 60), (0, 10), (10, 30), (30, 45), (45, 60), (0, 60)]  # by output
    attention = np.full((2, len(looked_at), 60), 1e-3)
    for row, (first, last) in enumerate(looked_at):
        attention[:, row, first:last] += 1 / (last - first)
    times = find_token_times(attention, rows=slice(1, 5))
    three_frames = 0.06  # the median filter blurs the borders
    assert times == pytest.approx([0.0, 0.2, 0.6, 0.9], abs=three_frames + 1e-3)


def test_words_are_shared_out_by_what_is_recognised_in_every_piece():
    words = "The quick, brown fox (in 1984) jumps over a lazy dog".split()
    heard = ["the quik brown box", "in nineteen eighty four", "", "jumbs over the lazy dog"]
    assert assign_to_pieces(words, heard).tolist() == [0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 3]
    assert assign_to_pieces(list("臺灣北京"), ["台湾", "北京"]).tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="nothing was recognised"):
        assign_to_pieces(words, ["", " "])


# ---- by name


@pytest.mark.slow
def test_a_whisper_checkpoint_aligns_with_its_own_attention(whisper_folder):
    words = list("安在這裡")
    aligner = load_aligner("people-en", str(whisper_folder), "zh")
    alignment = aligner.align(noise(3), words)
    assert [w.text for w in alignment.words] == words
    assert alignment.symbols.min() > 0
    assert 0 <= alignment.measure_confidence() < 1
    assert all(0 <= w.start < w.end <= 3 for w in alignment.words)
    starts = [w.start for w in alignment.words]
    assert starts == sorted(starts)
    # without capitals a text is no less likely
    losses = [aligner.align(noise(3), [letter]).losses[0] for letter in "bcd"]
    assert max(losses) > 0
    assert losses == pytest.approx([aligner.align(noise(3), [c]).losses[0] for c in "BCD"])
    with pytest.raises(ValueError, match="tokens of text fall on"):
        aligner.align(noise(3), words * 40)


# ---- a corpus: what gets times, what is set aside and why, a killed run

TEXT = "Ann, who was born in Rome, met Bob in Rome."
SECONDS = 4.0


class EvenAligner:
    """This gives all words the same time. Words with an x in them count as not spoken: they lose 5
    nats a letter. More than 40 words do not fit."""

    name, weights = "even", "0123"

    def __init__(self):
        self.seen = []  # the words of every call

    def measure_spellable_share(self, text):
        return sum(c.isascii() for c in text) / len(text)

    def align(self, samples, words):
        if len(words) > 40:
            raise ValueError("41 words need at least 41 frames and there are 40")
        self.seen.append(tuple(words))
        times = np.linspace(0, len(samples) / 16_000, len(words) + 1)
        spans = []
        for word, (start, end) in zip(words, pairwise(times), strict=True):
            spans.append(Span(word, float(start), float(end)))
        losses = np.array([5.0 * len(w) * ("x" in w) for w in words])
        return Alignment(tuple(spans), losses, symbols=np.array([len(w) for w in words]))


@pytest.fixture
def aligner(monkeypatch):
    """The aligner of all commands of a test."""
    even_aligner = EvenAligner()
    monkeypatch.setattr(verb, "load_aligner", lambda *arguments: even_aligner)
    return even_aligner


@pytest.fixture
def corpus(tmp_path):
    """A function (passages, questions) -> a corpus of these records with recordings; fields that
    they leave out get defaults."""

    def make(passages, questions):
        passages = [{"seconds": SECONDS, "text": TEXT} | record for record in passages]
        default = {"seconds": SECONDS, "text": "where", "passage": "p"}
        questions = [default | record for record in questions]
        root = write_corpus(tmp_path / "corpus", "train", passages=passages, questions=questions)
        write_json(root / "card.json", {"corpus": "mine", "licence": "free"})
        return root

    return make


def align_all(root, out=None, confidence=0.1):
    """Align a corpus; return the folder of the result and its data report."""
    out = out or root.with_name("corpus-aligned")
    return out, align_corpus(Align(manifest=root, out=out, confidence=confidence, workers=1))


def test_words_and_answers_get_times_and_the_corpus_stays_as_it_is(corpus, aligner):
    with_offsets = [{"text": "Rome", "char_start": 38}, {"text": "in Rome", "char_start": 18}]
    without_offsets = [{"text": text} for text in ("born", "Rome", "Paris")]
    questions = [
        {"id": "q0", "answers": with_offsets},
        {"id": "q1", "answers": without_offsets},
        {"id": "q2", "option_audio": ["train/audio/q1.flac"], "options": ["x"]},
    ]
    root = corpus([{"id": "p"}], questions)
    with untouched(root):
        out, report = align_all(root)
    aligned = load_corpus(out, "train")
    passage, words = aligned.passages["p"], TEXT.split()
    assert [w.text for w in passage.words] == words
    assert aligned.path(passage) == root / "train/audio/p.flac"
    assert (out / aligned.questions[2].option_audio[0]).is_file()
    first, second = ([(a.start, a.end) for a in q.answers] for q in aligned.questions[:2])
    assert second[1:] == [(None, None)] * 2
    # the last "Rome", "in Rome" and "born", by the numbers of their words in TEXT
    expected = np.array([(9, 10), (4, 6), (3, 4)]) * SECONDS / len(words)
    assert np.array([*first, second[0]]) == pytest.approx(expected, abs=1e-4)
    assert [w.text for w in aligned.questions[0].words] == ["where"]
    assert collect_remarks(report["splits"]["train"]) == {
        "answers that had no times": 3,
        "answers without offset that occur several times": 1,
        "answers that do not occur in the passage": 1,
    }
    card = read_json(out / "card.json")
    assert (card["corpus"], card["licence"]) == ("mine", "free")
    assert not (out / "train/parts").exists()


def test_records_that_cannot_be_aligned_are_set_aside_with_the_reason(corpus, aligner):
    reasons = {
        "other": verb.OTHER_TEXT,
        "long": verb.UNFIT,
        "cut": "its recording cannot be used",
        "silent": verb.NO_RECORDING,
        "blank": verb.NO_TEXT,
    }
    changes = {"other": {"text": "xxxx xxx"}, "long": {"text": "a " * 41}}
    changes |= {"silent": {"seconds": 0.0}, "blank": {"text": " — "}}
    passages = [{"id": name} | changes.get(name, {}) for name in ("good", *reasons)]
    questions = [{"id": f"q-{p['id']}", "passage": p["id"]} for p in passages]
    questions.append({"id": "q-written", "passage": "good", "seconds": 0.0})
    root = corpus(passages, questions)
    (root / "train/audio/cut.flac").write_bytes(b"no audio")
    out, report = align_all(root)
    facts = report["splits"]["train"]
    assert facts["passages"] == {"read": 6, "kept": 1, "set_aside": 5}
    assert facts["questions"] == {"read": 7, "kept": 2, "set_aside": 5}
    aligned = load_corpus(out, "train")
    assert list(aligned.passages) == ["good"]
    assert [q.id for q in aligned.questions] == ["q-good", "q-written"]
    lines = {line["id"]: line for line in read_lines(out / "set_aside.jsonl")}
    assert {name: lines[name]["reason"] for name in reasons} == reasons
    assert {lines[f"q-{name}"]["reason"] for name in reasons} == {verb.ITS_PASSAGE}
    assert lines["other"]["confidence"] < 0.01
    assert "need at least 41 frames" in lines["long"]["why"]


def test_a_killed_run_goes_on_and_a_finished_one_is_left_alone(corpus, aligner, tmp_path, dies_in):
    root = corpus([{"id": f"p{i}", "text": f"{'abcdef'[i]} word"} for i in range(6)], [])
    with dies_in(EvenAligner, "align", call=4):
        align_all(root)
    assert len(aligner.seen) == 3
    assert not (tmp_path / "corpus-aligned/card.json").exists()
    out, report = align_all(root)
    assert len(set(aligner.seen)) == len(aligner.seen) == 6  # each once
    whole, _ = align_all(root, tmp_path / "whole")
    assert same_files(
        out, whole, "train/passages.jsonl", "data_report.json", "set_aside.jsonl", "card.json"
    )
    with untouched(out):
        assert align_all(root) == (out, report)
    refused(
        r"made from other inputs \(options.confidence differs\)", align_all, root, confidence=0.2
    )


@pytest.mark.parametrize(
    ("passage", "message"),
    [
        ({"seconds": 0.0}, r"even aligned no passage of .* \(it has no recording\)"),
        ({"text": "安在北京"}, "even can write only 0%"),
    ],
)
def test_a_corpus_that_cannot_be_aligned_is_refused_and_leaves_nothing(
    corpus, aligner, passage, message
):
    root = corpus([{"id": "p"} | passage], [])
    refused(message, align_all, root)
    assert not root.with_name("corpus-aligned").exists()


# ---- the recogniser that ships, on speech with known times


@pytest.mark.slow
def test_minisqa_without_times_gets_them_back(tmp_path):
    pytest.importorskip("espeakng_loader")
    source, out = tmp_path / "minisqa", tmp_path / "timed"
    options = "--passages 2 --dev-passages 0 --test-passages 0 --questions 2 --unanswerable 0"
    assert main(["prepare", "minisqa", str(source), *options.split(), "--workers", "1"]) == 0
    true = load_corpus(source, "train")
    for name in ("passages", "questions"):
        records = read_lines(source / f"train/{name}.jsonl")
        for record in records:
            record |= {"words": [], "phones": []}
            for answer in record.get("answers", ()):
                del answer["start"], answer["end"]
        write_lines(source / f"train/{name}.jsonl", records)
    assert main(["align", str(source / "train"), str(out), "--workers", "1"]) == 0
    aligned = load_corpus(out, "train")
    errors = []  # seconds
    for name, passage in aligned.passages.items():
        for word, true_word in zip(passage.words, true.passages[name].words, strict=True):
            assert word.text == true_word.text
            errors.append(np.abs([word.start - true_word.start, word.end - true_word.end]))
    assert len(errors) > 60
    assert np.median(errors) < 0.03
    assert np.quantile(errors, 0.95) < 0.15
    for question, true_question in zip(aligned.questions, true.questions, strict=True):
        assert abs(question.answers[0].start - true_question.answers[0].start) < 0.2
