"""Readers of Hugging Face on the words of transcripts: what transformers itself finds, null
answers, names, and refusals."""

import math
import re
import shutil

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from speechssl.cascade.options import ReaderOptions, TrainTextQa
from speechssl.cascade.readers import join_text, load_huggingface, load_text_qa
from speechssl.cascade.train_text_qa import train_text_qa
from speechssl.checkpoints import MODELS_VARIABLE, model_folder
from speechssl.data.records import Passage, Question, Span
from speechssl.dual.options import QaOptions
from speechssl.errors import InputError
from speechssl.eval.options import Qa
from speechssl.eval.predict import read_predictions
from speechssl.eval.spoken_qa import run_evaluation
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
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


def by_transformers(folder, question, passage, length, stride, longest):
    """As transformers' run_qa.py, every pair of a start and an end for its n best. Returns text,
    score and that of "no answer"."""
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    last = tokenizer.padding_side == "right"
    cut = tokenizer(
        *((question, passage) if last else (passage, question)),
        truncation="only_second" if last else "only_first",
        max_length=length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    names = [name for name in tokenizer.model_input_names if name in cut]
    best, null = (-math.inf, ""), math.inf
    for n, ids in enumerate(cut["input_ids"]):
        with torch.inference_mode():
            out = model(**{name: torch.tensor(cut[name][n])[None] for name in names})
        starts, ends = out.start_logits[0].tolist(), out.end_logits[0].tolist()
        cls = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
        null = min(null, starts[cls] + ends[cls])
        places = [i for i, part in enumerate(cut.sequence_ids(n)) if part == int(last)]
        for i in places:
            for j in (j for j in places if i <= j < i + longest):
                offsets = cut["offset_mapping"][n]
                best = max(best, (starts[i] + ends[j], passage[offsets[i][0] : offsets[j][1]]))
    return best[1].strip(), best[0], null, len(cut["input_ids"])


# ---- what is found


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["BERT", "BigBird", "DeBERTa", "ModernBERT", "RoBERTa", "T5", "XLNet", "GPT2"]
)
def test_a_checkpoint_finds_what_it_finds_in_transformers(checkpoint, family):
    folder, story = checkpoint(family, QA), transcript(f"{STORY} {STORY}")
    text, score, null, count = by_transformers(folder, QUESTION, story.text, *LENGTHS.values())
    (found,) = load_huggingface(folder, ReaderOptions(**LENGTHS)).read(
        [(transcript(QUESTION), story)]
    )
    assert count > 1
    assert found.score == pytest.approx(score, abs=1e-4)
    assert found.null == pytest.approx(null, abs=1e-4)
    assert text in found.text  # with the rest of its first and last word
    assert re.search(rf"\b{re.escape(found.text)}(?!\w)", story.text)
    assert found.text in story.separator.join(
        w.text for w in story.words[found.first : found.last + 1]
    )


def test_an_answer_begins_as_its_word_does_where_offsets_begin_one_letter_late(
    checkpoint, tmp_path
):
    folder = shutil.copytree(checkpoint("RoBERTa", QA), tmp_path / "late")
    path = folder / "tokenizer.json"
    late = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    before = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, late]}
    change_json(path, pre_tokenizer=before)
    change_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    offsets = AutoTokenizer.from_pretrained(folder)("peter lost", return_offsets_mapping=True)
    assert (1, 5) in offsets["offset_mapping"]
    reader = load_huggingface(folder, ReaderOptions())
    said = "peter lost the silver lantern in london"
    joined = join_text(reader.tokenizer, QUESTION, said.split(), " ")
    assert [said[slice(*place)] for place in joined.characters.tolist()] == said.split()
    (found,) = reader.read([(transcript(QUESTION), transcript(said))])
    assert found.text.startswith(said.split()[found.first])


@pytest.mark.parametrize("family", ["BERT", "T5"])
def test_many_are_read_as_one_by_one_and_nothing_is_not_read(checkpoint, family):
    reader = load_huggingface(checkpoint(family, QA), ReaderOptions(**LENGTHS))
    passages = [STORY, "anna", f"{STORY} {STORY} {STORY}", "in paris", ""]
    items = [(transcript(QUESTION), transcript(p)) for p in passages]
    *many, nothing = reader.read(items)
    assert nothing is None
    assert reader.read(items[-1:]) == [None]
    for found, item, passage in zip(many, items, passages, strict=False):
        (alone,) = reader.read([item])
        assert (found.first, found.last, found.text) == (alone.first, alone.last, alone.text)
        assert found.score == pytest.approx(alone.score, abs=1e-4)
        assert 0 <= found.first <= found.last < len(passage.split())
        assert 0 < found.confidence <= 1
    with pytest.warns(UserWarning, match="1 of 1 questions lost what is beyond half of 40"):
        assert reader.read([(transcript(STORY), transcript(STORY))])[0] is not None


# ---- as systems


@pytest.fixture
def corpus(tmp_path):
    """A question about a passage with times, asked and answered in writing."""
    words = [[w, i / 2, i / 2 + 0.4] for i, w in enumerate(STORY.split())]
    answer = {"text": "the silver lantern", "start": 3.5, "end": 4.9}
    passage = {"id": "p", "text": STORY, "words": words, "seconds": 11.0}
    asked = {"id": "q", "passage": "p", "text": "what was lost", "answers": [answer]}
    return write_corpus(tmp_path / "corpus", "test", passages=[passage], questions=[asked])


def evaluated(corpus, out, **options):
    """(system, metric) -> value, after the system `text` has been evaluated."""
    what = {"systems": ("text",), "conditions": ("clean",), "models": "people-en"}
    run_evaluation(Qa(corpus=corpus, out=out, reading=ReaderOptions(**options), **what))
    return {(r.system, r.metric): r.value for r in read_rows(out / "results.jsonl")}


