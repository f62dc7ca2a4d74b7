"""Language models of units learn what follows what and score recordings of any length; `probe`
tests them on words whose answers are known; `spoken_words` makes non-words."""

import importlib.util
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from probe import Probe, draw_prompt, few_shot, probe, same_different, spot_the_word
from speechssl.artifacts import hash_bytes, read_json, write_json
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.synth.synthesisers import pronounce
from speechssl.timing import RunLength
from speechssl.units.storage import Part, UtteranceUnits, encode_part, name_part
from spoken_words import (
    KINDS,
    SpokenWord,
    choose_pairs,
    make_non_word,
    pair_neighbours,
    remove_stress,
)
from textside.lm import Bigram, load_unit_lm, read_utterances
from textside.objectives import make_gpt2
from unit_lm import TrainUnitLm, train_unit_lm

from ...files import change_json, refused, write_lines

CYCLE = np.tile([0, 3, 1, 4, 2, 5], 12)  # units, each of which has one successor
POSITIONS = 32  # of the language model of text that training starts from


def train(units, out, start, steps=2, **options):
    """Train a model of units. options: of TrainUnitLm, in the place of these."""
    training = TrainingOptions(
        steps=steps, learning_rate=1e-2, warmup_steps=1, log_every=5, bf16=False
    )
    options = {"length": 20, "batch": 4, "eval_split": "train", "training": training} | options
    train_unit_lm(TrainUnitLm(units=units, out=out, start=start, **options))


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """The folder of a language model of text."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt")
    model = make_gpt2(vocabulary=50, layers=1, width=16, heads=2, positions=POSITIONS)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def units(save_units):
    """The folder of the units of four recordings."""
    runs = {f"r{i}": RunLength(np.roll(CYCLE, i), np.full(len(CYCLE), 3)) for i in range(4)}
    return Path(save_units(runs, {"codebook": "b"}))


@pytest.mark.slow
def test_a_model_learns_what_follows_what(units, gpt, tmp_path):
    train(units, tmp_path / "lm", gpt, steps=60, eval_every=30)
    first, last = read_json(tmp_path / "lm/card.json")["curve"]
    assert (first["step"], last["step"]) == (30, 60)
    assert first["score"] < 6  # perplexity of six equally likely units
    assert last["score"] < 1.5
    lm = load_unit_lm(tmp_path / "lm")
    prompts = [CYCLE[:size] for size in range(9, 15)]
    assert lm.next_units(prompts).argmax(1).tolist() == CYCLE[9:15].tolist()
    scores = lm.log_probs([CYCLE[:10], CYCLE[:3]])
    assert [len(s) for s in scores] == [10, 3]
    assert scores[0][1:].min() > np.log(0.5)


def test_long_recordings_are_scored_whole_in_windows(units, gpt, tmp_path):
    train(units, tmp_path / "lm", gpt, length=POSITIONS)
    lm = load_unit_lm(tmp_path / "lm")
    assert lm.positions == POSITIONS
    window = POSITIONS - 1  # units behind the symbol before them
    sequence = CYCLE[:50]
    (scores,) = lm.log_probs([sequence])
    assert len(scores) == 50
    (first_window,) = lm.log_probs([sequence[:window]])
    assert np.allclose(scores[:window], first_window, atol=1e-5)
    # the second window overlaps by half, and goes on from unit 14
    start = window // 2
    second = sequence[start : start + window]
    ((_, logits, _),) = lm.run([second], [int(sequence[start - 1])])
    log_probs = logits[:-1].log_softmax(-1)
    second_window = log_probs[torch.arange(window), torch.as_tensor(second)].numpy()
    new = window - start  # the first of its units that the first window does not score
    assert np.allclose(scores[window : start + window], second_window[new:], atol=1e-5)


def test_a_prompt_that_is_too_long_is_refused(units, gpt, tmp_path):
    train(units, tmp_path / "lm", gpt, length=POSITIONS)
    lm = load_unit_lm(tmp_path / "lm")
    sentence = f"a sequence of {POSITIONS} units does not fit into the {POSITIONS}"
    refused(sentence, lm.next_units, [CYCLE[:POSITIONS]])


def test_positions_beyond_those_of_training_and_another_codebook_are_not_used(units, gpt, tmp_path):
    train(units, tmp_path / "lm", gpt, length=20)
    lm = load_unit_lm(tmp_path / "lm")
    assert lm.positions == POSITIONS
    assert lm.window == 20
    (before,) = lm.log_probs([CYCLE[:60]])
    assert len(before) == 60
    with torch.no_grad():
        lm.model.body.wpe.weight[20:] = 9.0
    (after,) = lm.log_probs([CYCLE[:60]])
    assert np.array_equal(after, before)
    change_json(units / "train/_card.json", codebooks=["other"])
    refused("another codebook", read_utterances, units / "train", lm.card)


def test_a_bigram_counts_pairs_of_units():
    floor = Bigram([np.array([0, 1, 0, 1])], symbols=2)
    (scores,) = floor.log_probs([np.array([0, 1])])
    # behind the beginning of a recording 0 came once, behind 0 came 1 twice; one is added to each
    # of the counts of three symbols
    assert np.exp(scores) == pytest.approx([(1 + 1) / (1 + 3), (2 + 1) / (2 + 3)])
    assert floor.states([np.array([0, 1, 1, 1])]).tolist() == [[0.25, 0.75]]


# ---- tests of words

UNITS = {"one": [0, 1, 2], "two": [3, 4, 3], "ten": [5, 1, 5]}  # of words, whoever says them
SYMBOLS = 6
VOICES = ("a", "b", "c")
PROBE = {  # options of Probe
    "model": "bigram",
    "units": Path("u"),
    "spoken_words": Path("w"),
    "word_units": Path("w"),
    "results": Path("r"),
    "arm": "x",
}


def list_spoken_words():
    """List every word and its non-word by every voice, with its units; those of the non-word are
    the word's backwards."""
    spoken = []
    for word, units in UNITS.items():
        for real in (True, False):
            for voice in VOICES:
                name = f"{word}-{real}-{voice}"
                line = SpokenWord(id=name, audio="", word=word, real=real, voice=voice, phones="")
                spoken.append((line, np.array(units if real else units[::-1])))
    return spoken


