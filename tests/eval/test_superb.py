"""`superb run`: heads, scores, rows, details and tables in one folder; finished work is not
repeated; noise; folds; bad input."""

import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from speechssl.artifacts import read_json
from speechssl.encoders.load import load_encoder
from speechssl.eval.superb import describe_snrs, make_superb_tables, run_superb, write_tables
from speechssl.eval.superb_plan import find_data, name_encoders
from speechssl.eval.superb_scores import combine_folds
from speechssl.pretrain.options import Adversary
from speechssl.results import Row, append_rows, read_rows
from speechssl.stats import Interval
from speechssl.superb.data import HeadEvaluation
from speechssl.superb.options import Data, Superb
from speechssl.units.codebook import Codebook
from speechssl.units.features import load_extractor, make_unit_encoder

from ..files import change_lines, read_lines, refused

PHONES = {"low": "l o", "high": "h i"}  # of the keywords


def replace_labels(path, field, values):
    """Replace the labels of all lines of a file by a field. values: of the field, by keyword."""

    def change(line):
        keyword = line.pop("labels")["keyword"]
        return line | {field: values[keyword]}

    change_lines(path, change)


@pytest.fixture
def data(labelled, tmp_path):
    """The folder of each task."""
    sets = {"ks": labelled("ks"), "pr": labelled("pr"), "qbe": labelled("qbe", counts=(8, 2, 2))}
    for task, folder in sets.items():
        sets[task] = Path(shutil.copytree(folder, tmp_path / "sets" / task))
    for split in ("train", "dev", "test"):
        replace_labels(sets["pr"] / f"{split}.jsonl", "phones", PHONES)
    # query by example: 8 documents, in which two queries of each split are searched
    documents = sets["qbe"] / "documents.jsonl"
    (sets["qbe"] / "train.jsonl").rename(documents)
    matches = {}
    for line in read_lines(documents):
        matches.setdefault(line["labels"]["keyword"], []).append(line["id"])
    change_lines(documents, lambda line: {k: v for k, v in line.items() if k != "labels"})
    for split in ("dev", "test"):
        replace_labels(sets["qbe"] / f"{split}.jsonl", "matches", matches)
    return sets


def write_times(out):
    """When the files of heads and of features were written."""
    paths = [*(out / "heads").rglob("*.*"), *(out / "features").rglob("shard-*")]
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.fixture
def options(hubert_folder, data, tmp_path):
    """Options of a short run of all tasks of `data`."""
    encoders = (f"tiny={hubert_folder()}",)
    o = Superb(out=tmp_path / "out", encoders=encoders, learning_rates=(1e-2, 1e-3), steps=6)
    return changed(o, data=data, preset="small", workers=1)


def changed(o, data=None, **values):
    """Options with other values, which may be those of their groups. data: the folder of each
    task."""
    if data is not None:
        values["tasks"] = tuple(f"{task}={folder}" for task, folder in data.items())
    for name in ("sets", "noise", "training"):
        group = getattr(o, name)
        own = {f.name: values.pop(f.name) for f in fields(group) if f.name in values}
        values[name] = replace(group, **own)
    return replace(o, **values)


def rows_of(out):
    rows = read_rows(out / "results.jsonl")
    return {(r.task, r.encoder, r.condition, r.snr_db, r.metric, r.seed): r for r in rows}


