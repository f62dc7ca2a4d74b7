"""Print the files of the package whose functions a call runs, in the order of their first calls.

    python dev/call_path.py VERB ARGUMENT ...       (as `speechssl` takes them)

Functions that run while a module is imported do not count, nor those of other processes (give
--workers 1), nor __getattr__.
"""

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = f"{Path(__file__).parents[1] / 'speechssl'}/"
files: dict[str, None] = {}  # an ordered set: files in the order of their first calls


def note_file(frame: FrameType, event: str, _: Any) -> None:
    """Note the file of a call, as a profile function."""
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    if event != "call" or function == "__getattr__" or file in files or not file.startswith(ROOT):
        return
    caller: FrameType | None = frame
    while caller:
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename.startswith(ROOT):
            return  # an import is under way, or this is the body of a class
        caller = caller.f_back
    files[file] = None


if __name__ == "__main__":
    from speechssl.cli import main

    threading.setprofile(note_file)
    sys.setprofile(note_file)
    code = main(sys.argv[1:])
    sys.setprofile(None)
    names = (file.removeprefix(ROOT) for file in files)
    print(f"{len(files)} files:", *names, file=sys.stderr)
    sys.exit(code)
