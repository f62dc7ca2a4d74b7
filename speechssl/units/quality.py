"""Quality of units: alike for different voices, and alike for one phone; and phones with their times to measure it by.

The measures are dictionaries with the names of `speechssl units evaluate --out`. Phones are (name, start, end) in seconds, from
what forced aligners write: TextGrids (Praat, Montreal Forced Aligner) or JSONL. Where an aligner leaves a gap there is silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from speechssl.data.files import read_tiers
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import read_lines
from speechssl.timing import FrameGrid, RunLength

Phone = tuple[str, float, float]
SILENCE = "sil"  # what an interval without a name is called
PAUSES = ("", "_")  # names of silence: of MFA, of eSpeak
OVERLAP = 0.02  # seconds, a frame: aligners that count in frames may let neighbours overlap by as much
TIERS = re.compile(r"(^|\W)(phones?|phonemes?|phn|segments?)$", re.IGNORECASE)  # MFA writes "phones" or "SPEAKER - phones"


def read_alignment(path: Path) -> dict[str, list[Phone]]:
    """Phones by recording. path: a .jsonl of {"id", "phones": [[name, start, end], ...]}, a .TextGrid, or a folder of them, in
    which the id is the path below the folder without its suffix.

    Recordings whose phones cannot be used are listed and left out. Raises InputError for a file that cannot be read, an id that
    comes twice, and where no recording can be used.
    """
    if path.suffix.lower() == ".jsonl":
        return usable(_of_lines(path), str(path))
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    grids = [p for p in files if p.suffix.lower() == ".textgrid" and p.is_file()]
    if not grids:
        raise InputError(f"{path} contains no alignment; give a .jsonl, a .TextGrid or a folder of TextGrids")
    names = (p.relative_to(path).with_suffix("").as_posix() if path.is_dir() else p.stem for p in grids)
    return usable(((name, partial(read_textgrid, p)) for name, p in zip(names, grids, strict=True)), str(path))


def usable(recordings: Iterable[tuple[str, Callable[[], list[Phone]]]], where: str) -> dict[str, list[Phone]]:
    """Phones by recording, of those whose phones can be had; the others are listed. Raises the first's InputError if all are."""
    found: dict[str, list[Phone]] = {}
    failed: dict[str, InputError] = {}
    for name, phones in recordings:
        try:
            found[name] = phones()
        except InputError as error:
            failed[name] = error
    if failed and not found:
        raise next(iter(failed.values()))
    tell_set_aside({name: str(error) for name, error in failed.items()}, f"phones of {where}")
    return found


def _of_lines(path: Path) -> Iterator[tuple[str, Callable[[], list[Phone]]]]:
    lines: dict[str, int] = {}
    for number, values in read_lines(path):
        where = f"{path}:{number}"
        try:
            name, phones = str(values["id"]), [(str(n), float(a), float(b)) for n, a, b in values["phones"]]
        except (KeyError, TypeError, ValueError) as error:
            shape = '{"id": ..., "phones": [[name, start, end], ...]}'
            raise InputError(f"{where} is not {shape} ({error!r}); correct the line") from error
        if name in lines:
            raise InputError(f"{where} has the id {name}, as line {lines[name]} has; give each recording one line")
        lines[name] = number
        yield name, partial(checked, phones, where)


def read_textgrid(path: Path) -> list[Phone]:
    """The intervals of the tier of phones of a TextGrid, long or short, in UTF-8 or UTF-16."""
    tiers = dict(read_tiers(path))
    phones = [name for name in tiers if TIERS.search(name)] or (list(tiers) if len(tiers) == 1 else [])
    if len(phones) != 1:
        raise InputError(f"{path} has the interval tiers {', '.join(tiers) or 'none'}; name one of them phones")
    return checked(tiers[phones[0]], str(path))


