"""Keep results as rows in a file, and show them as tables and figures.

A row is one measured value, a line of JSON in a file to which rows are appended. A table shows rows
on the terminal, in Markdown, in JSON and on the pages of reports, beside published values. All
figures have one style.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from speechssl.artifacts import lock_folder, replace_file, write_text
from speechssl.errors import InputError
from speechssl.stats import CROSSED, FEWEST, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


def _load_yaml(name: str) -> dict[str, Any]:
    """Load a YAML file of this package."""
    return dict(yaml.safe_load((Path(__file__).parent / name).read_text("utf-8")))


# Suffix of a metric of SUPERB whose head has the default learning rate, not the one chosen on dev.
DEFAULT = "_default"
# The metrics by name, with short name and description, in the order of tables.
METRICS: dict[str, tuple[str, str]] = _load_yaml("metrics.yaml")
_ERRORS = ("wer", "wer_lm", "cer", "per", "eer", "der", "slot_cer", "unit_error", "min_dcf")
LOWER_IS_BETTER = frozenset({*_ERRORS, *(f"{metric}{DEFAULT}" for metric in _ERRORS)})
CASCADE = "cascade"  # the name of every cascade begins with it
# Units of the metrics that are not in percent; "" for a scale without a unit.
UNITS = {"si_sdr": "dB", "si_sdri": "dB", "pesq": "", "min_dcf": "", "ratio_cached": "×"}
UNITS |= {"perplexity": "", "nats": "nats"}
# This stands wherever a text says that a system needs no transcript.
UNITS_FROM = (
    "the units of people-en learned from parallel readings of known text, through Whisper's "
    "clusters, those of phones-en from labels of phones"
)
# The values of `Row.seen`, with their words in notes below tables.
SEEN = {
    "trained": "Trained on this very split",
    "questions": "Trained on questions of this split, as their texts show",
    "chosen": "Checkpoint or settings chosen on this split",
}
# `Row.system` in rows of SUPERB, where an encoder has one head a task: the task names the head.
HEAD = "head"


@dataclass(frozen=True)
class Row:
    """A row is one measured value, with its 95 % confidence interval."""

    task: str  # "qa", "choice", "retrieval", "ks", "asr", "units", ...
    system: str  # the method: "dual", "cascade-ctc", ...; "units"; or HEAD
    encoder: str  # its name, or that of its folder of models; "": the system has none
    # "clean", "pink", "babble", ...; in the robustness grid "seen-m+g+r", "unseen-kitchen", ...
    condition: str
    snr_db: float | None  # None where the condition has no signal-to-noise ratio
    # "ff1", "aos", "em", "f1", "wer", "acc", "eer", "si_sdri", ..., "unit_error"; "wer_default",
    # ..., "ratio_cached"
    metric: str
    value: float  # in percent, or in the unit that UNITS has
    low: float | None  # end of the interval; None where there is none
    high: float | None
    n: int  # number of items
    seed: int
    card: str | Mapping[str, Any]  # the settings that made it, or their hash
    # name of the units that the bootstrap drew (`stats.choose_units`): "voice", "voice × asker",
    # "passage (about these 3 voices)", "query"; of folds and means all units, joined by ", "
    drawn: str = ""
    groups: int = 0  # number of these units; of "voice × asker" the smaller of the two
    # "signal" where the SNR is over the whole signal, with pauses; "" where it is over active
    # speech, or there is no SNR
    snr_over: str = ""
    # a key of SEEN where the system has seen the split that it is evaluated on; "" where it has
    # not, as far as is known
    seen: str = ""

    @classmethod
    def from_interval(cls, interval: Interval, **facts: Any) -> Row:
        """Make a row in percent from an interval of fractions. facts: the fields that the interval
        does not give."""
        percent = interval.percent
        low, high = percent.ends
        return cls(
            value=percent.value,
            low=low,
            high=high,
            n=percent.n,
            drawn=percent.drawn,
            groups=percent.groups,
            **facts,
        )

    @property
    def cell(self) -> tuple[Any, ...]:
        """Return what a row measures: its place in a table, and its seed. Of two rows with the same
        cell, the one written last counts, whatever their cards are."""
        where = (self.condition, self.snr_db, self.snr_over)
        return (self.task, self.system, self.encoder, *where, self.metric, self.seed)

    @property
    def name(self) -> str:
        """Return the name of the system; for a head, that of the task."""
        return self.task if self.system == HEAD else self.system

    @property
    def full_condition(self) -> str:
        """Return the condition as it is shown, without its SNR."""
        return name_full_condition(self.condition, self.snr_over)

    @property
    def card_text(self) -> str:
        """Return the card as JSON."""
        return json.dumps(self.card, sort_keys=True, ensure_ascii=False)


def name_system(system: str, models: str) -> str:
    """Name a system with its models, as all tables, figures and comparisons do: "dual (people-en)".
    models: "" for none."""
    return f"{system} ({models})" if models else system


def name_full_condition(condition: str, snr_over: str | None) -> str:
    """Name a condition as it is shown: one whose SNR is over the whole signal counts as a condition
    of its own."""
    return f"{condition}, over the {snr_over}" if snr_over else condition


def name_metric(metric: str) -> str:
    """Return the name of a metric as it is shown: "FF1", "WER"."""
    if metric.endswith(DEFAULT):
        return f"{name_metric(metric.removesuffix(DEFAULT))} at the default learning rate"
    if metric in METRICS:
        return METRICS[metric][0]
    return metric.upper() if len(metric) <= 4 else metric.replace("_", " ")


def name_metric_unit(metric: str) -> str:
    """Return the unit of a metric: "%", "dB", "×", or ""."""
    return UNITS.get(metric.lower().removesuffix(DEFAULT), "%")


def count_decimals(metric: str) -> int:
    """Return the number of decimals with which values of a metric are shown."""
    return 1 if name_metric_unit(metric) in ("%", "dB") else 2


def choose_averaged_tasks(tasks: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Choose the tasks, as (`Row.name`, metric), for averages over tasks.

    The unit error is left out: it compares an encoder with itself, so that one whose units never
    change would win. Systems with a recogniser are left out too, unless there are no others: they
    suffer where the task `asr` does.
    """
    tasks = [(name, metric) for name, metric in tasks if metric != "unit_error"]
    with_recogniser = (CASCADE, "speechbert")
    without_recogniser = [task for task in tasks if not task[0].startswith(with_recogniser)]
    return without_recogniser or tasks


