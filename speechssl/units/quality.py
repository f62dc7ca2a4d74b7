"""Quality of units, as a table and a picture, of a prepared corpus, a manifest, a folder or a list:
alike for different voices, and alike for one phone; with or without known phones.

The measures are dictionaries with the names of `speechssl units evaluate --out`. Phones are (name,
start, end) in seconds, from what forced aligners write: TextGrids (Praat, Montreal Forced Aligner)
or JSONL. Where an aligner leaves a gap there is silence.
"""

from __future__ import annotations

import colorsys
import math
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache, partial
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.data.files import (
    Recording,
    delimiter_of,
    id_of,
    list_recordings,
    number_of,
    open_csv,
    read_csv,
    read_tiers,
)
from speechssl.data.records import Corpus, load_corpus
from speechssl.encoders.load import single_threaded
from speechssl.errors import InputError, MissingExtra, report_set_aside
from speechssl.io import alone, check_inside, read_json, read_lines, write_json
from speechssl.results import INK, RULE, save_figure, styled
from speechssl.signal import ACTIVE
from speechssl.synth.minisqa import speak_pairs
from speechssl.timing import (
    FrameGrid,
    RunLength,
    interval_of_units,
    unit_samples,
    units_of_interval,
)
from speechssl.units.features import UnitExtractor, load_extractor
from speechssl.units.fit import check_spectral
from speechssl.units.options import Evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- the verb

SPLIT = "test"
# of a distortion: times as fast, the pitch kept; frames move, so it is no `Condition`
STRETCH = "stretch@"
SPOKEN = 100  # questions of MiniSQA that are spoken twice


def evaluate_units(o: Evaluate) -> dict[str, Any]:
    """Measure the quality of units, and print and return it. What cannot be measured on this source
    is left out, and reported.

    The encoder may be `mfcc` or `fbank` for a codebook on these, or `phones` for the phones of the
    manifest as units (the topline, without a codebook). Raises InputError where there is nothing to
    look at.
    """
    with alone(o.out, file=True):
        values = _evaluated(o)
        if o.out:
            write_json(o.out, values)
    print("\n".join(lines(values)))
    return values


def _evaluated(o: Evaluate) -> dict[str, Any]:
    source, encoder = o.source, o.encoder
    check_spectral(encoder, o.precision)
    is_corpus = any(source.glob("*/passages.jsonl"))
    if o.split is not None and not is_corpus:
        raise InputError(
            f"{source} is not a prepared corpus and has no split {o.split}; leave out --split"
        )
    conditions, stretches, distorter = (
        [],
        list[float](),
        Distorter(o.seed, snr_over=o.snr_over),
    )
    for text in o.conditions:
        if text.startswith(STRETCH):
            rate = number_of(text.removeprefix(STRETCH)) or math.nan
            if not 0.25 <= rate <= 4:
                raise InputError(
                    f"{text} is no time-stretch; write one like stretch@1.2, from "
                    "0.25 to 4 times as fast"
                )
            stretches.append(rate)
            continue
        conditions.append(parse_condition(text))
        if any(step.kind == "babble" for step in conditions[-1].steps or conditions[-1:]):
            raise InputError(
                f"{text} needs the speech of other people, which is not at hand "
                "here; give another noise"
            )
        distorter.check(conditions[-1])
    for path in filter(None, (o.picture, o.violins)):
        check_picture(path)
    labelled = read_labelled(source) if _is_labelled(source) else None
    if o.violins and labelled is None:
        raise InputError(
            "--violins draws the same-text distances of a list; give a .csv or .tsv with the "
            "columns audio, text and speaker"
        )
    with single_threaded(len(os.sched_getaffinity(0))) as pool:
        # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        torch.set_num_threads(1)
        extractor = None
        if encoder != "phones":
            if o.codebook is None:
                raise InputError(
                    f"units of {encoder} need a codebook; name the file that "
                    "`speechssl units fit` wrote"
                )
            extractor = load_extractor(encoder, o.codebook, o.precision)
        corpus = load_corpus(source, o.split or SPLIT) if is_corpus else None
        items, phones = _recordings(source, corpus, o, labelled)
        values: dict[str, Any] = {}
        if extractor:
            measured, units = _measured(
                source,
                items,
                phones,
                corpus,
                extractor,
                pool,
                o,
                conditions,
                stretches,
                distorter,
            )
            values = {
                "K": extractor.codebook.size,
                "precision": extractor.features.precision,
            } | measured
            if labelled is not None:
                values |= _of_list(source, labelled, units, extractor.codebook.size, o)
        elif corpus is None or not all(item.id in phones for item in items):
            raise InputError(
                f"{source} has passages without phones; units that are phones need "
                "a prepared corpus that has them"
            )
        if corpus and (spoken := [p for item in items if (p := corpus.passages[item.id]).phones]):
            values["phones_a_second"] = sum(len(p.phones) for p in spoken) / sum(
                p.seconds for p in spoken
            )
        values |= _same_text(source, corpus, extractor, pool, o)
    return values


COLUMNS = {"audio", "text", "speaker"}


