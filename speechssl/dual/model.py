"""The span model is an embedding table, a text encoder and two vectors (BERT's question answering,
arXiv 1810.04805, section 4.2).

Both vectors are multiplied with every output of the encoder and give the logits of an answer's
start and end. DUAL reads units with it (arXiv 2203.04911), the cascade word pieces, SpeechBERT
audio words. On disk a reader is a folder with config, weights, layout and card; matrices are kept
as int8 (`quantisation.quantise`), everything else as it is. Letters: B sequences, S tokens in a
sequence, E embedding width.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from speechssl.artifacts import hash_files, read_json, replace_file, write_json
from speechssl.dual.data import Layout, mark_window
from speechssl.encoders.hubert import UninitialisedLinear
from speechssl.errors import InputError
from speechssl.finetuning import add_modules, find_added_modules
from speechssl.quantisation import dequantise, quantise
from speechssl.textlm.attention import (
    LONG,
    attend_in_blocks,
    attend_locally,
    is_packed,
    make_local_mask,
    pack,
    unpack,
)
from speechssl.textlm.encoders import make_encoder
from speechssl.textlm.subwords import SubwordUnits

if TYPE_CHECKING:  # both take seconds to import, and answering needs neither
    from transformers import PreTrainedModel

    from speechssl.training import Batch

# files of a reader by their names in its card; a tokeniser lies beside a reader of words
FILES = {"weights": "model.safetensors", "config": "config.json", "tokeniser": "tokenizer*.json"}
IGNORED = -1e4  # logit of positions that are not allowed; finite in bf16
M = TypeVar("M", bound=nn.Module)


class EncoderInputs:
    """This makes the arguments of a text encoder that reads vectors in the place of its own
    tokens."""

    def __init__(self, encoder: PreTrainedModel | Bert, width: int) -> None:
        """Replace the encoder's own embedding table, of this width, by an empty one."""
        accepted = inspect.signature(encoder.forward).parameters
        self.takes_global_attention = "global_attention_mask" in accepted  # Longformer
        self.attention_width = 0  # 0: every token sees all
        # whether long sequences are read in blocks; their mask is packed (`textlm.attention`)
        self.reads_blocks = False
        segment_kinds = getattr(encoder.config, "type_vocab_size", 0)
        self.takes_segments = "token_type_ids" in accepted and segment_kinds > 1
        rows = 1  # of the empty table; it is never looked up
        if self.takes_global_attention:
            # Longformer still looks up its own padding, to fill its last attention window
            rows += getattr(encoder.config, "pad_token_id", None) or 0
        encoder.set_input_embeddings(nn.Embedding(rows, width))

    def attend(self, encoder: PreTrainedModel | Bert, width: int, name: str) -> None:
        """Let a token see `width` tokens on either side; 0: all. name: of the encoder, for the
        message. Raises InputError for an encoder that takes no such mask."""
        self.attention_width = width
        if width and isinstance(encoder, Bert):
            self.reads_blocks = True
            encoder.attention_width = width
        elif width:
            self.reads_blocks = attend_locally(encoder, width, name)

    def __call__(
        self, embedded: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """Return the encoder's keyword arguments.

        embedded: (B, S, E); mask: (B, S); segments: (B, S), None for sequences without a question,
        in which all tokens attend to all. Longformer's global attention is on the question with
        [CLS] and its [SEP] (arXiv 2004.05150, section 6.1): segment 0.
        """
        inputs = {"inputs_embeds": embedded, "attention_mask": mask}
        if segments is None:
            return inputs
        if self.attention_width:
            real = mask.bool()
            question = real & (segments == 0)
            if self.reads_blocks and mask.shape[1] > LONG:
                inputs["attention_mask"] = pack(real, question)
            else:
                inputs["attention_mask"] = make_local_mask(real, question, self.attention_width)
        if self.takes_segments:
            inputs["token_type_ids"] = segments
        if self.takes_global_attention:
            inputs["global_attention_mask"] = (1 - segments) * mask
        return inputs


class Bert(nn.Module):
    """This BERT (arXiv 1810.04805) reads vectors in the place of tokens. Readers answer with it
    without transformers, which takes seconds to import. Its weights have transformers' names, and
    it gives the same numbers (in bf16 to the bit, in fp32 to rounding).
    """

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.attention_width = 0  # of masks that are packed (`speechssl.textlm.attention`)
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(1, width),  # `EncoderInputs` sets it
                "position_embeddings": nn.Embedding(config.max_position_embeddings, width),
                "token_type_embeddings": nn.Embedding(config.type_vocab_size, width),
                "LayerNorm": nn.LayerNorm(width, config.layer_norm_eps),
            }
        )
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))}
        )

    def set_input_embeddings(self, table: nn.Embedding) -> None:
        self.embeddings["word_embeddings"] = table

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> SimpleNamespace:
        """Return an object with last_hidden_state (B, S, E).

        inputs_embeds: (B, S, E); token_type_ids: segments (B, S). attention_mask is one of three:
        (B, S), 1 for real tokens; (B, 1, S, S), which token attends to which; or packed, (B, 1, 2,
        S), which tokens are real, and which belong to the question.
        """
        device = inputs_embeds.device
        segments = token_type_ids
        if segments is None:
            segments = torch.zeros(inputs_embeds.shape[:2], dtype=torch.long).to(device)
        positions = torch.arange(inputs_embeds.shape[1], device=device)[None]
        x = (
            inputs_embeds
            + self.embeddings["token_type_embeddings"](segments)
            + self.embeddings["position_embeddings"](positions)
        )
        x = self.embeddings["LayerNorm"](x)
        mask = None
        if attention_mask.dim() == 4:
            mask = attention_mask
        elif not attention_mask.all():
            mask = attention_mask.bool()[:, None, None].expand(-1, -1, x.shape[1], -1)
        for layer in self.encoder["layer"]:
            x = layer(x, mask, self.attention_width)
        return SimpleNamespace(last_hidden_state=x)