def append_rows(
    path: Path | str,
    rows: Iterable[Row],
    by_content: bool = False,
    outdated: Callable[[Row], bool] = lambda row: False,
) -> None:
    """Add rows to a results file. A row replaces an older one with the same cell, so that adding
    the same rows again changes nothing.

    by_content: the card is a hash of everything that made a row, so that rows of one system and
    card are about one encoder: older ones get its newest name.
    outdated: called with an older row, returns whether it is removed, because it cannot be compared
    with the new rows.
    The file is whole at any time, and processes that append at once wait for each other. Raises
    InputError for a damaged file, ValueError for a value that is not finite.
    """
    path = Path(path)
    new = {row.cell: row for row in rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent):
        old_rows = read_rows(path) if path.exists() else ()
        remaining: dict[tuple[Any, ...], Row] = {}
        encoders = {(row.system, row.card_text): row.encoder for row in new.values()}
        for row in old_rows:
            if by_content:
                row = replace(row, encoder=encoders.get((row.system, row.card_text), row.encoder))
            if row.cell not in new and not outdated(row):
                remaining[row.cell] = row
        text = "".join(map(_format_line, (remaining | new).values()))
        if not path.exists() or path.read_text("utf-8") != text:
            write_text(path, text)


def _format_line(row: Row) -> str:
    """Write a row as a line of JSON, without `snr_over` and `seen` where they are empty. numpy's
    numbers become Python's."""
    values = asdict(row)
    for name in ("snr_over", "seen"):
        if not values[name]:
            del values[name]
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, default=lambda x: x.item())
    return f"{text}\n"


