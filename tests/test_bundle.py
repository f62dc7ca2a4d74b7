"""A folder of models from its parts: copied, or linked for one evaluation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speechssl.bundle import Parts, bundle, linked
from speechssl.cli import main
from speechssl.errors import InputError
from speechssl.io import model_folder
from speechssl.report.build import evaluated_split
from speechssl.results import read_rows
from speechssl.systems import load_systems

from .files import change_lines

MODELS = model_folder("people-en")


def parts(**changes: Any) -> Parts:
    return Parts(**{"encoder": "people-en/encoder", "codebook": "people-en/units.safetensors"} | changes)


@pytest.mark.slow
def test_parts_are_copied_and_every_system_of_them_is_loaded(tmp_path: Path) -> None:
    card = bundle(parts(dual="people-en/dual", text_qa=str(MODELS / "text-qa")), tmp_path / "mine")
    assert card["systems"] == ["dual", "text"] and set(card["parts"]) == {"encoder", "units", "dual", "text-qa"}
    assert model_folder(tmp_path / "mine") == tmp_path / "mine" and not (tmp_path / "mine/dual").is_symlink()
    assert bundle(parts(dual="people-en/dual", text_qa="people-en/text-qa"), tmp_path / "mine") == card  # the same by content
    (mine,), (shipped,) = load_systems(tmp_path / "mine", ["dual"]), load_systems(MODELS, ["dual"])
    assert dict(mine.card) == dict(shipped.card)


def test_a_reader_of_hugging_face_with_other_weights_is_another_part(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    import transformers

    folder = shutil.copytree(checkpoint("BERT", "AutoModelForQuestionAnswering"), tmp_path / "reader")
    mine = Parts("people-en/encoder", text_qa=str(folder))
    card = bundle(mine, tmp_path / "mine")
    assert bundle(mine, tmp_path / "mine") == card
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
    model.qa_outputs.bias.data += 1
    model.save_pretrained(folder)
    with pytest.raises(InputError, match=r"was made from other inputs \(text-qa differs\)"):
        bundle(mine, tmp_path / "mine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"codebook": "people-en/words.safetensors", "dual": "people-en/dual"},
            "^people-en/dual was .* than those of people-en/words",
        ),
        ({"dual": "people-en/text-qa"}, "--dual people-en/text-qa holds a text QA, and a DUAL reader is wanted"),
        ({"dual": "nowhere"}, "--dual nowhere is not a folder"),
        ({"dual": "people-en/dual", "codebook": None}, "--dual people-en/dual reads units; give the codebook"),
    ],
)
def test_parts_that_do_not_belong_together_leave_nothing(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        bundle(parts(**changes), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_reader_is_what_its_card_says_and_links_are_removed() -> None:
    with linked(parts(reader="people-en/dual")) as folder:
        assert sorted(p.name for p in folder.iterdir()) == ["dual", "encoder", "units.card.json", "units.safetensors"]
    assert not folder.exists()
    with linked(parts(reader="people-en/text-qa")) as folder:
        assert (folder / "text-qa").is_symlink()


@pytest.mark.slow
def test_one_model_as_parts_and_as_a_folder_is_one_row(
    mini_corpus: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = mini_corpus((16_000,))
    change_lines(corpus / "train/questions.jsonl", {"answers": [{"text": "a", "start": 0.1, "end": 0.4}]})
    (corpus / "card.json").unlink()  # nobody needs one
    out = tmp_path / "out"
    call = ["evaluate", "qa", str(corpus), str(out), "--split", "train", "--conditions", "clean", "--workers", "1"]
    named = ["--encoder", "people-en/encoder", "--codebook", "people-en/units.safetensors", "--reader", "people-en/dual"]
    assert main([*call, *named]) == 0
    assert {(row.system, row.encoder) for row in read_rows(out / "results.jsonl")} == {("dual", "people-en/dual")}
    made = (out / "predictions/dual/clean.json").stat().st_mtime_ns
    assert main([*call, "--systems", "dual", "--label", "mine"]) == 0
    assert {(row.system, row.encoder) for row in read_rows(out / "results.jsonl")} == {("dual", "mine")}
    assert (out / "predictions/dual/clean.json").stat().st_mtime_ns == made  # the same model: nothing was computed again
    assert evaluated_split(out) == "train"
    assert main([*call, "--encoder", "people-en/encoder"]) == 2
    assert "--encoder, --codebook and --reader (of `train dual`) go together" in capsys.readouterr().err
    assert main([*call, *named, "--models", "mine"]) == 2
    assert "--models mine names all parts at once" in capsys.readouterr().err
