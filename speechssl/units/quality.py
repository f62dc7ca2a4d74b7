"""Measure and draw the quality of units: alike for different voices, and alike for one phone.

The source is a prepared corpus, a manifest, a folder or a list, with or without known phones. The
measures are dictionaries with the names of `speechssl units evaluate --out`. Phones are (name,
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
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations_with_replacement, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from tqdm import tqdm

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.data.files import (
    Recording,
    audio_id,
    detect_delimiter,
    list_recordings,
    number_of,
    read_csv,
    read_header,
    read_tiers,
)
from speechssl.data.records import Corpus, Passage, check_inside, load_corpus, read_lines
from speechssl.encoders.load import single_threaded
from speechssl.errors import InputError, MissingExtra, report_set_aside
from speechssl.results import INK, RULE, save_figure, style_figures
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
    values = _measure_source(o)
    if o.out:
        write_json(o.out, values)
    print("\n".join(format_measures(values)))
    return values


def _measure_source(o: Evaluate) -> dict[str, Any]:
    """Measure the units of `o.source`: the measures by name."""
    check_spectral(o.encoder, o.precision)
    is_corpus = any(o.source.glob("*/passages.jsonl"))
    if o.split is not None and not is_corpus:
        raise InputError(
            f"{o.source} is not a prepared corpus and has no split {o.split}; leave out --split"
        )
    distortions = parse_distortions(o)
    for path in filter(None, (o.picture, o.violins)):
        check_picture(path)
    labelled = read_labelled(o.source) if _is_labelled(o.source) else None
    if o.violins and labelled is None:
        raise InputError(
            "--violins draws the same-text distances of a list; give a .csv or .tsv with the "
            "columns audio, text and speaker"
        )
    with single_threaded(len(os.sched_getaffinity(0))) as pool:
        # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        torch.set_num_threads(1)
        extractor = None if o.encoder == "phones" else _load_extractor(o)
        corpus = load_corpus(o.source, o.split or SPLIT) if is_corpus else None
        recordings, phones = _list_recordings(corpus, o, labelled)
        values: dict[str, Any] = {}
        if extractor:
            values = _measure_extractor(
                extractor, recordings, phones, corpus, labelled, distortions, pool, o
            )
        elif corpus is None or not all(r.id in phones for r in recordings):
            raise InputError(
                f"{o.source} has passages without phones; units that are phones need "
                "a prepared corpus that has them"
            )
        if corpus:
            values |= _phone_rate([corpus.passages[r.id] for r in recordings])
        return values | _measure_spoken_pairs(corpus, extractor, pool, o)


def _load_extractor(o: Evaluate) -> UnitExtractor:
    if o.codebook is None:
        raise InputError(
            f"units of {o.encoder} need a codebook; name the file that `speechssl units fit` wrote"
        )
    return load_extractor(o.encoder, o.codebook, o.precision)


def _phone_rate(passages: Sequence[Passage]) -> dict[str, float]:
    """Return phones a second of the passages that have phones; nothing where none has."""
    spoken = [p for p in passages if p.phones]
    if not spoken:
        return {}
    phones, seconds = sum(len(p.phones) for p in spoken), sum(p.seconds for p in spoken)
    return {"phones_a_second": phones / seconds}


@dataclass(frozen=True)
class Distortions:
    """The distortions that stability is measured under: conditions, and rates of time-stretch."""

    conditions: list[Condition]
    stretches: list[float]
    distorter: Distorter

    def apply(self, samples: np.ndarray, name: str) -> list[np.ndarray]:
        """Distort samples (N,) once by each; the seed and the recording's name decide the noise."""
        from librosa import effects  # type: ignore[attr-defined]  # slow to import

        noisy = [self.distorter.apply(samples, c, name) for c in self.conditions]
        return noisy + [effects.time_stretch(samples, rate=rate) for rate in self.stretches]

    @property
    def cards(self) -> list[dict[str, Any]]:
        """The names of the distortions, in the order of `apply`."""
        noisy = [{"condition": c.short, "snr_db": c.snr_db} for c in self.conditions]
        return noisy + [{"condition": f"stretch {r:g}", "snr_db": None} for r in self.stretches]


