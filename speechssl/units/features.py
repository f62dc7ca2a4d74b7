"""Features of recordings of any length become run-length units.

`load_features` loads a layer of an encoder, or spectral features; `load_extractor` joins it with
a codebook; `UnitExtractor.extract` maps samples (N,) to units.

Letters: N samples, T frames, D dimensions, K units.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artifacts import hash_json
from speechssl.audio import SAMPLE_RATE, collect, iterate_blocks, read_audio, read_duration
from speechssl.data.recordings import Item, Recording
from speechssl.encoders.encoder import Chunking, FunctionEngine, SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.encoders.store import refuse_if_all_failed
from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.codebook import PADDING, Codebook, load_codebook
from speechssl.units.spectral import MFCC_GRID, SPECTRAL, stream_spectral

if TYPE_CHECKING:  # the library of pieces need not be imported where there are none
    from speechssl.units.pieces import Pieces

Result = TypeVar("Result")
LONG = 600.0  # seconds; the features of longer recordings are never in memory all at once


@dataclass(frozen=True)
class Features:
    """Features are a layer of an encoder, or spectral features: samples (N,) at 16 kHz become
    (T, D), in chunks, so that memory is constant."""

    encoder: str  # hash of the weights, or one of SPECTRAL
    grid: FrameGrid
    # samples -> chunks of features, before they are smoothed
    raw: Callable[[np.ndarray], Iterator[torch.Tensor]]
    layer: int = 0
    smooth: int = 1  # frames that are averaged
    precision: str = "fp32"
    chunking: Chunking = Chunking()  # how much of a longer recording is seen at a time
    # hash of what decides the features beside the weights; empty where that is not known
    settings: str = ""
    device: str = "cpu"
    # several recordings -> raw features of each; None where batches are no faster
    raw_batch: Callable[[Sequence[np.ndarray]], list[torch.Tensor]] | None = None
    # frames of silence that the encoder sees before and after a recording, for words that are cut
    # out tightly
    margin: int = 0

    @property
    def card(self) -> dict[str, Any]:
        """Return the settings that decide the features."""
        card = {
            "encoder": self.encoder,
            "layer": self.layer,
            "smooth": self.smooth,
            "frame_rate": self.grid.frame_rate,
        }
        if self.settings:
            card["settings"] = self.settings
        if self.margin:
            card["margin"] = self.margin
        if self.device == "openvino":
            card["engine"] = self.device
        return card | {"precision": self.precision, "padding": PADDING}

    def stream(self, samples: np.ndarray) -> Iterator[torch.Tensor]:
        """Yield chunks (T_i, D) float32. Raises ValueError for fewer samples than a frame needs."""
        to_skip = self.margin  # frames of silence before the recording
        to_yield = self.grid.count_frames(len(samples))
        for chunk in smooth_chunks(self.raw(self._pad(samples)), self.smooth):
            frames = chunk[to_skip : to_skip + to_yield]
            to_skip = max(to_skip - len(chunk), 0)
            to_yield -= len(frames)
            if len(frames):
                yield frames

    def _pad(self, samples: np.ndarray) -> np.ndarray:
        """Put the margin of silence around samples (N,), unless they are too short for a frame."""
        if not self.margin or not self.grid.count_frames(len(samples)):
            return samples
        silence = np.zeros(self.margin * self.grid.hop, np.float32)
        return collect(chain([silence], iterate_blocks(np.asanyarray(samples)), [silence]))

    def fits_a_batch(self, samples: np.ndarray) -> bool:
        """Return whether `encode_batch` takes a recording. Long ones go through `stream`, and all
        do where batches are no faster."""
        if self.raw_batch is None or self.grid.count_frames(len(samples)) == 0:
            return False
        longest = self.chunking.seconds * self.grid.sample_rate - 2 * self.margin * self.grid.hop
        return len(samples) <= longest

    def encode_batch(self, recordings: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Return the features (T_i, D) of each recording, on the device of the encoder. All of them
        must fit a batch."""
        assert self.raw_batch is not None
        padded = self.raw_batch([self._pad(samples) for samples in recordings])
        return [
            smooth(features, self.smooth)[self.margin : len(features) - self.margin]
            for features in padded
        ]


