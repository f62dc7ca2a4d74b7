"""Measures of units: arrays in, numbers out.

`usage` and `bit_rate` need units alone; `purity` needs phones; `same_text`, `abx` and
`speaker_probe` need texts and speakers; `unit_edit_distance` compares clean with distorted
speech; `oracle_ff1` needs answers with times. Distances are edit distances of run-length
units over the longer length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein
from scipy.stats import entropy, mannwhitneyu

from speechssl.data.records import Corpus
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval

PAIRS = 20_000  # of recordings that are compared, of the same text and of other texts


def usage(units: Sequence[RunLength], size: int) -> dict[str, Any]:
    """Measure how evenly the units of a codebook of `size` occur, by frames: the entropy in bits,
    its share of log2 K, which all units equally often would have, and how many never occur."""
    counts = sum((np.bincount(u.units, u.lengths, minlength=size) for u in units), np.zeros(size))
    bits = float(entropy(counts, base=2))
    return {
        "usage_entropy_bits": bits,
        "usage_entropy_share": bits / math.log2(size) if size > 1 else 1.0,
        "unused_units": int((counts == 0).sum()),
    }


def bit_rate(units: Sequence[RunLength], seconds: float) -> dict[str, float]:
    """Return symbols a second times their entropy (ZeroSpeech 2019, arXiv 1904.11469), of
    run-length units by themselves, and of units with their lengths, from which all frames follow.

    seconds: of all recordings together.
    """
    runs = [np.stack([u.units, u.lengths]) for u in units]
    flat = np.concatenate([np.zeros((2, 0), np.int64), *runs], axis=1)
    rate = flat.shape[1] / seconds
    alone = np.unique(flat[0], return_counts=True)[1]
    timed = np.unique(flat, axis=1, return_counts=True)[1]
    return {
        "units_a_second": rate,
        "bits_a_second": rate * float(entropy(alone, base=2)),
        "bits_a_second_timed": rate * float(entropy(timed, base=2)),
    }


def purity(units: Sequence[np.ndarray], phones: Sequence[np.ndarray]) -> dict[str, float]:
    """Compute the shares of frames whose unit's commonest phone is theirs, and the reverse, and
    PNMI.

    PNMI is the phone-normalised mutual information, I(phone; unit) / H(phone), which scikit-learn
    calls homogeneity (arXiv 2106.07447, section V-C). units[i], phones[i]: (T,) int of utterance i.
    With a single phone there is nothing to be known about it, and PNMI is NaN.
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


