"""This module holds the options of `speechssl pretrain`: HuBERT, wav2vec 2.0, continual
pre-training, Spin and recognisers of phones.

A default of OF_SIZE stands for the value of --size, or of the checkpoint that training continues;
`run.apply_size` fills it in.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

from speechssl.options import (
    CHECKPOINTS,
    DEVICE,
    DISTORT_PROBABILITY,
    DRAWN,
    ENCODERS,
    SNR_OVER,
    SNR_RANGE,
    SOURCE,
    Amount,
    Count,
    Portion,
    Precision,
    Share,
    SnrOver,
    TrainingOptions,
    Weight,
    Whole,
    argument,
    group,
    list_changes,
    option,
    refuse_given,
    refuse_ineffective,
)
from speechssl.units.options import BUDGET, STARTS

Size = Literal["small", "base", "large"]
SIZE = "size of the model; sets the defaults of the training options"
OF_SIZE: Any = None


@dataclass(frozen=True)
class Targets:
    """HuBERT predicts these clusters."""

    layer: Whole = option(OF_SIZE, "layer of the teacher whose features are clustered")
    smooth: Count = option(
        1, "number of frames (odd) over which the teacher's features are averaged"
    )
    clusters: Count = option(OF_SIZE, "number of clusters K")
    share: Portion | None = option(None, f"share of the recordings to fit k-means on, {DRAWN}")
    budget: Count = option(
        BUDGET, "number of frames of these recordings to fit k-means on, drawn at random"
    )
    starts: Count = option(STARTS, "number of k-means runs, of which the best is kept")
    codebook: str | None = option(
        None,
        "use this codebook of the teacher, with its layer, smoothing and K, instead of fitting one",
    )
    teacher_precision: Precision | None = option(
        None,
        "precision of the teacher; bf16 is faster and changes one label in a hundred; "
        "default: fp32, or the codebook's",
    )
    reference: bool = option(
        True, "use the corpus's reference recordings, where there are any, for the targets"
    )
    save_bf16: bool = option(False, "round the weights of the finished encoder to bf16")


@dataclass(frozen=True)
class Prediction:
    """HuBERT predicts the clusters from a projection of its last layer."""

    visible_weight: Weight = option(OF_SIZE, "loss weight of frames that are not masked")
    projection: Count = option(
        OF_SIZE, "width of the projection in which outputs are compared with label embeddings"
    )


@dataclass(frozen=True)
class Contrast:
    """wav2vec 2.0 learns by a contrastive loss. A training that continues a checkpoint keeps the
    quantiser of the checkpoint."""

    codebooks: Count = option(OF_SIZE, "number of codebooks of the quantiser")
    entries: Count = option(OF_SIZE, "number of entries V of each codebook")
    diversity: Weight = option(OF_SIZE, "weight of the diversity loss (V - perplexity) / V")
    negatives: Count = option(100, "number of distractors per masked frame")
    width: int = OF_SIZE  # D, of a quantised vector
    kappa: float = OF_SIZE  # the logits are cosines divided by kappa
    dropout: float = OF_SIZE  # of the features before they are quantised
    # Every update multiplies the temperature of the Gumbel softmax by the decay, down to the floor.
    temperature_start: float = OF_SIZE
    temperature_decay: float = OF_SIZE
    temperature_floor: float = OF_SIZE


@dataclass(frozen=True)
class Masks:
    """Spans of frames are hidden from the encoder."""

    mask_probability: Share = option(
        OF_SIZE, "share of frames that the masked spans would cover if they did not overlap"
    )
    mask_length: Count = option(10, "frames per masked span")
    same_masks: bool | None = option(
        OF_SIZE,
        "reduce the rows of a batch to equally many masked frames, as fairseq does; wav2vec 2.0 "
        "always does",
    )


@dataclass(frozen=True)
class Convolutions:
    """The CNN is trained with a penalty on its output and a smaller gradient."""

    feature_penalty: Weight = option(
        OF_SIZE, "weight of the L2 penalty on the CNN's output (its mean square)"
    )
    gradient_scale: Weight = option(OF_SIZE, "factor on the gradient into the CNN")


@dataclass(frozen=True)
class Batches:
    """A batch has `crops` crops of `crop_seconds`; a batch of shorter crops has more of them."""

    crops: Count = option(
        OF_SIZE,
        "crops per batch, over all processes; those of a size or a checkpoint are divided by "
        "--accumulation",
    )
    crop_seconds: Amount = option(
        OF_SIZE,
        "length of a crop in seconds; recordings between 2 s and this length form batches "
        "of more, shorter crops",
    )


@dataclass(frozen=True)
class Distortion:
    """The input may be distorted; the targets are those of the clean signal."""

    distort: str | None = option(
        None,
        "kinds of distortion, such as m+g+r (see `speechssl pretrain continue --help`); "
        "default: none",
    )
    noise: tuple[str, ...] = option(
        (),
        "folders of recordings: musan, voices, rir, or a NAME in --distort",
        metavar="NAME=FOLDER",
    )
    snr_range: tuple[float, float] = option(
        SNR_RANGE, "range of the SNR in dB, drawn uniformly", metavar=("LOW", "HIGH")
    )
    snr_range_end: tuple[float, float] | None = option(
        None,
        "range of the SNR at the end of training; default: --snr-range",
        metavar=("LOW", "HIGH"),
    )
    snr_over: SnrOver = option("active", SNR_OVER)
    distorted: tuple[Share, ...] = option(
        (DISTORT_PROBABILITY,),
        "share of the crops to distort; two values: at the beginning and the end of training",
        least=1,
    )
    silence: Share = option(
        0.0,
        "share of the crops in which a part of the speech is silenced, leaving only noise, as "
        "before and after a short recording",
    )
    double: Share = option(0.0, "share of the noisy crops that also get r, p or b")
    noise_cache: Path | None = option(
        None, "folder to cache decoded and generated noise in; default: noise/ beside OUT"
    )


@dataclass(frozen=True)
class Distillation:
    """The clean teacher is a frozen copy of the encoder that training starts from."""

    distil: Weight = option(
        0.0,
        "weight of the distillation loss: distance to the layers of the frozen start checkpoint "
        "on the clean signal",
    )


@dataclass(frozen=True)
class Adversary:
    """The encoder learns to mislead a domain classifier with one hidden layer."""

    domain_adversary: Literal["binary", "multi"] | None = option(
        None,
        "domain-adversarial training: the domain is clean or distorted, or (multi) the kind of "
        "distortion",
    )
    domain_adversary_weight: Weight = option(1.0, "largest lambda of the domain classifier")
    domain_adversary_mode: Literal["reversal", "alternating"] = option(
        "reversal", "gradient reversal, or alternating updates of classifier and encoder"
    )
    domain_adversary_schedule: Literal["ganin", "constant"] = option("ganin", "schedule of lambda")
    domain_adversary_width: int = 256  # of the hidden layer


NEEDED = {  # an option -> options that mean nothing without it
    "distort": (
        *("noise", "noise_cache", "snr_range", "snr_range_end", "snr_over", "distorted", "double"),
        *("distil", "domain_adversary"),
    ),
    "domain_adversary": (
        "domain_adversary_weight",
        "domain_adversary_mode",
        "domain_adversary_schedule",
    ),
    "start": ("distil",),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Every training of encoders has these options."""

    source: Path = argument(f"{SOURCE}; from a prepared corpus its training passages are used")
    out: Path = argument(
        "folder for encoder/, the codebook of its targets or of its own units, and checkpoints/; "
        "decoded audio, targets and noise are cached beside it, also for other runs"
    )
    recordings: Count | None = option(None, "use only N recordings, drawn at random by --seed")
    device: str = option("auto", DEVICE)


