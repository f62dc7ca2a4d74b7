"""These functions measure units: they take arrays and return numbers.

`measure_usage` and `measure_bit_rate` need units alone; `purity` needs phones; `compare_texts`,
`abx` and `probe_speakers` need texts and speakers; `unit_edit_distance` compares clean with
distorted speech; `oracle_ff1` needs answers with times. Distances are edit distances of run-length
units over the longer length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein
from scipy.stats import entropy, mannwhitneyu

from speechssl.data.records import Corpus
from speechssl.metrics import frame_f1
from speechssl.timing import FrameGrid, RunLength, find_interval, find_units

# The most pairs of recordings that are compared: as many with the same text, and as many with
# different texts.
PAIRS = 20_000
TRIPLES = 5_000  # triples of recordings that ABX compares


def measure_usage(units: Sequence[RunLength], size: int) -> dict[str, Any]:
    """Measure how evenly the frames use the units of a codebook of `size`: the entropy in bits, its
    share of log2(size), which equally frequent units would have, and how many units never occur."""
    counts = np.zeros(size)  # frames of every unit
    for runs in units:
        counts += np.bincount(runs.units, runs.lengths, minlength=size)
    bits = float(entropy(counts, base=2))
    return {
        "usage_entropy_bits": bits,
        "usage_entropy_share": bits / math.log2(size) if size > 1 else 1.0,
        "unused_units": int((counts == 0).sum()),
    }


def measure_bit_rate(units: Sequence[RunLength]) -> dict[str, float]:
    """Return symbols a second times their entropy (ZeroSpeech 2019, arXiv 1904.11469): for the
    run-length units alone, and for units with their lengths, which together give all frames."""
    runs = [np.stack([u.units, u.lengths]) for u in units]  # (2, number of runs) each
    all_runs = np.concatenate([np.zeros((2, 0), np.int64), *runs], axis=1)
    rate = all_runs.shape[1] / sum(u.seconds or 0.0 for u in units)
    _, unit_counts = np.unique(all_runs[0], return_counts=True)
    _, pair_counts = np.unique(all_runs, axis=1, return_counts=True)
    return {
        "units_a_second": rate,
        "bits_a_second": rate * float(entropy(unit_counts, base=2)),
        "bits_a_second_timed": rate * float(entropy(pair_counts, base=2)),
    }


def purity(units: Sequence[np.ndarray], phones: Sequence[np.ndarray]) -> dict[str, float]:
    """Compute phone purity, cluster purity and PNMI (arXiv 2106.07447, section V-C).

    Phone purity is the share of frames whose phone is the commonest one of their unit, cluster
    purity the share of frames whose unit is the commonest one of their phone. PNMI, the
    phone-normalised mutual information, is I(phone; unit) / H(phone), which scikit-learn calls
    homogeneity; it is NaN where there is a single phone. units[i], phones[i]: (T,) int of
    utterance i.
    """
    from sklearn.metrics.cluster import contingency_matrix, homogeneity_score

    flat_units, flat_phones = np.concatenate(units), np.concatenate(phones)
    joint = contingency_matrix(flat_phones, flat_units) / len(flat_units)
    pnmi = float(homogeneity_score(flat_phones, flat_units)) if len(joint) > 1 else math.nan
    return {
        "phone_purity": float(joint.max(0).sum()),
        "cluster_purity": float(joint.max(1).sum()),
        "pnmi": pnmi,
    }


def compare_texts(
    units: Sequence[np.ndarray],
    texts: Sequence[str],
    speakers: Sequence[str],
    groups: Sequence[str] = (),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Compare recordings of one text by several people or synthesisers, with a row for each pair of
    groups of speakers.

    units[i]: run-length units (U,) of recording i; texts, speakers: its text and its speaker;
    groups: what the speaker belongs to, such as a synthesiser (none: all are one group). The
    distance, from 0 (alike) to 1, is the number of edits over the longer length; it predicts how
    well DUAL can learn from the units.

    A row has `groups`, `same_text_distance`, `other_text_distance`, `same_text_auc` (the chance
    that a pair with the same text is nearer than a pair with different texts), the number of
    `pairs` with the same text, and the sampled `distances`, (same, other). It is computed from all
    pairs of recordings by different speakers, or from PAIRS of them, sampled by the seed. Groups
    that share no text have no row. Raises ValueError where no two speakers say one text in common
    and another text as well.
    """
    rng = np.random.default_rng(seed)
    text_of, speaker_of = np.array(texts), np.array(speakers)
    group_of = np.array(groups or [""] * len(texts))
    left, right = np.triu_indices(len(units), 1)
    differ = speaker_of[left] != speaker_of[right]
    left, right = left[differ], right[differ]
    rows = []
    for first, second in combinations_with_replacement(sorted(set(group_of)), 2):
        forward = (group_of[left] == first) & (group_of[right] == second)
        backward = (group_of[left] == second) & (group_of[right] == first)
        a, b = left[forward | backward], right[forward | backward]
        is_same = text_of[a] == text_of[b]
        if is_same.all() or not is_same.any():
            continue
        same = _sample_distances(units, a[is_same], b[is_same], rng)
        other = _sample_distances(units, a[~is_same], b[~is_same], rng)
        farther = mannwhitneyu(other, same).statistic  # pairs of distances; ties count half
        rows.append(
            {
                "groups": first if first == second else f"{first} - {second}",
                "same_text_distance": float(same.mean()),
                "other_text_distance": float(other.mean()),
                "same_text_auc": float(farther / len(same) / len(other)),
                "pairs": int(is_same.sum()),
                "distances": (same, other),
            }
        )
    if not rows:
        raise ValueError("no text is spoken by two speakers, who say another text as well")
    return rows


