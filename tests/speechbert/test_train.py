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
from speechssl.cascade import train as qa_train
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.train import train_text_qa
from speechssl.cli import main
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual.data import ExampleBatches
from speechssl.dual.train import describe_best, mean_ff1
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.options import EvalOptions
from speechssl.speechbert import train as transfer
from speechssl.speechbert.data import (
    MaskedBatches,
    WordBatches,
    encode_corpus,
    known_words,
    recognise_words,
)
from speechssl.speechbert.model import load_weights
from speechssl.speechbert.options import TransferSpeechBert, TransferSpeechBertOptions
from speechssl.speechbert.system import load_speechbert
from speechssl.speechbert.train import fit_transfer, text_model
from speechssl.units.features import encoder_features, load_features

from ..files import change_lines, read_lines, untouched
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
    assert (encoder.features, encoder.code, reader.embedding.num_embeddings, layout.size) == (
        32,
        32,
        3,
        16,
    )
    assert layout.start_weight == layout.end_weight == 1
    assert (
        card["features"] == features.card
        and card["recogniser"] == "r"
        and card["text_encoder"] == "minilm"
    )
    assert {name: stage["steps"] for name, stage in card["training"].items()} == {
        "words": 4,
        "masked": 4,
        "spans": 4,
    }
    assert (
        card["licences"]["contains"] == ["all-MiniLM-L6-v2, Apache-2.0"]
        and card["licences"]["trained_on"]
    )
    assert card["data"] == data_hash(corpus, "train") and len(card["text_weights"]) == 16
    assert card["examples"] >= 3 and card["audio_words"] > 15
    assert not (out / "features").exists()
    with untouched(out):
        train_on(corpus, features, out, options(), recogniser)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "batches"),
    [("words", WordBatches), ("masked", MaskedBatches), ("spans", ExampleBatches)],
)
def test_a_killed_run_goes_on_to_the_same_weights(
    corpus, features, recogniser, options, tmp_path, dies_at, stage, batches
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_on(corpus, features, whole, options(), recogniser)
    with dies_at(batches, 3):
        train_on(corpus, features, killed, options(), recogniser)
    assert (killed / "checkpoints" / stage / "checkpoint-2").is_dir() and not (
        killed / "card.json"
    ).exists()
    train_on(corpus, features, killed, options(), recogniser)
    wanted, found = weights(whole), weights(killed)
    assert wanted.keys() == found.keys() and all(
        torch.equal(wanted[name], found[name]) for name in wanted
    )


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


def test_mfccs_do_as_well(corpus, options, tmp_path):
    train_on(corpus, load_features("mfcc", 0), tmp_path / "out", options(1, 1, 1))
    encoder, _, _, card = load_weights(tmp_path / "out")
    assert (
        encoder.features == 39
        and card["features"]["encoder"] == "mfcc"
        and card["recogniser"] is None
    )


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
    reader, embeddings, _, _ = text_model(options().qa, tmp_path / "text-qa")
    rows = embeddings[[tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]]
    assert torch.equal(reader.embedding.weight.detach(), rows) and len(embeddings) == len(tokenizer)
    train_on(corpus, features, tmp_path / "out", options(1, 1, 1), start=tmp_path / "text-qa")
    assert (
        load_weights(tmp_path / "out")[3]["start"]
        == json.loads((tmp_path / "text-qa/card.json").read_text())["weights"]
    )


def test_a_start_that_is_no_reader_of_words_is_refused(corpus, features, options, tmp_path):
    train_on(corpus, features, tmp_path / "other", options(1, 0, 1))
    with pytest.raises(InputError, match="takes a folder of `speechssl train text-qa`"):
        train_on(corpus, features, tmp_path / "out", options(1, 0, 1), start=tmp_path / "other")
    assert not (tmp_path / "out").exists()


def test_a_window_that_does_not_fit_is_refused_before_anything_is_heard(
    corpus, features, options, tmp_path
):
    long = replace(options(), qa=replace(options().qa, window=200))
    with pytest.raises(InputError, match="does not fit into the 256 positions"):
        train_on(corpus, features, tmp_path / "out", long)
    assert not (tmp_path / "out").exists()


def strip_words(corpus, text=None):
    for path in corpus.glob("train/*.jsonl"):
        change_lines(path, {"words": []} | ({"text": text} if text else {}))


def test_a_corpus_without_times_needs_a_recogniser(corpus, features, options, tmp_path):
    strip_words(corpus)
    with pytest.raises(
        InputError,
        match=(
            r"no recording of 6 .* audio words \(the first, p0: its "
            r"manifest has no words with times"
        ),
    ):
        train_on(corpus, features, tmp_path / "out", options())


def test_texts_without_times_are_aligned(corpus, recogniser):
    strip_words(corpus, "Lost, silver 1999 lantern's")
    record = load_corpus(corpus, "train").passages["p1"]
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 24_123).astype(np.float32)
    found = known_words(record, samples, recogniser)
    assert [w.text for w in found] == ["Lost", "silver", "1999", "lantern's"]
    assert all(0 <= w.start < w.end <= len(samples) / 16_000 for w in found)


