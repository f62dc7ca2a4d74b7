"""`speechssl bundle`: a folder of models of parts."""

from __future__ import annotations

from typing import Any

from speechssl.cli.options import Bundle
from speechssl.systems import bundle


def bundle_parts(o: Bundle) -> dict[str, Any]:
    """Copy the parts to `o.out`, print the systems that they make, and return where they lie."""
    card = bundle(o.parts, o.out)
    print(f"{o.out}: {', '.join(card['systems']) or 'an encoder'}")
    return {"out": str(o.out), "card": card}
