"""`speechssl serve`: a page on this machine on which recordings are asked questions, in noise too,
and answers are played.

The page runs in one process and the models in another (`Answerer`), which is ended where an answer
takes too long. An upload is read into memory and its file removed; what is in memory goes when the
page is closed.
"""

# Annotations are not postponed: by them Gradio finds the handlers that want a Request.

import ipaddress
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from speechssl.audio import LONGEST_QUESTION, SAMPLE_RATE, length, read_recording
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.data import Transcript
from speechssl.errors import InputError, MissingExtra, first_line
from speechssl.pipelines import QA, Detail
from speechssl.report.figures import PALETTE
from speechssl.report.listening import (
    WIDTH,
    data_uri,
    encode_audio,
    envelope,
    outline,
    region,
    ticks,
)
from speechssl.serve.options import Limits, Serve
from speechssl.timing import RunLength
from speechssl.units.picture import unit_blocks

CLEAN = "clean"
PARTS = ("passage", "question")
MEGABYTE = 2**20  # as Gradio counts where it refuses a file that is larger


# ---- recordings


def read_upload(path: Path, part: str, limits: Limits) -> np.ndarray:
    """Samples (N,) float32 at 16 kHz of a recording. part: passage or question.

    Raises InputError for what is no audio, no speech, too large or too long; the message has the
    name of the file, not its folder.
    """
    most = limits.seconds if part == "passage" else min(limits.seconds, LONGEST_QUESTION)
    try:
        if (size := path.stat().st_size / MEGABYTE) > limits.megabytes:
            raise InputError(
                f"{path} has {size:.1f} MB, and at most {limits.megabytes:g} MB are "
                "read; give a part of it"
            )
        if (seconds := length(path)) > most:
            raise InputError(
                f"{path} lasts {seconds:.0f} s, and the {part} may last {most:g} s; "
                "give a part of it"
            )
        return read_recording(path)
    except InputError as error:
        sentence = str(error).removeprefix("the audio file ")
        raise InputError(sentence.replace(str(path), f"the {part} ({path.name})")) from error


def at_snr(noise: str, snr_db: float) -> Condition:
    """A condition as `evaluate qa` takes it, of one written without its SNR in dB; one without
    noise, or with an SNR, as it is.

    Raises InputError as `parse_condition` does.
    """
    complete = "@" in noise or noise.startswith("rir=") or noise in (CLEAN, "reverb", "r")
    return parse_condition(noise if complete else f"{noise}@{snr_db:g}")


# ---- answers as HTML


def answered(
    qa: QA, passage: np.ndarray, question: np.ndarray | str, noise: str = CLEAN, snr_db: float = 0.0
) -> str:
    """Return HTML of the answers of all systems, of passage and question as the systems got them,
    with units and words.

    passage, question: (N,) float32 at 16 kHz; a question may be a text. Both recordings get the
    noise, as in `evaluate qa`.
    Raises InputError as `QA.answer` and `at_snr` do.
    """
    condition, distorter = at_snr(noise, snr_db), Distorter()
    recordings = {"passage": distorter.apply(passage, condition, "passage")}
    if not isinstance(question, str):
        question = recordings["question"] = distorter.apply(question, condition, "question")
    details = qa.details(recordings["passage"], [question])[0]
    colours = {system.name: PALETTE[i % len(PALETTE)][0] for i, system in enumerate(qa.systems)}
    rows = []
    for name, colour in colours.items():
        answer = details[name].answer if name in details else None
        clip = None
        if answer is not None and answer.end > answer.start:
            ends = slice(round(answer.start * SAMPLE_RATE), round(answer.end * SAMPLE_RATE))
            clip = recordings["passage"][ends]
        rows.append((name, colour, answer, clip))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("speechssl.serve", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"envelope": envelope, "outline": outline, "ticks": ticks}
    environment.filters["audio"] = lambda samples: data_uri(encode_audio(samples))
    shown = [show_recording(qa, part, x, details, colours) for part, x in recordings.items()]
    return environment.get_template("page.html").render(
        rows=rows, shown=shown, condition=condition.label, width=WIDTH
    )


def show_recording(
    qa: QA,
    part: str,
    samples: np.ndarray,
    details: Mapping[str, Detail],
    colours: Mapping[str, str],
) -> dict[str, Any]:
    """Return a recording as the systems got it. part: passage or question; samples: (N,) of it;
    details, colours: by system.

    regions: system, colour, where the answer is; units: system, how many, blocks (x, width, colour,
    what); transcripts: system, what stands between words, words with whether they are in the
    answer.
    """
    seconds = len(samples) / SAMPLE_RATE
    shown: dict[str, Any] = {"part": part, "seconds": seconds, "samples": samples}
    regions, units, transcripts = [], [], []
    for system in qa.systems:
        if system.name not in details:
            continue
        name, detail = system.name, details[system.name]
        start, end = np.inf, -np.inf  # no word lies in it
        if part == "passage" and detail.answer.text != "":  # "": a reader of words found no answer
            start, end = detail.answer.start, detail.answer.end
            regions.append((name, colours[name], region(start, end, seconds)))
        read: Any = getattr(detail, part)
        if isinstance(read, RunLength):
            blocks = []
            for unit, a, b, colour in unit_blocks(read, system.extractor.grid):  # type: ignore[attr-defined]
                x, width = round(a * WIDTH / seconds, 2), round((b - a) * WIDTH / seconds, 2)
                blocks.append((x, width, colour, f"unit {unit}, {a:.2f} to {b:.2f} s"))
            units.append((name, f"{len(read)}, {len(read) / seconds:.1f} a second", blocks))
        elif isinstance(read, Transcript):
            words = [(word.text, start <= word.start and word.end <= end) for word in read.words]
            transcripts.append((name, read.separator, words))
    return shown | {"regions": regions, "units": units, "transcripts": transcripts}