def checked(phones: Sequence[Phone], where: str) -> list[Phone]:
    """Phones in order, gaps filled with silence, pauses named so; those of no length go, overlaps of up to OVERLAP to the earlier.

    Raises InputError for times that are not finite or do not go forward.
    """
    filled: list[Phone] = []
    at = 0.0
    for name, start, end in phones:
        if not (math.isfinite(start) and math.isfinite(end)) or end < start or start < at - OVERLAP - 1e-6:
            raise InputError(f"{where}: the phone {name} has the times [{start}, {end}) s after {at} s; phones must be in order")
        if end <= max(start, at):
            continue
        if start > at + 1e-6:
            filled.append((SILENCE, at, start))
        filled.append((SILENCE if name.strip() in PAUSES else name.strip(), at if start < at - 1e-6 else start, end))
        at = end
    if not filled:
        raise InputError(f"{where} has no phones; leave it out or align it again")
    return filled


ROUNDING = 1e-4  # seconds that times of phones are good for
PAIRS = 20_000  # of recordings that are compared, of the same text and of other texts


def same_text(
    units: Sequence[np.ndarray], texts: Sequence[str], speakers: Sequence[str], groups: Sequence[str] = (), seed: int = 0
) -> list[dict[str, Any]]:
    """Same-text measures of recordings by many people or synthesisers: a row for each pair of groups, of all pairs of recordings
    by different speakers, or of PAIRS of them drawn by the seed.

    units[i]: run-length units (U,) of recording i; texts, speakers: what is said in it and by whom; groups: what the speaker
    belongs to, such as a synthesiser (none: all are one group). The distance, from 0 (alike) to 1, is of edits over the longer
    length; it predicts how well DUAL can learn from the units. A row has `groups`, `same_text_distance`, `other_text_distance`,
    `same_text_auc` (the chance that a pair of the same text is nearer than one of other texts), and `pairs` of the same text.
    Pairs of groups that share no text have no row. Raises ValueError where all are by one speaker or of one text, or where no text
    is said by two speakers of a group, or of two groups that say another text as well.
    """
    for values, what in ((speakers, "speaker"), (texts, "text")):
        if len(set(values)) == 1:
            raise ValueError(f"all recordings have the {what} {values[0]}")
    rng = np.random.default_rng(seed)
    text, who, group = np.array(texts), np.array(speakers), np.array(groups or [""] * len(texts))
    one, two = np.triu_indices(len(units), 1)
    apart = who[one] != who[two]
    one, two = one[apart], two[apart]
    names = sorted(set(group))
    rows = []
    for i, first in enumerate(names):
        for second in names[i:]:
            here = (group[one] == first) & (group[two] == second) | (group[one] == second) & (group[two] == first)
            a, b = one[here], two[here]
            same = np.flatnonzero(text[a] == text[b])
            other = np.flatnonzero(text[a] != text[b])
            if not len(same) or not len(other):
                continue
            drawn = [rng.choice(x, min(len(x), PAIRS), replace=False) for x in (same, other)]
            near, far = (np.array([normalised_distance(units[a[k]], units[b[k]]) for k in x]) for x in drawn)
            rows.append(
                {
                    "groups": first if first == second else f"{first} - {second}",
                    "same_text_distance": float(near.mean()),
                    "other_text_distance": float(far.mean()),
                    "same_text_auc": auc_of(near, far),
                    "pairs": len(same),
                    "distances": (near, far),
                }
            )
    if not rows:
        raise ValueError("no text is said by two speakers, who say another text as well")
    return rows


def auc_of(near: np.ndarray, far: np.ndarray) -> float:
    """The probability that a draw of `near` is below one of `far`; ties count half."""
    far = np.sort(far)
    right, left = (np.searchsorted(far, near, side) for side in ("right", "left"))
    return float((len(far) - right + (right - left) / 2).mean() / len(far))


