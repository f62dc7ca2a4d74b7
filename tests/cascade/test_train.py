"""Training of a CTC head and of its n-gram: a killed run goes on, bad recordings are set aside,
other options are refused, the best checkpoint is kept."""

import shutil

import numpy as np
import pytest
import torch

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.cascade.model import CtcRecogniser, CtcVocabulary
from speechssl.cascade.ngrams import SPECIAL
from speechssl.cascade.options import CtcOptions, TrainCtc, TrainNgram
from speechssl.cascade.system import load_recogniser
from speechssl.cascade.train import CropBatches, find_recorded_texts, fit_ctc, spell_words
from speechssl.cascade.train_ngram import spell, train_and_tune_ngram
from speechssl.data.records import Passage, Span, load_corpus
from speechssl.dual.fitting import sample_items
from speechssl.encoders.load import load_encoder
from speechssl.metrics import word_error_rate
from speechssl.options import EvalOptions, TrainingOptions

from ..files import change_lines, read_lines, refused, same_files, untouched


def training_options(steps, learning_rate=1e-2, save_every=1):
    return TrainingOptions(
        steps, learning_rate, warmup_steps=1, save_every=save_every, log_every=1, bf16=False
    )


def head_options(**changes):
    """Options of a small head, which is trained for two steps."""
    training = training_options(steps=2, learning_rate=1e-3)
    small = {"training": training, "layer": "1", "batch": 2, "lstm_width": 8, "projection": 8}
    return CtcOptions(**small | changes)


def train_head(corpus, encoder, out, head):
    return fit_ctc(TrainCtc(corpus=corpus, encoder="", out=out, head=head), encoder)


def replace_words(root, words, language="en"):
    """Give all recordings of the training split these words, as [text, start, end]."""
    for name in ("passages", "questions"):
        change_lines(root / f"train/{name}.jsonl", {"words": words, "language": language})
    return root


@pytest.fixture
def corpus(mini_corpus):
    words = [["Don't!", 0.0, 0.2], ["go", 0.2, 0.4], ["--", 0.4, 0.45]]
    return replace_words(mini_corpus(), words)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_head(corpus, encoder, tmp_path, dies_at):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    head = head_options(training=training_options(steps=5, save_every=2))
    train_head(corpus, encoder, whole, head)
    with dies_at(CropBatches, step=3):
        train_head(corpus, encoder, killed, head)
    assert not (killed / "card.json").exists()
    assert (killed / "checkpoints/checkpoint-2").is_dir()
    train_head(corpus, encoder, killed, head)
    assert same_files(whole, killed, "head.safetensors")


def test_a_head_on_all_hidden_states_learns_their_weights_without_a_bad_recording(
    corpus, encoder, tmp_path, capsys, hubert_folder
):
    (corpus / "train/audio/p1.flac").write_bytes(b"no audio")
    out = tmp_path / "ctc"
    trained = train_head(corpus, encoder, out, head_options(layer="all"))
    assert "set aside p1" in capsys.readouterr().err
    assert trained.head.weights.shape == (encoder.layers + 1,)
    assert float(trained.head.weights.detach().abs().max()) > 0  # they began at 0
    loaded = CtcRecogniser.load(out, encoder)
    samples = np.random.default_rng(0).normal(0, 0.1, 8_000).astype(np.float32)
    assert torch.equal(loaded.compute_log_probs(samples), trained.compute_log_probs(samples))
    message = "made from other inputs .options.layer differs"
    refused(message, train_head, corpus, encoder, out, head_options(layer="2"))
    other_encoder = load_encoder(hubert_folder("group"))
    refused("was made with the encoder", CtcRecogniser.load, out, other_encoder)


# ---- evaluation while training


@pytest.mark.slow
def test_the_head_is_the_checkpoint_that_recognises_held_out_recordings_best(
    mini_corpus, encoder, tmp_path
):
    root = replace_words(mini_corpus(), [["你", 0.0, 0.2], ["好", 0.2, 0.4]], language="zh")
    shutil.copytree(root / "train", root / "dev")
    change_lines(root / "dev/passages.jsonl", {"text": "你好"})
    head = head_options(
        training=training_options(steps=8, learning_rate=3e-2, save_every=3),
        layer="all",
        evaluation=EvalOptions(eval_every=2, eval_split="dev", eval_items=4),
    )
    recogniser = train_head(root, encoder, tmp_path / "ctc", head)
    best = read_json(tmp_path / "ctc/card.json")["training"]["best"]
    rows = read_lines(tmp_path / "ctc/checkpoints/log.jsonl")
    error_rates = {row["step"]: row["eval_cer"] for row in rows if "eval_cer" in row}
    assert best["step"] == min(error_rates, key=error_rates.get)
    data = load_corpus(root, "dev")
    records = sample_items(find_recorded_texts(data), head.evaluation)
    texts = [recogniser.transcribe(read_audio(data.path(r))).text for r in records]
    rate = word_error_rate([r.text for r in records], texts, "zh").rate
    assert rate == pytest.approx(best["score"], abs=1e-5)


# ---- the n-gram of a head


@pytest.mark.slow
def test_an_ngram_knows_the_training_texts_and_cascade_ctc_decodes_with_it(
    corpus, encoder, tmp_path
):
    train_head(corpus, encoder, tmp_path / "ctc", head_options())
    without_ngram = load_recogniser(tmp_path, "ctc", encoder)
    ngram_options = TrainNgram(
        corpus=corpus,
        encoder="",
        ctc=tmp_path / "ctc",
        dev_split="train",
        dev_passages=2,
        lm_weights=(0.5, 2.0),
        word_scores=(0.0, 1.0),
    )
    card = train_and_tune_ngram(ngram_options, encoder)
    assert len(card["tried"]) == 2 * 2
    assert card["wer"] == min(row["wer"] for row in card["tried"])
    with untouched(tmp_path / "ctc"):
        train_and_tune_ngram(ngram_options, encoder)
    beam, greedy = (load_recogniser(tmp_path, name, encoder) for name in ("ctc", "ctc-greedy"))
    texts = [spell(r.text, beam.vocabulary) for r in load_corpus(corpus, "train").records]
    assert set(beam.decoder.model.words) - set(SPECIAL) == set(" ".join(texts).split())
    assert beam.card["decoding"] == card["decoding"]
    for recogniser in (without_ngram, greedy):
        assert (recogniser.name, recogniser.decoder) == ("ctc-greedy", None)


def test_words_and_recordings_without_letters_are_left_out():
    year, now = Span("1984", 0.0, 0.5), Span("Now!", 0.5, 0.9)
    records = {"p": Passage("p", words=(year, now)), "q": Passage("q", words=(year,))}
    assert spell_words(records, "en") == {"p": (now._replace(text="now"),)}
    refused("no word .* has letters of 'en'", spell_words, {"q": records["q"]}, "en")


def test_texts_are_spelt_with_what_a_head_can_write():
    assert spell("Don't  GO -- it's 3 naïve words!", CtcVocabulary.make_english()) == (
        "don't go it's nave words"
    )
    assert spell("你好，吗", CtcVocabulary.from_symbols(["你好吗"])) == "你 好 吗"
