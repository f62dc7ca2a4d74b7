"""SE and SS: s3prl's own experts on the same files, learning, masks, measures; sets that will not
do."""

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
SMALL = {"hidden": 6, "layers": 2}


def speech(seed, samples):
    rng = np.random.default_rng(seed)
    pitch, vowel = (
        rng.uniform(90, 300),
        rng.uniform(0.2, 1, samples // 1600 + 1).repeat(1600)[:samples],
    )
    time = np.arange(samples) / 16_000
    return (
        0.2 * vowel * sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 12)) / 2
    ).astype(np.float32)


def utterances(root, split, task, lengths=LENGTHS):
    """Recordings of 16-bit WAV, with their sources."""
    found = []
    for i, samples in enumerate(lengths):
        sources = [
            speech(10 * i + k + 100 * len(split), samples) for k in range(2 if task == "ss" else 1)
        ]
        mixture = sum(sources) + (
            0 if task == "ss" else 0.05 * np.random.default_rng(i).standard_normal(samples)
        )
        names = [f"{split}{i}.wav", *(f"{split}{i}-s{k}.wav" for k in range(len(sources)))]
        for name, samples_of in zip(names, [mixture, *sources], strict=True):
            soundfile.write(root / name, np.clip(samples_of, -1, 1), 16_000)
        found.append(Utterance(f"{split}{i}", names[0], samples / 16_000, sources=tuple(names[1:])))
    return tuple(found)


def made(root, task="se", grid=GRID, **sizes):
    data = UtteranceSet(
        root, task, {s: utterances(root, s, task) for s in ("train", "dev", "test")}, "hash"
    )
    return (Enhancement if task == "se" else Separation)(data, grid, **SMALL | sizes)


def batch_of(task, split="train", width=5, seed=0, frames=None):
    """Random states, of the number of frames that the grid gives or another."""
    found = task.data.splits[split]
    waves = tuple(soundfile.read(task.data.path(u), dtype="float32")[0] for u in found)
    lengths = torch.tensor([task.grid.frames(len(w)) if frames is None else frames for w in waves])
    states = torch.randn(
        len(found), 3, int(lengths.max()), width, generator=torch.Generator().manual_seed(seed)
    )
    return Batch(
        found,
        states * (torch.arange(states.shape[2]) < lengths[:, None])[:, None, :, None],
        lengths,
        waves,
    )


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
            lines = [
                f"{u.id} {task.data.root / [u.audio, *u.sources][column]}\n"
                for u in task.data.splits[split]
            ]
            (folder / split / name / "wav.scp").write_text("".join(lines))
    data = {
        "num_speakers": task.sources,
        "rate": 16_000,
        "src": names[:1],
        "tgt": names[1:],
        "n_fft": task.stft.size,
    }
    data |= {
        "win_length": task.stft.window,
        "hop_length": task.stft.hop,
        "window": "hann",
        "center": True,
    }
    model = {
        "model": "SepRNN",
        "rnn": "LSTM",
        "rnn_layers": task.layers,
        "hidden_size": task.hidden,
        "dropout": 0.1,
    }
    model |= {"non_linear": "sigmoid", "bidirectional": True, "log": "log1p"}
    model |= {
        "se": {"loss_type": "L1", "mask_type": "AM"},
        "ss": {"loss_type": "MSE", "mask_type": "NPSM"},
    }[task.name]
    loader = {f"{split}_dir": str(folder / split) for split in ("train", "dev", "test")}
    expert = module.DownstreamExpert(
        head.recurrent.input_size,
        task.grid.hop,
        {"datarc": data, "loaderrc": loader, "modelrc": model},
        str(folder),
    )
    weights = {
        name.replace("recurrent.", "rnn.").replace("outputs.", "linear."): w
        for name, w in head.state_dict().items()
    }
    assert expert.model.load_state_dict(weights, strict=False).missing_keys == []
    return expert.eval()


