"""Tests of speech enhancement (SE) and source separation (SS): loss and estimates, which are
compared with those of s3prl's experts on the same files; measures; and spectra."""

import sys
import types
from collections import defaultdict
from importlib import import_module

import librosa
import numpy as np
import pytest
import soundfile
import torch

from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.superb.data import Batch
from speechssl.superb.tasks.enhancement import (
    SILENT,
    WORST_PESQ,
    Enhancement,
    Separation,
    Stft,
    pesq_wideband,
    si_sdr,
    stoi_percent,
)
from speechssl.timing import FrameGrid

from ...files import refused

GRID = FrameGrid(16_000, 320, 400)
LENGTHS = (9_000, 12_345, 6_400)


def make_voice(seed, samples):
    """Make harmonics of a random pitch, whose loudness changes every 0.1 s."""
    rng = np.random.default_rng(seed)
    pitch = rng.uniform(90, 300)
    loudness = rng.uniform(0.2, 1, samples // 1600 + 1).repeat(1600)[:samples]
    time = np.arange(samples) / 16_000
    harmonics = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 12))
    return (0.1 * loudness * harmonics).astype(np.float32)


def write_utterances(root, split, task):
    """Write mixtures and their sources: for `se` a voice and noise, for `ss` two voices."""
    utterances = []
    for i, samples in enumerate(LENGTHS):
        count = 2 if task == "ss" else 1
        sources = [make_voice(10 * i + k + 100 * len(split), samples) for k in range(count)]
        noise = 0.05 * np.random.default_rng(i).standard_normal(samples)
        mixture = sum(sources) + (0 if task == "ss" else noise)
        name = f"{split}{i}"
        source_files = tuple(f"{name}-s{k}.wav" for k in range(count))
        files = (f"{name}.wav", *source_files)
        for file, wave in zip(files, [mixture, *sources], strict=True):
            soundfile.write(root / file, np.clip(wave, -1, 1), 16_000)
        seconds = samples / 16_000
        utterances.append(Utterance(name, files[0], seconds, sources=source_files))
    return tuple(utterances)


def make_task(root, task="se", grid=GRID):
    splits = {split: write_utterances(root, split, task) for split in ("train", "dev", "test")}
    task_class = Enhancement if task == "se" else Separation
    return task_class(UtteranceSet(root, task, splits, "hash"), grid, hidden=6, layers=2)


def read(path):
    return soundfile.read(path, dtype="float32")[0]


def make_batch(task, split="train"):
    """Make a batch of a split, with random hidden states (B, 3, T, 5)."""
    utterances = task.data.splits[split]
    waves = tuple(read(task.data.path(u)) for u in utterances)
    lengths = torch.tensor([task.grid.count_frames(len(wave)) for wave in waves])
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(len(utterances), 3, int(lengths.max()), 5, generator=generator)
    for row, n in zip(states, lengths, strict=True):
        row[:, n:] = 0
    return Batch(utterances, states, lengths, waves)


def make_head(task):
    torch.manual_seed(1)
    head = task.build(states=3, width=5).eval()
    torch.nn.init.normal_(head.featurizer.weights)
    return head


# ---- s3prl's experts


def import_expert(folder, monkeypatch):
    """Import an expert module of s3prl, with stand-ins for h5py and asteroid, which read files and
    score estimates; neither is done here."""
    fields = {"asteroid.metrics": "get_metrics", "asteroid.losses": "PITLossWrapper"}
    for name in ("h5py", "asteroid", *fields):
        if name not in sys.modules:
            module = types.ModuleType(name)
            setattr(module, fields.get(name, "nothing"), None)
            monkeypatch.setitem(sys.modules, name, module)
    module = import_module(f"s3prl.downstream.{folder}.expert")
    for part in (module, import_module(f"s3prl.downstream.{folder}.loss")):
        monkeypatch.setattr(part, "device", torch.device("cpu"))
    return module


