"""The page that answers questions: recordings and their limits, answers as HTML, the process with
the models, and a browser."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from speechssl.audio import LONGEST_QUESTION, read_audio
from speechssl.cli import main
from speechssl.errors import InputError
from speechssl.pipelines import QA
from speechssl.serve import page
from speechssl.serve.options import Limits, Serve
from speechssl.serve.page import Answerer, answered, at_snr, check_port, read_upload
from speechssl.signal import active_level, rms_level

from .files import refused

SENTENCES = (
    "the train was late as it often is",
    "volunteers at the compass bank are led by carl merrill",
    "the cinema was full",
)
SYSTEMS = ("dual", "cascade-ctc")
LIMITS = Limits(seconds=5.0, megabytes=0.5, timeout=60.0)


def noise(seconds: float, level: float = 0.05) -> np.ndarray:
    """In bursts, as speech is."""
    rng = np.random.default_rng(0)
    samples = rng.normal(0, level, round(seconds * 16_000))
    return (samples * (np.arange(len(samples)) % 8_000 < 5_000)).astype(np.float32)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A passage and a question by two voices of espeak-ng."""
    pytest.importorskip("espeakng_loader", reason="the optional extra synth is not installed")
    from speechssl.synth.minisqa import speakers
    from speechssl.synth.speak import read_aloud

    folder = tmp_path_factory.mktemp("speech")
    voices = speakers("en", "test")
    soundfile.write(
        folder / "passage.wav",
        read_aloud(". ".join(SENTENCES) + ".", voices[0], "en").samples,
        16_000,
    )
    soundfile.write(
        folder / "question.wav",
        read_aloud("who leads the volunteers?", voices[1], "en").samples,
        16_000,
    )
    return folder / "passage.wav", folder / "question.wav"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


# ---- recordings


@pytest.mark.parametrize(
    ("name", "part", "written", "expected"),
    [
        (
            "long.wav",
            "passage",
            noise(6),
            "the passage (long.wav) lasts 6 s, and the passage may last 5 s",
        ),
        ("silent.wav", "question", np.zeros(16_000), "the question (silent.wav) is silent"),
        (
            "text.wav",
            "passage",
            b"this is not audio" * 100,
            "cannot read the passage (text.wav) as audio",
        ),
        (
            "large.wav",
            "passage",
            bytes(600_000),
            "the passage (large.wav) has 0.6 MB, and at most 0.5 MB",
        ),
        ("empty.wav", "passage", b"", "the passage (empty.wav) is empty"),
    ],
)
def test_an_upload_that_cannot_be_used_is_one_sentence_without_its_folder(
    name, part, written, expected, tmp_path: Path
) -> None:
    if isinstance(written, bytes):
        (tmp_path / name).write_bytes(written)
    else:
        soundfile.write(tmp_path / name, written, 16_000)
    message = refused("", read_upload, tmp_path / name, part, LIMITS)
    assert expected in message and str(tmp_path) not in message


def test_a_question_is_shorter_than_a_passage(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(LONGEST_QUESTION + 1), 16_000)
    limits = Limits(100.0, 50.0, 60.0)
    assert len(read_upload(tmp_path / "a.wav", "passage", limits)) == round(
        (LONGEST_QUESTION + 1) * 16_000
    )
    refused("the question may last 60 s", read_upload, tmp_path / "a.wav", "question", limits)


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("pink", "pink 5 dB"),
        ("clean", "clean"),
        ("reverb", "reverb 0.5 s"),
        ("codec@mp3:16", "mp3 16 kbps"),
        ("pink@0", "pink 0 dB"),
    ],
)
def test_conditions_get_the_snr_of_the_slider_where_they_have_none(
    written: str, label: str
) -> None:
    assert at_snr(written, 5.0).label == label


