"""The page in headless Chromium: predictions are filtered, and sorted ones exported."""

import csv
import shutil

import pytest

from speechssl.report.build import write_report
from speechssl.report.options import Report

from .test_build import folder  # noqa: F401  a fixture: two systems, three questions

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


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


@pytest.fixture
def page(browser, folder):  # noqa: F811
    """The page, which asks for nothing outside and logs no error."""
    corpus, out = folder
    write_report(Report(out=out, corpus=corpus, examples=1))
    new_page = browser.new_page(viewport={"width": 1200, "height": 900})
    new_page.set_default_timeout(5000)
    urls, errors = [], []
    new_page.on("request", lambda request: urls.append(request.url))
    new_page.on("console", lambda message: errors.append(message.text))
    new_page.on("pageerror", lambda error: errors.append(str(error)))
    new_page.goto(f"file://{out}/report.html")
    yield new_page
    new_page.close()
    assert not errors
    assert all(url.startswith(("file:", "data:", "blob:")) for url in urls)


def read_column(page, name):
    """Read the texts of a column of the predictions on the screen."""
    heads = [text.strip() for text in page.locator(".predictions th").all_inner_texts()]
    number = heads.index(name) + 1
    return page.locator(f".predictions tbody td:nth-child({number})").all_inner_texts()


def test_predictions_are_filtered_and_exported(page):
    reset = page.get_by_role("button", name="Reset")
    assert len(read_column(page, "System")) == 6
    page.locator("[name=system]").select_option(label="dual")
    page.locator("[name=error]").select_option(label="too long")
    assert read_column(page, "System") == ["dual"]
    reset.click()
    page.locator("[name=ff1-least]").fill("30")
    page.locator("[name=ff1-most]").fill("70")
    # 2 * 1 / (4 + 1) of the answer of DUAL that is too long, 2 * 0.5 / (0.5 + 1) of the cascade
    assert read_column(page, "FF1") == ["40.0", "66.7"]
    page.locator("[name=text]").fill("boat sails")
    assert read_column(page, "FF1") == ["40.0"]
    reset.click()
    page.locator("[name=common]").check()
    assert len(read_column(page, "System")) == 4
    page.locator(".predictions th button", has_text="FF1").click()
    with page.expect_download() as waiting:
        page.locator(".predictions .exports button[data-format=csv]").click()
    lines = csv.DictReader(waiting.value.path().read_text(encoding="utf-8").splitlines())
    assert [line["FF1"] for line in lines] == ["100.0", "66.7", "40.0", "0.0"]
