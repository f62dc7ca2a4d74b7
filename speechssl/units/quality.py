"""`speechssl units evaluate` measures the quality of units.

The source is a prepared corpus, a manifest, a folder or a list, with or without known phones.
`evaluate_units` encodes its recordings, measures what can be measured of such a source
(`measures.py`), and draws. The measures are dictionaries with the names of `--out`.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.data.recordings import Recording, audio_id, list_recordings
from speechssl.data.records import Corpus, Passage, check_inside, load_corpus
from speechssl.data.tables import detect_delimiter, number_of, read_csv, read_header
from speechssl.encoders.encoder import single_threaded
from speechssl.errors import InputError, MissingExtra, report_set_aside
from speechssl.signal import ACTIVE
from speechssl.synth.minisqa import speak_pairs
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.features import UnitExtractor, load_extractor
from speechssl.units.fit import check_spectral
from speechssl.units.measures import (
    abx,
    bit_rate,
    oracle_ff1,
    purity,
    same_text,
    speaker_probe,
    stability,
    unit_edit_distance,
    usage,
)
from speechssl.units.options import Evaluate
from speechssl.units.phones import Phone, fill_all, phone_frames, read_alignment
from speechssl.units.picture import check_picture, draw_units, draw_violins

SPLIT = "test"
# of a distortion: times as fast, the pitch kept; frames move, so it is no `Condition`
STRETCH = "stretch@"
SPOKEN = 100  # questions of MiniSQA that are spoken twice
COLUMNS = {"audio", "text", "speaker"}
Phones = Mapping[str, Sequence[Phone]]  # by recording
Units = Mapping[str, RunLength]


@dataclass(frozen=True)
class Labelled:
    """A line of a list says who says what in a recording. group: what the speaker belongs to."""

    audio: str
    text: str
    speaker: str
    group: str


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
    labelled = read_labelled(o.source) if _is_labelled(o.source) else {}
    if o.split is not None and not is_corpus:
        raise InputError(
            f"{o.source} is not a prepared corpus and has no split {o.split}; leave out --split"
        )
    if o.violins and not labelled:
        raise InputError(
            "--violins draws the same-text distances of a list; give a .csv or .tsv with the "
            "columns audio, text and speaker"
        )
    distortions = parse_distortions(o)
    for path in filter(None, (o.picture, o.violins)):
        check_picture(path)
    with single_threaded(len(os.sched_getaffinity(0))) as pool:
        # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        torch.set_num_threads(1)
        extractor = None if o.encoder == "phones" else _load_extractor(o)
        corpus = load_corpus(o.source, o.split or SPLIT) if is_corpus else None
        recordings = _list_recordings(corpus, labelled, o)
        phones = _read_phones(corpus, recordings, o)
        values: dict[str, Any] = {}
        if extractor:
            units, seconds = _encode(extractor, recordings, pool, o, corpus is not None)
            items = [r for r in recordings if r.id in units]
            values = {"K": extractor.codebook.size, "precision": extractor.features.precision}
            values |= usage(list(units.values()), extractor.codebook.size)
            values |= bit_rate(list(units.values()), seconds)
            values |= _measure_phones(units, phones, extractor.grid)
            if corpus:
                values["oracle_ff1"] = oracle_ff1(corpus, units, extractor.grid)
            if distortions.cards:
                rows = _measure_stability(extractor, items, units, distortions, pool, o)
                values["stability"] = rows
            if o.picture:
                _draw_recording(o.picture, items, units, extractor.grid, phones, o)
            if labelled:
                values |= _measure_list(labelled, units, extractor.codebook.size, o)
        elif corpus is None or not all(r.id in phones for r in recordings):
            raise InputError(
                f"{o.source} has passages without phones; units that are phones need "
                "a prepared corpus that has them"
            )
        if corpus:
            values |= _phone_rate([corpus.passages[r.id] for r in recordings])
        return values | _measure_spoken_pairs(corpus, extractor, pool, o)


def _phone_rate(passages: Sequence[Passage]) -> dict[str, float]:
    """Return phones a second of the passages that have phones; nothing where none has."""
    spoken = [p for p in passages if p.phones]
    if not spoken:
        return {}
    count = sum(len(p.phones) for p in spoken)
    return {"phones_a_second": count / sum(p.seconds for p in spoken)}


def _load_extractor(o: Evaluate) -> UnitExtractor:
    if o.codebook is None:
        raise InputError(
            f"units of {o.encoder} need a codebook; name the file that `speechssl units fit` wrote"
        )
    return load_extractor(o.encoder, o.codebook, o.precision)


def _is_labelled(path: Path) -> bool:
    """Tell a list with labels, a .csv with texts or speakers or a .tsv that begins with all three
    columns, from a manifest."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv") or not path.is_file():
        return False
    names = {name.lower() for name in read_header(path)}
    return names >= COLUMNS if kind == ".tsv" else bool(names & {"text", "speaker"})


