"""The verbs on a GPU, beside the CPU where there is something to compare. The tests are skipped where
there is no GPU; SPEECHSSL_GPU_TESTS_ON=cpu runs the same calls on the CPU, to see that the tests
themselves are right.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recipes.superb.minisuperb import MiniSuperb, prepare_minisuperb
from speechssl.cli import main
from speechssl.encoders import hubert
from speechssl.encoders.hubert import TorchEngine, compute_states
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.pretrain.data import Cropper
from speechssl.synth.minisqa import speak_pairs
from speechssl.units.codebook import Nearest, load_codebook
from speechssl.units.storage import load_units

from ..files import read_lines

DEVICE = os.environ.get("SPEECHSSL_GPU_TESTS_ON") or ("cuda" if torch.cuda.is_available() else "")
pytestmark = pytest.mark.skipif(
    not DEVICE, reason="there is no GPU (SPEECHSSL_GPU_TESTS_ON=cpu runs these on the CPU)"
)
SHIPPED = "people-en"
TRAINING = "--precision bf16 --warmup-steps 2 --log-every 1 --save-every 100"
FP32 = "--precision fp32 --workers 2 -q"
CROPS = "--crops 4 --crop-seconds 2"
WINDOWS = "--batch 4 --window 320 --stride 300 --max-question 60"


def run_verb(call):
    """Run a verb in this process."""
    assert main(call.split()) == 0


def read_losses(folder):
    """Read the loss of every step of a training."""
    return [line["loss"] for line in read_lines(folder / "checkpoints/log.jsonl") if "loss" in line]


def check_loss_falls(folder):
    """Assert that the losses of a training are finite, and that their mean in the last quarter is
    below that in the first."""
    losses = read_losses(folder)
    quarter = max(len(losses) // 4, 1)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-quarter:]) < np.mean(losses[:quarter])


def relative_error(tensor, expected):
    tensor, expected = tensor.double().cpu(), expected.double().cpu()
    return float((tensor - expected).norm() / expected.norm())


@pytest.fixture(scope="module")
def recordings():
    """Samples of synthetic English, of different lengths."""
    pairs = speak_pairs("en", "test", 3)
    return [spoken.samples.astype(np.float32) for pair in pairs for spoken in pair]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu") / "corpus"
    run_verb(
        f"prepare minisqa {folder} --passages 6 --dev-passages 1 --test-passages 1 "
        "--questions 3 --workers 1 --reference -q"
    )
    return folder


@pytest.fixture(scope="module")
def units(corpus):
    """The folder of the units of the training split, which are extracted on the device."""
    folder = corpus.parent / "units"
    run_verb(
        f"units extract {corpus} {SHIPPED} {SHIPPED} {folder} --split train {FP32} "
        f"--device {DEVICE}"
    )
    return folder


def load_batching(name, precision):
    """Load an encoder that computes batches, as on a GPU, also where the device is the CPU."""
    encoder = load_encoder(name, precision, DEVICE)
    if encoder.batches:
        return encoder
    engine = TorchEngine(load_checkpoint(name).model, precision, DEVICE)
    engine.backend = "elsewhere"
    return replace(encoder, engine=engine)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(hubert, "BATCH_SECONDS", 20.0)


@pytest.mark.parametrize("name", [SHIPPED, "layer", "group"])
def test_features_in_fp32_are_those_of_the_cpu(name, recordings, hubert_folder):
    name = hubert_folder(name) if name in ("layer", "group") else name
    cpu, gpu = load_encoder(name, "fp32", "cpu"), load_batching(name, "fp32")
    assert cpu.hash == gpu.hash
    for layer in (0, cpu.layers):
        for samples, features in zip(recordings, gpu.features_of(recordings, layer), strict=True):
            assert features.device.type == DEVICE
            assert relative_error(features, cpu.features(samples, layer)) < 1e-4
    long = np.concatenate(recordings * 4)[: 50 * 16_000]  # is encoded in pieces
    assert relative_error(gpu.features(long, cpu.layers), cpu.features(long, cpu.layers)) < 1e-4
    assert relative_error(gpu.hidden_states(recordings[0]), cpu.hidden_states(recordings[0])) < 1e-4


def test_no_recording_depends_on_its_batch_mates(recordings):
    encoder = load_batching(SHIPPED, "bf16")
    together = encoder.features_of(recordings, 5)
    for samples, features in zip(recordings, together, strict=True):
        assert torch.equal(encoder.features_of([samples], 5)[0], features)


def test_the_nearest_centroid_is_that_of_float64():
    rng = np.random.default_rng(0)
    frames, centroids = (rng.normal(size=(n, 64)).astype(np.float32) for n in (20_000, 300))
    nearest = Nearest(centroids, DEVICE)(torch.from_numpy(frames))
    x, c = frames.astype(np.float64), centroids.astype(np.float64)
    distances = np.square(x).sum(1)[:, None] - 2 * x @ c.T + np.square(c).sum(1)
    assert (nearest == distances.argmin(1)).all()


def test_extracted_units_are_those_of_the_cpu(corpus, units, tmp_path):
    options = f"--split train {FP32} --device cpu"
    run_verb(f"units extract {corpus} {SHIPPED} {SHIPPED} {tmp_path} {options}")
    by_device, by_cpu = load_units(units / "train"), load_units(tmp_path / "train")
    assert by_device.keys() == by_cpu.keys()
    for name, runs in by_cpu.items():
        assert np.mean(by_device[name].expand() == runs.expand()) > 0.99


@pytest.mark.parametrize("lengths", [None, (16_000, 9_000)])
@pytest.mark.parametrize("shape", ["layer", "group"])
def test_gradients_in_fp32_are_those_of_the_cpu(shape, lengths, hubert_folder):
    samples = torch.randn(2, 16_000, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(49).expand(2, -1) % 7 < 3

    def compute_gradients(device):
        model = load_checkpoint(hubert_folder(shape)).model.to(device).requires_grad_(True)
        on_device = None if lengths is None else torch.tensor(lengths, device=device)
        features, layers = compute_states(
            model, samples.to(device), mask.to(device), lengths=on_device
        )
        (layers[-1][:, :20].square().mean() + features[:, :20].square().mean()).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    gradients, expected = compute_gradients(DEVICE), compute_gradients("cpu")
    assert gradients.keys() == expected.keys()

    def flatten(by_name):
        return torch.cat([by_name[name].flatten().cpu() for name in expected])

    assert relative_error(flatten(gradients), flatten(expected)) < 1e-3
    for name, gradient in expected.items():
        if gradient.norm() > 1e-4 * flatten(expected).norm():
            assert relative_error(gradients[name], gradient) < 1e-2


@pytest.fixture(scope="module")
def first_iteration(corpus):
    """The folder of a HuBERT that was trained on clusters of MFCCs."""
    out = corpus.parent / "hubert"
    run_verb(
        f"pretrain hubert {corpus} {out} --teacher mfcc --clusters 20 --steps 24 "
        f"--learning-rate 1e-3 {CROPS} {TRAINING} -q"
    )
    return out


@pytest.mark.parametrize("start", [SHIPPED, "first iteration"])
def test_pretraining_lowers_its_loss_and_goes_on_with_distorted_speech(
    start, first_iteration, corpus, tmp_path
):
    check_loss_falls(first_iteration)
    start = first_iteration if start == "first iteration" else start
    more = f"--teacher {SHIPPED} --codebook {SHIPPED} --distort g+r --steps 16 --learning-rate 3e-4"
    run_verb(
        f"pretrain continue {corpus} {tmp_path / 'out'} --start {start} {more} {CROPS} "
        f"{TRAINING} -q"
    )
    check_loss_falls(tmp_path / "out")


def test_spin_with_pseudo_labels_and_distortions(corpus, tmp_path):
    pytest.importorskip("parselmouth", reason="the optional extra voices is not installed")
    labels = f"--teacher {SHIPPED} --codebook {SHIPPED} --label-weight 5 --distort g --codes 32"
    call = (
        f"--start {SHIPPED} --trained-layers 2 {labels} --steps 16 --learning-rate 1e-3 "
        f"{CROPS} {TRAINING} -q"
    )
    run_verb(f"pretrain spin {corpus} {tmp_path / 'out'} {call}")
    check_loss_falls(tmp_path / "out")
    assert load_codebook(tmp_path / "out/labels.safetensors").size == load_codebook(SHIPPED).size


def test_a_killed_training_goes_on(corpus, first_iteration, tmp_path, dies_at):
    """It goes on to the weights of one that was not killed, up to the order in which a GPU adds."""
    # without workers the process that makes batches is the one that is killed
    options = "--precision fp32 --steps 6 --save-every 2 --log-every 1 --workers 0"

    def train(out):
        call = (
            f"pretrain continue {corpus} {out} --teacher {SHIPPED} --codebook {SHIPPED} "
            f"--start {first_iteration} {CROPS} {options} -q"
        )
        return main(call.split())

    assert train(tmp_path / "whole") == 0
    with dies_at(Cropper, step=4):
        assert train(tmp_path / "killed") == 130
        raise KeyboardInterrupt  # which `dies_at` expects, and `main` has caught
    assert not (tmp_path / "killed/encoder/card.json").exists()
    assert any((tmp_path / "killed/checkpoints").glob("checkpoint-*"))
    assert train(tmp_path / "killed") == 0
    file = "encoder/model.safetensors"
    expected, weights = (load_file(tmp_path / name / file) for name in ("whole", "killed"))
    for name, weight in expected.items():
        assert not weight.any() or relative_error(weights[name], weight) < 1e-3, name
    losses, expected_losses = (read_losses(tmp_path / name) for name in ("killed", "whole"))
    assert np.allclose(losses, expected_losses, rtol=1e-2)


def test_readers_and_recognisers_are_trained(corpus, units, text_encoder, tokenizer, tmp_path):
    for part in (text_encoder(), tokenizer):
        part.save_pretrained(tmp_path / "text")
    steps = f"--steps 24 {TRAINING} -q"
    ctc, dual = f"--passages 6 --batch 4 {steps}", f"--start {SHIPPED}/dual {WINDOWS} {steps}"
    windows = "--window 64 --stride 48 --max-question 30 --batch 4"
    text_qa = f"--text-encoder {tmp_path / 'text'} {windows} --steps 8 {TRAINING} -q"
    run_verb(f"train ctc {corpus} {SHIPPED} {tmp_path}/ctc {ctc}")
    run_verb(f"train dual {corpus} {units} {tmp_path}/dual {dual}")
    run_verb(f"train text-qa {corpus} {tmp_path}/text-qa {text_qa}")
    check_loss_falls(tmp_path / "ctc")
    assert np.isfinite(read_losses(tmp_path / "dual")).all()
    assert np.isfinite(read_losses(tmp_path / "text-qa")).all()


@pytest.mark.parametrize("task", ["ks", "pr"])
def test_heads_of_superb_are_trained(task, tmp_path):
    prepare_minisuperb(MiniSuperb(out=tmp_path / "sets", tasks=(task,), share=0.02))
    call = "--preset small --steps 4 --learning-rates 1e-3 --workers 2"
    run_verb(
        f"superb run {tmp_path} --data {tmp_path / 'sets'} --encoders {SHIPPED} --tasks {task} "
        f"{call} --device {DEVICE} -q"
    )
    assert read_lines(tmp_path / "results.jsonl")


def test_systems_are_evaluated(corpus, tmp_path):
    systems = "--systems dual cascade-ctc speechbert --conditions clean --passages 1"
    run_verb(f"evaluate qa {corpus} {tmp_path} --models {SHIPPED} {systems} --workers 2 -q")
    evaluated = {row["system"] for row in read_lines(tmp_path / "results.jsonl")}
    assert {"dual", "cascade-ctc", "speechbert"} <= evaluated
