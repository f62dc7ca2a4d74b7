"""The text teacher of DUAL's reader: which units are a word, the sequences that teacher and student
read, and a student's training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.artifacts import read_json
from speechssl.data.records import Passage, Span
from speechssl.dual import teacher, train
from speechssl.dual.data import Layout
from speechssl.dual.model import load_reader
from speechssl.dual.options import TrainUnitWords
from speechssl.dual.teacher import (
    UNMASKED,
    MaskedUnitBatches,
    SpokenPairs,
    SpokenWords,
    UnitTeacher,
    WordBatches,
    WordReader,
    average_words,
    collate_words,
    copy_with_units,
    embed_as_words,
    find_word_units,
    load_teacher,
    train_unit_words,
)
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.textlm.tokenizers import TextCodec
from speechssl.timing import RunLength

from ..files import change_lines, same_files, untouched
from .test_train import GRID, corpus, options, train_reader, train_text_reader  # noqa: F401

LAYOUT = Layout(cls=6, sep=7, pad=8, size=10, stride=5, question=4)  # of 6 units
TEXT_LAYOUT = Layout(cls=101, sep=102, pad=0)


def make_recording(unit_count, *spans):
    """Make a recording whose words lie in these spans of units; word n has the word piece 20 + n
    once, or twice where n is odd."""
    word_pieces = tuple(np.array([20 + n] * (1 + n % 2)) for n in range(len(spans)))
    return SpokenWords(np.arange(unit_count) % 6, np.array(spans).reshape(-1, 2), word_pieces)


def test_a_word_is_the_units_of_its_seconds_and_words_without_letters_are_none(tokenizer):
    codec = TextCodec(tokenizer)
    units = RunLength.of_frames(np.repeat([0, 1, 2, 3], 10))  # of 0.2 s each
    words = (Span("lost", 0.0, 0.2), Span("--", 0.2, 0.4), Span("silver", 0.4, 0.8))
    recording = find_word_units(Passage("p", words=words), units, GRID, codec)
    assert recording.spans.tolist() == [[0, 0], [2, 3]]
    for ids, word in zip(recording.word_pieces, ("lost", "silver"), strict=True):
        assert np.array_equal(ids, codec.encode([word])[0])


def test_a_window_keeps_the_words_that_lie_wholly_within():
    window = make_recording(12, (0, 2), (3, 4), (5, 8)).cut(2, 8)
    assert window.spans.tolist() == [[1, 2]]
    assert window.units.tolist() == [2, 3, 4, 5, 0, 1]


def test_sequences_of_units_and_of_words_have_the_places_of_the_same_words():
    question = make_recording(3, (0, 0), (1, 2))
    window = make_recording(9, (0, 3), (4, 8))
    pairs = [(question, window), (make_recording(0), window)]
    batch = collate_words(pairs, LAYOUT, TEXT_LAYOUT)
    # [CLS] 3 units [SEP] 9 units [SEP]; [CLS] 20 21 21 [SEP] 20 21 21 [SEP]
    ids, text_ids = batch["ids"][0], batch["text_ids"][0]
    assert batch["places"][0].tolist() == [[1, 1], [2, 3], [5, 8], [9, 13]]
    assert batch["text_places"][0].tolist() == [[1, 1], [2, 3], [5, 5], [6, 7]]
    assert ids[1:4].tolist() == question.units.tolist()
    assert ids[5:14].tolist() == window.units.tolist()
    assert text_ids[:8].tolist() == [101, 20, 21, 21, 102, 20, 21, 21]
    # without a question the window begins behind [CLS] [SEP]
    assert batch["places"][1].tolist() == [[2, 5], [6, 10], [-1, -1], [-1, -1]]


def test_a_words_vector_is_the_mean_of_its_outputs():
    hidden = torch.randn(2, 9, 4)
    places = torch.tensor([[[1, 3], [4, 4]], [[0, 8], [-1, -1]]])
    vectors = average_words(hidden, places)
    torch.testing.assert_close(vectors[0, 0], hidden[0, 1:4].mean(0))
    torch.testing.assert_close(vectors[0, 1], hidden[0, 4])
    torch.testing.assert_close(vectors[1, 0], hidden[1].mean(0))


@pytest.fixture
def train_student(corpus, tmp_path, monkeypatch):  # noqa: F811
    """A function that trains a student on `corpus`, from every layer of the teacher, and returns
    its folder."""
    # that of `corpus`, which loads a tiny text encoder
    load = train.load_text_encoder
    monkeypatch.setattr(teacher, "load_text_encoder", load)

    def train_words(out="taught", teacher=None, objective="words", **changes):
        student = TrainUnitWords(
            corpus=corpus,
            units=tmp_path / "units",
            out=tmp_path / out,
            teacher=teacher,
            objective=objective,
            layers="all" if objective == "words" else "last",
            qa=options(**changes),
        )
        train_unit_words(student)
        return student.out

    return train_words


def test_a_student_that_reads_the_teachers_words_has_its_vectors_in_every_layer(corpus, tmp_path):  # noqa: F811
    folder = tmp_path / "text-qa"
    train_text_reader(corpus, folder)
    reader, layout, _ = load_reader(folder)
    teacher = load_teacher("none", folder)
    word_pieces = tuple(np.array([n]) for n in (5, 6, 7, 8))
    # the units are the ids of the words themselves
    recording = SpokenWords(np.arange(5, 9), np.array([[n, n] for n in range(4)]), word_pieces)
    batch = collate_words([(recording.cut(0, 2), recording)], layout, teacher.layout)
    student_vectors, teacher_vectors = UnitTeacher(reader, teacher, every_layer=True).embed_words(
        batch
    )
    # two words of the question and four of the window
    assert student_vectors.shape[:2] == (reader.encoder.config.num_hidden_layers, 6)
    torch.testing.assert_close(student_vectors, teacher_vectors)


@pytest.mark.parametrize("by_reader", [False, True])
def test_dual_starts_from_a_student(corpus, train_student, tmp_path, by_reader):  # noqa: F811
    reader = None  # the text encoder teaches
    if by_reader:
        reader = tmp_path / "text-qa"
        train_text_reader(corpus, reader)
    out = train_student(teacher=reader, attention_width=4)
    card = read_json(out / "card.json")
    assert card["hours"] >= 0
    assert card["passages"] == 3
    with untouched(out):
        train_student(teacher=reader, attention_width=4)
    model, layout, _ = load_reader(train_reader(corpus, tmp_path, start=out, attention_width=4))
    assert layout.attention_width == 4
    assert model.inputs.attention_width == 4


def test_a_student_begins_as_the_reader_that_teaches(corpus, tmp_path):  # noqa: F811
    folder = tmp_path / "text-qa"
    train_text_reader(corpus, folder)
    reader, layout, _ = load_reader(folder)
    student = copy_with_units(folder, 6, seed=0)
    # [CLS] question [SEP] passage [SEP] [PAD]
    units = torch.tensor([[6, 0, 1, 7, 2, 3, 4, 5, 7, 8]])
    mask = (units < 8).long()
    segments = (torch.arange(10)[None] > 3).long()
    words = reader.embedding.weight
    ids = torch.zeros_like(units)  # of the words whose rows the units have
    for position, unit in enumerate(units[0]):
        same_row = (words == student.embedding.weight[unit]).all(1)
        ids[0, position] = same_row.nonzero()[0, 0]
    assert ids[0, [0, 3, 9]].tolist() == [layout.cls, layout.sep, layout.pad]
    logits = student.eval().logits(units, mask, segments)
    torch.testing.assert_close(logits, reader.logits(ids, mask, segments))


def test_a_killed_training_of_a_student_ends_with_the_same_bytes(train_student, dies_at):
    training = TrainingOptions(steps=4, learning_rate=1e-3, save_every=1, bf16=False)
    whole = train_student("whole", training=training)
    with dies_at(WordBatches, step=3):
        train_student("killed", training=training)
    killed = train_student("killed", training=training)
    assert same_files(whole, killed, "model.safetensors", "made_from.json")


def test_recordings_without_times_of_words_are_refused(corpus, train_student):  # noqa: F811
    change_lines(corpus / "train/passages.jsonl", {"words": []})
    with pytest.raises(InputError, match="another corpus|words have times"):
        train_student()


def test_the_control_predicts_hidden_units_and_has_no_text():
    pairs = SpokenPairs({"p": make_recording(400)}, [("", "p")] * 2)
    unmasked = WordBatches(pairs, replace(LAYOUT, size=400), TEXT_LAYOUT, options())
    batch = MaskedUnitBatches(unmasked)(0)
    hidden = batch["targets"] != UNMASKED
    assert 0.08 < hidden.float().mean() < 0.2  # about MASKED
    restored = torch.where(hidden, batch["targets"], batch["ids"])
    assert torch.equal(restored, unmasked(0)["ids"])
    assert (batch["targets"][hidden] < 6).all()  # units, no specials
    assert not any(name.startswith("text") for name in batch)


def test_a_unit_begins_as_the_word_that_it_occurs_in(tokenizer, text_encoder):
    encoder = text_encoder()
    words = encoder.get_input_embeddings()
    reader = WordReader(encoder, words, TextCodec(tokenizer), TEXT_LAYOUT)
    word_pieces = tuple(np.array([n]) for n in (5, 6, 7))
    spans = np.array([[0, 0], [1, 1], [2, 2]])  # unit 0 is word 5, and so on
    recording = SpokenWords(np.array([0, 1, 2, 0]), spans, word_pieces)
    table = torch.zeros(7, words.embedding_dim)
    embed_as_words(table, SpokenPairs({"p": recording}, ()), reader)
    centred_table = table[:3] - words.weight.mean(0)
    centred_words = words.weight[5:8] - words.weight.mean(0)
    likeness = torch.cosine_similarity(centred_table[:, None], centred_words[None], -1)
    assert likeness.argmax(1).tolist() == [0, 1, 2]
    assert not table[3:].any()


@pytest.mark.parametrize(
    ("contradiction", "message"),
    [
        ({"start": "a", "teacher": "b"}, "--start and --teacher"),
        ({"objective": "masked-units", "layers": "all"}, "--layers would have no effect"),
    ],
)
def test_options_that_contradict_each_other_are_refused(contradiction, message):
    with pytest.raises(InputError, match=message):
        TrainUnitWords(corpus="c", units="u", out="o", **contradiction)
