"""What every run.sh takes: --help, --stage, --stop-stage, --set, LAUNCH; and the table of what its
stages took."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from speechssl.cli import main

from ..files import read_lines
from .shared import ROOT, script

RUNS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("recipes/*/run.sh"))
RUN = """#!/usr/bin/env bash
# A recipe of three stages.
#   bash run.sh
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-base.yaml}
EXP=${2:-exp}
configure

stage "1 corpus"
speechssl prepare it "$EXP/corpus" $(with corpus)

stage "2 training on $(setting encoder)"
speechssl train dual "$EXP/corpus" $(with dual)
python fit.py "$EXP"

stage "3 evaluation"
speechssl evaluate qa "$EXP/corpus"
"""


@dataclass(frozen=True)
class Recipe:
    """A folder with run.sh and programs that only print how they were called."""

    folder: Path

    def __call__(self, *arguments: str, code: int = 0, **environment: str) -> list[str]:
        path = f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = {**os.environ, "PATH": path, **environment}
        done = subprocess.run(
            ["bash", "run.sh", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=known,
        )
        assert done.returncode == code, done.stderr
        return (done.stdout if code == 0 else done.stderr).splitlines()


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "run.sh").write_text(RUN)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "base.yaml").write_text(
        "recipe: {encoder: hubert}\ncorpus: {}\ndual: {learning-rate: 1.0e-4, steps: 5}\n"
    )
    (tmp_path / "fit.py").write_text("print('fitted')")
    for name in ("speechssl", "torchrun"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Recipe(tmp_path)


def test_stages_are_begun_and_stopped_where_it_is_said(recipe: Recipe) -> None:
    printed = recipe("--stage", "2", "--stop-stage=2")
    assert printed[0] == "== 1 corpus (passed over)" and printed[1] == "== 2 training on hubert"
    assert printed[2] == "speechssl train dual exp/corpus --stage dual --config base.yaml"
    assert printed[3:] == ["fitted", "== stopped before stage 3 evaluation"]
    assert "--stage 4 is behind the last stage, 3" in recipe("--stage", "4", code=2)[0]
    assert (
        "--stage 3 is behind --stop-stage 2"
        in recipe("--stage", "3", "--stop-stage", "2", code=2)[0]
    )


def test_a_configuration_that_is_not_there_is_one_sentence(recipe: Recipe) -> None:
    (line,) = recipe("other.yaml", code=2)
    assert line == "speechssl: there is no configuration other.yaml; give one of ./base.yaml"


def test_python_is_passed_over_too_but_for_settings(recipe: Recipe) -> None:
    printed = recipe("base.yaml", "--stage", "3")
    assert printed[1:] == [
        "== 2 training on hubert (passed over)",
        "== 3 evaluation",
        "speechssl evaluate qa exp/corpus",
    ]


def test_settings_are_changed_in_a_copy(recipe: Recipe) -> None:
    changes = ["--set", "dual.learning-rate=1e-5", "--set=recipe.encoder=wavlm"]
    assert "== 2 training on wavlm" in recipe("base.yaml", "out", *changes)
    made = yaml.safe_load((recipe.folder / "out/config.yaml").read_text())
    assert made == {
        "recipe": {"encoder": "wavlm"},
        "corpus": {},
        "dual": {"steps": 5, "learning-rate": 1e-5},
    }
    printed = recipe("base.yaml", "out", "--set", "dual.steps=7", "--stop-stage", "1")
    assert printed[1].endswith("--stage corpus --config out/config.yaml")
    assert "no section 'duel'" in recipe("--set", "duel.steps=7", code=2)[0]
    assert "did you mean steps?" in recipe("--set", "dual.stesp=7", code=2)[0]
    assert "did you mean learning-rate?" in recipe("--set", "dual.lr=1e-5", code=2)[0]


def test_paths_may_have_blanks(recipe: Recipe) -> None:
    (recipe.folder / "bin/speechssl").write_text('#!/bin/sh\nprintf "<%s>" "$@"; echo\n')
    (recipe.folder / "base.yaml").rename(recipe.folder / "my base.yaml")
    assert recipe("my base.yaml", "my exp")[1] == (
        "<prepare><it><my exp/corpus><--stage><corpus><--config><my base.yaml>"
    )


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason=("processes are forked on Linux alone")
)
def test_small_commands_are_forked_where_the_configuration_says_so(recipe: Recipe) -> None:
    real = Path(sys.executable).parent / "python"
    python = recipe.folder / "bin/python"
    python.write_text(
        f'#!/bin/sh\ncase $1 in *preloaded.py) echo forked "$@";; *) exec {real} "$@";; esac\n'
    )
    python.chmod(0o755)
    content = (recipe.folder / "base.yaml").read_text()
    for forked in ("true", "false"):
        (recipe.folder / "base.yaml").write_text(
            content.replace("recipe: {", f"recipe: {{forked: {forked}, ")
        )
        printed = recipe("base.yaml", "my exp", "--stage", "3")
        assert (printed == ["forked recipes/preloaded.py run.sh base.yaml my exp --stage 3"]) == (
            forked == "true"
        )


def test_trainings_alone_are_launched_on_several_processes(recipe: Recipe) -> None:
    printed = recipe(LAUNCH="torchrun --nproc-per-node 4")
    assert printed[1].startswith("speechssl prepare") and printed[-1] == (
        "speechssl evaluate qa exp/corpus"
    )
    assert printed[3].startswith(
        "torchrun --nproc-per-node 4 -m -- speechssl train dual exp/corpus"
    )
    # which could be short for two of its own
    launched = get_args_parser().parse_args([*printed[3].split()[1:], "--start", "x"])
    assert launched.training_script_args[-2:] == ["--start", "x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "two"], "takes the number of a stage"),
        (["--sett", "a.b=c"], "has no option --sett"),
        (["--set", "x"], "takes SECTION"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments: list[str], message: str, recipe: Recipe) -> None:
    (printed,) = recipe(*arguments, code=2)
    assert message in printed and printed.startswith("speechssl: ")


def test_the_demo_refuses_what_it_would_not_heed() -> None:
    done = subprocess.run(
        ["bash", "recipes/demo/run.sh", "--stage", "2"], cwd=ROOT, capture_output=True, text=True
    )
    assert (
        done.returncode == 2
        and done.stderr.startswith("speechssl: ")
        and ("SEED, PASSAGES and EXP are variables") in done.stderr
    )


@pytest.mark.parametrize("run", RUNS)
def test_help_lists_the_stages_in_order(run: str) -> None:
    done = subprocess.run(["bash", run, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    numbers = [
        int(n)
        for n in re.findall(r"^  (\d+) \S", done.stdout.partition("\nStages:\n")[2], re.MULTILINE)
    ]
    assert numbers == list(range(1, len(numbers) + 1)) and (
        len(numbers) > 2 or run == "recipes/demo/run.sh"
    )


@pytest.mark.parametrize("run", RUNS)
def test_no_recipe_sets_a_variable_of_the_options(run: str) -> None:
    """text_side had FIRST for its first seed: stages with smaller numbers were passed over."""
    assigned = [
        set(re.findall(r"(?<![\w.])([A-Z_]+)=", (ROOT / path).read_text()))
        for path in ("recipes/options.sh", run)
    ]
    assert set.intersection(*assigned) <= {"CONFIG"} and {"FIRST", "STAGE"} <= assigned[0]


def test_files_that_vanish_while_the_folder_is_measured_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two verbs in one folder: a lock was removed between being found and being measured, and the
    other verb ended with 2."""
    monkeypatch.setenv("SPEECHSSL_USAGE", str(tmp_path / "usage.jsonl"))
    (tmp_path / "there").write_bytes(bytes(2**20))
    walked = list(os.walk(tmp_path))
    monkeypatch.setattr(
        os,
        "walk",
        lambda top: ((folder, inside, [*names, ".gone.lock"]) for folder, inside, names in walked),
    )
    assert main(["models", "list"]) == 0
    assert read_lines(tmp_path / "usage.jsonl")[0]["disk_gb"] == pytest.approx(2**-10, abs=5e-4)


def test_what_commands_took_becomes_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECHSSL_USAGE", str(tmp_path / "usage.jsonl"))
    for stage in ("1 shells", "1 shells", "2 again"):
        monkeypatch.setenv("SPEECHSSL_STAGE", stage)
        assert main(["models", "list"]) == 0
    rows = read_lines(tmp_path / "usage.jsonl")
    assert [row["stage"] for row in rows] == ["1 shells", "1 shells", "2 again"] and all(
        row["peak_gb"] > 0 for row in rows
    )
    rows[1] |= {"seconds": 600.0, "peak_gb": 2.0, "gpu_gb": 1.5, "disk_gb": 0.25}
    lines = script("usage.py").table(rows).splitlines()
    assert len(lines) == 4 and lines[2] == "| 1 shells | 10 min | 2.0 GB | 1.5 GB | 0.25 GB |"
