"""The page: whole, self-contained, safe, and drawn where the times say."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechssl.report.build import build_report
from speechssl.report.figures import arrange
from speechssl.report.page import (
    WIDTH,
    ListeningExample,
    Prediction,
    encode_audio,
    envelope,
    locate,
    outline,
    region,
    ticks,
)
from speechssl.report.spoken_qa import Breakdown, summarise
from speechssl.results import Row, Table

from ..files import refused

CONDITIONS = (("clean", None), ("pink", 10.0), ("pink", 0.0), ("reverb", None))
VOID = {"meta", "link", "br", "img", "input", "hr", "source"}


def rows() -> list[Row]:
    scores = {("dual", "ff1"): 41.3, ("cascade-ctc", "ff1"): 63.7, ("cascade-ctc", "wer"): 12.9}
    steps = {("dual", "ff1"): -2.1, ("cascade-ctc", "ff1"): -17.3, ("cascade-ctc", "wer"): 21.7}
    return [
        Row(
            "qa",
            s,
            "hubert",
            c,
            snr,
            m,
            round(v + i * steps[s, m], 2),
            round(v + i * steps[s, m] - 1.5, 2),
            None,
            1204,
            7,
            "c0ffee",
        )
        for (s, m), v in scores.items()
        for i, (c, snr) in enumerate(CONDITIONS)
    ]


def tone() -> np.ndarray:
    time = np.arange(2 * 16000) / 16000
    return (0.4 * np.sin(2 * np.pi * 300 * time) * (time > 0.5)).astype(np.float32)


def example(**other: object) -> ListeningExample:
    found = Prediction("dual", 1.0, 1.5, 0.61, 66.7)
    encoded = Prediction("cascade-ctc", None, None, None, 0.0, "he red a boo", "boo")
    audio = b"not really sound"
    values = {
        "id": "q-1",
        "question_text": "What did he read?",
        "question_audio": audio,
        "passage_text": ("He read a book."),
        "passage_audio": audio,
        "seconds": 4.0,
        "envelope": envelope(tone(), 50),
        "gold": ((1.0, 2.0),),
        "answer_text": "a book",
        "predictions": (found, encoded),
        "condition": "Clean speech",
    }
    return ListeningExample(**values | other)  # type: ignore[arg-type]


def page(tmp_path: Path, *arguments: object, **options: object) -> str:
    build_report(tmp_path / "report.html", *arguments, **options)  # type: ignore[arg-type]
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_multiple_choice_is_reported_before_its_word_errors(tmp_path):
    some = [
        Row("units", "units", "", "clean", None, m, v, v, v, 2, 0, "")
        for m, v in (("wer", 20.0), ("set_accuracy", 50.0))
    ]
    html = page(tmp_path, some)
    assert "units reaches set accuracy 50.0" in html and html.index(">set accuracy<") < html.index(
        ">WER<"
    )


BREAKDOWNS = [
    Breakdown(system="dual", bucket=b, value=v, low=v - 3, high=v + 3, n=9)
    for b, v in (("< 1 s", 30.0), ("> 1 s", 50.0))
]
TABLES = [
    Table(
        "Unit quality",
        ("Codebook", "K", "PNMI"),
        (("base", 64, 0.6034), ("base", 128, 0.6421)),
        "On dev.",
    )
]


class Elements(HTMLParser):
    """Every element with its attributes; a failure for tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_refers_to_nothing_outside_and_its_identifiers_resolve(tmp_path: Path):
    text = page(tmp_path, rows(), [example()], BREAKDOWNS, TABLES, {"Date": "2025-01-01"})
    for tag, attributes in Elements(text).found:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        for name in ("src", "href", "xlink:href", "action", "srcset", "poster", "data"):
            # a link loads nothing until it is followed
            links = ("https://arxiv.org/abs/",) if tag == "a" else ()
            assert (attributes.get(name) or "#").startswith(("#", "data:", *links)), (tag, name)
    linked = re.sub(r'<a href="https://arxiv.org/abs/[\d.]+">', "", text)
    assert not re.search(r"https?://|@import|url\((?!#)|fetch\(|XMLHttp", linked)
    # identifiers are unique and references resolve
    found = Elements(page(tmp_path, rows(), [example(), example(id="q-2")], BREAKDOWNS)).found
    ids = [a["id"] for _, a in found if "id" in a]
    assert len(ids) == len(set(ids))
    named = {a[n] for _, a in found for n in ("aria-controls", "aria-labelledby") if n in a}
    assert named and named <= set(ids)


