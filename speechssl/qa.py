"""Questions asked of recordings: `QA` loads systems once and answers many questions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import read_json
from speechssl.cascade.options import ReaderOptions
from speechssl.cascade.readers import find_reader
from speechssl.cascade.system import SIMULATED, TEXT_SYSTEMS, CascadeSystem
from speechssl.checkpoints import DEFAULT, model_folder
from speechssl.data.asked import read_question, read_recording
from speechssl.dual.system import DualSystem, TimedAnswer
from speechssl.errors import InputError
from speechssl.systems import System, default_systems, load_systems
from speechssl.text import language_of

FOR_PEOPLE = (
    "These models know synthesised speech alone. For recordings of people name a recogniser "
    "(--recogniser openai/whisper-base) and a reader of real questions (--reader {}, or that of "
    "recipes/real_questions)."
)
READERS = {"en": "deepset/minilm-uncased-squad2", "zh": "deepset/xlm-roberta-base-squad2"}
# system -> its part in a folder of models
OWN = {
    "dual": "dual",
    "cascade-ctc": "ctc",
    "cascade-ctc-greedy": "ctc",
    "speechbert": "speechbert",
}


class Detail(NamedTuple):
    """A detail is the answer of one system, and what it read: units (`RunLength`), words with times
    (`Transcript`), or vectors of words."""

    answer: TimedAnswer
    passage: Any
    question: Any


class QA:
    """Load systems of spoken question answering once, and ask them often.

    qa = speechssl.QA(recogniser="openai/whisper-base")
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
        recogniser: str | None = None,
    ) -> None:
        """Load the systems.

        models: a shipped set or a folder of models. systems: names as in `load_systems`, or one;
        None: DUAL and the cascade with the CTC head, as far as the models have them. recogniser: of
        Hugging Face, in the place of that head; its cascade comes first. reader: of the cascades'
        words, in the place of that of the models: a question-answering model of Hugging Face, or
        text QA. language: en or zh. null_threshold: of `ReaderOptions`; None: there always is an
        answer.
        Raises InputError for a system that there is not, for parts that are missing or do not fit
        each other, and for models of another language.
        """
        self.language = language_of(language)
        folder = model_folder(models)
        if isinstance(systems, str):
            systems = [systems]
        if systems is None:
            systems = self._choose_systems(folder, recogniser, reader)
        elif recogniser:
            systems = [f"cascade-{recogniser}", *systems]
        if not systems:
            raise InputError("there are no systems to ask; name some")
        for name in systems:
            if name in TEXT_SYSTEMS or name.startswith(SIMULATED):
                raise InputError(
                    f"{name} reads transcripts and cannot listen; choose dual, speechbert, or "
                    "cascade-ENGINE"
                )
        reading = ReaderOptions(str(reader) if reader else None, null_threshold, named=False)
        self.systems: list[System] = load_systems(
            folder, systems, reading=reading, language=self.language
        )
        self._check_languages_of(folder, reading.reader)
        # name -> one line
        self.about = {
            system.name: describe(system, folder, reading.reader) for system in self.systems
        }

    def _choose_systems(
        self, folder: Path, recogniser: str | None, reader: Path | str | None
    ) -> list[str]:
        """Choose the default systems, and say on stderr what people's voices need where nothing
        knows them."""
        if recogniser:
            return [f"cascade-{recogniser}", *["dual"] * (folder / "dual").is_dir()]
        if "(speech by" in describe_training(folder / "encoder"):
            tqdm.write(FOR_PEOPLE.format(READERS[self.language]), file=sys.stderr)
        return default_systems(folder)

    def _check_languages_of(self, folder: Path, reader: str | None) -> None:
        """Refuse, by an InputError, a part that says that it was trained on another language."""
        called = {system.name.partition("@")[0] for system in self.systems}
        used = [folder / part for name, part in OWN.items() if name in called]
        if any(isinstance(system, CascadeSystem) for system in self.systems):
            used.append(find_reader(folder, reader))
        for part in used:
            languages = languages_of(part)
            if languages and self.language not in languages:
                raise InputError(
                    f"{part} was trained on the language {' and '.join(sorted(languages))}, not "
                    f"on {self.language}; give models of this language with --models, or a "
                    "multilingual Whisper and a reader with --recogniser and --reader"
                )

    def __repr__(self) -> str:
        return f"QA({'; '.join(f'{name}: {line}' for name, line in self.about.items())})"

    def answer(
        self,
        passage: Path | str | np.ndarray,
        questions: Sequence[Path | str | np.ndarray],
        name: str | None = None,
    ) -> list[dict[str, TimedAnswer]]:
        """Answer every question: by name of the system start and end in seconds, confidence in [0,
        1], and the words where the system has words (none where nothing was recognised, or nothing
        is the answer).

        passage: a recording of any length, as an audio file or samples (N,) float32 at 16 kHz;
        questions: recordings, or texts, which cascades alone can read: answers to a text have no
        other systems. name: of the passage in messages. Raises InputError for audio that cannot be
        used, for a text without words, for one that none of the systems reads, and for a question
        that is not in a list.
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
        """Answer as `answer`, with what every system read of the passage and of the question."""
        if isinstance(questions, str | Path | np.ndarray):
            raise InputError(
                "questions come in a list, also one alone: answer(passage, [question])"
            )
        samples = read_recording(passage)
        queries = [read_question(question) for question in questions]
        name = name or ("the passage" if isinstance(passage, np.ndarray) else str(passage))
        cascades = [system for system in self.systems if isinstance(system, CascadeSystem)]
        if not cascades and any(isinstance(query, str) for query in queries):
            names = ", ".join(system.name for system in self.systems)
            raise InputError(
                f"{names} can only listen; record the question, or add a cascade "
                "that reads it (cascade-ctc)"
            )
        encoded = self._encode(samples, name)
        details: list[dict[str, Detail]] = []
        for question in queries:
            asked_for = "the question" if len(queries) == 1 else f"question {len(details) + 1}"
            if isinstance(question, str):
                coded = {s.name: s.read(question, self.language) for s in cascades}
            else:
                coded = self._encode(question, asked_for)
            by_system: dict[str, Detail] = {}
            for system in self.systems:
                if system.name in coded:
                    pair = (coded[system.name], encoded[system.name])
                    answer = system.answer_all([pair])[0]
                    by_system[system.name] = Detail(answer, encoded[system.name], pair[0])
            details.append(by_system)
        return details

    def _encode(self, samples: np.ndarray, what: str) -> dict[str, Any]:
        """Encode a recording by every system, whose names are the keys. what: the recording, in
        messages.

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


