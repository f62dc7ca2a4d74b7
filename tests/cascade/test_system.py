"""The cascade, with stand-ins for recogniser and span model: words become tokens, and spans of
tokens become words with times."""

import numpy as np
import pytest

from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import load_simulated, make_cascade
from speechssl.cascade.train_text_qa import make_text_examples
from speechssl.data.records import Answer, Corpus, Passage, Question, Span
from speechssl.dual.system import AnswerSpan, TimedAnswer
from speechssl.textlm.tokenizers import TextCodec

from ..files import refused, write_lines
from .conftest import transcript

SENTENCE = "Anna lost the silver lantern in Paris.".split()


class FakeRecogniser:
    """This recognises `texts[i]` in a recording whose first sample is i."""

    name, card = "fake", {"asr": "fake"}

    def __init__(self, texts):
        self.texts = texts

    def transcribe(self, samples):
        return transcript(self.texts[int(samples[0])].split())


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


def fake_cascade(recogniser, codec, reader):
    return make_cascade(TextQa(TrainedReader(codec, reader)), recogniser)


@pytest.fixture(scope="module")
def codec(tokenizer):
    return TextCodec(tokenizer)


# ---- training examples


def test_an_example_holds_the_tokens_of_the_answers_words(codec, tokenizer):
    words = ["the", "owls", "lost", "silver"]  # a second each
    spans = tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words))
    passage = Passage("p", words=spans)
    answer = Answer("", start=1.0, end=3.0)  # owls lost
    question = Question("q", "p", text="what lost", answers=(answer,))
    data = Corpus(".", "train", {"p": passage}, (question,))
    (example,), left_out = make_text_examples(data, codec)
    assert not left_out
    answer_ids = example.passage[example.first : example.last + 1]
    assert tokenizer.convert_ids_to_tokens(answer_ids) == ["o", "##w", "##l", "##s", "lost"]
    assert np.array_equal(example.question, codec.encode(["what", "lost"])[0])


# ---- answering


def test_recordings_are_recognised_and_not_mixed_up(codec):
    texts = ["what did Anna lose", "Anna lost the owls in Paris"]
    reader = FindingReader(codec, "owls")
    cascade = fake_cascade(FakeRecogniser(texts), codec, reader)
    question, passage = (cascade.encode(None, np.array([i, 0.0])) for i in range(2))
    (answer,) = cascade.answer_all([(question, passage)])
    assert (answer.start, answer.end, answer.text) == (1.5, 1.9, "owls")
    ((question_ids, passage_ids),) = reader.items
    assert np.array_equal(question_ids, codec.encode(texts[0].split())[0])
    assert np.array_equal(passage_ids, codec.encode(texts[1].split())[0])


@pytest.mark.parametrize(
    ("words", "separator", "tokens", "text"),
    [
        ("in silver -- lantern ... paris".split(), " ", "silver lantern", "silver -- lantern"),
        (list("abnst"), "", "b n s", "bns"),
    ],
)
def test_words_without_tokens_keep_their_place_and_chinese_is_joined_without_spaces(
    codec, words, separator, tokens, text
):
    cascade = fake_cascade(FakeRecogniser([]), codec, FindingReader(codec, tokens))
    (answer,) = cascade.answer_all([(transcript(["what"]), transcript(words, separator))])
    assert answer == TimedAnswer(start=0.5, end=1.9, confidence=0.75, text=text)


@pytest.mark.parametrize("silent", [[], ["..."]])
def test_a_passage_without_words_gives_an_empty_answer_and_the_others_theirs(codec, silent):
    question, passage = transcript(["what"]), transcript(SENTENCE)
    paris = TimedAnswer(start=3.0, end=3.4, confidence=0.75, text="Paris.")
    empty = TimedAnswer(start=0.0, end=0.0, confidence=0.0, text="")
    cascade = fake_cascade(FakeRecogniser([]), codec, FindingReader(codec, "paris"))
    items = [(question, passage), (question, transcript(silent)), (question, passage)]
    assert cascade.answer_all(items) == [paris, empty, paris]
    assert cascade.answer_all([(transcript([]), transcript([]))]) == [empty]
    # a question without words is still answered
    assert cascade.answer_all([(transcript([]), passage)]) == [paris]


# ---- text QA on simulated errors


def test_texts_with_errors_are_read_from_a_file_by_their_rate(tmp_path):
    path = tmp_path / "simulated.jsonl"
    lines = [{"rate": rate, "id": "p", "words": [["a", 0.0, rate]]} for rate in (2.5, 30.0)]
    write_lines(path, lines)
    passage = Passage("p", text="the boat")
    for rate in (2.5, 30):
        system = load_simulated(TextQa(None), path, f"cascade-simulated@{rate}")
        assert [(w.text, w.end) for w in system.encode(passage, None).words] == [("a", rate)]
        assert not system.needs_audio
        with pytest.raises(ValueError, match="reads the text of a corpus"):
            system.encode(None, None)
    for errors, rate in ((path, 40), (None, 30)):
        refused("needs texts", load_simulated, TextQa(None), errors, f"cascade-simulated@{rate}")
