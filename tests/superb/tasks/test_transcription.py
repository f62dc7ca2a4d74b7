"""Tests of phone recognition (PR), speech recognition (ASR) and slot filling (SF): tasks and
measures; and heads, slots and SpecAugment, which are compared with s3prl's."""

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
    compute_log_probabilities,
    count_slot_errors,
    join_marked_text,
    list_slot_symbols,
    slot_type_f1,
    train_language_model,
)
from speechssl.timing import FrameGrid

from ...files import refused
from ..heads import take_one

GRID = FrameGrid(16_000, 320, 400)
SMALL = {"projection": 24, "lstm_width": 16, "lstm_layers": 2}
LINES = [  # text, phones, slots
    ("Turn on the light.", "T ER N AA N", [Slot("what", "light")]),
    ("turn off the radio", "T ER N AO F", [Slot("what", "the radio")]),
    ("it's on", "IH T S AA N", []),
    ("play New York", "P L EY", [Slot("city", "new york")]),
]


def make_set(lines=LINES, test_lines=LINES):
    """Make a data set whose splits have these lines."""
    splits = {}
    for split, lines_of_split in (("train", lines), ("dev", lines), ("test", test_lines)):
        utterances = []
        for i, (text, phones, slots) in enumerate(lines_of_split):
            speaker = f"{split}-{i % 2}"
            labels = {"text": text, "phones": phones, "slots": tuple(slots)}
            utterances.append(Utterance(f"{split}{i}", "x.flac", 1.0, speaker, **labels))
        splits[split] = tuple(utterances)
    return UtteranceSet(Path("set"), "asr", splits, "0")


def make_batch(utterances):
    """Make a batch of random hidden states (B, 3, T, 8) of 60 to 20 frames."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.linspace(60, 20, len(utterances)).long()
    states = torch.randn(len(utterances), 3, 60, 8, generator=generator)
    for row, n in zip(states, lengths, strict=True):
        row[:, n:] = 0
    return Batch(tuple(utterances), states, lengths)


MAKE_TASK = {
    "pr": lambda data: Phones(data, GRID, projection=24),
    "asr": lambda data: Speech(data, GRID, **SMALL),
    "sf": lambda data: SlotFilling(data, GRID, **SMALL),
}


def build_head(task):
    torch.manual_seed(0)
    return task.build(states=3, width=8).eval()


@pytest.mark.parametrize("name", MAKE_TASK)
def test_outputs_depend_on_neither_padding_nor_other_recordings(name):
    task = MAKE_TASK[name](make_set())
    head, batch = build_head(task), make_batch(task.data.splits["dev"])
    for i, expected in enumerate(compute_log_probabilities(head, batch)):
        alone = take_one(batch, i)
        assert torch.allclose(compute_log_probabilities(head, alone)[0], expected, atol=1e-5)
        padded_states = torch.nn.functional.pad(alone.states, (0, 0, 0, 9), value=7.0)
        padded = replace(alone, states=padded_states)
        assert torch.allclose(compute_log_probabilities(head, padded)[0], expected, atol=1e-5)
    assert len(task.predict(head, batch)) == len(batch.utterances)


# ---- measures


def test_per_is_pooled_and_an_unreadable_recording_is_missed():
    predicted = {"dev0": "T ER N AA N", "dev1": "T ER AO F F", "dev2": "IH"}
    per = Phones(make_set(), GRID).evaluate("dev", predicted, 0).measures["per"]
    # of 5 + 5 + 5 + 3 phones; all three of dev3 are missing
    assert per.value == pytest.approx(100 * (0 + 2 + 4 + 3) / 18)


def test_wer_is_pooled_and_an_unreadable_recording_is_missed():
    texts = {"dev0": "turn on the light", "dev1": "turn of radio", "dev3": "play new york city"}
    predicted = {name: {"wer": text} for name, text in texts.items()}
    wer = Speech(make_set(), GRID).evaluate("dev", predicted, 0).measures["wer"]
    # of 4 + 4 + 2 + 3 words; both of dev2 are missing
    assert wer.value == pytest.approx(100 * (0 + 2 + 2 + 1) / 13)


def test_slots_are_measured_by_type_and_by_value():
    task = SlotFilling(make_set(), GRID)
    predicted = {
        "dev0": "turn on the B-what light E-what",
        "dev1": "turn off B-what the rado E-what B-city x E-city",
        "dev2": "it's on",
    }
    measures = task.evaluate("dev", predicted, 0).measures
    f1, cer = measures["slot_f1"], measures["slot_cer"]
    assert f1.value == pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4)  # the mean over utterances
    # of the characters of "light", "the radio" and "new york"; an i and the city are missing
    assert cer.value == pytest.approx(100 * (0 + 1 + 8) / 22)
    del predicted["dev2"]  # it has no slots, but could not be read: wrong all the same
    f1 = task.evaluate("dev", predicted, 0).measures["slot_f1"]
    assert f1.value == pytest.approx(100 * (1 + 2 / 3) / 4)


def test_a_language_model_adds_its_texts_and_its_measure():
    data = make_set()
    model, beam = train_language_model(data), BeamOptions(beam=8)
    task = replace(Speech(data, GRID, **SMALL), language_model=model, beam=beam)
    dev = data.splits["dev"]
    texts = task.predict(build_head(task), make_batch(dev))
    words = set("turn on off the light radio it's play new york".split())
    for by_metric in texts:
        assert set(by_metric["wer_lm"].split()) <= words
    predicted = dict(zip([u.id for u in dev], texts, strict=True))
    assert list(task.evaluate("dev", predicted, 0).measures) == ["wer", "wer_lm"]


@pytest.mark.parametrize(("name", "field"), [("pr", "phones"), ("asr", "text"), ("sf", "slots")])
def test_a_split_without_labels_is_refused(name, field):
    data = make_set()
    data.splits["dev"] = tuple(Utterance(u.id, "x", 1.0) for u in data.splits["dev"])
    refused(f'dev.jsonl has no "{field}"', MAKE_TASK[name], data)


def test_slots_that_are_not_in_the_text_in_their_order_are_refused():
    slots = [Slot("a", "madonna"), Slot("b", "song")]
    data = make_set(test_lines=[("Play the song by Madonna!", "", slots)])
    refused("test.jsonl, utterance test0: the slot b 'song'", MAKE_TASK["sf"], data)


# ---- heads beside s3prl's


STATES = 3  # hidden states
LENGTHS = [[1], [50, 1, 23]]  # frames of every recording
SHAPES = [
    HeadShape(8, 9, projection=16, lstm_width=12, lstm_layers=2, dropout=0.2),
    HeadShape(5, 2, projection=7, lstm_width=3, lstm_layers=2, dropout=0.2),
]


def make_rnns(shape, hop=320):
    """Make s3prl's recurrent model."""
    from s3prl.downstream.asr.model import RNNs

    layers = shape.lstm_layers
    sizes = {"dim": [shape.lstm_width] * layers, "dropout": [shape.dropout] * layers}
    sizes |= {"layer_norm": [False] * layers, "proj": [False] * layers, "total_rate": -1}
    sizes |= {"sample_rate": [1] * layers, "sample_style": "concat"}
    module = {"module": "LSTM", "bidirection": True}
    return RNNs(shape.projection, shape.symbols, hop, **module, **sizes)


