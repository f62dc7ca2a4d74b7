"""Tests of heads that are trained with their upstream (the encoder), on distorted speech, or against
a domain classifier: hidden states, learning rates, gradients and killed runs."""

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import parse_distortions
from speechssl.data.superb import load_labelled, load_set
from speechssl.encoders.load import load_encoder
from speechssl.pretrain.options import Adversary
from speechssl.superb.data import HeadSettings, OnlineLoader, describe_encoder
from speechssl.superb.options import HeadTraining
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.tasks.transcription import Phones
from speechssl.superb.train import HeadRun, train_heads, train_run
from speechssl.superb.tuning import Tuning, TuningTrainer

from ..files import write_lines
from .heads import same_weights

SETTINGS = HeadSettings(learning_rate=1e-2, steps=20, batch=4, every=5)
FINETUNED = HeadTraining(finetune=True)
NOISE = parse_distortions("g+b", probability=(0.5, 0.5), snr=(0.0, 10.0))  # white noise, babble
LAMBDA = 0.5
ADVERSARY = Adversary(
    "multi",
    domain_adversary_schedule="constant",
    domain_adversary_weight=LAMBDA,
    domain_adversary_width=8,
)
ALTERNATING = Adversary(
    "binary",
    domain_adversary_mode="alternating",
    domain_adversary_weight=0.1,
    domain_adversary_width=8,
)


@pytest.fixture
def make_run(labelled, hubert_folder, tmp_path):
    """Return a function (folder, norm of the encoder, task, **fields of the tuning) -> HeadRun; the
    task is KS on tones by default."""

    def make(name="run", norm="layer", task=None, **tuning):
        source = hubert_folder(norm)
        encoder = load_encoder(source)
        if task is None:
            data = load_labelled(labelled())
            task = Classification("ks", data, encoder.grid, projection=16)
        loader, tuning = (
            OnlineLoader(encoder, read_audio, task, pool),
            Tuning(str(source), **tuning),
        )
        return HeadRun(task, loader, SETTINGS, 0, tmp_path / name, tuning=tuning)

    with ThreadPoolExecutor(2) as pool:
        yield make


def prepare_batch(trainer):
    """Return the input of the loss for the first four training utterances, at step 1."""
    utterances = trainer.run.task.data.splits["train"][:4]
    _, waves = next(trainer.prepare(iter([(1, utterances)])))
    return waves


@pytest.fixture
def phones(tmp_path, encoder):
    """Return the task PR on noise of several lengths, each labelled with a phone."""
    root, rng = tmp_path / "pr", np.random.default_rng(0)
    for split in ("train", "dev", "test"):
        lines = []
        for i in range(4):
            name = f"{split}-{i}"
            write_flac(root / f"{name}.flac", rng.normal(0, 0.1, 4_000 + 1_777 * i))
            lines.append({"id": name, "audio": f"{name}.flac", "phones": "ab"[i % 2]})
        write_lines(root / f"{split}.jsonl", lines)
    return Phones(load_set(root, "pr"), encoder.grid)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_the_head_reads_the_hidden_states_of_each_recording_alone(make_run, phones, norm):
    trainer = make_run(norm=norm, task=phones, training=FINETUNED).make_trainer()
    trainer.models.eval()
    batch, means = trainer.encode(prepare_batch(trainer))
    assert batch.states.requires_grad
    assert len(set(batch.lengths.tolist())) == 4  # all lengths differ
    for row, utterance in enumerate(batch.utterances):
        expected = trainer.loader.encoder.hidden_states(read_audio(phones.data.path(utterance)))
        frames = expected.shape[1]
        assert batch.lengths[row] == frames
        assert torch.allclose(batch.states[row, :, :frames], expected, atol=2e-5)
        assert not batch.states[row, :, frames:].any()
        assert torch.allclose(means[row], expected.mean(1), atol=2e-5)


