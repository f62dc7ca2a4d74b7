"""The systems of spoken question answering by name, and `QA`, which loads them once and answers
many questions.

A model folder holds `encoder/`, `units.safetensors` (+ card), `dual/`, `ctc/`, `text-qa/` and
`speechbert/`, whole or in part; one ships, `people-en`. Parts that do not belong together are
refused when they are loaded.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.data import Recogniser
from speechssl.cascade.decode import NGRAM_FOLDER
from speechssl.cascade.local import (
    below,
    known_languages,
    languages_of,
    place_of,
    readers,
    recognisers,
    trained_on,
)
from speechssl.cascade.options import ReaderOptions
from speechssl.cascade.readers import TextQa, find_reader, load_text_qa
from speechssl.cascade.system import (
    SIMULATED,
    TEXT_SYSTEMS,
    CascadeSystem,
    is_ctc_head,
    load_cascade,
    load_recogniser,
    load_simulated,
    load_text,
)
from speechssl.data.asked import read_question, read_recording
from speechssl.data.records import Passage, Question
from speechssl.dual.system import DualSystem, TimedAnswer, load_dual
from speechssl.encoders.checkpoints import BUNDLE
from speechssl.encoders.export import convert
from speechssl.encoders.load import SharedEncoder, load_encoder, remember_last, shared_encoder
from speechssl.errors import InputError, one_line
from speechssl.io import (
    DEFAULT,
    SHIPPED,
    WEIGHTS,
    checkpoint_folder,
    hash_files,
    hash_json,
    model_folder,
    read_json,
    stage,
)
from speechssl.options import Parts, shipped
from speechssl.text import NGRAM, language_of
from speechssl.units.features import extractor_of
from speechssl.units.kmeans import load_codebook


class System(Protocol):
    """Encodes every recording once, then answers all questions. needs_audio: False where it reads
    the record's text alone."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def needs_audio(self) -> bool: ...
    def encode(self, record: Passage | Question | None, samples: np.ndarray | None) -> Any:
        """The system's representation of a recording: units, words, audio words.

        record: None for audio that is of no corpus; samples: (N,) float32 at 16 kHz, None where the
        system needs no audio.
        Raises ValueError for what cannot be encoded.
        """
        ...

    def answer_all(self, items: Sequence[tuple[Any, Any]]) -> list[TimedAnswer]:
        """(question, passage) as `encode` gave them -> answers."""
        ...


NAMES = re.compile(r"text|cascade-.+|dual|dual-.+|speechbert|speechbert-aligned")
# of windows: dual@5
FEW = re.compile(rf"((?:dual|cascade-(?!{SIMULATED.removeprefix('cascade-')}@)).*)@([1-9]\d*)")


