"""Test the page that answers questions: limits of recordings, answers as HTML, and the page in a
browser."""

import base64
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from speechssl.audio import LONGEST_QUESTION, read_audio
from speechssl.pipelines import QA
from speechssl.serve.options import Serve
from speechssl.serve.page import read_upload, render_answers, serve
from speechssl.signal import measure_active_level, measure_rms_level

from .files import refused

SENTENCES = (
    "the train was late as it often is",
    "volunteers at the compass bank are led by carl merrill",
    "the cinema was full",
)
SYSTEMS = ("dual", "cascade-ctc")


def noise(seconds, level=0.05):
    """Make bursts of noise, as speech has."""
    rng = np.random.default_rng(0)
    samples = rng.normal(0, level, round(seconds * 16_000))
    return (samples * (np.arange(len(samples)) % 8_000 < 5_000)).astype(np.float32)


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A passage and a question by two voices of espeak-ng."""
    pytest.importorskip("espeakng_loader", reason="the optional extra synth is not installed")
    from speechssl.synth.minisqa import list_split_voices
    from speechssl.synth.speak import read_aloud

    folder = tmp_path_factory.mktemp("speech")
    voices = list_split_voices("en", "test")
    texts = {"passage": ". ".join(SENTENCES) + ".", "question": "who leads the volunteers?"}
    paths = []
    for (name, text), voice in zip(texts.items(), voices, strict=False):
        paths.append(folder / f"{name}.wav")
        soundfile.write(paths[-1], read_aloud(text, voice, "en").samples, 16_000)
    return paths


def free_port():
    """Return a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# ---- recordings


@pytest.mark.parametrize(
    ("name", "part", "written", "expected"),
    [
        ("long.wav", "passage", noise(6), "lasts 6 s, and the passage may last 5 s"),
        ("silent.wav", "question", np.zeros(16_000), "is silent"),
        ("text.wav", "passage", b"this is not audio" * 100, "cannot read"),
    ],
)
def test_a_bad_upload_is_refused_by_a_sentence_without_its_folder(
    name, part, written, expected, tmp_path
):
    if isinstance(written, bytes):
        (tmp_path / name).write_bytes(written)
    else:
        soundfile.write(tmp_path / name, written, 16_000)
    message = refused(None, read_upload, tmp_path / name, part, 5.0)
    assert expected in message
    assert f"the {part} ({name})" in message
    assert str(tmp_path) not in message


def test_a_question_is_shorter_than_a_passage(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, noise(LONGEST_QUESTION + 1), 16_000)
    assert len(read_upload(path, "passage", 100.0)) > 16_000 * LONGEST_QUESTION
    refused("may last 60 s", read_upload, path, "question", 100.0)


UPLOADS = noise(2.0), noise(1.0)


def answer_uploads(condition, slider):
    """Answer the uploads in a condition, with the slider at an SNR. Return the page, and the
    recordings that the systems get."""
    received = []

    def details(passage, questions):
        received.extend([passage, *questions])
        return [{}]

    qa = SimpleNamespace(systems=[], details=details)
    return render_answers(qa, *UPLOADS, condition, slider), received


@pytest.mark.parametrize(
    ("condition", "slider", "snr_db"),
    [("pink", -5.0, -5.0), ("pink", 20.0, 20.0), ("pink@0", 5.0, 0.0)],
)
def test_systems_get_recordings_with_the_snr_of_the_condition_or_the_slider(
    condition, slider, snr_db
):
    page, received = answer_uploads(condition, slider)
    for noisy, clean in zip(received, UPLOADS, strict=True):
        assert measure_active_level(clean) - measure_rms_level(noisy - clean) == pytest.approx(
            snr_db, abs=0.05
        )
    assert f"Passage, pink {snr_db:g} dB" in page


def test_clean_recordings_are_the_uploads_bit_for_bit():
    _, received = answer_uploads("clean", -5.0)
    for samples, upload in zip(received, UPLOADS, strict=True):
        np.testing.assert_array_equal(samples, upload)


def test_the_slider_does_not_change_reverberation():
    page, received = answer_uploads("reverb", -5.0)
    other_page, others = answer_uploads("reverb", 20.0)
    for samples, other, upload in zip(received, others, UPLOADS, strict=True):
        np.testing.assert_array_equal(samples, other)
        assert not np.array_equal(samples, upload)
    assert page == other_page
    assert "Passage, reverb 0.5 s" in page


