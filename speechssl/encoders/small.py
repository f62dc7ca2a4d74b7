"""The architecture of the small encoder that ships."""

from __future__ import annotations

from transformers import HubertConfig


def small_config() -> HubertConfig:
    """The small HuBERT that ships: 4 convolutions to 50 Hz, 5 layers of 256, 4.7 M parameters. No dropout: it is slow on CPUs."""
    return HubertConfig(
        hidden_size=256,
        num_hidden_layers=5,
        num_attention_heads=4,
        intermediate_size=1024,
        conv_dim=(64, 128, 128, 256),
        conv_kernel=(10, 8, 8, 8),
        conv_stride=(5, 4, 4, 4),
        num_feat_extract_layers=4,
        feat_extract_norm="layer",  # no statistics over the utterance: padding and chunking leave the features alone
        num_conv_pos_embeddings=64,
        num_conv_pos_embedding_groups=16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        layerdrop=0.0,
        vocab_size=32,
    )
