"""A text teacher teaches DUAL's reader, the student, which words units stand for, before the
student is trained on questions.

Teacher and student begin as one text encoder, or as one reader of words, which can already answer.
The teacher reads the words of a question and of a window of its passage; the student reads the
units of the same two recordings, in the sequence in which DUAL will read them. The student's
outputs over the units of a word are averaged. This vector learns to be nearer to the teacher's
vector of that word, in its sentence, than to those of the other words of the batch. The loss is
that of the last layer, or the mean over all layers. Retrievers are trained by contrast of speech
and text of this kind (SpeechDPR, arXiv 2401.13463; CLSR, arXiv 2511.09282). The recordings need
words with times, which synthesisers give for any text.
The control, `--objective masked-units`, sees the same recordings and no text: BERT's masked
prediction (arXiv 1810.04805) of spans of units.
Pieces are frequent n-grams of units, which a reader may read in their place.
Letters: B sequences, S tokens of a sequence, U units of a recording, W words of one, P word pieces
of a word, N words of the batch, L layers that teach, K units of a codebook, E embedding width, H
hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import begin_stage
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    hash_data,
    load_corpus,
    take_first_passages,
)
from speechssl.dual.data import (
    Layout,
    collate,
    draw_batch,
    load_joined_units,
    read_unit_source,
    replace_tokens,
)
from speechssl.dual.fitting import (
    STEPS,
    collect_reader_facts,
    fit_reader,
    make_layout,
    read_weights_hash,
    save_trained,
)
from speechssl.dual.model import EncoderInputs, SpanModel, load_reader
from speechssl.dual.options import QaOptions, TrainUnitWords
from speechssl.dual.train import begin_dual, choose_pieces, save_pieces
from speechssl.errors import InputError, report_set_aside
from speechssl.options import find_shipped, select_settings
from speechssl.textlm.encoders import load_text_encoder, remove_dropout
from speechssl.textlm.symbols import list_specials
from speechssl.textlm.tokenizers import TextCodec, find_special_tokens, load_tokenizer
from speechssl.timing import FrameGrid, RunLength, find_units
from speechssl.training import Batch, check_share

TEMPERATURE = 0.07  # of the softmax over cosines


def train_unit_words(o: TrainUnitWords) -> None:
    """Train (once) a reader of units with a text teacher, on the recordings of a split whose words
    have times.

    OUT then holds a reader to start DUAL from. Raises InputError where OUT was made from other
    inputs, or no recording can be used.
    """
    check_share(o.qa.batch)
    o = replace(o, start=find_shipped(o.start), teacher=find_shipped(o.teacher))
    pieces = choose_pieces(o.pieces, o.start)
    start = o.start or o.teacher  # one of them at most: the student begins with its weights
    source = read_unit_source(o.units / o.qa.split, o.corpus, pieces)
    made_from = {
        "data": hash_data(o.corpus, o.qa.split),
        "units": source.made_from,
        "start": read_weights_hash(o.start),
        "teacher": read_weights_hash(o.teacher),
        "passages": o.passages,
    }
    options = select_settings(o.qa) | {"objective": o.objective}
    if o.layers == "all":
        options["layers"] = "all"
    with begin_stage(o.out, made_from, options, grows=STEPS) as step:
        if not step.done:
            teacher = load_teacher(o.qa.text_encoder, o.teacher)
            data = take_first_passages(load_corpus(o.corpus, o.qa.split), o.passages)
            units = load_joined_units(o.units / o.qa.split, pieces)
            spoken, left_out = pair_recordings(data, units, source.grid, teacher.codec)
            report_set_aside(left_out, "the text teacher", "recording")
            if not spoken.pairs:
                raise InputError(
                    f"{data.root / data.split} has no recording whose words have times; "
                    "`speechssl align` finds these"
                )
            if o.teacher is None:
                student = begin_dual(o.start, source, o.qa)
            else:
                student = copy_with_units(o.teacher, source.symbols, o.qa.training.seed)
            # single units are no words; they get these embeddings where the teacher can answer
            has_words = pieces is not None or o.teacher is not None
            if o.start is None and has_words and o.objective == "words":
                embed_as_words(student.embedding.weight, spoken, teacher)
            layout = make_layout(o.qa, *list_specials(source.symbols))
            model: nn.Module = UnitTeacher(student, teacher, o.layers == "all")
            batches: Any = WordBatches(spoken, layout, teacher.layout, o.qa)
            if o.objective == "masked-units":
                model = MaskedUnits(student, source.symbols)
                batches = MaskedUnitBatches(batches)
            metrics = fit_reader(
                student, batches, layout, o.qa, o.out / "checkpoints", objective=model
            )
            passages = {passage for _, passage in spoken.pairs}
            hours = sum(data.passages[name].seconds for name in passages) / 3600
            card = collect_reader_facts(o, made_from, o.qa.text_encoder, start) | metrics
            card |= {
                "what": f"reader of units, {o.objective}",
                "units": source.made_from,
                "codebooks": list(source.codebooks),
                "passages": len(data.passages),
                "hours": round(hours, 2),
                "left_out": len(left_out),
            }
            save_pieces(o.out, pieces)
            save_trained(o.out, student, layout, card, start=start)
    print(f"{o.out}: reader of units that were taught words; start `speechssl train dual` from it")


def load_teacher(text_encoder: str, reader: Path | None) -> WordReader:
    """Load the teacher: a reader of words or, where there is none, the text encoder."""
    if reader is None:
        encoder, tokenizer = load_text_encoder(text_encoder)
        layout = Layout(*find_special_tokens(tokenizer))
        words = encoder.get_input_embeddings()
        return WordReader(remove_dropout(encoder), words, TextCodec(tokenizer), layout)
    model, layout, _ = load_reader(reader)
    codec = TextCodec(load_tokenizer(reader))
    return WordReader(model.encoder, model.embedding, codec, layout)


def copy_with_units(reader: Path, symbols: int, seed: int) -> SpanModel:
    """Copy a reader of words, with its span head, and give it an embedding table of units, whose
    rows are those of random words. symbols: K; seed: of the words."""
    model, layout, _ = load_reader(reader)
    words = model.embedding.weight
    specials = torch.tensor([layout.cls, layout.sep, layout.pad])
    random_words = torch.from_numpy(np.random.default_rng(seed).integers(len(words), size=symbols))
    table = nn.Embedding.from_pretrained(words[torch.cat([random_words, specials])])
    student = SpanModel(model.encoder, table)
    student.head.load_state_dict(model.head.state_dict())
    return student.train().requires_grad_(True)


@torch.no_grad()
def embed_as_words(table: torch.Tensor, spoken: SpokenPairs, teacher: WordReader) -> None:
    """Embed every unit, or piece of units, as the mean of the words in which it occurs, in place: a
    piece that is a word then begins as this word. table: (K + 3, E); the rows of others stay.

    Means of many words are alike, so the mean over all units is subtracted, and the differences get
    the mean length of embeddings of words.
    """
    words = teacher.words.weight.float()
    sums = torch.zeros_like(table, dtype=torch.float32)
    counts = torch.zeros(len(table))
    for recording in spoken.recordings.values():
        for (first, last), ids in zip(recording.spans.tolist(), recording.word_pieces, strict=True):
            word = words[torch.from_numpy(ids)].mean(0)
            for unit in recording.units[first : last + 1].tolist():
                sums[unit] += word
                counts[unit] += 1
    occurs = counts > 0
    mean_word = words.mean(0)
    means = sums[occurs] / counts[occurs, None] - mean_word
    means -= means.mean(0)
    length = (words - mean_word).norm(dim=1).mean()
    table[occurs] = (mean_word + functional.normalize(means, dim=1) * length).to(table)


@dataclass(frozen=True, eq=False)
class SpokenWords:
    """A recording is the units that the student reads, and the words that the teacher reads."""

    units: np.ndarray  # (U,)
    spans: np.ndarray  # (W, 2) first and last unit of every word, inclusive
    word_pieces: tuple[np.ndarray, ...]  # W times (P,) ids in the teacher's vocabulary

    def cut(self, start: int, stop: int) -> SpokenWords:
        """Return the units start to stop - 1 with the words that lie wholly within."""
        inside = (self.spans[:, 0] >= start) & (self.spans[:, 1] < stop)
        words = np.flatnonzero(inside).tolist()
        return SpokenWords(
            self.units[start:stop],
            self.spans[words] - start,
            tuple(self.word_pieces[n] for n in words),
        )

    def replace_units(self, rng: np.random.Generator, share: float, symbols: int) -> SpokenWords:
        """Return the recording with a share of its units replaced by others (`replace_tokens`)."""
        units = self.units.copy()
        replace_tokens(rng, units, share, symbols)
        return replace(self, units=units)


def find_word_units(
    record: Passage | Question, units: RunLength, grid: FrameGrid, codec: TextCodec
) -> SpokenWords:
    """Find the units of every word of a recording that has word pieces and a duration."""
    spans = []
    word_pieces = []
    for word in record.words:
        ids, _ = codec.encode([word.text])
        if len(ids) and word.end > word.start:
            spans.append(find_units(grid, units, word.start, word.end))
            word_pieces.append(ids)
    return SpokenWords(units.units, np.array(spans, int).reshape(-1, 2), tuple(word_pieces))


@dataclass(frozen=True)
class SpokenPairs:
    """These recordings are paired, a question with its passage; a passage without questions stands
    alone."""

    recordings: Mapping[str, SpokenWords]
    pairs: Sequence[tuple[str, str]]  # ids of question ("" for none) and passage


def pair_recordings(
    data: Corpus, units: Mapping[str, RunLength], grid: FrameGrid, codec: TextCodec
) -> tuple[SpokenPairs, dict[str, str]]:
    """Pair the questions of a corpus with their passages. Returns the pairs, and, id -> reason, the
    recordings that are left out."""
    recordings = {}
    left_out = {}
    for record in data.records:
        if record.id not in units:
            left_out[record.id] = "it has no units"
        elif not record.words:
            left_out[record.id] = "its words have no times, which `speechssl align` finds"
        else:
            recordings[record.id] = find_word_units(record, units[record.id], grid, codec)
    pairs = [(q.id, q.passage) for q in data.questions if {q.id, q.passage} <= recordings.keys()]
    paired = {passage for _, passage in pairs}
    pairs += [("", name) for name in data.passages if name in recordings and name not in paired]
    return SpokenPairs(recordings, pairs), left_out


@dataclass(frozen=True)
class WordBatches:
    """These batches of pairs are a function of (seed, step) only: a question and a window from
    anywhere in its passage, in units and in words."""

    spoken: SpokenPairs
    layout: Layout  # of the student
    text: Layout  # of the teacher
    options: QaOptions

    def __call__(self, step: int) -> Batch:
        """Return a batch as `collate_words` makes it."""
        o = self.options
        numbers, rng = draw_batch(step, len(self.spoken.pairs), o.batch, o.training.seed)
        rows = []
        for number in numbers:
            question_id, passage_id = self.spoken.pairs[number]
            passage = self.spoken.recordings[passage_id]
            start = int(rng.integers(max(len(passage.units) - self.layout.size, 0) + 1))
            window = passage.cut(start, start + self.layout.size)
            question = NO_QUESTION
            if question_id:
                question = self.spoken.recordings[question_id].cut(0, self.layout.question)
            question = question.replace_units(rng, o.random_units, self.layout.symbols)
            window = window.replace_units(rng, o.random_units, self.layout.symbols)
            rows.append((question, window))
        return collate_words(rows, self.layout, self.text)


NO_QUESTION = SpokenWords(np.zeros(0, int), np.zeros((0, 2), int), ())


def join_words(word_pieces: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Join the word pieces of words to one text. Returns its ids, and the positions (W, 2) of the
    first and the last piece of every word."""
    lengths = np.array([len(ids) for ids in word_pieces], int)
    stops = np.cumsum(lengths)
    ids = np.concatenate([*word_pieces, np.zeros(0, int)]).astype(int)
    return ids, np.stack([stops - lengths, stops - 1], 1)


