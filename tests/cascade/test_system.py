"""The cascade, with stand-ins for recogniser and span model: words become tokens, and spans of
tokens become words with times."""

import numpy as np
import pytest

from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import load_simulated, make_cascade, make_text_system
from speechssl.cascade.train_text_qa import make_text_examples
from speechssl.data.records import Answer, Corpus, Passage, Question, Span
from speechssl.dual.system import AnswerSpan, TimedAnswer
from speechssl.textlm.tokenizers import TextCodec

from ..files import refused, write_lines
from .conftest import transcript

SENTENCE = transcript("Anna lost the silver lantern in Paris.")
WHAT = transcript("what")


class FakeRecogniser:
    """This recognises `texts[i]` in a recording whose first sample is i."""

    name, card = "fake", {"asr": "fake"}

    def __init__(self, texts):
        self.texts = texts

    def transcribe(self, samples):
        return transcript(self.texts[int(samples[0])])


class FindingReader:
    """This answers with the span of the tokens of `answer` in the passage, and keeps the items that
    it reads."""

    def __init__(self, codec, answer):
        self.answer, _ = codec.encode(answer.split())
        self.items = []

    def read(self, items):
        self.items += items
        return [self._find(passage) for _, passage in items]

    def _find(self, passage):
        size = len(self.answer)
        for first in range(len(passage)):
            if np.array_equal(passage[first : first + size], self.answer):
                return AnswerSpan(first, first + size - 1, score=1.0, confidence=0.75)
        raise AssertionError("the answer is not in the passage")


def answer_all(codec, answer, items):
    reader = TrainedReader(codec, FindingReader(codec, answer))
    return make_text_system(TextQa(reader), "text").answer_all(items)


@pytest.fixture(scope="module")
def codec(tokenizer):
    return TextCodec(tokenizer)


def test_an_example_holds_the_tokens_of_the_answers_words(codec, tokenizer):
    words = ["the", "owls", "lost", "silver"]  # a second each
    spans = tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words))
    answer = Answer("", start=1.0, end=3.0)  # owls lost
    question = Question("q", "p", text="what lost", answers=(answer,))
    data = Corpus(".", "train", {"p": Passage("p", words=spans)}, (question,))
    (example,), left_out = make_text_examples(data, codec)
    assert not left_out
    answer_ids = example.passage[example.first : example.last + 1]
    assert tokenizer.convert_ids_to_tokens(answer_ids) == ["o", "##w", "##l", "##s", "lost"]
    assert np.array_equal(example.question, codec.encode(["what", "lost"])[0])


def test_recordings_are_recognised_and_not_mixed_up(codec):
    texts = ["what did Anna lose", "Anna lost the owls in Paris"]
    reader = FindingReader(codec, "owls")
    cascade = make_cascade(TextQa(TrainedReader(codec, reader)), FakeRecogniser(texts))
    question, passage = (cascade.encode(None, np.array([i, 0.0])) for i in range(2))
    (answer,) = cascade.answer_all([(question, passage)])
    assert (answer.start, answer.end, answer.text) == (1.5, 1.9, "owls")
    ((question_ids, passage_ids),) = reader.items
    assert np.array_equal(question_ids, codec.encode(texts[0].split())[0])
    assert np.array_equal(passage_ids, codec.encode(texts[1].split())[0])


@pytest.mark.parametrize(
    ("words", "separator", "tokens", "text"),
    [
        ("in silver -- lantern ... paris", " ", "silver lantern", "silver -- lantern"),
        ("abnst", "", "b n s", "bns"),
    ],
)
def test_words_without_tokens_keep_their_place_and_chinese_is_joined_without_spaces(
    codec, words, separator, tokens, text
):
    (answer,) = answer_all(codec, tokens, [(WHAT, transcript(words, separator))])
    assert answer == TimedAnswer(start=0.5, end=1.9, confidence=0.75, text=text)


@pytest.mark.parametrize("silent", ["", "..."])
def test_a_passage_without_words_gives_an_empty_answer_and_the_others_theirs(codec, silent):
    paris = TimedAnswer(start=3.0, end=3.4, confidence=0.75, text="Paris.")
    empty = TimedAnswer(start=0.0, end=0.0, confidence=0.0, text="")
    # a question without words is still answered
    items = [(WHAT, SENTENCE), (WHAT, transcript(silent)), (transcript(""), SENTENCE)]
    assert answer_all(codec, "paris", items) == [paris, empty, paris]


def test_texts_with_errors_are_read_from_a_file_by_their_rate(tmp_path):
    path = tmp_path / "simulated.jsonl"
    lines = [{"rate": rate, "id": "p", "words": [["a", 0.0, rate]]} for rate in (2.5, 30.0)]
    write_lines(path, lines)
    for rate in (2.5, 30):
        system = load_simulated(TextQa(None), path, f"cascade-simulated@{rate}")
        words = system.encode(Passage("p", text="the boat"), None).words
        assert [(w.text, w.end) for w in words] == [("a", rate)]
    for errors, rate in ((path, 40), (None, 30)):
        refused("needs texts", load_simulated, TextQa(None), errors, f"cascade-simulated@{rate}")
