"""What the tests of recipes share: scripts that are run or imported, sections against verbs, checkpoints by name."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.cli.parser import check_section
from speechssl.cli.verbs import config_of
from speechssl.encoders.load import load_encoder
from speechssl.textlm import load_text_encoder, longest_sequence

from .stand_ins import fill

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "encoder",
    "shipped",
    "stand-in",
    "codebooks",
    "recogniser",
    "cascades",
    "whispers",
    "systems",
    "splits",
    "miniature",
}  # that run.sh reads of the section `recipe`


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips where one of them is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"the recipe needs the packages {', '.join(missing)}")


def script(path: str) -> ModuleType:
    """A script of recipes/, imported."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / "recipes" / path)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(path: str, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script of recipes/ to its end. code: that it must end with."""
    known = (
        "LIBRISPEECH",
        "KMEANS",
        "TEXT_QA",
        "START_UNITS",
        "SEED",
        "CORPUS",
        "TASKS",
        "WITHOUT",
        "PARTS",
        "GLUE",
    )  # that the scripts read
    kept = {k: v for k, v in os.environ.items() if k not in known}
    kept |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"} | environment
    command = ["bash", f"recipes/{path}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, (done.stdout + done.stderr)[-3000:]
    return done


def kill_when(there: Callable[[], bool], running: subprocess.Popen[bytes], log: Path | None = None) -> None:
    """Kill a recipe as soon as something is there, and wait until all that it started is dead.

    running: in a session of its own; its standard input is a pipe, which its commands share. log: to quote if it ends before.
    """
    began = time.monotonic()
    try:
        while not there():
            assert running.poll() is None and time.monotonic() - began < 900, log and log.read_text(errors="replace")[-3000:]
            time.sleep(0.02)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert running.stdin
    with running.stdin as held:
        readers = select.poll()
        readers.register(held, 0)  # for the error that there are none
        assert readers.poll(20_000), "a command outlives its recipe"


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
    systems = [*found["recipe"].get("cascades", ()), *found["recipe"].get("systems", ())]
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
        asked = section.get("max-question", section.get("asked"))
        # DeBERTa's positions are relative, without an end
        assert section["window"] + asked + 4 <= (longest or 10**6) + 1 and section["stride"] <= section["window"]
