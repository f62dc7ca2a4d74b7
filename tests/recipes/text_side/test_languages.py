"""Languages in one space: ranks, chance, words in their context, language vectors, and shifts that
readers take."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import translate as program
from align import Align, align, chance, reciprocal_ranks
from gains import Gains, gains_tables
from pretrain import PretrainText, pretrain_text
from speechssl.artifacts import read_json
from speechssl.data.records import data_hash
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.layers import hook_layer, layers_of, load_shift
from speechssl.timing import FrameGrid, RunLength
from textside.data import load_text
from textside.languages import (
    load_body,
    make_finder,
    mean_states,
    record_layers,
    text_sequences,
    unit_sequences,
)
from translate import load_predictor
from vector import Vector, write_vector

from ...files import change_lines, refused, untouched

ENGLISH = (
    "the red lamp of anna is old",
    "anna bought a red lamp",
    "the cat is grey and the dog is red",
)
MANDARIN = ("红色的台灯很旧", "小猫是灰色的", "小狗和台灯是红色的")
OPTIONS = {"length": 16, "batch": 2}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folders = tmp_path_factory.mktemp("en"), tmp_path_factory.mktemp("zh")
    for folder, lines in zip(folders, (ENGLISH, MANDARIN), strict=True):
        for i, line in enumerate(lines):
            (folder / f"{i}.txt").write_text(line, encoding="utf-8")
    return folders


@pytest.fixture(scope="module")
def bilingual(texts, tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "out"
    size = {"layers": 2, "width": 16, "heads": 2, "length": 16, "batch": 4, "vocabulary": 120}
    both = {"text": texts[0], "second_text": texts[1]}
    training = TrainingOptions(3, 1e-3, 1, bf16=False)
    pretrain_text(PretrainText(out=out, training=training, **both, **size))
    return out / "encoder"


@pytest.fixture
def two(texts, bilingual):
    """Options of all programs that read two languages."""
    return {"first": texts[0], "second": texts[1], "encoder": str(bilingual)} | OPTIONS


# ---- ranks


def test_ranks_are_those_of_the_nearest_right_word_and_equals_are_wrong_first():
    first = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    second = np.array([[3.0, 0.1], [0.1, 1.0], [-1.0, 0.0]])
    found = reciprocal_ranks(first, second, {0: [0], 1: [0], 2: [0, 2]})
    assert found == {0: 1, 1: 1 / 2, 2: 1 / 2}
    alike = np.ones((4, 2))
    # a collapsed encoder knows nothing
    assert reciprocal_ranks(alike, alike, {0: [0], 1: [1, 2]}) == {0: 1 / 4, 1: 1 / 3}


@pytest.mark.parametrize(("candidates", "right"), [(1, 1), (4, 1), (5, 2), (5, 5)])
def test_chance_is_the_mean_over_all_orders(candidates, right):
    orders = permutations(range(candidates))
    ranks = [1 + min(order.index(i) for i in range(right)) for order in orders]
    assert chance(candidates, right) == pytest.approx(np.mean(1 / np.array(ranks)))


# ---- words


@pytest.mark.parametrize(
    ("words", "text", "places"),
    [
        (
            ["art", "fire", "fire fighter"],
            "Artful art of a fire fighter",
            [(0, 7, 10), (2, 16, 28)],
        ),
        (["一月", "十一月"], "十一月和一月", [(1, 0, 3), (0, 4, 6)]),
        ([], "anything", []),
    ],
)
def test_whole_words_are_found_and_the_longest_first(words, text, places):
    assert make_finder(words)(text) == places


def test_words_of_speech_are_the_units_between_their_times(mini_corpus, save_units, tmp_path):
    root = mini_corpus((16_000, 16_000))
    words = [["a", 0.0, 0.2], ["fire", 0.2, 0.4], ["fighter", 0.4, 0.8]]
    change_lines(root / "train/passages.jsonl", {"text": "a fire fighter", "words": words})
    frames = np.arange(FrameGrid(16_000, 320, 400).frames(16_000)) // 5  # a unit is 0.1 s
    units = dict.fromkeys(("p0", "p1"), RunLength.of_frames(frames))
    save_units(units, {"codebook": "b", "corpus": data_hash(root, "train")})
    tokens = 100 + np.arange(int(frames.max()) + 1)
    ((ids, places), _) = unit_sequences(root, tmp_path / "units", ["fire fighter"], tokens, 50, 9)
    ((_, first, stop),) = places
    assert ids[first:stop].tolist() == [102, 103, 104, 105, 106, 107]


# ---- states and shifts


@pytest.mark.parametrize("family", ["BERT", "DistilBERT", "T5", "ModernBERT"])
def test_layers_are_those_that_transformers_gives_and_can_be_changed(family, checkpoint):
    encoder = load_text_encoder(str(checkpoint(family)))[0].eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        with record_layers(encoder) as states:
            made = encoder(input_ids=ids, output_hidden_states=True)
        assert len(states) == len(layers_of(encoder)) + 1
        # the last one may have a norm of its own
        for found, expected in zip(states, made.hidden_states[:-1], strict=False):
            assert torch.allclose(found, expected)
        by = torch.full((states[0].shape[-1],), 0.5)
        by[0] = -1
        for layer in (0, 1):
            shifted = hook_layer(encoder, layer, lambda hidden: hidden + by)
            with shifted, record_layers(encoder) as moved:
                other = encoder(input_ids=ids).last_hidden_state
            assert torch.allclose(moved[layer], states[layer] + by)
            assert not torch.allclose(other, made.last_hidden_state, atol=1e-3)
        # as before
        assert torch.equal(encoder(input_ids=ids).last_hidden_state, made.last_hidden_state)


def test_states_of_words_are_means_over_their_occurrences(bilingual):
    body = load_body(str(bilingual))
    one, other = np.array([6, 7, 8]), np.array([9, 6])
    read = mean_states(body, [(one, ((0, 0, 2),)), (other, ((0, 1, 2),))], 2, 2)
    cls, sep = (body.tokenizer.convert_tokens_to_ids(t) for t in ("[CLS]", "[SEP]"))

    def alone(ids):
        with torch.inference_mode():
            states = body(torch.tensor([[cls, *ids, sep]]), torch.ones(1, len(ids) + 2))
        return states[0, 1:-1].numpy()

    first, second = alone(one), alone(other)
    assert read.counts.tolist() == [2, 0]
    assert read.words.shape == (3, 2, 16)
    assert np.allclose(read.words[-1, 0], (first[:2].mean(0) + second[1]) / 2, atol=1e-5)
    assert np.allclose(read.mean[-1], np.concatenate([first, second]).mean(0), atol=1e-5)


@pytest.fixture
def means(bilingual, texts):
    """A function (body, layer) -> the mean states of English and Mandarin there."""

    def means(body, layer):
        read = [text_sequences(load_text(folder), (), body.tokenizer, 14, 99) for folder in texts]
        return [mean_states(body, some, 0, 2).mean[layer] for some in read]

    return means


def test_a_shift_brings_one_mean_to_the_other(bilingual, means, two, tmp_path):
    path = tmp_path / "shifts/mean-difference.safetensors"
    write_vector(Vector(out=path, layer=1, **two))
    shift, about = load_shift(path)
    assert (about["options"]["method"], about["layer"]) == ("mean-difference", 1)
    body = load_body(str(bilingual))
    english, mandarin = means(body, 1)
    assert not np.allclose(english, mandarin, atol=1e-2)
    shift.attach(body.encoder)
    assert np.allclose(means(body, 1)[1], english, atol=1e-4)
    with untouched(path.parent):
        write_vector(Vector(out=path, layer=1, **two))
    far = tmp_path / "far.safetensors"
    refused(
        "made from other inputs", write_vector, Vector(out=path, layer=1, method="zero-mean", **two)
    )
    refused("no layer 3; choose 0", write_vector, Vector(out=far, layer=3, **two))
    path.write_bytes(b"x")
    refused("is no shift", load_shift, path)


# ---- verbs


def test_alignment_leaves_rows_of_every_layer_and_a_table(two, tmp_path):
    align(Align(results=tmp_path, arm="bilingual", **two))
    card = read_json(tmp_path / "runs/alignment/bilingual-0/card.json")
    assert (card["pairs"], len(card["layers"])) == (5, 3)
    assert card["chance"] == pytest.approx(chance(5))
    rows = {row.task: row for row in read_rows(tmp_path / "results.jsonl")}
    assert set(rows) == {f"alignment-{n}{less}" for n in range(3) for less in ("", "-zero-mean")}
    last = rows["alignment-2"]
    assert last.value == pytest.approx(100 * card["layers"][2][""])
    assert (last.n, last.drawn, last.groups) == (10, "word", 5)  # both directions together
    (table,) = gains_tables(Gains(results=tmp_path))
    assert table.columns[4:] == ("layer 0", "layer 1", "layer 2")
    assert [row[1] for row in table.rows] == ["as they are", "zero-mean"]
    with untouched(tmp_path):
        align(Align(results=tmp_path, arm="bilingual", **two))


def test_the_language_vector_turns_tokens_into_the_other_language(
    bilingual, means, two, tmp_path, monkeypatch, capsys
):
    body = load_body(str(bilingual))
    english, mandarin = (torch.from_numpy(mean).float() for mean in means(body, 2))
    red, lamp = body.tokenizer.convert_tokens_to_ids(["红", "the"])

    def predict(ids, mask):
        """红 for a state that is on the side of Mandarin's mean, else the."""
        side = (body(ids, mask) - (english + mandarin) / 2) @ (mandarin - english)
        logits = torch.zeros(*ids.shape, len(body.tokenizer))
        logits[..., red], logits[..., lamp] = 100 * side, -100 * side
        return logits

    monkeypatch.setattr(program, "load_predictor", lambda _: (body, predict))
    into = two | {"results": tmp_path}
    program.translate(program.Translate(arm="bilingual", layers=(2,), alphas=(0.0, 20.0), **into))
    assert "one token everywhere" in capsys.readouterr().out
    plain, moved = read_json(tmp_path / "runs/translation/bilingual-0/card.json")["cells"]
    assert moved["converted"] == 100 > plain["converted"]
    # red lamp old; red lamp; cat grey dog red: one token of each is 红
    assert moved["precision"] == pytest.approx(100 * np.mean([1 / 3, 1 / 2, 1 / 4]))
    assert moved["examples"][0] == ["the red lamp of anna is old", " ".join(["红"] * 7)]
    tables = {table.title: table for table in gains_tables(Gains(results=tmp_path))}
    assert [row[2] for row in tables["Token translation"].rows] == ["0", "20"]
    assert "Token translation: examples" in tables
    far = program.Translate(arm="far", layers=(9,), **into)
    refused("has no layer 9", program.translate, far)


