"""Tests of an encoder that is exported for s3prl: the folder, and its use by s3prl's upstreams."""

import subprocess

import numpy as np
import pytest
import torch
import yaml

from speechssl.encoders.export import measure_errors
from speechssl.encoders.load import load_encoder
from speechssl.superb.export import RUNNER_TASKS, export_encoder
from speechssl.superb.options import SuperbExport


@pytest.fixture(scope="module")
def exported(hubert_folder, tmp_path_factory):
    """Export an encoder. Returns the folder and its card."""
    out = tmp_path_factory.mktemp("s3prl") / "out"
    return out, export_encoder(SuperbExport(encoder=str(hubert_folder("layer")), out=out))


def test_the_encoder_is_the_same(exported, hubert_folder):
    out, card = exported
    assert load_encoder(out / "encoder").hash == load_encoder(hubert_folder("layer")).hash
    assert card["upstreams"] == ["speechssl", "hf_hubert_custom"]


def test_every_task_has_its_published_settings_and_a_function(exported):
    out, _ = exported
    assert [t.name for t in RUNNER_TASKS] == "pr asr ks qbe sid asv sd ic sf er se ss".split()
    subprocess.run(["bash", "-n", out / "run.sh"], check=True)
    for task in RUNNER_TASKS:
        assert f"\n{task.name}() {{\n" in (out / "run.sh").read_text()
        config = yaml.safe_load((out / f"configs/{task.name}.yaml").read_text())
        if task.settings is None:
            continue
        assert task.settings.batch % task.accumulation == 0
        assert task.settings.steps % task.save == 0
        sizes = {}
        for part in config["downstream_expert"].values():
            sizes |= part if isinstance(part, dict) else {}
        # s3prl's experts have different names for the batch size
        names = ("train_batch_size", "train_batchsize", "batch_size")
        batch = next(sizes[name] for name in names if name in sizes)
        assert batch * config["runner"]["gradient_accumulate_steps"] == task.settings.batch


@pytest.mark.slow
def test_both_upstreams_give_our_states(exported, s3prl):
    from s3prl.nn import S3PRLUpstream

    out, card = exported
    samples = 0.1 * np.random.default_rng(0).standard_normal(9_999).astype(np.float32)
    expected = load_encoder(out / "encoder").hidden_states(samples)
    wave = torch.from_numpy(samples)
    for name in card["upstreams"]:
        upstream = S3PRLUpstream(name, path_or_url=str(out / "encoder")).eval()
        with torch.no_grad():
            states, _ = upstream(wave[None], torch.tensor([len(wave)]))
        layers = [layer[0, : expected.shape[1]] for layer in states]
        assert max(measure_errors(layers, list(expected))) <= 1e-5