@pytest.mark.slow
@pytest.mark.parametrize("hop", [320, 160])
@pytest.mark.parametrize(
    ("name", "folder"), [("se", "enhancement_stft2"), ("ss", "separation_stft2")]
)
def test_it_is_s3prls(s3prl, tmp_path, monkeypatch, name, folder, hop):
    """Loss of a batch, and the estimates one by one. Theirs are silent after the last whole hop,
    which ours are not."""
    module = s3prls_expert(folder, monkeypatch)
    task = made(tmp_path, name, FrameGrid(16_000, hop, 400))
    head = head_of(task)
    expert, batch = expert_of(module, task, head, tmp_path / "kaldi"), batch_of(task)
    summed = {
        u.id: head.featurizer(batch.states)[i, :n]
        for i, (u, n) in enumerate(zip(batch.utterances, batch.lengths, strict=True))
    }
    items = [expert.train_dataset[i] for i in range(3)]

    def theirs(mode, chosen):
        _, names, *others = expert.train_dataset.collate_fn(chosen)
        return expert(
            mode, [summed[n] for n in names], names, *others, records=defaultdict(list), batch_id=1
        )

    assert task.loss(head, batch).item() == pytest.approx(float(theirs("train", items)), rel=1e-5)
    measured = []

    def metrics(mixture, references, estimates, **_):
        measured.append((mixture, references, estimates))
        return {
            key: 0.0 for metric in ("si_sdr", "stoi", "pesq") for key in (metric, f"input_{metric}")
        }

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
    assert np.allclose(
        theirs, [[[si_sdr(c, e) for c in clean[b]] for e in found[b]] for b in range(3)], atol=1e-4
    )


def test_the_order_of_the_sources_is_free_in_separation(tmp_path):
    task = made(tmp_path, "ss")
    head, batch = head_of(task), batch_of(task)
    turned = tuple(
        Utterance(u.id, u.audio, u.seconds, sources=u.sources[::-1]) for u in batch.utterances
    )
    other = Batch(turned, batch.states, batch.lengths, batch.waves)
    assert float(task.loss(head, batch)) == pytest.approx(float(task.loss(head, other)), rel=1e-6)


def test_enhancement_is_evaluated(tmp_path):
    pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    pytest.importorskip("pystoi", reason="the optional extra superb is not installed")
    task = made(tmp_path)
    batch = batch_of(task, "test")
    found = dict(
        zip([u.id for u in batch.utterances], task.predict(head_of(task), batch), strict=True)
    )
    clean = {
        u.id: soundfile.read(task.data.root / u.sources[0], dtype="float32")[0]
        for u in batch.utterances
    }
    pesq, stoi, improvement = task.evaluate("test", found, 100).measures
    assert [m.metric for m in (pesq, stoi, improvement)] == ["pesq", "stoi", "si_sdri"]
    assert pesq.n == 3
    assert pesq.value == pytest.approx(
        np.mean([pesq_wideband(clean[k], found[k][1]) for k in found])
    )
    assert stoi.value == pytest.approx(
        np.mean([stoi_percent(clean[k], found[k][1]) for k in found])
    )
    assert improvement.value == pytest.approx(
        np.mean([si_sdr(clean[k], w[1]) - si_sdr(clean[k], w[0]) for k, w in found.items()])
    )
    assert all(m.low <= m.value <= m.high for m in (pesq, stoi, improvement))
    (look,) = task.evaluate("test", found, 0).measures
    assert look.metric == "pesq"
    assert look.low == look.value == look.high == pesq.value
    unread = task.evaluate("test", {k: w for k, w in found.items() if k != "test1"}, 100).measures
    assert [m.n for m in unread] == [3, 3, 3]
    assert unread[0].value == pytest.approx(
        np.mean([WORST_PESQ] + [pesq_wideband(clean[k], found[k][1]) for k in ("test0", "test2")])
    )
    assert unread[1].value < stoi.value
    assert unread[2].value < improvement.value


