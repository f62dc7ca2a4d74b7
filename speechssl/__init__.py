"""speechssl turns speech into discrete units by self-supervised encoders, and answers spoken
questions by DUAL, which reads units, and by cascades, which read recognised words.

import speechssl
speechssl.answer("passage.wav", "question.wav")["dual"].start
speechssl.QA().answer("passage.wav", ["question.wav", "Who founded it?"])
speechssl.load_encoder("people-en/encoder").features(samples, layer=5)
units = speechssl.Units("people-en/encoder", "people-en/units.safetensors")
speechssl.Dual(units, "people-en/dual").answer("passage.wav", "question.wav").start
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speechssl.audio import read_audio
    from speechssl.checkpoints import push_to_hub
    from speechssl.data.table import make_corpus
    from speechssl.encoders.load import load_encoder
    from speechssl.errors import InputError
    from speechssl.pipelines import QA, Cascade, Dual, Units, answer, evaluate
    from speechssl.units.codebook import load_codebook


__version__ = "0.1.0"
_HOMES = {
    "Cascade": "speechssl.pipelines",
    "Dual": "speechssl.pipelines",
    "InputError": "speechssl.errors",
    "QA": "speechssl.pipelines",
    "Units": "speechssl.pipelines",
    "answer": "speechssl.pipelines",
    "evaluate": "speechssl.pipelines",
    "load_codebook": "speechssl.units.codebook",
    "load_encoder": "speechssl.encoders.load",
    "make_corpus": "speechssl.data.table",
    "push_to_hub": "speechssl.checkpoints",
    "read_audio": "speechssl.audio",
}
__all__ = [
    "QA",
    "Cascade",
    "Dual",
    "InputError",
    "Units",
    "answer",
    "evaluate",
    "load_codebook",
    "load_encoder",
    "make_corpus",
    "push_to_hub",
    "read_audio",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `import speechssl` alone takes no time and no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'speechssl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List what a notebook completes, before any of it is imported."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
