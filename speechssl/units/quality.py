"""How good are units? Alike for different voices, and alike for one phone.

The *same-text distance* is the edit distance between the run-length units of one sentence spoken by two voices, divided by the
longer length; its *AUC* says how well it tells the same sentence from another. It foretells how well DUAL can learn from the units.
Phone purity and PNMI (phone-normalised mutual information) as in HuBERT, arXiv 2106.07447, section V-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Levenshtein

from speechssl.timing import FrameGrid


@dataclass(frozen=True)
class SameText:
    """distance: mean over pairs, 0 (alike) to 1. auc: 0.5 (blind) to 1. length: mean run-length units a sentence."""

    distance: float
    auc: float
    length: float
    pairs: int


def same_text(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> SameText:
    """first[i] and second[i]: run-length units (U,) of sentence i by two voices; other sentences are the negatives.

    Raises ValueError for fewer than two sentences.
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError("need two equally long lists of at least two sentences")
    distances = np.array([[normalised_distance(a, b) for b in second] for a in first])
    same = np.diag(distances)
    other = distances[~np.eye(len(first), dtype=bool)]
    lengths = [len(x) for x in [*first, *second]]
    return SameText(float(same.mean()), _auc(same, other), float(np.mean(lengths)), len(first))


def normalised_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Levenshtein distance divided by the longer length; 0 for two empty sequences."""
    return float(Levenshtein.normalized_distance(a.tolist(), b.tolist()))


def _auc(low: np.ndarray, high: np.ndarray) -> float:
    """Probability that a draw of `low` is below a draw of `high`; ties count half."""
    ordered = np.sort(high)
    above = len(high) - np.searchsorted(ordered, low, side="right")
    ties = np.searchsorted(ordered, low, side="right") - np.searchsorted(ordered, low, side="left")
    return float((above + ties / 2).mean() / len(high))


@dataclass(frozen=True)
class Purity:
    """phone: share of frames whose unit's commonest phone is theirs. cluster: the reverse. pnmi: I(phone; unit) / H(phone)."""

    phone: float
    cluster: float
    pnmi: float


def purity(units: Sequence[np.ndarray], phones: Sequence[np.ndarray]) -> Purity:
    """units[i], phones[i]: (T,) int of utterance i. Raises ValueError when there are no frames."""
    flat_units = np.unique(np.concatenate(units), return_inverse=True)[1]
    flat_phones = np.unique(np.concatenate(phones), return_inverse=True)[1]
    if not len(flat_units):
        raise ValueError("there are no frames")
    joint = np.zeros((flat_phones.max() + 1, flat_units.max() + 1))
    np.add.at(joint, (flat_phones, flat_units), 1)
    joint /= joint.sum()
    by_phone, by_unit = joint.sum(1), joint.sum(0)
    seen = joint > 0
    information = (joint[seen] * np.log(joint[seen] / np.outer(by_phone, by_unit)[seen])).sum()
    entropy = -(by_phone[by_phone > 0] * np.log(by_phone[by_phone > 0])).sum()
    pnmi = float(information / entropy) if entropy > 0 else 1.0
    return Purity(float(joint.max(0).sum()), float(joint.max(1).sum()), pnmi)


def phone_frames(phones: Sequence[tuple[str, float, float]], grid: FrameGrid, frames: int, names: dict[str, int]) -> np.ndarray:
    """(T,) the phone in the middle of every frame. phones: (name, start, end) in seconds; `names` grows as phones appear."""
    middles = (np.arange(frames) * grid.hop + grid.offset + grid.hop // 2) / grid.sample_rate
    starts = np.array([start for _, start, _ in phones])
    ids = np.array([names.setdefault(name, len(names)) for name, _, _ in phones])
    return ids[np.clip(np.searchsorted(starts, middles, side="right") - 1, 0, len(ids) - 1)]
