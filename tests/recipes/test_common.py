"""recipes/common.sh gives every run.sh --stage, --stop-stage, LAUNCH, and sentences for what it does
not take. A recipe of three stages sources it; its programs only print their arguments."""

import os
import re
import subprocess
import sys
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
  speechssl prepare squad "$EXP/corpus" --config "$CONFIG" --stage corpus
fi

if stage 2 "training on $(setting encoder)"; then
  $LAUNCH speechssl train dual "$EXP/corpus" --config "$CONFIG" --stage dual
fi

if stage 3 "evaluation"; then
  speechssl evaluate qa "$EXP/corpus"
fi
"""


@pytest.fixture
def run(tmp_path):
    """A function that runs the recipe and returns the lines that it prints, on standard error if
    it is to fail. code: that it must end with."""
    (tmp_path / "run.sh").write_text(RUN)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "base.yaml").write_text("recipe: {encoder: hubert}\ncorpus: {}\ndual: {}\n")
    (tmp_path / "bin").mkdir()
    for name in ("speechssl", "torchrun"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nprintf "{name}"\nprintf " <%s>" "$@"\necho\n')
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run_recipe(*arguments, code=0, **environment):
        variables = os.environ | {"PATH": path} | environment
        command = ["bash", "run.sh", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=variables)
        assert done.returncode == code, done.stderr
        return (done.stderr if code else done.stdout).splitlines()

    return run_recipe


def test_a_run_begins_and_stops_at_the_stages_that_are_given(run):
    assert run("--stage", "2", "--stop-stage", "2") == [
        "== 2 training on hubert",
        "speechssl <train> <dual> <exp/corpus> <--config> <base.yaml> <--stage> <dual>",
    ]


def test_trainings_alone_are_launched_on_several_processes(run):
    lines = run(LAUNCH="torchrun --nproc-per-node 4 --no-python --")
    commands = [line for line in lines if not line.startswith("==")]
    assert [line.split()[0] for line in commands] == ["speechssl", "torchrun", "speechssl"]
    options = get_args_parser().parse_args(re.findall("<(.*?)>", commands[1]))
    assert options.no_python
    assert options.training_script == "speechssl"
    assert options.training_script_args[:2] == ["train", "dual"]


@pytest.mark.parametrize("argument", ["other.yaml", "--sett"])
def test_a_missing_configuration_or_an_unknown_option_is_one_sentence(argument, run):
    (sentence,) = run(argument, code=2)
    assert argument in sentence
