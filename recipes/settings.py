"""What a recipe's run.sh itself reads of its configuration: the section `recipe`, a line for each
setting, its name and its values.

python recipes/settings.py CONFIG
python recipes/settings.py CONFIG --set OUT SECTION.NAME=VALUE ...
    a copy with other values, in YAML
"""

import re
import sys
from contextlib import suppress
from pathlib import Path

import yaml


def main(config: Path) -> None:
    section = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("recipe") or {}
    for name, value in section.items():
        if value is not None:
            print(name, *(value if isinstance(value, list) else [value]))


def override(config: Path, out: Path, changes: list[str]) -> None:
    """Exits with a sentence for a section that the configuration lacks, and for a name that is no
    option of any verb or program, nor a setting of the recipe; whether it is one of the verb that
    reads the section, that verb says at its stage.
    """
    from speechssl.cli import VERBS, config_of

    # here alone: the settings need nothing of it
    from speechssl.cli.parser import options_of, suggest_name

    sections = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    known = {option.name for verb in VERBS for option in options_of(config_of(verb))}
    for file in config.parent.glob("*.yaml"):
        known.update(
            name
            for section in (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).values()
            for name in section or {}
        )
    for script in [*config.parent.glob("*.sh"), *Path(__file__).parent.glob("*.sh")]:
        known.update(
            re.findall(
                r"\b(?:setting|named) "
                r'"?([\w-]+)',
                script.read_text(encoding="utf-8"),
            )
        )
    for program in config.parent.glob("*.py"):  # options of the recipe's own
        fields = r"^    (\w+): [^=\n]+ = option\("
        known.update(re.findall(fields, program.read_text(encoding="utf-8"), re.MULTILINE))
    known = {name.replace("_", "-") for name in known}
    for change in changes:
        place, _, text = change.partition("=")
        section, _, name = place.partition(".")
        if section not in sections:
            sys.exit(
                f"speechssl: {config} has no section {section!r} (--set {change}); its "
                f"sections are {', '.join(sections)}"
            )
        if name.replace("_", "-") not in known:
            hint = suggest_name(name, known)
            sys.exit(f"speechssl: no option is called {name!r} (--set {change}){hint}")
        value = yaml.safe_load(text)
        with suppress(ValueError):
            # YAML takes 1e-5, without a dot, for a text
            value = float(value) if isinstance(value, str) else value
        sections[section] = {
            k: v
            for k, v in (sections[section] or {}).items()
            if k.replace("_", "-") != name.replace("_", "-")
        }
        sections[section][name] = value
    out.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(sections, sort_keys=False, allow_unicode=True)
    out.write_text(f"# {config} with {' '.join(changes)}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[2:]:
        override(Path(sys.argv[1]), Path(sys.argv[3]), sys.argv[4:])
    else:
        main(Path(sys.argv[1]))
