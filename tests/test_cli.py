"""The command line: help that teaches, options from a config, one sentence and exit code 2 for what cannot be done."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from speechssl.cli import build_parser, main
from speechssl.cli.parser import training_options, verbs_of
from speechssl.io import write_json
from speechssl.trainer import BERT, HUBERT, PLAIN, Adam

ROOT = Path(__file__).parents[1]


def test_every_verb_has_help_for_every_option() -> None:
    for verb in verbs_of(build_parser()):
        assert verb.description, verb.prog
        assert verb.format_help()
        assert not [a.dest for a in verb._actions if not a.help], verb.prog


@pytest.mark.parametrize(
    ("verb", "adam"),
    [
        ("pretrain continue c o --from e", HUBERT),
        ("train dual c u o", PLAIN),
        ("train text-qa c o", PLAIN),
        ("train ctc c e o", PLAIN),
        ("train speechbert c e o", BERT),
        ("train carry-speechbert c e s n o", BERT),
        ("train choice c o", BERT),
    ],
)
def test_adamw_is_by_default_that_of_the_source(verb: str, adam: Adam) -> None:
    made = training_options(build_parser().parse_args(verb.split()))
    assert Adam(made.adam_betas, made.adam_epsilon, made.weight_decay) == adam
    typed = [*verb.split(), "--adam-betas", "0.8", "0.9", "--adam-epsilon", "1e-3", "--weight-decay", "0.5"]
    made = training_options(build_parser().parse_args(typed))
    assert (made.adam_betas, made.adam_epsilon, made.weight_decay) == ((0.8, 0.9), 1e-3, 0.5)


@pytest.mark.parametrize(("verb", "longest"), [("dual c u o", 275), ("text-qa c o", 30), ("speechbert c e o", 30)])
def test_the_longest_answer_is_by_default_that_of_the_source(verb: str, longest: int) -> None:
    assert build_parser().parse_args(["train", *verb.split()]).answer == longest


def test_adamw_of_pretraining_is_that_of_the_size_unless_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    monkeypatch.setattr("speechssl.pretrain.run.Plan.run", lambda plan, *_: plans.append(plan) or _Book())
    for more in ([], ["--adam-betas", "0.9", "0.95", "--adam-epsilon", "1e-7", "--weight-decay", "0"]):
        assert main(["pretrain", "wav2vec2", "c", "o", "--size", "base", *more]) == 0
    own, typed = (plan.options.training for plan in plans)
    assert Adam(own.adam_betas, own.adam_epsilon, own.weight_decay) == HUBERT
    assert (typed.adam_betas, typed.adam_epsilon, typed.weight_decay) == ((0.9, 0.95), 1e-7, 0)


def test_betas_that_adamw_cannot_have_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "text-qa", "c", "o", "--adam-betas", "0.9", "1"]) == 2
    assert "from 0 to below 1 (--adam-betas)" in capsys.readouterr().err


def test_config_section_gives_defaults_and_typing_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.setattr("speechssl.units.fit.fit_units", lambda *a: seen.setdefault("options", a) and _Book())
    config = tmp_path / "c.yaml"
    config.write_text("units:\n  clusters: 7\n  smooth: 5\n")
    assert main(["units", "fit", "c", "e", "o", "--config", str(config), "--stage", "units", "--smooth", "3"]) == 0
    assert (seen["options"][3].clusters, seen["options"][3].smooth) == (7, 3)


class _Book:
    size, hash = 7, "x"


@pytest.mark.parametrize(
    ("content", "stage", "said"),
    [
        ("units:\n  clusers: 7\n", "units", "clusers"),
        ("units: {}\n", "dual", "no section 'dual'"),
        ("units: [", "units", "cannot read the config"),
        ("units: 7\n", "units", "write its options as `name: value`"),
        ("1: {}\n", "units", "its sections are 1"),
        ("units:\n  clusters: many\n", "units", "is not a whole number"),
        ("units:\n  clusters: 0\n", "units", "give a number from 1"),
        ("units:\n  clusters: [1, 2]\n", "units", "give one value"),
        (b"units: \xff\n", "units", "cannot read the config"),
    ],
)
def test_bad_config_is_one_sentence(content: str | bytes, stage: str, said: str, tmp_path: Path, capsys) -> None:
    config = tmp_path / "c.yaml"
    config.write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["units", "fit", "c", "e", "o", "--config", str(config), "--stage", stage]) == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "qa", "c", "o", "--workers", "0"],
        ["prepare", "minisqa", "o", "--questions", "-1"],
        ["prepare", "minisqa", "o", "--unanswerable", "1.5"],
        ["pretrain", "hubert", "c", "o", "--learning-rate", "0"],
        ["pretrain", "hubert", "c", "o", "--crop-seconds", "nan"],
    ],
)
def test_numbers_out_of_range_are_refused_at_once(arguments: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2 and "out of range; give a number" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_called_so(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(number, "No space left on device")  # as a write says it: without the name of the file

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr("speechssl.units.fit.fit_units", lambda *_: write_json(tmp_path / "book.json", {}))
    assert main(["units", "fit", "c", "e", "o"]) == 2
    said = f"speechssl: the disk of {tmp_path / 'book.json'} is full; free space and give the same command\n"
    assert capsys.readouterr().err == said and not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert main(["prepare", "minisqa", str(tmp_path / "file/corpus"), "--passages", "0"]) == 2
    message = capsys.readouterr().err
    assert "file" in message and "Not a directory" in message and message.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "qa", "no-such-corpus", "out"],
        ["report", "no-such-folder", "no-such-corpus"],
        ["evaluate", "qa", "c", "o", "--conditions", "pink"],
        ["prepare", "minisqa", "OUT", "--language", "xx", "--passages", "1"],
        ["train", "dual", "c", "no-such-units", "o"],
    ],
)
def test_what_is_not_there_is_named(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("speechssl: ") and message.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_no_help_tells_of_a_default_that_is_none() -> None:
    for verb in verbs_of(build_parser()):
        assert "default: None" not in verb.format_help(), verb.prog
    helps = {verb.prog: verb.format_help() for verb in verbs_of(build_parser())}
    assert "(default: 100)" in " ".join(helps["speechssl units fit"].split())
    for name in ("fit", "extract", "inspect"):
        assert (
            "torchaudio:NAME" in helps[f"speechssl units {name}"]
            and f"  speechssl units {name} " in helps[f"speechssl units {name}"]
        )


def test_options_of_inspect_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("speechssl.units.inspect.inspect_units", lambda *a: seen.append(a[3]) or {"K": 1})
    arguments = [
        "units",
        "inspect",
        "s",
        "e",
        "b",
        "--precision",
        "int8",
        "--device",
        "cpu",
        "--span",
        "1",
        "2",
        "--picture",
        "p.png",
    ]
    assert main(arguments) == 0
    assert (seen[0].precision, seen[0].device, seen[0].span, seen[0].split) == ("int8", "cpu", (1.0, 2.0), None)
    assert main(["units", "fit", "c", "mfcc", "km.4", "--workers", "2"]) == 2


def test_the_report_starts_without_torch() -> None:
    """It draws what is there; torch and transformers alone take seconds to import."""
    code = "import sys, speechssl.report.build; sys.exit(bool({'torch', 'transformers.modeling_utils'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0