def read_rows(path: Path | str) -> tuple[Row, ...]:
    """Read all rows of a results file, in order. Raises InputError naming file and line for a
    missing or damaged file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the results {path} ({error.strerror}); `speechssl evaluate` writes them "
            "into the folder it is given"
        ) from error
    rows = []
    for number, line in enumerate(text.split("\n"), 1):  # a JSON string may hold U+2028
        if line.strip():
            try:
                rows.append(msgspec.json.decode(line, type=Row))
            except msgspec.DecodeError as error:
                raise InputError(
                    f"{path}:{number} is not a result ({error}); remove the line and run its "
                    "evaluation again"
                ) from error
    return tuple(rows)


def list_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of folder/results.jsonl as dicts. Raises InputError as `read_rows` does."""
    return [asdict(row) for row in read_rows(folder / "results.jsonl")]


def read_table(source: Path | str | Iterable[Row]) -> DataFrame:
    """Return results as a long table with a line for each row and a column for each field of `Row`.

    source: the folder of results.jsonl, or rows. Raises InputError as `read_rows` does.
    """
    import pandas  # slow to import

    if isinstance(source, (str, Path)):
        source = read_rows(Path(source) / "results.jsonl")
    return pandas.DataFrame(list(source), columns=[field.name for field in fields(Row)])


def describe_drawn(intervals: Iterable[tuple[str, str, int]]) -> str:
    """Say which units the intervals of a table draw, or why there are none; "" where nothing is
    known of their units. For example: "95 % intervals draw 8 voices (ks, ic) and 150 recordings
    (sid)." The names of values are left out where all draw the same units.

    intervals: for each value its name (or ""), the name of its units, and their number.
    """
    names: dict[str, list[str]] = {}  # of values, by units
    sizes: dict[str, list[int]] = {}  # numbers of units, by units
    no_intervals = ""
    for name, units, groups in intervals:
        if units and groups < FEWEST:
            too_few = describe_range([groups], units)
            no_intervals = f"No intervals: {too_few}, fewer than {FEWEST}."
        elif units:
            names.setdefault(units, []).append(name)
            sizes.setdefault(units, []).append(groups)
    phrases = []
    for units in names:
        phrase = describe_range(sizes[units], units)
        values = ", ".join(filter(None, dict.fromkeys(names[units])))
        if len(names) > 1 and values:
            phrase += f" ({values})"
        phrases.append(phrase)
    return f"95 % intervals draw {' and '.join(phrases)}." if phrases else no_intervals


def describe_rows(rows: Iterable[Row]) -> str:
    """Say which units the intervals of rows draw, as `describe_drawn` does, for each metric."""
    return describe_drawn((row.metric, row.drawn, row.groups) for row in rows)


def describe_error_bars(intervals: Iterable[tuple[str, str, int]]) -> str:
    """Say what the error bars of a figure are, and which units they draw if that is known."""
    return f"Error bars: {describe_drawn(intervals) or '95 % intervals.'}"


def describe_range(sizes: Iterable[int], noun: str) -> str:
    """Write the range of some numbers with a noun, in the plural unless all are 1: "1 passage", "8
    voices", "20 to 140 passages".

    noun: a name of units, as `Row.drawn` has it; several, joined by ", ", become "voices or
    recordings", and "voice × asker" becomes "voices × askers".
    """
    sizes = list(sizes)
    smallest, largest = min(sizes), max(sizes)
    nouns = noun.split(", ")
    if largest != 1:
        nouns = [_pluralise(one_noun) for one_noun in nouns]
    numbers = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    return f"{numbers} {' or '.join(nouns)}"


