"""The stages that loaders share: look whether it is done, read, record, speak, write. What cannot be read leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speechssl.data.files import archives_in
from speechssl.data.join import Sounds
from speechssl.data.prepare_report import Draft, Ledger, check_used, claimed, finish, is_invented
from speechssl.errors import InputError
from speechssl.io import hash_files


@dataclass(frozen=True)
class Wanted:
    """What is to be made of a source, whichever corpus it is: the options that all loaders share."""

    speak: bool = False  # synthesise what has no recording (needs speechssl[synth])
    seed: int = 0  # of the voices of `speak`
    workers: int = 1  # processes; the bytes do not depend on it
    audio: bool = True  # take the recordings that lie there, where the loader has --no-audio
    passages: int | None = None  # make only so many of every split, those with questions; None: all

    @property
    def settings(self) -> dict[str, Any]:
        """What of it decides the content, as settings.json has it. Of `audio` loaders tell by the recordings they took."""
        seed = {"seed": self.seed} if self.speak else {}
        return {"speak": self.speak} | seed | ({} if self.passages is None else {"passages": self.passages})


@dataclass(frozen=True)
class Job:
    """What is to be prepared, from where, to where. files: name -> file that decides the content."""

    corpus: str
    source: Path
    out: Path
    files: Mapping[str, Path]
    published: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)  # what the card says
    options: Mapping[str, Any] = field(default_factory=dict)  # what else decides the content
    wanted: Wanted = Wanted()

    @property
    def settings(self) -> dict[str, Any]:
        return {"files": {name: _stamp(path) for name, path in self.files.items()}, **self.wanted.settings, **self.options}


Read = Callable[[Ledger], Mapping[str, tuple[Draft, Sounds]]]


def prepared(job: Job, read: Read) -> dict[str, Any]:
    """The data report of the corpus in `job.out`, which is made unless it is there. read: split -> its texts and recordings.

    Raises InputError where the folder holds something else, or what `read` raises.
    """
    settings = job.settings  # hashes files: once
    with claimed(job.out, job.corpus, job.source, **settings) as report:
        if report is not None:
            return report
        ledger = Ledger(job.corpus, job.published, job.wanted.passages, is_invented(job.source))
        found = read(ledger)
        check_used({split: draft for split, (draft, _) in found.items()}, ledger, job.source)
        _tell_packed(job, found, ledger)
        workers = job.wanted.workers
        drafts = {split: sounds.record(job.out, split, draft, ledger, workers) for split, (draft, sounds) in found.items()}
        drafts = spoken(job.out, drafts, ledger, job.wanted)
        for split, draft in drafts.items():
            _tell_silent(split, draft, ledger)
        made_from = {name: path.name for name, path in job.files.items()}
        return finish(job.out, drafts, ledger, {**job.about, "files": made_from, "settings": settings})


def spoken(out: Path, drafts: Mapping[str, Draft], ledger: Ledger, wanted: Wanted) -> dict[str, Draft]:
    """The drafts, with audio throughout where that is wanted."""
    if not wanted.speak:
        return dict(drafts)
    from speechssl.synth.speak import speak_drafts

    return speak_drafts(out, drafts, ledger, wanted.seed, wanted.workers)


def _tell_packed(job: Job, splits: Iterable[str], ledger: Ledger) -> None:
    """Where no recordings were found and archives lie there: the published ones of recordings are to be unpacked first."""
    if not job.options.get("recordings") and (packed := [path.name for path in archives_in(job.source)]):
        for split in splits:
            ledger.remark(
                split, f"archives that are packed ({', '.join(packed)})", "not read; unpack those of recordings", len(packed)
            )


def _tell_silent(split: str, draft: Draft, ledger: Ledger) -> None:
    silent = {"passages": sum(not p.audio for p in draft.passages), "questions": sum(not q.audio for q in draft.questions)}
    for kind, number in silent.items():
        if number:
            ledger.remark(split, f"{kind} without recordings", "text only", number)


def given(source: Path, layout: str) -> Path:
    """The source, absolute. layout: what is expected. Raises InputError where nothing is there."""
    if not source.exists():
        raise InputError(f"{source} does not exist; {layout}")
    return source.resolve()


def nothing_found(source: Path, layout: str) -> InputError:
    return InputError(f"{source} has no file of this corpus; {layout}")


def _stamp(path: Path) -> str:
    """Hash of a file, or of the sizes of a large one's parts: enough to see that it is another."""
    if path.stat().st_size < 1 << 28:
        return hash_files([path])
    return f"{path.stat().st_size} bytes"
