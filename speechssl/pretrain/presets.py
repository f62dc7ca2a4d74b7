"""The published models and how they were trained; and `small`, which a CPU trains. The defaults of `speechssl pretrain --size`.

Sources: [H] HuBERT, arXiv 2106.07447; [W] wav2vec 2.0, arXiv 2006.11477; [h], [w] the authors' own settings in fairseq,
examples/hubert/config/pretrain and examples/wav2vec/config/pretraining. Where paper and settings differ, what was taken is said.
fairseq's `polynomial_decay` of power 1 to 0 is the schedule `linear` here (transformers' `polynomial` ends at 1e-7). It decays all
weights; transformers' Trainer leaves biases and norms out. `large` is trained on Libri-Light in both papers. HuBERT's codebook is
fitted on a tenth of the recordings as in [H] IV-A, but on `units.kmeans.BUDGET` of their frames; [h] keeps all of them (--budget).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transformers import HubertConfig, HubertModel, Wav2Vec2Config, Wav2Vec2Model

from speechssl.audio import SAMPLE_RATE
from speechssl.config import TrainingOptions
from speechssl.encoders.load import small_config
from speechssl.errors import InputError
from speechssl.pretrain.data import MaskOptions
from speechssl.pretrain.wav2vec2 import ContrastiveOptions, Temperature


@dataclass(frozen=True)
class Batching:
    """How much audio an update gets, however many processes share it and however it is accumulated."""

    seconds: float  # of audio an update
    crop_samples: int  # the most of one utterance

    @property
    def crop_seconds(self) -> float:
        return self.crop_samples / SAMPLE_RATE

    @property
    def crops(self) -> int:
        """Of full length an update."""
        return round(self.seconds / self.crop_seconds)


@dataclass(frozen=True)
class Iteration:
    """Where HuBERT's labels come from and how long it learns them. Each iteration starts from scratch ([H] IV-B)."""

    teacher: str  # "mfcc" or the size of the model before
    layer: int  # of the teacher; 0 with MFCCs
    clusters: int  # K
    steps: int
    warmup: int  # steps over which the learning rate rises: 8 % of the iteration's own ([H] IV-C)


@dataclass(frozen=True)
class HubertSize:
    """A HuBERT and its training: masked prediction with cosines over 0.1, unmasked frames weigh nothing ([H] II-B, [h])."""

    name: str
    config: Callable[[], HubertConfig]
    normalise: bool  # of the input
    width: int  # of the projection
    mask: MaskOptions
    penalty: float  # weight of the convolutions' mean square
    feature_gradient: float  # factor of the gradient into the convolutions
    batching: Batching
    iterations: tuple[Iteration, ...]
    training: TrainingOptions  # of the last iteration

    def options(self, number: int) -> TrainingOptions:
        """How to train iteration `number`, from 1. Raises InputError where the size has no such iteration."""
        if not 1 <= number <= len(self.iterations):
            raise InputError(f"HuBERT {self.name} has iterations 1 to {len(self.iterations)}; give one of them instead of {number}")
        iteration = self.iterations[number - 1]
        return replace(self.training, steps=iteration.steps, warmup_steps=iteration.warmup)

    def model(self) -> HubertModel:
        """From scratch."""
        return HubertModel(self.config())


@dataclass(frozen=True)
class Wav2Vec2Size:
    """A wav2vec 2.0 and its training."""

    name: str
    config: Callable[[], Wav2Vec2Config]
    normalise: bool  # of the input
    mask: MaskOptions
    contrastive: ContrastiveOptions
    negatives: int
    temperature: Temperature
    batching: Batching
    training: TrainingOptions

    def model(self) -> Wav2Vec2Model:
        """From scratch."""
        return Wav2Vec2Model(self.config())


# ---- architectures, the same for both kinds ([W] 4.2, [H] IV-B table I)

_BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "feat_extract_norm": "group",
    "do_stable_layer_norm": False,
    "conv_bias": False,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.0,  # [h] says so, fairseq's default in [w]; transformers' default is 0.1
    "feat_proj_dropout": 0.1,  # dropout_input
    "layerdrop": 0.05,
}
_LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "hidden_dropout": 0.0,  # [h] and [w]: none at all; [W] 4.2 has 0.1 on LibriSpeech
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "feat_proj_dropout": 0.0,
    "layerdrop": 0.0,
}


def wav2vec2_small_config() -> Wav2Vec2Config:
    """The small HuBERT's architecture with wav2vec 2.0's heads."""
    same = {k: v for k, v in small_config().to_diff_dict().items() if k not in ("model_type", "transformers_version")}
    return Wav2Vec2Config(**same, codevector_dim=128, proj_codevector_dim=128, num_codevectors_per_group=64)


# ---- training

_ADAM = TrainingOptions(  # [h] and [w]: all four
    steps=400_000,
    learning_rate=5e-4,
    warmup_steps=32_000,
    schedule="linear",
    weight_decay=0.01,
    adam_betas=(0.9, 0.98),
    adam_epsilon=1e-6,
    clip=10.0,
    save_every=25_000,
    log_every=200,
)
_SMALL = TrainingOptions(steps=4_000, learning_rate=1e-3, warmup_steps=300, clip=1.0)  # ours
_SMALL_BATCHING = Batching(seconds=40.0, crop_samples=64_000)  # ours
_HUBERT_MASK = MaskOptions(0.80, 10, same_masks=True)  # [H] IV-C, [h]; fairseq's HuBERT always cuts to equally many
_WAV2VEC2_MASK = MaskOptions(0.65, 10, same_masks=True)  # [W] 4.2: starts of probability 0.065; [w] require_same_masks

