"""SE and SS: s3prl's own experts on the same files, masks, measures; sets that will not do."""

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


def speech(seed, samples):
    rng = np.random.default_rng(seed)
    pitch = rng.uniform(90, 300)
    vowel = rng.uniform(0.2, 1, samples // 1600 + 1).repeat(1600)[:samples]
    time = np.arange(samples) / 16_000
    harmonics = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 12))
    return (0.1 * vowel * harmonics).astype(np.float32)


def utterances(root, split, task):
    """Recordings of 16-bit WAV, with their sources."""
    found = []
    for i, samples in enumerate(LENGTHS):
        count = 2 if task == "ss" else 1
        sources = [speech(10 * i + k + 100 * len(split), samples) for k in range(count)]
        noise = 0.05 * np.random.default_rng(i).standard_normal(samples)
        mixture = sum(sources) + (0 if task == "ss" else noise)
        names = [f"{split}{i}.wav", *(f"{split}{i}-s{k}.wav" for k in range(count))]
        for name, wave in zip(names, [mixture, *sources], strict=True):
            soundfile.write(root / name, np.clip(wave, -1, 1), 16_000)
        found.append(Utterance(f"{split}{i}", names[0], samples / 16_000, sources=tuple(names[1:])))
    return tuple(found)


def made(root, task="se", grid=GRID):
    splits = {split: utterances(root, split, task) for split in ("train", "dev", "test")}
    kind = Enhancement if task == "se" else Separation
    return kind(UtteranceSet(root, task, splits, "hash"), grid, hidden=6, layers=2)


def read(path):
    return soundfile.read(path, dtype="float32")[0]


def batch_of(task, split="train", width=5):
    """Random states, of the number of frames that the grid gives."""
    found = task.data.splits[split]
    waves = tuple(read(task.data.path(u)) for u in found)
    lengths = torch.tensor([task.grid.frames(len(w)) for w in waves])
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(len(found), 3, int(lengths.max()), width, generator=generator)
    real = (torch.arange(states.shape[2]) < lengths[:, None])[:, None, :, None]
    return Batch(found, states * real, lengths, waves)


def head_of(task, width=5):
    torch.manual_seed(1)
    head = task.build(3, width).eval()
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def s3prls_expert(folder, monkeypatch):
    """An expert module of s3prl, whose packages h5py and asteroid are stood in for: they read and
    score, which we do ourselves."""
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


