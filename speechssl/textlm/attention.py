"""Local attention limits which token attends to which, in encoders of text that read units.

A token sees those at most `width` positions away. The question with [CLS] and its [SEP] (segment 0)
sees and is seen by every token, as in Longformer (arXiv 2004.05150, section 6.1), but with the
encoder's usual weights. A unit is less than a word: it must first be joined with its neighbours,
and only then compared with the question.
Sequences of up to `LONG` tokens get a mask; longer ones are computed in blocks, in time and memory
that grow with the tokens and not with their square.
Letters: B sequences, S tokens, H heads, D width of a head, N blocks, C tokens of a block, L keys of
a block.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from speechssl.errors import InputError

LONG = 1024  # most tokens of a sequence that is computed with a mask
BLOCK = 128  # C


def make_local_mask(real: torch.Tensor, question: torch.Tensor, width: int) -> torch.Tensor:
    """Return the mask (B, 1, S, S) bool of which token (row) sees which (column). real, question:
    (B, S) bool, which tokens are no padding, and which belong to the question."""
    positions = torch.arange(real.shape[1], device=real.device)
    near = (positions[:, None] - positions).abs() <= width
    seen = near | question[:, :, None] | question[:, None, :]
    return (seen & real[:, None, :])[:, None]


def attend_in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    real: torch.Tensor,
    question: torch.Tensor,
    width: int,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attend as `make_local_mask` says, in blocks; return (B, H, S, D).

    query, key, value: (B, H, S, D); real, question: (B, S) bool, as in `make_local_mask`; the
    question is at the front. Every block of C tokens sees the question and its own C + 2 width
    neighbours; the question sees everything.
    """
    batch, _, size, _ = query.shape
    front = int(question.sum(1).max())
    padding = -size % BLOCK  # tokens that fill the last block
    blocks = (size + padding) // BLOCK
    length = BLOCK + 2 * width

    def gather_neighbours(x: torch.Tensor) -> torch.Tensor:
        """Give every block the vectors that it sees: (B, H, S, D) -> (B N, H, front + L, D)."""
        near = functional.pad(x, (0, 0, width, width + padding)).unfold(-2, length, BLOCK)
        first = x[:, :, None, :front].expand(-1, -1, blocks, -1, -1)
        return torch.cat([first, near.transpose(-1, -2)], -2).transpose(1, 2).flatten(0, 1)

    # (B, N, L): neighbours that are real and not of the question, which is seen at the front
    others = functional.pad(real & ~question, (width, width + padding)).unfold(-1, length, BLOCK)
    rows, columns = torch.arange(BLOCK), torch.arange(length) - width
    near = ((rows[:, None] - columns).abs() <= width).to(real.device)
    front_mask = question[:, None, None, :front].expand(-1, blocks, BLOCK, -1)
    mask = torch.cat([front_mask, near & others[:, :, None]], -1)
    queries = functional.pad(query, (0, 0, 0, padding)).unflatten(-2, (blocks, BLOCK))
    local = functional.scaled_dot_product_attention(
        queries.transpose(1, 2).flatten(0, 1),
        gather_neighbours(key),
        gather_neighbours(value),
        mask.flatten(0, 1)[:, None],
        dropout,
    )
    local = local.unflatten(0, (batch, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :size]
    everything = real[:, None, None].expand(-1, -1, front, -1)
    full = functional.scaled_dot_product_attention(
        query[:, :, :front], key, value, everything, dropout
    )
    # where a question is shorter than the longest of the batch, the rest of the front is local
    attended = torch.where(question[:, None, :front, None], full, local[:, :, :front])
    return torch.cat([attended, local[:, :, front:]], 2)


def pack(real: torch.Tensor, question: torch.Tensor) -> torch.Tensor:
    """Pack real and question, (B, S) bool, into one mask (B, 1, 2, S), which transformers hands
    down to attention unchanged."""
    return torch.stack([real, question], 1)[:, None]


def unpack(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return real and question, (B, S) bool each, of a mask of `pack`."""
    real, question = mask[:, 0].unbind(1)
    return real, question


def is_packed(mask: torch.Tensor | None, tokens: int) -> bool:
    """Return whether a mask for so many tokens is one of `pack`, and not a mask (B, 1, S, S) of
    `make_local_mask`."""
    return mask is not None and mask.dim() == 4 and mask.shape[-2] == 2 < tokens


def register_blocks(encoder: Any, width: int) -> None:
    """Let an encoder of transformers attend in blocks where its mask is packed."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attend(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
    ) -> Any:
        if not is_packed(attention_mask, query.shape[-2]):
            return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        real, question = unpack(attention_mask)
        dropout = options.get("dropout", 0.0)
        outputs = attend_in_blocks(query, key, value, real, question, width, dropout)
        return outputs.transpose(1, 2), None

    AttentionInterface.register(f"local-{width}", attend)
    AttentionMaskInterface.register(f"local-{width}", sdpa_mask)
    encoder.set_attn_implementation(f"local-{width}")


@torch.inference_mode()
def attend_locally(encoder: Any, width: int, name: str) -> bool:
    """Prepare an encoder for local attention, and return whether it attends in blocks as well.

    Raises InputError for one that does not attend as a mask (B, 1, S, S) says.
    """
    size = encoder.get_input_embeddings().embedding_dim
    tokens = encoder.config.num_hidden_layers + 3
    vectors = torch.randn(1, tokens, size, generator=torch.Generator().manual_seed(0))
    changed = vectors.clone()
    # the last token is out of reach of token 0, which sees one position further with every layer
    changed[:, -1] = -changed[:, -1]
    real = torch.ones(1, tokens, dtype=torch.bool)
    was_training = encoder.training
    encoder.eval()
    near = make_local_mask(real, ~real, 1)
    before = _try_mask(encoder, vectors, near)
    after = _try_mask(encoder, changed, near)
    if (
        before is None
        or after is None
        or not before[0].equal(after[0])  # token 0 saw what the mask hides,
        or before[-2].equal(after[-2])  # or the last but one did not see what the mask shows
    ):
        raise InputError(
            f"{name} ({encoder.config.model_type}) takes no mask of who attends to whom; leave out "
            "--attention-width, or choose a BERT, RoBERTa or the like"
        )
    expected = _try_mask(encoder, vectors, make_local_mask(real, ~real, width))
    usual = encoder.config._attn_implementation
    register_blocks(encoder, width)
    in_blocks = _try_mask(encoder, vectors, pack(real, ~real))
    takes_blocks = in_blocks is not None and torch.allclose(in_blocks, expected, atol=1e-4)
    if not takes_blocks:
        encoder.set_attn_implementation(usual)
    encoder.train(was_training)
    return takes_blocks


def _try_mask(encoder: Any, vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
    """Return the outputs (S, width) for vectors (1, S, E); None where the encoder raises an error
    of any kind for such a mask."""
    try:
        return encoder(inputs_embeds=vectors, attention_mask=mask).last_hidden_state[0]
    except Exception:
        return None