def test_the_likelier_of_two_is_spotted_and_a_draw_is_half_right():
    lm = Bigram([np.array(UNITS["one"])] * 9, SYMBOLS)
    items, words = spot_the_word(lm, list_spoken_words())
    assert len(items) == len(UNITS) * len(VOICES)
    assert words[0] == "one"
    # gold, which is 1, and predicted: 1 where the word is likelier, 0.5 in a draw
    assert items["one-a"] == (1.0, 1.0)
    assert items["two-a"] == (1.0, 0.5)  # 3 4 3 is the same backwards


def test_the_same_word_by_another_voice_is_nearer_than_another_word():
    items, _ = same_different(Bigram([], SYMBOLS), list_spoken_words(), seed=0)
    assert len(items) == len(UNITS) * len(VOICES)
    assert {score for _, score in items.values()} == {1.0}
    # without a seed the word's own non-word is compared, whose units are the same
    items, _ = same_different(Bigram([], SYMBOLS), list_spoken_words(), seed=None)
    assert {score for _, score in items.values()} == {0.5}


def test_few_shot_asks_for_the_unit_behind_the_same_word():
    class CopyingModel:
        """Looks up the last three units of a prompt earlier in it, and predicts the unit that
        followed there."""

        symbols = SYMBOLS

        def next_units(self, prompts):
            scores = np.zeros((len(prompts), SYMBOLS + 1))
            for line, prompt in zip(scores, map(list, prompts), strict=True):
                first = next(i for i in range(len(prompt)) if prompt[i : i + 3] == prompt[-3:])
                line[prompt[first + 3]] = 1
            return scores

    spoken = list_spoken_words()
    options = Probe(**PROBE, ways=2, shots=2, queries=30)
    items, words = few_shot(CopyingModel(), spoken, options)
    assert len(items) == 30
    assert np.mean([gold == predicted for gold, predicted in items.values()]) > 0.9
    assert {gold for gold, _ in items.values()} == {0.0, 1.0}
    assert set(words) == set(UNITS)
    too_many = Probe(**PROBE, ways=4, shots=2)
    refused("give smaller --ways", few_shot, CopyingModel(), spoken, too_many)


def test_units_that_stand_for_words_are_distinct_and_never_stand_beside_themselves():
    readings = [[np.array(units)] * 3 for units in UNITS.values()]
    options = Probe(**PROBE, ways=3, shots=2)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        prompt, word_units = draw_prompt(readings, right=1, symbols=12, o=options, rng=rng)
        assert len(set(word_units.tolist())) == 3
        assert (prompt[1:] != prompt[:-1]).all()