def make_head(shape, states=STATES):
    torch.manual_seed(0)
    head = TranscriptionHead(states, shape)
    torch.nn.init.normal_(head.featurizer.weights)
    return head.eval()


def make_states(lengths, head):
    """Return random hidden states (B, S, T, D) and the lengths (B,)."""
    count = len(head.featurizer.weights)
    states = torch.randn(len(lengths), count, max(lengths), head.ctc.shape.width)
    for row, n in zip(states, lengths, strict=True):
        row[:, n:] = 0
    return states, torch.tensor(lengths)


def run_s3prls(model, head, states, lengths):
    """Return the log-probabilities (B, T, V) of s3prl's model (RNNs, or FrameLevel) with the weights
    of our head, called as its experts do: weighted sum, projector, model, log-softmax."""
    projector = torch.nn.Linear(head.ctc.shape.width, head.ctc.shape.projection)
    projector.load_state_dict(head.ctc.projection.state_dict())
    model.linear.load_state_dict(head.ctc.output.state_dict())
    for layer, rnn in enumerate(getattr(model, "rnns", [])):
        weights = {}
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            for direction in ("", "_reverse"):
                weight = getattr(head.ctc.lstm, f"{kind}_l{layer}{direction}")
                weights[f"{kind}_l0{direction}"] = weight
        rnn.layer.load_state_dict(weights)
    summed = torch.einsum("s,bstd->btd", head.featurizer.weights.softmax(0), states)
    logits, _ = model.eval()(projector(summed), lengths)
    return logits.log_softmax(-1)


def check_outputs(head, model, lengths):
    """Assert that head and model give the same for real frames."""
    states, counts = make_states(lengths, head)
    with torch.no_grad():
        outputs, expected = head(states, counts), run_s3prls(model, head, states, counts)
    for log_probs, expected_log_probs, n in zip(outputs, expected, lengths, strict=True):
        assert torch.allclose(log_probs[:n], expected_log_probs[:n], atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("shape", "states", "hop"), [(SHAPES[0], 3, 320), (SHAPES[1], 1, 160)])
def test_the_heads_are_s3prls(s3prl, lengths, shape, states, hop):
    """ASR and SF have the recurrent head, PR has the linear one."""
    from s3prl.downstream.model import FrameLevel

    check_outputs(make_head(shape, states), make_rnns(shape, hop), lengths)
    linear = make_head(replace(shape, lstm_layers=0), states)
    check_outputs(linear, FrameLevel(shape.projection, shape.symbols), lengths)


