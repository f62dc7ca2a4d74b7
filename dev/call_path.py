"""Which files of the package a call passes: python dev/call_path.py VERB ARGUMENT ... (as
`speechssl` takes them)

Prints those in which a function runs, in the order of the first call. What runs while a module is
imported does not count, nor what runs in other processes (give --workers 1), nor __getattr__.
"""

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = f"{Path(__file__).parents[1] / 'speechssl'}/"
passed: dict[str, None] = {}


def note(frame: FrameType, event: str, _: Any) -> None:
    name = frame.f_code.co_filename
    if (
        event != "call"
        or not name.startswith(ROOT)
        or name in passed
        or frame.f_code.co_name == "__getattr__"
    ):
        return
    caller: FrameType | None = frame
    while caller:  # an import is under way, or this is the body of a class
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename.startswith(ROOT):
            return
        caller = caller.f_back
    passed[name] = None


if __name__ == "__main__":
    from speechssl.cli import main

    threading.setprofile(note)
    sys.setprofile(note)
    code = main(sys.argv[1:])
    sys.setprofile(None)
    print(f"{len(passed)} files:", *(name.removeprefix(ROOT) for name in passed), file=sys.stderr)
    sys.exit(code)
