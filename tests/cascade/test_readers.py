"""Readers of words: those of Hugging Face find the answers that transformers finds; "no answer",
names of systems, refusals; and readers that are trained here."""

import math
import re
import shutil
from typing import NamedTuple

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from speechssl.cascade.options import ReaderOptions, TrainTextQa
from speechssl.cascade.readers import join_text, load_huggingface, load_text_qa
from speechssl.cascade.system import make_text_system
from speechssl.cascade.train_text_qa import train_text_qa
from speechssl.checkpoints import MODELS_VARIABLE, model_folder
from speechssl.dual.options import QaOptions
from speechssl.options import TrainingOptions
from speechssl.systems import load_systems
from speechssl.textlm.layers import Shift

from ..files import change_json, refused, same_files, write_corpus
from .conftest import transcript

QA = "AutoModelForQuestionAnswering"
QUESTION = "who lost the lantern?"
STORY = (
    "Anna was born in Paris. peter lost the silver lantern at the market in London, which "
    "anna had not been to before."
)
LENGTHS = {"max_seq_length": 40, "doc_stride": 10, "max_answer_length": 6}


class Reference(NamedTuple):
    """An answer of transformers."""

    text: str
    score: float
    null: float  # score of "no answer"
    windows: int


def read_with_transformers(
    folder, question, passage, max_seq_length, doc_stride, max_answer_length
):
    """Answer a question as transformers' run_qa.py does, but with every pair of a start and an end
    in the place of the n best."""
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    passage_last = tokenizer.padding_side == "right"
    windows = tokenizer(
        *((question, passage) if passage_last else (passage, question)),
        truncation="only_second" if passage_last else "only_first",
        max_length=max_seq_length,
        stride=doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    names = [name for name in tokenizer.model_input_names if name in windows]
    best_text, best_score, null = "", -math.inf, math.inf
    for n, ids in enumerate(windows["input_ids"]):
        with torch.inference_mode():
            out = model(**{name: torch.tensor(windows[name][n])[None] for name in names})
        starts, ends = out.start_logits[0].tolist(), out.end_logits[0].tolist()
        cls = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
        null = min(null, starts[cls] + ends[cls])
        parts = windows.sequence_ids(n)
        offsets = windows["offset_mapping"][n]
        tokens = [i for i, part in enumerate(parts) if part == int(passage_last)]
        for first in tokens:
            for last in tokens:
                score = starts[first] + ends[last]
                if first <= last < first + max_answer_length and score > best_score:
                    best_score = score
                    best_text = passage[offsets[first][0] : offsets[last][1]]
    return Reference(best_text.strip(), best_score, null, len(windows["input_ids"]))


# ---- answers


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["BERT", "BigBird", "DeBERTa", "ModernBERT", "RoBERTa", "T5", "XLNet", "GPT2"]
)
def test_a_checkpoint_finds_what_it_finds_in_transformers(checkpoint, family):
    folder, story = checkpoint(family, QA), transcript(f"{STORY} {STORY}")
    reference = read_with_transformers(folder, QUESTION, story.text, **LENGTHS)
    assert reference.windows > 1
    reader = load_huggingface(folder, ReaderOptions(**LENGTHS))
    (answer,) = reader.read([(transcript(QUESTION), story)])
    assert answer.score == pytest.approx(reference.score, abs=1e-4)
    assert answer.null == pytest.approx(reference.null, abs=1e-4)
    assert reference.text in answer.text  # which has the rest of its first and last word
    assert re.search(rf"\b{re.escape(answer.text)}(?!\w)", story.text)
    words = [w.text for w in story.words[answer.first : answer.last + 1]]
    assert answer.text in " ".join(words)


def test_an_answer_begins_as_its_word_does_where_offsets_begin_one_letter_late(
    checkpoint, tmp_path
):
    folder = shutil.copytree(checkpoint("RoBERTa", QA), tmp_path / "late")
    path = folder / "tokenizer.json"
    late = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    before = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, late]}
    change_json(path, pre_tokenizer=before)
    change_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    reader = load_huggingface(folder, ReaderOptions())
    passage = "peter lost the silver lantern in london"
    words = passage.split()
    joined = join_text(reader.tokenizer, QUESTION, words, " ")
    assert [passage[start:end] for start, end in joined.characters.tolist()] == words
    (answer,) = reader.read([(transcript(QUESTION), transcript(passage))])
    assert answer.text.startswith(words[answer.first])


