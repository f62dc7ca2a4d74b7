"""The verb: a plan in, heads, frozen noise, scores, rows and tables out; and the tasks over what exists."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial

import pytest

from speechssl.config import parse_named
from speechssl.errors import InputError
from speechssl.eval.config import Robustness
from speechssl.eval.grid import settings_of
from speechssl.eval.grid_tasks import MAKERS, load_tested
from speechssl.eval.robustness import run_robustness
from speechssl.io import read_json
from speechssl.report.build import write_report
from speechssl.report.config import Report
from speechssl.results import read_rows

from .listeners import Roughness, recordings
from .test_spoken_qa import Oracle, corpus  # noqa: F401  a fixture

# ---- plans


def test_conditions_without_an_snr_of_their_own_stand_at_every_one():
    found = settings_of(("m+g+r", "reverb@0.6"), ("held-out", "pink@7", "reverb"), (5.0, 0.0))
    assert [s.label for s in found] == [
        *("clean", "seen-m+g+r 5 dB", "seen-m+g+r 0 dB", "seen-reverb 0.6 s"),
        *("unseen-held-out 5 dB", "unseen-held-out 0 dB", "unseen-pink 7 dB", "unseen-reverb"),
    ]


def test_the_noise_at_the_end_of_a_chain_stands_at_every_snr_too():
    found = settings_of((), ("reverb@0.9+kitchen.wav", "pitch@-2+m+g+r", "a@b/bus.wav"), (5.0,))
    assert [s.condition.text for s in found[1:]] == ["reverb@0.9+kitchen.wav@5", "pitch@-2+m+g+r@5", "a@b/bus.wav@5"]


@pytest.mark.parametrize("condition", ["pink@loud", "pitch", "reverb@0.5+pink@loud"])
def test_malformed_conditions_are_refused(condition):
    with pytest.raises(InputError, match=re.escape(condition)):
        settings_of((condition,), (), ())


def test_names_as_typed():
    assert parse_named(["a=x", "b=y=z"], "--encoders") == {"a": "x", "b": "y=z"}
    for pairs, message in ((["a"], "is not NAME=WHERE"), (["=x"], "is not NAME"), (["a=x", "a=y"], "name a twice")):
        with pytest.raises(InputError, match=message):
            parse_named(pairs, "--encoders")


def test_an_encoder_alone_has_no_reader(hubert_folder, tmp_path):
    subject = load_tested("bare", str(hubert_folder("layer")))
    assert subject.models is None
    for task in ("units", "dual", "cascade-ctc"):
        with pytest.raises(InputError, match=f"the encoder bare is not enough for the task {task}"):
            run_robustness(options(tmp_path, {"bare": hubert_folder("layer")}, {task: tmp_path}, seen=("pink@5",), unseen=()))
    assert not (tmp_path / "out" / "scores").exists()


# ---- the whole


def options(folder, encoders, tasks, **more):
    named = {kind: tuple(f"{k}={v}" for k, v in found.items()) for kind, found in (("encoders", encoders), ("tasks", tasks))}
    return Robustness(out=folder / "out", **named, **more)


def makers(folder, made=None):
    """One task, whose tolerance depend on the encoder's name."""

    def make(name, subject, data, out, setup):
        (made if made is not None else []).append((subject.name, name, str(out)))
        metric = "wer" if name == "asr" else "acc"
        return [Roughness(sorted(folder.glob("*.flac")), 0.05 * (subject.name == "better"), name, metric)]

    return {name: partial(make, name) for name in ("ks", "asr")}


@pytest.fixture
def plan(tmp_path, hubert_folder):
    folder = tmp_path / "audio"
    recordings(folder, 9)
    encoders = dict.fromkeys(("baseline", "better"), str(hubert_folder("layer")))
    noises = {"seen": ("pink",), "unseen": ("gaussian",)}
    return options(tmp_path, encoders, {"ks": folder, "asr": folder}, **noises, snr=(10.0, 5.0))