@dataclass(frozen=True, kw_only=True)
class Pretraining(Run):
    """HuBERT and wav2vec 2.0 share these options."""

    masks: Masks = group(Masks(), "masks and batches")
    convolutions: Convolutions = group(Convolutions(), "masks and batches")
    batches: Batches = group(Batches(), "masks and batches")
    distortion: Distortion = group(Distortion(), "distorted speech")
    distillation: Distillation = group(Distillation(), "distorted speech")
    adversary: Adversary = group(Adversary(), "distorted speech")

    def __post_init__(self) -> None:
        refuse_ineffective(list_changes(self), NEEDED)


def _check_targets(targets: Targets, teacher: str | None) -> None:
    """Raise InputError for options that a given codebook determines, and for options of an encoder
    where MFCCs are clustered."""
    given = list_changes(targets)
    if targets.codebook:
        refuse_given(
            ("layer", "smooth", "clusters", "share", "budget", "starts"), given, "with a codebook"
        )
    if teacher == "mfcc":
        refuse_given(("layer", "smooth", "teacher_precision"), given, "with MFCCs")


# --size sets these; the constants of AdamW are the defaults of `TrainingOptions` for every size
SIZED = TrainingOptions(
    steps=OF_SIZE,
    learning_rate=OF_SIZE,
    warmup_steps=OF_SIZE,
    clip=OF_SIZE,
    save_every=OF_SIZE,
    log_every=OF_SIZE,
)