def describe(system: System, folder: Path, reader: str | None) -> str:
    """Describe what a system is made of, and what that was trained on. folder: of models; reader:
    None for theirs."""
    name = system.name.partition("@")[0]
    own_head = not isinstance(system, CascadeSystem) or name in OWN
    if own_head:
        parts = [f"{folder.name}{describe_training(folder / 'encoder')}"]
    elif "asr_weights" in system.card:
        words = str(system.card["asr"])
        parts = [f"words by {words}{describe_training(None, words)}"]
    else:
        parts = [f"words by {name.removeprefix('cascade-')}"]
    if isinstance(system, CascadeSystem) and (reader or not own_head):
        read = reader or f"{folder.name}/text-qa"
        parts.append(f"answers by {read}{describe_training(find_reader(folder, reader), read)}")
    return "; ".join(parts)


def languages_of(folder: Path) -> set[str]:
    """Return the languages that a model was trained on, as far as its card says them."""
    corpus = _card(folder).get("corpus") or {}
    languages = set()
    for part in (corpus, *corpus.get("of", ())):
        language = part.get("settings", {}).get("language")
        if language:
            languages.add(language_of(language))
    return languages


def describe_training(folder: Path | None, name: str = "") -> str:
    """Say what a model was trained on by its card, to follow its name. name: where that must be
    said also of a model that does not say it."""
    card = _card(folder) if folder else {}
    corpus = card.get("corpus") or {}
    if "corpus" in corpus:
        synthetic = f" ({corpus['synthetic']})" if "synthetic" in corpus else ""
        return f", trained on {corpus['corpus']}{synthetic}"
    if str(card.get("hub") or name).startswith("openai/whisper-"):
        return ", trained on transcribed speech from the web (arXiv 2212.04356)"
    return " (its folder does not say what it was trained on)" if name else ""


def _card(folder: Path) -> Any:
    return read_json(folder / "card.json") if (folder / "card.json").is_file() else {}


def answer(
    passage: Path | str | np.ndarray,
    question: Path | str | np.ndarray,
    systems: Sequence[str] | None = None,
    models: Path | str = DEFAULT,
    reader: Path | str | None = None,
    null_threshold: float | None = None,
    language: str = "en",
    recogniser: str | None = None,
) -> dict[str, TimedAnswer]:
    """Ask one question, see `QA`: name of the system -> answer."""
    # before models are loaded
    samples = read_recording(passage)
    query = read_question(question)
    name = None if isinstance(passage, np.ndarray) else str(passage)
    qa = QA(models, systems, reader, language, null_threshold, recogniser)
    return qa.answer(samples, [query], name)[0]
