"""s3prl's upstreams can be used as encoders, and our encoders as an upstream of s3prl; s3prl 0.4.18
gets stand-ins for what current packages no longer have.

`s3prl:NAME` is an upstream that fetches its own checkpoint (`s3prl:wavlm_base_plus`,
`s3prl:fbank`), `s3prl:NAME@PATH` an upstream with a checkpoint of yours
(`s3prl:hf_hubert_custom@FOLDER`, `s3prl:hubert_custom@FILE`, or a URL). s3prl reads checkpoints
itself, some of them (mockingjay, tera, distiller, roberta) by unpickling: name only files that you
trust. Layers are s3prl's: the last one of a large `hubert_custom` or `wav2vec2_custom` is taken
after the encoder's final norm.

After `register()`, `speechssl` is an upstream, and its checkpoint whatever `load_encoder` loads:

    register()
    upstream = S3PRLUpstream("speechssl", path_or_url="exp/hubert-2/encoder")

s3prl's programs are run through this module, which registers the upstream first. The upstream is
frozen: their option `-f` trains nothing of it.

    python -m speechssl.encoders.s3prl s3prl.run_downstream -m train -u speechssl -k \\
      exp/hubert-2/encoder -d TASK ...

Letters: B utterances, C channels, N samples, T frames, L layers, D width.
"""

from __future__ import annotations

import argparse
import bisect
import inspect
import random
import runpy
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import hash_json
from speechssl.audio import SAMPLE_RATE, read_channels, resample
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.load import hash_weights, load_checkpoint, load_encoder
from speechssl.errors import InputError, MissingExtra, cut_error
from speechssl.timing import FrameGrid

PREFIX = "s3prl:"
# An upstream collects its layers in an attribute, so it can run in one thread at a time only.
_RUN_LOCK = threading.Lock()


def load_s3prl(name: str) -> SpeechEncoder:
    """Load `s3prl:NAME` or `s3prl:NAME@PATH`. Its input is normalised, or not, as in s3prl.

    Hop and receptive field are found from the numbers of frames that it gives (`_find_grid`),
    because s3prl states 320 for every checkpoint. Audio longer than a chunk is encoded in pieces,
    each as if it were an utterance. The states of random generators are restored.
    Raises MissingExtra without s3prl, InputError for an unknown name, a checkpoint that cannot be
    loaded, or layers that differ in width or frame rate.
    """
    entry, _, path = name.removeprefix(PREFIX).partition("@")
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            upstream = _make_upstream(name, entry, path)
            states = run(upstream, _make_noise(SAMPLE_RATE))
            grid = _find_grid(upstream) if len({tuple(x.shape) for x in states}) == 1 else None
    finally:  # s3prl seeds the generators and uses them
        random.setstate(python_state)
        np.random.set_state(numpy_state)
    if grid is None:
        raise InputError(
            f"the layers of {name} differ in width, or have no constant frame rate; choose another "
            "upstream"
        )
    return SpeechEncoder(
        name=f"{PREFIX}{entry}@{Path(path).name}" if path else name,
        engine=UpstreamEngine(upstream, grid),
        grid=grid,
        layers=len(states) - 1,
        width=states[0].shape[-1],
        normalise=False,  # the upstream does it
        # with the name, because fbank and mfcc have no weights
        hash=hash_json({"s3prl": entry, "weights": hash_weights(upstream)}),
    )


