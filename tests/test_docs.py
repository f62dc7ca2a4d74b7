"""Links of the pages lead somewhere, their commands exist, and their Python names what is
public."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import speechssl
from speechssl.cli import parse_arguments

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "data/README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "dev").glob("*.md")),
]
READMES = [
    ROOT / "RESULTS.md",
    *sorted(ROOT.glob("recipes/*/*.md")),
    *sorted(ROOT.glob("data/*/*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def find_blocks(page, language):
    """Return the code of the blocks ```LANGUAGE of a page."""
    blocks = BLOCK.findall(page.read_text())
    return [code for block_language, code in blocks if block_language == language]


def list_anchors(page):
    """List the anchors of a page's heads, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]


@pytest.mark.parametrize(
    "page", [*PAGES, *READMES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#][^)]*)\)", BLOCK.sub("", page.read_text())):
        file, _, anchor = target.partition("#")
        if file.startswith(("http:", "https:")):
            continue
        assert (page.parent / file).exists(), target
        if anchor:
            assert anchor in list_anchors(page.parent / file), target


@pytest.mark.parametrize(
    "page", [*PAGES, *READMES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_commands_of_a_page_exist_with_their_options(page):
    for code in find_blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["speechssl"]:
                parse_arguments(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_of_a_page_names_what_is_public(page):
    names = set()
    for code in find_blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "speechssl":
                names.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and node.module == "speechssl":
                names |= {alias.name for alias in node.names}
    assert names <= set(speechssl.__all__)


def test_every_recipe_stands_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (*ROOT.glob("recipes/*/README.md"), *ROOT.glob("docs/**/*.md")):
        assert page.relative_to(ROOT).as_posix() in navigation


def test_the_readme_has_800_words_at_most():
    assert len((ROOT / "README.md").read_text().split()) <= 800
