"""What every run.sh takes: --help, --stage, --stop-stage, LAUNCH; the set of models of a recipe; and
the table of what its stages took."""

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
    """A folder with run.sh and programs that only print how they were called."""

    folder: Path

    def __call__(self, *arguments, code=0, **environment):
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


def test_stages_are_begun_and_stopped_where_it_is_said(recipe):
    assert recipe("--stage", "2", "--stop-stage", "2") == [
        "== 2 training on hubert",
        "speechssl <train> <dual> <exp/corpus> <--config> <base.yaml> <--stage> <dual>",
    ]


def test_trainings_alone_are_launched_on_several_processes(recipe):
    printed = recipe(LAUNCH="torchrun --nproc-per-node 4 --no-python --")
    assert [line.split()[0] for line in printed[1::2]] == ["speechssl", "torchrun", "speechssl"]
    launched = get_args_parser().parse_args(re.findall("<(.*?)>", printed[3]))
    assert launched.no_python
    assert [launched.training_script, *launched.training_script_args[:2]] == [
        "speechssl",
        "train",
        "dual",
    ]


def test_what_a_recipe_does_not_take_is_one_sentence(recipe):
    assert recipe("other.yaml", code=2) == [
        "speechssl: there is no configuration other.yaml; give one of ./base.yaml"
    ]
    assert "has no option --sett" in recipe("--sett", code=2)[0]
