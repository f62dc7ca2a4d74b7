"""The masking head: s3prl's own model on odd shapes, frames brought together as there, padding, spectra and back."""

import librosa
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.superb.tasks.enhancement import Masker, MaskerShape, Stft, fitted, masked


def made(seed=0, **sizes):
    torch.manual_seed(seed)
    head = Masker(MaskerShape(**{"states": 3, "width": 7, "bins": 9, "sources": 2, "hidden": 5} | sizes)).eval()
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def weights_for_s3prl(head):
    return {name.replace("recurrent.", "rnn.").replace("outputs.", "linear."): w for name, w in head.state_dict().items()}


@pytest.mark.parametrize("task", ["enhancement_stft2", "separation_stft2"])
@pytest.mark.parametrize(("lengths", "width", "sources", "layers"), [([1], 1, 1, 1), ([9, 4, 1], 7, 2, 3), ([3, 3], 13, 3, 2)])
def test_it_is_s3prls(task, lengths, width, sources, layers):
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from importlib import import_module

    from torch.nn.utils.rnn import pack_sequence

    model = import_module(f"s3prl.downstream.{task}.model")
    head, lengths = made(width=width, sources=sources, layers=layers), torch.tensor(lengths)
    states = torch.randn(len(lengths), 3, int(lengths.max()), width)
    theirs = model.SepRNN(width, 9, num_spks=sources, num_layers=layers, hidden_size=5, non_linear="sigmoid").eval()
    weights = weights_for_s3prl(head)
    assert theirs.load_state_dict(weights, strict=False).missing_keys == []
    summed = head.featurizer(states)
    wanted = theirs(pack_sequence([x[:n] for x, n in zip(summed, lengths, strict=True)]))
    ours = head(states, lengths, lengths)
    for i, n in enumerate(lengths):
        for source in range(sources):
            assert torch.allclose(ours[i, source, :n], wanted[source][i, :n], atol=1e-6)


def test_frames_are_brought_together():
    features = torch.arange(1.0, 7).reshape(1, 6, 1)
    whole = torch.tensor([6])
    assert fitted(features, whole, torch.tensor([8]), 1).flatten().tolist() == [1, 2, 3, 4, 5, 6, 0, 0]
    assert fitted(features, whole, torch.tensor([4]), 1).flatten().tolist() == [1, 2, 3, 4]
    assert fitted(features, torch.tensor([2]), torch.tensor([5]), 2).flatten().tolist() == [1, 1, 2, 2, 0]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 22)), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 99))
def test_no_padding_and_no_batch_mate_matters(sizes, repeat, seed):
    head = made(seed)
    lengths, frames = (torch.tensor(x) for x in zip(*sizes, strict=True))
    states = torch.randn(len(sizes), 3, int(lengths.max()), 7)
    for i, n in enumerate(lengths):
        states[i, :, n:] = float("nan")
    together = head(states, lengths, frames, repeat)
    for i, (n, f) in enumerate(sizes):
        alone = head(states[i : i + 1, :, :n], lengths[i : i + 1], frames[i : i + 1], repeat)[0]
        assert torch.allclose(together[i, :, :f], alone, atol=1e-6)


@pytest.mark.parametrize("stft", [Stft(512, 400, 160), Stft(1024, 1024, 320)])
@pytest.mark.parametrize("samples", [1, 159, 800, 1601, 4999])
@pytest.mark.filterwarnings("ignore:n_fft")
def test_spectra_are_librosas_and_go_back(stft, samples):
    wave = torch.tensor(np.random.default_rng(samples).standard_normal((2, samples)), dtype=torch.float32)
    found = stft.spectrum(wave)
    theirs = librosa.stft(wave.numpy(), n_fft=stft.size, hop_length=stft.hop, win_length=stft.window, pad_mode="constant")
    assert found.shape == (2, stft.frames(samples), stft.bins)
    assert np.allclose(found.numpy(), theirs.transpose(0, 2, 1), atol=1e-3)
    assert torch.allclose(stft.wave(found, samples), wave, atol=1e-4)
    behind = torch.nn.functional.pad(wave, (0, 700))
    assert torch.allclose(stft.spectrum(behind)[:, : stft.frames(samples)], found, atol=1e-4)


def test_a_mask_of_ones_is_what_was_heard_and_of_zeros_silence():
    heard = torch.randn(2, 5, 9, dtype=torch.complex64)
    heard[0, 0] = 0
    both = masked(torch.stack([torch.ones(2, 5, 9), torch.zeros(2, 5, 9)], 1), heard)
    assert torch.allclose(both[:, 0], heard, atol=1e-6) and not both[:, 1].any()


@pytest.mark.parametrize("sizes", [(512, 600, 160), (512, 400, 161), (1024, 1024, 640), (512, 400, 0)])
def test_windows_that_cannot_be_undone(sizes):
    with pytest.raises(ValueError, match="a window of"):
        Stft(*sizes)
