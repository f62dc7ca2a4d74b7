"""Plans: the published settings where nothing is typed, what is typed where it is, and no word of what would change nothing."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import Wav2Vec2Config, Wav2Vec2Model, WavLMConfig, WavLMModel

from speechssl.cli import main
from speechssl.errors import InputError
from speechssl.pretrain.data import MaskOptions
from speechssl.pretrain.hubert import IterationOptions, pretrain
from speechssl.pretrain.presets import HUBERT, WAV2VEC2
from speechssl.pretrain.run import CONTINUED, ContrastiveRun, continued_plan, hubert_plan, pretrain_wav2vec2, wav2vec2_plan
from speechssl.pretrain.wav2vec2 import ContrastiveOptions, Wav2Vec2Pretraining, save_pretraining

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "conv_dim": (16,) * 7}
TINY |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
STABLE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
HEADS = ContrastiveOptions(codebooks=2, entries=6, width=12, diversity=0.3)


@pytest.fixture(scope="module")
def wav2vec2(tmp_path_factory):
    """Folder of a wav2vec 2.0 with its heads."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("wav2vec2")
    save_pretraining(Wav2Vec2Pretraining(Wav2Vec2Model(Wav2Vec2Config(**TINY, **STABLE)), HEADS), folder)
    return str(folder)


@pytest.fixture(scope="module")
def hubert(hubert_folder):
    return str(hubert_folder())


# ---- defaults


@pytest.mark.parametrize("size", ["small", "base"])
@pytest.mark.parametrize("teacher", [None, "mfcc", "some/encoder"])
def test_hubert_has_the_settings_of_its_size_and_iteration(size, teacher):
    chosen, options = HUBERT[size], hubert_plan(size, teacher).with_options({}).options
    iteration = chosen.iterations[-1 if teacher == "some/encoder" else 0]
    assert (options.layer, options.clusters, options.training.steps) == (iteration.layer, iteration.clusters, iteration.steps)
    assert (options.mask, options.penalty, options.gradient_scale) == (chosen.mask, chosen.penalty, chosen.feature_gradient)
    assert (options.teacher, options.projection, options.size) == (teacher or "mfcc", chosen.width, size)
    assert options.training.warmup_steps == iteration.warmup
    assert replace(options.training, steps=chosen.training.steps, warmup_steps=chosen.training.warmup_steps) == chosen.training


def test_large_learns_from_another_hubert():
    with pytest.raises(InputError, match="large learns from another HuBERT; name one with --teacher"):
        hubert_plan("large")
    assert hubert_plan("large", "facebook/hubert-base-ls960").options.layer == 9


@pytest.mark.parametrize("size", WAV2VEC2)
def test_wav2vec2_has_the_settings_of_its_size(size):
    chosen, options = WAV2VEC2[size], wav2vec2_plan(size).with_options({}).options
    assert (options.training, options.contrastive, options.mask) == (chosen.training, chosen.contrastive, chosen.mask)
    assert (options.negatives, options.temperature, options.seconds) == (100, chosen.temperature, chosen.batching.crop_seconds)


@pytest.mark.parametrize("divided", [(8, 2), (4, 4), (2, 8), (16, 1), (1, 16)])
@pytest.mark.parametrize("plan", [hubert_plan("base"), hubert_plan("large", "t"), wav2vec2_plan("base"), wav2vec2_plan("large")])
def test_a_published_batch_can_be_divided(plan, divided):
    processes, accumulation = divided
    crops = plan.with_options({"accumulation": accumulation}).options.crops
    assert crops % processes == 0 and crops * accumulation == plan.options.crops


@pytest.mark.parametrize("chosen", [*HUBERT.values(), *WAV2VEC2.values()])
def test_a_batch_is_as_long_as_published(chosen):
    plan = hubert_plan(chosen.name, "t") if chosen in HUBERT.values() else wav2vec2_plan(chosen.name)
    assert plan.options.crops * plan.options.seconds == pytest.approx(chosen.batching.seconds, rel=0.02)


def test_going_on_learns_the_starts_last_layer(hubert):
    plan = continued_plan(hubert)
    assert (plan.options, plan.function) == (
        IterationOptions(CONTINUED, teacher=hubert, layer=2, mask=MaskOptions(0.65, 10, 1.0)),
        pretrain,
    )


def test_another_teachers_last_layer_is_its_own(hubert, hubert_folder):
    other = str(hubert_folder(num_hidden_layers=3))
    assert (continued_plan(hubert, other).options.teacher, continued_plan(hubert, other).options.layer) == (other, 3)
    assert (continued_plan(hubert, "mfcc").options.teacher, continued_plan(hubert, "mfcc").options.layer) == ("mfcc", 0)


def test_going_on_with_wav2vec2_keeps_its_heads(wav2vec2):
    plan = continued_plan(wav2vec2)
    assert (plan.options, plan.function) == (ContrastiveRun(CONTINUED), pretrain_wav2vec2)
    assert plan.with_options({"start": wav2vec2}).options.contrastive is None  # those of the folder


