"""The speakers of MiniSQA: espeak-ng variants, each with its own rate and pitch, disjoint between the splits.

The split of a speaker is part of this table and does not depend on the seed of a corpus, so a model trained on one corpus has
never heard the test speakers of another. Variants that whisper, buzz or read as a robot are left out, and so are six (f2, f3, f5,
Alicia, sandro, victor) whose samples differ from run to run (espeak-ng reads uninitialised memory for them).
"""

from __future__ import annotations

from speechssl.corpora.espeak import Voice
from speechssl.errors import InputError

LANGUAGES = {"en": "en-us", "zh": "cmn"}
REFERENCE_VARIANT = ""  # espeak-ng's own voice; nobody's in the corpus

_VARIANTS = {
    "train": (
        "Alex Andy Annie Denis Diogo Gene Henrique Hugo Jacky Lee Mario Michael Mike Nguyen Reed Storm adam announcer "
        "aunty belinda boris ed edward f1 grandma gustave ian iven2 klatt klatt3 linda m1 m2 m4 m6 m8 marcelo max miguel "
        "norbert pablo quincy robert shelby steph travis zac pedro"
    ),
    "dev": "david f4 klatt5 m3 Marco steph2 antonio john",
    "test": "caleb grandpa klatt6 m5 m7 paul rob Andrea",
}
_RATES = (150, 165, 180, 195, 210)
_PITCHES = (35, 50, 65, 42, 58, 72, 28)
_RANGES = (40, 55, 70)


def speakers(language: str, split: str) -> tuple[Voice, ...]:
    """The voices of a split. Raises InputError for an unknown language or split."""
    if language not in LANGUAGES:
        raise InputError(f"MiniSQA has no language {language!r}; it has {', '.join(LANGUAGES)}")
    if split not in _VARIANTS:
        raise InputError(f"MiniSQA has no split {split!r}; it has {', '.join(_VARIANTS)}")
    return tuple(
        Voice(
            name=f"{language}-{variant.lower()}",
            language=LANGUAGES[language],
            variant=variant,
            rate=_RATES[i % len(_RATES)],
            pitch=_PITCHES[i % len(_PITCHES)],
            range=_RANGES[i % len(_RANGES)],
        )
        for i, variant in enumerate(_VARIANTS[split].split())
    )


def reference(voice: Voice) -> Voice:
    """The one neutral voice, at this voice's rate: what a perfect voice converter would turn every speaker into."""
    return Voice("reference", voice.language, REFERENCE_VARIANT, rate=voice.rate, pitch=50, range=50)
