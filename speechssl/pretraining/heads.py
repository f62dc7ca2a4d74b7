"""wav2vec 2.0's pre-training as a folder of transformers' `Wav2Vec2ForPreTraining`: quantiser and projections go on from it."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from transformers import Wav2Vec2Config, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.encoders.convert import some
from speechssl.encoders.loading import Checkpoint, load_checkpoint
from speechssl.encoders.saving import save_extractor
from speechssl.encoders.training_forward import training_states
from speechssl.errors import InputError
from speechssl.hub import checkpoint_folder
from speechssl.pretraining.contrastive import ContrastiveOptions, States, Wav2Vec2Pretraining
from speechssl.processes import is_main

HEADS = {"quantizer": "quantiser", "project_q": "projection of its vectors", "project_hid": "projection of the encoder's output"}


def save_pretraining(model: Wav2Vec2Pretraining, folder: Path) -> None:
    """Write an ordinary Hugging Face folder of all that is trained; encoders can be loaded from it too. A card is the caller's."""
    with torch.device("meta"):
        whole = Wav2Vec2ForPreTraining(_config(model))
    weights = {name.replace("encoder.", "wav2vec2.", 1) if _of_encoder(name) else name: w for name, w in _weights(model)}
    whole.load_state_dict(weights, assign=True)
    whole.save_pretrained(folder)
    save_extractor(model.encoder.config, folder, model.normalise)


def _weights(model: Wav2Vec2Pretraining) -> list[tuple[str, torch.Tensor]]:
    """Without those of what was added to the loss."""
    return [(name, weight) for name, weight in model.state_dict().items() if not name.startswith("extras.")]


def _of_encoder(name: str) -> bool:
    return name.startswith("encoder.")


def _config(model: Wav2Vec2Pretraining) -> Wav2Vec2Config:
    config, options = copy.deepcopy(model.encoder.config), model.options
    config.num_codevector_groups, config.num_codevectors_per_group = options.codebooks, options.entries
    config.codevector_dim = config.proj_codevector_dim = options.width
    config.contrastive_logits_temperature, config.diversity_loss_weight = options.kappa, options.diversity
    config.feat_quantizer_dropout = options.dropout
    return config


def load_pretraining(
    source: str | Path, options: ContrastiveOptions | None = None, states: States = training_states
) -> Wav2Vec2Pretraining:
    """Go on from any wav2vec 2.0: with the heads of a Hugging Face folder that has them; else with new ones, and it says so.

    options: None for those of the folder. Where G, V or D are others, what they change is made anew, and it says so.
    Raises InputError for an encoder that is not a wav2vec 2.0, and for heads of which a part is missing.
    """
    checkpoint = load_checkpoint(source)
    encoder = checkpoint.model
    if not isinstance(encoder, Wav2Vec2Model) or encoder.adapter is not None:
        kind: Any = encoder.config
        raise InputError(
            f"{source} is a {kind.model_type} encoder; contrastive pre-training goes on from plain wav2vec 2.0 encoders"
        )
    heads = _heads(source, checkpoint)
    options = options or (_options(heads.config) if heads else ContrastiveOptions())
    model = Wav2Vec2Pretraining(encoder.train().requires_grad_(True), options, checkpoint.normalise, states)
    _tell(checkpoint.name, _take(model, heads) if heads else list(HEADS), heads)
    return model


def _heads(source: str | Path, checkpoint: Checkpoint) -> Wav2Vec2ForPreTraining | None:
    """The folder's own model, whose heads are wanted; None where it has none."""
    there = [name for name in checkpoint.left_out if name.split(".")[0] in HEADS]
    if checkpoint.kind != "huggingface" or not there:
        return None
    whole, info = Wav2Vec2ForPreTraining.from_pretrained(
        checkpoint_folder(source, "speech encoder"), dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
    )
    wrong = [*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])]
    if wrong := sorted(name for name in wrong if name.split(".")[0] in HEADS):
        raise InputError(f"the checkpoint {source} lacks {len(wrong)} weights of its heads ({some(wrong)}); fetch or make it again")
    return whole


def head_options(source: str | Path) -> ContrastiveOptions | None:
    """What the heads of a folder were trained with; None where it has none."""
    heads = _heads(source, load_checkpoint(source)) if source else None
    return _options(heads.config) if heads else None


def _options(config: Wav2Vec2Config) -> ContrastiveOptions:
    """What a config says; it has neither the feature penalty nor the gradient into the convolutions."""
    return ContrastiveOptions(
        codebooks=config.num_codevector_groups,
        entries=config.num_codevectors_per_group,
        width=config.proj_codevector_dim,
        kappa=config.contrastive_logits_temperature,
        diversity=config.diversity_loss_weight,
        dropout=config.feat_quantizer_dropout,
    )


def _take(model: Wav2Vec2Pretraining, heads: Wav2Vec2ForPreTraining) -> list[str]:
    """Load the heads that have the shape of the model's. Returns the names of those that have another."""
    new = []
    for name in HEADS:
        own, theirs = getattr(model, name), getattr(heads, name)
        if _shape(own) == _shape(theirs):
            own.load_state_dict(theirs.state_dict())
        else:
            new.append(name)
    return new


def _shape(head: nn.Module) -> list[Any]:
    """Of all weights; of a quantiser V too, for the same number of entries in all can be divided otherwise."""
    entries = getattr(head, "entries", getattr(head, "num_vars", None))
    return [entries, *((name, weight.shape) for name, weight in head.named_parameters())]


def _tell(name: str, new: list[str], heads: Wav2Vec2ForPreTraining | None) -> None:
    """On stderr: which heads go on, and which are random again."""
    kept = [HEADS[head] for head in HEADS if head not in new]
    parts = [f"{', '.join(HEADS[head] for head in new)} made anew"] if new else []
    parts += [f"{', '.join(kept)} as trained"] if kept else []
    because = "" if heads else ", for the checkpoint has none that can be read"
    if is_main():
        tqdm.write(f"{name}, heads of pre-training: {'; '.join(parts)}{because}", file=sys.stderr)
