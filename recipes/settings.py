"""Print the section `recipe` of a configuration, which has the settings that a run.sh itself reads:
a line for each, with its name and its values.

python recipes/settings.py CONFIG
"""

from pathlib import Path

from speechssl.cli import run_program
from speechssl.cli.parser import read_section


def main(config: Path) -> None:
    for name, value in read_section(config, None).get("recipe", {}).items():
        if value is not None:
            print(name, *(value if isinstance(value, list) else [value]))


if __name__ == "__main__":
    run_program(main)
