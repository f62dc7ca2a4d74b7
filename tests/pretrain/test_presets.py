"""Tests of the presets: they are the published sizes and settings, options take precedence over
them, and options that would have no effect are refused."""

from pathlib import Path

import pytest
import torch
from transformers import HubertModel, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.pretrain.model import Wav2Vec2Pretraining
from speechssl.pretrain.options import (
    Batches,
    Continue,
    Contrast,
    Convolutions,
    Distillation,
    Distortion,
    Hubert,
    Masks,
    Prediction,
    Targets,
    Wav2Vec2,
)
from speechssl.pretrain.run import PRESETS, apply_size, make_config

from ..files import refused

PLACES = {"source": Path("s"), "out": Path("o")}


def complete_hubert(size, teacher="t"):
    """Return the options of a HuBERT of this size, all with their values."""
    return apply_size(Hubert(**PLACES, size=size, teacher=teacher))


def complete_wav2vec2(size):
    """Return the options of a wav2vec 2.0 of this size, all with their values."""
    return apply_size(Wav2Vec2(**PLACES, size=size))


def complete_continue(start, **options):
    """Return the options of continual pre-training, all with their values."""
    return apply_size(Continue(**PLACES, start=start, **options))


def count_millions(make):
    """Count the parameters of the model that `make` returns, in millions."""
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters()) / 1e6


PUBLISHED = [(kind, size) for kind in ("hubert", "wav2vec2") for size in ("base", "large")]
COMPLETE = {"hubert": complete_hubert, "wav2vec2": complete_wav2vec2}
MODELS = {"hubert": HubertModel, "wav2vec2": Wav2Vec2Model}


@pytest.mark.parametrize("kind", COMPLETE)
@pytest.mark.parametrize(("size", "millions"), [("base", 94.4), ("large", 315.4), ("small", 4.7)])
def test_encoders_have_as_many_parameters_as_published(kind, size, millions):
    parameters = count_millions(lambda: MODELS[kind](make_config(kind, size)))
    assert parameters == pytest.approx(millions, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "millions"), [("base", 95.0), ("large", 317.4)])
def test_wav2vec_2_with_its_heads_has_as_many_parameters_as_published(size, millions):
    config, o = make_config("wav2vec2", size), complete_wav2vec2(size)
    parameters = count_millions(
        lambda: Wav2Vec2Pretraining(Wav2Vec2Model(config), o.contrast, o.convolutions)
    )
    assert parameters == count_millions(lambda: Wav2Vec2ForPreTraining(config))
    assert parameters == pytest.approx(millions, abs=0.06)


# learning rate, clip, hours of audio in an update, samples of a crop, width of the vectors that are
# predicted, and feature penalty and gradient scale of the convolutions
SETTINGS = {
    ("hubert", "base"): (5e-4, 10.0, 2_800 / 3_600, 250_000, 256, Convolutions(10.0, 0.1)),
    ("hubert", "large"): (1.5e-3, 1.0, 2.0, 250_000, 768, Convolutions(10.0, 1.0)),
    ("wav2vec2", "base"): (5e-4, 0.0, 1.556, 250_000, 256, Convolutions(10.0, 0.1)),
    ("wav2vec2", "large"): (3e-4, 0.0, 2.667, 320_000, 768, Convolutions(0.0, 1.0)),
}


@pytest.mark.parametrize(("kind", "size"), PUBLISHED)
def test_hyper_parameters_are_the_published(kind, size):
    o = COMPLETE[kind](size)
    training = o.training
    learning_rate, clip, hours, crop_samples, width, convolutions = SETTINGS[kind, size]
    assert training.learning_rate == learning_rate
    assert training.clip == clip
    assert training.steps == (600_000 if (kind, size) == ("wav2vec2", "large") else 400_000)
    assert training.warmup_steps == 0.08 * training.steps
    assert training.adam_betas == (0.9, 0.98)
    assert training.adam_epsilon == 1e-6
    assert training.weight_decay == 0.01
    assert o.batches.crop_seconds * 16_000 == crop_samples
    seconds = o.batches.crops * o.batches.crop_seconds
    assert seconds / 3_600 == pytest.approx(hours, rel=0.02)  # to a multiple of 16 crops
    assert o.convolutions == convolutions
    probability = 0.80 if kind == "hubert" else 0.65
    # same_masks: fairseq's require_same_masks, which neither of its models turns off
    assert o.masks == Masks(mask_probability=probability, mask_length=10, same_masks=True)
    assert PRESETS[kind][size]["normalise"] is (size == "large")
    if kind == "hubert":  # learns from masked frames alone
        assert o.prediction == Prediction(visible_weight=0.0, projection=width)
    else:
        assert o.contrast.width == width


