"""`speechssl pretrain`: the options of HuBERT, of wav2vec 2.0, and of continual pre-training on
distorted speech.

A value that is not given (None) is that of --size, or of the checkpoint that training continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from speechssl.errors import InputError
from speechssl.options import (
    CHECKPOINTS,
    DEVICE,
    DRAWN,
    ENCODERS,
    SNR_OVER,
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
    flags,
    flat,
    given_of,
    group,
    noise_folders,
    option,
    refuse_ineffective,
    unset,
    use_device,
)

if TYPE_CHECKING:
    from speechssl.pretrain.presets import Options

BESIDE = "decoded audio, targets and noise are cached beside it, also for other runs"
Size = Literal["small", "base", "large"]
SIZE = "size of the model; sets the defaults of the training options"
DOMAINS = "the domain is clean or distorted, or (multi) the kind of distortion"
MODE = "gradient reversal, or alternating updates of classifier and encoder; default: reversal"
Labels = Literal["binary", "multi"]
Mode = Literal["reversal", "alternating"]
Schedule = Literal["ganin", "constant"]


@dataclass(frozen=True)
class Targets:
    """The targets of HuBERT."""

    layer: Whole | None = option(None, "layer of the teacher whose features are clustered")
    smooth: Count | None = option(
        None, "number of frames (odd) over which the teacher's features are averaged; default: 1"
    )
    clusters: Count | None = option(None, "number of clusters K")
    share: Portion | None = option(None, f"share of the recordings to fit k-means on, {DRAWN}")
    budget: Count | None = option(
        None,
        "number of frames of these recordings to fit k-means on, drawn at random; default: 300000",
    )
    starts: Count | None = option(
        None, "number of k-means runs, of which the best is kept; default: 20"
    )
    codebook: str | None = option(
        None,
        "use this codebook of the teacher, with its layer, smoothing and K, instead of fitting one",
    )
    precision: Precision | None = option(
        None, "precision of the teacher; bf16 is faster and changes one label in a hundred; "
              "default: fp32, or the codebook's",
        name="teacher_precision",
    )  # fmt: skip
    reference: bool = option(True, "do not use the corpus's reference recordings for the targets")
    visible_weight: Weight | None = option(None, "loss weight of frames that are not masked")
    projection: Count | None = option(
        None, "width of the projection in which outputs are compared with label embeddings"
    )
    save_bf16: bool = option(False, "round the weights of the finished encoder to bf16")


@dataclass(frozen=True)
class Contrast:
    """The contrastive loss of wav2vec 2.0. What is not given is that of --size, with --start that
    of the checkpoint."""

    codebooks: Count | None = option(None, "number of codebooks of the quantiser")
    entries: Count | None = option(None, "number of entries V of each codebook")
    diversity: Weight | None = option(None, "weight of the diversity loss (V - perplexity) / V")
    negatives: Count | None = option(
        None, "number of distractors per masked frame; default: 100, as published"
    )


@dataclass(frozen=True)
class Crops:
    """Masks and batches."""

    mask_probability: Share | None = option(
        None, "share of frames that the masked spans would cover if they did not overlap"
    )
    mask_length: Count = option(10, "frames per masked span")
    same_masks: bool | None = option(
        None, "reduce the rows of a batch to equally many masked frames, as fairseq does"
    )
    feature_penalty: Weight | None = option(
        None, "weight of the L2 penalty on the CNN's output (its mean square)"
    )
    gradient_scale: Weight | None = option(None, "factor on the gradient into the CNN")
    crops: Count | None = option(
        None, "crops per batch, over all processes; default: crops per update / --accumulation"
    )
    crop_seconds: Amount | None = option(
        None,
        "length of a crop in seconds; recordings between 2 s and this length form batches "
        "of more, shorter crops",
    )


@dataclass(frozen=True)
class Distortion:
    """Distorted input, the clean teacher, and the domain classifier."""

    distort: str | None = option(
        None,
        "kinds of distortion, such as m+g+r (see `speechssl pretrain continue --help`); "
        "default: none",
    )
    noise: tuple[str, ...] | None = option(
        None,
        "folders of recordings: musan, voices, rir, or a NAME in --distort",
        metavar="NAME=FOLDER",
    )
    snr_range: tuple[float, float] | None = option(
        None, "range of the SNR in dB, drawn uniformly; default: 10 19", metavar=("LOW", "HIGH")
    )
    snr_range_end: tuple[float, float] | None = option(
        None,
        "range of the SNR at the end of training; default: --snr-range",
        metavar=("LOW", "HIGH"),
    )
    snr_over: SnrOver | None = option(None, f"{SNR_OVER}; default: active")
    distorted: tuple[Share, ...] | None = option(
        None,
        "share of the crops to distort; two values: at the beginning and the end of "
        "training; default: 0.75",
        least=1,
    )
    silence: Share | None = option(
        None,
        "share of the crops in which a part of the speech is silenced, leaving only noise; "
        "default: 0",
    )
    double: Share | None = option(
        None, "share of the noisy crops that also get r, p or b; default: 0"
    )
    noise_cache: Path | None = option(
        None, "folder to cache decoded and generated noise in; default: noise/ beside OUT"
    )
    distil: Weight | None = option(
        None,
        "weight of the distillation loss: distance to the layers of the frozen start checkpoint "
        "on the clean signal; default: 0",
    )
    distil_layers: tuple[Whole, ...] | None = option(
        None, "layers to distil; default: all", least=1
    )
    domain_adversary: Labels | None = option(
        None, f"domain-adversarial continual pre-training, a mode of ours: {DOMAINS}"
    )
    domain_adversary_weight: Weight | None = option(
        None, "largest lambda of the domain classifier; default: 1"
    )
    domain_adversary_layers: tuple[Whole, ...] | None = option(
        None, "input layers of the classifier; default: the last", least=1
    )
    domain_adversary_mode: Mode | None = option(None, MODE)
    domain_adversary_schedule: Schedule | None = option(None, "schedule of lambda; default: ganin")


NAMES = {  # of options of the command line, where an option of a run is called otherwise
    "mask_probability": "probability",
    "mask_length": "length",
    "crop_seconds": "seconds",
    "feature_penalty": "penalty",
}
HUBERT_ONLY = (
    *(
        "teacher",
        "layer",
        "smooth",
        "clusters",
        "share",
        "budget",
        "starts",
        "codebook",
        "precision",
        "reference",
    ),
    *("visible_weight", "projection", "save_bf16"),
)
WAV2VEC2_ONLY = ("codebooks", "entries", "diversity", "negatives")
ADVERSARY = tuple(f"domain_adversary_{part}" for part in ("layers", "weight", "mode", "schedule"))
NEEDED = {  # an option -> those that mean nothing without it
    "distort": tuple(
        (
            "noise snr_range snr_range_end snr_over distorted double noise_cache distil "
            "domain_adversary"
        ).split()
    ),
    "start": ("distil",),
    "distil": ("distil_layers",),
    "domain_adversary": ADVERSARY,
}


def with_options(preset: Options, given: Mapping[str, Any]) -> Options:
    """A preset in which options of the command line replace its own. Raises InputError for those
    that would change nothing."""
    from speechssl.encoders.load import load_checkpoint
    from speechssl.pretrain.model import ContrastiveOptions, heads_of
    from speechssl.pretrain.presets import HubertOptions, Wav2Vec2Options

    contrastive = isinstance(preset, Wav2Vec2Options)
    if stray := given_of(HUBERT_ONLY if contrastive else WAV2VEC2_ONLY, given):
        kind, what = (
            "wav2vec 2.0" if contrastive else "HuBERT",
            given.get("start") or "what is trained",
        )
        raise InputError(
            f"{flags(stray)} would have no effect, since {what} is a {kind}; leave "
            "out options of the other kind"
        )
    refuse_ineffective(given, NEEDED)
    # a codebook says what it was fitted on and is not fitted again; MFCCs have no layers
    if isinstance(preset, HubertOptions):
        codebook, teacher = given.get("codebook"), given.get("teacher", preset.teacher)
        if codebook and (
            stray := given_of(("layer", "smooth", "clusters", "share", "budget", "starts"), given)
        ):
            raise InputError(
                f"{flags(stray)} would have no effect, since the codebook "
                f"{codebook} determines it; leave it out"
            )
        if teacher == "mfcc" and (stray := given_of(("layer", "smooth", "precision"), given)):
            raise InputError(
                f"{flags(stray)} would have no effect with MFCCs; give an encoder "
                "with --teacher, or leave it out"
            )
    values = {NAMES.get(name, name): value for name, value in given.items()}

    def replaced(options: Any) -> Any:
        """Distortions and auxiliary losses are set by the caller."""
        names = {f.name for f in fields(options)} & values.keys() - {"distort", "distil"}
        return replace(options, **{name: values[name] for name in names})

    options: Options = replaced(preset)
    options = replace(options, training=replaced(options.training), mask=replaced(options.mask))
    if isinstance(options, Wav2Vec2Options):
        if "gradient_scale" in values:
            values["feature_gradient"] = values["gradient_scale"]
        if {f.name for f in fields(ContrastiveOptions)} & values.keys():
            head_options = options.contrastive or ContrastiveOptions()
            if options.start and not options.contrastive:
                head_options = heads_of(options.start, load_checkpoint(options.start))[1]
            options = replace(options, contrastive=replaced(head_options))
    if "crops" not in values:
        options = replace(options, crops=max(options.crops // options.training.accumulation, 1))
    return options


def adversary_options(values: dict[str, Any]) -> Any:
    """An `AdversaryOptions` of the options --domain-adversary, ... that were given."""
    from speechssl.pretrain.model import AdversaryOptions

    parts = {
        name.removeprefix("domain_adversary_"): value
        for name in ADVERSARY
        if (value := values.get(name)) is not None
    }
    return AdversaryOptions(values["domain_adversary"], **parts)


def distortions_of(values: Mapping[str, Any], out: Path) -> Any:
    """The `TrainingDistortions` of the options --distort, ... of a run in `out`; None without
    --distort."""
    from speechssl.augment.training import parse_distortions

    if values["distort"] is None:
        return None
    option_of = {
        "snr": "snr_range",
        "snr_end": "snr_range_end",
        "snr_over": "snr_over",
        "double": "double",
    }
    settings = {
        name: values[option] for name, option in option_of.items() if values.get(option) is not None
    }
    if (shares := values["distorted"]) is not None:
        settings["probability"] = (
            (shares[0], shares[-1]) if isinstance(shares, (list, tuple)) else (shares, shares)
        )
    cache, noise = (
        values["noise_cache"] or out.parent / "noise",
        noise_folders(values["noise"] or ()),
    )
    return parse_distortions(values["distort"], noise, seed=values["seed"], cache=cache, **settings)


@dataclass(frozen=True, kw_only=True)
class _Run:
    source: Path = argument(f"{SOURCE}; from a prepared corpus its training passages are used")
    out: Path = argument(
        f"folder for encoder/, the codebook of a HuBERT's targets, and checkpoints/; {BESIDE}"
    )
    recordings: Count | None = option(None, "use only N recordings, drawn at random by --seed")
    device: str = option("auto", DEVICE)

    def _pretrain(self, preset: Any) -> None:
        """preset: the settings of the paper or of the checkpoint; the options that were given
        replace them."""
        from speechssl.pretrain.model import DistilOptions
        from speechssl.pretrain.run import pretrain

        values = flat(self)
        chosen = with_options(
            preset, {name: value for name, value in values.items() if value is not None}
        )
        distil = (
            DistilOptions(values["distil"], values["distil_layers"] or ())
            if values["distil"]
            else None
        )
        adversary = adversary_options(values) if values["domain_adversary"] else None
        if len(values["distorted"] or ()) > 2:
            raise InputError(
                "--distorted takes one share, or two for the beginning and the end "
                "of training; give no more"
            )
        chosen = replace(
            chosen, distort=distortions_of(values, self.out), distil=distil, adversary=adversary
        )
        print(f"{self.out / 'encoder'}: {pretrain(self.source, self.out, chosen).hash}")


OF_SIZE = unset(
    TrainingOptions,
    *(
        "steps",
        "learning_rate",
        "warmup_steps",
        "adam_betas",
        "adam_epsilon",
        "weight_decay",
        "clip",
        "save_every",
        "log_every",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Hubert(_Run):
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
    teacher: str | None = option(
        None,
        "model whose clusters are the targets: mfcc, or the HuBERT of the previous "
        f"iteration ({ENCODERS}); default: mfcc",
    )
    start: str | None = option(
        None, f"HuBERT to start from: {CHECKPOINTS}; default: random weights"
    )
    targets: Targets = group(Targets(), "targets")
    crops: Crops = group(Crops(), "masks and batches")
    distortion: Distortion = group(Distortion(), "distorted speech")
    training: Any = group(OF_SIZE, "training")

    def run(self) -> None:
        from speechssl.pretrain.presets import hubert_preset

        use_device(self.device)
        self._pretrain(hubert_preset(self.size, self.teacher))


@dataclass(frozen=True, kw_only=True)
class Wav2Vec2(_Run):
    """wav2vec 2.0: identify the quantised masked frame among distractors of the same utterance

    --size base and large are the published models with the published settings, small is for training on a CPU; options that are
    not given have the defaults of --size. With --distort the input is distorted, and the targets
    are the quantised clean signal. OUT/encoder is an ordinary Hugging Face folder
    (Wav2Vec2ForPreTraining). A killed run resumes with the same command.

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
    crops: Crops = group(Crops(), "masks and batches")
    distortion: Distortion = group(Distortion(), "distorted speech")
    training: Any = group(OF_SIZE, "training")

    def run(self) -> None:
        from speechssl.pretrain.presets import wav2vec2_preset

        use_device(self.device)
        self._pretrain(wav2vec2_preset(self.size, self.start))