def test_every_row_appears(tmp_path: Path):
    text = page(tmp_path, rows())
    cells = re.findall(r"<td[^>]*>([^<]*)", text)
    for row in rows():
        assert f"{row.value:.1f}" in cells, row
        assert f"{row.value:.6g}" in cells and f"{row.low:.6g}" in cells
    (download,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]*)"', text)
    assert len(base64.b64decode(download).decode().splitlines()) == len(rows()) + 1


@pytest.mark.slow
def test_synthetic_speech_is_named_under_the_title_and_at_every_table_of_results(tmp_path: Path):
    build_report(tmp_path / "page.html", rows(), synthetic="Synthetic speech: all of it.")
    text = (tmp_path / "page.html").read_text()
    captions = re.findall(r"<caption>.*?</caption>", text)
    marked = [c for c in captions if "Synthetic speech: all of it." in c]
    assert (
        len(marked) == len({r.metric for r in rows()})
        and ('<p class="prose note">Synthetic speech: all of it.</p>') in text
    )
    assert "Synthetic speech" not in page(tmp_path, rows())


def test_the_best_of_a_column_is_bold(tmp_path: Path):
    best = re.findall(
        r'<td class="best">([\d.]+)', page(tmp_path, [r for r in rows() if r.metric == "ff1"])
    )
    # DUAL in the noise at 0 dB and with reverberation, then the cascade
    assert best == ["37.1", "35.0", "63.7", "46.4"]
    # least word error rate is best
    wer = [
        Row("qa", s, "h", "clean", None, "wer", v, None, None, 5, 0, "")
        for s, v in (("a", 20.0), ("b", 9.0))
    ]
    assert re.findall(r'<td class="best">([\d.]+)', page(tmp_path, wer)) == ["9.0"]
    # of two passages nothing is the best
    two = [replace(row, drawn="passage", groups=2) for row in wer]
    assert not re.findall(r'<td class="best">([\d.]+)', page(tmp_path, two))


def test_hostile_text_stays_text(tmp_path: Path):
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    hostile = example(
        id=evil,
        question_text=evil,
        passage_text=evil,
        answer_text="alert(1)",
        condition=evil,
        predictions=(Prediction(evil, 0.0, 1.0, 0.5, 1.0, evil, "alert(2)"),),
    )
    named = [replace(r, system=evil, encoder=evil, card={"made": evil}) for r in rows()]
    bad = [Breakdown(system=evil, bucket=evil, value=1.0, low=None, high=None, n=1)]
    text = page(
        tmp_path, named, [hostile], bad, [Table(evil, (evil,), ((evil,),), evil)], {evil: evil}
    )
    found = Elements(text).found
    assert sum(tag == "script" for tag, _ in found) == 1 and all(tag != "img" for tag, _ in found)
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    assert '<mark class="gold">alert(1)</mark>' in text


def test_what_has_no_data_is_left_out(tmp_path: Path):
    only_rows = page(tmp_path, [r for r in rows() if r.condition == "clean" and r.metric == "ff1"])
    assert 'id="results"' in only_rows and "<figure>" not in only_rows
    assert 'id="listening"' not in only_rows and 'class="extra"' not in only_rows
    only_examples = page(tmp_path, [], [example()])
    assert 'id="listening"' in only_examples and 'id="results"' not in only_examples
    assert 'class="all"' not in only_examples and '<p class="prose summary">' not in only_examples
    refused("nothing to report", page, tmp_path, [])


@pytest.mark.slow
def test_same_input_same_bytes(tmp_path: Path):
    arguments = (rows(), [example()], BREAKDOWNS, TABLES, {"Date": "2025-01-01"})
    assert page(tmp_path, *arguments) == page(tmp_path, *arguments)