def test_going_on_with_another_kind_is_refused(tmp_path):
    WavLMModel(WavLMConfig(**TINY)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="is a wavlm encoder; this training goes on from a HuBERT or a wav2vec 2.0"):
        continued_plan(str(tmp_path))


# ---- what is typed


def test_what_is_typed_wins_wherever_it_belongs():
    typed = {"steps": 7, "crop_seconds": 2.0, "mask_probability": 0.3, "visible_weight": 0.5, "feature_penalty": 0.0, "clusters": 9}
    options = hubert_plan("base").with_options(typed | {"gradient_scale": 1.0, "crops": 3, "accumulation": 2}).options
    assert (options.training.steps, options.training.accumulation, options.training.warmup_steps) == (7, 2, 20_000)
    assert (options.seconds, options.penalty, options.clusters, options.gradient_scale) == (2.0, 0.0, 9, 1.0)
    assert options.mask == MaskOptions(0.3, 10, 0.5, True) and options.crops == 3  # typed: not divided
    assert hubert_plan("base").with_options({"same_masks": False}).options.mask == MaskOptions(0.8, 10, 0.0, False)


def test_what_is_typed_of_a_quantiser_replaces_that_of_the_size_or_of_the_start(wav2vec2):
    typed = {"entries": 8, "gradient_scale": 1.0, "feature_penalty": 0.5}
    wanted = {"entries": 8, "feature_gradient": 1.0, "penalty": 0.5}
    assert wav2vec2_plan("base").with_options(typed).options.contrastive == replace(ContrastiveOptions(), **wanted)
    for plan in (wav2vec2_plan("base", wav2vec2), continued_plan(wav2vec2)):
        assert plan.with_options(typed | {"start": wav2vec2}).options.contrastive == replace(HEADS, **wanted)


# ---- what would change nothing

OF_HUBERT = {"teacher": "mfcc", "layer": 0, "smooth": 3, "clusters": 100, "codebook": "b", "precision": "bf16", "reference": False}
OF_HUBERT |= {"share": 0.5, "budget": 9, "starts": 1, "visible_weight": 0.0, "projection": 128, "save_bf16": True}


@pytest.mark.parametrize("name", OF_HUBERT)
def test_what_is_of_hubert_is_refused_for_wav2vec2(name):
    flag = "--no-reference" if name == "reference" else f"--{name.replace('_', '-')}"
    with pytest.raises(InputError, match=f"^{flag} would change nothing, for w2v2 is a wav2vec 2.0; leave out"):
        wav2vec2_plan("small").with_options({"start": "w2v2", name: OF_HUBERT[name]})


@pytest.mark.parametrize("name", ["codebooks", "entries", "diversity", "negatives"])
def test_what_is_of_wav2vec2_is_refused_for_hubert(name):
    with pytest.raises(InputError, match=f"^--{name} would change nothing, for what is trained is a HuBERT; leave out"):
        hubert_plan("small").with_options({name: 2})


def test_a_switch_that_is_off_asks_for_nothing():
    off = {"reference": True, "save_bf16": False, "domain_adversary_frames": False}
    assert wav2vec2_plan("small").with_options(off) == wav2vec2_plan("small")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"snr": [5.0, 10.0], "double": 0.2}, "--snr and --double would change nothing without --distort"),
        ({"domain_adversary": "binary", "start": "s"}, "--domain-adversary would change nothing without --distort"),
        ({"distort": "g", "distil": 1.0}, "--distil would change nothing without --start"),
        ({"distort": "g", "start": "s", "distil_layers": [0]}, "--distil-layers would change nothing without --distil"),
        (
            {"distort": "g", "domain_adversary_weight": 0.0},
            "--domain-adversary-weight would .* without --domain-adversary",
        ),
        (
            {"distort": "g", "domain_adversary_frames": True},
            "--domain-adversary-frames would .* without --domain-adversary",
        ),
    ],
)
@pytest.mark.parametrize("plan", [hubert_plan("small"), wav2vec2_plan("small")])
def test_what_means_nothing_alone_is_refused(plan, typed, said):
    with pytest.raises(InputError, match=said):
        plan.with_options(typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"layer": 5}, "--layer would change nothing with MFCCs; name an encoder with --teacher"),
        ({"teacher": "mfcc", "smooth": 3}, "--smooth would change nothing with MFCCs"),
        ({"teacher": "t", "codebook": "b.safetensors", "clusters": 7, "layer": 3}, "--layer and --clusters .* b.safetensors says"),
        ({"teacher": "t", "codebook": "b.safetensors", "share": 1.0, "starts": 3}, "--share and --starts .* b.safetensors says"),
    ],
)
def test_what_the_teacher_leaves_open_to_nobody_is_refused(typed, said):
    with pytest.raises(InputError, match=said):
        hubert_plan("small", typed.get("teacher")).with_options(typed)


# ---- the verbs, on almost nothing

