"""Heads trained on labelled distorted speech, with or without their upstream, against a domain classifier where asked for (DAT).

Source: arXiv 2203.16104, "Improving Distortion Robustness of Self-supervised Speech Processing Tasks with Domain Adaptation".
There a model of SUPERB is trained on labelled clean and distorted speech; its upstream is trained with the head, and a domain
classifier behind gradient reversal makes the features those of no domain: clean or distorted (`binary`), or clean and every kind of
distortion (`multi`). The authors' later repository (nobel861017/distort-robust-distilSSL) has an optimiser for the upstream alone,
whose rate is to be "at least ten times smaller" than the head's; for distillation it trains the classifier on detached features and
then subtracts its loss (`alternating`). Its downstream runner is not published. Hence ours are: where the classifier sits (on the
mean over time of the weighted sum that the head reads; `layers` for single hidden states), its size and rate (the head's), the
schedule of its weight, and that clean and distorted recordings are mixed by chance in every batch. All gradients are clipped
together, as s3prl clips a head's and an upstream's.

A recording is distorted anew at every step, by (seed, step, place in the batch) alone, in threads ahead of the model, so that a
killed run comes to the same weights. It is never cropped; batches are of like lengths, and no frame of it depends on padding.
Dev is taken clean and, where training is distorted, once more with every recording distorted (the same at every look):
a head is chosen by the mean of both.
Letters: B batch, S hidden states, T frames, D width, N samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from speechssl.audio import read_audio
from speechssl.augment.training import TrainingDistortions
from speechssl.data.utterances import Utterance
from speechssl.encoders.export import save_encoder
from speechssl.encoders.load import load_checkpoint
from speechssl.encoders.training import before_end, check_known, frames_of_samples, training_states
from speechssl.errors import InputError
from speechssl.io import write_json
from speechssl.pretrain.adversarial import AdversaryOptions, DomainAdversary
from speechssl.superb.data import InTheLoop, Supply
from speechssl.superb.fit import Run, Trainer
from speechssl.superb.task import Batch

UPSTREAM_RATE = 0.1  # of the head's; the authors' repository: "at least ten times smaller"
SHARE = 0.5  # of the training recordings that are distorted; ours
NO_HEADS = ("qbe", "se", "ss")  # tasks without a head, or whose targets are the sound itself
AHEAD = 4  # batches that are read and distorted before the model wants them
ROUND = 4_000  # samples: batches are padded to multiples of it


@dataclass(frozen=True)
class Tuning:
    """How heads are trained. source: the encoder, as `load_checkpoint` takes it.

    rate: the upstream's learning rate over the head's; None: it is frozen. distort: of the training speech; None: it is clean.
    adversary: its layers are hidden states whose means over time the classifier sees; none: the weighted sum that the head reads.
    bf16: the upstream computes in bf16 autocast. Raises InputError for a domain classifier that has nothing to do.
    """

    source: str = ""
    rate: float | None = None
    distort: TrainingDistortions | None = None
    adversary: AdversaryOptions | None = None
    bf16: bool = False

    def __post_init__(self) -> None:
        if self.adversary and self.distort is None:
            raise InputError("--dat tells distorted from clean speech; give --distort, such as m+g+r")
        if self.adversary and self.rate is None:
            raise InputError("--dat trains the upstream to mislead a domain classifier; give --finetune")

    @property
    def name(self) -> str:
        """What is added to the name of the encoder, such as "+distorted"."""
        if self.adversary:
            a = self.adversary
            return f"+dat-{a.labels}-{a.mode}-{a.weight:g}"
        if self.distort:
            return "+distorted" if self.rate else "+distorted-head"
        return "+finetuned"

    @property
    def card(self) -> dict[str, Any]:
        """What decides the head, in JSON values."""
        adversary = None if self.adversary is None else asdict(self.adversary) | {"layers": list(self.adversary.layers)}
        facts = {"upstream_rate": self.rate, "distort": getattr(self.distort, "card", None), "adversary": adversary}
        return facts | {"precision": "bf16" if self.bf16 else "fp32"}

    def trainer(self, run: Run) -> Trainer:
        return TuningTrainer(run, self)


@dataclass(frozen=True)
class Heard:
    """A batch that is being read: what the encoder is given, (N,) float32, and the domain, of every recording."""

    utterances: Sequence[Utterance]
    sounds: Sequence[Future[tuple[Tensor, int]]]


class TuningTrainer(Trainer):
    """run.supply: an `InTheLoop`, of which encoder and threads are used."""

    def __init__(self, run: Run, tuning: Tuning) -> None:
        assert isinstance(run.supply, InTheLoop)
        self.tuning, self.supply = tuning, run.supply
        super().__init__(run)

    def build(self) -> nn.ModuleDict:
        models, tuning = super().build(), self.tuning
        self.upstream: Any = load_checkpoint(tuning.source).model
        check_known(self.upstream, tuning.source)
        if tuning.adversary and tuning.distort:
            if not all(0 <= layer <= self.supply.encoder.layers for layer in tuning.adversary.layers):
                raise InputError(
                    f"--dat-layers: {tuning.source} has the layers 0 to {self.supply.encoder.layers}; choose among them"
                )
            views = replace(tuning.adversary, layers=tuple(range(len(tuning.adversary.layers) or 1)))
            models["adversary"] = DomainAdversary(self.supply.encoder.width, len(tuning.distort.domains), views)
        if tuning.rate is None:
            self.upstream.to(self.run.device)
        else:
            models["upstream"] = self.upstream.requires_grad_(True)
        return models

    def rates(self) -> dict[str, float]:
        return super().rates() | (
            {} if self.tuning.rate is None else {"upstream": self.tuning.rate * self.run.settings.learning_rate}
        )

    def prepared(self, steps: Iterator[tuple[int, list[Utterance]]]) -> Iterator[tuple[int, Heard]]:
        """Recordings are read and distorted by threads, AHEAD batches before they are wanted."""
        waiting: deque[tuple[int, Heard]] = deque()
        try:
            for step, utterances in steps:
                keys = [(self.run.seed, step, place) for place in range(len(utterances))]
                progress = (step - 1) / self.run.settings.steps
                waiting.append((step, self.read(utterances, self.tuning.distort, keys, progress)))
                if len(waiting) > AHEAD:
                    yield waiting.popleft()
        finally:
            for sound in [sound for _, heard in waiting for sound in heard.sounds]:
                sound.cancel()

    def loss(self, heard: Heard, step: int) -> Tensor:
        batch, means = self.states(heard)
        loss = self.run.task.loss(self.head, batch)
        if "adversary" not in self.models or not (wanted := self.tuning.adversary):
            return loss
        domains = torch.tensor([sound.result()[1] for sound in heard.sounds], device=self.run.device)
        progress = torch.tensor((step - 1) / self.run.settings.steps)
        facts = {"domains": domains, "progress": progress, "step": torch.tensor(step - 1)}
        seen = [means[:, layer] for layer in wanted.layers] or [self.head.featurizer(means)]
        found: Tensor = self.models["adversary"]([x[:, None] for x in seen], None, facts)["loss"]
        return loss + found

    def states(self, heard: Heard) -> tuple[Batch, Tensor]:
        """The batch as the head takes it, and the mean over time of every hidden state, (B, S, D), by the upstream as it is now."""
        waves = [sound.result()[0] for sound in heard.sounds]
        samples = torch.tensor([len(wave) for wave in waves], device=self.run.device)
        padded, kind = in_steps(pad_sequence(waves, batch_first=True)).to(self.run.device), torch.device(self.run.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.tuning.bf16):
            _, layers = training_states(self.upstream, padded, lengths=samples)
        lengths = frames_of_samples(self.upstream.config, samples)
        states = torch.stack(layers, 1)[:, :, : lengths.max()].float()
        states = states.masked_fill(~before_end(lengths, states.shape[2])[:, None, :, None], 0)
        means = states.sum(2) / lengths[:, None, None]
        if self.run.task.pooled:
            return Batch(tuple(heard.utterances), means, torch.ones_like(lengths)), means
        return Batch(tuple(heard.utterances), states, lengths), means

    def dev_supplies(self) -> list[Supply]:
        always = None if self.tuning.distort is None else replace(self.tuning.distort, probability=(1.0, 1.0))
        return [_Dev(self, None), *([_Dev(self, always)] if always else [])]

    def read(
        self, utterances: Sequence[Utterance], distort: TrainingDistortions | None, keys: Sequence[Any], progress: float
    ) -> Heard:
        """In threads. keys: what each distortion depends on, beside its seed."""
        sounds = [self.supply.pool.submit(self._sound, u, distort, k, progress) for u, k in zip(utterances, keys, strict=True)]
        return Heard(utterances, sounds)

    def _sound(self, u: Utterance, distort: TrainingDistortions | None, key: Any, progress: float) -> tuple[Tensor, int]:
        path, domain = self.run.task.data.path(u), 0
        samples = read_audio(path)
        if distort:
            samples, domain = distort.apply(samples, key, progress)
        try:
            return self.supply.encoder.wave(samples), domain
        except ValueError as error:
            raise InputError(f"{path} cannot be trained on ({error}); mend it or remove its line") from error


def in_steps(waves: Tensor) -> Tensor:
    """(B, N) with zeros up to a multiple of ROUND: oneDNN keeps its programs for every length that it meets, gigabytes of them."""
    return torch.nn.functional.pad(waves, (0, -waves.shape[1] % ROUND))


@dataclass(frozen=True)
class _Dev:
    """Recordings encoded by the upstream as it is now, each distorted in its own way, as at the end of training."""

    trainer: TuningTrainer
    distort: TrainingDistortions | None

    @property
    def shape(self) -> tuple[int, int]:
        return self.trainer.supply.shape

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return list(utterances)

    def batch(self, utterances: Sequence[Utterance]) -> Batch:
        heard = self.trainer.read(utterances, self.distort, [f"dev {u.id}" for u in utterances], 1.0)
        return self.trainer.states(heard)[0]


def save_upstream(models: nn.ModuleDict, folder: Path, run: Run) -> None:
    """An encoder that was trained with a head, as Hugging Face's folder; its card names its start and its training."""
    assert isinstance(run.supply, InTheLoop) and run.tuning is not None
    save_encoder(models["upstream"], folder, run.supply.encoder.normalise)
    facts = {"task": run.task.name, "learning_rate": run.settings.learning_rate, "seed": run.seed}
    what = {"what": "an encoder trained with a head of SUPERB", "from": run.supply.encoder.hash}
    write_json(folder / "card.json", what | {"options": run.tuning.card | facts})
