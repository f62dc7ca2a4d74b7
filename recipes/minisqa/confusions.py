"""Fit the error model of a recogniser, by which systems such as cascade-simulated@30 of
`evaluate qa` make as many errors as are asked for.

    python recipes/minisqa/confusions.py --help

Words (zh: characters) are aligned with what was recognised (Levenshtein), and counted;
`speechssl.cascade.confusions` says what is kept of them, and how errors are made from it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from speechssl.artifacts import list_differences
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.confusions import (
    MOST,
    ConfusionModel,
    Edit,
    Rates,
    WordConfusions,
    confusions_card,
    letters_of,
    read_confusions,
    spell_words,
    write_confusions,
)
from speechssl.cascade.data import Recogniser
from speechssl.cascade.system import load_recogniser
from speechssl.checkpoints import model_folder
from speechssl.cli import script
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    data_hash,
    first_passages,
    load_corpus,
)
from speechssl.encoders.load import shared_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.encode import Job, encode_recordings
from speechssl.eval.options import CONDITION
from speechssl.eval.spoken_qa import find_recordings
from speechssl.options import DEVICE, SNR_OVER, Count, SnrOver, Whole, argument, option
from speechssl.text import tokens

GIVEN = "given"  # the transcripts that the corpus brings along
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, MOST)  # word error rates of the calibration
ROUNDS = 3  # corrections of the calibration
WORDS = 6_000  # words that the calibration simulates in each round
TEXT = 100  # words of one of its texts


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """fit the error model of a recogniser (confusions.json), to simulate transcripts with any error
    rate

    It is fitted on the output of a recogniser for a split that is not used for testing. `evaluate
    qa` reads it for systems such as cascade-simulated@30: text QA on the reference text with errors
    of this kind at a WER of 30 %.

      python recipes/minisqa/confusions.py corpus exp/errors --models exp/models \\
        --recogniser ctc --split dev
      speechssl evaluate qa corpus exp/sweep \\
        --systems text cascade-simulated@10 cascade-simulated@30 --conditions clean \\
        --errors exp/errors/confusions.json
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for confusions.json")
    models: str = option("people-en", "shipped set or model folder of the recogniser")
    recogniser: str = option(
        "ctc",
        "recogniser: ctc, ctc-NAME, ctc-greedy (without its n-gram), a MODEL of "
        "Hugging Face, or given: the corpus's own transcripts",
    )
    split: str = option("dev", "split of the corpus: any except test")
    passages: Count | None = option(None, "use only the first N passages")
    condition: str = option("clean", f"{CONDITION}, of the recordings")
    snr_over: SnrOver = option("active", SNR_OVER)
    seed: Whole = option(0, "seed of the noise")
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")

    def __post_init__(self) -> None:
        """Raise InputError for a test split."""
        if "test" in self.split:  # verified_test, too
            raise InputError(
                f"errors cannot be fitted on {self.corpus / self.split}, the test data of the "
                "systems; give --split dev"
            )


def fit_recogniser(o: Confusions) -> dict[str, Any]:
    """Fit `o.out`/confusions.json on a recogniser's transcripts of passages and questions, print
    its error rates, and return them with its card.

    A model of the same recogniser, data and settings is left alone. Recordings that cannot be read
    are set aside and reported. Raises InputError for recordings without reference texts, or a
    recogniser that makes no errors.
    """
    where = o.corpus / o.split
    corpus = first_passages(load_corpus(o.corpus, o.split), o.passages)
    condition = parse_condition(o.condition)
    distorter = Distorter(o.seed, snr_over=o.snr_over)
    every: list[Passage | Question] = [*corpus.passages.values(), *corpus.questions]
    recogniser = None
    if o.recogniser == GIVEN:
        if not any(record.transcript for record in every):
            raise InputError(
                f"{where} has no transcripts, which --recogniser given needs; give another "
                "--recogniser"
            )
    else:
        if not any(record.audio for record in every):
            raise InputError(
                f"{where} has no recordings for {o.recogniser}; prepare the corpus with "
                "--speak, or give another corpus"
            )
        models = model_folder(o.models)
        encoder = shared_encoder(models)
        recogniser = load_recogniser(models, o.recogniser, encoder, corpus.language)

    made_by = recogniser.card if recogniser else {"asr": GIVEN}
    card = {
        "corpus": o.corpus.resolve().name,
        "split": o.split,
        "data": data_hash(o.corpus, o.split),
        "asr": o.recogniser,
        "recogniser": made_by["asr"],
        "passages": len(corpus.passages),
        "asr_weights": made_by.get("asr_weights"),
        "condition": condition.label,
        **distorter.card(condition),
    }
    path = o.out / "confusions.json"
    if path.is_file() and not list_differences(confusions_card(path), card):
        print(f"{path} is there already")
    else:
        records = {record.id: record for record in every if record.text}
        if recogniser is None:
            texts = {i: r.transcript for i, r in records.items() if r.transcript}
        else:
            texts = transcribe(recogniser, corpus, records, distorter, condition, o.workers)
        if not texts:
            raise InputError(
                f"{where} has no record with both a reference text and a transcript; name "
                "another split"
            )
        pairs = [(records[i].text, text) for i, text in texts.items()]
        model = fit_confusions(pairs, next(iter(records.values())).language)
        write_confusions(path, model, card)
        kinds = zip(model.rates, ("substituted", "deleted", "inserted"), strict=True)
        mix = ", ".join(f"{100 * rate:.1f} % {kind}" for rate, kind in kinds)
        print(f"{path}: {len(texts)} texts with a WER of {100 * model.rates.wer:.1f} % ({mix})")
    rates = read_confusions(path).rates._asdict()
    return {"out": str(path), "card": confusions_card(path), "rates": rates}


