"""Our encoder inside s3prl's own tools: S3PRLUpstream, Featurizer, run_downstream."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import import_hub
from speechssl.encoders.s3prl_upstream import main, register
from speechssl.errors import InputError

pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
pytest.importorskip("tensorboardX", reason="s3prl's programs need tensorboardX, of the optional extra s3prl")

LENGTHS = (16_777, 9_999, 1_000, 250)  # the last is less than one receptive field


@pytest.fixture(scope="module")
def nn():
    register()
    from s3prl import nn

    return nn


def waves(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    return [torch.from_numpy((rng.standard_normal(n) * 0.1 + 0.02).astype(np.float32)) for n in lengths]


def through(upstream, wavs):
    with torch.no_grad():
        states, lengths = upstream(pad_sequence(wavs, batch_first=True), torch.tensor([len(w) for w in wavs]))
    return torch.stack(states), lengths[0]


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_s3prl_gets_what_our_encoder_and_its_own_give(hubert_folder, nn, norm):
    folder = hubert_folder(norm)
    wavs, encoder = waves(LENGTHS[:1]), load_encoder(folder)
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=str(folder)).eval()
    assert (upstream.num_layers, upstream.hidden_sizes, upstream.downsample_rates) == (3, [32] * 3, [320] * 3)
    states, lengths = through(upstream, wavs)
    ours = encoder.hidden_states(wavs[0].numpy())
    assert torch.equal(states[:, 0, : ours.shape[1]], ours) and lengths.tolist() == [53]
    theirs, their_lengths = through(nn.S3PRLUpstream("hf_hubert_custom", path_or_url=str(folder)).eval(), wavs)
    assert states.shape == theirs.shape and torch.equal(lengths, their_lengths)
    assert max(float((a - b).norm() / b.norm()) for a, b in zip(states, theirs, strict=True)) <= 1e-5


def test_the_weighted_sum_of_s3prl_is_that_of_our_layers_and_is_learnt(hubert_folder, nn):
    folder, wavs = hubert_folder("layer"), waves(LENGTHS[:2])
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=str(folder))
    featurizer = nn.Featurizer(upstream)
    states, lengths = upstream(pad_sequence(wavs, batch_first=True), torch.tensor([len(w) for w in wavs]))
    summed, _ = featurizer(states, lengths)
    ours = load_encoder(folder).hidden_states(wavs[0].numpy())
    torch.testing.assert_close(summed[0, : ours.shape[1]], ours.mean(0), atol=1e-6, rtol=1e-5)
    summed.square().mean().backward()
    assert featurizer.weights.grad.abs().sum() > 0


def test_an_utterance_does_not_depend_on_its_batch_mates(hubert_folder, nn):
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=str(hubert_folder("group"))).eval()
    together, lengths = through(upstream, waves())
    assert lengths.tolist() == [-(-n // 320) for n in LENGTHS]
    for i, wav in enumerate(waves()):
        alone, length = through(upstream, [wav])
        assert length == lengths[i] and torch.equal(together[:, i, : lengths[i]], alone[:, 0])


def test_frames_that_s3prl_counts_and_we_do_not_repeat_the_last(hubert_folder):
    upstream = import_hub().speechssl(str(hubert_folder("layer")))
    states = torch.stack(upstream(waves())["hidden_states"])
    assert states.shape == (3, 4, 53, 32)
    assert torch.equal(states[:, 0, 51], states[:, 0, 52]) and not torch.equal(states[:, 0, 50], states[:, 0, 51])
    assert not states[:, 1, 32:].any()  # padding of the batch


def test_run_downstream_trains_on_our_encoder(hubert_folder, tmp_path):
    (tmp_path / "task.yaml").write_text("""
runner: {total_steps: 2, gradient_clipping: 1, gradient_accumulate_steps: 1, log_step: 1, eval_step: 9, save_step: 2, max_keep: 1}
optimizer: {name: AdamW, lr: 1.0e-3}
downstream_expert: {datarc: {train_batch_size: 1, eval_batch_size: 1, num_workers: 0}, modelrc: {input_dim: 8}}
""")
    options = f"-m train -d example -c {tmp_path}/task.yaml -p {tmp_path}/exp --device cpu -u speechssl -k {hubert_folder('layer')}"
    command = [sys.executable, "-m", "speechssl.encoders.s3prl_upstream", "s3prl.run_downstream", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "list of 3 features and weighted sum them" in done.stderr
    assert (tmp_path / "exp/states-2.ckpt").is_file()


def test_wrong_use_is_one_sentence(nn):
    with pytest.raises(InputError, match="needs an encoder; give its folder or name as path_or_url"):
        nn.S3PRLUpstream("speechssl")
    with pytest.raises(InputError, match="give a program of s3prl"):
        main([])