CONTINUED = TrainingOptions(1500, 3e-4, 100)


def continued_preset(start: str, teacher: str | None = None) -> Options:
    """Of a checkpoint that is trained further, with the loss that it was trained with. Visible
    frames count for a HuBERT: see `pretrain.model`.

    teacher: whose last layer gives a HuBERT's targets; None: the start. Raises InputError for a
    start of another kind.
    """
    from transformers import HubertModel, Wav2Vec2Model

    from speechssl.encoders.load import load_checkpoint, load_encoder
    from speechssl.pretrain.data import MaskOptions
    from speechssl.pretrain.presets import HUBERT, HubertOptions, Wav2Vec2Options

    model: Any = load_checkpoint(start).model
    if isinstance(model, Wav2Vec2Model):
        return Wav2Vec2Options(CONTINUED)
    if not isinstance(model, HubertModel):
        raise InputError(
            f"{start} is a {model.config.model_type} encoder; start this training "
            "from a HuBERT or a wav2vec 2.0"
        )
    layer = (
        model.config.num_hidden_layers
        if teacher is None
        else 0
        if teacher == "mfcc"
        else load_encoder(teacher).layers
    )
    mask = MaskOptions(0.65, 10, visible_weight=1.0)
    nearest = min(
        HUBERT.values(), key=lambda size: abs(size.config().hidden_size - model.config.hidden_size)
    )
    projection = nearest.iterations[0].projection
    return HubertOptions(
        CONTINUED, teacher=teacher or start, layer=layer, mask=mask, projection=projection
    )


