"""The published sizes: parameters are counted, hyper-parameters are the papers', and a CPU gets through the small ones."""

from dataclasses import FrozenInstanceError, asdict

import pytest
import torch
from transformers import Wav2Vec2ForPreTraining
from transformers.optimization import get_scheduler

from speechssl.encoders.load import small_config
from speechssl.errors import InputError
from speechssl.pretrain.presets import HUBERT, WAV2VEC2, size_of
from speechssl.pretrain.wav2vec2 import ContrastiveBatches, Wav2Vec2Pretraining, save_pretraining

ALL = [*HUBERT.values(), *WAV2VEC2.values()]


def parameters(make):
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters()) / 1e6


def of_pretraining(size):
    """Encoder, quantiser and projections."""
    return parameters(lambda: Wav2Vec2Pretraining(size.model(), size.contrastive))


@pytest.mark.parametrize(
    ("kind", "name", "millions"),
    [("hubert", "base", 94.4), ("hubert", "large", 315.4), ("hubert", "small", 4.7)]
    + [("wav2vec2", "base", 94.4), ("wav2vec2", "large", 315.4), ("wav2vec2", "small", 4.7)],
)
def test_encoders_have_as_many_parameters_as_published(kind, name, millions):
    assert parameters(size_of(kind, name).model) == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(("name", "millions"), [("base", 95.0), ("large", 317.4)])
def test_wav2vec_2_with_its_heads_has_as_many_parameters_as_published(name, millions):
    assert of_pretraining(WAV2VEC2[name]) == pytest.approx(millions, abs=0.06)
    assert of_pretraining(WAV2VEC2[name]) == parameters(lambda: Wav2Vec2ForPreTraining(WAV2VEC2[name].config()))


TABLE = {  # kind, size: learning rate, warm-up, steps, clip, hours of audio an update, crop in samples, penalty, gradient, width
    ("hubert", "base"): (5e-4, 32_000, 400_000, 10.0, 2_800 / 3_600, 250_000, 10.0, 0.1, 256),
    ("hubert", "large"): (1.5e-3, 32_000, 400_000, 1.0, 2.0, 250_000, 10.0, 1.0, 768),
    ("wav2vec2", "base"): (5e-4, 32_000, 400_000, 0.0, 1.556, 250_000, 10.0, 0.1, 256),
    ("wav2vec2", "large"): (3e-4, 48_000, 600_000, 0.0, 2.667, 320_000, 0.0, 1.0, 768),
}


@pytest.mark.parametrize(("kind", "name"), TABLE)
def test_hyper_parameters_are_the_published(kind, name):
    size, options = size_of(kind, name), size_of(kind, name).training
    loss = size if kind == "hubert" else size.contrastive
    found = (options.learning_rate, options.warmup_steps, options.steps, options.clip, size.batching.seconds / 3_600)
    found += (size.batching.crop_samples, loss.penalty, loss.feature_gradient, loss.width)
    assert found == pytest.approx(TABLE[kind, name], rel=1e-3)
    assert (options.adam_betas, options.adam_epsilon, options.weight_decay) == ((0.9, 0.98), 1e-6, 0.01)
    assert (size.mask.probability, size.mask.length) == ((0.80, 10) if kind == "hubert" else (0.65, 10))
    assert size.mask.same_masks  # fairseq's require_same_masks, which neither of its models turns off
    large = name == "large"
    assert size.normalise is large and size.mask.visible_weight == 0


@pytest.mark.parametrize(("kind", "name"), TABLE)
def test_architectures_are_the_published(kind, name):
    config, large = size_of(kind, name).config(), name == "large"
    drops = {config.hidden_dropout, config.attention_dropout, config.feat_proj_dropout}
    assert drops == {0.0 if large else 0.1} and config.activation_dropout == 0 and config.layerdrop == (0.0 if large else 0.05)
    assert config.feat_extract_norm == ("layer" if large else "group") and config.do_stable_layer_norm is large
    assert (config.conv_dim, config.conv_kernel) == ((512,) * 7, (10, 3, 3, 3, 3, 2, 2)) and config.num_conv_pos_embeddings == 128
    assert config.conv_bias is (large and kind == "wav2vec2")


