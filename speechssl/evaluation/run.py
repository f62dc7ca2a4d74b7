"""One evaluation from the command line: systems by name, conditions by name, rows into `results.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speechssl.asr.confusion_files import confusions_card
from speechssl.corpora.records import data_hash, first_passages, load_corpus, synthetic_note
from speechssl.errors import InputError
from speechssl.evaluation.results import append_rows, read_rows, table
from speechssl.evaluation.spoken_qa import evaluate
from speechssl.noise import Distorter, parse_condition
from speechssl.noise.level import ACTIVE, snr_note
from speechssl.qa.simulated import PREFIX as SIMULATED
from speechssl.shipped import model_folder
from speechssl.systems import confusions_path, load_systems


def run_evaluation(
    corpus: Path,
    out: Path,
    models: str,
    systems: Sequence[str],
    conditions: Sequence[str],
    split: str = "test",
    passages: int | None = None,
    voices: Sequence[Path] = (),
    seed: int = 0,
    workers: int = 2,
    bf16: bool = False,
    errors: Path | None = None,
    snr_over: str = ACTIVE,
) -> str:
    """Evaluate, append the rows, and return the table of everything in `out`/results.jsonl.

    errors: see `load_simulated`; snr_over: see `speech_level`.
    """
    parsed = [parse_condition(c) for c in conditions]
    folder = model_folder(models)
    data = first_passages(load_corpus(corpus, split), passages)
    transcripts = [*(p.transcript for p in data.passages.values()), *(q.transcript for q in data.questions)]
    if "cascade-given" in systems and not any(transcripts):
        raise InputError(f"{corpus / split} has no transcripts that cascade-given could read; take the system text")
    if any(name.startswith(SIMULATED) for name in systems):
        _check_errors(confusions_path(folder, errors), corpus, split)
    loaded = load_systems(folder, list(systems), bf16, errors=errors, seed=seed)
    name = folder.name if folder.parent.name == "models" else f"{folder.parent.name}/{folder.name}"
    rows = evaluate(loaded, data, parsed, out, Distorter(seed, tuple(voices), snr_over=snr_over), workers, name)
    append_rows(out / "results.jsonl", rows)
    notes = [synthetic_note(corpus), snr_note(snr_over) if any(c.noisy for c in parsed) else ""]
    return "\n\n".join(filter(None, [table(read_rows(out / "results.jsonl")), *notes]))


def _check_errors(path: Path, corpus: Path, split: str) -> None:
    """Raises InputError for errors that were fitted on what is evaluated. What is no such file is told by who reads it."""
    card = confusions_card(path) if path.is_file() else {}
    if card.get("data") == data_hash(corpus, split):
        raise InputError(
            f"{path} was fitted on {corpus / split} itself, which is to be evaluated; fit errors on another split "
            "(`speechssl evaluate confusions`) and give them with --errors"
        )