@dataclass
class UpstreamEngine:
    """This engine runs an upstream on one utterance at a time."""

    upstream: nn.Module
    grid: FrameGrid
    backend: str = "cpu"

    def compute_statistics(self, wave: torch.Tensor) -> torch.Tensor:
        """Return the utterance itself, with the samples at its end that give no frame: upstreams
        that normalise or pad use them too."""
        return wave

    @torch.inference_mode()
    def compute_layers(
        self, piece: torch.Tensor, statistics: torch.Tensor, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, (T, D) each. piece: (N,) float32; statistics: the utterance. Raises
        ValueError for audio that the upstream cannot take."""
        is_utterance = len(statistics) - len(piece) < self.grid.hop
        try:
            states = run(self.upstream, statistics if is_utterance else piece)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise ValueError(
                f"the upstream cannot encode {len(piece)} samples ({cut_error(error)})"
            ) from error
        return [states[layer] for layer in layers]


def run(upstream: nn.Module, wave: torch.Tensor) -> list[torch.Tensor]:
    """Compute all layers of one utterance: L + 1 of (T, D). wave: (N,) float32."""
    with _RUN_LOCK, torch.no_grad():
        return [x[0].float() for x in upstream([wave])["hidden_states"]]


def _find_grid(upstream: nn.Module) -> FrameGrid | None:
    """Find the grid that gives as many frames as the upstream does; None where the upstream has no
    constant frame rate.

    The lengths (in samples) at which one frame more appears are one hop apart. They also give the
    receptive field, less the padding of the upstream: if that is the same at both ends, the frames
    are where this grid has them.
    """

    @cache
    def count_frames(samples: int) -> int:
        try:
            return len(run(upstream, _make_noise(samples))[0])
        except (RuntimeError, ValueError, AssertionError):  # too short for the upstream
            return 0

    def find_next_length(start: int) -> int:
        """Return the smallest length above `start` that has more frames."""
        lengths = range(start, start + 2 * SAMPLE_RATE)
        return start + bisect.bisect_right(lengths, count_frames(start), key=count_frames)

    # `length` has one frame more than `length` - 1. Most front ends see 25 ms (400 samples),
    # unpadded, so that the first guess is right.
    hop = upstream.get_downsample_rates("hidden_states")
    length = 400 + 10 * hop
    frames = count_frames(length)
    if count_frames(length - 1) + 1 != frames:
        long_enough = next((n for n in (4_000, 16_000) if count_frames(n)), 48_000)
        length = find_next_length(long_enough)
        frames = count_frames(length)
    if count_frames(length + hop) != frames + 1 or count_frames(length + hop - 1) != frames:
        hop = find_next_length(length) - length
    grid = FrameGrid(SAMPLE_RATE, hop, receptive=length - (frames - 1) * hop)
    offsets = (-1, 0, hop - 1, hop, 3 * hop + hop // 3, 30 * hop - 1)
    fits = all(grid.count_frames(length + n) == count_frames(length + n) for n in offsets)
    return grid if fits and grid.receptive >= 0 else None


def _make_noise(samples: int) -> torch.Tensor:
    """Make noise (N,), always the same."""
    noise = np.random.default_rng(0).standard_normal(samples).astype(np.float32)
    return torch.from_numpy(noise * 0.1)


def _make_upstream(name: str, entry: str, path: str) -> nn.Module:
    """Load an upstream. name: `s3prl:ENTRY@PATH`, for messages; entry: its name in s3prl's hub;
    path: its checkpoint, or "". Raises InputError where they do not fit or cannot be loaded."""
    entries = list_upstreams()
    if entry not in entries:
        raise InputError(f"s3prl has no upstream {entry!r}; s3prl.hub.options() lists them")
    signature = inspect.signature(entries[entry]).parameters
    # what s3prl calls the checkpoint in this entry, if it takes one
    parameters = [p for p in ("ckpt", "model_config") if p in signature]
    # the suffixes are a convention of s3prl
    takes_path = entry.endswith(("_local", "_url", "_custom")) or bool(parameters)
    if path and not takes_path:  # s3prl would silently take its own
        raise InputError(
            f"the upstream {entry} downloads its own checkpoint; write {PREFIX}{entry}, and not "
            f"{name}"
        )
    if path and entry.startswith("hf_"):
        # s3prl would silently initialise missing weights, or all weights of another kind of model
        kind = load_checkpoint(path).model.config.model_type  # type: ignore[union-attr]
        if entry != f"hf_{kind}_custom":
            raise InputError(f"the upstream {entry} would misread {path}: it is a {kind} model")
    try:
        with redirect_stdout(sys.stderr):  # s3prl prints messages
            options = {(parameters or ["ckpt"])[0]: path} if path else {}
            return entries[entry](**options).eval().requires_grad_(False)
    except Exception as error:
        # the 196 upstreams raise many kinds: for the network, a file, a package
        raise InputError(
            f"s3prl cannot load {name} ({cut_error(error)}); check the checkpoint, or the "
            "network it comes from"
        ) from error


def list_upstreams() -> dict[str, Callable[..., nn.Module]]:
    """Return all upstreams of s3prl's hub by name. Raises MissingExtra."""
    hub = import_hub()
    makers = {name: getattr(hub, name) for name in hub.options()}
    return {
        name: make
        for name, make in makers.items()
        if getattr(make, "__module__", "").endswith("hubconf")
    }


def import_hub() -> Any:
    """Import `s3prl.hub`, with stand-ins for names that torchaudio and huggingface_hub no longer
    have. Raises MissingExtra without s3prl.

    s3prl 0.4.18 imports `torchaudio.set_audio_backend` and `torchaudio.sox_effects` (removed in
    2.9), and for `run_downstream` two names of huggingface_hub (removed in 1.0). The first needs to
    do nothing; the others raise where they are used.
    """
    import huggingface_hub
    import torchaudio

    if not hasattr(torchaudio, "set_audio_backend"):
        torchaudio.set_audio_backend = lambda *_, **__: None
    if not hasattr(torchaudio, "sox_effects"):
        effects: Any = types.ModuleType("torchaudio.sox_effects")
        effects.apply_effects_file = _make_stand_in("torchaudio.sox_effects")
        effects.apply_effects_tensor = effects.apply_effects_file
        sys.modules["torchaudio.sox_effects"] = effects
        torchaudio.sox_effects = effects
    for name in ("HfFolder", "Repository"):
        if not hasattr(huggingface_hub, name):
            setattr(huggingface_hub, name, _make_stand_in(f"huggingface_hub.{name}"))
    # without its messages about packages that some upstreams need
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            from s3prl import hub
        except ModuleNotFoundError as error:
            raise MissingExtra("an upstream of s3prl", "s3prl") from error
    return hub


def _make_stand_in(name: str) -> Callable[..., Any]:
    """Return a stand-in for something missing, which raises InputError when it is used."""

    def raise_where_used(*_: Any, **__: Any) -> Any:
        raise InputError(
            f"s3prl wants {name}, which is not installed, or gone from the installed version; use "
            "a part of s3prl that does without"
        )

    return raise_where_used


# ---- our encoders inside s3prl

# Shorter utterances are padded with zeros to this number of samples; S3PRLUpstream does the same,
# but only if the whole batch is shorter.
SHORTEST = 800


class UpstreamExpert(nn.Module):
    """This upstream of s3prl is a SpeechEncoder. ckpt: what `load_encoder` takes; precision: fp32
    or bf16 (in `extra_conf`).

    Utterances are encoded one by one and then padded, so that none depends on the others in its
    batch. s3prl expects a frame for every hop or part of a hop, one or two more than a front end
    without padding gives: the last frame is repeated for these, as `S3PRLUpstream` does for the
    longest utterance of a batch.
    """

    def __init__(self, ckpt: str | None = None, precision: str = "fp32", **_: Any) -> None:
        super().__init__()
        if ckpt is None:
            raise InputError(
                "the upstream speechssl needs an encoder; give its folder or name "
                "as path_or_url, or with -k"
            )
        self.encoder = load_encoder(ckpt, precision)

    def get_downsample_rates(self, key: str | None = None) -> int:
        """Return the number of samples a frame, which is the same for every layer."""
        return self.encoder.grid.hop

    def forward(self, wavs: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """Return all layers, {"hidden_states": L + 1 of (B, T, D)}, on the device of the first.
        wavs: B of (N_b,) at 16 kHz."""
        states = [self._encode(wav.detach().cpu().numpy()) for wav in wavs]
        padded = pad_sequence(states, batch_first=True).to(wavs[0].device)  # (B, T, L + 1, D)
        return {"hidden_states": list(padded.unbind(2))}

    def _encode(self, samples: np.ndarray) -> torch.Tensor:
        """Return all layers of samples (N,): (ceil(N / hop), L + 1, D)."""
        grid = self.encoder.grid
        missing = max(SHORTEST - len(samples), grid.count_samples(1) - len(samples), 0)
        states = self.encoder.hidden_states(np.pad(samples, (0, missing))).transpose(0, 1)
        frames = max(-(-len(samples) // grid.hop), 1)
        return states[torch.arange(frames).clamp(max=len(states) - 1)]


def register() -> None:
    """Add `speechssl` to s3prl's upstreams, in this process. Raises MissingExtra without s3prl."""
    import_hub().speechssl = UpstreamExpert


def main(arguments: Sequence[str]) -> None:
    """Register the upstream, and run a program of s3prl (`s3prl.run_downstream`, `s3prl.main`) with
    its arguments."""
    register()
    stand_in_for_programs()
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


# ---- what s3prl's programs need from other packages

Effects = Sequence[Sequence[str]]


def stand_in_for_programs() -> None:
    """Let s3prl's downstream experts be imported and run in this process, with stand-ins for what
    they need and other packages lack.

    torchaudio 2.9 has no effects of sox, and reads files only through torchcodec. torch 2.6 reads
    no checkpoint with argparse's options in it, which s3prl's runner writes. `catalyst` and `sox`
    are imported for names that are not called on one device, and `editdistance` for one function.
    """
    import torchaudio

    if find_spec("torchcodec") is None:
        torchaudio.load = load_audio
    # the stand-in of `import_hub`, if torchaudio has none
    effects: Any = torchaudio.sox_effects
    if not hasattr(effects, "__file__"):
        effects.apply_effects_file = apply_effects_file
        effects.apply_effects_tensor = apply_effects_tensor
    torch.serialization.add_safe_globals([argparse.Namespace])
    _stand_in_module("editdistance", "eval", lambda a, b: int(Levenshtein.distance(a, b)))
    _stand_in_module("sox", "Transformer", _make_stand_in("sox.Transformer"))
    sampler = "DistributedSamplerWrapper"
    _stand_in_module("catalyst.data.sampler", sampler, _make_stand_in(f"catalyst.{sampler}"))


def load_audio(
    uri: str | Path, frame_offset: int = 0, num_frames: int = -1, *_: Any, **__: Any
) -> tuple[torch.Tensor, int]:
    """Do what `torchaudio.load` does, through libsndfile: (C, N) float32 and the rate in Hz."""
    samples, rate = read_channels(uri, frame_offset, num_frames)
    return torch.from_numpy(np.ascontiguousarray(samples)), rate


def apply_effects_file(
    path: str | Path, effects: Effects, *_: Any, **__: Any
) -> tuple[torch.Tensor, int]:
    """Do what `torchaudio.sox_effects.apply_effects_file` does: (C, N) float32 and the rate."""
    return apply_effects_tensor(*load_audio(path), effects)


def apply_effects_tensor(
    tensor: torch.Tensor, sample_rate: int, effects: Effects, *_: Any
) -> tuple[torch.Tensor, int]:
    """Do what `torchaudio.sox_effects.apply_effects_tensor` does. tensor: (C, N).

    channels 1, rate and gain are computed here (soxr is the resampler of sox, so that samples
    differ in their last bits only). Other effects that s3prl uses (silence, in ASV) are computed by
    the program sox, and keep rate and channels.
    """
    samples, rate = tensor.numpy(), sample_rate
    for effect in effects:
        match list(effect):
            case ["channels", "1"]:
                samples = samples.mean(0, keepdims=True)
            case ["rate", other]:
                samples = np.stack([resample(channel, rate, int(other)) for channel in samples])
                rate = int(other)
            case ["gain", decibels]:
                samples = samples * np.float32(10 ** (float(decibels) / 20))
            case _:
                raw = f"-t f32 -r {rate} -c {len(samples)} -".split()
                content = samples.T.astype("<f4").tobytes()
                command = ["sox", *raw, *raw, *effect]
                done = subprocess.run(command, input=content, capture_output=True, check=True)
                samples = np.frombuffer(done.stdout, "<f4").reshape(-1, len(samples)).T
    return torch.from_numpy(np.ascontiguousarray(samples, np.float32)), rate


def _stand_in_module(path: str, name: str, value: Any) -> None:
    """Make a module that defines one name, and the packages around it, unless it is installed."""
    parts = path.split(".")
    if parts[0] in sys.modules or find_spec(parts[0]) is not None:
        return
    parent: Any = None
    for i, part in enumerate(parts):
        full = ".".join(parts[: i + 1])
        module: Any = types.ModuleType(full)
        sys.modules[full] = module
        if parent is not None:
            setattr(parent, part, module)
        parent = module
    setattr(parent, name, value)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        sys.exit(2)