def _pluralise(units: str) -> str:
    """Return the plural of units: "passages (about these 3 voices)", "voices × askers"."""
    name, mark, about = units.partition(" (")
    words = []
    for word in name.split(CROSSED):
        words.append(f"{word[:-1]}ies" if word[-1] == "y" else f"{word}s")
    return CROSSED.join(words) + mark + about


# ---- tables


@dataclass(frozen=True)
class Table:
    """A table has a title, heads of columns, rows and a note."""

    title: str
    columns: tuple[Any, ...]
    rows: tuple[tuple[Any, ...], ...]  # texts and numbers; None where nothing was measured
    note: str = ""

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """Return the rows as they are printed: numbers of a column without any above 1 have three
        decimals, others one."""
        digits = []
        for i in range(len(self.columns)):
            numbers = [row[i] for row in self.rows if isinstance(row[i], float)]
            digits.append(3 if all(abs(number) <= 1 for number in numbers) else 1)
        return [tuple(map(_print_value, row, digits)) for row in self.rows]

    @property
    def left(self) -> list[bool]:
        """Return for each column whether it is flush left, as the first is and those with names;
        numbers are flush right."""
        columns = list(zip(*self.texts, strict=True)) or [()] * len(self.columns)
        flush_left = []
        for i, texts in enumerate(columns):
            has_names = any(text[:1].isalpha() for text in texts)
            flush_left.append(i == 0 or has_names)
        return flush_left

    @property
    def text(self) -> str:
        """Write the table for the terminal: columns of equal width, a rule under the head."""
        columns = []
        for head, left, *texts in zip(self.columns, self.left, *self.texts, strict=True):
            width = max(map(len, (head, *texts)))
            columns.append([t.ljust(width) if left else t.rjust(width) for t in (head, *texts)])
        head, *body = ("  ".join(line).rstrip() for line in zip(*columns, strict=True))
        rule = "-" * len("  ".join(column[0] for column in columns))
        return "\n".join(filter(None, [self.title, head, rule, *body, self.note]))

    @property
    def markdown(self) -> str:
        """Write the table in Markdown, under its title."""
        rule = tuple("---" if left else "---:" for left in self.left)
        body = []
        for line in (self.columns, rule, *self.texts):
            cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in line]
            body.append(f"| {' | '.join(cells)} |")
        title = f"## {self.title}" if self.title else ""
        return "\n\n".join(filter(None, [title, "\n".join(body), self.note]))

    @property
    def values(self) -> dict[str, Any]:
        """Return the table as JSON has it; `make_table` reads it."""
        return asdict(self)


def _print_value(value: Any, digits: int) -> str:
    """Write a value of a cell; "–" for None and NaN."""
    if value is None or value != value:  # NaN
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def make_table(values: Any) -> Table:
    """Make a table from `Table.values`. Raises ValueError for rows that do not fit the columns."""
    rows = tuple(map(tuple, values["rows"]))
    if any(len(row) != len(values["columns"]) for row in rows):
        raise ValueError("not every row has as many values as there are columns")
    return Table(values["title"], tuple(values["columns"]), rows, values.get("note", ""))


def format_markdown(tables: Iterable[Table]) -> str:
    """Write tables in Markdown."""
    return "\n\n".join(table.markdown for table in tables) + "\n"


def format_results(rows: Sequence[Row]) -> str:
    """Write results for the terminal: the tables of `make_metric_tables`, the units that their
    intervals draw, and which systems have seen the split."""
    texts = []
    for metric, table in make_metric_tables(rows).items():
        unit = name_metric_unit(metric)
        head = f"{metric} ({unit})" if unit else metric
        texts.append(replace(table, columns=(head, *table.columns[1:])).text)
    drawn = describe_rows(rows)
    seen = describe_seen((row.name, row.seen) for row in rows)
    return "\n\n".join(filter(None, [*texts, drawn, seen]))