class BertLayer(nn.Module):
    """This is one layer of `Bert`."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        width, inner_width = config.hidden_size, config.intermediate_size
        self.heads = config.num_attention_heads
        projections = nn.ModuleDict(
            {name: UninitialisedLinear(width, width) for name in ("query", "key", "value")}
        )
        output = _make_output(config, width)
        self.attention = nn.ModuleDict({"self": projections, "output": output})
        self.intermediate = nn.ModuleDict({"dense": UninitialisedLinear(width, inner_width)})
        self.output = _make_output(config, inner_width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None, width: int) -> torch.Tensor:
        """Return (B, S, E). x: (B, S, E); mask: (B, 1, S, S) or packed (B, 1, 2, S), as in `Bert`,
        None where every token attends to all; width: of local attention."""
        q, k, v = (
            linear(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for linear in self.attention["self"].values()
        )
        if mask is not None and is_packed(mask, x.shape[1]):
            real, question = unpack(mask)
            attended = attend_in_blocks(q, k, v, real, question, width)
        else:
            attended = functional.scaled_dot_product_attention(q, k, v, mask)
        attended = attended.transpose(1, 2).reshape(x.shape)
        output = self.attention["output"]
        x = output["LayerNorm"](output["dense"](attended) + x)
        inner = functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](self.output["dense"](inner) + x)


def _make_output(config: SimpleNamespace, source: int) -> nn.ModuleDict:
    """Make the dense layer whose output is added to the residual stream, and the norm that follows.
    source: input width of the dense layer."""
    width = config.hidden_size
    norm = nn.LayerNorm(width, config.layer_norm_eps)
    return nn.ModuleDict({"dense": UninitialisedLinear(source, width), "LayerNorm": norm})


def is_plain_bert(config: dict[str, Any]) -> bool:
    """Return whether `Bert` computes a model of this config."""
    return (
        config["model_type"] == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("is_decoder") is False
        and config.get("position_embedding_type", "absolute") == "absolute"
    )


class SpanModel(nn.Module):
    """The span model is an embedding table, a text encoder and a span head. Where there are
    sub-word units, their embedding is added to that of their token."""

    def __init__(
        self,
        encoder: PreTrainedModel | Bert,
        embedding: nn.Embedding,
        subwords: SubwordUnits | None = None,
    ) -> None:
        super().__init__()
        self.inputs = EncoderInputs(encoder, embedding.embedding_dim)
        self.encoder = encoder
        self.embedding = embedding
        self.subwords = subwords
        self.head = nn.Linear(encoder.config.hidden_size, 2)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return start and end logits (B, S, 2), IGNORED outside [CLS] and the window.
        ids, mask, segments: (B, S)."""
        embedded = self.embedding(ids)
        if self.subwords is not None:
            embedded = embedded + self.subwords(ids)
        hidden = self.encoder(**self.inputs(embedded, mask, segments)).last_hidden_state
        allowed = mark_window(mask, segments).bool()
        allowed[:, 0] = True
        return torch.where(allowed[..., None], self.head(hidden).float(), IGNORED)

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        segments: torch.Tensor,
        first: torch.Tensor,
        last: torch.Tensor,
    ) -> Batch:
        """Compute the loss of a batch.

        ids, mask, segments: (B, S). first, last: (B,) positions of the answer's first and last
        token, 0 where the window holds no answer. Returns loss (the mean cross-entropy of both
        ends) and exact (how often both are right).
        """
        logits = self.logits(ids, mask, segments)
        starts, ends = logits.unbind(-1)
        loss = (functional.cross_entropy(starts, first) + functional.cross_entropy(ends, last)) / 2
        right = (starts.argmax(1) == first) & (ends.argmax(1) == last)
        return {"loss": loss, "exact": right.float().mean().detach()}