HUBERT = {
    size.name: size
    for size in (
        HubertSize(
            name="base",
            config=partial(HubertConfig, **_BASE),
            normalise=False,  # [h]
            width=256,  # [h] final_dim
            mask=_HUBERT_MASK,
            penalty=10.0,  # [h] loss_weights
            feature_gradient=0.1,  # [h] feature_grad_mult
            batching=Batching(32 * 87.5, 250_000),  # [H] IV-C; [h] max_tokens 1.4 M on 32 GPUs, max_sample_size
            iterations=(
                Iteration("mfcc", 0, 100, 250_000, 20_000),  # [H] IV-B, IV-C
                Iteration("base", 6, 500, 400_000, 32_000),
            ),
            training=_ADAM,
        ),
        HubertSize(
            name="large",
            config=partial(HubertConfig, **_LARGE, conv_bias=False),  # [h]
            normalise=True,  # [h]
            width=768,  # [h] final_dim
            mask=_HUBERT_MASK,
            penalty=10.0,  # [h] loss_weights
            feature_gradient=1.0,  # [h] feature_grad_mult
            batching=Batching(128 * 56.25, 250_000),  # [H] IV-C; [h] max_tokens 0.9 M on 128 GPUs
            iterations=(Iteration("base", 9, 500, 400_000, 32_000),),  # layer 9 of base's second iteration ([H] IV-B)
            training=replace(_ADAM, learning_rate=1.5e-3, clip=1.0),  # [H] IV-C, [h]
        ),
        HubertSize(
            name="small",  # all of it ours, after recipes/minisqa
            config=small_config,
            normalise=True,
            width=128,
            mask=MaskOptions(0.5, 10, visible_weight=1.0),
            penalty=1e-3,
            feature_gradient=1.0,
            batching=_SMALL_BATCHING,
            iterations=(Iteration("mfcc", 0, 100, 4_000, 300), Iteration("small", 5, 100, 4_000, 300)),
            training=_SMALL,
        ),
    )
}

WAV2VEC2 = {
    size.name: size
    for size in (
        Wav2Vec2Size(
            name="base",
            config=partial(Wav2Vec2Config, **_BASE, feat_quantizer_dropout=0.1, codevector_dim=256, proj_codevector_dim=256),
            normalise=False,  # [W] 4.2: the first convolution's output is normalised instead
            mask=_WAV2VEC2_MASK,
            contrastive=ContrastiveOptions(),  # [W] 4.2: G 2, V 320, entries of 128; weights and gradient of [w]
            negatives=100,  # [W] 4.2
            temperature=Temperature(2.0, 0.999995, 0.5),  # [W] 4.2
            batching=Batching(64 * 87.5, 250_000),  # [w] max_tokens 1.4 M on 64 GPUs: 1.6 h ([W] 4.2)
            training=replace(_ADAM, clip=0.0),  # [W] 4.2 (warm-up: 8 %); [w] does not clip
        ),
        Wav2Vec2Size(
            name="large",
            config=partial(
                Wav2Vec2Config, **_LARGE, conv_bias=True, feat_quantizer_dropout=0.0, codevector_dim=768, proj_codevector_dim=768
            ),
            normalise=True,  # [w]
            mask=_WAV2VEC2_MASK,
            contrastive=ContrastiveOptions(width=768, penalty=0.0, feature_gradient=1.0, dropout=0.0),  # [w]; entries of 384
            negatives=100,
            temperature=Temperature(2.0, 0.999995, 0.1),  # [W] 4.2, [w] latent_temp
            batching=Batching(128 * 75.0, 320_000),  # [w] max_tokens 1.2 M on 128 GPUs: 2.7 h ([W] 4.2)
            training=replace(_ADAM, steps=600_000, learning_rate=3e-4, warmup_steps=48_000, clip=0.0),  # [W]; [w]: 1 M, 5e-3, 32 k
        ),
        Wav2Vec2Size(
            name="small",  # all of it ours
            config=wav2vec2_small_config,
            normalise=True,
            mask=_WAV2VEC2_MASK,
            contrastive=ContrastiveOptions(entries=64, width=128, penalty=1e-3, feature_gradient=1.0, dropout=0.0),
            negatives=100,
            temperature=Temperature(2.0, 0.9995, 0.5),  # a run that is a hundredth as long
            batching=_SMALL_BATCHING,
            training=_SMALL,
        ),
    )
}


def size_of(kind: str, name: str) -> HubertSize | Wav2Vec2Size:
    """kind: hubert or wav2vec2; name: base, large or small. Raises InputError for others."""
    sizes: dict[str, dict[str, Any]] = {"hubert": HUBERT, "wav2vec2": WAV2VEC2}
    if kind not in sizes or name not in sizes[kind]:
        raise InputError(f"there is no {kind} of size {name}; choose hubert or wav2vec2, and --size {', '.join(HUBERT)}")
    return sizes[kind][name]
