"""speechssl: speech in, units out, questions answered; self-supervised encoders, DUAL and the cascade beside it.

import speechssl
speechssl.answer("passage.wav", "question.wav")["dual"].start
speechssl.load_encoder("minisqa-en-robust/encoder").features(samples, layer=5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speechssl.audio import read_audio
    from speechssl.encoders.load import load_encoder
    from speechssl.systems import answer


__version__ = "0.1.0"
__all__ = ["answer", "load_encoder", "read_audio"]

_HOMES = {
    "answer": "speechssl.systems",
    "load_encoder": "speechssl.encoders.load",
    "read_audio": "speechssl.audio",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import speechssl` alone takes no time and no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'speechssl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
