"""What is saved is transformers' own folder, and what is loaded from it goes on; every head that does not is named."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import HubertModel, Wav2Vec2Config, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.encoders.export import save_encoder
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.errors import InputError
from speechssl.pretrain.wav2vec2 import ContrastiveOptions, Wav2Vec2Pretraining, load_pretraining, save_pretraining

OPTIONS = ContrastiveOptions(codebooks=2, entries=6, width=12, kappa=0.2, diversity=0.3, dropout=0.05)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "conv_dim": (16,) * 7}
FRONT = {
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Wav2Vec2Pretraining(Wav2Vec2Model(Wav2Vec2Config(**SIZES, **FRONT)), OPTIONS, normalise=False)


@pytest.fixture
def folder(model, tmp_path):
    save_pretraining(model, tmp_path / "saved")
    return tmp_path / "saved"


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_transformers_reads_what_is_saved(model, folder):
    theirs, info = Wav2Vec2ForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert equal(theirs.wav2vec2, model.encoder) and equal(theirs.project_q, model.project_q)
    for name, value in model.quantizer.state_dict().items():
        assert torch.equal(theirs.quantizer.state_dict()[name], value)
    assert theirs.config.num_codevectors_per_group == 6 and theirs.config.contrastive_logits_temperature == 0.2
    assert json.loads((folder / "preprocessor_config.json").read_text())["do_normalize"] is False


def test_an_encoder_is_loaded_from_it_too(model, folder):
    assert equal(load_checkpoint(folder).model, model.encoder) and load_encoder(folder).normalise is False


def test_the_encoder_alone_is_saved_as_any_other(model, tmp_path):
    save_encoder(model.encoder, tmp_path / "encoder", model.normalise)
    assert equal(load_checkpoint(tmp_path / "encoder").model, model.encoder) and load_encoder(tmp_path / "encoder").layers == 2


def test_pre_training_goes_on_with_its_heads(model, folder, capsys):
    again = load_pretraining(folder)
    assert equal(again, model) and again.normalise is False
    assert again.options == OPTIONS
    assert all(weight.requires_grad for weight in again.parameters()) and again.training
    told = capsys.readouterr().err
    assert (
        "saved, heads of pre-training: quantiser, projection of its vectors, projection of the encoder's output as trained" in told
    )


@pytest.mark.parametrize(("codebooks", "entries"), [(2, 9), (4, 6), (4, 3)])  # the last: as many entries in all
def test_another_quantiser_is_made_anew_and_said(model, folder, capsys, codebooks, entries):
    again = load_pretraining(folder, ContrastiveOptions(codebooks, entries, 12))
    assert (
        equal(again.encoder, model.encoder)
        and equal(again.project_q, model.project_q)
        and equal(again.project_hid, model.project_hid)
    )
    assert again.quantizer.codevectors.shape == (1, codebooks * entries, 12 // codebooks)
    assert (
        "quantiser made anew; projection of its vectors, projection of the encoder's output as trained" in capsys.readouterr().err
    )


def test_another_width_makes_all_anew(folder, capsys):
    assert load_pretraining(folder, ContrastiveOptions(2, 6, 8)).project_hid.out_features == 8
    told = capsys.readouterr().err
    assert (
        "quantiser, projection of its vectors, projection of the encoder's output made anew\n" in told and "as trained" not in told
    )


def test_an_encoder_without_heads_gets_new_ones_and_says_so(model, tmp_path, capsys):
    model.encoder.save_pretrained(tmp_path / "plain")
    again = load_pretraining(tmp_path / "plain")
    assert equal(again.encoder, model.encoder) and again.options == ContrastiveOptions()
    assert "made anew, for the checkpoint has none that can be read" in capsys.readouterr().err


def test_heads_of_which_a_part_is_missing_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["quantizer.codevectors"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"saved lacks 1 weights of its heads \(quantizer.codevectors\); fetch or make it again"):
        load_pretraining(folder)


def test_an_encoder_of_another_kind_is_refused(hubert_folder):
    assert isinstance(load_checkpoint(hubert_folder()).model, HubertModel)
    with pytest.raises(InputError, match="is a hubert encoder; contrastive pre-training goes on from plain wav2vec 2.0 encoders"):
        load_pretraining(hubert_folder())
