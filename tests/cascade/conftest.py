"""Tiny Hugging Face checkpoints of recognisers with random weights, recordings of noise, and
transcripts."""

import json
import math

import numpy as np
import pytest
import torch

from speechssl.cascade.data import TimedWord, Transcript

transformers = pytest.importorskip("transformers")
RATE = 16_000
TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGH"]  # <pad> is the blank of CTC


def noise(seconds):
    """Make a recording of noise."""
    return np.random.default_rng(0).normal(scale=0.1, size=int(seconds * RATE)).astype(np.float32)


def transcript(text, separator=" "):
    """Make a transcript of the words of a text, of 0.4 s each, one every half second."""
    timed = []
    for i, word in enumerate(text.split() if separator else text):
        start = i / 2
        timed.append(TimedWord(word, start, end=start + 0.4, confidence=math.nan))
    return Transcript(tuple(timed), separator)


@pytest.fixture(scope="session")
def ctc_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-ctc"
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(TOKENS)}))
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "conv_dim": (8,) * 7, "vocab_size": len(TOKENS)}
    sizes |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(**sizes)
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def whisper_folder(tmp_path_factory):
    """A Whisper with a token for every byte, two languages, and the special tokens of the published
    ones in their order."""
    from tokenizers.pre_tokenizers import ByteLevel

    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-whisper"
    vocabulary = {c: i for i, c in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = transformers.WhisperTokenizer(vocab=vocabulary, merges=[])
    names = "endoftext startoftranscript en zh translate transcribe startoflm startofprev"
    names = [*names.split(), "nospeech", "notimestamps"]
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{n}|>" for n in names]})
    tokenizer.add_tokens([f"<|{i * 0.02:.2f}|>" for i in range(1501)])  # times up to 30 s
    ids = {n: tokenizer.convert_tokens_to_ids(f"<|{n}|>") for n in names}
    common = {f"{part}_token_id": ids["endoftext"] for part in ("pad", "bos", "eos")}
    common["decoder_start_token_id"] = ids["startoftranscript"]
    sizes = {"d_model": 16, "max_target_positions": 64, "vocab_size": len(tokenizer)}
    for half in ("encoder", "decoder"):
        sizes |= {f"{half}_layers": 1, f"{half}_attention_heads": 2, f"{half}_ffn_dim": 16}
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(**sizes, **common)
    )
    model.generation_config = transformers.GenerationConfig(
        **common,
        is_multilingual=True,
        lang_to_id={f"<|{name}|>": ids[name] for name in ("en", "zh")},
        max_length=24,
        task_to_id={name: ids[name] for name in ("transcribe", "translate")},
        suppress_tokens=[],
        begin_suppress_tokens=[],
        no_timestamps_token_id=ids["notimestamps"],
        prev_sot_token_id=ids["startofprev"],
        alignment_heads=[[0, 0], [0, 1]],
        return_timestamps=False,
    )
    for part in (tokenizer, transformers.WhisperFeatureExtractor(feature_size=80), model):
        part.save_pretrained(folder)
    return folder
