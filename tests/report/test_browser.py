"""The page in headless Chromium: filter, sort, play, keyboard, export, a narrow screen, print."""

from __future__ import annotations

import csv
import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from speechssl.eval.imported import import_predictions
from speechssl.eval.options import Predictions
from speechssl.metrics import frame_f1
from speechssl.report import build
from speechssl.report.options import Report
from speechssl.timing import FrameGrid, RunLength

from ..files import write_corpus

pytestmark = pytest.mark.slow
CHROMIUM = next(
    filter(
        None,
        map(
            shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
        ),
    ),
    None,
)
QUESTIONS, SECONDS = 30, 4.0
WORDS = [["the", 0.0, 0.5], ["red & 50%", 0.5, 1.0], ["boat_#1", 1.0, 2.5], ["sails", 2.5, 4.0]]
PHONES = [["p", 0.0, 0.5], ["ih", 0.5, 1.0], ["n", 1.0, 4.0]]
GOLD = (0.5, 2.5)  # "red & 50% boat_#1"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason=("playwright is not installed (pip install playwright)")
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        yield found
        found.close()


def answers_of(system, i):
    """What a system of the test answers to question i; None: nothing."""
    if system == "dual":  # right, too long, too short, elsewhere
        return [[0.5, 2.5], [0.0, 4.0], [1.0, 1.4], [3.0, 4.0]][i % 4]
    return (
        None
        if i < 5
        else {
            "text": "boat_#1" if i % 2 else "sails",
            "start": 1.0 if i % 2 else 2.5,
            "end": 2.5 if i % 2 else 4.0,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty questions; DUAL answers all of them, the cascade all but five, in clean speech and in
    pink noise."""
    root = tmp_path_factory.mktemp("page")
    passages, asked, gold = (
        [],
        [],
        [{"text": ("red & 50% boat_#1"), "start": GOLD[0], "end": GOLD[1]}],
    )
    about = {"text": " ".join(w for w, _, _ in WORDS), "words": WORDS, "phones": PHONES}
    for i in range(QUESTIONS):
        text, speaker = (
            "how many" if i % 3 else ('What, "exactly", is 100% so_odd?'),
            f"voice-{i % 6}",
        )
        passages.append({"id": f"p{i}", "seconds": SECONDS, "speaker": speaker} | about)
        question = {
            "id": f"q{i}",
            "passage": f"p{i}",
            "seconds": 1.0,
            "speaker": speaker,
            "text": text,
            "answers": gold,
        }
        asked.append(question)
    corpus, out = (
        write_corpus(root / "corpus", "test", passages=passages, questions=asked),
        root / "out",
    )
    for name in ("dual", "cascade-x"):
        file = root / f"{name}.json"
        file.write_text(
            json.dumps({f"q{i}": a for i in range(QUESTIONS) if (a := answers_of(name, i))})
        )
        for condition in ("clean", "pink@10", "pink@0"):
            import_predictions(
                Predictions(corpus=corpus, out=out, file=file, name=name, condition=condition)
            )
    return corpus, out


@pytest.fixture(scope="module")
def path(folder):
    corpus, out = folder
    runs = RunLength(np.array([7, 63, 7]), np.array([50, 50, 99]))
    with pytest.MonkeyPatch.context() as patch:
        extractor = SimpleNamespace(grid=FrameGrid(16_000, 320, 400), units=lambda samples: runs)
        patch.setattr(build, "units_of", lambda *_: extractor)
        build.write_report(Report(out=out, corpus=corpus, examples=4))
    return out / "report.html"


@pytest.fixture
def page(browser, path):
    """The page, which asks for nothing outside and logs no error."""
    found = browser.new_page(viewport={"width": 1200, "height": 900})
    found.set_default_timeout(5000)
    asked, wrong = [], []
    found.on("request", lambda request: asked.append(request.url))
    found.on("console", lambda message: wrong.append(message.text))
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.goto(f"file://{path}")
    yield found
    found.close()
    assert not wrong
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)


def column(page, name):
    """The texts of a column of the predictions on the screen."""
    heads = [text.strip() for text in page.locator(".predictions th").all_inner_texts()]
    return page.locator(
        f".predictions tbody td:nth-child({heads.index(name) + 1})"
    ).all_inner_texts()


def status(page):
    return page.locator(".predictions .status").inner_text()


def exported(page, where, kind):
    with page.expect_download() as waiting:
        page.locator(where).locator(f".exports button[data-format={kind}]").click()
    return waiting.value.suggested_filename, waiting.value.path().read_text(encoding="utf-8")


def test_predictions_are_filtered(page):
    assert (
        status(page).startswith("180 predictions")
        and page.locator(".predictions tbody tr").count() == 100
    )
    page.get_by_role("button", name="Show 100 more").click()
    assert (
        page.locator(".predictions tbody tr").count() == 180 and page.locator(".more").is_hidden()
    )
    page.locator("[name=system]").select_option(label="dual")
    page.locator("[name=condition]").select_option(label="Pink noise, 0\u00a0dB")
    assert set(column(page, "System")) == {"dual"} and status(page).startswith(
        "30 of 180 predictions"
    )
    page.locator("[name=error]").select_option(label="too short")
    assert set(column(page, "Error")) == {"too short"} and len(column(page, "Error")) == 7
    page.get_by_role("button", name="Reset").click()
    page.locator("[name=ff1-least]").fill("60")
    page.locator("[name=ff1-most]").fill("90")
    wanted = 100 * frame_f1((0.0, 4.0), [GOLD])  # of DUAL alone; the cascade's (1.0, 2.5) has 85.7
    assert set(column(page, "FF1")) == {f"{wanted:.1f}", "85.7"}
    page.locator("[name=text]").fill("exactly")
    assert {text.split("\n")[0] for text in column(page, "Question")} == {
        'What, "exactly", is 100% so_odd?'
    }
    page.locator("[name=length-most]").fill("1")
    assert status(page).startswith("0 of 180 predictions")


def test_predictions_are_sorted_by_mouse_and_keyboard(page):
    head = page.locator(".predictions th", has_text="FF1")
    head.locator("button").click()
    values = [float(v) for v in column(page, "FF1")]
    assert (
        head.get_attribute("aria-sort") == "descending"
        and values == sorted(values, reverse=True)
        and values[0] == 100
    )
    page.keyboard.press("Space")  # the button has the focus
    values = [float(v) for v in column(page, "FF1")]
    assert (
        head.get_attribute("aria-sort") == "ascending"
        and values == sorted(values)
        and values[0] == 0
    )
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert (
        page.locator(".predictions th", has_text=re.compile("^F1")).get_attribute("aria-sort")
        == "descending"
    )
    assert head.get_attribute("aria-sort") == "none"
    page.locator("[name=condition]").select_option(label="Clean speech")
    scores = [text for text in column(page, "F1")]
    # unknown last
    assert (
        scores[-1] == ""
        and scores[0] == "50.0"
        and scores == sorted(scores, key=lambda t: -float(t or -1))
    )


def test_questions_that_all_systems_answered_are_chosen(page):
    page.locator("[name=common]").check()
    assert status(page).startswith("150 of 180 predictions")


def test_a_click_plays_the_answer_that_is_aimed_at(page):
    example = page.locator(".example").first
    audio, svg = example.locator(".passage"), example.locator(".answers")
    page.evaluate(
        """HTMLMediaElement.prototype.play = function () {
          this.dispatchEvent(new Event("play"));
          window.played = [this.currentTime, document.querySelector(".region.playing")?.getAttribute("aria-label")];
        }"""
    )
    box = svg.bounding_box()

    def click(seconds, y):
        page.evaluate("window.played = null")
        svg.click(position={"x": seconds / SECONDS * box["width"], "y": y})
        page.wait_for_function("window.played")
        return page.evaluate("window.played")

    labels = [region.get_attribute("aria-label") for region in example.locator(".region").all()]
    spans = [tuple(map(float, re.findall(r"[\d.]+", label)[-2:])) for label in labels]
    # on the waveform the shortest answer over this time, or else the time itself
    for seconds in np.arange(0.15, SECONDS, 0.3):
        over = [span for span in spans if span[0] <= seconds < span[1]]
        wanted = min(over, key=lambda s: s[1] - s[0])[0] if over else seconds
        assert click(seconds, 40)[0] == pytest.approx(wanted, abs=0.02)
    for lane, (label, (start, end)) in enumerate(zip(labels, spans, strict=True)):
        assert click((start + end) / 2, 88 + 26 * lane + 3) == [
            pytest.approx(start, abs=0.01),
            label,
        ]
    example.locator(".region").first.focus()
    page.evaluate("window.played = null")
    page.keyboard.press("Enter")
    page.wait_for_function("window.played")
    assert page.evaluate("window.played")[1] == labels[0]
    assert audio.count() == 1


def test_a_span_sounds_and_ends_where_it_ends(page):
    example = page.locator(".example").first
    # the first unit, a second long
    example.locator(".strip.coloured .block").nth(0).dispatch_event("click")
    audio = example.locator(".passage")
    page.wait_for_function("a => !a.paused && a.currentTime > 0.1", arg=audio.element_handle())
    page.wait_for_function("a => a.paused", arg=audio.element_handle(), timeout=5000)
    assert audio.evaluate("a => a.currentTime") == pytest.approx(1.0, abs=0.05)


def test_units_and_phones_are_drawn_in_time(page):
    example = page.locator(".example").first
    assert example.locator(".names > span").all_inner_texts()[-2:] == ["Phones", "Units"]
    units = example.locator(".strip.coloured .block")
    assert units.locator("text").all_text_contents() == ["7", "63", "7"]
    colours = [
        block.evaluate("b => getComputedStyle(b.querySelector('rect')).fill")
        for block in units.all()
    ]
    assert colours[0] == colours[2] != colours[1]
    wave, second = (
        example.locator(".answers").bounding_box(),
        units.nth(1).locator("rect").bounding_box(),
    )
    grid = FrameGrid(16_000, 320, 400)
    assert second["x"] - wave["x"] == pytest.approx(
        wave["width"] * grid.seconds(50) / SECONDS, abs=1
    )
    example.get_by_role("button", name="Zoom in to phones and units").click()
    wide = example.locator(".answers").bounding_box()["width"]
    assert wide == pytest.approx(360 * SECONDS, abs=1)
    assert example.locator(".phone text").nth(1).is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200


def test_closed_rows_say_their_condition_and_groups(page):
    closed = page.locator(".example:not([open])")
    badges = [row.locator(".badge").all_inner_texts() for row in closed.all()]
    assert len(badges) == 3 and all(len(some) == 3 for some in badges)
    conditions = [some[0] for some in badges]
    assert conditions == ["Clean speech", "Pink noise, 0\u00a0dB", "Pink noise, 0\u00a0dB"]
    assert all(
        re.fullmatch(r"voice-\d", voice) and kind in ("number", "proper noun", "other")
        for _, voice, kind in badges
    )
    page.goto(page.url + "#" + closed.last.get_attribute("id"))
    assert page.locator(".example").last.get_attribute("open") is not None


def test_tables_are_exported_as_shown(page):
    name, text = exported(page, ".grid:has(h3:text-is('FF1'))", "csv")
    lines = list(csv.reader(text.splitlines()))
    assert name == "ff1.csv"
    assert lines[0][:4] == ["System", "Clean speech", "Clean speech low", "Clean speech high"]
    assert lines[0][4] == "Pink noise 10 dB" and lines[1][0] == "dual" and lines[1][-1] == "30"
    assert all(float(low) <= float(value) <= float(high) for _, value, low, high, *_ in lines[1:])
    name, text = exported(page, ".grid:has(h3:text-is('FF1'))", "tex")
    assert name == "ff1.tex"
    for part in ("\\toprule", "\\midrule", "\\multicolumn{2}{c}{Pink noise}", "\\textbf{"):
        assert part in text
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0].strip().splitlines()
    assert [line.count("&") for line in body] == [4, 4]
    page.locator("[name=system]").select_option(label="dual")
    page.locator(".predictions th button", has_text="FF1").click()
    name, text = exported(page, ".predictions", "csv")
    lines = list(csv.DictReader(text.splitlines()))
    assert name == "all-predictions.csv" and len(lines) == 90
    assert {line["System"] for line in lines} == {"dual"}
    values = [float(line["FF1"]) for line in lines]
    assert values == sorted(values, reverse=True)
    assert lines[0]["Question"] == 'What, "exactly", is 100% so_odd?'
    assert float(lines[0]["start (s)"]) < float(lines[0]["end (s)"])
    _, text = exported(page, ".predictions", "tex")
    assert "red \\& 50\\% boat\\_\\#1" in text
    assert len(text.split("\\midrule\n")[1].splitlines()) == 90 + 2


def test_a_narrow_screen_scrolls_in_its_tables_alone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    for example in page.locator(".example > summary").all()[1:]:
        example.click()
    page.locator("details.all > summary").click()
    page.get_by_role("button", name="Zoom in").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("[name=system]").is_visible()


def test_print_shows_what_can_be_read_on_paper(page):
    page.emulate_media(media="print")
    for control in (".players", ".filters", ".exports", ".zoom", ".more", ".example:not([open])"):
        assert not any(found.is_visible() for found in page.locator(control).all()), control
    assert page.locator(".example[open] .strip").first.is_visible()
    inner = page.locator(".predictions .scroll")
    assert inner.evaluate("box => box.scrollHeight <= box.clientHeight + 1")  # nothing is cut off
    page.set_viewport_size({"width": 720, "height": 1000})  # what A4 leaves between its margins
    assert page.evaluate("document.documentElement.scrollWidth") == 720
