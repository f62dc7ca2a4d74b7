"""An encoder handed to s3prl: the folder, what s3prl's upstreams and runner make of it, and every
way it can be wrong."""

import hashlib
import json
import os
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest
import soundfile
import torch
import transformers
import yaml
from transformers import Wav2Vec2FeatureExtractor

from speechssl.cli import main
from speechssl.encoders.load import load_encoder
from speechssl.superb.export import TASKS, export_upstream

from ..files import refused

QUICK = "config.runner.total_steps=2,,config.runner.eval_step=2,,config.runner.save_step=2"
QUICK += ",,config.runner.log_step=1,,config.optimizer.lr=0.1"
QUICK += ",,config.runner.gradient_accumulate_steps=1"
QUICK += ",,config.downstream_expert.datarc.num_workers=0"
WORDS = [
    ("activate", "lights", "kitchen"),
    ("deactivate", "lights", "none"),
    ("increase", "volume", "none"),
]


@pytest.fixture(scope="module")
def exported(hubert_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("s3prl") / "out"
    return out, export_upstream(hubert_folder("layer"), out)


def tone(path, number, samples=8_000, rate=16_000):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).standard_normal(samples)
    soundfile.write(
        path, 0.2 * np.sin(0.02 * (1 + number % 3) * np.arange(samples)) + 0.01 * noise, rate
    )


# ---- the folder


def test_the_folder_says_what_it_is_and_the_encoder_is_the_same(exported, hubert_folder):
    out, card = exported
    assert {p.name for p in out.iterdir()} == {
        "encoder",
        "configs",
        "run.sh",
        "README.md",
        "card.json",
    }
    ours, source = load_encoder(out / "encoder"), load_encoder(hubert_folder("layer"))
    assert (
        ours.hash
        == source.hash
        == card["made_from"]["hash"]
        == json.loads((out / "card.json").read_text())["made_from"]["hash"]
    )
    assert (ours.normalise, ours.grid, ours.settings) == (
        source.normalise,
        source.grid,
        source.settings,
    )
    assert card["upstreams"] == ["speechssl", "hf_hubert_custom"]
    assert os.access(out / "run.sh", os.X_OK) and ours.hash in (out / "README.md").read_text()


def test_every_task_has_its_published_settings_and_a_function(exported):
    out, _ = exported
    assert [t.name for t in TASKS] == "pr asr ks qbe sid asv sd ic sf er se ss".split()
    subprocess.run(["bash", "-n", out / "run.sh"], check=True)
    for task in TASKS:
        config = yaml.safe_load((out / f"configs/{task.name}.yaml").read_text())
        assert config == task.config() and f"\n{task.name}() {{\n" in (out / "run.sh").read_text()
        if task.settings is not None:
            assert (
                task.settings.batch % task.accumulation == 0
                and task.settings.steps % task.save == 0
            )
            sizes = [
                v
                for part in config["downstream_expert"].values()
                if isinstance(part, dict)
                for v in part.items()
            ]
            batch = next(
                v for k, v in sizes if k in ("train_batch_size", "train_batchsize", "batch_size")
            )
            assert batch * config["runner"]["gradient_accumulate_steps"] == task.settings.batch


def test_a_second_time_only_what_is_missing_is_written(exported, hubert_folder):
    out, card = exported
    (out / "run.sh").write_text("# mine\n")
    (out / "configs/ic.yaml").unlink()
    before = (out / "encoder/model.safetensors").stat().st_mtime_ns
    assert export_upstream(hubert_folder("layer"), out) == card
    assert (out / "run.sh").read_text() == "# mine\n" and (out / "configs/ic.yaml").is_file()
    assert (out / "encoder/model.safetensors").stat().st_mtime_ns == before
    (out / "run.sh").unlink()
    export_upstream(hubert_folder("layer"), out)


