"""Query by example under a condition: queries and documents are both heard through it; the layer is chosen on clean dev queries."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from speechssl.artefacts import hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.corpora.sources import Recording
from speechssl.corpora.utterances import DOCUMENTS, UtteranceSet
from speechssl.errors import InputError
from speechssl.evaluation.judging import DRAWN, RESAMPLES, Cell, Ears
from speechssl.evaluation.states import Stock, options_of
from speechssl.superb.features import Hearing, Hears, encoder_card
from speechssl.superb.spoken_terms import SpokenTerms
from speechssl.superb.task import Judgement


def judge_terms(data: UtteranceSet, stock: Stock, ears: Ears, place: Path, chosen: Path, what: str) -> Judgement:
    """place: the file of the cell. chosen: of the layer. Raises InputError as the search and the cache of states do."""
    terms = SpokenTerms(data)
    layer, layers = choose(terms, stock, chosen)
    recordings = [data.path(u) for split in (DOCUMENTS, "test") for u in data.splits[split]]
    made_from = hash_json([data.hash, ears.card(recordings), encoder_card(stock.encoder), layer, RESAMPLES, DRAWN])
    cell = Cell(place, made_from)
    if (found := cell.read()) is None:
        states = _states(stock, data, (DOCUMENTS, "test"), ears)
        judged = terms.judge(states, "test", layer, RESAMPLES, stock.workers)
        found = replace(judged, detail={**judged.detail, "layers": layers})
        cell.write(found, {})
        _forget(stock, data, ears)
    return found


def choose(terms: SpokenTerms, stock: Stock, path: Path) -> tuple[int, list[float]]:
    """The best layer on dev and the MTWV of every layer there (percent), found once."""
    made_from = hash_json([terms.data.hash, encoder_card(stock.encoder)])
    if path.is_file() and (card := read_json(path)).get("made_from") == made_from:
        return int(card["layer"]), list(card["layers"])
    states = _states(stock, terms.data, (DOCUMENTS, "dev"), None)
    layer, layers = terms.choose_layer(states, stock.encoder.layers + 1, stock.workers)
    write_json(path, {"kind": "superb-layer", "task": terms.name, "layer": layer, "layers": layers, "made_from": made_from})
    return layer, layers


@dataclass(frozen=True)
class _Through:
    """What the cache of states hears recordings through."""

    ears: Ears
    paths: tuple[Path, ...]

    @property
    def card(self) -> dict[str, Any]:
        return {"sound": hash_json(self.ears.card(self.paths))}

    def read(self, recording: Recording) -> np.ndarray:
        """(N,) float32 at 16 kHz."""
        return self.ears.hear(recording.path)


def _states(stock: Stock, data: UtteranceSet, splits: tuple[str, ...], ears: Ears | None) -> Callable[[str], Tensor]:
    """By id, from the cache where there is room, else from the encoder every time anew.

    Clean documents and queries are in folders of their own, so that documents are computed once.
    """
    options = options_of(False, stock.limit_gb)
    groups, hearing = _kept(data, splits, ears)
    folders = [stock.folder(data, group, options, hearing) for group in groups]
    fits = [stock.fits(SpokenTerms.name, data, group, options, folder) for group, folder in zip(groups, folders, strict=True)]
    if stock.mode == "loop" or not all(fits):
        return _live(stock, data, splits, ears)
    found = [stock.states(data, group, options, hearing) for group in groups]

    def states_of(name: str) -> Tensor:
        for states in found:
            if name in states:
                return states[name]
        raise KeyError(name)

    return states_of


def _kept(data: UtteranceSet, splits: tuple[str, ...], ears: Ears | None) -> tuple[list[tuple[str, ...]], Hears]:
    """The splits that share a folder, and what they are heard through."""
    if ears is None or ears.setting.group == "clean":
        return [(split,) for split in splits], Hearing()
    return [splits], _Through(ears, tuple(data.path(u) for split in splits for u in data.splits[split]))


def _live(stock: Stock, data: UtteranceSet, splits: tuple[str, ...], ears: Ears | None) -> Callable[[str], Tensor]:
    paths = {u.id: data.path(u) for split in splits for u in data.splits[split]}

    def states_of(name: str) -> Tensor:
        try:
            return stock.encoder.hidden_states(ears.hear(paths[name]) if ears else read_audio(paths[name])).cpu().transpose(0, 1)
        except (InputError, ValueError) as error:
            raise KeyError(name) from error

    return states_of


def _forget(stock: Stock, data: UtteranceSet, ears: Ears) -> None:
    """What was heard through noise is not asked for again."""
    groups, hearing = _kept(data, (DOCUMENTS, "test"), ears)
    if ears.setting.group != "clean":
        shutil.rmtree(stock.folder(data, groups[0], options_of(False, stock.limit_gb), hearing), ignore_errors=True)
