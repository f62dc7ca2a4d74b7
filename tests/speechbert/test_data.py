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


@pytest.fixture
def reader(text_encoder):
    torch.manual_seed(0)
    model = SpanModel(text_encoder("bert"), CodeEmbedding(nn.Embedding(data.SPECIALS, 32)))
    return Reader(model.eval(), LAYOUT)


def make_audio_words(count, seed=0):
    """Make random audio words of 0.1 s."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.uniform(0, 10, count))
    return AudioWords(rng.normal(size=(count, 32)).astype(np.float32), starts, starts + 0.1)


def make_corpus(answer):
    """Make a corpus of a passage "a b c" of three seconds and a question "a" of one."""
    passage = Passage("p", audio="p.flac", seconds=3.0, text="a b c")
    question = Question("q0", "p", audio="q0.flac", seconds=1.0, text="a", answers=(answer,))
    return Corpus(".", "train", {"p": passage}, (question,))


def make_table(ways=1):
    """Make the table of words of `make_corpus`, cut by its text, a word a second, and, with two
    ways, as a recogniser might cut it."""
    words = tuple(Span(c, float(i), i + 1.0) for i, c in enumerate("abc"))
    cuts = {
        "p": [words, (Span("", 0.0, 1.4), Span("", 1.4, 3.0))][:ways],
        "q0": [(Span("a", 0.0, 1.0),), (Span("", 0.0, 1.0),)][:ways],
    }
    features = np.zeros((300, 2), np.float16)
    return data.make_word_table(features, {"p": (0, 150), "q0": (150, 300)}, cuts, GRID)


def test_the_answer_is_the_words_whose_middle_it_holds():
    corpus = make_corpus(Answer("b c", start=0.9, end=3.0))
    (example,), left_out = data.make_span_examples(corpus, make_table())
    assert not left_out
    assert (example.first, example.last) == (1, 2)
    assert (example.passage - data.SPECIALS).tolist() == [0, 1, 2]
    assert (example.question - data.SPECIALS).tolist() == [3]


def test_every_way_of_cutting_gives_an_example():
    corpus = make_corpus(Answer("c", start=2.0, end=3.0))
    examples, _ = data.make_span_examples(corpus, make_table(ways=2))
    assert [(e.first, e.last) for e in examples] == [(2, 2), (1, 1)]
    assert not set(examples[0].passage) & set(examples[1].passage)


def test_an_answer_lasts_from_its_first_word_to_its_last(reader):
    passage = make_audio_words(15, seed=1)
    (answer,) = answer_codes(reader, [(make_audio_words(2), passage)])
    first = passage.starts.tolist().index(answer.start)
    last = passage.ends.tolist().index(answer.end)
    assert 0 <= last - first < LAYOUT.answer
    assert 0 < answer.confidence <= 1
    assert answer.text is None


def test_a_passage_without_words_has_an_empty_answer(reader):
    (answer,) = answer_codes(reader, [(make_audio_words(2), make_audio_words(0))])
    assert (answer.start, answer.end, answer.confidence) == (0.0, 0.0, 0.0)


def test_a_question_without_words_is_answered(reader):
    (answer,) = answer_codes(reader, [(make_audio_words(0), make_audio_words(5))])
    assert answer.end > 0


def test_no_questions_have_no_answers(reader):
    assert answer_codes(reader, []) == []


def test_ids_from_that_of_the_first_audio_word_on_are_codes():
    specials = nn.Embedding(data.SPECIALS, 32)
    embedding = CodeEmbedding(specials)
    embedding.codes = torch.randn(5, 32)
    ids = torch.tensor([[data.CLS, data.SPECIALS + 4, data.SEP, data.SPECIALS]])
    rows = [specials.weight[0], embedding.codes[4], specials.weight[1], embedding.codes[0]]
    assert torch.equal(embedding(ids)[0], torch.stack(rows))


def test_codes_are_neither_trained_nor_saved():
    embedding = CodeEmbedding(nn.Embedding(data.SPECIALS, 32))
    embedding.codes = torch.randn(5, 32)
    assert embedding.state_dict().keys() == {"weight"}
    assert dict(embedding.named_parameters()).keys() == {"weight"}


# ---- cutting recordings into words


def test_a_word_gets_the_text_of_the_reference_word_that_it_covers_by_half():
    reference = (Span("silver", 0.0, 1.0), Span("lantern", 1.0, 2.0))
    times = [(0.05, 0.95), (0.6, 1.4), (1.0, 1.4), (1.4, 2.0)]
    words = data.attach_texts(tuple(Span("x", *time) for time in times), reference)
    assert [w.text for w in words] == ["silver", "", "", "lantern"]
    assert [(w.start, w.end) for w in words] == times


def test_words_get_no_text_from_an_empty_reference():
    (word,) = data.attach_texts((Span("x", 0.0, 1.0),), ())
    assert word.text == ""
    assert data.attach_texts((), (Span("silver", 0.0, 1.0),)) == ()


def test_neighbours_share_no_more_than_the_row_of_their_border():
    rows = data.find_rows((Span("a", 0.0, 0.1), Span("b", 0.1, 0.3)), GRID, 50)
    # sample 1600 lies in frame 4, which owns 1320 to 1639
    assert rows.tolist() == [[0, 5], [4, 15]]


def test_a_table_numbers_the_words_of_all_recordings_in_all_ways_of_cutting():
    features = np.zeros((40, 3), np.float16)
    cuts = {
        "p": [(Span("a", 0.0, 0.2), Span("b", 0.2, 0.3)), (Span("", 0.0, 0.3),)],
        "q": [(), (Span("c", 0.0, 0.1),)],
    }
    table = data.make_word_table(features, {"p": (0, 20), "q": (20, 40)}, cuts, GRID)
    assert table.texts == ("a", "b", "", "c")
    assert len(table.rows) == 4
    assert [s.numbers.tolist() for s in table.sequences["p"]] == [[0, 1], [2]]
    assert [s.numbers.tolist() for s in table.sequences["q"]] == [[], [3]]
    assert table.rows[3].tolist() == [20, 25]
    assert table.sequences["p"][0].inside(0.15, 0.3).tolist() == [1]
