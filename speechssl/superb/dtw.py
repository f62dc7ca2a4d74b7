"""Where a spoken query may lie in recordings: subsequence DTW of one query against many documents at once.

The local distance is e^(1 - cosine) - 1, brought to [0, 1] for every frame of the query over the frames of the document. A path
takes every frame of the query once, may begin and end anywhere in the document, and goes on by 0, 1 or 2 of its frames: Rabiner and
Juang's asymmetric step pattern (`asymmetric` in dtw-python, with open begin and open end). Its cost is the mean distance on it.
s3prl does the same, one pair at a time (`downstream/quesst14_dtw`). One thing differs: there a frame of the query that is equally
far from all frames of the document costs nothing, so that a document of one frame fits every query perfectly; here it costs 1.
Letters: B documents, T frames of a document, n frames of the query, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad
from torch.nn.utils.rnn import pad_sequence

FLAT = 1e-5  # distances, which lie in [0, 6.4], are equal when they differ by no more


@dataclass(frozen=True)
class Documents:
    """Recordings of about one length, side by side."""

    frames: Tensor  # (B, T, D) float32 of length 1, zeros beyond the end
    beyond: Tensor  # (B, T) bool: not in the document

    @classmethod
    def of(cls, documents: Sequence[Tensor]) -> Documents:
        """documents: B of (T, D), each with a frame at least."""
        lengths = torch.tensor([len(x) for x in documents])
        frames = pad_sequence([normalize(x.float(), dim=1) for x in documents], batch_first=True)
        return cls(frames, torch.arange(frames.shape[1]) >= lengths[:, None])


def subsequence_costs(query: Tensor, documents: Documents) -> Tensor:
    """(B,) how badly the query fits where it fits best, 0 to 1. query: (n, D). Takes memory for n B T numbers."""
    return cheapest_paths(relative(distances(query, documents), documents.beyond))


def distances(query: Tensor, documents: Documents) -> Tensor:
    """(n, B, T) e^(1 - cosine) - 1. A frame of zeros is at right angles to all."""
    return torch.einsum("nd,btd->nbt", normalize(query.float(), dim=1), documents.frames).neg_().add_(1).expm1_()


def relative(found: Tensor, beyond: Tensor) -> Tensor:
    """(n, B, T) brought to [0, 1] over T, in place; infinite beyond the end of a document."""
    highest = found.masked_fill_(beyond, -torch.inf).amax(2, keepdim=True)
    lowest = found.masked_fill_(beyond, torch.inf).amin(2, keepdim=True)
    spread = highest - lowest
    flat = spread < FLAT
    return found.sub_(lowest).div_(spread.masked_fill_(flat, 1)).add_(flat)


def cheapest_paths(found: Tensor) -> Tensor:
    """(B,) cost of the best path over n. found: (n, B, T), infinite where no path may go."""
    total = pad(found[0], (2, 0), value=torch.inf)  # nothing lies before the document
    for row in found[1:]:
        before = torch.minimum(torch.minimum(total[:, 2:], total[:, 1:-1]), total[:, :-2])
        torch.add(row, before, out=total[:, 2:])
    return total.amin(1) / len(found)
