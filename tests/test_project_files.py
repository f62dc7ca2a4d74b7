"""CITATION.cff, the changelog and the Makefile agree with the package and README."""

import re
import subprocess
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


def test_make_help_names_every_target_that_readme_does():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = set(re.findall(r"^  (\S+)", done.stdout, re.MULTILINE))
    # at the beginning of a line, in backticks or brackets, or behind SEED=1
    pattern = r"(?:^|`|\(|=\d+ )make ([a-z./-]+)"
    in_readme = set(re.findall(pattern, (ROOT / "README.md").read_text(), re.MULTILINE))
    assert in_readme | {"help", "demo", "test", "check", "package"} <= targets
