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
from speechssl.textlm.layers import Shift, hook_layer, layers_of, load_shift
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

from ...files import change_lines, untouched

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
    training = TrainingOptions(steps=3, learning_rate=1e-3, warmup_steps=1, bf16=False)
    size = {
        "layers": 2,
        "width": 16,
        "heads": 2,
        "length": 16,
        "batch": 4,
        "vocabulary": 120,
    }
    out = tmp_path_factory.mktemp("made") / "out"
    pretrain_text(
        PretrainText(out=out, training=training, text=texts[0], second_text=texts[1], **size)
    )
    return Path(out / "encoder")


@pytest.fixture
def two(texts, bilingual):
    """Options of all programs that read two languages."""
    return {"first": texts[0], "second": texts[1], "encoder": str(bilingual)} | OPTIONS


# ---- ranks


def test_ranks_are_those_of_the_nearest_right_word_and_equals_are_wrong_first():
    first = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    second = np.array([[3.0, 0.1], [0.1, 1.0], [-1.0, 0.0]])
    assert reciprocal_ranks(first, second, {0: [0], 1: [0], 2: [0, 2]}) == {
        0: 1,
        1: 1 / 2,
        2: 1 / 2,
    }
    alike = np.ones((4, 2))
    # a collapsed encoder knows nothing
    assert reciprocal_ranks(alike, alike, {0: [0], 1: [1, 2]}) == {0: 1 / 4, 1: 1 / 3}


@pytest.mark.parametrize(("candidates", "right"), [(1, 1), (4, 1), (5, 2), (5, 5)])
def test_chance_is_the_mean_over_all_orders(candidates, right):
    places = [
        min(order.index(i) for i in range(right)) + 1 for order in permutations(range(candidates))
    ]
    assert chance(candidates, right) == pytest.approx(np.mean([1 / place for place in places]))


# ---- words


def test_whole_words_are_found_and_the_longest_first():
    assert make_finder(["art", "fire", "fire fighter"])("Artful art of a fire fighter") == [
        (0, 7, 10),
        (2, 16, 28),
    ]
    assert make_finder(["一月", "十一月"])("十一月和一月") == [(1, 0, 3), (0, 4, 6)]
    assert make_finder([])("anything") == []


def test_words_of_speech_are_the_units_between_their_times(mini_corpus, save_units, tmp_path):
    root, grid = mini_corpus((16_000, 16_000)), FrameGrid(16_000, 320, 400)
    timed = {
        "text": "a fire fighter",
        "words": [["a", 0.0, 0.2], ["fire", 0.2, 0.4], ["fighter", 0.4, 0.8]],
    }
    change_lines(root / "train/passages.jsonl", timed)
    frames = np.arange(grid.frames(16_000)) // 5  # a unit is 0.1 s
    units = {name: RunLength.of_frames(frames) for name in ("p0", "p1")}
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
        expected = made.hidden_states[:-1]  # the last one may have a norm of its own
        assert len(states) == len(layers_of(encoder)) + 1
        assert all(torch.allclose(a, b) for a, b in zip(states, expected, strict=False))
        by = torch.full((states[0].shape[-1],), 0.5)
        by[0] = -1
        for layer in (0, 1):
            with (
                hook_layer(encoder, layer, lambda hidden: hidden + by),
                record_layers(encoder) as moved,
            ):
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
    with torch.inference_mode():
        alone = [
            body(torch.tensor([[cls, *ids, sep]]), torch.ones(1, len(ids) + 2))[0, 1:-1].numpy()
            for ids in (one, other)
        ]
    assert read.counts.tolist() == [2, 0] and read.words.shape == (3, 2, 16)
    assert np.allclose(read.words[-1, 0], (alone[0][:2].mean(0) + alone[1][1]) / 2, atol=1e-5)
    assert np.allclose(read.mean[-1], np.concatenate(alone).mean(0), atol=1e-5)


def test_a_shift_brings_one_mean_to_the_other(bilingual, texts, two, tmp_path):
    path = tmp_path / "shifts/mean-difference.safetensors"
    write_vector(Vector(out=path, layer=1, **two))
    shift, about = load_shift(path)
    assert about["options"]["method"] == "mean-difference" and about["layer"] == 1
    body = load_body(str(bilingual))
    read = [text_sequences(load_text(folder), (), body.tokenizer, 14, 99) for folder in texts]
    before = [mean_states(body, some, 0, 2).mean[1] for some in read]
    shift.attach(body.encoder)
    assert np.allclose(mean_states(body, read[1], 0, 2).mean[1], before[0], atol=1e-4)
    assert not np.allclose(*before, atol=1e-2)
    with untouched(path.parent):
        write_vector(Vector(out=path, layer=1, **two))
    with pytest.raises(InputError, match="was made from other inputs"):
        write_vector(Vector(out=path, layer=1, method="zero-mean", **two))
    with pytest.raises(InputError, match="the encoder has no layer 3; choose 0"):
        write_vector(Vector(out=tmp_path / "far.safetensors", layer=3, **two))
    with pytest.raises(InputError, match="has 4 numbers and the encoder a width of 16"):
        Shift(1, torch.ones(4)).attach(body.encoder)
    path.write_bytes(b"x")
    with pytest.raises(InputError, match="is no shift"):
        load_shift(path)


