"""Tiny models and a tiny corpus, made on the spot: no test reaches for the network or for a
downloaded checkpoint."""

import gc
import itertools
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

# before huggingface_hub is imported: an unknown name fails at once
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
from hypothesis import settings

from .files import write_lines

# The same cases everywhere, on machines of any speed; pytest --hypothesis-profile=thorough has four
# times as many.
settings.register_profile("speechssl", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("speechssl")
_FROZEN = [0]  # how many modules had been imported at each `gc.freeze`


@pytest.fixture(autouse=True, scope="session")
def _one_torch_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def set_threads():
    """`torch.set_num_threads`, undone after the test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def _freeze_imported_modules():
    """Take torch and transformers out of garbage collection: every loaded encoder collects, and
    would look through all of them."""
    if len(sys.modules) > _FROZEN[-1] + 50:
        gc.collect()
        gc.freeze()
        _FROZEN.append(len(sys.modules))


# ---- speech

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
FRONT = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}


def hubert_config(norm, **changes):
    """Make a config of HuBERT's front end (hop 320, receptive field 400) with 2 layers of 32.

    norm: "layer", as of the size large, or "group", as of base. changes: other settings.
    """
    from transformers import HubertConfig

    norms = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer"}
    return HubertConfig(**SIZES | FRONT | norms | changes)


@pytest.fixture(scope="session")
def hubert_folder(tmp_path_factory):
    """A function (norm, **changes of the config) -> folder of a Hugging Face checkpoint with random
    weights."""
    import torch
    from transformers import HubertModel, Wav2Vec2FeatureExtractor

    folders = {}

    def make(norm="layer", **changes):
        key = json.dumps([norm, changes], sort_keys=True)
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp("hubert")
            torch.manual_seed(0)
            HubertModel(hubert_config(norm, **changes)).save_pretrained(folder)
            extractor = Wav2Vec2FeatureExtractor(do_normalize=norm == "layer")
            extractor.save_pretrained(folder)
        return folders[key]

    return make


@pytest.fixture(scope="session")
def encoder(hubert_folder):
    """A loaded SpeechEncoder: 2 layers of 32, hop 320, receptive field 400."""
    from speechssl.encoders.load import load_encoder

    return load_encoder(hubert_folder("layer"))


@pytest.fixture
def mini_corpus(tmp_path):
    """A function (lengths in samples) -> a corpus folder whose split `train` has a passage and a
    question for each length."""
    from speechssl.audio import write_flac

    def make(lengths=(16_000, 24_123, 9_999)):
        rng, root = np.random.default_rng(0), tmp_path / "corpus"
        passages, questions = [], []
        for i, length in enumerate(lengths):
            passages.append({"id": f"p{i}", "seconds": length / 16_000, "text": "a b"})
            questions.append({"id": f"q{i}", "seconds": 0.5, "text": "a", "passage": f"p{i}"})
            for record, samples in ((passages[-1], length), (questions[-1], 8_000)):
                record["audio"] = f"train/audio/{record['id']}.flac"
                record["speaker"] = "s"
                record["language"] = "en"
                write_flac(root / record["audio"], rng.uniform(-0.5, 0.5, samples))
        for name, records in (("passages", passages), ("questions", questions)):
            write_lines(root / "train" / f"{name}.jsonl", records)
        (root / "card.json").write_text(json.dumps({"manifests": "0123"}))
        return root

    return make


@pytest.fixture
def save_units(tmp_path):
    """A function (recording -> its units, entry `made_from` of the card) that writes them to
    units/train as `units extract` does, of a codebook of 6, and returns the folder units."""
    from speechssl.artifacts import hash_bytes, write_json
    from speechssl.units.storage import Part, UtteranceUnits, encode_part, name_part

    def make(units, made_from):
        folder = tmp_path / "units/train"
        folder.mkdir(parents=True)
        utterances = [UtteranceUnits(name, 1.0, runs, "") for name, runs in units.items()]
        content = encode_part(Part(utterances, {}))
        (folder / name_part(0)).write_bytes(content)
        card = {
            "made_from": made_from,
            "K": 6,
            "grid": {"sample_rate": 16_000, "hop": 320, "receptive": 400},
            "codebooks": ["b"],
        }
        parts = [{"file": name_part(0), "hash": hash_bytes(content)}]
        write_json(folder / "_card.json", card | {"parts": parts})
        return tmp_path / "units"

    return make


@pytest.fixture
def dies_at(monkeypatch):
    """A context (class of batches, step) in which training is killed when it asks for the batch of
    this step; the context expects that."""

    @contextmanager
    def make(batches, step):
        make_batch = batches.__call__

        def make_batch_or_die(self, at):
            if at >= step:
                raise KeyboardInterrupt
            return make_batch(self, at)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(batches, "__call__", make_batch_or_die)
            yield

    return make


@pytest.fixture
def dies_in(monkeypatch):
    """A context (module or class, name of its function, N) in which the program is killed at the
    Nth call of the function; the context expects that."""

    @contextmanager
    def make(owner, name, call=1):
        function = getattr(owner, name)
        calls = itertools.count(1)

        def call_or_die(*arguments, **options):
            if next(calls) >= call:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(owner, name, call_or_die)
            yield

    return make


@pytest.fixture(scope="session")
def labelled(tmp_path_factory):
    """A function (task, names of labels, sizes of the splits) -> a new folder of a labelled set of
    tones of half a second, low ones and high ones in turn."""
    from speechssl.audio import write_flac

    def make(task="ks", slots=("keyword",), counts=(12, 4, 4)):
        root, rng = tmp_path_factory.mktemp("sets") / task, np.random.default_rng(0)
        for split, count, speaker in zip(("train", "dev", "test"), counts, "abc", strict=True):
            lines = []
            for i in range(count):
                high = i % 2
                tone = np.sin(2 * np.pi * (300 + 900 * high) * np.arange(8_000) / 16_000)
                samples = 0.3 * tone + rng.normal(0, 0.01, 8_000)
                name = f"{split}-{i}"
                write_flac(root / "audio" / f"{name}.flac", samples)
                # the first label says what the tone is, the second the contrary, and so on
                labels = {slot: ("low", "high")[high ^ n % 2] for n, slot in enumerate(slots)}
                record = {
                    "id": name,
                    "audio": f"audio/{name}.flac",
                    "seconds": 0.5,
                    "speaker": f"{speaker}{i % 2}",
                }
                lines.append(record | {"labels": labels})
            write_lines(root / f"{split}.jsonl", lines)
        (root / "card.json").write_text(json.dumps({"task": task}))
        return root

    return make


# ---- text

WORDS = """
    the of and to in is was for as on with by he at from his an were are which this be or has had
    first one their its new after but who not they have her she two been other when time during
    there into school more years over only anna peter silver lantern lost born paris london
    market""".split()
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
T5 = {
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A WordPiece tokeniser: five specials, letters, continuations, then WORDS from the commonest
    to the rarest."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = [*BERT, *"!.", *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS]
    ids = {token: i for i, token in enumerate(vocabulary)}
    core = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{kind}_token": f"[{kind.upper()}]" for kind in "unk sep pad cls mask".split()}
    return PreTrainedTokenizerFast(tokenizer_object=core, **names)


@pytest.fixture(scope="session")
def text_encoder(tokenizer):
    """A function (a family in small letters, **changes of the config) -> a text encoder with random
    weights, in eval mode, for the vocabulary of `tokenizer`.
    """
    import torch
    import transformers

    from speechssl.textlm.encoders import make_encoder

    def make(kind="bert", **changes):
        by_small_letters = {family.lower(): entry for family, entry in FAMILIES.items()}
        name, values, _ = by_small_letters[kind]
        values = values | {"vocab_size": len(tokenizer)}
        if kind != "t5":
            values["max_position_embeddings"] = 128
        if kind == "bigbird":
            values["attention_type"] = "original_full"
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**values | changes)
        return make_encoder(config.to_dict()).eval()

    return make


# ---- checkpoints of Hugging Face, each with the tokenizer of its family


def make_wordpieces(*specials):
    """Return the vocabulary of a WordPiece tokeniser: token -> id."""
    tokens = [*specials, *".!?,", *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS]
    return {token: i for i, token in enumerate(tokens)}


def make_byte_pairs(*specials):
    """Return a vocabulary, token -> id, and merges that make every word of WORDS, with the space
    before it, from its letters in order."""
    pairs = [("Ġ" + word[:i], word[i]) for word in WORDS for i in range(len(word))]
    merges = list(dict.fromkeys(pairs))
    tokens = [*specials, "Ġ", *".!?,", *LETTERS, *map("".join, merges)]
    return {token: i for i, token in enumerate(tokens)}, merges


def make_unigrams(*specials):
    """Return the tokens of a unigram tokeniser with their log-probabilities."""
    words = [(f"▁{word}", -2 - i / 100) for i, word in enumerate(WORDS)]
    return [*((t, 0.0) for t in specials), *words, *((c, -5.0) for c in ("▁", *".!?,", *LETTERS))]


MODERNBERT = {
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
POSITIONS = SIZES | {"max_position_embeddings": 130}
DISTILBERT = {
    "dim": 32,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 64,
    "max_position_embeddings": 130,
}
GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 130,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
NARROW, ONE_SEGMENT = POSITIONS | {"embedding_size": 16}, POSITIONS | {"type_vocab_size": 1}
DEBERTA = POSITIONS | {  # with relative positions
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
    "type_vocab_size": 0,
    "initializer_range": 0.3,  # so large that positions matter in a tiny model
}
DEBERTA_V2 = {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
XLNET = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}


# Functions of transformers, the module, that make a tokeniser; it is imported where it is needed.


def wordpiece_of(name):
    return lambda transformers: getattr(transformers, f"{name}Tokenizer")(make_wordpieces(*BERT))


def unigram_of(name, *specials):
    return lambda transformers: getattr(transformers, f"{name}Tokenizer")(make_unigrams(*specials))


def byte_pairs_of(name, *specials):
    return lambda transformers: getattr(transformers, f"{name}Tokenizer")(
        *make_byte_pairs(*specials)
    )


def t5_tokenizer(transformers):
    return transformers.T5Tokenizer(make_unigrams("<pad>", "</s>", "<unk>"), extra_ids=4)


def modernbert_tokenizer(transformers):
    """Return a tokeniser without a class of its own, as checkpoints of newer families have it."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=transformers.BertTokenizer(make_wordpieces(*BERT)).backend_tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{token.strip('[]').lower()}_token": token for token in BERT},
    )


