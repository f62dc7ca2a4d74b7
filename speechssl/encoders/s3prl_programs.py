"""What s3prl's programs want beside its upstreams, of packages that have dropped it or that are wanted for one name.

torchaudio 2.9 dropped sox's effects and reads files only through torchcodec; torch 2.6 reads no checkpoint with argparse's options
in it, as s3prl's runner writes them; `catalyst` and `sox` are imported for names that are not called on one device, and
`editdistance` for one function. All of it is put in place here, for this process, and only where it is missing.
Letters: C channels, N samples.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import types
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.audio import read_channels, resample
from speechssl.errors import InputError

Effects = Sequence[Sequence[str]]


def stand_in_for_programs() -> None:
    """Let s3prl's downstream experts be imported and run."""
    import torchaudio

    if find_spec("torchcodec") is None:
        torchaudio.load = load
    effects: Any = torchaudio.sox_effects  # in its place since `import_hub`, where torchaudio has none
    if not hasattr(effects, "__file__"):
        effects.apply_effects_file, effects.apply_effects_tensor = apply_effects_file, apply_effects_tensor
    torch.serialization.add_safe_globals([argparse.Namespace])
    _stand_in_module("editdistance", "eval", _distance)
    _stand_in_module("sox", "Transformer", _not_there("sox", "Transformer"))
    _stand_in_module("catalyst.data.sampler", "DistributedSamplerWrapper", _not_there("catalyst", "DistributedSamplerWrapper"))


def load(uri: str | Path, frame_offset: int = 0, num_frames: int = -1, *_: Any, **__: Any) -> tuple[torch.Tensor, int]:
    """`torchaudio.load` through libsndfile: (C, N) float32 and the rate in Hz."""
    samples, rate = read_channels(uri, frame_offset, num_frames)
    return torch.from_numpy(np.ascontiguousarray(samples)), rate


def apply_effects_file(path: str | Path, effects: Effects, *_: Any, **__: Any) -> tuple[torch.Tensor, int]:
    """`torchaudio.sox_effects.apply_effects_file`: (C, N) float32 and the rate in Hz."""
    return apply_effects_tensor(*load(path), effects)


def apply_effects_tensor(tensor: torch.Tensor, sample_rate: int, effects: Effects, *_: Any) -> tuple[torch.Tensor, int]:
    """`torchaudio.sox_effects.apply_effects_tensor`, one effect after another. tensor: (C, N).

    channels 1, rate and gain are computed here (soxr is the resampler of sox, so that samples differ in their last bits); whatever
    else s3prl asks for (silence, in ASV) by the program sox. Raises InputError where there is none, or it fails.
    """
    samples, rate = tensor.numpy(), sample_rate
    for effect in effects:
        match list(effect):
            case ["channels", "1"]:
                samples = samples.mean(0, keepdims=True)
            case ["rate", wanted]:
                samples, rate = np.stack([resample(channel, rate, int(wanted)) for channel in samples]), int(wanted)
            case ["gain", decibels]:
                samples = samples * np.float32(10 ** (float(decibels) / 20))
            case _:
                samples = _by_sox(samples, rate, effect)
    return torch.from_numpy(np.ascontiguousarray(samples, np.float32)), rate


def _by_sox(samples: np.ndarray, rate: int, effect: Sequence[str]) -> np.ndarray:
    """(C, N) with one effect of the program sox, which keeps rate and channels."""
    if shutil.which("sox") is None:
        raise InputError(f"s3prl wants the effect {effect[0]}, which needs the program sox; install it")
    raw = ["-t", "f32", "-r", str(rate), "-c", str(len(samples)), "-"]
    done = subprocess.run(["sox", *raw, *raw, *effect], input=samples.T.astype("<f4").tobytes(), capture_output=True)
    if done.returncode:
        raise InputError(
            f"sox cannot apply {' '.join(effect)} ({done.stderr.decode(errors='replace').strip()[:160]}); see its manual"
        )
    return np.frombuffer(done.stdout, "<f4").reshape(-1, len(samples)).T


def _distance(a: Any, b: Any) -> int:
    """Levenshtein's distance of two sequences of anything that can be hashed."""
    from rapidfuzz.distance import Levenshtein

    return int(Levenshtein.distance(a, b))


def _stand_in_module(path: str, name: str, value: Any) -> None:
    """A module with one name in it, and packages around it, where there is none."""
    parts = path.split(".")
    if parts[0] in sys.modules or find_spec(parts[0]) is not None:
        return
    for i in range(len(parts)):
        module: Any = sys.modules.setdefault(".".join(parts[: i + 1]), types.ModuleType(".".join(parts[: i + 1])))
        if i:
            setattr(sys.modules[".".join(parts[:i])], parts[i], module)
    setattr(module, name, value)


def _not_there(package: str, name: str) -> Any:
    def raising(*_: Any, **__: Any) -> Any:
        raise InputError(f"s3prl wants {name} of the package {package}; pip install {package}")

    return raising
