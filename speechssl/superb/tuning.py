"""This module trains heads on labelled distorted speech, with or without their upstream (the
encoder), and optionally against a domain classifier (domain-adversarial training, DAT).

Source: arXiv 2203.16104, "Improving Distortion Robustness of Self-supervised Speech Processing
Tasks with Domain Adaptation".
In the paper a model of SUPERB is trained on labelled clean and distorted speech; its upstream is
trained with the head, and a domain classifier behind gradient reversal removes the domain from the
features. The domains are clean and distorted (`binary`), or clean and every kind of distortion
(`multi`). The authors' later repository (nobel861017/distort-robust-distilSSL) has an optimiser for
the upstream alone, whose rate is to be "at least ten times smaller" than the head's; for
distillation it trains the classifier on detached features and then subtracts its loss
(`alternating`). Its downstream runner is not published. These choices are therefore ours: the
classifier's input (the mean over time of the weighted sum that the head reads), its size and rate
(the head's), the schedule of its weight, and that every batch mixes clean and distorted recordings
at random. All gradients are clipped together, as s3prl clips a head's and an upstream's.

A recording is distorted anew at every step. The distortion depends on (seed, step, position in the
batch) alone, so that a killed run comes to the same weights; threads apply it in advance of the
model. Recordings are never cropped; those of similar length form a batch, and no frame depends on
padding.
Dev is evaluated clean and, where training is distorted, once more with every recording distorted
(the same every time): a head is chosen by the mean of both.
Letters: B batch, S hidden states, T frames, D width, N samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from speechssl.artifacts import hash_files, write_json
from speechssl.audio import read_audio
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.data.superb import Utterance
from speechssl.encoders.hubert import check_trainable, compute_states, count_frames, mask_lengths
from speechssl.encoders.load import hash_folder, load_checkpoint, save_encoder
from speechssl.errors import InputError
from speechssl.finetuning import merge_lora, train_only
from speechssl.options import parse_noise_folders
from speechssl.pretrain.model import DomainAdversary
from speechssl.pretrain.options import Adversary
from speechssl.superb.data import Batch, Loader, OnlineLoader
from speechssl.superb.options import HeadTraining, Superb
from speechssl.superb.train import HeadRun, Trainer

# tasks without a head, or whose targets are the waves themselves
UNTRAINABLE_TASKS = ("qbe", "se", "ss")
PREPARED_BATCHES = 4  # batches that are read and distorted in advance
PADDING_STEP = 4_000  # batches are padded to a multiple of so many samples


@dataclass(frozen=True)
class Tuning:
    """A tuning has the options of a training of heads on distorted speech or with their encoder."""

    source: str = ""  # the encoder, as `load_checkpoint` takes it
    training: HeadTraining = HeadTraining()
    distort: TrainingDistortions | None = None  # of `training.distort`; None for clean speech
    adversary: Adversary = Adversary()
    bf16: bool = False  # whether the upstream computes in bf16 autocast

    @property
    def name(self) -> str:
        """Return the suffix of the encoder's name, such as "+distorted"."""
        adversary = self.adversary
        training = self.training
        if adversary.domain_adversary:
            kind = f"{adversary.domain_adversary}-{adversary.domain_adversary_mode}"
            return f"+dat-{kind}-{adversary.domain_adversary_weight:g}"
        if self.distort:
            return "+distorted" if training.finetune else "+distorted-head"
        return "+finetuned" if training.trained == "all" else f"+{training.trained}"

    @property
    def card(self) -> dict[str, Any]:
        """Return the settings that decide the head, in JSON values."""
        training = self.training
        heads = sorted(training.start.glob("*/seed-*/head.safetensors")) if training.start else []
        return {
            "upstream_rate": training.upstream_rate if training.finetune else None,
            "distort": self.distort.card if self.distort else None,
            "adversary": asdict(self.adversary) if self.adversary.domain_adversary else None,
            "heads": hash_files(heads) if training.start else None,
            "trained": training.trained,
            "precision": "bf16" if self.bf16 else "fp32",
        }

    def make_trainer(self, run: HeadRun) -> Trainer:
        return TuningTrainer(run, self)

    def save(self, models: nn.ModuleDict, folder: Path, run: HeadRun) -> None:
        """Write the encoder that was trained with a head as a Hugging Face folder; its card names
        its start and its training."""
        assert isinstance(run.loader, OnlineLoader)
        save_encoder(merge_lora(models["upstream"]), folder, run.loader.encoder.normalise)
        options = self.card | {
            "task": run.task.name,
            "learning_rate": run.settings.learning_rate,
            "seed": run.seed,
        }
        card = {
            "what": "an encoder trained with a head of SUPERB",
            "from": run.loader.encoder.hash,
            "options": options,
            "files": hash_folder(folder),
        }
        write_json(folder / "card.json", card)


def make_tuning(o: Superb) -> Tuning | None:
    """Make the tuning that the options name, and load or generate its noise; None where heads are
    trained on clean speech and a frozen encoder."""
    training = o.training
    if not (training.finetune or training.distort):
        return None
    distort = None
    if training.distort:
        distort = parse_distortions(
            training.distort,
            parse_noise_folders(o.noise.noise),
            seed=o.seed[0],
            probability=(training.distorted, training.distorted),
            snr=training.snr_range,
            cache=training.noise_cache or o.out.parent / "noise",
            snr_over=o.noise.snr_over,
        )
    bf16 = o.sets.precision == "bf16"
    return Tuning(training=training, distort=distort, adversary=o.adversary, bf16=bf16)


class Waves(NamedTuple):
    """This batch was read by threads: it has for each utterance the encoder's input, (N,) float32,
    and the number of its domain."""

    utterances: Sequence[Utterance]
    futures: list[Future[tuple[Tensor, int]]]


