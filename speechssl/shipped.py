"""Where the models are that the package carries, and folders like theirs."""

from __future__ import annotations

from pathlib import Path

from speechssl.errors import InputError

SHIPPED = Path(__file__).parent / "models"
DEFAULT = "minisqa-en"


def model_folder(name: str | Path = DEFAULT) -> Path:
    """A shipped set of models by name, or a folder. Raises InputError where there is neither."""
    for folder in (Path(name), SHIPPED / str(name)):
        if (folder / "encoder").is_dir() or (folder / "text-qa").is_dir():
            return folder
    known = sorted(p.parent.name for p in SHIPPED.glob("*/encoder"))
    raise InputError(
        f"{name} is neither a folder with encoder/ or text-qa/ in it nor a shipped model; shipped: {', '.join(known) or 'none'}"
    )
