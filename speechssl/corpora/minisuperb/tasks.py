"""The tasks of MiniSUPERB: what each is drawn from, and how much of it is usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from speechssl.corpora.minisuperb import commands, conversations, labelled, mixtures, reading, search
from speechssl.corpora.minisuperb.draws import Planned, numbered
from speechssl.corpora.utterances import SPLITS, SPLITS_OF
from speechssl.errors import InputError

DRAWN: dict[str, Callable[[Random, str, int], Iterator[Planned]]] = {  # of the generator, a split and the seed
    "pr": reading.phonetic,
    "asr": reading.transcribed,
    "ks": labelled.keywords,
    "sid": labelled.identities,
    "asv": reading.verified,
    "sd": conversations.conversations,
    "ic": labelled.intents,
    "sf": commands.commands,
    "style": labelled.styles,
    "se": mixtures.noisy,
    "ss": mixtures.overlaps,
}
NAMES = {"pr": reading.SENTENCES, "asr": reading.SENTENCES}  # task -> whose recordings it has, where they are not its own
USUAL = {  # task -> utterances in train (qbe: documents), dev and test
    "pr": (900, 100, 200),
    "asr": (900, 100, 200),
    "ks": (2400, 300, 600),
    "qbe": (300, 40, 40),
    "sid": (1200, 240, 600),
    "asv": (800, 160, 160),
    "sd": (250, 40, 60),
    "ic": (1500, 300, 600),
    "sf": (1200, 150, 300),
    "style": (1200, 240, 480),
    "se": (300, 40, 60),
    "ss": (300, 40, 60),
}
LEAST = {  # utterances in each split, where one is too few
    "asv": (3, 3, 3),  # two of one voice, and one of another
    "qbe": (8, 1, 1),  # documents that match, and others
}
ONE = (1, 1, 1)


def splits_of(task: str) -> tuple[str, ...]:
    return SPLITS_OF.get(task, SPLITS)


def some_of(tasks: Sequence[str], share: float) -> dict[str, tuple[int, int, int]]:
    """Sizes for `Settings`: this share of the usual numbers, the fewest that will do at least. InputError for an unknown task."""
    if unknown := [task for task in tasks if task not in USUAL]:
        raise InputError(f"there is no set {unknown[0]}; choose from {', '.join(USUAL)}")
    found = {}
    for task in tasks:
        train, dev, test = (max(round(share * n), least) for n, least in zip(USUAL[task], LEAST.get(task, ONE), strict=True))
        found[task] = train, dev, test
    return found


def check_sizes(sizes: Mapping[str, Sequence[int]]) -> None:
    """Raises InputError for an unknown task, or numbers of utterances that cannot be made."""
    for task, counts in sizes.items():
        least = LEAST.get(task, ONE)
        if task not in USUAL or len(counts) != len(least) or any(n < m for n, m in zip(counts, least, strict=True)):
            raise InputError(
                f"cannot make {task} of {counts} utterances; give {', '.join(USUAL)} three numbers from {' '.join(map(str, least))}"
            )


def plan(task: str, sizes: Mapping[str, int], seed: int) -> Mapping[str, Sequence[Planned]]:
    """The recordings of each split, decided by (task, split, seed) alone; of queries by the number of documents too."""
    if task == "qbe":
        return search.plan(sizes, seed)
    return {split: draw(task, split, count, seed) for split, count in sizes.items()}


def draw(task: str, split: str, count: int, seed: int) -> list[Planned]:
    """The recordings of a split, `count` of them. Raises KeyError for an unknown task, and for qbe, which is planned as a whole."""
    name = NAMES.get(task, task)
    key = f"minisuperb/{name}/{split}/{seed}"
    return numbered(DRAWN[task](Random(key), split, seed), key, f"{name}-{split}", count)
