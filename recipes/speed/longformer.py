"""Make a Longformer of a BERT, with the same weights, as the published Longformer was made of
RoBERTa (arXiv 2004.05150, section 5).

    python recipes/speed/longformer.py minilm FOLDER --window 64
    python recipes/text_side/plateau.py CORPUS UNITS RESULTS --arm text.longformer \\
      --text-encoder FOLDER --seed 0 ...

Queries, keys and values of global attention are copies of those of local attention.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

import torch
from transformers import LongformerConfig, LongformerModel

from speechssl.cli import run_program
from speechssl.errors import InputError
from speechssl.textlm.encoders import load_text_encoder

# settings that are copied from the BERT
SHARED_SETTINGS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "layer_norm_eps",
    "vocab_size",
    "pad_token_id",
    "type_vocab_size",
)


def make_longformer(bert: torch.nn.Module, window: int) -> LongformerModel:
    """Make a Longformer. window: tokens that a token sees in local attention, half of them on
    either side."""
    config = bert.config
    # the positions of Longformer begin behind the id of the padding
    unused = config.pad_token_id + 1
    shape = {name: getattr(config, name) for name in SHARED_SETTINGS}
    shape["max_position_embeddings"] = unused + config.max_position_embeddings
    shape["attention_window"] = window
    model = LongformerModel(LongformerConfig(**shape))
    weights = dict(bert.state_dict())
    for name, weight in bert.state_dict().items():
        if ".attention.self." in name:  # "encoder.layer.0.attention.self.query.weight"
            kind = name.split(".")[-2]
            weights[name.replace(kind, f"{kind}_global")] = weight
    positions = "embeddings.position_embeddings.weight"
    first_rows = model.state_dict()[positions][:unused]
    weights[positions] = torch.cat([first_rows, weights[positions]])
    model.load_state_dict(weights)
    return model


def main(options: Namespace) -> None:
    model, tokenizer = load_text_encoder(options.encoder)
    if model.config.model_type != "bert" or options.window < 2 or options.window % 2:
        raise InputError(
            f"{options.encoder} must be a BERT (it is {model.config.model_type}), and "
            "--window an even number from 2 on"
        )
    make_longformer(model, options.window).save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="a BERT: a folder, or minilm")
    parser.add_argument("folder", type=Path, help="where the Longformer goes")
    window = "tokens that a token sees in local attention (512)"
    parser.add_argument("--window", type=int, default=512, help=window)
    run_program(main, parser)
