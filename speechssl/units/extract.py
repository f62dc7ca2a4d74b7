"""Extract the units of a corpus, on this machine or on a Ray cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

from speechssl.data.recordings import list_recordings, source_card
from speechssl.errors import InputError, report_set_aside
from speechssl.timing import shown_length
from speechssl.units.corpus import Engine, LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import load_extractor
from speechssl.units.options import Extract
from speechssl.units.ray_engine import RayEngine
from speechssl.units.storage import FAILED


def extract_units(o: Extract) -> dict[str, Any]:
    """Write the units of a split, a manifest or a folder. Finished parts are not made again.

    Returns their folder, their card, and the recordings that were set aside. Raises InputError as
    `extract_corpus` does.
    """
    shard = None if o.shard is None else parse_shard(o.shard)
    out = o.out / (o.split or "")
    recordings = list_recordings(o.source, o.split, o.passages)
    source = source_card(o.source, o.split, o.passages)
    # machines of a cluster have other GPUs than those that this process was left by --device
    device = "cpu" if o.device == "cpu" else "auto"
    load = partial(load_extractor, o.encoder, o.codebook, o.precision, device)
    engine: Engine = LocalEngine(o.workers)
    if o.engine == "ray":
        engine = RayEngine(load, o.workers)
    maker = ShardMaker(load(), out, o.shard_size)
    extraction = extract_corpus(maker, recordings, engine, source, shard)
    card, failed = extraction.card, extraction.failed
    if not card:
        print(
            f"{out}: the parts of shard {o.shard} are written; the last of the other "
            "shards writes the card"
        )
        return {"out": str(out), "card": None, "failed": failed}
    report_set_aside(failed, f"{out / FAILED}")
    amount = count_noun(card["recordings"], "recording")
    parts = count_noun(len(card["parts"]), "part")
    length = shown_length(card["seconds"])
    print(f"{out}: units of {amount} ({length}) in {parts}; {len(failed)} set aside")
    return {"out": str(out), "card": card, "failed": failed}


def parse_shard(text: str) -> tuple[int, int]:
    """Read "2/8". Raises InputError for what is not I/N with I from 1 to N."""
    number, _, count = text.partition("/")
    whole = number.isdecimal() and count.isdecimal()
    if not whole or not 1 <= int(number) <= int(count):
        raise InputError(f"--shard {text} is not I/N with I from 1 to N; write it as 2/8")
    return int(number), int(count)


def count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
