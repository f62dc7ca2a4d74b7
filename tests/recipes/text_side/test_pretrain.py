"""Pre-training: encoders that everything else reads, killed runs, and what cannot be trained on."""

from pathlib import Path

import numpy as np
import pytest

from pretrain import Data, PretrainText, alternate, choose_source, pretrain_text
from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.textlm.encoders import load_text_encoder
from speechssl.textlm.symbols import assign_tokens
from speechssl.timing import RunLength
from textside.data import list_plain_ids, load_vocabulary, make_symbol_vocabulary
from textside.objectives import make_source

from ...files import contents, same_files, untouched

SIZE = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "positions": 24,
    "length": 16,
    "batch": 2,
    "vocabulary": 120,
}


def pretrained(out, **changes):
    """Pre-train, and return the folder of the encoder."""
    training = TrainingOptions(2, 1e-3, 1, save_every=1, bf16=False)
    pretrain_text(PretrainText(**{"out": out, "training": training} | SIZE | changes))
    return out / "encoder"


def options(**changes):
    return PretrainText(out=Path("out"), training=TrainingOptions(2, 1e-3), **SIZE | changes)


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").mkdir()
    said = [f"The lake {w} is old. Nobody named the {w} lake!" for w in ("silver", "lost", "great")]
    for i in range(3):
        (tmp_path / f"texts/{i}.txt").write_text(" ".join(said[: i + 1]))
    return tmp_path / "texts"


def test_an_encoder_of_text_lends_its_vocabulary_to_artificial_data(texts, tmp_path):
    english = pretrained(tmp_path / "english", text=texts)
    model, tokenizer = load_text_encoder(str(english))
    assert tokenizer.tokenize("lake") == ["lake"]
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 16)
    out, given = tmp_path / "nested", {"data": "nested", "tokenizer": str(english)}
    nested = pretrained(out, **given)
    other, same = load_text_encoder(str(nested))
    assert same.get_vocab() == tokenizer.get_vocab()
    assert other.config.num_hidden_layers == 1
    card = read_json(out / "card.json")
    assert (card["options"]["data"], card["options"]["tokenizer"]) == ("nested", "english/encoder")
    with untouched(nested):
        pretrained(out, **given)
    with pytest.raises(InputError, match=r"made from other inputs \(options.data"):
        pretrained(out, **given | {"data": "flat"})


@pytest.mark.parametrize(
    "changes", [{}, {"objective": "causal"}, {"data": "dyck-8", "like": "T5", "length": 12}]
)
def test_a_finished_encoder_is_trained_further(changes, texts, checkpoint, tmp_path):
    """As if it had been trained in one go, whose schedule is that of all steps (horizon)."""
    changes = changes | ({} if "data" in changes else {"text": texts})
    changes |= {"like": str(checkpoint(changes["like"]))} if "like" in changes else {}

    def train(out, steps):
        training = TrainingOptions(steps, 1e-2, 1, horizon=4, save_every=3, bf16=False)
        return pretrained(tmp_path / out, training=training, **changes)

    whole, more = train("whole", 4), train("more", 2)
    short = (more / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="training.steps differs"):
        train("more", 1)
    train("more", 4)
    assert contents(whole) == contents(more)
    assert same_files(tmp_path / "whole", tmp_path / "more", "made_from.json")
    assert (more / "model.safetensors").read_bytes() != short
    assert read_json(tmp_path / "more/card.json")["training"]["steps"] == 4


def test_artificial_ids_are_tokens_in_an_order_of_the_seed():
    tokenizer = make_symbol_vocabulary(map(str, range(50)))
    source = choose_source(options(data="shuffle-4"), Data((), None, {}), tokenizer)
    made = source(np.random.default_rng(0), 40)[0].reshape(10, 4)
    assert set(made.flat) <= set(list_plain_ids(tokenizer))
    assert not all(np.ptp(run) == 3 for run in made)  # successive ids are no successive tokens


def test_units_are_the_tokens_that_dual_gives_them(save_units, checkpoint):
    frames = {"a": [5, 5, 1, 2], "b": [3]}
    runs = {name: RunLength.of_frames(np.array(some)) for name, some in frames.items()}
    units = save_units(runs, {"codebook": "b"})
    tokenizer = load_vocabulary(str(checkpoint("BERT")))
    source = choose_source(options(data="units", units=units), Data((), None, {}), tokenizer)
    tokens, rng = assign_tokens(tokenizer, 6, "most-frequent", 0), np.random.default_rng(0)
    drawn = {tuple(source(rng, 8)[0].tolist()) for _ in range(40)}
    assert drawn == {(tokens[5], tokens[1], tokens[2]), (tokens[3],)}


def test_two_languages_share_a_vocabulary_and_take_turns(texts, tmp_path):
    (tmp_path / "zh.txt").write_text("银湖很旧。没有人叫它银湖。", encoding="utf-8")
    both = {"text": texts, "second_text": tmp_path / "zh.txt"}
    tokenizer = load_vocabulary(str(pretrained(tmp_path / "both", **both, documents=1)))
    assert tokenizer.tokenize("lake") == ["lake"]
    assert tokenizer.tokenize("银湖") == ["银", "湖"]
    assert "lost" not in tokenizer.get_vocab()  # of the second document
    source = alternate([make_source(lambda rng, length, i=i: np.full(length, i)) for i in (3, 4)])
    rng = np.random.default_rng(0)
    drawn = [source(rng, 5)[0] for _ in range(200)]
    assert all(len(set(ids)) == 1 for ids in drawn)
    assert 80 < sum(ids[0] == 3 for ids in drawn) < 120


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "text"},
        {"data": "copy", "start": "BERT", "like": "BERT"},
        {"data": "copy", "start": "T5"},  # without a mask token
        {"data": "copy", "like": "BERT", "length": 600},
        {"data": "copy", "heads": 3},
        {"data": "copy", "length": 4, "objective": "sentence-order"},
    ],
)
def test_what_cannot_be_trained_on_is_refused_and_leaves_nothing(changes, tmp_path, checkpoint):
    named = {name: str(checkpoint(changes[name])) for name in {"start", "like"} & changes.keys()}
    with pytest.raises(InputError):
        pretrained(tmp_path / "out", **changes | named)
    assert not (tmp_path / "out").exists()
