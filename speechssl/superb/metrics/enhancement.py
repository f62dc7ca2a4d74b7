"""How good an estimate of clean speech is: SI-SDR, here; PESQ and STOI, through their libraries (extra `superb`).

SI-SDR is that of Le Roux and others (arXiv 1811.02508) without removal of the mean, as pb_bss_eval has it, by which s3prl judges.
PESQ is the wide-band one of ITU-T P.862.2 (package `pesq`, a wrapper of the ITU's C code, which is compiled when it is installed);
STOI is that of Taal and others (2011), not extended (package `pystoi`). Everything at 16 kHz.
Letters: N samples, K sources.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from itertools import permutations

import numpy as np

from speechssl.audio import SAMPLE_RATE
from speechssl.errors import MissingExtra

LIMIT = 100.0  # dB, either way: what would be infinite, or hangs on the last bits of the samples
SILENT = -50.0  # dB that an estimate without any sound has: below what noise has that knows nothing of the source
WORST_PESQ = 1.0  # the lower end of its scale: what an estimate has in which no utterance is found
EXTRA = "superb"


def si_sdr(reference: np.ndarray, estimate: np.ndarray) -> float:
    """dB within [-LIMIT, LIMIT]: how much of the estimate is the reference, at any level; SILENT for silence or NaN. Both (N,).

    Raises ValueError for a silent reference or another length.
    """
    reference, estimate = np.asarray(reference, np.float64), np.asarray(estimate, np.float64)
    if reference.shape != estimate.shape or not reference.any():
        raise ValueError(f"a reference {reference.shape} of an estimate {estimate.shape} must be as long and not silent")
    if not np.isfinite(estimate).all() or not estimate.any():
        return SILENT
    projection = (estimate @ reference) / (reference @ reference) * reference
    error = estimate - projection
    with np.errstate(divide="ignore"):
        return float(np.clip(10 * np.log10((projection @ projection) / (error @ error)), -LIMIT, LIMIT))


def si_sdr_improvement(references: np.ndarray, estimates: np.ndarray, mixture: np.ndarray) -> float:
    """dB that the estimates are better than the mixture itself: the mean over the sources, in the order that is best.

    references, estimates: (K, N); mixture: (N,).
    """
    table = np.array([[si_sdr(reference, estimate) for estimate in estimates] for reference in references])
    best = max(np.mean([table[i, j] for i, j in enumerate(order)]) for order in permutations(range(len(estimates))))
    return float(best - np.mean([si_sdr(reference, mixture) for reference in references]))


def check_installed() -> None:
    """Call it before a long run. Raises MissingExtra without the packages that `pesq_wideband` and `stoi_percent` need."""
    for package, measure in (("pesq", "PESQ"), ("pystoi", "STOI")):
        if find_spec(package) is None:
            raise MissingExtra(f"the task se (its measure {measure})", EXTRA)


def pesq_wideband(reference: np.ndarray, estimate: np.ndarray) -> float:
    """MOS-LQO, 1.0 to 4.64. Both (N,). WORST_PESQ where no utterance is found (silence) or N is below a quarter of a second.

    Raises MissingExtra without the package `pesq`.
    """
    try:
        from pesq import BufferTooShortError, NoUtterancesError, pesq
    except ImportError:
        raise MissingExtra("PESQ", EXTRA) from None
    if not np.isfinite(estimate).all():
        return WORST_PESQ
    try:
        return float(pesq(SAMPLE_RATE, reference, estimate, "wb"))
    except (BufferTooShortError, NoUtterancesError, ValueError):  # the last where silence makes it NaN
        return WORST_PESQ


def stoi_percent(reference: np.ndarray, estimate: np.ndarray) -> float:
    """Percent. Both (N,). 0 (0.001) where less than 0.4 s of the reference is speech, which is too little for it.

    Raises MissingExtra without the package `pystoi`.
    """
    try:
        from pystoi import stoi
    except ImportError:
        raise MissingExtra("STOI", EXTRA) from None
    if not np.isfinite(estimate).all():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of too little speech
        return 100 * float(stoi(reference, estimate, SAMPLE_RATE, extended=False))