@dataclass(frozen=True, kw_only=True)
class Hubert(Pretraining):
    """HuBERT: predict the cluster of every masked frame

    One run is one iteration: the first predicts clusters of MFCCs, the next (--teacher) clusters of
    a layer of the previous iteration. --size base and large are the published models with the
    published settings, small is for training on a CPU; options that are not given have the defaults
    of --size. large needs a teacher. With --distort the input is distorted, and the targets are the
    clusters of the clean signal. OUT/encoder is an ordinary Hugging Face folder. A killed run
    resumes with the same command.

      speechssl pretrain hubert recordings/ exp/hubert-1
      speechssl pretrain hubert recordings/ exp/hubert-2 --teacher exp/hubert-1/encoder \\
        --layer 4 --smooth 3
      torchrun --nproc-per-node 8 -m -- speechssl pretrain hubert librispeech.tsv exp/base-1 \\
        --size base --accumulation 2
    """

    size: Size = option("small", SIZE)
    teacher: str = option(
        "mfcc",
        "model whose clusters are the targets: mfcc, or the HuBERT of the previous "
        f"iteration ({ENCODERS})",
    )
    start: str | None = option(
        None, f"HuBERT to start from: {CHECKPOINTS}; default: random weights"
    )
    targets: Targets = group(Targets(), "targets")
    prediction: Prediction = group(Prediction(), "targets")
    training: TrainingOptions = group(SIZED, "training")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_targets(self.targets, self.teacher)


@dataclass(frozen=True, kw_only=True)
class Wav2Vec2(Pretraining):
    """wav2vec 2.0: identify the quantised masked frame among distractors of the same utterance

    --size base and large are the published models with the published settings, small is for
    training on a CPU; options that are not given have the defaults of --size. With --distort the
    input is distorted, and the targets are the quantised clean signal. OUT/encoder is an ordinary
    Hugging Face folder (Wav2Vec2ForPreTraining). A killed run resumes with the same command.

      speechssl pretrain wav2vec2 recordings/ exp/wav2vec2
      speechssl pretrain wav2vec2 recordings/ exp/more --start facebook/wav2vec2-base --steps 1000
    """

    size: Size = option("small", SIZE)
    start: str | None = option(
        None,
        f"wav2vec 2.0 to start from, with its quantiser and projections: {CHECKPOINTS}; "
        "default: random weights",
    )
    contrast: Contrast = group(Contrast(), "contrastive loss")
    training: TrainingOptions = group(SIZED, "training")


