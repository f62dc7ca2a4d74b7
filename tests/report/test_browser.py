"""The page in headless Chromium: predictions are filtered, sorted and exported."""

import csv
import json
import shutil
from dataclasses import replace
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
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUESTIONS, SECONDS = 30, 4.0
WORDS = [["the", 0.0, 0.5], ["red & 50%", 0.5, 1.0], ["boat_#1", 1.0, 2.5], ["sails", 2.5, 4.0]]
PHONES = [["p", 0.0, 0.5], ["ih", 0.5, 1.0], ["n", 1.0, 4.0]]
GOLD = (0.5, 2.5)  # "red & 50% boat_#1"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"],
        )
        yield chromium
        chromium.close()


def answer_question(system, i):
    """Return the answer of a system to question i; None for no answer."""
    if system == "dual":
        right, too_long, too_short, elsewhere = [0.5, 2.5], [0.0, 4.0], [1.0, 1.4], [3.0, 4.0]
        return [right, too_long, too_short, elsewhere][i % 4]
    if i < 5:
        return None
    text, start, end = ("boat_#1", 1.0, 2.5) if i % 2 else ("sails", 2.5, 4.0)
    return {"text": text, "start": start, "end": end}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty questions; DUAL answers all of them, the cascade all but five, in clean speech and in
    pink noise."""
    root = tmp_path_factory.mktemp("page")
    gold = [{"text": "red & 50% boat_#1", "start": GOLD[0], "end": GOLD[1]}]
    about = {"text": " ".join(w for w, _, _ in WORDS), "words": WORDS, "phones": PHONES}
    passages, questions = [], []
    for i in range(QUESTIONS):
        speaker = {"speaker": f"voice-{i % 6}"}
        text = "how many" if i % 3 else 'What, "exactly", is 100% so_odd?'
        passages.append({"id": f"p{i}", "seconds": SECONDS} | speaker | about)
        question = {"id": f"q{i}", "passage": f"p{i}", "seconds": 1.0, "text": text}
        questions.append(question | speaker | {"answers": gold})
    corpus = write_corpus(root / "corpus", "test", passages=passages, questions=questions)
    for name in ("dual", "cascade-x"):
        file = root / f"{name}.json"
        answers = {f"q{i}": answer_question(name, i) for i in range(QUESTIONS)}
        file.write_text(json.dumps({i: answer for i, answer in answers.items() if answer}))
        predictions = Predictions(corpus=corpus, out=root / "out", file=file, name=name)
        for condition in ("clean", "pink@10", "pink@0"):
            import_predictions(replace(predictions, condition=condition))
    return corpus, root / "out"


@pytest.fixture(scope="module")
def path(folder):
    corpus, out = folder
    runs = RunLength(np.array([7, 63, 7]), np.array([50, 50, 99]))
    with pytest.MonkeyPatch.context() as patch:
        extractor = SimpleNamespace(grid=FrameGrid(16_000, 320, 400), extract=lambda samples: runs)
        patch.setattr(build, "load_unit_extractor", lambda *_: extractor)
        build.write_report(Report(out=out, corpus=corpus, examples=4))
    return out / "report.html"


@pytest.fixture
def page(browser, path):
    """The page, which asks for nothing outside and logs no error."""
    new_page = browser.new_page(viewport={"width": 1200, "height": 900})
    new_page.set_default_timeout(5000)
    urls, errors = [], []
    new_page.on("request", lambda request: urls.append(request.url))
    new_page.on("console", lambda message: errors.append(message.text))
    new_page.on("pageerror", lambda error: errors.append(str(error)))
    new_page.goto(f"file://{path}")
    yield new_page
    new_page.close()
    assert not errors
    assert all(url.startswith(("file:", "data:", "blob:")) for url in urls)


def read_column(page, name):
    """Read the texts of a column of the predictions on the screen."""
    heads = [text.strip() for text in page.locator(".predictions th").all_inner_texts()]
    number = heads.index(name) + 1
    return page.locator(f".predictions tbody td:nth-child({number})").all_inner_texts()


def status(page):
    return page.locator(".predictions .status").inner_text()


def test_predictions_are_filtered(page):
    lines = page.locator(".predictions tbody tr")
    assert status(page).startswith("180 predictions")
    assert lines.count() == 100
    page.get_by_role("button", name="Show 100 more").click()
    assert lines.count() == 180
    page.locator("[name=system]").select_option(label="dual")
    page.locator("[name=condition]").select_option(label="Pink noise, 0\u00a0dB")
    assert set(read_column(page, "System")) == {"dual"}
    assert status(page).startswith("30 of 180 predictions")
    page.locator("[name=error]").select_option(label="too short")
    assert read_column(page, "Error") == ["too short"] * 7
    page.get_by_role("button", name="Reset").click()
    page.locator("[name=ff1-least]").fill("60")
    page.locator("[name=ff1-most]").fill("90")
    too_long = 100 * frame_f1((0.0, 4.0), [GOLD])  # of DUAL
    boat = 100 * frame_f1((1.0, 2.5), [GOLD])  # of the cascade
    assert set(read_column(page, "FF1")) == {f"{too_long:.1f}", f"{boat:.1f}"}
    page.locator("[name=text]").fill("exactly")
    questions = {text.split("\n")[0] for text in read_column(page, "Question")}
    assert questions == {'What, "exactly", is 100% so_odd?'}
    page.get_by_role("button", name="Reset").click()
    page.locator("[name=common]").check()
    assert status(page).startswith("150 of 180 predictions")


def test_the_predictions_that_are_shown_are_exported(page):
    page.locator("[name=system]").select_option(label="dual")
    page.locator(".predictions th button", has_text="FF1").click()
    with page.expect_download() as waiting:
        page.locator(".predictions .exports button[data-format=csv]").click()
    text = waiting.value.path().read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    assert len(lines) == 90
    assert {line["System"] for line in lines} == {"dual"}
    values = [float(line["FF1"]) for line in lines]
    assert values == sorted(values, reverse=True)
    assert lines[0]["Question"] == 'What, "exactly", is 100% so_odd?'
