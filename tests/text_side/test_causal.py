"""Language models: one table that reads and writes, kinds that cannot be used, and pre-training on text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from speechssl.config import TrainingOptions
from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.text_side.causal import CausalBatches, CausalModel, gpt2_values, load_causal, make_causal, set_rows, whole
from speechssl.text_side.config import TextPretraining
from speechssl.text_side.objectives import CAUSAL
from speechssl.text_side.pretrain import pretrain_text


def tiny(kind: str) -> dict[str, Any]:
    from transformers import GPTNeoXConfig, LlamaConfig, OPTConfig

    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return {
        "gpt2": lambda: gpt2_values(50, 1, 16, 2, 32),
        "opt": lambda: OPTConfig(**sizes, ffn_dim=32, word_embed_proj_dim=8, max_position_embeddings=32).to_dict(),
        "llama": lambda: LlamaConfig(**sizes, intermediate_size=32).to_dict(),
        "gpt_neox": lambda: GPTNeoXConfig(**sizes, intermediate_size=32).to_dict(),  # what writes is not what reads
    }[kind]()


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama", "gpt_neox"])
def test_new_rows_read_and_write_in_every_kind(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = make_causal(tiny(kind))
    set_rows(model, 0.1 * torch.randn(9, model.get_input_embeddings().embedding_dim), 8)
    trained = CausalModel(model).eval()
    ids = torch.tensor([[8, 1, 2, 3], [8, 4, 5, 8]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    logits = trained.logits(ids, mask)
    made = whole(model, trained)
    assert logits.shape == (2, 4, 9) and torch.allclose(made(input_ids=ids).logits[0], logits[0], atol=1e-5)
    made.save_pretrained(tmp_path / "model")
    again = load_causal(str(tmp_path / "model")).eval()
    assert torch.allclose(again(input_ids=ids).logits[0], logits[0], atol=1e-5) and again.config.eos_token_id == 8


def test_the_loss_is_of_what_comes_next_without_padding() -> None:
    torch.manual_seed(0)
    model = make_causal(tiny("gpt2"))
    set_rows(model, 0.1 * torch.randn(9, 16), 8)
    trained = CausalModel(model).eval()
    ids, mask = torch.tensor([[8, 1, 2, 8]]), torch.tensor([[1, 1, 1, 0]])
    scores = trained.logits(ids, mask)[0].log_softmax(-1)
    wanted = float(-(scores[0, 1] + scores[1, 2]).detach() / 2)
    assert trained(ids, mask)["loss"].item() == pytest.approx(wanted, abs=1e-5)
    assert trained(torch.tensor([[8, 1, 2, 5]]), mask)["loss"].item() == pytest.approx(wanted, abs=1e-5)


def test_a_model_that_sees_both_ways_is_one_sentence(checkpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be a language model here: it sees what follows"):
        load_causal(str(checkpoint("BERT")))
    with pytest.raises(InputError, match="found no language model at nowhere/at-all"):
        load_causal("nowhere/at-all")
    with pytest.raises(InputError, match="give --width a multiple of --heads"):
        gpt2_values(9, 1, 15, 2, 32)


def test_batches_are_a_function_of_the_step() -> None:
    def source(rng: Any, length: int) -> Any:
        return rng.integers(5, size=length), None, None

    batches = CausalBatches(source, 7, 8, 2, 6, 0)
    assert batches(3)["ids"].equal(batches(3)["ids"]) and not batches(3)["ids"].equal(batches(4)["ids"])
    assert batches(0)["ids"].shape == (2, 6) and (batches(0)["ids"][:, 0] == 7).all()


@pytest.mark.slow
def test_a_language_model_of_text_is_pre_trained_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The silver lake is old. Nobody named the lost lake! " * 8)
    training = TrainingOptions(steps=40, learning_rate=1e-2, warmup_steps=1, log_every=10, bf16=False)
    sizes = {
        "vocabulary": 120,
        "layers": 1,
        "width": 16,
        "heads": 2,
        "positions": 32,
        "length": 12,
        "batch": 4,
        "objective": CAUSAL,
    }
    folder = pretrain_text(tmp_path / "gpt", TextPretraining(training, text=tmp_path / "text.txt", **sizes))
    card = read_json(tmp_path / "gpt/card.json")
    assert card["what"] == "text language model" and card["training"]["loss"] < 2.5  # log(120) is 4.8
    assert load_causal(str(folder)).config.vocab_size == len(load_causal(str(folder)).get_input_embeddings().weight)
    more = pretrain_text(tmp_path / "more", TextPretraining(training, text=tmp_path / "text.txt", start=str(folder), **sizes))
    assert read_json(tmp_path / "more/card.json")["training"]["loss"] < card["training"]["loss"] and more.is_dir()
