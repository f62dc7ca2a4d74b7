"""CITATION.cff and the changelog agree with the package."""

import re
from pathlib import Path

import yaml

from speechssl import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version_and_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["title"] == "speechssl"
    assert citation["version"] == __version__
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == "Apache-2.0"
    assert citation["message"]
    assert all(author["name"] for author in citation["authors"])


def test_the_changelog_has_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)} \(", changelog, re.MULTILINE)
