"""hama is an encoder that was trained on people's speech: the phone recogniser of the package
`hama` (2.2 million parameters, Apache-2.0), a Conformer (Gulati et al. 2020, arXiv 2005.08100) with
CTC over 191 symbols: phones of IPA, `<wb>` between words, `<blank>`.

`load_encoder("hama")` gives its four blocks as layers 1 to 4 and their input as layer 0.
`load_encoder("hama:phones")` gives the recognised phones as its only layer, 0: one-hot vectors
(T, K) of the symbol that greedy decoding emitted last; recipes/units/phones.py makes units of them.
The package does not state its training data; whatever is learned from it has seen phone labels.

Letters: N samples, T frames of 20 ms, D width, K symbols without the blank.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from speechssl.artifacts import hash_bytes, read_json, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.encoder import Chunking, Engine, SpeechEncoder
from speechssl.errors import MissingExtra
from speechssl.quantisation import dequantise
from speechssl.timing import FrameGrid

NAME, PHONES = "hama", "hama:phones"
LAYERS = 4
WIDTH = 144
HEADS = 4
KERNEL = 31  # of the depthwise convolution, in frames
SYMBOLS = 191  # with the blank
WINDOW, HOP = 400, 160  # of the spectrum, in samples
BINS, MELS = 201, 80  # of the spectrum: frequencies, and bands of the mel scale
BOUNDARY = "<wb>"  # the last symbol but the blank
GRID = FrameGrid(SAMPLE_RATE, hop=2 * HOP, receptive=1)  # the centre of frame t is sample 320 t
CHUNKING = Chunking(26.0, 2.0)  # its own library reads no more than 30 s


def load_hama(name: str | Path = NAME, device: str = "cpu") -> SpeechEncoder:
    """Load `hama`, `hama:phones` or a folder of `save_hama`. Raises MissingExtra."""
    folder = Path(name)
    gives_phones = str(name) == PHONES
    if (folder / "config.json").is_file():
        model = Conformer()
        model.load_state_dict(dequantise(load_file(folder / "model.safetensors")))
    else:
        model = Conformer.of(read_tensors(find_package_file("asr_waveform.hama")))
    model.eval().requires_grad_(False)
    card = folder / "card.json"
    weights = [x.numpy().tobytes() for x in model.state_dict().values()]
    return SpeechEncoder(
        name=folder.name,
        engine=PhoneEngine(model, device) if gives_phones else HamaEngine(model, device),
        grid=GRID,
        layers=0 if gives_phones else LAYERS,
        width=model.blank if gives_phones else WIDTH,
        normalise=False,
        hash=hash_bytes(PHONES.encode() if gives_phones else b"", *weights),
        card=read_json(card) if card.is_file() else {},
        chunking=CHUNKING,
    )


def is_hama(name: str | Path) -> bool:
    """Return whether a name is hama's, or that of a folder with a model trained from it."""
    config = Path(name) / "config.json"
    if config.is_file():
        return bool(read_json(config).get("model_type") == NAME)
    return str(name) in (NAME, PHONES)


def save_hama(model: Conformer, folder: Path) -> None:
    """Write a folder that `load_encoder` reads: config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {"model_type": NAME, "architectures": ["Conformer"]})
    state = {name: x.contiguous() for name, x in model.state_dict().items()}
    save_file(state, folder / "model.safetensors")


def read_phone_symbols() -> list[str]:
    """Return the K symbols of `hama:phones`, `<wb>` the last."""
    return [*read_json(find_package_file("g2p_vocab.json"))["decoder"], BOUNDARY]


def find_package_file(name: str) -> Path:
    """Find a file among the assets of the package hama, which is not imported. Raises
    MissingExtra."""
    spec = find_spec("hama")
    if spec is None or spec.origin is None:
        raise MissingExtra("the encoder hama", "hama")
    return Path(spec.origin).parent / "assets" / name


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of hama's engine: a table of names, types, shapes and offsets, then the numbers,
    which are converted to float32."""
    with path.open("rb") as file:
        file.seek(8)  # after the magic word, the version and the kind of file
        (count,) = _unpack(file, "I")
        table = []
        for _ in range(count):
            (name_length,) = _unpack(file, "H")
            name = file.read(name_length).decode()
            is_half, rank = _unpack(file, "BB")
            shape = _unpack(file, f"{rank}I")
            offset, _size_in_bytes = _unpack(file, "QQ")
            table.append((name, np.float16 if is_half else np.float32, shape, offset))
        start = math.ceil(file.tell() / 16) * 16  # the numbers are aligned to 16 bytes
    content = path.read_bytes()
    tensors = {}
    for name, dtype, shape, offset in table:
        values = np.frombuffer(content, dtype, math.prod(shape), start + offset)
        tensors[name] = torch.from_numpy(values.reshape(shape).astype(np.float32))
    return tensors


def _unpack(file: BinaryIO, form: str) -> tuple[int, ...]:
    """Read the next numbers of a file, which `struct` describes by `form`."""
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))


class FeedForward(nn.Module):
    """A feed-forward module has a layer norm, and two linear maps with a swish between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) to (B, T, D)."""
        return self.fc2(F.silu(self.fc1(self.norm(x))))


class Convolution(nn.Module):
    """A convolution module has a layer norm and a gated depthwise convolution over time, whose
    weights include the batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.pointwise1 = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.pointwise2 = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) to (B, T, D)."""
        gated = F.glu(self.pointwise1(self.norm(x).transpose(1, 2)), dim=1)
        return self.pointwise2(F.silu(self.depthwise(gated))).transpose(1, 2)