def read_labelled(path: Path) -> dict[str, Labelled]:
    """Read a list with the columns audio, text and speaker, and perhaps id and group: its lines by
    id (default: as of a manifest).

    audio is relative to the list. Raises InputError for a file that is no such list.
    """
    lines = read_csv(path, detect_delimiter(path))
    by_id: dict[str, Labelled] = {}
    stems = Counter(audio_id(line.get("audio", "").strip()) for line in lines)
    for number, raw in enumerate(lines, 2):
        line = {k: v.strip() for k, v in raw.items()}
        place = f"line {number} of {path}"
        lacking = sorted(name for name in COLUMNS if not line.get(name))
        if lacking:
            raise InputError(
                f"{place} has no {', '.join(lacking)}; begin the list with audio,text,speaker and "
                "complete every line"
            )
        audio = line["audio"]
        check_inside(path.parent, audio, place)
        stem = audio_id(audio)
        # a.wav and a.mp3: as of a folder
        name = line.get("id") or (stem if stems[stem] == 1 else audio)
        if name in by_id:
            raise InputError(f"{place} has {name} again; list every recording once")
        group = line.get("group") or path.stem
        by_id[name] = Labelled(audio, line["text"], line["speaker"], group)
    return by_id


def _list_recordings(
    corpus: Corpus | None, labelled: Mapping[str, Labelled], o: Evaluate
) -> list[Recording]:
    """List the recordings to look at, in order."""
    if labelled:
        folder = o.source.parent
        recordings = [Recording(name, folder / line.audio) for name, line in labelled.items()]
    elif corpus is None:
        recordings = list_recordings(o.source)
    else:
        recordings = [Recording(p.id, corpus.path(p), p.seconds) for p in corpus.passages.values()]
    recordings = recordings[: o.first]
    if not recordings or o.recording not in (None, *(r.id for r in recordings)):
        raise InputError(
            f"{o.source} has no recording {o.recording or 'in its split ' + (o.split or SPLIT)}; "
            "give another --recording or --split"
        )
    return recordings


def _read_phones(corpus: Corpus | None, recordings: Sequence[Recording], o: Evaluate) -> Phones:
    """Read the phones of the recordings that have some, of the alignment or else of the corpus."""
    aligned = read_alignment(o.alignment) if o.alignment else {}
    phones: dict[str, Sequence[Phone]] = {}
    if corpus:
        listed = {}
        for passage in corpus.passages.values():
            if passage.phones:
                listed[passage.id] = [(s.text, s.start, s.end) for s in passage.phones]
        phones |= fill_all(listed, {}, "the corpus")
    phones |= aligned
    if aligned and not any(r.id in phones for r in recordings):
        raise InputError(
            f"{o.alignment} has no recording of {o.source} (its first id is "
            f"{next(iter(aligned))}); make the ids match"
        )
    return phones


def _encode(
    extractor: UnitExtractor,
    recordings: Sequence[Recording],
    pool: Executor,
    o: Evaluate,
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
            f"no recording of {o.source} can be read (of the first of {len(failed)}: "
            f"{why}); restore the audio"
        )
    return units, total


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
        """Return the names of the distortions, in the order of `apply`."""
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


def _measure_phones(units: Units, phones: Phones, grid: FrameGrid) -> dict[str, float]:
    """Measure purity and PNMI on the recordings that have phones; nothing where none has."""
    aligned = [name for name in units if name in phones]
    if len(aligned) < len(units):
        _note(
            f"{len(units) - len(aligned)} of {len(units)} recordings have no --alignment and "
            "are left out of purity and PNMI"
        )
    if not aligned:
        return {}
    numbers: dict[str, int] = {}
    labels = [phone_frames(phones[name], grid, units[name].frames, numbers) for name in aligned]
    return purity([units[name].expand() for name in aligned], labels)


def _measure_stability(
    extractor: UnitExtractor,
    recordings: Sequence[Recording],
    units: Units,
    distortions: Distortions,
    pool: Executor,
    o: Evaluate,
) -> list[dict[str, Any]]:
    """Compare clean with distorted speech on `o.noisy` of the recordings: a row a distortion."""
    count = min(o.noisy, len(recordings))
    places = np.unique(np.linspace(0, len(recordings) - 1, count).round().astype(int))
    chosen = [recordings[i] for i in places]

    def encode(recording: Recording) -> list[RunLength]:
        distorted = distortions.apply(read_audio(recording.path), recording.id)
        return [extractor.units(samples) for samples in distorted]

    clean: list[RunLength] = []
    encoded: list[list[RunLength]] = []  # distorted versions of each of `clean`
    failed: dict[str, str] = {}
    futures = [pool.submit(encode, recording) for recording in chosen]
    bar = tqdm(chosen, desc="units of distorted speech", unit="file")
    for recording, future in zip(bar, futures, strict=True):
        try:
            encoded.append(future.result())
            clean.append(units[recording.id])
        except ValueError as error:  # faster, a short recording has not one frame
            failed[recording.id] = str(error)
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