def test_the_whole_grid(tmp_path, plan):
    out, made = tmp_path / "out", []
    text = run_robustness(plan, makers(tmp_path / "audio", made))
    assert made[0] == ("baseline", "ks", str(out / "heads/baseline/ks")) and len(made) == 4
    rows = read_rows(out / "results.jsonl")
    assert len(rows) == 2 * 2 * 5 and {r.encoder for r in rows} == {"baseline", "better"}
    assert {(r.condition, r.snr_db) for r in rows} >= {("clean", None), ("seen-pink", 5.0), ("unseen-gaussian", 10.0)}
    assert "unseen 5 dB" in text and "recovered" in text and (out / "tables.md").read_text().startswith("## Encoders and tasks")
    values = read_json(out / "degradation.json")
    assert values["baseline"] == "baseline" and len(values["averages"]) == 8
    utterances = {json.loads(line)["utterance"] for line in (out / "noise.jsonl").read_text().splitlines()}
    assert utterances == {f"u{i}" for i in range(9)}


@pytest.mark.slow
def test_tables_name_the_tasks_of_synthetic_speech(tmp_path, plan):
    out = tmp_path / "out"
    assert "Synthetic" not in run_robustness(plan, makers(tmp_path / "audio"))
    (tmp_path / "audio" / "card.json").write_text('{"synthetic": "speech by espeak-ng"}')
    text = run_robustness(plan, makers(tmp_path / "audio"))
    tables = read_json(out / "degradation.json")["tables"]
    assert text.count("Synthetic speech: ks, asr.") == len(tables) == sum("Synthetic speech: ks" in t["note"] for t in tables)
    assert (out / "tables.md").read_text().count("Synthetic speech: ks, asr.") == len(tables) + 1


@pytest.mark.slow
def test_snrs_over_the_whole_signal_are_another_grid_and_the_tables_say_so(tmp_path, plan):
    out = tmp_path / "out"
    assert "whole signal" not in run_robustness(plan, makers(tmp_path / "audio"))
    before = {path: read_json(path)["made_from"] for path in (out / "scores").rglob("*.json")}
    text = run_robustness(replace(plan, snr_over="signal"), makers(tmp_path / "audio"))
    assert "SNRs are over the whole signal" in text and "SNRs are over the whole signal" in (out / "tables.md").read_text()
    changed = {path for path, made_from in before.items() if read_json(path)["made_from"] != made_from}
    assert changed == {path for path in before if "clean" not in path.name} and len(changed) < len(before)


@pytest.mark.slow
def test_the_same_command_again_changes_nothing(tmp_path, plan):
    out = tmp_path / "out"
    text = run_robustness(plan, makers(tmp_path / "audio"))
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()}
    assert run_robustness(plan, makers(tmp_path / "audio")) == text
    after = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert after == {p: content for p, (_, content) in before.items()}
    scores = [p for p in before if "scores" in p.parts or p.name == "noise.jsonl"]
    assert scores and all(p.stat().st_mtime_ns == before[p][0] for p in scores)


@pytest.mark.slow
def test_a_head_that_was_made_again_leaves_no_row_of_the_old_one(tmp_path, plan):
    out = tmp_path / "out"

    def make(subject, data, folder, setup):
        return [Roughness(sorted((tmp_path / "audio").glob("*.flac")), version=setup.passages)]

    for version in (1, 2):
        run_robustness(replace(plan, tasks=(f"ks={tmp_path}",), passages=version), {"ks": make})
        rows = read_rows(out / "results.jsonl")
        assert len(rows) == len({r.key[:-1] for r in rows}) == 2 * 5


@pytest.mark.slow
def test_another_condition_leaves_the_cells_that_are_there(tmp_path, plan):
    out = tmp_path / "out"
    run_robustness(plan, makers(tmp_path / "audio"))
    before = {p: p.stat().st_mtime_ns for p in (out / "scores").rglob("*.json")}
    run_robustness(replace(plan, unseen=("gaussian", "reverb")), makers(tmp_path / "audio"))
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert len(list((out / "scores").rglob("*.json"))) == len(before) + 4


