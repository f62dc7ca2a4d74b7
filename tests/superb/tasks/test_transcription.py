"""PR, ASR and SF: tasks and measures; heads, slots and SpecAugment beside s3prl's."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from speechssl.cascade.decode import BeamOptions
from speechssl.cascade.model import HeadShape
from speechssl.data.superb import Slot, Utterance, UtteranceSet
from speechssl.superb.data import Batch
from speechssl.superb.tasks.transcription import (
    Phones,
    SlotFilling,
    SpecAugment,
    Speech,
    TranscriptionHead,
    log_probabilities,
    marked_text,
    slot_symbols,
    slot_type_f1,
    slot_value_errors,
    train_language_model,
)
from speechssl.timing import FrameGrid

from ...files import refused
from ..heads import take_one

GRID = FrameGrid(16_000, 320, 400)
SMALL = {"projection": 24, "lstm_width": 16, "lstm_layers": 2}
LINES = [
    ("Turn on the light.", "T ER N AA N", [Slot("what", "light")]),
    ("turn off the radio", "T ER N AO F", [Slot("what", "the radio")]),
    ("it's on", "IH T S AA N", []),
    ("play New York", "P L EY", [Slot("city", "new york")]),
]


def made_set(**changes):
    splits = {}
    for split in ("train", "dev", "test"):
        utterances = []
        for i, (text, phones, slots) in enumerate(changes.get(split, LINES)):
            some = {"text": text, "phones": phones, "slots": tuple(slots)}
            utterances.append(Utterance(f"{split}{i}", "x.flac", 1.0, f"{split}-{i % 2}", **some))
        splits[split] = tuple(utterances)
    return UtteranceSet(Path("set"), "asr", splits, "0")


def batch_of(utterances, width=8, states=3, frames=60):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(frames, 20, len(utterances)).long()
    hidden = torch.randn(len(utterances), states, frames, width, generator=generator)
    for row, n in zip(hidden, lengths, strict=True):
        row[:, n:] = 0
    return Batch(tuple(utterances), hidden, lengths)


TASKS = {
    "pr": lambda data: Phones(data, GRID, 24),
    "asr": lambda data: Speech(data, GRID, **SMALL),
    "sf": lambda data: SlotFilling(data, GRID, **SMALL),
}


def built(task, states=3, width=8):
    torch.manual_seed(0)
    return task.build(states, width).eval()


@pytest.mark.parametrize("name", TASKS)
def test_predictions_depend_on_neither_padding_nor_mates(name):
    task = TASKS[name](made_set())
    head, batch = built(task), batch_of(task.data.splits["dev"])
    whole = log_probabilities(head, batch)
    for j, expected in enumerate(whole):
        own = take_one(batch, j)
        assert torch.allclose(log_probabilities(head, own)[0], expected, atol=1e-5)
        longer = replace(own, states=torch.nn.functional.pad(own.states, (0, 0, 0, 9), value=7.0))
        assert torch.allclose(log_probabilities(head, longer)[0], expected, atol=1e-5)
    assert len(task.predict(head, batch)) == len(batch.utterances)


# ---- measures


def test_per_and_wer_are_pooled_and_unreadable_recordings_are_missing():
    data = made_set()
    predicted = {"dev0": "T ER N AA N", "dev1": "T ER AO F F", "dev2": "IH"}
    (per,) = Phones(data, GRID).evaluate("dev", predicted, 0).measures
    assert (per.metric, per.n) == ("per", 4)
    assert per.value == per.low == per.high == pytest.approx(100 * (0 + 2 + 4 + 3) / 18)
    texts = {"dev0": "turn on the light", "dev1": "turn of radio", "dev3": "play new york city"}
    by_name = {name: {"wer": text} for name, text in texts.items()}
    (wer,) = Speech(data, GRID).evaluate("dev", by_name, 0).measures
    assert wer.value == pytest.approx(100 * (0 + 2 + 2 + 1) / 13)


def test_slots_are_measured_by_type_and_by_value():
    task = SlotFilling(made_set(), GRID)
    predicted = {
        "dev0": "turn on the B-what light E-what",
        "dev1": "turn off B-what the rado E-what B-city x E-city",
        "dev2": "it's on",
    }
    f1, cer = task.evaluate("dev", predicted, 0).measures
    assert (f1.metric, cer.metric) == ("slot_f1", "slot_cer")
    assert f1.value == pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4)
    assert cer.value == pytest.approx(100 * (0 + 1 + 8) / 22)
    del predicted["dev2"]  # it has no slots, but could not be read: wrong all the same
    f1 = task.evaluate("dev", predicted, 0).measures[0]
    assert f1.value == pytest.approx(100 * (1 + 2 / 3) / 4)


def test_a_language_model_adds_its_texts_and_its_measure():
    data = made_set()
    model, beam = train_language_model(data), BeamOptions(beam=8)
    task = replace(Speech(data, GRID, **SMALL), language_model=model, beam=beam)
    dev = data.splits["dev"]
    predicted = task.predict(built(task), batch_of(dev))
    known = set("turn on off the light radio it's play new york".split())
    assert all(set(one["wer_lm"].split()) <= known for one in predicted)
    evaluated = task.evaluate("dev", dict(zip([u.id for u in dev], predicted, strict=True)), 0)
    assert [m.metric for m in evaluated.measures] == ["wer", "wer_lm"]


@pytest.mark.parametrize("name", TASKS)
def test_bad_data_is_refused(name):
    data = made_set()
    data.splits["dev"] = tuple(Utterance(u.id, "x", 1.0) for u in data.splits["dev"])
    refused(r'dev.jsonl has no "(phones|text|slots)"', TASKS[name], data)
    if name == "sf":
        wrong = made_set(test=[("fly to paris", "", [Slot("city", "rome")])])
        refused("test.jsonl, utterance test0: the slot city 'rome'", TASKS[name], wrong)


# ---- heads beside s3prl's

LENGTHS = [[1], [50, 1, 23]]


def rnns(projection, hidden, symbols, rate=320):
    from s3prl.downstream.asr.model import RNNs

    settings = {"module": "LSTM", "bidirection": True, "total_rate": -1, "sample_style": "concat"}
    settings |= {"layer_norm": [False] * 2, "proj": [False] * 2, "sample_rate": [1, 1]}
    return RNNs(projection, symbols, rate, dropout=[0.2] * 2, dim=[hidden] * 2, **settings)


def with_our_weights(head, model):
    """(projector, model) of theirs with the weights of our head. model: RNNs, or FrameLevel."""
    projector = torch.nn.Linear(head.ctc.shape.width, head.ctc.shape.projection)
    projector.load_state_dict(head.ctc.projection.state_dict())
    model.linear.load_state_dict(head.ctc.output.state_dict())
    for layer, rnn in enumerate(getattr(model, "rnns", [])):
        weights = {}
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            for way in ("", "_reverse"):
                weights[f"{kind}_l0{way}"] = getattr(head.ctc.lstm, f"{kind}_l{layer}{way}")
        rnn.layer.load_state_dict(weights)
    return projector, model.eval()


def head_of(states, width, projection, hidden, symbols, layers=2):
    torch.manual_seed(0)
    sizes = {"projection": projection, "lstm_width": hidden, "lstm_layers": layers}
    head = TranscriptionHead(states, HeadShape(width, symbols, dropout=0.1 * layers, **sizes))
    torch.nn.init.normal_(head.featurizer.weights)
    return head.eval()


def random_states(lengths, states, width):
    found = torch.randn(len(lengths), states, max(lengths), width)
    for row, n in zip(found, lengths, strict=True):
        row[:, n:] = 0
    return found, torch.tensor(lengths)


def their_log_probs(head, projector, model, states, lengths):
    """As the experts call them: weighted sum, projector, model, log-softmax."""
    summed = torch.einsum("s,bstd->btd", head.featurizer.weights.softmax(0), states)
    return model(projector(summed), lengths)[0].log_softmax(-1)


def assert_same(head, projector, model, lengths, states, width):
    features, numbers = random_states(lengths, states, width)
    with torch.no_grad():
        ours = head(features, numbers)
        wanted = their_log_probs(head, projector, model, features, numbers)
    for one, other, n in zip(ours, wanted, lengths, strict=True):
        assert torch.allclose(one[:n], other[:n], atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("sizes", [(3, 8, 16, 12, 9), (1, 5, 7, 3, 2)])
def test_the_recurrent_head_of_asr_and_sf_is_s3prls(s3prl, lengths, sizes):
    head = head_of(*sizes)
    for rate in (320, 160):
        assert_same(head, *with_our_weights(head, rnns(*sizes[2:], rate=rate)), lengths, *sizes[:2])


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("sizes", [(3, 8, 16, 9), (1, 5, 256, 71)])
def test_the_linear_head_of_pr_is_s3prls(s3prl, lengths, sizes):
    states, width, projection, symbols = sizes
    from s3prl.downstream.model import FrameLevel

    head = head_of(states, width, projection, 1, symbols, layers=0)
    theirs = with_our_weights(head, FrameLevel(projection, symbols))
    assert_same(head, *theirs, lengths, states, width)


@pytest.mark.parametrize("lengths", [[30, 17, 23], [5]])
def test_the_loss_is_s3prls(s3prl, lengths):
    head = head_of(3, 8, 16, 12, 9)
    features, numbers = random_states(lengths, 3, 8)
    targets = [[1, 2, 2, 8], [3], [5, 6, 7, 8, 1, 2]][: len(lengths)]
    theirs = with_our_weights(head, rnns(16, 12, 9))
    log_probs = their_log_probs(head, *theirs, features, numbers).transpose(0, 1)
    labels = torch.nn.utils.rnn.pad_sequence([torch.tensor(t) for t in targets], batch_first=True)
    sizes = torch.tensor([len(t) for t in targets])
    wanted = torch.nn.CTCLoss(zero_infinity=True)(log_probs, labels, numbers, sizes)
    assert torch.allclose(head.loss(features, numbers, targets), wanted, atol=1e-5)


# ---- slots


def test_a_text_with_slots_becomes_symbols_and_a_marked_text():
    symbols = slot_symbols("fly to New York", [Slot("to city", "new york")])
    assert symbols == [*"fly", "|", *"to", "|", "B-to_city", *"new", "|", *"york", "E-to_city"]
    assert marked_text(symbols) == "fly to B-to_city new york E-to_city"
    twice = [Slot("city", "rome"), Slot("city", "rome")]
    marked = "from B-city rome E-city to B-city rome E-city"
    assert marked_text(slot_symbols("from rome to rome", twice)) == marked
    # symbols out of order
    assert marked_text(["E-x", "|", "|", "a", "B-x", "B-x"]) == "E-x aB-x B-x"
    with pytest.raises(ValueError, match="does not occur"):
        slot_symbols("Play the song by Madonna!", [Slot("a", "madonna"), Slot("b", "song")])


KINDS = ("city", "city_name", "x")
PIECES = [f"{side}-{kind}" for kind in KINDS for side in "BE"]
PIECES += ["rome", "new", "york", "a", "", " ", "E-", "B-"]


def random_truth(rng):
    parts = []
    for kind in rng.choices(KINDS, k=rng.randint(0, 5)):
        value = rng.choice(["rome", "new york", "a"])
        parts.append(rng.choice(["play", "to", f"B-{kind} {value} E-{kind}"]))
    return " ".join(parts)


def damaged(rng, text):
    """The truth with some letters or markers lost, repeated or put elsewhere."""
    words = text.split(" ")
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(words))
        changes = [[], [words[at]] * 2, [rng.choice(PIECES)], [words[at] + rng.choice("abc ")]]
        words[at : at + 1] = rng.choice(changes[len(words) == 1 :])
    return " ".join(words)


@pytest.mark.parametrize("seed", range(2))
def test_metrics_are_s3prls_on_random_predictions(s3prl, seed):
    from s3prl.downstream.ctc import metric
    from s3prl.metric import slot_filling

    rng = random.Random(seed)
    for _ in range(60):
        truth = [random_truth(rng) for _ in range(rng.randint(1, 8))]
        truth.append("B-x a E-x")  # theirs divides by the length of all values
        predicted = []
        for text in truth:
            pieces = " ".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))
            predicted.append(pieces if rng.random() < 0.4 else damaged(rng, text))
        pairs = list(zip(predicted, truth, strict=True))
        f1 = sum(slot_type_f1(*pair) for pair in pairs) / len(pairs)
        counts = [slot_value_errors(*pair) for pair in pairs]
        cer = sum(wrong for wrong, _ in counts) / sum(length for _, length in counts)
        for theirs in (slot_filling, metric):
            assert f1 == pytest.approx(theirs.slot_type_f1(predicted, truth), abs=1e-12)
            assert cer == pytest.approx(theirs.slot_value_cer(predicted, truth), abs=1e-12)


# ---- SpecAugment


def s3prls_masks(options):
    from s3prl.downstream.specaug import SpecAug

    return SpecAug(
        apply_time_warp=options.warp > 0,
        time_warp_window=options.warp,
        adaptive=False,
        freq_mask_width_range=(0, options.frequency_width),
        num_freq_mask=options.frequency_masks,
        time_mask_width_range=(0, options.time_width),
        num_time_mask=options.time_masks,
    )


@pytest.mark.parametrize(
    "options", [SpecAugment(), SpecAugment(warp=0), SpecAugment(3, 10, 10, 10, 10)]
)
@pytest.mark.parametrize("shape", [(60, 768), (10, 33)])
def test_a_single_recording_is_masked_as_by_s3prl(s3prl, options, shape):
    for seed in range(5):
        features = torch.randn(1, *shape, generator=torch.Generator().manual_seed(seed)) + 3
        torch.manual_seed(seed)
        wanted = s3prls_masks(options)([features[0].clone()])[0][0]
        torch.manual_seed(seed)
        found = options(features, torch.tensor([shape[0]]))
        assert torch.allclose(found[0], wanted, atol=1e-5)


def test_each_recording_has_its_own_masks_over_its_own_frames():
    torch.manual_seed(0)
    features, lengths = torch.ones(40, 500, 64), torch.tensor([60, 500] * 20)
    changed = SpecAugment(frequency_masks=0)(features, lengths)
    assert all((one[n:] == 0).all() for one, n in zip(changed, lengths, strict=True))
    short = changed[::2, :60, 0]
    assert (short == 0).any(1).float().mean() > 0.8
    assert not (short == 0).all(1).any()
    assert len({tuple(row.tolist()) for row in short}) > 15