BIGBIRD_SPECIALS = ("<pad>", "</s>", "<s>", "<unk>", *BERT[2:])
XLNET_SPECIALS = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>")
FAMILIES = {  # name of a family -> name of its config, values of it, function for its tokeniser
    "ALBERT": ("Albert", NARROW, unigram_of("Albert", "<pad>", "<unk>", *BERT[2:])),
    "BERT": ("Bert", POSITIONS, wordpiece_of("Bert")),
    "BigBird": (
        "BigBird",
        SIZES | {"max_position_embeddings": 512},
        unigram_of("BigBird", *BIGBIRD_SPECIALS),
    ),
    "ByT5": ("T5", T5 | {"feed_forward_proj": "gated-gelu"}, lambda t: t.ByT5Tokenizer()),
    "DeBERTa": ("Deberta", DEBERTA, byte_pairs_of("Deberta", *BERT)),
    "DeBERTa-v2": ("DebertaV2", DEBERTA | DEBERTA_V2, unigram_of("DebertaV2", *BERT)),
    "DistilBERT": ("DistilBert", DISTILBERT, wordpiece_of("DistilBert")),
    "ELECTRA": ("Electra", NARROW, wordpiece_of("Electra")),
    "Longformer": (
        "Longformer",
        ONE_SEGMENT | {"attention_window": 8},
        byte_pairs_of("Longformer", *ROBERTA),
    ),
    "ModernBERT": ("ModernBert", POSITIONS | MODERNBERT, modernbert_tokenizer),
    "RoBERTa": ("Roberta", ONE_SEGMENT, byte_pairs_of("Roberta", *ROBERTA)),
    **{f: (f.upper(), T5, t5_tokenizer) for f in ("T5", "mT5", "UMT5")},
    "XLM-RoBERTa": ("XLMRoberta", ONE_SEGMENT, unigram_of("XLMRoberta", *ROBERTA)),
    # GPT-2 is no encoder; XLNet gives outputs, though its class does not promise to
    "GPT2": ("GPT2", GPT2, byte_pairs_of("GPT2", "<|endoftext|>")),
    "XLNet": ("XLNet", XLNET, unigram_of("XLNet", *XLNET_SPECIALS)),
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A function (family, kind of Auto class, **changes of the config) -> folder of a checkpoint
    with random weights and its tokenizer.
    """
    import torch
    import transformers

    folders = {}

    def make(family, kind="AutoModel", **changes):
        key = json.dumps([family, kind, changes], sort_keys=True)
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp(family)
            name, values, make_tokenizer = FAMILIES[family]
            tokenizer = make_tokenizer(transformers)
            values = {"vocab_size": len(tokenizer)} | values | changes
            config = getattr(transformers, f"{name}Config")(**values)
            torch.manual_seed(0)
            model = getattr(transformers, kind).from_config(config)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return folders[key]

    return make


# ---- processors without bf16


def _lacks_bf16():
    """Return whether the processor lacks bf16, by its own flags, so that no fault of the package
    can make it look so."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith("flags")), ["avx512bw"])
    # oneDNN emulates bf16 where there is AVX-512
    return not {"avx512_bf16", "amx_bf16", "avx512bw"} & set(flags)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that needs bf16 is skipped, with the reason, where the package refuses it on a
    processor without it."""
    report = (yield).get_result()
    refusal = "this processor has no bf16 arithmetic"
    if report.failed and call.excinfo and refusal in str(call.excinfo.value) and _lacks_bf16():
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {refusal}")
