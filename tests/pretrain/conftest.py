"""Fixtures of pre-training: tiny checkpoints to start from, and the options of their losses."""

import pytest
import torch
from transformers import HubertModel, Wav2Vec2Config, Wav2Vec2Model

from speechssl.pretrain.model import Wav2Vec2Pretraining, save_pretraining
from speechssl.pretrain.options import Contrast, Convolutions
from speechssl.pretrain.run import PRESETS, fill_in

from ..conftest import FRONT, SIZES

TINY = SIZES | FRONT
LARGE_NORMS = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
BASE = PRESETS["wav2vec2"]["base"]
CONVOLUTIONS = Convolutions(feature_penalty=10.0, gradient_scale=0.1)


def make_contrast(**options):
    """Return options of contrast; those that are not given are base's."""
    return fill_in(Contrast(**options), BASE["options"] | BASE["contrast"])


HEADS = make_contrast(codebooks=2, entries=6, width=12, diversity=0.3)
DROPOUTS = "hidden_dropout attention_dropout activation_dropout feat_proj_dropout layerdrop"
NO_DROPOUT = dict.fromkeys(DROPOUTS.split(), 0.0)


@pytest.fixture(scope="session")
def hubert(hubert_folder):
    """Return the folder of a HuBERT."""
    return str(hubert_folder("layer", layerdrop=0.1))


@pytest.fixture(scope="session")
def make_hubert(hubert_folder):
    """Return a function () -> a new tiny HuBERT without dropout, always of the same weights."""
    return lambda: HubertModel.from_pretrained(hubert_folder("layer", **NO_DROPOUT))


@pytest.fixture(scope="session")
def wav2vec2(tmp_path_factory):
    """Return the folder of a wav2vec 2.0 with its heads."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("wav2vec2")
    model = Wav2Vec2Model(Wav2Vec2Config(**TINY, **LARGE_NORMS))
    save_pretraining(Wav2Vec2Pretraining(model, HEADS, CONVOLUTIONS), folder)
    return str(folder)