@dataclass(frozen=True, kw_only=True)
class Continue(_Run):
    """continue the pre-training of a HuBERT or wav2vec 2.0 on distorted speech, for noise
    robustness (arXiv 2203.16104)

    The input is distorted, and the targets are those of the clean signal. A HuBERT predicts
    clusters of its own last layer, or of the model and layer that --teacher, --layer or --codebook
    name. A wav2vec 2.0 identifies the quantised clean frames. Without
    --distort training continues on the recordings as they are. Options of the other kind of encoder are refused. A killed run
    resumes with the same command. --domain-adversary is domain-adversarial continual pre-training,
    a mode of ours: the paper's domain-adversarial training (DAT) is that of a task's model,
    `speechssl superb run --domain-adversary`.

    DISTORT lists kinds of distortion, with shares if they differ (m:0.3+g:0.4+r:0.3): m, noise of
    MUSAN (--noise
    musan=FOLDER) or of a generated stand-in; g, Gaussian noise; r, rooms, simulated or of --noise
    rir=FOLDER; p, pitch; v, another voice (formants, pitch, its range, an equaliser; needs
    speechssl[voices]); b, a missing frequency band; c, codecs; s, babble of
    --noise voices=FOLDER; or a NAME that --noise NAME=FOLDER gives recordings to.

    Defaults: --layer the last, --clusters 100, --visible-weight 1, --projection 128 (of base width
    256, of large 768),
    --mask-probability 0.65, --no-same-masks, --feature-penalty 10, --gradient-scale 1 (wav2vec 2.0: 0.1), 10 crops of 4 s;
    quantiser and negatives are the checkpoint's.

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
    contrast: Contrast = group(Contrast(), "contrastive loss of a wav2vec 2.0")
    crops: Crops = group(Crops(), "masks and batches")
    distortion: Distortion = group(Distortion(), "distorted speech")
    training: TrainingOptions = group(CONTINUED, "training")

    def run(self) -> None:
        use_device(self.device)
        self._pretrain(continued_preset(self.start, self.teacher))


@dataclass(frozen=True)
class Codes:
    """The learned codebook."""

    layer: Count | None = option(None, "layer that is clustered; default: the last")
    codes: Count = option(2048, "K, entries of the codebook")
    projection: Count = option(
        256, "width of the space in which frames are compared with the codebook"
    )
    temperature: Amount = option(0.1, "of the softmax over the codes")
    epsilon: Amount = option(0.02, "smoothness of the balanced codes (Sinkhorn's algorithm)")
    iterations: Count = option(3, "iterations of Sinkhorn's algorithm")


@dataclass(frozen=True)
class Versions:
    """The two versions of a crop."""

    crops: Count = option(16, "crops a batch, of all processes together")
    seconds: Amount = option(17.0, "longest crop, in seconds", name="crop_seconds")
    distort: str | None = option(
        None, "kinds of noise, such as m+g, see `speechssl pretrain continue --help`; default: none"
    )
    noise: tuple[str, ...] | None = option(
        None, "recordings of noise: musan, rir, or a NAME in --distort", metavar="NAME=FOLDER"
    )
    snr_range: tuple[float, float] = option(
        (-10.0, 10.0), "range of the SNR in dB, drawn uniformly", metavar=("LOW", "HIGH")
    )
    snr_over: SnrOver = option("active", SNR_OVER)
    distorted: Share = option(
        1.0, "share of the crops that is distorted, in each version independently"
    )
    silence: Share = option(
        0.0,
        "share of the crops in which part of the speech is silenced, as before and after a "
        "short recording",
    )
    noise_cache: Path | None = option(
        None, "folder that keeps decoded and generated noise; default: noise/ beside OUT"
    )


LabelLoss = Literal["cross-entropy", "ctc"]


@dataclass(frozen=True)
class PseudoLabels:
    """Pseudo-labels of the clean signal."""

    teacher: str | None = option(
        None, f"encoder whose clusters are predicted as well: {ENCODERS}; default: no pseudo-labels"
    )
    teacher_layer: Whole | None = option(None, "layer of the teacher; default: the last")
    clusters: Count = option(200, "clusters that are fitted to that layer")
    codebook: str | None = option(
        None, "codebook of the teacher, such as Spin's own, in the place of one that is fitted"
    )
    label_weight: Weight = option(5.0, "weight of their loss")
    label_loss: LabelLoss = option(
        "cross-entropy",
        "cross-entropy: every frame has its label; ctc: after the updates of --warmup-steps only "
        "the order of the labels counts, "
        "not where each begins, which suits reference readings, whose frames are matched with "
        "errors",
    )
    reference: bool = option(
        False,
        "read them off reference readings (train/reference.jsonl of a corpus, "
        "NAME.reference.jsonl beside a manifest NAME.txt)",
    )


@dataclass(frozen=True, kw_only=True)
class Spin:
    """Spin and R-Spin: give frames of an utterance and of the same by another speaker, or in noise,
    the same code

    Spin (arXiv 2305.11072) trains the last layers of any HuBERT or wav2vec 2.0 with a codebook,
    without text or labels: each version predicts the balanced codes of the other. The speaker is
    perturbed in formants, pitch and its range, and by an
    equaliser (needs speechssl[voices]). OUT/encoder is an ordinary Hugging Face folder.
    OUT/units.safetensors, the learned codebook, and with pseudo-labels OUT/labels.safetensors, the
    linear head that predicts these from distorted speech, are codebooks for `units extract`. The
    defaults are those published for HuBERT base; the last example is for a CPU (minutes). A killed
    run resumes with the same command.

    R-Spin (arXiv 2311.09117, second example) adds noise to both versions and pseudo-labels, and
    trains the whole encoder.

      speechssl pretrain spin recordings/ exp/spin --start facebook/hubert-base-ls960
      speechssl pretrain spin recordings/ exp/r-spin --start exp/spin/encoder \\
        --trained-layers 0 --distort m+g --steps 10000 \\
        --warmup-steps 4000 --crops 24 --teacher exp/spin/encoder --codebook exp/spin/units.safetensors
      torchrun --nproc-per-node 2 -m -- speechssl pretrain spin librispeech.tsv exp/spin \\
        --start facebook/hubert-base-ls960
      speechssl pretrain spin recordings/ exp/small --start people-en/encoder --codes 128 \\
        --crops 10 --crop-seconds 4 \\
        --learning-rate 6e-4 --warmup-steps 60 --steps 350
    """

    source: Path = argument(f"{SOURCE}; of a prepared corpus its training passages")
    out: Path = argument(
        f"folder for encoder/, units.safetensors, labels.safetensors and checkpoints/; {BESIDE}"
    )
    start: str | None = option(None, f"HuBERT or wav2vec 2.0 to start from: {CHECKPOINTS}")
    size: Size | None = option(
        None,
        "in the place of --start, with --trained-layers 0: a HuBERT "
        "of this size with random weights",
    )
    trained_layers: Whole = option(
        2, "layers that are trained, up to the one that is clustered; 0: the whole encoder"
    )
    recordings: Count | None = option(None, "only N recordings, drawn at random by --seed")
    device: str = option("auto", DEVICE)
    codes: Codes = group(Codes(), "codebook")
    versions: Versions = group(Versions(), "versions")
    labels: PseudoLabels = group(PseudoLabels(), "pseudo-labels")
    training: TrainingOptions = group(
        TrainingOptions(5000, 1e-4, 2500, schedule="linear", weight_decay=1e-6, clip=10.0),
        "training",
    )

    def run(self) -> None:
        from speechssl.pretrain.spin import SpinOptions, spin

        values = flat(self)
        labels, default = flat(self.labels), flat(PseudoLabels())
        changed = [name for name, value in labels.items() if value != default[name]]
        if self.labels.teacher is None and changed:
            raise InputError(
                f"{flags(changed)} would have no effect without a --teacher; name "
                "one, or leave it out"
            )
        if self.labels.codebook and (stray := {"teacher_layer", "clusters"} & set(changed)):
            raise InputError(
                f"{flags(sorted(stray))} would have no effect, since the codebook "
                "determines it; leave it out"
            )
        if self.labels.label_loss == "ctc" and self.training.steps <= self.training.warmup_steps:
            raise InputError(
                f"--label-loss ctc begins after {self.training.warmup_steps} --warmup-steps, and "
                f"there are {self.training.steps} "
                "--steps; give fewer of the former"
            )
        if self.versions.distort is None and (self.versions.noise or self.versions.noise_cache):
            raise InputError(
                "--noise and --noise-cache have no effect without --distort; give "
                "it too, or leave them out"
            )
        distort = distortions_of(values, self.out)
        use_device(self.device)
        names = {field.name for field in fields(SpinOptions)} - {"distort", "training", "trained"}
        chosen = {name: values[name] for name in names & values.keys()}
        options = SpinOptions(
            **chosen, training=self.training, trained=self.trained_layers or None, distort=distort
        )
        print(f"{self.out / 'encoder'}: {spin(self.source, self.out, options).hash}")
