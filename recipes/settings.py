"""Print the section `recipe` of a configuration, which has the settings that a run.sh itself reads:
a line for each, with its name and its values.

python recipes/settings.py CONFIG
"""

import sys
from pathlib import Path

import yaml

if __name__ == "__main__":
    content = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, value in content.get("recipe", {}).items():
        if value is not None:
            print(name, *(value if isinstance(value, list) else [value]))
