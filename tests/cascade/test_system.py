"""The cascade with a recogniser and a reader made by hand: words to tokens and back, and their
times."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from speechssl.cascade.confusions import ConfusionModel, Rates, WordConfusions, write_confusions
from speechssl.cascade.data import Recogniser, text_examples
from speechssl.cascade.readers import TextQa, TrainedReader
from speechssl.cascade.system import (
    load_cascade,
    load_simulated,
    reference_words,
    simulated_words,
    timed_edits,
)
from speechssl.checkpoints import model_folder
from speechssl.data.records import Answer, Corpus, Passage, Question, Span
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel
from speechssl.dual.system import AnswerSpan, Reader, TimedAnswer
from speechssl.errors import InputError
from speechssl.systems import load_systems
from speechssl.textlm.tokenizers import TextCodec

from ..files import refused
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


# ---- the codec


def test_every_token_knows_its_word_and_case_and_punctuation_are_not_seen(codec, tokenizer):
    ids, owners = codec.encode(SENTENCE)
    assert ids.dtype == np.int64 and owners.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert tokenizer.convert_ids_to_tokens(ids) == [
        "anna",
        "lost",
        "the",
        "silver",
        "lantern",
        "in",
        "paris",
    ]
    pieces, whose = codec.encode(["the", "owls"])
    assert tokenizer.convert_ids_to_tokens(pieces) == [
        "the",
        "o",
        "##w",
        "##l",
        "##s",
    ] and whose.tolist() == [0, 1, 1, 1, 1]
    plain = codec.encode(["paris", "the", "lantern"])[0]
    assert np.array_equal(codec.encode(["Paris.", "(THE", '"Lantern!"'])[0], plain)
    # words without letters own no token
    ids, owners = codec.encode(["-", "lost", "", "...", "paris"])
    assert len(ids) == 2 and owners.tolist() == [1, 4]
    for words in ([], ["..."], ["", "-"]):
        ids, owners = codec.encode(words)
        assert len(ids) == len(owners) == 0 and ids.dtype == np.int64


@given(st.lists(st.text("abnst-.' ", max_size=6), max_size=8))
def test_tokens_of_a_list_are_the_tokens_of_its_words(codec, words):
    ids, owners = codec.encode(words)
    apart = [codec.encode([word])[0] for word in words]
    assert ids.tolist() == [i for piece in apart for i in piece]
    assert owners.tolist() == [n for n, piece in enumerate(apart) for _ in piece]


def test_two_tokenisers_do_not_share_their_pieces(codec, tokenizer):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({"?": 0, " paris": 1}, unk_token="?"))
    other = TextCodec(PreTrainedTokenizerFast(tokenizer_object=core, unk_token="?"))
    assert codec.encode(["paris"])[0].tolist() == [tokenizer.convert_tokens_to_ids("paris")]
    assert other.encode(["paris"])[0].tolist() == [1]


# ---- training examples


def example(codec, words, first, last):
    """The training example of a passage with these words, a second each, and an answer from the
    first of two to the last."""
    spans = tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words))
    passage = Passage("p", "", 9.0, "", "s", "en", words=spans)
    question = Question("q", "p", "", 1.0, "what lost", "s", "en", (Answer("", first, last + 1.0),))
    return text_examples(Corpus(".", "train", {"p": passage}, (question,)), codec)


def test_an_example_holds_the_tokens_of_the_answers_words(codec, tokenizer):
    (made,), left_out = example(codec, ["the", "owls", "lost", "silver"], 1, 2)
    assert tokenizer.convert_ids_to_tokens(made.passage[made.first : made.last + 1]) == [
        "o",
        "##w",
        "##l",
        "##s",
        "lost",
    ]
    assert np.array_equal(made.question, codec.encode(["what", "lost"])[0]) and not left_out


def test_an_answer_without_letters_is_no_example(codec):
    assert example(codec, ["the", "...", "lost"], 1, 1) == (
        [],
        {"q": ("the tokeniser leaves nothing of its question or answer")},
    )
    (made,), _ = example(codec, ["the", "...", "lost"], 1, 2)
    assert (made.first, made.last) == (1, 1)


# ---- answering


def test_an_answer_has_the_times_of_its_words(codec):
    passage = transcript(SENTENCE)
    cascade = cascade_of(FakeRecogniser([]), codec, FinderReader(codec, "silver lantern"))
    (found,) = cascade.answer_all([(transcript(["what", "lost", "anna"]), passage)])
    assert found == TimedAnswer(1.5, 2.4, 0.75, "silver lantern")


def test_recordings_are_recognised_and_not_mixed_up(codec):
    recogniser = FakeRecogniser(["what did Anna lose", "Anna lost the owls in Paris"])
    assert isinstance(recogniser, Recogniser)
    reader = FinderReader(codec, "owls")
    cascade = cascade_of(recogniser, codec, reader)
    asked, listened = (cascade.encode(None, np.array([n, 0.0])) for n in (0, 1))
    (found,) = cascade.answer_all([(asked, listened)])
    assert (found.start, found.end, found.text) == (1.5, 1.9, "owls")
    ((question, passage),) = reader.asked
    assert np.array_equal(question, codec.encode("what did Anna lose".split())[0])
    assert np.array_equal(passage, codec.encode("Anna lost the owls in Paris".split())[0])


def test_words_without_tokens_keep_their_place_and_chinese_is_joined_without_spaces(codec):
    for words, separator, answer, wanted in (
        (
            ["in", "silver", "--", "lantern", "...", "paris"],
            " ",
            "silver lantern",
            "silver -- lantern",
        ),
        (list("abnst"), "", "b n s", "bns"),
    ):
        cascade = cascade_of(FakeRecogniser([]), codec, FinderReader(codec, answer))
        (found,) = cascade.answer_all([(transcript(["what"]), transcript(words, separator))])
        assert found == TimedAnswer(0.5, 1.9, 0.75, wanted)


@pytest.mark.parametrize("silent", [[], ["..."]])
def test_a_passage_without_words_gives_an_empty_answer_and_the_others_theirs(codec, silent):
    good = (transcript(["what"]), transcript(SENTENCE))
    cascade = cascade_of(FakeRecogniser([]), codec, FinderReader(codec, "paris"))
    found = cascade.answer_all([good, (transcript(["what"]), transcript(silent)), good])
    assert found[1] == TimedAnswer(0.0, 0.0, 0.0, "")
    assert found[0] == found[2] == TimedAnswer(3.0, 3.4, 0.75, "Paris.")
    assert cascade.answer_all([(transcript([]), transcript([]))]) == [
        TimedAnswer(0.0, 0.0, 0.0, "")
    ]
    # a question without words is still answered
    assert cascade.answer_all([(transcript([]), good[1])])[0].text == "Paris."


def test_with_a_real_reader_answers_are_words_of_the_passage(codec, tokenizer, text_encoder):
    torch.manual_seed(0)
    encoder = text_encoder()
    table = nn.Embedding.from_pretrained(encoder.get_input_embeddings().weight.detach().clone())
    layout = Layout(cls=2, sep=3, pad=0, size=16, stride=8, answer=6)
    cascade = cascade_of(
        FakeRecogniser([]), codec, Reader(SpanModel(encoder, table).eval(), layout)
    )
    passage = transcript(SENTENCE * 5)
    found = cascade.answer_all(
        [
            (transcript(["who", "lost"]), passage),
            (transcript(["when"]), transcript(["the", "owls"])),
        ]
    )
    for answer, words in zip(
        found, (passage.words, transcript(["the", "owls"]).words), strict=True
    ):
        inside = [w for w in words if answer.start <= w.start and w.end <= answer.end]
        assert inside and answer.text == " ".join(w.text for w in inside)
        assert (answer.start, answer.end) == (
            inside[0].start,
            inside[-1].end,
        ) and 0 < answer.confidence <= 1


# ---- text QA on simulated errors: times are shared, unknown times stay unknown, and wrong records
# are reported


MODEL = ConfusionModel(
    "en",
    {"the": WordConfusions(9, 1, {"a": 2})},
    {"uh": 1},
    {"a": 3, "the": 6, "boat": 2},
    (0.5,),
    Rates(0.2, 0.1, 0.1),
)
SPANS = (Span("the", 0.0, 1.0), Span("boat", 1.0, 2.0), Span("sails", 2.0, 4.0))


def passage(**changes):
    values = {
        "id": "p",
        "audio": "",
        "seconds": 0.0,
        "text": "The boat sails.",
        "speaker": "s",
        "language": "en",
    }
    return Passage(**values | changes)


def test_a_word_keeps_its_time_and_an_inserted_one_shares_that_of_the_word_before():
    words = timed_edits([("a", 0), ("sailsxx", 2), ("uhh", 2)], SPANS)
    border = pytest.approx(3.4)
    assert [(w.text, w.start, w.end) for w in words] == [
        ("a", 0, 1),
        ("sailsxx", 2, border),
        ("uhh", border, 4),
    ]


def test_words_are_spelt_and_those_that_are_several_share_their_time():
    found = reference_words(
        passage(
            words=(Span("Mother-in-law,", 0.0, 1.1), Span("--", 1.1, 1.2), Span("sails.", 2.0, 3.0))
        )
    )
    assert [(s.text, round(s.start, 2), round(s.end, 2)) for s in found] == [
        ("mother", 0, 0.6),
        ("in", 0.6, 0.8),
        ("law", 0.8, 1.1),
        ("sails", 2, 3),
    ]


def test_without_times_there_are_none():
    found = reference_words(passage())
    assert [s.text for s in found] == ["the", "boat", "sails"] and all(
        math.isnan(s.start) and math.isnan(s.end) for s in found
    )


def test_the_rate_is_in_the_name():
    for name in ("", "@", "@x", "@0", "@81", "@nan", "@2.5", "@80"):
        with pytest.raises(
            InputError,
            match=("has no word error rate") if name not in ("@2.5", "@80") else "does not exist",
        ):
            load_simulated(TextQa(None), Path("none.json"), f"cascade-simulated{name}")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    path = tmp_path_factory.mktemp("errors") / "confusions.json"
    write_confusions(path, MODEL, {})
    (system,) = load_systems(
        model_folder("people-en"), ["cascade-simulated@30"], errors=path, seed=3
    )
    return system


@pytest.mark.slow
def test_the_system_reads_and_answers_in_seconds(loaded):
    assert (
        loaded.name == "cascade-simulated@30"
        and not loaded.needs_audio
        and loaded.card["seed"] == 3
    )
    encoded = loaded.encode(passage(words=SPANS * 5), None)
    assert encoded == loaded.encode(passage(words=SPANS * 5), None)
    (answer,) = loaded.answer_all([(loaded.encode(passage(id="q", words=SPANS), None), encoded)])
    assert 0 <= answer.start < answer.end <= 4 and answer.text
    with pytest.raises(ValueError, match="reads the text of a corpus"):
        loaded.encode(None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"text": ""}, "no reference text"), ({"language": "zh"}, "fitted on 'en'")],
)
def test_records_that_cannot_be_read_are_reported(loaded, changes, message):
    with pytest.raises(ValueError, match=message):
        loaded.encode(passage(**changes), None)


@pytest.mark.parametrize("language", ["cmn", "zh-TW", "CMN-Hant", "zh"])
def test_errors_of_mandarin_are_for_all_that_is_mandarin(language):
    fitted = ConfusionModel(
        "zh",
        {"北": WordConfusions(9, 0, {"背": 2})},
        {},
        {"北": 6, "背": 3},
        (0.5,),
        Rates(0.2, 0.0, 0.0),
    )
    encoded = simulated_words(fitted, 0.3, 3, passage(text="台北", language=language))
    assert len(encoded.text) == 2 and encoded.separator == ""


def test_errors_that_were_not_fitted_are_asked_for():
    with pytest.raises(InputError, match=r"confusions\.json, which does not exist; fit one"):
        load_systems(model_folder("people-en"), ["cascade-simulated@30"])


@pytest.mark.slow
def test_a_smaller_recogniser_has_its_own_name(tmp_path):
    folder = shutil.copytree(model_folder("people-en"), tmp_path / "models")
    shutil.copytree(folder / "ctc", folder / "ctc-small")
    assert [s.name for s in load_systems(folder, ["cascade-ctc", "cascade-ctc-small"])] == [
        "cascade-ctc",
        "cascade-ctc-small",
    ]
    refused("has no ctc-tiny/", load_systems, folder, ["cascade-ctc-tiny"])
