"""Print the cascades of those Whisper checkpoints that are on this machine, as systems of `evaluate
qa`; the others are named on stderr.

python recipes/whispers.py openai/whisper-tiny.en openai/whisper-base
    prints cascade-openai/whisper-tiny.en ...
"""

import sys

from speechssl.checkpoints import find_checkpoint
from speechssl.errors import InputError

if __name__ == "__main__":
    try:
        folders = {name: find_checkpoint(name) for name in sys.argv[1:]}
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        sys.exit(2)
    for name, folder in folders.items():
        if folder is None:
            print(
                f"left out: cascade-{name}, whose checkpoint is not on this machine "
                f"(`python recipes/fetch.py {name.removeprefix('openai/')}`)",
                file=sys.stderr,
            )
    print(*(f"cascade-{name}" for name, folder in folders.items() if folder))