def test_the_head_of_pretraining_predicts_as_it_did(bilingual, tmp_path):
    body, predict = load_predictor(str(bilingual))
    ids, mask = torch.tensor([[5, 6, 7, 8]]), torch.ones(1, 4, dtype=torch.long)
    logits = predict(ids, mask)
    assert logits.shape == (1, 4, len(body.tokenizer))
    with hook_layer(body.encoder, 1, lambda hidden: hidden + torch.arange(hidden.shape[-1])):
        assert not torch.allclose(predict(ids, mask), logits, atol=1e-3)
    refused("has no head that predicts tokens", load_predictor, str(tmp_path))


@pytest.mark.parametrize(
    ("lexicon", "changes"),
    [
        ("unicorn\t独角兽\nred\t红色\n", {}),  # one pair alone
        ("red 红色\n", {}),
        ("red\t红色\nlamp\t台灯\n", {"units": Path("u")}),
    ],
)
def test_a_lexicon_of_other_texts_and_units_of_one_language_are_refused(
    lexicon, changes, two, tmp_path
):
    (tmp_path / "words.txt").write_text(lexicon, encoding="utf-8")
    into = two | {"results": tmp_path / "out", "arm": "x", "lexicon": str(tmp_path / "words.txt")}
    with pytest.raises(InputError):
        align(Align(**into | changes))
    assert not list((tmp_path / "out").glob("runs/*/*"))
