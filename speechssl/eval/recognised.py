"""Which errors a recogniser makes: fitted on what it hears in a split of a corpus that nothing is tested on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.confusions import confusions_card, fit_confusions, write_confusions
from speechssl.cascade.words import Recogniser
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import differing, model_folder
from speechssl.signal import ACTIVE
from speechssl.systems import recogniser_of, shared_encoder

GIVEN = "given"  # the transcripts that the corpus brings along
Pair = tuple[str, str]  # reference, recognised


def fit_on_corpus(
    corpus: Path,
    out: Path,
    models: str,
    engine: str = "ctc",
    split: str = "dev",
    passages: int | None = None,
    condition: str = "clean",
    seed: int = 0,
    workers: int = 2,
    snr_over: str = ACTIVE,
) -> str:
    """Fit `out`/confusions.json on what a recogniser makes of passages and questions, and say how it errs.

    engine: as of `recogniser_of`, or `given`. A model of the same recogniser, data and settings is left alone.
    Raises InputError for a test split, recordings without reference texts, or a recogniser that makes no errors.
    """
    if "test" in split:  # verified_test, too
        raise InputError(f"errors are not fitted on {corpus / split}, which systems are tested on; give --split dev")
    data, heard_in = first_passages(load_corpus(corpus, split), passages), parse_condition(condition)
    distorter = Distorter(seed, snr_over=snr_over)
    every: list[Passage | Question] = [*data.passages.values(), *data.questions]
    records = [r for r in every if r.text]
    _check(corpus / split, every, engine)
    recogniser, made = (None, GIVEN) if engine == GIVEN else _load(models, engine)
    card = {"corpus": corpus.resolve().name, "split": split, "data": data_hash(corpus, split), "asr": engine, "recogniser": made}
    card |= {"passages": len(data.passages), "condition": heard_in.label, **distorter.card(heard_in)}
    path = out / "confusions.json"
    if path.is_file() and not differing(confusions_card(path), card):
        return f"{path} is there already"
    pairs = _given(records) if recogniser is None else _heard(recogniser, data, records, heard_in, distorter, workers)
    if not pairs:
        raise InputError(f"{corpus / split} has no record with both a reference text and something recognised; name another split")
    model = fit_confusions(pairs, records[0].language)
    write_confusions(path, model, card)
    mix = ", ".join(
        f"{100 * r:.1f} % {n}" for r, n in zip(astuple(model.rates), ("substituted", "deleted", "inserted"), strict=True)
    )
    return f"{path}: {len(pairs)} texts with a WER of {100 * model.rates.wer:.1f} % ({mix})"


def _check(where: Path, records: Sequence[Passage | Question], engine: str) -> None:
    """Raises InputError where no record has what errors are taken from, which is seen before anything is heard."""
    if engine == GIVEN and not any(r.transcript for r in records):
        raise InputError(f"{where} has no transcripts, of which --asr given would take the errors; name a recogniser with --asr")
    if engine != GIVEN and not any(r.audio for r in records):
        raise InputError(
            f"{where} has no recordings that {engine} could hear; prepare the corpus with --speak, or give another corpus"
        )


def _load(models: str, engine: str) -> tuple[Recogniser, Any]:
    folder = model_folder(models)
    return recogniser_of(folder, engine, shared_encoder(folder))


def _given(records: Sequence[Passage | Question]) -> list[Pair]:
    return [(r.text, r.transcript) for r in records if r.transcript]


def _heard(
    recogniser: Recogniser,
    data: Corpus,
    records: Sequence[Passage | Question],
    condition: Condition,
    distorter: Distorter,
    workers: int,
) -> list[Pair]:
    """Recordings that cannot be read are set aside and told."""
    from speechssl.units.extract import single_threaded

    failed: dict[str, str] = {}

    def one(record: Passage | Question) -> Pair | None:
        try:
            samples = distorter.apply(read_audio(data.path(record)), condition, record.id)
            return record.text, recogniser.transcribe(samples).text
        except (InputError, ValueError) as error:
            failed[record.id] = str(error)
            return None

    with single_threaded(workers) as pool:
        found = list(
            tqdm(pool.map(one, records), total=len(records), desc=f"{recogniser.name} hears", unit="file", disable=not records)
        )
    tell_set_aside(failed, recogniser.name)
    return [pair for pair in found if pair]