class TuningTrainer(Trainer):
    """This trainer trains a head on distorted speech or with its upstream. run.loader: an
    `OnlineLoader`, whose encoder and threads are used."""

    def __init__(self, run: HeadRun, tuning: Tuning) -> None:
        assert isinstance(run.loader, OnlineLoader)
        self.tuning = tuning
        self.loader = run.loader
        super().__init__(run)

    def build(self) -> nn.ModuleDict:
        tuning = self.tuning
        models = super().build()
        start = tuning.training.start
        if start:
            path = start / self.run.task.name / f"seed-{self.run.seed}" / "head.safetensors"
            if not path.is_file():
                raise InputError(
                    f"{path} is no head to start from; train it first, or leave out --start"
                )
            models["head"].load_state_dict(load_file(path))
        self.upstream: Any = load_checkpoint(tuning.source).model
        check_trainable(self.upstream, tuning.source)
        if tuning.adversary.domain_adversary and tuning.distort:
            width, domains = self.loader.encoder.width, len(tuning.distort.domains)
            # it gets a single layer, the weighted sum
            models["adversary"] = DomainAdversary(width, domains, tuning.adversary)
        if tuning.training.finetune:
            train_only(self.upstream, tuning.training.trained)
            models["upstream"] = self.upstream
        else:
            self.upstream.to(self.run.device)
        return models

    def list_rates(self) -> dict[str, float]:
        training = self.tuning.training
        rates = super().list_rates()
        if training.finetune:
            rates["upstream"] = training.upstream_rate * self.run.settings.learning_rate
        return rates

    def prepare(self, steps: Iterator[tuple[int, list[Utterance]]]) -> Iterator[tuple[int, Waves]]:
        """Read and distort recordings in threads, PREPARED_BATCHES in advance."""
        waiting: deque[tuple[int, Waves]] = deque()
        for step, utterances in steps:
            keys = [(self.run.seed, step, position) for position in range(len(utterances))]
            progress = (step - 1) / self.run.settings.steps
            waiting.append((step, self.read(utterances, self.tuning.distort, keys, progress)))
            if len(waiting) > PREPARED_BATCHES:
                yield waiting.popleft()
        yield from waiting

    def loss(self, waves: Waves, step: int) -> Tensor:
        batch, means = self.encode(waves)
        loss = self.run.task.loss(self.head, batch)
        if "adversary" not in self.models:
            return loss
        domains = torch.tensor([f.result()[1] for f in waves.futures], device=self.run.device)
        progress = torch.tensor((step - 1) / self.run.settings.steps)
        facts = {"domains": domains, "progress": progress, "step": torch.tensor(step - 1)}
        features = self.head.featurizer(means)[:, None]
        adversarial: Tensor = self.models["adversary"]([features], None, facts)["loss"]
        return loss + adversarial

    def encode(self, waves: Waves) -> tuple[Batch, Tensor]:
        """Encode by the upstream as it is now. Return the head's batch, and the mean over time of
        every hidden state, (B, S, D)."""
        utterances = tuple(waves.utterances)
        waves_of_batch = [future.result()[0] for future in waves.futures]
        samples = torch.tensor([len(wave) for wave in waves_of_batch], device=self.run.device)
        # few different lengths: oneDNN keeps a program for every length, which takes gigabytes
        padded = pad_sequence(waves_of_batch, batch_first=True)
        padded = pad(padded, (0, -padded.shape[1] % PADDING_STEP)).to(self.run.device)
        with torch.autocast(padded.device.type, torch.bfloat16, enabled=self.tuning.bf16):
            _, layers = compute_states(self.upstream, padded, lengths=samples)
        lengths = count_frames(self.upstream.config, samples)
        states = torch.stack(layers, 1)[:, :, : lengths.max()].float()
        states = states.masked_fill(~mask_lengths(lengths, states.shape[2])[:, None, :, None], 0)
        means = states.sum(2) / lengths[:, None, None]
        if self.run.task.pooled:
            return Batch(utterances, means, torch.ones_like(lengths)), means
        return Batch(utterances, states, lengths), means

    def make_dev_loaders(self) -> list[Loader]:
        distort = self.tuning.distort
        if distort is None:
            return [DevLoader(self, None)]
        return [DevLoader(self, None), DevLoader(self, replace(distort, probability=(1.0, 1.0)))]

    def read(
        self,
        utterances: Sequence[Utterance],
        distort: TrainingDistortions | None,
        keys: Sequence[Any],
        progress: float,
    ) -> Waves:
        """Read and distort in threads. keys: decide each distortion together with its seed."""

        def read_one(utterance: Utterance, key: Any) -> tuple[Tensor, int]:
            samples = read_audio(self.run.task.data.path(utterance))
            domain = 0
            if distort:
                samples, domain = distort.apply(samples, key, progress)
            return self.loader.encoder.wave(samples), domain

        pairs = zip(utterances, keys, strict=True)
        return Waves(utterances, [self.loader.pool.submit(read_one, *pair) for pair in pairs])


@dataclass(frozen=True)
class DevLoader:
    """This loader encodes recordings by the upstream as it is now. Each recording has a distortion
    of its own, which is always the same."""

    trainer: TuningTrainer
    distort: TrainingDistortions | None

    @property
    def shape(self) -> tuple[int, int]:
        return self.trainer.loader.shape

    def list_usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return list(utterances)

    def make_batch(self, utterances: Sequence[Utterance]) -> Batch:
        keys = [f"dev {u.id}" for u in utterances]
        waves = self.trainer.read(utterances, self.distort, keys, progress=1.0)
        batch, _ = self.trainer.encode(waves)
        return batch
