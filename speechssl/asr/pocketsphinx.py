"""PocketSphinx with its bundled US-English model: a recogniser that needs no download and no GPU, and makes many errors.

It serves as the bad end of a cascade and as a check that everything above runs with an engine that is not ours. Needs the
package `pocketsphinx` (`pip install "speechssl[pocketsphinx]"`), whose wheel holds the model.
"""

from __future__ import annotations

import re
import threading
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from speechssl.asr.pieces import transcribe_pieces
from speechssl.asr.protocol import TimedWord, Transcript, check_samples
from speechssl.errors import InputError, MissingExtra

SAMPLE_RATE = 16_000  # Hz, of the bundled model
LONGEST = 20.0  # seconds decoded at once: time and memory grow with an utterance's lattice
_ALTERNATE = re.compile(r"\(\d+\)$")  # "the(2)" is the second pronunciation of "the"
_FILLER = re.compile(r"^(<.*>|\[.*\]|\+\+.*\+\+)$")  # <s>, <sil>, [NOISE], ++UM++


@dataclass(frozen=True)
class DecoderSettings:
    """Options of the decoder, under PocketSphinx's own names. The defaults leave out what costs most and helps least."""

    fwdflat: bool = False  # second pass over the words the first pass found
    bestpath: bool = True  # third pass, over the word lattice; the confidences come from it
    maxhmmpf: int = 3000  # HMMs active in a frame; PocketSphinx's own default is 30,000
    topn: int = 4  # Gaussians looked at in a mixture
    ds: int = 1  # acoustic scores are computed in every ds-th frame
    beam: float = 1e-48
    pbeam: float = 1e-48
    wbeam: float = 7e-29


class PocketSphinxRecogniser:
    """English only. Raises MissingExtra without the package, InputError for settings that the decoder refuses."""

    def __init__(self, settings: DecoderSettings = DecoderSettings(), name: str = "pocketsphinx") -> None:
        self.name, self.settings = name, settings
        self._own = threading.local()
        self._frame_rate = int(self._thread_decoder().config["frate"])

    def transcribe(self, samples: np.ndarray) -> Transcript:
        """samples: (N,) float32 at 16 kHz. The words depend on these samples alone, not on what was decoded before."""
        return Transcript(transcribe_pieces(check_samples(samples), LONGEST, SAMPLE_RATE, self._decode))

    def _thread_decoder(self) -> Any:
        """This thread's decoder: it holds one utterance at a time. Noise comes first: the first utterance is unlike all others."""
        if not hasattr(self._own, "decoder"):
            decoder = _decoder(self.settings)
            _utter(decoder, np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE))
            self._own.decoder = decoder
        return self._own.decoder

    def _decode(self, samples: np.ndarray) -> list[TimedWord]:
        decoder = self._thread_decoder()
        _utter(decoder, samples)
        if decoder.hyp() is None:
            return []
        return [self._word(segment) for segment in decoder.seg() if not _FILLER.match(segment.word)]

    def _word(self, segment: Any) -> TimedWord:
        start, end = segment.start_frame / self._frame_rate, (segment.end_frame + 1) / self._frame_rate
        return TimedWord(_ALTERNATE.sub("", segment.word), start, end, min(float(segment.prob), 1.0))


def _utter(decoder: Any, samples: np.ndarray) -> None:
    with warnings.catch_warnings():  # it is called unnecessary, but without it the noise tracker remembers the last utterance
        warnings.simplefilter("ignore", DeprecationWarning)
        decoder.start_stream()
    decoder.start_utt()
    decoder.process_raw(_pcm(samples), full_utt=True)
    decoder.end_utt()


def _decoder(settings: DecoderSettings) -> Any:
    try:
        import pocketsphinx
    except ImportError as error:
        raise MissingExtra("recognition with PocketSphinx", "pocketsphinx") from error
    try:
        return pocketsphinx.Decoder(samprate=SAMPLE_RATE, loglevel="FATAL", **asdict(settings))
    except (RuntimeError, ValueError, KeyError) as error:
        raise InputError(f"PocketSphinx does not accept {settings} ({error}); reinstall it or use other settings") from error


def _pcm(samples: np.ndarray) -> bytes:
    """Signed 16-bit, clipped at full scale."""
    return (np.clip(samples, -1, 1) * 32767).astype(np.int16).tobytes()
