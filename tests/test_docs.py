"""The pages: links lead somewhere, commands exist, Python is Python."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

import speechssl
from speechssl.cli import parse_arguments

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "README.md",
    ROOT / "data/README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "dev").glob("*.md")),
]
READMES = sorted(
    [
        ROOT / "RESULTS.md",
        *ROOT.glob("recipes/*/*.md"),
        *ROOT.glob("data/*/*.md"),
        *ROOT.glob("dev/*.md"),
    ]
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, kind: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == kind]


@pytest.mark.parametrize(
    "page", [*PAGES, *READMES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#][^)]*)\)", BLOCK.sub("", page.read_text())):
        file, _, anchor = target.partition("#")
        if file.startswith(("http:", "https:")):
            continue
        assert (page.parent / file).exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", (page.parent / file).read_text(), re.MULTILINE)
            assert anchor in [
                re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads
            ], target


@pytest.mark.parametrize(
    "page", [*PAGES, *READMES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    for code in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["speechssl"]:
                parse_arguments(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_of_a_page_names_what_is_public(page: Path) -> None:
    for code in blocks(page, "python"):
        tree = ast.parse(code)
        named = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
        ]
        assert {n.attr for n in named if n.value.id == "speechssl"} <= {*speechssl.__all__}
        imported = [
            n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "speechssl"
        ]
        assert {alias.name for n in imported for alias in n.names} <= {*speechssl.__all__}


def test_every_recipe_stands_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(
        page.relative_to(ROOT).as_posix() in navigation
        for page in (ROOT / "recipes").glob("*/README.md")
    )
    assert all(
        page.relative_to(ROOT).as_posix() in navigation for page in (ROOT / "docs").glob("*.md")
    )


def test_the_readme_has_800_words_at_most() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 800