def saved(model, folder):
    model.save_pretrained(folder)
    Wav2Vec2FeatureExtractor(sampling_rate=16_000, do_normalize=True).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_s3prls_own_upstream_is_named_where_it_reads_the_encoder(hubert_folder, tmp_path):
    config = json.loads((hubert_folder("layer") / "config.json").read_text())
    sizes = {
        name: config[name]
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    }
    sizes |= {
        name: config[name]
        for name in ("conv_dim", "num_conv_pos_embeddings", "num_conv_pos_embedding_groups")
    }
    (tmp_path / "WavLM-out").mkdir()  # an empty folder is a place, too
    for kind, upstreams in (
        ("Wav2Vec2", ["speechssl", "hf_wav2vec2_custom"]),
        ("WavLM", ["speechssl"]),
    ):
        model = getattr(transformers, f"{kind}Model")(
            getattr(transformers, f"{kind}Config")(**sizes)
        )
        assert (
            export_upstream(saved(model, tmp_path / kind), tmp_path / f"{kind}-out")["upstreams"]
            == upstreams
        )
    assert "no upstream of its own" in (tmp_path / "WavLM-out/README.md").read_text()
    card = export_upstream(
        hubert_folder("group", conv_stride=(5, 2, 2, 2, 2, 2, 1)), tmp_path / "faster"
    )
    # which s3prl's own would misstate
    assert card["upstreams"] == ["speechssl"] and card["encoder"]["hop"] == 160


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("fbank", "fbank has no weights to export; .* -u fbank"),
        ("mfcc", "mfcc has no weights"),
        ("s3prl:wavlm_base", "is an upstream of s3prl; run it there with -u wavlm_base$"),
        ("s3prl:hubert_custom@x.pt", "run it there with -u hubert_custom -k x.pt"),
        ("nowhere", "found no speech encoder at nowhere"),
    ],
)
def test_what_cannot_be_handed_over_is_one_sentence_and_leaves_nothing(encoder, message, tmp_path):
    refused(message, export_upstream, encoder, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_place_that_is_something_else_is_left_alone(exported, hubert_folder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt"):
        refused(
            "already exists and is not an export of an encoder",
            export_upstream,
            hubert_folder("layer"),
            place,
        )
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    refused(
        "already exists and is something else", export_upstream, hubert_folder("group"), exported[0]
    )


def test_the_verb(hubert_folder, tmp_path, capsys):
    assert main(["superb", "export", str(hubert_folder("layer")), str(tmp_path / "out")]) == 0
    assert "for s3prl's upstreams speechssl, hf_hubert_custom" in capsys.readouterr().out
    assert main(["superb", "export", "fbank", str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err.startswith("speechssl: fbank has no weights")


# ---- in s3prl


@pytest.mark.slow
def test_both_upstreams_give_our_states(exported, s3prl):
    from s3prl.nn import S3PRLUpstream

    out, card = exported
    wave = torch.from_numpy(
        np.random.default_rng(0).standard_normal(9_999).astype(np.float32) * 0.1
    )
    ours = load_encoder(out / "encoder").hidden_states(wave.numpy())
    for name in card["upstreams"]:
        upstream = S3PRLUpstream(name, path_or_url=str(out / "encoder")).eval()
        with torch.no_grad():
            states, _ = upstream(wave[None], torch.tensor([len(wave)]))
        for found, expected in zip(states, ours, strict=True):
            assert float((found[0, : len(expected)] - expected).norm() / expected.norm()) <= 1e-5


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Fluent Speech Commands as its archive lies: wavs, and a table a split."""
    root = tmp_path_factory.mktemp("fsc")
    for split, count in (("train", 6), ("valid", 3), ("test", 3)):
        lines = ["path,speakerId,transcription,action,object,location"]
        for i in range(count):
            tone(root / f"wavs/{split}{i}.wav", i, 6_000 + 500 * i)
            lines.append(f"wavs/{split}{i}.wav,s,words,{','.join(WORDS[i % 3])}")
        (root / "data").mkdir(exist_ok=True)
        (root / f"data/{split}_data.csv").write_text("\n".join(lines) + "\n")
    return root


def test_the_runner_trains_on_our_states(exported, commands, s3prl, tmp_path, monkeypatch):
    """In this process, so that what the runner's upstream gives can be looked at."""
    from s3prl.downstream.runner import Runner

    out, _ = exported
    config = next(t for t in TASKS if t.name == "ic").config()
    config["runner"] |= {"total_steps": 3, "eval_step": 3, "save_step": 3, "log_step": 1}
    config["downstream_expert"]["datarc"] |= {
        "file_path": str(commands),
        "num_workers": 0,
        "train_batch_size": 2,
    }
    words = {
        "upstream": "speechssl",
        "upstream_ckpt": str(out / "encoder"),
        "downstream": "fluent_commands",
    }
    words["expdir"] = str(tmp_path)
    plain = {
        "init_ckpt": None,
        "upstream_model_config": None,
        "upstream_refresh": False,
        "upstream_trainable": False,
        "seed": 0,
    }
    chosen = {
        "upstream_feature_selection": "hidden_states",
        "upstream_layer_selection": None,
        "upstream_feature_normalize": False,
    }
    runner = Runner(
        Namespace(**words, **plain, **chosen, device="cpu", push_to_hf_hub=False), config
    )
    calls, before = [], {name: p.clone() for name, p in runner.downstream.model.named_parameters()}
    runner.upstream.model.register_forward_hook(
        lambda _, given, states: calls.append((given[0], states["hidden_states"]))
    )
    runner.train()
    encoder = load_encoder(out / "encoder")
    assert len(calls) == 3 + 1 + 1  # steps, and dev and test in a batch each
    for waves, states in calls:
        for i, wave in enumerate(waves):
            ours = encoder.hidden_states(wave.numpy())
            assert torch.equal(torch.stack(states)[:, i, : ours.shape[1]], ours)
    moved = [
        name
        for name, p in runner.downstream.model.named_parameters()
        if not torch.equal(p, before[name])
    ]
    assert sorted(moved) == sorted(before) and runner.featurizer.model.weights.abs().sum() > 0
    assert "dev at step 3: " in (tmp_path / "log.log").read_text()


def run_script(out, tasks, environment, tmp_path):
    settings = {
        "PYTHON": sys.executable,
        "DEVICE": "cpu",
        "EXP": str(tmp_path / "exp"),
        "OMP_NUM_THREADS": "1",
    }
    command = ["bash", str(out / "run.sh"), *tasks]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | settings | environment
    )


@pytest.mark.slow
def test_the_script_trains_and_tests_keywords(exported, s3prl, tmp_path):
    """Through s3prl's own command line; recordings of any rate are read with what stands in for
    sox's effects."""
    shares = [
        int(hashlib.sha1(f"{i:08x}".encode()).hexdigest(), 16) % 2**27 / 2**27 for i in range(100)
    ]
    dev, train = (
        [i for i in range(100) if shares[i] < 0.1],
        [i for i in range(100) if shares[i] > 0.2][:12],
    )
    for i in dev + train:  # s3prl splits by the hash of the speaker's name
        tone(tmp_path / f"train/yes/{i:08x}_nohash_0.wav", i)
    for i in range(3):
        tone(tmp_path / f"test/{('yes', 'no', '_unknown_')[i]}/{i}.wav", i, 4_000, 8_000)
    tone(tmp_path / "train/_background_noise_/hum.wav", 1, 20_000)
    places = {
        "SPEECH_COMMANDS": str(tmp_path / "train"),
        "SPEECH_COMMANDS_TEST": str(tmp_path / "test"),
    }
    quick = f"{QUICK},,config.downstream_expert.datarc.batch_size=4"
    done = run_script(exported[0], ["ks"], places | {"OVERRIDE": quick}, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "list of 3 features and weighted sum them" in done.stderr
    assert (tmp_path / "exp/ks/states-2.ckpt").is_file()
    assert len((tmp_path / "exp/ks/test_predict.txt").read_text().splitlines()) == 3
    # the checkpoint was read again
    assert "test at step 0: " in (tmp_path / "exp/ks/log.log").read_text()


@pytest.mark.slow
def test_emotions_are_trained_and_tested_on_every_fold(exported, s3prl, tmp_path, monkeypatch):
    """The script's ten commands; the first fold's are run by s3prl's runner in this process, on
    IEMOCAP's lists.

    Recordings are read with what stands in for torchaudio.
    `test_the_script_trains_and_tests_keywords` starts real processes.
    """
    from s3prl.downstream.runner import Runner
    from s3prl.run_downstream import get_downstream_args

    labels = {"neu": 0, "hap": 1, "ang": 2, "sad": 3}
    for i in range(8):
        tone(tmp_path / f"Session{1 + i % 2}/{i}.wav", i)
    lists = tmp_path / "meta_data/Session1"
    lists.mkdir(parents=True)
    for name, session, numbers in (("train", 2, (1, 3, 5, 7)), ("test", 1, (0, 2, 4, 6))):
        items = [{"path": f"Session{session}/{i}.wav", "label": "sad"} for i in numbers]
        (lists / f"{name}_meta_data.json").write_text(
            json.dumps({"labels": labels, "meta_data": items})
        )
    for fold in range(1, 6):  # the script tests only where there is a head
        (tmp_path / f"exp/er-fold{fold}").mkdir(parents=True)
        (tmp_path / f"exp/er-fold{fold}/dev-best.ckpt").touch()
    writes = tmp_path / "python"
    writes.write_text(
        f"#!/bin/sh\nprintf '%s\\t' \"$@\" >> {tmp_path}/calls\necho >> {tmp_path}/calls\n"
    )
    writes.chmod(0o755)
    done = run_script(
        exported[0],
        ["er"],
        {"IEMOCAP": str(tmp_path), "OVERRIDE": QUICK, "PYTHON": str(writes)},
        tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # without -m and ours
    calls = [line.split("\t")[2:-1] for line in (tmp_path / "calls").read_text().splitlines()]
    modes = [call[call.index("-m") + 1] for call in calls]
    assert modes == ["train", "evaluate"] * 5 and all(
        call[0] == "s3prl.run_downstream" for call in calls
    )
    folds = [f"fold{fold}" for fold in range(1, 6)]
    assert [call[call.index("-p") + 1] for call in calls[::2]] == [
        str(tmp_path / f"exp/er-{fold}") for fold in folds
    ]
    assert [call[call.index("-e") + 1] for call in calls[1::2]] == [
        str(tmp_path / f"exp/er-{f}/dev-best.ckpt") for f in folds
    ]
    assert all(
        f"test_fold='{fold}'" in call[-1] for fold, call in zip(folds, calls[::2], strict=True)
    )
    for call, mode in zip(calls[:2], modes, strict=False):
        monkeypatch.setattr(sys, "argv", call)
        args, config, _ = get_downstream_args()
        # as run_downstream's main does; dev must improve for a checkpoint
        torch.manual_seed(args.seed)
        getattr(Runner(args, config), mode)()
    assert len((tmp_path / "exp/er-fold1/test_fold1_predict.txt").read_text().splitlines()) == 4


def test_the_script_says_what_it_misses(exported, tmp_path):
    for tasks, message in (
        (["ic"], "there is no folder FLUENT_COMMANDS="),
        (["st"], "there is no task st; choose from pr|"),
    ):
        done = run_script(exported[0], tasks, {"FLUENT_COMMANDS": ""}, tmp_path)
        assert done.returncode == 2 and message in done.stderr
    assert run_script(exported[0], [], {}, tmp_path).returncode == 2
    assert TASKS[0].variables == ["LIBRISPEECH", "S3PRL"]