def abx(units: Sequence[np.ndarray], texts: Sequence[str], speakers: Sequence[str], seed: int = 0) -> dict[str, float]:
    """ABX error of words: how often X is nearer to B, which says something else, than to A, which says the same; ties count half.

    within: A, B and X are by one speaker; across: A and B by one, X by another. As the ZeroSpeech challenge's (arXiv 1904.11469)
    for phones, but of whole recordings, by the normalised edit distance of their units, on PAIRS triples drawn by the seed. NaN
    where no triple exists. (fastabx is for phones by features, and needs Python 3.12.)
    """
    rng = np.random.default_rng(seed)
    by: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(speakers, texts, strict=True)):
        by.setdefault(key, []).append(i)
    words: dict[str, list[str]] = {}
    for who, text in by:
        words.setdefault(who, []).append(text)
    people = sorted(who for who, texts_of in words.items() if len(texts_of) > 1)
    errors: dict[str, list[float]] = {"abx_within": [], "abx_across": []}
    for name, found in errors.items():
        for _ in range(PAIRS // 4 if people else 0):
            who = people[rng.integers(len(people))]
            text, wrong = (words[who][k] for k in rng.choice(len(words[who]), 2, replace=False))
            a = rng.choice(by[who, text])
            if name == "abx_within":
                rest = [i for i in by[who, text] if i != a]
            else:
                others = [w for w in sorted(words) if w != who and (w, text) in by]
                rest = by[others[rng.integers(len(others))], text] if others else []
            if rest:
                x, b = rng.choice(rest), rng.choice(by[who, wrong])
                right, left = normalised_distance(units[a], units[x]), normalised_distance(units[b], units[x])
                found.append(float(right > left) + 0.5 * float(right == left))
    return {name: float(np.mean(found)) if found else math.nan for name, found in errors.items()}


def speaker_probe(units: Sequence[RunLength], speakers: Sequence[str], size: int, seed: int = 0) -> dict[str, float]:
    """How much of the speaker is left in units: accuracy of a linear classifier on the share of frames of every unit, in five-fold
    cross-validation, beside the share of the commonest speaker; of speakers with five recordings or more.

    NaN where there are fewer than two of these.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    counts = {who: list(speakers).count(who) for who in set(speakers)}
    chosen = [i for i, who in enumerate(speakers) if counts[who] >= 5]
    labels = [speakers[i] for i in chosen]
    if len(set(labels)) < 2:
        return {"speaker_accuracy": math.nan, "speaker_chance": math.nan}
    shares = np.array([np.bincount(units[i].units, units[i].lengths, minlength=size) / units[i].frames for i in chosen])
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    accuracy = cross_val_score(LogisticRegression(C=100.0, max_iter=1000), np.sqrt(shares), labels, cv=folds).mean()
    return {"speaker_accuracy": float(accuracy), "speaker_chance": max(labels.count(w) for w in set(labels)) / len(labels)}


def unit_edit_distance(clean: Sequence[RunLength], distorted: Sequence[RunLength]) -> float:
    """UED, after Gat et al. (arXiv 2209.15483): the mean over recordings of the edit distance between the run-length units of a
    recording and of the same distorted, here divided by the longer length, as every distance in this file. Lengths may
    differ (time-stretch). Raises ValueError without recordings.
    """
    if not clean:
        raise ValueError("there are no recordings")
    return float(np.mean([normalised_distance(a.units, b.units) for a, b in zip(clean, distorted, strict=True)]))


def normalised_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Levenshtein distance divided by the longer length; 0 for two empty sequences."""
    return float(Levenshtein.normalized_distance(a.tolist(), b.tolist()))


def purity(units: Sequence[np.ndarray], phones: Sequence[np.ndarray]) -> dict[str, float]:
    """Shares of frames whose unit's commonest phone is theirs, and the reverse; and the phone-normalised mutual information,
    I(phone; unit) / H(phone), which scikit-learn calls homogeneity (arXiv 2106.07447, section V-C).

    units[i], phones[i]: (T,) int of utterance i. With a single phone there is nothing to be known about it, and PNMI is NaN.
    Raises ValueError when there are no frames.
    """
    from sklearn.metrics.cluster import contingency_matrix, homogeneity_score

    flat_units, flat_phones = np.concatenate(units), np.concatenate(phones)
    if not len(flat_units):
        raise ValueError("there are no frames")
    joint = contingency_matrix(flat_phones, flat_units) / len(flat_units)
    pnmi = float(homogeneity_score(flat_phones, flat_units)) if len(joint) > 1 else math.nan
    return {"phone_purity": float(joint.max(0).sum()), "cluster_purity": float(joint.max(1).sum()), "pnmi": pnmi}


def phone_frames(phones: Sequence[tuple[str, float, float]], grid: FrameGrid, frames: int, names: dict[str, int]) -> np.ndarray:
    """(T,) the phone in the middle of every frame, SILENCE where there is none; `names` grows as phones appear.

    phones: (name, start, end) in seconds, in order, without overlap.
    """
    middles = (np.arange(frames) * grid.hop + grid.offset + grid.hop // 2) / grid.sample_rate
    starts, ends = (np.array([phone[i] for phone in phones], float) for i in (1, 2))
    ids = np.array([names.setdefault(name, len(names)) for name, _, _ in phones], np.int64)
    places = np.searchsorted(starts, middles, side="right") - 1
    inside = places >= 0
    inside[inside] = middles[inside] < ends[places[inside]] + ROUNDING
    if inside.all():
        return ids[places]
    return np.where(inside, ids[np.maximum(places, 0)] if len(ids) else 0, names.setdefault(SILENCE, len(names)))


def usage(units: Sequence[RunLength], size: int, most: int = 5) -> dict[str, Any]:
    """How often the units of a codebook of `size` occur, by frames; `most` of the commonest with their shares.

    The share of the entropy is of log2 K, which all units equally often would have; 1 for a codebook of one.
    Raises ValueError when there are no frames.
    """
    counts = sum((np.bincount(u.units, u.lengths, minlength=size) for u in units), np.zeros(size))
    if not counts.sum():
        raise ValueError("there are no frames")
    bits = entropy(counts)
    commonest = [int(i) for i in np.argsort(-counts, kind="stable")[:most] if counts[i]]
    return {
        "usage_entropy_bits": bits,
        "usage_entropy_share": bits / math.log2(size) if size > 1 else 1.0,
        "unused_units": int((counts == 0).sum()),
        "most_used": [{"unit": unit, "share": float(counts[unit] / counts.sum())} for unit in commonest],
    }


def entropy(counts: np.ndarray) -> float:
    """Bits of a draw from symbols with these counts."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # never -0.0


def bit_rate(units: Sequence[RunLength], seconds: float) -> dict[str, float]:
    """Symbols a second times their entropy (ZeroSpeech 2019, arXiv 1904.11469), of run-length units by themselves, and of units
    with their lengths, from which all frames follow. seconds: of all recordings together."""
    flat = np.concatenate([np.zeros((2, 0), np.int64), *(np.stack([u.units, u.lengths]) for u in units)], axis=1)
    rate = flat.shape[1] / seconds
    alone, timed = (np.unique(symbols, axis=-1, return_counts=True)[1] for symbols in (flat[0], flat))
    return {"units_a_second": rate, "bits_a_second": rate * entropy(alone), "bits_a_second_timed": rate * entropy(timed)}


def stability(clean: Sequence[RunLength], noisy: Sequence[RunLength]) -> dict[str, float]:
    """What a distortion does: edits between run-length units over those of clean speech, as a word error rate counts words, and the
    share of frames that change.

    clean[i], noisy[i]: the units of recording i, of the same number of frames. Raises ValueError when there are none.
    """
    if not sum(map(len, clean)):
        raise ValueError("there are no units")
    edits = sum(Levenshtein.distance(a.units.tolist(), b.units.tolist()) for a, b in zip(clean, noisy, strict=True))
    changed = np.concatenate([a.expand() != b.expand() for a, b in zip(clean, noisy, strict=True)])
    return {"unit_error_rate": edits / sum(map(len, clean)), "frames_changed": float(changed.mean())}