def parse_distortions(o: Evaluate) -> Distortions:
    """Read `o.conditions`. Raises InputError for one that cannot be applied here."""
    conditions: list[Condition] = []
    stretches: list[float] = []
    distorter = Distorter(o.seed, snr_over=o.snr_over)
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
        condition = parse_condition(text)
        if any(step.kind == "babble" for step in condition.steps or [condition]):
            raise InputError(
                f"{text} needs the speech of other people, which is not at hand "
                "here; give another noise"
            )
        distorter.check(condition)
        conditions.append(condition)
    return Distortions(conditions, stretches, distorter)


COLUMNS = {"audio", "text", "speaker"}


def _is_labelled(path: Path) -> bool:
    """Tell a list with labels, a .csv with texts or speakers or a .tsv that begins with all three
    columns, from a manifest."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv") or not path.is_file():
        return False
    names = {name.lower() for name in read_header(path)}
    return names >= COLUMNS if kind == ".tsv" else bool(names & {"text", "speaker"})


def read_labelled(path: Path) -> dict[str, dict[str, str]]:
    """Read a list with the columns audio, text and speaker, and perhaps id and group: its lines by
    id (default: as of a manifest).

    audio is relative to the list. Raises InputError for a file that is no such list.
    """
    lines = read_csv(path, detect_delimiter(path))
    if not lines:
        raise InputError(
            f"{path} has no rows; give it a line audio,text,speaker and below it a "
            "line for each recording"
        )
    if missing := COLUMNS.difference(*lines):
        has = f"{path} has no column {', '.join(sorted(missing))}, but {', '.join(lines[0])}"
        raise InputError(f"{has}; begin it with the line audio,text,speaker")
    by_id: dict[str, dict[str, str]] = {}
    stems = Counter(audio_id(line["audio"].strip()) for line in lines)
    for number, raw in enumerate(lines, 2):
        line = {k: v.strip() for k, v in raw.items()}
        if not all(line.get(name) for name in COLUMNS):
            raise InputError(
                f"line {number} of {path} lacks audio, text or speaker; complete it or delete it"
            )
        check_inside(path.parent, line["audio"], f"line {number} of {path}")
        stem = audio_id(line["audio"])
        # a.wav and a.mp3: as of a folder
        name = line.get("id") or (stem if stems[stem] == 1 else line["audio"])
        if name in by_id:
            raise InputError(f"line {number} of {path} has {name} again; list every recording once")
        by_id[name] = {k: v for k, v in line.items() if k and v}
    for column, others in (
        ("speaker", "the same texts by other speakers"),
        ("text", "other texts by the same speakers"),
    ):
        values = {line[column] for line in by_id.values()}
        if len(values) == 1:
            raise InputError(
                f"all recordings of {path} have the {column} {values.pop()}, and texts are "
                f"compared across speakers; add {others}, "
                "or give the folder of the recordings, to measure what needs neither"
            )
    return by_id


def _measure_list(
    labelled: Mapping[str, Mapping[str, str]],
    units: Mapping[str, RunLength],
    size: int,
    o: Evaluate,
) -> dict[str, Any]:
    """Measure same-text distances by groups, ABX and the speaker probe on the recordings that have
    units, and draw the violins."""
    names = [name for name in labelled if name in units]
    texts = [labelled[name]["text"] for name in names]
    speakers = [labelled[name]["speaker"] for name in names]
    groups = [labelled[name].get("group", o.source.stem) for name in names]
    sequences = [units[name].units for name in names]
    try:
        rows = same_text(sequences, texts, speakers, groups, o.seed)
    except ValueError as error:
        raise InputError(
            f"{o.source}: {error}; list several texts, each by several speakers"
        ) from error
    if o.violins:
        draw_violins(o.violins, rows)
        _note(f"{o.violins}: distances of the same text and of other texts")
    plain = [{k: v for k, v in row.items() if k != "distances"} for row in rows]
    measured = {row["groups"] for row in rows}
    for one, other in combinations_with_replacement(sorted(set(groups)), 2):
        name = one if one == other else f"{one} - {other}"
        if name not in measured:
            _note(
                f"same-text distance, {name}: nan (no text is spoken by two speakers, who say "
                "another text as well)"
            )
    probe = speaker_probe([units[name] for name in names], speakers, size, o.seed)
    return {"same_text": plain} | abx(sequences, texts, speakers, o.seed) | probe


def draw_violins(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw a pair of violins for each row of `same_text`: the distances of pairs of recordings of
    the same text, beside those of other texts."""
    with style_figures(svg_hashsalt="units") as Figure:
        # at least as wide as the title
        figure = Figure(figsize=(max(4.8, 1.5 + 1.6 * len(rows)), 3.6), layout="constrained")
        ax = figure.subplots()
        for place, row in enumerate(rows):
            same, other = row["distances"]
            for distances, left, fill in ((same, -0.18, "#2f6fab"), (other, 0.18, "#b9bec6")):
                violin = ax.violinplot(
                    [distances], [place + left], widths=0.34, showmedians=True, showextrema=False
                )
                for body in violin["bodies"]:  # type: ignore[attr-defined]
                    body.set(facecolor=fill, alpha=0.9)
                violin["cmedians"].set_color(INK)
            ax.text(place, 1.04, f"AUC {row['same_text_auc']:.2f}", ha="center", color=INK)
        ax.set_xticks(range(len(rows)), [row["groups"].replace(" - ", "\n") for row in rows])
        ax.set(
            ylim=(0, 1.12),
            ylabel="edit distance of units / longer length",
            title="the same text (blue) and other texts (grey)",
        )
        save_figure(figure, path)