SHORT = "--crops 4 --crop-seconds 0.5 --mask-length 4 --steps 2 --warmup-steps 1 --save-every 1 --no-bf16".split()
NOISY = ["--distort", "g", "--distorted", "0", "1", "--distil", "1", "--domain-adversary", "multi"]


def card(folder):
    return json.loads((folder / "encoder/card.json").read_text())


def test_one_command_goes_on_with_a_hubert(mini_corpus, hubert, tmp_path):
    arguments = ["pretrain", "continue", str(mini_corpus()), str(tmp_path / "out"), "--from", hubert, "--clusters", "6"]
    assert main([*arguments, *SHORT, *NOISY, "--layer", "1", "--save-bf16"]) == 0
    found = card(tmp_path / "out")
    assert found["what"] == "HuBERT encoder" and (found["targets"]["layer"], found["targets"]["K"]) == (1, 6)
    options = found["options"]
    assert options["distort"]["probability"] == [0.0, 1.0] and options["distort"]["snr"] == [10.0, 19.0]
    assert (options["distil"]["weight"], options["adversary"]["labels"], options["adversary"]["weight"]) == (1.0, "multi", 1.0)
    assert main([*arguments, *SHORT, *NOISY, "--layer", "1", "--save-bf16"]) == 0  # finished: not done again


def test_one_command_goes_on_with_a_wav2vec2(mini_corpus, wav2vec2, tmp_path):
    arguments = ["pretrain", "continue", str(mini_corpus()), str(tmp_path / "out"), "--from", wav2vec2, *SHORT, *NOISY]
    assert main(arguments) == 0
    found = card(tmp_path / "out")
    assert found["what"] == "wav2vec 2.0 with its heads" and "contrastive" not in found["options"]
    assert json.loads((tmp_path / "out/encoder/config.json").read_text())["num_codevectors_per_group"] == 6


def test_what_is_of_the_other_kind_leaves_nothing_behind(mini_corpus, wav2vec2, tmp_path, capsys):
    corpus, out = str(mini_corpus()), tmp_path / "runs/out"
    assert main(["pretrain", "continue", corpus, str(out), "--from", wav2vec2, *NOISY, "--clusters", "100"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("speechssl: --clusters would change nothing")
    assert not out.parent.exists()


def test_more_than_two_shares_of_distorted_crops_are_refused(mini_corpus, hubert, tmp_path, capsys):
    arguments = ["pretrain", "continue", str(mini_corpus()), str(tmp_path / "out"), "--from", hubert, "--distort", "g"]
    assert main([*arguments, "--distorted", "0", "0.5", "1"]) == 2
    assert "--distorted takes one share, or two" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["hubert", "wav2vec2"])
def test_schedules_of_distortions_count_updates(kind, request, mini_corpus, tmp_path, monkeypatch):
    seen = []

    class Spy:
        domains, card = ("clean", "spy"), {"kinds": ["spy"]}

        def apply(self, samples, key, progress=0.0):
            seen.append(progress)
            return samples, 1

    monkeypatch.setattr("speechssl.augment.training.parse_distortions", lambda *_, **__: Spy())
    corpus, start = str(mini_corpus()), request.getfixturevalue(kind)
    arguments = ["pretrain", "continue", corpus, str(tmp_path / "out"), "--from", start, *SHORT, "--distort", "g"]
    assert main([*arguments, "--accumulation", "2", *(["--clusters", "6"] if kind == "hubert" else [])]) == 0
    assert sorted(set(seen)) == [0.0, 0.25, 0.5, 0.75]  # two updates of two batches


def test_one_command_draws_cuts_and_measures_as_it_is_told(mini_corpus, hubert, tmp_path):
    arguments = ["pretrain", "continue", str(mini_corpus()), str(tmp_path / "out"), "--from", hubert, "--clusters", "6", *SHORT]
    config = tmp_path / "c.yaml"
    config.write_text("c:\n  same-masks: true\n  starts: 2\n  snr-over: signal\n")
    typed = ["--share", "0.5", "--budget", "40", "--distort", "g", "--config", str(config), "--stage", "c"]
    assert main([*arguments, *typed]) == 0
    found = card(tmp_path / "out")
    assert found["targets"].items() >= {"recordings": 2, "drawn_from": 3, "budget": 40, "starts": 2}.items()
    assert found["options"]["mask"]["same_masks"] is True and found["options"]["distort"]["snr_over"] == "signal"


@pytest.mark.parametrize(
    ("flag", "said"), [(["--snr-over", "signal"], "--snr-over would"), (["--share", "0"], "above 0 and at most 1")]
)
def test_draws_and_snrs_that_mean_nothing_are_refused(mini_corpus, hubert, tmp_path, capsys, flag, said):
    try:
        code = main(["pretrain", "continue", str(mini_corpus()), str(tmp_path / "out"), "--from", hubert, *flag])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2 and said in capsys.readouterr().err and not (tmp_path / "out").exists()