def test_spans_are_drawn_where_they_are(tmp_path: Path):
    text = page(tmp_path, [], [example()])
    drawn = (
        r'data-start="([\d.]+)" data-end="([\d.]+)".*?class="pill" x="([\d.]+)" y="\d+" '
        r'width="([\d.]+)"'
    )
    gold, dual = re.findall(drawn, text)
    # a passage of 4 seconds, 1000 units wide
    assert [float(v) for v in gold] == [1.0, 2.0, 250.0, 250.0]
    assert [float(v) for v in dual] == [1.0, 1.5, 250.0, 125.0]
    assert 'data-seconds="4.0"' in text
    # an empty prediction has a score and no span
    text = page(tmp_path, [], [example()])
    assert "Play cascade-ctc" not in text and "FF1 of cascade-ctc: </span>0</span>" in text
    assert re.search(r'he red a <mark style="--c: var\(--s\d\)">boo</mark>', text)
    # an answer without times is not scored by them
    read = Prediction("text", None, None, 0.9, None, "He read a book.", "a book")
    html = page(tmp_path, [], [example(predictions=(read,))])
    assert "<b>–</b>" in html and "<b>0</b>" not in html and "what it read" in html


def test_a_system_has_one_colour_everywhere(tmp_path: Path):
    text = page(tmp_path, rows(), [example()], BREAKDOWNS)
    table = re.search(
        r'<th scope="row" style="--c: '
        r'var\((--s\d)\)"><i[^>]*></i>cascade-ctc',
        text,
    )[1]
    lane = re.search(r'<span title="cascade-ctc" style="--c: var\((--s\d)\)"', text)[1]
    figure = re.search(r"fill: var\((--s\d), #d55e00\)", text)[1]
    assert table == lane == figure


def test_envelopes_regions_and_ticks():
    samples = np.zeros(1000, np.float32)
    samples[250], samples[999] = -0.5, 0.25
    peaks = envelope(samples, 4)
    assert peaks == (0.0, 1.0, 0.0, 0.5)
    assert envelope(np.zeros(7), 600) == (0.0,) * 7 and len(envelope(tone())) == 600
    xs = [float(x) for x in re.findall(r"L([\d.]+) ", outline(peaks))]
    assert xs == [125, 375, 625, 875, 1000, 875, 625, 375, 125]
    # a region outside the passage is cut and a short one visible
    assert region(3.5, 9.0, 4.0).end == 4.0 and region(3.5, 9.0, 4.0).x == 875.0
    short = region(3.9999, 4.0, 4.0)
    assert short.width >= 3 and short.x + short.width <= WIDTH
    # ticks are round and few
    for seconds in (0.4, 2.0, 23.5, 300.0, 5000.0):
        marks = ticks(seconds)
        assert 2 <= len(marks) <= 9 and marks[0] == (0.0, "0 s") and marks[-1][0] <= 100


def test_encoded_audio_is_in_time_and_small():
    """No encoder delay: spans would sound late by 1,105 samples."""
    samples = tone()
    decoded, rate = soundfile.read(io.BytesIO(encode_audio(samples)), dtype="float32")
    assert (rate, len(decoded)) == (16000, len(samples))
    assert np.argmax(np.abs(decoded) > 0.2) / rate == pytest.approx(0.5, abs=0.01)
    noise = np.random.default_rng(0).normal(0, 0.1, 30 * 16000)
    assert len(encode_audio(noise)) < 120_000


def test_answer_is_found_nearest_to_its_time():
    text = "A cat saw the cat, then a catalogue."
    assert locate(text, "cat", 0.0) == ("A ", "cat", " saw the cat, then a catalogue.")
    # not a part of a word
    assert locate(text, "CAT", 1.0) == ("A cat saw the ", "cat", ", then a catalogue.")
    assert locate("他在北京工作", "北京") == ("他在", "北京", "工作")
    assert locate(text, "dog") is None and locate(text, " ") is None


