"""Language models of units: what they learn and how they score; what is asked of them, on words
whose answers are known."""

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
from speechssl.units.storage import Part, UtteranceUnits, encode_part, part_name
from spoken_words import (
    KINDS,
    SpokenWord,
    choose_pairs,
    list_neighbours,
    make_non_word,
    remove_stress,
)
from textside.lm import Bigram, UnitLm, load_unit_lm, read_utterances
from textside.objectives import make_gpt2
from unit_lm import TrainUnitLm, train_unit_lm

from ...files import change_json, refused, write_lines

CYCLE = np.tile([0, 3, 1, 4, 2, 5], 12)


def trained(units, out, start, steps=2, **changes):
    training = TrainingOptions(steps, 1e-2, 1, log_every=5, bf16=False)
    sizes = {"length": 20, "batch": 4, "eval_split": "train", "training": training}
    train_unit_lm(TrainUnitLm(units=units, out=out, start=start, **sizes | changes))


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """A language model of text with 32 positions."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt")
    make_gpt2(50, 1, 16, 2, 32).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def units(save_units):
    runs = {f"r{i}": RunLength(np.roll(CYCLE, i), np.full(len(CYCLE), 3)) for i in range(4)}
    return Path(save_units(runs, {"codebook": "b"}))


@pytest.mark.slow
def test_it_learns_what_follows_what(units, gpt, tmp_path):
    trained(units, tmp_path / "lm", gpt, steps=60, eval_every=30)
    first, last = read_json(tmp_path / "lm/card.json")["curve"]
    assert (first["step"], last["step"]) == (30, 60)
    assert last["score"] < first["score"] < 6
    assert last["score"] < 1.5
    lm = load_unit_lm(tmp_path / "lm")
    prompts = [CYCLE[:size] for size in range(9, 15)]
    assert lm.next_units(prompts).argmax(1).tolist() == CYCLE[9:15].tolist()
    scores = lm.log_probs([CYCLE[:10], CYCLE[:3]])
    assert [len(s) for s in scores] == [10, 3]
    assert scores[0][1:].min() > np.log(0.5)


def test_long_recordings_are_scored_whole_in_windows(units, gpt, tmp_path):
    trained(units, tmp_path / "lm", gpt, length=32)
    lm = load_unit_lm(tmp_path / "lm")
    sequence = CYCLE[:50]
    (short,), (long,) = lm.log_probs([sequence[:31]]), lm.log_probs([sequence])
    assert (lm.positions, len(long)) == (32, 50)
    assert np.allclose(long[:31], short, atol=1e-5)
    # the second window begins at 15,
    (_, logits, _), *_ = UnitLm(lm.model, 6, 32).run([sequence[15:46]], [int(sequence[14])])
    # where no recording does
    later = logits.log_softmax(-1)[torch.arange(31), torch.as_tensor(sequence[15:46])].numpy()
    assert np.allclose(long[31:46], later[16:], atol=1e-5)
    refused("a sequence of 32 units does not fit into the 32", lm.next_units, [CYCLE[:32]])


def test_positions_that_training_never_saw_score_nothing(units, gpt, tmp_path):
    trained(units, tmp_path / "lm", gpt)
    lm, sequence = load_unit_lm(tmp_path / "lm"), CYCLE[:60]
    before = lm.log_probs([sequence])[0]
    assert (lm.positions, lm.window, len(before)) == (32, 20, 60)
    with torch.no_grad():
        lm.model.body.wpe.weight[20:] = 9.0
    assert np.array_equal(lm.log_probs([sequence])[0], before)
    change_json(units / "train/_card.json", codebooks=["other"])
    refused("another codebook", read_utterances, units / "train", lm.card)


def test_pairs_of_units_alone():
    floor = Bigram([np.array([0, 1, 0, 1])], 2)
    (scores,) = floor.log_probs([np.array([0, 1])])
    # counts 1, 0, 0 behind the beginning, 0, 2, 0 behind 0; one more each
    assert np.exp(scores) == pytest.approx([2 / 4, 3 / 5])
    assert floor.states([np.array([0, 1, 1, 1])]).tolist() == [[0.25, 0.75]]


# ---- what a model knows

READ = {"one": [0, 1, 2], "two": [3, 4, 3], "ten": [5, 1, 5]}
VOICES = ("a", "b", "c")
PROBED = {
    "model": "bigram",
    "units": Path("u"),
    "spoken_words": Path("w"),
    "word_units": Path("w"),
    "results": Path("r"),
    "arm": "x",
}
LISTED = [
    (
        SpokenWord(f"{word}-{real}-{voice}", "", word, real, voice, ""),
        np.array(units if real else units[::-1]),
    )
    for word, units in READ.items()
    for real in (True, False)
    for voice in VOICES
]


def test_the_likelier_of_two_is_spotted_and_a_draw_is_half_right():
    items, words = spot_the_word(Bigram([np.array(READ["one"])] * 9, 6), LISTED)
    # its non-word is the same backwards
    assert items["one-a"] == (1.0, 1.0) and items["two-a"] == (1.0, 0.5)
    assert len(items) == 9 and words[0] == "one"


def test_the_same_word_by_another_voice_is_nearer_than_another_word():
    items, _ = same_different(Bigram([], 6), LISTED, 0)
    assert len(items) == 9 and {score for _, score in items.values()} == {1.0}
    # the same units backwards
    assert {score for _, score in same_different(Bigram([], 6), LISTED, None)[0].values()} == {0.5}


def test_few_shot_asks_for_the_unit_behind_the_same_word():
    class Copies:
        """Finds the last units of a prompt earlier in it, and says what followed there."""

        symbols = 6

        def next_units(self, prompts):
            found = np.zeros((len(prompts), 7))
            for line, prompt in zip(found, map(list, prompts), strict=True):
                first = next(i for i in range(len(prompt)) if prompt[i : i + 3] == prompt[-3:])
                line[prompt[first + 3]] = 1
            return found

    items, words = few_shot(Copies(), LISTED, Probe(**PROBED, ways=2, shots=2, queries=30))
    assert len(items) == 30
    assert np.mean([gold == found for gold, found in items.values()]) > 0.9
    assert {gold for gold, _ in items.values()} == {0.0, 1.0}
    assert set(words) == set(READ)
    many = Probe(**PROBED, ways=4, shots=2)
    refused(
        "of which there are 3; give smaller --ways or --shots", few_shot, Copies(), LISTED, many
    )


@pytest.mark.parametrize("seed", range(3))
def test_units_that_stand_for_words_are_distinct_and_never_stand_beside_themselves(seed: int):
    readings = [[np.array(units)] * 3 for units in READ.values()]
    options = Probe(**PROBED, ways=3, shots=2)
    prompt, signs = draw_prompt(readings, 1, 12, options, np.random.default_rng(seed))
    assert len(set(signs.tolist())) == 3
    assert (prompt[1:] != prompt[:-1]).all()


@pytest.fixture
def spoken(save_units, tmp_path):
    save_units({"r": RunLength(np.array([0, 1, 2, 0, 1, 2]), np.ones(6, int))}, {"codebook": "b"})
    write_lines(tmp_path / "words/words.jsonl", [asdict(word) for word, _ in LISTED])
    folder = tmp_path / "word-units"
    folder.mkdir()
    runs = [(word.id, RunLength(units, np.ones(3, int))) for word, units in LISTED]
    content = encode_part(Part([UtteranceUnits(name, 1.0, some, "") for name, some in runs], {}))
    (folder / part_name(0)).write_bytes(content)
    parts = [{"file": part_name(0), "hash": hash_bytes(content)}]
    card = read_json(tmp_path / "units/train/_card.json")
    write_json(folder / "_card.json", card | {"parts": parts})
    return folder


def test_rows_and_a_table_of_a_floor(spoken, tmp_path):
    places = {"units": tmp_path / "units", "spoken_words": tmp_path / "words", "word_units": spoken}
    few = {"split": "train", "ways": 2, "shots": 1, "queries": 5}
    for arm in ("scratch", "text"):
        probe(Probe(**PROBED | places | few | {"results": tmp_path / "results", "arm": arm}))
    rows = {(r.task, r.encoder): r for r in read_rows(tmp_path / "results/results.jsonl")}
    counts = np.ones((7, 7))
    for pair in pairwise([6, 0, 1, 2, 0, 1, 2, 6]):
        counts[pair] += 1
    logs = np.log(counts / counts.sum(1, keepdims=True))
    wanted = np.exp(-np.mean([logs[pair] for pair in pairwise([6, 0, 1, 2, 0, 1, 2])]))
    assert rows["perplexity", "text"].value == pytest.approx(wanted)
    assert rows["spot-the-word", "text"].drawn == "word"


needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None, reason="needs espeak-ng"
)
WORDS = (
    "silver garden market lantern winter summer river letter dinner number paper table "
    "bottle candle carpet pocket"
).split()


def test_one_phone_becomes_another_of_its_kind_whose_neighbours_are_known():
    word, pat, bat, pad = ("p", "'a", "t"), ("p", "a", "t"), ("b", "a", "t"), ("p", "a", "d")
    pairs = dict.fromkeys([*list_neighbours(pat), *list_neighbours(("b", "a", "d"))], 1)
    found = make_non_word("", word, pairs, {pat})
    assert (found.other, found.place) == (("b", "'a", "t"), 0)  # of equals the first
    assert make_non_word("", word, pairs, {pat, bat, pad}) is None
    frequent = pairs | dict.fromkeys([("#", "p"), ("p", "a"), ("t", "#"), ("d", "#")], 50)
    assert make_non_word("", word, frequent, {pat}).other == ("p", "'a", "d")


@needs_espeak
def test_the_commonest_words_get_non_words_that_no_word_sounds_like():
    pairs = choose_pairs({word: 20 - i for i, word in enumerate(WORDS)}, 4, 4, [])
    known = {remove_stress(phones) for phones in pronounce(WORDS, "en-us", stress=True)}
    for pair in pairs:
        both = zip(pair.phones, pair.other, strict=True)
        assert [i for i, (a, b) in enumerate(both) if a != b] == [pair.place]
        word, other = remove_stress(pair.phones), remove_stress(pair.other)
        assert any({word[pair.place], other[pair.place]} <= set(kind) for kind in KINDS)
        assert word in known
        assert other not in known
    refused("give fewer --words or --phones", choose_pairs, {"silver": 1}, 4, 4, [])


@pytest.mark.parametrize("changes", [{"length": 131}, {"start": "BERT"}, {"split": "test"}])
def test_what_does_not_fit_is_refused_and_leaves_nothing(changes, units, gpt, checkpoint, tmp_path):
    start = str(checkpoint("BERT")) if "start" in changes else gpt
    with pytest.raises(InputError):
        trained(units, tmp_path / "a", **changes | {"start": start})
    assert not (tmp_path / "a").exists()