# ---- answers


@pytest.mark.slow
def test_the_page_shows_answers_units_and_words_and_plays_them(speech):
    qa = QA("people-en", SYSTEMS)
    passage, question = (read_audio(path) for path in speech)
    page = render_answers(qa, passage, question)
    expected = qa.answer(passage, [question])[0]
    rows = re.findall(r'<tr data-system="(.*?)">(.*?)</tr>', page, re.DOTALL)
    assert [name for name, _ in rows] == list(SYSTEMS)
    for name, row in rows:
        answer = expected[name]
        assert f"{answer.start:.2f} to {answer.end:.2f} s" in row
        clip = soundfile.info(io.BytesIO(base64.b64decode(re.findall(r"base64,([^\"]*)", row)[0])))
        assert clip.duration == pytest.approx(answer.end - answer.start, abs=0.01)
    runs = qa.systems[0].encode(None, passage)
    assert page.count("<title>unit ") == len(runs) + len(qa.systems[0].encode(None, question))
    marked = " ".join(re.findall("<mark>(.*?)</mark>", page))
    assert marked == expected["cascade-ctc"].text
    written = render_answers(qa, passage, "who leads <b>volunteers</b>?")
    assert "can only listen; record the question" in written
    refused("has no words", render_answers, qa, passage, "?")


# ---- the verb


@pytest.fixture
def without_gradio(monkeypatch):
    """Gradio is not installed, and the variables that `serve` sets are restored after the test."""
    for name in ("GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED", "no_proxy"):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "gradio", None)


def test_a_port_in_use_is_refused(without_gradio):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(f"127.0.0.1:{port}", serve, Serve(port=port))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the page needs the extra serve: pip install"),
        ({"conditions": ("bagpipes",)}, "no recordings in bagpipes"),
        ({"host": "no.such.host.invalid"}, "cannot listen at no.such.host.invalid"),
    ],
)
def test_a_page_that_cannot_be_served_is_refused(options, message, without_gradio):
    refused(message, serve, Serve(port=free_port(), **options))


@pytest.fixture
def chromium():
    """A browser."""
    pytest.importorskip("gradio", reason="the optional extra serve is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("SMOKE"), reason="half a minute: make smoke")
def test_two_recordings_are_answered_in_a_browser(speech, tmp_path, chromium):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    port = free_port()
    # requests to other machines would fail, because there is no such proxy
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = f"{sys.executable} -m speechssl serve --port {port} --systems {' '.join(SYSTEMS)}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = os.environ | proxies | {"TMPDIR": str(temporary)}
    with subprocess.Popen(command.split(), env=env, **pipes) as server:
        try:
            assert f"http://127.0.0.1:{port} " in server.stdout.readline()
            page = chromium.new_page()
            page.set_default_timeout(120_000)
            urls = []  # requested by the page
            page.on("request", lambda request: urls.append(request.url))
            page.goto(f"http://127.0.0.1:{port}")
            page.click("#answer")
            page.wait_for_selector("#result [role=alert]:has-text('There is no passage')")
            for part, path in zip(("passage", "question"), speech, strict=True):
                page.set_input_files(f"#{part} input[type=file]", path)
                page.wait_for_selector(f"#{part} audio[src]", state="attached")
            page.click("#answer")
            page.wait_for_selector("#result tr[data-system]")
            rows = page.query_selector_all("#result tr[data-system]")
            assert [row.inner_text().split("\t")[0] for row in rows] == ["dual", "cascade-ctc"]
            page.click("#noise input")
            page.get_by_role("option", name="pink").click()
            page.fill("#snr input[type=number]", "-5")
            page.keyboard.press("Tab")
            page.click("#answer")
            page.wait_for_selector("#result h3:has-text('pink -5 dB')")
            local = (f"http://127.0.0.1:{port}/", "data:", "blob:")
            assert all(url.startswith(local) for url in urls)
        finally:
            server.send_signal(signal.SIGINT)
            errors = server.communicate(timeout=60)[1]
    assert server.returncode == 0
    assert "Traceback" not in errors
    assert not list(temporary.glob("speechssl-serve-*"))
