"""SpeechBERT is trained in three stages: the card names the inputs, other inputs are refused, a
killed run goes on; and it is transferred to another encoder."""

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
from speechssl.data.records import Passage, hash_data, load_corpus
from speechssl.dual.fitting import average_ff1
from speechssl.encoders.encoder import SharedEncoder
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
from speechssl.systems import load_systems
from speechssl.units.features import load_features

from ..files import refused, same_files, untouched
from .conftest import train_on, training, without_spans


@pytest.mark.slow
def test_all_three_stages_are_run_once_and_a_killed_run_goes_on_to_the_same_weights(
    corpus, features, recogniser, options, tmp_path, dies_at
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_on(corpus, features, whole, options(), recogniser)
    _, _, layout, card = load_weights(whole)
    assert layout.size == 16
    assert card["features"] == features.card
    assert card["recogniser"] == "r"
    assert card["data"] == hash_data(corpus, "train")
    steps = {name: stage["steps"] for name, stage in card["training"].items()}
    assert steps == {"words": 4, "masked": 4, "spans": 4}
    assert card["examples"] >= 3
    assert not (whole / "features").exists()
    with untouched(whole):
        train_on(corpus, features, whole, options(), recogniser)
    with dies_at(MaskedBatches, step=3):
        train_on(corpus, features, killed, options(), recogniser)
    assert (killed / "checkpoints/masked/checkpoint-2").is_dir()
    assert not (killed / "card.json").exists()
    train_on(corpus, features, killed, options(), recogniser)
    assert same_files(whole, killed, "words.safetensors", "model.safetensors")


def test_other_inputs_are_refused_and_named(corpus, features, options, tmp_path):
    out = tmp_path / "speechbert"
    two_stages = options(words=1, masked=0, spans=1)
    train_on(corpus, features, out, two_stages)
    assert list(read_json(out / "card.json")["training"]) == ["spans", "words"]
    refused(r"\(options\.spans", train_on, corpus, features, out, without_spans(two_stages))
    refused(r"features\.encoder", train_on, corpus, load_features("mfcc", 0), out, two_stages)


@pytest.mark.slow
def test_training_starts_from_a_reader_of_words_and_the_card_names_it(
    corpus, features, options, tmp_path, tokenizer
):
    start, out = tmp_path / "text-qa", tmp_path / "out"
    train_text_qa(TrainTextQa(corpus=corpus, out=start, qa=options().qa))
    text = make_text_model(options().qa, start)
    specials = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]
    assert torch.equal(text.reader.embedding.weight.detach(), text.embeddings[specials])
    train_on(corpus, features, out, options(words=1, masked=1, spans=1), start=start)
    assert read_json(out / "card.json")["start"] == read_json(start / "card.json")["weights"]


def test_texts_without_times_are_aligned(recogniser):
    record = Passage("p1", text="Lost, silver 1999 lantern's")
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 24_123).astype(np.float32)
    words = find_words(record, samples, recogniser)
    assert [w.text for w in words] == ["Lost", "silver", "1999", "lantern's"]
    for word in words:
        assert 0 <= word.start < word.end <= len(samples) / 16_000


def test_recordings_are_cut_by_their_words_and_by_the_recogniser_and_bad_ones_set_aside(
    corpus, features, recogniser, tmp_path, capsys
):
    (corpus / "train/audio/q1.flac").write_bytes(b"no audio")
    data = load_corpus(corpus, "train")
    table = encode_corpus(data, features, recogniser, tmp_path / "features")
    assert set(table.sequences) == {"p0", "p1", "p2", "q0", "q2"}
    assert "set aside q1" in capsys.readouterr().err
    by_words, by_recogniser = table.sequences["p1"]
    assert [table.texts[n] for n in by_words.numbers] == ["lost", "silver", "lantern"]
    samples = read_audio(data.path(data.passages["p1"]))
    starts = [word.start for word in recognise_words(recogniser, samples)]
    assert starts
    assert by_recogniser.starts.tolist() == starts
    again = encode_corpus(data, features, recogniser, tmp_path / "features")
    assert np.array_equal(again.rows, table.rows)
    assert np.array_equal(again.features[:], table.features[:])