def _is_labelled(path: Path) -> bool:
    """A .csv with texts or speakers, or a .tsv that begins with all three columns: others are
    manifests."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv") or not path.is_file():
        return False
    with open_csv(path, delimiter=delimiter_of(path)) as rows:
        names = {name.strip().lower() for name in next(rows, [])}
    return names >= COLUMNS if kind == ".tsv" else bool(names & {"text", "speaker"})


def read_labelled(path: Path) -> dict[str, dict[str, str]]:
    """The lines of a list with the columns audio, text and speaker, and perhaps id and group, by id
    (default: as of a manifest).

    audio is relative to the list. Raises InputError for a file that is no such list.
    """
    lines = read_csv(path, delimiter_of(path))
    if not lines:
        raise InputError(
            f"{path} has no rows; give it a line audio,text,speaker and below it a "
            "line for each recording"
        )
    if missing := COLUMNS.difference(*lines):
        has = f"{path} has no column {', '.join(sorted(missing))}, but {', '.join(lines[0])}"
        raise InputError(f"{has}; begin it with the line audio,text,speaker")
    by_id: dict[str, dict[str, str]] = {}
    stems = Counter(id_of(line["audio"].strip()) for line in lines)
    for number, line in enumerate(({k: v.strip() for k, v in line.items()} for line in lines), 2):
        if not all(line.get(name) for name in ("audio", "text", "speaker")):
            raise InputError(
                f"line {number} of {path} lacks audio, text or speaker; complete it or delete it"
            )
        check_inside(path.parent, line["audio"], f"line {number} of {path}")
        name = id_of(line["audio"])
        # a.wav and a.mp3: as of a folder
        name = line.get("id") or (name if stems[name] == 1 else line["audio"])
        if name in by_id:
            raise InputError(f"line {number} of {path} has {name} again; list every recording once")
        by_id[name] = {k: v for k, v in line.items() if k and v}
    for column, others in (
        ("speaker", "the same texts by other speakers"),
        ("text", "other texts by the same speakers"),
    ):
        if len(values := {line[column] for line in by_id.values()}) == 1:
            raise InputError(
                f"all recordings of {path} have the {column} {values.pop()}, and texts are "
                f"compared across speakers; add {others}, "
                "or give the folder of the recordings, to measure what needs neither"
            )
    return by_id


def _of_list(
    source: Path,
    labelled: Mapping[str, Mapping[str, str]],
    units: Mapping[str, RunLength],
    size: int,
    o: Evaluate,
) -> dict[str, Any]:
    """Same-text measures by groups, ABX and the speaker probe, of the recordings that have units;
    and the violins."""
    names = [name for name in labelled if name in units]
    texts, speakers = ([labelled[name][column] for name in names] for column in ("text", "speaker"))
    groups = [labelled[name].get("group", source.stem) for name in names]
    sequences = [units[name].units for name in names]
    try:
        rows = same_text(sequences, texts, speakers, groups, o.seed)
    except ValueError as error:
        raise InputError(
            f"{source}: {error}; list several texts, each by several speakers"
        ) from error
    if o.violins:
        draw_violins(o.violins, rows)
        _note(f"{o.violins}: distances of the same text and of other texts")
    plain = [{k: v for k, v in row.items() if k != "distances"} for row in rows]
    measured, group_names = {row["groups"] for row in rows}, sorted(set(groups))
    for pair in combinations_with_replacement(group_names, 2):
        if (name := " - ".join(pair if pair[0] != pair[1] else pair[:1])) not in measured:
            _note(
                f"same-text distance, {name}: nan (no text is spoken by two speakers, who say "
                "another text as well)"
            )
    probe = speaker_probe([units[name] for name in names], speakers, size, o.seed)
    return {"same_text": plain} | abx(sequences, texts, speakers, o.seed) | probe


def draw_violins(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Distances of pairs of recordings, of the same text beside other texts, a pair of violins for
    each row of `same_text`."""
    with styled(svg_hashsalt="units") as Figure:
        # at least as wide as the title
        figure = Figure(figsize=(max(4.8, 1.5 + 1.6 * len(rows)), 3.6), layout="constrained")
        ax = figure.subplots()
        for place, row in enumerate(rows):
            for side, (distances, fill) in enumerate(
                zip(row["distances"], ("#2f6fab", "#b9bec6"), strict=True)
            ):
                drawn = ax.violinplot(
                    [distances],
                    [place + 0.36 * (side - 0.5)],
                    widths=0.34,
                    showmedians=True,
                    showextrema=False,
                )
                for body in drawn["bodies"]:  # type: ignore[attr-defined]
                    body.set(facecolor=fill, alpha=0.9)
                drawn["cmedians"].set_color(INK)
            ax.text(place, 1.04, f"AUC {row['same_text_auc']:.2f}", ha="center", color=INK)
        ax.set_xticks(range(len(rows)), [row["groups"].replace(" - ", "\n") for row in rows])
        ax.set(
            ylim=(0, 1.12),
            ylabel=("edit distance of units / longer length"),
            title=("the same text (blue) and other texts (grey)"),
        )
        save_figure(figure, path)


