"""Known words in a recording: CTC on emissions made by hand, windows against the whole, Whisper's
attention."""

from itertools import groupby, pairwise

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
from speechssl.cascade.align_whisper import assign_to_pieces, token_times
from speechssl.cascade.model import CtcVocabulary, align_spans
from speechssl.cascade.options import Align
from speechssl.cli import main
from speechssl.data.records import Span, data_hash, load_corpus
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

GRID = FrameGrid(16_000, 320, 400)
ENGLISH = CtcVocabulary.english().symbols


def emitting(path, symbols=ENGLISH, separator="|", sure=0.98):
    """An aligner, and audio in which it recognises this path ("_" is blank): sample value k / 1000
    in a frame is symbol k."""

    def log_probs(samples):
        numbers = np.rint(samples[200::320][: GRID.frames(len(samples))] * 1000).astype(int)
        found = torch.full((len(numbers), len(symbols)), (1 - sure) / (len(symbols) - 1))
        found[range(len(numbers)), numbers] = sure
        return found.log()

    numbers = [0 if c == "_" else symbols.index(c) for c in path]
    samples = np.pad(np.repeat(np.array(numbers, np.float32) / 1000, 320), (40, 40), mode="edge")
    return CtcAligner("toy", "hash", log_probs, symbols, separator, 0, GRID, 60.0), samples


def frames(word):
    return round((word.start - 0.0025) / 0.02), round((word.end - 0.0025) / 0.02)


def frames_of(found):
    return {word.text: frames(word) for word in found.words}


@pytest.fixture
def tight(monkeypatch):
    """Words are not widened: times are those of their symbols."""
    monkeypatch.setattr(align, "GAP", 0.0)


# ---- CTC


def test_words_keep_their_spelling_and_get_the_frames_of_their_letters(tight):
    #                              0         1         2
    #                              0123456789012345678901234567
    aligner, samples = emitting("__hhi_|_mme_|_ca_f_e_||it's_")
    found = aligner.align(samples, ["“Hi,”", "ME!", "café", "it’s"])
    assert frames_of(found) == {"“Hi,”": (2, 5), "ME!": (8, 11), "café": (14, 20), "it’s": (23, 27)}
    assert found.confidence() > 0.99


SPOKEN = {"1984": "nineteen eighty four", "2008": "two thousand and eight", "東京": "tokyo"}
SPOKEN |= {"$3": "three dollars", "90%": "ninety percent"}


@pytest.mark.parametrize(
    "words",
    [
        "it was built in 1984 by anna",
        "in 1984 2008 they came to 東京 by sea",
        "he paid $3 or 90% of it",
    ],
)
def test_numbers_get_the_time_in_which_they_are_said(words, tight):
    """The words beside them keep their own times; several in a row share theirs by lengths."""
    path, inside, words = "__", [], words.split()
    for word in words:
        start = len(path)
        path += "|".join("_".join(part) for part in SPOKEN.get(word, word).split())
        inside.append((start, len(path)))
        path += "_|_"
    aligner, samples = emitting(path)
    found = aligner.align(samples, words)
    assert found.confidence() > 0.5
    times = [frames(word) for word in found.words]
    for unspelt, run in groupby(range(len(times)), lambda i: words[i] in SPOKEN):
        places = list(run)
        first, last = places[0], places[-1]
        if not unspelt:
            assert [times[i] for i in places] == [inside[i] for i in places]
        # the symbol between words may be taken for one of the number
        assert abs(times[first][0] - inside[first][0]) <= 3
        assert abs(times[last][1] - inside[last][1]) <= 3


def test_characters_of_chinese_in_any_form_and_what_is_no_symbol(tight):
    aligner, samples = emitting("_台_湾__北_京", ("<blank>", *"台湾北京"), "")
    found = frames_of(aligner.align(samples, list("臺灣北京")))
    assert found == {"臺": (1, 2), "灣": (3, 4), "北": (6, 7), "京": (8, 9)}
    shares = [aligner.spellable_share(text) for text in ("臺灣の北京", "1984", "Taipei")]
    assert shares == [0.8, 1.0, 0.0]


def test_a_text_that_is_not_spoken_has_no_confidence():
    aligner, samples = emitting("__the__|_cat__|_sat_|_on_|the_mat_|" * 3)
    right = ["the", "cat", "sat", "on", "the", "mat"]
    assert aligner.align(samples, ["the", "cat", "sat", "on", "themat"] * 3).confidence() > 0.3
    assert aligner.align(samples, right * 3).confidence() > 0.5
    # few words fit, but leave much unsaid
    for wrong in (["dogs", "never", "bark", "loudly"], ["the"], ["the", "cat"]):
        assert aligner.align(samples, wrong).confidence() < 0.1
    found = aligner.align(samples, [*right, "xylo", "phone", "quux", "jazz", *right])
    assert found.confidence(0, 5) > 0.5 > 0.1 > found.confidence(6, 9)
    # the latter is shorter than a frame
    for audio, text in ((samples, right * 30), (samples[:100], right)):
        with pytest.raises(ValueError, match="symbols need at least"):
            aligner.align(audio, text)