def load_features(
    encoder: str,
    layer: int | None,
    smooth: int = 1,
    precision: str = "fp32",
    margin: int = 0,
) -> Features:
    """Load a layer of an encoder, or spectral features. encoder: what `load_encoder` takes, or one
    of `SPECTRAL`, which have no layers.

    Raises InputError for an encoder that cannot be loaded, a layer it does not have or None, and an
    even `smooth`.
    """
    if smooth % 2 == 0:
        raise InputError(
            f"features are averaged over an odd number of frames, not {smooth}; change --smooth"
        )
    if encoder in SPECTRAL:
        raw = partial(stream_spectral, grid=MFCC_GRID, kind=encoder)
        return Features(encoder, MFCC_GRID, raw, smooth=smooth, margin=margin)
    return make_features(load_encoder(encoder, precision), layer, smooth, margin)


def make_features(
    encoder: SpeechEncoder, layer: int | None, smooth: int, margin: int = 0
) -> Features:
    """Return the features of a layer of a loaded encoder. Raises InputError for a layer that it
    does not have, or None."""
    layer = encoder.check_layer(layer)
    return Features(
        encoder=encoder.hash,
        grid=encoder.grid,
        raw=partial(encoder.stream, layer=layer),
        layer=layer,
        smooth=smooth,
        precision=encoder.precision,
        chunking=encoder.chunking,
        settings=encoder.settings,
        device=encoder.engine.backend,
        raw_batch=partial(encoder.features_of, layer=layer) if encoder.batches else None,
        margin=margin,
    )


def load_matching_features(
    codebook: Codebook,
    encoder: str | SpeechEncoder,
    precision: str | None = None,
    device: str = "auto",
) -> Features:
    """Return the features that a codebook was fitted on, from its encoder: with the same layer,
    smoothing and margin.

    encoder: one that is loaded, or its name, or one of `SPECTRAL`. precision: None stands for the
    codebook's; so does auto, except that a processor or GPU without bf16 gets fp32.
    Raises InputError where the codebook was fitted on another encoder.
    """
    card: Mapping[str, Any] = codebook.card
    smooth, margin = int(card.get("smooth", 1)), int(card.get("margin", 0))
    if isinstance(encoder, str) and encoder in SPECTRAL:
        name = encoder
        features = load_features(encoder, None, smooth, margin=margin)
    else:
        if isinstance(encoder, str):
            precision_of_fit = card.get("precision", "fp32")
            if precision is None or (precision == "auto" and precision_of_fit != "bf16"):
                precision = precision_of_fit
            encoder = load_encoder(encoder, precision, device)
        name = f"{encoder.name} ({encoder.hash})"
        layer = int(card.get("layer", 0)) if card["encoder"] == encoder.hash else 0
        features = make_features(encoder, layer, smooth, margin)
    # the same weights may have other strides or heads
    for fact in ("encoder", "frame_rate", "settings"):
        if fact in card and card[fact] != features.card.get(fact):
            raise InputError(
                f"{codebook.name} was not fitted on {name}, but on {fact} {card[fact]}; give that "
                "encoder, carry the codebook over with `speechssl units transfer`, or fit another "
                "with `speechssl units fit`"
            )
    return features