def _list_recordings(
    corpus: Corpus | None, o: Evaluate, labelled: Mapping[str, Mapping[str, str]] | None
) -> tuple[list[Recording], dict[str, Sequence[Phone]]]:
    """List the recordings to look at, in order, and the phones of those that have some, of the
    alignment or else of the corpus."""
    aligned = read_alignment(o.alignment) if o.alignment else {}
    phones: dict[str, Sequence[Phone]] = dict(aligned)
    if labelled is not None:
        folder = o.source.parent
        recordings = [Recording(name, folder / line["audio"]) for name, line in labelled.items()]
    elif corpus is None:
        recordings = list_recordings(o.source)
    else:
        phones = {**_phones_of_corpus(corpus), **aligned}
        recordings = [Recording(p.id, corpus.path(p), p.seconds) for p in corpus.passages.values()]
    if not recordings:
        raise InputError(
            f"{o.source / (o.split or SPLIT)} has no passages; name a split "
            "that has some with --split"
        )
    if aligned and not any(r.id in phones for r in recordings):
        first = next(iter(aligned))
        raise InputError(
            f"{o.alignment} has no recording of {o.source} (its first id is "
            f"{first}); make the ids match"
        )
    first_id = recordings[0].id
    recordings = recordings[: o.first]
    if o.recording is not None and o.recording not in [r.id for r in recordings]:
        raise InputError(
            f"{o.source} has no recording {o.recording} (its first is {first_id}); "
            "give another with --recording"
        )
    return recordings, phones


def _phones_of_corpus(corpus: Corpus) -> dict[str, list[Phone]]:
    readers: list[tuple[str, Callable[[], list[Phone]]]] = []
    for passage in corpus.passages.values():
        if passage.phones:
            phones = [(s.text, s.start, s.end) for s in passage.phones]
            readers.append((passage.id, partial(fill_gaps, phones, passage.id)))
    return read_phones(readers, "the corpus")


def _measure_extractor(
    extractor: UnitExtractor,
    recordings: Sequence[Recording],
    phones: Mapping[str, Sequence[Phone]],
    corpus: Corpus | None,
    labelled: Mapping[str, Mapping[str, str]] | None,
    distortions: Distortions,
    pool: Executor,
    o: Evaluate,
) -> dict[str, Any]:
    """Measure all that needs the units of the recordings, and draw the picture."""
    size, grid = extractor.codebook.size, extractor.grid
    units, seconds = _encode(extractor, recordings, pool, o.source, corpus is not None)
    items = [r for r in recordings if r.id in units]
    sequences = list(units.values())
    values = {"K": size, "precision": extractor.features.precision}
    values |= usage(sequences, size) | bit_rate(sequences, seconds)

    aligned = [r.id for r in items if r.id in phones]
    if len(aligned) < len(items):
        _note(
            f"{len(items) - len(aligned)} of {len(items)} recordings have no --alignment and "
            "are left out of purity and PNMI"
        )
    if aligned:
        numbers: dict[str, int] = {}
        labels = [phone_frames(phones[id], grid, units[id].frames, numbers) for id in aligned]
        values |= purity([units[id].expand() for id in aligned], labels)
    if corpus:
        values["oracle_ff1"] = oracle_ff1(corpus, units, grid)
    if distortions.conditions or distortions.stretches:
        values["stability"] = _measure_stability(extractor, items, units, distortions, pool, o)
    if o.picture:
        _draw_recording(o.picture, items, units, grid, phones, o)
    if labelled is not None:
        values |= _measure_list(labelled, units, size, o)
    return values