def make_metric_tables(rows: Iterable[Row]) -> dict[str, Table]:
    """Make a table for each metric, with a line for each system and a column for each condition;
    cells are "value [low, high]".

    A cell with several seeds shows their mean, their number, and the range of their intervals.
    Systems come in order of appearance, conditions in that of `order_conditions`.
    """
    rows = list({row.cell: row for row in rows}.values())
    conditions = order_conditions((row.full_condition, row.snr_db) for row in rows)
    tables = {}
    for metric in dict.fromkeys(row.metric for row in rows):
        systems: dict[str, list[Row]] = {}  # the rows of each system
        for row in rows:
            if row.metric == metric:
                systems.setdefault(name_system(row.name, row.encoder), []).append(row)
        measured = {
            (r.full_condition, r.snr_db) for of_system in systems.values() for r in of_system
        }
        columns = [condition for condition in conditions if condition in measured]
        lines = []
        for system, of_system in systems.items():
            sizes = [row.n for row in of_system]
            smallest, largest = min(sizes), max(sizes)
            line = [system, f"{smallest}" if smallest == largest else f"{smallest}-{largest}"]
            for condition in columns:
                seeds = [r for r in of_system if (r.full_condition, r.snr_db) == condition]
                text = format_seeds(seeds)
                line.append(f"{text} ({len(seeds)} seeds)" if len(seeds) > 1 else text)
            lines.append(tuple(line))
        names = [name_condition(*condition) for condition in columns]
        tables[metric] = Table("", ("system", "n", *names), tuple(lines))
    return tables


def describe_seen(systems: Iterable[tuple[str, str]]) -> str:
    """Say which systems have seen the split that they are evaluated on; "" where none has. systems:
    their names, each with its `Row.seen`."""
    systems = list(dict.fromkeys(systems))
    sentences = []
    for seen, phrase in SEEN.items():
        names = [name for name, seen_by_system in systems if seen_by_system == seen]
        if names:
            sentences.append(f"{phrase}: {', '.join(names)}.")
    return " ".join(sentences)


# ---- texts of cells


def format_interval(
    interval: Interval | Row | Mapping[str, Any] | None,
    sign: str = "",
    missing: str = "–",
    digits: int = 1,
) -> str:
    """Write "61.2 [58.0, 64.5]" for an interval, a row or their JSON; "61.2" where no interval was
    estimated.

    sign: "+" for differences; missing: for None and for JSON without a value.
    """
    values: Mapping[str, Any] = {}
    if interval:
        values = interval if isinstance(interval, Mapping) else vars(interval)
    if "value" not in values:
        return missing
    low, high = values["low"], values["high"]
    if isinstance(interval, Interval):
        low, high = interval.ends
    number_format = f"{sign}.{digits}f"
    text = f"{values['value']:{number_format}}"
    if low is not None:
        text += f" [{low:{number_format}}, {high:{number_format}}]"
    return text


def format_seeds(rows: Sequence[Row]) -> str:
    """Write "61.2 [58.0, 64.5]" for rows of one metric that differ in their seeds: their mean, and
    the range of their intervals; "-" without rows."""
    if not rows:
        return "-"
    digits = count_decimals(rows[0].metric)
    text = f"{sum(r.value for r in rows) / len(rows):.{digits}f}"
    lows = [r.low for r in rows if r.low is not None]
    highs = [r.high for r in rows if r.high is not None]
    if lows and highs:
        text += f" [{min(lows):.{digits}f}, {max(highs):.{digits}f}]"
    return text


def name_condition(condition: str, snr_db: float | None) -> str:
    """Name a condition: "clean", "pink 10 dB"."""
    return condition if snr_db is None else f"{condition} {snr_db:g} dB"


def order_conditions(
    conditions: Iterable[tuple[str, float | None]],
) -> list[tuple[str, float | None]]:
    """Sort conditions, without duplicates: clean speech, each noise from the quietest to the
    loudest, then conditions without an SNR; otherwise in order of appearance. conditions: name, and
    SNR in dB or None."""
    unique = list(dict.fromkeys(conditions))
    names = list(dict.fromkeys(name for name, _ in unique))

    def rank(condition: tuple[str, float | None]) -> tuple[Any, ...]:
        name, snr_db = condition
        return name != "clean", snr_db is None, names.index(name), -(snr_db or 0.0)

    return sorted(unique, key=rank)


