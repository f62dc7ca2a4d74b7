"""Our encoders inside s3prl: after `register()`, `speechssl` is an upstream, and its checkpoint whatever `load_encoder` loads.

    register()
    upstream = S3PRLUpstream("speechssl", path_or_url="exp/hubert-2/encoder")

s3prl's programs are run through this module, which registers the upstream first:

    python -m speechssl.encoders.s3prl_upstream s3prl.run_downstream -m train -u speechssl -k exp/hubert-2/encoder -d TASK ...

The upstream is frozen: s3prl's `-f` (fine-tuning) trains nothing of it.
Letters: B utterances, N samples, T frames, L layers, D width.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import import_hub, stand_in_for_programs
from speechssl.errors import InputError

SHORTEST = 800  # samples; S3PRLUpstream fills up with zeros what is shorter, but only where the whole batch is


class UpstreamExpert(nn.Module):
    """A SpeechEncoder as s3prl wants its upstreams. ckpt: what `load_encoder` takes; precision: fp32 or bf16 (in `extra_conf`).

    Utterances are encoded one by one and then padded, so that none depends on its batch mates. s3prl counts a frame for every hop
    that is begun, one or two more than a front end without padding gives: the last frame is repeated for these, which is what
    `S3PRLUpstream` does for the longest utterance of a batch. Very short ones are filled up with zeros, as it does.
    """

    def __init__(self, ckpt: str | None, precision: str = "fp32", **_: Any) -> None:
        super().__init__()
        if ckpt is None:
            raise InputError("the upstream speechssl needs an encoder; give its folder or name as path_or_url, or with -k")
        self.encoder = load_encoder(ckpt, precision)

    def get_downsample_rates(self, key: str | None = None) -> int:
        """Samples a frame, of every layer."""
        return self.encoder.grid.hop

    def forward(self, wavs: Sequence[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        """wavs: B of (N_b,) at 16 kHz. Returns all layers, {"hidden_states": L + 1 of (B, T, D)}, on the device of the first."""
        states = [self._states(wav.detach().cpu().numpy()) for wav in wavs]
        padded = pad_sequence(states, batch_first=True).to(wavs[0].device)  # (B, T, L + 1, D)
        return {"hidden_states": list(padded.unbind(2))}

    def _states(self, samples: np.ndarray) -> torch.Tensor:
        """(ceil(N / hop), L + 1, D)."""
        grid = self.encoder.grid
        missing = max(SHORTEST - len(samples), grid.samples_for(1) - len(samples), 0)
        states = self.encoder.hidden_states(np.pad(samples, (0, missing))).transpose(0, 1)
        frames = max(-(-len(samples) // grid.hop), 1)
        return states[torch.arange(frames).clamp(max=len(states) - 1)]


def speechssl(ckpt: str | None = None, **kwargs: Any) -> UpstreamExpert:
    """The entry of s3prl's hub."""
    return UpstreamExpert(ckpt, **kwargs)


def register() -> None:
    """Make `speechssl` one of s3prl's upstreams, in this process. Raises MissingExtra without s3prl."""
    import_hub().speechssl = speechssl


def main(arguments: Sequence[str]) -> None:
    """Run a program of s3prl (`s3prl.run_downstream`, `s3prl.main`) with its arguments, the upstream registered."""
    if not arguments:
        raise InputError("give a program of s3prl and its arguments, e.g. s3prl.run_downstream -m train -u speechssl -k FOLDER ...")
    register()
    stand_in_for_programs()
    sys.argv = list(arguments)
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        sys.exit(2)