def load_systems(
    models: Path,
    names: Sequence[str],
    bf16: bool = False,
    encoder: SharedEncoder | None = None,
    errors: Path | None = None,
    seed: int = 0,
    reading: ReaderOptions = ReaderOptions(),
    language: str | None = None,
    loaded: Mapping[str, Any] | None = None,
) -> list[System]:
    """names: `dual` (or `dual-...`, a reader folder of that name), `cascade-ctc`,
    `cascade-pocketsphinx`, `cascade-<model>`, and `cascade-ctc-NAME` for the CTC head of that name,
    with `-greedy` behind it without its n-gram; `speechbert` and `speechbert-aligned`; and what
    needs no audio: `text`, `cascade-given` (transcripts of the corpus), `cascade-simulated@30` (its
    text with 30 % of errors). `dual@5`, `cascade-ctc@5`, ... read only the 5 windows of a passage
    that are most like the question (`dual.system.most_alike`).

    bf16: the text encoders read under autocast: several times faster on a CPU with AVX512-BF16 or
    AMX, slower on one without. encoder: of these models, where it has been loaded already. errors:
    of `evaluate confusions`; None: those of the models; seed: of simulated errors. reading: what
    reads in the systems that read words, which are called after it where it is not that of the
    models: `cascade-ctc+minilm-uncased-squad2`. language: of the speech, for Whisper. loaded:
    recognisers and readers by name, as far as they have been loaded already. Raises InputError for
    a system that there is not, for parts that are missing or do not
    fit each other, and for a reader where no system reads words.
    """
    for name in names:
        if not NAMES.fullmatch(FEW.sub(r"\1", name)):
            examples = (
                "dual",
                "speechbert",
                "speechbert-aligned",
                "cascade-ctc",
                "cascade-pocketsphinx",
                "text",
                "cascade-given",
            )
            near = "".join(
                f" (did you mean {match}?)" for match in get_close_matches(name, examples, 1)
            )
            raise InputError(
                f"there is no system {name!r}{near}; choose dual, speechbert, cascade-ctc, "
                "cascade-MODEL, text, cascade-given, "
                f"{SIMULATED}@WER"
            )
    reads = any(name in TEXT_SYSTEMS or name.startswith("cascade-") for name in names)
    if replace(reading, named=True) != ReaderOptions() and not reads:
        raise InputError(
            f"no words are read by {', '.join(names)}; leave out --reader and its "
            "options, or add cascade-ctc or text"
        )
    if encoder is None and any(map(needs_encoder, names)):
        encoder = shared_encoder(models)
    shared: Any = encoder
    loaded = loaded or {}

    @cache
    def text_qa() -> TextQa:
        return loaded.get(str(reading.reader)) or load_text_qa(models, reading, bf16)

    @cache
    def recogniser(engine: str) -> Recogniser:
        asr = loaded.get(engine) or load_recogniser(models, engine, shared, language)
        # systems with one recogniser get one and the same array: the first decodes it, the others
        # get what it found
        asr.transcribe = remember_last(asr.transcribe)  # type: ignore[assignment, method-assign]
        return asr

    def load(name: str) -> System:
        if few := FEW.fullmatch(name):
            system: Any = load(few[1])
            changed: dict[str, Any] = {
                "name": f"{system.name}@{few[2]}",
                "card": {**system.card, "windows": int(few[2])},
            }
            if isinstance(system, DualSystem):
                return replace(
                    system,
                    reader=replace(system.reader, retrieve=int(few[2]), ngram=NGRAM),
                    **changed,
                )
            return replace(
                system,
                qa=replace(system.qa, reader=system.qa.reader.limited(int(few[2]))),
                **changed,
            )
        if name in TEXT_SYSTEMS:
            return load_text(text_qa(), name)
        if name.startswith(SIMULATED):
            return load_simulated(text_qa(), errors or models / "confusions.json", name, seed)
        if name.startswith("dual"):
            return load_dual(
                models / name,
                extractor_of(shared, load_codebook(models / "units.safetensors")),
                name,
                bf16,
            )
        if name.startswith("cascade-"):
            return load_cascade(text_qa(), recogniser(name.removeprefix("cascade-")))
        folder = models / "speechbert"
        if (folder / "card.json").is_file() and read_json(folder / "card.json").get(
            "options", {}
        ).get("spans") is False:
            raise InputError(
                f"{folder} was trained with --no-spans and finds no answers; train it without, "
                "or use it in `evaluate choice`"
            )
        # its alignment takes half a second to import
        from speechssl.speechbert.system import load_speechbert

        # words begin and end where the CTC head finds them, or (a bound) where the manifest has
        # them
        return load_speechbert(
            folder, shared, None if name == "speechbert-aligned" else recogniser("ctc-greedy"), bf16
        )

    return [load(name) for name in names]


def needs_encoder(name: str) -> bool:
    """Whether a system reads what the encoder of the models makes of a recording: not one with a
    recogniser of its own."""
    name = name.partition("@")[0]
    return name.startswith(("dual", "speechbert")) or (
        name.startswith("cascade-") and is_ctc_head(name.removeprefix("cascade-"))
    )


