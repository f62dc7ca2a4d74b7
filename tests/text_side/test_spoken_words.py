"""Words and their non-words: the rule, and what is spoken."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from speechssl.audio import read_audio
from speechssl.errors import InputError
from speechssl.synth.synthesisers import pronounce
from speechssl.text_side.config import SpokenWords
from speechssl.text_side.spoken_words import KINDS, bare, choose_pairs, make_spoken_words, non_word, pairs_of, read_spoken_words

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
    path = root / "train/passages.jsonl"
    texts = [" ".join(WORDS)] * 3
    lines = [json.loads(line) | {"text": text} for line, text in zip(path.read_text().splitlines(), texts, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
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
