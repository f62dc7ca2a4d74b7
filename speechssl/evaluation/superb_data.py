"""Where the data of SUPERB's tasks is, as typed; synthetic sets are made where none are named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.superb.catalogue import ORDER, QBE, TASKS

ALL = "all"


def find_data(out: Path, tasks: Sequence[str], data: Path | None, share: float, seed: int, workers: int) -> dict[str, Path]:
    """task -> folder. tasks: as `all`, `ks` or `ks=FOLDER`; share, seed: of the synthetic sets, in out/data.

    Raises InputError for an unknown task and for folders that are not there.
    """
    named = {task: Path(folder) for task, _, folder in (text.partition("=") for text in tasks) if folder}
    plain = [task for task in tasks if "=" not in task and task != ALL]
    if unknown := [task for task in (*named, *plain) if task not in ORDER]:
        raise InputError(f"there is no task {unknown[0]!r}; choose from {', '.join(ORDER)}, or all")
    if missing := [folder for folder in (*named.values(), *([data] if data else [])) if not folder.is_dir()]:
        raise InputError(f"the folder {missing[0]} does not exist; check the path")
    wanted = [task for task in ORDER if task not in named and (task in plain or ALL in tasks)]
    found = named | (_within(data, wanted, plain) if data else _synthetic(out / "data", wanted, share, seed, workers))
    return {task: found[task] for task in ORDER if task in found}


def folder_of(root: Path, task: str) -> Path | None:
    """The set of a task below a folder of sets; None where there is none."""
    names = (task, *(TASKS[task].folders if task != QBE else ()))
    return next((root / name for name in names if (root / name).is_dir()), None)


def name_encoders(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=WHERE`, or WHERE alone, which is called by the last part of it. Raises InputError for names that cannot be folders."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        where = where if equals else text
        name = name if equals else _called(Path(where))
        if not name or not where or name.startswith(".") or "/" in name or "\\" in name:
            raise InputError(f"--encoder {text} has no name that can be a folder's; write NAME=WHERE")
        if name in found:
            raise InputError(f"--encoder gives the name {name} twice; write NAME=WHERE for one of them")
        found[name] = where
    return found


def _called(where: Path) -> str:
    """exp/mine/encoder is mine, hubert.pt is hubert."""
    path = where.parent if where.name == "encoder" and where.parent.name else where
    return (path.stem if path.suffix in (".pt", ".pth") else path.name).replace(":", "-")


def _within(root: Path, wanted: Sequence[str], named: Sequence[str]) -> dict[str, Path]:
    """named: those that must be there."""
    found = {task: folder for task in wanted if (folder := folder_of(root, task))}
    if missing := [task for task in named if task not in found]:
        raise InputError(f"{root} has no folder {missing[0]}; prepare it, or name another with {missing[0]}=FOLDER")
    if not found:
        raise InputError(f"{root} has no folder of a task ({', '.join(ORDER)}); prepare some")
    if left := [task for task in wanted if task not in found]:
        tqdm.write(f"{root} has no data for {', '.join(left)}; these tasks are left out", file=sys.stderr)
    return found


def _synthetic(root: Path, wanted: Sequence[str], share: float, seed: int, workers: int) -> dict[str, Path]:
    """Raises InputError where they were made with another share or seed."""
    from speechssl.corpora.minisuperb.speech import Settings, prepare
    from speechssl.corpora.minisuperb.tasks import some_of

    made = {task: next(iter(TASKS[task].folders), task) if task != QBE else task for task in wanted}
    if made:
        prepare(root, Settings(some_of(list(made.values()), share), seed), workers)
    return {task: root / name for task, name in made.items()}
