"""The noise of evaluations: options that verbs share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.options import SNR_OVER, SnrOver, option

SNRS = "SNRs in dB for conditions that name none"


@dataclass(frozen=True)
class Noisy:
    """Conditions of an evaluation in noise."""

    seen: tuple[str, ...] = option((), "conditions that were used in training, as in `evaluate qa`")
    unseen: tuple[str, ...] = option(
        (), "noise that was not used in training: held-out, dev, kitchen.wav, a NAME of --noise"
    )
    snr: tuple[float, ...] = option((20.0, 10.0, 5.0, 0.0), SNRS)
    snr_over: SnrOver = option("active", SNR_OVER)
    at: float = option(5.0, "SNR in dB for the table clean | seen | unseen")
    noise: tuple[str, ...] = option(
        (), "folders of noise recordings: musan, fsd50k, ...", metavar="NAME=FOLDER"
    )
    voices: tuple[Path, ...] = option(
        (), "recordings of other people, from which babble is mixed", name="babble"
    )
