"""CTC: the head, the recogniser and its file, decoding and alignment."""

import math

import numpy as np
import pytest
import torch
import torchaudio
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from speechssl.cascade.model import (
    CtcHead,
    CtcRecogniser,
    CtcVocabulary,
    HeadShape,
    align_spans,
    greedy_spans,
    run_lstm,
)
from speechssl.timing import FrameGrid

from ..files import refused

GRID = FrameGrid(16_000, 320, 400)
ENGLISH = CtcVocabulary.english()


def head(states=1, lstm_layers=1, symbols=29, width=8):
    torch.manual_seed(0)
    return CtcHead(
        HeadShape(width, symbols, states, projection=16, lstm_width=16, lstm_layers=lstm_layers)
    )


@pytest.mark.parametrize(("states", "lstm_layers"), [(1, 0), (3, 2)])
def test_padding_never_matters(states, lstm_layers):
    model = head(states, lstm_layers).eval()
    lengths = torch.tensor([5, 9, 1])
    features = torch.randn(3, states, 9, 8)
    garbage = features.clone()
    for i, n in enumerate(lengths):
        garbage[i, :, n:] = math.nan
    together = model(garbage, lengths)
    for i, n in enumerate(lengths):
        alone = model(features[i : i + 1, :, :n], lengths[i : i + 1])
        torch.testing.assert_close(together[i : i + 1, :n], alone, atol=1e-5, rtol=1e-5)
    padded = torch.nn.functional.pad(features, (0, 0, 0, 4), value=99.0)
    one, other = (model.loss(x, lengths, [[3, 4], [3, 3, 5], [7]]) for x in (features, padded))
    torch.testing.assert_close(one["loss"], other["loss"])


def test_loss_is_by_symbol_and_counts_what_does_not_fit():
    model = head()
    features, lengths = torch.randn(2, 4, 8), torch.tensor([4, 4])
    log_probs = model(features, lengths).transpose(0, 1)

    def by_hand(i, target):
        targets = torch.tensor([target]), (4,), (len(target),)
        ctc_loss = torch.nn.functional.ctc_loss
        return ctc_loss(log_probs[:, i : i + 1], *targets, reduction="sum") / len(target)

    fits = model.loss(features, lengths, [[3, 4], [5]])
    torch.testing.assert_close(fits["loss"], (by_hand(0, [3, 4]) + by_hand(1, [5])) / 2)
    assert fits["too_long"] == 0
    over = model.loss(features, lengths, [[3, 3, 3], [5]])  # three equal symbols need five frames
    assert over["too_long"] == 0.5
    torch.testing.assert_close(over["loss"], by_hand(1, [5]) / 2)
    assert model.loss(features, lengths, [[], [5]])["loss"].isfinite()


# -- recogniser


class FakeEncoder:
    """Hidden states that say what the samples say: sample value k / 100 in a frame is symbol k."""

    grid, layers, width, hash = GRID, 2, 29, "0123456789abcdef"

    def hidden_states(self, samples):
        centres = samples[200 :: self.grid.hop][: self.grid.frames(len(samples))]
        states = torch.nn.functional.one_hot(
            torch.from_numpy(centres * 100).round().long(), 29
        ).float()
        return torch.stack([torch.zeros_like(states), states, states])

    def features(self, samples, layer):
        return self.hidden_states(samples)[layer]


def transparent_head(states):
    """A linear head that copies its input."""
    model = CtcHead(HeadShape(29, 29, states, projection=29, lstm_layers=0))
    with torch.no_grad():
        for layer in (model.projection, model.output):
            layer.weight.copy_(10 * torch.eye(29))
            layer.bias.zero_()
    return model


def spoken(path):
    symbols = [0 if c == "_" else ENGLISH.symbols.index(c) for c in path]
    return np.pad(np.repeat(np.array(symbols, np.float32) / 100, 320), (40, 40), mode="edge")


@pytest.fixture(params=[1, 3])
def recogniser(request):
    layer = 2 if request.param == 1 else None
    return CtcRecogniser(FakeEncoder(), transparent_head(request.param), ENGLISH, "toy", layer)


def test_recognition_gives_text_and_times(recogniser):
    transcript = recogniser.transcribe(spoken("__hhi_|_mme_"))
    assert transcript.text == "hi me"
    # "me" begins with "|"
    assert [(w.start, w.end) for w in transcript.words] == [(0.0425, 0.1025), (0.1225, 0.2225)]


def test_the_greedy_path_is_the_alignment_of_its_own_text():
    drawn = torch.randn(300, 29, generator=torch.Generator().manual_seed(0))
    log_probs = drawn.mul(3).log_softmax(-1)
    scores, path = log_probs.max(-1)

    def listed(spans):
        return [(s.token, s.start, s.end, s.score) for s in spans]

    spans = greedy_spans(log_probs)
    assert listed(align_spans(log_probs, [span.token for span in spans])) == listed(spans)
    assert listed(torchaudio.functional.merge_tokens(path, scores, 0)) == listed(spans)


def test_saved_and_loaded_it_says_the_same_and_another_encoder_is_refused(recogniser, tmp_path):
    recogniser.save(tmp_path)
    again = CtcRecogniser.load(tmp_path, FakeEncoder())
    assert again.transcribe(spoken("__hhi_|_mme_")) == recogniser.transcribe(spoken("__hhi_|_mme_"))
    for name in ("name", "layer", "vocabulary"):
        assert getattr(again, name) == getattr(recogniser, name)
    other = FakeEncoder()
    other.hash = "f" * 16
    refused("was made with the encoder 0123456789abcdef", CtcRecogniser.load, tmp_path, other)


def test_the_lstm_on_a_padded_batch_is_torchs_on_a_packed_one():
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
    lengths = torch.tensor([5, 9, 1])
    padded = torch.randn(len(lengths), 9, 6, requires_grad=True)
    real = (torch.arange(9) < lengths[:, None])[..., None]
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    theirs = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=9)[0]
    ours = run_lstm(lstm, padded, lengths)
    assert torch.allclose(ours * real, theirs, atol=1e-6)
    wanted = torch.autograd.grad(theirs.square().sum(), [padded, *lstm.parameters()])
    found = torch.autograd.grad((ours * real).square().sum(), [padded, *lstm.parameters()])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))