def default_systems(models: Path) -> list[str]:
    """DUAL and the cascade with the CTC head, as far as a folder of models has them. Raises
    InputError where it has neither."""
    names = [
        name
        for name, part in (("dual", "dual"), ("cascade-ctc", "ctc"))
        if (models / part).is_dir()
    ]
    if not names:
        raise InputError(f"{models} has neither dual/ nor ctc/; name what it has with --systems")
    return names


# ---- questions asked of recordings

FOR_PEOPLE = (
    "These models know synthesised speech alone. For recordings of people add a "
    "cascade; it takes {}."
)
A_RECOGNISER = "a recogniser (`speechssl models get whisper-base`)"
A_READER = {
    "en": (
        "a reader of real questions (--reader deepset/minilm-uncased-squad2, or that of "
        "recipes/real_questions)"
    ),
    "zh": "a reader of real questions (--reader deepset/xlm-roberta-base-squad2)",
}
# Least share that Whisper gives the language of the models. On generated speech (11 other languages
# by espeak-ng, English by espeak-ng and flite; clean, and in pink noise at 10 dB) Whisper base
# gives English 0.45 and more in English, and less than 0.1 in seven languages; Dutch, Hindi,
# Portuguese and Swedish have up to 0.37. It is low, since refusing accented English is worse than
# reading Dutch.
LEAST_SHARE = 0.1
# system -> its part in a folder of models
OWN = {
    "dual": "dual",
    "cascade-ctc": "ctc",
    "cascade-ctc-greedy": "ctc",
    "speechbert": "speechbert",
}


class Detail(NamedTuple):
    """What one system answered, and what it read: units (`RunLength`), words with times
    (`Transcript`), or vectors of words."""

    answer: TimedAnswer
    passage: Any
    question: Any


