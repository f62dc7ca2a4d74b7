"""The verbs on a GPU, beside the CPU where there is something to compare. Skipped where there is no
GPU;
SPEECHSSL_GPU_TESTS_ON=cpu runs the same calls on the CPU, to see that the tests themselves are
right.
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
from speechssl.encoders.hubert import TorchEngine, training_states
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.pretrain.data import Cropper
from speechssl.synth.minisqa import speak_pairs
from speechssl.units.codebook import Nearest, load_codebook
from speechssl.units.storage import load_units

from ..files import read_lines

DEVICE = os.environ.get("SPEECHSSL_GPU_TESTS_ON") or ("cuda" if torch.cuda.is_available() else "")
pytestmark = pytest.mark.skipif(
    not DEVICE, reason=("there is no GPU (SPEECHSSL_GPU_TESTS_ON=cpu runs these on the CPU)")
)
SHIPPED = "people-en"
TRAINING = "--precision bf16 --warmup-steps 2 --log-every 1 --save-every 100"
FP32 = "--precision fp32 --workers 2 -q"
CROPS = "--crops 4 --crop-seconds 2"
WINDOWS = "--batch 4 --window 320 --stride 300 --max-question 60"


def speechssl(*words):
    """A call in this process: every word may hold several arguments."""
    assert main([part for word in words for part in str(word).split()]) == 0


def losses(folder):
    """Of every step."""
    return [line["loss"] for line in read_lines(folder / "checkpoints/log.jsonl") if "loss" in line]


def falls(found):
    """Whether the mean of the last quarter is below that of the first, and all are finite."""
    quarter = max(len(found) // 4, 1)
    return np.isfinite(found).all() and np.mean(found[-quarter:]) < np.mean(found[:quarter])


def relative(found, expected):
    found, expected = found.double().cpu(), expected.double().cpu()
    return float((found - expected).norm() / expected.norm())


@pytest.fixture(scope="module")
def recordings():
    """Synthetic English of different lengths."""
    pairs = speak_pairs("en", "test", 3)
    return [spoken.samples.astype(np.float32) for pair in pairs for spoken in pair]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu") / "corpus"
    speechssl(
        f"prepare minisqa {folder} --passages 6 --dev-passages 1 --test-passages 1 "
        "--questions 3 --workers 1 --reference -q"
    )
    return folder


@pytest.fixture(scope="module")
def units(corpus):
    """Those of the training split, on the device."""
    folder = corpus.parent / "units"
    speechssl(
        f"units extract {corpus} {SHIPPED} {SHIPPED} {folder} --split train {FP32} "
        f"--device {DEVICE}"
    )
    return folder


@pytest.fixture(scope="module")
def models(corpus, units, text_encoder, tokenizer):
    """A folder of models that were trained on the device; what is not trained is what ships."""
    folder, text = corpus.parent / "models", corpus.parent / "text"
    for part in (text_encoder(), tokenizer):
        part.save_pretrained(text)
    trained = f"--steps 24 {TRAINING} -q"
    ctc, dual = f"--passages 6 --batch 4 {trained}", f"--start {SHIPPED}/dual {WINDOWS} {trained}"
    windows = "--window 64 --stride 48 --max-question 30 --batch 4"
    speechssl(f"train ctc {corpus} {SHIPPED} {folder}/ctc {ctc}")
    speechssl(f"train dual {corpus} {units} {folder}/dual {dual}")
    text_qa = f"--text-encoder {text} {windows} --steps 8 {TRAINING} -q"
    speechssl(f"train text-qa {corpus} {folder}/text-qa {text_qa}")
    return folder


def batches_of(name, precision):
    """The engine of a GPU on the device of the tests, also where that is the CPU."""
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
    cpu, gpu = load_encoder(name, "fp32", "cpu"), batches_of(name, "fp32")
    assert cpu.hash == gpu.hash
    for layer in (0, cpu.layers):
        for samples, features in zip(recordings, gpu.features_of(recordings, layer), strict=True):
            assert features.device.type == DEVICE
            assert relative(features, cpu.features(samples, layer)) < 1e-4
    long = np.concatenate(recordings * 4)[: 50 * 16_000]  # in pieces
    assert relative(gpu.features(long, cpu.layers), cpu.features(long, cpu.layers)) < 1e-4
    assert relative(gpu.hidden_states(recordings[0]), cpu.hidden_states(recordings[0])) < 1e-4


def test_no_recording_depends_on_its_batch_mates(recordings):
    encoder = batches_of(SHIPPED, "bf16")
    together = encoder.features_of(recordings, 5)
    for samples, features in zip(recordings, together, strict=True):
        assert torch.equal(encoder.features_of([samples], 5)[0], features)


def test_the_nearest_centroid_is_that_of_float64():
    rng = np.random.default_rng(0)
    frames, centroids = (rng.normal(size=(n, 64)).astype(np.float32) for n in (20_000, 300))
    found = Nearest(centroids, DEVICE)(torch.from_numpy(frames))
    x, c = frames.astype(np.float64), centroids.astype(np.float64)
    distances = np.square(x).sum(1)[:, None] - 2 * x @ c.T + np.square(c).sum(1)
    assert (found == distances.argmin(1)).all()


def test_extracted_units_are_those_of_the_cpu(corpus, units, tmp_path):
    options = f"--split train {FP32} --device cpu"
    speechssl(f"units extract {corpus} {SHIPPED} {SHIPPED} {tmp_path} {options}")
    one, other = load_units(units / "train"), load_units(tmp_path / "train")
    assert one.keys() == other.keys()
    assert min(np.mean(one[k].expand() == other[k].expand()) for k in one) > 0.99


@pytest.mark.parametrize("lengths", [None, (16_000, 9_000)])
@pytest.mark.parametrize("shape", ["layer", "group"])
def test_gradients_in_fp32_are_those_of_the_cpu(shape, lengths, hubert_folder):
    samples = torch.randn(2, 16_000, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(49).expand(2, -1) % 7 < 3

    def gradients(device):
        model = load_checkpoint(hubert_folder(shape)).model.to(device).requires_grad_(True)
        own = None if lengths is None else torch.tensor(lengths, device=device)
        features, layers = training_states(model, samples.to(device), mask.to(device), lengths=own)
        (layers[-1][:, :20].square().mean() + features[:, :20].square().mean()).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    found, expected = gradients(DEVICE), gradients("cpu")
    assert found.keys() == expected.keys()
    together = [
        torch.cat([g[name].flatten().cpu() for name in expected]) for g in (found, expected)
    ]
    assert relative(*together) < 1e-3
    for name, gradient in expected.items():
        if gradient.norm() > 1e-4 * together[1].norm():
            assert relative(found[name], gradient) < 1e-2


@pytest.fixture(scope="module")
def first(corpus):
    """A HuBERT of the first iteration."""
    out = corpus.parent / "hubert"
    speechssl(
        f"pretrain hubert {corpus} {out} --teacher mfcc --clusters 20 --steps 24 "
        f"--learning-rate 1e-3 {CROPS} {TRAINING} -q"
    )
    return out


def test_pretraining_lowers_its_loss(first):
    assert falls(losses(first))
    assert load_encoder(first, "fp32", "cpu").layers > 0


@pytest.mark.parametrize("start", [SHIPPED, "first"])
def test_pretraining_goes_on_with_distorted_speech(start, first, corpus, tmp_path):
    start = first if start == "first" else start
    more = f"--teacher {SHIPPED} --codebook {SHIPPED} --distort g+r --steps 16 --learning-rate 3e-4"
    speechssl(
        f"pretrain continue {corpus} {tmp_path / 'out'} --start {start} {more} {CROPS} "
        f"{TRAINING} -q"
    )
    assert falls(losses(tmp_path / "out"))


def test_spin_with_pseudo_labels_and_distortions(corpus, tmp_path):
    pytest.importorskip("parselmouth", reason="the optional extra voices is not installed")
    labels = f"--teacher {SHIPPED} --codebook {SHIPPED} --label-weight 5 --distort g --codes 32"
    call = (
        f"--start {SHIPPED} --trained-layers 2 {labels} --steps 16 --learning-rate 1e-3 "
        f"{CROPS} {TRAINING} -q"
    )
    speechssl(f"pretrain spin {corpus} {tmp_path / 'out'} {call}")
    assert falls(losses(tmp_path / "out"))
    assert load_codebook(tmp_path / "out/labels.safetensors").size == load_codebook(SHIPPED).size


def test_a_killed_training_goes_on(corpus, first, tmp_path, dies_at):
    """To the weights of one that was not killed, up to the order in which a GPU adds."""
    # whose process is the one that dies
    saved = "--precision fp32 --steps 6 --save-every 2 --log-every 1 --workers 0"

    def go(out):
        call = (
            f"pretrain continue {corpus} {out} --teacher {SHIPPED} --codebook {SHIPPED} "
            f"--start {first} {CROPS} {saved} -q"
        )
        return main(call.split())

    assert go(tmp_path / "whole") == 0
    with dies_at(Cropper, 4):
        assert go(tmp_path / "killed") == 130
        raise KeyboardInterrupt
    assert not (tmp_path / "killed/encoder/card.json").exists()
    assert any((tmp_path / "killed/checkpoints").glob("checkpoint-*"))
    assert go(tmp_path / "killed") == 0
    weights = "encoder/model.safetensors"
    one, other = (load_file(tmp_path / name / weights) for name in ("whole", "killed"))
    nonzero = [name for name in one if one[name].any()]
    assert max(relative(other[name], one[name]) for name in nonzero) < 1e-3
    assert np.allclose(losses(tmp_path / "whole"), losses(tmp_path / "killed"), rtol=1e-2)


def test_readers_and_recognisers_lower_their_losses(models):
    for name in ("ctc", "dual", "text-qa"):
        assert (models / name / "card.json").is_file()
    assert falls(losses(models / "ctc"))
    assert np.isfinite(losses(models / "dual")).all()
    assert np.isfinite(losses(models / "text-qa")).all()


@pytest.mark.parametrize("task", ["ks", "pr"])
def test_heads_of_superb_are_trained(task, tmp_path):
    prepare_minisuperb(MiniSuperb(out=tmp_path / "sets", tasks=(task,), share=0.02))
    call = "--preset small --steps 4 --learning-rates 1e-3 --workers 2"
    speechssl(
        f"superb run {tmp_path} --data {tmp_path / 'sets'} --encoders {SHIPPED} --tasks {task} "
        f"{call} --device {DEVICE} -q"
    )
    assert read_lines(tmp_path / "results.jsonl")


def test_systems_are_evaluated(corpus, models, tmp_path):
    systems = "--systems dual cascade-ctc speechbert --conditions clean --passages 1"
    speechssl(f"evaluate qa {corpus} {tmp_path} --models {SHIPPED} {systems} --workers 2 -q")
    found = {row["system"] for row in read_lines(tmp_path / "results.jsonl")}
    assert {"dual", "cascade-ctc", "speechbert"} <= found