def _encode(
    extractor: UnitExtractor,
    recordings: Sequence[Recording],
    pool: Executor,
    source: Path,
    lengths_known: bool,
) -> tuple[dict[str, RunLength], float]:
    """Encode the recordings: units by id, and their seconds together, as a corpus says
    (lengths_known) or else as they are.

    Recordings that cannot be read are listed and counted. Raises InputError where none can.
    """

    def encode(recording: Recording) -> tuple[RunLength, float]:
        samples = read_audio(recording.path)
        seconds = recording.seconds if lengths_known else None
        return extractor.units(samples), seconds or len(samples) / SAMPLE_RATE

    units: dict[str, RunLength] = {}
    failed: dict[str, str] = {}
    total = 0.0
    futures = [pool.submit(encode, r) for r in recordings]
    bar = tqdm(recordings, desc="units", unit="file")
    for recording, future in zip(bar, futures, strict=True):
        try:
            units[recording.id], seconds = future.result()
            total += seconds
        except (InputError, ValueError) as error:
            failed[recording.id] = str(error)
    report_set_aside(failed, "quality of units")
    if not units:
        why = next(iter(failed.values()))
        raise InputError(
            f"no recording of {source} can be read (of the first of {len(failed)}: "
            f"{why}); restore the audio"
        )
    return units, total


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


def _measure_stability(
    extractor: UnitExtractor,
    recordings: Sequence[Recording],
    units: Mapping[str, RunLength],
    distortions: Distortions,
    pool: Executor,
    o: Evaluate,
) -> list[dict[str, Any]]:
    """Compare clean with distorted speech on `o.noisy` of the recordings: a row a distortion."""
    count = min(o.noisy, len(recordings))
    places = np.unique(np.linspace(0, len(recordings) - 1, count).round().astype(int))
    chosen = [recordings[i] for i in places]

    def encode(recording: Recording) -> list[RunLength] | str:
        """Return the units of every distorted version, or why there are none: faster, a short
        recording has not one frame."""
        distorted = distortions.apply(read_audio(recording.path), recording.id)
        try:
            return [extractor.units(samples) for samples in distorted]
        except ValueError as error:
            return str(error)

    jobs = pool.map(encode, chosen)
    bar = tqdm(jobs, total=len(chosen), desc="units of distorted speech", unit="file")
    clean: list[RunLength] = []
    encoded: list[list[RunLength]] = []  # distorted versions of each of `clean`
    failed: dict[str, str] = {}
    for recording, versions in zip(chosen, bar, strict=True):
        if isinstance(versions, str):
            failed[recording.id] = versions
        else:
            clean.append(units[recording.id])
            encoded.append(versions)
    report_set_aside(failed, "stability of units")
    rows = []
    for number, distorted in enumerate(zip(*encoded, strict=True)):
        row: dict[str, Any] = {
            "recordings": len(clean),
            "unit_edit_distance": unit_edit_distance(clean, distorted),
        }
        row |= distortions.cards[number]
        if number < len(distortions.conditions):
            row |= stability(clean, distorted)
            if distortions.conditions[number].noisy and o.snr_over != ACTIVE:
                row["snr_over"] = o.snr_over
        rows.append(row)
    return rows


def _draw_recording(
    picture: Path,
    recordings: Sequence[Recording],
    units: Mapping[str, RunLength],
    grid: FrameGrid,
    phones: Mapping[str, Sequence[Phone]],
    o: Evaluate,
) -> None:
    """Draw `o.recording`, or the first that has units."""
    chosen = [r for r in recordings if o.recording in (None, r.id)]
    if not chosen:
        raise InputError(
            f"the recording {o.recording} was set aside; give another with --recording"
        )
    name, samples = chosen[0].id, read_audio(chosen[0].path)
    draw_units(picture, samples, units[name], grid, phones.get(name, ()), name, o.span)
    _note(f"{picture}: the units of {name}")