# ---- the process with the models


class Answerer:
    """A process that holds the models and answers one question after another; another takes its
    place when an answer takes too long."""

    def __init__(self, o: Serve) -> None:
        """Raises InputError as `QA` does."""
        self.o, self.timeout = o, o.limits.timeout
        self.lock = threading.Lock()
        self.pool: Any = None
        self.about: dict[str, dict[str, str]] = {}
        self._start()

    def ask(self, *question: Any) -> str:
        """Return `answered` by the models whose name comes first. Raises InputError as it does, and
        where it takes too long or breaks."""
        with self.lock:
            if self.pool is None:
                self._start()
            try:
                return self.pool.apply_async(_answer, (self.o, *question)).get(self.timeout)
            except InputError:
                raise
            except multiprocessing.TimeoutError:
                self.close()
                raise InputError(
                    f"the answer took longer than {self.timeout:g} s; give a shorter passage, or "
                    "raise --timeout"
                ) from None
            except Exception as error:
                traceback.print_exc()
                raise InputError(
                    f"no answer could be made ({first_line(error)}); the terminal of the server "
                    "has more"
                ) from error

    def close(self) -> None:
        if self.pool is not None:
            self.pool.terminate()
            self.pool.join()
            self.pool = None

    def _start(self) -> None:
        """Start the process and load the models."""
        context = multiprocessing.get_context("spawn")  # torch's threads do not outlive a fork
        # Ctrl-C is for the page's process, which ends this one
        self.pool = context.Pool(1, signal.signal, (signal.SIGINT, signal.SIG_IGN))
        try:
            self.about = self.pool.apply(_describe, (self.o,))
        except InputError:
            self.close()
            raise


@cache
def _load(o: Serve) -> dict[str, QA]:
    """Load the models once, in the process that answers."""
    reader, threshold = o.reading.reader, o.reading.null_threshold
    return {
        name: QA(name, o.systems, reader, o.language, threshold, o.recogniser) for name in o.models
    }


def _describe(o: Serve) -> dict[str, dict[str, str]]:
    return {name: qa.about for name, qa in _load(o).items()}


def _answer(o: Serve, name: str, *question: Any) -> str:
    return answered(_load(o)[name], *question)


# ---- the page


