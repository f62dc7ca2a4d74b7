"""Test the options that every verb has, --json, -q, -v and --strict, and exit codes."""

from __future__ import annotations

import errno
import json
import runpy
import warnings
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from speechssl.artifacts import write_json
from speechssl.cli import main
from speechssl.errors import InputError, report_set_aside


@dataclass(frozen=True)
class Verb:
    """This verb prints, warns, sets items aside, and returns its result or raises its error."""

    out: Path
    result: Any = None
    failed: int = 0  # number of items to set aside
    error: BaseException | None = None

    def run(self):
        print("a table")
        warnings.warn("a library minds", stacklevel=1)
        report_set_aside({f"r{i}": "silent" for i in range(self.failed)}, "units")
        if self.error:
            raise self.error
        return self.result


@pytest.fixture
def call(monkeypatch, capsys):
    """A function (verb, *flags) -> (exit code, stdout, stderr)."""

    def run(verb, *words):
        flags = {name: f"--{name}" in words for name in ("json", "quiet", "verbose", "strict")}
        monkeypatch.setattr("speechssl.cli.parse_arguments", lambda _: (verb, Namespace(**flags)))
        monkeypatch.setattr("speechssl.cli.import_function", lambda options: type(options).run)
        code = main(["report"])
        return code, *capsys.readouterr()

    return run


def test_with_json_stdout_has_the_result_alone(call, tmp_path):
    code, out, err = call(Verb(tmp_path, [{"value": 1.5}]), "--json")
    assert code == 0
    assert json.loads(out) == [{"value": 1.5}]
    assert "a table" in err


def test_json_of_a_verb_without_a_result_is_the_card_of_its_output(call, tmp_path):
    write_json(tmp_path / "card.json", {"what": "reader"})
    write_json(tmp_path / "run/encoder/card.json", {"what": "encoder"})  # of `pretrain`
    write_json(tmp_path / "enc.card.json", {"what": "conversion"})  # of `convert`
    for name, what in ((".", "reader"), ("run", "encoder"), ("enc.pt", "conversion")):
        out = json.loads(call(Verb(tmp_path / name), "--json")[1])
        assert out == {"out": str(tmp_path / name), "card": {"what": what}}


def test_a_warning_is_one_line_and_quiet_prints_no_warnings(call, tmp_path):
    _, out, err = call(Verb(tmp_path, failed=1))
    assert out == "a table\n"
    assert err.splitlines()[0] == "warning: a library minds"
    assert call(Verb(tmp_path, failed=1), "--quiet") == (0, "a table\n", "")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("no such file"), 2, "no such file"),
        (OSError(errno.ENOSPC, "No space left on device", "book.json"), 2, "book.json is full"),
        (
            OSError("x.so: undefined symbol: f"),
            2,
            "speechssl: x.so: undefined symbol: f; `speechssl d",
        ),
        (FloatingPointError("the loss is nan"), 1, "the loss is nan"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_an_error_is_a_sentence_with_a_code(error, code, sentence, call, tmp_path):
    exit_code, _, err = call(Verb(tmp_path, error=error), "--quiet")
    assert exit_code == code
    assert err.startswith("speechssl: ")
    assert err.count("\n") == 1
    assert sentence in err


def test_strict_ends_with_3_where_items_were_set_aside(call, tmp_path):
    code, out, err = call(Verb(tmp_path, failed=5), "--strict")
    assert (code, out) == (3, "a table\n")
    assert err.endswith("speechssl: 5 set aside (--strict)\n")
    assert call(Verb(tmp_path, failed=5))[0] == 0
    assert call(Verb(tmp_path), "--strict")[0] == 0  # items of earlier calls do not count


PROGRAM = '''"""Count lines.

    python count.py FILE TIMES [NAME ...]
    python count.py show-names NAME ...
"""

from pathlib import Path

from speechssl.cli import run_program


def count(file: Path, times: int, *names: str) -> None:
    print(times * len(file.read_text().splitlines()), *names)


def show_names(*names: str) -> None:
    print(names)


if __name__ == "__main__":
    run_program(count, show_names=show_names)
'''


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("count.py 2", 0, f"{2 * len(PROGRAM.splitlines())}\n", ""),
        ("count.py 0 a b", 0, "0 a b\n", ""),
        ("show-names a", 0, "('a',)\n", ""),
        ("--help", 0, "python count.py FILE TIMES", ""),
        ("count.py", 2, "", "python count.py FILE TIMES"),
        ("count.py two", 2, "", "python count.py FILE TIMES"),
        ("no-such-folder/file 1", 2, "", "speechssl: cannot use no-such-folder/file"),
    ],
)
def test_a_program_takes_the_words_of_the_shell(
    words, code, out, err, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("count.py").write_text(PROGRAM)
    monkeypatch.setattr("sys.argv", ["count.py", *words.split()])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("count.py", run_name="__main__")
    assert (ended.value.code or 0) == code
    printed = capsys.readouterr()
    assert out in printed.out
    assert err in printed.err
    assert bool(printed.err) == bool(err)
