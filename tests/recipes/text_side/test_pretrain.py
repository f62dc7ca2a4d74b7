"""`pretrain` makes encoders that other programs read, from text, units or artificial data; a
finished encoder is trained further."""

from pathlib import Path

import numpy as np
import pytest

from pretrain import Data, PretrainText, choose_source, mix_sources, pretrain_text
from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.symbols import assign_tokens
from speechssl.timing import RunLength
from textside.data import list_plain_ids, load_vocabulary, make_symbol_vocabulary
from textside.objectives import make_source

from ...files import contents, same_files, untouched

SIZE = {  # options of PretrainText
    "layers": 1,
    "width": 16,
    "heads": 2,
    "positions": 24,
    "length": 16,
    "batch": 2,
    "vocabulary": 120,
}


def pretrain(out, **options):
    """Pre-train, and return the folder of the encoder. options: of PretrainText, in the place of
    these."""
    training = TrainingOptions(
        steps=2, learning_rate=1e-3, warmup_steps=1, save_every=1, bf16=False
    )
    pretrain_text(PretrainText(**{"out": out, "training": training} | SIZE | options))
    return out / "encoder"


def make_options(**options):
    return PretrainText(out=Path("out"), **SIZE | options)


@pytest.fixture
def texts(tmp_path):
    """A folder of three text files."""
    (tmp_path / "texts").mkdir()
    sentences = [
        f"The lake {w} is old. Nobody named the {w} lake!" for w in ("silver", "lost", "great")
    ]
    for i in range(3):
        (tmp_path / f"texts/{i}.txt").write_text(" ".join(sentences[: i + 1]))
    return tmp_path / "texts"


def test_an_encoder_of_text_lends_its_vocabulary_to_artificial_data(texts, tmp_path):
    english = pretrain(tmp_path / "english", text=texts)
    model, tokenizer = load_text_encoder(str(english))
    assert tokenizer.tokenize("lake") == ["lake"]
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 16)
    out = tmp_path / "nested"
    nested = pretrain(out, data="nested", tokenizer=str(english))
    nested_model, nested_tokenizer = load_text_encoder(str(nested))
    assert nested_tokenizer.get_vocab() == tokenizer.get_vocab()
    assert nested_model.config.num_hidden_layers == 1
    options = read_json(out / "card.json")["options"]
    assert options["data"] == "nested"
    assert options["tokenizer"] == "english/encoder"
    with untouched(nested):
        pretrain(out, data="nested", tokenizer=str(english))
    with pytest.raises(InputError, match=r"made from other inputs \(options.data"):
        pretrain(out, data="flat", tokenizer=str(english))


@pytest.mark.parametrize(
    "options", [{}, {"objective": "causal"}, {"data": "dyck-8", "like": "T5", "length": 12}]
)
def test_a_finished_encoder_is_trained_further_as_if_in_one_go(
    options, texts, checkpoint, tmp_path
):
    options = dict(options)
    if "data" not in options:
        options["text"] = texts
    if "like" in options:
        options["like"] = str(checkpoint(options["like"]))

    def train(out, steps):
        training = TrainingOptions(
            steps=steps,
            learning_rate=1e-2,
            warmup_steps=1,
            horizon=4,  # the schedule is that of four steps
            save_every=3,
            bf16=False,
        )
        return pretrain(tmp_path / out, training=training, **options)

    in_one_go = train("in-one-go", 4)
    encoder = train("twice", 2)
    after_two_steps = (encoder / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="training.steps differs"):
        train("twice", 1)
    train("twice", 4)
    assert contents(encoder) == contents(in_one_go)
    assert same_files(tmp_path / "in-one-go", tmp_path / "twice", "made_from.json")
    assert (encoder / "model.safetensors").read_bytes() != after_two_steps
    assert read_json(tmp_path / "twice/card.json")["training"]["steps"] == 4


NO_TEXT = Data(texts=(), symbols=None, inputs={})


def test_artificial_ids_are_tokens_in_an_order_of_the_seed():
    tokenizer = make_symbol_vocabulary(map(str, range(50)))
    source = choose_source(make_options(data="shuffle-4"), NO_TEXT, tokenizer)
    ids, _, _ = source(np.random.default_rng(0), 40)
    assert set(ids) <= set(list_plain_ids(tokenizer))
    runs = ids.reshape(10, 4)  # of successive artificial ids
    assert not all(np.ptp(run) == 3 for run in runs)  # which are no successive tokens


def test_units_are_the_tokens_that_dual_gives_them(save_units, checkpoint):
    frames = {"a": [5, 5, 1, 2], "b": [3]}
    runs = {name: RunLength.of_frames(np.array(of_one)) for name, of_one in frames.items()}
    units = save_units(runs, {"codebook": "b"})
    tokenizer = load_vocabulary(str(checkpoint("BERT")))
    source = choose_source(make_options(data="units", units=units), NO_TEXT, tokenizer)
    rng = np.random.default_rng(0)
    sequences = {tuple(source(rng, 8)[0].tolist()) for _ in range(40)}
    tokens = assign_tokens(tokenizer, 6, "most-frequent", 0)
    assert sequences == {(tokens[5], tokens[1], tokens[2]), (tokens[3],)}


def test_two_languages_share_a_vocabulary(texts, tmp_path):
    mandarin = tmp_path / "zh.txt"
    mandarin.write_text("银湖很旧。没有人叫它银湖。", encoding="utf-8")
    encoder = pretrain(tmp_path / "both", text=texts, second_text=mandarin, documents=1)
    tokenizer = load_vocabulary(str(encoder))
    assert tokenizer.tokenize("lake") == ["lake"]
    assert tokenizer.tokenize("银湖") == ["银", "湖"]
    assert "lost" not in tokenizer.get_vocab()  # of the second document


def test_sequences_are_from_either_source_equally_often():
    threes = make_source(lambda rng, length: np.full(length, 3))
    fours = make_source(lambda rng, length: np.full(length, 4))
    source = mix_sources([threes, fours])
    rng = np.random.default_rng(0)
    sequences = [source(rng, 5)[0] for _ in range(200)]
    assert all(len(set(ids)) == 1 for ids in sequences)
    assert 80 < sum(ids[0] == 3 for ids in sequences) < 120


@pytest.mark.parametrize(
    "options",
    [
        {"data": "text"},  # without --text
        {"data": "copy", "start": "BERT", "like": "BERT"},  # two sizes
        {"data": "copy", "start": "T5"},  # without a mask token
        {"data": "copy", "like": "BERT", "length": 600},  # longer than its positions
        {"data": "copy", "heads": 3},  # does not divide the width
        {"data": "copy", "length": 4, "objective": "sentence-order"},  # two segments need five
    ],
)
def test_options_that_do_not_fit_are_refused_and_leave_nothing(options, tmp_path, checkpoint):
    options = dict(options)
    for name in {"start", "like"} & options.keys():
        options[name] = str(checkpoint(options[name]))
    with pytest.raises(InputError):
        pretrain(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