# ---- verbs


def test_alignment_leaves_rows_of_every_layer_and_a_table(two, tmp_path):
    align(Align(results=tmp_path, arm="bilingual", **two))
    card = read_json(tmp_path / "runs/alignment/bilingual-0/card.json")
    assert card["pairs"] == 5
    assert len(card["layers"]) == 3
    assert card["chance"] == pytest.approx(chance(5))
    rows = {row.task: row for row in read_rows(tmp_path / "results.jsonl")}
    assert set(rows) == {f"alignment-{n}{less}" for n in range(3) for less in ("", "-zero-mean")}
    assert rows["alignment-2"].value == pytest.approx(100 * card["layers"][2][""])
    assert rows["alignment-2"].n == 10
    # both directions together
    assert (rows["alignment-2"].drawn, rows["alignment-2"].groups) == ("word", 5)
    (table,) = gains_tables(Gains(results=tmp_path))
    assert table.columns[4:] == ("layer 0", "layer 1", "layer 2")
    assert [row[1] for row in table.rows] == ["as they are", "zero-mean"]
    with untouched(tmp_path):
        align(Align(results=tmp_path, arm="bilingual", **two))


def test_the_language_vector_turns_tokens_into_the_other_language(
    bilingual,
    texts,
    two,
    tmp_path,
    monkeypatch,
    capsys,
):
    body = load_body(str(bilingual))
    read = [text_sequences(load_text(folder), (), body.tokenizer, 14, 99) for folder in texts]
    means = [torch.from_numpy(mean_states(body, some, 0, 2).mean[2]).float() for some in read]
    red, lamp = body.tokenizer.convert_tokens_to_ids(["红", "the"])

    def predict(ids, mask):
        """红 for a state that is on the side of Mandarin's mean, else the."""
        side = (body(ids, mask) - (means[0] + means[1]) / 2) @ (means[1] - means[0])
        logits = torch.zeros(*ids.shape, len(body.tokenizer))
        logits[..., red], logits[..., lamp] = 100 * side, -100 * side
        return logits

    monkeypatch.setattr(program, "load_predictor", lambda _: (body, predict))
    into = two | {"results": tmp_path}
    program.translate(program.Translate(arm="bilingual", layers=(2,), alphas=(0.0, 20.0), **into))
    said = capsys.readouterr().out
    plain, moved = read_json(tmp_path / "runs/translation/bilingual-0/card.json")["cells"]
    assert moved["converted"] == 100 > plain["converted"] and "one token everywhere" in said
    # red lamp old; red lamp; cat grey dog red: one token of each is 红
    assert moved["precision"] == pytest.approx(100 * np.mean([1 / 3, 1 / 2, 1 / 4]))
    assert moved["examples"][0] == ["the red lamp of anna is old", " ".join(["红"] * 7)]
    tables = {table.title: table for table in gains_tables(Gains(results=tmp_path))}
    assert [row[2] for row in tables["Token translation"].rows] == ["0", "20"]
    assert ("Token translation: examples") in tables
    with pytest.raises(InputError, match="has no layer 9"):
        program.translate(program.Translate(arm="far", layers=(9,), **into))


@pytest.mark.parametrize("family", ["BERT", "XLM-RoBERTa"])
def test_heads_of_checkpoints_predict_as_transformers_has_it(family, checkpoint):
    from transformers import AutoModelForMaskedLM

    folder = checkpoint(family, "AutoModelForMaskedLM")
    body, predict = load_predictor(str(folder))
    ids, mask = torch.tensor([[5, 6, 7, 8]]), torch.ones(1, 4, dtype=torch.long)
    with torch.inference_mode():
        expected = (
            AutoModelForMaskedLM.from_pretrained(folder)
            .eval()(input_ids=ids, attention_mask=mask)
            .logits
        )
        assert torch.allclose(predict(ids, mask), expected, atol=1e-5)
        with hook_layer(
            body.encoder, 1, lambda hidden: hidden + 1 * torch.arange(hidden.shape[-1])
        ):
            assert not torch.allclose(predict(ids, mask), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("lexicon", "changes"),
    [
        ("unicorn\t独角兽\nred\t红色\n", {}),  # one pair alone
        ("red 红色\n", {}),
        ("red\t红色\nlamp\t台灯\n", {"length": 2}),
        ("red\t红色\nlamp\t台灯\n", {"units": Path("u")}),
    ],
)
def test_a_lexicon_of_other_texts_and_pieces_without_room_are_refused(
    lexicon, changes, two, tmp_path
):
    (tmp_path / "words.txt").write_text(lexicon, encoding="utf-8")
    into = two | {"results": tmp_path / "out", "arm": "x", "lexicon": str(tmp_path / "words.txt")}
    with pytest.raises(InputError):
        align(Align(**into | changes))
    assert not list((tmp_path / "out").glob("runs/*/*"))