def test_recordings_are_cut_twice_and_what_cannot_be_read_is_set_aside(
    corpus, features, recogniser, tmp_path, capsys
):
    (corpus / "train/audio/q1.flac").write_bytes(b"no audio")
    data = load_corpus(corpus, "train")
    table = encode_corpus(data, features, recogniser, tmp_path / "features")
    assert (
        set(table.sequences) == {"p0", "p1", "p2", "q0", "q2"}
        and ("set aside q1") in capsys.readouterr().err
    )
    known, segmented = table.sequences["p1"]
    assert [table.texts[n] for n in known.numbers] == ["lost", "silver", "lantern"] and len(
        segmented.numbers
    )
    samples = read_audio(data.path(data.passages["p1"]))
    assert segmented.starts.tolist() == [w.start for w in recognise_words(recogniser, samples)]
    again = encode_corpus(data, features, recogniser, tmp_path / "features")
    assert np.array_equal(again.rows, table.rows) and np.array_equal(
        again.features[:], table.features[:]
    )


def test_words_alone_can_be_learnt_of_a_corpus_without_questions_that_have_answers(
    corpus, features, options, tmp_path
):
    (corpus / "train/questions.jsonl").write_text("")
    with pytest.raises(InputError, match=r"no usable answerable question.*--no-spans"):
        train_on(
            corpus, SimpleNamespace(card=features.card), tmp_path / "spans", options(1, 1, 1)
        )  # before anything is encoded
    train_on(corpus, features, tmp_path / "out", without_spans(options(1, 1, 1)))
    card = load_weights(tmp_path / "out")[3]
    assert list(card["training"]) == ["masked", "words"] and card["examples"] == 0


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
    assert (
        list(found) == [2, 4, 6]
        and best["step"] == max(found, key=found.get)
        and best["items"] == 3
    )
    assert f"of step {best['step']} of 6: FF1" in describe_best(out)
    system = load_speechbert(out, encoder, recogniser)
    weights_then = load_file(out / f"checkpoints/spans/checkpoint-{best['step']}/model.safetensors")
    system.reader.model.load_state_dict(weights_then)
    data = load_corpus(root, "dev")
    records = (*data.passages.values(), *data.questions)
    words = {r.id: system.encode(r, read_audio(data.path(r))) for r in records}
    answers = system.answer_all([(words[q.id], words[q.passage]) for q in data.questions])
    score = mean_ff1(data, dict(zip((q.id for q in data.questions), answers, strict=True)))
    assert score == pytest.approx(best["score"], abs=1e-5)


@pytest.mark.slow
def test_evaluation_gives_the_codes_of_training_back(corpus, features, options, tmp_path):
    """The last checkpoint is that of a run without evaluation, and so is the model where the last
    is the best."""
    root, last = with_dev(corpus), []
    for name, made in (("without", options(1, 0, 4)), ("with", evaluated(options(1, 0, 4)))):
        made = replace(
            made, qa=replace(made.qa, training=replace(made.qa.training, learning_rate=1e-2))
        )
        train_on(root, features, tmp_path / name, made)
        last.append(load_file(tmp_path / name / "checkpoints/spans/checkpoint-4/model.safetensors"))
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])


