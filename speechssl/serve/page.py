"""`speechssl serve` serves a page on this machine: it answers questions from recordings, also in
noise, and plays the answers."""

# No `from __future__ import annotations` here, since Gradio reads the annotations of handlers.

import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from speechssl.audio import LONGEST_QUESTION, SAMPLE_RATE, measure_duration, read_recording
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.data import Transcript
from speechssl.errors import InputError, MissingExtra
from speechssl.pipelines import CONFIDENCE, QA, Detail, load_qa
from speechssl.report.figures import PALETTE
from speechssl.report.listening import (
    WIDTH,
    compute_envelope,
    draw_outline,
    encode_audio,
    list_ticks,
    make_data_uri,
    make_region,
)
from speechssl.serve.options import Serve
from speechssl.timing import RunLength
from speechssl.units.features import UnitExtractor
from speechssl.units.picture import make_blocks
from speechssl.units.pieces import Pieces

CLEAN = "clean"
HOUR = 3600  # seconds; Gradio removes older uploads


# ---- recordings


def read_upload(path: Path, part: str, max_seconds: float) -> np.ndarray:
    """Read an uploaded recording: samples (N,) float32 at 16 kHz. part: passage or question;
    max_seconds: the longest passage.

    Raises InputError for a file that is no audio, is silent, or too long. The message names the
    file without its folder, which the visitor does not know.
    """
    longest = max_seconds if part == "passage" else min(max_seconds, LONGEST_QUESTION)
    try:
        seconds = measure_duration(path)
        if seconds > longest:
            raise InputError(
                f"{path} lasts {seconds:.0f} s, and the {part} may last {longest:g} s; "
                "give a part of it"
            )
        return read_recording(path)
    except InputError as error:
        sentence = str(error).removeprefix("the audio file ")
        raise InputError(sentence.replace(str(path), f"the {part} ({path.name})")) from error


def complete_condition(noise: str, snr_db: float) -> Condition:
    """Parse a condition. A noise without an SNR, such as "pink", gets `snr_db`. Raises InputError
    as `parse_condition` does."""
    is_complete = "@" in noise or noise.startswith("rir=") or noise in (CLEAN, "reverb", "r")
    return parse_condition(noise if is_complete else f"{noise}@{snr_db:g}")


# ---- answers as HTML


def render_answers(
    qa: QA, passage: np.ndarray, question: np.ndarray | str, noise: str = CLEAN, snr_db: float = 0.0
) -> str:
    """Return HTML with the answers of all systems, and with passage and question as the systems got
    them: distorted, and as units and words.

    passage, question: (N,) float32 at 16 kHz; a question may be a text. Both recordings are
    distorted, as in `evaluate qa`. Raises InputError as `QA.answer` and `complete_condition` do.
    """
    condition = complete_condition(noise, snr_db)
    distorter = Distorter()
    recordings = {"passage": distorter.apply(passage, condition, "passage")}
    if not isinstance(question, str):
        question = recordings["question"] = distorter.apply(question, condition, "question")
    details = qa.details(recordings["passage"], [question])[0]
    colours = {system.name: PALETTE[i % len(PALETTE)][0] for i, system in enumerate(qa.systems)}
    rows = []  # (system, colour, answer, samples of the answer) for page.html
    for name, colour in colours.items():
        answer = details[name].answer if name in details else None
        clip = None
        if answer is not None and answer.end > answer.start:
            first = round(answer.start * SAMPLE_RATE)
            last = round(answer.end * SAMPLE_RATE)
            clip = recordings["passage"][first:last]
        rows.append((name, colour, answer, clip))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("speechssl.serve", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "envelope": compute_envelope,
        "outline": draw_outline,
        "ticks": list_ticks,
    }
    environment.filters["audio"] = lambda samples: make_data_uri(encode_audio(samples))
    descriptions = []
    for part, samples in recordings.items():
        descriptions.append(describe_recording(qa, part, samples, details, colours))
    return environment.get_template("page.html").render(
        rows=rows, recordings=descriptions, condition=condition.label, width=WIDTH
    )