def test_without_answers_words_are_trained_and_spans_are_refused_and_so_is_the_system(
    corpus, features, options, tmp_path, encoder
):
    (corpus / "train/questions.jsonl").write_text("")
    few_steps = options(words=1, masked=1, spans=1)
    # it is refused before any recording is encoded
    cannot_encode = SimpleNamespace(card=features.card)
    message = r"no answer with times.*--no-spans"
    refused(message, train_on, corpus, cannot_encode, tmp_path / "spans", few_steps)
    out = tmp_path / "speechbert"
    train_on(corpus, features, out, without_spans(few_steps))
    assert list(read_json(out / "card.json")["training"]) == ["masked", "words"]
    names, shared = ["speechbert-aligned"], SharedEncoder(encoder)
    refused("was trained with --no-spans", load_systems, tmp_path, names, encoder=shared)


# ---- evaluation while training


@pytest.mark.slow
def test_the_score_of_the_best_checkpoint_is_the_ff1_of_the_system_speechbert(
    corpus, features, recogniser, options, tmp_path, encoder
):
    shutil.copytree(corpus / "train", corpus / "dev")
    out = tmp_path / "out"
    o = options(spans=6)
    training = replace(o.qa.training, learning_rate=1e-2, log_every=1)
    evaluation = EvalOptions(eval_every=2, eval_split="dev", eval_items=0)
    o = replace(o, qa=replace(o.qa, training=training, evaluation=evaluation))
    train_on(corpus, features, out, o, recogniser)
    best = read_json(out / "card.json")["training"]["spans"]["best"]
    system = load_speechbert(out, encoder, recogniser)
    checkpoint = out / f"checkpoints/spans/checkpoint-{best['step']}/model.safetensors"
    system.reader.model.load_state_dict(load_file(checkpoint))
    data = load_corpus(corpus, "dev")
    words = {r.id: system.encode(r, read_audio(data.path(r))) for r in data.records}
    answers = system.answer_all([(words[q.id], words[q.passage]) for q in data.questions])
    score = average_ff1(data, dict(zip((q.id for q in data.questions), answers, strict=True)))
    assert score == pytest.approx(best["score"], abs=1e-5)


# ---- transfer to another encoder


@pytest.fixture
def speechbert(corpus, features, options, tmp_path):
    train_on(corpus, features, tmp_path / "speechbert", options(words=8, masked=0, spans=1))
    return tmp_path / "speechbert"


@pytest.fixture(scope="module")
def other(hubert_folder, tmp_path_factory):
    """The encoder with a little noise on every weight, as after further training."""
    folder = tmp_path_factory.mktemp("other") / "encoder"
    shutil.copytree(hubert_folder("layer"), folder)
    torch.manual_seed(1)
    state = load_file(folder / "model.safetensors")
    for weight in state.values():
        weight += 0.2 * weight.std(correction=0) * torch.randn_like(weight)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return load_encoder(folder)


@pytest.fixture
def transfer(corpus, encoder, other, speechbert):
    """A function that transfers `speechbert` from `encoder` to `other`; returns the card."""

    def make(out, steps):
        options = TransferSpeechBertOptions(training(steps, rate=1e-2), batch=8)
        o = TransferSpeechBert(
            corpus=corpus, encoder="", speechbert=speechbert, new="", out=out, options=options
        )
        return fit_transfer(o, encoder, other)

    return make


@pytest.mark.slow
def test_a_transfer_brings_codes_near_those_before_and_leaves_the_reader(
    transfer, speechbert, encoder, other, tmp_path
):
    out = tmp_path / "out"
    after_one_step = transfer(tmp_path / "one-step", steps=1)["transferred"]
    card = transfer(out, steps=60)
    assert card["transferred"]["distance"] < 0.5 * after_one_step["distance"]
    assert card["transferred"]["audio_words"] > 10
    assert not (out / "features").exists()
    assert same_files(speechbert, out, "model.safetensors", "config.json")
    system = load_speechbert(out, other)
    assert system.card["features"]["encoder"] == other.hash
    refused("was trained on the encoder", load_speechbert, out, encoder)


@pytest.mark.slow
def test_a_killed_transfer_goes_on_to_the_same_weights(transfer, tmp_path, dies_at):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    transfer(whole, steps=4)
    with dies_at(WordBatches, step=3):
        transfer(killed, steps=4)
    assert not (killed / "card.json").exists()
    transfer(killed, steps=4)
    assert same_files(whole, killed, "words.safetensors", "model.safetensors")
    with untouched(killed):
        transfer(killed, steps=4)