def make_expert(module, task, head, folder):
    """Make s3prl's expert with the weights of our head, on the files of our task, which are listed
    below `folder` as in Kaldi."""
    names = {"se": ["noisy", "clean"], "ss": ["mix_clean", "s1", "s2"]}[task.name]
    for split in ("train", "dev", "test"):
        for column, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            lines = []
            for u in task.data.splits[split]:
                files = [u.audio, *u.sources]
                lines.append(f"{u.id} {task.data.root / files[column]}\n")
            (folder / split / name / "wav.scp").write_text("".join(lines))
    stft = task.stft
    data = {"num_speakers": task.sources, "rate": 16_000, "src": names[:1], "tgt": names[1:]}
    data |= {"n_fft": stft.size, "win_length": stft.window, "hop_length": stft.hop}
    model = {"model": "SepRNN", "rnn": "LSTM", "rnn_layers": task.layers, "dropout": 0.1}
    model |= {"hidden_size": task.hidden, "non_linear": "sigmoid", "bidirectional": True}
    loss_type, mask_type = ("L1", "AM") if task.name == "se" else ("MSE", "NPSM")
    config = {
        "datarc": data | {"window": "hann", "center": True},
        "loaderrc": {f"{split}_dir": str(folder / split) for split in ("train", "dev", "test")},
        "modelrc": model | {"log": "log1p", "loss_type": loss_type, "mask_type": mask_type},
    }
    width = head.recurrent.input_size
    expert = module.DownstreamExpert(width, task.grid.hop, config, str(folder))
    weights = {}
    for name, weight in head.state_dict().items():
        weights[name.replace("recurrent.", "rnn.").replace("outputs.", "linear.")] = weight
    assert expert.model.load_state_dict(weights, strict=False).missing_keys == []
    return expert.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "hop"), [("se", "enhancement_stft2", 320), ("ss", "separation_stft2", 160)]
)
def test_loss_and_estimates_are_s3prls(s3prl, tmp_path, monkeypatch, name, folder, hop):
    """s3prl's estimates are silent after the last whole hop, which ours are not."""
    module = import_expert(folder, monkeypatch)
    task = make_task(tmp_path, name, FrameGrid(16_000, hop, 400))
    head = make_head(task)
    expert, batch = make_expert(module, task, head, tmp_path / "kaldi"), make_batch(task)
    features = head.featurizer(batch.states)
    features_of = {u.id: features[i, : batch.lengths[i]] for i, u in enumerate(batch.utterances)}
    items = [expert.train_dataset[i] for i in range(3)]

    def run_expert(mode, items):
        _, names, *others = expert.train_dataset.collate_fn(items)
        states = [features_of[n] for n in names]
        return expert(mode, states, names, *others, records=defaultdict(list), batch_id=1)

    loss = task.loss(head, batch).item()
    assert loss == pytest.approx(float(run_expert("train", items)), rel=1e-5)
    scored = []  # (mixture, references, estimates) of every call

    def note_and_score(mixture, references, estimates, **_):
        scored.append((mixture, references, estimates))
        names = ("si_sdr", "stoi", "pesq")
        return dict.fromkeys([*names, *(f"input_{name}" for name in names)], 0.0)

    monkeypatch.setattr(module, "get_metrics", note_and_score)
    predicted = task.predict(head, batch)
    for prediction, item in zip(predicted, items, strict=True):
        run_expert("test", [item])
        # separation is scored in both orders of the sources, first in ours
        mixture, references, estimates = scored[-1] if name == "se" else scored[-2]
        whole_hops = len(mixture[0]) // task.stft.hop * task.stft.hop  # samples
        assert references.shape == (task.sources, len(mixture[0]))
        assert np.allclose(prediction[0], mixture[0], atol=1e-6)
        assert np.allclose(prediction[1:, :whole_hops], estimates[:, :whole_hops], atol=1e-5)


def test_si_sdr_is_that_of_s3prls_loss(s3prl, monkeypatch):
    import_expert("separation_stft2", monkeypatch)
    loss = import_module("s3prl.downstream.separation_stft2.loss")
    clean, estimates = np.random.default_rng(0).standard_normal((2, 3, 2, 500))
    estimates += 0.3 * clean.sum(1, keepdims=True)
    negative_sdr = loss.PairwiseNegSDR("sisdr", zero_mean=False)  # (B, estimate, source)
    lengths = torch.tensor([500, 500, 500])
    expected = -negative_sdr(torch.tensor(estimates), torch.tensor(clean), lengths)
    for b, estimate, source in np.ndindex(3, 2, 2):
        value = si_sdr(clean[b, source], estimates[b, estimate])
        assert value == pytest.approx(float(expected[b, estimate, source]), abs=1e-4)


