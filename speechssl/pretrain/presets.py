"""The options of a run; the published models and how they were trained; and `small`, which a CPU trains.

Sources: [H] HuBERT, arXiv 2106.07447; [W] wav2vec 2.0, arXiv 2006.11477; [h], [w] the authors' own settings in fairseq,
examples/hubert/config/pretrain and examples/wav2vec/config/pretraining. Where paper and settings differ, a comment names what was
taken. fairseq's `polynomial_decay` of power 1 to 0 is the schedule `linear` here (transformers' `polynomial` ends at 1e-7). It
decays all weights; transformers' Trainer leaves biases and norms out. `large` is trained on Libri-Light in both papers. HuBERT's
codebook is fitted on a tenth of the recordings as in [H] IV-A, but on `units.kmeans.BUDGET` of their frames; [h] keeps all of them
(--budget). A batch has as many seconds as published, in crops of full length, rounded to a multiple of 16 crops, so that processes
and accumulation can divide it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transformers import HubertConfig, Wav2Vec2Config

from speechssl.audio import SAMPLE_RATE
from speechssl.augment.training import TrainingDistortions
from speechssl.config import TrainingOptions
from speechssl.encoders.load import small_config
from speechssl.errors import InputError
from speechssl.pretrain.data import MaskOptions
from speechssl.pretrain.model import PENALTY, AdversaryOptions, ContrastiveOptions, DistilOptions, Temperature


@dataclass(frozen=True)
class HubertOptions:
    """One iteration of HuBERT. `teacher` is "mfcc" or an encoder whose `layer` gives the targets."""

    training: TrainingOptions
    teacher: str = "mfcc"
    layer: int = 0
    smooth: int = 1  # frames the teacher's features are averaged over
    clusters: int = 100  # K
    share: float | None = None  # of the recordings that the codebook is fitted on, drawn by the seed; None: see `draw`
    budget: int | None = None  # frames of them that k-means gets; None: `kmeans.BUDGET`
    starts: int | None = None  # of k-means; None: `kmeans.STARTS`
    codebook: str | None = None  # of the teacher, in the place of one that is fitted here; holds layer, smoothing and K
    start: str | None = None  # an encoder to train further; None: from scratch, as published for both iterations
    mask: MaskOptions = MaskOptions(visible_weight=1.0)
    crops: int = 10  # a batch of full length; one of shorter crops has more
    seconds: float = 4.0  # the longest crop
    save_bf16: bool = False  # round the weights of the finished encoder to bf16: what is fitted on it gets them so
    size: str | None = None  # of a model from scratch; None: small
    recordings: int | None = None  # only so many, drawn by the seed
    reference: bool = True  # read targets off reference readings, where the corpus has them
    projection: int = 128  # width in which labels are compared
    penalty: float = PENALTY  # weight of the CNN's mean square
    gradient_scale: float = 1.0  # of the gradient into the CNN
    precision: str | None = None  # of the teacher whose clusters are the targets: bf16 is faster and changes a label in a hundred
    silence: float | None = None  # share of the crops of which a part is silenced, as short recordings have it
    distort: TrainingDistortions | None = None
    distil: DistilOptions | None = None
    adversary: AdversaryOptions | None = None


@dataclass(frozen=True)
class Wav2Vec2Options:
    """One contrastive run. The defaults are those of the size `small`; `contrastive` None: that of the folder it starts from."""

    training: TrainingOptions
    size: str = "small"  # of a model from scratch
    contrastive: ContrastiveOptions | None = None
    start: str | None = None  # an encoder to train further; None: from scratch
    mask: MaskOptions = MaskOptions(0.65, 10)
    negatives: int = 100
    temperature: Temperature = Temperature()
    crops: int = 10  # as in HubertOptions, and so below
    seconds: float = 4.0
    recordings: int | None = None
    silence: float | None = None
    distort: TrainingDistortions | None = None
    distil: DistilOptions | None = None
    adversary: AdversaryOptions | None = None


Options = HubertOptions | Wav2Vec2Options


@dataclass(frozen=True)
class HubertSize:
    """A HuBERT and its training: masked prediction with cosines over 0.1, unmasked frames weigh nothing ([H] II-B, [h])."""

    config: Callable[[], HubertConfig]
    normalise: bool  # of the input
    iterations: tuple[HubertOptions, ...]  # each starts from scratch ([H] IV-B)


@dataclass(frozen=True)
class Wav2Vec2Size:
    """A wav2vec 2.0 and its training."""

    config: Callable[[], Wav2Vec2Config]
    normalise: bool  # of the input
    options: Wav2Vec2Options
    contrastive: ContrastiveOptions


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
    warmup_steps=32_000,  # 8 % of the steps, of those of each iteration ([H] IV-C, [W] 4.2)
    schedule="linear",
    weight_decay=0.01,
    adam_betas=(0.9, 0.98),
    adam_epsilon=1e-6,
    clip=10.0,
    save_every=25_000,
    log_every=200,
)
_SMALL = TrainingOptions(steps=4_000, learning_rate=1e-3, warmup_steps=300, clip=1.0)  # ours
_CROP = 250_000 / SAMPLE_RATE  # seconds; [h], [w] max_sample_size
_HUBERT_BASE = HubertOptions(  # the first iteration
    replace(_ADAM, steps=250_000, warmup_steps=20_000),  # [H] IV-B, IV-C
    clusters=100,
    mask=MaskOptions(0.80, 10, same_masks=True),  # [H] IV-C, [h]; fairseq's HuBERT always cuts to equally many
    crops=176,  # 32 x 87.5 s: [H] IV-C; [h] max_tokens 1.4 M on 32 GPUs
    seconds=_CROP,
    size="base",
    projection=256,  # [h] final_dim
    penalty=10.0,  # [h] loss_weights
    gradient_scale=0.1,  # [h] feature_grad_mult
)
_HUBERT_SMALL = HubertOptions(
    _SMALL, clusters=100, mask=MaskOptions(0.5, 10, visible_weight=1.0), crops=10, seconds=4.0, size="small", penalty=1e-3
)  # all of it ours, after recipes/minisqa
_WAV2VEC2_BASE = Wav2Vec2Options(
    replace(_ADAM, clip=0.0),  # [W] 4.2; [w] does not clip
    size="base",
    mask=MaskOptions(0.65, 10, same_masks=True),  # [W] 4.2: starts of probability 0.065; [w] require_same_masks
    negatives=100,  # [W] 4.2
    temperature=Temperature(2.0, 0.999995, 0.5),  # [W] 4.2
    crops=352,  # 64 x 87.5 s: [w] max_tokens 1.4 M on 64 GPUs, 1.6 h ([W] 4.2)
    seconds=_CROP,
)

HUBERT = {
    "base": HubertSize(
        config=partial(HubertConfig, **_BASE),
        normalise=False,  # [h]
        iterations=(_HUBERT_BASE, replace(_HUBERT_BASE, training=_ADAM, layer=6, clusters=500)),  # [H] IV-B, IV-C
    ),
    "large": HubertSize(
        config=partial(HubertConfig, **_LARGE, conv_bias=False),  # [h]
        normalise=True,  # [h]
        iterations=(
            replace(
                _HUBERT_BASE,
                training=replace(_ADAM, learning_rate=1.5e-3, clip=1.0),  # [H] IV-C, [h]
                teacher="base",  # its second iteration, layer 9 ([H] IV-B)
                layer=9,
                clusters=500,
                crops=464,  # 128 x 56.25 s: [H] IV-C; [h] max_tokens 0.9 M on 128 GPUs
                size="large",
                projection=768,  # [h] final_dim
                gradient_scale=1.0,  # [h] feature_grad_mult
            ),
        ),
    ),
    "small": HubertSize(
        config=small_config,
        normalise=True,
        iterations=(_HUBERT_SMALL, replace(_HUBERT_SMALL, layer=5)),
    ),
}

WAV2VEC2 = {
    "base": Wav2Vec2Size(
        config=partial(Wav2Vec2Config, **_BASE, feat_quantizer_dropout=0.1, codevector_dim=256, proj_codevector_dim=256),
        normalise=False,  # [W] 4.2: the first convolution's output is normalised instead
        options=_WAV2VEC2_BASE,
        contrastive=ContrastiveOptions(),  # [W] 4.2: G 2, V 320, entries of 128; weights and gradient of [w]
    ),
    "large": Wav2Vec2Size(
        config=partial(
            Wav2Vec2Config, **_LARGE, conv_bias=True, feat_quantizer_dropout=0.0, codevector_dim=768, proj_codevector_dim=768
        ),
        normalise=True,  # [w]
        options=replace(
            _WAV2VEC2_BASE,
            training=replace(_ADAM, steps=600_000, learning_rate=3e-4, warmup_steps=48_000, clip=0.0),  # [W]; [w]: 1 M, 5e-3, 32 k
            size="large",
            temperature=Temperature(2.0, 0.999995, 0.1),  # [W] 4.2, [w] latent_temp
            crops=480,  # 128 x 75 s: [w] max_tokens 1.2 M on 128 GPUs, 2.7 h ([W] 4.2)
            seconds=320_000 / SAMPLE_RATE,  # [w] max_sample_size
        ),
        contrastive=ContrastiveOptions(width=768, penalty=0.0, feature_gradient=1.0, dropout=0.0),  # [w]; entries of 384
    ),
    "small": Wav2Vec2Size(  # all of it ours
        config=wav2vec2_small_config,
        normalise=True,
        options=replace(
            _WAV2VEC2_BASE,
            training=_SMALL,
            size="small",
            temperature=Temperature(2.0, 0.9995, 0.5),  # a run that is a hundredth as long
            crops=10,
            seconds=4.0,
        ),
        contrastive=ContrastiveOptions(entries=64, width=128, penalty=1e-3, feature_gradient=1.0, dropout=0.0),
    ),
}


def hubert_preset(size: str, teacher: str | None = None) -> HubertOptions:
    """HuBERT of a size: the first iteration, or with a teacher the last. Raises InputError for large without a teacher."""
    first = teacher in (None, "mfcc")
    preset = HUBERT[size].iterations[0 if first else -1]
    if first and preset.teacher != "mfcc":
        raise InputError(
            f"HuBERT {size} needs another HuBERT as teacher; give one with --teacher, such as facebook/hubert-base-ls960"
        )
    return replace(preset, teacher=teacher or "mfcc")


def wav2vec2_preset(size: str, start: str | None = None) -> Wav2Vec2Options:
    """wav2vec 2.0 of a size; with a start its heads are those of the start."""
    chosen = WAV2VEC2[size]
    return replace(chosen.options, contrastive=None if start else chosen.contrastive)
