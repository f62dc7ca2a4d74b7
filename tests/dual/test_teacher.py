"""The text teacher: which units are a word, what both sides see, and that a student learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.artifacts import read_json
from speechssl.data.records import Passage, Span
from speechssl.dual import teacher
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
from .test_train import GRID, corpus, dual, options, text_qa  # noqa: F401

LAYOUT, TEXT = Layout(6, 7, 8, size=10, stride=5, question=4), Layout(101, 102, 0)


def recording(count, *spans):
    pieces = tuple(np.array([20 + n] * (1 + n % 2)) for n in range(len(spans)))
    return SpokenWords(np.arange(count) % 6, np.array(spans).reshape(-1, 2), pieces)


def test_a_word_is_the_units_of_its_seconds_and_words_without_letters_are_none(tokenizer):
    units, codec = RunLength.of_frames(np.repeat([0, 1, 2, 3], 10)), TextCodec(tokenizer)
    words = (Span("lost", 0.0, 0.2), Span("--", 0.2, 0.4), Span("silver", 0.4, 0.8))
    heard = find_word_units(Passage("p", words=words), units, GRID, codec)  # a unit is 0.2 s
    assert heard.spans.tolist() == [[0, 0], [2, 3]]
    for ids, word in zip(heard.word_pieces, ("lost", "silver"), strict=True):
        assert np.array_equal(ids, codec.encode([word])[0])


def test_a_window_keeps_the_words_that_lie_wholly_within():
    cut = recording(12, (0, 2), (3, 4), (5, 8)).cut(2, 8)
    assert cut.spans.tolist() == [[1, 2]]
    assert cut.units.tolist() == [2, 3, 4, 5, 0, 1]


def test_both_sides_have_the_places_of_the_same_words():
    asked, window = recording(3, (0, 0), (1, 2)), recording(9, (0, 3), (4, 8))
    batch = collate_words([(asked, window), (recording(0), window)], LAYOUT, TEXT)
    ids, text = batch["ids"][0], batch["text_ids"][0]
    # [CLS] 3 units [SEP] 9 units [SEP]; [CLS] 20 21 21 [SEP] 20 21 21 [SEP]
    assert batch["places"][0].tolist() == [[1, 1], [2, 3], [5, 8], [9, 13]]
    assert batch["text_places"][0].tolist() == [[1, 1], [2, 3], [5, 5], [6, 7]]
    assert ids[1:4].tolist() == asked.units.tolist()
    assert ids[5:14].tolist() == window.units.tolist()
    assert text[:8].tolist() == [101, 20, 21, 21, 102, 20, 21, 21]
    assert batch["places"][1].tolist() == [[2, 5], [6, 10], [-1, -1], [-1, -1]]


def test_a_words_vector_is_the_mean_of_its_outputs():
    hidden = torch.randn(2, 9, 4)
    places = torch.tensor([[[1, 3], [4, 4]], [[0, 8], [-1, -1]]])
    vectors = average_words(hidden, places)
    torch.testing.assert_close(vectors[0, 0], hidden[0, 1:4].mean(0))
    torch.testing.assert_close(vectors[0, 1], hidden[0, 4])
    torch.testing.assert_close(vectors[1, 0], hidden[1].mean(0))


@pytest.fixture
def taught(corpus, tmp_path, monkeypatch):  # noqa: F811
    load = teacher.make_unit_encoder.__globals__["load_text_encoder"]
    monkeypatch.setattr(teacher, "load_text_encoder", load)

    def train(out="taught", teacher=None, objective="words", **changes):
        places = {"corpus": corpus, "units": tmp_path / "units", "out": tmp_path / out}
        layers = "all" if objective == "words" else "last"
        what = {"teacher": teacher, "objective": objective, "layers": layers}
        train_unit_words(TrainUnitWords(**places, **what, qa=options(**changes)))
        return tmp_path / out

    return train


def test_every_layer_teaches_and_a_copy_that_reads_the_words_agrees(corpus, tmp_path):  # noqa: F811
    folder = tmp_path / "text-qa"
    text_qa(corpus, folder)
    reader, layout, _ = load_reader(folder)
    teacher = load_teacher("none", folder)
    ids = tuple(np.array([n]) for n in (5, 6, 7, 8))
    said = SpokenWords(np.arange(5, 9), np.array([[n, n] for n in range(4)]), ids)
    batch = collate_words([(said.cut(0, 2), said)], layout, teacher.layout)
    of_units, of_text = UnitTeacher(reader, teacher, every_layer=True).vectors(batch)
    assert of_units.shape[:2] == (reader.encoder.config.num_hidden_layers, 6)
    torch.testing.assert_close(of_units, of_text)


@pytest.mark.parametrize("by_reader", [False, True])
def test_dual_starts_from_a_reader_that_was_taught_words(corpus, taught, tmp_path, by_reader):  # noqa: F811
    before = None
    if by_reader:
        text_qa(corpus, tmp_path / "text-qa")
        before = tmp_path / "text-qa"
    out = taught(teacher=before, attention_width=4)
    card = read_json(out / "card.json")
    assert card["hours"] >= 0
    assert card["passages"] == 3
    with untouched(out):
        taught(teacher=before, attention_width=4)
    model, layout, _ = load_reader(dual(corpus, tmp_path, start=out, attention_width=4))
    assert layout.attention_width == model.inputs.attention_width == 4


def test_a_student_begins_as_the_reader_that_teaches(corpus, tmp_path):  # noqa: F811
    folder = tmp_path / "text-qa"
    text_qa(corpus, folder)
    reader, layout, _ = load_reader(folder)
    student = copy_with_units(folder, 6, seed=0)
    units = torch.tensor(
        [[6, 0, 1, 7, 2, 3, 4, 5, 7, 8]]
    )  # [CLS] question [SEP] passage [SEP] [PAD]
    mask, segments = (units < 8).long(), (torch.arange(10)[None] > 3).long()
    table, words = student.embedding.weight, reader.embedding.weight
    ids = torch.tensor([[int((words == table[unit]).all(1).nonzero()[0]) for unit in units[0]]])
    assert ids[0, [0, 3, 9]].tolist() == [layout.cls, layout.sep, layout.pad]
    logits = student.eval().logits(units, mask, segments)
    torch.testing.assert_close(logits, reader.logits(ids, mask, segments))


def test_a_killed_teacher_ends_with_the_same_bytes(taught, dies_at):
    training = TrainingOptions(4, 1e-3, save_every=1, bf16=False)
    whole = taught("whole", training=training)
    with dies_at(WordBatches, 3):
        taught("killed", training=training)
    killed = taught("killed", training=training)
    assert same_files(whole, killed, "model.safetensors", "made_from.json")


def test_recordings_without_times_of_words_are_refused(corpus, taught):  # noqa: F811
    change_lines(corpus / "train/passages.jsonl", {"words": []})
    with pytest.raises(InputError, match="another corpus|words have times"):
        taught()


def test_the_control_predicts_hidden_units_and_has_no_text(taught, tmp_path):
    spoken = SpokenPairs({"p": recording(400)}, [("", "p")] * 2)
    whole = WordBatches(spoken, replace(LAYOUT, size=400), TEXT, options())
    batch = MaskedUnitBatches(whole)(0)
    hidden = batch["targets"] != UNMASKED
    assert 0.08 < hidden.float().mean() < 0.2
    assert torch.equal(torch.where(hidden, batch["targets"], batch["ids"]), whole(0)["ids"])
    assert (batch["targets"][hidden] < 6).all()
    assert not any(name.startswith("text") for name in batch)
    card = read_json(taught("control", objective="masked-units") / "card.json")
    assert card["what"].endswith("masked-units")


def test_a_piece_begins_as_the_word_that_it_is_said_in(tokenizer, text_encoder):
    encoder = text_encoder()
    words = encoder.get_input_embeddings()
    reader = WordReader(encoder, words, TextCodec(tokenizer), TEXT)
    pieces = tuple(np.array([n]) for n in (5, 6, 7))
    said = SpokenWords(np.array([0, 1, 2, 0]), np.array([[0, 0], [1, 1], [2, 2]]), pieces)
    table = torch.zeros(7, words.embedding_dim)
    embed_as_words(table, SpokenPairs({"p": said}, ()), reader)
    likeness = torch.cosine_similarity(
        table[:3, None] - words.weight.mean(0), words.weight[None, 5:8] - words.weight.mean(0), -1
    )
    assert likeness.argmax(1).tolist() == [0, 1, 2]
    assert not table[3:].any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start": "a", "teacher": "b"}, "--start and --teacher"),
        ({"objective": "masked-units", "layers": "all"}, "--layers would have no effect"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        TrainUnitWords(corpus="c", units="u", out="o", **given)