# ---- measures


@pytest.fixture
def enhanced(tmp_path):
    """Return the task SE and the predictions for its test split by id: mixture and estimate."""
    pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    pytest.importorskip("pystoi", reason="the optional extra superb is not installed")
    task = make_task(tmp_path)
    batch = make_batch(task, "test")
    predicted = task.predict(make_head(task), batch)
    return task, dict(zip([u.id for u in batch.utterances], predicted, strict=True))


def test_enhancement_is_measured_by_pesq_stoi_and_si_sdr(enhanced):
    task, predicted = enhanced
    pesqs, stois, improvements = [], [], []
    for u in task.data.splits["test"]:
        clean = read(task.data.root / u.sources[0])
        mixture, estimate = predicted[u.id]
        pesqs.append(pesq_wideband(clean, estimate))
        stois.append(stoi_percent(clean, estimate))
        improvements.append(si_sdr(clean, estimate) - si_sdr(clean, mixture))
    measures = task.evaluate("test", predicted, resamples=100).measures
    assert list(measures) == ["pesq", "stoi", "si_sdri"]
    expected = [np.mean(pesqs), np.mean(stois), np.mean(improvements)]
    assert [measure.value for measure in measures.values()] == pytest.approx(expected)
    for measure in measures.values():
        assert measure.low <= measure.value <= measure.high
    # without resamples PESQ alone
    dev_measures = task.evaluate("test", predicted, resamples=0).measures
    assert list(dev_measures) == ["pesq"]
    assert dev_measures["pesq"].value == measures["pesq"].value
    # a missing estimate has the worst value
    pesqs[1], stois[1], improvements[1] = WORST_PESQ, 0.0, SILENT
    del predicted["test1"]
    measures = task.evaluate("test", predicted, resamples=100).measures
    expected = [np.mean(pesqs), np.mean(stois), np.mean(improvements)]
    assert [measure.value for measure in measures.values()] == pytest.approx(expected)


def test_separation_is_measured_in_the_better_order_against_the_mixture(tmp_path):
    task = make_task(tmp_path, "ss")
    predicted = {}
    for u in task.data.splits["test"]:
        mixture = read(task.data.path(u))
        first, second = (read(task.data.root / path) for path in u.sources)
        noise = 0.01 * np.random.default_rng(0).standard_normal(len(mixture)).astype(np.float32)
        predicted[u.id] = np.stack([mixture, second + noise, first + noise])
    measure = task.evaluate("test", predicted, resamples=50).measures["si_sdri"]
    assert measure.value > 10
    assert measure.low <= measure.value <= measure.high


def test_other_numbers_of_sources_and_hops_are_refused(tmp_path):
    one_source, two_sources = (make_task(tmp_path, task).data for task in ("se", "ss"))
    refused(r"train\.jsonl, utterance train0, has 2 sources", Enhancement, two_sources, GRID)
    refused("has 1 sources", Separation, one_source, GRID)
    refused("hop", Enhancement, one_source, FrameGrid(16_000, hop=400, receptive=400))


# ---- spectra


@pytest.mark.slow
@pytest.mark.parametrize(
    "stft", [Stft(size=512, window=400, hop=160), Stft(size=1024, window=1024, hop=320)]
)
@pytest.mark.parametrize("samples", [1, 1601])
@pytest.mark.filterwarnings("ignore:n_fft")
def test_spectra_are_librosas_and_are_transformed_back(stft, samples):
    wave = torch.randn(2, samples, generator=torch.Generator().manual_seed(samples))
    spectrum = stft.transform(wave)
    sizes = {"n_fft": stft.size, "hop_length": stft.hop, "win_length": stft.window}
    expected = librosa.stft(wave.numpy(), pad_mode="constant", **sizes)
    assert spectrum.shape == (2, stft.count_frames(samples), stft.bins)
    assert np.allclose(spectrum.numpy(), expected.transpose(0, 2, 1), atol=1e-3)
    assert torch.allclose(stft.invert(spectrum, samples), wave, atol=1e-4)
