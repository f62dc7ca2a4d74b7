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


@pytest.mark.parametrize(("kind", "name"), PUBLISHED)
def test_architectures_are_the_published(kind, name):
    config, large = CONFIGS[kind](name), name == "large"
    drops = {config.hidden_dropout, config.attention_dropout, config.feat_proj_dropout}
    assert drops == {0.0 if large else 0.1}
    assert config.activation_dropout == 0
    assert config.layerdrop == (0.0 if large else 0.05)
    assert config.feat_extract_norm == ("layer" if large else "group")
    assert config.do_stable_layer_norm is large
    assert (config.conv_dim, config.conv_kernel) == ((512,) * 7, (10, 3, 3, 3, 3, 2, 2))
    assert config.num_conv_pos_embeddings == 128
    assert config.conv_bias is (large and kind == "wav2vec2")


def test_the_iterations_of_hubert():
    first, second, large = hubert_of("base", "mfcc"), hubert_of("base"), hubert_of("large")
    assert (first.targets.clusters, first.training.steps) == (100, 250_000)
    for o, layer in ((second, 6), (large, 9)):
        assert (o.targets.layer, o.targets.clusters, o.training.steps) == (layer, 500, 400_000)
    # of each iteration's own steps
    for o in (first, second, large):
        assert o.training.warmup_steps == 0.08 * o.training.steps
    assert first.training.learning_rate == 5e-4


def test_the_quantisers_of_wav2vec_2():
    for name, floor in (("base", 0.5), ("large", 0.1)):
        made = wav2vec2_of(name).contrast
        assert (made.temperature_start, made.temperature_decay) == (2.0, 0.999995)
        assert made.temperature_floor == floor
        assert (made.codebooks, made.entries, made.kappa) == (2, 320, 0.1)
        assert (made.diversity, made.negatives) == (0.1, 100)
    for name in ("small", "base", "large"):
        config, made = wav2vec2_config(name), wav2vec2_of(name).contrast
        assert config.num_codevector_groups == made.codebooks
        assert config.num_codevectors_per_group == made.entries
        assert (config.codevector_dim, config.proj_codevector_dim) == (made.width,) * 2
        assert config.feat_quantizer_dropout == made.dropout


def test_going_on_learns_the_last_layer_of_the_start_or_of_the_teacher(hubert, hubert_folder):
    other = str(hubert_folder(num_hidden_layers=3))
    for given, teacher, layer in ((None, hubert, 2), (other, other, 3), ("mfcc", "mfcc", None)):
        o = continued(hubert, teacher=given)
        assert (o.teacher, o.targets) == (teacher, Targets(layer=layer, clusters=100))
        assert o.masks == Masks(0.65, 10, False)
        assert o.batches == Batches(10, 4.0)
        assert o.prediction == Prediction(1.0, 128)
        assert o.convolutions == Convolutions(10.0, 1.0)


NOISE = {"distortion": Distortion(distort="g")}


@pytest.mark.parametrize(
    ("verb", "given", "message"),
    [
        (Wav2Vec2, {"distortion": Distortion(snr_range=(0.0, 5.0))}, "--snr-range .*--distort"),
        (Hubert, NOISE | {"distillation": Distillation(1.0)}, "--distil .*--start"),
        (Hubert, {"targets": Targets(layer=5)}, "--layer .*MFCCs"),
        ("wav2vec2", {"teacher": "t"}, "--teacher .* on .*, a wav2vec 2.0"),
        ("hubert", {"contrast": Contrast(negatives=2)}, "--negatives .*no wav2vec 2.0"),
    ],
)
def test_options_that_mean_nothing_are_refused(verb, given, message, request):
    if isinstance(verb, str):  # the kind of the start of `Continue`
        refused(message, continued, request.getfixturevalue(verb), **given)
    else:
        refused(message, verb, **PLACES, **given)