def test_heads_on_units_stand_beside_those_on_features(options, data, hubert_folder, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(hubert_folder(), models / "encoder")
    rng, encoder = np.random.default_rng(0), load_encoder(str(models / "encoder"))
    card = {"encoder": encoder.hash, "layer": 1, "frame_rate": encoder.grid.frame_rate}
    centroids = rng.normal(size=(5, encoder.width)).astype(np.float32)
    Codebook(centroids, card).save(models / "units.safetensors")
    ks_alone = {"ks": data["ks"]}
    run_superb(changed(options, data=ks_alone, encoders=(f"tiny={models}",), steps=2, units=True))
    assert {encoder for _, encoder, *_ in rows_of(tmp_path / "out")} == {"tiny", "tiny-units"}
    extractor = load_extractor(str(models / "encoder"), models / "units.safetensors")
    samples = rng.normal(0, 0.1, 9_000).astype(np.float32)
    states = make_unit_encoder(extractor).hidden_states(samples)
    assert states.shape == (1, encoder.grid.count_frames(9_000), 5)
    assert states[0].argmax(1).tolist() == extractor.extract_frames(samples).tolist()


@pytest.mark.slow
def test_a_run_writes_everything_and_a_second_one_nothing(options, data, tmp_path):
    out = tmp_path / "out"
    printed = run_superb(options)
    rows = rows_of(out)
    metrics = {"ks": ("acc", "acc_default"), "pr": ("per", "per_default"), "qbe": ("mtwv", "atwv")}
    assert {(key[0], key[4]) for key in rows} == {(t, m) for t in metrics for m in metrics[t]}
    assert rows["ks", "tiny", "clean", None, "acc", 0].value == 100
    # fewer than five recordings have no interval
    assert all((r.low, r.high) == (None, None) for r in rows.values())
    sizes = {"ks": ("recording", 4), "pr": ("recording", 4), "qbe": ("query", 2)}
    assert all((r.drawn.split(" (")[0], r.groups) == sizes[r.task] for r in rows.values())
    assert "ks acc" in printed
    tables = (out / "superb.md").read_text()
    assert "## SUPERB" in tables
    assert "95 % intervals" not in tables
    card = read_json(out / "heads/tiny/ks/seed-0/card.json")
    assert len(card["layer_weights"]) == 3
    assert sum(card["layer_weights"]) == pytest.approx(1)
    assert {a["learning_rate"] for a in card["sweep"]} == {1e-2, 1e-3}
    details = {task: read_json(out / f"details/tiny/{task}.json")["detail"] for task in data}
    assert details["ks"]["confusion"]["keyword"]["counts"] == [[2, 0], [0, 2]]
    assert len(details["qbe"]["layers"]) == 3
    before = write_times(out)
    assert run_superb(options) == printed
    assert write_times(out) == before


@pytest.mark.slow
def test_in_noise_and_with_seeds(options, tmp_path):
    noisy = changed(options, seed=(0, 3), seen=("pink@5",), unseen=("gaussian",), snr=(10.0, 0.0))
    printed = run_superb(noisy)
    rows = rows_of(tmp_path / "out")
    unseen = {("unseen-gaussian", 10.0), ("unseen-gaussian", 0.0)}
    assert {key[2:4] for key in rows} == {("clean", None), ("seen-pink", 5.0)} | unseen
    assert {key[5] for key in rows if key[0] == "ks" and key[2] == "unseen-gaussian"} == {0, 3}
    assert not any(key[4].endswith("_default") and key[2] != "clean" for key in rows)
    assert "clean | seen | unseen" in printed
    assert ("qbe", "tiny", "unseen-gaussian", 0.0, "mtwv", 0) in rows


@pytest.mark.slow
def test_the_encoder_in_the_loop_comes_to_the_same_head(options, data, tmp_path):
    heads = []
    for room in (50.0, 1e-6):
        out = tmp_path / f"{room}"
        run_superb(changed(options, out=out, cache_gb=room, data={"ks": data["ks"]}))
        heads.append((out / "heads/tiny/ks/seed-0/head.safetensors").read_bytes())
    assert heads[0] == heads[1]
    assert not list((out / "features").rglob("shard-*"))


DISTORTED = {"finetune": True, "distort": "g+b"}
DAT = Adversary("multi", 0.3, domain_adversary_mode="alternating")


@pytest.mark.slow
def test_heads_trained_on_distorted_speech_are_evaluated_as_any(options, data, tmp_path):
    """First on dev alone: no test recording is read. Then with the encoder that was trained with
    each head."""
    name = "tiny+dat-multi-alternating-0.3"
    tasks = {task: data[task] for task in ("ks", "pr")}
    tuned = changed(
        options, out=tmp_path, data=tasks, seen=("gaussian@5",), **DISTORTED, adversary=DAT
    )
    run_superb(changed(tuned, train_only=True))
    for file in ("results.jsonl", "details", "noise.jsonl"):
        assert not (tmp_path / file).exists()
    before = write_times(tmp_path)
    run_superb(tuned)
    assert before.items() <= write_times(tmp_path).items()
    cells = {(task, encoder, condition) for task, encoder, condition, *_ in rows_of(tmp_path)}
    assert cells == {(t, name, c) for t in tasks for c in ("clean", "seen-gaussian")}
    ks_head, pr_head = (tmp_path / f"heads/{name}/{task}/seed-0" for task in tasks)
    folders = read_json(ks_head / "card.json")["upstreams"]  # of its encoders
    assert {path.name for path in ks_head.iterdir() if path.is_dir()} == set(folders.values())
    assert load_encoder(ks_head / "encoder").hash != load_encoder(pr_head / "encoder").hash
    refused("settings.steps differ", run_superb, changed(tuned, steps=7))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "qbe.* cannot be trained with --finetune or --distort"),
        ({"encoders": ("fbank",)}, "fbank cannot be trained with"),
        ({"unseen": ("gaussian",)}, "was trained on the noise g.*; give it with --seen"),
    ],
)
def test_a_run_that_cannot_be_tuned_is_refused_first(options, data, tmp_path, changes, message):
    tasks = {"ks": data["ks"]} if changes else data
    tuned = changed(options, data=tasks, **DISTORTED, **changes)
    refused(message, run_superb, tuned)
    assert not (tmp_path / "out/heads").exists()