def collate_words(
    rows: Sequence[tuple[SpokenWords, SpokenWords]], layout: Layout, text: Layout
) -> Batch:
    """Make a batch of pairs of question and window, in units for the student and in words for the
    teacher. layout: of the student; text: of the teacher.

    Returns ids, mask, segments (B, S) of units; text_ids, text_mask, text_segments (B, S) of words;
    and places and text_places (B, W, 2), the positions of the first and the last token of every
    word in the sequence of units and in that of words, -1 where a sequence has fewer words.
    """
    units = [((q.units, q.spans), (w.units, w.spans)) for q, w in rows]
    words = [(join_words(q.word_pieces), join_words(w.word_pieces)) for q, w in rows]
    batch = _collate_with_places(units, layout)
    for name, values in _collate_with_places(words, text).items():
        batch[f"text_{name}"] = values
    return batch


def _collate_with_places(
    pairs: Sequence[tuple[tuple[np.ndarray, np.ndarray], ...]], layout: Layout
) -> Batch:
    """Make ids, mask, segments and places of pairs of question and window. Either is its ids, and
    the positions (W, 2) of the first and the last token of every word among them."""
    sequences, places = [], []
    for (question, question_spans), (window, window_spans) in pairs:
        sequence, offset = layout.make_sequence(question, window)
        sequences.append((sequence, offset))
        # a question begins behind [CLS]
        spans = np.concatenate([question_spans + 1, window_spans + offset])
        places.append(torch.from_numpy(spans))
    batch = collate(sequences, layout.pad)
    batch["places"] = pad_sequence(places, batch_first=True, padding_value=-1)
    return batch


