"""Print the folder of a set of models, given its path or the name under which it ships.

python recipes/models.py people-en
"""

import sys

from speechssl.checkpoints import model_folder
from speechssl.errors import InputError

if __name__ == "__main__":
    try:
        print(model_folder(sys.argv[1]).resolve())
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        sys.exit(2)