def test_the_summary_says_who_leads():
    text = summarise(arrange(rows()))
    assert text.startswith("In clean speech cascade-ctc reaches FF1 63.7 and dual 41.3.")
    assert "cascade-ctc leads in clean speech, dual in pink noise at 0\u00a0dB." in text
    assert "from 12.9 to 56.3 % for cascade-ctc" in text
    assert summarise(arrange([])) == ""
    # summary admits overlap
    pairs = (
        ("a", 50.0, "clean"),
        ("b", 40.0, "clean"),
        ("a", 30.0, "reverb"),
        ("b", 29.0, "reverb"),
    )
    close = [Row("qa", s, "h", c, None, "ff1", v, v - 3, v + 3, 9, 0, "") for s, v, c in pairs]
    assert (
        "a leads at both ends, though with reverberation the intervals of the first two overlap."
    ) in summarise(arrange(close))
    two = [replace(row, low=None, high=None, drawn="passage", groups=2) for row in close]
    assert "a leads at both ends, though 2 passages are too few to tell." in summarise(arrange(two))
    # and that a system was run on fewer questions
    some = [
        Row("qa", s, "h", "clean", None, "ff1", v, None, None, n, 0, "")
        for s, v, n in (("a", 50.0, 9), ("b", 40.0, 4))
    ]
    assert summarise(arrange(some)) == (
        "In clean speech a reaches FF1 50.0 and b 40.0 on 4 of the 9 questions."
    )
    # summary of many systems stays short
    many = [
        Row("qa", f"s{i}", "h", "clean", None, "ff1", 90.0 - i, None, None, 9, 0, "")
        for i in range(7)
    ]
    assert "and s3 87.0 (3 more in the table)." in summarise(arrange(many))


def test_the_crossing_figure_says_who_answered_fewer_questions(tmp_path: Path):
    fewer = [replace(row, n=18) if row.system == "cascade-ctc" else row for row in rows()]
    assert "some systems answered fewer: cascade-ctc 18;" in page(tmp_path, fewer)
    assert "answered fewer" not in page(tmp_path, rows())


def test_what_only_readers_answered_is_no_speech(tmp_path: Path):
    values = [("ff1", 40.0), ("f1", 50.0), ("wer", 20.0)]
    names = ("cascade-simulated@30", "text", "text+minilm-uncased-squad2")
    read = [
        Row("qa", s, "exp/models", "clean", None, m, v, v - 1, v + 1, 9, 0, "")
        for s in names
        for m, v in values
    ]
    assert summarise(arrange(read)).startswith("As written cascade-simulated@30")
    text = page(
        tmp_path,
        read,
        breakdowns=[Breakdown(system="text", bucket="0-2 s", value=40.0, low=1.0, high=50.0, n=9)],
    )
    assert "As written" in text and "lean speech" not in text
    assert "<dt>Models</dt><dd>exp/models</dd>" in text and "<dt>Encoders</dt>" not in text
    encoded = [
        *read,
        Row("qa", "dual", "exp/models", "clean", None, "ff1", 60.0, 50.0, 70.0, 9, 0, ""),
    ]
    assert summarise(arrange(encoded)).startswith("In clean speech dual")


def test_tables_keep_the_decimals_that_matter_and_ragged_ones_are_refused(tmp_path: Path):
    text = page(
        tmp_path,
        [],
        tables=[*TABLES, Table("More", ("x", "y"), ((41.26, None), (3.0, float("nan"))))],
    )
    assert ">0.603<" in text and ">64<" in text and ">41.3<" in text and text.count(">–<") == 2
    refused("'Ragged' has 2 columns", Table, "Ragged", ("a", "b"), ((1,),))


def test_a_number_beside_scores_with_intervals_stands_where_they_do(tmp_path: Path):
    rows = (("frozen", "75.0 [25.0, 100.0]", 4.0), ("frozen, published", 100.0, 12.0))
    text = page(tmp_path, [], tables=[Table("Frozen", ("start", "xor", "layers"), rows)])
    assert "<td>100.0</td>" in text and '<td class="num">12.0</td>' in text