@dataclass(frozen=True)
class UnitExtractor:
    """An extractor turns samples into units: the clusters of their features."""

    features: Features  # those that the codebook was fitted on
    codebook: Codebook
    # what a change of unit costs in `Codebook.segment`; 0: every frame has its nearest centroid
    price: float = 0.0
    pieces: Pieces | None = None  # merged units, to which units are joined

    @property
    def grid(self) -> FrameGrid:
        return self.features.grid

    @property
    def card(self) -> dict[str, Any]:
        """Return the settings that decide the units."""
        facts: dict[str, Any] = {"codebook": self.codebook.hash}
        for name in ("encoder", "layer", "smooth", "precision", "margin"):
            if name in self.features.card:
                facts[name] = self.features.card[name]
        if self.price:
            facts["price"] = self.price
        if self.pieces is not None:
            facts["pieces"] = self.pieces.hash
        return facts

    def assign(self, features: torch.Tensor) -> np.ndarray:
        """Return the units (T,) of frames (T, D). Raises ValueError for features that are not
        finite."""
        if self.price:
            return self.codebook.segment(check_finite(features), self.price)
        return self.codebook.assign(features)

    def extract_frames(self, samples: np.ndarray) -> np.ndarray:
        """Return the unit of every frame, (N,) float32 at 16 kHz -> (T,).

        Only a chunk of the features is in memory at a time, unless a change of unit has a price.
        Raises ValueError for fewer samples than one receptive field, and for samples so large that
        the features are not finite.
        """
        chunks = self.features.stream(samples)
        if self.price:  # the cheapest path is known only at the end
            return self.assign(torch.cat(list(chunks)))
        return np.concatenate([self.assign(chunk) for chunk in chunks])

    def extract(self, samples: np.ndarray) -> RunLength:
        """Extract the run-length units, or pieces, of samples (N,) float32 at 16 kHz."""
        return self._merge(self.extract_frames(samples), len(samples))

    def _merge(self, frames: np.ndarray, samples: int) -> RunLength:
        """Merge the units of frames (T,) to runs. samples: their number in the recording."""
        runs = RunLength.of_frames(frames, samples / SAMPLE_RATE)
        return runs if self.pieces is None else self.pieces.join(runs)

    def extract_batch(self, recordings: Sequence[np.ndarray]) -> list[RunLength | ValueError]:
        """Return what `extract` would return or raise for each of the recordings, which fit a
        batch."""
        units: list[RunLength | ValueError] = []
        for samples, features in zip(
            recordings, self.features.encode_batch(recordings), strict=True
        ):
            try:
                units.append(self._merge(self.assign(features), len(samples)))
            except ValueError as error:
                units.append(error)
        return units


def make_extractor(encoder: SpeechEncoder, codebook: Codebook) -> UnitExtractor:
    """Join an encoder and a codebook. Raises InputError where the codebook was fitted on another
    encoder."""
    return UnitExtractor(load_matching_features(codebook, encoder), codebook)


def make_unit_encoder(extractor: UnitExtractor) -> SpeechEncoder:
    """Make an encoder with one layer, (T, K): the units that an extractor gives, as one-hot
    vectors, so that heads of SUPERB show what units keep and what they lose."""

    def encode(samples: np.ndarray) -> torch.Tensor:
        units = torch.from_numpy(extractor.extract_frames(samples))
        return torch.nn.functional.one_hot(units, extractor.codebook.size).float()

    return SpeechEncoder(
        name=f"units of {extractor.codebook.name}",
        engine=FunctionEngine(encode),
        grid=extractor.grid,
        layers=0,
        width=extractor.codebook.size,
        normalise=False,
        hash=hash_json(extractor.card),
    )


def load_extractor(
    encoder: str,
    codebook: Path,
    precision: str | None = None,
    device: str = "auto",
    price: float = 0.0,
) -> UnitExtractor:
    """Load an encoder and a codebook.

    encoder: what `load_encoder` takes, or one of `SPECTRAL`. precision: as in
    `load_matching_features`. price: what a change of unit costs. Raises InputError where either
    cannot be loaded or they do not belong together.
    """
    book = load_codebook(codebook)
    return UnitExtractor(load_matching_features(book, encoder, precision, device), book, price)


def check_finite(features: torch.Tensor) -> torch.Tensor:
    """Return the features. Raises ValueError for features that are not finite."""
    if not torch.isfinite(features.sum()):  # one NaN or infinity makes the sum one
        raise ValueError("the encoder gives features that are not finite")
    return features