@pytest.mark.slow
def test_another_split_is_evaluated_beside_the_test_split_and_shares_its_heads(tmp_path, plan):
    """Even where the recordings have the same names."""
    out, made = tmp_path / "out", []
    recordings(tmp_path / "dev", 9, seed=1)
    run_robustness(plan, makers(tmp_path / "audio", made))
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    on_dev = replace(plan, unseen=("dev",), split="dev")
    text = run_robustness(on_dev, makers(tmp_path / "dev", made))
    assert {p: p.read_bytes() for p in before} == before and set(made[:4]) == set(made[4:])
    assert {p.relative_to(out).parts[0] for p in out.rglob("*") if p.is_file() and p not in before} == {"dev"}
    rows = read_rows(out / "dev" / "results.jsonl")
    assert {r.condition for r in rows} == {"clean", "seen-pink", "unseen-dev"} and len(rows) == 2 * 2 * 5
    assert "Scored on the dev split" in text and "Scored on the dev split" in (out / "dev/tables.md").read_text()
    assert b"Scored on the dev split" not in before[out / "tables.md"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "../test"}, "cannot name a folder"),
        ({"split": "heads"}, "cannot name a folder"),
        ({"tasks": ("kws=.",)}, "there is no task 'kws'; choose from"),
        ({"tasks": ("ks=nowhere",)}, "the data nowhere of the task ks"),
        ({"encoders": ("a/b=x",)}, "cannot name a folder"),
        ({"encoders": ("a=no-such-encoder",)}, "no-such-encoder"),
        ({"seen": (), "unseen": ()}, "has no noise"),
        ({"seen": ("pink", "pink")}, "have the name 'seen-pink 10 dB'"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_made(tmp_path, plan, change, message):
    with pytest.raises(InputError, match=message):
        run_robustness(replace(plan, **change), makers(tmp_path / "audio"))
    assert not (tmp_path / "out").exists()


def test_every_task_of_the_lecture_can_be_made():
    assert set(MAKERS) == {"ks", "ic", "sid", "style", "asr", "units", "dual", "speechbert", "cascade-ctc"}


@pytest.mark.slow
def test_a_report_needs_no_corpus_of_questions(tmp_path, plan):
    out = tmp_path / "out"
    run_robustness(plan, makers(tmp_path / "audio"))
    write_report(Report(out=out, examples=2, conditions=("clean",)))
    page = (out / "report.html").read_text()
    assert "Speech encoders in noise" in page and "Loss in noise, averaged over tasks" in page
    (out / "degradation.json").write_text("[]")
    with pytest.raises(InputError, match=r"degradation\.json is not what"):
        write_report(Report(out=out, examples=2, conditions=("clean",)))


def test_a_report_of_questions_alone_asks_for_their_corpus(tmp_path, plan):
    out = tmp_path / "out"
    run_robustness(plan, makers(tmp_path / "audio"))
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join(line for line in lines if '"clean"' in line))
    with pytest.raises(InputError, match="neither SUPERB nor a robustness grid; give the corpus"):
        write_report(Report(out=out, examples=2, conditions=("clean",)))


@pytest.mark.slow
def test_the_shipped_models_go_through_the_grid(tmp_path, corpus):  # noqa: F811
    """Units, DUAL and the cascade share an encoder, and a manifest without labels gives units."""
    (tmp_path / "own.txt").write_text(f"{corpus}/test/audio/p0.flac\n{corpus}/test/audio/q0.flac\n")
    tasks = {"units": tmp_path / "own.txt", "dual": corpus, "cascade-ctc": corpus}
    text = run_robustness(options(tmp_path, {"baseline": "minisqa-en-robust"}, tasks, seen=("pink",), unseen=(), snr=(5.0,)))
    found = {(r.system, r.metric, r.condition): (r.value, r.n) for r in read_rows(tmp_path / "out" / "results.jsonl")}
    systems = {("units", "unit_error"), ("dual", "ff1"), ("cascade-ctc", "ff1"), ("cascade-ctc", "wer")}
    assert set(found) == {(*s, c) for s in systems for c in ("clean", "seen-pink")}
    assert found["units", "unit_error", "clean"] == (0, 2) and found["units", "unit_error", "seen-pink"][0] > 0
    assert "What DUAL and the cascade keep of their clean FF1" in text


@pytest.mark.slow
def test_units_of_clean_speech_are_kept_by_split(tmp_path, corpus):  # noqa: F811
    shutil.copytree(corpus / "test", corpus / "dev", ignore=shutil.ignore_patterns("audio"))
    shipped, on_dev = {"baseline": "minisqa-en-robust"}, {"seen": (), "unseen": ("dev",), "snr": (5.0,)}
    plan = options(tmp_path, shipped, {"units": corpus}, **on_dev, recordings=2)
    for split in ("test", "dev"):
        run_robustness(replace(plan, split=split))
    cards = [read_json(tmp_path / "out/heads/baseline" / name / "card.json") for name in ("units", "units-dev")]
    assert [card["made_from"]["split"] for card in cards] == ["test", "dev"]
