"""The heads of PR, ASR and SF against s3prl's own modules, on the same weights, odd shapes and uneven lengths."""

import pytest
import torch

pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")

from speechssl.cascade.ctc import HeadShape
from speechssl.superb.tasks.transcription import TranscriptionHead

LENGTHS = [[1], [37], [1, 1, 1], [50, 1, 23], [8, 9, 10, 2]]
PUBLISHED = {"module": "LSTM", "bidirection": True, "layer_norm": [False] * 2, "proj": [False] * 2, "sample_rate": [1, 1]}


def rnns(projection, hidden, symbols, rate=320, dropout=0.2):
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    from s3prl.downstream.asr.model import RNNs

    rest = {"total_rate": -1, "sample_style": "concat", "dropout": [dropout] * 2, "dim": [hidden] * 2}
    return RNNs(projection, symbols, rate, **PUBLISHED, **rest)


def with_our_weights(head, model):
    """(projector, model) of theirs with the weights of our head. model: RNNs, or FrameLevel."""
    projector = torch.nn.Linear(head.ctc.shape.width, head.ctc.shape.projection)
    projector.load_state_dict(head.ctc.projection.state_dict())
    model.linear.load_state_dict(head.ctc.output.state_dict())
    for layer, rnn in enumerate(getattr(model, "rnns", [])):
        names = [(f"{kind}_l{layer}{way}", f"{kind}_l0{way}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                 for way in ("", "_reverse")]  # fmt: skip
        rnn.layer.load_state_dict({theirs: getattr(head.ctc.lstm, ours) for ours, theirs in names})
    return projector, model


def made(states, width, projection, hidden, symbols, layers=2):
    torch.manual_seed(0)
    shape = HeadShape(width, symbols, projection=projection, lstm_width=hidden, lstm_layers=layers, dropout=0.2 if layers else 0.0)
    head = TranscriptionHead(states, shape)
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def padded(lengths, states, width):
    found = torch.randn(len(lengths), states, max(lengths), width)
    for row, n in zip(found, lengths, strict=True):
        row[:, n:] = 0
    return found


def theirs(head, projector, model, states, lengths):
    """As the experts call them: weighted sum, projector, model, log-softmax."""
    summed = torch.einsum("s,bstd->btd", head.featurizer.weights.softmax(0), states)
    return model(projector(summed), lengths)[0].log_softmax(-1)


def same(head, projector, model, lengths, states, width):
    features, numbers = padded(lengths, states, width), torch.tensor(lengths)
    with torch.no_grad():
        ours, wanted = head(features, numbers), theirs(head, projector, model, features, numbers)
    for one, other, n in zip(ours, wanted, lengths, strict=True):
        assert torch.allclose(one[:n], other[:n], atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("sizes", [(3, 8, 16, 12, 9), (1, 5, 7, 3, 2), (13, 33, 1, 1, 31)])
def test_the_recurrent_head_of_asr_and_sf_is_s3prls(lengths, sizes):
    head = made(*sizes).eval()
    projector, model = with_our_weights(head, rnns(*sizes[2:]))
    same(head, projector, model.eval(), lengths, *sizes[:2])


def test_it_is_of_the_published_size_too_and_at_100_hz():
    sizes = (13, 768, 1024, 1024, 32)
    head = made(*sizes).eval()
    projector, model = with_our_weights(head, rnns(*sizes[2:], rate=160))
    same(head, projector, model.eval(), [5, 3], *sizes[:2])


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("sizes", [(3, 8, 16, 9), (1, 5, 256, 71), (13, 1, 1, 2)])
def test_the_linear_head_of_pr_is_s3prls(lengths, sizes):
    states, width, projection, symbols = sizes
    rnns(1, 1, 1)  # imports
    from s3prl.downstream.model import FrameLevel
    from s3prl.nn.linear import FrameLevelLinear

    head = made(states, width, projection, 1, symbols, layers=0).eval()
    projector, model = with_our_weights(head, FrameLevel(projection, symbols))
    same(head, projector, model, lengths, states, width)
    newer = FrameLevelLinear(width, symbols, projection)
    newer.load_state_dict({f"hidden_layers.0.{k}": v for k, v in head.ctc.projection.state_dict().items()}
                          | {f"final_proj.{k}": v for k, v in head.ctc.output.state_dict().items()})  # fmt: skip
    same(head, torch.nn.Identity(), newer, lengths, states, width)


@pytest.mark.parametrize("lengths", [[37], [30, 17, 23]])
def test_the_recurrent_head_is_that_of_s3prls_newer_recipes(lengths):
    rnns(1, 1, 1)  # imports
    from s3prl.nn.rnn import RNNEncoder

    conf = {"dropout": [0.2] * 2, "layer_norm": [False] * 2, "proj": [False] * 2, "sample_rate": [1, 1], "bidirectional": True}
    head, model = made(3, 8, 16, 12, 9).eval(), RNNEncoder(8, 9, proj_size=16, hidden_size=[12, 12], **conf)
    with_our_weights(head, model)
    model.proj.load_state_dict(head.ctc.projection.state_dict())
    same(head, torch.nn.Identity(), model.eval(), lengths, 3, 8)


def test_training_draws_dropout_in_the_same_places():
    """After each layer of the LSTM: where all that a layer says is dropped, what came before it does not matter."""
    head = made(2, 6, 8, 5, 4).train()
    projector, model = with_our_weights(head, rnns(8, 5, 4, dropout=1.0))
    head.ctc.dropout.p = head.ctc.lstm.dropout = 1.0
    features, lengths = padded([9, 4], 2, 6), torch.tensor([9, 4])
    ours, wanted = head(features, lengths), theirs(head, projector, model.train(), features, lengths)
    assert torch.allclose(ours[0], wanted[0], atol=1e-6) and torch.allclose(ours[1, :4], wanted[1, :4], atol=1e-6)
    head.ctc.dropout.p, model.rnns[1].dp.p = 0.0, 0.0
    ours, wanted = head(features, lengths), theirs(head, projector, model, features, lengths)
    assert torch.allclose(ours[0], wanted[0], atol=1e-6) and torch.allclose(ours[1, :4], wanted[1, :4], atol=1e-6)
    head.ctc.lstm.dropout, model.rnns[0].dp.p = 0.0, 0.0  # nothing is dropped any more: not after the projection either
    ours, wanted = head(features, lengths), theirs(head, projector, model, features, lengths)
    assert torch.allclose(ours[0], wanted[0], atol=1e-6) and torch.allclose(ours[1, :4], wanted[1, :4], atol=1e-6)


@pytest.mark.parametrize("lengths", [[30, 17, 23], [5]])
def test_the_loss_is_s3prls(lengths):
    head = made(3, 8, 16, 12, 9).eval()
    projector, model = with_our_weights(head, rnns(16, 12, 9))
    features, numbers = padded(lengths, 3, 8), torch.tensor(lengths)
    targets = [[1, 2, 2, 8], [3], [5, 6, 7, 8, 1, 2]][: len(lengths)]
    log_probs = theirs(head, projector, model.eval(), features, numbers)
    labels = torch.nn.utils.rnn.pad_sequence([torch.tensor(t) for t in targets], batch_first=True)
    sizes = torch.tensor([len(t) for t in targets])
    wanted = torch.nn.CTCLoss(blank=0, zero_infinity=True)(log_probs.transpose(0, 1), labels, numbers, sizes)
    assert torch.allclose(head.loss(features, numbers, targets), wanted, atol=1e-5)
