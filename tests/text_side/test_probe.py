"""What is asked of language models of units, on words whose answers are known."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.errors import InputError
from speechssl.io import hash_bytes, read_json, write_json
from speechssl.results import read_rows
from speechssl.synth.synthesisers import pronounce
from speechssl.text_side.config import ProbeOptions, SpokenWords
from speechssl.text_side.probe import (
    KINDS,
    SpokenWord,
    bare,
    choose_pairs,
    few_shot,
    make_spoken_words,
    non_word,
    pairs_of,
    probe,
    read_spoken_words,
    same_different,
    spot_the_word,
)
from speechssl.text_side.tables import gains_tables
from speechssl.text_side.unit_lm import Bigram
from speechssl.timing import RunLength
from speechssl.units.storage import Part, Utterance, encode, part_name

from ..files import change_lines, write_lines

READ = {"one": [0, 1, 2], "two": [3, 4, 3], "ten": [5, 1, 5]}
VOICES = ("a", "b", "c")
LISTED = [
    (SpokenWord(f"{word}-{real}-{voice}", "", word, real, voice, ""), np.array(units if real else units[::-1]))
    for word, units in READ.items()
    for real in (True, False)
    for voice in VOICES
]


def test_the_likelier_of_two_is_spotted_and_a_draw_is_half_right() -> None:
    items, words = spot_the_word(Bigram([np.array(READ["one"])] * 9, 6), LISTED)
    assert items["one-a"] == (1.0, 1.0) and items["two-a"] == (1.0, 0.5)  # its non-word is the same backwards
    assert len(items) == 9 and words[0] == "one"
    with pytest.raises(InputError, match="no word has units with its non-word"):
        spot_the_word(Bigram([], 6), [pair for pair in LISTED if pair[0].real])


def test_the_same_word_by_another_voice_is_nearer_than_another_word() -> None:
    items, _ = same_different(Bigram([], 6), LISTED, 0)
    assert len(items) == 9 and {score for _, score in items.values()} == {1.0}
    assert {score for _, score in same_different(Bigram([], 6), LISTED, None)[0].values()} == {0.5}  # the same units backwards
    with pytest.raises(InputError, match="two words and two voices"):
        same_different(Bigram([], 6), [pair for pair in LISTED if pair[0].voice == "a"], 0)


def test_few_shot_asks_for_the_unit_behind_the_same_word() -> None:
    class Copies:
        """Finds the last units of a prompt earlier in it, and says what followed there."""

        symbols = 6

        def next_units(self, prompts: list[np.ndarray]) -> np.ndarray:
            found = np.zeros((len(prompts), 7))
            for line, prompt in zip(found, prompts, strict=True):
                last = prompt[-3:].tolist()
                places = [i for i in range(len(prompt) - 3) if prompt[i : i + 3].tolist() == last]
                line[prompt[places[0] + 3]] = 1
            return found

    options = ProbeOptions(ways=2, shots=2, queries=30)
    items, words = few_shot(Copies(), LISTED, options)  # type: ignore[arg-type]
    right = np.mean([gold == found for gold, found in items.values()])
    assert len(items) == 30 and right > 0.9 and {gold for gold, _ in items.values()} == {0.0, 1.0} and set(words) == set(READ)
    with pytest.raises(InputError, match="of which there are 3; give smaller --ways or --shots"):
        few_shot(Copies(), LISTED, ProbeOptions(ways=4, shots=2))  # type: ignore[arg-type]


@pytest.fixture
def spoken(save_units: Any, tmp_path: Path) -> Path:
    save_units({"r": RunLength(np.array([0, 1, 2, 0, 1, 2]), np.ones(6, int))}, {"codebook": "b"})
    write_lines(tmp_path / "words/words.jsonl", [asdict(word) for word, _ in LISTED])
    folder = tmp_path / "word-units"
    folder.mkdir()
    rows = [Utterance(word.id, 1.0, RunLength(units, np.ones(3, int)), "") for word, units in LISTED]
    content = encode(Part(rows, {}))
    (folder / part_name(0)).write_bytes(content)
    card = read_json(tmp_path / "units/train/_card.json")
    write_json(folder / "_card.json", card | {"parts": [{"file": part_name(0), "hash": hash_bytes(content)}]})
    return folder


def test_rows_and_a_table_of_a_floor(spoken: Path, tmp_path: Path) -> None:
    units, results, words = tmp_path / "units", tmp_path / "results", tmp_path / "words"
    options = ProbeOptions(split="train", ways=2, shots=1, queries=5)
    for arm in ("scratch", "text"):
        probe("bigram", units, results, arm, words, spoken, options)
    rows = {(r.system, r.encoder): r for r in read_rows(results / "results.jsonl")}
    counts = np.ones((7, 7))
    for a, b in zip([6, 0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2, 6], strict=True):
        counts[a, b] += 1
    logs = np.log(counts / counts.sum(1, keepdims=True))
    wanted = np.exp(-np.mean([logs[a, b] for a, b in zip([6, 0, 1, 2, 0, 1], [0, 1, 2, 0, 1, 2], strict=True)]))
    assert rows["perplexity", "text"].value == pytest.approx(wanted) and rows["spot-the-word", "text"].drawn == "word"
    (table,) = gains_tables(results, (), "scratch", 0)
    assert table.title == "A language model of units" and [row[0] for row in table.rows[:3]] == [
        "scratch",
        "text",
        "text over scratch",
    ]
    assert table.rows[2][1] == "+0.00" and "2 words, 1 examples of each; chance 50 %" in table.note
    gains = [r for r in read_rows(results / "results.jsonl") if r.metric == "gain"]
    assert {r.system for r in gains} == {"spot-the-word", "same-different", "same-non-word", "few-shot"}


def test_units_of_another_codebook_are_one_sentence(spoken: Path, tmp_path: Path) -> None:
    card = read_json(spoken / "_card.json")
    write_json(spoken / "_card.json", card | {"K": 100})
    arguments = ("bigram", tmp_path / "units", tmp_path / "r", "x", tmp_path / "words")
    with pytest.raises(InputError, match="are of a codebook of 100, those in .*units of one of 6"):
        probe(*arguments, spoken, ProbeOptions(split="train"))
    with pytest.raises(InputError, match="give both --spoken-words and --word-units, or neither"):
        probe(*arguments, None, ProbeOptions(split="train"))


needs_espeak = pytest.mark.skipif(importlib.util.find_spec("espeakng_loader") is None, reason="needs espeak-ng")
WORDS = "silver garden market lantern winter summer river letter dinner number paper table bottle candle carpet pocket".split()


def test_one_phone_becomes_another_of_its_kind_whose_neighbours_are_known() -> None:
    word = ("p", "'a", "t")
    pairs = dict.fromkeys([*pairs_of(("p", "a", "t")), *pairs_of(("b", "a", "d"))], 1)
    found = non_word(word, pairs, {("p", "a", "t")})
    assert found and found.other == ("b", "'a", "t") and found.place == 0  # of equals the first
    assert non_word(word, pairs, {("p", "a", "t"), ("b", "a", "t"), ("p", "a", "d")}) is None
    frequent = pairs | {("#", "p"): 50, ("p", "a"): 50, ("t", "#"): 50, ("d", "#"): 50, ("a", "d"): 1}
    nearest = non_word(word, frequent, {("p", "a", "t")})
    assert nearest and nearest.other == ("p", "'a", "d")


@needs_espeak
def test_the_commonest_words_get_non_words_that_no_word_sounds_like() -> None:
    pairs = choose_pairs({word: 20 - i for i, word in enumerate(WORDS)}, 4, 4, [])
    known = {bare(phones) for phones in pronounce(WORDS, "en-us", stress=True)}
    for pair in pairs:
        changed = [i for i, (a, b) in enumerate(zip(pair.phones, pair.other, strict=True)) if a != b]
        a, b = bare(pair.phones)[pair.place], bare(pair.other)[pair.place]
        assert changed == [pair.place] and any({a, b} <= set(kind) for kind in KINDS)
        assert bare(pair.phones) in known and bare(pair.other) not in known
    with pytest.raises(InputError, match="give fewer --words or --phones"):
        choose_pairs({"silver": 1}, 4, 4, [])


@needs_espeak
@pytest.mark.slow
def test_words_and_non_words_are_spoken_by_the_same_voices(mini_corpus: object, tmp_path: Path) -> None:
    root = mini_corpus((16_000,) * 3)  # type: ignore[operator]
    change_lines(root / "train/passages.jsonl", {"text": " ".join(WORDS)})
    made = SpokenWords(corpus=root, out=tmp_path / "words", words=2, voices=2)
    assert "2 words and as many non-words by 2 voices" in make_spoken_words(made)
    listed = read_spoken_words(tmp_path / "words")
    assert len(listed) == 8 and {(w.real, w.voice) for w in listed} == {
        (r, v) for r in (True, False) for v in {w.voice for w in listed}
    }
    samples = [read_audio(tmp_path / "words" / w.audio) for w in listed[:3:2]]  # the word and its non-word by one voice
    assert 3_000 < len(samples[0]) < 24_000 and samples[0].tolist() != samples[1].tolist()
    with pytest.raises(InputError, match="give --voices 8 at most"):
        make_spoken_words(SpokenWords(corpus=root, out=tmp_path / "x", voices=9))
    (tmp_path / "words/words.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(InputError, match=r"words.jsonl:1 is no line of"):
        read_spoken_words(tmp_path / "words")
