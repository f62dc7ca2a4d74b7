"""What a recipe's run.sh itself reads of its configuration: the values of one setting of the section `recipe`, on one line.

python recipes/settings.py CONFIG NAME      prints nothing where it is not set
"""

import sys
from pathlib import Path

import yaml


def main(config: Path, name: str) -> None:
    section = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("recipe") or {}
    value = section.get(name)
    if value is not None:
        print(*(value if isinstance(value, list) else [value]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