def expert_of(module, task, head, folder):
    """Their expert with our weights, on the same files."""
    names = {"se": ["noisy", "clean"], "ss": ["mix_clean", "s1", "s2"]}[task.name]
    for split in ("train", "dev", "test"):
        for column, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            lines = []
            for u in task.data.splits[split]:
                lines.append(f"{u.id} {task.data.root / [u.audio, *u.sources][column]}\n")
            (folder / split / name / "wav.scp").write_text("".join(lines))
    stft = task.stft
    data = {"num_speakers": task.sources, "rate": 16_000, "src": names[:1], "tgt": names[1:]}
    data |= {"n_fft": stft.size, "win_length": stft.window, "hop_length": stft.hop}
    model = {"model": "SepRNN", "rnn": "LSTM", "rnn_layers": task.layers, "dropout": 0.1}
    model |= {"hidden_size": task.hidden, "non_linear": "sigmoid", "bidirectional": True}
    kinds = ("L1", "AM") if task.name == "se" else ("MSE", "NPSM")
    config = {
        "datarc": data | {"window": "hann", "center": True},
        "loaderrc": {f"{split}_dir": str(folder / split) for split in ("train", "dev", "test")},
        "modelrc": model | {"log": "log1p", "loss_type": kinds[0], "mask_type": kinds[1]},
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
def test_it_is_s3prls(s3prl, tmp_path, monkeypatch, name, folder, hop):
    """Loss of a batch, and the estimates one by one. Theirs are silent after the last whole hop,
    which ours are not."""
    module = s3prls_expert(folder, monkeypatch)
    task = made(tmp_path, name, FrameGrid(16_000, hop, 400))
    head = head_of(task)
    expert, batch = expert_of(module, task, head, tmp_path / "kaldi"), batch_of(task)
    features = head.featurizer(batch.states)
    summed = {u.id: features[i, : batch.lengths[i]] for i, u in enumerate(batch.utterances)}
    items = [expert.train_dataset[i] for i in range(3)]

    def theirs(mode, chosen):
        _, names, *others = expert.train_dataset.collate_fn(chosen)
        states = [summed[n] for n in names]
        return expert(mode, states, names, *others, records=defaultdict(list), batch_id=1)

    assert task.loss(head, batch).item() == pytest.approx(float(theirs("train", items)), rel=1e-5)
    measured = []

    def metrics(mixture, references, estimates, **_):
        measured.append((mixture, references, estimates))
        names = ("si_sdr", "stoi", "pesq")
        return dict.fromkeys([*names, *(f"input_{name}" for name in names)], 0.0)

    monkeypatch.setattr(module, "get_metrics", metrics)
    ours = task.predict(head, batch)
    for i, item in enumerate(items):
        theirs("test", [item])
        # the orders of two
        mixture, references, estimates = measured[-1] if name == "se" else measured[-2]
        whole = len(mixture[0]) // task.stft.hop * task.stft.hop
        assert np.allclose(ours[i][0], mixture[0], atol=1e-6)
        assert np.allclose(ours[i][1:, :whole], estimates[:, :whole], atol=1e-5)
        assert references.shape == (task.sources, len(mixture[0]))


def test_si_sdr_is_that_of_s3prls_loss(s3prl, monkeypatch):
    s3prls_expert("separation_stft2", monkeypatch)
    loss = import_module("s3prl.downstream.separation_stft2.loss")
    clean, found = np.random.default_rng(0).standard_normal((2, 3, 2, 500))
    found += 0.3 * clean.sum(1, keepdims=True)
    pairs = loss.PairwiseNegSDR("sisdr", zero_mean=False)  # (B, estimate, source)
    theirs = -pairs(torch.tensor(found), torch.tensor(clean), torch.tensor([500, 500, 500]))
    ours = [[[si_sdr(c, e) for c in clean[b]] for e in found[b]] for b in range(3)]
    assert np.allclose(theirs, ours, atol=1e-4)


def test_enhancement_is_evaluated(tmp_path):
    pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    pytest.importorskip("pystoi", reason="the optional extra superb is not installed")
    task = made(tmp_path)
    batch = batch_of(task, "test")
    names = [u.id for u in batch.utterances]
    found = dict(zip(names, task.predict(head_of(task), batch), strict=True))
    clean = {u.id: read(task.data.root / u.sources[0]) for u in batch.utterances}
    pesqs = {k: pesq_wideband(clean[k], found[k][1]) for k in names}
    gains = [si_sdr(clean[k], found[k][1]) - si_sdr(clean[k], found[k][0]) for k in names]
    measures = task.evaluate("test", found, 100).measures
    assert [m.metric for m in measures] == ["pesq", "stoi", "si_sdri"]
    stois = [stoi_percent(clean[k], found[k][1]) for k in names]
    wanted = [np.mean(list(pesqs.values())), np.mean(stois), np.mean(gains)]
    assert [m.value for m in measures] == pytest.approx(wanted)
    assert all(m.low <= m.value <= m.high for m in measures)
    (look,) = task.evaluate("test", found, 0).measures
    assert look.low == look.value == look.high == measures[0].value
    del found["test1"]
    unread = task.evaluate("test", found, 100).measures
    assert [m.n for m in unread] == [3, 3, 3]
    assert unread[0].value == pytest.approx(np.mean([WORST_PESQ, pesqs["test0"], pesqs["test2"]]))


def test_separation_is_evaluated_in_the_better_order_against_the_mixture(tmp_path):
    task = made(tmp_path, "ss")
    found = {}
    for u in task.data.splits["test"]:
        mixture = read(task.data.path(u))
        first, second = (read(task.data.root / path) for path in u.sources)
        noise = 0.01 * np.random.default_rng(0).standard_normal(len(mixture)).astype(np.float32)
        found[u.id] = np.stack([mixture, second + noise, first + noise])
    (measure,) = task.evaluate("test", found, 50).measures
    assert measure.metric == "si_sdri"
    assert measure.value > 10
    assert measure.low <= measure.value <= measure.high
    alone = {k: task.evaluate("test", {k: w}, 0).measures[0].value for k, w in found.items()}
    # each with two that are missing
    assert 3 * measure.value == pytest.approx(3 * sum(alone.values()) - 6 * SILENT)


def test_bad_sets_and_grids(tmp_path):
    task = made(tmp_path, "ss")
    refused(r"train\.jsonl, utterance train0, has 2 sources; name 1", Enhancement, task.data, GRID)
    one = made(tmp_path)
    refused(r"has 1 sources; name 2", Separation, one.data, GRID)
    refused("hop", Enhancement, one.data, FrameGrid(16_000, 400, 400))


@pytest.mark.slow
@pytest.mark.parametrize("stft", [Stft(512, 400, 160), Stft(1024, 1024, 320)])
@pytest.mark.parametrize("samples", [1, 1601])
@pytest.mark.filterwarnings("ignore:n_fft")
def test_spectra_are_librosas_and_go_back(stft, samples):
    rng = np.random.default_rng(samples)
    wave = torch.tensor(rng.standard_normal((2, samples)), dtype=torch.float32)
    found = stft.spectrum(wave)
    sizes = {"n_fft": stft.size, "hop_length": stft.hop, "win_length": stft.window}
    theirs = librosa.stft(wave.numpy(), pad_mode="constant", **sizes)
    assert found.shape == (2, stft.frames(samples), stft.bins)
    assert np.allclose(found.numpy(), theirs.transpose(0, 2, 1), atol=1e-3)
    assert torch.allclose(stft.wave(found, samples), wave, atol=1e-4)
    behind = torch.nn.functional.pad(wave, (0, 700))
    assert torch.allclose(stft.spectrum(behind)[:, : stft.frames(samples)], found, atol=1e-4)