@dataclass(frozen=True, kw_only=True)
class Continue(Pretraining):
    """continue the pre-training of a HuBERT or wav2vec 2.0 on distorted speech, for noise
    robustness (arXiv 2203.16104)

    The input is distorted, and the targets are those of the clean signal. A HuBERT predicts
    clusters of its own last layer, or of the model and layer that --teacher, --layer or --codebook
    name. A wav2vec 2.0 identifies the quantised clean frames. Without --distort training continues
    on the recordings as they are. Options of the other kind of encoder are refused. A killed run
    resumes with the same command. --domain-adversary is domain-adversarial continual pre-training,
    a mode of ours: the paper's domain-adversarial training (DAT) is that of a task's model,
    `speechssl superb run --domain-adversary`.

    DISTORT lists kinds of distortion, with shares if they differ (m:0.3+g:0.4+r:0.3): m, noise of
    MUSAN (--noise musan=FOLDER) or of a generated stand-in; g, Gaussian noise; r, rooms, simulated
    or of --noise rir=FOLDER; p, pitch; v, another voice (formants, pitch, its range, an equaliser;
    needs speechssl[voices]); b, a missing frequency band; c, codecs; s, babble of
    --noise voices=FOLDER; or a NAME that --noise NAME=FOLDER gives recordings to.

    Defaults: --layer the last, --clusters 100, --visible-weight 1, --projection 128 (of base width
    256, of large 768), --mask-probability 0.65, --no-same-masks, --feature-penalty 10,
    --gradient-scale 1 (wav2vec 2.0: 0.1), 10 crops of 4 s; quantiser and negatives are the
    checkpoint's.

      speechssl pretrain continue recordings/ exp/robust --start facebook/hubert-base-ls960 \\
        --layer 6 --clusters 500 --distort m+g+r
      speechssl pretrain continue recordings/ exp/robust --start people-en/encoder \\
        --codebook people-en/units.safetensors \\
        --distort m+g+r --distil 5 --domain-adversary multi
      speechssl pretrain continue recordings/ exp/robust-w2v2 --start facebook/wav2vec2-base \\
        --distort m+g+bus --noise bus=noise/bus
    """

    start: str = option(MISSING, f"HuBERT or wav2vec 2.0 to start from: {CHECKPOINTS}")
    teacher: str | None = option(
        None,
        "encoder whose clusters are the targets of a HuBERT, or mfcc; default: the "
        "checkpoint of --start",
    )
    targets: Targets = group(Targets(), "targets of a HuBERT")
    prediction: Prediction = group(Prediction(), "targets of a HuBERT")
    contrast: Contrast = group(Contrast(), "contrastive loss of a wav2vec 2.0")
    training: TrainingOptions = group(TrainingOptions(steps=1500, learning_rate=3e-4), "training")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_targets(self.targets, self.teacher)


@dataclass(frozen=True)
class Codes:
    """Spin learns this codebook."""

    layer: Count | None = option(None, "layer that is clustered; default: the last")
    codes: Count = option(2048, "K, entries of the codebook")
    projection: Count = option(
        256, "width of the space in which frames are compared with the codebook"
    )
    temperature: Amount = option(0.1, "temperature of the softmax over the codes")
    # of Sinkhorn's algorithm: smoothness of the balanced codes. e^(1 / epsilon) is beyond float32
    # from 0.0113 down, and training NaN.
    epsilon: float = 0.02
    iterations: int = 3


@dataclass(frozen=True)
class PseudoLabels:
    """Pseudo-labels are clusters of the clean signal that both versions predict."""

    teacher: str | None = option(
        None, f"encoder whose clusters are predicted as well: {ENCODERS}; default: no pseudo-labels"
    )
    teacher_layer: Whole | None = option(None, "layer of the teacher; default: the last")
    clusters: Count = option(200, "clusters that are fitted to that layer")
    codebook: str | None = option(
        None, "codebook of the teacher, such as Spin's own, in the place of one that is fitted"
    )
    label_weight: Weight = option(5.0, "weight of their loss")
    label_loss: Literal["cross-entropy", "ctc"] = option(
        "cross-entropy",
        "cross-entropy: every frame has its label; ctc: after the updates of --warmup-steps only "
        "the order of the labels counts, not where each begins, which suits reference readings, "
        "whose frames are matched with errors",
    )
    reference: bool = option(
        False,
        "read them off reference readings (train/reference.jsonl of a corpus, "
        "NAME.reference.jsonl beside a manifest NAME.txt)",
    )


