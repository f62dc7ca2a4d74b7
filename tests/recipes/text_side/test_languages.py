"""recipes/text_side measures whether an encoder has words near their translations (align), turns
the tokens of one language into another's (translate), and writes shifts between languages (vector).

These programs, `gains` and `pretrain` are imported by their names: pyproject.toml puts
recipes/text_side on the path.
"""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import translate
from align import Align, align, compute_chance, reciprocal_ranks
from gains import Gains, make_tables
from pretrain import PretrainText, pretrain_text
from speechssl.artifacts import read_json
from speechssl.data.records import hash_data
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.layers import find_layers, hook_layer, load_shift
from speechssl.textlm.tokenizers import find_special_tokens
from speechssl.timing import FrameGrid, RunLength
from textside.data import load_text
from textside.languages import (
    average_states,
    cut_text,
    cut_units,
    load_body,
    make_finder,
    record_layers,
)
from vector import Vector, write_vector

from ...files import change_lines, refused, untouched

ENGLISH = (
    "the red lamp of anna is old",
    "anna bought a red lamp",
    "the cat is grey and the dog is red",
)
MANDARIN = ("红色的台灯很旧", "小猫是灰色的", "小狗和台灯是红色的")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Folders of an English and a Mandarin text."""
    folders = tmp_path_factory.mktemp("en"), tmp_path_factory.mktemp("zh")
    for folder, lines in zip(folders, (ENGLISH, MANDARIN), strict=True):
        for i, line in enumerate(lines):
            (folder / f"{i}.txt").write_text(line, encoding="utf-8")
    return folders


@pytest.fixture(scope="module")
def bilingual(texts, tmp_path_factory):
    """The folder of an encoder with two layers that was pre-trained on both texts."""
    out = tmp_path_factory.mktemp("pretrained") / "out"
    options = PretrainText(
        out=out,
        text=texts[0],
        second_text=texts[1],
        layers=2,
        width=16,
        heads=2,
        length=16,
        batch=4,
        vocabulary=120,
        training=TrainingOptions(steps=3, learning_rate=1e-3, warmup_steps=1, bf16=False),
    )
    pretrain_text(options)
    return out / "encoder"


@pytest.fixture
def language_options(texts, bilingual):
    """Options of all programs that read two languages."""
    first, second = texts
    return {
        "first": first,
        "second": second,
        "encoder": str(bilingual),
        "length": 16,
        "batch": 2,
    }


# ---- ranks


def test_the_rank_is_that_of_the_nearest_right_word():
    first = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    second = np.array([[3.0, 0.1], [0.1, 1.0], [-1.0, 0.0]])
    ranks = reciprocal_ranks(first, second, golds={0: [0], 1: [0], 2: [0, 2]})
    assert ranks == {0: 1, 1: 1 / 2, 2: 1 / 2}

    # of equally near words wrong ones count as nearer
    collapsed = np.ones((4, 2))  # an encoder with the same state for all words knows nothing
    ranks = reciprocal_ranks(collapsed, collapsed, golds={0: [0], 1: [1, 2]})
    assert ranks == {0: 1 / 4, 1: 1 / 3}


@pytest.mark.parametrize(("candidates", "right"), [(1, 1), (4, 1), (5, 2), (5, 5)])
def test_chance_is_the_mean_over_all_orders(candidates, right):
    reciprocals = []
    for order in permutations(range(candidates)):  # the first `right` candidates are right
        rank = 1 + min(order.index(candidate) for candidate in range(right))
        reciprocals.append(1 / rank)
    assert compute_chance(candidates, right) == pytest.approx(np.mean(reciprocals))


# ---- words


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        (["art", "fire", "fire fighter"], "Artful art of a fire fighter", ["art", "fire fighter"]),
        (["一月", "十一月"], "十一月和一月", ["十一月", "一月"]),
        ([], "anything", []),
    ],
)
def test_whole_words_are_found_and_the_longest_first(words, text, found):
    find = make_finder(words)
    assert [words[number] for number, _, _ in find(text)] == found
    assert [text[begin:end] for _, begin, end in find(text)] == found


def test_words_of_speech_are_the_units_between_their_times(mini_corpus, save_units, tmp_path):
    root = mini_corpus((16_000, 16_000))
    words = [["a", 0.0, 0.2], ["fire", 0.2, 0.4], ["fighter", 0.4, 0.8]]
    change_lines(root / "train/passages.jsonl", {"text": "a fire fighter", "words": words})
    grid = FrameGrid(sample_rate=16_000, hop=320, receptive=400)
    frames = np.arange(grid.count_frames(16_000)) // 5  # a unit is 0.1 s
    units = dict.fromkeys(("p0", "p1"), RunLength.of_frames(frames))
    save_units(units, {"codebook": "b", "corpus": hash_data(root, "train")})
    tokens = 100 + np.arange(int(frames.max()) + 1)  # token 100 + k for unit k
    sequence, _ = cut_units(
        root, tmp_path / "units", ["fire fighter"], tokens=tokens, longest=50, most=9
    )
    ids, places = sequence
    ((_, first, stop),) = places
    assert ids[first:stop].tolist() == [102, 103, 104, 105, 106, 107]  # 0.2 to 0.8 s


# ---- states and shifts


@pytest.mark.parametrize("family", ["BERT", "DistilBERT", "T5", "ModernBERT"])
def test_recorded_layers_are_those_that_transformers_returns(family, checkpoint):
    encoder = load_text_encoder(str(checkpoint(family)))[0].eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode(), record_layers(encoder) as states:
        outputs = encoder(input_ids=ids, output_hidden_states=True)
    assert len(states) == len(find_layers(encoder)) + 1
    # behind the last layer some families have a norm
    for recorded, returned in zip(states, outputs.hidden_states[:-1], strict=False):
        assert torch.allclose(recorded, returned)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("family", ["BERT", "T5"])
def test_a_hook_changes_a_layer_within_its_block_alone(family, layer, checkpoint):
    encoder = load_text_encoder(str(checkpoint(family)))[0].eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        with record_layers(encoder) as states:
            before = encoder(input_ids=ids).last_hidden_state
        vector = torch.full((states[0].shape[-1],), 0.5)
        vector[0] = -1
        hooked = hook_layer(encoder, layer, lambda hidden: hidden + vector)
        with hooked, record_layers(encoder) as shifted:
            within = encoder(input_ids=ids).last_hidden_state
        after = encoder(input_ids=ids).last_hidden_state
    assert torch.allclose(shifted[layer], states[layer] + vector)
    assert not torch.allclose(within, before, atol=1e-3)
    assert torch.equal(after, before)


def test_states_of_words_are_means_over_their_occurrences(bilingual):
    body = load_body(str(bilingual))
    # word 0 is tokens 0 and 1 of the first sequence, and token 1 of the second
    first_ids, second_ids = np.array([6, 7, 8]), np.array([9, 6])
    sequences = [(first_ids, ((0, 0, 2),)), (second_ids, ((0, 1, 2),))]
    averaged = average_states(body, sequences, words=2, batch=2)
    cls, sep, _ = find_special_tokens(body.tokenizer)

    def encode(ids):
        """Return the states (S, H) of the last layer for a sequence by itself."""
        with torch.inference_mode():
            states = body(torch.tensor([[cls, *ids, sep]]), torch.ones(1, len(ids) + 2))
        return states[0, 1:-1].numpy()

    first, second = encode(first_ids), encode(second_ids)
    assert averaged.counts.tolist() == [2, 0]
    assert averaged.words.shape == (3, 2, 16)  # layer 0 and two layers, two words, width 16
    word = (first[:2].mean(0) + second[1]) / 2
    assert np.allclose(averaged.words[-1, 0], word, atol=1e-5)
    all_tokens = np.concatenate([first, second])
    assert np.allclose(averaged.mean[-1], all_tokens.mean(0), atol=1e-5)


@pytest.fixture
def language_means(texts):
    """A function: (body, layer) -> mean states (H,) of English and of Mandarin."""

    def average(body, layer):
        means = []
        for folder in texts:
            sequences = cut_text(load_text(folder), (), body.tokenizer, longest=14, most=99)
            means.append(average_states(body, sequences, words=0, batch=2).mean[layer])
        return means

    return average


def test_a_shift_brings_the_mean_of_mandarin_to_that_of_english(
    bilingual, language_means, language_options, tmp_path
):
    path = tmp_path / "mean-difference.safetensors"
    write_vector(Vector(out=path, layer=1, **language_options))
    shift, about = load_shift(path)
    assert about["options"]["method"] == "mean-difference"
    assert about["layer"] == 1
    body = load_body(str(bilingual))
    english, mandarin = language_means(body, layer=1)
    assert not np.allclose(english, mandarin, atol=1e-2)
    shift.attach(body.encoder)
    _, shifted_mandarin = language_means(body, layer=1)
    assert np.allclose(shifted_mandarin, english, atol=1e-4)


def test_a_shift_is_written_once_and_not_with_other_options(language_options, tmp_path):
    path = tmp_path / "shifts/mean-difference.safetensors"
    options = Vector(out=path, layer=1, **language_options)
    write_vector(options)
    with untouched(path.parent):
        write_vector(options)
    other = Vector(out=path, layer=1, method="zero-mean", **language_options)
    refused("made from other inputs", write_vector, other)
    missing_layer = Vector(out=tmp_path / "other.safetensors", layer=3, **language_options)
    refused("no layer 3; choose 0", write_vector, missing_layer)
    path.write_bytes(b"x")
    refused("is no shift", load_shift, path)


# ---- programs


def test_alignment_leaves_rows_of_every_layer_and_a_table(language_options, tmp_path):
    align(Align(results=tmp_path, arm="bilingual", **language_options))
    card = read_json(tmp_path / "runs/alignment/bilingual-0/card.json")
    assert card["pairs"] == 5
    assert len(card["layers"]) == 3
    assert card["chance"] == pytest.approx(compute_chance(5))
    rows = {row.task: row for row in read_rows(tmp_path / "results.jsonl")}
    tasks = {f"alignment-{layer}" for layer in range(3)}
    assert set(rows) == tasks | {f"{task}-zero-mean" for task in tasks}
    last = rows["alignment-2"]
    assert last.value == pytest.approx(100 * card["layers"][2][""])
    assert last.n == 10  # both directions
    assert (last.drawn, last.groups) == ("word", 5)
    (table,) = make_tables(Gains(results=tmp_path))
    assert table.columns[4:] == ("layer 0", "layer 1", "layer 2")
    assert [row[1] for row in table.rows] == ["as they are", "zero-mean"]
    with untouched(tmp_path):
        align(Align(results=tmp_path, arm="bilingual", **language_options))


@pytest.fixture
def predict_side(bilingual, language_means, monkeypatch):
    """A predictor in the place of the encoder's own: it predicts 红 for a state that is nearer to
    the mean of Mandarin, else "the"."""
    body = load_body(str(bilingual))
    english, mandarin = (torch.from_numpy(m).float() for m in language_means(body, layer=2))
    hong, the = body.tokenizer.convert_tokens_to_ids(["红", "the"])

    def predict(ids, mask):
        side = (body(ids, mask) - (english + mandarin) / 2) @ (mandarin - english)
        logits = torch.zeros(*ids.shape, len(body.tokenizer))
        logits[..., hong] = 100 * side
        logits[..., the] = -100 * side
        return logits

    monkeypatch.setattr(translate, "load_predictor", lambda _: (body, predict))


@pytest.mark.usefixtures("predict_side")
def test_the_language_vector_turns_tokens_into_the_other_language(
    language_options, tmp_path, capsys
):
    options = translate.Translate(
        arm="bilingual", layers=(2,), alphas=(0.0, 20.0), results=tmp_path, **language_options
    )
    translate.translate(options)
    assert "one token everywhere" in capsys.readouterr().out
    plain, shifted = read_json(tmp_path / "runs/translation/bilingual-0/card.json")["cells"]
    assert shifted["converted"] == 100
    assert plain["converted"] < 100
    # one token in "red lamp old", "red lamp" and "cat grey dog red" has the translation 红
    assert shifted["precision"] == pytest.approx(100 * np.mean([1 / 3, 1 / 2, 1 / 4]))
    seven_tokens = " ".join(["红"] * 7)
    assert shifted["examples"][0] == ["the red lamp of anna is old", seven_tokens]
    tables = {table.title: table for table in make_tables(Gains(results=tmp_path))}
    assert [row[2] for row in tables["Token translation"].rows] == ["0", "20"]
    assert "Token translation: examples" in tables
    lacking = replace(options, arm="x", layers=(9,))
    refused("has no layer 9", translate.translate, lacking)


def test_the_head_of_pretraining_predicts_from_the_states(bilingual, tmp_path):
    body, predict = translate.load_predictor(str(bilingual))
    ids, mask = torch.tensor([[5, 6, 7, 8]]), torch.ones(1, 4, dtype=torch.long)
    logits = predict(ids, mask)
    assert logits.shape == (1, 4, len(body.tokenizer))
    with hook_layer(body.encoder, 1, lambda hidden: hidden + torch.arange(hidden.shape[-1])):
        assert not torch.allclose(predict(ids, mask), logits, atol=1e-3)
    refused("has no head that predicts tokens", translate.load_predictor, str(tmp_path))


@pytest.mark.parametrize(
    ("lexicon", "options"),
    [
        ("unicorn\t独角兽\nred\t红色\n", {}),  # the texts have one of the pairs alone
        ("red 红色\n", {}),  # no tab
        ("red\t红色\nlamp\t台灯\n", {"units": Path("u")}),  # units of one language alone
    ],
)
def test_unfit_lexicons_and_units_of_one_language_are_refused(
    lexicon, options, language_options, tmp_path
):
    path, results = tmp_path / "words.txt", tmp_path / "out"
    path.write_text(lexicon, encoding="utf-8")
    options = language_options | options
    with pytest.raises(InputError):
        align(Align(results=results, arm="x", lexicon=str(path), **options))
    assert not list(results.glob("runs/*/*"))