def test_the_iterations_of_hubert():
    base, large = HUBERT["base"], HUBERT["large"]
    assert [(i.teacher, i.layer, i.clusters, i.steps) for i in base.iterations] == [
        ("mfcc", 0, 100, 250_000),
        ("base", 6, 500, 400_000),
    ]
    assert [(i.teacher, i.layer, i.clusters, i.steps) for i in large.iterations] == [("base", 9, 500, 400_000)]
    assert [base.options(n).steps for n in (1, 2)] == [250_000, 400_000] and base.options(1).learning_rate == 5e-4
    warmups = [(size.options(n).warmup_steps, 0.08 * size.options(n).steps) for size, n in ((base, 1), (base, 2), (large, 1))]
    assert warmups == [(20_000, 20_000), (32_000, 32_000), (32_000, 32_000)]  # the first 8 % of each iteration's own steps
    with pytest.raises(InputError, match="HuBERT large has iterations 1 to 1; give one of them instead of 2"):
        large.options(2)


def test_the_quantisers_of_wav2vec_2():
    base, large = WAV2VEC2["base"], WAV2VEC2["large"]
    for size in (base, large):
        assert (size.contrastive.codebooks, size.contrastive.entries, size.negatives) == (2, 320, 100)
        assert (size.contrastive.kappa, size.contrastive.diversity) == (0.1, 0.1)
    assert asdict(base.temperature) == {"start": 2.0, "decay": 0.999995, "floor": 0.5} and large.temperature.floor == 0.1
    assert ContrastiveBatches(lambda step: {}).temperature == base.temperature


def test_the_schedule_rises_and_falls_to_nothing_in_a_line():
    """fairseq's polynomial decay: transformers' polynomial of power 1 is the same but for an end of 1e-7."""
    options, weight = HUBERT["base"].training, torch.nn.Parameter(torch.zeros(1))
    for name, end in ((options.schedule, 0.0), ("polynomial", 1e-7)):
        optimiser = torch.optim.AdamW([weight], lr=options.learning_rate)
        at = get_scheduler(name, optimiser, options.warmup_steps, options.steps).lr_lambdas[0]
        rates = [options.learning_rate * at(step) for step in (0, 16_000, 32_000, 216_000, 400_000)]
        assert rates == pytest.approx([0, 2.5e-4, 5e-4, 2.5e-4, end], abs=1e-7)


@pytest.mark.parametrize("size", ALL, ids=lambda size: f"{type(size).__name__}-{size.name}")
def test_sizes_are_frozen_and_hold_together(size):
    with pytest.raises(FrozenInstanceError):
        size.name = "other"
    assert size.config() is not size.config()
    assert abs(size.batching.crops * size.batching.crop_seconds - size.batching.seconds) < size.batching.crop_seconds
    if size in WAV2VEC2.values():
        config, options = size.config(), size.contrastive
        assert (config.num_codevector_groups, config.num_codevectors_per_group) == (options.codebooks, options.entries)
        assert (
            config.codevector_dim == config.proj_codevector_dim == options.width
            and config.feat_quantizer_dropout == options.dropout
        )


def test_the_small_ones_share_an_architecture(tmp_path):
    theirs, ours = small_config().to_dict(), WAV2VEC2["small"].config().to_dict()
    shared = (theirs.keys() & ours.keys()) - {"model_type", "architectures"}
    assert {name for name in shared if theirs[name] != ours[name]} == set() and ours["hidden_size"] == 256
    size = WAV2VEC2["small"]
    save_pretraining(Wav2Vec2Pretraining(size.model(), size.contrastive), tmp_path)
    assert Wav2Vec2ForPreTraining.from_pretrained(tmp_path).config.num_codevectors_per_group == 64


def test_an_unknown_size_is_refused():
    for kind, name in (("hubert", "huge"), ("wavlm", "base")):
        with pytest.raises(InputError, match=rf"there is no {kind} of size {name}; choose hubert or wav2vec2"):
            size_of(kind, name)
