"""A corpus with times: what gets them, what is set aside and why, a killed run, and DUAL trained on the result."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.cascade import align_corpus as aligning
from speechssl.cascade.align import Alignment
from speechssl.cascade.align_corpus import align_corpus
from speechssl.cli import main
from speechssl.data.records import Span, data_hash, load_corpus
from speechssl.errors import InputError
from speechssl.io import read_json

from ..files import read_lines, remarks, same_files, untouched, write_lines

TEXT = "Ann, who was born in Rome, met Bob in Rome."
SECONDS = 4.0


class EvenAligner:
    """Gives every word its share of the time. Words with an x in them are not spoken: 5 nats a symbol are lost on each."""

    name, weights = "even", "0123"

    def __init__(self, alphabet="abcdefghijklmnopqrstuvwxyz"):
        self.alphabet, self.seen = alphabet, []

    def spells(self, text):
        return sum(c.lower() in self.alphabet for c in text) / len(text)

    def align(self, samples, words):
        if len(words) > 40:
            raise ValueError("41 words need at least 41 frames and there are 40")
        self.seen.append(tuple(words))
        times = np.linspace(0, len(samples) / 16_000, len(words) + 1)
        spans = tuple(Span(w, float(a), float(b)) for w, a, b in zip(words, times[:-1], times[1:], strict=True))
        symbols = np.array([len(w) for w in words])
        return Alignment(spans, np.array([5.0 * len(w) * ("x" in w) for w in words]), symbols)


@pytest.fixture
def aligner(monkeypatch):
    made = EvenAligner()
    monkeypatch.setattr(aligning, "load_aligner", lambda *given: made)
    return made


@pytest.fixture
def corpus(tmp_path):
    """A function (passages, questions, split) -> a corpus of these records; what they leave out is filled in, audio is made."""

    def make(passages, questions, split="train"):
        root, rng = tmp_path / "corpus", np.random.default_rng(0)
        for name, records in (("passages", passages), ("questions", questions)):
            common = {"seconds": SECONDS, "speaker": "s", "language": "en", "text": TEXT if name == "passages" else "where"}
            common |= {"passage": "p"} if name == "questions" else {}
            records = [common | {"audio": f"{split}/audio/{r['id']}.flac"} | r for r in records]
            for record in records:
                if record["audio"]:
                    write_flac(root / record["audio"], rng.uniform(-0.5, 0.5, 64_000))
                else:
                    record["seconds"] = 0.0
            write_lines(root / split / f"{name}.jsonl", records)
        (root / "card.json").write_text(json.dumps({"corpus": "mine", "licence": "free", "manifests": "old"}))
        return root

    return make


def run(root, out=None, confidence=0.1, **more):
    return align_corpus(root, out, "people-en", "ctc", confidence, **more)


def answers(*some):
    return {"answers": [{"text": t} | ({} if at is None else {"char_start": at}) for t, at in some]}


def test_words_and_answers_get_times_and_the_corpus_stays_as_it_is(corpus, aligner, tmp_path, monkeypatch):
    asked = [
        {"id": "q0"} | answers(("Rome", 38), ("in Rome", 18)),
        {"id": "q1"} | answers(("born", None), ("Rome", None), ("Paris", None)),
        {"id": "q2", "option_audio": ["train/audio/q1.flac"], "options": ["x"]},
    ]
    root = corpus([{"id": "p"}], asked)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    out, report = run(root)
    assert out == tmp_path / "corpus-aligned"
    monkeypatch.chdir(tmp_path)
    assert run(root)[0] == Path("corpus-aligned")  # below the working folder it is written so
    assert before == {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    made = load_corpus(out, "train")
    words = TEXT.split()
    passage = made.passages["p"]
    assert [w.text for w in passage.words] == words and passage.text == TEXT and passage.seconds == SECONDS
    assert made.path(passage) == root / "train/audio/p.flac" and (out / made.questions[2].option_audio[0]).is_file()
    step = SECONDS / len(words)
    found = {q.id: [(a.text, a.start, a.end) for a in q.answers] for q in made.questions}
    assert [t for t, *_ in found["q0"] + found["q1"]] == ["Rome", "in Rome", "born", "Rome", "Paris"]
    assert [times for _, *times in found["q1"][1:]] == [[None, None]] * 2
    timed = [times for _, *times in found["q0"] + found["q1"][:1]]
    assert np.array(timed) == pytest.approx(np.array([(9, 10), (4, 6), (3, 4)]) * step, abs=1e-4)
    assert [w.text for w in made.questions[0].words] == ["where"]
    facts = report["splits"]["train"]
    assert facts["passages"] == {"read": 1, "kept": 1, "set_aside": 0}
    assert facts["questions"] == {"read": 3, "kept": 3, "set_aside": 0}
    assert remarks(report["splits"]["train"]) == {
        "recordings whose words had no times": 4,
        "answers that had no times": 3,
        "answers without offset that occur several times": 1,
        "answers that do not occur in the passage": 1,
    }
    card = read_json(out / "card.json")
    assert (card["corpus"], card["licence"]) == ("mine", "free") and card["manifests"] != "old"
    assert card["aligned"]["manifests"] == {"train": data_hash(root, "train")} and card["aligned"]["weights"] == "0123"
    assert not (out / "train/parts").exists()


def test_reference_readings_come_along(corpus, aligner):
    root = corpus([{"id": "p"}], [{"id": "q"} | answers(("Rome", 38))])
    line = {"id": "p", "audio": "train/audio/p.flac", "anchors": [[0.0, 0.0], [4.0, 4.0]]}
    write_lines(root / "train/reference.jsonl", [line])
    out, _ = run(root)
    assert read_lines(out / "train/reference.jsonl") == [line | {"audio": str(root / line["audio"])}]


def test_what_has_times_keeps_them(corpus, aligner):
    words = [["Ann,", 0.5, 1.0], ["who", 1.0, 1.5]]
    timed = {"answers": [{"text": "Ann", "start": 0.1, "end": 0.2, "char_start": 0}]}
    asked = [{"id": "q0", "passage": "a"} | timed, {"id": "q1", "passage": "a"} | answers(("who", 5)), {"id": "q2", "passage": "b"}]
    asked[2] |= answers(("who", 5))
    root = corpus([{"id": "a", "text": "Ann, who", "words": words}, {"id": "b", "words": [["other", 0.0, 1.0]]}], asked)
    out, report = run(root)
    made = load_corpus(out, "train")
    assert [[(w.text, w.start, w.end) for w in p.words] for p in made.passages.values()] == [
        [("Ann,", 0.5, 1.0), ("who", 1.0, 1.5)], [("other", 0.0, 1.0)]
    ]  # fmt: skip
    assert [(q.answers[0].start, q.answers[0].end) for q in made.questions] == [(0.1, 0.2), (1.0, 1.5), (None, None)]
    assert remarks(report["splits"]["train"])["answers of passages whose words are not those of their text"] == 1
    assert aligner.seen == [("where",)] * 3  # only questions


def test_records_that_cannot_be_aligned_are_set_aside_with_the_reason(corpus, aligner):
    passages = [
        {"id": "good"}, {"id": "other", "text": "xxxx xxx"}, {"id": "long", "text": "a " * 41}, {"id": "cut"},
        {"id": "silent", "audio": ""}, {"id": "blank", "text": " — "},
    ]  # fmt: skip
    asked = [{"id": f"q-{p['id']}", "passage": p["id"]} for p in passages]
    asked += [{"id": "q-wrong", "passage": "good", "text": "xx"}, {"id": "q-written", "passage": "good", "audio": ""}]
    root = corpus(passages, asked)
    (root / "train/audio/cut.flac").write_bytes(b"no audio")
    out, report = run(root)
    facts = report["splits"]["train"]
    assert facts["passages"] == {"read": 6, "kept": 1, "set_aside": 5}
    assert facts["questions"] == {"read": 8, "kept": 2, "set_aside": 6}
    made = load_corpus(out, "train")
    assert list(made.passages) == ["good"] and [q.id for q in made.questions] == ["q-good", "q-written"]
    lines = {line["id"]: line for line in read_lines(out / "set_aside.jsonl")}
    reasons = {name: line["reason"] for name, line in lines.items() if not name.startswith("q-") or name == "q-wrong"}
    assert reasons == {
        "other": aligning.OTHER_TEXT, "q-wrong": aligning.OTHER_TEXT, "long": aligning.UNFIT, "cut": "its recording cannot be used",
        "silent": aligning.NO_RECORDING, "blank": aligning.NO_TEXT,
    }  # fmt: skip
    assert lines["other"]["confidence"] < 0.01 and "need at least 41 frames" in lines["long"]["why"]
    assert {lines[f"q-{name}"]["reason"] for name in ("other", "long", "cut", "silent", "blank")} == {aligning.LOST}


def test_an_answer_that_is_not_heard_in_its_place_gets_no_times(corpus, aligner):
    text = " ".join(["xxxx"] * 6 + ["answer"] + ["xxxx"] * 6 + ["word"] * 24 + ["truth"])
    root = corpus([{"id": "p", "text": text}], [{"id": "q0"} | answers(("answer", None)), {"id": "q1"} | answers(("truth", None))])
    out, report = run(root, confidence=0.05)
    first, second = load_corpus(out, "train").questions
    assert first.answers[0].start is None and second.answers[0].end == SECONDS
    assert remarks(report["splits"]["train"])[aligning.UNRECOGNISED] == 1
    assert load_corpus(run(root, out.with_name("all"), confidence=0.0)[0], "train").questions[0].answers[0].start is not None


def test_a_killed_run_goes_on_and_a_finished_one_is_left_alone(corpus, aligner, tmp_path, dies_in):
    root = corpus([{"id": f"p{i}", "text": f"{'abcdef'[i]} word"} for i in range(6)], [])
    with dies_in(EvenAligner, "align", 4):
        run(root)
    assert len(aligner.seen) == 3 and not (tmp_path / "corpus-aligned/card.json").exists()
    out, report = run(root)
    assert len(aligner.seen) == 6 == len(set(aligner.seen))
    whole = run(root, tmp_path / "whole")[0]
    assert same_files(out, whole, "train/passages.jsonl", "data_report.json", "set_aside.jsonl", "card.json")
    seen = len(aligner.seen)
    with untouched(out):
        assert run(root) == (out, report) and len(aligner.seen) == seen
    with pytest.raises(InputError, match=r"made from other inputs \(options.confidence differs\)"):
        run(root, confidence=0.2)


def test_a_corpus_a_split_or_its_manifest_may_be_given(corpus, aligner, tmp_path, monkeypatch):
    corpus([{"id": "p"}], [], "train")
    root = corpus([{"id": "p"}], [], "dev")
    assert sorted(run(root)[1]["splits"]) == ["dev", "train"]
    for n, given in enumerate((root / "dev", root / "dev/passages.jsonl")):
        out, report = run(given, tmp_path / f"out{n}")
        assert list(report["splits"]) == ["dev"] and load_corpus(out, "dev").passages["p"].words
    monkeypatch.chdir(root / "dev")
    assert list(run(aligning.Path("passages.jsonl"), tmp_path / "out3")[1]["splits"]) == ["dev"]


def test_a_transcript_is_aligned_where_there_is_no_text_and_a_length_is_corrected(corpus, aligner):
    passage = {"id": "p", "text": "", "transcript": "who was ann", "seconds": 3.5}
    root = corpus([passage], [{"id": "q"} | answers(("ann", 8))])
    made = load_corpus(run(root)[0], "train")
    assert [w.text for w in made.passages["p"].words] == ["who", "was", "ann"] and made.passages["p"].seconds == SECONDS
    assert made.questions[0].answers[0].end == SECONDS


def test_words_of_mandarin_are_characters(corpus, monkeypatch):
    monkeypatch.setattr(aligning, "load_aligner", lambda *given: EvenAligner("安在北京，。19"))
    root = corpus(
        [{"id": "p", "text": "安在北京，19。", "language": "zh-TW"}], [{"id": "q", "language": "zh"} | answers(("北京", 2))]
    )
    made = load_corpus(run(root)[0], "train")
    assert [w.text for w in made.passages["p"].words] == ["安", "在", "北", "京", "19"]
    assert (made.questions[0].answers[0].start, made.questions[0].answers[0].end) == pytest.approx((1.6, 3.2))


@pytest.mark.parametrize(
    ("passages", "questions", "message"),
    [
        ([], [], "has no passages; give a corpus that has some"),
        ([{"id": "p", "audio": ""}], [], "has no recordings of its passages"),
        ([{"id": "p", "text": " "}], [], "has no text of its recorded passages; give every passage the text"),
        ([{"id": "p", "words": [["Ann", 0.0, 1.0]]}], [], "has times of all words and answers; there is nothing to align"),
        ([{"id": "p"}, {"id": "q", "language": "zh"}], [], "has passages in en and zh; align each language by itself"),
        ([{"id": "p", "text": "安在北京"}], [], "even can write only 0% of the letters of .*; give a recogniser of this language"),
        ([{"id": "p", "text": "xxx"}], [], r"even aligned no passage of .* \(1 x its text is not what its recording says"),
        ([{"id": "p", "language": "fr"}], [], "no text rules for the language 'fr'"),
    ],
)
def test_what_cannot_be_aligned_is_one_sentence_and_leaves_nothing(corpus, aligner, passages, questions, message):
    root = corpus(passages, questions)
    with pytest.raises(InputError, match=message) as caught:
        run(root)
    assert "\n" not in str(caught.value) and not root.with_name("corpus-aligned").exists()


def test_a_path_that_is_no_corpus_is_one_sentence(tmp_path, aligner):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.jsonl").write_text("{}\n")
    for path, why in (("empty", "has no passages.jsonl"), ("list.jsonl", "has no passages.jsonl"), ("none", "does not exist")):
        with pytest.raises(InputError, match=f"{path} {why}; give a prepared corpus"):
            run(tmp_path / path)


# ---- the recogniser that ships, on speech with known times


@pytest.mark.slow
def test_minisqa_without_times_is_aligned_and_trains_dual(tmp_path, text_encoder, tokenizer, monkeypatch, capsys):
    pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')
    from speechssl.config import TrainingOptions
    from speechssl.dual import train
    from speechssl.dual.config import QaOptions
    from speechssl.dual.train import train_dual

    source, bare, out = tmp_path / "minisqa", tmp_path / "bare", tmp_path / "timed"
    counts = ["--passages", "2", "--dev-passages", "1", "--test-passages", "1", "--questions", "2", "--unanswerable", "0"]
    assert main(["prepare", "minisqa", str(source), *counts, "--workers", "1"]) == 0
    true = load_corpus(source, "train")
    (bare / "train").mkdir(parents=True)
    (bare / "card.json").write_bytes((source / "card.json").read_bytes())
    for name in ("passages", "questions"):
        records = read_lines(source / f"train/{name}.jsonl")
        for r in records:
            r |= {"words": [], "phones": [], "audio": str(source / r["audio"])}
            r |= {"answers": [{"text": a["text"], "char_start": a["char_start"]} for a in r["answers"]]} if "answers" in r else {}
        write_lines(bare / f"train/{name}.jsonl", records)

    monkeypatch.setattr(train, "load_text_encoder", lambda name: (text_encoder(max_position_embeddings=512), tokenizer))
    steps = TrainingOptions(steps=2, learning_rate=1e-3, warmup_steps=1, bf16=False)
    options = QaOptions(training=steps, batch=2, window=300, stride=150)
    models = ["people-en/encoder", "people-en/units.safetensors"]

    def dual(corpus):
        units = tmp_path / f"units-{corpus.name}"
        assert main(["units", "extract", str(corpus), *models, str(units), "--split", "train", "--workers", "1"]) == 0
        train_dual(corpus, units, tmp_path / f"dual-{corpus.name}", "most-frequent", options)

    with pytest.raises(InputError, match=r"no answer of .* has times.*`speechssl align .*bare OUT`"):
        dual(bare)
    assert main(["align", str(bare), str(out), "--workers", "1"]) == 0
    assert "recordings whose words had no times: 6" in capsys.readouterr().out
    made = load_corpus(out, "train")
    pairs = [(a, b) for r in made.passages for a, b in zip(made.passages[r].words, true.passages[r].words, strict=True)]
    assert [a.text for a, _ in pairs] == [b.text for _, b in pairs] and len(pairs) > 60
    errors = np.abs([(a.start - b.start, a.end - b.end) for a, b in pairs])
    assert np.median(errors) < 0.03 and np.quantile(errors, 0.95) < 0.15
    spans = zip((q.answers[0] for q in made.questions), (q.answers[0] for q in true.questions), strict=True)
    assert all(abs(a.start - b.start) < 0.2 and abs(a.end - b.end) < 0.2 for a, b in spans)
    dual(out)
    assert read_json(tmp_path / "dual-timed/card.json")["examples"] == len(made.questions) == 4


def test_the_verb_prints_the_report(corpus, aligner, tmp_path, capsys):
    root = corpus([{"id": "p"}, {"id": "o", "text": "xx xx"}], [{"id": "q"} | answers(("born", None))])
    assert main(["align", str(root), str(tmp_path / "out"), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "train passages: 2 read, 1 kept, 1 set aside" in printed and f"1 set aside: {aligning.OTHER_TEXT}" in printed
    assert "aligned by even; confidence 1.00 (median), 1.00 (least)" in printed
    assert replace(load_corpus(tmp_path / "out", "train").passages["p"], words=()).text == TEXT
