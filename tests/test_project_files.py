"""What says who made this, how to cite it, and what there is to make."""

import re
import subprocess
from pathlib import Path

import yaml

from speechssl import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version_and_licence() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (
        cited["cff-version"] == "1.2.0"
        and cited["version"] == __version__
        and cited["license"] == "Apache-2.0"
    )
    assert (
        cited["message"]
        and cited["title"] == "speechssl"
        and all(author["name"] for author in cited["authors"])
    )


def test_the_changelog_has_this_version() -> None:
    assert re.search(
        rf"^## {re.escape(__version__)} \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_make_help_names_every_target_that_readme_does() -> None:
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    there = set(re.findall(r"^  (\S+)", listed, re.MULTILINE))
    named = set(
        re.findall(
            r"(?:^|`|\(|=\d+ )make "
            r"([a-z./-]+)",
            (ROOT / "README.md").read_text(),
            re.MULTILINE,
        )
    )
    assert named <= there and {"help", "demo", "test", "check", "package"} <= there


def test_no_page_names_an_install_line_of_a_registry_that_lacks_the_package() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "recipes").rglob("*.md"),
        *(ROOT / "data").rglob("*.md"),
    ]
    lines = [(page.name, line) for page in pages for line in page.read_text().splitlines()]
    assert [
        x
        for x in lines
        if re.search(
            r"pip install "
            r".?speechssl\b",
            x[1],
        )
        and "does not find" not in x[1]
    ] == []