def transcribe(
    recogniser: Recogniser,
    corpus: Corpus,
    records: dict[str, Passage | Question],
    distorter: Distorter,
    condition: Condition,
    workers: int,
) -> dict[str, str]:
    """Return what a recogniser understands of the recordings under a condition, by id. Those that
    cannot be read are set aside and reported."""
    job = Job(recogniser.name, lambda _, samples: recogniser.transcribe(samples), records.keys())
    recordings = find_recordings(corpus, records.values())
    what = f"{recogniser.name} transcribes"
    encoded = encode_recordings([job], recordings, condition, distorter, workers, what)[job.name]
    report_set_aside(encoded.failed, recogniser.name)
    return {name: transcript.text for name, transcript in encoded.features.items()}


# ---- the fit


def fit_confusions(pairs: Sequence[tuple[str, str]], language: str) -> ConfusionModel:
    """Count the errors of one recogniser. pairs: reference and recognised texts. Raises InputError
    where nothing was recognised wrongly."""
    counts, deleted = Counter[str](), Counter[str]()
    inserted, vocabulary = Counter[str](), Counter[str]()
    taken_for: dict[str, Counter[str]] = {}
    for text, recognised_text in pairs:
        reference = spell_words(text, language)
        hypothesis = spell_words(recognised_text, language)
        for code in Levenshtein.opcodes(reference, hypothesis):
            spoken = reference[code.src_start : code.src_end]
            recognised = hypothesis[code.dest_start : code.dest_end]
            counts.update(spoken)
            vocabulary.update(recognised)
            if code.tag == "replace":
                for a, b in zip(spoken, recognised, strict=True):
                    taken_for.setdefault(a, Counter())[b] += 1
            elif code.tag != "equal":
                deleted.update(spoken)
                inserted.update(recognised)

    rates = count_errors(pairs, language)
    if not rates.wer or not counts:
        raise InputError(
            f"there is no error in {len(pairs)} recognised texts of {counts.total()} words; give "
            "more, or another recogniser"
        )
    distances = []
    for word, others in taken_for.items():
        spelling = letters_of(word, language)
        for other in others.elements():
            distances.append(Levenshtein.normalized_distance(spelling, letters_of(other, language)))
    words = {
        word: WordConfusions(n, deleted[word], dict(sorted(taken_for.get(word, {}).items())))
        for word, n in sorted(counts.items())
    }
    model = ConfusionModel(
        language,
        words,
        dict(sorted(inserted.items())),
        dict(sorted(vocabulary.items())),
        tuple(sorted(distances)),
        rates,
    )
    return replace(model, calibration=calibrate(model, [text for text, _ in pairs]))


def count_errors(pairs: Sequence[tuple[str, str]], language: str) -> Rates:
    """Count the rates of errors as WER counts them (`text.tokens`). pairs: reference and recognised
    texts."""
    counts, total = Counter[str](), 0
    for reference, hypothesis in pairs:
        words = split_words(reference, language)
        edits = Levenshtein.editops(words, split_words(hypothesis, language))
        counts.update(edit.tag for edit in edits)
        total += len(words)
    total = max(total, 1)
    return Rates(counts["replace"] / total, counts["delete"] / total, counts["insert"] / total)


split_words = lru_cache(maxsize=4096)(tokens)  # texts come again in every round


def calibrate(model: ConfusionModel, references: Sequence[str]) -> tuple[tuple[float, Rates], ...]:
    """Return the rates to make so that those asked for are counted on the texts of the fit, by the
    word error rate asked for."""
    words = (word for text in references for word in spell_words(text, model.language))
    every = list(islice(cycle(words), WORDS))
    texts = [every[at : at + TEXT] for at in range(0, len(every), TEXT)]
    return tuple((level, calibrate_level(model, texts, level)) for level in LEVELS)


def calibrate_level(model: ConfusionModel, texts: Sequence[Sequence[str]], wer: float) -> Rates:
    """Return the rates to make in texts of one length so that `wer` is counted in the mix of the
    fit."""
    wanted = np.array(model.rates.scaled_to(wer))
    to_make = wanted
    references = [" ".join(words) for words in texts]
    names = [str(i) for i in range(len(texts))]
    for _ in range(ROUNDS):
        edited = model.errors(texts, [Rates(*to_make)] * len(texts), names, 0)
        written = [" ".join(word for word, _ in edits) for edits in edited]
        counted = count_errors(list(zip(references, written, strict=True)), model.language)
        to_make = np.maximum(wanted + count_made_errors(texts, edited) - np.array(counted), 0.0)
        # no more words wrong than there are
        to_make[:2] *= min(1.0, 0.98 / max(to_make[:2].sum(), 1e-9))
    return Rates(*map(float, to_make))


def count_made_errors(
    texts: Sequence[Sequence[str]], edited: Sequence[Sequence[Edit]]
) -> np.ndarray:
    """Return the rates (3,) of the errors that were made, which chance has made a little more or
    fewer than were wanted."""
    total = sum(len(words) for words in texts)
    substituted = kept = inserted = 0
    for words, edits in zip(texts, edited, strict=True):
        taken_for = {i: word for word, i in reversed(edits)}  # what is inserted comes second
        substituted += sum(word != words[i] for i, word in taken_for.items())
        kept += len(taken_for)
        inserted += len(edits) - len(taken_for)
    return np.array([substituted, total - kept, inserted]) / max(total, 1)


if __name__ == "__main__":
    sys.exit(script(fit_recogniser, Confusions))