def test_the_upstream_is_trained_at_a_tenth_of_the_heads_rate(make_run):
    """Adam's first step moves a weight by its learning rate, whatever its gradient."""
    trainer = make_run(training=FINETUNED, distort=NOISE, adversary=ADVERSARY).make_trainer()
    before = copy.deepcopy(trainer.models.state_dict())
    assert trainer.update(prepare_batch(trainer), step=1)
    moves = {}
    for name, weight in trainer.models.state_dict().items():
        moves[name] = float((weight - before[name]).abs().max())
    assert {name.partition(".")[0] for name in moves} == {"head", "upstream", "adversary"}
    assert moves["head.output.weight"] == pytest.approx(1e-2, rel=1e-2)
    assert moves["adversary.classifier.2.weight"] == pytest.approx(1e-2, rel=1e-2)
    matrix = "upstream.encoder.layers.1.feed_forward.output_dense.weight"
    assert moves[matrix] == pytest.approx(1e-3, rel=1e-2)
    assert moves["upstream.feature_extractor.conv_layers.0.conv.weight"] > 5e-4


@pytest.mark.slow
def test_the_upstream_gets_the_reversed_gradient_of_the_domain_classifier(make_run):
    trainer = make_run(training=FINETUNED, distort=NOISE, adversary=ADVERSARY).make_trainer()
    waves = prepare_batch(trainer)
    domains = torch.tensor([future.result()[1] for future in waves.futures])
    assert len(set(domains.tolist())) > 1
    upstream = list(trainer.upstream.encoder.layers.parameters())
    batch, means = trainer.encode(waves)
    logits = trainer.models["adversary"].classifier(trainer.head.featurizer(means))
    assert logits.shape[1] == 3  # clean, white noise, babble
    domain_loss = torch.nn.functional.cross_entropy(logits, domains)
    loss = trainer.run.task.loss(trainer.head, batch) - LAMBDA * domain_loss
    expected = torch.autograd.grad(loss, upstream)
    gradients = torch.autograd.grad(trainer.loss(waves, 1), upstream)
    torch.testing.assert_close(gradients, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tuning",
    [
        {"training": FINETUNED, "distort": NOISE, "adversary": ALTERNATING},
        {"training": HeadTraining(finetune=True, trained="biases"), "bf16": True},
    ],
)
def test_a_killed_run_comes_to_the_same_weights(make_run, tuning, dies_in):
    whole, killed = make_run("whole", **tuning), make_run("killed", **tuning)
    expected = train_run(whole)
    assert expected.value >= 75  # accuracy on dev
    with dies_in(TuningTrainer, "loss", 13):
        train_run(killed)
    attempt = train_run(killed)
    assert replace(attempt, seconds=0) == replace(expected, seconds=0)
    assert same_weights(killed, whole)


@pytest.mark.slow
def test_an_encoder_that_was_trained_lies_beside_its_head(make_run):
    run = make_run(training=FINETUNED, distort=NOISE)
    run = replace(run, settings=replace(SETTINGS, steps=10))
    start = run.loader.encoder
    card = describe_encoder(start) | {"tuning": run.tuning.card}
    (head,) = train_heads([run], card)
    assert head.upstream == run.folder / "encoder"
    assert not (run.folder / "encoder-default").exists()
    encoder = load_encoder(head.upstream)
    assert encoder.hash != start.hash
    assert encoder.normalise == start.normalise
    assert encoder.grid == start.grid
    # with this encoder the head has the accuracy on clean dev speech by which it was chosen
    utterances = run.task.data.splits["dev"]
    batch = replace(run.loader, encoder=encoder).make_batch(utterances)
    names = [u.id for u in utterances]
    predicted = dict(zip(names, head.task.predict(head.head, batch), strict=True))
    clean = run.task.evaluate("dev", predicted, 0).measures["acc"].value
    assert head.card["dev"]["acc"] <= (clean + 100) / 2  # the mean of clean and distorted
    assert train_heads([run], card)[0].card["weights"] == head.card["weights"]