def serve(o: Serve) -> dict[str, Any]:
    """Serve the page until the process is interrupted, and return what was served where.

    Raises MissingExtra without Gradio, InputError for a port that cannot be had, for conditions and
    as `QA` does.
    """
    for condition in o.conditions:
        Distorter().check(at_snr(condition, 0))
    check_port(o.host, o.port)
    try:
        local = ipaddress.ip_address(o.host).is_loopback
    except ValueError:
        local = o.host == "localhost"
    if not local:
        print(
            f"warning: at {o.host} everyone who reaches this machine can use the page, without a "
            "password or encryption; "
            "browsers record from microphones at 127.0.0.1 alone",
            file=sys.stderr,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the folder would stay
    with tempfile.TemporaryDirectory(prefix="speechssl-serve-") as folder:
        direct = [
            os.environ.get("no_proxy") or os.environ.get("NO_PROXY"),
            "127.0.0.1",
            "localhost",
            o.host,
        ]
        # Gradio reads them when it is imported, and asks its own server whether it is there
        os.environ |= {
            "GRADIO_TEMP_DIR": folder,
            "GRADIO_ANALYTICS_ENABLED": "False",
            "no_proxy": ",".join(filter(None, direct)),
        }
        gradio = import_gradio()
        answerer = Answerer(o)
        page = page_of(answerer, o.conditions, o.limits, Path(folder))
        try:
            page.launch(
                server_name=o.host,
                server_port=o.port,
                share=False,
                ssr_mode=False,
                run_history=False,
                enable_monitoring=False,
                footer_links=[],
                max_file_size=int(o.limits.megabytes * MEGABYTE),
                # others are fetched
                theme=gradio.themes.Default(
                    font=["system-ui", "sans-serif"], font_mono=["monospace"]
                ),
                quiet=True,
                prevent_thread_lock=True,
            )
            print(f"http://{o.host}:{o.port} (Ctrl-C ends it)", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
        finally:
            page.close(verbose=False)
            answerer.close()
    return {"models": list(o.models), "host": o.host, "port": o.port}


def page_of(answerer: Answerer, conditions: Sequence[str], limits: Limits, folder: Path) -> Any:
    """The page as gradio.Blocks. folder: of uploads."""
    import gradio

    uploads: dict[str, dict[str, np.ndarray]] = {}  # of each open page: passage and question
    files: dict[str, list[Path]] = {}  # of each open page: what was read, to be removed

    # where it arose, and to stay: Gradio's own message goes, and not every one comes
    def refusal(error: InputError) -> str:
        return (
            '<p role="alert" style="color: '
            f'#d32f2f">{escape(str(error)[:1].upper() + str(error)[1:])}</p>'
        )

    def keep(part: str) -> Callable[..., Any]:
        def read(path: str | None, request: gradio.Request) -> tuple[None, str]:
            if path is None:
                return None, ""
            files.setdefault(request.session_hash, []).append(Path(path))
            parts = uploads.setdefault(request.session_hash, {})
            parts.pop(part, None)
            try:
                samples = parts[part] = read_upload(Path(path), part, limits)
            except InputError as error:
                return None, refusal(error)
            heading = f"<b>{escape(Path(path).name)}</b>, {len(samples) / SAMPLE_RATE:.1f} s"
            return None, (
                f'{heading}<audio controls style="width: 100%" '
                f'src="{data_uri(encode_audio(samples))}"></audio>'
            )

        return read

    def ask(text: str, models: str, noise: str, snr_db: float, request: gradio.Request) -> str:
        parts = uploads.get(request.session_hash, {})
        question = text.strip() or parts.get("question")
        try:
            if "passage" not in parts:
                raise InputError("there is no passage; drop a recording, or record one")
            if question is None:
                raise InputError("there is no question; drop a recording, record one, or write it")
            answers = answerer.ask(models, parts["passage"], question, noise, snr_db)
        except InputError as error:
            return refusal(error)
        return f"<p>Answers of {escape(models)}</p>{answers}"

    def remove(request: gradio.Request) -> None:
        for path in files.pop(request.session_hash, []):
            if folder.resolve() in path.resolve().parents:
                shutil.rmtree(path.parent)  # a folder of its own

    def forget(request: gradio.Request) -> None:
        uploads.pop(request.session_hash, None)
        remove(request)

    made_of = []
    for name, details in answerer.about.items():
        for description in dict.fromkeys(details.values()):
            alike = ", ".join(system for system, each in details.items() if each == description)
            made_of.append(f"**{name}, {alike}**: {description}")
    rules = (
        f"A passage may last up to {limits.seconds:g} s and be as large as {limits.megabytes:g} "
        "MB. Nothing is kept: recordings go "
        "to the machine that serves this page and nowhere else, files are removed when they have "
        "been read, and closing the page "
        "removes the rest."
    )
    with gradio.Blocks(title="speechssl", analytics_enabled=False, delete_cache=(60, 60)) as page:
        gradio.Markdown(f"# Ask a recording\n{rules}")
        events: list[Any] = []
        with gradio.Row():
            for part in PARTS:
                with gradio.Column():
                    label = f"{part.capitalize()}: drop a recording, or record it"
                    audio = gradio.Audio(
                        label=label, type="filepath", editable=False, elem_id=part, buttons=[]
                    )
                    card = gradio.HTML(elem_id=f"{part}-kept")
                    event = gradio.on(
                        [audio.upload, audio.stop_recording],
                        keep(part),
                        audio,
                        [audio, card],
                        api_visibility="private",
                    )
                    events += [audio.upload, audio.stop_recording]
                    # no sooner: until it is cleared the browser asks for the file
                    event.then(remove, api_visibility="private")
        note = "Cascades alone can read it. It is asked in the place of a recording."
        text = gradio.Textbox(label="Question in writing", info=note, elem_id="text")
        with gradio.Row():
            names = list(answerer.about)
            chosen = gradio.Dropdown(names, value=names[0], label="Models", elem_id="models")
            noise = gradio.Dropdown(
                [CLEAN, *conditions],
                value=CLEAN,
                label=("Condition of both recordings"),
                elem_id="noise",
            )
            snr = gradio.Slider(-10, 30, value=5, step=1, label="SNR of noise in dB", elem_id="snr")
        button = gradio.Button("Answer", variant="primary", elem_id="answer")
        result = gradio.HTML(elem_id="result")
        about = ["What the systems are made of, and trained on:", *made_of]
        gradio.Markdown("\n\n".join(about), elem_id="about")
        button.click(ask, [text, chosen, noise, snr], result, api_visibility="private")
        # answers are of what was given before: they go when that changes
        changes = [text.change, chosen.input, noise.input, snr.input, *events]
        gradio.on(
            changes,
            lambda: "",
            None,
            result,
            queue=False,
            show_progress="hidden",
            api_visibility="private",
        )
        page.unload(forget)
    return page.queue(default_concurrency_limit=1, max_size=16)


def check_port(host: str, port: int) -> None:
    """Raises InputError where nothing can listen there."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}:{port} ({error.strerror}); give another --port or --host"
        ) from error


def import_gradio() -> Any:
    """Raises MissingExtra where Gradio is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydub misses ffmpeg, which nothing here needs
            import gradio
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise MissingExtra("the page", "serve") from None
    return gradio