@pytest.mark.parametrize("snr_db", [-5.0, 5.0, 20.0])
def test_what_the_systems_get_has_the_snr_of_the_slider(snr_db: float) -> None:
    got: list[np.ndarray] = []

    def details(passage: np.ndarray, questions: list[np.ndarray]) -> list[dict[str, Any]]:
        got.extend([passage, *questions])
        return [{}]

    qa: Any = SimpleNamespace(systems=[], details=details)
    given = [noise(2.0), noise(1.0)]
    page = answered(qa, *given, "pink", snr_db)
    for noisy, clean in zip(got, given, strict=True):
        assert active_level(clean) - rms_level(noisy - clean) == pytest.approx(snr_db, abs=0.05)
    assert f"Passage, pink {snr_db:g} dB" in page
    got.clear()
    answered(qa, *given, "clean", snr_db)
    assert all(np.array_equal(noisy, clean) for noisy, clean in zip(got, given, strict=True))


# ---- answers


@pytest.mark.slow
def test_the_page_shows_answers_units_and_words_and_plays_them(speech: tuple[Path, Path]) -> None:
    qa, (passage, question) = QA("people-en", SYSTEMS), [read_audio(path) for path in speech]
    page = answered(qa, passage, question)
    expected = qa.answer(passage, [question])[0]
    rows = re.findall(r'<tr data-system="(.*?)">(.*?)</tr>', page, re.DOTALL)
    assert [name for name, _ in rows] == list(SYSTEMS)
    for name, row in rows:
        answer = expected[name]
        assert (
            f"{answer.start:.2f} to {answer.end:.2f} s" in row and f"{answer.confidence:.2f}" in row
        )
        clip = soundfile.info(io.BytesIO(base64.b64decode(re.findall(r"base64,([^\"]*)", row)[0])))
        assert clip.duration == pytest.approx(answer.end - answer.start, abs=0.01)
    runs = qa.systems[0].encode(None, passage)
    assert page.count("<title>unit ") == len(runs) + len(qa.systems[0].encode(None, question))
    marked = " ".join(re.findall("<mark>(.*?)</mark>", page))
    assert marked == expected["cascade-ctc"].text
    assert page.count('class="wave"') == 2 and page.count('height="88"') == len(SYSTEMS)

    written = answered(qa, passage, "who leads <b>volunteers</b>?")
    assert "can only listen; record the question" in written and written.count('class="wave"') == 1
    refused("has no words", answered, qa, passage, "?")


@pytest.mark.slow
def test_an_answer_that_takes_too_long_ends_and_the_next_one_does_not(
    speech: tuple[Path, Path], tmp_path: Path
) -> None:
    second = tmp_path / "second"
    shutil.copytree(Path(page.__file__).parents[1] / "models/people-en", second)
    passage, question = (read_audio(path) for path in speech)
    answerer = Answerer(
        Serve(models=("people-en", str(second)), systems=("dual",), limits=Limits(timeout=60.0))
    )
    try:
        assert list(answerer.about) == ["people-en", str(second)]
        assert "trained on recipes/units" in answerer.about["people-en"]["dual"]
        pages = [answerer.ask(name, passage, question, "pink", 5.0) for name in answerer.about]
        assert pages[0] == pages[1] and "Passage, pink 5 dB" in pages[0]
        refused(
            "can only listen", answerer.ask, "people-en", passage, "who leads them?", "clean", 0.0
        )
        answerer.timeout = 0.0
        refused("took longer than 0 s", answerer.ask, "people-en", passage, question, "clean", 0.0)
        answerer.timeout = 60.0
        assert answerer.ask("people-en", passage, question, "pink", 5.0) == pages[0]
    finally:
        answerer.close()
    refused("nowhere", Answerer, Serve(models=("nowhere",)))


# ---- the verb


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRADIO_TEMP_DIR", "GRADIO_ANALYTICS_ENABLED", "no_proxy"):
        monkeypatch.setenv(name, "")  # to be as it was after the test