def save_reader(folder: Path, model: Any, layout: Layout, card: dict[str, Any]) -> None:
    """Write model.safetensors, config.json and, last, card.json, which has the hashes of both and
    of the tokeniser in the folder. model: any with `encoder` and `embedding`, such as a SpanModel.
    """
    with replace_file(folder / "model.safetensors") as temporary:
        save_file(quantise(drop_pooler(model.state_dict())), temporary)
    config = model.encoder.config.to_dict() | {"symbols": list(model.embedding.weight.shape)}
    subwords = getattr(model, "subwords", None)
    if subwords is not None:
        config["subwords"] = subwords.shape
    added = find_added_modules(model.encoder)
    if added:
        config["added"] = added
    config.pop("_name_or_path", None)  # a path of the machine it was trained on
    write_json(folder / "config.json", config)
    write_json(folder / "card.json", card | {"layout": asdict(layout)} | hash_reader(folder))


def hash_reader(folder: Path) -> dict[str, str]:
    """Hash the files of a reader, by the names that its card has for them."""
    hashes = {}
    for name, pattern in FILES.items():
        files = sorted(folder.glob(pattern))
        if files:
            hashes[name] = hash_files(files)
    return hashes


def drop_pooler(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the weights of the encoder's pooler, which sums up a sentence and which no reader
    uses."""
    return {
        name: values for name, values in weights.items() if not name.startswith("encoder.pooler.")
    }


@torch.random.fork_rng(devices=[])  # weights are drawn here, then replaced by those of the file
def load_reader(folder: Path, answering: bool = False) -> tuple[SpanModel, Layout, dict[str, Any]]:
    """Load a span model, its layout and its card. answering: whether the model will only answer,
    for which a BERT need not be transformers' (`Bert`). Raises InputError as `load_parts` does."""
    parts = load_parts(folder, answering)
    return parts.fill(SpanModel(parts.encoder, parts.embedding, parts.subwords))


class Parts(NamedTuple):
    """The parts of a reader, read from a folder that `save_reader` wrote. Encoder, embedding and
    subwords have random weights until `fill`."""

    encoder: Any
    embedding: nn.Embedding
    subwords: SubwordUnits | None
    weights: dict[str, torch.Tensor]
    card: dict[str, Any]

    def fill(self, model: M) -> tuple[M, Layout, dict[str, Any]]:
        """Load the weights into a model that was made of these parts, set its attention width, and
        freeze it. Returns it with its layout and card."""
        model.load_state_dict(self.weights)
        layout = Layout(**self.card["layout"])
        model.inputs.attend(self.encoder, layout.attention_width, "this reader")
        return model.eval().requires_grad_(False), layout, self.card


def load_parts(folder: Path, answering: bool = False) -> Parts:
    """Read a reader of any kind. answering: as in `load_reader`. Raises InputError where the folder
    holds none, or a file is another than its card says."""
    card = read_json(folder / "card.json")
    config = read_json(folder / "config.json")
    if "layout" not in card or "symbols" not in config:
        raise InputError(f"{folder} does not hold a reader; give the folder of a `speechssl train`")
    hashes = hash_reader(folder)
    for name, pattern in FILES.items():
        if name in card and card[name] != hashes.get(name):
            raise InputError(
                f"{folder / pattern} is missing or does not match its card; train or fetch the "
                "model again"
            )
    weights = dequantise(load_file(folder / FILES["weights"]))
    rows, width = config.pop("symbols")
    shape = config.pop("subwords", None)
    added = config.pop("added", {})
    subwords = None
    if shape:
        ids = torch.zeros(rows, shape["longest"])
        subwords = SubwordUnits(ids, shape["units"], shape["width"], width)
    if answering and is_plain_bert(config) and not added:
        bert = Bert(SimpleNamespace(**config))
        return Parts(bert, nn.Embedding(rows, width), subwords, weights, card)
    from transformers.initialization import no_init_weights

    with no_init_weights():
        encoder = make_encoder(config)
        encoder.pooler = None  # no reader uses it
        add_modules(encoder, added)
        return Parts(encoder, nn.Embedding(rows, width), subwords, weights, card)
