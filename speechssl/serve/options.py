"""These are the options of `speechssl serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from speechssl.cascade.options import ReaderOptions
from speechssl.options import DEVICE, Amount, Range, group, option


@dataclass(frozen=True, kw_only=True)
class Serve:
    """serve a page on this machine that answers questions from a spoken passage

    Drop or record a passage and a question, or write the question; the page shows waveform, units,
    recognised words and the answers of all systems, and plays them. --conditions stand in a
    drop-down: those of `evaluate qa`, noise without its SNR, which a slider gives. Uploads are
    removed after an hour; nothing leaves this machine. Needs Gradio: pip install 'gradio>=6'

      speechssl serve
      speechssl serve --models people-en exp/mine --systems dual cascade-ctc \\
        --conditions pink mynoise.wav reverb@0.6
    """

    models: tuple[str, ...] = option(
        ("people-en",), "shipped sets or model folders, between which the page switches", least=1
    )
    systems: tuple[str, ...] | None = option(
        None, "systems of all models; default and names as in `answer`", least=1
    )
    recogniser: str | None = option(
        None,
        "recogniser of Hugging Face whose cascade comes first (openai/whisper-base), in the place "
        "of the CTC head of the models",
    )
    reading: ReaderOptions = group(ReaderOptions(), "reader of words", without=("shift",))
    language: str = option(
        "en",
        "language of the speech, en or zh: for Whisper, and for the rules by which texts are read",
    )
    conditions: tuple[str, ...] = option(
        ("pink", "gaussian", "held-out", "reverb"),
        "conditions that can be chosen, beside clean",
        least=1,
    )
    host: str = option(
        "127.0.0.1",
        "address to listen at; 0.0.0.0 lets everyone in who reaches this machine, without a "
        "password or encryption",
    )
    port: Annotated[int, Range(1, 65535)] = option(7860, "port to listen at")
    max_seconds: Amount = option(300.0, "longest passage in seconds")
    device: str = option("auto", DEVICE)