def _measure_spoken_pairs(
    corpus: Corpus | None, extractor: UnitExtractor | None, pool: Executor, o: Evaluate
) -> dict[str, Any]:
    """Compare sentences that two voices are made to speak (needs speechssl[synth]); MiniSQA only,
    whose questions are known. Without an extractor the units are phones."""
    card = o.source / "card.json"
    wanted = corpus is not None and o.same_text != 0 and card.is_file()
    if corpus is None or not wanted or read_json(card).get("corpus") != "minisqa":
        if o.same_text or (extractor is None and o.same_text != 0):
            raise InputError(
                f"{o.source} is not a MiniSQA corpus, and only its questions can be synthesised in "
                "pairs; leave out --same-text"
            )
        return {}
    count = o.same_text or SPOKEN
    language = next(iter(corpus.passages.values())).language
    try:
        pairs = speak_pairs(language, o.split or SPLIT, count)
        spoken = list(tqdm(pairs, total=count, desc="synthesising pairs", unit="pair"))
    except MissingExtra as error:
        if o.same_text or extractor is None:
            raise
        _note(f"the same-text distance is left out: {error}")
        return {}
    utterances = [pair[0] for pair in spoken] + [pair[1] for pair in spoken]
    numbers: dict[str, int] = {}
    if extractor:
        runs = pool.map(extractor.units, [utterance.samples for utterance in utterances])
        units = [x.units for x in runs]
    else:
        units = []
        for utterance in utterances:
            phones = [numbers.setdefault(p.text, len(numbers)) for p in utterance.phones]
            units.append(np.array(phones))
    texts = [str(n) for n in range(len(spoken))] * 2
    voices = ["one"] * len(spoken) + ["other"] * len(spoken)
    (row,) = same_text(units, texts, voices)
    measures = {name: row[name] for name in ("same_text_distance", "same_text_auc", "pairs")}
    return measures if extractor else {"K": len(numbers)} | measures


WHY = {  # a value is missing
    "abx_within": "no speaker reads a text twice, and another one",
    "abx_across": "no text is spoken by two speakers, one of whom says another one",
    "speaker_accuracy": "fewer than two speakers have five recordings",
    "speaker_chance": "fewer than two speakers have five recordings",
    "pnmi": "all frames have one phone",
    "oracle_ff1": "no question has an answer with times",
}


def format_measures(values: dict[str, Any]) -> list[str]:
    """Format the measures as lines of text; beside one that is missing, say why it is."""
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
            "other_text_distance": "other-text distance",
            "same_text_auc": "AUC",
        }
        flat |= {f"{text}, {row['groups']}": row[name] for name, text in names.items()}
    shown = {k: f"{v:.3f}" if isinstance(v, float) else v for k, v in flat.items()}
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
    """Compare recordings of the same text by many people or synthesisers: a row for each pair of
    groups.

    A row is of all pairs of recordings by different speakers, or of PAIRS of them drawn by the
    seed. units[i]: run-length units (U,) of recording i; texts, speakers: what is said in it and by
    whom; groups: what the speaker belongs to, such as a synthesiser (none: all are one group). The
    distance, from 0 (alike) to 1, is of edits over the longer length; it predicts how well DUAL can
    learn from the units.

    A row has `groups`, `same_text_distance`, `other_text_distance`, `same_text_auc` (the chance
    that a pair of the same text is nearer than one of other texts), and `pairs` of the same text.
    Pairs of groups that share no text have no row. Raises ValueError where all are by one speaker
    or of one text, or where no text is spoken by two speakers of a group, or of two groups that say
    another text as well.
    """
    for values, what in ((speakers, "speaker"), (texts, "text")):
        if len(set(values)) == 1:
            raise ValueError(f"all recordings have the {what} {values[0]}")
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

    names = sorted(set(group))
    rows = []
    for i, first in enumerate(names):
        for second in names[i:]:
            forward = (group[one] == first) & (group[two] == second)
            backward = (group[one] == second) & (group[two] == first)
            a, b = one[forward | backward], two[forward | backward]
            same = text[a] == text[b]
            if same.all() or not same.any():
                continue
            near = draw_distances(a[same], b[same])
            far = draw_distances(a[~same], b[~same])
            rows.append(
                {
                    "groups": first if first == second else f"{first} - {second}",
                    "same_text_distance": float(near.mean()),
                    "other_text_distance": float(far.mean()),
                    "same_text_auc": auc(near, far),
                    "pairs": int(same.sum()),
                    "distances": (near, far),
                }
            )
    if not rows:
        raise ValueError("no text is spoken by two speakers, who say another text as well")
    return rows