@pytest.fixture
def word_units(save_units, tmp_path):
    """The folder of the units of all spoken words; words/ and units/ are written beside it."""
    save_units({"r": RunLength(np.array([0, 1, 2, 0, 1, 2]), np.ones(6, int))}, {"codebook": "b"})
    spoken = list_spoken_words()
    write_lines(tmp_path / "words/words.jsonl", [asdict(word) for word, _ in spoken])
    folder = tmp_path / "word-units"
    folder.mkdir()
    utterances = []
    for word, units in spoken:
        utterances.append(UtteranceUnits(word.id, 1.0, RunLength(units, np.ones(3, int)), ""))
    content = encode_part(Part(utterances, {}))
    (folder / name_part(0)).write_bytes(content)
    parts = [{"file": name_part(0), "hash": hash_bytes(content)}]
    card = read_json(tmp_path / "units/train/_card.json")
    write_json(folder / "_card.json", card | {"parts": parts})
    return folder


def test_a_bigram_is_probed_as_a_floor(word_units, tmp_path):
    options = Probe(
        model="bigram",
        units=tmp_path / "units",
        spoken_words=tmp_path / "words",
        word_units=word_units,
        results=tmp_path / "results",
        arm="text",
        split="train",
        ways=2,
        shots=1,
        queries=5,
    )
    probe(options)
    rows = {row.task: row for row in read_rows(tmp_path / "results/results.jsonl")}
    recording, edge = [0, 1, 2, 0, 1, 2], SYMBOLS
    counts = np.ones((SYMBOLS + 1, SYMBOLS + 1))
    for pair in pairwise([edge, *recording, edge]):
        counts[pair] += 1
    logs = np.log(counts / counts.sum(1, keepdims=True))
    mean = np.mean([logs[pair] for pair in pairwise([edge, *recording])])
    assert rows["perplexity"].value == pytest.approx(np.exp(-mean))
    assert rows["spot-the-word"].drawn == "word"


needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None, reason="needs espeak-ng"
)
WORDS = (
    "silver garden market lantern winter summer river letter dinner number paper table "
    "bottle candle carpet pocket"
).split()


def test_one_phone_becomes_another_of_its_kind_whose_neighbours_are_known():
    pat, bat, pad, bad = ("p", "a", "t"), ("b", "a", "t"), ("p", "a", "d"), ("b", "a", "d")
    stressed = ("p", "'a", "t")
    pairs = dict.fromkeys([*pair_neighbours(pat), *pair_neighbours(bad)], 1)
    pair = make_non_word("", stressed, pairs, real={pat})
    assert pair.other == ("b", "'a", "t")  # all pairs are equally frequent: the first place
    assert pair.place == 0
    assert make_non_word("", stressed, pairs, real={pat, bat, pad}) is None
    # the non-word whose neighbours are about as frequent as the word's is taken: those of "pat" and
    # "pad" are now, those of "bat" are rarer
    frequent = pairs | dict.fromkeys([("#", "p"), ("p", "a"), ("t", "#"), ("d", "#")], 50)
    assert make_non_word("", stressed, frequent, real={pat}).other == ("p", "'a", "d")


@needs_espeak
def test_the_commonest_words_get_non_words_that_no_word_sounds_like():
    counts = {word: 20 - i for i, word in enumerate(WORDS)}
    pairs = choose_pairs(counts, count=4, fewest=4, avoided=[])
    known = {remove_stress(phones) for phones in pronounce(WORDS, stress=True)}
    for pair in pairs:
        phones = zip(pair.phones, pair.other, strict=True)
        assert [i for i, (a, b) in enumerate(phones) if a != b] == [pair.place]
        word, other = remove_stress(pair.phones), remove_stress(pair.other)
        assert any({word[pair.place], other[pair.place]} <= set(kind) for kind in KINDS)
        assert word in known
        assert other not in known
    refused("give fewer --words or --phones", choose_pairs, {"silver": 1}, 4, 4, [])


@pytest.mark.parametrize(
    "changes", [{"length": POSITIONS + 1}, {"start": "BERT"}, {"split": "test"}]
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(changes, units, gpt, checkpoint, tmp_path):
    start = str(checkpoint("BERT")) if "start" in changes else gpt
    with pytest.raises(InputError):
        train(units, tmp_path / "a", **changes | {"start": start})
    assert not (tmp_path / "a").exists()