def join_words(parts: Sequence[str]) -> str:
    """Join texts: "a, b and c"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def choose_nearest_snr(conditions: Iterable[Any], snr_db: float) -> list[Any]:
    """Choose the conditions, or rows, whose `snr_db` is nearest to the given one (of two as near,
    the higher); all of them where none has an SNR."""
    conditions = list(conditions)
    snrs = [c.snr_db for c in conditions if c.snr_db is not None]
    nearest = min(snrs, key=lambda snr: (abs(snr - snr_db), -snr), default=None)
    return [c for c in conditions if c.snr_db == nearest]


def describe_snr(over: str) -> str:
    """Return the sentence below tables about SNRs over the whole signal; "" where they are over
    active speech, as by default."""
    return "" if over == "active" else "SNRs are over the whole signal, pauses and all."


# ---- published values, for comparison: encoders on SUPERB, systems on corpora of spoken QA

PUBLISHED_SUPERB = "Published, on the published sets; not comparable with synthetic data."
PUBLISHED_QA = (
    "Published figures, on the published recordings and with models of their size: orientation, "
    "not comparable with other data "
    "(synthetic speech above all) or other scorers."
)
PUBLISHED_COLUMNS = ["corpus", "system", "WER", "FF1", "AOS", "F1", "EM", "accuracy", "source"]


@cache
def load_published() -> dict[str, Any]:
    """Load published.yaml, whose comments describe it."""
    return _load_yaml("published.yaml")


def read_published_encoders() -> dict[str, dict[tuple[str, str], float]]:
    """Return the published values of SUPERB: encoder -> (task, metric) -> value."""
    superb = load_published()["superb"]
    measures = [tuple(column.split()) for column in superb["columns"]]
    encoders = {}
    for encoder, values in superb["encoders"].items():
        encoders[encoder] = dict(zip(measures, values, strict=True))
    return encoders


def make_published_tables(corpora: Sequence[str]) -> list[Table]:
    """Make a table of published systems on corpora and splits ("nmsqa dev", as in their cards),
    without columns that are empty for all of them; no table where nothing was published.

    For a split without published systems, those of other splits of its corpus are shown.
    """
    import pandas

    systems = pandas.DataFrame(load_published()["spoken_qa"], columns=PUBLISHED_COLUMNS)
    shown = []
    for corpus in corpora:
        name = corpus.rsplit(" ", 1)[0]  # without the split
        of_split = systems[systems.corpus == corpus]
        of_corpus = systems[systems.corpus.str.startswith(f"{name} ")]
        shown.append(of_split if len(of_split) else of_corpus)
    rows = pandas.concat(shown).drop_duplicates().dropna(axis="columns", how="all")
    if rows.empty:
        return []
    lines = rows.astype(object).where(rows.notna(), None).itertuples(index=False, name=None)
    return [Table("Published, for orientation", tuple(rows), tuple(lines), PUBLISHED_QA)]


# ---- the style of all figures

INK, MUTED, PAPER = "#1d2127", "#69707a", "#fffffe"


@contextmanager
def style_figures(**more: Any) -> Iterator[type[Figure]]:
    """Give the figures of the block one style, whatever the user's settings are; yield the class
    Figure. more: further rcParams, with _ for the first dot of a name."""
    from matplotlib import style  # slow to import
    from matplotlib.figure import Figure

    settings = _load_yaml("figures.yaml")
    settings |= {name.replace("_", ".", 1): value for name, value in more.items()}
    with style.context(["default", settings]):
        yield Figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a .png, .svg or .pdf file, whole or not at all; the same figure gives the
    same bytes."""
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    with replace_file(path) as temporary:
        figure.savefig(temporary, dpi=150, metadata=metadata)
