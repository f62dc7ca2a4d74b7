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
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.errors import MissingExtra
from speechssl.superb.data import Batch
from speechssl.superb.tasks.enhancement import (
    LIMIT,
    SILENT,
    WORST_PESQ,
    Enhancement,
    Separation,
    Stft,
    apply_masks,
    pesq_wideband,
    si_sdr,
    si_sdr_improvement,
    stoi_percent,
)
from speechssl.timing import FrameGrid

from ...files import refused
from ..heads import alone, learn

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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["se", "ss"])
@settings(max_examples=10)
@given(frames=st.sampled_from([None, 1, 200]), order=st.permutations(range(3)))
def test_no_padding_and_no_batch_mate_matters(tmp_path_factory, name, frames, order):
    root = tmp_path_factory.mktemp(name)
    task = made(root, name)
    head, batch = head_of(task), batch_of(task, frames=frames)
    together = task.predict(head, batch)
    for i in order:
        (own,) = task.predict(head, alone(batch, i))
        assert own.dtype == np.float32 and own.shape == (1 + task.sources, LENGTHS[i])
        assert np.allclose(together[i], own, atol=1e-5)
    losses = [task.loss(head, alone(batch, i)) for i in order]
    assert float(task.loss(head, batch)) == pytest.approx(
        float(torch.stack(losses).mean()), rel=1e-4
    )


def test_the_order_of_the_sources_is_free_in_separation(tmp_path):
    task = made(tmp_path, "ss")
    head, batch = head_of(task), batch_of(task)
    turned = tuple(
        Utterance(u.id, u.audio, u.seconds, sources=u.sources[::-1]) for u in batch.utterances
    )
    other = Batch(turned, batch.states, batch.lengths, batch.waves)
    assert float(task.loss(head, batch)) == pytest.approx(float(task.loss(head, other)), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["se", "ss"])