def test_separation_is_evaluated_in_the_better_order_against_the_mixture(tmp_path):
    task = made(tmp_path, "ss")
    found = {}
    for u in task.data.splits["test"]:
        mixture = soundfile.read(task.data.path(u), dtype="float32")[0]
        first, second = (
            soundfile.read(task.data.root / path, dtype="float32")[0] for path in u.sources
        )
        noise = 0.01 * np.random.default_rng(0).standard_normal(len(mixture)).astype(np.float32)
        found[u.id] = np.stack([mixture, second + noise, first + noise])
    (measure,) = task.evaluate("test", found, 50).measures
    assert measure.metric == "si_sdri"
    assert measure.value > 10
    assert measure.low <= measure.value <= measure.high
    louder = {
        k: np.concatenate([w[:1] + np.random.default_rng(1).standard_normal(w.shape[1]), w[1:]])
        for k, w in found.items()
    }
    # a noisier mixture leaves more to be won
    assert task.evaluate("test", louder, 0).measures[0].value > measure.value
    del found["test2"]
    assert task.evaluate("test", found, 0).measures[0].value == pytest.approx(
        sum(task.evaluate("test", {k: w}, 0).measures[0].value for k, w in found.items()) - SILENT
    )
    longer = {k: np.pad(w, ((0, 0), (0, 500))) for k, w in found.items()}
    shorter = {k: w[:, :-500] for k, w in found.items()}  # a codec may give either
    for other in (longer, shorter):
        assert task.evaluate("test", other, 0).measures[0].value == pytest.approx(
            task.evaluate("test", found, 0).measures[0].value, abs=1
        )


def test_bad_sets_and_grids(tmp_path):
    task = made(tmp_path, "ss")
    refused(r"train\.jsonl, utterance train0, has 2 sources; name 1", Enhancement, task.data, GRID)
    one = made(tmp_path)
    refused(r"has 1 sources; name 2", Separation, one.data, GRID)
    refused("hop", Enhancement, one.data, FrameGrid(16_000, 400, 400))


@pytest.mark.slow
@pytest.mark.parametrize("stft", [Stft(512, 400, 160), Stft(1024, 1024, 320)])
@pytest.mark.parametrize("samples", [1, 159, 1601, 4999])
@pytest.mark.filterwarnings("ignore:n_fft")
def test_spectra_are_librosas_and_go_back(stft, samples):
    wave = torch.tensor(
        np.random.default_rng(samples).standard_normal((2, samples)), dtype=torch.float32
    )
    found = stft.spectrum(wave)
    theirs = librosa.stft(
        wave.numpy(),
        n_fft=stft.size,
        hop_length=stft.hop,
        win_length=stft.window,
        pad_mode="constant",
    )
    assert found.shape == (2, stft.frames(samples), stft.bins)
    assert np.allclose(found.numpy(), theirs.transpose(0, 2, 1), atol=1e-3)
    assert torch.allclose(stft.wave(found, samples), wave, atol=1e-4)
    behind = torch.nn.functional.pad(wave, (0, 700))
    assert torch.allclose(stft.spectrum(behind)[:, : stft.frames(samples)], found, atol=1e-4)


def speechlike(seed, seconds=2.0):
    """Noise in syllables."""
    rng = np.random.default_rng(seed)
    count = int(16_000 * seconds)
    envelope = np.repeat(rng.random(count // 1600 + 1) ** 2, 1600)[:count]
    return (0.2 * envelope * rng.standard_normal(count)).astype(np.float32)


def noisy(clean, seed, level):
    return (clean + level * np.random.default_rng(seed).standard_normal(len(clean))).astype(
        np.float32
    )


@pytest.mark.parametrize("level", [1e-4, 0.01, 0.3])
def test_pesq_and_stoi_are_the_libraries(level):
    pesq = pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    stoi = pytest.importorskip("pystoi", reason="the optional extra superb is not installed").stoi
    clean = speechlike(5)
    estimate = noisy(clean, 6, level)
    assert pesq_wideband(clean, estimate) == pesq.pesq(16_000, clean, estimate, "wb")
    assert stoi_percent(clean, estimate) == 100 * stoi(clean, estimate, 16_000)
