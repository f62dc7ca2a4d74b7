"""What says who made this, how to cite it, and what there is to make."""

import re
import subprocess
from pathlib import Path

import yaml

from speechssl import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version_and_licence():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["title"], cited["version"]) == ("speechssl", __version__)
    assert (cited["cff-version"], cited["license"]) == ("1.2.0", "Apache-2.0")
    assert cited["message"]
    assert all(author["name"] for author in cited["authors"])


def test_the_changelog_has_this_version():
    assert re.search(
        rf"^## {re.escape(__version__)} \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_make_help_names_every_target_that_readme_does():
    made = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    there = set(re.findall(r"^  (\S+)", made.stdout, re.MULTILINE))
    targets = r"(?:^|`|\(|=\d+ )make ([a-z./-]+)"
    named = set(re.findall(targets, (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named | {"help", "demo", "test", "check", "package"} <= there