class Block(nn.Module):
    """A Conformer block has half a feed-forward, attention without positions, a convolution, half a
    feed-forward, and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.ffn1, self.conv, self.ffn2 = FeedForward(), Convolution(), FeedForward()
        self.attn_norm = nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) to (B, T, D)."""
        x = x + self.ffn1(x) / 2
        x = x + self.attend(self.attn_norm(x))
        x = x + self.conv(x)
        x = x + self.ffn2(x) / 2
        return self.norm(x)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Apply self-attention, (B, T, D) to (B, T, D). `nn.MultiheadAttention` itself would hold
        the weights (B, heads, T, T) in inference, and take half as long again."""
        projected = F.linear(x, self.attn.in_proj_weight, self.attn.in_proj_bias)
        q, k, v = projected.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.attn.out_proj(mixed.transpose(1, 2).flatten(2))


class Conformer(nn.Module):
    """The Conformer has a spectrum, a convolution that halves the frame rate, and blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cosines", torch.zeros(BINS, 1, WINDOW))
        self.register_buffer("sines", torch.zeros(BINS, 1, WINDOW))
        self.register_buffer("mel", torch.zeros(BINS, MELS))
        self.stem = nn.Conv1d(MELS, WIDTH, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.proj = nn.Conv1d(WIDTH, SYMBOLS, 1)

    @property
    def blank(self) -> int:
        """Return the number of the blank, the last symbol."""
        return self.proj.out_channels - 1

    @classmethod
    def of(cls, tensors: dict[str, torch.Tensor]) -> Conformer:
        """Make the model from the package's tensors. Those that were folded or transposed for the
        export to ONNX have numbers instead of names, and stand in the order of the layers."""
        model = cls()
        with torch.device("meta"):
            names = [name for name, _ in cls().named_parameters()]
        state = {
            "cosines": tensors["stft_real_kernel"],
            "sines": tensors["stft_imag_kernel"],
            "mel": tensors["mel_fb"],
        }
        convolutions = iter([x for name, x in tensors.items() if "onnx::Conv" in name])
        products = iter([x for name, x in tensors.items() if "onnx::MatMul" in name])
        for name in names:
            name_in_package = f"acoustic_model.model.{name}"
            if name_in_package in tensors:
                state[name] = tensors[name_in_package]
            elif name.startswith("stem") or "depthwise" in name:
                state[name] = next(convolutions)
        for block in range(LAYERS):
            for name in (
                "ffn1.fc1.weight",
                "ffn1.fc2.weight",
                "attn.in_proj_weight",
                "attn.out_proj.weight",
                "ffn2.fc1.weight",
                "ffn2.fc2.weight",
            ):
                state[f"blocks.{block}.{name}"] = next(products).T
        model.load_state_dict(state)
        return model

    def forward(self, samples: torch.Tensor, last: int = LAYERS) -> list[torch.Tensor]:
        """Return layers 0 to `last` of utterances of one length, (B, T, D) each. samples: (B, N)
        float32."""
        padded = F.pad(samples, (WINDOW // 2, WINDOW // 2), mode="reflect")[:, None]
        # TF32 rounds to 10 bits, which would drown a weak band of the spectrum beside a strong one
        with torch.backends.cudnn.flags(torch.backends.cudnn.enabled, allow_tf32=False):
            real = F.conv1d(padded, self.cosines, stride=HOP)
            imaginary = F.conv1d(padded, self.sines, stride=HOP)
        energies = (real.square() + imaginary.square()).transpose(1, 2) @ self.mel
        log_mel = energies.clamp(min=1e-10).log().transpose(1, 2)
        states = [F.gelu(self.stem(log_mel)).transpose(1, 2)]
        for block in self.blocks[:last]:
            states.append(block(states[-1]))
        frames = GRID.count_frames(samples.shape[1])
        return [x[:, :frames] for x in states]

    def decode(self, last_layer: torch.Tensor) -> torch.Tensor:
        """Return for every frame the symbol that greedy decoding emitted last, and before the first
        symbol the first; 0 where it emitted none. last_layer: (B, T, D). Returns (B, T)."""
        best = self.proj(last_layer.transpose(1, 2)).argmax(1)
        is_symbol = best != self.blank
        frames = torch.arange(best.shape[1], device=best.device)
        # the frame of the last symbol is a running maximum
        source = torch.where(is_symbol, frames, 0).cummax(1).values
        source = torch.maximum(source, is_symbol.int().argmax(1, keepdim=True))
        return torch.where(is_symbol.any(1, keepdim=True), best.gather(1, source), 0)


class HamaEngine(Engine):
    """This engine gives the layers of one utterance at a time."""

    def __init__(self, model: Conformer, device: str) -> None:
        self.device = torch.device(device)
        self.backend = self.device.type
        self.model = model.to(device)

    @torch.inference_mode()
    def compute_layers(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, (T, D) each. piece: (N,) float32."""
        states = self._run(piece, max(layers))
        return [states[layer][0].cpu() for layer in layers]

    def _run(self, piece: torch.Tensor, last: int) -> list[torch.Tensor]:
        """Return layers 0 to `last`, (1, T, D) each."""
        missing = WINDOW // 2 + 1 - len(piece)  # samples that the mirrored padding needs
        samples = F.pad(piece, (0, max(missing, 0))).clamp(-1, 1).to(self.device)
        frames = GRID.count_frames(len(piece))
        return [x[:, :frames] for x in self.model(samples[None], last)]


class PhoneEngine(HamaEngine):
    """This engine gives the phones of one utterance at a time."""

    @torch.inference_mode()
    def compute_layers(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return the one layer, (T, K): a 1 in every row. piece: (N,) float32."""
        symbols = self.model.decode(self._run(piece, LAYERS)[-1])[0]
        return [F.one_hot(symbols, self.model.blank).float().cpu() for _ in layers]