def _measure_list(
    labelled: Mapping[str, Labelled], units: Units, size: int, o: Evaluate
) -> dict[str, Any]:
    """Measure same-text distances by groups, ABX and the speaker probe on the recordings that have
    units, and draw the violins."""
    lines = {name: line for name, line in labelled.items() if name in units}
    texts = [line.text for line in lines.values()]
    speakers = [line.speaker for line in lines.values()]
    groups = [line.group for line in lines.values()]
    sequences = [units[name].units for name in lines]
    try:
        rows = same_text(sequences, texts, speakers, groups, o.seed)
    except ValueError as error:
        raise InputError(
            f"{o.source}: {error}; list several texts, each by several speakers, or give the "
            "folder of the recordings, to measure what needs neither"
        ) from error
    if o.violins:
        draw_violins(o.violins, rows)
        _note(f"{o.violins}: distances of the same text and of other texts")
    measured = {row["groups"] for row in rows}
    for one, other in combinations_with_replacement(sorted(set(groups)), 2):
        name = one if one == other else f"{one} - {other}"
        if name not in measured:
            _note(
                f"same-text distance, {name}: nan (no text is spoken by two speakers, who say "
                "another text as well)"
            )
    for row in rows:
        del row["distances"]
    probe = speaker_probe([units[name] for name in lines], speakers, size, o.seed)
    return {"same_text": rows} | abx(sequences, texts, speakers, o.seed) | probe


def _draw_recording(
    picture: Path,
    recordings: Sequence[Recording],
    units: Units,
    grid: FrameGrid,
    phones: Phones,
    o: Evaluate,
) -> None:
    """Draw `o.recording`, or the first that has units."""
    chosen = [r for r in recordings if o.recording in (None, r.id)]
    if not chosen:
        _note(f"the recording {o.recording} was set aside, and is not drawn")
        return
    name, samples = chosen[0].id, read_audio(chosen[0].path)
    draw_units(picture, samples, units[name], grid, phones.get(name, ()), name, o.span)
    _note(f"{picture}: the units of {name}")


def _measure_spoken_pairs(
    corpus: Corpus | None, extractor: UnitExtractor | None, pool: Executor, o: Evaluate
) -> dict[str, Any]:
    """Compare sentences that two voices are made to speak (needs speechssl[synth]); MiniSQA only,
    whose questions are known. Without an extractor the units are phones."""
    if o.same_text == 0:
        return {}
    needed = bool(o.same_text) or extractor is None
    card = o.source / "card.json"
    if corpus is None or not card.is_file() or read_json(card).get("corpus") != "minisqa":
        if needed:
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
        if needed:
            raise
        _note(f"the same-text distance is left out: {error}")
        return {}
    utterances = [pair[0] for pair in spoken] + [pair[1] for pair in spoken]
    values: dict[str, Any] = {}
    if extractor:
        runs = pool.map(extractor.units, [utterance.samples for utterance in utterances])
        units = [x.units for x in runs]
    else:
        numbers: dict[str, int] = {}
        units = []
        for utterance in utterances:
            phones = [numbers.setdefault(p.text, len(numbers)) for p in utterance.phones]
            units.append(np.array(phones))
        values["K"] = len(numbers)
    texts = [str(n) for n in range(len(spoken))] * 2
    voices = ["one"] * len(spoken) + ["other"] * len(spoken)
    (row,) = same_text(units, texts, voices)
    return values | {name: row[name] for name in ("same_text_distance", "same_text_auc", "pairs")}


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
    for used in values.get("most_used", []):
        flat[f"unit {used['unit']}"] = used["share"]
    for row in values.get("stability", []):
        where = row["condition"] + (f" {row['snr_db']:g} dB" if row["snr_db"] is not None else "")
        flat[f"unit edit distance (UED), {where}"] = row["unit_edit_distance"]
        if "unit_error_rate" in row:
            flat[f"unit error rate, {where}"] = row["unit_error_rate"]
            flat[f"frames changed, {where}"] = row["frames_changed"]
    for row in values.get("same_text", []):
        flat[f"same-text distance, {row['groups']}"] = row["same_text_distance"]
        flat[f"other-text distance, {row['groups']}"] = row["other_text_distance"]
        flat[f"AUC, {row['groups']}"] = row["same_text_auc"]
    lines = []
    for name, value in flat.items():
        shown = f"{value:.3f}" if isinstance(value, float) else value
        if name in WHY and math.isnan(value):
            shown = f"nan ({WHY[name]})"
        lines.append(f"{name:>46}  {shown}")
    return lines


def _note(line: str) -> None:
    tqdm.write(line, file=sys.stderr)
