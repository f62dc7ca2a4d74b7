"""Heads trained with their upstream, on distorted speech, against a domain classifier: states,
rates, gradients, killed runs."""

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
from speechssl.superb.data import HeadSettings, OnlineLoader, encoder_card
from speechssl.superb.options import HeadTraining
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.tasks.transcription import Phones
from speechssl.superb.train import HeadRun, load_best, train_heads, train_run
from speechssl.superb.tuning import Tuning, TuningTrainer

from ..files import write_lines

SETTINGS = HeadSettings(1e-2, steps=20, batch=4, every=5)
FINETUNED = HeadTraining(finetune=True)
NOISE = parse_distortions("g+b", probability=(0.5, 0.5), snr=(0.0, 10.0))
SMALL = {"domain_adversary_weight": 0.5, "domain_adversary_width": 8}
DAT = Adversary("multi", domain_adversary_schedule="constant", **SMALL)
WEAK = SMALL | {"domain_adversary_weight": 0.1}
ALTERNATING = Adversary("binary", domain_adversary_mode="alternating", **WEAK)
FIRST = (0, 1, 2, 3)  # of the training utterances


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture
def run(labelled, hubert_folder, pool, tmp_path):
    """A function (folder, norm, **of the tuning) -> a run of KS on tones."""

    def make(name="run", norm="layer", task=None, changes=None, **tuning):
        source = hubert_folder(norm, **(changes or {}))
        encoder = load_encoder(source)
        task = task or Classification("ks", load_labelled(labelled()), encoder.grid, 16)
        loader = OnlineLoader(encoder, read_audio, task, pool)
        made = Tuning(str(source), **tuning)
        return HeadRun(task, loader, SETTINGS, 0, tmp_path / name, tuning=made)

    return make


def first_batch(trainer, step=1):
    utterances = [trainer.run.task.data.splits["train"][i] for i in FIRST]
    return next(trainer.prepare(iter([(n, utterances) for n in range(step, step + 9)])))


def weights(models):
    return {name: weight.clone() for name, weight in models.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(weight, b[name]) for name, weight in a.items())


@pytest.fixture
def phones(tmp_path, encoder):
    """Noise of several lengths, each with a phone."""
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
def test_the_head_reads_what_the_encoder_gives_alone(run, phones, norm):
    """All hidden states, numbered as `SpeechEncoder` numbers them, of recordings of several lengths
    in a batch."""
    trainer = run(norm=norm, task=phones, training=FINETUNED).trainer()
    trainer.models.eval()
    _, waves = first_batch(trainer)
    batch, means = trainer.encode(waves)
    for row, utterance in enumerate(batch.utterances):
        wanted = trainer.loader.encoder.hidden_states(read_audio(phones.data.path(utterance)))
        assert batch.lengths[row] == wanted.shape[1]
        assert batch.states.shape[1] == len(wanted) == 3
        assert torch.allclose(batch.states[row, :, : wanted.shape[1]], wanted, atol=2e-5)
        assert not batch.states[row, :, wanted.shape[1] :].any()
        assert torch.allclose(means[row], wanted.mean(1), atol=2e-5)
    assert batch.states.requires_grad
    assert len(set(batch.lengths.tolist())) == 4


def test_the_upstream_goes_along_at_a_tenth_of_the_rate(run):
    """Adam's first step moves a weight by its learning rate, whatever its gradient."""
    trainer = run(training=FINETUNED, distort=NOISE, adversary=DAT).trainer()
    before = weights(trainer.models)
    assert trainer.update(first_batch(trainer)[1], 1)
    after = trainer.models.state_dict()
    moved = {name: float((w - before[name]).abs().max()) for name, w in after.items()}
    assert {"head", "upstream", "adversary"} == {name.partition(".")[0] for name in moved}
    matrix = "upstream.encoder.layers.1.feed_forward.output_dense.weight"
    rates = {"head.output.weight": 1e-2, "adversary.classifier.2.weight": 1e-2, matrix: 1e-3}
    assert {name: moved[name] for name in rates} == pytest.approx(rates, rel=1e-2)
    assert moved["upstream.feature_extractor.conv_layers.0.conv.weight"] > 5e-4


@pytest.mark.slow
def test_the_gradient_of_the_domain_classifier_is_turned_round(run):
    """Upstream: the task's gradient less lambda times that of domain_loss domains apart;
    classifier: the latter as it is."""
    trainer = run(training=FINETUNED, distort=NOISE, adversary=DAT).trainer()
    _, waves = first_batch(trainer)
    domains = torch.tensor([wave.result()[1] for wave in waves[1]])
    assert len(set(domains.tolist())) > 1
    upstream = list(trainer.upstream.encoder.layers.parameters())
    adversary = trainer.models["adversary"]
    both, (batch, means) = [*upstream, *adversary.parameters()], trainer.encode(waves)
    logits = adversary.classifier(trainer.head.featurizer(means))
    domain_loss = torch.nn.functional.cross_entropy(logits, domains)
    assert logits.shape[1] == 3
    kept = {"retain_graph": True, "allow_unused": True}
    of_domains = torch.autograd.grad(domain_loss, both, **kept)
    of_task = torch.autograd.grad(trainer.run.task.loss(trainer.head, batch), upstream)
    found, count = torch.autograd.grad(trainer.loss(waves, 1), both), len(upstream)
    for mine, task, domain in zip(found, of_task, of_domains, strict=False):
        expected = task if domain is None else task - 0.5 * domain
        assert torch.allclose(mine, expected, atol=1e-6, rtol=1e-4)
    for mine, domain in zip(found[count:], of_domains[count:], strict=True):
        assert torch.allclose(mine, domain, atol=1e-6)


KINDS = {
    "alternating": {"training": FINETUNED, "distort": NOISE, "adversary": ALTERNATING},
    "biases": {"training": HeadTraining(finetune=True, trained="biases"), "bf16": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_comes_to_the_same_weights(run, kind, dies_in):
    whole, killed = run("whole", **KINDS[kind]), run("killed", **KINDS[kind])
    last = train_run(whole)
    assert last.value >= 75  # accuracy on dev
    with dies_in(TuningTrainer, "loss", 13):
        train_run(killed)
    found = train_run(killed)
    assert (found.value, found.tie, found.best) == (last.value, last.tie, last.best)
    assert same(weights(load_best(whole)), weights(load_best(killed)))


@pytest.mark.slow
def test_a_head_comes_with_its_encoder(run):
    """Which says what it was trained on, is another than it began as, and gives the head the states
    that it was chosen on."""
    tuned = replace(run(training=FINETUNED, distort=NOISE), settings=replace(SETTINGS, steps=10))
    start = tuned.loader.encoder
    card = encoder_card(start) | {"tuning": tuned.tuning.card}
    (head,) = train_heads([tuned], card)
    mine = load_encoder(head.upstream)
    assert head.upstream == tuned.folder / "encoder"
    assert not (tuned.folder / "encoder-default").exists()
    assert mine.hash != start.hash
    assert (mine.normalise, mine.grid) == (start.normalise, start.grid)
    assert mine.card["options"]["distort"] == NOISE.card
    assert mine.card["from"] == start.hash
    utterances = tuned.task.data.splits["dev"]
    batch = replace(tuned.loader, encoder=mine).batch(utterances)
    names = [u.id for u in utterances]
    predicted = dict(zip(names, head.task.predict(head.head, batch), strict=True))
    clean = tuned.task.evaluate("dev", predicted, 0).measures[0].value
    # the mean of clean and distorted
    assert head.card["dev"]["acc"] <= (clean + 100) / 2
    assert train_heads([tuned], card)[0].weights == head.weights