def _sample_distances(
    units: Sequence[np.ndarray], a: np.ndarray, b: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the distances of at most PAIRS of the pairs of recordings (a[i], b[i])."""
    places = rng.choice(len(a), min(len(a), PAIRS), replace=False)
    return np.array([measure_distance(units[a[k]], units[b[k]]) for k in places])


def abx(
    units: Sequence[np.ndarray], texts: Sequence[str], speakers: Sequence[str], seed: int = 0
) -> dict[str, float]:
    """Measure the ABX error of words: how often X is nearer to B, which has another text, than to
    A, which has the same text; ties count half.

    within: A, B and X are by one speaker; across: A and B are by one speaker, X by another. This is
    the measure of the ZeroSpeech challenge (arXiv 1904.11469), which is for phones, applied to
    whole recordings: by the normalised edit distance of their units, on TRIPLES triples that are
    sampled by the seed. NaN where no triple exists. (fastabx is for phones by features, and needs
    Python 3.12.)
    """
    rng = np.random.default_rng(seed)
    recordings: dict[tuple[str, str], list[int]] = {}  # by speaker and text
    for i, key in enumerate(zip(speakers, texts, strict=True)):
        recordings.setdefault(key, []).append(i)
    texts_of: dict[str, list[str]] = {}  # by speaker
    for speaker, text in recordings:
        texts_of.setdefault(speaker, []).append(text)
    speakers_of_several = sorted(name for name in texts_of if len(texts_of[name]) > 1)
    distance = cache(lambda i, j: measure_distance(units[i], units[j]))

    def choose(values: Sequence[Any]) -> Any:  # rng.choice would first copy them to an array
        return values[int(rng.integers(len(values)))]

    errors: dict[str, list[float]] = {"abx_within": [], "abx_across": []}
    for name, errors_of_trials in errors.items():
        for _ in range(TRIPLES if speakers_of_several else 0):
            speaker = choose(speakers_of_several)
            first, second = rng.choice(len(texts_of[speaker]), 2, replace=False)
            text, other_text = texts_of[speaker][first], texts_of[speaker][second]
            a = choose(recordings[speaker, text])
            if name == "abx_within":
                candidates = [i for i in recordings[speaker, text] if i != a]
            else:
                others = [p for p in sorted(texts_of) if p != speaker and (p, text) in recordings]
                candidates = recordings[choose(others), text] if others else []
            if candidates:
                x = choose(candidates)
                b = choose(recordings[speaker, other_text])
                ax, bx = distance(a, x), distance(b, x)
                errors_of_trials.append(float(ax > bx) + 0.5 * float(ax == bx))
    rates = {}
    for name, errors_of_trials in errors.items():
        rates[name] = float(np.mean(errors_of_trials)) if errors_of_trials else math.nan
    return rates


def probe_speakers(
    units: Sequence[RunLength], speakers: Sequence[str], size: int, seed: int = 0
) -> dict[str, float]:
    """Measure how well a linear probe finds the speaker from the units: its accuracy, beside the
    share of the commonest speaker.

    The probe sees the square root of every unit's share of the frames (K,). Its accuracy is that of
    five-fold cross-validation over the speakers with five recordings or more. NaN where there are
    fewer than two such speakers.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    counts = Counter(speakers)
    chosen = [i for i, speaker in enumerate(speakers) if counts[speaker] >= 5]
    labels = [speakers[i] for i in chosen]
    if len(set(labels)) < 2:
        return {"speaker_accuracy": math.nan, "speaker_chance": math.nan}
    shares = []
    for i in chosen:
        unit_frames = np.bincount(units[i].units, units[i].lengths, minlength=size)
        shares.append(unit_frames / units[i].frames)
    probe = LogisticRegression(C=100.0, max_iter=1000)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    accuracies = cross_val_score(probe, np.sqrt(np.array(shares)), labels, cv=folds)
    return {
        "speaker_accuracy": float(accuracies.mean()),
        "speaker_chance": max(Counter(labels).values()) / len(labels),
    }


def unit_edit_distance(clean: Sequence[RunLength], distorted: Sequence[RunLength]) -> float:
    """Return the UED, after Gat et al. (arXiv 2209.15483): the mean over recordings of the edit
    distance between the run-length units of the clean and of the distorted recording.

    Here it is divided by the longer length, as every distance in this file. Lengths may differ
    (time-stretch).
    """
    pairs = zip(clean, distorted, strict=True)
    return float(np.mean([measure_distance(a.units, b.units) for a, b in pairs]))


def measure_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Levenshtein distance divided by the longer length; 0 for two empty sequences."""
    return float(Levenshtein.normalized_distance(a.tolist(), b.tolist()))


def oracle_ff1(corpus: Corpus, units: Mapping[str, RunLength], grid: FrameGrid) -> float:
    """Compute the FF1 (0 to 1) of the annotated answers when their times are rounded to units: the
    upper bound for readers of these units. NaN where no answer has times."""
    scores = []
    for question in corpus.answerable:
        times = [(a.start, a.end) for a in question.answers]
        gold = [(start, end) for start, end in times if start is not None and end is not None]
        if not gold or question.passage not in units:
            continue
        passage = units[question.passage]
        rounded = [find_interval(grid, passage, *find_units(grid, passage, *x)) for x in gold]
        scores.append(max(frame_f1(interval, gold) for interval in rounded))
    return float(np.mean(scores)) if scores else math.nan
