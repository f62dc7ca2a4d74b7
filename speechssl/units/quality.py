"""`speechssl units evaluate` measures the quality of units.

The source is a prepared corpus, a manifest or a folder, with or without known phones, or a list of
recordings with their texts and speakers. `evaluate_units` encodes the recordings and takes the
measures of `measures.py` that such a source allows. Measures are a dictionary, which `--out` writes
as JSON.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artifacts import write_json
from speechssl.audio import read_audio
from speechssl.augment import Distorter, parse_condition
from speechssl.data.files import detect_delimiter, parse_number, read_csv, read_header
from speechssl.data.recordings import Recording, list_recordings, make_audio_id
from speechssl.data.records import Corpus, check_inside, load_corpus
from speechssl.encoders.encoder import open_pool
from speechssl.encoders.store import refuse_if_all_failed
from speechssl.errors import InputError
from speechssl.processes import count_cores
from speechssl.results import name_condition
from speechssl.timing import RunLength
from speechssl.units.features import UnitExtractor, encode_each, load_extractor
from speechssl.units.measures import (
    abx,
    compare_texts,
    measure_bit_rate,
    measure_usage,
    oracle_ff1,
    probe_speakers,
    purity,
    unit_edit_distance,
)
from speechssl.units.options import Evaluate
from speechssl.units.phones import Phone, fill_all_gaps, number_phones, read_alignment
from speechssl.units.picture import draw_violins

# The distortion stretch@1.2 makes speech 1.2 times as fast and keeps its pitch. It moves frames in
# time, and is therefore no `Condition`.
STRETCH = "stretch@"
Phones = Mapping[str, Sequence[Phone]]  # by recording
Units = Mapping[str, RunLength]

LABELS = {  # measure -> what the terminal calls it
    "usage_entropy_bits": "entropy of the units' usage, bits",
    "usage_entropy_share": "its share of log2 K",
    "unused_units": "units that never occur",
    "units_a_second": "runs of units a second",
    "bits_a_second": "bits a second, of units",
    "bits_a_second_timed": "bits a second, of units and their lengths",
    "phone_purity": "phone purity",
    "cluster_purity": "cluster purity",
    "pnmi": "PNMI",
    "oracle_ff1": "FF1 of the best span of units",
    "abx_within": "ABX error within speakers, less is better",
    "abx_across": "ABX error across speakers, less is better",
    "speaker_accuracy": "accuracy of a speaker probe, less is better",
    "speaker_chance": "its accuracy by chance",
}
NOT_MEASURED = (
    "nan: the list lacks what is needed. ABX within speakers needs a text twice by one speaker, "
    "across speakers a text by two; the probe of speakers needs two with five recordings each"
)


@dataclass(frozen=True)
class LabelledRecording:
    """A labelled recording is a line of a list: a recording with its text and speaker."""

    audio: str
    text: str
    speaker: str
    group: str  # what the speaker belongs to, such as a synthesiser


def evaluate_units(o: Evaluate) -> dict[str, Any]:
    """Measure the quality of units; print and return the measures that this source allows. Raises
    InputError where there is no recording to measure."""
    with open_pool(count_cores()) as pool:
        torch.set_num_threads(1)  # for the reason in `fit.fit_units`
        measures = _measure_source(o, pool)
    if o.out:
        write_json(o.out, measures)
    print("\n".join(format_measures(measures)))
    return measures


def _measure_source(o: Evaluate, pool: Executor) -> dict[str, Any]:
    """Encode the recordings of `o.source` and measure their units. Returns the measures by name."""
    is_corpus = o.split is not None or any(o.source.glob("*/passages.jsonl"))
    corpus = load_corpus(o.source, o.split or "test") if is_corpus else None
    labelled = read_labelled(o.source) if _is_labelled(o.source) else {}
    if o.violins and not labelled:
        raise InputError(
            "--violins draws the same-text distances of a list; give a .csv or .tsv with the "
            "columns audio, text and speaker"
        )
    distortions = [parse_distortion(text, o) for text in o.conditions]
    recordings = _list_recordings(corpus, labelled, o)
    phones = _read_phones(corpus, recordings, o)
    extractor = load_extractor(o.encoder, o.codebook, o.precision, price=o.price)

    def encode(recording: Recording) -> RunLength:
        return extractor.extract(read_audio(recording.path))

    encoded = encode_each(pool, encode, recordings, len(recordings), "quality of units")
    units = {recording.id: runs for recording, runs in encoded}
    sequences = list(units.values())
    size = extractor.codebook.size
    measures = {"K": size, "precision": extractor.features.precision}
    measures |= measure_usage(sequences, size) | measure_bit_rate(sequences)
    measures |= _measure_phones(units, phones, extractor)
    if corpus:
        measures["oracle_ff1"] = oracle_ff1(corpus, units, extractor.grid)
    if distortions:
        usable = [r for r in recordings if r.id in units]
        rows = _measure_stability(extractor, usable, units, distortions, pool, o.noisy)
        measures["stability"] = rows
    if labelled:
        measures |= _measure_list(labelled, units, size, o)
    return measures


# ---- reading


def _is_labelled(path: Path) -> bool:
    """Return whether a file is a list with texts and speakers, and not a manifest."""
    if path.suffix.lower() not in (".csv", ".tsv") or not path.is_file():
        return False
    return {name.lower() for name in read_header(path)} >= {"text", "speaker"}


def read_labelled(path: Path) -> dict[str, LabelledRecording]:
    """Read a list with the columns audio, text and speaker, and perhaps id and group. Return its
    lines by id, which by default is made of the path as in a manifest.

    audio is relative to the list. Raises InputError for a file that is no such list.
    """
    by_id: dict[str, LabelledRecording] = {}
    for number, raw in enumerate(read_csv(path, detect_delimiter(path)), 2):
        line = {k.lower(): v.strip() for k, v in raw.items()}
        place = f"line {number} of {path}"
        lacking = [name for name in ("audio", "text", "speaker") if not line.get(name)]
        if lacking:
            raise InputError(f"{place} has no {', '.join(lacking)}; complete every line")
        audio = line["audio"]
        check_inside(path.parent, audio, place)
        name = line.get("id") or make_audio_id(audio)
        if name in by_id:
            raise InputError(f"{place} has {name} again; give every recording an id of its own")
        group = line.get("group") or path.stem
        by_id[name] = LabelledRecording(audio, line["text"], line["speaker"], group)
    return by_id


def _list_recordings(
    corpus: Corpus | None, labelled: Mapping[str, LabelledRecording], o: Evaluate
) -> list[Recording]:
    """List the recordings to measure, in order."""
    if labelled:
        folder = o.source.parent
        recordings = [Recording(name, folder / line.audio) for name, line in labelled.items()]
    elif corpus is None:
        recordings = list_recordings(o.source)
    else:
        recordings = [Recording(p.id, corpus.path(p)) for p in corpus.passages.values()]
    return recordings[: o.first]


def _read_phones(corpus: Corpus | None, recordings: Sequence[Recording], o: Evaluate) -> Phones:
    """Read the phones of the recordings that have some: from the alignment, else from the
    corpus."""
    phones: dict[str, Sequence[Phone]] = {}
    if corpus:
        listed = {}
        for passage in corpus.passages.values():
            if passage.phones:
                listed[passage.id] = [(s.text, s.start, s.end) for s in passage.phones]
        phones |= fill_all_gaps(listed, {}, "the corpus")
    if o.alignment:
        aligned = read_alignment(o.alignment)
        if not any(r.id in aligned for r in recordings):
            raise InputError(
                f"{o.alignment} has no recording of {o.source} (its first id is "
                f"{next(iter(aligned))}); make the ids match"
            )
        phones |= aligned
    return phones


# ---- phones, and distorted speech


def _measure_phones(units: Units, phones: Phones, extractor: UnitExtractor) -> dict[str, float]:
    """Measure purity and PNMI on the recordings that have phones; nothing where none has."""
    aligned = [name for name in units if name in phones]
    if not aligned:
        return {}
    if len(aligned) < len(units):
        tally = f"{len(aligned)} of {len(units)} recordings"
        print(f"purity and PNMI: of {tally}, which have phones", file=sys.stderr)
    numbers: dict[str, int] = {}  # phone -> its number, which `number_phones` gives
    units_of_frames, phones_of_frames = [], []
    left_out: dict[str, str] = {}  # id -> why its phones cannot be used
    for name in aligned:
        runs = units[name]
        try:
            frames = number_phones(phones[name], extractor.grid, runs.frames, numbers)
        except ValueError as error:
            left_out[name] = str(error)
            continue
        units_of_frames.append(runs.expand())
        phones_of_frames.append(frames)
    refuse_if_all_failed(left_out, len(aligned), "purity and PNMI")
    return purity(units_of_frames, phones_of_frames)


@dataclass(frozen=True)
class Distortion:
    """A distortion is applied to speech to measure the stability of its units."""

    card: dict[str, Any]  # its name, its SNR, and what the SNR is measured over
    # called with samples (N,) and the recording's id, which with the seed decides the noise
    apply: Callable[[np.ndarray, str], np.ndarray]


def parse_distortion(text: str, o: Evaluate) -> Distortion:
    """Read a condition of `evaluate qa`, or stretch@TIMES. Raises InputError for one that cannot be
    applied here."""
    if text.startswith(STRETCH):
        rate = parse_number(text.removeprefix(STRETCH))
        if rate is None or not 0.25 <= rate <= 4:
            raise InputError(f"{text} is no time-stretch; write stretch@1.2, from 0.25 to 4")
        stretched = {"condition": f"stretch {rate:g}", "snr_db": None}
        return Distortion(stretched, partial(_stretch, rate=rate))
    condition = parse_condition(text)
    distorter = Distorter(o.seed)
    distorter.check(condition)
    card = {"condition": condition.short, "snr_db": condition.snr_db} | distorter.describe(
        condition
    )
    del card["seed"]
    return Distortion(card, lambda samples, name: distorter.apply(samples, condition, name))


def _stretch(samples: np.ndarray, name: str, rate: float) -> np.ndarray:
    from librosa import effects  # type: ignore[attr-defined]  # slow to import

    stretched: np.ndarray = effects.time_stretch(samples, rate=rate)
    return stretched


def _measure_stability(
    extractor: UnitExtractor,
    recordings: Sequence[Recording],
    units: Units,
    distortions: Sequence[Distortion],
    pool: Executor,
    max_recordings: int,
) -> list[dict[str, Any]]:
    """Measure the unit edit distance between clean and distorted speech: a row a distortion.

    max_recordings: how many of the recordings are distorted, evenly spaced in their order.
    """
    count = min(max_recordings, len(recordings))
    places = np.unique(np.linspace(0, len(recordings) - 1, count).round().astype(int))
    encode = partial(_encode_distorted, extractor, distortions)
    chosen = [recordings[i] for i in places]
    encoded = list(encode_each(pool, encode, chosen, count, "units of distorted speech"))
    clean_units = [units[recording.id] for recording, _ in encoded]
    rows = []
    for number, distortion in enumerate(distortions):
        distorted_units = [by_distortion[number] for _, by_distortion in encoded]
        distance = unit_edit_distance(clean_units, distorted_units)
        row = {"recordings": len(clean_units), "unit_edit_distance": distance}
        rows.append(row | distortion.card)
    return rows


def _encode_distorted(
    extractor: UnitExtractor, distortions: Sequence[Distortion], recording: Recording
) -> list[RunLength]:
    """Return the units of a recording after each of the distortions."""
    clean = read_audio(recording.path)
    return [extractor.extract(d.apply(clean, recording.id)) for d in distortions]


# ---- the same text by several people


def _measure_list(
    labelled: Mapping[str, LabelledRecording], units: Units, size: int, o: Evaluate
) -> dict[str, Any]:
    """Measure same-text distances by groups, ABX and the speaker probe on the recordings that have
    units, and draw the violins."""
    names = [name for name in labelled if name in units]
    runs = [units[name] for name in names]
    sequences = [run.units for run in runs]
    texts = [labelled[name].text for name in names]
    speakers = [labelled[name].speaker for name in names]
    groups = [labelled[name].group for name in names]
    try:
        rows = compare_texts(sequences, texts, speakers, groups, o.seed)
    except ValueError as error:
        raise InputError(
            f"{o.source}: {error}; list several texts, each by several speakers, or give the "
            "folder of the recordings, to measure what needs neither"
        ) from error
    if o.violins:
        draw_violins(o.violins, rows)
    for row in rows:
        del row["distances"]
    probe = probe_speakers(runs, speakers, size, o.seed)
    return {"same_text": rows} | abx(sequences, texts, speakers, o.seed) | probe


def format_measures(values: dict[str, Any]) -> list[str]:
    """Format the measures as lines of text; nan where the list does not have what a measure
    needs."""
    flat = {k: v for k, v in values.items() if not isinstance(v, list)}
    for row in values.get("stability", []):
        condition = name_condition(row["condition"], row["snr_db"])
        flat[f"unit edit distance (UED), {condition}"] = row["unit_edit_distance"]
    for row in values.get("same_text", []):
        flat[f"distance of the same text, {row['groups']}"] = row["same_text_distance"]
        flat[f"distance of other texts, {row['groups']}"] = row["other_text_distance"]
        flat[f"AUC (1 is best), {row['groups']}"] = row["same_text_auc"]
    lines = []
    for name, value in flat.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        lines.append(f"{LABELS.get(name, name):>46}  {shown}")
    if any(isinstance(value, float) and math.isnan(value) for value in flat.values()):
        lines.append(NOT_MEASURED)
    return lines
