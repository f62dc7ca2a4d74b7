"""Presets: the published sizes and settings, the options that replace them, and errors for options
that would have no effect."""

import json
from dataclasses import asdict, astuple, replace

import pytest
import torch
from transformers import HubertModel, Wav2Vec2ForPreTraining, Wav2Vec2Model, WavLMConfig, WavLMModel
from transformers.optimization import get_scheduler

from speechssl.cli import main
from speechssl.encoders.load import small_config
from speechssl.errors import InputError
from speechssl.pretrain.data import MaskOptions
from speechssl.pretrain.model import (
    ContrastiveBatches,
    ContrastiveOptions,
    Wav2Vec2Pretraining,
    save_pretraining,
)
from speechssl.pretrain.options import CONTINUED, continued_preset, with_options
from speechssl.pretrain.presets import (
    HUBERT,
    WAV2VEC2,
    HubertOptions,
    Wav2Vec2Options,
    hubert_preset,
    wav2vec2_preset,
)

from .conftest import HEADS, TINY

# ---- sizes


def parameters(make):
    with torch.device("meta"):
        return sum(p.numel() for p in make().parameters()) / 1e6


def options_of(kind, name):
    return HUBERT[name].iterations[-1] if kind == "hubert" else WAV2VEC2[name].options


PUBLISHED = [(kind, name) for kind in ("hubert", "wav2vec2") for name in ("base", "large")]
SIZES = {"hubert": HUBERT, "wav2vec2": WAV2VEC2}
MODELS = {"hubert": HubertModel, "wav2vec2": Wav2Vec2Model}


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize(("name", "millions"), [("base", 94.4), ("large", 315.4), ("small", 4.7)])
def test_encoders_have_as_many_parameters_as_published(kind, name, millions):
    assert parameters(lambda: MODELS[kind](SIZES[kind][name].config())) == pytest.approx(
        millions, abs=0.06
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "millions"), [("base", 95.0), ("large", 317.4)])
def test_wav2vec_2_with_its_heads_has_as_many_parameters_as_published(name, millions):
    size = WAV2VEC2[name]
    ours = parameters(lambda: Wav2Vec2Pretraining(Wav2Vec2Model(size.config()), size.contrastive))
    assert (
        ours
        == parameters(lambda: Wav2Vec2ForPreTraining(size.config()))
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
    size, options = SIZES[kind][name], options_of(kind, name)
    training, loss = options.training, options if kind == "hubert" else size.contrastive
    of_loss = (
        (loss.penalty, loss.gradient_scale, loss.projection)
        if kind == "hubert"
        else astuple(loss)[5:7] + (loss.width,)
    )
    rate, warmup, steps, clip, hours, crop, *wanted = TABLE[kind, name]
    assert (training.learning_rate, training.warmup_steps, training.steps, training.clip) == (
        rate,
        warmup,
        steps,
        clip,
    )
    # to a multiple of 16 crops
    assert options.crops * options.seconds / 3_600 == pytest.approx(hours, rel=0.02)
    assert options.seconds * 16_000 == crop and list(of_loss) == wanted
    assert (training.adam_betas, training.adam_epsilon, training.weight_decay) == (
        (0.9, 0.98),
        1e-6,
        0.01,
    )
    # same_masks: fairseq's require_same_masks, which neither of its models turns off
    assert options.mask == MaskOptions(0.80 if kind == "hubert" else 0.65, 10, 0.0, same_masks=True)
    assert size.normalise is (name == "large")


@pytest.mark.parametrize(("kind", "name"), PUBLISHED)
def test_architectures_are_the_published(kind, name):
    config, large = SIZES[kind][name].config(), name == "large"
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
    base, large = HUBERT["base"].iterations, HUBERT["large"].iterations
    assert [(i.layer, i.clusters, i.training.steps) for i in base] == [
        (0, 100, 250_000),
        (6, 500, 400_000),
    ]
    assert [(i.teacher, i.layer, i.clusters, i.training.steps) for i in large] == [
        ("base", 9, 500, 400_000)
    ]
    # of each iteration's own steps
    assert all(i.training.warmup_steps == 0.08 * i.training.steps for i in (*base, *large))
    assert base[0].training.learning_rate == 5e-4


def test_the_quantisers_of_wav2vec_2():
    for name, floor in (("base", 0.5), ("large", 0.1)):
        size = WAV2VEC2[name]
        assert asdict(size.options.temperature) == {"start": 2.0, "decay": 0.999995, "floor": floor}
        made = size.contrastive
        assert (
            made.codebooks,
            made.entries,
            made.kappa,
            made.diversity,
            size.options.negatives,
        ) == (2, 320, 0.1, 0.1, 100)
    assert ContrastiveBatches(lambda step: {}).temperature == WAV2VEC2["base"].options.temperature
    for size in WAV2VEC2.values():
        config, made = size.config(), size.contrastive
        assert (config.num_codevector_groups, config.num_codevectors_per_group) == (
            made.codebooks,
            made.entries,
        )
        assert (config.codevector_dim, config.proj_codevector_dim) == (made.width,) * 2
        assert config.feat_quantizer_dropout == made.dropout


def test_the_schedule_rises_and_falls_to_nothing_in_a_line():
    """fairseq's polynomial decay: transformers' polynomial of power 1 is the same but for an end of
    1e-7."""
    options, weight = options_of("hubert", "base").training, torch.nn.Parameter(torch.zeros(1))
    for name, end in ((options.schedule, 0.0), ("polynomial", 1e-7)):
        optimiser = torch.optim.AdamW([weight], lr=options.learning_rate)
        at = get_scheduler(name, optimiser, options.warmup_steps, options.steps).lr_lambdas[0]
        rates = [options.learning_rate * at(step) for step in (0, 16_000, 32_000, 216_000, 400_000)]
        assert rates == pytest.approx([0, 2.5e-4, 5e-4, 2.5e-4, end], abs=1e-7)


@pytest.mark.slow
def test_the_small_ones_share_an_architecture(tmp_path):
    theirs, ours = small_config().to_dict(), WAV2VEC2["small"].config().to_dict()
    shared = (theirs.keys() & ours.keys()) - {"model_type", "architectures"}
    assert {name for name in shared if theirs[name] != ours[name]} == set() and ours[
        "hidden_size"
    ] == 256
    size = WAV2VEC2["small"]
    save_pretraining(Wav2Vec2Pretraining(Wav2Vec2Model(size.config()), size.contrastive), tmp_path)
    assert Wav2Vec2ForPreTraining.from_pretrained(tmp_path).config.num_codevectors_per_group == 64


# ---- defaults


@pytest.mark.parametrize("size", ["small", "base"])
@pytest.mark.parametrize("teacher", [None, "mfcc", "some/encoder"])
def test_hubert_has_the_settings_of_its_size_and_iteration(size, teacher):
    iteration = HUBERT[size].iterations[-1 if teacher == "some/encoder" else 0]
    assert with_options(hubert_preset(size, teacher), {}) == replace(
        iteration, teacher=teacher or "mfcc", size=size
    )
    with pytest.raises(
        InputError, match=("HuBERT large needs another HuBERT as teacher; give one with --teacher")
    ):
        hubert_preset("large")


@pytest.mark.parametrize("size", WAV2VEC2)
def test_wav2vec2_has_the_settings_of_its_size(size):
    chosen, options = WAV2VEC2[size], with_options(wav2vec2_preset(size), {})
    assert (
        options == replace(chosen.options, contrastive=chosen.contrastive, size=size)
        and options.negatives == 100
    )


@pytest.mark.parametrize("divided", [(8, 2), (4, 4), (2, 8), (16, 1), (1, 16)])
@pytest.mark.parametrize(
    "preset",
    [
        hubert_preset("base"),
        hubert_preset("large", "t"),
        wav2vec2_preset("base"),
        wav2vec2_preset("large"),
    ],
)
def test_a_published_batch_can_be_divided(preset, divided):
    processes, accumulation = divided
    crops = with_options(preset, {"accumulation": accumulation}).crops
    assert crops % processes == 0 and crops * accumulation == preset.crops


def test_going_on_learns_the_last_layer_of_the_start_or_of_the_teacher(hubert, hubert_folder):
    other = str(hubert_folder(num_hidden_layers=3))
    for given, teacher, layer in ((None, hubert, 2), (other, other, 3), ("mfcc", "mfcc", 0)):
        wanted = HubertOptions(
            CONTINUED, teacher=teacher, layer=layer, mask=MaskOptions(0.65, 10, 1.0)
        )
        assert continued_preset(hubert, given) == wanted


def test_going_on_with_wav2vec2_keeps_its_heads(wav2vec2):
    preset = continued_preset(wav2vec2)
    assert preset == Wav2Vec2Options(CONTINUED)
    assert with_options(preset, {"start": wav2vec2}).contrastive is None  # those of the folder


def test_going_on_with_another_kind_is_refused(tmp_path):
    WavLMModel(WavLMConfig(**TINY)).save_pretrained(tmp_path)
    with pytest.raises(
        InputError, match=("is a wavlm encoder; start this training from a HuBERT or a wav2vec 2.0")
    ):
        continued_preset(str(tmp_path))


# ---- what is typed


def test_what_is_typed_wins_wherever_it_belongs():
    typed = {
        "steps": 7,
        "crop_seconds": 2.0,
        "mask_probability": 0.3,
        "visible_weight": 0.5,
        "feature_penalty": 0.0,
        "clusters": 9,
    }
    options = with_options(
        hubert_preset("base"), typed | {"gradient_scale": 1.0, "crops": 3, "accumulation": 2}
    )
    assert (
        options.training.steps,
        options.training.accumulation,
        options.training.warmup_steps,
    ) == (7, 2, 20_000)
    assert (options.seconds, options.penalty, options.clusters, options.gradient_scale) == (
        2.0,
        0.0,
        9,
        1.0,
    )
    # typed: not divided
    assert options.mask == MaskOptions(0.3, 10, 0.5, True) and options.crops == 3
    assert with_options(hubert_preset("base"), {"same_masks": False}).mask == MaskOptions(
        0.8, 10, 0.0, False
    )


def test_what_is_typed_of_a_quantiser_replaces_that_of_the_size_or_of_the_start(wav2vec2):
    typed = {"entries": 8, "gradient_scale": 1.0, "feature_penalty": 0.5}
    wanted = {"entries": 8, "feature_gradient": 1.0, "penalty": 0.5}
    assert with_options(wav2vec2_preset("base"), typed).contrastive == replace(
        ContrastiveOptions(), **wanted
    )
    for preset in (wav2vec2_preset("base", wav2vec2), continued_preset(wav2vec2)):
        assert with_options(preset, typed | {"start": wav2vec2}).contrastive == replace(
            HEADS, **wanted
        )


# ---- what would have no effect

OF_HUBERT = {
    "teacher": "mfcc",
    "layer": 0,
    "smooth": 3,
    "clusters": 100,
    "codebook": "b",
    "precision": "bf16",
    "reference": False,
}
OF_HUBERT |= {
    "share": 0.5,
    "budget": 9,
    "starts": 1,
    "visible_weight": 0.0,
    "projection": 128,
    "save_bf16": True,
}
NEEDS = "would have no effect without"
BOOK = {"teacher": "t", "codebook": "b.safetensors"}


@pytest.mark.parametrize("name", OF_HUBERT)
def test_what_is_of_hubert_is_refused_for_wav2vec2(name):
    flag = "--no-reference" if name == "reference" else f"--{name.replace('_', '-')}"
    with pytest.raises(
        InputError, match=(f"^{flag} would have no effect, since w2v2 is a wav2vec 2.0; leave out")
    ):
        with_options(wav2vec2_preset("small"), {"start": "w2v2", name: OF_HUBERT[name]})
    off = {"reference": True, "save_bf16": False}  # switches that ask for nothing
    assert with_options(wav2vec2_preset("small"), off) == wav2vec2_preset("small")


@pytest.mark.parametrize("name", ["codebooks", "entries", "diversity", "negatives"])
def test_what_is_of_wav2vec2_is_refused_for_hubert(name):
    with pytest.raises(
        InputError,
        match=(f"^--{name} would have no effect, since what is trained is a HuBERT; leave out"),
    ):
        with_options(hubert_preset("small"), {name: 2})


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"snr_range": [5.0, 10.0], "double": 0.2}, f"--snr-range and --double {NEEDS} --distort"),
        ({"domain_adversary": "binary", "start": "s"}, f"--domain-adversary {NEEDS} --distort"),
        ({"distort": "g", "distil": 1.0}, f"--distil {NEEDS} --start"),
        ({"distort": "g", "start": "s", "distil_layers": [0]}, f"--distil-layers {NEEDS} --distil"),
        (
            {"distort": "g", "domain_adversary_weight": 0.0},
            f"--domain-adversary-weight {NEEDS} --domain-adversary",
        ),
    ],
)
@pytest.mark.parametrize("preset", [hubert_preset("small"), wav2vec2_preset("small")])
def test_what_means_nothing_alone_is_refused(preset, typed, message):
    with pytest.raises(InputError, match=message):
        with_options(preset, typed)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"layer": 5}, "--layer would have no effect with MFCCs; give an encoder with --teacher"),
        ({"teacher": "mfcc", "smooth": 3}, "--smooth would have no effect with MFCCs"),
        (
            BOOK | {"clusters": 7, "layer": 3},
            "--layer and --clusters .* b.safetensors determines it",
        ),
        (BOOK | {"share": 1.0, "starts": 3}, "--share and --starts .* b.safetensors determines it"),
    ],
)
def test_what_the_teacher_decides_is_refused(typed, message):
    with pytest.raises(InputError, match=message):
        with_options(hubert_preset("small", typed.get("teacher")), typed)


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
    assert options["distort"]["snr_over"] == "signal" and options["mask"]["same_masks"] is True
    assert (
        options["distil"]["weight"],
        options["adversary"]["labels"],
        options["adversary"]["weight"],
    ) == (1.0, "multi", 1.0)
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

    monkeypatch.setattr("speechssl.augment.training.parse_distortions", lambda *_, **__: Spy())
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
        assert (
            found["what"] == ("wav2vec 2.0 with its heads")
            and "contrastive" not in found["options"]
        )
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
