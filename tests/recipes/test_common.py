"""The options that recipes/common.sh gives to every run.sh: --stage, --stop-stage and LAUNCH; and
what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from .shared import ROOT

RUN = """#!/usr/bin/env bash
# A recipe of three stages.
CONFIG=base.yaml
EXP=exp
. recipes/common.sh

if stage 1 "corpus"; then
  speechssl prepare it "$EXP/corpus" --config "$CONFIG" --stage corpus
fi

if stage 2 "training on $(setting encoder)"; then
  $LAUNCH speechssl train dual "$EXP/corpus" --config "$CONFIG" --stage dual
fi

if stage 3 "evaluation"; then
  speechssl evaluate qa "$EXP/corpus"
fi
"""


@dataclass(frozen=True)
class Recipe:
    """A recipe is a folder with run.sh; its folder bin has programs that only print their
    arguments."""

    folder: Path

    def run(self, *arguments, code=0, **environment):
        """Run run.sh; return the lines of its stdout, or of its stderr where `code` is not 0."""
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "run.sh", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path, **environment},
        )
        assert done.returncode == code, done.stderr
        return (done.stderr if code else done.stdout).splitlines()


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "run.sh").write_text(RUN)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "base.yaml").write_text("recipe: {encoder: hubert}\ncorpus: {}\ndual: {}\n")
    (tmp_path / "bin").mkdir()
    for name in ("speechssl", "torchrun"):
        (tmp_path / "bin" / name).write_text(
            f'#!/bin/sh\nprintf "{name}"\nprintf " <%s>" "$@"\necho\n'
        )
        (tmp_path / "bin" / name).chmod(0o755)
    return Recipe(tmp_path)


def test_the_stages_between_the_two_options_are_run(recipe):
    assert recipe.run("--stage", "2", "--stop-stage", "2") == [
        "== 2 training on hubert",
        "speechssl <train> <dual> <exp/corpus> <--config> <base.yaml> <--stage> <dual>",
    ]


def test_trainings_alone_are_launched_on_several_processes(recipe):
    printed = recipe.run(LAUNCH="torchrun --nproc-per-node 4 --no-python --")
    # every stage prints its title and its command
    commands = printed[1::2]
    assert [command.split()[0] for command in commands] == ["speechssl", "torchrun", "speechssl"]
    launched = get_args_parser().parse_args(re.findall("<(.*?)>", commands[1]))
    assert launched.no_python
    assert launched.training_script == "speechssl"
    assert launched.training_script_args[:2] == ["train", "dual"]


def test_a_configuration_that_does_not_exist_is_refused(recipe):
    (sentence,) = recipe.run("other.yaml", code=2)
    assert "there is no configuration other.yaml; give one of ./base.yaml" in sentence


def test_an_unknown_option_is_refused(recipe):
    assert "has no option --sett" in recipe.run("--sett", code=2)[0]