@pytest.mark.slow
def test_a_reader_by_name_is_in_the_names_of_systems_and_their_card(
    checkpoint, tmp_path, monkeypatch, corpus
):
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path / "models"))
    folder = shutil.copytree(checkpoint("BERT", QA), tmp_path / "models/someone/tiny-squad2")
    reading = ReaderOptions(reader="someone/tiny-squad2", max_seq_length=100)
    text, given = load_systems(model_folder(), ["text", "cascade-given"], reading=reading)
    assert (text.name, given.name) == ("text+tiny-squad2", "cascade-given+tiny-squad2")
    assert text.card["reader"] == "someone/tiny-squad2" and text.qa is given.qa
    words = tuple(Span(w, i / 2, i / 2 + 0.4) for i, w in enumerate(STORY.split()))
    passage = text.encode(Passage("p", "", 11.0, STORY, "s", "en", words), None)
    question = text.encode(Question("q", "p", "", 0.0, QUESTION, "s", "en"), None)
    (found,) = text.answer_all([(question, passage)])
    expected, *_ = by_transformers(folder, QUESTION, STORY, 100, 32, 30)
    assert found.text == expected
    inside = [w for w in words if found.start <= w.start and w.end <= found.end]
    assert found.text in " ".join(w.text for w in inside)
    assert inside[0].start == found.start
    assert inside[-1].end == found.end

    evaluated(corpus, tmp_path / "out", reader="someone/tiny-squad2")
    rows = evaluated(corpus, tmp_path / "out")  # beside the models' own
    assert {system for system, _ in rows} == {"text", "text+tiny-squad2"}
    shutil.copytree(folder, tmp_path / "models/other/tiny-squad2")
    with pytest.raises(InputError, match=r"with another reader \(someone/tiny-squad2\)"):
        evaluated(corpus, tmp_path / "out", reader="other/tiny-squad2")


def test_nothing_is_the_answer_where_it_is_worth_more_than_the_best_span_by_the_threshold(
    checkpoint, corpus, tmp_path
):
    folder = checkpoint("T5", QA)
    _, score, null, _ = by_transformers(folder, "what was lost", STORY, 384, 128, 30)
    thresholds = {None: True, null - score + 0.01: True, null - score - 0.01: False}
    for threshold, answers in thresholds.items():
        out = tmp_path / str(threshold)
        rows = evaluated(corpus, out, reader=str(folder), null_threshold=threshold)
        predictions = read_predictions(next(out.glob("predictions/*/*.parquet")))
        assert bool(predictions["answers"]["q"]["text"]) == answers
        assert {metric for _, metric in rows} == {"em", "f1", "ff1", "aos", "wer"}
        if not answers:  # it counts as wrong, in text and in time
            assert all(value == 0 for (_, metric), value in rows.items() if metric != "wer")


# ---- refusals


@pytest.mark.parametrize(
    ("kind", "file", "reason"),
    [
        ("AutoModel", "", "lacks 2 weights, such as qa_outputs.bias, which only fine-tuning makes"),
        (QA, "model.safetensors", "cannot load the reader"),
    ],
)
def test_what_answers_no_questions_is_refused(checkpoint, tmp_path, kind, file, reason):
    folder = shutil.copytree(checkpoint("BERT", kind), tmp_path / "a")
    for path in folder.glob(file) if file else ():
        path.unlink()
    refused(reason, load_huggingface, folder, ReaderOptions())


# ---- trained by us


def train(bert, corpus, out, shift, steps):
    """A reader from a tiny BERT, on the one question, whose schedule is that of four steps."""
    training = TrainingOptions(steps, 1e-2, 1, horizon=4, save_every=3, bf16=False)
    sizes = {"batch": 2, "window": 40, "stride": 20, "max_question": 20, "answer": 6}
    qa = QaOptions(training, str(bert), split="test", characters=True, dropout=True, **sizes)
    train_text_qa(TrainTextQa(corpus=corpus, out=out, shift=shift, qa=qa))


@pytest.fixture
def shifts(tmp_path):
    """Files of two shifts between languages."""
    files = [tmp_path / f"{name}.safetensors" for name in ("en", "zh")]
    for file, number in zip(files, (0.5, -2.0), strict=True):
        Shift(1, torch.linspace(-number, number, 32)).save(file)
    return files


def test_a_reader_keeps_the_shift_that_it_was_trained_with_unless_another_is_given(
    checkpoint, corpus, tmp_path, shifts
):
    train(checkpoint("BERT"), corpus, tmp_path / "set/text-qa", shifts[0], 1)
    own, other = (
        load_text_qa(tmp_path / "set", ReaderOptions(shift=shift)) for shift in (None, shifts[1])
    )
    assert (own.suffix, other.suffix) == ("", "~zh")
    item = [(transcript(QUESTION), transcript(STORY))]
    scores = [some.reader.read(item)[0].score for some in (own, other)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-4)


def test_finished_text_qa_is_trained_further(checkpoint, corpus, tmp_path, shifts):
    """As if it had been trained in one go."""
    whole, more, bert = tmp_path / "whole", tmp_path / "more", checkpoint("BERT")
    train(bert, corpus, whole, shifts[0], 4)
    train(bert, corpus, more, shifts[0], 2)
    short = (more / "model.safetensors").read_bytes()
    train(bert, corpus, more, shifts[0], 4)
    assert same_files(whole, more, "model.safetensors", "config.json")
    assert (more / "model.safetensors").read_bytes() != short