def average_words(hidden: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Average the outputs of every word. hidden: (B, S, H); places: (B, W, 2), as in
    `collate_words`. Returns (B, W, H)."""
    sums = functional.pad(hidden.float().cumsum(1), (0, 0, 1, 0))
    first, last = places.clamp(min=0).unbind(-1)
    rows = torch.arange(len(hidden), device=hidden.device)[:, None]
    return (sums[rows, last + 1] - sums[rows, first]) / (last - first + 1)[..., None]


class WordReader(nn.Module):
    """The teacher reads words with a text encoder that is not trained. words: the embeddings of the
    encoder; codec: words -> their ids; layout: of its sequences."""

    def __init__(self, encoder: Any, words: Any, codec: TextCodec, layout: Layout) -> None:
        super().__init__()
        self.codec = codec
        self.layout = layout
        self.words = words
        self.inputs = EncoderInputs(encoder, words.embedding_dim)
        self.encoder = encoder
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the outputs of every layer, (B, S, H) each. ids, mask, segments: (B, S)."""
        self.encoder.eval()
        inputs = self.inputs(self.words(ids), mask, segments)
        return self.encoder(**inputs, output_hidden_states=True).hidden_states[1:]


class UnitTeacher(nn.Module):
    """The student, a reader of units, learns from the last layer of its teacher, a reader of words,
    or from every layer."""

    def __init__(self, student: SpanModel, teacher: WordReader, every_layer: bool = False) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.every_layer = every_layer

    def embed_words(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors (L, N, H) that the layers of student and teacher give the words of a
        batch."""
        student = self.student
        embedded = student.embedding(batch["ids"])
        inputs = student.inputs(embedded, batch["mask"], batch["segments"])
        student_layers = student.encoder(**inputs, output_hidden_states=True).hidden_states[1:]
        teacher_layers = self.teacher(batch["text_ids"], batch["text_mask"], batch["text_segments"])
        if not self.every_layer:
            student_layers = student_layers[-1:]
            teacher_layers = teacher_layers[-1:]
        is_word = batch["places"][..., 0] >= 0  # the rest is padding
        units = [average_words(layer, batch["places"])[is_word] for layer in student_layers]
        text = [average_words(layer, batch["text_places"])[is_word] for layer in teacher_layers]
        return torch.stack(units), torch.stack(text)

    def forward(self, **batch: torch.Tensor) -> Batch:
        """Return loss and right.

        loss: the cross-entropy of finding the teacher's vector of a word among those of all words
        of the batch by the student's vector, a mean over words and layers. right: the share of
        words whose vectors in the last layer are nearest to each other.
        """
        student_vectors, teacher_vectors = self.embed_words(batch)
        student_vectors = functional.normalize(student_vectors, dim=-1)
        teacher_vectors = functional.normalize(teacher_vectors, dim=-1)
        cosines = student_vectors @ teacher_vectors.mT  # (L, N, N)
        same_word = torch.arange(cosines.shape[1], device=cosines.device).expand(cosines.shape[:2])
        # cross_entropy has the classes, the teacher's words, in dimension 1
        loss = functional.cross_entropy(cosines.mT / TEMPERATURE, same_word)
        right = (cosines[-1].argmax(1) == same_word[-1]).float().mean()
        return {"loss": loss, "right": right.detach()}


# ---- the control: masked prediction of units, without any text

MASKED = 0.15  # share of the units that are predicted, as BERT's
SPAN = 5  # units of a span
UNMASKED = -1  # target where nothing is predicted


@dataclass(frozen=True)
class MaskedUnitBatches:
    """These are the batches of `WordBatches`, with hidden units to predict in the place of
    words."""

    batches: WordBatches

    def __call__(self, step: int) -> Batch:
        """Return ids, mask, segments and targets (B, S), UNMASKED where nothing is predicted."""
        batch = self.batches(step)
        layout = self.batches.layout
        rng = np.random.default_rng([self.batches.options.training.seed, step, 1])
        ids = batch["ids"]
        starts = torch.from_numpy(rng.random(ids.shape) < MASKED / SPAN)
        chosen = starts.clone()
        for shift in range(1, SPAN):
            chosen[:, shift:] |= starts[:, :-shift]
        chosen &= ids < layout.symbols
        others = torch.from_numpy(rng.integers(layout.symbols, size=tuple(ids.shape)))
        # as in BERT, 80 % are hidden, 10 % replaced by others, 10 % kept
        draw = torch.from_numpy(rng.random(ids.shape))
        hidden = torch.where(draw < 0.8, layout.pad, torch.where(draw < 0.9, others, ids))
        return {
            "ids": torch.where(chosen, hidden, ids),
            "mask": batch["mask"],
            "segments": batch["segments"],
            "targets": torch.where(chosen, ids, UNMASKED),
        }


class MaskedUnits(nn.Module):
    """A reader of units predicts the units that are hidden. symbols: K."""

    def __init__(self, student: SpanModel, symbols: int) -> None:
        super().__init__()
        self.student = student
        self.head = nn.Linear(student.encoder.config.hidden_size, symbols)

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        segments: torch.Tensor,
        targets: torch.Tensor,
    ) -> Batch:
        """Return loss and right, the cross-entropy of the hidden units and the share of them whose
        likeliest unit is right. ids, mask, segments, targets: (B, S) of `MaskedUnitBatches`."""
        student = self.student
        inputs = student.inputs(student.embedding(ids), mask, segments)
        chosen = targets != UNMASKED
        logits = self.head(student.encoder(**inputs).last_hidden_state[chosen]).float()
        loss = functional.cross_entropy(logits, targets[chosen])
        right = (logits.argmax(1) == targets[chosen]).float().mean()
        return {"loss": loss, "right": right.detach()}
