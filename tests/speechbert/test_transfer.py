"""SpeechBERT for another encoder: its codes come near the old ones, the reader stays, what does not fit is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from speechssl.cli import main
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.speechbert import train as transfer
from speechssl.speechbert.config import TransferOptions
from speechssl.speechbert.data import WordBatches
from speechssl.speechbert.model import load_weights
from speechssl.speechbert.system import load_speechbert
from speechssl.speechbert.train import train_speechbert, transfer_speechbert
from speechssl.units.features import encoder_features, load_features

from .conftest import training


@pytest.fixture
def speechbert(corpus, features, options, tmp_path):
    train_speechbert(corpus, features, tmp_path / "speechbert", options(8, 0, 1))
    return tmp_path / "speechbert"


@pytest.fixture(scope="module")
def other_folder(hubert_folder, tmp_path_factory):
    """The encoder, after it went on training: every weight has moved."""
    folder = tmp_path_factory.mktemp("other") / "encoder"
    shutil.copytree(hubert_folder("layer"), folder)
    torch.manual_seed(1)
    state = {
        name: w + 0.2 * w.std(correction=0) * torch.randn_like(w) for name, w in load_file(folder / "model.safetensors").items()
    }
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def other(other_folder):
    return load_encoder(other_folder)


def options_of(steps=60, **changes):
    return TransferOptions(training(steps, learning_rate=1e-2, **changes), batch=8)


def weights(folder):
    return load_file(folder / "words.safetensors")


@pytest.mark.slow
def test_codes_come_near_those_there_were_and_the_reader_stays(corpus, encoder, other, speechbert, tmp_path):
    little = transfer_speechbert(corpus, encoder, speechbert, other, tmp_path / "little", options_of(1))["transferred"]
    card = transfer_speechbert(corpus, encoder, speechbert, other, tmp_path / "out", options_of())
    made = card["transferred"]
    assert made["distance"] < 0.5 * little["distance"] and made["audio_words"] == little["audio_words"] > 10
    assert card["features"]["encoder"] == other.hash and card["what"] == "SpeechBERT" and "scores" not in card
    _, reader, layout, old = load_weights(speechbert)
    _, found, same, _ = load_weights(tmp_path / "out")
    assert same == layout and card["weights"] == old["weights"] and card["words"] != old["words"]
    assert all(torch.equal(a, b) for a, b in zip(reader.state_dict().values(), found.state_dict().values(), strict=True))
    assert not (tmp_path / "out/features").exists()


def test_it_takes_the_other_encoder_and_no_longer_the_first(corpus, encoder, other, speechbert, tmp_path):
    transfer_speechbert(corpus, encoder, speechbert, other, tmp_path / "out", options_of(2))
    assert load_speechbert(tmp_path / "out", other).card["features"]["encoder"] == other.hash
    with pytest.raises(InputError, match="was trained on the encoder"):
        load_speechbert(tmp_path / "out", encoder)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(corpus, encoder, other, speechbert, tmp_path, dies_at):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    transfer_speechbert(corpus, encoder, speechbert, other, whole, options_of(4))
    with dies_at(WordBatches, 3):
        transfer_speechbert(corpus, encoder, speechbert, other, killed, options_of(4))
    assert not (killed / "card.json").exists()
    transfer_speechbert(corpus, encoder, speechbert, other, killed, options_of(4))
    wanted, found = weights(whole), weights(killed)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    before = {p: p.stat().st_mtime_ns for p in killed.rglob("*") if p.is_file()}
    transfer_speechbert(corpus, encoder, speechbert, other, killed, options_of(4))
    assert before == {p: p.stat().st_mtime_ns for p in killed.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=r"made from other inputs \(options.batch"):
        transfer_speechbert(corpus, encoder, speechbert, other, killed, replace(options_of(4), batch=4))


@pytest.mark.slow
def test_what_does_not_fit_is_refused_before_anything_is_encoded(
    corpus, encoder, other, speechbert, hubert_folder, options, tmp_path
):
    train_speechbert(corpus, encoder_features(encoder, 2, 1), second := tmp_path / "second", options(1, 0, 1))
    slower = load_encoder(hubert_folder("layer", conv_stride=[5, 2, 2, 2, 2, 2, 4]))
    shallow = load_encoder(hubert_folder("layer", num_hidden_layers=1))
    with pytest.raises(InputError, match="has other frames than .*, or no layer 2 of their width; train SpeechBERT for it"):
        transfer_speechbert(corpus, encoder, second, shallow, tmp_path / "out", options_of())
    with pytest.raises(InputError, match="has other frames than"):
        transfer_speechbert(corpus, encoder, speechbert, slower, tmp_path / "out", options_of())
    with pytest.raises(InputError, match="was trained on the encoder"):
        transfer_speechbert(corpus, other, speechbert, encoder, tmp_path / "out", options_of())
    train_speechbert(corpus, load_features("mfcc", 0), tmp_path / "mfcc", options(1, 0, 1))
    with pytest.raises(InputError, match="needs no transfer"):
        transfer_speechbert(corpus, encoder, tmp_path / "mfcc", other, tmp_path / "out", options_of())
    assert not (tmp_path / "out").exists()


def test_a_corpus_without_times_is_refused_before_it_is_encoded(corpus, encoder, other, speechbert, tmp_path):
    for path in (corpus / "train").glob("*.jsonl"):
        records = [json.loads(line) | {"words": []} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
    with pytest.raises(InputError, match="train has no words with times; transfer SpeechBERT on a corpus that has them"):
        transfer_speechbert(corpus, encoder, speechbert, other, tmp_path / "out", options_of())
    assert not (tmp_path / "out").exists()


def test_what_one_encoder_alone_could_encode_is_named(corpus, encoder, other, speechbert, tmp_path, monkeypatch):
    encode = transfer.encode_corpus

    def partly(data, features, recogniser, folder):
        found = encode(data, features, recogniser, folder)
        return found if folder.name == "old" else replace(found, sequences={k: v for k, v in found.sequences.items() if k != "q1"})

    monkeypatch.setattr(transfer, "encode_corpus", partly)
    with pytest.raises(InputError, match="q1 of .*train has audio words with one of the encoders only"):
        transfer_speechbert(corpus, encoder, speechbert, other, tmp_path / "out", options_of())


@pytest.mark.slow
def test_from_the_command_line(corpus, hubert_folder, other_folder, speechbert, tmp_path, capsys):
    line = ["train", "transfer-speechbert", corpus, hubert_folder("layer"), speechbert, other_folder, tmp_path / "out"]
    assert main([*map(str, line), "--steps", "3", "--batch", "8"]) == 0
    assert "SpeechBERT, transferred by" in capsys.readouterr().out
    assert load_weights(tmp_path / "out")[3]["transferred"]["options"]["training"]["steps"] == 3
