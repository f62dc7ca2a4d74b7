"""Test that two processes (torchrun, gloo) train the same weights as one, on the same batches, and
that only one of them writes. tests/two_processes.py is what they run."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from speechssl.cli import main

from .files import change_lines, read_lines

ROOT = Path(__file__).parent.parent
CROPS = ["--crops", "4", "--crop-seconds", "0.5", "--visible-weight", "1"]
TRAINING = "--steps 4 --warmup-steps 1 --save-every 4 --log-every 1 --precision fp32".split()
# A span head's bias shifts all logits, so its gradient is rounding alone (1e-8), of which AdamW's
# usual epsilon makes whole steps.
TRAINING += ["--adam-epsilon", "1e-5"]


def torchrun(*arguments):
    """Launch a program by torchrun, with two processes."""
    launch = "-m torch.distributed.run --standalone --nproc-per-node 2".split()
    command = [sys.executable, *launch, *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


@pytest.fixture
def corpus(mini_corpus):
    """A corpus with answers, and with words that a CTC head can learn."""
    root = mini_corpus((16_000, 24_123, 20_000, 18_000, 32_100, 56_000))
    words = {"words": [["lost", 0.0, 0.2], ["silver", 0.2, 0.45]]}
    answers = {"answers": [{"text": "silver", "start": 0.2, "end": 0.45}]}
    for name, fields in (("passages", words), ("questions", words | answers)):
        change_lines(root / f"train/{name}.jsonl", fields)
    return root


@pytest.fixture
def make_calls(corpus, tmp_path, hubert_folder, text_encoder, tokenizer):
    """A function (output folder) -> the arguments of five trainings. The last, pre-training from
    scratch, has 6 steps and saves every 2."""
    encoder, text, units = hubert_folder("layer"), tmp_path / "text", tmp_path / "units"
    rates = "layerdrop hidden_dropout attention_dropout feat_proj_dropout activation_dropout"
    without_dropout = hubert_folder("layer", **dict.fromkeys(rates.split(), 0.0))
    text_encoder(max_position_embeddings=256).save_pretrained(text)
    tokenizer.save_pretrained(text)
    book = units / "k.safetensors"
    for verb in (
        f"units fit {corpus} {encoder} {book} --layer 1 --clusters 6",
        f"units extract {corpus} {encoder} {book} {units} --split train",
    ):
        assert main(verb.split()) == 0
    noise = "--distort g+b --distil 1 --domain-adversary multi"
    noise += " --domain-adversary-mode alternating --domain-adversary-schedule constant"
    # one recording is longer than a crop of 3 s, and one shorter: batches of 4 and of 6
    mixed = f"{' '.join(CROPS)} --crop-seconds 3"
    qa = f"--text-encoder {text} --batch 4 --window 16 --stride 8 --answer 5"
    small = "--word-steps 3 --word-batch 4 --word-width 8"
    small += " --mask-steps 3 --mask-batch 4 --mask-window 8"

    def make(out):
        lines = [
            f"train ctc {corpus} {encoder} {out}/ctc --layer 1 --batch 4 --lstm-width 8",
            f"train dual {corpus} {units} {out}/dual {qa}",
            f"train speechbert {corpus} {encoder} {out}/speechbert --layer 1 {qa} {small}",
            f"pretrain continue {corpus} {out}/robust --start {without_dropout} --layer 1 --clusters 6 "
            f"{mixed} {noise}",
            f"pretrain hubert {corpus} {out}/hubert --clusters 6 {' '.join(CROPS)}",
        ]
        arguments = [[*line.split(), *TRAINING] for line in lines]
        scratch = arguments[-1]
        scratch += ["--save-every", "2"]
        scratch[scratch.index("--steps") + 1] = "6"
        return arguments

    return make


@pytest.mark.slow
def test_two_processes_train_as_one_and_a_killed_run_goes_on(make_calls, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for call in make_calls(one):
        assert main(call) == 0
    (tmp_path / "calls.json").write_text(json.dumps(make_calls(two)))
    killed = torchrun(ROOT / "tests/two_processes.py", tmp_path, tmp_path / "calls.json")
    assert killed.returncode != 0
    assert [(tmp_path / f"codes-{i}").read_text().split() for i in (0, 1)] == [["0"] * 4] * 2, (
        killed.stderr
    )
    check_toy(tmp_path)
    for name in ("ctc", "dual", "speechbert", "robust"):
        assert list_files(one / name) == list_files(two / name)
        assert_same_weights(one / name, two / name)
    assert_same_curves(
        one / "robust", two / "robust", "loss", "distillation", "domain_accuracy", "masked_accuracy"
    )
    assert (two / "hubert/checkpoints/checkpoint-2/trainer_state.json").is_file()
    assert not (two / "hubert/encoder").exists()
    resumed = torchrun("-m", "speechssl", *make_calls(two)[-1])
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert resumed.stdout.count("hubert/encoder: ") == 1
    assert_same_weights(one / "hubert", two / "hubert")
    assert list_files(one / "hubert") == list_files(two / "hubert")
    steps = [row["step"] for row in read_lines(two / "hubert/checkpoints/log.jsonl")]
    # the run went on from step 2; the last line is its summary
    assert steps.count(1) == 1
    assert steps[-5:] == [3, 4, 5, 6, 6]


def check_toy(folder):
    """Assert that the processes saw different rows and dropout masks, that both skipped the step whose
    gradient was broken in one, that scalars were averaged, and that one wrote the log."""
    first, second = (json.loads((folder / f"process-{i}.json").read_text()) for i in (0, 1))
    assert first["weights"] == second["weights"]
    assert torch.tensor(first["weights"]).isfinite().all()
    assert first["result"] == second["result"]
    assert first["result"]["skipped"] == 1
    assert (folder / "toy/skipped.txt").read_text() == "2\n"
    assert [len(column) for column in first["first_columns"]] == [3] * 5
    rows_of_first, rows_of_second = (
        set(itertools.chain(*process["first_columns"])) for process in (first, second)
    )
    assert not rows_of_first & rows_of_second
    for mask, other_mask in zip(first["dropout_masks"], second["dropout_masks"], strict=True):
        assert mask != other_mask
    rows = read_lines(folder / "toy/log.jsonl")
    # nothing is reported about the skipped step
    assert [row["rank"] for row in rows if "rank" in row] == [0.5] * 4
    assert [row["step"] for row in rows if row.get("loss", 0) is None] == [3]
    for process in (first, second):
        assert process["broadcast"] == "process 0"
        assert process["mean_rank"] == 0.5
    assert first["files_before"] == []
    assert second["files_before"] == ["was-0"]


def list_files(folder):
    """List the files of a training, without those in checkpoints, where every process has a file of
    its random state."""
    return sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*") if "checkpoint-" not in str(p)
    )


def assert_same_weights(a, b):
    """Assert that the checkpoints of two trainings have the same weights."""
    pattern = "checkpoints/**/checkpoint-*/model.safetensors"
    paths = [path.relative_to(a) for path in a.glob(pattern)]
    assert paths
    assert {*paths} == {path.relative_to(b) for path in b.glob(pattern)}
    for path in paths:
        weights = load_file(b / path)
        for name, value in load_file(a / path).items():
            assert torch.allclose(weights[name], value, atol=2e-6, rtol=1e-4), name


def assert_same_curves(a, b, *names):
    """Assert that two trainings logged the same values: means over all processes are those over the
    whole batch."""
    log_a, log_b = (read_lines(folder / "checkpoints/log.jsonl")[:-1] for folder in (a, b))
    assert len(log_a) == 4
    assert len(log_b) == 4
    for name in names:
        expected = [row[name] for row in log_a]
        assert [row[name] for row in log_b] == pytest.approx(expected, abs=2e-4, rel=1e-4), name


@pytest.mark.slow
def test_a_batch_that_processes_cannot_share_is_refused(make_calls, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "3")
    for call in make_calls(tmp_path / "three"):
        assert main(call) == 2
        assert "3 processes cannot share a batch of 4" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
