"""Training in three stages: what it is made from is written down, other inputs are refused, a
killed run goes on."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.train_text_qa import train_text_qa
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual.train import average_ff1
from speechssl.encoders.load import load_encoder
from speechssl.options import EvalOptions
from speechssl.speechbert.data import (
    MaskedBatches,
    WordBatches,
    encode_corpus,
    find_words,
    recognise_words,
)
from speechssl.speechbert.model import load_weights
from speechssl.speechbert.options import TransferSpeechBert, TransferSpeechBertOptions
from speechssl.speechbert.system import load_speechbert
from speechssl.speechbert.train import fit_transfer, make_text_model
from speechssl.units.features import load_features

from ..files import change_lines, read_lines, refused, untouched
from .conftest import train_on, training, without_spans


def weights(folder):
    return {**load_file(folder / "words.safetensors"), **load_file(folder / "model.safetensors")}


@pytest.mark.slow
def test_all_three_stages_are_run_once_and_the_card_says_of_what(
    corpus, features, recogniser, options, tmp_path
):
    out = tmp_path / "speechbert"
    train_on(corpus, features, out, options(), recogniser)
    _, _, layout, card = load_weights(out)
    assert (layout.size, layout.start_weight, layout.end_weight) == (16, 1, 1)
    assert card["features"] == features.card
    assert card["recogniser"] == "r"
    assert card["text_encoder"] == "minilm"
    steps = {name: stage["steps"] for name, stage in card["training"].items()}
    assert steps == {"words": 4, "masked": 4, "spans": 4}
    assert card["licences"]["contains"] == ["all-MiniLM-L6-v2, Apache-2.0"]
    assert card["data"] == data_hash(corpus, "train")
    assert card["examples"] >= 3
    assert card["audio_words"] > 15
    assert not (out / "features").exists()
    with untouched(out):
        train_on(corpus, features, out, options(), recogniser)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(
    corpus, features, recogniser, options, tmp_path, dies_at
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_on(corpus, features, whole, options(), recogniser)
    with dies_at(MaskedBatches, 3):
        train_on(corpus, features, killed, options(), recogniser)
    assert (killed / "checkpoints/masked/checkpoint-2").is_dir()
    assert not (killed / "card.json").exists()
    train_on(corpus, features, killed, options(), recogniser)
    wanted, found = weights(whole), weights(killed)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_other_inputs_are_refused_and_named(corpus, features, options, tmp_path):
    out, made = tmp_path / "speechbert", options(1, 0, 1)
    train_on(corpus, features, out, made)
    # there are two stages without masked words
    assert list(load_weights(out)[3]["training"]) == ["spans", "words"]
    refused(r"\(options\.spans", train_on, corpus, features, out, without_spans(made))
    refused(r"features\.encoder", train_on, corpus, load_features("mfcc", 0), out, made)


@pytest.mark.slow
def test_it_goes_on_from_a_reader_of_words_and_says_so(
    corpus, features, options, tmp_path, tokenizer
):
    start = tmp_path / "text-qa"
    train_text_qa(TrainTextQa(corpus=corpus, out=start, qa=options().qa))
    reader, embeddings, _, _ = make_text_model(options().qa, start)
    rows = embeddings[[tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]]
    assert torch.equal(reader.embedding.weight.detach(), rows)
    assert len(embeddings) == len(tokenizer)
    train_on(corpus, features, tmp_path / "out", options(1, 1, 1), start=start)
    assert load_weights(tmp_path / "out")[3]["start"] == read_json(start / "card.json")["weights"]


def test_texts_without_times_are_aligned(corpus, recogniser):
    stripped = {"words": [], "text": "Lost, silver 1999 lantern's"}
    change_lines(corpus / "train/passages.jsonl", stripped)
    record = load_corpus(corpus, "train").passages["p1"]
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 24_123).astype(np.float32)
    found = find_words(record, samples, recogniser)
    assert [w.text for w in found] == ["Lost", "silver", "1999", "lantern's"]
    assert all(0 <= w.start < w.end <= len(samples) / 16_000 for w in found)


def test_recordings_are_cut_twice_and_what_cannot_be_read_is_set_aside(
    corpus, features, recogniser, tmp_path, capsys
):
    (corpus / "train/audio/q1.flac").write_bytes(b"no audio")
    data = load_corpus(corpus, "train")
    table = encode_corpus(data, features, recogniser, tmp_path / "features")
    assert set(table.sequences) == {"p0", "p1", "p2", "q0", "q2"}
    assert ("set aside q1") in capsys.readouterr().err
    known, segmented = table.sequences["p1"]
    assert [table.texts[n] for n in known.numbers] == ["lost", "silver", "lantern"]
    assert len(segmented.numbers)
    samples = read_audio(data.path(data.passages["p1"]))
    assert segmented.starts.tolist() == [w.start for w in recognise_words(recogniser, samples)]
    again = encode_corpus(data, features, recogniser, tmp_path / "features")
    assert np.array_equal(again.rows, table.rows)
    assert np.array_equal(again.features[:], table.features[:])


def test_words_alone_can_be_learnt_of_a_corpus_without_questions_that_have_answers(
    corpus, features, options, tmp_path
):
    (corpus / "train/questions.jsonl").write_text("")
    never = SimpleNamespace(card=features.card)  # before anything is encoded
    wanted, made = r"no answer with times.*--no-spans", options(1, 1, 1)
    refused(wanted, train_on, corpus, never, tmp_path / "spans", made)
    train_on(corpus, features, tmp_path / "out", without_spans(made))
    card = load_weights(tmp_path / "out")[3]
    assert list(card["training"]) == ["masked", "words"]
    assert "examples" not in card


# ---- evaluation while training


@pytest.mark.slow
def test_it_is_the_checkpoint_that_answers_held_out_questions_best(
    corpus, features, recogniser, options, tmp_path, encoder
):
    """With the words of the recogniser, as the system `speechbert`."""
    shutil.copytree(corpus / "train", corpus / "dev")
    made, out = options(spans=6), tmp_path / "out"
    few = replace(made.qa.training, learning_rate=1e-2, log_every=1)
    qa = replace(made.qa, training=few, evaluation=EvalOptions(2, "dev", 0))
    train_on(corpus, features, out, replace(made, qa=qa), recogniser)
    best = load_weights(out)[3]["training"]["spans"]["best"]
    rows = read_lines(out / "checkpoints/spans/log.jsonl")
    found = {row["step"]: row["eval_ff1"] for row in rows if "eval_ff1" in row}
    assert best["step"] == max(found, key=found.get)
    system = load_speechbert(out, encoder, recogniser)
    weights_then = load_file(out / f"checkpoints/spans/checkpoint-{best['step']}/model.safetensors")
    system.reader.model.load_state_dict(weights_then)
    data = load_corpus(corpus, "dev")
    words = {r.id: system.encode(r, read_audio(data.path(r))) for r in data.records}
    answers = system.answer_all([(words[q.id], words[q.passage]) for q in data.questions])
    score = average_ff1(data, dict(zip((q.id for q in data.questions), answers, strict=True)))
    assert score == pytest.approx(best["score"], abs=1e-5)


# ---- SpeechBERT for another encoder: its codes come near the old ones, the reader stays, what
# does not fit is refused


@pytest.fixture
def speechbert(corpus, features, options, tmp_path):
    train_on(corpus, features, tmp_path / "speechbert", options(8, 0, 1))
    return tmp_path / "speechbert"


@pytest.fixture(scope="module")
def other(hubert_folder, tmp_path_factory):
    """The encoder, after it went on training: every weight has moved."""
    folder = tmp_path_factory.mktemp("other") / "encoder"
    shutil.copytree(hubert_folder("layer"), folder)
    torch.manual_seed(1)
    state = load_file(folder / "model.safetensors")
    for weight in state.values():
        weight += 0.2 * weight.std(correction=0) * torch.randn_like(weight)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return load_encoder(folder)


def options_of(steps=60, **changes):
    return TransferSpeechBertOptions(training(steps, 1e-2), **{"batch": 8} | changes)


def transferred(corpus, encoder, speechbert, other, out, made):
    places = {"corpus": corpus, "encoder": "", "speechbert": speechbert, "new": "", "out": out}
    return fit_transfer(TransferSpeechBert(**places, options=made), encoder, other)


@pytest.mark.slow
def test_codes_come_near_those_there_were_and_the_reader_stays(
    corpus, encoder, other, speechbert, tmp_path
):
    before, out = (corpus, encoder, speechbert, other), tmp_path / "out"
    little = transferred(*before, tmp_path / "little", options_of(1))["transferred"]
    card = transferred(*before, out, options_of())
    made = card["transferred"]
    assert made["distance"] < 0.5 * little["distance"]
    assert made["audio_words"] == little["audio_words"] > 10
    assert load_speechbert(out, other).card["features"]["encoder"] == other.hash
    refused("was trained on the encoder", load_speechbert, out, encoder)
    assert "scores" not in card
    _, reader, layout, old = load_weights(speechbert)
    _, found, same, _ = load_weights(out)
    assert same == layout
    assert card["weights"] == old["weights"]
    assert card["words"] != old["words"]
    state = found.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in reader.state_dict().items())
    assert not (out / "features").exists()


@pytest.mark.slow
def test_a_killed_transfer_goes_on_to_the_same_weights(
    corpus, encoder, other, speechbert, tmp_path, dies_at
):
    before, made = (corpus, encoder, speechbert, other), options_of(4)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    transferred(*before, whole, made)
    with dies_at(WordBatches, 3):
        transferred(*before, killed, made)
    assert not (killed / "card.json").exists()
    transferred(*before, killed, made)
    wanted, found = weights(whole), weights(killed)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    with untouched(killed):
        transferred(*before, killed, made)
    wanted = r"made from other inputs \(options.batch"
    refused(wanted, transferred, *before, killed, options_of(4, batch=4))
