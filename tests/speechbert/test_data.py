"""Recordings are cut into audio words, examples are made of the times of answers, and questions are
answered in seconds."""

import numpy as np
import pytest
import torch
from torch import nn

from speechssl.data.records import Answer, Corpus, Passage, Question, Span
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel
from speechssl.dual.system import Reader
from speechssl.speechbert import data
from speechssl.speechbert.model import CodeEmbedding
from speechssl.speechbert.system import AudioWords, answer_codes
from speechssl.timing import FrameGrid

LAYOUT = Layout(data.CLS, data.SEP, data.PAD, size=6, stride=3, question=3, answer=3)
GRID = FrameGrid(sample_rate=16_000, hop=320, receptive=400)


# ---- cutting recordings into words


def test_a_word_gets_the_text_of_the_reference_word_that_it_covers_by_half():
    reference = (Span("silver", 0.0, 1.0), Span("lantern", 1.0, 2.0))
    times = [(0.05, 0.95), (0.6, 1.4), (1.0, 1.4), (1.4, 2.0)]
    spans = tuple(Span("x", *time) for time in times)
    words = data.attach_texts(spans, reference)
    assert [w.text for w in words] == ["silver", "", "", "lantern"]
    assert [(w.start, w.end) for w in words] == times
    assert [w.text for w in data.attach_texts(spans, ())] == [""] * 4
    assert data.attach_texts((), reference) == ()


def test_neighbours_share_no_more_than_the_row_of_their_border():
    rows = data.find_rows((Span("a", 0.0, 0.1), Span("b", 0.1, 0.3)), GRID, 50)
    # sample 1600 lies in frame 4, which owns 1320 to 1639
    assert rows.tolist() == [[0, 5], [4, 15]]


@pytest.fixture
def table():
    """The words of a passage "a b c", a word a second, and of a question "a", cut by their texts
    and as a recogniser might cut them."""
    words = tuple(Span(c, float(i), i + 1.0) for i, c in enumerate("abc"))
    cuts = {
        "p": [words, (Span("", 0.0, 1.4), Span("", 1.4, 3.0))],
        "q0": [(Span("a", 0.0, 1.0),), ()],
        "q1": [(Span("a", 0.0, 1.0),), (Span("", 0.0, 1.0),)],
    }
    bounds = {"p": (0, 150), "q0": (150, 200), "q1": (200, 250)}
    return data.make_word_table(np.zeros((250, 2), np.float16), bounds, cuts, GRID)


def test_a_table_numbers_the_words_of_all_recordings_in_all_ways_of_cutting(table):
    assert table.texts == ("a", "b", "c", "", "", "a", "a", "")
    assert [s.numbers.tolist() for s in table.sequences["p"]] == [[0, 1, 2], [3, 4]]
    assert [s.numbers.tolist() for s in table.sequences["q0"]] == [[5], []]
    assert len(table.rows) == 8
    assert table.rows[5].tolist() == [150, 200]


@pytest.mark.parametrize(
    ("question", "start", "spans"),
    [("q0", 0.9, [(1, 2)]), ("q1", 0.9, [(1, 2), (1, 1)]), ("q1", 2.0, [(2, 2), (1, 1)])],
)
def test_every_way_of_cutting_gives_an_example_whose_answer_is_the_words_with_their_middle_in_it(
    table, question, start, spans
):
    record = Question(question, "p", text="a", answers=(Answer("c", start=start, end=3.0),))
    corpus = Corpus(".", "train", {"p": Passage("p", text="a b c")}, (record,))
    examples, left_out = data.make_span_examples(corpus, table)
    assert not left_out
    assert [(e.first, e.last) for e in examples] == spans
    assert (examples[0].passage - data.SPECIALS).tolist() == [0, 1, 2]


# ---- answering


def make_audio_words(count, seed=0):
    """Make random audio words of 0.1 s."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.uniform(0, 10, count))
    return AudioWords(rng.normal(size=(count, 32)).astype(np.float32), starts, starts + 0.1)


def test_answers_last_from_their_first_word_to_their_last_and_are_empty_without_words(text_encoder):
    torch.manual_seed(0)
    model = SpanModel(text_encoder("bert"), CodeEmbedding(nn.Embedding(data.SPECIALS, 32)))
    reader = Reader(model.eval(), LAYOUT)
    question, passage, silence = make_audio_words(2), make_audio_words(15, 1), make_audio_words(0)
    items = [(question, passage), (silence, passage), (question, silence)]
    *answers, empty = answer_codes(reader, items)
    assert (empty.start, empty.end, empty.confidence) == (0.0, 0.0, 0.0)
    for answer in answers:
        first = passage.starts.tolist().index(answer.start)
        last = passage.ends.tolist().index(answer.end)
        assert 0 <= last - first < LAYOUT.answer
        assert 0 < answer.confidence <= 1
    assert answer_codes(reader, []) == []


def test_ids_from_that_of_the_first_audio_word_on_are_codes_which_are_not_saved():
    specials = nn.Embedding(data.SPECIALS, 32)
    embedding = CodeEmbedding(specials)
    embedding.codes = torch.randn(5, 32)
    ids = torch.tensor([[data.CLS, data.SPECIALS + 4, data.SEP, data.SPECIALS]])
    rows = [specials.weight[0], embedding.codes[4], specials.weight[1], embedding.codes[0]]
    assert torch.equal(embedding(ids)[0], torch.stack(rows))
    assert embedding.state_dict().keys() == {"weight"}
