"""Recognisers of Hugging Face: tiny checkpoints with random weights; nothing is fetched."""

import json
import shutil
import zlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from speechssl.cascade.engines import HuggingFaceRecogniser
from speechssl.timing import FrameGrid

from ..files import change_json, refused
from .conftest import RATE, TOKENS, noise

transformers = pytest.importorskip("transformers")
GRID = FrameGrid(RATE, hop=320, receptive=400)
SHORT = {"_": "<pad>", "?": "<unk>"}  # letters that stand for tokens in paths


def make_emit(recogniser, path):
    """Make the model emit this path of tokens whatever it hears, and return audio of that many
    frames."""
    ids = [TOKENS.index(SHORT.get(c, c)) for c in path]
    logits = 9 * torch.nn.functional.one_hot(torch.tensor(ids), len(TOKENS)).float()
    engine = recogniser.engine
    engine.model.lm_head.forward = lambda hidden: logits[None, : hidden.shape[1]]
    return noise(GRID.count_samples(len(path)) / RATE)


@pytest.mark.parametrize(
    ("language", "path", "text", "frames"),
    [
        ("en", "__AAB_|__C_C?H_", "AB CCH", [(2, 5), (9, 14)]),
        ("zh", "_AAB_|_C", "ABC", [(1, 3), (3, 4), (7, 8)]),
    ],
)
def test_ctc_words_or_characters_have_times_to_the_frame(ctc_folder, language, path, text, frames):
    recogniser = HuggingFaceRecogniser(ctc_folder, language)
    transcript = recogniser.transcribe(make_emit(recogniser, path))
    assert recogniser.name == "tiny-ctc"
    assert transcript.text == text
    times = [(GRID.find_start(first), GRID.find_start(stop)) for first, stop in frames]
    assert [(w.start, w.end) for w in transcript.words] == times
    assert all(w.confidence > 0.99 for w in transcript.words)


def test_ctc_agrees_with_the_tokenizer_of_the_library(ctc_folder):
    recogniser = HuggingFaceRecogniser(ctc_folder)
    model = transformers.Wav2Vec2ForCTC.from_pretrained(ctc_folder)
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(ctc_folder)
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(ctc_folder)
    torch.manual_seed(3)
    weight = torch.randn(len(TOKENS), 16) * 3
    weight[1:4] = 0  # <s>, </s> and <unk> are never likeliest: the library spells them out
    for ctc_model in (model, recogniser.engine.model):
        ctc_model.lm_head.weight.data.copy_(weight)
    inputs = extractor(noise(4), sampling_rate=RATE, return_tensors="pt").input_values
    theirs = tokenizer.decode(model(inputs).logits[0].argmax(-1), output_word_offsets=True)
    ours = recogniser.transcribe(noise(4))
    assert len(ours.words) > 3
    assert ours.text == " ".join(theirs["text"].split())
    for word, offset in zip(ours.words, theirs["word_offsets"], strict=True):
        assert word.text == offset["word"]
        assert word.start == GRID.find_start(offset["start_offset"])
        assert word.end == GRID.find_start(offset["end_offset"])


@pytest.mark.parametrize("delimiter", [" ", "#", "<space>", "▁"])
def test_a_delimiter_of_words_may_be_another_symbol(ctc_folder, tmp_path, delimiter):
    folder = shutil.copytree(ctc_folder, tmp_path / "spaces")
    symbols = {delimiter if token == "|" else token: i for i, token in enumerate(TOKENS)}
    (folder / "vocab.json").write_text(json.dumps(symbols))
    transformers.Wav2Vec2CTCTokenizer(
        str(folder / "vocab.json"), word_delimiter_token=delimiter
    ).save_pretrained(folder)
    recogniser = HuggingFaceRecogniser(folder)
    audio = make_emit(recogniser, "_AAB_|__C_C_|_H_")
    assert recogniser.transcribe(audio).text == "AB CC H"


@pytest.fixture
def whisper(whisper_folder):
    return HuggingFaceRecogniser(whisper_folder, language="en")


@pytest.mark.slow
def test_the_sampling_of_whisper_depends_on_the_recording_alone(whisper):
    first, second = noise(3), noise(4)[RATE:]
    texts = [whisper.transcribe(samples).text for samples in (first, second)]
    assert texts[0] != texts[1]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert [whisper.transcribe(samples).text for samples in (second, first)] == texts[::-1]
    # random numbers outside are left as they are
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.slow
def test_whisper_agrees_with_the_library(whisper_folder):
    whisper = HuggingFaceRecogniser(whisper_folder, "zh")
    theirs = transformers.pipeline("automatic-speech-recognition", model=str(whisper_folder))
    options = {
        "language": "zh",
        "task": "transcribe",
        "num_beams": 1,
        "temperature": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        "compression_ratio_threshold": 1.35,
        "logprob_threshold": -1.0,
        "no_speech_threshold": 0.6,
        "condition_on_prev_tokens": False,
    }
    samples = noise(20)
    audio = next(theirs.preprocess({"raw": samples, "sampling_rate": RATE}))
    torch.manual_seed(zlib.crc32(samples.tobytes()))
    outputs = theirs.forward(audio, return_timestamps="word", **options)
    chunks = theirs.postprocess([outputs], return_timestamps="word")["chunks"]
    chunks = [chunk for chunk in chunks if chunk["text"].strip()]
    words = whisper.engine.decode(samples)
    assert len(words) > 1
    assert [word.text for word in words] == [chunk["text"].strip() for chunk in chunks]
    assert [(word.start, word.end) for word in words] == [chunk["timestamp"] for chunk in chunks]
    assert whisper.card["decoding"] == "fallback"


# ---- bad input: functions of the folder of a checkpoint, which damage it


def edit(name, **changes):
    return lambda folder: change_json(folder / name, **changes)


def cut_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:99])


def drop_head(folder):
    state = load_file(folder / "model.safetensors")
    del state["lm_head.weight"]
    save_file(state, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        ("whisper", edit("generation_config.json", alignment_heads=None), "lacks alignment_heads"),
        ("ctc", edit("config.json", architectures=["Speech2Text"]), "which has no word times"),
        ("ctc", drop_head, r"it lacks 1 weights, such as lm_head\.weight"),
        ("ctc", cut_weights, "cannot load"),
    ],
)
def test_a_checkpoint_that_is_no_whole_recogniser_is_refused(
    request, tmp_path, kind, damage, message
):
    folder = shutil.copytree(request.getfixturevalue(f"{kind}_folder"), tmp_path / "edited")
    damage(folder)
    assert str(folder) in refused(message, HuggingFaceRecogniser, folder)