def ended(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the verb says that ends before it serves."""
    assert main(["serve", *options]) == 2
    return capsys.readouterr().err


def test_without_gradio_the_install_line_is_given(monkeypatch, environment, capsys) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    message = ended(capsys, "--port", str(free_port()))
    assert "the page needs the extra serve: pip install" in message and message.count("\n") == 1


def test_a_port_in_use_and_a_bad_condition_are_one_sentence(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        message = ended(capsys, "--port", str(server.getsockname()[1]))
        assert (
            "Address already in use" in message
            and ("give another --port") in message
            and message.count("\n") == 1
        )
    assert "no recordings in bagpipes" in ended(capsys, "--conditions", "bagpipes")
    refused("cannot listen at no.such.host.invalid", check_port, "no.such.host.invalid", 7860)


def test_an_option_of_the_reader_that_would_have_no_effect_is_refused(capsys) -> None:
    assert "has no option --shift" in ended(capsys, "--shift", "vector.safetensors")


def test_everyone_is_let_in_with_a_warning_alone(monkeypatch, environment, capsys) -> None:
    def stop() -> None:
        raise InputError("no further")

    monkeypatch.setattr(page, "import_gradio", stop)
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False), ("localhost", False)):
        message = ended(capsys, "--host", host, "--port", str(free_port()))
        assert (
            "everyone who reaches this machine" in message
        ) == warned and "no further" in message


@pytest.fixture
def chromium() -> Iterator[Any]:
    pytest.importorskip("gradio", reason="the optional extra serve is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if (program := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.slow
def test_two_recordings_are_answered_in_a_browser_in_noise_too(
    speech: tuple[Path, Path], tmp_path: Path, chromium: Any
) -> None:
    temporary, port = tmp_path / "temporary", free_port()
    temporary.mkdir()
    (tmp_path / "text.wav").write_bytes(b"this is not audio" * 100)
    # whatever asked for something outside would meet a proxy that is not there
    env = os.environ | {
        "TMPDIR": str(temporary),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    command = [
        sys.executable,
        "-m",
        "speechssl",
        "serve",
        "--port",
        str(port),
        "--systems",
        *SYSTEMS,
    ]
    left = lambda: [path.name for path in temporary.rglob("*") if path.is_file()]  # noqa: E731
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert f"http://127.0.0.1:{port} " in server.stdout.readline()
            page, asked, wait = chromium.new_page(), [], 120_000
            page.set_default_timeout(wait)
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"http://127.0.0.1:{port}")
            assert "trained on recipes/units" in page.inner_text("#about") and (
                "Nothing is kept"
            ) in page.inner_text("body")
            page.click("#answer")
            page.wait_for_selector(
                "#result [role=alert]:has-text('There is no passage; drop a "
                "recording, or record one')"
            )
            page.set_input_files("#passage input[type=file]", tmp_path / "text.wav")
            page.wait_for_selector(
                "#passage-kept [role=alert]:has-text('Cannot read the passage (text.wav) as audio')"
            )
            for part, path in zip(("passage", "question"), speech, strict=True):
                page.set_input_files(f"#{part} input[type=file]", path)
                page.wait_for_selector(f"#{part}-kept audio")
            page.click("#answer")
            page.wait_for_selector("#result tr[data-system]")
            clean = [row.inner_text() for row in page.query_selector_all("#result tr[data-system]")]
            assert [row.split("\t")[0] for row in clean] == ["dual", "cascade-ctc"] and all(
                " s\t" in row for row in clean
            )
            assert (
                page.locator("#result td audio").count() == 2
                and page.locator("#result .units").count() == 2
            )
            # it can be played
            assert page.evaluate("document.querySelector('#result audio').readyState") > 0
            for change in ("who leads them?", ""):  # and an answer to what was asked before goes
                page.fill("#text textarea", change)
                page.wait_for_selector("#result tr[data-system]", state="detached")
                page.click("#answer")
                page.wait_for_selector("#result :is(tr[data-system], [role=alert])")
            page.set_input_files("#question input[type=file]", speech[1])
            page.wait_for_selector("#result tr[data-system]", state="detached")
            page.click("#noise input")
            page.get_by_role("option", name="pink").click()
            page.fill("#snr input[type=number]", "-5")
            page.keyboard.press("Tab")
            page.click("#answer")
            page.wait_for_selector("#result h3:has-text('pink -5 dB')")
            assert [
                row.inner_text() for row in page.query_selector_all("#result tr[data-system]")
            ] != clean
            assert not [
                url
                for url in asked
                if not url.startswith((f"http://127.0.0.1:{port}/", "data:", "blob:"))
            ]
            assert left() == []
        finally:
            server.send_signal(signal.SIGINT)
            errors = server.communicate(timeout=60)[1]
    assert server.returncode == 0 and "Traceback" not in errors
    assert not list(temporary.glob("speechssl-serve-*"))