def test_more_steps_go_on_with_the_spans_alone(corpus, features, options, tmp_path):
    for steps in (2, 4):
        made = options(1, 0, steps)
        made = replace(made, qa=replace(made.qa, training=replace(made.qa.training, horizon=4)))
        train_on(corpus, features, tmp_path / "more", made)
    train_on(corpus, features, tmp_path / "whole", made)
    wanted, found = weights(tmp_path / "whole"), weights(tmp_path / "more")
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


@pytest.mark.parametrize("trained", ["biases", "adapters", "lora", "weighted-sum", "none"])
def test_few_trained_weights_are_of_the_last_stage_alone(
    corpus, features, options, tmp_path, trained, monkeypatch, encoder, other
):
    """Matrices are those that masked words left; the reader answers as it was trained, and is
    transferred with what was added."""
    if trained == "lora":
        pytest.importorskip("peft")
    kept, save = [], transfer.save_speechbert
    monkeypatch.setattr(
        transfer, "save_speechbert", lambda *given: kept.append(given[2]) or save(*given)
    )
    out, made = tmp_path / "out", options(1, 1, 2)
    made = replace(made, qa=replace(made.qa, trained=trained))
    train_on(corpus, features, out, made)
    _, model, _, card = load_weights(out)
    ids = torch.tensor([[0, 1, 1, 0, 2, 1]])
    given = {"mask": torch.ones_like(ids), "segments": torch.tensor([[0, 0, 0, 0, 1, 1]])}
    with torch.no_grad():
        # int8
        assert torch.allclose(
            model.logits(ids, **given), kept[0].eval().logits(ids, **given), atol=2e-2
        )
    assert 0 < card["trained_parameters"] < sum(w.numel() for w in model.parameters())
    assert ("added" in json.loads((out / "config.json").read_text())) == (
        trained in ("adapters", "weighted-sum")
    )
    masked = load_file(out / "checkpoints/masked/checkpoint-1/model.safetensors")
    matrix = "encoder.layer.0.intermediate.dense.weight"
    assert torch.equal(
        kept[0].encoder.state_dict()[matrix].cpu(), masked[f"reader.encoder.{matrix}"]
    )
    transferred(corpus, encoder, out, other, tmp_path / "other", options_of(1))
    assert load_weights(tmp_path / "other")[1].state_dict().keys() == model.state_dict().keys()


def test_adapters_are_drawn_alike_by_a_killed_run(corpus, features, options, tmp_path, dies_at):
    made = replace(options(1, 1, 2), qa=replace(options(1, 1, 2).qa, trained="adapters"))
    train_on(corpus, features, tmp_path / "whole", made)
    with dies_at(ExampleBatches, 0):
        train_on(corpus, features, tmp_path / "killed", made)
    train_on(corpus, features, tmp_path / "killed", made)
    wanted, found = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert wanted.keys() == found.keys() and all(
        torch.equal(wanted[name], found[name]) for name in wanted
    )


def test_few_trained_weights_without_the_last_stage_are_refused(options):
    with pytest.raises(
        InputError,
        match=(
            "--trained biases is of the third stage, which --no-spans skips; leave out one of them"
        ),
    ):
        without_spans(options(), qa=replace(options().qa, trained="biases"))


def test_a_method_that_does_not_fit_is_refused_before_anything_is_trained(
    corpus, features, options, tmp_path, monkeypatch, text_encoder, tokenizer
):
    monkeypatch.setattr(transfer, "load_text_encoder", lambda name: (text_encoder("t5"), tokenizer))
    made = replace(options(), qa=replace(options().qa, trained="biases"))
    with pytest.raises(
        InputError,
        match=(
            "T5Stack has no biases to train; choose --trained all, frozen or none, or try adapters"
        ),
    ):
        train_on(corpus, features, tmp_path / "out", made)
    assert not (tmp_path / "out").exists()


