"""`speechssl prepare miniature`: what was invented, in the layout that a corpus is published in."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from speechssl.artefacts import hash_json, write_text
from speechssl.corpora.miniature.nmsqa import write_nmsqa
from speechssl.corpora.miniature.slue_sqa5 import write_slue_sqa5
from speechssl.corpora.miniature.squad import write_odsqa, write_spoken_squad
from speechssl.corpora.miniature.telling import Content, tell
from speechssl.corpora.miniature.toefl_qa import write_toefl_qa
from speechssl.errors import InputError

CORPORA: Mapping[str, tuple[str, Callable[[Content, Path, random.Random], None]]] = {  # name -> language, writer
    "nmsqa": ("en", write_nmsqa),
    "odsqa": ("zh", write_odsqa),
    "toefl-qa": ("en", write_toefl_qa),
    "spoken-squad": ("en", write_spoken_squad),
    "slue-sqa5": ("en", write_slue_sqa5),
}
README = """# Not {name}: an invented miniature in its layout

Every passage, question and answer below was made up by a generator, every voice is espeak-ng's, every recognition error is drawn by
lot. It is there to try programs on. Nothing that is measured on it says anything about {name}.

Made by `{command}` ({hash}).
"""


@dataclass(frozen=True)
class Settings:
    """What decides the bytes."""

    corpus: str
    passages: dict[str, int] = field(default_factory=lambda: {"train": 6, "dev": 2, "test": 3})
    questions: int = 4  # a passage
    seed: int = 0

    @property
    def command(self) -> str:
        """What makes this again."""
        train, dev, test = (self.passages[split] for split in ("train", "dev", "test"))
        counts = f"--passages {train} --dev-passages {dev} --test-passages {test}"
        return f"speechssl prepare miniature {self.corpus} OUT {counts} --questions {self.questions} --seed {self.seed}"


def make_miniature(out: Path, settings: Settings) -> bool:
    """Write the tree, whole or not at all; False where it is there already.

    Raises InputError for an unknown corpus, for no passages or questions, and where `out` holds something else.
    """
    name = settings.corpus.replace("_", "-")
    if name not in CORPORA:
        raise InputError(f"there is no miniature of {settings.corpus}; choose from {', '.join(CORPORA)}")
    if min(*settings.passages.values(), settings.questions) < 1:
        raise InputError(f"cannot make `{settings.command}`; give at least one passage a split, and one question a passage")
    said = README.format(name=name, command=settings.command, hash=hash_json(asdict(settings)))
    if _is_there(out, said):
        return False
    language, write = CORPORA[name]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as temporary:
        root = Path(temporary) / "tree"
        write(_content(language, settings), root, random.Random(f"{name} {settings.seed}"))
        write_text(root / "README.md", said)
        if out.is_dir():
            out.rmdir()
        shutil.move(root, out)
    return True


def _is_there(out: Path, said: str) -> bool:
    """Raises InputError for a folder that holds something else, and for a file."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    readme = out / "README.md"
    if readme.is_file() and readme.read_text(encoding="utf-8") == said:
        return True
    raise InputError(f"{out} is there and not this miniature; choose another folder or delete it")


def _content(language: str, settings: Settings) -> dict[str, Any]:
    return {
        split: list(tell(language, split, count, settings.seed, settings.questions)) for split, count in settings.passages.items()
    }
