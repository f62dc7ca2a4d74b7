"""Training of a CTC head: features once, bad recordings set aside, other inputs refused, letters of
the language."""

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
from speechssl.cascade.train import CropBatches, fit_ctc
from speechssl.cascade.train_ngram import spell, train_and_tune_ngram
from speechssl.data.records import load_corpus
from speechssl.metrics import word_error_rate
from speechssl.options import EvalOptions, TrainingOptions

from ..files import change_lines, read_lines, refused, same_files, untouched


def options(**changes):
    training = TrainingOptions(2, 1e-3, 1, save_every=1, bf16=False)
    few = {"training": training, "layer": "1", "batch": 2, "lstm_width": 8, "projection": 8}
    return CtcOptions(**few | changes)


def train_head(corpus, encoder, out, head):
    return fit_ctc(TrainCtc(corpus=corpus, encoder="", out=out, head=head), encoder)


def with_words(root, words, language="en"):
    for name in ("passages", "questions"):
        change_lines(root / f"train/{name}.jsonl", {"words": words, "language": language})
    return root


@pytest.fixture
def corpus(mini_corpus):
    return with_words(mini_corpus(), [["Don't!", 0.0, 0.2], ["go", 0.2, 0.4], ["--", 0.4, 0.45]])


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_loss_curve_to_the_same_head(
    corpus, encoder, tmp_path, dies_at
):
    five = TrainingOptions(5, 1e-2, 1, save_every=2, log_every=1, bf16=False)
    train_head(corpus, encoder, tmp_path / "whole", options(training=five))
    with dies_at(CropBatches, 3):
        train_head(corpus, encoder, tmp_path / "killed", options(training=five))
    assert not (tmp_path / "killed/card.json").exists()
    assert (tmp_path / "killed/checkpoints/checkpoint-2").is_dir()
    train_head(corpus, encoder, tmp_path / "killed", options(training=five))
    assert same_files(tmp_path / "whole", tmp_path / "killed", "head.safetensors")
    logs = (read_lines(tmp_path / name / "checkpoints/log.jsonl") for name in ("whole", "killed"))
    whole, killed = ([(row["step"], row["loss"]) for row in rows if "loss" in row] for rows in logs)
    assert whole == killed and len(whole) == 5


def test_a_head_on_all_hidden_states_learns_their_weights_without_a_bad_recording(
    corpus, encoder, tmp_path, capsys
):
    (corpus / "train/audio/p1.flac").write_bytes(b"no audio")
    made = train_head(corpus, encoder, tmp_path / "ctc", options(layer="all"))
    assert "set aside p1" in capsys.readouterr().err
    assert made.head.weights.shape == (encoder.layers + 1,)
    assert float(made.head.weights.detach().abs().max()) > 0  # they began at 0
    again = CtcRecogniser.load(tmp_path / "ctc", encoder)
    samples = np.random.default_rng(0).normal(0, 0.1, 8_000).astype(np.float32)
    assert torch.equal(again.log_probs(samples), made.log_probs(samples))
    refused("options.layer", train_head, corpus, encoder, tmp_path / "ctc", options(layer="2"))


# ---- evaluation while training


@pytest.mark.slow
def test_the_head_is_the_checkpoint_that_recognises_held_out_recordings_best(
    mini_corpus, encoder, tmp_path
):
    root = with_words(mini_corpus(), [["你", 0.0, 0.2], ["好", 0.2, 0.4]], "zh")
    shutil.copytree(root / "train", root / "dev")
    change_lines(root / "dev/passages.jsonl", {"text": "你好"})
    eight = TrainingOptions(8, 3e-2, 1, save_every=3, log_every=1, bf16=False)
    made = options(training=eight, layer="all", evaluation=EvalOptions(2, "dev", 4))
    head = train_head(root, encoder, tmp_path / "ctc", made)
    best = read_json(tmp_path / "ctc/card.json")["training"]["best"]
    rows = read_lines(tmp_path / "ctc/checkpoints/log.jsonl")
    found = {row["step"]: row["eval_cer"] for row in rows if "eval_cer" in row}
    assert best["step"] == min(found, key=found.get)
    data = load_corpus(root, "dev")
    records = [*data.passages.values(), *data.questions]
    drawn = [records[i] for i in sorted(np.random.default_rng(0).permutation(len(records))[:4])]
    texts = [head.transcribe(read_audio(data.path(r))).text for r in drawn]
    rate = word_error_rate([r.text for r in drawn], texts, "zh").rate
    assert rate == pytest.approx(best["score"], abs=1e-5)


# ---- the n-gram of a head


def ngram_options(corpus, out, **changes):
    where = {"corpus": corpus, "encoder": "", "ctc": out, "dev_split": "train", "dev_passages": 2}
    return TrainNgram(**where | changes)


@pytest.mark.slow
def test_an_ngram_knows_the_training_texts_and_is_what_cascade_ctc_decodes_with(
    corpus, encoder, tmp_path
):
    train_head(corpus, encoder, tmp_path / "ctc", options())
    before = load_recogniser(tmp_path, "ctc", encoder)
    assert (before.name, before.decoder) == ("ctc-greedy", None)
    swept = {"lm_weights": (0.5, 2.0), "word_scores": (0.0, 1.0)}
    made = train_and_tune_ngram(ngram_options(corpus, tmp_path / "ctc", **swept), encoder)
    assert len(made["tried"]) == 4
    assert made["wer"] == min(row["wer"] for row in made["tried"])
    chosen = {name: made["decoding"][name] for name in ("lm_weight", "word_score")}
    assert chosen | {"wer": made["wer"]} in made["tried"]
    with untouched(tmp_path / "ctc"):
        train_and_tune_ngram(ngram_options(corpus, tmp_path / "ctc", **swept), encoder)
    beam, greedy = (load_recogniser(tmp_path, name, encoder) for name in ("ctc", "ctc-greedy"))
    texts = [spell(r.text, beam.vocabulary) for r in load_corpus(corpus, "train").records]
    assert set(beam.decoder.model.words) - set(SPECIAL) == set(" ".join(texts).split())
    assert (beam.name, greedy.name) == ("ctc", "ctc-greedy")
    assert greedy.decoder is None
    assert (greedy.card, beam.card["decoding"]) == (before.card, made["decoding"])


def test_texts_are_spelt_with_what_a_head_can_write():
    assert spell("Don't  GO -- it's 3 naïve words!", CtcVocabulary.english()) == (
        "don't go it's nave words"
    )
    assert spell("你好，吗", CtcVocabulary.from_symbols(["你好吗"])) == "你 好 吗"
