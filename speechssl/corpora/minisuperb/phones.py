"""The phones of PR: those that espeak-ng spoke, named as in the CMU dictionary (39, as LibriSpeech's are without stress).

espeak-ng distinguishes 66 in English. Variants of one phone have one name here: the flap and the unreleased t are T, a vowel that
is short where it has no stress is that vowel, and every schwa is AH. A vowel with an r in it is two phones, as in the dictionary;
the r that links it to a vowel after it is no further one. Pauses and the glide between two vowels (`;`) are left out.
"""

from __future__ import annotations

from speechssl.corpora.espeak import Spoken

_CONSONANTS = (
    "p P, b B, t T, t# T, t2 T, ? T, d D, k K, g G, f F, v V, T TH, D DH, s S, z Z, S SH, Z ZH, h HH, tS CH, dZ JH, "
    "m M, n N, n- AH N, N NG, l L, r R, r- R, w W, j Y"
)
_VOWELS = (
    "@ AH, @2 AH, @- AH, a# AH, V AH, @L AH L, 3 ER, 3: ER, a AE, aa AE, 0 AA, A: AA, O: AO, O2 AO, E EH, I IH, I2 IH, I# IH, "
    "i IY, i: IY, U UH, u: UW, eI EY, aI AY, aU AW, OI OY, oU OW, "
    "A@ AA R, O@ AO R, o@ AO R, e@ EH R, i@ IY AH, i@3 IH R, U@ UH R, aI@ AY AH, aI3 AY ER"
)
_SILENT = ("_", ";")
NAMES: dict[str, tuple[str, ...]] = {
    **{(parts := line.split())[0]: tuple(parts[1:]) for line in f"{_CONSONANTS}, {_VOWELS}".split(", ")},
    **dict.fromkeys(_SILENT, ()),
}
PHONES = tuple(sorted({name for names in NAMES.values() for name in names}))


def phones_of(spoken: Spoken | None) -> str:
    """What was said in English, "HH AH L OW". Raises KeyError for a phone that no English word has."""
    said: list[str] = []
    for phone in spoken.said if spoken else ():
        names = NAMES[phone]
        linking = names == ("R",) and said[-1:] in (["R"], ["ER"])
        said += () if linking else names
    return " ".join(said)