def _recordings(
    source: Path,
    corpus: Corpus | None,
    o: Evaluate,
    labelled: Mapping[str, Mapping[str, str]] | None,
) -> tuple[list[Recording], dict[str, Sequence[Phone]]]:
    """What to look at, in order, and the phones of those that have some, of the alignment or of the
    corpus."""
    aligned = read_alignment(o.alignment) if o.alignment else {}
    phones: dict[str, Sequence[Phone]] = dict(aligned)
    if labelled is not None:
        recordings = [
            Recording(name, source.parent / line["audio"]) for name, line in labelled.items()
        ]
    elif corpus is None:
        recordings = list_recordings(source)
    else:
        of_corpus = {
            p.id: [(s.text, s.start, s.end) for s in p.phones]
            for p in corpus.passages.values()
            if p.phones
        }
        phones = {
            **usable(
                ((name, partial(checked, tier, name)) for name, tier in of_corpus.items()),
                "the corpus",
            ),
            **aligned,
        }
        recordings = [Recording(p.id, corpus.path(p), p.seconds) for p in corpus.passages.values()]
    if not recordings:
        raise InputError(
            f"{source / (o.split or SPLIT)} has no passages; name a split "
            "that has some with --split"
        )
    if aligned and not any(item.id in phones for item in recordings):
        first = next(iter(aligned))
        raise InputError(
            f"{o.alignment} has no recording of {source} (its first id is "
            f"{first}); make the ids match"
        )
    if o.recording is not None and o.recording not in [item.id for item in recordings[: o.first]]:
        raise InputError(
            f"{source} has no recording {o.recording} (its first is {recordings[0].id}); "
            "give another with --recording"
        )
    return recordings[: o.first], phones


def _measured(
    source: Path,
    items: Sequence[Recording],
    phones: Mapping[str, Sequence[Phone]],
    corpus: Corpus | None,
    extractor: UnitExtractor,
    pool: Executor,
    o: Evaluate,
    conditions: Sequence[Condition],
    stretches: Sequence[float],
    distorter: Distorter,
) -> tuple[dict[str, Any], dict[str, RunLength]]:
    """All that needs the units of the recordings, and the units; recordings that cannot be read are
    listed and counted."""

    def encode(item: Recording) -> tuple[RunLength, float]:
        samples = read_audio(item.path)
        seconds = item.seconds if corpus else None  # as the corpus says
        return extractor.units(samples), seconds or len(samples) / SAMPLE_RATE

    units: dict[str, RunLength] = {}
    failed: dict[str, str] = {}
    total = 0.0
    futures = [pool.submit(encode, item) for item in items]
    for item, future in zip(tqdm(items, desc="units", unit="file"), futures, strict=True):
        try:
            units[item.id], seconds = future.result()
            total += seconds
        except (InputError, ValueError) as error:
            failed[item.id] = str(error)
    report_set_aside(failed, "quality of units")
    if not units:
        why = next(iter(failed.values()))
        raise InputError(
            f"no recording of {source} can be read (of the first of {len(failed)}: "
            f"{why}); restore the audio"
        )
    items, grid = [item for item in items if item.id in units], extractor.grid
    values = usage(list(units.values()), extractor.codebook.size) | bit_rate(
        list(units.values()), total
    )

    aligned = [item.id for item in items if item.id in phones]
    if len(aligned) < len(items):
        _note(
            f"{len(items) - len(aligned)} of {len(items)} recordings have no --alignment and "
            "are left out of purity and PNMI"
        )
    if aligned:
        names: dict[str, int] = {}
        labels = [phone_frames(phones[name], grid, units[name].frames, names) for name in aligned]
        values |= purity([units[name].expand() for name in aligned], labels)

    # FF1 (0 to 1) of the annotated answers as units and back in seconds: what no reader of these
    # units can beat
    if corpus:
        scores = []
        for question in corpus.answerable:
            spans = [
                (a.start, a.end)
                for a in question.answers
                if a.start is not None and a.end is not None
            ]
            for start, end in spans[:1] if question.passage in units else []:
                passage = units[question.passage]
                first, last = interval_of_units(
                    grid, passage, *units_of_interval(grid, passage, start, end)
                )
                scores.append(
                    2 * max(min(last, end) - max(first, start), 0.0) / (last - first + end - start)
                )
        values["oracle_ff1"] = float(np.mean(scores)) if scores else math.nan

    # clean against distorted, on some of the recordings; seed and id alone decide the noise
    if conditions or stretches:
        places = np.unique(
            np.linspace(0, len(items) - 1, min(o.noisy, len(items))).round().astype(int)
        )
        chosen = [items[i] for i in places]

        def encode_distorted(item: Recording) -> list[RunLength] | str:
            """Or why not: faster, a short recording has not one frame."""
            from librosa import effects  # type: ignore[attr-defined]  # slow to import

            samples = read_audio(item.path)
            changed = [distorter.apply(samples, condition, item.id) for condition in conditions]
            changed += [effects.time_stretch(samples, rate=rate) for rate in stretches]
            try:
                return [extractor.units(one) for one in changed]
            except ValueError as error:
                return str(error)

        encodings = list(
            tqdm(
                pool.map(encode_distorted, chosen),
                total=len(chosen),
                desc=("units of distorted speech"),
                unit="file",
            )
        )
        pairs = list(zip(chosen, encodings, strict=True))
        report_set_aside(
            {item.id: why for item, why in pairs if isinstance(why, str)}, "stability of units"
        )
        clean = [units[item.id] for item, encoded in pairs if not isinstance(encoded, str)]
        values["stability"] = []
        for number, encoded in enumerate(
            zip(*(x for x in encodings if not isinstance(x, str)), strict=True)
        ):
            row: dict[str, Any] = {
                "recordings": len(clean),
                "unit_edit_distance": unit_edit_distance(clean, encoded),
            }
            if number < len(conditions):
                condition = conditions[number]
                row |= {"condition": condition.short, "snr_db": condition.snr_db} | stability(
                    clean, encoded
                )
                row |= {"snr_over": o.snr_over} if condition.noisy and o.snr_over != ACTIVE else {}
            else:
                row |= {
                    "condition": f"stretch {stretches[number - len(conditions)]:g}",
                    "snr_db": None,
                }
            values["stability"].append(row)

    if o.picture:
        item = next((item for item in items if o.recording in (None, item.id)), None)
        if item is None:
            raise InputError(
                f"the recording {o.recording} was set aside; give another with --recording"
            )
        draw_units(
            o.picture,
            read_audio(item.path),
            units[item.id],
            grid,
            phones.get(item.id, ()),
            item.id,
            o.span,
        )
        _note(f"{o.picture}: the units of {item.id}")
    return values, units


