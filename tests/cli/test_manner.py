"""What every verb takes: --json, -q, -v and --strict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speechssl.artifacts import write_json
from speechssl.cli import PATIENCE, main, parse_arguments, versions
from speechssl.cli.parser import Manner, name_as_typed, take_manner
from speechssl.errors import InputError, report_set_aside
from speechssl.options import option
from speechssl.results import Row, append_rows
from speechssl.timing import shown_length


@dataclass(frozen=True)
class Verb:
    """A verb that prints, warns, sets something aside, and returns something or nothing."""

    out: Path
    result: Any = None
    failed: int = 0
    error: str = ""

    def run(self) -> Any:
        print("a table")
        warnings.warn("a library minds", stacklevel=1)
        report_set_aside({f"r{i}": "silent" for i in range(self.failed)}, "units")
        if self.error:
            raise InputError(self.error)
        return self.result


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(verb: Verb, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("speechssl.cli.parse_arguments", lambda *_: verb)
        monkeypatch.setattr("speechssl.cli.function_of", lambda options: type(options).run)
        code = main(["report", *words])
        return code, *capsys.readouterr()

    return run


def test_what_any_verb_takes_may_stand_anywhere_but_after_two_dashes() -> None:
    assert take_manner(["-v", "units", "fit", "--json", "x"]) == (
        Manner(json=True, verbose=True),
        ["units", "fit", "x"],
    )
    assert take_manner(["answer", "--quiet", "--", "-q"]) == (
        Manner(quiet=True),
        ["answer", "--", "-q"],
    )


def test_a_reader_that_has_enough_ends_the_command_without_a_word() -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m speechssl --help | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
    )
    # 0: it was written before the pipe closed
    assert ran.stderr == "" and ran.stdout.strip() in ("0", "141")


def test_an_input_that_is_not_there_is_named_before_torch_is_loaded(tmp_path: Path) -> None:
    calls = {
        "answer --passage none.wav --question Who?": (
            "the audio file none.wav does not exist; check the path"
        ),
        "evaluate qa none out": "none does not exist; check corpus (prepared corpus)",
        "train dual . none out": (
            "none does not exist; check units (folder of `speechssl units extract`)"
        ),
    }
    code = (
        f"import sys; from speechssl.cli import main; [main(c.split()) for c in {[*calls]}]; "
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout == "False\n"
    for line, wanted in zip(ran.stderr.splitlines(), calls.values(), strict=True):
        assert line.startswith(f"speechssl: {wanted}")


def test_json_is_all_there_is_on_stdout(call: Any, tmp_path: Path) -> None:
    code, out, err = call(Verb(tmp_path, [{"value": 1.5}]), "--json")
    assert code == 0 and json.loads(out) == [{"value": 1.5}] and "a table" in err


def test_a_verb_that_makes_a_folder_gives_its_card_as_json(call: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "card.json", {"what": "reader"})
    code, out, _ = call(Verb(tmp_path), "--json")
    assert code == 0 and json.loads(out) == {"out": str(tmp_path), "card": {"what": "reader"}}
    write_json(tmp_path / "run/encoder/card.json", {"what": "encoder"})  # of `pretrain`
    write_json(tmp_path / "enc.card.json", {"what": "conversion"})  # of `convert`
    for name, what in (("run", "encoder"), ("enc.pt", "conversion")):
        _, out, _ = call(Verb(tmp_path / name), "--json")
        assert json.loads(out) == {"out": str(tmp_path / name), "card": {"what": what}}
    assert json.loads(call(Verb(tmp_path / "none"), "--json")[1]) == {"out": str(tmp_path / "none")}


def test_a_verb_that_adds_to_results_gives_their_rows_as_json(call: Any, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Adds:
        results: Path

        def run(self) -> None:
            row = Row(
                "order", "head", "bert", "clean", None, "accuracy", 50.0, 40.0, 60.0, 9, 0, "hash"
            )
            append_rows(self.results / "results.jsonl", [row])

    code, out, _ = call(Adds(tmp_path), "--json")
    (row,) = json.loads(out)
    assert code == 0 and (row["task"], row["encoder"], row["value"]) == ("order", "bert", 50.0)


def test_a_warning_is_a_line_without_code_and_quiet_prints_none(call: Any, tmp_path: Path) -> None:
    _, out, err = call(Verb(tmp_path, failed=1))
    assert (
        out == "a table\n"
        and err.splitlines()[0] == ("warning: a library minds")
        and "stacklevel" not in err
    )
    assert call(Verb(tmp_path, failed=1), "-q") == (0, "a table\n", "")


def test_torch_itself_warns_only_if_asked(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, level in ((("-v",), None), ((), "ERROR")):
        monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "")  # to be as it was after the test
        del os.environ["TORCH_CPP_LOG_LEVEL"]
        call(Verb(tmp_path), *words)
        assert os.environ.get("TORCH_CPP_LOG_LEVEL") == level


def test_an_error_is_a_sentence_and_verbose_says_where_it_arose(call: Any, tmp_path: Path) -> None:
    code, _, err = call(Verb(tmp_path, error="no such file"), "-q")
    assert code == 2 and err == "speechssl: no such file\n"
    code, _, err = call(Verb(tmp_path, error="no such file"), "-v")
    assert code == 2 and "Traceback" in err and err.endswith("speechssl: no such file\n")
    assert "peak memory" in call(Verb(tmp_path), "-v")[2]


def test_another_process_than_the_first_waits_before_it_says_what_the_first_says_too(
    call, tmp_path, monkeypatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("speechssl.cli.time.sleep", slept.append)
    assert call(Verb(tmp_path, error="no such file"), "-q")[0] == 2 and slept == []
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # to be as it was after the test
    assert call(Verb(tmp_path, error="no such file"), "-q")[2] == (
        "speechssl: no such file\n"
    ) and slept == [PATIENCE]


def test_a_setting_that_differs_is_called_as_it_was_typed(call: Any, tmp_path: Path) -> None:
    config = parse_arguments(["train", "dual", "corpus", "units", "out"])
    written = (
        "options.training.learning_rate, options.training.bf16, options.training.clip, "
        "options.random_units, data, options.other"
    )
    assert name_as_typed(written, config) == (
        "--learning-rate, --precision, --clip-norm, --random-units, data, options.other"
    )

    @dataclass(frozen=True)
    class Trains(Verb):
        learning_rate: float = option(1.0, "of training")

    err = call(
        Trains(tmp_path, error=("it was made from other inputs (options.learning_rate differs)"))
    )[2]
    assert err.endswith("speechssl: it was made from other inputs (--learning-rate differs)\n")


def test_strict_ends_with_3_where_items_were_set_aside(call: Any, tmp_path: Path) -> None:
    code, out, err = call(Verb(tmp_path, failed=5), "--strict")
    assert (
        code == 3
        and out == "a table\n"
        and err.endswith("speechssl: 5 items were set aside (--strict)\n")
    )
    assert call(Verb(tmp_path, failed=5))[0] == 0
    assert call(Verb(tmp_path), "--strict")[0] == 0  # those of the calls before do not count


def test_versions_name_what_results_depend_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    short = capsys.readouterr().out
    assert main(["--version", "-v"]) == 0
    assert (
        capsys.readouterr().out.strip() == versions()
        and versions().startswith(short)
        and "\ntorch 2" in versions()
    )


def test_lengths_are_shown_in_a_unit_that_says_something() -> None:
    assert [shown_length(s) for s in (3.21, 150.0, 5400.0)] == ["3.2 s", "2.5 min", "1.50 h"]


def test_a_verb_without_its_group_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit"]) == 2
    assert "did you mean units fit?" in capsys.readouterr().err
