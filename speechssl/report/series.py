"""Which systems, conditions and metrics the rows hold: order, names and colours, and a cell for each combination."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speechssl.evaluation.results import DEFAULT, Row

# Okabe and Ito (2008), safe for colour-blind readers. Yellow is kept for the gold answers. The second colour of a
# pair is the same hue, lighter, for dark backgrounds.
PALETTE = (
    ("#0072b2", "#4ba6e3"),  # blue
    ("#d55e00", "#f28a45"),  # vermillion
    ("#009e73", "#35c39a"),  # bluish green
    ("#cc79a7", "#e0a2c4"),  # reddish purple
    ("#e69f00", "#f2b93b"),  # orange
    ("#56b4e9", "#8fd0f5"),  # sky blue
    ("#666666", "#b5b5b5"),  # grey, in the place of black
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SYSTEMS = {
    "dual": "DUAL",
    "cascade": "Cascade",
    "cascade-ctc": "Cascade (CTC)",
    "cascade-pocketsphinx": "Cascade (PocketSphinx)",
    "speechbert": "SpeechBERT",
    "ks": "KS (keywords)",
    "ic": "IC (intents)",
    "sid": "SID (speakers)",
    "style": "Style",
    "asr": "ASR (CTC)",
    "units": "Units",
    "pr": "PR (phones)",
    "qbe": "QbE (spoken terms)",
    "asv": "ASV (verification)",
    "sd": "SD (diarisation)",
    "sf": "SF (slots)",
    "er": "ER (emotions)",
    "se": "SE (enhancement)",
    "ss": "SS (separation)",
}
CONDITIONS = {
    "clean": "Clean speech",
    "written": "As written",
    "reverb": "Reverberation",
    "pink": "Pink noise",
    "gaussian": "Gaussian noise",
}
READERS = ("text", "cascade-given", "cascade-simulated", "chance", "longest-option")  # systems that hear nothing, before any @
METRICS = {  # in the order of the page: short name, what it is
    "ff1": ("FF1", "frame F1 of the answer's time span against the gold span"),
    "aos": ("AOS", "audio overlap score: intersection over union of the two time spans"),
    "f1": ("F1", "token F1 of the answer's text"),
    "em": ("EM", "exact match of the answer's text"),
    "set_accuracy": ("set accuracy", "share of the questions for which all right options and no other are chosen"),
    "accuracy": ("accuracy", "share of the questions with one right option for which it is chosen"),
    "wer": ("WER", "word error rate of the transcript"),
    "cer": ("CER", "character error rate of the transcript"),
    "acc": ("accuracy", "share of the recordings that are classified rightly"),
    "unit_error": ("unit error", "edits between the units of distorted and of clean speech, over the units of clean speech"),
    "per": ("PER", "phone error rate"),
    "wer_lm": ("WER with LM", "word error rate of the transcript, decoded with an n-gram language model"),
    "mtwv": ("MTWV", "maximum term-weighted value, times 100"),
    "eer": ("EER", "equal error rate: where as many impostors are let in as speakers are turned away"),
    "der": ("DER", "diarisation error rate: time missed, wrongly claimed or given to another speaker, over the time spoken"),
    "slot_f1": ("slot F1", "F1 of the slot types"),
    "slot_cer": ("slot CER", "character error rate of the values of the slots"),
    "pesq": ("PESQ", "perceptual evaluation of speech quality (wide band), from 1 to 4.6"),
    "stoi": ("STOI", "short-time objective intelligibility, times 100"),
    "si_sdr": ("SI-SDR", "scale-invariant signal-to-distortion ratio"),
    "si_sdri": ("SI-SDRi", "scale-invariant signal-to-distortion ratio, gained over the mixture"),
    "ratio_cached": ("speed-up", "time with the encoder in the loop over time from cached features"),
}


@dataclass(frozen=True)
class Series:
    """One line of a figure. slot: index into PALETTE and MARKERS (after seven a colour comes again with another marker)."""

    system: str
    encoder: str
    label: str
    slot: int

    @property
    def colour(self) -> str:
        return PALETTE[self.slot % len(PALETTE)][0]

    @property
    def marker(self) -> str:
        return MARKERS[(self.slot + self.slot // len(PALETTE)) % len(MARKERS)]


@dataclass(frozen=True)
class Condition:
    """snr_db: signal-to-noise ratio in dB, None where there is none."""

    name: str
    snr_db: float | None = None

    @property
    def family(self) -> str:
        return CONDITIONS.get(self.name, self.name.replace("_", " ").replace("-", " ").capitalize())

    @property
    def label(self) -> str:
        return self.family if self.snr_db is None else f"{self.family}, {decibels(self.snr_db)}"


@dataclass(frozen=True)
class Cell:
    """One number. low, high: 95 % interval or None. n: questions or None. seeds: how many runs it is the mean of.

    drawn, groups: what the interval draws, and of how many (`Row`).
    """

    value: float
    low: float | None
    high: float | None
    n: int | None
    seeds: int = 1
    drawn: str = ""
    groups: int = 0


@dataclass(frozen=True)
class Results:
    """The rows, arranged. Cells whose value is not finite are absent."""

    series: tuple[Series, ...]
    cells: dict[tuple[Series, str, Condition], Cell]

    @property
    def metrics(self) -> tuple[str, ...]:
        """METRICS first, in their order; then the others by name."""
        found = {metric for _, metric, _ in self.cells}
        return tuple(m for m in METRICS if m in found) + tuple(sorted(found - set(METRICS)))

    @property
    def recognition(self) -> str:
        """What recognition errors are counted in: words, or characters where nothing else was counted (Chinese)."""
        return "cer" if self.having("cer") and not self.having("wer") else "wer"

    def conditions(self, metric: str) -> tuple[Condition, ...]:
        """Clean first, then by name, easiest signal-to-noise ratio first."""
        return tuple(sorted({c for _, m, c in self.cells if m == metric}, key=_severity))

    def having(self, metric: str) -> tuple[Series, ...]:
        found = {s for s, m, _ in self.cells if m == metric}
        return tuple(s for s in self.series if s in found)

    def get(self, series: Series, metric: str, condition: Condition) -> Cell | None:
        return self.cells.get((series, metric, condition))

    def named(self, system: str) -> Series | None:
        """The series that a prediction or a breakdown calls `system`: its system, its label or `system/encoder`."""
        return next((s for s in self.series if system in (f"{s.system}/{s.encoder}", s.label, s.system)), None)


def arrange(rows: Iterable[Row], also: Sequence[str] = ()) -> Results:
    """Sort rows into cells; rows that differ in their seed alone are averaged, of rows that differ in their
    card alone the last counts (as in `evaluation.results.table`).

    also: systems that occur in examples or breakdowns, so that they get a colour even without rows.
    Where none of all these listens, "clean" is not of speech: the condition is "written".
    """
    rows = list(rows)
    deaf = not any(listens(system) for system in (*(row.system for row in rows), *also))
    groups: dict[tuple[tuple[str, str], str, Condition], dict[int, Row]] = {}
    names: list[tuple[str, str]] = []
    for row in rows:
        name = (row.system, row.encoder or "")
        if name not in names:
            names.append(name)
        if math.isfinite(row.value):
            key = (
                name,
                row.metric.lower(),
                Condition("written" if deaf and row.condition == "clean" else row.condition, _number(row.snr_db)),
            )
            groups.setdefault(key, {})[row.seed] = row
    series = _series(names, also)
    by_name = {(s.system, s.encoder): s for s in series}
    return Results(series, {(by_name[n], m, c): _cell(list(g.values())) for (n, m, c), g in groups.items()})


def listens(system: str) -> bool:
    """Whether a system, by its name, hears anything."""
    return system.partition("@")[0] not in READERS


def decibels(snr_db: float) -> str:
    return f"{snr_db:g}\u00a0dB".replace("-", "\u2212")


def metric_name(metric: str) -> str:
    if metric.endswith(DEFAULT):
        return f"{metric_name(metric.removesuffix(DEFAULT))} at the default learning rate"
    return METRICS[metric][0] if metric in METRICS else metric.upper() if len(metric) <= 4 else metric.replace("_", " ")


def _series(names: list[tuple[str, str]], also: Sequence[str]) -> tuple[Series, ...]:
    known = {n for system, encoder in names for n in (system, f"{system}/{encoder}")}
    names = names + [(system, "") for system in dict.fromkeys(also) if system not in known]
    order = list(SYSTEMS)
    names.sort(key=lambda n: (order.index(n[0]) if n[0] in order else len(order), n))
    systems = [system for system, _ in names]
    return tuple(Series(s, e, _label(s, e, systems.count(s) > 1), slot) for slot, (s, e) in enumerate(names))


def _label(system: str, encoder: str, ambiguous: bool) -> str:
    label = SYSTEMS.get(system, system)
    return f"{label} · {encoder}" if ambiguous and encoder else label


def _cell(rows: Sequence[Row]) -> Cell:
    """Mean over seeds; the interval then reaches from the least lower to the greatest upper end."""
    lows, highs = [_number(r.low) for r in rows], [_number(r.high) for r in rows]
    known = [(a, b) for a, b in zip(lows, highs, strict=True) if a is not None and b is not None]
    low, high = (min(a for a, _ in known), max(b for _, b in known)) if len(known) == len(rows) else (None, None)
    return Cell(sum(r.value for r in rows) / len(rows), low, high, rows[0].n or None, len(rows), rows[0].drawn, rows[0].groups)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _severity(condition: Condition) -> tuple[bool, str, float]:
    return condition.name != "clean", condition.name, -math.inf if condition.snr_db is None else -condition.snr_db