def auc(near: np.ndarray, far: np.ndarray) -> float:
    """Return the probability that a draw of `near` is below one of `far`; ties count half."""
    far = np.sort(far)
    right = np.searchsorted(far, near, "right")
    left = np.searchsorted(far, near, "left")
    return float((len(far) - right + (right - left) / 2).mean() / len(far))


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
    (time-stretch). Raises ValueError without recordings.
    """
    if not clean:
        raise ValueError("there are no recordings")
    pairs = zip(clean, distorted, strict=True)
    return float(np.mean([normalised_distance(a.units, b.units) for a, b in pairs]))


def normalised_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Levenshtein distance divided by the longer length; 0 for two empty sequences."""
    return float(Levenshtein.normalized_distance(a.tolist(), b.tolist()))


def purity(units: Sequence[np.ndarray], phones: Sequence[np.ndarray]) -> dict[str, float]:
    """Compute the shares of frames whose unit's commonest phone is theirs, and the reverse, and
    PNMI.

    PNMI is the phone-normalised mutual information, I(phone; unit) / H(phone), which scikit-learn
    calls homogeneity (arXiv 2106.07447, section V-C). units[i], phones[i]: (T,) int of utterance i.
    With a single phone there is nothing to be known about it, and PNMI is NaN. Raises ValueError
    when there are no frames.
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
    """Return (T,) the number of the phone in the middle of every frame, that of SILENCE where there
    is none; `names` grows as phones appear.

    phones: (name, start, end) in seconds, in order, without overlap.
    """
    middles = (np.arange(frames) * grid.hop + grid.offset + grid.hop // 2) / grid.sample_rate
    starts = np.array([start for _, start, _ in phones], float)
    ends = np.array([end for _, _, end in phones], float)
    ids = np.array([names.setdefault(name, len(names)) for name, _, _ in phones], np.int64)
    places = np.searchsorted(starts, middles, side="right") - 1
    inside = places >= 0
    inside[inside] = middles[inside] < ends[places[inside]] + ROUNDING
    if inside.all():
        return ids[places]
    silence = names.setdefault(SILENCE, len(names))
    if not len(ids):
        return np.full(frames, silence)
    return np.where(inside, ids[np.maximum(places, 0)], silence)


def usage(units: Sequence[RunLength], size: int, most: int = 5) -> dict[str, Any]:
    """Count how often the units of a codebook of `size` occur, by frames; `most` of the commonest
    with their shares.

    The share of the entropy is of log2 K, which all units equally often would have; 1 for a
    codebook of one. Raises ValueError when there are no frames.
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
    """Return the bits of a draw from symbols with these counts."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # never -0.0


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
        "bits_a_second": rate * entropy(alone),
        "bits_a_second_timed": rate * entropy(timed),
    }


def stability(clean: Sequence[RunLength], noisy: Sequence[RunLength]) -> dict[str, float]:
    """Measure what a distortion does to units of clean speech: their error rate, which counts edits
    of run-length units as a word error rate counts words, and the share of frames that change.

    clean[i], noisy[i]: the units of recording i, of the same number of frames. Raises ValueError
    when there are none.
    """
    if not sum(map(len, clean)):
        raise ValueError("there are no units")
    pairs = list(zip(clean, noisy, strict=True))
    edits = sum(Levenshtein.distance(a.units.tolist(), b.units.tolist()) for a, b in pairs)
    changed = np.concatenate([a.expand() != b.expand() for a, b in pairs])
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
    """Read the phones of recordings, by id.

    path: a .jsonl of {"id", "phones": [[name, start, end], ...]}, a .TextGrid, or a folder of them,
    in which the id is the path below the folder without its suffix. Recordings whose phones cannot
    be used are listed and left out. Raises InputError for a file that cannot be read, an id that
    comes twice, and where no recording can be used.
    """
    if path.suffix.lower() == ".jsonl":
        return read_phones(_phone_lines(path), str(path))
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    grids = [p for p in files if p.suffix.lower() == ".textgrid" and p.is_file()]
    if not grids:
        raise InputError(
            f"{path} contains no alignment; give a .jsonl, a .TextGrid or a folder of TextGrids"
        )
    folder = path if path.is_dir() else path.parent
    names = [p.relative_to(folder).with_suffix("").as_posix() for p in grids]
    readers = [partial(read_textgrid, p) for p in grids]
    return read_phones(zip(names, readers, strict=True), str(path))


def read_phones(
    recordings: Iterable[tuple[str, Callable[[], list[Phone]]]], where: str
) -> dict[str, list[Phone]]:
    """Read the phones of recordings, each by its function: those that can be had by id; the others
    are listed. Raises the first's InputError if all are."""
    by_id: dict[str, list[Phone]] = {}
    failed: dict[str, InputError] = {}
    for name, read in recordings:
        try:
            by_id[name] = read()
        except InputError as error:
            failed[name] = error
    if failed and not by_id:
        raise next(iter(failed.values()))
    report_set_aside({name: str(error) for name, error in failed.items()}, f"phones of {where}")
    return by_id


