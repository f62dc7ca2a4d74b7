"""A HuBERT or wav2vec 2.0 encoder as the rest of the package sees it: samples in, hidden states out.

Layer 0 is the input of the first transformer layer, layer n the output of layer n (fairseq's "layer 0" is something else).
Letters: N samples, T frames, L layers, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoConfig, AutoModel

from speechssl.artefacts import hash_bytes, read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

SHIPPED = Path(__file__).parent.parent / "models"
CHUNK_SECONDS = 40.0  # longer audio is encoded in pieces of this length
LONG_PIECES = 15  # from here on (10 minutes) there is a progress bar
CONTEXT_SECONDS = 2.0  # that see this much of their neighbours on either side
MODEL_TYPES = ("hubert", "wav2vec2", "wavlm", "data2vec-audio")


@dataclass(frozen=True)
class SpeechEncoder:
    """A frozen encoder. It owns sample rate, normalisation, frame grid and layer count; callers never touch them."""

    name: str
    model: torch.nn.Module
    grid: FrameGrid
    layers: int  # L
    width: int  # D
    normalise: bool  # zero mean and unit variance over the utterance first
    hash: str  # of the weights
    card: dict[str, Any]

    def hidden_states(self, samples: np.ndarray) -> torch.Tensor:
        """All layers of one utterance of any length. samples: (N,) float32 at 16 kHz. Returns (L + 1, T, D) float32.

        T is what one pass would give (`grid.frames(N)`): audio longer than CHUNK_SECONDS is encoded in overlapping pieces that
        are joined frame by frame. Raises ValueError for fewer samples than one receptive field.
        """
        return self._pieces(samples, None)

    def features(self, samples: np.ndarray, layer: int) -> torch.Tensor:
        """One layer of one utterance: (T, D) float32. Raises InputError for a layer the encoder does not have."""
        if not 0 <= layer <= self.layers:
            raise InputError(f"{self.name} has the layers 0 to {self.layers}, not {layer}")
        return self._pieces(samples, layer)[0]

    @torch.inference_mode()
    def _pieces(self, samples: np.ndarray, layer: int | None) -> torch.Tensor:
        """(1, T, D) of one layer, or (L + 1, T, D) of all."""
        frames = self.grid.frames(len(samples))
        if frames == 0:
            raise ValueError(f"{len(samples)} samples are fewer than the {self.grid.receptive} that one frame needs")
        wave = torch.from_numpy(np.ascontiguousarray(samples, np.float32))
        if self.normalise:
            wave = (wave - wave.mean()) / torch.sqrt(wave.var(correction=0) + 1e-7)  # as transformers' feature extractor
        size = round(CHUNK_SECONDS * self.grid.frame_rate)
        if frames <= size:
            return self._encode(wave, layer)
        starts = range(0, frames, size)
        bar = tqdm(starts, desc="encoding", unit=f"{CHUNK_SECONDS:g} s", leave=False, disable=len(starts) < LONG_PIECES)
        return torch.cat([self._piece(wave, first, min(first + size, frames), frames, layer) for first in bar], dim=1)

    def _piece(self, wave: torch.Tensor, first: int, last: int, frames: int, layer: int | None) -> torch.Tensor:
        """Frames first..last - 1, encoded with context on both sides."""
        context = round(CONTEXT_SECONDS * self.grid.frame_rate)
        left, right = max(first - context, 0), min(last + context, frames)
        part = wave[left * self.grid.hop : (right - 1) * self.grid.hop + self.grid.receptive]
        return self._encode(part, layer)[:, first - left : last - left].clone()  # not a view that keeps the context alive

    def _encode(self, wave: torch.Tensor, layer: int | None) -> torch.Tensor:
        states = self.model(wave[None], output_hidden_states=True).hidden_states
        return (torch.cat(states) if layer is None else states[layer]).float()


def load_encoder(name: str | Path) -> SpeechEncoder:
    """Load a Hugging Face encoder by folder, hub id, or the name of a shipped model.

    Raises InputError when it cannot be found, is not a speech encoder, or any of its weights is missing or damaged.
    """
    folder = SHIPPED / str(name) if (SHIPPED / str(name) / "config.json").is_file() else Path(name)
    source = str(folder) if folder.is_dir() else str(name)
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(_not_found(source, error)) from error
    if config.model_type not in MODEL_TYPES:
        raise InputError(f"{source} is a {config.model_type} model; an encoder must be one of {', '.join(MODEL_TYPES)}")
    model = _load_weights(source)
    return SpeechEncoder(
        name=folder.name if folder.is_dir() else source,
        model=model,
        grid=FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride),
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        normalise=_normalises(folder, config),
        hash=hash_weights(model),
        card=read_json(folder / "card.json") if (folder / "card.json").is_file() else {},
    )


def _load_weights(source: str) -> torch.nn.Module:
    try:
        model, info = AutoModel.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # safetensors, torch and transformers each have their own for a damaged file
        reason = _first_line(error)
        raise InputError(f"cannot load the weights of {source} ({reason}); fetch or make the checkpoint again") from error
    missing = sorted(set(info["missing_keys"]) - {"masked_spec_embed"})
    if missing or info["mismatched_keys"]:
        keys = missing or sorted(str(k) for k in info["mismatched_keys"])
        some = ", ".join(keys[:3])
        raise InputError(f"the checkpoint {source} lacks {len(keys)} weights ({some} ...); fetch or make it again")
    return model.eval().requires_grad_(False)


def _normalises(folder: Path, config: Any) -> bool:
    """The feature extractor's word; without one, what the published checkpoints do: layer-norm front ends are normalised."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return bool(read_json(path).get("do_normalize", True))
    return getattr(config, "feat_extract_norm", "layer") == "layer"  # data2vec has no other


def hash_weights(model: torch.nn.Module) -> str:
    """16 hex digits over all parameters and buffers, in order of their names."""
    state = sorted(model.state_dict().items())
    return hash_bytes(*(name.encode() + tensor.float().cpu().contiguous().numpy().tobytes() for name, tensor in state))


def _not_found(source: str, error: Exception) -> str:
    return (
        f"found no speech encoder at {source} ({_first_line(error)}); give a folder with config.json and model.safetensors, "
        f"or a hub id that can be reached"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