# ---- windows


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), longest=st.sampled_from([60, 170, 400]))
def test_windows_find_what_the_whole_does(seed, longest):
    """Speech that is recognised well: 300 symbols with silences up to a quarter of a window, in
    pieces of any length."""
    rng = np.random.default_rng(seed)
    targets, path = rng.integers(1, 6, 300).tolist(), []
    for target in targets:
        silence = int(rng.choice([1, 2, 3, 50], p=[0.4, 0.3, 0.28, 0.02]))
        path += [0] * silence + [target] * int(rng.integers(1, 4))
    sure = 6 * torch.nn.functional.one_hot(torch.tensor(path), 6)
    log_probs = (torch.from_numpy(rng.normal(size=(len(path), 6))) + sure).float().log_softmax(-1)
    cuts = sorted({0, len(path), *rng.integers(0, len(path), len(path) // longest)})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(align, "WINDOW", 200)
        patched.setattr(align, "MARGIN", 40)
        spans, scores = align_windows((log_probs[a:b] for a, b in pairwise(cuts)), targets)
    whole = align_spans(log_probs, targets)
    assert [(s.token, s.start, s.end) for s in spans] == [(s.token, s.start, s.end) for s in whole]
    assert len(scores) == len(path)
    silent = {*range(len(path))}.difference(*(range(s.start, s.end) for s in whole))
    inside = sum(s.score * len(s) for s in whole)
    outside = float(log_probs[sorted(silent), 0].sum())
    assert scores.sum() == pytest.approx(inside + outside, rel=1e-4)


# ---- Whisper


@pytest.mark.slow  # librosa compiles its DTW once
def test_tokens_begin_where_attention_moves_on():
    """Two heads; a prompt of two tokens and three of text; attention moves at frames 10, 30 and 45
    of 60."""
    attention = np.full((2, 6, 60), 1e-3)
    for row, (first, last) in enumerate([(0, 60), (0, 10), (10, 30), (30, 45), (45, 60), (0, 60)]):
        attention[:, row, first:last] += 1 / (last - first)
    times = token_times(attention, slice(1, 5))
    assert times == pytest.approx([0.0, 0.2, 0.6, 0.9], abs=0.061) and len(times) == 4


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
    found = aligner.align(noise(3), words)
    assert [w.text for w in found.words] == words
    assert found.symbols.min() > 0
    assert 0 <= found.confidence() < 1
    assert all(0 <= w.start < w.end <= 3 for w in found.words)
    assert [w.start for w in found.words] == sorted(w.start for w in found.words)
    small, capital = (
        [aligner.align(noise(3), [c]).losses[0] for c in some] for some in ("bcd", "BCD")
    )
    # without capitals a text is no less likely
    assert small == pytest.approx(capital) and max(small) > 0
    with pytest.raises(ValueError, match="tokens of text fall on"):
        aligner.align(noise(3), words * 40)


# ---- a corpus with times: what gets them, what is set aside and why, a killed run, and DUAL
# trained on the result

TEXT = "Ann, who was born in Rome, met Bob in Rome."
SECONDS = 4.0


class EvenAligner:
    """Gives every word its share of the time. Words with an x in them are not spoken: 5 nats a
    symbol are lost on each."""

    name, weights = "even", "0123"

    def __init__(self, alphabet="abcdefghijklmnopqrstuvwxyz"):
        self.alphabet, self.seen = alphabet, []

    def spellable_share(self, text):
        return sum(c.lower() in self.alphabet for c in text) / len(text)

    def align(self, samples, words):
        if len(words) > 40:
            raise ValueError("41 words need at least 41 frames and there are 40")
        self.seen.append(tuple(words))
        times = np.linspace(0, len(samples) / 16_000, len(words) + 1)
        spans = tuple(
            Span(w, float(a), float(b))
            for w, a, b in zip(words, times[:-1], times[1:], strict=True)
        )
        losses = np.array([5.0 * len(w) * ("x" in w) for w in words])
        return Alignment(spans, losses, np.array([len(w) for w in words]))


@pytest.fixture
def aligner(monkeypatch):
    made = EvenAligner()
    monkeypatch.setattr(verb, "load_aligner", lambda *given: made)
    return made


@pytest.fixture
def corpus(tmp_path):
    """A function (passages, questions) -> a corpus of these records; what they leave out is filled
    in, audio is made."""

    def make(passages, questions):
        passages = [{"seconds": SECONDS, "text": TEXT} | record for record in passages]
        asked = {"seconds": SECONDS, "text": "where", "passage": "p"}
        questions = [asked | record for record in questions]
        root = write_corpus(tmp_path / "corpus", "train", passages=passages, questions=questions)
        write_json(root / "card.json", {"corpus": "mine", "licence": "free", "manifests": "old"})
        return root

    return make


def run(root, out=None, confidence=0.1, workers=1):
    out = out or root.with_name("corpus-aligned")
    return out, align_corpus(Align(manifest=root, out=out, confidence=confidence, workers=workers))


def answers(*some):
    return {"answers": [{"text": t} | ({} if at is None else {"char_start": at}) for t, at in some]}


def test_words_and_answers_get_times_and_the_corpus_stays_as_it_is(corpus, aligner):
    asked = [
        {"id": "q0"} | answers(("Rome", 38), ("in Rome", 18)),
        {"id": "q1"} | answers(("born", None), ("Rome", None), ("Paris", None)),
        {"id": "q2", "option_audio": ["train/audio/q1.flac"], "options": ["x"]},
    ]
    root = corpus([{"id": "p"}], asked)
    with untouched(root):
        out, report = run(root)
    made = load_corpus(out, "train")
    passage, words = made.passages["p"], TEXT.split()
    assert [w.text for w in passage.words] == words
    assert (passage.text, passage.seconds) == (TEXT, SECONDS)
    assert made.path(passage) == root / "train/audio/p.flac"
    assert (out / made.questions[2].option_audio[0]).is_file()
    first, second = ([(a.start, a.end) for a in q.answers] for q in made.questions[:2])
    assert second[1:] == [(None, None)] * 2
    expected = np.array([(9, 10), (4, 6), (3, 4)]) * SECONDS / len(words)
    assert np.array([*first, second[0]]) == pytest.approx(expected, abs=1e-4)
    assert [w.text for w in made.questions[0].words] == ["where"]
    facts = report["splits"]["train"]
    assert facts["passages"] == {"read": 1, "kept": 1, "set_aside": 0}
    assert facts["questions"] == {"read": 3, "kept": 3, "set_aside": 0}
    assert collect_remarks(facts) == {
        "answers that had no times": 3,
        "answers without offset that occur several times": 1,
        "answers that do not occur in the passage": 1,
    }
    card = read_json(out / "card.json")
    assert (card["corpus"], card["licence"]) == ("mine", "free")
    assert card["manifests"] != "old"
    assert card["aligned"]["manifests"] == {"train": data_hash(root, "train")}
    assert card["aligned"]["weights"] == "0123"
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
    asked = [{"id": f"q-{p['id']}", "passage": p["id"]} for p in passages]
    root = corpus(passages, [*asked, {"id": "q-written", "passage": "good", "seconds": 0.0}])
    (root / "train/audio/cut.flac").write_bytes(b"no audio")
    out, report = run(root)
    facts = report["splits"]["train"]
    assert facts["passages"] == {"read": 6, "kept": 1, "set_aside": 5}
    assert facts["questions"] == {"read": 7, "kept": 2, "set_aside": 5}
    made = load_corpus(out, "train")
    assert list(made.passages) == ["good"]
    assert [q.id for q in made.questions] == ["q-good", "q-written"]
    lines = {line["id"]: line for line in read_lines(out / "set_aside.jsonl")}
    assert {name: lines[name]["reason"] for name in reasons} == reasons
    assert {lines[f"q-{name}"]["reason"] for name in reasons} == {verb.LOST}
    assert lines["other"]["confidence"] < 0.01
    assert "need at least 41 frames" in lines["long"]["why"]


def test_a_killed_run_goes_on_and_a_finished_one_is_left_alone(corpus, aligner, tmp_path, dies_in):
    root = corpus([{"id": f"p{i}", "text": f"{'abcdef'[i]} word"} for i in range(6)], [])
    with dies_in(EvenAligner, "align", 4):
        run(root)
    assert len(aligner.seen) == 3
    assert not (tmp_path / "corpus-aligned/card.json").exists()
    out, report = run(root)
    assert len(aligner.seen) == 6 == len(set(aligner.seen))
    whole = run(root, tmp_path / "whole")[0]
    assert same_files(
        out, whole, "train/passages.jsonl", "data_report.json", "set_aside.jsonl", "card.json"
    )
    seen = len(aligner.seen)
    with untouched(out):
        assert run(root) == (out, report)
    assert len(aligner.seen) == seen
    refused(r"made from other inputs \(options.confidence differs\)", run, root, confidence=0.2)


@pytest.mark.parametrize(
    ("passage", "message"),
    [
        ({"seconds": 0.0}, r"even aligned no passage of .* \(it has no recording\)"),
        ({"text": "安在北京"}, "even can write only 0%"),
        ({"text": "xxx"}, "even aligned no passage of"),
    ],
)
def test_what_cannot_be_aligned_is_one_sentence_and_leaves_nothing(
    corpus, aligner, passage, message
):
    root = corpus([{"id": "p"} | passage], [])
    refused(message, run, root)
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
    made = load_corpus(out, "train")
    errors = []
    for name, passage in made.passages.items():
        for a, b in zip(passage.words, true.passages[name].words, strict=True):
            assert a.text == b.text
            errors.append(np.abs([a.start - b.start, a.end - b.end]))
    assert len(errors) > 60
    assert np.median(errors) < 0.03
    assert np.quantile(errors, 0.95) < 0.15
    for ours, theirs in zip(made.questions, true.questions, strict=True):
        assert abs(ours.answers[0].start - theirs.answers[0].start) < 0.2
