"""The verb or program of every command that a recipe gives takes its arguments, with any of the
recipe's configurations. Programs that only record their arguments stand for `speechssl` and
`python`."""

import os
import re
import subprocess
import sys
from functools import cache

import pytest
import yaml

from speechssl.checkpoints import model_folder
from speechssl.cli import parse_arguments
from speechssl.cli.parser import parse_call

from .shared import ROOT, program_options

# a line of the file RECORD is a command: its words, each with \037 (unit separator) behind it
SPEECHSSL = """#!/bin/sh
printf '%s\\037' "$@" >> "$RECORD"
echo >> "$RECORD"
"""
PYTHON = """#!/bin/sh
case $1 in
  recipes/settings.py) exec "$PYTHON" "$@" ;;
  recipes/models.py) echo "$SHIPPED_MODELS" ;;
  recipes/whispers.py) [ -z "$2" ] || echo "cascade-$2" ;;
  recipes/real_questions/curve.py) echo 4 ;;
  -c) ;;
  *) printf '%s\\037' python "$@" >> "$RECORD"; echo >> "$RECORD" ;;
esac
"""
CORPUS = [
    f"corpus/{split}/{name}"
    for split in ("train", "dev", "test")
    for name in ("", "questions.jsonl", "passages.jsonl")
]
# script -> files and folders (with / at the end) that its stages copy or look into, below EXP; here
# no stage has made them
INPUTS = {
    "minisqa/run.sh": ["hubert-2/encoder/", "dual-1/"],
    "odsqa/pinyin.sh": ["text/odsqa/test-textq/"],
    "odsqa/run.sh": ["corpus/train-tts/"],
    "odsqa/spoken.sh": [
        "minisqa/models/plain/dual/",
        "minisqa/models/plain/text-qa/",
        "minisqa/models/plain/encoder/",
        "minisqa/models/plain/units.safetensors",
        "minisqa/models/plain/units.card.json",
        "text/models/last/text-qa/",
        "text/questions/unseen/test.json",
    ],
    "odsqa/text.sh": [
        "source/DRCD_test.json",
        "source/DRCD_dev.json",
        "source/ODSQA_textq_test-v1.1.json",
        "odsqa/test-textq/",
    ],
    "real_questions/run.sh": ["source/dev.parquet", "squad/test.json", "text-qa/"],
    "real_questions/textless.sh": ["source/dev.parquet", "squad/test.json", "text-qa/"],
    "robustness/choose.sh": [
        f"{arm}/" for arm in yaml.safe_load((ROOT / "recipes/robustness/choose.yaml").read_text())
    ],
    "robustness/downstream.sh": ["downstream/chosen.txt"],
    "robustness/run.sh": ["downstream/chosen.txt"],
    "spoken_squad/run.sh": ["source/dev-v1.1.json"],
    "toefl_qa/text.sh": ["listening/card.json"],
    "text_side/run.sh": ["encoders/english/encoder/", "tasks/order/"],
    "units/people.sh": ["lists/people.txt", "digits.txt"],
    "units/readers.sh": ["people-en/", "piper/dev/"],
    "units/run.sh": ["robust/encoder/", "festival/", "start/encoder/", "r-spin-ctc/encoder/"],
}
RUNS = [
    (script.relative_to(ROOT / "recipes").as_posix(), config.name)
    for script in sorted(ROOT.glob("recipes/*/run.sh"))
    for config in sorted(script.parent.glob("*.yaml"))
    if not config.stem.startswith(
        ("choose", "downstream", "measure", "people", "pinyin", "spoken", "text")
    )
]
RUNS += [("units/readers.sh", name) for name in ("base.yaml", "smoke.yaml", "kokoro.yaml")]
RUNS += [("units/measure.sh", name) for name in ("measure.yaml", "measure-smoke.yaml")]
RUNS += [("units/people.sh", name) for name in ("people.yaml", "people-smoke.yaml")]
RUNS += [
    ("real_questions/textless.sh", f"textless{name}.yaml")
    for name in ("", "-smoke", "-phones", "-phones-smoke")
]
RUNS += [("odsqa/text.sh", name) for name in ("text.yaml", "text-smoke.yaml")]
RUNS += [("odsqa/pinyin.sh", name) for name in ("pinyin.yaml", "pinyin-smoke.yaml")]
RUNS += [("odsqa/spoken.sh", name) for name in ("spoken.yaml", "spoken-smoke.yaml")]
RUNS += [("toefl_qa/text.sh", name) for name in ("text.yaml", "text-smoke.yaml")]
RUNS += [("robustness/downstream.sh", "downstream-small.yaml")]
RUNS += [("robustness/choose.sh", "choose.yaml")]


def record_commands(script, config, exp, bin):
    """Run a script of a recipe whose commands are recorded only. Returns the words of each.

    exp: folder for results. bin: folder for the recording programs.
    """
    for name, text in (("speechssl", SPEECHSSL), ("python", PYTHON)):
        (bin / name).write_text(text)
        (bin / name).chmod(0o755)
    for name in (*CORPUS, *INPUTS.get(script, ())):
        path = exp / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    environment = {
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "RECORD": str(bin / "record"),
        "PYTHON": sys.executable,
        "START": "people-en",
        "ENGLISH": "english",
        "MINISQA": str(exp / "minisqa"),
        "TEXT": str(exp / "text"),
        "SHIPPED_MODELS": str(model_folder("people-en")),
        "FSDD": "digits",
        "PEOPLE": "people",
    }
    # models that another recipe makes are replaced by those that ship
    text = (ROOT / "recipes" / script).with_name(config).read_text()
    text = re.sub(r"\bexp/[\w/-]+/(models|people-en|minisqa-en-robust)\b", "people-en", text)
    (bin / config).write_text(text)
    command = ["bash", f"recipes/{script}", str(bin / config), str(exp), str(exp / "source")]
    if script == "robustness/choose.sh":
        command = ["bash", f"recipes/{script}", str(exp)]
        environment["CONFIG"] = str(bin / config)
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = (bin / "record").read_text().splitlines()
    return [line.split("\037")[:-1] for line in lines]


@pytest.mark.parametrize(("script", "config"), RUNS)
def test_verbs_and_programs_take_the_commands_of_a_recipe(script, config, tmp_path, monkeypatch):
    # hundreds of commands read one configuration: it is parsed once
    monkeypatch.setattr(yaml, "safe_load", cache(yaml.safe_load))
    exp = tmp_path / "exp"
    exp.mkdir()
    commands = record_commands(script, config, exp, tmp_path)
    assert len(commands) > 3
    for words in commands:
        if words[0] != "python":
            parse_arguments(words)
        elif options := program_options(os.path.relpath(words[1], "recipes")):
            parse_call(words[1], options, words[2:])