def test_it_learns(tmp_path, name):
    """From states that hold the spectrum of what is wanted, the mixture gets better."""
    task = made(tmp_path, name, dropout=0.0, hidden=24, layers=1)
    batch = batch_of(task, width=task.sources * task.stft.bins)
    for i, u in enumerate(batch.utterances):
        sources = torch.from_numpy(
            np.stack(
                [soundfile.read(task.data.root / path, dtype="float32")[0] for path in u.sources]
            )
        )
        spectra = task.stft.spectrum(sources).abs().log1p()[:, :: task.grid.hop // task.stft.hop]
        batch.states[i, :, : batch.lengths[i]] = torch.cat(list(spectra), 1)[: batch.lengths[i]]
    torch.manual_seed(0)
    head = task.build(3, batch.states.shape[-1])
    before = float(task.loss(head, batch))
    learn(task, head, batch, 60, 1e-2)
    assert float(task.loss(head, batch)) < before / 2
    found = dict(
        zip([u.id for u in batch.utterances], task.predict(head.eval(), batch), strict=True)
    )
    improvements = []
    for u in batch.utterances:
        clean = np.stack(
            [soundfile.read(task.data.root / path, dtype="float32")[0] for path in u.sources]
        )
        improvements.append(si_sdr_improvement(clean, found[u.id][1:], found[u.id][0]))
    assert np.mean(improvements) > 2


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
    assert [m.metric for m in (pesq, stoi, improvement)] == [
        "pesq",
        "stoi",
        "si_sdri",
    ] and pesq.n == 3
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
    assert look.metric == "pesq" and look.low == look.value == look.high == pesq.value
    unread = task.evaluate("test", {k: w for k, w in found.items() if k != "test1"}, 100).measures
    assert [m.n for m in unread] == [3, 3, 3]
    assert unread[0].value == pytest.approx(
        np.mean([WORST_PESQ] + [pesq_wideband(clean[k], found[k][1]) for k in ("test0", "test2")])
    )
    assert unread[1].value < stoi.value and unread[2].value < improvement.value


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
    assert (
        measure.metric == "si_sdri"
        and measure.value > 10
        and measure.low <= measure.value <= measure.high
    )
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
    refused(
        r"train\.jsonl, utterance train0, has 2 sources; name 1 clean "
        r"recording as",
        Enhancement,
        task.data,
        GRID,
    )
    one = made(tmp_path)
    refused(r"has 1 sources; name 2 clean recordings as", Separation, one.data, GRID)
    refused("hop", Enhancement, one.data, FrameGrid(16_000, 400, 400))
    refused("leave the task out", Separation, task.data, FrameGrid(16_000, 640, 640))
    assert Separation(task.data, FrameGrid(16_000, 640, 640), size=2048).stft.hop == 640


def test_published_sizes(tmp_path):
    task = made(tmp_path, hidden=256, layers=3)
    head = task.build(13, 768)
    assert (
        head.recurrent.num_layers == 3
        and head.recurrent.hidden_size == 256
        and head.recurrent.dropout == 0.1
    )
    assert (task.stft.size, task.stft.window, task.stft.hop) == (512, 400, 160) and head.outputs[
        0
    ].out_features == 257


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


def test_a_mask_of_ones_is_the_mixture_and_of_zeros_silence():
    mixture = torch.randn(2, 5, 9, dtype=torch.complex64)
    mixture[0, 0] = 0
    both = apply_masks(torch.stack([torch.ones(2, 5, 9), torch.zeros(2, 5, 9)], 1), mixture)
    assert torch.allclose(both[:, 0], mixture, atol=1e-6) and not both[:, 1].any()


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


def test_si_sdr_at_its_ends():
    clean = speechlike(0)
    assert si_sdr(clean, 2 * clean) == LIMIT
    estimate = clean + 0.1 * np.random.default_rng(1).standard_normal(len(clean))
    assert si_sdr(clean, -3e-4 * estimate) == pytest.approx(si_sdr(clean, estimate), abs=1e-6)
    assert si_sdr(clean, 0 * clean) == si_sdr(clean, np.full_like(clean, np.nan)) == SILENT
    assert si_sdr(np.array([1.0, 0]), np.array([0, 1.0])) == -LIMIT
    for reference in (0 * clean, clean[:-1]):
        with pytest.raises(ValueError, match="as long and not silent"):
            si_sdr(reference, clean)


@pytest.mark.parametrize("level", [1e-4, 0.01, 0.3])
def test_pesq_and_stoi_are_the_libraries(level):
    pesq = pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    stoi = pytest.importorskip("pystoi", reason="the optional extra superb is not installed").stoi
    clean = speechlike(5)
    estimate = noisy(clean, 6, level)
    assert pesq_wideband(clean, estimate) == pesq.pesq(16_000, clean, estimate, "wb")
    assert stoi_percent(clean, estimate) == 100 * stoi(clean, estimate, 16_000)


def test_more_noise_is_worse_and_silence_is_worst():
    pytest.importorskip("pesq", reason="the optional extra superb is not installed")
    pytest.importorskip("pystoi", reason="the optional extra superb is not installed")
    clean = speechlike(7)
    for measure in (pesq_wideband, stoi_percent):
        good, bad = (measure(clean, noisy(clean, 8, level)) for level in (0.001, 0.1))
        assert good > bad > measure(clean, 0 * clean) - 1e-9
        assert measure(clean, np.full_like(clean, np.inf)) == (
            WORST_PESQ if measure is pesq_wideband else 0
        )
    assert (
        pesq_wideband(clean, 0 * clean) == pesq_wideband(clean[:2000], clean[:2000]) == WORST_PESQ
    )


@pytest.mark.parametrize(
    ("package", "measure"), [("pesq", pesq_wideband), ("pystoi", stoi_percent)]
)
def test_without_the_library(tmp_path, monkeypatch, package, measure):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"needs the extra superb: pip install '"):
        measure(speechlike(0), speechlike(0))
    if package == "pesq":
        with pytest.raises(MissingExtra, match=r"needs the extra superb: pip install '"):
            made(tmp_path).evaluate("test", {"test0": np.ones((2, 9_000), np.float32)}, 0)
