"""Speech encoders of several libraries are loaded, and written as folders of Hugging Face.

`load_encoder` finds the checkpoint (`load_checkpoint`) and gives it the fastest engine
(`make_speech_encoder`). `checkpoints.py` reads files of torchaudio and fairseq, `s3prl.py` s3prl's.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import nn
from tqdm import tqdm

from speechssl.artifacts import hash_bytes, hash_files, hash_json, read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.checkpoints import SHIPPED, fetch_checkpoint
from speechssl.encoders.checkpoints import (
    BUNDLE,
    MASK,
    NO_MASK,
    Checkpoint,
    is_extra,
    list_first,
    read_weights,
    translate,
)
from speechssl.encoders.encoder import Chunking, Engine, SharedEncoder, SpeechEncoder
from speechssl.encoders.engines import (
    WHISPER_GRID,
    WHISPER_WINDOW,
    OpenVinoEngine,
    TransformersEngine,
    WhisperEngine,
)
from speechssl.encoders.hama import is_hama, load_hama
from speechssl.encoders.hubert import TorchEngine, has_our_forward_pass, make_modules
from speechssl.errors import InputError, cut_error
from speechssl.finetuning import add_modules, find_added_modules
from speechssl.processes import has_bf16, list_cpu_capabilities
from speechssl.quantisation import dequantise, load_quantised
from speechssl.timing import FrameGrid

if TYPE_CHECKING:  # transformers takes seconds to import, and what ships is read without it
    from transformers import HubertConfig

# `max_shard_size` of transformers, which writes larger models to several files
ONE_FILE = "1000GB"
WHISPER_CHUNKING = Chunking(26.0, 2.0)  # a piece with its context is one window of 30 s
SMALL_KERNELS = (10, 8, 8, 8)  # of the small HuBERT that ships
SMALL_STRIDES = (5, 4, 4, 4)
MODEL_TYPES = ("hubert", "wav2vec2", "wavlm", "data2vec-audio", "whisper")
# Settings of a config that decide the features and do not follow from the shapes of the weights.
DECISIVE = (
    "conv_kernel",
    "conv_stride",
    "num_attention_heads",
    "do_stable_layer_norm",
    "feat_extract_norm",
    "layer_norm_eps",
    "hidden_act",
    "feat_extract_activation",
)
OTHER_SOURCES = ", a .pt file of torchaudio or fairseq, torchaudio:HUBERT_BASE"  # for messages
# Parameters of a model for which OpenVINO may be faster than torch; HuBERT base has 94 million.
LARGE = 50_000_000


def load_encoder(
    name: str | Path, precision: str = "fp32", device: str = "auto", engine: str = "auto"
) -> SpeechEncoder:
    """Load a speech encoder. The same weights give the same encoder, with the same hash, whatever
    their format.

    name: one of
      a shipped model           people-en/encoder
      a folder of models        its encoder/ (of `speechssl bundle`)
      a Hugging Face folder     config.json with model.safetensors or pytorch_model.bin: HuBERT,
                                wav2vec 2.0, WavLM or data2vec-audio, whatever head it has, and
                                Whisper, whose encoder is taken
      a Hugging Face hub id     facebook/hubert-base-ls960, in $SPEECHSSL_MODELS first
      a torchaudio bundle       torchaudio:HUBERT_BASE, or another encoder of torchaudio.pipelines
      a torchaudio state dict   .pt or .pth of wav2vec2_model, HuBERTPretrainModel or a bundle
      a fairseq checkpoint      .pt of HuBERT or wav2vec 2.0, pre-trained or fine-tuned
      an s3prl upstream         s3prl:NAME or s3prl:NAME@PATH (needs speechssl[s3prl])
      hama or hama:phones       the layers of a recogniser of phones, or the phones (needs
                                speechssl[hama])
    precision: fp32 gives the features of transformers, except for rounding; bf16 is faster, and
    differs in the third digit; auto is bf16 if the processor or GPU has it, else fp32 (the
    encoder's `precision` tells). device: cpu, cuda, cuda:N, or auto: a GPU if there is one.
    engine: torch; openvino, for HuBERT and wav2vec 2.0 on a CPU (needs speechssl[openvino]; the
    converted model is kept in ~/.cache/speechssl/openvino); or auto: OpenVINO if it is installed
    and faster: in bf16 on processors with AMX, for encoders of base size and larger.
    Weights that are left out (heads, quantisers) and settings that a file does not state (strides,
    heads) are reported on stderr. Raises InputError when the encoder cannot be found, is not a
    speech encoder, or any of its weights is missing, damaged or left over.
    """
    if str(name).startswith("s3prl:"):
        from speechssl.encoders.s3prl import load_s3prl

        if device not in ("auto", "cpu") or precision not in ("auto", "fp32"):
            raise InputError(
                f"{name} runs s3prl's own code, in fp32 on the CPU; leave out --device and "
                "--precision"
            )
        return load_s3prl(str(name))
    folder = find_encoder(name)
    if is_hama(folder):
        if precision == "bf16":
            raise InputError(f"{name} runs in fp32 only; leave out the precision bf16")
        _read_card(Path(folder))
        return load_hama(folder, _find_device(device))
    return make_speech_encoder(load_checkpoint(name, weights_alone=True), precision, device, engine)


def make_speech_encoder(
    checkpoint: Checkpoint, precision: str = "fp32", device: str = "auto", engine: str = "auto"
) -> SpeechEncoder:
    """Make an encoder of a checkpoint with an engine, as in `load_encoder`. The engine changes the
    model, which must not be used elsewhere."""
    device = _find_device(device)
    on_cpu = device == "cpu"
    if precision == "auto":
        precision = "bf16" if has_bf16(on_cpu) else "fp32"
    model: Any = checkpoint.model
    config = model.config
    is_whisper = config.model_type == "whisper"
    grid = WHISPER_GRID
    if not is_whisper:
        grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
    weights = hash_weights(model)
    # the same weights with other strides or another number of heads are another encoder
    settings = hash_json([checkpoint.normalise, *(getattr(config, x, None) for x in DECISIVE)])
    can_openvino = on_cpu and has_our_forward_pass(config)
    if engine == "openvino" and not can_openvino:
        raise InputError(
            f"OpenVINO does not run {checkpoint.name} on {device}; it is for HuBERT and wav2vec "
            "2.0 on a CPU"
        )
    if engine == "auto" and can_openvino and precision == "bf16" and is_openvino_faster(model):
        engine = "openvino"
    chosen: Engine
    if is_whisper:
        chosen = WhisperEngine(model, precision, device)
    elif not has_our_forward_pass(config):
        chosen = TransformersEngine(model, precision, device)
    elif engine == "openvino":
        graph = Path.home() / f".cache/speechssl/openvino/{weights}-{settings}.xml"
        chosen = OpenVinoEngine(model, precision, graph)
    else:
        chosen = TorchEngine(model, precision, device)
    return SpeechEncoder(
        name=checkpoint.name,
        grid=grid,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        normalise=checkpoint.normalise,
        hash=weights,
        card=checkpoint.card,
        precision=precision,
        settings=settings,
        engine=chosen,
        chunking=WHISPER_CHUNKING if is_whisper else Chunking(),
        window=WHISPER_WINDOW if is_whisper else None,
    )


def _find_device(device: str) -> str:
    """Return the name of a device; "auto" becomes cuda or cpu. Raises InputError for a device that
    does not exist."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # for an unknown name, and without a driver
        raise InputError(
            f"there is no device {device} here; give --device cpu, cuda, cuda:N or auto"
        ) from error
    return device


def load_shared_encoder(models: Path) -> SharedEncoder:
    """Load the encoder of a folder of models, to be shared by systems."""
    return SharedEncoder(load_encoder(models / "encoder"))


def is_openvino_faster(model: nn.Module) -> bool:
    """Return whether OpenVINO is installed, and faster than torch in bf16: it is for large encoders
    on processors with AMX (recipes/speed)."""
    is_large = sum(weight.numel() for weight in model.parameters()) >= LARGE
    has_amx = bool(list_cpu_capabilities().get("amx_bf16"))
    return is_large and has_amx and find_spec("openvino") is not None


def hash_weights(model: torch.nn.Module) -> str:
    """Return 16 hex digits over all parameters and buffers that features depend on, in the order of
    their names. The mask embedding is left out: only training uses it, and torchaudio's files do
    not have it."""
    parts = []
    for name, tensor in sorted(model.state_dict().items()):
        if name != MASK:
            parts.append(name.encode() + tensor.float().cpu().contiguous().numpy().tobytes())
    return hash_bytes(*parts)


def load_checkpoint(name: str | Path, weights_alone: bool = False) -> Checkpoint:
    """Load the model itself, to train it further.

    weights_alone: the modules of `make_modules` suffice, where our engines are used. Raises
    InputError as `load_encoder` does.
    """
    name = find_encoder(name)
    if str(name).startswith(BUNDLE) or Path(name).is_file():
        loaded = translate(read_weights(name))
    else:
        loaded = _load_huggingface(name, weights_alone)
    if loaded.left_out:
        names = list_first(loaded.left_out)
        note = f"{len(loaded.left_out)} weights are not the encoder's ({names})"
        _note_once(str(name), f"{loaded.name}: {note}")
    if loaded.assumptions:
        note = f"does not state all settings; assumed: {', '.join(loaded.assumptions)}"
        if any(x.endswith("normalised") for x in loaded.assumptions):
            note += (
                '; if its authors say otherwise, state "do_normalize" in a '
                "preprocessor_config.json beside it (`speechssl convert --to huggingface`)"
            )
        _note_once(str(name), f"{loaded.name} {note}")
    return loaded


@cache
def _note_once(source: str, text: str) -> None:
    """Write a note about a checkpoint on stderr, the first time in this process."""
    tqdm.write(text, file=sys.stderr)


def find_encoder(name: str | Path) -> str | Path:
    """Return the folder of an encoder: this folder or its encoder/, else those of a shipped set;
    the name itself where there is none."""
    for folder in (Path(name), SHIPPED / str(name)):
        for encoder in (folder, folder / "encoder"):
            if (encoder / "config.json").is_file():
                return encoder
    return name


def _load_huggingface(name: str | Path, weights_alone: bool) -> Checkpoint:
    """Load a model of Hugging Face. name: its folder, or its name on the hub."""
    folder = fetch_checkpoint(name, "speech encoder", OTHER_SOURCES)
    title = folder.name if Path(name).is_dir() else str(name)
    card = _read_card(folder)
    if weights_alone:
        checkpoint = _read_weights_alone(folder, title, card)
        if checkpoint:
            return checkpoint
    config = _read_config(folder)
    normalise, assumptions = _find_normalisation(folder, config)
    # at 0 the model would have no mask embedding
    config.mask_time_prob = config.mask_time_prob or 0.05
    model, left_out, has_mask = _read_model(folder, config)
    if not has_mask:
        torch.nn.init.zeros_(getattr(model, MASK))
        assumptions.insert(0, NO_MASK)
    if config.model_type == "whisper":
        model = getattr(model, "encoder", model)  # without its decoder
    model.eval().requires_grad_(False)
    return Checkpoint(title, model, normalise, card, "huggingface", left_out, tuple(assumptions))


def _read_card(folder: Path) -> dict[str, Any]:
    """Read the card of a folder, {} without one. Raises InputError where a file differs from the
    hash in the card; cards of other programs have no hashes."""
    card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
    stated = dict(card.get("files", {}))
    hashes = hash_folder(folder) if stated else {}
    for file, stated_hash in stated.items():
        if hashes.get(file) != stated_hash:
            raise InputError(
                f"{folder / file} is not the file that its card describes; fetch or make the "
                "encoder again"
            )
    return dict(card)


def _read_weights_alone(folder: Path, name: str, card: dict[str, Any]) -> Checkpoint | None:
    """Read a HuBERT or wav2vec 2.0 without importing transformers, if its files state everything
    under current names. Return None for other models, and for files with a fault, which
    transformers then reads or refuses."""
    try:
        config = SimpleNamespace(**read_json(folder / "config.json"))
        extractor = SimpleNamespace(**read_json(folder / "preprocessor_config.json"))
        fits = (
            extractor.feature_extractor_type == "Wav2Vec2FeatureExtractor"
            and extractor.sampling_rate == SAMPLE_RATE
            and has_our_forward_pass(config)
            and all(hasattr(config, key) for key in DECISIVE)
            and not hasattr(config, "added")
        )
        if not fits:
            return None
        model = make_modules(config)
        model.load_state_dict(dequantise(load_file(folder / "model.safetensors")))
        normalise = bool(extractor.do_normalize)
    except Exception:
        return None
    return Checkpoint(name, model.eval().requires_grad_(False), normalise, card)


def _read_config(folder: Path) -> Any:
    """Read the config of an encoder. Raises InputError for a damaged one, and for other models."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        # transformers and huggingface_hub raise many kinds for a damaged config
        raise InputError(
            f"found no speech encoder at {folder} ({cut_error(error)}); give a folder with "
            f"config.json and model.safetensors{OTHER_SOURCES}, or a hub id (OWNER/NAME)"
        ) from error
    if config.model_type not in MODEL_TYPES:
        raise InputError(
            f"{folder} is a {config.model_type} model; an encoder must be one of "
            f"{', '.join(MODEL_TYPES)}"
        )
    return config


def _find_normalisation(folder: Path, config: Any) -> tuple[bool, list[str]]:
    """Return whether the input is normalised, and what was assumed, in words. The feature extractor
    states it; without one, it is assumed to be as in the published checkpoints."""
    if config.model_type == "whisper":
        return False, []  # its log-mel has its own scale
    # transformers 5 writes the second file for a processor
    names = ("preprocessor_config.json", "processor_config.json")
    files = [folder / name for name in names if (folder / name).is_file()]
    if not files:
        # data2vec has layer norms, and no such setting
        normalise = getattr(config, "feat_extract_norm", "layer") == "layer"
        return normalise, [f"input {'' if normalise else 'not '}normalised"]
    content = read_json(files[0])
    extractor = content.get("feature_extractor", content)
    rate = extractor.get("sampling_rate", SAMPLE_RATE)
    if rate != SAMPLE_RATE:
        raise InputError(
            f"{folder} expects audio at {rate} Hz; give an encoder for {SAMPLE_RATE} Hz"
        )
    return bool(extractor.get("do_normalize", True)), []


def _read_model(folder: Path, config: Any) -> tuple[nn.Module, tuple[str, ...], bool]:
    """Read the weights. Return the model, the names of weights that are not the encoder's, and
    whether the mask embedding was there."""
    from transformers import MODEL_MAPPING

    path = folder / "model.safetensors"
    try:
        # Transformers does not know the int8 format of models that ship, and gets their weights. It
        # reads other files itself.
        state = load_quantised(path) if path.is_file() else None
        model, info = MODEL_MAPPING[type(config)].from_pretrained(
            None if state else str(folder),
            state_dict=state,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
        )
        left_out = set(info["unexpected_keys"])
        if hasattr(config, "added"):
            left_out -= _add_adapters(model, config.added, load_file(path))
    except Exception as error:
        # safetensors, torch and transformers raise many kinds for a damaged file
        raise InputError(
            f"cannot load the weights of {folder} ({cut_error(error)}); fetch or make the "
            "encoder again"
        ) from error
    missing = set(info["missing_keys"]) - {MASK} or {str(k) for k in info["mismatched_keys"]}
    unknown = {key for key in left_out if not is_extra(key)}
    if missing or unknown:
        raise InputError(
            f"the checkpoint {folder} does not have the weights of its config (missing: "
            f"{list_first(missing)}; too many: {list_first(unknown)}); fetch or make the encoder "
            "again"
        )
    return model, tuple(sorted(left_out)), MASK not in info["missing_keys"]


def _add_adapters(model: nn.Module, what: Any, weights: dict[str, torch.Tensor]) -> set[str]:
    """Add to a model the adapters that `save_encoder` saved among the `weights` of a file, and
    return their names. what: the adapters, as in the config. Raises ValueError where some are
    missing."""
    adapters = {name: values for name, values in weights.items() if ".adapter." in name}
    add_modules(model, what)
    loaded = model.load_state_dict(adapters, strict=False)
    missing = [name for name in loaded.missing_keys if ".adapter." in name]
    if missing:
        raise ValueError(f"{len(missing)} weights of adapters are missing ({list_first(missing)})")
    return set(adapters)


def save_encoder(encoder: Any, folder: Path, normalise: bool = True, bf16: bool = False) -> None:
    """Write config, one safetensors file and feature extractor; the config names the adapters.
    bf16: round the weights, for half the bytes."""
    adapters = find_added_modules(encoder)
    if adapters:
        encoder.config.added = adapters
    encoder.to(torch.bfloat16 if bf16 else torch.float32)
    encoder.save_pretrained(folder, max_shard_size=ONE_FILE)
    save_extractor(encoder.config, folder, normalise)


def save_extractor(config: Any, folder: Path, normalise: bool) -> None:
    """Write the feature extractor, with which transformers prepares samples for the encoder, as in
    the published checkpoints."""
    # models with a group norm, which sees the padding, were trained without an attention mask
    attends = getattr(config, "feat_extract_norm", "layer") == "layer"
    from transformers import Wav2Vec2FeatureExtractor

    extractor = Wav2Vec2FeatureExtractor(
        sampling_rate=SAMPLE_RATE, do_normalize=normalise, return_attention_mask=attends
    )
    extractor.save_pretrained(folder)


def hash_folder(folder: Path) -> dict[str, str]:
    """Hash the files of weights, settings and tokeniser in a folder, by name, for its card."""
    paths: set[Path] = set()
    for pattern in ("*.safetensors", "*config.json", "tokenizer*.json"):
        paths.update(folder.glob(pattern))
    return {path.name: hash_files([path]) for path in sorted(paths)}


def make_small_config() -> HubertConfig:
    """Return the config of the small HuBERT that ships: 4 convolutions to 50 Hz, 5 layers of 256,
    4.7 M parameters, and no dropout, which is slow on CPUs."""
    from transformers import HubertConfig

    return HubertConfig(
        hidden_size=256,
        num_hidden_layers=5,
        num_attention_heads=4,
        intermediate_size=1024,
        conv_dim=(64, 128, 128, 256),
        conv_kernel=SMALL_KERNELS,
        conv_stride=SMALL_STRIDES,
        num_feat_extract_layers=4,
        # no statistics over the utterance: padding and chunking leave the features alone
        feat_extract_norm="layer",
        num_conv_pos_embeddings=64,
        num_conv_pos_embedding_groups=16,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        layerdrop=0.0,
        vocab_size=32,
    )
