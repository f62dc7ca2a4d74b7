"""A setting of a recipe, for its run.sh: the values of a name in the section `recipe`, on one line.

python recipes/settings.py CONFIG NAME
"""

import sys
from pathlib import Path

import yaml

if __name__ == "__main__":
    section = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8")).get("recipe", {})
    value = section.get(sys.argv[2])
    if value is not None:
        print(*(value if isinstance(value, list) else [value]))