@pytest.mark.parametrize("family", ["BERT", "T5"])
def test_a_batch_has_the_answers_of_single_passages_and_an_empty_passage_none(checkpoint, family):
    reader = load_huggingface(checkpoint(family, QA), ReaderOptions(**LENGTHS))
    passages = [STORY, "anna", f"{STORY} {STORY} {STORY}", "in paris"]
    items = [(transcript(QUESTION), transcript(p)) for p in passages]
    empty = (transcript(QUESTION), transcript(""))
    *answers, empty_answer = reader.read([*items, empty])
    assert empty_answer is None
    for answer, item in zip(answers, items, strict=True):
        (alone,) = reader.read([item])
        assert (answer.first, answer.last, answer.text) == (alone.first, alone.last, alone.text)
        assert answer.score == pytest.approx(alone.score, abs=1e-4)
        assert 0 < answer.confidence <= 1
    # a question that is longer than a window is cut off
    assert reader.read([(transcript(STORY), transcript(STORY))])[0] is not None


def test_a_reader_by_name_is_in_the_names_of_systems_and_their_card(
    checkpoint, tmp_path, monkeypatch
):
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path))
    shutil.copytree(checkpoint("BERT", QA), tmp_path / "someone/tiny-squad2")
    reading = ReaderOptions(reader="someone/tiny-squad2")
    text, given = load_systems(model_folder(), ["text", "cascade-given"], reading=reading)
    assert (text.name, given.name) == ("text+tiny-squad2", "cascade-given+tiny-squad2")
    assert text.card["reader"] == "someone/tiny-squad2"


def test_no_answer_is_given_where_its_score_exceeds_that_of_the_best_span_by_the_threshold(
    checkpoint, tmp_path
):
    folder = checkpoint("T5", QA)
    reference = read_with_transformers(folder, QUESTION, STORY, **LENGTHS)
    excess = reference.null - reference.score
    # whether the best span is given with a threshold
    for threshold, gives_span in ((None, True), (excess + 0.01, True), (excess - 0.01, False)):
        options = ReaderOptions(str(folder), null_threshold=threshold, **LENGTHS)
        system = make_text_system(load_text_qa(tmp_path, options), "text")
        (answer,) = system.answer_all([(transcript(QUESTION), transcript(STORY))])
        assert bool(answer.text) == gives_span


@pytest.mark.parametrize(
    ("kind", "file", "reason"),
    [
        ("AutoModel", "", "lacks 2 weights, such as qa_outputs.bias, which only fine-tuning makes"),
        (QA, "model.safetensors", "cannot load the reader"),
    ],
)
def test_a_checkpoint_that_answers_no_questions_is_refused(
    checkpoint, tmp_path, kind, file, reason
):
    """kind: class of the model; file: the one that is deleted, "" for none."""
    folder = shutil.copytree(checkpoint("BERT", kind), tmp_path / "a")
    if file:
        (folder / file).unlink()
    refused(reason, load_huggingface, folder, ReaderOptions())


# ---- readers that are trained here


@pytest.fixture
def train(checkpoint, tmp_path):
    """A function (folder, steps) that trains a reader from a tiny BERT with the shift of the file
    `en.safetensors`, on a question about the story. The learning rate falls over four steps,
    however many are made."""
    answer = {"text": "the silver lantern", "char_start": STORY.index("the silver")}
    question = {"id": "q", "passage": "p", "text": "what was lost", "answers": [answer]}
    passages, questions = [{"id": "p", "text": STORY}], [question]
    corpus = write_corpus(tmp_path / "corpus", "test", passages=passages, questions=questions)
    shift = tmp_path / "en.safetensors"
    Shift(1, torch.linspace(-0.5, 0.5, 32)).save(shift)

    def run(out, steps):
        training = TrainingOptions(
            steps, learning_rate=1e-2, warmup_steps=1, horizon=4, save_every=3, bf16=False
        )
        qa = QaOptions(
            training,
            text_encoder=str(checkpoint("BERT")),
            split="test",
            characters=True,
            dropout=True,
            batch=2,
            window=40,
            stride=20,
            max_question=20,
            answer=6,
        )
        train_text_qa(TrainTextQa(corpus=corpus, out=out, shift=shift, qa=qa))

    return run


def test_a_reader_keeps_the_shift_that_it_was_trained_with_unless_another_is_given(train, tmp_path):
    train(tmp_path / "set/text-qa", steps=1)
    Shift(1, torch.linspace(2.0, -2.0, 32)).save(tmp_path / "zh.safetensors")
    trained = load_text_qa(tmp_path / "set", ReaderOptions())
    shifted = load_text_qa(tmp_path / "set", ReaderOptions(shift=tmp_path / "zh.safetensors"))
    assert (trained.suffix, shifted.suffix) == ("", "~zh")
    item = [(transcript(QUESTION), transcript(STORY))]
    scores = [qa.reader.read(item)[0].score for qa in (trained, shifted)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-4)


def test_text_qa_that_is_trained_further_is_that_of_one_training(train, tmp_path):
    whole, further = tmp_path / "whole", tmp_path / "further"
    train(whole, steps=4)
    train(further, steps=2)
    after_two_steps = (further / "model.safetensors").read_bytes()
    train(further, steps=4)
    assert same_files(whole, further, "model.safetensors", "config.json")
    assert (further / "model.safetensors").read_bytes() != after_two_steps
