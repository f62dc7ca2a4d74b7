"""SpecAugment (arXiv 1904.08779) on the weighted sum of hidden states, as s3prl 0.4.18 has it (`downstream/specaug.py`).

s3prl draws masks over the frames of the padded batch, so that a short recording may get none or vanish, and what happens to it
depends on its mates. Here each recording has its own, over its own frames: for a batch of one both draw the same numbers.
Letters: B batch, T frames, D width, N frames of one recording.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad


@dataclass(frozen=True)
class SpecAugment:
    """Warping of time, and stretches of time and of dimensions that are set to 0. The defaults are those of SUPERB's ASR and SF."""

    warp: int = 5  # frames by which a place in time is moved at most; 0: none
    frequency_masks: int = 4
    frequency_width: int = 50  # of a mask; less than this
    time_masks: int = 2
    time_width: int = 40  # less than this
    adaptive: bool = False  # number and width of time masks grow with N, up to `most` and `time_width`
    share: float = 0.04  # of N: how many masks, and how wide, where they grow
    most: int = 20

    def __call__(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, D), zeros beyond a length. Random numbers come from torch's generator of the CPU."""
        frames = features.shape[1]  # taken apart and stacked: gradients of rows that are written in place cost B times as much
        changed = [self._one(one[:n]) for one, n in zip(features.unbind(), lengths.tolist(), strict=True)]
        return torch.stack([pad(one, (0, 0, 0, frames - len(one))) for one in changed])

    def _one(self, features: Tensor) -> Tensor:
        """(N, D)."""
        warped = self._warped(features)
        dimensions = _masked(features.shape[1], self.frequency_masks, self.frequency_width)
        times = _masked(len(features), *self._time_masks(len(features)))
        hidden = (dimensions[None] | times[:, None]).to(features.device)
        return warped.masked_fill(hidden, 0.0)

    def _warped(self, features: Tensor) -> Tensor:
        """With a frame moved, and what lies before and after it stretched or pressed together (bicubic)."""
        n, width = features.shape
        if not self.warp or n <= 2 * self.warp:
            return features
        place = int(torch.randint(self.warp, n - self.warp, (1,)))
        moved = int(torch.randint(place - self.warp, place + self.warp, (1,))) + 1
        parts = ((features[:place], moved), (features[place:], n - moved))
        return torch.cat([interpolate(x[None, None], (size, width), mode="bicubic")[0, 0] for x, size in parts])

    def _time_masks(self, n: int) -> tuple[int, int]:
        """How many there are in N frames, and what their width stays below."""
        if not self.adaptive:
            return self.time_masks, self.time_width
        return min(int(self.share * n), self.most), min(int(self.share * n), self.time_width)


def _masked(size: int, count: int, widest: int) -> Tensor:
    """(size,) whether each is masked."""
    if count < 1 or widest < 1:
        return torch.zeros(size, dtype=torch.bool)
    widths = torch.randint(0, widest, (count, 1))
    starts = torch.randint(0, max(1, size - int(widths.max())), (count, 1))
    at = torch.arange(size)
    return ((starts <= at) & (at < starts + widths)).any(0)