def _same_text(
    source: Path,
    corpus: Corpus | None,
    extractor: UnitExtractor | None,
    pool: Executor,
    o: Evaluate,
) -> dict[str, Any]:
    """One sentence by two voices, synthesised on the spot (needs speechssl[synth]); MiniSQA only,
    whose questions are known."""
    card = source / "card.json"
    minisqa = (
        corpus is not None
        and o.same_text != 0
        and card.is_file()
        and read_json(card).get("corpus") == "minisqa"
    )
    if corpus is None or not minisqa:
        if o.same_text or (extractor is None and o.same_text != 0):
            raise InputError(
                f"{source} is not a MiniSQA corpus, and only its questions can be synthesised in "
                "pairs; leave out --same-text"
            )
        return {}
    try:
        pairs = o.same_text or SPOKEN
        language = next(iter(corpus.passages.values())).language
        pairs_spoken = speak_pairs(language, o.split or SPLIT, pairs)
        spoken = list(tqdm(pairs_spoken, total=pairs, desc="synthesising pairs", unit="pair"))
    except MissingExtra as error:
        if o.same_text or extractor is None:
            raise
        _note(f"the same-text distance is left out: {error}")
        return {}
    names: dict[str, int] = {}
    if extractor:
        sides = [
            [x.units for x in pool.map(extractor.units, [pair[i].samples for pair in spoken])]
            for i in (0, 1)
        ]
    else:
        sides = [
            [
                np.array([names.setdefault(p.text, len(names)) for p in side[i].phones])
                for side in spoken
            ]
            for i in (0, 1)
        ]
    texts, voices = (
        [str(n) for n in range(len(spoken))] * 2,
        np.repeat(["one", "other"], len(spoken)).tolist(),
    )
    (row,) = same_text([*sides[0], *sides[1]], texts, voices)
    measures = {name: row[name] for name in ("same_text_distance", "same_text_auc", "pairs")}
    return measures if extractor else {"K": len(names)} | measures


WHY = {  # a value is missing
    "abx_within": "no speaker reads a text twice, and another one",
    "abx_across": "no text is spoken by two speakers, one of whom says another one",
    "speaker_accuracy": "fewer than two speakers have five recordings",
    "speaker_chance": "fewer than two speakers have five recordings",
    "pnmi": "all frames have one phone",
    "oracle_ff1": "no question has an answer with times",
}


def lines(values: dict[str, Any]) -> list[str]:
    """The figures as text; beside one that is missing, why it is."""
    flat = {k: v for k, v in values.items() if not isinstance(v, list)}
    flat |= {f"unit {u['unit']}": u["share"] for u in values.get("most_used", [])}
    for row in values.get("stability", []):
        where = row["condition"] + (f" {row['snr_db']:g} dB" if row["snr_db"] is not None else "")
        flat[f"unit edit distance (UED), {where}"] = row["unit_edit_distance"]
        names = {"unit_error_rate": "unit error rate", "frames_changed": "frames changed"}
        flat |= {f"{text}, {where}": row[name] for name, text in names.items() if name in row}
    for row in values.get("same_text", []):
        names = {
            "same_text_distance": "same-text distance",
            "other_text_distance": ("other-text distance"),
            "same_text_auc": "AUC",
        }
        flat |= {f"{text}, {row['groups']}": row[name] for name, text in names.items()}
    shown = {
        name: f"{value:.3f}" if isinstance(value, float) else value for name, value in flat.items()
    }
    shown |= {name: f"nan ({why})" for name, why in WHY.items() if math.isnan(flat.get(name, 0))}
    return [f"{name:>46}  {value}" for name, value in shown.items()]


def _note(line: str) -> None:
    tqdm.write(line, file=sys.stderr)


# ---- measures

ROUNDING = 1e-4  # seconds that times of phones are good for
PAIRS = 20_000  # of recordings that are compared, of the same text and of other texts