def _phone_lines(path: Path) -> Iterator[tuple[str, Callable[[], list[Phone]]]]:
    lines: dict[str, int] = {}
    for number, values in read_lines(path):
        where = f"{path}:{number}"
        try:
            name = str(values["id"])
            phones = [(str(n), float(a), float(b)) for n, a, b in values["phones"]]
        except (KeyError, TypeError, ValueError) as error:
            shape = '{"id": ..., "phones": [[name, start, end], ...]}'
            raise InputError(f"{where} is not {shape} ({error!r}); correct the line") from error
        if name in lines:
            raise InputError(
                f"{where} has the id {name}, as line {lines[name]} has; give each "
                "recording one line"
            )
        lines[name] = number
        yield name, partial(fill_gaps, phones, where)


def read_textgrid(path: Path) -> list[Phone]:
    """Read the intervals of the tier of phones of a TextGrid, long or short, in UTF-8 or UTF-16."""
    tiers = read_tiers(path)
    phones = [intervals for name, intervals in tiers if TIERS.search(name) or len(tiers) == 1]
    if len(phones) != 1:
        names = ", ".join(name for name, _ in tiers)
        raise InputError(
            f"{path} has the interval tiers {names or 'none'}; name one of them "
            "phones, and no other"
        )
    return fill_gaps(phones[0], str(path))


def fill_gaps(phones: Sequence[Phone], where: str) -> list[Phone]:
    """Fill the gaps between phones with silence, and call pauses so; those of no length go,
    overlaps of up to OVERLAP belong to the earlier.

    Raises InputError for times that are not finite or do not go forward.
    """
    filled: list[Phone] = []
    at = 0.0
    for name, start, end in phones:
        finite = math.isfinite(start) and math.isfinite(end)
        if not finite or end < start or start < at - OVERLAP - 1e-6:
            raise InputError(
                f"{where}: the phone {name} has the times [{start}, {end}) s after "
                f"{at} s; phones must be in order"
            )
        if end <= max(start, at):
            continue
        if start > at + 1e-6:
            filled.append((SILENCE, at, start))
        label = SILENCE if name.strip() in PAUSES else name.strip()
        filled.append((label, at if start < at - 1e-6 else start, end))
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
# what is there of them shows what DejaVu has not
FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
    "Droid Sans Fallback",
    "Noto Sans",
    "Arial Unicode MS",
)
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
    """Draw [start, end) seconds (None: all) of samples (N,) at 16 kHz: log-mel spectrogram, units,
    phones.

    A unit is drawn over the samples it owns, a column of the spectrogram around its middle: what
    stands above each other is at the same time, to the sample. Raises InputError for another suffix
    than .png, .svg or .pdf, and for a span that holds nothing or too much.
    """
    from matplotlib.font_manager import get_font_names

    check_picture(path)
    seconds = len(samples) / SAMPLE_RATE
    rows = _split_span(span or (0.0, seconds), seconds)
    strips = [list(unit_blocks(runs, grid, (rows[0][0], rows[-1][1])))]
    if phones:
        fills = cycle([SILENT, "white"])
        strips.append([(*phone, fill) for phone, fill in zip(phones, fills, strict=False)])
    title = (
        f"{title}   {len(runs)} units of {runs.frames} frames in {seconds:.2f} s, "
        f"{len(runs) / seconds:.1f} a second"
    ).strip()
    first = _columns(rows[0])[0]
    mel = log_mel(samples, first, _columns(rows[-1])[1])
    # matplotlib warns of those it lacks
    fonts = ["DejaVu Sans", *(name for name in FONTS if name in set(get_font_names()))]
    look = {"font_family": fonts, "font_size": 8, "axes_grid": False, "svg_hashsalt": "units"}
    with style_figures(**look) as Figure, warnings.catch_warnings():
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


