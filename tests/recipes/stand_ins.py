"""Tiny checkpoints with random weights under the names that recipes give, of the architectures that
these names have.

python tests/recipes/stand_ins.py FOLDER
    fills FOLDER for SPEECHSSL_MODELS: FOLDER/facebook/hubert-large-ll60k, ...
"""

import itertools
import json
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WIDTH = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
FRONT = {
    "conv_dim": (8,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
}
CTC_SYMBOLS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]


def hubert_large(folder):
    """24 layers: recipes read the 22nd."""
    torch.manual_seed(0)
    transformers.HubertModel(
        transformers.HubertConfig(**WIDTH, **FRONT, num_hidden_layers=24)
    ).save_pretrained(folder)
    _extractor(folder)


def wav2vec_ctc(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(
        json.dumps({symbol: i for i, symbol in enumerate(CTC_SYMBOLS)})
    )
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        **WIDTH, **FRONT, num_hidden_layers=1, vocab_size=len(CTC_SYMBOLS), pad_token_id=0
    )
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)
    _extractor(folder)


def longformer(folder):
    """The 4,098 positions and windows of 512 of longformer-base-4096, in one layer."""
    sizes = {
        "attention_window": 512,
        "max_position_embeddings": 4098,
        "type_vocab_size": 1,
        "pad_token_id": 1,
    }
    _text(
        folder, transformers.LongformerConfig(**WIDTH, **sizes, num_hidden_layers=1, vocab_size=600)
    )


def bert(folder):
    _text(folder, transformers.BertConfig(**WIDTH, num_hidden_layers=1, vocab_size=600))


def deberta(folder):
    relative = {
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    }
    _text(
        folder, transformers.DebertaConfig(**WIDTH, **relative, num_hidden_layers=1, vocab_size=600)
    )


STAND_INS = {
    "facebook/hubert-large-ll60k": hubert_large,
    "facebook/wav2vec2-large-960h-lv60-self": wav2vec_ctc,
    "facebook/wav2vec2-base-960h": wav2vec_ctc,
    "facebook/wav2vec2-base-100h": wav2vec_ctc,
    "allenai/longformer-base-4096": longformer,
    "google-bert/bert-base-uncased": bert,
    "microsoft/deberta-base": deberta,
}


def _extractor(folder):
    transformers.Wav2Vec2FeatureExtractor(sampling_rate=16_000, do_normalize=True).save_pretrained(
        folder
    )


def _text(folder, config):
    """With a tokeniser of letters and of as many words as the codebooks have units."""
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    words = map("".join, itertools.product("abcdefghijk", repeat=3))
    listed = PIECES + list(itertools.islice(words, config.vocab_size - len(PIECES)))
    core = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(listed)}, unk_token="[UNK]")
    )
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    special = {f"{kind}_token": token for kind, token in names.items()}
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)


def fill(root, names=None):
    """names: which; None: all."""
    for name in names or STAND_INS:
        STAND_INS[name](root / name)
    return root


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
