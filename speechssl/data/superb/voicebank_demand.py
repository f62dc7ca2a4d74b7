"""VoiceBank-DEMAND (Valentini-Botinhao 2017, datashare.ed.ac.uk/handle/10283/2791) for SE: the 28-speaker training set.

Dev is the speakers p226 and p287, as in s3prl's `enhancement_stft2/scripts/Voicebank/data_prepare.py`. s3prl resamples all to
16 kHz first; here recordings may be at 48 kHz, they are resampled when they are read.
Counts: 11,572 and 824 are those of the corpus; that p226 and p287 have 770 of them stands in several public recipes.
"""

from __future__ import annotations

from pathlib import Path

from speechssl.data.superb.sets import Cards, Order, Prepared, by_split, gathered, order, prepare, wavs
from speechssl.data.utterances import SPLITS, Utterance

DEV_SPEAKERS = ("p226", "p287")
FOLDERS = {"train": "trainset_28spk_wav", "test": "testset_wav"}
COUNTS = {"train": 10_802, "dev": 770, "test": 824}
LAYOUT = "give the folder that holds clean_ and noisy_trainset_28spk_wav, clean_ and noisy_testset_wav (or these names with _16k)"


def prepare_voicebank_demand(source: Path | str, out: Path | str, any_count: bool = False) -> Cards:
    """Write `out`/se (the noisy recordings, each with its clean one) and return its card.

    Raises InputError for a wrong folder, or counts that are not the published ones (unless `any_count`).
    """
    return prepare(order("voicebank-demand", source, out, ["se"], LAYOUT, any_count), _read)


def _read(order: Order) -> dict[str, Prepared]:
    utterances = by_split([pair for split, name in FOLDERS.items() for pair in _pairs(order, split, name)], SPLITS)
    return {"se": Prepared("se", gathered(order, utterances, COUNTS))}


def _pairs(order: Order, split: str, name: str) -> list[tuple[str, Utterance]]:
    """(split, utterance): a noisy recording such as p232_001.wav, and the clean one of the same name."""
    noisy, clean = (order.find(f"{kind}_{name}_16k", f"{kind}_{name}") for kind in ("noisy", "clean"))
    found = []
    for path in wavs(noisy):
        speaker = path.stem.split("_")[0]
        utterance = Utterance(path.stem, str(path), 0.0, speaker, sources=(str(clean / path.name),))
        found.append(("dev" if split == "train" and speaker in DEV_SPEAKERS else split, utterance))
    return found