def same_text(
    units: Sequence[np.ndarray],
    texts: Sequence[str],
    speakers: Sequence[str],
    groups: Sequence[str] = (),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Same-text measures of recordings by many people or synthesisers: a row for each pair of
    groups, of all pairs of recordings
    by different speakers, or of PAIRS of them drawn by the seed.

    units[i]: run-length units (U,) of recording i; texts, speakers: what is said in it and by whom;
    groups: what the speaker belongs to, such as a synthesiser (none: all are one group). The
    distance, from 0 (alike) to 1, is of edits over the longer length; it predicts how well DUAL can
    learn from the units. A row has `groups`, `same_text_distance`, `other_text_distance`,
    `same_text_auc` (the chance that a pair of the same text is nearer than one of other texts), and
    `pairs` of the same text.
    Pairs of groups that share no text have no row. Raises ValueError where all are by one speaker
    or of one text, or where no text is spoken by two speakers of a group, or of two groups that say
    another text as well.
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
            in_groups = (group[one] == first) & (group[two] == second) | (group[one] == second) & (
                group[two] == first
            )
            a, b = one[in_groups], two[in_groups]
            same = np.flatnonzero(text[a] == text[b])
            other = np.flatnonzero(text[a] != text[b])
            if not len(same) or not len(other):
                continue
            drawn = [rng.choice(x, min(len(x), PAIRS), replace=False) for x in (same, other)]
            near, far = (
                np.array([normalised_distance(units[a[k]], units[b[k]]) for k in x]) for x in drawn
            )
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
        raise ValueError("no text is spoken by two speakers, who say another text as well")
    return rows


def auc_of(near: np.ndarray, far: np.ndarray) -> float:
    """The probability that a draw of `near` is below one of `far`; ties count half."""
    far = np.sort(far)
    right, left = (np.searchsorted(far, near, side) for side in ("right", "left"))
    return float((len(far) - right + (right - left) / 2).mean() / len(far))


def abx(
    units: Sequence[np.ndarray], texts: Sequence[str], speakers: Sequence[str], seed: int = 0
) -> dict[str, float]:
    """ABX error of words: how often X is nearer to B, which says something else, than to A, which
    says the same; ties count half.

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
    """How much of the speaker is left in units: accuracy of a linear classifier on the share of
    frames of every unit, in five-fold cross-validation, beside the share of the commonest speaker;
    of speakers with five recordings or more.

    NaN where there are fewer than two of these.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    counts = {who: list(speakers).count(who) for who in set(speakers)}
    chosen = [i for i, who in enumerate(speakers) if counts[who] >= 5]
    labels = [speakers[i] for i in chosen]
    if len(set(labels)) < 2:
        return {"speaker_accuracy": math.nan, "speaker_chance": math.nan}
    shares = np.array(
        [
            np.bincount(units[i].units, units[i].lengths, minlength=size) / units[i].frames
            for i in chosen
        ]
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    accuracy = cross_val_score(
        LogisticRegression(C=100.0, max_iter=1000), np.sqrt(shares), labels, cv=folds
    ).mean()
    return {
        "speaker_accuracy": float(accuracy),
        "speaker_chance": max(labels.count(w) for w in set(labels)) / len(labels),
    }


def unit_edit_distance(clean: Sequence[RunLength], distorted: Sequence[RunLength]) -> float:
    """UED, after Gat et al. (arXiv 2209.15483): the mean over recordings of the edit distance
    between the run-length units of a recording and of the same distorted, here divided by the
    longer length, as every distance in this file. Lengths may
    differ (time-stretch). Raises ValueError without recordings.
    """
    if not clean:
        raise ValueError("there are no recordings")
    return float(
        np.mean(
            [normalised_distance(a.units, b.units) for a, b in zip(clean, distorted, strict=True)]
        )
    )


def normalised_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Levenshtein distance divided by the longer length; 0 for two empty sequences."""
    return float(Levenshtein.normalized_distance(a.tolist(), b.tolist()))


def purity(units: Sequence[np.ndarray], phones: Sequence[np.ndarray]) -> dict[str, float]:
    """Shares of frames whose unit's commonest phone is theirs, and the reverse; and the
    phone-normalised mutual information, I(phone; unit) / H(phone), which scikit-learn calls
    homogeneity (arXiv 2106.07447, section V-C).

    units[i], phones[i]: (T,) int of utterance i. With a single phone there is nothing to be known
    about it, and PNMI is NaN.
    Raises ValueError when there are no frames.
    """
    from sklearn.metrics.cluster import contingency_matrix, homogeneity_score

    flat_units, flat_phones = np.concatenate(units), np.concatenate(phones)
    if not len(flat_units):
        raise ValueError("there are no frames")
    joint = contingency_matrix(flat_phones, flat_units) / len(flat_units)
    pnmi = float(homogeneity_score(flat_phones, flat_units)) if len(joint) > 1 else math.nan
    return {
        "phone_purity": float(joint.max(0).sum()),
        "cluster_purity": float(joint.max(1).sum()),
        "pnmi": pnmi,
    }


def phone_frames(
    phones: Sequence[tuple[str, float, float]], grid: FrameGrid, frames: int, names: dict[str, int]
) -> np.ndarray:
    """(T,) the phone in the middle of every frame, SILENCE where there is none; `names` grows as
    phones appear.

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
    return np.where(
        inside, ids[np.maximum(places, 0)] if len(ids) else 0, names.setdefault(SILENCE, len(names))
    )


def usage(units: Sequence[RunLength], size: int, most: int = 5) -> dict[str, Any]:
    """How often the units of a codebook of `size` occur, by frames; `most` of the commonest with
    their shares.

    The share of the entropy is of log2 K, which all units equally often would have; 1 for a
    codebook of one.
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
        "most_used": [
            {"unit": unit, "share": float(counts[unit] / counts.sum())} for unit in commonest
        ],
    }


def entropy(counts: np.ndarray) -> float:
    """Bits of a draw from symbols with these counts."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # never -0.0


def bit_rate(units: Sequence[RunLength], seconds: float) -> dict[str, float]:
    """Symbols a second times their entropy (ZeroSpeech 2019, arXiv 1904.11469), of run-length units
    by themselves, and of units with their lengths, from which all frames follow. seconds: of all
    recordings together."""
    flat = np.concatenate(
        [np.zeros((2, 0), np.int64), *(np.stack([u.units, u.lengths]) for u in units)], axis=1
    )
    rate = flat.shape[1] / seconds
    alone, timed = (
        np.unique(symbols, axis=-1, return_counts=True)[1] for symbols in (flat[0], flat)
    )
    return {
        "units_a_second": rate,
        "bits_a_second": rate * entropy(alone),
        "bits_a_second_timed": rate * entropy(timed),
    }


def stability(clean: Sequence[RunLength], noisy: Sequence[RunLength]) -> dict[str, float]:
    """What a distortion does: edits between run-length units over those of clean speech, as a word
    error rate counts words, and the share of frames that change.

    clean[i], noisy[i]: the units of recording i, of the same number of frames. Raises ValueError
    when there are none.
    """
    if not sum(map(len, clean)):
        raise ValueError("there are no units")
    edits = sum(
        Levenshtein.distance(a.units.tolist(), b.units.tolist())
        for a, b in zip(clean, noisy, strict=True)
    )
    changed = np.concatenate([a.expand() != b.expand() for a, b in zip(clean, noisy, strict=True)])
    return {
        "unit_error_rate": edits / sum(map(len, clean)),
        "frames_changed": float(changed.mean()),
    }


# ---- phones with their times

Phone = tuple[str, float, float]
SILENCE = "sil"  # what an interval without a name is called
PAUSES = ("", "_")  # names of silence: of MFA, of eSpeak
# seconds, a frame: aligners that count in frames may let neighbours overlap by as much
OVERLAP = 0.02
# MFA writes "phones" or "SPEAKER - phones"
TIERS = re.compile(r"(^|\W)(phones?|phonemes?|phn|segments?)$", re.IGNORECASE)


def read_alignment(path: Path) -> dict[str, list[Phone]]:
    """Phones by recording. path: a .jsonl of {"id", "phones": [[name, start, end], ...]}, a
    .TextGrid, or a folder of them, in which the id is the path below the folder without its suffix.

    Recordings whose phones cannot be used are listed and left out. Raises InputError for a file
    that cannot be read, an id that comes twice, and where no recording can be used.
    """
    if path.suffix.lower() == ".jsonl":
        return usable(_of_lines(path), str(path))
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    grids = [p for p in files if p.suffix.lower() == ".textgrid" and p.is_file()]
    if not grids:
        raise InputError(
            f"{path} contains no alignment; give a .jsonl, a .TextGrid or a folder of TextGrids"
        )
    names = (
        p.relative_to(path).with_suffix("").as_posix() if path.is_dir() else p.stem for p in grids
    )
    return usable(
        ((name, partial(read_textgrid, p)) for name, p in zip(names, grids, strict=True)), str(path)
    )


def usable(
    recordings: Iterable[tuple[str, Callable[[], list[Phone]]]], where: str
) -> dict[str, list[Phone]]:
    """Phones by recording, of those whose phones can be had; the others are listed. Raises the
    first's InputError if all are."""
    by_id: dict[str, list[Phone]] = {}
    failed: dict[str, InputError] = {}
    for name, phones in recordings:
        try:
            by_id[name] = phones()
        except InputError as error:
            failed[name] = error
    if failed and not by_id:
        raise next(iter(failed.values()))
    report_set_aside({name: str(error) for name, error in failed.items()}, f"phones of {where}")
    return by_id


def _of_lines(path: Path) -> Iterator[tuple[str, Callable[[], list[Phone]]]]:
    lines: dict[str, int] = {}
    for number, values in read_lines(path):
        where = f"{path}:{number}"
        try:
            name, phones = (
                str(values["id"]),
                [(str(n), float(a), float(b)) for n, a, b in values["phones"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            shape = '{"id": ..., "phones": [[name, start, end], ...]}'
            raise InputError(f"{where} is not {shape} ({error!r}); correct the line") from error
        if name in lines:
            raise InputError(
                f"{where} has the id {name}, as line {lines[name]} has; give each "
                "recording one line"
            )
        lines[name] = number
        yield name, partial(checked, phones, where)


def read_textgrid(path: Path) -> list[Phone]:
    """The intervals of the tier of phones of a TextGrid, long or short, in UTF-8 or UTF-16."""
    tiers = read_tiers(path)
    phones = [intervals for name, intervals in tiers if TIERS.search(name) or len(tiers) == 1]
    if len(phones) != 1:
        names = ", ".join(name for name, _ in tiers)
        raise InputError(
            f"{path} has the interval tiers {names or 'none'}; name one of them "
            "phones, and no other"
        )
    return checked(phones[0], str(path))


def checked(phones: Sequence[Phone], where: str) -> list[Phone]:
    """Phones in order, gaps filled with silence, pauses named so; those of no length go, overlaps
    of up to OVERLAP to the earlier.

    Raises InputError for times that are not finite or do not go forward.
    """
    filled: list[Phone] = []
    at = 0.0
    for name, start, end in phones:
        if (
            not (math.isfinite(start) and math.isfinite(end))
            or end < start
            or start < at - OVERLAP - 1e-6
        ):
            raise InputError(
                f"{where}: the phone {name} has the times [{start}, {end}) s after "
                f"{at} s; phones must be in order"
            )
        if end <= max(start, at):
            continue
        if start > at + 1e-6:
            filled.append((SILENCE, at, start))
        filled.append(
            (
                SILENCE if name.strip() in PAUSES else name.strip(),
                at if start < at - 1e-6 else start,
                end,
            )
        )
        at = end
    if not filled:
        raise InputError(f"{where} has no phones; leave it out or align it again")
    return filled


# ---- the picture

Block = tuple[str, float, float, str]  # label, start and end in seconds, colour

ROW_SECONDS = 3.0  # what one row of the picture shows
ROWS = 12  # a picture holds no more; the span must be named then
INCHES, HEIGHTS = 13.0, (1.5, 0.34, 0.26)  # width; of spectrogram, units, phones
HOP, WINDOW, BANDS = 80, 400, 80  # samples between columns and under one, mel bands
POINTS, PIECE = 1024, 2_000  # of the Fourier transform; columns that are computed at a time
# samples on either side, so that no column in between sees a cut
MARGIN = math.ceil(POINTS / HOP) * HOP
RANGE_DB = 70.0  # shown below the loudest
SILENT = "#eef0f3"
FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han "
                                            "Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "PingFang SC", "Microsoft YaHei", "SimHei", "Droid Sans "
                                                "Fallback", "Noto Sans", "Arial Unicode MS",
)  # fmt: skip  # what is there of them shows what DejaVu has not
SUFFIXES = (".png", ".svg", ".pdf")


def draw_units(
    path: Path,
    samples: np.ndarray,
    runs: RunLength,
    grid: FrameGrid,
    phones: Sequence[Phone] = (),
    title: str = "",
    span: tuple[float, float] | None = None,
) -> None:
    """Write the picture of [start, end) seconds (None: of all) of samples (N,) at 16 kHz: log-mel
    spectrogram, units, phones.

    A unit is drawn over the samples it owns, a column of the spectrogram around its middle: what
    stands above each other is at the same time, to the sample. Raises InputError for another suffix
    than .png, .svg or .pdf, and for a span that holds nothing or too much.
    """
    from matplotlib.font_manager import get_font_names

    check_picture(path)
    seconds = len(samples) / SAMPLE_RATE
    span = span or (0.0, seconds)
    start, end = max(span[0], 0.0), min(span[1], seconds)
    if not (math.isfinite(start) and math.isfinite(end)) or end <= start:
        raise InputError(
            f"[{span[0]:g}, {span[1]:g}) s is outside a recording of {seconds:.2f} s; change --span"
        )
    count = math.ceil((end - start) / ROW_SECONDS - 1e-9)
    if count > ROWS:
        raise InputError(
            f"{end - start:.1f} s are too long for a picture; name at most "
            f"{ROWS * ROW_SECONDS:g} s with --span"
        )
    length = ROW_SECONDS if count > 1 else end - start
    rows = [(start + i * length, start + (i + 1) * length) for i in range(count)]

    strips = [list(unit_blocks(runs, grid, (rows[0][0], rows[-1][1])))]
    if phones:
        strips.append(
            [
                (name, low, high, "white" if n % 2 else SILENT)
                for n, (name, low, high) in enumerate(phones)
            ]
        )
    title = (
        f"{title}   {len(runs)} units of {runs.frames} frames in {seconds:.2f} s, "
        f"{len(runs) / seconds:.1f} a second"
    ).strip()
    first = _columns(rows[0])[0]
    mel = log_mel(samples, first, _columns(rows[-1])[1])
    # matplotlib warns of those it lacks
    fonts = ["DejaVu Sans", *(name for name in FONTS if name in set(get_font_names()))]
    look = {"font_family": fonts, "font_size": 8, "axes_grid": False, "svg_hashsalt": "units"}
    with styled(**look) as Figure, warnings.catch_warnings():
        # a box stands for it, and the file is no worse for that
        warnings.filterwarnings("ignore", r"Glyph .* missing from")
        heights = HEIGHTS[: 1 + len(strips)]
        figure = Figure(
            figsize=(INCHES, len(rows) * (sum(heights) + 0.42) + 0.3), layout="constrained"
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=INK)
        parts = figure.subfigures(len(rows), 1, squeeze=False, hspace=0.0)[:, 0]
        for part, row in zip(parts, rows, strict=True):
            axes = part.subplots(
                len(heights), 1, sharex=True, height_ratios=heights, gridspec_kw={"hspace": 0.0}
            )
            _draw_row(list(axes), mel, first, strips, row)
        save_figure(figure, path)


def check_picture(path: Path) -> None:
    """Raises InputError where a picture cannot be written by this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw a picture as {path}; end its name in {', '.join(SUFFIXES)}")


def _columns(row: tuple[float, float]) -> tuple[int, int]:
    """The columns of the spectrogram from before the row to after it."""
    return max(math.floor(row[0] * SAMPLE_RATE / HOP) - 1, 0), math.ceil(
        row[1] * SAMPLE_RATE / HOP
    ) + 2


def log_mel(samples: np.ndarray, first: int = 0, last: int | None = None) -> np.ndarray:
    """(BANDS, C) decibels below the loudest of the recording, columns [first, last) of it; column j
    is centred at sample HOP j."""
    from torchaudio.transforms import MelSpectrogram

    mel = MelSpectrogram(
        SAMPLE_RATE, n_fft=POINTS, win_length=WINDOW, hop_length=HOP, n_mels=BANDS, f_min=40.0
    )

    def power(first: int, last: int) -> np.ndarray:
        """Of those columns, from the samples they see."""
        left = max(first * HOP - MARGIN, 0)
        part = np.ascontiguousarray(samples[left : last * HOP + MARGIN], np.float32)
        return mel(torch.from_numpy(part)).numpy()[:, first - left // HOP : last - left // HOP]

    columns = len(samples) // HOP + 1
    last = columns if last is None else min(last, columns)
    loudest = max(
        float(power(at, min(at + PIECE, columns)).max()) for at in range(0, columns, PIECE)
    )
    spectrum = np.concatenate(
        [power(at, min(at + PIECE, last)) for at in range(first, last, PIECE)], axis=1
    )
    return np.maximum(10 * np.log10(np.maximum(spectrum, 1e-20) / max(loudest, 1e-20)), -RANGE_DB)


def unit_blocks(
    runs: RunLength, grid: FrameGrid, span: tuple[float, float] = (0.0, math.inf)
) -> Iterator[Block]:
    """Every run within the span with the seconds it owns."""
    seconds = unit_samples(grid, runs) / grid.sample_rate
    for index in np.flatnonzero((seconds[1:] > span[0]) & (seconds[:-1] < span[1])):
        unit = int(runs.units[index])
        yield str(unit), float(seconds[index]), float(seconds[index + 1]), colour(unit)


def colour(unit: int) -> str:
    """Of a unit, always the same; hues go round by the golden ratio, so that units of near numbers
    look different."""
    light, strong = (0.80, 0.68, 0.74)[unit % 3], (0.62, 0.55, 0.45)[unit // 3 % 3]
    red, green, blue = colorsys.hls_to_rgb(unit * 0.6180339887 % 1, light, strong)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _draw_row(
    axes: list[Axes],
    mel: np.ndarray,
    begin: int,
    strips: Sequence[Sequence[Block]],
    row: tuple[float, float],
) -> None:
    """One row of the picture: axes[0] takes the spectrogram, the others a strip each. mel: from
    column `begin` on."""
    first, last = _columns(row)
    part = mel[:, first - begin : last - begin]
    left, right = ((first + at - 0.5) * HOP / SAMPLE_RATE for at in (0, part.shape[1]))
    extent = (left, right, 0, BANDS)
    axes[0].imshow(
        part,
        extent=extent,
        aspect="auto",
        origin="lower",
        cmap="magma",
        vmin=-RANGE_DB,
        vmax=0,
        interpolation="nearest",
    )
    axes[0].set_yticks([])
    axes[0].set_ylabel("mel", rotation=0, ha="right", va="center", color=INK)
    inches = INCHES * 0.95 / (row[1] - row[0])  # a second
    for ax, blocks, name in zip(axes[1:], strips, ("units", "phones"), strict=False):
        for label, start, end, fill in blocks:
            low, high = max(start, row[0]), min(end, row[1])
            if high <= low:
                continue
            ax.axvspan(start, end, facecolor=fill, edgecolor="white", linewidth=0.6)
            # a label stands in each block that is wide enough for it, upright or on its side
            size, wide = 7.5, (high - low) * inches * 72  # points
            turn = 0 if wide > 0.66 * size * len(label) else 90
            if not turn or wide > 0.9 * size:
                ax.text(
                    (low + high) / 2,
                    0.5,
                    label,
                    fontsize=size,
                    color=INK,
                    ha="center",
                    va="center",
                    rotation=turn,
                )
        ax.set_ylim(0, 1)
        ax.set_yticks([])
        ax.set_ylabel(name, rotation=0, ha="right", va="center", color=INK)
    axes[-1].set_xlim(*row)
    for ax in axes:
        ax.tick_params(
            bottom=ax is axes[-1], labelbottom=ax is axes[-1], color=RULE, labelcolor=INK
        )
        for spine in ax.spines.values():
            spine.set_color(RULE)
    ticks = np.arange(math.ceil(row[0] / 0.25 - 1e-9), math.floor(row[1] / 0.25 + 1e-9) + 1) * 0.25
    axes[-1].set_xticks(ticks, [f"{t:g} s" if t == int(t) else f"{t:.2f}" for t in ticks])
