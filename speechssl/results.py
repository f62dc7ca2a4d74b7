"""Tidy results: one JSON line for every value that was measured, kept in one file that can be appended to again and
again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.io import locked, write_text
from speechssl.stats import Interval

DEFAULT = "_default"  # ends the name of a metric: the same at the default learning rate, not at the one chosen on dev
_ERRORS = ("wer", "wer_lm", "cer", "per", "eer", "der", "slot_cer", "unit_error", "min_dcf")
LOWER_IS_BETTER = frozenset({*_ERRORS, *(f"{metric}{DEFAULT}" for metric in _ERRORS)})  # metrics
CASCADE = "cascade"  # what a cascade's name begins with, which DUAL is compared with
BY_A_RECOGNISER = (CASCADE, "speechbert")  # systems that are left out of averages over tasks: they suffer where `asr` does
AGAINST_ITSELF = ("unit_error",)  # metrics of an encoder against its own clean speech: a collapsed one has no error
UNITS = {
    "si_sdr": "dB",
    "si_sdri": "dB",
    "pesq": "",
    "min_dcf": "",
    "ratio_cached": "×",
}  # of metrics that are not percent; "": a scale of its own
Key = tuple[str, str, str, float | None, str, int, str]


@dataclass(frozen=True)
class Row:
    """One measured value.

    value, low, high: percent, or what UNITS has; [low, high] is the confidence interval, None where there is none. n: items
    it is a mean over. drawn, groups: what the bootstrap drew and of how many ("voice", 8; `bootstrap.choose_units`); "", 0: none.
    """

    system: str  # "dual", "cascade-ctc", "cascade-pocketsphinx", ...; or a task: "ks", "asr", "units", ...
    encoder: str
    condition: str  # "clean", "pink", "babble", ...; of the robustness grid "seen-m+g+r", "unseen-kitchen", ...
    snr_db: float | None  # None where the condition has no signal-to-noise ratio
    metric: str  # "ff1", "aos", "em", "f1", "wer", "acc", "eer", "si_sdri", ..., "unit_error"; "wer_default", ..., "ratio_cached"
    value: float
    low: float | None
    high: float | None
    n: int
    seed: int
    card: str | Mapping[str, Any]  # what made it: a hash, or the settings themselves
    drawn: str = ""  # "voice", "passage", "recording", "query"; of folds and means all that were drawn, joined by ", "
    groups: int = 0

    @classmethod
    def of(
        cls,
        interval: Interval,
        system: str,
        encoder: str,
        condition: str,
        snr_db: float | None,
        metric: str,
        seed: int = 0,
        card: str | Mapping[str, Any] = "",
    ) -> Row:
        """A row in percent from an interval of fractions."""
        v, about = interval.percent, (system, encoder, condition, snr_db, metric)
        return cls(*about, v.value, *v.ends, v.n, seed, card, v.drawn, v.groups)

    @property
    def key(self) -> Key:
        """What a row is about: of two rows with one key the later replaces the earlier."""
        card = json.dumps(self.card, sort_keys=True, ensure_ascii=False)
        snr = None if self.snr_db is None else float(self.snr_db)
        return self.system, self.encoder, self.condition, snr, self.metric, int(self.seed), card


def unit(metric: str) -> str:
    """What the values of a metric are in: "%", "dB", "×", or nothing."""
    return UNITS.get(metric.lower().removesuffix(DEFAULT), "%")


def decimals(metric: str) -> int:
    """How many to print."""
    return 1 if unit(metric) in ("%", "dB") else 2


def averaged(tasks: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Which of some tasks (name and metric) averages over tasks are of: not units, nor systems that need a recogniser.

    Where there are no others, the latter. Units compare an encoder with itself, so that one whose units never change would win.
    """
    fair = [t for t in tasks if t[1] not in AGAINST_ITSELF]
    return [t for t in fair if not t[0].startswith(BY_A_RECOGNISER)] or fair


