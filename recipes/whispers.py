"""Print the cascades of those Whisper checkpoints that are on this machine, as systems of `evaluate
qa`; the others are named on stderr.

python recipes/whispers.py openai/whisper-tiny.en openai/whisper-base
    prints cascade-openai/whisper-tiny.en ...
"""

import sys

from speechssl.checkpoints import find_checkpoint
from speechssl.cli import run_program


def main(*names: str) -> None:
    found = []
    for name in names:
        if find_checkpoint(name):
            found.append(f"cascade-{name}")
            continue
        remedy = f"python recipes/fetch.py {name.removeprefix('openai/')}"
        print(f"left out: cascade-{name}, not on this machine (`{remedy}`)", file=sys.stderr)
    print(*found)


if __name__ == "__main__":
    run_program(main)
