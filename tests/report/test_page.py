"""The page: it refers to nothing outside, every row appears, hostile text stays text; and questions
to listen to."""

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import soundfile

from speechssl.report import listening
from speechssl.report.build import Results, build_report
from speechssl.results import Table

from ..test_results import ROW

CONDITIONS = (("clean", None), ("pink", 10.0), ("pink", 0.0), ("reverb", None))
VOID = {"meta", "link", "br", "img", "input", "hr", "source"}
SCORES = {  # the value in clean speech, and what every next condition adds
    ("dual", "ff1"): (41.3, -2.1),
    ("cascade-ctc", "ff1"): (63.7, -17.3),
    ("cascade-ctc", "wer"): (12.9, 21.7),
}
ROWS = []
for (system, metric), (first, step) in SCORES.items():
    for i, (condition, snr_db) in enumerate(CONDITIONS):
        value = round(first + i * step, 2)
        row = replace(ROW, system=system, metric=metric, value=value)
        row = replace(row, low=value - 1.5, high=value + 1.5)
        ROWS.append(replace(row, condition=condition, snr_db=snr_db))
TABLE = Table("Unit quality", ("Codebook", "K", "PNMI"), (("base", 64, 0.6034),), "On dev.")


def late_tone():
    """Make two seconds, of which the first half second is silent."""
    time = np.arange(2 * 16000) / 16000
    return (0.4 * np.sin(2 * np.pi * 300 * time) * (time > 0.5)).astype(np.float32)


def example(**changes):
    seconds = 4.0
    gold = listening.Lane(
        system=None,
        regions=(listening.make_region(1.0, 2.0, seconds),),
        pieces=("He read ", "a book", "."),
    )
    dual = listening.Lane(
        system="dual",
        regions=(listening.make_region(1.0, 1.5, seconds),),
        pieces=None,
        ff1=66.7,
        confidence=0.61,
    )
    values = {
        "id": "q-1",
        "question_text": "What did he read?",
        "question_audio": b"not really sound",
        "passage_audio": b"not really sound",
        "seconds": seconds,
        "envelope": listening.compute_envelope(late_tone(), 50),
        "lanes": (gold, dual),
        "condition": "Clean speech",
    }
    return listening.ListeningExample(**values | changes)


def page(tmp_path, rows=(), examples=(), **more):
    build_report(tmp_path / "report.html", Results(rows, examples=examples, **more))
    return (tmp_path / "report.html").read_text(encoding="utf-8")


class Elements(HTMLParser):
    """This finds every element with its attributes, and asserts that tags nest."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_refers_to_nothing_outside_and_its_identifiers_resolve(tmp_path):
    text = page(tmp_path, ROWS, [example(), example(id="q-2")], tables=[TABLE])
    found = Elements(text).found
    for tag, attributes in found:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        for name in ("src", "href", "xlink:href", "action", "srcset", "poster", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, name)
    assert not re.search(r"https?://|@import|url\((?!#)|fetch\(|XMLHttp", text)
    ids = [a["id"] for _, a in found if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["aria-labelledby"] for _, a in found if "aria-labelledby" in a} <= set(ids)


def test_every_row_appears(tmp_path):
    text = page(tmp_path, ROWS)
    for row in ROWS:
        assert f">{row.value:.1f}\n[" in text
        assert f"<td>{row.value:.6g}</td>" in text
    (download,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]*)"', text)
    assert len(base64.b64decode(download).decode().splitlines()) == len(ROWS) + 1


def test_hostile_text_stays_text(tmp_path):
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    lanes = (listening.Lane(None, (), listening.cut_at(evil, "alert(1)")),)
    lanes += (listening.Lane(evil, (), listening.cut_at(evil, "alert(2)"), 1.0, 0.5),)
    hostile = example(id=evil, question_text=evil, condition=evil, lanes=lanes)
    named = [replace(r, system=evil, encoder=evil, card={"made": evil}) for r in ROWS]
    tables = [Table(evil, (evil, evil), ((evil, evil),), evil)]
    text = page(tmp_path, named, [hostile], tables=tables, provenance={evil: evil})
    found = Elements(text).found
    assert [tag for tag, _ in found].count("script") == 1
    assert all(a["src"].startswith("data:") for tag, a in found if tag == "img")
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    assert '<mark class="gold">alert(1)</mark>' in text


def test_encoded_audio_is_in_time_and_small():
    """An encoder's delay would make spans sound late by 1,105 samples."""
    samples = late_tone()
    decoded, rate = soundfile.read(io.BytesIO(listening.encode_audio(samples)), dtype="float32")
    assert (rate, len(decoded)) == (16000, len(samples))
    assert np.argmax(np.abs(decoded) > 0.2) / rate == pytest.approx(0.5, abs=0.01)
    noise = np.random.default_rng(0).normal(0, 0.1, 30 * 16000)
    assert len(listening.encode_audio(noise)) < 120_000


def test_a_text_is_cut_at_the_answer_that_is_nearest_to_its_time():
    text = "A cat saw the cat, then a catalogue."
    first = listening.cut_at(text, "cat", near=0.0)
    assert first == ("A ", "cat", " saw the cat, then a catalogue.")
    # the one in "catalogue" is a part of a word
    last = listening.cut_at(text, "CAT", near=1.0)
    assert last == ("A cat saw the ", "cat", ", then a catalogue.")
    assert listening.cut_at("他在北京工作", "北京") == ("他在", "北京", "工作")


@pytest.mark.parametrize("answer", ["dog", " "])
def test_a_text_without_the_answer_is_not_cut(answer):
    text = "A cat saw the cat."
    assert listening.cut_at(text, answer) == (text, "", "")