def append_rows(path: Path | str, rows: Iterable[Row], any_card: bool = False) -> None:
    """Add rows to a results file; a row with the key of an older one replaces it. The same rows again change nothing.

    any_card: a row replaces those as well that differ from it in the card, so that nothing is told twice.
    The file is whole at any time (written beside and renamed); processes that append at the same time wait in turn.
    Raises InputError for a damaged file, ValueError for a value that is not finite or an interval the wrong way round.
    """
    path = Path(path)
    new = [Row(**_plain(row)) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        old = read_rows(path) if path.exists() else ()
        cells = {row.key[:-1]: row.key for row in new} if any_card else {}
        kept = [row for row in old if cells.get(row.key[:-1], row.key) == row.key]
        merged = {row.key: row for row in (*kept, *new)}
        if tuple(merged.values()) != old or not path.exists():
            lines = (json.dumps(asdict(row), ensure_ascii=False, allow_nan=False) + "\n" for row in merged.values())
            write_text(path, "".join(lines))


def _plain(row: Row) -> dict[str, Any]:
    """A row as JSON values, numpy's scalars made Python's. Raises ValueError for what `read_rows` would refuse."""
    values = asdict(row) | {"card": row.card if isinstance(row.card, str) else dict(row.card)}
    for name in ("snr_db", "value", "low", "high"):
        values[name] = None if values[name] is None else float(values[name])
    values |= {"n": int(row.n), "seed": int(row.seed), "groups": int(row.groups)}
    for name, value in values.items():
        if not _fits(name, value):
            raise ValueError(f"the {row.metric} of {row.system} has {value!r} for {name}")
    if row.low is not None and row.high is not None and row.low > row.high:
        raise ValueError(f"the interval [{row.low}, {row.high}] is the wrong way round")
    return values


def read_rows(path: Path | str) -> tuple[Row, ...]:
    """All rows of a results file, in order. Raises InputError naming file and line for a missing or damaged file."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # not splitlines: a JSON string may hold U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the results {path} ({error}); run the evaluation that writes them") from error
    return tuple(_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip())


def _parse(line: str, place: str) -> Row:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise InputError(f"{place} is not JSON ({error}); remove the line and run its evaluation again") from error
    names = {field.name: field.default is MISSING for field in fields(Row)}  # and whether a line must have it
    if not isinstance(values, dict) or set(values) - set(names) or {name for name, must in names.items() if must} - set(values):
        raise InputError(f"{place} is not a result with the fields {', '.join(names)}; remove the line")
    for name in values:
        if not _fits(name, values[name]):
            raise InputError(f"{place} has {values[name]!r} for {name}; remove the line and run its evaluation again")
    return Row(**values)


def _fits(name: str, value: Any) -> bool:
    if name in ("snr_db", "low", "high") and value is None:
        return True
    if name in ("snr_db", "low", "high", "value"):
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if name in ("n", "seed", "groups"):
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, (str, dict) if name == "card" else str)


def table(rows: Iterable[Row]) -> str:
    """A table for the terminal: a block a metric, a line a system, a column a condition, value [low, high].

    Where a cell has rows of several seeds, their mean, the number of seeds and the range over the intervals are shown.
    Of rows that differ in their card alone the last one is shown. Systems come in order of appearance; conditions
    without a signal-to-noise ratio first, then by name and from the quietest noise to the loudest.
    """
    rows = list(rows)
    blocks = []
    for metric in dict.fromkeys(row.metric for row in rows):
        mine = [r for r in rows if r.metric == metric]
        columns = sorted({(r.condition, r.snr_db) for r in mine}, key=lambda c: (c[1] is not None, c[0], -(c[1] or 0.0)))
        names = [condition if snr is None else f"{condition} {snr:g} dB" for condition, snr in columns]
        cells: dict[tuple[Any, ...], dict[int, Row]] = {}  # by seed
        for row in mine:
            cells.setdefault((row.system, row.encoder, row.condition, row.snr_db), {})[row.seed] = row
        lines = [[f"{metric} ({unit(metric)})" if unit(metric) else metric, *names]]
        for system in dict.fromkeys((r.system, r.encoder) for r in mine):
            found = [list(cells.get((*system, *column), {}).values()) for column in columns]
            texts = [cell_text(some) + (f" ({len(some)} seeds)" if len(some) > 1 else "") for some in found]
            lines.append([" ".join(filter(None, system)), *texts])
        blocks.append(aligned(lines))
    return "\n\n".join(filter(None, [*blocks, drawn_sentence((row.metric, row.drawn, row.groups) for row in rows)]))


def drawn_sentence(found: Iterable[tuple[str, str, int]]) -> str:
    """What the intervals of a table draw, "" where they draw nothing. found: what a value is of, what is drawn, and of how many.

    "95 % intervals draw 8 voices." or "95 % intervals draw 8 voices (ks, ic) and 150 recordings (sid)."
    """
    names: dict[str, dict[str, None]] = {}
    sizes: dict[str, set[int]] = {}
    for name, drawn, groups in found:
        if drawn and groups > 1:
            names.setdefault(drawn, {})[name] = None
            sizes.setdefault(drawn, set()).add(groups)
    each = [counted_range(sizes[drawn], drawn) + (f" ({', '.join(names[drawn])})" if len(names) > 1 else "") for drawn in names]
    return f"95 % intervals draw {' and '.join(each)}." if each else ""


def counted_range(sizes: Iterable[int], what: str) -> str:
    """ "8 voices", "1 passage", "20 to 140 passages", "10 voices or recordings" (of a mean)."""
    low, high = min(sizes), max(sizes)
    plural = " or ".join((f"{word[:-1]}ies" if word[-1] == "y" else f"{word}s") if high != 1 else word for word in what.split(", "))
    return f"{low if low == high else f'{low} to {high}'} {plural}"


def cell_text(rows: Sequence[Row]) -> str:
    """ "61.2 [58.0, 64.5]" of rows of one metric that differ in their seeds: their mean, and the range over their intervals."""
    if not rows:
        return "-"
    digits = decimals(rows[0].metric)
    text = f"{sum(r.value for r in rows) / len(rows):.{digits}f}"
    lows, highs = [r.low for r in rows if r.low is not None], [r.high for r in rows if r.high is not None]
    return f"{text} [{min(lows):.{digits}f}, {max(highs):.{digits}f}]" if lows and highs else text


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text. Columns of equal width: the first flush left, the others flush right, a rule under the head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
    return "\n".join([texts[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *texts[1:]])
