"""An encoder handed to s3prl: the folder, what s3prl's upstreams and runner make of it, and every
way it can be wrong."""

import json
import os
import subprocess

import numpy as np
import pytest
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


@pytest.fixture(scope="module")
def exported(hubert_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("s3prl") / "out"
    return out, export_upstream(hubert_folder("layer"), out)


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
    assert os.access(out / "run.sh", os.X_OK)
    assert ours.hash in (out / "README.md").read_text()


def test_every_task_has_its_published_settings_and_a_function(exported):
    out, _ = exported
    assert [t.name for t in TASKS] == "pr asr ks qbe sid asv sd ic sf er se ss".split()
    subprocess.run(["bash", "-n", out / "run.sh"], check=True)
    for task in TASKS:
        config = yaml.safe_load((out / f"configs/{task.name}.yaml").read_text())
        assert config == task.config()
        assert f"\n{task.name}() {{\n" in (out / "run.sh").read_text()
        if task.settings is not None:
            assert task.settings.batch % task.accumulation == 0
            assert task.settings.steps % task.save == 0
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
    assert (out / "run.sh").read_text() == "# mine\n"
    assert (out / "configs/ic.yaml").is_file()
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
    assert card["upstreams"] == ["speechssl"]
    assert card["encoder"]["hop"] == 160


def test_the_verb(hubert_folder, tmp_path, capsys):
    assert main(["superb", "export", str(hubert_folder("layer")), str(tmp_path / "out")]) == 0
    assert "for s3prl's upstreams speechssl, hf_hubert_custom" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("fbank", "fbank"),
        ("nowhere", "found no speech encoder at nowhere"),
        (None, "already exists and is not an export of an encoder"),
    ],
)
def test_bad_input_is_one_sentence(encoder, message, hubert_folder, tmp_path):
    out = tmp_path / "out"
    if encoder is None:
        out.mkdir()
        (out / "notes.txt").write_text("mine")
    refused(message, export_upstream, encoder or hubert_folder("layer"), out)
    assert [p.name for p in tmp_path.rglob("*.*")] == ([] if encoder else ["notes.txt"])