@pytest.mark.parametrize(("kind", "size"), PUBLISHED)
def test_architectures_are_the_published(kind, size):
    config, is_large = make_config(kind, size), size == "large"
    dropouts = {config.hidden_dropout, config.attention_dropout, config.feat_proj_dropout}
    assert dropouts == {0.0 if is_large else 0.1}
    assert config.activation_dropout == 0
    assert config.layerdrop == (0.0 if is_large else 0.05)
    assert config.feat_extract_norm == ("layer" if is_large else "group")
    assert config.do_stable_layer_norm is is_large
    assert config.conv_dim == (512,) * 7
    assert config.conv_kernel == (10, 3, 3, 3, 3, 2, 2)
    assert config.num_conv_pos_embeddings == 128
    assert config.conv_bias is (is_large and kind == "wav2vec2")


@pytest.mark.parametrize(
    ("size", "teacher", "layer", "clusters", "steps"),
    [
        ("base", "mfcc", None, 100, 250_000),
        ("base", "t", 6, 500, 400_000),
        ("large", "t", 9, 500, 400_000),
    ],
)
def test_iterations_of_hubert_are_the_published(size, teacher, layer, clusters, steps):
    o = complete_hubert(size, teacher)
    assert o.targets == Targets(layer=layer, clusters=clusters)
    assert o.training.steps == steps
    assert o.training.warmup_steps == 0.08 * steps
    assert o.training.learning_rate == SETTINGS["hubert", size][0]


@pytest.mark.parametrize(("size", "floor"), [("base", 0.5), ("large", 0.1)])
def test_the_quantisers_of_wav2vec_2_are_the_published(size, floor):
    contrast = complete_wav2vec2(size).contrast
    expected = {"codebooks": 2, "entries": 320, "kappa": 0.1, "diversity": 0.1, "negatives": 100}
    expected |= {
        "temperature_start": 2.0,
        "temperature_decay": 0.999995,
        "temperature_floor": floor,
    }
    for name, value in expected.items():
        assert getattr(contrast, name) == value, name


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_the_quantiser_of_a_config_is_that_of_the_options(size):
    config, contrast = make_config("wav2vec2", size), complete_wav2vec2(size).contrast
    assert config.num_codevector_groups == contrast.codebooks
    assert config.num_codevectors_per_group == contrast.entries
    assert config.codevector_dim == contrast.width
    assert config.proj_codevector_dim == contrast.width
    assert config.feat_quantizer_dropout == contrast.dropout


def test_continual_pretraining_learns_from_the_last_layer_of_its_start(hubert):
    o = complete_continue(hubert)
    assert o.teacher == hubert
    assert o.targets == Targets(layer=2, clusters=100)
    assert o.masks == Masks(mask_probability=0.65, mask_length=10, same_masks=False)
    assert o.batches == Batches(crops=10, crop_seconds=4.0)
    assert o.prediction == Prediction(visible_weight=1.0, projection=128)
    assert o.convolutions == Convolutions(feature_penalty=10.0, gradient_scale=1.0)


def test_continual_pretraining_learns_from_a_teacher(hubert, hubert_folder):
    teacher = str(hubert_folder(num_hidden_layers=3))
    assert complete_continue(hubert, teacher=teacher).targets.layer == 3
    assert complete_continue(hubert, teacher="mfcc").targets.layer is None


NOISE = {"distortion": Distortion(distort="g")}


@pytest.mark.parametrize(
    ("options_class", "options", "message"),
    [
        (Wav2Vec2, {"distortion": Distortion(snr_range=(0.0, 5.0))}, "--snr-range .*--distort"),
        (Hubert, NOISE | {"distillation": Distillation(distil=1.0)}, "--distil .*--start"),
        (Hubert, {"targets": Targets(layer=5)}, "--layer .*MFCCs"),
    ],
)
def test_options_without_effect_are_refused(options_class, options, message):
    refused(message, options_class, **PLACES, **options)


def test_options_of_the_other_kind_of_start_are_refused(hubert, wav2vec2):
    message = "--teacher .* on .*, a wav2vec 2.0"
    refused(message, complete_continue, wav2vec2, teacher="t")
    message = "--negatives .*no wav2vec 2.0"
    refused(message, complete_continue, hubert, contrast=Contrast(negatives=2))
