"""The spoken MiniSUPERB: a folder of utterances for every task of SUPERB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.data.prepare_report import claim_settings, in_parallel, write_lines
from speechssl.data.utterances import Utterance, to_record
from speechssl.io import hash_files, read_json, write_json, write_text
from speechssl.synth import minisuperb_tasks as reading
from speechssl.synth.minisuperb_tasks import NAMES, USUAL, check_sizes, splits_of
from speechssl.synth.minisuperb_tasks import plan_of_tasks as plan
from speechssl.synth.minisuperb_words import Draw, Planned

VERSION = 1  # of the generator; part of the card
NAME = "MiniSUPERB"


@dataclass(frozen=True)
class Settings:
    """What decides the bytes. sizes: task -> utterances in each of its splits; tasks that are not named are not made."""

    sizes: dict[str, tuple[int, int, int]] = field(default_factory=lambda: dict(USUAL))
    seed: int = 0


def prepare(out: Path | str, settings: Settings = Settings(), workers: int = 1) -> dict[str, dict[str, Any]]:
    """Write `out`/<task> for every task and return their cards. What is finished is left alone, what was killed goes on.

    The bytes depend on the settings only, not on `workers`. Raises InputError for an unknown task, a split without utterances, or
    a folder that holds something else.
    """
    check_sizes(settings.sizes)
    return {task: _prepare_task(Path(out) / task, task, settings, workers) for task in settings.sizes}


def _prepare_task(out: Path, task: str, settings: Settings, workers: int) -> dict[str, Any]:
    sizes = dict(zip(splits_of(task), settings.sizes[task], strict=True))
    made_from = {"corpus": "minisuperb", "version": VERSION, "seed": settings.seed}
    wanted = made_from | {"task": task, "sizes": sizes}
    if task in NAMES:
        claim_settings(out.parent / NAMES[task], made_from | {"recordings": NAMES[task]}, NAME)
    claim_settings(out, wanted, NAME)
    if not (out / "card.json").is_file():
        planned = plan(task, sizes, settings.seed)
        _make_all(out, [p for split in sizes for p in planned[split]], workers)
        manifests = _write_manifests(out, task, planned, settings.seed)
        write_json(out / "card.json", wanted | {"manifests": manifests, "synthetic": "speech by espeak-ng"})
    _remove(out / "parts")
    card: dict[str, Any] = read_json(out / "card.json")
    return card


def _make_all(out: Path, planned: Sequence[Planned], workers: int) -> None:
    """Their recordings, and a line of the manifest for each in a file of its own, which is written last: what has one is done."""
    jobs = [(out, p) for p in planned if not _part(out, p).is_file()]
    for _ in tqdm(in_parallel(_make, jobs, workers), f"speaking {out.name}", total=len(jobs), unit="file", disable=not jobs):
        pass


def _make(job: tuple[Path, Planned]) -> None:
    out, planned = job
    write_lines(_part(out, planned), [_line(planned.make(out))])


def _part(out: Path, planned: Planned) -> Path:
    return out / "parts" / f"{planned.id}.jsonl"


def _line(utterance: Utterance) -> dict[str, Any]:
    """Labelled utterances tell what is said even where that is nothing."""
    return to_record(utterance) | ({"text": utterance.text} if utterance.labels else {})


def _write_manifests(out: Path, task: str, planned: Mapping[str, Sequence[Planned]], seed: int) -> dict[str, str]:
    """Returns their hashes."""
    for split, found in planned.items():
        write_text(out / f"{split}.jsonl", "".join(_part(out, p).read_text() for p in found))
    names = list(planned)
    if task == "asv":
        for split in names[1:]:
            drawn = [p for p in planned[split] if isinstance(p, Draw)]
            write_lines(out / f"{split}.trials.jsonl", (asdict(trial) for trial in reading.trials(split, drawn, seed)))
        names += [f"{split}.trials" for split in names[1:]]
    return {name: hash_files([out / f"{name}.jsonl"]) for name in names}


def _remove(parts: Path) -> None:
    for part in parts.glob("*.jsonl"):
        part.unlink()
    if parts.is_dir():
        parts.rmdir()