def test_measures_of_folds_are_averaged_and_their_confusions_added_up():
    folds = []
    for value, counts in ((60.0, [[2, 0], [1, 1]]), (70.0, [[1, 1], [0, 2]]), (80.0, [[0, 0]] * 2)):
        confusion = {"confusion": {"w": {"classes": ["a", "b"], "counts": counts}}}
        measures = {"acc": Interval(value, value - 6, value + 6, 10)}
        folds.append(HeadEvaluation(measures, confusion))
    combined = combine_folds(folds)
    assert combined.detail["confusion"]["w"]["counts"] == [[3, 1], [1, 3]]
    mean = combined.measures["acc"]
    assert (mean.value, mean.n) == (70.0, 30)
    # the mean of three folds has a narrower interval than each
    assert mean.high - mean.value == pytest.approx(6 / 3**0.5)


def test_unreadable_recordings_are_reported_and_count_as_wrong(options, data, tmp_path, capsys):
    ks = data["ks"]
    for name in ("train-3", "test-1"):
        (ks / f"audio/{name}.flac").write_bytes(b"nothing")
        change_lines(ks / f"{name.split('-')[0]}.jsonl", {"seconds": 0.5})
    run_superb(changed(options, data={"ks": ks}))
    assert "set aside test-1" in capsys.readouterr().err
    assert rows_of(tmp_path / "out")["ks", "tiny", "clean", None, "acc", 0].value == 75


# ---- options


def test_data_is_found(data, tmp_path, capsys):
    root = tmp_path / "sets"
    assert find_data(Data(data=root)) == {t: root / t for t in ("pr", "ks", "qbe")}
    assert "no data for asr, sid" in capsys.readouterr().err
    assert find_data(Data(tasks=(f"ks={root / 'ks'}",))) == {"ks": root / "ks"}
    (root / "style").mkdir()
    assert find_data(Data(data=root))["er"] == root / "style"


@pytest.mark.parametrize(
    ("tasks", "folder", "message"),
    [
        (("kws",), "sets", "there is no task 'kws'; choose from pr, asr, ks"),
        (("sid",), "sets", "there is no data for sid in .*sets; prepare it"),
        (("ks",), None, "there is no data for ks in None; .* --data the folder"),
    ],
)
def test_data_that_is_not_there(data, tmp_path, tasks, folder, message):
    data = tmp_path / folder if folder else None
    refused(message, find_data, Data(tasks=tasks, data=data))


def test_encoders_get_names():
    bundle = "torchaudio:HUBERT_BASE"
    named = name_encoders(["a=exp/mine", "exp/other/encoder", "x/hubert.pt", "fbank", bundle])
    others = {"other": "exp/other/encoder", "hubert": "x/hubert.pt", "fbank": "fbank"}
    assert named == {"a": "exp/mine"} | others | {"torchaudio-HUBERT_BASE": bundle}
    for wrong in (["=x"], ["a/b=x"], ["fbank", "fbank"]):
        refused("--encoders", name_encoders, wrong)


@pytest.mark.parametrize(
    ("snrs", "sentence"),
    [
        ((None, 5, 0), "Noise at 5 dB, the"),
        ((None, 10, 0), "Noise at 10 dB, the SNR nearest to 5 dB, the"),
        ((None,), "The"),  # rooms alone
    ],
)
def test_a_table_of_noise_names_the_snr_that_it_shows(snrs, sentence):
    cells = {("ks", "acc", "a", "seen"): [SimpleNamespace(snr_db=snr) for snr in snrs]}
    assert describe_snrs(cells, 5.0) == sentence


def make_row(value, seed=0, condition="clean", snr_db=None, snr_over=""):
    """Make a row of keyword spotting by the encoder "a"."""
    interval = Interval(value / 100, value / 100, value / 100, 10)
    row = Row.from_interval(
        interval,
        task="ks",
        system="head",
        encoder="a",
        condition=condition,
        snr_db=snr_db,
        metric="acc",
        seed=seed,
        card="",
    )
    return replace(row, snr_over=snr_over)


def test_a_table_names_the_seeds_of_the_cell_that_has_most():
    rows = [make_row(80.0), make_row(90.0, seed=1), replace(make_row(50.0), task="qbe")]
    (table,) = make_superb_tables(rows, ["a"], 5.0)
    assert table.rows[0][1].startswith("85.0")
    assert "Means over up to 2 seeds" in table.note
    (table,) = make_superb_tables(rows[:1], ["a"], 5.0)
    assert "seeds" not in table.note


@pytest.mark.parametrize(("over", "shown"), [("active", "60.0"), ("signal", "40.0")])
def test_a_table_has_rows_of_one_way_to_measure_an_snr(tmp_path, over, shown):
    rows = [
        make_row(90.0),
        make_row(60.0, condition="seen-m", snr_db=5.0),
        make_row(40.0, condition="seen-m", snr_db=5.0, snr_over="signal"),
        make_row(70.0, condition="unseen-room"),
    ]
    append_rows(tmp_path / "results.jsonl", rows)
    noise = SimpleNamespace(snr_over=over, at=5.0)
    plan = SimpleNamespace(options=SimpleNamespace(out=tmp_path, noise=noise))
    assert f"90.0 | {shown} | 70.0" in write_tables(plan, ["a"])
