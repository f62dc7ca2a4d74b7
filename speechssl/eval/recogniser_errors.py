"""Fit the errors of a recogniser: its confusions on a split of a corpus that nothing is tested on."""

from __future__ import annotations

from typing import Any

from speechssl.audio import read_audio
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.confusions import confusions_card, fit_confusions, write_confusions
from speechssl.cascade.data import Recogniser
from speechssl.cascade.system import load_recogniser
from speechssl.data.records import Passage, Question, data_hash, first_passages, load_corpus
from speechssl.encoders.load import shared_encoder
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.config import Confusions
from speechssl.eval.run import Encoding, encode_recordings
from speechssl.io import differing, model_folder

GIVEN = "given"  # the transcripts that the corpus brings along


def fit_on_corpus(o: Confusions) -> str:
    """Fit `o.out`/confusions.json on a recogniser's transcripts of passages and questions; returns its error rates, as a sentence.

    A model of the same recogniser, data and settings is left alone. Recordings that cannot be read are set aside and reported.
    Raises InputError for a test split, recordings without reference texts, or a recogniser that makes no errors.
    """
    where = o.corpus / o.split
    if "test" in o.split:  # verified_test, too
        raise InputError(f"errors cannot be fitted on {where}, the test data of the systems; give --split dev")
    data, parsed = first_passages(load_corpus(o.corpus, o.split), o.passages), parse_condition(o.condition)
    distorter = Distorter(o.seed, snr_over=o.snr_over)
    every: list[Passage | Question] = [*data.passages.values(), *data.questions]
    records = {r.id: r for r in every if r.text}
    if o.recogniser == GIVEN and not any(r.transcript for r in every):
        raise InputError(f"{where} has no transcripts, which --recogniser given needs; give another --recogniser")
    if o.recogniser != GIVEN and not any(r.audio for r in every):
        raise InputError(f"{where} has no recordings for {o.recogniser}; prepare the corpus with --speak, or give another corpus")
    recogniser: Recogniser | None = None
    made: object = GIVEN
    if o.recogniser != GIVEN:
        folder = model_folder(o.models)
        recogniser, made = load_recogniser(folder, o.recogniser, shared_encoder(folder))
    card: dict[str, Any] = {"corpus": o.corpus.resolve().name, "split": o.split, "data": data_hash(o.corpus, o.split)}
    card |= {"asr": o.recogniser, "recogniser": made, "passages": len(data.passages)}
    card |= {"condition": parsed.label, **distorter.card(parsed)}
    path = o.out / "confusions.json"
    if path.is_file() and not differing(confusions_card(path), card):
        return f"{path} is there already"
    if recogniser is None:
        texts = {i: r.transcript for i, r in records.items() if r.transcript}
    else:
        transcribe = recogniser.transcribe
        found = encode_recordings(
            records,
            lambda i: read_audio(data.path(records[i])),
            lambda samples, i: distorter.apply(samples, parsed, i),
            {o.recogniser: Encoding(lambda _, samples: transcribe(samples).text)},  # type: ignore[arg-type]
            o.workers,
            f"{recogniser.name} transcribes",
        )[o.recogniser]
        tell_set_aside(found.failed, recogniser.name)
        texts = found.features
    if not texts:
        raise InputError(f"{where} has no record with both a reference text and a transcript; name another split")
    model = fit_confusions([(records[i].text, text) for i, text in texts.items()], next(iter(records.values())).language)
    write_confusions(path, model, card)
    named = zip(model.rates, ("substituted", "deleted", "inserted"), strict=True)
    mix = ", ".join(f"{100 * rate:.1f} % {name}" for rate, name in named)
    return f"{path}: {len(texts)} texts with a WER of {100 * model.rates.wer:.1f} % ({mix})"
