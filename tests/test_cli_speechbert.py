"""`speechssl train speechbert`: options become the three stages, parts that do not fit are one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from speechssl.cli import main
from speechssl.io import model_folder, read_json, write_json

MODELS = model_folder("minisqa-en-robust")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list:
    seen: list = []
    monkeypatch.setattr("speechssl.speechbert.train.train_speechbert", lambda *arguments: seen.append(arguments))
    return seen


def test_options_become_three_stages(asked: list, tmp_path: Path) -> None:
    given = [
        "--word-steps",
        "7",
        "--mask-steps",
        "8",
        "--mask-learning-rate",
        "3e-4",
        "--steps",
        "9",
        "--horizon",
        "20",
        "--pull",
        "0.5",
    ]
    encoder, ctc = str(MODELS / "encoder"), str(MODELS / "ctc")
    assert main(["train", "speechbert", "corpus", encoder, str(tmp_path), "--recogniser", ctc, "--seed", "3", *given]) == 0
    corpus, features, out, options, recogniser, card, start = asked[0]
    assert (corpus, out, start) == (Path("corpus"), tmp_path, None)
    assert (options.words.steps, options.masked.steps, options.qa.training.steps) == (7, 8, 9)
    assert (options.words.horizon, options.masked.horizon, options.qa.training.horizon) == (None, None, 20)
    assert options.masked.learning_rate == 3e-4 and options.pull == 0.5 and not options.words.bf16 and options.masked.bf16
    assert {stage.seed for stage in (options.words, options.masked, options.qa.training)} == {3}
    assert features.layer == 5 and recogniser.encoder.hash == features.encoder
    assert card == read_json(MODELS / "ctc/card.json")["weights"]


def test_no_steps_are_no_stage_and_mfccs_need_no_encoder(asked: list, tmp_path: Path) -> None:
    assert main(["train", "speechbert", "corpus", "mfcc", str(tmp_path), "--mask-steps", "0"]) == 0
    assert asked[0][3].masked is None and asked[0][1].encoder == "mfcc" and asked[0][4:6] == (None, None)


@pytest.mark.parametrize(
    ("encoder", "more", "said"),
    [
        ("mfcc", ["--recogniser", str(MODELS / "ctc")], "leave out --recogniser"),
        (str(MODELS / "encoder"), ["--layer", "77"], "has the layers 0 to 5, not 77"),
        (str(MODELS / "encoder"), ["--recogniser", "nowhere"], "nowhere"),
    ],
)
def test_parts_that_do_not_fit_are_one_sentence(encoder: str, more: list, said: str, tmp_path: Path, capsys) -> None:
    assert main(["train", "speechbert", "corpus", encoder, str(tmp_path / "out"), *more]) == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_recogniser_of_another_encoder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ctc = Path(shutil.copytree(MODELS / "ctc", tmp_path / "ctc"))
    write_json(ctc / "card.json", read_json(ctc / "card.json") | {"encoder": "0123456789abcdef"})
    test_parts_that_do_not_fit_are_one_sentence(
        str(MODELS / "encoder"), ["--recogniser", str(ctc)], "was made with the encoder 0123456789abcdef", tmp_path, capsys
    )


def test_what_ships_goes_by_its_name(asked: list, tmp_path: Path) -> None:
    verb = ["train", "speechbert", "corpus", "minisqa-en-robust/encoder", str(tmp_path)]
    assert main([*verb, "--recogniser", "minisqa-en-robust/ctc", "--start", "minisqa-en-robust/text-qa"]) == 0
    assert asked[0][4] is not None and asked[0][6] == MODELS / "text-qa"