def describe_recording(
    qa: QA,
    part: str,
    samples: np.ndarray,
    details: Mapping[str, Detail],
    colours: Mapping[str, str],
) -> dict[str, Any]:
    """Describe a recording as the systems got it, for page.html. part: passage or question;
    samples: (N,); details, colours: by system.

    Three entries are lists with a tuple for every system that has one:

    regions: (system, colour, place of the answer in the recording)
    units: (system, number of units, blocks), a block is (x, width, colour, text)
    transcripts: (system, separator, words), a word is (text, whether it is in the answer)
    """
    seconds = len(samples) / SAMPLE_RATE
    regions: list[tuple[str, str, Any]] = []
    units: list[tuple[str, str, Any]] = []
    transcripts: list[tuple[str, str, Any]] = []
    for system in qa.systems:
        if system.name not in details:
            continue
        name = system.name
        detail = details[name]
        start, end = np.inf, -np.inf  # no answer: no word lies between these
        if part == "passage" and detail.answer.text != "":  # "": a reader of words found no answer
            start, end = detail.answer.start, detail.answer.end
            regions.append((name, colours[name], make_region(start, end, seconds)))
        encoded: Any = getattr(detail, part)  # the units or the words of the recording
        if isinstance(encoded, RunLength):
            extractor: UnitExtractor = system.extractor  # type: ignore[attr-defined]
            blocks = []
            for unit, first, last, colour in make_blocks(encoded, extractor.grid):  # in seconds
                x = round(first * WIDTH / seconds, 2)
                width = round((last - first) * WIDTH / seconds, 2)
                label = name_unit(int(unit), extractor.pieces)
                blocks.append((x, width, colour, f"{label}, {first:.2f} to {last:.2f} s"))
            units.append((name, f"{len(encoded)}, {len(encoded) / seconds:.1f} a second", blocks))
        elif isinstance(encoded, Transcript):
            words = [(w.text, start <= w.start and w.end <= end) for w in encoded.words]
            transcripts.append((name, encoded.separator, words))
    return {
        "part": part,
        "seconds": seconds,
        "samples": samples,
        "regions": regions,
        "units": units,
        "transcripts": transcripts,
    }


def name_unit(unit: int, pieces: Pieces | None) -> str:
    """Name a unit, or a piece (a merged n-gram of units) by its units."""
    if pieces is None:
        return f"unit {unit}"
    return f"piece of units {' '.join(map(str, pieces.spell(unit)))}"


# ---- the page


