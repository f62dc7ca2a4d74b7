"""Training in three stages: what it is made from is written down, other inputs are refused, a
killed run goes on."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from speechssl.audio import read_audio
from speechssl.cascade import train_text_qa as qa_train
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.train_text_qa import train_text_qa
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual.train import describe_run, mean_ff1
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
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
    encoder, reader, layout, card = load_weights(out)
    assert (encoder.features, encoder.code) == (32, 32)
    assert (reader.embedding.num_embeddings, layout.size) == (3, 16)
    assert layout.start_weight == layout.end_weight == 1
    assert card["features"] == features.card
    assert card["recogniser"] == "r"
    assert card["text_encoder"] == "minilm"
    steps = {name: stage["steps"] for name, stage in card["training"].items()}
    assert steps == {"words": 4, "masked": 4, "spans": 4}
    assert card["licences"]["contains"] == ["all-MiniLM-L6-v2, Apache-2.0"]
    assert card["licences"]["trained_on"]
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
    out = tmp_path / "speechbert"
    train_on(corpus, features, out, options(1, 0, 1))
    # there are two stages without masked words
    assert list(load_weights(out)[3]["training"]) == ["spans", "words"]
    without = without_spans(options(1, 0, 1))
    changes = (
        (options(1, 0, 1, pull=0.5), "pull"),
        (options(2, 0, 1), "word_steps"),
        (without, "spans"),
    )
    for changed, name in changes:
        with pytest.raises(InputError, match=rf"made from other inputs \(options\.{name}"):
            train_on(corpus, features, out, changed)
    with pytest.raises(InputError, match=r"features\.encoder"):
        train_on(corpus, load_features("mfcc", 0), out, options(1, 0, 1))


@pytest.mark.slow
def test_it_goes_on_from_a_reader_of_words_and_says_so(
    corpus, features, options, tmp_path, monkeypatch, text_encoder, tokenizer
):
    monkeypatch.setattr(
        qa_train,
        "load_text_encoder",
        lambda name: (text_encoder(max_position_embeddings=256), tokenizer),
    )
    train_text_qa(TrainTextQa(corpus=corpus, out=tmp_path / "text-qa", qa=options().qa))
    reader, embeddings, _, _ = make_text_model(options().qa, tmp_path / "text-qa")
    rows = embeddings[[tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]]
    assert torch.equal(reader.embedding.weight.detach(), rows)
    assert len(embeddings) == len(tokenizer)
    train_on(corpus, features, tmp_path / "out", options(1, 1, 1), start=tmp_path / "text-qa")
    assert (
        load_weights(tmp_path / "out")[3]["start"]
        == json.loads((tmp_path / "text-qa/card.json").read_text())["weights"]
    )


def strip_words(corpus, text=None):
    for path in corpus.glob("train/*.jsonl"):
        change_lines(path, {"words": []} | ({"text": text} if text else {}))


def test_texts_without_times_are_aligned(corpus, recogniser):
    strip_words(corpus, "Lost, silver 1999 lantern's")
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
    with pytest.raises(InputError, match=r"no answer with times.*--no-spans"):
        train_on(
            corpus, SimpleNamespace(card=features.card), tmp_path / "spans", options(1, 1, 1)
        )  # before anything is encoded
    train_on(corpus, features, tmp_path / "out", without_spans(options(1, 1, 1)))
    card = load_weights(tmp_path / "out")[3]
    assert list(card["training"]) == ["masked", "words"]
    assert "examples" not in card


# ---- evaluation while training


def with_dev(corpus):
    shutil.copytree(corpus / "train", corpus / "dev")
    return corpus


def evaluated(made, **changes):
    qa = replace(
        made.qa,
        training=replace(made.qa.training, learning_rate=1e-2, log_every=1),
        evaluation=EvalOptions(2, "dev", 0),
    )
    return replace(made, qa=replace(qa, **changes))


@pytest.mark.slow
def test_it_is_the_checkpoint_that_answers_held_out_questions_best(
    corpus, features, recogniser, options, tmp_path, encoder
):
    """With the words of the recogniser, as the system `speechbert`."""
    root, out = with_dev(corpus), tmp_path / "out"
    made = evaluated(options(spans=6))
    train_on(root, features, out, made, recogniser)
    best = load_weights(out)[3]["training"]["spans"]["best"]
    found = {
        row["step"]: row["eval_ff1"]
        for row in read_lines(out / "checkpoints/spans/log.jsonl")
        if "eval_ff1" in row
    }
    assert list(found) == [2, 4, 6]
    assert best["step"] == max(found, key=found.get)
    assert best["items"] == 3
    assert f"of step {best['step']} of 6: FF1" in describe_run(out)
    system = load_speechbert(out, encoder, recogniser)
    weights_then = load_file(out / f"checkpoints/spans/checkpoint-{best['step']}/model.safetensors")
    system.reader.model.load_state_dict(weights_then)
    data = load_corpus(root, "dev")
    records = (*data.passages.values(), *data.questions)
    words = {r.id: system.encode(r, read_audio(data.path(r))) for r in records}
    answers = system.answer_all([(words[q.id], words[q.passage]) for q in data.questions])
    score = mean_ff1(data, dict(zip((q.id for q in data.questions), answers, strict=True)))
    assert score == pytest.approx(best["score"], abs=1e-5)


# ---- SpeechBERT for another encoder: its codes come near the old ones, the reader stays, what
# does not fit is refused


@pytest.fixture
def speechbert(corpus, features, options, tmp_path):
    train_on(corpus, features, tmp_path / "speechbert", options(8, 0, 1))
    return tmp_path / "speechbert"


@pytest.fixture(scope="module")
def other_folder(hubert_folder, tmp_path_factory):
    """The encoder, after it went on training: every weight has moved."""
    folder = tmp_path_factory.mktemp("other") / "encoder"
    shutil.copytree(hubert_folder("layer"), folder)
    torch.manual_seed(1)
    state = {
        name: w + 0.2 * w.std(correction=0) * torch.randn_like(w)
        for name, w in load_file(folder / "model.safetensors").items()
    }
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def other(other_folder):
    return load_encoder(other_folder)


def options_of(steps=60, **changes):
    return TransferSpeechBertOptions(training(steps, learning_rate=1e-2, **changes), batch=8)


def transferred(corpus, encoder, speechbert, other, out, made):
    o = TransferSpeechBert(
        corpus=corpus, encoder="", speechbert=speechbert, new="", out=out, options=made
    )
    return fit_transfer(o, encoder, other)


@pytest.mark.slow
def test_codes_come_near_those_there_were_and_the_reader_stays(
    corpus, encoder, other, speechbert, tmp_path
):
    little = transferred(corpus, encoder, speechbert, other, tmp_path / "little", options_of(1))[
        "transferred"
    ]
    card = transferred(corpus, encoder, speechbert, other, tmp_path / "out", options_of())
    made = card["transferred"]
    assert made["distance"] < 0.5 * little["distance"]
    assert made["audio_words"] == little["audio_words"] > 10
    assert load_speechbert(tmp_path / "out", other).card["features"]["encoder"] == other.hash
    refused("was trained on the encoder", load_speechbert, tmp_path / "out", encoder)
    assert "scores" not in card
    _, reader, layout, old = load_weights(speechbert)
    _, found, same, _ = load_weights(tmp_path / "out")
    assert same == layout
    assert card["weights"] == old["weights"]
    assert card["words"] != old["words"]
    assert all(
        torch.equal(a, b)
        for a, b in zip(reader.state_dict().values(), found.state_dict().values(), strict=True)
    )
    assert not (tmp_path / "out/features").exists()


@pytest.mark.slow
def test_a_killed_transfer_goes_on_to_the_same_weights(
    corpus, encoder, other, speechbert, tmp_path, dies_at
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    transferred(corpus, encoder, speechbert, other, whole, options_of(4))
    with dies_at(WordBatches, 3):
        transferred(corpus, encoder, speechbert, other, killed, options_of(4))
    assert not (killed / "card.json").exists()
    transferred(corpus, encoder, speechbert, other, killed, options_of(4))
    wanted, found = weights(whole), weights(killed)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    with untouched(killed):
        transferred(corpus, encoder, speechbert, other, killed, options_of(4))
    with pytest.raises(InputError, match=r"made from other inputs \(options.batch"):
        transferred(corpus, encoder, speechbert, other, killed, replace(options_of(4), batch=4))