@dataclass(frozen=True, kw_only=True)
class Spin(Run):
    """Spin and R-Spin: give the frames of an utterance the same codes when another speaker says it,
    or when it is noisy

    Spin (arXiv 2305.11072) trains the last layers of any HuBERT or wav2vec 2.0 with a codebook,
    without text or labels: each version predicts the balanced codes of the other. The speaker is
    perturbed in formants, pitch and its range, and by an equaliser (needs speechssl[voices]).
    OUT/encoder is an ordinary Hugging Face folder. OUT/units.safetensors, the learned codebook, and
    with pseudo-labels OUT/labels.safetensors, the linear head that predicts these from distorted
    speech, are codebooks for `units extract`. The defaults are those published for HuBERT base; the
    last example is for a CPU (minutes). A killed run resumes with the same command.

    R-Spin (arXiv 2311.09117, second example) adds noise to both versions and pseudo-labels, and
    trains the whole encoder.

      speechssl pretrain spin recordings/ exp/spin --start facebook/hubert-base-ls960
      speechssl pretrain spin recordings/ exp/r-spin --start exp/spin/encoder \\
        --trained-layers 0 --distort m+g --steps 10000 --warmup-steps 4000 --crops 24 \\
        --teacher exp/spin/encoder --codebook exp/spin/units.safetensors
      torchrun --nproc-per-node 2 -m -- speechssl pretrain spin librispeech.tsv exp/spin \\
        --start facebook/hubert-base-ls960
      speechssl pretrain spin recordings/ exp/small --start people-en/encoder --codes 128 \\
        --crops 10 --crop-seconds 4 --learning-rate 6e-4 --warmup-steps 60 --steps 350
    """

    start: str = option(MISSING, f"HuBERT or wav2vec 2.0 to start from: {CHECKPOINTS}")
    trained_layers: Whole = option(
        2, "layers that are trained, up to the one that is clustered; 0: the whole encoder"
    )
    learned: Codes = group(Codes(), "codebook")
    # 256 s a batch of crops of 272,000 samples, rounded to what processes can divide
    batches: Batches = group(Batches(crops=16, crop_seconds=17.0), "versions")
    distortion: Distortion = group(
        Distortion(snr_range=(-10.0, 10.0), distorted=(1.0,)),
        "versions",
        without=("snr_range_end", "double"),
    )
    labels: PseudoLabels = group(PseudoLabels(), "pseudo-labels")
    training: TrainingOptions = group(
        TrainingOptions(
            steps=5000, learning_rate=1e-4, warmup_steps=2500, weight_decay=1e-6, clip=10.0
        ),
        "training",
    )

    def __post_init__(self) -> None:
        label_options = list_changes(self.labels)
        refuse_ineffective(label_options, {"teacher": vars(self.labels)})
        if self.labels.codebook:
            refuse_given(("clusters", "teacher_layer"), label_options, "with a codebook")
        ineffective = ("noise", "noise_cache", "snr_range", "snr_over", "distorted")
        refuse_ineffective(list_changes(self), {"distort": ineffective})


@dataclass(frozen=True, kw_only=True)
class Phones(Run):
    """let a recogniser of phones hear in distorted speech what it hears in clean speech

    hama, which was trained on recordings of people (needs speechssl[hama]), teaches itself, as
    noisy students do (arXiv 1911.04252, 2005.09629): it recognises the phones of the clean crop,
    and a copy of it learns to give the same phones to a distorted version. No texts are used; the
    training of hama itself had phone labels.
    OUT/encoder is an encoder, OUT/units.safetensors a codebook of phones with `<wb>` between words
    for `units extract`. A killed run resumes with the same command.

      speechssl pretrain phones recordings/ exp/phones
      speechssl units extract recordings/ exp/phones/encoder exp/phones/units.safetensors exp/units
    """

    start: str = option("hama", "hama, or the encoder of such a training")
    batches: Batches = group(Batches(crops=16, crop_seconds=6.0), "crops")
    distortion: Distortion = group(
        Distortion(distort="m+g+r+v+b", snr_range=(-5.0, 20.0), distorted=(0.8,)),
        "versions",
        without=("snr_range_end",),
    )
    training: TrainingOptions = group(
        TrainingOptions(steps=1500, learning_rate=5e-4, bf16=False, save_every=100),
        "training",
        without=("bf16",),
    )