class QA:
    """Systems of spoken question answering, loaded once.

    qa = speechssl.QA()
    for answers in qa.answer("lecture.mp3", ["question.wav", "When was the university founded?"]):
        print(answers["cascade-whisper-base"].text)
    """

    def __init__(
        self,
        models: Path | str = DEFAULT,
        systems: Sequence[str] | None = None,
        reader: Path | str | None = None,
        language: str = "en",
        null_threshold: float | None = None,
    ) -> None:
        """models: a shipped set or a folder of models. systems: names as in `load_systems`, or one;
        None: DUAL, and the best cascade that is there (`best_systems`) and can be loaded: stderr
        names what cannot. reader: of the cascades' words, in the place of that of `models`: a
        question-answering model of Hugging Face, or text QA. language: en or zh. null_threshold: of
        `ReaderOptions`; None: there always is an answer. Where systems is None, and there is none
        that knows people's voices, stderr says what is missing.

        Raises InputError for a system that there is not, and for parts that are missing or do not
        fit each other.
        """
        self.language = language_of(language)
        systems = [systems] if isinstance(systems, str) else systems
        reading = ReaderOptions(str(reader) if reader else None, null_threshold, named=False)
        folder, loaded = Path(models), {}
        local = _local_choices(folder, self.language) if systems is None else ([], [])
        if {*map(str, below(folder))}.isdisjoint(local[0] + local[1]):
            folder = model_folder(models)  # a folder of recognisers and readers alone does without
        if systems is None:
            recogniser = _first_that_loads(
                local[0], lambda name: load_recogniser(folder, name, None, self.language)
            )
            # not loaded where nothing would read with them
            best: dict[str, Any] = dict.fromkeys(local[1])
            if recogniser and not reader:
                best = _first_that_loads(
                    local[1], lambda name: load_text_qa(folder, replace(reading, reader=name))
                )
            parts = ((A_RECOGNISER, recogniser), (A_READER[self.language], best or reader))
            missing = " and ".join(part for part, present in parts if not present)
            if missing and not any((folder / part).is_dir() for part in ("dual", "ctc", "text-qa")):
                raise InputError(f"the cascade of {models} lacks {missing}; add it")
            if missing and "(speech by" in trained_on(folder / "encoder"):
                tqdm.write(FOR_PEOPLE.format(missing), file=sys.stderr)
            loaded = recogniser | best
            systems, reader = best_systems(folder, self.language, reader, ([*recogniser], [*best]))
        if not systems:
            raise InputError("there are no systems to ask; name some")
        if textual := [
            name for name in systems if name in TEXT_SYSTEMS or name.startswith(SIMULATED)
        ]:
            raise InputError(
                f"{textual[0]} reads transcripts and cannot listen; choose dual, "
                "speechbert, or cascade-ENGINE"
            )
        reading = replace(reading, reader=str(reader) if reader else None)
        self.systems: list[System] = load_systems(
            folder, systems, reading=reading, language=self.language, loaded=loaded
        )
        called = {system.name.partition("@")[0] for system in self.systems}
        used = [folder / part for name, part in OWN.items() if name in called]
        if any(isinstance(system, CascadeSystem) for system in self.systems):
            used.append(find_reader(folder, reading.reader))
        used += [
            place
            for system in self.systems
            if "asr_weights" in system.card and (place := place_of(str(system.card["asr"])))
        ]
        for part in used:
            if (languages := languages_of(part)) and self.language not in languages:
                raise InputError(
                    f"{part} was trained on the language {' and '.join(sorted(languages))}, not "
                    f"on {self.language}; give "
                    "models of this language with --models, or a multilingual Whisper and a "
                    "reader with --systems and --reader"
                )
        # name -> one line
        self.about = {
            system.name: self._description(system, folder, reader) for system in self.systems
        }

    def _description(self, system: System, folder: Path, reader: Path | str | None) -> str:
        """What a system is made of, and what that was trained on. reader: that of `folder`, where
        it is None."""
        name = system.name.partition("@")[0]
        own_head = not isinstance(system, CascadeSystem) or name in OWN
        parts = [f"{folder.name}{trained_on(folder / 'encoder')}"]
        if not own_head:
            words = (
                str(system.card["asr"])
                if "asr_weights" in system.card
                else name.removeprefix("cascade-")
            )
            parts = [
                f"words by {words}{trained_on(place_of(words), words) if 'asr_weights' in system.card else ''}"
            ]
        if isinstance(system, CascadeSystem) and (reader or not own_head):
            read = str(reader or f"{folder.name}/text-qa")
            parts.append(
                "answers by "
                f"{read}{trained_on(find_reader(folder, str(reader) if reader else None), read)}"
            )
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"QA({'; '.join(f'{name}: {line}' for name, line in self.about.items())})"

    def answer(
        self,
        passage: Path | str | np.ndarray,
        questions: Sequence[Path | str | np.ndarray],
        name: str | None = None,
    ) -> list[dict[str, TimedAnswer]]:
        """For every question the answers by name of the system: start and end in seconds,
        confidence in [0, 1], and the words where the system has words (none where nothing was
        recognised, or nothing is the answer).

        passage: a recording of any length, as an audio file or samples (N,) float32 at 16 kHz;
        questions: recordings, or texts, which cascades alone can read: answers to a text have no
        other systems. name: of the passage in messages. Raises InputError for audio that cannot be
        used or holds no speech, for what a Whisper of many languages takes for another language,
        for a text without words, for one that none of the systems reads, and for a question that is
        not in a list.
        """
        return [
            {s: detail.answer for s, detail in by_system.items()}
            for by_system in self.details(passage, questions, name)
        ]

    def details(
        self,
        passage: Path | str | np.ndarray,
        questions: Sequence[Path | str | np.ndarray],
        name: str | None = None,
    ) -> list[dict[str, Detail]]:
        """As `answer`, with what every system read of the passage and of the question."""
        if isinstance(questions, str | Path | np.ndarray):
            raise InputError(
                "questions come in a list, also one alone: answer(passage, [question])"
            )
        samples, queries = (
            read_recording(passage),
            [read_question(question) for question in questions],
        )
        name = name or ("the passage" if isinstance(passage, np.ndarray) else str(passage))
        if any(isinstance(q, str) for q in queries) and not any(
            isinstance(s, CascadeSystem) for s in self.systems
        ):
            names = ", ".join(system.name for system in self.systems)
            raise InputError(
                f"{names} can only listen; record the question, or add a cascade "
                "that reads it (cascade-ctc)"
            )
        self._check_language(samples, name)
        encoded = self._encode(samples, name)
        details: list[dict[str, Detail]] = []
        for question in queries:
            asked_for = "the question" if len(queries) == 1 else f"question {len(details) + 1}"
            if isinstance(question, str):
                coded = {
                    s.name: s.read(question, self.language)
                    for s in self.systems
                    if isinstance(s, CascadeSystem)
                }
            else:
                self._check_language(question, asked_for)
                coded = self._encode(question, asked_for)
            pairs = [(s, coded[s.name], encoded[s.name]) for s in self.systems if s.name in coded]
            details.append(
                {
                    s.name: Detail(s.answer_all([(its, passage)])[0], passage, its)
                    for s, its, passage in pairs
                }
            )
        return details

    def _check_language(self, samples: np.ndarray, what: str) -> None:
        for system in self.systems:
            if isinstance(system, CascadeSystem) and system.spoken_languages:
                check_language(system.spoken_languages, samples, self.language, what)

    def _encode(self, samples: np.ndarray, what: str) -> dict[str, Any]:
        """What every system reads of a recording, by its name. what: the recording, in messages.

        DUAL comes last: a CTC head asks the encoder that they share for all layers, among which
        DUAL then finds its own.
        """
        encoded = {}
        order = sorted(self.systems, key=lambda s: isinstance(s, DualSystem))
        # on a terminal alone
        for system in tqdm(
            order, f"encoding {Path(what).name}", unit="system", leave=False, disable=None
        ):
            try:
                encoded[system.name] = system.encode(None, samples)
            except ValueError as error:
                raise InputError(
                    f"{what} cannot be processed ({error}); give a longer recording"
                ) from error
        return encoded


