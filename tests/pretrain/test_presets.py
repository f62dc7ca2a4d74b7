"""Presets: the published sizes and settings, the options that replace them, and errors for options
that would have no effect."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from transformers import HubertModel, Wav2Vec2ForPreTraining, Wav2Vec2Model, WavLMConfig, WavLMModel
from transformers.optimization import get_scheduler

from speechssl.cli import main
from speechssl.encoders.load import small_config
from speechssl.errors import InputError
from speechssl.pretrain.model import Wav2Vec2Pretraining, save_pretraining
from speechssl.pretrain.options import (
    Adversary,
    Batches,
    Continue,
    Contrast,
    Convolutions,
    Distillation,
    Distortion,
    Hubert,
    Masks,
    Prediction,
    Pretraining,
    Targets,
    Wav2Vec2,
)
from speechssl.pretrain.presets import PRESETS, apply_size, hubert_config, wav2vec2_config

from .conftest import HEADS, TINY

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
    assert parameters(lambda: MODELS[kind](CONFIGS[kind](name))) == pytest.approx(
        millions, abs=0.06
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "millions"), [("base", 95.0), ("large", 317.4)])
def test_wav2vec_2_with_its_heads_has_as_many_parameters_as_published(name, millions):
    config, o = wav2vec2_config(name), wav2vec2_of(name)
    ours = parameters(
        lambda: Wav2Vec2Pretraining(Wav2Vec2Model(config), o.contrast, o.convolutions)
    )
    assert (
        ours
        == parameters(lambda: Wav2Vec2ForPreTraining(config))
        == pytest.approx(millions, abs=0.06)
    )


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
    training, width = (
        o.training,
        (o.prediction.projection if kind == "hubert" else o.contrast.width),
    )
    rate, warmup, steps, clip, hours, crop, *wanted = TABLE[kind, name]
    assert (training.learning_rate, training.warmup_steps, training.steps, training.clip) == (
        rate,
        warmup,
        steps,
        clip,
    )
    # to a multiple of 16 crops
    assert o.batches.crops * o.batches.crop_seconds / 3_600 == pytest.approx(hours, rel=0.02)
    assert o.batches.crop_seconds * 16_000 == crop
    assert [*asdict(o.convolutions).values(), width] == wanted
    assert (training.adam_betas, training.adam_epsilon, training.weight_decay) == (
        (0.9, 0.98),
        1e-6,
        0.01,
    )
    # same_masks: fairseq's require_same_masks, which neither of its models turns off
    assert o.masks == Masks(0.80 if kind == "hubert" else 0.65, 10, True)
    assert kind == "wav2vec2" or o.prediction.visible_weight == 0
    assert PRESETS[kind][name]["normalise"] is (name == "large")


@pytest.mark.parametrize(("kind", "name"), PUBLISHED)
def test_architectures_are_the_published(kind, name):
    config, large = CONFIGS[kind](name), name == "large"
    drops = {config.hidden_dropout, config.attention_dropout, config.feat_proj_dropout}
    assert (
        drops == {0.0 if large else 0.1}
        and config.activation_dropout == 0
        and config.layerdrop == (0.0 if large else 0.05)
    )
    assert (
        config.feat_extract_norm == ("layer" if large else "group")
        and config.do_stable_layer_norm is large
    )
    assert (config.conv_dim, config.conv_kernel) == (
        (512,) * 7,
        (10, 3, 3, 3, 3, 2, 2),
    ) and config.num_conv_pos_embeddings == 128
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


def test_the_schedule_rises_and_falls_to_nothing_in_a_line():
    """fairseq's polynomial decay: transformers' polynomial of power 1 is the same but for an end of
    1e-7."""
    options, weight = hubert_of("base").training, torch.nn.Parameter(torch.zeros(1))
    for name, end in ((options.schedule, 0.0), ("polynomial", 1e-7)):
        optimiser = torch.optim.AdamW([weight], lr=options.learning_rate)
        at = get_scheduler(name, optimiser, options.warmup_steps, options.steps).lr_lambdas[0]
        rates = [options.learning_rate * at(step) for step in (0, 16_000, 32_000, 216_000, 400_000)]
        assert rates == pytest.approx([0, 2.5e-4, 5e-4, 2.5e-4, end], abs=1e-7)


@pytest.mark.slow
def test_the_small_ones_share_an_architecture(tmp_path):
    theirs, ours = small_config().to_dict(), wav2vec2_config("small").to_dict()
    shared = (theirs.keys() & ours.keys()) - {"model_type", "architectures"}
    assert {name for name in shared if theirs[name] != ours[name]} == set() and ours[
        "hidden_size"
    ] == 256
    o = wav2vec2_of("small")
    encoder = Wav2Vec2Model(wav2vec2_config("small"))
    save_pretraining(Wav2Vec2Pretraining(encoder, o.contrast, o.convolutions), tmp_path)
    assert Wav2Vec2ForPreTraining.from_pretrained(tmp_path).config.num_codevectors_per_group == 64


# ---- defaults


@pytest.mark.parametrize("size", ["small", "base"])
def test_nothing_is_left_open_and_the_teacher_tells_which_iteration_it_is(size):
    first, second = hubert_of(size, None), hubert_of(size)
    assert first.teacher == "mfcc" and second.teacher == "t"
    for o in (first, second, wav2vec2_of(size)):
        values = asdict(o)
        groups = "targets prediction contrast masks convolutions batches training".split()
        given = {k: v for name in groups for k, v in values.get(name, {}).items()}
        optional = {"share", "codebook", "teacher_precision", "horizon", "workers"}
        optional |= {"layer"} if o is first else set()  # MFCCs have none
        assert {k for k, v in given.items() if v is None} == optional & given.keys()
    assert second.targets.layer == PRESETS["hubert"][size]["iterations"][-1]["layer"]
    with pytest.raises(
        InputError, match=("HuBERT large needs another HuBERT as teacher; give one with --teacher")
    ):
        hubert_of("large", None)


def test_the_small_sizes():
    o = hubert_of("small", None)
    assert (o.training.steps, o.training.learning_rate, o.training.save_every) == (4000, 1e-3, 250)
    assert o.masks == Masks(0.5, 10, False) and o.batches == Batches(10, 4.0)
    assert o.convolutions == Convolutions(0.001, 1.0) and o.prediction == Prediction(1.0, 128)
    contrastive = wav2vec2_of("small")
    assert contrastive.masks == Masks(0.65, 10, True) and contrastive.batches == o.batches
    assert contrastive.training == o.training and contrastive.convolutions == o.convolutions


@pytest.mark.parametrize("divided", [(8, 2), (4, 4), (2, 8), (16, 1), (1, 16)])
@pytest.mark.parametrize(("kind", "name"), PUBLISHED)
def test_a_published_batch_can_be_divided(kind, name, divided):
    processes, accumulation = divided
    whole = SIZES[kind](name)
    training = replace(whole.training, accumulation=accumulation)
    crops = SIZES[kind](name, training=training).batches.crops
    assert crops % processes == 0 and crops * accumulation == whole.batches.crops


def test_going_on_learns_the_last_layer_of_the_start_or_of_the_teacher(hubert, hubert_folder):
    other = str(hubert_folder(num_hidden_layers=3))
    for given, teacher, layer in ((None, hubert, 2), (other, other, 3), ("mfcc", "mfcc", None)):
        o = continued(hubert, teacher=given)
        assert (o.teacher, o.targets) == (teacher, Targets(layer=layer, clusters=100))
        assert o.masks == Masks(0.65, 10, False) and o.batches == Batches(10, 4.0)
        assert o.prediction == Prediction(1.0, 128) and o.convolutions == Convolutions(10.0, 1.0)


def test_going_on_with_wav2vec2_keeps_its_heads(wav2vec2):
    o = continued(wav2vec2)
    assert o.contrast == HEADS and o.convolutions == Convolutions(10.0, 0.1)
    assert o.masks == Masks(0.65, 10, False) and o.batches == Batches(10, 4.0)


def test_going_on_with_another_kind_is_refused(tmp_path):
    WavLMModel(WavLMConfig(**TINY)).save_pretrained(tmp_path)
    with pytest.raises(
        InputError, match=("is a wavlm encoder; start this training from a HuBERT or a wav2vec 2.0")
    ):
        continued(str(tmp_path))


# ---- what is typed


def test_what_is_typed_wins_wherever_it_belongs():
    size = hubert_of("base", "mfcc")
    typed = {
        "training": replace(size.training, steps=7, accumulation=2),
        "batches": Batches(crops=3, crop_seconds=2.0),
        "masks": Masks(mask_probability=0.3),
        "prediction": Prediction(visible_weight=0.5),
        "convolutions": Convolutions(feature_penalty=0.0, gradient_scale=1.0),
        "targets": Targets(clusters=9),
    }
    o = hubert_of("base", "mfcc", **typed)
    assert (o.training.steps, o.training.warmup_steps) == (7, 20_000)
    assert o.batches == Batches(3, 2.0)  # typed: not divided
    assert o.convolutions == Convolutions(0.0, 1.0) and o.targets.clusters == 9
    assert o.masks == Masks(0.3, 10, True) and o.prediction == Prediction(0.5, 256)
    assert hubert_of("base", masks=Masks(same_masks=False)).masks == Masks(0.8, 10, False)


def test_what_is_typed_of_a_quantiser_replaces_that_of_the_size_or_of_the_start(wav2vec2):
    typed = {
        "contrast": Contrast(entries=8),
        "convolutions": Convolutions(feature_penalty=0.5, gradient_scale=1.0),
    }
    assert wav2vec2_of("base", **typed).contrast == replace(wav2vec2_of("base").contrast, entries=8)
    for o in (wav2vec2_of("base", start=wav2vec2, **typed), continued(wav2vec2, **typed)):
        assert o.contrast == replace(HEADS, entries=8)
        assert o.convolutions == Convolutions(0.5, 1.0)


# ---- what would have no effect

TARGETS = {
    "layer": 0,
    "smooth": 3,
    "clusters": 100,
    "codebook": "b",
    "teacher_precision": "bf16",
    "reference": False,
    "share": 0.5,
    "budget": 9,
    "starts": 1,
    "save_bf16": True,
}
PREDICTION = {"visible_weight": 0.0, "projection": 128}
NEEDS = "would have no effect without"


@pytest.mark.parametrize("name", ["teacher", *TARGETS, *PREDICTION])
def test_what_is_of_hubert_is_refused_for_wav2vec2(name, wav2vec2):
    typed = {"teacher": "t"}
    if name in TARGETS:
        typed = {"targets": Targets(**{name: TARGETS[name]})}
    if name in PREDICTION:
        typed = {"prediction": Prediction(**{name: PREDICTION[name]})}
    flag = "--no-reference" if name == "reference" else f"--{name.replace('_', '-')}"
    with pytest.raises(
        InputError, match=f"^{flag} would have no effect, since {wav2vec2} is a wav2vec 2.0; leave"
    ):
        continued(wav2vec2, **typed)


@pytest.mark.parametrize("name", ["codebooks", "entries", "diversity", "negatives"])
def test_what_is_of_wav2vec2_is_refused_for_hubert(name, hubert):
    with pytest.raises(
        InputError, match=f"^--{name} would have no effect, since {hubert} is a HuBERT; leave out"
    ):
        continued(hubert, contrast=Contrast(**{name: 2}))


NOISE = {"distortion": Distortion(distort="g")}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            {"distortion": Distortion(snr_range=(5.0, 10.0), double=0.2)},
            f"--snr-range and --double {NEEDS} --distort",
        ),
        (
            {"adversary": Adversary("binary"), "start": "s"},
            f"--domain-adversary {NEEDS} --distort",
        ),
        (NOISE | {"distillation": Distillation(1.0)}, f"--distil {NEEDS} --start"),
        (
            NOISE | {"start": "s", "distillation": Distillation(distil_layers=(0,))},
            f"--distil-layers {NEEDS} --distil",
        ),
        (
            NOISE | {"adversary": Adversary(domain_adversary_weight=0.0)},
            f"--domain-adversary-weight {NEEDS} --domain-adversary",
        ),
    ],
)
@pytest.mark.parametrize("verb", [Hubert, Wav2Vec2])
def test_what_means_nothing_alone_is_refused(verb: type[Pretraining], typed, message):
    with pytest.raises(InputError, match=message):
        verb(**PLACES, **typed)


@pytest.mark.parametrize(
    ("teacher", "targets", "message"),
    [
        (
            None,
            {"layer": 5},
            "--layer would have no effect with MFCCs; give an encoder with --teacher",
        ),
        ("mfcc", {"smooth": 3}, "--smooth would have no effect with MFCCs"),
        (
            "t",
            {"codebook": "b.safetensors", "clusters": 7, "layer": 3},
            "--layer and --clusters .* b.safetensors determines it",
        ),
        (
            "t",
            {"codebook": "b.safetensors", "share": 1.0, "starts": 3},
            "--share and --starts .* b.safetensors determines it",
        ),
    ],
)
def test_what_the_teacher_decides_is_refused(teacher, targets, message):
    with pytest.raises(InputError, match=message):
        Hubert(**PLACES, teacher=teacher, targets=Targets(**targets))


# ---- the verbs, on almost nothing

SHORT = (
    "--crops 4 --crop-seconds 0.5 --mask-length 4 --steps 2 --warmup-steps 1 --save-every 1 "
    "--precision fp32"
).split()
NOISY = ["--distort", "g", "--distorted", "0", "1", "--distil", "1", "--domain-adversary", "multi"]


def card(folder):
    return json.loads((folder / "encoder/card.json").read_text())


@pytest.mark.slow
def test_one_command_goes_on_with_a_hubert(mini_corpus, hubert, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("c:\n  same-masks: true\n  starts: 2\n  snr-over: signal\n")
    command = [
        "pretrain",
        "continue",
        str(mini_corpus()),
        str(tmp_path / "out"),
        "--start",
        hubert,
        "--clusters",
        "6",
        *SHORT,
    ]
    command += [
        *NOISY,
        "--layer",
        "1",
        "--save-bf16",
        "--share",
        "0.5",
        "--budget",
        "40",
        "--config",
        str(config),
        "--stage",
        "c",
    ]
    assert main(command) == 0
    found = card(tmp_path / "out")
    options, targets = found["options"], found["targets"]
    assert found["what"] == "HuBERT encoder" and (targets["layer"], targets["K"]) == (1, 6)
    assert targets.items() >= {"recordings": 2, "drawn_from": 3, "budget": 40, "starts": 2}.items()
    assert options["distort"]["probability"] == [0.0, 1.0] and options["distort"]["snr"] == [
        10.0,
        19.0,
    ]
    assert options["distort"]["snr_over"] == "signal" and options["masks"]["same_masks"] is True
    assert options["distillation"]["distil"] == 1.0
    adversary = options["adversary"]
    assert (adversary["domain_adversary"], adversary["domain_adversary_weight"]) == ("multi", 1.0)
    assert main(command) == 0  # finished: not done again


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hubert", "wav2vec2"])
def test_schedules_of_distortions_count_updates(kind, request, mini_corpus, tmp_path, monkeypatch):
    progress = []

    class Spy:
        domains, card = ("clean", "spy"), {"kinds": ["spy"]}

        def apply(self, samples, key, at=0.0):
            progress.append(at)
            return samples, 1

    monkeypatch.setattr("speechssl.pretrain.run.parse_distortions", lambda *_, **__: Spy())
    corpus, start = str(mini_corpus()), request.getfixturevalue(kind)
    command = [
        "pretrain",
        "continue",
        corpus,
        str(tmp_path / "out"),
        "--start",
        start,
        *SHORT,
        *NOISY,
        "--accumulation",
        "2",
    ]
    assert main([*command, *(["--clusters", "6"] if kind == "hubert" else [])]) == 0
    assert sorted(set(progress)) == [0.0, 0.25, 0.5, 0.75]  # two updates of two batches
    if kind == "wav2vec2":
        found = card(tmp_path / "out")
        assert found["what"] == "wav2vec 2.0 with its heads"
        assert (
            json.loads((tmp_path / "out/encoder/config.json").read_text())[
                "num_codevectors_per_group"
            ]
            == 6
        )


@pytest.mark.parametrize(
    ("start", "flags", "message"),
    [
        ("wav2vec2", [*NOISY, "--clusters", "100"], "speechssl: --clusters would have no effect"),
        (
            "hubert",
            ["--distort", "g", "--distorted", "0", "0.5", "1"],
            "--distorted takes one share, or two",
        ),
        ("hubert", ["--snr-over", "signal"], "--snr-over would"),
        ("hubert", ["--share", "0"], "above 0 and at most 1"),
    ],
)
def test_a_refused_command_leaves_nothing_behind(
    start, flags, message, request, mini_corpus, tmp_path, capsys
):
    out = tmp_path / "runs/out"
    try:
        code = main(
            [
                "pretrain",
                "continue",
                str(mini_corpus()),
                str(out),
                "--start",
                request.getfixturevalue(start),
                *flags,
            ]
        )
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2 and message in capsys.readouterr().err and not out.parent.exists()