def serve(o: Serve) -> dict[str, Any]:
    """Serve the page until the process is interrupted. Returns the models, host and port.

    Raises MissingExtra without Gradio, and InputError for a port that is in use, for conditions
    that cannot be applied, and as `QA` does.
    """
    for condition in o.conditions:
        Distorter().check(complete_condition(condition, 0))
    check_port(o.host, o.port)
    # SIGTERM raises KeyboardInterrupt, so that the folder of uploads is removed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="speechssl-serve-") as folder:
        direct = [os.environ.get("no_proxy"), "127.0.0.1", "localhost", o.host]
        # Gradio reads these when it is imported. It checks that its own server answers, which a
        # proxy could not reach.
        os.environ |= {
            "GRADIO_TEMP_DIR": folder,
            "GRADIO_ANALYTICS_ENABLED": "False",
            "no_proxy": ",".join(filter(None, direct)),
        }
        gradio = import_gradio()
        print(f"loading {', '.join(o.models)}", file=sys.stderr)
        page = build_page({name: load_qa(name, o) for name in o.models}, o)
        # the default fonts would be downloaded
        theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
        try:
            page.launch(
                max_file_size="50mb",
                server_name=o.host,
                server_port=o.port,
                share=False,
                ssr_mode=False,
                run_history=False,
                enable_monitoring=False,
                footer_links=[],
                theme=theme,
                quiet=True,
                prevent_thread_lock=True,
            )
            print(f"http://{o.host}:{o.port} (Ctrl-C ends it)", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
        finally:
            page.close(verbose=False)
    return {"models": list(o.models), "host": o.host, "port": o.port}


def ask(
    qa: QA,
    max_seconds: float,
    passage: str | None,
    question: str | None,
    text: str,
    noise: str,
    snr_db: float,
) -> str:
    """Return HTML with the answers, or with one sentence that says why there are none.

    passage, question: paths of uploads, None where there is none. text: the question in writing,
    which replaces a recording.
    """
    try:
        if passage is None:
            raise InputError("there is no passage; drop a recording, or record one")
        question_input: np.ndarray | str = text.strip()
        if not question_input:
            if question is None:
                raise InputError("there is no question; drop a recording, record one, or write it")
            question_input = read_upload(Path(question), "question", max_seconds)
        samples = read_upload(Path(passage), "passage", max_seconds)
        return render_answers(qa, samples, question_input, noise, snr_db)
    except InputError as error:
        sentence = str(error)[:1].upper() + str(error)[1:]
        return f'<p role="alert" style="color: #d32f2f">{escape(sentence)}</p>'


def build_page(models: Mapping[str, QA], o: Serve) -> Any:
    """Make the page, a gradio.Blocks. models: name -> the systems between which it switches."""
    import gradio

    descriptions = []
    for name, qa in models.items():
        for description in dict.fromkeys(qa.about.values()):
            systems = ", ".join(s for s, each in qa.about.items() if each == description)
            descriptions.append(f"**{name}, {systems}**: {description}")
    rules = (
        f"A passage may last up to {o.max_seconds:g} s. Recordings go to the machine that serves "
        "this page and nowhere else, and are removed after an hour."
    )
    advice = [CONFIDENCE.capitalize() + "."]
    for text in dict.fromkeys(qa.advice for qa in models.values() if qa.advice):
        advice.insert(0, text)
    with gradio.Blocks(
        title="speechssl", analytics_enabled=False, delete_cache=(HOUR // 6, HOUR)
    ) as page:
        gradio.Markdown(f"# Ask a recording\n{' '.join(advice)}\n\n{rules}")
        with gradio.Row():
            recordings = []
            for part in ("Passage", "Question"):
                label = f"{part}: drop a recording, or record it"
                audio = gradio.Audio(label=label, type="filepath", elem_id=part.lower())
                recordings.append(audio)
        note = "Cascades alone can read it. It is asked in the place of a recording."
        text = gradio.Textbox(label="Question in writing", info=note, elem_id="text")
        with gradio.Row():
            names = list(models)
            model = gradio.Dropdown(names, value=names[0], label="Models", elem_id="models")
            noise = gradio.Dropdown(
                [CLEAN, *o.conditions],
                value=CLEAN,
                label="Condition of both recordings",
                elem_id="noise",
            )
            snr = gradio.Slider(-10, 30, value=5, step=1, label="SNR of noise in dB", elem_id="snr")
        button = gradio.Button("Answer", variant="primary", elem_id="answer")
        result = gradio.HTML(elem_id="result")
        about = ["What the systems are made of, and trained on:", *descriptions]
        gradio.Markdown("\n\n".join(about), elem_id="about")
        inputs = [model, *recordings, text, noise, snr]
        button.click(
            lambda name, *values: ask(models[name], o.max_seconds, *values),
            inputs,
            result,
            api_visibility="private",
        )
        # answers are removed when one of the inputs changes
        changes = [component.change for component in inputs]
        gradio.on(changes, lambda: "", None, result, queue=False, api_visibility="private")
    return page.queue(default_concurrency_limit=1, max_size=16)


def check_port(host: str, port: int) -> None:
    """Raise InputError where no server can listen at this address."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}:{port} ({error.strerror}); give another --port or --host"
        ) from error


def import_gradio() -> Any:
    """Import Gradio. Raises MissingExtra where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydub warns of a missing ffmpeg, which is not needed
            import gradio
    except ModuleNotFoundError as error:
        raise MissingExtra("the page", "serve") from error
    return gradio
