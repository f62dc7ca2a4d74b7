"""Multiple choice over audio words: passage, question and options are vectors of SpeechBERT, and a `ChoiceModel` chooses.

Ids 0, 1 and 2 are [CLS], [SEP] and [PAD]; id 3 + n is audio word n, as for spans. Letters: N audio words, E embedding width, W
words of one recording, P of a passage, A of a question and its options, S positions, O options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.data.records import Corpus, Passage, Question
from speechssl.data.sources import Recording
from speechssl.dual.data import Layout, Window
from speechssl.encoders.base import single_threaded
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import replacing
from speechssl.multiple_choice.data import Choice, ChoiceExample
from speechssl.multiple_choice.decode import ChoiceReader
from speechssl.multiple_choice.model import ChoiceModel, choice_loss
from speechssl.speechbert.data import SPECIALS
from speechssl.speechbert.decode import AudioWords
from speechssl.speechbert.model import look_up
from speechssl.trainer import Batch


class CodeChoice(nn.Module):
    """A ChoiceModel whose ids are three specials and the rows of a table of codes."""

    codes: Tensor

    def __init__(self, model: ChoiceModel, codes: Tensor) -> None:
        """model: its embedding has SPECIALS rows. codes: (N, E), neither trained nor saved."""
        super().__init__()
        self.model = model
        self.register_buffer("codes", codes, persistent=False)

    def evidence(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """As ChoiceModel's."""
        return self.model.evidence_of(look_up(self.model.embedding.weight, self.codes, ids), mask, segments)

    def scores(self, evidence: Tensor, present: Tensor) -> Tensor:
        """As ChoiceModel's."""
        return self.model.scores(evidence, present)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor, correct: Tensor) -> Batch:
        """As ChoiceModel's."""
        return choice_loss(self, ids, mask, segments, correct)


def score_codes(
    model: ChoiceModel,
    layout: Layout,
    items: Sequence[tuple[AudioWords, Sequence[AudioWords], AudioWords]],
    batch: int = 16,
    bf16: bool = False,
) -> list[np.ndarray]:
    """(question, options, passage) -> (O,) log-probabilities of the options, as `ChoiceReader.score_many`."""
    recordings = {id(words): words for question, options, passage in items for words in (question, *options, passage)}
    empty = np.zeros((0, model.embedding.embedding_dim), np.float32)
    codes, ids = numbered({str(name): words.codes for name, words in recordings.items()}, empty)
    choices = [
        Choice(ids[str(id(question))], tuple(ids[str(id(o))] for o in options), ids[str(id(passage))])
        for question, options, passage in items
    ]
    return ChoiceReader(CodeChoice(model, codes).eval(), layout, batch, bf16).score_many(choices)


def numbered(codes: Mapping[str, np.ndarray], empty: np.ndarray) -> tuple[Tensor, dict[str, np.ndarray]]:
    """One table (N, E) of the codes (W, E) of recordings, and the ids (W,) of each. empty: (0, E)."""
    stops = np.cumsum([SPECIALS, *(len(rows) for rows in codes.values())])
    ids = {name: np.arange(stop - len(rows), stop) for (name, rows), stop in zip(codes.items(), stops[1:], strict=True)}
    return torch.from_numpy(np.concatenate([empty, *codes.values()])), ids


def choice_recordings(data: Corpus) -> list[Recording]:
    """Those of the multiple-choice questions, their options and their passages.

    Raises InputError where not one question has all of its recordings.
    """
    asked = {q.passage for q in data.choices}
    records: list[Passage | Question] = [*(p for p in data.passages.values() if p.id in asked), *data.choices]
    found = [Recording(record.id, data.root / record.audio) for record in records if record.audio]
    spoken = [q for q in data.choices if q.option_audio]
    if not any(q.audio and data.passages[q.passage].audio for q in spoken):
        where = data.root / data.split
        raise InputError(f"{where} has no multiple-choice question with recordings of all its parts; prepare it with --speak")
    return found + [Recording(i, data.root / a) for q in spoken for i, a in zip(q.option_ids, q.option_audio, strict=True)]


class Encodes(Protocol):
    """A SpeechBertSystem, as far as it is used here."""

    def encode(self, record: None, samples: np.ndarray) -> AudioWords: ...


def encode_recordings(system: Encodes, recordings: Sequence[Recording], path: Path) -> dict[str, np.ndarray]:
    """id -> codes (W, E) float32 of every recording that has words. They are kept in the file `path`.

    Recordings that cannot be read, or have no words, are set aside and listed. Raises InputError where none is left.
    """

    def one(recording: Recording) -> Tensor | str:
        try:
            words = system.encode(None, read_audio(recording.path))
        except (InputError, ValueError) as error:
            return str(error)
        return torch.from_numpy(words.codes).half() if len(words) else "no word was recognised in it"

    if not path.is_file():
        with single_threaded(torch.get_num_threads()) as pool:
            made = list(tqdm(pool.map(one, recordings), total=len(recordings), desc="audio words", unit="file"))
        found = dict(zip((r.id for r in recordings), made, strict=True))
        failed = {name: why for name, why in found.items() if isinstance(why, str)}
        tell_set_aside(failed, "audio words")
        if len(failed) == len(found):
            why = next(iter(failed.values()))
            raise InputError(
                f"no word was recognised in any of the {len(found)} recordings (the first: {why}); check --recogniser and audio"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            save_file({name: rows for name, rows in found.items() if not isinstance(rows, str)}, temporary)
    return {name: rows.float().numpy() for name, rows in load_file(path).items()}


def code_examples(
    data: Corpus, encoded: Mapping[str, np.ndarray], layout: Layout
) -> tuple[Tensor, list[ChoiceExample], dict[str, str]]:
    """The codes (N, E), one example a question, and the questions left out: id -> why. encoded: of `encode_recordings`."""
    width = next(iter(encoded.values())).shape[1]
    codes, ids = numbered(encoded, np.zeros((0, width), np.float32))
    found, left_out = [], {}
    for question in data.choices:
        names = (question.id, question.passage, *question.option_ids)
        if missing := [name for name in names if name not in ids]:
            left_out[question.id] = f"no audio words of {missing[0]}"
            continue
        asked, passage, *options = (ids[name] for name in names)
        choice = Choice(asked, tuple(options), passage)
        spoken = np.concatenate([encoded[name] for name in (question.id, *question.option_ids)])
        windows = by_likeness(spoken, encoded[question.passage], choice.windows(layout))
        found.append(ChoiceExample(choice, windows, question.correct))
    return codes, found, left_out


def by_likeness(asked: np.ndarray, passage: np.ndarray, every: Sequence[Window]) -> tuple[Window, ...]:
    """The windows by how like their audio words are to those of question and options, the likest first.

    No two audio words are the same, so that cosines stand for shared n-grams: of every word (A, E) that is asked, the greatest in a
    window of the passage (P, E), less its mean over the windows, for what stands everywhere says nothing.
    """

    def unit(codes: np.ndarray) -> np.ndarray:
        return codes / np.maximum(np.linalg.norm(codes, axis=1, keepdims=True), 1e-9)

    likeness = unit(asked) @ unit(passage).T
    greatest = np.stack([likeness[:, w.first : w.stop].max(1) for w in every])  # (windows, A)
    weights = (greatest - greatest.mean(0)).sum(1)
    return tuple(every[i] for i in np.argsort(-weights, kind="stable"))
