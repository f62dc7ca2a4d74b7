"""The cascade with a recogniser and a reader made by hand: words to tokens and back, and their
times."""

import numpy as np
import pytest

from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import load_cascade, load_simulated
from speechssl.cascade.train_text_qa import text_examples
from speechssl.data.records import Answer, Corpus, Passage, Question, Span
from speechssl.dual.system import AnswerSpan, TimedAnswer
from speechssl.textlm.tokenizers import TextCodec

from ..files import refused, write_lines
from .conftest import transcript

SENTENCE = "Anna lost the silver lantern in Paris.".split()


class FakeRecogniser:
    """Recordings that say which words they hold: sample 0 is an index of `texts`."""

    name, card = "fake", {"asr": "fake"}

    def __init__(self, texts):
        self.texts = texts

    def transcribe(self, samples):
        return transcript(self.texts[int(samples[0])].split())


class FinderReader:
    """Answers with the tokens of a given word, wherever they stand; remembers what it was asked."""

    def __init__(self, codec, answer):
        self.wanted, self.asked = codec.encode(answer.split())[0], []

    def read(self, items):
        self.asked += items
        return [self._find(passage) for _, passage in items]

    def _find(self, passage):
        size = len(self.wanted)
        at = next(
            i for i in range(len(passage)) if np.array_equal(passage[i : i + size], self.wanted)
        )
        return AnswerSpan(at, at + size - 1, 1.0, 0.75)


def cascade_of(recogniser, codec, reader):
    return load_cascade(TextQa(TrainedReader(codec, reader)), recogniser)


@pytest.fixture(scope="module")
def codec(tokenizer):
    return TextCodec(tokenizer)


# ---- training examples


def test_an_example_holds_the_tokens_of_the_answers_words(codec, tokenizer):
    words = ["the", "owls", "lost", "silver"]  # a second each
    spans = tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words))
    passage = Passage("p", "", 9.0, "", "s", "en", words=spans)
    question = Question("q", "p", "", 1.0, "what lost", "s", "en", (Answer("", 1, 3.0),))
    data = Corpus(".", "train", {"p": passage}, (question,))
    (made,), left_out = text_examples(data, codec)
    assert not left_out
    found = tokenizer.convert_ids_to_tokens(made.passage[made.first : made.last + 1])
    assert found == ["o", "##w", "##l", "##s", "lost"]
    assert np.array_equal(made.question, codec.encode(["what", "lost"])[0])


# ---- answering


def test_recordings_are_recognised_and_not_mixed_up(codec):
    recogniser = FakeRecogniser(["what did Anna lose", "Anna lost the owls in Paris"])
    reader = FinderReader(codec, "owls")
    cascade = cascade_of(recogniser, codec, reader)
    asked, listened = (cascade.encode(None, np.array([n, 0.0])) for n in (0, 1))
    (found,) = cascade.answer_all([(asked, listened)])
    assert (found.start, found.end, found.text) == (1.5, 1.9, "owls")
    ((question, passage),) = reader.asked
    assert np.array_equal(question, codec.encode("what did Anna lose".split())[0])
    assert np.array_equal(passage, codec.encode("Anna lost the owls in Paris".split())[0])


@pytest.mark.parametrize(
    ("words", "separator", "answer", "wanted"),
    [
        ("in silver -- lantern ... paris".split(), " ", "silver lantern", "silver -- lantern"),
        (list("abnst"), "", "b n s", "bns"),
    ],
)
def test_words_without_tokens_keep_their_place_and_chinese_is_joined_without_spaces(
    codec, words, separator, answer, wanted
):
    cascade = cascade_of(FakeRecogniser([]), codec, FinderReader(codec, answer))
    (found,) = cascade.answer_all([(transcript(["what"]), transcript(words, separator))])
    assert found == TimedAnswer(0.5, 1.9, 0.75, wanted)


@pytest.mark.parametrize("silent", [[], ["..."]])
def test_a_passage_without_words_gives_an_empty_answer_and_the_others_theirs(codec, silent):
    empty, good = TimedAnswer(0.0, 0.0, 0.0, ""), (transcript(["what"]), transcript(SENTENCE))
    cascade = cascade_of(FakeRecogniser([]), codec, FinderReader(codec, "paris"))
    found = cascade.answer_all([good, (transcript(["what"]), transcript(silent)), good])
    assert found[0] == found[2] == TimedAnswer(3.0, 3.4, 0.75, "Paris.")
    assert found[1] == empty
    assert cascade.answer_all([(transcript([]), transcript([]))]) == [empty]
    # a question without words is still answered
    assert cascade.answer_all([(transcript([]), good[1])])[0].text == "Paris."


# ---- text QA on simulated errors


def test_texts_with_errors_are_read_from_a_file_by_their_rate(tmp_path):
    path = tmp_path / "simulated.jsonl"
    lines = [{"rate": rate, "id": "p", "words": [["a", 0.0, rate]]} for rate in (2.5, 30.0)]
    write_lines(path, lines)
    for rate in (2.5, 30):
        system = load_simulated(TextQa(None), path, f"cascade-simulated@{rate}")
        passage = Passage("p", "", 0.0, "the boat", "s", "en")
        assert [(w.text, w.end) for w in system.encode(passage, None).words] == [("a", rate)]
        assert not system.needs_audio
        with pytest.raises(ValueError, match="reads the text of a corpus"):
            system.encode(None, None)
    for errors, rate in ((path, 40), (None, 30)):
        refused("needs texts", load_simulated, TextQa(None), errors, f"cascade-simulated@{rate}")