def same_text(
    units: Sequence[np.ndarray],
    texts: Sequence[str],
    speakers: Sequence[str],
    groups: Sequence[str] = (),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Compare recordings of the same text by many people or synthesisers: a row for each pair of
    groups.

    A row is of all pairs of recordings by different speakers, or of PAIRS of them drawn by the
    seed. units[i]: run-length units (U,) of recording i; texts, speakers: what is said in it and by
    whom; groups: what the speaker belongs to, such as a synthesiser (none: all are one group). The
    distance, from 0 (alike) to 1, is of edits over the longer length; it predicts how well DUAL can
    learn from the units.

    A row has `groups`, `same_text_distance`, `other_text_distance`, `same_text_auc` (the chance
    that a pair of the same text is nearer than one of other texts), and `pairs` of the same text.
    Pairs of groups that share no text have no row. Raises ValueError where no text is spoken by two
    speakers, who say another text as well.
    """
    rng = np.random.default_rng(seed)
    text, who = np.array(texts), np.array(speakers)
    group = np.array(groups or [""] * len(texts))
    one, two = np.triu_indices(len(units), 1)
    apart = who[one] != who[two]
    one, two = one[apart], two[apart]

    def draw_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the distances of at most PAIRS of the pairs (a[i], b[i])."""
        places = rng.choice(len(a), min(len(a), PAIRS), replace=False)
        return np.array([normalised_distance(units[a[k]], units[b[k]]) for k in places])

    rows = []
    for first, second in combinations_with_replacement(sorted(set(group)), 2):
        forward = (group[one] == first) & (group[two] == second)
        backward = (group[one] == second) & (group[two] == first)
        a, b = one[forward | backward], two[forward | backward]
        same = text[a] == text[b]
        if same.all() or not same.any():
            continue
        near = draw_distances(a[same], b[same])
        far = draw_distances(a[~same], b[~same])
        farther = mannwhitneyu(far, near).statistic  # pairs of pairs; ties count half
        rows.append(
            {
                "groups": first if first == second else f"{first} - {second}",
                "same_text_distance": float(near.mean()),
                "other_text_distance": float(far.mean()),
                "same_text_auc": float(farther / len(near) / len(far)),
                "pairs": int(same.sum()),
                "distances": (near, far),
            }
        )
    if not rows:
        raise ValueError("no text is spoken by two speakers, who say another text as well")
    return rows


def abx(
    units: Sequence[np.ndarray], texts: Sequence[str], speakers: Sequence[str], seed: int = 0
) -> dict[str, float]:
    """Measure the ABX error of words: how often X is nearer to B, which says something else, than
    to A, which says the same; ties count half.

    within: A, B and X are by one speaker; across: A and B by one, X by another. As the ZeroSpeech
    challenge's (arXiv 1904.11469) for phones, but of whole recordings, by the normalised edit
    distance of their units, on PAIRS triples drawn by the seed. NaN where no triple exists.
    (fastabx is for phones by features, and needs Python 3.12.)
    """
    rng = np.random.default_rng(seed)
    by: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(speakers, texts, strict=True)):
        by.setdefault(key, []).append(i)
    words: dict[str, list[str]] = {}
    for who, text in by:
        words.setdefault(who, []).append(text)
    people = sorted(who for who, texts_of in words.items() if len(texts_of) > 1)
    distance = cache(lambda i, j: normalised_distance(units[i], units[j]))

    def one_of(values: Sequence[Any]) -> Any:  # as rng.choice, which makes an array of them first
        return values[int(rng.integers(len(values)))]

    errors: dict[str, list[float]] = {"abx_within": [], "abx_across": []}
    for name, trials in errors.items():
        for _ in range(PAIRS // 4 if people else 0):
            who = one_of(people)
            text, wrong = (words[who][k] for k in rng.choice(len(words[who]), 2, replace=False))
            a = one_of(by[who, text])
            if name == "abx_within":
                rest = [i for i in by[who, text] if i != a]
            else:
                others = [w for w in sorted(words) if w != who and (w, text) in by]
                rest = by[one_of(others), text] if others else []
            if rest:
                x, b = one_of(rest), one_of(by[who, wrong])
                right, left = distance(a, x), distance(b, x)
                trials.append(float(right > left) + 0.5 * float(right == left))
    return {name: float(np.mean(trials)) if trials else math.nan for name, trials in errors.items()}


def speaker_probe(
    units: Sequence[RunLength], speakers: Sequence[str], size: int, seed: int = 0
) -> dict[str, float]:
    """Measure how much of the speaker is left in units, by a linear probe: its accuracy, beside the
    share of the commonest speaker.

    The classifier sees the share of frames of every unit (K,), in five-fold cross-validation, of
    speakers with five recordings or more. NaN where there are fewer than two of these.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    counts = {who: list(speakers).count(who) for who in set(speakers)}
    chosen = [i for i, who in enumerate(speakers) if counts[who] >= 5]
    labels = [speakers[i] for i in chosen]
    if len(set(labels)) < 2:
        return {"speaker_accuracy": math.nan, "speaker_chance": math.nan}
    shares = []
    for i in chosen:
        counts_of_units = np.bincount(units[i].units, units[i].lengths, minlength=size)
        shares.append(counts_of_units / units[i].frames)
    probe = LogisticRegression(C=100.0, max_iter=1000)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    accuracies = cross_val_score(probe, np.sqrt(np.array(shares)), labels, cv=folds)
    return {
        "speaker_accuracy": float(accuracies.mean()),
        "speaker_chance": max(labels.count(who) for who in set(labels)) / len(labels),
    }


def unit_edit_distance(clean: Sequence[RunLength], distorted: Sequence[RunLength]) -> float:
    """Return the UED, after Gat et al. (arXiv 2209.15483): the mean over recordings of the edit
    distance between the run-length units of a recording and of the same distorted.

    Here it is divided by the longer length, as every distance in this file. Lengths may differ
    (time-stretch).
    """
    pairs = zip(clean, distorted, strict=True)
    return float(np.mean([normalised_distance(a.units, b.units) for a, b in pairs]))


def normalised_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Levenshtein distance divided by the longer length; 0 for two empty sequences."""
    return float(Levenshtein.normalized_distance(a.tolist(), b.tolist()))


def oracle_ff1(corpus: Corpus, units: Mapping[str, RunLength], grid: FrameGrid) -> float:
    """Compute the FF1 (0 to 1) of the annotated answers as units and back in seconds, which no
    reader of these units can beat; NaN where no answer has times."""
    scores = []
    for question in corpus.answerable:
        spans = [
            (a.start, a.end) for a in question.answers if a.start is not None and a.end is not None
        ]
        if not spans or question.passage not in units:
            continue
        start, end = spans[0]
        passage = units[question.passage]
        answer = units_of_interval(grid, passage, start, end)
        first, last = interval_of_units(grid, passage, *answer)
        overlap = max(min(last, end) - max(first, start), 0.0)
        scores.append(2 * overlap / (last - first + end - start))
    return float(np.mean(scores)) if scores else math.nan