@pytest.mark.parametrize("lengths", [[30, 17, 23], [5]])
def test_the_loss_is_s3prls(s3prl, lengths):
    shape = SHAPES[0]
    head = make_head(shape)
    states, counts = make_states(lengths, head)
    targets = [[1, 2, 2, 8], [3], [5, 6, 7, 8, 1, 2]][: len(lengths)]
    log_probs = run_s3prls(make_rnns(shape), head, states, counts).transpose(0, 1)
    labels = torch.nn.utils.rnn.pad_sequence([torch.tensor(t) for t in targets], batch_first=True)
    label_counts = torch.tensor([len(t) for t in targets])
    expected = torch.nn.CTCLoss(zero_infinity=True)(log_probs, labels, counts, label_counts)
    assert torch.allclose(head.loss(states, counts, targets), expected, atol=1e-5)


# ---- slots


def test_a_text_with_a_slot_becomes_symbols_and_a_marked_text():
    symbols = list_slot_symbols("fly to New York", [Slot("to city", "new york")])
    assert symbols == [*"fly", "|", *"to", "|", "B-to_city", *"new", "|", *"york", "E-to_city"]
    assert join_marked_text(symbols) == "fly to B-to_city new york E-to_city"


def test_equal_slots_are_found_one_after_the_other():
    slots = [Slot("city", "rome"), Slot("city", "rome")]
    marked = "from B-city rome E-city to B-city rome E-city"
    assert join_marked_text(list_slot_symbols("from rome to rome", slots)) == marked


SLOT_TYPES = ("city", "city_name", "x")
PIECES = [f"{side}-{slot_type}" for slot_type in SLOT_TYPES for side in "BE"]
PIECES += ["rome", "new", "york", "a", "", " ", "E-", "B-"]


def random_truth(rng):
    """Make a text with up to five words or slots."""
    parts = []
    for slot_type in rng.choices(SLOT_TYPES, k=rng.randint(0, 5)):
        value = rng.choice(["rome", "new york", "a"])
        parts.append(rng.choice(["play", "to", f"B-{slot_type} {value} E-{slot_type}"]))
    return " ".join(parts)


def damage(rng, text):
    """Remove, repeat or replace some words or markers, or add a letter to them."""
    words = text.split(" ")
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(words))
        changes = [[], [words[at]] * 2, [rng.choice(PIECES)], [words[at] + rng.choice("abc ")]]
        words[at : at + 1] = rng.choice(changes)
        words = words or [""]
    return " ".join(words)


@pytest.mark.parametrize("seed", range(2))
def test_slot_measures_are_s3prls_on_random_predictions(s3prl, seed):
    from s3prl.downstream.ctc import metric
    from s3prl.metric import slot_filling

    rng = random.Random(seed)
    for _ in range(60):
        truth = [random_truth(rng) for _ in range(rng.randint(1, 8))]
        truth.append("B-x a E-x")  # s3prl divides by the length of all values, which must not be 0
        predicted = []
        for text in truth:
            pieces = " ".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))
            predicted.append(pieces if rng.random() < 0.4 else damage(rng, text))
        pairs = list(zip(predicted, truth, strict=True))
        f1 = sum(slot_type_f1(*pair) for pair in pairs) / len(pairs)
        counts = [count_slot_errors(*pair) for pair in pairs]
        cer = sum(errors for errors, _ in counts) / sum(length for _, length in counts)
        for s3prls in (slot_filling, metric):
            assert f1 == pytest.approx(s3prls.slot_type_f1(predicted, truth), abs=1e-12)
            assert cer == pytest.approx(s3prls.slot_value_cer(predicted, truth), abs=1e-12)


# ---- SpecAugment


def make_s3prls_masks(options):
    """Return s3prl's SpecAugment with these options."""
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
    "options",
    [
        SpecAugment(),
        SpecAugment(warp=0),
        SpecAugment(warp=3, frequency_masks=10, frequency_width=10, time_masks=10, time_width=10),
    ],
)
@pytest.mark.parametrize(("frames", "width"), [(60, 768), (10, 33)])
def test_a_single_recording_is_masked_as_by_s3prl(s3prl, options, frames, width):
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(1, frames, width, generator=generator) + 3
        torch.manual_seed(seed)
        expected = make_s3prls_masks(options)([features[0].clone()])[0][0]
        torch.manual_seed(seed)
        masked = options(features, torch.tensor([frames]))
        assert torch.allclose(masked[0], expected, atol=1e-5)


def test_each_recording_has_masks_of_its_own_over_its_real_frames():
    torch.manual_seed(0)
    features, lengths = torch.ones(40, 500, 64), torch.tensor([60, 500] * 20)
    masked = SpecAugment(frequency_width=1)(features, lengths)
    for recording, n in zip(masked, lengths, strict=True):
        assert (recording[n:] == 0).all()
    is_masked = masked[::2, :60, 0] == 0  # (20, 60), of the short recordings
    assert is_masked.any(1).float().mean() > 0.8
    assert not is_masked.all(1).any()
    assert len({tuple(row.tolist()) for row in is_masked}) > 15