def best_systems(
    models: Path,
    language: str = "en",
    reader: Path | str | None = None,
    local: tuple[list[str], list[str]] | None = None,
) -> tuple[list[str], Path | str | None]:
    """What is there, the best first: the cascade of the best recogniser and the best reader of
    questions that lie on this machine (`cascade.local`), and DUAL of `models`. Without such a
    reader DUAL comes first, and that recogniser has the reader of `models`; without a recogniser it
    is DUAL and the cascade of `models`. Also the reader, None for that of `models`.
    language: of the speech; models of another language alone are no choice. reader: takes the best
    one's place. local: recognisers and readers, the best first, where they have been looked for
    already.

    Raises InputError for no system.
    """
    recogniser, best = (
        next(iter(names), None) for names in local or _local_choices(models, language)
    )
    dual = ["dual"] * (language in known_languages(models / "dual"))
    if recogniser and (reader or best):
        return [f"cascade-{recogniser}", *dual], reader or best
    if recogniser and language in known_languages(models / "text-qa"):
        return [*dual, f"cascade-{recogniser}"], None
    return default_systems(models), reader


def _local_choices(models: Path, language: str) -> tuple[list[str], list[str]]:
    """The recognisers and the readers of a language that lie on this machine, the best first."""
    return recognisers(models, language), readers(models, language)


def _first_that_loads(names: Sequence[str], load: Callable[[str], Any]) -> dict[str, Any]:
    """Name -> what was loaded, of the first that can be; empty where none can. stderr names those
    before it, and why."""
    for name in names:
        try:
            return {name: load(name)}
        except (InputError, OSError) as error:
            tqdm.write(one_line(f"{name} is left out: {error}"), file=sys.stderr)
    return {}