def stream_frames(
    recordings: Sequence[Recording], features: Features, pool: Executor, queue_size: int
) -> Iterator[np.ndarray]:
    """Yield the features (T_i, D) of all recordings that can be used, in order and in chunks; the
    others are listed and counted.

    pool: encodes recordings of up to LONG seconds, `queue_size` of them before they are needed;
    longer ones are encoded here, chunk by chunk. Raises InputError where none can be used.
    """
    what = "features for k-means"
    failed: dict[str, str] = {}
    jobs = submit_in_order(pool, partial(_encode_short, features), recordings, queue_size)
    for recording, future in tqdm(jobs, what, total=len(recordings), unit="file"):
        try:
            chunks = future.result()
            yield from (_encode_chunks(features, recording) if chunks is None else chunks)
        except (InputError, ValueError) as error:
            failed[recording.id] = str(error)
    refuse_if_all_failed(failed, len(recordings), what)


def _encode_chunks(features: Features, recording: Recording) -> Iterator[np.ndarray]:
    """Yield the features (T_i, D) of a recording."""
    for chunk in features.stream(read_audio(recording.path)):
        yield check_finite(chunk).numpy()


def _encode_short(features: Features, recording: Recording) -> list[np.ndarray] | None:
    """Return all features of a recording; None for a long one."""
    if read_duration(recording.path) > LONG:
        return None
    return list(_encode_chunks(features, recording))


def submit_in_order(
    pool: Executor, function: Callable[[Item], Result], items: Sequence[Item], queue_size: int
) -> Iterator[tuple[Item, Future[Result]]]:
    """Yield every item with its result from the pool, in order. The pool computes at most
    `queue_size` results before they are needed."""
    queue: deque[tuple[Item, Future[Result]]] = deque()
    for item in items:
        queue.append((item, pool.submit(function, item)))
        if len(queue) > queue_size:
            yield queue.popleft()
    yield from queue


def encode_each(
    pool: Executor,
    encode: Callable[[Recording], Result],
    recordings: Sequence[Recording],
    queue_size: int,
    what: str,
) -> Iterator[tuple[Recording, Result]]:
    """Yield every recording that can be used with its result from the pool, in order; the others
    are listed and counted. what: the purpose, for the progress bar. Raises InputError where none
    can be used."""
    failed: dict[str, str] = {}
    jobs = submit_in_order(pool, encode, recordings, queue_size)
    for recording, future in tqdm(jobs, what, total=len(recordings), unit="file"):
        try:
            result = future.result()
        except (InputError, ValueError) as error:
            failed[recording.id] = str(error)
        else:
            yield recording, result
    refuse_if_all_failed(failed, len(recordings), what)


def smooth(features: torch.Tensor, width: int) -> torch.Tensor:
    """Average features (T, D) over `width` neighbouring frames, an odd number; at the edges over
    fewer. Returns (T, D).

    A phone lasts several frames; clusters of smoothed features change less often within a phone,
    and differ less between voices.
    """
    if width == 1:
        return features
    pooled = torch.nn.functional.avg_pool1d(
        features.T[None], width, 1, width // 2, count_include_pad=False
    )
    return pooled[0].T


def smooth_chunks(chunks: Iterable[torch.Tensor], width: int) -> Iterator[torch.Tensor]:
    """Apply `smooth` to the chunks (T_i, D) of one sequence as they come, with the same bits: a
    frame waits for its `width` // 2 successors."""
    half = width // 2
    buffer = None
    yielded = 0  # frames at the buffer's start that stay only as neighbours of those to come
    for chunk in chunks:
        buffer = chunk if buffer is None else torch.cat([buffer, chunk])
        ready = len(buffer) - half
        if ready > yielded:
            yield smooth(buffer, width)[yielded:ready]
            buffer = buffer[max(ready - half, 0) :]
            yielded = min(ready, half)
    if buffer is not None and len(buffer) > yielded:
        yield smooth(buffer, width)[yielded:]
