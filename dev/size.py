"""Print the size of the package.

    python dev/size.py

For every subpackage, for recipes and for tests it prints files, lines and tokens of Python
(tokens without line ends and indentation, with comments and docstrings), and the places that raise
an InputError; then the largest modules of the package by their tokens, and the numbers of verbs and
of their options.
"""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = 40  # modules that are listed
LAYOUT = (  # tokens that do not count
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
)


def measure(files: Iterable[Path]) -> Counter[str]:
    """Count the files, lines, tokens and InputErrors of Python files."""
    sums: Counter[str] = Counter()
    for path in files:
        text = path.read_text("utf-8")
        with path.open("rb") as source:
            tokens = [t for t in tokenize.tokenize(source.readline) if t.type not in LAYOUT]
        sums["files"] += 1
        sums["lines"] += text.count("\n")
        sums["tokens"] += len(tokens)
        sums["InputErrors"] += text.count("raise InputError")
    return sums


def count_options() -> tuple[int, int]:
    """Count the verbs, and the options of all of them together, positional ones included."""
    from speechssl.cli import VERBS, import_options
    from speechssl.cli.parser import list_options

    return len(VERBS), sum(len(list(list_options(import_options(verb)))) for verb in VERBS)


def main() -> None:
    package = ROOT / "speechssl"
    folders = sorted(p for p in package.iterdir() if p.is_dir() and any(p.rglob("*.py")))
    rows = {f"speechssl/{folder.name}": measure(folder.rglob("*.py")) for folder in folders}
    rows["speechssl/*.py"] = measure(package.glob("*.py"))
    rows["speechssl, whole"] = measure(package.rglob("*.py"))
    rows["recipes"] = measure((ROOT / "recipes").rglob("*.py"))
    rows["tests"] = measure((ROOT / "tests").rglob("*.py"))
    print(f"{'':28}{'files':>7}{'lines':>9}{'tokens':>9}{'a line':>8}{'InputErrors':>13}")
    for name, row in rows.items():
        a_line = row["tokens"] / max(row["lines"], 1)
        print(
            f"{name:28}{row['files']:7}{row['lines']:9,}{row['tokens']:9,}{a_line:8.1f}"
            f"{row['InputErrors']:13}"
        )
    tokens = {path: measure([path])["tokens"] for path in package.rglob("*.py")}
    print("\nthe largest modules, in tokens")
    for path in sorted(tokens, key=lambda path: -tokens[path])[:LARGEST]:
        print(f"{path.relative_to(ROOT)!s:48}{tokens[path]:7,}")
    verbs, options = count_options()
    print(f"{verbs} verbs with {options} options")


if __name__ == "__main__":
    main()