def test_evaluation_of_answers_that_are_not_trained_is_refused(options):
    with pytest.raises(
        InputError,
        match=(
            "--eval-every evaluates answers, which --no-spans does not train; leave out one of them"
        ),
    ):
        without_spans(evaluated(options()))


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
    assert (
        made["distance"] < 0.5 * little["distance"]
        and made["audio_words"] == little["audio_words"] > 10
    )
    assert (
        card["features"]["encoder"] == other.hash
        and card["what"] == "SpeechBERT"
        and "scores" not in card
    )
    _, reader, layout, old = load_weights(speechbert)
    _, found, same, _ = load_weights(tmp_path / "out")
    assert same == layout and card["weights"] == old["weights"] and card["words"] != old["words"]
    assert all(
        torch.equal(a, b)
        for a, b in zip(reader.state_dict().values(), found.state_dict().values(), strict=True)
    )
    assert not (tmp_path / "out/features").exists()


def test_it_takes_the_other_encoder_and_no_longer_the_first(
    corpus, encoder, other, speechbert, tmp_path
):
    transferred(corpus, encoder, speechbert, other, tmp_path / "out", options_of(2))
    assert load_speechbert(tmp_path / "out", other).card["features"]["encoder"] == other.hash
    with pytest.raises(InputError, match="was trained on the encoder"):
        load_speechbert(tmp_path / "out", encoder)


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


@pytest.mark.slow
def test_what_does_not_fit_is_refused_before_anything_is_encoded(
    corpus, encoder, other, speechbert, hubert_folder, options, tmp_path
):
    train_on(
        corpus, encoder_features(encoder, 2, 1), second := tmp_path / "second", options(1, 0, 1)
    )
    slower = load_encoder(hubert_folder("layer", conv_stride=[5, 2, 2, 2, 2, 2, 4]))
    shallow = load_encoder(hubert_folder("layer", num_hidden_layers=1))
    with pytest.raises(
        InputError,
        match=("has other frames than .*, or no layer 2 of their width; train SpeechBERT for it"),
    ):
        transferred(corpus, encoder, second, shallow, tmp_path / "out", options_of())
    with pytest.raises(InputError, match="has other frames than"):
        transferred(corpus, encoder, speechbert, slower, tmp_path / "out", options_of())
    with pytest.raises(InputError, match="was trained on the encoder"):
        transferred(corpus, other, speechbert, encoder, tmp_path / "out", options_of())
    train_on(corpus, load_features("mfcc", 0), tmp_path / "mfcc", options(1, 0, 1))
    with pytest.raises(InputError, match="needs no transfer"):
        transferred(corpus, encoder, tmp_path / "mfcc", other, tmp_path / "out", options_of())
    assert not (tmp_path / "out").exists()


def test_a_corpus_without_times_is_refused_before_it_is_encoded(
    corpus, encoder, other, speechbert, tmp_path
):
    strip_words(corpus)
    with pytest.raises(
        InputError,
        match=("train has no words with times; transfer SpeechBERT on a corpus that has them"),
    ):
        transferred(corpus, encoder, speechbert, other, tmp_path / "out", options_of())
    assert not (tmp_path / "out").exists()


def test_what_one_encoder_alone_could_encode_is_named(
    corpus, encoder, other, speechbert, tmp_path, monkeypatch
):
    encode = transfer.encode_corpus

    def partly(data, features, recogniser, folder):
        found = encode(data, features, recogniser, folder)
        return (
            found
            if folder.name == "old"
            else replace(found, sequences={k: v for k, v in found.sequences.items() if k != "q1"})
        )

    monkeypatch.setattr(transfer, "encode_corpus", partly)
    with pytest.raises(
        InputError, match=("q1 of .*train has audio words with one of the encoders only")
    ):
        transferred(corpus, encoder, speechbert, other, tmp_path / "out", options_of())


@pytest.mark.slow
def test_from_the_command_line(corpus, hubert_folder, other_folder, speechbert, tmp_path, capsys):
    line = [
        "train",
        "transfer-speechbert",
        corpus,
        hubert_folder("layer"),
        speechbert,
        other_folder,
        tmp_path / "out",
    ]
    assert main([*map(str, line), "--steps", "3", "--batch", "8"]) == 0
    assert "SpeechBERT, transferred by" in capsys.readouterr().out
    assert load_weights(tmp_path / "out")[3]["transferred"]["options"]["training"]["steps"] == 3
