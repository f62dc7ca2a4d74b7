"""Results: a row is one measured value, kept as a line of JSON in a file that can be appended to
again and again; a table shows them on the terminal, in Markdown and JSON, and on the pages of
reports, beside what others published; figures have one look.
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

from speechssl.artifacts import lock_folder, replacing, write_text
from speechssl.errors import InputError
from speechssl.stats import CROSSED, FEWEST, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


def _load_yaml(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((Path(__file__).parent / name).read_text("utf-8")))


# ends the name of a metric: the same at the default learning rate, not at the one chosen on dev
DEFAULT = "_default"
# name -> short name, what it is; in the order of tables
METRICS: dict[str, tuple[str, str]] = _load_yaml("metrics.yaml")
_ERRORS = ("wer", "wer_lm", "cer", "per", "eer", "der", "slot_cer", "unit_error", "min_dcf")
LOWER_IS_BETTER = frozenset({*_ERRORS, *(f"{metric}{DEFAULT}" for metric in _ERRORS)})  # metrics
CASCADE = "cascade"  # what a cascade's name begins with, which DUAL is compared with
# of metrics that are not percent; "": a scale of its own
UNITS = {"si_sdr": "dB", "si_sdri": "dB", "pesq": "", "min_dcf": "", "ratio_cached": "×"}
UNITS |= {"perplexity": "", "nats": "nats"}
# for wherever a system is said to need no transcript
UNITS_FROM = (
    "the units that ship learned from parallel readings of known text, through Whisper's clusters"
)
SEEN = {
    "trained": "Trained on this very split",
    "questions": "Trained on questions of this split, as their texts show",
    "chosen": "Checkpoint or settings chosen on this split",
}

HEAD = "head"  # the system of a task for which an encoder has one head: known by the task


@dataclass(frozen=True)
class Row:
    """A row is one measured value.

    value, low, high: percent, or what UNITS has; [low, high] is the confidence interval, None where
    there is none. n: items it is a mean over. drawn, groups: what the bootstrap drew and of how
    many ("voice", 8; `stats.choose_units`); "", 0: none. Of two populations drawn together ("voice
    × asker") the fewer are counted.
    """

    task: str  # "qa", "choice", "retrieval", "ks", "asr", "units", ...
    system: str  # the method: "dual", "cascade-ctc", ...; "units"; or HEAD
    encoder: str  # or the folder of models that has it; "": the system has none
    # "clean", "pink", "babble", ...; of the robustness grid "seen-m+g+r", "unseen-kitchen", ...
    condition: str
    snr_db: float | None  # None where the condition has no signal-to-noise ratio
    # "ff1", "aos", "em", "f1", "wer", "acc", "eer", "si_sdri", ..., "unit_error"; "wer_default",
    # ..., "ratio_cached"
    metric: str
    value: float
    low: float | None
    high: float | None
    n: int
    seed: int
    card: str | Mapping[str, Any]  # what made it: a hash, or the settings themselves
    # "voice", "voice × asker", "passage (about these 3 voices)", "query"; of folds and means all
    # that were drawn, joined by ", "
    drawn: str = ""
    groups: int = 0
    # "signal" where the SNR is over the whole signal, pauses and all; "": over active speech, or
    # there is none
    snr_over: str = ""
    # one of SEEN: what the system has seen of what it is evaluated on; "": nothing that is known
    seen: str = ""

    @classmethod
    def from_interval(
        cls,
        interval: Interval,
        task: str,
        system: str,
        encoder: str,
        condition: str,
        snr_db: float | None,
        metric: str,
        seed: int = 0,
        card: str | Mapping[str, Any] = "",
        snr_over: str = "",
    ) -> Row:
        """Make a row in percent from an interval of fractions."""
        v = interval.percent
        cell = (task, system, encoder, condition, snr_db, metric)
        return cls(*cell, v.value, *v.ends, v.n, seed, card, v.drawn, v.groups, snr_over)

    @property
    def cell(self) -> tuple[Any, ...]:
        """Return what a row is about, whatever made it: its place in a table, and its seed."""
        where = (self.condition, self.snr_db, self.snr_over)
        return (self.task, self.system, self.encoder, *where, self.metric, self.seed)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the cell and what made it: of two rows with one key the one written last
        counts."""
        return (*self.cell, self.card_text)

    @property
    def name(self) -> str:
        """Return the system; of a head the task."""
        return self.task if self.system == HEAD else self.system

    @property
    def full_condition(self) -> str:
        return full_condition(self.condition, self.snr_over)

    @property
    def card_text(self) -> str:
        return json.dumps(self.card, sort_keys=True, ensure_ascii=False)


def system_label(system: str, models: str) -> str:
    """Name a system with its models beside it, in tables, figures and comparisons alike: "dual
    (people-en)"; models: "" for none."""
    return f"{system} ({models})" if models else system


def full_condition(condition: str, snr_over: str | None) -> str:
    """Name a condition as it is shown: SNRs over the whole signal are other conditions."""
    return f"{condition}, over the {snr_over}" if snr_over else condition


def metric_name(metric: str) -> str:
    if metric.endswith(DEFAULT):
        return f"{metric_name(metric.removesuffix(DEFAULT))} at the default learning rate"
    if metric in METRICS:
        return METRICS[metric][0]
    return metric.upper() if len(metric) <= 4 else metric.replace("_", " ")


def unit(metric: str) -> str:
    """Return what the values of a metric are in: "%", "dB", "×", or nothing."""
    return UNITS.get(metric.lower().removesuffix(DEFAULT), "%")


def decimals(metric: str) -> int:
    return 1 if unit(metric) in ("%", "dB") else 2


def choose_averaged_tasks(tasks: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Choose the tasks (`Row.name` and metric) that averages over tasks are of: not units, which
    compare an encoder with itself, so that one whose units never change would win; nor systems that
    need a recogniser, which suffer where `asr` does, unless there are no others."""
    fair = [(name, metric) for name, metric in tasks if metric != "unit_error"]
    return [task for task in fair if not task[0].startswith((CASCADE, "speechbert"))] or fair


def append_rows(
    path: Path | str,
    rows: Iterable[Row],
    any_card: bool = False,
    by_content: bool = False,
    outdated: Callable[[Row], bool] = lambda row: False,
) -> None:
    """Add rows to a results file; a row with the key of an older one replaces it. The same rows
    again change nothing.

    any_card: a row replaces those as well that differ from it in the card, so that there is one row
    for each result.
    by_content: where the card is the hash of all that made it, older rows of a system with this
    card get the name that the model was given last.
    outdated: older rows that these would not compare with, which go.
    The file is whole at any time (written beside and renamed); processes that append at the same
    time wait in turn.
    Raises InputError for a damaged file, ValueError for a value that is not finite.
    """
    path = Path(path)
    new = {row.key: row for row in rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent):
        old = read_rows(path) if path.exists() else ()
        if by_content:
            names = {(row.system, row.card_text): row.encoder for row in new.values()}
            old = tuple(
                replace(row, encoder=names.get((row.system, row.card_text), row.encoder))
                for row in old
            )
        cells = {row.cell for row in new.values()} if any_card else set()
        kept = {row.key: row for row in old if row.cell not in cells and not outdated(row)}
        text = "".join(map(_format_line, (kept | new).values()))
        if not path.exists() or path.read_text("utf-8") != text:
            write_text(path, text)


def _format_line(row: Row) -> str:
    """Write a row as JSON; numpy's scalars become Python's. `snr_over` and `seen` stand where they
    say something."""
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
    """Read the rows of folder/results.jsonl as JSON has them. Raises InputError as `read_rows`
    does."""
    return [asdict(row) for row in read_rows(folder / "results.jsonl")]


def read_table(source: Path | str | Iterable[Row]) -> DataFrame:
    """Return results as a long table, a line a row and a column a field of `Row`, of which every
    table is a pivot.

    source: the folder of results.jsonl, or rows. Raises InputError as `read_rows` does.
    """
    import pandas  # slow to import

    if isinstance(source, (str, Path)):
        source = read_rows(Path(source) / "results.jsonl")
    return pandas.DataFrame(list(source), columns=[field.name for field in fields(Row)])


def drawn_sentence(intervals: Iterable[tuple[str, str, int]]) -> str:
    """Say what the intervals of a table draw, "" where they draw nothing. intervals: what each is
    of, what is drawn, and of how many.

    "95 % intervals draw 8 voices." or "95 % intervals draw 8 voices (ks, ic) and 150 recordings
    (sid)."
    """
    names: dict[str, dict[str, None]] = {}
    sizes: dict[str, set[int]] = {}
    for name, drawn, groups in intervals:
        if drawn and groups >= FEWEST:
            names.setdefault(drawn, {})[name] = None
            sizes.setdefault(drawn, set()).add(groups)
    each = []
    for drawn in names:
        of = ", ".join(filter(None, names[drawn]))  # "" where a table does not name them
        text = describe_range(sizes[drawn], drawn)
        each.append(f"{text} ({of})" if len(names) > 1 and of else text)
    return f"95 % intervals draw {' and '.join(each)}." if each else ""


def rows_sentence(rows: Iterable[Row]) -> str:
    """Say what the intervals of rows draw, by their metrics, as `drawn_sentence` does."""
    return drawn_sentence((row.metric, row.drawn, row.groups) for row in rows)


def interval_note(lead: str, intervals: Iterable[tuple[str, str, int]]) -> str:
    """Say what marks the intervals, and what they draw, as far as it is known: "Grey: 95 %
    intervals draw 8 voices."."""
    return f"{lead}: {drawn_sentence(intervals) or '95 % intervals.'}"


def describe_range(sizes: Iterable[int], what: str) -> str:
    """Say how many: "8 voices", "1 passage", "20 to 140 passages", "10 voices or recordings" (of a
    mean), "8 voices × askers" (the fewer)."""
    sizes = list(sizes)
    low, high = min(sizes), max(sizes)
    names = [name if high == 1 else _plural(name) for name in what.split(", ")]
    return f"{low if low == high else f'{low} to {high}'} {' or '.join(names)}"


def _plural(what: str) -> str:
    """Return the plural of what is drawn: "passages (about these 3 voices)", "voices × askers"."""
    name, mark, about = what.partition(" (")
    words = []
    for word in name.split(CROSSED):
        words.append(f"{word[:-1]}ies" if word[-1] == "y" else f"{word}s")
    return CROSSED.join(words) + mark + about


# ---- tables


@dataclass(frozen=True)
class Table:
    """A table has a title, heads of columns, rows and a note.

    rows: texts and numbers, as many as columns; None: nothing was measured.
    """

    title: str
    columns: tuple[Any, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """Return the rows as they are printed: a column of fractions with three decimals, other
        decimal numbers with one."""
        digits = []
        for i in range(len(self.columns)):
            numbers = [row[i] for row in self.rows if isinstance(row[i], float)]
            digits.append(3 if all(abs(number) <= 1 for number in numbers) else 1)
        return [tuple(map(_print_value, row, digits)) for row in self.rows]

    @property
    def left(self) -> list[bool]:
        """Say which columns are flush left: the first, and those with names; numbers are flush
        right."""
        columns = list(zip(*self.texts, strict=True)) or [()] * len(self.columns)
        return [i == 0 or any(t[:1].isalpha() for t in c) for i, c in enumerate(columns)]

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
        return {"title": self.title, "columns": self.columns, "rows": self.rows, "note": self.note}


def _print_value(value: Any, digits: int) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def table_of(values: Any) -> Table:
    """Make a table from `Table.values`. Raises KeyError, TypeError or ValueError for what is no
    table."""
    columns, rows = tuple(values["columns"]), tuple(map(tuple, values["rows"]))
    if any(len(row) != len(columns) for row in rows):
        raise ValueError("not every row has as many values as there are columns")
    return Table(values["title"], columns, rows, values.get("note", ""))


def markdown(tables: Iterable[Table]) -> str:
    return "\n\n".join(table.markdown for table in tables) + "\n"


def results_table(rows: Sequence[Row]) -> str:
    """Write results for the terminal: the tables of `metric_tables`, and what their intervals draw
    and the systems have seen."""
    texts = []
    for metric, table in metric_tables(rows).items():
        head = f"{metric} ({unit(metric)})" if unit(metric) else metric
        texts.append(replace(table, columns=(head, *table.columns[1:])).text)
    drawn = rows_sentence(rows)
    seen = seen_sentence((row.name, row.seen) for row in rows)
    return "\n\n".join(filter(None, [*texts, drawn, seen]))


def metric_tables(rows: Iterable[Row]) -> dict[str, Table]:
    """Make a table a metric: a line a system, n items, a column a condition, value [low, high].

    Where a cell has rows of several seeds, their mean, the number of seeds and the range over the
    intervals are shown. Of rows that differ in their card alone the last one is shown. Systems come
    in order of appearance, conditions in that of `order_conditions`.
    """
    import pandas

    rows = list({row.cell: row for row in rows}.values())
    places = order_conditions((row.full_condition, row.snr_db) for row in rows)
    order = [condition_name(*place) for place in places]
    every = pandas.DataFrame(
        {
            "metric": [row.metric for row in rows],
            "system": [system_label(row.name, row.encoder) for row in rows],
            "condition": [condition_name(row.full_condition, row.snr_db) for row in rows],
            "n": [row.n for row in rows],
            "row": rows,
        }
    )
    tables = {}
    for metric, measured in every.groupby("metric", sort=False):
        cells = measured.pivot_table("row", "system", "condition", _count_seeds, "-", sort=False)
        cells = cells[[name for name in order if name in cells]]
        lines = []
        for system, *line in cells.itertuples():
            sizes = measured.n[measured.system == system]
            fewest, most = sizes.min(), sizes.max()
            lines.append((system, f"{fewest}" if fewest == most else f"{fewest}-{most}", *line))
        tables[metric] = Table("", ("system", "n", *cells.columns), tuple(lines))
    return tables


def _count_seeds(rows: Iterable[Row]) -> str:
    rows = list(rows)
    return seeds_text(rows) + (f" ({len(rows)} seeds)" if len(rows) > 1 else "")


def seen_sentence(systems: Iterable[tuple[str, str]]) -> str:
    """Say which systems have seen what they are evaluated on, "" where none has. systems: their
    names, and what of `SEEN`."""
    systems = list(dict.fromkeys(systems))
    sentences = []
    for seen, said in SEEN.items():
        names = [name for name, has_seen in systems if has_seen == seen]
        if names:
            sentences.append(f"{said}: {', '.join(names)}.")
    return " ".join(sentences)


# ---- what stands in cells


def interval_text(
    interval: Interval | Row | Mapping[str, Any] | None,
    sign: str = "",
    missing: str = "–",
    digits: int = 1,
) -> str:
    """Write "61.2 [58.0, 64.5]" of an interval, a row or their JSON; without the interval where
    none was estimated.

    sign: "+" for differences; missing: for None and for JSON without a value.
    """
    values: Mapping[str, Any] = {}
    if interval:
        values = interval if isinstance(interval, Mapping) else vars(interval)
    if "value" not in values:
        return missing
    low, high = interval.ends if isinstance(interval, Interval) else (values["low"], values["high"])
    form = f"{sign}.{digits}f"
    return f"{values['value']:{form}}" + ("" if low is None else f" [{low:{form}}, {high:{form}}]")


def seeds_text(rows: Sequence[Row]) -> str:
    """Write "61.2 [58.0, 64.5]" of rows of one metric that differ in their seeds: their mean, and
    the range over their intervals."""
    if not rows:
        return "-"
    digits = decimals(rows[0].metric)
    text = f"{sum(r.value for r in rows) / len(rows):.{digits}f}"
    lows = [r.low for r in rows if r.low is not None]
    highs = [r.high for r in rows if r.high is not None]
    return f"{text} [{min(lows):.{digits}f}, {max(highs):.{digits}f}]" if lows and highs else text


def condition_name(condition: str, snr_db: float | None) -> str:
    """Name a condition: "clean", "pink 10 dB"."""
    return condition if snr_db is None else f"{condition} {snr_db:g} dB"


def order_conditions(
    conditions: Iterable[tuple[str, float | None]],
) -> list[tuple[str, float | None]]:
    """Order conditions, once each: clean speech, noises from the quietest to the loudest, then what
    has no SNR; of equals as they were first given. conditions: name and SNR in dB, or None."""
    different = list(dict.fromkeys(conditions))
    names = list(dict.fromkeys(name for name, _ in different))

    def rank(condition: tuple[str, float | None]) -> tuple[Any, ...]:
        name, snr_db = condition
        return name != "clean", snr_db is None, names.index(name), -(snr_db or 0.0)

    return sorted(different, key=rank)


def join_words(parts: Sequence[str]) -> str:
    """Join texts: "a, b and c"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def nearest_snr(conditions: Iterable[Any], at: float) -> list[Any]:
    """Choose, of conditions or rows with an `snr_db`, those at the SNR nearest to `at` dB (of two
    as near, the quieter noise); all where none has an SNR."""
    conditions = list(conditions)
    ratios = [c.snr_db for c in conditions if c.snr_db is not None]
    nearest = min(ratios, key=lambda snr: (abs(snr - at), -snr), default=None)
    return [c for c in conditions if c.snr_db == nearest]


def snr_note(over: str) -> str:
    """Return the sentence below tables; none where SNRs are over active speech, as they are by
    default."""
    return "" if over == "active" else "SNRs are over the whole signal, pauses and all."


# ---- what others published, to be laid beside what is measured here: encoders on SUPERB, systems
# on corpora of spoken QA

PUBLISHED_SUPERB = "Published, on the published sets; not comparable with synthetic data."
PUBLISHED_QA = (
    "Published figures, on the published recordings and with models of their size: orientation, "
    "not comparable with other data "
    "(synthetic speech above all) or other scorers."
)
PUBLISHED_COLUMNS = ["corpus", "system", "WER", "FF1", "AOS", "F1", "EM", "accuracy", "source"]


@cache
def published() -> dict[str, Any]:
    """Load published.yaml, which says what it is."""
    return _load_yaml("published.yaml")


def published_encoders() -> dict[str, dict[tuple[str, str], float]]:
    """Return the published values of SUPERB: encoder -> (task, metric) -> value."""
    superb = published()["superb"]
    columns = [tuple(column.split()) for column in superb["columns"]]
    return {
        encoder: dict(zip(columns, values, strict=True))
        for encoder, values in superb["encoders"].items()
    }


def published_tables(corpora: Sequence[str]) -> list[Table]:
    """Make a table of published systems on corpora and splits ("nmsqa dev", names as in their
    cards), in the columns in which any of them has something.

    Of a split without any, all of its corpus; no table where nothing was published.
    """
    import pandas

    every = pandas.DataFrame(published()["spoken_qa"], columns=PUBLISHED_COLUMNS)
    found = []
    for corpus in corpora:
        of_split = every[every.corpus == corpus]
        of_corpus = every[every.corpus.str.startswith(f"{corpus.rsplit(' ', 1)[0]} ")]
        found.append(of_split if len(of_split) else of_corpus)
    rows = pandas.concat(found).drop_duplicates().dropna(axis="columns", how="all")
    if rows.empty:
        return []
    lines = rows.astype(object).where(rows.notna(), None).itertuples(index=False, name=None)
    return [Table("Published, for orientation", tuple(rows), tuple(lines), PUBLISHED_QA)]


# ---- the look of all figures


INK, MUTED, PAPER = "#1d2127", "#69707a", "#fffffe"


@contextmanager
def style_figures(**more: Any) -> Iterator[type[Figure]]:
    """Let figures within the block look alike, whatever the user's own settings are, and give their
    class. more: rcParams, with _ for the dots.
    """
    from matplotlib import style  # slow to import
    from matplotlib.figure import Figure

    look = _load_yaml("figures.yaml")
    look |= {name.replace("_", ".", 1): value for name, value in more.items()}
    with style.context(["default", look]):
        yield Figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a .png, .svg or .pdf file, whole or not at all; the same figure gives the same
    bytes."""
    with replacing(path) as temporary:
        figure.savefig(
            temporary, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None
        )
