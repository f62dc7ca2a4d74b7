"""Questions about audio words: examples from times, answers in seconds, and spans that can be
learnt."""

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


@pytest.fixture
def reader(text_encoder):
    torch.manual_seed(0)
    model = SpanModel(text_encoder("bert"), CodeEmbedding(nn.Embedding(data.SPECIALS, 32)))
    return Reader(model.eval(), LAYOUT)


def audio_words(count, seed=0):
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.uniform(0, 10, count))
    return AudioWords(rng.normal(size=(count, 32)).astype(np.float32), starts, starts + 0.1)


def corpus(answer):
    passage = Passage("p", "p.flac", 3.0, "a b c", "s", "en")
    question = Question("q0", "p", "q0.flac", 1.0, "a", "s", "en", (answer,))
    return Corpus(".", "train", {"p": passage}, (question,))


def table_of(ways=1):
    words = tuple(Span(c, float(i), i + 1.0) for i, c in enumerate("abc"))
    cuts = {
        "p": [words, (Span("", 0.0, 1.4), Span("", 1.4, 3.0))][:ways],
        "q0": [(Span("a", 0.0, 1.0),), (Span("", 0.0, 1.0),)][:ways],
    }
    return data.make_word_table(
        np.zeros((300, 2), np.float16), {"p": (0, 150), "q0": (150, 300)}, cuts, GRID
    )


def test_the_answer_is_the_words_whose_middle_it_holds():
    (made,), left_out = data.make_span_examples(corpus(Answer("b c", 0.9, 3.0)), table_of())
    assert (made.first, made.last) == (1, 2)
    assert not left_out
    assert made.passage.tolist() == [data.SPECIALS, data.SPECIALS + 1, data.SPECIALS + 2]
    assert made.question.tolist() == [data.SPECIALS + 3]


def test_every_way_of_cutting_gives_an_example():
    found, _ = data.make_span_examples(corpus(Answer("c", 2.0, 3.0)), table_of(ways=2))
    assert [(x.first, x.last) for x in found] == [(2, 2), (1, 1)]
    assert not set(found[0].passage) & set(found[1].passage)


def test_an_answer_lasts_from_its_first_word_to_its_last(reader):
    passage = audio_words(15, 1)
    (answer,) = answer_codes(reader, [(audio_words(2), passage)])
    first, last = passage.starts.tolist().index(answer.start), list(passage.ends).index(answer.end)
    assert 0 <= last - first < LAYOUT.answer
    assert 0 < answer.confidence <= 1
    assert answer.text is None


def test_a_silent_passage_has_an_empty_answer_and_a_silent_question_is_asked_all_the_same(reader):
    nothing = answer_codes(reader, [(audio_words(2), audio_words(0))])[0]
    assert (nothing.start, nothing.end, nothing.confidence) == (0.0, 0.0, 0.0)
    assert answer_codes(reader, [(audio_words(0), audio_words(5))])[0].end > 0
    assert answer_codes(reader, []) == []


def test_an_id_is_a_special_or_a_code_and_codes_are_neither_trained_nor_saved():
    table, codes = nn.Embedding(data.SPECIALS, 32), torch.randn(5, 32)
    embedding = CodeEmbedding(table)
    embedding.codes = codes
    found = embedding(torch.tensor([[data.CLS, data.SPECIALS + 4, data.SEP, data.SPECIALS]]))[0]
    assert torch.equal(found, torch.stack([table.weight[0], codes[4], table.weight[1], codes[0]]))
    assert embedding.state_dict().keys() == dict(embedding.named_parameters()).keys() == {"weight"}


# ---- cutting recordings into words: borders, what a word of a recogniser is taken for, rows of
# features


GRID = FrameGrid(16_000, 320, 400)


def test_a_word_is_taken_for_the_one_it_covers_by_half():
    known = (Span("silver", 0.0, 1.0), Span("lantern", 1.0, 2.0))
    times = [(0.05, 0.95), (0.6, 1.4), (1.0, 1.4), (1.4, 2.0)]
    found = data.attach_texts(tuple(Span("x", *time) for time in times), known)
    assert [w.text for w in found] == ["silver", "", "", "lantern"]
    assert [(w.start, w.end) for w in found] == times
    assert [w.text for w in data.attach_texts((Span("x", 0.0, 1.0),), ())] == [""]
    assert data.attach_texts((), known) == ()


def test_neighbours_share_no_more_than_the_row_of_their_border():
    rows = data.find_rows((Span("a", 0.0, 0.1), Span("b", 0.1, 0.3)), GRID, 50)
    # sample 1600 lies in frame 4, which owns 1320 to 1639
    assert rows.tolist() == [[0, 5], [4, 15]]


def test_a_table_numbers_the_words_of_all_recordings_in_every_way_they_were_cut():
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
