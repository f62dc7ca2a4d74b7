"""PR, ASR and SF: symbols, heads of every size, what padding and odd texts must not do, and measures counted by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from speechssl.cascade.decode import BeamOptions
from speechssl.cascade.lm import train_ngram
from speechssl.data.utterances import Slot, Utterance, UtteranceSet
from speechssl.errors import InputError
from speechssl.superb.task import Batch, Featurizer, Task
from speechssl.superb.tasks.transcription import (
    PUBLISHED_ASR,
    PUBLISHED_PR,
    PUBLISHED_SF,
    Phones,
    SlotFilling,
    SpecAugment,
    Speech,
    _symbols,
    log_probabilities,
    train_language_model,
)
from speechssl.text import spelt
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)
SMALL = {"projection": 24, "lstm_width": 16, "lstm_layers": 2}
LINES = [
    ("Turn on the light.", "T ER N AA N", [Slot("what", "light")]),
    ("turn off the radio", "T ER N AO F", [Slot("what", "the radio")]),
    ("it's on", "IH T S AA N", []),
    ("play New York", "P L EY", [Slot("city", "new york")]),
]


def made_set(task="asr", lines=LINES, dev=None, test=None):
    def some(split, lines):
        return tuple(
            Utterance(f"{split}{i}", "x.flac", 1.0, f"{split}-{i % 2}", text=text, phones=phones, slots=tuple(slots))
            for i, (text, phones, slots) in enumerate(lines)
        )

    splits = {"train": some("train", lines), "dev": some("dev", dev or lines), "test": some("test", test or lines)}
    return UtteranceSet(Path("set"), task, splits, "0")


def batch_of(utterances, width=8, states=3, frames=60, seed=0, shortest=20):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.linspace(frames, shortest, len(utterances)).long()
    hidden = torch.randn(len(utterances), states, frames, width, generator=generator)
    for row, n in zip(hidden, lengths, strict=True):
        row[:, n:] = 0
    return Batch(tuple(utterances), hidden, lengths)


def tasks(data=None, **changes):
    data = data or made_set()
    return [Phones(data, GRID, 24, **changes), Speech(data, GRID, **SMALL, **changes), SlotFilling(data, GRID, **SMALL, **changes)]


def built(task, states=3, width=8, seed=0):
    torch.manual_seed(seed)
    return task.build(states, width)


def test_they_are_tasks_with_the_published_sizes_and_settings():
    for task, name in zip((Phones(made_set(), GRID), Speech(made_set(), GRID), SlotFilling(made_set(), GRID)), ("pr", "asr", "sf"),
                          strict=True):  # fmt: skip
        kept: Task = task
        assert (kept.name, kept.pooled, kept.wants_waves) == (name, False, False)
        head = task.build(13, 768)
        assert isinstance(head.featurizer, Featurizer) and len(head.featurizer.weights) == 13
        shape = head.ctc.shape
        sizes = (shape.projection, shape.lstm_layers, shape.lstm_width, shape.dropout)
        assert sizes == (1024, 2, 1024, 0.2) if name != "pr" else sizes[:2] == (256, 0) and shape.dropout == 0
        assert (head.masks is None) == (name == "pr")
        assert task.build(1, 80).featurizer.weights.shape == (1,)
    settings = [
        (s.learning_rate, s.steps, s.batch, s.every, s.optimiser, s.clip) for s in (PUBLISHED_PR, PUBLISHED_ASR, PUBLISHED_SF)
    ]
    assert settings == [(1e-2, 100_000, 32, 1_000, "Adam", 1.0), *[(1e-4, 200_000, 32, 2_000, "Adam", 1.0)] * 2]


def test_symbols_are_those_of_the_training_split_sorted():
    phones, speech, slots = tasks(made_set(dev=[("zebra", "ZH", [Slot("animal", "zebra")])]))
    assert phones.vocabulary.symbols == ("<blank>", *sorted({"T", "ER", "N", "AA", "AO", "F", "IH", "S", "P", "L", "EY"}))
    assert speech.vocabulary.symbols == ("<blank>", *sorted({*"turnonthelightofradio'splaynewyork|"}))
    markers = {"B-what", "E-what", "B-city", "E-city"}
    assert slots.vocabulary.symbols == ("<blank>", *sorted({*speech.vocabulary.symbols[1:]} | markers))


@pytest.mark.parametrize("i", range(3))
def test_predictions_depend_on_neither_padding_nor_mates_nor_training_mode(i):
    task = tasks()[i]
    head, batch = built(task).train(), batch_of(task.data.splits["dev"])
    whole = log_probabilities(head, batch)
    assert head.training
    for j, u in enumerate(batch.utterances):
        n = int(batch.lengths[j])
        alone = Batch((u,), batch.states[j : j + 1, :, :n], batch.lengths[j : j + 1])
        assert torch.allclose(log_probabilities(head, alone)[0], whole[j], atol=1e-5)
        longer = torch.nn.functional.pad(batch.states[j : j + 1, :, :n], (0, 0, 0, 9), value=7.0)
        assert torch.allclose(log_probabilities(head, Batch((u,), longer, alone.lengths))[0], whole[j], atol=1e-5)
    assert len(task.predict(head, batch)) == len(batch.utterances)


@pytest.mark.parametrize("i", range(3))
@pytest.mark.parametrize("frames", [1, 2, 7, 60])
def test_targets_that_do_not_fit_give_a_finite_loss_and_gradients(i, frames):
    task = tasks()[i]
    head, batch = built(task).train(), batch_of(task.data.splits["train"], frames=frames, shortest=1)
    loss = task.loss(head, batch)
    loss.backward()
    assert loss.isfinite() and all(p.grad is None or p.grad.isfinite().all() for p in head.parameters())


def test_unknown_symbols_and_empty_texts_in_dev_are_errors_not_crashes():
    data = made_set(dev=[("ζ über 7", "XX T", [Slot("odd type", "7")]), ("", "", []), ("on", "AA N", [])])
    for task in tasks(data):
        head, batch = built(task), batch_of(data.splits["dev"])
        assert task.loss(head, batch).isfinite()
        said = dict(zip(("dev0", "dev1", "dev2"), task.predict(head, batch), strict=True))
        assert np.isfinite(task.judge("dev", said, 0).measures[0].value)
    assert Phones(data, GRID).judge("dev", {"dev0": "T", "dev1": "", "dev2": "AA N"}, 0).measures[0].value == 25.0


@pytest.mark.parametrize("i", range(3))
def test_a_head_learns_what_it_is_told(i):
    """Frames say the symbols one after another, three frames each, in one hidden state of two."""
    wide = {"masks": SpecAugment(2, 1, 2, 1, 2), "dropout": 0.1, "lstm_width": 64}
    task = replace(tasks()[i], projection=32, **(wide if i else {}))
    train, symbols = task.data.splits["train"], task.vocabulary.numbers
    told = [u.phones.split() if i == 0 else spelt(u.text).replace(" ", "|") if i == 1 else _symbols(u) for u in train]
    codes = torch.randn(len(task.vocabulary), 12, generator=torch.Generator().manual_seed(0))
    frames = [codes[symbols(one)].repeat_interleave(3, 0) for one in told]
    summed = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
    batch = Batch(train, torch.stack([torch.zeros_like(summed), summed], 1), torch.tensor([len(f) for f in frames]))
    head = built(task, 2, 12)
    optimiser = torch.optim.Adam(head.parameters(), 1e-2 if i else 5e-2)
    for _ in range(160):
        optimiser.zero_grad()
        task.loss(head, batch).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
    said = dict(zip((u.id for u in train), task.predict(head, batch), strict=True))
    judged = task.judge("train", said, 0).measures
    assert judged[-1].value < 20, said
    assert task.name != "sf" or judged[0].value > 80
    assert head.featurizer.shares[1] > 0.6


# -- measures


def test_per_and_wer_are_pooled_and_what_was_not_heard_is_missing():
    data = made_set()
    per = Phones(data, GRID).judge("dev", {"dev0": "T ER N AA N", "dev1": "T ER AO F F", "dev2": "IH"}, 0).measures[0]
    assert (per.metric, per.n) == ("per", 4) and per.value == per.low == per.high == pytest.approx(100 * (0 + 2 + 4 + 3) / 18)
    speech = Speech(data, GRID)
    said = {"dev0": {"greedy": "turn on the light"}, "dev1": {"greedy": "turn of radio"}, "dev3": {"greedy": "play new york city"}}
    wer = speech.judge("dev", said, 0)
    assert wer.measures[0].value == pytest.approx(100 * (0 + 2 + 2 + 1) / 13) and len(wer.measures) == 1
    assert wer.detail["examples"][0] == {"id": "dev0", "truth": "turn on the light", "said": "turn on the light"}


def test_slots_are_measured_by_type_and_by_value():
    task = SlotFilling(made_set(), GRID)
    said = {
        "dev0": "turn on the B-what light E-what",
        "dev1": "turn off B-what the rado E-what B-city x E-city",
        "dev2": "it's on",
    }
    f1, cer = task.judge("dev", said, 0).measures
    assert (f1.metric, cer.metric) == ("slot_f1", "slot_cer")
    assert f1.value == pytest.approx(100 * (1 + 2 / 3 + 1 + 0) / 4) and cer.value == pytest.approx(100 * (0 + 1 + 8) / 22)
    heard_without = dict(said) | {"dev3": "play new york"}
    assert task.judge("dev", heard_without, 0).measures == task.judge("dev", said, 0).measures
    del said["dev2"]  # it has no slots, but was not heard: wrong all the same
    assert task.judge("dev", said, 0).measures[0].value == pytest.approx(100 * (1 + 2 / 3) / 4)


def test_intervals_are_drawn_by_speaker_and_hold_the_value():
    lines = LINES * 10
    data = made_set(dev=lines)
    said = {f"dev{i}": line[1] if i % 3 else "T" for i, line in enumerate(lines)}
    measure = Phones(data, GRID).judge("dev", said, 500).measures[0]
    assert measure.low < measure.value < measure.high and (measure.n, measure.drawn) == (40, "recording")
    five = UtteranceSet(
        data.root,
        "pr",
        data.splits | {"dev": tuple(replace(u, speaker=f"s{i % 5}") for i, u in enumerate(data.splits["dev"]))},
        "0",
    )
    measure = Phones(five, GRID).judge("dev", said, 500).measures[0]
    assert measure.low < measure.value < measure.high and (measure.drawn, measure.groups) == ("voice", 5)
    one = UtteranceSet(data.root, "pr", data.splits | {"dev": tuple(replace(u, speaker="ann") for u in data.splits["dev"])}, "0")
    alone = Phones(one, GRID).judge("dev", said, 500).measures[0]
    assert (alone.drawn, alone.groups) == ("recording", 40)  # four voices and fewer say nothing of others
    marked = {f"dev{i}": "B-what light E-what" for i in range(0, 40, 3)}
    for measure in SlotFilling(data, GRID).judge("dev", marked, 200).measures:
        assert measure.low <= measure.value <= measure.high


# -- the language model


def test_a_language_model_adds_its_texts_and_its_measure():
    data = made_set()
    task = replace(Speech(data, GRID, **SMALL), language_model=train_language_model(data), beam=BeamOptions(beam=8))
    head, batch = built(task), batch_of(data.splits["dev"])
    said = task.predict(head, batch)
    assert all(set(one) == {"greedy", "lm"} for one in said)
    known = {word for u in data.splits["train"] for word in "turn on off the light radio it's play new york".split()}
    assert all(set(one["lm"].split()) <= known for one in said)
    judged = task.judge("dev", dict(zip((u.id for u in data.splits["dev"]), said, strict=True)), 0)
    assert [m.metric for m in judged.measures] == ["wer", "wer_lm"]
    assert judged.measures[1].value <= 100 < 1000


def test_the_language_model_mends_what_letters_alone_get_wrong():
    data = made_set(lines=[("turn on the light", "", []), ("right", "", [])])
    task = Speech(data, GRID, language_model=train_ngram(["turn on the light", "right now"]))

    class Saying(torch.nn.Module):
        def forward(self, states, lengths):
            symbols = task.vocabulary.symbols
            path = [i for c in "turn|on|the|right" for i in (symbols.index(c), 0)]
            scores = torch.full((1, len(path), len(symbols)), -6.0)
            scores[0, range(len(path)), path] = 0.0
            scores[0, 24, symbols.index("l")] = -0.5
            return scores.log_softmax(-1)

    batch = Batch(data.splits["dev"][:1], torch.zeros(1, 1, 34, 1), torch.tensor([34]))
    assert task.predict(Saying(), batch) == [{"greedy": "turn on the right", "lm": "turn on the light"}]


# -- bad data


@pytest.mark.parametrize("task", [Phones, Speech, SlotFilling])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_split_without_what_the_task_asks_for_is_refused(task, split):
    data = made_set()
    data.splits[split] = tuple(Utterance(u.id, "x", 1.0, text="...") for u in data.splits[split])
    with pytest.raises(InputError, match=rf'{split}.jsonl has no "(phones|text|slots)"'):
        task(data, GRID)


def test_slots_that_the_text_does_not_have_are_refused():
    with pytest.raises(InputError, match=r"test.jsonl, utterance test0: the slot city 'rome' does not occur"):
        SlotFilling(made_set(test=[("fly to paris", "", [Slot("city", "rome")])]), GRID)
