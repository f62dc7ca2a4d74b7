"""Write stand-ins for published checkpoints: tiny ones with random weights, of the same
architectures and under the same names.

python tests/recipes/stand_ins.py FOLDER
    fills FOLDER, which is then given as SPEECHSSL_MODELS: FOLDER/facebook/hubert-large-ll60k, ...
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


def write_hubert_large(folder):
    """Write a HuBERT of 24 layers: recipes read the 22nd."""
    torch.manual_seed(0)
    config = transformers.HubertConfig(**WIDTH, **FRONT, num_hidden_layers=24)
    transformers.HubertModel(config).save_pretrained(folder)
    write_extractor(folder)


def write_wav2vec_ctc(folder):
    """Write a wav2vec 2.0 with a CTC head on letters."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {symbol: i for i, symbol in enumerate(CTC_SYMBOLS)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        **WIDTH, **FRONT, num_hidden_layers=1, vocab_size=len(CTC_SYMBOLS), pad_token_id=0
    )
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)
    write_extractor(folder)


TEXT_ENCODERS = {  # name -> class of its config, and its settings
    # with the positions and the window that are published
    "allenai/longformer-base-4096": (
        transformers.LongformerConfig,
        {
            "attention_window": 512,
            "max_position_embeddings": 4098,
            "type_vocab_size": 1,
            "pad_token_id": 1,
        },
    ),
    "google-bert/bert-base-uncased": (transformers.BertConfig, {}),
    "microsoft/deberta-base": (
        transformers.DebertaConfig,
        {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
}
STAND_INS = {
    "facebook/hubert-large-ll60k": write_hubert_large,
    "facebook/wav2vec2-large-960h-lv60-self": write_wav2vec_ctc,
    "facebook/wav2vec2-base-960h": write_wav2vec_ctc,
    "facebook/wav2vec2-base-100h": write_wav2vec_ctc,
}


def write_extractor(folder):
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=16_000, do_normalize=True)
    extractor.save_pretrained(folder)


def write_text_encoder(folder, name):
    """Write a text encoder, and a tokeniser of letters and of words: DUAL gives every unit of a
    codebook a word of its own."""
    torch.manual_seed(0)
    config_class, settings = TEXT_ENCODERS[name]
    config = config_class(**WIDTH, **settings, num_hidden_layers=1, vocab_size=600)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    words = map("".join, itertools.product("abcdefghijk", repeat=3))
    vocabulary = PIECES + list(itertools.islice(words, config.vocab_size - len(PIECES)))
    ids = {word: i for i, word in enumerate(vocabulary)}
    core = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    special = {f"{kind}_token": token for kind, token in names.items()}
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)


def write_stand_ins(root, names=(*STAND_INS, *TEXT_ENCODERS)):
    """Write the checkpoints of these names as ROOT/NAME."""
    for name in names:
        if name in TEXT_ENCODERS:
            write_text_encoder(root / name, name)
        else:
            STAND_INS[name](root / name)


if __name__ == "__main__":
    write_stand_ins(Path(sys.argv[1]))
