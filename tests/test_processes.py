"""Training by two processes (torchrun, gloo) is training by one: same steps, same batches, same
weights; and one of them writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from speechssl.cli import main
from speechssl.training import StepBatches

from .files import change_lines, read_lines, refused

ROOT = Path(__file__).parent.parent
CROPS = ["--crops", "4", "--crop-seconds", "0.5", "--visible-weight", "1"]
TRAINING = "--steps 4 --warmup-steps 1 --save-every 4 --log-every 1 --precision fp32".split()
# A span head's bias shifts all logits, so its gradient is rounding alone (1e-8), of which AdamW's
# usual epsilon makes whole steps.
TRAINING += ["--adam-epsilon", "1e-5"]


def torchrun(*arguments):
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
    for name, more in (("passages", words), ("questions", words | answers)):
        change_lines(root / f"train/{name}.jsonl", more)
    return root


@pytest.fixture
def calls(corpus, tmp_path, hubert_folder, text_encoder, tokenizer):
    """A function (folder) -> the training verbs, with `folder` to write into. Pre-training from
    scratch saves at step 2 too."""
    encoder, text, units = hubert_folder("layer"), tmp_path / "text", tmp_path / "units"
    drops = "layerdrop hidden_dropout attention_dropout feat_proj_dropout activation_dropout"
    quiet = hubert_folder("layer", **dict.fromkeys(drops.split(), 0.0))
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
    # of which one recording is longer and one is shorter: batches of 4 and of 6
    mixed = f"{' '.join(CROPS)} --crop-seconds 3"
    qa = f"--text-encoder {text} --batch 4 --window 16 --stride 8 --answer 5"
    small = "--word-steps 3 --word-batch 4 --word-width 8"
    small += " --mask-steps 3 --mask-batch 4 --mask-window 8"

    def make(out):
        made = [
            f"train ctc {corpus} {encoder} {out}/ctc --layer 1 --batch 4 --lstm-width 8",
            f"train dual {corpus} {units} {out}/dual {qa}",
            f"train speechbert {corpus} {encoder} {out}/speechbert --layer 1 {qa} {small}",
            f"pretrain continue {corpus} {out}/robust --start {quiet} --layer 1 --clusters 6 "
            f"{mixed} {noise}",
            f"pretrain hubert {corpus} {out}/hubert --clusters 6 {' '.join(CROPS)}",
        ]
        made = [[*call.split(), *TRAINING] for call in made]
        made[-1] += ["--save-every", "2"]
        made[-1][made[-1].index("--steps") + 1] = "6"
        return made

    return make


@pytest.mark.slow
def test_two_processes_train_what_one_does_and_a_killed_run_goes_on(calls, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for call in calls(one):
        assert main(call) == 0
    (tmp_path / "calls.json").write_text(json.dumps(calls(two)))
    killed = torchrun(ROOT / "tests/two_processes.py", tmp_path, tmp_path / "calls.json")
    assert killed.returncode != 0
    assert [(tmp_path / f"codes-{i}").read_text().split() for i in (0, 1)] == [["0"] * 4] * 2, (
        killed.stderr
    )
    a_toy_is_trained_alike(tmp_path)
    for name in ("ctc", "dual", "speechbert", "robust"):
        assert whole(one / name) == whole(two / name)
        same_weights(one / name, two / name)
    same_curve(
        one / "robust", two / "robust", "loss", "distillation", "domain_accuracy", "masked_accuracy"
    )
    assert (two / "hubert/checkpoints/checkpoint-2/trainer_state.json").is_file()
    assert not (two / "hubert/encoder").exists()
    resumed = torchrun("-m", "speechssl", *calls(two)[-1])
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert resumed.stdout.count("hubert/encoder: ") == 1
    same_weights(one / "hubert", two / "hubert")
    assert whole(one / "hubert") == whole(two / "hubert")
    steps = [row["step"] for row in read_lines(two / "hubert/checkpoints/log.jsonl")]
    # it went on from step 2; the last line is the run's summary
    assert steps.count(1) == 1
    assert steps[-5:] == [3, 4, 5, 6, 6]


def a_toy_is_trained_alike(folder):
    """Rows divided, dropout not shared, a gradient that one process finds broken dropped by both,
    scalars averaged, one log."""
    first, second = (json.loads((folder / f"process-{i}.json").read_text()) for i in (0, 1))
    assert first["weights"] == second["weights"]
    assert torch.tensor(first["weights"]).isfinite().all()
    assert first["result"] == second["result"]
    assert first["result"]["skipped"] == 1
    assert (folder / "toy/skipped.txt").read_text() == "2\n"
    assert [len(rows) for rows in first["seen"]] == [3] * 5
    assert not {x for rows in first["seen"] for x in rows} & {
        x for rows in second["seen"] for x in rows
    }
    assert all(a != b for a, b in zip(first["drawn"], second["drawn"], strict=True))
    rows = read_lines(folder / "toy/log.jsonl")
    # of the dropped one nothing is reported
    assert [row["mine"] for row in rows if "mine" in row] == [0.5] * 4
    assert [row["step"] for row in rows if row.get("loss", 0) is None] == [3]
    assert first["agreed"] == second["agreed"] == "process 0"
    assert first["mean"] == second["mean"] == 0.5
    assert (first["order"], second["order"]) == ([], ["was-0"])


def whole(folder):
    """Names of all files but the checkpoints', of which every process has one for its random
    state."""
    return sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*") if "checkpoint-" not in str(p)
    )


def same_weights(a, b):
    """The last checkpoints (of every stage) before anything was rounded."""
    pattern = "checkpoints/**/checkpoint-*/model.safetensors"
    paths = [path.relative_to(a) for path in a.glob(pattern)]
    assert paths
    assert {*paths} == {path.relative_to(b) for path in b.glob(pattern)}
    for path in paths:
        right = load_file(b / path)
        for name, value in load_file(a / path).items():
            assert torch.allclose(right[name], value, atol=2e-6, rtol=1e-4), name


def same_curve(a, b, *names):
    """Means over all processes are those over the whole batch."""
    left, right = (read_lines(folder / "checkpoints/log.jsonl")[:-1] for folder in (a, b))
    assert len(left) == len(right) == 4
    for name in names:
        wanted = [row[name] for row in left]
        assert [row[name] for row in right] == pytest.approx(wanted, abs=2e-4, rel=1e-4), name


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_refused_before_anything_is_written(
    calls, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("WORLD_SIZE", "3")
    for call in calls(tmp_path / "three"):
        assert main(call) == 2
        assert "3 processes cannot share a batch of 4" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
    batches = StepBatches(lambda step: {"x": torch.zeros(4, 2)}, 5)
    refused("3 processes cannot share a batch of 4", batches.__getitem__, 0)