def answer(
    passage: Path | str | np.ndarray,
    question: Path | str | np.ndarray,
    systems: Sequence[str] | None = None,
    models: Path | str = DEFAULT,
    reader: Path | str | None = None,
    null_threshold: float | None = None,
    language: str = "en",
) -> dict[str, TimedAnswer]:
    """Ask one question, see `QA`: name of the system -> answer."""
    samples, query = read_recording(passage), read_question(question)  # before models are loaded
    name = None if isinstance(passage, np.ndarray) else str(passage)
    return QA(models, systems, reader, language, null_threshold).answer(samples, [query], name)[0]


def check_language(
    spoken_languages: Callable[[np.ndarray], Mapping[str, float]],
    samples: np.ndarray,
    language: str,
    name: str,
) -> None:
    """Raises InputError where a recording has no speech, or none in this language, at its
    beginning, in its middle and at its end. Where the recogniser knows no other language, and so
    cannot be sure, stderr has a line, but not of a short question.

    spoken_languages: of `WhisperCheckpoint`; language: that it should be in.
    """
    window, half = 30 * SAMPLE_RATE, len(samples) // 2
    others: list[Mapping[str, float]] = []
    for first in dict.fromkeys((0, max(half - window // 2, 0), max(len(samples) - window, 0))):
        shares = spoken_languages(samples[first : first + window])
        if not shares:  # no speech
            continue
        if shares.get(language, 0.0) >= LEAST_SHARE:
            return
        others.append(shares)
    if not others:
        raise InputError(
            f"{name} holds no speech that the recogniser finds (noise or music alone, or speech "
            "that is hardly audible or in a "
            "language it does not know); check the recording"
        )
    if {*others[-1]} == {language}:
        remedy = (
            "see if it is in another one; a multilingual Whisper can (`speechssl models get "
            "whisper-base`)"
        )
        if len(samples) >= 5 * SAMPLE_RATE:  # in less, one word that is not understood decides
            tqdm.write(
                f"{name} is hardly understood by a recogniser that knows {language!r} "
                f"alone; {remedy}",
                file=sys.stderr,
            )
        return
    likeliest = max(others[-1], key=lambda code: others[-1][code])
    raise InputError(
        f"{name} sounds like the language {likeliest!r}, and the models are for {language!r}; "
        "give a recording in "
        "it, or, if it is in it after all, a recogniser that knows no other "
        "(openai/whisper-tiny.en)"
    )


# ---- a folder of models from its parts, copied (`speechssl bundle`) or linked (`evaluate qa
# --encoder --codebook --dual`)

KINDS = {  # part -> what its card may call it
    "dual": ("DUAL reader",),
    "speechbert": ("SpeechBERT",),
    "text_qa": ("text QA",),
    "ctc": ("ctc-recogniser",),
}
SYSTEMS = {  # system -> parts it needs beside the encoder
    "dual": ("units", "dual"),
    "cascade-ctc": ("ctc", "text-qa"),
    "speechbert": ("ctc", "speechbert"),
    "text": ("text-qa",),
}
LEFT_OUT = ("checkpoints", "sweep", "made_from.json", ".*")  # of a training folder


def folders_of(parts: Parts) -> dict[str, Path]:
    """Name in a folder of models -> where the part lies. Raises InputError for a part that is
    missing or something else."""
    folders: dict[str, Path] = {}
    for part, kinds in KINDS.items():
        if (source := getattr(parts, part)) is None:
            continue
        # which may be a checkpoint of Hugging Face
        name, text = part.replace("_", "-"), "text QA" in kinds
        folder = shipped(source) or source
        folder = checkpoint_folder(folder, "reader") if text else folder
        if not folder.is_dir():
            raise InputError(
                f"--{name} {source} is not a folder; give one that `speechssl train` wrote"
            )
        card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
        kind = str(card.get("what") or card.get("kind") or "")
        if kind not in kinds and (kind or not text or not (folder / "config.json").is_file()):
            what = f"holds a {kind}" if kind else "has no card that says what it is"
            raise InputError(
                f"--{name} {source} {what}, and a {' or '.join(kinds)} is wanted; give its folder"
            )
        folders[name] = folder
    return folders


def bundle(parts: Parts, out: Path) -> dict[str, Any]:
    """Copy the parts into the folder `out`, load every system that they make, and return the card:
    systems and hashes.

    Raises InputError for parts that are missing, of another kind, or not made for each other;
    nothing is left then.
    """
    folders = folders_of(parts)
    if parts.dual is not None and parts.codebook is None:
        raise InputError(
            f"--dual {parts.dual} reads units; give the codebook that made them as "
            "well (--codebook)"
        )
    encoder = load_encoder(parts.encoder)
    codebook = None if parts.codebook is None else load_codebook(parts.codebook)
    inputs = {"encoder": encoder.hash, "units": codebook and codebook.hash}
    for name, folder in folders.items():
        if (folder / "card.json").is_file():
            inputs[name] = hash_json(read_json(folder / "card.json"))
            if (ngram := folder / NGRAM_FOLDER / "card.json").is_file():
                inputs["ngram"] = hash_json(read_json(ngram))
        else:  # a reader of Hugging Face, whose config does not say which weights it has
            weights = (path for pattern in WEIGHTS for path in sorted(folder.glob(pattern)))
            inputs[name] = hash_files([folder / "config.json", *weights])
    with stage(out, inputs) as step:
        if step.done:
            return dict(step.card)
        place(parts, folders, out, copy=True)
        systems = [
            n
            for n, needs in SYSTEMS.items()
            if {*needs} <= {*folders, *(["units"] if codebook else [])}
        ]
        with named_as_given(parts, out):
            load_systems(out, systems)
        return step.finish({"what": "models", "systems": systems, "parts": inputs})


@contextmanager
def linked(parts: Parts) -> Iterator[Path]:
    """A folder of models that links the parts, and is removed at the end. Raises InputError as
    `folders_of`."""
    folders = folders_of(parts)
    with tempfile.TemporaryDirectory(prefix="speechssl-models-") as temporary:
        place(parts, folders, Path(temporary), copy=False)
        with named_as_given(parts, Path(temporary)):
            yield Path(temporary)


@contextmanager
def named_as_given(parts: Parts, out: Path) -> Iterator[None]:
    """Let an InputError name the parts as they were given, not as what they are in a folder of
    models that will be gone."""
    try:
        yield
    except InputError as error:
        sources = {"encoder": parts.encoder, "units.safetensors": parts.codebook}
        sources |= {part.replace("_", "-"): getattr(parts, part) for part in KINDS}
        sentence = str(error)
        for name, part in sources.items():
            sentence = sentence.replace(str(out / name), str(part))
        sentence = sentence.replace(str(out), "the parts given")
        error.args = (sentence,)  # of the same kind, such as MissingExtra
        raise


def place(parts: Parts, folders: dict[str, Path], out: Path, copy: bool) -> None:
    """Copy or link the parts into a folder under the names that a folder of models has."""
    file = Path(parts.encoder).is_file() or parts.encoder.startswith(BUNDLE)
    # no folder of Hugging Face
    if file and not (SHIPPED / parts.encoder / "config.json").is_file():
        convert(parts.encoder, out / "encoder", "huggingface")
    else:
        source = SHIPPED / parts.encoder
        source = (
            source
            if (source / "config.json").is_file()
            else checkpoint_folder(parts.encoder, "speech encoder")
        )
        folders = {"encoder": source, **folders}
    for name, folder in folders.items():
        if copy:
            shutil.copytree(
                folder, out / name, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True
            )
        else:
            (out / name).symlink_to(folder.resolve())
    if parts.codebook is not None:
        load_codebook(parts.codebook).save(out / "units.safetensors")
