"""CTC: the head, the recogniser, decoding and alignment."""

import math
from types import SimpleNamespace

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
    find_greedy_spans,
    run_lstm,
)
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, hop=320, receptive=400)
ENGLISH = CtcVocabulary.make_english()
WIDTH = 8  # of hidden states


def make_head(states=1, lstm_layers=1):
    torch.manual_seed(0)
    shape = HeadShape(
        width=WIDTH,
        symbols=len(ENGLISH),
        states=states,
        projection=16,
        lstm_width=16,
        lstm_layers=lstm_layers,
    )
    return CtcHead(shape)


@pytest.mark.parametrize(("states", "lstm_layers"), [(1, 0), (3, 2)])
def test_padding_changes_nothing(states, lstm_layers):
    model = make_head(states, lstm_layers).eval()
    lengths = torch.tensor([5, 9, 1])
    features = torch.randn(len(lengths), states, 9, WIDTH)
    with_nan = features.clone()
    for i, n in enumerate(lengths):
        with_nan[i, :, n:] = math.nan
    together = model(with_nan, lengths)
    for i, n in enumerate(lengths):
        alone = model(features[i : i + 1, :, :n], lengths[i : i + 1])
        torch.testing.assert_close(together[i : i + 1, :n], alone, atol=1e-5, rtol=1e-5)


def test_the_loss_is_a_mean_by_symbol_and_targets_that_do_not_fit_add_nothing():
    model = make_head()
    frames = 4
    features, lengths = torch.randn(2, frames, WIDTH), torch.tensor([frames, frames])
    log_probs = model(features, lengths).transpose(0, 1)

    def loss_by_symbol(i, target):
        sizes = (frames,), (len(target),)
        ctc_loss = torch.nn.functional.ctc_loss
        utterance = log_probs[:, i : i + 1]
        return ctc_loss(utterance, torch.tensor([target]), *sizes, reduction="sum") / len(target)

    loss = model.loss(features, lengths, [[3, 4], [5]])
    mean = (loss_by_symbol(0, [3, 4]) + loss_by_symbol(1, [5])) / 2
    torch.testing.assert_close(loss, mean)
    # three equal symbols need five frames
    loss = model.loss(features, lengths, [[3, 3, 3], [5]])
    torch.testing.assert_close(loss, loss_by_symbol(1, [5]) / 2)
    assert model.loss(features, lengths, [[], [5]]).isfinite()


# ---- recogniser


@pytest.mark.parametrize("decode", [None, "hi me"])
def test_recognition_gives_text_and_times(decode):
    """decode: the text that a decoder finds; None for greedy decoding."""
    path = [0 if c == "_" else ENGLISH.symbols.index(c) for c in "__hhi_|_mme_"]
    log_probs = (9 * torch.nn.functional.one_hot(torch.tensor(path), len(ENGLISH))).float()
    encoder = SimpleNamespace(grid=GRID)
    recogniser = CtcRecogniser(encoder, make_head(), ENGLISH, "toy", layer=1)
    if decode:
        recogniser.decoder = SimpleNamespace(decode=lambda piece: decode)
    transcript = recogniser.decode_log_probs(log_probs.log_softmax(-1))
    assert transcript.text == "hi me"
    # frames 2 to 5, and from the separator on 6 to 11
    times = [(GRID.find_start(2), GRID.find_start(5)), (GRID.find_start(6), GRID.find_start(11))]
    assert [(w.start, w.end) for w in transcript.words] == times


def test_the_greedy_path_is_the_alignment_of_its_own_text():
    logits = torch.randn(300, len(ENGLISH), generator=torch.Generator().manual_seed(0))
    log_probs = logits.mul(3).log_softmax(-1)
    scores, path = log_probs.max(-1)

    def as_tuples(spans):
        return [(s.token, s.start, s.end, s.score) for s in spans]

    spans = find_greedy_spans(log_probs)
    aligned = align_spans(log_probs, [span.token for span in spans])
    assert as_tuples(aligned) == as_tuples(spans)
    assert as_tuples(torchaudio.functional.merge_tokens(path, scores, 0)) == as_tuples(spans)


def test_the_lstm_on_a_padded_batch_is_torchs_on_a_packed_one():
    torch.manual_seed(0)
    frames, width = 9, 6
    lstm = torch.nn.LSTM(width, hidden_size=5, num_layers=2, batch_first=True, bidirectional=True)
    lengths = torch.tensor([5, frames, 1])
    padded = torch.randn(len(lengths), frames, width, requires_grad=True)
    is_real = (torch.arange(frames) < lengths[:, None])[..., None]
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    theirs = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=frames)[0]
    ours = run_lstm(lstm, padded, lengths) * is_real
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    inputs = [padded, *lstm.parameters()]
    their_gradients = torch.autograd.grad(theirs.square().sum(), inputs)
    our_gradients = torch.autograd.grad(ours.square().sum(), inputs)
    torch.testing.assert_close(our_gradients, their_gradients, atol=1e-5, rtol=1e-5)
