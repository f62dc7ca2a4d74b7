"""Presets: the published sizes and settings, the options that replace them, and errors for options
that would have no effect."""

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
from speechssl.pretrain.run import PRESETS, apply_size, hubert_config, wav2vec2_config

from ..files import refused

PLACES = {"source": Path("s"), "out": Path("o")}


def hubert_of(size, teacher="t", **given):
    return apply_size(Hubert(**PLACES, size=size, teacher=teacher, **given))


def wav2vec2_of(size, **given):
    return apply_size(Wav2Vec2(**PLACES, size=size, **given))


def continued(start, **given):
    return apply_size(Continue(**PLACES, start=start, **given))


# ---- sizes


def parameters(make):
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters()) / 1e6


PUBLISHED = [(kind, name) for kind in ("hubert", "wav2vec2") for name in ("base", "large")]
SIZES = {"hubert": hubert_of, "wav2vec2": wav2vec2_of}
CONFIGS = {"hubert": hubert_config, "wav2vec2": wav2vec2_config}
MODELS = {"hubert": HubertModel, "wav2vec2": Wav2Vec2Model}


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize(("name", "millions"), [("base", 94.4), ("large", 315.4), ("small", 4.7)])
def test_encoders_have_as_many_parameters_as_published(kind, name, millions):
    found = parameters(lambda: MODELS[kind](CONFIGS[kind](name)))
    assert found == pytest.approx(millions, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "millions"), [("base", 95.0), ("large", 317.4)])
def test_wav2vec_2_with_its_heads_has_as_many_parameters_as_published(name, millions):
    config, o = wav2vec2_config(name), wav2vec2_of(name)
    heads = (o.contrast, o.convolutions)
    ours = parameters(lambda: Wav2Vec2Pretraining(Wav2Vec2Model(config), *heads))
    assert ours == parameters(lambda: Wav2Vec2ForPreTraining(config))
    assert ours == pytest.approx(millions, abs=0.06)


# kind, size: learning rate, warm-up, steps, clip, hours of audio an update, crop in samples,
# penalty, gradient, width
TABLE = {
    ("hubert", "base"): (5e-4, 32_000, 400_000, 10.0, 2_800 / 3_600, 250_000, 10.0, 0.1, 256),
    ("hubert", "large"): (1.5e-3, 32_000, 400_000, 1.0, 2.0, 250_000, 10.0, 1.0, 768),
    ("wav2vec2", "base"): (5e-4, 32_000, 400_000, 0.0, 1.556, 250_000, 10.0, 0.1, 256),
    ("wav2vec2", "large"): (3e-4, 48_000, 600_000, 0.0, 2.667, 320_000, 0.0, 1.0, 768),
}


@pytest.mark.parametrize(("kind", "name"), PUBLISHED)
def test_hyper_parameters_are_the_published(kind, name):
    o = SIZES[kind](name)
    t, width = o.training, o.prediction.projection if kind == "hubert" else o.contrast.width
    *schedule, hours, crop, penalty, scale, wanted = TABLE[kind, name]
    assert [t.learning_rate, t.warmup_steps, t.steps, t.clip] == schedule
    # to a multiple of 16 crops
    assert o.batches.crops * o.batches.crop_seconds / 3_600 == pytest.approx(hours, rel=0.02)
    assert o.batches.crop_seconds * 16_000 == crop
    assert (o.convolutions, width) == (Convolutions(penalty, scale), wanted)
    assert (t.adam_betas, t.adam_epsilon, t.weight_decay) == ((0.9, 0.98), 1e-6, 0.01)
    # same_masks: fairseq's require_same_masks, which neither of its models turns off
    assert o.masks == Masks(0.80 if kind == "hubert" else 0.65, 10, True)
    assert kind == "wav2vec2" or o.prediction.visible_weight == 0
    assert PRESETS[kind][name]["normalise"] is (name == "large")


# ---- defaults


def test_going_on_learns_the_last_layer_of_the_start_or_of_the_teacher(hubert, hubert_folder):
    other = str(hubert_folder(num_hidden_layers=3))
    for given, teacher, layer in ((None, hubert, 2), (other, other, 3), ("mfcc", "mfcc", None)):
        o = continued(hubert, teacher=given)
        assert (o.teacher, o.targets) == (teacher, Targets(layer=layer, clusters=100))
        assert o.masks == Masks(0.65, 10, False)
        assert o.batches == Batches(10, 4.0)
        assert o.prediction == Prediction(1.0, 128)
        assert o.convolutions == Convolutions(10.0, 1.0)


# ---- what would have no effect


NOISE = {"distortion": Distortion(distort="g")}


@pytest.mark.parametrize(
    ("verb", "given", "message"),
    [
        (Wav2Vec2, {"distortion": Distortion(snr_range=(0.0, 5.0))}, "--snr-range .*--distort"),
        (Hubert, NOISE | {"distillation": Distillation(1.0)}, "--distil .*--start"),
        (Hubert, {"targets": Targets(layer=5)}, "--layer .*MFCCs"),
    ],
)
def test_options_that_mean_nothing_are_refused(verb, given, message):
    refused(message, verb, **PLACES, **given)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("wav2vec2", {"teacher": "t"}, "--teacher .* on .*, a wav2vec 2.0"),
        ("hubert", {"contrast": Contrast(negatives=2)}, "--negatives .*no wav2vec 2.0"),
    ],
)
def test_options_of_the_other_kind_are_refused(kind, given, message, request):
    refused(message, continued, request.getfixturevalue(kind), **given)