def _split_span(span: tuple[float, float], seconds: float) -> list[tuple[float, float]]:
    """Split a span of a recording into rows of ROW_SECONDS, or one that is shorter."""
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
    return [(start + i * length, start + (i + 1) * length) for i in range(count)]


def check_picture(path: Path) -> None:
    """Raise InputError where a picture cannot be written by this name."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot draw a picture as {path}; end its name in {', '.join(SUFFIXES)}")


def _columns(row: tuple[float, float]) -> tuple[int, int]:
    """Return the columns [first, last) of the spectrogram from before the row to after it."""
    first = math.floor(row[0] * SAMPLE_RATE / HOP) - 1
    last = math.ceil(row[1] * SAMPLE_RATE / HOP) + 2
    return max(first, 0), last


def log_mel(samples: np.ndarray, first: int = 0, last: int | None = None) -> np.ndarray:
    """Compute the log-mel spectrogram (BANDS, C) in decibels below the loudest of the recording:
    its columns [first, last), of which column j is centred at sample HOP j."""
    from torchaudio.transforms import MelSpectrogram

    mel = MelSpectrogram(
        SAMPLE_RATE, n_fft=POINTS, win_length=WINDOW, hop_length=HOP, n_mels=BANDS, f_min=40.0
    )

    def power(first: int, last: int) -> np.ndarray:
        """Compute those columns from the samples they see."""
        left = max(first * HOP - MARGIN, 0)
        part = np.ascontiguousarray(samples[left : last * HOP + MARGIN], np.float32)
        return mel(torch.from_numpy(part)).numpy()[:, first - left // HOP : last - left // HOP]

    columns = len(samples) // HOP + 1
    last = columns if last is None else min(last, columns)
    loudest = 1e-20
    for at in range(0, columns, PIECE):
        loudest = max(loudest, float(power(at, min(at + PIECE, columns)).max()))
    pieces = [power(at, min(at + PIECE, last)) for at in range(first, last, PIECE)]
    spectrum = np.maximum(np.concatenate(pieces, axis=1), 1e-20)
    return np.maximum(10 * np.log10(spectrum / loudest), -RANGE_DB)


def unit_blocks(
    runs: RunLength, grid: FrameGrid, span: tuple[float, float] = (0.0, math.inf)
) -> Iterator[Block]:
    """Yield every run within the span, with the seconds it owns."""
    seconds = unit_samples(grid, runs) / grid.sample_rate
    for index in np.flatnonzero((seconds[1:] > span[0]) & (seconds[:-1] < span[1])):
        unit = int(runs.units[index])
        yield str(unit), float(seconds[index]), float(seconds[index + 1]), colour(unit)


def colour(unit: int) -> str:
    """Return the colour of a unit, always the same; hues go round by the golden ratio, so that
    units of near numbers look different."""
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
    """Draw one row of the picture: axes[0] takes the spectrogram, the others a strip each. mel:
    from column `begin` on."""
    first, last = _columns(row)
    part = mel[:, first - begin : last - begin]
    left = (first - 0.5) * HOP / SAMPLE_RATE
    right = (first + part.shape[1] - 0.5) * HOP / SAMPLE_RATE
    axes[0].imshow(
        part,
        extent=(left, right, 0, BANDS),
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
            size = 7.5  # points
            wide = (high - low) * inches * 72
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
